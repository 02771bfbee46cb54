"""The streams of batches that this benchmark measures, by case and side, and what is counted and checked in what they gave.

A stream is a function of a number of batches that returns an iterator over so many, the next ones of an endless dataset; in the
case `denoiser` it is a new iterator over one epoch of documents in memory, whatever the number.
"""

from __future__ import annotations

import functools
import glob
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from speed import peers, tasks
from speed.tasks import FEATURES
from speed.vocabulary import SENTINEL_IDS, VOCABULARY, solved, special
from ul2_tasks import T5GEMMA2, EncDecFeatureConverter
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.tasks.preprocessors import denoise, split_into_chunks

seqio.add_global_cache_dirs(["cache"])

SEED = 0
DENOISER_TOKENS = 2_000_000  # documents in memory have about so many, or all that there are
BY_NAME = {denoiser.name: denoiser for denoiser in T5GEMMA2}

Batch = Mapping[str, tf.Tensor | tf.RaggedTensor | np.ndarray]
Stream = Callable[[int], Iterator[Batch]]


def streams(case: str, side: str, length: int) -> dict[str, Stream]:
    """By variant: in the case `denoiser` one for each denoiser, otherwise a single one without a name."""
    if case == "denoiser":
        documents = in_memory()
        make = denoiser_numpy if side == "numpy" else denoiser_tf
        return {name: make(side, documents, denoiser, length) for name, denoiser in BY_NAME.items()}
    if side == "tokenizing":
        return {"": endless(tokenizing())}
    if side == "numpy":
        return {"": endless(numpy_batches(case, length))}
    return {"": endless(dataset(case, side, length))}


def endless(batches: tf.data.Dataset | Iterator[Batch]) -> Stream:
    iterator = iter(batches)
    return lambda count: itertools.islice(iterator, count)


def dataset(case: str, side: str, length: int) -> tf.data.Dataset:
    """Through SeqIO's front door; in padded batches where there is no converter to make them equal."""
    name = {"t5": "t5_text" if case == "text" else "t5", "floor": f"floor_{length}"}.get(side, "ours")
    if side == "floor":
        tasks.add_floor(length)
    name = f"{name}_{case.removeprefix('task_') if case.startswith('task_') else 'mix'}"
    # The peers' tasks read the cache's records, or the text, as their source.
    settings = {"use_cached": side.startswith("ours") and case != "text", "shuffle": True, "seed": SEED, "num_epochs": None}
    if case not in ("unpacked", "packed"):
        return peers.batched(seqio.get_mixture_or_task(name).get_dataset(lengths(length), split="train", **settings))
    converter = EncDecFeatureConverter if side in ("ours", "ours_rows") else seqio.EncDecFeatureConverter
    converted = seqio.get_dataset(
        name,
        lengths(length),
        feature_converter=converter(pack=case == "packed"),
        dataset_split="train",
        batch_size=None if side == "ours_rows" else peers.EXAMPLES_PER_BATCH,
        **settings,
    )
    if side == "ours_rows":
        converted = tf.data.Dataset.batch(converted, peers.EXAMPLES_PER_BATCH, drop_remainder=True)
    return peers.on_all_cores(converted)


def tokenizing() -> tf.data.Dataset:
    """The corpus from text, tokenized, 128 documents at a time."""
    corpus = seqio.get_mixture_or_task("ours_corpus").get_dataset(None, split="train", seed=SEED, num_epochs=None)
    tokens = corpus.map(lambda document: {"targets": document["targets"]}).ragged_batch(peers.EXAMPLES_PER_BATCH)
    return peers.on_all_cores(tokens)


def numpy_batches(case: str, length: int) -> Iterator[Batch]:
    names = [case.removeprefix("task_")] if case.startswith("task_") else list(BY_NAME)
    examples = [numpy_examples(case, BY_NAME[name], length, seed) for seed, name in enumerate(names)]
    mixed = peers.numpy_mixture(examples, [BY_NAME[name].weight for name in names], SEED)
    if case == "unpacked":
        return peers.numpy_batches(mixed, functools.partial(peers.numpy_model_features, lengths=lengths(length)))
    return peers.numpy_batches(mixed)


def numpy_examples(case: str, denoiser: Denoiser, length: int, seed: int) -> Iterator[peers.Example]:
    if case == "text":
        documents = peers.numpy_texts(sorted(glob.glob(tasks.TEXT_FILES)), VOCABULARY, seed)
    else:
        documents = peers.numpy_records(sorted(glob.glob(tasks.CACHE_FILES)), seed)
    return peers.numpy_examples(documents, denoiser, solved(denoiser, length), special(denoiser), seed)


@functools.cache
def in_memory() -> list[np.ndarray]:
    files = sorted(glob.glob(tasks.CACHE_FILES))
    documents = list(peers.numpy_records(files, seed=None))
    ends = np.cumsum([len(document) for document in documents])
    return documents[: np.searchsorted(ends, DENOISER_TOKENS) + 1]


def denoiser_tf(side: str, documents: Sequence[np.ndarray], denoiser: Denoiser, length: int) -> Stream:
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(documents), [len(document) for document in documents])
    # The cache is not for speed of reading but against the map: a function call per document would cost as much as we do.
    examples = tf.data.Dataset.from_tensor_slices(ragged).map(lambda tokens: {"targets": tokens}).cache()
    with seqio.utils.map_seed_manager(SEED):
        if side == "ours":
            given: dict[str, Any] = {"denoiser": denoiser, "sentinels": SENTINEL_IDS}
            examples = split_into_chunks(examples, lengths(length), FEATURES, **given)
            examples = denoise(examples, lengths(length), FEATURES, **given)
        else:
            examples = peers.peer(examples, FEATURES, denoiser, solved(denoiser, length), special(denoiser).mode)
    batches = peers.batched(examples)
    return lambda count: iter(batches)


def denoiser_numpy(side: str, documents: Sequence[np.ndarray], denoiser: Denoiser, length: int) -> Stream:
    full, ids = solved(denoiser, length), special(denoiser)
    return lambda count: peers.numpy_batches(peers.numpy_examples(documents, denoiser, full, ids, SEED))


def lengths(length: int) -> dict[str, int]:
    return {"inputs": length, "targets": length}


def count(batches: Sequence[Any], case: str, side: str, length: int) -> dict[str, Any]:
    """What came out of a round: text tokens (those that are no special ones), examples by denoiser, bytes, padding.

    Raises:
        AssertionError: an example of a full chunk is not of the solved lengths, or one is longer; an example is shorter though
            the side makes none such from an endless corpus.
    """
    if side == "tokenizing":
        documents = [batch["targets"] for batch in batches]
        tokens = sum(int(each.flat_values.shape[0]) for each in documents)
        return {"examples": sum(int(each.nrows()) for each in documents), "tokens": tokens, "bytes": 4 * tokens}
    arrays = [{key: np.asarray(values) for key, values in batch.items()} for batch in batches]
    found = np.concatenate([examples_of(batch) for batch in arrays])
    names = list(BY_NAME)
    full = np.array([[chunk.length, chunk.inputs, chunk.targets] for chunk in (solved(BY_NAME[name], length) for name in names)])
    text, full = found["text"], full[found["denoiser"]]
    is_full = text == full[:, 0]
    assert (text <= full[:, 0]).all(), f"{side}: an example has more tokens than the solved chunk of {length}"
    exact = (found["inputs"] == full[:, 1]) & (found["targets"] == full[:, 2])
    assert exact[is_full].all(), f"{side}: full chunks with other lengths than the solved ones of {length}"
    may_be_short = side == "t5" or case == "denoiser" or side.startswith("ours")
    assert may_be_short or is_full.all(), f"{side}: {(~is_full).sum()} examples are short"
    padded = {key: sum(batch[name].size for batch in arrays for name in batch if name in KEYS[key]) for key in KEYS}
    return {
        "examples": len(found),
        "tokens": int(text.sum()),
        "short": int((~is_full).sum()),
        "denoisers": dict(zip(names, np.bincount(found["denoiser"], minlength=len(names)).tolist())),
        "bytes": sum(values.nbytes for batch in arrays for values in batch.values()),
        "rows": sum(len(next(iter(batch.values()))) for batch in arrays),
        "fill": {key: float(found[key].sum() / padded[key]) for key in KEYS},
    }


KEYS = {"inputs": ("inputs", "encoder_input_tokens"), "targets": ("targets", "decoder_target_tokens")}
SEGMENTS = {"inputs": "encoder_segment_ids", "targets": "decoder_segment_ids"}
MODES = list(dict.fromkeys(denoiser.mode for denoiser in T5GEMMA2))
FOUND = np.dtype([("denoiser", int), ("text", int), ("inputs", int), ("targets", int)])


@functools.cache
def id_tables() -> tuple[np.ndarray, np.ndarray]:
    """By id: whether it is text; 1 + the number of the mode that it is, or 0."""
    is_text, mode = np.ones(VOCABULARY.vocab_size, bool), np.zeros(VOCABULARY.vocab_size, int)
    for denoiser in T5GEMMA2:
        ids = special(denoiser)
        is_text[[*ids.reserved, *ids.mode]] = False
        is_text[ids.eos] = False
        mode[ids.mode[0]] = 1 + MODES.index(denoiser.mode)
    return is_text, mode


def examples_of(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """[examples] FOUND: the examples of a batch, packed or not, told apart by their mode and their share of noise."""
    is_text, mode_of = id_tables()
    most = max((int(batch[name].max()) for name in SEGMENTS.values() if name in batch), default=1)
    sizes, texts, modes = {}, {}, np.zeros(0, int)
    for key, names in KEYS.items():
        ids = next(batch[name] for name in names if name in batch)
        segments = batch.get(SEGMENTS[key], (ids > 0).astype(int))
        # Each segment of each row is an example; in the first place of a row are its paddings.
        example = (segments + np.arange(len(ids))[:, np.newaxis] * (most + 1)).ravel()
        example = np.where(segments.ravel() > 0, example, 0)
        total = functools.partial(np.bincount, example, minlength=len(ids) * (most + 1))
        sizes[key], texts[key] = total(segments.ravel() > 0), total(is_text[ids].ravel() & (segments.ravel() > 0))
        modes = modes if len(modes) else total(mode_of[ids].ravel())
    present = sizes["inputs"] > 0
    assert (present == (sizes["targets"] > 0)).all(), "inputs without targets, or targets without inputs"
    found = np.zeros(int(present.sum()), FOUND)
    for key in KEYS:
        found[key] = sizes[key][present]
    text = (texts["inputs"] + texts["targets"])[present]
    found["text"] = text
    density = np.array([denoiser.noise_density for denoiser in T5GEMMA2])
    of_mode = np.array([1 + MODES.index(denoiser.mode) for denoiser in T5GEMMA2])
    share = texts["targets"][present] / np.maximum(text, 1)
    distance = np.abs(share[:, np.newaxis] - density) + 9 * (modes[present][:, np.newaxis] != of_mode)
    found["denoiser"] = distance.argmin(axis=1)
    return found


def check_epoch(counted: Mapping[str, int], side: str, documents: Sequence[np.ndarray]) -> None:
    """Asserts that an epoch gave out every token, in full chunks but for those that a side must end shorter."""
    most_short = -(-len(documents) // peers.T5_DOCUMENTS_PER_BATCH) if side == "t5" else 1
    tokens = sum(map(len, documents))
    assert counted["tokens"] == tokens, f"{side}: {counted['tokens']} tokens came out, expected {tokens}"
    assert counted["short"] <= most_short, f"{side}: {counted['short']} short chunks, expected at most {most_short}"
