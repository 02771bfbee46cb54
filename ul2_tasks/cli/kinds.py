"""The kinds of data, and a table of what commands cannot do with each, with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ul2_tasks.cli.options import Data

TEXT, IMAGE_TEXT, CONVERSATIONS, IMAGE_ROWS = "text", "interleaved image-text data", "conversations", "image rows"
_KINDS = {"Mixture": TEXT, "ImageText": IMAGE_TEXT, "Chat": CONVERSATIONS, "Recipe": IMAGE_ROWS}  # by what describes them
_SHOWN = {"inputs": 288, "targets": 288}  # long enough for two spans of 32 tokens in a chunk at a rate of 0.15
_TRAINED = {"inputs": 512, "targets": 512}
_LOOK = "Use `ul2 show`, `ul2 stats` or `ul2 doctor`."
_LEAVE_OUT = "Leave it out."
_OF_ROWS = {
    "audit": "An epoch has each record once. Use `ul2 find --source`, which lists its rows.",
    "lengths": f"They have no denoisers. {_LOOK}",
    **dict.fromkeys(("schedule", "contamination"), _LOOK),
    **dict.fromkeys(("cache", "export"), f"Training reads them from their files. {_LOOK}"),
    **dict.fromkeys(("--lengths", "--seed"), "Write the settings in FILE.py."),
    **dict.fromkeys(("--split", "--cache", "--run", "--packed", "--exclude", "--skip", "--denoiser", "show --text"), _LEAVE_OUT),
    **dict.fromkeys(("--document", "--id", "--list", "find --text"), "Pass --source with the name of a record."),
}
UNSUPPORTED: Mapping[tuple[str, str], str] = {  # of a kind a command, an option of a command, or an option of all commands
    **{(kind, "show --source"): "Use `ul2 find --source`." for kind in (TEXT, IMAGE_TEXT, CONVERSATIONS)},
    **{(IMAGE_ROWS, asked): instead for asked, instead in _OF_ROWS.items()},
}
_NOT_OF_TOKENS = (  # options of `ul2 export` that are of examples
    *("sequence_length", "seed", "epochs", "shards", "max_examples", "max_tokens", "git_revision", "part", "merge"),
    *("workers", "pipeline_option"),
)


def kind_of(data: Data) -> str:
    """The kind that all that is described is of; else the first kind that some is of, which skips others.

    Raises a UsageError where the command, or an option that was given, does not support the kind.
    """
    owned = [_kind(part) for part in parts_of(data)]
    kind = owned[0] if len(set(owned)) == 1 else next(kind for kind in _KINDS.values() if kind in owned)
    command = str(data.command.name)
    keys = {command: command}
    for option in (data.option(name) for name in data.given if name != "name"):
        keys |= {f"{command} {option}": option}
    for asked, of_all in keys.items():
        if instead := UNSUPPORTED.get((kind, asked)) or UNSUPPORTED.get((kind, of_all)):
            name = data.name if kind == IMAGE_ROWS else data.mixture
            raise click.UsageError(f"`ul2 {asked}` does not support {kind} ({name}). {instead}")
    return kind


def _kind(part: Any) -> str:
    return _KINDS[type(part).__name__]


def parts_of(data: Data, kind: str | None = None) -> list[Any]:
    """The descriptions of one kind each that are mixed, all or those of a kind; or the recipe of image rows."""
    leaves = getattr(data.description, "leaves", (data.description,))
    return [part for part in leaves if kind in (None, _kind(part))]


def lengths_of(data: Data, kind: str) -> Mapping[str, Any]:
    """The lengths that were given, or those of a kind. Raises a UsageError where they are of another kind."""
    given = data.lengths
    if kind == CONVERSATIONS:
        found: dict[str, Any] = given or dict.fromkeys(("inputs", "targets") if data.format == "prompt_completion" else ("tokens",))
        keys = {"chat": ("tokens",), "prompt_completion": ("inputs", "targets")}.get(data.format or "", tuple(found))
        if tuple(found) != keys:
            expected = "one number of tokens, such as 4096" if len(keys) == 1 else "two numbers of tokens, such as 512,512"
            got = ",".join(map(str, found.values()))
            raise click.UsageError(f"--lengths must be {expected}, for {data.mixture}, got {got}.")
        return found
    if given and "tokens" in given:
        raise click.UsageError(f"--lengths must be the tokens of inputs and targets, such as 512,512, got '{given['tokens']}'.")
    if kind == IMAGE_TEXT:
        return given or parts_of(data, kind)[0].corpus().read_as[1]  # those of text are too short for images
    return given or (_SHOWN if data.is_first_look else _TRAINED)


def corpora_of_tokens(data: Data, kind: str, cache_dirs: list[str]) -> list[Any]:
    """The corpora of text whose tokens `ul2 export --format megatron` writes; says on stderr what is left out.

    Raises a UsageError where there is none, or an option is of examples.
    """
    if given := data.given_of(*_NOT_OF_TOKENS):
        raise click.UsageError(
            f"{data.option(given[0])} must be left out with --format megatron, which writes tokens instead of examples."
        )
    if kind == IMAGE_TEXT:
        raise click.UsageError(
            f"--format must be parquet or another for images, got 'megatron' for {data.mixture}. Files of Megatron-LM hold ids of"
            " tokens, and no images."
        )
    left_out = [f"images, which such files cannot hold: {part.name}." for part in parts_of(data, IMAGE_TEXT)]
    left_out += [
        f"conversations: {part.name}_prompt_completion. Run `ul2 export {part.name}_chat`, which writes loss masks, too."
        for part in parts_of(data, CONVERSATIONS)
    ]
    for sentence in left_out:
        click.echo(f"left out, because they are {sentence}", err=True)
    return list({(corpus := part.corpus(cache_dirs)).name: corpus for part in parts_of(data, TEXT)}.values())
