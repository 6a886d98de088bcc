"""An n-gram model of words, as `python -m jobs.train_perplexity` trains it; the score is the perplexity of a document.

Perplexity is CCNet's (Wenzek et al. 2020): 10 to the power of -log10(probability) / (words + lines), since the end of
each line is predicted, too. The lower, the more usual a text. Words are those of `kernels.words`, lower-cased and
without punctuation, ASCII digits as 0; those that the model does not know are its `<unk>`. Lines without a word do not
count. A document without any is one empty line, which no text that was trained on has: its perplexity is high.

The file is NumPy's `.npz`: `words`, all words as UTF-8, a line each; for each order n `prefix_n`, `last_n`,
`log_probs_n` and `backoffs_n` as `kernels.kneser_ney.Order` has them; and `settings`, JSON in a string, with the
percentiles of the perplexity of texts that were held out. Perplexities are rounded to two decimals.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.models import trained
from jobs.models.trained import Settings
from jobs.runtime import checkpoint, named_files
from jobs.text import text_buffers
from kernels.kneser_ney import WORDS, Order
from kernels.perplexity import (
    LONGEST,
    MARKS,
    build_table,
    log_probabilities,
    ngram_words,
)
from kernels.xxh3 import hash_slices

COMMAND = "train_perplexity"
KIND = "word n-grams, modified Kneser-Ney"
DECIMALS = 2
SPECIAL = ("<unk>", "<s>", "</s>")


class Model:
    """N-grams of each order, and what perplexity is usual.

    Attributes
    ----------
    words
        Those that it knows beside `SPECIAL`, which come first in `orders`.
    orders
        From unigrams upwards.
    percentiles
        Perplexities where the buckets middle and tail begin.
    table
        What scoring looks n-grams up in.
    """

    def __init__(self, words: list[str], orders: list[Order], percentiles: tuple[float, float]) -> None:
        self.words, self.orders, self.percentiles = words, orders, percentiles
        self.table = build_table(np.concatenate([MARKS, word_hashes(words)]), orders)

    def score(self, text: pa.LargeStringArray) -> np.ndarray:
        """float64[d] of large_string[d], the perplexities; null is as good as empty."""
        log_probs, n_tokens, _ = self.log_probabilities(text)
        return perplexity(log_probs, n_tokens)

    def log_probabilities(self, text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each document: log10 of its probability, words and ends of lines, words that are not known."""
        return log_probabilities(*text_buffers(pc.fill_null(text, "")), self.table)

    def save(self, path: Path) -> None:
        """Write the file; the same model is the same bytes."""
        settings = {"kind": KIND, "order": len(self.orders), "percentiles": self.percentiles}
        arrays = {
            f"{name}_{n}": values
            for n, order in enumerate(self.orders, 1)
            for name, values in order._asdict().items()
        }
        words = np.frombuffer("".join(f"{word}\n" for word in self.words).encode(), np.uint8)
        trained.save(path, settings, words=words, **arrays)

    def write_arpa(self, path: Path) -> None:
        """Write the model in ARPA's format, which KenLM and others read."""
        with checkpoint.written(path) as file:
            file.writelines(line.encode() for line in self._arpa())

    def _arpa(self) -> Iterator[str]:
        yield "\\data\\\n"
        yield from (f"ngram {n}={len(order.last)}\n" for n, order in enumerate(self.orders, 1))
        words = np.array([*SPECIAL, *self.words], object)
        for n, (order, rows) in enumerate(zip(self.orders, ngram_words(self.orders), strict=True), 1):
            yield f"\n\\{n}-grams:\n"
            for row, log_prob, backoff in zip(rows, order.log_probs, order.backoffs, strict=True):
                weight = "" if n == len(self.orders) else f"\t{backoff}"
                yield f"{log_prob}\t{' '.join(words[row])}{weight}\n"
        yield "\n\\end\\\n"


def perplexity(log_probs: np.ndarray, n_tokens: np.ndarray) -> np.ndarray:
    """float64[d], CCNet's: 10 to the power of -log10(probability) a token."""
    return np.round(10.0 ** (-log_probs / n_tokens), DECIMALS)


def word_hashes(words: list[str]) -> np.ndarray:
    """uint64[v]."""
    encoded = [word.encode() for word in words]
    ends = np.cumsum([len(word) for word in encoded], dtype=np.int64)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    return hash_slices(data, np.append(0, ends)[:-1], ends)


def check(settings: Settings) -> None:
    """Refuse a file that is no such model.

    Raises
    ------
    UserError
        One sentence that names the file.
    """
    load(settings)


def identity(settings: Settings) -> dict[str, Any]:
    """What fingerprints hold."""
    return trained.identity(trained.file_of(settings, COMMAND))


def load(settings: Settings) -> Model:
    """The model, which a process loads once."""
    return _loaded(trained.file_of(settings, COMMAND), settings.key("model"))


@functools.lru_cache(4)
def _loaded(file: named_files.File, key: str) -> Model:
    with trained.opened(file, key, KIND, COMMAND) as (arrays, settings):
        words = arrays["words"].tobytes().decode().split("\n")[:-1]
        orders = [_order(arrays, n) for n in range(1, settings["order"] + 1)]
        _check_rows(orders, len(words))
        low, high = settings["percentiles"]
        return Model(words, orders, (float(low), float(high)))


def _order(arrays: Any, n: int) -> Order:
    return Order(*(arrays[f"{name}_{n}"] for name in Order._fields))


def _check_rows(orders: list[Order], n_words: int) -> None:
    """Raise ValueError unless rows and words are those that there are: compiled code looks no further."""
    if not 1 <= len(orders) <= LONGEST or len(orders[0].last) != n_words + WORDS:
        raise ValueError("unigrams are not the words")
    for below, order in zip([orders[0], *orders], orders, strict=False):
        sizes = {len(values) for values in order}
        kinds = [values.dtype for values in order]
        if len(sizes) != 1 or kinds != [np.uint32, np.uint32, np.float32, np.float32]:
            raise ValueError("arrays do not fit together")
        if order.last.max(initial=0) >= n_words + WORDS or order.prefix.max(initial=0) >= len(below.last):
            raise ValueError("an n-gram is of words that there are not")
        if not (np.isfinite(order.log_probs).all() and np.isfinite(order.backoffs).all()):
            raise ValueError("a probability is no number")
    if (orders[0].last != np.arange(n_words + WORDS)).any():
        raise ValueError("unigrams are not the words in their order")
