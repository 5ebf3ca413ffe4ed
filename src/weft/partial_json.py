"""JSON that is not there yet: escaping for deltas, and scans that stop and go on.

A `Scan` follows JSON text piece by piece and tells at any point whether the text is *finished*
(a whole object or array, so nothing legitimate can follow) and whether it is still *viable*
(could become valid JSON). It reads each character once, however often these are read; members of
objects and arrays that are whole are skipped by regular expressions, many at a time.
"""

import json
import re
from enum import IntEnum
from typing import NoReturn

import msgspec

from weft.large_json import SLICE

# The tokens of RFC 8259. All quantifiers are possessive where a pattern repeats (Python 3.11): a
# value that does not match costs one pass, not an exponential search.
_BLANKS = re.compile(r"[ \t\n\r]*")
_ESCAPED = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_INSIDE = rf'(?:[^"\\\x00-\x1f]++|{_ESCAPED})*+'
_IN_STRING = re.compile(_INSIDE)
_HEX = frozenset("0123456789abcdefABCDEF")
_DIGITS = frozenset("0123456789")
_LITERALS = {"t": "rue", "f": "alse", "n": "ull"}
_WS = r"[ \t\n\r]*+"
_KEY = f'"{_INSIDE}"{_WS}:{_WS}'


def _value_pattern(levels: int) -> str:
    """A value that is whole, with objects and arrays down to so many levels."""
    scalar = (
        rf'"{_INSIDE}"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null'
    )
    if not levels:
        return f"(?:{scalar})"
    inner = _value_pattern(levels - 1)
    array = rf"\[{_WS}(?:{inner}{_WS}(?:,{_WS}(?!\])|(?=\])))*+\]"
    members = rf"\{{{_WS}(?:{_KEY}{inner}{_WS}(?:,{_WS}(?!\}})|(?=\}})))*+\}}"
    return f"(?:{scalar}|{array}|{members})"


# Whole members, which made the scan of structured arguments twenty times as fast. A value of more
# levels is entered by its brackets, and its members are skipped in turn. Each member needs the
# comma behind it: without one, a number or a word may go on in the next piece.
_ELEMENTS = re.compile(f"{_WS}(?:{_value_pattern(2)}{_WS},{_WS})++")
_MEMBERS = re.compile(f"{_WS}(?:{_KEY}{_value_pattern(2)}{_WS},{_WS})++")
_NAMED = re.compile(_WS + _KEY)
_SHORTEST = 32
"""Characters: fewer are read one by one."""
_SLICE = 65536
"""Characters that a regular expression reads at most: while it does, nobody else runs."""
_EXPONENT = re.compile(r"[0-9][eE][+0-9][0-9][0-9]")
_raw = msgspec.json.Decoder(msgspec.Raw).decode
_HIGH = re.compile("[\ud800-\udbff]\\Z")
_HALF = re.compile("[\ud800-\udfff]")


# The order matters: ESCAPE, HEX and LITERAL are compared as a range.
class _ScanState(IntEnum):
    """Where a scan stands: what the next character may be."""

    VALUE = 0
    FIRST_KEY = 1
    KEY = 2
    COLON = 3
    AFTER_MEMBER = 4
    FIRST_ELEMENT = 5
    AFTER_ELEMENT = 6
    STRING = 7
    ESCAPE = 8
    HEX = 9
    LITERAL = 10
    MINUS = 11
    ZERO = 12
    INTEGER = 13
    POINT = 14
    FRACTION = 15
    EXPONENT = 16
    EXPONENT_SIGN = 17
    EXPONENT_DIGITS = 18
    DONE = 19
    BROKEN = 20


# RFC 8259 §6: no leading zeros, no plus sign, and digits on both sides of the point.
_NUMBER: dict[_ScanState, tuple[tuple[frozenset[str], _ScanState], ...]] = {
    _ScanState.MINUS: ((frozenset("0"), _ScanState.ZERO), (_DIGITS, _ScanState.INTEGER)),
    _ScanState.ZERO: ((frozenset("."), _ScanState.POINT), (frozenset("eE"), _ScanState.EXPONENT)),
    _ScanState.INTEGER: (
        (_DIGITS, _ScanState.INTEGER),
        (frozenset("."), _ScanState.POINT),
        (frozenset("eE"), _ScanState.EXPONENT),
    ),
    _ScanState.POINT: ((_DIGITS, _ScanState.FRACTION),),
    _ScanState.FRACTION: ((_DIGITS, _ScanState.FRACTION), (frozenset("eE"), _ScanState.EXPONENT)),
    _ScanState.EXPONENT: (
        (frozenset("+-"), _ScanState.EXPONENT_SIGN),
        (_DIGITS, _ScanState.EXPONENT_DIGITS),
    ),
    _ScanState.EXPONENT_SIGN: ((_DIGITS, _ScanState.EXPONENT_DIGITS),),
    _ScanState.EXPONENT_DIGITS: ((_DIGITS, _ScanState.EXPONENT_DIGITS),),
}
# A number has no last character of its own: it ends where something else follows.
_NUMBER_MAY_END = frozenset(
    {_ScanState.ZERO, _ScanState.INTEGER, _ScanState.FRACTION, _ScanState.EXPONENT_DIGITS}
)


class Scan:
    """Follows one JSON text. `feed` pieces in order; ask `finished` and `viable` at any time."""

    __slots__ = ("_at", "_left", "_stack", "_top", "_word")

    def __init__(self) -> None:
        self._at = _ScanState.VALUE
        # One byte for each open bracket, and no recursion: a hostile text may be nested a million
        # deep.
        self._stack = bytearray()
        self._top = ""
        self._word = ""
        self._left = 0

    @property
    def finished(self) -> bool:
        # Of a number or a word more may follow: `1` becomes `12`. Only brackets say that they are
        # closed.
        return self._at is _ScanState.DONE and self._top in "{["

    @property
    def viable(self) -> bool:
        return self._at is not _ScanState.BROKEN

    def fork(self) -> "Scan":
        """Returns a scan at the same place, to look ahead with."""
        other = Scan()
        other._at = self._at
        other._stack = self._stack[:]
        other._top = self._top
        other._word = self._word
        other._left = self._left
        return other

    def feed(self, text: str) -> None:
        position, length = 0, len(text)
        while position < length and self._at is not _ScanState.BROKEN:
            if length - position > _SHORTEST and (skipped := self._skip(text, position)):
                position = skipped
            elif self._at is _ScanState.STRING:
                end = position + _SLICE
                position = _IN_STRING.match(text, position, end).end()  # type: ignore[union-attr]
                if position < length and position != end:
                    if text[position] == "\\":
                        self._at = _ScanState.ESCAPE
                    elif text[position] != '"':
                        self._at = _ScanState.BROKEN
                    elif self._word == "key":
                        self._at = _ScanState.COLON
                    else:
                        self._value_ended()
                    position += 1
            elif self._at in _NUMBER:
                position += self._in_number(text[position])
            elif _ScanState.ESCAPE <= self._at <= _ScanState.LITERAL:
                self._in_word(text[position])
                position += 1
            else:
                position = _BLANKS.match(text, position).end()  # type: ignore[union-attr]
                if position < length:
                    self._between(text[position])
                    position += 1

    def _skip(self, text: str, position: int) -> int:
        """Skips members that are whole, each with the comma behind it, or else a key with its
        colon; returns where they end, or 0 if there are none.
        """
        end = position + _SLICE
        if self._at is _ScanState.KEY or self._at is _ScanState.FIRST_KEY:
            if found := _MEMBERS.match(text, position, end):
                self._at = _ScanState.KEY
            elif found := _NAMED.match(text, position, end):
                self._at = _ScanState.VALUE
            return found.end() if found else 0
        in_array = self._at is _ScanState.VALUE and self._stack[-1:] == b"["
        if in_array or self._at is _ScanState.FIRST_ELEMENT:
            if found := _ELEMENTS.match(text, position, end):
                self._at = _ScanState.VALUE
            return found.end() if found else 0
        return 0

    def _in_word(self, character: str) -> None:
        """An escape, its hex digits, or the rest of true, false, null."""
        if self._at is _ScanState.LITERAL:
            if not self._word.startswith(character):
                self._at = _ScanState.BROKEN
                return
            self._word = self._word[1:]
            if not self._word:
                self._value_ended()
        elif self._at is _ScanState.HEX:
            self._left -= 1
            if character not in _HEX:
                self._at = _ScanState.BROKEN
            elif not self._left:
                self._at = _ScanState.STRING
        elif character == "u":
            self._at, self._left = _ScanState.HEX, 4
        else:
            self._at = _ScanState.STRING if character in '"\\/bfnrt' else _ScanState.BROKEN

    def _in_number(self, character: str) -> int:
        """Returns how many characters were used: none when the number ended before this one."""
        for characters, state in _NUMBER[self._at]:
            if character in characters:
                self._at = state
                return 1
        if self._at in _NUMBER_MAY_END:
            self._value_ended()
            return 0
        self._at = _ScanState.BROKEN
        return 1

    def _between(self, character: str) -> None:
        """A character between tokens."""
        match self._at:
            case _ScanState.VALUE:
                self._value_begins(character)
            case _ScanState.FIRST_ELEMENT:
                self._close() if character == "]" else self._value_begins(character)
            case _ScanState.FIRST_KEY if character == "}":
                self._close()
            case _ScanState.FIRST_KEY | _ScanState.KEY if character == '"':
                self._at, self._word = _ScanState.STRING, "key"
            case _ScanState.COLON if character == ":":
                self._at = _ScanState.VALUE
            case _ScanState.AFTER_MEMBER if character in ",}":
                self._at = _ScanState.KEY
                if character == "}":
                    self._close()
            case _ScanState.AFTER_ELEMENT if character in ",]":
                self._at = _ScanState.VALUE
                if character == "]":
                    self._close()
            case _:
                self._at = _ScanState.BROKEN

    def _value_begins(self, character: str) -> None:
        self._top = self._top or character
        if character == "{":
            self._stack.append(ord("{"))
            self._at = _ScanState.FIRST_KEY
        elif character == "[":
            self._stack.append(ord("["))
            self._at = _ScanState.FIRST_ELEMENT
        elif character == '"':
            self._at, self._word = _ScanState.STRING, ""
        elif character in _LITERALS:
            self._at, self._word = _ScanState.LITERAL, _LITERALS[character]
        elif character == "-":
            self._at = _ScanState.MINUS
        elif character in _DIGITS:
            self._at = _ScanState.ZERO if character == "0" else _ScanState.INTEGER
        else:
            self._at = _ScanState.BROKEN

    def _close(self) -> None:
        self._stack.pop()
        self._value_ended()

    def _value_ended(self) -> None:
        if not self._stack:
            self._at = _ScanState.DONE
        else:
            inside_object = self._stack[-1] == ord("{")
            self._at = _ScanState.AFTER_MEMBER if inside_object else _ScanState.AFTER_ELEMENT


def parse(text: str | bytes) -> object:
    """Returns the value of one whole JSON text; raises ValueError for anything else.

    Lone surrogate escapes are legal JSON: each becomes U+FFFD. Infinite numbers are refused.
    """
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:  # perhaps for a lone surrogate
        pass
    try:
        # RFC 8259 §8.2 leaves lone surrogates to the reader: msgspec refuses them, the standard
        # library takes them. It also takes NaN and Infinity, which are no JSON (§6), and makes
        # 1e999 infinite, which no encoder can write.
        return mended(json.loads(text, parse_constant=_refuse, parse_float=_finite))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_json(text: str) -> bool:
    """Whether `parse` accepts it. Mostly this is known without making a value of it."""
    try:
        _raw(text)
    except RecursionError:
        return False
    except ValueError:  # perhaps for a lone surrogate
        pass
    else:
        if not _may_be_infinite(text):
            # Skipping does not look at the size of numbers, and decoding would refuse one.
            return True
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _may_be_infinite(text: str) -> bool:
    """Whether a number of this JSON may be too large: a large exponent, or hundreds of digits."""
    for found in _EXPONENT.finditer(text):
        before = text[max(0, found.start() - 40) : found.start()].rstrip("0123456789.").rstrip("-")
        if before[-1:] in ("", "[", ":", ",", " ", "\t", "\n", "\r"):  # in a string, nearly never
            return True
    # A double ends at 1.8e308. A run of 309 digits fills at least one of these windows of 99.
    return any(text[start : start + 99].isdigit() for start in range(0, len(text), 99))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is out of range")
    return number


def mended(value: object) -> object:
    """Returns the value with every lone surrogate in it replaced, so that it can be encoded."""
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, list):
        return [mended(one) for one in value]
    if isinstance(value, dict):
        return {whole_characters(key): mended(one) for key, one in value.items()}
    return value


def canonical(text: str) -> bytes | None:
    """Returns the one spelling that equal JSON texts share, or None if it is not JSON."""
    try:
        # Repetitions come with other blanks and another order of keys.
        # capture: arguments-sent-again-in-other-order
        return msgspec.json.encode(parse(text), order="sorted")
    except (ValueError, RecursionError):
        return None


def unwrapped(text: str) -> str | None:
    """Returns the JSON text inside a JSON string, or None if there is no object inside."""
    if not text.lstrip().startswith('"'):
        return None
    try:
        inner = parse(text)
        # Only an object: a string that holds a list or a number may be meant as a string.
        # capture: arguments-are-a-plain-string
        if isinstance(inner, str) and isinstance(parse(inner), dict):
            return inner
    except ValueError:
        pass
    return None


def escape(text: str) -> str:
    """Returns the text as it stands between the quotes of a JSON string.

    Plain ASCII, so that the halves of a surrogate pair escaped apart join to valid JSON.
    """
    return json.dumps(text)[1:-1]


def join_halves(held: str, text: str) -> tuple[str, str]:
    """Returns what can be shown of `held + text`, and a trailing high surrogate to hold back."""
    joined = held + text
    ending = _HIGH.search(joined)
    if ending is None:
        return whole_characters(joined), ""
    return whole_characters(joined[: ending.start()]), ending.group()


def whole_characters(text: str) -> str:
    """Returns the text with surrogate pairs joined and lone halves replaced by U+FFFD."""
    # In slices: one search through a text of megabytes would hold the interpreter.
    slices = range(0, len(text), SLICE)
    if text.isascii() or not any(_HALF.search(text, at, at + SLICE) for at in slices):
        return text
    # In UTF-16 two halves side by side are one character, and a lone one is an error to replace.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
