"""Encodes parts as a UI message stream for a chat front end.

- Only chunks and keys that the front end's version knows are written, and never null: the front end
  fails on anything else.
- A reader stops at the error chunk, and what is open then stays open forever. So the error is
  written after all ends.
- The free text of a call is written in one piece: the front end parses deltas as JSON.
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
from weft.dialects.ai_sdk.wire import NAME, SdkEvent, SdkExtra, on_one_line
from weft.dialects.base import PassthroughHistory
from weft.dialects.delta_templates import EventTemplate
from weft.dialects.raw_json import decode_or_default
from weft.findings import Findings
from weft.partial_json import canonical
from weft.parts import (
    Delta,
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
from weft.request import CallContent
from weft.sse import DONE, Event

_json = msgspec.json.Encoder().encode
_START_STEP = Event("", b'{"type":"start-step"}')
_FINISH_STEP = Event("", b'{"type":"finish-step"}')
# Front ends read on without it, but the SDK's own servers end every stream so.
_DONE = Event("", DONE)
_NO_ORIGIN = "weft"
"""The provider of a signature whose origin is unknown."""

_UNKNOWN_CALL = "the reader does not know its call"

# Measured with front ends of 5.0, 6.0 and 7.0: a chunk of an unknown type puts the chat into the
# state `error`.
_MIN_VERSIONS = {
    "custom": 7,
    "reset-step": 7,
    "tool-approval-response": 7,
    "tool-output-denied": 6,
}
"""The version of the front end that opaque chunks need, if that is not the first."""

_INVALID_CALLS: dict[Invalid, str] = {
    "nameless": "the call came without a name",
    "bad-arguments": "the arguments are not valid JSON",
    "stream-failed": "the stream ended before the call did",
}


class _SdkWrittenCall:
    """The fields that all chunks of one call have."""

    __slots__ = ("dynamic", "provider_executed")

    def __init__(self, *, provider_executed: bool, dynamic: bool) -> None:
        # None is left out of the chunk. On every chunk of the call the same: a `dynamic` that
        # differs makes two tool parts with one id.
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
    """Encodes one message of one step."""

    def __init__(self, context: Context, fold: Assembler, findings: Findings) -> None:
        quirks = context.quirks if isinstance(context.quirks, UiQuirks) else UiQuirks()
        self._context = context
        self._findings = findings
        self._ui = quirks.ui
        self._writes_usage = quirks.usage
        self._is_native = False
        """Whether the response came from this dialect, so that its extras can be written."""
        earlier = context.request.messages if context.request else ()
        is_continued = bool(earlier) and earlier[-1].role == "assistant"
        # A request that ends with the assistant brings tool outputs or approvals for its message.
        self._continued = earlier[-1] if is_continued else None
        """The assistant's message that the response continues."""
        self._source_dialect: str | None = None
        self._model: str | None = None
        self._usage: Usage | None = None
        self._error: ErrorPart | None = None
        self._calls: dict[str, _SdkWrittenCall] = {}
        """The calls that were written."""
        self._client_called = False
        """Whether a call for the client was written."""
        self._free_text_calls: set[str] = set()
        # By kind as well: a text and a reasoning may have the same id.
        self._heads: dict[tuple[type[Part], str], bytes] = {}
        """The JSON of a delta chunk up to its value."""

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the chunks of these parts."""
        out: list[Event] = []
        for part in parts:
            _HANDLERS[part.__class__](self, part, out)
        return out

    def finish(self) -> list[Event]:
        """Returns nothing: the finish part ended the stream."""
        return []

    def resume(self, before: PassthroughHistory) -> None:
        """Nothing to adjust: every chunk has only what its part has."""

    def keepalive(self) -> Event | None:
        # `Dialect.idle` is sent instead: front ends skip comments, and have no chunk for a ping.
        return None

    def delta_template(self, last: Delta) -> EventTemplate | None:
        return None  # never behind a gateway

    def _not_carried(self, what: str, which: str, why: str) -> None:
        self._findings.once("not-carried", f"{what} {which}", f"{what}: {why}")

    def _extra(self, extra: Json) -> SdkExtra:
        """The extra of a part of this dialect; an empty one for other dialects."""
        return decode_or_default(extra, SdkExtra) if self._is_native else SdkExtra()

    # The message

    def _metadata(self, part: ResponseMetadata, out: list[Event]) -> None:
        self._is_native = part.dialect == NAME
        self._source_dialect = part.dialect
        self._model, self._usage = part.model, part.usage
        # Under another id than the message it continues, the response would be a copy of it.
        id = (self._continued and self._continued.item_id) or self._context.response_id
        start = SdkEvent("start", message_id=id or self._context.ids.mint("msg"))
        start.message_metadata = self._extra(part.extra).message_metadata
        out += _chunk(start), _START_STEP

    def _on_error(self, part: ErrorPart, out: list[Event]) -> None:
        """The error is written with the finish, after the ends of open parts."""
        self._error = part

    def _finish(self, part: Finish, out: list[Event]) -> None:
        error = self._error
        if error is not None and error.kind == "cancelled":
            # Some releases of versions 5 and 6 reject the key `reason`.
            message = error.message or None if self._ui >= 7 else None
            out += _chunk(SdkEvent("abort", reason=message)), _DONE
            return
        if error is not None:
            out.append(_chunk(SdkEvent("error", error_text=error.message or "unknown error")))
        reason: str = part.reason
        if reason == "tool-calls" and not self._calls:
            self._not_carried(part.type, reason, "no call of this response was written")
            reason = "stop"
        elif reason == "pause":  # there is none; a call that waits is never behind a stop (law 4)
            self._not_carried(part.type, reason, "there is no finish reason for a pause")
            reason = "tool-calls" if self._client_called else "stop"
        finish = SdkEvent("finish", finish_reason=reason)
        usage = merged(self._usage, part.usage)
        # The only place for usage is the metadata of the message, which is the application's own.
        if self._writes_usage:
            finish.message_metadata = render_message_metadata(part.model or self._model, usage)
        else:
            if usage is not None:
                self._not_carried("usage", "", "it is written only with the quirk `usage`")
            finish.message_metadata = self._extra(part.extra).message_metadata
        out += _FINISH_STEP, _chunk(finish), _DONE

    # Text and reasoning

    def _text_start(self, part: TextStart, out: list[Event]) -> None:
        if part.refusal:
            self._not_carried("text-start", "refusal", "a refusal is written as text")
        self._heads[TextDelta, part.id] = _head("text-delta", "id", part.id, "delta")
        metadata = self._extra(part.extra).provider_metadata
        out.append(_chunk(SdkEvent("text-start", part.id, provider_metadata=metadata)))

    def _reasoning_start(self, part: ReasoningStart, out: list[Event]) -> None:
        self._heads[ReasoningDelta, part.id] = _head("reasoning-delta", "id", part.id, "delta")
        metadata = self._extra(part.extra).provider_metadata
        out.append(_chunk(SdkEvent("reasoning-start", part.id, provider_metadata=metadata)))

    def _delta(self, part: TextDelta | ReasoningDelta, out: list[Event]) -> None:
        # The hot path: only the delta is encoded.
        out.append(Event("", b"%b%b}" % (self._heads[part.__class__, part.id], _json(part.delta))))

    def _text_end(self, part: TextEnd, out: list[Event]) -> None:
        proof = wire.SdkTextMetadata(part.signature, annotations=part.annotations)
        metadata = self._provider_metadata(part.extra, part.origin, proof)
        out.append(_chunk(SdkEvent("text-end", part.id, provider_metadata=metadata)))

    def _reasoning_end(self, part: ReasoningEnd, out: list[Event]) -> None:
        proof = wire.SdkProviderMetadata(
            part.signature,
            redacted_data=part.redacted,
            reasoning_encrypted_content=part.encrypted,
        )
        metadata = self._provider_metadata(part.extra, part.origin, proof)
        out.append(_chunk(SdkEvent("reasoning-end", part.id, provider_metadata=metadata)))

    def _provider_metadata(
        self, extra: Json, origin: str | None, proof: wire.SdkProviderMetadata
    ) -> Json:
        """Signatures under the name of their origin: the front end returns them unchanged."""
        metadata = self._extra(extra).provider_metadata
        # Metadata of the same dialect holds the signature already, under the provider's own name.
        if metadata is not UNSET or proof == proof.__class__():
            return metadata
        whose = origin or self._context.origin or self._source_dialect or _NO_ORIGIN
        return Raw(b"{%b:%b}" % (_json(whose), _json(proof)))

    # Calls

    def _params_start(self, part: ToolParamsStart, out: list[Event]) -> None:
        extra = self._extra(part.extra)
        call = self._announce(part, bool(extra.dynamic))
        if part.format == "text":
            self._free_text_calls.add(part.id)
            return
        head = _head("tool-input-delta", "toolCallId", part.id, "inputTextDelta")
        self._heads[ToolParamsDelta, part.id] = head
        start = call.event("tool-input-start", part.id, part.name)
        start.provider_metadata, start.title = extra.provider_metadata, self._title(extra)
        out.append(_chunk(start))

    def _title(self, extra: SdkExtra) -> str | None:
        return extra.title if self._ui >= 6 else None

    def _announce(self, part: ToolParamsStart | ToolCall, dynamic: bool) -> _SdkWrittenCall:
        """Front ends have no type for a provider's tool that nobody declared: it is `dynamic`."""
        if not self._is_native:
            request = self._context.request
            # Declared tools have a typed part in the front end, `tool-<name>`; all others are
            # `dynamic-tool`.
            declared = [tool.name for tool in request.tools] if request is not None else []
            dynamic = part.provider_executed and part.name not in declared
        call = _SdkWrittenCall(provider_executed=part.provider_executed, dynamic=dynamic)
        self._calls[part.id] = call
        return call

    def _params_delta(self, part: ToolParamsDelta, out: list[Event]) -> None:
        if part.id not in self._free_text_calls:
            out.append(
                Event("", b"%b%b}" % (self._heads[ToolParamsDelta, part.id], _json(part.delta)))
            )

    def _params_end(self, part: ToolParamsEnd, out: list[Event]) -> None:
        """The tool-call ends the call."""

    def _tool_call(self, part: ToolCall, out: list[Event]) -> None:
        if not part.name:
            self._not_carried(part.type, part.id, "it has no name")
            return
        call = self._calls.get(part.id) or self._announce(part, part.dynamic)
        # An error instead of a call: front ends would run the tool on `tool-input-available`.
        if part.invalid is not None:
            out.append(_chunk(self._input_error(part, call)))
            return
        self._client_called = self._client_called or not part.provider_executed
        proof = wire.SdkProviderMetadata(part.signature)
        available = call.event("tool-input-available", part.id, part.name)
        available.input = _input(part)
        available.provider_metadata = self._provider_metadata(part.extra, part.origin, proof)
        available.title = self._title(self._extra(part.extra))
        out.append(_chunk(available))

    def _input_error(self, part: ToolCall, call: _SdkWrittenCall) -> SdkEvent:
        error = call.event("tool-input-error", part.id, part.name)
        # As text: it is not JSON, or is not complete.
        error.input = json_string(part.params)
        error.error_text = self._extra(part.extra).error_text
        error.error_text = error.error_text or _INVALID_CALLS[part.invalid or "bad-arguments"]
        return error

    def _tool_result(self, part: ToolResult, out: list[Event]) -> None:
        call = self._calls.get(part.id)
        if call is None and self._continued is not None:
            earlier = [one.id for one in self._continued.content if isinstance(one, CallContent)]
            # The call stands in the message that is continued, so the front end knows it.
            if part.id in earlier:
                call = _SdkWrittenCall(provider_executed=part.provider_executed, dynamic=False)
        # A front end fails at the output of a call that it does not have.
        if call is None:
            self._not_carried(part.type, part.id, _UNKNOWN_CALL)
            return
        if part.is_error and part.preliminary:
            self._not_carried(part.type, part.id, "an error is always the last result")
        elif part.is_error:
            error = call.event("tool-output-error", part.id)
            error.error_text = value_as_text(part.result)
            out.append(_chunk(error))
        else:
            available = call.event("tool-output-available", part.id)
            available.output = on_one_line(part.result)  # required, also if it is null
            available.preliminary = part.preliminary or None
            out.append(_chunk(available))

    def _approval(self, part: ToolApprovalRequest, out: list[Event]) -> None:
        if self._ui < 6:
            self._not_carried(part.type, part.id, "this front end has no approvals")
        elif part.id not in self._calls:
            self._not_carried(part.type, part.id, _UNKNOWN_CALL)
        else:
            request = SdkEvent("tool-approval-request", approval_id=part.approval_id)
            request.tool_call_id = part.id
            out.append(_chunk(request))

    # The rest

    def _source(self, part: Source, out: list[Event]) -> None:
        extra = self._extra(part.extra)
        if part.text_id is not None or part.start is not None:
            self._not_carried("source", "place", "where in the text a source belongs is not told")
        if part.kind == "document":
            document = SdkEvent("source-document", source_id=part.id)
            document.media_type = extra.media_type or UNKNOWN_MEDIA_TYPE
            # Required here, unlike the title of a URL.
            document.title = part.title or extra.filename or part.file_id or part.id
            document.filename = extra.filename or None
            out.append(_chunk(document))
        elif part.url is not None:
            title = part.title or None
            out.append(_chunk(SdkEvent("source-url", source_id=part.id, url=part.url, title=title)))
        else:
            self._not_carried(part.type, part.id, "it has no address")

    def _file(self, part: File, out: list[Event]) -> None:
        url = file_url(part.media_type, part.data, part.reference)
        if url is None:
            self._not_carried(part.type, part.id, "only its origin knows where it is")
        elif not part.reasoning:
            out.append(_chunk(SdkEvent("file", url=url, media_type=part.media_type)))
        elif self._ui >= 7:
            out.append(_chunk(SdkEvent("reasoning-file", url=url, media_type=part.media_type)))
        else:
            self._not_carried(part.type, part.id, "this front end has no files in reasoning")

    def _opaque(self, part: Opaque, out: list[Event]) -> None:
        if self._is_native and part.origin == NAME and self._ui >= _MIN_VERSIONS.get(part.kind, 5):
            out.append(Event("", bytes(on_one_line(part.raw))))
        elif part.origin != NAME and self._ui >= 7:
            # The SDK requires `provider.type` as the kind of a custom part, and metadata by
            # provider.
            held = b'{%b:{"item":%b}}' % (_json(part.origin), bytes(on_one_line(part.raw)))
            kind = f"{part.origin}.{part.kind}"
            out.append(_chunk(SdkEvent("custom", kind=kind, provider_metadata=Raw(held))))
        else:
            self._not_carried(part.type, part.kind, f"{part.kind!r} of {part.origin} has no chunk")


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
