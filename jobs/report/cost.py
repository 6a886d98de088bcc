"""`OUT/cost/index.html`: what each job cost, beside Dask's performance reports of them.

These figures are another's in every run, so the page is none of the report's, whose bytes are the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.report import page
from jobs.report.parts import Section, Table
from jobs.runtime import checkpoint, cost, performance

TEMPLATE = "cost.html"
COLUMNS = ("job", "seconds", "MB/s a core", *cost.HEADINGS[2:])
THROUGH_ALL = (  # jobs that go through all documents
    "annotate", "url_duplicates", "exact_duplicates", "near_duplicates", "order", "validation", "shards", "ledger",
    "report",
)  # fmt: skip


def write(out: Path, manifests: Mapping[str, dict[str, Any]]) -> None:
    """Write the page, and its table as CSV and Parquet; `manifests` are of the jobs in order."""
    folder, n_bytes = out / performance.FOLDER, manifests["annotate"]["figures"]["n_bytes"]
    rows = [_row(job, manifest, n_bytes) for job, manifest in manifests.items() if manifest.get("cost")]
    shown = [
        Section("cost", "Jobs", tables=[Table("cost", "What each job cost when it was done", COLUMNS, rows)])
    ]
    text = page.from_template(
        TEMPLATE,
        title="What the run cost",
        headline=_headline(rows, n_bytes),
        sections=shown,
        megabytes=f"{n_bytes / 1e6:,.1f}",
        reports=performance.there(out),
    )
    with checkpoint.written(folder / page.FILE) as file:
        file.write(text.encode())
    page.write_files(folder, shown)


def _row(job: str, manifest: dict[str, Any], n_bytes: int) -> tuple[Any, ...]:
    spent = manifest["cost"]
    peak, cores = spent["peak_worker_bytes"], spent.get("cores")
    measurable = job in THROUGH_ALL and cores and spent["seconds"] >= 0.05
    return (
        job,
        round(spent["seconds"], 1),
        round(n_bytes / 1e6 / spent["seconds"] / cores, 2) if measurable else "",
        "" if peak is None else round(peak / 1e6),
        round(spent["spilled_bytes"] / 1e6),
        round(spent["shuffled_bytes"] / 1e6),
        manifest["figures"].get("rows_shuffled", ""),
    )


def _headline(rows: list[tuple[Any, ...]], n_bytes: int) -> list[tuple[str, str]]:
    seconds = sum(row[1] for row in rows)
    peaks = [row[3] for row in rows if row[3] != ""]
    return [
        (f"{seconds:,.0f} s", "in all jobs"),
        (f"{n_bytes / 1e6:,.1f} MB", "of text"),
        *([(f"{max(peaks):,} MB", "most memory of a worker")] if peaks else []),
    ]
