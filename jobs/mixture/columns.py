"""Which columns of the ledger can make the groups of a mixture."""

from typing import TYPE_CHECKING

import pyarrow as pa

from jobs import ledger
from jobs.errors import UserError
from jobs.mixture.allotment import refuse_unknown

if TYPE_CHECKING:
    from jobs.config import Config


def check_column(config: "Config") -> None:
    """Refuse a column that the ledger will not have, or that makes no groups, and sources that are not there.

    Raises
    ------
    UserError
        One sentence.
    """
    settings = config.mixture
    if settings is None:
        return
    schema = ledger.schema(ledger.extra_columns(config.sources))
    if settings.by not in schema.names:
        raise UserError(
            f"mixture.by is {settings.by!r}, which is no column of the ledger; there are {', '.join(schema.names)}"
        )
    kind = schema.field(settings.by).type
    if pa.types.is_floating(kind) and not settings.edges:
        raise UserError(
            f"mixture.by is {settings.by!r}, a column of numbers; say with mixture.edges where to cut it"
        )
    if settings.edges and not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise UserError(f"mixture.edges is for columns of numbers, and {settings.by!r} is none; remove it")
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        raise UserError(f"mixture.by is {settings.by!r}, a hash; choose a column with values that repeat")
    if settings.by == "source":
        sources = [source.name for source in config.sources]
        refuse_unknown(settings.named_groups, sources, "the sources")
