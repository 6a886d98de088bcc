"""Evaluation sets in training documents, against seed 001's set expression."""

import gzip
import json
import string
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs import evaluation_sets, ledger
from jobs.config import load
from jobs.contamination import main
from jobs.errors import UserError
from jobs.evaluation_sets import Item, index_of
from jobs.pipeline import contamination as diff
from jobs.report import read
from jobs.runtime import checkpoint
from jobs.runtime.console import Console
from jobs.settings.contamination import Contamination
from jobs.steps.contamination import check, checked, never_found, pieces
from jobs.verify import verify
from tests import naive
from tests.conftest import digests, run_job, sentences, write_corpus

SETS = {
    "humaneval": ("HumanEval.jsonl.gz", ["prompt", "canonical_solution"], "task_id"),
    "gsm8k": ("gsm8k_test.jsonl", ["question", "answer"], None),
    "mmlu": ("mmlu.jsonl.gz", ["question", "choices"], ["set", "split", "id"]),
}
QUESTION = "Janet has sixteen ducks; each of them lays one egg a day, and she sells every egg but three for two pence."


def text(documents: Iterable[str]) -> pa.LargeStringArray:
    return pa.array(list(documents), pa.large_string())


def public_sets(shared: Path, names: Iterable[str] = SETS) -> list[dict[str, Any]]:
    return [
        {"name": name, "path": str(shared / "eval" / file), "fields": fields, "id": of_id}
        for name, (file, fields, of_id) in SETS.items()
        if name in names
    ]


def settings(sets: list[dict[str, Any]], **more: object) -> Contamination:
    return Contamination.model_validate({"sets": sets, **more})


def written(folder: Path, *rows: dict[str, Any], name: str = "set.jsonl") -> dict[str, Any]:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"name": "quiz", "path": str(folder / name), "fields": list(rows[0])}


def eval_grams(items: Iterable[Item], n: int = 13, least: int = 8) -> set[str]:
    """The n-grams of whole texts; texts and first fields that are shorter whole."""
    found: set[str] = set()
    for item in items:
        found.update(naive.ngrams(naive.gpt3_words("\n".join(item.fields)), n))
        for part in ("\n".join(item.fields), *item.fields[:1]):
            words = naive.gpt3_words(part)
            if least <= len(words) < n:
                found.add(" ".join(words))
    return found


def is_contaminated(document: str, grams: set[str], n: int = 13, least: int = 8) -> bool:
    """Seed 001's set expression, of each length that there is."""
    words = naive.gpt3_words(document)
    return any(gram in grams for length in range(least, n + 1) for gram in naive.ngrams(words, length))


# ---------------------------------------------------------------- decisions


def planted(item: Item, random: np.random.Generator, around: str) -> list[str]:
    """An item in the spellings that must be found, and some that must not."""
    verbatim = "\n".join(item.fields)
    words = verbatim.split()
    marks = random.choice(list(string.punctuation), len(words))
    shuffled = random.permutation(words)
    return [
        f"{around}\n{verbatim}\n{around}",
        f"{around} {verbatim.upper()} {around}",
        " ".join(f"{word}{mark}" for word, mark in zip(words, marks, strict=True)),
        "\n".join(words),
        f"{around} {' '.join(words[: random.integers(1, len(words) + 1)])} {around}",
        " ".join(shuffled),
    ]


def web_texts(shared: Path) -> list[str]:
    paths = sorted((shared / "fineweb").glob("*.parquet"))
    return [one for path in paths for one in pq.read_table(path, columns=["text"])["text"].to_pylist()]


@pytest.mark.parametrize("name", SETS)
def test_decisions_are_those_of_the_set_expression(name: str, shared: Path, tmp_path: Path) -> None:
    [one] = public_sets(shared, [name])
    opened = gzip.open if one["path"].endswith(".gz") else open
    with opened(one["path"], "rt", encoding="utf-8") as file:  # type: ignore[operator]
        (tmp_path / "some.jsonl").write_text("".join(file.readlines()[::37]), encoding="utf-8")
    sets = settings([{**one, "path": str(tmp_path / "some.jsonl")}])
    items = evaluation_sets.items(sets.sets[0])
    grams = eval_grams(items)
    random = np.random.default_rng(0)
    around = web_texts(shared)[:40]
    chosen = random.choice(len(items), min(40, len(items)), replace=False)
    documents = [one for i in chosen for one in planted(items[i], random, around[i % 40][:400])] + around
    found = checked(text(documents), sets).fate.to_pylist()
    expected = [is_contaminated(document, grams) for document in documents]
    assert [fate == f"contaminated.{name}" for fate in found] == expected
    too_short = [len(naive.gpt3_words("\n".join(items[i].fields))) < 8 for i in chosen]
    for k, short in enumerate(
        too_short
    ):  # verbatim, re-cased and over lines: always, as long as there is enough of it
        assert short or all(expected[6 * k + j] for j in (0, 1, 3))
    assert not all(expected)


@pytest.mark.slow
def test_no_planted_item_is_missed_and_ten_thousand_documents_are_decided_alike(shared: Path) -> None:
    """About three minutes, of the set expression."""
    sets = settings(public_sets(shared))
    items = [item for one in sets.sets for item in evaluation_sets.items(one)]
    grams = eval_grams(items)
    random = np.random.default_rng(1)
    web = web_texts(shared)
    documents = [web[i % len(web)][:3000] for i in range(10_000)]
    chosen, rows = random.choice(len(items), 1000, replace=False), random.choice(10_000, 1000, replace=False)
    for i, row in zip(chosen, rows, strict=True):
        at = documents[row].find(" ", 1000)
        documents[row] = "\n".join([documents[row][:at], *items[i].fields, documents[row][at:]])
    fates = checked(text(documents), sets).fate.to_pylist()
    assert [fate is not None for fate in fates] == [
        is_contaminated(document, grams) for document in documents
    ]
    long_enough = index_of(sets).sizes[chosen] > 0
    assert long_enough.sum() > 980
    assert all(fates[row] for row in rows[long_enough])


WORDS = st.lists(st.sampled_from(["a", "B", "c'", "D.", "-", "é", "東"]), max_size=12).map(" ".join)


@hypothesis_settings(deadline=None, max_examples=60)
@given(
    st.lists(WORDS.filter(bool), min_size=1, max_size=4),
    st.lists(WORDS, max_size=4),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_any_items_and_documents(questions: list[str], texts: list[str], n: int, least: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        one = written(
            Path(folder),
            *({"question": q, "answer": a} for q, a in zip(questions, texts, strict=False)),
            {"question": questions[-1], "answer": None},
        )
        sets = settings([one], ngram=n, min_words=least)
        items = evaluation_sets.items(sets.sets[0])
        found = checked(text([*texts, *questions]), sets).fate.to_pylist()
    grams = eval_grams(items, n, least)
    assert [fate is not None for fate in found] == [
        is_contaminated(document, grams, n, min(n, least)) for document in [*texts, *questions]
    ]


@pytest.mark.parametrize("unit", ["1", "@", ".", "-", "a ", "janet ", "\u0301", "東", "." * 40 + " "])
def test_time_is_bounded_on_hostile_text(unit: str, tmp_path: Path) -> None:
    sets = [written(tmp_path, {"question": QUESTION}, {"question": "janet " * 30})]
    cut = settings(sets, action="cut", margin=1, floor=1)
    checked(text([QUESTION]), cut)
    before = time.process_time()
    found = checked(text([unit * (1_000_000 // len(unit))]), cut)
    assert time.process_time() - before < 10  # less than 1 on an idle core
    assert len(found.matches) == (unit == "janet ")


def test_share_of_an_item(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(22)]  # ten n-grams of 13
    sets = [written(tmp_path, {"question": " ".join(words)})]
    documents = text(" ".join(words[:n]) for n in (12, 13, 18, 19, 22))
    matched = checked(documents, settings(sets, match="share")).matches.to_pandas()
    assert matched.groupby("row").size().to_dict() == {1: 1, 2: 6, 3: 7, 4: 10}
    for share, expected in ((0.7, [3, 4]), (0.61, [3, 4]), (0.6, [2, 3, 4]), (1, [4]), (0.01, [1, 2, 3, 4])):
        fates = checked(documents, settings(sets, match="share", share=share)).fate.to_pylist()
        assert [i for i, fate in enumerate(fates) if fate] == expected


def test_the_first_set_names_the_fate(tmp_path: Path) -> None:
    one = written(tmp_path, {"question": QUESTION})
    sets = [{**one, "name": "b"}, {**one, "name": "a"}]
    assert checked(text([QUESTION]), settings(sets)).fate.to_pylist() == ["contaminated.b"]
    assert checked(text([QUESTION]), settings(sets, action="report")).fate.to_pylist() == [None]


def test_short_items_and_fields(tmp_path: Path) -> None:
    nine = "the quick brown fox jumps over the lazy dog"
    sets = settings(
        [written(tmp_path, {"question": nine, "answer": "no"}, {"question": "too short", "answer": "yes"})]
    )
    documents = [
        "... THE QUICK, brown fox jumps over the lazy dog",
        nine.replace("fox", "cat"),
        "too short yes",
    ]
    assert [fate is not None for fate in checked(text(documents), sets).fate.to_pylist()] == [
        True,
        False,
        False,
    ]
    assert index_of(sets).sizes.tolist() == [2, 0]


def test_sets_of_which_nothing_can_be_found_are_said(tmp_path: Path) -> None:
    short = written(tmp_path, {"question": "too short"}, {"question": "too"}, name="short.jsonl")
    both = [{**short, "name": "short"}, written(tmp_path, {"question": QUESTION}, {"question": "too short"})]
    assert never_found(settings(both)) == [
        "the evaluation set 'short' is looked for in vain: none of its items (2) has 8 words or more"
    ]
    assert never_found(settings(both, min_words=2)) == []
    assert never_found(settings([])) == []


def test_counts_of_other_columns_are_refused_in_plain_words(tmp_path: Path) -> None:
    pq.write_table(pa.table({"words": ["a"], "documents": ["b"]}), tmp_path / "other.parquet")
    cautious = settings(
        [written(tmp_path, {"question": QUESTION})], counts=str(tmp_path / "other.parquet"), max_documents=3
    )
    with pytest.raises(UserError, match="it has no columns words, of texts, and documents, of whole numbers"):
        check(cautious)


def test_the_command_looks_at_the_fields_before_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path, {"question": QUESTION})
    there = tmp_path / "there"
    there.mkdir()
    (there / "a").touch()
    command = [str(tmp_path), "--eval", one["path"], "--output", str(there), "--fields"]
    assert main([*command, "absent"]) == 2
    assert "has no field 'absent'" in capsys.readouterr().err
    assert main([*command, "question"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_boilerplate_of_the_sets(tmp_path: Path) -> None:
    prompt = "answer the following question with one letter and nothing else at all please: "
    rows = [{"question": f"{prompt}{QUESTION.split()[i]} is what number {i}"} for i in range(4)]
    sets = [written(tmp_path, *rows)]
    document = text([prompt])
    assert checked(document, settings(sets)).fate.null_count == 0
    cautious = settings(sets, max_items=3)
    assert checked(document, cautious).fate.null_count == 1
    assert index_of(cautious).boilerplate == {prompt.strip().rstrip(":"): 4}


@pytest.mark.parametrize(("items", "said"), [(20, False), (21, True)])
def test_what_many_items_share_is_said(tmp_path: Path, items: int, said: bool) -> None:
    prompt = "answer the following question with one letter and nothing else at all please: "
    rows = [{"question": f"{prompt} number {i} of {QUESTION}"} for i in range(items)]
    sets = settings([written(tmp_path, *rows)])
    matches = checked(text([prompt]), sets).matches.to_pandas().rename(columns={"row": "doc_id"})
    known = matches.assign(**{**dict.fromkeys(diff.IDENTITY, "a"), "record": 0})
    known["doc_id"] = known["doc_id"].astype("uint64")
    figures = diff.write(tmp_path, diff.Diff(known, index_of(sets), sets))
    sentence = diff.boilerplate(figures)
    assert (sentence is not None) == said
    if sentence:
        assert sentence.startswith(
            "21 items, such as quiz 1, share words that are in 1 document: 'answer the"
        )
        assert sentence in (tmp_path / "diff.md").read_text(encoding="utf-8")


def test_ngrams_of_many_documents(tmp_path: Path) -> None:
    """What a run reported tells the next which n-grams are everywhere."""
    one = written(tmp_path, {"question": QUESTION}, {"question": f"other {QUESTION} [東京é]"})
    sets = settings([one])
    words = QUESTION.split()
    documents = [*(" ".join(words[:14]) for _ in range(4)), " ".join(words[-14:])]
    matches = checked(text(documents), sets).matches.to_pandas().rename(columns={"row": "doc_id"})
    known = matches.assign(**{**dict.fromkeys(diff.IDENTITY, "a"), "record": 0})
    known["doc_id"] = known["doc_id"].astype("uint64")
    diff.write(tmp_path, diff.Diff(known, index_of(sets), sets))
    table = pq.read_table(tmp_path / "ngrams.parquet").to_pylist()
    assert [row["documents"] for row in table] == [4, 4, 1, 1]
    cautious = settings([one], counts=str(tmp_path / "ngrams.parquet"), max_documents=3)
    assert checked(text(documents), cautious).fate.to_pylist() == [*[None] * 4, "contaminated.quiz"]
    assert index_of(cautious).common == {row["words"]: 4 for row in table[:2]}
    assert index_of(cautious).sizes.tolist() == [n - 2 for n in index_of(sets).sizes]
    with pytest.raises(ValidationError, match="belong together"):
        settings([one], max_documents=3)
    with pytest.raises(
        UserError, match=r"no contamination/ngrams\.parquet of an earlier run: it cannot be read as Parquet"
    ):
        check(settings([one], counts=one["path"], max_documents=3))


# ---------------------------------------------------------------- cutting


@given(
    st.text("ab é東", min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 59), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(0, 5),
    st.integers(0, 4),
)
def test_pieces(document: str, spans: list[tuple[int, int]], margin: int, floor: int) -> None:
    spans = [(min(a, len(document) - 1), min(a + n, len(document))) for a, n in spans]
    gone = {i for a, b in spans for i in range(a - margin, b + margin)}
    kept = "".join("\0" if i in gone else character for i, character in enumerate(document))
    expected = [part.strip() for part in kept.split("\0")]
    places = [0, *np.cumsum([len(character.encode()) for character in document])]
    starts, ends = (np.array([places[span[i]] for span in spans]) for i in (0, 1))
    cut = Contamination(margin=margin, floor=floor)
    assert pieces(document, starts, ends, cut) == [part for part in expected if len(part) >= max(floor, 1)]


def test_cut(tmp_path: Path) -> None:
    sets = [written(tmp_path, {"question": QUESTION})]
    before, behind = "x " * 250, " y" * 150
    document = f"{before}{QUESTION}{behind}"
    found = checked(text([document, QUESTION, "other"]), settings(sets, action="cut"))
    assert found.text.to_pylist() == [document[:300].strip(), QUESTION, "other"]
    assert found.fate.to_pylist() == [None, "contaminated.quiz", None]
    close = checked(text([document]), settings(sets, action="cut", margin=10))
    assert close.text[0].as_py() == f"{document[:490].strip()}\n\n{behind[9:].strip()}"
    many = text([f"{'z ' * 300}{QUESTION}" * 12])
    assert checked(many, settings(sets, action="cut")).fate.to_pylist() == ["contaminated.quiz"]
    assert checked(many, settings(sets, action="cut", max_pieces=12)).fate.to_pylist() == [None]


# ---------------------------------------------------------------- files


ROWS = [
    {"question": QUESTION, "choices": ["one", "two"], "answer": 1},
    {"question": "B?", "choices": [], "answer": 2},
]


def test_formats_give_the_same_items(tmp_path: Path) -> None:
    fields = ["question", "choices", "answer"]
    lines = "".join(json.dumps(row) + "\n\n" for row in ROWS).encode()
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    expected = [(QUESTION, "one", "two", "1"), ("B?", "2")]
    for name in ("a.jsonl", "a.jsonl.gz", "a.parquet"):
        [one] = settings([{"name": "x", "path": str(tmp_path / name), "fields": fields}]).sets
        assert [item.fields for item in evaluation_sets.items(one)] == expected
    rows = f'"{QUESTION}",one,"two\nlines",1\nB?,,,2\n'
    (tmp_path / "bare.csv").write_text(rows, encoding="utf-8")
    (tmp_path / "named.csv").write_text(f"question,a,b,answer\n{rows}", encoding="utf-8")
    for name, columns in (("bare.csv", [0, 1, 2, 3]), ("named.csv", ["question", "a", "b", "answer"])):
        [one] = settings([{"name": "x", "path": str(tmp_path / name), "fields": columns}]).sets
        found = evaluation_sets.items(one)
        assert [item.fields for item in found] == [(QUESTION, "one", "two\nlines", "1"), ("B?", "", "", "2")]
        assert [item.id for item in found] == (["1", "3"] if name == "bare.csv" else ["2", "4"])


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.jsonl", None, "there is no such file"),
        ("a.jsonl", b"", "holds no item"),
        (
            "a.jsonl",
            b'{"question": "a"}\n{"answer": 1}\n',
            "a.jsonl line 2 has no field 'question'; it has answer",
        ),
        ("a.jsonl", b'{"question": "a"}\n{"question": "\xff"}\n', "a.jsonl line 2 is no UTF-8"),
        ("a.jsonl", b'{"question": "a"}\n{"question"\n', "a.jsonl line 2 is no JSON"),
        ("a.jsonl", b'{"question": "a"}\n{"question": null}\n', "a.jsonl line 2 has no text in question"),
        ("a.jsonl", b"[1]\n", "a.jsonl line 1 holds no object"),
        ("a.jsonl", b'{"question": {"a": 1}}\n', "line 1: field 'question' is an object"),
        ("a.jsonl.gz", b"no gzip", "cannot be decompressed"),
        ("a.csv", b"question,answer\na,b\nc\n", "a.csv line 3 has 1 columns, the header 2"),
        ("a.csv", b'question,answer\n"a,b\n', "a.csv line 2 is no CSV"),
        ("a.parquet", b"PAR1", "cannot be read as Parquet"),
    ],
)
def test_files_that_cannot_be_used(name: str, content: bytes | None, named: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    [one] = settings([{"name": "quiz", "path": str(tmp_path / name), "fields": ["question"]}]).sets
    with pytest.raises(UserError, match=named):
        evaluation_sets.items(one)


def test_ids_must_differ(tmp_path: Path) -> None:
    one = {**written(tmp_path, {"question": "a", "n": 1}, {"question": "b", "n": 1}), "id": "n"}
    with pytest.raises(UserError, match=r"set.jsonl line 2 has the id '1', as line 1 has"):
        evaluation_sets.items(settings([one]).sets[0])
    assert [
        item.id for item in evaluation_sets.items(settings([{**one, "id": ["question", "n"]}]).sets[0])
    ] == [
        "a/1",
        "b/1",
    ]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"path": "x.txt"}, "it should end in"),
        ({"fields": [0]}, "positions in a CSV file"),
        ({"path": "x.csv", "fields": [0, "a"]}, "positions in a CSV file"),
    ],
)
def test_settings_that_cannot_be(more: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        settings([{"name": "a", "path": "x.jsonl", "fields": ["q"], **more}])


def test_names_are_unique_and_sources_have_the_runs_sets() -> None:
    one = "{name: a, path: x.jsonl, fields: [q]}"
    with pytest.raises(UserError, match="two entries named 'a'"):
        load(settings=[f"contamination.sets=[{one}, {one}]"])
    whole = f"contamination.sets=[{one}]"
    config = load(
        settings=[whole, "sources=[{name: w, path: x}, {name: v, path: x, contamination: {sets: []}}]"]
    )
    assert [source.contamination.used for source in config.sources] == [True, False]
    with pytest.raises(UserError, match="has other settings of contamination"):
        load(settings=[whole, "sources=[{name: w, path: x, contamination: {ngram: 5}}]"])


# ---------------------------------------------------------------- the main job


@pytest.fixture(scope="module")
def quiz(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    random = np.random.default_rng(5)
    return written(tmp_path_factory.mktemp("quiz"), *({"question": sentences(random, 40)} for _ in range(6)))


@pytest.fixture(scope="module")
def documents(quiz: dict[str, Any]) -> list[str]:
    """Three of six items are in seven of 300 documents."""
    random = np.random.default_rng(6)
    texts = [sentences(random, 200) for _ in range(300)]
    questions = [json.loads(line)["question"] for line in Path(quiz["path"]).read_text().splitlines()]
    for row, item in ((3, 0), (50, 0), (99, 1), (100, 1), (200, 1), (201, 2), (299, 2)):
        texts[row] = f"{texts[row]}\n{questions[item].upper()}\n{sentences(random, 200)}"
    return texts


@pytest.mark.parametrize("action", ["drop", "cut"])
def test_main_job(
    action: str, quiz: dict[str, Any], documents: list[str], cluster: str, tmp_path: Path
) -> None:
    folder = write_corpus(tmp_path / "in", documents)
    sets = f"contamination.sets=[{{name: quiz, path: '{quiz['path']}', fields: [question]}}]"
    out = tmp_path / "out"
    more = [sets, f"contamination.action={action}", "tokenizer.train.vocab_size=300"]
    assert run_job(folder, out, cluster, *more) == 0
    assert not verify(out, Console())
    fates = ledger.read(out).compute()["fate"].value_counts()
    assert fates.get("contaminated.quiz", 0) == (7 if action == "drop" else 0)
    [found] = read(out)["contamination"]["sets"]
    assert (found["items"], found["items_found"], found["items_clean"]) == (6, 3, 3)
    assert (found["documents"], found["documents_contaminated"]) == (7, 7)
    assert found["by_source"] == {"web": 7}
    assert sum(found["by_crawl"].values()) == sum(found["by_fate"].values()) == 7
    items = pq.read_table(out / "contamination" / "items.parquet").to_pylist()
    assert [(row["item"], row["documents"], row["share"]) for row in items] == [
        ("1", 2, 1),
        ("2", 3, 1),
        ("3", 2, 1),
    ]
    of_documents = pq.read_table(out / "contamination" / "documents.parquet").to_pylist()
    assert [row["item"] for row in of_documents] == ["1", "1", "2", "2", "2", "3", "3"]
    lines = Path(quiz["path"]).read_bytes().splitlines(keepends=True)
    assert (out / "contamination" / "quiz.clean.jsonl").read_bytes() == b"".join(lines[3:])
    assert "| quiz | 6 | 3 | 3 | 3 | 0 | 7 | 7 |" in (out / "contamination" / diff.MARKDOWN).read_text()
    assert checkpoint.read_json(out / "contamination" / diff.JSON)["sets"] == [found]
    if action == "cut":
        again = tmp_path / "again"
        assert run_job(folder, again, cluster, *more, "splits.bytes=20 KB") == 0
        jobs = ("shards", "ledger", "report", "contamination")
        assert digests(out, *jobs) == digests(again, *jobs)


def test_a_finished_corpus_gives_what_its_run_reported(
    quiz: dict[str, Any],
    documents: list[str],
    cluster: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, out = write_corpus(tmp_path / "in", documents), tmp_path / "out"
    sets = f"contamination.sets=[{{name: quiz, path: '{quiz['path']}', fields: [question]}}]"
    assert (
        run_job(folder, out, cluster, sets, "contamination.action=report", "tokenizer.train.vocab_size=300")
        == 0
    )
    for path in folder.iterdir():  # without the source's text
        path.unlink()
    command = [
        str(out),
        "--eval",
        quiz["path"],
        "--fields",
        "question",
        "--name",
        "quiz",
        "--scheduler",
        cluster,
    ]
    capsys.readouterr()
    assert main(command) == 0
    assert "quiz" in capsys.readouterr().out
    reported, later = (
        checkpoint.read_json(where / diff.JSON)
        for where in (out / "contamination", tmp_path / "out-contamination-quiz")
    )
    assert reported == later
    assert later["sets"][0]["documents_contaminated"] == 7
    assert main(command) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*command, "--output", str(tmp_path / "b"), "--ngram", "0"]) == 2
    assert "contamination.ngram is 0" in capsys.readouterr().err
    assert main([*command, "--output", str(tmp_path / "c"), "--fields", "absent"]) == 2
    assert "line 1 has no field 'absent'" in capsys.readouterr().err


def test_nothing_found(quiz: dict[str, Any], tmp_path: Path) -> None:
    found = settings([quiz])
    empty = pd.DataFrame({name: pd.Series(dtype=object) for name in diff.IDENTITY})
    empty["doc_id"], empty["ngram"] = pd.Series(dtype="uint64"), pd.Series(dtype="int64")
    figures = diff.write(tmp_path, diff.Diff(empty, index_of(found), found))
    assert (figures["sets"][0]["items_found"], figures["sets"][0]["items_clean"]) == (0, 6)
    assert (tmp_path / "quiz.clean.jsonl").read_bytes() == Path(quiz["path"]).read_bytes()
    assert "Nothing was found." in (tmp_path / diff.MARKDOWN).read_text()
    assert pq.read_table(tmp_path / "items.parquet").num_rows == 0
