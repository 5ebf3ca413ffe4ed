"""Calls and their results: whole, or with arguments that come value by value.

A call comes whole, with an id or without. Some hosts stream arguments: an opener with the name,
then values each with its path, until a part says no more will come, the next opener, or the
finish. One call is open at a time. `Arguments` turns values and paths into JSON text.

The same id, name and arguments told once more are the same call; so a call whose id and name came
before waits until its arguments are known. Calls without ids are never the same.
"""

import re
from collections.abc import Callable

import msgspec
from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.envelope import signed
from weft.dialects.gemini import wire
from weft.findings import Findings
from weft.ids import Claims
from weft.partial_json import canonical, escape
from weft.parts import (
    Invalid,
    Json,
    Part,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)

Path = tuple[str | int, ...]

_STEP = re.compile(
    r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d{1,9})\]"
    r"|\['(?P<single>(?:[^'\\]|\\.)*)'\]|\[\"(?P<double>(?:[^\"\\]|\\.)*)\"\]"
)
_ESCAPED = re.compile(r"\\(.)")
_NO_FAULT = frozenset({None, "OUTCOME_OK", "OUTCOME_UNSPECIFIED"})
_CLOSERS = {"{": "}", "[": "]"}

_json = msgspec.json.Encoder().encode


def steps(path: str) -> Path | None:
    """The keys and indices of a JSON path; None if it leads nowhere."""
    found: list[str | int] = []
    position = 1
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return None
        position = step.end()
        quoted = step["single"] or step["double"]
        index = step["index"]
        name = step["name"] or _ESCAPED.sub(r"\1", quoted or "")
        found.append(name if index is None else int(index))
    return tuple(found) if found and path.startswith("$") else None


class _Container:
    """An object or an array that is being written."""

    __slots__ = ("keys", "opener", "step")

    def __init__(self, opener: str, step: str | int | None) -> None:
        self.opener = opener
        self.step = step
        """Its own place in what holds it."""
        self.keys: set[str | int] = set()

    def member(self, step: str | int) -> str | None:
        """What stands before the value at this key or index; None if it can stand there no more:
        text that went out is not taken back.
        """
        fits = step not in self.keys if self.opener == "{" else step == len(self.keys)
        if not fits or isinstance(step, str) is not (self.opener == "{"):
            return None
        comma = "," if self.keys else ""
        self.keys.add(step)
        return f'{comma}"{escape(step)}":' if isinstance(step, str) else comma


class Arguments:
    """JSON text out of values with paths. It only ever appends."""

    def __init__(self) -> None:
        self._stack: list[_Container] = []
        self._string: Path | None = None
        """Where a string is open."""
        self.problem: str | None = None
        """Why the text is of no use; nothing is written any more."""

    @property
    def blank(self) -> bool:
        return not self._stack

    def feed(self, value: wire.PartialArg) -> str:
        """Returns the text that this value adds."""
        path = steps(value.json_path or "")
        if path is None and self.problem is None:
            self.problem = f"no path: {value.json_path!r}"
        if path is None or self.problem is not None:
            return ""
        text = self._plain(value)
        if path == self._string and text is None:
            return self._string_text(path, value)
        if text is None and value.string_value is None:
            self.problem = f"no value at {value.json_path}"
            return ""
        ahead = self._lead_to(path)
        if ahead is None:
            self.problem = f"{value.json_path} comes after what follows it"
            return ""
        return ahead + (text or '"' + self._string_text(path, value))

    def finish(self) -> str:
        """Returns what closes the text."""
        if self.problem is not None:
            return ""
        if not self._stack:
            return "{}"
        return self._close_string() + self._close(0)

    def _string_text(self, path: Path, value: wire.PartialArg) -> str:
        self._string = path if value.will_continue else None
        return escape(value.string_value or "") + ("" if value.will_continue else '"')

    @staticmethod
    def _plain(value: wire.PartialArg) -> str | None:
        if isinstance(value.number_value, Raw):
            return bytes(value.number_value).decode()
        if value.bool_value is not None:
            return "true" if value.bool_value else "false"
        return "null" if isinstance(value.null_value, Raw) else None

    def _close_string(self) -> str:
        string, self._string = self._string, None
        return "" if string is None else '"'

    def _close(self, depth: int) -> str:
        closers = [_CLOSERS[one.opener] for one in reversed(self._stack[depth:])]
        del self._stack[depth:]
        return "".join(closers)

    def _lead_to(self, path: Path) -> str | None:
        """Closes what the path leaves and opens what it enters; None if it leads back."""
        text = [self._close_string()]
        text.append(self._close(self._shared(path)) if self._stack else self._enter(path[0], None))
        for depth in range(len(self._stack) - 1, len(path)):
            member = self._stack[-1].member(path[depth])
            if member is None:
                return None
            text.append(member)
            if depth + 1 < len(path):
                text.append(self._enter(path[depth + 1], path[depth]))
        return "".join(text)

    def _shared(self, path: Path) -> int:
        """How many of the open containers hold the value at this path."""
        depth = 1
        while depth < min(len(self._stack), len(path)):
            if self._stack[depth].step != path[depth - 1]:
                break
            depth += 1
        return depth

    def _enter(self, first: str | int, step: str | int | None) -> str:
        opener = "{" if isinstance(first, str) else "["
        self._stack.append(_Container(opener, step))
        return opener


class _Open:
    """A call whose arguments are still coming."""

    __slots__ = ("arguments", "id", "name", "signature", "text", "waiting", "whole", "wire_id")

    def __init__(self, id: str, name: str, wire_id: str | None) -> None:
        self.id = id
        self.name = name
        self.wire_id = wire_id
        self.signature: str | None = None
        self.arguments = Arguments()
        self.text = Buffer()
        self.whole: str | None = None
        """All arguments at once, if the wire sends them as well."""
        self.waiting: list[Part] | None = None
        """Its parts, while it may be a call that was made before."""

    def add(self, text: str, out: list[Part]) -> None:
        if text:
            self.text.add(text)
            out.append(ToolParamsDelta(self.id, text))


class Calls:
    """The calls of one answer. Identical calls without ids are distinct calls."""

    def __init__(self, mint: Callable[[], str], findings: Findings, origin: str) -> None:
        self._mint = mint
        """Makes an id for a call that has none."""
        self._findings = findings
        self._origin = origin
        self._claims = Claims()
        self._by_wire_id: dict[str, str] = {}
        self._told: dict[str, list[tuple[str, bytes]]] = {}
        """By the id on the wire: the names and arguments of the calls that were told under it."""
        self._waiting: dict[str, dict[str, None]] = {}
        """By name: calls that have no result yet."""
        self._open: _Open | None = None
        self.dispatchable = False
        """Whether a client call was made that is not known to be of no use."""

    @property
    def held(self) -> bool:
        """Whether a call has not come out whole."""
        return self._open is not None

    # Calls for the client

    def function(self, call: wire.GeminiFunctionCall, signature: str | None) -> list[Part]:
        out: list[Part] = []
        known = self._open
        if call.name and not (known is not None and call.id and call.id == known.wire_id):
            self._end(out)
            if not call.will_continue and not call.partial_args:
                self._whole_call(call.name, call, signature, out)
                return out
            known = self._announce(call.name, call.id, signature, out)
        elif known is None:
            self._stray(call, signature, out)
            return out
        self._go_on(known, call, signature, out)
        return out

    def finish(self, *, clean: bool) -> list[Part]:
        """Ends the call that is still open. Only at a clean end are its arguments all there."""
        out: list[Part] = []
        if self._open is not None and not clean:
            self._open.arguments.problem = "the answer was cut short"
        self._end(out)
        return out

    def _announce(
        self, name: str, wire_id: str | None, signature: str | None, out: list[Part]
    ) -> _Open:
        proof, origin = signed(signature, self._origin)
        if wire_id and any(told == name for told, _ in self._told.get(wire_id, ())):
            self._open = known = _Open(wire_id, name, wire_id)
            known.waiting = out = []
        else:
            self._open = known = _Open(self._public(wire_id, name), name, wire_id)
        out.append(ToolParamsStart(known.id, name, signature=proof, origin=origin))
        return known

    def _go_on(
        self, known: _Open, call: wire.GeminiFunctionCall, signature: str | None, out: list[Part]
    ) -> None:
        known.signature = signature or known.signature
        whole = _text(call.args)
        known.whole = known.whole if whole == "{}" else whole
        for value in call.partial_args or ():
            known.add(known.arguments.feed(value), out if known.waiting is None else known.waiting)
        if not call.will_continue:
            self._end(out)

    def _end(self, out: list[Part]) -> None:
        known, self._open = self._open, None
        if known is None:
            return
        said = out if known.waiting is None else known.waiting
        arguments = known.arguments
        if known.whole is None or not arguments.blank:
            known.add(arguments.finish(), said)
        invalid: Invalid | None = None
        if arguments.problem is not None:
            invalid = "bad-arguments"
            self._findings.note("arguments-invalid", f"call {known.id!r}: {arguments.problem}")
            if not known.text.text.strip():  # no arguments at all would read as a good call
                known.add("{", said)
        said.append(ToolParamsEnd(known.id, whole=known.whole))
        proof, origin = signed(known.signature, self._origin)
        call = ToolCall(known.id, known.name, "", invalid=invalid, signature=proof, origin=origin)
        said.append(call)
        if self._repeats(known.wire_id, known.name, known.text.text or known.whole or "{}"):
            return
        if known.waiting is not None:
            id = self._public(known.wire_id, known.name)
            out += [msgspec.structs.replace(part, id=id) for part in known.waiting]
        self.dispatchable = self.dispatchable or invalid is None

    def _whole_call(
        self, name: str, call: wire.GeminiFunctionCall, signature: str | None, out: list[Part]
    ) -> None:
        params = _text(call.args)
        if self._repeats(call.id, name, params):
            return
        self.dispatchable = True
        id = self._public(call.id, name)
        proof, origin = signed(signature, self._origin)
        self._made(ToolCall(id, name, params, signature=proof, origin=origin), out)

    def _repeats(self, wire_id: str | None, name: str, params: str) -> bool:
        """Whether this very call was told before; else it was told now."""
        if not wire_id:
            return False
        told = self._told.setdefault(wire_id, [])
        this = name, canonical(params) or params.encode()
        if this in told:
            self._findings.note("call-repeated", f"call {wire_id!r} again: dropped")
            return True
        told.append(this)
        return False

    def _stray(self, call: wire.GeminiFunctionCall, signature: str | None, out: list[Part]) -> None:
        """No name, and nothing that it could go on with."""
        if not (call.id or call.partial_args or not _is_null(call.args)):
            self._findings.once("end-without-start", "", "the end of a call that was not open")
            return
        id = self._public(call.id, "")
        self._findings.note("call-nameless", f"call {id!r} has no name")
        params = _text(call.args)
        proof, origin = signed(signature, self._origin)
        out.append(ToolCall(id, "", params, invalid="nameless", signature=proof, origin=origin))

    # Calls that the other end executes

    def code(self, code: wire.ExecutableCode, signature: str | None, out: list[Part]) -> None:
        params = _json(wire.ExecutableCode(None, code.language, code.code or "")).decode()
        self._executed(code.id, wire.CODE_NAME, wire.CODE_KIND, params, signature, out)

    def tool(self, call: wire.GeminiToolCall, signature: str | None, out: list[Part]) -> None:
        name = wire.SERVER_PREFIX + (call.tool_type or "")
        self._executed(call.id, name, wire.SERVER_TOOL_KIND, _text(call.args), signature, out)

    def _executed(
        self,
        wire_id: str | None,
        name: str,
        kind: str,
        params: str,
        signature: str | None,
        out: list[Part],
    ) -> None:
        if self._repeats(wire_id, name, params):
            return
        id = self._public(wire_id, name)
        proof, origin = signed(signature, self._origin)
        call = ToolCall(
            id, name, params, kind, provider_executed=True, signature=proof, origin=origin
        )
        self._made(call, out)

    @staticmethod
    def _made(call: ToolCall, out: list[Part]) -> None:
        executed = call.provider_executed
        start = ToolParamsStart(
            call.id,
            call.name,
            call.kind,
            provider_executed=executed,
            signature=call.signature,
            origin=call.origin,
        )
        out += (start, ToolParamsDelta(call.id, call.params), ToolParamsEnd(call.id), call)

    # Results

    def code_result(self, answer: wire.CodeExecutionResult, extra: Json) -> ToolResult:
        result = Raw(_json(wire.CodeExecutionResult(None, answer.outcome, answer.output)))
        id, _ = self._answered(answer.id, wire.CODE_NAME)
        return ToolResult(id, result, is_error=answer.outcome not in _NO_FAULT, extra=extra)

    def tool_result(self, answer: wire.GeminiToolResponse, extra: Json) -> ToolResult:
        id, _ = self._answered(answer.id, wire.SERVER_PREFIX + (answer.tool_type or ""))
        return ToolResult(id, _raw(answer.response), extra=extra)

    def function_result(self, answer: wire.GeminiFunctionResponse, extra: Json) -> ToolResult:
        """The client's own answer, which belongs into a request: mostly to an earlier call."""
        id, here = self._answered(answer.id, answer.name or "")
        return ToolResult(
            id, _raw(answer.response), earlier=not here, provider_executed=False, extra=extra
        )

    def _answered(self, wire_id: str | None, name: str) -> tuple[str, bool]:
        """The call that a result is for, and whether it was made here: by id, else the last one
        of that name without a result.
        """
        waiting = self._waiting.get(name, {})
        id = self._by_wire_id.get(wire_id) if wire_id else next(reversed(waiting), None)
        if id is None:
            return wire_id or self._mint(), False
        waiting.pop(id, None)
        return id, True

    # Ids

    def _public(self, wire_id: str | None, name: str) -> str:
        id = self._claims.claim(wire_id or self._mint())
        if wire_id and id != wire_id:
            detail = f"id {wire_id!r} belongs to another call already; this one is {id!r}"
            self._findings.note("call-id-collision", detail)
        self._by_wire_id[wire_id or id] = id
        self._waiting.setdefault(name, {})[id] = None
        return id


def _is_null(value: Json) -> bool:
    return not isinstance(value, Raw) or bytes(value) == b"null"


def _text(args: Json) -> str:
    """Arguments as they stand, but for the line breaks of a body that is written for people."""
    if not isinstance(args, Raw) or _is_null(args):
        return "{}"
    text = bytes(args)
    return (msgspec.json.format(text, indent=-1) if b"\n" in text else text).decode()


def _raw(response: Json) -> Raw:
    return response.copy() if isinstance(response, Raw) else Raw(b"null")
