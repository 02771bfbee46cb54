"""Draws hero.svg, one sentence under three denoisers: `python docs/draw_hero.py`."""

import dataclasses
import pathlib
from xml.sax.saxutils import escape

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

import ul2_tasks
from ul2_tasks.inspect.readable import Stretch
from ul2_tasks.inspect.run import Run
from ul2_tasks.inspect.show import flow, show
from ul2_tasks.inspect.view import View
from ul2_tasks.sources.memory import texts_in_memory

FIGURE = pathlib.Path(__file__).with_name("hero.svg")
SENTENCE = (
    "Someone who knows a language well can fill in a missing word, guess how a long sentence ends, and write the rest of a page"
    " when only its first line is given."
)
TITLES = {"r1": "regular: short spans", "x2": "extreme: long spans", "s": "sequential: the rest of the text"}
# T5Gemma 2's, but for the placement: of a chunk as short as this one X's only span would else always be the end.
DENOISERS = {
    denoiser.name: dataclasses.replace(denoiser, **({} if denoiser.single_span else {"placement": "uniform"}))
    for denoiser in ul2_tasks.T5GEMMA2
    if denoiser.name in TITLES
}
COLUMNS, LETTER, LINE, LEFT = 90, 8.4, 22, 84  # of the text; a letter's width, a line's height, and where it begins, in pixels
CONSOLE = Console(color_system="truecolor", force_terminal=True)
STYLE = """\
text { font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328; white-space: pre }
.page { fill: #ffffff; stroke: #d0d7de } .dim { fill: #59636e } .bold { font-weight: bold }
.on { fill: #ffffff; font-weight: bold } .box { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .page { fill: #0d1117; stroke: #3d444d } .dim { fill: #9198a1 } .on { fill: #ffffff }
}"""


def views() -> list[View]:
    mixture = ul2_tasks.Mixture("hero", texts_in_memory([SENTENCE]), denoisers=DENOISERS.values(), merge_examples=False)
    run = Run(mixture, {"inputs": 64, "targets": 64}, seed=59, is_beginning=True)
    drawn = {view.name: view for view in show(run, count=1).views}
    return [drawn[name] for name in TITLES]


def wrapped(stretches: list[Stretch]) -> Text:
    return Text("\n").join(flow(stretches).wrap(CONSOLE, COLUMNS))


def lines(text: Text, y: float) -> tuple[str, float]:
    """Text of the terminal as SVG, from some height on; sentinels and modes are filled, spans have their colour behind them."""
    drawn = []
    for line in text.split("\n"):
        x = LEFT
        line.rstrip()
        for segment in Segment.simplify(line.render(CONSOLE, end="")):
            width, style = LETTER * len(segment.text), segment.style
            colour = style.color.get_truecolor().hex if style and style.color else ""
            kind = "on" if style and style.reverse else "dim" if style and style.dim else ""
            if colour or kind == "on":
                fill = f'style="fill: {colour}" ' if colour else ""
                weak = ' fill-opacity="0.35"' if kind != "on" else ""
                drawn.append(f'<rect class="box" {fill}x="{x:.1f}" y="{y - 15}" width="{width:.1f}" height="20" rx="3"{weak}/>')
            drawn.append(f'<text class="{kind}" x="{x:.1f}" y="{y}" textLength="{width:.1f}">{escape(segment.text)}</text>')
            x += width
        y += LINE
    return "\n".join(drawn), y


def draw() -> str:
    rows, y = lines(wrapped([Stretch(SENTENCE, "text", None, 0)]), 30)
    body = ['<text class="dim" x="16" y="30">text</text>', rows]
    for view in views():
        denoiser = DENOISERS[view.name]
        size = f"mean span {denoiser.mean_span_length}, " if hasattr(denoiser, "mean_span_length") else ""
        title = f"{TITLES[view.name]} ({size}{denoiser.noise_density:.0%} masked)"
        body += [f'<text class="bold" x="16" y="{y + 14}">{denoiser.mode} {title}</text>']
        y += 14 + LINE
        for feature in ("inputs", "targets"):
            body.append(f'<text class="dim" x="16" y="{y}">{feature}</text>')
            rows, y = lines(wrapped([short(stretch) for stretch in view.features[feature]]), y)
            body.append(rows)
    width, height = LEFT + COLUMNS * LETTER + 16, y
    page = f'<rect class="page" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">'
    return "\n".join([opening, f"<style>{STYLE}</style>", page, *body, "</svg>\n"])


def short(stretch: Stretch) -> Stretch:
    """A sentinel by its number: <extra_id_0> is <0>."""
    return dataclasses.replace(stretch, text=f"<{stretch.group}>") if stretch.kind == "sentinel" else stretch


if __name__ == "__main__":
    FIGURE.write_text(draw())
