"""Peak resident memory of a process that annotates, each case in a process of its own.

The process has the environment of a Dask worker (`dask_config.yaml`) and what a worker has imported, and runs
`annotate_split` with a trained tokenizer of 32,768 ids over (a) every split of every corpus, (b) one
document of 200 MB of words, few of which occur twice, so that the encoder's cache finds nothing to share, (c) one
document of 200 MB of letters without a space, which is one word. The peak is the kernel's high-water mark for the
whole process (VmHWM). Bar: 2 GiB each.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.pipeline import annotate
from tests.benchmarks.annotate import step, worker_environment
from tests.benchmarks.corpora import FOLDER, Corpus, corpora, tokenizer
from tests.benchmarks.measure import Result, in_fresh_process, peak_memory

LONG_DOCUMENT = 200_000_000  # bytes
GIB = 1024.0  # MiB
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


def measure() -> list[Result]:
    found = corpora()
    tokens = tokenizer(found)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        words = _document(Path(scratch, "words"), words_of_letters)
        unbroken = _document(Path(scratch, "unbroken"), letters)
        cases = {
            "imports alone": [],
            "all corpora": found,
            "one document of 200 MB, words": [words],
            "one document of 200 MB, no space": [unbroken],
        }
        with worker_environment():
            return [
                Result(f"peak memory, {case}", "MiB", [in_fresh_process(peak, todo, tokens)], below=2 * GIB)
                for case, todo in cases.items()
            ]


def peak(corpora: list[Corpus], tokens: Path) -> float:
    """MiB at the peak of annotating every split."""
    import dask.dataframe  # noqa: F401 (a worker has them)
    import distributed  # noqa: F401

    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        for corpus in corpora:
            for split in corpus.splits():
                annotate.annotate_split(split, step(corpus, {}, Path(folder), tokens))
    return peak_memory()


def _document(folder: Path, letters_of: Callable[[], np.ndarray]) -> Corpus:
    """One long document as a corpus."""
    folder.mkdir()
    text = pa.array([letters_of().tobytes()], pa.large_binary()).cast(pa.large_string())
    pq.write_table(pa.table({"text": text}), folder / "document.parquet", compression="snappy")
    return Corpus(folder.name, folder.name, folder)


def letters() -> np.ndarray:
    """uint8[200 million] at random."""
    return np.random.default_rng(0).choice(LETTERS, LONG_DOCUMENT)


def words_of_letters() -> np.ndarray:
    """The same with a space in place of one letter in seven."""
    text = letters()
    text[np.random.default_rng(1).random(LONG_DOCUMENT) < 1 / 7] = ord(" ")
    return text
