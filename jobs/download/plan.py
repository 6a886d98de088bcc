"""What a download will take: the files of a data set, their footers, and the row groups chosen from them."""

import itertools
import operator
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from jobs.download import choice, crawls, footers
from jobs.download.choice import Choice
from jobs.download.ranges import Fetcher, Identity, place
from jobs.errors import UserError
from jobs.runtime import checkpoint
from jobs.runtime.console import Console
from jobs.sources import parquet, storage

STAGING = ".download"
MANIFEST = "_manifest.json"  # a name that Arrow and Dask pass over when they read the folder as Parquet


class Request(BaseModel):
    """What a user asked for, as far as it decides what the sample holds.

    Attributes
    ----------
    sources
        Files, folders, globs or URLs.
    choice
        Which row groups.
    columns
        Top-level columns; None for all.
    crawl
        The column that says which crawl a document is from.
    """

    model_config = ConfigDict(frozen=True)

    sources: tuple[str, ...]
    choice: Choice
    columns: tuple[str, ...] | None = None
    crawl: str = "dump"


class Taken(BaseModel):
    """A file of the data set and what the sample takes from it.

    Attributes
    ----------
    name
        Of the file in the sample, relative to its folder.
    url, size, version
        Of the original; the version is its entity tag or modification time.
    row_groups
        Their numbers in the original; none where no row group of it was chosen.
    documents, n_bytes
        In those row groups; bytes of the chosen columns as they are stored.
    """

    name: str
    url: str
    size: int
    version: str
    row_groups: list[int]
    documents: int
    n_bytes: int

    @property
    def identity(self) -> Identity:
        """What every answer must be from."""
        return Identity(self.size, self.version)


class Plan(BaseModel):
    """All that a download needs to know, and to go on after it was stopped.

    Attributes
    ----------
    request
        What it answers.
    row_groups
        Row groups in the whole data set.
    files
        In the order of their names.
    first_files
        What the data set's beginning would have given; None where no file has the crawl's column.
    """

    request: Request
    row_groups: int
    files: list[Taken]
    first_files: crawls.FirstFiles | None = None


@dataclass(frozen=True)
class Staging:
    """The folder in the output that holds what a download needs until it is done."""

    folder: Path

    @property
    def plan(self) -> Path:
        """The plan; written when all footers are here."""
        return self.folder / "plan.json"

    def footer(self, name: str) -> Path:
        """Footer of the file that the sample calls `name`."""
        return self.folder / f"{name}.footer"

    def original(self, name: str) -> Path:
        """Which file the footer is of."""
        return self.folder / f"{name}.original.json"

    def part(self, name: str, row_group: int) -> Path:
        """Column chunks of one row group, one after the other."""
        return self.folder / f"{name}.{row_group}.part"

    def file(self, name: str) -> Path:
        """A file of the sample while it is written: what a killed run leaves of it goes with this folder."""
        return self.folder / name

    def record(self, name: str) -> Path:
        """What is known of a finished file."""
        return self.folder / f"{name}.json"


@dataclass(frozen=True)
class _Looked:
    """One file by its footer; arrays have an element for each row group."""

    name: str
    url: str
    identity: Identity
    documents: np.ndarray
    n_bytes: np.ndarray

    def taken(self, row_groups: list[int]) -> Taken:
        return Taken(
            name=self.name,
            url=self.url,
            size=self.identity.size,
            version=self.identity.version,
            row_groups=row_groups,
            documents=int(self.documents[row_groups].sum()),
            n_bytes=int(self.n_bytes[row_groups].sum()),
        )


def make(request: Request, staging: Staging, fetcher: Fetcher, pool: Executor, console: Console) -> Plan:
    """Find the data set's files, fetch their footers, choose row groups, and look what the first files hold.

    Raises
    ------
    UserError
        A file cannot be reached, is no Parquet or lacks a column; or nothing would be taken.
    """
    # 1. Which files there are, and what each is called in the sample.
    urls = [url for source in request.sources for url in _files(source, console)]
    named = sorted(zip(names(urls), urls, strict=True))
    # 2. Their footers.
    looked = []
    with console.job("footers", len(named), "files") as meter:
        for one in pool.map(lambda one: _look(one[0], one[1], request, staging, fetcher), named):
            meter.advance()
            looked.append(one)
    # 3. Which row groups.
    chosen = _choose(request.choice, looked)
    files = [one.taken(row_groups) for one, row_groups in zip(looked, chosen, strict=True)]
    if not any(file.row_groups for file in files):
        most = max(len(one.documents) for one in looked)
        raise UserError(f"{request.choice}: no file has so many row groups; the largest has {most:,}")
    # 4. What as many bytes from the beginning would have held.
    weights = [one.n_bytes for one in looked]
    first = _first_files(request.crawl, files, weights, staging, fetcher, pool)
    row_groups = sum(len(one.documents) for one in looked)
    plan = Plan(request=request, row_groups=row_groups, files=files, first_files=first)
    checkpoint.write_json(staging.plan, plan.model_dump(mode="json"))
    return plan


def _files(source: str, console: Console) -> list[str]:
    """Files at a path or URL, in full; a plain HTTP URL is one file, since HTTP cannot list."""
    found = storage.locate(source)
    if source.startswith(("http://", "https://")) and isinstance(found, storage.Remote) and not found.pattern:
        return [source]
    listing = found.listing(parquet.SUFFIXES)
    if listing.skipped:
        path, reason = listing.skipped[0]
        others = f" and {len(listing.skipped) - 1:,} more" if len(listing.skipped) > 1 else ""
        console.warn(f"{source}: passed over {path} ({reason}){others}")
    if not listing.entries:
        raise UserError(f"there is no Parquet file at {source}")
    if isinstance(found, storage.Local):
        return [str(found.root / entry.path) for entry in listing.entries]
    return [found.system.unstrip_protocol(f"{found.root}/{entry.path}") for entry in listing.entries]


def names(urls: Sequence[str]) -> list[str]:
    """What files are called in the sample: their paths without the folders that all have in common.

    Raises
    ------
    UserError
        Two would have one name.
    """
    parts = [_parts(url) for url in urls]
    folders = [one[:-1] for one in parts]
    common = sum(
        itertools.accumulate((len(set(at)) == 1 for at in zip(*folders, strict=False)), operator.and_)
    )
    found: dict[str, str] = {}
    for url, one in zip(urls, parts, strict=True):
        name = "/".join(one[common:])
        name = name if name.lower().endswith(parquet.SUFFIXES) else f"{name}.parquet"
        if name in found:
            raise UserError(f"{found[name]} and {url} would both become {name} in the sample")
        found[name] = url
    return list(found)


def _parts(url: str) -> list[str]:
    protocol, separator, rest = url.partition("://")
    path = rest if separator else url
    if protocol in ("http", "https"):
        path = path.partition("#")[0].partition("?")[0]
    return [part for part in path.split("/") if part not in ("", ".", "..")]


def _look(name: str, url: str, request: Request, staging: Staging, fetcher: Fetcher) -> _Looked:
    identity, footer = _footer(name, url, staging, fetcher)
    metadata = footers.parse(footer, url)
    has = footers.names(metadata)
    absent = [column for column in request.columns or () if column not in has]
    if absent:
        raise UserError(f"{url} has no column {absent[0]!r}; its columns are {', '.join(has)}")
    numbers = range(metadata.num_row_groups)
    documents = [metadata.row_group(number).num_rows for number in numbers]
    n_bytes = [footers.length(footers.chunks(metadata, number, request.columns)) for number in numbers]
    return _Looked(name, url, identity, np.array(documents, np.int64), np.array(n_bytes, np.int64))


def _footer(name: str, url: str, staging: Staging, fetcher: Fetcher) -> tuple[Identity, bytes]:
    """A file's identity and footer, from a run that was stopped before it had all, or from the file.

    Whether the file is still the one that it was is seen when its row groups are fetched.
    """
    path, original = staging.footer(name), staging.original(name)
    if original.is_file() and (known := checkpoint.read_json(original))["url"] == url:
        return Identity(known["size"], known["version"]), path.read_bytes()
    original.unlink(missing_ok=True)
    identity, footer = footers.fetch(fetcher, place(url))
    with checkpoint.written(path) as file:
        file.write(footer)
    checkpoint.write_json(original, {"url": url, "size": identity.size, "version": identity.version})
    return identity, footer


def _choose(wanted: Choice, looked: Sequence[_Looked]) -> list[list[int]]:
    if wanted.every:
        return choice.every([len(one.documents) for one in looked], wanted.every, wanted.offset)
    return choice.spread([getattr(one, wanted.unit) for one in looked], wanted.target or 1)


def _first_files(
    column: str,
    files: Sequence[Taken],
    weights: Sequence[np.ndarray],
    staging: Staging,
    fetcher: Fetcher,
    pool: Executor,
) -> crawls.FirstFiles | None:
    """Look into as many row groups from the beginning as the sample has bytes."""
    budget = sum(file.n_bytes for file in files)
    looks: list[crawls.RowGroup] = []
    for file, numbers in zip(files, _beginning(weights, budget), strict=False):
        metadata = footers.parse(staging.footer(file.name).read_bytes(), file.url)
        if column in footers.names(metadata):
            looks += [crawls.RowGroup(place(file.url), file.identity, metadata, n, column) for n in numbers]
    return crawls.first_files(looks, budget, fetcher, pool)


def _beginning(weights: Sequence[np.ndarray], budget: int) -> Iterator[Collection[int]]:
    """Row groups of the first files until they weigh as much as the budget."""
    for one in weights:
        before = np.cumsum(one) - one
        within = np.flatnonzero(before < budget)
        if budget <= 0:
            return
        yield within.tolist()
        budget -= int(one.sum())
