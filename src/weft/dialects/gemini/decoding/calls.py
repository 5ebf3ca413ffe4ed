"""Decodes calls and their results.

A call comes whole, with an id or without. Some hosts stream its arguments instead: an opener with
the name, then values with their paths, until a part without `willContinue`, the next opener, or the
finish. One call is open at a time.

A call with the same id, name and arguments as an earlier one is a repetition and dropped, so a
streamed call whose id and name came before waits for its arguments. Calls without ids are never
repetitions.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.envelope import unwrap_signature
from weft.dialects.gemini import wire
from weft.dialects.gemini.decoding.partial_args import PartialArgsWriter
from weft.dialects.raw_json import to_one_line
from weft.findings import Findings
from weft.ids import Claims
from weft.partial_json import canonical
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

# OUTCOME_FAILED and OUTCOME_DEADLINE_EXCEEDED remain, and whatever will be added.
_SUCCESS = frozenset({None, "OUTCOME_OK", "OUTCOME_UNSPECIFIED"})

_json = msgspec.json.Encoder().encode


class _StreamedCall:
    """A call whose arguments are still coming."""

    __slots__ = ("args", "id", "name", "pending", "signature", "text", "whole_args", "wire_id")

    def __init__(self, id: str, name: str, wire_id: str | None) -> None:
        self.id = id
        self.name = name
        self.wire_id = wire_id
        self.signature: str | None = None
        self.args = PartialArgsWriter()
        self.text = Buffer()
        self.whole_args: str | None = None
        """All arguments at once, if the host sends them as well."""
        self.pending: list[Part] | None = None
        """Its parts, while it may be a repetition."""

    def add(self, text: str, out: list[Part]) -> None:
        if text:
            self.text.add(text)
            out.append(ToolParamsDelta(self.id, text))


class GeminiCallDecoder:
    """Decodes the calls of one candidate."""

    def __init__(self, mint: Callable[[], str], findings: Findings, origin: str) -> None:
        """`mint` makes an id for a call that has none."""
        self._mint = mint
        self._findings = findings
        self._origin = origin
        self._claims = Claims()
        self._ids: dict[str, str] = {}
        """The id of the parts of each call, by its id on the wire."""
        self._decoded: dict[str, list[tuple[str, bytes]]] = {}
        """The names and arguments of earlier calls, by their id on the wire."""
        self._without_result: dict[str, dict[str, None]] = {}
        """The ids of the calls that have no result yet, by name."""
        self._open: _StreamedCall | None = None
        self.client_called = False
        """Whether a valid call for the client was decoded."""

    @property
    def held(self) -> bool:
        """Whether a call is not complete yet."""
        return self._open is not None

    # Calls for the client

    def function(self, call: wire.GeminiFunctionCall, signature: str | None) -> list[Part]:
        out: list[Part] = []
        streamed = self._open
        if call.name and not (streamed is not None and call.id and call.id == streamed.wire_id):
            # A name opens a call. The follow-ups of a streamed one have neither name nor id; a host
            # that repeats both on them means the call that is open.
            self._end(out)
            if not call.will_continue and not call.partial_args:
                # A whole call may lack `args`: a function without parameters.
                self._add_whole(call.id, call.name, _args_text(call.args), signature, out)
                return out
            streamed = self._start(call.name, call.id, signature, out)
        elif streamed is None:
            self._nameless_call(call, signature, out)
            return out
        # The end is a part without `willContinue`, mostly an empty `{}`.
        # capture: arguments-value-by-value
        streamed.signature = signature or streamed.signature
        whole = _args_text(call.args)
        # `{}` is what `_args_text` makes of no arguments at all.
        streamed.whole_args = streamed.whole_args if whole == "{}" else whole
        for value in call.partial_args or ():
            target = out if streamed.pending is None else streamed.pending
            streamed.add(streamed.args.feed(value), target)
        if not call.will_continue:
            self._end(out)
        return out

    def finish(self, *, clean: bool) -> list[Part]:
        """Ends the open call. Its arguments are complete only after a clean finish."""
        out: list[Part] = []
        if self._open is not None and not clean:
            # A limit cut it. The values so far would close to valid JSON, and mean something else.
            # capture: arguments-value-by-value-cut-by-the-limit
            self._open.args.problem = "the response was truncated"
        self._end(out)
        return out

    def _start(
        self, name: str, wire_id: str | None, signature: str | None, out: list[Part]
    ) -> _StreamedCall:
        own_signature, origin = unwrap_signature(signature, self._origin)
        earlier = self._decoded.get(wire_id, ()) if wire_id else ()
        if wire_id and any(earlier_name == name for earlier_name, _ in earlier):
            # A repetition is known only by its arguments: nothing goes out before they are
            # complete.
            # capture: call-repeated-value-by-value
            self._open = streamed = _StreamedCall(wire_id, name, wire_id)
            streamed.pending = out = []
        else:
            id = self._claim_id(wire_id, name)
            self._open = streamed = _StreamedCall(id, name, wire_id)
        out.append(ToolParamsStart(streamed.id, name, signature=own_signature, origin=origin))
        return streamed

    def _end(self, out: list[Part]) -> None:
        streamed, self._open = self._open, None
        if streamed is None:
            return
        target = out if streamed.pending is None else streamed.pending
        args = streamed.args
        # With whole arguments and no values, the guard makes the one delta that is missing.
        if streamed.whole_args is None or not args.is_empty:
            streamed.add(args.finish(), target)
        invalid: Invalid | None = None
        if args.problem is not None:
            invalid = "bad-arguments"
            # capture: arguments-value-by-value-cut-by-the-limit
            self._findings.note("arguments-invalid", f"call {streamed.id!r}: {args.problem}")
            if not streamed.text.text.strip():  # no text at all would be read as {}
                streamed.add("{", target)
        target.append(ToolParamsEnd(streamed.id, whole=streamed.whole_args))
        signature, origin = unwrap_signature(streamed.signature, self._origin)
        target.append(
            ToolCall(
                streamed.id,
                streamed.name,
                "",
                invalid=invalid,
                signature=signature,
                origin=origin,
            )
        )
        params = streamed.text.text or streamed.whole_args or "{}"
        if self._is_repetition(streamed.wire_id, streamed.name, params):
            return
        if streamed.pending is not None:
            id = self._claim_id(streamed.wire_id, streamed.name)
            out += [msgspec.structs.replace(part, id=id) for part in streamed.pending]
        self.client_called = self.client_called or invalid is None

    def _add_whole(
        self,
        wire_id: str | None,
        name: str,
        params: str,
        signature: str | None,
        out: list[Part],
        executed_kind: str | None = None,
    ) -> None:
        """Adds a call that came whole. `executed_kind`: the host executes it."""
        if self._is_repetition(wire_id, name, params):
            return
        executed, kind = executed_kind is not None, executed_kind or "function"
        id = self._claim_id(wire_id, name)
        own, origin = unwrap_signature(signature, self._origin)
        # The start has the signature, too: a wire without a field for it carries it in a reasoning
        # before the call (see `envelope.py`).
        out += (
            ToolParamsStart(
                id, name, kind, provider_executed=executed, signature=own, origin=origin
            ),
            ToolParamsDelta(id, params),
            ToolParamsEnd(id),
            ToolCall(
                id, name, params, kind, provider_executed=executed, signature=own, origin=origin
            ),
        )
        self.client_called = self.client_called or not executed

    def _is_repetition(self, wire_id: str | None, name: str, params: str) -> bool:
        """Whether the same call came before; if not, it is remembered."""
        if not wire_id:
            # Two equal calls may both be meant, and nothing tells a repetition from a second call.
            # capture: equal-calls-without-ids
            return False
        # Several calls under one id are kept apart by name and arguments; only all three together
        # mean a repetition.
        earlier = self._decoded.setdefault(wire_id, [])
        call = name, canonical(params) or params.encode()
        if call in earlier:
            # capture: call-repeated
            self._findings.note("call-repeated", f"call {wire_id!r} again: dropped")
            return True
        earlier.append(call)
        return False

    def _nameless_call(
        self, call: wire.GeminiFunctionCall, signature: str | None, out: list[Part]
    ) -> None:
        # An end mark without its call: harmless, and not a call.
        if not (call.id or call.partial_args or not _is_null(call.args)):
            detail = "the end of a call that was not open"
            self._findings.once("end-without-start", "", detail)
            return
        id = self._claim_id(call.id, "")
        self._findings.note("call-nameless", f"call {id!r} has no name")
        own_signature, origin = unwrap_signature(signature, self._origin)
        out.append(
            ToolCall(
                id,
                "",
                _args_text(call.args),
                invalid="nameless",
                signature=own_signature,
                origin=origin,
            )
        )

    # Calls that the host executes

    def executable_code(
        self, code: wire.ExecutableCode, signature: str | None, out: list[Part]
    ) -> None:
        params = _json(wire.ExecutableCode(None, code.language, code.code or "")).decode()
        self._add_whole(code.id, wire.CODE_NAME, params, signature, out, wire.CODE_KIND)

    def server_tool(
        self, call: wire.GeminiToolCall, signature: str | None, out: list[Part]
    ) -> None:
        name = wire.SERVER_PREFIX + (call.tool_type or "")
        params = _args_text(call.args)
        self._add_whole(call.id, name, params, signature, out, wire.SERVER_TOOL_KIND)

    # Results

    def code_result(self, result: wire.CodeExecutionResult, extra: Json) -> ToolResult:
        # Without its id, which the part has; an encoder puts it back.
        content = Raw(_json(wire.CodeExecutionResult(None, result.outcome, result.output)))
        id, _ = self._close_call(result.id, wire.CODE_NAME)
        return ToolResult(id, content, is_error=result.outcome not in _SUCCESS, extra=extra)

    def tool_result(self, result: wire.GeminiToolResponse, extra: Json) -> ToolResult:
        id, _ = self._close_call(result.id, wire.SERVER_PREFIX + (result.tool_type or ""))
        return ToolResult(id, _response(result.response), extra=extra)

    def function_result(self, result: wire.GeminiFunctionResponse, extra: Json) -> ToolResult:
        """The client's own result, which normally is in requests: mostly of an earlier call."""
        id, is_known = self._close_call(result.id, result.name or "")
        return ToolResult(
            id,
            _response(result.response),
            earlier=not is_known,
            provider_executed=False,
            extra=extra,
        )

    def _close_call(self, wire_id: str | None, name: str) -> tuple[str, bool]:
        """Returns the id of the call that a result is for, and whether that call is in this
        response: by id, else the last one of that name without a result.
        """
        open_calls = self._without_result.get(name, {})
        # Results of code come right behind it, mostly without ids: the last call without a result.
        # capture: code-execution
        id = self._ids.get(wire_id) if wire_id else next(reversed(open_calls), None)
        if id is None:
            return wire_id or self._mint(), False
        open_calls.pop(id, None)
        return id, True

    def _claim_id(self, wire_id: str | None, name: str) -> str:
        """The id of the parts of a new call."""
        id = self._claims.claim(wire_id or self._mint())
        if wire_id and id != wire_id:
            detail = f"two calls have the id {wire_id!r}: this one is renamed to {id!r}"
            # capture: call-repeated, call-repeated-value-by-value
            self._findings.note("call-id-collision", detail)
        self._ids[wire_id or id] = id
        self._without_result.setdefault(name, {})[id] = None
        return id


def _is_null(value: Json) -> bool:
    return not isinstance(value, Raw) or bytes(value) == b"null"


def _args_text(args: Json) -> str:
    """The text of whole arguments, on one line: a body may be indented."""
    if not isinstance(args, Raw) or _is_null(args):
        return "{}"
    return to_one_line(bytes(args)).decode()


def _response(response: Json) -> Raw:
    return response.copy() if isinstance(response, Raw) else Raw(b"null")
