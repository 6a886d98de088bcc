"""Near-duplicates: candidates joined to clusters, one document kept of each cluster.

Two documents are candidates when they share a band of their signatures (`candidates`); clusters are the connected
components of the candidates (`components`). Leskovec et al., Mining of Massive Datasets, chapter 3; FineWeb's settings
by default.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from jobs.pipeline.duplicates import components, keep, repeats, scope, verification
from jobs.pipeline.duplicates.candidates import (
    EDGE,
    REFERENCE,
    SHUFFLED,
    Candidates,
    Compared,
    forests,
    merge_forests,
    verified_forests,
)
from jobs.pipeline.duplicates.components import FOREST
from jobs.pipeline.duplicates.dropped import find as _find
from jobs.pipeline.duplicates.keep import Policy
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import columns, gather
from jobs.text import hash_prefixes

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "near_duplicates"
EARLIER = ["url_duplicates", "exact_duplicates"]
WIDE = "corpus"  # subfolder, while it runs, of the forest over the whole corpus where the scope is another
CLUSTERS, OVERLAPS = "clusters.arrow", "overlaps.npy"

RANKS = columns(
    doc_id="uint64",
    rank="uint64",
    protected="bool",
)
SCHEMA = pa.schema(
    [("doc_id", pa.uint64()), ("cluster", pa.uint64()), ("kept_by", pa.uint64()), ("overlaps", pa.uint8())]
)


# ---------------------------------------------------------------- what was found


class Clusters:
    """The clusters of a run, memory-mapped and sorted by doc_id; documents in no cluster have no row."""

    def __init__(self, folder: Path) -> None:
        table = pa.ipc.open_file(pa.memory_map(str(folders.local_copy(folder / CLUSTERS)))).read_all()
        self.doc_id, self.cluster, self.kept_by, self.overlaps = (
            column.to_numpy() for column in table.combine_chunks().itercolumns()
        )
        self._direct = folders.load(folders.local_copy(folder / OVERLAPS))

    def find(self, doc_ids: np.ndarray) -> np.ndarray:
        """int64[d] row of each document, -1 where it is in no cluster."""
        return _find(self.doc_id, doc_ids)

    def touched(self, table: pa.Table, reference_hashes: Path) -> np.ndarray:
        """bool[d]: the document itself equals, or is a candidate of, a document of a reference set."""
        direct = _find(self._direct, table["doc_id"].to_numpy()) >= 0
        references = folders.load(folders.local_copy(reference_hashes))
        return direct | (_find(references, hash_prefixes(table["text_hash"])) >= 0)


def keep_list(forest: np.ndarray, ranks: np.ndarray, protected: np.ndarray) -> np.ndarray:
    """uint64[n] document kept in place of each row of a star forest uint64[n, 2]: the best, or itself if protected."""
    return np.where(protected, forest[:, 0], keep.best(forest[:, 1], protected, ranks, forest[:, 0]))


def beside_another(forest: np.ndarray, kept_by: np.ndarray) -> np.ndarray:
    """bool[n]: of the node's component in a star forest more than one document is kept."""
    roots, place = np.unique(forest[:, 1], return_inverse=True)
    kept = np.bincount(place, weights=forest[:, 0] == kept_by, minlength=len(roots))
    return kept[place] > 1


def flagged_clusters(paths: SplitPaths, folder: Path, reference_hashes: Path) -> pd.DataFrame:
    """Clusters that a document of this split makes overlap with a reference set."""
    table = folders.read_table(paths.rows, columns=["doc_id", "text_hash"])
    clusters = Clusters(folder)
    place = clusters.find(table["doc_id"].to_numpy())
    clustered = place >= 0
    touched = clusters.touched(table, reference_hashes) & clustered
    return pd.DataFrame({"cluster": np.unique(clusters.cluster[place[touched]])})


def ranks_of_split(paths: SplitPaths, first_row: int, doc_ids: Path, policy: Policy) -> pd.DataFrame:
    """What the policy says about the documents of a split that are in a cluster."""
    table = folders.read_table(paths.rows, columns=policy.columns)
    clustered = _find(Clusters(doc_ids).doc_id, table["doc_id"].to_numpy()) >= 0
    columns = {
        "doc_id": table["doc_id"].to_numpy(),
        "rank": policy.ranks(table, first_row),
        "protected": policy.protected(table),
    }
    return pd.DataFrame(columns)[clustered].astype(RANKS.dtypes)


# ---------------------------------------------------------------- the job


def job_fingerprint(run: "Run") -> str:
    """Covers the banding, the choice and what was annotated."""
    near = run.config.near_duplicates
    unused = {"tree_edges", *(["threshold"] if near.verify == "none" else [])}
    settings = near.model_dump(exclude=unused)
    upstream = {name: run.fingerprints[name] for name in ("annotate", "references", *EARLIER)}
    return fingerprint.fingerprint(__name__, settings=settings, keep=run.config.keep.model_dump(), **upstream)


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Find the clusters, choose whom to keep, and mark what overlaps a reference set or another kept document."""
    resumed = components.begin(job)
    settings = run.config.near_duplicates
    within = settings.scope
    found = _forest_of(run, job, resumed, within, references=within == scope.CORPUS)
    stars, marks = _stars(found)
    wide = stars
    if within != scope.CORPUS:
        # Validation has to be clean of near-copies in the whole corpus, so its clusters are wanted in any scope.
        beneath = checkpoint.Checkpoint(job.folder / WIDE, job.fingerprint)
        resumed = components.begin(beneath)
        wide, marks = _stars(_forest_of(run, beneath, resumed, scope.CORPUS, references=True))
        folders.remove_folder(beneath.folder)
    _write(job.folder, stars, stars[:, 0], np.zeros(len(stars), np.uint8), marks)
    kept_by = _kept_by(run, job.folder, stars)
    place = _find(stars[:, 0], wide[:, 0])
    kept_of_wide = np.where(place >= 0, kept_by[place], wide[:, 0]) if len(stars) else wide[:, 0]
    beside = wide[beside_another(wide, kept_of_wide), 0]
    _write(job.folder, wide, wide[:, 0], np.zeros(len(wide), np.uint8), marks)
    flagged = _flagged(run, job.folder) if len(wide) else np.empty(0, np.uint64)
    overlapping = wide[np.isin(wide[:, 1], flagged), 0]
    overlaps = np.isin(stars[:, 0], overlapping).astype(np.uint8)
    alone = np.setdiff1d(overlapping, stars[:, 0])  # in a cluster of the corpus, in none of its scope
    _write(job.folder, stars, kept_by, overlaps, np.unique(np.concatenate((marks, beside, alone))))
    roots, sizes = np.unique(stars[:, 1], return_counts=True)
    wide_roots = np.unique(wide[:, 1])
    return {
        "rows_shuffled": int(found.loc[found["kind"] == SHUFFLED, "node"].sum()),
        **verification.figures(found, settings.verify),
        "clusters": len(roots),
        "clustered_documents": len(stars),
        "largest_cluster": int(sizes.max(initial=0)),
        "clusters_overlapping_references": len(flagged),
        "documents_overlapping_references_directly": len(marks),
        "documents_kept_beside_a_near_copy": len(beside),
        "in_clusters_by_scope": {
            within: [len(stars), len(roots)],
            scope.CORPUS: [len(wide), len(wide_roots)],
        },
    }


def _forest_of(
    run: "Run", job: checkpoint.Checkpoint, resumed: bool, within: str, references: bool
) -> pd.DataFrame:
    """Rows of one star forest of the candidates of a scope, with the documents that are a reference's."""
    settings, splits = run.config.near_duplicates, run.annotated
    if not settings.enabled or not splits:
        return FOREST
    sets = run.referenced if references else []
    scratch = job.folder / repeats.FOLDER
    if not resumed:
        of = Candidates(
            splits,
            sets,
            settings.bands,
            settings.rows,
            documents=run.totals()["documents"] * (len(splits) + len(sets)) // len(splits),
            folder=scratch,
            tasks=sum(run.client.nthreads().values()),
            compared=Compared(within, tuple(run.out / job for job in EARLIER)),
        )
        graph = forests(of) if settings.verify == "none" else verified_forests(run, of)
        components.commit_forests(run.client, run.console, job, graph, **run.totals())
        folders.remove_folder(scratch)
    return components.merged(run.client, run.console, job, settings.tree_edges, merge_forests)


def _stars(found: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Star forest uint64[n, 2], and documents uint64[m] that are a reference's."""
    stars = found[found["kind"] == EDGE].sort_values("node")[["node", "root"]].to_numpy(np.uint64)
    return stars, np.unique(found.loc[found["kind"] == REFERENCE, "node"].to_numpy(np.uint64))


def _kept_by(run: "Run", folder: Path, stars: np.ndarray) -> np.ndarray:
    """uint64[n] document kept in place of each row of the star forest, by the run's policy."""
    import dask.dataframe as dd

    if not len(stars):
        return np.empty(0, np.uint64)
    if not Policy(run.config.keep).needs_rows:
        ranks = Policy(run.config.keep).random_ranks(stars[:, 0])
        return keep_list(stars, ranks, np.zeros(len(stars), bool))
    graph = dd.from_map(
        ranks_of_split,
        run.annotated,
        keep.first_rows(run),
        doc_ids=folder,
        policy=keep.policy(run),
        meta=RANKS,
        label="keep-ranks",
    )
    with run.console.job("keep", len(run.annotated), "splits", **run.totals()) as meter:
        ranks = gather(run.client, graph, meter).sort_values("doc_id")
    return keep_list(stars, ranks["rank"].to_numpy(np.uint64), ranks["protected"].to_numpy(bool))


def _flagged(run: "Run", folder: Path) -> np.ndarray:
    """uint64[n] the clusters in the folder that overlap a reference set."""
    import dask.dataframe as dd

    graph = dd.from_map(
        flagged_clusters,
        run.annotated,
        folder=folder,
        reference_hashes=run.reference_hashes,
        meta=columns(cluster="uint64"),
        label="reference-overlap",
    )
    with run.console.job("overlap", len(run.annotated), "splits", **run.totals()) as meter:
        return np.unique(gather(run.client, graph, meter)["cluster"].to_numpy(np.uint64))


def _write(
    folder: Path, stars: np.ndarray, kept_by: np.ndarray, overlaps: np.ndarray, marks: np.ndarray
) -> None:
    table = pa.table([stars[:, 0], stars[:, 1], kept_by, overlaps], schema=SCHEMA)
    with checkpoint.written(folder / CLUSTERS) as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(table)
    with checkpoint.written(folder / OVERLAPS) as file:
        np.save(file, marks)
