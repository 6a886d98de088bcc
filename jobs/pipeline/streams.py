"""The stream of tokens of each split as a finished run has it, and the documents in it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobs import ledger
from jobs.formats import llmc
from jobs.pipeline import shards
from jobs.pipeline.order import Ranges
from jobs.pipeline.shards import LLMC_SPLITS, Shard
from jobs.pipeline.validation import ranges
from kernels import permutation

if TYPE_CHECKING:
    from jobs.runtime.context import Run


@dataclass(frozen=True)
class Stream:
    """The tokens of one split in their order, as a finished run has them."""

    split: str
    shards: tuple[Shard, ...]
    order: Ranges
    order_key: int
    dtype: str
    end_of_text: int
    name: str
    tokenizer: str

    @property
    def n_tokens(self) -> int:
        """Of the whole split."""
        return self.shards[-1].stop

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        """Tokens from `start` to `stop`, copied out of the shards that hold them."""
        parts = [
            llmc.open_shard(one.path)[max(start - one.start, 0) : stop - one.start]
            for one in self.shards
            if one.start < stop and one.stop > start
        ]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def documents(self, start: int, stop: int) -> pd.DataFrame:
        """The documents that lie in tokens `start` to `stop`, wholly or partly: doc_id, position and n_tokens."""
        found = []
        for index in self.order.overlapping(self.split, start, stop):
            ordered = self.order.read(index)
            of_split = ordered["kept"] & (ordered["is_validation"] == (self.split == ledger.VALIDATION))
            inside = (ordered["position"] < stop) & (ordered["position"] + ordered["n_tokens"] > start)
            found.append(ordered.loc[of_split & inside, ["order_key", "position", "n_tokens"]])
        documents = pd.concat(found)
        keys = documents.pop("order_key").to_numpy(np.uint64)
        documents["doc_id"] = permutation.keyed_hash_inverse(keys, self.order_key)
        return documents


def streams(run: "Run") -> dict[str, Stream]:
    """The streams of a run whose shards are there; a split without tokens has none."""
    figures, order = run.figures("shards"), ranges(run)
    planned = shards.plan(run, run.out / "shards")
    return {
        split: Stream(
            split,
            tuple(shard for shard in planned if shard.split == split),
            order,
            permutation.key("order", run.config.order.seed),
            figures["dtype"],
            figures["end_of_text"],
            run.config.shards.name,
            run.figures("tokenizer")["file"],
        )
        for split in LLMC_SPLITS
        if any(shard.split == split for shard in planned)
    }


def windows(stream: Stream, shard: Shard, length: int) -> tuple[int, int]:
    """Where the whole rows of the stream that begin in a shard begin and end."""
    start, stop = (-(-place // length) * length for place in (shard.start, shard.stop))
    last = stream.n_tokens // length * length
    return min(start, last), min(stop, last)
