"""The ledger: one row per input document, its fate and its place.

A Parquet dataset in `OUT/ledger`, rows in the order of source, path and record, files of a fixed number of
rows, so that its bytes do not depend on how the work was split.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobs.runtime import folders
from jobs.settings import personal_data
from kernels import permutation
from kernels.quality import STATISTICS, WHOLE
from kernels.xxh3 import xxh3_64

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd

    from jobs.config import Source

ROWS_PER_FILE = 250_000

IDENTITY = [
    ("doc_id", pa.uint64()),
    ("source", pa.string()),
    ("path", pa.string()),
    ("record", pa.int64()),
]
CARRIED = [
    ("id", pa.string()),
    ("url", pa.string()),
    ("crawl", pa.string()),
    ("score", pa.float64()),
    ("language", pa.string()),  # identified here, or as the input has it
    ("language_score", pa.float32()),
]
MEASURED = [
    ("n_source_bytes", pa.int64()),  # of the page or the text as the source has it
    ("n_bytes", pa.int64()),  # of the text, also where a step dropped it
    ("n_words", pa.int64()),
    ("n_tokens", pa.int64()),  # of the text as used, with its end-of-text token
    ("text_hash", pa.binary(16)),  # XXH3-128
    ("token_hash", pa.uint64()),  # XXH3-64 of the ids as the shards hold them
]
QUALITY = [  # of the text that the rules judge, null where they did not
    (f"{group}_{name}", pa.int64() if name in WHOLE else pa.float64())
    for group, names in STATISTICS.items()
    for name in names
]
BAD_WORDS = [  # null where the document's language has no list
    ("bad_words_matches", pa.int64()),
    ("bad_words_matches_per_word", pa.float64()),
]
REMOVED = [  # of a text, since they repeat elsewhere; null where the document did not get so far
    ("removed_passages", pa.int64()),  # lines, paragraphs or sentences
    ("removed_bytes", pa.int64()),
]
PERSONAL_DATA = [  # how often each kind was found, null where nothing was looked for
    (f"personal_data_{kind}", pa.int32()) for kind in (*personal_data.KINDS, personal_data.PRESIDIO)
]
NORMALISED_HASH = "normalised_hash"  # XXH3-128 of the text as exact_duplicates.normalise has it
KEPT_IN = "kept_in"  # with `against`: the output whose document kept_by is, null where it is one of these
DECIDED = [
    ("fate", pa.dictionary(pa.int32(), pa.string())),
    ("cluster", pa.uint64()),
    ("kept_by", pa.uint64()),
    ("shard", pa.int32()),
    ("offset", pa.int64()),
]

# Types of the columns that sources may add.
EXTRA_TYPES = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}

TRAIN, VALIDATION = "train", "validation"
URL_DUPLICATE, EXACT_DUPLICATE = "url_duplicate", "exact_duplicate"
NEAR_DUPLICATE = "near_duplicate"
DUPLICATES = (URL_DUPLICATE, EXACT_DUPLICATE, NEAR_DUPLICATE)  # in the order of the steps
MIN_TOKENS = "length.min_tokens"
SAMPLED_OUT = "input.weight"
NULL_TEXT, EMPTY_TEXT, INVALID_UTF8, UNREADABLE = (
    f"input.{reason}" for reason in ("null_text", "empty_text", "invalid_utf8", "unreadable")
)

# The steps of a run in order; a fate begins with the name of its step.
STEPS = (
    *("input", "column", "urls", "extraction", "language", "quality", "classifier"),
    *("repeated_passages", "contaminated", "personal_data"),
    *(*DUPLICATES, "length"),
)


def schema(extra: Sequence[tuple[str, pa.DataType]] = ()) -> pa.Schema:
    """The ledger's columns; those that sources add stand behind the others that came with the documents."""
    return pa.schema([*IDENTITY, *CARRIED, *extra, *MEASURED, *DECIDED])


SCHEMA = schema()


def extra_columns(sources: Iterable["Source"]) -> list[tuple[str, pa.DataType]]:
    """What sources add: columns by name, statistics of the quality rules, scores by name, counts of personal data."""
    sources = list(sources)
    kinds = {name: EXTRA_TYPES[kind] for source in sources for name, kind in source.extra.items()}
    measured = QUALITY if any(source.quality.enabled for source in sources) else []
    scores = {
        column: EXTRA_TYPES[kind]
        for source in sources
        for one in source.classifiers
        for column, kind in one.columns.items()
    }
    listed = BAD_WORDS if any(source.quality.bad_words.files for source in sources) else []
    removed = REMOVED if any(source.repeated_passages.enabled for source in sources) else []
    looked_for = {f"personal_data_{kind}" for source in sources for kind in source.personal_data.kinds}
    counted = [(name, kind) for name, kind in PERSONAL_DATA if name in looked_for]
    return [*sorted(kinds.items()), *measured, *listed, *sorted(scores.items()), *removed, *counted]


def as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of another type, null where one cannot be had: a source's files may differ."""
    try:
        return _cast(values, kind)
    except pa.ArrowInvalid:
        return pa.array([_value(value.as_py(), kind) for value in values], kind)


def _value(value: object, kind: pa.DataType) -> Any:
    try:
        return _cast(pa.scalar(value), kind).as_py()
    except pa.ArrowInvalid:
        return None


def _cast(values: Any, kind: pa.DataType) -> Any:
    """3.7 is no integer, but a number may lose digits as a float."""
    return pc.cast(values, kind, safe=pa.types.is_integer(kind))


def doc_ids(source: str, path: str, records: NDArray[np.int64]) -> NDArray[np.uint64]:
    """uint64[d] identity of documents: a hash of source, path and record index, however the work is split."""
    return permutation.doc_ids(xxh3_64(f"{source}\0{path}".encode()), records)


def file_name(number: int) -> str:
    """Name of the ledger's file number `number`."""
    return f"part-{number:06d}.parquet"


def files(out: str | Path) -> list[Path]:
    """The ledger's files, in order."""
    return sorted((folders.located(out) / "ledger").glob("part-*.parquet"))


def read(out: str | Path, columns: list[str] | None = None) -> "dd.DataFrame":
    """The ledger of a finished run as a Dask dataframe, a file a partition.

    Parameters
    ----------
    out
        The run's output folder, or its URL.
    columns
        Which columns to read; all by default. A column of its own is all that is read of a file.

    Returns
    -------
    dask.dataframe.DataFrame
        In the order of source, path and record, with Arrow's types, so that what is missing is null and integers stay
        integers. `docs/ledger.md` says what each column holds.

    Raises
    ------
    UserError
        The output holds no ledger, or it has no such column.
    """
    import dask.dataframe as dd
    import pyarrow.parquet as pq

    from jobs.errors import UserError

    paths = files(out)
    if not paths:
        raise UserError(f"{out} holds no ledger; run `python -m jobs.run --output {out}` to its end first")
    with folders.opened(paths[0]) as first:
        schema = pq.read_schema(first)
    wanted = columns or schema.names
    if unknown := [name for name in wanted if name not in schema.names]:
        raise UserError(f"the ledger of {out} has no column {unknown[0]!r}; it has {', '.join(schema.names)}")
    meta = frame(schema.empty_table().select(wanted))
    return dd.from_map(_read_file, paths, columns=wanted, meta=meta, label="read the ledger")


def _read_file(path: Path, columns: list[str]) -> "pd.DataFrame":
    return frame(folders.read_table(path, columns=columns))


def frame(table: pa.Table) -> "pd.DataFrame":
    """Pandas keeps Arrow's types here: a nullable uint64 must not turn into a float."""
    import pandas as pd

    return table.to_pandas(types_mapper=pd.ArrowDtype)
