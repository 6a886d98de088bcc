"""Count what rules drop in one file of the ledger.

Dimensions: documents d, rules r.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger
from jobs.runtime import folders
from jobs.runtime.compute import columns
from jobs.steps.quality import NO_LINE_LEFT, STEP, Rule, dropped_by, first_rules
from jobs.steps.thresholds import STEP as COLUMN
from jobs.whatif.change import SourceRules
from kernels import permutation

KEYS = ["topic", "source", "crawl", "side", "rule"]
MEASURES = ["documents", "bytes", "tokens", "untokenized_bytes"]
COUNTS = columns(
    topic="string",  # see `count`
    source="string",
    crawl="string",
    side="string",  # before, after; or empty
    rule="string",
    documents="int64",
    bytes="int64",
    tokens="int64",
    untokenized_bytes="int64",  # of those without tokens
)
SAMPLES = columns(
    hash="uint64",
    doc_id="uint64",
    source="string",
    path="string",
    record="int64",
    url="string",
    rule="string",
    value="float64",
)
_BASE = ["doc_id", "source", "path", "record", "url", "crawl", "fate", "n_bytes", "n_tokens"]
_EARLIER = frozenset(ledger.STEPS[: ledger.STEPS.index(STEP)])
_PLACED = (ledger.TRAIN, ledger.VALIDATION)


class Counted(NamedTuple):
    """Rows as COUNTS and as SAMPLES."""

    counts: pd.DataFrame
    samples: pd.DataFrame


def count(path: Path, rules: Mapping[str, SourceRules], samples: int, changes: bool) -> Counted:
    """Judge the documents of a file of the ledger before and after a change, and count.

    Topics are `judged`; `unjudged`, dropped earlier, with the fate as the rule; `tokenized`, of any fate; `alone`,
    `only` and `first`, dropped by each rule alone, by no other rule, and by it as the first; `kept` by all; `goes`,
    kept before and not after; `placed`, those of them that are in the shards; `returns`, the other way round;
    `no_value`, without a number that a rule looks at; and `unlike`, whose recorded fate is not the one found here.

    Parameters
    ----------
    path
        The file.
    rules
        By source.
    samples
        How many documents that go are wanted for each rule: those with the smallest keyed hashes.
    changes
        Whether there is a change; else the samples are of all that the rules drop.
    """
    wanted = [*_BASE, *(name for one in rules.values() for name in one.columns)]
    table = folders.read_table(path, columns=list(dict.fromkeys(wanted)))
    found = [
        _of_source(table.filter(pc.equal(table["source"], source)), source, of_source, samples, changes)
        for source, of_source in rules.items()
    ]
    return Counted(
        pd.concat([COUNTS, *(one.counts for one in found)]).astype(COUNTS.dtypes),
        pd.concat([SAMPLES, *(one.samples for one in found)]).astype(SAMPLES.dtypes),
    )


class _Tally:
    """Sums over the documents of one source, by crawl."""

    def __init__(self, table: pa.Table, source: str) -> None:
        crawls = pc.fill_null(table["crawl"], "").combine_chunks().dictionary_encode()
        self.crawl, self.names = np.asarray(crawls.indices), crawls.dictionary.to_pylist()
        n_bytes, n_tokens = (table[name].to_numpy() for name in ("n_bytes", "n_tokens"))
        self.measures = [n_bytes, n_tokens, np.where(n_tokens == 0, n_bytes, 0)]
        self.source = source
        self.rows: list[tuple[object, ...]] = []

    def add(self, topic: str, chosen: np.ndarray, side: str = "", rule: str = "") -> None:
        """Count the documents that are chosen, bool[d]."""
        (at,) = np.nonzero(chosen)
        if not len(at):
            return
        crawl = self.crawl[at]
        documents = np.bincount(crawl, minlength=len(self.names))
        # Sums below 2**53 are exact.
        sums = [np.bincount(crawl, values[at], len(self.names)).astype(np.int64) for values in self.measures]
        self.rows += [
            (topic, self.source, self.names[i], side, rule, documents[i], *(total[i] for total in sums))
            for i in np.flatnonzero(documents)
        ]


def _of_source(table: pa.Table, source: str, rules: SourceRules, samples: int, changes: bool) -> Counted:
    tally = _Tally(table, source)
    earlier = _count_unjudged(table, tally, _EARLIER - {COLUMN} if rules.thresholds else _EARLIER)
    table, tally = table.filter(pa.array(~earlier)), _restricted(tally, ~earlier)
    tally.add("judged", np.ones(len(table), bool))
    before = _count_side(table, tally, "before", rules.before)
    after = _count_side(table, tally, "after", rules.after)
    if rules.measured:
        tally.add("unlike", _fates(rules.before, before) != _recorded(table))
    goes = (before < 0) & (after >= 0)
    tally.add("goes", goes)
    tally.add("placed", goes & np.isin(_strings(table, "fate"), _PLACED))
    tally.add("returns", (before >= 0) & (after < 0))
    sampled = _samples(table, rules.after, np.where(goes if changes else after >= 0, after, -1), samples)
    return Counted(pd.DataFrame(tally.rows, columns=list(COUNTS)), sampled)


def _count_unjudged(table: pa.Table, tally: _Tally, earlier: frozenset[str]) -> np.ndarray:
    """Count what was dropped before there was anything to judge; bool[d], which these are."""
    tally.add("tokenized", table["n_tokens"].to_numpy() > 0)
    fates = table["fate"].cast(pa.string()).combine_chunks().dictionary_encode()
    names, codes = fates.dictionary.to_pylist(), np.asarray(fates.indices)
    is_earlier = np.array([name.partition(".")[0] in earlier for name in names], bool)
    for code in np.flatnonzero(is_earlier):
        tally.add("unjudged", codes == code, rule=names[code])
    return is_earlier[codes] if names else np.zeros(0, bool)


def _restricted(tally: _Tally, rows: np.ndarray) -> _Tally:
    tally.crawl, tally.measures = tally.crawl[rows], [values[rows] for values in tally.measures]
    return tally


def _count_side(table: pa.Table, tally: _Tally, side: str, rules: Sequence[Rule]) -> np.ndarray:
    """Count what each rule drops; int64[d], the first rule that drops a document, or -1."""
    drops = dropped_by(rules, table)
    for place, rule in enumerate(rules):
        if rule == NO_LINE_LEFT:  # also a text without a byte has no line
            drops[place] &= table["n_bytes"].to_numpy() > 0
    several = drops.sum(axis=0) > 1
    first = first_rules(rules, drops, table)
    for place, rule in enumerate(rules):
        tally.add("alone", drops[place], side, rule.name)
        tally.add("only", drops[place] & ~several, side, rule.name)
        tally.add("first", first == place, side, rule.name)
        if table[rule.statistic].null_count:
            tally.add("no_value", np.asarray(pc.is_null(table[rule.statistic])), side, rule.name)
    tally.add("kept", first < 0, side)
    return first


def _fates(rules: Sequence[Rule], first: np.ndarray) -> np.ndarray:
    """Of the quality rules, "" for all others."""
    names = ["" if rule.name.startswith(f"{COLUMN}.") else f"{STEP}.{rule.name}" for rule in rules]
    return np.array([*names, ""], object)[first]


def _recorded(table: pa.Table) -> np.ndarray:
    fate = _strings(table, "fate")
    return np.where(pc.starts_with(table["fate"].cast(pa.string()), f"{STEP}."), fate, "").astype(object)


def _strings(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(table[name].cast(pa.string()).to_numpy(zero_copy_only=False))


def _samples(table: pa.Table, rules: Sequence[Rule], first: np.ndarray, samples: int) -> pd.DataFrame:
    """Of the documents that each rule is the first to drop, those with the smallest keyed hashes."""
    doc_ids = table["doc_id"].to_numpy()
    hashes = permutation.keyed_hash(doc_ids, permutation.key("what-if", 0))
    parts = [SAMPLES]
    for place in np.unique(first[first >= 0]) if samples > 0 else ():
        (at,) = np.nonzero(first == place)
        at = at[np.argsort(hashes[at], kind="stable")[:samples]]
        rows = table.select(["doc_id", "source", "path", "record", "url"]).take(pa.array(at)).to_pandas()
        values = table[rules[place].statistic].take(pa.array(at)).to_numpy().astype(np.float64)
        parts.append(rows.assign(hash=hashes[at], rule=rules[place].name, value=values))
    return pd.concat(parts)
