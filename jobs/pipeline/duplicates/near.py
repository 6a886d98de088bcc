"""Near-duplicates: candidates joined to clusters, one document kept of each cluster.

Two documents are candidates when they share a band of their signatures (`candidates`); clusters are the connected
components of the candidates (`components`). Leskovec et al., Mining of Massive Datasets, chapter 3; FineWeb's settings
by default.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.pipeline.duplicates import against, components, keep, repeats, scope, verification
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
CLUSTERS, OVERLAPS = "clusters.arrow", "overlaps.npy"
LINKED = (
    "linked.parquet"  # documents that earlier runs kept, and that are now in the cluster of another such one
)
NODES = "nodes.npy"  # while it runs: documents of which more has to be known

RANKS = columns(
    doc_id="uint64",
    rank="uint64",
    protected="bool",
)
ENTRIES = columns(  # documents of earlier runs
    doc_id="uint64",
    run="int16",
    rank="uint64",  # place in its ledger
    kept="bool",  # by this step
    protected="bool",
)
SCHEMA = pa.schema(
    [
        ("doc_id", pa.uint64()),
        ("cluster", pa.uint64()),
        ("kept_by", pa.uint64()),
        ("overlaps", pa.uint8()),
        ("kept_in", pa.int16()),  # number of an earlier run, or `keep.THIS_RUN`
    ]
)


# ---------------------------------------------------------------- what was found


class Clusters:
    """The clusters of a run, memory-mapped and sorted by doc_id; documents in no cluster have no row."""

    def __init__(self, folder: Path) -> None:
        table = pa.ipc.open_file(pa.memory_map(str(folders.local_copy(folder / CLUSTERS)))).read_all()
        self.doc_id, self.cluster, self.kept_by, self.overlaps, self.kept_in = (
            column.to_numpy() for column in table.combine_chunks().itercolumns()
        )
        self._direct = folders.load(folders.local_copy(folder / OVERLAPS))

    def find(self, doc_ids: np.ndarray) -> np.ndarray:
        """int64[d] row of each document, -1 where it is in no cluster."""
        return _find(self.doc_id, doc_ids)

    def behind(self) -> np.ndarray:
        """bool[n]: rows of documents that another was kept for."""
        return np.asarray(self.doc_id != self.kept_by)

    def touched(self, table: pa.Table, reference_hashes: Path) -> np.ndarray:
        """bool[d]: the document itself equals, or is a candidate of, a document of a reference set."""
        direct = _find(self._direct, table["doc_id"].to_numpy()) >= 0
        references = folders.load(folders.local_copy(reference_hashes))
        return direct | (_find(references, hash_prefixes(table["text_hash"])) >= 0)


def keep_list(
    forest: np.ndarray, ranks: np.ndarray, protected: np.ndarray, runs: np.ndarray | None = None
) -> np.ndarray:
    """uint64[n] document kept in place of each row of a star forest uint64[n, 2]: the best, or itself if protected."""
    return np.where(protected, forest[:, 0], keep.best(forest[:, 1], protected, ranks, forest[:, 0], runs))


@dataclass(frozen=True)
class Choice:
    """What is kept in place of each row of a star forest.

    Attributes
    ----------
    kept_by : uint64[n]
        A document; its own where it is kept.
    kept_in : int16[n]
        Whose that document is.
    earlier : bool[n]
        Rows of documents of earlier runs.
    linked : bool[n]
        Of those, the ones that were kept and would not be now, since `first` of their cluster is another.
    first : uint64[n]
        The document that all others of the cluster would be dropped for.
    """

    kept_by: np.ndarray
    kept_in: np.ndarray
    earlier: np.ndarray
    linked: np.ndarray
    first: np.ndarray


def chosen(forest: np.ndarray, ranks: np.ndarray, protected: np.ndarray, entries: pd.DataFrame) -> Choice:
    """Whom each component of a star forest uint64[n, 2] keeps: what an earlier run kept, before all of this run's.

    Parameters
    ----------
    forest
        In the order of its nodes.
    ranks, protected
        uint64[m] and bool[m] of this run's documents in it, in their order.
    entries
        The documents of earlier runs in it, like `ENTRIES`, by doc_id.
    """
    nodes = forest[:, 0]
    place = _find(entries["doc_id"].to_numpy(np.uint64), nodes)
    earlier = place >= 0
    of = entries.iloc[place[earlier]]
    kept_there, runs = np.zeros(len(nodes), bool), np.full(len(nodes), keep.THIS_RUN)
    all_ranks, spared = np.zeros(len(nodes), np.uint64), np.zeros(len(nodes), bool)
    all_ranks[~earlier], spared[~earlier] = ranks, protected
    all_ranks[earlier], kept_there[earlier] = of["rank"], of["kept"]
    runs[earlier] = np.where(of["kept"], of["run"].to_numpy(np.int64), keep.NOBODY)
    best = keep_list(forest, all_ranks, spared, runs)
    kept_by = np.where(kept_there, nodes, best)
    linked = kept_there & (best != nodes)
    linked[earlier] &= ~of["protected"].to_numpy(bool)
    kept_in = runs[_find(nodes, kept_by)] if len(nodes) else runs
    return Choice(kept_by, kept_in.astype(np.int16), earlier, linked, best)


def named_anew(forest: np.ndarray) -> np.ndarray:
    """Rows of stars uint64[n, 2], in the order of their nodes, each root the smallest node that is left of its star."""
    _, first, place = np.unique(forest[:, 1], return_index=True, return_inverse=True)
    return np.column_stack((forest[:, 0], forest[first, 0][place]))


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


def entries_of_split(
    paths: SplitPaths, first_row: int, number: int, nodes: Path, policy: Policy
) -> pd.DataFrame:
    """Documents of a split of an earlier run that are among the nodes."""
    table = folders.read_table(paths.rows, columns=["doc_id", "source"])
    doc_ids = table["doc_id"].to_numpy()
    clusters = Clusters(paths.out / NAME)
    columns = {
        "doc_id": doc_ids,
        "run": number,
        "rank": np.arange(first_row, first_row + len(table), dtype=np.uint64),
        "kept": _find(clusters.doc_id[clusters.behind()], doc_ids) < 0,
        "protected": policy.protected(table),
    }
    among = _find(folders.load(folders.local_copy(nodes)), doc_ids) >= 0
    return pd.DataFrame(columns)[among].astype(ENTRIES.dtypes)


def known_links(out: Path) -> pd.DataFrame:
    """What an earlier run dropped, linked to what it kept in its place."""
    clusters = Clusters(out / NAME)
    behind = clusters.behind()
    links = {"node": clusters.doc_id[behind], "root": clusters.kept_by[behind], "kind": EDGE}
    return pd.DataFrame(links).astype(FOREST.dtypes)


# ---------------------------------------------------------------- the job


def job_fingerprint(run: "Run") -> str:
    """Covers the banding, the choice and what was annotated."""
    near = run.config.near_duplicates
    unused = {"tree_edges", *(["threshold"] if near.verify == "none" else [])}
    settings = near.model_dump(exclude=unused)
    upstream = {name: run.fingerprints[name] for name in ("annotate", "references", *EARLIER)}
    return fingerprint.fingerprint(
        __name__,
        settings=settings,
        keep=run.config.keep.model_dump(),
        against=against.identity(run),
        **upstream,
    )


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
        wide, marks = _stars_beneath(run, job, scope.CORPUS, references=True)
    others = [one for one in scope.SCOPES if settings.compare_scopes and one not in (within, scope.CORPUS)]
    found_in = {one: _stars_beneath(run, job, one, references=False)[0] for one in others}
    entries = _entries(run, job.folder, np.unique(np.concatenate((stars[:, 0], wide[:, 0], marks))))
    _write(job.folder, stars, marks)
    choice = _choice(run, job.folder, stars, entries)
    place = _find(stars[:, 0], wide[:, 0])
    kept_of_wide = np.where(place >= 0, choice.kept_by[place], wide[:, 0]) if len(stars) else wide[:, 0]
    beside = wide[beside_another(wide, kept_of_wide), 0]
    _write(job.folder, wide, marks)
    flagged = _flagged(run, job.folder) if len(wide) else np.empty(0, np.uint64)
    overlapping = wide[np.isin(wide[:, 1], flagged), 0]
    alone = np.setdiff1d(overlapping, stars[:, 0])  # in a cluster of the corpus, in none of its scope
    linked = _write_linked(run, job.folder, stars, choice) if run.earlier else {}
    of_others = entries["doc_id"].to_numpy(np.uint64)
    wide = named_anew(wide[_find(of_others, wide[:, 0]) < 0])
    stars, kept_by, kept_in = (values[~choice.earlier] for values in (stars, choice.kept_by, choice.kept_in))
    stars = named_anew(stars)
    marks, beside, alone = (np.setdiff1d(some, of_others) for some in (marks, beside, alone))
    overlaps = np.isin(stars[:, 0], overlapping)
    every = np.unique(np.concatenate((marks, beside, alone)))
    _write(job.folder, stars, every, kept_by=kept_by, overlaps=overlaps, kept_in=kept_in)
    roots, sizes = np.unique(stars[:, 1], return_counts=True)
    found_in = {one: of[_find(of_others, of[:, 0]) < 0] for one, of in found_in.items()}
    found_in |= {within: stars, scope.CORPUS: wide}
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
            one: [len(found_in[one]), len(np.unique(found_in[one][:, 1]))]
            for one in scope.SCOPES
            if one in found_in
        },
        **linked,
    }


def _forest_of(
    run: "Run", job: checkpoint.Checkpoint, resumed: bool, within: str, references: bool
) -> pd.DataFrame:
    """Rows of one star forest of the candidates of a scope, with the documents that are a reference's."""
    import dask.dataframe as dd

    settings = run.config.near_duplicates
    if not settings.enabled or not run.annotated:
        return FOREST
    splits = [*run.annotated, *(paths for paths, *_ in against.splits(run))]
    documents = run.totals()["documents"]
    sets = run.referenced if references else []
    scratch = job.folder / repeats.FOLDER
    if not resumed:
        of = Candidates(
            splits,
            sets,
            settings.bands,
            settings.rows,
            documents=documents * (len(splits) + len(sets)) // len(run.annotated),
            folder=scratch,
            tasks=sum(run.client.nthreads().values()),
            compared=Compared(within, tuple(EARLIER)),
        )
        graph = forests(of) if settings.verify == "none" else verified_forests(run, of)
        if run.earlier:
            folders_of = [earlier.out for earlier in run.earlier]
            known = dd.from_map(known_links, folders_of, meta=FOREST, label="known-links")
            graph = dd.concat([graph, known])
        components.commit_forests(run.client, run.console, job, graph, **run.totals())
        folders.remove_folder(scratch)
    return components.merged(run.client, run.console, job, settings.tree_edges, merge_forests)


def _stars_beneath(
    run: "Run", job: checkpoint.Checkpoint, within: str, references: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Stars and references' documents of another scope, from a forest that has a subfolder while it is made."""
    beneath = checkpoint.Checkpoint(job.folder / within, job.fingerprint)
    resumed = components.begin(beneath)
    found = _stars(_forest_of(run, beneath, resumed, within, references))
    folders.remove_folder(beneath.folder)
    return found


def _stars(found: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Star forest uint64[n, 2], and documents uint64[m] that are a reference's."""
    stars = found[found["kind"] == EDGE].sort_values("node")[["node", "root"]].to_numpy(np.uint64)
    return stars, np.unique(found.loc[found["kind"] == REFERENCE, "node"].to_numpy(np.uint64))


def _entries(run: "Run", folder: Path, nodes: np.ndarray) -> pd.DataFrame:
    """The documents of earlier runs among the nodes, by doc_id."""
    import dask.dataframe as dd

    if not run.earlier:
        return ENTRIES
    with checkpoint.written(folder / NODES) as file:
        checkpoint.save_array(file, nodes)
    splits = against.splits(run)
    graph = dd.from_map(
        entries_of_split,
        *zip(*splits, strict=True),
        nodes=folder / NODES,
        policy=Policy(run.config.keep),
        meta=ENTRIES,
        label="earlier-documents",
    )
    with run.console.job("earlier documents", len(splits), "splits") as meter:
        found = gather(run.client, graph, meter)
    folders.remove([folder / NODES])
    return found.sort_values("doc_id", ignore_index=True)


def _choice(run: "Run", folder: Path, stars: np.ndarray, entries: pd.DataFrame) -> Choice:
    """What is kept in place of each row of the star forest, by the run's policy."""
    import dask.dataframe as dd

    ours = stars[_find(entries["doc_id"].to_numpy(np.uint64), stars[:, 0]) < 0, 0]
    if not len(ours) or not Policy(run.config.keep).needs_rows:
        ranks = Policy(run.config.keep).random_ranks(ours)
        return chosen(stars, ranks, np.zeros(len(ours), bool), entries)
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
        found = gather(run.client, graph, meter).sort_values("doc_id")
    return chosen(stars, found["rank"].to_numpy(np.uint64), found["protected"].to_numpy(bool), entries)


def _write_linked(run: "Run", folder: Path, stars: np.ndarray, choice: Choice) -> dict[str, Any]:
    """Write what earlier runs kept and one corpus would not, and count what was dropped for which run's documents."""
    names, linked = run.config.against, choice.linked
    runs = choice.kept_in
    first = _find(stars[:, 0], choice.first[linked])
    table = {
        "doc_id": pa.array(stars[linked, 0], pa.uint64()),
        "kept_in": against.names_of(runs[linked], names),
        "first": pa.array(choice.first[linked], pa.uint64()),
        "first_in": against.names_of(runs[first], names),
    }
    with checkpoint.written(folder / LINKED) as file:
        pq.write_table(pa.table(table), file, compression="zstd")
    gone = ~choice.earlier & (choice.kept_by != stars[:, 0])
    return {
        "against": {earlier.name: earlier.identity for earlier in run.earlier},
        "dropped_against": against.counted(runs[gone], names),
        "earlier_documents_linked": int(linked.sum()),
    }


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
    folder: Path,
    stars: np.ndarray,
    marks: np.ndarray,
    kept_by: np.ndarray | None = None,
    overlaps: np.ndarray | None = None,
    kept_in: np.ndarray | None = None,
) -> None:
    """Write clusters, each document kept for itself where nothing else is known yet, and marks."""
    n = len(stars)
    kept_by = stars[:, 0] if kept_by is None else kept_by
    overlaps = np.zeros(n, np.uint8) if overlaps is None else overlaps.astype(np.uint8)
    kept_in = np.full(n, keep.THIS_RUN, np.int16) if kept_in is None else kept_in
    table = pa.table([stars[:, 0], stars[:, 1], kept_by, overlaps, kept_in], schema=SCHEMA)
    with checkpoint.written(folder / CLUSTERS) as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(table)
    with checkpoint.written(folder / OVERLAPS) as file:
        checkpoint.save_array(file, marks)
