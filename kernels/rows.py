"""Rows of one length out of documents of many: the stream, padding, and best-fit packing.

A document's length counts its end-of-text token. What of a document lies in one row is a *piece*.

- *Stream*: documents follow each other, and the stream is cut every l tokens. No position is wasted but the tokens too
  few for a last row; documents are cut wherever a row ends.
- *Padding*: each document is cut every l tokens of its own, and its last row is filled up. No row holds two documents.
- *Best fit*: documents are cut as for padding, so one that fits a row is never cut; the pieces are then packed into
  rows, the longest first, each into the row with the least room that still takes it (best-fit decreasing).

Source: Hantian Ding et al., Fewer Truncations Improve Language Modeling, ICML 2024 (best fit, in O(p log l)).

Dimensions: documents d, pieces p, rows r, length of a row l.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import kernel
from kernels.arrays import read_only
from kernels.packing import gather


class Pieces(NamedTuple):
    """Which tokens of which document lie in which row, in the order of the rows and of the tokens within each."""

    row: NDArray[np.int64]
    document: NDArray[np.int64]
    start: NDArray[np.int64]  # in the document
    length: NDArray[np.int64]


class RowCounts(NamedTuple):
    """What rows hold; sums over parts of a corpus are the counts of the whole."""

    rows: int
    tokens: int  # in rows
    pieces: int
    whole_documents: int  # in one row from their first token to their last
    rows_with_several: int  # documents
    tokens_after_boundary: int  # behind the first piece of their row


def stream(places: NDArray[np.int64], lengths: NDArray[np.int64], length: int, rows: int) -> Pieces:
    """Cut a stream into rows.

    Parameters
    ----------
    places : int64[d]
        Where each document begins, counted from the first token of row 0; increasing, and possibly before it.
    lengths : int64[d]
        Tokens of each document, at least 1.
    length : int
        Of a row, at least 1.
    rows : int
        Rows to be cut; what lies before or behind them is left out.
    """
    places, lengths = read_only(places, np.int64), read_only(lengths, np.int64)
    _refuse_empty(lengths, length)
    pieces = _cut(places, lengths, length)
    return _chosen(pieces, (pieces.row >= 0) & (pieces.row < rows))


def padded(lengths: NDArray[np.int64], length: int) -> Pieces:
    """A row for each piece, in the order of the documents; parameters as in `stream`."""
    lengths = read_only(lengths, np.int64)
    _refuse_empty(lengths, length)
    pieces = _cut(np.zeros(len(lengths), np.int64), lengths, length)
    return pieces._replace(row=np.arange(len(pieces.row)))


def best_fit(lengths: NDArray[np.int64], length: int) -> Pieces:
    """Best-fit packing; rows are numbered as they were begun, so the fullest come first; parameters as in `stream`.

    Of rows with the same room the one that was added to last is taken.
    """
    pieces = padded(lengths, length)
    longest_first = np.argsort(-pieces.length, kind="stable")
    row = _best_fit(pieces.length, longest_first, length)
    return _chosen(pieces._replace(row=row), np.argsort(row, kind="stable"))


def count(pieces: Pieces, lengths: NDArray[np.int64], rows: int) -> RowCounts:
    """Figures of rows; `lengths` are the documents', `rows` how many rows there are."""
    first = np.diff(pieces.row, prepend=-1) > 0
    held = np.bincount(pieces.row, minlength=rows)
    return RowCounts(
        rows=rows,
        tokens=int(pieces.length.sum()),
        pieces=len(pieces.row),
        whole_documents=int((pieces.length == lengths[pieces.document]).sum()),
        rows_with_several=int((held > 1).sum()),
        tokens_after_boundary=int(pieces.length[~first].sum()),
    )


def fill(
    pieces: Pieces, tokens: NDArray[Any], starts: NDArray[np.int64], length: int, filling: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Copy pieces into rows.

    Parameters
    ----------
    tokens : uint16[t] or uint32[t]
    starts : int64[d]
        Where in `tokens` each document begins.
    filling : int
        Token of the positions that no piece takes.

    Returns
    -------
    uint16[r, l] or uint32[r, l], int64[r]
        The rows, and how many tokens of each come before its filling.
    """
    n = int(pieces.row.max()) + 1 if len(pieces.row) else 0
    rows = np.full((n, length), filling, tokens.dtype)
    ends = np.cumsum(pieces.length)
    n_tokens = np.bincount(pieces.row, weights=pieces.length, minlength=n).astype(np.int64)
    before = np.cumsum(n_tokens) - n_tokens  # tokens in earlier rows
    places = ends - pieces.length - before[pieces.row] + pieces.row * length
    gather(tokens, starts[pieces.document] + pieces.start, pieces.length, rows.reshape(-1), places)
    return rows, n_tokens


def _refuse_empty(lengths: NDArray[np.int64], length: int) -> None:
    if length < 1 or (lengths < 1).any():
        raise ValueError("documents and rows have at least one token")


def _cut(places: NDArray[np.int64], lengths: NDArray[np.int64], length: int) -> Pieces:
    """Pieces of documents that begin at `places` of rows without end."""
    first = places // length
    pieces = (places + lengths - 1) // length - first + 1
    document = np.repeat(np.arange(len(lengths)), pieces)
    number = np.arange(len(document)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    row = first[document] + number
    start = np.maximum(row * length - places[document], 0)
    end = np.minimum((row + 1) * length - places[document], lengths[document])
    return Pieces(row, document, start, end - start)


def _chosen(pieces: Pieces, which: NDArray[Any]) -> Pieces:
    return Pieces(*(column[which] for column in pieces))


@kernel
def _best_fit(lengths, longest_first, length):
    rows = np.empty(len(lengths), np.int64)
    leaves = 1
    while leaves <= length:
        leaves *= 2
    has_room = np.zeros(
        2 * leaves, np.bool_
    )  # a tree over the rooms 0 to l: whether a row has a room below the node
    newest = np.full(length + 1, -1, np.int64)  # of the rows with so much room
    earlier = np.empty(len(lengths), np.int64)  # the row before, of those with the same room
    n = 0
    for piece in longest_first:
        room = _least_room(has_room, leaves, lengths[piece])
        if room < 0:
            row, room = n, length
            n += 1
        else:
            row = newest[room]
            newest[room] = earlier[row]
            if newest[room] < 0:
                _mark(has_room, leaves + room, False)
        rows[piece] = row
        room -= lengths[piece]
        if room > 0:
            earlier[row] = newest[room]
            newest[room] = row
            _mark(has_room, leaves + room, True)
    return rows


@kernel
def _least_room(has_room, leaves, wanted):
    """The least room of at least `wanted` that a row has, -1 where none has."""
    node = leaves + wanted
    if not has_room[node]:
        while node > 1 and (node % 2 == 1 or not has_room[node + 1]):
            node //= 2
        if node <= 1:
            return -1
        node += 1
    while node < leaves:
        node = 2 * node if has_room[2 * node] else 2 * node + 1
    return node - leaves


@kernel
def _mark(has_room, node, here):
    """Set a leaf, and whatever follows from it above."""
    has_room[node] = here
    while node > 1:
        node //= 2
        has_room[node] = has_room[2 * node] or has_room[2 * node + 1]
