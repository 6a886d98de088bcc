"""What the annotate pass does to each document before it is measured, one module a step.

`documents` applies the steps of a source in their order (FineWeb's): the keyed sample, thresholds, URLs, extraction,
language, quality, classifiers, repeated passages, contamination, personal data. A document that a step drops keeps
its row, with the step's reason as its fate, and goes no further.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs import ledger, sources
from jobs.runtime import fingerprint
from jobs.steps import (
    classifiers,
    contamination,
    extraction,
    language,
    personal_data,
    quality,
    repeated_passages,
    thresholds,
    urls,
)
from kernels import permutation

if TYPE_CHECKING:
    from jobs.config import Source
    from jobs.settings.classifiers import Classifier

# Libraries whose release can change what a step finds.
PAGE_LIBRARIES = ("trafilatura", "resiliparse", "lxml", "justext", "brotli", "zstandard")
URL_LIBRARIES = ("idna",)
LANGUAGE_LIBRARIES = ("babel",)


@dataclass(frozen=True)
class Documents:
    """Documents of one batch, as far as the steps have come.

    Attributes
    ----------
    doc_ids
        uint64[d].
    text
        large_string[d], `""` where there is none.
    fate
        string[d], why a document was dropped; null for those that go on.
    source_bytes
        int64[d], size of each text or page as it was read.
    columns
        What is known beside the text, under the ledger's names: Arrow arrays of d values.
    pages, page_seconds
        How many went through extraction, and the CPU time that took.
    matches
        N-grams of evaluation sets, as `contamination.MATCHES` has them; None where none were looked for.
    """

    doc_ids: np.ndarray
    text: pa.LargeStringArray
    fate: pa.StringArray
    source_bytes: np.ndarray
    columns: dict[str, pa.Array]
    pages: int = 0
    page_seconds: float = 0.0
    matches: pa.Table | None = None

    @property
    def alive(self) -> np.ndarray:
        """bool[d], the documents that no step has dropped."""
        return np.asarray(pc.is_null(self.fate))

    def dropped(self, fate: pa.StringArray) -> "Documents":
        """With the fates of one more step, which count where a document was still alive."""
        return replace(self, fate=pc.coalesce(self.fate, fate.cast(pa.string())))

    @property
    def living_text(self) -> pa.LargeStringArray:
        """The text, `""` for dropped documents."""
        alive = pc.is_null(self.fate)
        return (
            self.text if self.fate.null_count == len(self.fate) else pc.if_else(alive, self.text, _text(""))
        )


def documents(path: str, batch: sources.Batch, source: "Source") -> Documents:
    """Apply the steps of a source to a batch of its documents."""
    begun = before_repeats(path, batch, source)
    if source.repeats:
        begun = _without_repeats(begun, source)
    if source.contamination.used:
        begun = _decontaminated(begun, source)
    if source.personal_data.enabled:
        begun = _cleaned(begun, source)
    return begun


def before_repeats(path: str, batch: sources.Batch, source: "Source") -> Documents:
    """Apply the steps that need no other document."""
    begun = _read(path, batch, source)
    if source.weight < 1:
        begun = begun.dropped(_sampled_out(begun.doc_ids, source.weight))
    for threshold in source.thresholds:
        begun = begun.dropped(thresholds.fates(begun.columns, len(batch), threshold))
    if source.urls.used:
        begun = _unblocked(begun, source)
    if source.has_pages:
        begun = _extracted(begun, batch, source)
    if source.language.enabled:
        begun = _identified(begun, source)
    if source.quality.enabled:
        begun = _judged(begun, source)
    for settings in source.classifiers:
        begun = _classified(begun, settings)
    return begun


def texts(
    source: "Source", path: str, records: Iterable[int], blocks: Sequence[sources.Block] | None = None
) -> list[str | None]:
    """Texts of single documents as they went on to be tokenized, read and extracted again.

    Returns
    -------
    list of str or None
        In the order asked for; None where a document was dropped before it had a text. In one that personal data
        dropped, these are replaced: texts are read again to be shown.
    """
    wanted = list(records)
    found: dict[int, str | None] = {}
    for batch in sources.read_batches(source, path, wanted, blocks):
        here = _read(path, batch, source)
        here = _extracted(here, batch, source) if source.has_pages else here
        if source.quality.enabled:
            here = replace(
                here, text=quality.filtered(here.text, source.quality, _languages(here, source)).text
            )
        if source.repeats:
            here = replace(here, text=_without_repeats(here, source).text)
        if source.contamination.used and source.contamination.action == "cut":
            here = replace(here, text=contamination.checked(here.text, source.contamination).text)
        if source.personal_data.enabled:
            here = replace(here, text=personal_data.shown(here.text, source.personal_data))
        found.update(zip(batch.records.tolist(), here.text.to_pylist(), strict=True))
        found.update((record, None) for record in batch.records[~here.alive].tolist())
    return [found[record] for record in wanted]


def check(source: "Source") -> None:
    """Refuse, before any work, a model or a list that the steps of a source cannot use.

    Raises
    ------
    UserError
        One sentence that names the file or the language.
    """
    urls.check(source.urls)
    language.check(source.language)
    classifiers.check(source.classifiers)
    quality.check(source.quality)
    personal_data.check(source.personal_data)
    contamination.check(source.contamination)


def identity(source: "Source") -> dict[str, Any]:
    """What fingerprints hold of a source's steps: settings, the content of models, versions of libraries."""
    return {
        "content": source.content,
        "weight": source.weight,
        "thresholds": [threshold.model_dump() for threshold in source.thresholds],
        "urls": urls.identity(source.urls),
        "extraction": source.extraction.model_dump() if source.has_pages else None,
        "language": language.identity(source.language),
        "quality": quality.identity(source.quality),
        "classifiers": classifiers.identity(source.classifiers),
        "repeated_passages": source.repeated_passages.model_dump()
        if source.repeated_passages.enabled
        else None,
        "personal_data": personal_data.identity(source.personal_data),
        "contamination": contamination.identity(source.contamination),
        "versions": fingerprint.versions(
            *(URL_LIBRARIES if source.urls.used else ()),
            *(PAGE_LIBRARIES if source.has_pages else ()),
            *(LANGUAGE_LIBRARIES if source.language.enabled else ()),
        ),
    }


def _read(path: str, batch: sources.Batch, source: "Source") -> Documents:
    text = pa.repeat(_text(""), len(batch)) if batch.text is None else batch.text
    raw = text if batch.content is None else batch.content
    return Documents(
        ledger.doc_ids(source.name, path, batch.records),
        pc.fill_null(text, ""),
        _fates_at_input(batch),
        np.asarray(pc.fill_null(pc.binary_length(raw), 0)),
        batch.columns,
    )


def _fates_at_input(batch: sources.Batch) -> pa.StringArray:
    """Why a document cannot be used at all; null for one that can."""
    d = len(batch.records)
    raw = batch.text if batch.content is None else batch.content
    if raw is None:
        return pa.array([ledger.UNREADABLE] * d, pa.string())
    null = np.asarray(pc.is_null(raw))
    empty = ~null & (np.asarray(pc.fill_null(pc.binary_length(raw), 0)) == 0)
    fate = np.full(d, None, dtype=object)
    fate[empty] = ledger.EMPTY_TEXT
    fate[~batch.valid] = ledger.INVALID_UTF8
    fate[null] = ledger.NULL_TEXT
    return pa.array(fate, pa.string())


def _sampled_out(doc_ids: np.ndarray, weight: float) -> pa.StringArray:
    """Keeps the documents whose keyed hash, as a number in [0, 1), is below the weight."""
    hashes = permutation.keyed_hash(doc_ids, permutation.key("weight", 0))
    return _where((hashes >> np.uint64(11)) >= weight * 2**53, ledger.SAMPLED_OUT)


def _unblocked(begun: Documents, source: "Source") -> Documents:
    """Without what the lists of domains and words block; a source without URLs has nothing to block."""
    if "url" not in begun.columns:
        return begun
    return begun.dropped(urls.load(source.urls).fates(begun.columns["url"]))


def _extracted(begun: Documents, batch: sources.Batch, source: "Source") -> Documents:
    """Pages that are still there get their text; that of a column is UTF-8, whatever the page declares."""
    rows = np.flatnonzero(begun.alive)
    if batch.content is not None:
        content, kinds = _of_rows(batch.content, rows), _of_rows(batch.columns["content_type"], rows)
    else:
        content = _of_rows(begun.text, rows).cast(pa.large_binary())
        kinds = pa.repeat(_text("text/html; charset=utf-8"), len(rows))
    found = extraction.extract(content, kinds, source.extraction)
    d = len(batch)
    text = pc.fill_null(_spread(found.text, rows, d), "")
    extracted = replace(begun, text=text, pages=len(rows), page_seconds=found.seconds)
    return extracted.dropped(_spread(found.fate, rows, d))


def _identified(begun: Documents, source: "Source") -> Documents:
    """Language and score of every document that has a text, whether it is kept or not."""
    rows = np.flatnonzero(begun.alive)
    settings = source.language
    codes, scores = language.identify(_of_rows(begun.text, rows), settings)
    fate = language.fates(codes, scores, settings)
    d = len(begun.fate)
    columns = {
        "language": _spread(codes, rows, d),
        "language_score": _spread(pa.array(scores), rows, d),
    }
    return replace(begun, columns={**begun.columns, **columns}).dropped(_spread(fate, rows, d))


def _judged(begun: Documents, source: "Source") -> Documents:
    """Statistics of every document that got so far; those that the rules keep go on with the lines that C4 keeps."""
    rows = np.flatnonzero(begun.alive)
    languages = begun.columns.get("language")
    found = quality.filtered(
        _of_rows(begun.text, rows), source.quality, languages and _of_rows(languages, rows)
    )
    d = len(begun.fate)
    measured = zip(found.statistics.schema.names, found.statistics.columns, strict=True)
    columns = {name: _spread(column, rows, d) for name, column in measured}
    text = pc.coalesce(_spread(found.text, rows, d), begun.text)
    return replace(begun, text=text, columns={**begun.columns, **columns}).dropped(
        _spread(found.fate, rows, d)
    )


def _classified(begun: Documents, settings: "Classifier") -> Documents:
    """Score of every document that got so far, earlier classifiers included; those outside the bounds go no further."""
    rows = np.flatnonzero(begun.alive)
    found, fate = classifiers.classified(_of_rows(begun.text, rows), settings)
    d = len(begun.fate)
    columns = {name: _spread(column, rows, d) for name, column in found.items()}
    return replace(begun, columns={**begun.columns, **columns}).dropped(_spread(fate, rows, d))


def _without_repeats(begun: Documents, source: "Source") -> Documents:
    """Without passages that stay elsewhere; a document that is dropped for what is left keeps its text."""
    assert source.repeats is not None
    rows = np.flatnonzero(begun.alive)
    found = repeated_passages.without(
        _of_rows(begun.text, rows), begun.doc_ids[rows], source.repeated_passages, source.repeats
    )
    d = len(begun.fate)
    columns = {name: _spread(pa.array(values), rows, d) for name, values in found.columns.items()}
    text = pc.coalesce(_spread(found.text, rows, d), begun.text)
    return replace(begun, text=text, columns={**begun.columns, **columns}).dropped(
        _spread(found.fate, rows, d)
    )


def _cleaned(begun: Documents, source: "Source") -> Documents:
    """Without the personal data of every document that got so far; counts by kind."""
    rows = np.flatnonzero(begun.alive)
    found = personal_data.cleaned(_of_rows(begun.text, rows), source.personal_data)
    d = len(begun.fate)
    columns = {name: _spread(column, rows, d) for name, column in found.counts.items()}
    text = pc.coalesce(_spread(found.text, rows, d), begun.text)
    return replace(begun, text=text, columns={**begun.columns, **columns}).dropped(
        _spread(found.fate, rows, d)
    )


def _decontaminated(begun: Documents, source: "Source") -> Documents:
    """N-grams of evaluation sets in every document that got so far."""
    rows = np.flatnonzero(begun.alive)
    found = contamination.checked(_of_rows(begun.text, rows), source.contamination)
    d = len(begun.fate)
    matches = found.matches.set_column(0, "row", pa.array(rows[found.matches["row"].to_numpy()]))
    text = pc.coalesce(_spread(found.text, rows, d), begun.text)
    return replace(begun, text=text, matches=matches).dropped(_spread(found.fate, rows, d))


def _languages(here: Documents, source: "Source") -> pa.Array | None:
    """The language of each document, found again where the rules depend on it."""
    if source.language.enabled and quality.by_language(source.quality):
        here = _identified(here, source)
    return here.columns.get("language")


def _spread(values: pa.Array, rows: np.ndarray, d: int) -> pa.Array:
    """Values of some rows as those of all d, null elsewhere."""
    if len(rows) == d:
        return values
    places = np.zeros(d, np.int64)
    places[rows] = np.arange(len(rows))
    absent = np.ones(d, bool)
    absent[rows] = False
    return values.take(pa.array(places, mask=absent))


def _of_rows(values: pa.Array, rows: np.ndarray) -> pa.Array:
    """Values of some rows; without a copy where they are all."""
    return values if len(rows) == len(values) else values.take(pa.array(rows))


def _where(mask: np.ndarray, fate: str) -> pa.StringArray:
    return pc.if_else(pa.array(mask), pa.scalar(fate), pa.scalar(None, pa.string()))


def _text(value: str) -> pa.LargeStringScalar:
    return pa.scalar(value, pa.large_string())
