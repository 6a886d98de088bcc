"""A user's own function as a classifier: what it gets and gives, what is refused, and what makes a run do it again."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numba import njit

from jobs.errors import UserError
from jobs.models import function
from jobs.settings.classifiers import Classifier
from jobs.steps import classifiers
from tests.conftest import ROOT

TEXTS = pa.array(["abc", "12 and 3", "", "漢字"], pa.large_string())
CODE = """
from jobs.models.function import batched
import helpers_of_mine

def length(text, scale=1.0):
    return scale * len(text)

def is_short(text):
    return len(text) < 4

@batched
def lengths(text):
    return [len(one) for one in text.to_pylist()]

@batched
def too_few(text):
    return [1.0]

def nan(text):
    return float("nan")

def fails(text):
    return 1 / (len(text) - 8)

number = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of functions that is not installed."""
    package = tmp_path / "mine_of_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "filters.py").write_text(CODE)
    (tmp_path / "helpers_of_mine.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.startswith(("mine_of_test", "helpers_of_mine"))]:
        del sys.modules[name]


def settings(name: str, **more: Any) -> Classifier:
    return Classifier.model_validate(
        {"name": "own", "kind": "function", "model": f"mine_of_test.filters:{name}", **more}
    )


def test_numbers_of_one_document_or_of_many_are_the_scores(mine: Path) -> None:
    columns, fate = classifiers.classified(TEXTS, settings("length", min_score=1, max_score=3))
    assert columns["own_score"].to_pylist() == [3.0, 8.0, 0.0, 2.0]
    assert fate.to_pylist() == [None, "classifier.own", "classifier.own", None]
    assert classifiers.classified(TEXTS, settings("lengths"))[0]["own_score"] == columns["own_score"]
    assert classifiers.classified(TEXTS[:0], settings("length"))[0]["own_score"].to_pylist() == []


def test_yes_and_no_are_1_and_0_and_options_are_arguments(mine: Path) -> None:
    columns, fate = classifiers.classified(TEXTS, settings("is_short", min_score=1))
    assert columns["own_score"].to_pylist() == [1.0, 0.0, 1.0, 1.0]
    assert fate.to_pylist() == [None, "classifier.own", None, None]
    doubled = classifiers.classified(TEXTS, settings("length", options={"scale": 2}))[0]
    assert doubled["own_score"].to_pylist() == [6.0, 16.0, 0.0, 4.0]


def test_a_compiled_function_joins_as_well(mine: Path) -> None:
    @njit
    def halves(n: int) -> float:  # type: ignore[no-any-unimported]
        return n / 2

    model = function.Model(
        function.batched(lambda text: [halves(len(one)) for one in text.to_pylist()]), {}, "x"
    )
    assert np.array_equal(model.score(TEXTS), [1.5, 4, 0, 1])


@pytest.mark.parametrize(
    ("model", "more", "said"),
    [
        ("absent_module:f", {}, "which cannot be imported: No module named 'absent_module'"),
        ("mine_of_test.filters:absent", {}, "which cannot be imported: module .* has no attribute 'absent'"),
        ("mine_of_test.filters:number", {}, "which is no function but int"),
        ("mine_of_test", {}, r"neither package\.module:function nor an entry point of shardmill\.filters"),
        ("mine_of_test.filters:length", {"options": {"size": 3}}, "does not take a text and these: .*'size'"),
    ],
)
def test_what_is_no_function_is_refused_before_any_work(
    mine: Path, model: str, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        classifiers.check([settings("length", **more).model_copy(update={"model": model})])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fails", "failed on a text of 8 characters that begins with '12 and 3': ZeroDivisionError"),
        ("nan", "failed on a text of 3 characters that begins with 'abc': it gave nan"),
        ("too_few", r"gave \(1,\) numbers for 4 documents"),
    ],
)
def test_a_function_that_fails_says_on_what(mine: Path, name: str, said: str) -> None:
    with pytest.raises(UserError, match=f"classifier 'own': model mine_of_test.filters:{name} {said}"):
        classifiers.classified(TEXTS, settings(name))


def test_code_and_options_are_its_identity(mine: Path) -> None:
    before = function.identity(settings("length"))
    assert before == function.identity(settings("length"))
    assert before != function.identity(settings("length", options={"scale": 2}))
    (mine / "helper.py").write_text("x = 1\n")  # of the same package
    after = function.identity(settings("length"))
    assert after["code"] != before["code"]
    (mine / "filters.py").write_text(CODE + "\n# changed\n")
    assert function.identity(settings("length"))["code"] not in (before["code"], after["code"])


def test_of_an_installed_package_the_version_is_looked_at(mine: Path) -> None:
    found = function.identity(settings("length").model_copy(update={"model": "textwrap:shorten"}))
    assert found["versions"] == {}
    found = function.identity(settings("length").model_copy(update={"model": "yaml:safe_load"}))
    assert list(found["versions"]) == ["PyYAML"]


def test_an_entry_point_is_found_by_its_name(mine: Path) -> None:
    installed = mine.parent / "mine_of_test-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-of-test\nVersion: 1.0\n")
    (installed / "top_level.txt").write_text("mine_of_test\n")
    (installed / "entry_points.txt").write_text(
        "[shardmill.filters]\nlengths = mine_of_test.filters:length\n"
    )
    named = settings("length").model_copy(update={"model": "lengths"})
    assert classifiers.classified(TEXTS, named)[0]["own_score"].to_pylist() == [3.0, 8.0, 0.0, 2.0]
    assert function.identity(named)["versions"] == {"mine-of-test": "1.0"}


def test_functions_of_the_guide_are_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs" / "filters.md").read_text(encoding="utf-8")
    for file, code in re.findall(r"```python\n# (\w+)\.py\n(.*?)```", guide, re.DOTALL):
        (tmp_path / f"{file}_of_the_guide.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    def scores(name: str, **more: Any) -> list[float]:
        one = Classifier.model_validate({"name": "own", "kind": "function", "model": name, **more})
        classifiers.check([one])
        return list(classifiers.classified(TEXTS, one)[0]["own_score"].to_pylist())

    assert scores("my_filters_of_the_guide:share_of_letters") == [1.0, 0.5, 0.0, 1.0]
    options = {"word": "and", "most": 0}
    assert scores("my_filters_of_the_guide:mentions", options=options) == [1.0, 0.0, 1.0, 1.0]
    assert scores("fast_filters_of_the_guide:share_of_digits") == [0.0, 3 / 8, 0.0, 0.0]
