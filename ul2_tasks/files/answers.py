"""What the errors of remote file systems mean. Each package for fsspec has its own, which share no type."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ul2_tasks.imported import is_instance

_FOR_NOW = {408, 409, 425, 429}  # statuses of HTTP below 500 that another try may change
_NO_KEYS = {
    "botocore.exceptions": (
        "CredentialRetrievalError",
        "NoAuthTokenError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "SSOError",
        "TokenRetrievalError",
    ),
    "google.auth.exceptions": ("DefaultCredentialsError", "RefreshError"),
}


def status_of(error: BaseException | None) -> int | None:
    """The status of HTTP with which a server answered, where that is the cause of an error."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, Mapping):  # of botocore
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        elif is_instance(error, "aiohttp", "ClientResponseError"):
            status = getattr(error, "status", None)
        elif is_instance(error, "gcsfs.retry", "HttpError"):
            status = getattr(error, "code", None)
        else:  # of requests, huggingface_hub, Azure
            status = getattr(response, "status_code", None)
        if isinstance(status, int | str) and str(status).isdigit():
            return int(status)
        # s3fs ends with a TypeError where it looks for the text of an error that has none.
        error = error.__cause__ or (error.__context__ if isinstance(error, TypeError) else None)
    return None


def without_disguise(error: Exception) -> Exception:
    """The error itself; or what a file system took for a file that is not there: a failed request, or an answer other than that."""
    cause = error.__cause__
    if not isinstance(error, FileNotFoundError) or not isinstance(cause, Exception) or status_of(cause) in (404, 410):
        return error
    is_failure = is_instance(cause, "aiohttp", "ClientError") or isinstance(cause, OSError | asyncio.TimeoutError)
    return cause if is_failure and not isinstance(cause, FileNotFoundError) else error


def is_refused(error: Exception) -> bool:
    """Whether a server takes these keys for no ones, or for those of somebody who may not read or write; or there are no keys."""
    is_without = any(is_instance(error, library, *names) for library, names in _NO_KEYS.items())
    return is_without or isinstance(error, PermissionError) or status_of(error) in (401, 403)


def is_changed(error: Exception) -> bool:
    """Whether an object is another one than that of which a part was read before."""
    return status_of(error) == 412 or is_instance(error, "s3fs.utils", "FileExpired")


def is_lasting(error: Exception) -> bool:
    """Whether a server says that the request is wrong, so that another try would not change its answer."""
    status = status_of(error)
    return status is not None and 400 <= status < 500 and status not in _FOR_NOW


def in_short(error: BaseException) -> str:
    """What an error says, or what it was made from, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
