"""`ul2 lengths`: what each denoiser makes of the budgets, and which lengths and chunks would waste less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import seqio
from rich.console import Console
from rich.table import Table

from ul2_tasks.advice import best_chunk_tokens, best_lengths, packed_fill
from ul2_tasks.denoisers import Denoiser
from ul2_tasks.lengths import Chunk, chunk_length, sentinels_needed
from ul2_tasks.providers import DenoisingTask


def print_lengths(mixture: str, sequence_length: Mapping[str, int], console: Console) -> bool:
    """Prints a table of the mixture's denoisers, and advice; returns whether all of them fit.

    Args:
        mixture: its name, such as "ul2_mix".
        sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
        console: where to.
    """
    provider = seqio.MixtureRegistry.get(mixture)
    chunks, problems = {}, {}
    for task in provider.tasks:
        try:
            chunks[task] = task.full_chunk(sequence_length)
        except ValueError as error:
            problems[task.name] = error
    if chunks:
        console.print(_table(mixture, chunks, sequence_length), highlight=False)
    for name, problem in problems.items():
        console.print(f"[bold red]{name} does not fit:[/] {problem}", highlight=False, soft_wrap=True)
    denoisers = provider.settings.get("denoisers")  # a mixture of several corpora has none of its own
    if denoisers and not problems:
        _print_advice(denoisers, {task.denoiser.name: chunk.length for task, chunk in chunks.items()}, sequence_length, console)
    return not problems


def _table(mixture: str, chunk_of: Mapping[DenoisingTask, Chunk], sequence_length: Mapping[str, int]) -> Table:
    """A column for each task."""
    budgets = f"inputs of at most {sequence_length['inputs']:,} tokens, targets of at most {sequence_length['targets']:,}"
    table = _columns(f"{mixture}: {budgets}", "a full chunk, in tokens", [task.name for task in chunk_of])
    chunks = chunk_of.values()
    for name in ("length", "noise", "spans"):
        table.add_row(name, *(f"{getattr(chunk, name):,}" for chunk in chunks))
    for name in ("inputs", "targets"):
        table.add_row(name, *(f"{getattr(chunk, name):,}" for chunk in chunks))
        table.add_row("  of the budget", *(f"{getattr(chunk, name) / sequence_length[name]:.0%}" for chunk in chunks))
    table.add_row("sentinels needed", *(f"{sentinels_needed(task.denoiser, c.length):,}" for task, c in chunk_of.items()))
    table.add_row("  of the vocabulary's", *(f"{len(task.special_tokens().sentinels):,}" for task in chunk_of))
    return table


def _print_advice(
    denoisers: Sequence[Denoiser], chunk_tokens: Mapping[str, int], sequence_length: Mapping[str, int], console: Console
) -> None:
    """A column for each way to use as many tokens in all."""
    with console.status("packing examples of many sizes"):
        advised = best_chunk_tokens(denoisers, sequence_length)
        ways = [("as above", sequence_length, chunk_tokens), ("advised chunks", sequence_length, advised)]
        if (balanced := best_lengths(denoisers, sequence_length)) != dict(sequence_length):
            full = {denoiser.name: chunk_length(denoiser, balanced).length for denoiser in denoisers}
            ways += [("advised lengths", balanced, full), ("advised both", balanced, best_chunk_tokens(denoisers, balanced))]
        fills = [packed_fill(denoisers, lengths, chunks) for _, lengths, chunks in ways]
    table = _columns("packed rows, and the part of them that holds tokens", "", [name for name, _, _ in ways])
    table.add_row("--lengths", *("{inputs},{targets}".format_map(lengths) for _, lengths, _ in ways))
    for feature in ("inputs", "targets"):
        table.add_row(f"{feature} filled", *(f"{fill[feature]:.1%}" for fill in fills))
    for denoiser in denoisers:
        table.add_row(f"chunk_tokens {denoiser.name}", *(f"{chunks[denoiser.name]}" for _, _, chunks in ways))
    console.print(table, highlight=False)
    console.print(f"advised chunks: register(.., chunk_tokens={advised})", highlight=False, soft_wrap=True)


def _columns(title: str, first: str, names: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    return table
