"""What notebooks show beside tables: pairs, a text in tokens, and plots at the size in which they are printed."""

import html
import re
from pathlib import Path

import pytest

from jobs import trace
from jobs.errors import UserError
from jobs.report import notebook, plots

TAG = re.compile(r"<[^>]+>")


def test_pairs_are_shown_with_the_words_that_differ(finished: Path) -> None:
    shown = notebook.pairs(str(finished), n=2)
    assert shown == shown._repr_html_()
    assert shown.count("<h4>similarity") == 2
    assert notebook.DROPPED in shown
    assert shown != notebook.pairs(finished, n=2, seed=1)


def test_a_run_that_is_not_finished_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a finished run"):
        notebook.pairs(tmp_path)


@pytest.mark.parametrize("text", ["two words", "<b>bold</b> & more", "naïve 🚀 ゆき\n\nend", ""])
def test_a_text_in_tokens_is_the_text(finished: Path, text: str) -> None:
    shown = notebook.tokens(trace.tokenizer_of(str(finished)), text)
    assert html.unescape(TAG.sub("", shown)) == text


def test_a_plot_is_shown_at_the_size_in_which_it_is_printed() -> None:
    drawn = plots.lines([0, 1], {"a": [0, 1], "b": [1, 1]}, "x", "y", marks={"half": 0.5})
    png, metadata = drawn._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert metadata == {"width": 7 * 96}
    assert set(drawn) == {"png", "svg"}
    assert all(label in drawn["svg"].decode() for label in (">a<", ">b<", ">half<"))
    assert (
        drawn["png"] == plots.lines([0, 1], {"a": [0, 1], "b": [1, 1]}, "x", "y", marks={"half": 0.5})["png"]
    )
