"""The version of this package, for manifests and statistics. It imports nothing, so that every module can import it."""

__version__ = "1.1.1"
