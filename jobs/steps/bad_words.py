r"""C4's rule about bad words: lists in LDNOOBW's layout, a word or phrase a line, a file a language.

A document is compared with the list of its language alone; one whose language is not known counts as English, as in
datatrove's `C4BadWordsFilter`, and one whose language has no list has no statistic and is kept. Both sides are
compared in lower case. An entry counts where no letter, mark, digit or connector stands beside it; in Japanese, Thai
and Chinese, which write without spaces, wherever it stands. There the entries that C4 allows, since they are parts of
common words, are passed over (`ALLOWED`).

Unlike Python's ``\W``, by which the references find the ends of words, a mark belongs to the letter before it: ``\W``
finds entries within words of Hindi. The references keep a random share of such documents if they are told to; here the
number of places is recorded, and a threshold is set on it.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import UserError
from jobs.runtime.named_files import File, digest, located
from jobs.steps import language_codes
from jobs.text import text_buffers
from kernels.word_lists import WordList, count_places, word_list

DEFAULT_LANGUAGE = "en"
SPACELESS = ("ja", "th", "zh")
ALLOWED = {"ja": {"sm", "グロ", "女の子"}, "zh": {"性"}}
LISTS = 64  # that a process keeps


class Measured(NamedTuple):
    """Of each document, null where its language has no list.

    Attributes
    ----------
    places
        int64[d], where an entry begins.
    per_word
        float64[d], to words between whitespace; to characters in languages without spaces.
    """

    places: pa.Array
    per_word: pa.Array


def languages_of(language: pa.Array | None, d: int, known: Sequence[str]) -> np.ndarray:
    """object[d], which of the known languages each document is in; None where it is in another.

    Parameters
    ----------
    language
        string[d], as the language step or the source has it: codes, tags or English names. Null, `und` and no column at
        all are English.
    d
        Number of documents.
    known
        Languages, by any of their names.
    """
    if language is None:
        return np.full(d, _known(DEFAULT_LANGUAGE, tuple(known)), object)
    values = pc.fill_null(language.cast(pa.string()), DEFAULT_LANGUAGE).dictionary_encode()
    meant = [_known(value, tuple(known)) for value in values.dictionary.to_pylist()]
    return np.array([*meant, None], object)[np.asarray(values.indices)]


@functools.lru_cache(4096)
def _known(value: str, known: tuple[str, ...]) -> str | None:
    found = language_codes.matching(DEFAULT_LANGUAGE if value in {"", "und"} else value, known)
    return found[0] if found else None


def measure(text: pa.LargeStringArray, language: pa.Array | None, files: Mapping[str, str]) -> Measured:
    """Count the places of documents where an entry of their language's list begins.

    Parameters
    ----------
    text
        large_string[d].
    language
        string[d], or None where it is not known.
    files
        A list by language.
    """
    of_document = languages_of(language, len(text), list(files))
    places, per_word = np.zeros(len(text), np.int64), np.zeros(len(text))
    for name in files:
        (rows,) = np.nonzero(of_document == name)
        chosen = pc.utf8_lower(text.take(pa.array(rows)))
        entries = _entries(name, files[name])
        spaceless = _is_spaceless(name)
        places[rows] = count_places(*text_buffers(chosen), entries, not spaceless)
        found = rows[places[rows] > 0]
        hit = text.take(pa.array(found))
        words = pc.utf8_length(hit) if spaceless else pc.count_substring_regex(hit, r"\S+")
        per_word[found] = places[found] / np.maximum(np.asarray(words), 1)
    without = np.array([name is None for name in of_document], bool)
    return Measured(pa.array(places, mask=without), pa.array(per_word, mask=without))


def check(files: Mapping[str, str]) -> None:
    """Refuse a language that nobody knows and a list that cannot be read or holds nothing.

    Raises
    ------
    UserError
        One sentence that names the language or the file.
    """
    for name, path in files.items():
        if not language_codes.is_language(name):
            near = language_codes.near(name, [*SPACELESS, DEFAULT_LANGUAGE])
            hint = f"; is it {near[0]}?" if near else "; name a code such as en"
            raise UserError(f"quality.bad_words.files names {name!r}, which is no language{hint}")
        if not len(_entries(name, path).labels):
            raise UserError(
                f"quality.bad_words.files.{name} is {path!r}, which holds no word; it should have one a line"
            )


def identity(files: Mapping[str, str]) -> dict[str, str]:
    """What fingerprints hold: the content of each list, wherever it lies."""
    return {name: digest(_file(name, path)) for name, path in sorted(files.items())}


def _is_spaceless(name: str) -> bool:
    return bool(language_codes.matching(name, SPACELESS))


def _file(name: str, path: str) -> File:
    return located(path, f"quality.bad_words.files.{name}", "a file with a word a line")


def _entries(name: str, path: str) -> WordList:
    return _built(name, _file(name, path))


@functools.lru_cache(LISTS)
def _built(name: str, file: File) -> WordList:
    content = Path(file.path).read_bytes()
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"quality.bad_words.files.{name} is {file.path!r}, whose line {line} is no UTF-8"
        ) from None
    entries = pc.utf8_lower(pa.array([line.strip() for line in lines], pa.string())).to_pylist()
    allowed = ALLOWED.get((language_codes.matching(name, list(ALLOWED)) or [""])[0], set())
    return word_list(entry.encode() for entry in entries if entry not in allowed)
