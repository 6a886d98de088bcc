"""Which band keys can occur twice: only they have to meet, and in most corpora a few in a hundred do.

A first pass over the signatures notes each key in a table of two bits for each place (`kernels.repeats`); the tables of
groups of splits are merged, and what is left of them, a bit a place, is written where all workers map it. A second
pass shuffles the keys whose place was seen twice. A key that repeats always passes; one that does not passes in some
6 to 12 cases in a hundred, and finds no other in its bucket. The clusters are the same without any of this.

Memory: two tables at most on a worker and the merged one, 2 bits for each of `PLACES_FOR_A_KEY` to twice as many
places a key, but no more than `MOST_PLACES`; beyond, the key space is cut into ranges, noted one after the other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobs.runtime import checkpoint, folders
from jobs.runtime.compute import Named
from kernels import repeats

FOLDER = "repeats"
PLACES_FOR_A_KEY = 8  # at least: 1 - exp(-1/8) = 12 % of the keys that occur once pass
MOST_PLACES = 30  # as a power of two: a table of 256 MiB
FEWEST_PLACES = 10
MERGED_AT_ONCE = 4
SPLITS_IN_A_GROUP = 256  # at most: a task that is lost is done again

Keys = Callable[[Any], np.ndarray]  # what a partition's keys are, uint64[n]


@dataclass(frozen=True)
class Repeats:
    """Files of the flags of each range of the key space."""

    paths: tuple[Path, ...]

    def among(self, keys: np.ndarray) -> np.ndarray:
        """bool[...]: whether each key may occur twice."""
        flat = keys.ravel()
        found = np.zeros(len(flat), bool)
        for part, path in enumerate(self.paths):
            flags = folders.load(folders.local_copy(path))
            found |= repeats.may_repeat(flags, flat, _log2(len(self.paths)), part)
        return found.reshape(keys.shape)


@dataclass(frozen=True)
class Shape:
    """Sizes, as powers of two: places in a table, and ranges of the key space."""

    log2_places: int
    log2_ranges: int


def shape(n_keys: int, most_places: int = MOST_PLACES) -> Shape:
    """Tables for about so many keys."""
    wanted = max(FEWEST_PLACES, math.ceil(math.log2(max(1, n_keys * PLACES_FOR_A_KEY))))
    places = min(wanted, most_places)
    return Shape(places, wanted - places)


def graph(
    parts: Sequence[Any], keys_of: Keys, n_keys: int, folder: Path, tasks: int, most_places: int = MOST_PLACES
) -> Any:
    """A delayed `Repeats` of the keys of all parts, noted by about so many tasks at once, its files in `folder`."""
    import dask

    sizes = shape(n_keys, most_places)
    in_a_group = max(1, min(SPLITS_IN_A_GROUP, math.ceil(len(parts) / tasks)))
    groups = [tuple(parts[i : i + in_a_group]) for i in range(0, len(parts), in_a_group)]
    note = dask.delayed(Named("note keys", note_group), pure=False)
    merge = dask.delayed(Named("merge notes", merge_tables), pure=False)
    write = dask.delayed(Named("write what repeats", written), pure=False)
    before, paths = None, []
    for part in range(2**sizes.log2_ranges):
        # A range waits for the one before it, so that the tables of one range are in memory at a time.
        tables = [note(group, keys_of, sizes, part, before) for group in groups]
        while len(tables) > 1:
            tables = [merge(tables[i : i + MERGED_AT_ONCE]) for i in range(0, len(tables), MERGED_AT_ONCE)]
        before = write(tables[0], folder / f"{part:05d}.npy")
        paths.append(before)
    return dask.delayed(Named("name what repeats", _repeats))(paths)


def note_group(group: tuple[Any, ...], keys_of: Keys, sizes: Shape, part: int, before: object) -> np.ndarray:
    """The table of the keys of a group of partitions, of one range."""
    table = repeats.new_table(sizes.log2_places)
    for one in group:
        repeats.note(table, keys_of(one), sizes.log2_ranges, part)
    return table


def merge_tables(tables: list[np.ndarray]) -> np.ndarray:
    """One table of several."""
    return repeats.merge(tables)


def written(table: np.ndarray, path: Path) -> Path:
    """Write the flags of a table, and say where."""
    with checkpoint.written(path) as file:
        checkpoint.save_array(file, repeats.twice(table))
    return path


def _repeats(paths: list[Path]) -> Repeats:
    return Repeats(tuple(paths))


def _log2(power: int) -> int:
    return power.bit_length() - 1
