"""What is printed, on a terminal of any width, off one, quietly, and for programs."""

import io
import json
import os
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from jobs.runtime import cluster as cluster_of_kernels
from jobs.runtime import console, outlook
from tests.conftest import settings

COLOUR = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m")
ROWS = [("read", "900", "107,930"), ("- near_duplicate", "92", "29,858")]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Make of a stream a terminal of 40 columns."""
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "40", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return monkeypatch


def plain(stream: io.StringIO) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).splitlines()


def test_one_long_task_is_told_of_in_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_EVERY", 0.02)
    stream = io.StringIO()
    with console.Console(stream).job("train", 1, "tokenizer") as meter:
        time.sleep(0.2)
        meter.advance()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "train            0 of 1 tokenizer, 0 s so far"
    assert len(lines) > 2
    assert not any(line.endswith((",", " ")) for line in lines)


def test_one_is_no_plural() -> None:
    stream = io.StringIO()
    with console.Console(stream).job("ledger", 1, "files") as meter:
        meter.advance()
    assert stream.getvalue().startswith("ledger           1 file in ")


def test_a_narrow_terminal_breaks_lines_between_words_and_leaves_a_path_whole(
    terminal: pytest.MonkeyPatch,
) -> None:
    stream, path = io.StringIO(), "/a/path/that/is/wider/than/the/whole/terminal.parquet"
    console.Console(stream).line(f"some words that go on and on in front of {path} and behind it")
    lines = plain(stream)
    assert lines == ["some words that go on and on in front of", f"  {path}", "  and behind it"]
    assert all(len(line) <= 40 or path in line for line in lines)


def test_breaks_leave_no_line_longer_than_the_width() -> None:
    line = "one two  three four five six seven eight nine ten 漢字 漢字"
    for width in range(12, 60):
        places = [0, *console.breaks(line, width), len(line)]
        parts = [line[a:b] for a, b in pairwise(places)]
        assert "".join(parts) == line
        assert all(console.cell_len(part.rstrip()) + 2 * (i > 0) <= width for i, part in enumerate(parts))


def test_a_table_too_wide_for_the_terminal_has_its_rows_stacked(terminal: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    console.Console(stream).table("", ["", "documents", "bytes of text"], ROWS)
    assert plain(stream)[:2] == ["read", "  documents 900, bytes of text 107,930"]
    terminal.setenv("COLUMNS", "80")
    stream = io.StringIO()
    console.Console(stream).table("", ["", "documents", "bytes of text"], ROWS)
    assert [line.rsplit(maxsplit=2) for line in plain(stream)[1:]] == [list(row) for row in ROWS]


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_a_bar_fits_its_terminal(terminal: pytest.MonkeyPatch, columns: str) -> None:
    terminal.setenv("COLUMNS", columns)
    stream = io.StringIO()
    speaker = console.Console(stream)
    speaker.place = "7/13"
    with speaker.job("near_duplicates", 4, "partitions", documents=10**8, n_bytes=10**11) as meter:
        meter.advance()
        time.sleep(0.25)  # the bar is drawn ten times a second
        meter.advance()
        time.sleep(0.25)
    shown = [line.rstrip() for line in re.split(r"[\r\n]", "\n".join(plain(stream)))]
    bars = [line for line in shown if line.startswith("7/13 near_duplicates")]
    assert any("50%" in line and "left" in line for line in bars)
    assert max(map(len, bars)) <= int(columns)
    assert any("docs/s" in line for line in bars) == (columns != "40")


def test_colours_on_a_terminal_and_not_where_they_are_not_wanted(terminal: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    console.Console(stream).warn("odd")
    assert COLOUR.search(stream.getvalue())
    terminal.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    console.Console(stream).warn("odd")
    assert not COLOUR.search(stream.getvalue())
    terminal.delenv("NO_COLOR")
    terminal.delenv("FORCE_COLOR")
    stream = io.StringIO()
    console.Console(stream).warn("odd")
    assert stream.getvalue() == "warning: odd\n"


def test_quiet_is_what_is_wrong_and_the_result() -> None:
    stream = io.StringIO()
    speaker = console.Console(stream, level="quiet")
    speaker.line("a line")
    speaker.detail("a detail")
    speaker.table("", ["", "documents", "tokens"], ROWS)
    with speaker.job("train", 1, "tokenizer") as meter:
        meter.advance()
    speaker.warn("odd")
    speaker.problem("broken")
    speaker.result("done")
    assert stream.getvalue().splitlines() == ["warning: odd", "broken", "done"]


def test_json_is_an_object_a_line_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_EVERY", 0.02)
    stream = io.StringIO()
    speaker = console.Console(stream, log_format="json")
    with speaker.job("annotate", 2, "splits") as meter:
        meter.advance(documents=7, n_bytes=100)
        time.sleep(0.2)
        meter.advance(documents=3, n_bytes=50)
    speaker.line()
    speaker.line("a [line]\nof two", style="red")
    speaker.warn("odd")
    speaker.table("t", ["", "documents", "tokens"], ROWS)
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    progress = next(one for one in told if one["event"] == "progress")
    assert (progress["done"], progress["documents"], progress["bytes"]) == (1, 7, 100)
    assert 0 <= progress["seconds_left"] < 1
    (job,) = [one for one in told if one["event"] == "job"]
    assert (job["job"], job["tasks"], job["documents"]) == ("annotate", 2, 10)
    lines = [(one["level"], one["text"]) for one in told if one["event"] == "line"]
    assert lines == [("info", "a [line]\nof two"), ("warning", "odd")]
    assert told[-1]["rows"] == [list(row) for row in ROWS]
    assert all({"time", "level", "event"} <= set(one) for one in told)


def test_a_run_for_programs_and_a_quiet_and_a_verbose_one(
    finished: Path, corpus: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from jobs.run import main

    arguments = [*settings(corpus), "--output", str(finished), "--scheduler", cluster]
    assert main([*arguments, "--log-format", "json"]) == 0
    events = {json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()}
    assert events == {"line", "job", "table"}
    assert main([*arguments, "--quiet"]) == 0
    (result,) = capsys.readouterr().out.splitlines()
    assert result.startswith(f"{finished}: checked; ")
    assert main([*arguments, "--verbose"]) == 0
    assert "near_duplicates  done before, under fingerprint " in capsys.readouterr().out
    assert main([*arguments, "--set", "length.min_tokens=many", "--log-format", "json"]) == 2
    assert json.loads(capsys.readouterr().err)["level"] == "error"


def test_the_run_is_longer_than_its_job_and_time_left_is_known_with_the_pass() -> None:
    jobs = outlook.Outlook(["tokenizer", "annotate", "order", "report"], splits=lambda: 10)
    speaker = console.Console(io.StringIO())
    speaker.run_seconds_left = jobs.seconds_left
    jobs.begin("tokenizer")
    with speaker.job("train", 1, "tokenizer") as meter:
        meter.advance()
        assert jobs.seconds_left(meter) is None
    jobs.end("tokenizer", 1.0)
    jobs.begin("annotate")
    with speaker.job("annotate", 4, "splits") as meter:
        meter.started -= 20.0
        meter.advance()
        meter.advance()  # 10 s each, two left here; six were done before
        behind = 100 * outlook.SHARES["order"] + 100 * outlook.SHARES["report"] + outlook.FIXED["report"]
        assert jobs.seconds_left(meter) == pytest.approx(20 + behind, rel=0.01)
    jobs.end("annotate", 100.0)
    jobs.begin("order")
    with speaker.job("order", 2, "ranges") as meter:
        assert jobs.seconds_left(meter) == pytest.approx(behind, rel=0.01)


def test_who_waits_for_kernels_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_EVERY", 0.02)
    stream = io.StringIO()
    speaker = console.Console(stream)
    speaker.waits_for = lambda: "compiling kernels (once), 3 so far"
    with speaker.job("annotate", 2, "splits") as meter:
        time.sleep(0.1)
        meter.advance()
        time.sleep(0.1)
        meter.advance()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "annotate         0 of 2 splits, 0 s so far, compiling kernels (once), 3 so far"
    assert not any("compiling" in line for line in lines if " 1 of 2 " in line)


def test_how_many_kernels_are_compiled_and_since_when(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    assert cluster_of_kernels.compiling() == "compiling kernels (once), 0 so far"
    (tmp_path / "kernels").mkdir()
    index = tmp_path / "kernels" / "one.nbi"
    index.touch()
    assert cluster_of_kernels.compiling() == "compiling kernels (once), 1 so far"
    os.utime(index, (0, 0))
    assert cluster_of_kernels.compiling() == ""


@pytest.mark.parametrize(("seconds", "said"), [(4.4, "0:04"), (750, "12:30"), (3723, "1:02:03")])
def test_times_are_as_clocks_show_them(seconds: float, said: str) -> None:
    assert console.clock(seconds) == said
