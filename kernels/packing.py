"""Packing: one stream of tokens out of many documents, and what cutting it into windows costs.

A document's length counts its end-of-text token. Documents follow each other in the stream; the stream
is cut into windows of T tokens, as a training loop reads it. Definitions:

- A *boundary* lies between the last token of a document and the first of the next. A window contains
  it when it holds both; a boundary between two windows is in neither.
- *Windows* are the whole ones. Tokens at the end of the stream too few for a window are in none, and
  are counted as the remainder.
- *Documents per window*: how many different documents a window holds tokens of, the boundaries in it
  plus one, on average.
- *Tokens after a boundary*: the share of the windows' tokens that lie behind the first boundary of
  their window, that is, that an unmasked model reads with another document's tokens before them.
- *Padding*, the alternative: each document is cut into rows of T, and its last row is filled up. The
  padding share is the share of the rows' positions that are filled up so.

Dimensions: documents d, stored tokens n, copied runs k; T is the length of a window in tokens.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import kernel
from kernels.arrays import check_slices, read_only
from kernels.xxh3 import hash_slices


class PackingState(NamedTuple):
    """What `accumulate` has to remember of the stream so far; nine integers."""

    window: int  # T
    documents: int = 0
    tokens: int = 0
    padded_rows: int = 0
    boundaries: int = 0  # in whole windows, as are the next two
    windows_with_boundary: int = 0
    tokens_after_boundary: int = 0
    open_boundaries: int = 0  # in the window that is not whole yet
    open_first: int = 0  # where in that window its first boundary lies


class PackingSummary(NamedTuple):
    """Figures of a stream, as the module defines them. Shares and means of nothing are 0."""

    window: int
    documents: int
    tokens: int
    mean_length: float
    windows: int
    remainder: int
    share_with_boundary: float
    documents_per_window: float
    share_after_boundary: float
    padded_rows: int
    padding_share: float


def accumulate(state: PackingState, lengths: NDArray[np.int64]) -> PackingState:
    """Take the next documents of the stream into the statistics.

    Parameters
    ----------
    state : PackingState
        ``PackingState(window=T)`` at the start of the stream, then what the last call returned.
    lengths : int64[d]
        Tokens of each document with its end-of-text token, in stream order.

    Returns
    -------
    PackingState
        The same however the stream is divided into calls.

    Raises
    ------
    ValueError
        When a length, or the window, is less than 1.
    """
    lengths = read_only(lengths, np.int64)
    if state.window < 1 or (lengths < 1).any():
        raise ValueError("documents and windows have at least one token")
    return _accumulate(state, lengths)


def summarise(state: PackingState) -> PackingSummary:
    """Figures of the stream that `state` has seen."""
    windows, remainder = divmod(state.tokens, state.window)
    return PackingSummary(
        window=state.window,
        documents=state.documents,
        tokens=state.tokens,
        mean_length=_ratio(state.tokens, state.documents),
        windows=windows,
        remainder=remainder,
        share_with_boundary=_ratio(state.windows_with_boundary, windows),
        documents_per_window=_ratio(windows + state.boundaries, windows),
        share_after_boundary=_ratio(state.tokens_after_boundary, windows * state.window),
        padded_rows=state.padded_rows,
        padding_share=_ratio(
            state.padded_rows * state.window - state.tokens, state.padded_rows * state.window
        ),
    )


def gather(
    store: NDArray[Any],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    out: NDArray[Any],
    out_starts: NDArray[np.int64],
) -> None:
    """Copy runs of tokens: ``out[out_starts[i]:][:lengths[i]] = store[starts[i]:][:lengths[i]]``.

    Parameters
    ----------
    store : uint16[n] or uint32[n]
        Token ids to copy from.
    starts, lengths : int64[k]
        The runs, in tokens.
    out : like store
        Where to copy to; must not overlap `store`.
    out_starts : int64[k]
        Where each run goes.

    Raises
    ------
    ValueError
        When a run does not lie within `store` or `out`, or their element types differ.
    """
    if out.dtype != store.dtype or not out.flags.c_contiguous:
        raise ValueError(f"cannot copy {store.dtype} into {out.dtype}, or not into contiguous memory")
    starts, lengths, out_starts = (read_only(a, np.int64) for a in (starts, lengths, out_starts))
    check_slices(starts, starts + lengths, len(store))
    check_slices(out_starts, out_starts + lengths, len(out))
    _gather(read_only(store, store.dtype), starts, lengths, out, out_starts)


def slice_hashes(
    tokens: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """XXH3-64 of the bytes of each run of tokens.

    Parameters
    ----------
    tokens : uint16[n] or uint32[n]
        Token ids, little-endian.
    starts, lengths : int64[k]
        The runs, in tokens.

    Returns
    -------
    uint64[k]
        Equal for equal runs; of another value for the same ids held in the other type.

    Raises
    ------
    ValueError
        When a run does not lie within `tokens`.
    """
    starts = read_only(starts, np.int64) * tokens.itemsize
    sizes = read_only(lengths, np.int64) * tokens.itemsize
    return hash_slices(read_only(tokens, tokens.dtype).view(np.uint8), starts, starts + sizes)


@kernel
def _accumulate(state, lengths):
    window, documents, tokens, rows, boundaries, with_boundary, after, n_open, first = state
    for length in lengths:
        place = tokens % window
        if place > 0:  # the document begins behind another's end
            if n_open == 0:
                first = place
            n_open += 1
        tokens += length
        rows += (length + window - 1) // window
        if place + length >= window:  # and no later window that it fills has a boundary
            boundaries += n_open
            if n_open > 0:
                with_boundary += 1
                after += window - first
            n_open = 0
    documents += len(lengths)
    return PackingState(window, documents, tokens, rows, boundaries, with_boundary, after, n_open, first)


@kernel
def _gather(store, starts, lengths, out, out_starts):
    for run in range(len(starts)):
        start, out_start = starts[run], out_starts[run]
        for i in range(lengths[run]):
            out[out_start + i] = store[start + i]


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
