"""Personal data: found by form in one pass, replaced or a reason to drop a document, counted by kind.

What is found is never written anywhere: not to logs, errors, the ledger or the report, which hold counts alone.
Phone numbers that the pass proposes are checked against the numbering plans of `phonenumbers`: one with ``+`` against
its country's, any other against those of `regions`.
"""

import functools
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import phonenumbers
import pyarrow as pa
from phonenumbers import Leniency

from jobs.errors import UserError
from jobs.runtime import fingerprint
from jobs.settings.personal_data import KINDS, PRESIDIO, PersonalData
from jobs.steps import presidio
from jobs.text import text_buffers
from kernels import personal_data as kernel

STEP = "personal_data"
TRIES = 6  # of parts of a candidate
_GROUPS = re.compile("[0-9]+")
_NOTHING = np.empty((0, 4), np.int64)


@dataclass(frozen=True)
class Cleaned:
    """What the step makes of a batch of documents.

    Attributes
    ----------
    text
        large_string[d] with placeholders; that of a dropped document as it was.
    counts
        int32[d] of each kind that is looked for, under the ledger's names.
    fate
        string[d], `personal_data.` and the first kind that drops a document; null for one that goes on.
    """

    text: pa.LargeStringArray
    counts: dict[str, pa.Array]
    fate: pa.StringArray


def cleaned(text: pa.LargeStringArray, settings: PersonalData) -> Cleaned:
    """Find, count, replace.

    Parameters
    ----------
    text : large_string[d]
        None of them null.
    settings : PersonalData
        What is done about each kind.
    """
    data, offsets = text_buffers(text)
    spans = found(data, offsets, settings)
    numbers = {
        kind: _per_document(spans, KINDS.index(kind), len(text)) for kind in KINDS if kind in settings.kinds
    }
    replaced = _replaced(data, offsets, spans, settings)
    if settings.presidio.used:
        replaced, numbers[PRESIDIO] = presidio.cleaned(replaced, settings.presidio)
    fate = _fates(numbers, settings, len(text))
    dropped = np.asarray(fate.is_valid())
    if dropped.any():
        replaced = pa.array(
            np.where(dropped, text.to_numpy(zero_copy_only=False), replaced.to_numpy(zero_copy_only=False)),
            pa.large_string(),
        )
    return Cleaned(replaced, {f"{STEP}_{kind}": pa.array(n, pa.int32()) for kind, n in numbers.items()}, fate)


def shown(text: pa.LargeStringArray, settings: PersonalData) -> pa.LargeStringArray:
    """Texts as they may be shown: as `cleaned` has them, and what drops a document is replaced, too."""
    dropping: dict[str, Any] = {kind: "replace" for kind in KINDS if settings.action(kind) == "drop"}
    if settings.presidio.action == "drop":
        dropping["presidio"] = settings.presidio.model_copy(update={"action": "replace"})
    return cleaned(text, settings.model_copy(update=dropping)).text


def check(settings: PersonalData) -> None:
    """Refuse, before any work, regions that have no numbering plan and a Presidio that cannot run.

    Raises
    ------
    UserError
        One sentence that names the setting.
    """
    if not settings.enabled:
        return
    for region in settings.regions:
        if region not in phonenumbers.SUPPORTED_REGIONS:
            raise UserError(
                f"personal_data.regions has {region!r}, which has no numbering plan; give codes such as US or GB"
            )
    if settings.presidio.used:
        presidio.check(settings.presidio)


def identity(settings: PersonalData) -> dict[str, Any] | None:
    """What fingerprints hold: nothing where the step is off."""
    if not settings.enabled:
        return None
    libraries = ("phonenumbers",) if "phone" in settings.kinds else ()
    engine = presidio.identity(settings.presidio) if settings.presidio.used else None
    return {**settings.model_dump(), "presidio": engine, "versions": fingerprint.versions(*libraries)}


def found(data: np.ndarray, offsets: np.ndarray, settings: PersonalData) -> np.ndarray:
    """Spans of the kinds that are looked for, in the order of the text.

    Parameters
    ----------
    data, offsets : uint8[n], int64[d + 1]
        UTF-8, and where each document begins and ends.
    settings : PersonalData
        Which kinds.

    Returns
    -------
    int64[s, 4]
        Document, kind of `KINDS`, first byte and the byte behind the last; phone numbers are those of a plan.
    """
    lengths = _phone_lengths(settings.regions)

    def find(kinds: Iterable[str]) -> np.ndarray:
        wanted = sum(1 << KINDS.index(kind) for kind in kinds)
        return kernel.find(data, offsets, wanted, settings.public_only, lengths) if wanted else _NOTHING

    spans = find(kind for kind in settings.kinds if kind not in ("phone", PRESIDIO))
    if "phone" not in settings.kinds:
        return spans
    both = np.concatenate([spans, _phones(data, _apart(find(["phone"]), spans), settings.regions)])
    return both[np.argsort(both[:, 2], kind="stable")]


def _apart(candidates: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Candidates that share no byte with a span: what has a checksum or a form of its own comes first."""
    behind = np.searchsorted(spans[:, 3], candidates[:, 2], side="right")
    begins = np.append(spans[:, 2], np.iinfo(np.int64).max)
    return candidates[begins[behind] >= candidates[:, 3]]


def _phones(data: np.ndarray, candidates: np.ndarray, regions: tuple[str, ...]) -> np.ndarray:
    """The candidates that are numbers, without the groups that do not belong to them."""
    numbers = candidates.copy()
    numbers[:, 1] = kernel.PHONE
    for place, (kind, begin, end) in enumerate(candidates[:, 1:].tolist()):
        candidate = data[begin:end].tobytes().decode()
        first, last = _phone(candidate, regions, kind == kernel.CALLED_PHONE)
        numbers[place, 2] = begin + len(candidate[:first].encode())
        numbers[place, 3] = begin + len(candidate[:last].encode())
    return numbers[numbers[:, 3] > numbers[:, 2]]


def _phone(candidate: str, regions: tuple[str, ...], called: bool) -> tuple[int, int]:
    """Begin and end of the number in a candidate, whose outermost groups may not belong to it; (0, 0): none is.

    With neither ``+`` nor a word before, its groups must be those of its country: many other numbers are valid ones.
    """
    abroad = candidate.lstrip("(").startswith("+")
    leniency = Leniency.VALID if abroad or called else Leniency.STRICT_GROUPING
    best = (0, 0)
    for region in (None,) if abroad else [one for one in regions if _has_length(candidate, one)]:
        for match in phonenumbers.PhoneNumberMatcher(candidate, region, leniency, TRIES):
            whole = match.start == 0 or match.end == len(candidate)
            if whole and match.end - match.start > best[1] - best[0]:
                best = match.start, match.end
        if best == (0, len(candidate)):
            break
    return best


def _has_length(candidate: str, region: str) -> bool:
    """Whether groups from the first on, or up to the last, have as many digits as a number of the region."""
    if candidate.lstrip("(").startswith(("00", "011")):
        return True  # what is dialled to call another country
    groups = [len(group) for group in _GROUPS.findall(candidate)]
    lengths = _phone_lengths((region,))
    sums = {*itertools.accumulate(groups), *itertools.accumulate(reversed(groups))}
    return any(lengths >> digits & 1 for digits in sums)


@functools.lru_cache(64)
def _phone_lengths(regions: Iterable[str]) -> int:
    """A bit for each number of digits, with and without the prefix that is dialled inside a country."""
    lengths = 0
    for region in regions:
        plan: Any = phonenumbers.PhoneMetadata.metadata_for_region(region)
        for length in plan.general_desc.possible_length:
            lengths |= 1 << length | 1 << length + len(plan.national_prefix or "")
    return lengths


def _per_document(spans: np.ndarray, kind: int, d: int) -> np.ndarray:
    return np.bincount(spans[spans[:, 1] == kind, 0], minlength=d)


def _replaced(
    data: np.ndarray, offsets: np.ndarray, spans: np.ndarray, settings: PersonalData
) -> pa.LargeStringArray:
    """Each document with placeholders where the kinds say so."""
    replace = np.array([settings.action(kind) == "replace" for kind in KINDS])
    spans = spans[replace[spans[:, 1]]]
    placeholders = [getattr(settings.placeholders, kind).encode() for kind in KINDS]
    view, pieces, position = np.ascontiguousarray(data).data, [], 0
    for kind, begin, end in spans[:, 1:].tolist():
        pieces += [view[position:begin], placeholders[kind]]
        position = end
    pieces.append(view[position:])
    growth = np.array([len(one) for one in placeholders])[spans[:, 1]] - (spans[:, 3] - spans[:, 2])
    grown = np.concatenate([[0], np.cumsum(growth)])
    moved = offsets + grown[np.searchsorted(spans[:, 0], np.arange(len(offsets)))]
    joined = b"".join(pieces) if len(spans) else view
    return pa.LargeStringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(moved.astype(np.int64)), pa.py_buffer(joined)
    )


def _fates(numbers: dict[str, np.ndarray], settings: PersonalData, d: int) -> pa.StringArray:
    fate = np.full(d, None, object)
    for kind in reversed(settings.kinds):
        if settings.action(kind) == "drop":
            fate[numbers[kind] > 0] = f"{STEP}.{kind}"
    return pa.array(fate, pa.string())
