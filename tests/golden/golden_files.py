"""The files of `files/`: JSON, which a test compares with what it makes, or writes anew."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

FILES = pathlib.Path(__file__).parent / "files"


def check(file: str, key: str, found: Any, update: bool) -> None:
    """Compares what is found with what `files/FILE.json` has under a key, or with `update` writes it there."""
    path = FILES / f"{file}.json"
    found = json.loads(json.dumps(found))
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if update:
        path.parent.mkdir(exist_ok=True)
        written = dict(sorted({**kept, key: found}.items()))
        path.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    assert key in kept, f"{path} has no {key!r}; pytest --update-golden writes it"
    assert not (different := list(differences(kept[key], found, key))), "\n".join(different[:10])


def differences(kept: Any, found: Any, path: str = "") -> Iterator[str]:
    """What was kept and is gone, or is another value. Keys may be added; numbers with a point agree to four digits."""
    if isinstance(kept, dict) and isinstance(found, dict):
        for key, value in kept.items():
            if key in found:
                yield from differences(value, found[key], f"{path}/{key}")
            else:
                yield f"{path}/{key} is gone; it was {json.dumps(value):.200}"
    elif isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        for number, (before, now) in enumerate(zip(kept, found)):
            yield from differences(before, now, f"{path}/{number}")
    elif isinstance(kept, float) and isinstance(found, float):
        if not math.isclose(kept, found, rel_tol=1e-4, abs_tol=1e-6):
            yield f"{path} was {kept}, is {found}"
    elif type(kept) is not type(found) or kept != found:
        yield f"{path} was {json.dumps(kept, ensure_ascii=False):.500}, is {json.dumps(found, ensure_ascii=False):.500}"
