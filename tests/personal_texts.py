"""Texts with labelled personal data: a public set, and a set that is made here of many spellings and hard negatives.

A label is a kind of `jobs.settings.personal_data.KINDS` and the characters from the first to the one behind the last.
"""

import ipaddress
import json
import random
import re
import string
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import phonenumbers
import pyarrow as pa

from jobs.settings.personal_data import KINDS, PersonalData
from jobs.steps import personal_data
from jobs.text import text_buffers

Label = tuple[str, int, int]
REGIONS = ("US", "GB", "DE", "FR", "ES", "IT", "IN", "BR", "AU")
SYNTHETIC = {
    "EMAIL_ADDRESS": "email",
    "PHONE_NUMBER": "phone",
    "CREDIT_CARD": "card",
    "US_SSN": "ssn",
    "IBAN_CODE": "iban",
    "IP_ADDRESS": "ip",
}
WORDS = (
    "the of and to in that for with on as it by at from or we this are have not more than all their which when will "
    "there time people made first after work here data system water part place small found number page street"
)


class Labelled(NamedTuple):
    """A text and what it holds."""

    text: str
    labels: list[Label]


class Score(NamedTuple):
    """How well a kind was found: of `labelled` places, `right` were covered; of `found`, `wrong` are at no label."""

    labelled: int
    right: int
    found: int
    wrong: int

    @property
    def recall(self) -> float:
        """Share of the labelled places that were covered."""
        return self.right / self.labelled if self.labelled else float("nan")

    @property
    def precision(self) -> float:
        """Share of what was found that is at a label."""
        return 1 - self.wrong / self.found if self.found else float("nan")


def scores(texts: Sequence[Labelled], finds: Iterable[Sequence[Label]]) -> dict[str, Score]:
    """By kind, of what was found in each text."""
    labelled, right, all_found, wrong = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for text, spans in zip(texts, finds, strict=True):
        for kind, begin, end in text.labels:
            labelled[kind] += 1
            right[kind] += any(k == kind and b <= begin and end <= e for k, b, e in spans)
        for kind, begin, end in spans:
            all_found[kind] += 1
            wrong[kind] += not any(k == kind and b < end and begin < e for k, b, e in text.labels)
    return {
        kind: Score(labelled[kind], right[kind], all_found[kind], wrong[kind])
        for kind in dict.fromkeys((*labelled, *all_found))
    }


def found(texts: Sequence[Labelled], settings: PersonalData) -> list[list[Label]]:
    """What the step finds."""
    data, offsets = text_buffers(pa.array([text.text for text in texts], pa.large_string()))
    labels: list[list[Label]] = [[] for _ in texts]
    for document, kind, *ends in personal_data.found(data, offsets, settings).tolist():
        begin, end = (len(data[offsets[document] : at].tobytes().decode()) for at in ends)
        labels[document].append((KINDS[kind], begin, end))
    return labels


def of_address(kind: str, address: str) -> str:
    """`ip` told apart by version."""
    return kind if kind != "ip" else "ipv6" if ":" in address else "ipv4"


def synthetic(path: Path) -> list[Labelled]:
    """Presidio's synthetic set, the kinds that have a form."""
    return [
        Labelled(
            one["full_text"],
            [
                (
                    of_address(SYNTHETIC[span["entity_type"]], span["entity_value"]),
                    span["start_position"],
                    span["end_position"],
                )
                for span in one["spans"]
                if span["entity_type"] in SYNTHETIC
            ],
        )
        for one in json.loads(path.read_text(encoding="utf-8"))
    ]


def generated(of_each: int = 1000, negatives: int = 6000, seed: int = 0) -> list[Labelled]:
    """So many texts for each kind, one place in each, and so many that hold none."""
    draw = random.Random(seed)
    texts = [_placed(draw, kind, *SPELLED[kind](draw)) for kind in SPELLED for _ in range(of_each)]
    texts += [_around(draw, draw.choice(NEGATIVES)(draw)) for _ in range(negatives)]
    draw.shuffle(texts)
    return texts


# ---------------------------------------------------------------- around a place


def _sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS.split(), k=draw.randint(2, 8)))


FRAMES = [
    "{}",
    "{}.",
    "{}, ",
    "({})",
    "“{}”",
    '"{}"',
    "{}\n",
    "{};",
    "请联系{}。",
    "<b>{}</b>",
    "| {} |",
    "[{}]",
    "{}?",
]
FRAMES_OF = {
    "email": [
        "<{}>",
        "mailto:{}",
        "e-mail:{}",
        "Anna Bell<{}>",
        "{}/",
        "a='{}'",
        "write to {}!",
        "{}, b@example.org",
    ],
    "ipv4": [
        "http://{}/index.html",
        "{}:8080",
        "[{}]:53",
        "{} - - [02/Jan/2024:10:00:00]",
        "ip={}",
        "{}/32",
        "from {}>",
    ],
    "ipv6": ["http://[{}]/index.html", "[{}]:443", "{}/64", "addr={}", "inet6 {} scope"],
    "phone": [
        "Tel. {}",
        "Phone: {}",
        "call {} now",
        "Fax {}",
        "tel:{}",
        "{} (mobile)",
        "{}, 24 hours",
        "T: {} ",
    ],
    "card": ["card no. {}", "VISA {} 12/27", "paid with {} on", "cc={}&x=1"],
    "ssn": ["SSN: {}", "SSN {}", "social security number {}", "ssn={}"],
    "iban": ["IBAN: {}", "IBAN {} BIC", "to account {} at", "iban={}"],
}


def _placed(draw: random.Random, kind: str, value: str, frame: str = "") -> Labelled:
    frame = frame or draw.choice(draw.choice((FRAMES, FRAMES_OF[kind])))
    if kind == "phone" and value.isdigit():  # nothing else says what it is
        frame = draw.choice(["Tel. {}", "Phone: {}", "call {} now", "Fax {}", "tel:{}", "mobile {}"])
    before = draw.choice(["", _sentence(draw) + " ", _sentence(draw) + "\n"]) + frame.partition("{}")[0]
    text = before + value + frame.partition("{}")[2] + draw.choice(["", " " + _sentence(draw)])
    labels = [(kind, len(before), len(before) + len(value))]
    if "b@example.org" in frame:
        labels.append((kind, text.index("b@example.org"), text.index("b@example.org") + len("b@example.org")))
    return Labelled(text, labels)


def _around(draw: random.Random, value: str) -> Labelled:
    frame = draw.choice(["{}", "{}.", "({})", "{}, ", '"{}"', "{}\n"])
    return Labelled(f"{_sentence(draw)} {frame.format(value)} {_sentence(draw)}", [])


def _digits(draw: random.Random, k: int) -> str:
    return "".join(draw.choices(string.digits, k=k))


# ---------------------------------------------------------------- spellings


def email(draw: random.Random) -> tuple[str]:
    """Of names, tags, initials and numbers; of hosts with subdomains, digits, other scripts and Punycode."""
    first, last = (
        draw.choice(["anna", "Jo", "o'neil", "jürgen", "María", "x", "TOM"]),
        draw.choice(["bell", "groß", "de-la-cruz", "WU", "smith99"]),
    )
    local = draw.choice(
        [
            first,
            f"{first}.{last}",
            f"{first}_{last}",
            f"{first}+{last}",
            f"{first}-{last}",
            f"{first}{_digits(draw, 4)}",
        ]
    )
    name = draw.choice(
        ["example", "my-shop", "163", "müller", "xn--mller-kva", "mail.corp", "a.b.c", "EXAMPLE"]
    )
    top = draw.choice(["com", "org", "co.uk", "de", "photography", "COM", "io", "museum", "com.br"])
    return (f"{local}@{name}.{top}",)


def ipv4(draw: random.Random) -> tuple[str]:
    """Public ones."""
    while True:
        address = ipaddress.IPv4Address(draw.getrandbits(32))
        if address.is_global and not address.is_multicast:
            return (str(address),)


def ipv6(draw: random.Random) -> tuple[str]:
    """Public ones: compressed, in full, in capitals, with groups of zeros, with an IPv4 address at the end."""
    head = draw.choice([0x2A00, 0x2600, 0x2400, 0x2800]) << 112 | draw.getrandbits(32) << 80
    address = ipaddress.IPv6Address(head | draw.getrandbits(16 * draw.choice([1, 2, 4, 5])))
    written = draw.choice([str, lambda a: a.exploded, lambda a: str(a).upper(), _with_dots])(address)
    return (written,)


def _with_dots(address: ipaddress.IPv6Address) -> str:
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return ":".join([*address.exploded.split(":")[:6], str(last)])


def phone(draw: random.Random) -> tuple[str]:
    """Valid numbers of nine countries, as they are written at home and from abroad."""
    region = draw.choice(REGIONS)
    number = _valid_number(draw, region)
    form = phonenumbers.PhoneNumberFormat
    national = phonenumbers.format_number(number, form.NATIONAL)
    abroad = phonenumbers.format_number(number, form.INTERNATIONAL)
    written = draw.choice(
        [
            national,
            national.replace(" ", draw.choice([".", "-"])).replace(")-", ") ").replace(").", ") "),
            national.replace(" ", "\N{NO-BREAK SPACE}"),
            "".join(c for c in national if c.isdigit()),
            abroad,
            abroad.replace(" ", draw.choice([".", "-"])),
            abroad.replace("-", " "),
            phonenumbers.format_number(number, form.E164),
            "00" + abroad[1:],
            _with_bracket(number, national),
            f"{national}{draw.choice(['x', ' x', ' ext. ', ' ext '])}{_digits(draw, 3)}",
            national.replace("-", draw.choice("\N{NON-BREAKING HYPHEN}\N{EN DASH}")),
        ]
    )
    return (written,)


def _valid_number(draw: random.Random, region: str) -> phonenumbers.PhoneNumber:
    kind = draw.choice([phonenumbers.PhoneNumberType.FIXED_LINE, phonenumbers.PhoneNumberType.MOBILE])
    example = phonenumbers.national_significant_number(phonenumbers.example_number_for_type(region, kind))
    while True:
        keep = draw.randint(2, len(example) - 4)
        number = phonenumbers.parse(example[:keep] + _digits(draw, len(example) - keep), region)
        if phonenumbers.is_valid_number(number):
            return number


def _with_bracket(number: phonenumbers.PhoneNumber, national: str) -> str:
    """+44 (0)20 7946 0958."""
    if not national.startswith("0"):
        return f"+{number.country_code} {national}"
    return f"+{number.country_code} (0){national[1:]}"


CARDS = [
    ("4", 16),
    ("51", 16),
    ("55", 16),
    ("2221", 16),
    ("34", 15),
    ("37", 15),
    ("6011", 16),
    ("3530", 16),
    ("36", 14),
]


def card(draw: random.Random) -> tuple[str]:
    """Six issuers; in one, or in groups as they are printed."""
    prefix, length = draw.choice(CARDS)
    digits = with_luhn(prefix + _digits(draw, length - len(prefix) - 1))
    ends = [4, 10, length] if length < 16 else [4, 8, 12, 16]
    groups = [digits[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    return (draw.choice([digits, " ".join(groups), "-".join(groups), "\N{NO-BREAK SPACE}".join(groups)]),)


def with_luhn(digits: str) -> str:
    """The digits and the one that makes Luhn's sum a multiple of ten."""
    doubled = [2 * int(d) if i % 2 == 0 else int(d) for i, d in enumerate(reversed(digits))]
    return digits + str(-sum(d // 10 + d % 10 for d in doubled) % 10)


def ssn(draw: random.Random) -> tuple[str, str]:
    """With dashes or spaces; without, behind what says what it is."""
    area = draw.choice([*range(1, 666), *range(667, 900)])
    parts = f"{area:03}", f"{draw.randint(1, 99):02}", f"{draw.randint(1, 9999):04}"
    mark = draw.choice(["-", "-", " ", ""])
    return mark.join(parts), "" if mark else draw.choice(["SSN: {}", "SSN {}", "ssn={}"])


BANKS = (  # country and its numbers (n), letters (a) and both (c)
    "GB:4a14n DE:18n FR:10n11c2n ES:20n IT:1a10n12c NL:4a10n BE:12n CH:5n12c AT:16n PL:24n PT:21n SE:20n IE:4a14n "
    "DK:14n NO:11n FI:14n"
)
CHARACTERS = {"n": string.digits, "a": string.ascii_uppercase, "c": string.digits + string.ascii_uppercase}


def iban(draw: random.Random) -> tuple[str]:
    """Of 16 countries, as their banks have them; in one, in small letters, in groups."""
    country, _, form = draw.choice(BANKS.split()).partition(":")
    parts = re.findall(r"(\d+)([nac])", form)
    body = "".join("".join(draw.choices(CHARACTERS[kind], k=int(n))) for n, kind in parts)
    check = 98 - int("".join(str(int(c, 36)) for c in body + country + "00")) % 97
    whole = f"{country}{check:02}{body}"
    groups = [whole[i : i + 4] for i in range(0, len(whole), 4)]
    return (
        draw.choice(
            [whole, whole.lower(), " ".join(groups), "-".join(groups), "\N{NO-BREAK SPACE}".join(groups)]
        ),
    )


SPELLED: dict[str, Callable[[random.Random], tuple[str, ...]]] = {
    "email": email,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "phone": phone,
    "card": card,
    "ssn": ssn,
    "iban": iban,
}


# ---------------------------------------------------------------- what is none


def version(draw: random.Random) -> str:
    """Four numbers, as browsers and libraries have them."""
    numbers = ".".join(str(draw.randint(0, 255)) for _ in range(4))
    return draw.choice(
        [
            "version {}",
            "v{}",
            "Chrome/{}",
            "Safari/{}",
            "libfoo-{}",
            "release {}",
            "{}.7",
            "build {}",
            "firmware {}",
            "ver. {}",
            "Version: {}",
            "section {}",
            "Mozilla/5.0 (Windows) Edg/{}",
            "foo_{}.tar.gz",
            "{}-beta2",
            "rev {}",
        ]
    ).format(numbers)


def digest(draw: random.Random) -> str:
    """Hexadecimal: hashes, UUIDs, MAC addresses, fingerprints, offsets."""
    n = draw.choice([7, 8, 16, 32, 40, 64])
    written = f"{draw.getrandbits(4 * n):0{n}x}"
    pairs = [written[i : i + 2] for i in range(0, n - 1, 2)]
    return draw.choice(
        [
            written,
            f"sha256:{written}",
            f"commit {written}",
            str(uuid.UUID(int=draw.getrandbits(128))),
            f"0x{written}",
            ":".join(pairs[:6]),
            ":".join(pairs),
            f"{written[:8]}-{_digits(draw, 4)}",
        ]
    )


def date(draw: random.Random) -> str:
    """And times, and spans of them."""
    y, m, d = draw.randint(1900, 2030), draw.randint(1, 12), draw.randint(1, 28)
    h, s = draw.randint(0, 23), draw.randint(0, 59)
    return draw.choice(
        [
            f"{y}-{m:02}-{d:02}",
            f"{d:02}.{m:02}.{y}",
            f"{m}/{d}/{y}",
            f"{y}{m:02}{d:02}",
            f"{y}-{y + 5}",
            f"{y} - {y + 5}",
            f"{y}-{m:02}-{d:02}T{h:02}:{s:02}:{s:02}.{_digits(draw, 3)}Z",
            f"{y}-{m:02}-{d:02} {h:02}:{s:02}:{s:02}",
            f"{h:02}:{s:02}:{s:02}",
            f"{d:02}-{m:02}-{y}",
            f"{y}/{m:02}/{d:02} {h:02}:{s:02}",
            f"{y}{m:02}{d:02}{h:02}{s:02}{s:02}",
            f"{d:02}/{m:02}/{y} - {d:02}/{m:02}/{y + 1}",
            f"{d}.{m}.{y} {h}:{s:02}",
        ]
    )


def book(draw: random.Random) -> str:
    """ISBN, ISSN, DOI, EAN, arXiv, patents, laws."""
    a, b = _digits(draw, 9), _digits(draw, 4)
    return draw.choice(
        [
            f"ISBN 978-{a[0]}-{a[1:3]}-{a[3:9]}-{b[0]}",
            f"ISBN-10: {a[0]}-{a[1:4]}-{a[4:9]}-{b[0]}",
            f"ISBN 978{a}{b[0]}",
            f"ISSN {a[:4]}-{b}",
            f"doi:10.1{b[:3]}/{a}",
            f"EAN 4{a}{b[:3]}",
            f"arXiv:{a[:4]}.{a[4:9]}",
            f"US Patent 7,{a[:3]},{a[3:6]}",
            f"978-{a[0]}-{a[1:3]}-{a[3:9]}-{b[0]}",
            f"§ {b[:3]}.{a[:2]}.{a[3]}",
            f"PMID: {a[:8]}",
            f"ISBN 978 {a[0]} {a[1:3]} {a[3:9]} {b[0]}",
        ]
    )


def code(draw: random.Random) -> str:
    """Scopes, slices, decorators, packages, repositories, file names."""
    n = _digits(draw, 3)
    return draw.choice(
        [
            "std::vector<int>",
            "ab::cd::ef(x)",
            f"x[1::{n}]",
            f"a[{n}:1:2]",
            "@property",
            "@Override public",
            "fn f(x: u8) -> fe::A",
            f"lodash@4.17.{n}",
            "icon@2x.png",
            "logo@3x.jpeg",
            "git@github.com:a/b.git",
            f"actions/checkout@v4.{n}",
            "user@localhost",
            "a::before { color: #fff }",
            "https://medium.com/@anna/post.html",
            f"flickr.com/photos/{n}00{n}@N00/",
            f"foo.Bar@1{n}cafe",
            f"{{ {n}: 1, 12: {n} }}",
            f"array([{n}, 0.{n}, 1e-{n}])",
            f"#{n}{n}",
            f"&#{n}{n};",
            f"\\x{n}{n}",
            f"--port={n}{n}",
            f"SELECT {n}.{n}::int",
            f"margin: {n}px 12px {n}px",
            f"nginx@sha256:{n}abc",
            f"key: {n}_{n}_{n}",
            f"https://example.com/{n}{n}{n}{n}",
            f"https://example.com/?id={n}{n}{n}&t={n}{n}",
            f"data-id='{n}{n}{n}{n}'",
        ]
    )


def number(draw: random.Random) -> str:
    """Amounts, timestamps, ids, coordinates, tables, postal codes, sports results."""
    a = str(draw.randint(1, 9)) + _digits(draw, 11)
    return draw.choice(
        [
            f"{a[:10]}",
            f"{a}",
            f"${a[:1]},{a[1:4]},{a[4:7]}.{a[7:9]}",
            f"{a[0]}.{a[1:]}",
            f"{a[:2]}.{a[2:8]}, -{a[3:5]}.{a[5:11]}",
            f"{a[:5]}-{a[5:9]}",
            f"order #{a[:9]}",
            f"17{a[:8]}",
            f"{a[:2]}-{a[3:5]}, {a[5:7]}-{a[7:9]}",
            f"{a[0]} {a[1]} {a[2]} {a[3]} {a[4]}",
            f"No. {a[:3]}-{a[3:5]}-{a[5:10]}",
            f"{a[:3]},{a[3:6]} {a[6:9]},{a[9:]}",
            f"1.{a[:3]}.{a[3:6]}.{a[6:9]}",
            f"{a[:2]}:{a[2:4]}:{a[4:6]}",
            f"{a[0]}.{a[1:3]}e+{a[3:5]}",
            f"case {a[:2]}-{a[2:7]}",
            f"{a[:2]}% of {a[2:8]}",
            f"0.{a}",
            f"{a[:4]}x{a[4:8]}",
            f"ID {a[:7]}",
            f"1Z{a[:3]}AA1{a[3:9]}",
            f"tracking 9{a}{a[:9]}",
            f"SKU {a[:4]}-{a[4:8]}",
        ]
    )


def failed_check(draw: random.Random) -> str:
    """What has the form of a card, an IBAN or a social security number, and is none."""
    good = with_luhn("4" + _digits(draw, 14))
    account = iban(draw)[0].replace(" ", "").replace("-", "").replace("\N{NO-BREAK SPACE}", "").upper()
    wrong = f"{account[:2]}{(int(account[2:4]) - 1) % 97 + 2:02}{account[4:]}"
    return draw.choice(
        [
            good[:-1] + str((int(good[-1]) + 1) % 10),
            f"{good}{_digits(draw, 5)}",
            f"x{good}",
            f"{good}abc",
            wrong,
            account + "7",
            "Z" + account,
            f"000-{_digits(draw, 2)}-1234",
            "666-12-3456",
            f"9{_digits(draw, 2)}-12-3456",
            "123-00-4567",
            "123-45-0000",
            "123-45-67890",
            "1-123-45-6789",
            "123-456-78",
            f"{good[:4]}-{good[4:8]}-{good[8:12]}-{(int(good[12:]) + 1) % 10000:04}",
        ]
    )


NEGATIVES: list[Callable[[random.Random], str]] = [version, digest, date, book, code, number, failed_check]
