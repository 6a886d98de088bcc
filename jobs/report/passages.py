"""What was taken out of texts since it occurs elsewhere."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from jobs import ledger
from jobs.runtime.compute import columns
from jobs.steps.repeated_passages import FLOOR

if TYPE_CHECKING:
    from jobs.runtime.context import Run

COLUMNS = ["source", "fate", "removed_passages", "removed_bytes"]
TOTALS = columns(
    source="string",
    documents="int64",  # that lost something and went on
    removed_passages="int64",
    removed_bytes="int64",
    below_floor="int64",
)


def totals(frame: pd.DataFrame) -> pd.DataFrame:
    """What the documents of a ledger file lost, by source; one below the floor counts as dropped only."""
    below = (frame["fate"].astype("string") == FLOOR).to_numpy(bool)
    lost = {name: frame[name].fillna(0).to_numpy("int64") * ~below for name in COLUMNS[2:]}
    counted = pd.DataFrame(
        {
            "source": frame["source"].astype("string"),
            "documents": (lost["removed_passages"] > 0).astype("int64"),
            **lost,
            "below_floor": below.astype("int64"),
        }
    )
    return counted.groupby("source", sort=True).sum().reset_index().astype(TOTALS.dtypes)


def removed(run: "Run") -> dict[str, Any] | None:
    """How many passages repeat in the corpus, and what each source lost; None where none were looked for."""
    using = [source.name for source in run.sources if source.repeated_passages.enabled]
    if not using:
        return None
    found = ledger.read(run.out, COLUMNS).map_partitions(totals, meta=TOTALS).compute()
    by_source = found.groupby("source", sort=True).sum()
    return {
        **run.figures("repeated_passages"),
        "sources": [
            {"source": str(source), **{name: int(value) for name, value in row.items()}}
            for source, row in by_source.iterrows()
            if source in using
        ],
    }
