"""The pages of all kinds of data: each is one HTML file, of a template in `data/`."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from ul2_tasks.extras import needs
from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.inspect.printing import as_shown

TEMPLATES = pathlib.Path(__file__).parents[1] / "data"


def write_page(path: str | os.PathLike, template: str, statistics: Any, **shown: Any) -> pathlib.Path:
    """Renders a template of a page, and writes it. All texts are escaped but those that the filter `drawn` takes.

    `template` extends page.html, and names what is `shown`; `statistics` is a dataclass, or its `asdict`, with "checks".
    """
    check_path(path)
    jinja2, markupsafe = packages()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["drawn"] = markupsafe.Markup
    checks = statistics["checks"] if isinstance(statistics, Mapping) else [dataclasses.asdict(check) for check in statistics.checks]
    page = environment.get_template(template).render(statistics=statistics, verdict=verdict(checks), as_shown=as_shown, **shown)
    write_atomically(path, page)
    return pathlib.Path(path)


def check_path(path: str | os.PathLike) -> None:
    """Raises a ValueError if a page cannot be written to this path. A command calls this before it measures for minutes."""
    path = pathlib.Path(path)
    if path.is_dir():
        raise ValueError(
            f"the page's path must be of a file, got the folder {str(path)!r}. Name a file in it, such as {path / 'report.html'}."
        )
    if not path.parent.is_dir():
        raise ValueError(
            f"the page {path.name!r} must be in a folder that exists, got {str(path.parent)!r}. Make it, or name another."
        )


def packages() -> tuple[ModuleType, ModuleType]:
    """jinja2 and markupsafe. A command calls this before it measures for minutes."""
    with needs("a report", "report"):
        import jinja2
        import markupsafe
        import matplotlib  # noqa: F401
    return jinja2, markupsafe


def verdict(checks: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: all checks pass, or which fail.

    >>> verdict([{"name": "no truncation", "passed": True}, {"name": "known ids", "passed": False}])
    '1 of 2 checks fails: known ids.'
    """
    broken = [check["name"] for check in checks if not check["passed"]]
    if broken:
        return f"{len(broken)} of {len(checks)} checks {'fails' if len(broken) == 1 else 'fail'}: {'; '.join(broken)}."
    return f"All {len(checks)} checks pass." if checks else "Nothing was checked."
