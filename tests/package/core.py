"""A program for `test_core.py`: the core where SeqIO and TensorFlow cannot be imported, and an example of each kind of data.

    python core.py FOLDER

It imports each file of the core, writes into the folder, and prints what it made as JSON.
"""

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import pathlib
import pickle
import sys

import numpy as np

PACKAGE = pathlib.Path(__file__).parents[2] / "ul2_tasks"
BLOCKED = ("seqio", "t5", "tensorflow", "tensorflow_datasets", "tensorflow_text")
# The rooms of the core, and files of others.
CORE = (
    *(
        "order",
        "files",
        "images",
        "store",
        "tokenizers",
        "sources",
        "jobs",
        "chat",
        "denoisers",
        "corpus",
        "random_access",
        "mixtures",
    ),
    *("export", "inspect", "cli"),
)
BESIDE = {
    *("models.arrays", "models.transformers", "models.of_model", "mixtures.examples", "pytorch.measured_loader"),
    *("pytorch.collator", "pytorch.states"),
}
OF_TORCH = {  # where that is installed
    *("pytorch.collate", "pytorch.dataset", "pytorch.elements", "pytorch.t5gemma2_collator", "pytorch.packed_attention"),
    "image_rows.dataset",
}
HAS_TORCH, HAS_PILLOW = (importlib.util.find_spec(name) is not None for name in ("torch", "PIL"))
# The files that import a package of an extra, because all of their names need it.
OF_EXTRAS = {"jinja2": {"chat.template_engine"}}
LENGTHS = {"inputs": 96, "targets": 80}
DESCRIBED = """
import ul2_tasks

both = ul2_tasks.Mix("both", {ul2_tasks.Mixture("one"): 1, ul2_tasks.Mixture("other", denoisers="UL2R"): 2})
"""
SEEN = """
import ul2_tasks

seen = ul2_tasks.ImageText("seen", image_tokens=ul2_tasks.ImageTokens(4060, 4061, 4062, 4))
"""
IMAGE = {"boi_id": 4060, "image_id": 4061, "eoi_id": 4062, "image_seq_length": 4}


class Raises(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import that fails. Whether a module is there can be asked, as some packages do."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.partition(".")[0] in BLOCKED else None

    def create_module(self, spec):
        raise ImportError(f"{spec.name} was imported, and the core needs neither SeqIO nor TensorFlow")

    def exec_module(self, module):
        raise AssertionError


def files_of_the_core() -> list[str]:
    paths = (path for room in CORE for path in (PACKAGE / room).rglob("[a-z]*.py"))
    found = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in paths}
    for package, of_package in OF_EXTRAS.items():
        found -= set() if importlib.util.find_spec(package) else of_package
    return sorted(f"ul2_tasks.{name}" for name in {*found, *BESIDE, *(OF_TORCH if HAS_TORCH else ())})


def digest(examples) -> str:
    """Of ids and names of examples, or of the arrays of rows."""
    found = hashlib.sha256()
    for example in examples:
        for key in sorted(example):
            value = example[key]
            found.update(f"{key} {value.tolist() if isinstance(value, np.ndarray) else value}".encode())
    return found.hexdigest()


def texts(folder: pathlib.Path) -> dict:
    """Of files: from memory, from a cache, as packed rows, and in another process."""
    import ul2_tasks

    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ul2_tasks.embedded_documents()[:60]))
    mixture = ul2_tasks.Mixture("core", str(folder / "texts.jsonl"))
    uncached = ul2_tasks.examples(mixture, LENGTHS, seed=3)
    mixture.cache(folder / "CACHE")
    cached = ul2_tasks.examples(mixture, LENGTHS, seed=3, cache_dirs=[str(folder / "CACHE")])
    rows = ul2_tasks.examples(mixture, LENGTHS, seed=3, cache_dirs=[str(folder / "CACHE")], pack=True)
    assert pickle.loads(pickle.dumps(cached))[0]["inputs"].tolist() == cached[0]["inputs"].tolist()
    mix = ul2_tasks.Mix("mixed", {mixture: 2, ul2_tasks.Mixture("also", denoisers="UL2"): 1.5})
    return {
        "from memory": digest(uncached[:20]),
        "from a cache": digest(cached[:20]),
        "packed": digest(rows[:5]),
        "mixed": digest(ul2_tasks.examples(mix, LENGTHS, seed=3)[:20]),
        "fingerprint": mixture.fingerprint(),
        "where": repr(cached.locate(7)),
    }


def run_commands(folder: pathlib.Path) -> None:
    """Each command, of files, of conversations and of images, after `ul2 cache` found the cache whole."""
    cache, texts = folder / "CACHE", f"core --corpus {folder / 'texts.jsonl'}"
    assert "is complete already" in ul2(f"cache {texts} --output {cache}")
    for command in ("find --document 3", "show --step 2 --batch_size 4 --packed", "audit --until 3 --batch_size 4"):
        ul2(f"{command} {texts} --lengths 96,80 --cache {cache}")
    (folder / "described.py").write_text(DESCRIBED)
    (folder / "images.py").write_text(SEEN)
    of_images = f"{folder / 'images.py'}:seen --lengths 256,192"
    if not HAS_PILLOW:
        assert "pip install 'ul2_tasks[images]'" in ul2(f"show {of_images}", fails=True)
    for name in (f"{texts} --lengths 96,80", "chat", *[of_images] * HAS_PILLOW, f"{folder / 'described.py'}:both"):
        for command in ("show --count 1", "stats --examples 60", "lengths", "doctor"):
            ul2(f"{command} {name}")
    for name, format in (("chat", "parquet"), (texts, "tfrecord"), ("chat", "megatron"), (texts, "megatron")):
        output = folder / f"export_{name.partition(' ')[0]}_{format}"
        ul2(f"export {name} --format {format} --output {output}")
        if format != "megatron":
            assert "is as it was written" in ul2(f"verify {output}")
    assert "8 of 8 PASS" in ul2("")


def ul2(command: str, fails: bool = False) -> str:
    """What a command prints; of one that fails the error."""
    from click.testing import CliRunner

    import ul2_tasks.cli

    done = CliRunner().invoke(ul2_tasks.cli.main, command.split())
    may_fail = fails or command.startswith("doctor")  # which may find clashes in an environment
    assert done.exit_code == 0 or may_fail, done.output
    return done.output


def tokens(folder: pathlib.Path) -> str:
    """Of a pair of Megatron's files."""
    import ul2_tasks
    from ul2_tasks.store.write import PairWriter

    with PairWriter(str(folder / "pair.bin"), str(folder / "pair.idx"), np.dtype(np.uint16)) as pair:
        pair.add(np.arange(300, 1500, dtype=np.int32), np.array([500, 700]))
    return digest(ul2_tasks.examples(ul2_tasks.Mixture("pair", f"megatron:{folder}/pair"), LENGTHS)[:5])


def conversations(folder: pathlib.Path) -> dict:
    """As chats and as replies: from memory, and from a cache."""
    import ul2_tasks

    chat = ul2_tasks.Chat("talks", mode="[S]")
    uncached = ul2_tasks.examples(chat, {"tokens": 4096}, seed=3)
    chat.cache(folder / "CACHE")
    (folder / "talks.py").write_text("import ul2_tasks\ntalks = ul2_tasks.Chat('talks', mode='[S]')\n")
    assert "is complete already" in ul2(f"cache {folder / 'talks.py'}:talks --output {folder / 'CACHE'}")
    cached = ul2_tasks.examples(chat, {"tokens": 4096}, seed=3, cache_dirs=[str(folder / "CACHE")])
    replies = ul2_tasks.examples(chat, {"inputs": 4096, "targets": 4096}, seed=3, cache_dirs=[str(folder / "CACHE")])
    assert pickle.loads(pickle.dumps(cached))[0]["tokens"].tolist() == cached[0]["tokens"].tolist()
    return {
        "from memory": digest(uncached),
        "from a cache": digest(cached),
        "replies": digest(replies),
        "fingerprint": chat.fingerprint(),
        "where": repr(cached.locate(7)),
    }


def interleaved_data(folder: pathlib.Path) -> dict:
    """The cache of interleaved image-text data, and its examples by index, from memory and from there."""
    import ul2_tasks
    from ul2_tasks.corpus.documents import documents_of
    from ul2_tasks.mixtures.image_text import limits_of
    from ul2_tasks.random_access.image_text import index_records

    images = ul2_tasks.ImageText("seen", image_tokens=ul2_tasks.ImageTokens(**IMAGE))
    manifest = images.cache(folder / "CACHE")
    files = [file for shard in manifest["splits"]["train"]["shards"] for file in shard["files"]]
    limits, found = limits_of(images, {"inputs": 1024, "targets": 1024}), {}
    for cache_dirs in ([], [folder / "CACHE"]):
        records = documents_of(images.corpus(cache_dirs), "train", bool(cache_dirs))
        index = index_records(records, limits, images.vocabulary, "raise")
        numbers = np.arange(index.count)
        read = index.read(numbers, numbers % len(limits), numbers.astype(np.uint64))
        found["cache" if cache_dirs else "memory"] = digest([read.values, {"images": repr(read.images)}])
    return {"fingerprint": images.fingerprint(), "totals": manifest["totals"], "files": files, "examples": found}


def images() -> list[int]:
    """A row of texts and images."""
    from tests.image_sources import recipe
    from ul2_tasks.image_rows.rows import RowMaker

    maker = RowMaker(recipe())
    return maker.row(maker.packed(0)[0])["packed_text_ids"].tolist()


def collated() -> list[list[int]]:
    """A batch of the collator's."""
    import ul2_tasks

    collate = ul2_tasks.UL2DataCollator("default", LENGTHS, seed=3, return_tensors="np")
    return collate([text[:200] for text in ul2_tasks.embedded_documents()[:3]])["input_ids"].tolist()


def batches(folder: pathlib.Path) -> list:
    """What PyTorch reads of a description: single examples, batches of a model of Transformers, and a state."""
    import ul2_tasks

    mixture = ul2_tasks.Mixture("core", str(folder / "texts.jsonl"))
    settings = {"seed": 3, "cache_dirs": [folder / "CACHE"]}
    single = ul2_tasks.UL2IterableDataset(mixture, LENGTHS, **settings)
    padded = ul2_tasks.UL2IterableDataset(mixture, LENGTHS, feature_converter=converter(), rank=1, world_size=2, **settings)
    elements = [next(iter(single)), *itertools.islice(iter(padded), 2)]
    return [*({name: values.tolist() for name, values in element.items()} for element in elements), padded.state_dict()]


def converter():
    """Of batches that are padded."""
    import ul2_tasks

    return ul2_tasks.HuggingFaceFeatureConverter("longest", batch_size=4)


def main(folder: pathlib.Path) -> dict:
    for name in files_of_the_core():
        importlib.import_module(name)
    return {
        "texts": texts(folder),
        "tokens": tokens(folder),
        "conversations": conversations(folder),
        "interleaved image-text data": interleaved_data(folder) if HAS_PILLOW else None,
        "images": images() if HAS_PILLOW else None,
        "collated": collated(),
        "batches": batches(folder) if HAS_TORCH else None,
    }


if __name__ == "__main__":
    sys.meta_path.insert(0, Raises())
    print(json.dumps(main(pathlib.Path(sys.argv[1]))), flush=True)
    run_commands(pathlib.Path(sys.argv[1]))
    assert not {name.partition(".")[0] for name in sys.modules} & set(BLOCKED)
