"""The URL filter: lists in UT1's layout, and URLs however they are written."""

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import UserError
from jobs.steps import urls
from jobs.text import text_buffers
from kernels import urls as kernels

checked = settings(deadline=None, max_examples=200)


@dataclass(frozen=True)
class Lists:
    domains: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    """A category of UT1, a file of one's own, and words."""
    category = tmp_path / "adult"
    category.mkdir()
    (category / "domains").write_text(
        "bad.example\nBLOCKED.org\nmünchen.de\nxn--bcher-kva.example\nxxx\n\n"
        "# a comment\n10.1.2.3\n2001:db8:0::1\nsub.partly.net   # only this\n  .dotted.com.  \r\n"
    )
    (category / "urls").write_text(
        "http://www.pages.net/one/\npages.net/a%20b\npages.net/view.php?id=5\npages.net/café\nhost.org/~user/\n"
    )
    (category / "expressions").write_text("(never|read)[a-z]+")
    with gzip.open(tmp_path / "mine.gz", "wt") as file:
        file.write("mine.example\n")
    (tmp_path / "words").write_text("sex\nCASINO\nПорно\n# not this\n18plus\n")
    return Lists((str(category), str(tmp_path / "mine.gz")), (str(tmp_path / "words"),))


def fates(settings: Lists, *found: str | None) -> list[str | None]:
    result: list[str | None] = urls.load(settings).fates(pa.array(found, pa.large_string())).to_pylist()
    return result


def assert_all_are(fate: str | None, settings: Lists, *found: str | None) -> None:
    assert dict(zip(found, fates(settings, *found), strict=True)) == dict.fromkeys(found, fate)


# ---------------------------------------------------------------- what is blocked


def test_domains_and_all_below_them(lists: Lists) -> None:
    assert_all_are(
        "urls.domain",
        lists,
        "http://bad.example/",
        "https://a.b.bad.example/x?y#z",
        "bad.example",
        "//bad.example/x",
        "HTTP://WWW.Bad.Example:8080/",
        "http://user:p@ss@bad.example:80/",
        "http://bad.example./",
        "  http://bad.example\n",
        "http:\\\\bad.example\\x",
        "http:///bad.example/",
        "bad.example?x",
        "bad.example:443",
        "http://b%61d.example/",
        "blocked.org",
        "https://mine.example",
        "http://sub.partly.net/",
        "x.dotted.com",
        "any.xxx",
    )
    assert_all_are(
        None,
        lists,
        "http://notbad.example/",
        "http://bad.example.com/",
        "http://example/",
        "http://partly.net/",
        "http://org/",
        "http://good.org/?u=http://bad.example/",
        "http://good.org/bad.example",
        "http://bad.example@good.org/",
        "http://xxx.org/",
        "http://bad-example/",
        "http://xbad.example",
    )


def test_internationalized_names_in_every_spelling(lists: Lists) -> None:
    assert_all_are(
        "urls.domain",
        lists,
        "http://münchen.de/",
        "http://www.MÜNCHEN.de/",
        "http://mu\u0308nchen.de/",
        "http://xn--mnchen-3ya.de/",
        "http://XN--MNCHEN-3YA.DE./",
        "http://m%C3%BCnchen.de/",
        "http://münchen。de/",
        "http://ｍünchen.ｄｅ/",
        "http://bücher.example:80",
        "http://www.xn--bcher-kva.example/",
    )
    assert_all_are(
        None, lists, "http://munchen.de/", "http://xn--mnchen.de/", "http://xn--.de", "http://i❤.ws/"
    )


def test_addresses_have_no_domains_above_them(lists: Lists, tmp_path: Path) -> None:
    assert_all_are(
        "urls.domain", lists, "http://10.1.2.3:80/x", "http://[2001:db8::1]/", "[2001:0DB8:0:0::1]:443"
    )
    assert_all_are(
        None, lists, "http://9.10.1.2.3/", "http://[2001:db8::2]/", "http://[2001:db8::1", "http://10.1.2.4"
    )
    (tmp_path / "numbers").write_text("3.4\n")
    assert_all_are(None, Lists((str(tmp_path / "numbers"),)), "1.2.3.4")


def test_urls_and_what_goes_on_behind_them(lists: Lists) -> None:
    assert_all_are(
        "urls.url",
        lists,
        "http://pages.net/one",
        "https://www2.pages.net/ONE/two.html",
        "pages.net//one?x",
        "pages.net/one#x",
        "pages.net/a b/c",
        "pages.net/a%20b",
        "pages.net/%61%20b",
        "pages.net/view.php?id=5",
        "pages.net/view.php?id=5&page=2",
        "pages.net/caf%C3%A9",
        "pages.net/CAFÉ",
        "pages.net/cafe\u0301",
        "host.org/%7Euser/x",
    )
    assert_all_are(
        None,
        lists,
        "pages.net/",
        "pages.net",
        "pages.net/onetwo",
        "pages.net/one.html",
        "other.pages.net/one",
        "pages.net/x/one",
        "pages.net/view.php?id=51",
        "pages.net/view.php",
        "pages.net/caf%E9",
        "net/one",
    )


def test_whole_words(lists: Lists) -> None:
    assert_all_are(
        "urls.word",
        lists,
        "http://sex.org/",
        "http://good.org/a/some-SEX-page.html",
        "http://good.org/?q=casino",
        "http://good.org/%D0%9F%D0%BE%D1%80%D0%BD%D0%BE/",
        "http://порно.рф",
        f"http://{'порно.рф'.encode('idna').decode()}/",
        "good.org/18plus",
        "good.org/s%65x",
    )
    assert_all_are(
        None, lists, "http://essex.org/", "good.org/sex18", "sex://good.org", "good.org/plus", "good.org/not"
    )


def test_the_first_reason_counts(lists: Lists) -> None:
    found = fates(lists, "http://bad.example/sex", "pages.net/one/sex", "pages.net/two/sex", None, "")
    assert found == ["urls.domain", "urls.url", "urls.word", None, None]


def test_without_lists_nothing_is_blocked() -> None:
    assert fates(Lists(), "http://bad.example/sex", None) == [None, None]
    assert fates(Lists()) == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_slices(lists: Lists, kind: pa.DataType) -> None:
    column = pa.array([None, "bad.example", "good.org", "sex.org", "bücher.example"], kind)
    assert urls.load(lists).fates(column[2:]).to_pylist() == [None, "urls.word", "urls.domain"]


# ---------------------------------------------------------------- against the slow and obvious

PARTS = [
    *[
        "http",
        "https",
        ":",
        "//",
        "/",
        "\\",
        "?",
        "#",
        "&",
        ";",
        "@",
        ".",
        "..",
        "[",
        "]",
        "::1",
        ":80",
        " ",
        "\n",
    ],
    *[
        "\0",
        "www",
        "WEB2",
        "ftp.",
        "com",
        "org",
        "Example",
        "a",
        "B",
        "a.com",
        "xn--",
        "xn--mnchen-3ya",
        "1.2.3.4",
    ],
    *[
        "-",
        "_",
        "%",
        "%41",
        "%2f",
        "%2F",
        "%C3%A9",
        "%e9",
        "%zz",
        "%4",
        "é",
        "É",
        "e\u0301",
        "ß",
        "İ",
        "。",
        "中",
    ],
    *["❤", "sex"],
]
texts = st.lists(st.sampled_from(PARTS) | st.text(max_size=2), max_size=12).map("".join)
simple = st.lists(st.sampled_from(["a", "b", "www", "1"]), min_size=1, max_size=4).map(".".join)
rests = st.lists(st.sampled_from(["/", "/a", "/b", "?a", "&b", "#", "-", "%41"]), max_size=4).map("".join)
small = st.tuples(simple, rests).map("".join)


def normal(found: list[str]) -> list[tuple[bytes, bytes]]:
    return parts(urls.normal_forms([url.encode() for url in found]))


def parts(form: kernels.Normal) -> list[tuple[bytes, bytes]]:
    text, offsets = form.text.tobytes(), form.offsets.tolist()
    return [
        (text[start:host_end], text[host_end:end])
        for start, host_end, end in zip(offsets, form.host_ends.tolist(), offsets[1:], strict=False)
    ]


@given(st.lists(texts, max_size=5))
@checked
def test_ascii_has_the_same_normal_form_in_the_kernel(found: list[str]) -> None:
    data, offsets = text_buffers(pa.array(found, pa.large_string()))
    form, beyond = kernels.normal_form(data, offsets[:-1], offsets[1:])
    for url, here, there, left_out in zip(found, parts(form), normal(found), beyond, strict=True):
        assert here == (there if not left_out else (b"", b""))
        if left_out:
            assert not url.isascii() or re.search(r"%[89a-f]|xn--|[%\[].*|:.*:", url, re.I | re.S)


def segments(rest: bytes) -> list[bytes]:
    return [segment for segment in re.findall(rb"[/?#&;][^/?#&;]*|^[^/?#&;]+", rest) if segment != b"/"]


def without_www(host: bytes) -> bytes:
    return re.sub(rb"^(?:www|web|ftp)[0-9]*\.(?=.)", b"", host)


def reference(url: str, listed: list[str], words: list[str]) -> int:
    """What a person would do with a list and a URL."""
    (host, rest), *forms = normal([url, *listed])
    labels = host.split(b".")
    address = b":" in host or re.fullmatch(rb"[0-9]*", labels[-1])
    above = [host] if address else [b".".join(labels[i:]) for i in range(len(labels))]
    if host and any(not segments(path) and entry in above for entry, path in forms if entry):
        return kernels.DOMAIN
    for entry, path in forms:
        beginning = segments(path)
        same = without_www(entry) == without_www(host) and segments(rest)[: len(beginning)] == beginning
        if beginning and same:
            return kernels.URL
    if {word.encode() for word in words} & set(re.findall(rb"[a-z0-9\x80-\xff]+", host + rest, re.I)):
        return kernels.WORD
    return kernels.NONE


def keys_of(listed: list[str]) -> tuple[kernels.KeySet, kernels.KeySet]:
    form = urls.normal_forms([entry.encode() for entry in listed])
    keys, has_path = kernels.keys(form)
    named = form.host_ends > form.offsets[:-1]
    return kernels.key_set(keys[~has_path & named]), kernels.key_set(keys[has_path])


@given(
    st.lists(small | texts, max_size=6),
    st.lists(small | texts, max_size=8),
    st.lists(st.sampled_from("ab1"), max_size=2),
)
@checked
def test_matches_are_those_of_the_reference(found: list[str], listed: list[str], words: list[str]) -> None:
    hashes = [xxhash.xxh3_64_intdigest(word.encode()) for word in words]
    word_set = kernels.key_set(np.array(hashes, np.uint64))
    matches = kernels.matches(urls.normal_forms([url.encode() for url in found]), *keys_of(listed), word_set)
    assert matches.tolist() == [reference(url, listed, words) for url in found]


@given(
    simple,
    rests,
    st.sampled_from(["http://", "HTTPS://", "//", "ftp:\\\\"]),
    st.sampled_from(["", "user@", "u:p@"]),
    st.sampled_from(["", ":", ":8080"]),
    st.sampled_from(["", "."]),
)
@checked
def test_how_a_url_is_written_changes_nothing(
    host: str, rest: str, scheme: str, user: str, port: str, dot: str
) -> None:
    path = (rest if rest[:1] in ("", "/", "?", "#") else "/" + rest).replace("%41", "a")
    encoded = "".join(f"%{ord(character):02X}" if character.isalpha() else character for character in path)
    written = [f"{scheme}{user}{host.upper()}{dot}{port}{end}" for end in (path, path.upper(), encoded)]
    assert normal(written) == normal([host + path]) * 3


@numba.njit
def contains(members: kernels.KeySet, key: np.uint64) -> bool:
    return bool(kernels._contains(members, key))


@given(st.lists(st.integers(0, 2**64 - 1), max_size=200), st.lists(st.integers(0, 2**64 - 1), max_size=20))
@checked
def test_key_sets(members: list[int], others: list[int]) -> None:
    keys = kernels.key_set(np.array(members, np.uint64))
    assert keys.keys.tolist() == sorted(set(members))
    found = [contains(keys, np.uint64(key)) for key in [*members, *others]]
    assert found == [key in members for key in [*members, *others]]


@given(
    st.lists(st.sampled_from(["a.com", "#", " ", "\n", "\r\n", " # b", "x#y", "\t"]), max_size=20).map(
        "".join
    )
)
@checked
def test_entries_are_lines_without_comments(text: str) -> None:
    starts, ends, lines = kernels.entries(np.frombuffer(text.encode(), np.uint8))
    expected = [(re.split(r"(?:^|(?<=\s))#", line)[0].strip(), n) for n, line in enumerate(text.split("\n"))]
    found = [(text[start:end], n) for start, end, n in zip(starts, ends, lines, strict=True)]
    assert found == [(entry, n) for entry, n in expected if entry]


@given(st.lists(texts, max_size=4))
@checked
def test_junk_is_no_error(found: list[str]) -> None:
    assert len(urls.load(Lists()).fates(pa.array(found, pa.large_string()))) == len(found)


def test_a_url_without_end_takes_no_time_without_end(lists: Lists) -> None:
    long = ["a." * 500_000, "x.org" + "/" * 10**6, "x.org/" + "a/" * 500_000, "http://" + "é." * 50_000]
    assert_all_are(
        None, lists, *long, "@" * 10**6, "xn--" + "a" * 10**6, ":" * 10**6, "[" * 10**6, "a/" + "%" * 10**6
    )


# ---------------------------------------------------------------- lists


def refused(path: Path, content: bytes | None = None, key: str = "domains") -> str:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        urls.check(Lists(**{key: (str(path),)}))
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_lists_that_are_none_are_refused_by_name_and_line(tmp_path: Path) -> None:
    path, many = tmp_path / "list", b"fine.org\n" * 150
    (tmp_path / "folder").mkdir()
    assert "there is no such file" in refused(tmp_path / "absent")
    assert "neither a file `domains` nor `urls`" in refused(tmp_path / "folder")
    assert "is no file" in refused(tmp_path / "folder", key="words")
    assert "holds no domain" in refused(path, b"")
    assert "holds no domain" in refused(path, b"# only a comment\n\n")
    assert "see line 3" in refused(path, b"a.org\nb.org\ncaf\xe9.org\n")
    assert "see line 151" in refused(path, many + b"a\0b\n")
    assert "see line 1;" in refused(path, bytes(range(256)))
    assert "truncated" in refused(path, gzip.compress(many)[:-9])
    assert "the first in line 1, '0.0.0.0 a.org'" in refused(path, b"0.0.0.0 a.org\n0.0.0.0 b.org\n")
    assert "2 of its 2 entries are neither" in refused(path, b"||ads.org^\n||more.org^\n")
    assert "the first in line 151, '*.é.org'" in refused(path, many + "*.é.org\n*.b.org\n".encode())
    assert "holds no word" in refused(path, b"\n", "words")
    assert "has in line 2 'two words'" in refused(path, b"one\ntwo words\n", "words")
    assert "has in line 1 'a.com'" in refused(path, b"a.com", "words")


def test_the_odd_entry_of_a_long_list_is_passed_over_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "domains"
    path.write_text("\ufeffbad.org\n" + "".join(f"d{i}.org\n" for i in range(200)) + "http://\n*.odd\n")
    found = urls.load(Lists((str(path),)))
    assert found.passed_over == {str(path): 2}
    assert len(found.domains.keys) == 201
    assert_all_are("urls.domain", Lists((str(path),)), "bad.org", "d199.org")
    assert_all_are(None, Lists((str(path),)), "http://", "", "x.odd", "odd")


def test_lists_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "BLOCK_BYTES", 64)
    path = tmp_path / "domains"
    path.write_text("".join(f"d{i}.example\n" for i in range(999)) + "é.example")
    hosts = [f"d{i}.example" for i in range(999)]
    assert_all_are("urls.domain", Lists((str(path),)), *hosts, "http://é.example/")
    path.write_text("".join(f"d{i}.example\n" for i in range(999)) + "a b.example\n" * 99)
    assert "the first in line 1,000, 'a b.example'" in refused(path)


def test_the_fingerprint_covers_content_and_neither_names_nor_order(tmp_path: Path, lists: Lists) -> None:
    assert urls.identity(Lists()) is None
    before = urls.identity(lists)
    assert before == urls.identity(Lists(lists.domains[::-1], lists.words))
    path, other = tmp_path / "mine.gz", tmp_path / "other.gz"
    other.write_bytes(path.read_bytes())
    assert before == urls.identity(Lists((lists.domains[0], str(other)), lists.words))
    path.write_bytes(b"another.example\n")
    assert before != urls.identity(lists)
    assert fates(lists, "another.example", "mine.example") == ["urls.domain", None]
