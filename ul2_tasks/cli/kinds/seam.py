"""What a command asks of a kind of data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import click

from ul2_tasks.cli.options import Data, open_run

if TYPE_CHECKING:
    from rich.console import Console

    from ul2_tasks.inspect.doctor import Finding
    from ul2_tasks.inspect.run import Run

LOOK = "Use `ul2 show`, `ul2 stats` or `ul2 doctor`."
LEAVE_OUT = "Leave it out."
BY_SOURCE = "Use `ul2 find --source`."
_OF_EXAMPLES = (
    *("sequence_length", "seed", "epochs", "shards", "max_examples", "max_tokens", "git_revision"),
    *("workers", "pipeline_option"),
)


class Kind(Protocol):
    """A kind of data. It has a method for each command that it supports.

    Attributes:
        name: "conversations", for example.
        cannot: what to do instead of the commands that it does not support, such as "find", of the options of commands, such as
            "show --text", and of those of all commands, such as "--seed".
        parts: the names of the classes of its descriptions.
        tells_others: the commands that look at all tasks of a mixture, of whatever kind.
    """

    name: ClassVar[str]
    cannot: ClassVar[Mapping[str, str]]
    parts: ClassVar[frozenset[str]] = frozenset()
    tells_others: ClassVar[frozenset[str]] = frozenset({"stats", "report", "doctor", "lengths"})

    def owns(self, part: Any) -> bool:
        """Whether a description is of this kind."""
        return type(part).__name__ in self.parts

    def name_of(self, data: Data) -> str:
        """What sentences call the data."""
        return data.mixture

    def refusal(self, data: Data) -> str:
        """Why it cannot do what is asked, and what to do instead; empty where it can."""
        command = str(data.command.name)
        if command in self.cannot:
            return self.unsupported(data, command, self.cannot[command])
        given = [data.option(name) for name in data.given if name != "name"]
        found = ((each, self.cannot.get(f"{command} {each}", self.cannot.get(each))) for each in given)
        return next((self.unsupported(data, f"{command} {each}", instead) for each, instead in found if instead), "")

    def unsupported(self, data: Data, asked: str, instead: str) -> str:
        """What is said of a command, or an option of one, that it does not support."""
        return f"`ul2 {asked}` does not support {self.name} ({self.name_of(data)}). {instead}"

    def lengths_of(self, data: Data) -> Mapping[str, int] | None:
        """The lengths that were given, or those of this kind. Raises a UsageError where they are of another kind."""
        raise _undone(self)

    def show(self, data: Data, as_json: bool, *, texts, step, host, count, denoisers, **options) -> None:
        """`ul2 show`: prints examples."""
        from rich.console import Console

        from ul2_tasks.inspect.printing import print_json_lines
        from ul2_tasks.inspect.show import print_shown, show

        run = self.run_of(data, texts=texts, is_beginning=data.is_first_look, **options)
        shown = show(run, step, host or (0, 1), count=count, denoisers=denoisers)
        if as_json:
            print_json_lines(shown.as_plain())
        else:
            print_shown(run, shown, Console())

    def find(self, data: Data, *, document, text, named, as_lines: bool, epochs: int, count: int, **options) -> None:
        """`ul2 find`: prints when a document is read."""
        from rich.console import Console

        from ul2_tasks.inspect.find import find, print_found
        from ul2_tasks.inspect.printing import print_json_lines

        run = self.run_of(data, **options)
        if as_lines:
            print_json_lines(find(run, named=named, epochs=epochs, count=None).as_plain())
        else:
            found = find(run, document=document, text=text, named=named, epochs=epochs, count=count)
            print_found(run, found, Console())

    def run_of(self, data: Data, **options) -> Run:
        """What a run is fed, see `open_run`."""
        return open_run(data, sequence_length=self.lengths_of(data), **options)

    def measure(self, data: Data, *, examples: int, split: str, seed: int) -> Any:
        """`ul2 stats`: the statistics, a dataclass that has `checks` and says whether they `passed`."""
        from ul2_tasks.inspect.measure import statistics_of

        lengths = self.lengths_of(data) or {}
        return statistics_of(data.description, lengths, examples, seed=seed, split=split, cache_dirs=data.cache_dirs)

    def print_statistics(self, statistics: Any, console: Console) -> None:
        """Prints them as tables."""
        from ul2_tasks.inspect.measure import print_statistics

        print_statistics(statistics, console)

    def report(self, data: Data, output: str, *, count: int, examples: int, split: str, seed: int) -> tuple[Any, os.PathLike]:
        """`ul2 report`: writes a page, and returns the statistics and its path."""
        from ul2_tasks.inspect.report import write_report
        from ul2_tasks.inspect.run import Run
        from ul2_tasks.inspect.show import show

        statistics, lengths = self.measure(data, examples=examples, split=split, seed=seed), self.lengths_of(data) or {}
        run = Run(data.description, lengths, seed=seed, split=split, cache_dirs=data.cache_dirs, is_beginning=True)
        return statistics, write_report(statistics, show(run, count=count).views, output)

    def look_at_lengths(self, data: Data) -> Any:
        """`ul2 lengths`: a dataclass that has `problems`."""
        from ul2_tasks.inspect.lengths import lengths_of

        return lengths_of(data.description, self.lengths_of(data) or {})

    def print_lengths(self, lengths: Any, console: Console) -> None:
        """Prints it as tables."""
        from ul2_tasks.inspect.lengths import print_lengths

        print_lengths(lengths, console)

    def examined(self, data: Data, split: str) -> dict[str, Any]:
        """`ul2 doctor --json`: what is examined."""
        return {"mixture": data.mixture, "split": split, "sequence_length": self.lengths_of(data)}

    def examine(self, data: Data, split: str) -> Sequence[Finding]:
        """`ul2 doctor`: the findings."""
        from ul2_tasks.inspect.doctor import examine

        return examine(data.description, self.lengths_of(data) or {}, split)

    def export(self, data: Data, output: str, *, written_as: str, cache_dirs: Sequence[str], **options) -> None:
        """`ul2 export`: writes files."""
        raise _undone(self)

    def left_out(self, parts: Sequence[Any]) -> list[str]:
        """`ul2 export --format megatron` of texts: says how what is of this kind, beside them, is exported, if it is."""
        return []


def write_examples_of(data: Data, lengths: Mapping[str, int | None], output: str, *, written_as: str, **options) -> None:
    """`ul2 export` to files of examples, which are the same for all kinds."""
    from ul2_tasks.export.write import write_examples

    write_examples(data.description, output, lengths, format=written_as, **options)


def write_tokens_of(corpora: Iterable[Any], output: str, split: str, cache_dirs: Sequence[str]) -> None:
    """`ul2 export --format megatron` of corpora whose documents are tokens."""
    from ul2_tasks.export.megatron import write_megatron

    for corpus in corpora:
        written = write_megatron(corpus, output, split, use_cached=bool(cache_dirs))
        click.echo(
            f"{written['prefix']}: {written['documents']:,} documents, {written['tokens']:,} tokens, an EOS after each document"
        )


def not_of_tokens(data: Data) -> str:
    """Why an option of `ul2 export` cannot be given with --format megatron; empty where it can."""
    if data.given.get("written_as") != "megatron" or not (given := data.given_of(*_OF_EXAMPLES)):
        return ""
    return f"{data.option(given[0])} must be left out with --format megatron, which writes tokens instead of examples."


def _undone(kind: Kind) -> NotImplementedError:
    return NotImplementedError(f"{kind.name}: a command that is neither implemented nor in `cannot`")


def of_denoisers(lengths: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """Lengths of inputs and targets. Raises a UsageError where they are those of conversations."""
    if lengths and "tokens" in lengths:
        got = str(lengths["tokens"])
        raise click.UsageError(f"--lengths must be the tokens of inputs and targets, such as 512,512, got {got!r}.")
    return lengths
