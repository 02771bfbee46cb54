"""The options that commands share: what a corpus is, what a mixture is, how long examples are."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

PRESETS = ("T5GEMMA2", "UL2", "UL2R")


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes names of files, for options whose values may also be other words."""
    return [CompletionItem(incomplete, type="file")]


def sentinels(value: str) -> int | str:
    """Parses "512" as a number; leaves any other text as it is."""
    return int(value) if value.isdecimal() else value


def chunk_tokens(value: str) -> int | dict[str, int]:
    """Parses "256" as a number, and "r1=286,r2=289" as a dictionary."""
    if value.isdecimal():
        return int(value)
    if not re.fullmatch(r"\w+=\d+(,\w+=\d+)*", value):
        raise click.BadParameter(f"got {value!r}, expected tokens, such as 256, or tokens by denoiser, such as r1=286,r2=289")
    return {name.lower(): int(tokens) for name, tokens in (pair.split("=") for pair in value.split(","))}


def eod(value: str) -> int | str:
    """Parses "2" as an id, and takes "keep"."""
    if not (value.isdecimal() or value == "keep"):
        raise click.BadParameter(f"got {value!r}, expected an id of the tokenizer, or keep")
    return int(value) if value.isdecimal() else value


def lengths(value: str) -> dict[str, int]:
    """Parses "512,512" as {"inputs": 512, "targets": 512}."""
    if not re.fullmatch(r"\d+,\d+", value):
        raise click.BadParameter(f"got {value!r}, expected the tokens of inputs and of targets, such as 512,512")
    return dict(zip(("inputs", "targets"), map(int, value.split(","))))


_SOURCE = [
    click.option(
        "--corpus",
        "spec",
        multiple=True,
        shell_complete=files,
        help="Files, folders, globs; or hf:NAME, tfds:NAME, megatron:PREFIX.",
    ),
    click.option("--text_key", help="The field, column or feature of the text.  [default: text]"),
    click.option("--id_key", help="The field, column or feature of the document's id, for --validation.  [default: the text]"),
    click.option(
        "--validation", type=float, help="The fraction of documents that becomes the split validation, by a hash of their ids."
    ),
    click.option("--corpus_format", "format", help="text, jsonl, parquet, arrow or tfrecord.  [default: by the files' names]"),
    click.option("--documents", help="What a document is in text files: a line, a paragraph or a file. They need this option."),
    click.option(
        "--eod",
        type=eod,
        metavar="ID|keep",
        help="Of megatron:PREFIX, the token that ends each document and is taken off.  [default: EOS if all have it]",
    ),
]
_REGISTER = [
    click.option(
        "--vocabulary", shell_complete=files, help="A SentencePiece .model, a tokenizer.json, a folder with one, bytes or default."
    ),
    click.option(
        "--preset", type=click.Choice(PRESETS), metavar=f"[{'|'.join(PRESETS)}]", help="The denoisers.  [default: T5GEMMA2]"
    ),
    click.option(
        "--sentinels",
        type=sentinels,
        metavar="NUMBER|NAME",
        help="How many sentinels the vocabulary is to have, or their pieces' name, such as '<unused{}>'.  [default: <extra_id_{}>]",
    ),
    click.option("--on_error", type=click.Choice(["raise", "skip"]), help="What to do with bad records.  [default: raise]"),
    click.option(
        "--chunk_tokens",
        type=chunk_tokens,
        metavar="N|NAME=N,..",
        help="The longest chunk: one number for all, or one by denoiser, such as r1=286,r2=289.",
    ),
    click.option("--separate_documents", is_flag=True, default=None, help="Put an EOS after each document."),
]
_OPTIONS = {"spec": "corpus", "format": "corpus_format"}  # where the option is named differently from the argument
_JOB = [
    click.option("--workers", type=click.IntRange(1), help="How many processes Beam's local runner uses."),
    click.option("--runner", help="Beam's runner, such as FnApiRunner. (DirectRunner first downloads a binary.)"),
    click.option(
        "--pipeline_option", multiple=True, help="Another option of Beam, such as --pipeline_option=--region=us-central1."
    ),
]


def of_a_corpus(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say what a corpus is. The command gets them as `source`, a dictionary of arguments of `open_source`."""

    @functools.wraps(command)
    def wrapped(spec, **options) -> None:
        source = {"spec": list(spec) if len(spec) > 1 else spec[0]} if spec else {}
        command(source=source | _given(options, "text_key", "id_key", "validation", "format", "documents", "eod"), **options)

    return _with(_SOURCE, wrapped)


def of_a_mixture(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the argument NAME and the options that say what it is. The command gets them as `registration`."""

    @functools.wraps(command)
    def wrapped(name: str | None, module, source, **options) -> None:
        from ul2_tasks.tasks.registration import Registration

        sys.path.insert(0, os.getcwd())  # so that --module is found here, as with `python -m`
        arguments = _given(options, "vocabulary", "preset", "sentinels", "on_error", "chunk_tokens", "separate_documents")
        name = name or ("own" if source or arguments else "ul2")
        if module and (source or arguments):
            beside = ", ".join(f"--{_OPTIONS.get(key, key)}" for key in (source | arguments))
            raise ValueError(
                f"--module says all that NAME is, so {beside} cannot go with it; say that in the module, in its register(..)"
            )
        command(registration=Registration(name, module, source, arguments), **options)

    module = click.option("--module", multiple=True, help="Module that registers NAME, instead of all these options.")
    return _with([click.argument("name", required=False), module, *_REGISTER], of_a_corpus(wrapped))


def of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Adds options for how a Beam job runs. The command gets `pipeline_options`; None where none of these options is given."""

    @functools.wraps(command)
    def wrapped(workers: int | None, runner: str | None, pipeline_option, **options) -> None:
        pipeline_options = [f"--runner={runner or 'FnApiRunner'}", *pipeline_option]
        if (workers or 1) > 1:
            pipeline_options += [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
        command(pipeline_options=pipeline_options if workers or runner or pipeline_option else None, **options)

    return _with(_JOB, wrapped)


def with_lengths(default: str) -> Callable:
    """Adds the option --lengths. The command gets `sequence_length`, a dictionary."""
    return click.option(
        "--lengths",
        "sequence_length",
        type=lengths,
        metavar="INPUTS,TARGETS",
        default=default,
        show_default=True,
        help="The budgets of inputs and targets, in tokens.",
    )


def of_examples(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --split and --seed, which say which examples are drawn."""
    return _with(
        [
            click.option("--split", default="train", show_default=True, help="The split whose documents are read."),
            click.option("--seed", type=int, default=0, show_default=True, help="Another seed draws other examples."),
        ],
        command,
    )


def with_json(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the option --json. The command gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Prints one JSON object instead, for programs.")(command)


def _with(options: list[Callable], command: Callable[..., None]) -> Callable[..., None]:
    return functools.reduce(lambda function, option: option(function), reversed(options), command)


def _given(options: dict[str, object], *names: str) -> dict[str, object]:
    """Removes the options of these names, and returns those that were given."""
    taken = {name: options.pop(name, None) for name in names}
    return {name: value for name, value in taken.items() if value is not None}
