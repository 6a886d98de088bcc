"""The report: every figure that the seed gives for its own run, computed from this run's files.

`OUT/report/report.json` holds no time, host or path, so that its bytes are the same wherever the run was made.
`index.html` beside it shows the figures to a person, with documents of each fate.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger
from jobs.pipeline import contamination
from jobs.pipeline.validation import ranges
from jobs.report import balance, chains, examples, origins, page, parts, passages
from jobs.report import rows as row_policies
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import Named, columns, gather
from jobs.runtime.console import Console
from kernels import packing, permutation, shingles

if TYPE_CHECKING:
    import dask.dataframe as dd

    from jobs.config import Config
    from jobs.runtime.context import Run

NAME = "report"
FILE = "report.json"
SCORE_BIN = 0.01
IDENTITIES = ("doc_id", "cluster", "kept_by")
LABELS = ("source", "crawl", "language", "language_score", "fate", "score")
MEASURES = ("n_source_bytes", "n_bytes", "n_tokens")
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

# What a partition of the ledger counts: a row for each value of a topic.
TALLY = columns(
    topic="string",  # fate, length, score or language
    source="string",
    crawl="string",
    fate="string",
    language="string",
    value="int64",  # tokens of a document, or hundredths of a score
    documents="int64",
    n_source_bytes="int64",
    n_bytes="int64",
    n_tokens="int64",
    scored="int64",
    score="float64",
)
CLUSTERS = columns(
    size="int64",
    crawls="int64",
    clusters="int64",
)
MEMBERS = columns(
    cluster="uint64",
    crawl="string",
)
PERSONAL_DATA = columns(
    source="string",
    kind="string",
    looked_through="int64",
    documents="int64",
    found="int64",
)
PAIRS = columns(
    doc_id="uint64",
    kept_by="uint64",
)


# ---------------------------------------------------------------- partition functions


def tally(frame: pd.DataFrame) -> pd.DataFrame:
    """Documents, bytes, tokens and scores of a ledger file by fate, by length and by score."""
    counted = pd.DataFrame(
        {
            "source": frame["source"].astype("string"),
            "crawl": frame["crawl"].astype("string").fillna(""),
            "fate": frame["fate"].astype("string"),
            "language": frame["language"].astype("string"),
            "language_bin": np.floor(20 * frame["language_score"].to_numpy(np.float64, na_value=0) + 1e-9),
            "n_source_bytes": frame["n_source_bytes"].to_numpy(np.int64),
            "n_bytes": frame["n_bytes"].to_numpy(np.int64),
            "n_tokens": frame["n_tokens"].to_numpy(np.int64),
            "score": frame["score"].to_numpy(np.float64, na_value=np.nan),
        }
    )
    counted["documents"], counted["scored"] = 1, counted["score"].notna().astype(np.int64)
    counted["bin"] = np.floor(counted["score"].fillna(0) / SCORE_BIN + 1e-9).astype(np.int64)
    scored = counted[counted["scored"] == 1].assign(value=lambda f: f["bin"])
    topics = {
        "fate": (counted.assign(value=0), ["source", "crawl", "fate", "value"]),
        "length": (counted.assign(value=counted["n_tokens"]), ["fate", "value"]),
        "score": (scored, ["value"]),
        "language": (
            counted[counted["language"].notna()].assign(value=counted["language_bin"].astype(np.int64)),
            ["language", "fate", "value"],
        ),
    }
    totals = ["documents", "n_source_bytes", "n_bytes", "n_tokens", "scored", "score"]
    parts = [
        rows.groupby(keys, sort=True)[totals].sum().reset_index().assign(topic=topic)
        for topic, (rows, keys) in topics.items()
    ]
    return pd.concat(parts).reindex(columns=TALLY.columns, fill_value="").astype(TALLY.dtypes)


def members(frame: pd.DataFrame) -> pd.DataFrame:
    """Cluster and crawl of the documents of a ledger file that are in a cluster."""
    clustered = frame[frame["cluster"].notna()]
    return pd.DataFrame(
        {
            "cluster": clustered["cluster"].to_numpy(np.uint64),
            "crawl": clustered["crawl"].astype("string").fillna(""),
        }
    )


def cluster_sizes(rows: pd.DataFrame) -> pd.DataFrame:
    """Number of clusters by their size and the crawls they span."""
    found = rows.groupby("cluster")["crawl"].agg(["size", "nunique"]).rename(columns={"nunique": "crawls"})
    return found.groupby(["size", "crawls"]).size().rename("clusters").reset_index().astype(CLUSTERS.dtypes)


def sampled_pairs(frame: pd.DataFrame, pairs: int) -> pd.DataFrame:
    """Near-duplicates of a ledger file with the smallest keyed hashes, each with the document kept in its place."""
    dropped = frame[frame["fate"] == ledger.NEAR_DUPLICATE]
    if ledger.KEPT_IN in dropped:  # texts of earlier runs are theirs to show
        dropped = dropped[dropped[ledger.KEPT_IN].isna()]
    rows = pd.DataFrame({name: dropped[name].to_numpy(np.uint64) for name in PAIRS})
    return _smallest(rows, pairs)


def _smallest(rows: pd.DataFrame, pairs: int) -> pd.DataFrame:
    hashes = permutation.keyed_hash(rows["doc_id"].to_numpy(np.uint64), permutation.key("report-pairs", 0))
    return rows.iloc[np.argsort(hashes, kind="stable")[:pairs]]


# ---------------------------------------------------------------- the sections


def funnel(tallied: pd.DataFrame) -> list[dict[str, Any]]:
    """Documents, bytes and tokens read, dropped for each reason in the order it was looked at, and kept."""
    by_fate = tallied[tallied["topic"] == "fate"].groupby("fate")[["documents", "n_bytes", "n_tokens"]].sum()
    steps = sorted(set(by_fate.index) - {ledger.TRAIN, ledger.VALIDATION}, key=_step)
    rows = [{"step": "read", **_counts(by_fate.sum())}]
    rows += [{"step": fate, **_counts(by_fate.loc[fate])} for fate in steps]
    kept = by_fate.loc[[fate for fate in (ledger.TRAIN, ledger.VALIDATION) if fate in by_fate.index]]
    rows.append({"step": "kept", **_counts(kept.sum())})
    rows += [{"step": fate, **_counts(kept.loc[fate])} for fate in kept.index]
    return rows


# Documents that these drop are never tokenized.
BEFORE_TOKENS = ledger.STEPS[: ledger.STEPS.index(ledger.DUPLICATES[0])]


def _step(fate: str) -> tuple[int, str]:
    return ledger.STEPS.index(fate.partition(".")[0]), fate


def _counts(row: pd.Series) -> dict[str, int]:
    return {"documents": int(row["documents"]), "bytes": int(row["n_bytes"]), "tokens": int(row["n_tokens"])}


def by_crawl(tallied: pd.DataFrame) -> list[dict[str, Any]]:
    """For each source and crawl: documents read, removed as duplicates by each step, and kept."""
    rows = tallied[tallied["topic"] == "fate"]
    table = rows.pivot_table(
        index=["source", "crawl"], columns="fate", values="documents", aggfunc="sum", fill_value=0
    )
    kept = [fate for fate in (ledger.TRAIN, ledger.VALIDATION) if fate in table]
    return [
        {
            "source": source,
            "crawl": crawl or None,
            "documents": int(row.sum()),
            **{fate: int(row.get(fate, 0)) for fate in ledger.DUPLICATES},
            "share_removed_as_duplicates": removed_share(row),
            "kept": int(row[kept].sum()),
        }
        for (source, crawl), row in table.iterrows()
    ]


def removed_share(counts: pd.Series) -> float | None:
    """Of the documents that came as far as the steps on duplicates, those that were removed there."""
    steps_before = tuple(f"{step}." for step in ledger.STEPS[: ledger.STEPS.index(ledger.DUPLICATES[0])])
    came = int(sum(n for fate, n in counts.items() if not str(fate).startswith(steps_before)))
    return _share(sum(int(counts.get(fate, 0)) for fate in ledger.DUPLICATES), came)


def warnings(tallied: pd.DataFrame, most: float) -> list[str]:
    """A sentence for each source of which more than a stated share was removed as duplicates."""
    rows = tallied[tallied["topic"] == "fate"]
    counted = rows.groupby(["source", "fate"])["documents"].sum()
    shares = {source: removed_share(part.droplevel(0)) for source, part in counted.groupby(level=0)}
    return [
        f"source {source!r}: {share:.1%} of its documents that came so far were removed as duplicates, more than "
        f"report.max_removed_share ({most:g})"
        for source, share in shares.items()
        if share is not None and share > most
    ]


def equal_duplicates(run: "Run", job: str, steps: list[dict[str, Any]], fate: str) -> dict[str, Any]:
    """What the step on equal URLs or texts removed, and what it would in each scope."""
    nothing = {"documents": 0, "bytes": 0, "tokens": 0}
    removed = next((step for step in steps if step["step"] == fate), nothing)
    settings = getattr(run.config, job)
    return {
        "enabled": settings.enabled,
        "scope": settings.scope,
        "removed": {name: removed[name] for name in nothing},
        "documents_removed_by_scope": run.figures(job)["removed_by_scope"],
    }


def against_earlier(run: "Run") -> dict[str, Any]:
    """What was dropped for each earlier run's documents, and how many of those one corpus would not have kept."""
    jobs = dict(
        zip(ledger.DUPLICATES, ("url_duplicates", "exact_duplicates", "near_duplicates"), strict=True)
    )
    counts = {fate: run.figures(job).get("dropped_against", {}) for fate, job in jobs.items()}
    return {
        "outputs": [
            {"output": name, **{fate: counts[fate][name] for fate in jobs}} for name in run.config.against
        ],
        "earlier_documents_linked": run.figures("near_duplicates").get("earlier_documents_linked", 0),
    }


def said_of_earlier(against: dict[str, Any]) -> list[str]:
    """Sentences for the terminal on what earlier runs' documents dropped."""
    said = [
        f"{sum(one[fate] for fate in ledger.DUPLICATES):,} documents were dropped for documents of {one['output']}"
        for one in against["outputs"]
    ]
    if linked := against["earlier_documents_linked"]:
        said.append(
            f"{linked:,} documents that earlier runs kept were linked to each other by new ones; they stay"
        )
    return said


def lengths(tallied: pd.DataFrame, fates: list[str] | None, window: int) -> dict[str, Any] | None:
    """How long documents are, in tokens; of those with the given fates, or of all that were tokenized."""
    rows = tallied[(tallied["topic"] == "length") & (tallied["value"] > 0)]
    rows = (
        (rows[rows["fate"].isin(fates)] if fates else rows).groupby("value")[["documents", "n_tokens"]].sum()
    )
    if rows.empty:
        return None
    longer = rows.index > window
    return {
        "documents": int(rows["documents"].sum()),
        "mean": _share(rows["n_tokens"].sum(), rows["documents"].sum()),
        "shortest": int(rows.index.min()),
        "longest": int(rows.index.max()),
        "quantiles": {str(q): _quantile(rows["documents"], q) for q in QUANTILES},
        "histogram": _by_powers_of_two(rows["documents"]),
        "window": window,
        "share_of_documents_longer_than_window": _share(
            rows["documents"][longer].sum(), rows["documents"].sum()
        ),
        "share_of_tokens_in_them": _share(rows["n_tokens"][longer].sum(), rows["n_tokens"].sum()),
    }


def _by_powers_of_two(documents: pd.Series) -> list[dict[str, int]]:
    """Documents of 1, of 2 and 3, of 4 to 7 … tokens, from the shortest to the longest."""
    powers = np.floor(np.log2(documents.index.to_numpy())).astype(int)
    counts = np.bincount(powers, weights=documents.to_numpy())
    return [
        {"from": 1 << power, "documents": int(counts[power])} for power in range(powers.min(), len(counts))
    ]


def floors(tallied: pd.DataFrame, wanted: tuple[int, ...]) -> list[dict[str, Any]]:
    """What each length floor would remove of all tokenized documents, before de-duplication."""
    rows = tallied[(tallied["topic"] == "length") & (tallied["value"] > 0)]
    everything = rows[["documents", "n_tokens"]].sum()
    return [
        {
            "floor": floor,
            "documents": int(short["documents"]),
            "share_of_documents": _share(short["documents"], everything["documents"]),
            "tokens": int(short["n_tokens"]),
            "share_of_tokens": _share(short["n_tokens"], everything["n_tokens"]),
            "mean_score": _share(short["score"], short["scored"]),
        }
        for floor in wanted
        for short in [rows[rows["value"] < floor][["documents", "n_tokens", "score", "scored"]].sum()]
    ]


def scores(tallied: pd.DataFrame) -> dict[str, Any] | None:
    """The distribution of the scores that came with the documents, to a hundredth."""
    rows = tallied[tallied["topic"] == "score"].groupby("value")[["documents", "n_tokens", "score"]].sum()
    if rows.empty:
        return None
    rounded = (np.floor(rows.index.to_numpy() * SCORE_BIN + 0.5)).astype(int)
    return {
        "documents": int(rows["documents"].sum()),
        "mean": _share(rows["score"].sum(), rows["documents"].sum()),
        "median": _quantile(rows["documents"], 0.5) * SCORE_BIN,
        "by_rounded_score": {str(k): int(v) for k, v in rows["documents"].groupby(rounded).sum().items()},
        "histogram": [
            {
                "from": round(float(tenth) / 10, 1),
                "documents": int(part["documents"]),
                "tokens": int(part["n_tokens"]),
            }
            for tenth, part in rows.groupby(rows.index // 10).sum().iterrows()
        ],
    }


def languages(tallied: pd.DataFrame) -> list[dict[str, Any]]:
    """Documents, bytes and scores of each language, the most frequent first; what was kept of it."""
    rows = tallied[tallied["topic"] == "language"]
    rows = rows.assign(kept=rows["documents"].where(rows["fate"].isin([ledger.TRAIN, ledger.VALIDATION]), 0))
    totals = rows.groupby("language")[["documents", "n_bytes", "kept"]].sum()
    return [
        {
            "language": language,
            "documents": int(total["documents"]),
            "bytes": int(total["n_bytes"]),
            "kept": int(total["kept"]),
            "score_histogram": [
                {"from": round(value / 20, 2), "documents": int(documents)}
                for value, documents in rows[rows["language"] == language]
                .groupby("value")["documents"]
                .sum()
                .items()
            ],
        }
        for language, total in totals.sort_values("documents", ascending=False, kind="stable").iterrows()
    ]


def extraction(tallied: pd.DataFrame, sources_of_pages: list[str]) -> dict[str, Any] | None:
    """Records and pages by what became of them, and how much text their bytes gave."""
    rows = tallied[(tallied["topic"] == "fate") & tallied["source"].isin(sources_of_pages)]
    if rows.empty:
        return None
    step = rows["fate"].where(rows["fate"].str.startswith(("input.", "extraction.")), "text")
    counted = rows.groupby(step)[["documents", "n_source_bytes", "n_bytes"]].sum()
    unread = counted.index.str.startswith("input.")
    return {
        "records": int(counted["documents"].sum()),
        "pages": int(counted["documents"][~unread].sum()),
        "bytes_in": int(counted["n_source_bytes"].sum()),
        "bytes_of_text": int(counted["n_bytes"].sum()),
        "by_fate": {
            str(fate): {"records": int(row["documents"]), "bytes_in": int(row["n_source_bytes"])}
            for fate, row in counted.iterrows()
        },
    }


def quality(tallied: pd.DataFrame, judged_sources: list[str]) -> list[dict[str, Any]]:
    """For each source with quality rules: documents that came so far, dropped by each rule, and kept by all.

    The bytes of those kept are of the text as edited.
    """
    rows = tallied[(tallied["topic"] == "fate") & tallied["source"].isin(judged_sources)]
    rows = rows[
        ~rows["fate"].str.startswith(
            tuple(f"{step}." for step in ledger.STEPS[: ledger.STEPS.index("quality")])
        )
    ]
    rule = rows["fate"].where(rows["fate"].str.startswith("quality."), "kept")
    counted = rows.groupby(["source", rule])[["documents", "n_bytes"]].sum()
    return [
        {
            "source": str(source),
            "documents": int(of_source["documents"].sum()),
            "share_kept": _share(kept["documents"], of_source["documents"].sum()),
            "kept": {"documents": int(kept["documents"]), "bytes": int(kept["n_bytes"])},
            "dropped": {
                str(name): {"documents": int(row["documents"]), "bytes": int(row["n_bytes"])}
                for (_, name), row in of_source.iterrows()
                if name != "kept"
            },
        }
        for source, of_source in counted.groupby(level=0)
        for kept in [of_source[of_source.index.get_level_values(1) == "kept"].sum()]
    ]


def personal_data_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each source and kind in a ledger file: documents looked through, documents with some, and places."""
    return pd.DataFrame(
        [
            {
                "source": str(source),
                "kind": column.removeprefix("personal_data_"),
                "looked_through": int(counts.notna().sum()),
                "documents": int((counts > 0).sum()),
                "found": int(counts.sum()),
            }
            for column in frame.columns.drop("source")
            for source, counts in frame[column].groupby(frame["source"].astype("string"))
        ],
        columns=PERSONAL_DATA.columns,
    ).astype(PERSONAL_DATA.dtypes)


def personal_data(counted: pd.DataFrame) -> list[dict[str, Any]]:
    """How often each kind was found, by source; nothing of a source that was not looked through."""
    totals = counted.groupby(["source", "kind"])[["looked_through", "documents", "found"]].sum()
    return [
        {"source": str(source), "kind": str(kind), **{name: int(value) for name, value in row.items()}}
        for (source, kind), row in totals.iterrows()
        if row["looked_through"]
    ]


def said_of_personal_data(found: list[dict[str, Any]]) -> list[str]:
    """A sentence for the terminal on how often each kind was found; never what."""
    if not found:
        return []
    kinds = pd.DataFrame(found).groupby("kind", sort=False)[["found", "documents"]].sum()
    said = ", ".join(
        f"{row['found']:,} {str(kind).replace('_', ' ')} in {row['documents']:,}"
        for kind, row in kinds.iterrows()
    )
    return [f"personal data, places and documents: {said}"]


def near_duplicates(sizes: pd.DataFrame, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """What de-duplication found and removed."""
    read = next(step for step in steps if step["step"] == "read")
    nothing = {"documents": 0, "bytes": 0, "tokens": 0}
    removed = next((step for step in steps if step["step"] == ledger.NEAR_DUPLICATE), nothing)
    clusters = int(sizes["clusters"].sum())
    inside = int(sizes.loc[sizes["crawls"] == 1, "clusters"].sum())
    return {
        "clusters": clusters,
        "documents_in_clusters": int((sizes["clusters"] * sizes["size"]).sum()),
        "documents_removed": removed["documents"],
        "share_of_documents_removed": _share(removed["documents"], read["documents"]),
        "tokens_removed": removed["tokens"],
        "share_of_tokens_removed": _share(removed["tokens"], read["tokens"]),
        "largest_cluster": int(sizes["size"].max()) if len(sizes) else 0,
        "clusters_inside_one_crawl": inside,
        "clusters_across_crawls": clusters - inside,
        "clusters_by_size": {str(k): int(v) for k, v in sizes.groupby("size")["clusters"].sum().items()},
    }


def compared_pairs(run: "Run") -> dict[str, Any]:
    """How candidates were compared, how many fell, and how many documents are in a cluster of each scope."""
    settings, figures = run.config.near_duplicates, run.figures("near_duplicates")
    names = ("candidate_pairs", "pairs_below_threshold", "similarity_histogram")
    return {
        "verify": settings.verify,
        "threshold": settings.threshold,
        "scope": settings.scope,
        "in_clusters_by_scope": figures["in_clusters_by_scope"],
        **{name: figures.get(name) for name in names},
    }


def said_of_clusters(near: dict[str, Any]) -> list[str]:
    """Sentences for the terminal on what was compared, what scopes remove and how clusters hang together."""
    said = [chains.sentence(near["chains"])]
    if len(scopes := near["in_clusters_by_scope"]) > 1:
        removed = ", ".join(f"{one} {counts['removed']:,}" for one, counts in scopes.items())
        said.append(f"near-duplicates that would go, by scope: {removed}")
    if near["candidate_pairs"]:
        said.insert(
            0,
            f"{near['candidate_pairs']:,} pairs of candidates were compared; {near['pairs_below_threshold']:,} of them "
            f"below near_duplicates.threshold ({near['threshold']:g}) were cut",
        )
    return [sentence for sentence in said if sentence]


def similar_pairs(run: "Run", pairs: pd.DataFrame) -> list[dict[str, Any]]:
    """Some removed documents and what was kept instead, with their exact similarity and their texts."""
    wanted = pa.array(np.unique(pairs[["doc_id", "kept_by"]].to_numpy(np.uint64)))
    columns = ["doc_id", "source", "path", "record", "id", "url", "crawl"]
    found: dict[int, dict[str, Any]] = {}
    for path in ledger.files(run.out):
        table = folders.read_table(path, columns=columns, filters=pc.field("doc_id").isin(wanted))
        found |= {row["doc_id"]: row for row in table.to_pylist()}
    ngram = run.config.near_duplicates.ngram
    for row in found.values():
        (row["text"],) = run.texts(row["source"], row["path"], [row["record"]])
        row["shingles"] = shingles.shingles(row["text"] or "", ngram)
    described = []
    for pair in pairs.itertuples():
        a, b = found[int(pair.doc_id)], found[int(pair.kept_by)]
        described.append(
            {
                "similarity": shingles.jaccard(a["shingles"], b["shingles"]),
                "removed": {name: a[name] for name in columns},
                "kept": {name: b[name] for name in columns},
                "texts": (a["text"] or "", b["text"] or ""),
            }
        )
    return sorted(described, key=lambda pair: -pair["similarity"])


def shown(pair: dict[str, Any]) -> parts.Pair:
    """A pair as the page shows it; its texts leave the figures."""
    left, right = examples.differences(*pair.pop("texts"))
    removed, kept = (
        f"{one['source']} · {one['path']} · record {one['record']} · {one['url'] or one['id'] or ''}"
        for one in (pair["removed"], pair["kept"])
    )
    return parts.Pair(f"similarity {pair['similarity']:.3f}", removed, kept, left, right)


def packing_arithmetic(run: "Run", split: str, window: int) -> dict[str, Any]:
    """Padding against packing, for one split's stream."""
    order = ranges(run)
    state = packing.PackingState(window)
    for index in range(len(order.numbers)):
        rows = order.read(index)
        chosen = rows["kept"] & (rows["is_validation"] == (split == ledger.VALIDATION))
        state = packing.accumulate(state, rows.loc[chosen, "n_tokens"].to_numpy(np.int64))
    return packing.summarise(state)._asdict()


def _quantile(counts: pd.Series, q: float) -> int:
    """The value below or at which a share `q` of the counted things lies; `counts` is by value, in order."""
    reached = np.cumsum(counts.to_numpy())
    return int(counts.index[int(np.searchsorted(reached, q * reached[-1]))])


def _share(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole else None


# ---------------------------------------------------------------- the job


def job_fingerprint(run: "Run") -> str:
    """Covers the report's settings and the jobs that it describes."""
    upstream = [run.fingerprints[name] for name in ("ledger", "contamination", "mixture", "scurve")]
    settings = [
        run.config.report.model_dump(),
        run.config.length.model_dump(),
        run.config.keep.model_dump(),
        run.config.near_duplicates.model_dump(exclude={"tree_edges"}),
        fingerprint.versions("matplotlib", "jinja2", "pyarrow"),
        row_length(run),
    ]
    return fingerprint.fingerprint(__name__, settings=settings, upstream=upstream)


def row_length(run: "Run") -> int:
    """Of the rows that are exported, or of a training window and the token behind it."""
    return run.config.shards.rows.length if run.config.shards.rows else run.config.report.window + 1


class Counted(NamedTuple):
    """What Dask counted in the ledger."""

    tallied: pd.DataFrame
    sizes: pd.DataFrame
    unlike: pd.DataFrame
    personal: pd.DataFrame
    pairs: pd.DataFrame
    origins: dict[str, Any] | None
    documents: dict[str, list[dict[str, Any]]]


def count(run: "Run") -> Counted:
    """Go through the ledger, table by table."""
    settings = run.config.report
    earlier = [ledger.KEPT_IN] if run.config.against else []
    frame = ledger.read(run.out, [*IDENTITIES, *LABELS, *MEASURES, *earlier])
    kinds = [name for name, _ in ledger.extra_columns(run.sources) if name in dict(ledger.PERSONAL_DATA)]
    with run.console.job(NAME, 7 * frame.npartitions, "tables", **run.totals()) as meter:

        def table(graph: "dd.DataFrame", **options: Any) -> pd.DataFrame:
            return gather(run.client, graph, meter, **options)

        tallied = table(frame.map_partitions(tally, meta=TALLY), counted=())
        clustered = frame.map_partitions(members, meta=MEMBERS).shuffle(
            "cluster", npartitions=frame.npartitions
        )
        sizes = table(clustered.map_partitions(Named("measure clusters", cluster_sizes), meta=CLUSTERS))
        filters = balance.rules(tallied[tallied["topic"] == "fate"], run.sources)
        unlike = table(balance.out_of_proportion(ledger.read(run.out, balance.COLUMNS), filters))
        personal = ledger.read(run.out, ["source", *kinds])
        personal = table(personal.map_partitions(personal_data_counts, meta=PERSONAL_DATA))
        by = origins.named_by(tallied)
        reach = table(origins.graph(frame, by)) if by else origins.COUNTS
        pairs = table(frame.map_partitions(sampled_pairs, pairs=settings.pairs, meta=PAIRS))
        looked_at = ledger.read(run.out, examples.COLUMNS).map_partitions(
            examples.sampled, of_each=settings.examples, meta=examples.SAMPLED
        )
        documents = examples.sampled(table(looked_at, counted=()), settings.examples)
    shown = examples.with_excerpts(documents, run.texts)
    alike = _smallest(pairs, settings.pairs)
    return Counted(tallied, sizes, unlike, personal, alike, origins.figures(reach, by or ""), shown)


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Compute the figures from the ledger with Dask, and write them."""
    job.begin()
    counted = count(run)
    warned = warnings(counted.tallied, run.config.report.max_removed_share)
    for warning in warned:
        run.console.warn(warning)
    alike = similar_pairs(run, counted.pairs)
    pairs_shown = [shown(pair) for pair in alike]
    content = figures(run, counted, warned, alike, chains.looked_into(run, job.folder))
    checkpoint.write_json(job.folder / FILE, content)
    write_page(job.folder, run.config, content, counted.documents, pairs_shown)
    return {
        "funnel": content["funnel"],
        "out_of_proportion": content["out_of_proportion"],
        "clusters": said_of_clusters(content["near_duplicates"]),
        "against": content["against"],
        "personal_data": content["personal_data"],
        "contamination": contamination.summary(content["contamination"]),
    }


def figures(
    run: "Run",
    counted: Counted,
    warned: list[str],
    pairs: list[dict[str, Any]],
    chained: dict[str, Any] | None,
) -> dict[str, Any]:
    """What `FILE` holds."""
    config, tallied = run.config, counted.tallied
    steps = funnel(tallied)
    encoded = tallied[(tallied["topic"] == "length") & (tallied["value"] > 0)][["n_bytes", "n_tokens"]].sum()
    return {
        "funnel": steps,
        "crawls": by_crawl(tallied),
        "extraction": extraction(tallied, [source.name for source in run.sources if source.has_pages]),
        "languages": languages(tallied),
        "quality": quality(tallied, [source.name for source in run.sources if source.quality.enabled]),
        "personal_data": personal_data(counted.personal),
        "out_of_proportion": balance.worst(counted.unlike),
        "bytes_per_token": _share(encoded["n_bytes"], encoded["n_tokens"]),
        "tokenizer": run.figures("tokenizer"),
        "duplicates": {"keep": config.keep.model_dump(mode="json"), "warnings": warned},
        "duplicates_by_origin": counted.origins,
        "against": against_earlier(run),
        "url_duplicates": equal_duplicates(run, "url_duplicates", steps, ledger.URL_DUPLICATE),
        "exact_duplicates": equal_duplicates(run, "exact_duplicates", steps, ledger.EXACT_DUPLICATE),
        "repeated_passages": passages.removed(run),
        "near_duplicates": {
            **near_duplicates(counted.sizes, steps),
            **compared_pairs(run),
            "chains": chained,
            "pairs": pairs,
        },
        "scores": scores(tallied),
        "lengths": {
            "before_deduplication": lengths(tallied, None, config.report.window),
            "train": lengths(tallied, [ledger.TRAIN], config.report.window),
        },
        "length_floors": floors(tallied, config.length.floors),
        "validation": validation(run, steps),
        "packing": packing_arithmetic(run, ledger.TRAIN, config.report.window),
        "contamination": run.figures("contamination"),
        "rows": row_policies.policies(run, row_length(run)),
        "mixture": run.figures("mixture"),
        "shards": run.figures("shards"),
        "scurve": run.figures("scurve"),
        "files_with_unreadable_records": run.figures("annotate")["files_with_unreadable_records"],
    }


def validation(run: "Run", steps: list[dict[str, Any]]) -> dict[str, Any]:
    """How large the split is, and what says that it is clean."""
    found, overlapping = run.figures("validation"), "kept_documents_overlapping_references"
    return {
        "documents": sum(step["documents"] for step in steps if step["step"] == ledger.VALIDATION),
        "tokens": sum(found["tokens"][ledger.VALIDATION]),
        overlapping: run.figures("order")[overlapping],
        "overlap": found["overlap"],
    }


def write_page(
    folder: Path,
    config: "Config",
    content: dict[str, Any],
    documents: dict[str, list[dict[str, Any]]],
    pairs: list[parts.Pair],
) -> None:
    """Write the page and the files beside it; `documents` are by fate, in any order."""
    title = f"What became of {', '.join(source.name for source in config.sources)}"
    near = config.near_duplicates.model_dump()
    page.write(folder, title, content, near, examples.in_order(documents), pairs)


def read(out: str | Path) -> dict[str, Any]:
    """The report of a finished run."""
    return checkpoint.read_json(folders.located(out) / NAME / FILE)


def print_table(console: Console, figures: dict[str, Any]) -> None:
    """The funnel: documents, bytes and tokens at each step; and what a filter keeps out of proportion."""
    rows = [
        (
            _LABELS.get(row["step"], f"- {row['step']}"),
            *(f"{row[column]:,}" for column in ("documents", "bytes", "tokens")),
        )
        for row in figures["funnel"]
    ]
    console.table("", ["", "documents", "bytes", "tokens"], rows)
    if any(row["step"].startswith(BEFORE_TOKENS) for row in figures["funnel"]):
        console.line("Bytes are of the text; tokens are of the documents that came as far as the tokenizer.")
    if figures["contamination"]:
        console.table("evaluation sets", contamination.HEADINGS, figures["contamination"])
    said = [*said_of_personal_data(figures["personal_data"]), *figures["clusters"]]
    for sentence in [*said, *said_of_earlier(figures["against"])]:
        console.line(sentence)
    for sentence in balance.sentences(figures["out_of_proportion"]):
        console.warn(sentence)


_LABELS = {"read": "read", "kept": "kept", "train": "  train", "validation": "  validation"}
