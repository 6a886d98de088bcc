"""What a tokenizer's file says: its ids, its reference library, and whether gigatoken does the same.

Two formats: `tokenizer.json`, whose reference is the library `tokenizers`, and tiktoken's ranks (a line for each
token: its bytes in base64, a space, its rank), whose reference is `tiktoken`. A ranks file says neither how text is
split nor which special tokens there are; that is `PATTERNS`, as in tiktoken 0.14's `tiktoken_ext/openai_public.py`.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from jobs.errors import UserError

Tokenize = Callable[[str], list[int]]
SPELLED_AT_ONCE = 2**20  # ids
NO_TOKEN = "\ufffd".encode()  # what an id decodes to that the tokenizer does not have

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
O200K = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{CONTRACTION}?",
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{CONTRACTION}?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


class ReferenceLibraryError(Exception):
    """The reference library gives up on a text, as tiktoken does on a million spaces."""


def is_panic(error: BaseException) -> bool:
    """Whether a Rust library panicked; the exception's class cannot be imported and is no `Exception`."""
    return type(error).__name__ == "PanicException"


class Pattern(NamedTuple):
    """How a published encoding splits text, and its special tokens."""

    regex: str
    ranks: int  # in the published file
    special: dict[str, int]


PATTERNS = {
    "r50k": Pattern(
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
        50_256,
        {"<|endoftext|>": 50_256},
    ),
    "cl100k": Pattern(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        100_256,
        {
            "<|endoftext|>": 100_257,
            "<|fim_prefix|>": 100_258,
            "<|fim_middle|>": 100_259,
            "<|fim_suffix|>": 100_260,
            "<|endofprompt|>": 100_276,
        },
    ),
    "o200k": Pattern(O200K, 199_998, {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}),
}


def _split(digits: str, newlines: str) -> str:
    """The family of cl100k's split: Llama 3 and OLMo 2 differ in the newlines, Qwen 2 in the digits too."""
    return (
        rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        rf"|\s*{newlines}|\s+(?!\S)|\s+"
    )


# Splits of a tokenizer.json with which gigatoken was held against `tokenizers` for every code point.
KNOWN_SPLITS = {
    "GPT-2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": _split(r"\p{N}{1,3}", r"[\r\n]"),
    "cl100k, possessive": PATTERNS["cl100k"].regex + "+",
    "Llama 3": _split(r"\p{N}{1,3}", r"[\r\n]+"),
    "Qwen 2": _split(r"\p{N}", r"[\r\n]+"),
    "o200k": O200K,
}


class Definition(Protocol):
    """A tokenizer as its file defines it."""

    raw: bytes  # the file
    library: str  # the reference
    end_of_text_id: int
    vocab_size: int  # one more than the largest id

    def reference(self) -> Tokenize:
        """Ids of a text by the reference library, without special tokens; those in the text are spelled out."""

    def gigatoken(self) -> Any:
        """A new gigatoken tokenizer that knows no special token, so that it spells them out."""

    def obstacle(self) -> str | None:
        """Why gigatoken's ids could differ from the reference's; None when they cannot."""

    def decode(self, ids: NDArray[Any]) -> bytes:
        """The bytes that the ids stand for: a special token's name, U+FFFD for an id that there is not."""


def read(path: str, pattern: str | None, end_of_text: str) -> Definition:
    """Read a tokenizer's file.

    Parameters
    ----------
    path : str
        A `tokenizer.json` or a tiktoken ranks file, told apart by their content.
    pattern : {"r50k", "cl100k", "o200k"}, optional
        For a ranks file, and only there.
    end_of_text : str
        The token that ends each document.

    Raises
    ------
    UserError
        The file cannot be read or used, or has no such token, or the pattern is unknown, missing or too many.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"the tokenizer {path} cannot be read: {error.strerror or error}") from None
    if pattern is not None and pattern not in PATTERNS:
        raise UserError(f"there is no pattern {pattern!r}; there are {', '.join(PATTERNS)}")
    if raw.lstrip()[:1] == b"{":
        if pattern is not None:
            raise UserError(
                f"{path} is a tokenizer.json, which says how text is split; leave the pattern out"
            )
        return TokenizerJson(path, raw, end_of_text)
    return Ranks(path, raw, pattern, end_of_text)


class TokenizerJson:
    """A `tokenizer.json`.

    Truncation, padding and the tokens that a post-processor adds are left out: a document is encoded whole and
    alone. The end-of-text token is special whatever the file says.
    """

    library = "tokenizers"

    def __init__(self, path: str, raw: bytes, end_of_text: str) -> None:
        self.raw = raw
        self.definition = _parsed(path, raw)
        for token in self.definition["added_tokens"]:
            token["special"] = token["special"] or token["content"] == end_of_text
        self._reference = self._load(path)
        self._vocabulary: dict[str, int] = self._reference.get_vocab(with_added_tokens=True)
        self.vocab_size = 1 + max(self._vocabulary.values(), default=-1)
        if end_of_text not in self._vocabulary:
            special = [token["content"] for token in self._added(special=True)]
            raise UserError(
                f"the tokenizer {path} has no token {end_of_text!r} to end a document with; "
                f"its special tokens are {', '.join(map(repr, special)) or 'none'}"
            )
        self.end_of_text_id = self._vocabulary[end_of_text]

    def _load(self, path: str) -> Any:
        import tokenizers

        try:
            reference = tokenizers.Tokenizer.from_str(json.dumps(self.definition))
        except Exception as error:  # the library raises nothing more particular
            raise UserError(f"{path} is no tokenizer.json that `tokenizers` can load: {error}") from None
        reference.encode_special_tokens = True
        return reference

    def _added(self, special: bool) -> list[dict[str, Any]]:
        return [token for token in self.definition["added_tokens"] if token["special"] == special]

    def reference(self) -> Tokenize:
        """Ids by `tokenizers`."""
        encode = self._reference.encode
        return lambda text: encode(text, add_special_tokens=False).ids

    def gigatoken(self) -> Any:
        """Load with gigatoken, special tokens dropped."""
        import gigatoken

        # Tokens that are added but not special are found in text by `tokenizers` too.
        found = [{**token, "id": self._vocabulary[token["content"]]} for token in self._added(special=False)]
        return gigatoken.Tokenizer.from_json(json.dumps({**self.definition, "added_tokens": found}))

    def obstacle(self) -> str | None:
        """First of the features that gigatoken lacks or may treat otherwise."""
        return next(self._obstacles(), None)

    def _obstacles(self) -> Iterator[str]:
        model = self.definition["model"]
        if model.get("type", "BPE") != "BPE" or model.get("byte_fallback"):
            yield "its model is not byte-level BPE"
        for feature in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(feature):
                yield f"its model has {feature}"
        if self.definition.get("normalizer"):
            yield "it normalizes text"
        if not _is_known_split(self.definition.get("pre_tokenizer")):
            yield "it splits text in a way of its own"
        spelled = [_unicode_to_bytes(token) for token in model["vocab"]]
        if len(set(spelled)) < len(spelled) or not {bytes([byte]) for byte in range(256)}.issubset(spelled):
            yield "its vocabulary spells some bytes twice or not at all"
        if _has_tied_merges(model):
            yield "two of its merges make the same token"
        if _added_tokens_interfere(self._added(special=False), self._added(special=True)):
            yield "its added tokens are more than plain strings"

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        added = {token["content"] for token in self.definition["added_tokens"]}
        return {
            token_id: token.encode() if token in added else _unicode_to_bytes(token)
            for token, token_id in self._vocabulary.items()
        }

    def decode(self, ids: NDArray[Any]) -> bytes:
        """By the vocabulary where its tokens stand for bytes, else by `tokenizers`, as it writes text again."""
        if (self.definition.get("decoder") or {}).get("type") == "ByteLevel":
            return _spelled(self._bytes, ids)
        return bytes(self._reference.decode(ids.tolist(), skip_special_tokens=False).encode())


def _parsed(path: str, raw: bytes) -> dict[str, Any]:
    """The parts of a tokenizer.json that matter here; refused where its ids would be left to chance."""
    try:
        definition = json.loads(raw)
    except ValueError as error:
        raise UserError(f"{path} is neither a tokenizer.json nor a tiktoken ranks file: {error}") from None
    added = definition.get("added_tokens") or []
    if not isinstance(definition.get("model"), dict) or not all("content" in token for token in added):
        raise UserError(
            f"{path} is JSON, but no tokenizer.json: it has no model, or added tokens without content"
        )
    if definition["model"].get("dropout"):
        raise UserError(f"the tokenizer {path} drops merges at random; set its model's dropout to null")
    added = [{"special": False, **token} for token in added]
    return {
        **definition,
        "added_tokens": added,
        "truncation": None,
        "padding": None,
        "post_processor": None,
    }


def _is_known_split(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Whether text is split as GPT-2 does, or by one of `KNOWN_SPLITS`, and then spelled in bytes."""
    steps = (pre_tokenizer or {}).get("pretokenizers", [pre_tokenizer])
    *splits, last = [step or {} for step in steps] or [{}]
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space", True):
        return False
    if not splits:
        return bool(last.get("use_regex", True))
    (split, *more) = splits
    return (
        not more
        and not last.get("use_regex", True)
        and split.get("type") == "Split"
        and split.get("behavior") == "Isolated"
        and not split.get("invert")
        and split.get("pattern", {}).get("Regex") in KNOWN_SPLITS.values()
    )


def _has_tied_merges(model: dict[str, Any]) -> bool:
    """Whether gigatoken, which orders merges by the ids they make, could take two in another order."""
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    made = [model["vocab"]["".join(pair)] for pair in pairs]
    tied = any(a == b for a, b in pairwise(made)) and all(a <= b for a, b in pairwise(made))
    return tied or len(set(map(tuple, pairs))) < len(pairs)


def _added_tokens_interfere(found: list[dict[str, Any]], spelled_out: list[dict[str, Any]]) -> bool:
    """Whether added tokens that are not special differ from plain strings to be found in text.

    They do when they take spaces with them or need word boundaries, are searched for in two rounds, or overlap with
    a special token, which `tokenizers` finds first and then leaves alone.
    """
    flags = ("single_word", "lstrip", "rstrip")
    rounds = {token.get("normalized", True) for token in found}
    return (
        len(rounds) > 1
        or any(token.get(flag) for token in found for flag in flags)
        or any(_can_overlap(a["content"], b["content"]) for a in found for b in spelled_out)
    )


def _can_overlap(a: str, b: str) -> bool:
    shorter = min(len(a), len(b))
    ends_meet = any(a.endswith(b[:n]) or b.endswith(a[:n]) for n in range(1, shorter + 1))
    return ends_meet or a in b or b in a


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable ones as themselves, the others as the characters from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_ALPHABET = _byte_alphabet()


def _unicode_to_bytes(token: str) -> bytes:
    """The bytes that a byte-level token spells; a token of other characters is taken as it stands."""
    try:
        return bytes(map(BYTE_ALPHABET.__getitem__, token))
    except KeyError:
        return token.encode()


class Ranks:
    """A tiktoken ranks file with its pattern.

    The published files have their published special tokens. Another file's end-of-text token takes the first id
    after its ranks.
    """

    library = "tiktoken"

    def __init__(self, path: str, raw: bytes, pattern: str | None, end_of_text: str) -> None:
        self.raw, self.path = raw, path
        self.ranks = _parsed_ranks(path, raw)
        if pattern is None:
            raise UserError(
                f"{path} is a tiktoken ranks file, which does not say how text is split; "
                f"name its pattern: {', '.join(PATTERNS)}"
            )
        self.pattern = pattern
        published = len(self.ranks) == PATTERNS[pattern].ranks
        self.special = PATTERNS[pattern].special if published else {end_of_text: 1 + max(self.ranks.values())}
        if end_of_text not in self.special:
            raise UserError(
                f"{pattern} has no token {end_of_text!r} to end a document with; it has {', '.join(self.special)}"
            )
        self.end_of_text_id = self.special[end_of_text]
        self.vocab_size = 1 + max(self.special.values())

    def reference(self) -> Tokenize:
        """Ids by `tiktoken`."""
        import tiktoken

        encoding = tiktoken.Encoding(
            self.pattern,
            pat_str=PATTERNS[self.pattern].regex,
            mergeable_ranks=self.ranks,
            special_tokens=self.special,
        )

        def tokenize(text: str) -> list[int]:
            try:
                return encoding.encode_ordinary(text)
            except BaseException as error:
                if is_panic(error):
                    raise ReferenceLibraryError(
                        f"tiktoken cannot encode a text of {len(text):,} characters"
                    ) from None
                raise

        return tokenize

    def gigatoken(self) -> Any:
        """Load with gigatoken, without special tokens."""
        import gigatoken

        return gigatoken.Tokenizer.from_tiktoken(self.path, self.pattern, special_tokens={})

    def obstacle(self) -> str | None:
        """Ranks that leave ids out: gigatoken takes a line's number for its rank."""
        dense = list(self.ranks.values()) == list(range(len(self.ranks)))
        return None if dense else "its ranks do not count up from 0"

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        special = {token_id: token.encode() for token, token_id in self.special.items()}
        return {rank: token for token, rank in self.ranks.items()} | special

    def decode(self, ids: NDArray[Any]) -> bytes:
        """By the ranks."""
        return _spelled(self._bytes, ids)


def _spelled(names: dict[int, bytes], ids: NDArray[Any]) -> bytes:
    """The names of ids, joined; some at a time, since a Python integer takes 36 bytes."""
    pieces = (ids[start : start + SPELLED_AT_ONCE].tolist() for start in range(0, len(ids), SPELLED_AT_ONCE))
    return b"".join(b"".join(names.get(token_id, NO_TOKEN) for token_id in piece) for piece in pieces)


def _parsed_ranks(path: str, raw: bytes) -> dict[bytes, int]:
    """Each token's rank, in the file's order."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise UserError(
                f"{path} is neither a tokenizer.json nor a tiktoken ranks file: "
                f"line {number} is not a token in base64 and its rank"
            ) from None
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise UserError(
            f"the ranks file {path} has no token for {len(missing)} of the 256 bytes, {missing[0]} first"
        )
    return ranks
