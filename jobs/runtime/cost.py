"""What a job cost: time, memory of the workers, and bytes that went to their disks.

These figures are another's in every run, so they stand beside a job's figures in its manifest, never among them: what
jobs write is the same bytes however they were run.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.runtime.console import Console

if TYPE_CHECKING:
    from distributed import Client, Worker

    from jobs.runtime.context import Run

HEADINGS = (
    "job",
    "seconds",
    "peak MB of a worker",
    "MB spilled",
    "MB shuffled by way of disk",
    "rows shuffled",
)
PEAK, RESET_PEAK = "VmHWM:", "5"


@contextlib.contextmanager
def measured(run: "Run") -> Iterator[dict[str, Any]]:
    """What the block cost, filled in when it has ended without an error.

    `seconds` as they pass; `cores`, threads of all workers (None without a cluster); `peak_worker_bytes`, the most
    resident memory of a worker process since the block began (on Linux, else None); `spilled_bytes`, results that a
    worker put on its disk for want of memory, and `shuffled_bytes`, rows that shuffles put there. A worker that was
    ended within the block takes its figures along.
    """
    spent: dict[str, Any] = {}
    before = _of_workers(run, begin=True)
    started = time.perf_counter()
    yield spent
    spent["seconds"] = round(time.perf_counter() - started, 3)
    client = vars(run).get("client")
    spent["cores"] = sum(client.nthreads().values()) if client is not None else None
    after = _of_workers(run, begin=False)
    spent["peak_worker_bytes"] = max((one["peak"] for one in after.values() if one["peak"]), default=None)
    for name in ("spilled", "shuffled"):
        spent[f"{name}_bytes"] = sum(
            one[name] - before.get(key, {}).get(name, 0) for key, one in after.items()
        )


def _of_workers(run: "Run", begin: bool) -> dict[str, Any]:
    """Figures of each worker; of none where no cluster was needed so far."""
    client: Client | None = vars(run).get("client")
    if client is None:
        return {}
    return dict(client.run(_taken, begin=begin, on_error="ignore"))


def _taken(dask_worker: "Worker", begin: bool) -> dict[str, Any]:
    """Of this worker: bytes on disk since it started; its peak since the last call that began something."""
    peak = None
    with contextlib.suppress(OSError):  # another system's kernel tells nothing
        if begin:
            Path("/proc/self/clear_refs").write_text(RESET_PEAK)
        status = Path("/proc/self/status").read_text()
        peak = 1024 * int(status.partition(PEAK)[2].split()[0])
    totals = [(str(key[0]), value) for key, value in dask_worker.digests_total.items() if _is_disk_write(key)]
    return {
        "peak": peak,
        "spilled": int(sum(value for activity, value in totals if activity != "p2p")),
        "shuffled": int(sum(value for activity, value in totals if activity == "p2p")),
    }


def _is_disk_write(key: Any) -> bool:
    return isinstance(key, tuple) and key[-2:] == ("disk-write", "bytes")


def print_table(console: Console, manifests: dict[str, dict[str, Any]]) -> None:
    """What each job cost when it was done."""
    rows = [
        (
            job,
            f"{cost['seconds']:,.1f}",
            "" if cost["peak_worker_bytes"] is None else f"{cost['peak_worker_bytes'] / 1e6:,.0f}",
            f"{cost['spilled_bytes'] / 1e6:,.0f}",
            f"{cost['shuffled_bytes'] / 1e6:,.0f}",
            f"{shuffled:,}" if (shuffled := manifest["figures"].get("rows_shuffled")) is not None else "",
        )
        for job, manifest in manifests.items()
        if (cost := manifest.get("cost"))
    ]
    console.table("", HEADINGS, rows)
