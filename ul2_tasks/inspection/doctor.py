"""`ul2 doctor`: looks for problems in the installation, a vocabulary, a corpus and its lengths, and says what mends each."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import itertools
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata

import numpy as np
import seqio
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.corpus.view import CorpusTask
from ul2_tasks.sources.file_source import FileSource
from ul2_tasks.sources.megatron import MegatronSource
from ul2_tasks.sources.records import PROBLEM
from ul2_tasks.sources.survey import in_words, ways
from ul2_tasks.tasks.advice import lone_span
from ul2_tasks.tasks.pictures import PicturesTask
from ul2_tasks.tasks.providers import DenoisingTask, denoising_tasks, other_tasks
from ul2_tasks.vocabulary.special_ids import SpecialTokens, embedding_rows, id_shift, own_size, piece_names, what_is_lost

SAMPLE = "Plain English; naïve café; Ελληνικά, русский, 中文和日本語, שלום, مرحبا, हिन्दी; 1+1=2 \U0001f642"
_PACKAGES = {
    "seqio": "",
    "tensorflow": "",
    "tensorflow-text": "",
    "sentencepiece": "",
    "protobuf": "",
    "apache-beam": "to write caches, pip install 'ul2_tasks[cache]'",
    "datasets": "for hf: corpora, pip install 'ul2_tasks[huggingface]'",
    "tokenizers": "for tokenizer.json, pip install 'ul2_tasks[huggingface]'",
    "t5": "for the benchmarks and T5's own tasks, pip install 'ul2_tasks[t5]'",
    "t5x": "to train, a checkout of it on PYTHONPATH, see the README",
}
_STYLES = {"problem": "bold red", "note": "yellow", "ok": "green"}  # in the order in which they are printed
_CONCERNED_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was found when one thing was looked at.

    Attributes:
        kind: "ok", "note" or "problem".
        about: "installation", "mixture", "vocabulary", "corpus" or "lengths".
        what: what was found.
        remedy: what mends it; empty where `what` says so, or where nothing needs mending.
        concerns: the names of the tasks that it is about, or of the corpus; none if it is about all.
    """

    kind: str
    about: str
    what: str
    remedy: str = ""
    concerns: tuple[str, ...] = ()


def examine(mixture: str, sequence_length: Mapping[str, int], split: str = "train", documents: int = 1000) -> list[Finding]:
    """Looks at a registered mixture. A finding that several tasks or corpora share is given once, with all of their names.

    Args:
        mixture: its name, such as "ul2_mix".
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        split: the split whose documents are looked at.
        documents: how many documents of each corpus are looked at.

    Raises:
        ValueError: it has no task that `register` made.
    """
    tasks = denoising_tasks(mixture)
    corpora = {task.source.corpus.name: task.source.corpus for task in tasks}
    findings = [*examine_installation()]
    if others := [task.name for task in other_tasks(mixture)]:
        found = f"not looked at, because ul2_tasks.register did not make them: {', '.join(others)}"
        findings.append(Finding("note", "mixture", found))
    for name, corpus in corpora.items():
        findings += examine_vocabulary([task for task in tasks if task.source.corpus.name == name], corpus)
        findings += examine_corpus(corpus, split, documents)
    return each_once([*findings, *examine_lengths(tasks, sequence_length)])


def each_once(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those that say the same as one, of all that they concern."""
    merged: dict[Finding, list[str]] = {}
    for finding in findings:
        merged.setdefault(dataclasses.replace(finding, concerns=()), []).extend(finding.concerns)
    return [dataclasses.replace(finding, concerns=tuple(concerns)) for finding, concerns in merged.items()]


def examine_installation() -> Iterator[Finding]:
    """Looks at the versions of the packages, and at what clashes with what."""
    versions = {name: _version(name) for name in _PACKAGES}
    found = ", ".join(f"{name} {version}" for name, version in {"Python": platform.python_version(), **versions}.items() if version)
    yield Finding("ok", "installation", found)
    if missing := [name for name in _PACKAGES if not versions[name]]:
        yield Finding(
            "note", "installation", f"not installed: {', '.join(missing)}", "; ".join(_PACKAGES[name] for name in missing)
        )
    if seqio.__version__ != versions["seqio"]:
        yield Finding(
            "problem",
            "installation",
            f"seqio {versions['seqio']} is installed, but {seqio.__version__} is what is imported, from {seqio.__file__}",
            "pip install --force-reinstall --no-deps seqio: seqio-nightly, which t5 brings, wrote over it",
        )
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    if check.returncode and check.stdout.strip():
        remedy = "pip install what it asks for, best all extras in one command"
        yield Finding("problem", "installation", "; ".join(check.stdout.splitlines()), remedy)


def examine_vocabulary(tasks: Iterable[DenoisingTask | PicturesTask], corpus: CorpusTask) -> Iterator[Finding]:
    """Looks at the special ids, and at the way of a text to ids and back.

    Args:
        tasks: of one corpus.
        corpus: theirs.
    """
    modes: dict[str, tuple[int, ...]] = {}
    special: SpecialTokens | None = None
    problems = 0
    for task in tasks:
        vocabulary = task.output_features["targets"].vocabulary
        try:
            special = task.special_tokens()
        except ValueError as error:
            problems += 1
            yield Finding("problem", "vocabulary", str(error), concerns=(task.name,))
            continue
        if task.denoiser.mode is not None:
            modes[task.denoiser.mode] = special.mode
    if special and not problems:
        yield Finding("ok", "vocabulary", _describe_vocabulary(vocabulary, special, modes))
        yield from _examine_embedding(vocabulary, {*special.sentinels, *itertools.chain(*modes.values())})
        yield from _examine_round_trip(corpus.tokenizer)


def _describe_vocabulary(vocabulary: seqio.Vocabulary, special: SpecialTokens, modes: Mapping[str, tuple[int, ...]]) -> str:
    shift = id_shift(vocabulary)
    eos, unknown = (None if id is None else id - shift for id in (vocabulary.eos_id, vocabulary.unk_id))
    ids = f"{vocabulary.vocab_size - shift} ids; {'' if shift else 'padding 0, '}EOS {eos}, unknown {unknown}"
    in_seqio = f"; within SeqIO and t5x all ids are {shift} higher, and 0 is padding" if shift else ""
    ends = " .. ".join(piece_names(vocabulary, [special.sentinels[0], special.sentinels[-1]])) if special.sentinels else "none"
    named = ", ".join(f"{mode} {' '.join(str(id - shift) for id in ids)}" for mode, ids in modes.items()) or "none"
    return f"{type(vocabulary).__name__}, {ids}{in_seqio}; {len(special.sentinels)} sentinels, {ends}; modes: {named}"


def _examine_embedding(vocabulary: seqio.Vocabulary, special_ids: set[int]) -> Iterator[Finding]:
    own = own_size(vocabulary)
    if beyond := [id for id in special_ids if id >= own]:
        shift, rows = id_shift(vocabulary), embedding_rows(vocabulary)
        found = (
            f"{len(beyond)} sentinels and modes have the tokenizer's ids {min(beyond) - shift} to {max(beyond) - shift}, beyond the"
            f" {own - shift} that it has itself: a model needs an embedding of {rows} rows"
        )
        remedy = f"where it has fewer, model.resize_token_embeddings({rows}); or sentinels and modes that the tokenizer has"
        yield Finding("note", "vocabulary", found, remedy)


def _examine_round_trip(tokenizer: seqio.Vocabulary) -> Iterator[Finding]:
    ids = list(tokenizer.encode(SAMPLE))
    remedy = "ul2 vocab train: its vocabularies keep a text as it is"
    yield Finding("ok", "vocabulary", f"a sample of {len(SAMPLE)} characters of many scripts is {len(ids)} tokens")
    if unknown := ids.count(tokenizer.unk_id):
        yield Finding("note", "vocabulary", f"{unknown} of {len(ids)} tokens of a sample of many scripts are unknown", remedy)
    if lost := what_is_lost(tokenizer):
        yield Finding("note", "vocabulary", f"tokens do not give all of a text back: {'; '.join(lost)}", remedy)


def examine_corpus(corpus: CorpusTask, split: str, documents: int) -> Iterator[Finding]:
    """Looks at the splits, the shards and the first documents of a corpus."""
    return (dataclasses.replace(finding, concerns=(corpus.name,)) for finding in _examine_corpus(corpus, split, documents))


def _examine_corpus(corpus: CorpusTask, split: str, documents: int) -> Iterator[Finding]:
    source = corpus.source
    if isinstance(source, MegatronSource):
        yield from _examine_tokens_in_files(corpus, source, split)
        return
    try:
        shards = {name: len(source.list_shards(name)) for name in source.splits}
        read = list(itertools.islice(source.get_dataset(split, shuffle=False).as_numpy_iterator(), documents))
    except (ValueError, ImportError) as error:
        yield Finding("problem", "corpus", str(error))
        return
    except (OSError, tf.errors.OpError) as error:
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        yield Finding("problem", "corpus", message.split("\nTraceback")[0], "mend it, or name other files")
        return
    counts = ", ".join(f"{name} of {count:,}" for name, count in shards.items())
    yield Finding("ok", "corpus", f"{source!r}, splits {', '.join(source.splits)}; shards to share out: {counts}")
    if single := [name for name, count in shards.items() if count < 2]:
        found = f"a single shard, which all denoisers read from its start: split {', '.join(single)}"
        yield Finding("note", "corpus", found, "more files, or a cache (ul2 cache)")
    if not read:
        yield Finding("problem", "corpus", f"there is no document in split {split}", "name other files, or another split")
        return
    yield from _examine_documents(corpus, split, read)


def _examine_tokens_in_files(corpus: CorpusTask, source: MegatronSource, split: str) -> Iterator[Finding]:
    vocabulary = corpus.output_features["targets"].vocabulary
    try:
        store = corpus.stored(split)
        first = next(iter(corpus.batches(split, shuffle=False, seed=None, shard_info=None)))["targets"]
    except (ValueError, OSError, tf.errors.OpError) as error:
        yield Finding("problem", "corpus", str(error), "name other files, or the vocabulary that they were made with")
        return
    held = source.store(split)
    counts = f"{held.documents:,} documents, {held.tokens:,} tokens in {len(store.prefixes)} pairs of files"
    yield Finding("ok", "corpus", f"{source!r}, splits {', '.join(source.splits)}; {split}: {counts}, read where they lie")
    ends = "the EOD at the end of each document is taken off" if store.has_ends else "no EOD is taken off the documents"
    beginning = vocabulary.decode(first[0][:40].numpy().tolist())[:80]
    yield Finding("ok", "corpus", f"{ends}; the first begins {beginning!r}")
    lengths = np.sort(first.row_lengths().numpy())
    yield Finding("ok", "corpus", f"tokens a document: {lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}")


def _examine_documents(corpus: CorpusTask, split: str, read: list) -> Iterator[Finding]:
    text_key, skip = corpus.configuration.text_key, corpus.configuration.on_error == "skip"
    documents = [document if isinstance(document, Mapping) else {text_key: document} for document in read]
    if text_key not in documents[0]:
        yield Finding(
            "problem", "corpus", f"the source has no feature {text_key!r}, it has {sorted(documents[0])}", "give text_key"
        )
        return
    problems = [document[PROBLEM].decode() for document in documents if document.get(PROBLEM)]
    texts = [document[text_key] for document in documents if document[text_key]]
    counts = f"{len(read)} documents looked at: {len(texts)} with text, {len(read) - len(texts) - len(problems)} empty"
    if not texts:
        remedy = "name other files, or another field (--text_key)"
        first = f", the first: {problems[0]}" if problems else ""
        yield Finding("problem", "corpus", f"{counts}, {len(problems)} bad{first}", remedy)
        return
    if problems:
        kind, remedy = (
            ("note", "they are left out and counted") if skip else ("problem", "mend them, or --on_error skip (on_error='skip')")
        )
        yield Finding(kind, "corpus", f"{len(problems)} of {len(read)} records are bad, the first: {problems[0]}", remedy)
    yield Finding("ok", "corpus", f"{counts}, {len(problems)} bad; the first begins {texts[0][:80].decode(errors='replace')!r}")
    yield from _examine_tokens(corpus, [text.decode(errors="replace") for text in texts[:100]])
    yield from _examine_choice(corpus.source, split)


def _examine_tokens(corpus: CorpusTask, texts: list[str]) -> Iterator[Finding]:
    try:
        encode = corpus.tokenizer.encode
    except ValueError:
        return  # `examine_vocabulary` gives this problem
    lengths = sorted(len(encode(text)) for text in texts)
    yield Finding("ok", "corpus", f"tokens a document: {lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}")


def _examine_choice(source: seqio.DataSource, split: str) -> Iterator[Finding]:
    """Looks whether the lines, paragraphs or files of a text are documents."""
    if hasattr(source, "source"):
        source, split = source.source, "train"  # the source that is split by hash
    if not isinstance(source, FileSource) or (chosen := source.layout(split).documents) is None:
        return
    paths = source.files(split)
    seen = ways(paths)[chosen]
    doubts = {
        f"{seen.blank:,} are blank": seen.blank > seen.documents / 5,
        f"{seen.mid_sentence:,} end in mid-sentence": seen.mid_sentence > seen.documents / 4,
        f"the median is {seen.median_tokens} tokens": seen.median_tokens < 8,
    }
    if any(doubts.values()):
        found = ", ".join(doubt for doubt, holds in doubts.items() if holds)
        yield Finding(
            "note",
            "corpus",
            f"a {chosen} may not be a document: of {seen.documents:,}, {found}",
            f"see whether another choice of documents (--documents) fits: {in_words(paths)}",
        )


def examine_lengths(tasks: Iterable[DenoisingTask], sequence_length: Mapping[str, int]) -> Iterator[Finding]:
    """Looks at what each denoiser does within the budgets."""
    lengths = {}
    for task in tasks:
        try:
            task.special_tokens()
        except ValueError:
            continue  # `examine_vocabulary` gives this problem
        try:
            full = task.full_chunk(sequence_length)
        except ValueError as error:
            yield Finding("problem", "lengths", str(error), concerns=(task.name,))
            continue
        lengths[task.name] = full.length
        if lone := lone_span(task.denoiser, full, sequence_length):
            yield Finding("note", "lengths", *lone, concerns=(task.name,))
    if lengths:
        chunks = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        budgets = f"inputs of {sequence_length['inputs']:,}, targets of {sequence_length['targets']:,}"
        yield Finding("ok", "lengths", f"{budgets}; full chunks, in tokens: {chunks}; ul2 lengths tells more")


def report(findings: Sequence[Finding], console: Console) -> None:
    """Prints findings: first problems and notes, then in few lines what is fine, and at the end the problems again."""
    by_kind = {kind: [finding for finding in findings if finding.kind == kind] for kind in _STYLES}
    for finding in by_kind["problem"] + by_kind["note"]:
        remedy = f"\nwhat to do: {finding.remedy}" if finding.remedy else ""
        console.print(_row(finding.kind, finding, f"{finding.what}{remedy}"))
    for (about, concerns), group in _grouped(by_kind["ok"]).items():
        console.print(_row("ok", Finding("ok", about, "", concerns=concerns), "; ".join(finding.what for finding in group)))
    problems, notes = len(by_kind["problem"]), len(by_kind["note"])
    ending = ":" if problems else "."
    counts = [f"{count or 'no'} {what}{'' if count == 1 else 's'}" for count, what in ((problems, "problem"), (notes, "note"))]
    console.print(Text(f"{', '.join(counts)}{ending}", "bold"))
    for finding in by_kind["problem"]:
        console.print(_row("", finding, finding.what))


def _grouped(findings: Sequence[Finding]) -> dict[tuple[str, tuple[str, ...]], list[Finding]]:
    groups: dict[tuple[str, tuple[str, ...]], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.about, finding.concerns), []).append(finding)
    return groups


def _row(mark: str, finding: Finding, text: str) -> Table:
    more = len(finding.concerns) - _CONCERNED_SHOWN
    names = [*finding.concerns[:_CONCERNED_SHOWN], *([f"{more} more"] if more > 0 else [])]
    row = Table.grid(padding=(0, 1))
    row.add_column(width=len("problem"))
    row.add_column(overflow="fold")
    row.add_row(
        Text(mark, _STYLES.get(mark, "")),
        Text.assemble((finding.about, "bold"), f" ({', '.join(names)})" if names else "", f": {text}"),
    )
    return row


def _version(package: str) -> str | None:
    if package == "t5x":  # in no registry
        return "on the path" if importlib.util.find_spec("t5x") else None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
