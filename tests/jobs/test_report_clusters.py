"""How clusters hang together, against plain NumPy on the signatures of the run; and what jobs cost."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from jobs import ledger, report
from jobs.runtime.checkpoint import read_json
from tests.conftest import digests, run_job, sentences, settings, write_corpus

BINS = 20


def by_hand(out: Path, threshold: float = 0) -> pd.DataFrame:
    """Each removed document's similarity to the kept one, and whether the two share a band."""
    signatures: dict[int, np.ndarray] = {}
    for path in (out / "annotate").glob("*.parquet"):
        doc_ids = pq.read_table(path, columns=["doc_id"])["doc_id"].to_pylist()
        signatures |= zip(doc_ids, np.load(path.with_suffix(".signatures.npy")), strict=True)
    rows, found = ledger.read(out).compute(), []
    for row in rows[rows["fate"] == "near_duplicate"].to_dict("records"):
        equal = signatures[row["doc_id"]] == signatures[row["kept_by"]]
        similarity = float(equal.mean())
        direct = any(equal[b * 8 : b * 8 + 8].all() for b in range(14)) and similarity >= threshold
        found.append((int(row["cluster"]), similarity, direct))
    return pd.DataFrame(found, columns=["cluster", "similarity", "direct"])


def chained_texts() -> list[str]:
    """Forty documents, each a few words from the one before, and others."""
    random = np.random.default_rng(3)
    words = sentences(random, 150).split(" ")
    texts = []
    for step in range(40):
        words[4 * step : 4 * step + 3] = [f"new{step}", f"word{step}", f"here{step}"]
        texts.append(" ".join(words))
    return [*texts, *(sentences(random, 150) for _ in range(80))]


@pytest.fixture(scope="module")
def chained(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chained")
    corpus = write_corpus(folder / "corpus", chained_texts())
    small = ["tokenizer.train.vocab_size=400", "splits.bytes=20 KB"]
    assert run_job(corpus, folder / "out", cluster, *small) == 0
    return folder / "out"


def test_documents_linked_through_others_are_counted(finished: Path, chained: Path) -> None:
    for out, at_least in ((finished, 0), (chained, 5)):
        expected, found = by_hand(out), report.read(out)["near_duplicates"]["chains"]
        assert found["documents_linked_through_others"] == (~expected["direct"]).sum() >= at_least
        indirect = expected[~expected["direct"]]
        assert found["clusters_with_such_documents"] == indirect["cluster"].nunique()
        bins = np.minimum((expected["similarity"] * BINS).astype(int), BINS - 1)
        assert found["similarity_to_kept_histogram"] == np.bincount(bins, minlength=BINS).tolist()


def test_the_largest_clusters_have_samples(chained: Path) -> None:
    expected = by_hand(chained).groupby("cluster").agg(["size", "min"])["similarity"]
    first = report.read(chained)["near_duplicates"]["chains"]["shown"][0]
    assert first["removed"] == expected["size"].max()
    assert first["cluster"] == expected["size"].idxmax()
    assert first["documents"] == first["removed"] + 1 == sum(first["sources"].values())
    assert first["least_similarity_to_kept"] == expected["min"][first["cluster"]] < 0.6
    assert [one["doc_id"] for one in first["kept"]] == [first["samples"][0]["kept_by"]]
    texts = chained_texts()
    assert all(
        text.startswith(one["excerpt"][:100]) for one in first["samples"] for text in [texts[one["record"]]]
    )
    page = (chained / "report" / "index.html").read_text()
    assert f"cluster of {first['documents']} documents" in page


def test_what_was_compared_is_in_the_report_and_no_run_changes_it(
    corpus: Path, cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["near_duplicates.verify=signature", "near_duplicates.threshold=0.85"]
    outs = [tmp_path / "a", tmp_path / "b"]
    for out, splits in zip(outs, ("1 MB", "40 KB"), strict=True):
        assert run_job(corpus, out, cluster, *settings, f"splits.bytes={splits}") == 0
    near = report.read(outs[0])["near_duplicates"]
    assert sum(near["similarity_histogram"]) == near["candidate_pairs"] > near["pairs_below_threshold"] > 0
    assert near["in_clusters_by_scope"] == {
        "corpus": {
            "documents": near["documents_in_clusters"],
            "clusters": near["clusters"],
            "removed": near["documents_in_clusters"] - near["clusters"],
        }
    }
    expected = by_hand(outs[0], 0.85)
    assert near["chains"]["documents_linked_through_others"] == (~expected["direct"]).sum()
    assert digests(outs[0], "report", "ledger") == digests(outs[1], "report", "ledger")
    printed = capsys.readouterr().out
    assert f"{near['candidate_pairs']:,} pairs of candidates were compared" in printed
    assert "peak MB of a worker" in printed


def test_each_job_says_what_it_cost(finished: Path) -> None:
    cost = read_json(finished / "annotate" / "manifest.json")["cost"]
    assert cost["seconds"] > 0
    assert cost["spilled_bytes"] >= 0
    assert cost["shuffled_bytes"] >= 0
    if Path("/proc/self/clear_refs").exists():
        assert cost["peak_worker_bytes"] > 20e6


def test_what_each_scope_would_remove(corpus: Path, cluster: str, tmp_path: Path) -> None:
    from jobs.run import main

    def found(name: str, *extra: str) -> dict[str, dict[str, int]]:
        arguments = ["--output", str(tmp_path / name), "--scheduler", cluster, "--until", "near_duplicates"]
        assert main([*settings(corpus, *extra), *arguments]) == 0
        figures = read_json(tmp_path / name / "near_duplicates" / "manifest.json")["figures"]
        return dict(figures["in_clusters_by_scope"])

    every = found("corpus", "near_duplicates.compare_scopes=true")
    by_crawl = found("crawl", "near_duplicates.scope=crawl")
    assert list(every) == ["corpus", "crawl", "source"]
    assert by_crawl == {scope: every[scope] for scope in ("corpus", "crawl")}
    for what in ("documents", "removed"):
        assert 0 < every["crawl"][what] < every["corpus"][what] == every["source"][what]
