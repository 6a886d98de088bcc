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
NOTHING = np.empty(0, np.uint64)
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
    settings = run.config.near_duplicates
    found, in_scope, marks = _searched(run, job)
    stars, wide = in_scope[settings.scope], in_scope[scope.CORPUS]
    nodes = np.unique(np.concatenate([marks, *(forest[:, 0] for forest in in_scope.values())]))
    entries = _entries(run, job.folder, nodes)
    choices = {one: _choice(run, job.folder, forest, entries) for one, forest in in_scope.items()}
    choice = choices[settings.scope]
    beside = wide[beside_another(wide, _kept_of(wide, stars, choice)), 0]
    flagged = _flagged(run, job.folder, wide, marks)
    overlapping = wide[np.isin(wide[:, 1], flagged), 0]
    alone = np.setdiff1d(overlapping, stars[:, 0])  # in a cluster of the corpus, in none of its scope
    linked = _write_linked(run, job.folder, stars, choice) if run.earlier else {}
    ours = ~choice.earlier
    clusters, of_others = named_anew(stars[ours]), entries["doc_id"].to_numpy(np.uint64)
    marks, beside, alone = (np.setdiff1d(some, of_others) for some in (marks, beside, alone))
    _write(
        job.folder,
        clusters,
        np.unique(np.concatenate((marks, beside, alone))),
        kept_by=choice.kept_by[ours],
        overlaps=np.isin(clusters[:, 0], overlapping),
        kept_in=choice.kept_in[ours],
    )
    _, sizes = np.unique(clusters[:, 1], return_counts=True)
    return {
        "rows_shuffled": int(found.loc[found["kind"] == SHUFFLED, "node"].sum()),
        **verification.figures(found, settings.verify),
        "clusters": len(sizes),
        "clustered_documents": len(clusters),
        "largest_cluster": int(sizes.max(initial=0)),
        "clusters_overlapping_references": len(flagged),
        "documents_overlapping_references_directly": len(marks),
        "documents_kept_beside_a_near_copy": len(beside),
        "in_clusters_by_scope": {
            one: _counted(in_scope[one], choices[one]) for one in scope.SCOPES if one in in_scope
        },
        **linked,
    }


def _searched(
    run: "Run", job: checkpoint.Checkpoint
) -> tuple[pd.DataFrame, dict[str, np.ndarray], np.ndarray]:
    """Rows of the scope's forest, stars uint64[n, 2] by scope, and documents uint64[m] that are a reference's.

    Of the scope, of the corpus, and of all where they are to be compared.
    """
    settings, resumed = run.config.near_duplicates, components.begin(job)
    found = _forest_of(run, job, resumed, settings.scope, references=settings.scope == scope.CORPUS)
    stars, marks = _stars(found)
    in_scope: dict[str, np.ndarray] = {settings.scope: stars}
    if settings.scope != scope.CORPUS:
        # Validation has to be clean of near-copies in the whole corpus, so its clusters are wanted in any scope.
        in_scope[scope.CORPUS], marks = _stars_beneath(run, job, scope.CORPUS, references=True)
    for one in scope.SCOPES if settings.compare_scopes else ():
        if one not in in_scope:
            in_scope[one], _ = _stars_beneath(run, job, one, references=False)
    return found, in_scope, marks


def _kept_of(wide: np.ndarray, stars: np.ndarray, choice: Choice) -> np.ndarray:
    """uint64[n]: what is kept in place of each row of the corpus's forest, as its scope chose."""
    place = _find(stars[:, 0], wide[:, 0])
    return np.where(place >= 0, choice.kept_by[place], wide[:, 0]) if len(stars) else wide[:, 0]


def _counted(forest: np.ndarray, choice: Choice) -> dict[str, int]:
    """Of the documents of this run in a forest: how many they are, in how many clusters, and how many would go."""
    ours = forest[~choice.earlier]
    removed = (choice.kept_by != forest[:, 0]) & ~choice.earlier
    return {
        "documents": len(ours),
        "clusters": len(np.unique(ours[:, 1])),
        "removed": int(removed.sum()),
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
            known = dd.from_map(known_links, folders_of, meta=FOREST, label="read earlier runs")
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
        label="read earlier runs",
    )
    with run.console.job("earlier documents", len(splits), "splits") as meter:
        found = gather(run.client, graph, meter)
    folders.remove([folder / NODES])
    return found.sort_values("doc_id", ignore_index=True)


def _choice(run: "Run", folder: Path, stars: np.ndarray, entries: pd.DataFrame) -> Choice:
    """What is kept in place of each row of a star forest, by the run's policy."""
    import dask.dataframe as dd

    _write(folder, stars)

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
        label="rank who is kept",
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


def _flagged(run: "Run", folder: Path, forest: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """uint64[n] the clusters of a forest that overlap a reference set."""
    import dask.dataframe as dd

    if not len(forest):
        return NOTHING
    _write(folder, forest, marks)
    graph = dd.from_map(
        flagged_clusters,
        run.annotated,
        folder=folder,
        reference_hashes=run.reference_hashes,
        meta=columns(cluster="uint64"),
        label="compare with references",
    )
    with run.console.job("overlap", len(run.annotated), "splits", **run.totals()) as meter:
        return np.unique(gather(run.client, graph, meter)["cluster"].to_numpy(np.uint64))


def _write(
    folder: Path,
    stars: np.ndarray,
    marks: np.ndarray = NOTHING,
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
