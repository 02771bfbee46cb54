"""Images of shapes, digits and letters that are drawn when they are asked for, with captions, edits, questions and stories.

What the texts say is true of the images. A record is a function of its kind, its number and a seed. The bytes of the images,
which are PNG, may differ with Pillow's version.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ul2_tasks.extras import needs
from ul2_tasks.images.draws import Draws, draws_of
from ul2_tasks.images.pixels import pillow

_NAMES = ("circle", "square", "triangle", "2", "4", "5", "7", "A", "B", "E", "H")
_COLOURS = {
    "red": (215, 40, 40),
    "green": (30, 150, 60),
    "blue": (40, 80, 220),
    "yellow": (240, 205, 30),
    "orange": (240, 125, 20),
    "purple": (130, 50, 160),
}
_GROUNDS = {"white": (255, 255, 255), "black": (0, 0, 0), "grey": (190, 190, 190)}
_SIZES = ((320, 240), (240, 320), (256, 256), (400, 160), (180, 420))  # width and height
_CELLS = 3
_NUMBERS = ("no thing", "one thing", "two things", "three things")
_PAGES = 4


class _Thing(NamedTuple):
    name: str
    colour: str

    def __str__(self) -> str:
        return f"{'an' if self.colour == 'orange' else 'a'} {self.colour} {self.name}"


class _Scene(NamedTuple):
    """An image before it is drawn. Its things stand in cells, from left to right, or one above the other in a tall one."""

    size: tuple[int, int]
    ground: str
    things: Mapping[int, _Thing]

    @property
    def said(self) -> str:
        *others, last = (str(thing) for _, thing in sorted(self.things.items()))
        return f"{', '.join(others)} and {last}" if others else last

    @property
    def direction(self) -> str:
        return "from left to right" if self.size[0] >= self.size[1] else "from top to bottom"


def example_records(kind: str, count: int = 32, seed: int = 0) -> list[dict[str, Any]]:
    """Records of the embedded set.

    The kind is "t2i_pretrain", "unified_edit" or "vlm_sft", see `schemas`; or "story", see there. Another seed gives others.
    Without Pillow it raises an ImportError.

    >>> json.loads(example_records("t2i_pretrain", 2)[1]["captions"])["short"]
    'a red 5 and a purple 4'
    """
    if kind not in _MAKERS:
        raise ValueError(f"kind must be one of {list(_MAKERS)}, got {kind!r}.")
    return [_MAKERS[kind](draws_of(seed, 0, f"embedded set, {kind}, record {number}")) for number in range(count)]


def write_example_set(folder: str | os.PathLike, count: int = 32, seed: int = 0) -> list[pathlib.Path]:
    """Writes the built-in set as files: Parquet for t2i_pretrain and unified_edit, else JSON Lines and a folder of images.

    Args:
        folder: to write to.
        count, seed: see `example_records`.

    Returns:
        the files of records, one of each kind, by its name.

    Raises:
        ImportError: Pillow is not installed.
    """
    folder = pathlib.Path(folder)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in _MAKERS:
        records = example_records(kind, count, seed)
        if kind in ("t2i_pretrain", "unified_edit"):
            paths.append(folder / f"{kind}.parquet")
            pq.write_table(pa.Table.from_pylist(records), paths[-1], row_group_size=16)
        else:
            paths.append(folder / f"{kind}.jsonl")
            lines = [json.dumps(_with_paths(record, folder, f"{kind}_{number}")) for number, record in enumerate(records)]
            paths[-1].write_text("\n".join(lines) + "\n")
    return paths


def _with_paths(record: Mapping[str, Any], folder: pathlib.Path, name: str) -> dict[str, Any]:
    """The record with its images as files, of which it has the paths."""
    key = "image" if "image" in record else "images"
    images = [record[key]] if isinstance(record[key], bytes) else record[key]
    paths = [f"images/{name}_{number}.png" for number in range(len(images))]
    for path, image in zip(paths, images):
        (folder / path).write_bytes(image)
    return {**record, key: paths[0] if record[key] is images[0] else paths}


def _t2i(draws: Draws) -> dict[str, Any]:
    scene = _scene(draws)
    on = f"on a {scene.ground} ground"
    captions = {
        "short": scene.said,
        "long": f"{scene.said}, {scene.direction}, {on}" if len(scene.things) > 1 else f"{scene.said} {on}",
        "count": f"a picture of {_NUMBERS[len(scene.things)]} {on}",
    }
    return {"image": _drawn(scene), "captions": json.dumps(captions)}


def _edit(draws: Draws) -> dict[str, Any]:
    scenes, instructions = [_scene(draws)], []
    for step in range(1 + draws.number("steps", 3)):
        scene, said = _edited(scenes[-1], draws.within(f"step/{step}"))
        scenes.append(scene)
        instructions.append(said)
    return {"image_list": [_drawn(scene) for scene in scenes], "instruction_list": instructions}


def _conversation(draws: Draws) -> dict[str, Any]:
    scene = _scene(draws)
    images, turns = [_drawn(scene)], list(_questions(scene))
    turns[0] = (f"<image>\n{turns[0][0]}", turns[0][1])
    if draws.number("second", 3) == 0:
        other = _scene(draws.within("second"))
        images.append(_drawn(other))
        turns.append(("And here? <image>", _sentence(other.said)))
    said = [{"from": role, "value": text} for turn in turns for role, text in zip(("human", "gpt"), turn)]
    return {"image": images if len(images) > 1 else images[0], "conversations": said}


def _questions(scene: _Scene) -> Iterator[tuple[str, str]]:
    yield "What do you see?", _sentence(scene.said)
    yield "How many things are there?", _sentence(_NUMBERS[len(scene.things)].split()[0])
    for _, thing in sorted(scene.things.items()):
        yield f"What colour does the {thing.name} have?", _sentence(thing.colour)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _story(draws: Draws) -> dict[str, Any]:
    scene = _scene(draws)
    scenes, texts = [scene], [f"It begins with {scene.said}."]
    for page in range(1, 2 + draws.number("pages", _PAGES - 1)):
        scene, said = _edited(scene, draws.within(f"page/{page}"))
        scenes.append(scene)
        texts.append(f"Then somebody says: {said[0]}. Now there is {scene.said}.")
    return {"texts": texts, "images": [_drawn(scene) for scene in scenes]}


_MAKERS: Mapping[str, Callable[[Draws], dict[str, Any]]] = {
    "t2i_pretrain": _t2i,
    "unified_edit": _edit,
    "vlm_sft": _conversation,
    "story": _story,
}
KINDS = tuple(_MAKERS)


def _scene(draws: Draws) -> _Scene:
    count = 1 + draws.number("things", _CELLS)
    names, colours = _drawn_from(_NAMES, count, draws, "name"), _drawn_from(list(_COLOURS), count, draws, "colour")
    cells = _drawn_from(range(_CELLS), count, draws, "cell")
    return _Scene(
        _SIZES[draws.number("size", len(_SIZES))],
        list(_GROUNDS)[draws.number("ground", len(_GROUNDS))],
        dict(zip(cells, map(_Thing, names, colours))),
    )


def _edited(scene: _Scene, draws: Draws) -> tuple[_Scene, list[str]]:
    """The scene, changed in one thing, and texts that ask for it."""
    things, cells = scene.things, sorted(scene.things)
    cell = cells[draws.number("which", len(cells))]
    thing = things[cell]
    free = [other for other in range(_CELLS) if other not in things]
    colour = _other(_COLOURS, {thing.colour for thing in things.values()}, draws, "colour")
    ways = ["paint", "ground", *(["add"] if free else []), *(["remove"] if len(cells) > 1 else [])]
    way = ways[draws.number("way", len(ways))]
    if way == "ground":
        ground = _other(_GROUNDS, {scene.ground}, draws, "ground")
        return scene._replace(ground=ground), [f"make the ground {ground}", f"put it on {ground}"]
    if way == "paint":
        said = [f"make the {thing.name} {colour}", f"paint the {thing.colour} {thing.name} {colour}"]
        return scene._replace(things={**things, cell: _Thing(thing.name, colour)}), said
    if way == "add":
        added = _Thing(_other(_NAMES, {thing.name for thing in things.values()}, draws, "name"), colour)
        return scene._replace(things={**things, free[0]: added}), [f"add {added}", f"put {added} into a free place"]
    said = [f"remove the {thing.name}", f"take the {thing.colour} {thing.name} away"]
    return scene._replace(things={other: things[other] for other in cells if other != cell}), said


def _other(items: Iterable[str], used: Collection[str], draws: Draws, name: str) -> str:
    """One of the items that are not used."""
    return _drawn_from([item for item in items if item not in used], 1, draws, name)[0]


def _drawn_from(items: Sequence[Any], count: int, draws: Draws, name: str) -> list[Any]:
    """So many of the items, none twice."""
    left = list(items)
    return [left.pop(draws.number(f"{name}/{number}", len(left))) for number in range(count)]


def _drawn(scene: _Scene) -> bytes:
    """The image, as PNG."""
    with needs("the example set", "images"):
        from PIL import ImageDraw, ImageFont

    width, height = scene.size
    image = pillow().new("RGB", scene.size, _GROUNDS[scene.ground])
    canvas = ImageDraw.Draw(image)
    wide = width >= height
    radius = 0.38 * min(max(width, height) / _CELLS, min(width, height))
    for cell, thing in scene.things.items():
        along = (cell + 0.5) / _CELLS
        x, y = (width * along, height / 2) if wide else (width / 2, height * along)
        box, colour = (x - radius, y - radius, x + radius, y + radius), _COLOURS[thing.colour]
        if thing.name == "circle":
            canvas.ellipse(box, fill=colour)
        elif thing.name == "square":
            canvas.rectangle(box, fill=colour)
        elif thing.name == "triangle":
            canvas.polygon([(box[0], box[3]), (x, box[1]), (box[2], box[3])], fill=colour)
        else:
            canvas.text((x, y), thing.name, fill=colour, anchor="mm", font=ImageFont.load_default(2 * radius))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
