"""The annotate pass: snappy Parquet in, signatures, token store and ledger rows committed.

`annotate_split` over the splits of each corpus as the main job runs it: row groups of 1,000 documents,
splits of 8 MiB, a trained tokenizer of 32,768 ids, one document in 500 encoded again by the reference, files fsynced.
Each run is a process of its own with the environment of a Dask worker (`dask_config.yaml`). It annotates the corpus'
first split before the clock starts: the kernels are then loaded and the encoder has seen some text, but none that is
timed. Bar: 25 MB of text a second; source code, which the pipeline is not made for, has none. Once more with every
quality rule on, with language identification as well, and with every kind of personal data and three evaluation sets
beside these: bar 20 MB/s for the rules, 15 for the others. What these drop is not tokenized, so the share that they
keep is said beside.

In turns with it, datatrove's signature step and `tokenizers` (same tokenizer) over 2 MB of the first corpus: their
times added, nothing read and no ids kept.

The stage table comes from timing the functions where the pass calls them, without the other stages they call.
"""

import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import yaml

from jobs import ledger, sources
from jobs.config import Language
from jobs.pipeline import annotate
from jobs.runtime import checkpoint
from jobs.runtime.cluster import configuration_file
from jobs.settings.quality import FINEWEB_ORDER, Quality
from jobs.sources import batches
from jobs.steps import contamination, language, personal_data, quality
from jobs.tokens import encoder
from kernels import minhash, packing
from tests.benchmarks.contamination import PUBLIC_SETS
from tests.benchmarks.corpora import FOLDER, Corpus, corpora, tokenizer
from tests.benchmarks.measure import RUNS, Result, aligned, clock, in_fresh_process, seconds
from tests.benchmarks.personal_data import EVERY_KIND
from tests.benchmarks.referees import referees
from tests.benchmarks.signature import SAMPLE_BYTES, megabytes

MB_PER_SECOND, WITH_RULES, WITH_MORE = 25, 20, 15
RULES = {"quality": Quality(enabled=True, order=(*FINEWEB_ORDER, "additions"))}
STEPS: dict[str, dict[str, Any]] = {
    "": {},
    ", every quality rule": RULES,
    ", every quality rule and language": RULES | {"language": Language(enabled=True)},
    ", every step": RULES
    | {"language": Language(enabled=True), "personal_data": EVERY_KIND, "contamination": PUBLIC_SETS},
}
STAGES = {
    "read and decode Parquet": (sources, "read"),
    "check UTF-8": (batches, "valid_utf8"),
    "language": (language, "identify"),
    "quality rules": (quality, "filtered"),
    "personal data": (personal_data, "cleaned"),
    "evaluation sets": (contamination, "checked"),
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
COUNTED = ["documents", "dropped", "n_bytes"]


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
    kept: float  # share of the documents
    seconds: float
    elapsed: float
    stages: dict[str, float]

    @property
    def rate(self) -> float:
        """MB/s."""
        return self.n_bytes / 1e6 / self.seconds


def step(corpus: Corpus, steps: dict[str, Any], folder: Path, tokens: Path) -> annotate.Step:
    """The settings of the preset `sample`, with more steps."""
    source = corpus.source.model_copy(update=steps)
    return annotate.Step(
        folder=folder,
        sources={corpus.name: source},
        fingerprint="benchmark",
        ngram=minhash.NGRAM,
        hashes=minhash.N_HASHES,
        hash_seed=minhash.SEED,
        order_seed=1337,
        encoder=encoder.Spec(str(tokens)),
        dtype="uint16",
        check_share=0.002,
        extra=tuple(ledger.extra_columns([source])),
    )


def one_pass(corpus: Corpus, steps: dict[str, Any], tokens: Path) -> Pass:
    """Warm up on the first split, measure the others."""
    first, *others = corpus.splits()
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, ExitStack() as patches:
        settings = step(corpus, steps, Path(folder), tokens)
        annotate.annotate_split(first, settings)
        stages = Stages()
        for stage, (owner, name) in STAGES.items():
            patches.enter_context(patch.object(owner, name, stages.timed(stage, getattr(owner, name))))
        counts: Counter[str] = Counter()

        def run() -> None:
            for split in others:
                counts.update(annotate.annotate_split(split, settings)[COUNTED].sum().to_dict())

        stages.enter(REST)
        stages.spent.clear()
        begun = time.perf_counter()
        taken = seconds(run)
        elapsed = time.perf_counter() - begun
        stages.leave()
    kept = 1 - counts["dropped"] / counts["documents"]
    return Pass(counts["n_bytes"], kept, taken, elapsed, dict(stages.spent))


def worker_environment() -> AbstractContextManager[object]:
    """What `dask_config.yaml` sets for workers, for the processes started in the block."""
    settings = yaml.safe_load(configuration_file().read_text())["distributed"]["nanny"]
    return patch.dict(os.environ, {k: str(v) for k, v in settings["pre-spawn-environ"].items()})


def measure() -> list[Result]:
    found = corpora()
    tokens = tokenizer(found)
    sample = found[0].sample(SAMPLE_BYTES)
    passes: dict[tuple[str, str], list[Pass]] = defaultdict(list)
    theirs = []
    with referees(sample, tokens) as tools:
        for _ in range(RUNS):
            with worker_environment():
                for corpus, (name, steps) in product(found, STEPS.items()):
                    passes[corpus.name, name].append(in_fresh_process(one_pass, corpus, steps, tokens))
            theirs.append(megabytes(sample) / (tools.seconds("datatrove") + tools.seconds("tokenizers")))
    for corpus, name in product(found, STEPS):
        print(stage_table(corpus.what + name, passes[corpus.name, name]), end="\n\n")
    return [
        Result(
            f"annotate, {corpus.what}{name}",
            "MB/s",
            [one.rate for one in passes[corpus.name, name]],
            tool="datatrove signature + tokenizers" if corpus is found[0] and not name else "",
            theirs=theirs if corpus is found[0] and not name else (),
            at_least=None if corpus.name == "code" else bar(steps),
        )
        for corpus, (name, steps) in product(found, STEPS.items())
    ]


def bar(steps: dict[str, Any]) -> float:
    """MB/s."""
    return MB_PER_SECOND if not steps else WITH_RULES if steps == RULES else WITH_MORE


def stage_table(what: str, passes: list[Pass]) -> str:
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
    heading = (
        f"annotate, {what}: ms for each MB of {megabyte:.0f} MB, {passes[0].kept:.0%} of the documents kept; "
        f"the core was ours {core:.0%} of the time"
    )
    return f"{heading}\n" + aligned([*lines, ["together", f"{total:7.2f}", ""]])
