"""What a person sees while jobs run: bars on a terminal, plain lines anywhere else."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console as RichConsole
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

LINE_EVERY = 10.0  # seconds between two lines about one job, off a terminal


def counted(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class Meter:
    """Counts what one job has done and tells the console.

    A job whose tasks do not count themselves says what all of them handle together, `documents` and `n_bytes`.
    """

    def __init__(
        self, console: "Console", name: str, tasks: int, unit: str, documents: int = 0, n_bytes: int = 0
    ) -> None:
        self.console, self.name, self.tasks, self.unit = console, name, tasks, unit
        self.all_documents, self.all_bytes = documents, n_bytes
        self.done = self.documents = self.n_bytes = 0
        self.started = time.perf_counter()

    def advance(self, documents: int = 0, n_bytes: int = 0) -> None:
        """One task is done; it handled this many documents and bytes of text."""
        self.done += 1
        self.documents += documents
        self.n_bytes += n_bytes
        self.console._moved(self)

    @property
    def seconds(self) -> float:
        """Since the job started."""
        return time.perf_counter() - self.started

    def rate(self) -> str:
        """Throughput in the units a person compares."""
        seconds, share = max(self.seconds, 1e-6), self.done / max(self.tasks, 1)
        documents = self.documents or share * self.all_documents
        n_bytes = self.n_bytes or share * self.all_bytes
        rates = []
        if documents:
            rates.append(f"{documents / seconds:,.0f} documents/s")
        if n_bytes:
            rates.append(f"{n_bytes / seconds / 1e6:,.1f} MB/s")
        return ", ".join(rates)


class Console:
    """The terminal, or a pipe or file, that a run speaks to."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._rich = RichConsole(file=stream or sys.stdout, highlight=False, soft_wrap=True)
        self._noticed: set[str] = set()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether bars and colours make sense."""
        return self._rich.is_terminal

    def line(self, text: str = "", style: str | None = None) -> None:
        """Print one line; what looks like markup in it is printed as it is."""
        self._rich.print(Text(text, style=style or ""))

    def warn(self, text: str) -> None:
        """Print a warning, once however often it is given."""
        if text not in self._noticed:
            self._noticed.add(text)
            self.line(f"warning: {text}", style="yellow")

    @contextlib.contextmanager
    def job(self, name: str, tasks: int, unit: str, documents: int = 0, n_bytes: int = 0) -> Iterator[Meter]:
        """Show a job of `tasks` tasks; `unit` names what one task handles; see `Meter` for the rest."""
        meter = Meter(self, name, tasks, unit, documents, n_bytes)
        if self.is_terminal:
            with Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=self._rich,
                transient=True,
            ) as self._progress:
                self._task = self._progress.add_task(f"{name:<16}", total=tasks, rate="")
                yield meter
            self._progress = None
        else:
            with self._lines(meter):
                yield meter
        rate = meter.rate()
        done = counted(tasks, unit.removesuffix("s"))
        self.line(f"{name:<16} {done} in {meter.seconds:.1f} s" + (f" ({rate})" if rate else ""))

    def _moved(self, meter: Meter) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=meter.done, rate=meter.rate())

    @contextlib.contextmanager
    def _lines(self, meter: Meter) -> Iterator[None]:
        """A line about a job now and then, from a thread: one long task shows that it is alive, too."""
        ended = threading.Event()

        def speak() -> None:
            while not ended.wait(LINE_EVERY):
                rate = meter.rate() or f"{meter.seconds:,.0f} s so far"
                self.line(f"{meter.name:<16} {meter.done:,} of {meter.tasks:,} {meter.unit}, {rate}")

        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        try:
            yield
        finally:
            ended.set()
            speaker.join()

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table, first column to the left and the others, numbers, to the right; never cut to the width."""
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for i, name in enumerate(header):
            table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        unlimited = self._rich.options.update(max_width=10_000)
        width = Measurement.get(self._rich, unlimited, table).maximum
        for line in self._rich.render_lines(table, unlimited.update(width=width)):
            self._rich.print(Segments([*line, Segment.line()]), end="")
