"""Canonical URLs against a slow reference, of parts that matter in every order."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.canonical_urls import Rules, canonical_form
from tests import naive

PARTS = [
    *(
        "http",
        "HTTPS",
        "ftp",
        "://",
        ":",
        "//",
        "www.",
        "WWW.",
        "Example.org",
        "münchen.de",
        "user@",
        "[::1]",
    ),
    *(":80", ":443", ":00080", ":", ":8080", "/", "//", "/a", "/A/", "?", "&", "=", "#", "#top", " ", "\t"),
    *("%41", "%7e", "%2F", "%2f", "%zz", "%4", "%", "utm_source=x", "UTM_x", "ref=1", "refer=2", "id=3", "."),
    *("/.", "/..", "/./", "/../", "/%2e.", "..", "%C3%A9"),
]
URLS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
RULES = st.builds(Rules, *[st.booleans()] * len(Rules._fields))
PATTERNS = st.lists(st.sampled_from([b"utm_*", b"ref", b"id", b"*"]), unique=True, max_size=3)


def forms(urls: list[bytes], rules: Rules, patterns: list[bytes]) -> list[bytes]:
    data = np.frombuffer(b"".join(urls), np.uint8)
    bounds = np.cumsum([0, *map(len, urls)])
    text, offsets = canonical_form(data, bounds[:-1], bounds[1:], rules, tuple(patterns))
    return [text[a:b].tobytes() for a, b in pairwise(offsets)]


@settings(deadline=None)  # the first call compiles
@given(st.lists(URLS, max_size=8), RULES, PATTERNS)
def test_it_is_what_the_naive_form_is(urls: list[str], rules: Rules, patterns: list[bytes]) -> None:
    encoded = [url.encode() for url in urls]
    assert forms(encoded, rules, patterns) == [naive.canonical_url(url, rules, patterns) for url in encoded]


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.binary(max_size=40), max_size=8), RULES, PATTERNS)
def test_any_bytes(urls: list[bytes], rules: Rules, patterns: list[bytes]) -> None:
    assert forms(urls, rules, patterns) == [naive.canonical_url(url, rules, patterns) for url in urls]


def test_a_slice_out_of_the_data_is_refused() -> None:
    with pytest.raises(ValueError, match="slice"):
        canonical_form(np.zeros(3, np.uint8), np.array([0]), np.array([4]), Rules(*[True] * 8), ())
