"""What a person sees while jobs run: bars on a terminal, plain lines anywhere else, or JSON for a program."""

import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TaskProgressColumn, TextColumn
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

LINE_EVERY = 10.0  # seconds between two lines about one job, off a terminal
NARROW = 60  # columns; below, a bar has no room for its rate
HANGING = "  "  # before what goes on from the line above

Level = Literal["quiet", "normal", "verbose"]


def counted(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class Meter:
    """Counts what one job has done and tells the console.

    A job whose tasks do not count themselves says what all of them handle together: `documents`, `n_bytes`, `n_tokens`.
    """

    def __init__(
        self,
        console: "Console",
        name: str,
        tasks: int,
        unit: str,
        documents: int = 0,
        n_bytes: int = 0,
        n_tokens: int = 0,
    ) -> None:
        self.console, self.name, self.tasks, self.unit = console, name, tasks, unit
        self.all_documents, self.all_bytes, self.all_tokens = documents, n_bytes, n_tokens
        self.done = self.documents = self.n_bytes = self.n_tokens = 0
        self.started = time.perf_counter()

    def advance(self, documents: int = 0, n_bytes: int = 0, n_tokens: int = 0) -> None:
        """One task is done; it handled this many documents, bytes of text and tokens."""
        self.done += 1
        self.documents += documents
        self.n_bytes += n_bytes
        self.n_tokens += n_tokens
        self.console._moved(self)

    @property
    def seconds(self) -> float:
        """Since the job started."""
        return time.perf_counter() - self.started

    @property
    def seconds_left(self) -> float | None:
        """Until the job ends, if its other tasks take as long as those so far; None before the first is done."""
        return self.seconds / self.done * (self.tasks - self.done) if self.done else None

    def handled(self) -> tuple[int, int, int]:
        """Documents, bytes and tokens so far; in proportion to the tasks where these do not count themselves."""
        share = self.done / max(self.tasks, 1)
        return (
            self.documents or round(share * self.all_documents),
            self.n_bytes or round(share * self.all_bytes),
            self.n_tokens or round(share * self.all_tokens),
        )

    def rate(self) -> str:
        """Throughput in the units a person compares."""
        seconds, (documents, n_bytes, _) = max(self.seconds, 1e-6), self.handled()
        rates = []
        if documents:
            rates.append(f"{documents / seconds:,.0f} documents/s")
        if n_bytes:
            rates.append(f"{n_bytes / seconds / 1e6:,.1f} MB/s")
        return ", ".join(rates)

    def figures(self) -> dict[str, Any]:
        """What a program is told of it."""
        documents, n_bytes, n_tokens = self.handled()
        return {
            "job": self.name,
            "done": self.done,
            "tasks": self.tasks,
            "unit": self.unit,
            "documents": documents,
            "bytes": n_bytes,
            "tokens": n_tokens,
            "seconds": round(self.seconds, 3),
        }


def clock(seconds: float) -> str:
    """`0:04`, `12:30`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Told(ProgressColumn):
    """What is said at each moment, also while no task ends."""

    max_refresh = 1.0

    def __init__(self, said: Callable[[], str]) -> None:
        self._said = said
        super().__init__()

    def render(self, task: Task) -> Text:
        return Text(self._said())


def breaks(line: str, width: int) -> list[int]:
    """Where a line goes on in another one, so that each fits the width unless a single word does not."""
    places, used = list[int](), 0
    for word in re.finditer(r"\S+\s*|\s+", line):
        if used and used + cell_len(word[0].rstrip()) > width:
            places.append(word.start())
            used = len(HANGING)
        used += cell_len(word[0])
    return places


class Console:
    """The terminal, or a pipe or file, that a run speaks to.

    Parameters
    ----------
    stream
        Where to; standard output by default.
    level
        `quiet` prints what is wrong and the result, `verbose` details as well.
    log_format
        `json` prints an object a line, with `time`, `event` and `level`: `line`, `table`, `progress` and `job`, which
        have documents, bytes and seconds as numbers.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        level: Level = "normal",
        log_format: Literal["text", "json"] = "text",
    ) -> None:
        self._rich = RichConsole(file=stream or sys.stdout, highlight=False, soft_wrap=True)
        self._level, self._json = level, log_format == "json"
        self._noticed: set[str] = set()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self.place = ""  # of the job that runs, among those of the run, such as 3/12
        self.watcher: Callable[[dict[str, Any]], None] | None = None  # is told what a program is told
        self.run_seconds_left: Callable[[Meter], float | None] = lambda meter: None
        self.waits_for: Callable[[], str] = lambda: ""  # why a job's first task takes long

    @property
    def is_terminal(self) -> bool:
        """Whether bars and colours make sense."""
        return self._rich.is_terminal and not self._json

    def line(self, text: str = "", style: str | None = None) -> None:
        """Print one line; what looks like markup in it is printed as it is."""
        if self._level != "quiet":
            self._say(text, style, "info")

    def detail(self, text: str) -> None:
        """Print what only a verbose run says."""
        if self._level == "verbose":
            self._say(text, "dim", "debug")

    def result(self, text: str, failed: bool = False) -> None:
        """Print how a command ended, also where it is quiet."""
        self._say(text, "red" if failed else None, "error" if failed else "info")

    def problem(self, text: str) -> None:
        """Print what is wrong, also where it is quiet."""
        self._say(text, "red", "error")

    def warn(self, text: str) -> None:
        """Print a warning, once however often it is given."""
        if text not in self._noticed:
            self._noticed.add(text)
            self._say(f"warning: {text}", "yellow", "warning")

    def styled(self, parts: Iterable[tuple[str, str]]) -> None:
        """Print one line whose parts have styles of their own."""
        if self._level != "quiet":
            self._print(Text.assemble(*parts))

    def _say(self, text: str, style: str | None, level: str) -> None:
        if not self._json:
            self._print(Text(text, style=style or ""))
        elif text:
            self._event("line", level, text=text.removeprefix("warning: "))

    def _event(self, event: str, level: str, **content: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = {"time": now, "level": level, "event": event, **content}
        self._rich.file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._rich.file.flush()

    def _print(self, text: Text) -> None:
        """Whole lines off a terminal; on one, broken between words, so that a path or URL stays in one piece."""
        for line in text.split("\n", allow_blank=True):
            places = breaks(line.plain, self._rich.width) if self._rich.is_terminal else []
            for i, part in enumerate(line.divide(places)):
                part.rstrip()
                self._rich.print(Text.assemble(HANGING, part) if i else part)

    @contextlib.contextmanager
    def job(self, name: str, tasks: int, unit: str, **totals: int) -> Iterator[Meter]:
        """Show a job of `tasks` tasks; `unit` names what one task handles; see `Meter` for the totals."""
        meter = Meter(self, name, tasks, unit, **totals)
        self._tell(meter)
        with self._bar(meter) if self.is_terminal and self._level != "quiet" else self._lines(meter):
            yield meter
        self._tell(meter, ended=True)
        if self._json:
            if self._level != "quiet":
                self._event("job", "info", place=self.place, **meter.figures())
            return
        rate = meter.rate()
        done = counted(tasks, unit.removesuffix("s"))
        self.line(f"{name:<16} {done} in {meter.seconds:.1f} s" + (f" ({rate})" if rate else ""))

    @contextlib.contextmanager
    def _bar(self, meter: Meter) -> Iterator[None]:
        narrow = self._rich.width < NARROW
        columns: list[ProgressColumn] = [TextColumn("{task.description}"), TaskProgressColumn()]
        if not narrow:
            columns[1:1] = [BarColumn(bar_width=max(6, min(24, self._rich.width - 82)))]
            columns.append(_Told(lambda: meter.rate().replace("documents", "docs")))
        columns.append(_Told(lambda: ", ".join(self._outlook(meter, whole=not narrow))))
        name = f"{self.place} {meter.name}".lstrip()
        try:
            with Progress(*columns, console=self._rich, transient=True) as self._progress:
                self._task = self._progress.add_task(name, total=meter.tasks)
                yield
        finally:
            self._progress = None

    def _moved(self, meter: Meter) -> None:
        self._tell(meter)
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=meter.done)

    def _tell(self, meter: Meter, ended: bool = False) -> None:
        if self.watcher is not None:
            self.watcher(
                {"place": self.place, **meter.figures(), **self._seconds_left(meter), "ended": ended}
            )

    def _seconds_left(self, meter: Meter) -> dict[str, float | None]:
        left = {"seconds_left": meter.seconds_left, "run_seconds_left": self.run_seconds_left(meter)}
        return {name: None if seconds is None else round(seconds, 1) for name, seconds in left.items()}

    def _outlook(self, meter: Meter, whole: bool = True) -> list[str]:
        """Time left of the job and of the run, or what it waits for before its first task is done."""
        left, run_left = self._seconds_left(meter).values()
        said = [f"{clock(left)} left"] if left is not None else []
        said += [f"whole run {clock(run_left)} left"] if whole and run_left is not None else []
        return said if meter.done else [*said, *filter(None, [self.waits_for()])]

    @contextlib.contextmanager
    def _lines(self, meter: Meter) -> Iterator[None]:
        """A line about a job now and then, from a thread: one long task shows that it is alive, too."""
        ended = threading.Event()

        def speak() -> None:
            while not ended.wait(LINE_EVERY):
                self._progress_line(meter)

        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        try:
            yield
        finally:
            ended.set()
            speaker.join()

    def _progress_line(self, meter: Meter) -> None:
        if self._json and self._level != "quiet":
            figures = meter.figures() | self._seconds_left(meter)
            self._event("progress", "info", place=self.place, **figures)
            return
        told = [meter.rate() or f"{meter.seconds:,.0f} s so far", *self._outlook(meter)]
        self.line(f"{meter.name:<16} {meter.done:,} of {meter.tasks:,} {meter.unit}, {', '.join(told)}")

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table, first column to the left and the others, numbers, to the right.

        It is never cut to the width. On a terminal too narrow for it, each row is a few lines.
        """
        if self._level == "quiet":
            return
        if self._json:
            self._event("table", "info", title=title, columns=list(header), rows=[list(row) for row in rows])
            return
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for i, name in enumerate(header):
            table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        unlimited = self._rich.options.update(max_width=10_000)
        width = Measurement.get(self._rich, unlimited, table).maximum
        if self._rich.is_terminal and width > self._rich.width:
            self._stacked(title, header, rows)
            return
        for line in self._rich.render_lines(table, unlimited.update(width=width)):
            self._rich.print(Segments([*line, Segment.line()]), end="")

    def _stacked(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Each row as its first cell, with what it has under each heading below."""
        if title:
            self._print(Text(title, style="italic"))
        for first, *rest in rows:
            self._print(Text(first.strip(), style="bold"))
            named = (f"{name} {cell}".strip() for name, cell in zip(header[1:], rest, strict=True) if cell)
            self._print(Text(HANGING + ", ".join(named)))
