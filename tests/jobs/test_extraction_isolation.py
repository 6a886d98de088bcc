"""A page that hangs, swells or crashes is dropped alone, by its limit; the rest of its batch comes out."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.pages import isolation
from jobs.pages.page import Fate, Settings

ROOT = Path(__file__).parents[2]
ENGINES = "tests.jobs.extraction_engines"
LIMITS = Settings(f"{ENGINES}:obeys", seconds=0.2, memory=64 * 2**20, body=2**27, pdf=False)
GOOD = "<p>A page like any other."


@pytest.fixture(autouse=True)
def no_children_left() -> Iterator[None]:
    yield
    isolation.close()


def extract(*pages: str, settings: Settings = LIMITS) -> list[str | Fate]:
    results = isolation.extract([(page.encode(), "text/html") for page in pages], settings)
    return [result.fate or result.text.decode() for result in results]


@pytest.mark.parametrize(
    ("page", "fate"),
    [
        ("<loop>", Fate.TIMEOUT),
        ("<native>", Fate.TIMEOUT),
        ("<fill>", Fate.MEMORY),
        ("<hide>", Fate.MEMORY),
        ("<100mb>", Fate.MEMORY),
        ("<crash>", Fate.CRASH),
        ("<leave>", Fate.CRASH),
        ("<fail>", Fate.ERROR),
        ("<panic>", Fate.ERROR),
    ],
)
def test_only_the_page_that_misbehaves_is_lost(page: str, fate: Fate) -> None:
    # To fill its memory takes a page a part of a second.
    limits = LIMITS._replace(seconds=2.0) if fate == Fate.MEMORY else LIMITS
    assert extract(GOOD + "1", page, GOOD + "2", GOOD + "3", settings=limits) == [
        *(GOOD + "1", fate),
        *(GOOD + "2", GOOD + "3"),
    ]
    assert extract(page, GOOD, settings=limits) == [fate, GOOD]  # first of its batch
    assert extract(GOOD, page, settings=limits) == [GOOD, fate]
    assert extract(GOOD) == [GOOD]


def test_many_pages_that_misbehave() -> None:
    quick = LIMITS._replace(seconds=1.0)  # filling its memory takes a page a part of a second
    pages = ["<loop>", "<crash>", GOOD, "<crash>", "<fill>", "<loop>", "<fail>", GOOD]
    fates = [Fate.TIMEOUT, Fate.CRASH, GOOD, Fate.CRASH, Fate.MEMORY, Fate.TIMEOUT, Fate.ERROR, GOOD]
    assert extract(*pages, settings=quick) == fates


def test_a_page_that_waits_is_stopped_by_elapsed_time() -> None:
    begun = time.monotonic()
    assert extract(GOOD, "<sleep>", GOOD, settings=LIMITS._replace(seconds=0.1)) == [GOOD, Fate.TIMEOUT, GOOD]
    assert time.monotonic() - begun >= 1  # ten times its CPU time


def test_time_is_counted_in_cpu_seconds_so_that_a_busy_machine_decides_nothing() -> None:
    """The child stands still for longer than its limit while it works on a page of half its limit."""
    child = isolation.Child(Settings(f"{ENGINES}:half_a_second", 1.0, 2**28, 2**20, False))
    pid = child._process.pid

    def disturb() -> None:
        time.sleep(0.1)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=disturb)
    thread.start()
    results = child.extract([(b"<p>", "text/html")])
    thread.join()
    child.close()
    assert [result.text for result in results] == [b"done"]
    assert 0.4 < results[0].seconds < 0.9


def test_a_page_gets_its_memory_whatever_the_pages_before_it_took() -> None:
    settings = LIMITS._replace(memory=150 * 2**20, seconds=2.0)
    pages = ["<100mb>", "<100mb>", GOOD, "<100mb>"]
    assert extract(*pages, settings=settings) == pages


def test_a_page_that_ends_a_used_child_has_another_chance_in_a_new_one() -> None:
    page = "<crash unless first>"
    assert extract(GOOD, page, GOOD, page) == [GOOD, page, GOOD, page]


def test_what_an_engine_prints_is_no_answer() -> None:
    assert extract("<chatter>", GOOD) == ["<chatter>", GOOD]


def test_a_batch_larger_than_the_file_that_is_kept() -> None:
    pages = [GOOD + letter * 20_000_000 for letter in "ab"]
    ample = LIMITS._replace(memory=2**29, seconds=5)
    assert extract(*pages, GOOD, settings=ample) == [*pages, GOOD]
    assert extract(GOOD, settings=ample) == [GOOD]


def test_no_pages() -> None:
    assert extract() == []


def test_threads_have_children_of_their_own() -> None:
    def batch(number: int) -> list[str | Fate]:
        return extract(*(f"{GOOD}{number}.{i}" for i in range(20)), *(["<crash>"] if number % 2 else []))

    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(batch, range(12)))
    for number, found in enumerate(batches):
        assert found == [f"{GOOD}{number}.{i}" for i in range(20)] + ([Fate.CRASH] if number % 2 else [])


def test_children_are_kept_for_the_next_batch_and_ended_at_the_end() -> None:
    extract(GOOD)
    (child,) = isolation._idle[LIMITS]
    extract(GOOD)
    assert isolation._idle[LIMITS] == [child]
    isolation.close()
    assert not child.alive
    assert extract(GOOD) == [GOOD]


def test_an_idle_child_that_was_killed_costs_no_page() -> None:
    extract(GOOD)
    (child,) = isolation._idle[LIMITS]
    os.kill(child._process.pid, signal.SIGKILL)
    assert extract("<p>1", "<p>2") == ["<p>1", "<p>2"]


def test_an_interrupt_is_the_parents_to_handle() -> None:
    extract(GOOD)
    (child,) = isolation._idle[LIMITS]
    os.kill(child._process.pid, signal.SIGINT)
    assert extract(GOOD) == [GOOD]
    assert isolation._idle[LIMITS] == [child]


@pytest.mark.parametrize("page", [GOOD, "<sleep>"])
def test_a_child_ends_when_its_parent_is_killed(page: str) -> None:
    """While it waits for a batch, and in the middle of a page."""
    code = f"""
import sys, threading
from jobs.pages import isolation
from jobs.pages.page import Settings
child = isolation.Child(Settings({LIMITS.engine!r}, 0.3, {LIMITS.memory}, 1000, False))
threading.Timer(0.3, lambda: print(child._process.pid, flush=True)).start()
child.extract([({page.encode()!r}, "text/html")])
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        assert runs(child)
        parent.kill()
    deadline = time.monotonic() + 10
    while runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs(child)


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_an_engine_that_cannot_be_loaded_stops_the_batch() -> None:
    with pytest.raises(RuntimeError, match="no_such_engine"):
        extract(GOOD, settings=LIMITS._replace(engine=f"{ENGINES}:no_such_engine"))


def test_a_child_loads_no_arrow_and_no_kernels() -> None:
    code = (
        "import sys, jobs.pages.child; print([m for m in ('pyarrow', 'numpy', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
