"""URLs in a normal form, and whether lists of domains, URLs and words have them.

The normal form is host and rest, in lower case: no scheme, user, port or dots around the host; percent-encoding undone
once. Here it is made of plain ASCII only; for the others see `jobs.steps.urls`.

A domain's key is a hash of its labels from the right, so that the keys of the domains above a host come by the way; a
URL's key goes on from its host's with each of its segments. Both cost time in the URL's length alone. Sets of keys are
sorted, with a directory by their first bits: a lookup reads two places. A different URL has the key of one in a list of
4.6 million with a probability of 2.5e-13 for each of its domains, segments and words.

Dimensions: bytes n, URLs d, keys k.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.accelerate import inlined, kernel
from kernels.arrays import check_offsets, check_slices, read_only
from kernels.permutation import mix64
from kernels.url_bytes import is_digit, is_in_scheme, is_letter, lower, nibble, trimmed
from kernels.xxh3 import hash_slice, hash_slices

NONE, DOMAIN, URL, WORD = range(4)
KEYS_PER_BUCKET = 4  # on average, at most

SLASH, BACKSLASH, QUESTION, NUMBER, AND, SEMICOLON = b"/\\?#&;"
DOT, COLON, AT, PERCENT, BRACKET, PLUS, MINUS, UNDERSCORE, SPACE, NEWLINE = b".:@%[+-_ \n"


class Normal(NamedTuple):
    """URLs in their normal form.

    Attributes
    ----------
    text
        uint8[n], host and rest of each, one after another.
    offsets
        int64[d + 1], where each begins and ends in the text.
    host_ends
        int64[d], where its host ends in the text.
    """

    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    host_ends: NDArray[np.int64]


class KeySet(NamedTuple):
    """A set of keys.

    Attributes
    ----------
    keys
        uint64[k], sorted and different.
    buckets
        int32[2**bits + 1], where the keys with the same first bits begin.
    shift
        64 - bits.
    """

    keys: NDArray[np.uint64]
    buckets: NDArray[np.int32]
    shift: np.uint64


def normal_form(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[Normal, NDArray[np.bool_]]:
    """URLs of plain ASCII in their normal form.

    Parameters
    ----------
    data : uint8[n]
        Bytes that hold the URLs.
    starts, ends : int64[d]
        Where each URL lies.

    Returns
    -------
    Normal, bool[d]
        The normal forms, and which URLs have none here, but an empty one: those with a character beyond ASCII, as it is
        or percent-encoded, or with an internationalized, percent-encoded or IPv6 host.

    Raises
    ------
    ValueError
        When a slice reaches out of `data`.
    """
    data = read_only(data, np.uint8)
    starts, ends = read_only(starts, np.int64), read_only(ends, np.int64)
    check_slices(starts, ends, len(data))
    text = np.empty(int((ends - starts).sum()), np.uint8)
    offsets, host_ends = np.zeros(len(starts) + 1, np.int64), np.empty(len(starts), np.int64)
    beyond = np.zeros(len(starts), np.bool_)
    _normal_form(data, starts, ends, text, offsets, host_ends, beyond)
    return Normal(text[: offsets[-1]], offsets, host_ends), beyond


def entries(
    data: NDArray[np.uint8],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Where a text's lines hold something, white space around it and comments left out.

    A comment is what follows a `#` at the line's beginning or behind white space.

    Returns
    -------
    int64[k], int64[k], int64[k]
        Starts and ends, and the number of the line, counted from 0.
    """
    data = read_only(data, np.uint8)
    places = np.empty((3, int(np.count_nonzero(data == NEWLINE)) + 1), np.int64)
    found = _entries(data, places)
    starts, ends, lines = (np.ascontiguousarray(row[:found]) for row in places)
    return starts, ends, lines


def keys(urls: Normal) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Keys uint64[d] of entries, and which bool[d] are URLs, having more than a host."""
    urls = _checked(urls)
    found = np.empty(len(urls.host_ends), np.uint64)
    has_path = np.empty(len(urls.host_ends), np.bool_)
    _keys(*urls, found, has_path)
    return found, has_path


def usable(urls: Normal) -> NDArray[np.bool_]:
    """bool[d], the URLs whose host is one: of letters, digits, `.`, `-` and `_`, or an IPv6 address."""
    urls = _checked(urls)
    found = np.empty(len(urls.host_ends), np.bool_)
    _usable(*urls, found)
    return found


def word_keys(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Keys uint64[k] of words, each a slice of `data` in the normal form."""
    return hash_slices(data, starts, ends)


def key_set(found: NDArray[np.uint64]) -> KeySet:
    """A set of keys, from uint64[k] in any order."""
    ordered = np.sort(found)  # np.unique is a hundred times slower on millions of hashes
    unique = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]]
    bits = max(1, (len(unique) // KEYS_PER_BUCKET).bit_length())
    shift = np.uint64(64 - bits)
    buckets = np.searchsorted(unique, np.arange(2**bits, dtype=np.uint64) << shift)
    return KeySet(unique, np.append(buckets, len(unique)).astype(np.int32), shift)


def matches(urls: Normal, domains: KeySet, pages: KeySet, words: KeySet) -> NDArray[np.int8]:
    """Which list has each URL first.

    Parameters
    ----------
    urls
        d URLs in their normal form.
    domains, pages, words
        Keys of domains, of URLs, of words.

    Returns
    -------
    int8[d]
        `DOMAIN` where the host or a domain above it is listed; `URL` where a listed URL is the same or ends where
        one of its segments does; `WORD` where a listed word is one of its words; else `NONE`.
    """
    urls = _checked(urls)
    found = np.empty(len(urls.host_ends), np.int8)
    _matches(*urls, domains, pages, words, found)
    return found


def _checked(urls: Normal) -> Normal:
    text, offsets = read_only(urls.text, np.uint8), read_only(urls.offsets, np.int64)
    host_ends = read_only(urls.host_ends, np.int64)
    check_offsets(offsets, len(text))
    check_slices(offsets[:-1], host_ends, len(text))
    check_slices(host_ends, offsets[1:], len(text))
    return Normal(text, offsets, host_ends)


# ---------------------------------------------------------------- the normal form


@kernel
def _normal_form(data, starts, ends, text, offsets, host_ends, beyond):
    for i in range(len(starts)):
        begun = offsets[i]
        start, end = trimmed(data, starts[i], ends[i])
        start = _after_scheme(data, start, end)
        authority_end = _authority_end(data, start, end)
        host_start, host_end, plain = _host(data, start, authority_end)
        if plain:
            place, plain = _copy_host(data, host_start, host_end, text, begun)
            host_ends[i] = place
        if plain:
            place, plain = _copy_rest(data, authority_end, end, text, place)
            offsets[i + 1] = place
        if not plain:
            beyond[i] = True
            host_ends[i] = begun
            offsets[i + 1] = begun


@inlined
def _after_scheme(data, start, end):
    """Behind `scheme://` or `//` and all slashes there."""
    place = start
    if start < end and is_letter(data[start]):
        while place < end and is_in_scheme(data[place]):
            place += 1
        two = place + 2 < end and _is_slash(data[place + 1]) and _is_slash(data[place + 2])
        place = place + 1 if place < end and data[place] == COLON and two else start
    while place < end and _is_slash(data[place]):
        place += 1
    return place


@inlined
def _authority_end(data, start, end):
    while start < end and not (_is_slash(data[start]) or data[start] in (QUESTION, NUMBER)):
        start += 1
    return start


@inlined
def _host(data, start, end):
    """Its place without user and port, and whether it is a plain one."""
    for place in range(start, end):
        if data[place] == AT:
            start = place + 1
    colons = 0
    for place in range(start, end):
        colons += data[place] == COLON
        if data[place] >= 0x80 or data[place] in (PERCENT, BRACKET) or colons > 1:
            return start, end, False
    port = end
    while port > start and is_digit(data[port - 1]):
        port -= 1
    if port > start and data[port - 1] == COLON:
        end = port - 1
    while start < end and data[start] == DOT:
        start += 1
    while start < end and data[end - 1] == DOT:
        end -= 1
    return start, end, True


@inlined
def _copy_host(data, start, end, text, place):
    """Where the copy ends, and whether no label is Punycode, which begins with `xn--`."""
    begun = place
    for i in range(start, end):
        text[place] = lower(data[i])
        place += 1
        label = place - 4
        if (
            label >= begun
            and text[place - 1] == MINUS
            and text[place - 2] == MINUS
            and text[place - 3] == 110
            and text[label] == 120
            and (label == begun or text[label - 1] == DOT)
        ):
            return place, False
    return place, True


@inlined
def _copy_rest(data, start, end, text, place):
    """Where the copy ends, and whether it is ASCII."""
    while start < end:
        value = data[start]
        if (
            value == PERCENT
            and start + 2 < end
            and nibble(data[start + 1]) >= 0
            and nibble(data[start + 2]) >= 0
        ):
            value = np.uint8(16 * nibble(data[start + 1]) + nibble(data[start + 2]))
            start += 2
        if value >= 0x80:
            return place, False
        text[place] = lower(value)
        place += 1
        start += 1
    return place, True


# ---------------------------------------------------------------- lists


@kernel
def _entries(data, places):
    found = line = start = 0
    while start < len(data):
        line_end = start
        while line_end < len(data) and data[line_end] != NEWLINE:
            line_end += 1
        end = start
        while end < line_end and not (data[end] == NUMBER and (end == start or data[end - 1] <= SPACE)):
            end += 1
        first, last = trimmed(data, start, end)
        if first < last:
            places[0, found], places[1, found], places[2, found] = first, last, line
            found += 1
        start = line_end + 1
        line += 1
    return found


@kernel
def _usable(text, offsets, host_ends, found):
    for i in range(len(host_ends)):
        place = offsets[i]
        while place < host_ends[i] and _is_in_host(text[place]):
            place += 1
        found[i] = place == host_ends[i] and place > offsets[i]


# ---------------------------------------------------------------- keys


@kernel
def _keys(text, offsets, host_ends, found, has_path):
    for i in range(len(host_ends)):
        host_end = host_ends[i]
        found[i] = _host_key(text, offsets[i], host_end)
        has_path[i] = False
        place = host_end
        while place < offsets[i + 1]:
            end = _segment_end(text, place, offsets[i + 1])
            if not _is_empty(text, place, end):
                if not has_path[i]:
                    has_path[i] = True
                    found[i] = _host_key(text, _after_www(text, offsets[i], host_end), host_end)
                found[i] = _joined(found[i], text, place, end)
            place = end


@inlined
def _host_key(text, start, end):
    key = np.uint64(0)
    while end > start:
        label = _label_start(text, start, end)
        key = _joined(key, text, label, end)
        end = label - 1
    return key


@inlined
def _joined(key, text, start, end):
    return mix64(key ^ hash_slice(text, start, end))


@inlined
def _label_start(text, start, end):
    """Where the last label before `end` begins."""
    while end > start and text[end - 1] != DOT:
        end -= 1
    return end


@inlined
def _segment_end(text, place, end):
    place += 1
    while place < end and not _begins_segment(text[place]):
        place += 1
    return place


@inlined
def _is_empty(text, start, end):
    """`/a//b/` is `/a/b`."""
    return end - start == 1 and text[start] == SLASH


@inlined
def _after_www(text, start, end):
    """Behind `www.`, `web.` or `ftp.`, with a number or without, where a domain follows (squidGuard's rule)."""
    if end - start < 5:
        return start
    a, b, c = text[start], text[start + 1], text[start + 2]
    www = a == 119 and b == 119 and c == 119
    web = a == 119 and b == 101 and c == 98
    ftp = a == 102 and b == 116 and c == 112
    place = start + 3
    while place < end and is_digit(text[place]):
        place += 1
    return place + 1 if (www or web or ftp) and place + 1 < end and text[place] == DOT else start


# ---------------------------------------------------------------- lookups


@kernel
def _matches(text, offsets, host_ends, domains, pages, words, found):
    for i in range(len(host_ends)):
        start, host_end, end = offsets[i], host_ends[i], offsets[i + 1]
        if len(domains.keys) and _has_domain(text, start, host_end, domains):
            found[i] = DOMAIN
        elif len(pages.keys) and _has_page(text, start, host_end, end, pages):
            found[i] = URL
        elif len(words.keys) and _has_word(text, start, end, words):
            found[i] = WORD
        else:
            found[i] = NONE


@inlined
def _has_domain(text, start, end, domains):
    """Whether the host or a domain above it is listed; above an IP address there is none."""
    address = _is_address(text, start, end)
    key = np.uint64(0)
    while end > start:
        label = _label_start(text, start, end)
        key = _joined(key, text, label, end)
        if (label == start or not address) and _contains(domains, key):
            return True
        end = label - 1
    return False


@inlined
def _is_address(text, start, end):
    for place in range(start, end):
        if text[place] == COLON:
            return True
    while end > start and is_digit(text[end - 1]):
        end -= 1
    return end == start or text[end - 1] == DOT


@inlined
def _has_page(text, start, host_end, end, pages):
    key = _host_key(text, _after_www(text, start, host_end), host_end)
    place = host_end
    while place < end:
        segment_end = _segment_end(text, place, end)
        if not _is_empty(text, place, segment_end):
            key = _joined(key, text, place, segment_end)
            if _contains(pages, key):
                return True
        place = segment_end
    return False


@inlined
def _has_word(text, start, end, words):
    while start < end:
        if not _is_word(text[start]):
            start += 1
            continue
        word = start
        while start < end and _is_word(text[start]):
            start += 1
        if _contains(words, hash_slice(text, word, start)):
            return True
    return False


@inlined
def _contains(members, key):
    bucket = np.int64(key >> members.shift)
    place, end = members.buckets[bucket], members.buckets[bucket + 1]
    while place < end and members.keys[place] < key:
        place += 1
    return place < end and members.keys[place] == key


# ---------------------------------------------------------------- bytes


@inlined
def _is_word(value):
    """Letters and digits; whatever is beyond ASCII counts as a letter."""
    return value >= 0x80 or is_letter(value) or is_digit(value)


@inlined
def _is_in_host(value):
    return _is_word(value) or value in (DOT, MINUS, UNDERSCORE, COLON)


@inlined
def _is_slash(value):
    return value in (SLASH, BACKSLASH)


@inlined
def _begins_segment(value):
    return value in (SLASH, QUESTION, NUMBER, AND, SEMICOLON)
