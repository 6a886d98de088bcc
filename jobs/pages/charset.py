"""Bytes of a page to text: the character set by byte order mark, declaration and detection.

Labels mean what they mean in browsers (WHATWG Encoding Standard: `latin1` is windows-1252, `gb2312` is gb18030).
Browsers believe declarations; here the bytes have a say too, since declarations are often wrong.
"""

import contextlib
import re
from collections.abc import Iterator

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

PRESCAN_BYTES = 4096  # the standard's 1,024 miss declarations behind long scripts
DETECTION_BYTES = 2**17
MAX_MALFORMED = 0.1  # of the bytes beyond ASCII; in a wrong character set most are malformed

_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_UTF_16_MARKUP = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_META = re.compile(rb"<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']\s*([\w.:-]+)", re.IGNORECASE)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_ASCII = bytes(range(128))
# Python's codec of the set that the standard's decoder reads, where the label's own codec reads less.
_SUPERSETS = {
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso8859-11": "cp874",
    "iso2022_jp": "iso2022_jp_ext",
}
_WITHOUT_HIGH_BYTES = ("utf-16-le", "utf-16-be", "iso2022_jp_ext")  # their text can pass for ASCII


def decode(body: bytes, declared: str | None = None, markup: bool = True) -> str:
    """Text of a page, without NUL characters.

    1. A byte order mark decides.
    2. UTF-8 is what decodes as UTF-8, whatever was declared.
    3. The label of the HTTP header, then the one in the markup, when the bytes fit it but for a few.
    4. What the detector (uchardet) says; malformed bytes become U+FFFD.

    Parameters
    ----------
    body
        The page, its transfer and content codings undone.
    declared
        Label of the HTTP header.
    markup
        Whether to look for `<meta charset>`, `<meta http-equiv>` and the XML declaration.
    """
    start, codec = _start(body)
    if codec:
        return body[start:].decode(codec, "replace").replace("\0", "")
    labels = list(_codecs(body, declared, markup))
    if not any(codec in _WITHOUT_HIGH_BYTES for codec in labels):
        with contextlib.suppress(UnicodeDecodeError):
            return body.replace(b"\0", b"").decode()
    fitting = (_fitting(body, codec) for codec in dict.fromkeys([*labels, "utf-8"]))
    text = next((text for text in fitting if text is not None), None)
    return (_detected(body) if text is None else text).replace("\0", "")


def encode(text: str) -> bytes:
    """UTF-8 of the text, without NUL characters, and with U+FFFD for lone surrogates."""
    text = text.replace("\0", "")
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _start(body: bytes) -> tuple[int, str | None]:
    """Where the text begins and its codec, when the first bytes say so: a mark, or the `<` of UTF-16."""
    for mark, codec in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return len(mark), codec
    return 0, _UTF_16_MARKUP.get(body[:2])


def _codecs(body: bytes, declared: str | None, markup: bool) -> Iterator[str]:
    """Codecs of the declarations, the header's first."""
    if declared and (codec := _codec(declared)) and (b"\0" in body or not codec.startswith("utf-16")):
        yield codec  # any bytes decode as UTF-16, but text of the web holds zeros in it
    if markup:
        head = _COMMENT.sub(b"", body[:PRESCAN_BYTES])
        match = _XML.match(head) or _META.search(head)
        if match and (codec := _codec(match[1].decode("latin-1"))):
            # Whoever can read the declaration reads no UTF-16 (HTML Standard, 13.2.3.2).
            yield "utf-8" if codec.startswith("utf-16") else codec


def _codec(label: str | None) -> str | None:
    """Python's codec for a label as browsers understand it; None for one that they do not know."""
    codec = map_encoding_to_html5((label or "").strip(" \t\"'").lower(), fallback_utf8=False)
    return _SUPERSETS.get(codec, codec) if codec else None


def _fitting(body: bytes, codec: str) -> str | None:
    """The text, when hardly any of the bytes beyond ASCII are malformed in it; else None."""
    text = body.decode(codec, "replace")
    malformed = text.count("\ufffd")
    beyond_ascii = len(body) if codec.startswith("utf-16") else len(body.translate(None, _ASCII))
    return text if malformed <= MAX_MALFORMED * beyond_ascii else None


def _detected(body: bytes) -> str:
    """Decoded as the detector says, or as windows-1252; UTF-8 was tried before."""
    name = detect_encoding(body, DETECTION_BYTES, html5_compatible=False) or ""
    codec = _codec(name) or name  # the standard's names do not include all that it finds, such as cp949
    if codec != "utf-8":
        with contextlib.suppress(LookupError):
            return body.decode(codec, "replace")
    return body.decode("cp1252", "replace")
