"""The commands. Each parses its options and calls the function of `ul2_tasks` that does the work."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from ul2_command.errors import PROBLEMS_FOUND, Group, plain
from ul2_command.kinds import corpora_of, kind_of, left_out, print_overview, unknown_tasks
from ul2_command.options import (
    files,
    host,
    of_a_corpus,
    of_a_job,
    of_a_mixture,
    of_a_run,
    of_examples,
    or_of_records,
    with_json,
    with_lengths,
)

EXAMPLES, SAMPLES = 4000, 8
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}

with_examples = click.option(
    "--examples", type=click.IntRange(1), default=EXAMPLES, show_default=True, help="How many mixed examples are measured."
)


@click.group(
    cls=Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": plain},
)
@click.version_option(package_name="ul2_tasks")
@click.pass_context
def main(context: click.Context) -> None:
    """UL2 pre-training data for SeqIO and t5x: look at it, check it, prepare it.

    Without a command, it shows the mixture that comes with this package, an example, and what 4,000 of them are checked for.

    NAME stands for the mixture NAME_mix. It is "ul2", which comes with this package (the default); or one that a --module
    registers; or a new one, made of the --corpus, --vocabulary and --preset that are given.

    \b
    Look at it:          ul2 show        ul2 report mine --corpus 'texts/*.jsonl' --vocabulary my.model
    Look at a run:       ul2 show --step 12345 --run my_run        ul2 find --text "some words" --run my_run
    Check it:            ul2 doctor      ul2 stats mine --module my_corpora --output stats
    Choose its lengths:  ul2 lengths --lengths 2048,512
    Prepare it:          ul2 vocab train --corpus texts --output my.model
                         ul2 cache mine --corpus texts --vocabulary my.model --output cache
    Take it elsewhere:   ul2 export mine --module my_corpora --format parquet --output examples
    """
    if context.invoked_subcommand is None:
        print_overview()


@main.command()
@or_of_records
@of_a_mixture
@with_lengths(None, shown="288,288; with --step 512,512")
@of_examples
@click.option(
    "--denoiser",
    "denoisers",
    type=str.lower,
    metavar="NAME",
    multiple=True,
    help="Only this denoiser, such as r1; can be given several times.",
)
@click.option("--count", type=click.IntRange(1), default=2, show_default=True, help="Examples of each denoiser.")
@click.option("--text", multiple=True, help="A text to show instead of a corpus; can be given several times.")
@click.option(
    "--file",
    "texts",
    type=click.File(encoding="utf-8"),
    multiple=True,
    help="A file whose text to show instead of a corpus; - is stdin.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON Lines instead, one per example: counts, ids, and segments of text.")
@click.option("--step", type=click.IntRange(0), help="Examples of the batch that takes the model from this step to the next one.")
@click.option("--host", type=host, metavar="HOST/HOSTS", help="Only what this host reads of the batch, such as 3/64.")
@of_a_run
def show(data, text, texts, as_json: bool, step: int | None, **options) -> None:
    """Shows examples of each denoiser, as text.

    Kept text is plain; each noise span has the colour of its sentinel.

    With --step they are those that a run is fed at this step, if its data have addresses: each with its number, its epoch, its
    documents and its tokens.

    \b
    ul2 show --step 12345 --batch_size 2048 --host 3/64
    ul2 show --step 12345 --run my_run --cache cache
    ul2 show --text "The quick brown fox jumps over the lazy dog." --denoiser r2 --seed 1
    ul2 show mine --corpus 'texts/*.txt' --documents paragraph --vocabulary my.model --lengths 512,512 --count 1
    ul2 show --json --count 100 > examples.jsonl
    """
    own = [*text, *(file.read() for file in texts)]
    if own and data.source:
        raise ValueError("--text and --file are instead of --corpus; give one of them")
    kind = kind_of(data)
    if step is None and (given := data.given_of("host", "batch_size", "packed", "cache_dir", "run_dir")):
        raise click.UsageError(f"{data.option(given[0])} goes with --step; give both, or neither")
    kind.show(data, as_json, texts=own, step=step, **options)


@main.command()
@of_a_mixture
@with_lengths("512,512")
@of_examples
@click.option("--document", help="Its number, from 0; CORPUS:NUMBER where the mixture has several corpora.")
@click.option("--text", help="A text to look for in all documents.")
@click.option(
    "--epochs", type=click.IntRange(1), default=1, show_default=True, help="How many epochs are looked at, from the first one."
)
@click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="How many places of the text at most.")
@of_a_run
def find(data, document: str | None, text: str | None, **options) -> None:
    """Says when a run is fed a document, or a text.

    It prints the epoch, the number, the step, the denoiser and the tokens of each example that has some of it.

    \b
    ul2 find --document 17 --batch_size 2048 --epochs 2
    ul2 find --text "returns a true value" --run my_run --cache cache
    """
    if (document is None) == (text is None):
        raise click.UsageError("it looks for --document or --text; give one of them")
    kind_of(data).find(data, document=document, text=text, **options)


@main.command()
@or_of_records
@of_a_mixture
@with_lengths("512,512")
@of_examples
@with_examples
@click.option(
    "--output", shell_complete=files, help="A folder for statistics.json, and for samples.jsonl with 8 examples of each denoiser."
)
@click.option("--json", "to_json", is_flag=True, help="Prints what statistics.json holds, instead of tables.")
def stats(data, output: str | None, to_json: bool, examples: int, **options) -> None:
    """Measures mixed examples, and checks the laws.

    It prints rates, corruption, spans, lengths, padding, packing, truncation (there must be none) and the text that denoisers
    share, each next to what the objective asks for. Exit status 1 if a law is broken.

    \b
    ul2 stats mine --corpus texts --vocabulary my.model --lengths 1024,1024 --output stats
    """
    from rich.console import Console

    from ul2_tasks.looking.printing import as_json, write_statistics

    kind = kind_of(data)
    statistics = kind.measure(data, examples=examples, **options)
    if to_json:
        click.echo(as_json(statistics), nl=False)
    else:
        kind.print_statistics(statistics, Console())
    if output:
        for path in write_statistics(statistics, kind.samples(data, SAMPLES, **options), output):
            click.echo(f"wrote {path}", err=to_json)
    _exit_if_broken(statistics)


@main.command()
@or_of_records
@of_a_mixture
@with_lengths("512,512")
@of_examples
@with_examples
@click.option(
    "--count", type=click.IntRange(1), default=SAMPLES, show_default=True, help="How many examples of each denoiser the page has."
)
@click.option("--output", shell_complete=files, default="report.html", show_default=True, help="The file to write.")
def report(data, output: str, **options) -> None:
    """Writes a page to look at in a browser.

    The page shows the mixture, what `ul2 stats` measures, plots, and examples to step through. It is one file, and needs no
    network. Exit status 1 if a law is broken.

    \b
    ul2 report mine --corpus texts --vocabulary my.model --output mine.html
    """
    from ul2_tasks.looking.page import check_path, packages

    packages()  # a package that is missing is named before the measuring, which takes long
    check_path(output)
    statistics, path = kind_of(data).report(data, output, **options)
    click.echo(f"wrote {path}")
    _exit_if_broken(statistics)


@main.command()
@of_a_mixture
@with_lengths("512,512")
@with_json
def lengths(data, as_json: bool) -> None:
    """Shows how the denoisers use the budgets, and which budgets are better.

    It prints the chunk, spans, inputs, targets, sentinels and padding of each denoiser, and then the lengths and chunk_tokens
    that waste less. Exit status 1 if a denoiser does not fit.

    \b
    ul2 lengths --lengths 2048,512
    ul2 lengths mine --preset UL2 --vocabulary my.model --lengths 1024,1024
    """
    from rich.console import Console

    kind = kind_of(data)
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
@click.option("--split", default="train", show_default=True, help="The split whose documents are examined.")
@with_json
def doctor(data, as_json: bool, split: str) -> None:
    """Looks for problems, and says what to do.

    It examines the installation, the vocabulary, the corpus and the lengths. Exit status 1 if there is a problem, else 0.
    """
    from rich.console import Console

    from ul2_tasks.looking.findings import print_findings

    kind = kind_of(data)
    findings = kind.examine(data, split)
    if as_json:
        examined = kind.examined(data, split)
        click.echo(json.dumps({**examined, "findings": list(map(dataclasses.asdict, findings))}, indent=1, ensure_ascii=False))
    else:
        print_findings(findings, Console())
    if any(finding.kind == "problem" for finding in findings):
        sys.exit(PROBLEMS_FOUND)


@main.group()
def vocab() -> None:
    """Makes vocabularies."""


@vocab.command()
@of_a_corpus
@click.option("--output", required=True, shell_complete=files, help="The file to write, such as my.model.")
@click.option("--split", default="train", show_default=True, help="The split to train on.")
@click.option("--size", type=click.IntRange(1), default=32_000, show_default=True, help="How many pieces, special ones included.")
@click.option("--model_type", type=click.Choice(["unigram", "bpe"]), default="unigram", show_default=True)
@click.option("--sentinels", type=click.IntRange(0), default=256, show_default=True, help="How many sentinels.")
@click.option(
    "--mode",
    multiple=True,
    default=["[R]", "[S]", "[X]"],
    show_default=True,
    help="The name of a mode; can be given several times.",
)
@click.option(
    "--normalization",
    type=click.Choice(["identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"]),
    default="identity",
    show_default=True,
    help="How text is changed first: identity keeps it, white space included; nmt_nfkc is T5's.",
)
@click.option(
    "--max_characters", type=click.IntRange(1), default=100_000_000, show_default=True, help="Read about so many at most."
)
def train(source: dict[str, Any], output: str, split: str, mode, **options) -> None:
    """Trains a SentencePiece model on a corpus.

    Sentinels and modes are single ids in it, to which no text is encoded. Tokens decode to the text as it was, with line feeds,
    tabs and runs of spaces, unless --normalization changes it. A model that exists is not written over.

    \b
    ul2 vocab train --corpus 'texts/*.jsonl' --size 32000 --output my.model
    """
    from ul2_tasks.sources.by_name import documents, open_source
    from ul2_tasks.vocabulary.training import train_to_file

    corpus = open_source(**{"spec": "embedded", **source})
    click.echo(train_to_file(documents(corpus, split, options["max_characters"]), output, modes=mode, **options))


@main.command()
@of_a_mixture
@click.option(
    "--output",
    required=True,
    shell_complete=files,
    help="A folder, local or remote (gs://..), which can hold the caches of several corpora.",
)
@click.option("--max_documents", type=click.IntRange(1), help="Only so many documents of each split, to try it out.")
@of_a_job
def cache(data, output: str, max_documents: int | None, pipeline_options: list[str] | None) -> None:
    """Tokenizes the corpus once, for all denoisers.

    If the mixture has several corpora, they are tokenized one after the other. Each is a Beam job, on this machine or on a cluster.
    A job that was interrupted goes on where it stopped when it is started again.
    """
    from ul2_tasks.corpus.build_cache import build

    corpora = corpora_of(data)
    described = data.described and pipeline_options is None  # workers get names: a corpus may have many files
    if not described:
        data.registration.apply()
    if left_out := unknown_tasks(data):
        click.echo(f"left out, as they are no denoising tasks: {', '.join(left_out)}; `seqio_cache_tasks` caches them", err=True)
    texts = [corpus for corpus in corpora if not corpus.is_tokens]
    if texts and len(texts) < len(corpora):
        tokens = ", ".join(corpus.name for corpus in corpora if corpus.is_tokens)
        click.echo(f"left out, as they are tokens already, which are read where they lie: {tokens}", err=True)
    for corpus in texts or corpora:
        build(
            corpus if described else corpus.name,
            output,
            max_documents=max_documents,
            **({} if described else {"prepare": data.registration.apply}),
            pipeline_options=pipeline_options,
        )


@main.command()
@of_a_mixture
@with_lengths("512,512")
@of_examples
@click.option(
    "--format",
    "written_as",
    type=click.Choice(["tfrecord", "parquet", "jsonl", "arrayrecord", "megatron"]),
    required=True,
    help="The format of the files. megatron is the tokens of the corpus instead of examples, and alone is for conversations.",
)
@click.option("--output", required=True, shell_complete=files, help="A new folder for the files, local or remote (gs://..).")
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many epochs; each ends when the first denoiser has read the whole corpus.",
)
@click.option(
    "--shards", type=click.IntRange(1), default=1, show_default=True, help="How many files; each has its own share of the corpus."
)
@click.option("--cache", "cache_dir", shell_complete=files, help="The --output of `ul2 cache`, from which to read the corpus.")
@click.option("--max_documents", type=click.IntRange(1), help="Of conversations, only so many of each split, to try it out.")
@click.option("--input_manifest", is_flag=True, help="Of conversations, refuse a folder of files without a manifest.json.")
@of_a_job
def export(data, output: str, cache_dir: str | None, **options) -> None:
    """Writes corrupted examples to files, for other trainers.

    An example has the ids of inputs and targets, which are the tokenizer's own, and the names of its denoiser and task. The files
    hold the examples that training would read, in its order. With --workers, --runner or --pipeline_option it is a Beam job. An
    export that was interrupted goes on where it stopped when it is started again.

    \b
    ul2 export --format parquet --output examples
    ul2 export mine --module my_corpora --cache cache --format tfrecord --shards 64 --workers 8 --output examples

    With --format megatron it writes the tokens of each corpus, an EOS after each document, as one pair of files that Megatron-LM
    opens; only --cache, --split and --output go with it. Of conversations it writes tokens, masks of the loss and spans, of all
    splits, a shard for each file of the corpus.
    """
    kind = kind_of(data)
    if cache_dir:
        import seqio

        seqio.add_global_cache_dirs([cache_dir])
    if options["written_as"] == "megatron":
        for sentence in left_out(kind, data):
            click.echo(sentence, err=True)
    kind.export(data, output, use_cached=bool(cache_dir), **options)


@main.command()
@click.argument("folder")
def verify(folder: str) -> None:
    """Checks that a cache or an export is as it was written.

    It reads FOLDER, such as OUTPUT/ul2_corpus, or OUTPUT for all that is in it. It names each file that differs, and says what is
    not finished. Exit status 1 if there is either.
    """
    from ul2_tasks.looking.verification import examine

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
    """Prints the script that completes commands and options in a shell.

    \b
    bash:  eval "$(ul2 completion bash)"           in ~/.bashrc
    zsh:   eval "$(ul2 completion zsh)"            in ~/.zshrc
    fish:  ul2 completion fish | source            in ~/.config/fish/config.fish
    """
    click.echo(_SHELLS[shell](main, {}, "ul2", "_UL2_COMPLETE").source())


def _exit_if_broken(statistics) -> None:
    if not statistics.holds:
        sys.exit(PROBLEMS_FOUND)
