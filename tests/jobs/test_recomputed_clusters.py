"""`verify` finds the clusters again from the signatures, and names any document that is in another."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import ledger, verify
from jobs.pipeline.duplicates import recomputed
from jobs.pipeline.paths import SplitPaths
from jobs.runtime.checkpoint import read_json
from tests.conftest import run_job


def signed(out: Path) -> recomputed.Signed:
    figures = read_json(out / "annotate" / "manifest.json")["figures"]
    splits = [SplitPaths(out / "annotate", key) for key in figures["splits"]]
    return recomputed.Signed([recomputed.Annotated(out, splits, figures["documents_of_splits"])], 14, 8)


def committed(out: Path) -> list[tuple[int, int]]:
    table = pa.ipc.open_file(out / "near_duplicates" / "clusters.arrow").read_all()
    return list(zip(table["doc_id"].to_pylist(), table["cluster"].to_pylist(), strict=True))


@pytest.mark.parametrize("keys_at_once", [10**9, 5000, 300])
def test_clusters_are_those_of_the_run_however_many_keys_are_held(finished: Path, keys_at_once: int) -> None:
    found = recomputed.forest(signed(finished), keys_at_once)
    assert list(map(tuple, found.tolist())) == committed(finished)
    assert len(found) > 100


@pytest.mark.parametrize(
    "settings",
    [
        ["near_duplicates.verify=signature", "near_duplicates.threshold=0.85"],
        pytest.param(
            ["near_duplicates.verify=exact", "near_duplicates.threshold=0.85"], marks=pytest.mark.slow
        ),
        pytest.param(
            ["near_duplicates.scope=crawl", "exact_duplicates.enabled=true"], marks=pytest.mark.slow
        ),
        pytest.param(["near_duplicates.enabled=false"], marks=pytest.mark.slow),
    ],
)
def test_verify_proves_and_disproves_clusters(
    corpus: Path, cluster: str, tmp_path: Path, settings: list[str]
) -> None:
    out = tmp_path / "out"
    assert run_job(corpus, out, cluster, *settings) == 0
    assert list(verify.check_clusters(verify.Output(out))) == []
    change_clusters(out, joined=True)
    (problem,) = verify.check_clusters(verify.Output(out))
    assert "the signatures put" in problem


@pytest.mark.parametrize("joined", [False, True])
def test_a_cluster_that_was_cut_or_joined_is_named(finished: Path, tmp_path: Path, joined: bool) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    change_clusters(out, joined)
    (problem,) = verify.check_clusters(verify.Output(out))
    assert "the signatures put 1 documents into other clusters" in problem


def change_clusters(out: Path, joined: bool) -> None:
    """One document more in a cluster, or one less."""
    path = ledger.files(out)[0]
    table = pq.read_table(path)
    doc_ids, clusters = table["doc_id"].to_pylist(), table["cluster"].to_pylist()
    some = next((cluster for cluster in clusters if cluster is not None), doc_ids[0])
    if joined:
        row = next(i for i, cluster in enumerate(clusters) if cluster is None and doc_ids[i] != some)
        clusters[row] = some
    else:
        row = next(i for i, cluster in enumerate(clusters) if cluster is not None and cluster != doc_ids[i])
        clusters[row] = None
    at = table.schema.get_field_index("cluster")
    pq.write_table(table.set_column(at, "cluster", pa.array(clusters, pa.uint64())), path)


def test_rows_of_splits_cross_files(finished: Path, tmp_path: Path) -> None:
    whole = pa.concat_tables(pq.read_table(path, columns=["doc_id"]) for path in ledger.files(finished))
    (tmp_path / "ledger").mkdir()
    for number, start in enumerate(range(0, len(whole), 70)):
        pq.write_table(whole.slice(start, 70), tmp_path / "ledger" / f"part-{number:05d}.parquet")
    sizes = [1, 0, 200, 69, len(whole) - 270]
    found = list(recomputed.rows_of_splits(tmp_path, ["doc_id"], sizes))
    assert [len(one) for one in found] == sizes
    assert np.array_equal(pa.concat_tables(found)["doc_id"].to_numpy(), whole["doc_id"].to_numpy())
