"""What is encoded at a time: long documents in pieces, and some by the reference alone.

Dimensions: bytes n, documents d, pieces p.
"""

import re

import numpy as np
from numpy.typing import NDArray

# Bytes in a piece, at most. While it encodes, `tokenizers` holds some 130 bytes for a byte of text, gigatoken up to
# 23 for one of a run that it cannot split; a document of any length costs no more than one piece of it.
PIECE = 2**20

_SEAM = re.compile(r"(?s:.*)[^\W_](?=[ \n])")

# Letters, marks and numbers that Unicode 17 assigned. gigatoken 0.10 knows them; tokenizers 0.23 and tiktoken 0.14
# go by Unicode 16, take them for symbols, and split the text around them otherwise. Found by giving every code point
# in 20 contexts to both; there is no other difference.
UNICODE_17 = (
    *(
        (0x088F, 0x088F),
        (0x0C5C, 0x0C5C),
        (0x0CDC, 0x0CDC),
        (0x1ACF, 0x1ADD),
        (0x1AE0, 0x1AEB),
        (0xA7CE, 0xA7CF),
    ),
    *((0xA7D2, 0xA7D2), (0xA7D4, 0xA7D4), (0xA7F1, 0xA7F1), (0x10940, 0x10959), (0x10EC5, 0x10EC7)),
    *((0x10EFA, 0x10EFB), (0x11B60, 0x11B67), (0x11DB0, 0x11DDB), (0x11DE0, 0x11DE9), (0x16EA0, 0x16EB8)),
    *((0x16EBB, 0x16ED3), (0x16FF2, 0x16FF6), (0x187F8, 0x187FF), (0x18D09, 0x18D1E), (0x18D80, 0x18DF2)),
    *((0x1E6C0, 0x1E6DE), (0x1E6E0, 0x1E6F5), (0x1E6FE, 0x1E6FF), (0x2B73A, 0x2B73F), (0x2CEA2, 0x2CEAD)),
    (0x323B0, 0x33479),
)


def pieces(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], size: int = PIECE
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut documents longer than `size` bytes.

    A piece ends, if it can, where a letter or digit is followed by a space or a newline: a place where every
    supported tokenizer splits whatever stands around it, so that the pieces' ids are the document's. Where `size`
    bytes hold no such place the piece ends with its last whole character, and at most the tokens on either side of
    that cut differ from the uncut document's. Either way the cuts depend on the document alone.

    Parameters
    ----------
    data : uint8[n]
        UTF-8.
    offsets : int64[d + 1]
        Where each document begins in `data`, and where the last one ends.
    size : int
        Bytes in a piece, at least 4.

    Returns
    -------
    bounds : int64[p + 1]
        Where each piece begins, and where the last one ends.
    first : int64[d + 1]
        Index in `bounds` of each document's beginning, and p.
    """
    long = np.flatnonzero(np.diff(offsets) > size)
    cuts = [_cuts(data, int(offsets[document]), int(offsets[document + 1]), size) for document in long]
    counts = np.zeros(len(offsets), np.int64)
    counts[long + 1] = [len(cut) for cut in cuts]
    first = np.arange(len(offsets)) + np.cumsum(counts)
    bounds = np.empty(len(offsets) + counts.sum(), np.int64)
    bounds[first] = offsets
    for document, cut in zip(long, cuts, strict=True):
        bounds[first[document] + 1 : first[document + 1]] = cut
    return bounds, first


def _cuts(data: NDArray[np.uint8], start: int, end: int, size: int) -> list[int]:
    """Where the document `data[start:end]` is cut."""
    cuts = []
    while end - start > size:
        text = data[start : start + size].tobytes().decode("utf-8", "ignore")
        seam = _SEAM.match(text)
        start += len((seam[0] if seam else text).encode())
        cuts.append(start)
    return cuts


def _utf8_prefixes(ranges: tuple[tuple[int, int], ...]) -> NDArray[np.uint32]:
    """The first three bytes of the code points in `ranges` as one number each, sorted."""
    encoded = {chr(point).encode()[:3] for first, last in ranges for point in range(first, last + 1)}
    return np.array(sorted(int.from_bytes(prefix, "big") for prefix in encoded), np.uint32)


_DISPUTED = _utf8_prefixes(UNICODE_17)
_LEADS = np.isin(np.arange(256), _DISPUTED >> 16)


def disputed(data: NDArray[np.uint8], bounds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which pieces hold a code point that the libraries classify differently, or one close to it.

    Parameters
    ----------
    data : uint8[n]
        UTF-8.
    bounds : int64[p + 1]
        Where each piece begins, and where the last one ends.

    Returns
    -------
    bool[p]
        True where gigatoken and the reference could split differently. Four-byte characters are told by their
        first three bytes, that is in blocks of 64, so a few neighbours are True for nothing.
    """
    wide = np.flatnonzero(data >= 0xE0)  # the first bytes of characters of three and four bytes
    wide = wide[_LEADS[data[wide]]]
    first, second, third = (data[wide + byte].astype(np.uint32) for byte in range(3))
    prefixes = first << 16 | second << 8 | third
    found = wide[np.isin(prefixes, _DISPUTED)]
    marked = np.zeros(len(bounds) - 1, np.bool_)
    marked[np.searchsorted(bounds, found, side="right") - 1] = True
    return marked
