"""Byte ranges of a file wherever it lies: exactly the bytes asked for, and whether they are still of the same file.

Every answer says which file it was taken from (size and entity tag), so one that changes on the way is noticed. A
failure that may pass is tried again after a wait that doubles; one that will not becomes a sentence at once.
"""

import asyncio
import concurrent.futures
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import fsspec

from jobs.errors import UserError
from jobs.sources import storage

if TYPE_CHECKING:
    import aiohttp

PIECE = 16 * 2**20  # of one request: what a broken connection can cost, and what a thread holds in memory
FIRST_WAIT = 0.5  # seconds, doubled with each attempt
LONGEST_WAIT = 60.0
_SILENCE = 60.0  # seconds without a byte after which a connection counts as broken
_GLANCE = 0.2  # seconds between two looks whether the user has interrupted
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # HTTP statuses worth another attempt
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True)
class Identity:
    """Which file an answer came from: its size in bytes, and a tag or time that changes with its content."""

    size: int
    version: str


class PassingError(Exception):
    """A failure that may not be there next time; `after` is the wait in seconds that the server asked for."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class StoppedError(Exception):
    """Another thread has failed, or the user has interrupted."""


class Place(Protocol):
    """A file that gives ranges of itself."""

    url: str

    def fetch(self, start: int, stop: int, stopped: threading.Event) -> tuple[bytes, Identity]:
        """Bytes from `start` up to `stop` or the file's end; raises PassingError, or UserError for good.

        Where the storage may stay silent for long, StoppedError soon after `stopped` is set.
        """


def place(url: str) -> Place:
    """The file at a path or URL.

    Raises
    ------
    UserError
        The URL's protocol is unknown, or what it needs is not installed.
    """
    found = storage.locate(url)
    if isinstance(found, storage.Local):
        return LocalFile(found.path)
    protocol = url.partition("://")[0]
    if protocol in ("http", "https"):
        return HttpFile(url, found.system, url)
    if protocol == "hf":
        return _hub_file(url, found.system, found.inner)
    return StoredFile(url, found.system, found.inner)


class LocalFile:
    """A file on this machine."""

    def __init__(self, path: Path) -> None:
        self.url, self.path = str(path), path

    def fetch(self, start: int, stop: int, stopped: threading.Event) -> tuple[bytes, Identity]:
        """See `Place`."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                file.seek(start)
                return file.read(stop - start), Identity(status.st_size, str(status.st_mtime_ns))
        except OSError as error:
            raise UserError(f"{self.url} cannot be read: {error.strerror}") from None


class StoredFile:
    """A file in an object store that fsspec reaches."""

    def __init__(self, url: str, system: Any, inner: str) -> None:
        self.url, self.system, self.inner = url, system, inner

    def fetch(self, start: int, stop: int, stopped: threading.Event) -> tuple[bytes, Identity]:
        """See `Place`. Without fsspec's read-ahead; s3fs itself refuses another version than it opened."""
        try:
            self.system.invalidate_cache(self.inner)
            with self.system.open(self.inner, "rb", cache_type="none") as file:
                details = getattr(file, "details", None) or self.system.info(self.inner)
                file.seek(start)
                body = file.read(min(stop, details["size"]) - start)
                return body, Identity(details["size"], storage.version_of(details))
        except FileNotFoundError:
            raise UserError(f"there is nothing at {self.url}") from None
        except PermissionError as error:
            raise UserError(f"{self.url} refuses access: {storage.said(error)}") from None
        except Exception as error:  # every file system raises its own
            raise PassingError(storage.said(error)) from error


class HttpFile:
    """A file on an HTTP server, which must know ranges.

    fsspec's session is used, so what its configuration says of proxies, certificates and headers holds; its files
    are not, since they hide a server's answer.
    """

    def __init__(self, url: str, system: Any, address: str, headers: dict[str, str] | None = None) -> None:
        self.url, self.system, self.address, self.headers = url, system, address, headers or {}

    def fetch(self, start: int, stop: int, stopped: threading.Event) -> tuple[bytes, Identity]:
        """See `Place`."""
        import aiohttp

        answer = asyncio.run_coroutine_threadsafe(self._get(start, stop), self.system.loop)
        while not concurrent.futures.wait([answer], _GLANCE).done:
            if stopped.is_set():
                answer.cancel()
                raise StoppedError
        try:
            return answer.result()
        except aiohttp.InvalidURL:
            raise UserError(f"{self.url} is not a URL") from None
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno or 0  # those of name look-ups are negative
            why = os.strerror(number) if number > 0 else storage.said(error.os_error)
            raise PassingError(f"no connection to {error.host}:{error.port} ({why})") from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise PassingError(storage.said(error)) from error

    async def _get(self, start: int, stop: int) -> tuple[bytes, Identity]:
        import aiohttp

        session = await self.system.set_session()
        options = dict(self.system.kwargs)
        headers = {**options.pop("headers", {}), **self.headers, "Accept-Encoding": "identity"}
        headers["Range"] = f"bytes={start}-{stop - 1}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SILENCE, sock_read=_SILENCE)
        address = self.system.encode_url(self.address)
        async with session.get(address, headers=headers, timeout=timeout, **options) as response:
            try:
                identity = self._judge(response, start)
            except BaseException:
                response.close()  # without reading what may be the whole file
                raise
            return await response.read(), identity

    def _judge(self, response: "aiohttp.ClientResponse", start: int) -> Identity:
        """What an answer is the answer of; raises where it is not the range."""
        status = f"{response.status} {response.reason}"
        if response.status in _PASSING:
            after = response.headers.get("Retry-After", "")
            raise PassingError(f"the server answers {status}", float(after) if after.isdigit() else 0.0)
        if response.status == 200:
            raise UserError(
                f"{self.url}: the server ignores byte ranges and answers with the whole file, so that single row "
                "groups cannot be fetched; download the file whole and give its path"
            )
        if response.status in (404, 410):
            raise UserError(f"there is nothing at {self.url} (the server answers {status})")
        if response.status in (401, 403, 407):
            raise UserError(f"{self.url} refuses access (the server answers {status})")
        if response.status == 416:
            raise UserError(f"{self.url} is empty or shorter than before (the server answers {status})")
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if response.status != 206 or not found or int(found[1]) != start:
            raise UserError(f"{self.url}: the server does not answer with the range asked for, but {status}")
        version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        return Identity(int(found[3]), version)


def _hub_file(url: str, system: Any, inner: str) -> HttpFile:
    """A file of the Hugging Face Hub by its address there: one request for a range, and none to the API."""
    from huggingface_hub.utils import build_hf_headers

    return HttpFile(url, fsspec.filesystem("https"), system.url(inner), build_hf_headers(token=system.token))


def check(url: str, before: Identity, now: Identity) -> None:
    """Raise UserError where a file is no longer the one it was."""
    if now != before:
        raise UserError(
            f"{url} has changed since the download began: it had {before.size:,} bytes and the version "
            f"{before.version or 'none'}, and has now {now.size:,} and {now.version or 'none'}; "
            "start again with a new --output"
        )


class Fetcher:
    """Fetches ranges patiently, from any number of threads, and counts.

    Parameters
    ----------
    retries
        Further attempts after a failure that may pass.
    say
        Is told of the first failure, so that nobody waits without knowing for what.

    Attributes
    ----------
    stopped
        Once set, whoever waits or begins a request gets StoppedError.
    n_bytes, requests, repeated
        What was received, in how many answers, and how many attempts failed before.
    """

    def __init__(self, retries: int, say: Callable[[str], None] = lambda sentence: None) -> None:
        self.retries, self.say = retries, say
        self.stopped = threading.Event()
        self.n_bytes = self.requests = self.repeated = 0
        self._lock = threading.Lock()

    def identify(self, file: Place) -> tuple[bytes, Identity]:
        """The file's first four bytes, the least that an answer can hold, and its identity."""
        return self._patiently(file, lambda: file.fetch(0, 4, self.stopped))

    def read(self, file: Place, identity: Identity, start: int, stop: int) -> bytes:
        """All bytes from `start` to `stop` of a file that must be the one it was.

        Raises
        ------
        UserError
            The file has changed, is not to be had, or failed each attempt.
        """
        return b"".join(self.stream(file, identity, start, stop))

    def stream(self, file: Place, identity: Identity, start: int, stop: int) -> Iterator[bytes]:
        """The same in pieces that fit into memory."""
        for at in range(start, stop, PIECE):
            yield self._piece(file, identity, at, min(at + PIECE, stop))

    def _piece(self, file: Place, identity: Identity, start: int, stop: int) -> bytes:
        def whole() -> tuple[bytes, Identity]:
            body, now = file.fetch(start, stop, self.stopped)
            check(file.url, identity, now)
            if len(body) != stop - start:
                raise PassingError(f"{len(body):,} bytes came instead of {stop - start:,}")
            return body, now

        return self._patiently(file, whole)[0]

    def _patiently(
        self, file: Place, attempt: Callable[[], tuple[bytes, Identity]]
    ) -> tuple[bytes, Identity]:
        for failures in range(self.retries + 1):
            if self.stopped.is_set():
                raise StoppedError
            try:
                body, identity = attempt()
            except PassingError as error:
                last = error
                with self._lock:
                    self.repeated += 1
                    is_first = self.repeated == 1
                if failures < self.retries:
                    if is_first:
                        self.say(
                            f"{file.url}: {error}; what fails is tried again, up to {self.retries} times"
                        )
                    self.stopped.wait(min(LONGEST_WAIT, max(error.after, FIRST_WAIT * 2**failures)))
            else:
                with self._lock:
                    self.n_bytes, self.requests = self.n_bytes + len(body), self.requests + 1
                return body, identity
        attempts = f"{self.retries + 1} attempts" if self.retries else "one attempt"
        raise UserError(f"{file.url} cannot be fetched: {last} (given up after {attempts})") from last
