"""Prove a finished run from its files alone.

Every figure is computed again here from what lies in the output: checksums, headers, counts, the place and
the content of each kept document's tokens, the reasons of those dropped, and the validation split's cleanliness.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobs import config, ledger
from jobs.cli import guarded
from jobs.errors import UserError
from jobs.formats import llmc
from jobs.pipeline import groups
from jobs.pipeline.duplicates import exact, keep, near, proof, recomputed, scope, urls
from jobs.pipeline.duplicates.against import Earlier
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import folders, performance
from jobs.runtime.checkpoint import (
    LOCK,
    MANIFEST,
    RUNNING,
    TASKS,
    DamagedFileError,
    read_json,
    read_jsons,
    sha256,
    why_unfinished,
)
from jobs.runtime.console import Console
from kernels import packing, permutation

DECODED = 200  # documents whose text is compared with the source


def verify(out: Path, console: Console) -> list[str]:
    """Check everything; print each problem, or one line when there is none; return the problems."""
    problems = list(check_files(out))
    if not problems:
        output = Output(out)
        with console.job("verify", len(CHECKS), "checks") as meter:
            for check in CHECKS:
                problems.extend(check(output))
                meter.advance()
    for problem in problems:
        console.problem(f"verify: {problem}")
    if not problems:
        console.line(
            "verify           checksums, headers, counts, places, texts and validation are as they should be"
        )
    return problems


# ---------------------------------------------------------------- checksums


def check_files(out: Path) -> Iterator[str]:
    """Every file is the one that was committed, and there are no others."""
    root = out / MANIFEST
    try:
        jobs = read_json(root)["jobs"]
    except FileNotFoundError:
        raise UserError(why_unfinished(out)) from None
    except DamagedFileError as error:
        yield f"{error}; the same command again writes it anew"
        return
    sizes = folders.files(out)
    expected: dict[Path, dict[str, Any]] = {}
    folder_of: dict[Path, Path] = {}  # of the job, in which a file may lie deeper
    known = {root, out / LOCK, out / RUNNING}
    for job, fingerprint in jobs.items():
        folder = out / job
        tasks = [path for path in sizes if path.parent == folder / TASKS and path.suffix == ".json"]
        known.update((folder / MANIFEST, *tasks))
        try:
            records = [read_json(folder / MANIFEST), *read_jsons(tasks)]
        except FileNotFoundError:
            yield f"{folder / MANIFEST} is missing; the same command again redoes that job"
            continue
        except DamagedFileError as error:
            yield f"{error}; {_repair(folder)}"
            continue
        if records[0]["fingerprint"] != fingerprint:
            yield f"{folder / MANIFEST} is of another run than {root}: run again"
        of_job = {folder / name: file for record in records for name, file in record["files"].items()}
        expected |= of_job
        folder_of |= dict.fromkeys(of_job, folder)
    with ThreadPoolExecutor() as threads:
        held = map(sizes.get, expected)
        yield from filter(None, threads.map(_compare, expected, expected.values(), held, folder_of.values()))
    for path in sizes:
        if path not in expected and path not in known and out / performance.FOLDER not in path.parents:
            yield f"{path} was not written by this run; remove it, or move it away"


def _compare(path: Path, file: dict[str, Any], size: int | None, folder: Path) -> str | None:
    if size is None:
        return f"{path} is missing; {_repair(folder)}"
    if size != file["bytes"]:
        return f"{path} is damaged: it has {size:,} bytes, {file['bytes']:,} were written; {_repair(folder)}"
    if sha256(path) != file["sha256"]:
        return f"{path} is damaged: its checksum is not the one of what was written; {_repair(folder)}"
    return None


def _repair(folder: Path) -> str:
    """A job that finds its folder gone is done again, and gives the same bytes; the jobs after it stay."""
    return f"to repair it, remove {folder} and run again"


# ---------------------------------------------------------------- what the files say


class Output:
    """A finished run's files, read once."""

    def __init__(self, out: Path) -> None:
        self.out = out
        manifest = read_json(out / MANIFEST)
        self.config = manifest["config"]
        self.figures = {job: read_json(out / job / MANIFEST)["figures"] for job in manifest["jobs"]}
        self.shards: dict[str, list[folders.Sliced]] = {ledger.TRAIN: [], ledger.VALIDATION: []}
        for split, name, _ in self.figures["shards"]["shards"]:
            self.shards[split].append(llmc.open_shard(out / "shards" / name))
        self.end_of_text = self.figures["shards"]["end_of_text"]

    @cached_property
    def settings(self) -> config.Config:
        """What the run was made with."""
        return config.Config.model_validate(self.config)

    @cached_property
    def earlier(self) -> tuple[Earlier, ...]:
        """The runs that it was made against; UserError where one is not what it was."""
        return proof.earlier_runs(self.settings, self.figures["near_duplicates"].get("against", {}))

    def ledger(self, columns: list[str]) -> Iterator[pd.DataFrame]:
        """The ledger, a file at a time."""
        for path in ledger.files(self.out):
            yield ledger.frame(folders.read_table(path, columns=columns))


def check_headers(output: Output) -> Iterator[str]:
    """Each shard holds the tokens that its header, its size and the manifest say, of the right type."""
    for split, name, tokens in output.figures["shards"]["shards"]:
        path = output.out / "shards" / name
        dtype, counted = llmc.read_header(path)
        if counted != tokens or dtype != np.dtype(output.figures["shards"]["dtype"]):
            packed = f"{tokens:,} {output.figures['shards']['dtype']}"
            yield f"{path} ({split}) holds {counted:,} {dtype} tokens, {packed} were packed"


def check_conservation(output: Output) -> Iterator[str]:
    """Documents read = documents in the ledger; kept tokens = tokens in the shards; each reason as reported."""
    columns = ["fate", "n_bytes", "n_tokens"]
    parts = [
        frame.assign(fate=frame["fate"].astype(str), documents=1)
        .groupby("fate")[["documents", "n_bytes", "n_tokens"]]
        .sum()
        for frame in output.ledger(columns)
    ]
    counted = pd.concat(parts).groupby(level=0).sum().astype(np.int64)
    annotated = output.figures["annotate"]
    for name, column in (("documents", "documents"), ("bytes", "n_bytes"), ("tokens", "n_tokens")):
        if counted[column].sum() != annotated[column]:
            yield f"the ledger counts {counted[column].sum():,} {name}, {annotated[column]:,} were read"
    for split, shards in output.shards.items():
        tokens = int(counted["n_tokens"].get(split, 0))
        if tokens != sum(map(len, shards)):
            yield f"the ledger gives {split} {tokens:,} tokens, its shards hold {sum(map(len, shards)):,}"
    reported = {fate: row["documents"] for fate, row in output.figures["ledger"]["fates"].items()}
    if reported != counted["documents"].to_dict():
        yield f"the ledger's fates are {counted['documents'].to_dict()}, its manifest says {reported}"


def check_identity(output: Output) -> Iterator[str]:
    """Every doc_id follows from its source, path and record, none occurs twice, and rows are in order."""
    seen, last = [], ("", "", -1)
    for frame in output.ledger(["doc_id", "source", "path", "record"]):
        for (source, path), rows in frame.groupby(["source", "path"], sort=False):
            records = rows["record"].to_numpy(np.int64)
            if (source, path, int(records[0])) <= last or (np.diff(records) <= 0).any():
                yield f"ledger rows of {source} {path} are out of order"
            last = (source, path, int(records[-1]))
            if not np.array_equal(ledger.doc_ids(source, path, records), rows["doc_id"].to_numpy(np.uint64)):
                yield f"doc_ids of {source} {path} do not follow from their places"
        seen.append(frame["doc_id"].to_numpy(np.uint64))
    everything = np.concatenate(seen) if seen else np.empty(0, np.uint64)
    if len(np.unique(everything)) != len(everything):
        yield "a doc_id occurs twice in the ledger"


def check_places(output: Output) -> Iterator[str]:
    """Kept documents tile their split in the seeded order; each one's tokens hash as recorded and end its text."""
    columns = ["doc_id", "fate", "n_tokens", "token_hash", "shard", "offset"]
    kept = pd.concat(frame[frame["shard"].notna()] for frame in output.ledger(columns))
    for split, shards in output.shards.items():
        rows = kept[kept["fate"] == split]
        starts = np.concatenate(([0], np.cumsum([len(shard) for shard in shards], dtype=np.int64)))
        position = starts[rows["shard"].to_numpy(np.int64)] + rows["offset"].to_numpy(np.int64)
        order = np.argsort(position)
        n_tokens = rows["n_tokens"].to_numpy(np.int64)[order]
        if not np.array_equal(position[order], np.cumsum(n_tokens) - n_tokens):
            yield f"the documents of {split} do not lie end to end in its shards"
            continue
        doc_ids = rows["doc_id"].to_numpy(np.uint64)[order]
        if not np.array_equal(
            permutation.seeded_order(doc_ids, permutation.key("order", output.config["order"]["seed"])),
            np.arange(len(rows)),
        ):
            yield f"the documents of {split} are not in the seeded order"
        wrong = _wrong_tokens(
            shards,
            position[order],
            n_tokens,
            rows["token_hash"].to_numpy(np.uint64)[order],
            output.end_of_text,
        )
        if len(wrong):
            yield (
                f"the tokens of {len(wrong):,} {split} documents are not where the ledger says, "
                f"doc_id {doc_ids[wrong[0]]} first"
            )


def _wrong_tokens(
    shards: list[folders.Sliced],
    position: np.ndarray,
    n_tokens: np.ndarray,
    token_hash: np.ndarray,
    end_of_text: int,
) -> np.ndarray:
    """Indices of documents whose tokens do not hash as recorded, or do not end in the end-of-text id."""
    wrong = []
    ends = np.cumsum([len(shard) for shard in shards], dtype=np.int64)
    first_shard = np.searchsorted(ends, position, side="right")
    last_shard = np.searchsorted(ends, position + n_tokens - 1, side="right")
    for number, shard in enumerate(shards):
        whole = np.flatnonzero((first_shard == number) & (last_shard == number))
        starts = position[whole] - (ends[number] - len(shard))
        tokens = np.asarray(shard[:])
        hashes = packing.slice_hashes(tokens, starts, n_tokens[whole])
        ended = tokens[starts + n_tokens[whole] - 1] == end_of_text
        wrong.append(whole[(hashes != token_hash[whole]) | ~ended])
    for cut in np.flatnonzero(first_shard != last_shard):
        tokens = read_tokens(shards, int(position[cut]), int(n_tokens[cut]))
        (hashed,) = packing.slice_hashes(tokens, np.array([0]), np.array([len(tokens)]))
        if hashed != token_hash[cut] or tokens[-1] != end_of_text:
            wrong.append(np.array([cut]))
    return np.sort(np.concatenate(wrong)) if wrong else np.empty(0, np.int64)


def read_tokens(shards: list[folders.Sliced], start: int, n: int) -> np.ndarray:
    """`n` tokens of a split's stream from `start`, stitched across its shards."""
    ends = np.cumsum([len(shard) for shard in shards], dtype=np.int64)
    pieces, number = [], int(np.searchsorted(ends, start, side="right"))
    while n > 0:
        begin = start - int(ends[number] - len(shards[number]))
        piece = shards[number][begin : begin + n]
        pieces.append(piece)
        start, n, number = start + len(piece), n - len(piece), number + 1
    return np.concatenate(pieces)


def check_fates(output: Output) -> Iterator[str]:
    """One document is kept of each cluster, kept documents reach the floor, and dropped ones have no place."""
    floor = output.config["length"]["min_tokens"]
    columns = ["doc_id", "source", "fate", "n_tokens", "cluster", "kept_by", "shard"]
    clustered = []
    for frame in output.ledger(columns):
        kept = frame["fate"].isin([ledger.TRAIN, ledger.VALIDATION])
        if (kept != frame["shard"].notna()).any():
            yield "a dropped document has a place, or a kept one has none"
        if (frame.loc[kept, "n_tokens"] < floor).any():
            yield f"a kept document has fewer than {floor} tokens"
        if (frame.loc[frame["fate"] == ledger.MIN_TOKENS, "n_tokens"] >= floor).any():
            yield f"a document of at least {floor} tokens was dropped as too short"
        if (frame["fate"].isin(ledger.DUPLICATES) != _has_other(frame)).any():
            yield "the documents that another was kept for are not those dropped as duplicates"
        clustered.append(frame[frame["cluster"].notna()])
    rows = pd.concat(clustered)
    if rows.empty:
        return
    doc_id, cluster, kept_by = (rows[name].to_numpy(np.uint64) for name in ("doc_id", "cluster", "kept_by"))
    by_cluster = pd.DataFrame({"doc_id": doc_id, "cluster": cluster, "kept_by": kept_by}).groupby("cluster")
    only_from = output.config["keep"]["drop_only_from"]
    if (not only_from and (by_cluster["kept_by"].nunique() != 1).any()) or (
        by_cluster["doc_id"].min() != by_cluster["doc_id"].first().index
    ).any():
        yield "a cluster is not named after its smallest doc_id, or keeps more than one document"
    duplicate = (rows["fate"] == ledger.NEAR_DUPLICATE).to_numpy(bool)
    if (duplicate != (doc_id != kept_by)).any():
        yield "the documents dropped as near-duplicates are not all but one of each cluster"


def _has_other(frame: pd.DataFrame) -> pd.Series:
    """Rows whose `kept_by` is another document."""
    return frame["kept_by"].notna() & (frame["kept_by"] != frame["doc_id"]).fillna(False)


def check_duplicates(output: Output) -> Iterator[str]:
    """Of the documents that came to each step, it kept the best of each hash or cluster, and dropped all others.

    Hashes of texts are the ledger's, those of URLs are computed again; so is what the policy says of each document.
    What earlier runs kept comes before all of them.
    """
    settings = output.settings
    try:
        earlier_runs = output.earlier
    except UserError as error:
        yield f"against: {error}"
        return
    steps = (
        (ledger.URL_DUPLICATE, settings.url_duplicates, urls.hashing(settings.url_duplicates)),
        (
            ledger.EXACT_DUPLICATE,
            settings.exact_duplicates,
            exact.hashing(settings.exact_duplicates.normalised),
        ),
    )
    hashed_columns = [column for _, job, hashing in steps if job.enabled for column in hashing.columns]
    wanted = {
        *("doc_id", "kept_by", "fate", "cluster", "source", "crawl"),
        *(keep.Policy(settings.keep).columns + hashed_columns),
        *([ledger.KEPT_IN] if earlier_runs else []),
    }
    table = pa.concat_tables(
        folders.read_table(path, columns=sorted(wanted)) for path in ledger.files(output.out)
    )
    crawls = tuple(sorted(pc.unique(table["crawl"]).drop_null().to_pylist()))
    policy = keep.Policy(settings.keep, crawls)
    rows = pd.DataFrame(
        {
            "doc_id": table["doc_id"].to_numpy(),
            "kept_by": table["kept_by"].fill_null(0).to_numpy(),
            "kept_in": proof.numbers(table, settings.against),
            "rank": policy.ranks(table, 0),
            "run": keep.THIS_RUN,
            "protected": policy.protected(table),
            "fate": table["fate"].cast(pa.string()).to_pandas(),
            "cluster": table["cluster"].fill_null(0).to_numpy(),
        }
    )
    earlier = {
        *(ledger.TRAIN, ledger.VALIDATION, ledger.MIN_TOKENS),
        *ledger.DUPLICATES,
    }
    present = rows["fate"].isin(earlier).to_numpy()
    for fate, job, hashing in steps:
        high, low, hashed = hashing.hashes(table) if job.enabled else (rows["doc_id"], 0, present)
        key = pd.DataFrame({"high": high, "low": low, "scope": scope.labels(table, job.scope)})
        entries = key[:0]
        if earlier_runs and job.enabled:
            entries = proof.survivors(earlier_runs, hashing, job.scope, fate, np.unique(high))
        groups = _groups(pd.concat([key, entries[list(key)]]))
        entries = entries.assign(group=groups[len(key) :])
        yield from _wrong_choice(rows.assign(group=groups[: len(key)]), present & hashed, fate, entries)
        present = present & (rows["fate"] != fate).to_numpy()
    clustered = present & (rows["cluster"] != 0).to_numpy()
    named = rows.assign(group=rows["cluster"])
    yield from _wrong_choice(named, clustered, ledger.NEAR_DUPLICATE, proof.kept_instead(rows))
    if earlier_runs:
        yield from proof.wrong_counts(table, output.figures, settings.against)


def _groups(key: pd.DataFrame) -> np.ndarray:
    """int64[d], equal where the whole key is."""
    return key.groupby(list(key.columns), sort=False).ngroup().to_numpy()


def _wrong_choice(rows: pd.DataFrame, present: np.ndarray, fate: str, entries: pd.DataFrame) -> Iterator[str]:
    """One line where a step dropped other documents than all but the best of each group, or for another's sake.

    The entries are what earlier runs kept of the groups.
    """
    here = rows[present]
    doc_id, protected = here["doc_id"].to_numpy(), here["protected"].to_numpy()
    compared = ["group", "protected", "rank", "doc_id", "run"]
    every = pd.concat([here[compared], entries[compared]]) if len(entries) else here[compared]
    best = keep.best(*(every[name].to_numpy() for name in compared))[: len(here)]
    whose = every.drop_duplicates("doc_id").set_index("doc_id")["run"].reindex(best).to_numpy()
    gone = (here["fate"] == fate).to_numpy()
    instead = (here["kept_by"].to_numpy() == best) & (here["kept_in"].to_numpy() == whose)
    wrong = (gone != ((doc_id != best) & ~protected)) | (gone & ~instead)
    wrong_elsewhere = ~present & (rows["fate"] == fate).to_numpy()
    if wrong.any() or wrong_elsewhere.any():
        first = doc_id[wrong][0] if wrong.any() else rows["doc_id"].to_numpy()[wrong_elsewhere][0]
        yield (
            f"{fate}: {wrong.sum() + wrong_elsewhere.sum():,} documents are dropped or kept otherwise than their "
            f"hashes and the policy say, doc_id {first} first"
        )


def check_clusters(output: Output) -> Iterator[str]:
    """The signatures alone give the clusters of near-duplicates; `check_duplicates` proves whom each of them keeps.

    Of clusters with documents of earlier runs, this proves that as well.
    """
    settings, annotated = output.settings, output.figures["annotate"]
    columns = {"doc_id", "cluster", *(proof.DECIDED if settings.against else ())}
    table = pa.concat_tables(
        folders.read_table(path, columns=sorted(columns)) for path in ledger.files(output.out)
    )
    try:
        earlier_runs = output.earlier
    except UserError:
        return  # `check_duplicates` says it
    if len(table) != annotated["documents"]:
        return  # `check_conservation` says it
    stars = _found_again(output, earlier_runs)
    doc_ids = table["doc_id"].to_numpy()
    ours = near.named_anew(stars[np.isin(stars[:, 0], doc_ids)]) if earlier_runs else stars
    clustered = np.asarray(table["cluster"].is_valid())
    differ = recomputed.joined if settings.near_duplicates.verify == "exact" else recomputed.unlike
    wrong = differ(ours, doc_ids[clustered], table["cluster"].drop_null().to_numpy())
    if len(wrong):
        yield (
            f"near_duplicate: the signatures put {len(wrong):,} documents into other clusters than the ledger, "
            f"doc_id {wrong[0]} first"
        )
    if earlier_runs:
        yield from proof.wrong_firsts(stars, table, settings, earlier_runs)


def _found_again(output: Output, earlier: Sequence[Earlier]) -> np.ndarray:
    """Star forest uint64[n, 2] of the documents of a run and of earlier ones, from signatures."""
    settings, annotated = output.settings.near_duplicates, output.figures["annotate"]
    if not settings.enabled:
        return np.empty((0, 2), np.uint64)
    runs = [
        recomputed.Annotated(out, splits, figures["documents_of_splits"])
        for out, splits, figures in (
            (
                output.out,
                [SplitPaths(output.out / "annotate", key) for key in annotated["splits"]],
                annotated,
            ),
            *((one.out, one.splits, one.figures["annotate"]) for one in earlier),
        )
    ]
    threshold = settings.threshold if settings.verify == "signature" else None
    return recomputed.forest(
        recomputed.Signed(runs, settings.bands, settings.rows, settings.scope, threshold)
    )


def check_validation(output: Output) -> Iterator[str]:
    """No validation document shares a text or a cluster with a training document or a reference set."""
    parts = [
        frame[frame["fate"].isin([ledger.TRAIN, ledger.VALIDATION])]
        for frame in output.ledger(["fate", "text_hash", "cluster"])
    ]
    rows = pd.concat(parts)
    validation = rows["fate"] == ledger.VALIDATION
    for column, what in (("cluster", "cluster"), ("text_hash", "text")):
        shared = set(rows.loc[validation, column].dropna()) & set(rows.loc[~validation, column].dropna())
        if shared:
            yield f"{len(shared):,} validation documents share a {what} with training"
    hashes = folders.load(output.out / "references" / "hashes.npy")
    prefixes = [int.from_bytes(value[:8], "big") for value in rows.loc[validation, "text_hash"]]
    overlapping = np.isin(np.array(prefixes, np.uint64), hashes).sum()
    if overlapping:
        yield f"{overlapping:,} validation documents are in a reference set"


def check_texts(output: Output) -> Iterator[str]:
    """The decoded tokens of a keyed sample of kept documents are their source's text."""
    from jobs.trace import source_texts, tokenizer_of

    coder, texts = tokenizer_of(output.out), source_texts(output.out)
    columns = ["doc_id", "source", "path", "record", "fate", "n_tokens", "shard", "offset"]
    rows = pd.concat(_sampled(frame[frame["shard"].notna()]) for frame in output.ledger(columns))
    unlike: dict[str, list[str]] = {}
    for (source, path), of_file in _sampled(rows).groupby(["source", "path"], observed=True):
        found = texts(source, path, of_file["record"].astype(int).tolist())
        for row, text in zip(of_file.itertuples(), found, strict=True):
            shards = output.shards[row.fate]
            start = sum(len(shard) for shard in shards[: row.shard]) + row.offset
            if text is None or coder.decode(read_tokens(shards, start, int(row.n_tokens) - 1)) != text:
                unlike.setdefault(str(source), []).append(f"{path} record {row.record}")
    for source, places in unlike.items():
        yield (
            f"the tokens of {len(places):,} of {min(DECODED, len(rows)):,} sampled documents do not decode to what "
            f"source {source!r} has now, {places[0]} first; did it change since the run?"
        )


def _sampled(frame: pd.DataFrame) -> pd.DataFrame:
    hashes = permutation.keyed_hash(frame["doc_id"].to_numpy(np.uint64), permutation.key("verify", 0))
    return frame.iloc[np.argsort(hashes, kind="stable")[:DECODED]]


def check_mixture(output: Output) -> Iterator[str]:
    """The shards of each group hold the tokens that the ledger gives it, and packed stages whole rows."""
    figures = output.figures.get("groups")
    if not figures:
        return
    settings = config.Config.model_validate(output.config)
    assert settings.mixture is not None
    labels = groups.Labels.of(settings.mixture, settings)
    counts = pd.concat([groups.count_members(path, labels) for path in ledger.files(output.out)])
    sizes = groups.sizes_of(counts, labels)
    for name, tiers in figures["groups"].items():
        for tier in tiers:
            files = [output.out / groups.NAME / file for file, _ in tier["files"]]
            held = sum(llmc.read_header(path)[1] for path in files)
            if held != sizes.get(name, {}).get(tier["min_document_tokens"]):
                yield f"the shards of group {name} hold {held:,} tokens, the ledger gives it {sizes.get(name)}"
    for stage in output.figures["mixture"]["stages"]:
        files = [output.out / "mixture" / file for file, _ in stage.get("files", [])]
        rows = sum(llmc.read_header(path)[1] for path in files) / (stage["length"] + 1)
        if files and rows != stage["sequences"]:
            yield f"stage {stage['name']} has {stage['sequences']:,} sequences, its shards hold {rows:,g} rows"


CHECKS: list[Callable[[Output], Iterator[str]]] = [
    check_headers,
    check_conservation,
    check_identity,
    check_places,
    check_fates,
    check_duplicates,
    check_clusters,
    check_validation,
    check_texts,
    check_mixture,
]


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.verify`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.verify",
        description="Prove a finished run from its files alone: checksums, headers, counts, the place and content of "
        "each kept document's tokens, and that validation shares nothing with training. Status 1 and one line for each "
        "problem when it does not hold.",
    )
    parser.add_argument("out", metavar="OUT", help="output folder of a finished run, or its URL")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.verify OUT`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: 1 if verify(folders.reached(options.out), Console()) else 0)


if __name__ == "__main__":
    sys.exit(main())
