"""Contamination: the step over web documents with an index of HumanEval, GSM8K and MMLU, against seed 001's expression.

The expression is that of the seed over the words of `tests.naive.gpt3_words`, which decides alike, with sets of the
lengths that there are; and, quicker and not quite alike, over `str.lower`, `str.translate` and `str.split` and tuples
of 13 words alone.
"""

import string
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs import evaluation_sets
from jobs.settings.contamination import Contamination
from jobs.steps.contamination import checked
from tests import naive
from tests.benchmarks.measure import RUNS, Result, seconds

SHARED = Path(__file__).parents[3] / "shared" / "data"
SETS = [
    {
        "name": "humaneval",
        "path": "HumanEval.jsonl.gz",
        "fields": ["prompt", "canonical_solution"],
        "id": "task_id",
    },
    {"name": "gsm8k", "path": "gsm8k_test.jsonl", "fields": ["question", "answer"]},
    {
        "name": "mmlu",
        "path": "mmlu.jsonl.gz",
        "fields": ["question", "choices"],
        "id": ["set", "split", "id"],
    },
]
PUBLIC_SETS = Contamination.model_validate(
    {"sets": [{**one, "path": str(SHARED / "eval" / str(one["path"]))} for one in SETS]}
)
NGRAM, LEAST = 13, 8
DOCUMENTS, DOCUMENTS_OF_EXPRESSION = 3000, 100
TIMES_EXPRESSION = 100
BYTES_PER_MILLION = 60e6


def measure() -> list[Result]:
    texts = [
        one
        for path in sorted((SHARED / "fineweb").glob("*.parquet"))
        for one in pq.read_table(path)["text"].to_pylist()
    ][:DOCUMENTS]
    settings = PUBLIC_SETS
    documents, some = pa.array(texts, pa.large_string()), texts[:DOCUMENTS_OF_EXPRESSION]
    checked(documents, settings)  # builds the index
    items = [item for one in settings.sets for item in evaluation_sets.items(one)]
    grams, tuples = _grams(items), {gram for item in items for gram in _tuples("\n".join(item.fields))}
    whole, part = (sum(len(text.encode()) for text in of) / 1e6 for of in (texts, some))
    ours, alike, quick = [], [], []
    for _ in range(RUNS):
        ours.append(whole / seconds(lambda: checked(documents, settings)))
        alike.append(part / seconds(lambda: [_is_contaminated(text, grams) for text in some]))
        quick.append(part / seconds(lambda: [any(gram in tuples for gram in _tuples(text)) for text in some]))
    index = evaluation_sets.index_of(settings)
    return [
        Result("contamination", "MB/s", ours, "the set expression", alike, times=TIMES_EXPRESSION),
        Result("contamination", "MB/s", ours, "translate, split, tuples", quick),
        Result(
            "index of a million n-grams",
            "MB",
            [index.ngrams.n_bytes / len(index.spans)],
            below=BYTES_PER_MILLION / 1e6,
        ),
    ]


def _grams(items: list[evaluation_sets.Item]) -> set[str]:
    found: set[str] = set()
    for item in items:
        found.update(naive.ngrams(naive.gpt3_words("\n".join(item.fields)), NGRAM))
        for part in ("\n".join(item.fields), *item.fields[:1]):
            words = naive.gpt3_words(part)
            if LEAST <= len(words) < NGRAM:
                found.add(" ".join(words))
    return found


def _is_contaminated(document: str, grams: set[str]) -> bool:
    words = naive.gpt3_words(document)
    return any(gram in grams for n in range(LEAST, NGRAM + 1) for gram in naive.ngrams(words, n))


_DELETED = str.maketrans("", "", string.punctuation)


def _tuples(text: str) -> list[tuple[str, ...]]:
    words = text.lower().translate(_DELETED).split()
    return [tuple(words[i : i + NGRAM]) for i in range(len(words) - NGRAM + 1)]
