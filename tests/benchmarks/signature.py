"""Signatures: text in, 112 values out.

`kernels.minhash.signatures` over the Arrow buffers of each corpus, in batches as `jobs.sources.read` gives them
(8 MiB at most), compiled before; and over 2 MB of the first corpus in turns with datatrove, which needs some four
seconds for them, datasketch and rensa. `other_tools` says what is timed there. Bars: 80 MB/s on each corpus of prose,
and 100 times datatrove.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from jobs import sources
from jobs.text import text_buffers
from kernels import minhash
from tests.benchmarks.corpora import Corpus, corpora
from tests.benchmarks.measure import RUNS, Result, seconds
from tests.benchmarks.referees import referees

SAMPLE_BYTES = 2_000_000
MB_PER_SECOND, TIMES_DATATROVE = 80, 100
SEEDS = minhash.hash_seeds()

Buffers = list[tuple[np.ndarray, np.ndarray]]


def measure() -> list[Result]:
    found = corpora()
    return [*map(whole_corpus, found), *beside_others(found[0])]


def whole_corpus(corpus: Corpus) -> Result:
    texts = [
        text_buffers(batch.text)
        for split in corpus.splits()
        for batch in sources.read(corpus.source, split, ())
        if batch.text is not None
    ]
    run = rate(texts)
    run()
    return Result(
        f"signature, {corpus.what}",
        "MB/s",
        [run() for _ in range(RUNS)],
        at_least=None if corpus.name == "code" else MB_PER_SECOND,
    )


def beside_others(corpus: Corpus) -> list[Result]:
    sample = corpus.sample(SAMPLE_BYTES)
    run = rate([text_buffers(sample)])
    run()
    others = ["datatrove", "datatrove, nothing written", "datasketch", "rensa", "shingles in Python"]
    with referees(sample) as tools:
        turns = [(run(), [megabytes(sample) / tools.seconds(other) for other in others]) for _ in range(RUNS)]
    return [
        Result(
            f"signature, 2 MB of {corpus.what}",
            "MB/s",
            [ours for ours, _ in turns],
            other,
            [theirs[place] for _, theirs in turns],
            times=TIMES_DATATROVE if other == "datatrove" else None,
        )
        for place, other in enumerate(others)
    ]


def rate(texts: Buffers) -> Callable[[], float]:
    """What measures MB/s over some batches."""
    total = sum(len(data) for data, _ in texts) / 1e6

    def signatures() -> None:
        for data, offsets in texts:
            minhash.signatures(data, offsets, SEEDS, minhash.NGRAM)

    return lambda: total / seconds(signatures)


def megabytes(text: pa.LargeStringArray) -> float:
    return len(text_buffers(text)[0]) / 1e6
