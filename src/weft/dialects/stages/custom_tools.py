"""Custom tools, which take free text, behind an upstream whose tools take JSON objects only.

Such a tool is declared there as a function with one parameter, `{"input": string}`. This stage
turns its calls back into free text as they arrive: the value of `input` goes out as soon as it is
certain, wherever the deltas cut it (escapes, surrogate pairs, keys). Encoders of such wires wrap
free text themselves.

What the model wrote is never guessed at:
- Keys beside `input` are left out, with a finding.
- Arguments without an `input` that is a string are handed over as they are, with a finding.
- Arguments that were cut or are not JSON make the call invalid; what of it was read stays.
"""

from collections.abc import Collection

import msgspec

from weft.assembler import Buffer
from weft.dialects.json_string import JsonStringExtractor
from weft.dialects.stages import Handlers, HandlerStage
from weft.findings import Code, Findings
from weft.lifecycle import meaning
from weft.partial_json import is_json, parse
from weft.parts import (
    Delta,
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


class _UnwrappedCall:
    """One call whose arguments are unwrapped."""

    __slots__ = ("end", "input", "invalid", "is_complete", "raw", "text")

    def __init__(self) -> None:
        self.input = JsonStringExtractor(KEY)
        self.raw = Buffer()
        """The arguments as they came."""
        self.end: ToolParamsEnd | None = None
        """An end that came before the arguments were complete: it is held."""
        self.text = ""
        """The whole text, once it is known; empty if what was streamed is all."""
        self.invalid: Invalid | None = None
        self.is_complete = False
        """Whether all of it went out; what still comes is passed on."""

    @property
    def holding(self) -> bool:
        """Whether something of it has not come out."""
        unread = not self.input.found and self.raw.length > 0
        return not self.is_complete and (unread or self.input.pending or self.end is not None)

    def feed(self, piece: str) -> str:
        """Returns the text that this piece of the arguments adds, possibly none. What follows an
        escape that is not JSON goes out as it is.
        """
        # Kept beside the text: at the end all of it is parsed, to find other keys and odd JSON.
        self.raw.add(piece)
        text = piece if self.input.is_broken else self.input.feed(piece)
        return text + self.input.flush() if self.input.is_broken else text


class CustomToolCalls(HandlerStage):
    """A stage for one response. `tools` are the names, as the client knows them, of those that
    were declared as functions.
    """

    def __init__(self, tools: Collection[str], findings: Findings) -> None:
        self._handlers = _HANDLERS
        self._tools = frozenset(tools)
        self._findings = findings
        self._calls: dict[str, _UnwrappedCall | None] = {}  # None: a call of another tool

    @property
    def holding(self) -> bool:
        return any(call.holding for call in self._calls.values() if call is not None)

    def reads(self, kind: type[Delta], id: str) -> bool:
        return kind is ToolParamsDelta and self._calls.get(id) is not None

    def finish(self) -> list[Part]:
        """Returns the arguments of calls that were never handed over, as they are."""
        out: list[Part] = []
        for id, call in self._calls.items():
            if call is not None and not call.is_complete:
                call.is_complete = True
                _emit_delta(id, call.input.flush() if call.input.found else call.raw.text, out)
        return out

    def _is_ours(self, part: ToolParamsStart | ToolCall) -> bool:
        return part.name in self._tools and part.format == "json" and not part.provider_executed

    def _start(self, part: ToolParamsStart, out: list[Part]) -> None:
        ours = self._is_ours(part)
        # A start that comes again does not begin the call anew.
        if part.id not in self._calls:
            self._calls[part.id] = _UnwrappedCall() if ours else None
        free = ours and self._calls[part.id] is not None
        out.append(_replace(part, kind="custom", format="text") if free else part)

    def _delta(self, part: ToolParamsDelta, out: list[Part]) -> None:
        # Deltas of a call that was never announced pass, and so does the call, even if its name is
        # one of ours: the client has half of it already.
        call = self._calls.setdefault(part.id, None)
        if call is None or call.is_complete:
            out.append(part)
        else:
            _emit_delta(part.id, call.feed(part.delta), out)

    def _end(self, part: ToolParamsEnd, out: list[Part]) -> None:
        call = self._calls.get(part.id)
        if call is None or call.is_complete:
            out.append(part)
        elif self._complete(part.id, call, part.whole or "", out):
            out.append(_replace(part, whole=call.text))
        else:
            # The call may still bring arguments that are complete.
            call.end = part

    def _call(self, part: ToolCall, out: list[Part]) -> None:
        deltas = out
        if part.id not in self._calls and self._is_ours(part):
            self._calls[part.id] = _UnwrappedCall()
            deltas = []  # a call that was not announced has no deltas
        call = self._calls.get(part.id)
        if call is None:
            out.append(part)
            return
        if not call.is_complete:
            if not self._complete(part.id, call, part.params, deltas):
                self._give_up(part.id, call, part.params, deltas)
            if call.end is not None:
                # Its whole was JSON: the guard would compare it with the text.
                out.append(_replace(call.end, whole=None))
        invalid = part.invalid or call.invalid
        out.append(_replace(part, kind="custom", format="text", params=call.text, invalid=invalid))

    def _complete(self, id: str, call: _UnwrappedCall, whole: str, out: list[Part]) -> bool:
        """Emits the text of the arguments; False if they are incomplete or hold no text."""
        # What a wire repeats at the end is more reliable than what was joined here.
        found = next((one for one in map(_parse_arguments, (whole, call.raw.text)) if one), None)
        if found is None:
            return False
        call.text, more, code = found
        if more:
            rest = ", ".join(map(repr, more))
            detail = f"call {id!r}: only {KEY!r} is handed over, not {rest}"
            self._findings.note("bridge-extra-keys", detail)
        if code is not None:
            self._findings.note(code, f"call {id!r}: the arguments are inside a string")
        # Otherwise the text went out as it came, and is not emitted twice.
        if not call.input.found:
            _emit_delta(id, call.text, out)
        call.is_complete = True
        return True

    def _give_up(self, id: str, call: _UnwrappedCall, whole: str, out: list[Part]) -> None:
        """Emits arguments without a text: as they are, or the rest of what was read."""
        call.is_complete = True
        if not call.input.found:
            call.text = call.raw.text or whole
        # Anything but the beginning of an object is from a model that ignored the schema.
        if call.input.found or (call.text.lstrip().startswith("{") and not is_json(call.text)):
            last = call.raw.since(call.raw.length - 40)
            self._findings.note(
                "arguments-invalid", f"call {id!r}: arguments are not JSON: {last!r}"
            )
            call.invalid = "bad-arguments"
        else:
            detail = f"call {id!r}: no text under {KEY!r}; the arguments are handed over as text"
            self._findings.note("bridge-no-input", detail)
        _emit_delta(id, call.input.flush() if call.input.found else call.text, out)


def _emit_delta(id: str, text: str, out: list[Part]) -> None:
    if text:
        out.append(ToolParamsDelta(id, text))


def _parse_arguments(arguments: str) -> tuple[str, list[str], Code | None] | None:
    """The text of whole arguments, their other keys, and how they are odd."""
    # Some servers encode the arguments twice: an object inside a JSON string.
    meant, code = meaning(arguments)
    try:
        value = parse(meant)
    except ValueError:
        return None
    text = value.get(KEY) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(text, str):
        return None
    return text, [key for key in value if key != KEY], code


_HANDLERS: Handlers = {
    ToolParamsStart: CustomToolCalls._start,
    ToolParamsDelta: CustomToolCalls._delta,
    ToolParamsEnd: CustomToolCalls._end,
    ToolCall: CustomToolCalls._call,
    ErrorPart: CustomToolCalls._last,
    Finish: CustomToolCalls._last,
}
