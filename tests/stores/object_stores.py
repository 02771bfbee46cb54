"""Real servers of object stores on this machine, and a proxy before each that counts requests and breaks answers."""

from __future__ import annotations

import collections
import contextlib
import functools
import http.client
import http.server
import io
import itertools
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

HOST = "127.0.0.1"
STALL = 4.0  # seconds; clients wait for less, see conftest.py


class Request(NamedTuple):
    """What a client asked for."""

    method: str
    path: str
    range: str

    @property
    def is_list(self) -> bool:
        """Whether it lists a bucket of S3."""
        return "list-type=" in self.path


# What the proxy does with a request: None hands it on, "reset", "cut" and "stall" break it, and a status and a body answer it.
Fault = Callable[[Request], str | tuple[int, bytes] | None]


def error(status: int, code: str) -> tuple[int, bytes]:
    """An answer of S3 that says what is wrong."""
    return status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code} it is</Message></Error>".encode()


def faults(share: float, *kinds: str | tuple[int, bytes], most: int = 2) -> Fault:
    """Breaks this share of the requests to read, by kinds in turn, and a tenth of it of others; none oftener than `most` times."""
    draw, kind = random.Random(0), itertools.cycle(kinds)
    broken: collections.Counter[Request] = collections.Counter()

    def fault(request: Request) -> str | tuple[int, bytes] | None:
        if draw.random() >= share / (1 if request.method in ("GET", "HEAD") else 10) or broken[request] >= most:
            return None
        broken[request] += 1
        return next(kind)

    return fault


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        return listening.getsockname()[1]


@contextlib.contextmanager
def program(command: Sequence[str], port: int, **variables: str) -> Iterator[None]:
    """A server that is a program, until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **variables}
    )
    try:
        for _ in range(600):
            with contextlib.suppress(urllib.error.HTTPError):
                try:
                    urllib.request.urlopen(f"http://{HOST}:{port}/", timeout=5).close()
                except (urllib.error.HTTPError, http.client.HTTPException):
                    break
                except OSError:
                    assert process.poll() is None, f"{command} has ended"
                    time.sleep(0.05)
                    continue
                break
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


class _Ranges(http.server.SimpleHTTPRequestHandler):
    """Files by HTTP, also parts of them, as servers of files have it."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *words: object) -> None:
        pass

    def send_head(self):
        wanted, path = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")), self.translate_path(self.path)
        if not wanted or not os.path.isfile(path):
            return super().send_head()
        content = pathlib.Path(path).read_bytes()
        part = content[int(wanted[1]) : int(wanted[2]) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {wanted[1]}-{int(wanted[1]) + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        return io.BytesIO(part)


@contextlib.contextmanager
def web_server(folder: pathlib.Path) -> Iterator[int]:
    """The port of a server of the files of a folder, until the end of the block."""
    server = http.server.ThreadingHTTPServer((HOST, 0), functools.partial(_Ranges, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class Proxy:
    """Hands requests on to a server, and notes them; `fault` says what it does with one instead, `before` is called first.

    `requests` are those since `reset`.
    """

    def __init__(self, port: int):
        self.fault: Fault = lambda request: None
        self.before: Callable[[Request], object] = lambda request: None
        self.requests: list[Request] = []
        proxy, lock = self, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.server_side = http.client.HTTPConnection(HOST, port)

            def finish(self) -> None:
                self.server_side.close()
                with contextlib.suppress(OSError):
                    super().finish()

            def log_message(self, *words: object) -> None:
                pass

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                return b"".join(parts)

            def _serve(self) -> None:
                body, request = self._body(), Request(self.command, self.path, self.headers.get("Range", ""))
                proxy.before(request)
                with lock:
                    proxy.requests.append(request)
                    fault = proxy.fault(request)
                if fault == "reset":
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.close_connection = True
                    self.connection.close()
                    return
                if fault == "stall":
                    time.sleep(STALL)
                    self.close_connection = True
                    return
                if isinstance(fault, tuple):
                    status, content = fault
                    headers = [("Content-Type", "application/xml")]
                else:
                    sent = {key: value for key, value in self.headers.items() if key.lower() not in ("expect", "transfer-encoding")}
                    if body or self.command in ("PUT", "POST"):
                        sent["Content-Length"] = str(len(body))
                    self.server_side.request(self.command, self.path, body, sent)
                    answer = self.server_side.getresponse()
                    status, content = answer.status, answer.read()
                    dropped = ("transfer-encoding", "connection", "content-length", "date", "server")
                    headers = [(key, value) for key, value in answer.getheaders() if key.lower() not in dropped]
                    length = answer.headers.get("Content-Length")
                self.send_response(status)
                for key, value in headers:
                    self.send_header(key, value)
                is_head = self.command == "HEAD"
                self.send_header(
                    "Content-Length", length if is_head and not isinstance(fault, tuple) and length else str(len(content))
                )
                self.end_headers()
                if not is_head:
                    self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
                if fault == "cut":
                    self.wfile.flush()
                    self.close_connection = True

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - names of the library

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, *request: object) -> None:
                pass  # a client has gone

        self._server = Server((HOST, 0), Handler)
        self.address = f"http://{HOST}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def reset(self) -> None:
        self.fault = self.before = lambda request: None
        self.requests = []

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
