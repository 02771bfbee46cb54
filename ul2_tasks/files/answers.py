"""What the errors of remote file systems mean. Each package for fsspec has its own, which share no type."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NamedTuple

_FOR_NOW = {408, 409, 425, 429}  # statuses of HTTP below 500 that another try may change


class _Errors(NamedTuple):
    """Types of errors, of the package that has opened a file, which nothing but their type tells from others.

    They say that there are no keys; that a part of the file was read before it was changed; that a request failed; and that a
    server answered with a status, which is the error's `code`.
    """

    no_keys: tuple[type[Exception], ...] = ()
    changed: tuple[type[Exception], ...] = ()
    failed: tuple[type[Exception], ...] = ()
    with_code: tuple[type[Exception], ...] = ()


def _errors_of(path: str) -> _Errors:
    scheme = path.partition("://")[0].rpartition("::")[2]  # of `simplecache::s3://..` s3
    with contextlib.suppress(ImportError):  # a file system of a user's may have the scheme
        if scheme in ("s3", "s3a"):
            from botocore import exceptions as of_s3
            from s3fs.utils import FileExpired

            no_keys = (of_s3.NoCredentialsError, of_s3.PartialCredentialsError, of_s3.CredentialRetrievalError)
            no_login = (of_s3.NoAuthTokenError, of_s3.SSOError, of_s3.TokenRetrievalError)
            return _Errors((*no_keys, *no_login), (FileExpired,))
        if scheme in ("gs", "gcs"):
            from gcsfs.retry import HttpError
            from google.auth import exceptions as of_google

            return _Errors((of_google.DefaultCredentialsError, of_google.RefreshError), with_code=(HttpError,))
        if scheme in ("http", "https"):
            import aiohttp

            return _Errors(failed=(aiohttp.ClientError,))
    return _Errors()


def status_of(error: BaseException | None, path: str) -> int | None:
    """The status of HTTP with which a server answered, where that is the cause of an error."""
    with_code = _errors_of(path).with_code
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, Mapping):  # of botocore
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        elif isinstance(error, with_code):
            status = getattr(error, "code", None)
        else:  # of requests, huggingface_hub, Azure; of aiohttp
            status = getattr(response, "status_code", getattr(error, "status", None))
        if isinstance(status, int | str) and str(status).isdigit():
            return int(status)
        # s3fs ends with a TypeError where it looks for the text of an error that has none.
        error = error.__cause__ or (error.__context__ if isinstance(error, TypeError) else None)
    return None


def without_disguise(error: Exception, path: str) -> Exception:
    """The error itself; or what a file system took for a file that is not there: a failed request, or an answer other than that."""
    cause = error.__cause__
    if not isinstance(error, FileNotFoundError) or not isinstance(cause, Exception) or status_of(cause, path) in (404, 410):
        return error
    is_failure = isinstance(cause, (OSError, asyncio.TimeoutError, *_errors_of(path).failed))
    return cause if is_failure and not isinstance(cause, FileNotFoundError) else error


def is_refused(error: Exception, path: str) -> bool:
    """Whether a server takes these keys for no ones, or for those of somebody who may not read or write; or there are no keys."""
    return isinstance(error, (PermissionError, *_errors_of(path).no_keys)) or status_of(error, path) in (401, 403)


def is_changed(error: Exception, path: str) -> bool:
    """Whether an object is another one than that of which a part was read before."""
    return status_of(error, path) == 412 or isinstance(error, _errors_of(path).changed)


def is_lasting(error: Exception, path: str) -> bool:
    """Whether a server says that the request is wrong, so that another try would not change its answer."""
    status = status_of(error, path)
    return status is not None and 400 <= status < 500 and status not in _FOR_NOW


def in_short(error: BaseException) -> str:
    """What an error says, or what it was made from, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
