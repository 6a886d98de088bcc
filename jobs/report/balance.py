"""Filters that keep a source, a crawl or a domain far out of proportion: measure before trusting a filter's name.

A rule is named when of a group's documents it keeps less than half of the share that it keeps of all, or more than
twice, in a group of at least 50 documents, and the difference is beyond chance: the kept documents are at least five
standard deviations (binomial) from as many as expected. A document's domain is its URL's host without www.
A rule's share is of the documents that came as far as its step, and its drops are those whose fate names it: what an
earlier rule dropped counts as kept.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger
from jobs.runtime.compute import Named, columns

if TYPE_CHECKING:
    import dask.dataframe as dd

    from jobs.config import Source

# Steps that judge a text -> whether a source has them.
FILTERS: dict[str, Callable[["Source"], bool]] = {
    "language": lambda source: source.language.enabled,
    "quality": lambda source: source.quality.enabled,
    "classifier": lambda source: bool(source.classifiers),
    "personal_data": lambda source: source.personal_data.enabled,
}
FACTOR = 2.0
DOCUMENTS = 50
DEVIATIONS = 5.0
WORST = 10  # that the report names
SAID = 3  # that the terminal names
COLUMNS = ["source", "crawl", "url", "fate"]
_HOST = r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?:[^/?#]*@)?(?:[wW]{3}\.)?(?P<host>[^/?#:]+)"

GROUPS = columns(
    kind="string",  # source, crawl or domain
    name="string",
    source="string",
    fate="string",
    documents="int64",
)
UNLIKE = columns(
    rule="string",
    kind="string",
    name="string",
    documents="int64",
    kept="int64",
    share_kept="float64",
    share_kept_of_all="float64",
    deviations="float64",
)


class Rule(NamedTuple):
    """A rule, or all of a step, named as fates begin; who has it, and what it keeps of all of them."""

    name: str
    sources: tuple[str, ...]
    share_kept: float


def rules(tallied: pd.DataFrame, sources: Sequence["Source"]) -> list[Rule]:
    """The rules that dropped anything, and each step with several such rules as a whole.

    Parameters
    ----------
    tallied
        Documents by source and fate: columns `source`, `fate` and `documents`.
    sources
        Those of the run.
    """
    found = []
    for step, is_used in FILTERS.items():
        names = tuple(source.name for source in sources if is_used(source))
        rows = _reached(tallied, step, names)
        dropped = sorted({fate for fate in rows["fate"] if fate.startswith(f"{step}.")})
        for name in (*dropped, *([step] if len(dropped) > 1 else [])):
            kept = rows["documents"].sum() - rows.loc[_is_of(rows["fate"], name), "documents"].sum()
            found.append(Rule(name, names, float(kept / rows["documents"].sum())))
    return found


def out_of_proportion(frame: "dd.DataFrame", found: Sequence[Rule]) -> "dd.DataFrame":
    """Groups of the ledger that a rule keeps out of proportion, counted file by file and joined by name."""
    grouped = frame.map_partitions(groups, meta=GROUPS).shuffle("name", npartitions=frame.npartitions)
    return grouped.map_partitions(Named("compare shares kept", unlike), found, meta=UNLIKE)


def groups(frame: pd.DataFrame) -> pd.DataFrame:
    """Documents of a ledger file by source, crawl and domain, and by fate."""
    url = pa.array(frame["url"].astype("string"), pa.string())
    host = pc.struct_field(pc.extract_regex(url, pattern=_HOST), "host")
    rows = pd.DataFrame(
        {
            "source": frame["source"].astype("string").to_numpy(),
            "crawl": frame["crawl"].astype("string").fillna("").to_numpy(),
            "domain": pc.utf8_lower(pc.fill_null(host, "")).to_pandas().to_numpy(),
            "fate": frame["fate"].astype("string").to_numpy(),
        }
    )
    parts = [GROUPS]
    for kind in ("source", "crawl", "domain"):
        named = rows.assign(kind=kind, name=rows[kind])[rows[kind] != ""]
        parts.append(
            named.groupby(["kind", "name", "source", "fate"]).size().rename("documents").reset_index()
        )
    return pd.concat(parts)[list(GROUPS)].astype(GROUPS.dtypes)


def unlike(rows: pd.DataFrame, found: Sequence[Rule]) -> pd.DataFrame:
    """The groups among those of a partition that a rule keeps out of proportion."""
    parts = [UNLIKE]
    for rule in found:
        reached = _reached(rows, rule.name.partition(".")[0], rule.sources)
        dropped = reached["documents"].where(_is_of(reached["fate"], rule.name), 0)
        counted = reached.assign(dropped=dropped).groupby(["kind", "name"])[["documents", "dropped"]].sum()
        counted = counted[counted["documents"] >= DOCUMENTS].reset_index()
        n, kept = counted["documents"].to_numpy(), (counted["documents"] - counted["dropped"]).to_numpy()
        expected, share = n * rule.share_kept, rule.share_kept
        deviations = (kept - expected) / np.sqrt(np.maximum(expected * (1 - share), 1e-9))
        far = (kept * FACTOR < expected) | (kept > expected * FACTOR)
        named = counted.assign(
            rule=rule.name, kept=kept, share_kept=kept / n, share_kept_of_all=share, deviations=deviations
        )
        parts.append(named[far & (abs(deviations) >= DEVIATIONS)])
    return pd.concat(parts)[list(UNLIKE)].astype(UNLIKE.dtypes)


def worst(found: pd.DataFrame) -> list[dict[str, Any]]:
    """The groups furthest from chance, as the report has them."""
    ranked = found.assign(by=-found["deviations"].abs()).sort_values(["by", "rule", "kind", "name"])
    return [
        {name: row[name] for name in UNLIKE} for row in ranked.head(WORST).astype(object).to_dict("records")
    ]


def sentences(found: Sequence[dict[str, Any]]) -> list[str]:
    """What the terminal says of the worst."""
    return [
        f"{one['rule']} keeps {one['share_kept']:.1%} of the {one['documents']:,} documents of {one['kind']} "
        f"{one['name']}, and {one['share_kept_of_all']:.1%} of all"
        for one in found[:SAID]
    ]


def _reached(rows: pd.DataFrame, step: str, sources: Sequence[str]) -> pd.DataFrame:
    """Those of sources with a step that no step before it dropped."""
    earlier = tuple(f"{name}." for name in ledger.STEPS[: ledger.STEPS.index(step)])
    return rows[rows["source"].isin(sources) & ~rows["fate"].str.startswith(earlier)]


def _is_of(fates: pd.Series, rule: str) -> pd.Series:
    return (fates == rule) | fates.str.startswith(f"{rule}.")
