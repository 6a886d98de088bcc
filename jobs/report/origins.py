"""From where to where duplicates reach: for each crawl (or source), how many documents fell for which one's.

A dropped document and the one that was kept in its place meet by the kept one's doc_id in a shuffle of identities.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jobs import ledger
from jobs.report import plots
from jobs.report.parts import Plot, Table
from jobs.runtime.compute import Named, columns

if TYPE_CHECKING:
    import dask.dataframe as dd
    from matplotlib.axes import Axes

EARLIER = "earlier runs"
MOST_DRAWN = 30  # crawls on a side of the heat map
MOST_NUMBERED = 12  # crawls on a side where the cells have room for figures
STRONGEST = 0.65  # opacity of the fullest cell, on which ink can still be read

ENDS = columns(
    doc_id="uint64",
    origin="string",
    dropped="bool",
)
COUNTS = columns(
    dropped="string",
    kept="string",
    documents="int64",
)


# ---------------------------------------------------------------- partition functions


def ends(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """Each document of a ledger file under its own doc_id, and each duplicate under that of what was kept, too."""
    origin = frame[by].astype("string").fillna("").to_numpy()
    fell = np.flatnonzero(frame["fate"].isin(ledger.DUPLICATES) & frame["kept_by"].notna())
    doc_ids = [frame["doc_id"].to_numpy(np.uint64), frame["kept_by"].iloc[fell].to_numpy(np.uint64)]
    return pd.DataFrame(
        {
            "doc_id": np.concatenate(doc_ids),
            "origin": pd.array(np.concatenate([origin, origin[fell]]), "string"),
            "dropped": np.repeat([False, True], [len(frame), len(fell)]),
        }
    )


def met(rows: pd.DataFrame) -> pd.DataFrame:
    """How many of the dropped documents in a partition fell for those of which origin."""
    there = rows[~rows["dropped"]].set_index("doc_id")["origin"]
    fell = rows[rows["dropped"]]
    kept = fell["doc_id"].map(there).astype("string").fillna(EARLIER)
    pairs = pd.DataFrame({"dropped": fell["origin"].astype("string"), "kept": kept})
    return pairs.groupby(["dropped", "kept"]).size().rename("documents").reset_index().astype(COUNTS.dtypes)


# ---------------------------------------------------------------- the graph, the figures and what is shown


def named_by(tallied: pd.DataFrame) -> str | None:
    """What tells documents of this run apart: their crawls, or their sources where there are no two crawls."""
    rows = tallied[tallied["topic"] == "fate"]
    several = [name for name in ("crawl", "source") if rows.loc[rows[name] != "", name].nunique() > 1]
    return several[0] if several else None


def graph(frame: "dd.DataFrame", by: str) -> "dd.DataFrame":
    """Counts like `COUNTS`, those of a pair in one partition or several."""
    both = frame.map_partitions(ends, by=by, meta=ENDS).shuffle("doc_id", npartitions=frame.npartitions)
    return both.map_partitions(Named("pair crawls", met), meta=COUNTS)


def figures(counts: pd.DataFrame, by: str) -> dict[str, Any] | None:
    """What `report.json` has; None where nothing was dropped."""
    summed = counts.groupby(["dropped", "kept"])["documents"].sum()
    if summed.empty:
        return None
    rows = [
        {"dropped": str(dropped), "kept": str(kept), "documents": int(n)}
        for (dropped, kept), n in summed.items()
    ]
    return {"by": by, "pairs": sorted(rows, key=lambda row: (-row["documents"], row["dropped"], row["kept"]))}


def table(found: dict[str, Any]) -> Table:
    """Pairs of origins, those with the most documents first."""
    by = found["by"]
    rows = [(one["dropped"], one["kept"], one["documents"]) for one in found["pairs"]]
    caption = f"Duplicates by the {by} that they are of and that of the document kept in their place"
    return Table("origins", caption, (f"{by} of the dropped", f"{by} of the kept", "documents"), rows)


def heat_map(found: dict[str, Any]) -> Plot:
    """The same as a matrix, of the origins with the most duplicates."""
    pairs = pd.DataFrame(found["pairs"])
    of_ends = [pairs.groupby(end)["documents"].sum() for end in ("dropped", "kept")]
    totals = of_ends[0].add(of_ends[1], fill_value=0).sort_values(ascending=False, kind="stable")
    names = sorted(totals.index[:MOST_DRAWN])
    matrix = pairs.pivot_table(index="dropped", columns="kept", values="documents", aggfunc="sum")
    matrix = matrix.reindex(index=names, columns=names).fillna(0).astype(int)
    across = int(pairs.loc[pairs["dropped"] != pairs["kept"], "documents"].sum())
    label = (
        f"Heat map of duplicates by {found['by']}: {pairs['documents'].sum():,} documents, {across:,} of them dropped "
        f"for a document of another {found['by']}; the figures are in the table"
    )
    return Plot(
        "origins",
        label,
        plots.drawn(lambda axes: _draw(axes, matrix, found["by"]), 1.6 + max(1.4, 0.24 * len(names))),
    )


def _draw(axes: "Axes", matrix: pd.DataFrame, by: str) -> None:
    values, names = matrix.to_numpy(), list(matrix)
    strength = STRONGEST * np.sqrt(values / max(values.max(), 1))
    axes.pcolormesh(np.ones_like(values), cmap=plots.plain(plots.KEPT), alpha=strength, linewidth=0)
    places = np.arange(len(names)) + 0.5
    axes.set_xticks(places, names, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel=f"{by} of the document that was kept", ylabel=f"{by} of the dropped")
    axes.tick_params(length=0)
    if len(names) <= MOST_NUMBERED:
        for (row, column), value in np.ndenumerate(values):
            axes.text(column + 0.5, row + 0.5, f"{value:,}", ha="center", va="center", fontsize=8)
