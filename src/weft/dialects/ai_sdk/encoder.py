"""Parts into a UI message stream, as a chat front end reads it.

- Only chunks and keys that the front end's version knows are written, and never null: anything
  else ends the chat there.
- A reader stops at the error chunk, and what is open then stays open for ever. So the error waits
  until all ends are written.
- A call's free text is written whole: the front end reads deltas as JSON only.
- A result is written only for a call that the reader knows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.assembler import Assembler, merged
from weft.context import Context
from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.mapping import UNTYPED, WORDS, error_text, raw_text, tokens, url_of
from weft.dialects.ai_sdk.quirks import UiQuirks
from weft.dialects.ai_sdk.wire import NAME, Extra, Json, flat, unpacked
from weft.dialects.base import PassthroughHistory
from weft.findings import Findings
from weft.partial_json import canonical
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    Invalid,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
)
from weft.request import CallContent, Message, Request
from weft.sse import DONE, Event

_json = msgspec.json.Encoder().encode
_START_STEP = Event("", b'{"type":"start-step"}')
_FINISH_STEP = Event("", b'{"type":"finish-step"}')
_DONE = Event("", DONE)
_UNKNOWN = "weft"
"""Whose a proof is that tells no origin."""

_SINCE = {"custom": 7, "reset-step": 7, "tool-approval-response": 7, "tool-output-denied": 6}
"""The version that chunks which come back as they were need, if that is not the first."""

_FLAWS: dict[Invalid, str] = {
    "nameless": "the call came without a name",
    "bad-arguments": "the arguments are not valid JSON",
    "stream-failed": "the stream ended before the call did",
}


class _Call:
    """What all chunks of one call have in common."""

    __slots__ = ("dynamic", "provider_executed")

    def __init__(self, *, provider_executed: bool, dynamic: bool) -> None:
        self.provider_executed: bool | UnsetType = provider_executed or UNSET
        self.dynamic: bool | UnsetType = dynamic or UNSET


class UiEncoder:
    """Writes one message of one step. Needs no fold: every chunk says what its part says."""

    def __init__(self, context: Context, fold: Assembler, findings: Findings) -> None:
        quirks = context.quirks if isinstance(context.quirks, UiQuirks) else UiQuirks()
        self._context = context
        self._findings = findings
        self._ui = quirks.ui
        self._tells_usage = quirks.usage
        self._ours = False
        """Whether the response came from this dialect, so that what it kept is understood."""
        self._source_dialect: str | None = None
        self._model: str | None = None
        self._usage: Usage | None = None
        self._error: ErrorPart | None = None
        self._calls: dict[str, _Call] = {}
        """The calls that the reader knows."""
        self._asked = False
        """Whether a call for the client was written."""
        self._free: set[str] = set()
        self._heads: dict[tuple[type[Part], str], bytes] = {}
        """All of a delta chunk up to its value."""

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the chunks that these parts make, each in one piece."""
        out: list[Event] = []
        for part in parts:
            _HANDLERS[part.__class__](self, part, out)
        return out

    def finish(self) -> list[Event]:
        """The finish part said it all."""
        return []

    def resume(self, before: PassthroughHistory) -> None:
        """What was fed is all it has to know."""

    def keepalive(self) -> Event | None:
        return None

    def _lost(self, what: str, which: str, why: str) -> None:
        self._findings.once("not-carried", f"{what} {which}", f"{what}: {why}")

    def _extra(self, extra: Json) -> Extra:
        """What a part of this dialect kept for the way back."""
        return unpacked(extra, Extra) if self._ours else Extra()

    # The message

    def _metadata(self, part: ResponseMetadata, out: list[Event]) -> None:
        self._ours = part.dialect == NAME
        self._source_dialect = part.dialect
        self._model, self._usage = part.model, part.usage
        id = _continued(self._context.request) or self._context.response_id
        start = wire.Start(id or self._context.ids.mint("msg"))
        start.message_metadata = self._extra(part.extra).message_metadata
        out += _chunk(start), _START_STEP

    def _on_error(self, part: ErrorPart, out: list[Event]) -> None:
        """It waits for the ends of what is open: they come next."""
        self._error = part

    def _finish(self, part: Finish, out: list[Event]) -> None:
        error = self._error
        if error is not None and error.kind == "cancelled":
            reason = error.message if self._ui >= 7 and error.message else UNSET
            out += _chunk(wire.Abort(reason)), _DONE
            return
        if error is not None:
            out.append(_chunk(wire.Failed(error.message or "unknown error")))
        finish = wire.Finish(self._word(part), self._told(part))
        out += _FINISH_STEP, _chunk(finish), _DONE

    def _word(self, part: Finish) -> wire.Word:
        """A pause has no word: it is a stop, but never one with a call that waits (law 4). Calls
        that nobody can be told of are a stop."""
        if part.reason == "tool-calls" and not self._calls:
            self._lost(part.type, part.reason, "no call was made that this wire can carry")
            return "stop"
        if part.reason != "pause":
            return WORDS[part.reason]
        self._lost(part.type, part.reason, "there is no word for a pause")
        return "tool-calls" if self._asked else "stop"

    def _told(self, part: Finish) -> wire.Told | Json:
        """What is told of the response: what came with it, or its usage when that is asked for."""
        told = merged(self._usage, part.usage)
        if not self._tells_usage:
            if told is not None:
                self._lost("usage", "", "it is told only when that is asked for")
            return self._extra(part.extra).message_metadata
        usage = tokens(told)
        model = part.model or self._model
        return wire.Told(model or UNSET, usage if usage != wire.Tokens() else UNSET)

    # Text and reasoning

    def _text_start(self, part: TextStart, out: list[Event]) -> None:
        if part.refusal:
            self._lost("text-start", "refusal", "a refusal is written as any text")
        self._heads[TextDelta, part.id] = _head("text-delta", "id", part.id, "delta")
        metadata = self._extra(part.extra).provider_metadata
        out.append(_chunk(wire.TextStart(part.id, metadata)))

    def _reasoning_start(self, part: ReasoningStart, out: list[Event]) -> None:
        self._heads[ReasoningDelta, part.id] = _head("reasoning-delta", "id", part.id, "delta")
        metadata = self._extra(part.extra).provider_metadata
        out.append(_chunk(wire.ReasoningStart(part.id, metadata)))

    def _delta(self, part: TextDelta | ReasoningDelta, out: list[Event]) -> None:
        out.append(Event("", b"%b%b}" % (self._heads[part.__class__, part.id], _json(part.delta))))

    def _text_end(self, part: TextEnd, out: list[Event]) -> None:
        proof = wire.Annotated(part.signature, annotations=part.annotations)
        out.append(_chunk(wire.TextEnd(part.id, self._proven(part.extra, part.origin, proof))))

    def _reasoning_end(self, part: ReasoningEnd, out: list[Event]) -> None:
        proof = wire.Proof(
            part.signature,
            redacted_data=part.redacted,
            reasoning_encrypted_content=part.encrypted,
        )
        metadata = self._proven(part.extra, part.origin, proof)
        out.append(_chunk(wire.ReasoningEnd(part.id, metadata)))

    def _proven(self, extra: Json, origin: str | None, proof: wire.Proof) -> Json:
        """Proofs under the name of their origin: the front end sends them back as they are."""
        metadata = self._extra(extra).provider_metadata
        if metadata is not UNSET or proof == proof.__class__():
            return metadata
        whose = origin or self._context.origin or self._source_dialect or _UNKNOWN
        return Raw(b"{%b:%b}" % (_json(whose), _json(proof)))

    # Calls

    def _params_start(self, part: ToolParamsStart, out: list[Event]) -> None:
        extra = self._extra(part.extra)
        call = self._announce(part, bool(extra.dynamic))
        if part.format == "text":
            self._free.add(part.id)
            return
        head = _head("tool-input-delta", "toolCallId", part.id, "inputTextDelta")
        self._heads[ToolParamsDelta, part.id] = head
        start = wire.InputStart(part.id, part.name, call.provider_executed, call.dynamic)
        start.provider_metadata, start.title = extra.provider_metadata, self._title(extra)
        out.append(_chunk(start))

    def _title(self, extra: Extra) -> str | UnsetType:
        return extra.title if extra.title is not None and self._ui >= 6 else UNSET

    def _announce(self, part: ToolParamsStart | ToolCall, dynamic: bool) -> _Call:
        """A front end has no type for a tool that the provider runs and nobody declared."""
        if not self._ours:
            dynamic = part.provider_executed and not _declared(self._context.request, part.name)
        call = _Call(provider_executed=part.provider_executed, dynamic=dynamic)
        self._calls[part.id] = call
        return call

    def _params_delta(self, part: ToolParamsDelta, out: list[Event]) -> None:
        if part.id not in self._free:
            out.append(
                Event("", b"%b%b}" % (self._heads[ToolParamsDelta, part.id], _json(part.delta)))
            )

    def _params_end(self, part: ToolParamsEnd, out: list[Event]) -> None:
        """The tool-call says it."""

    def _tool_call(self, part: ToolCall, out: list[Event]) -> None:
        if not part.name:
            self._lost(part.type, part.id, "a call without a name cannot be told")
            return
        call = self._calls.get(part.id) or self._announce(part, part.dynamic)
        if part.invalid is not None:
            out.append(_chunk(self._input_error(part, call)))
            return
        self._asked = self._asked or not part.provider_executed
        extra = self._extra(part.extra)
        proof = wire.Proof(part.signature)
        available = wire.InputAvailable(
            part.id,
            part.name,
            _input(part),
            call.provider_executed,
            call.dynamic,
            self._proven(part.extra, part.origin, proof),
            self._title(extra),
        )
        out.append(_chunk(available))

    def _input_error(self, part: ToolCall, call: _Call) -> wire.InputError:
        why = self._extra(part.extra).error_text or _FLAWS[part.invalid or "bad-arguments"]
        return wire.InputError(
            part.id, part.name, part.params, why, call.provider_executed, call.dynamic
        )

    def _tool_result(self, part: ToolResult, out: list[Event]) -> None:
        call = self._known(part)
        if call is None:
            self._lost(part.type, part.id, "the reader does not know its call")
            return
        dynamic, executed = call.dynamic, call.provider_executed
        if part.is_error and part.preliminary:
            self._lost(part.type, part.id, "an error is always the last result")
        elif part.is_error:
            text = error_text(part.result)
            out.append(_chunk(wire.OutputError(part.id, text, executed, dynamic)))
        else:
            preliminary = part.preliminary or UNSET
            output = flat(part.result)
            chunk = wire.OutputAvailable(part.id, output, executed, dynamic, preliminary)
            out.append(_chunk(chunk))

    def _known(self, part: ToolResult) -> _Call | None:
        call = self._calls.get(part.id)
        if call is None and part.id in _earlier(self._context.request):
            return _Call(provider_executed=part.provider_executed, dynamic=False)
        return call

    def _approval(self, part: ToolApprovalRequest, out: list[Event]) -> None:
        if self._ui < 6:
            self._lost(part.type, part.id, "this front end has no approvals")
        elif part.id not in self._calls:
            self._lost(part.type, part.id, "the reader does not know its call")
        else:
            out.append(_chunk(wire.ApprovalRequest(part.approval_id, part.id)))

    # The rest

    def _source(self, part: Source, out: list[Event]) -> None:
        extra = self._extra(part.extra)
        if part.text_id is not None or part.start is not None:
            self._lost("source", "place", "where in the text a source belongs is not told")
        if part.kind == "document":
            media_type = extra.media_type or UNTYPED
            title = part.title or extra.filename or part.file_id or part.id
            document = wire.SourceDocument(part.id, media_type, title, extra.filename or UNSET)
            out.append(_chunk(document))
        elif part.url is not None:
            out.append(_chunk(wire.SourceUrl(part.id, part.url, part.title or UNSET)))
        else:
            self._lost(part.type, part.id, "it has no address")

    def _file(self, part: File, out: list[Event]) -> None:
        url = url_of(part.media_type, part.data, part.reference)
        if url is None:
            self._lost(part.type, part.id, "only its origin knows where it is")
        elif not part.reasoning:
            out.append(_chunk(wire.File(url, part.media_type)))
        elif self._ui >= 7:
            out.append(_chunk(wire.ReasoningFile(url, part.media_type)))
        else:
            self._lost(part.type, part.id, "this front end has no files in reasoning")

    def _opaque(self, part: Opaque, out: list[Event]) -> None:
        if self._ours and part.origin == NAME and self._ui >= _SINCE.get(part.kind, 5):
            out.append(Event("", bytes(flat(part.raw))))
        elif part.origin != NAME and self._ui >= 7:
            held = b'{%b:{"item":%b}}' % (_json(part.origin), bytes(flat(part.raw)))
            out.append(_chunk(wire.Custom(f"{part.origin}.{part.kind}", Raw(held))))
        else:
            self._lost(part.type, part.kind, f"{part.kind} of {part.origin} has no chunk")


def _input(call: ToolCall) -> Raw:
    """The arguments as a value. Free text is a text, also if there is JSON in it; but one that the
    provider ran is only shown, and a reader takes JSON in a text for a mistake.
    """
    shown = call.provider_executed and call.params.startswith("{") and canonical(call.params)
    if call.format == "text" and not shown:
        return raw_text(call.params)
    return flat(Raw(call.params.encode()))


def _chunk(chunk: wire.Chunk) -> Event:
    return Event("", _json(chunk))


def _head(type: str, key: str, id: str, value: str) -> bytes:
    return b'{"type":"%b","%b":%b,"%b":' % (
        type.encode(),
        key.encode(),
        _json(id),
        value.encode(),
    )


def _last(request: Request | None) -> Message | None:
    """The message that the answer goes on with: the assistant's, if that is the last one."""
    last = request.messages[-1] if request and request.messages else None
    return last if last is not None and last.role == "assistant" else None


def _continued(request: Request | None) -> str | None:
    """The id of the message that goes on: under another one, the answer would be a copy of it."""
    last = _last(request)
    return last.item_id if last else None


def _earlier(request: Request | None) -> frozenset[str]:
    """The calls that are in the reader's message already."""
    last = _last(request)
    content = last.content if last else ()
    return frozenset(one.id for one in content if isinstance(one, CallContent))


def _declared(request: Request | None, name: str) -> bool:
    return request is not None and any(tool.name == name for tool in request.tools)


_HANDLERS: dict[type[Part], Callable[[UiEncoder, Any, list[Event]], None]] = {
    ResponseMetadata: UiEncoder._metadata,
    TextStart: UiEncoder._text_start,
    TextDelta: UiEncoder._delta,
    TextEnd: UiEncoder._text_end,
    ReasoningStart: UiEncoder._reasoning_start,
    ReasoningDelta: UiEncoder._delta,
    ReasoningEnd: UiEncoder._reasoning_end,
    ToolParamsStart: UiEncoder._params_start,
    ToolParamsDelta: UiEncoder._params_delta,
    ToolParamsEnd: UiEncoder._params_end,
    ToolCall: UiEncoder._tool_call,
    ToolResult: UiEncoder._tool_result,
    ToolApprovalRequest: UiEncoder._approval,
    Source: UiEncoder._source,
    File: UiEncoder._file,
    Opaque: UiEncoder._opaque,
    ErrorPart: UiEncoder._on_error,
    Finish: UiEncoder._finish,
}
