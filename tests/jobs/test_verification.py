"""Candidates are compared before clusters are formed, against set arithmetic and networkx."""

from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import UserError
from jobs.pipeline.duplicates import components, verification
from jobs.run import main
from jobs.runtime.checkpoint import read_json
from kernels import bands, words
from tests.conftest import digests
from tests.conftest import settings as job_settings

THRESHOLD = 0.8


def near_duplicates(corpus: Path, out: Path, cluster: str, *settings: str) -> Path:
    """The folder of the job of a run that ends there."""
    arguments = [*job_settings(corpus, *settings), "--until", "near_duplicates"]
    assert main([*arguments, "--output", str(out), "--scheduler", cluster]) == 0
    return out / "near_duplicates"


def found_clusters(folder: Path) -> dict[int, int]:
    table = pa.ipc.open_file(folder / "clusters.arrow").read_all()
    return dict(zip(table["doc_id"].to_pylist(), table["cluster"].to_pylist(), strict=True))


def shingle_set(text: str) -> set[tuple[str, ...]]:
    one = words.words(text)
    return {tuple(one[i : i + 5]) for i in range(max(1, len(one) - 4))}


def expected(corpus: Path, annotate: Path, verify: str) -> tuple[dict[int, int], list[float]]:
    """Clusters of the candidates at or above the threshold, by plain Python, and the similarity of all candidates."""
    texts = {p.name: pq.read_table(p, columns=["text"])["text"].to_pylist() for p in corpus.glob("*.parquet")}
    paths = sorted(annotate.glob("*.parquet"))
    rows = pd.concat(
        [pq.read_table(p, columns=["doc_id", "path", "record", "n_words"]).to_pandas() for p in paths]
    )
    signatures = np.concatenate([np.load(p.with_suffix(".signatures.npy")) for p in paths])
    keys = bands.band_keys(signatures, 14, 8)
    buckets: dict[int, list[int]] = {}
    for row in np.flatnonzero(rows["n_words"] > 0):
        for key in keys[row].tolist():
            buckets.setdefault(key, []).append(int(row))
    pairs = {(a, b) for bucket in buckets.values() for i, a in enumerate(bucket) for b in bucket[i + 1 :]}
    sets = {
        row: shingle_set(texts[Path(rows["path"].iloc[row]).name][rows["record"].iloc[row]])
        for row in {row for pair in pairs for row in pair}
    }
    graph, similarities = networkx.Graph(), []
    for a, b in pairs:
        if verify == "exact":
            similarity = len(sets[a] & sets[b]) / len(sets[a] | sets[b])
        else:
            similarity = float((signatures[a] == signatures[b]).mean())
        similarities.append(similarity)
        if similarity >= THRESHOLD:
            graph.add_edge(*(int(rows["doc_id"].iloc[row]) for row in (a, b)))
    clusters = {node: min(part) for part in networkx.connected_components(graph) for node in part}
    return clusters, similarities


@pytest.mark.parametrize("verify", ["signature", "exact"])
def test_links_below_the_threshold_are_cut(
    corpus: Path, finished: Path, cluster: str, tmp_path: Path, verify: str
) -> None:
    settings = [f"near_duplicates.verify={verify}", f"near_duplicates.threshold={THRESHOLD}"]
    folder = near_duplicates(corpus, tmp_path / "out", cluster, *settings)
    clusters, similarities = expected(corpus, finished / "annotate", verify)
    found = found_clusters(folder)
    assert found == clusters
    assert 20 < len(found) < len(found_clusters(finished / "near_duplicates"))
    figures = read_json(folder / "manifest.json")["figures"]
    assert figures["candidate_pairs"] == len(similarities)
    assert figures["pairs_below_threshold"] == sum(one < THRESHOLD for one in similarities)
    bins = np.minimum((np.array(similarities) * 20).astype(int), 19)
    assert figures["similarity_histogram"] == np.bincount(bins, minlength=20).tolist()
    assert figures["rows_shuffled"] > 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "clusters.arrow",
        "manifest.json",
        "overlaps.npy",
        "tasks",
    ]
    # The same bytes in rounds and from other splits.
    other = near_duplicates(
        corpus, tmp_path / "other", cluster, *settings, "near_duplicates.tree_edges=0", "splits.bytes=60 KB"
    )
    assert digests(other.parent, "near_duplicates") == digests(folder.parent, "near_duplicates")


def test_pairs_of_small_buckets_are_all_and_of_large_ones_hang_together() -> None:
    for size in (0, 1, 2, 5, verification.ALL_PAIRS):
        first, second = verification.bucket_pairs(size)
        assert set(zip(first, second, strict=True)) == {(i, j) for j in range(size) for i in range(j)}
    size = 1000
    first, second = verification.bucket_pairs(size)
    pairs = set(zip(first.tolist(), second.tolist(), strict=True))
    assert len(pairs) == len(first) < size * (verification.SMALLEST + 1)
    assert pairs == {(i, j) for j in range(size) for i in {0, 1, 2, 3, j - 1} if 0 <= i < j}


def test_pairs_of_buckets() -> None:
    key = np.array([5, 5, 5, 9, 9, 7, 5], np.uint64)
    node = np.array([30, 10, 20, 10, 30, 40, 0], np.uint64)
    place = np.array([2, 0, 1, 0, 2, 3, 0], np.uint64)
    kind = np.array([0, 0, 0, 0, 0, 0, 2], np.int8)
    rows = pd.DataFrame({"key": key, "node": node, "root": place, "kind": kind})
    found = verification.pairs_of_buckets(rows, np.array([0, 2]), reference=2)
    pairs = found[found["kind"] == components.EDGE].sort_values(["a", "b"])
    assert pairs[["a", "b", "place_a", "place_b", "part"]].to_numpy().tolist() == [
        [10, 20, 0, 1, 0],
        [10, 30, 0, 2, 1],
        [20, 30, 1, 2, 1],
    ]
    assert found.loc[found["kind"] == verification.REFERENCE, "a"].tolist() == [10, 20, 30]
    assert found.loc[found["kind"] == verification.SHUFFLED, "a"].tolist() == [7]


def test_a_threshold_is_needed() -> None:
    from jobs import config

    with pytest.raises(UserError, match="verify is exact, but threshold is not set"):
        config.load("sample", ["near_duplicates.verify=exact"])
