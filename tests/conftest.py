"""What several test modules share: small corpora of known structure, a cluster, and the main job as a user runs it."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest file first, so that it does not run alone at the end when processes share the files."""
    items.sort(key=lambda item: item.path.name != "test_readme.py")


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("needs ../shared/data beside the repository")
    return SHARED


def sentences(random: np.random.Generator, words: int) -> str:
    """English-looking text of about so many words."""
    syllables = ["ta", "ri", "no", "ke", "lu", "sham", "ber", "pon", "vi", "del", "o", "mar", "qui", "st"]
    vocabulary = ["".join(random.choice(syllables, random.integers(1, 4))) for _ in range(400)]
    chosen = random.choice(vocabulary, words)
    ends = np.where(random.random(words) < 0.08, ". ", " ")
    return "".join(f"{word}{end}" for word, end in zip(chosen, ends, strict=True)).strip().capitalize()


def corpus_texts(documents: int, seed: int = 0) -> list[str]:
    """Documents of many lengths, one in ten a near-copy of an earlier one, a few very short."""
    random = np.random.default_rng(seed)
    texts: list[str] = []
    for i in range(documents):
        if i > 10 and random.random() < 0.1:
            words = texts[random.integers(0, i)].split(" ")
            for at in random.integers(0, len(words), 1 + len(words) // 100):
                words[at] = "replaced"
            texts.append(" ".join(words))
        else:
            texts.append(sentences(random, int(random.lognormal(5, 0.8)) + 3))
    return texts


def write_corpus(folder: Path, texts: list[str], files: int = 3, row_group: int = 50) -> Path:
    """Parquet files with FineWeb-Edu's columns."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    table = pa.table(
        {
            "text": pa.array(texts, pa.string()),
            "id": [f"<urn:{i}>" for i in range(len(texts))],
            "dump": [f"CC-MAIN-20{10 + i % 7}-05" for i in range(len(texts))],
            "url": [f"https://example.org/{i}" for i in range(len(texts))],
            "score": 2.5 + 2 * random.random(len(texts)) ** 3,
        }
    )
    size = -(-len(texts) // files)
    for i in range(files):
        pq.write_table(table.slice(i * size, size), folder / f"{i:03d}.parquet", row_group_size=row_group)
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """900 documents in three files of six row groups."""
    return write_corpus(tmp_path_factory.mktemp("corpus"), corpus_texts(900))


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """Address of a scheduler with two worker processes."""
    from jobs.runtime.cluster import connected

    with connected(workers=2) as client:
        yield client.scheduler.address


SMALL = [
    "tokenizer.train.vocab_size=700",
    "tokenizer.train.sample_bytes=100 KB",
    "validation.fraction=0.02",
    "validation.tokens=null",
    "shards.tokens=50000",
    "shards.min_tokens=2000",
    "scurve.documents=10",
    "scurve.copies=5",
    "length.min_tokens=32",
]


def settings(corpus: Path | str | None, *extra: str) -> list[str]:
    """Arguments of the main job for a small corpus."""
    source = [f"sources=[{{name: web, path: '{corpus}'}}]"] if corpus else []
    return [word for setting in [*source, *SMALL, *extra] for word in ("--set", setting)]


def run_job(corpus: Path | str, out: Path, cluster: str, *extra: str) -> int:
    """The main job in this process, on the tests' cluster."""
    from jobs.run import main

    return main([*settings(corpus, *extra), "--output", str(out), "--scheduler", cluster])


def python(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """A command of the project as a user types it."""
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, **options
    )  # type: ignore[call-overload, no-any-return]


def default_interrupt() -> None:
    """In a new process, what Ctrl-C does: tests that are started in the background ignore it, and so would it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def digests(out: Path, *jobs: str) -> dict[str, str]:
    """SHA-256 of the files that must be the same bytes however they were made."""
    folders = jobs or ("shards", "ledger", "report", "tokenizer", "scurve")
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in sorted((out / folder).glob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


@pytest.fixture(scope="session")
def finished(corpus: Path, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run over the small corpus; read it, do not write to it."""
    out = tmp_path_factory.mktemp("finished") / "out"
    assert run_job(corpus, out, cluster) == 0
    return out
