"""From a token of a shard back to its document, its source and its neighbours."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from jobs import config, ledger, steps
from jobs.cli import guarded
from jobs.errors import UserError
from jobs.formats import llmc
from jobs.pipeline import inventory
from jobs.runtime import folders
from jobs.runtime.checkpoint import MANIFEST, read_json, why_unfinished
from jobs.runtime.console import Console
from jobs.runtime.context import encoder_spec
from jobs.tokens import encoder

AROUND = 32  # tokens decoded on either side
NAMES = {"train": ledger.TRAIN, "val": ledger.VALIDATION, "validation": ledger.VALIDATION}
CARRIED = ("source", "path", "record", "id", "url", "crawl", "score")
COLUMNS = [
    "doc_id",
    *CARRIED,
    "n_tokens",
    "cluster",
    "fate",
    "shard",
    "offset",
]


def trace(out: Path, split: str, shard: int, token: int) -> dict[str, Any]:
    """The document that holds a token, the documents beside it in the stream, and the text around the token.

    Raises
    ------
    UserError
        The output is not a finished run, or has no such shard or token.
    """
    configuration(out)  # refuses a run that is not finished
    names = [name for of, name, _ in _figures(out, "shards")["shards"] if of == split]
    if not 0 <= shard < len(names):
        raise UserError(f"there is no shard {split}:{shard}; {split} has {len(names)}, counted from 0")
    shards = [llmc.open_shard(out / "shards" / name) for name in names]
    if not 0 <= token < len(shards[shard]):
        raise UserError(
            f"{names[shard]} has {len(shards[shard]):,} tokens, counted from 0; there is no token {token:,}"
        )
    starts = np.concatenate(([0], np.cumsum([len(s) for s in shards], dtype=np.int64)))
    position = int(starts[shard]) + token
    before, document, after = _documents_at(out, split, starts, position)
    coder = tokenizer_of(out)
    first = max(0, position - AROUND)
    tokens = np.concatenate(
        [s[max(0, first - b) : max(0, position + AROUND - b)] for s, b in zip(shards, starts, strict=False)]
    )
    here = position - first
    return {
        "file": names[shard],
        "document": document,
        "token_of_document": position - document["position"],
        "before": before,
        "after": after,
        "text": [
            coder.decode(tokens[:here]),
            coder.decode(tokens[here : here + 1]),
            coder.decode(tokens[here + 1 :]),
        ],
    }


def _documents_at(out: Path, split: str, starts: np.ndarray, position: int) -> list[dict[str, Any] | Any]:
    """The documents before, at and after a position of a split's stream; None where there is none."""
    near = []
    for path in ledger.files(out):
        of_split = folders.read_table(path, columns=COLUMNS, filters=[("fate", "==", split)])
        # A cluster may be null, which would make floats of 64-bit integers.
        table = of_split.to_pandas(types_mapper={pa.uint64(): pd.ArrowDtype(pa.uint64())}.get)
        table["position"] = starts[table["shard"].to_numpy(np.int64)] + table["offset"]
        near.append(table[table["position"] <= position].nlargest(2, "position"))
        near.append(table[table["position"] > position].nsmallest(1, "position"))
    rows = pd.concat(near).sort_values("position")
    at = int(np.searchsorted(rows["position"].to_numpy(), position, side="right")) - 1
    found = rows.to_dict("records")
    return [found[i] if 0 <= i < len(found) else None for i in (at - 1, at, at + 1)]


def _figures(out: Path, job: str) -> dict[str, Any]:
    try:
        return dict(read_json(out / job / MANIFEST)["figures"])
    except FileNotFoundError:
        raise UserError(why_unfinished(out)) from None


def configuration(out: str | Path) -> config.Config:
    """The configuration that a finished run was made with."""
    folder = folders.located(out)
    try:
        return config.Config.model_validate(read_json(folder / MANIFEST)["config"])
    except FileNotFoundError:
        raise UserError(why_unfinished(folder)) from None


def tokenizer_of(out: str | Path) -> encoder.Encoder:
    """The tokenizer that a finished run encoded with."""
    folder = folders.located(out)
    path = folder / "tokenizer" / _figures(folder, "tokenizer")["file"]
    return encoder.get(encoder_spec(configuration(folder).tokenizer, path))


def source_texts(out: str | Path) -> Callable[[str, str, list[int]], list[str | None]]:
    """A function that reads texts of one file again from where they came from: source, path, records."""
    folder = folders.located(out)
    settings = {source.name: source.resolved(folder) for source in configuration(folder).sources}
    known = inventory.recorded(folder)

    def texts(source: str, path: str, records: list[int]) -> list[str | None]:
        blocks = inventory.blocks(settings[source], path, known)
        return steps.texts(settings[source], path, records, blocks)

    return texts


def explain(out: Path, doc_id: int) -> list[dict[str, Any]]:
    """The ledger's rows of a document, of the one kept in its place, and so on to one that no other replaced.

    A row of an earlier run, which `against` named, has its name as `out`; this run's rows have None there.

    Raises
    ------
    UserError
        The output is not a finished run, or has no such document.
    """
    rows: list[dict[str, Any]] = []
    here, name, wanted = out, None, doc_id
    while True:
        rows.append(_row(here, wanted) | {"out": name})
        kept_by, kept_in = rows[-1]["kept_by"], rows[-1].get(ledger.KEPT_IN)
        if kept_by is None or kept_by == wanted:
            return rows
        if kept_in is not None:
            here, name = folders.reached(kept_in), kept_in
        wanted = kept_by


def _row(out: Path, doc_id: int) -> dict[str, Any]:
    columns = [*COLUMNS, "kept_by", *([ledger.KEPT_IN] if configuration(out).against else [])]
    known = pc.field("doc_id") == pa.scalar(doc_id, pa.uint64())
    for path in ledger.files(out):
        found = folders.read_table(path, columns=columns, filters=known).to_pylist()
        if found:
            return dict(found[0])
    raise UserError(f"there is no document {doc_id} in the ledger of {out}")


def show_document(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print what `explain` found."""
    for row in rows:
        kept_in = f"kept in {row['out']}: " if row["out"] else ""
        console.line(f"{kept_in}doc_id {row['doc_id']}: {row['fate']}")
        for name in (*CARRIED, "cluster", "kept_by", ledger.KEPT_IN):
            if row.get(name) is not None:
                console.line(f"  {name:<8} {row[name]}")


def show(console: Console, found: dict[str, Any]) -> None:
    """Print what `trace` found."""
    document = found["document"]
    console.line(
        f"{found['file']}: token {found['token_of_document']:,} of {document['n_tokens']:,} of this document"
    )
    for name in ("doc_id", "source", "path", "record", "id", "url", "crawl", "score", "cluster"):
        if not pd.isna(document[name]):
            console.line(f"  {name:<8} {document[name]}")
    for which in ("before", "after"):
        other = found[which]
        told = (
            f"doc_id {other['doc_id']}  {other['source']} {other['path']} record {other['record']}"
            if other
            else "none"
        )
        console.line(f"  {which:<8} {told}")
    before, token, after = found["text"]
    console.line()
    console.line(f"{before}⟦{token}⟧{after}")


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.trace`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.trace",
        description="Name the document that a token of a shard comes from, and show it; or say why a document was "
        "dropped and which one was kept in its place.",
    )
    parser.add_argument("out", metavar="OUT", help="output folder of a finished run, or its URL")
    parser.add_argument("--shard", metavar="SPLIT:NUMBER", help="such as train:3 or val:0")
    parser.add_argument("--token", type=int, metavar="N", help="index of the token in the shard, from 0")
    parser.add_argument(
        "--document",
        type=int,
        metavar="DOC_ID",
        help="instead of a token: the document's fate, and what was kept in its place",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.trace OUT --shard train:3 --token 12345`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    if options.document is not None and options.shard is None and options.token is None:
        show_document(Console(), explain(folders.reached(options.out), options.document))
        return 0
    if options.document is not None or options.shard is None or options.token is None:
        raise UserError("give either --shard and --token, or --document")
    split, colon, number = options.shard.partition(":")
    if split not in NAMES or not colon or not number.isdigit():
        raise UserError(f"--shard is {options.shard!r}; it should be like train:3 or val:0")
    show(Console(), trace(folders.reached(options.out), NAMES[split], int(number), options.token))
    return 0


if __name__ == "__main__":
    sys.exit(main())
