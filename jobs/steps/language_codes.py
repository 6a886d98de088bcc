"""Languages by any of their names: ISO 639 codes, IETF tags, English names.

The tables are CLDR's, by Babel. A model's own labels come first, since `lid.176` calls languages what Wikipedia does:
its `als` is Alemannic, which is Tosk Albanian in ISO 639.
"""

import difflib
import functools
from collections.abc import Collection

from babel.core import Locale, get_global, parse_locale

# Codes of ISO 639 that Wikipedia, and so `lid.176`, has under another name.
WIKIPEDIA = {"gsw": "als", "hbs": "sh", "egl": "eml", "rgn": "eml"}
# Models have either Norwegian or Bokmål; CLDR keeps the two apart.
MACROLANGUAGES = {"nb": "no", "nob": "no"}
# Names that are in use beside CLDR's, and those of languages that it does not name.
NAMES = {
    "alemannic": "gsw", "bengali": "bn", "bihari": "bih", "bokmål": "nb", "buryat": "bua", "castilian": "es",
    "chavacano": "cbk", "doteli": "dty", "emilian-romagnol": "eml", "farsi": "fa", "flemish": "nl",
    "goan konkani": "gom", "iranian persian": "fa", "kirghiz": "ky", "mandarin": "zh", "meadow mari": "mhr",
    "moldovan": "ro", "myanmar": "my", "nahuatl": "nah", "nynorsk": "nn", "oriya": "or", "pushto": "ps",
    "sinhalese": "si", "sorani": "ckb", "south azerbaijani": "azb", "uighur": "ug", "western punjabi": "pnb",
    "zazaki": "zza",
}  # fmt: skip
NEAR = 3  # suggestions


def matching(name: str, labels: Collection[str]) -> list[str]:
    """The labels of a model that mean a language.

    Parameters
    ----------
    name
        A code of two or three letters, a tag such as `en-US` or `zh_Hans`, or an English name; capitals do not matter.
        A region is passed over, and a script where labels have none.
    labels
        What the model has: codes, or codes with scripts such as `srp_Cyrl`.

    Returns
    -------
    list of str
        Several where a model tells scripts apart and the name does not; none where the model lacks the language.
    """
    own = {label.lower(): label for label in labels}
    for language, script in _readings(name):
        for spelling in (language, WIKIPEDIA.get(language), _canonical(language)):
            if spelling in own:
                return [own[spelling]]
        same = [label for label in labels if _means(label, language, script)]
        if same:
            return sorted(same)
    return []


def is_language(label: str) -> bool:
    """Whether a label is a code that CLDR knows, with a script or without."""
    language, _ = _parsed(label)
    return len(language) in (2, 3) and language in _known()


def near(name: str, labels: Collection[str]) -> list[str]:
    """Names and codes of the languages of a model that are spelled almost as a name that means none."""
    words = {*_english(), *map(str.lower, labels)}
    close = difflib.get_close_matches(_folded(name), sorted(words), 10 * NEAR)
    return [word for word in close if matching(word, labels)][:NEAR]


def _readings(name: str) -> list[tuple[str, str]]:
    """A name as language and script: read as a tag, and as an English name."""
    named = _english().get(_folded(name))
    tag = _parsed(name)
    return ([tag] if len(tag[0]) in (2, 3) else []) + ([_parsed(named)] if named else [])


def _parsed(tag: str) -> tuple[str, str]:
    """Language and script of a tag, `""` for what it does not say."""
    try:
        language, _, script, *_ = parse_locale(tag.strip().replace("-", "_"))
    except ValueError:
        return "", ""
    return language.lower(), script or ""


def _canonical(language: str) -> str:
    """CLDR's code for a language: two letters where there are any, the macrolanguage's where one is usual."""
    replaced = MACROLANGUAGES.get(language) or get_global("language_aliases").get(language, language)
    return _parsed(replaced)[0] or language


def _means(label: str, language: str, script: str) -> bool:
    own_language, own_script = _parsed(label)
    same_script = not script or not own_script or script == own_script
    return bool(own_language) and same_script and _canonical(own_language) == _canonical(language)


@functools.cache
def _english() -> dict[str, str]:
    """Tags by English name."""
    return {_folded(name): tag for tag, name in Locale("en").languages.items()} | NAMES


@functools.cache
def _known() -> frozenset[str]:
    return frozenset(get_global("language_aliases")) | frozenset(Locale("en").languages)


def _folded(name: str) -> str:
    return " ".join(name.split()).lower()
