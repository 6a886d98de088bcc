"""Block-lists of domains, URLs and words, in the layout of UT1 (Université Toulouse Capitole) and squidGuard.

A document is dropped when its URL's host, or a domain above it, is listed (`urls.domain`); when its URL begins with a
listed one (`urls.url`); or when it holds a listed word (`urls.word`).

`domains` names files, or folders with UT1's files `domains` and `urls` in them; its `expressions` are passed over. An
entry is a line; a line's rest behind ` #` is a comment. An entry that has more than a host stands for the URLs that go
on behind it with one of `/?#&;`, or not at all: `example.com/a` blocks `http://www.example.com/a/b?c`, but not
`example.com/ab`, nor another subdomain. A host of its own blocks all its subdomains.

`words` names files with a word a line. A URL's words are its runs of letters and digits, host, path and query; whatever
is beyond ASCII counts as a letter. These are the whole words that FineWeb's filter blocks by its `banned_words`, in
lower and upper case; its lists of soft words (two of them block) and of parts of words are not covered.

URLs and entries are compared in lower case, without scheme, user, port, the dots around a host and repeated slashes,
with percent-encoding undone once, hosts in Unicode (UTS 46) and IPv6 addresses in their short form.

A list takes 10 bytes of memory an entry, in each process: UT1's 4.6 million adult domains 46 MB.
"""

import contextlib
import functools
import ipaddress
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

import idna
import numpy as np
import pyarrow as pa

from jobs.errors import UserError
from jobs.runtime.named_files import File, digest, located
from jobs.sources import compression
from jobs.text import text_buffers
from kernels import urls as kernels

FATES = pa.array([None, "urls.domain", "urls.url", "urls.word"], pa.string())  # by the kernel's numbers
UT1_FILES = ("domains", "urls", "domains.gz", "urls.gz")
UNUSABLE = 0.01  # of a list's entries, at most; more, and it is no such list
BLOCK_BYTES = 2**24  # of a list, read at a time
LONGEST_HOST = 253  # of characters (RFC 1035); a longer one is no internationalized name
LIST = "a file with an entry a line"
FILTERS = 4  # that a process keeps
SPACES = "".join(map(chr, range(33)))
SCHEME = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*:(?=[/\\]{2})")
AUTHORITY = re.compile(r"[/\\?#]")
IN_BRACKETS = re.compile(r"\[(.*)\](?::[0-9]*)?")
PORT = re.compile(r":[0-9]*\Z")


class UrlSettings(Protocol):
    """The section `urls` of a source."""

    @property
    def domains(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def words(self) -> Sequence[str]: ...  # noqa: D102


@dataclass(frozen=True)
class UrlFilter:
    """What is blocked.

    Attributes
    ----------
    domains, pages, words
        Keys of listed domains, URLs and words.
    passed_over
        Entries that are no host or URL, by file; the few that lists have.
    """

    domains: kernels.KeySet
    pages: kernels.KeySet
    words: kernels.KeySet
    passed_over: dict[str, int]

    def fates(self, urls: pa.LargeStringArray) -> pa.StringArray:
        """Why documents are dropped.

        Parameters
        ----------
        urls
            large_string[d]; any text at all, null where a document has no URL.

        Returns
        -------
        StringArray
            string[d]: `urls.domain`, `urls.url`, `urls.word`, the first that holds; null for a document that goes on.
        """
        data, offsets = text_buffers(urls.cast(pa.large_string()).fill_null(""))
        normal, beyond = kernels.normal_form(data, offsets[:-1], offsets[1:])
        found = self._matches(normal)
        rows = np.flatnonzero(beyond)
        found[rows] = self._matches(normal_forms([bytes(data[offsets[i] : offsets[i + 1]]) for i in rows]))
        return FATES.take(pa.array(found))

    def _matches(self, normal: kernels.Normal) -> np.ndarray:
        return kernels.matches(normal, self.domains, self.pages, self.words)


def check(settings: UrlSettings) -> None:
    """Refuse lists that cannot be used.

    Raises
    ------
    UserError
        One sentence that names the file, and the line where one is at fault.
    """
    load(settings)


def identity(settings: UrlSettings) -> dict[str, Any] | None:
    """What fingerprints hold: the content of the lists, whatever their names and order."""
    if not settings.domains and not settings.words:
        return None
    return {
        "domains": sorted(digest(file) for file in _domain_files(settings)),
        "words": sorted(digest(file) for file in _word_files(settings)),
    }


def load(settings: UrlSettings) -> UrlFilter:
    """The filter of a source, read once a process.

    Raises
    ------
    UserError
        One sentence that names the file, and the line where one is at fault.
    """
    return _load(tuple(_domain_files(settings)), tuple(_word_files(settings)))


# ---------------------------------------------------------------- the normal form beyond ASCII


def normal_forms(urls: Sequence[bytes]) -> kernels.Normal:
    """URLs of any characters, UTF-8, in their normal form."""
    pairs = [_host_and_rest(url.decode()) for url in urls]
    lengths = np.array([(len(host), len(rest)) for host, rest in pairs], np.int64).reshape(-1, 2)
    ends = np.cumsum(lengths.sum(1))
    text = np.frombuffer(b"".join(part for pair in pairs for part in pair), np.uint8)
    return kernels.Normal(text, np.concatenate([[0], ends]).astype(np.int64), ends - lengths[:, 1])


def _host_and_rest(url: str) -> tuple[bytes, bytes]:
    """What the kernel does to ASCII, for all of Unicode."""
    url = SCHEME.sub("", url.strip(SPACES)).lstrip("/\\")
    authority = AUTHORITY.split(url, maxsplit=1)[0]
    host = unquote_to_bytes(authority.rpartition("@")[2]).decode(errors="replace")
    return _host(host).encode(), _folded(unquote_to_bytes(url[len(authority) :]))


def _host(host: str) -> str:
    """In Unicode, without its port; whatever is no name of a host stays as it is."""
    if host.count(":") > 1:
        literal = IN_BRACKETS.fullmatch(host)
        with contextlib.suppress(ValueError):
            return str(ipaddress.IPv6Address(literal[1] if literal else host))
    labels = _mapped(PORT.sub("", host)).strip(".").split(".")
    return _mapped(".".join(map(_from_punycode, labels)))


def _mapped(host: str) -> str:
    """UTS 46: lower case, normal form C, one kind of dot and of width."""
    if not host.isascii() and len(host) <= LONGEST_HOST:
        with contextlib.suppress(idna.IDNAError):
            return idna.uts46_remap(host, std3_rules=False)
    return host.lower()


def _from_punycode(label: str) -> str:
    if not label.startswith("xn--") or len(label) > LONGEST_HOST:
        return label
    try:
        decoded = label[4:].encode("ascii").decode("punycode")
        decoded.encode()
    except (ValueError, OverflowError):
        return label
    return decoded


def _folded(rest: bytes) -> bytes:
    try:
        return unicodedata.normalize("NFC", rest.decode().lower()).encode()
    except UnicodeDecodeError:
        return rest.lower()


# ---------------------------------------------------------------- lists


def _domain_files(settings: UrlSettings) -> Iterator[File]:
    for name in settings.domains:
        if not Path(name).is_dir():
            yield located(name, "urls.domains", LIST)
            continue
        files = [Path(name, file) for file in UT1_FILES if Path(name, file).is_file()]
        if not files:
            raise UserError(
                f"urls.domains names {name!r}, a folder with neither a file `domains` nor `urls`; name a category of "
                "UT1 or a file"
            )
        yield from (located(str(file), "urls.domains", LIST) for file in files)


def _word_files(settings: UrlSettings) -> Iterator[File]:
    return (located(name, "urls.words", LIST) for name in settings.words)


@functools.lru_cache(FILTERS)
def _load(domain_files: tuple[File, ...], word_files: tuple[File, ...]) -> UrlFilter:
    lists = [_read_entries(file) for file in domain_files]
    words = [_read_words(file) for file in word_files]
    return UrlFilter(
        domains=_key_set([one.domains for one in lists]),
        pages=_key_set([one.pages for one in lists]),
        words=_key_set(words),
        passed_over={
            file.path: one.passed_over
            for file, one in zip(domain_files, lists, strict=True)
            if one.passed_over
        },
    )


def _key_set(keys: list[np.ndarray]) -> kernels.KeySet:
    return kernels.key_set(np.concatenate([np.empty(0, np.uint64), *keys]))


class _Entries(NamedTuple):
    domains: np.ndarray
    pages: np.ndarray
    passed_over: int


def _read_entries(file: File) -> _Entries:
    """Keys of a list's entries; those that are neither host nor URL are counted, and refused where they are many."""
    domains, pages, entries, unusable, first = [], [], 0, 0, ""
    for number, data in _blocks(file):
        starts, ends, lines = kernels.entries(np.frombuffer(data, np.uint8))
        keys, has_path, usable = _entry_keys(data, starts, ends)
        domains.append(keys[usable & ~has_path])
        pages.append(keys[usable & has_path])
        entries += len(usable)
        unusable += int((~usable).sum())
        if not first and not usable.all():
            row = np.argmin(usable)
            first = f"line {number + lines[row]:,}, {_shown(data[starts[row] : ends[row]])}"
    if not entries:
        raise UserError(f"{file.path} holds no domain and no URL")
    if unusable > UNUSABLE * entries:
        raise UserError(
            f"{file.path} is no list of domains or URLs, one a line: {unusable:,} of its {entries:,} entries are "
            f"neither, the first in {first}"
        )
    return _Entries(np.concatenate(domains), np.concatenate(pages), unusable)


def _entry_keys(
    data: bytes, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys of entries, which are URLs, and which are either domain or URL."""
    normal, beyond = kernels.normal_form(np.frombuffer(data, np.uint8), starts, ends)
    (keys, has_path), usable = kernels.keys(normal), kernels.usable(normal)
    rows = np.flatnonzero(beyond)
    others = normal_forms([data[starts[i] : ends[i]] for i in rows])
    keys[rows], has_path[rows] = kernels.keys(others)
    usable[rows] = kernels.usable(others)
    return keys, has_path, usable


def _read_words(file: File) -> np.ndarray:
    words: list[bytes] = []
    for number, data in _blocks(file):
        starts, ends, lines = kernels.entries(np.frombuffer(data, np.uint8))
        for start, end, line in zip(starts, ends, lines, strict=True):
            word = _folded(data[start:end])
            if not re.fullmatch(rb"[a-z0-9\x80-\xff]+", word):
                raise UserError(
                    f"{file.path} has in line {number + line:,} {_shown(data[start:end])}, which is no word "
                    "of letters and digits and could be found in no URL"
                )
            words.append(word)
    if not words:
        raise UserError(f"{file.path} holds no word")
    ends = np.cumsum([len(word) for word in words])
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return kernels.word_keys(np.frombuffer(b"".join(words), np.uint8), starts, ends)


def _blocks(file: File) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a list, plain or compressed, with the number of the first; some 16 MiB at a time."""
    rest, number = bytearray(), 1
    for chunk in _chunks(file):
        rest += chunk
        end = rest.rfind(b"\n") + 1
        if len(rest) < BLOCK_BYTES or not end:
            continue
        yield number, _checked(file, number, bytes(rest[:end]))
        number += rest.count(b"\n", 0, end)
        del rest[:end]
    if rest:
        yield number, _checked(file, number, bytes(rest))


def _chunks(file: File) -> Iterator[bytes]:
    try:
        with Path(file.path).open("rb") as raw:
            for _, chunk in compression.chunks(raw, 0, BLOCK_BYTES):
                yield chunk
    except compression.DamagedError as error:
        raise UserError(f"{file.path} cannot be read: {error}") from None
    except OSError as error:
        raise UserError(f"{file.path} cannot be read: {error.strerror or error}") from None


def _checked(file: File, number: int, data: bytes) -> bytes:
    """Lines of text, without the mark that some editors put before the first."""
    place = data.find(b"\0")
    try:
        data[: None if place < 0 else place].decode()
    except UnicodeDecodeError as error:
        place = error.start
    if place >= 0:
        line = number + data.count(b"\n", 0, place)
        raise UserError(
            f"{file.path} is no text in UTF-8: see line {line:,}; a list has an entry a line, unpacked"
        )
    return data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data


def _shown(line: bytes) -> str:
    entry = line.decode()
    return repr(entry if len(entry) <= 60 else entry[:57] + "...")
