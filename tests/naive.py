"""The slow, obvious form of each kernel. The kernels are right when they give what these give."""

import hashlib
import ipaddress
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import xxhash

from kernels.full_stops import ABBREVIATIONS
from kernels.line_rules import LineRules
from kernels.personal_data import IBAN_COUNTRIES
from kernels.words import SPACELESS_SCRIPTS

MASK = 2**64 - 1


def words(text: str) -> list[str]:
    """Runs of word characters; in scripts without spaces, each character with its marks."""
    kinds = "".join(map(kind, text))
    return [lower(text[run.start() : run.end()]) for run in re.finditer("cm*|[wm]+", kinds)]


def kind(character: str) -> str:
    """``w``ord character, ``c``haracter of a script without spaces, ``m``ark or separator (a space)."""
    category = unicodedata.category(character)
    if category.startswith("M"):
        return "m"
    if not category.startswith(("L", "N")) and category != "Pc":
        return " "
    spaceless = any(first <= ord(character) <= last for first, last in SPACELESS_SCRIPTS.values())
    return "c" if spaceless else "w"


def lower(text: str) -> str:
    return "".join(character.lower() for character in text)


def shingles(text: str, ngram: int) -> list[int]:
    """Hashes of the different runs of `ngram` words; of all words, where there are fewer."""
    found = words(text)
    n_runs = max(len(found) - ngram + 1, 1 if found else 0)
    runs = {" ".join(found[i : i + ngram]) for i in range(n_runs)}
    return sorted({xxhash.xxh3_64_intdigest(run.encode()) for run in runs})


def ngram_features(text: str, longest: int, bits: int) -> dict[int, int]:
    """How often each bucket occurs."""
    found = words(text)
    grams = [" ".join(found[i : i + n]) for n in range(1, longest + 1) for i in range(len(found) - n + 1)]
    return dict(Counter(xxhash.xxh3_64_intdigest(gram.encode()) >> (64 - bits) for gram in grams))


def unit_vector(features: dict[int, int]) -> dict[int, float]:
    """1 + ln(count) of each, scaled to length 1."""
    values = {bucket: 1 + math.log(count) for bucket, count in features.items()}
    length = math.sqrt(sum(value**2 for value in values.values()))
    return {bucket: value / length for bucket, value in values.items()}


def fasttext_hash(piece: bytes) -> int:
    """FNV-1a of 32 bits, each byte with its sign."""
    value = 2166136261
    for byte in piece:
        value = (value ^ (byte - 256 * (byte > 127))) * 16777619 % 2**32
    return value


def fasttext_rows(
    line: bytes,
    words: Sequence[bytes],
    n_buckets: int,
    sizes: tuple[int, int],
    longest_words: int,
    kept: dict[int, int] | None,
) -> list[int]:
    """Rows of a line's words, of their character n-grams (`sizes` are the least and the most), and of word n-grams."""
    found, hashes = [], []
    for word in [*re.split(rb"[ \n\r\t\v\f\0]+", line), b"</s>"]:
        if not word or (word not in words and word.startswith(b"__label__")):
            continue
        hashes.append((fasttext_hash(word) ^ 2**31) - 2**31)  # with its sign
        found += [words.index(word)] if word in words else []
        if word == b"</s>":
            break
        characters = re.findall(rb"[^\x80-\xbf][\x80-\xbf]*", b"<%s>" % word)
        for i in range(len(characters)):
            for n in range(max(sizes[0], 1), sizes[1] + 1):
                if i + n <= len(characters) and (n > 1 or 0 < i < len(characters) - 1):
                    found.append(len(words) + fasttext_hash(b"".join(characters[i : i + n])) % n_buckets)
    for i, value in enumerate(hashes):
        for other in hashes[i + 1 : i + longest_words]:
            value = (value * 116049371 + other) % 2**64
            found.append(len(words) + value % n_buckets)
    if kept is None:
        return found
    behind = {len(words) + bucket: len(words) + row for bucket, row in kept.items()}
    return [behind.get(row, row) for row in found if row < len(words) or row in behind]


def fasttext_probabilities(
    mean: np.ndarray, weights: np.ndarray, counts: Sequence[int], loss: str
) -> list[float]:
    """Of each label: hierarchical softmax (`hs`), `softmax`, or a sigmoid each (`ova`)."""
    margins = (weights.astype(float) @ mean).tolist()
    if loss == "hs":
        return _on_paths(margins, counts)
    if loss == "softmax":
        shares = [math.exp(margin - max(margins)) for margin in margins]
        return [min(share / sum(shares) + 1e-5, 1) for share in shares]
    return [min(1 / (1 + math.exp(-max(-30, min(30, margin)))) + 1e-5, 1) for margin in margins]


def _on_paths(margins: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Products of shares on the way to each leaf of a Huffman tree, whose inner nodes come in order."""
    waiting = [(count, True, -label, (label,)) for label, count in enumerate(counts)]
    found = [1.0] * len(counts)
    for node in range(len(counts) - 1):
        waiting.sort()
        left, right, *waiting = waiting
        share = 1 / (1 + math.exp(-margins[node]))
        for label in left[3]:
            found[label] *= 1 - share + 1e-5
        for label in right[3]:
            found[label] *= share + 1e-5
        waiting.append((left[0] + right[0], False, node, left[3] + right[3]))
    return [min(one, 1) if one >= 1e-5 else 0 for one in found]


def jaccard(a: Iterable[int], b: Iterable[int]) -> float:
    a, b = set(a), set(b)
    return len(a & b) / len(a | b) if a | b else 0.0


def mix64(x: int) -> int:
    """MurmurHash3's 64-bit finalizer."""
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def signature(text: str, seeds: Sequence[int], ngram: int) -> list[int]:
    hashes = shingles(text, ngram)
    if not hashes:
        return [0xFFFFFFFF] * len(seeds)
    return [min(mix64(x ^ int(seed)) for x in hashes) >> 32 for seed in seeds]


def band_keys(signature: Sequence[int], bands: int, rows: int) -> list[int]:
    keys = []
    for band in range(bands):
        values = [band, *signature[band * rows : (band + 1) * rows]]
        keys.append(xxhash.xxh3_64_intdigest(b"".join(int(v).to_bytes(4, "little") for v in values)))
    return keys


def star_forest(edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Let the smallest label spread along the edges until nothing changes."""
    edges = list(edges)
    root = {node: node for edge in edges for node in edge}
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            smallest = min(root[a], root[b])
            changed = changed or root[a] != smallest or root[b] != smallest
            root[a] = root[b] = smallest
    return sorted(root.items())


def key(purpose: str, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(purpose.encode() + b"\0" + str(seed).encode())


def keyed_hash(document: int, key: int) -> int:
    return mix64(document ^ mix64(key))


def doc_id(file_key: int, record: int) -> int:
    return mix64(file_key ^ mix64(record))


def seeded_order(ids: Sequence[int], key: int) -> list[int]:
    return sorted(range(len(ids)), key=lambda i: (keyed_hash(ids[i], key), ids[i]))


def packing(lengths: Sequence[int], window: int) -> dict[str, float]:
    """Lay the stream out, token by token, each as the number of its document; then cut and count."""
    stream = [document for document, length in enumerate(lengths) for _ in range(length)]
    whole = len(stream) // window
    windows = [stream[i * window : (i + 1) * window] for i in range(whole)]
    rows = sum(-(-length // window) for length in lengths)
    behind = sum(document != tokens[0] for tokens in windows for document in tokens)
    return {
        "window": window,
        "documents": len(lengths),
        "tokens": len(stream),
        "mean_length": len(stream) / len(lengths) if lengths else 0,
        "windows": whole,
        "remainder": len(stream) - whole * window,
        "share_with_boundary": sum(len(set(tokens)) > 1 for tokens in windows) / whole if whole else 0,
        "documents_per_window": sum(len(set(tokens)) for tokens in windows) / whole if whole else 0,
        "share_after_boundary": behind / (whole * window) if whole else 0,
        "padded_rows": rows,
        "padding_share": (rows * window - len(stream)) / (rows * window) if rows else 0,
    }


def gather(
    store: np.ndarray,
    starts: Sequence[int],
    lengths: Sequence[int],
    out: np.ndarray,
    out_starts: Sequence[int],
) -> None:
    for start, length, out_start in zip(starts, lengths, out_starts, strict=True):
        out[out_start : out_start + length] = store[start : start + length]


# ---------------------------------------------------------------- quality rules

CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
POLICY_PHRASES = (
    *("terms of use", "privacy policy", "cookie policy"),
    *("uses cookies", "use of cookies", "use cookies"),
)


def segments(text: str) -> list[str]:
    """Words as they are written, and every other visible character; see `kernels.segmentation`."""
    found: list[str] = []
    inside = ""  # of a "word", or of a "symbol"
    for i, character in enumerate(text):
        is_word = segment_kind(character) in "wm"
        joint = symbol_behind_word(text, i) if inside == "word" and segment_kind(character) == " " else ""
        repeats = inside == "symbol" and character in ".-" and text[i - 1] == character
        if character.isspace():
            inside = ""
        elif joint == "opens":
            found.append(character)
        elif joint in ("within", "closes"):
            found[-1] += character
            inside = "word" if joint == "within" else "symbol"
        elif repeats or (is_word and inside == "word") or (kind(character) == "m" and inside):
            found[-1] += character
        else:
            found.append(character)
            inside = "word" if is_word else "symbol"
    return found


def segment_kind(character: str) -> str:
    return "w" if character == "|" else kind(character)


def symbol_behind_word(text: str, i: int) -> str:
    """Whether it ``opens`` the next word, lies ``within`` a word, ``closes`` the word before it, or is ``apart``."""
    before, symbol, after = text[i - 1], text[i], text[i + 1 : i + 2]
    letters, digits = (before + after).isalpha(), (before + after).isdecimal()
    categories = [unicodedata.category(c) for c in (before, symbol, after or " ")]
    splits = (
        (symbol == "." and categories[0] == "Ll" and categories[2] == "Lu")
        or (symbol in ",~-–—" and letters)
        or (symbol in "-+*^" and digits)
        or (symbol in ":<>=/" and after.isalpha())
        or symbol == "…"
        or categories[1] == "So"
    )
    if symbol in "'’" and after.isalpha() and segment_kind(after) == "w":
        return "opens"
    if after and segment_kind(after) == "w" and not splits:
        return "within"
    belongs = symbol == "." and after != "." and not is_full_stop(text, i, set(ABBREVIATIONS))
    return "closes" if belongs else "apart"


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def duplicates(items: Sequence[str]) -> tuple[int, int]:
    """How many items occurred before, and the characters in them."""
    repeated = [item for i, item in enumerate(items) if item in items[:i]]
    return len(repeated), sum(map(len, repeated))


def top_gram(words: Sequence[str], n: int) -> int:
    grams = [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
    best = max(grams, key=grams.count, default="")
    return len(best) * grams.count(best)


def duplicate_gram(words: Sequence[str], n: int) -> int:
    seen: set[str] = set()
    total = i = 0
    while i + n <= len(words):
        gram = "".join(words[i : i + n])
        total += len(gram) if gram in seen else 0
        i += n if gram in seen else 1
        seen.add(gram)
    return total


def gopher_quality(text: str, symbols: set[str], stop_words: Iterable[str]) -> dict[str, float]:
    found, lines = segments(text), text.splitlines()
    sizes = [len(word) for word in found if set(word) - symbols]
    return {
        "words": len(sizes),
        "segments": len(found),
        "mean_word_length": share(sum(sizes), len(sizes)),
        "hashes_per_word": share(text.count("#"), len(found)),
        "ellipses_per_word": share(text.count("...") + text.count("…"), len(found)),
        "bullet_lines": share(sum(line.lstrip().startswith(("•", "-")) for line in lines), len(lines)),
        "ellipsis_lines": share(sum(line.rstrip().endswith(("...", "…")) for line in lines), len(lines)),
        "words_with_letter": share(sum(any(map(str.isalpha, word)) for word in found), len(found)),
        "stop_words": len(set(stop_words) & set(found)),
        "spaceless_words": share(sum(kind(word[0]) == "c" for word in found), len(found)),
    }


def gopher_repetition(text: str) -> dict[str, float]:
    paragraphs, lines = re.split(r"\n{2,}", text.strip()), re.split(r"\n+", text)
    found = segments(text)
    return {
        "characters": len(text),
        "duplicate_paragraphs": share(duplicates(paragraphs)[0], len(paragraphs)),
        "duplicate_paragraph_characters": share(duplicates(paragraphs)[1], len(text)),
        "duplicate_lines": share(duplicates(lines)[0], len(lines)),
        "duplicate_line_characters": share(duplicates(lines)[1], len(text)),
        **{f"top_{n}_gram_characters": share(top_gram(found, n), len(text)) for n in (2, 3, 4)},
        **{
            f"duplicate_{n}_gram_characters": share(duplicate_gram(found, n), len(text)) for n in range(5, 11)
        },
    }


def fineweb(text: str, line_ends: str, short_line: int) -> dict[str, float]:
    lines = [line for line in text.split("\n") if line.strip()]
    return {
        "lines": len(lines),
        "terminal_lines": share(sum(line.endswith(tuple(line_ends)) for line in lines), len(lines)),
        "short_lines": share(sum(len(line) <= short_line for line in lines), len(lines)),
        "duplicate_line_characters": share(duplicates(lines)[1], len(text.replace("\n", ""))),
        "line_feeds_per_word": share(text.count("\n"), len(segments(text))),
    }


def boilerplate(line: str) -> bool:
    return "javascript" in line.lower() or any(phrase in line.lower() for phrase in POLICY_PHRASES)


def additions(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line.strip()]
    return {
        "mean_line_length": share(sum(map(len, lines)), len(lines)),
        "boilerplate_lines": share(sum(map(boilerplate, lines)), len(lines)),
        "placeholder_lines": sum("lorem ipsum" in line.lower() for line in lines),
    }


def c4_line(line: str, rules: LineRules) -> tuple[str, str]:
    """What becomes of a line, and the line without citations."""
    words = line.split()
    if any(len(word) > rules.max_word_length for word in words):
        return "long_word", line
    line = CITATION.sub("", line) if rules.citations else line
    words = words if rules.words_before_citations else line.split()
    ends = ("", '.?!"', ".?!\"'")[rules.end_marks]
    if ends and (not line.endswith(tuple(ends)) or line.endswith("...")):
        return "no_end_mark", line
    if len(words) < rules.min_words:
        return "few_words", line
    if rules.javascript and "javascript" in line.lower():
        return "javascript", line
    if rules.policy and any(phrase in line.lower() for phrase in POLICY_PHRASES):
        return "policy", line
    return "kept", line


def c4(
    text: str, rules: LineRules, ends: set[str], abbreviations: Iterable[str]
) -> tuple[dict[str, float], str]:
    verdicts = [c4_line(line.strip(), rules) for line in text.splitlines()]
    fates, kept = [fate for fate, _ in verdicts], [line for fate, line in verdicts if fate == "kept"]
    judged = ("kept", "javascript", "policy")

    def first(phrase: str, fates: Sequence[str]) -> int:
        lines = enumerate(verdicts, 1)
        return next((i for i, (fate, line) in lines if fate in fates and phrase in line.lower()), 0)

    statistics: dict[str, float] = {"lines": len(verdicts), "kept_lines": len(kept)}
    for fate in ("long_word", "no_end_mark", "few_words", "javascript", "policy"):
        statistics[f"{fate}_lines"] = fates.count(fate)
    statistics["lorem_ipsum_line"] = first("lorem ipsum", judged)
    statistics["curly_bracket_line"] = first("{", ("kept", "policy"))
    statistics["sentences"] = sum(sentences(line, ends, set(abbreviations)) for line in kept)
    return statistics, "\n".join(kept).strip()


def sentences(line: str, ends: set[str], abbreviations: set[str]) -> int:
    """One, and one for each end of a sentence that something other than space and punctuation follows."""

    def is_mark(i: int) -> bool:
        return line[i] in ends or unicodedata.category(line[i]).startswith("P")

    count, i = 1, 0
    while i < len(line):
        if line[i] not in ends:
            i += 1
            continue
        end = i
        while end < len(line) and is_mark(end):
            end += 1
        ended = any(
            line[j] in ends and (line[j] != "." or is_full_stop(line, j, abbreviations))
            for j in range(i, end)
        )
        if end < len(line) and not line[end].isspace():
            around = [unicodedata.category(c) for c in line[max(i - 1, 0) : i + 2]]
            ended = line[i:end] == "." and i > 0 and around[0] == "Ll" and around[-1] == "Lu"
        while ended and end < len(line) and (is_mark(end) or line[end].isspace()):
            end += 1
        count += ended and end < len(line)
        i = end
    return count


def is_full_stop(text: str, i: int, abbreviations: set[str]) -> bool:
    """Whether a full stop ends a sentence: no ellipsis, initial, single letter or abbreviation."""
    if ".." in text[max(i - 1, 0) : i + 2]:
        return False
    if i == 0:
        return True
    if unicodedata.category(text[i - 1]) == "Lu":
        return i > 1 and unicodedata.category(text[i - 2]) == "Lu"
    short = re.search(r"[A-Za-z.]*$", text[max(i - 10, 0) : i])
    assert short
    if unicodedata.category(text[i - 1]) == "Ll" and len(short[0]) == 1:
        return False
    return short[0] not in abbreviations


def places(text: str, entries: Iterable[str], whole_words: bool) -> int:
    """Places where an entry begins, with no character of a word beside it."""

    def free(i: int) -> bool:
        return not whole_words or not 0 <= i < len(text) or kind(text[i]) == " "

    return sum(
        any(text.startswith(entry, i) and free(i - 1) and free(i + len(entry)) for entry in entries if entry)
        for i in range(len(text))
    )


def may_repeat(keys, log2_places):
    """Whether another of the keys begins with the same `log2_places` bits."""
    places = Counter(key >> (64 - log2_places) for key in keys)
    return [places[key >> (64 - log2_places)] > 1 for key in keys]


def canonical_url(url: bytes, rules, patterns: Sequence[bytes]) -> bytes:
    """One URL in the form of `kernels.canonical_urls`, part by part."""
    url = url.strip(bytes(range(33)))
    scheme = re.match(rb"([A-Za-z][A-Za-z0-9+.-]*)://", url)
    name = scheme[1].lower() if scheme else b""
    rest = url[scheme.end() :] if scheme else url
    before, _, fragment = rest.partition(b"#")
    authority = re.match(rb"[^/?]*", before)[0] if scheme else b""
    path, question, query = before[len(authority) :].partition(b"?")
    host = re.match(rb"[^/?#]*", rest)[0]
    if not scheme and (b"." not in host or any(byte <= 32 for byte in host)):
        return b""
    found = b""
    if scheme and not (rules.ignore_scheme and name in (b"http", b"https")):
        found += name + b"://" if rules.lower_host else scheme[0]
    if scheme:
        user, at, host = authority.rpartition(b"@")
        if rules.www and host[:4].lower() == b"www." and len(host) > 4:
            host = host[4:]
        port = re.search(rb":([0-9]*)$", host)
        default = {b"http": 80, b"https": 443}.get(name)
        if rules.default_port and port and (not port[1] or int(port[1]) == default):
            host = host[: port.start()]
        found += user + at + (host.lower() if rules.lower_host else host)
    path = _unescaped(path, rules)
    if rules.dot_segments and path.startswith(b"/"):
        path = _without_dots(path)
    found += path.rstrip(b"/") if rules.trailing_slash else path
    if patterns:
        kept = [one for one in query.split(b"&") if one and not _is_left_out(one, patterns)]
        question, query = (b"?" if kept else b""), b"&".join(kept)
    found += question + _unescaped(query, rules)
    return found if rules.fragment or b"#" not in rest else found + b"#" + _unescaped(fragment, rules)


def _without_dots(path: bytes) -> bytes:
    """As RFC 3986, section 5.2.4, has it."""
    found: list[bytes] = []
    *segments, last = path[1:].split(b"/")
    for segment in (*segments, last):
        if segment == b"..":
            found = found[:-1]
        elif segment != b".":
            found.append(segment)
    return b"".join(b"/" + segment for segment in found) + (b"/" if last in (b".", b"..") else b"")


def _unescaped(part: bytes, rules) -> bytes:
    def one(escape) -> bytes:
        byte = bytes.fromhex(escape[1].decode())
        return byte if re.match(rb"[A-Za-z0-9._~\x80-\xff-]", byte) else escape[0].upper()

    return re.sub(rb"%([0-9A-Fa-f]{2})", one, part) if rules.percent_encoding else part


def _is_left_out(parameter: bytes, patterns: Sequence[bytes]) -> bool:
    name = parameter.partition(b"=")[0].lower()
    return any(name.startswith(p[:-1]) if p.endswith(b"*") else name == p for p in patterns)


def normal_form(text: str) -> str:
    """Lower-cased, digits 0, single spaces; no punctuation, accents and control characters."""

    def form(character: str) -> str:
        category = unicodedata.category(character)
        if character.isspace():
            return " "
        if category in ("Mn", "Me", "Cc", "Cf") or category.startswith("P"):
            return ""
        if category == "Nd":
            return "0"
        found = unicodedata.normalize("NFD", character.lower())
        found = "".join(one for one in found if unicodedata.category(one) != "Mn")
        return found if len(found) == 1 else character

    return " ".join("".join(map(form, text)).split())


def text_parts(text: str, unit: str, ends: set[str]) -> list[tuple[str, str]]:
    """Each line, paragraph or sentence with the white space behind it; what lies before all goes with the first."""
    if unit == "sentence":
        tokens = sentence_parts(text, ends)
    else:
        tokens = re.split(r"(\s*\n)" if unit == "line" else r"(\s*\n\s*\n)", text)
        if tokens[0] == "" and len(tokens) > 1:
            tokens[:3] = [tokens[1] + tokens[2]]
        if len(tokens) > 1 and not tokens[-1].strip():
            tokens[-2:] = [tokens[-2] + tokens[-1]]
    if len(tokens) % 2:
        body = tokens[-1].rstrip()
        tokens[-1:] = [body, tokens[-1][len(body) :]]
    return [(a, b) for a, b in zip(tokens[::2], tokens[1::2], strict=True) if a.strip()]


def sentence_parts(text: str, ends: set[str]) -> list[str]:
    """Sentences and the white space behind each, in turn."""
    tokens, i = [], 0
    while i < len(text):
        start = i
        while i < len(text) and text[i].isspace():
            i += 1
        if i == len(text):
            break
        visible = i
        while i < len(text) and text[i] != "\n":
            i += 1
            last = text[i - 1]
            line = text[visible:].split("\n")[0]
            if last in ends and (last != "." or is_full_stop(line, i - 1 - visible, set(ABBREVIATIONS))):
                after = i
                while after < len(text) and unicodedata.category(text[after]).startswith("P"):
                    after += 1
                if after == len(text) or text[after].isspace() or last > "\x7f":
                    i = after
                    break
        body = text[start if not tokens else visible : i].rstrip()
        space = re.match(r"\s*", text[visible + len(text[visible:i].rstrip()) :])
        assert space
        tokens += [body, space[0]]
    return tokens


def without_parts(text: str, parts: Sequence[tuple[str, str]], removed: Sequence[bool]) -> str:
    """The parts that are left, between two of them the white space with most line feeds."""
    if not any(removed):
        return text
    left, spaces = "", [""]
    for (part, space), gone in zip(parts, removed, strict=True):
        if not gone:
            left += (max(spaces, key=lambda one: one.count("\n")) if left else "") + part
            spaces = []
        spaces.append(space)
    return left + ("" if removed[-1] or not left else parts[-1][1])


def without_repeats(
    texts: dict[int, str], unit: str, in_a_passage: int, ends: set[str], keep: str, rank
) -> dict:
    """Documents by id, without the passages that occur elsewhere or before; see `jobs.steps.repeated_passages`."""
    cut = {document: text_parts(text, unit, ends) for document, text in texts.items()}
    places: dict[str, list[tuple[int, int, int]]] = {}
    for document, parts in cut.items():
        for i in range(len(parts) - in_a_passage + 1):
            last = parts[i + in_a_passage - 1][0]
            between = "".join(part + space for part, space in parts[i : i + in_a_passage - 1])
            if form := normal_form(between + last):
                places.setdefault(form, []).append((rank(document), document, i))
    stay, go = set(), set()
    for found in places.values():
        if len(found) > 1:
            kept = [min(found)] if keep == "first" else []
            for place in found:
                of = stay if place in kept else go
                of.update((place[1], place[2] + k) for k in range(in_a_passage))
    return {
        document: without_parts(
            texts[document], parts, [(document, i) in go - stay for i in range(len(parts))]
        )
        for document, parts in cut.items()
    }


_BEGIN, _END = r"(?<![\w./+-])", r"(?!\w|[.-]\w)"
_DASHES, _SPACES = "[-\u2010-\u2013]", "[ \u00a0\u202f]"
_NOT_BEHIND_DIGITS = rf"(?<!\d{_SPACES})"
_NUMBERS = {
    "ssn": [
        rf"{_BEGIN}\d{{3}}{_DASHES}\d\d{_DASHES}\d{{4}}{_END}",
        rf"{_BEGIN}{_NOT_BEHIND_DIGITS}\d{{3}}{_SPACES}\d\d{_SPACES}\d{{4}}{_END}",
        *(
            rf"(?<=(?<![A-Za-z])(?i:ssn)[^A-Za-z0-9\x80-\U0010ffff]{{{n}}}){_BEGIN}\d{{9}}{_END}"
            for n in range(1, 5)
        ),
    ],
    "card": [
        *(
            rf"{_BEGIN}{before}{groups.replace('_', mark)}{_END}"
            for mark, before in ((_DASHES, ""), (_SPACES, _NOT_BEHIND_DIGITS))
            for groups in (
                r"\d{4}_\d{4}_\d{4}_\d{4}_\d{3}",
                r"\d{4}_\d{4}_\d{4}_\d{4}",
                r"\d{4}_\d{6}_\d{5}",
                r"\d{4}_\d{6}_\d{4}",
            )
        ),
        rf"{_BEGIN}\d{{12,19}}{_END}",
    ],
    "iban": [
        rf"(?<!\w)[A-Za-z]{{2}}\d\d(?:{mark}[0-9A-Za-z]{{4}}){{{length // 4 - 1}}}"
        + (rf"{mark}[0-9A-Za-z]{{{length % 4}}}" if length % 4 else "")
        + r"(?!\w)"
        for mark in ("", _SPACES, _DASHES)
        for length in sorted({int(country[2:]) for country in IBAN_COUNTRIES.split()})
    ],
}


def numbers(text: str, kind: str) -> list[str]:
    """Social security numbers, cards or IBANs in ASCII text, each pattern tried at each place."""
    checks = {"ssn": _is_ssn, "card": _is_card, "iban": _is_iban}
    found, position = [], 0
    while position < len(text):
        matches = (re.compile(one, re.ASCII).match(text, position) for one in _NUMBERS[kind])
        hit = next(
            (m[0] for m in matches if m and checks[kind](re.sub(f"{_DASHES}|{_SPACES}", "", m[0]))), ""
        )
        found += [hit] if hit else []
        position += len(hit) or 1
    return found


def _is_ssn(digits: str) -> bool:
    area = digits[:3]
    listed = ("078051120", "219099999", "457555462")
    return (
        area not in ("000", "666")
        and area < "900"
        and digits[3:5] != "00"
        and digits[5:] != "0000"
        and (digits not in listed)
    )


def _is_card(digits: str) -> bool:
    doubled = [int(d) * (1 + i % 2) for i, d in enumerate(reversed(digits))]
    if sum(n // 10 + n % 10 for n in doubled) % 10:
        return False
    issuers = {
        r"4": (13, 16, 19),
        r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720": (16,),
        r"3[47]|2131|1800": (15,),
        r"30[0-5]|3095|36|38|39": (14, 16, 19),
        r"352[89]|35[3-8]|6011|64[4-9]|65|62": (16, 17, 18, 19),
        r"5018|5020|5038|5893|6304|6759|676[123]": tuple(range(12, 20)),
    }
    return any(re.match(prefix, digits) and len(digits) in lengths for prefix, lengths in issuers.items())


def _is_iban(written: str) -> bool:
    lengths = {country[:2]: int(country[2:]) for country in IBAN_COUNTRIES.split()}
    moved = written[4:] + written[:4]
    return (
        lengths.get(written[:2].upper()) == len(written)
        and int("".join(str(int(c, 36)) for c in moved)) % 97 == 1
    )


def emails(text: str) -> list[str]:
    """E-mail addresses in short ASCII text."""
    label = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
    found, free = [], 0
    for at in (m.start() for m in re.finditer("@", text)):
        atoms = re.search(r"(?:[\w%+'&~!#$*-]+\.)*[\w%+'&~!#$*-]+$", text[free:at], re.ASCII)
        local = re.sub(r"^\W+", "", atoms[0], flags=re.ASCII) if atoms else ""
        domain = re.match(rf"{label}(?:\.{label})*", text[at + 1 :])
        labels = domain[0].split(".") if domain else []
        while labels and not re.fullmatch(r"[A-Za-z]{2,}|..--.+", labels[-1]):
            labels.pop()
        image = len(labels) == 2 and re.match(r"\d[xX]$", labels[0])
        password = re.search(r'://[^ \t\r\n/?#<>"]*:[^ \t\r\n/?#<>"]*$', text[:at])
        if local and len(labels) > 1 and local.lower() != "git" and not image and not password:
            found.append(f"{local}@{'.'.join(labels)}")
            free = at + 1 + len(".".join(labels))
    return found


def ipv6_addresses(text: str, public_only: bool) -> list[str]:
    """Of words between spaces, those that are addresses of two groups at least."""
    return [word for word in text.split(" ") if _is_ipv6(word, public_only)]


def _is_ipv6(word: str, public_only: bool) -> bool:
    try:
        address = ipaddress.IPv6Address(word)
    except ValueError:
        return False
    groups = [group for group in re.split(r":", word) if group]
    enough = len(groups) + ("." in word) >= 2
    unusable = map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
    public = address in ipaddress.IPv6Network("2000::/3") and not any(address in net for net in unusable)
    return enough and (public or not public_only)


def line_words(text: str) -> list[list[str]]:
    """The words of each line that has one, ASCII digits as 0."""
    lines = [[re.sub("[0-9]", "0", word) for word in words(line)] for line in text.split("\n")]
    return [line for line in lines if line]


class KneserNey:
    """Interpolated modified Kneser-Ney, every probability worked out from the sentences when it is asked for."""

    def __init__(self, sentences: Sequence[Sequence[str]], order: int, vocabulary: Iterable[str]) -> None:
        self.order, self.vocabulary = order, {"<unk>", "</s>", *vocabulary}
        counts: list[Counter] = [Counter() for _ in range(order + 1)]
        for sentence in sentences:
            known = [word if word in self.vocabulary else "<unk>" for word in sentence]
            tokens = ("<s>", *known, "</s>")
            for n in range(1, order + 1):
                counts[n].update(tokens[i : i + n] for i in range(len(tokens) - n + 1))
        self.counts = {order: counts[order]}
        for n in range(1, order):
            preceded = Counter(gram[1:] for gram in counts[n + 1])
            begins = {gram: count for gram, count in counts[n].items() if gram[0] == "<s>"}
            self.counts[n] = Counter({**preceded, **begins})
        del self.counts[1][("<s>",)]
        self.discounts = {n: self.discount(list(self.counts[n].values())) for n in self.counts}
        self.after: dict[tuple[str, ...], dict[str, int]] = {}
        for grams in self.counts.values():
            for gram, count in grams.items():
                self.after.setdefault(gram[:-1], {})[gram[-1]] = count
        self.n_rare = max(1, len({word for sentence in sentences for word in sentence} - self.vocabulary))

    @staticmethod
    def discount(counts: list[int]) -> list[float]:
        n = [counts.count(k) for k in range(5)]
        try:
            y = n[1] / (n[1] + 2 * n[2])
            found = [k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)]
        except ZeroDivisionError:
            return [0, 0.5, 1, 1.5]
        return [0, *found] if all(0 <= d <= k for k, d in enumerate(found, 1)) else [0, 0.5, 1, 1.5]

    def probability(self, word: str, context: tuple[str, ...]) -> float:
        context = context[len(context) - self.order + 1 :] if len(context) >= self.order else context
        n = len(context) + 1
        lower = self.probability(word, context[1:]) if context else 1 / len(self.vocabulary)
        after = self.after.get(context)
        if not after:
            return lower
        held_back = sum(self.discounts[n][min(count, 3)] for count in after.values())
        count = after.get(word, 0)
        return (count - self.discounts[n][min(count, 3)] + held_back * lower) / sum(after.values())

    def log10(self, sentence: Sequence[str]) -> float:
        """Of a sentence and its end, unknown words as likely as one of the rare ones."""
        known = [word if word in self.vocabulary else "<unk>" for word in sentence]
        tokens = ("<s>", *known, "</s>")
        found = sum(math.log10(self.probability(tokens[i], tokens[:i])) for i in range(1, len(tokens)))
        return found - known.count("<unk>") * math.log10(self.n_rare)


def loader_order(n: int, seed: int | None, epoch: int) -> list[int]:
    """The sequences of an epoch in their order: each number sent through the Feistel network until it is below n."""
    if seed is None:
        return list(range(n))
    half = 1
    while 4**half < n:
        half += 1
    digest = hashlib.blake2b(f"loader order\0{seed}\0{epoch}".encode(), digest_size=48).digest()
    keys = [int.from_bytes(digest[i : i + 8], "little") for i in range(0, 48, 8)]

    def turned(number: int) -> int:
        left, right = divmod(number, 2**half)
        for key in keys:
            left, right = right, left ^ mix64(right ^ key) % 2**half
        return left * 2**half + right

    order = []
    for number in range(n):
        number = turned(number)
        while number >= n:
            number = turned(number)
        order.append(number)
    return order


def loader_epochs(stream, t: int, rows: int, uneven: str, epochs: int, seed: int | None, begun=(0, 0)):
    """What all ranks together are served, `rows` sequences at a time, from a place (epoch, sequence) on.

    A list for each batch of all ranks, of pairs (inputs, targets); the epoch in which it begins before each.
    """
    n = (len(stream) - 1) // t

    def sequence(window: int):
        return stream[window * t : window * t + t], stream[window * t + 1 : window * t + t + 1]

    found, batch = [], []
    for epoch in range(begun[0], epochs):
        if uneven != "wrap":
            batch = []
        for window in loader_order(n, seed, epoch)[begun[1] if epoch == begun[0] else 0 :]:
            if not batch:
                began = epoch
            batch.append(sequence(window))
            if len(batch) == rows:
                found.append((began, batch))
                batch = []
        if batch and uneven == "pad":
            found.append((epoch, batch + [([0] * t, [-100] * t)] * (rows - len(batch))))
    return found


def loader_documents(rows, end_of_text: int):
    """Cumulative lengths, position ids and whether token i may attend to token j of the same row, row by row."""
    edges, positions, masks = [], [], []
    for r, row in enumerate(rows):
        ids, document, place = [], 0, 0
        positions.append([])
        for j, token in enumerate(row):
            if place == 0:
                edges.append(r * len(row) + j)
            ids.append(document)
            positions[-1].append(place)
            place += 1
            if token == end_of_text:
                document, place = document + 1, 0
        masks.append([[[i >= j and ids[i] == ids[j] for j in range(len(row))] for i in range(len(row))]])
    return [*edges, sum(map(len, rows))], positions, masks


def gpt3_words(text: str) -> list[str]:
    """Letters, marks and numbers lower-cased, white space and control characters between; the rest is as if absent."""
    kept = ""
    for character in text:
        category = unicodedata.category(character)
        if category[0] in "LMN":
            kept += character
        elif category[0] == "Z" or category == "Cc":
            kept += " "
    return [
        lower(kept[run.start() : run.end()]) for run in re.finditer("cm*|[wm]+", "".join(map(kind, kept)))
    ]


def ngrams(words: Sequence[str], n: int) -> list[str]:
    return [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]


def is_contaminated(text: str, eval_grams: set[str], n: int) -> bool:
    """Seed 001's set expression."""
    return any(g in eval_grams for g in ngrams(gpt3_words(text), n))


def choose_validation(
    n_tokens: Sequence[int], grams: Sequence[set], elsewhere: set, target: int, most: float
) -> tuple[set[int], set[int]] | None:
    """Which documents, in order, are validation, and which went to training since that holds too much of them."""
    moved: set[int] = set()
    while True:
        chosen, held = set(), 0
        for document, tokens in enumerate(n_tokens):
            if document not in moved and held < target:
                chosen.add(document)
                held += tokens
        if held < target:
            return None
        training = elsewhere.union(*(own for document, own in enumerate(grams) if document not in chosen))
        out = {one for one in chosen if len(grams[one] & training) > most * len(grams[one]) + 1e-9}
        if not out:
            return chosen, moved
        moved |= out


def tokens_of_documents(lengths):
    """Every token as its document and its place there, in order."""
    return [(document, token) for document, n in enumerate(lengths) for token in range(n)]


def best_fit(lengths, length):
    """Rows as lists of tokens: longest pieces first, each to the fullest row that takes it, the last used of those."""
    pieces = [
        [(document, token) for token in range(start, min(start + length, n))]
        for document, n in enumerate(lengths)
        for start in range(0, n, length)
    ]
    rows, used = [], []
    for step, piece in enumerate(sorted(pieces, key=len, reverse=True)):
        fitting = [i for i, row in enumerate(rows) if len(row) + len(piece) <= length]
        if fitting:
            best = max(fitting, key=lambda i: (len(rows[i]), used[i]))
            rows[best], used[best] = rows[best] + piece, step
        else:
            rows.append(piece)
            used.append(step)
    return [sorted(row) for row in rows]


def row_counts(rows, lengths):
    """Figures of rows that are lists of tokens, as `kernels.rows` counts them."""
    documents = [list(dict.fromkeys(document for document, _ in row)) for row in rows]
    return {
        "rows": len(rows),
        "tokens": sum(map(len, rows)),
        "pieces": sum(map(len, documents)),
        "whole_documents": sum(
            sum(token[0] == document for token in row) == lengths[document]
            for row, held in zip(rows, documents, strict=True)
            for document in held
        ),
        "rows_with_several": sum(len(held) > 1 for held in documents),
        "tokens_after_boundary": sum(
            sum(document != row[0][0] for document, _ in row) for row in rows if row
        ),
    }


def schedule(counts):
    """The group of each sequence: the two shortest lists are merged, evenly, until one is left."""
    lists = [(count, node, [node] * count) for node, count in enumerate(n for n in counts if n)]
    names = [group for group, count in enumerate(counts) if count]
    for number in range(len(lists), 2 * len(lists) - 1):
        (few, _, right), (more, _, left) = sorted(lists)[:2]
        whole = few + more
        merged, taken = [], 0
        for rank in range(whole):
            should_have = ((rank + 1) * more + whole // 2) // whole
            merged.append(left[taken] if should_have > taken else right[rank - taken])
            taken = should_have
        lists = [*sorted(lists)[2:], (whole, number, merged)]
    return [names[node] for node in lists[0][2]]


def mixture_epoch(n, key, segments, epoch, shuffle):
    """A group's windows in the order of one epoch: segments one after the other, each in an order of its own."""
    if not shuffle:
        return list(range(n))
    order = []
    for segment in range(segments):
        first, last = segment * n // segments, (segment + 1) * n // segments
        digest = hashlib.blake2b(f"{key}\0{segment}".encode(), digest_size=8).digest()
        seed = int.from_bytes(digest, "little") // 2
        order += [first + place for place in loader_order(last - first, seed, epoch)]
    return order


def mixture_stage(stage, streams, seed, apart):
    """Inputs and targets of a stage's sequences, from a plan and the tokens of each group."""
    orders = {}
    for group in stage.groups:
        key = f"{seed}\0{group.name}\0{stage.length}\0{stage.min_document_tokens}"
        segments = min(group.windows, math.ceil(1 / (1 - apart)))
        epochs = (group.first + group.sequences) // max(group.windows, 1) + 1
        drawn = [
            window
            for epoch in range(epochs if group.sequences else 0)
            for window in mixture_epoch(group.windows, key, segments, epoch, stage.shuffle)
        ]
        orders[group.name] = iter(drawn[group.first :])
    found = []
    for number in schedule([group.sequences for group in stage.groups]):
        name = stage.groups[number].name
        start = next(orders[name]) * stage.length
        tokens = streams[name][start : start + stage.length + 1]
        found.append((tokens[:-1], tokens[1:]))
    return found


def water_filling(n, shares, most):
    """Sequences one at a time, each to the group that is furthest below its share and has some left."""
    counts = dict.fromkeys(shares, 0)
    for _ in range(n):
        open_ = [g for g, share in shares.items() if share and (most[g] is None or counts[g] < most[g])]
        if not open_:
            break
        counts[min(open_, key=lambda g: (counts[g] + 1) / shares[g])] += 1
    return counts
