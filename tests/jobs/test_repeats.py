"""Keys that occur once stay out of the shuffle, and the clusters are those of all keys."""

import gzip
import json
from pathlib import Path

import dask
import numpy as np
import pyarrow.parquet as pq
import pytest

from jobs.pipeline.duplicates import candidates, repeats
from jobs.pipeline.duplicates.candidates import Candidates
from jobs.pipeline.paths import SplitPaths
from kernels import bands, minhash, permutation
from tests.benchmarks import band_keys
from tests.jobs.test_near_duplicates import seeds_clusters, write_split

DOCUMENTS = 3000


@pytest.fixture(scope="module", params=["template", "band"])
def splits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[SplitPaths]:
    """3,000 documents in 12 splits: 30 % of them copies of one, or a band key that two in five have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(band_keys, "SPLIT", 250)
        return band_keys.written(tmp_path_factory.mktemp("signatures"), request.param, DOCUMENTS)


def everything(splits: list[SplitPaths]) -> tuple[np.ndarray, np.ndarray]:
    signatures = np.concatenate([np.load(paths.signatures) for paths in splits])
    return permutation.doc_ids(1, np.arange(len(signatures))), signatures


@pytest.mark.parametrize("most_places", [30, 12])
def test_every_key_that_repeats_passes(splits: list[SplitPaths], tmp_path: Path, most_places: int) -> None:
    keys = [bands.band_keys(np.load(paths.signatures), 14, 8).ravel() for paths in splits]
    graph = repeats.graph(keys, np.asarray, DOCUMENTS * 14, tmp_path, tasks=5, most_places=most_places)
    found = dask.compute(graph, scheduler="sync")[0]
    assert len(found.paths) == (1 if most_places == 30 else 128)
    flat = np.concatenate(keys)
    _, place, counts = np.unique(flat, return_inverse=True, return_counts=True)
    passed, repeated = found.among(flat), counts[place] > 1
    assert passed[repeated].all()
    assert passed[~repeated].mean() < 0.12


def found_clusters(splits: list[SplitPaths], documents: int, folder: Path, cluster: str) -> dict[int, int]:
    from distributed import Client

    with Client(cluster):
        parts = candidates.forests(Candidates(splits, [], 14, 8, documents, folder / "repeats", 2)).compute()
    found = candidates.merge_forests(parts)
    shuffled = int(found.loc[found["kind"] == candidates.SHUFFLED, "node"].sum())
    assert shuffled < 0.3 * documents * 14
    edges = found[found["kind"] == candidates.EDGE]
    return dict(zip(edges["node"].tolist(), edges["root"].tolist(), strict=True))


def test_clusters_are_those_of_all_keys(splits: list[SplitPaths], tmp_path: Path, cluster: str) -> None:
    found = found_clusters(splits, DOCUMENTS, tmp_path, cluster)
    assert found == seeds_clusters(*everything(splits), 14, 8)
    assert len(found) > 0.3 * DOCUMENTS


def real_texts(shared: Path, everything: bool) -> list[str]:
    texts = [
        text
        for path in sorted((shared / "fineweb").glob("*.parquet"))
        for text in pq.read_table(path, columns=["text"])["text"].to_pylist()
    ]
    if everything:
        for name in ("eval/mmlu.jsonl.gz", "eval/gsm8k_test.jsonl", "c4/c4-sample.00000-of-00001.json.gz"):
            opened = gzip.open if name.endswith("gz") else open
            with opened(shared / name, "rt", encoding="utf-8") as file:
                records = map(json.loads, file)
                texts += [str(record.get("text") or record["question"]) for record in records]
    return texts


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_clusters_of_real_documents(shared: Path, tmp_path: Path, cluster: str, everything: bool) -> None:
    texts = real_texts(shared, everything)
    assert len(texts) >= (20_000 if everything else 3000)
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    data = np.frombuffer(b"".join(encoded), np.uint8)
    signatures, n_words = minhash.signatures(data, offsets, minhash.SEEDS, 5)
    doc_ids = permutation.doc_ids(3, np.arange(len(texts)))
    splits = [
        write_split(
            tmp_path,
            f"{first:06d}",
            *(array[first : first + 600] for array in (doc_ids, signatures, n_words)),
        )
        for first in range(0, len(texts), 600)
    ]
    found = found_clusters(splits, len(texts), tmp_path, cluster)
    worded = n_words > 0
    assert found == seeds_clusters(doc_ids[worded], signatures[worded], 14, 8)
    assert len(found) > 300
