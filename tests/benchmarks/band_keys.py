"""Band keys of 2,424,000 documents: shuffle, components and keep list on a LocalCluster.

``python -m tests.benchmarks.band_keys [CASE ...] [--documents N]`` on two single-threaded workers with 1.5 GiB each;
time as it passes, peak memory of the client, the scheduler and the workers together (PSS, so that a file that several
map counts once), and the rows that went through the shuffle. The seed took 16 s on 8 processes.

Signatures are made, not measured: value j of document i is ``mix64`` of (i, j). 42,867 in 2,424,000, the seed's share,
are copies of another document and have each value of it with probability s, uniform in 0.75 to 1. Cases with skew, on
top of that: `template`, in which 30 % of the documents are copies of one at s = 0.98, and `band`, in which a million
documents in 2,424,000 have the first band of document 0.
"""

import argparse
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.pipeline.paths import SplitPaths
from kernels import permutation
from tests.benchmarks.measure import aligned

DOCUMENTS, COPIES = 2_424_000, 42_867
SPLIT = 32_768  # documents
BANDS, ROWS = 14, 8
TEMPLATE, TEMPLATE_SIMILARITY = 0.3, 0.98
ONE_BAND = 1_000_000 / DOCUMENTS
CASES = ("plain", "template", "band")
WORKERS, MEMORY_LIMIT = 2, "1536 MiB"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.band_keys", description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="CASE")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--folder", help="where signatures of earlier runs are, and those of this one stay")
    parser.add_argument("--tree-edges", type=int, default=50_000_000, help="0: components in rounds")
    parser.add_argument(
        "--verify", type=float, metavar="S", help="cut links of a similarity below S by signature"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"there is no case {unknown.pop()}; there are {', '.join(CASES)}")
    lines = [
        [
            "case",
            "documents",
            "seconds",
            "CPU seconds",
            "peak MiB",
            "rows shuffled",
            "clusters",
            "in clusters",
        ]
    ]
    with tempfile.TemporaryDirectory() as scratch:
        for case in options.cases:
            folder = Path(options.folder or scratch) / f"{case}-{options.documents}"
            splits = written(folder, case, options.documents)
            lines.append(
                [
                    case,
                    f"{options.documents:,}",
                    *measure(splits, options.documents, options.tree_edges, options.verify),
                ]
            )
            print(aligned(lines[-1:]), flush=True)
    print(f"\n{aligned(lines)}")
    return 0


# ---------------------------------------------------------------- signatures


def written(folder: Path, case: str, documents: int) -> list[SplitPaths]:
    """The files of the splits as the annotate pass leaves them, as far as near-duplicates are concerned."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = []
    for first in range(0, documents, SPLIT):
        paths = SplitPaths(folder, f"{first:012d}")
        splits.append(paths)
        if paths.signatures.exists():
            continue
        ids = np.arange(first, min(first + SPLIT, documents))
        table = {
            "doc_id": pa.array(permutation.doc_ids(1, ids), pa.uint64()),
            "n_words": np.full(len(ids), 500),
            "fate": pa.nulls(len(ids), pa.string()),
        }
        pq.write_table(pa.table(table), paths.rows)
        np.save(paths.signatures, signatures(ids, case, documents))
    return splits


def signatures(ids: np.ndarray, case: str, documents: int) -> np.ndarray:
    """uint32[d, h] of these documents."""
    originals = np.floor(uniform(ids, "original") * np.maximum(ids, 1)).astype(np.int64)
    is_copy = uniform(ids, "copy") < COPIES / DOCUMENTS
    similarity = np.where(is_copy, 0.75 + 0.25 * uniform(ids, "similarity"), 0)
    if case == "template":
        of_template = uniform(ids, "template") < TEMPLATE
        originals[of_template] = 0
        similarity[of_template] = TEMPLATE_SIMILARITY
    places = ids[:, None] * (BANDS * ROWS) + np.arange(BANDS * ROWS)
    same = uniform(places, "same") < similarity[:, None]
    sources = np.where(same, originals[:, None], ids[:, None])
    values = _hash(sources * (BANDS * ROWS) + np.arange(BANDS * ROWS), "value")
    found = (values >> np.uint64(32)).astype(np.uint32)
    if case == "band":
        in_bucket = uniform(ids, "band") < ONE_BAND
        found[in_bucket, :ROWS] = 0
    return found


def _hash(numbers: np.ndarray, purpose: str) -> np.ndarray:
    flat = permutation.keyed_hash(numbers.ravel().astype(np.uint64), permutation.key(purpose, 0))
    return flat.reshape(numbers.shape)


def uniform(numbers: np.ndarray, purpose: str) -> np.ndarray:
    return _hash(numbers, purpose) / 2.0**64


# ---------------------------------------------------------------- what is measured


@dataclass
class Peak:
    """Memory of this process and all below it, looked at ten times a second."""

    mib: float = 0

    def __enter__(self) -> "Peak":
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.1):
            taken = sum(map(_pss, [me, *me.children(recursive=True)]))
            self.mib = max(self.mib, taken / 1024)


def _pss(process: psutil.Process) -> int:
    """KiB; none for a process that is gone."""
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return int(text.partition("Pss:")[2].split()[0])


def _cpu_time() -> float:
    """Seconds of this process and all below it."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def measure(
    splits: list[SplitPaths], documents: int, most_links: int, threshold: float | None = None
) -> list[str]:
    """Seconds, peak memory, rows shuffled, and what was found."""
    from jobs.pipeline.duplicates import near
    from jobs.pipeline.duplicates.keep import Policy
    from jobs.runtime.cluster import connected
    from jobs.settings.duplicates import Keep

    with connected(workers=WORKERS, memory_limit=MEMORY_LIMIT) as client, Peak() as peak:
        begun, cpu = time.perf_counter(), _cpu_time()
        stars, shuffled = stars_of(client, splits, documents, most_links, threshold)
        near.keep_list(stars, Policy(Keep()).random_ranks(stars[:, 0]), np.zeros(len(stars), bool))
        seconds, cpu = time.perf_counter() - begun, _cpu_time() - cpu
    counts = (shuffled, len(np.unique(stars[:, 1])), len(stars))
    return [f"{seconds:.1f}", f"{cpu:.1f}", f"{peak.mib:,.0f}", *(f"{count:,}" for count in counts)]


def stars_of(
    client: Any, splits: list[SplitPaths], documents: int, most_links: int, threshold: float | None
) -> tuple[np.ndarray, int]:
    """The star forest uint64[n, 2] of the splits, and how many rows were shuffled."""
    from jobs.pipeline.duplicates import candidates, components, repeats
    from jobs.pipeline.duplicates.candidates import Candidates
    from jobs.runtime import folders
    from jobs.runtime.checkpoint import Checkpoint
    from jobs.runtime.console import Console

    job = Checkpoint(splits[0].folder / "job", "benchmark")
    job.begin()
    of = Candidates(splits, [], BANDS, ROWS, documents, job.folder / repeats.FOLDER, WORKERS)
    graph = candidates.forests(of) if threshold is None else _verified(client, of, threshold)
    components.commit_forests(client, Console(), job, graph)
    found = components.merged(client, Console(), job, most_links, candidates.merge_forests)
    folders.remove_folder(job.folder)
    edges = found[found["kind"] == candidates.EDGE].sort_values("node")
    shuffled = int(found.loc[found["kind"] == candidates.SHUFFLED, "node"].sum())
    return edges[["node", "root"]].to_numpy(np.uint64), shuffled


def _verified(client: Any, of: Any, threshold: float) -> Any:
    from jobs.pipeline.duplicates import candidates
    from jobs.runtime.console import Console

    near = SimpleNamespace(verify="signature", threshold=threshold)
    run = SimpleNamespace(
        client=client, console=Console(), config=SimpleNamespace(near_duplicates=near), totals=dict
    )
    return candidates.verified_forests(run, of)  # type: ignore[arg-type]


if __name__ == "__main__":
    raise SystemExit(main())
