"""`ul2 doctor`: looks for problems in the installation, and in the vocabulary, the records and the lengths of data of any kind."""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib.util
import itertools
import pathlib
import platform
import runpy
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.corpus.conversations import Chats, conversation_of
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.token_batches import tokenize_shards
from ul2_tasks.inspect.beginnings import RECORDS, Beginnings
from ul2_tasks.inspect.lengths import lengths_of_leaf, lenient, problems_of
from ul2_tasks.inspect.measure import WRONG
from ul2_tasks.inspect.printing import kinds_lost
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.description import special_tokens_of
from ul2_tasks.mixtures.image_text import ImageText, special_tokens_beside
from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokens, check_round_trip, embedding_rows

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

SAMPLE = "Plain English; naïve café; Ελληνικά, русский, 中文和日本語, שלום, مرحبا, हिन्दी; 1+1=2 \U0001f642"
_PACKAGES = {
    "seqio": "for SeqIO and t5x, pip install 'ul2_tasks[seqio]'",
    "tensorflow": "",
    "tensorflow-text": "",
    "sentencepiece": "",
    "protobuf": "",
    "apache-beam": "for --workers and --pipeline_option of ul2 cache and export, pip install 'ul2_tasks[beam]'",
    "datasets": "for hf: corpora, pip install 'ul2_tasks[huggingface]'",
    "tokenizers": "for tokenizer.json, pip install 'ul2_tasks[huggingface]'",
    "t5": "for the benchmarks and T5's own tasks, pip install 'ul2_tasks[t5]'",
    "t5x": "to train, a checkout of it on PYTHONPATH, see docs/guides/train_with_t5x.md",
}
_STYLES = {"problem": "bold red", "note": "yellow", "ok": "green"}  # in the order in which they are printed
_SHOWN = 8  # errors of records, and names that a finding concerns


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was found when one thing was looked at.

    Attributes:
        kind: "ok", "note" or "problem".
        about: "installation", "vocabulary", "corpus" or "lengths".
        what: what was found.
        remedy: what mends it; empty where `what` says so, or where nothing needs mending.
        concerns: the names of the corpora that it is about, or of the mixtures; none if it is about all.
    """

    kind: str
    about: str
    what: str
    remedy: str = ""
    concerns: tuple[str, ...] = ()


About = Callable[..., Finding]  # with what all findings of one thing have in common


def examine(description: Description | Mix, sequence_length: Mapping[str, int | None], split: str = "train") -> list[Finding]:
    """Looks at a description of any kind: a thousand records of each corpus, and the examples that they make.

    A finding that several corpora share is given once, with all of their names.
    """
    findings, beginnings = [*examine_installation()], Beginnings(split)
    if any(isinstance(leaf, ImageText) for leaf in description.leaves):
        findings += examine_image_packages()
    for leaf in description.leaves:
        findings += _examine(leaf, sequence_length, beginnings)
    return each_once(findings)


def _examine(leaf: Description, sequence_length: Mapping[str, int | None], beginnings: Beginnings) -> Iterator[Finding]:
    about = functools.partial(Finding, concerns=(leaf.corpus().name,))
    if (yield from examine_vocabulary(leaf, about)) and (yield from examine_corpus(leaf, beginnings.split, about)):
        yield from examine_lengths(leaf, sequence_length, beginnings)


def each_once(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those that say the same as one, of all that they concern."""
    merged: dict[Finding, list[str]] = {}
    for finding in findings:
        merged.setdefault(dataclasses.replace(finding, concerns=()), []).extend(finding.concerns)
    return [dataclasses.replace(finding, concerns=tuple(concerns)) for finding, concerns in merged.items()]


def print_findings(findings: Sequence[Finding], console: Console) -> None:
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
    more = len(finding.concerns) - _SHOWN
    names = [*finding.concerns[:_SHOWN], *([f"{more} more"] if more > 0 else [])]
    row = Table.grid(padding=(0, 1))
    row.add_column(width=len("problem"))
    row.add_column(overflow="fold")
    row.add_row(
        Text(mark, _STYLES.get(mark, "")),
        Text.assemble((finding.about, "bold"), f" ({', '.join(names)})" if names else "", f": {text}"),
    )
    return row


def examine_installation() -> Iterator[Finding]:
    """Looks at the versions of the packages, and at what clashes with what."""
    versions = {name: _version(name) for name in _PACKAGES}
    found = ", ".join(f"{name} {version}" for name, version in {"Python": platform.python_version(), **versions}.items() if version)
    yield Finding("ok", "installation", found)
    if missing := [name for name in _PACKAGES if not versions[name]]:
        remedy = "; ".join(filter(None, (_PACKAGES[name] for name in missing)))
        yield Finding("note", "installation", f"not installed: {', '.join(missing)}", remedy)
    imported, where = _version_of_seqio()
    if imported not in (None, versions["seqio"]):
        found = f"seqio {versions['seqio']} is installed, but {imported} is what is imported, from {where}"
        remedy = "pip install --force-reinstall --no-deps seqio: seqio-nightly, which t5 brings, wrote over it"
        yield Finding("problem", "installation", found, remedy)
    if clashes := list(_clashes()):
        remedy = "pip install what is asked for, best all extras in one command"
        yield Finding("problem", "installation", "; ".join(clashes), remedy)


def _version_of_seqio() -> tuple[str | None, str]:
    """What `import seqio` would bring, and from where, without importing it; None if it is not there."""
    spec = importlib.util.find_spec("seqio")
    if spec is None or spec.origin is None:
        return None, ""
    version = pathlib.Path(spec.origin).parent / "version.py"
    return runpy.run_path(str(version))["__version__"], spec.origin


def _clashes() -> Iterator[str]:
    """What this package, and what it brings or has extras for, ask for and is not there; other packages are `pip check`'s."""
    installed: dict[str, metadata.Distribution] = {}
    for found in metadata.distributions():  # the first of a name is the one that is imported
        if name := found.metadata["Name"]:
            installed.setdefault(canonicalize_name(name), found)
    ours = canonicalize_name("ul2_tasks")
    reached = [ours] if ours in installed else [*filter(installed.__contains__, map(canonicalize_name, _PACKAGES))]
    for name in reached:  # which grows
        distribution = installed[name]
        label = f"{distribution.metadata['Name']} {distribution.version}"
        for line in distribution.requires or []:
            try:
                asked = Requirement(line)
                needed = asked.marker is None or asked.marker.evaluate({"extra": ""})
                there = installed.get(name_of_asked := canonicalize_name(asked.name))
                fits = there is not None and asked.specifier.contains(there.version, prereleases=True)
            except (InvalidRequirement, InvalidVersion) as error:
                yield f"{label} asks for {line!r}: {error}"
                continue
            if there and (needed or name == ours) and name_of_asked not in reached:
                reached.append(name_of_asked)
            if needed and not fits:
                is_there = f"there is {there.version}" if there else "which is not installed"
                yield f"{label} asks for {asked.name}{asked.specifier}, {is_there}"


def examine_vocabulary(leaf: Description, about: About) -> Generator[Finding, None, bool]:
    """Looks at the special ids, and at the way of a text to ids and back. Returns whether it has all ids that it needs."""
    corpus, vocabulary = leaf.corpus(), leaf.vocabulary
    try:
        vocabulary.encode("a text")  # which opens a file that may not be there
        special = dict(_special_tokens(leaf))
    except (ValueError, ImportError, OSError) as error:
        yield about("problem", "vocabulary", str(error))
        return False
    renderer = [corpus.encoder.renderer.identity] if isinstance(leaf, Chat) else []
    yield about("ok", "vocabulary", "; ".join([*renderer, *_describe_vocabulary(vocabulary, special)]))
    for clash in vocabulary.tokens.clashes:
        yield about("problem", "vocabulary", clash, "correct the file that is wrong, or pass the tokenizer of the model")
    yield from _examine_embedding(vocabulary, {id for each in special.values() for id in (*each.sentinels, *each.mode)}, about)
    ids = vocabulary.encode(SAMPLE)
    remedy = "see ul2_tasks.check_round_trip; recipes/train_vocabulary.py trains one that restores every text"
    if unknown := sum(id == vocabulary.unk_id for id in ids):
        yield about("note", "vocabulary", f"{unknown} of {len(ids)} tokens of a sample of many scripts are unknown", remedy)
    if lost := check_round_trip(corpus.tokenizer):
        yield about("note", "vocabulary", f"decoding does not restore {kinds_lost(lost)}", remedy)
    return True


def _special_tokens(leaf: Description) -> Iterator[tuple[str | None, SpecialTokens]]:
    """Each mode of a description, with the ids that its denoiser adds."""
    for denoiser in leaf.denoisers:
        if isinstance(leaf, ImageText):
            yield denoiser.mode, special_tokens_beside(leaf, denoiser)
        elif isinstance(leaf, Mixture):
            yield denoiser.mode, special_tokens_of(leaf).tokens(leaf.vocabulary, denoiser)


def _describe_vocabulary(vocabulary: Vocabulary, special: Mapping[str | None, SpecialTokens]) -> Iterator[str]:
    padding = "" if vocabulary.uses_0 else "padding 0, "
    yield f"{vocabulary.name}, {vocabulary.vocab_size} ids; {padding}EOS {vocabulary.eos_id}, unknown {vocabulary.unk_id}"
    if vocabulary.uses_0:
        yield "within SeqIO and t5x all ids are 1 higher, and 0 is padding"
    for each in list(special.values())[:1]:
        ends = " .. ".join(map(vocabulary.id_to_piece, (each.sentinels[0], each.sentinels[-1]))) if each.sentinels else "none"
        named = ", ".join(f"{mode} {' '.join(map(str, own.mode))}" for mode, own in special.items() if mode) or "none"
        yield f"{len(each.sentinels)} sentinels, {ends}; modes: {named}"


def _examine_embedding(vocabulary: Vocabulary, special_ids: set[int], about: About) -> Iterator[Finding]:
    own = vocabulary.own_size
    if beyond := [id for id in special_ids if id >= own]:
        rows = embedding_rows(vocabulary)
        found = (
            f"{len(beyond)} sentinels and modes have the tokenizer's ids {min(beyond)} to {max(beyond)}, beyond the"
            f" {own} that it has itself: a model needs an embedding of {rows} rows"
        )
        remedy = f"where it has fewer, model.resize_token_embeddings({rows}); or sentinels and modes that the tokenizer has"
        yield about("note", "vocabulary", found, remedy)


class _Read(NamedTuple):
    """How many records were read, and are empty; what is wrong with others; and the fields that nothing reads, of conversations."""

    records: int
    empty: int
    problems: Sequence[str]
    unread: Mapping[str, int]


def examine_corpus(leaf: Description, split: str, about: About) -> Generator[Finding, None, bool]:
    """Looks at the splits, the shards and the first records of a corpus. Returns whether one of them has a token."""
    corpus = lenient(leaf).corpus()
    if split not in corpus.splits:
        yield about("problem", "corpus", f"split must be one of {sorted(corpus.splits)}, got {split!r}", "name another split")
        return False
    try:
        read = _Read(corpus.stored(split).documents, 0, (), {}) if corpus.is_tokens else _read(corpus, split)
    except (ValueError, ImportError, OSError) as error:
        yield about("problem", "corpus", str(error), "fix it, or name other files")
        return False
    counts = f"{read.records:,} records looked at: {read.empty:,} empty, {len(read.problems):,} wrong"
    yield about("ok", "corpus", f"{corpus.source}, splits {', '.join(corpus.splits)}; {counts}")
    skips = leaf.corpus().configuration.on_error == "skip"
    remedy = "they are left out and counted" if skips else "fix them, or pass on_error='skip'"
    for problem, count in collections.Counter(read.problems).most_common(_SHOWN):
        times = f"{count:,} of {read.records:,} records" if count > 1 else "a record"
        yield about("note" if skips else "problem", "corpus", f"{times}: {problem}", remedy)
    if (more := len(set(read.problems)) - _SHOWN) > 0:
        yield about("note" if skips else "problem", "corpus", f"{more:,} other errors of records", remedy)
    if read.unread:
        named = ", ".join(f"{name} ({count:,})" for name, count in read.unread.items())
        yield about("note", "corpus", f"fields of records that nothing reads, and how many have them: {named}")
    if read.records == read.empty + len(read.problems):
        remedy = "name other files, another split, or another field (text_key)"
        yield about("problem", "corpus", f"{counts}, none with a token in split {split!r}", remedy)
        return False
    return True


def _read(corpus: Corpus, split: str) -> _Read:
    records = empty = 0
    problems: list[str] = []
    unread: collections.Counter[str] = collections.Counter()
    for batch, _, _ in tokenize_shards(corpus, split, range(len(corpus.source.shards(split))), counts=False):
        problems += (problem.decode(errors="replace") for problem in filter(None, batch.problems))
        records += len(batch.records)
        empty += int((batch.are_whole & (batch.lengths == 0)).sum())
        if isinstance(corpus.encoder, Chats):
            whole = itertools.compress(batch.records, batch.are_whole)
            unread.update(name for record in whole for name in conversation_of(record).unread)
        if records >= RECORDS:
            break
    return _Read(records, empty, problems, unread)


def examine_lengths(leaf: Description, lengths: Mapping[str, int | None], beginnings: Beginnings) -> Iterator[Finding]:
    """Looks at the examples that the first records make within the lengths."""
    about = functools.partial(Finding, about="lengths", concerns=(leaf.registered_name(lengths),))
    found = lengths_of_leaf(leaf, lengths, beginnings, {"now": 1.0})
    now = found.ways[0]
    problems = list(problems_of(leaf, found))
    left_out = [f"{count:,} are left out: {cause}" for cause, count in now.left_out.items() if cause != WRONG and not problems]
    yield from (about("problem", what=problem) for problem in problems)
    yield from (about("note", what=note) for note in [*found.notes, *left_out])
    if now.cut:
        yield about("note", what=f"{now.cut:,} examples are without their oldest turns at {dict(lengths)}")
    if not now.problems:
        full = ", ".join(f"{each.task} {each.tokens:,}" for each in found.chunks)
        chunks = [f"full-length chunks: {full}"] if full else []
        most = ", ".join(f"{key} {tokens:,}" for key, tokens in found.ninety_nine.items())
        counted = f"{now.examples:,} examples of {found.documents:,} documents; tokens that 99 % of them have at most: {most}"
        yield about("ok", what="; ".join([counted, *chunks, "see ul2 lengths"]))


def examine_image_packages() -> Iterator[Finding]:
    """Looks at the packages that read images."""
    versions = {}
    for name in ("pillow", "av"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding("note", "installation", f"not installed: {name}", "pip install 'ul2_tasks[images]'")
    yield Finding("ok", "installation", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _version(package: str) -> str | None:
    if package == "t5x":  # in no registry
        return "on the path" if importlib.util.find_spec("t5x") else None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
