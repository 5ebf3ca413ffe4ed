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
from msgspec import UNSET, Raw

from weft.assembler import Assembler, merged
from weft.context import Context
from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.mapping import (
    UNKNOWN_MEDIA_TYPE,
    file_url,
    json_string,
    render_message_metadata,
    value_as_text,
)
from weft.dialects.ai_sdk.quirks import UiQuirks
from weft.dialects.ai_sdk.wire import NAME, SdkEvent, SdkExtra, on_one_line, parse_or_default
from weft.dialects.base import PassthroughHistory
from weft.findings import Findings
from weft.partial_json import canonical
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    Invalid,
    Json,
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
        self.provider_executed = provider_executed or None
        self.dynamic = dynamic or None

    def event(self, type: str, id: str, name: str | None = None) -> SdkEvent:
        return SdkEvent(
            type,
            tool_call_id=id,
            tool_name=name,
            provider_executed=self.provider_executed,
            dynamic=self.dynamic,
        )


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

    def _extra(self, extra: Json) -> SdkExtra:
        """What a part of this dialect kept for the way back."""
        return parse_or_default(extra, SdkExtra) if self._ours else SdkExtra()

    # The message

    def _metadata(self, part: ResponseMetadata, out: list[Event]) -> None:
        self._ours = part.dialect == NAME
        self._source_dialect = part.dialect
        self._model, self._usage = part.model, part.usage
        id = _continued(self._context.request) or self._context.response_id
        start = SdkEvent("start", message_id=id or self._context.ids.mint("msg"))
        start.message_metadata = self._extra(part.extra).message_metadata
        out += _chunk(start), _START_STEP

    def _on_error(self, part: ErrorPart, out: list[Event]) -> None:
        """It waits for the ends of what is open: they come next."""
        self._error = part

    def _finish(self, part: Finish, out: list[Event]) -> None:
        error = self._error
        if error is not None and error.kind == "cancelled":
            reason = error.message or None if self._ui >= 7 else None
            out += _chunk(SdkEvent("abort", reason=reason)), _DONE
            return
        if error is not None:
            out.append(_chunk(SdkEvent("error", error_text=error.message or "unknown error")))
        finish = SdkEvent("finish", finish_reason=self._word(part))
        finish.message_metadata = self._told(part)
        out += _FINISH_STEP, _chunk(finish), _DONE

    def _word(self, part: Finish) -> str:
        """A pause has no word: it is a stop, but never one with a call that waits (law 4). Calls
        that nobody can be told of are a stop."""
        if part.reason == "tool-calls" and not self._calls:
            self._lost(part.type, part.reason, "no call was made that this wire can carry")
            return "stop"
        if part.reason != "pause":
            return part.reason
        self._lost(part.type, part.reason, "there is no word for a pause")
        return "tool-calls" if self._asked else "stop"

    def _told(self, part: Finish) -> Json:
        """What is told of the response: what came with it, or its usage when that is asked for."""
        told = merged(self._usage, part.usage)
        if not self._tells_usage:
            if told is not None:
                self._lost("usage", "", "it is told only when that is asked for")
            return self._extra(part.extra).message_metadata
        return render_message_metadata(part.model or self._model, told)

    # Text and reasoning

    def _text_start(self, part: TextStart, out: list[Event]) -> None:
        if part.refusal:
            self._lost("text-start", "refusal", "a refusal is written as any text")
        self._heads[TextDelta, part.id] = _head("text-delta", "id", part.id, "delta")
        metadata = self._extra(part.extra).provider_metadata
        out.append(_chunk(SdkEvent("text-start", part.id, provider_metadata=metadata)))

    def _reasoning_start(self, part: ReasoningStart, out: list[Event]) -> None:
        self._heads[ReasoningDelta, part.id] = _head("reasoning-delta", "id", part.id, "delta")
        metadata = self._extra(part.extra).provider_metadata
        out.append(_chunk(SdkEvent("reasoning-start", part.id, provider_metadata=metadata)))

    def _delta(self, part: TextDelta | ReasoningDelta, out: list[Event]) -> None:
        out.append(Event("", b"%b%b}" % (self._heads[part.__class__, part.id], _json(part.delta))))

    def _text_end(self, part: TextEnd, out: list[Event]) -> None:
        proof = wire.SdkTextMetadata(part.signature, annotations=part.annotations)
        metadata = self._proven(part.extra, part.origin, proof)
        out.append(_chunk(SdkEvent("text-end", part.id, provider_metadata=metadata)))

    def _reasoning_end(self, part: ReasoningEnd, out: list[Event]) -> None:
        proof = wire.SdkProviderMetadata(
            part.signature,
            redacted_data=part.redacted,
            reasoning_encrypted_content=part.encrypted,
        )
        metadata = self._proven(part.extra, part.origin, proof)
        out.append(_chunk(SdkEvent("reasoning-end", part.id, provider_metadata=metadata)))

    def _proven(self, extra: Json, origin: str | None, proof: wire.SdkProviderMetadata) -> Json:
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
        start = call.event("tool-input-start", part.id, part.name)
        start.provider_metadata, start.title = extra.provider_metadata, self._title(extra)
        out.append(_chunk(start))

    def _title(self, extra: SdkExtra) -> str | None:
        return extra.title if self._ui >= 6 else None

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
        proof = wire.SdkProviderMetadata(part.signature)
        available = call.event("tool-input-available", part.id, part.name)
        available.input = _input(part)
        available.provider_metadata = self._proven(part.extra, part.origin, proof)
        available.title = self._title(self._extra(part.extra))
        out.append(_chunk(available))

    def _input_error(self, part: ToolCall, call: _Call) -> SdkEvent:
        error = call.event("tool-input-error", part.id, part.name)
        error.input = json_string(part.params)
        error.error_text = self._extra(part.extra).error_text
        error.error_text = error.error_text or _FLAWS[part.invalid or "bad-arguments"]
        return error

    def _tool_result(self, part: ToolResult, out: list[Event]) -> None:
        call = self._known(part)
        if call is None:
            self._lost(part.type, part.id, "the reader does not know its call")
            return
        if part.is_error and part.preliminary:
            self._lost(part.type, part.id, "an error is always the last result")
        elif part.is_error:
            error = call.event("tool-output-error", part.id)
            error.error_text = value_as_text(part.result)
            out.append(_chunk(error))
        else:
            available = call.event("tool-output-available", part.id)
            available.output = on_one_line(part.result)
            available.preliminary = part.preliminary or None
            out.append(_chunk(available))

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
            request = SdkEvent("tool-approval-request", approval_id=part.approval_id)
            request.tool_call_id = part.id
            out.append(_chunk(request))

    # The rest

    def _source(self, part: Source, out: list[Event]) -> None:
        extra = self._extra(part.extra)
        if part.text_id is not None or part.start is not None:
            self._lost("source", "place", "where in the text a source belongs is not told")
        if part.kind == "document":
            document = SdkEvent("source-document", source_id=part.id)
            document.media_type = extra.media_type or UNKNOWN_MEDIA_TYPE
            document.title = part.title or extra.filename or part.file_id or part.id
            document.filename = extra.filename or None
            out.append(_chunk(document))
        elif part.url is not None:
            title = part.title or None
            out.append(_chunk(SdkEvent("source-url", source_id=part.id, url=part.url, title=title)))
        else:
            self._lost(part.type, part.id, "it has no address")

    def _file(self, part: File, out: list[Event]) -> None:
        url = file_url(part.media_type, part.data, part.reference)
        if url is None:
            self._lost(part.type, part.id, "only its origin knows where it is")
        elif not part.reasoning:
            out.append(_chunk(SdkEvent("file", url=url, media_type=part.media_type)))
        elif self._ui >= 7:
            out.append(_chunk(SdkEvent("reasoning-file", url=url, media_type=part.media_type)))
        else:
            self._lost(part.type, part.id, "this front end has no files in reasoning")

    def _opaque(self, part: Opaque, out: list[Event]) -> None:
        if self._ours and part.origin == NAME and self._ui >= _SINCE.get(part.kind, 5):
            out.append(Event("", bytes(on_one_line(part.raw))))
        elif part.origin != NAME and self._ui >= 7:
            held = b'{%b:{"item":%b}}' % (_json(part.origin), bytes(on_one_line(part.raw)))
            kind = f"{part.origin}.{part.kind}"
            out.append(_chunk(SdkEvent("custom", kind=kind, provider_metadata=Raw(held))))
        else:
            self._lost(part.type, part.kind, f"{part.kind} of {part.origin} has no chunk")


def _input(call: ToolCall) -> Raw:
    """The arguments as a value. Free text is a text, also if there is JSON in it; but one that the
    provider ran is only shown, and a reader takes JSON in a text for a mistake.
    """
    shown = call.provider_executed and call.params.startswith("{") and canonical(call.params)
    if call.format == "text" and not shown:
        return json_string(call.params)
    return on_one_line(Raw(call.params.encode()))


def _chunk(event: SdkEvent) -> Event:
    return Event("", _json(event))


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
