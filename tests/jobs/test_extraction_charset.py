"""Character sets: declared, wrongly declared, not declared; what comes out is always text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.pages.charset import decode, encode

RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. Широкая электрификация южных губерний."
JAPANESE = "日本語の文章です。東京は大きな町で、たくさんの人が住んでいます。カタカナもあります。"
TEXTS = {
    "windows-1252": "Die Straße nach Köln führt über Brücken; „schöne“ Häuser stehen dort. C’est déjà l’été à Orléans.",
    "iso-8859-2": "Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy, říká se v Čechách.",
    "windows-1251": RUSSIAN,
    "koi8-r": RUSSIAN,
    "shift_jis": JAPANESE,
    "euc-jp": JAPANESE,
    "gb18030": "这是一个中文网页，里面有很多汉字。北京是中国的首都，也是一个很大的城市。",
    "big5": "這是一個中文網頁，裡面有很多漢字。臺北是一個很大的城市，有很多人住在那裡。",
    "euc-kr": "이것은 한국어 웹 페이지입니다. 서울은 대한민국의 수도이며 매우 큰 도시입니다.",
    "iso-2022-jp": JAPANESE,
    "utf-8": "Ünïcödé 文字 текст 🙂",
}


def page(text: str, head: str = "") -> str:
    return f"<html><head>{head}<title>x</title></head><body><p>{text}</p></body></html>"


@pytest.mark.parametrize("label", TEXTS)
def test_declared_in_the_header_or_the_markup(label: str) -> None:
    for head in (
        f'<meta charset="{label}">',
        f"<META CHARSET={label.upper()}>",
        f'<meta http-equiv="Content-Type" content="text/html; charset={label}">',
        f"<!-- <meta charset=utf-16> --><script>{'x' * 2000}</script><meta charset='{label}'>",
    ):
        html = page(TEXTS[label], head)
        assert decode(html.encode(label)) == html
    html = page(TEXTS[label], '<meta charset="koi8-u">')  # the header comes first
    assert decode(html.encode(label), f' "{label}" ') == html
    xml = f'<?xml version="1.0" encoding="{label}"?>' + page(TEXTS[label])
    assert decode(xml.encode(label)) == xml


@pytest.mark.parametrize("label", sorted(set(TEXTS) - {"iso-2022-jp", "iso-8859-2"}))
@pytest.mark.parametrize("declared", [None, "utf-8", "no-such-set"])
def test_not_declared_or_wrongly(label: str, declared: str | None) -> None:
    html = page(TEXTS[label] * 5, f"<meta charset={declared}>" if declared else "")
    assert decode(html.encode(label), declared) == html


@pytest.mark.parametrize("declared", ["iso-8859-1", "windows-1251", "shift_jis", "gbk", "utf-16", "us-ascii"])
def test_utf_8_that_is_declared_otherwise(declared: str) -> None:
    html = page(TEXTS["utf-8"] * 3, f"<meta charset={declared}>")
    assert decode(html.encode(), declared) == html
    assert decode(html.encode()) == html


def test_labels_mean_what_browsers_take_them_for() -> None:
    assert decode(b"<p>\x93quoted\x94 \x80", "iso-8859-1") == "<p>“quoted” €"
    assert decode(b"<p>\x93quoted\x94", "ascii") == "<p>“quoted”"
    assert decode("<p>镕镕镕镕".encode("gb18030"), "gb2312") == "<p>镕镕镕镕"
    assert decode("<p>①②③①②③".encode("cp932"), "shift_jis") == "<p>①②③①②③"
    assert decode("<p>똠방각하".encode("cp949"), "euc-kr") == "<p>똠방각하"


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16-le", "utf-16-be"])
def test_a_byte_order_mark_decides(codec: str) -> None:
    html = page(TEXTS["utf-8"], "<meta charset=windows-1251>")
    mark = "" if codec == "utf-8-sig" else "\ufeff"
    assert decode((mark + html).encode(codec), "koi8-r") == html


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark(codec: str) -> None:
    html = page(TEXTS["utf-8"])
    assert decode(html.encode(codec)) == html
    assert decode(("\n" + html).encode(codec), codec) == "\n" + html


def test_a_few_wrong_bytes_do_not_change_the_set() -> None:
    html = page(TEXTS["utf-8"] * 20).encode()
    damaged = decode(html[:300] + b"\xff" + html[300:] + b"\xe6\x96")
    assert damaged.count("\ufffd") <= 4
    assert damaged.count("🙂") >= 19
    japanese = page(JAPANESE * 20).encode("shift_jis") + b"\x81"
    assert "カタカナ" in decode(japanese, "shift_jis")


def test_nul_characters_are_removed() -> None:
    assert decode(b"<p>a\0b\0\0c") == "<p>abc"
    assert decode(b"<p>\0\xe9\xe8 caf\xe9", "latin1") == "<p>éè café"
    assert decode(b"\0\0") == ""
    assert encode("a\0b") == b"ab"


def test_lone_surrogates_never_come_out() -> None:
    assert encode("a\ud800b\udfffc") == "a\ufffdb\ufffdc".encode()
    assert encode("\ud83d\ude42") == "🙂".encode()  # a pair is the character that it stands for
    assert decode(b"<p>\xed\xa0\x80 text " + "é".encode() * 40).count("\ufffd") == 3
    assert decode("<p>x".encode("utf-16-le") + b"\x00\xd8" + "y".encode("utf-16-le")).endswith("y")


@given(st.binary(max_size=400), st.sampled_from([None, *TEXTS, "utf-16", "x-user-defined", "", "hz-gb-2312"]))
def test_any_bytes_become_text(body: bytes, declared: str | None) -> None:
    for markup in (True, False):
        assert "\0" not in encode(decode(body, declared, markup)).decode()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200))
def test_utf_8_comes_out_as_it_is(text: str) -> None:
    html = "<p>" + text
    assert decode(html.encode()) == html
