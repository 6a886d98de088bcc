"""How many crawls the beginning of a data set holds, found without fetching its text.

Statistics in the footers name the crawl of a row group that has one, and the first and last of one that has more.
The others are in the crawl's own column chunk, a few hundred bytes where the crawl is one of few.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel

from jobs.download import footers
from jobs.download.ranges import Fetcher, Identity, Place

COST = 0.01  # of the sample's bytes, at most, to find out what the first files would have given


class FirstFiles(BaseModel):
    """What as many bytes from the beginning of the data set hold.

    Attributes
    ----------
    files
        Files begun.
    crawls
        Different crawls.
    exact
        False where the footers did not tell and looking would have cost too much: there are at least so many.
    """

    files: int
    crawls: int
    exact: bool


@dataclass(frozen=True)
class RowGroup:
    """A row group of which the crawls are wanted."""

    place: Place
    identity: Identity
    metadata: pq.FileMetaData
    number: int
    column: str

    @property
    def spans(self) -> list[footers.Span]:
        """Where its crawl column lies."""
        return footers.chunks(self.metadata, self.number, {self.column})

    def bounds(self) -> set[str]:
        """Crawls that the statistics name."""
        return set(footers.bounds(self.metadata, self.number, self.column) or ())

    def read(self, fetcher: Fetcher) -> set[str]:
        """Fetch the column and see."""
        spans = self.spans
        content = b"".join(fetcher.read(self.place, self.identity, *span) for span in spans)
        file = footers.opened(self.metadata, self.identity.size, spans, content)
        return set(count(file.read_row_group(self.number, [self.column]), self.column))


def first_files(
    row_groups: Sequence[RowGroup], sample_bytes: int, fetcher: Fetcher, pool: Executor
) -> FirstFiles | None:
    """Count the crawls of row groups; None where there is none to look into."""
    if not row_groups:
        return None
    named = [group.bounds() for group in row_groups]
    unknown = [group for group, crawls in zip(row_groups, named, strict=True) if len(crawls) != 1]
    affordable = sum(footers.length(group.spans) for group in unknown) <= COST * sample_bytes
    if affordable:
        named += pool.map(lambda group: group.read(fetcher), unknown)
    files = len({group.place.url for group in row_groups})
    return FirstFiles(files=files, crawls=len(set().union(*named)), exact=affordable)


def count(table: pa.Table, column: str) -> dict[str, int]:
    """Documents of each crawl in a table, sorted; those without one are left out, and so is a list or a struct."""
    if column not in table.column_names or pa.types.is_nested(table.schema.field(column).type):
        return {}
    counts = pc.value_counts(table[column].combine_chunks()).to_pylist()
    return dict(sorted((str(one["values"]), one["counts"]) for one in counts if one["values"] is not None))
