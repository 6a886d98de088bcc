"""URL, exact and near-duplicates together: against a slow reference, whatever the partitions, scope and policy."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import ledger, report, trace, verify
from jobs.pipeline.duplicates import equal
from jobs.pipeline.duplicates.canonical_urls import canonical_forms
from jobs.pipeline.duplicates.exact import hashing
from jobs.pipeline.duplicates.keep import Policy, descending
from jobs.pipeline.duplicates.urls import hashing as url_hashing
from jobs.pipeline.paths import SplitPaths
from jobs.settings.duplicates import Keep, UrlDuplicates
from kernels import permutation
from tests.conftest import corpus_texts, digests, run_job

CRAWLS = (None, "CC-MAIN-2013-20", "CC-MAIN-2024-10")
POLICIES = ("random", "longest", "score", "earliest", "latest", "source", "first")


def preference(row: dict, place: int, keep: Keep) -> tuple:  # type: ignore[type-arg]
    """What the kept document of several has the smallest of."""
    crawl = row["crawl"]
    by = {
        "random": int(
            permutation.keyed_hash(np.array([row["doc_id"]], np.uint64), permutation.key("keep", keep.seed))[
                0
            ]
        ),
        "longest": -row["n_bytes"],
        "score": np.inf if row["score"] is None or np.isnan(row["score"]) else -row["score"],
        "earliest": (crawl is None, crawl or ""),
        "latest": (crawl is None, [-ord(c) for c in crawl or ""]),
        "source": [*keep.sources, row["source"]].index(row["source"]),
        "first": place,
    }
    protected = bool(keep.drop_only_from) and row["source"] not in keep.drop_only_from
    return not protected, by[keep.policy], row["doc_id"]


def naive_dropped(rows: list[dict], keep: Keep, within: str) -> dict[int, int]:  # type: ignore[type-arg]
    """Dropped document -> the one kept, the slow way."""
    groups = defaultdict(list)
    for place, row in enumerate(rows):
        if row["fate"] is None:
            label = None if within == "corpus" else row[within] or ""
            groups[row["text_hash"], label].append((preference(row, place, keep), row["doc_id"]))
    return {
        doc_id: min(group)[1]
        for group in groups.values()
        for (unprotected, *_), doc_id in group
        if unprotected and doc_id != min(group)[1]
    }


@st.composite
def corpora(draw: st.DrawFn) -> list[dict]:  # type: ignore[type-arg]
    row = st.fixed_dictionaries(
        {
            "doc_id": st.integers(1, 2**64 - 1),
            "source": st.sampled_from(["a", "b", "c"]),
            "crawl": st.sampled_from(CRAWLS),
            "score": st.sampled_from([None, float("nan"), -1.5, -0.0, 0.0, 3.25]),
            "n_bytes": st.integers(0, 3),
            "text_hash": st.integers(0, 4).map(lambda n: bytes([n]) * 16),
            "fate": st.sampled_from([None, None, None, "language.keep"]),
        }
    )
    return draw(st.lists(row, min_size=1, max_size=30, unique_by=lambda row: row["doc_id"]))


@settings(max_examples=150, deadline=None)
@given(
    corpora(),
    st.sampled_from(POLICIES),
    st.sampled_from(["corpus", "crawl", "source"]),
    st.sampled_from([(), ("a",), ("a", "c")]),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_what_is_dropped_is_the_same_in_any_partitioning(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict],  # type: ignore[type-arg]
    name: str,
    within: str,
    drop_only_from: tuple[str, ...],
    size: int,
    buckets: int,
) -> None:
    keep = Keep(policy=name, sources=("b", "a") if name == "source" else (), drop_only_from=drop_only_from)
    step = equal.Step(hashing(False), within, Policy(keep, tuple(filter(None, CRAWLS))), ())
    folder = tmp_path_factory.mktemp("splits")
    schema = pa.schema(
        [
            ("doc_id", pa.uint64()),
            ("source", pa.string()),
            ("crawl", pa.string()),
            ("score", pa.float64()),
            ("n_bytes", pa.int64()),
            ("text_hash", pa.binary(16)),
            ("fate", pa.string()),
        ]
    )
    keys = []
    for start in range(0, len(rows), size):
        paths = SplitPaths(folder, str(start))
        pq.write_table(pa.Table.from_pylist(rows[start : start + size], schema), paths.rows)
        keys.append(equal.hash_rows(paths, start, step))
    shuffled = pd.concat(keys)
    found = pd.concat(
        equal.decide(shuffled[shuffled["high"] % np.uint64(buckets) == b], within) for b in range(buckets)
    )
    doc_ids, kept_by, _ = equal.resolved(found)
    expected = naive_dropped(rows, keep, within)
    assert dict(zip(doc_ids.tolist(), kept_by.tolist(), strict=True)) == expected
    for other in ("corpus", "crawl", "source"):
        assert found[other].sum() == len(naive_dropped(rows, keep, other))
    kept = [row for row in rows if row["fate"] is None and row["doc_id"] not in expected]
    hashes = [row["text_hash"] for row in kept]
    repeated = {row["doc_id"] for row in kept if hashes.count(row["text_hash"]) > 1}
    assert set(found.loc[found["kind"] == equal.REPEATED, "node"].tolist()) == repeated


def test_ranks_sort_as_the_numbers_do() -> None:
    floats = [np.nan, None, -np.inf, -2.5, -0.0, 0.0, 1e-300, 7.0, np.inf]
    ranks = descending(pa.chunked_array([pa.array(floats, pa.float64())])).tolist()
    assert ranks[0] == ranks[1] > ranks[2] > ranks[3] > ranks[4] == ranks[5] > ranks[6] > ranks[7] > ranks[8]
    whole = descending(pa.chunked_array([pa.array([-(2**63), -1, 0, 2**53, 2**53 + 1], pa.int64())])).tolist()
    assert whole == sorted(whole, reverse=True)
    assert len(set(whole)) == 5


def forms(urls: list[str | None], **rules: object) -> list[str]:
    text, offsets = canonical_forms(pa.array(urls, pa.string()), url_hashing(UrlDuplicates(**rules)).rules)
    return [bytes(text[a:b]).decode(errors="surrogateescape") for a, b in pairwise(offsets)]


@pytest.mark.parametrize(
    ("rule", "one", "other"),
    [
        ("ignore_scheme", "http://a.org/b", "https://a.org/b"),
        ("lower_host", "http://a.org/b", "http://A.Org/b"),
        ("default_port", "http://a.org/b", "http://a.org:80/b"),
        ("default_port", "https://a.org/b", "https://a.org:443/b"),
        ("percent_encoding", "http://a.org/~b%2F", "http://a.org/%7eb%2f"),
        ("percent_encoding", "http://a.org/é?é", "http://a.org/%c3%A9?%C3%a9"),
        ("dot_segments", "http://a.org/c", "http://a.org/./b/%2e%2E/c"),
        ("fragment", "http://a.org/b", "http://a.org/b#c"),
        ("trailing_slash", "http://a.org/b?c", "http://a.org/b/?c"),
    ],
)
def test_each_rule_of_urls_can_be_switched(rule: str, one: str, other: str) -> None:
    first, second = forms([one, other])
    assert first == second
    first, second = forms([one, other], **{rule: False})
    assert first != second


def test_what_stays_apart_and_what_is_left_out() -> None:
    assert (
        len(set(forms(["http://a.org/b", "http://a.org/B", "http://u@a.org/b", "http://a.org:8080/b"]))) == 4
    )
    assert len(set(forms(["http://www.a.org/", "http://a.org"]))) == 2
    assert len(set(forms(["http://www.a.org/", "http://a.org"], www=True))) == 1
    assert forms(["http://a.org/?utm_source=x&p=1&UTM_y=2&fbclid=3", "http://a.org/b?utmost=1"]) == [
        "a.org?p=1",
        "a.org/b?utmost=1",
    ]
    assert forms(["not a url", "-", "n/a", "a.org/b"]) == ["", "", "", "a.org/b"]
    assert forms(["http://a.org/?gclid=1", "http://münchen.de/ä", " ", None]) == [
        "a.org",
        "xn--mnchen-3ya.de/ä",
        "",
        "",
    ]


@given(st.text(st.sampled_from("hHtTpPsS:/?#&=%aA2fF@.w80é"), max_size=30))
def test_urls_of_any_kind_have_a_form_no_longer_than_they_are(url: str) -> None:
    for found in (*forms([url]), *forms(["http://" + url], lower_host=False)):
        assert len(found.encode(errors="surrogateescape")) <= len(url.encode()) + 7


def write(folder: Path, texts: list[str], urls: list[str | None], crawls: list[str]) -> Path:
    folder.mkdir()
    table = pa.table({"text": texts, "url": pa.array(urls, pa.string()), "dump": crawls})
    half = len(texts) // 2
    for i, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=40)
    return folder


def test_a_run_with_everything_on(cluster: str, tmp_path: Path) -> None:
    texts = corpus_texts(240, seed=3)
    texts += [texts[i].upper().replace(" ", "  ") for i in range(20)] + texts[20:40]
    urls = [f"http://e.org/{i}" for i in range(240)] + [f"https://E.org/{100 + i}/#x" for i in range(40)]
    urls[5] = urls[6] = None
    crawls = [f"CC-MAIN-20{10 + i % 3}-05" for i in range(280)]
    folder = write(tmp_path / "corpus", texts, urls, crawls)
    on = [
        "url_duplicates.enabled=true",
        "exact_duplicates={enabled: true, normalise: {case: true, white_space: true, unicode: true}}",
        "length.min_tokens=8",
        "tokenizer.train.vocab_size=400",
    ]
    for name, extra in {
        "latest": ["keep.policy=latest"],
        "crawl": ["keep.policy=first", "exact_duplicates.scope=crawl", "near_duplicates.scope=crawl"],
        "off": ["keep.policy=longest", "url_duplicates.enabled=false"],
    }.items():
        out = tmp_path / name
        assert run_job(folder, out, cluster, *on, *extra, "splits.bytes=20 KB") == 0
        rows = ledger.read(out).compute()
        fates = rows["fate"].astype(str).value_counts()
        assert fates.get("url_duplicate", 0) == (0 if name == "off" else 40)
        assert (fates.get("exact_duplicate", 0) >= 40) == (name == "off")
        section = report.read(out)["exact_duplicates"]["documents_removed_by_scope"]
        assert section["corpus"] >= section["crawl"]
    figures = json.loads((tmp_path / "off" / "exact_duplicates" / "manifest.json").read_text())["figures"]
    assert figures["rows_shuffled"] == len(texts)
    again = tmp_path / "again"
    assert run_job(folder, again, cluster, *on, "keep.policy=longest", "url_duplicates.enabled=false") == 0
    assert digests(again) == digests(tmp_path / "off")
    gone = rows[rows["fate"] == "exact_duplicate"].iloc[0]
    first, second, *_ = trace.explain(again, int(gone["doc_id"]))
    assert (first["fate"], first["kept_by"]) == ("exact_duplicate", second["doc_id"])
    _swap_kept(again)
    assert any(
        problem.startswith("exact_duplicate: ") for problem in verify.check_duplicates(verify.Output(again))
    )


def _swap_kept(out: Path) -> None:
    """Make the ledger say that a duplicate of a text was dropped for another document's sake."""
    path = ledger.files(out)[0]
    table = pq.read_table(path)
    kept_by = table["kept_by"].to_pylist()
    row = table["fate"].to_pylist().index("exact_duplicate")
    kept_by[row] = kept_by[row] + 1
    at = table.schema.get_field_index("kept_by")
    pq.write_table(table.set_column(at, "kept_by", pa.array(kept_by, pa.uint64())), path)


def test_drop_only_from_one_source(cluster: str, tmp_path: Path) -> None:
    texts = corpus_texts(120, seed=4)
    both = [("mine", texts), ("theirs", texts[:60] + texts[:30])]
    listed = []
    for name, of_source in both:
        n = len(of_source)
        write(tmp_path / name, of_source, [None] * n, ["c"] * n)
        listed.append(f"{{name: {name}, path: '{tmp_path / name}'}}")
    out = tmp_path / "out"
    extra = [
        f"sources=[{', '.join(listed)}]",
        "exact_duplicates.enabled=true",
        "keep.drop_only_from=[mine]",
        "length.min_tokens=8",
        "tokenizer.train.vocab_size=400",
        "splits.bytes=20 KB",
    ]
    assert run_job(tmp_path, out, cluster, *extra) == 0
    rows = ledger.read(out).compute()
    assert set(rows.loc[rows["fate"].isin(ledger.DUPLICATES), "source"]) == {"mine"}
    assert (rows["fate"] == "exact_duplicate").sum() == 60
    in_corpus = report.read(out)["near_duplicates"]["in_clusters_by_scope"]["corpus"]
    assert in_corpus["removed"] == (rows["fate"] == "near_duplicate").sum() > 0
    assert report.read(out)["duplicates"]["warnings"][0].startswith("source 'mine': 5")


def test_fine_webs_natural_repeats(shared: Path, cluster: str, tmp_path: Path) -> None:
    """3,000 documents, 2,800 different texts."""
    found = pa.concat_tables([pq.read_table(p) for p in sorted((shared / "fineweb").glob("*.parquet"))])
    column = "text" if "text" in found.column_names else found.column_names[0]
    texts = found[column].to_pylist()
    out = tmp_path / "out"
    extra = ["exact_duplicates.enabled=true", "keep.policy=first", "validation.fraction=0.01"]
    assert run_job(shared / "fineweb", out, cluster, *extra) == 0
    rows = ledger.read(out).compute()
    assert len(texts) == len(rows) == 3000
    dropped = rows["fate"] == "exact_duplicate"
    assert dropped.sum() == len(texts) - len(set(texts)) == 200
    seen: set[str] = set()
    repeats = [text in seen or seen.add(text) is not None for text in texts]
    assert dropped.tolist() == repeats
