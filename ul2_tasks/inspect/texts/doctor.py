"""`ul2 doctor`: looks for problems in the installation, a vocabulary, a corpus and its lengths, and says what mends each."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.inspect.findings import Finding, each_once, examine_installation, examine_vocabulary, first_words, left_out
from ul2_tasks.inspect.tasks import other_tasks, text_tasks
from ul2_tasks.mixtures.advice import lone_span
from ul2_tasks.mixtures.mixture import DescribedTask
from ul2_tasks.sources.megatron import MegatronSource
from ul2_tasks.sources.records import Record

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

_DOCUMENTS = 128  # of files of tokens


def examine(
    mixture: Description | Mix, sequence_length: Mapping[str, int], split: str = "train", documents: int = 1000
) -> list[Finding]:
    """Looks at a description. A finding that several tasks or corpora share is given once, with all of their names."""
    tasks = text_tasks(mixture)
    corpora = {task.corpus.name: task.corpus for task in tasks}
    findings = [*examine_installation()]
    if others := other_tasks(mixture):
        found = f"not looked at, because they are not text: {', '.join(others)}"
        findings.append(Finding("note", "mixture", found))
    for name, corpus in corpora.items():
        findings += examine_vocabulary([task for task in tasks if task.corpus.name == name], corpus)
        findings += examine_corpus(corpus, split, documents)
    return each_once([*findings, *examine_lengths(tasks, sequence_length)])


def examine_corpus(corpus: Corpus, split: str, documents: int) -> Iterator[Finding]:
    """Looks at the splits, the shards and the first documents of a corpus."""
    return (dataclasses.replace(finding, concerns=(corpus.name,)) for finding in _examine_corpus(corpus, split, documents))


def _examine_corpus(corpus: Corpus, split: str, documents: int) -> Iterator[Finding]:
    source = corpus.source
    if isinstance(source, MegatronSource):
        yield from _examine_tokens_in_files(corpus, source, split)
        return
    if split not in source.splits:
        yield Finding("problem", "corpus", f"split must be one of {sorted(source.splits)}, got {split!r}", "name another split")
        return
    try:
        shards = {name: len(source.list_shards(name)) for name in source.splits}
        records = itertools.chain.from_iterable(map(source.read, source.shards(split)))
        read = list(itertools.islice(records, documents))
    except (ValueError, ImportError) as error:
        yield Finding("problem", "corpus", str(error))
        return
    except OSError as error:
        yield Finding("problem", "corpus", first_words(error), "fix it, or name other files")
        return
    counts = ", ".join(f"{name} of {count:,}" for name, count in shards.items())
    yield Finding("ok", "corpus", f"{source!r}, splits {', '.join(source.splits)}; shards: {counts}")
    if single := [name for name, count in shards.items() if count < 2]:
        found = f"a single shard, which all denoisers read from its start: split {', '.join(single)}"
        yield Finding("note", "corpus", found, "more files, or a cache (ul2 cache)")
    if not read:
        yield Finding("problem", "corpus", f"there is no document in split {split}", "name other files, or another split")
        return
    yield from _examine_documents(corpus, read)


def _examine_tokens_in_files(corpus: Corpus, source: MegatronSource, split: str) -> Iterator[Finding]:
    vocabulary = corpus.vocabulary
    try:
        store = corpus.stored(split)
        tokens, lengths = store.read_documents(np.arange(min(_DOCUMENTS, store.documents)))
    except (ValueError, OSError) as error:
        yield Finding("problem", "corpus", str(error), "name other files, or the vocabulary that they were made with")
        return
    held = source.store(split)
    counts = f"{held.documents:,} documents, {held.tokens:,} tokens in {len(store.prefixes)} pairs of files"
    yield Finding("ok", "corpus", f"{source!r}, splits {', '.join(source.splits)}; {split}: {counts}, read in place")
    ends = "the EOD at the end of each document is taken off" if store.end is not None else "no EOD is taken off the documents"
    beginning = vocabulary.decode(tokens[: min(40, lengths[0])].tolist())[:80]
    yield Finding("ok", "corpus", f"{ends}; the first begins {beginning!r}")
    lengths = np.sort(lengths)
    yield Finding("ok", "corpus", f"tokens per document: {lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}")


def _examine_documents(corpus: Corpus, read: list[Record]) -> Iterator[Finding]:
    skip = corpus.configuration.on_error == "skip"
    problems = [record.problem for record in read if record.problem]
    texts = [record.text for record in read if record.text]
    counts = f"{len(read)} documents looked at: {len(texts)} with text, {len(read) - len(texts) - len(problems)} empty"
    if not texts:
        remedy = "name other files, or another field (--text_key)"
        first = f", the first: {problems[0]}" if problems else ""
        yield Finding("problem", "corpus", f"{counts}, {len(problems)} bad{first}", remedy)
        return
    if problems:
        kind, remedy = left_out(skip, "fix them, or --on_error skip (on_error='skip')")
        yield Finding(kind, "corpus", f"{len(problems)} of {len(read)} records are bad, the first: {problems[0]}", remedy)
    yield Finding("ok", "corpus", f"{counts}, {len(problems)} bad; the first begins {texts[0][:80].decode(errors='replace')!r}")
    yield from _examine_tokens(corpus, [text.decode(errors="replace") for text in texts[:100]])


def _examine_tokens(corpus: Corpus, texts: list[str]) -> Iterator[Finding]:
    try:
        encode = corpus.tokenizer.encode
    except ValueError:
        return  # `examine_vocabulary` gives this problem
    lengths = sorted(len(encode(text)) for text in texts)
    yield Finding("ok", "corpus", f"tokens per document: {lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}")


def examine_lengths(tasks: Iterable[DescribedTask], sequence_length: Mapping[str, int]) -> Iterator[Finding]:
    """Looks at what each denoiser does within the budgets."""
    lengths = {}
    for task in tasks:
        try:
            task.special_tokens()
        except ValueError:
            continue  # `examine_vocabulary` gives this problem
        try:
            full = task.solve(sequence_length).full
        except ValueError as error:
            yield Finding("problem", "lengths", str(error), concerns=(task.name,))
            continue
        lengths[task.name] = full.length
        if lone := lone_span(task.denoiser, full, sequence_length):
            yield Finding("note", "lengths", *lone, concerns=(task.name,))
    if lengths:
        chunks = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        budgets = f"inputs of {sequence_length['inputs']:,}, targets of {sequence_length['targets']:,}"
        yield Finding("ok", "lengths", f"{budgets}; tokens of a full-length chunk: {chunks}; see ul2 lengths")
