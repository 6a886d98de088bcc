"""The report's page made again, and two finished runs beside each other."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jobs import ledger, report
from jobs.report import comparison, comparison_page
from jobs.report.command import main
from jobs.runtime.checkpoint import read_json, write_json
from jobs.runtime.console import Console
from jobs.verify import check_files, verify
from tests.conftest import digests, run_job

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHANGED = ["near_duplicates.bands=28", "near_duplicates.rows=4", "length.min_tokens=100"]


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.fixture(scope="module")
def changed(corpus: Path, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compared") / "changed"
    assert run_job(corpus, out, cluster, *CHANGED) == 0
    return out


@pytest.fixture(scope="module")
def page(finished: Path, changed: Path, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison."""
    folder = tmp_path_factory.mktemp("page") / "page"
    assert (
        main(["--compare", str(finished), str(changed), "--output", str(folder), "--scheduler", cluster]) == 0
    )
    return folder


def fates(finished: Path, changed: Path) -> pd.DataFrame:
    """Both fates of each document, joined by pandas."""
    sides = [
        ledger.read(out, ["doc_id", "fate"]).compute().set_index("doc_id")["fate"]
        for out in (finished, changed)
    ]
    return pd.concat([side.astype(str) for side in sides], axis=1, keys=["a", "b"])


# ---------------------------------------------------------------- the page again


def test_a_page_made_again_is_the_same_bytes(finished: Path, copy: Path) -> None:
    before = digests(finished, "report")
    (copy / "report" / "index.html").unlink()
    (copy / "report" / "funnel.csv").write_text("damaged")
    (copy / "report" / "of_an_older_version.csv").write_text("stale")
    assert main([str(copy)]) == 0
    assert digests(copy, "report") == before
    assert read_json(copy / "report" / "manifest.json") == read_json(finished / "report" / "manifest.json")
    assert verify(copy, Console()) == []


def test_without_texts_elsewhere(finished: Path, tmp_path: Path) -> None:
    before = digests(finished)
    assert main([str(finished), "--no-texts", "--output", str(tmp_path / "page")]) == 0
    shown = (tmp_path / "page" / "index.html").read_text()
    assert "near_duplicate" in shown
    assert "<del>" not in shown
    assert shown.count("<pre>") == shown.count("(no text)") > 0
    assert digests(finished) == before


def test_sources_that_are_gone_cost_nothing_but_the_page(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = read_json(copy / "manifest.json")
    manifest["config"]["sources"][0]["path"] = str(copy / "nowhere")
    write_json(copy / "manifest.json", {key: value for key, value in manifest.items() if key != "digest"})
    before = digests(copy)
    assert main([str(copy)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: source 'web' can no longer be read (")
    assert said.endswith("); --no-texts does without it\n")
    assert len(said.splitlines()) == 1
    assert digests(copy) == before
    assert main([str(copy), "--no-texts"]) == 0
    assert "<del>" not in (copy / "report" / "index.html").read_text()
    assert list(check_files(copy)) == []


def test_a_report_of_another_version_is_refused_before_anything_is_removed(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = report.read(copy)
    del content["packing"]
    write_json(
        copy / "report" / "report.json", {key: value for key, value in content.items() if key != "digest"}
    )
    assert main([str(copy)]) == 2
    assert "lacks 'packing'" in capsys.readouterr().err
    assert (copy / "report" / "index.html").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name one finished run, or two with --compare"),
        (["x", "--compare", "a", "b"], "name one finished run, or two with --compare"),
        (["--compare", "absent_a", "absent_b"], "absent_a is not a finished run"),
        (["absent"], "is not a finished run"),
        (["--compare", "a", "b", "--samples", "-1"], "--samples is -1"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_a_folder_with_something_else_is_left_alone(
    finished: Path, changed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for arguments in ([str(finished)], ["--compare", str(finished), str(changed)]):
        assert main([*arguments, "--output", str(tmp_path)]) == 2
        assert "holds something already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


# ---------------------------------------------------------------- two runs


def test_the_matrix_is_what_a_join_by_doc_id_gives(finished: Path, changed: Path, page: Path) -> None:
    expected = fates(finished, changed).groupby(["a", "b"]).size().to_dict()
    found = read_json(page / comparison.FILE)
    assert {(move["from"], move["to"]): move["documents"] for move in found["moves"]} == expected
    assert len(expected) > 4
    by_fate = {row["step"]: (row["a"]["documents"], row["b"]["documents"]) for row in found["fates"]}
    for fate, (in_a, in_b) in by_fate.items():
        if fate not in ("read", "kept"):
            assert in_a == sum(n for (a, _), n in expected.items() if a == fate)
            assert in_b == sum(n for (_, b), n in expected.items() if b == fate)
    (train,) = [row["a"]["tokens"] for row in found["fates"] if row["step"] == "train"]
    assert train == sum(move["tokens_a"] for move in found["moves"] if move["from"] == "train")


def test_settings_that_differ_are_those_that_were_changed(page: Path) -> None:
    found = {one["setting"]: (one["a"], one["b"]) for one in read_json(page / comparison.FILE)["settings"]}
    assert found == {
        "near_duplicates.bands": (14, 28),
        "near_duplicates.rows": (8, 4),
        "length.min_tokens": (32, 100),
    }


def test_documents_whose_fate_changed_are_shown_with_both(finished: Path, changed: Path, page: Path) -> None:
    both, shown = fates(finished, changed), 0
    for move in read_json(page / comparison.FILE)["moves"]:
        assert len(move["examples"]) == (min(5, move["documents"]) if move["from"] != move["to"] else 0)
        for one in move["examples"]:
            assert tuple(both.loc[one["doc_id"]]) == (move["from"], move["to"])
            assert (one["kept_by_a"] is not None) == (move["from"] == "near_duplicate")
            assert (one["kept_by_b"] is not None) == (move["to"] == "near_duplicate")
            shown += 1
    text = (page / "index.html").read_text()
    assert shown == text.count("<pre>") > 6
    assert "(no text)" not in text


def test_every_table_and_plot_is_a_file(page: Path) -> None:
    names = {path.name for path in page.iterdir()}
    assert {"settings.csv", "fates.csv", "sources.csv", "matrix.csv", "changes.svg", "moves.png"} <= names
    assert 'href="http' not in (page / "index.html").read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_shows_a_comparison_without_errors(page: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            str(CHROMIUM),
            *("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=390,3000", "--dump-dom"),
            (page / "index.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert not re.findall(r"CONSOLE.*", done.stderr)
    links, ids = (set(re.findall(pattern, done.stdout)) for pattern in (r'href="#([^"]+)"', r' id="([^"]+)"'))
    assert {"settings", "fates", "sources", "matrix", "examples"} <= links <= ids


def test_two_runs_with_the_same_settings_say_so(finished: Path, page: Path) -> None:
    found = read_json(page / comparison.FILE)
    same = found | {"settings": [], "moves": [move for move in found["moves"] if move["from"] == move["to"]]}
    told = comparison_page.remarks(same)
    assert any(text.startswith("No setting differs") for text in told)
    assert any(text.startswith("Every document that both have has the same fate") for text in told)
    text = comparison_page.rendered(same, comparison_page.sections(same, {}))
    assert "Every document" in text


def test_a_comparison_replaces_itself_with_the_same_bytes(
    finished: Path, changed: Path, page: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in page.iterdir()}
    assert (
        main(["--compare", str(finished), str(changed), "--output", str(page), "--scheduler", cluster]) == 0
    )
    assert {path.name: path.read_bytes() for path in page.iterdir()} == before
    shown = capsys.readouterr().out
    assert "near_duplicates.bands" in shown
    assert "train" in shown


def test_moves_do_not_depend_on_the_partitions() -> None:
    random = np.random.default_rng(0)
    d = 3000
    joined = pd.DataFrame(
        {
            "doc_id": random.permutation(d).astype(np.uint64) + np.uint64(2**63),
            "fate_a": random.choice([0, 1, 2, np.nan], d),
            "fate_b": random.choice([0, 1, 2], d).astype(float),
            "n_tokens_a": 3.0,
            "n_tokens_b": 4.0,
        }
    )

    def chosen(parts: list[pd.DataFrame]) -> set[tuple[int, int, int]]:
        found = pd.concat([comparison.moves(part, 2) for part in parts])
        assert found["documents"].sum() == d
        samples = comparison._smallest(found[found["documents"] == 0], 2)
        return set(samples[["fate_a", "fate_b", "doc_id"]].itertuples(index=False, name=None))

    whole = chosen([joined])
    assert len(whole) == 2 * 9
    assert whole == chosen([joined[:17], joined[17:1000], joined[1000:1000], joined[1000:]])


def test_documents_that_only_one_run_has_are_said(finished: Path, page: Path) -> None:
    found = read_json(page / comparison.FILE)
    assert [text for text in comparison_page.remarks(found) if "are in" in text] == []
    found["moves"].append({"from": comparison.ABSENT, "to": "train", "documents": 3, "examples": []})
    (said,) = [text for text in comparison_page.remarks(found) if "are in" in text]
    assert said.startswith("3 documents are in ")
    assert comparison.ABSENT in json.dumps(comparison_page.matrix(found).rows, ensure_ascii=False)


def test_lists_of_sections_are_compared_by_name() -> None:
    def config(*names: str) -> comparison.Config:
        return comparison.Config.model_validate({"sources": [{"name": n, "path": n} for n in names]})

    differing = comparison.settings_that_differ(config("web", "books"), config("code", "web", "books"))
    assert all(one["setting"].startswith("sources.code.") and one["a"] is None for one in differing)
    assert len(differing) > 2
