import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import rows
from tests import naive
from tests.kernels.strategies import checked

LENGTHS = st.lists(st.integers(1, 40), max_size=40)
LENGTH = st.integers(1, 20)


def as_rows(pieces: rows.Pieces, n: int) -> list[list[tuple[int, int]]]:
    """Of each row, the documents and tokens in it, one pair a token."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for row, document, start, length in zip(*(column.tolist() for column in pieces), strict=True):
        found[row] += [(document, start + i) for i in range(length)]
    return found


def n_rows(pieces: rows.Pieces) -> int:
    return int(pieces.row.max()) + 1 if len(pieces.row) else 0


@checked
@given(LENGTHS, LENGTH, st.integers(0, 60), st.integers(0, 100))
def test_stream_cuts_as_a_list_is_cut(lengths, length, begin, limit):
    lengths = np.array(lengths, np.int64)
    everything = naive.tokens_of_documents(lengths)[begin:]
    n = min(len(everything) // length, limit)
    places = np.cumsum(lengths) - lengths - begin
    here = places + lengths > 0
    first = int(np.argmax(here)) if here.any() else len(lengths)
    pieces = rows.stream(places[first:], lengths[first:], length, n)
    found = as_rows(pieces._replace(document=pieces.document + first), n)
    assert found == [everything[i * length : (i + 1) * length] for i in range(n)]


@checked
@given(LENGTHS, LENGTH)
def test_padding_gives_each_piece_a_row(lengths, length):
    pieces = rows.padded(np.array(lengths, np.int64), length)
    expected = [
        [(document, token) for token in range(start, min(start + length, n))]
        for document, n in enumerate(lengths)
        for start in range(0, n, length)
    ]
    assert as_rows(pieces, len(expected)) == expected


@checked
@given(LENGTHS, LENGTH)
def test_best_fit_is_the_naive_one(lengths, length):
    pieces = rows.best_fit(np.array(lengths, np.int64), length)
    assert as_rows(pieces, n_rows(pieces)) == naive.best_fit(lengths, length)


@checked
@given(LENGTHS, LENGTH)
def test_best_fit_holds_every_token_once_and_cuts_only_what_is_too_long(lengths, length):
    lengths = np.array(lengths, np.int64)
    pieces = rows.best_fit(lengths, length)
    found = as_rows(pieces, n_rows(pieces))
    assert sorted(token for row in found for token in row) == naive.tokens_of_documents(lengths)
    assert all(0 < len(row) <= length for row in found)
    pieces_of = np.bincount(pieces.document, minlength=len(lengths))
    np.testing.assert_array_equal(pieces_of, -(-lengths // length))


@checked
@given(LENGTHS, LENGTH, st.sampled_from(["stream", "padded", "best_fit"]))
def test_counts_are_those_of_the_rows(lengths, length, policy):
    lengths = np.array(lengths, np.int64)
    n = int(lengths.sum()) // length
    pieces = (
        rows.stream(np.cumsum(lengths) - lengths, lengths, length, n)
        if policy == "stream"
        else getattr(rows, policy)(lengths, length)
    )
    n = n if policy == "stream" else n_rows(pieces)
    assert rows.count(pieces, lengths, n)._asdict() == naive.row_counts(as_rows(pieces, n), lengths)


@checked
@given(LENGTHS, LENGTH, st.sampled_from([np.uint16, np.uint32]))
def test_rows_are_filled_with_their_tokens(lengths, length, dtype):
    lengths = np.array(lengths, np.int64)
    tokens = np.arange(1, lengths.sum() + 1).astype(dtype)
    starts = np.cumsum(lengths) - lengths
    pieces = rows.best_fit(lengths, length)
    filled, n_tokens = rows.fill(pieces, tokens, starts, length, 0)
    assert filled.dtype == dtype
    expected = [
        [int(tokens[starts[document] + token]) for document, token in row]
        for row in as_rows(pieces, n_rows(pieces))
    ]
    assert n_tokens.tolist() == [len(row) for row in expected]
    assert filled.tolist() == [row + [0] * (length - len(row)) for row in expected]


def test_by_hand():
    # 7 + 3 | 6 + 4 | 5 + 2: the 4 goes to the row with room 4, not to that with 5.
    pieces = rows.best_fit(np.array([5, 3, 7, 4, 6, 2], np.int64), 10)
    assert [sorted(d for d, t in row if t == 0) for row in as_rows(pieces, 3)] == [[1, 2], [3, 4], [0, 5]]


def test_empty_documents_and_rows_are_refused():
    for lengths, length in (([1, 0], 4), ([1], 0)):
        with pytest.raises(ValueError, match="at least one token"):
            rows.padded(np.array(lengths, np.int64), length)


def test_best_fit_wastes_far_less_than_padding_and_cuts_as_little():
    """The paper's point, on lengths of a log-normal distribution as web documents have them."""
    lengths = np.random.default_rng(0).lognormal(6.4, 1, 100_000).astype(np.int64) + 1
    counts = {}
    for policy in (rows.padded, rows.best_fit):
        pieces = policy(lengths, 2049)
        counts[policy] = rows.count(pieces, lengths, n_rows(pieces))
    padded, packed = counts[rows.padded], counts[rows.best_fit]
    assert packed.whole_documents == padded.whole_documents == (lengths <= 2049).sum()
    assert packed.tokens == padded.tokens == lengths.sum()
    assert packed.rows * 2049 - packed.tokens < 0.001 * packed.tokens
    assert padded.rows * 2049 - padded.tokens > 0.3 * padded.tokens
