"""Bands: which documents locality-sensitive hashing compares.

A signature of ``b * r`` values is cut into b bands of r rows. Two documents are candidates when all r
values of a band agree, which for two documents of similarity s happens with probability
``1 - (1 - s^r)^b``.

Source: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4.

Dimensions: documents d, bands b, rows r.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.accelerate import kernel
from kernels.arrays import read_only
from kernels.xxh3 import hash_slice


def band_keys(signatures: NDArray[np.uint32], bands: int, rows: int) -> NDArray[np.uint64]:
    """Key of each band of each signature.

    Equal keys stand for equal bands: the key is the XXH3-64 of the band's number and its r values, all
    as little-endian uint32. The number keeps equal values in different bands apart.

    Documents without words all have the same signature, and so the same keys, but have nothing in
    common: leave out those whose ``n_words``, as `kernels.minhash.signatures` gives it, is not positive.

    Parameters
    ----------
    signatures : uint32[d, b * r]
        From `kernels.minhash.signatures`.
    bands, rows : int
        Number of bands, and of values in each.

    Returns
    -------
    uint64[d, b]
        The keys.

    Raises
    ------
    ValueError
        When a signature is not ``bands * rows`` values long.
    """
    signatures = read_only(signatures, np.uint32, ndim=2)
    if signatures.shape[1] != bands * rows:
        raise ValueError(
            f"{bands} bands of {rows} rows need {bands * rows} values, not {signatures.shape[1]}"
        )
    return _band_keys(signatures, bands, rows)


def collision_probability(similarity: ArrayLike, bands: int, rows: int) -> NDArray[np.float64]:
    """Probability ``1 - (1 - s^r)^b`` that documents of similarity s agree in at least one band.

    Parameters
    ----------
    similarity : float or float[:]
        Jaccard similarity, 0 to 1.
    bands, rows : int
        Number of bands, and of values in each.

    Returns
    -------
    float64 of the same shape
        The S-curve.
    """
    return 1 - (1 - np.asarray(similarity, np.float64) ** rows) ** bands


@kernel
def _band_keys(signatures, bands, rows):
    keys = np.empty((len(signatures), bands), np.uint64)
    numbered = np.empty(1 + rows, np.uint32)
    as_bytes = numbered.view(np.uint8)
    for document in range(len(signatures)):
        for band in range(bands):
            numbered[0] = band
            for row in range(rows):
                numbered[1 + row] = signatures[document, band * rows + row]
            keys[document, band] = hash_slice(as_bytes, 0, len(as_bytes))
    return keys
