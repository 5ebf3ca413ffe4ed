"""JSON of many megabytes, read and written in short steps.

msgspec reads or writes a value in one call, and no other thread can run during that call: a string
of 30 MB takes up to 100 ms. So long strings are replaced by short ones before msgspec reads a text,
read in slices, and put back into the value; they are written in slices too. Results and errors are
always those of msgspec. Small texts go to msgspec directly.

A copy of that size holds the interpreter as well: a slice, `bytes(view)`, a comparison. Only
`b"".join` of bytes lets go of it meanwhile (of more than 1 MiB, from Python 3.10 on). So whatever
is copied as a whole is a join of slices.
"""

import codecs
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

T = TypeVar("T")

LARGE = 256 * 1024
"""Only JSON of more bytes than this is searched for long strings."""

SKIMMED = 4 * 1024 * 1024
"""JSON of more bytes than this is not skipped in one call, which takes 2 to 4 ms."""

SLICE = 32 * 1024
"""The size of one step, in bytes or characters. A string that is longer counts as long."""

# Possessive quantifiers (Python 3.11): nothing is tried twice, so a slice takes one pass, whatever
# is in it.
CLOSED = re.compile(rb'(?:[^"]*+"(?:[^"\\]++|\\.)*+")*+[^"]*+', re.DOTALL)
"""Matches everything before the first string that has no end in the searched range."""

# RFC 8259 §7: a character beyond U+FFFF is escaped as two surrogates, twelve bytes. msgspec refuses
# one of them alone, so a slice must not end between the two.
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_BYTE = re.compile(r"\(byte (\d+)\)")
_ESCAPE = len(rb"\u0000")
"""Bytes of the longest escape."""

_FEW_QUOTES = 16
"""Escaped quotes in one step that are looked at one by one."""

_MUCH = 4 * 1024 * 1024
"""Characters of a text that is joined in memory which was in use before."""

_BLANK = bytes(LARGE)

_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode
_skip = msgspec.json.Decoder(Raw).decode


# Reading


def read(data: bytes | Raw, type: type[T]) -> T:
    """Returns what `msgspec.json.decode` returns, and raises what it raises."""
    if len(data) <= LARGE:
        return msgspec.json.decode(data, type=type)
    return _read(data, msgspec.json.Decoder(type).decode)


def decoder(type: type[T]) -> Callable[[bytes | Raw], T]:
    """Returns a function that reads values of this type as `read` does."""
    decode = msgspec.json.Decoder(type).decode

    def read_one(data: bytes | Raw) -> T:
        return decode(data) if len(data) <= LARGE else _read(data, decode)

    return read_one


def skimmer(type: type[T]) -> Callable[[bytes | Raw], T]:
    """The same for values of which next to nothing is read: the rest stays raw, or is not wanted.
    msgspec skips that so fast that only very long texts, and long ones with very many escapes, are
    read in slices."""
    decode = msgspec.json.Decoder(type).decode

    def read_one(data: bytes | Raw) -> T:
        size = len(data)
        if size <= LARGE:
            return decode(data)
        # In slices: a Raw cannot count.
        if size <= SKIMMED and sum(one.count(b"\\") for one in _slices(data)) <= LARGE:
            return decode(data)
        return _read(data, decode)

    return read_one


members = skimmer(dict[str, Raw])
"""Returns the members of an object by their keys, in order, as raw JSON."""

elements = skimmer(list[Raw])
"""Returns the elements of an array as raw JSON."""


def is_json(data: bytes) -> bool:
    """Whether these bytes are one JSON value, as msgspec reads it."""
    try:
        if len(data) <= LARGE:
            _skip(data)
        else:
            outline = _Outline(data)
            _skip(outline.text)
            outline.check_unread()
    except (ValueError, RecursionError):
        return False
    return True


def first_byte(data: bytes | Raw) -> bytes:
    """Returns the first byte that is no blank, which tells the kind of a JSON value."""
    return next((begin[:1] for one in _slices(data) if (begin := one.lstrip())), b"")


def is_utf8(data: bytes) -> bool:
    """Whether these bytes are UTF-8."""
    try:
        if len(data) <= LARGE:
            data.decode()
        else:
            decode = codecs.getincrementaldecoder("utf-8")().decode
            for one in _slices(data):
                decode(one)
            decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def copied(data: bytes | Raw | memoryview) -> bytes:
    """Returns these bytes as bytes of their own; those that are bytes, as they are."""
    if isinstance(data, bytes):
        return data
    return bytes(data) if len(data) <= SLICE else b"".join(list(_slices(data)))


def trimmed(data: bytes, start: int = 0) -> bytes:
    """Returns `data[start:].strip()`."""
    if len(data) <= SKIMMED:
        return data[start:].strip()
    # Blanks are at the ends, and few.
    first, last = data[start : start + SLICE].lstrip(), data[-SLICE:].rstrip()
    if not first or not last:
        return data[start:].strip()
    begin, end = start + SLICE - len(first), len(data) - SLICE + len(last)
    return data if (begin, end) == (0, len(data)) else copied(memoryview(data)[begin:end])


def joined(texts: Sequence[str]) -> str:
    """Returns the texts as one."""
    size = sum(map(len, texts)) if len(texts) > 1 else 0
    if size > _MUCH:
        # Other threads wait while strings are joined, and most of that time goes into memory that
        # the kernel hands out page by page: 65 of 75 ms for 60 million characters. Bytes of that
        # size, which are joined without making others wait, leave such memory behind.
        width = min(4, max(sys.getsizeof(one) // len(one) for one in texts if one))
        b"".join([_BLANK] * (size * width // len(_BLANK) + 1))
    return "".join(texts)


def _slices(data: bytes | Raw | memoryview) -> Iterator[bytes]:
    view = memoryview(data)
    for at in range(0, len(view), SLICE):
        yield bytes(view[at : at + SLICE])


def _read(source: bytes | Raw, decode: Callable[[bytes], T]) -> T:
    data = copied(source)
    outline = _Outline(data)
    if not outline.strings:
        return decode(data)
    try:
        value = decode(outline.text)
    except msgspec.DecodeError as problem:
        # Without the outline's error as its cause: that one counts bytes in a text nobody has seen.
        raise outline.located(problem) from None
    value = outline.filled(value)
    # msgspec checks what it skips, too. A string in a field that the type does not have would go
    # unchecked here, and a malformed body would be taken.
    outline.check_unread()
    return value


class _LongString:
    """Where a long string stands in a JSON text, quotes included."""

    __slots__ = ("_data", "end", "is_read", "start")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data = data
        self.start = start
        self.end = end
        self.is_read = False

    def slices(self) -> list[bytes]:
        """The string as it stands, in slices."""
        starts = range(self.start, self.end, SLICE)
        return [self._data[at : min(at + SLICE, self.end)] for at in starts]

    def text(self) -> str:
        self.is_read = True
        return joined(list(self._each(_decode_text)))

    def check(self) -> None:
        """Raises DecodeError if msgspec would, on skipping this string."""
        for _ in self._each(_skip):
            pass

    def _each(self, decode: Callable[[bytes], T]) -> Iterator[T]:
        position, last = self.start + 1, self.end - 1
        while position < last:
            end = _end_of_slice(self._data, position, last)
            try:
                yield decode(b'"%b"' % self._data[position:end])
            except msgspec.DecodeError as problem:
                raise _moved(problem, (position - 1).__add__) from None
            position = end


def _end_of_slice(data: bytes, start: int, last: int) -> int:
    """Returns the end of the slice that begins at `start`: `SLICE` bytes later, or a little less,
    so that no character, escape or surrogate pair is cut in two.
    """
    end = start + SLICE
    if end >= last:
        return last
    for _ in range(3):  # a character has at most three bytes behind its first
        end -= data[end] & 0xC0 == 0x80
    # An escape that reaches over the end begins at most six bytes before it, and so does the second
    # half of a pair, behind a first one of six. Without a backslash there, nothing is cut.
    if data.find(b"\\", end - 2 * _ESCAPE, end) < 0:
        return end
    tail = max(start, end - 4 * _ESCAPE)
    if tail > start and _is_escaped(data, tail, start):
        tail += 1
    masked = _masked(data[tail:end])
    cut = masked.rfind(b"\\", -_ESCAPE)
    if cut >= 0 and cut + (_ESCAPE if masked.startswith(b"u", cut + 1) else 2) > len(masked):
        masked = masked[:cut]
    if _HIGH_SURROGATE.match(masked, len(masked) - _ESCAPE):
        masked = masked[:-_ESCAPE]  # its other half comes next
    return tail + len(masked)


def _is_escaped(data: bytes, position: int, start: int) -> bool:
    """Whether a backslash of a string that begins at `start` escapes the byte at `position`."""
    size = 2 * _ESCAPE
    while True:
        before = data[max(start, position - size) : position]
        backslashes = len(before) - len(before.rstrip(b"\\"))
        if backslashes < len(before) or position - size <= start:
            return backslashes % 2 == 1
        size *= 16


def _masked(piece: bytes) -> bytes:
    """Returns a piece of a string, at its length, with escaped backslashes and quotes blanked out:
    the backslashes that remain begin other escapes, and a quote ends the string.
    """
    # In this order: of `\\"` the backslashes are a pair, and the quote ends the string.
    return piece.replace(b"\\\\", b"__").replace(b'\\"', b"__")


class _Outline:
    """A JSON text whose long strings are replaced by names: short strings found nowhere else."""

    def __init__(self, data: bytes) -> None:
        self.strings = [_LongString(data, *span) for span in long_strings(data)]
        self.text = data
        if not self.strings:
            return
        starts = [0, *(one.end for one in self.strings)]
        ends = [*(one.start for one in self.strings), len(data)]
        pieces = [data[start:end] for start, end in zip(starts, ends, strict=True)]
        digest = blake2b(digest_size=16)
        for piece in pieces:
            digest.update(piece)
        # No text can contain its own hash, so no string of it equals a name.
        self._name = digest.hexdigest()
        # All names have one length, by which byte positions in errors are moved.
        names = [f"{self._name}-{number:08}" for number in range(len(self.strings))]
        self._by_name = dict(zip(names, self.strings, strict=True))
        self._names = re.compile(rb'"%b-(\d{8})"' % self._name.encode())
        quoted = [f'"{name}"'.encode() for name in names]
        self.text = b"".join(
            [one for pair in zip(pieces, [*quoted, b""], strict=True) for one in pair]
        )

    def filled(self, value: T) -> T:
        """Returns a value that was read from the outline, with its long strings put back."""
        return self._filled(value)  # type: ignore[return-value]

    def _filled(self, value: object) -> object:
        match value:
            case str():
                found = self._by_name.get(value)
                return value if found is None else found.text()
            case Raw():
                pieces = self._names.split(bytes(value))
                if len(pieces) > 1:
                    slices: list[bytes] = []
                    for at, piece in enumerate(pieces):
                        slices += self.strings[int(piece)].slices() if at % 2 else (piece,)
                    return Raw(b"".join(slices))
            case msgspec.Struct():
                # Even of a frozen struct: the value was made a moment ago, and nobody else has it
                # yet.
                for name in value.__struct_fields__:
                    member = getattr(value, name)
                    filled = self._filled(member)
                    if filled is not member:
                        msgspec.structs.force_setattr(value, name, filled)
            case list():
                value[:] = map(self._filled, value)
            case tuple():
                return tuple(map(self._filled, value))
            case dict():
                items = [(self._filled(key), self._filled(one)) for key, one in value.items()]
                value.clear()
                value.update(items)
        return value

    def check_unread(self) -> None:
        """Raises DecodeError if a string that is in no value is malformed, as msgspec does."""
        for one in self.strings:
            if not one.is_read:
                one.check()

    def located(self, problem: msgspec.DecodeError) -> msgspec.DecodeError:
        """Returns the error with its byte position in the whole text."""
        return _moved(problem, self._position_in_text)

    def _position_in_text(self, at: int) -> int:
        size = len(self._name) + len('"-00000000"')
        for one in self.strings:
            if at <= one.start:
                break
            at += one.end - one.start - size
        return at


def _moved(problem: msgspec.DecodeError, position: Callable[[int], int]) -> msgspec.DecodeError:
    """Returns the error with another byte position."""
    message = _BYTE.sub(lambda found: f"(byte {position(int(found[1]))})", str(problem))
    return problem.__class__(message)


def long_strings(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields where each string that is longer than a slice begins and ends, quotes included. A
    string that is not closed is left out.
    """
    start, size = 0, len(data)
    while start < size:
        closed = CLOSED.match(data, start, start + SLICE)
        stop = closed.end() if closed is not None else start
        if stop == start:  # all of the slice is inside one string
            stop = end_of_string(data, start)
            if stop > size:
                return
            yield start, stop
        start = stop


def end_of_string(data: bytes, start: int) -> int:
    """Returns the position after the string that begins at `start`; `len(data) + 1` if it is not
    closed."""
    # A short first step: `gateway/bodies.py` calls this for every string of a body, and most are
    # short.
    position, size, step = start + 1, len(data), 256
    while position < size:
        end = position + step
        for _ in range(_FEW_QUOTES):
            quote = data.find(b'"', position, end)
            if quote < 0:
                position = end
                break
            if not _is_escaped(data, quote, start):
                return quote + 1
            position = quote + 1
        else:  # many escaped quotes, which are faster to blank out than to look at
            masked = _masked(data[position:end])
            quote = masked.find(b'"')
            if quote >= 0:
                return position + quote + 1
            position += len(masked)
            if masked.endswith(b"\\") and position < size:  # the escaped character comes next
                position -= 1
        step = SLICE
    return size + 1


# Writing


def write(value: object) -> bytes:
    """Returns what `msgspec.json.encode` returns, and raises what it raises."""
    return b"".join(_in_pieces(value)) if _has_long_string(value) else _encode(value)


def write_text(text: str) -> bytes:
    """The same for a string: most are short, and this is faster for them."""
    return _encode(text) if len(text) <= SLICE else b"".join(pieces(text))


def pieces(value: object) -> list[bytes]:
    """Returns what `write` returns, in pieces, for callers that join them with others."""
    return _in_pieces(value) if _has_long_string(value) else [_encode(value)]


def _in_pieces(value: object) -> list[bytes]:
    long: list[list[bytes]] = []
    # msgspec writes a Raw as it is, without a check, so the marks come through although they are no
    # JSON.
    outline = _outlined(value, long)
    # JSON contains no NUL: between two of them is the number of a long string.
    found: list[bytes] = []
    for number, piece in enumerate(_encode(outline).split(b"\0")):
        found += long[int(piece)] if number % 2 else (piece,)
    return found


def _has_long_string(value: object) -> bool:
    # Nearly all values are short, and each is looked at several times on its way through the
    # gateway. So the members of all containers stand in one list, and are looked at without a call.
    waiting: list[Any] = [value]
    for one in waiting:  # grows while it is walked
        kind: object = one.__class__
        if kind in _SHORT:
            continue
        if kind in _TEXTS:
            if len(one) > SLICE:
                return True
        elif kind is list:
            waiting += one
        elif kind is dict:
            waiting += one.values()
        elif isinstance(one, msgspec.Struct):
            waiting += msgspec.structs.astuple(one)
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, _ARRAYS):
            waiting += one
    return False


_TEXTS = frozenset((str, Raw))
_ARRAYS = (list, tuple)
_SHORT = frozenset((type(None), bool, int, float, msgspec.UnsetType))


def _outlined(value: object, long: list[list[bytes]]) -> object:
    """Returns the value, or a copy with marks for its long strings, which are added to `long`."""
    match value:
        case str():
            if len(value) <= SLICE:
                return value
            slices = [value[at : at + SLICE] for at in range(0, len(value), SLICE)]
            return _mark([b'"', *(_encode(one)[1:-1] for one in slices), b'"'], long)
        case Raw():
            return _mark(list(_slices(value)), long) if len(value) > SLICE else value
        case msgspec.Struct():
            changed = value
            for name in value.__struct_fields__:
                member = getattr(value, name)
                outlined = _outlined(member, long)
                if outlined is not member:
                    # The value is the caller's: it is copied before the first change, and only if
                    # there is one.
                    changed = copy(value) if changed is value else changed
                    msgspec.structs.force_setattr(changed, name, outlined)
            return changed
        case list() | tuple():
            # A list in place of a tuple: both are written as an array.
            before = len(long)
            members = [_outlined(member, long) for member in value]
            return value if len(long) == before else members
        case dict():
            before = len(long)
            outlines = {key: _outlined(member, long) for key, member in value.items()}
            return value if len(long) == before else outlines
    return value


def _mark(pieces: list[bytes], long: list[list[bytes]]) -> Raw:
    long.append(pieces)
    return Raw(b"\0%d\0" % (len(long) - 1))
