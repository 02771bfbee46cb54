"""Draws overview.svg, what `ul2` prints: `python docs/draw_overview.py`."""

import io
import pathlib
import re

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from ul2_tasks.inspect.overview import print_overview

FIGURE = pathlib.Path(__file__).with_name("overview.svg")


def draw() -> str:
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    print_overview(console)
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # which would be downloaded
    return console.export_svg(title="ul2", code_format=without_fonts, unique_id="overview")


if __name__ == "__main__":
    FIGURE.write_text(draw())
