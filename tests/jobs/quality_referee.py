"""datatrove's own filters over a Parquet file of documents; runs in the environment of `make referees`.

``python -m tests.jobs.quality_referee DOCUMENTS WORDS OUTPUT``: `text` in, a Parquet file of reasons out, a column a
filter, null for documents that are kept, and the text that the C4 filters leave. With WORDS `spacy`, words and
sentences are those of datatrove's English tokenizer. With `ours`, they are those of the columns `words`, `lines` and
`sentences` (how many there are in each of the lines); so what is left to differ is the filters.
"""

import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.pipeline.filters import (
    c4_filters,
    fineweb_quality_filter,
    gopher_quality_filter,
    gopher_repetition_filter,
)

FILTERS: dict[str, Callable[[], Any]] = {
    "gopher_repetition": gopher_repetition_filter.GopherRepetitionFilter,
    "gopher_quality": gopher_quality_filter.GopherQualityFilter,
    "c4-datatrove": c4_filters.C4QualityFilter,
    "c4-fineweb": lambda: c4_filters.C4QualityFilter(filter_no_terminal_punct=False),
    "fineweb-code": fineweb_quality_filter.FineWebQualityFilter,
}


def main(documents: str, words: str, output: str) -> None:
    table = pq.read_table(documents)
    texts = table["text"].to_pylist()
    if words == "ours":
        _use(table.to_pylist())
    columns: dict[str, list[str | None]] = {}
    for name, make in FILTERS.items():
        step, columns[name] = make(), []
        edited = columns.setdefault(f"{name} text", []) if name.startswith("c4") else []
        for text in texts:
            document = Document(text=text, id="")
            columns[name].append(_reason(step, document))
            edited.append(document.text)
    pq.write_table(pa.table(columns), output)


def _reason(step: Any, document: Document) -> str | None:
    try:
        result = step.filter(document)
    except ZeroDivisionError:
        return "ZeroDivisionError"
    return result[1] if isinstance(result, tuple) else None


def _use(rows: list[dict[str, Any]]) -> None:
    """Put given words and numbers of sentences in the place of spaCy's."""
    words = {row["text"]: row["words"] for row in rows}
    sentences = {line: n for row in rows for line, n in zip(row["lines"], row["sentences"], strict=True)}
    for module in (gopher_quality_filter, gopher_repetition_filter, fineweb_quality_filter):
        module.split_into_words = lambda text, language: words[text]
    c4_filters.split_into_sentences = lambda line, language: [line] * sentences[line]


if __name__ == "__main__":
    main(*sys.argv[1:])
