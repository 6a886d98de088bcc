"""The configuration: one pydantic model a section, every default beside its source.

"Seed" below is the article this system was first built to reproduce: 2.4 million FineWeb-Edu documents
de-duplicated, tokenized and packed on a laptop.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from jobs import ledger
from jobs.errors import UserError
from jobs.models import KINDS
from jobs.settings.classifiers import Classifier, columns_of, refuse_empty_range
from jobs.settings.contamination import Contamination
from jobs.settings.duplicates import ExactDuplicates, Keep, RepeatedPassages, Scope, UrlDuplicates
from jobs.settings.formats import Format, Rows, check_formats
from jobs.settings.mixture import Mixture
from jobs.settings.personal_data import PersonalData
from jobs.settings.quality import Quality
from jobs.settings.section import Name, Section

MOST_HASHES = 16_384
PRESETS = Path(__file__).parent / "presets"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(value: object) -> object:
    """Read `32 MiB` or `26MB` as a number of bytes; leave anything else for pydantic to judge."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    if match and match[2].upper() in _UNITS:
        return int(Decimal(match[1]) * _UNITS[match[2].upper()])
    return value


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
_NUMBERS = ("int64", "float64")


def _without_null(columns: object) -> object:
    """A column that is set to null is mapped as by default, whatever a preset said."""
    if not isinstance(columns, dict):
        return columns
    return {ours: theirs for ours, theirs in columns.items() if theirs is not None}


def _codes(keep: object) -> object:
    """Null is no list at all, and what YAML takes for false is Norwegian."""
    if keep is None:
        return ()
    return ["no" if code is False else code for code in keep] if isinstance(keep, list) else keep


def _known_types(extra: object) -> object:
    """A name in the place of a type is taken for a wish to rename."""
    if isinstance(extra, dict):
        for name, kind in extra.items():
            if kind not in ledger.EXTRA_TYPES:
                raise ValueError(
                    f"{name} is {kind!r}, which is no type ({', '.join(ledger.EXTRA_TYPES)}); where the column has "
                    f"another name in the files, give its type here and say columns.{name}: {kind}"
                )
    return extra


def _refuse_twice(names: Sequence[str], key: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{key} has two entries named {twice[0]!r}; each needs a name of its own")


class Extraction(Section):
    """From the bytes of a page to text (FineWeb: trafilatura, favouring precision)."""

    engine: Literal["trafilatura", "resiliparse"] = Field(
        "trafilatura", description="resiliparse is some 20 times faster"
    )
    seconds: float = Field(5, gt=0, description="CPU time of a page, at most")
    memory: Bytes = Field(2**30, ge=64 * 2**20, description="that a page may take, at most")
    body: Bytes = Field(64 * 2**20, description="of a page once decompressed, at most")
    pdf: bool = Field(False, description="read PDF documents too; needs pypdfium2")


class Threshold(Section):
    """Bounds of a number that came with the documents (FineWeb-Edu: `score` of at least 2.5)."""

    column: str = Field(description="score, language_score, or a number that extra names")
    min: float | None = Field(None, allow_inf_nan=False, description="the least that is kept")
    max: float | None = Field(None, allow_inf_nan=False, description="the most that is kept")

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError(f"the threshold of column {self.column!r} has neither min nor max")
        refuse_empty_range(self.min, self.max, "min", "max")
        return self


class Urls(Section):
    """Pages that are dropped for their URL, before anything is extracted (FineWeb: UT1's lists and words)."""

    domains: tuple[str, ...] = Field(
        (), description="files with a domain or URL a line, or folders of UT1's categories"
    )
    words: tuple[str, ...] = Field(
        (), description="files with a word a line; a URL that holds one is blocked"
    )

    @property
    def used(self) -> bool:
        """Whether anything is blocked."""
        return bool(self.domains or self.words)


class Language(Section):
    """Which languages are kept (FineWeb: English at 0.65 or more, by fastText's lid.176)."""

    enabled: bool = False
    model: str | None = Field(
        None, description="a fastText .bin or .ftz; absent: the lid.176.ftz that is installed"
    )
    keep: Annotated[tuple[str, ...], BeforeValidator(_codes)] = Field(
        (), description="en, eng and English mean one thing; empty: all languages"
    )
    min_score: float = Field(0.65, ge=0, le=1, description="of the language, for a document to be kept")
    prefix: Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)] | None = Field(
        None, description="bytes of a document that are looked at; absent: all"
    )

    @model_validator(mode="after")
    def _used(self) -> Self:
        if not self.enabled and (self.keep or self.model):
            raise ValueError("keep and model have no effect while enabled is false; set enabled: true")
        return self


class Source(Section):
    """Where documents come from.

    `packages` is the built-in corpus: the documentation of the installed packages this project depends on.
    """

    name: Name = Field(description="part of every document's identity: another name makes other documents")
    format: Literal["parquet", "jsonl", "text", "arrow", "warc", "packages"] = Field(
        "parquet", description="packages is the built-in corpus"
    )
    path: str | None = Field(None, description="a file, a folder, a glob or an fsspec URL")
    columns: Annotated[dict[str, str], BeforeValidator(_without_null)] = Field(
        default_factory=dict,
        description="our column -> theirs: text, id, url, crawl, score, language, language_score, or one named in "
        "extra; by default the same, and crawl from dump; in JSONL a path such as metadata.url will do",
    )
    extra: Annotated[
        dict[Name, Literal["string", "int64", "float64", "bool"]], BeforeValidator(_known_types)
    ] = Field(
        default_factory=dict,
        description="more columns for the ledger, with their types: string, int64, float64 or bool; one that is named "
        "otherwise in the files is named in columns too",
    )
    content: Literal["text", "html"] = Field(
        "text", description="what the text column holds; text is extracted from html"
    )
    weight: float = Field(
        1, gt=0, le=1, description="share of the documents that are used: a keyed sample of them"
    )
    thresholds: tuple[Threshold, ...] = ()
    urls: Urls = Urls()
    extraction: Extraction = Extraction()
    language: Language = Language()
    quality: Quality = Quality()
    classifiers: tuple[Classifier, ...] = ()
    repeated_passages: RepeatedPassages = RepeatedPassages()
    _repeats: Path | None = PrivateAttr(None)  # of a resolved source
    personal_data: PersonalData = PersonalData()
    contamination: Contamination = Field(
        Contamination(), description="that of the whole run, or sets: [] to look for none"
    )

    @model_validator(mode="after")
    def _path(self) -> Self:
        if self.format == "packages" and self.path is not None:
            raise ValueError(f"path is {self.path!r}, but the built-in corpus (format: packages) has no path")
        if self.format != "packages" and not self.path:
            raise ValueError(f"source {self.name!r} has no path; give a file, a folder or a glob")
        if self.format == "warc" and self.content != "text":
            raise ValueError(
                f"content is {self.content!r}, but records of web archives say themselves what they hold; remove it"
            )
        if self.format == "warc" and "text" in self.columns:
            raise ValueError(
                f"columns.text is {self.columns['text']!r}, but the text of a web archive is what its records hold; "
                "remove it"
            )
        return self

    @model_validator(mode="after")
    def _columns(self) -> Self:
        ours = {
            *ledger.SCHEMA.names,
            ledger.NORMALISED_HASH,
            ledger.KEPT_IN,
            *dict(ledger.QUALITY),
            *dict(ledger.BAD_WORDS),
            *dict(ledger.REMOVED),
            *dict(ledger.PERSONAL_DATA),
        }
        taken = sorted(ours & set(self.extra))
        if taken:
            raise ValueError(
                f"extra names {taken}, which the ledger has already; choose another name, and map it: "
                f"extra: {{my_{taken[0]}: float64}}, columns: {{my_{taken[0]}: {taken[0]}}}"
            )
        filled = sorted(set(columns_of(self.classifiers)) & (ours | set(self.extra)))
        if filled:
            raise ValueError(
                f"a classifier would fill the column {filled[0]!r}, which the ledger has already; give it another name"
            )
        carried = ["text", *(name for name, _ in ledger.CARRIED)]
        unknown = sorted(set(self.columns) - set(carried) - set(self.extra))
        if unknown:
            raise ValueError(
                f"columns names {unknown}; it can map {', '.join(carried)}, and what extra names"
            )
        return self

    @model_validator(mode="after")
    def _thresholds(self) -> Self:
        _refuse_twice([threshold.column for threshold in self.thresholds], "thresholds")
        numbers = [
            "score",
            "language_score",
            *(name for name, kind in self.extra.items() if kind in _NUMBERS),
        ]
        for threshold in self.thresholds:
            if threshold.column not in numbers:
                raise ValueError(
                    f"thresholds names column {threshold.column!r}; it can be {', '.join(numbers)}, or a column of "
                    "type int64 or float64 that extra names"
                )
        return self

    @property
    def has_pages(self) -> bool:
        """Whether documents come as pages, from which text is extracted."""
        return self.content == "html" or self.format == "warc"

    @property
    def repeats(self) -> Path | None:
        """Folder in the output with the passages that repeat; None where none are taken out."""
        return self._repeats if self.repeated_passages.enabled else None

    def resolved(self, out: Path) -> "Source":
        """The source as tasks read it, wherever they run: a local path is absolute.

        The built-in corpus stands as Parquet in the output.
        """
        resolved = self.model_copy(update=self._places(out))
        resolved._repeats = out / "repeated_passages"
        return resolved

    def _places(self, out: Path) -> dict[str, Any]:
        """Where each file is."""
        if self.format == "packages":
            return {"format": "parquet", "path": str(out / "corpus" / "*.parquet")}
        model = self.language.model
        return {
            "path": _absolute(str(self.path)),
            "urls": Urls(domains=_all_absolute(self.urls.domains), words=_all_absolute(self.urls.words)),
            "language": self.language.model_copy(update={"model": model and _absolute(model)}),
            "classifiers": tuple(
                one.model_copy(
                    update={
                        "model": _absolute(one.model) if KINDS[one.kind].in_file else one.model,
                        "head": one.head and _absolute(one.head),
                        "sentencepiece": one.sentencepiece and _absolute(one.sentencepiece),
                    }
                )
                for one in self.classifiers
            ),
            "quality": _with_absolute_lists(self.quality),
            "personal_data": _with_absolute_model(self.personal_data),
            "contamination": with_absolute_sets(self.contamination),
        }


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).expanduser().absolute())


def _with_absolute_lists(quality: Quality) -> Quality:
    files = {language: _absolute(path) for language, path in quality.bad_words.files.items()}
    return quality.model_copy(update={"bad_words": quality.bad_words.model_copy(update={"files": files})})


def _with_absolute_model(personal_data: PersonalData) -> PersonalData:
    model = personal_data.presidio.model
    found = personal_data.presidio.model_copy(update={"model": model and _absolute(model)})
    return personal_data.model_copy(update={"presidio": found})


def with_absolute_sets(contamination: Contamination) -> Contamination:
    """The settings as they are used, wherever a task runs."""
    sets = tuple(one.model_copy(update={"path": _absolute(one.path)}) for one in contamination.sets)
    counts = contamination.counts and _absolute(contamination.counts)
    return contamination.model_copy(update={"sets": sets, "counts": counts})


def _all_absolute(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_absolute, paths))


class Splits(Section):
    """How sources are cut into tasks. Never changes what comes out."""

    bytes: Bytes = Field(
        32 * 2**20, description="text in a split: consecutive row groups are joined up to here"
    )


class TokenizerTraining(Section):
    """A byte-level BPE trained on a keyed sample of the sources (Seed: 32,768 ids, `<|endoftext|>` is 0)."""

    vocab_size: int = Field(32_768, ge=257, le=2**31 - 1, description="ids, that of the end of text included")
    sample_bytes: Bytes = Field(
        26_000_000, description="text to train on, about: a keyed sample of at most half of the documents"
    )
    seed: Seed = Field(2, description="of the sample")


class Tokenizer(Section):
    """An existing tokenizer, or one trained on the sources."""

    path: str | None = Field(None, description="a tokenizer.json or a tiktoken ranks file; absent: train one")
    pattern: Literal["r50k", "cl100k", "o200k"] | None = Field(None, description="for a tiktoken ranks file")
    end_of_text: str = Field("<|endoftext|>", min_length=1, description="the token that ends each document")
    engine: Literal["auto", "gigatoken", "reference"] = Field(
        "auto", description="auto: the faster gigatoken where it can; both give the same ids"
    )
    check_share: float = Field(0.002, ge=0, le=1, description="documents re-encoded with the reference")
    train: TokenizerTraining = Field(
        TokenizerTraining(), description="how one is trained where path is absent"
    )

    @model_validator(mode="after")
    def _pattern_has_ranks(self) -> Self:
        if self.pattern and not self.path:
            raise ValueError("pattern belongs to a tiktoken ranks file; give its path")
        return self


class NearDuplicates(Section):
    """MinHash and locality-sensitive hashing (Seed and FineWeb: 5-word shingles, 112 = 14 bands of 8 rows)."""

    enabled: bool = True
    scope: Scope = Field("corpus", description="crawl is FineWeb's choice")
    compare_scopes: bool = Field(
        False, description="report what every scope would remove; clusters are then made for each of them"
    )
    ngram: int = Field(5, ge=1, le=64, description="words in a shingle")
    hashes: int = Field(112, ge=1, le=MOST_HASHES, description="MinHash values in a signature: bands × rows")
    bands: int = Field(14, ge=1, description="two documents are candidates if one of their bands is equal")
    rows: int = Field(8, ge=1, description="values in a band; `python -m jobs.bands` recommends both")
    hash_seed: Seed = Field(42, description="of the hash functions")
    verify: Literal["none", "signature", "exact"] = Field(
        "none",
        description="candidates below threshold are cut before clusters are formed: by the share of equal values of "
        "their signatures, or by the exact Jaccard similarity of their shingles",
    )
    threshold: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="similarity of the pairs to be found; a banding that misses many is named",
    )
    tree_edges: int = Field(
        50_000_000,
        ge=0,
        description="links between documents that one worker's memory holds, about 80 bytes each; with more, "
        "components are formed in rounds on all workers",
    )

    @model_validator(mode="after")
    def _banding(self) -> Self:
        if self.bands * self.rows != self.hashes:
            raise ValueError(
                f"bands × rows is {self.bands} × {self.rows} = {self.bands * self.rows}, but hashes is {self.hashes}; "
                "the two must be equal"
            )
        if self.verify != "none" and self.threshold is None:
            raise ValueError(
                f"verify is {self.verify}, but threshold is not set; give it, such as threshold: 0.8"
            )
        return self


class Length(Section):
    """A light floor, measured before it is trusted (Seed: 64 tokens)."""

    min_tokens: int = Field(64, ge=0, description="end-of-text token included")
    floors: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (32, 64, 128, 256, 512), description="the report says what each of these would remove"
    )


class Order(Section):
    """One seeded permutation of whole documents (Seed: 1337)."""

    seed: Seed = Field(1337, description="of the permutation")


class Validation(Section):
    """The first documents of the order that overlap no reference set (Seed: 15 million tokens)."""

    tokens: int | None = Field(None, ge=1, description="15,000,000 where neither is given")
    fraction: float | None = Field(
        None, ge=0, lt=1, description="of all kept tokens, instead of tokens; 0: no validation split"
    )
    exclude_tokenizer_sample: bool = Field(
        True, description="the tokenizer's training sample is a reference set"
    )
    references: tuple[Source, ...] = Field((), description="documents that validation must not overlap")
    ngram: int = Field(13, ge=1, le=64, description="normalised words in an n-gram that training may share")
    max_shared: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share of a document's n-grams that training may hold; 1: they are not looked for",
    )

    @model_validator(mode="after")
    def _size(self) -> Self:
        if self.tokens is not None and self.fraction is not None:
            raise ValueError(
                f"tokens is {self.tokens} and fraction is {self.fraction}; set one of them to null"
            )
        _refuse_twice([reference.name for reference in self.references], "references")
        for reference in self.references:
            if reference.format == "packages":
                raise ValueError(
                    f"references names {reference.name!r}, the built-in corpus (format: packages), which can be a "
                    "source but no reference set"
                )
        return self

    def target(self, kept_tokens: int) -> int:
        """Tokens that validation is to hold, of `kept_tokens` in all."""
        if self.fraction is not None:
            return int(self.fraction * kept_tokens)
        return self.tokens if self.tokens is not None else 15_000_000


class Shards(Section):
    """llm.c token files (Seed: 100 million tokens, 200 MB, each)."""

    name: Name = Field("shardmill", description="files are NAME_train_000000.bin and so on")
    tokens: int = Field(
        100_000_000, ge=2, le=536_870_655, description="in a full shard; llm.c takes files below 2 GiB"
    )
    min_tokens: int = Field(
        8 * 16 * 1024 + 1,
        ge=1,
        description="no shard is shorter unless its whole split is: 8 ranks × B 16 × T 1,024 + 1",
    )
    dtype: Literal["auto", "uint16", "uint32"] = Field(
        "auto", description="auto: the smallest that holds the ids"
    )
    formats: tuple[Format, ...] = Field(
        ("llmc",),
        min_length=1,
        description="llmc, which the loader reads and which is always written, and others",
    )
    rows: Rows | None = Field(None, description="samples of one length; absent: whole documents")

    @model_validator(mode="after")
    def _formats(self) -> Self:
        check_formats(self.formats, self.rows)
        return self

    @model_validator(mode="after")
    def _minimum(self) -> Self:
        if 2 * self.min_tokens > self.tokens:
            raise ValueError(
                f"min_tokens is {self.min_tokens:,}, more than half of the {self.tokens:,} tokens of a full shard; "
                "the last two shards could not both hold so many"
            )
        return self


class Report(Section):
    """What the report measures beside the counts."""

    window: int = Field(1024, ge=2, description="tokens in a training window, for the packing arithmetic")
    pairs: int = Field(5, ge=0, le=100, description="near-duplicate pairs shown with their exact similarity")
    examples: int = Field(
        5, ge=0, le=20, description="documents of each fate shown with the beginning of their text"
    )
    max_removed_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="of a source's documents that came to the steps on duplicates; a warning where these removed more",
    )


class SCurve(Section):
    """The seed's experiment: held-out documents, copies with a share of words replaced, flagged or not."""

    documents: int = Field(600, ge=1, description="a keyed sample")
    copies: int = Field(20, ge=1, description="of each")
    max_replaced: float = Field(0.12, gt=0, le=1, description="share of a copy's words replaced, at most")
    seed: Seed = Field(0, description="of the sample and the copies")


class Config(Section):
    """A whole run."""

    sources: tuple[Source, ...] = Field(min_length=1)
    thresholds: tuple[Threshold, ...] = Field((), description="for every source that sets no other")
    urls: Urls = Field(Urls(), description="for every source that sets no other")
    extraction: Extraction = Field(Extraction(), description="for every source that sets no other")
    language: Language = Field(Language(), description="for every source that sets no other")
    quality: Quality = Field(Quality(), description="for every source that sets no other")
    classifiers: tuple[Classifier, ...] = Field((), description="for every source that sets no other")
    repeated_passages: RepeatedPassages = Field(
        RepeatedPassages(), description="for every source that sets no other; reference sets stay as they are"
    )
    personal_data: PersonalData = Field(PersonalData(), description="for every source that sets no other")
    contamination: Contamination = Field(
        Contamination(), description="for every source that does not say sets: []"
    )
    splits: Splits = Splits()
    tokenizer: Tokenizer = Tokenizer()
    keep: Keep = Keep()
    url_duplicates: UrlDuplicates = UrlDuplicates()
    exact_duplicates: ExactDuplicates = ExactDuplicates()
    near_duplicates: NearDuplicates = NearDuplicates()
    length: Length = Length()
    order: Order = Order()
    validation: Validation = Validation()
    shards: Shards = Shards()
    mixture: Mixture | None = Field(None, description="of groups of documents; absent: none")
    report: Report = Report()
    scurve: SCurve = SCurve()
    against: tuple[str, ...] = Field(
        (),
        description="outputs of finished runs, the oldest first; duplicates of their documents are dropped",
    )
    allow_bad_files: int = Field(0, ge=0, description="unreadable files that do not fail the run")

    @model_validator(mode="before")
    @classmethod
    def _inherited(cls, raw: Any) -> Any:
        """A source's settings of its steps begin as those of the whole run."""
        return _with_inherited(raw) if isinstance(raw, dict) else raw

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        extra: dict[str, tuple[str, str]] = {}
        for source in self.sources:
            for name, kind in (source.extra | columns_of(source.classifiers)).items():
                first, other = extra.setdefault(name, (source.name, kind))
                if kind != other:
                    raise ValueError(
                        f"sources {first!r} and {source.name!r} give extra column {name!r} the types {other} and "
                        f"{kind}; it needs one type"
                    )
        _refuse_twice([source.name for source in self.sources], "sources")
        for source in (*self.sources, *self.validation.references):
            if source.contamination.used and source.contamination != self.contamination:
                raise ValueError(
                    f"source {source.name!r} has other settings of contamination than the whole run; it can only say "
                    "contamination: {sets: []}, to look for none"
                )
        trained = None if self.tokenizer.path else self.tokenizer.train.vocab_size
        if self.shards.dtype == "uint16" and trained is not None and trained > 65_536:
            raise ValueError(
                f"shards.dtype is uint16, which holds 65,536 ids, but tokenizer.train.vocab_size is {trained}; "
                "use uint32 or auto"
            )
        return self


# Sections that a source has from the whole run where it does not set them.
STEPS = (
    "thresholds",
    "urls",
    "extraction",
    "language",
    "quality",
    "classifiers",
    "repeated_passages",
    "contamination",
    "personal_data",
)


def _with_inherited(raw: dict[str, Any]) -> dict[str, Any]:
    whole = {key: raw[key] for key in STEPS if isinstance(raw.get(key), dict)}
    lists = {key: raw[key] for key in STEPS if isinstance(raw.get(key), list | tuple)}

    def inherit(source: Any) -> Any:
        if not isinstance(source, dict):
            return source
        own = {key: source.get(key, {}) for key in whole}
        return {**lists, **source} | {
            key: _over(whole[key], value) for key, value in own.items() if isinstance(value, dict)
        }

    def all_of(listed: Any) -> Any:
        return [inherit(source) for source in listed] if isinstance(listed, list | tuple) else listed

    raw = raw | {"sources": all_of(raw.get("sources"))} if "sources" in raw else raw
    validation = raw.get("validation")
    if isinstance(validation, dict) and "references" in validation:
        raw = raw | {"validation": validation | {"references": all_of(validation["references"])}}
    return raw


def _over(whole: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Settings of a source over those of the whole run, key by key; a step that is off inherits nothing."""
    if own.get("enabled") is False:
        return own
    return whole | {
        key: _over(whole[key], value)
        if isinstance(value, dict) and isinstance(whole.get(key), dict)
        else value
        for key, value in own.items()
    }


def presets() -> list[str]:
    """Names of the built-in presets."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load(presets_or_files: str = "sample", settings: Sequence[str] = ()) -> Config:
    """Read presets or YAML files, each over those before, apply `section.key=value` settings, validate the whole.

    Raises
    ------
    UserError
        One sentence for each thing that is wrong, naming the key, the value and what would be right.
    """
    raw: dict[str, Any] = {}
    for one in names(presets_or_files):
        raw = _laid_over(raw, _read(one))
    for setting in settings:
        apply(raw, setting)
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise UserError(said(error)) from None


def said(error: ValidationError, section: tuple[str, ...] = ()) -> str:
    """One sentence for each thing that is wrong in the configuration, or in a section of it."""
    errors: list[Any] = [{**one, "loc": (*section, *one["loc"])} for one in error.errors()]
    deepest = [e for e in errors if not any(_below(other["loc"], e["loc"]) for other in errors)]
    whole = [e for e in deepest if not any(_inherits(e["loc"], other["loc"]) for other in deepest)]
    return "\n".join(_sentences(whole))


def _sentences(errors: list[Any]) -> Iterator[str]:
    """A sentence for each; what is wrong alike in several sources is said once."""
    alike: dict[str, list[Any]] = {}
    for e in errors:
        of_source = e["loc"][:1] == ("sources",) and e["loc"][1:2]
        alike.setdefault(_sentence({**e, "loc": ("sources", *e["loc"][2:])} if of_source else e), []).append(
            e
        )
    for first, *others in alike.values():
        too = ", ".join(f"sources.{e['loc'][1]}" for e in others if e["loc"][:1] == ("sources",))
        yield _sentence(first) + (f" ({too} too)" if too else "")


def names(presets_or_files: str) -> list[str]:
    """The presets and files that are named with commas between; a file may have commas in its own name."""
    return [presets_or_files] if Path(presets_or_files).is_file() else presets_or_files.split(",")


def _laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Key by key where both are sections; lists and values are replaced whole."""
    return below | {
        key: _laid_over(below[key], value)
        if isinstance(value, dict) and isinstance(below.get(key), dict)
        else value
        for key, value in above.items()
    }


def _read(preset_or_file: str) -> dict[str, Any]:
    path = PRESETS / f"{preset_or_file}.yaml" if preset_or_file in presets() else Path(preset_or_file)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"there is no configuration {preset_or_file!r}: neither a preset ({', '.join(presets())}) nor a file"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path} should hold sections such as `sources:`; it holds {type(raw).__name__}")
    return raw


def apply(raw: dict[str, Any], setting: str) -> None:
    """Set one dotted key in place; a number in the key is an index into a list."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set takes section.key=value, but was given {setting!r}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"--set {key}: {text!r} is not YAML") from None
    *parents, last = key.strip().split(".")
    node: Any = raw
    for step in parents:
        if isinstance(node, dict) and node.get(step) is None:
            node[step] = {}
        node = _child(node, step, key)
    if isinstance(node, list):
        _child(node, last, key)
        node[int(last)] = value
    elif (
        isinstance(node, dict)
        and parents[-1:]
        and parents[-1] in STEPS
        and (last, value) == ("enabled", False)
    ):
        node.clear()  # what a preset set for a step would be refused once it is switched off
        node[last] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise UserError(f"--set {key}: {'.'.join(parents)} is a single value and has no keys below it")


def _child(node: Any, step: str, key: str) -> Any:
    if isinstance(node, dict):
        return node[step]
    if isinstance(node, list) and step.isdigit() and int(step) < len(node):
        return node[int(step)]
    if isinstance(node, list):
        raise UserError(f"--set {key}: {step!r} is no place in a list of {len(node)} (they count from 0)")
    raise UserError(f"--set {key}: there is nothing below {step!r}")


def _below(location: tuple[str | int, ...], parent: tuple[str | int, ...]) -> bool:
    return len(location) > len(parent) and location[: len(parent)] == parent


def _inherits(location: tuple[str | int, ...], other: tuple[str | int, ...]) -> bool:
    """Whether a source's location repeats one of the whole run."""
    return len(location) > len(other) and location[-len(other) :] == other and "sources" in location


def _sentence(error: Any) -> str:
    """One plain sentence for one of pydantic's errors."""
    key = ".".join(str(step) for step in error["loc"])
    value, message = error["input"], error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), _keys_beside(error["loc"]), n=1)
        suggestion = ".".join([*(str(step) for step in error["loc"][:-1]), *near])
        return f"{key} is not a setting" + (f"; did you mean {suggestion}?" if near else "")
    if error["type"] == "missing":
        return f"{key} is missing"
    if error["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if error["type"] in {"model_type", "dict_type"}:
        return f"{key} is {value!r}, but it should be a section with keys of its own"
    if error["type"] in {"tuple_type", "list_type"}:
        return f"{key} is {value!r}, but it should be a list"
    if value is None:
        return f"{key} has no value: {message[:1].lower()}{message[1:]}"
    return f"{key} is {value!r}: {message[:1].lower()}{message[1:]}"


def _keys_beside(location: tuple[str | int, ...]) -> list[str]:
    model: Any = Config
    for step in location[:-1]:
        if isinstance(step, str) and isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[step].annotation
            inner = [
                m for m in getattr(model, "__args__", ()) if isinstance(m, type) and issubclass(m, BaseModel)
            ]
            model = inner[0] if inner else model
    return list(getattr(model, "model_fields", {}))
