"""What must not change unless it is meant to: streams, examples by number, rows, states, what commands print, ids of pages.

    python -m pytest tests/golden --update-golden

writes the files of `files/` anew. Read how they differ before you commit them.
"""

from __future__ import annotations

import functools
import hashlib
import re

import numpy as np
import pytest
import seqio
import tensorflow as tf

import ul2_tasks
from tests.golden.golden_files import check
from tests.golden.golden_pipelines import (
    BOTH,
    CORPUS,
    FOLDER,
    LENGTHS,
    SEEN,
    TWO,
    apart,
    both,
    digest,
    digests,
    five,
    image_rows,
    joined,
    memory,
    of_files,
    one_of,
    plain,
    seen,
    stream,
    talk,
)
from ul2_tasks import (
    UL2,
    UL2R,
    CausalDenoiser,
    ChatFeatureConverter,
    EncDecFeatureConverter,
    HuggingFaceChatConverter,
    HuggingFaceFeatureConverter,
    MemoryDataSource,
    PromptCompletionFeatureConverter,
    SequentialDenoiser,
    SpanDenoiser,
    embedded_documents,
    examples,
    mix,
    register,
    register_chat,
    seqio_converter,
)

READABLE, OF_EACH = 2, 100
EMBEDDED = "faa9cec8b1ce"


@pytest.fixture(autouse=True, scope="module")
def as_users_have_it():
    """No cache, and the folder to which the paths of corpora are relative."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(FOLDER)
        patch.setattr("seqio.utils._GLOBAL_CACHE_DIRECTORIES", [])
        yield


@pytest.fixture
def golden(request):
    """Compares a value with what a file has under a key."""
    return functools.partial(check, update=request.config.getoption("--update-golden"))


def summary(elements, name: str, readable: int = READABLE) -> dict:
    """The first elements to read, with the vocabulary of a task or mixture, and a hash of each hundred."""
    features = seqio.get_mixture_or_task(name).output_features
    elements, vocabulary = list(elements), features["targets" if "targets" in features else "tokens"].vocabulary
    found = [digest(element) for element in elements]
    parts = [found[start : start + OF_EACH] for start in range(0, len(found), OF_EACH)]
    return {
        "elements": len(elements),
        "first": [{key: shown(key, value, vocabulary) for key, value in sorted(one.items())} for one in elements[:readable]],
        "sha256 of each 100": [hashlib.sha256(" ".join(part).encode()).hexdigest()[:16] for part in parts],
    }


def shown(key: str, value, vocabulary):
    """Tokens as text, without EOS and padding; of other numbers 3*1 where three in a row are 1, and 2..5 for 2, 3, 4, 5."""
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        return plain(value)
    if array.ndim == 0:
        return plain(value) if array.dtype.kind in "iu" else round(float(array), 3)
    if array.dtype.kind not in "iu" or array.ndim > 2 or array.size > 2000:
        return f"{array.dtype} {list(array.shape)}"
    if array.ndim == 2:
        return [shown(key, row, vocabulary) for row in array]
    if re.search(r"^(inputs|targets|tokens|labels|packed_text_ids|packed_label_ids)$|_tokens$|input_ids$", key):
        return vocabulary.decode([int(id) for id in array if id > (vocabulary.eos_id or 0)])
    return " ".join(_runs(array.astype(int).tolist()))


def _runs(numbers: list[int]):
    while numbers:
        for step in (1, 0):
            count = next((at for at, number in enumerate(numbers) if number != numbers[0] + step * at), len(numbers))
            if count > 2 or not step:
                break
        yield f"{numbers[0]}..{numbers[count - 1]}" if step else f"{count}*{numbers[0]}"
        numbers = numbers[count:]


UNIFORM = [
    SpanDenoiser(name="r", mean_span_length=3, noise_density=0.15, mode="[R]", placement="uniform"),
    SequentialDenoiser(name="s", noise_density=0.75, mode="[S]", split="uniform"),
]


def uniform() -> str:
    return register("golden_uniform", memory(), denoisers=UNIFORM)


def shorter() -> str:
    return register("golden_shorter", memory(), denoisers=TWO[1:], chunk_tokens={"s": 40}, separate_documents=True)


def causal() -> str:
    return register("golden_causal", memory(), denoisers=CausalDenoiser(mode=None), separate_documents=True)


def two_corpora() -> str:
    other = register(
        "golden_other", MemoryDataSource(lambda: memory().documents("validation") * 9, validation=0), denoisers=TWO[1:]
    )
    return mix("golden_corpora", {joined(): 2, other: 1})


def noised(kind, **more) -> str:
    denoiser = kind(mask="<extra_id_0>", **more)
    return register(f"golden_{denoiser.name}", memory(), denoisers=denoiser, merge_examples=False)


ONCE = {"num_epochs": 1}
STREAMS = {
    "mixture": lambda: (five(), {"passthrough_features": ["denoiser", "task"]}),
    "not shuffled, 512 and 128": lambda: (
        one_of(five, "x2"),
        {"lengths": {"inputs": 512, "targets": 128}, "shuffle": False, **ONCE},
    ),
    "without end": lambda: (one_of(five, "r2"), {"num_epochs": None}),
    "shard 0 of 2": lambda: (joined(), {"shard_info": seqio.ShardInfo(0, 2)}),
    "documents apart": lambda: (one_of(apart, "r1"), ONCE),
    "uniform": lambda: (uniform(), ONCE),
    "causal": lambda: (causal(), ONCE),
    "files": lambda: (one_of(of_files, "s"), ONCE),
    "text and replies": lambda: (both(), {"lengths": BOTH, **ONCE}),
    "pictures": lambda: (one_of(seen, "s"), {"lengths": SEEN, **ONCE}),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams(golden, name):
    of, settings = STREAMS[name]()
    golden("streams", name, summary(stream(of, **settings).take(300).as_numpy_iterator(), of))


def test_the_embedded_corpus(golden):
    """It is of Python, and other Pythons have another."""
    documents = embedded_documents()
    corpus = {"documents": len(documents), "sha256": hashlib.sha256("\n".join(documents).encode()).hexdigest()}
    if corpus["documents"] != 525 or not corpus["sha256"].startswith(EMBEDDED):
        pytest.skip(f"this Python's documentation is another than that of 3.11: {corpus}")
    lengths = {"inputs": 512, "targets": 512}
    golden("embedded", "stream", {**corpus, **summary(stream("ul2_s", lengths).take(100).as_numpy_iterator(), "ul2_mix")})
    golden("embedded", "by number", {**corpus, **summary(examples("ul2_mix", lengths), "ul2_mix")})


CHATS = {
    "chat, whole": {},
    "chat, sampled, last turn": {"train_on": "generated", "turns": "last"},
    "chat, content, own spans": {
        "train_on": "content",
        "loss_groups": {"assistant/final": 7, "assistant/analysis": 0, "assistant/commentary": 0, "assistant/commentary>tool": 9},
    },
    "reply, whole": {"format": "prompt_completion"},
    "reply, sampled": {"format": "prompt_completion", "train_on": "generated", "turns": "all", "mode": "[S]"},
    "reply, content, oldest turns left out": {
        "format": "prompt_completion",
        "train_on": "content",
        "truncation": "drop_oldest_turns",
    },
}


@pytest.mark.parametrize("name", CHATS)
def test_conversations(golden, name):
    source = MemoryDataSource(lambda: (CORPUS / "chats.jsonl").read_text(encoding="utf-8").split("\n")[:-1], validation=0)
    task = register_chat("golden_" + re.sub(r"\W+", "_", name), source, **CHATS[name])
    lengths = {"inputs": 120, "targets": 120} if "oldest" in name else None
    golden("conversations", name, summary(stream(task, lengths, num_epochs=1).as_numpy_iterator(), task))


INDEXED = {
    "examples": lambda: examples(five(), LENGTHS),
    "another seed and epoch": lambda: examples(five(), LENGTHS, seed=3).epoch(2),
    "not shuffled": lambda: examples(five(), LENGTHS, shuffle=False, split="validation"),
    "one denoiser, 512 and 128": lambda: examples(one_of(five, "x2"), {"inputs": 512, "targets": 128}),
    "rows": lambda: examples(five(), LENGTHS, pack=True),
    "rows, 512 and 128": lambda: examples(five(), {"inputs": 512, "targets": 128}, pack=True, seed=5),
    "two corpora": lambda: examples(two_corpora(), LENGTHS),
    "two corpora, rows": lambda: examples(two_corpora(), LENGTHS, pack=True),
    "uniform": lambda: examples(uniform(), LENGTHS),
    "UL2": lambda: examples(register("golden_ul2", memory(), denoisers=UL2), LENGTHS),
    "UL2R": lambda: examples(register("golden_ul2r", memory(), denoisers=UL2R), LENGTHS),
    "chunk_tokens and separate_documents": lambda: examples(shorter(), LENGTHS),
    "diffusion, rows": lambda: examples(noised(ul2_tasks.MaskDiffusion), LENGTHS, pack=True),
    "diffusion by blocks, rows": lambda: examples(noised(ul2_tasks.BlockDiffusion, block_length=16), LENGTHS, pack=True),
}


@pytest.mark.parametrize("name", INDEXED)
def test_examples_by_number(golden, name):
    found = INDEXED[name]()
    golden("indexed", name, summary(found, five()))


@pytest.mark.parametrize("name", ["examples", "rows", "two corpora"])
def test_addresses(golden, name):
    found = INDEXED[name]().epoch(1)
    corpus = {"corpus": "golden_corpus"} if name == "two corpora" else {}
    where = {index: as_plain(found.locate(index)) for index in (0, 1, len(found) // 2, len(found) - 1)}
    golden("random_access", name, {"where": where, "when": {number: found.find(number, **corpus) for number in (0, 7, 42, 120)}})


BLOCKS = ul2_tasks.BlockShuffle(block_tokens=400, partitions=2, window_blocks=2)


@pytest.mark.parametrize("pack", [False, True], ids=["alone", "packed"])
def test_records_in_blocks(golden, pack):
    arguments = {"block_shuffle": BLOCKS}
    description = ul2_tasks.Chat("golden_talk", "corpus/chats.jsonl", validation=0.2, **arguments)
    found = examples(description, {"tokens": 512}, pack=pack)
    assert not found.numbering.corpora[0].order.is_one_window
    golden("random_access", f"chat in blocks, {'packed' if pack else 'alone'}", digests(found[:40]))


def as_plain(location):
    return [as_plain(each) for each in location] if isinstance(location, list) else vars(location)


def of_transformers(*arguments, **named):
    return seqio_converter(HuggingFaceFeatureConverter(*arguments, **named))


ROWS = {
    "EncDec": lambda: (one_of(joined, "r1"), LENGTHS, EncDecFeatureConverter(pack=False)),
    "Hugging Face": lambda: (one_of(joined, "s"), LENGTHS, of_transformers(decoder_start_token_id=3, pad_token_id=7)),
    "Hugging Face, longest": lambda: (one_of(apart, "r1"), LENGTHS, of_transformers("longest", 4)),
    "Hugging Face, decoder": lambda: (one_of(joined, "r1"), LENGTHS, of_transformers(decoder_only=True)),
    "chat": lambda: (talk(), {"tokens": 512}, ChatFeatureConverter(pack=False)),
    "chat, packed": lambda: (talk(), {"tokens": 512}, ChatFeatureConverter(pack=True)),
    "chat, Hugging Face": lambda: (talk(), {"tokens": 512}, seqio_converter(HuggingFaceChatConverter())),
    "reply": lambda: (talk("prompt_completion"), {"inputs": 512, "targets": 128}, PromptCompletionFeatureConverter(pack=False)),
}


@functools.cache
def in_order(of: str, lengths: tuple) -> tf.data.Dataset:
    return stream(of, dict(lengths), num_epochs=1, shuffle=False)


@pytest.mark.parametrize("name", ROWS)
def test_rows(golden, name):
    of, lengths, converter = ROWS[name]()
    found = converter(in_order(of, tuple(lengths.items())), lengths)
    golden("rows", name, summary(found.take(100).as_numpy_iterator(), of, readable=1))


@pytest.mark.torch
def test_image_rows(golden):
    pytest.importorskip("torch", reason="the extra torch is not installed")
    found = {"rows": image_rows(num_epochs=None), "rows of a shard": image_rows(rank=1, world_size=2, seed=8, shrink=True)}
    for name, dataset in found.items():
        rows = [row for row, _ in zip(dataset, range(40))]
        golden("image_rows", name, {**summary(rows, "ul2_mix", readable=1), "skipped": dataset.skipped})
