"""The version of this package, for manifests and statistics, and those of others. It imports nothing of the package."""

import importlib.metadata

__version__ = "3.0.0.dev0"


def version_of(package: str) -> str | None:
    """The version of another package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
