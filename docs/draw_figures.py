"""Draws the figures of the pages of concepts, whose numbers are those of the package: `python docs/draw_figures.py`."""

import pathlib
from xml.sax.saxutils import escape

import numpy as np

from ul2_tasks import T5GEMMA2, chunk_length
from ul2_tasks.image_rows.schemas import SCHEMAS
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.elements import letters
from ul2_tasks.order.cycles import nearest_cycle
from ul2_tasks.order.order import BlockShuffle, Order

HERE = pathlib.Path(__file__).parent
BLUE, SKY, ORANGE, RED, GREEN = "#0072b2", "#56b4e9", "#e69f00", "#d55e00", "#009e73"  # of Okabe and Ito
STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .page { fill: #ffffff; stroke: #d0d7de }
.bold { font-weight: bold } .dim { fill: #59636e; font-size: 12px }
.code { font-family: ui-monospace, "DejaVu Sans Mono", monospace }
.middle { text-anchor: middle } .end { text-anchor: end } .on { fill: #ffffff; font-weight: bold }
.box { fill: #eef3fb; stroke: #0072b2 } .result { fill: #eaf6f1; stroke: #009e73 } .plain { fill: #f6f8fa; stroke: #8c959f }
.arrow { stroke: #59636e; stroke-width: 1.5; fill: none; marker-end: url(#tip) } #tip path { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .page { fill: #0d1117; stroke: #3d444d } .dim { fill: #9198a1 }
  .box { fill: #10243c; stroke: #56b4e9 } .result { fill: #0f2a22; stroke: #3fb68b } .plain { fill: #151b23; stroke: #656c76 }
  .arrow { stroke: #9198a1 } #tip path { fill: #9198a1 } .on { fill: #ffffff }
}"""
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8"/></marker>'
)


def page(width: int, height: int, title: str, body: list[str]) -> str:
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    frame = f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    return "\n".join([opening, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", TIP, frame, *body, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def box(x: float, y: float, width: float, lines: list[str], kind: str = "box", height: float = 50) -> str:
    """A box with a bold line, and smaller lines below it."""
    first = y + height / 2 + 5 - 8 * (len(lines) - 1)
    words = [text(x + width / 2, first + 17 * n, line, "middle dim" if n else "middle bold") for n, line in enumerate(lines)]
    return "\n".join([f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>', *words])


def arrow(path: str) -> str:
    return f'<path class="arrow" d="{path}"/>'


def bar(x: float, y: float, length: float, colour: str, label: str, height: float = 18) -> str:
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(length, 1):.1f}" height="{height}" fill="{colour}"/>'
    return shape + "\n" + text(x + max(length, 1) + 6, y + height - 4, label)


def legend(x: float, y: float, names: dict[str, str]) -> list[str]:
    """Colours by name, side by side."""
    body = []
    for name, colour in names.items():
        body += [f'<rect x="{x:.1f}" y="{y - 11}" width="12" height="12" fill="{colour}"/>', text(x + 18, y, name)]
        x += 40 + 7.4 * len(name)
    return body


def denoising() -> str:
    """A chunk of eight tokens with two masked spans, and its inputs and targets."""
    chunk, spans = "ABCDEFGH", {1: (1, 3, BLUE), 2: (5, 7, RED)}
    masked = {letter: colour for start, end, colour in spans.values() for letter in chunk[start:end]}
    colours = {**masked, "<0>": BLUE, "<1>": RED}
    rows = {"chunk": [*chunk], "inputs": ["[R]", "A", "<0>", "D", "E", "<1>", "H", "</s>"]}
    rows["targets"] = ["<0>", "B", "C", "<1>", "F", "G", "</s>"]
    body = []
    for y, (name, tokens) in zip((16, 72, 118), rows.items()):
        body.append(text(66, y + 21, name, "end dim"))
        for x, token in zip(range(78, 600, 56), tokens):
            colour = colours.get(token)
            style = f'style="fill: {colour}; stroke: {colour}" ' if colour else ""
            body.append(f'<rect class="plain" {style}x="{x}" y="{y}" width="50" height="32" rx="5"/>')
            body.append(text(x + 25, y + 21, token, f"middle code{' on' if colour else ''}"))
    return page(540, 166, "A chunk with two masked spans, and its inputs and targets", body)


def lengths() -> str:
    """The solved chunks at 512/512: how much of inputs and targets each denoiser fills."""
    body = [text(16, 28, "Full-length chunks at 512 / 512: tokens of inputs and of targets", "bold")]
    body += legend(16, 54, {"inputs": BLUE, "targets": ORANGE})
    y = 70.0
    for denoiser in T5GEMMA2:
        chunk = chunk_length(denoiser, {"inputs": 512, "targets": 512})
        body += [text(150, y + 22, f"{denoiser.name.upper()}, chunk of {chunk.length}", "end")]
        for colour, tokens in ((BLUE, chunk.inputs), (ORANGE, chunk.targets)):
            body += [f'<rect class="plain" x="162" y="{y}" width="512" height="15"/>', bar(162, y, tokens, colour, str(tokens), 15)]
            y += 16
        y += 10
    return page(730, round(y) + 8, "How many tokens of inputs and targets each denoiser of T5GEMMA2 fills at 512/512", body)


def which_path() -> str:
    """What to use for each trainer."""
    paths = {
        "t5x, or SeqIO batches": "register(..), gin files",
        "PyTorch or Transformers": "UL2IterableDataset(Mixture)",
        "texts in your own loader": "UL2DataCollator",
        "grain, or another index": "examples(Mixture)[i]",
        "Megatron-LM": "ul2 export, tokens",
        "something else": "ul2 export, examples",
    }
    body = [box(16, 134, 150, ["Which trainer", "do you have?"], "plain", 56)]
    for y, (trainer, use) in zip(range(14, 400, 50), paths.items()):
        body += [arrow(f"M166 162 H188 V{y + 19} H206"), box(210, y, 226, [trainer], height=38)]
        body += [arrow(f"M436 {y + 19} H462"), box(466, y, 256, [use], "result", 38)]
    return page(738, 318, "Which trainer do you have, and what to use for it", body)


def block_shuffle() -> str:
    """Blocks of a corpus, permuted, in windows of partitions, and the examples of an epoch: those that the package computes."""
    size, partitions, in_window, in_block = 1000, 3, 2, 4
    blocks = BlockShuffle(size, partitions, in_window)
    order = Order(nearest_cycle([1]), (size // in_block,), 12 * size, 3, True, blocks)
    count = order.tokens // size
    windows = [(0, number, window) for number, section in enumerate(order.sections) for window in range(section.windows)]
    permuted = np.concatenate([order.blocks_of(*window) for window in windows]).tolist()
    owner = {block: place // in_window % partitions for place, block in enumerate(permuted)}
    found = order.ranges(*order.slots(np.arange(order.examples)))
    read = found.starts[np.flatnonzero(np.diff(found.of, prepend=-1))] // size
    colours, left, wide = (BLUE, ORANGE, GREEN), 150, 46

    def cell(x: float, y: float, width: float, colour: str, words: str) -> str:
        shape = f'<rect style="fill: {colour}" x="{x:.0f}" y="{y}" width="{width:.0f}" height="28" rx="4"/>'
        return shape + "\n" + text(x + width / 2, y + 19, words, "middle on")

    body = [text(16, 39, "corpus"), text(16, 109, "blocks, permuted"), text(16, 199, "examples 0, 1, ..")]
    for block in range(count):
        body.append(cell(left + block * (wide + 3), 20, wide, "#6e7781", f"{block}"))
    for place, block in enumerate(permuted):
        x = left + place * (wide + 3)
        body.append(cell(x, 90, wide, colours[owner[block]], f"{block}"))
        if place % in_window == 0:
            end = x + in_window * (wide + 3) - 7
            body += [f'<path class="arrow" style="marker-end: none" d="M{x + 2:.0f} 124 v6 H{end:.0f} v-6"/>']
            body.append(text((x + end) / 2, 147, "window", "middle dim"))
    width = (12 * (wide + 3)) / 24 - 2
    for example, block in enumerate(read[:24].tolist()):
        body.append(cell(left + example * (width + 2), 180, width, colours[owner[block]], f"{block}"))
    body.append(
        text(left, 226, "and the block that each is from: chunks of the first window of partition 0, 1, 2, 0, 1, 2, ..", "dim")
    )
    body += legend(left, 256, {f"partition {number}": colour for number, colour in enumerate(colours)})
    title = "Blocks of a corpus are permuted, windows of them belong to partitions, and examples come from partitions in turn"
    return page(left + 12 * (wide + 3) + 14, 274, title, body)


def images() -> str:
    """Records of three schemas, their layouts, and a row of all of them."""
    turns = [{"from": "human", "value": "<image> What is it?"}, {"from": "gpt", "value": "A cat."}]
    records = {
        "t2i_pretrain": ("image, captions", {"image": b"..", "captions": "a cat"}),
        "unified_edit": ("images, instructions", {"image_list": [b"0", b"1"], "instruction_list": ["make it red"]}),
        "vlm_sft": ("conversation, image", {"image": b"..", "conversations": turns}),
    }
    colours = {"T": ORANGE, "V": BLUE, "C": GREEN, "N": RED}
    body = [text(16, 28, "record", "dim"), text(306, 28, "layout", "dim"), text(16, 226, "packed row", "dim")]
    in_row = 108.0
    for y, (schema, (fields, record)) in zip(range(38, 300, 56), records.items()):
        body += [box(16, y, 184, [fields], "plain", 40), arrow(f"M200 {y + 20} H302")]
        body.append(text(251, y + 12, schema, "middle dim code"))
        for x, letter in zip(range(306, 600, 46), letters(SCHEMAS[schema](record, draws_of(0, 0, "r"))).split()):
            width = 30 if letter == "T" else 62
            for left, top, height, wide in ((x, y, 40, 40), (in_row, 204, 36, width)):
                body.append(
                    f'<rect style="fill: {colours[letter]}" x="{left:.0f}" y="{top}" width="{wide}" height="{height}" rx="4"/>'
                )
                body.append(text(left + wide / 2, top + height / 2 + 5, letter, "middle on"))
            in_row += width + 3
        in_row += 12
    names = {"T": "text", "V": "image for the ViT", "C": "clean latents", "N": "noised latents, to be generated"}
    body += legend(16, 272, {f"{letter}  {name}": colours[letter] for letter, name in names.items()})
    title = "Records of captions, edits and conversations become layouts, which are packed into a row"
    return page(760, 292, title, body)


DRAWN = (denoising, lengths, which_path, block_shuffle, images)
FIGURES = {f"{draw.__name__}.svg": draw for draw in DRAWN}


if __name__ == "__main__":
    for name, draw in FIGURES.items():
        (HERE / name).write_text(draw())
