"""One view of an example, whatever kind of data it is of: numbers of it, and what people read, feature by feature.

number of an example or row -> Numbering.slots   the task and the location of each of its examples
                            -> Examples          its ids
                            -> Viewer            numbers and stretches, by the kind of data
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ul2_tasks.chat.reading import read_conversations
from ul2_tasks.chat.segments import HEADER, KIND, LENGTH, Conversations, kind_name
from ul2_tasks.corpus.image_text import checked
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.example_features import IMAGES, LOSS_MASK, LOSS_WEIGHT, RATE, SPAN_ID, TOKEN_FEATURES, Feature, token_features
from ul2_tasks.images.pixels import size_of
from ul2_tasks.inspect.printing import ranges_in_words
from ul2_tasks.inspect.readable import Stretch, stretches
from ul2_tasks.random_access.corpora import OrderedCorpus
from ul2_tasks.random_access.kinds import Task
from ul2_tasks.random_access.numbering import Numbering
from ul2_tasks.random_access.sequence import Examples, Location
from ul2_tasks.store.provenance import Origin
from ul2_tasks.tokenizers.special_ids import SpecialTokens

GROUPS = {1: "reasoning", 2: "answer", 3: "tool calls"}  # the loss groups of the presets
_AT_A_TIME = 1024  # elements that are searched for examples of a task
_TOLD = 3  # origins of an example


@dataclasses.dataclass(frozen=True)
class View:
    """An example to look at.

    Attributes:
        task: the name of its task.
        name: that of its denoiser; or the format of a conversation, "chat" or "prompt_completion".
        number: its index, or that of its row, over all epochs.
        segment: which example of its row it is, from 1; None where examples are not packed.
        numbers: of text and images "chunk", "noise", "spans", "inputs" and "targets", in tokens, but for the spans, "images", and
            the sum of "loss_weight"; of a conversation "messages", the tokens of each feature, and those of each loss group.
        ids: {"inputs": [tokens], "targets": [tokens]}, or {"tokens": [tokens]}, the tokenizer's own, EOS included.
        features: the same to read.
        location: where it is from.
        origins: the files and rows of its documents; None if the corpus does not record them.
        place: where it is from, in words.
    """

    task: str
    name: str
    number: int
    segment: int | None
    numbers: Mapping[str, float]
    ids: Mapping[str, list[int]]
    features: Mapping[str, list[Stretch]]
    location: Location
    origins: Sequence[Origin] | None
    place: str

    @property
    def corpus(self) -> str:
        """The name of its corpus."""
        return self.location.corpus

    @property
    def title(self) -> str:
        """Which one it is, in words."""
        return f"example {self.number}" if self.segment is None else f"row {self.number}, example {self.segment} of it"

    def as_plain(self) -> dict[str, Any]:
        """What JSON has of it; an origin is as lists of documents have it."""
        return {**dataclasses.asdict(self), "origins": self.origins and list(map(plain_origin, self.origins))}


@dataclasses.dataclass(frozen=True)
class Viewer(abc.ABC):
    """A task whose examples are looked at: what a kind of data answers."""

    member: Task
    corpus: OrderedCorpus

    @property
    def name(self) -> str:
        """See `View.name`."""
        return self.member.denoiser

    @property
    def features(self) -> Mapping[str, Feature]:
        """Those of its examples."""
        return self.member.features

    @property
    @abc.abstractmethod
    def in_words(self) -> str:
        """What its examples are."""

    @abc.abstractmethod
    def look(self, example: Mapping[str, Any], location: Location) -> tuple[dict[str, float], dict[str, list[Stretch]]]:
        """The numbers and the features of an example, see `View`."""


def view(examples: Examples, number: int, segment: int | None = None) -> View:
    """One example, by its index over all epochs; of packed rows with its segment, from 1.

    Raises an IndexError where the row has no such segment.
    """
    found = views(examples, [number])
    if segment is None and len(found) > 1:
        raise IndexError(f"segment must be from 1 to {len(found)} in row {number}, got None. Pass one.")
    if segment is not None and not 1 <= segment <= len(found):
        raise IndexError(f"segment must be from 1 to {len(found)} in row {number}, got {segment}.")
    return found[0] if segment is None else next(each for each in found if each.segment == segment)


def views(
    examples: Examples, numbers: Sequence[int], count: int | None = None, viewers: Mapping[str, Viewer] | None = None
) -> list[View]:
    """The first examples of each task among some examples or rows, task by task.

    Args:
        examples: of any epoch.
        numbers: indices over all epochs, ascending, such as those of a step.
        count: how many of each task there are at most; None for all.
        viewers: of the tasks whose examples are looked at, see `viewers_of`; None for all.
    """
    viewers = viewers_of(examples) if viewers is None else viewers
    chosen = _chosen(examples.numbering, numbers, count, list(viewers))
    wanted = sorted({number for of_task in chosen.values() for number, _ in of_task})
    made: dict[int, Any] = dict(zip(wanted, examples.epochs().__getitems__(wanted)))
    located = {number: locations_of(examples, number) for number in wanted}
    is_packed, found = bool(examples.numbering.packed), []
    for task, of_task in chosen.items():
        viewer = viewers[task]
        for number, segment in of_task:
            location = located[number][segment - 1]
            example = in_row(made[number], segment, viewer.features) if is_packed else made[number]
            numbers_, features = viewer.look(example, location)
            ids = {key: example[key].tolist() for key in token_features(viewer.features)}
            place, which = place_of(examples, location), (number, segment if is_packed else None)
            found.append(View(task, viewer.name, *which, numbers_, ids, features, location, location.origins, place))
    return found


def viewers_of(examples: Examples, names: Collection[str] = ()) -> dict[str, Viewer]:
    """The tasks of examples, by their names, in their order; with `names` those of these denoisers. Raises a ValueError without."""
    found = {}
    for corpus in examples.numbering.corpora:
        for member in corpus.members:
            found[member.task] = _viewer(member, corpus)
    known, asked = sorted({viewer.name for viewer in found.values()}), [name.lower() for name in names]
    if unknown := sorted({*asked} - {*known}):
        corpora = ", ".join(examples.numbering.names)
        raise ValueError(f"the denoiser must be one of {known} in {corpora!r}, got {unknown}.")
    return {task: viewer for task, viewer in sorted(found.items()) if not names or viewer.name in asked}


def _viewer(member: Task, corpus: OrderedCorpus) -> Viewer:
    if member.solution:
        return TextViewer(member, corpus)
    return (ImageViewer if member.has_images else ChatViewer)(member, corpus)


def _chosen(
    numbering: Numbering, numbers: Sequence[int], count: int | None, tasks: Sequence[str]
) -> dict[str, list[tuple[int, int]]]:
    """The number and the segment, from 1, of the first examples of each task."""
    found: dict[str, list[tuple[int, int]]] = {task: [] for task in tasks}
    for first in range(0, len(numbers), _AT_A_TIME):
        if count is not None and all(len(of_task) >= count for of_task in found.values()):
            break
        some = np.asarray(numbers[first : first + _AT_A_TIME], np.int64)
        slots = numbering.slots(some)
        kinds = np.zeros_like(slots.places)
        for corpus in np.unique(slots.corpora).tolist():
            of = np.flatnonzero(slots.corpora == corpus)
            kinds[of] = numbering.corpora[corpus].order.ranges(slots.epochs[of], slots.slots[of]).kinds
        segments = np.arange(len(slots.places)) - np.searchsorted(slots.places, slots.places) + 1
        for number, segment, corpus, kind in zip(*map(np.ndarray.tolist, (some[slots.places], segments, slots.corpora, kinds))):
            of_task = found.get(numbering.corpora[corpus].members[kind].task)
            if of_task is not None and (count is None or len(of_task) < count):
                of_task.append((number, segment))
    return found


def locations_of(examples: Examples, number: int) -> list[Location]:
    """The locations of an example, one, or of the examples of a row, in its order; `number` counts over all epochs."""
    of_epoch, index = examples.at(number)
    found: Location | list[Location] = of_epoch.locate(index)
    return [found] if isinstance(found, Location) else found


def in_row(row: Mapping[str, np.ndarray], segment: int, spec: Mapping[str, Feature]) -> dict[str, np.ndarray]:
    """An example of a packed row, from 1, with its features."""
    return {key: row[key][row[f"{feature.per_token_of}_segment_ids"] == segment] for key, feature in spec.items()}


def corpus_of(examples: Examples, name: str) -> OrderedCorpus:
    """The corpus of a name."""
    return next(corpus for corpus in examples.numbering.corpora if corpus.name == name)


def place_of(examples: Examples, location: Location) -> str:
    """Where an example is from, in words: its documents and tokens, or its record; and the first of the files and rows of these."""
    corpus = corpus_of(examples, location.corpus)
    if (index := corpus.data.index) is None:
        origins = location.origins or []
        more = f"; and {len(origins) - _TOLD} more" if len(origins) > _TOLD else ""
        return in_words(location) + (f", from {'; '.join(map(str, origins[:_TOLD]))}{more}" if origins else "")
    ((record, _),), ((start, stop),) = location.documents, location.tokens
    told, (first, last) = index.columns.locate(record), corpus.store.tokens_of(record)
    told = told if told.startswith(own := f"record {record}") or told.endswith(own) else f"{own}, {told}"
    part = "" if (start, stop) == (first, last) else f", tokens {start - first} to {stop - first - 1} of its {last - first}"
    return f"epoch {location.epoch} of {location.corpus}, {told}{part}"


def in_words(location: Location) -> str:
    """Where an example of text is from.

    >>> in_words(Location("web_corpus", "web_r1", "r1", 3, chunk_index=0, tokens=((90, 100), (0, 5)), documents=((7, 9), (0, 1))))
    'epoch 3 of web_corpus, documents 7 to 8 and 0, tokens 90 to 99 and 0 to 4'
    """
    documents, tokens = map(ranges_in_words, (location.documents, location.tokens))
    return f"epoch {location.epoch} of {location.corpus}, documents {documents}, tokens {tokens}"


def plain_origin(origin: Origin) -> dict[str, object]:
    """An origin as JSON has it, and lists of documents: the hash in hexadecimal digits."""
    return {**origin._asdict(), "hash": f"{origin.hash:016x}"}


class TextViewer(Viewer):
    """A denoiser of text."""

    @property
    def in_words(self) -> str:
        full = self.member.solution.full
        return (
            f"{_fields(self.member.solution.configuration.denoiser)}\n"
            f"full-length chunk: {full.length} tokens, {full.noise} masked ({full.noise / full.length:.1%}), spans: {full.spans};"
            f" inputs of {full.inputs} tokens, targets of {full.targets}"
        )

    def look(self, example: Mapping[str, Any], location: Location) -> tuple[dict[str, float], dict[str, list[Stretch]]]:
        solution, borders = self.member.solution, []
        for (start, stop), documents in zip(location.tokens, location.documents):
            firsts, _ = self.corpus.store.ranges_of(np.arange(*documents))
            borders.append(np.isin(np.arange(start, stop), firsts))
        read = functools.partial(stretches, self.member.vocabulary)
        begins, weights = np.flatnonzero(np.concatenate(borders)), example.get(LOSS_WEIGHT)
        numbers, features = _denoised(example, solution.configuration.denoiser, solution.special, begins, read)
        return numbers if weights is None else {**numbers, LOSS_WEIGHT: round(float(weights.sum()), 2)}, features


class ImageViewer(Viewer):
    """A denoiser of interleaved texts and images."""

    @property
    def _limits(self) -> Any:
        return next(each for each in self.corpus.data.index.limits if each.name == self.member.task)

    @property
    def in_words(self) -> str:
        return f"{_fields(self._limits.denoiser)}; a record is an example"

    def look(self, example: Mapping[str, Any], location: Location) -> tuple[dict[str, float], dict[str, list[Stretch]]]:
        sizes, vocabulary = map(size_of, example[IMAGES]), self.member.vocabulary
        marks = checked(self.member.corpus.encoder.image_tokens, vocabulary)

        def read(ids: Sequence[int], special: SpecialTokens, feature: str, _: Collection[int]) -> list[Stretch]:
            """The stretches of texts, with one for each sequence of image tokens."""
            found, end = list[Stretch](), 0
            while end < len(ids):
                start, stop = end, ids.index(marks.boi_id, end) if marks.boi_id in ids[end:] else len(ids)
                own = special if start == 0 else dataclasses.replace(special, mode=())
                found += stretches(vocabulary, ids[start:stop], own, feature)
                end = stop
                if stop < len(ids):
                    end = ids.index(marks.eoi_id, stop) + 1
                    found.append(Stretch("[image {}x{}]".format(*next(sizes)), "image", None, end - stop))
            return found

        numbers, features = _denoised(example, self._limits.denoiser, self._limits.special, np.zeros(0, np.int64), read)
        return {**numbers, "images": len(example[IMAGES])}, features


def _denoised(
    example: Mapping[str, np.ndarray],
    denoiser: Denoiser,
    special: SpecialTokens,
    begins: np.ndarray,
    read: Callable[[list[int], SpecialTokens, str, Collection[int]], list[Stretch]],
) -> tuple[dict[str, float], dict[str, list[Stretch]]]:
    """The numbers and the features of an example.

    `begins` are the tokens of its chunk that begin a document, [documents] int64. `read` gives ids of a feature as stretches, with
    borders before these places.
    """
    whole = invert(example, denoiser, special)
    begins = begins[(begins > 0) & (begins < len(whole.chunk))]
    are_noise, at = whole.is_noise[begins], whole.places[begins]
    ids = {key: example[key].tolist() for key in TOKEN_FEATURES}
    borders = {"inputs": at[~are_noise].tolist(), "targets": at[are_noise].tolist()}
    numbers: dict[str, float] = {"chunk": len(whole.chunk), "noise": int(whole.is_noise.sum()), "spans": len(whole.spans)}
    if RATE in example:
        rates = example[RATE][example[RATE] > 0]
        numbers |= {"lowest t": round(float(rates.min()), 4), "highest t": round(float(rates.max()), 4)}
    features = {key: read(own, special, key, borders[key]) for key, own in ids.items()}
    return {**numbers, **{key: len(own) for key, own in ids.items()}}, features


def _fields(denoiser: Denoiser) -> str:
    return ", ".join(f"{field} {value}" for field, value in denoiser.described.items())


class ChatViewer(Viewer):
    """Conversations in a format."""

    @property
    def name(self) -> str:
        return self.corpus.data.index.objective.format

    @property
    def in_words(self) -> str:
        supervision = self.corpus.data.index.objective.supervision
        return ", ".join(f"{key} {getattr(supervision, key)}" for key in ("train_on", "turns", "truncation"))

    def look(self, example: Mapping[str, Any], location: Location) -> tuple[dict[str, float], dict[str, list[Stretch]]]:
        found, vocabulary = self.tokens(example, location), self.member.vocabulary
        eos = SpecialTokens((), (), vocabulary.eos_id, frozenset())
        lengths = {key: len(example[key]) for key in token_features(self.features)}
        features, first = dict[str, list[Stretch]](), 0
        for key, length in lengths.items():
            features[key] = []
            own, first = range(first, first + length), first + length
            for message, of_message in itertools.groupby(own, found.messages.__getitem__):
                if message >= 0:
                    features[key].append(Stretch(found.names[message], "message", None, 0))
                for (kind, group), run in itertools.groupby(of_message, lambda at: (found.kinds[at], found.groups[at])):
                    ids = [int(found.ids[at]) for at in run]
                    text = "".join(each.text for each in stretches(vocabulary, ids, eos, "inputs"))
                    features[key].append(Stretch(text, kind, int(group) or None, len(ids)))
        groups = np.bincount(found.groups).tolist()
        by_group = {group_name(group): tokens for group, tokens in enumerate(groups) if group and tokens}
        return {"messages": len(np.unique(found.messages[found.messages >= 0])), **lengths, **by_group}, features

    def tokens(self, example: Mapping[str, Any], location: Location) -> ChatTokens:
        """The tokens of an example, those of inputs before those of targets."""
        index, ((conversation, _),) = self.corpus.data.index, location.documents
        held = read_conversations(index.columns, np.array([conversation]))
        ids = np.concatenate([example[key] for key in token_features(self.features)])
        marks = np.where(example[LOSS_MASK], example[SPAN_ID], 0)
        groups = np.append(np.zeros(len(ids) - len(marks), np.uint8), marks)
        first, end = len(index.objective.mode), len(ids) - ("tokens" in self.features)  # a chat has an EOD
        chosen = _messages_in(held, ids[first:end], index.objective.stops.final) if (ids[end:] == held.tokens[-1]).all() else []

        kinds = ["mode"] * first + ["text"] * (end - first) + ["eos"] * (len(ids) - end)
        messages, places = np.full([2, len(ids)], -1)
        places[end:] = len(held.tokens) - 1 if chosen else -1
        stops = np.cumsum(held.messages[:, LENGTH], dtype=np.int64)
        for number in chosen:
            length, header = held.messages[number, [LENGTH, HEADER]].tolist()
            messages[first : first + length] = number
            places[first : first + length] = np.arange(stops[number] - length, stops[number])
            kinds[first : first + length] = (["header"] * header + ["text"] * (length - header - 1) + ["stop"])[:length]
            first += length
        return ChatTokens(ids, groups, kinds, messages, places, [kind_name(kind) for kind in held.messages[:, KIND].tolist()])


class ChatTokens(NamedTuple):
    """The tokens of an example of a conversation, [tokens] each.

    Attributes:
        ids, groups: their ids and loss groups, 0 where they are not trained on.
        kinds: see `Stretch`; "text" of tokens that are not whole messages of the conversation.
        messages, places: which message of the conversation each is of, and which token of the conversation it is; -1 where that is
            not known, and of the mode; the EOD is of no message.
        names: [messages], what kind of message each of the conversation is.
    """

    ids: np.ndarray
    groups: np.ndarray
    kinds: list[str]
    messages: np.ndarray
    places: np.ndarray
    names: list[str]


def group_name(group: int) -> str:
    """The name of a loss group, for people.

    >>> group_name(1), group_name(7)
    ('reasoning', 'loss group 7')
    """
    return GROUPS.get(group, f"loss group {group}")


def _messages_in(conversation: Conversations, ids: np.ndarray, final_stop: int | None) -> list[int]:
    """Which messages of a conversation, in its order, are `ids`, back to back; none where no choice of them is.

    They are found by their tokens, whatever chose them. The last one may end in `final_stop` instead of its own last token.
    """
    found, place, end = [], 0, 0
    for number, length in enumerate(conversation.messages[:, LENGTH].tolist()):
        start, end = end, end + length
        part = ids[place : place + length]
        is_last = place + length == len(ids) and length and part[-1] == final_stop
        if length and np.array_equal(conversation.tokens[start : end - is_last], part[: length - is_last]):
            found.append(number)
            place += length
    return found if place == len(ids) else []
