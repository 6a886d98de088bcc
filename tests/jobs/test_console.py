"""What is printed off a terminal: whole lines, and a sign of life from a long task."""

import io
import time

import pytest

from jobs.runtime import console


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
