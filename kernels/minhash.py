"""MinHash signatures, straight from UTF-8.

Value i of a signature is the smallest ``mix64(shingle XOR seed_i)`` over the document's shingles, of
which the top 32 bits are kept. Two documents' signatures agree in a share of their values that
estimates the Jaccard similarity of their shingle sets, with standard error sqrt(s(1 - s) / h).

Sources: Broder, "On the resemblance and containment of documents" (1997); `kernels.words` and
`kernels.shingles` say what a shingle is, `kernels.permutation.mix64` is MurmurHash3's finalizer.

Dimensions: documents d, bytes n, hashes h, shingles s.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import kernel
from kernels.arrays import check_offsets, read_only
from kernels.shingles import LANES, NGRAM, check_ngram, new_buffers, next_shingles
from kernels.words import INVALID, new_cursor, unicode_tables

N_HASHES = 112
SEED = 42

NO_WORDS = np.uint32(0xFFFFFFFF)  # each value of a document without words


def hash_seeds(n_hashes: int = N_HASHES, seed: int = SEED) -> NDArray[np.uint64]:
    """Seeds of the hash functions, one for each.

    Parameters
    ----------
    n_hashes : int
        Values in a signature.
    seed : int
        Of NumPy's default generator.

    Returns
    -------
    uint64[h]
        ``default_rng(seed).integers(0, 2**63, n_hashes)``.
    """
    return np.random.default_rng(seed).integers(0, 2**63, n_hashes, dtype=np.uint64)


SEEDS = hash_seeds()


def minhash(text: str, seeds: NDArray[np.uint64] = SEEDS, ngram: int = NGRAM) -> NDArray[np.uint32]:
    """Signature of one text; see `signatures`."""
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    return signatures(data, np.array([0, len(data)]), seeds, ngram)[0][0]


def signatures(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], seeds: NDArray[np.uint64], ngram: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """MinHash signature and number of words of each document.

    Parameters
    ----------
    data : uint8[n]
        The documents' UTF-8.
    offsets : int64[d + 1]
        Document i is ``data[offsets[i] : offsets[i + 1]]``.
    seeds : uint64[h]
        From `hash_seeds`.
    ngram : int
        Words in a shingle, at least 1.

    Returns
    -------
    signatures : uint32[d, h]
        All 0xFFFFFFFF for a document without words, or not valid UTF-8: such a document must not
        become a candidate.
    n_words : int64[d]
        Words of each document, or -1 where it is not valid UTF-8.

    Raises
    ------
    ValueError
        When the offsets do not lie within `data`, or `ngram` is less than 1.
    """
    data, offsets = read_only(data, np.uint8), read_only(offsets, np.int64)
    check_offsets(offsets, len(data))
    check_ngram(ngram)
    seeds = read_only(seeds, np.uint64)
    return _signatures(data, offsets, seeds, ngram, unicode_tables(), new_buffers(offsets, ngram))


@kernel
def _signatures(data, offsets, seeds, ngram, tables, buffers):
    n_documents = len(offsets) - 1
    minima = np.empty(len(seeds), np.uint64)
    values = np.full((n_documents, len(seeds)), NO_WORDS)
    n_words = np.full(n_documents, INVALID)
    for document in range(n_documents):
        minima[:] = np.uint64(0xFFFFFFFFFFFFFFFF)
        cursor, stop = new_cursor(offsets[document]), offsets[document + 1]
        while INVALID < cursor.position < stop:
            cursor, n_hashes = next_shingles(data, stop, ngram, tables, cursor, buffers)
            lower_minima(buffers.hashes, n_hashes, seeds, minima)
        if cursor.position != INVALID:
            n_words[document] = cursor.n_dropped + cursor.n_words
            values[document] = minima >> np.uint64(32)
    return values, n_words


@kernel
def lower_minima(hashes, n_hashes, seeds, minima):
    """Take a block of shingle hashes into the running minimum of each hash function.

    The block is first padded, in place, with copies of its first hash, which change no minimum: the
    vectorised loop then has no remainder.
    """
    if n_hashes == 0:
        return
    padded = (n_hashes + LANES - 1) // LANES * LANES
    hashes[n_hashes:padded] = hashes[0]
    for i in range(len(seeds)):
        seed, smallest = seeds[i], minima[i]
        for j in range(padded):
            smallest = min(smallest, _mix64_top(hashes[j] ^ seed))
        minima[i] = smallest


@kernel
def _mix64_top(x):
    """`mix64` without its last step, which leaves the top 33 bits as they are."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    return (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
