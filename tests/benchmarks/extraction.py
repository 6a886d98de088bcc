"""Extraction: pages in, their main text out.

The 181 pages of the article extraction benchmark (news, 174 KB on average, UTF-8). `jobs.steps.extraction.extract` over
them in batches of 8 MiB, as readers give them, in turns with the engine called directly on the decoded pages in this
process. Counted is the CPU time of this process and of its children, which a busy machine disturbs least. Bar: at
least 1 / 1.1 of the engine's own rate.

The table of quality is that benchmark's own measure (its `evaluate.py`), of the text that comes out of `extract` and
of the engine's. Its first line is the text that the benchmark published for trafilatura 2.0.
"""

import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import psutil
import pyarrow as pa

from jobs.pages import engines
from jobs.steps.extraction import Extracted, extract
from tests.benchmarks.measure import RUNS, Result, aligned

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "html" / "articles"
BATCH_BYTES = 8 * 2**20
TIMES_ENGINE = 1 / 1.1
NGRAM = 4
ENGINES = {"resiliparse": 4, "trafilatura": 1}  # and rounds over the pages in a run


@dataclass(frozen=True)
class Settings:
    """The defaults."""

    engine: str
    seconds: float = 5
    memory: int = 2**30
    body: int = 64 * 2**20
    pdf: bool = False


@dataclass(frozen=True)
class Article:
    """A page, and its article's text by hand."""

    name: str
    html: bytes
    text: str


def articles(folder: Path = FOLDER) -> list[Article]:
    truth = json.loads((folder / "ground-truth.json").read_text())
    return [
        Article(
            name, gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes()), entry["articleBody"]
        )
        for name, entry in sorted(truth.items())
    ]


# ---------------------------------------------------------------- quality


def ngrams(text: str) -> Counter[tuple[str, ...]]:
    """Runs of four words, with their counts; a shorter text is one run."""
    words = re.findall(r"\w+", text)
    runs = (tuple(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1)))
    return Counter(run for run in runs if run)


def quality(pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Mean precision, mean recall and the F1 of the two, of (true, found) texts; a text without words has none."""
    precisions, recalls = [], []
    for true, found in pairs:
        expected, given = ngrams(true), ngrams(found)
        common = (expected & given).total()
        if given:
            precisions.append(common / given.total())
        if expected:
            recalls.append(common / expected.total())
    precision, recall = mean(precisions), mean(recalls)
    return {"precision": precision, "recall": recall, "F1": 2 * precision * recall / (precision + recall)}


def quality_table(pages: Sequence[Article]) -> str:
    lines = [["181 articles", "precision", "recall", "F1"]]
    published = json.loads((FOLDER / "output" / "trafilatura.json").read_text())["output"]
    found = {"trafilatura 2.0, published": [published[page.name]["articleBody"] for page in pages]}
    for engine in ENGINES:
        found[f"{engine} alone"] = directly(pages, engine)
        found[f"{engine}, ours"] = [text for batch in ours(pages, engine) for text in batch.text.to_pylist()]
    for what, texts in found.items():
        score = quality(zip((page.text for page in pages), texts, strict=True))
        lines.append([what, *(f"{value:9.4f}" for value in score.values())])
    return aligned(lines)


# ---------------------------------------------------------------- speed


def directly(pages: Sequence[Article], engine: str) -> list[str]:
    extractor = engines.load(engine)
    return [extractor(page.html.decode()) or "" for page in pages]


def ours(pages: Sequence[Article], engine: str) -> list[Extracted]:
    return [extract(content, kinds, Settings(engine)) for content, kinds in batches(pages)]


def batches(pages: Sequence[Article]) -> list[tuple[pa.LargeBinaryArray, pa.LargeStringArray]]:
    """Bodies and types of consecutive pages, of 8 MiB at most."""
    found: list[list[bytes]] = [[]]
    for page in pages:
        if sum(map(len, found[-1])) + len(page.html) > BATCH_BYTES:
            found.append([])
        found[-1].append(page.html)
    html = pa.scalar("text/html; charset=utf-8", pa.large_string())
    return [(pa.array(batch, pa.large_binary()), pa.repeat(html, len(batch))) for batch in found]


def cpu_seconds(function: Callable[[], object]) -> float:
    """CPU time that a call takes of this process and of its children, all of which outlive it."""

    def now() -> float:
        children = [child.cpu_times() for child in psutil.Process().children()]
        return time.process_time() + sum(child.user + child.system for child in children)

    begun = now()
    function()
    return now() - begun


def measure() -> list[Result]:
    pages = articles()
    print(quality_table(pages), end="\n\n")
    return [rates(pages, engine, rounds) for engine, rounds in ENGINES.items()]


def rates(pages: Sequence[Article], engine: str, rounds: int) -> Result:
    extractor, prepared = engines.load(engine), batches(pages)
    settings, bodies = Settings(engine), [page.html for page in pages]

    def run_ours() -> None:
        for content, kinds in prepared * rounds:
            extract(content, kinds, settings)

    def run_engine() -> None:
        for body in bodies * rounds:
            extractor(body.decode())

    run_ours()  # starts the child
    turns = [(cpu_seconds(run_ours), cpu_seconds(run_engine)) for _ in range(RUNS)]
    total = rounds * len(pages)
    return Result(
        f"extraction, {engine}, news pages",
        "pages/s",
        [total / seconds for seconds, _ in turns],
        "the engine alone",
        [total / seconds for _, seconds in turns],
        times=TIMES_ENGINE,
    )
