"""What the doctors of all kinds of data share: findings, and those of the installation and of a vocabulary."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import itertools
import pathlib
import platform
import runpy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.inspect.printing import kinds_lost
from ul2_tasks.inspect.tasks import ImageTextTask
from ul2_tasks.mixtures.mixture import DescribedTask
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import SpecialTokens, check_round_trip, embedding_rows

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


About = Callable[..., Finding]  # with what all findings of one thing have in common


def each_once(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those that say the same as one, of all that they concern."""
    merged: dict[Finding, list[str]] = {}
    for finding in findings:
        merged.setdefault(dataclasses.replace(finding, concerns=()), []).extend(finding.concerns)
    return [dataclasses.replace(finding, concerns=tuple(concerns)) for finding, concerns in merged.items()]


def left_out(is_skipped: bool, remedy: str) -> tuple[str, str]:
    """The kind and the remedy of a finding on what on_error="skip" leaves out; `remedy` is that of on_error="raise"."""
    return ("note", "they are left out and counted") if is_skipped else ("problem", remedy)


def first_words(error: Exception) -> str:
    """An error without a traceback."""
    return str(error).split("\nTraceback")[0]


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
    """What installed packages ask for, and is not there, as `pip check` says it."""
    installed: dict[str, metadata.Distribution] = {}
    for found in metadata.distributions():  # the first of a name is the one that is imported
        if name := found.metadata["Name"]:
            installed.setdefault(canonicalize_name(name), found)
    for distribution in installed.values():
        name = f"{distribution.metadata['Name']} {distribution.version}"
        for line in distribution.requires or []:
            try:
                asked = Requirement(line)
                there = installed.get(canonicalize_name(asked.name))
                fits = there is not None and asked.specifier.contains(there.version, prereleases=True)
            except (InvalidRequirement, InvalidVersion) as error:
                yield f"{name} asks for {line!r}: {error}"
                continue
            if not fits and (asked.marker is None or asked.marker.evaluate({"extra": ""})):
                is_there = f"there is {there.version}" if there else "which is not installed"
                yield f"{name} asks for {asked.name}{asked.specifier}, {is_there}"


def examine_vocabulary(tasks: Iterable[DescribedTask | ImageTextTask], corpus: Corpus) -> Iterator[Finding]:
    """Looks at the special ids, and at the way of a text to ids and back."""
    modes: dict[str, tuple[int, ...]] = {}
    special: SpecialTokens | None = None
    problems = 0
    for task in tasks:
        vocabulary = task.vocabulary
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
        yield from examine_ids(vocabulary)
        yield from _examine_embedding(vocabulary, {*special.sentinels, *itertools.chain(*modes.values())})
        yield from _examine_round_trip(corpus.tokenizer)


def examine_ids(vocabulary: Vocabulary) -> Iterator[Finding]:
    """Looks at whether the files of a tokenizer say the same of its special ids."""
    for clash in getattr(vocabulary, "clashes", ()):
        yield Finding("problem", "vocabulary", clash, "correct the file that is wrong, or pass the tokenizer of the model")


def _describe_vocabulary(vocabulary: Vocabulary, special: SpecialTokens, modes: Mapping[str, tuple[int, ...]]) -> str:
    padding = "" if vocabulary.uses_0 else "padding 0, "
    ids = f"{vocabulary.vocab_size} ids; {padding}EOS {vocabulary.eos_id}, unknown {vocabulary.unk_id}"
    in_seqio = "; within SeqIO and t5x all ids are 1 higher, and 0 is padding" if vocabulary.uses_0 else ""
    ends = " .. ".join(map(vocabulary.id_to_piece, (special.sentinels[0], special.sentinels[-1]))) if special.sentinels else "none"
    named = ", ".join(f"{mode} {' '.join(map(str, ids))}" for mode, ids in modes.items()) or "none"
    return f"{vocabulary.name}, {ids}{in_seqio}; {len(special.sentinels)} sentinels, {ends}; modes: {named}"


def _examine_embedding(vocabulary: Vocabulary, special_ids: set[int]) -> Iterator[Finding]:
    own = vocabulary.own_size
    if beyond := [id for id in special_ids if id >= own]:
        rows = embedding_rows(vocabulary)
        found = (
            f"{len(beyond)} sentinels and modes have the tokenizer's ids {min(beyond)} to {max(beyond)}, beyond the"
            f" {own} that it has itself: a model needs an embedding of {rows} rows"
        )
        remedy = f"where it has fewer, model.resize_token_embeddings({rows}); or sentinels and modes that the tokenizer has"
        yield Finding("note", "vocabulary", found, remedy)


def _examine_round_trip(tokenizer: Vocabulary) -> Iterator[Finding]:
    ids = list(tokenizer.encode(SAMPLE))
    remedy = "see ul2_tasks.check_round_trip; recipes/train_vocabulary.py trains one that restores every text"
    yield Finding("ok", "vocabulary", f"a sample of {len(SAMPLE)} characters of many scripts is {len(ids)} tokens")
    if unknown := sum(id == tokenizer.unk_id for id in ids):
        yield Finding("note", "vocabulary", f"{unknown} of {len(ids)} tokens of a sample of many scripts are unknown", remedy)
    if lost := check_round_trip(tokenizer):
        yield Finding("note", "vocabulary", f"decoding does not restore {kinds_lost(lost)}", remedy)


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
