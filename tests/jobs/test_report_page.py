"""The page that a person opens: whole in itself, safe whatever documents hold, readable in a browser."""

import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jobs import ledger, report
from jobs.report import examples, origins, page, parts, plots, sections

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
    elsewhere = {link for link in links if not link.startswith(("#", "data:"))}
    assert elsewhere == {"../cost/index.html"}  # of the same output
    assert (finished / "cost" / "index.html").exists()
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
    assert {name for name in files if name.endswith(".csv")} == {
        name.replace(".parquet", ".csv") for name in files if name.endswith(".parquet")
    }
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


def test_tables_have_types_in_parquet() -> None:
    made = page.as_arrow(
        parts.Table("t", "", ("", "n", "share", "mixed"), [("a", 1, "12.5%", 1), ("b", "", "", 0.5)])
    )
    assert made.to_pylist() == [
        {"column 1": "a", "n": 1, "share": 0.125, "mixed": 1.0},
        {"column 1": "b", "n": None, "share": None, "mixed": 0.5},
    ]
    assert page.as_arrow(parts.Table("t", "", ("a", "b"), [])).num_rows == 0


def test_duplicates_by_crawl_are_those_of_the_ledger(finished: Path) -> None:
    rows = ledger.read(finished, ["doc_id", "kept_by", "fate", "crawl"]).compute().set_index("doc_id")
    fell = rows[rows["fate"].isin(ledger.DUPLICATES)]
    pairs = Counter((row.crawl, rows.loc[row.kept_by, "crawl"]) for row in fell.itertuples())
    found = report.read(finished)["duplicates_by_origin"]
    assert found["by"] == "crawl"
    assert {(one["dropped"], one["kept"]): one["documents"] for one in found["pairs"]} == pairs
    assert "Heat map of duplicates by crawl: " in (finished / "report" / page.FILE).read_text()


def test_what_was_kept_by_an_earlier_run_is_of_no_crawl_here() -> None:
    frame = pd.DataFrame(
        {"doc_id": [1, 2, 3], "kept_by": [1, 1, 9], "fate": "near_duplicate", "crawl": ["a", "b", "b"]}
    ).astype({"doc_id": "uint64", "kept_by": "uint64"})
    frame.loc[0, "fate"] = "train"
    counts = origins.met(origins.ends(frame, "crawl"))
    assert list(counts.itertuples(index=False, name=None)) == [("b", "a", 1), ("b", origins.EARLIER, 1)]


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


def test_each_row_and_column_has_a_heading_that_says_so(finished: Path) -> None:
    elements = Elements((finished / "report" / page.FILE).read_text())
    assert {attributes.get("scope") for tag, attributes in elements.tags if tag == "th"} == {"row", "col"}


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance of #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_text_can_be_read_on_each_ground_by_day_and_by_night() -> None:
    style = (Path(page.__file__).parent / page.TEMPLATE).read_text()
    schemes = [
        dict(re.findall(r"--(\w+): (#\w{6})", line)) for line in style.splitlines() if "--ink:" in line
    ]
    assert len(schemes) == 2
    for colours in schemes:
        on = [("ink", ground) for ground in ("paper", "wash", "warn", "cut", "new")]
        for text, ground in [*on, ("pale", "paper"), ("pale", "wash"), ("link", "paper")]:
            darker, lighter = sorted(luminance(colours[name]) for name in (text, ground))
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)


DRIVEN = """
<script>
const told = {rows: [], sections: [], requests: performance.getEntriesByType("resource").map(one => one.name)};
for (const field of document.querySelectorAll("input[data-table]")) {
  const rows = [...document.querySelectorAll(`#table-${field.dataset.table} tbody tr`)];
  const shown = text => {
    field.value = text;
    field.dispatchEvent(new Event("input"));
    return rows.filter(row => row.getClientRects().length).length;
  };
  told.rows.push([rows.length, shown("no row has this"), shown(rows[3].cells[0].textContent.toUpperCase()), shown("")]);
}
for (const link of document.querySelectorAll("nav a")) {
  link.click();
  told.sections.push(Math.abs(document.querySelector(link.hash).getBoundingClientRect().top) < innerHeight);
}
document.body.dataset.told = JSON.stringify(told);
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_filters_and_links_work_and_nothing_is_asked_of_a_network(finished: Path, tmp_path: Path) -> None:
    driven = tmp_path / page.FILE
    driven.write_text((finished / "report" / page.FILE).read_text().replace("</body>", DRIVEN + "</body>"))
    done = subprocess.run(
        [
            str(CHROMIUM),
            *("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", driven.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert not re.findall(r"CONSOLE.*", done.stderr)
    elements = Elements(done.stdout)
    told = json.loads(next(one["data-told"] or "" for tag, one in elements.tags if tag == "body"))
    assert told["rows"]
    assert all(none == 0 and 1 <= some <= n and every == n for n, none, some, every in told["rows"])
    assert told["sections"]
    assert all(told["sections"])
    assert told["requests"] == []


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
