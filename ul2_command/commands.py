"""The commands. Each parses its options and calls the function of `ul2_tasks` that does the work."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from ul2_command import pictures
from ul2_command.errors import PROBLEMS_FOUND, Group, plain
from ul2_command.options import (
    files,
    given_of,
    host,
    of_a_corpus,
    of_a_job,
    of_a_mixture,
    of_a_run,
    of_examples,
    open_run,
    with_json,
    with_lengths,
)

EXAMPLES, SAMPLES = 4000, 8
_NO_NUMBERS = "whose examples have no numbers"
_LOOK_AT_IT = "`ul2 show`, `ul2 stats` and `ul2 doctor` look at it"
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
SHOWN = {"inputs": 288, "targets": 288}  # long enough for two spans of 32 tokens in a chunk at a rate of 0.15
TRAINED = {"inputs": 512, "targets": 512}

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

    Without a command, it shows examples of the mixture that comes with this package, and statistics of 4,000 of them.

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
        for command in (show, stats):
            command.main([], prog_name=f"ul2 {command.name}", standalone_mode=False)


@main.command()
@pictures.or_pictures(pictures.show, "count", "as_json")
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
def show(registration, text, texts, denoisers, as_json: bool, step: int | None, count: int, sequence_length, **options) -> None:
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
    from ul2_tasks.inspection import show as shows
    from ul2_tasks.tasks.registration import with_texts

    chosen: dict[str, Any] = {"denoisers": denoisers or None, "count": count}
    of_step = {name: options.pop(name) for name in ("host", "batch_size", "packed", "cache_dir", "run_dir")}
    own = [*text, *(file.read() for file in texts)]
    if own and registration.source:
        raise ValueError("--text and --file are instead of --corpus; give one of them")
    if step is not None:
        _check_lengths(sequence_length)
        if own:
            raise ValueError("--text and --file are instead of what a run is fed; give them or --step")
        _refuse_others(registration.apply(), _NO_NUMBERS, _NO_NUMBERS)
        of_host = of_step.pop("host")
        run = open_run(registration, sequence_length=sequence_length or TRAINED, **of_step, **options)
        (shows.show_step_json if as_json else shows.show_step)(run, step, of_host, **chosen)
        return
    if given := list(given_of(*of_step)):
        raise click.UsageError(f"--{given[0].removesuffix('_dir')} goes with --step; give both, or neither")
    mixture = registration.apply()
    if _is_chat(mixture, sequence_length):
        from ul2_tasks.inspection.chat_show import show_chat, show_chat_json

        if own or denoisers:
            raise click.UsageError(f"{mixture} is conversations, which have no denoiser and no --text; leave them out")
        (show_chat_json if as_json else show_chat)(mixture, sequence_length, count=count, **options)
        return
    if _is_of_pictures(mixture):
        from ul2_tasks.inspection.picture_task_show import show_picture_tasks, show_picture_tasks_json

        if own:
            raise click.UsageError(f"{mixture} is texts with pictures, and --text has none; leave it out")
        shown = show_picture_tasks_json if as_json else show_picture_tasks
        shown(mixture, sequence_length or _picture_lengths(mixture), **chosen, **options)
        return
    mixture = with_texts(mixture, own) if own else mixture
    (shows.show_json if as_json else shows.show)(mixture, sequence_length or SHOWN, **chosen, **options)


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
def find(registration, document: str | None, text: str | None, epochs: int, count: int, **options) -> None:
    """Says when a run is fed a document, or a text.

    It prints the epoch, the number, the step, the denoiser and the tokens of each example that has some of it.

    \b
    ul2 find --document 17 --batch_size 2048 --epochs 2
    ul2 find --text "returns a true value" --run my_run --cache cache
    """
    from ul2_tasks.inspection.find import find as find_in

    _check_lengths(options["sequence_length"])
    if (document is None) == (text is None):
        raise click.UsageError("it looks for --document or --text; give one of them")
    _refuse_others(registration.apply(), _NO_NUMBERS, _NO_NUMBERS)
    find_in(open_run(registration, **options), document, text, epochs=epochs, count=count)


@main.command()
@pictures.or_pictures(pictures.stats, "examples", "to_json")
@of_a_mixture
@with_lengths("512,512")
@of_examples
@with_examples
@click.option(
    "--output", shell_complete=files, help="A folder for statistics.json, and for samples.jsonl with 8 examples of each denoiser."
)
@click.option("--json", "to_json", is_flag=True, help="Prints what statistics.json holds, instead of tables.")
def stats(registration, sequence_length, output: str | None, to_json: bool, **options) -> None:
    """Measures mixed examples, and checks the laws.

    It prints rates, corruption, spans, lengths, padding, packing, truncation (there must be none) and the text that denoisers
    share, each next to what the objective asks for. Exit status 1 if a law is broken.

    \b
    ul2 stats mine --corpus texts --vocabulary my.model --lengths 1024,1024 --output stats
    """
    from rich.console import Console

    from ul2_tasks.inspection.printing import as_json
    from ul2_tasks.inspection.statistics_table import print_statistics, write_statistics
    from ul2_tasks.statistics.measure import measure

    mixture = registration.apply()
    if _is_chat(mixture, sequence_length):
        _stats_of_chat(mixture, output, to_json, **options)
        return
    if _is_of_pictures(mixture):
        _stats_of_pictures(mixture, output, to_json, **options)
        return
    statistics = measure(mixture, sequence_length, **options)
    if to_json:
        click.echo(as_json(statistics), nl=False)
    else:
        print_statistics(statistics, Console())
    if output:
        for path in write_statistics(statistics, _samples(mixture, sequence_length, options), output):
            click.echo(f"wrote {path}", err=to_json)
    _exit_if_broken(statistics)


@main.command()
@pictures.or_pictures(pictures.report, "examples", "count", "output")
@of_a_mixture
@with_lengths("512,512")
@of_examples
@with_examples
@click.option(
    "--count", type=click.IntRange(1), default=SAMPLES, show_default=True, help="How many examples of each denoiser the page has."
)
@click.option("--output", shell_complete=files, default="report.html", show_default=True, help="The file to write.")
def report(registration, sequence_length, count: int, output: str, **options) -> None:
    """Writes a page to look at in a browser.

    The page shows the mixture, what `ul2 stats` measures, plots, and examples to step through. It is one file, and needs no
    network. Exit status 1 if a law is broken.

    \b
    ul2 report mine --corpus texts --vocabulary my.model --output mine.html
    """
    from ul2_tasks.inspection.page import check_path, packages
    from ul2_tasks.inspection.report import advise, write_report
    from ul2_tasks.statistics.measure import measure

    packages()  # a package that is missing is named before the measuring, which takes long
    check_path(output)
    mixture = registration.apply()
    if _is_chat(mixture, sequence_length):
        from ul2_tasks.inspection.chat_report import write_chat_report
        from ul2_tasks.inspection.chat_show import draw_chat
        from ul2_tasks.statistics.chat_measure import measure_chat

        lengths, drawn = _chat_lengths(), {name: options[name] for name in ("split", "seed")}
        measured = measure_chat(mixture, lengths, split=options["split"], examples=options["examples"])
        click.echo(f"wrote {write_chat_report(measured, list(draw_chat(mixture, lengths, count=count, **drawn)), output)}")
        _exit_if_broken(measured)
        return
    _refuse_pictures(mixture, "of which there is no page")
    statistics = measure(mixture, sequence_length, **options)
    samples = _samples(mixture, sequence_length, options, count)
    click.echo(f"wrote {write_report(statistics, samples, output, advise(mixture, sequence_length))}")
    _exit_if_broken(statistics)


@main.command()
@of_a_mixture
@with_lengths("512,512")
@with_json
def lengths(registration, sequence_length, as_json: bool) -> None:
    """Shows how the denoisers use the budgets, and which budgets are better.

    It prints the chunk, spans, inputs, targets, sentinels and padding of each denoiser, and then the lengths and chunk_tokens
    that waste less. Exit status 1 if a denoiser does not fit.

    \b
    ul2 lengths --lengths 2048,512
    ul2 lengths mine --preset UL2 --vocabulary my.model --lengths 1024,1024
    """
    from rich.console import Console

    from ul2_tasks.inspection.length_table import look_at, print_lengths

    _check_lengths(sequence_length)
    mixture = registration.apply()
    _refuse_others(mixture, "whose chunks have no one length", "which are not cut into chunks")
    found = look_at(mixture, sequence_length)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        print_lengths(found, Console())
    if found.problems:
        sys.exit(PROBLEMS_FOUND)


@main.command()
@pictures.or_pictures(pictures.doctor, "as_json")
@of_a_mixture
@with_lengths("512,512")
@click.option("--split", default="train", show_default=True, help="The split whose documents are examined.")
@with_json
def doctor(registration, sequence_length, split: str, as_json: bool) -> None:
    """Looks for problems, and says what to do.

    It examines the installation, the vocabulary, the corpus and the lengths. Exit status 1 if there is a problem, else 0.
    """
    from rich.console import Console

    from ul2_tasks.inspection.doctor import examine
    from ul2_tasks.inspection.findings import print_findings

    mixture = registration.apply()
    if _is_chat(mixture, sequence_length):
        from ul2_tasks.inspection.chat_doctor import examine_chat

        sequence_length = _chat_lengths()
        findings = examine_chat(mixture, sequence_length, split)
    elif _is_of_pictures(mixture):
        from ul2_tasks.inspection.picture_task_doctor import examine_picture_tasks

        sequence_length = given_of("sequence_length").get("sequence_length") or _picture_lengths(mixture)
        findings = examine_picture_tasks(mixture, sequence_length, split)
    else:
        findings = examine(mixture, sequence_length, split)
    if as_json:
        examined = {"mixture": mixture, "split": split, "sequence_length": sequence_length}
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
def cache(registration, output: str, max_documents: int | None, pipeline_options: list[str] | None) -> None:
    """Tokenizes the corpus once, for all denoisers.

    If the mixture has several corpora, they are tokenized one after the other. Each is a Beam job, on this machine or on a cluster.
    A job that was interrupted goes on where it stopped when it is started again.
    """
    import seqio

    from ul2_tasks.corpus.build_cache import build
    from ul2_tasks.tasks.chat import chat_tasks
    from ul2_tasks.tasks.pictures import pictures_tasks
    from ul2_tasks.tasks.providers import denoising_tasks, other_tasks

    mixture = registration.apply()
    others: list[Any] = [*chat_tasks(mixture), *pictures_tasks(mixture)]
    if left_out := [task.name for task in other_tasks(mixture) if task not in others]:
        click.echo(f"left out, as they are no denoising tasks: {', '.join(left_out)}; `seqio_cache_tasks` caches them", err=True)
    tasks = seqio.get_subtasks(seqio.get_mixture_or_task(mixture))
    denoising = [] if len(others) == len(tasks) else denoising_tasks(mixture)
    corpora = list(dict.fromkeys([*(task.source.corpus for task in denoising), *(task.corpus for task in others)]))
    texts = [corpus for corpus in corpora if not corpus.is_tokens]
    if texts and len(texts) < len(corpora):
        tokens = ", ".join(corpus.name for corpus in corpora if corpus.is_tokens)
        click.echo(f"left out, as they are tokens already, which are read where they lie: {tokens}", err=True)
    for corpus in texts or corpora:
        build(
            corpus.name,
            output,
            max_documents=max_documents,
            prepare=registration.apply,
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
def export(registration, written_as: str, output: str, cache_dir: str | None, **options) -> None:
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
    from ul2_tasks.tasks.chat import chat_tasks

    mixture = registration.apply()
    if cache_dir:
        import seqio

        seqio.add_global_cache_dirs([cache_dir])
    of_chat = {name: options.pop(name) for name in ("max_documents", "input_manifest")}
    if [task.name for task in chat_tasks(mixture)] == [mixture]:
        _export_conversations(mixture, written_as, output, registration, bool(cache_dir), options["pipeline_options"], **of_chat)
        return
    if _is_chat(mixture, None):
        each = ", ".join(f"{task.corpus.name.removesuffix('_corpus')}_chat" for task in chat_tasks(mixture))
        raise click.UsageError(f"{mixture} is not one corpus of conversations for a decoder; export {each}")
    if given := list(given_of(*of_chat)):
        raise click.UsageError(f"--{given[0]} goes with conversations; leave it out")
    _check_lengths(options["sequence_length"])
    _refuse_pictures(mixture, "which is not exported: `ul2 cache` writes it, and training reads that (use_cached=True)")
    if written_as == "megatron":
        _export_tokens(mixture, output, options["split"], use_cached=bool(cache_dir))
        return
    from ul2_tasks.export.write import write_examples

    write_examples(mixture, output, format=written_as, use_cached=bool(cache_dir), prepare=registration.apply, **options)


@main.command()
@click.argument("folder")
def verify(folder: str) -> None:
    """Checks that a cache or an export is as it was written.

    It reads FOLDER, such as OUTPUT/ul2_corpus, or OUTPUT for all that is in it. It names each file that differs, and says what is
    not finished. Exit status 1 if there is either.
    """
    from ul2_tasks.inspection.verification import examine

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


def _samples(mixture: str, sequence_length, options, count: int = SAMPLES):
    from ul2_tasks.inspection.samples import draw

    return draw(mixture, sequence_length, count, seed=options["seed"], split=options["split"])


def _export_tokens(mixture: str, output: str, split: str, use_cached: bool) -> None:
    from ul2_tasks.export.megatron import write_megatron
    from ul2_tasks.tasks.chat import chat_tasks
    from ul2_tasks.tasks.providers import denoising_tasks, other_tasks

    none = ("sequence_length", "seed", "epochs", "shards", "workers", "runner", "pipeline_option")
    if given := list(given_of(*none)):
        option = given[0].replace("sequence_length", "lengths")
        raise click.UsageError(f"--{option} goes with examples, and --format megatron writes tokens; leave it out")
    chats = chat_tasks(mixture)
    if left_out := [task.name for task in other_tasks(mixture) if task not in chats]:
        click.echo(f"left out, as they have no corpus of texts: {', '.join(left_out)}", err=True)
    for name in dict.fromkeys(task.corpus.name.removesuffix("_corpus") for task in chats):
        click.echo(f"left out, as they are conversations: {name}_reply; `ul2 export {name}_chat` writes them, with masks", err=True)
    for corpus in {task.source.corpus.name: task.source.corpus for task in denoising_tasks(mixture)}.values():
        written = write_megatron(corpus, output, split, use_cached=use_cached)
        click.echo(
            f"{written['prefix']}: {written['documents']:,} documents, {written['tokens']:,} tokens, an EOS after each document"
        )


def _export_conversations(
    name: str, written_as: str, output: str, registration, use_cached: bool, pipeline_options, max_documents, input_manifest
) -> None:
    from ul2_tasks.export.conversations import write_conversations

    if written_as != "megatron":
        raise click.UsageError(f"--format: got {written_as!r}, and conversations are written as megatron")
    if given := list(given_of("sequence_length", "seed", "epochs", "shards", "split")):
        option = given[0].replace("sequence_length", "lengths")
        raise click.UsageError(f"--{option} goes with corrupted examples, and {name} is conversations; leave it out")
    write_conversations(
        name,
        output,
        use_cached=use_cached,
        max_conversations=max_documents,
        require_input_manifest=input_manifest,
        prepare=registration.apply,
        pipeline_options=pipeline_options,
    )


def _is_chat(name: str, sequence_length: dict[str, int] | None) -> bool:
    """Whether all that a mixture or task has is conversations. Raises a UsageError where it is not, and the lengths are theirs."""
    import seqio

    from ul2_tasks.tasks.chat import chat_tasks

    if len(chat_tasks(name)) == len(seqio.get_subtasks(seqio.get_mixture_or_task(name))):
        return True
    _check_lengths(sequence_length)
    return False


def _check_lengths(sequence_length: dict[str, int] | None) -> None:
    """Raises a UsageError where the lengths are those of conversations, and denoisers are asked for."""
    if sequence_length and "tokens" in sequence_length:
        got = str(sequence_length["tokens"])
        raise click.UsageError(f"--lengths: got {got!r}, expected the tokens of inputs and of targets, such as 512,512")


def _chat_lengths() -> dict[str, int] | None:
    """The lengths that were given; the default of denoisers says nothing of conversations."""
    return given_of("sequence_length").get("sequence_length")


def _stats_of_chat(name: str, output: str | None, to_json: bool, **options) -> None:
    from rich.console import Console

    from ul2_tasks.inspection.chat_table import print_chat
    from ul2_tasks.inspection.printing import as_json
    from ul2_tasks.statistics.chat_measure import measure_chat

    if output:
        raise click.UsageError("--output goes with denoisers; --json prints the statistics of conversations")
    statistics = measure_chat(name, _chat_lengths(), split=options["split"], examples=options["examples"])
    if to_json:
        click.echo(as_json(statistics), nl=False)
    else:
        print_chat(statistics, Console())
    _exit_if_broken(statistics)


def _is_of_pictures(name: str) -> bool:
    """Whether all that a mixture or task has is texts with pictures in places."""
    from ul2_tasks.tasks.pictures import is_of_pictures

    return is_of_pictures(name)


def _picture_lengths(name: str) -> dict[str, int]:
    """The lengths where none are given: the default of texts has no room for pictures."""
    from ul2_tasks.tasks.pictures import pictures_tasks

    return pictures_tasks(name)[0].corpus.read_as[1]


def _refuse_pictures(name: str, what: str) -> None:
    """Raises a UsageError where a mixture is texts with pictures, for a command that can say nothing of them."""
    if _is_of_pictures(name):
        raise click.UsageError(f"{name} is texts with pictures, {what}; {_LOOK_AT_IT}")


def _refuse_others(name: str, of_pictures: str, of_chat: str) -> None:
    """Raises a UsageError where a mixture is texts with pictures, or conversations, for a command that is for denoisers alone."""
    _refuse_pictures(name, of_pictures)
    if _is_chat(name, None):
        raise click.UsageError(f"{name} is conversations, {of_chat}; {_LOOK_AT_IT}")


def _stats_of_pictures(name: str, output: str | None, to_json: bool, examples: int, **options) -> None:
    from rich.console import Console

    from ul2_tasks.inspection.picture_task_table import print_picture_tasks
    from ul2_tasks.inspection.printing import as_json
    from ul2_tasks.statistics.picture_tasks import RECORDS, measure_picture_tasks

    if output:
        raise click.UsageError("--output goes with texts alone; --json prints the statistics of texts with pictures")
    lengths = given_of("sequence_length").get("sequence_length") or _picture_lengths(name)
    records = examples if given_of("examples") else RECORDS
    statistics = measure_picture_tasks(name, lengths, records=records, **options)
    if to_json:
        click.echo(as_json(statistics), nl=False)
    else:
        print_picture_tasks(statistics, Console())
    _exit_if_broken(statistics)


def _exit_if_broken(statistics) -> None:
    if not statistics.holds:
        sys.exit(PROBLEMS_FOUND)
