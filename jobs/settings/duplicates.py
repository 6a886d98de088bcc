"""The sections of the configuration on duplicates, and the rules that they name."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from jobs.settings.section import Section

# Parameters that say how a visitor came, not what the page holds (a selection of the ClearURLs and Brave lists).
TRACKING_PARAMETERS = (
    "utm_*",
    "fbclid",
    "gclid",
    "gclsrc",
    "dclid",
    "msclkid",
    "yclid",
    "twclid",
    "igshid",
    "mc_cid",
    "mc_eid",
    "_ga",
    "_gl",
    "_hsenc",
    "_hsmi",
)
Scope = Annotated[
    Literal["corpus", "crawl", "source"],
    Field(description="among which documents duplicates are looked for; those without a crawl are one crawl"),
]


class Keep(Section):
    """Which document is kept of several that are duplicates of each other; ties go to the smallest doc_id."""

    policy: Literal["random", "longest", "score", "earliest", "latest", "source", "first"] = Field(
        "random",
        description="longest: n_bytes; score: the highest value of column; earliest, latest: by the crawl's name; "
        "source: by the list sources; first: in the ledger's order",
    )
    seed: int = Field(1, ge=0, lt=2**63, description="of the random choice")
    column: str = Field(
        "score", description="of the ledger, for the policy score; a missing value comes last"
    )
    sources: tuple[str, ...] = Field(
        (), description="for the policy source, the preferred first; those not named come last"
    )
    drop_only_from: tuple[str, ...] = Field(
        (),
        description="sources; a document of any other is never dropped as a duplicate, and is preferred to those of "
        "these sources; empty: from all",
    )

    @model_validator(mode="after")
    def _used(self) -> Self:
        if (self.policy == "source") != bool(self.sources):
            raise ValueError(
                f"policy is {self.policy!r} and sources is {list(self.sources)}; the policy source needs the list, "
                "the others have no use for it"
            )
        return self


class UrlDuplicates(Section):
    """One document is kept of each URL in its canonical form (RFC 3986, section 6.2, and beyond it).

    White space around a URL never matters, nor does whether a host is written in Punycode. Without a host it is no URL.
    """

    enabled: bool = False
    scope: Scope = "corpus"
    ignore_scheme: bool = Field(True, description="http, https and none are one")
    lower_host: bool = Field(True, description="scheme and host in lower case")
    www: bool = Field(False, description="a host without its leading `www.`")
    default_port: bool = Field(True, description="no :80 of http, :443 of https")
    percent_encoding: bool = Field(
        True,
        description="letters, digits, `-._~` and all beyond ASCII as they are, other codes in upper case",
    )
    dot_segments: bool = Field(True, description="`.` and `..` in the path are followed")
    fragment: bool = Field(True, description="nothing from `#` on")
    trailing_slash: bool = Field(True, description="no `/` at the end of the path, however many")
    tracking_parameters: tuple[Annotated[str, Field(pattern=r"^[!-)+-~]+\*?$")], ...] = Field(
        TRACKING_PARAMETERS,
        description="query parameters that are left out, in lower or upper case, and empty ones with them; `utm_*` "
        "stands for all that begin so",
    )


class RepeatedPassages(Section):
    """Lines, paragraphs or spans of three sentences that occur more than once are taken out of the text."""

    enabled: bool = False
    unit: Literal["line", "paragraph", "three_sentences"] = Field(
        "line", description="line: CCNet's, which calls it a paragraph; three_sentences: C4's"
    )
    min_words: int = Field(1, ge=1, description="of a passage; shorter ones may repeat")
    min_characters: int = Field(
        1, ge=1, description="of a passage as it is compared; shorter ones may repeat"
    )
    keep: Literal["first", "none"] = Field(
        "first",
        description="first: one occurrence stays, in the first of the documents in the order of a keyed hash of their "
        "doc_ids; none: all go",
    )
    floor_words: int = Field(
        50, ge=0, description="a document that lost passages is dropped with fewer (datatrove's C4)"
    )
    floor_bytes: int = Field(1, ge=1, description="likewise")

    @property
    def counting(self) -> "RepeatedPassages":
        """What matters to which passages repeat; the rest as by default."""
        return self.model_copy(
            update={
                name: type(self).model_fields[name].default for name in ("keep", "floor_words", "floor_bytes")
            }
        )


class NormalisedText(Section):
    """What makes no difference between two texts; all false: they are compared byte by byte."""

    case: bool = Field(False, description="Unicode case folding")
    white_space: bool = Field(False, description="runs of white space are one space, none at the ends")
    unicode: bool = Field(False, description="normal form C")

    @property
    def used(self) -> bool:
        """Whether texts are not compared as they are."""
        return self.case or self.white_space or self.unicode


class ExactDuplicates(Section):
    """One document is kept of each text, by a hash of 128 bits."""

    enabled: bool = False
    scope: Scope = "corpus"
    normalise: NormalisedText = NormalisedText()

    @property
    def normalised(self) -> bool:
        """Whether the hash of the normalised text is needed."""
        return self.enabled and self.normalise.used
