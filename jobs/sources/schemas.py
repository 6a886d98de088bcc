"""Columns of files with a schema, Parquet's and Arrow's: which are there, of a fit type, as readers hand them on."""

from collections.abc import Mapping

import pyarrow as pa

from jobs.sources.inventory import UnfitFileError

NUMBERS = ("score", "language_score")  # of our columns; the others may be any plain value


def present_columns(schema: pa.Schema, columns: Mapping[str, str]) -> tuple[str, ...]:
    """Our names of the mapped columns that a schema has.

    Parameters
    ----------
    schema
        Of the file.
    columns
        Our name -> the file's name; `text` must be there and be text, `NUMBERS` numbers, any other a plain value.

    Raises
    ------
    UnfitFileError
        There is no text column, a mapped name occurs twice, or a type is another than wanted.
    """
    has = ", ".join(schema.names)
    if columns["text"] not in schema.names:
        raise UnfitFileError(f"it has no column {columns['text']!r} for the text; its columns are {has}")
    present = tuple(name for name, theirs in columns.items() if theirs in schema.names)
    for name in present:
        theirs = columns[name]
        if schema.names.count(theirs) > 1:
            raise UnfitFileError(
                f"it has {schema.names.count(theirs)} columns named {theirs!r}; its columns are {has}"
            )
        _check_type(name, theirs, schema.field(theirs).type)
    return present


def _check_type(name: str, theirs: str, kind: pa.DataType) -> None:
    if name == "text" and not is_text(kind):
        raise UnfitFileError(f"it has {kind} in column {theirs!r}, where text is wanted")
    if name in NUMBERS and not _is_number(kind):
        raise UnfitFileError(f"it has {kind} in column {theirs!r}, where the {name}, a number, is wanted")
    if not (is_text(kind) or _is_plain(kind)):
        raise UnfitFileError(
            f"it has {kind} in column {theirs!r}, where one plain value is wanted for {name}"
        )


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is any of Arrow's for text, or null: that of a column which holds nothing else."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    return any(
        test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    )


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal, types.is_null))


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a value is one that a column of strings, numbers or truth values can carry."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    return (
        _is_number(kind)
        or types.is_boolean(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
    )


def plain(values: pa.Array) -> pa.Array:
    """Any kind of text as large_string, other dictionaries as their values, the rest as it is."""
    if is_text(values.type):
        return values.cast(pa.large_string())
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
