"""What the benchmarks share: one core, a clock that a busy machine does not disturb, and the table.

Only the standard library, because it is imported before the libraries that it holds to one thread, and in the
environment of the other tools too.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

RUNS = 5
OTHER_THREADS = 0.05  # of the time taken; more, and a library did not keep to one thread
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def keep_to_one_core() -> None:
    """This process and all that it starts, whose libraries find one thread in their environment."""
    os.environ.update(ONE_THREAD)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process that did nothing before."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *arguments).result()


def clock() -> float:
    """Seconds, without those in which this thread stood in the queue for its core.

    What is left is work and waiting for the disk: on an idle machine, time as it passes.
    """
    return time.perf_counter() - _queued()


def _queued() -> float:
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:  # not every kernel says
        return 0.0


def seconds(function: Callable[[], object]) -> float:
    """Time that a call takes on the calling thread; an error when other threads of the process worked for it."""
    begun, elsewhere = clock(), _cpu_time_of_other_threads()
    function()
    taken, elsewhere = clock() - begun, _cpu_time_of_other_threads() - elsewhere
    if elsewhere > OTHER_THREADS * taken:
        raise RuntimeError(f"other threads worked for {elsewhere:.3f} s in a call of {taken:.3f} s")
    return taken


def _cpu_time_of_other_threads() -> float:
    return time.process_time() - time.thread_time()


def peak_memory() -> float:
    """MiB of this process's memory in RAM at its peak (`ru_maxrss` would count the parent's as well)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@dataclass(frozen=True)
class Result:
    """One line of the table: what was measured in several runs, in turns with another tool where there is one."""

    what: str
    unit: str  # a rate, MB/s, or something of which less is better
    ours: Sequence[float]
    tool: str = ""
    theirs: Sequence[float] = ()
    at_least: float | None = None
    below: float | None = None
    times: float | None = None  # as good as the other tool

    @property
    def ratios(self) -> list[float]:
        """How many times better we are, run by run."""
        pairs = zip(self.ours, self.theirs, strict=False)
        return [a / b if self.unit.endswith("/s") else b / a for a, b in pairs]

    @property
    def met(self) -> bool:
        """Whether the medians clear the bar, where there is one."""
        return not (
            (self.at_least is not None and median(self.ours) < self.at_least)
            or (self.below is not None and median(self.ours) >= self.below)
            or (self.times is not None and median(self.ratios) < self.times)
        )

    def cells(self) -> list[str]:
        """The line, column by column."""
        bars = [
            *([f">= {self.at_least:,g} {self.unit}"] if self.at_least is not None else []),
            *([f"< {self.below:,g} {self.unit}"] if self.below is not None else []),
            *([f">= {self.times:g} times"] if self.times is not None else []),
        ]
        return [
            self.what,
            f"{_spread(self.ours)} {self.unit}",
            f"{self.tool}: {_spread(self.theirs)}" if self.theirs else "",
            _spread(self.ratios),
            ", ".join(bars),
            ("met" if self.met else "MISSED") if bars else "",
        ]


def table(results: Sequence[Result]) -> str:
    """All results under a heading, columns aligned."""
    heading = ["", "ours, median (min-max)", "the other tool", "ratio", "bar", ""]
    return aligned([heading, *(result.cells() for result in results)])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    if len(values) == 1:
        return _digits(values[0])
    return f"{_digits(median(values))} ({_digits(min(values))}-{_digits(max(values))})"


def _digits(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
