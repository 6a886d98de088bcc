"""`OUT/report/index.html`: a page that needs nothing else; beside it its tables as CSV and Parquet, its plots twice."""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.report.parts import Pair, Section, Table, cells
from jobs.report.sections import headline, sections, warnings
from jobs.runtime import checkpoint

FILE = "index.html"
TEMPLATE = "page.html"
MOST_ROWS = 200  # of a table in the page; its CSV has all


def write(
    folder: Path,
    title: str,
    content: dict[str, Any],
    near: dict[str, Any],
    examples: dict[str, list[dict[str, Any]]],
    pairs: Sequence[Pair],
) -> None:
    """Write the page and the files beside it into a job's folder."""
    shown = sections(content, near, examples, pairs)
    with checkpoint.written(folder / FILE) as file:
        file.write(rendered(title, content, shown).encode())
    write_files(folder, shown)


def write_files(folder: Path, shown: Sequence[Section]) -> None:
    """Write each table as CSV and Parquet, and each plot as PNG and SVG."""
    for section in shown:
        for table in section.tables:
            with checkpoint.written(folder / f"{table.name}.csv") as file:
                file.write(as_csv(table).encode())
            with checkpoint.written(folder / f"{table.name}.parquet") as file:
                pq.write_table(as_arrow(table), file)
        for plot in section.plots:
            for suffix, drawn in plot.files.items():
                with checkpoint.written(folder / f"{plot.name}.{suffix}") as file:
                    file.write(drawn)


def rendered(title: str, content: dict[str, Any], shown: Sequence[Section]) -> str:
    """The page as text; whatever documents hold is escaped."""
    return from_template(
        TEMPLATE, title=title, headline=headline(content), warnings=warnings(content), sections=shown
    )


def from_template(name: str, **values: Any) -> str:
    """A page of this package's templates; values are escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name).render({"cells": cells, "most_rows": MOST_ROWS, **values})


def as_csv(table: Table) -> str:
    """All rows of a table."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return buffer.getvalue()


def as_arrow(table: Table) -> pa.Table:
    """All rows of a table: numbers where a column has no others, shares of 1 for percents, or text; else null."""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    names = [name or f"column {number}" for number, name in enumerate(table.columns, 1)]
    return pa.table(dict(zip(names, map(_as_array, columns), strict=True)))


def _as_array(values: Sequence[Any]) -> pa.Array:
    present = [None if value == "" else value for value in values]
    kinds = {type(value) for value in present if value is not None}
    if kinds <= {int}:
        return pa.array(present, pa.int64())
    if kinds <= {int, float}:
        return pa.array(present, pa.float64())
    if all(value is None or _PERCENT.fullmatch(str(value)) for value in present):
        shares = [None if value is None else float(value[:-1]) / 100 for value in present]
        return pa.array(shares, pa.float64())
    return pa.array([None if value is None else str(value) for value in present], pa.string())


_PERCENT = re.compile(r"[+-]?[\d.]+%")
