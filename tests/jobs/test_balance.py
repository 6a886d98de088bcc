"""Warnings about filters that keep a source, a crawl or a domain far out of proportion."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import ledger
from jobs.config import Source
from jobs.report import balance
from jobs.settings.quality import Quality
from tests.conftest import run_job
from tests.jobs.test_quality import SHORT, prose

RULE = "quality.gopher_quality.min_words"
ON = [Source(name=name, path="x", quality=Quality(enabled=True)) for name in ("web", "books")]


def rows(groups: dict[tuple[str, str, str], tuple[int, int]]) -> pd.DataFrame:
    """A ledger with so many documents of each source, crawl and host, kept and dropped by RULE."""
    documents = [
        {"source": source, "crawl": crawl, "url": f"https://www.{host}/{i}", "fate": fate}
        for (source, crawl, host), (kept, dropped) in groups.items()
        for fate, n in ((ledger.TRAIN, kept), (RULE, dropped))
        for i in range(n)
    ]
    return ledger.frame(pa.Table.from_pylist(documents))


def found(frame: pd.DataFrame, sources: list[Source] = ON) -> list[tuple[str, str, str]]:
    tallied = frame.astype(str).assign(documents=1)
    rules = balance.rules(tallied, sources)
    return [
        (one["rule"], one["kind"], one["name"])
        for one in balance.worst(balance.unlike(balance.groups(frame), rules))
    ]


def test_groups_far_out_of_proportion_are_found() -> None:
    frame = rows(
        {
            ("web", "2020", "good.org"): (900, 50),
            ("web", "2021", "bad.org"): (10, 90),  # a tenth, of a nearly kept whole
            ("web", "2020", "small.org"): (0, 49),  # too few documents
            ("web", "2020", "half.org"): (50, 49),  # more than half of the share of all
        }
    )
    assert found(frame) == [(RULE, "crawl", "2021"), (RULE, "domain", "bad.org")]


def test_what_is_kept_above_proportion_is_found_too() -> None:
    frame = rows(
        {
            ("web", "", "a.org"): (45, 865),
            ("web", "", "b.org"): (60, 40),
            ("books", "", "c.org"): (37, 468),
        }
    )
    assert found(frame) == [(RULE, "domain", "b.org")]


def test_chance_is_not_named() -> None:
    """One in three of hundreds of small groups is kept; some are far off, none beyond chance."""
    random = np.random.default_rng(0)
    kept = random.binomial(50, 0.33, 800)
    assert (kept < 50 * 0.33 / 2).any()
    assert found(rows({("web", "", f"{i}.org"): (int(k), 50 - int(k)) for i, k in enumerate(kept)})) == []


def test_sources_without_the_step_do_not_count() -> None:
    frame = rows({("web", "1", "a.org"): (20, 80), ("books", "2", "b.org"): (100, 0)})
    without = [ON[0], Source(name="books", path="x")]
    assert {name for _, _, name in found(frame)} == {"web", "1", "a.org"}
    assert found(frame, without) == []


def test_hosts() -> None:
    urls = ["https://www.A.org/x", "http://a.org:80?x", "//user@a.org", "a.org/path", None, "https://b.a.org"]
    frame = ledger.frame(
        pa.table({"source": ["web"] * 6, "crawl": ["1"] * 6, "url": urls, "fate": [ledger.TRAIN] * 6})
    )
    counted = balance.groups(frame)
    domains = counted[counted["kind"] == "domain"].set_index("name")["documents"].to_dict()
    assert domains == {"a.org": 3, "b.a.org": 1}


def test_main_job_warns(cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    texts = [*(prose(random) for _ in range(150)), *(f"{SHORT} {i}" for i in range(60))]
    hosts = ["good.org"] * 150 + ["short.org"] * 60
    urls = [f"https://{host}/{i}" for i, host in enumerate(hosts)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": texts, "url": urls}), tmp_path / "in" / "a.parquet", row_group_size=50)
    out = tmp_path / "out"
    more = ["quality.enabled=true", "tokenizer.train.vocab_size=300"]
    assert run_job(tmp_path / "in", out, cluster, *more) == 0
    (one,) = json.loads((out / "report" / "report.json").read_text())["out_of_proportion"]
    assert (one["rule"], one["kind"], one["name"]) == (RULE, "domain", "short.org")
    assert (one["documents"], one["kept"]) == (60, 0)
    assert one["share_kept_of_all"] == pytest.approx(150 / 210)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"warning: {RULE} keeps 0.0% of the 60 documents of domain short.org, and 71.4% of all" in shown
