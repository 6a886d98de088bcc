"""Look for an evaluation set in a finished corpus, without the text that it was made from.

The token store is decoded, split by split, and looked through as the step of a run does it; what is found in documents
that are in the shards is written. Nothing of the corpus is changed. For evaluation sets that appeared, or that somebody
thought of, after the run.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.cli import add_cluster, guarded
from jobs.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from jobs.pipeline.paths import SplitPaths
    from jobs.settings.contamination import Column, Contamination
    from jobs.tokens import encoder

COLUMNS = ["doc_id", "source", "path", "record", "id", "url", "crawl", "n_tokens", "n_bytes", "start"]


def search(
    paths: "SplitPaths", coder: "encoder.Spec", dtype: str, settings: "Contamination"
) -> "pd.DataFrame":
    """The n-grams of the sets in the tokenized documents of a split.

    Parameters
    ----------
    paths
        Of the split in `OUT/annotate`.
    coder, dtype
        The tokenizer, and of the token store.
    settings
        Which sets, and how they are looked for.

    Returns
    -------
    DataFrame
        `COLUMNS` but the last three, `ngram`, and `documents` and `n_bytes` for the meter, which are 0 in all rows but
        the last, whose `ngram` is -1.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    from jobs import ledger
    from jobs.pipeline.stores import decoded
    from jobs.runtime import folders
    from jobs.steps.contamination import checked
    from jobs.tokens import encoder

    table = folders.read_table(paths.rows, columns=COLUMNS)
    table = table.filter(pc.greater(table["n_tokens"], 0))
    found = [_nothing()]
    for rows, read in decoded(paths, table, dtype, encoder.get(coder)):
        texts = [text.decode(errors="replace") for text in read]
        matches = checked(pa.array(texts, pa.large_string()), settings).matches
        of_document = ledger.frame(table.select(COLUMNS[:-3]).take(pa.array(rows[matches["row"].to_numpy()])))
        found.append(of_document.assign(ngram=matches["ngram"].to_numpy(), documents=0, n_bytes=0))
    progress = (
        _nothing()
        .reindex([0])
        .assign(ngram=-1, documents=len(table), n_bytes=int(table["n_bytes"].to_numpy().sum()))
    )
    return pd.concat([*found, progress], ignore_index=True).astype(_nothing().dtypes)


def _nothing() -> "pd.DataFrame":
    """No rows of what `search` returns."""
    import pyarrow as pa

    from jobs import ledger

    known = {**dict(ledger.IDENTITY), **dict(ledger.CARRIED)}
    counted = ["ngram", "documents", "n_bytes"]
    schema = pa.schema(
        [*((name, known[name]) for name in COLUMNS[:-3]), *((name, pa.int64()) for name in counted)]
    )
    return ledger.frame(schema.empty_table()).astype(dict.fromkeys(counted, "int64"))


def contamination(
    out: Path, settings: "Contamination", folder: Path, options: argparse.Namespace, console: Any
) -> dict[str, Any]:
    """Look through a finished corpus and write the diff into a folder; return its figures.

    Raises
    ------
    UserError
        The output is not a finished run.
    """
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    from jobs import evaluation_sets, ledger, trace
    from jobs.pipeline.contamination import FATES, Diff, fates, write
    from jobs.pipeline.paths import SplitPaths
    from jobs.runtime.checkpoint import MANIFEST, read_json
    from jobs.runtime.cluster import connected
    from jobs.runtime.compute import gather
    from jobs.runtime.context import encoder_spec

    config = trace.configuration(out)
    figures = {job: read_json(out / job / MANIFEST)["figures"] for job in ("annotate", "shards", "tokenizer")}
    coder = encoder_spec(config.tokenizer, out / "tokenizer" / figures["tokenizer"]["file"])
    paths = [SplitPaths(out / "annotate", key) for key in figures["annotate"]["splits"]]
    with connected(options.scheduler, options.workers, options.memory_limit) as client:
        graph = dd.from_map(
            search,
            paths,
            coder=coder,
            dtype=figures["shards"]["dtype"],
            settings=settings,
            meta=_nothing(),
            label="look for evaluation items",
        )
        with console.job("contamination", len(paths), "splits") as meter:
            found = gather(client, graph, meter)
        found = found[found["ngram"] >= 0]
        doc_id = found["doc_id"].to_numpy(np.uint64)
        rows = ledger.read(out, ["doc_id", "fate"])
        known = rows.map_partitions(fates, wanted=np.unique(doc_id), meta=FATES).compute()
    matches = found.assign(
        doc_id=doc_id, fate=pd.Series(doc_id, found.index).map(known.set_index("doc_id")["fate"])
    )
    matches = matches[matches["fate"].isin([ledger.TRAIN, ledger.VALIDATION])]
    return write(folder, Diff(matches, evaluation_sets.index_of(settings), settings))


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.contamination`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.contamination",
        description="Look for an evaluation set in the kept documents of a finished run, from their tokens, and write "
        "which items and documents have n-grams in common, and the items that none has. Nothing is removed.",
    )
    add = parser.add_argument
    add("out", metavar="OUT", help="output folder of a finished run, or its URL")
    add(
        "--eval",
        required=True,
        metavar="FILE",
        dest="path",
        help="JSON Lines or CSV, plain or gzip, or Parquet",
    )
    add("--fields", required=True, metavar="A,B,…",
        help="fields that count; positions from 0 in a CSV file without a header")  # fmt: skip
    add("--id", metavar="A,B,…", help="fields that name an item (default: the number of its line or row)")
    add("--name", metavar="NAME", help="of the set (default: the file's name)")
    add("--output", metavar="DIR", help="folder for what was found (default: OUT-contamination-NAME)")
    add("--ngram", type=int, default=13, metavar="N", help="words in an n-gram (default: 13)")
    add("--share", type=float, metavar="S",
        help="of an item's n-grams in one document, for it to be contaminated (default: any n-gram)")  # fmt: skip
    add("--max-items", type=int, metavar="N",
        help="leave out n-grams of more items than this (default: none)")  # fmt: skip
    add_cluster(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.contamination OUT --eval FILE --fields question,answer`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    from jobs.pipeline.contamination import HEADINGS, boilerplate, summary
    from jobs.runtime import folders
    from jobs.runtime.console import Console
    from jobs.steps.contamination import check, never_found

    settings, console = _settings(options), Console()
    check(settings)
    for warning in never_found(settings):
        console.warn(warning)
    out = folders.reached(options.out)
    folder = Path(options.output or f"{options.out.rstrip('/')}-contamination-{settings.sets[0].name}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--output {folder} is there already; give a new or empty folder")
    figures = contamination(out, settings, folder, options, console)
    console.table("", HEADINGS, summary(figures))
    if sentence := boilerplate(figures):
        console.warn(sentence)
    console.line(f"{folder}: which items and documents, in diff.md")
    return 0


def _settings(options: argparse.Namespace) -> "Contamination":
    from pydantic import ValidationError

    from jobs.config import said, with_absolute_sets
    from jobs.settings.contamination import Contamination

    name = options.name or Path(options.path).name.partition(".")[0]
    one = {
        "name": name,
        "path": options.path,
        "fields": _columns(options.fields),
        "id": _columns(options.id) or None,
    }
    raw = {
        "sets": [one],
        "ngram": options.ngram,
        "max_items": options.max_items,
        "action": "report",
        **({"match": "share", "share": options.share} if options.share is not None else {}),
    }
    try:
        return with_absolute_sets(Contamination.model_validate(json.loads(json.dumps(raw))))
    except ValidationError as error:
        raise UserError(said(error, ("contamination",))) from None


def _columns(listed: str | None) -> "Sequence[Column]":
    columns = [column.strip() for column in (listed or "").split(",") if column.strip()]
    return [int(column) if column.isdigit() else column for column in columns]


if __name__ == "__main__":
    sys.exit(main())
