"""`ul2 show --step`: the examples of a step, what a run was, or will be, fed, each with its location."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from ul2_tasks.chat.index import ChatIndex
from ul2_tasks.chat.objective import Objective
from ul2_tasks.chat.reading import read_conversations
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.image_text import checked
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.lengths import Chunk
from ul2_tasks.denoisers.pieces import PieceLimits
from ul2_tasks.example_features import EXAMPLE, IMAGES, Feature
from ul2_tasks.inspect.chat_samples import ChatExample, as_plain, example_of, shown_chat
from ul2_tasks.inspect.image_samples import ImagePlace, ImageTextShown, image_places, image_text_sample
from ul2_tasks.inspect.printing import print_head, print_json_lines, ranges_in_words, visible
from ul2_tasks.inspect.run import Run, locations_of, stores
from ul2_tasks.inspect.samples import BORDER, DenoisedTask, Sample, sample_of, shown_sample
from ul2_tasks.mixtures.mixture import with_denoisers
from ul2_tasks.random_access.batches import members_of
from ul2_tasks.random_access.image_text import ImageTextIndex
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.sequence import Examples, Location
from ul2_tasks.store.provenance import Origin
from ul2_tasks.store.read import TokenStore
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokens

if TYPE_CHECKING:
    pass

_TOLD = 3  # origins of an example


@dataclasses.dataclass(frozen=True)
class Fed:
    """An example that a run was fed.

    Attributes:
        sample: the example. Its number, or that of its row, counts over all epochs.
        segment: which example of its row it is, from 1; None where examples are not packed.
        location: where it is from.
    """

    sample: Sample
    segment: int | None
    location: Location

    @property
    def name(self) -> str:
        """Which one it is, for people."""
        return _name(self.sample.number, self.segment)

    @property
    def place(self) -> str:
        """Where it is from, for people."""
        return with_origins(self.location)


@dataclasses.dataclass(frozen=True)
class FedImages(Fed):
    """An example of interleaved image-text data that a run was fed.

    Attributes:
        images: those that it has.
        where: where its record is from, as far as the corpus says.
        record: the tokens [start, stop) of the record, of which those of a location may be some.
    """

    images: Sequence[ImagePlace]
    where: str
    record: tuple[int, int]

    @property
    def place(self) -> str:
        """Where it is from, for people, and its images."""
        (start, stop), (first, last) = self.location.tokens[0], self.record
        some = "" if (start, stop) == (first, last) else f", tokens {start - first} to {stop - first - 1} of its {last - first}"
        lines = [record_in_words(self.location, self.where) + some, *(image.in_words for image in self.images)]
        return "\n".join(map(visible, lines))


@dataclasses.dataclass(frozen=True)
class ChatOfRun:
    """A task of conversations as a run reads it, see `chat_samples.ShownChat`; `index` has its examples."""

    name: str
    objective: Objective
    corpus: Corpus
    index: ChatIndex
    features: Mapping[str, Feature]


@dataclasses.dataclass(frozen=True)
class FedChat:
    """An example of a conversation that a run was fed.

    Attributes:
        number: of the example, or of its row, over all epochs.
        segment, location: see `Fed`.
    """

    task: ChatOfRun
    example: ChatExample
    number: int
    segment: int | None
    location: Location

    @property
    def name(self) -> str:
        """Which one it is, for people."""
        return _name(self.number, self.segment)

    @property
    def where(self) -> str:
        """Where its conversation is from, as far as the corpus says."""
        return self.task.index.columns.locate(self.example.conversation)


def _name(number: int, segment: int | None) -> str:
    return f"example {number}" if segment is None else f"row {number}, example {segment} of it"


def in_words(location: Location) -> str:
    """Where an example is from, for people.

    >>> in_words(Location("web_corpus", "web_r1", "r1", 3, chunk_index=0, tokens=((90, 100), (0, 5)), documents=((7, 9), (0, 1))))
    'epoch 3 of web_corpus, documents 7 to 8 and 0, tokens 90 to 99 and 0 to 4'
    """
    documents, tokens = map(ranges_in_words, (location.documents, location.tokens))
    return f"epoch {location.epoch} of {location.corpus}, documents {documents}, tokens {tokens}"


def with_origins(location: Location) -> str:
    """`in_words`, and the files and rows that its documents are from, of which the first are told."""
    origins = location.origins or []
    more = f"; and {len(origins) - _TOLD} more" if len(origins) > _TOLD else ""
    return f"{in_words(location)}, from {'; '.join(map(str, origins[:_TOLD]))}{more}" if origins else in_words(location)


def record_in_words(location: Location, where: str) -> str:
    """Where an example of a record is from, for people; `where` is what the corpus says of it.

    >>> chats = Location("talks_corpus", "talks_chat", "", 3, chunk_index=0, tokens=((90, 100),), documents=((7, 8),))
    >>> record_in_words(chats, "talks.jsonl, line 8"), record_in_words(chats, "record 7")
    ('epoch 3 of talks_corpus, record 7, talks.jsonl, line 8', 'epoch 3 of talks_corpus, record 7')
    """
    ((record, _),) = location.documents
    told = where if where.startswith(f"record {record}") else f"record {record}, {where}"
    return f"epoch {location.epoch} of {location.corpus}, {told}"


def fed_at(found: Examples, numbers: Iterable[int], count: int, denoisers: Collection[str] | None = None) -> list[Fed]:
    """The first examples of each denoiser among some examples or rows, denoiser by denoiser.

    `numbers` count over all epochs, such as those of a step; of each denoiser there are `count` at most.
    """
    tasks, images = tasks_fed(found, denoisers), image_members(found)
    corpora, fed = stores(found), list[Fed]()
    for name, number, segment, location, example in _chosen(found, numbers, count, dict.fromkeys(tasks, EXAMPLE)):
        ids = {key: example[key] for key in EXAMPLE}
        if name in images:
            own = list(example.get(IMAGES, []))
            fed.append(_fed_images(images[name], tasks[name], number, segment, location, ids=ids, images=own))
            continue
        marked = {**ids, "starts_document": _starts(corpora[location.corpus][1], location)}
        fed.append(Fed(sample_of(tasks[name], number, marked), segment, location))
    return fed


def _fed_images(
    member: ImageMember,
    task: DenoisedTask,
    number: int,
    segment: int | None,
    location: Location,
    *,
    ids: Mapping[str, np.ndarray],
    images: Sequence[bytes],
) -> FedImages:
    ((record, _),) = location.documents
    sample = image_text_sample(
        ImageTextShown(task, checked(member.corpus.encoder.image_tokens, task.vocabulary)), number, ids, images
    )
    places, data = image_places(sample, images), member.index.data
    return FedImages(sample, segment, location, places, data.locate(record), data.tokens.tokens_of(record))


def chats_at(found: Examples, numbers: Iterable[int], count: int) -> list[FedChat]:
    """The first examples of each task of conversations among some examples or rows, see `fed_at`."""
    tasks = chats_fed(found)
    spec = {name: task.features for name, task in tasks.items()}
    return [
        FedChat(tasks[name], chat_example(tasks[name], location, example), number, segment, location)
        for name, number, segment, location, example in _chosen(found, numbers, count, spec)
    ]


def chat_example(task: ChatOfRun, location: Location, made: Mapping[str, np.ndarray]) -> ChatExample:
    """An example of a conversation that is made already."""
    ((conversation, _),) = location.documents
    held = read_conversations(task.index.columns, np.array([conversation]))
    return example_of(task, conversation, made, held.tokens, held.messages)


def _chosen(
    found: Examples, numbers: Iterable[int], count: int, spec: Mapping[str, Mapping[str, Feature]]
) -> Iterator[tuple[str, int, int | None, Location, dict[str, np.ndarray]]]:
    """The first examples of each task among some examples or rows, task by task, with their features.

    Gives of each the task, the number and the segment, see `Fed`, the location, and the values.
    """
    chosen: dict[str, list[tuple[int, int, Location]]] = {name: [] for name in spec}
    for number in numbers:
        if all(len(of_task) == count for of_task in chosen.values()):
            break
        for segment, location in enumerate(locations_of(found, number), start=1):
            if len(chosen.get(location.task, ())) < count and location.task in chosen:
                chosen[location.task].append((number, segment, location))
    rows = made(found, sorted({number for of_task in chosen.values() for number, _, _ in of_task}))
    is_packed = bool(found.numbering.packed)
    for name, of_task in chosen.items():
        for number, segment, location in of_task:
            example = in_row(rows[number], segment, spec[name]) if is_packed else rows[number]
            yield name, number, segment if is_packed else None, location, example


def tasks_fed(found: Examples, denoisers: Collection[str] | None = None) -> dict[str, DenoisedTask]:
    """The tasks with denoisers that make the examples, by their names, in their order.

    Raises a ValueError where none has a denoiser's name.
    """
    tasks = [
        DenoisedTask(member.task, member.solution.configuration.denoiser, member.solution.special, member.solution.vocabulary)
        for member in denoising_members(found)
    ]
    for member in image_members(found).values():
        tasks.append(DenoisedTask(member.task, member.limits.denoiser, member.special, member.vocabulary))
    tasks.sort(key=lambda task: task.name)
    chosen = with_denoisers(", ".join(corpus.name for corpus in found.numbering.corpora), tasks, denoisers)
    return {task.name: task for task in chosen}


def denoising_members(found: Examples) -> list[Task]:
    """The denoising tasks that make the examples, each once."""
    return list({member.task: member for member in members_of(found.numbering) if member.solution}.values())


def _of_records(found: Examples) -> list[tuple[Any, Any]]:
    """The tasks of records that make the examples, each with the index of its corpus."""
    corpora = found.numbering.corpora
    return [(member, corpus.data.index) for corpus in corpora if corpus.data.index for member in corpus.members]


def chats_fed(found: Examples) -> dict[str, ChatOfRun]:
    """The tasks of conversations that make the examples, by their names, in their order."""
    chats = {}
    for member, index in _of_records(found):
        if not member.has_images:
            chats[member.task] = ChatOfRun(member.task, index.objective, member.corpus, index, member.features)
    return dict(sorted(chats.items()))


@dataclasses.dataclass(frozen=True)
class ImageMember:
    """A task of interleaved image-text data as a run reads it."""

    task: str
    corpus: Corpus
    index: ImageTextIndex
    limits: PieceLimits
    special: SpecialTokens
    vocabulary: Vocabulary


def image_members(found: Examples) -> dict[str, ImageMember]:
    """The tasks of interleaved image-text data that make the examples, by their names."""
    members = {}
    for member, index in _of_records(found):
        if member.has_images:
            limits = index.limits[member.kind_number]
            members[member.task] = ImageMember(member.task, member.corpus, index, limits, limits.special, member.vocabulary)
    return members


def made(found: Examples, numbers: Sequence[int]) -> dict[int, dict]:
    """The examples or rows of these numbers, those of an epoch at once."""
    of_numbers: dict[int, dict] = {}
    for epoch, of_epoch in itertools.groupby(numbers, key=lambda number: found.at(number)[0].number):
        own, examples = list(of_epoch), found.epoch(epoch)
        of_numbers |= dict(zip(own, examples.__getitems__([number - examples.first for number in own])))
    return of_numbers


def in_row(row: Mapping[str, np.ndarray], segment: int, spec: Mapping[str, Feature]) -> dict[str, np.ndarray]:
    """An example of a packed row, from 1, with its features."""
    return {key: row[key][row[f"{feature.per_token_of}_segment_ids"] == segment] for key, feature in spec.items()}


def _starts(store: TokenStore, location: Location) -> np.ndarray:
    """Which tokens of a chunk begin a document, [L] bool."""
    of_ranges = []
    for (start, stop), (first, after) in zip(location.tokens, location.documents):
        begins = np.array([store.tokens_of(document)[0] for document in range(first, after)])
        of_ranges.append(np.isin(np.arange(start, stop), begins))
    return np.concatenate(of_ranges)


def show_step(
    run: Run,
    step: int,
    host: tuple[int, int] | None = None,
    *,
    count: int = 2,
    denoisers: Collection[str] | None = None,
    console: Console | None = None,
    as_json: bool = False,
) -> None:
    """Prints examples of each denoiser of the batch that a run is fed at a step, each with its location.

    As JSON Lines, each is a `samples.Sample` with its step, segment and `sequence.Location`. An example of a conversation is as
    `chat_samples.as_plain` has it, with these, its number and, as "where", the location of its conversation. One of interleaved
    image-text data has "where", too, and its `images`.
    """
    console = console or Console()
    numbers = run.numbers(step, host or (0, 1))
    found = run.examples_at(numbers[0])
    fed, chats = fed_at(found, numbers, count, denoisers), [] if denoisers else chats_at(found, numbers, count)
    if as_json:
        print_json_lines(_lines(step, fed, chats), console.file)
        return
    tasks, replies = tasks_fed(found, denoisers), {} if denoisers else chats_fed(found)
    print_head(console, run.name, run.sequence_length, run.split, run.seed)
    console.print(Text(_batch(run, step, host, found)))
    if tasks.keys() - image_members(found).keys():
        console.print(Text(f"{BORDER} = document boundary", "dim"))
    if absent := {*tasks, *replies} - {each.sample.task for each in fed} - {each.location.task for each in chats}:
        console.print(Text(f"no example in it: {', '.join(sorted(absent))}", "dim"))
    samples = ((each.sample, each.name, each.place) for each in fed)
    print_samples(console, _descriptions(found), samples)
    for task, of_task in itertools.groupby(chats, key=lambda each: each.location.task):
        console.rule(Text(task, "bold"), style="dim", align="left")
        for each in of_task:
            console.print(*shown_chat(each.task, each.example, each.name, record_in_words(each.location, each.where)), "", sep="\n")


def _lines(step: int, fed: Iterable[Fed], chats: Iterable[FedChat]) -> Iterator[dict[str, object]]:
    for each in fed:
        of_images = {"where": each.where, "images": list(map(vars, each.images))} if isinstance(each, FedImages) else {}
        yield {**dataclasses.asdict(each.sample), **_address(step, each), **of_images}
    for chat in chats:
        yield {**as_plain(chat.task, chat.example), "number": chat.number, **_address(step, chat), "where": chat.where}


def _address(step: int, fed: Fed | FedChat) -> dict[str, object]:
    origins = fed.location.origins
    told = {} if origins is None else {"origins": [as_json(origin) for origin in origins]}
    return {"step": step, "segment": fed.segment, "location": dataclasses.asdict(fed.location), **told}


def as_json(origin: Origin) -> dict[str, object]:
    """An origin as JSON has it, and lists of documents: the hash in hexadecimal digits."""
    return {**origin._asdict(), "hash": f"{origin.hash:016x}"}


def _batch(run: Run, step: int, host: tuple[int, int] | None, found: Examples) -> str:
    """Which examples a step has."""
    numbers, length = run.numbers(step), len(found)
    first, last = (found.at(number)[0].number for number in (numbers[0], numbers[-1]))
    epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    of_host = f"; host {host[0]} of {host[1]} has those whose number mod {host[1]} is {host[0]}" if host else ""
    return (
        f"step {step}, batch of {len(numbers):,}: {run.unit}s {numbers[0]} to {numbers[-1]}, in {epochs}"
        f" ({length:,} {run.unit}s an epoch){of_host}"
    )


def _descriptions(found: Examples) -> dict[str, Text]:
    """What the examples of each task with a denoiser are."""
    of_texts = {
        member.task: description(member.solution.configuration.denoiser, member.solution.full)
        for member in denoising_members(found)
    }
    of_images = {member.task: image_description(member.limits.denoiser) for member in image_members(found).values()}
    return of_texts | of_images


def print_samples(console: Console, tasks: Mapping[str, Text], samples: Iterable[tuple[Sample, str, str]]) -> None:
    """Prints samples, which come task by task, each with its name and with where it is from.

    `tasks` are the descriptions of the tasks.
    """
    for task, group in itertools.groupby(samples, key=lambda each: each[0].task):
        console.rule(Text(task, "bold"), style="dim", align="left")
        console.print(tasks[task], "")
        for sample, name, place in group:
            console.print(shown_sample(sample, name, place, console.width), "")


def description(denoiser: Denoiser, full: Chunk) -> Text:
    """What a denoiser is, and its full chunk."""
    return Text(
        f"{_fields(denoiser)}\n"
        f"full-length chunk: {full.length} tokens, {full.noise} masked ({full.noise / full.length:.1%}), spans: {full.spans};"
        f" inputs of {full.inputs} tokens, targets of {full.targets}"
    )


def image_description(denoiser: Denoiser) -> Text:
    """What a denoiser of interleaved image-text data is, and what becomes of a record."""
    return Text(f"{_fields(denoiser)}; a record is an example")


def _fields(denoiser: Denoiser) -> str:
    return ", ".join(f"{field} {value}" for field, value in dataclasses.asdict(denoiser).items())
