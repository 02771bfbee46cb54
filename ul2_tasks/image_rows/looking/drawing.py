"""Rows of texts and images as SVG: the strip of their splits, and the attention mask."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ul2_tasks.image_rows.attention import places, sees
from ul2_tasks.image_rows.row_arrays import MODES, Row

MODE_COLOURS = {"causal": "#c77d2e", "full": "#2a8fb5", "noise": "#c2409c"}
_CAUSAL = MODES.index("causal")


def strip(row: Row, height: int = 18) -> str:
    """The splits of a row, each as long as it is, in the colour of its mode. Lines stand between samples."""
    ends = np.cumsum(row.split_lens)
    parts = []
    for start, end, mode in zip(ends - row.split_lens, ends, row.attn_modes):
        title = f"<title>{MODES[mode]}, {end - start:,} places from {start:,} on</title>"
        parts.append(f"{_rectangle(start, 0, end - start, 1, MODE_COLOURS[MODES[mode]])}{title}</rect>")
    lines = [_line(end, 0, end, 1) for end in np.cumsum(row.sample_lens)[:-1]]
    return (
        f'<svg class="strip" viewBox="0 0 {ends[-1]} 1" preserveAspectRatio="none" width="100%" height="{height}" role="img"'
        f' aria-label="splits of a row">{"".join(parts + lines)}</svg>'
    )


def mask(row: Row, side: int = 220) -> str:
    """The attention mask of a row: queries from top to bottom, keys from left to right.

    As all places of a split are alike to those of another, it is drawn split by split, and exact for a row of any length.
    """
    length = int(row.split_lens.sum())
    lines = [_line(0, end, length, end) + _line(end, 0, end, length) for end in np.cumsum(row.sample_lens)[:-1]]
    return (
        f'<svg class="mask" viewBox="0 0 {length} {length}" width="{side}" height="{side}" role="img"'
        f' aria-label="attention mask">{"".join([*_blocks(row), *lines])}</svg>'
    )


def _blocks(row: Row) -> Iterator[str]:
    found = places(row.sample_lens, row.split_lens, row.attn_modes)
    ends = np.cumsum(row.split_lens).tolist()
    starts = [0, *ends[:-1]]
    for number, (top, bottom, mode) in enumerate(zip(starts, ends, row.attn_modes.tolist())):
        colour = MODE_COLOURS[MODES[mode]]
        for left, right in zip(starts[:number], ends[:number]):
            if sees(found, np.array(top), np.array(left)):
                yield f"{_rectangle(left, top, right - left, bottom - top, colour, 0.55)}</rect>"
        if mode == _CAUSAL:
            yield f'<polygon points="{top},{top} {top},{bottom} {bottom},{bottom}" fill="{colour}"/>'
        else:
            yield f"{_rectangle(top, top, bottom - top, bottom - top, colour)}</rect>"


def _rectangle(x: int, y: int, width: int, height: int, colour: str, opacity: float = 1.0) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}" fill-opacity="{opacity}">'


def _line(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<path d="M{x1} {y1}L{x2} {y2}" stroke="currentColor" vector-effect="non-scaling-stroke"/>'
