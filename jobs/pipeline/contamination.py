"""The decontamination diff: which items of evaluation sets the documents hold, and which documents those are.

`OUT/contamination` holds three tables, `documents.parquet`, `items.parquet` and `ngrams.parquet`, the figures of the
report as `diff.json` and, to be read, `diff.md`; and of each set `NAME.clean` with the set's suffix: the items that no
document was contaminated by, so that a score can be reported on them. They speak of every document that came as far as
the search, those included that are dropped now, for this or another reason; their fates are in `documents.parquet`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from jobs import evaluation_sets, ledger
from jobs.config import with_absolute_sets
from jobs.evaluation_sets import Index
from jobs.pipeline.annotate import MATCHES
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import columns, gather
from jobs.runtime.console import counted
from jobs.settings.contamination import Contamination, EvaluationSet
from jobs.steps.contamination import contaminating, identity

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "contamination"
JSON, MARKDOWN = "diff.json", "diff.md"
MANY_ITEMS = 20  # that share an n-gram, and more: an instruction, or the frame of many questions
SHOWN = 20  # n-grams and items of each set in the figures; the tables hold all
FATES = columns(doc_id="uint64", fate="string")
IDENTITY = ["source", "path", "record", "id", "url", "crawl", "fate"]


# ---------------------------------------------------------------- tables


class Diff:
    """What a corpus and evaluation sets have in common.

    Parameters
    ----------
    matches
        A row for each n-gram of each document: `doc_id`, the columns of `IDENTITY`, and `ngram`.
    index
        Of the sets.
    settings
        What counts.
    """

    def __init__(self, matches: pd.DataFrame, index: Index, settings: Contamination) -> None:
        self.index, self.settings = index, settings
        self.names = [one.name for one in settings.sets]
        self.matches = matches.reset_index(drop=True)
        ordered = self.matches.rename(columns={"doc_id": "row"})
        self.pairs = contaminating(ordered, index, settings.model_copy(update={"match": "any"}))
        self.pairs["ngram"] = self.matches["ngram"].to_numpy()[self.pairs["match"]]
        self.pairs["source"] = self.matches["source"].to_numpy()[self.pairs["match"]]
        counting = contaminating(ordered, index, settings)
        self.pairs["counts"] = self.pairs.index.isin(counting.index)

    def items(self) -> pd.DataFrame:
        """A row for each item of which any n-gram was found, in the order of the sets."""
        by_item = self.pairs.groupby("item")
        table = pd.DataFrame(
            {
                "ngrams": self.index.sizes[by_item.size().index],
                "matched": by_item["ngram"].nunique(),
                "largest": by_item["matched"].max(),
                "documents": by_item["row"].nunique(),
                "sources": by_item["source"].agg(lambda of: sorted(set(of))),
                "contaminated": by_item["counts"].any(),
                "ngram": by_item["ngram"].first().map(self.index.text),
            }
        )
        names = [self.index.items[item] for item in table.index]
        table.insert(0, "set", [name for name, _ in names])
        table.insert(1, "item", [item for _, item in names])
        table["share"] = table["matched"] / table["ngrams"]
        table["largest_share"] = table.pop("largest") / table["ngrams"]
        return table.reset_index(names="number")

    def documents(self) -> pd.DataFrame:
        """A row for each document and set that have an n-gram in common, in the order of the ledger."""
        by_document = self.pairs.groupby(["row", "set"])
        first = by_document.first()
        table = pd.DataFrame(
            {
                "items": by_document["item"].nunique(),
                "ngrams": by_document["ngram"].nunique(),
                "contaminated": by_document["counts"].any(),
                "ngram": first["ngram"].map(self.index.text),
                "item": first["item"].map(lambda item: self.index.items[item][1]),
            }
        ).reset_index()
        known = self.matches.drop_duplicates("doc_id").set_index("doc_id")[IDENTITY]
        table = table.join(known, on="row").rename(columns={"row": "doc_id"})
        table = table.sort_values(["source", "path", "record", "set"], ignore_index=True)
        table["set"] = [self.names[number] for number in table["set"]]
        return table[["doc_id", *IDENTITY, "set", "contaminated", "items", "item", "ngrams", "ngram"]]

    def ngrams(self) -> pd.DataFrame:
        """A row for each n-gram that was found, those of most documents first."""
        by_ngram = self.matches.groupby("ngram")
        table = pd.DataFrame(
            {
                "documents": by_ngram["doc_id"].nunique(),
                "sources": by_ngram["source"].agg(lambda of: sorted(set(of))),
            }
        )
        number = table.index.to_numpy(np.int64)
        table["items"] = self.index.offsets[number + 1] - self.index.offsets[number]
        first = self.index.postings[self.index.offsets[number]]
        table["set"] = [self.index.items[item][0] for item in first]
        table["item"] = [self.index.items[item][1] for item in first]
        table["words"] = [self.index.text(ngram) for ngram in number]
        table = table.reset_index(drop=False).sort_values(
            ["documents", "ngram"], ascending=[False, True], ignore_index=True
        )
        return table[["words", "documents", "sources", "items", "set", "item"]]

    def figures(self, items: pd.DataFrame, documents: pd.DataFrame, ngrams: pd.DataFrame) -> dict[str, Any]:
        """What the report says."""
        return {
            "settings": {
                name: getattr(self.settings, name)
                for name in ("ngram", "min_words", "match", "share", "max_items", "max_documents", "action")
            },
            "ngrams_in_index": len(self.index.spans),
            "ngram_of_most_items": _of_most_items(ngrams),
            "ngrams_by_documents": ngrams.head(SHOWN).to_dict("records"),
            "boilerplate": self.index.boilerplate,
            "common": self.index.common,
            "sets": [
                self._of_set(number, items[items["set"] == name], documents[documents["set"] == name])
                for number, name in enumerate(self.names)
            ],
        }

    def _of_set(self, number: int, items: pd.DataFrame, documents: pd.DataFrame) -> dict[str, Any]:
        sizes = self.index.sizes[self.index.set_of_item == number]
        contaminated = documents[documents["contaminated"].astype(bool)]
        worst = items.sort_values(["share", "number"], ascending=[False, True]).head(SHOWN)
        return {
            "name": self.names[number],
            "items": len(sizes),
            "items_too_short": int((sizes == 0).sum()),
            "items_found": len(items),
            "items_contaminated": int(items["contaminated"].sum()),
            "items_clean": len(sizes) - int(items["contaminated"].sum()),
            "documents": len(documents),
            "documents_contaminated": len(contaminated),
            "by_fate": _counts(contaminated["fate"]),
            "by_source": _counts(contaminated["source"]),
            "by_crawl": _counts(contaminated["crawl"]),
            "most_of": worst[["item", "share", "documents", "ngram"]].to_dict("records"),
        }


def _of_most_items(ngrams: pd.DataFrame) -> dict[str, Any] | None:
    """The n-gram that most items share, where these are so many that it looks like boilerplate."""
    first = ngrams.sort_values(["items", "documents", "words"], ascending=[False, False, True]).head(1)
    return next((one for one in first.to_dict("records") if one["items"] > MANY_ITEMS), None)


def boilerplate(figures: dict[str, Any]) -> str | None:
    """A sentence on what is most likely no part of a question, and what to do about it."""
    found = figures.get("ngram_of_most_items")
    if not found:
        return None
    return (
        f"{found['items']:,} items, such as {found['set']} {found['item']}, share words that are in "
        f"{counted(found['documents'], 'document')}: {found['words']!r}. With max_items: {MANY_ITEMS}, "
        "n-grams of so many items do not count."
    )


def _counts(values: pd.Series) -> dict[str, int]:
    return {str(value): int(count) for value, count in values.dropna().value_counts().sort_index().items()}


def write(folder: Path, diff: Diff) -> dict[str, Any]:
    """Write the tables, the figures and the clean subsets; return the figures."""
    items, documents, ngrams = diff.items(), diff.documents(), diff.ngrams()
    figures = diff.figures(items, documents, ngrams)
    tables = {"items": items.drop(columns="number"), "documents": documents, "ngrams": ngrams}
    for name, table in tables.items():
        with checkpoint.written(folder / f"{name}.parquet") as file:
            pq.write_table(_table(table), file, compression="zstd")
    dirty = set(items.loc[items["contaminated"].astype(bool), "number"])
    for number, one in enumerate(diff.settings.sets):
        of_set = np.flatnonzero(diff.index.set_of_item == number)
        with checkpoint.written(folder / clean_name(one)) as file:
            evaluation_sets.write_subset(one, [item not in dirty for item in of_set], file)
    checkpoint.write_json(folder / JSON, figures)
    with checkpoint.written(folder / MARKDOWN) as file:
        file.write(markdown(figures).encode())
    return figures


def _table(frame: pd.DataFrame) -> pa.Table:
    kinds = {
        **dict(ledger.IDENTITY),
        **dict.fromkeys(("id", "url", "crawl", "fate", "set", "item", "ngram", "words"), pa.string()),
        **dict.fromkeys(("items", "ngrams", "matched", "documents"), pa.int64()),
        **dict.fromkeys(("share", "largest_share"), pa.float64()),
        "contaminated": pa.bool_(),
        "sources": pa.list_(pa.string()),
    }
    # Of an empty frame, Pandas does not know the types.
    columns = {name: pa.array(frame[name].astype(object), kinds[name], from_pandas=True) for name in frame}
    return pa.table(columns)


def clean_name(settings: EvaluationSet) -> str:
    """File of the items of a set that no document was contaminated by."""
    suffixes = Path(settings.path).suffixes[-2 if settings.path.endswith(".gz") else -1 :]
    return f"{settings.name}.clean{''.join(suffixes)}"


def summary(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row for each set: its name, items, found, contaminated and clean ones, documents, contaminated ones."""
    return [
        (
            one["name"],
            *(
                f"{one[name]:,}"
                for name in (
                    *("items", "items_found", "items_contaminated", "items_clean", "items_too_short"),
                    *("documents", "documents_contaminated"),
                )
            ),
        )
        for one in figures["sets"]
    ]


HEADINGS = [
    *("set", "items", "found", "contaminated", "clean", "too short"),
    *("documents with any", "contaminated documents"),
]


def markdown(figures: dict[str, Any]) -> str:
    """The diff, to be read."""
    settings = figures["settings"]
    rule = (
        f"any n-gram of {settings['ngram']} words"
        if settings["match"] == "any"
        else f"{settings['share']:.0%} of an item's n-grams of {settings['ngram']} words"
    )
    lines = [
        "# Evaluation sets and training data\n",
        f"A document is contaminated by an item where it has {rule}; action: {settings['action']}.\n",
        *_markdown_table(HEADINGS, summary(figures)),
        *([f"\n{sentence}"] if (sentence := boilerplate(figures)) else []),
    ]
    for one in figures["sets"]:
        lines += [f"\n## {one['name']}\n"]
        counted = [
            (by.removeprefix("by_"), value, f"{count:,}")
            for by in ("by_fate", "by_source", "by_crawl")
            for value, count in one[by].items()
        ]
        if counted:
            lines += [*_markdown_table(["by", "", "contaminated documents"], counted), ""]
        found = [
            (row["item"], f"{row['share']:.0%}", f"{row['documents']:,}", row["ngram"])
            for row in one["most_of"]
        ]
        lines += (
            _markdown_table(["item", "found", "documents", "such as"], found)
            if found
            else ["Nothing was found."]
        )
    by_documents = [(f"{row['documents']:,}", row["words"]) for row in figures["ngrams_by_documents"]]
    if by_documents:
        lines += ["\n## N-grams of most documents\n", *_markdown_table(["documents", "words"], by_documents)]
    for title, left_out in (("items", figures["boilerplate"]), ("documents", figures["common"])):
        if left_out:
            of_each = [(f"{count:,}", words) for words, count in left_out.items()]
            lines += [
                f"\n## Left out: n-grams of too many {title}\n",
                *_markdown_table([title, "words"], of_each),
            ]
    return "\n".join(lines) + "\n"


def _markdown_table(headings: list[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    escaped = [tuple(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in row) for row in rows]
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *escaped)]


# ---------------------------------------------------------------- the job


def fates(frame: pd.DataFrame, wanted: np.ndarray) -> pd.DataFrame:
    """The fates of some documents."""
    chosen = frame["doc_id"].isin(wanted)
    return pd.DataFrame(
        {
            "doc_id": frame.loc[chosen, "doc_id"].to_numpy(np.uint64),
            "fate": frame.loc[chosen, "fate"].astype(str),
        }
    ).astype(FATES.dtypes)


def job_fingerprint(run: "Run") -> str:
    """Covers the settings and, where sets are looked for, these and the fates of the documents."""
    settings = run.config.contamination
    return fingerprint.fingerprint(
        __name__, settings=identity(settings), ledger=run.fingerprints["ledger"] if settings.used else None
    )


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Bring together what was found beside each split, with the documents' fates."""
    job.begin()
    settings = with_absolute_sets(run.config.contamination)
    if not settings.used:
        return {"sets": []}
    searched = {source.name for source in run.sources if source.contamination.used}
    tables = [
        folders.read_table(paths.matches)
        for split, paths in zip(run.splits, run.annotated, strict=True)
        if split.source in searched
    ]
    matches = ledger.frame(pa.concat_tables([MATCHES.empty_table(), *tables]))
    doc_id = matches["doc_id"].to_numpy(np.uint64)
    frame = ledger.read(run.out, ["doc_id", "fate"])
    with run.console.job(NAME, frame.npartitions, "files", **run.totals()) as meter:
        graph = frame.map_partitions(fates, wanted=np.unique(doc_id), meta=FATES)
        known = gather(run.client, graph, meter, counted=()).set_index("doc_id")["fate"]
    matches = matches.assign(doc_id=doc_id, fate=pd.Series(doc_id).map(known))
    figures = write(job.folder, Diff(matches, evaluation_sets.index_of(settings), settings))
    if sentence := boilerplate(figures):
        run.console.warn(sentence)
    return dict(json.loads(json.dumps(figures)))
