"""The commands. Each parses its options and calls the function of `ul2_tasks` that does the work."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence

import click

from ul2_tasks.cli.errors import PROBLEMS_FOUND, Command, Group, plain
from ul2_tasks.cli.help import examples as ends_with
from ul2_tasks.cli.kinds import CONVERSATIONS, IMAGE_ROWS, corpora_of_tokens, kind_of, lengths_of, parts_of
from ul2_tasks.cli.options import (
    as_json,
    count,
    excludes,
    files,
    host,
    of_a_job,
    of_a_run,
    of_data,
    of_examples,
    of_lengths,
    of_split,
    open_run,
)
from ul2_tasks.cli.rows import packed_rows

EXAMPLES, RECORDS, SAMPLES = 4000, 1000, 8

of_measured = click.option(
    "--examples",
    type=click.IntRange(1),
    metavar="N",
    default=EXAMPLES,
    show_default=True,
    help="Measure this many examples of the mixture.",
)


def of_cache(help: str) -> Callable:
    """Adds --cache."""
    return click.option("--cache", "cache_dir", metavar="FOLDER", shell_complete=files, help=help)


@ends_with("ul2", "ul2 doctor mine --corpus 'texts/*.jsonl'")
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

    Commands name their data in one way: NAME, which is built in or beside --corpus, --vocabulary and --preset; or FILE.py:OBJECT,
    for all that a Python file describes. In names of options write - or _: --batch-size is --batch_size.

    Exit status: 0; 1 where checks fail or problems are found; 2 for an error, which is one line on stderr; 130 for Ctrl-C.
    """
    if context.invoked_subcommand is None:
        Command("ul2", callback=_overview).main([], prog_name="ul2", standalone_mode=False)


def _overview() -> None:
    from rich.console import Console

    from ul2_tasks.inspect.overview import print_overview

    print_overview(Console())


@ends_with(
    'ul2 show --text "The quick brown fox jumps over the lazy dog." --denoiser r1 --seed 1',
    "ul2 show my_data.py:mine --step 12 --batch_size 32 --count 1",
)
@main.command()
@of_data
@of_lengths("288,288; with --step 512,512; for images 2048,512; for conversations no limit")
@of_examples
@click.option(
    "--denoiser",
    "denoisers",
    type=str.lower,
    metavar="NAME",
    multiple=True,
    help="Show this denoiser only, such as r1. Can be repeated.  [default: all]",
)
@count(2, "Show this many examples of each denoiser.")
@click.option("--text", "texts", multiple=True, help="Show this text instead of a corpus. Can be repeated.")
@click.option("--source", metavar="RECORD", help="Show this record of image rows, such as 'a.jsonl, line 7', and its row.")
@as_json("Print JSON Lines instead, one example per line: its numbers, ids and text.")
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
@of_a_run
def show(data, *, as_json: bool, texts, source: str | None, step: int | None, host, count: int, denoisers, **options) -> None:
    """Show examples of each denoiser as text.

    Unmasked text is plain, and each masked span has the colour of its sentinel.

    With --step, show the examples that a training run reads at that step, each with its index, epoch, documents and tokens. This
    needs random access: a cache of `ul2 cache`, or a corpus that fits in memory.
    """
    if texts and "corpus" in data.given:
        raise excludes("--text", "--corpus")
    if texts and not data.is_first_look:
        raise excludes("--text", "options of a run")
    kind = kind_of(data)
    if kind == IMAGE_ROWS:
        if step is not None and source is not None:
            raise excludes("--source", "--step")
        of_step = {"step": step, "host": host, "batch_size": options["batch_size"]}
        packed_rows().show(data.description, as_json, record=source, count=count, **of_step)
        return
    from ul2_tasks.inspect import show as inspect

    run = _run(data, kind, texts=texts, is_beginning=data.is_first_look, **options)
    shown = inspect.show(run, step, host or (0, 1), count=count, denoisers=denoisers)
    _tell(shown.as_plain() if as_json else shown, as_json, functools.partial(inspect.print_shown, run))


@ends_with(
    'ul2 find --text "returns a true value" --batch_size 32',
    "ul2 find my_data.py:mine --document 17 --batch_size 32 --epochs 2",
)
@main.command()
@of_data
@of_lengths()
@of_examples
@click.option(
    "--document",
    metavar="[CORPUS:]N",
    help="Find the document with this index, from 0. Name its corpus if the mixture has several.",
)
@click.option("--text", help="Find this text in all documents.")
@click.option("--id", "ids", metavar="ID", multiple=True, help="Find the documents with this id of their record. Can be repeated.")
@click.option(
    "--source",
    "sources",
    metavar="FILE[:ROW]",
    multiple=True,
    help="Find the documents of this file or row; of image rows a record, such as 'a.jsonl, line 7'. Can be repeated.",
)
@click.option(
    "--list", "listed", metavar="FILE", shell_complete=files, help="Find all documents of this list, and print JSON Lines."
)
@click.option("--epochs", type=click.IntRange(1), metavar="N", default=1, show_default=True, help="Search the first N epochs.")
@count(5, "List at most N occurrences or documents.")
@of_a_run
def find(
    data,
    *,
    document: str | None,
    text: str | None,
    ids: Sequence[str],
    sources: Sequence[str],
    listed: str | None,
    epochs: int,
    count: int,
    **options,
) -> None:
    """Find the steps that read a document, a text or a record.

    Print the epoch, index, step, denoiser and tokens of each example that contains a part of it. This needs random access, as
    `ul2 show --step` does. For a record of image rows, print the rows that have it.
    """
    ways = {"--document": document, "--text": text, "--id, --source": ids or sources or None, "--list": listed}
    given = [way for way, value in ways.items() if value is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise click.UsageError(f"{', '.join(ways)} must be given, got {got}. Pass one of them.")
    from ul2_tasks.corpus.document_list import read_document_list

    kind = kind_of(data)
    entries = [{"id": id} for id in ids] + [_of_source(source) for source in sources]
    named = read_document_list(listed or entries, "--list") if listed or entries else None
    if kind == IMAGE_ROWS:
        if len(sources) > 1:
            raise click.UsageError(f"--source must be one record for image rows, got {len(sources)}. Run the command for each.")
        packed_rows().find_rows(data.description, sources[0], epochs, options["batch_size"])
        return
    from ul2_tasks.inspect import find as inspect

    run, are_lines = _run(data, kind, **options), listed is not None
    found = inspect.find(run, document=document, text=text, named=named, epochs=epochs, count=None if are_lines else count)
    _tell(found.as_plain() if are_lines else found, are_lines, functools.partial(inspect.print_found, run))


def _of_source(source: str) -> dict[str, object]:
    """The entry of a list for FILE or FILE:ROW."""
    file, _, row = source.rpartition(":")
    return {"file": file, "row": int(row)} if file and row.isdecimal() else {"file": source}


@ends_with(
    "ul2 contamination --texts benchmark.jsonl --field question",
    "ul2 contamination my_data.py:mine --texts benchmark.jsonl --field question --output found.jsonl",
)
@main.command()
@of_data
@of_split
@click.option(
    "--texts",
    "path",
    metavar="FILE",
    required=True,
    shell_complete=files,
    help="Find all texts of this file: lines of .txt, or records of JSON Lines or Parquet.",
)
@click.option("--field", "keys", metavar="KEY", multiple=True, help="Take texts from this field. Can be repeated.  [default: text]")
@click.option(
    "--ngram", "n", type=click.IntRange(2), metavar="N", default=13, show_default=True, help="Look for N tokens in a row."
)
@click.option("--output", metavar="LIST.jsonl", shell_complete=files, help="Write the documents that contain texts to this file.")
@count(5, "List at most N texts.")
@of_cache("Read the corpus from this --output of `ul2 cache`.  [default: tokenize it]")
@as_json("Print JSON Lines instead, one text per line.")
def contamination(data, as_json: bool, split: str, cache_dir: str | None, output: str | None, count: int, **options) -> None:
    """Find the texts of a file, such as a benchmark, in a corpus.

    Print which of them are in which documents, as a whole or in part. A list of --output is one for `ul2 find --list` and
    `exclude=`. This needs random access, as `ul2 show --step` does.
    """
    from ul2_tasks.inspect.contamination import find_texts, print_searched

    run = _run(data, kind_of(data), run_dir=None, cache_dir=cache_dir, split=split)
    found = find_texts(run, output=output, **options)
    _tell(found.as_plain() if as_json else found, as_json, functools.partial(print_searched, count=count))
    if output:
        click.echo(f"wrote {output}", err=as_json)


@ends_with(
    "ul2 schedule my_schedule.py:both",
    "ul2 schedule my_schedule.py:both --lengths 256,256 --packed --json",
)
@main.command()
@of_data
@of_lengths()
@of_examples
@as_json()
@of_a_run
def schedule(data, as_json: bool, **options) -> None:
    """Show which corpora each stage of a schedule reads.

    Print the fractions, tokens and epochs of each corpus, and the steps at which its epochs end, of a `Mix(.., schedule=[..])`.
    """
    from ul2_tasks.inspect.schedule import print_schedule, schedule_of

    run = _run(data, kind_of(data), **options)
    rows = schedule_of(run)
    _tell(map(dataclasses.asdict, rows) if as_json else rows, as_json, functools.partial(print_schedule, run))


@ends_with(
    "ul2 audit --until 40 --batch_size 32",
    "ul2 audit my_data.py:mine --until 100 --batch_size 32 --output seen.parquet",
)
@main.command()
@of_data
@of_lengths()
@of_examples
@click.option("--until", type=click.IntRange(0), required=True, metavar="STEP", help="Count what is read before this step.")
@count(5, "List the N documents that are read most.")
@click.option(
    "--output",
    "outputs",
    metavar="FILE",
    multiple=True,
    shell_complete=files,
    help="Write a line for each document to FILE.parquet, or a page to FILE.html. Can be repeated.",
)
@as_json()
@of_a_run
def audit(data, as_json: bool, until: int, count: int, outputs: Sequence[str], **options) -> None:
    """Count what a run reads of each document until a step.

    Print the tokens and epochs of each corpus, the examples of each denoiser beside their weights, how many documents are read
    never, once or several times, and which are read most. Exit status 1 if the sums differ. This needs random access, as `ul2 show
    --step` does.
    """
    from ul2_tasks.inspect import audit as inspect

    kind = kind_of(data)
    inspect.check_outputs(outputs)  # before what takes long
    run = _run(data, kind, **options)
    found = inspect.audit(run, until, outputs, count)
    _tell(found, as_json, functools.partial(inspect.print_audit, run))
    for path in outputs:
        click.echo(f"wrote {path}", err=as_json)
    _exit_with(not found.passed)


@ends_with("ul2 stats --examples 500", "ul2 stats my_data.py:mine --lengths 256,256 --json > statistics.json")
@main.command()
@of_data
@of_lengths()
@of_examples
@of_measured
@of_cache("Measure examples read from this --output of `ul2 cache`.  [default: tokenize the corpus]")
@as_json()
def stats(data, as_json: bool, examples: int, cache_dir: str | None, **options) -> None:
    """Measure examples and check them against the objective.

    Print mixing rates, corruption rates, span and sequence lengths, truncation and the text that denoisers
    share, each beside its expected value. Exit status 1 if a check fails.
    """
    from ul2_tasks.inspect.measure import print_statistics

    if (kind := kind_of(data)) == IMAGE_ROWS:
        statistics = packed_rows().measure_images(data.description, _records(data))
        _tell(statistics, as_json, packed_rows().print_images)
    else:
        statistics = _statistics(data, kind, examples, **options)
        _tell(statistics, as_json, print_statistics)
    _exit_with(not statistics.passed)


@ends_with("ul2 report --examples 500", "ul2 report my_data.py:mine --examples 500 --output mine.html")
@main.command()
@of_data
@of_lengths()
@of_examples
@of_measured
@of_cache("Measure examples read from this --output of `ul2 cache`.  [default: tokenize the corpus]")
@count(SAMPLES, "Include this many examples of each denoiser.")
@click.option(
    "--output", metavar="FILE", shell_complete=files, default="report.html", show_default=True, help="Write the page to this file."
)
def report(data, output: str, cache_dir: str | None, examples: int, count: int, **options) -> None:
    """Write a web page with statistics, plots and examples.

    The page shows examples, plots, and the statistics of `ul2 stats`. It is a single file that works offline. Exit status 1 if a
    check fails.
    """
    from ul2_tasks.inspect.report import check_path, write_report
    from ul2_tasks.inspect.run import Run
    from ul2_tasks.inspect.show import show

    check_path(output)  # before the measuring, which takes long
    kind = kind_of(data)
    if kind == IMAGE_ROWS:
        statistics, path = packed_rows().report(data.description, output, _records(data), count)
    else:
        statistics = _statistics(data, kind, examples, **options)
        run = Run(data.description, lengths_of(data, kind), cache_dirs=data.cache_dirs, is_beginning=True, **options)
        path = write_report(statistics, show(run, count=count).views, output)
    click.echo(f"wrote {path}")
    _exit_with(not statistics.passed)


@ends_with("ul2 lengths --lengths 2048,512", "ul2 lengths my_data.py:mine --lengths 256,256 --json")
@main.command()
@of_data
@of_lengths()
@as_json()
def lengths(data, as_json: bool) -> None:
    """Show what lengths make of the data, and recommend better ones.

    Print for --lengths, half of them and twice as much how many examples the first documents make, what is left out, and how full
    padded and packed sequences are. For text, print also the full-length chunk of each denoiser, and the `chunk_tokens` and lengths
    that waste less. Exit status 1 if a denoiser does not fit, or an example raises an error.
    """
    from ul2_tasks.inspect import lengths as inspect

    found = inspect.lengths_of(data.description, lengths_of(data, kind_of(data)))
    _tell(found, as_json, inspect.print_lengths)
    _exit_with(found.problems)


@ends_with("ul2 doctor mine --corpus 'texts/*.jsonl' --vocabulary bytes", "ul2 doctor my_data.py:mine --lengths 256,256")
@main.command()
@of_data
@of_lengths()
@of_split
@as_json()
def doctor(data, as_json: bool, split: str) -> None:
    """Find problems and say how to fix them.

    Check the installation, the vocabulary, the corpus and the lengths. Exit status 1 if there is a problem.
    """
    from ul2_tasks.inspect.doctor import examine, print_findings

    if (kind := kind_of(data)) == IMAGE_ROWS:
        examined, findings = {"budgets": data.description.budgets}, packed_rows().examine(data.description)
    else:
        examined = {"mixture": data.mixture, "split": split, "sequence_length": lengths_of(data, kind)}
        findings = examine(data.description, examined["sequence_length"], split)
    as_plain = {**examined, "findings": list(map(dataclasses.asdict, findings))}
    _tell(as_plain if as_json else findings, as_json, print_findings)
    _exit_with(any(finding.kind == "problem" for finding in findings))


_revision = click.option(
    "--git_revision",
    metavar="REVISION",
    help="Write this git revision into the manifest, such as that of your code.  [default: none]",
)


def _at_most(what: str) -> Callable:
    """Adds --max_WHAT, for a trial run."""
    help = f"Write at most N {what} of each split, for a trial run.  [default: all]"
    return click.option(f"--max_{what}", type=click.IntRange(1), metavar="N", help=help)


@ends_with("ul2 cache web --corpus 'texts/*.jsonl' --output cache", "ul2 cache my_data.py:mine --output trial --max_documents 100")
@main.command()
@of_data
@click.option(
    "--output",
    required=True,
    metavar="FOLDER",
    shell_complete=files,
    help="Write into this folder, local or remote (gs://..). It can hold the caches of several corpora.",
)
@_at_most("documents")
@_at_most("tokens")
@_revision
@of_a_job
def cache(data, output: str, **options) -> None:
    """Tokenize a corpus once for all denoisers.

    Each corpus of a mixture gets its own cache, one after another. With --workers or --pipeline_option, Apache Beam runs the job,
    on this machine or on a cluster. Re-run the same command to resume an interrupted job.
    """
    from ul2_tasks.corpus.build_cache import build

    kind_of(data)  # raises where there is no corpus
    corpora = list({(corpus := part.corpus()).name: corpus for part in parts_of(data)}.values())
    texts = [corpus for corpus in corpora if not corpus.is_tokens]
    if texts and len(texts) < len(corpora):
        tokens = ", ".join(corpus.name for corpus in corpora if corpus.is_tokens)
        click.echo(f"left out, because they are tokenized already and read in place: {tokens}", err=True)
    for corpus in texts or corpora:
        build(corpus, output, **options)


@ends_with(
    "ul2 export --format parquet --output examples --max_examples 1000",
    "ul2 export my_data.py:mine --format megatron --output tokens",
)
@main.command()
@of_data
@of_lengths()
@of_examples
@click.option(
    "--format",
    "written_as",
    type=click.Choice(["parquet", "jsonl", "tfrecord", "arrayrecord", "megatron"]),
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
@of_cache("Read the corpus from this --output of `ul2 cache`.  [default: tokenize it]")
@_at_most("examples")
@_at_most("tokens")
@_revision
@of_a_job
def export(data, output: str, cache_dir: str | None, written_as: str, **options) -> None:
    """Write examples to files for other trainers.

    Each example has the ids of its inputs and targets, which are the tokenizer's own, and the names of its denoiser and task.
    Examples with images also have the bytes of the image files. Conversations have tokens, or inputs and targets, with loss
    masks and loss groups. The files hold the examples that training reads, in the same order. With --workers or --pipeline_option,
    Apache Beam runs the job. Re-run the same command to resume an interrupted export.

    With --format megatron, write the tokens of each corpus as one .bin/.idx pair for Megatron-LM, with an EOS after each document.
    Only --cache, --split and --output apply. For conversations, write pairs of the tokens, loss masks and loss groups of examples.
    """
    kind, cache_dirs = kind_of(data), [cache_dir] if cache_dir else []
    if written_as != "megatron" or kind == CONVERSATIONS:
        from ul2_tasks.export.write import write_examples

        write_examples(data.description, output, lengths_of(data, kind), format=written_as, cache_dirs=cache_dirs, **options)
        return
    from ul2_tasks.export.megatron import write_megatron

    for corpus in corpora_of_tokens(data, kind, cache_dirs):
        written = write_megatron(corpus, output, options["split"], use_cached=bool(cache_dirs))
        counted = f"{written['documents']:,} documents, {written['tokens']:,} tokens"
        click.echo(f"{written['prefix']}: {counted}, an EOS after each document")


@ends_with("ul2 verify cache", "ul2 verify cache/mine_corpus")
@main.command()
@click.argument("folder")
@click.option("--quick", is_flag=True, help="Compare the sizes of files alone; no token is read.")
def verify(folder: str, quick: bool) -> None:
    """Check that the files of a cache or an export are unchanged.

    Read FOLDER, such as OUTPUT/ul2_corpus, or OUTPUT for everything in it, and compare checksums. List each file that differs and
    each job that is unfinished. Exit status 1 if there is any.
    """
    from ul2_tasks.inspect.verify import examine

    all_wrong = []
    for where, wrong, counts in examine(folder, quick):
        for sentence in wrong:
            click.echo(sentence if where == folder or where in sentence else f"{where}: {sentence}")
        if not wrong:
            stated = (f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items())
            click.echo(f"{where} is as it was written: " + ", ".join(stated))
        all_wrong += wrong
    _exit_with(all_wrong)


def _run(data, kind: str, **options):
    """What a run is fed, see `open_run`."""
    return open_run(data, sequence_length=lengths_of(data, kind), **options)


def _statistics(data, kind: str, examples: int, **options):
    from ul2_tasks.inspect.measure import statistics_of

    return statistics_of(data.description, lengths_of(data, kind), examples, cache_dirs=data.cache_dirs, **options)


def _records(data) -> int:
    """How many records of image rows are measured, which takes longer than examples of text."""
    return data.given.get("examples", RECORDS)


def _tell(found, as_json: bool, print_found: Callable) -> None:
    """Prints what was found, for people; or as JSON, one object or a line for each of several."""
    from rich.console import Console

    from ul2_tasks.inspect import printing

    if not as_json:
        print_found(found, Console())
    elif isinstance(found, dict) or dataclasses.is_dataclass(found):
        click.echo(printing.as_json(found), nl=False)
    else:
        printing.print_json_lines(found)


def _exit_with(problems: object) -> None:
    if problems:
        sys.exit(PROBLEMS_FOUND)
