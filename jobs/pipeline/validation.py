"""The validation split: the first documents of the order of which training holds little.

De-duplication compares whole documents: one that is a small part of a longer one, or shares some of its paragraphs,
stays. So the 13-grams of normalised words (`kernels.ngrams`, those of the contamination step) of the documents that may
be validation are looked for in all others that are kept, from the token store. A document with more than
`validation.max_shared` of its different n-grams in training goes to training itself, which then holds its n-grams, too;
this is repeated until nothing moves. What is left is the split, and `OUT/validation/documents.parquet` says of every
document of either kind how much of it training holds.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs import ledger
from jobs.errors import UserError
from jobs.pipeline.order import Decisions, Ranges, decisions, range_name
from jobs.pipeline.paths import SplitPaths
from jobs.pipeline.stores import decoded
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import columns, gather
from jobs.runtime.console import counted
from jobs.tokens import encoder
from kernels import ngrams, permutation

if TYPE_CHECKING:
    from jobs.config import Validation
    from jobs.runtime.context import Run

NAME = "validation"
MOVED, DOCUMENTS = "moved.npy", "documents.parquet"
SPARE = 1.25  # tokens that are looked at for each that validation is to hold, at first
SHOWN = 20
IDENTITY = ["doc_id", "source", "path", "record", "id", "url"]
STORED = ["doc_id", "text_hash", "fate", "n_tokens", "n_bytes", "start"]
FOUND = columns(
    ngram="int64",
    documents="int64",
    n_bytes="int64",
)


# ---------------------------------------------------------------- partition function


@dataclass(frozen=True)
class Search:
    """What is looked for, and where: every kept document but the candidates.

    Attributes
    ----------
    folder, fingerprint
        The job's, with the index of n-grams, and what makes this index another than an earlier one there.
    until
        Order key of the last candidate.
    order_seed, decisions
        Which documents are kept, and their order.
    coder, dtype
        The tokenizer, and of the token store.
    """

    folder: Path
    fingerprint: str
    until: int
    order_seed: int
    decisions: Decisions
    coder: encoder.Spec
    dtype: str


def search(paths: SplitPaths, of: Search) -> pd.DataFrame:
    """The n-grams of the candidates that kept documents of a split hold, each once; the last row is for the meter."""
    rows = folders.read_table(paths.rows, columns=STORED)
    fate, *_, overlaps = of.decisions.fates(rows)
    order_key = permutation.keyed_hash(rows["doc_id"].to_numpy(), permutation.key("order", of.order_seed))
    candidate = ~overlaps & (order_key <= np.uint64(of.until))
    others = rows.filter(pa.array(pd.isna(fate) & ~candidate))
    index, numbers = _index(of.folder, of.fingerprint), [np.empty(0, np.int64)]
    for _, texts in decoded(paths, others, of.dtype, encoder.get(of.coder)):
        numbers.append(np.unique(ngrams.find(*joined(texts), index)[:, 1]))
    found = np.unique(np.concatenate(numbers))
    counts = np.zeros((2, len(found) + 1), np.int64)
    counts[:, -1] = len(others), pc.sum(others["n_bytes"]).as_py() or 0
    return pd.DataFrame({"ngram": np.append(found, -1), "documents": counts[0], "n_bytes": counts[1]})


def joined(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Bytes uint8[n] and offsets int64[d + 1] of texts."""
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)])


@functools.lru_cache(1)
def _index(folder: Path, fingerprint: str) -> ngrams.NgramIndex:
    return ngrams.NgramIndex(
        *(folders.load(folders.local_copy(folder / f"{name}.npy")) for name in ngrams.NgramIndex._fields)
    )


def write_index(folder: Path, index: ngrams.NgramIndex) -> list[Path]:
    """Write the index for all workers, which map it; return its files."""
    for name, array in index._asdict().items():
        with checkpoint.written(folder / f"{name}.npy") as file:
            checkpoint.save_array(file, array)
    return [folder / f"{name}.npy" for name in index._fields]


# ---------------------------------------------------------------- candidates and their n-grams


class Grams(NamedTuple):
    """The different n-grams of some documents d.

    Attributes
    ----------
    offsets, numbers
        int64[d + 1] and int64[p]: document i has the n-grams ``numbers[offsets[i] : offsets[i + 1]]``.
    hashes
        uint64[g], of each.
    """

    offsets: np.ndarray
    numbers: np.ndarray
    hashes: np.ndarray

    def counts(self, which: np.ndarray) -> np.ndarray:
        """int64[d], how many n-grams of each document are among those of bool[g]."""
        before = np.concatenate(([0], np.cumsum(which[self.numbers])))
        return np.diff(before[self.offsets])

    def of(self, documents: np.ndarray) -> np.ndarray:
        """bool[g], the n-grams of the documents of bool[d]."""
        which = np.zeros(len(self.hashes), bool)
        which[self.numbers[np.repeat(documents, np.diff(self.offsets))]] = True
        return which


def candidates(folder: Path, numbers: tuple[int, ...], tokens: int) -> pd.DataFrame:
    """The first documents of the order that may be validation, until they hold so many tokens or there are no more."""
    parts, held = [], 0
    for index, number in enumerate(numbers):
        rows = folders.read_table(folder / range_name(number)).to_pandas()
        rows = rows[rows["kept"] & ~rows["overlaps"]]
        enough = int(np.searchsorted(held + np.cumsum(rows["n_tokens"].to_numpy()), tokens)) + 1
        rows = rows[:enough].assign(range=index)
        parts.append(rows)
        held += int(rows["n_tokens"].sum())
        if held >= tokens:
            break
    return pd.concat(parts, ignore_index=True)


def read(rows: pd.DataFrame, stores: list[SplitPaths], dtype: str, coder: encoder.Encoder) -> pd.DataFrame:
    """`IDENTITY` and `text`, in bytes, of candidates, in their order."""
    parts = []
    for split, of_split in rows.groupby("split"):
        store = stores[int(split)]
        table = folders.read_table(store.rows, columns=[*IDENTITY, "start", "n_bytes", "n_tokens"])
        table = table.filter(pc.greater(table["n_tokens"], 0))
        table = table.filter(pc.is_in(table["start"], pa.array(of_split["start"])))
        texts = np.empty(len(table), object)
        for places, found in decoded(store, table, dtype, coder):
            texts[places] = found
        place = pd.Series(of_split.index, of_split["start"])[table["start"].to_numpy()]
        parts.append(ledger.frame(table.select(IDENTITY)).assign(text=texts, place=place.to_numpy()))
    return pd.concat(parts).sort_values("place", ignore_index=True).drop(columns="place")


def grams_of(texts: list[bytes], length: int) -> Grams:
    """The different n-grams of documents."""
    words = ngrams.words(*joined(texts))
    runs = np.maximum(np.diff(words.offsets) - length + 1, 0)
    document = np.repeat(np.arange(len(texts)), runs)
    within = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    hashes, numbers = np.unique(
        ngrams.ngrams(words, words.offsets[document] + within, length), return_inverse=True
    )
    pairs = np.unique(np.stack([document, numbers]), axis=1)
    offsets = np.searchsorted(pairs[0], np.arange(len(texts) + 1))
    return Grams(offsets, pairs[1], hashes)


# ---------------------------------------------------------------- the choice


class Choice(NamedTuple):
    """Which candidates d are validation."""

    validation: np.ndarray  # bool[d]
    moved: np.ndarray  # bool[d], went to training since that holds too much of them
    shared: np.ndarray  # int64[d], n-grams that training holds, of these two


def first_tokens(n_tokens: np.ndarray, free: np.ndarray, target: int) -> np.ndarray | None:
    """bool[d], the first free documents that hold `target` tokens together; None where all hold fewer."""
    held = np.cumsum(np.where(free, n_tokens, 0))
    if target and (not len(held) or held[-1] < target):
        return None
    return free & (held - np.where(free, n_tokens, 0) < target)


def choose(
    n_tokens: np.ndarray, grams: Grams, elsewhere: np.ndarray, target: int, most: float
) -> Choice | None:
    """Choose validation documents of which training holds at most a share.

    Parameters
    ----------
    n_tokens
        int64[d] of the candidates, in order.
    grams
        Of the candidates.
    elsewhere
        bool[g], whether a kept document that is no candidate holds an n-gram.
    target
        Tokens that validation is to hold.
    most
        Share of a document's n-grams that training may hold.

    Returns
    -------
    Choice or None
        None where too few candidates are left.
    """
    sizes, moved = np.diff(grams.offsets), np.zeros(len(n_tokens), bool)
    shared_when_moved = np.zeros(len(n_tokens), np.int64)
    while True:
        chosen = first_tokens(n_tokens, ~moved, target)
        if chosen is None:
            return None
        shared = grams.counts(elsewhere | grams.of(~chosen))
        # 0.3 of 10 n-grams are 3, whatever the rounding.
        too_much = chosen & (shared > most * sizes + 1e-9)
        if not too_much.any():
            return Choice(chosen, moved, np.where(moved, shared_when_moved, shared))
        moved |= too_much
        shared_when_moved[too_much] = shared[too_much]


# ---------------------------------------------------------------- the job


def job_fingerprint(run: "Run") -> str:
    """Covers the split's settings and the order."""
    settings = run.config.validation.model_dump(exclude={"references", "exclude_tokenizer_sample"})
    return fingerprint.fingerprint(__name__, settings=settings, order=run.fingerprints["order"])


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Choose the split, look for its n-grams in training, and choose again until nothing moves."""
    job.begin()
    kept = run.figures("order")["tokens"]
    target = run.config.validation.target(sum(kept))
    if target >= sum(kept):
        raise UserError(
            f"validation.tokens is {target:,}, but the whole corpus keeps only {sum(kept):,} tokens; "
            "lower it, or set validation.fraction, and validation.tokens to null"
        )
    found = _chosen(run, job, target)
    if moved := int(found.choice.moved.sum()):
        run.console.line(
            f"{NAME:<16} {counted(moved, 'document')} with more than {run.config.validation.max_shared:.0%} of their "
            f"{run.config.validation.ngram}-grams in training went there"
        )
    chosen = found.rows[found.choice.validation]
    with checkpoint.written(job.folder / MOVED) as file:
        checkpoint.save_array(file, found.rows.loc[found.choice.moved, "order_key"].to_numpy(np.uint64))
    tokens = np.bincount(chosen["range"], chosen["n_tokens"], minlength=len(kept)).astype(int).tolist()
    return {
        "until": int(chosen["order_key"].iloc[-1]) if len(chosen) else -1,
        "tokens": {
            ledger.VALIDATION: tokens,
            ledger.TRAIN: [k - v for k, v in zip(kept, tokens, strict=True)],
        },
        "overlap": _write_overlap(found, job.folder, run.config.validation),
    }


class _Found(NamedTuple):
    rows: pd.DataFrame  # of the order, the candidates
    read: pd.DataFrame
    grams: Grams
    elsewhere: np.ndarray
    choice: Choice


def _chosen(run: "Run", job: checkpoint.Checkpoint, target: int) -> _Found:
    """Candidates, more of them as long as too few stay, and the choice."""
    settings, spare = run.config.validation, SPARE
    ordered = run.figures("order")
    everything = sum(ordered["tokens"])
    searched = settings.max_shared < 1 and target > 0
    while True:
        wanted = min(int(target * spare), everything) if searched else target
        rows = candidates(run.out / "order", tuple(ordered["ranges"]), wanted)
        read_, grams, elsewhere = _looked_for(run, job, rows) if searched else _unread(rows)
        n_tokens = rows["n_tokens"].to_numpy(np.int64)
        choice = choose(n_tokens, grams, elsewhere, target, settings.max_shared)
        if choice is not None:
            return _Found(rows, read_, grams, elsewhere, choice)
        if n_tokens.sum() < wanted or wanted == everything:
            raise UserError(_too_few(settings, target, int(n_tokens.sum())))
        spare *= 2


def _looked_for(
    run: "Run", job: checkpoint.Checkpoint, rows: pd.DataFrame
) -> tuple[pd.DataFrame, Grams, np.ndarray]:
    """The candidates, their n-grams, and bool[g] which of these are in kept documents that are no candidates."""
    import dask.dataframe as dd

    settings = run.config.validation
    candidates = read(rows, run.annotated, run.dtype, encoder.get(run.encoder))
    grams = grams_of(candidates["text"].tolist(), settings.ngram)
    lengths = np.array([settings.ngram] if len(grams.hashes) else [], np.int64)
    files = write_index(job.folder, ngrams.index(grams.hashes, grams.hashes, lengths))
    of = Search(
        folder=job.folder,
        fingerprint=f"{job.fingerprint} {len(rows)}",
        until=int(rows["order_key"].iloc[-1]),
        order_seed=run.config.order.seed,
        decisions=decisions(run),
        coder=run.encoder,
        dtype=run.dtype,
    )
    graph = dd.from_map(search, run.annotated, of=of, meta=FOUND, label="look for validation text")
    with run.console.job(NAME, len(run.annotated), "splits", **run.totals()) as meter:
        found = gather(run.client, graph, meter)["ngram"].to_numpy()
    folders.remove(files)
    elsewhere = np.zeros(len(grams.hashes), bool)
    elsewhere[found[found >= 0]] = True
    return candidates, grams, elsewhere


def _unread(rows: pd.DataFrame) -> tuple[pd.DataFrame, Grams, np.ndarray]:
    """Candidates of which nothing is looked for."""
    nothing = np.empty(0, np.int64)
    return pd.DataFrame(), Grams(np.zeros(len(rows) + 1, np.int64), nothing, nothing), nothing.astype(bool)


def _too_few(settings: "Validation", target: int, held: int) -> str:
    changed = "validation.tokens or validation.fraction"
    if held >= target:
        return (
            f"validation is to hold {target:,} tokens, but too few documents have at most {settings.max_shared:.0%} of "
            f"their {settings.ngram}-grams in training; lower {changed}, or raise validation.max_shared"
        )
    return (
        f"validation is to hold {target:,} tokens, but the documents that overlap no reference set hold {held:,}; "
        f"lower {changed}"
    )


# ---------------------------------------------------------------- what was found


def _write_overlap(found: _Found, folder: Path, settings: "Validation") -> dict[str, Any] | None:
    """Write `DOCUMENTS`; return the figures of the report, None where nothing was looked for."""
    if found.read.empty:
        return None
    choice, sizes = found.choice, np.diff(found.grams.offsets)
    table = found.read.drop(columns="text").assign(
        n_tokens=found.rows["n_tokens"].to_numpy(),
        fate=np.where(choice.moved, ledger.TRAIN, ledger.VALIDATION),
        ngrams=sizes,
        shared=choice.shared,
        share=choice.shared / np.maximum(sizes, 1),
    )
    looked_at = table[choice.validation | choice.moved]
    with checkpoint.written(folder / DOCUMENTS) as file:
        pq.write_table(pa.Table.from_pandas(looked_at, preserve_index=False), file, compression="zstd")
    training = found.elsewhere | found.grams.of(~choice.validation)
    moved, stayed = table[choice.moved], table[choice.validation]
    return {
        "ngram": settings.ngram,
        "max_shared": settings.max_shared,
        "documents": len(stayed),
        "ngrams": int(stayed["ngrams"].sum()),
        "shared": int(stayed["shared"].sum()),
        "documents_that_share": int((stayed["shared"] > 0).sum()),
        "largest_share": float(stayed["share"].max()) if len(stayed) else 0.0,
        "by_share": _by_tenths(stayed["share"]),
        "moved": {
            "documents": len(moved),
            "tokens": int(moved["n_tokens"].sum()),
            "by_share": _by_tenths(moved["share"]),
            "largest": [
                {
                    **{name: row[name] for name in IDENTITY[1:]},
                    "share": float(row["share"]),
                    "words": shared_words(found.read["text"][place], training, found.grams, settings.ngram),
                }
                for place, row in moved.sort_values(["share", "doc_id"], ascending=[False, True])
                .head(SHOWN)
                .to_dict("index")
                .items()
            ],
        },
    }


def _by_tenths(shares: pd.Series) -> list[int]:
    """Documents with a share below a tenth, below two tenths, …; 1 is with the last."""
    return np.bincount(np.minimum(shares.to_numpy() * 10 + 1e-9, 9).astype(int), minlength=10).tolist()


def shared_words(text: bytes, training: np.ndarray, grams: Grams, length: int) -> str:
    """The first words of a document that training has, too, as the document has them."""
    words = ngrams.words(*joined([text]))
    hashes = ngrams.ngrams(words, np.arange(len(words.hashes) - length + 1), length)
    first = int(np.argmax(training[np.searchsorted(grams.hashes, hashes)]))
    return " ".join(
        text[words.starts[first] : words.ends[first + length - 1]].decode(errors="replace").split()
    )


# ---------------------------------------------------------------- for the jobs after it


def ranges(run: "Run") -> Ranges:
    """The order of this run, split."""
    figures = run.figures(NAME)
    before = {split: (0, *(int(n) for n in np.cumsum(tokens))) for split, tokens in figures["tokens"].items()}
    moved = np.asarray(folders.load(run.out / NAME / MOVED))
    return Ranges(
        run.out / "order",
        figures["until"],
        tuple(moved.tolist()),
        tuple(run.figures("order")["ranges"]),
        before,
    )
