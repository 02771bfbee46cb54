"""The commands. Each parses its options and calls the function of `ul2_tasks` that does the work."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from ul2_tasks.cli.errors import PROBLEMS_FOUND, Command, Group, plain
from ul2_tasks.cli.kinds import corpora_of, kind_of, left_out, print_overview, tell_others
from ul2_tasks.cli.options import (
    excludes,
    files,
    host,
    needs,
    of_a_job,
    of_a_mixture,
    of_a_run,
    of_examples,
    of_texts,
    or_of_records,
    with_json,
    with_lengths,
    with_record,
)

EXAMPLES, SAMPLES = 4000, 8
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}

with_examples = click.option(
    "--examples",
    type=click.IntRange(1),
    metavar="N",
    default=EXAMPLES,
    show_default=True,
    help="Measure this many examples of the mixture.",
)

with_cache = click.option(
    "--cache",
    "cache_dir",
    metavar="FOLDER",
    shell_complete=files,
    help="Measure examples read from this --output of `ul2 cache`.  [default: tokenize the corpus]",
)


@click.group(
    cls=Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": plain},
)
@click.version_option(package_name="ul2_tasks")
@click.pass_context
def main(context: click.Context) -> None:
    """Prepare, inspect and check UL2 pre-training data for SeqIO, t5x and PyTorch.

    Without a command, show the built-in mixture on one screen: its denoisers, an example, and the checks of 4,000 examples.

    NAME selects data: "ul2", which is built in (the default), FILE.py:OBJECT with a description such as ul2_tasks.Mixture(..), what
    --module has or registers, or a new mixture, made from --corpus, --vocabulary and --preset.

    \b
    Inspect examples:    ul2 show
                         ul2 report mine --corpus 'texts/*.jsonl'
    Inspect a run:       ul2 show --step 12345 --run my_run
                         ul2 find --text "some words" --run my_run
                         ul2 audit --until 12345 --run my_run
    Check your data:     ul2 doctor mine --corpus 'texts/*.jsonl'
                         ul2 stats mine --module my_corpora
    Choose lengths:      ul2 lengths --lengths 2048,512
    Tokenize once:       ul2 cache mine --corpus texts --output cache
    Export examples:     ul2 export --format parquet --output examples
    """
    if context.invoked_subcommand is None:
        Command("ul2", callback=print_overview).main([], prog_name="ul2", standalone_mode=False)


@main.command()
@or_of_records
@with_record("Show this record, such as 'a.jsonl, line 7', and the row that it is in.")
@of_a_mixture
@with_lengths(None, shown="288,288; with --step 512,512")
@of_examples
@click.option(
    "--denoiser",
    "denoisers",
    type=str.lower,
    metavar="NAME",
    multiple=True,
    help="Show this denoiser only, such as r1. Can be repeated.  [default: all]",
)
@click.option(
    "--count", type=click.IntRange(1), metavar="N", default=2, show_default=True, help="Show this many examples of each denoiser."
)
@click.option("--text", multiple=True, help="Show this text instead of a corpus. Can be repeated.")
@click.option(
    "--file",
    "texts",
    type=click.File(encoding="utf-8"),
    multiple=True,
    help="Show the text of this file instead of a corpus; - reads stdin. Can be repeated.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON Lines instead, one example per line: counts, ids and text segments."
)
@click.option(
    "--step",
    type=click.IntRange(0),
    metavar="N",
    help="Show the examples of the batch that takes a model from step N to N + 1.  [default: the first examples]",
)
@click.option(
    "--host",
    type=host,
    metavar="HOST/HOSTS",
    help="Show only the part of the step's batch that this host reads, such as 3/64.  [default: the global batch]",
)
@click.option(
    "--schedule", "of_schedule", is_flag=True, help="Show what each stage of the mixture's schedule reads, instead of examples."
)
@of_a_run
def show(data, text, texts, as_json: bool, step: int | None, of_schedule: bool, **options) -> None:
    """Show examples of each denoiser as text.

    Unmasked text is plain, and each masked span has the colour of its sentinel.

    With --schedule, show which corpora each stage of a schedule reads: tokens, epochs, and the steps at which epochs end.

    With --step, show the examples that a training run reads at that step, each with its index, epoch, documents and tokens. This
    needs random access: a cache of `ul2 cache`, or a corpus that fits in memory.

    \b
    ul2 show mine --corpus 'texts/*.txt' --documents paragraph --count 1
    ul2 show --text "The quick brown fox jumps over the lazy dog." --seed 1
    ul2 show --step 12345 --run my_run --cache cache
    ul2 show --step 12345 --batch_size 2048 --host 3/64
    ul2 show my_run --module my_run --schedule --cache cache
    ul2 show --json --count 100 > examples.jsonl
    """
    own = [*text, *(file.read() for file in texts)]
    if own and data.source:
        raise excludes("--text and --file", "--corpus")
    kind = kind_of(data)
    if of_schedule:
        if own or step is not None:
            raise excludes("--schedule", "--step" if step is not None else "--text")
        kind.show_schedule(data, as_json, **options)
        return
    if step is None and (given := data.given_of("host", "batch_size", "packed", "cache_dir", "run_dir", "exclude", "skip")):
        raise needs(data.option(given[0]), "--step")
    if step is None:
        tell_others(kind, data)
    kind.show(data, as_json, texts=own, step=step, **options)


@main.command()
@or_of_records
@with_record("Find this record, such as 'a.jsonl, line 7', in image rows.")
@of_a_mixture
@with_lengths("512,512")
@of_examples
@click.option(
    "--document",
    metavar="[CORPUS:]N",
    help="Find the document with this index, from 0. Name its corpus if the mixture has several.",
)
@click.option("--text", help="Find this text in all documents.")
@click.option("--id", "ids", metavar="ID", multiple=True, help="Find the documents with this id of their record. Can be repeated.")
@click.option(
    "--source", "sources", metavar="FILE[:ROW]", multiple=True, help="Find the documents of this file or row. Can be repeated."
)
@click.option(
    "--list", "listed", metavar="FILE", shell_complete=files, help="Find all documents of this list, and print JSON Lines."
)
@click.option("--epochs", type=click.IntRange(1), metavar="N", default=1, show_default=True, help="Search the first N epochs.")
@click.option(
    "--count",
    type=click.IntRange(1),
    metavar="N",
    default=5,
    show_default=True,
    help="List at most N occurrences, documents or texts.",
)
@of_texts
@of_a_run
def find(
    data,
    *,
    document: str | None,
    text: str | None,
    ids: Sequence[str],
    sources: Sequence[str],
    listed: str | None,
    of_texts: dict[str, Any] | None,
    **options,
) -> None:
    """Find the steps that read a document, a text or a record.

    Print the epoch, index, step, denoiser and tokens of each example that contains a part of it. This needs random access, as
    `ul2 show --step` does. For an image-text record, print the rows that have it.

    With --texts, print which texts of a file, such as a benchmark, are in which documents of the corpus, as a whole or in part.

    \b
    ul2 find --document 17 --batch_size 2048 --epochs 2
    ul2 find --text "returns a true value" --run my_run --cache cache
    ul2 find --source web-0003.jsonl:1234 --run my_run --cache cache
    ul2 find --list take_down.jsonl --run my_run --cache cache
    ul2 find mine --module my_images --record 'a.jsonl, line 7' --batch_size 64
    ul2 find --texts benchmark.jsonl --field question --cache cache
    """
    ways = {"--document": document, "--text": text, "--id, --source": ids or sources or None, "--list": listed, "--texts": of_texts}
    given = [way for way, value in {**ways, "--record": data.given.get("record")}.items() if value is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise click.UsageError(f"{', '.join(ways)} or --record must be given, got {got}. Pass one of them.")
    if of_texts:
        if "epochs" in data.given:
            raise excludes("--epochs", "--texts")
        kind_of(data).find_texts(data, **of_texts, **{name: value for name, value in options.items() if name != "epochs"})
        return
    from ul2_tasks.corpus.document_list import read_document_list

    entries = [{"id": id} for id in ids] + [_of_source(source) for source in sources]
    named = read_document_list(listed or entries, "--list") if listed or entries else None
    kind_of(data).find(data, document=document, text=text, named=named, as_lines=listed is not None, **options)


def _of_source(source: str) -> dict[str, object]:
    """The entry of a list for FILE or FILE:ROW."""
    file, _, row = source.rpartition(":")
    return {"file": file, "row": int(row)} if file and row.isdecimal() else {"file": source}


@main.command()
@of_a_mixture
@with_lengths("512,512", without_records=True)
@of_examples
@click.option("--until", type=click.IntRange(0), required=True, metavar="STEP", help="Count what is read before this step.")
@click.option(
    "--count", type=click.IntRange(1), metavar="N", default=5, show_default=True, help="List the N documents that are read most."
)
@click.option(
    "--output",
    "outputs",
    metavar="FILE",
    multiple=True,
    shell_complete=files,
    help="Write a line for each document to FILE.parquet, or a page to FILE.html. Can be repeated.",
)
@with_json
@of_a_run
def audit(data, as_json: bool, **options) -> None:
    """Count what a run reads of each document until a step.

    Print the tokens and epochs of each corpus, the examples of each denoiser beside their weights, how many documents are read
    never, once or several times, and which are read most. Exit status 1 if the sums differ. This needs random access, as `ul2 show
    --step` does.

    \b
    ul2 audit --run my_run --until 12345 --cache cache --output seen.parquet
    ul2 audit mine --corpus 'texts/*.jsonl' --until 100 --batch_size 2048
    """
    from rich.console import Console

    from ul2_tasks.inspect.audit import audit_as_json, print_audit

    run, found = kind_of(data).audit(data, **options)
    if as_json:
        click.echo(audit_as_json(found), nl=False)
    else:
        print_audit(run, found, Console())
    for path in options["outputs"]:
        click.echo(f"wrote {path}", err=as_json)
    _exit_if_broken(found)


@main.command()
@or_of_records
@of_a_mixture
@with_lengths("512,512")
@of_examples
@with_examples
@with_cache
@click.option("--json", "to_json", is_flag=True, help="Print JSON instead of tables.")
def stats(data, to_json: bool, examples: int, cache_dir: str | None, **options) -> None:
    """Measure examples and check them against the objective.

    Print mixing rates, corruption rates, span and sequence lengths, padding, packing, truncation and the text that denoisers
    share, each beside its expected value. Exit status 1 if a check fails.

    \b
    ul2 stats mine --corpus texts --lengths 1024,1024 --json > statistics.json
    """
    from rich.console import Console

    from ul2_tasks.inspect.printing import as_json

    kind = kind_of(data)
    tell_others(kind, data)
    statistics = kind.measure(data, examples=examples, **options)
    if to_json:
        click.echo(as_json(statistics), nl=False)
    else:
        kind.print_statistics(statistics, Console())
    _exit_if_broken(statistics)


@main.command()
@or_of_records
@of_a_mixture
@with_lengths("512,512")
@of_examples
@with_examples
@with_cache
@click.option(
    "--count",
    type=click.IntRange(1),
    metavar="N",
    default=SAMPLES,
    show_default=True,
    help="Include this many examples of each denoiser.",
)
@click.option(
    "--output", metavar="FILE", shell_complete=files, default="report.html", show_default=True, help="Write the page to this file."
)
def report(data, output: str, cache_dir: str | None, **options) -> None:
    """Write a web page with statistics, plots and examples.

    The page shows examples, plots, and the statistics of `ul2 stats`. It is a single file that works offline. Exit status 1 if a
    check fails.

    \b
    ul2 report mine --corpus texts --vocabulary my.model --output mine.html
    """
    from ul2_tasks.inspect.page import check_path, packages

    packages()  # a package that is missing is named before the measuring, which takes long
    check_path(output)
    kind = kind_of(data)
    tell_others(kind, data)
    statistics, path = kind.report(data, output, **options)
    click.echo(f"wrote {path}")
    _exit_if_broken(statistics)


@main.command()
@of_a_mixture
@with_lengths("512,512", without_records=True)
@with_json
def lengths(data, as_json: bool) -> None:
    """Show the lengths of each denoiser and recommend better ones.

    Print the chunk, spans, inputs, targets, sentinels and padding of each denoiser, then the --lengths and --chunk_tokens that
    waste less. Exit status 1 if a denoiser does not fit.

    For conversations, print for --lengths, half of them and twice as much how many examples are left out, and the packing
    efficiency. For interleaved image-text data, print which records are left out, and how full padded sequences are. Exit status 1
    if an example raises an error.

    \b
    ul2 lengths --lengths 2048,512
    ul2 lengths mine --preset UL2 --vocabulary my.model --lengths 1024,1024
    """
    from rich.console import Console

    kind = kind_of(data)
    tell_others(kind, data)
    found = kind.look_at_lengths(data)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        kind.print_lengths(found, Console())
    if found.problems:
        sys.exit(PROBLEMS_FOUND)


@main.command()
@or_of_records
@of_a_mixture
@with_lengths("512,512")
@click.option("--split", default="train", show_default=True, metavar="SPLIT", help="Check this split of the corpus.")
@with_json
def doctor(data, as_json: bool, split: str) -> None:
    """Find problems and say how to fix them.

    Check the installation, the vocabulary, the corpus and the lengths. Exit status 1 if there is a problem.

    \b
    ul2 doctor mine --corpus 'texts/*.jsonl' --vocabulary my.model
    """
    from rich.console import Console

    from ul2_tasks.inspect.findings import print_findings

    kind = kind_of(data)
    tell_others(kind, data)
    findings = kind.examine(data, split)
    if as_json:
        examined = kind.examined(data, split)
        click.echo(json.dumps({**examined, "findings": list(map(dataclasses.asdict, findings))}, indent=1, ensure_ascii=False))
    else:
        print_findings(findings, Console())
    if any(finding.kind == "problem" for finding in findings):
        sys.exit(PROBLEMS_FOUND)


_revision = click.option(
    "--git_revision",
    metavar="REVISION",
    help="Write this git revision into the manifest, such as that of your code.  [default: that of ul2_tasks, of a checkout]",
)


@main.command()
@of_a_mixture
@click.option(
    "--output",
    required=True,
    metavar="FOLDER",
    shell_complete=files,
    help="Write into this folder, local or remote (gs://..). It can hold the caches of several corpora.",
)
@click.option(
    "--max_documents",
    type=click.IntRange(1),
    metavar="N",
    help="Read at most N documents of each split, for a trial run.  [default: all]",
)
@click.option(
    "--max_tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Write at most N tokens of each split, for a trial run, in whole documents.  [default: all]",
)
@_revision
@of_a_job
def cache(data, output: str, **options) -> None:
    """Tokenize a corpus once for all denoisers.

    Each corpus of a mixture gets its own cache, one after another. With --workers, --runner or --pipeline_option, Apache Beam runs
    the job, on this machine or on a cluster. Re-run the same command to resume an interrupted job.

    \b
    ul2 cache mine --corpus 'texts/*.jsonl' --vocabulary my.model --output cache
    """
    from ul2_tasks.corpus.build_cache import build

    corpora = corpora_of(data)
    texts = [corpus for corpus in corpora if not corpus.is_tokens]
    if texts and len(texts) < len(corpora):
        tokens = ", ".join(corpus.name for corpus in corpora if corpus.is_tokens)
        click.echo(f"left out, because they are tokenized already and read in place: {tokens}", err=True)
    for corpus in texts or corpora:
        build(corpus, output, **options)


@main.command()
@of_a_mixture
@with_lengths("512,512", "512,512; for images 2048,512; for conversations no limit", without_records=True)
@of_examples
@click.option(
    "--format",
    "written_as",
    type=click.Choice(["tfrecord", "parquet", "megatron"]),
    required=True,
    help="Write files of this format. megatron writes the tokens of a corpus of text, or examples of conversations.",
)
@click.option(
    "--output",
    required=True,
    metavar="FOLDER",
    shell_complete=files,
    help="Write into this folder, local or remote (gs://..). It must be new, or have an interrupted export, which is resumed.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    metavar="N",
    default=1,
    show_default=True,
    help="Write N epochs. An epoch ends when the first denoiser has read the whole corpus.",
)
@click.option(
    "--shards",
    type=click.IntRange(1),
    metavar="N",
    default=1,
    show_default=True,
    help="Write N files, each with its own part of the corpus.",
)
@click.option(
    "--cache",
    "cache_dir",
    metavar="FOLDER",
    shell_complete=files,
    help="Read the corpus from this --output of `ul2 cache`.  [default: tokenize it]",
)
@click.option(
    "--max_examples",
    type=click.IntRange(1),
    metavar="N",
    help="Write at most N examples, for a trial run.  [default: all]",
)
@click.option(
    "--max_tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Write at most N tokens, for a trial run.  [default: all]",
)
@_revision
@of_a_job
def export(data, output: str, cache_dir: str | None, **options) -> None:
    """Write examples to files for other trainers.

    Each example has the ids of its inputs and targets, which are the tokenizer's own, and the names of its denoiser and task.
    Examples with images also have the bytes of the image files. Conversations have tokens, or inputs and targets, with loss
    masks and loss groups. The files hold the examples that training reads, in the same order. With --workers, --runner or
    --pipeline_option, Apache Beam runs the job. Re-run the same command to resume an interrupted export.

    With --format megatron, write the tokens of each corpus as one .bin/.idx pair for Megatron-LM, with an EOS after each document.
    Only --cache, --split and --output apply. For conversations, write pairs of the tokens, loss masks and loss groups of examples.

    \b
    ul2 export --format parquet --output examples
    ul2 export mine --module my_corpora --cache cache --format tfrecord \\
      --shards 64 --workers 8 --output examples
    ul2 export talks --corpus 'talks/*.jsonl' --renderer template:model \\
      --format megatron --output tokens
    """
    kind = kind_of(data)
    if options["written_as"] == "megatron":
        for sentence in left_out(kind, data):
            click.echo(sentence, err=True)
    kind.export(data, output, cache_dirs=[cache_dir] if cache_dir else [], **options)


@main.command()
@click.argument("folder")
def verify(folder: str) -> None:
    """Check that the files of a cache or an export are unchanged.

    Read FOLDER, such as OUTPUT/ul2_corpus, or OUTPUT for everything in it, and compare checksums. List each file that differs and
    each job that is unfinished. Exit status 1 if there is any.

    \b
    ul2 verify cache
    """
    from ul2_tasks.inspect.verification import examine

    all_wrong = []
    for where, wrong, counts in examine(folder):
        for sentence in wrong:
            click.echo(sentence if where == folder or where in sentence else f"{where}: {sentence}")
        if not wrong:
            stated = (f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items())
            click.echo(f"{where} is as it was written: " + ", ".join(stated))
        all_wrong += wrong
    if all_wrong:
        sys.exit(PROBLEMS_FOUND)


@main.command(cls=click.Command)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(ul2 completion bash)"           in ~/.bashrc
    zsh:   eval "$(ul2 completion zsh)"            in ~/.zshrc
    fish:  ul2 completion fish | source            in ~/.config/fish/config.fish
    """
    click.echo(_SHELLS[shell](main, {}, "ul2", "_UL2_COMPLETE").source())


def _exit_if_broken(statistics) -> None:
    if not statistics.passed:
        sys.exit(PROBLEMS_FOUND)
