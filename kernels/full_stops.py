"""Whether a full stop ends a sentence, or belongs to an abbreviation.

Source: the suffixes, exceptions and English abbreviations of spaCy 3.8's tokenizer.
"""

import numpy as np

from kernels.accelerate import inlined
from kernels.characters import LOWER, UPPER, character_before

_NAMES = (
    "Adm Ak Ala Apr Ariz Ark Aug Bros Calif Co Colo Conn Corp Dec Del Dr E.g Feb Fla Ga Gen Gov I.e Ia Id Ill Inc "
    "Ind Jan Jr Jul Jun Kan Kans Ky La Ltd Mar Mass Md Messrs Mich Minn Miss Mo Mont Mr Mrs Ms Mt Neb Nebr Nev Nov "
    "Oct Okla Ore Pa Prof Rep Rev Sen Sep Sept St Tenn Va Wash Wis a.m co e.g i.e p.m v.s vs"
)
ABBREVIATIONS = tuple(_NAMES.split())
"""English abbreviations after which a full stop ends no sentence."""

_DOT = 0x2E
_LONGEST = 8
_KEYS = np.sort(np.array([int.from_bytes(one.encode()) for one in ABBREVIATIONS], np.uint64))


@inlined
def is_full_stop(data, start, position, stop, table):
    """Whether the ``.`` at a position ends a sentence.

    It does not as part of an ellipsis, after a capital that follows no other, after one small letter, or behind one
    of the abbreviations.
    """
    if position + 1 < stop and data[position + 1] == _DOT:
        return False
    if position == start:
        return True
    if data[position - 1] == _DOT:
        return False
    bits, size = character_before(data, start, position, table)
    if bits & UPPER:
        before = character_before(data, start, position - size, table)[0] if position - size > start else 0
        return before & UPPER != 0
    first = position
    while first > start and position - first <= _LONGEST and _may_abbreviate(data[first - 1]):
        first -= 1
    if first == position - 1 and bits & LOWER:
        return False
    return position - first > _LONGEST or first == position or not _is_abbreviation(data, first, position)


@inlined
def _may_abbreviate(byte):
    return byte == _DOT or 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A


@inlined
def _is_abbreviation(data, start, stop):
    """Whether up to eight bytes are one of the abbreviations; a binary search."""
    key = np.uint64(0)
    for i in range(start, stop):
        key = key << np.uint64(8) | np.uint64(data[i])
    first, last = 0, len(_KEYS) - 1
    while first < last:
        middle = (first + last) // 2
        if _KEYS[middle] < key:
            first = middle + 1
        else:
            last = middle
    return _KEYS[first] == key
