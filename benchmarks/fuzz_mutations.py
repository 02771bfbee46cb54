"""How `fuzz.py` alters files: bytes of any file, and values of JSON, which stays JSON that someone could have written."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_RAW = "raw-text-{}-of-the-fuzzer"  # stands for what `json.dumps` does not write
_DEEP = 20_000
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    10**30,
    0.5,
    "",
    "0",
    "None",
    "a\x00b",
    [],
    {},
    [[]],
    [None],
    {"": None},
)
_WRITTEN = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "9" * 5000,
    '"\\ud800"',
    '"\\udfff text"',
    '"\\u0000"',
    '"../../../../etc/passwd"',
    '"/dev/zero"',
    '"<script>alert(1)</script>"',
    "[" * _DEEP + "]" * _DEEP,
    '{"a":' * _DEEP + "1" + "}" * _DEEP,
    "",
)


def mutated_bytes(content: bytes, draw: random.Random) -> bytes:
    """The content with some bytes changed, cut, repeated, or put in."""
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        content = draw.choice(_OF_BYTES)(content, draw)
    return content


def mutated_json(content: bytes, draw: random.Random) -> bytes:
    """JSON with some of its values, keys, or its text changed. What is no JSON, and one case in six, has its bytes changed."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return mutated_bytes(content, draw)
    if not draw.randrange(6):
        return mutated_bytes(content, draw)
    raw: dict[str, str] = {}
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        value = _changed(value, draw, raw)
    text = json.dumps(value, indent=draw.choice((None, 1)) if b"\n" in content.strip() else None)
    for name, written in raw.items():
        text = text.replace(f'"{name}"', written)
    return text.encode()


def mutated_lines(content: bytes, draw: random.Random) -> bytes:
    """JSON Lines of which some are changed, see `mutated_json`; one case in six has its bytes changed anywhere."""
    if not draw.randrange(6):
        return mutated_bytes(content, draw)
    lines = content.splitlines()
    for _ in range(draw.choice((1, 1, 3))):
        place = draw.randrange(len(lines))
        lines[place] = mutated_json(lines[place], draw)
    return b"\n".join(lines) + b"\n"


def mutated_values(records: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    """Records of which some values are of other types, or others of their type."""
    records = [dict(record) for record in records]
    for _ in range(draw.choice((1, 2, 4))):
        record = draw.choice(records)
        key = draw.choice(list(record))
        if draw.randrange(3):
            value = _changed_value(record[key], draw)
            for one in records if draw.randrange(2) else [record]:
                one[key] = value
        else:
            record[key] = _changed(record[key], draw, {})
    return records


def _changed(value: Any, draw: random.Random, raw: dict[str, str]) -> Any:
    """A copy of a value of JSON with one thing in it changed. `raw` gets what is to be written as it is, by what stands for it."""
    places = list(_places(value, ()))
    path = draw.choice(places)
    if not path:
        return _other(value, draw, raw)
    copy = json.loads(json.dumps(value)) if not _has_bytes(value) else value
    parent = copy
    for step in path[:-1]:
        parent = parent[step]
    last = path[-1]
    what = draw.randrange(8)
    if what == 0:
        del parent[last]
    elif what == 1 and isinstance(parent, dict):
        name = _RAW.format(len(raw))
        raw[name] = f"{json.dumps(last)}: {json.dumps(draw.choice(_VALUES))}, {json.dumps(last)}"  # the key twice
        parent[name] = parent.pop(last)
    elif what == 2 and isinstance(parent, dict):
        parent[draw.choice((str(last).upper(), f"{last} ", "", "\x00", "__class__"))] = parent.pop(last)
    else:
        parent[last] = _other(parent[last], draw, raw)
    return copy


def _other(value: Any, draw: random.Random, raw: dict[str, str]) -> Any:
    if not draw.randrange(3):
        name = _RAW.format(len(raw))
        raw[name] = draw.choice(_WRITTEN)
        return name
    return _changed_value(value, draw)


def _changed_value(value: Any, draw: random.Random) -> Any:
    kind = draw.randrange(5)
    if kind == 0:
        return [value]
    if kind == 1:
        return str(value)
    if kind == 2 and isinstance(value, int | float) and not isinstance(value, bool):
        return value + draw.choice((-1, 1, 2**31, -(2**63), 0.5))
    if kind == 3 and isinstance(value, str):
        return draw.choice((value * 2, value[: len(value) // 2], value + "\x00", f"../{value}", f"/{value}", value * 10_000))
    return draw.choice(_VALUES)


def _has_bytes(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, list) and any(map(_has_bytes, value)))


def _places(value: Any, path: tuple) -> Iterator[tuple]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from _places(each, (*path, key))


def _flip(content: bytes, draw: random.Random) -> bytes:
    if not content:
        return content
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


def _set(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content) + 1)
    return content[:place] + draw.randbytes(1) + content[place + 1 :]


def _number(content: bytes, draw: random.Random) -> bytes:
    """An integer of 1 to 8 bytes that is at a limit of its type; more often near the beginning, where headers are."""
    width = draw.choice((1, 2, 4, 8))
    place = draw.randrange(min(len(content), draw.choice((64, 1 << 30))) + 1)
    number = (draw.choice(_NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(width, draw.choice(("little", "big")))
    return content[:place] + number + content[place + width :]


def _cut_end(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _stretch(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(content) + 1)
    return start, min(len(content), start + draw.choice((1, 2, 4, 8, 64, 1024, len(content))))


def _cut(content: bytes, draw: random.Random) -> bytes:
    start, stop = _stretch(content, draw)
    return content[:start] + content[stop:]


def _repeat(content: bytes, draw: random.Random) -> bytes:
    start, stop = _stretch(content, draw)
    return content[:start] + content[start:stop] * draw.choice((2, 3, 100 if stop - start < 2000 else 2)) + content[stop:]


def _insert(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content) + 1)
    new = draw.choice((draw.randbytes(draw.choice((1, 4, 64))), b"\x00" * 64, b"\n", b'"', b"\xff\xfe", b"\xef\xbb\xbf", b"{" * 50))
    return content[:place] + new + content[place:]


def _move(content: bytes, draw: random.Random) -> bytes:
    """A stretch over another place."""
    start, stop = _stretch(content, draw)
    place = draw.randrange(len(content) + 1)
    return content[:place] + content[start:stop] + content[place + stop - start :]


_OF_BYTES = (_flip, _flip, _set, _number, _number, _cut_end, _cut, _repeat, _insert, _move)
