"""What each threshold would remove alone, at every setting of it: from the ledger, in one pass on Dask."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import dask
import numpy as np
import pandas as pd
import pyarrow as pa

from jobs import ledger
from jobs.runtime.compute import columns
from jobs.steps.quality import Rule, rules_of
from jobs.trace import configuration

if TYPE_CHECKING:
    import dask.dataframe as dd

POINTS = 101  # settings of a threshold
FARTHEST = 4  # times the run's own threshold
CAME = ("score", "language_score", "n_tokens")  # numbers that are asked about where they differ
REMOVED = columns(
    rule="string",
    place="int64",  # of the setting; -1 for all that have the statistic
    documents="int64",
    bytes="int64",
)
# Which of two equal neighbours a value is put before, so that those on its left are below the threshold.
_SIDES: Mapping[Any, Literal["left", "right"]] = {
    np.less: "left",
    np.less_equal: "right",
    np.greater: "right",
    np.greater_equal: "left",
}


class Curve(NamedTuple):
    """A threshold, and what it removes.

    Attributes
    ----------
    rule
        Its name, such as `gopher_quality.min_words`, or of a column `score.min`.
    threshold
        The run's own; None where it has none.
    settings
        float64[k], in order.
    documents, bytes
        float64[k], the share that is removed at each setting, of all that have the statistic, in percent.
    """

    rule: str
    threshold: float | None
    settings: np.ndarray
    documents: np.ndarray
    bytes: np.ndarray

    @property
    def own(self) -> float:
        """What the run's own threshold removes, of the documents; -1 where it has none."""
        return -1 if self.threshold is None else float(self.documents[self.settings == self.threshold][0])


def curves(out: str | Path) -> list[Curve]:
    """Curves of the run's quality rules, those first that remove most, then of scores and lengths where there are any.

    Documents that were dropped before a statistic was measured do not count. A rule that sources have with different
    thresholds has the first source's.

    Raises
    ------
    UserError
        The run is not finished.
    """
    rules = _quality_rules(out)
    known = _columns(out)
    settings = {rule.name: _settings(rule) for rule in rules} | {
        f"{name}.min": np.linspace(*bounds, POINTS) for name, bounds in known.items()
    }
    asked = [*rules, *(Rule(f"{name}.min", name, np.nan, np.less) for name in known)]
    if not asked:
        return []
    frame = _numbers(out, [*(rule.statistic for rule in asked), "n_bytes"])
    counted = frame.map_partitions(removed, rules=asked, settings=settings, meta=REMOVED).compute()
    totals = counted.groupby(["rule", "place"])[["documents", "bytes"]].sum()
    found = [_curve(rule, settings[rule.name], totals.loc[rule.name]) for rule in asked]
    return sorted(found, key=lambda curve: -curve.own)


def removed(frame: pd.DataFrame, rules: Sequence[Rule], settings: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Documents and bytes of a ledger file that each rule alone removes at each of its settings, as `REMOVED`."""
    parts = [REMOVED]
    for rule in rules:
        values = frame[rule.statistic].to_numpy(np.float64, na_value=np.nan)
        order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]
        n_bytes = np.append(0, np.cumsum(frame["n_bytes"].to_numpy(np.int64)[order]))
        at = np.searchsorted(values[order], settings[rule.name], _SIDES[rule.drops])
        above = rule.drops in (np.greater, np.greater_equal)
        documents, size = (len(order) - at, n_bytes[-1] - n_bytes[at]) if above else (at, n_bytes[at])
        parts.append(
            pd.DataFrame(
                {
                    "rule": rule.name,
                    "place": np.arange(-1, len(at)),
                    "documents": [len(order), *documents],
                    "bytes": [n_bytes[-1], *size],
                }
            )
        )
    return pd.concat(parts).astype(REMOVED.dtypes)


def _curve(rule: Rule, settings: np.ndarray, counts: pd.DataFrame) -> Curve:
    shares = 100 * counts.loc[0:] / np.maximum(counts.loc[-1], 1)
    threshold = None if np.isnan(rule.threshold) else float(rule.threshold)
    return Curve(
        rule.name, threshold, settings, *(shares[name].to_numpy() for name in ("documents", "bytes"))
    )


def _quality_rules(out: str | Path) -> list[Rule]:
    """The first of each name; those about a phrase have no threshold to move."""
    sources = [source for source in configuration(out).sources if source.quality.enabled]
    rules = {rule.name: rule for source in reversed(sources) for rule in rules_of(source.quality)}
    return [rule for rule in rules.values() if rule.name.partition(".")[2].startswith(("min_", "max_"))]


def _settings(rule: Rule) -> np.ndarray:
    """From 0 on, the run's threshold among them: whole numbers, shares of one, or other numbers."""
    if pa.types.is_integer(dict([*ledger.QUALITY, *ledger.BAD_WORDS])[rule.statistic]):
        return np.unique(np.rint(np.linspace(0, FARTHEST * max(rule.threshold, 5), POINTS)))
    settings = np.linspace(0, 1 if rule.threshold <= 1 else FARTHEST * rule.threshold, POINTS)
    settings[np.abs(settings - rule.threshold).argmin()] = rule.threshold
    return settings


def _columns(out: str | Path) -> dict[str, tuple[float, float]]:
    """Least and greatest value of scores and lengths, where they differ."""
    scores = {
        column
        for source in configuration(out).sources
        for one in source.classifiers
        for column, kind in one.columns.items()
        if kind == "float64"
    }
    found = dask.compute(*(getattr(_numbers(out, [*CAME, *sorted(scores)]), of)() for of in ("min", "max")))
    bounds = pd.DataFrame(dict(zip(("least", "most"), found, strict=True)), dtype="float64")
    return {str(name): (least, most) for name, least, most in bounds.itertuples() if least < most}


def _numbers(out: str | Path, names: Sequence[str]) -> "dd.DataFrame":
    """Columns of the ledger; a document that was never tokenized has no number of tokens."""
    frame = ledger.read(out, list(dict.fromkeys(names)))
    if "n_tokens" in frame:
        frame = frame.assign(n_tokens=frame["n_tokens"].where(frame["n_tokens"] > 0))
    return frame
