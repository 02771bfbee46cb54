"""The version of this package and those of others, and of what is written. It imports nothing of the package."""

import importlib.metadata

__version__ = "3.0.0.dev0"


def version_of(package: str) -> str | None:
    """The version of another package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_version(what: str, found: object, readable: int, remedy: str) -> None:
    """Raises a ValueError where a cache, an export or a state is of another version than this package reads and writes."""
    if found != readable:
        raise ValueError(f"{what} must be of version {readable}, got version {found!r}, of another ul2_tasks. {remedy}")
