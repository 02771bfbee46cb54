"""`ul2 doctor`: whether the installation, a vocabulary, a corpus and its lengths will do, each problem with what mends it."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata

import seqio
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.corpora import text_tokenizer
from ul2_tasks.lengths import sentinels_needed
from ul2_tasks.providers import DenoisingTask
from ul2_tasks.vocabularies import piece_names

SAMPLE = "Plain English; naïve café; Ελληνικά, русский, 中文和日本語, שלום, مرحبا, हिन्दी; 1+1=2 \U0001f642"
_PACKAGES = {
    "seqio": "",
    "tensorflow": "",
    "tensorflow-text": "",
    "sentencepiece": "",
    "protobuf": "",
    "apache-beam": "to write caches: pip install 'ul2_tasks[cache]'",
    "datasets": "for hf: corpora: pip install 'ul2_tasks[huggingface]'",
    "tokenizers": "for tokenizer.json: pip install 'ul2_tasks[huggingface]'",
    "t5": "for the benchmarks and T5's own tasks: pip install 'ul2_tasks[t5]'",
    "t5x": "to train: a checkout of it on PYTHONPATH, see the README",
}
_MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "problem": "[bold red]problem[/]"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that was looked at: `kind` is "ok", "note" or "problem", which comes with what mends it."""

    kind: str
    about: str
    what: str
    remedy: str = ""


def examine(mixture: str, sequence_length: Mapping[str, int], split: str = "train", documents: int = 1000) -> Iterator[Finding]:
    """All findings about a registered mixture, one after the other, as they are found.

    Args:
        mixture: its name, such as "ul2_mix".
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        split: the split whose documents are looked at.
        documents: how many of them.
    """
    tasks = seqio.MixtureRegistry.get(mixture).tasks
    yield from examine_installation()
    yield from examine_vocabulary(tasks)
    yield from examine_corpus(tasks[0].source.corpus, split, documents)
    yield from examine_lengths(tasks, sequence_length)


def examine_installation() -> Iterator[Finding]:
    """Versions, and what clashes with what."""
    versions = {name: _version(name) for name in _PACKAGES}
    found = ", ".join(f"{name} {version}" for name, version in {"Python": platform.python_version(), **versions}.items() if version)
    yield Finding("ok", "installation", found)
    for name, purpose in _PACKAGES.items():
        if not versions[name]:
            yield Finding("note", "installation", f"{name} is not installed", purpose)
    if seqio.__version__ != versions["seqio"]:
        yield Finding(
            "problem",
            "installation",
            f"seqio {versions['seqio']} is installed, but {seqio.__version__} is what is imported, from {seqio.__file__}",
            "pip install --force-reinstall --no-deps seqio: seqio-nightly, which t5 brings, wrote over it",
        )
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    for line in check.stdout.splitlines() if check.returncode else ():
        yield Finding("problem", "installation", line, "pip install what it asks for, best all extras in one command")


def examine_vocabulary(tasks: Iterable[DenoisingTask]) -> Iterator[Finding]:
    """Special ids, and the way of a text to ids and back."""
    problems = 0
    for task in tasks:
        vocabulary = task.output_features["targets"].vocabulary
        try:
            special = task.special_tokens()
        except ValueError as error:
            problems += 1
            yield Finding("problem", f"vocabulary, {task.name}", str(error), "as it says")
            continue
        ends = piece_names(vocabulary, [special.sentinels[0], special.sentinels[-1]]) if special.sentinels else ["none"] * 2
        mode = f"mode {task.denoiser.mode} is {' '.join(map(str, special.mode))}" if special.mode else "no mode"
        yield Finding("ok", f"vocabulary, {task.name}", f"{mode}; {len(special.sentinels)} sentinels, {ends[0]} .. {ends[1]}")
    ids = f"{vocabulary.vocab_size} ids; padding 0, EOS {vocabulary.eos_id}, unknown {vocabulary.unk_id}"
    yield Finding("ok", "vocabulary", f"{type(vocabulary).__name__}, {ids}")
    if not problems:
        yield from _examine_round_trip(vocabulary, text_tokenizer(task.source.corpus))


def _examine_round_trip(vocabulary: seqio.Vocabulary, tokenizer: seqio.Vocabulary) -> Iterator[Finding]:
    ids = list(tokenizer.encode(SAMPLE))
    unknown, back = ids.count(vocabulary.unk_id), vocabulary.decode(ids)
    yield Finding("ok", "vocabulary", f"a sample of {len(SAMPLE)} characters of many scripts is {len(ids)} tokens")
    if unknown:
        yield Finding(
            "note", "vocabulary", f"{unknown} of these are unknown", "train a vocabulary with byte fallback: ul2 vocab train"
        )
    if back != SAMPLE:
        yield Finding("note", "vocabulary", f"tokens do not give the text back: {back!r}", "normalization, or unknown characters")


def examine_corpus(corpus: seqio.Task, split: str, documents: int) -> Iterator[Finding]:
    """Splits, shards, and the first documents, with what is wrong with them."""
    source = corpus.source
    try:
        yield Finding("ok", "corpus", f"{source!r}, splits {', '.join(source.splits)}")
        for name in source.splits:
            count = len(source.list_shards(name))
            yield Finding("ok", "corpus", f"split {name}: pieces to share out: {count}")
            if count < 2:
                yield Finding(
                    "note", "corpus", f"split {name} is read from one end to the other by all denoisers", "use more files"
                )
        read = list(itertools.islice(source.get_dataset(split, shuffle=False).as_numpy_iterator(), documents))
    except (OSError, ValueError, ImportError, tf.errors.OpError) as error:
        message = error.message if isinstance(error, tf.errors.OpError) else str(error)
        yield Finding("problem", "corpus", message.split("\nTraceback")[0], "mend it, or name other files")
        return
    if not read:
        yield Finding("problem", "corpus", f"there is no document in split {split}", "name other files, or another split")
        return
    yield from _examine_documents(corpus, read)


def _examine_documents(corpus: seqio.Task, read: list) -> Iterator[Finding]:
    reader = corpus.preprocessors[0].keywords
    problems = [document["problem"].decode() for document in read if isinstance(document, Mapping) and document.get("problem")]
    texts = [document[reader["text_key"]] if isinstance(document, Mapping) else document for document in read]
    texts = [text for text in texts if text]
    remedy = "they are left out and counted" if reader["on_error"] == "skip" else "mend them, or register with on_error='skip'"
    for problem in problems[:5]:
        yield Finding("note" if reader["on_error"] == "skip" else "problem", "corpus", problem, remedy)
    empty = len(read) - len(texts) - len(problems)
    counts = f"{len(read)} documents looked at: {len(texts)} with text, {empty} empty, {len(problems)} bad"
    yield Finding("ok" if texts else "problem", "corpus", counts, "" if texts else "name other files")
    if texts:
        yield Finding("ok", "corpus", f"the first begins {texts[0][:80].decode(errors='replace')!r}")
        yield from _examine_tokens(corpus, [text.decode(errors="replace") for text in texts[:100]])


def _examine_tokens(corpus: seqio.Task, texts: list[str]) -> Iterator[Finding]:
    try:
        encode = text_tokenizer(corpus).encode
    except ValueError:
        return  # the vocabulary's problem, which is told there
    lengths = sorted(len(encode(text)) for text in texts)
    yield Finding("ok", "corpus", f"tokens a document: {lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}")


def examine_lengths(tasks: Iterable[DenoisingTask], sequence_length: Mapping[str, int]) -> Iterator[Finding]:
    """What each denoiser does within the budgets, or why it cannot."""
    for task in tasks:
        about = f"lengths, {task.name}"
        try:
            special = task.special_tokens()
            full = task.full_chunk(sequence_length)
        except ValueError as error:
            yield Finding("problem", about, str(error), "as it says")
            continue
        fill = [f"{full.inputs / sequence_length['inputs']:.0%}", f"{full.targets / sequence_length['targets']:.0%}"]
        yield Finding(
            "ok",
            about,
            f"chunks of {full.length} tokens, {full.noise} of them noise, spans {full.spans}; inputs {full.inputs}, targets"
            f" {full.targets} ({fill[0]} and {fill[1]} of the budgets); sentinels {sentinels_needed(task.denoiser, full.length)} of"
            f" {len(special.sentinels)}",
        )


def report(findings: Iterable[Finding], console: Console) -> int:
    """Prints findings as a table; returns how many are problems."""
    table = Table(show_lines=True)
    for column in ("", "about", "found", "what to do"):
        table.add_column(column, overflow="fold")
    problems = 0
    for finding in findings:
        problems += finding.kind == "problem"
        table.add_row(_MARKS[finding.kind], Text(finding.about), Text(finding.what), Text(finding.remedy))
    console.print(table)
    console.print({0: "no problem", 1: "1 problem"}.get(problems, f"{problems} problems"), style="bold")
    return problems


def _version(package: str) -> str | None:
    if package == "t5x":  # in no registry
        return "on the path" if importlib.util.find_spec("t5x") else None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
