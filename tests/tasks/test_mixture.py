"""`NAME_mix` as SeqIO's users see it: rates, independence, determinism, converters."""

import collections
import hashlib
import itertools
import string

import new_process
import numpy as np
import pytest
import scipy.stats
import seqio
import tensorflow as tf
from sizes import release
from support import byte_vocabulary, flat, long_documents, restore, special_for

from ul2_tasks import T5GEMMA2, register
from ul2_tasks.sources.memory import MemoryDataSource

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 128, "targets": 128}
SIGNIFICANCE = 1e-3
PAIRS = list(itertools.combinations([denoiser.name for denoiser in T5GEMMA2], 2))


def short_documents() -> list[str]:
    """8,192 documents of 4 letters, each another one."""
    return ["".join(letters) for letters in itertools.islice(itertools.product("abcdefghij", repeat=4), 8192)]


@pytest.fixture(scope="module")
def short_mixture():
    """Each example is one document."""
    name = register("short", MemoryDataSource(short_documents, validation=0), BYTES, modes=MODES, merge_examples=False)
    return seqio.get_mixture_or_task(name)


@pytest.fixture(scope="module")
def long_mixture():
    return register_long()


def register_long() -> seqio.Mixture:
    return seqio.get_mixture_or_task(register("long", MemoryDataSource(long_documents, validation=0.1), BYTES, modes=MODES))


@pytest.fixture(scope="module")
def two_denoisers():
    """R1 and S on 100 documents: for what does not depend on how many denoisers there are."""
    source = MemoryDataSource(lambda: long_documents()[:100], validation=0)
    return seqio.get_mixture_or_task(register("mixture_two", source, BYTES, T5GEMMA2[::4], modes=MODES))


@pytest.fixture(scope="module")
def drawn(short_mixture):
    """3,000 examples: of the denoisers of weight 1 are 375 expected each, give or take 18."""
    dataset = short_mixture.get_dataset(LENGTHS, split="train", seed=3, passthrough_features=["denoiser"])
    return list(dataset.take(3000).as_numpy_iterator())


def restored(examples, denoiser):
    special = special_for(denoiser, BYTES, MODES)
    return [tuple(restore(example, denoiser, special)) for example in examples]


def pairs(examples):
    return [(example["inputs"].tolist(), example["targets"].tolist()) for example in examples]


def test_rates_are_1_1_1_1_4_within_binomial_bounds(drawn):
    counts = collections.Counter(example["denoiser"].decode() for example in drawn)
    total = sum(denoiser.weight for denoiser in T5GEMMA2)
    for denoiser in T5GEMMA2:
        assert scipy.stats.binomtest(counts[denoiser.name], len(drawn), denoiser.weight / total).pvalue > SIGNIFICANCE
    expected = [len(drawn) * denoiser.weight / total for denoiser in T5GEMMA2]
    assert scipy.stats.chisquare([counts[denoiser.name] for denoiser in T5GEMMA2], expected).pvalue > SIGNIFICANCE


def test_denoisers_see_different_documents_at_a_time(short_mixture):
    """The first 1,024 documents of two denoisers share 128, as two random draws from 8,192 do; stock tasks share all."""
    first = {}
    for task in short_mixture.tasks:
        examples = list(task.get_dataset(LENGTHS, split="train", seed=3).take(1024).as_numpy_iterator())
        first[task.denoiser.name] = restored(examples, task.denoiser)
        assert len(set(first[task.denoiser.name])) == 1024
    chance = scipy.stats.hypergeom(8192, 1024, 1024)
    for a, b in PAIRS:
        overlap = len(set(first[a]) & set(first[b]))
        assert chance.ppf(SIGNIFICANCE / 2) <= overlap <= chance.ppf(1 - SIGNIFICANCE / 2), (a, b)
        assert sum(x == y for x, y in zip(first[a], first[b])) <= 3, "1024 / 8192 are expected in the same place"


def test_hosts_draw_different_noise(long_mixture):
    """SeqIO gives all hosts one seed, so without more the n-th example of every host would be masked alike."""
    task = next(task for task in long_mixture.tasks if task.denoiser.name == "r1")
    special = special_for(task.denoiser, BYTES, MODES)

    def masks(index):
        dataset = task.get_dataset(LENGTHS, split="train", seed=3, shard_info=seqio.ShardInfo(index, 2))
        return [np.flatnonzero(np.isin(example["inputs"], special.sentinels)).tolist() for example in dataset.as_numpy_iterator()]

    assert np.mean([a == b for a, b in zip(masks(0), masks(1))]) < 0.05


def digest() -> str:
    """SHA-256 of the first 256 examples of the mixture of long documents."""
    sha256 = hashlib.sha256()
    for example in register_long().get_dataset(LENGTHS, split="train", seed=1).take(256).as_numpy_iterator():
        for feature in ("inputs", "targets"):
            sha256.update(np.asarray(example[feature], "<i4").tobytes() + b"/")
    return sha256.hexdigest()


def test_golden_of_the_stream_in_another_process(monkeypatch):
    """Guards determinism across processes, machines and versions. If the stream changes on purpose, so must
    `providers.STREAM_VERSION`, and then this."""
    program = f"import sys; sys.path[:0] = {new_process.FOLDERS}; import test_mixture; print(test_mixture.digest())"
    release(monkeypatch)
    done = new_process.run("-c", program, check=True)
    assert done.stdout.split() == ["71e1c0735a1a25e17ab64bc619c23b2841b1be9ea742dc8dc3cdf143f8e044f9"]


def test_golden_examples_that_a_reader_sees():
    """The letters and digits by each denoiser, seed 0: `<n>` is the n-th sentinel, $ is EOS."""
    name = register("alphabet", MemoryDataSource(lambda: [string.ascii_letters + string.digits], validation=0), BYTES, modes=MODES)
    mixture = seqio.get_mixture_or_task(name)
    sentinels = special_for(T5GEMMA2[0], BYTES, MODES).sentinels
    names = {1: "$"} | {id: f"<{n}>" for n, id in enumerate(sentinels)} | {id: mode for mode, id in MODES.items()}
    names |= {id: chr(id - 3) for id in range(3, 259)}
    shown = {}
    for task in mixture.tasks:
        (example,) = task.get_dataset(LENGTHS, split="train", seed=0).as_numpy_iterator()
        shown[task.denoiser.name] = tuple("".join(names[id] for id in example[key].tolist()) for key in ("inputs", "targets"))
    # 62 characters: r1 masks round(62 * 0.15) = 9 in 3 spans, r2 31 in 3, x1 9 in 1, x2 31 in 1, s the last round(62 * 0.75) = 46.
    assert shown == {
        "r1": ("[R]abcdefghijklmnopq<0>tuvwxyzABCDEFGH<1>MNOPQRSTUVWXYZ0123456<2>$", "<0>rs<1>IJKL<2>789$"),
        "r2": ("[R]abcdefghijklmnopqr<0>NOPQRSTUVWXY<1>8<2>$", "<0>stuvwxyzABCDEFGHIJKLM<1>Z01234567<2>9$"),
        "x1": ("[X]abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0<0>$", "<0>123456789$"),
        "x2": ("[X]abcdefghijklmnopqrstuvwxyzABCDE<0>$", "<0>FGHIJKLMNOPQRSTUVWXYZ0123456789$"),
        "s": ("[S]abcdefghijklmnop<0>$", "<0>qrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789$"),
    }


CONVERTERS = {
    "enc-dec": seqio.EncDecFeatureConverter(pack=False),
    "enc-dec packed": seqio.EncDecFeatureConverter(pack=True),
    "prefix-lm": seqio.PrefixLMFeatureConverter(pack=False),
    "prefix-lm packed": seqio.PrefixLMFeatureConverter(pack=True),
    "decoder": seqio.DecoderFeatureConverter(pack=False),
    "decoder packed": seqio.DecoderFeatureConverter(pack=True),
}


@pytest.fixture(scope="module")
def to_convert(two_denoisers, drawn) -> dict[bool, list]:
    """Examples of documents that are joined, and to pack (True) those of documents kept apart, which differ in length."""
    joined = two_denoisers.get_dataset(LENGTHS, split="train", seed=4).take(300).as_numpy_iterator()
    return {False: list(joined), True: drawn[:300]}


def converted_by(converter, examples):
    spec = {key: tf.TensorSpec([None], tf.int32) for key in LENGTHS}
    dataset = tf.data.Dataset.from_generator(lambda: ({key: e[key] for key in LENGTHS} for e in examples), output_signature=spec)
    return list(CONVERTERS[converter](dataset, task_feature_lengths=LENGTHS).as_numpy_iterator())


@pytest.mark.parametrize("converter", CONVERTERS)
def test_seqios_converters_keep_every_token(to_convert, converter):
    examples = to_convert["packed" in converter]
    wanted = pairs(examples)
    converted = converted_by(converter, examples)
    got = flat(unpacked(features, converter) for features in converted)
    if "enc-dec" in converter:
        assert got == wanted
    else:
        assert got == [inputs + targets for inputs, targets in wanted]
    if "packed" not in converter:
        assert len(converted) == 300
    else:
        assert len(converted) < 300 / 10, "short documents share rows"


def unpacked(features, converter):
    """The examples of one row of model features."""
    keys = ["encoder_input_tokens", "decoder_target_tokens"] if "enc-dec" in converter else ["decoder_target_tokens"]
    segments = {}
    for key in keys:
        tokens = features[key]
        ids = features.get(f"{key.split('_')[0]}_segment_ids", (tokens > 0).astype(int))
        assert (tokens[ids == 0] == 0).all()
        segments[key] = [tokens[ids == segment].tolist() for segment in range(1, ids.max() + 1)]
    if "enc-dec" in converter:
        assert len(segments[keys[0]]) == len(segments[keys[1]]), "encoder and decoder have the same segments"
        return list(zip(*segments.values()))
    weights = features["decoder_loss_weights"]
    assert weights.sum() > 0
    return segments[keys[0]]
