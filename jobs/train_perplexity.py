"""Train an n-gram model of words on documents of the user's choice, such as a sample of Wikipedia.

Interpolated modified Kneser-Ney (`kernels.kneser_ney`), which `jobs.models.ngram` scores with. Each text counts once. A
keyed sample of the texts is held out: what their perplexity is, and its percentiles, by which documents are told
apart as head, middle and tail. Words that are rarer than `--min-count` become `<unk>`. The same documents give the same
bytes, in whatever order and files they come. Held in memory: 8 bytes a word of the texts, some 60 more while n-grams
are counted, and the texts held out, which are to be 20 at least: some 800 texts with the default share of 5 %, or
fewer with a larger --held-out.

What is written to the output folder:

=============== ====================================================================
`model.npz`     the model
`manifest.json` how it was made: documents, settings, seed, versions, figures
`model.arpa`    with `--arpa`: the same for KenLM
=============== ====================================================================
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jobs.cli import guarded
from jobs.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from jobs.models.ngram import Model
    from jobs.runtime.console import Console

MODEL, ARPA = "model.npz", "model.arpa"
FEWEST = 20  # texts held out, for percentiles


@dataclass(frozen=True)
class Settings:
    """How a model is trained.

    Attributes
    ----------
    order
        Words of the longest n-gram.
    min_count
        Occurrences of a word that is not `<unk>`; `<unk>` is as likely as one of the rarer words.
    held_out
        Share of the texts.
    percentiles
        Of the held-out texts' perplexities, where the buckets middle and tail begin.
    seed
        Of the choice of texts.
    """

    order: int = 3
    min_count: int = 1
    held_out: float = 0.05
    percentiles: tuple[float, float] = (33.0, 66.0)
    seed: int = 0


class Corpus(NamedTuple):
    """Texts as words.

    Attributes
    ----------
    hashes
        uint64[t], of the words of the texts to train on; see `kernels.perplexity.Words`.
    words
        The word of each hash.
    held_out
        large_string[d], by text hash.
    counts
        Documents by what became of them.
    sha256
        Of all texts, whatever their order.
    """

    hashes: "np.ndarray"
    words: dict[int, str]
    held_out: "pa.LargeStringArray"
    counts: dict[str, int]
    sha256: str


@dataclass(frozen=True)
class Trained:
    """A model and what is known of it."""

    model: "Model"
    figures: dict[str, Any]


# ---------------------------------------------------------------- reading


def read(path: str, column: str, settings: Settings) -> Corpus:
    """Texts of a file, folder, glob or URL of Parquet or JSON lines, each once.

    Raises
    ------
    UserError
        There is nothing to read, or too little, or a record cannot be read.
    """
    import numpy as np
    import pyarrow as pa

    from jobs.training import reading

    seen: set[bytes] = set()
    counts = {"documents": 0, "without_text": 0, "repeated": 0, "held_out": 0, "trained_on": 0}
    hashes, words = [np.empty(0, np.uint64)], dict[int, str]()
    kept: list[tuple[int, str]] = []
    for batch, _ in reading.batches(reading.source(path, {"text": column}, {}), {"text"}):
        text, keys = _new_texts(batch.text, seen, counts)
        aside = _is_held_out(keys, settings)
        counts["held_out"] += int(aside.sum())
        counts["trained_on"] += int((~aside).sum())
        kept += zip(keys[aside].tolist(), text.filter(pa.array(aside)).to_pylist(), strict=True)
        hashes.append(_words_of(text.filter(pa.array(~aside)), words))
    if counts["held_out"] < FEWEST:
        raise UserError(
            f"--data has {counts['held_out'] + counts['trained_on']:,} different texts, of which "
            f"{counts['held_out']:,} would be held out; percentiles take at least {FEWEST}, so give some "
            f"{2 * FEWEST / settings.held_out:,.0f} texts, or hold out more of them with --held-out"
        )
    held_out = pa.array([text for _, text in sorted(kept)], pa.large_string())
    return Corpus(np.concatenate(hashes), words, held_out, counts, _digest(seen))


def _new_texts(
    text: "pa.LargeStringArray", seen: set[bytes], counts: dict[str, int]
) -> tuple["pa.LargeStringArray", "np.ndarray"]:
    """Texts that are not empty and were not there before, and the first eight bytes of their hashes, uint64[d]."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from jobs.text import hash_prefixes, text_buffers, text_hashes

    counts["documents"] += len(text)
    full = text.filter(pc.fill_null(pc.greater(pc.binary_length(text), 0), False))
    counts["without_text"] += len(text) - len(full)
    found = text_hashes(*text_buffers(full))
    new = np.zeros(len(full), bool)
    for i, key in enumerate(found.to_pylist()):
        if key not in seen:
            seen.add(key)
            new[i] = True
    counts["repeated"] += int((~new).sum())
    return full.filter(pa.array(new)), hash_prefixes(found)[new]


def _is_held_out(keys: "np.ndarray", settings: Settings) -> "np.ndarray":
    import numpy as np

    from kernels import permutation

    keyed = permutation.keyed_hash(keys, permutation.key("train-perplexity-held-out", settings.seed))
    return (keyed >> np.uint64(11)) < settings.held_out * 2**53


def _words_of(text: "pa.LargeStringArray", words: dict[int, str]) -> "np.ndarray":
    """uint64[t], the hashes of the words; those that are new go to `words`."""
    import numpy as np

    from jobs.text import text_buffers
    from kernels.perplexity import line_words

    found = line_words(*text_buffers(text))
    different, first = np.unique(found.hashes, return_index=True)
    for key, place in zip(different.tolist(), first.tolist(), strict=True):
        if key not in words:
            start, end = found.starts[place], found.starts[place + 1]
            words[key] = found.normal[start : max(end - 1, start)].tobytes().decode()
    return found.hashes


def _digest(keys: set[bytes]) -> str:
    import hashlib

    return hashlib.sha256(b"".join(sorted(keys))).hexdigest()


# ---------------------------------------------------------------- training


def train(corpus: Corpus, settings: Settings) -> Trained:
    """Count, smooth, and look at the texts held out."""
    import numpy as np

    from jobs.models.ngram import Model, perplexity
    from kernels.kneser_ney import WORDS, count_ngrams, smooth

    vocabulary, tokens = _numbered(corpus, settings.min_count)
    n_rare = len(set(corpus.words.values()) - {"", *vocabulary})
    orders = smooth(count_ngrams(tokens, WORDS + len(vocabulary), settings.order), n_rare)
    model = Model(vocabulary, orders, (0.0, 0.0))
    log_probs, n_tokens, n_unknown = model.log_probabilities(corpus.held_out)
    perplexities = perplexity(log_probs, n_tokens)
    low, high = np.percentile(perplexities, settings.percentiles)
    model.percentiles = (round(float(low), 2), round(float(high), 2))
    figures = {
        "ngrams": [len(order.last) for order in orders],
        "words": len(tokens),
        "held_out": {
            "words": int(n_tokens.sum()),
            "perplexity": round(float(perplexity(log_probs.sum(), n_tokens.sum())), 2),
            "unknown": round(float(n_unknown.sum() / n_tokens.sum()), 5),
            "percentiles": {
                f"{at}": round(float(np.percentile(perplexities, at)), 2) for at in range(5, 100, 5)
            },
        },
        "percentiles": list(model.percentiles),
    }
    return Trained(model, figures)


def _numbered(corpus: Corpus, min_count: int) -> tuple[list[str], "np.ndarray"]:
    """The vocabulary in the order of its UTF-8, and the number of each word, uint32[t]."""
    import numpy as np

    from kernels.kneser_ney import UNKNOWN, WORDS
    from kernels.perplexity import MARKS

    different, inverse, counts = np.unique(corpus.hashes, return_inverse=True, return_counts=True)
    known = {
        corpus.words[key]: place
        for place, (key, count) in enumerate(zip(different.tolist(), counts.tolist(), strict=True))
        if count >= min_count and key not in MARKS
    }
    vocabulary = sorted(known)
    numbers = np.full(len(different), UNKNOWN, np.uint32)
    for mark, key in enumerate(MARKS):
        numbers[different == key] = mark
    numbers[[known[word] for word in vocabulary]] = np.arange(WORDS, WORDS + len(vocabulary))
    return vocabulary, numbers[inverse]


# ---------------------------------------------------------------- what is written and shown


def write(folder: Path, corpus: Corpus, settings: Settings, trained: Trained, arpa: bool) -> None:
    """Model and manifest, and the model for KenLM."""
    from jobs.runtime import checkpoint, fingerprint
    from kernels.words import unicode_version

    trained.model.save(folder / MODEL)
    if arpa:
        trained.model.write_arpa(folder / ARPA)
    manifest = {
        "model": {"file": MODEL, "sha256": checkpoint.sha256(folder / MODEL)},
        "documents": {**corpus.counts, "sha256": corpus.sha256},
        "settings": asdict(settings),
        "smoothing": "interpolated modified Kneser-Ney",
        "versions": {**fingerprint.versions("numpy", "numba"), "unicode": unicode_version()},
        "figures": trained.figures,
    }
    checkpoint.write_json(folder / "manifest.json", manifest)


def show(console: "Console", corpus: Corpus, settings: Settings, trained: Trained) -> None:
    """Print what a person wants to know."""
    counts, figures = corpus.counts, trained.figures
    console.line(
        f"{counts['trained_on']:,} texts to train on and {counts['held_out']:,} held out, of {counts['documents']:,} "
        f"documents ({counts['repeated']:,} repeated, {counts['without_text']:,} without text)"
    )
    numbers = ", ".join(f"{number:,}" for number in figures["ngrams"])
    console.line(f"n-grams of 1 to {settings.order} words: {numbers}")
    held_out = figures["held_out"]
    console.line(
        f"perplexity of the texts held out {held_out['perplexity']:,.1f}, "
        f"{held_out['unknown']:.1%} of their words unknown"
    )
    low, high = figures["percentiles"]
    console.line(f"head is below {low:,.1f}, middle below {high:,.1f}, tail from there on")


# ---------------------------------------------------------------- the command


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.train_perplexity`."""
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m jobs.train_perplexity",
        description="Train an n-gram model of words on documents, by whose perplexity others can be told apart.",
    )
    add = parser.add_argument
    add("--data", required=True, metavar="PATH", help="Parquet or JSON lines: a file, folder, glob or URL")
    add("--output", required=True, metavar="DIR", help="folder for the model and its manifest")
    add("--text", default="text", metavar="COLUMN", help="column of the texts (default: text)")
    add("--order", type=int, default=default.order, metavar="N", help="words of an n-gram (default: 3)")
    add("--min-count", type=int, default=default.min_count, metavar="N",
        help="occurrences of a word that is known (default: 1)")  # fmt: skip
    add("--held-out", type=float, default=default.held_out, metavar="X",
        help="share of the texts that is not trained on (default: 0.05)")  # fmt: skip
    add("--percentiles", type=float, nargs=2, default=default.percentiles, metavar="P",
        help="where the buckets middle and tail begin (default: 33 66)")  # fmt: skip
    add("--arpa", action="store_true", help="write model.arpa for KenLM, too")
    add("--seed", type=int, default=default.seed, metavar="N", help="of the texts held out (default: 0)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.train_perplexity --data … --output …`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def settings_of(options: argparse.Namespace) -> Settings:
    """Settings as typed.

    Raises
    ------
    UserError
        One is out of its range.
    """
    from kernels.perplexity import LONGEST

    low, high = options.percentiles
    for name, fine, wanted in (
        ("order", 2 <= options.order <= LONGEST, f"from 2 to {LONGEST}"),
        ("min_count", options.min_count >= 1, "at least 1"),
        ("held_out", 0 < options.held_out < 1, "above 0 and below 1"),
        ("percentiles", 0 < low <= high < 100, "two numbers that rise, above 0 and below 100"),
        ("seed", options.seed >= 0, "at least 0"),
    ):
        if not fine:
            raise UserError(f"--{name.replace('_', '-')} is {getattr(options, name)}; it should be {wanted}")
    return Settings(options.order, options.min_count, options.held_out, (low, high), options.seed)


def _main(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    from jobs.runtime import folders
    from jobs.runtime.console import Console

    folder = folders.reached(options.output)
    corpus = read(options.data, options.text, settings)
    trained = train(corpus, settings)
    write(folder, corpus, settings, trained, options.arpa)
    console = Console()
    show(console, corpus, settings, trained)
    console.line(f"{folder}/{MODEL}" + (f", {ARPA}" if options.arpa else ""))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
