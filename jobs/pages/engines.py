"""The extractors by name: HTML in, main text out."""

import importlib
from collections.abc import Callable

Engine = Callable[[str], str | None]
WARM_UP = "<html><head><title>Warm</title></head><body><article><p>{}</p></article></body></html>".format(
    "The first page loads word lists and tables; no page of the crawl should pay for that. " * 8
)


def load(name: str) -> Engine:
    """An engine, loaded and warm: `trafilatura`, `resiliparse`, or a function as `module:function`."""
    if ":" in name:
        module, _, function = name.partition(":")
        engine: Engine = getattr(importlib.import_module(module), function)
        return engine
    engine = {"trafilatura": _trafilatura, "resiliparse": _resiliparse}[name]()
    engine(WARM_UP)
    return engine


def _trafilatura() -> Engine:
    """Favouring precision, no comments, no tables.

    `deduplicate` stays off: it remembers what it saw, so that a page's text would depend on the pages before.
    """
    from trafilatura import extract

    def engine(html: str) -> str | None:
        return extract(
            html, favor_precision=True, include_comments=False, include_tables=False, deduplicate=False
        )

    return engine


def _resiliparse() -> Engine:
    """Main content with paragraphs and list bullets."""
    from resiliparse.extract.html2text import extract_plain_text

    def engine(html: str) -> str:
        return extract_plain_text(html, main_content=True, alt_texts=False)

    return engine


def pdf_text(body: bytes) -> str:
    """Text of a PDF's pages, joined by blank lines."""
    import pypdfium2

    with pypdfium2.PdfDocument(body) as document:
        texts = [page.get_textpage().get_text_bounded() for page in document]
    return "\n\n".join(text.replace("\r\n", "\n").strip() for text in texts).strip()
