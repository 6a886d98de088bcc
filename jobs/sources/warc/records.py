"""Records one after another: WARC (ISO 28500, and its drafts from 0.17 on) and ARC version 1.

A record is a header, as many bytes as it says, and line ends. Where a piece of the file ends, a record may go on in the
next, unless that begins with a record. A record is sound if behind it another begins, or its piece ends. One that has
a piece for itself is handed on when the piece's checksum was compared.

What is not sound is damage, and the reader goes on at the next record that it finds: behind the damaged header, or,
where nothing can be decoded, at the next piece that begins with a record.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from jobs.sources.compression import DamagedError
from jobs.sources.warc import pieces

RECORD_BYTES = 256 * 2**20  # a longer record is unreadable, and is never held
HEADER_BYTES = 2**20
LINE_BYTES = 2**16  # of an ARC file's header, which is one line
NEWLINES = b"\r\n"
NO_RECORD = "no record begins where one should"
TRUNCATED = "it is truncated: the file ends within its {}"


@dataclass(frozen=True)
class Record:
    """A record, or damage.

    Attributes
    ----------
    place
        Where reading can begin with this record; None within a piece.
    fields
        Of its header, names in lower case; an ARC record's under WARC's names. Empty where there is none to read.
    content
        Parts of it, one after another.
    n_bytes
        Header and content.
    error
        Why it cannot be read, in one sentence.
    """

    place: int | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    content: tuple[bytes, ...] = ()
    n_bytes: int = 0
    error: str | None = None

    @property
    def type(self) -> str:
        """`response`, `warcinfo` and so on; an ARC file's first record is its `warcinfo`, others are responses."""
        return self.fields.get("warc-type", "").lower()


def records_from(raw: IO[bytes], place: int) -> Iterator[Record]:
    """Records and damage of a file from `place` on, in order; the same ones wherever reading began.

    Parameters
    ----------
    raw
        A seekable binary file.
    place
        0, or that of a record.
    """
    return _Reader(raw, place).records()


class _RecordError(DamagedError):
    """The record cannot be read, but what follows can be decoded."""


# ---------------------------------------------------------------- headers


class _Warc:
    """Lines of names and values, and an empty line."""

    FOUND = re.compile(rb"\n\r?\n(WARC/\d\.\d+[ \t]*\r?\n(?:WARC|Content)-)", re.IGNORECASE)
    END = re.compile(rb"\n\r?\n")
    AHEAD = 5  # bytes that tell whether a record begins

    @staticmethod
    def begins(head: bytes) -> bool:
        """Whether a header begins so, or may, where its piece ends here."""
        return bool(head) and b"WARC/".startswith(head[:5])

    @staticmethod
    def fields(header: bytes) -> dict[str, str]:
        """Of fields that occur twice, the first; a line that begins with a blank continues the one before."""
        if b"\n " in header or b"\n\t" in header:
            header = re.sub(rb"\r?\n[ \t]+", b" ", header)
        lines = (line.partition(":") for line in reversed(_decoded(header).split("\n")[1:]))
        found = {name.strip().lower(): value.strip() for name, colon, value in lines if colon}
        # Wget writes brackets around it, as a draft of the standard had them.
        if found.get("warc-target-uri", "").startswith("<"):
            found["warc-target-uri"] = found["warc-target-uri"].strip("<>")
        return found


class _Arc:
    """A line: URL, IP address, date, media type, in version 2 more, and length."""

    FOUND = re.compile(rb"\n([a-z][a-z0-9+.-]*:[^\s]+ [0-9a-f.:]+ \d{14} )", re.IGNORECASE)
    END = re.compile(rb"\n")
    AHEAD = LINE_BYTES
    URL = re.compile(rb"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
    DATE = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)")

    @classmethod
    def begins(cls, head: bytes) -> bool:
        """Whether a header begins so, or may, where its piece ends here."""
        line, end, _ = head.partition(b"\n")
        parts = line.split()
        return bool(cls.URL.match(line)) and (not end or (len(parts) >= 5 and parts[-1].isdigit()))

    @classmethod
    def fields(cls, header: bytes) -> dict[str, str]:
        """Under WARC's names. A URL may hold blanks; the date, where there is one, tells where it ends."""
        parts = _decoded(header).split()
        if len(parts) < 5:
            return {}
        dated = (i for i in range(2, len(parts) - 1) if cls.DATE.fullmatch(parts[i]))
        date = next(dated, len(parts) - 3)
        url = " ".join(parts[: date - 1])
        return {
            "warc-type": "warcinfo" if url.startswith("filedesc:") else "response",
            "warc-target-uri": url,
            "warc-ip-address": parts[date - 1],
            "warc-date": cls.DATE.sub(r"\1-\2-\3T\4:\5:\6Z", parts[date]),
            "content-type": parts[date + 1].rstrip(";"),
            "content-length": parts[-1],
        }


def _decoded(header: bytes) -> str:
    """UTF-8, as the standard wants it, or a line of anything else as ISO 8859-1, as warcio takes it."""
    try:
        return header.decode()
    except UnicodeDecodeError:
        line, end, rest = header.partition(b"\n")
        return line.decode("latin-1") if not end else "\n".join(map(_decoded, [line, *rest.split(b"\n")]))


def _syntax(raw: IO[bytes]) -> type[_Warc] | type[_Arc]:
    """By what the file begins with; WARC where nothing can be told."""
    stream = _Stream(raw, 0, _Arc)
    try:
        return _Arc if stream.to_content() and stream.begins_record() else _Warc
    except DamagedError:
        return _Warc


# ---------------------------------------------------------------- bytes


class _Stream:
    """Decoded bytes from a place on, and where pieces begin among them."""

    def __init__(self, raw: IO[bytes], place: int, syntax: type[_Warc] | type[_Arc]) -> None:
        self.raw, self.syntax, self.plain = raw, syntax, pieces.is_plain(raw)
        self.size = raw.seek(0, 2)
        self._open(place)

    def _open(self, place: int) -> None:
        self._chunks = pieces.chunks(self.raw, place)
        self._ahead: tuple[int, bytes] | None = None  # the beginning of the next piece
        self._data, self._at = b"", 0
        self.piece = -1  # none yet
        self.fresh = False  # nothing was taken from this piece but line ends
        self.taken = 0  # bytes from this piece

    @property
    def place(self) -> int | None:
        """Where reading could begin with the next byte."""
        return self.piece + self.taken if self.plain else self.piece if self.fresh else None

    def take(self, count: int) -> None:
        """Go over bytes that are at hand."""
        self._at += count
        self.taken += count

    def more(self) -> bool:
        """Have more bytes of this piece at hand; False at its end."""
        while self._ahead is None:
            place, chunk = next(self._chunks, (-1, b""))
            if place != self.piece or place < 0:
                self._ahead = place, chunk
            elif chunk:
                self._data = self._data[self._at :] + chunk
                self._at = 0
                return True
        return False

    def advance(self) -> bool:
        """Go from the end of a piece to the beginning of the next; False at the end of the file."""
        if self._ahead is None or self._ahead[0] < 0:
            return False
        (self.piece, self._data), self._ahead = self._ahead, None
        self._at, self.taken, self.fresh = 0, 0, True
        return True

    def head(self, count: int) -> bytes:
        """The next bytes, fewer where the piece ends."""
        while len(self._data) - self._at < count and self.more():
            pass
        return self._data[self._at : self._at + count]

    def begins_record(self) -> bool:
        """Whether a record begins with the next byte, or may, where the piece ends soon."""
        return self.syntax.begins(self.head(self.syntax.AHEAD))

    def skip_newlines(self) -> bool:
        """Skip line ends within the piece; False at its end."""
        while True:
            rest = self._data[self._at : self._at + 64].lstrip(NEWLINES)
            if rest:
                self.take(min(64, len(self._data) - self._at) - len(rest))
                return True
            self.take(min(64, len(self._data) - self._at))
            if self._at == len(self._data) and not self.more():
                return False

    def to_content(self) -> bool:
        """Go to the next byte that is no line end, in whatever piece; False at the end of the file."""
        while not self.skip_newlines():
            if not self.advance():
                return False
        return True

    def header(self) -> bytes:
        """A record's header, which is still ahead then, with the line end that it ends with."""
        self.fresh = False
        searched = self._at
        while not (match := self.syntax.END.search(self._data, searched)):
            size = len(self._data) - self._at
            if size > HEADER_BYTES:
                raise _RecordError(f"its header is longer than {HEADER_BYTES:,} bytes")
            if not self.more():
                self._in_next_piece("header")
            searched = self._at + max(0, size - 2)
        return self._data[self._at : match.end()]

    def content(self, size: int) -> tuple[bytes, ...]:
        """So many bytes in parts; no parts where they are too many to be held."""
        if self.plain and size > self.size - self.piece - self.taken:
            raise _RecordError(TRUNCATED.format("content"))
        parts: list[bytes] = []
        missing = size
        try:
            while missing:
                if self._at == len(self._data) and not self.more():
                    self._in_next_piece("content")
                    continue
                part = self._data[self._at : self._at + missing]
                self.take(len(part))
                missing -= len(part)
                if size <= RECORD_BYTES:
                    parts.append(part)
        except _RecordError:
            self.unread(size - missing, parts)
            raise
        return tuple(parts)

    def _in_next_piece(self, what: str) -> None:
        """Go on with a record that its piece does not end."""
        rest = self._data[self._at :]
        if not self.advance():
            raise _RecordError(TRUNCATED.format(what))
        if self.begins_record():
            raise _RecordError(f"its {what} is shorter than it says")
        self._data = rest + self._data[self._at :]
        self._at, self.fresh = 0, False

    def unread(self, size: int, parts: Sequence[bytes]) -> None:
        """Go back over what was read of a content, if that is in the same piece and held or plain."""
        if self.plain:
            self._open(self.piece + self.taken - size)
        elif not self.fresh:
            self._data = b"".join([*parts, self._data[self._at :]])
            self._at = 0

    # ------------------------------------------------------------ behind damage

    def to_next_record(self) -> bool:
        """Go to the next record that is found in what can be decoded; False where there is none."""
        while True:
            if self.fresh and self.begins_record():
                return True
            if match := self.syntax.FOUND.search(self._data, self._at):
                self.take(match.start(1) - self._at)
                self.fresh = False
                return True
            self.take(max(0, len(self._data) - self._at - LINE_BYTES))
            if not self.more() and not self.advance():
                return False

    def to_next_piece(self) -> bool:
        """Go to the next piece that begins with a record; False where there is none."""
        for place in pieces.candidates(self.raw, self.piece + 1):
            self._open(place)
            try:
                if self.to_content() and self.piece == place and self.begins_record():
                    return True
            except DamagedError:
                continue
        return False


# ---------------------------------------------------------------- records


class _Reader:
    """Records of a stream, with damage where there is some."""

    def __init__(self, raw: IO[bytes], place: int) -> None:
        self.stream = _Stream(raw, place, _syntax(raw))
        self.fields: dict[str, str] = {}  # of the record in progress

    def records(self) -> Iterator[Record]:
        going_on = True
        while going_on:
            try:
                yield from self._until_damage()
                return
            except DamagedError as error:
                said, fields = str(error), self.fields
                going_on = self._resume(decodable=isinstance(error, _RecordError))
            if not (going_on or said.startswith("it is truncated")):  # where nothing follows
                said += "; what follows is lost"
            yield Record(fields=fields, error=said)

    def _until_damage(self) -> Iterator[Record]:
        stream = self.stream
        while self._to_record():
            place = stream.place
            if not stream.begins_record():
                raise _RecordError(NO_RECORD)
            header = stream.header()
            self.fields = stream.syntax.fields(header)
            size = _content_length(self.fields)
            stream.take(len(header))
            record = Record(place, self.fields, stream.content(size), len(header) + size, _too_long(size))
            try:
                sound = not stream.skip_newlines() or stream.begins_record()
            except DamagedError:
                if place is None or stream.plain:  # others of its piece were handed on as well
                    yield record
                    self.fields = {}
                raise
            if not sound:
                stream.unread(size, record.content)
                raise _RecordError(f"it does not end after the {size:,} bytes that its header says")
            yield record

    def _to_record(self) -> bool:
        self.fields = {}
        return self.stream.to_content()

    def _resume(self, decodable: bool) -> bool:
        if decodable:
            try:
                return self.stream.to_next_record()
            except DamagedError:
                pass
        return self.stream.to_next_piece()


def _content_length(fields: Mapping[str, str]) -> int:
    length = fields.get("content-length", "")
    if not fields.get("warc-type"):
        raise _RecordError("its header has no WARC-Type")
    if not (length.isascii() and length.isdigit()):
        raise _RecordError(f"its header has no length, but {length[:40]!r}")
    return int(length[:20])


def _too_long(size: int) -> str | None:
    return (
        f"it is longer than {RECORD_BYTES:,} bytes, too long for one document"
        if size > RECORD_BYTES
        else None
    )
