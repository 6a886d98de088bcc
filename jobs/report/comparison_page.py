"""The page, the files beside it and the terminal's tables of a comparison."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from jobs.report import page, plots
from jobs.report.comparison import ABSENT, FILE, KEPT
from jobs.report.parts import Plot, Section, Table
from jobs.runtime import checkpoint
from jobs.runtime.console import Console

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEMPLATE = "comparison.html"
MOST_MOVES = 20  # in the terminal and in the plot


def write(folder: Path, found: dict[str, Any], examples: dict[str, list[dict[str, Any]]]) -> None:
    """Write the page, its tables as CSV and Parquet, its plot as PNG and SVG, and all figures as JSON."""
    shown = sections(found, examples)
    with checkpoint.written(folder / page.FILE) as file:
        file.write(rendered(found, shown).encode())
    page.write_files(folder, shown)
    checkpoint.write_json(folder / FILE, found)


def rendered(found: dict[str, Any], shown: Sequence[Section]) -> str:
    """The page as text; whatever documents hold is escaped."""
    return page.from_template(
        TEMPLATE,
        title="{1} beside {0}".format(*(name.rpartition("/")[2] for name in found["names"])),
        headline=headline(found),
        remarks=remarks(found),
        sections=shown,
        cells=cells,
    )


def cells(row: Iterable[Any]) -> list[tuple[str, bool]]:
    """Cells of a table as text, and whether each is a figure: a number, a change or a share."""
    return [
        (f"{value:,}", True) if isinstance(value, int) else (value, bool(_FIGURE.fullmatch(value)))
        for value in row
    ]


_FIGURE = re.compile(r"[+-][\d,]+|[\d.]+%")


def headline(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The few figures that say what the change did."""
    kept = next(row for row in found["fates"] if row["step"] == "kept")
    return [
        (f"{sum(move['documents'] for move in changed(found)):,}", "documents have another fate"),
        (f"{kept['b']['documents'] - kept['a']['documents']:+,}", "documents kept"),
        (f"{kept['b']['tokens'] - kept['a']['tokens']:+,}", "tokens out"),
        (f"{_gone(found, kept_before=True):,}", "kept before, no more"),
        (f"{_gone(found, kept_before=False):,}", "dropped before, kept now"),
    ]


def _gone(found: dict[str, Any], kept_before: bool) -> int:
    return sum(
        move["documents"]
        for move in found["moves"]
        if (move["from"] in KEPT) == kept_before
        and (move["to"] in KEPT) != kept_before
        and ABSENT not in (move["from"], move["to"])
    )


def changed(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Moves of documents that both runs have, the largest first."""
    moved = [
        move
        for move in found["moves"]
        if move["from"] != move["to"] and ABSENT not in (move["from"], move["to"])
    ]
    return sorted(moved, key=lambda move: -move["documents"])


def remarks(found: dict[str, Any]) -> list[str]:
    """What has to be known before the figures are read."""
    a, b = found["names"]
    told = [f"A is {a}, B is {b}."]
    if not found["settings"]:
        told.append("No setting differs: what is not the same comes from other inputs or another version.")
    for key, here, other in (("to", a, b), ("from", b, a)):
        alone = sum(move["documents"] for move in found["moves"] if move[key] == ABSENT)
        if alone:
            told.append(
                f"{alone:,} documents are in {here} and not in {other}: their source has another name, path or order "
                "there, or none."
            )
    if not changed(found):
        told.append("Every document that both have has the same fate in both.")
    return told


# ---------------------------------------------------------------- sections


def sections(found: dict[str, Any], examples: dict[str, list[dict[str, Any]]]) -> list[Section]:
    """The parts of the page."""
    return [
        Section("settings", "Settings that differ", tables=[settings(found)]),
        Section("fates", "Fates beside each other", plots=_plots(found), tables=[fates(found)]),
        Section("sources", "Sources", tables=[sources(found)]),
        Section(
            "matrix",
            "From which fate to which",
            "Documents by their fate in A, a row each, and in B, a column each. On the diagonal nothing changed.",
            tables=[matrix(found)],
        ),
        Section(
            "examples",
            "Documents whose fate changed",
            "A keyed sample of each change, with its fate in A, in B, and the document that is kept instead.",
            examples=examples,
        ),
    ]


def settings(found: dict[str, Any]) -> Table:
    """Settings with both values."""
    rows = [(one["setting"], _said(one["a"]), _said(one["b"])) for one in found["settings"]]
    return Table("settings", "Settings that differ", ("setting", "A", "B"), rows)


def _said(value: Any) -> str:
    """As it stands in YAML, on one line."""
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
        .removesuffix("...\n")
        .strip()
    )


def fates(found: dict[str, Any]) -> Table:
    """Documents and tokens of each fate in both."""
    rows = [
        (
            row["step"],
            *(
                cell
                for name in ("documents", "tokens")
                for cell in (row["a"][name], row["b"][name], _change(row["b"][name] - row["a"][name]))
            ),
        )
        for row in found["fates"]
    ]
    names = ("fate", "documents A", "documents B", "change", "tokens A", "tokens B", "change")
    return Table("fates", "Documents and tokens by fate", names, rows)


def _change(value: int) -> str:
    return f"{value:+,}" if value else ""


def sources(found: dict[str, Any]) -> Table:
    """What is kept of each source in both."""
    rows = [
        (
            one["source"],
            *(one[side][name] for name in ("documents", "kept") for side in "ab"),
            *(
                f"{one[side]['kept'] / one[side]['documents']:.1%}" if one[side]["documents"] else ""
                for side in "ab"
            ),
        )
        for one in found["sources"]
    ]
    names = ("source", "documents A", "documents B", "kept A", "kept B", "share kept A", "share kept B")
    return Table("sources", "By source", names, rows)


def matrix(found: dict[str, Any]) -> Table:
    """Documents by both fates."""
    count = {(move["from"], move["to"]): move["documents"] for move in found["moves"]}
    order = [row["step"] for row in found["fates"] if row["step"] not in ("read", "kept")] + [ABSENT]
    rows = [fate for fate in order if any(a == fate for a, _ in count)]
    named = [fate for fate in order if any(b == fate for _, b in count)]
    return Table(
        "matrix",
        "Documents by their fate in A (rows) and in B (columns)",
        ("A ╲ B", *named),
        [(a, *(count.get((a, b), "") for b in named)) for a in rows],
    )


def _plots(found: dict[str, Any]) -> list[Plot]:
    most = [(f"{move['from']} → {move['to']}", move["documents"]) for move in changed(found)[:MOST_MOVES]]
    net = [
        (row["step"], row["b"]["documents"] - row["a"]["documents"])
        for row in found["fates"]
        if row["step"] not in ("read", *KEPT)
    ]
    net = [(step, change) for step, change in net if change]
    drawn = []
    if net:
        label = f"Change in documents by fate, from A to B: {', '.join(f'{s} {n:+,}' for s, n in net[:10])}"
        drawn.append(Plot("changes", label, changes([s for s, _ in net], [n for _, n in net])))
    if most:
        label = (
            f"Documents that went from one fate to another: {', '.join(f'{s} {n:,}' for s, n in most[:10])}"
        )
        drawn.append(
            Plot("moves", label, plots.bars([s for s, _ in most], [n for _, n in most], "documents"))
        )
    return drawn


def changes(names: Sequence[str], values: Sequence[int]) -> dict[str, bytes]:
    """Horizontal bars to the left and the right of nought, each with its figure."""

    def draw(axes: "Axes") -> None:
        places = np.arange(len(names))
        most = max(abs(value) for value in values)
        axes.barh(places, values, color=[plots.KEPT if v > 0 else plots.DROPPED for v in values], height=0.72)
        for place, value in zip(places, values, strict=True):
            side = 1 if value > 0 else -1
            axes.annotate(
                f"{value:+,}",
                (value, place),
                (4 * side, 0),
                textcoords="offset points",
                va="center",
                ha="left" if value > 0 else "right",
                fontsize=9,
            )
        axes.axvline(0, color=plots.PALE, linewidth=1)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set_xlabel("documents, B minus A")
        axes.set_xlim(-1.25 * most, 1.25 * most)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)

    return plots.drawn(draw, height=0.9 + 0.28 * len(names))


# ---------------------------------------------------------------- the terminal


def show(console: Console, found: dict[str, Any]) -> None:
    """Print the settings that differ, the fates side by side and where documents went."""
    for remark in remarks(found):
        console.line(remark)
    for table in (settings(found), fates(found)):
        if table.rows:
            console.line()
            console.table("", table.columns, [[text for text, _ in cells(row)] for row in table.rows])
    moved = changed(found)
    if moved:
        console.line()
        console.table(
            "",
            ["in A", "in B", "documents"],
            [(move["from"], move["to"], f"{move['documents']:,}") for move in moved[:MOST_MOVES]],
        )
        if len(moved) > MOST_MOVES:
            console.line(f"… and {len(moved) - MOST_MOVES} other changes, which matrix.csv has")
    console.line()
