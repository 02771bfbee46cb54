"""The options that commands share: what a corpus is, what a mixture is, how long examples are."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ul2_tasks.cached import cached_property
from ul2_tasks.cli.help import headed

PRESETS = ("T5GEMMA2", "UL2", "UL2R")


def needs(option: str, other: str) -> click.UsageError:
    """The error of an option that is given without another one."""
    return click.UsageError(f"{option} must be given with {other}, got no {other}. Pass both, or neither.")


def excludes(option: str, other: str) -> click.UsageError:
    """The error of an option that is given with another one."""
    return click.UsageError(f"{option} must be left out with {other}, got both. Pass one of them.")


def _wrong(option: str, expected: str, got: str) -> click.UsageError:
    return click.UsageError(f"{option} must be {expected}, got {got!r}.")


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
        raise _wrong("--chunk_tokens", "a number of tokens, such as 256, or one for each denoiser, such as r1=286,r2=289", value)
    return {name.lower(): int(tokens) for name, tokens in (pair.split("=") for pair in value.split(","))}


def host(value: str) -> tuple[int, int]:
    """Parses "3/64" as host 3, from 0, of 64."""
    found = re.fullmatch(r"(\d+)/(\d+)", value)
    if not found or not int(found[1]) < int(found[2]):
        raise _wrong("--host", "the index of a host, from 0, and the number of hosts, such as 3/64", value)
    return int(found[1]), int(found[2])


def steps(value: str) -> tuple[int, int]:
    """Parses "12340:12360" as the steps 12340 to 12359."""
    found = re.fullmatch(r"(\d+):(\d+)", value)
    if not found or int(found[1]) >= int(found[2]):
        raise _wrong("--skip", "a step and the step after the last, such as 12340:12360", value)
    return int(found[1]), int(found[2])


def position_embeddings(value: str) -> tuple[int, int]:
    """Parses "70,64" as two numbers."""
    found = re.fullmatch(r"(\d+),(\d+)", value)
    if not found:
        raise _wrong("--position_embeddings", "patches per side for ViT and VAE, such as 70,64", value)
    return int(found[1]), int(found[2])


def lengths(value: str) -> dict[str, int]:
    """Parses "512,512" as {"inputs": 512, "targets": 512}, "4096" as {"tokens": 4096}, and three as those of image-text records."""
    if value.isdecimal():
        return {"tokens": int(value)}
    if re.fullmatch(r"\d+,\d+,\d+", value):
        return dict(zip(("tokens", "vit", "vae"), map(int, value.split(","))))
    if not re.fullmatch(r"\d+,\d+", value):
        raise _wrong("--lengths", "the tokens of inputs and targets, such as 512,512, or of conversations, such as 4096", value)
    return dict(zip(("inputs", "targets"), map(int, value.split(","))))


_corpus = functools.partial(headed, "Corpus")
_mixture = functools.partial(headed, "Mixture")
_chat = functools.partial(headed, "Conversations")
_images = functools.partial(headed, "Image-text records")
_run = functools.partial(headed, "Training run")
_texts = functools.partial(headed, "Texts of a file")
_beam = functools.partial(headed, "Beam job")

_SOURCE = [
    _corpus(
        "--corpus",
        "spec",
        metavar="PATH|SPEC",
        multiple=True,
        shell_complete=files,
        help="Read files, folders or globs, or hf:NAME, tfds:NAME, megatron:PREFIX. Can be repeated.  [default: a built-in corpus]",
    ),
    _corpus("--text_key", metavar="KEY", help="Read the text from this field, column or feature.  [default: text]"),
    _corpus("--id_key", metavar="KEY", help="Read document ids from this field, for --validation.  [default: hash the text]"),
    _corpus(
        "--validation",
        type=float,
        metavar="FRACTION",
        help="Hold out this fraction of the documents as the split validation, chosen by a hash of their ids.  [default: none]",
    ),
    _corpus(
        "--documents",
        metavar="UNIT",
        help="Split text files into documents, one per line, paragraph or file. Required for text files.",
    ),
]
_REGISTER = [
    _mixture(
        "--vocabulary",
        metavar="PATH|NAME",
        shell_complete=files,
        help="Use a SentencePiece .model, a tokenizer.json, a folder with either, bytes, or default, the built-in vocabulary.",
    ),
    _mixture(
        "--preset",
        type=click.Choice(PRESETS),
        metavar=f"[{'|'.join(PRESETS)}]",
        help="Use the denoisers of this preset.  [default: T5GEMMA2]",
    ),
    _mixture(
        "--sentinels",
        type=sentinels,
        metavar="N|PATTERN",
        help="Give the vocabulary at least N sentinels, or name those that it has, such as '<unused{}>'.  [default: <extra_id_{}>]",
    ),
    _mixture(
        "--on_error",
        type=click.Choice(["raise", "skip"]),
        help="Raise an error at a bad record, or skip and count it.  [default: raise]",
    ),
    _mixture(
        "--chunk_tokens",
        type=chunk_tokens,
        metavar="N|NAME=N,..",
        help="Limit chunks to N tokens, for all denoisers or for each, such as r1=286,r2=289.  [default: what --lengths hold]",
    ),
]
_CHAT = [
    _chat(
        "--renderer",
        metavar="SPEC",
        shell_complete=files,
        help="Read NAME as conversations, rendered by harmony, harmony:PATH (a vocabulary) or template:FOLDER (a chat template).",
    ),
]
_RUN = [
    _run(
        "--batch_size",
        type=click.IntRange(1),
        metavar="N",
        help="Set the global batch size, in examples, or with --packed in packed sequences.",
    ),
    _run("--packed", is_flag=True, help="Read several examples per sequence, as a run with packing does."),
    _run("--cache", "cache_dir", metavar="FOLDER", shell_complete=files, help="Read the corpus from this --output of `ul2 cache`."),
    _run(
        "--run",
        "run_dir",
        metavar="FOLDER",
        shell_complete=files,
        help="Take NAME, lengths, split, seed, batch size, packing, --exclude and --skip from ul2_run.json in a run's folder.",
    ),
    _run(
        "--exclude",
        metavar="LIST",
        shell_complete=files,
        help="Exclude the documents of this list.",
    ),
    _run(
        "--skip",
        type=steps,
        metavar="FIRST:STOP",
        multiple=True,
        help="Skip the steps FIRST to STOP - 1. Can be repeated.",
    ),
]
_TEXTS = [
    _texts(
        "--texts",
        metavar="FILE",
        shell_complete=files,
        help="Find all texts of this file: lines of .txt, or records of JSON Lines or Parquet.",
    ),
    _texts("--field", "keys", metavar="KEY", multiple=True, help="Take texts from this field. Can be repeated.  [default: text]"),
    _texts("--ngram", "n", type=click.IntRange(2), metavar="N", default=13, show_default=True, help="Look for N tokens in a row."),
    _texts("--output", metavar="LIST.jsonl", shell_complete=files, help="Write the documents that contain texts to this file."),
]
_RECORDS = [
    _images(
        "--schema",
        metavar="KIND|MODULE:FUNCTION",
        help="Read the corpus as image-text records, laid out by t2i_pretrain, unified_edit, vlm_sft, or your own function.",
    ),
    _images(
        "--folder", metavar="FOLDER", shell_complete=files, help="Look for images in this folder.  [default: the records' folder]"
    ),
    _images(
        "--position_embeddings",
        type=position_embeddings,
        metavar="VIT,VAE",
        help="Set the patches per side of the model's position-embedding tables, such as 70,64.",
    ),
]
_OF_RECORDS = ("schema", "folder", "position_embeddings", "record")
_OF_TEXTS = ("vocabulary", "preset", "sentinels", "on_error", "chunk_tokens")
_JOB = [
    _beam("--workers", type=click.IntRange(1), metavar="N", help="Run Beam's local runner in this many processes."),
    _beam("--runner", metavar="NAME", help="Use this Beam runner, such as FnApiRunner. (DirectRunner first downloads a binary.)"),
    _beam(
        "--pipeline_option",
        metavar="OPTION",
        multiple=True,
        help="Pass this option to Beam, such as --pipeline_option=--region=us-central1. Can be repeated.",
    ),
]


def of_a_corpus(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say what a corpus is. The command gets them as `source`, a dictionary of arguments of `open_source`."""

    @functools.wraps(command)
    def wrapped(spec, **options) -> None:
        source = {"spec": list(spec) if len(spec) > 1 else spec[0]} if spec else {}
        command(source=source | _given(options, "text_key", "id_key", "validation", "documents"), **options)

    return _with(_SOURCE, wrapped)


@dataclasses.dataclass(frozen=True)
class Data:
    """The data that the options of a command name.

    `name` is NAME, and `lengths` are --lengths, or its default; for `modules`, `source` and `arguments` see `described.describe`.
    `given` are the parameters of the command that were given, not left to their defaults.
    """

    command: click.Command
    name: str | None
    lengths: dict[str, int] | None
    modules: Sequence[str]
    source: dict[str, Any]
    arguments: dict[str, Any]
    given: dict[str, Any]

    def describe(self, name: str | None) -> tuple[Any, str | None]:
        """What a name and the options describe, see `described.describe`. Raises a UsageError where two of them contradict."""
        from ul2_tasks.cli.described import describe

        if alone := self.given_of("folder", "position_embeddings", "record"):
            raise needs(self.option(alone[0]), "--schema")
        wrong = [key for key in self.arguments if key not in ("renderer", "on_error")]
        if "renderer" in self.arguments and wrong:
            raise excludes(f"--{wrong[0]}", "--renderer")
        own = self.source | self.arguments
        if own and (self.modules or ".py:" in (name or "")):
            beside, what = ", ".join(map(self.option, own)), "--module" if self.modules else "FILE.py:OBJECT"
            raise click.UsageError(f"{beside} must be left out with {what}, got both. Pass the settings to the object in Python.")
        sys.path.insert(0, os.getcwd())  # so that --module is found here, as with `python -m`
        return describe(name or ("own" if own else "ul2"), self.modules, self.source, self.arguments)

    @cached_property
    def in_modules(self) -> list[Any]:
        """What the modules have under NAME. They are imported."""
        sys.path.insert(0, os.getcwd())  # as above
        return [found for each in self.modules if (found := getattr(importlib.import_module(each), self.name or "", None))]

    @cached_property
    def _described(self) -> tuple[Any, str | None]:
        return self.describe(self.name)

    @property
    def description(self) -> Any:
        """What is described."""
        return self._described[0]

    @property
    def format(self) -> str | None:
        """The format of conversations that NAME asks for; None where it leaves that open."""
        return self._described[1]

    @property
    def mixture(self) -> str:
        """What it is called."""
        from ul2_tasks.cli.described import name_in

        return name_in(*self._described)

    @property
    def cache_dirs(self) -> list[str]:
        """The folders that its caches may be in."""
        return [self.given["cache_dir"]] if "cache_dir" in self.given else []

    def given_of(self, *names: str) -> list[str]:
        """Those of the parameters that were given."""
        return [name for name in names if name in self.given]

    def option(self, name: str) -> str:
        """The option of a parameter, such as --lengths of sequence_length."""
        return next(one.opts[0] for one in self.command.params if one.name == name)


def of_a_mixture(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the argument NAME and the options that say what it is. The command gets them as `data`."""

    @functools.wraps(command)
    def wrapped(name: str | None, module, source, sequence_length=None, **options) -> None:
        arguments = _given(options, *_OF_TEXTS, "renderer")
        _given(options, *_OF_RECORDS)  # which are in `given`
        context = click.get_current_context()
        of_line = [each for each in context.params if context.get_parameter_source(each) == ParameterSource.COMMANDLINE]
        given = {each: context.params[each] for each in of_line}
        command(data=Data(context.command, name, sequence_length, module, source, arguments, given), **options)

    module = _mixture(
        "--module", metavar="MODULE", multiple=True, help="Import this module, which has or registers NAME. Can be repeated."
    )
    return _with([click.argument("name", required=False), module, *_REGISTER, *_CHAT], of_a_corpus(wrapped))


def or_of_records(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that name image-text records, instead of a mixture."""
    return _with(_RECORDS, command)


def with_record(what: str) -> Callable:
    """Adds the option --record, which is among what was given. `what` is what the command does with the record."""
    return _images("--record", metavar="NAME", help=what)


def of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Adds options for how a Beam job runs. The command gets `pipeline_options`; None where none of these options is given."""

    @functools.wraps(command)
    def wrapped(workers: int | None, runner: str | None, pipeline_option, **options) -> None:
        pipeline_options = [f"--runner={runner or 'FnApiRunner'}", *pipeline_option]
        if (workers or 1) > 1:
            pipeline_options += [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
        command(pipeline_options=pipeline_options if workers or runner or pipeline_option else None, **options)

    return _with(_JOB, wrapped)


def of_texts(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of `looking.contamination.find_texts`. The command gets them as `of_texts`, or None without --texts."""
    names = ("keys", "n", "output")

    @functools.wraps(command)
    def wrapped(data: Data, texts: str | None, **options) -> None:
        if texts is None and (alone := data.given_of(*names)):
            raise needs(data.option(alone[0]), "--texts")
        of_file = {"path": texts} | {name: options.pop(name) for name in names}
        command(data=data, of_texts=of_file if texts is not None else None, **options)

    return _with(_TEXTS, wrapped)


def of_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of `open_run`, besides those of a mixture, --lengths, --split and --seed."""
    return _with(_RUN, command)


def open_run(data: Data, run_dir: str | None, cache_dir: str | None, packed: bool, **options):
    """What a run is fed, an `inspect.run.Run`: as the options say, or as its folder does, beside which none may differ."""
    from ul2_tasks.inspect.run import Run, read_record, run_of

    if not run_dir:
        return Run(mixture=data.description, cache_dirs=_checked(data.description, cache_dir), pack=packed, **options)
    record = read_record(run_dir)
    run = run_of(record, run_dir)
    recorded = {"name": run.name, "packed": run.pack} | {name: getattr(run, name) for name in options}
    for name in data.given_of(*recorded):
        got = data.given[name]
        is_same = recorded[name] == got if name != "name" else ".py:" in got or run.name in _names_of(got)
        if not is_same:
            option = "NAME" if name == "name" else data.option(name)
            raise click.UsageError(
                f"{option} must be {recorded[name]!r}, as the run in {run_dir} recorded it, got {got!r}. Leave it out."
            )
    description = data.description if ".py:" in (data.name or "") else data.describe(run.name)[0]
    run = dataclasses.replace(run, mixture=description, cache_dirs=_checked(description, cache_dir))
    run.check(record, run_dir)
    return run


def _names_of(name: str) -> list[str]:
    """The names that NAME may stand for."""
    return [name, *(f"{name}_{end}" for end in ("mix", "chat", "prompt_completion"))]


def _checked(description: Any, cache_dir: str | None) -> tuple[str, ...]:
    """The folder of caches, if there is one. Raises a UsageError unless each corpus has a cache there."""
    for corpus in (part.corpus([cache_dir]) for part in (description.leaves if cache_dir else ())):
        if not corpus.is_tokens and not corpus.cache_dir:
            raise click.UsageError(
                f"--cache must be a folder that `ul2 cache` wrote, got {cache_dir!r}, which has no cache of {corpus.name}. Write"
                " it, or leave --cache out: a small corpus is tokenized into memory."
            )
    return (cache_dir,) if cache_dir else ()


def with_lengths(default: str | None, shown: str = "", without_records: bool = False) -> Callable:
    """Adds the option --lengths, whose help has `shown` as the default. The command has them in its `data`."""
    records = "" if without_records else ", and image-text records three: tokens, ViT and VAE patches"
    more = f" Conversations have one{records}."
    return click.option(
        "--lengths",
        "sequence_length",
        type=lengths,
        metavar="INPUTS,TARGETS",
        default=default,
        help=f"Set the lengths of inputs and targets, in tokens.{more}  [default: {shown or default}]",
    )


def of_examples(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --split and --seed, which say which examples are drawn."""
    return _with(
        [
            click.option("--split", default="train", show_default=True, metavar="SPLIT", help="Read this split of the corpus."),
            click.option(
                "--seed", type=int, default=0, show_default=True, metavar="N", help="Seed the masking and the order of examples."
            ),
        ],
        command,
    )


def with_json(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the option --json. The command gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead, for programs.")(command)


def _with(options: list[Callable], command: Callable[..., None]) -> Callable[..., None]:
    return functools.reduce(lambda function, option: option(function), reversed(options), command)


def _given(options: dict[str, object], *names: str) -> dict[str, object]:
    """Removes the options of these names, and returns those that were given."""
    taken = {name: options.pop(name, None) for name in names}
    return {name: value for name, value in taken.items() if value is not None}
