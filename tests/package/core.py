"""A program for `test_core.py`: the core where SeqIO and TensorFlow cannot be imported, and an example of each kind of data.

    python core.py FOLDER

It imports each file of the core, and writes into the folder.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import pathlib
import pickle
import sys

import numpy as np

PACKAGE = pathlib.Path(__file__).parents[2] / "ul2_tasks"
BLOCKED = ("seqio", "t5", "tensorflow", "tensorflow_datasets", "tensorflow_text")
DOORS = {"tasks", "t5x", "pytorch", "image_rows", "models"}  # rooms of which some files are of the core, or none
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


class Raises(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import that fails. Whether a module is there can be asked, as some packages do."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.partition(".")[0] in BLOCKED else None

    def create_module(self, spec):
        raise ImportError(f"{spec.name} was imported, and the core needs neither SeqIO nor TensorFlow")

    def exec_module(self, module):
        raise AssertionError


def files_of_the_core() -> list[str]:
    paths = (path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.glob("*/**/[a-z]*.py"))
    found = {".".join(path.parts) for path in paths if path.parts[0] not in DOORS}
    for package, of_package in OF_EXTRAS.items():
        found -= set() if importlib.util.find_spec(package) else of_package
    return sorted(f"ul2_tasks.{name}" for name in {*found, *BESIDE, *(OF_TORCH if HAS_TORCH else ())})


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


def make(folder: pathlib.Path) -> None:
    """An example of each kind of data, from memory, from a cache, and of what PyTorch reads."""
    import ul2_tasks
    from ul2_tasks.store.write import PairWriter

    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ul2_tasks.embedded_documents()[:60]))
    with PairWriter(str(folder / "pair.bin"), str(folder / "pair.idx"), np.dtype(np.uint16)) as pair:
        pair.add(np.arange(300, 1500, dtype=np.int32), np.array([500, 700]))
    text, talks = ul2_tasks.Mixture("core", str(folder / "texts.jsonl")), ul2_tasks.Chat("talks", mode="[S]")
    replies = {"inputs": 4096, "targets": 4096}
    described = [(text, LENGTHS), (ul2_tasks.Mixture("pair", f"megatron:{folder}/pair"), LENGTHS)]
    described += [(ul2_tasks.Mix("mixed", {text: 2, ul2_tasks.Mixture("also", denoisers="UL2"): 1.5}), LENGTHS)]
    described += [(talks, {"tokens": 4096}), (talks, replies)]
    if HAS_PILLOW:
        from tests.image_sources import recipe
        from ul2_tasks.image_rows.rows import RowMaker

        described.append((ul2_tasks.ImageText("seen", image_tokens=ul2_tasks.ImageTokens(4060, 4061, 4062, 4)), replies))
        maker = RowMaker(recipe())
        assert maker.row(maker.packed(0)[0])
    for each, lengths in described:
        assert pickle.loads(pickle.dumps(ul2_tasks.examples(each, lengths)))[0]
    for each in (text, talks, *(each for each, _ in described[5:])):
        each.cache(folder / "CACHE")
    assert ul2_tasks.examples(text, LENGTHS, cache_dirs=[str(folder / "CACHE")], pack=True)[:5]
    collate = ul2_tasks.UL2DataCollator("default", LENGTHS, return_tensors="np")
    assert collate([text[:200] for text in ul2_tasks.embedded_documents()[:3]])
    if HAS_TORCH:
        converter = ul2_tasks.HuggingFaceFeatureConverter("longest", batch_size=4)
        for settings in ({}, {"feature_converter": converter, "rank": 1, "world_size": 2}):
            dataset = ul2_tasks.UL2IterableDataset(text, LENGTHS, cache_dirs=[folder / "CACHE"], **settings)
            assert next(iter(dataset))
            dataset.load_state_dict(dataset.state_dict())


if __name__ == "__main__":
    sys.meta_path.insert(0, Raises())
    for name in files_of_the_core():
        importlib.import_module(name)
    make(pathlib.Path(sys.argv[1]))
    run_commands(pathlib.Path(sys.argv[1]))
    assert not {name.partition(".")[0] for name in sys.modules} & set(BLOCKED)
