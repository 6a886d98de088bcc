"""In which formats the tokens are written, and how rows of one length are made of documents."""

from typing import Literal

from pydantic import Field

from jobs.errors import UserError
from jobs.formats import megatron, nanogpt
from jobs.settings.section import Section

Format = Literal["llmc", "nanogpt", "megatron", "mds", "webdataset", "datatrove", "parquet"]
WITH_ROWS = ("mds", "webdataset", "parquet")
Policy = Literal["stream", "padding", "best_fit"]


class Rows(Section):
    """Samples of one length in the place of documents; for mds, webdataset and parquet."""

    length: int = Field(
        2049, ge=2, le=2**31 - 1, description="tokens; T + 1 where targets are the tokens one on"
    )
    policy: Policy = Field(
        "stream",
        description="documents end to end and cut anywhere, or each cut and filled up, or packed without cutting one "
        "that fits (Ding et al. 2024)",
    )


def check_formats(formats: tuple[Format, ...], rows: Rows | None, key: str = "shards.formats") -> None:
    """Refuse formats that are named twice, and rows that none of them has.

    Raises
    ------
    ValueError
        One sentence.
    """
    twice = sorted({name for name in formats if formats.count(name) > 1})
    if twice:
        raise ValueError(f"{key} names {twice[0]!r} twice")
    if rows and not set(formats) & set(WITH_ROWS):
        raise ValueError(f"rows has no effect on {', '.join(formats)}; it is for {', '.join(WITH_ROWS)}")


def token_dtype(name: Format, vocab_size: int, shards: str) -> str:
    """The type of a format's tokens: as the shards', unless the format has only others.

    Parameters
    ----------
    vocab_size : int
        One more than the largest id.
    shards : {"auto", "uint16", "uint32"}
        The shards' type, or what was wanted of it.

    Raises
    ------
    UserError
        The vocabulary fits none that the format has, or not the one that is wanted.
    """
    if name == "nanogpt":
        return nanogpt.token_dtype(vocab_size)
    if name != "megatron":
        return shards
    dtype = megatron.token_dtype(vocab_size)
    if shards == "uint16" != dtype:
        raise UserError(
            f"shards.dtype is uint16, which megatron takes for vocabularies below 65,500, but the tokenizer has "
            f"{vocab_size:,} ids; use auto or uint32"
        )
    return dtype
