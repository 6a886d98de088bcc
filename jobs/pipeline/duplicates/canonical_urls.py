"""Hashes of URLs in their canonical form; hosts beyond ASCII in Punycode."""

import contextlib
from typing import NamedTuple

import idna
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.text import hash_halves, text_buffers, text_hashes
from kernels import canonical_urls


class Canonical(NamedTuple):
    """Which differences between URLs do not matter: the rules of the section `url_duplicates`."""

    ignore_scheme: bool = True
    lower_host: bool = True
    www: bool = False
    default_port: bool = True
    percent_encoding: bool = True
    dot_segments: bool = True
    fragment: bool = True
    trailing_slash: bool = True
    tracking_parameters: tuple[str, ...] = ()


def canonical_forms(urls: pa.ChunkedArray | pa.Array, rules: Canonical) -> tuple[np.ndarray, np.ndarray]:
    """The canonical forms uint8[n], one after another, and offsets int64[d + 1]; empty where there is no URL."""
    known = pc.fill_null(urls.cast(pa.large_string()), "")
    array = known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known
    if rules.lower_host and not pc.all(pc.string_is_ascii(array)).as_py():
        texts = (url if url.isascii() else _with_ascii_host(url) for url in array.to_pylist())
        array = pa.array(texts, pa.large_string())
    data, offsets = text_buffers(array)
    patterns = tuple(name.lower().encode() for name in rules.tracking_parameters)
    flags = canonical_urls.Rules(*rules[:-1])
    return canonical_urls.canonical_form(data, offsets[:-1], offsets[1:], flags, patterns)


def hashes(urls: pa.ChunkedArray | pa.Array, rules: Canonical) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Upper and lower half of the XXH3-128 of each canonical form, uint64[d], and bool[d] where there is a URL."""
    text, offsets = canonical_forms(urls, rules)
    high, low = hash_halves(text_hashes(text, offsets))
    return high, low, np.diff(offsets) > 0


def _with_ascii_host(url: str) -> str:
    """With its host in Punycode (UTS 46), where it has one; else as it is."""
    scheme, slashes, rest = url.partition("://")
    end = min((place for place in map(rest.find, "/?#") if place >= 0), default=len(rest))
    authority = rest[:end]
    if not slashes or authority.isascii():
        return url
    user, at, host = authority.rpartition("@")
    host, colon, port = host.partition(":")
    with contextlib.suppress(idna.IDNAError, UnicodeError):
        host = idna.encode(host, uts46=True).decode()
    return f"{scheme}{slashes}{user}{at}{host}{colon}{port}{rest[end:]}"
