"""Names, places and the rest by Microsoft's Presidio with a spaCy model from a local folder (optional install).

A document is analysed in pieces of at most `PIECE` characters that end at white space where there is some: spaCy
refuses longer texts, and its memory grows with them.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.errors import UserError
from jobs.runtime import fingerprint
from jobs.runtime.named_files import digest, located
from jobs.settings.personal_data import Presidio

LIBRARIES = ("presidio-analyzer", "spacy")
PIECE = 100_000


def cleaned(text: pa.LargeStringArray, settings: Presidio) -> tuple[pa.LargeStringArray, np.ndarray]:
    """Each text with `<ENTITY>` where one was found, if they are replaced, and how many there were, int64[d]."""
    engine = _engine(str(settings.model), settings.language)
    documents = [_cleaned(engine, value, settings) for value in text.to_pylist()]
    replaced = pa.array([value for value, _ in documents], pa.large_string())
    counts = np.array([number for _, number in documents], np.int64)
    return (replaced if settings.action == "replace" else text), counts


def check(settings: Presidio) -> None:
    """Refuse a Presidio that is not installed, a model that is not there and entities that it does not know.

    Raises
    ------
    UserError
        One sentence that names the setting.
    """
    try:
        import presidio_analyzer  # noqa: F401
    except ImportError:
        raise UserError(
            f"personal_data.presidio.model is {settings.model!r}, but Presidio is not installed; "
            "install shardmill[presidio]"
        ) from None
    if not Path(str(settings.model), "config.cfg").is_file():
        raise UserError(
            f"personal_data.presidio.model is {settings.model!r}, which is no folder of a spaCy model "
            "(with a config.cfg); name one"
        )
    known = _engine(str(settings.model), settings.language).get_supported_entities(settings.language)
    for entity in settings.entities:
        if entity not in known:
            raise UserError(
                f"personal_data.presidio.entities has {entity!r}, which Presidio does not know; "
                f"it knows {', '.join(sorted(known))}"
            )


def identity(settings: Presidio) -> dict[str, Any]:
    """What fingerprints hold: settings, the model's content and the versions."""
    folder = Path(str(settings.model))
    model = {
        str(path.relative_to(folder)): digest(located(str(path), "personal_data.presidio.model", "a model"))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    return {**settings.model_dump(), "model": model, "versions": fingerprint.versions(*LIBRARIES)}


@functools.lru_cache(2)
def _engine(model: str, language: str) -> Any:
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpEngineProvider

    models = [{"lang_code": language, "model_name": model}]
    provider = NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": models})
    return AnalyzerEngine(nlp_engine=provider.create_engine(), supported_languages=[language])


def _cleaned(engine: Any, text: str, settings: Presidio) -> tuple[str, int]:
    pieces, number, begin = [], 0, 0
    while begin < len(text):
        end = _piece_end(text, begin)
        piece, found = _cleaned_piece(engine, text[begin:end], settings)
        pieces.append(piece)
        number += found
        begin = end
    return "".join(pieces), number


def _piece_end(text: str, begin: int) -> int:
    end = begin + PIECE
    if end >= len(text):
        return len(text)
    break_at = max(text.rfind("\n", begin, end), text.rfind(" ", begin, end))
    return break_at + 1 if break_at > begin else end


def _cleaned_piece(engine: Any, piece: str, settings: Presidio) -> tuple[str, int]:
    found = engine.analyze(
        piece,
        language=settings.language,
        entities=list(settings.entities),
        score_threshold=settings.min_score,
    )
    pieces, position, number = [], 0, 0
    for one in sorted(found, key=lambda one: (one.start, -one.end, one.entity_type)):
        if one.start >= position:
            pieces += [piece[position : one.start], f"<{one.entity_type}>"]
            position, number = one.end, number + 1
    return "".join([*pieces, piece[position:]]), number
