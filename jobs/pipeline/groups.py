"""Shards of each group of a mixture: the training tokens by source, or by another column of the ledger.

The ledger says which document lies where, and what it is. Its rows are shuffled by the shard that a document begins in;
each shard is then read once, and what it holds of each group becomes a file of that group, in the shard's order. So a
group's files, one after another, are its documents in the run's order.

Where stages draw from long documents only, each group is cut into tiers by the length of its documents, a folder each.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobs import ledger
from jobs.formats import llmc
from jobs.mixture.allotment import Sizes, plan
from jobs.mixture.groups import FOLDER
from jobs.pipeline.streams import Stream, streams
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import Named, columns, gather
from jobs.settings.mixture import NULL, OTHER, Mixture, bucket_names
from kernels import packing

if TYPE_CHECKING:
    from jobs.config import Config
    from jobs.runtime.context import Run

NAME = FOLDER
MEMBERS = columns(
    shard="int64",
    group="int64",
    tier="int64",
    offset="int64",
    n_tokens="int64",
)
COUNTS = columns(
    shard="int64",
    group="int64",
    tier="int64",
    documents="int64",
    tokens="int64",
)
KEY = ["shard", "group", "tier"]
FEW = 32  # files of a ledger that threads of this process count sooner than a cluster starts


# ---------------------------------------------------------------- which document is of which group


@dataclass(frozen=True)
class Labels:
    """The groups by a column's values."""

    column: str
    names: tuple[str, ...]
    edges: tuple[float, ...] = ()
    tiers: tuple[int, ...] = (0,)  # least lengths of documents, in order

    @classmethod
    def of(cls, settings: Mixture, config: "Config") -> "Labels":
        """Every source; or every value that is named, and the others together; or what the edges make."""
        named = settings.named_groups.union(settings.groups)
        if settings.by == "source":
            named |= {source.name for source in config.sources}
        names = bucket_names(settings.edges) if settings.edges else [*sorted(named - {OTHER}), OTHER]
        return cls(settings.by, tuple(names), settings.edges, settings.tiers)

    def groups(self, values: pa.ChunkedArray) -> NDArray[np.int64]:
        """Number of the group of each document, int64[d]."""
        if self.edges:
            numbers = pc.cast(values, pa.float64(), safe=False).to_numpy()
            return np.where(
                np.isnan(numbers), len(self.edges) + 1, np.searchsorted(self.edges, numbers, side="right")
            )
        text = pc.fill_null(pc.cast(values, pa.string()), NULL)
        found = pc.index_in(text, value_set=pa.array(self.names[:-1], pa.string()))
        return pc.fill_null(found, len(self.names) - 1).to_numpy().astype(np.int64)


def members(path: Path, labels: Labels) -> pd.DataFrame:
    """The training documents of one file of the ledger: where each begins, and of which group and tier it is."""
    wanted = list(dict.fromkeys([labels.column, "fate", "shard", "offset", "n_tokens"]))
    table = folders.read_table(path, columns=wanted)
    table = table.filter(pc.equal(table["fate"], ledger.TRAIN))
    n_tokens = table["n_tokens"].to_numpy()
    return pd.DataFrame(
        {
            "shard": table["shard"].to_numpy().astype(np.int64),
            "group": labels.groups(table[labels.column]),
            "tier": np.searchsorted(labels.tiers, n_tokens, side="right") - 1,
            "offset": table["offset"].to_numpy(),
            "n_tokens": n_tokens,
        }
    ).astype(MEMBERS.dtypes)


def count_members(path: Path, labels: Labels) -> pd.DataFrame:
    """Documents and tokens of each group and tier in each shard."""
    by_place = members(path, labels).groupby(KEY, as_index=False)
    return by_place.agg(documents=("n_tokens", "size"), tokens=("n_tokens", "sum")).astype(COUNTS.dtypes)


# ---------------------------------------------------------------- their shards


def write_groups(
    rows: pd.DataFrame, stream: Stream, files: dict[tuple[int, int, int], str], folder: Path, fingerprint: str
) -> pd.DataFrame:
    """Write what the shards of this partition hold of each group; return what was written.

    Memory: the tokens of a shard and of the document that crosses its end, and those of one group in it.
    """
    written = []
    for number, held in rows.groupby("shard", sort=True):
        held = held.sort_values(["group", "tier", "offset"], kind="stable")
        shard = stream.shards[int(number)]
        end = int((held["offset"] + held["n_tokens"]).max())
        tokens = stream.tokens(shard.start, shard.start + end)
        paths = []
        for key, documents in held.groupby(KEY, sort=True):
            path = folder / files[key]
            n_tokens = write_documents(path, tokens, documents)
            paths.append(path)
            written.append((*key, len(documents), n_tokens))
        checkpoint.commit_task(folder, fingerprint, f"shard-{number:06d}", paths, {})
    return pd.DataFrame(written, columns=COUNTS.columns).astype(COUNTS.dtypes)


def write_documents(path: Path, tokens: NDArray[Any], documents: pd.DataFrame) -> int:
    """Write the documents of one group, out of a shard's tokens, as a shard of its own."""
    lengths = documents["n_tokens"].to_numpy(np.int64)
    gathered = np.empty(int(lengths.sum()), tokens.dtype)
    starts = documents["offset"].to_numpy(np.int64)
    packing.gather(tokens, starts, lengths, gathered, np.cumsum(lengths) - lengths)
    with checkpoint.written(path) as file:
        llmc.write_shard(file, gathered)
    return len(gathered)


def file_names(counts: pd.DataFrame, labels: Labels, name: str) -> dict[tuple[int, int, int], str]:
    """The file of each shard's part of a group and tier, numbered without a gap."""
    found = {}
    for (group, tier), parts in counts.groupby(["group", "tier"], sort=True):
        place = f"{quote(labels.names[group], safe='')}/{labels.tiers[tier]:09d}"
        for index, number in enumerate(sorted(parts["shard"])):
            found[int(number), int(group), int(tier)] = f"{place}/{llmc.shard_name(name, 'train', index)}"
    return found


# ---------------------------------------------------------------- the job


def job_fingerprint(run: "Run") -> str:
    """Covers the groups and the shards, and not the weights."""
    settings = run.config.mixture
    return fingerprint.fingerprint(
        __name__,
        labels=settings and vars(Labels.of(settings, run.config)),
        upstream=[run.fingerprints[name] for name in ("shards", "ledger")] if settings else None,
    )


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Count the groups, refuse a mixture that cannot be met, and write their shards."""
    import dask.dataframe as dd

    job.begin()
    settings = run.config.mixture
    if settings is None:
        return {}
    labels, paths = Labels.of(settings, run.config), ledger.files(run.out)
    counts = counted(run, labels)
    sizes = sizes_of(counts, labels)
    plan(settings, sizes)  # what cannot be met is said before anything is written
    stream = streams(run)[ledger.TRAIN]
    files = file_names(counts, labels, run.config.shards.name)
    rows = dd.from_map(members, paths, labels=labels, meta=MEMBERS, label="read groups")
    parts = counts["shard"].nunique()
    graph = rows.shuffle("shard", npartitions=parts).map_partitions(
        Named("write groups", write_groups),
        stream=stream,
        files=files,
        folder=job.folder,
        fingerprint=job.fingerprint,
        meta=COUNTS,
    )
    with run.console.job(NAME, parts, "shards") as meter:
        written = gather(run.client, graph, meter, counted=())
    if not written.sort_values(KEY, ignore_index=True).equals(counts.sort_values(KEY, ignore_index=True)):
        raise RuntimeError(
            f"{counts['tokens'].sum():,} tokens are of groups, {written['tokens'].sum():,} were written"
        )
    return {
        "by": settings.by,
        "edges": list(settings.edges),
        "tiers": list(settings.tiers),
        "dtype": stream.dtype,
        "end_of_text": stream.end_of_text,
        "groups": {
            name: [_tier(counts, files, labels, group, tier) for tier in range(len(labels.tiers))]
            for group, name in enumerate(labels.names)
            if name in sizes
        },
    }


def counted(run: "Run", labels: Labels) -> pd.DataFrame:
    """Documents and tokens of each group and tier in each shard, of the whole ledger."""
    import dask.dataframe as dd

    paths = ledger.files(run.out)
    graph = dd.from_map(count_members, paths, labels=labels, meta=COUNTS, label="count groups")
    if len(paths) <= FEW and run.scheduler is None:
        found = graph.compute(scheduler="threads")
    else:
        with run.console.job(NAME, len(paths), "files counted") as meter:
            found = gather(run.client, graph, meter, counted=())
    return found.groupby(KEY, as_index=False).sum()


def sizes_of(counts: pd.DataFrame, labels: Labels) -> Sizes:
    """Tokens of each group that has any, by tier."""
    totals = counts.groupby(["group", "tier"])["tokens"].sum()
    return {
        name: {least: int(totals.get((group, tier), 0)) for tier, least in enumerate(labels.tiers)}
        for group, name in enumerate(labels.names)
        if group in totals.index.get_level_values("group")
    }


def _tier(
    counts: pd.DataFrame, files: dict[tuple[int, int, int], str], labels: Labels, group: int, tier: int
) -> dict[str, Any]:
    held = counts[(counts["group"] == group) & (counts["tier"] == tier)].sort_values("shard")
    return {
        "min_document_tokens": labels.tiers[tier],
        "documents": int(held["documents"].sum()),
        "tokens": int(held["tokens"].sum()),
        "files": [
            [files[int(shard), group, tier], int(tokens)]
            for shard, tokens in zip(held["shard"], held["tokens"], strict=True)
        ],
    }
