"""The page that a person opens: whole in itself, safe whatever documents hold, readable in a browser."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from jobs import report
from jobs.report import examples, page, parts, plots, sections

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = '<script>document.title = "taken"</script> & "quoted" </pre>'


class Elements(HTMLParser):
    """Tags with their attributes, and the text of scripts left aside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_says_what_became_of_the_documents(finished: Path) -> None:
    text = (finished / "report" / page.FILE).read_text()
    read, *_ = report.read(finished)["funnel"]
    assert f"{read['documents']:,}" in text
    assert "near_duplicate" in text
    assert "<del>" in text  # pairs with their differences
    assert len(text) < 5e6


def test_the_page_needs_nothing_from_elsewhere(finished: Path) -> None:
    elements = Elements((finished / "report" / page.FILE).read_text())
    links = [
        attributes[name]
        for _, attributes in elements.tags
        for name in ("src", "href", "xlink:href")
        if attributes.get(name)
    ]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    ids = {attributes["id"] for _, attributes in elements.tags if "id" in attributes}
    assert all(link[1:] in ids for link in links if link.startswith("#"))


def test_every_picture_has_a_text_in_its_place(finished: Path) -> None:
    elements = Elements((finished / "report" / page.FILE).read_text())
    pictures = [attributes for tag, attributes in elements.tags if tag == "svg"]
    assert pictures
    assert all(one.get("role") == "img" and one.get("aria-label") for one in pictures)


def test_every_table_is_a_file_as_well_and_every_plot_two(finished: Path) -> None:
    files = {path.name for path in (finished / "report").iterdir()}
    assert {"funnel.csv", "funnel.png", "funnel.svg", "sources.csv", "clusters.svg", "lengths.png"} <= files
    funnel = pd.read_csv(finished / "report" / "funnel.csv")
    figures = report.read(finished)["funnel"]
    assert funnel["documents"].tolist() == [row["documents"] for row in figures]


def test_rows_of_one_length_are_shown_by_policy(finished: Path) -> None:
    shown = pd.read_csv(finished / "report" / "rows.csv").set_index("policy")
    policies = report.read(finished)["rows"]["policies"]
    assert shown["rows"].tolist() == [one["rows"] for one in policies.values()]
    assert shown.loc["best fit", "cut that fit"] == 0
    assert "Rows of one length" in (finished / "report" / page.FILE).read_text()


def test_what_documents_hold_is_text(finished: Path) -> None:
    content = report.read(finished)
    one = {"doc_id": 1, "source": "a<b", "path": "p", "record": 0, "url": HOSTILE, "kept_by": 0, "n_bytes": 9}
    shown = sections.sections(
        content,
        {"bands": 14, "rows": 8},
        {"train": [one | {"excerpt": HOSTILE}]},
        [parts.Pair("similarity 0.9", HOSTILE, HOSTILE, *examples.differences(HOSTILE, "other " + HOSTILE))],
    )
    text = page.rendered(HOSTILE, content, shown)
    assert "<script>document.title" not in text
    assert text.count("<script>") == 1


def test_differences_give_both_texts_back() -> None:
    left, right = examples.differences("a b c d e", "a x c d f g")
    assert " ".join(piece.text for piece in left) == "a b c d e"
    assert " ".join(piece.text for piece in right) == "a x c d f g"
    assert [piece.text for piece in left if piece.shared] == ["a", "c d"]


def test_scores_without_documents_are_gaps_and_not_shifts(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {}
    monkeypatch.setattr(
        plots, "histogram", lambda edges, counts, *rest: drawn.update(zip(edges, counts, strict=False)) or {}
    )
    found = {
        "mean": 1.0,
        "median": 1.0,
        "histogram": [{"from": 0.5, "documents": 3, "tokens": 1}, {"from": 0.8, "documents": 4, "tokens": 1}],
    }
    sections.scores(found)
    assert drawn == {0.5: 3, 0.6: 0, 0.7: 0, 0.8: 4}


def test_plots_are_the_same_bytes_each_time() -> None:
    def drawn() -> dict[str, bytes]:
        return plots.bars(["a", "b"], [1, 2], "documents")

    assert drawn() == drawn()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_it_without_errors(finished: Path, tmp_path: Path, width: int) -> None:
    picture = tmp_path / "page.png"
    done = subprocess.run(
        [
            str(CHROMIUM),
            *("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"),
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},3000",
            f"--screenshot={picture}",
            (finished / "report" / page.FILE).as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert not re.findall(r"CONSOLE.*", done.stderr)
    assert picture.stat().st_size > 50_000
