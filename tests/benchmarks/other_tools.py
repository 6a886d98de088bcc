"""The other tools, each on a Parquet file of documents; runs in the environment of `referees.txt`.

Reads names of `TOOLS` on standard input, and answers each with the seconds that one run over all documents took, on
one thread and with the documents in memory as the tool wants them. Every tool has met some documents before.

`datatrove`
    `MinhashDedupSignature` as a pipeline runs it, its English word tokenizer and defaults: 14 × 8 values of 64 bits
    over 5-grams, written to files.
`datatrove, nothing written`
    The step's `get_shingles` and `get_signature` alone.
`datatrove's quality filters`
    Its Gopher repetition, Gopher quality, C4 and FineWeb filters one after another, as its FineWeb example runs them; a
    document that one drops is not shown to the next.
`datatrove's formatter`, `Presidio's recognisers`
    E-mail and public IP addresses replaced, as FineWeb does it; places of every kind found, by pattern alone, phone
    numbers of the United States (see `personal_data_of_others`).
`datasketch`, `rensa`
    112 values over the same shingles as ours, nearly, made in Python: five runs of ``\\w`` characters, lower-cased.
    datasketch hashes with XXH32, which is faster than its default.
`shingles in Python`
    What they have in common.
`tokenizers`
    `encode_batch_fast`, one thread, with the tokenizer.json that is the second argument.
"""

import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import datasketch
import pyarrow.parquet as pq
import rensa
import xxhash
from datatrove.data import Document
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.pipeline.formatters.pii import PIIFormatter
from loguru import logger
from tokenizers import Tokenizer

from tests.benchmarks import personal_data_of_others
from tests.benchmarks.measure import seconds

HASHES, NGRAM = 112, 5
WARM_UP = 10  # documents


def shingles(text: str) -> list[str]:
    words = re.findall(r"\w+", text.lower())
    return list(map(" ".join, zip(*(words[i:] for i in range(NGRAM)), strict=False)))


def datasketch_signature(text: str) -> object:
    minhash = datasketch.MinHash(num_perm=HASHES, hashfunc=xxhash.xxh32_intdigest)
    minhash.update_batch([shingle.encode() for shingle in shingles(text)])
    return minhash.hashvalues


def rensa_signature(text: str) -> object:
    minhash = rensa.RMinHash(num_perm=HASHES, seed=42)
    minhash.update(shingles(text))
    return minhash.digest()


def kept(filters: Sequence[Any], text: str) -> bool:
    """Whether no filter drops a document; C4's edits it."""
    document = Document(text=text, id="")
    return all(step.filter(document) is True for step in filters)


def tools(folder: str, tokenizer: str | None) -> dict[str, Callable[[list[Document]], object]]:
    """By name: what runs over documents once."""
    step = MinhashDedupSignature(folder, MinhashConfig())
    filters = [
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
    ]
    formatter, presidio = PIIFormatter(), personal_data_of_others.presidio(("US",))
    found: dict[str, Callable[[list[Document]], object]] = {
        "datatrove": lambda documents: step.run(iter(documents)),
        "datatrove, nothing written": lambda documents: [
            step.get_signature(step.get_shingles(document.text)) for document in documents
        ],
        "datatrove's quality filters": lambda documents: [
            kept(filters, document.text) for document in documents
        ],
        "datatrove's formatter": lambda documents: [
            formatter.format(document.text) for document in documents
        ],
        "Presidio's recognisers": lambda documents: [presidio(document.text) for document in documents],
        "datasketch": lambda documents: [datasketch_signature(document.text) for document in documents],
        "rensa": lambda documents: [rensa_signature(document.text) for document in documents],
        "shingles in Python": lambda documents: [shingles(document.text) for document in documents],
    }
    if tokenizer:
        encode = Tokenizer.from_file(tokenizer).encode_batch_fast
        found["tokenizers"] = lambda documents: encode([document.text for document in documents])
    return found


def main() -> None:
    logger.remove()
    texts = pq.read_table(sys.argv[1])["text"].to_pylist()
    documents = [Document(text=text, id=str(i)) for i, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as folder:
        by_name = tools(folder, sys.argv[2] if len(sys.argv) > 2 else None)
        for tool in by_name.values():
            tool(documents[:WARM_UP])
        print("ready", flush=True)
        for line in sys.stdin:
            tool = by_name[line.strip()]
            print(seconds(lambda: tool(documents)), flush=True)  # noqa: B023 (called at once)


if __name__ == "__main__":
    main()
