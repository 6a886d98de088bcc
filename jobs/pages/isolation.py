"""Child processes that extract pages: one that hangs, swells or crashes is lost with its process, and no other.

A thread takes an idle child, or starts one, for a batch. It copies the pages into a file in memory, from which the
child reads one after another; the child writes its answers into another, and says when it is done. So nobody waits
for anybody in between, and answers outlive the child that gave them. They come in order: the page that ended a child
is the one after the last answer, and the rest of the batch goes to the next child. A child ends when its standard
input does: no later than its page's time limit after the parent is gone.

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

_MAIN = "import sys; sys.path[:] = sys.argv[3:]; from jobs.pages.child import main; main(*map(int, sys.argv[1:3]))"
_TIMERS = (-signal.SIGPROF, -signal.SIGALRM)
# What Rust, C++ and Python say when they end for want of memory.
_LAST_WORDS = (b"memory allocation of", b"bad_alloc", b"MemoryError")
LAST_BYTES = 1000
KEPT_BYTES = 2**24  # of the file that holds the pages; more only while a batch has more

_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # an order of sets that is the same for each child
    # Memory that a page gave back serves the next; to ask the kernel for it again takes a twentieth of the time.
    "MALLOC_TRIM_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TOP_PAD_": str(4 * 2**20),
}

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
        self._pages, self._answers, self._stderr = (_file_in_memory() for _ in range(3))
        self._map = self._resized(KEPT_BYTES)
        shared = [self._pages.fileno(), self._answers.fileno()]
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _MAIN, *map(str, shared), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            pass_fds=shared,
            env={**os.environ, **_ENVIRONMENT},
            process_group=0,  # out of Ctrl-C's reach also while it starts
        )
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._signals = self._process.stdin, self._process.stdout
        if not self._done(settings):
            self._process.wait()
            said = self.last_words.decode(errors="replace").strip().rpartition("\n")[2]
            self.close()
            raise RuntimeError(f"the process that extracts with {settings.engine} did not start: {said}")

    def extract(self, pages: Sequence[Page]) -> list[Result]:
        """Results of the pages in order, as many as the child lived to give."""
        bounds = list(pairwise(accumulate((len(content) for content, _ in pages), initial=0)))
        size = bounds[-1][1]
        if size > KEPT_BYTES:
            self._map = self._resized(size)
        for (content, _), (start, stop) in zip(pages, bounds, strict=True):
            self._map[start:stop] = content
        self._done([(*places, content_type) for (_, content_type), places in zip(pages, bounds, strict=True)])
        results = list(self._results())
        self.answered += len(results)
        if size > KEPT_BYTES:
            self._map = self._resized(KEPT_BYTES)
        return results

    def _done(self, message: object) -> bool:
        """Send a message and wait until the child has dealt with it; False when it has ended instead."""
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(message, self._requests, pickle.HIGHEST_PROTOCOL)
            self._requests.flush()
        return bool(self._signals.read(1))

    def _results(self) -> Iterator[Result]:
        frames, start = _content(self._answers), 0
        while start + FRAME.size <= len(frames):
            kind, microseconds, size = FRAME.unpack_from(frames, start)
            text = frames[start + FRAME.size : start + FRAME.size + size]
            if len(text) == size:  # else the child was killed while it wrote
                yield Result(text, None if kind == TEXT else FATES[kind], microseconds / 1e6)
            start += FRAME.size + size
        os.ftruncate(self._answers.fileno(), 0)
        os.lseek(self._answers.fileno(), 0, os.SEEK_SET)  # the child writes from here on

    def _resized(self, size: int) -> mmap.mmap:
        os.ftruncate(self._pages.fileno(), size)
        return mmap.mmap(self._pages.fileno(), size)

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
        return _content(self._stderr)[-LAST_BYTES:]

    @property
    def alive(self) -> bool:
        """Whether it can take another batch."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for file in (self._requests, self._signals, self._pages, self._answers, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                file.close()


def _file_in_memory() -> BinaryIO:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("pages"), "w+b")
    return cast(BinaryIO, tempfile.TemporaryFile())


def _content(file: BinaryIO) -> bytes:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


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
