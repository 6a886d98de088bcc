"""The loader of a split: its shards found, checked and served."""

import contextlib
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.errors import UserError
from jobs.formats import llmc
from jobs.loader.batches import BatchLoader
from jobs.loader.cache import LocalCache, default_folder
from jobs.loader.stream import TokenFile, TokenStream
from jobs.loader.windows import Windows
from jobs.runtime import folders
from jobs.runtime.checkpoint import LOCK, MANIFEST, RUNNING, DamagedFileError, is_mixture, read_json

SHARDS = "shards"


class ShardLoader(BatchLoader):
    """Batches (x, y) of B sequences of T tokens from the shards of a split.

    The shards are one stream of tokens, and sequence s is the window of T tokens from token s · T on. Batch i is
    made of sequences i · B to (i + 1) · B - 1, so ``batch(i)`` is a pure function of i: deterministic, and resumable
    from any step. Shuffled, the sequences are permuted anew in each epoch, by a permutation that is computed and not
    stored. Of `world_size` ranks, each takes B sequences in its turn.

    Memory stays flat: a batch is read from its file at its place, and the operating system's page cache does the rest.
    A loader can be pickled and forked, and used from several threads.

    Parameters
    ----------
    split : str
        ``train`` or ``val``.
    B, T : int
        Sequences in a batch, tokens in a sequence.
    data_dir : path or URL
        The output of a run, or a folder of llm.c token files. Behind a URL, a shard is copied when it is first read.
    shuffle : bool
        Sequences in another order in each epoch.
    seed : int
        Of these orders, at least 0.
    cache_dir : path
        Where copies of remote shards are kept (default: ``~/.cache/shardmill``); it grows to the size of what is read.
    **options
        rank, world_size, uneven, pin_memory, num_workers, prefetch, end_of_text, mask_boundaries: see `BatchLoader`.
        `end_of_text` is by default what the run says that made the output.

    Attributes
    ----------
    n_tokens : int
        Tokens of the split.
    dtype : dtype
        As which they are stored: uint16 or uint32.
    n_sequences : int
        Whole sequences in it, (n_tokens - 1) // T; a sequence's last target is the next one's first input.
    n_batches : int
        Whole batches of each rank in it, n_sequences // (world_size · B).

    Raises
    ------
    UserError
        A shard is missing, damaged or foreign, or the split is too short for one batch of each rank; or the output's
        shards are not all packed, or it is a mixture's.

    Warns
    -----
    UserWarning
        The output's last run did not come to its end, so that the shards may be of earlier settings.

    Examples
    --------
    >>> loader = ShardLoader("train", B=16, T=1024, data_dir="out")  # doctest: +SKIP
    >>> batches = loader.batches(step=1200)  # resume at optimizer step 1,200  # doctest: +SKIP
    >>> x, y = next(batches)  # doctest: +SKIP
    """

    def __init__(
        self,
        split: str = "train",
        B: int = 16,
        T: int = 1024,
        data_dir: str | Path = "out",
        *,
        shuffle: bool = False,
        seed: int = 1337,
        cache_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if B < 1 or T < 1:
            raise UserError(f"a batch needs at least one sequence of one token, but B is {B} and T is {T}")
        if seed < 0:
            raise UserError(f"a seed is at least 0, but seed is {seed}")
        out = folders.located(data_dir)
        with folders.answering(out) if folders.is_remote(out) else contextlib.nullcontext():
            _check_finished(out)
            paths = llmc.find_shards(out, split)
            dtype, sizes = llmc.read_headers(paths)
            if options.get("end_of_text") is None:
                options["end_of_text"] = _end_of_text(out)
        files = [TokenFile(path, llmc.HEADER_BYTES, n) for path, n in zip(paths, sizes.tolist(), strict=True)]
        cache = LocalCache(cache_dir or default_folder()) if folders.is_remote(out) else None
        self._stream = TokenStream(files, dtype, cache)
        self._found = f"the split {split!r} in {paths[0].parent}"
        self.n_tokens, self.dtype = self._stream.n_tokens, dtype
        super().__init__(Windows(self._stream, T, seed if shuffle else None), B, **options)

    def window(self, start: int, n: int) -> npt.NDArray[np.int64]:
        """Read n tokens of the stream from token `start` on; see `TokenStream.window`."""
        return self._stream.window(start, n)

    def _too_short(self) -> str:
        need = self.share.step * self.T + 1
        if self.share.world_size == 1:
            batch = f"B · T + 1 = {self.B} · {self.T} + 1 = {need:,}"
        else:
            batch = f"world_size · B · T + 1 = {self.share.world_size} · {self.B} · {self.T} + 1 = {need:,}"
        return f"{self._found} has {self.n_tokens:,} tokens, too few for one batch of {batch}"


def _check_finished(out: Path) -> None:
    """Refuse an output while its shards are packed, and warn of one whose last run did not come to its end."""
    if is_mixture(out):
        raise UserError(
            f"{out} is a mixture and has no splits; serve it with jobs.loader.mixture.MixtureLoader"
        )
    if not (out / (RUNNING if folders.is_remote(out) else LOCK)).exists() or (out / MANIFEST).exists():
        return
    if not (out / SHARDS / MANIFEST).exists():
        raise UserError(f"the shards of {out} are not all packed: its last run stopped before; run it again")
    warnings.warn(
        f"the last run of {out} did not come to its end: its shards may be of earlier settings; run it again",
        stacklevel=3,
    )


def _end_of_text(out: Path) -> int | None:
    """The id that ends a document, where a run made the output and says it."""
    for folder in (out / SHARDS, out):
        with contextlib.suppress(FileNotFoundError, DamagedFileError):  # none, or someone else's
            found = read_json(folder / MANIFEST).get("figures", {}).get("end_of_text")
            return None if found is None else int(found)
    return None
