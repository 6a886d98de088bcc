"""The figures of a change: counts of all files of the ledger, put together, and a few documents that would go."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from jobs import ledger
from jobs.errors import UserError
from jobs.runtime import folders
from jobs.trace import configuration, source_texts
from jobs.whatif.change import Change, Planned, plan
from jobs.whatif.counts import KEYS, MEASURES, count

EXCERPT = 300  # characters
SIDES = ("before", "after")
TOPICS = ("alone", "only", "first")


def answer(out: str | Path, change: Change, samples: int = 3) -> dict[str, Any]:
    """What a change of thresholds would remove from a finished run.

    Parameters
    ----------
    out
        The run's output folder, or its URL.
    change
        What is asked.
    samples
        Documents to show for each rule.

    Returns
    -------
    dict
        JSON: `changes`, `notes`, figures of the `whole`, `by_source` and `by_crawl`, and `samples`.

    Raises
    ------
    UserError
        The run is not finished, or its ledger cannot answer.
    """
    settings = configuration(out)
    files = ledger.files(out)
    with folders.opened(files[0]) as first:
        schema = pq.read_schema(first)
    planned = plan(settings.sources, schema, change)
    counts, sampled = _counted(files, planned, samples, change.asked)
    counts = _with_estimates(counts)
    names = _in_order(planned)
    return {
        "changes": [
            {"source": source, "setting": name, "before": was, "after": would_be}
            for source, rules in planned.rules.items()
            for name, was, would_be in rules.changes
        ],
        "columns": {"min": list(change.least), "max": list(change.most)},
        "notes": [*planned.notes, *_notes(counts)],
        "whole": figures(counts, names),
        "by_source": _by(counts, "source", names),
        "by_crawl": _by(counts, "crawl", names),
        "samples": _described(out, sampled, planned),
    }


def _counted(
    files: list[Path], planned: Planned, samples: int, changes: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sums over all files, a Dask task a file in threads: the work is Arrow's and NumPy's."""
    import dask

    tasks = [dask.delayed(count)(path, planned.rules, samples, changes) for path in files]
    found = dask.compute(*tasks, scheduler="threads")
    counts = pd.concat([one.counts for one in found]).groupby(KEYS, as_index=False)[MEASURES].sum()
    sampled = pd.concat([one.samples for one in found]).sort_values(["rule", "hash", "doc_id"])
    return counts, sampled.groupby("rule").head(samples)


def _with_estimates(counts: pd.DataFrame) -> pd.DataFrame:
    """Tokens of documents that the run did not tokenize, from the tokens per byte of their source."""
    known = counts[counts["topic"] == "tokenized"].groupby("source")[["bytes", "tokens"]].sum()
    per_byte = (known["tokens"] / known["bytes"]).reindex(counts["source"]).fillna(0).to_numpy()
    estimated = np.rint(counts["untokenized_bytes"].to_numpy() * per_byte).astype(np.int64)
    return counts.assign(tokens=counts["tokens"] + estimated, estimated_tokens=estimated)


def _in_order(planned: Planned) -> list[str]:
    """Names of all rules, those after the change first in the order of the first source that has them."""
    rules = [rule for one in planned.rules.values() for rule in (*one.after, *one.before)]
    return list(dict.fromkeys(rule.name for rule in rules))


def figures(counts: pd.DataFrame, names: Iterable[str]) -> dict[str, Any]:
    """What is judged, dropped by each rule before and after, kept, and what the change moves."""
    sums = counts.groupby(["topic", "side", "rule"])[[*MEASURES, "estimated_tokens"]].sum()
    unjudged = counts.loc[counts["topic"] == "unjudged", "rule"].unique()
    judged = _sum(sums, "judged")
    return {
        "judged": judged,
        "not_judged": {fate: _sum(sums, "unjudged", "", fate) for fate in sorted(unjudged)},
        **{side: _side(sums, side, names, judged["documents"]) for side in SIDES},
        "would_go": _sum(sums, "goes"),
        "of_them_in_the_shards": _sum(sums, "placed"),
        "would_come_back": _sum(sums, "returns"),
    }


def _side(sums: pd.DataFrame, side: str, names: Iterable[str], judged: int) -> dict[str, Any]:
    kept = _sum(sums, "kept", side)
    return {
        "kept": kept,
        "share_kept": kept["documents"] / judged if judged else None,
        "rules": {
            name: {topic: _sum(sums, topic, side, name) for topic in TOPICS}
            | {"documents_without_value": _sum(sums, "no_value", side, name)["documents"]}
            for name in names
        },
    }


def _sum(sums: pd.DataFrame, topic: str, side: str = "", rule: str = "") -> dict[str, int]:
    names = ["documents", "bytes", "tokens", "estimated_tokens"]
    if (topic, side, rule) not in sums.index:
        return dict.fromkeys(names, 0)
    return {name: int(sums.at[(topic, side, rule), name]) for name in names}


def _by(counts: pd.DataFrame, key: str, names: list[str]) -> list[dict[str, Any]]:
    return [{key: str(value), **figures(rows, names)} for value, rows in counts.groupby(key)]


def _notes(counts: pd.DataFrame) -> list[str]:
    unlike = int(counts.loc[counts["topic"] == "unlike", "documents"].sum())
    if not unlike:
        return []
    return [
        f"{unlike:,} documents have another fate in the ledger than their statistics give; please report this"
    ]


# ---------------------------------------------------------------- samples


def _described(out: str | Path, sampled: pd.DataFrame, planned: Planned) -> list[dict[str, Any]]:
    """Each document of the sample with its statistic, the threshold and the beginning of its text."""
    excerpts = _excerpts(out, sampled)
    described = []
    for row in sampled.itertuples():
        rule = next(rule for rule in planned.rules[row.source].after if rule.name == row.rule)
        described.append(
            {
                "rule": rule.name,
                "statistic": rule.statistic,
                "value": row.value,
                "threshold": rule.threshold,
                "source": row.source,
                "path": row.path,
                "record": int(row.record),
                "url": None if pd.isna(row.url) else row.url,
                "doc_id": int(row.doc_id),
                "excerpt": excerpts[row.source, row.path, int(row.record)],
            }
        )
    return described


def _excerpts(out: str | Path, sampled: pd.DataFrame) -> dict[tuple[str, str, int], str | None]:
    """Beginnings of texts, read again; None where the source no longer has them."""
    texts = source_texts(out)
    excerpts: dict[tuple[str, str, int], str | None] = {}
    for (source, path), rows in sampled.groupby(["source", "path"]):
        records = sorted({int(record) for record in rows["record"]})
        try:
            found = texts(source, path, records)
        except (UserError, OSError):
            found = [None] * len(records)
        for record, text in zip(records, found, strict=True):
            excerpts[source, path, record] = " ".join(text[:EXCERPT].split()) if text else None
    return excerpts
