"""Draws loss_by_denoiser.svg from the table of guides/loss_by_denoiser.md: `python docs/draw_losses.py`.

`python docs/draw_losses.py --train` trains the model of that table, prints it anew, and takes some minutes of one core.
"""

import itertools
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
FIGURE, GUIDE = HERE / "loss_by_denoiser.svg", HERE / "guides" / "loss_by_denoiser.md"
COLOURS = {"x2": "#d55e00", "r2": "#e69f00", "s": "#009e73", "x1": "#cc79a7", "r1": "#0072b2"}  # of Okabe and Ito
LENGTHS, ROWS, STEPS, EVERY = {"inputs": 128, "targets": 128}, 8, 1000, 100
LEFT, TOP, WIDTH, HEIGHT = 60, 56, 480, 240  # of the plot, in pixels
STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .page { fill: #ffffff; stroke: #d0d7de } .bold { font-weight: bold }
.grid { stroke: #d0d7de } .end { text-anchor: end } .middle { text-anchor: middle } path { fill: none; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .page { fill: #0d1117; stroke: #3d444d } .grid { stroke: #3d444d }
}"""


def train() -> list[dict[str, float]]:
    """The mean losses of each hundred steps of a small T5 on the built-in corpus, in packed sequences."""
    import torch
    import transformers

    import ul2_tasks

    torch.manual_seed(0)
    torch.set_num_threads(1)
    chunks = ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, LENGTHS)
    converter = ul2_tasks.HuggingFaceFeatureConverter(pack=True, task_id=True)
    dataset = ul2_tasks.UL2IterableDataset(ul2_tasks.Mixture(chunk_tokens=chunks), LENGTHS, feature_converter=converter)
    sizes = {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
    config = transformers.T5Config(vocab_size=4096, decoder_start_token_id=0, **sizes)
    model = ul2_tasks.accept_packed_sequences(transformers.T5ForConditionalGeneration(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, found = ul2_tasks.TaskLosses(dataset.tasks), []
    for step, batch in enumerate(itertools.islice(torch.utils.data.DataLoader(dataset, batch_size=ROWS), STEPS), 1):
        task_id = batch.pop("task_id")
        outputs = model(**batch)
        losses.add(outputs.logits, batch["labels"], task_id)
        outputs.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY == 0:
            found.append({"step": step, **losses.means()})
            print("|", " | ".join([str(step), *(f"{found[-1][f'loss_{name}']:.2f}" for name in sorted(COLOURS))]), "|", flush=True)
    return found


def numbers() -> dict[str, list[tuple[int, float]]]:
    """The steps and losses of each denoiser in the table."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in GUIDE.read_text().splitlines() if "|" in line]
    first = next(number for number, cells in enumerate(lines) if cells[0] == "until step")
    rows = itertools.takewhile(lambda cells: cells[0].isdigit(), lines[first + 2 :])
    return {
        name: [(int(step), float(loss)) for step, loss in points]
        for name, *points in zip(lines[first][1:], *([(cells[0], loss) for loss in cells[1:]] for cells in rows))
    }


def draw() -> str:
    lines = numbers()
    losses = [loss for points in lines.values() for _, loss in points]
    low, high = int(min(losses)), int(max(losses)) + 1
    steps = max(step for points in lines.values() for step, _ in points)

    def x(step: float) -> float:
        return LEFT + WIDTH * step / steps

    def y(loss: float) -> float:
        return TOP + HEIGHT * (high - loss) / (high - low)

    body = [f'<text class="bold" x="16" y="30">Training loss by denoiser, of a small T5 over {steps} steps</text>']
    for loss in range(low, high + 1):
        body += [
            f'<line class="grid" x1="{LEFT}" y1="{y(loss):.1f}" x2="{LEFT + WIDTH}" y2="{y(loss):.1f}"/>',
            f'<text class="end" x="{LEFT - 10}" y="{y(loss) + 5:.1f}">{loss}</text>',
        ]
    for step in range(0, steps + 1, steps // 5):
        body.append(f'<text class="middle" x="{x(step):.1f}" y="{TOP + HEIGHT + 24}">{step}</text>')
    body.append(f'<text class="middle" x="{LEFT + WIDTH / 2:.1f}" y="{TOP + HEIGHT + 46}">step</text>')
    names = sorted(lines, key=lambda name: -lines[name][-1][1])
    ends = [y(lines[name][-1][1]) + 5 for name in names]
    places = list(itertools.accumulate(ends, lambda before, end: max(before + 19, end)))  # each below the name before
    up = (sum(places) - sum(ends)) / len(names)
    for name, at in zip(names, places):
        points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in lines[name])
        body += [
            f'<path d="M{points}" stroke="{COLOURS[name]}"/>',
            f'<text class="bold" style="fill: {COLOURS[name]}" x="{LEFT + WIDTH + 10}" y="{at - up:.1f}">{name}</text>',
        ]
    width, height = LEFT + WIDTH + 50, TOP + HEIGHT + 64
    page = f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
    return "\n".join([opening, f"<style>{STYLE}</style>", page, *body, "</svg>\n"])


if __name__ == "__main__":
    if sys.argv[1:] == ["--train"]:
        train()
    else:
        FIGURE.write_text(draw())
