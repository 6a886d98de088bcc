"""Which document is kept of several that are duplicates of each other: the smallest (rank, doc_id).

A rank follows from a document's own row, and the first row's number in the ledger, so the choice is the same in any
partitioning, and the best of each partition is enough to find the best of all.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger
from jobs.errors import UserError
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import folders
from jobs.runtime.compute import columns, gather
from kernels import permutation

if TYPE_CHECKING:
    from jobs.config import Config
    from jobs.runtime.context import Run
    from jobs.settings.duplicates import Keep

LAST = np.uint64(2**64 - 1)
SIGN = np.uint64(2**63)
# Whose a document is: the number of an earlier run (`duplicates.against`) or this. A smaller one is preferred.
THIS_RUN, NOBODY = 2**15 - 1, 2**15


@dataclass(frozen=True)
class Policy:
    """What decides, as tasks are told of it.

    Attributes
    ----------
    settings
        The section `keep`.
    crawls
        Names of all crawls in order, for the policies that go by them.
    """

    settings: "Keep"
    crawls: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Of the rows of a split, or of the ledger, that `ranks` and `protected` read."""
        by = {"longest": "n_bytes", "score": self.settings.column, "earliest": "crawl", "latest": "crawl"}
        return sorted({"doc_id", "source", by.get(self.settings.policy, "source")})

    @property
    def needs_rows(self) -> bool:
        """Whether the doc_id alone does not decide."""
        return self.settings.policy != "random" or bool(self.settings.drop_only_from)

    def ranks(self, table: pa.Table, first_row: int) -> np.ndarray:
        """uint64[d], smaller is better; `first_row` is the place of the table's first row in the ledger."""
        match self.settings.policy:
            case "random":
                return self.random_ranks(table["doc_id"].to_numpy())
            case "first":
                return np.arange(first_row, first_row + len(table), dtype=np.uint64)
            case "source":
                return _places(table["source"], self.settings.sources)
            case "earliest":
                return _places(table["crawl"], self.crawls)
            case "latest":
                return _places(table["crawl"], self.crawls[::-1])
            case "longest":
                return descending(table["n_bytes"])
        return descending(table[self.settings.column])

    def random_ranks(self, doc_ids: np.ndarray) -> np.ndarray:
        """uint64[d] of the policy `random`."""
        return permutation.keyed_hash(doc_ids, permutation.key("keep", self.settings.seed))

    def protected(self, table: pa.Table) -> np.ndarray:
        """bool[d]: of a source that nothing is dropped from."""
        if not self.settings.drop_only_from:
            return np.zeros(len(table), bool)
        return ~np.asarray(pc.is_in(table["source"], pa.array(self.settings.drop_only_from, pa.string())))


def descending(values: pa.ChunkedArray) -> np.ndarray:
    """uint64[d] that sort as the numbers do from the highest on; NaN and null come last.

    Source: Terdiman, Radix Sort Revisited (2000): the bits of a float, all flipped where it is negative and else only
    the sign, sort as the float does.
    """
    absent = np.asarray(pc.is_null(values, nan_is_null=True))
    known = values.fill_null(0)
    if pa.types.is_integer(values.type):
        ascending = known.to_numpy().astype(np.int64).view(np.uint64) ^ SIGN
    else:
        bits = (known.to_numpy().astype(np.float64) + 0.0).view(np.uint64)  # -0.0 is 0.0
        ascending = np.where(bits >= SIGN, ~bits, bits | SIGN)
    return np.where(absent, LAST, ~ascending)


def _places(values: pa.ChunkedArray, names: tuple[str, ...]) -> np.ndarray:
    places = pc.index_in(values.cast(pa.string()), pa.array(names, pa.string()))
    return places.fill_null(len(names)).to_numpy().astype(np.uint64)


def best(
    groups: np.ndarray,
    protected: np.ndarray,
    ranks: np.ndarray,
    doc_ids: np.ndarray,
    runs: np.ndarray | None = None,
) -> np.ndarray:
    """uint64[d] the document that is kept in each one's group; a protected one is preferred to all others of its run.

    Parameters
    ----------
    groups : [d]
        What members of a group have in common.
    protected : bool[d]
        Never dropped.
    ranks, doc_ids : uint64[d]
        The smallest pair is kept.
    runs : int[d], optional
        Whose each document is; one of the smallest number is kept.
    """
    order = np.lexsort((doc_ids, ranks, ~protected, *(() if runs is None else (runs,)), groups))
    ordered = groups[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)])
    return doc_ids[order][first][np.searchsorted(ordered[first], groups)]


# ---------------------------------------------------------------- the policy of a run


def check(config: "Config") -> None:
    """Refuse names of sources and of a column that the run does not have.

    Raises
    ------
    UserError
        One sentence that names the key.
    """
    names = {source.name for source in config.sources}
    for key in ("sources", "drop_only_from"):
        unknown = sorted(set(getattr(config.keep, key)) - names)
        if unknown:
            raise UserError(f"keep.{key} names {unknown[0]!r}, which is no source; there are {sorted(names)}")
    if config.keep.policy != "score":
        return
    schema = ledger.schema(ledger.extra_columns(config.sources))
    numbers = [field.name for field in schema if pa.types.is_floating(field.type) or field.type == pa.int64()]
    if config.keep.column not in numbers or config.keep.column in ("shard", "offset"):
        raise UserError(
            f"keep.column is {config.keep.column!r}, which is no column of numbers; "
            "use score, or one that a source names in extra"
        )


def policy(run: "Run") -> Policy:
    """The policy of a run, the names of its crawls gathered where they decide."""
    import dask.dataframe as dd

    settings = run.config.keep
    if settings.policy not in ("earliest", "latest") or not run.annotated:
        return Policy(settings)
    graph = dd.from_map(crawls_of_split, run.annotated, meta=columns(crawl="string"), label="list crawls")
    with run.console.job("crawls", len(run.annotated), "splits") as meter:
        found = gather(run.client, graph, meter)
    return Policy(settings, tuple(sorted(set(found["crawl"]))))


def crawls_of_split(paths: SplitPaths) -> pd.DataFrame:
    """Names of the crawls of a split."""
    names = pc.unique(folders.read_table(paths.rows, columns=["crawl"])["crawl"]).drop_null()
    return pd.DataFrame({"crawl": names.to_pylist()}, dtype="string")


def first_rows(run: "Run") -> list[int]:
    """Place of each split's first row in the ledger."""
    counts = run.figures("annotate")["documents_of_splits"]
    return [int(n) for n in np.cumsum(counts) - counts]
