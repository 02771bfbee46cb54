"""`ul2 find`: when a run is fed a document, or a text."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.chat.reading import messages_of
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.document_list import DocumentList, named_documents
from ul2_tasks.inspect.printing import bars, print_head, print_json_lines, ranges_in_words, visible
from ul2_tasks.inspect.run import Run, locations_of, stores
from ul2_tasks.inspect.steps import ChatOfRun, as_json, chat_example, chats_fed, in_row, made
from ul2_tasks.random_access.records import RecordIndex
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


def find(
    run: Run,
    document: str | None,
    text: str | None,
    named: DocumentList | None = None,
    *,
    epochs: int = 1,
    count: int = 5,
    console: Console | None = None,
) -> None:
    """Prints which examples, or rows, of the first `epochs` of a run have some of a document, of a text, or of named documents.

    The document is its number, such as "17"; or "CORPUS:17", which names the corpus's task, where the mixture has several. Of a
    text, which is looked for in all of the corpora instead, there are `count` places at most, and of documents that a list names as
    many. A conversation is a document, and so is a record of texts and images. It may make several examples; of a text those are
    printed that have tokens of it.
    """
    console = console or Console()
    found = run.examples()
    print_head(console, run.name, run.sequence_length, run.split, run.seed)
    console.print(Text(f"{len(found):,} {run.unit}s per epoch; host h of H reads those whose index mod H is h", "dim"))
    if named is not None:
        places = _first_named(found, named, count, console)
    else:
        places = [place_of(found, document)] if document is not None else _search(found, text or "", count, console)
    for place in places:
        console.rule(Text(f"document {place.document} of {place.corpus}", "bold"), style="dim", align="left")
        if (origin := _origin_of(found, place)) and not _where(found, place):
            console.print(Text(f"from {origin}"), soft_wrap=True)
        if place.start == place.stop:
            console.print("it has no token, and so is in no example")
        elif why := _why_none(found, place):
            console.print(Text(f"it makes no example with these lengths: {why}"))
        else:
            table, where = _table(run, found, place, epochs), _where(found, place)
            console.print(Text(f"tokens {ranges_in_words([(place.start, place.stop)])}{where}"))
            console.print(table if table.row_count else "no example has it, with these lengths and epochs", "")


def find_all(run: Run, named: DocumentList, *, epochs: int = 1, file: TextIO | None = None) -> None:
    """Writes JSON Lines: a line for each document that a list names, with all that trains on it in the first epochs of a run.

    That are the epoch, the example or row, the segment of a row, the step, the task, the denoiser, and which tokens of the document
    it has. A line with "not_found" for each entry of the list that names no document comes at the end, with the names of the
    corpora where it is about another one.
    """
    found = run.examples()
    places, unknown = named_places(found, named)
    print_json_lines((_line(run, found, place, epochs) for place in places), file)
    names = found.numbering.names
    values = [json.loads(entry) for entry in unknown]
    others = ({} if value.get("corpus", names[0]) in names else {"corpora": names} for value in values)
    print_json_lines(({"not_found": value} | other for value, other in zip(values, others)), file)


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


def seen(run: Run, place: Place, epochs: int) -> Iterator[tuple[int, int | None, Location]]:
    """Yields which examples, or rows, have tokens of a place: the number over all epochs, the segment of a row, the location."""
    for (first, stop, found), epoch in itertools.product(run.parts, range(epochs)):
        of_epoch = found.epoch(epoch)
        for number in (of_epoch.first + index for index in of_epoch.find(place.document, place.corpus)):
            for segment, location in enumerate(locations_of(found, number) if first <= number < stop else (), start=1):
                has_some = any(start < place.stop and place.start < stop for start, stop in location.tokens)
                if location.corpus == place.corpus and has_some:
                    yield number, segment if run.pack else None, location


def _line(run: Run, found: Examples, place: Place, epochs: int) -> dict[str, object]:
    """A document and what trains on it, see `find_all`."""
    origin, read = _origin_of(found, place), []
    for number, segment, location in seen(run, place, epochs) if place.start < place.stop else ():
        held = [(max(start, place.start), min(stop, place.stop)) for start, stop in location.tokens]
        tokens = [[start - place.start, stop - place.start] for start, stop in held if start < stop]
        at = {"epoch": found.at(number)[0].number, "number": number, "segment": segment, "step": run.step_of(number)}
        read.append({**at, "task": location.task, "denoiser": location.denoiser, "tokens": tokens})
    told = {} if origin is None else as_json(origin)
    return {"corpus": place.corpus, "document": place.document, **told, "tokens": place.stop - place.start, "seen": read}


def _origin_of(found: Examples, place: Place) -> Origin | None:
    """Where the document of a place is from, if its corpus records it."""
    provenance = stores(found)[place.corpus][1].provenance
    return provenance.of([place.document])[0] if provenance else None


def _first_named(found: Examples, named: DocumentList, count: int, console: Console) -> list[Place]:
    """The first documents that a list names. Says what it names besides, or what is nowhere."""
    places, unknown = named_places(found, named)
    for entry in unknown:
        console.print(Text(f"no document has {entry}"))
    if len(places) > count:
        console.print(Text(f"these are the first {count} of {len(places):,} documents (--count)", "dim"))
    return places[:count]


def _index_of(found: Examples, place: Place) -> RecordIndex | None:
    """The index of the records of a place's corpus; None of texts."""
    return next(each.data.index for each in found.numbering.corpora if each.name == place.corpus)


def _why_none(found: Examples, place: Place) -> str:
    """Why the record that a place is in makes no example; empty where it makes some."""
    index = _index_of(found, place)
    if index is None or len(set(index.examples_of(place.document))) > 1:
        return ""
    return index.why_none(place.document)


def _where(found: Examples, place: Place) -> str:
    """Where the image-text record that a place is in is from, as far as the corpus says; empty of texts and conversations."""
    index = _index_of(found, place)
    return f", {visible(where)}" if index and (where := index.where(place.document)) else ""


def _search(found: Examples, text: str, count: int, console: Console) -> list[Place]:
    """The first places of a text in all corpora. Says what it looks for, and how long that takes."""
    places: list[Place] = []
    for corpus, store in stores(found).values():
        pattern = pattern_of(corpus, text)
        if pattern.left_off:
            core = corpus.tokenizer.decode(pattern.tokens.tolist())
            kept, all_of_it = len(pattern.tokens), len(pattern.tokens) + pattern.left_off
            why = "the ends may be parts of words, and are compared as text"
            console.print(Text(f"searching for {kept} of the text's {all_of_it} tokens, {core!r}: {why}", "dim"))
        with bars() as progress:
            bar = progress.add_task(f"{corpus.name}: {store.tokens:,} tokens", total=store.tokens)
            in_corpus = places_of(corpus, store, pattern, functools.partial(progress.advance, bar))
            places += itertools.islice(in_corpus, count - len(places))
            shown = progress.tasks[bar]
        rate = shown.completed / max(shown.elapsed or 0, 1e-3)
        console.print(Text(f"searched {shown.completed:,} tokens of {corpus.name}, {rate:,.0f} per second", "dim"))
        if len(places) == count:
            console.print(Text(f"these are the first {count} places of the text, there may be more (--count)", "dim"))
            break
    if not places:
        console.print("no document has this text. In a text of three words or more, the first and the last may be parts of words")
    return places


def _table(run: Run, found: Examples, place: Place, epochs: int) -> Table:
    """When a place is seen, a line for each example."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    columns = ["epoch", run.unit, *(["example of it"] if run.pack else []), *(["step"] if run.batch_size else [])]
    chats = {name: task for name, task in chats_fed(found).items() if task.corpus.name == place.corpus}
    for title in columns:
        table.add_column(title, justify="right")
    for title in ("task", "tokens of it", "trained on") if chats else ("denoiser", "its tokens"):
        table.add_column(title, overflow="fold" if title == "task" else "ellipsis")
    for number, segment, location in seen(run, place, epochs):
        if not chats:
            of_place: tuple[str, ...] | None = location.denoiser, ranges_in_words(location.tokens)
        else:
            of_place = _of_chat(found, chats[location.task], place, number, segment, location)
        if of_place:
            numbers = [found.at(number)[0].number, number, segment, run.step_of(number)]
            table.add_row(*(str(each) for each in numbers if each is not None), *of_place)
    return table


def _of_chat(
    found: Examples, task: ChatOfRun, place: Place, number: int, segment: int | None, location: Location
) -> tuple[str, ...] | None:
    """The task, how many tokens of a place an example of its conversation has, and how many of these are trained on.

    None where it has none: an example may be some messages of a conversation.
    """
    row = made(found, [number])[number]
    example = chat_example(task, location, row if segment is None else in_row(row, segment, task.features))
    ((start, stop),) = location.tokens
    if (place.start, place.stop) == (start, stop):
        return task.name, f"{len(example.ids):,}", f"{int(example.loss_mask.sum()):,}"
    if not example.numbers:  # its tokens are not whole messages, so it is not known which are the place's
        return task.name, "?", "?"
    messages, _ = messages_of(task.index.columns, np.array([place.document]))
    at = example.places_of(messages, place.start - start, place.stop - start)
    return (task.name, f"{len(at):,}", f"{int(example.loss_mask[at].sum()):,}") if len(at) else None


def _encoded(corpus: Corpus, text: str) -> list[int]:
    return encode_batch(corpus.tokenizer, [text.encode()])[0].tolist()


def _same(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two sequences begin with that are the same."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other)))
