"""The table of pipelines: each is a row, and `every_law` has what holds of all of them. A new pipeline is one row.

No word of the texts is twice in them, and the words of a document are counted on. So each id tells from where it is. The
tokenizer's id 0 is a word, so that behind SeqIO's interface all ids are one higher than the tokenizer's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import pathlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import seqio
import tensorflow as tf
from rich.console import Console
from tokenizers import Tokenizer, models, pre_tokenizers

import ul2_tasks
from tests.support import corpus_named, restore
from ul2_tasks import (
    T5GEMMA2,
    ChatFeatureConverter,
    EncDecFeatureConverter,
    HuggingFaceChatConverter,
    MemoryDataSource,
    PromptCompletionFeatureConverter,
    seqio_converter,
)
from ul2_tasks.chat.by_name import open_renderer
from ul2_tasks.chat.harmony import MARKERS
from ul2_tasks.corpus.build_cache import build as build_cache
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.random_access import windows
from ul2_tasks.random_access.windows import WINDOW_TOKENS
from ul2_tasks.tasks.tf_data import reading_of
from ul2_tasks.tokenizers.special_ids import SpecialTokens, special_tokens

SEED = 5
LENGTHS = {"inputs": 40, "targets": 40}
R1, S = T5GEMMA2[::4]
FIM = ul2_tasks.FIMDenoiser(
    mode="[X]", tokens=("<extra_id_0>", "<extra_id_1>", "<extra_id_2>"), loss="middle", rate=0.8, borders="words"
)
NOISED = (
    *(kind(mode="[X]", mask="<extra_id_0>") for kind in (ul2_tasks.MaskDiffusion, ul2_tasks.BlockDiffusion)),
    *(kind(mode="[X]", block_length=8) for kind in (ul2_tasks.UniformDiffusion, ul2_tasks.CanvasDiffusion)),
)
CUT = dataclasses.replace(FIM, loss="all", borders="characters", keep_first=1)
WHOLE = ul2_tasks.SpanDenoiser(
    **{"name": "whole", "mode": "[X]", "mean_span_length": 1, "noise_density": 0.3},
    **{"placement": "touching", "targets": "whole", "mask": "<extra_id_9>", "borders": "words"},
)
SIZES = [5 + 7 * number % 31 for number in range(95)]  # of the documents, in words
WORDS = sum(SIZES)
ROLES = ("user", "assistant", "system", "analysis", "final")  # which Harmony's form spells
BLOCKS = ul2_tasks.BlockShuffle(block_tokens=130, partitions=3, window_blocks=2)
OF_EPOCHS = ("hosts", "epochs", "once")  # laws
WINDOW = WORDS // 5  # tokens, of what is read in windows
FOLDER = pathlib.Path()  # of all files; `use` sets it


class State(NamedTuple):
    """How a dataset is read; how an iterator is saved to a file, and gone on with from there.

    `move` goes on with the dataset of one of another number of hosts, from what a host saved, at so many elements of its own.
    """

    read: Callable[[Any], Iterator[Any]]
    save: Callable[[Any, Iterator[Any], str], object]
    restore: Callable[[Any, str], Iterator[Any]]
    move: Callable[[Any, str, int], Iterator[Any]]


# What the pipelines read: `prepare` writes it, and another process uses it.


def prepare(folder: pathlib.Path) -> None:
    """A tokenizer, and files of conversations and of texts."""
    use(folder)
    (folder / "tokenizer").mkdir()
    words = [*(f"w{number}" for number in range(WORDS)), *ROLES]
    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, unk_token=ROLES[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    (folder / "tokenizer" / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    for corpus in ("one", "other"):
        lines = [json.dumps({"messages": messages}) for messages in conversations(corpus)]
        (folder / f"{corpus}.jsonl").write_text("".join(line + "\n" for line in lines))
        (folder / f"{corpus}_talks").mkdir()
        for file in range(8):
            (folder / f"{corpus}_talks" / f"{file}.jsonl").write_text("".join(f"{line}\n" for line in lines[file::8]))
        (folder / corpus).mkdir()
        for file in range(8):
            lines = [json.dumps({"text": text, "weight": len(text) % 7}) for text in documents(corpus)[file::8]]
            (folder / corpus / f"{file}.jsonl").write_text("".join(line + "\n" for line in lines))


def use(folder: pathlib.Path) -> None:
    global FOLDER
    FOLDER = folder


def documents(corpus: str) -> list[str]:
    """Of words that are counted on; the other corpus has documents of the same lengths, counted downwards."""
    numbers = range(WORDS) if corpus == "one" else range(WORDS - 1, -1, -1)
    ends = itertools.accumulate(SIZES)
    return [" ".join(f"w{number}" for number in numbers[end - size : end]) for size, end in zip(SIZES, ends)]


def conversations(corpus: str) -> list[list[dict[str, str]]]:
    """Of one turn or two; all documents are said once."""
    said = iter(documents(corpus))
    found = []
    while system := next(said, None):
        messages = [{"role": "system", "content": system}]
        for text in itertools.islice(said, 1 + len(found) % 2):
            question, reasoning, *answer = text.split()
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "channel": "analysis", "content": reasoning})
            messages.append({"role": "assistant", "channel": "final", "content": " ".join(answer)})
        found.append(messages)
    return found


def answered() -> list[int]:
    """The words that are said by the assistant."""
    messages = itertools.chain.from_iterable(conversations("one"))
    return [int(word[1:]) for each in messages if each["role"] == "assistant" for word in each["content"].split()]


@functools.cache
def borders() -> tuple[set[int], set[int]]:
    """The last words of documents, and the first ones."""
    ends = [*itertools.accumulate(SIZES)]
    return {end - 1 for end in ends}, {end - size for end, size in zip(ends, SIZES)}


@functools.cache
def renderer():
    """Of conversations. Its vocabulary, with sentinels and modes, is that of the texts, too."""
    return open_renderer(f"harmony:{FOLDER}/tokenizer")


@functools.cache
def special(denoiser: Any) -> SpecialTokens:
    """The special ids of a denoiser, as the tokenizer's own."""
    found = special_tokens(renderer().vocabulary, denoiser.mode, own=denoiser.own_tokens)
    return SpecialTokens(found.sentinels, found.mode, found.eos, frozenset())


@functools.cache
def of_conversations() -> frozenset[int]:
    """The tokenizer's own ids of what is around the words of a conversation."""
    vocabulary = renderer().vocabulary
    markers = {vocabulary.piece_id(name) for name in MARKERS}
    return frozenset({*markers, *vocabulary.encode(" ".join(ROLES)), vocabulary.eos_id})


@functools.cache
def cache_of(name: str, corpus: str) -> str:
    """The folder with the cache of a corpus, which is registered."""
    folder = FOLDER / "caches" / corpus
    if not (folder / f"{name}_corpus").exists():  # it does in another process
        build_cache(corpus_named(f"{name}_corpus"), str(folder), console=Console(quiet=True))
    return str(folder)


# Elements


def plain(element: Any) -> Any:
    """An element with NumPy's arrays for tensors."""
    if isinstance(element, Mapping):
        return {key: plain(value) for key, value in element.items()}
    return element.numpy() if hasattr(element, "numpy") else element


def take(elements: Iterable[Any], count: int | None = None) -> list[Any]:
    return list(map(plain, itertools.islice(elements, count)))


def digest(element: Mapping[str, Any]) -> str:
    """Equal for elements of the same bytes alone."""
    found = hashlib.sha256()
    for key, value in sorted(element.items()):
        array = np.asarray(value)
        content = str(array.tolist()).encode() if array.dtype.kind in "OUS" else array.tobytes()
        found.update(f"{key} {array.dtype} {array.shape} ".encode() + content)
    return found.hexdigest()


def digests(elements: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(map(digest, elements))


def own(element: Mapping[str, Any], key: str, shift: int) -> list[int]:
    return (np.asarray(element[key]).astype(int) - shift).tolist()


def text_of(inputs: list[int], targets: list[int]) -> list[list[int]]:
    """The chunk of which an example was made, whose mode tells the denoiser; of a reply, what is said. None of other tasks."""
    if targets[0] in special(FIM).mode:
        return [targets[1:-1]]  # of diffusion
    if inputs[0] not in (special(R1).mode + special(S).mode + special(FIM).mode):
        return []
    if inputs[0] in special(FIM).mode:
        denoiser = WHOLE if special(WHOLE).sentinels[0] in inputs else FIM
        return [invert({"inputs": inputs, "targets": targets}, denoiser, special(denoiser)).chunk.tolist()]
    if of_conversations() & {*inputs[1:-1]}:
        return [[id for id in targets if id not in of_conversations()]]
    denoiser = R1 if inputs[0] == special(R1).mode[0] else S
    return [restore({"inputs": inputs, "targets": targets}, denoiser, special(denoiser))]


def texts(shift: int, inputs: str = "inputs", targets: str = "targets") -> Callable[[Mapping[str, Any]], list[list[int]]]:
    """The text of an example, whose ids are so much higher than the tokenizer's own."""
    return lambda element: text_of(own(element, inputs, shift), own(element, targets, shift))


OF_MODEL = {"encoder": "encoder_input_tokens", "decoder": "decoder_target_tokens"}


def texts_of_rows(shift: int, sides: Mapping[str, str] = OF_MODEL) -> Callable[[Mapping[str, Any]], list[list[int]]]:
    """The texts of a batch of packed rows, or of one row, which has tokens of two sides."""

    def read(batch: Mapping[str, Any]) -> list[list[int]]:
        features = {key: np.atleast_2d(value) for key, value in batch.items()}
        for side, key in sides.items():
            features.setdefault(f"{side}_segment_ids", (features[key] > 0).astype(int))  # of padded rows
        places = [np.where(features[f"{side}_segment_ids"], features[f"{side}_segment_ids"], -1) for side in sides]
        tokens = [features[key] - shift for key in sides.values()]
        found = []
        for row in range(len(places[0])):
            for segment in range(1, places[0][row].max() + 1):
                found += text_of(*(ids[row][place[row] == segment].tolist() for ids, place in zip(tokens, places)))
        return found

    return read


def amounts(shift: int, in_tokens: bool = False) -> Callable[[Mapping[str, Any]], list[tuple[str, int]]]:
    """The mode of an example, or none, and one, or how many tokens of text it has."""

    def read(element: Mapping[str, Any]) -> list[tuple[str, int]]:
        first = own(element, "inputs", shift)[0]
        mode = next((each.mode for each in (R1, S) if special(each).mode == (first,)), "")
        return [(mode, len(texts(shift)(element)[0]) if in_tokens else 1)]

    return read


def said(key: str, shift: int) -> Callable[[Mapping[str, Any]], list[list[int]]]:
    """The words of a conversation, or of a reply; of a row those of all, without its padding."""
    return lambda element: [[id for id in own(element, key, shift) if id >= 0 and id not in of_conversations()]]


# What is registered


@contextlib.contextmanager
def program(window: int = WINDOW_TOKENS) -> Iterator[None]:
    """As in a program of its own: nothing is registered, no cache is known, and a window has so many tokens."""
    before = seqio.get_global_cache_dirs()
    with pytest.MonkeyPatch.context() as patch:
        for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
            patch.setattr(registry, "_REGISTRY", {})
        patch.setattr(windows, "WINDOW_TOKENS", window)
        seqio.set_global_cache_dirs([])
        yield
        seqio.set_global_cache_dirs(before)


def register_texts(
    corpus: str, weight: float = 4, denoisers: Iterable[Any] = (R1, S), *, in_files: bool = False, **settings: Any
) -> str:
    """The weight is that of the last denoiser."""
    *others, last = denoisers
    in_memory = MemoryDataSource(functools.partial(documents, corpus), validation=0)
    source = f"{FOLDER}/{corpus}/*.jsonl" if in_files else in_memory
    all_denoisers = [*others, dataclasses.replace(last, weight=weight)]
    return ul2_tasks.register("laws", source, renderer().vocabulary, all_denoisers, **settings)


def register_one(corpus: str, weight: float = 4) -> str:
    """Of one denoiser: a graph for each costs, and what else holds of two does so of two corpora."""
    return register_texts(corpus, weight, denoisers=[R1])


def register_task(corpus: str, **settings: Any) -> str:
    """One task, whose documents are kept apart."""
    register_texts(corpus, denoisers=[R1], merge_examples=False, **settings)
    return "laws_r1"


def register_filled(corpus: str) -> str:
    """Documents apart, whose middle is filled in, or whose tokens are masked one by one."""
    return register_texts(corpus, 1, denoisers=[WHOLE, FIM], merge_examples=False)


def register_noised(corpus: str) -> str:
    """Documents apart, for diffusion."""
    return register_texts(corpus, 1, denoisers=NOISED, merge_examples=False)


def register_weighted(corpus: str) -> str:
    """The same with weights in the loss: of each document, and 0 where something is there twice in a row; cut at characters."""
    settings = {"loss_weight_key": "weight", "repeated_ngrams": ul2_tasks.RepeatedNgrams(2, 2), "in_files": True}
    return register_texts(corpus, 1, denoisers=[WHOLE, CUT], merge_examples=False, **settings)


def register_two(corpus: str, weight: float = 2, weigh: str = "examples", most: int | None = None) -> str:
    """Two corpora, of which the second is read `most` epochs at most."""
    source = MemoryDataSource(lambda: documents("one")[::-1], validation=0)
    more = ul2_tasks.register("laws_more", source, renderer().vocabulary, [S])
    max_epochs = {} if most is None else {more: most}
    return ul2_tasks.mix("laws_two", {register_one(corpus, 1): weight, more: 1}, weigh=weigh, max_epochs=max_epochs)


def register_staged(corpus: str, weight: float = 1, longer: Mapping[str, int] | None = None) -> str:
    """Two corpora in blocks, at weights that change, and at lengths and with a batch size that do."""
    source = MemoryDataSource(lambda: documents("one")[::-1], validation=0)
    more = ul2_tasks.register("laws_more", source, renderer().vocabulary, [S], block_shuffle=BLOCKS)
    texts = register_texts(corpus, 1, denoisers=[R1], block_shuffle=BLOCKS)
    lengths, larger = ({"lengths": LENGTHS}, {"lengths": longer, "batch_size": 6}) if longer else ({}, {})
    stages = [
        ul2_tasks.Stage(0, {texts: weight, more: 1}, **lengths),
        ul2_tasks.Stage(5, {texts: 1, more: 3}, ramp_steps=8, ramp_every=2, **larger),
    ]
    return ul2_tasks.mix("laws_staged", schedule=stages, batch_size=3, steps=30)


def register_beside(corpus: str, weight: float = 1) -> str:
    """Texts beside a task of SeqIO's own."""

    def pairs(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        return tf.data.Dataset.range(1, 200, output_type=tf.int32).map(lambda id: {key: [id] for key in LENGTHS})

    seqio.TaskRegistry.add(
        "laws_foreign",
        source=seqio.FunctionDataSource(pairs, splits=["train"]),
        preprocessors=[seqio.preprocessors.append_eos_after_trim],
        output_features={key: seqio.Feature(ul2_tasks.seqio_vocabulary(renderer().vocabulary), add_eos=True) for key in LENGTHS},
    )
    return ul2_tasks.mix("laws_beside", {register_one(corpus, 1): weight, "laws_foreign": 0.25})


def talks(corpus: str, in_files: bool = False) -> str:
    """The files of conversations: one, or eight."""
    return f"{FOLDER}/{corpus}_talks/*.jsonl" if in_files else f"{FOLDER}/{corpus}.jsonl"


def register_chat(corpus: str, format: str = "chat", train_on: str = "content", *, in_files: bool = False, **settings: Any) -> str:
    """Of which headers are not learned, unless it is said otherwise."""
    arguments = {"format": format, "train_on": train_on, **settings}
    return ul2_tasks.register_chat("laws_talk", talks(corpus, in_files), renderer(), **arguments)


def register_both(corpus: str, weight: float = 1, *, in_files: bool = False) -> str:
    """Texts and replies."""
    settings: Any = {"format": "prompt_completion", "mode": "[S]"}
    replies = ul2_tasks.register_chat("laws_said", talks(corpus, in_files), renderer(), **settings)
    return ul2_tasks.mix("laws_both", {register_one(corpus, 1): weight, replies: 1})


def of_seqio(
    register: Callable[..., str],
    lengths: Mapping[str, int] | None = LENGTHS,
    cached: Iterable[str] = (),
    converter: seqio.FeatureConverter | None = None,
    window: int = WINDOW_TOKENS,
) -> Callable[..., tf.data.Dataset]:
    """What builds a dataset through SeqIO.

    Args:
        register: registers what is read, of a corpus and other settings, and returns its name.
        lengths: the budgets.
        cached: the beginnings of the names of the corpora whose caches are read.
        converter: makes rows, in batches of 2 where there is no end.
        window: how many tokens a window has.
    """

    def build(seed=SEED, shard=(0, 1), epochs=None, lengths=lengths, corpus="one", **settings: Any) -> tf.data.Dataset:
        with program(window):
            name = register(corpus, **settings)
            seqio.set_global_cache_dirs([cache_of(each, corpus) for each in cached])
            common = {"use_cached": bool(cached), "shuffle": True, "seed": seed, "shard_info": seqio.ShardInfo(*shard)}
            if converter:
                size = None if epochs else 2
                return seqio.get_dataset(name, lengths, converter, "train", **common, num_epochs=epochs, batch_size=size)
            return seqio.get_mixture_or_task(name).get_dataset(lengths, "train", **common, num_epochs=epochs)

    return build


def of_torch(cached: Iterable[str] = (), window: int = WINDOW_TOKENS, name: bool = True) -> Callable[..., Any]:
    """What builds a `UL2IterableDataset` of the texts, by name or as they are described."""

    def build(seed=SEED, shard=(0, 1), epochs=None, lengths=LENGTHS, corpus="one", **settings: Any) -> Any:
        with program(window):
            registered = (register_texts if cached else register_one)(corpus, **settings)
            seqio.set_global_cache_dirs([cache_of(each, corpus) for each in cached])
            process = dict(zip(("rank", "world_size"), shard))
            reading = {"seed": seed, "num_epochs": epochs, **process} | ({"use_cached": bool(cached)} if name else {})
            mixture = registered if name else seqio.MixtureRegistry.get(registered).description
            return ul2_tasks.UL2IterableDataset(mixture, lengths, **reading)

    return build


def of_appended(seed=SEED, shard=(0, 1), epochs=None, **settings: Any) -> Any:
    """A dataset of two corpora in stages with lengths, of which one is appended."""
    process = dict(zip(("rank", "world_size"), shard))
    examples = of_numbers(OF_LENGTHS)(seed, **settings).examples
    dataset = ul2_tasks.UL2IterableDataset(examples, num_epochs=epochs, **process)
    dataset.append_stage(3, {"laws_corpus": 1, "laws_more_corpus": 5})
    return dataset


OF_LENGTHS = functools.partial(register_staged, longer={"inputs": 90, "targets": 100})


class Sequence(NamedTuple):
    examples: Any
    epochs: int | None


def of_numbers(register: Callable[..., str] = register_texts, lengths: Mapping[str, int] = LENGTHS, **reading: Any) -> Callable:
    """What builds the sequence of `examples`, with how many of its epochs are read."""

    def build(seed=SEED, shard=(0, 1), epochs=None, lengths=lengths, corpus="one", **settings: Any) -> Sequence:
        with program():
            return Sequence(ul2_tasks.examples(register(corpus, **settings), lengths, seed=seed, **reading), epochs)

    return build


def words_left() -> set[int]:
    """The words of all documents but those that are left out, whose numbers are of the order of the corpus."""
    store = of_numbers()().examples.numbering.corpora[0].store
    gone = (store.read_tokens(*store.tokens_of(document)).tolist() for document in LEFT_OUT)
    return {*range(WORDS)} - {*itertools.chain.from_iterable(gone)}


def of_workers(seed=SEED, shard=(0, 1), epochs=None, **settings: Any) -> Any:
    """A DataLoader of PyTorch whose two workers read the sequence."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    process = dict(zip(("rank", "world_size"), shard))
    dataset = ul2_tasks.UL2IterableDataset(of_numbers()(seed, **settings).examples, num_epochs=epochs, **process)
    return StatefulDataLoader(dataset, batch_size=None, num_workers=2)


def of_grain(seed=SEED, shard=(0, 1), epochs=None, **settings: Any) -> Any:
    """The sequence as a dataset of grain; without an end its first two epochs."""
    import grain

    found = of_numbers()(seed, **settings).examples
    whole = grain.MapDataset.concatenate([grain.MapDataset.source(found.epoch(epoch)) for epoch in range(epochs or 2)])
    return whole[shard[0] :: shard[1]].to_iter_dataset()


def of_grains_loader(seed=SEED, shard=(0, 1), epochs=None, **settings: Any) -> Any:
    """The sequence in grain's DataLoader, whose state says by `repr` of what it is."""
    import grain

    found = of_numbers()(seed, **settings).examples
    share = grain.sharding.ShardOptions(*shard)
    sampler = grain.samplers.IndexSampler(len(found), share, num_epochs=epochs)
    return grain.DataLoader(data_source=found, sampler=sampler, operations=[], worker_count=0)


# States


def untuned(dataset: tf.data.Dataset) -> Iterator[Any]:
    """An iterator that reads ahead no more than it must: TensorFlow's tuning makes buffers of some hundred thousand examples."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return iter(dataset.with_options(options))


def save_checkpoint(dataset: tf.data.Dataset, iterator: Iterator[Any], path: str) -> None:
    tf.train.Checkpoint(iterator=iterator).write(path)


def restore_checkpoint(dataset: tf.data.Dataset, path: str) -> Iterator[Any]:
    iterator = untuned(dataset)
    tf.train.Checkpoint(iterator=iterator).read(path).assert_consumed()
    return iterator


CHECKPOINT = State(
    untuned, save_checkpoint, restore_checkpoint, lambda dataset, path, first: iter(reading_of(dataset).continued(first))
)


def save_state(dataset: Any, iterator: Iterator[Any], path: str) -> None:
    pathlib.Path(path).write_bytes(pickle.dumps(dataset.state_dict()))


def restore_state(dataset: Any, path: str, first: int = 0) -> Iterator[Any]:
    dataset.load_state_dict(pickle.loads(pathlib.Path(path).read_bytes()))
    return iter(dataset)


STATE_DICT = State(iter, save_state, restore_state, restore_state)


def save_grain(dataset: Any, iterator: Any, path: str) -> None:
    pathlib.Path(path).write_bytes(pickle.dumps(iterator.get_state()))


def restore_grain(dataset: Any, path: str) -> Iterator[Any]:
    iterator = iter(dataset)
    iterator.set_state(pickle.loads(pathlib.Path(path).read_bytes()))
    return iterator


def move_grain(dataset: Any, path: str, first: int) -> Iterator[Any]:
    iterator = iter(dataset)
    iterator.set_state({"next_index": first})
    return iterator


GRAIN = State(iter, save_grain, restore_grain, move_grain)


class Counted:
    """An iterator over a sequence, epoch by epoch, whose state is a number."""

    def __init__(self, sequence: Sequence, number: int = 0):
        self.sequence, self.number = sequence, number

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> Any:
        examples, epochs = self.sequence
        epoch, place = examples.at(self.number)
        if epoch.number == epochs:
            raise StopIteration
        self.number += 1
        return epoch[place]


NUMBER = State(
    Counted,
    lambda dataset, iterator, path: pathlib.Path(path).write_text(str(iterator.number)),
    lambda dataset, path: Counted(dataset, int(pathlib.Path(path).read_text())),
    lambda dataset, path, first: Counted(dataset, first),
)


OF_SEQIO = texts(shift=1)


class Other(NamedTuple):
    """Another pipeline: arguments of `build`, and what the error says of the saved one, and then of this one."""

    changed: Mapping[str, Any]
    saved: str = ""
    this: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline:
    """A row of the table.

    Attributes:
        name: in words.
        build: makes its dataset, of `seed`, `shard` (which of how many), `epochs` (None for no end), `lengths`, `corpus` ("one"
            or "other"), and what else is in `others`.
        state: of its iterators.
        others: another pipeline each by its "seed", "lengths", "rates" and "corpus".
        refusal, refused: the error with which a state is refused, and what it says first.
        no_seed: what the error says where there is no seed.
        refused_late: whether a state is refused when an element is asked for, and the buffers that were saved with it are empty.
        texts: what an element was made of: lists of words by the tokenizer's own ids, or of what else is once in an epoch.
        corpus: all that is once in an epoch.
        fills: whether some of it is more often in an epoch, in place of what is left out.
        shares: of the kinds of `amounts`, which are mixed; None where there is one.
        amounts: the kind of each example of an element, and how much it counts.
        hosts: numbers of hosts that share an epoch out.
        state_bytes: what a saved state takes less than; None where it has buffers, which grow with what is in them.
        masked: the feature whose tokens have a mask of the loss; None where all is learned.
        has_noise: whether an epoch has other elements than another one, and not only in another order.
        needs_torch: its tests have that marker.
        same: the pipeline of SeqIO that has the same examples; `shift_of_same` is what its ids are higher by.
        lacks: laws that say nothing of it, and why.
    """

    name: str
    build: Callable[..., Any]
    others: Mapping[str, Other] = dataclasses.field(default_factory=dict)
    state: State = CHECKPOINT
    texts: Callable[[Mapping[str, Any]], list[list[int]]] = OF_SEQIO
    refused_late: bool = False
    corpus: Callable[[], Iterable[Any]] = lambda: range(WORDS)
    fills: bool = False
    shares: Mapping[str, float] | None = None
    amounts: Callable[[Mapping[str, Any]], list[tuple[str, int]]] | None = None
    refusal: type[Exception] = tf.errors.InvalidArgumentError
    refused: str = "saved by another pipeline"
    no_seed: str = "a pipeline that was built without a seed cannot be resumed. Pass seed="
    hosts: tuple[int, ...] = (2, 3, 5, 8)
    state_bytes: int | None = None
    masked: str | None = None
    has_noise: bool = True
    needs_torch: bool = False
    same: str = ""
    shift_of_same: int = 1
    lacks: Mapping[str, str] = dataclasses.field(default_factory=dict)


# The table

SEEDS = Other({"seed": SEED + 1}, f"seed: {SEED}", f"seed: {SEED + 1}")
OTHER_LENGTHS = Other({"lengths": {"inputs": 40, "targets": 36}}, "targets: 40", "targets: 36")
OTHER_RATES = Other({"weight": 7}, "laws_s: ", "laws_s: ")
OTHER_WEIGHT = Other({"weight": 7}, "weight: 4", "weight: 7")
OTHER_CORPUS = Other({"corpus": "other"})  # what tells a corpus is long, and no sentence to be tested here
OTHERS = {"seed": SEEDS, "lengths": OTHER_LENGTHS, "rates": OTHER_RATES, "corpus": OTHER_CORPUS}
OF_TORCH = {
    "seed": Other({"seed": SEED + 1}, f"seed was {SEED}", f"is {SEED + 1}"),
    "lengths": Other(OTHER_LENGTHS.changed, "sequence_length was", "'targets', 36"),
    "rates": OTHER_RATES,
    "corpus": OTHER_CORPUS,
}

OTHER_SHARES = Other({"weight": 7}, "laws_r1: ", "laws_r1: ")

ENDS_EARLY = dict.fromkeys(OF_EPOCHS, "A mixture ends when the first of its tasks ends: an epoch of it is not all of its corpora.")
OF_ITS_EXAMPLES = dict.fromkeys(
    ("another seed", "another lengths", "another rates", "another corpus", "no seed", "steps", "other hosts", *OF_EPOCHS),
    "It is made of the examples of another pipeline, of which the law is asked.",
)
NOT_BY_NUMBER = dict.fromkeys(
    ("steps", "other hosts"), "Hosts share out the shards of what is read in windows, and SeqIO those of a foreign task."
)
A_NUMBER = dict.fromkeys(
    ("another seed", "another lengths", "another rates", "another corpus"),
    "Its state is a number: its reader keeps what it is a number of.",
)
A_SEQUENCE = A_NUMBER | dict.fromkeys(
    ("hosts", "steps", "other hosts"), "A sequence is read by number: a sampler shares the numbers out."
)
IN_BLOCKS = {"ids": "A chunk may go on in another block. Its tokens are those of its location, see test_sequence.py."}
ONE_TASK = "It is one task."
FILLED = dict.fromkeys(("epochs", "ids"), "What is left out is read as others are.")
TWO = {R1.mode: 2 / 3, S.mode: 1 / 3}
IN_ROWS = texts_of_rows(shift=0, sides={"inputs": "inputs", "targets": "targets"})
LEFT_OUT = range(3, len(SIZES), 9)  # documents
OF_PIECES = of_numbers(functools.partial(register_task, block_shuffle=BLOCKS))


def as_above(*laws: str) -> dict[str, str]:
    return dict.fromkeys(laws, "A pipeline above says it, which reads the same.")


TEXTS = [
    Pipeline(
        name="texts in memory",
        build=of_seqio(register_one),
        others={**OTHERS, "rates": OTHER_WEIGHT},
        hosts=(2,),
    ),
    *(
        Pipeline(
            name=f"texts in memory, documents apart{', and in a cache' if cached else ''}",
            build=of_seqio(register_task, cached=cached),
            others={"seed": SEEDS},
            hosts=(5,) if cached else (3,),
            has_noise=False,  # that often differs: its documents are short
            lacks={
                **as_above("another lengths", "another corpus", "no seed", "other hosts", *(["new process"] if cached else [])),
                "another rates": ONE_TASK,
            },
        )
        for cached in ((), ("laws",))
    ),
    Pipeline(
        name="texts of two corpora in memory",
        build=of_seqio(register_two),
        others={"seed": SEEDS, "rates": OTHER_SHARES},
        shares=TWO,
        amounts=amounts(shift=1),
        hosts=(5,),
        lacks={**as_above("new process", "another lengths", "another corpus", "no seed"), **ENDS_EARLY},
    ),
    Pipeline(
        name="texts in memory, documents apart, packed",
        build=of_seqio(register_task, converter=EncDecFeatureConverter(pack=True)),
        texts=texts_of_rows(shift=1),
        lacks=OF_ITS_EXAMPLES,
    ),
    Pipeline(
        name="texts in windows",
        build=of_seqio(functools.partial(register_texts, in_files=True), window=WINDOW),
        others=OTHERS,
        shares={R1.mode: 1 / 5, S.mode: 4 / 5},
        amounts=amounts(shift=1),
        hosts=(2, 8),
        refused_late=True,
        state_bytes=10_000,
        lacks=NOT_BY_NUMBER,
    ),
    *(
        Pipeline(
            name=name,
            build=of_seqio(registered, converter=EncDecFeatureConverter(pack=True), window=WINDOW),
            others={"seed": SEEDS, "corpus": OTHER_CORPUS},
            texts=texts_of_rows(shift=1),
            hosts=(2, 3),
            refused_late=True,
            state_bytes=10_000,
            has_noise=False,
            lacks={**as_above("another lengths", "no seed"), "another rates": ONE_TASK, **NOT_BY_NUMBER},
        )
        for name, registered in {
            "texts in windows, documents apart, packed": register_task,
            "texts with weights in windows, packed": register_weighted,
        }.items()
    ),
    Pipeline(
        name="texts of two corpora in windows",
        build=of_seqio(register_two, window=WINDOW),
        others={"seed": SEEDS, "rates": OTHER_SHARES},
        shares=TWO,
        amounts=amounts(shift=1),
        state_bytes=10_000,
        lacks={**as_above("another lengths", "another corpus", "no seed"), **ENDS_EARLY, **NOT_BY_NUMBER},
        refused_late=True,
    ),
    Pipeline(
        name="texts, indexed",
        build=of_seqio(register_texts, cached=("laws",)),
        others=OTHERS,
        state_bytes=10_000,
    ),
    Pipeline(
        name="texts, packed by number",
        build=of_seqio(register_texts, cached=("laws",), converter=EncDecFeatureConverter(pack=True)),
        others=OTHERS,
        texts=texts_of_rows(shift=1),
        hosts=(3,),
        state_bytes=10_000,
    ),
    Pipeline(
        name="texts, padded by number",
        build=of_seqio(register_texts, cached=("laws",), converter=EncDecFeatureConverter(pack=False)),
        texts=texts_of_rows(shift=1),
        state_bytes=10_000,
        lacks={**as_above("new process"), **OF_ITS_EXAMPLES},
    ),
    Pipeline(
        name="texts, indexed, packed by SeqIO",
        build=of_seqio(register_texts, cached=("laws",), converter=seqio.EncDecFeatureConverter(pack=True)),
        texts=texts_of_rows(shift=1),
        lacks={**as_above("new process"), **OF_ITS_EXAMPLES},
    ),
    Pipeline(
        name="texts of two corpora, packed by number",
        build=of_seqio(register_two, cached=("laws", "laws_more"), converter=EncDecFeatureConverter(pack=True)),
        others={"rates": OTHER_SHARES, "corpus": OTHER_CORPUS},
        texts=texts_of_rows(shift=1),
        hosts=(2,),
        state_bytes=10_000,
        lacks={**as_above("new process", "another seed", "another lengths", "no seed"), **ENDS_EARLY},
    ),
    Pipeline(
        name="texts in blocks, indexed",
        build=of_seqio(functools.partial(register_texts, block_shuffle=BLOCKS), cached=("laws",)),
        others={"seed": SEEDS},
        hosts=(5,),
        state_bytes=10_000,
        lacks={**as_above("new process", "another lengths", "another rates", "another corpus", "no seed"), **IN_BLOCKS},
    ),
    Pipeline(
        name="texts of two corpora in stages, packed by number",
        build=of_seqio(register_staged, cached=("laws", "laws_more"), converter=EncDecFeatureConverter(pack=True)),
        others={"seed": SEEDS, "rates": OTHER_SHARES},
        texts=texts_of_rows(shift=1),
        hosts=(2, 5),
        state_bytes=10_000,
        lacks={**as_above("another lengths", "another corpus", "no seed"), **ENDS_EARLY, **IN_BLOCKS},
    ),
    Pipeline(
        name="texts beside a foreign task",
        build=of_seqio(register_beside),
        others={"rates": OTHER_SHARES},
        lacks={**as_above("another seed", "another lengths", "another corpus", "no seed"), **ENDS_EARLY, **NOT_BY_NUMBER},
        refused_late=True,
    ),
    Pipeline(
        name="texts, indexed, beside a foreign task",
        build=of_seqio(register_beside, cached=("laws",)),
        others={"rates": OTHER_SHARES, "corpus": OTHER_CORPUS},
        lacks={**as_above("another seed", "another lengths", "no seed"), **ENDS_EARLY, **NOT_BY_NUMBER},
        refused_late=True,
    ),
    *(
        Pipeline(
            name=f"examples{of}",
            build=build,
            state=NUMBER,
            refusal=ValueError,
            no_seed="seed must be an integer, because it decides the examples, got None",
            **{"texts": texts(shift=0), **more, "lacks": A_SEQUENCE | more.get("lacks", as_above("no seed"))},
        )
        for of, build, more in (
            ("", of_numbers(), {"lacks": {}, "same": "texts, indexed"}),
            (", documents apart, packed", of_numbers(register_task, pack=True), {"texts": IN_ROWS, "has_noise": False}),
            (
                ", whose middle is filled in, or which are targets as a whole, packed",
                of_numbers(register_filled, pack=True),
                {"texts": IN_ROWS, "has_noise": False},
            ),
            (", noised at rates, packed", of_numbers(register_noised, pack=True), {"texts": IN_ROWS}),
            (", with weights, packed", of_numbers(register_weighted, pack=True), {"texts": IN_ROWS, "has_noise": False}),
            (", documents apart, in blocks", OF_PIECES, {"has_noise": False}),
            (
                " of two corpora by tokens",
                of_numbers(functools.partial(register_two, weigh="tokens")),
                {"shares": TWO, "amounts": amounts(0, in_tokens=True), "lacks": ENDS_EARLY | as_above("no seed")},
            ),
            (
                " of two corpora by tokens, of which one ends, packed",
                of_numbers(functools.partial(register_two, weight=0.2, weigh="tokens", most=1), pack=True),
                {"texts": IN_ROWS, "lacks": ENDS_EARLY | as_above("no seed", "new process")},
            ),
            (
                " of two corpora in stages with lengths, packed",
                of_numbers(OF_LENGTHS, pack=True),
                {"texts": IN_ROWS, "lacks": ENDS_EARLY | IN_BLOCKS | as_above("no seed")},
            ),
            (
                " without a list",
                of_numbers(exclude=[{"corpus": "laws_corpus", "document": each} for each in LEFT_OUT]),
                {"corpus": words_left, "fills": True, "lacks": FILLED | as_above("no seed")},
            ),
        )
    ),
]
IN_PYTORCH: dict[str, Any] = {
    "state": STATE_DICT,
    "texts": texts(shift=0, inputs="input_ids", targets="labels"),
    "refusal": ValueError,
    "no_seed": "seed must be an integer, because it decides the examples, got None",
}
OF_PYTORCH = [
    Pipeline(
        name="texts in memory, in PyTorch",
        build=of_torch(),
        others=OF_TORCH,
        **IN_PYTORCH,
        hosts=(2,),
        lacks=as_above("another lengths", "another rates", "another corpus", "epochs", "once"),
    ),
    Pipeline(
        name="texts in windows, in PyTorch",
        build=of_torch(window=WINDOW),
        others=OF_TORCH,
        **IN_PYTORCH,
        hosts=(3,),
        state_bytes=10_000,
        lacks={**as_above("another lengths", "another rates", "another corpus"), **NOT_BY_NUMBER},
    ),
    Pipeline(
        name="texts in windows as they are described, in PyTorch",
        build=of_torch(window=WINDOW, name=False),
        others={**OF_TORCH, "rates": Other({"weight": 7}, "'weight': 4", "'weight': 7")},
        **IN_PYTORCH,
        hosts=(2,),
        state_bytes=10_000,
        lacks=NOT_BY_NUMBER,
    ),
    Pipeline(
        name="texts, indexed, in PyTorch",
        build=of_torch(cached=("laws",)),
        others={**OF_TORCH, "rates": Other({"weight": 7}, "'laws_s': 0.8", "'laws_s': 0.875")},
        **IN_PYTORCH,
        hosts=(3,),
        state_bytes=10_000,
    ),
    Pipeline(
        name="examples, in PyTorch's workers",
        build=of_workers,
        others={**OF_TORCH, "rates": Other({"weight": 7}, "'laws_s': 0.8", "'laws_s': 0.875")},
        **IN_PYTORCH,
        hosts=(2,),
        lacks=as_above("no seed", "another lengths", "another corpus"),
    ),
    Pipeline(
        name="texts of two corpora in stages with lengths, of which one is appended, in PyTorch",
        build=of_appended,
        others={**OF_TORCH, "rates": Other({"weight": 7}, "'laws_r1': 0.5", "'laws_r1': 0.875")},
        **IN_PYTORCH,
        hosts=(2, 5),
        state_bytes=10_000,
        lacks={
            **as_above("no seed", "another seed", "another lengths", "another corpus", "new process"),
            **IN_BLOCKS,
            **dict.fromkeys(("hosts", "once", "epochs"), ENDS_EARLY["once"]),
        },
    ),
    Pipeline(
        name="examples, in grain",
        build=of_grain,
        state=GRAIN,
        texts=texts(shift=0),
        lacks=A_NUMBER | as_above("no seed"),
        state_bytes=10_000,
    ),
    Pipeline(
        name="examples, in grain's DataLoader",
        build=of_grains_loader,
        state=GRAIN,
        others={
            "seed": Other({"seed": SEED + 1}, "seed=5", "seed=6"),
            "lengths": Other(OTHER_LENGTHS.changed),  # which its sampler refuses first, by the number of examples
            "rates": Other({"weight": 7}),
            "corpus": OTHER_CORPUS,
        },
        texts=texts(shift=0),
        refusal=ValueError,
        refused="(Sampler|DataSource) in checkpoint does not match",
        hosts=(3,),
        state_bytes=10_000,
        lacks={
            **as_above("no seed"),
            "epochs": "Its sampler repeats the epoch that it has.",
            **dict.fromkeys(("steps", "other hosts"), "Its sampler gives each host a stretch of the epoch."),
        },
    ),
]
CHAT = [
    Pipeline(
        name=f"{'conversations' if format == 'chat' else 'replies'}{', cached' if cached else ''}",
        build=of_seqio(functools.partial(register_chat, format=format), lengths={}, cached=cached),
        others={
            "seed": SEEDS,
            "lengths": Other({"lengths": {key: 500}}, "{tokens: null}" if key == "tokens" else "{}", f"{{{key}: 500}}"),
            "corpus": OTHER_CORPUS,
        },
        texts=said(key, shift=1),
        corpus=corpus,
        hosts=(5,) if cached else (2, 3),
        state_bytes=200_000,
        masked=key,
        has_noise=False,
        lacks={
            "another rates": ONE_TASK,
            **(as_above("new process", "no seed") if cached and format == "prompt_completion" else {}),
        },
    )
    for format, key, corpus in (("chat", "tokens", lambda: range(WORDS)), ("prompt_completion", "targets", answered))
    for cached in ((), ("laws_talk",))
]


def of_transformers(pack):
    return seqio_converter(HuggingFaceChatConverter(pack))


CHAT += [
    Pipeline(
        name=f"{name}, {'packed' if pack else 'padded'}",
        build=of_seqio(functools.partial(register_chat, format=format), dict.fromkeys(keys, 200), converter=converter(pack=pack)),
        texts=said("decoder_target_tokens", shift=1),
        lacks={
            **({} if name == "conversations" and pack else as_above("new process")),
            **OF_ITS_EXAMPLES,
            "ids": "Its rows have padding: tests/models says what is in them.",
        },
    )
    for name, format, keys, converter, pack in (
        ("conversations", "chat", ["tokens"], ChatFeatureConverter, True),
        ("conversations", "chat", ["tokens"], ChatFeatureConverter, False),
        ("conversations for Transformers", "chat", ["tokens"], of_transformers, True),
        ("replies", "prompt_completion", ["inputs", "targets"], PromptCompletionFeatureConverter, True),
        ("replies", "prompt_completion", ["inputs", "targets"], PromptCompletionFeatureConverter, False),
    )
]
CHAT.append(
    Pipeline(
        name="texts and replies",
        build=of_seqio(register_both, lengths={"inputs": 128, "targets": 128}),
        others={
            "seed": SEEDS,
            "rates": OTHER_SHARES,
        },
        shares={R1.mode: 1 / 2, S.mode: 1 / 2},
        amounts=amounts(shift=1),
        hosts=(3,),
        lacks={**as_above("another lengths", "another corpus", "no seed"), **ENDS_EARLY},
    )
)
CHAT += [
    Pipeline(
        name="conversations in windows",
        build=of_seqio(functools.partial(register_chat, in_files=True), lengths={}, window=WINDOW),
        others={
            "seed": SEEDS,
            "lengths": Other({"lengths": {"tokens": 500}}, "tokens: null", "tokens: 500"),
            "corpus": OTHER_CORPUS,
        },
        texts=said("tokens", shift=1),
        hosts=(2, 3),
        state_bytes=10_000,
        refused_late=True,
        has_noise=False,
        lacks={"another rates": ONE_TASK, **NOT_BY_NUMBER},
    ),
    Pipeline(
        name="replies in windows, packed",
        build=of_seqio(
            functools.partial(register_chat, format="prompt_completion", train_on="all", in_files=True),
            dict.fromkeys(("inputs", "targets"), 200),
            converter=PromptCompletionFeatureConverter(pack=True),
            window=WINDOW,
        ),
        others={"seed": SEEDS, "corpus": OTHER_CORPUS},
        texts=said("decoder_target_tokens", shift=1),
        corpus=answered,
        hosts=(5,),
        state_bytes=10_000,
        refused_late=True,
        has_noise=False,
        lacks={
            **as_above("another lengths", "no seed"),
            "another rates": ONE_TASK,
            **NOT_BY_NUMBER,
            "ids": "A row has several replies: tests/models says what is in them.",
        },
    ),
    Pipeline(
        name="texts and replies in windows",
        build=of_seqio(functools.partial(register_both, in_files=True), lengths={"inputs": 128, "targets": 128}, window=WINDOW),
        others={"seed": SEEDS, "rates": OTHER_SHARES},
        shares={R1.mode: 1 / 2, S.mode: 1 / 2},
        amounts=amounts(shift=1),
        state_bytes=10_000,
        refused_late=True,
        lacks={**as_above("another lengths", "another corpus", "no seed"), **ENDS_EARLY, **NOT_BY_NUMBER},
    ),
    *(
        Pipeline(
            name=f"examples of conversations{of}",
            build=of_numbers(functools.partial(register_chat, **settings), {"tokens": 200}),
            state=NUMBER,
            texts=said("tokens", shift=0),
            same="" if of else "conversations",
            has_noise=False,
            lacks=A_SEQUENCE | as_above("no seed"),
        )
        for of, settings in (("", {}), (" in blocks", {"block_shuffle": BLOCKS}))
    ),
]
