"""Tools for free text, behind an upstream whose tools take JSON objects only.

Such a tool is declared there as a function with one parameter, `{"input": string}`. This stage
makes its calls free text again, as they come: arguments are read letter by letter, and what
`input` says goes out as soon as it is sure, whatever the deltas cut in two (escapes, surrogate
pairs, the keys). The other way round, encoders of such wires wrap free text themselves.

What the model wrote is never guessed at:
- Keys beside `input` are left out, with a finding.
- Arguments without an `input` that is text are handed over as they are, with a finding.
- Arguments that were cut or are not JSON make the call invalid; what of it was read stays.
"""

import json
import re
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any

import msgspec

from weft.assembler import Buffer
from weft.findings import Code, Findings
from weft.lifecycle import meaning
from weft.partial_json import is_json, join_halves, parse, whole_characters
from weft.parts import (
    ErrorPart,
    Finish,
    Invalid,
    Part,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)

_replace = msgspec.structs.replace

KEY = "input"
"""The one parameter: encoders of wires without free text write it, too."""

_STRING_CHARACTERS = re.compile(r'(?:[^"\\]+|\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))*')
"""Letters of a JSON string up to its end, or to an escape that is cut or none."""

_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_WHITESPACE = frozenset(" \t\r\n")
_SKIPPED = re.compile(r'[^"\[\]{},]*')
_SKIPPED_TEXT = re.compile(r'[^"\\]*')


class _SearchState(Enum):
    """Where the search for the key stands: what the next letter may be."""

    OBJECT = "object"
    MEMBER = "member"
    NAME = "name"
    COLON = "colon"
    VALUE = "value"
    SKIPPED = "skipped"
    SKIPPED_TEXT = "skipped text"
    FOUND = "found"
    LOST = "lost"


class _KeySearch:
    """Follows the members of an object up to the text of the one that is wanted."""

    __slots__ = ("_at", "_depth", "_escaped", "_name")

    def __init__(self) -> None:
        self._at = _SearchState.OBJECT
        self._name = ""
        self._depth = 0
        self._escaped = False

    def feed(self, text: str) -> str | None:
        """Returns what follows the quote that opens the text, once that came."""
        position, length = 0, len(text)
        while position < length and self._at is not _SearchState.LOST:
            if self._at in _SKIPS and not self._escaped:
                position = _SKIPS[self._at].match(text, position).end()  # type: ignore[union-attr]
                if position == length:
                    break
            letter = text[position]
            position += 1
            if letter not in _WHITESPACE or self._at in (
                _SearchState.NAME,
                _SearchState.SKIPPED_TEXT,
            ):
                self._at = _STEPS[self._at](self, letter)
            if self._at is _SearchState.FOUND:
                return text[position:]
        return None

    def _object(self, letter: str) -> _SearchState:
        return _SearchState.MEMBER if letter == "{" else _SearchState.LOST

    def _member(self, letter: str) -> _SearchState:
        self._name = ""
        return {",": _SearchState.MEMBER, '"': _SearchState.NAME}.get(letter, _SearchState.LOST)

    def _in_name(self, letter: str) -> _SearchState:
        if letter == '"' and not self._escaped:
            return _SearchState.COLON
        self._name += letter
        self._escaped = letter == "\\" and not self._escaped
        return _SearchState.NAME

    def _colon(self, letter: str) -> _SearchState:
        return _SearchState.VALUE if letter == ":" else _SearchState.LOST

    def _value(self, letter: str) -> _SearchState:
        if _decode_string(self._name) == KEY:
            return _SearchState.FOUND if letter == '"' else _SearchState.LOST
        self._depth = 0
        return self._skip(letter)

    def _skip(self, letter: str) -> _SearchState:
        if letter == '"':
            return _SearchState.SKIPPED_TEXT
        if letter == "," and not self._depth:
            return _SearchState.MEMBER
        self._depth += (letter in "{[") - (letter in "}]")
        return _SearchState.LOST if self._depth < 0 else _SearchState.SKIPPED

    def _skip_text(self, letter: str) -> _SearchState:
        if letter == '"' and not self._escaped:
            return _SearchState.SKIPPED
        self._escaped = letter == "\\" and not self._escaped
        return _SearchState.SKIPPED_TEXT


_STEPS: dict[_SearchState, Callable[[_KeySearch, str], _SearchState]] = {
    _SearchState.OBJECT: _KeySearch._object,
    _SearchState.MEMBER: _KeySearch._member,
    _SearchState.NAME: _KeySearch._in_name,
    _SearchState.COLON: _KeySearch._colon,
    _SearchState.VALUE: _KeySearch._value,
    _SearchState.SKIPPED: _KeySearch._skip,
    _SearchState.SKIPPED_TEXT: _KeySearch._skip_text,
}


_SKIPS = {_SearchState.SKIPPED: _SKIPPED, _SearchState.SKIPPED_TEXT: _SKIPPED_TEXT}
"""What need not be looked at letter by letter."""


class _TextState(Enum):
    """How far the text of a call is."""

    BEFORE = "before"  # it has not begun: nothing went out
    INSIDE = "inside"
    AFTER = "after"
    SPOILT = "spoilt"  # an escape that is none: the rest goes out as it stands
    OVER = "over"  # the last word on this call was said


class _UnwrappedCall:
    """One call whose arguments are unwrapped."""

    __slots__ = ("_half", "_held", "_search", "end", "invalid", "raw", "text", "where")

    def __init__(self) -> None:
        self.where = _TextState.BEFORE
        self.raw = Buffer()
        """The arguments as they came."""
        self.end: ToolParamsEnd | None = None
        """An end that came before the arguments were whole: it waits."""
        self.text = ""
        """All of the text, once it is known; blank is what was streamed."""
        self.invalid: Invalid | None = None
        self._search = _KeySearch()
        self._held = ""  # the beginning of an escape
        self._half = ""  # the first half of a surrogate pair

    @property
    def waits(self) -> bool:
        """Whether something of it has not come out."""
        if self.where is _TextState.OVER:
            return False
        unread = self.where is _TextState.BEFORE and self.raw.length > 0
        return bool(unread or self._held or self._half or self.end is not None)

    def feed(self, piece: str) -> str:
        """Returns the text that this piece of the arguments adds, possibly none."""
        self.raw.add(piece)
        if self.where is _TextState.BEFORE:
            rest = self._search.feed(piece)
            if rest is None:
                return ""
            self.where, piece = _TextState.INSIDE, rest
        if self.where is _TextState.INSIDE:
            plain = piece.isascii() and '"' not in piece and "\\" not in piece
            if plain and not self._held and not self._half:
                return piece  # nearly always
            return self._letters(self._held + piece)
        return piece if self.where is _TextState.SPOILT else ""

    def _letters(self, text: str) -> str:
        end = _STRING_CHARACTERS.match(text).end()  # type: ignore[union-attr]
        rest = text[end:]
        said, self._half = join_halves(self._half, _decode_string(text[:end]) or "")
        self._held = rest if _CUT_ESCAPE.fullmatch(rest) else ""
        if self._held or not rest:
            return said
        self.where = _TextState.AFTER if rest.startswith('"') else _TextState.SPOILT
        return said + self.rest() + (rest if self.where is _TextState.SPOILT else "")

    def rest(self) -> str:
        """Returns what waited for more, as it is: there is no more."""
        waited = whole_characters(self._half) + self._held
        self._half = self._held = ""
        return waited


class CustomToolCalls:
    """A stage for one response. `tools` are the names, as the client knows them, of those that
    were declared as functions.
    """

    passes = False  # there may always be more to do

    def __init__(self, tools: Collection[str], findings: Findings) -> None:
        self._tools = frozenset(tools)
        self._findings = findings
        self._calls: dict[str, _UnwrappedCall | None] = {}  # None: a call of another tool

    def feed(self, parts: list[Part]) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            handler = _HANDLERS.get(part.__class__)
            if handler is None:
                out.append(part)
            else:
                handler(self, part, out)
        return out

    @property
    def holding(self) -> bool:
        return any(call.waits for call in self._calls.values() if call is not None)

    def finish(self) -> list[Part]:
        """Returns the arguments of calls that were never handed over, as they are."""
        out: list[Part] = []
        for id, call in self._calls.items():
            if call is not None and call.where is not _TextState.OVER:
                unread = call.raw.text if call.where is _TextState.BEFORE else call.rest()
                call.where = _TextState.OVER
                _emit_delta(id, unread, out)
        return out

    def _is_ours(self, part: ToolParamsStart | ToolCall) -> bool:
        return part.name in self._tools and part.format == "json" and not part.provider_executed

    def _start(self, part: ToolParamsStart, out: list[Part]) -> None:
        ours = self._is_ours(part)
        if part.id not in self._calls:
            self._calls[part.id] = _UnwrappedCall() if ours else None
        free = ours and self._calls[part.id] is not None
        out.append(_replace(part, kind="custom", format="text") if free else part)

    def _delta(self, part: ToolParamsDelta, out: list[Part]) -> None:
        call = self._calls.setdefault(part.id, None)
        if call is None or call.where is _TextState.OVER:
            out.append(part)
        else:
            _emit_delta(part.id, call.feed(part.delta), out)

    def _end(self, part: ToolParamsEnd, out: list[Part]) -> None:
        call = self._calls.get(part.id)
        if call is None or call.where is _TextState.OVER:
            out.append(part)
        elif self._settles(part.id, call, part.whole or "", out):
            out.append(_replace(part, whole=call.text))
        else:
            call.end = part

    def _call(self, part: ToolCall, out: list[Part]) -> None:
        if part.id not in self._calls and self._is_ours(part):
            self._lone(part, out)
            return
        call = self._calls.get(part.id)
        if call is None:
            out.append(part)
            return
        if call.where is not _TextState.OVER:
            if not self._settles(part.id, call, part.params, out):
                self._leave(part.id, call, part.params, out)
            out += [] if call.end is None else [_replace(call.end, whole=None)]
        out.append(_as_custom_call(part, call))

    def _lone(self, part: ToolCall, out: list[Part]) -> None:
        """A call that comes whole has no text of its own to say."""
        self._calls[part.id] = call = _UnwrappedCall()
        said: list[Part] = []
        if not self._settles(part.id, call, part.params, said):
            self._leave(part.id, call, part.params, said)
        out.append(_as_custom_call(part, call))

    def _settles(self, id: str, call: _UnwrappedCall, told: str, out: list[Part]) -> bool:
        """Whether the arguments are whole and say a text. If so, all of it is out or told."""
        found = next((one for one in map(_parse_arguments, (told, call.raw.text)) if one), None)
        if found is None:
            return False
        call.text, more, code = found
        if more:
            detail = f"call {id!r}: only {KEY!r} is handed over, not {', '.join(more)}"
            self._findings.note("bridge-extra-keys", detail)
        if code is not None:
            self._findings.note(code, f"call {id!r}: the arguments stood inside a string")
        if call.where is _TextState.BEFORE:
            _emit_delta(id, call.text, out)
        call.where = _TextState.OVER
        return True

    def _leave(self, id: str, call: _UnwrappedCall, told: str, out: list[Part]) -> None:
        """Hands arguments over that say no text: as they are, or as far as they were read."""
        if call.where is _TextState.BEFORE:
            call.text = call.raw.text or told
            self._judge(id, call)
            _emit_delta(id, call.text, out)
        else:
            self._cut(id, call)
            _emit_delta(id, call.rest(), out)
        call.where = _TextState.OVER

    def _judge(self, id: str, call: _UnwrappedCall) -> None:
        if call.text.lstrip().startswith("{") and not is_json(call.text):
            self._cut(id, call)
        else:
            detail = f"call {id!r}: no text under {KEY!r}; the arguments are handed over as text"
            self._findings.note("bridge-no-input", detail)

    def _cut(self, id: str, call: _UnwrappedCall) -> None:
        detail = f"call {id!r}: arguments are not JSON: {call.raw.since(call.raw.length - 40)!r}"
        self._findings.note("arguments-invalid", detail)
        call.invalid = "bad-arguments"

    def _last(self, part: Part, out: list[Part]) -> None:
        """An error or a finish: what is held goes out now or never."""
        out += self.finish()
        out.append(part)


def _emit_delta(id: str, text: str, out: list[Part]) -> None:
    if text:
        out.append(ToolParamsDelta(id, text))


def _as_custom_call(part: ToolCall, call: _UnwrappedCall) -> ToolCall:
    return _replace(
        part,
        kind="custom",
        format="text",
        params=call.text,
        invalid=part.invalid or call.invalid,
    )


def _decode_string(letters: str) -> str | None:
    """What the inside of a JSON string says; None if it has an escape that is none."""
    try:
        spoken: str = json.loads(f'"{letters}"', strict=False)
    except ValueError:
        return None
    return spoken


def _parse_arguments(arguments: str) -> tuple[str, list[str], Code | None] | None:
    """The text of whole arguments, their other keys, and how they are odd."""
    meant, code = meaning(arguments)
    try:
        value = parse(meant)
    except ValueError:
        return None
    text = value.get(KEY) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(text, str):
        return None
    return text, [key for key in value if key != KEY], code


_HANDLERS: dict[type[Part], Callable[[CustomToolCalls, Any, list[Part]], None]] = {
    ToolParamsStart: CustomToolCalls._start,
    ToolParamsDelta: CustomToolCalls._delta,
    ToolParamsEnd: CustomToolCalls._end,
    ToolCall: CustomToolCalls._call,
    ErrorPart: CustomToolCalls._last,
    Finish: CustomToolCalls._last,
}
