"""`OUT/report/index.html`: a page that needs nothing else; beside it its tables as CSV, its plots as PNG and SVG."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.report.parts import Pair, Section, Table, cells
from jobs.report.sections import headline, sections, warnings
from jobs.runtime import checkpoint

FILE = "index.html"
TEMPLATE = Path(__file__).parent / "page.html"
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
    for section in shown:
        for table in section.tables:
            with checkpoint.written(folder / f"{table.name}.csv") as file:
                file.write(as_csv(table).encode())
        for plot in section.plots:
            for suffix, drawn in plot.files.items():
                with checkpoint.written(folder / f"{plot.name}.{suffix}") as file:
                    file.write(drawn)


def rendered(title: str, content: dict[str, Any], shown: Sequence[Section]) -> str:
    """The page as text; whatever documents hold is escaped."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title,
        headline=headline(content),
        warnings=warnings(content),
        sections=shown,
        cells=cells,
        most_rows=MOST_ROWS,
    )


def as_csv(table: Table) -> str:
    """All rows of a table."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return buffer.getvalue()
