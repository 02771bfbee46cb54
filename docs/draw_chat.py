"""Draws chat.svg, what `ul2 show chat --count 1` prints: `python docs/draw_chat.py`."""

import io
import pathlib
import re

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

import ul2_tasks
from ul2_tasks.inspect.run import Run
from ul2_tasks.inspect.show import print_shown, show

FIGURE = pathlib.Path(__file__).with_name("chat.svg")
# The command's colours can be read on light and on dark terminals; these stand out more on the figure's dark one.
BRIGHT = {"#d700af": "#ff87d7", "#008700": "#5fd75f", "#0087af": "#5fc9ff", "#af5f00": "#ffaf5f", "#875fd7": "#c0a0ff"}


def draw() -> str:
    console = Console(record=True, width=98, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    run = Run(ul2_tasks.Chat("chat"), {"tokens": None}, is_beginning=True)
    print_shown(run, show(run, count=1), console)
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # which would be downloaded
    figure = console.export_svg(title="ul2 show chat --count 1", code_format=without_fonts, unique_id="chat")
    return re.sub("|".join(BRIGHT), lambda colour: BRIGHT[colour[0]], figure)


if __name__ == "__main__":
    FIGURE.write_text(draw())
