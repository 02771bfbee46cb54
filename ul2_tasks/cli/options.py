"""The options that commands share: what the data are, how long examples are, and what a run reads."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ul2_tasks.cached import cached_property
from ul2_tasks.cli.help import headed

PRESETS = ("T5GEMMA2", "UL2", "UL2R")


def excludes(option: str, other: str) -> click.UsageError:
    """The error of an option that is given with another one."""
    return click.UsageError(f"{option} must be left out with {other}, got both. Pass one of them.")


def _wrong(option: str, expected: str, got: str) -> click.UsageError:
    return click.UsageError(f"{option} must be {expected}, got {got!r}.")


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes names of files, for options whose values may also be other words."""
    return [CompletionItem(incomplete, type="file")]


def host(value: str) -> tuple[int, int]:
    """Parses "3/64" as host, or part, 3, from 0, of 64."""
    found = re.fullmatch(r"(\d+)/(\d+)", value)
    if not found or not int(found[1]) < int(found[2]):
        raise _wrong("--host, or --part,", "an index, from 0, and how many there are, such as 3/64", value)
    return int(found[1]), int(found[2])


def steps(value: str) -> tuple[int, int]:
    """Parses "12340:12360" as the steps 12340 to 12359."""
    found = re.fullmatch(r"(\d+):(\d+)", value)
    if not found or int(found[1]) >= int(found[2]):
        raise _wrong("--skip", "a step and the step after the last, such as 12340:12360", value)
    return int(found[1]), int(found[2])


def lengths(value: str) -> dict[str, int]:
    """Parses "512,512" as {"inputs": 512, "targets": 512}, and "4096" as {"tokens": 4096}."""
    found = re.fullmatch(r"(\d+)(?:,(\d+))?", value)
    if not found:
        raise _wrong("--lengths", "the tokens of inputs and targets, such as 512,512, or of conversations, such as 4096", value)
    return {"inputs": int(found[1]), "targets": int(found[2])} if found[2] else {"tokens": int(found[1])}


_data = functools.partial(headed, "Data")
_run = functools.partial(headed, "Training run")

_DATA = [
    click.argument("name", required=False),
    _data(
        "--corpus",
        metavar="PATH|SPEC",
        multiple=True,
        shell_complete=files,
        help="Read text from files, folders, globs, hf:NAME, tfds:NAME or megatron:PREFIX. Repeatable.  [default: built-in text]",
    ),
    _data(
        "--vocabulary",
        metavar="PATH|NAME",
        shell_complete=files,
        help="Use a SentencePiece .model, a tokenizer.json, a folder with either, bytes, or default, the built-in vocabulary.",
    ),
    _data(
        "--preset",
        type=click.Choice(PRESETS),
        metavar=f"[{'|'.join(PRESETS)}]",
        help="Use the denoisers of this preset.  [default: T5GEMMA2]",
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
    _run("--exclude", metavar="LIST", shell_complete=files, help="Exclude the documents of this list."),
    _run(
        "--skip",
        type=steps,
        metavar="FIRST:STOP",
        multiple=True,
        help="Skip the steps FIRST to STOP - 1. Can be repeated.",
    ),
]


@dataclasses.dataclass(frozen=True)
class Data:
    """The data that the options of a command name.

    `name` is NAME, `arguments` are those of a `Mixture` that options give, and `lengths` are --lengths, None where they are left
    out. `given` are the parameters of the command that were given, not left to their defaults.
    """

    command: click.Command
    name: str | None
    arguments: dict[str, Any]
    lengths: dict[str, int] | None
    given: dict[str, Any]

    def describe(self, name: str | None) -> tuple[Any, str | None]:
        """What a name and the options describe, see `described.describe`. Raises a UsageError where two of them contradict."""
        from ul2_tasks.cli.described import describe

        if ".py:" in (name or "") and (own := self.given_of("corpus", "vocabulary", "preset")):
            raise click.UsageError(
                f"{', '.join(map(self.option, own))} must be left out with FILE.py:OBJECT, got both. Write the settings there."
            )
        return describe(name, **self.arguments)

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

    @property
    def is_first_look(self) -> bool:
        """Whether examples are looked at that need not be those of a run."""
        of_run = ("step", "host", "batch_size", "packed", "cache_dir", "run_dir", "exclude", "skip")
        return str(self.command.name) == "show" and not self.given_of(*of_run)

    def given_of(self, *names: str) -> list[str]:
        """Those of the parameters that were given."""
        return [name for name in names if name in self.given]

    def option(self, name: str) -> str:
        """The option of a parameter, such as --lengths of sequence_length; and NAME."""
        return "NAME" if name == "name" else next(one.opts[0] for one in self.command.params if one.name == name)


def of_data(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the argument NAME and the options that say what it is. The command gets them as `data`."""

    @functools.wraps(command)
    def wrapped(name, corpus, vocabulary, preset, sequence_length=None, **options) -> None:
        asked = {"source": list(corpus) if len(corpus) > 1 else "".join(corpus), "vocabulary": vocabulary, "denoisers": preset}
        context = click.get_current_context()
        of_line = [each for each in context.params if context.get_parameter_source(each) == ParameterSource.COMMANDLINE]
        given = {each: context.params[each] for each in of_line}
        arguments = {each: value for each, value in asked.items() if value}
        command(data=Data(context.command, name, arguments, sequence_length, given), **options)

    return _with(_DATA, wrapped)


def of_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of `open_run`, besides those of data, --lengths, --split and --seed."""
    return _with(_RUN, command)


def open_run(
    data: Data,
    run_dir: str | None,
    cache_dir: str | None,
    packed: bool = False,
    texts: Sequence[str] = (),
    is_beginning: bool = False,
    **options,
):
    """What a run is fed, an `inspect.run.Run`: as the options say, or as its folder does, which takes their place.

    `texts` are read instead of a corpus.
    """
    from ul2_tasks.cli.described import with_texts
    from ul2_tasks.inspect.run import Run, read_record, run_of

    if not run_dir:
        mixture = with_texts(data.description, texts) if texts else data.description
        return Run(mixture=mixture, cache_dirs=_checked(mixture, cache_dir), pack=packed, is_beginning=is_beginning, **options)
    record = read_record(run_dir)
    run = run_of(record, run_dir)
    given = data.given_of("packed", *options) + (data.given_of("name") if ".py:" not in (data.name or "") else [])
    if given:
        raise excludes(data.option(given[0]), "--run")
    description = data.description if ".py:" in (data.name or "") else data.describe(run.name)[0]
    run = dataclasses.replace(run, mixture=description, cache_dirs=_checked(description, cache_dir))
    run.check(record, run_dir)
    return run


def _checked(description: Any, cache_dir: str | None) -> tuple[str, ...]:
    """The folder of caches, if there is one. Raises a UsageError unless each corpus has a cache there."""
    for corpus in (part.corpus([cache_dir]) for part in (description.leaves if cache_dir else ())):
        if not corpus.is_tokens and not corpus.cache_dir:
            raise click.UsageError(
                f"--cache must be a folder that `ul2 cache` wrote, got {cache_dir!r}, which has no cache of {corpus.name}. Write"
                " it, or leave --cache out: a small corpus is tokenized into memory."
            )
    return (cache_dir,) if cache_dir else ()


def of_lengths(default: str = "512,512; for images 2048,512; for conversations no limit") -> Callable:
    """Adds the option --lengths, whose help has this default. The command has them in its `data`."""
    return click.option(
        "--lengths",
        "sequence_length",
        type=lengths,
        metavar="INPUTS,TARGETS",
        help=f"Set the lengths of inputs and targets, in tokens; or one number, of whole conversations.  [default: {default}]",
    )


def of_split(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --split."""
    return click.option("--split", default="train", show_default=True, metavar="SPLIT", help="Read this split.")(command)


def of_examples(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --split and --seed, which say which examples are drawn."""
    seed = click.option(
        "--seed", type=int, default=0, show_default=True, metavar="N", help="Seed the masking and the order of examples."
    )
    return of_split(seed(command))


def count(default: int, help: str) -> Callable:
    """Adds --count."""
    return click.option("--count", type=click.IntRange(1), metavar="N", default=default, show_default=True, help=help)


def as_json(help: str = "Print one JSON object instead, for programs.") -> Callable:
    """Adds the option --json. The command gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Adds options for how a Beam job runs. The command gets `pipeline_options`; None where none of these options is given."""

    @functools.wraps(command)
    def wrapped(workers: int | None, pipeline_option, **options) -> None:
        pipeline_options = ["--runner=FnApiRunner", *pipeline_option]
        if (workers or 1) > 1:
            pipeline_options += [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
        command(pipeline_options=pipeline_options if workers or pipeline_option else None, **options)

    job = [
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Run Apache Beam here, in this many processes."),
        click.option(
            "--pipeline_option",
            metavar="OPTION",
            multiple=True,
            help="Run Apache Beam with this option, such as --pipeline_option=--runner=DataflowRunner. Can be repeated.",
        ),
        click.option(
            "--part", type=host, metavar="I/N", help="Write part I, from 0, of N: its own shards. Run --merge when all are written."
        ),
        click.option("--merge", is_flag=True, help="Check that all parts are written, and write the manifest."),
    ]
    return _with(job, wrapped)


def _with(options: list[Callable], command: Callable[..., None]) -> Callable[..., None]:
    return functools.reduce(lambda function, option: option(function), reversed(options), command)
