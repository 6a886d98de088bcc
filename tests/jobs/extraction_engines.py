"""Engines that misbehave, loaded by child processes as `tests.jobs.extraction_engines:NAME`."""

import ctypes
import os
import re
import time

CALLS = 0


def obeys(html: str) -> str:
    """Do what the page says, then give the page."""
    global CALLS
    CALLS += 1
    for word, act in ACTS.items():
        if word in html:
            act()
    return html


def half_a_second(html: str) -> str:
    """Work for so long, and no longer."""
    begun = time.thread_time()
    while time.thread_time() - begun < 0.5:
        pass
    return "done"


def loop() -> None:
    while True:
        pass


def loop_in_native_code() -> None:
    """A match that never ends within one call of C, GIL held."""
    re.fullmatch(r"(a*)*b", "a" * 200)


def sleep() -> None:
    time.sleep(1000)


def fill_memory() -> None:
    held = []
    while True:
        held.append(bytearray(2**20))


def fill_memory_and_hide_it() -> None:
    """As trafilatura does when a parser runs out of memory."""
    held = []
    try:
        while True:
            held.append(b"x" * 2**20)
    except MemoryError:
        pass


def take_100_mb() -> None:
    bytearray(100_000_000)[::4096] = b"x" * 24415  # touched, so that it is in RAM


def crash() -> None:
    ctypes.string_at(0)


def crash_unless_first() -> None:
    if CALLS > 1:
        crash()


def leave() -> None:
    os._exit(0)


def fail() -> None:
    raise ValueError("no such page")


def panic() -> None:
    raise BaseException("as Rust's panics are")


def chatter() -> None:
    os.write(1, b"not an answer" * 1000)
    os.write(2, b"nor this")


ACTS = {
    "<loop>": loop,
    "<native>": loop_in_native_code,
    "<sleep>": sleep,
    "<fill>": fill_memory,
    "<hide>": fill_memory_and_hide_it,
    "<100mb>": take_100_mb,
    "<crash>": crash,
    "<crash unless first>": crash_unless_first,
    "<leave>": leave,
    "<fail>": fail,
    "<panic>": panic,
    "<chatter>": chatter,
}
