"""The slow, obvious form of each kernel. The kernels are right when they give what these give."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import xxhash

from kernels.words import SPACELESS_SCRIPTS

MASK = 2**64 - 1


def words(text: str) -> list[str]:
    """Runs of word characters; in scripts without spaces, each character with its marks."""
    kinds = "".join(map(kind, text))
    return [lower(text[run.start() : run.end()]) for run in re.finditer("cm*|[wm]+", kinds)]


def kind(character: str) -> str:
    """``w``ord character, ``c``haracter of a script without spaces, ``m``ark or separator (a space)."""
    category = unicodedata.category(character)
    if category.startswith("M"):
        return "m"
    if not category.startswith(("L", "N")) and category != "Pc":
        return " "
    spaceless = any(first <= ord(character) <= last for first, last in SPACELESS_SCRIPTS.values())
    return "c" if spaceless else "w"


def lower(text: str) -> str:
    return "".join(character.lower() for character in text)


def shingles(text: str, ngram: int) -> list[int]:
    """Hashes of the different runs of `ngram` words; of all words, where there are fewer."""
    found = words(text)
    n_runs = max(len(found) - ngram + 1, 1 if found else 0)
    runs = {" ".join(found[i : i + ngram]) for i in range(n_runs)}
    return sorted({xxhash.xxh3_64_intdigest(run.encode()) for run in runs})


def jaccard(a: Iterable[int], b: Iterable[int]) -> float:
    a, b = set(a), set(b)
    return len(a & b) / len(a | b) if a | b else 0.0


def mix64(x: int) -> int:
    """MurmurHash3's 64-bit finalizer."""
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def signature(text: str, seeds: Sequence[int], ngram: int) -> list[int]:
    hashes = shingles(text, ngram)
    if not hashes:
        return [0xFFFFFFFF] * len(seeds)
    return [min(mix64(x ^ int(seed)) for x in hashes) >> 32 for seed in seeds]


def band_keys(signature: Sequence[int], bands: int, rows: int) -> list[int]:
    keys = []
    for band in range(bands):
        values = [band, *signature[band * rows : (band + 1) * rows]]
        keys.append(xxhash.xxh3_64_intdigest(b"".join(int(v).to_bytes(4, "little") for v in values)))
    return keys


def star_forest(edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Let the smallest label spread along the edges until nothing changes."""
    edges = list(edges)
    root = {node: node for edge in edges for node in edge}
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            smallest = min(root[a], root[b])
            changed = changed or root[a] != smallest or root[b] != smallest
            root[a] = root[b] = smallest
    return sorted(root.items())


def key(purpose: str, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(purpose.encode() + b"\0" + str(seed).encode())


def keyed_hash(document: int, key: int) -> int:
    return mix64(document ^ mix64(key))


def doc_id(file_key: int, record: int) -> int:
    return mix64(file_key ^ mix64(record))


def seeded_order(ids: Sequence[int], key: int) -> list[int]:
    return sorted(range(len(ids)), key=lambda i: (keyed_hash(ids[i], key), ids[i]))


def packing(lengths: Sequence[int], window: int) -> dict[str, float]:
    """Lay the stream out, token by token, each as the number of its document; then cut and count."""
    stream = [document for document, length in enumerate(lengths) for _ in range(length)]
    whole = len(stream) // window
    windows = [stream[i * window : (i + 1) * window] for i in range(whole)]
    rows = sum(-(-length // window) for length in lengths)
    behind = sum(document != tokens[0] for tokens in windows for document in tokens)
    return {
        "window": window,
        "documents": len(lengths),
        "tokens": len(stream),
        "mean_length": len(stream) / len(lengths) if lengths else 0,
        "windows": whole,
        "remainder": len(stream) - whole * window,
        "share_with_boundary": sum(len(set(tokens)) > 1 for tokens in windows) / whole if whole else 0,
        "documents_per_window": sum(len(set(tokens)) for tokens in windows) / whole if whole else 0,
        "share_after_boundary": behind / (whole * window) if whole else 0,
        "padded_rows": rows,
        "padding_share": (rows * window - len(stream)) / (rows * window) if rows else 0,
    }


def gather(
    store: np.ndarray,
    starts: Sequence[int],
    lengths: Sequence[int],
    out: np.ndarray,
    out_starts: Sequence[int],
) -> None:
    for start, length, out_start in zip(starts, lengths, out_starts, strict=True):
        out[out_start : out_start + length] = store[start : start + length]
