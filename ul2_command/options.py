"""The options that commands share: what a corpus is, what a mixture is, how long examples are."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource
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


def host(value: str) -> tuple[int, int]:
    """Parses "3/64" as host 3, from 0, of 64."""
    found = re.fullmatch(r"(\d+)/(\d+)", value)
    if not found or not int(found[1]) < int(found[2]):
        raise click.BadParameter(f"got {value!r}, expected a host, from 0, and how many there are, such as 3/64")
    return int(found[1]), int(found[2])


def spans(value: str) -> str | dict[str, int]:
    """Parses "assistant/final=2,assistant/analysis=1" as a dictionary; leaves the name of a preset as it is."""
    if "=" not in value:
        return value
    if not re.fullmatch(r"[\w/>]+=\d+(,[\w/>]+=\d+)*", value):
        raise click.BadParameter(f"got {value!r}, expected a preset, or spans by kind, such as assistant/final=2")
    return {kind: int(span) for kind, span in (pair.split("=") for pair in value.split(","))}


def tables(value: str) -> tuple[int, int]:
    """Parses "70,64" as two numbers."""
    found = re.fullmatch(r"(\d+),(\d+)", value)
    if not found:
        raise click.BadParameter(f"got {value!r}, expected the sides of the tables of the ViT and of latents, such as 70,64")
    return int(found[1]), int(found[2])


def lengths(value: str) -> dict[str, int]:
    """Parses "512,512" as {"inputs": 512, "targets": 512}, "4096" as {"tokens": 4096}, and three numbers as those of pictures."""
    if value.isdecimal():
        return {"tokens": int(value)}
    if re.fullmatch(r"\d+,\d+,\d+", value):
        return dict(zip(("tokens", "vit", "vae"), map(int, value.split(","))))
    if not re.fullmatch(r"\d+,\d+", value):
        raise click.BadParameter(
            f"got {value!r}, expected the tokens of inputs and of targets, such as 512,512, or of conversations, such as 4096"
        )
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
_CHAT = [
    click.option(
        "--renderer",
        shell_complete=files,
        help="NAME is conversations: harmony, harmony:PATH (its file, or any --vocabulary), or template:FOLDER.",
    ),
    click.option("--messages_key", help="The field or column of the messages.  [default: messages]"),
    click.option("--spans", type=spans, metavar="PRESET|KIND=N,..", help="What is learned.  [default: harmony_tools]"),
    click.option("--supervise", type=click.Choice(["whole", "sampled", "content"]), help="What of a message.  [default: whole]"),
    click.option("--turns", type=click.Choice(["all", "last", "each"]), help="Which turns make an example.  [default: all]"),
    click.option("--too_long", type=click.Choice(["raise", "drop", "oldest"]), help="What becomes of one.  [default: raise]"),
    click.option("--mode", help="The piece before the inputs of NAME_reply, such as '[S]'."),
]
_RUN = [
    click.option(
        "--batch_size", type=click.IntRange(1), help="The examples of a step, or with --packed the rows, on all hosts together."
    ),
    click.option("--packed", is_flag=True, help="Of a run that packs examples into rows."),
    click.option("--cache", "cache_dir", shell_complete=files, help="The --output of `ul2 cache`, from which the run reads."),
    click.option(
        "--run",
        "run_dir",
        shell_complete=files,
        help="The folder of a run: its ul2_run.json has NAME, lengths, split, seed, batch size and whether rows are packed.",
    ),
]
_RECORDS = [
    click.option(
        "--plan",
        metavar="KIND|MODULE:FUNCTION",
        help="NAME is texts and pictures: t2i_pretrain, unified_edit, vlm_sft, or a plan of one's own.",
    ),
    click.option("--folder", shell_complete=files, help="Where the paths of pictures in records begin.  [default: their file's]"),
    click.option(
        "--tables", type=tables, metavar="VIT,VAE", help="The sides of the model's tables of patch positions, such as 70,64."
    ),
]
_OF_RECORDS = ("plan", "folder", "tables")
_OF_TEXTS = ("vocabulary", "preset", "sentinels", "on_error", "chunk_tokens", "separate_documents")
_OF_CHAT = ("renderer", "messages_key", "spans", "supervise", "turns", "too_long", "mode")
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


@dataclasses.dataclass(frozen=True)
class Data:
    """The data that the options of a command name.

    `name` is NAME, and `lengths` are --lengths, or its default; for `modules`, `source` and `arguments` see `Registration`. `given`
    are the parameters of the command that were given, not left to their defaults.
    """

    command: click.Command
    name: str | None
    lengths: dict[str, int] | None
    modules: Sequence[str]
    source: dict[str, Any]
    arguments: dict[str, Any]
    given: dict[str, Any]

    @functools.cached_property
    def registration(self):
        """What registers them, a `Registration`. Raises a UsageError or ValueError where two options contradict each other."""
        from ul2_tasks.tasks.registration import Registration

        if alone := self.given_of("folder", "tables"):
            raise click.UsageError(f"{self.option(alone[0])} goes with texts and pictures; give --plan, too")
        of_chat = [key for key in self.arguments if key in _OF_CHAT]
        if of_chat and "renderer" not in of_chat:
            raise click.UsageError(f"--{of_chat[0]} goes with conversations; give --renderer, too")
        if of_chat and (wrong := [key for key in self.arguments if key not in (*_OF_CHAT, "on_error")]):
            raise click.UsageError(f"--{wrong[0]} does not go with --renderer, which makes NAME conversations; leave one out")
        own = self.source | self.arguments
        if self.modules and own:
            beside = ", ".join(map(self.option, own))
            raise ValueError(
                f"--module says all that NAME is, so {beside} cannot go with it; say that in the module, in its register(..)"
            )
        sys.path.insert(0, os.getcwd())  # so that --module is found here, as with `python -m`
        return Registration(self.name or ("own" if own else "ul2"), self.modules, self.source, self.arguments)

    @functools.cached_property
    def mixture(self) -> str:
        """The name of the mixture or task, which is registered."""
        from ul2_tasks.tasks.registration import hand_over

        return self.registration.apply() if self.described is None else hand_over(self.described, self.registration)

    @functools.cached_property
    def described(self):
        """The mixture as a description, for which SeqIO need not be imported; None of what is registered elsewhere."""
        return self.registration.described

    @property
    def tasks(self) -> Sequence:
        """The tasks of the mixture; of one that is described the description alone, for which SeqIO need not be imported."""
        return self.registered_tasks if self.described is None else [self.described]

    @property
    def registered_tasks(self) -> Sequence:
        """The tasks of the mixture, which is registered."""
        import seqio

        return seqio.get_subtasks(seqio.get_mixture_or_task(self.mixture))

    @property
    def use_cached(self) -> bool:
        """Whether the corpus is read from a cache."""
        return "cache_dir" in self.given

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
        arguments = _given(options, *_OF_TEXTS, *_OF_CHAT)
        _given(options, *_OF_RECORDS)  # which are in `given`
        context = click.get_current_context()
        of_line = [each for each in context.params if context.get_parameter_source(each) == ParameterSource.COMMANDLINE]
        given = {each: context.params[each] for each in of_line}
        command(data=Data(context.command, name, sequence_length, module, source, arguments, given), **options)

    module = click.option("--module", multiple=True, help="Module that registers NAME, instead of all these options.")
    return _with([click.argument("name", required=False), module, *_REGISTER, *_CHAT], of_a_corpus(wrapped))


def or_of_records(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that name records of texts and pictures, instead of a mixture."""
    return _with(_RECORDS, command)


def of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Adds options for how a Beam job runs. The command gets `pipeline_options`; None where none of these options is given."""

    @functools.wraps(command)
    def wrapped(workers: int | None, runner: str | None, pipeline_option, **options) -> None:
        pipeline_options = [f"--runner={runner or 'FnApiRunner'}", *pipeline_option]
        if (workers or 1) > 1:
            pipeline_options += [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
        command(pipeline_options=pipeline_options if workers or runner or pipeline_option else None, **options)

    return _with(_JOB, wrapped)


def of_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of `open_run`, besides those of a mixture, --lengths, --split and --seed."""
    return _with(_RUN, command)


def open_run(data: Data, run_dir: str | None, cache_dir: str | None, packed: bool, **options):
    """What a run is fed, an `looking.run.Run`: as the options say, or as its folder does, beside which none may differ.

    It is taken as it is described, without SeqIO, if it is.
    """
    from ul2_tasks.looking.run import Run, read_record, run_of

    if not run_dir:
        return Run(**_read_by(data.registration, data.described, cache_dir), pack=packed, **options)
    record = read_record(run_dir)
    run = run_of(record)
    recorded = {"name": run.name, "packed": run.pack} | {name: getattr(run, name) for name in options}
    for name in data.given_of(*recorded):
        got = data.given[name]
        if got != recorded[name] and not (name == "name" and f"{got}_mix" == recorded[name]):
            option = "NAME" if name == "name" else data.option(name)
            raise click.UsageError(
                f"{option}: got {got!r}, expected {recorded[name]!r}, as the run in {run_dir} has it; leave it out"
            )
    registration = dataclasses.replace(data.registration, name=run.name)
    run = dataclasses.replace(run, **_read_by(registration, registration.described, cache_dir))
    run.check(record, run_dir)
    return run


def _read_by(registration: Any, described: Any, cache_dir: str | None) -> dict[str, Any]:
    """What a `Run` reads: a description and where its cache is, or the name of what is registered."""
    if described is not None:
        cache_dirs = (cache_dir,) if cache_dir else ()
        if cache_dir:
            _check_cached(cache_dir, [described.corpus(cache_dirs)])
        return {"mixture": described, "cache_dirs": cache_dirs}
    import seqio

    from ul2_tasks.tasks.providers import denoising_tasks

    name = registration.apply()
    if cache_dir:
        seqio.add_global_cache_dirs([cache_dir])
        _check_cached(cache_dir, [task.source.corpus for task in denoising_tasks(name)])
    return {"mixture": name}


def _check_cached(cache_dir: str, corpora: Sequence[Any]) -> None:
    """Raises a UsageError unless each of some corpora has a cache."""
    for corpus in corpora:
        if not corpus.is_tokens and not corpus.cache_dir:
            raise click.UsageError(
                f"--cache must be a folder that `ul2 cache` wrote, got {cache_dir!r}, which has no cache of {corpus.name}. Write"
                " it, or leave --cache out: a small corpus is tokenized into memory."
            )


def with_lengths(default: str | None, shown: str | bool = True) -> Callable:
    """Adds the option --lengths, whose help has `shown`. The command has them in its `data`."""
    return click.option(
        "--lengths",
        "sequence_length",
        type=lengths,
        metavar="INPUTS,TARGETS",
        default=default,
        show_default=shown,
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
