"""What only some need is in extras of the package: `pip install 'ul2_tasks[torch]'`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Stands around an import. Where a package is missing, the ImportError says what needs it, and what to install."""
    try:
        yield
    except ImportError as error:
        message = f"{what} needs the extra {extra} ({error}). Run `pip install 'ul2_tasks[{extra}]'`."
        raise ImportError(message, name=error.name) from error
