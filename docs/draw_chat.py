"""Draws chat.svg, what `ul2 show chat --count 1` prints: `python docs/draw_chat.py`. A test tells when it is not that."""

import io
import pathlib
import re

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

import ul2_tasks
from ul2_tasks.looking.conversations.show import show_chat

FIGURE = pathlib.Path(__file__).with_name("chat.svg")


def draw() -> str:
    console = Console(record=True, width=118, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    show_chat(ul2_tasks.register_chat(), count=1, console=console)
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # which would be downloaded
    return console.export_svg(title="ul2 show chat --count 1", code_format=without_fonts, unique_id="chat")


if __name__ == "__main__":
    FIGURE.write_text(draw())
