"""`ul2 find`: when a run is fed a document, a text, or the documents of a list."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.document_list import DocumentList, named_documents
from ul2_tasks.inspect.printing import bars, list_table, print_head, ranges_in_words, visible
from ul2_tasks.inspect.run import Run, stores
from ul2_tasks.inspect.view import ChatViewer, corpus_of, in_row, locations_of, plain_origin, viewers_of
from ul2_tasks.random_access.sequence import Examples, Location
from ul2_tasks.store.provenance import Origin
from ul2_tasks.store.read import TokenStore
from ul2_tasks.tokenizers.batches import encode_batch

_AT_A_TIME = 1 << 22  # tokens
# What may stand before and after a part of a document: nothing, white space, a letter, a full stop.
_AROUND = ("", " ", "\n", "a", ".")


@dataclasses.dataclass(frozen=True)
class Place:
    """A part of a document.

    Attributes:
        corpus: the name of the corpus's task.
        document: its number, from 0, in the order of the cache or the corpus.
        start, stop: the part's tokens [start, stop) among those of the corpus.
    """

    corpus: str
    document: int
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Pattern:
    """How a text is found in a corpus.

    Attributes:
        text: as it is after it was tokenized.
        tokens: [tokens] int32, those of its tokens that are the same whatever stands around it, as ids of the vocabulary.
        before, after: within how many tokens before and after these the text lies, at most.
        left_off: how many of its tokens are not among these.
    """

    text: str
    tokens: np.ndarray
    before: int
    after: int
    left_off: int


@dataclasses.dataclass(frozen=True)
class Seen:
    """An example that has tokens of a document.

    Attributes:
        epoch: which epoch of the run.
        number: its index, or that of its row, over all epochs.
        segment: which example of its row it is, from 1; None where examples are not packed.
        step: the step that reads it; None without a batch size.
        task, denoiser: the names of its task and its denoiser.
        tokens: ranges [start, stop) of the document's tokens that it has; of a text that was looked for, of the text's.
        trained: how many of them count in the loss, of a conversation whose messages are found in it; else None.
    """

    epoch: int
    number: int
    segment: int | None
    step: int | None
    task: str
    denoiser: str
    tokens: list[tuple[int, int]]
    trained: int | None = None


@dataclasses.dataclass(frozen=True)
class FoundDocument:
    """A document, or a text in it, and what trains on it.

    Attributes:
        place: its tokens, or those of the text.
        origin: the file and row of the document; None if the corpus does not record them.
        where: where it is from, in words, as far as that is known.
        problem: why no example can have it; empty where some can.
        seen: the examples that have some of it, in the order of epochs.
    """

    place: Place
    origin: Origin | None
    where: str
    problem: str
    seen: Sequence[Seen]

    def as_plain(self) -> dict[str, Any]:
        """What JSON has of it."""
        place, origin = self.place, {} if self.origin is None else plain_origin(self.origin)
        seen = [dataclasses.asdict(each) for each in self.seen]
        return {"corpus": place.corpus, "document": place.document, **origin, "tokens": place.stop - place.start, "seen": seen}


@dataclasses.dataclass(frozen=True)
class Found:
    """What is found in a run.

    Attributes:
        notes: what was looked for, and how much of it is here, in words.
        documents: what trains on each; they are looked at one after the other.
        unknown: the entries of a list that name no document; with the names of the `corpora` where one is about another corpus.
    """

    notes: Sequence[str]
    documents: Iterable[FoundDocument]
    unknown: Sequence[dict[str, Any]] = ()

    def as_plain(self) -> Iterator[dict[str, Any]]:
        """What JSON has of it, a line for each document, and then for each unknown entry."""
        yield from (document.as_plain() for document in self.documents)
        yield from self.unknown


def find(
    run: Run,
    *,
    document: str | None = None,
    text: str | None = None,
    named: DocumentList | None = None,
    epochs: int = 1,
    count: int | None = 5,
) -> Found:
    """Finds the examples, or rows, of the first `epochs` of a run that have some of a document, of a text, or of named documents.

    The document is its number, such as "17"; or "CORPUS:17", which names the corpus's task, where the mixture has several. Of a
    text, which is looked for in all of the corpora instead, there are `count` places at most, and of documents that a list names as
    many, or all where it is None. A conversation is a document, and so is a record of texts and images. It may make several
    examples; of a text those are found that have tokens of it.

    Raises a ValueError where there is no such document, or the text has no token.
    """
    found, notes, unknown = run.examples(), list[str](), list[dict[str, Any]]()
    if named is not None:
        places, entries = named_places(found, named)
        names, values = found.numbering.names, [json.loads(entry) for entry in entries]
        others = ({} if value.get("corpus", names[0]) in names else {"corpora": names} for value in values)
        unknown = [{"not_found": value} | other for value, other in zip(values, others)]
        if count is not None and len(places) > count:
            notes.append(f"these are the first {count} of {len(places):,} documents (--count)")
    elif document is not None:
        places = [place_of(found, document)]
    else:
        places = _search(found, text or "", count, notes)
    return Found(notes, (_document(run, found, place, epochs) for place in places[:count]), unknown)


def print_found(run: Run, found: Found, console: Console) -> None:
    """Prints what is found, a table for each document."""
    print_head(console, run.name, run.sequence_length, run.split, run.seed)
    console.print(Text(f"{len(run.examples()):,} {run.unit}s per epoch; host h of H reads those whose index mod H is h", "dim"))
    for entry in found.unknown:
        console.print(Text(f"no document has {json.dumps(entry['not_found'])}"))
    for note in found.notes:
        console.print(Text(note, "dim"))
    for document in found.documents:
        place = document.place
        console.rule(Text(f"document {place.document} of {place.corpus}", "bold"), style="dim", align="left")
        tokens = [] if place.start == place.stop else [f"tokens {ranges_in_words([(place.start, place.stop)])}"]
        console.print(Text(", ".join([*tokens, *([f"from {visible(document.where)}"] if document.where else [])])), soft_wrap=True)
        if document.problem or not document.seen:
            console.print(Text(document.problem or "no example has it, with these lengths and epochs"), "")
        else:
            console.print(_table(run, document.seen), "")


def _table(run: Run, seen: Sequence[Seen]) -> Any:
    has_trained = any(each.trained is not None for each in seen)
    columns = ["epoch", run.unit, *(["example of it"] if run.pack else []), *(["step"] if run.steps else [])]
    table = list_table(*columns, "task", "tokens of it", *(["trained on"] if has_trained else []), left=("task", "tokens of it"))
    for each in seen:
        numbers = [each.epoch, each.number, *([each.segment] if run.pack else []), *([each.step] if run.steps else [])]
        trained = ["?" if each.trained is None else f"{each.trained:,}"] if has_trained else []
        table.add_row(*map(str, numbers), each.task, ranges_in_words(each.tokens), *trained)
    return table


def _document(run: Run, found: Examples, place: Place, epochs: int) -> FoundDocument:
    corpus = corpus_of(found, place.corpus)
    provenance, index = corpus.store.provenance, corpus.data.index
    origin = provenance.of([place.document])[0] if provenance else None
    where = str(origin) if origin else index.columns.locate(place.document) if index else ""
    problem = ""
    if place.start == place.stop:
        problem = "it has no token, and so is in no example"
    elif index and len(set(index.examples_of(place.document))) == 1:
        problem = f"it makes no example with these lengths: {index.why_none(place.document)}"
    return FoundDocument(place, origin, where, problem, [] if problem else list(seen(run, place, epochs)))


def seen(run: Run, place: Place, epochs: int) -> Iterator[Seen]:
    """Yields the examples that have tokens of a place, by their numbers."""
    for (first, stop, found), epoch in itertools.product(run.parts, range(epochs)):
        of_epoch, viewers = found.epoch(epoch), viewers_of(found)
        for number in (of_epoch.first + index for index in of_epoch.find(place.document, place.corpus)):
            for segment, location in enumerate(locations_of(found, number) if first <= number < stop else (), start=1):
                if location.corpus != place.corpus:
                    continue
                viewer, trained = viewers[location.task], None
                held = [(max(start, place.start), min(stop, place.stop)) for start, stop in location.tokens]
                tokens = [(start - place.start, stop - place.start) for start, stop in held if start < stop]
                if tokens and isinstance(viewer, ChatViewer):
                    tokens, trained = _of_chat(found, viewer, place, number, segment if run.pack else None, location)
                if tokens:
                    at = epoch, number, segment if run.pack else None, run.step_of(number)
                    yield Seen(*at, location.task, location.denoiser, tokens, trained)


def _of_chat(
    found: Examples, viewer: ChatViewer, place: Place, number: int, segment: int | None, location: Location
) -> tuple[list[tuple[int, int]], int | None]:
    """Which tokens of a place an example of its conversation has, and how many of these are trained on.

    An example may be some messages of a conversation; where these are not found in it, all tokens are said to be there.
    """
    row: Any = found.epochs()[number]
    example = viewer.tokens(row if segment is None else in_row(row, segment, viewer.features), location)
    ((start, stop),) = location.tokens
    if (example.messages < 0).all():
        return [(max(start, place.start) - place.start, min(stop, place.stop) - place.start)], None
    at = example.places + start - place.start
    are_in = (example.places >= 0) & (at >= 0) & (at < place.stop - place.start)
    ranges = np.split(at[are_in], np.flatnonzero(np.diff(at[are_in]) != 1) + 1) if are_in.any() else []
    return [(int(each[0]), int(each[-1]) + 1) for each in ranges], int((example.groups[are_in] > 0).sum())


def named_places(found: Examples, named: DocumentList) -> tuple[list[Place], list[str]]:
    """The documents that a list names, and its entries that name none. Raises a ValueError where no corpus can tell."""
    by_corpus = {name: store for name, (_, store) in stores(found).items()}
    documents, unknown = named_documents(named, by_corpus)
    places = [
        Place(name, document, *store.tokens_of(document))
        for name, store in by_corpus.items()
        for document in documents[name].tolist()
    ]
    return places, unknown


def place_of(found: Examples, document: str) -> Place:
    """All of a document."""
    corpora = stores(found)
    corpus, _, number = document.rpartition(":")
    if corpus not in (corpora if len(corpora) > 1 else ("", *corpora)) or not number.isdecimal():
        raise ValueError(f"document must be {' or '.join(f'{name}:NUMBER' for name in corpora)}, got {document!r}.")
    corpus = corpus or next(iter(corpora))
    store = corpora[corpus][1]
    if int(number) >= store.documents:
        raise ValueError(f"document must be from 0 to {store.documents - 1} in {corpus!r}, got {number}.")
    return Place(corpus, int(number), *store.tokens_of(int(number)))


def pattern_of(corpus: Corpus, text: str) -> Pattern:
    """How a text is found in a corpus.

    A text that was taken out of a document can begin or end within a word, and a tokenizer may cut its ends otherwise where they
    stand between other words. So the tokens of its first and its last word are left off, and those that differ with what stands
    around the text. Where none would remain, all are kept: a short text is found where it is tokenized as it is alone.
    """
    before, after = [around + text for around in _AROUND], [text + around for around in _AROUND]
    if len(text.split()) > 2:
        before.append(re.sub(r"^\s*\S+", "", text))
        after.append(re.sub(r"\s+\S+\s*$", "", text))
    alone = _encoded(corpus, text)
    if not alone:
        raise ValueError(f"text must have at least one token, got {text!r}.")
    first = len(alone) - min(_same(alone[::-1], _encoded(corpus, each)[::-1]) for each in before)
    last = min(_same(alone, _encoded(corpus, each)) for each in after)
    first, last = (first, last) if first < last else (0, len(alone))

    def most_tokens(ids: list[int]) -> int:
        """A token has a byte at least, so an end of the text has no more tokens than bytes, wherever it is cut."""
        return len(corpus.tokenizer.decode(ids).encode()) + 2 if ids else 0

    return Pattern(
        text=corpus.tokenizer.decode(alone),
        tokens=np.array(alone[first:last], np.int32),
        before=most_tokens(alone[:first]),
        after=most_tokens(alone[last:]),
        left_off=len(alone) - (last - first),
    )


def occurrences(store: TokenStore, tokens: np.ndarray, advance: Callable[[int], None] = lambda more: None) -> Iterator[int]:
    """Yields where a store has a sequence of tokens, ascending; `advance` is told how many tokens are looked through."""
    rare = int(tokens.argmax())  # vocabularies number their pieces from frequent ones to rare ones
    for first in range(0, store.tokens - len(tokens) + 1, _AT_A_TIME):
        read = store.read_tokens(first, min(first + _AT_A_TIME + len(tokens) - 1, store.tokens))
        starts = np.flatnonzero(read[rare : len(read) - len(tokens) + 1 + rare] == tokens[rare])
        for offset, token in enumerate(tokens):
            starts = starts[read[starts + offset] == token]
        advance(len(read) - len(tokens) + 1)
        yield from (first + starts).tolist()


def places_of(corpus: Corpus, store: TokenStore, pattern: Pattern, advance: Callable[[int], None]) -> Iterator[Place]:
    """Yields where a document of a corpus has a text; see `occurrences`."""
    for start in occurrences(store, pattern.tokens, advance):
        stop = start + len(pattern.tokens)
        first, after = store.documents_at(start, stop)
        begin, end = store.tokens_of(first)
        around = store.read_tokens(max(begin, start - pattern.before), min(end, stop + pattern.after))
        if after == first + 1 and pattern.text in corpus.tokenizer.decode(around.tolist()):
            yield Place(corpus.name, first, start, stop)


def _search(found: Examples, text: str, count: int | None, notes: list[str]) -> list[Place]:
    """The first places of a text in all corpora. Notes what it looks for, and how long that takes."""
    places: list[Place] = []
    for corpus, store in stores(found).values():
        pattern = pattern_of(corpus, text)
        if pattern.left_off:
            core = corpus.tokenizer.decode(pattern.tokens.tolist())
            kept, all_of_it = len(pattern.tokens), len(pattern.tokens) + pattern.left_off
            why = "the ends may be parts of words, and are compared as text"
            notes.append(f"searching for {kept} of the text's {all_of_it} tokens, {core!r}: {why}")
        with bars() as progress:
            bar = progress.add_task(f"{corpus.name}: {store.tokens:,} tokens", total=store.tokens)
            in_corpus = places_of(corpus, store, pattern, functools.partial(progress.advance, bar))
            places += itertools.islice(in_corpus, None if count is None else count - len(places))
            shown = progress.tasks[bar]
        rate = shown.completed / max(shown.elapsed or 0, 1e-3)
        notes.append(f"searched {shown.completed:,} tokens of {corpus.name}, {rate:,.0f} per second")
        if len(places) == count:
            notes.append(f"these are the first {count} places of the text, there may be more (--count)")
            break
    if not places:
        notes.append("no document has this text. In a text of three words or more, the first and the last may be parts of words")
    return places


def _encoded(corpus: Corpus, text: str) -> list[int]:
    return encode_batch(corpus.tokenizer, [text.encode()])[0].tolist()


def _same(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two sequences begin with that are the same."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other)))
