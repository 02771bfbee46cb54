"""The way to image rows."""

from typing import Any


def packed_rows() -> Any:
    """All that the package has of image rows, by way of one module, which is imported when it is used."""
    from ul2_tasks.image_rows.inspect import command

    return command
