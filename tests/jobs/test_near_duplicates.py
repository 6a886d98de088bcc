"""Candidates and clusters against the seed's sorted-neighbour method, whatever the partitions."""

from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import ledger
from jobs.pipeline.duplicates import candidates
from jobs.pipeline.duplicates import near as near_duplicates
from jobs.pipeline.duplicates.keep import Policy
from jobs.pipeline.paths import SplitPaths
from jobs.run import main
from jobs.settings.duplicates import Keep
from kernels import bands
from tests.conftest import digests, run_job, write_corpus
from tests.conftest import settings as job_settings

BANDS, ROWS = 4, 2


def seeds_pairs(signatures: np.ndarray, n_bands: int, rows: int) -> np.ndarray:
    """The seed's method: sort each band's bytes; equal neighbours are candidate pairs. int64[p, 2] of rows."""
    pairs = []
    for b in range(n_bands):
        band = np.ascontiguousarray(signatures[:, b * rows : (b + 1) * rows])
        keys = band.view(np.dtype((np.void, band.dtype.itemsize * rows))).ravel()
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        pairs.append(np.stack([order[:-1][same], order[1:][same]], axis=1))
    return np.unique(np.concatenate(pairs), axis=0)


def seeds_clusters(doc_ids: np.ndarray, signatures: np.ndarray, n_bands: int, rows: int) -> dict[int, int]:
    """doc_id -> smallest doc_id of its cluster, for documents that are in one."""
    graph = networkx.Graph(
        (int(doc_ids[a]), int(doc_ids[b])) for a, b in seeds_pairs(signatures, n_bands, rows)
    )
    return {node: min(part) for part in networkx.connected_components(graph) for node in part}


def seeded_keep_list(forest: np.ndarray, seed: int) -> np.ndarray:
    ranks = Policy(Keep(seed=seed)).random_ranks(forest[:, 0])
    return near_duplicates.keep_list(forest, ranks, np.zeros(len(forest), bool))


def write_split(
    folder: Path, key: str, doc_ids: np.ndarray, signatures: np.ndarray, n_words: np.ndarray
) -> SplitPaths:
    paths = SplitPaths(folder, key)
    fate = pa.nulls(len(doc_ids), pa.string())
    pq.write_table(
        pa.table({"doc_id": pa.array(doc_ids, pa.uint64()), "n_words": n_words, "fate": fate}), paths.rows
    )
    np.save(paths.signatures, signatures)
    return paths


@st.composite
def corpora(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """doc_ids, signatures of few values (so that many agree), words, and which of some partitions each is in."""
    d = draw(st.integers(1, 40))
    ids = draw(st.lists(st.integers(0, 2**64 - 1), min_size=d, max_size=d, unique=True))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    signatures = random.integers(0, draw(st.integers(1, 6)), (d, BANDS * ROWS), dtype=np.uint32)
    n_words = np.where(random.random(d) < 0.1, 0, 9)
    return np.array(ids, np.uint64), signatures, n_words, random.integers(0, draw(st.integers(1, 5)), d)


@settings(max_examples=60, deadline=None)
@given(corpora(), st.integers(1, 4))
def test_clusters_are_the_seeds_in_any_partitioning(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    buckets: int,
) -> None:
    doc_ids, signatures, n_words, part = corpus
    folder = tmp_path_factory.mktemp("splits")
    frames = [
        candidates.band_rows(
            write_split(folder, str(p), doc_ids[part == p], signatures[part == p], n_words[part == p]),
            BANDS,
            ROWS,
        )
        for p in np.unique(part)
    ]
    rows = pd.concat(frames)
    # What the shuffle does: equal keys meet, in some partition.
    forests = [
        candidates.forest_of_buckets(rows[rows["key"] % np.uint64(buckets) == b]) for b in range(buckets)
    ]
    found = candidates.merge_forests(pd.concat(forests))
    shuffled = found.loc[found["kind"] == candidates.SHUFFLED, "node"]
    assert shuffled.tolist() == [len(rows)]
    found = found[found["kind"] == candidates.EDGE]
    worded = n_words > 0
    expected = seeds_clusters(doc_ids[worded], signatures[worded], BANDS, ROWS)
    assert dict(zip(found["node"].tolist(), found["root"].tolist(), strict=True)) == expected


def test_the_rows_that_are_shuffled_name_each_key_once(tmp_path: Path) -> None:
    signatures = np.zeros((1000, 8), np.uint32)
    paths = write_split(tmp_path, "a", np.arange(1, 1001, dtype=np.uint64), signatures, np.full(1000, 5))
    rows = candidates.band_rows(paths, BANDS, ROWS)
    assert (rows["kind"] == candidates.MEMBER).sum() == BANDS
    assert (rows["kind"] == candidates.EDGE).sum() == 999
    assert set(rows.loc[rows["kind"] == candidates.MEMBER, "node"]) == {1}


def test_candidates_of_a_run_are_the_seeds(finished: Path) -> None:
    """On the run's own signatures: every pair of the seed's shares a key, every shared key is a pair or a chain."""
    splits = sorted((finished / "annotate").glob("*.parquet"))
    tables = [pq.read_table(path) for path in splits]
    doc_ids = np.concatenate([table["doc_id"].to_numpy() for table in tables])
    signatures = np.concatenate([np.load(path.with_suffix(".signatures.npy")) for path in splits])
    n_words = np.concatenate([table["n_words"].to_numpy() for table in tables])
    doc_ids, signatures = doc_ids[n_words > 0], signatures[n_words > 0]
    keys = bands.band_keys(signatures, 14, 8)
    assert np.array_equal(seeds_pairs(signatures, 14, 8), _neighbours(keys))
    rows = ledger.read(finished).compute()
    clustered = rows[rows["cluster"].notna()]
    found = dict(
        zip(*(clustered[name].to_numpy(np.uint64).tolist() for name in ("doc_id", "cluster")), strict=True)
    )
    assert found == seeds_clusters(doc_ids, signatures, 14, 8)
    assert len(found) > 100


def _neighbours(keys: np.ndarray) -> np.ndarray:
    """The pairs that the seed's method gives when our keys stand for the bands."""
    pairs = []
    for column in keys.T:
        order = np.argsort(column, kind="stable")
        same = column[order][1:] == column[order][:-1]
        pairs.append(np.stack([order[:-1][same], order[1:][same]], axis=1))
    return np.unique(np.concatenate(pairs), axis=0)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 2**64 - 1), min_size=2, max_size=30, unique=True), st.integers(0, 9), st.randoms()
)
def test_the_kept_document_depends_on_the_cluster_alone(ids: list[int], seed: int, random: object) -> None:
    nodes = np.sort(np.array(ids, np.uint64))
    half = len(nodes) // 2
    roots = np.concatenate([np.full(half, nodes[0]), np.full(len(nodes) - half, nodes[half])]).astype(
        np.uint64
    )
    kept = seeded_keep_list(np.column_stack((nodes, roots)), seed)
    for root in np.unique(roots):
        chosen = np.unique(kept[roots == root])
        assert len(chosen) == 1
        assert chosen[0] in nodes[roots == root]
        alone = seeded_keep_list(np.column_stack((nodes, roots))[roots == root], seed)
        assert (alone == chosen[0]).all()


def test_the_choice_is_random(tmp_path: Path) -> None:
    kept = set()
    for seed in range(200):
        kept |= set(seeded_keep_list(np.array([[1, 1], [2, 1], [3, 1]], np.uint64), seed).tolist())
    assert kept == {1, 2, 3}


def test_one_template_in_a_third_of_the_documents(cluster: str, tmp_path: Path) -> None:
    from tests.conftest import corpus_texts

    template = "find more relatives and grow your tree by exploring billions of historical records " * 12
    texts = corpus_texts(200, seed=5) + [f"{template} surname {i}" for i in range(100)]
    folder = write_corpus(tmp_path / "corpus", texts, files=4, row_group=20)
    out = tmp_path / "out"
    assert run_job(folder, out, cluster, "tokenizer.train.vocab_size=400", "splits.bytes=10 KB") == 0
    rows = ledger.read(out).compute()
    template_rows = rows.sort_values(["path", "record"]).iloc[200:]
    assert template_rows["cluster"].nunique() == 1
    assert (template_rows["fate"] != "near_duplicate").sum() == 1


def test_components_in_rounds_give_the_same_file(
    corpus: Path, finished: Path, cluster: str, tmp_path: Path
) -> None:
    arguments = [*job_settings(corpus, "near_duplicates.tree_edges=0"), "--until", "near_duplicates"]
    assert main([*arguments, "--output", str(tmp_path / "out"), "--scheduler", cluster]) == 0
    assert digests(tmp_path / "out", "near_duplicates") == digests(finished, "near_duplicates")
