"""The annotate pass: snappy Parquet in, signatures, token store and ledger rows committed.

`annotate_split` over the splits of each corpus as the main job runs it: row groups of 1,000 documents,
splits of 8 MiB, a trained tokenizer of 32,768 ids, one document in 500 encoded again by the reference, files fsynced.
Each run is a process of its own with the environment of a Dask worker (`dask_config.yaml`). It annotates the corpus'
first split before the clock starts: the kernels are then loaded and the encoder has seen some text, but none that is
timed. Bar: 25 MB of text a second; source code, which the pipeline is not made for, has none.

In turns with it, datatrove's signature step and `tokenizers` (same tokenizer) over 2 MB of the first corpus: their
times added, nothing read and no ids kept.

The stage table comes from timing the functions where the pass calls them, without the other stages they call.
"""

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import yaml

from jobs import sources
from jobs.pipeline import annotate
from jobs.runtime import checkpoint
from jobs.runtime.cluster import configuration_file
from jobs.sources import batches
from jobs.tokens import encoder
from kernels import minhash, packing
from tests.benchmarks.corpora import FOLDER, Corpus, corpora, tokenizer
from tests.benchmarks.measure import RUNS, Result, aligned, clock, in_fresh_process, seconds
from tests.benchmarks.referees import referees
from tests.benchmarks.signature import SAMPLE_BYTES, megabytes

MB_PER_SECOND = 25
STAGES = {
    "read and decode Parquet": (sources, "read"),
    "check UTF-8": (batches, "valid_utf8"),
    "signature": (minhash, "signatures"),
    "encode": (encoder.Encoder, "encode"),
    "encode again, reference": (encoder.Encoder, "check"),
    "text hashes": (annotate, "text_hashes"),
    "token hashes": (packing, "slice_hashes"),
    "lay out the token store": (annotate, "lay_out"),
    "write files": (annotate, "_commit"),
    "checksums of files": (checkpoint, "describe"),
    "fsync": (os, "fsync"),
}
REST = "the rest: ledger rows"


@dataclass
class Stages:
    """Seconds by stage, each without the stages it calls."""

    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _running: list[str] = field(default_factory=lambda: [REST])
    _since: float = field(default_factory=clock)

    def enter(self, stage: str) -> None:
        self._charge()
        self._running.append(stage)

    def leave(self) -> None:
        self._charge()
        self._running.pop()

    def _charge(self) -> None:
        now = clock()
        self.spent[self._running[-1]] += now - self._since
        self._since = now

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time charged to a stage; of a generator, each step."""

        def call(*arguments: Any, **options: Any) -> Any:
            self.enter(stage)
            try:
                value = function(*arguments, **options)
            finally:
                self.leave()
            return self._steps(stage, value) if isinstance(value, Iterator) else value

        return call

    def _steps(self, stage: str, values: Iterator[Any]) -> Iterator[Any]:
        while True:
            self.enter(stage)
            try:
                value = next(values)
            except StopIteration:
                return
            finally:
                self.leave()
            yield value


@dataclass(frozen=True)
class Pass:
    """One run over a corpus but its first split."""

    n_bytes: int
    seconds: float
    elapsed: float
    stages: dict[str, float]

    @property
    def rate(self) -> float:
        """MB/s."""
        return self.n_bytes / 1e6 / self.seconds


def step(corpus: Corpus, folder: Path, tokens: Path) -> annotate.Step:
    """The settings of the preset `sample`."""
    return annotate.Step(
        folder=folder,
        sources={corpus.name: corpus.source},
        fingerprint="benchmark",
        ngram=minhash.NGRAM,
        hashes=minhash.N_HASHES,
        hash_seed=minhash.SEED,
        order_seed=1337,
        encoder=encoder.Spec(str(tokens)),
        dtype="uint16",
        check_share=0.002,
    )


def one_pass(corpus: Corpus, tokens: Path) -> Pass:
    """Warm up on the first split, measure the others."""
    first, *others = corpus.splits()
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, ExitStack() as patches:
        settings = step(corpus, Path(folder), tokens)
        annotate.annotate_split(first, settings)
        stages = Stages()
        for stage, (owner, name) in STAGES.items():
            patches.enter_context(patch.object(owner, name, stages.timed(stage, getattr(owner, name))))
        n_bytes = 0

        def run() -> None:
            nonlocal n_bytes
            for split in others:
                n_bytes += int(annotate.annotate_split(split, settings)["n_bytes"].sum())

        stages.enter(REST)
        stages.spent.clear()
        begun = time.perf_counter()
        taken = seconds(run)
        elapsed = time.perf_counter() - begun
        stages.leave()
    return Pass(n_bytes, taken, elapsed, dict(stages.spent))


def worker_environment() -> AbstractContextManager[object]:
    """What `dask_config.yaml` sets for workers, for the processes started in the block."""
    settings = yaml.safe_load(configuration_file().read_text())["distributed"]["nanny"]
    return patch.dict(os.environ, {k: str(v) for k, v in settings["pre-spawn-environ"].items()})


def measure() -> list[Result]:
    found = corpora()
    tokens = tokenizer(found)
    sample = found[0].sample(SAMPLE_BYTES)
    passes: dict[str, list[Pass]] = {corpus.name: [] for corpus in found}
    theirs = []
    with referees(sample, tokens) as tools:
        for _ in range(RUNS):
            with worker_environment():
                for corpus in found:
                    passes[corpus.name].append(in_fresh_process(one_pass, corpus, tokens))
            theirs.append(megabytes(sample) / (tools.seconds("datatrove") + tools.seconds("tokenizers")))
    for corpus in found:
        print(stage_table(corpus, passes[corpus.name]), end="\n\n")
    return [
        Result(
            f"annotate, {corpus.what}",
            "MB/s",
            [one.rate for one in passes[corpus.name]],
            tool="datatrove signature + tokenizers" if corpus is found[0] else "",
            theirs=theirs if corpus is found[0] else (),
            at_least=None if corpus.name == "code" else MB_PER_SECOND,
        )
        for corpus in found
    ]


def stage_table(corpus: Corpus, passes: list[Pass]) -> str:
    """Milliseconds for a MB of text by stage, medians of the runs, the largest first."""
    megabyte = passes[0].n_bytes / 1e6
    cost = {
        stage: median(1e3 * one.stages.get(stage, 0.0) / megabyte for one in passes)
        for stage in [*STAGES, REST]
    }
    total = sum(cost.values())
    lines = [
        [stage, f"{ms:7.2f}", f"{ms / total:6.1%}"]
        for stage, ms in sorted(cost.items(), key=lambda entry: -entry[1])
    ]
    core = median(one.seconds / one.elapsed for one in passes)
    heading = f"annotate, {corpus.what}: ms for each MB of {megabyte:.0f} MB; the core was ours {core:.0%} of the time"
    return f"{heading}\n" + aligned([*lines, ["together", f"{total:7.2f}", ""]])
