"""What a person is told about a source before anything is read: one sentence of a kind and source, not one a file."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from jobs.sources.inventory import File, Inventory

NAMES = 3  # of files, that a sentence has at most
# A block so much larger than a split is worth a word: a worker reads it alone and holds what comes of it.
LARGE = 4


def passed_over(inventory: Inventory) -> Iterator[str]:
    """For each source, how many files were passed over, the first names by reason."""
    for source, group in groupby(inventory.skipped, lambda skipped: skipped.source):
        skipped = list(group)
        names: dict[str, list[str]] = {}
        for one in skipped:
            names.setdefault(one.reason, []).append(one.path)
        said = "; ".join(f"{_some(paths)} ({reason})" for reason, paths in names.items())
        yield f"{source}: {_files(len(skipped))} passed over: {said}"


def without_text(inventory: Inventory) -> Iterator[str]:
    """For each source, which files have no text as far as was looked; their records are counted as such."""
    for source, group in groupby(inventory.files, lambda file: file.source):
        paths = [file.path for file in group if "text" not in file.columns]
        if paths:
            yield (
                f"{source}: {_files(len(paths))} without a text in the first records; records that have none are "
                f"dropped as input.null_text: {_some(paths)}"
            )


def without_documents(inventory: Inventory) -> Iterator[str]:
    """For each source, which files were read to their end and hold no document, as a log of requests."""
    for source, group in groupby(inventory.files, lambda file: file.source):
        paths = [file.path for file in group if not file.records]
        if paths:
            yield f"{source}: {_files(len(paths), 'holds', 'hold')} no document: {_some(paths)}"


def joined_splits(inventory: Inventory) -> Iterator[str]:
    """For each source that is a Hugging Face `DatasetDict` on disk, which of its splits are read: all of them."""
    described = {one.source for one in inventory.skipped if one.path == "dataset_dict.json"}
    for source, group in groupby(inventory.files, lambda file: file.source):
        if source in described:
            splits = sorted({file.path.split("/")[0] for file in group})
            yield f"{source}: all splits are read, {_some(splits)}; name the folder of one to read it alone"


def unsplittable(inventory: Inventory, advice: Mapping[str, str], split_bytes: int) -> Iterator[str]:
    """For each source, which files have a block of several documents much larger than a split, and what to do about it.

    Parameters
    ----------
    inventory
        Of one or several sources.
    advice
        Name of a source -> its format's `UNSPLIT`; sources without are left out.
    split_bytes
        Size of a split, at most.
    """
    for source, group in groupby(inventory.files, lambda file: file.source):
        paths = [
            f"{file.path} ({largest / 2**20:,.0f} MiB)"
            for file in group
            if (largest := _largest_of_several(file)) > LARGE * split_bytes
        ]
        if paths and source in advice:
            yield f"{source}: {_files(len(paths))} not split further: {_some(paths)}; {advice[source]}"


def _largest_of_several(file: File) -> int:
    """Size of the largest block that holds more than one document: one alone cannot be split at all."""
    return max((block.n_bytes for block in file.blocks if block.records > 1), default=0)


def _files(count: int, one: str = "is", several: str = "are") -> str:
    return f"one file {one}" if count == 1 else f"{count:,} files {several}"


def _some(names: Sequence[str]) -> str:
    shown, more = names[:NAMES], len(names) - NAMES
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
