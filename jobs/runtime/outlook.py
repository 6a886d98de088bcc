"""How long a whole run still takes, from its pass over the text and from what other jobs took beside that elsewhere."""

import time
from collections.abc import Callable, Sequence

from jobs.runtime.console import Meter

PASS = "annotate"  # most of a run's time, and the yardstick of the jobs behind it

# Of the jobs behind it that every run has: seconds for each second of the pass, and seconds that do not grow with the
# corpus. Rounded from runs over 1 and 97 MB of web text on two cores; others are not worth counting.
SHARES = {
    "near_duplicates": 0.2,
    "order": 0.1,
    "validation": 0.8,
    "shards": 0.1,
    "ledger": 0.05,
    "report": 0.1,
}
FIXED = {"near_duplicates": 2.0, "scurve": 10.0, "report": 6.0}


class Outlook:
    """Of a run's jobs in order; `splits` says of how many the pass consists."""

    def __init__(self, jobs: Sequence[str], splits: Callable[[], int]) -> None:
        self._left, self._splits = list(jobs), splits
        self._seconds_of_pass: float | None = None
        self._began = 0.0

    def begin(self, job: str) -> None:
        """A job begins, the first of those that are left."""
        self._left = self._left[self._left.index(job) :]
        self._began = time.perf_counter()

    def end(self, job: str, seconds: float) -> None:
        """A job has ended, now or in an earlier run, after so many seconds."""
        if job == PASS:
            self._seconds_of_pass = seconds

    def seconds_left(self, meter: Meter) -> float | None:
        """Of the whole run, as long as `meter` runs; None before anything is known of the pass."""
        job, *later = self._left
        left = meter.seconds_left or 0.0
        seconds = self._seconds_of_pass
        if job == PASS and meter.done:
            seconds = meter.seconds / meter.done * self._splits()
        if seconds is None:
            return None
        spent = time.perf_counter() - self._began
        now = left if job == PASS else max(left, _expected(job, seconds) - spent)
        return now + sum(_expected(one, seconds) for one in later)


def _expected(job: str, seconds_of_pass: float) -> float:
    return SHARES.get(job, 0.0) * seconds_of_pass + FIXED.get(job, 0.0)
