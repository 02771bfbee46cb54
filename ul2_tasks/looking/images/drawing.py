"""Lengths of examples as SVG."""

from __future__ import annotations

from ul2_tasks.looking.statistics import Summary


def length_line(found: Summary, budget: int, height: int = 14) -> str:
    """The lengths of examples beside their budget: a line from the shortest to the longest, a bar to the percentiles, and a mark.

    The bar goes from the shortest example to the 90th percentile, the mark is the median, and the whole width is the budget.
    """
    p50, p90, _ = found.quantiles.values()
    most = max(budget, found.max)
    title = f"{found.min:,} to {found.max:,} tokens, half of them up to {p50:,.0f}, 90 % up to {p90:,.0f}, of {budget:,}"
    thinnest = most / 400
    parts = (
        _bar(found.min, max(found.max - found.min, thinnest), 6, 2, 1.0),
        _bar(found.min, max(p90 - found.min, thinnest), 3, 8, 0.45),
        _bar(p50, 2 * thinnest, 1, 12, 1.0),
    )
    return (
        f'<svg class="line" viewBox="0 0 {most} {height}" preserveAspectRatio="none" width="100%" height="{height}" role="img"'
        f' aria-label="{title}"><title>{title}</title>{"".join(parts)}</svg>'
    )


def _bar(x: float, width: float, y: int, height: int, opacity: float) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="currentColor" fill-opacity="{opacity}"/>'
