"""Batches against earlier ones: the kept documents are those of one corpus under the policy `first`."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import ledger, report, trace, verify
from jobs.pipeline.duplicates import against, candidates, dropped, equal, near
from jobs.pipeline.duplicates.exact import hashing
from jobs.pipeline.duplicates.keep import THIS_RUN, Policy
from jobs.pipeline.paths import SplitPaths
from jobs.run import main
from jobs.runtime import folders
from jobs.runtime.checkpoint import read_json, write_json
from jobs.settings.duplicates import Keep
from kernels import minhash
from tests.conftest import corpus_texts
from tests.conftest import settings as job_settings
from tests.servers import s3_server

BANDS, ROWS = 4, 2
FIRST = Policy(Keep(policy="first"))
KEPT = ("train", "validation", "length.min_tokens")


# ---------------------------------------------------------------- the steps alone, over any cuts


class Corpus:
    """Documents in their order, and the steps on them as tasks do them, batch by batch."""

    def __init__(self, folder: Path, doc_ids: list[int], hashes: list[int], signatures: np.ndarray) -> None:
        self.folder, self.doc_ids = folder, doc_ids
        self.table = pa.table(
            {
                "doc_id": pa.array(doc_ids, pa.uint64()),
                "source": ["a"] * len(doc_ids),
                "crawl": pa.nulls(len(doc_ids), pa.string()),
                "text_hash": pa.array([bytes([n]) * 16 for n in hashes], pa.binary(16)),
                "n_words": np.full(len(doc_ids), 9),
                "fate": pa.nulls(len(doc_ids), pa.string()),
            }
        )
        self.signatures = signatures

    def kept(self, cuts: list[int]) -> tuple[set[int], set[int]]:
        """Documents that are kept of the batches between the cuts, and those of them that were linked later."""
        outs: list[Path] = []
        kept: set[int] = set()
        linked: set[int] = set()
        shutil.rmtree(self.folder, ignore_errors=True)
        for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(self.doc_ids)], strict=True)):
            out = self.folder / f"{number:03d}"
            paths = SplitPaths(out / "annotate", "split")
            paths.folder.mkdir(parents=True)
            pq.write_table(self.table.slice(begin, end - begin), paths.rows)
            np.save(paths.signatures, self.signatures[begin:end])
            dropped.write(out / "url_duplicates", *np.empty((4, 0), np.uint64))
            self._exact(out, outs)
            gone, now_linked = self._near(out, outs)
            exact = set(dropped.Dropped(out / "exact_duplicates").doc_id.tolist())
            kept |= set(self.doc_ids[begin:end]) - gone - exact
            linked |= now_linked
            outs.append(out)
        return kept, linked

    def _exact(self, out: Path, before: list[Path]) -> None:
        step = equal.Step(hashing(False), "corpus", FIRST, ("url_duplicates",))
        rows = [equal.hash_rows(SplitPaths(out / "annotate", "split"), 0, step)]
        rows += [
            equal.earlier_rows(SplitPaths(old / "annotate", "split"), 0, number, step, "exact_duplicates")
            for number, old in enumerate(before)
        ]
        found = equal.decide(pd.concat(rows), "corpus")
        doc_ids, kept_by, kept_in = equal.resolved(found)
        for kept, number in zip(kept_by, kept_in, strict=True):
            whose = before[number] if number < THIS_RUN else out
            assert kept in pq.read_table(whose / "annotate" / "split.parquet")["doc_id"].to_pylist()
        assert found["corpus"].sum() == len(doc_ids)
        dropped.write(out / "exact_duplicates", doc_ids, kept_by, kept_in, np.empty(0, np.uint64))

    def _near(self, out: Path, before: list[Path]) -> tuple[set[int], set[int]]:
        compared = candidates.Compared("corpus", tuple(near.EARLIER))
        splits = [SplitPaths(one / "annotate", "split") for one in (out, *before)]
        rows = [candidates.band_rows(paths, BANDS, ROWS, compared=compared) for paths in splits]
        forests = [candidates.forest_of_buckets(pd.concat(rows)), *map(near.known_links, before)]
        stars, marks = near._stars(candidates.merge_forests(pd.concat(forests)))
        near._write(out, stars, marks)
        np.save(out / "nodes.npy", stars[:, 0])
        ranks = near.ranks_of_split(splits[0], 0, out, FIRST).sort_values("doc_id")
        entries = pd.concat(
            [
                near.ENTRIES,
                *(
                    near.entries_of_split(paths, 0, number, out / "nodes.npy", FIRST)
                    for number, paths in enumerate(splits[1:])
                ),
            ]
        ).sort_values("doc_id")
        choice = near.chosen(
            stars, ranks["rank"].to_numpy(np.uint64), ranks["protected"].to_numpy(bool), entries
        )
        ours = ~choice.earlier
        (out / near.NAME).mkdir()
        near._write(
            out / near.NAME,
            near.named_anew(stars[ours]),
            marks,
            kept_by=choice.kept_by[ours],
            kept_in=choice.kept_in[ours],
        )
        gone = ours & (choice.kept_by != stars[:, 0])
        for kept, number in zip(choice.kept_by[gone], choice.kept_in[gone], strict=True):
            whose = before[number] if number < THIS_RUN else out
            assert kept in pq.read_table(whose / "annotate" / "split.parquet")["doc_id"].to_pylist()
        return set(stars[gone, 0].tolist()), set(stars[choice.linked, 0].tolist())


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[int], list[int], np.ndarray, list[int]]:
    """doc_ids, hashes, signatures of few values so that many agree, and where batches are cut."""
    d = draw(st.integers(2, 24))
    ids = draw(st.lists(st.integers(1, 2**64 - 1), min_size=d, max_size=d, unique=True))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    signatures = random.integers(0, draw(st.integers(2, 9)), (d, BANDS * ROWS), dtype=np.uint32)
    hashes = random.integers(0, draw(st.integers(1, 40)), d).tolist()
    cuts = draw(st.lists(st.integers(1, d - 1), max_size=4, unique=True).map(sorted))
    return ids, hashes, signatures, cuts


Made = tuple[list[int], list[int], np.ndarray, list[int]]


def kept(folder: Path, made: Made) -> tuple[set[int], set[int], set[int]]:
    """Documents kept of all at once and of batches one by one, and those that a later batch linked to another."""
    ids, hashes, signatures, cuts = made
    corpus = Corpus(folder / "out", ids, hashes, signatures)
    at_once, none = corpus.kept([])
    assert not none
    return at_once, *corpus.kept(cuts)


@settings(max_examples=15, deadline=None)
@given(corpora())
def test_batches_keep_what_one_corpus_keeps(tmp_path_factory: pytest.TempPathFactory, made: Made) -> None:
    at_once, one_by_one, linked = kept(tmp_path_factory.mktemp("batches"), made)
    assert linked <= one_by_one
    assert one_by_one - linked == at_once


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(corpora())
def test_batches_keep_what_one_corpus_keeps_at_length(
    tmp_path_factory: pytest.TempPathFactory, made: Made
) -> None:
    at_once, one_by_one, linked = kept(tmp_path_factory.mktemp("batches"), made)
    assert linked <= one_by_one
    assert one_by_one - linked == at_once


def test_a_match_to_a_dropped_document_counts_and_a_link_between_two_kept_ones_is_listed(
    tmp_path: Path,
) -> None:
    # 10 - 20 - 30 is a chain, 40 stands alone, 50 links 40 to the chain.
    signatures = np.arange(5 * 8, dtype=np.uint32).reshape(5, 8) + 100
    for a, b, band in ((0, 1, 0), (1, 2, 1), (2, 4, 2), (3, 4, 3)):
        signatures[b, 2 * band : 2 * band + 2] = signatures[a, 2 * band : 2 * band + 2]
    corpus = Corpus(tmp_path / "out", [50, 40, 30, 20, 10], list(range(5)), signatures)
    assert corpus.kept([]) == ({50}, set())
    kept, linked = corpus.kept([4])
    assert kept == {50, 20}
    assert linked == {20}
    assert near.Clusters(tmp_path / "out" / "001" / near.NAME).kept_by.tolist() == [50]


def test_earlier_runs_that_know_nothing_of_each_other(tmp_path: Path) -> None:
    """Both hold the text: neither's document is dropped, and the first run's is named; a protected one stays."""
    rows = []
    spared = Policy(Keep(policy="first", drop_only_from=("b",)))
    step = equal.Step(hashing(False), "corpus", spared, ())
    for number, source in enumerate("aab"):
        paths = SplitPaths(tmp_path / str(number) / "annotate", "split")
        paths.folder.mkdir(parents=True)
        columns = {
            "doc_id": pa.array([10 * number + 1], pa.uint64()),
            "source": [source],
            "crawl": pa.nulls(1, pa.string()),
            "text_hash": pa.array([b"x" * 16], pa.binary(16)),
            "fate": pa.nulls(1, pa.string()),
        }
        pq.write_table(pa.table(columns), paths.rows)
        dropped.write(tmp_path / str(number) / "exact_duplicates", *np.empty((4, 0), np.uint64))
        rows += [equal.earlier_rows(paths, 0, number, step, "exact_duplicates")] if number < 2 else []
        ours = equal.hash_rows(paths, 0, step)  # of the source a at first
        if number == 0:
            ours_of_a = ours.assign(node=np.uint64(99), kept_by=np.uint64(99))
    found = equal.decide(pd.concat([*rows, ours, ours_of_a]), "corpus")
    doc_ids, kept_by, kept_in = equal.resolved(found)
    assert (doc_ids.tolist(), kept_by.tolist(), kept_in.tolist()) == ([21], [1], [0])
    assert found.loc[found["kind"] == equal.REPEATED, "node"].tolist() == [99]
    assert [int(found[name].sum()) for name in ("corpus", "crawl", "source")] == [1, 1, 0]


# ---------------------------------------------------------------- whole runs

ON = [
    "url_duplicates.enabled=true",
    "exact_duplicates={enabled: true, normalise: {case: true}}",
    "keep.policy=first",
    "length.min_tokens=8",
    "tokenizer.train.vocab_size=400",
    "scurve.documents=2",
    "splits.bytes=20 KB",
]


def write_batch(folder: Path, number: int, texts: list[str], urls: list[str]) -> Path:
    folder.mkdir()
    table = pa.table({"text": texts, "url": urls, "dump": [f"CC-{i % 2}" for i in range(len(texts))]})
    half = len(texts) // 2
    pq.write_table(table.slice(0, half), folder / f"{number}-0.parquet", row_group_size=20)
    pq.write_table(table.slice(half), folder / f"{number}-1.parquet", row_group_size=20)
    return folder


def go(cluster: str, out: Path, batches: dict[str, Path], *extra: str, against: tuple[Path, ...] = ()) -> int:
    listed = ", ".join(f"{{name: {name}, path: '{path}'}}" for name, path in batches.items())
    options = [word for old in against for word in ("--against", str(old))]
    arguments = job_settings(None, f"sources=[{listed}]", *ON, *extra)
    return main([*arguments, *options, "--output", str(out), "--scheduler", cluster])


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three batches with equal URLs, equal texts and near-copies within and across them."""
    folder = tmp_path_factory.mktemp("batches")
    texts = corpus_texts(240, seed=11)
    texts[170:175] = [text.upper() for text in texts[10:15]]
    urls = [f"https://e.org/{i}" for i in range(240)]
    urls[100:110], urls[200:205] = urls[20:30], urls[90:95]
    return {
        f"b{i}": write_batch(folder / f"b{i}", i, texts[80 * i : 80 * i + 80], urls[80 * i : 80 * i + 80])
        for i in range(3)
    }


@pytest.fixture(scope="module")
def outs(batches: dict[str, Path], cluster: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Each batch against all before it."""
    folder = tmp_path_factory.mktemp("outs")
    made: list[Path] = []
    for name, path in batches.items():
        assert go(cluster, folder / name, {name: path}, against=tuple(made)) == 0
        made.append(folder / name)
    return made


def kept_of(rows: pd.DataFrame) -> set[int]:
    return set(rows.loc[rows["fate"].isin(KEPT), "doc_id"].astype(np.uint64))


def test_batches_one_after_another_keep_what_one_run_keeps(
    batches: dict[str, Path], outs: list[Path], cluster: str, tmp_path: Path
) -> None:
    assert go(cluster, tmp_path / "all", batches) == 0
    at_once = kept_of(ledger.read(tmp_path / "all").compute())
    rows = [ledger.read(out).compute() for out in outs]
    assert "kept_in" not in rows[0]
    linked = {
        doc_id
        for out in outs[1:]
        for doc_id in pq.read_table(out / "near_duplicates" / near.LINKED)["doc_id"].to_pylist()
    }
    kept = set.union(*map(kept_of, rows))
    assert linked <= kept
    assert kept - linked == at_once
    last = rows[2]
    of_others = last[last["kept_in"].notna()]
    assert set(of_others["fate"]) == set(ledger.DUPLICATES)
    assert set(of_others["kept_in"]) == {str(outs[0]), str(outs[1])}
    assert of_others["kept_by"].isin(pd.concat(rows[:2])["doc_id"]).all()
    section = report.read(outs[2])["against"]
    assert f">{outs[1]}</th>" in (outs[2] / "report" / "index.html").read_text()
    assert sum(one["url_duplicate"] for one in section["outputs"]) >= 5
    assert (
        section["earlier_documents_linked"]
        == pq.read_metadata(outs[2] / "near_duplicates" / near.LINKED).num_rows
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra",
    [
        ["near_duplicates.verify=exact", "near_duplicates.threshold=0.8", "near_duplicates.scope=crawl"],
        ["near_duplicates.verify=signature", "near_duplicates.threshold=0.8", "near_duplicates.tree_edges=0"],
        ["near_duplicates.scope=crawl", "exact_duplicates.scope=crawl", "url_duplicates.scope=crawl"],
    ],
    ids=["exact", "signature", "scope"],
)
def test_batches_with_verification_and_scopes(
    batches: dict[str, Path], cluster: str, tmp_path: Path, extra: list[str]
) -> None:
    assert go(cluster, tmp_path / "all", batches, *extra) == 0
    made: list[Path] = []
    for name, path in batches.items():
        assert go(cluster, tmp_path / name, {name: path}, *extra, against=tuple(made)) == 0
        made.append(tmp_path / name)
    rows = [ledger.read(out).compute() for out in made]
    linked = {
        doc_id
        for out in made[1:]
        for doc_id in pq.read_table(out / "near_duplicates" / near.LINKED)["doc_id"].to_pylist()
    }
    kept = set.union(*map(kept_of, rows))
    assert kept - linked == kept_of(ledger.read(tmp_path / "all").compute())
    assert rows[2]["kept_in"].notna().sum() > 3


def of_a_template() -> tuple[list[str], list[str]]:
    """Texts of two batches, whose signatures have three values; alike are two documents with two equal ones.

    The first is a cluster by the values T and U of its documents. In the second there are so many other documents with
    T, or with U, that these are no more compared with each other there; and ten that have T and the third value of one.
    """
    words = np.array([f"word{i}" for i in range(6000)])
    hashes = np.array([minhash.minhash(word, minhash.hash_seeds(3, 42), 1) for word in words])
    decisive = np.argsort(
        hashes + np.where((hashes > 3 * 2**30).sum(axis=1, keepdims=True) == 2, 0, 2**33), axis=0
    )
    t, u, *z = decisive[0, 0], decisive[0, 1], *decisive[:10, 2]
    bounds = hashes[t, 0], hashes[u, 1], hashes[z, 2].max()
    rest = iter(words[(hashes > bounds).all(axis=1)])

    def more(n: int) -> str:
        return " ".join(itertools.islice(rest, n))

    first = [f"{words[t]} {words[u]} {more(1)}", *(f"{words[t]} {words[u]} {word}" for word in words[z])]
    second = [f"{words[one]} {more(8)}" for one in (t, u) for _ in range(150)]
    return first, [*second, *(f"{words[t]} {more(8)} {word}" for word in words[z])]


@pytest.mark.slow
def test_what_an_earlier_run_dropped_leads_to_what_it_kept_where_a_bucket_has_grown(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    near_settings = "{ngram: 1, hashes: 3, bands: 3, rows: 1, verify: signature, threshold: 0.6}"
    settings = [f"near_duplicates={near_settings}", "length.min_tokens=0", "tokenizer.train.vocab_size=260"]
    paths = {
        f"b{number}": write_batch(tmp_path / f"b{number}", number, texts, [""] * len(texts))
        for number, texts in enumerate(of_a_template())
    }
    outs = [tmp_path / "out-0", tmp_path / "out-1"]
    assert go(cluster, outs[0], {"b0": paths["b0"]}, *settings) == 0
    assert len(kept_of(ledger.read(outs[0]).compute())) == 1
    assert go(cluster, outs[1], {"b1": paths["b1"]}, *settings, against=(outs[0],)) == 0
    rows = ledger.read(outs[1]).compute()
    assert (rows["kept_in"].notna().sum(), len(kept_of(rows))) == (10, 300)

    monkeypatch.setattr(near, "known_links", lambda _: near.FOREST)
    assert go(cluster, tmp_path / "wrong", {"b1": paths["b1"]}, *settings, against=(outs[0],)) == 1
    assert "otherwise than what earlier runs kept of their clusters says" in capsys.readouterr().out


@pytest.mark.slow
def test_protected_sources_stay_and_nothing_is_written_to_the_earlier_run(
    batches: dict[str, Path], outs: list[Path], cluster: str, tmp_path: Path
) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in outs[0].rglob("*") if p.is_file()}

    before = state()
    both = {"b1": batches["b1"], "b2": batches["b2"]}
    assert go(cluster, tmp_path / "out", both, "keep.drop_only_from=[b1]", against=(outs[0],)) == 0
    rows = ledger.read(tmp_path / "out").compute()
    assert set(rows.loc[rows["fate"].isin(ledger.DUPLICATES), "source"]) == {"b1"}
    assert rows["kept_in"].notna().any()
    assert state() == before


@pytest.mark.slow
def test_an_earlier_run_behind_a_url(batches: dict[str, Path], outs: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("upath", reason="an output behind a URL needs the extra `remote`")
    with s3_server() as server:
        name = f"{server.url}/old"
        folders.located(server.url).fs.put(f"{outs[0]}/", f"{name}/", recursive=True)
        arguments = job_settings(None, f"sources=[{{name: b1, path: '{batches['b1']}'}}]", *ON)
        out = tmp_path / "out"
        assert main([*arguments, "--against", name, "--output", str(out), "--workers", "2"]) == 0
        remote, local = (ledger.read(one).compute() for one in (out, outs[1]))
        assert remote["kept_by"].equals(local["kept_by"])
        assert set(remote["kept_in"].dropna()) == {name}
        gone = remote[remote["kept_in"].notna()].iloc[0]
        assert trace.explain(out, int(gone["doc_id"]))[1]["out"] == name


def test_trace_goes_on_in_the_earlier_run(outs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    rows = ledger.read(outs[2]).compute()
    gone = rows[rows["kept_in"] == str(outs[0])].iloc[0]
    chain = trace.explain(outs[2], int(gone["doc_id"]))
    assert [row["out"] for row in chain[:2]] == [None, str(outs[0])]
    assert chain[1]["doc_id"] == gone["kept_by"]
    assert trace.main([str(outs[2]), "--document", str(gone["doc_id"])]) == 0
    assert f"kept in {outs[0]}: doc_id {gone['kept_by']}: " in " ".join(capsys.readouterr().out.split())


def test_the_same_command_does_nothing_and_another_index_does_the_steps_again(
    batches: dict[str, Path], outs: list[Path], cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go(cluster, outs[1], {"b1": batches["b1"]}, against=(outs[0],)) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_verify_finds_what_is_not_so(outs: list[Path], tmp_path: Path) -> None:
    assert list(verify.check_duplicates(verify.Output(outs[2]))) == []
    assert list(verify.check_clusters(verify.Output(outs[2]))) == []
    copy = tmp_path / "copy"
    shutil.copytree(outs[2], copy)
    path = ledger.files(copy)[0]
    table = pq.read_table(path)
    whole = table.to_pandas(types_mapper=pd.ArrowDtype)

    def problems(frame: pd.DataFrame) -> list[str]:
        pq.write_table(pa.Table.from_pandas(frame, schema=table.schema, preserve_index=False), path)
        output = verify.Output(copy)
        return [*verify.check_duplicates(output), *verify.check_clusters(output)]

    for fate in ledger.DUPLICATES:
        row = whole.index[(whole["fate"].astype(str) == fate) & whole["kept_in"].notna()][0]
        other = whole.copy()
        other.loc[row, "kept_by"] = other.loc[row, "kept_by"] + 1  # a document that is not there
        assert any(problem.startswith(f"{fate}: ") for problem in problems(other))
        other = whole.copy()
        other.loc[row, "kept_in"] = str(outs[other.loc[row, "kept_in"] == str(outs[0])])  # the wrong run's
        assert problems(other)
        other = whole.copy()
        other.loc[row, ["fate", "kept_by", "kept_in"]] = [
            "train",
            None,
            None,
        ]  # kept, though it is a duplicate
        assert any(problem.startswith(f"{fate}: ") for problem in problems(other))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("near_duplicates.ngram=4", "near_duplicates.ngram: 5, but here it is 4"),
        ("near_duplicates.hash_seed=7", "near_duplicates.hash_seed: 42, but here it is 7"),
        ("near_duplicates={bands: 16, rows: 7}", "near_duplicates.bands: 14, but here it is 16"),
        ("near_duplicates.scope=crawl", "near_duplicates.scope: corpus, but here it is crawl"),
        (
            "near_duplicates={verify: exact, threshold: 0.8}",
            "near_duplicates.threshold: none, but here it is 0.8",
        ),
        ("url_duplicates.www=true", "url_duplicates.www: false, but here it is true"),
        (
            "exact_duplicates.normalise.unicode=true",
            "exact_duplicates.normalise.unicode: false, but here it is true",
        ),
        ("exact_duplicates.enabled=false", "exact_duplicates.enabled: true, but here it is false"),
    ],
)
def test_an_index_made_with_other_settings_is_refused(
    batches: dict[str, Path], outs: list[Path], cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    setting: str, said: str,
) -> None:  # fmt: skip
    out = tmp_path / "out"
    assert go(cluster, out, {"b1": batches["b1"]}, setting, against=(outs[0],)) == 2
    error = capsys.readouterr().err
    assert said in error.replace("None", "none")
    assert str(outs[0]) in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_what_is_no_index_is_refused(
    batches: dict[str, Path],
    outs: list[Path],
    cluster: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(*against: Path, batch: str = "b2", out: Path = tmp_path / "out") -> str:
        assert go(cluster, out, {batch: batches[batch]}, against=against) == 2
        return capsys.readouterr().err

    assert "is not a finished run" in refused(tmp_path / "nothing")
    assert "is not a finished run" in refused(
        next(batches["b1"].rglob("*.*")) if batches["b1"].is_dir() else batches["b1"]
    )
    unfinished = tmp_path / "unfinished"
    shutil.copytree(outs[0], unfinished)
    (unfinished / "manifest.json").unlink()
    assert "the last run stopped before its end" in refused(unfinished)
    assert f"was made against {outs[0]}; name that before it" in refused(outs[1])
    assert f"was made against {outs[0]}; name that before it" in refused(outs[1], outs[0])
    assert "once more; remove it" in refused(outs[0], outs[0])
    assert "the output of this very run" in refused(outs[0], out=outs[0])
    assert "give the source another name" in refused(outs[0], batch="b0")
    other_python = Path(shutil.copytree(outs[0], tmp_path / "other"))
    manifest = read_json(other_python / "annotate" / "manifest.json")
    manifest["figures"]["unicode"] = "3.2.0"
    write_json(other_python / "annotate" / "manifest.json", manifest)
    assert f"{other_python}, which was made with Unicode 3.2.0, but this Python has" in refused(other_python)


def test_an_index_is_the_same_however_long_its_jobs_took(outs: list[Path], tmp_path: Path) -> None:
    again = Path(shutil.copytree(outs[0], tmp_path / "again"))
    manifest = read_json(again / "near_duplicates" / "manifest.json")
    manifest["cost"]["seconds"] += 1
    write_json(again / "near_duplicates" / "manifest.json", manifest)
    assert against.read(str(again)).identity == against.read(str(outs[0])).identity
