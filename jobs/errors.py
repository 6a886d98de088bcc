"""What a user can cause, said in one sentence."""

import contextlib
from collections.abc import Iterator


class UserError(Exception):
    """A mistake in a setting, an argument or an input file; printed without a traceback."""


def said(error: BaseException) -> str:
    """An error's own words on one line, or its kind where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def known_protocol(url: str) -> Iterator[None]:
    """Within the block, what fsspec raises of a URL's protocol that is unknown, or needs what is not installed."""
    try:
        yield
    except ImportError as error:
        raise UserError(f"{url} needs `pip install shardmill[remote]`: {error}") from None
    except ValueError as error:
        raise UserError(f"{url} is not a URL that fsspec can open: {error}") from None
