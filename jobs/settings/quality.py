"""Thresholds of the quality rules, by the reference that published them.

A setting ``min_X`` drops documents whose statistic X is below it, ``max_X`` those above it, both strictly unless the
rule set says otherwise; null switches the rule off. (datatrove switches a rule off at 0 too; here 0 is a threshold.)
`kernels.quality.STATISTICS` says what each statistic is. Within a rule set the rules run in the order of its settings.

Everywhere, a word of the references is a *segment* (see `kernels.segmentation`), which is near to the word of spaCy's
English tokenizer that datatrove uses, and not the same: brackets within a word, ``n't`` and web addresses are cut
elsewhere. With its words replaced by ours, every decision of datatrove's filters and every reason is the same. Of 4,329
web documents, the two ways of splitting decide 67 under gopher-quality (66 by `min_words_with_letter`), 5 under
gopher-repetition, 2 under C4 and none under FineWeb. A punctuation mark is a word in both, so `min_words_with_letter`
drops much that was published as clean: of 300 documents of FineWeb, datatrove 0.10.1 drops 45 for it and we drop 48, 44
of them the same; null or a lower share keeps them.

Stop words, abbreviations and thresholds are for English; terminal punctuation is that of all scripts. Stop words can
be given for each language instead (`gopher_quality.stop_words: {en: [...], de: [...]}`): a document is looked through
for those of the language that the language step found, or the source's column has. One whose language is not known
counts as English; one whose language has no list has no such statistic, and `min_stop_words` does not drop it.

In scripts
written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese), each character is a word, so lengths and counts
of words mean something else: `gopher_quality.max_spaceless_words` drops such documents under a name of its own. Set it
to null, with stop words and lengths of your own, to judge them; a stop word there is a single character, since a longer
one is several words and could never be found, which is refused.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from jobs.settings.section import Section

RuleSet = Literal["gopher_repetition", "gopher_quality", "c4", "fineweb", "additions", "bad_words"]
FINEWEB_ORDER: tuple[RuleSet, ...] = ("gopher_repetition", "gopher_quality", "c4", "fineweb")
"""datatrove's ``examples/fineweb.py``."""


class _Rules(Section):
    """A rule set, whose thresholds are of shares, counts and lengths."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        numbers = {
            name: value
            for name in type(self).model_fields
            if isinstance(value := getattr(self, name), int | float) and not isinstance(value, bool)
        }
        for name, value in numbers.items():
            if not value >= 0:
                raise ValueError(f"{name} is {value}; give a number of at least 0, or null for no such rule")
            most = numbers.get(f"max_{name.removeprefix('min_')}") if name.startswith("min_") else None
            if most is not None and value > most:
                raise ValueError(
                    f"{name} is {value:g} and max_{name[4:]} is {most:g}, so nothing would be kept; exchange them"
                )
        return self


class _Presets(_Rules):
    """A rule set whose references disagree: `preset` chooses one, and single settings go on top."""

    presets: ClassVar[Mapping[str, dict[str, Any]]]

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {**cls.presets.get(str(values.get("preset")), {}), **values}


class GopherQuality(_Rules):
    """Rae et al. 2021, appendix A1, as datatrove's `GopherQualityFilter` has it."""

    max_spaceless_words: float | None = Field(
        0.5, description="ours: words in scripts without spaces, which the rules below cannot judge"
    )
    min_words: int | None = Field(50, description="words with a character that is no symbol")
    max_words: int | None = 100_000
    min_mean_word_length: float | None = Field(3, description="characters")
    max_mean_word_length: float | None = 10
    max_hashes_per_word: float | None = 0.1
    max_ellipses_per_word: float | None = 0.1
    max_bullet_lines: float | None = Field(0.9, description="share of lines that begin with • or -")
    max_ellipsis_lines: float | None = Field(0.3, description="share of lines that end in ... or …")
    min_words_with_letter: float | None = 0.8
    min_stop_words: int | None = Field(2, description="different ones")
    stop_words: tuple[str, ...] | dict[str, tuple[str, ...]] = Field(
        ("the", "be", "to", "of", "and", "that", "have", "with"),
        description="as they are written in the text: a capital letter makes another word, as in datatrove; or a list "
        "for each language, chosen by the document's",
    )


class GopherRepetition(_Rules):
    """Rae et al. 2021, table A1, as datatrove's `GopherRepetitionFilter` has it."""

    min_characters: int | None = 1
    max_duplicate_paragraphs: float | None = 0.3
    max_duplicate_paragraph_characters: float | None = 0.2
    max_duplicate_lines: float | None = 0.3
    max_duplicate_line_characters: float | None = 0.2
    max_top_2_gram_characters: float | None = 0.20
    max_top_3_gram_characters: float | None = 0.18
    max_top_4_gram_characters: float | None = 0.16
    max_duplicate_5_gram_characters: float | None = 0.15
    max_duplicate_6_gram_characters: float | None = 0.14
    max_duplicate_7_gram_characters: float | None = 0.13
    max_duplicate_8_gram_characters: float | None = 0.12
    max_duplicate_9_gram_characters: float | None = 0.11
    max_duplicate_10_gram_characters: float | None = 0.10


class C4(_Presets):
    """Raffel et al. 2020: drops lines, and documents.

    `c4` is TensorFlow Datasets' ``c4_utils.py``; `c4-datatrove` is `C4QualityFilter`; `c4-fineweb` is that without the
    rule that a line ends in a mark, as FineWeb runs it. Rule sets that come after this one judge the edited text.

    Sentences are counted by the rule of spaCy's sentencizer, which datatrove uses; TensorFlow Datasets uses NLTK's
    Punkt, whose list of abbreviations is longer.
    """

    presets: ClassVar[Mapping[str, dict[str, Any]]] = MappingProxyType(
        {
            "c4": {
                "min_words_per_line": 5,
                "end_marks": '.?!"',
                "words_before_citations": False,
                "min_sentences": 3,
            },
            "c4-datatrove": {"end_marks": ".?!\"'"},
        }
    )
    preset: Literal["c4", "c4-datatrove", "c4-fineweb"] = "c4-fineweb"
    min_words_per_line: int = Field(3, ge=0, description="between whitespace")
    max_word_length: int = Field(1000, ge=1, description="characters; a line with a longer word is dropped")
    end_marks: Literal["", '.?!"', ".?!\"'"] = Field(
        "", description="a line has to end in one of these, and not in ..."
    )
    remove_citations: bool = Field(True, description="[1], [edit] and [citation needed]")
    words_before_citations: bool = Field(True, description="whether they count as words of a line")
    drop_javascript_lines: bool = True
    drop_policy_lines: bool = Field(True, description="terms of use, privacy, cookies")
    lorem_ipsum: bool = Field(True, description="drop a document with it in a line that got so far")
    curly_bracket: bool = Field(True, description="drop a document with { in a line that got so far")
    min_sentences: int | None = 5


class FineWeb(_Presets):
    """Penedo et al. 2024: `fineweb` is the paper, `fineweb-code` datatrove's `FineWebQualityFilter`.

    The paper drops at the threshold itself (`inclusive`), and does not mention line feeds.
    """

    presets: ClassVar[Mapping[str, dict[str, Any]]] = MappingProxyType(
        {
            "fineweb-code": {
                "inclusive": False,
                "max_duplicate_line_characters": 0.01,
                "max_line_feeds_per_word": 0.3,
            }
        }
    )
    preset: Literal["fineweb", "fineweb-code"] = "fineweb"
    inclusive: bool = Field(True, description="whether a share equal to its threshold drops")
    min_lines: int | None = Field(1, description="that are not blank; never inclusive")
    min_terminal_lines: float | None = 0.12
    max_short_lines: float | None = 0.67
    max_duplicate_line_characters: float | None = 0.1
    max_line_feeds_per_word: float | None = None
    short_line_length: int = Field(30, ge=0, description="characters")
    line_ends: str | None = Field(
        None, description="characters; absent: the sentence ends of all scripts (Unicode)"
    )


class Additions(_Rules):
    """What two course texts on data pipelines add to Gopher's rules: line length, placeholders, boilerplate.

    They give no figure for boilerplate, so that rule is off until it is set.
    """

    min_mean_line_length: float | None = Field(10, description="characters of lines that are not blank")
    max_placeholder_lines: int | None = Field(0, description="lines with `lorem ipsum`")
    max_boilerplate_lines: float | None = Field(
        None, description="share of lines that mention JavaScript, cookies, terms or privacy"
    )


class BadWords(_Rules):
    """Raffel et al. 2020: no document with a word of a list; see `jobs.steps.bad_words`.

    Off until files are given and `order` names `bad_words`.
    """

    files: dict[str, str] = Field(
        {}, description="language -> file with a word or phrase a line (LDNOOBW's layout)"
    )
    max_matches: int | None = Field(0, description="places where one begins")
    max_matches_per_word: float | None = Field(None, description="to words; to characters in ja, th and zh")


class Quality(Section):
    """Which rule sets run, in which order; the ledger holds the statistics of all of them."""

    enabled: bool = False
    order: tuple[RuleSet, ...] = Field(
        FINEWEB_ORDER,
        description="rule sets that drop documents, and in which order; others are only measured",
    )
    gopher_repetition: GopherRepetition = GopherRepetition()
    gopher_quality: GopherQuality = GopherQuality()
    c4: C4 = C4()
    fineweb: FineWeb = FineWeb()
    additions: Additions = Additions()
    bad_words: BadWords = BadWords()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        twice = sorted({name for name in self.order if self.order.count(name) > 1})
        if twice:
            raise ValueError(f"order names {twice[0]!r} twice")
        if "bad_words" in self.order and not self.bad_words.files:
            raise ValueError(
                "order names bad_words, but bad_words.files names no list; give one, such as {en: FILE}"
            )
        if self.bad_words.files and "bad_words" not in self.order:
            raise ValueError(
                "bad_words.files has no effect while order does not name bad_words; add it there"
            )
        return self

    @model_validator(mode="after")
    def _used(self) -> Self:
        fields = type(self).model_fields.items()
        unused = [
            name for name, field in fields if name != "enabled" and getattr(self, name) != field.default
        ]
        if unused and not self.enabled:
            raise ValueError(f"{', '.join(unused)} has no effect while enabled is false; set enabled: true")
        return self


MEASURING: Mapping[RuleSet, tuple[str, ...]] = MappingProxyType(
    {
        "gopher_repetition": (),
        "gopher_quality": ("stop_words",),
        "c4": (
            "min_words_per_line",
            "max_word_length",
            "end_marks",
            "remove_citations",
            "words_before_citations",
            "drop_javascript_lines",
            "drop_policy_lines",
        ),
        "fineweb": ("short_line_length", "line_ends"),
        "additions": (),
        "bad_words": ("files",),
    }
)
"""Settings of each rule set that change its statistics; all others are thresholds, and say how these are judged."""
