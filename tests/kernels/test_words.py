import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given

from kernels.words import SPACELESS_SCRIPTS, scratch_size, unicode_version, words
from tests import naive
from tests.kernels.strategies import checked, texts

SCRIPTS = (
    *[
        "CJK UNIFIED",
        "CJK COMPATIBILITY IDEOGRAPH",
        "IDEOGRAPHIC ITERATION",
        "IDEOGRAPHIC CLOSING",
        "IDEOGRAPHIC NUMBER",
        "HANGZHOU",
        "VERTICAL KANA",
        "VERTICAL IDEOGRAPHIC",
        "MASU",
    ],
    *["HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "HENTAIGANA", "BOPOMOFO"],
    *["THAI ", "LAO ", "MYANMAR", "KHMER", "TAI LE ", "NEW TAI LUE", "TAI THAM", "TAI VIET", "AHOM"],
)


@checked
@given(texts)
def test_words_are_the_naive_ones(text):
    assert words(text) == naive.words(text)


@checked
@given(texts)
def test_normal_form_is_its_own_normal_form(text):
    assert words(" ".join(words(text))) == words(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("... \n -", []),
        ("one", ["one"]),
        ("It's snake_case, 42nd!", ["it", "s", "snake_case", "42nd"]),
        ("İSTANBUL", ["i\u0307stanbul"]),
        ("ΟΔΟΣ", ["οδοσ"]),  # never the final ς
        ("STRASSE straße ẞ", ["strasse", "straße", "ß"]),
        ("cafe\u0301", ["cafe\u0301"]),  # a mark belongs to the word
        ("\u0301x", ["\u0301x"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("か\u3099き", ["か\u3099", "き"]),
        ("か \u3099", ["か", "\u3099"]),  # a space is between them
        ("GPU東京x", ["gpu", "東", "京", "x"]),
        ("ก็ดี", ["ก็", "ดี"]),
        ("한국어 말", ["한국어", "말"]),  # Korean has spaces
        ("👩\u200d👧 ok", ["ok"]),
        ("soft\u00adhyphen", ["soft", "hyphen"]),
    ],
)
def test_examples(text, expected):
    assert words(text) == expected


def test_every_code_point():
    everything = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000]
    assert words("\n".join(everything)) == [c.lower() for c in everything if naive.kind(c) != " "]


def test_normal_form_takes_at_most_twice_the_bytes():
    """Each code point with the space that may follow it: the kernels' buffers rely on it."""
    everything = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000]
    sizes = {
        (len(c.lower().encode()) + 1, scratch_size(len(c.encode())) - scratch_size(0)) for c in everything
    }
    assert all(needed <= given for needed, given in sizes)


def test_ranges_are_the_scripts_without_spaces():
    def is_letter(code_point):
        return unicodedata.category(chr(code_point))[0] in "LN"

    def is_named(code_point):
        return unicodedata.name(chr(code_point), "").startswith(SCRIPTS)

    letters = np.array([i for i in range(sys.maxunicode + 1) if is_letter(i)])
    within = np.zeros(len(letters), bool)
    for first, last in SPACELESS_SCRIPTS.values():
        within |= (first <= letters) & (letters <= last)
    assert letters[within].tolist() == [i for i in letters.tolist() if is_named(i)]


def test_lone_surrogate_is_refused():
    with pytest.raises(UnicodeEncodeError):
        words("a \ud800 b")


def test_unicode_version():
    assert unicode_version() == unicodedata.unidata_version
