"""The page of a finished run again, from `report.json`, the ledger and the texts of the documents that it shows."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jobs import ledger, report, trace
from jobs.errors import UserError
from jobs.report import examples
from jobs.report.examples import Texts
from jobs.report.parts import Pair
from jobs.runtime import checkpoint, folders
from jobs.runtime.checkpoint import MANIFEST


def render(out: Path, elsewhere: Path | None = None, texts: bool = True) -> Path:
    """Write the page and the files beside it, the same bytes as the main job's.

    Parameters
    ----------
    out
        The run's output folder.
    elsewhere
        A folder to write to; by default `OUT/report`, whose manifest then describes the files as they are now.
    texts
        Whether documents are shown with their texts, for which the sources are read.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    UserError
        The run is not finished, its report is of another version, or a source can no longer be read.
    """
    with tempfile.TemporaryDirectory() as scratch:
        _write(out, Path(scratch), texts)  # before anything of an earlier page is removed
        files = sorted(Path(scratch).iterdir())
        if elsewhere is not None:
            _copy(files, elsewhere)
            return elsewhere
        with checkpoint.locked(out):
            manifest = checkpoint.read_json(out / report.NAME / MANIFEST)
            job = checkpoint.Checkpoint(out / report.NAME, manifest["fingerprint"])
            folders.remove([job.folder / MANIFEST])
            folders.remove(path for path in folders.files(job.folder) if path.name != report.FILE)
            _copy(files, job.folder)
            job.commit(manifest["figures"], manifest["cost"])
    return job.folder


def _write(out: Path, folder: Path, texts: bool) -> None:
    config, content = trace.configuration(out), report.read(out)
    read = readable(trace.source_texts(out)) if texts else _no_texts
    rows = ledger.read(out, examples.COLUMNS).map_partitions(
        examples.sampled, of_each=config.report.examples, meta=examples.SAMPLED
    )
    found = examples.sampled(rows.compute(scheduler="threads"), config.report.examples)
    documents = examples.with_excerpts(found, read)
    content = content if texts else _without_excerpts(content)
    try:
        alike = content["near_duplicates"]["pairs"] if texts else []
        report.write_page(folder, config, content, documents, [_with_texts(pair, read) for pair in alike])
    except KeyError as error:
        raise UserError(
            f"{report.FILE} was written by another version and lacks {error}, which the page shows; run the main job "
            "again"
        ) from None


def _copy(files: Iterable[Path], folder: Path) -> None:
    for path in files:
        with checkpoint.written(folder / path.name) as file:
            file.write(path.read_bytes())


def readable(texts: Texts) -> Texts:
    """The same function, which says in a sentence that a source is gone and what can be done without it."""

    def read(source: str, path: str, records: list[int]) -> list[str | None]:
        try:
            return texts(source, path, records)
        except (UserError, OSError) as error:
            raise UserError(
                f"source {source!r} can no longer be read ({error}); --no-texts does without it"
            ) from None

    return read


def _no_texts(source: str, path: str, records: Iterable[int]) -> list[str | None]:
    return [None for _ in records]


def _without_excerpts(figures: Any) -> Any:
    """Figures in which no document's text is quoted."""
    if isinstance(figures, dict):
        return {key: None if key == "excerpt" else _without_excerpts(value) for key, value in figures.items()}
    return [_without_excerpts(one) for one in figures] if isinstance(figures, list) else figures


def _with_texts(pair: dict[str, Any], texts: Texts) -> Pair:
    both = [
        texts(one["source"], one["path"], [one["record"]])[0] or "" for one in (pair["removed"], pair["kept"])
    ]
    return report.shown(pair | {"texts": tuple(both)})
