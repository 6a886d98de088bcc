"""The steps before a document is measured: the keyed sample, extraction, language; and the columns that sources add."""

import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import ledger, steps
from jobs.config import Extraction, Language, Source, Urls
from jobs.errors import UserError
from jobs.sources.batches import Batch
from jobs.steps import language
from jobs.steps.extraction import extract
from tests.conftest import digests, run_job

LANGUAGE = Language(enabled=True, keep=("en",))
GERMAN = "Das ist ein deutscher Satz, der von einem Hund und einer Katze handelt, die im Garten spielen."
ENGLISH = "This is an English sentence about a dog and a cat that play in the garden all day long."


def page(text: str) -> str:
    paragraphs = "".join(f"<p>{text}</p>" for _ in range(3))
    return f"<html><body><nav>Home Imprint</nav><article><h1>Title</h1>{paragraphs}</article></body></html>"


def batch(texts: list[str | None], first: int = 0, **columns: pa.Array) -> Batch:
    return Batch.checked(first, pa.array(texts, pa.large_string()), columns)


# ---------------------------------------------------------------- language


def test_language_and_score_are_recorded_and_decide() -> None:
    texts = [ENGLISH, GERMAN, " \n ", ENGLISH.replace(" ", "\n")]
    found = steps.documents("a", batch(texts), Source(name="web", path="x", language=LANGUAGE))
    assert found.columns["language"].to_pylist() == ["en", "de", "und", "en"]
    assert found.fate.to_pylist() == [None, "language.keep", "language.keep", None]
    strict = LANGUAGE.model_copy(update={"min_score": 1.0})
    codes, scores = language.identify(pa.array([ENGLISH], pa.large_string()), strict)
    assert language.fates(codes, scores, strict).to_pylist() == ["language.min_score"]
    every = Language(enabled=True)
    assert language.fates(codes, scores, every).null_count == 1


# ---------------------------------------------------------------- extraction


@pytest.mark.parametrize("engine", ["trafilatura", "resiliparse"])
def test_html_gives_its_main_text_in_any_order(engine: str) -> None:
    source = Source(name="web", path="x", content="html", extraction=Extraction(engine=engine))  # type: ignore[arg-type]
    pages = [page(ENGLISH), "<html></html>", page(GERMAN)]
    forward = steps.documents("a", batch([*pages]), source)
    backward = steps.documents("a", batch([*pages[::-1]]), source)
    assert forward.text.to_pylist() == backward.text.to_pylist()[::-1]
    assert ENGLISH in forward.text[0].as_py()
    assert "Imprint" not in forward.text[0].as_py()
    assert forward.fate.to_pylist() == [None, "extraction.no_text", None]
    assert forward.source_bytes.tolist() == [len(one) for one in pages]


def test_a_page_beyond_its_time_is_dropped_alone() -> None:
    nested = "<div>" * 200_000 + "x" + "</div>" * 200_000
    content = pa.array([page(ENGLISH).encode(), nested.encode(), page(GERMAN).encode()], pa.large_binary())
    kinds = pa.array(["text/html; charset=utf-8"] * 3, pa.large_string())
    started = time.monotonic()
    found = extract(content, kinds, Extraction(engine="resiliparse", seconds=0.5))
    assert time.monotonic() - started < 30
    assert found.fate.to_pylist() == [None, "extraction.timeout", None]
    assert ENGLISH in found.text[0].as_py()
    assert GERMAN in found.text[2].as_py()


def test_pages_of_an_archive_are_what_their_records_say() -> None:
    http = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=latin-1\r\n\r\n"
    contents = [
        (http + page("Käse, ".join([ENGLISH] * 2))).encode("latin-1"),
        ENGLISH.encode(),
        b"\x89PNG",
        b"",
    ]
    kinds = ["application/http; msgtype=response", "text/plain", "image/png", "text/plain"]
    records = Batch(
        np.arange(4),
        None,
        np.ones(4, bool),
        {"content_type": pa.array(kinds, pa.large_string())},
        content=pa.array(contents, pa.large_binary()),
    )
    found = steps.documents("a.warc", records, Source(name="web", path="x", format="warc"))
    assert found.fate.to_pylist() == [None, None, "extraction.content_type", "input.empty_text"]
    assert "Käse" in found.text[0].as_py()
    assert found.text[1].as_py() == ENGLISH
    assert found.source_bytes.tolist() == [len(content) for content in contents]


# ---------------------------------------------------------------- URLs


def test_what_is_blocked_is_not_extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "domains").write_text("blocked.example\n")
    (tmp_path / "words").write_text("casino\n")
    lists = Urls(domains=(str(tmp_path),), words=(str(tmp_path / "words"),))
    source = Source(name="web", path="x", content="html", urls=lists)
    addresses = [
        "http://www.blocked.example/a",
        "https://fine.example/Casino.html",
        None,
        "http://fine.example/",
    ]
    urls = pa.array(addresses, pa.large_string())
    seen: list[int] = []
    monkeypatch.setattr(steps.extraction, "extract", lambda *a: seen.append(len(a[0])) or extract(*a))
    found = steps.documents("a", batch([page(ENGLISH)] * 4, url=urls), source)
    assert found.fate.to_pylist() == ["urls.domain", "urls.word", None, None]
    assert seen == [2]


def test_lists_for_a_source_without_urls_are_refused(
    tmp_path: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "domains").write_text("blocked.example\n")
    pq.write_table(pa.table({"text": [ENGLISH]}), tmp_path / "a.parquet")
    blocked = f"urls.domains=['{tmp_path / 'domains'}']"
    assert run_job(tmp_path / "a.parquet", tmp_path / "out", cluster, blocked) == 2
    assert "source 'web': urls names lists, but no file has URLs" in capsys.readouterr().err


def test_lists_are_part_of_what_a_step_is(tmp_path: Path) -> None:
    (tmp_path / "domains").write_text("blocked.example\n")
    source = Source(name="web", path="x", urls=Urls(domains=(str(tmp_path / "domains"),)))
    before = steps.identity(source)
    (tmp_path / "domains").write_text("blocked.example\nother.example\n")
    assert steps.identity(source) != before
    with pytest.raises(UserError, match="no such file"):
        steps.check(Source(name="web", path="x", urls=Urls(words=("absent",))))


# ---------------------------------------------------------------- the sample and the main job


def test_weight_keeps_a_share_whatever_the_batches() -> None:
    source = Source(name="web", path="x", weight=0.3)
    texts: list[str | None] = [f"text {i}" for i in range(2_000)]
    whole = steps.documents("a", batch(texts), source).fate.to_pylist()
    cut = [steps.documents("a", batch(texts[i : i + 100], i), source).fate for i in range(0, 2_000, 100)]
    assert whole == pa.concat_arrays(cut).to_pylist()
    assert 500 < whole.count(None) < 700
    assert set(whole) == {None, ledger.SAMPLED_OUT}


def test_main_job_over_pages_in_two_languages_with_columns_of_ones_own(cluster: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    words = [text.split() for text in [ENGLISH] * 150 + [GERMAN] * 30]
    texts = [" ".join(random.choice(some, 40)) + "." for some in words]
    folder = tmp_path / "in"
    folder.mkdir()
    table = pa.table(
        {"text": list(map(page, texts)), "quality": [float(i) for i in range(180)], "topic": ["a", "b"] * 90}
    )
    pq.write_table(table, folder / "a.parquet", row_group_size=20)
    extra = "sources.0.extra={quality: float64, topic: string}"
    arguments = [
        "sources.0.content=html",
        "extraction.engine=resiliparse",
        "language={enabled: true, keep: [English]}",
        extra,
        "tokenizer.train.vocab_size=300",
    ]
    outs = [tmp_path / "one", tmp_path / "two"]
    for out, size in zip(outs, ("1 kB", "10 MB"), strict=True):
        assert run_job(folder, out, cluster, *arguments, f"splits.bytes={size}") == 0
    assert digests(outs[0]) == digests(outs[1])
    rows = ledger.read(outs[0]).compute()
    assert rows["quality"].tolist() == list(range(180))
    assert (rows.loc[rows["fate"] == "language.keep", "language"] != "en").all()
    assert 25 <= (rows["fate"] == "language.keep").sum() <= 35
    assert (rows["n_source_bytes"] > rows["n_bytes"]).all()
    report = json.loads((outs[0] / "report" / "report.json").read_text())
    assert report["extraction"]["pages"] == 180
    assert sum(one["documents"] for one in report["languages"]) == 180
    files = json.loads((outs[0] / "inventory" / "files.json").read_text())
    assert files["groups"][0]["inventory"]["files"][0]["path"] == "a.parquet"


def test_extra_columns_need_names_and_types_of_their_own() -> None:
    with pytest.raises(ValueError, match="which the ledger has already"):
        Source(name="web", path="x", extra={"fate": "string"})


def test_extra_values_of_another_type_are_null_counted_and_said(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    folder = tmp_path / "in"
    folder.mkdir()
    values: list[object] = [1, "2", "three", 4.5, None, [6], True, 8.0]
    lines = [
        {"text": " ".join(random.choice(ENGLISH.split(), 40)), "votes": values[i % 8], "meta": {"year": "x"}}
        for i in range(160)
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = (
        f"sources=[{{name: web, format: jsonl, path: '{folder}', extra: {{votes: int64, year: float64}}, "
        "columns: {year: meta.year}}]"
    )
    out = tmp_path / "out"
    assert run_job(folder, out, cluster, source, "tokenizer.train.vocab_size=260") == 0
    rows = ledger.read(out).compute()
    assert rows["votes"].isna().tolist() == [False, False, True, True, True, True, True, True] * 20
    figures = json.loads((out / "annotate" / "manifest.json").read_text())["figures"]
    assert figures["unfit_values"] == {"web": {"votes": 80, "year": 160}}
    assert "web: 80 values are null in the ledger's votes, since the source has what is no int64 there" in (
        capsys.readouterr().out
    )


def test_a_sample_that_is_all_there_is_says_what_became_of_the_rest(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"{ENGLISH} {i}" for i in range(20)] + [f"{GERMAN} {i}" for i in range(80)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    language = "language={enabled: true, keep: [en]}"
    assert run_job(tmp_path / "a.parquet", tmp_path / "out", cluster, language) == 2
    said = capsys.readouterr().err
    assert "ids, not for 700: it holds " in said
    assert "(half of all: validation needs the others)" in said
    assert "more were dropped as language.keep; lower tokenizer.train.vocab_size" in said
    many = [f"{ENGLISH} {i}" for i in range(3000)]
    pq.write_table(pa.table({"text": many}), tmp_path / "a.parquet")
    assert run_job(tmp_path / "a.parquet", tmp_path / "out", cluster, "tokenizer.train.vocab_size=9000") == 2
    assert "raise tokenizer.train.sample_bytes, lower" in capsys.readouterr().err


def test_two_sources_of_the_same_files_and_a_column_that_is_not_there(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jobs.run import main

    both = f"sources=[{{name: a, path: '{corpus}'}}, {{name: b, path: '{corpus}/00*.parquet'}}]"
    assert main(["--set", both, "--output", str(tmp_path / "out"), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "a and b: both read 3 files of the same path" in printed
    assert printed.count("gopher_repetition:") == 1  # the whole run's, and not once more for each source
    extra = f"sources=[{{name: a, path: '{corpus}', extra: {{votes: int64}}}}]"
    assert main(["--set", extra, "--output", str(tmp_path / "out"), "--dry-run"]) == 2
    said = capsys.readouterr()
    assert "no file has the column 'votes'; 000.parquet has text, id, dump, url, score" in said.err
    assert not said.out
