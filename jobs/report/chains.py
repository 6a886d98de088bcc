"""Clusters looked into: how like the document kept in its place each removed one is, and which hang together by others.

Components join what is alike through others (a chain), so that a removed document may have little in common with the
one that was kept. Of each removed document this tells the similarity to the kept one, as their signatures estimate it,
and whether the two are linked directly: they share a band, and with `verify: signature` enough values as well.

A document's place among the signatures is its row in the ledger.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jobs import ledger
from jobs.pipeline.duplicates import verification
from jobs.pipeline.duplicates.dropped import find
from jobs.report import examples
from jobs.runtime import checkpoint, folders
from jobs.runtime.compute import Named, columns, gather

if TYPE_CHECKING:
    from jobs.runtime.context import Run

LARGEST, MOST_CHAINED = 5, 5  # clusters that are shown
SAMPLES = 3  # documents of each, beside the kept one
MOST_NAMED = 10  # sources and crawls of a cluster
KEPT_PLACES = "kept_places.npy"  # while the report is made
KEPT_MARK = " kept"

KEPT = columns(
    doc_id="uint64",
    place="int64",
)
REMOVED = columns(
    cluster="uint64",
    similarity="float64",
    direct="bool",
)
SUMMARY = columns(
    topic="string",  # bin, totals or cluster
    value="uint64",  # the bin's number, or the cluster
    removed="int64",
    indirect="int64",  # of the removed
    clusters="int64",
    chained="int64",  # clusters with an indirect one
    least="float64",  # similarity to the kept one
)
SPREAD = columns(
    cluster="uint64",
    source="string",
    crawl="string",
    documents="int64",
)


@dataclass(frozen=True)
class Linked:
    """When a removed document is linked to the kept one; how many values a band has."""

    compare: verification.BySignature
    rows: int
    threshold: float | None

    def __call__(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """float64[p] similarity, and bool[p] whether linked directly, of the documents at places int64[p]."""
        equal = self.compare.equal(a, b)
        similarity = equal.mean(axis=1)
        bands = equal.reshape(len(equal), -1, self.rows).all(axis=2)
        return similarity, np.any(bands, axis=1) & (similarity >= (self.threshold or 0))


# ---------------------------------------------------------------- partition functions


def kept_documents(file: tuple[int, Path]) -> pd.DataFrame:
    """The kept documents of the clusters in a ledger file, and their places."""
    start, path = file
    frame = ledger.frame(folders.read_table(path, columns=["doc_id", "kept_by", "cluster"]))
    kept = np.flatnonzero(frame["cluster"].notna() & (frame["doc_id"] == frame["kept_by"]).fillna(False))
    return pd.DataFrame({"doc_id": frame["doc_id"].to_numpy(np.uint64)[kept], "place": start + kept})


def removed_documents(file: tuple[int, Path], kept: Path, linked: Linked) -> pd.DataFrame:
    """Each near-duplicate of a ledger file beside what was kept in its place, where this run has that."""
    start, path = file
    frame = ledger.frame(folders.read_table(path, columns=["kept_by", "cluster", "fate"]))
    rows = np.flatnonzero(frame["fate"] == ledger.NEAR_DUPLICATE)
    kept_by, cluster = (frame[name].iloc[rows].to_numpy(np.uint64) for name in ("kept_by", "cluster"))
    doc_ids, places = folders.load(folders.local_copy(kept))
    at = find(doc_ids, kept_by)
    rows, cluster, at = rows[at >= 0], cluster[at >= 0], at[at >= 0]
    parts = [REMOVED]
    for i in range(0, len(rows), verification.PAIRS_AT_ONCE):
        some = slice(i, i + verification.PAIRS_AT_ONCE)
        similarity, direct = linked(start + rows[some], places[at[some]].astype(np.int64))
        parts.append(pd.DataFrame({"cluster": cluster[some], "similarity": similarity, "direct": direct}))
    return pd.concat(parts).astype(REMOVED.dtypes)


def summarised(rows: pd.DataFrame) -> pd.DataFrame:
    """Of the whole clusters in a partition: how similar, how many indirect, and the clusters to be looked at."""
    indirect = ~rows["direct"]
    by_cluster = (
        rows.assign(indirect=indirect)
        .groupby("cluster")
        .agg(removed=("indirect", "size"), indirect=("indirect", "sum"), least=("similarity", "min"))
    )
    bins = np.minimum((rows["similarity"].to_numpy() * verification.BINS).astype(int), verification.BINS - 1)
    by_bin = rows.assign(indirect=indirect).groupby(bins)["indirect"].agg(["size", "sum"])
    totals = {
        "removed": len(rows),
        "indirect": int(indirect.sum()),
        "clusters": len(by_cluster),
        "chained": int((by_cluster["indirect"] > 0).sum()),
    }
    parts = [
        _summary("bin", value=by_bin.index, removed=by_bin["size"], indirect=by_bin["sum"]),
        _summary("totals", **{name: [count] for name, count in totals.items()}),
        chosen(_summary("cluster", value=by_cluster.index, **by_cluster)),
    ]
    return pd.concat(parts, ignore_index=True)


def _summary(topic: str, **values: Any) -> pd.DataFrame:
    """Rows of SUMMARY, zero where nothing is given; a float on the way would round ids."""
    rows = {name: np.asarray(given) for name, given in values.items()}
    n = len(next(iter(rows.values())))
    filled = {name: rows.get(name, np.zeros(n)).astype(SUMMARY[name].dtype) for name in list(SUMMARY)[1:]}
    return pd.DataFrame({"topic": pd.array([topic] * n, "string"), **filled})


def chosen(clusters: pd.DataFrame) -> pd.DataFrame:
    """Of rows of clusters: the largest, and those with the most documents linked only through others."""
    largest = clusters.sort_values(["removed", "value"], ascending=[False, True]).head(LARGEST)
    chained = clusters[clusters["indirect"] > 0].sort_values(["indirect", "value"], ascending=[False, True])
    return pd.concat([largest, chained.head(MOST_CHAINED)]).drop_duplicates("value")


def spread(frame: pd.DataFrame, clusters: np.ndarray) -> pd.DataFrame:
    """Documents of some clusters in a ledger file, by source and crawl."""
    rows = _of(frame, clusters)
    counted = pd.DataFrame(
        {
            "cluster": rows["cluster"].to_numpy(np.uint64),
            "source": rows["source"].astype("string"),
            "crawl": rows["crawl"].astype("string").fillna(""),
        }
    )
    return counted.groupby(list(counted)).size().rename("documents").reset_index().astype(SPREAD.dtypes)


def sampled(frame: pd.DataFrame, clusters: np.ndarray) -> pd.DataFrame:
    """Documents of some clusters in a ledger file, as `examples.sampled` has them, under the cluster's name."""
    rows = _of(frame, clusters)
    names = [
        f"{cluster}{KEPT_MARK if doc_id == kept_by else ''}"
        for cluster, doc_id, kept_by in zip(rows["cluster"], rows["doc_id"], rows["kept_by"], strict=True)
    ]
    return examples.sampled(rows.assign(fate=pd.array(names, "string")), SAMPLES)


def _of(frame: pd.DataFrame, clusters: np.ndarray) -> pd.DataFrame:
    return frame[np.isin(frame["cluster"].to_numpy(np.uint64, na_value=0), clusters)]


# ---------------------------------------------------------------- the graph


def looked_into(run: "Run", folder: Path) -> dict[str, Any] | None:
    """How clusters hang together, and the largest and the most chained with samples; None where there is none."""
    import dask.dataframe as dd

    settings = run.config.near_duplicates
    if not run.figures("near_duplicates")["clusters"]:
        return None
    files = [(i * ledger.ROWS_PER_FILE, path) for i, path in enumerate(ledger.files(run.out))]
    starts = np.cumsum([0, *run.figures("annotate")["documents_of_splits"]])[:-1]
    compare = verification.BySignature(tuple(run.annotated), starts)
    linked = Linked(compare, settings.rows, settings.threshold if settings.verify == "signature" else None)
    with run.console.job("clusters", 4 * len(files), "tables") as meter:
        kept = gather(
            run.client, dd.from_map(kept_documents, files, meta=KEPT, label="find kept documents"), meter
        )
        kept = kept.sort_values("doc_id")
        with checkpoint.written(folder / KEPT_PLACES) as file:
            checkpoint.save_array(
                file, np.stack([kept["doc_id"].to_numpy(np.uint64), kept["place"].to_numpy(np.uint64)])
            )
        removed = dd.from_map(
            removed_documents,
            files,
            kept=folder / KEPT_PLACES,
            linked=linked,
            meta=REMOVED,
            label="compare with the kept",
        )
        whole = removed.shuffle("cluster", npartitions=len(files)).map_partitions(
            Named("look into clusters", summarised), meta=SUMMARY
        )
        summary = gather(run.client, whole, meter)
        folders.remove([folder / KEPT_PLACES])
        shown = chosen(summary[summary["topic"] == "cluster"])
        clusters = shown["value"].to_numpy(np.uint64)
        frame = ledger.read(run.out, [*examples.COLUMNS, "cluster", "crawl"])
        counts = gather(run.client, frame.map_partitions(spread, clusters=clusters, meta=SPREAD), meter)
        documents = frame.map_partitions(sampled, clusters=clusters, meta=examples.SAMPLED)
        found = examples.sampled(gather(run.client, documents, meter), SAMPLES)
    by_name = examples.with_excerpts(found, run.texts)
    return _figures(summary) | {
        "shown": [_described(row, counts, by_name) for row in shown.to_dict("records")]
    }


def _figures(summary: pd.DataFrame) -> dict[str, Any]:
    totals = summary[summary["topic"] == "totals"][["removed", "indirect", "clusters", "chained"]].sum()
    bins = summary[summary["topic"] == "bin"].groupby("value")["removed"].sum()
    return {
        "documents_linked_through_others": int(totals["indirect"]),
        "clusters_with_such_documents": int(totals["chained"]),
        "similarity_to_kept_histogram": [int(bins.get(i, 0)) for i in range(verification.BINS)],
    }


def _described(
    row: dict[str, Any], counts: pd.DataFrame, by_name: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    of_cluster = counts[counts["cluster"] == row["value"]]
    return {
        "cluster": int(row["value"]),
        "documents": int(of_cluster["documents"].sum()),
        "removed": int(row["removed"]),
        "linked_through_others": int(row["indirect"]),
        "least_similarity_to_kept": float(row["least"]),
        **{f"{kind}s": _most(of_cluster, kind) for kind in ("source", "crawl")},
        "kept": _unnamed(by_name.get(f"{row['value']}{KEPT_MARK}", [])),
        "samples": _unnamed(by_name.get(str(row["value"]), [])),
    }


def _unnamed(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name != "fate"} for one in documents]


def _most(of_cluster: pd.DataFrame, kind: str) -> dict[str, int]:
    """Names with the most documents of a cluster."""
    named = (
        of_cluster.groupby(kind)["documents"].sum().sort_index().sort_values(ascending=False, kind="stable")
    )
    return {str(name): int(n) for name, n in named.head(MOST_NAMED).items()}


def samples(found: dict[str, Any] | None) -> dict[str, list[dict[str, Any]]]:
    """What the page shows of the clusters, under a heading for each."""
    return {
        f"cluster of {one['documents']:,} documents: {one['removed']:,} removed, {one['linked_through_others']:,} of "
        f"them linked to the kept one through others; the least like it at {one['least_similarity_to_kept']:.2f}": [
            *one["kept"],
            *one["samples"],
        ]
        for one in (found["shown"] if found else [])
    }


def sentence(found: dict[str, Any] | None) -> str:
    """For the terminal and the page."""
    if found is None or not found["documents_linked_through_others"]:
        return ""
    return (
        f"{found['documents_linked_through_others']:,} of the removed documents, in "
        f"{found['clusters_with_such_documents']:,} clusters, are linked to the kept one only through others"
    )
