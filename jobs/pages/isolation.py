"""Child processes that extract pages: one that hangs, swells or crashes is lost with its process, and no other.

A thread takes an idle child, or starts one, for a batch. It copies the pages into a file in memory, from which the
child reads one after another, and reads the answers. These come in order, so that the page that ended a child is
the one after the last answer; the rest of the batch goes to the next child. A child ends when its standard input
does: no later than its page's time limit after the parent is gone.

Answers are frames of bytes, not pickles: whoever takes over a child through a page gets no further.
"""

import atexit
import contextlib
import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import BinaryIO, NamedTuple, cast

from jobs.pages.child import FATES, FRAME, OUT_OF_MEMORY, TEXT
from jobs.pages.page import Fate, Settings

_MAIN = "import sys; sys.path[:] = sys.argv[2:]; from jobs.pages.child import main; main(int(sys.argv[1]))"
_TIMERS = (-signal.SIGPROF, -signal.SIGALRM)
# What Rust, C++ and Python say when they end for want of memory.
_LAST_WORDS = (b"memory allocation of", b"bad_alloc", b"MemoryError")
LAST_BYTES = 1000
KEPT_BYTES = 2**24  # of the file that holds the pages; more only while a batch has more

Page = tuple[bytes | memoryview, str | None]  # content and its type

_idle: dict[Settings, list["Child"]] = defaultdict(list)
_lock = threading.Lock()


class Result(NamedTuple):
    """A page's text as UTF-8, or its fate, and the seconds of CPU time that it took."""

    text: bytes
    fate: Fate | None
    seconds: float


class Child:
    """A process with a loaded engine."""

    def __init__(self, settings: Settings) -> None:
        self.answered = 0
        self._pages, self._stderr = _file_in_memory(), _file_in_memory()
        self._map = self._resized(KEPT_BYTES)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _MAIN, str(self._pages.fileno()), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # an order of sets that is the same for each child
            pass_fds=[self._pages.fileno()],
            process_group=0,  # out of Ctrl-C's reach also while it starts
        )
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._send(settings)
        if len(self._answers.read(FRAME.size)) < FRAME.size:
            self._process.wait()
            said = self.last_words.decode(errors="replace").strip().rpartition("\n")[2]
            self.close()
            raise RuntimeError(f"the process that extracts with {settings.engine} did not start: {said}")

    def extract(self, pages: Sequence[Page]) -> Iterator[Result]:
        """Results of the pages in order, as many as the child lived to give."""
        bounds = list(pairwise(accumulate((len(content) for content, _ in pages), initial=0)))
        size = bounds[-1][1]
        if size > KEPT_BYTES:
            self._map = self._resized(size)
        for (content, _), (start, stop) in zip(pages, bounds, strict=True):
            self._map[start:stop] = content
        self._send([(*places, content_type) for (_, content_type), places in zip(pages, bounds, strict=True)])
        yield from self._answered(len(pages))
        if size > KEPT_BYTES:
            self._map = self._resized(KEPT_BYTES)

    def _answered(self, pages: int) -> Iterator[Result]:
        for _ in range(pages):
            frame = self._answers.read(FRAME.size)
            if len(frame) < FRAME.size:
                return
            kind, microseconds, size = FRAME.unpack(frame)
            text = self._answers.read(size)
            if len(text) < size:
                return
            self.answered += 1
            yield Result(text, None if kind == TEXT else FATES[kind], microseconds / 1e6)

    def _resized(self, size: int) -> mmap.mmap:
        os.ftruncate(self._pages.fileno(), size)
        return mmap.mmap(self._pages.fileno(), size)

    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is gone; that shows when its answers are read
            pickle.dump(message, self._requests, pickle.HIGHEST_PROTOCOL)
            self._requests.flush()

    def fate(self) -> Fate | None:
        """Why the child ended; None when it was not a page's fault."""
        status = self._process.wait()
        if status == 0 and self.answered:
            return None
        if status in _TIMERS:
            return Fate.TIMEOUT
        # The kernel kills with SIGKILL when the machine has no memory left.
        out_of_memory = status in (OUT_OF_MEMORY, -signal.SIGKILL)
        return Fate.MEMORY if out_of_memory or any(map(self.last_words.count, _LAST_WORDS)) else Fate.CRASH

    @property
    def last_words(self) -> bytes:
        """The end of what it wrote to standard error."""
        file = self._stderr.fileno()
        return os.pread(file, LAST_BYTES, max(0, os.fstat(file).st_size - LAST_BYTES))

    @property
    def alive(self) -> bool:
        """Whether it can take another batch."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for file in (self._requests, self._answers, self._pages, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                file.close()


def _file_in_memory() -> BinaryIO:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("pages"), "w+b")
    return cast(BinaryIO, tempfile.TemporaryFile())


def extract(pages: Sequence[Page], settings: Settings) -> list[Result]:
    """Extract pages, each within its limits, in the order given.

    A page that ends a child which had answered before is tried again in a new one, so that its fate does not
    depend on the pages before it. Not so for time: the CPU time of a page hardly depends on them.
    """
    results: list[Result] = []
    fresh = False
    while len(results) < len(pages):
        with _borrowed(settings, fresh) as child:
            results.extend(child.extract(pages[len(results) :]))
            fate = child.fate() if len(results) < len(pages) else None
        if fate is Fate.TIMEOUT:
            results.append(Result(b"", fate, settings.seconds))
        elif fate and not child.answered:
            results.append(Result(b"", fate, 0.0))
        fresh = bool(fate) and len(results) < len(pages)
    return results


@contextlib.contextmanager
def _borrowed(settings: Settings, fresh: bool) -> Iterator[Child]:
    """A child of this thread's own, kept for the next batch of any thread when it lives on."""
    with _lock:
        child = _idle[settings].pop() if _idle[settings] and not fresh else None
    child = child or Child(settings)
    try:
        yield child
    except BaseException:
        child.close()  # what it still has to say belongs to nobody
        raise
    if child.alive:
        with _lock:
            _idle[settings].append(child)
    else:
        child.close()


@atexit.register
def close() -> None:
    """End the idle children."""
    with _lock:
        children = [child for idle in _idle.values() for child in idle]
        _idle.clear()
    for child in children:
        child.close()
