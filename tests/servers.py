"""Servers on the loopback that tests download from: plain HTTP that counts and can be told to misbehave, and S3.

with files_server(folder) as files:     # files.url, files.served, files.fail_every = 3
with s3_server("bucket") as s3:         # s3.url == "s3://bucket", s3.upload(folder), s3.system
"""

import contextlib
import email.utils
import http.server
import logging
import os
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PIECE = 2**16


# ---------------------------------------------------------------- HTTP


@dataclass
class FilesServer:
    """A folder over HTTP, with byte ranges, and what it was asked for and sent.

    Attributes
    ----------
    url
        Of the folder.
    served
        Bytes of bodies that were written to clients.
    requests
        One `(path, range header or None)` for each GET.
    fail_every
        Each n-th GET is answered 503.
    cut_every
        Each n-th body ends half-way, with the connection.
    ignore_ranges
        Every GET is answered 200 with the whole file.
    status
        Every GET is answered with this status.
    before
        Called with the number of each GET, from 1, before it is answered.
    """

    folder: Path
    url: str = ""
    served: int = 0
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    fail_every: int | None = None
    cut_every: int | None = None
    ignore_ranges: bool = False
    status: int | None = None
    before: Callable[[int], None] = lambda number: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self) -> None:
        """Forget what was served so far."""
        with self.lock:
            self.served, self.requests = 0, []

    def asked(self, path: str, wanted: str | None) -> int:
        """Note a GET; its number."""
        with self.lock:
            self.requests.append((path, wanted))
            number = len(self.requests)
        self.before(number)
        return number


def _handler(server: FilesServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            """Tests read what was asked for from `requests`."""

        def do_HEAD(self) -> None:
            self.answer(whole=True)

        def do_GET(self) -> None:
            number = server.asked(self.path, self.headers.get("Range"))
            if server.status:
                self.refuse(server.status)
            elif server.fail_every and number % server.fail_every == 0:
                self.refuse(503)
            else:
                self.answer(server.ignore_ranges, bool(server.cut_every and number % server.cut_every == 0))

        def refuse(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def answer(self, whole: bool, cut: bool = False) -> None:
            path = server.folder / self.path.partition("?")[0].lstrip("/")
            if not path.is_file():
                self.refuse(404)
                return
            size = path.stat().st_size
            wanted = None if whole else re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            start, stop = _span(wanted, size)
            if wanted and start >= size:
                self.refuse(416)
                return
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            if not server.ignore_ranges:
                self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(stop - start))
            self.send_header("ETag", f'"{path.stat().st_mtime_ns}-{size}"')
            self.send_header("Last-Modified", email.utils.formatdate(path.stat().st_mtime, usegmt=True))
            self.end_headers()
            if self.command == "GET":
                self.body(path, start, start + (stop - start) // 2 if cut else stop)
                self.close_connection = cut

        def body(self, path: Path, start: int, stop: int) -> None:
            with path.open("rb") as file:
                file.seek(start)
                while start < stop:
                    piece = file.read(min(PIECE, stop - start))
                    try:
                        self.wfile.write(piece)
                    except OSError:  # the client has hung up
                        self.close_connection = True
                        return
                    with server.lock:
                        server.served += len(piece)
                    start += len(piece)

    return Handler


def _span(wanted: re.Match[str] | None, size: int) -> tuple[int, int]:
    if wanted is None:
        return 0, size
    first, last = wanted.groups()
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


class _Listening(http.server.ThreadingHTTPServer):
    """Ends with its connections, which clients keep open, and not only with its port."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def hang_up(self) -> None:
        for connection in self.connections:
            with contextlib.suppress(OSError):  # hung up by the client
                connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def files_server(folder: Path) -> Iterator[FilesServer]:
    """Serve a folder on 127.0.0.1 until the block ends."""
    server = FilesServer(folder)
    with _Listening(("127.0.0.1", 0), _handler(server)) as listening:
        server.url = f"http://127.0.0.1:{listening.server_port}"
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            listening.shutdown()
            listening.hang_up()


# ---------------------------------------------------------------- S3


@dataclass
class S3Server:
    """A bucket of an S3 server in this process.

    Attributes
    ----------
    bucket
        Its name; `url` is `s3://bucket`.
    environment
        What a process needs in its environment to reach the server; set in this one and, with it, in workers that
        are started later.
    system
        An s3fs file system that sees the bucket.
    served
        Bytes of bodies that were sent.
    requests
        `METHOD /path` of each request.
    """

    bucket: str
    environment: dict[str, str]
    system: Any = None
    served: int = 0
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    def upload(self, folder: Path, prefix: str = "") -> str:
        """Put the files below a folder into the bucket; their URL."""
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            key = "/".join(part for part in (prefix, path.relative_to(folder).as_posix()) if part)
            self.system.pipe_file(f"{self.bucket}/{key}", path.read_bytes())
        return f"{self.url}/{prefix}".rstrip("/")

    def reset(self) -> None:
        """Forget what was served so far."""
        with self.lock:
            self.served, self.requests = 0, []


def _counting(application: Callable[..., Any], s3: S3Server) -> Callable[..., Iterator[bytes]]:
    def counted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        with s3.lock:
            s3.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        for piece in application(environ, start_response):
            with s3.lock:
                s3.served += len(piece)
            yield piece

    return counted


@contextlib.contextmanager
def s3_server(bucket: str | None = None) -> Iterator[S3Server]:
    """An S3 server on 127.0.0.1 with one bucket, and the environment that leads clients to it."""
    pytest.importorskip("moto", reason="the S3 tests need moto[server]")
    pytest.importorskip("s3fs", reason="s3:// needs the extra `remote`")
    import s3fs
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    s3 = S3Server(bucket or f"bucket-{uuid.uuid4().hex[:12]}", {})
    server = make_server(
        "127.0.0.1", 0, _counting(DomainDispatcherApplication(create_backend_app), s3), threaded=True
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    s3.environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3.system = s3fs.S3FileSystem()
        s3.system.mkdir(s3.bucket)
        try:
            yield s3
        finally:
            s3fs.S3FileSystem.clear_instance_cache()
            server.shutdown()
            server.server_close()
