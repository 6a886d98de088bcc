"""Our decisions and reasons beside those of datatrove's filters, on real documents and on made ones."""

import gzip
import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.corpus import build
from jobs.steps.quality import Quality, filtered
from kernels.line_rules import LineRules
from kernels.quality import GROUPS, STATISTICS, measure
from kernels.segmentation import segments
from tests import naive
from tests.conftest import ROOT
from tests.kernels.strategies import as_batch
from tests.kernels.test_quality import documents as made
from tests.kernels.test_quality import repetitive

PYTHON = ROOT / ".venv-referees" / "bin" / "python"
OURS = {
    "gopher_repetition": {"order": ["gopher_repetition"]},
    "gopher_quality": {"order": ["gopher_quality"], "gopher_quality": {"max_spaceless_words": None}},
    "c4-datatrove": {"order": ["c4"], "c4": {"preset": "c4-datatrove"}},
    "c4-fineweb": {"order": ["c4"]},
    "fineweb-code": {"order": ["fineweb"], "fineweb": {"preset": "fineweb-code"}},
}
REASONS = {
    "empty": ("min_characters", "min_lines"),
    "dup_para_frac": ("max_duplicate_paragraphs",),
    "dup_para_char_frac": ("max_duplicate_paragraph_characters",),
    "dup_line_frac": ("max_duplicate_lines",),
    "dup_line_char_frac": ("max_duplicate_line_characters",),
    **{f"top_{n}_gram": (f"max_top_{n}_gram_characters",) for n in (2, 3, 4)},
    **{f"duplicated_{n}_n_grams": (f"max_duplicate_{n}_gram_characters",) for n in range(5, 11)},
    "gopher_short_doc": ("min_words",),
    "gopher_long_doc": ("max_words",),
    "gopher_below_avg_threshold": ("min_mean_word_length",),
    "gopher_above_avg_threshold": ("max_mean_word_length",),
    "gopher_too_many_hashes": ("max_hashes_per_word",),
    "gopher_too_many_ellipsis": ("max_ellipses_per_word",),
    "gopher_too_many_bullets": ("max_bullet_lines",),
    "gopher_too_many_end_ellipsis": ("max_ellipsis_lines",),
    "gopher_below_alpha_threshold": ("min_words_with_letter",),
    "gopher_enough_stop_words": ("min_stop_words",),
    "lorem_ipsum": ("lorem_ipsum",),
    "curly_bracket": ("curly_bracket",),
    "too_few_sentences": ("min_sentences",),
    "line_punct_ratio": ("min_terminal_lines",),
    "short_line_ratio": ("max_short_lines",),
    "char_dup_ratio": ("max_duplicate_line_characters",),
    "list_ratio": ("max_line_feeds_per_word",),
}


def real_documents(shared: Path, limit: int = 4000) -> list[str]:
    texts: list[str] = []
    for path in sorted((shared / "fineweb").glob("*.parquet")):
        texts += pq.read_table(path, columns=["text"])["text"].to_pylist()
    with gzip.open(next((shared / "c4").glob("*.gz")), "rt", encoding="utf-8") as file:
        texts += [json.loads(line)["text"] for line in file]
    for path in sorted([*(shared / "web").glob("*.jsonl"), *(shared / "quality").glob("*.jsonl")]):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        texts += [text for row in rows if isinstance(text := row.get("text") or row.get("content"), str)]
    different = list(dict.fromkeys(texts))
    return different[:: max(1, len(different) // limit)]


def package_documents(folder: Path, limit: int = 2000) -> list[str]:
    """Of the built-in corpus, evenly over all of it."""
    build(folder)
    texts = [
        text for path in sorted(folder.glob("*.parquet")) for text in pq.read_table(path)["text"].to_pylist()
    ]
    different = list(dict.fromkeys(texts))
    return different[:: max(1, len(different) // limit)]


def made_documents(count: int) -> list[str]:
    """Documents as Hypothesis makes them, the same ones every time, and mosaics of them long enough for every rule."""
    random = np.random.default_rng(0)
    pieces = list(dict.fromkeys(_examples(made | repetitive, count)))
    mosaics = ["".join(random.choice(pieces, random.integers(2, 30))) for _ in range(count)]
    return list(dict.fromkeys([*pieces, *mosaics]))


def _examples(strategy: st.SearchStrategy[str], count: int) -> list[str]:
    found: list[str] = []

    @settings(max_examples=count, derandomize=True, database=None, deadline=None)
    @given(strategy)
    def collect(text: str) -> None:
        found.append(text)

    collect()
    return found


def sentences(lines: list[str]) -> list[int]:
    data, offsets = as_batch([line.encode() for line in lines])
    anything = LineRules(0, 2**31, 0, 0, 0, 0, 0)
    statistics, _, _ = measure(data, offsets, GROUPS["c4"], (), anything)
    column = [(group, name) for group, names in STATISTICS.items() for name in names].index(
        ("c4", "sentences")
    )
    return np.maximum(statistics[:, column], 1).astype(int).tolist()


def judged_by_datatrove(texts: list[str], words: str, folder: Path) -> dict[str, list[str | None]]:
    if not PYTHON.exists():
        pytest.skip("needs the other tools; run `make referees`")
    table = {"text": texts}
    if words == "ours":
        lines = [[naive.CITATION.sub("", line.strip()) for line in text.splitlines()] for text in texts]
        counts = iter(sentences([line for one in lines for line in one]))
        table["words"] = [segments(text) for text in texts]
        table["lines"] = lines
        table["sentences"] = [[next(counts) for _ in one] for one in lines]
    pq.write_table(pa.table(table), folder / "documents.parquet")
    command = [
        PYTHON,
        "-m",
        "tests.jobs.quality_referee",
        folder / "documents.parquet",
        words,
        folder / "out.parquet",
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    return pq.read_table(folder / "out.parquet").to_pydict()


def judged_by_us(texts: list[str], name: str) -> tuple[list[str | None], list[str]]:
    result = filtered(
        pa.array(texts, pa.large_string()), Quality.model_validate({"enabled": True, **OURS[name]})
    )
    return [fate and fate.rpartition(".")[2] for fate in result.fate.to_pylist()], result.text.to_pylist()


def same(ours: str | None, theirs: str | None) -> bool:
    return ours == theirs if theirs is None else ours in REASONS[theirs]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["real", "packages", "made"])
def test_same_decisions_and_reasons_with_the_same_words(kind, shared, tmp_path):
    if kind == "packages":
        texts = package_documents(tmp_path / "corpus")
    else:
        texts = real_documents(shared) if kind == "real" else made_documents(3000)
    theirs = judged_by_datatrove(texts, "ours", tmp_path)
    for name in OURS:
        ours, edited = judged_by_us(texts, name)
        differing = [
            (a, b, text)
            for a, b, text in zip(ours, theirs[name], texts, strict=True)
            if not (b == "ZeroDivisionError" or same(a, b))
        ]
        assert not differing, (name, len(differing), differing[:3])
        if name.startswith("c4"):
            kept = [i for i, fate in enumerate(ours) if fate is None]
            assert [edited[i] for i in kept] == [theirs[f"{name} text"][i] for i in kept]
        print(name, Counter(theirs[name]))


@pytest.mark.slow
def test_how_often_segmentation_decides(shared, tmp_path):
    """The figures of the presets' docstring: spaCy's words in datatrove's filters, ours in ours."""
    texts = real_documents(shared)
    theirs = judged_by_datatrove(texts, "spacy", tmp_path)
    for name in OURS:
        ours, _ = judged_by_us(texts, name)
        pairs = list(zip(ours, theirs[name], strict=True))
        decided = Counter((a, b) for a, b in pairs if (a is None) != (b is None))
        renamed = Counter((a, b) for a, b in pairs if a and b and not same(a, b))
        print(name, len(texts), "documents; decisions", decided, "reasons", renamed)
        assert sum(decided.values()) <= 0.02 * len(texts), (name, decided)
