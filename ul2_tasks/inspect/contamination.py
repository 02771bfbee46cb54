"""`ul2 contamination`: which documents of a corpus have texts of a benchmark, or parts of them."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.files.atomic import check_folder_of, write_atomically
from ul2_tasks.files.systems import exists
from ul2_tasks.inspect.printing import APART, bars, percent, visible
from ul2_tasks.inspect.run import Run, stores
from ul2_tasks.sources.files import Layout, Shard
from ul2_tasks.sources.formats import format_of
from ul2_tasks.sources.records import Record, read
from ul2_tasks.store.ngrams import Texts
from ul2_tasks.store.read import TokenStore
from ul2_tasks.tokenizers.batches import encode_batch

LEAST = 8  # tokens of a text that is looked for whole
_FORMATS = ("jsonl", "text", "parquet", "arrow")
_SHOWN = 20  # characters of a text


class Named(NamedTuple):
    """A text to look for, and what names it: its id, or its number in the file."""

    name: str | int
    text: str


@dataclasses.dataclass(frozen=True)
class Variants:
    """The tokens of texts as a corpus may have them.

    A text may begin after a space or not, which many tokenizers take into its first token; and tokens at its ends may be others, by
    what stands there. So each text is looked for twice, with a space before and without, and without its first and last token.

    Attributes:
        texts: the tokens that are looked for, as the corpus stores them.
        of: [variants] int64, which text each is of.
        too_short: [texts] bool, which are not looked for, because too few tokens remain.
    """

    texts: Texts
    of: np.ndarray
    too_short: np.ndarray

    @property
    def whole(self) -> int:
        """How many texts are looked for whole, because they have fewer than n tokens."""
        by_ngrams = {text for text, tokens in zip(self.of.tolist(), self.texts.tokens) if len(tokens) >= self.texts.n}
        return len({*self.of.tolist()} - by_ngrams)


class Shared(NamedTuple):
    """What a document and a text have in common: `ngrams` of the text's `of` n-grams, and a run of `longest` tokens."""

    document: int
    text: int
    ngrams: int
    of: int
    longest: int

    @property
    def overlap(self) -> float:
        """Which fraction of the text's n-grams the document has."""
        return self.ngrams / self.of


@dataclasses.dataclass(frozen=True)
class Contamination:
    """The documents of a corpus that have n-grams of texts.

    Attributes:
        corpus, documents, tokens: the name of the corpus, and how many of each it has.
        variants: what was looked for.
        found: [m, 5] int64, of each of these documents, in order, the text of which it has most, see `Shared`.
        texts_of: [m] int64, of how many texts each of these documents has n-grams.
        most: of each text that is found, by its number, the document that has most of it.
        documents_of: [texts] int64, how many documents have n-grams of each text.
    """

    corpus: str
    documents: int
    tokens: int
    variants: Variants
    found: np.ndarray
    texts_of: np.ndarray
    most: dict[int, Shared]
    documents_of: np.ndarray

    @property
    def worst(self) -> list[Shared]:
        """What is in `most`, beginning with the text of which most is found."""
        return sorted(self.most.values(), key=lambda each: (-each.overlap, -each.longest, each.text))


def read_texts(path: str, keys: Sequence[str] = ()) -> list[Named]:
    """The texts of a file: lines, or the field "text" of records of JSON Lines or Parquet; or those of other fields.

    A text is named by the field "id" of its record, if it has one, else by the record's number, from 0; of several fields by its
    field, too.
    """
    format = format_of([path])
    if format not in _FORMATS:
        raise ValueError(
            f"--texts must be a file of text, JSON Lines, Parquet or Arrow, got {path!r}. Write its texts as JSON Lines."
        )
    if not exists(path):
        raise ValueError(f"--texts must be a file, got {path!r}, which does not exist. Name another file.")
    if format == "text" and keys:
        raise ValueError(f"--field must be left out with lines of text, got {keys[0]!r} for {path!r}. Leave it out.")
    segment, documents = Shard(path), "line" if format == "text" else None
    found: list[tuple[int, int, Named]] = []
    for order, key in enumerate(dict.fromkeys(keys or ("text",))):
        for number, record in enumerate(read(segment, Layout(format, documents, key))):
            if problem := record.problem or (record.is_ids and f"{record.where}: is ids of tokens"):
                raise ValueError(f"--texts must have a text in each record, but {problem}. Pass --field, or fix the file.")
            found.append((number, order, Named(_name(record, number, key, keys), record.text.decode())))
    if not found:
        raise ValueError(f"--texts must have a text, got {path!r}, which has none. Name another file.")
    return [named for _, _, named in sorted(found, key=lambda each: each[:2])]


def _name(record: Record, number: int, key: str, keys: Sequence[str]) -> str | int:
    name = record.id.decode(errors="replace") if record.id and "id" not in keys else number
    return f"{name}.{key}" if len(keys) > 1 else name


def variants_of(corpus: Corpus, texts: Sequence[str], n: int) -> Variants:
    """The variants of texts as they are looked for in a corpus, by n-grams."""
    least = min(LEAST, n)
    encoded = [_encoded(corpus, [space + text for text in texts]) for space in ("", " ")]
    tokens: list[np.ndarray] = []
    of: list[int] = []
    for number, pair in enumerate(zip(*encoded)):
        kept = {each[1:-1].tobytes(): each[1:-1] for each in pair if len(each) - 2 >= least}
        tokens += kept.values()
        of += [number] * len(kept)
    return Variants(Texts(tokens, n), np.array(of, np.int64), ~np.isin(np.arange(len(texts)), of))


def contamination(
    corpus: Corpus, store: TokenStore, variants: Variants, advance: Callable[[int], None] = lambda more: None
) -> Contamination:
    """Looks for texts in all documents of a corpus. `advance` is told of tokens looked through."""
    found, texts_of = [np.zeros([0, len(Shared._fields)], np.int64)], [np.zeros([0], np.int64)]
    documents_of, most = np.zeros(len(variants.too_short), np.int64), dict[int, Shared]()
    for overlaps in variants.texts.overlaps(store, advance):
        columns = overlaps.documents, variants.of[overlaps.texts], overlaps.ngrams, variants.texts.counts[overlaps.texts]
        shared = _most(np.stack([*columns, overlaps.longest], axis=1), by=(0, 1))
        found.append(_most(shared, by=(0,)))
        texts_of.append(np.unique(shared[:, 0], return_counts=True)[1])
        np.add.at(documents_of, shared[:, 1], 1)
        for row in _most(shared, by=(1,)).tolist():
            each = Shared(*row)
            held = most.setdefault(each.text, each)
            most[each.text] = max(held, each, key=lambda one: (one.overlap, one.longest))
    of_all = np.concatenate(found), np.concatenate(texts_of)
    return Contamination(corpus.name, store.documents, store.tokens, variants, *of_all, most, documents_of)


def _most(shared: np.ndarray, by: tuple[int, ...]) -> np.ndarray:
    """Of rows with the same values in some columns the one with the greatest overlap; of equal ones the longest run, the first."""
    first_last = -np.arange(len(shared))
    order = np.lexsort((first_last, shared[:, 4], shared[:, 2] / shared[:, 3], *(shared[:, column] for column in reversed(by))))
    ordered = shared[order]
    differs = (np.diff(ordered[:, by], axis=0) != 0).any(axis=1)
    return ordered[np.append(differs, np.ones(min(1, len(ordered)), bool))]


def _encoded(corpus: Corpus, texts: Sequence[str]) -> list[np.ndarray]:
    """The ids of each text, as the vocabulary has them."""
    tokens, lengths = encode_batch(corpus.tokenizer, [text.encode() for text in texts])
    return np.split(tokens, np.cumsum(lengths)[:-1])


@dataclasses.dataclass(frozen=True)
class Searched:
    """What is found of the texts of a file: the file, its texts, how many tokens in a row were looked for, and each corpus."""

    path: str
    named: Sequence[Named]
    n: int
    corpora: Sequence[Contamination]

    def as_plain(self) -> Iterator[dict[str, object]]:
        """What JSON has of it, a line for each text that is found, beginning with that of which most is."""
        for of_corpus in self.corpora:
            for shared in of_corpus.worst:
                of_text = {"text": self.named[shared.text].name, "overlap": round(shared.overlap, 6), "longest": shared.longest}
                documents = int(of_corpus.documents_of[shared.text])
                yield {"corpus": of_corpus.corpus, **of_text, "documents": documents, "document": shared.document}


def find_texts(run: Run, path: str, *, keys: Sequence[str] = (), n: int = 13, output: str | None = None) -> Searched:
    """Finds which texts of a file are in the corpora of a run, and writes the documents that have some to a file of JSON Lines."""
    if output:
        check_folder_of(output)
    named = read_texts(path, keys)
    found = Searched(path, named, n, [_look(corpus, store, named, n) for corpus, store in stores(run.examples()).values()])
    if output:
        write_atomically(output, "".join(line for of_corpus in found.corpora for line in _lines(of_corpus, named, n, path)))
    return found


def print_searched(found: Searched, console: Console, count: int) -> None:
    """Prints the texts of which most is found, `count` of each corpus."""
    for of_corpus in found.corpora:
        _print(console, of_corpus, found.named, found.n, found.path, count)


def _look(corpus: Corpus, store: TokenStore, named: Sequence[Named], n: int) -> Contamination:
    variants = variants_of(corpus, [each.text for each in named], n)
    with bars() as progress:
        bar = progress.add_task(f"{corpus.name}: {store.tokens:,} tokens", total=store.tokens)
        return contamination(corpus, store, variants, functools.partial(progress.advance, bar))


def _lines(found: Contamination, named: Sequence[Named], n: int, path: str) -> Iterator[str]:
    """A line of JSON for each document, which names it as lists of documents do."""
    for row, texts in zip(found.found.tolist(), found.texts_of.tolist()):
        shared = Shared(*row)
        name = named[shared.text].name
        others = f", and some of {texts - 1:,} other text{'s' if texts > 2 else ''}" if texts > 1 else ""
        what = f"{shared.ngrams} of {shared.of} {n}-grams of" if shared.of > 1 else "all of"
        of_line = {
            "corpus": found.corpus,
            "document": shared.document,
            "text": name,
            "overlap": round(shared.overlap, 6),
            "longest": shared.longest,
            "reason": f"has {what} text {name} of {path}{others}",
        }
        yield json.dumps(of_line, ensure_ascii=False) + "\n"


def _print(console: Console, found: Contamination, named: Sequence[Named], n: int, path: str, count: int) -> None:
    texts, documents, worst = len(named), len(found.found), found.worst
    share = percent(documents / found.documents, 2, APART)
    text = Text.assemble((f"{len(worst):,} of {texts:,} texts", "bold"), f" are in {documents:,} documents of {found.corpus}")
    console.print(text.append(f", {share} of its {found.documents:,}"))
    too_short, whole = int(found.variants.too_short.sum()), found.variants.whole
    by = [f"{texts - whole - too_short:,} texts by {n}-grams of tokens"] + ([f"{whole:,} short ones whole"] if whole else [])
    console.print(Text(f"looked for {' and '.join(by)} in {found.tokens:,} tokens", "dim"))
    if too_short:
        least = min(LEAST, n)
        console.print(Text(f"not looked for, because they have fewer than {least + 2} tokens: {too_short:,}"))
    if not worst:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("text", overflow="fold")
    for column in ("overlap", "longest run", "documents", "document"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("begins with", no_wrap=True, overflow="ellipsis")
    for shared in worst[:count]:
        name, begins = named[shared.text].name, " ".join(named[shared.text].text[: 4 * _SHOWN].split())[:_SHOWN]
        numbers = percent(shared.overlap, unit=APART), f"{shared.longest:,}", f"{found.documents_of[shared.text]:,}"
        table.add_row(Text(visible(str(name))), *numbers, f"{shared.document}", Text(visible(begins)))
    console.print(table)
    if len(worst) > count:
        console.print(Text(f"these are the {count} texts of which most is found (--count)", "dim"))
