"""Files of small fastText models of every kind, with random numbers."""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LOSSES = {"hs": 1, "ns": 2, "softmax": 3, "ova": 4}


@dataclass(frozen=True)
class Example:
    """What a file has, and the matrices that it means."""

    words: tuple[bytes, ...]
    labels: tuple[bytes, ...]
    counts: tuple[int, ...]  # of the labels
    dim: int = 5
    loss: str = "softmax"
    buckets: int = 50
    sizes: tuple[int, int] = (2, 4)  # minn, maxn
    word_ngrams: int = 1
    kept: dict[int, int] | None = None
    quantized: bool = False
    norms: bool = False
    quantized_output: bool = False
    part: int = 2
    seed: int = 0

    def write(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Write the file; the input and the output matrix."""
        rng = np.random.default_rng(self.seed)
        settings = (self.dim, 5, 5, 1, 5, self.word_ngrams, LOSSES[self.loss], 3, self.buckets, *self.sizes)
        entries = [(word, 1, 0) for word in self.words]
        entries += [(label, count, 1) for label, count in zip(self.labels, self.counts, strict=True)]
        pruned = -1 if self.kept is None else len(self.kept)
        n_rows = len(self.words) + (self.buckets if self.kept is None else len(self.kept))
        rows, input_ = self._matrix(rng, n_rows, self.quantized)
        weights, output = self._matrix(rng, len(self.labels), self.quantized_output)
        path.write_bytes(
            struct.pack("<2i", 793712314, 12)
            + struct.pack("<12id", *settings, 100, 1e-4)
            + struct.pack("<3i2q", len(entries), len(self.words), len(self.labels), 9, pruned)
            + b"".join(word + b"\0" + struct.pack("<qb", count, kind) for word, count, kind in entries)
            + b"".join(struct.pack("<2i", *pair) for pair in (self.kept or {}).items())
            + struct.pack("<?", self.quantized)
            + input_
            + struct.pack("<?", self.quantized_output)
            + output
        )
        return rows, weights

    def _matrix(self, rng: np.random.Generator, m: int, quantized: bool) -> tuple[np.ndarray, bytes]:
        if not quantized:
            matrix = rng.normal(size=(m, self.dim)).astype("<f4")
            return matrix, struct.pack("<2q", m, self.dim) + matrix.tobytes()
        n_parts = -(-self.dim // self.part)
        codes = rng.integers(0, 256, (m, n_parts), np.uint8)
        centroids = rng.normal(size=(self.dim, 256)).astype("<f4").reshape(-1)
        matrix = np.empty((m, self.dim), np.float32)
        for i, first in enumerate(range(0, self.dim, self.part)):
            width = min(self.part, self.dim - first)
            of_part = centroids[256 * first : 256 * (first + width)].reshape(256, width)
            matrix[:, first : first + width] = of_part[codes[:, i]]
        last = self.dim - (n_parts - 1) * self.part
        content = struct.pack("<?2qi", self.norms, m, self.dim, codes.size) + codes.tobytes()
        content += struct.pack("<4i", self.dim, n_parts, self.part, last) + centroids.tobytes()
        if self.norms:
            norm_codes, norms = rng.integers(0, 256, m, np.uint8), rng.uniform(0.5, 2, 256).astype("<f4")
            matrix *= norms[norm_codes][:, None]
            content += norm_codes.tobytes() + struct.pack("<4i", 1, 1, 1, 1) + norms.tobytes()
        return matrix, content
