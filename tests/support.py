"""What several tests need: denoisers, vocabularies, documents as datasets, and the way back from an example to its chunk."""

import contextlib
import dataclasses
import io
import itertools
import json
import pathlib
import random
import threading

import mistral_common
import numpy as np
import sentencepiece
import seqio
import tensorflow as tf
from rich.console import Console
from sentencepiece import sentencepiece_model_pb2

from ul2_tasks import T5GEMMA2, UL2, UL2R, SequentialDenoiser, SpanDenoiser
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.denoisers.solution import DenoisingConfiguration
from ul2_tasks.mixtures.mixture import described_tasks
from ul2_tasks.store.write import PairWriter
from ul2_tasks.tasks.preprocessors import chunk, corrupt, solve_features
from ul2_tasks.tasks.vocabulary import special_in_seqio
from ul2_tasks.tokenizers.sentencepiece import DEFAULT_MODEL
from ul2_tasks.tokenizers.special_ids import SpecialTokens, SpecialTokensRequest, as_vocabulary, special_tokens

UNIFORM = tuple(
    SpanDenoiser(
        name=f"uniform_{d.name}",
        mean_span_length=d.mean_span_length,
        noise_density=d.noise_density,
        mode=d.mode,
        placement="uniform",
    )
    for d in T5GEMMA2
    if isinstance(d, SpanDenoiser)
)
SEQUENTIAL = tuple(
    SequentialDenoiser(name=f"s_{split}_{sentinel}".lower(), noise_density=rate, mode="[S]", split=split, sentinel=sentinel)
    for split, rate in (("fixed", 0.75), ("uniform", 0.25), ("uniform", 0.75))
    for sentinel in (True, False)
)
# Every kind of denoiser, each once: presets share some.
DENOISERS = list(dict.fromkeys([*T5GEMMA2, *UL2, *UL2R, *UNIFORM, *SEQUENTIAL]))
# One of each: spans placed in two ways, and sequential ones of fixed or drawn lengths, with a sentinel or without.
KINDS = list({tuple(getattr(d, key, None) for key in ("placement", "split", "sentinel")): d for d in DENOISERS}.values())


def records_of(source, split: str = "train") -> list:
    """The records of a split, in the order of the corpus."""
    return [record for shard in source.shards(split) for record in source.read(shard)]


def corpus_named(name: str):
    """The corpus of a registered task NAME_corpus."""
    return seqio.TaskRegistry.get(name).corpus


class Told:
    """A source that calls a function before a shard of it is read."""

    def __init__(self, source, before):
        self._source, self._before = source, before

    def __getattr__(self, name):
        return getattr(self._source, name)

    def read_group(self, shard):
        self._before()
        return self._source.read_group(shard)


def telling(corpus, before):
    """The corpus, of such a source."""
    return dataclasses.replace(corpus, source=Told(corpus.source, before))


def built(corpus: str, folder, **settings) -> dict:
    """Writes the cache of the corpus of a registered task NAME_corpus, and returns its manifest."""
    return build(corpus_named(corpus), str(folder), **{"console": Console(quiet=True), **settings})


@contextlib.contextmanager
def cache_dirs(*folders):
    """The folders in which SeqIO looks for caches."""
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([*map(str, folders)])
    yield
    seqio.set_global_cache_dirs(before)


def write_jsonl(path, records) -> str:
    """A file of JSON Lines, or of texts alone; returns its path."""
    records = ({"text": record} if isinstance(record, str) else record for record in records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def write_pair(prefix, documents, dtype="uint16") -> str:
    """A pair of Megatron's files; returns what names it as a source."""
    with PairWriter(f"{prefix}.bin", f"{prefix}.idx", np.dtype(dtype)) as pair:
        for document in documents:
            pair.add(np.array(document), np.array([len(document)]))
    return f"megatron:{prefix}"


def denoiser_id(denoiser) -> str:
    shape = f"{denoiser.split}-{denoiser.sentinel}" if isinstance(denoiser, SequentialDenoiser) else denoiser.placement
    return f"{denoiser.name}-{getattr(denoiser, 'mean_span_length', 'suffix')}-{denoiser.noise_density}-{shape}"


def byte_vocabulary(sentinels: int = 100) -> tuple[seqio.ByteVocabulary, dict[str, int]]:
    """ByT5's vocabulary with sentinels at its end and, before them, the modes."""
    return seqio.ByteVocabulary(extra_ids=sentinels + 3), {"[R]": 259, "[S]": 260, "[X]": 261}


def mistral_model() -> str:
    """A real, large SentencePiece BPE model with byte fallback and 761 unused control pieces, ids 10 to 770; id 0 is <unk>."""
    return str(pathlib.Path(mistral_common.__file__).parent / "data" / "mistral_instruct_tokenizer_240216.model.v2")


def t5_model(path: pathlib.Path) -> str:
    """A model of the layout of T5's: 32,000 pieces, padding 0, EOS 1, unknown 2, no sentinel, no mode. Most pieces are made up."""
    model = sentencepiece_model_pb2.ModelProto.FromString(DEFAULT_MODEL.read_bytes())
    piece = model.SentencePiece
    for number, special in enumerate(model.pieces[3:]):
        if special.type == piece.CONTROL:
            special.CopyFrom(piece(piece=f"\u2603{number}", score=-99, type=piece.NORMAL))
    model.pieces.extend(piece(piece=f"\u2602{number}", score=-99, type=piece.NORMAL) for number in range(32000 - len(model.pieces)))
    path.write_bytes(model.SerializeToString())
    return str(path)


def trained_model(sentences, **settings) -> bytes:
    """A small SentencePiece model."""
    written = io.BytesIO()
    settings = {"minloglevel": 2, "num_threads": 1, **settings}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=written, **settings)
    return written.getvalue()


def features(vocabulary: seqio.Vocabulary, add_eos: bool = True) -> dict[str, seqio.Feature]:
    return {key: seqio.Feature(vocabulary, add_eos=add_eos) for key in ("inputs", "targets")}


def long_documents() -> list[str]:
    """400 documents of 500 random letters: no 16 letters in a row are twice in them."""
    return ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz ", k=500)) for n in range(400)]


def flip(path: pathlib.Path) -> None:
    """Alters one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


# What can become of a file, and how the sentence begins that tells it, with its name for {}.
SPOILT_FILES = {
    "altered": (flip, "{} is altered: its SHA-256 is "),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-10]), "{} is truncated: "),
    "longer": (lambda path: path.write_bytes(path.read_bytes() * 2), "{} is too long: "),
    "missing": (lambda path: path.unlink(), "{} is missing"),
}


def token_dataset(documents) -> tf.data.Dataset:
    documents = [np.asarray(document, np.int32) for document in documents]
    return tf.data.Dataset.from_generator(
        lambda: ({"targets": document} for document in documents),
        output_signature={"targets": tf.TensorSpec([None], tf.int32)},
    )


def configured(denoiser, sentinels=None, modes=None, **settings) -> DenoisingConfiguration:
    return DenoisingConfiguration(denoiser, SpecialTokensRequest(sentinels, modes), **settings)


def denoise(documents, sequence_length, denoiser, vocabulary, seed=0, add_eos=True, **settings):
    """The examples that the preprocessors make of token lists, as SeqIO would call them."""
    with seqio.utils.map_seed_manager(seed):
        solution = solve_features(sequence_length, features(vocabulary, add_eos), configured(denoiser, **settings))
        examples = corrupt(chunk(token_dataset(documents), solution), solution)
    return list(examples.as_numpy_iterator())


def special_for(denoiser, vocabulary, modes) -> SpecialTokens:
    own = as_vocabulary(vocabulary)
    return special_in_seqio(special_tokens(own, denoiser.mode, modes=modes), own)


def flat(lists) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


def restore_all(examples, denoiser, special: SpecialTokens) -> list[int]:
    """The stream of tokens that examples were made of, in their order."""
    return flat(restore(example, denoiser, special) for example in examples)


def saved_and_resumed(make, count: int, folder: pathlib.Path):
    """An iterator over the dataset of `make()` that has given `count` elements, and another that goes on from its checkpoint."""
    saved, resumed = iter(make()), iter(make())
    for _ in range(count):
        next(saved)
    path = tf.train.Checkpoint(iterator=saved).write(str(folder / "saved"))
    tf.train.Checkpoint(iterator=resumed).read(path).assert_consumed()
    return saved, resumed


def restore(example, denoiser, special: SpecialTokens) -> list[int]:
    """The chunk that an example was made of, checking on the way that every special id is where it belongs."""
    inputs, targets = list(map(int, example["inputs"])), list(map(int, example["targets"]))
    assert tuple(inputs[: len(special.mode)]) == special.mode
    assert inputs.pop() == special.eos
    assert targets.pop() == special.eos
    inputs = inputs[len(special.mode) :]
    sentinels = set(special.sentinels)
    if not getattr(denoiser, "sentinel", True):
        assert not sentinels & {*inputs, *targets}
        return inputs + targets
    used = [id for id in inputs if id in sentinels]
    assert used == [id for id in targets if id in sentinels] == list(special.sentinels[: len(used)]), "in order, once each"
    assert targets[0] == special.sentinels[0]
    chunk = []
    for id in inputs:
        if id not in sentinels:
            chunk.append(id)
            continue
        targets = targets[1:]
        span = 0
        while span < len(targets) and targets[span] not in sentinels:
            span += 1
        assert span > 0, "every span has tokens"
        chunk += targets[:span]
        targets = targets[span:]
    assert not targets
    return chunk


def at_once(function, count=8):
    """What each of some threads that call a function at the same time returned or raised."""
    barrier, found = threading.Barrier(count), []

    def call():
        barrier.wait()
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def refused(found):
    """The sentences of those jobs that were refused because another one has their folder."""
    return [str(one) for one in found if isinstance(one, ValueError) and "is writing to" in str(one) and "Wait for it" in str(one)]


def described(task):
    """What the description of a registered task of text says of it: its special ids, and its chunks."""
    (found,) = described_tasks(task.description)
    return found
