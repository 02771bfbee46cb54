"""Draws bars.svg, three numbers of explanation/performance.md: `python docs/draw_bars.py`."""

import pathlib

HERE = pathlib.Path(__file__).parent
FIGURE = HERE / "bars.svg"
BARS = {"ul2_tasks": ("ul2_tasks", "#0072b2"), "NumPy": ("NumPy loop", "#e69f00"), "t5": ("t5 0.9.4 preprocessors", "#d55e00")}
LEFT, LONGEST, LINE = 190, 480, 30  # where bars begin, the longest one, and a bar with its gap, in pixels
STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .page { fill: #ffffff; stroke: #d0d7de } .bold { font-weight: bold }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .page { fill: #0d1117; stroke: #3d444d } }"""


def numbers() -> dict[str, int]:
    """The row of model features at 512 tokens."""
    lines = (HERE / "explanation" / "performance.md").read_text().splitlines()
    first = next(line for line in lines if line.startswith("| ns/token |"))
    row = next(line for line in lines if line.startswith("| model features | 512 |"))
    cells = dict(zip(first.split(" | "), row.split(" | "), strict=True))
    return {side: int(cells[side].strip("*")) for side in BARS}


def draw() -> str:
    costs = numbers()
    width, height = LEFT + LONGEST + 90, 52 + LINE * len(BARS)
    body = ['<text class="bold" x="16" y="28">CPU time per text token, cached mixture to model features of 512 tokens</text>']
    for y, (side, (name, colour)) in zip(range(44, height, LINE), BARS.items()):
        length = LONGEST * costs[side] / max(costs.values())
        body += [
            f'<text x="{LEFT - 10}" y="{y + 16}" text-anchor="end">{name}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="22" fill="{colour}"/>',
            f'<text class="bold" x="{LEFT + length + 8:.1f}" y="{y + 16}">{costs[side]} ns</text>',
        ]
    page = f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
    return "\n".join([opening, f"<style>{STYLE}</style>", page, *body, "</svg>\n"])


if __name__ == "__main__":
    FIGURE.write_text(draw())
