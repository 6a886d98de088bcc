"""The process in which pages are extracted: a frame for each page of a batch.

The kernel holds each page to its limits, since nothing else stops native code: an interval timer of CPU time and one
of elapsed time, both of which end the process, and a limit of data memory, past which allocations fail. Some
libraries take a failed allocation for a broken page; therefore that limit is twice the page's, and a page is
dropped when the process's peak passed its own.

It imports neither Arrow nor NumPy, so that it starts fast and stays small.
"""

import contextlib
import logging
import os
import pickle
import resource
import signal
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from jobs.pages import engines, page

FRAME = struct.Struct(
    "<bQQ"
)  # index of the fate or TEXT; microseconds of CPU time; bytes of text that follow
TEXT = -1
FATES = tuple(page.Fate)
OUT_OF_MEMORY = 64  # exit status
WALL = 10  # elapsed seconds for each second of CPU time: a busy machine decides nothing
STACK_BYTES = 8 * 2**20
STATUS = "/proc/self/status"
FILLING = 0.002  # seconds; what takes less has not filled much memory, and to ask takes a while
USED = 4  # a page may find this part of its memory taken by those before it, no more


@dataclass
class Worker:
    """What serves one page after another."""

    settings: page.Settings
    engine: engines.Engine
    answers: int

    def __post_init__(self) -> None:
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_STACK, STACK_BYTES)  # so that the same depth of tags overflows it everywhere
        self.status = os.open(STATUS, os.O_RDONLY) if Path(STATUS).exists() else None  # Linux
        self.loaded = self.memory("VmHWM")
        if self.status is not None:
            _limit(resource.RLIMIT_DATA, self.memory("VmData") + 2 * self.settings.memory)

    def memory(self, name: str) -> int:
        """Bytes of a kind of this process's memory, as the kernel calls it; 0 where it does not say."""
        if self.status is None:
            return 0
        status = os.pread(self.status, 4096, 0)
        return 1024 * int(status.partition(f"{name}:".encode())[2].split(maxsplit=1)[0])

    def extract(self, content: bytes, content_type: str | None) -> None:
        """Answer one page, or end."""
        begun = time.thread_time()  # the process's clock lags while an interval timer runs
        _arm(self.settings.seconds)
        try:
            found = page.read(content, content_type, self.engine, self.settings)
        except MemoryError:
            sys.exit(OUT_OF_MEMORY)
        except BaseException:  # a panic of Rust is no Exception
            found = page.Fate.ERROR
        cpu = time.thread_time() - begun
        taken = self.memory("VmHWM") - self.loaded if cpu > FILLING else 0
        if taken > self.settings.memory:
            sys.exit(OUT_OF_MEMORY)
        if isinstance(found, page.Fate):
            self.answer(FATES.index(found), cpu)
        else:
            self.answer(TEXT, cpu, found)
        if taken > self.settings.memory // USED:
            sys.exit()

    def answer(self, kind: int, cpu: float, text: bytes = b"") -> None:
        """Write a frame."""
        rest = memoryview(FRAME.pack(kind, round(cpu * 1e6), len(text)) + text)
        while rest:
            rest = rest[os.write(self.answers, rest) :]


def main(pages: int, answers: int) -> None:
    """Serve the parent until it closes the pipe or is gone.

    Parameters
    ----------
    pages, answers
        Descriptors of the files that hold the pages of a batch and take the frames.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(
        signal.SIGPROF, signal.SIG_DFL
    )  # the timers' signals end the process, whatever it inherited
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    requests, signals = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(2, 1)  # what a library prints must not pass for a signal
    logging.disable(logging.CRITICAL)
    settings: page.Settings = pickle.load(requests)
    worker = Worker(settings, engines.load(settings.engine), answers)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            os.write(signals, b"!")
            for start, stop, content_type in pickle.load(requests):
                worker.extract(os.pread(pages, stop - start, start), content_type)
            _arm(0)


def _arm(seconds: float) -> None:
    """Let the kernel end this process after so many seconds of CPU time, or `WALL` times that; 0 for never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds * WALL)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
