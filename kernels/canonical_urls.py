"""URLs in a canonical form: which spellings stand for one page.

What RFC 3986, section 6.2, calls equivalent, and what crawlers do beyond it. Unlike `kernels.urls`, whose normal form
serves block-lists, it keeps what may matter to a server: the case of the path, the user, the port.

Dimensions: bytes n, URLs d, patterns p.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import check_offsets, check_slices, read_only
from kernels.url_bytes import is_digit, is_in_scheme, is_letter, lower, nibble, trimmed

SLASH, QUESTION, NUMBER, AND, EQUALS, COLON, AT, PERCENT, STAR, DOT, MINUS, UNDERSCORE, TILDE = (
    b"/?#&=:@%*.-_~"
)
SPACE, BEYOND_ASCII = 32, 128
HEXADECIMAL = np.frombuffer(b"0123456789ABCDEF", np.uint8)
OTHER, HTTP, HTTPS = range(3)


class Rules(NamedTuple):
    """Which differences do not matter; see `jobs.settings.duplicates.UrlDuplicates`."""

    ignore_scheme: bool
    lower_host: bool
    www: bool
    default_port: bool
    percent_encoding: bool
    dot_segments: bool
    fragment: bool
    trailing_slash: bool


def canonical_form(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    rules: Rules,
    patterns: tuple[bytes, ...],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """URLs in their canonical form, white space around them left out.

    Parameters
    ----------
    data : uint8[n]
        Bytes that hold the URLs.
    starts, ends : int64[d]
        Where each URL lies.
    rules
        What does not matter.
    patterns
        Names of query parameters that are left out, in lower case; those that end in `*` begin a name.

    Returns
    -------
    uint8[m], int64[d + 1]
        The forms, one after another, and where each begins and ends; empty where no host is named.

    Raises
    ------
    ValueError
        When a slice reaches out of `data`.
    """
    data = read_only(data, np.uint8)
    starts, ends = read_only(starts, np.int64), read_only(ends, np.int64)
    check_slices(starts, ends, len(data))
    names = read_only(np.frombuffer(b"".join(patterns), np.uint8), np.uint8)
    bounds = read_only(np.cumsum([0, *map(len, patterns)]), np.int64)
    check_offsets(bounds, len(names))
    text = np.empty(int((ends - starts).sum()), np.uint8)
    offsets = np.zeros(len(starts) + 1, np.int64)
    _canonical_form(data, starts, ends, rules, names, bounds, text, offsets)
    return text[: offsets[-1]], offsets


@kernel
def _canonical_form(data, starts, ends, rules, names, bounds, text, offsets):
    for i in range(len(starts)):
        start, end = trimmed(data, starts[i], ends[i])
        place = offsets[i]
        authority, scheme = _scheme(data, start, end)
        if authority == start and not _begins_with_host(data, start, end):
            offsets[i + 1] = place
            continue
        if not rules.ignore_scheme or scheme == OTHER:
            place = _copy_host(data, start, authority, rules.lower_host, text, place)
        if authority > start:
            start = authority
            while authority < end and data[authority] not in (SLASH, QUESTION, NUMBER):
                authority += 1
            place = _authority(data, start, authority, scheme, rules, text, place)
        else:
            authority = start
        place = _rest(data, authority, end, rules, names, bounds, text, place)
        offsets[i + 1] = place


@inlined
def _scheme(data, start, end):
    """Behind `scheme://`, and which it is; the start where there is none."""
    place = start
    if start < end and is_letter(data[start]):
        while place < end and is_in_scheme(data[place]):
            place += 1
        if place + 2 < end and data[place] == COLON and data[place + 1] == SLASH and data[place + 2] == SLASH:
            return place + 3, _which(data, start, place)
    return start, OTHER


@inlined
def _begins_with_host(data, start, end):
    """A name with a dot and no white space, so that what is no URL at all is not taken for one."""
    dotted = False
    while start < end and data[start] not in (SLASH, QUESTION, NUMBER):
        if data[start] <= SPACE:
            return False
        dotted |= data[start] == DOT
        start += 1
    return dotted


@inlined
def _which(data, start, end):
    length = end - start
    if length not in (4, 5):
        return OTHER
    http = (
        data[start] | 32 == 104
        and data[start + 1] | 32 == 116
        and data[start + 2] | 32 == 116
        and data[start + 3] | 32 == 112
    )
    if http and length == 4:
        return HTTP
    return HTTPS if http and data[start + 4] | 32 == 115 else OTHER


@inlined
def _copy_host(data, start, end, to_lower, text, place):
    for i in range(start, end):
        text[place] = lower(data[i]) if to_lower else data[i]
        place += 1
    return place


@inlined
def _authority(data, start, end, scheme, rules, text, place):
    """User as it is, host without what the rules leave out, port."""
    host = start
    for i in range(start, end):
        if data[i] == AT:
            host = i + 1
    for i in range(start, host):
        text[place] = data[i]
        place += 1
    if rules.www and _has_www(data, host, end):
        host += 4
    port = end
    while port > host and is_digit(data[port - 1]):
        port -= 1
    host_end = end
    if rules.default_port and port > host and data[port - 1] == COLON:
        number = _number(data, port, end)
        default = (scheme == HTTP and number == 80) or (scheme == HTTPS and number == 443)
        if default or port == end:
            host_end = port - 1
    return _copy_host(data, host, host_end, rules.lower_host, text, place)


@inlined
def _has_www(data, start, end):
    return (
        end - start > 4
        and data[start] | 32 == 119
        and data[start + 1] | 32 == 119
        and data[start + 2] | 32 == 119
        and data[start + 3] == DOT
    )


@inlined
def _number(data, start, end):
    """Of digits; no more than a port can have matter."""
    number = np.int64(0)
    for i in range(start, end):
        if number < 1_000_000:
            number = 10 * number + np.int64(data[i]) - 48
    return number


@inlined
def _rest(data, start, end, rules, names, bounds, text, place):
    """Path, query without the parameters that are left out, fragment."""
    path_end = start
    while path_end < end and data[path_end] not in (QUESTION, NUMBER):
        path_end += 1
    query_end = path_end
    while query_end < end and data[query_end] != NUMBER:
        query_end += 1
    begun = place
    place = _copy(data, start, path_end, rules.percent_encoding, text, place)
    if rules.dot_segments:
        place = _without_dot_segments(text, begun, place)
    while rules.trailing_slash and place > begun and text[place - 1] == SLASH:
        place -= 1
    place = _query(data, path_end, query_end, rules.percent_encoding, names, bounds, text, place)
    if not rules.fragment:
        place = _copy(data, query_end, end, rules.percent_encoding, text, place)
    return place


@inlined
def _without_dot_segments(text, start, end):
    """Where the path ends when `.` and `..` have been followed in place (RFC 3986, section 5.2.4)."""
    if start == end or text[start] != SLASH:
        return end
    begun = place = start
    while start < end:
        stop = start + 1
        while stop < end and text[stop] != SLASH:
            stop += 1
        dots = _dots(text, start + 1, stop)
        if dots == 2:
            place = _parent(text, begun, place)
        if dots and stop == end:
            text[place] = SLASH
            place += 1
        for i in range(start if dots == 0 else stop, stop):
            text[place] = text[i]
            place += 1
        start = stop
    return place


@inlined
def _dots(text, start, end):
    """1 for `.`, 2 for `..`, 0 for any other segment."""
    for i in range(start, end):
        if text[i] != DOT:
            return 0
    return end - start if end - start <= 2 else 0


@inlined
def _parent(text, start, end):
    """Where a path ends without its last segment."""
    while end > start and text[end - 1] != SLASH:
        end -= 1
    return max(end - 1, start)


@inlined
def _query(data, start, end, decode, names, bounds, text, place):
    """With its `?`, unless parameters are left out and nothing stays."""
    if len(bounds) == 1:
        return _copy(data, start, end, decode, text, place)
    separator = QUESTION
    while start < end:
        start += 1  # behind the sign
        stop = start
        while stop < end and data[stop] != AND:
            stop += 1
        if stop > start and not _is_left_out(data, start, stop, names, bounds):
            text[place] = separator
            place = _copy(data, start, stop, decode, text, place + 1)
            separator = AND
        start = stop
    return place


@inlined
def _is_left_out(data, start, end, names, bounds):
    name_end = start
    while name_end < end and data[name_end] != EQUALS:
        name_end += 1
    for p in range(len(bounds) - 1):
        first, last = bounds[p], bounds[p + 1]
        prefix = names[last - 1] == STAR
        length = last - first - prefix
        if name_end - start < length or (not prefix and name_end - start != length):
            continue
        same = 0
        while same < length and lower(data[start + same]) == names[first + same]:
            same += 1
        if same == length:
            return True
    return False


@inlined
def _copy(data, start, end, decode, text, place):
    while start < end:
        value = data[start]
        if (
            decode
            and value == PERCENT
            and start + 2 < end
            and nibble(data[start + 1]) >= 0
            and nibble(data[start + 2]) >= 0
        ):
            code = np.uint8(16 * nibble(data[start + 1]) + nibble(data[start + 2]))
            start += 3
            if _is_written_plainly(code):
                text[place] = code
                place += 1
            else:
                text[place] = PERCENT
                text[place + 1] = HEXADECIMAL[code >> 4]
                text[place + 2] = HEXADECIMAL[code & 15]
                place += 3
        else:
            text[place] = value
            place += 1
            start += 1
    return place


@inlined
def _is_written_plainly(value):
    """Unreserved (RFC 3986, section 2.3), or a byte of a character beyond ASCII, which browsers show as it is."""
    unreserved = is_letter(value) or is_digit(value) or value in (DOT, MINUS, UNDERSCORE, TILDE)
    return unreserved or value >= BEYOND_ASCII
