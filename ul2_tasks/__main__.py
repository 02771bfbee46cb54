"""The command `ul2`, also `python -m ul2_tasks`, which without a command shows the default mixture as text."""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
from collections.abc import Callable

import click

PROBLEMS_FOUND, BAD_INPUT = 1, 2  # exit statuses

LENGTHS = "96,96"

_SOURCE = [
    click.option("--corpus", "spec", multiple=True, help="Files, folders, globs; or hf:NAME, tfds:NAME, embedded."),
    click.option("--text_key", help="Field, column or feature of the text.  [default: text]"),
    click.option("--id_key", help="Field, column or feature of the document's id, for --validation.  [default: the text]"),
    click.option("--validation", type=float, help="Fraction of the documents that are split off, by a hash of their ids."),
    click.option("--format", help="Of the files: text, jsonl, parquet, arrow, tfrecord.  [default: as their names say]"),
    click.option("--documents", help="What a document is in text files: a line, a file or a paragraph.  [default: line]"),
]
_REGISTER = [
    click.option("--vocabulary", help="A SentencePiece .model, a tokenizer.json, a folder with one, bytes or default."),
    click.option("--preset", "denoisers", type=click.Choice(["T5GEMMA2", "UL2", "UL2R"]), help="[default: T5GEMMA2]"),
    click.option("--sentinels", help="Their pieces' name, such as '<unused{}>'.  [default: <extra_id_{}>]"),
    click.option("--on_error", type=click.Choice(["raise", "skip"]), help="What becomes of bad records.  [default: raise]"),
    click.option("--chunk_tokens", type=int, help="An upper bound for the chunks."),
    click.option("--separate_documents", is_flag=True, default=None, help="An EOS after each document."),
]


def in_one_sentence(command: Callable[..., None]) -> Callable[..., None]:
    """Lets what goes wrong with a user's input end in its message, not in a traceback."""

    @functools.wraps(command)
    def wrapped(*args, **arguments) -> None:
        import tensorflow as tf

        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # it logs tracebacks of what it then raises
        try:
            command(*args, **arguments)
        except (ImportError, OSError, RuntimeError, ValueError, tf.errors.OpError) as error:
            # Beam says where in its pipeline it happened, TensorFlow in which op and Python code; none is the user's.
            inner = r"\nTraceback.*|\[while running .*|\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*"
            message = " ".join(re.sub(inner, "", str(error), flags=re.DOTALL).split())
            click.echo(f"Error: {message}", err=True)
            sys.exit(BAD_INPUT)

    return wrapped


def of_a_corpus(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what a corpus is, as the command's argument `source`: arguments of `open_source`."""

    @functools.wraps(command)
    def wrapped(spec, **options) -> None:
        source = {"spec": list(spec) if len(spec) > 1 else spec[0]} if spec else {}
        command(source=source | _given(options, "text_key", "id_key", "validation", "format", "documents"), **options)

    return functools.reduce(lambda function, option: option(function), reversed(_SOURCE), wrapped)


def of_a_mixture(command: Callable[..., None]) -> Callable[..., None]:
    """The argument NAME, and the options that say what it is, as the command's argument `registration`."""

    @functools.wraps(command)
    def wrapped(name: str, module, source, **options) -> None:
        from ul2_tasks.registration import Registration

        sys.path.insert(0, os.getcwd())  # as `python -m` has it; the script `ul2` has its own folder there
        arguments = _given(options, "vocabulary", "denoisers", "sentinels", "on_error", "chunk_tokens", "separate_documents")
        command(registration=Registration(name, module, source, arguments), **options)

    wrapped = functools.reduce(lambda function, option: option(function), reversed(_REGISTER), of_a_corpus(wrapped))
    wrapped = click.option("--module", multiple=True, help="Module that registers NAME, instead of all these options.")(wrapped)
    return click.argument("name", default="ul2")(wrapped)


def _given(options: dict[str, object], *names: str) -> dict[str, object]:
    """Takes the options of these names out, and gives those that were set."""
    taken = {name: options.pop(name, None) for name in names}
    return {name: value for name, value in taken.items() if value is not None}


def lengths(value: str) -> dict[str, int]:
    """ "512,512" as {"inputs": 512, "targets": 512}."""
    if not re.fullmatch(r"\d+,\d+", value):
        raise click.BadParameter(f"got {value!r}, expected the tokens of inputs and of targets, such as 512,512")
    return dict(zip(("inputs", "targets"), map(int, value.split(","))))


def with_lengths(default: str) -> Callable:
    """The option --lengths."""
    return click.option(
        "--lengths",
        type=lengths,
        metavar="INPUTS,TARGETS",
        default=default,
        show_default=True,
        help="Budgets of inputs and targets, in tokens.",
    )


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """UL2 pre-training data for SeqIO and t5x. Without a command: examples of the default mixture, as text."""
    if context.invoked_subcommand is None:
        context.invoke(show)


@main.command()
@of_a_mixture
@with_lengths(LENGTHS)
@in_one_sentence
def show(registration, lengths: dict[str, int]) -> None:
    """Prints examples of each denoiser of the mixture NAME_mix, as text, and the rates of 4,000 mixed ones."""
    from ul2_tasks.show import show

    show(registration.apply(), lengths)


@main.command()
@of_a_mixture
@click.option("--output", required=True, help="Folder for the caches of several corpora, local or remote (gs://..).")
@click.option("--max_documents", type=click.IntRange(1), help="At most so many documents of each split: a smoke build.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes of the local runner.")
@click.option("--runner", default="FnApiRunner", show_default=True, help="Beam's runner; DirectRunner downloads a binary first.")
@click.option("--pipeline_option", multiple=True, help="Another option of Beam, such as --pipeline_option=--region=us-central1.")
@in_one_sentence
def cache(registration, output: str, max_documents, workers: int, runner: str, pipeline_option) -> None:
    """Tokenizes the corpus of the mixture NAME_mix once, for all of its denoisers, as a Beam job.

    A job that was interrupted goes on where it stopped when it is started again.
    """
    try:
        from ul2_tasks.build_cache import build
    except ImportError as error:
        raise ImportError(f"caching needs Apache Beam ({error}); pip install 'ul2_tasks[cache]'") from error

    options = [f"--runner={runner}", *pipeline_option]
    if workers > 1:
        options += [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
    registration.apply()
    build(
        f"{registration.name}_corpus",
        output,
        max_documents=max_documents,
        prepare=registration.apply,
        pipeline_options=options,
    )


@main.command()
@click.argument("cache_dir")
@in_one_sentence
def verify(cache_dir: str) -> None:
    """Reads the cache in CACHE_DIR (such as OUTPUT/ul2_corpus) again, and names each file that is not as it was written."""
    from ul2_tasks import cache as caches

    wrong = list(caches.verify(cache_dir))
    for sentence in wrong:
        click.echo(sentence)
    if wrong:
        sys.exit(PROBLEMS_FOUND)
    totals = caches.read_manifest(cache_dir)["totals"]
    click.echo(f"{cache_dir} is as it was written: " + ", ".join(f"{count:,} {what}" for what, count in totals.items()))


@main.group()
def vocab() -> None:
    """Vocabularies."""


@vocab.command()
@of_a_corpus
@click.option("--output", required=True, help="The model's file, such as my.model.")
@click.option("--split", default="train", show_default=True, help="The split that it is trained on.")
@click.option("--size", type=click.IntRange(1), default=32_000, show_default=True, help="Pieces, special ones included.")
@click.option("--model_type", type=click.Choice(["unigram", "bpe"]), default="unigram", show_default=True)
@click.option("--sentinels", type=click.IntRange(0), default=256, show_default=True)
@click.option("--mode", multiple=True, default=["[R]", "[S]", "[X]"], show_default=True, help="The name of a mode.")
@click.option("--max_characters", type=click.IntRange(1), default=100_000_000, show_default=True, help="Read at most so many.")
@in_one_sentence
def train(source: dict[str, object], output: str, split: str, mode, **options) -> None:
    """Trains a SentencePiece model on a corpus, with sentinels and modes as single ids that no text becomes."""
    from ul2_tasks.sources import documents, open_source
    from ul2_tasks.train_vocabulary import train_to_file

    corpus = open_source(**{"spec": "embedded", **source})
    click.echo(train_to_file(documents(corpus, split), output, modes=mode, **options))


@main.command()
@of_a_mixture
@with_lengths("512,512")
@click.option("--split", default="train", show_default=True, help="The split whose documents are looked at.")
@in_one_sentence
def doctor(registration, lengths: dict[str, int], split: str) -> None:
    """Looks for problems of the installation, the vocabulary, the corpus and the lengths, and says what to do about each.

    Exit status 0 if there is none, and 1 otherwise.
    """
    from rich.console import Console

    from ul2_tasks.doctor import examine, report

    if report(examine(registration.apply(), lengths, split), Console()):
        sys.exit(PROBLEMS_FOUND)


if __name__ == "__main__":
    main()
