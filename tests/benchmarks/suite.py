"""What there is to measure, by name; each function runs in a process of its own.

`encoding`, `encoder_memory` and `loader` are also programs of their own; here their figures become lines of the
table: one turn of theirs is a run of ours, timed with our clock.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from tests.benchmarks.measure import RUNS, Result, seconds


def signature() -> list[Result]:
    from tests.benchmarks import signature

    return signature.measure()


def annotate() -> list[Result]:
    from tests.benchmarks import annotate

    return annotate.measure()


def memory() -> list[Result]:
    from tests.benchmarks import memory

    return memory.measure()


def encoding() -> list[Result]:
    """Trained tokenizer of 32,768 ids, documents that the encoder has not seen."""
    from jobs.tokens import training
    from jobs.tokens.encoder import Spec
    from tests.benchmarks import encoding

    texts = encoding.documents()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(training.train(iter([texts])))
        with patch.multiple(encoding, TURNS=1, seconds=seconds):
            turns = [encoding.compare(Spec(str(path)), texts) for _ in range(RUNS)]
    theirs = [turn["tokenizers"] for turn in turns]
    return [
        Result(
            f"encoding, {what}",
            "MB/s",
            [turn[f"ours, {what}"] for turn in turns],
            "tokenizers",
            theirs,
            times=encoding.TARGET if what == "unseen documents" else None,
        )
        for what in ("unseen documents", "cold")
    ]


def encoder_memory() -> list[Result]:
    """2 GB with the cache's budget, a quarter of it without."""
    from jobs.tokens import training
    from jobs.tokens.encoder import Spec
    from tests.benchmarks import encoder_memory

    n_bytes = 2 * 10**9
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(training.train(iter([encoder_memory.source_text().decode().split("\n\n")])))
        bounded = encoder_memory.grown_mb(Spec(str(path)), n_bytes)
        unbounded = encoder_memory.grown_mb(Spec(str(path), cache_budget=2**62), n_bytes // 4)
    return [
        Result(
            "memory that encoding 2 GB adds",
            "MB",
            [bounded],
            "no budget, 0.5 GB",
            [unbounded],
            below=(encoder_memory.CACHE_BUDGET + encoder_memory.SLACK) / 1e6,
        )
    ]


def loader() -> list[Result]:
    """Each run the medians of some hundred batches."""
    from tests.benchmarks import loader

    other = "nanoGPT's random memmap batch"
    found = []
    for dtype in ("uint16", "uint32"):
        with tempfile.TemporaryDirectory() as folder, patch.multiple(loader, TURNS=loader.TURNS // RUNS):
            functions = loader.candidates(Path(folder), dtype)
            runs = [loader.medians_ms(functions) for _ in range(RUNS)]
        found += [
            Result(
                f"batch of {loader.B} x {loader.T:,}, {dtype}, {order}",
                "ms",
                [run[f"ShardLoader.batch, {order}"] for run in runs],
                "nanoGPT's",
                [run[other] for run in runs],
                below=loader.TARGET_MS,
            )
            for order in ("in order", "shuffled")
        ]
    return found


def loading() -> list[Result]:
    from tests.benchmarks import loading

    return loading.measure()


def extraction() -> list[Result]:
    from tests.benchmarks import extraction

    return extraction.measure()


def reading() -> list[Result]:
    from tests.benchmarks import reading

    return reading.measure()


def language() -> list[Result]:
    from tests.benchmarks import language

    return language.measure()


def quality() -> list[Result]:
    from tests.benchmarks import quality

    return quality.measure()


def contamination() -> list[Result]:
    from tests.benchmarks import contamination

    return contamination.measure()


def personal_data() -> list[Result]:
    from tests.benchmarks import personal_data

    return personal_data.measure()


BENCHMARKS: dict[str, Callable[[], list[Result]]] = {
    function.__name__: function
    for function in (
        signature,
        quality,
        contamination,
        personal_data,
        encoding,
        annotate,
        reading,
        extraction,
        language,
        loader,
        loading,
        memory,
        encoder_memory,
    )
}
