"""Duplicates of real text, against plain Python, NumPy and networkx, and against the curve."""

import gzip
import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import corpus, ledger
from jobs.pipeline.duplicates import candidates, components, repeats, verification
from jobs.pipeline.paths import SplitPaths
from jobs.runtime.checkpoint import Checkpoint
from jobs.runtime.console import Console
from jobs.text import text_buffers
from kernels import bands, minhash, permutation, shingles
from tests.conftest import run_job

pytestmark = pytest.mark.slow
BANDS, ROWS, NGRAM = 14, 8, 5
DOCUMENTS, IN_A_SPLIT = 20_000, 1_500


def signatures_of(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    buffers = text_buffers(pa.array(texts, pa.large_string()))
    return minhash.signatures(*buffers, minhash.hash_seeds(BANDS * ROWS), NGRAM)


def test_repeats_in_fineweb_are_found_exactly(shared: Path, cluster: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run_job(shared / "fineweb", out, cluster, "exact_duplicates.enabled=true") == 0
    texts = [
        text
        for path in sorted((shared / "fineweb").glob("*.parquet"))
        for text in pq.read_table(path, columns=["text"])["text"].to_pylist()
    ]
    rows = ledger.read(out).compute()
    assert len(rows) == len(texts) == 3000
    of_text: dict[str, set[int]] = defaultdict(set)
    for doc_id, text in zip(rows["doc_id"].tolist(), texts, strict=True):
        of_text[text].add(doc_id)
    assert len(of_text) == 2800
    gone = rows[rows["fate"] == "exact_duplicate"]
    kept_by = dict(zip(gone["doc_id"].tolist(), gone["kept_by"].tolist(), strict=True))
    assert len(kept_by) == 200
    for same in of_text.values():
        (kept,) = same - set(kept_by)
        assert {kept_by[doc_id] for doc_id in same - {kept}} <= {kept}


def real_texts(shared: Path, folder: Path) -> list[str]:
    """FineWeb, C4 and others, and then the built-in corpus."""
    texts: list[str] = []
    for path in sorted((shared / "fineweb").glob("*.parquet")):
        texts += pq.read_table(path, columns=["text"])["text"].to_pylist()
    for path in (*(shared / "c4").glob("*.gz"), *sorted((shared / "web").glob("*.jsonl"))):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        texts += [text for line in raw.splitlines() if (text := json.loads(line).get("text"))]
    corpus.build(folder)
    for path in sorted(folder.rglob("*.parquet")):
        texts += pq.read_table(path, columns=["text"])["text"].to_pylist()
    return texts[:DOCUMENTS]


def pairs_of_bucket(members: list[int]) -> Iterator[tuple[int, int]]:
    """Which members of a bucket, in order, are compared."""
    for j, b in enumerate(members):
        some = range(j) if len(members) <= verification.ALL_PAIRS else {0, 1, 2, 3, j - 1}
        yield from ((members[i], b) for i in some if 0 <= i < j)


def test_candidates_and_clusters_of_20_000_documents(shared: Path, cluster: str, tmp_path: Path) -> None:
    from distributed import Client

    texts = real_texts(shared, tmp_path / "corpus")
    assert len(texts) > 15_000
    signatures, n_words = signatures_of(texts)
    doc_ids = permutation.doc_ids(3, np.arange(len(texts)))
    splits = []
    for start in range(0, len(texts), IN_A_SPLIT):
        paths, some = SplitPaths(tmp_path, f"{start:06d}"), slice(start, start + IN_A_SPLIT)
        ids = doc_ids[some]
        table = {"doc_id": ids, "n_words": n_words[some], "fate": pa.nulls(len(ids), pa.string())}
        pq.write_table(pa.table(table), paths.rows)
        np.save(paths.signatures, signatures[some])
        splits.append(paths)

    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for row in np.flatnonzero(n_words > 0)[np.argsort(doc_ids[n_words > 0])].tolist():
        for band in range(BANDS):
            buckets[band, signatures[row, band * ROWS : band * ROWS + ROWS].tobytes()].append(
                int(doc_ids[row])
            )
    several = [members for members in buckets.values() if len(members) > 1]
    pairs = {pair for members in several for pair in pairs_of_bucket(members)}
    graph = networkx.Graph(pairs)
    clusters = {node: min(part) for part in networkx.connected_components(graph) for node in part}

    of = candidates.Candidates(splits, [], BANDS, ROWS, len(texts), tmp_path / "scratch", 2)
    job = Checkpoint(tmp_path / "job", "test")
    job.begin()
    with Client(cluster) as client:
        components.commit_forests(client, Console(), job, candidates.forests(of))
        found = components.merged(client, Console(), job, 10**9, candidates.merge_forests)
    found = found[found["kind"] == components.EDGE]
    assert dict(zip(found["node"].tolist(), found["root"].tolist(), strict=True)) == clusters
    assert len(clusters) > 500

    keys = [candidates._flat_keys(paths, BANDS, ROWS, candidates.EVERYTHING) for paths in splits]
    repeated = repeats.graph(
        splits,
        lambda paths: keys[splits.index(paths)],
        sum(map(len, keys)),
        tmp_path / "again",
        2,
    ).compute(scheduler="synchronous")
    bases = verification.bases(splits)
    members = [
        candidates.member_rows(paths, BANDS, ROWS, repeated, int(base), candidates.EVERYTHING)
        for paths, base in zip(splits, bases, strict=True)
    ]
    compared = verification.pairs_of_buckets(pd.concat(members), bases, candidates.REFERENCE)
    compared = compared[compared["kind"] == components.EDGE]
    assert set(zip(compared["a"].tolist(), compared["b"].tolist(), strict=True)) == pairs


# ---------------------------------------------------------------- near-duplicates of known similarity

PACKAGES = ("libreoffice-help-en-us", "libreoffice-help-en-gb")


class Text(HTMLParser):
    """The text of a page, without scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._outside = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._outside += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._outside -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._outside:
            self.parts.append(data)


@pytest.fixture(scope="module")
def help_pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    """LibreOffice's help in American and in British English, page by page."""
    folder = tmp_path_factory.mktemp("packages")
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        pytest.skip("needs apt-get and dpkg")
    got = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, timeout=300)
    if got.returncode:
        pytest.skip("needs packages that apt-get cannot download here")
    pages = []
    for name in PACKAGES:
        (file,) = folder.glob(f"{name}_*.deb")
        subprocess.run(["dpkg", "-x", file, folder / name], check=True)
        language = "en-US" if name.endswith("us") else "en-GB"
        found = {}
        for path in (folder / name).rglob("*.html"):
            place = str(path.relative_to(folder / name))
            found[place.replace(language, "")] = " ".join(Text(path.read_text(errors="replace")).parts)
        pages.append(found)
    both = sorted(set(pages[0]) & set(pages[1]))
    return [pages[0][one] for one in both], [pages[1][one] for one in both]


def test_pairs_of_help_pages_are_flagged_as_the_curve_says(help_pages: tuple[list[str], list[str]]) -> None:
    american, british = help_pages
    similarity = np.array(
        [
            shingles.jaccard(shingles.shingles(a, NGRAM), shingles.shingles(b, NGRAM))
            for a, b in zip(american, british, strict=True)
        ]
    )
    assert len(similarity) > 2000
    keys = [bands.band_keys(signatures_of(pages)[0], BANDS, ROWS) for pages in help_pages]
    flagged = (keys[0] == keys[1]).any(axis=1)
    assert flagged[similarity == 1].all()
    checked = 0
    for low, high in ((0.3, 0.5), (0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 0.95), (0.95, 1)):
        chosen = (similarity >= low) & (similarity < high)
        if chosen.sum() < 30:
            continue
        expected = bands.collision_probability(similarity[chosen], BANDS, ROWS)
        deviation = np.sqrt((expected * (1 - expected)).sum())
        print(
            f"{low} to {high}: {chosen.sum()} pairs, {flagged[chosen].sum()} flagged, "
            f"{expected.sum():.1f} ± {deviation:.1f} expected"
        )
        assert abs(flagged[chosen].sum() - expected.sum()) <= 4 * deviation + 1, (low, high)
        checked += 1
    assert checked >= 3
