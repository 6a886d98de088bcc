"""One page: what kind of thing it is, and its text or the reason why it has none. Runs in the child process."""

import re
from enum import StrEnum
from typing import NamedTuple

from jobs.pages import charset, http
from jobs.pages.engines import Engine, pdf_text


class Fate(StrEnum):
    """Why a page has no text."""

    STATUS = "extraction.status"  # not 2xx
    CONTENT_TYPE = "extraction.content_type"  # neither HTML nor text (nor PDF, where wanted)
    CODING = "extraction.coding"  # its content coding is unknown or broken
    TOO_LARGE = "extraction.too_large"  # decoded, it passes the limit
    EMPTY = "extraction.empty"  # a body of no bytes
    NO_TEXT = "extraction.no_text"  # the engine found nothing
    ERROR = "extraction.error"  # the engine raised an exception
    TIMEOUT = "extraction.timeout"  # it took longer than its limit
    MEMORY = "extraction.memory"  # it took more memory than its limit
    CRASH = "extraction.crash"  # the process ended


class Settings(NamedTuple):
    """What the extraction of a page depends on; the meaning is in `jobs.steps.extraction.ExtractionSettings`."""

    engine: str
    seconds: float
    memory: int
    body: int
    pdf: bool


HTML, PLAIN, PDF = "text/html", "text/plain", "application/pdf"
_KINDS = {
    HTML: HTML,
    "application/xhtml+xml": HTML,
    "application/vnd.wap.xhtml+xml": HTML,
    PLAIN: PLAIN,
    PDF: PDF,
    "application/x-pdf": PDF,
}
# No type at all, as the MIME Sniffing Standard says (7, step 1), and as servers say that do not know.
_UNKNOWN = {
    "",
    "*/*",
    "unknown/unknown",
    "application/unknown",
    "application/octet-stream",
    "binary/octet-stream",
}
_MARKUP = re.compile(
    rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*"
    rb"<(?:!doctype\s+html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_MARKUP_BYTES = 2**13  # a licence in a comment may come first
_NEITHER = (
    b"\x89PNG\r\n",
    b"GIF87a",
    b"GIF89a",
    b"\xff\xd8\xff",
    b"PK\x03\x04",
    b"\xd0\xcf\x11\xe0",
    b"RIFF",
)


def read(content: bytes, content_type: str | None, engine: Engine, settings: Settings) -> bytes | Fate:
    """Text of a page as UTF-8, from the bytes of its record.

    Parameters
    ----------
    content
        A whole HTTP response where the type is `application/http; msgtype=response`, else the document itself.
    content_type
        The record's own type.
    engine
        From `engines.load`.
    settings
        Of which `body` and `pdf` are used here.
    """
    kind, label = media_type(content_type)
    if kind != "application/http":
        return _document(content, kind, label, engine, settings)
    if "msgtype=request" in (content_type or "").replace(" ", "").lower():
        return Fate.CONTENT_TYPE
    response = http.parse(content)
    if response.status is not None and not 200 <= response.status < 300:
        return Fate.STATUS
    kind, label = media_type(next(iter(response.headers.get("content-type", ())), None))
    if kind not in _KINDS and kind not in _UNKNOWN:
        return Fate.CONTENT_TYPE  # before its body is decoded
    try:
        body = http.decoded_body(response, settings.body)
    except http.TooLargeError:
        return Fate.TOO_LARGE
    except http.CodingError:
        return Fate.CODING
    return _document(body, kind, label, engine, settings)


def media_type(value: str | None) -> tuple[str, str | None]:
    """Lower-case type without parameters, and the charset parameter."""
    essence, *parameters = (value or "").split(";")
    labels = (text.partition("=")[2] for text in parameters if text.strip().lower().startswith("charset"))
    return essence.strip().lower(), next(labels, None)


def _document(body: bytes, kind: str, label: str | None, engine: Engine, settings: Settings) -> bytes | Fate:
    if kind not in _KINDS and kind not in _UNKNOWN:
        return Fate.CONTENT_TYPE
    if not body:
        return Fate.EMPTY
    if len(body) > settings.body:
        return Fate.TOO_LARGE
    found = sniffed(body, kind)
    if found == HTML:
        text = engine(charset.decode(body, label)) or ""
    elif found == PLAIN:
        text = charset.decode(body, label, markup=False)
    elif found == PDF and settings.pdf:
        text = pdf_text(body)
    else:
        return Fate.CONTENT_TYPE
    encoded = b"" if text.isspace() else charset.encode(text)
    return encoded or Fate.NO_TEXT


def sniffed(body: bytes, kind: str) -> str | None:
    """The kind by the first bytes where the server did not know or was plainly wrong; None for neither kind."""
    if body.startswith(b"%PDF-"):
        return PDF
    if body.startswith(_NEITHER):
        return None
    if kind in _UNKNOWN:
        return HTML if _MARKUP.match(body[:_MARKUP_BYTES].replace(b"\0", b"")) else None
    return _KINDS[kind]
