"""What `jobs.verify` proves of a run that was made against earlier ones, from the files of all of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger
from jobs.config import Config
from jobs.errors import UserError
from jobs.pipeline.duplicates import against, scope
from jobs.pipeline.duplicates.against import Earlier
from jobs.pipeline.duplicates.dropped import find
from jobs.pipeline.duplicates.equal import Hashing
from jobs.pipeline.duplicates.keep import THIS_RUN, Policy
from jobs.runtime import folders

DECIDED = ("doc_id", "source", "fate", "kept_by", ledger.KEPT_IN)  # columns that `wrong_firsts` reads
KEPT = (ledger.TRAIN, ledger.VALIDATION, ledger.MIN_TOKENS)  # fates of what all steps on duplicates kept


def earlier_runs(settings: Config, recorded: dict[str, str]) -> tuple[Earlier, ...]:
    """The runs that one was made against, as they were then.

    Raises
    ------
    UserError
        One is gone, or is not what it was.
    """
    found = tuple(map(against.read, settings.against))
    for one in found:
        if recorded.get(one.name) != one.identity:
            raise UserError(
                f"{one.name} is not what it was when this run was made against it; run this one again"
            )
    return found


def numbers(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """int64[d] of the ledger's `kept_in`: the number of the run, or `keep.THIS_RUN`."""
    if not names:
        return np.full(len(table), THIS_RUN)
    found = pc.index_in(table[ledger.KEPT_IN].cast(pa.string()), pa.array(names, pa.string()))
    return np.asarray(found.fill_null(THIS_RUN).to_numpy(), np.int64)


def survivors(
    earlier: Sequence[Earlier], hashing: Hashing, within: str, fate: str, high: np.ndarray
) -> pd.DataFrame:
    """Documents that a step on equal hashes kept in earlier runs, with a hash whose upper half is among some.

    Columns high, low, scope, doc_id, rank (place in the ledger), run and protected, of none.
    """
    kept = (*KEPT, *ledger.DUPLICATES[ledger.DUPLICATES.index(fate) + 1 :])
    wanted = sorted({"doc_id", "fate", *hashing.columns, *scope.columns(within)})
    frames = []
    for run, one in enumerate(earlier):
        row = 0
        for path in ledger.files(one.out):
            table = folders.read_table(path, columns=wanted)
            upper, lower, hashed = hashing.hashes(table)
            fates = table["fate"].cast(pa.string()).to_pandas()
            columns = {
                "high": upper,
                "low": lower,
                "scope": scope.labels(table, within),
                "doc_id": table["doc_id"].to_numpy(),
                "rank": np.arange(row, row + len(table), dtype=np.uint64),
                "run": run,
                "protected": False,
            }
            frames.append(pd.DataFrame(columns)[hashed & fates.isin(kept).to_numpy() & np.isin(upper, high)])
            row += len(table)
    return pd.concat(frames, ignore_index=True)


def kept_instead(rows: pd.DataFrame) -> pd.DataFrame:
    """Of a run's near-duplicates: the documents of earlier runs that were kept for them, by their cluster."""
    chosen = rows[(rows["fate"] == ledger.NEAR_DUPLICATE) & (rows["kept_in"] < THIS_RUN)]
    entries = chosen[["cluster", "kept_by", "kept_in"]].drop_duplicates()
    return pd.DataFrame(
        {
            "group": entries["cluster"],
            "doc_id": entries["kept_by"],
            "run": entries["kept_in"],
            "rank": np.zeros(len(entries), np.uint64),
            "protected": False,
        }
    )


def wrong_counts(table: pa.Table, figures: dict[str, Any], names: Sequence[str]) -> Iterator[str]:
    """The ledger counts as many documents dropped for each run's sake as the jobs say."""
    fates, runs = table["fate"].cast(pa.string()).to_pandas(), numbers(table, names)
    jobs = dict(zip(ledger.DUPLICATES, against.INDEX[1:], strict=True))
    for fate, job in jobs.items():
        counted = against.counted(runs[(fates == fate).to_numpy()], names)
        if counted != figures[job]["dropped_against"]:
            yield f"{fate}: the ledger counts {counted} against earlier runs, {job} {figures[job]['dropped_against']}"


def wrong_firsts(
    stars: np.ndarray, table: pa.Table, settings: Config, earlier: Sequence[Earlier]
) -> Iterator[str]:
    """Near-duplicates of what earlier runs kept are dropped for the first such document of their cluster.

    With `verify: exact`, links depend on texts as well; then for one that candidates link them to.

    Parameters
    ----------
    stars : uint64[n, 2]
        The forest of all runs' documents, sorted by node.
    table
        The ledger's columns `DECIDED`.
    settings, earlier
        Of the run.
    """
    is_near = np.asarray(pc.equal(table["fate"].cast(pa.string()), ledger.NEAR_DUPLICATE))
    doc_ids, kept_by = (table[name].fill_null(0).to_numpy() for name in ("doc_id", "kept_by"))
    kept_in, root = numbers(table, settings.against), _roots(stars, doc_ids)
    kept = [_kept(one) for one in earlier]
    kept_ids, kept_run = np.concatenate(kept), np.repeat(np.arange(len(kept)), [len(one) for one in kept])
    kept_root = _roots(stars, kept_ids)
    others = is_near & (kept_in < THIS_RUN)  # dropped for a document of an earlier run
    if not len(kept_ids):
        wrong = others
    elif settings.near_duplicates.verify == "exact":
        order = np.argsort(kept_ids)
        place = order[find(kept_ids[order], kept_by)]
        linked = (kept_ids[place] == kept_by) & (kept_run[place] == kept_in) & (kept_root[place] == root)
        wrong = others & ~linked
    else:
        roots, first = np.unique(kept_root, return_index=True)
        place = find(roots, root)
        as_said = is_near & (kept_by == kept_ids[first][place]) & (kept_in == kept_run[first][place])
        due = (place >= 0) & ~Policy(settings.keep).protected(table) & (find(stars[:, 0], doc_ids) >= 0)
        wrong = np.where(due, ~as_said, others)
    if wrong.any():
        yield (
            f"near_duplicate: {wrong.sum():,} documents are kept or dropped otherwise than what earlier runs kept of "
            f"their clusters says, doc_id {doc_ids[wrong][0]} first"
        )


def _roots(stars: np.ndarray, doc_ids: np.ndarray) -> np.ndarray:
    """uint64[d]: each document's component, its own name where it is alone."""
    place = find(stars[:, 0], doc_ids)
    return np.where(place >= 0, stars[place, 1], doc_ids) if len(stars) else doc_ids


def _kept(earlier: Earlier) -> np.ndarray:
    """uint64[n]: what a run kept, in the order of its ledger."""
    found = [np.empty(0, np.uint64)]
    for path in ledger.files(earlier.out):
        table = folders.read_table(path, columns=["doc_id", "fate"])
        kept = np.asarray(pc.is_in(table["fate"].cast(pa.string()), pa.array(KEPT)))
        found.append(table["doc_id"].to_numpy()[kept])
    return np.concatenate(found)
