"""One pass over the text: signatures, token ids and counts, split by split.

Each split of the sources becomes three files in `OUT/annotate`, named after the split's key:
`.parquet` (a row a document), `.signatures.npy` (uint32[d, h]) and `.tokens.bin` (the token store); where evaluation
sets were looked for, `.contamination.parquet` beside them has their n-grams in the documents.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs import ledger, sources, steps
from jobs.errors import UserError
from jobs.pipeline.duplicates import passages
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import checkpoint, fingerprint
from jobs.runtime.compute import columns, finish_task, map_tasks
from jobs.settings.duplicates import NormalisedText
from jobs.text import normalised, text_buffers, text_hashes
from jobs.tokens import encoder
from kernels import minhash, packing, permutation, words

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "annotate"
SUMMARY = columns(
    key="string",
    documents="int64",
    n_bytes="int64",
    n_tokens="int64",
    dropped="int64",
    lost="int64",
    pages="int64",
    page_seconds="float64",
    unfit="string",  # JSON: column -> how many values are no such type
)
FOUND = [("ngram", pa.int64()), ("start", pa.int64()), ("counts", pa.bool_())]
MATCHES = pa.schema(
    [
        *ledger.IDENTITY,
        *((name, kind) for name, kind in ledger.CARRIED if name in ("id", "url", "crawl")),
        *FOUND,
    ]
)


@dataclass(frozen=True)
class Step:
    """All that a task needs; it is pickled with the task, since a cluster knows nothing of our settings."""

    folder: Path
    sources: dict[str, Any]
    fingerprint: str
    ngram: int
    hashes: int
    hash_seed: int
    order_seed: int  # lays out the token store, changes nothing that comes out
    encoder: encoder.Spec | None  # None: a reference set, whose tokens nobody needs
    dtype: str  # of the token store and the shards
    check_share: float
    extra: tuple[tuple[str, pa.DataType], ...] = ()  # columns that the sources add to the ledger
    normalised: NormalisedText | None = None  # how texts are compared, where not as they are

    @property
    def carried(self) -> list[tuple[str, pa.DataType]]:
        """Columns that came with the documents, or that the steps found out."""
        return [*ledger.CARRIED, *self.extra]

    @property
    def schema(self) -> pa.Schema:
        """Of the rows of a split."""
        return pa.schema(
            [
                *ledger.IDENTITY,
                *self.carried,
                *ledger.MEASURED,
                *([(ledger.NORMALISED_HASH, pa.binary(16))] if self.normalised else []),
                ("fate", pa.string()),
                ("start", pa.int64()),
            ]
        )


# ---------------------------------------------------------------- the partition function


def annotate_split(split: sources.Split, step: Step) -> pd.DataFrame:
    """Read one split, measure its documents, commit its files, and return one row of counts."""
    # A comprehension, so that no batch outlives its turn.
    annotated = [
        annotate_batch(split, batch, step) for batch in sources.read(step.sources[split.source], split)
    ]
    table, stored = lay_out([one.table for one in annotated], [one.tokens for one in annotated], step)
    signatures = np.concatenate(
        [np.empty((0, step.hashes), np.uint32), *(one.signatures for one in annotated)]
    )
    work = {
        "pages": sum(one.pages for one in annotated),
        "page_seconds": sum(one.page_seconds for one in annotated),
        "unfit": json.dumps(sum((one.unfit for one in annotated), Counter())),
    }
    matches = [one.matches for one in annotated if one.matches is not None]
    return _commit(split, step, table, signatures, stored, work, matches)


class Annotated(NamedTuple):
    """What is known of a batch.

    Attributes
    ----------
    table
        Its rows, columns in the schema's order.
    signatures
        uint32[d, h].
    tokens
        Token ids, one document after another.
    pages, page_seconds
        How many went through extraction, and the CPU time that took.
    unfit
        Carried column -> how many values the source has that its type cannot hold; they are null.
    matches
        N-grams of evaluation sets, as `MATCHES` has them; None where none were looked for.
    """

    table: pa.Table
    signatures: np.ndarray
    tokens: np.ndarray
    pages: int
    page_seconds: float
    unfit: Counter[str]
    matches: pa.Table | None


def annotate_batch(split: sources.Split, batch: sources.Batch, step: Step) -> Annotated:
    """Take a batch of documents through the steps and measure what they leave."""
    documents = steps.documents(split.path, batch, step.sources[split.source])
    d, text = len(batch), documents.living_text
    data, offsets = text_buffers(text)
    signatures, n_words = minhash.signatures(
        data, offsets, minhash.hash_seeds(step.hashes, step.hash_seed), step.ngram
    )
    tokens, n_tokens = _encode(text, documents.alive, documents.doc_ids, step)
    carried, unfit = _carried(documents.columns, d, step)
    columns = {
        "doc_id": documents.doc_ids,
        "source": pa.repeat(split.source, d),
        "path": pa.repeat(split.path, d),
        "record": batch.records,
        **carried,
        "n_source_bytes": documents.source_bytes,
        "n_bytes": np.asarray(pc.binary_length(documents.text)),
        "n_words": n_words,
        "n_tokens": n_tokens,
        "text_hash": text_hashes(data, offsets),
        "token_hash": packing.slice_hashes(tokens, _starts(n_tokens), n_tokens),
        **_normalised_hashes(text, step),
        "fate": documents.fate,
        "start": _starts(n_tokens),
    }
    table = pa.table(
        [pa.array(columns[field.name]).cast(field.type) for field in step.schema], schema=step.schema
    )
    return Annotated(
        table, signatures, tokens, documents.pages, documents.page_seconds, unfit, _matches(documents, table)
    )


def _matches(documents: steps.Documents, table: pa.Table) -> pa.Table | None:
    """With each document's identity in place of its row."""
    if documents.matches is None:
        return None
    of_document = table.select(MATCHES.names[: -len(FOUND)]).take(documents.matches["row"])
    for name, _ in FOUND:
        of_document = of_document.append_column(name, documents.matches[name])
    return of_document


def _encode(
    text: pa.Array, alive: np.ndarray, doc_ids: np.ndarray, step: Step
) -> tuple[np.ndarray, np.ndarray]:
    """Token ids of the documents that are alive, one after another, and int64[d] counts (0 for the others)."""
    counts = np.zeros(len(text), np.int64)
    if step.encoder is None:
        return np.empty(0, step.dtype), counts
    coder = encoder.get(step.encoder)
    kept = np.flatnonzero(alive)
    documents = text if len(kept) == len(text) else text.take(kept)
    ids, offsets = coder.encode(documents)
    counts[kept] = np.diff(offsets)
    checked = _checked(doc_ids[kept], step.check_share)
    try:
        coder.check(documents, ids, offsets, checked)
    except encoder.EncodingMismatch as error:
        raise UserError(
            f"doc_id {doc_ids[kept[error.row]]}: {error}; set tokenizer.engine to reference, and report it"
        ) from None
    return ids.astype(step.dtype, copy=False), counts


def _normalised_hashes(text: pa.Array, step: Step) -> dict[str, pa.Array]:
    if step.normalised is None:
        return {}
    rules = step.normalised
    texts = normalised(text, case=rules.case, white_space=rules.white_space, unicode=rules.unicode)
    return {ledger.NORMALISED_HASH: text_hashes(*text_buffers(texts))}


def _checked(doc_ids: np.ndarray, share: float) -> np.ndarray:
    """Rows that the reference tokenizer encodes again: a keyed sample, and at least one document a batch."""
    if not len(doc_ids) or share == 0:
        return np.empty(0, np.int64)
    order = permutation.seeded_order(doc_ids, permutation.key("check", 0))
    return np.sort(order[: max(1, round(share * len(doc_ids)))])


def _carried(columns: dict[str, pa.Array], d: int, step: Step) -> tuple[dict[str, pa.Array], Counter[str]]:
    """Columns in the ledger's types, and how many values of each have no such type."""
    present = {name: kind for name, kind in step.carried if name in columns}
    cast = {name: ledger.as_type(columns[name], kind) for name, kind in present.items()}
    unfit = Counter({name: cast[name].null_count - columns[name].null_count for name in present})
    return {name: cast.get(name, pa.nulls(d, kind)) for name, kind in step.carried}, +unfit


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.cumsum(lengths) - lengths


# ---------------------------------------------------------------- the token store


def lay_out(
    tables: Sequence[pa.Table], tokens: Sequence[np.ndarray], step: Step
) -> tuple[pa.Table, np.ndarray]:
    """Put a split's documents in the seeded order, so that packing reads one run of each store for a shard.

    Returns the rows of all batches with each document's start in the token store, and the store.
    """
    table = pa.concat_tables([step.schema.empty_table(), *tables])
    if step.encoder is None:
        return table, np.empty(0, step.dtype)
    lengths = table["n_tokens"].to_numpy()
    order = permutation.seeded_order(table["doc_id"].to_numpy(), permutation.key("order", step.order_seed))
    starts = np.empty_like(lengths)
    starts[order] = _starts(lengths[order])
    stored = np.empty(lengths.sum(), step.dtype)
    for ids, rows in zip(tokens, starmap(slice, pairwise(np.cumsum([0, *map(len, tables)]))), strict=True):
        packing.gather(ids, _starts(lengths[rows]), lengths[rows], stored, starts[rows])
    return table.set_column(table.schema.get_field_index("start"), "start", pa.array(starts)), stored


def _commit(
    split: sources.Split,
    step: Step,
    table: pa.Table,
    signatures: np.ndarray,
    stored: np.ndarray,
    work: dict[str, Any],
    matches: Sequence[pa.Table],
) -> pd.DataFrame:
    paths = SplitPaths(step.folder, split.key)
    looked_for = step.sources[split.source].contamination.used
    if looked_for:
        with checkpoint.written(paths.matches) as file:
            pq.write_table(pa.concat_tables([MATCHES.empty_table(), *matches]), file, compression="zstd")
    with checkpoint.written(paths.rows) as file:
        pq.write_table(table.combine_chunks(), file, compression="zstd")
    with checkpoint.written(paths.signatures) as file:
        checkpoint.save_array(file, signatures)
    with checkpoint.written(paths.tokens) as file:
        file.write(stored.view(np.uint8).data)
    fates = table["fate"]
    figures = {
        "documents": len(table),
        "n_bytes": pc.sum(table["n_bytes"]).as_py() or 0,
        "n_tokens": pc.sum(table["n_tokens"]).as_py() or 0,
        "dropped": len(table) - fates.null_count,
        "lost": pc.sum(pc.equal(fates, ledger.UNREADABLE)).as_py() or 0,
        **work,
    }
    written = [*paths.all, *([paths.matches] if looked_for else [])]
    return finish_task(step.folder, step.fingerprint, split.key, written, figures, SUMMARY)


# ---------------------------------------------------------------- the graph and the commit


def job_fingerprint(run: "Run") -> str:
    """Covers the settings of the pass, the tokenizer, and the files as they are now."""
    return fingerprint.fingerprint(__name__, step=step_fingerprint(run), inputs=run.inventory.identity())


def step_fingerprint(run: "Run") -> str:
    """Covers what happens to a split, whichever others there are."""
    near = run.config.near_duplicates
    return fingerprint.fingerprint(
        __name__,
        signature=[near.ngram, near.hashes, near.hash_seed],
        columns={source.name: [source.columns, source.extra] for source in run.sources},
        steps={source.name: steps.identity(source) for source in run.sources},
        tokenizer=run.fingerprints["tokenizer"],
        repeated_passages=passages.identity(run),
        dtype=run.config.shards.dtype,
        unicode=words.unicode_version(),
        normalised=_rules(run) and [unicodedata.unidata_version, _rules(run).model_dump()],  # type: ignore[union-attr]
        versions=fingerprint.versions("pyarrow", "gigatoken", "tokenizers", "tiktoken"),
    )


def _rules(run: "Run") -> NormalisedText | None:
    settings = run.config.exact_duplicates
    return settings.normalise if settings.normalised else None


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Annotate every split that is not yet done; return the figures of all of them."""
    if notice := encoder.get(run.encoder).notice:
        run.console.warn(notice)
    near = run.config.near_duplicates
    step = Step(
        folder=job.folder,
        sources={source.name: source for source in run.sources},
        fingerprint=step_fingerprint(run),
        ngram=near.ngram,
        hashes=near.hashes,
        hash_seed=near.hash_seed,
        order_seed=run.config.order.seed,
        encoder=run.encoder,
        dtype=run.dtype,
        check_share=run.config.tokenizer.check_share,
        extra=tuple(ledger.extra_columns(run.sources)),
        normalised=_rules(run),
    )
    return annotate(run, job, run.splits, step, NAME)


def annotate(
    run: "Run", job: checkpoint.Checkpoint, splits: list[sources.Split], step: Step, name: str
) -> dict[str, Any]:
    """Do the splits that are not done, as a Dask dataframe partitioned by split."""
    keys = [split.key for split in splits]
    summary = map_tasks(
        run,
        job,
        name,
        "splits",
        annotate_split,
        keys,
        splits,
        step.fingerprint,
        SUMMARY,
        resources=run.resources,
        step=step,
    )
    _say_pages(run, int(summary["pages"].sum()), float(summary["page_seconds"].sum()))
    unfit = _unfit(run, splits, summary["unfit"], step)
    lost = {f"{split.source}/{split.path}" for split, n in zip(splits, summary["lost"], strict=True) if n}
    return {
        **{column: summary[column].sum().item() for column in summary if column not in ("key", "unfit")},
        "unfit_values": unfit,
        "files_with_unreadable_records": sorted(lost),
        "splits": keys,
        "documents_of_splits": [int(n) for n in summary["documents"]],
        "unicode": words.unicode_version(),
    }


def _unfit(
    run: "Run", splits: list[sources.Split], counts: Iterable[str], step: Step
) -> dict[str, dict[str, int]]:
    """How many values of each source's columns are no such type, by column; says so."""
    kinds, by_source = dict(step.carried), dict[str, Counter[str]]()
    for split, found in zip(splits, counts, strict=True):
        by_source.setdefault(split.source, Counter()).update(json.loads(found))
    for source, unfit in by_source.items():
        for column, count in sorted(unfit.items()):
            values = "one value is" if count == 1 else f"{count:,} values are"
            run.console.warn(
                f"{source}: {values} null in the ledger's {column}, since the source has what is no "
                f"{kinds[column]} there"
            )
    return {source: dict(sorted(unfit.items())) for source, unfit in by_source.items() if unfit}


def _say_pages(run: "Run", pages: int, seconds: float) -> None:
    if pages and seconds:
        rate = f"{pages / seconds:,.0f} pages/s a core"
        run.console.line(f"{'extraction':<16} {pages:,} pages in {seconds:,.1f} s of CPU time ({rate})")
