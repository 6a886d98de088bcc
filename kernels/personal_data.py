"""Personal data in UTF-8 text by its form: one pass, each trigger byte costs a bounded look around.

A trigger is an ``@``, a ``:`` or the first digit of a run. What begins or ends within a word, a longer number or a
version is refused. Nothing is tried at more than a constant number of places, so that time is linear on any text.

Sources: e-mail addresses RFC 5321 (lengths) with the domains of RFC 1035; IPv4 and IPv6 RFC 4291 with IANA's registries
of special-purpose addresses; cards ISO/IEC 7812 (Luhn) with the issuers' prefixes and lengths; IBAN ISO 13616 (mod 97,
lengths of SWIFT's registry); US social security numbers by the SSA's rules of 2011.
"""

import numpy as np

from kernels.accelerate import inlined, kernel

KINDS = ("email", "ipv4", "ipv6", "phone", "card", "ssn", "iban")
EMAIL, IPV4, IPV6, PHONE, CARD, SSN, IBAN = range(len(KINDS))
CALLED_PHONE = len(KINDS)
"""Behind a word such as tel. These and `PHONE` are candidates only: they need a numbering plan."""

_LOCAL, _DOMAIN, _USER_INFO = 64, 253, 128  # most bytes
_ENDS_USER_INFO = tuple(b' \t\r\n/?#<>"')
_MILLENNIA = (49, 50)  # years begin with 1 or 2
_PHONE_DIGITS = 15  # ITU-T E.164
_PHONE_BYTES = 48
_NO_PHONES = (0x324, 0x54)  # lengths of groups: US social security numbers, ZIP+4
_LONGEST_GROUP = 8  # of digits without a break
_AT, _COLON, _DOT, _DASH, _SPACE, _SLASH, _PLUS, _OPEN, _CLOSE = b"@:.- /+()"
_DIGIT, _LETTER, _OTHER_LOCAL, _LATIN, _HEX, _BETWEEN, _BEFORE = 1, 2, 4, 8, 16, 32, 64


def _classes() -> np.ndarray:
    table = np.zeros(256, np.uint8)
    table[ord("0") : ord("9") + 1] = _DIGIT | _HEX
    for first in "aA":
        table[ord(first) : ord(first) + 26] = _LETTER
        table[ord(first) : ord(first) + 6] |= _HEX
    for byte in b"._%+-'&~!#$*":
        table[byte] |= _OTHER_LOCAL
    table[0xC3:0xCA] = _LATIN  # lead bytes of U+00C0 to U+024F
    table[0x80:0xC0] = _LATIN  # their second bytes
    for byte in b" .-/()":
        table[byte] |= _BETWEEN  # two groups of a phone number's digits
    for byte in b"-/.=#$+":
        table[byte] |= _BEFORE  # something that is no phone number
    return table


_CLASS = _classes()

IBAN_COUNTRIES = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
    "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
    "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 "
    "PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 "
    "YE30"
)


def _iban_lengths() -> np.ndarray:
    lengths = np.zeros(26 * 26, np.int64)
    for country in IBAN_COUNTRIES.split():
        lengths[(ord(country[0]) - 65) * 26 + ord(country[1]) - 65] = int(country[2:])
    return lengths


_IBAN_LENGTH = _iban_lengths()


def _packed(words: str) -> np.ndarray:
    """Each word's last eight letters as one number."""
    return np.array([int.from_bytes(word[-8:].encode(), "big") for word in words.split()], np.uint64)


_NUMBERED = _packed(
    "v ver version versions release build revision rev section sec chapter clause firmware driver"
)
_CALLED = _packed("tel telephone phone call fax mobile mob cell text sms whatsapp ph telefon telefono tlf")
_NUMBER = _packed("number no nr")
_SOCIAL = _packed("ssn")
_BOOKS = _packed("isbn issn doi pmid ean upc sku asin")


def find(
    data: np.ndarray, offsets: np.ndarray, wanted: int, public_only: bool, phone_lengths: int
) -> np.ndarray:
    """Spans of personal data, without overlap, in the order of the text.

    Parameters
    ----------
    data : uint8[n]
        UTF-8.
    offsets : int64[d + 1]
        Of the documents.
    wanted
        A bit for each of `KINDS`.
    public_only
        Whether only IP addresses that are reachable from everywhere count.
    phone_lengths
        A bit for each number of digits that a phone number without ``+`` may have.

    Returns
    -------
    int64[s, 4]
        Document, kind (also `CALLED_PHONE`), first byte and the byte behind the last, both in `data`.
    """
    return _find(data, offsets, wanted, public_only, phone_lengths)


@kernel
def _find(data, offsets, wanted, public_only, phone_lengths):
    spans, count = np.empty((256, 4), np.int64), 0
    for document in range(len(offsets) - 1):
        start, stop = offsets[document], offsets[document + 1]
        position, free = start, start  # free: behind the last span
        while True:
            position = _next_trigger(data, position, stop)
            if position == stop:
                break
            byte = data[position]
            kind, begin, end = _at(data, free, start, position, stop, wanted, public_only, phone_lengths)
            if kind >= 0:
                if count == len(spans):
                    larger = np.empty((2 * count, 4), np.int64)
                    larger[:count] = spans
                    spans = larger
                spans[count, 0], spans[count, 1], spans[count, 2], spans[count, 3] = (
                    document,
                    kind,
                    begin,
                    end,
                )
                count += 1
                position = free = end
            elif _CLASS[byte] & _DIGIT:
                while position < stop and _CLASS[data[position]] & _DIGIT:
                    position += 1
            else:
                position += 1
    return spans[:count]


@inlined
def _is_trigger(byte):
    """``:`` stands behind the digits."""
    return (byte - np.uint8(48) & np.uint8(255) <= 10) | (byte == np.uint8(_AT))


@inlined
def _next_trigger(data, position, stop):
    """The first trigger from `position` on, else `stop`: whole vectors of bytes without one are passed over."""
    while position + 32 <= stop:
        hits = 0
        for place in range(32):
            hits |= _is_trigger(data[position + place])
        if hits:
            break
        position += 32
    while position < stop and not _is_trigger(data[position]):
        position += 1
    return position


@kernel
def _at(data, free, start, at, stop, wanted, public_only, phone_lengths):
    """Kind, begin and end of what the trigger at `at` belongs to; kind is -1 where it is nothing."""
    byte = data[at]
    if byte == _AT:
        if wanted >> EMAIL & 1:
            begin, end = _email(data, free, start, at, stop)
            if end:
                return EMAIL, begin, end
        return -1, 0, 0
    if byte == _COLON:
        if wanted >> IPV6 & 1:
            begin, end = _ipv6(data, free, at, stop, public_only)
            if end:
                return IPV6, begin, end
        return -1, 0, 0
    if wanted >> IBAN & 1:
        end = _iban(data, free, at, stop)
        if end:
            return IBAN, at - 2, end
    if at > start and (_is_word(data[at - 1]) or data[at - 1] == _DOT):
        return -1, 0, 0
    if wanted >> IPV4 & 1:
        end = _ipv4(data, start, at, stop, public_only)
        if end:
            return IPV4, at, end
    if wanted >> SSN & 1:
        end = _ssn(data, start, at, stop)
        if end:
            return SSN, at, end
    if wanted >> CARD & 1:
        end = _card(data, start, at, stop)
        if end:
            return CARD, at, end
    if wanted >> PHONE & 1:
        begin, end = _phone(data, free, start, at, stop, phone_lengths)
        if end:
            return CALLED_PHONE if _is_called(data, start, begin) else PHONE, begin, end
    return -1, 0, 0


@kernel
def _is_word(byte):
    return _CLASS[byte] & (_DIGIT | _LETTER) != 0 or byte == 95


@kernel
def _is_digit(data, at, stop):
    return at < stop and _CLASS[data[at]] & _DIGIT != 0


@kernel
def _ends(data, end, stop):
    """Whether a number ends here: no word goes on, nor a number behind ``.`` or ``-``."""
    if end >= stop:
        return True
    byte = data[end]
    if _is_word(byte):
        return False
    return not (byte in (_DOT, _DASH) and end + 1 < stop and _is_word(data[end + 1]))


@kernel
def _mark(data, at, stop):
    """`_SPACE` or `_DASH` where one of Unicode's stands between groups of digits, and its bytes; 0, 0: neither."""
    if at >= stop:
        return 0, 0
    byte = data[at]
    if byte == _SPACE:
        return _SPACE, 1
    if byte == _DASH:
        return _DASH, 1
    if byte == 0xC2 and at + 1 < stop and data[at + 1] == 0xA0:
        return _SPACE, 2  # U+00A0
    if byte == 0xE2 and at + 2 < stop and data[at + 1] == 0x80:
        if data[at + 2] == 0xAF:
            return _SPACE, 3  # U+202F
        if 0x90 <= data[at + 2] <= 0x93:
            return _DASH, 3  # U+2010 to U+2013
    return 0, 0


@kernel
def _space_before(data, start, at):
    """Bytes of the space before `at`, 0: there is none."""
    for width in range(1, 4):
        if at - width >= start:
            mark, found = _mark(data, at - width, at)
            if mark == _SPACE and found == width:
                return width
    return 0


@kernel
def _word_before(data, start, at):
    """Last eight letters of the word before `at`, with at most three other characters between them, and its begin."""
    last = at
    for _ in range(4):
        if last > start and not _CLASS[data[last - 1]] & (_LETTER | _LATIN | _DIGIT):
            last -= 1
    packed, shift, letters = np.uint64(0), np.uint64(0), 0
    while letters < 8 and last > start and _CLASS[data[last - 1]] & _LETTER:
        packed |= np.uint64(data[last - 1] | 32) << shift
        shift += np.uint64(8)
        last -= 1
        letters += 1
    if letters < 8 and last > start and _CLASS[data[last - 1]] & _LATIN:
        return np.uint64(0), last
    return packed, last


@kernel
def _is_one_of(packed, words):
    for word in words:  # noqa: SIM110 -- Numba has no any and all of generators
        if packed == word:
            return True
    return False


@kernel
def _follows(data, start, at, words):
    """Whether one of the words stands before `at`, with at most three other characters between them."""
    packed, _ = _word_before(data, start, at)
    return _is_one_of(packed, words)


# ---------------------------------------------------------------- e-mail addresses


@kernel
def _email(data, free, start, at, stop):
    begin = _local(data, free, at)
    if begin == at:
        return 0, 0
    end = _domain(data, at + 1, stop)
    if end == 0:
        return 0, 0
    if (
        at - begin == 3
        and data[begin] | 32 == 103
        and data[begin + 1] | 32 == 105
        and data[begin + 2] | 32 == 116
    ):
        return 0, 0  # git@host is an address of a repository
    if _is_password(data, start, at):
        return 0, 0  # in https://user:password@host, the host is the URL's
    return begin, end


@kernel
def _is_password(data, start, at):
    """Whether a URL's user and password end here: ``://``, and a ``:`` in what follows it."""
    least, colon, position = max(start, at - _USER_INFO), False, at
    while position > least and data[position - 1] not in _ENDS_USER_INFO:
        position -= 1
        colon |= data[position] == _COLON
    in_url = position - start > 2 and data[position - 1] == _SLASH and data[position - 2] == _SLASH
    return colon and in_url and data[position - 3] == _COLON


@kernel
def _local(data, free, at):
    """Begin of the local part; `at` where there is none."""
    least = max(free, at - _LOCAL)
    begin = at
    while begin > least and _CLASS[data[begin - 1]] & (_DIGIT | _LETTER | _OTHER_LOCAL | _LATIN):
        if data[begin - 1] == _DOT and (begin == at or data[begin] == _DOT):
            break
        begin -= 1
    cut = begin == least and begin > free and _is_word(data[begin - 1])
    if begin < at and cut and _is_word(data[begin]):
        return at
    while begin < at and not (_is_word(data[begin]) or data[begin] >= 0xC3):
        begin += 1
    return begin


@kernel
def _domain(data, begin, stop):
    """End of the longest domain with a top-level domain of letters; 0 where there is none."""
    end, labels, label, letters = 0, 0, begin, True
    position = begin
    last = min(stop, begin + _DOMAIN)
    while True:
        inside = position < last and (
            _CLASS[data[position]] & (_DIGIT | _LETTER | _LATIN)
            or (data[position] == _DASH and position > label)
        )
        if inside:
            letters = letters and _CLASS[data[position]] & (_LETTER | _LATIN) != 0
            position += 1
            continue
        behind = position
        while behind > label and data[behind - 1] == _DASH:
            behind -= 1
        if behind == label:
            break
        labels += 1
        punycode = behind - label > 4 and data[label + 2] == _DASH and data[label + 3] == _DASH
        only_letters = letters or (behind < position and _all_letters(data, label, behind))
        if labels > 1 and behind - label >= 2 and (only_letters or punycode):
            end = behind
        if behind < position or position >= last or data[position] != _DOT:
            break
        position += 1
        label, letters = position, True
    if (
        labels == 2
        and end
        and data[begin + 1] | 32 == 120
        and data[begin + 2] == _DOT
        and _is_digit(data, begin, stop)
    ):
        return 0  # icon@2x.png
    return end


@kernel
def _all_letters(data, begin, end):
    for position in range(begin, end):  # noqa: SIM110 -- Numba has no any and all of generators
        if not _CLASS[data[position]] & (_LETTER | _LATIN):
            return False
    return True


# ---------------------------------------------------------------- IP addresses


@kernel
def _octets(data, at, stop):
    """The four octets as one number, and the end; end 0 where there are no four."""
    address, position = 0, at
    for octet in range(4):
        value, digits = 0, 0
        while digits < 4 and _is_digit(data, position, stop):
            value = 10 * value + data[position] - 48
            digits += 1
            position += 1
        if digits == 0 or digits > 3 or value > 255 or (digits > 1 and data[position - digits] == 48):
            return 0, 0
        address = address << 8 | value
        if octet < 3:
            if position >= stop or data[position] != _DOT:
                return 0, 0
            position += 1
    return address, position


@kernel
def _ipv4(data, start, at, stop, public_only):
    address, end = _octets(data, at, stop)
    if end == 0 or not _ends_address(data, end, stop):
        return 0
    if at > start and data[at - 1] in (_DASH, _SLASH) and at - 1 > start and _CLASS[data[at - 2]] & _LETTER:
        return 0  # libfoo-1.2.3.4, Chrome/120.0.0.0
    if public_only and not _is_public(address):
        return 0
    return 0 if _follows(data, start, at, _NUMBERED) else end


@kernel
def _ends_address(data, end, stop):
    """Ranges may go on with a dash and a digit."""
    if end + 1 < stop and data[end] == _DASH and _is_digit(data, end + 1, stop):
        return True
    return _ends(data, end, stop)


@kernel
def _is_public(address):
    """As Python's `ipaddress.ip_address(…).is_global`."""
    first, second = address >> 24, address >> 16 & 255
    if first in (0, 10, 127) or first >= 240:
        return False
    if first == 100:
        return second >> 6 != 1
    if first == 169:
        return second != 254
    if first == 172:
        return second >> 4 != 1
    if first == 192 and second == 0:
        block = address >> 8 & 255
        return (block != 0 and block != 2) or (block == 0 and (address & 255) in (9, 10))
    if first == 192:
        return second != 168
    if first == 198:
        return second >> 1 != 9 and address >> 8 != 0xC63364
    return address >> 8 != 0xCB0071


@kernel
def _ipv6(data, free, colon, stop, public_only):
    begin = colon
    while begin > free and colon - begin < 4 and _CLASS[data[begin - 1]] & _HEX:
        begin -= 1
    if begin > free and (_is_word(data[begin - 1]) or data[begin - 1] in (_COLON, _DOT, _DASH)):
        return 0, 0
    groups, gap, position, first, second = 0, False, begin, 0, 0
    end = 0
    while True:
        if position + 1 < stop and data[position] == _COLON and data[position + 1] == _COLON:
            if gap:
                return 0, 0
            gap, position = True, position + 2
        elif groups:
            if position >= stop or data[position] != _COLON or not _is_hex(data, position + 1, stop):
                end = position
                break
            position += 1
        if not _is_hex(data, position, stop):
            end = position
            break
        _, four = _octets(data, position, stop)
        if four and groups:
            groups, end = groups + 2, four
            break
        value, digits = 0, 0
        while digits < 5 and _is_hex(data, position, stop):
            value = value << 4 | _hex(data[position])
            digits += 1
            position += 1
        if digits > 4 or groups == 8:
            return 0, 0
        if groups == 0 and not (gap and position - digits != begin):
            first = value
        if groups == 1:
            second = value
        groups += 1
    if not ((groups == 8 and not gap) or (gap and 2 <= groups <= 7)):
        return 0, 0
    if end < stop and (_is_word(data[end]) or data[end] == _COLON):
        return 0, 0
    if public_only and not _is_global_unicast(first, second):
        return 0, 0
    return begin, end


@kernel
def _is_hex(data, at, stop):
    return at < stop and _CLASS[data[at]] & _HEX != 0


@kernel
def _hex(byte):
    return byte - 48 if byte < 58 else (byte | 32) - 87


@kernel
def _is_global_unicast(first, second):
    """Of 2000::/3, without documentation (2001:db8::/32, 3fff::/20), protocol assignments (2001::/23) and 6to4."""
    if first >> 13 != 1 or first == 0x2002 or (first == 0x3FFF and second >> 12 == 0):
        return False
    return not (first == 0x2001 and (second == 0xDB8 or second >> 9 == 0))


# ---------------------------------------------------------------- numbers with checks


@kernel
def _begins(data, start, at, mark):
    """Whether no longer number or path stands before; in one with spaces between, nor other digits."""
    if at == start:
        return True
    byte = data[at - 1]
    if byte in (_DASH, _SLASH, _DOT, _PLUS) or _is_word(byte):
        return False
    return not (mark == _SPACE and _goes_on_before(data, start, at))


@kernel
def _ssn(data, start, at, stop):
    """Areas 000, 666 and 9xx, group 00 and serial 0000 were never given out."""
    mark, _ = _mark(data, at + 3, stop)
    value, position = 0, at
    for place in range(9):
        if place == 3 or place == 5:
            found, width = _mark(data, position, stop)
            if found != mark:
                return 0
            position += width
        if not _is_digit(data, position, stop):
            return 0
        value = 10 * value + data[position] - 48
        position += 1
    area = value // 1_000_000
    if area == 0 or area == 666 or area >= 900 or value // 10_000 % 100 == 0 or value % 10_000 == 0:
        return 0
    if value in (78_051_120, 219_099_999, 457_555_462):  # printed on sample cards
        return 0
    if not _begins(data, start, at, mark) or not _ends(data, position, stop):
        return 0
    return position if mark or _follows(data, start, at, _SOCIAL) else 0


@kernel
def _card(data, start, at, stop):
    run = 0
    while run < 20 and _is_digit(data, at + run, stop):
        run += 1
    if run == 4:
        mark, _ = _mark(data, at + 4, stop)
        if mark == 0 or not _begins(data, start, at, mark):
            return 0
        for length in (19, 16, 15, 14):
            end = _grouped(data, at, stop, length, mark)
            if end and _is_card(data, at, end, length):
                return end
        return 0
    if (
        run < 12
        or run > 19
        or not _begins(data, start, at, 0)
        or not _ends(data, at + run, stop)
        or not _is_card(data, at, at + run, run)
    ):
        return 0
    return 0 if _follows(data, start, at, _BOOKS) else at + run


@kernel
def _grouped(data, at, stop, length, mark):
    """End of a card's number in groups as they are printed; 0 where it is not so."""
    position = at
    for place in range(length):
        breaks = place % 4 == 0 if length >= 16 else place == 4 or place == 10
        if place and breaks:
            found, width = _mark(data, position, stop)
            if found != mark:
                return 0
            position += width
        if not _is_digit(data, position, stop):
            return 0
        position += 1
    return position if _ends(data, position, stop) else 0


@kernel
def _is_card(data, begin, end, length):
    """Issuer, length and Luhn's checksum."""
    prefix, total, place = 0, 0, 0
    for position in range(begin, end):
        if not _CLASS[data[position]] & _DIGIT:
            continue
        digit = int(data[position]) - 48
        if place < 4:
            prefix = 10 * prefix + digit
        if (length - place) % 2 == 0:
            digit = 2 * digit - 9 if digit > 4 else 2 * digit
        total += digit
        place += 1
    return total % 10 == 0 and _issued(prefix, length)


@kernel
def _issued(prefix, length):
    """Whether an issuer gives out numbers of this length that begin with these four digits."""
    two = prefix // 100
    if prefix // 1000 == 4:
        return length in (13, 16, 19)  # Visa
    if 51 <= two <= 55 or 2221 <= prefix <= 2720:
        return length == 16  # Mastercard
    if two in (34, 37):
        return length == 15  # American Express
    if 3528 <= prefix <= 3589:
        return length >= 16  # JCB
    if prefix in (2131, 1800):
        return length == 15  # JCB, older
    if 300 <= prefix // 10 <= 305 or prefix == 3095 or two in (36, 38, 39):
        return length in (14, 16, 19)  # Diners Club
    if prefix == 6011 or 644 <= prefix // 10 <= 649 or two in (62, 65):
        return length >= 16  # Discover, UnionPay
    return prefix in (5018, 5020, 5038, 5893, 6304, 6759, 6761, 6762, 6763)  # Maestro: 12 to 19


@kernel
def _iban(data, free, at, stop):
    begin = at - 2
    if begin < free or not (_CLASS[data[begin]] & _LETTER and _CLASS[data[begin + 1]] & _LETTER):
        return 0
    if (begin > free and _is_word(data[begin - 1])) or not _is_digit(data, at + 1, stop):
        return 0
    length = _IBAN_LENGTH[((data[begin] | 32) - 97) * 26 + (data[begin + 1] | 32) - 97]
    if length == 0:
        return 0
    mark, position, rest, head = 0, begin, 0, 0
    for place in range(length):
        if place == 4:
            mark, _ = _mark(data, position, stop)
        if place and place % 4 == 0 and mark:
            found, width = _mark(data, position, stop)
            if found != mark:
                return 0
            position += width
        if position >= stop or not _CLASS[data[position]] & (_DIGIT | _LETTER):
            return 0
        byte = data[position]
        value = byte - 48 if byte < 58 else (byte | 32) - 87
        shift = 10 if byte < 58 else 100
        if place < 4:
            head = head * shift + value
        else:
            rest = (rest * shift + value) % 97
        position += 1
    if (rest * 1_000_000 + head) % 97 != 1:
        return 0
    return position if position >= stop or not _is_word(data[position]) else 0


# ---------------------------------------------------------------- phone numbers


@kernel
def _phone(data, free, start, at, stop, lengths):
    """A candidate: ``+`` and digits, or digits in groups, or digits alone behind a word such as tel."""
    begin = at
    if begin > free and data[begin - 1] == _OPEN:
        begin -= 1
    plus = begin > free and data[begin - 1] == _PLUS
    begin -= plus
    if begin > start and (_is_word(data[begin - 1]) or _CLASS[data[begin - 1]] & _BEFORE):
        return 0, 0
    end, shape, digits, breaks, dots, spaces, more = _groups(data, at, min(stop, begin + _PHONE_BYTES))
    if digits < 7 or digits > _PHONE_DIGITS or not _ends_phone(data, end, stop):
        return 0, 0
    if spaces == breaks and not plus and (more or _goes_on_before(data, start, begin)):
        return 0, 0  # a row of numbers
    extended = _extension(data, end, stop)
    if begin < at and data[at - 1] == _OPEN and not _has_close(data, at, end):
        begin = at  # the bracket is around the number
    if plus:
        return begin, extended
    if not lengths >> digits & 1 and not spaces:
        return 0, 0
    if _is_date(data, at, end, stop):
        return 0, 0
    word, _ = _word_before(data, start, begin)
    if _is_one_of(word, _BOOKS) or _is_one_of(word, _NUMBERED):
        return 0, 0
    longest = _longest(shape)
    ungrouped = breaks == 0 or longest > _LONGEST_GROUP or (dots == 1 and breaks == 1)
    if (ungrouped or _is_other_number(shape, dots, breaks, longest)) and not _is_called(data, start, begin):
        return 0, 0
    return begin, extended


@kernel
def _groups(data, at, last):
    """Groups of digits: end, their lengths in four bits each, digits, breaks, dots and spaces, and whether more follow.

    Where there are too many digits for a number, those behind the last space are another's.
    """
    digits, breaks, dots, spaces, shape, group, end, position = 0, 0, 0, 0, 0, 0, at, at
    parted = (at, 0, 0, 0, 0, 0)  # as above, at the last space behind which a number may end
    while position < last:
        if _CLASS[data[position]] & _DIGIT:
            digits += 1
            group += 1
            position += 1
            end = position
            if digits > _PHONE_DIGITS:
                return parted[0], parted[1], parted[2], parted[3], parted[4], parted[5], True
            continue
        width = _between(data, position, last)
        if width == 0:
            break
        mark, _ = _mark(data, position, last)
        if mark == _SPACE and digits >= 7:
            parted = (end, shape << 4 | group, digits, breaks, dots, spaces)
        breaks += 1
        dots += data[position] == _DOT
        spaces += mark == _SPACE
        shape = shape << 4 | group
        group = 0
        position += width
    return end, shape << 4 | group, digits, breaks, dots, spaces, False


@kernel
def _longest(shape):
    longest = 0
    while shape:
        longest = max(longest, shape & 15)
        shape >>= 4
    return longest


@kernel
def _goes_on_before(data, start, begin):
    width = _space_before(data, start, begin)
    return width > 0 and begin - width > start and _is_digit(data, begin - width - 1, begin)


@kernel
def _is_called(data, start, at):
    """Whether a word such as tel stands before, or one and number, as in phone number: 555."""
    packed, begin = _word_before(data, start, at)
    return _is_one_of(packed, _CALLED) or (
        _is_one_of(packed, _NUMBER) and _follows(data, start, begin, _CALLED)
    )


@kernel
def _is_other_number(shape, dots, breaks, longest):
    """Whether lengths of groups are those of other numbers, or of an IP address, a version or thousands."""
    return (dots == 3 and breaks == 3 and longest <= 3) or shape in _NO_PHONES


@kernel
def _run(data, position, last):
    """Digits from here on."""
    run = 0
    while _is_digit(data, position + run, last):
        run += 1
    return run


@kernel
def _ends_phone(data, end, stop):
    return _ends(data, end, stop) or _extension(data, end, stop) > end


@kernel
def _extension(data, end, stop):
    """End of an extension such as x12 or ext. 12; `end` where there is none."""
    position = end
    if position < stop and data[position] == _SPACE:
        position += 1
    if position + 3 < stop and data[position] | 32 == 101 and data[position + 1] | 32 == 120:
        if data[position + 2] | 32 != 116:
            return end
        position += 3
        if position < stop and data[position] == _DOT:
            position += 1
        if position < stop and data[position] == _SPACE:
            position += 1
    elif position < stop and data[position] | 32 == 120:
        position += 1
    else:
        return end
    run = _run(data, position, min(stop, position + 8))
    return position + run if 0 < run < 7 and _ends(data, position + run, stop) else end


@kernel
def _between(data, position, last):
    """Bytes between two groups of digits: one mark, or two of which one is a bracket or a space; else 0."""
    first = _width_between(data, position, last)
    if first == 0 or _is_digit(data, position + first, last):
        return first
    second = _width_between(data, position + first, last)
    if second == 0 or not _is_digit(data, position + first + second, last):
        return 0
    bracket = data[position] == _CLOSE or data[position + first] == _OPEN
    return first + second if bracket else 0


@kernel
def _width_between(data, position, last):
    if position < last and _CLASS[data[position]] & _BETWEEN:
        return 1
    _, width = _mark(data, position, last)
    return width


@kernel
def _has_close(data, begin, end):
    for position in range(begin, end):  # noqa: SIM110 -- Numba has no any and all of generators
        if data[position] == _CLOSE:
            return True
    return False


@kernel
def _is_date(data, at, end, stop):
    """Whether digits begin as 2024-01-02, 02.01.2024 or 1990-1995 do."""
    first, second, third = 0, 0, 0
    position = at
    while _is_digit(data, position, end):
        position += 1
    first = position - at
    if position >= end:
        return False
    mark = data[position]
    begin = position + 1
    position = begin
    while _is_digit(data, position, end):
        position += 1
    second = position - begin
    if first == 4 and second == 4:
        return data[at] in _MILLENNIA and data[begin] in _MILLENNIA
    if position >= end or data[position] != mark:
        return False
    begin = position + 1
    position = begin
    while _is_digit(data, position, end):
        position += 1
    third = position - begin
    if first == 4:
        return second <= 2 and third <= 2 and data[at] in _MILLENNIA
    return first <= 2 and second <= 2 and third == 4 and data[begin] in _MILLENNIA
