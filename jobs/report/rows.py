"""Rows of one length by each policy over the same documents: what is wasted, what is cut and what is mixed.

From lengths alone, a task for each shard, as `jobs.pipeline.exports` makes rows: packing does not cross shards.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jobs import ledger
from jobs.pipeline.shards import Shard
from jobs.pipeline.streams import Stream, streams, windows
from jobs.runtime.compute import columns, gather
from kernels import rows

if TYPE_CHECKING:
    from jobs.runtime.context import Run

COUNTS = columns(
    policy="string",
    documents="int64",  # that begin in the shard
    fitting_documents="int64",  # no longer than a row
    document_tokens="int64",
    **dict.fromkeys(rows.RowCounts._fields, "int64"),
)


def count_rows(shard: Shard, stream: Stream, length: int) -> pd.DataFrame:
    """Counts of a shard's rows by each policy."""
    start, stop = windows(stream, shard, length)
    documents = stream.documents(min(start, shard.start), max(stop, shard.stop))
    position = documents["position"].to_numpy(np.int64)
    lengths = documents["n_tokens"].to_numpy(np.int64)
    begins = lengths[(position >= shard.start) & (position < shard.stop)]
    n_windows = (stop - start) // length
    by_policy = {
        "stream": (rows.stream(position - start, lengths, length, n_windows), lengths, n_windows),
        "padding": (rows.padded(begins, length), begins, None),
        "best_fit": (rows.best_fit(begins, length), begins, None),
    }
    whole = {
        "policy": "",
        "documents": len(begins),
        "fitting_documents": int((begins <= length).sum()),
        "document_tokens": int(begins.sum()),
    }
    counted = []
    for policy, (pieces, of, n) in by_policy.items():
        if n is None:
            n = int(pieces.row.max()) + 1 if len(pieces.row) else 0
        counted.append({**whole, "policy": policy, **rows.count(pieces, of, n)._asdict()})
    return pd.DataFrame(counted, columns=COUNTS.columns).astype(COUNTS.dtypes)


def policies(run: "Run", length: int) -> dict[str, Any]:
    """The figures of the training split for rows of `length` tokens."""
    import dask.dataframe as dd

    stream = streams(run).get(ledger.TRAIN)
    if stream is None:  # validation took all
        return {"length": length, "policies": {}}
    graph = dd.from_map(
        count_rows, stream.shards, stream=stream, length=length, meta=COUNTS, label="pack rows"
    )
    with run.console.job("rows", len(stream.shards), "shards") as meter:
        counted = gather(run.client, graph, meter, counted=())
    totals = counted.groupby("policy", sort=False).sum()
    return {
        "length": length,
        "policies": {str(policy): figures(row, length) for policy, row in totals.iterrows()},
    }


def figures(counts: pd.Series, length: int) -> dict[str, Any]:
    """Waste, truncation and mixing of one policy."""
    n, tokens = int(counts["rows"]), int(counts["tokens"])
    cut = int(counts["documents"] - counts["whole_documents"])
    return {
        "rows": n,
        "share_of_positions_filled_up": _share(n * length - tokens, n * length),
        "tokens_left_out": int(counts["document_tokens"]) - tokens,  # too few for a last row
        "documents_cut": cut,
        "share_of_documents_cut": _share(cut, int(counts["documents"])),
        "documents_cut_that_fit": int(counts["fitting_documents"] - counts["whole_documents"]),
        "documents_per_row": _share(int(counts["pieces"]), n),
        "share_of_rows_with_several_documents": _share(int(counts["rows_with_several"]), n),
        "share_of_tokens_after_boundary": _share(int(counts["tokens_after_boundary"]), tokens),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
