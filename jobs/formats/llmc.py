"""llm.c's token file.

Layout, little endian::

    byte 0      int32[256]   the header
                  [0] magic         20240520 (GPT-2 style) or 20240801 (Llama-3 style)
                  [1] version       1                      or 7
                  [2] token count   t, at least 1
                  [3:] 0            written so, not checked, as in llm.c
    byte 1,024  uint16[t] (GPT-2 style) or uint32[t] (Llama-3 style), and nothing after them

A split is a numbered series of such files, ``{name}_{split}_{index:06d}.bin`` from 0 on, which together hold
one stream of tokens.

llm.c's own readers set the bounds. They take the GPT-2 style only, except the one for Llama 3; they cast
sizes and offsets to C's int, so a file stays below 2 GiB; they want the file to be exactly as long as its
header says, and in every shard at least ranks · B · T + 1 tokens, or training stops before it begins.

Source: ``dev/data/data_common.py`` and ``llmc/dataloader.h`` of https://github.com/karpathy/llm.c
"""

import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from jobs.errors import UserError
from jobs.runtime import folders

if TYPE_CHECKING:
    import dask.array as da


class Header(NamedTuple):
    """What tells one style of file from the other."""

    magic: int
    version: int
    dtype: np.dtype[Any]


HEADERS = (Header(20240520, 1, np.dtype("<u2")), Header(20240801, 7, np.dtype("<u4")))
HEADER_WORDS = 256
HEADER_BYTES = HEADER_WORDS * 4
MAX_FILE_BYTES = 2**31 - 1
CHUNK = 4_000_000  # tokens that `read` gives to a task


def max_tokens(dtype: npt.DTypeLike) -> int:
    """Tokens in the largest file that llm.c can read: 1,073,741,311 of uint16 or 536,870,655 of uint32."""
    return (MAX_FILE_BYTES - HEADER_BYTES) // _style(dtype).dtype.itemsize


def header(n_tokens: int, dtype: npt.DTypeLike) -> npt.NDArray[np.int32]:
    """Header of a file of `n_tokens` tokens.

    Returns
    -------
    int32[256]

    Raises
    ------
    UserError
        The tokens are none, or more than `max_tokens`, or of a type that the format does not know.
    """
    style = _style(dtype)
    if not 1 <= n_tokens <= max_tokens(dtype):
        raise UserError(
            f"a shard of {n_tokens:,} {style.dtype.name} tokens cannot be written: "
            f"an llm.c token file holds from 1 to {max_tokens(dtype):,} of them, to stay below 2 GiB"
        )
    words = np.zeros(HEADER_WORDS, dtype="<i4")
    words[:3] = style.magic, style.version, n_tokens
    return words


def _style(dtype: npt.DTypeLike) -> Header:
    for style in HEADERS:
        if style.dtype == np.dtype(dtype):
            return style
    raise UserError(f"an llm.c token file holds uint16 or uint32 tokens, not {np.dtype(dtype)}")


class ShardWriter:
    """Write one shard, piece by piece, into an open binary file; a context manager.

    The header comes first, so the number of tokens is said first, and held to at the end.

    Parameters
    ----------
    file : binary file
        Open for writing, at its start. It is neither sought nor closed here.
    n_tokens : int
        Tokens that will be written.
    dtype : dtype
        uint16 or uint32.

    Raises
    ------
    UserError
        See `header`.
    """

    def __init__(self, file: IO[bytes], n_tokens: int, dtype: npt.DTypeLike) -> None:
        self._file = file
        self._dtype = _style(dtype).dtype
        self._missing = n_tokens
        file.write(header(n_tokens, dtype).tobytes())

    def append(self, tokens: npt.NDArray[Any]) -> None:
        """Write the next tokens.

        Parameters
        ----------
        tokens : uint[t]
            Of the shard's dtype or a narrower one: a token is never cut to fit.

        Raises
        ------
        TypeError
            The tokens' dtype is wider than the shard's.
        ValueError
            There are more tokens than were announced.
        """
        if len(tokens) > self._missing:
            raise ValueError(f"{len(tokens):,} tokens for a shard that lacks only {self._missing:,}")
        fitting = np.ascontiguousarray(tokens.astype(self._dtype, casting="safe", copy=False))
        self._file.write(fitting.view(np.uint8).data)
        self._missing -= len(tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._missing:
            raise ValueError(f"the shard lacks {self._missing:,} of the tokens that were announced")


def write_shard(file: IO[bytes], tokens: npt.NDArray[Any]) -> None:
    """Write a whole shard, uint16[t] or uint32[t], into an open binary file; raises as `header` does."""
    with ShardWriter(file, len(tokens), tokens.dtype) as writer:
        writer.append(tokens)


def read_header(path: str | Path) -> tuple[np.dtype[Any], int]:
    """Read the token type and the token count of a file, and hold the file's size against them.

    Raises
    ------
    UserError
        The file cannot be read, is not a token file, or is shorter or longer than its header says.
    """
    file = folders.located(path)
    try:
        n_bytes, raw = file.stat().st_size, folders.read_range(file, 0, HEADER_BYTES)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(raw) < HEADER_BYTES:
        raise UserError(
            f"{path} is {len(raw):,} bytes long, too short for the 1,024-byte header of an llm.c token file"
        )
    magic, version, n_tokens = (int(word) for word in np.frombuffer(raw, dtype="<i4")[:3])
    dtype = next((style.dtype for style in HEADERS if style[:2] == (magic, version)), None)
    if dtype is None:
        known = " or ".join(f"magic {style.magic} version {style.version}" for style in HEADERS)
        raise UserError(
            f"{path} is not an llm.c token file: it begins with magic {magic} version {version}, not {known}"
        )
    if n_tokens < 1:
        raise UserError(f"{path} is damaged: its header says {n_tokens:,} tokens, not one or more")
    expected = HEADER_BYTES + n_tokens * dtype.itemsize
    if n_bytes != expected:
        raise UserError(
            f"{path} is {'too short' if n_bytes < expected else 'too long'}: it is {n_bytes:,} bytes long, "
            f"but its header says {n_tokens:,} {dtype.name} tokens, which make {expected:,} bytes"
        )
    return dtype, n_tokens


def read_headers(paths: Sequence[Path]) -> tuple[np.dtype[Any], npt.NDArray[np.int64]]:
    """Read the token type that the shards of a split have in common, and their token counts, int64[k].

    Raises
    ------
    UserError
        See `read_header`; or the shards are of two types.
    """
    dtypes, counts = zip(*(read_header(path) for path in paths), strict=True)
    for path, dtype in zip(paths, dtypes, strict=True):
        if dtype != dtypes[0]:
            raise UserError(
                f"{path} holds {dtype.name} tokens, but {paths[0].name} beside it holds {dtypes[0].name}; "
                "the shards of a split have one type"
            )
    return dtypes[0], np.array(counts, dtype=np.int64)


def open_shard(path: str | Path) -> folders.Sliced:
    """Map the tokens of a file, uint16[t] or uint32[t], read-only; raises as `read_header` does."""
    dtype, n_tokens = read_header(path)
    return folders.mapped(folders.located(path), dtype, HEADER_BYTES, n_tokens)


def read(data_dir: str | Path, split: str) -> "da.Array":
    """The token ids of a split as one Dask array, uint16[t] or uint32[t], in the order of the stream.

    Parameters
    ----------
    data_dir : path or URL
        As `find_shards` takes it.
    split : str
        ``train`` or ``val``.

    Raises
    ------
    UserError
        As `find_shards` and `read_headers` do.
    """
    import dask
    import dask.array as da

    paths = find_shards(data_dir, split)
    dtype, counts = read_headers(paths)
    chunks = [
        da.from_delayed(dask.delayed(_tokens)(path, start, stop), (stop - start,), dtype)
        for path, n in zip(paths, counts.tolist(), strict=True)
        for start in range(0, n, CHUNK)
        for stop in [min(start + CHUNK, n)]
    ]
    return da.concatenate(chunks)


def _tokens(path: Path, start: int, stop: int) -> npt.NDArray[Any]:
    return np.asarray(open_shard(path)[start:stop])


def shard_name(name: str, split: str, index: int) -> str:
    """Name of a shard's file, such as ``fineweb_train_000003.bin``."""
    return f"{name}_{split}_{index:06d}.bin"


def find_shards(data_dir: str | Path, split: str) -> list[Path]:
    """Find the shards of a split, in the order of their numbers.

    Parameters
    ----------
    data_dir : path or URL
        The folder of the shards, or the output of a run, which holds them in a folder ``shards``.
    split : str
        ``train`` or ``val``. Files are named as by `shard_name`, or without a name: ``train_000000.bin``.

    Raises
    ------
    UserError
        There is no such folder or no such shard, a number is missing or double, or the files carry two names.
    """
    folder = folders.located(data_dir)
    if (folder / "shards").is_dir():
        folder /= "shards"
    # A leading dot marks a file that is still being written.
    named = re.compile(rf"(?!\.)(?:(?P<name>.+)_)?{re.escape(split)}_(?P<index>[0-9]{{6,}})\.bin")
    try:
        found = [match for path in folder.iterdir() if (match := named.fullmatch(path.name))]
    except OSError as error:
        raise UserError(f"{folder} is not a folder of shards: {error.strerror or error}") from None
    if not found:
        example = shard_name("NAME", split, 0)
        raise UserError(f"{folder} holds no shard of the split {split!r}: there is no file like {example}")
    found.sort(key=lambda match: (int(match["index"]), match.string))
    for expected, match in enumerate(found):
        if match["name"] != found[0]["name"]:
            raise UserError(
                f"{folder} holds shards of two data sets, such as {found[0].string} and {match.string}; "
                "give each a folder of its own"
            )
        if int(match["index"]) != expected:
            raise UserError(
                f"{folder} lacks shard {expected} of the split {split!r}, where {match.string} stands; "
                "shards are numbered from 0 without a gap"
            )
    return [folder / match.string for match in found]


def shard_sizes(n_tokens: int, shard_tokens: int, min_tokens: int) -> npt.NDArray[np.int64]:
    """Cut a stream into as few shards as hold it: full ones, and the rest in the last.

    Where the rest is below `min_tokens`, the last shards share their tokens evenly: the last two or, where
    that leaves them too small, the fewest that reach `min_tokens` each. A shard is never larger than
    `shard_tokens`, so one below `min_tokens` remains only where no cut avoids it: where the whole stream is
    shorter, or where `min_tokens` is over half of `shard_tokens` and the stream does not divide. Then the
    rest stays as it is.

    Parameters
    ----------
    n_tokens : int
        Tokens of the whole stream, at least 0.
    shard_tokens : int
        Tokens of a full shard, at least 1.
    min_tokens : int
        Tokens that a shard should hold; llm.c wants ranks · B · T + 1.

    Returns
    -------
    int64[k]
        Tokens of each shard; they sum to `n_tokens`, and k = ceil(n_tokens / shard_tokens).
    """
    k = -(-n_tokens // shard_tokens)
    sizes = np.full(k, shard_tokens, dtype=np.int64)
    sizes[k - 1 :] -= k * shard_tokens - n_tokens
    for sharing in range(1, k + 1):
        shared = n_tokens - (k - sharing) * shard_tokens
        if shared >= sharing * min_tokens:
            even, over = divmod(shared, sharing)
            sizes[k - sharing :] = even
            sizes[k - sharing : k - sharing + over] += 1
            break
    return sizes
