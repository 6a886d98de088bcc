"""What a step dropped: documents, sorted, the one kept in place of each, and whose document that is."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from jobs.runtime import checkpoint, folders

DROPPED, REPEATED = "dropped.arrow", "repeated.npy"
SCHEMA = pa.schema(
    [
        ("doc_id", pa.uint64()),
        ("kept_by", pa.uint64()),
        ("kept_in", pa.int16()),  # number of an earlier run, or `keep.THIS_RUN`
    ]
)


class Dropped:
    """The list of one step, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        table = pa.ipc.open_file(pa.memory_map(str(folders.local_copy(folder / DROPPED)))).read_all()
        self.doc_id, self.kept_by, self.kept_in = (
            column.to_numpy() for column in table.combine_chunks().itercolumns()
        )

    def find(self, doc_ids: np.ndarray) -> np.ndarray:
        """int64[d] place of each document, -1 where the step did not drop it."""
        return find(self.doc_id, doc_ids)


def find(ordered: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """int64[d] place of each value among sorted ones, -1 where it is not among them."""
    if not len(ordered):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[place] == wanted, place, -1)


def taking_part(table: pa.Table, out: Path, earlier: tuple[str, ...]) -> np.ndarray:
    """bool[d]: documents that neither the annotate pass nor a job before dropped; of columns doc_id and fate."""
    alive = np.asarray(table["fate"].is_null()).copy()
    for job in earlier:
        alive &= Dropped(out / job).find(table["doc_id"].to_numpy()) < 0
    return alive


def write(
    folder: Path, doc_ids: np.ndarray, kept_by: np.ndarray, kept_in: np.ndarray, repeated: np.ndarray
) -> None:
    """Write a step's list, sorted by doc_id, and the documents it kept although another has the same text."""
    order = np.argsort(doc_ids)
    table = pa.table([doc_ids[order], kept_by[order], kept_in[order].astype(np.int16)], schema=SCHEMA)
    with checkpoint.written(folder / DROPPED) as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(table)
    with checkpoint.written(folder / REPEATED) as file:
        checkpoint.save_array(file, np.unique(repeated))
