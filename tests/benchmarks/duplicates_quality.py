"""Recall and precision of candidates against the exact similarity of all pairs, beside other tools.

``python -m tests.benchmarks.duplicates_quality [--documents N]``: real documents, half of them from the web and half
documentation (with their natural repeats), and for every second one a copy in which some words are another's. Every
tool has the same documents and parameters: 112 values, 14 bands of 8, 5-grams of words. Its signatures are cut into
bands here, and two documents that agree in one are flagged.

The truth is the Jaccard similarity of the sets of ``\\w`` 5-grams, lower-cased, of all pairs. `expected` is the mean of
``1 - (1 - s^8)^14`` over the pairs at or above the threshold: what a perfect MinHash finds of them.
"""

import argparse
import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

HASHES, BANDS, ROWS, NGRAM = 112, 14, 8, 5
THRESHOLD = 0.8
EDITED = (0.001, 0.06)  # share of a copy's words, log-uniform
SHORTEST = 50  # words


def shingles(text: str) -> list[str]:
    words = re.findall(r"\w+", text.lower())
    return [" ".join(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.duplicates_quality", description=__doc__
    )
    parser.add_argument("--documents", type=int, default=2_000, help="before copies")
    options = parser.parse_args()
    from tests.benchmarks.measure import aligned

    texts = documents(options.documents)
    similarity = all_pairs(texts)
    upper = np.triu_indices(len(texts), 1)
    exact = similarity[upper]
    alike = exact >= THRESHOLD
    print(
        f"{len(texts):,} documents, {len(exact):,} pairs: {alike.sum():,} at or above {THRESHOLD}, "
        f"{(exact >= 0.5).sum():,} at or above 0.5"
    )
    expected = flags(exact[alike]).mean()
    lines = [["", "pairs flagged", "recall", "expected", "precision", "removed"]]
    for name, flagged in flagged_by_tools(texts).items():
        for what, chosen in ((name, flagged), *verified(name, flagged, alike)):
            found = chosen[upper]
            lines.append(
                [
                    what,
                    f"{found.sum():,}",
                    f"{found[alike].mean():.4f}",
                    f"{expected:.4f}",
                    f"{alike[found].mean():.4f}",
                    f"{removed(chosen):,}",
                ]
            )
    print(aligned(lines))
    return 0


# ---------------------------------------------------------------- documents


def documents(number: int) -> list[str]:
    from tests.benchmarks.corpora import corpora

    random = np.random.default_rng(7)
    texts: list[str] = []
    chosen = [corpus for corpus in corpora() if corpus.name != "code"]
    for corpus in chosen:
        every = [text for text in corpus.text().to_pylist() if len(text.split()) >= SHORTEST]
        texts += [every[i] for i in np.sort(random.permutation(len(every))[: number // len(chosen)])]
    vocabulary = np.array(" ".join(texts[::10]).split())
    return texts + [_edited(text, vocabulary, random) for text in texts[::2]]


def _edited(text: str, vocabulary: np.ndarray, random: np.random.Generator) -> str:
    words = text.split(" ")
    share = np.exp(random.uniform(*np.log(EDITED)))
    for at in np.flatnonzero(random.random(len(words)) < share):
        words[at] = str(random.choice(vocabulary))
    return " ".join(words)


def all_pairs(texts: list[str]) -> np.ndarray:
    """float64[d, d] Jaccard similarities, by counting shared shingles in an inverted index."""
    sets = [set(shingles(text)) for text in texts]
    where: dict[str, list[int]] = defaultdict(list)
    for document, found in enumerate(sets):
        for shingle in found:
            where[shingle].append(document)
    shared = np.zeros((len(texts), len(texts)), np.int32)
    for having in where.values():
        if len(having) > 1:
            shared[np.ix_(having, having)] += 1
    sizes = np.array([len(found) for found in sets])
    return np.asarray(shared / (sizes[:, None] + sizes[None, :] - shared))


def flags(similarity: np.ndarray) -> np.ndarray:
    from kernels import bands

    return bands.collision_probability(similarity, BANDS, ROWS)


# ---------------------------------------------------------------- tools


def flagged_by_tools(texts: list[str]) -> dict[str, np.ndarray]:
    """By tool: bool[d, d], which documents agree in a band."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.benchmarks.corpora import ROOT
    from tests.benchmarks.referees import PYTHON

    found = {"ours": banded(our_signatures(texts))}
    if not PYTHON.exists():
        print("the other tools are not installed; run `make referees`")
        return found
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "documents.parquet")
        pq.write_table(pa.table({"text": texts}), path)
        command = [PYTHON, "-m", "tests.benchmarks.signatures_of_others", path, folder]
        subprocess.run(command, cwd=ROOT, check=True)
        for file in sorted(Path(folder).glob("*.npy")):
            found[file.stem] = banded(np.load(file))
    return found


def our_signatures(texts: list[str]) -> np.ndarray:
    import pyarrow as pa

    from jobs.text import text_buffers
    from kernels import minhash

    values, _ = minhash.signatures(
        *text_buffers(pa.array(texts, pa.large_string())), minhash.hash_seeds(), NGRAM
    )
    return np.asarray(values)


def banded(signatures: np.ndarray) -> np.ndarray:
    agree = np.zeros((len(signatures), len(signatures)), bool)
    for start in range(0, HASHES, ROWS):
        buckets: dict[bytes, list[int]] = defaultdict(list)
        for document, band in enumerate(np.ascontiguousarray(signatures[:, start : start + ROWS])):
            buckets[band.tobytes()].append(document)
        for having in buckets.values():
            agree[np.ix_(having, having)] = True
    return agree


def verified(name: str, flagged: np.ndarray, alike: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Ours with `verify: exact` on top: candidates below the threshold are cut."""
    if name != "ours":
        return []
    above = np.zeros_like(flagged)
    above[np.triu_indices(len(flagged), 1)] = alike
    return [("ours, verify: exact", flagged & above)]


def removed(flagged: np.ndarray) -> int:
    """Documents that go when one is kept of each component."""
    import networkx

    graph = networkx.Graph(np.argwhere(np.triu(flagged, 1)).tolist())
    return sum(len(part) - 1 for part in networkx.connected_components(graph))


if __name__ == "__main__":
    raise SystemExit(main())
