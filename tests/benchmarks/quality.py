"""Quality rules: text in, every statistic, the edited text and the fates out.

`jobs.steps.quality.filtered` with the default order over the Arrow buffers, compiled before; over 1 MB of the first
corpus in turns with datatrove's four filters, which need some ten seconds for it. `other_tools` says what is timed
there. Ours computes every statistic of all five rule sets of every document; datatrove stops at the first rule that
drops one. Bars: 20 MB/s, and 100 times datatrove.
"""

from collections.abc import Callable

import pyarrow as pa

from jobs.settings.quality import Quality
from jobs.steps.quality import filtered
from jobs.text import text_buffers
from tests.benchmarks.corpora import corpora
from tests.benchmarks.measure import RUNS, Result, seconds
from tests.benchmarks.referees import referees

SAMPLE_BYTES, TURNS = 1_000_000, 3
MB_PER_SECOND, TIMES_DATATROVE = 20, 100
RULES = Quality(enabled=True)


def measure() -> list[Result]:
    found = corpora()
    results = []
    for corpus in found:
        run = rate(corpus.sample(20_000_000))
        run()
        results.append(
            Result(
                f"quality rules, {corpus.what}", "MB/s", [run() for _ in range(RUNS)], at_least=MB_PER_SECOND
            )
        )
    sample = found[0].sample(SAMPLE_BYTES)
    run, other = rate(sample), "datatrove's quality filters"
    run()
    with referees(sample) as tools:
        turns = [(run(), megabytes(sample) / tools.seconds(other)) for _ in range(TURNS)]
    ours, theirs = zip(*turns, strict=True)
    what = f"quality rules, 1 MB of {found[0].what}"
    return [*results, Result(what, "MB/s", ours, other, theirs, times=TIMES_DATATROVE)]


def rate(text: pa.LargeStringArray) -> Callable[[], float]:
    """What measures MB/s over some documents."""
    return lambda: megabytes(text) / seconds(lambda: filtered(text, RULES))


def megabytes(text: pa.LargeStringArray) -> float:
    return len(text_buffers(text)[0]) / 1e6
