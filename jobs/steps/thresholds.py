"""Thresholds on numbers that came with the documents, such as FineWeb-Edu's `score`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger

if TYPE_CHECKING:
    from jobs.config import Threshold

STEP = "column"
FLOAT64 = pa.float64()


def fates(columns: Mapping[str, pa.Array], d: int, threshold: "Threshold") -> pa.StringArray:
    """`column.NAME` for a number below the least or above the most; `column.NAME.missing` where there is none.

    A document whose number is null, NaN or no number at all is dropped: nothing shows that it is within the bounds.

    Parameters
    ----------
    columns
        What came with the documents, by the ledger's names: arrays of d values of any type.
    d
        How many documents there are.
    threshold
        The column and its bounds, which are themselves kept.

    Returns
    -------
    StringArray
        string[d], null for a document that goes on.
    """
    name = threshold.column
    values = ledger.as_type(columns[name], FLOAT64) if name in columns else pa.nulls(d, FLOAT64)
    missing = pc.or_kleene(pc.is_null(values), pc.is_nan(pc.fill_null(values, 0.0)))
    outside = outside_bounds(values, threshold.min, threshold.max)
    none = pa.scalar(None, pa.string())
    return pc.if_else(missing, f"{STEP}.{name}.missing", pc.if_else(outside, f"{STEP}.{name}", none))


def outside_bounds(values: pa.DoubleArray, least: float | None, most: float | None) -> pa.BooleanArray:
    """bool[d] of float64[d]: below the least or above the most, where there are such bounds; false for null."""
    low = pc.less(values, -float("inf") if least is None else least)
    high = pc.greater(values, float("inf") if most is None else most)
    return pc.fill_null(pc.or_(low, high), False)
