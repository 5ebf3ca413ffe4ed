"""Builds the parts of the wire, and reports what of a response this API cannot carry."""

from typing import TypeVar

import msgspec
from msgspec import Raw

from weft.assembler import ReasoningItem, TextItem
from weft.context import Context
from weft.dialects.envelope import to_base64, wrap_call_signature, wrap_reasoning
from weft.dialects.gemini import wire
from weft.findings import Findings
from weft.partial_json import parse
from weft.parts import (
    File,
    Finish,
    Json,
    Opaque,
    ReasoningEnd,
    ReasoningStart,
    TextEnd,
    ToolCall,
    ToolResult,
)

T = TypeVar("T", bound=msgspec.Struct)

_json = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_code = msgspec.json.Decoder(wire.ExecutableCode).decode
_decode_code_result = msgspec.json.Decoder(wire.CodeExecutionResult).decode


class GeminiLossReporter:
    """Builds parts from canonical ones. What they cannot carry is a `not-carried` finding."""

    def __init__(self, context: Context, findings: Findings, dialect: str | None) -> None:
        self._findings = findings
        self.same_dialect = dialect == wire.NAME
        """Whether the response came from this dialect, so that each `extra` is ours."""
        # A signature is valid where it was made. `origin` names the upstream, where several speak
        # this API.
        self._origins = {wire.NAME, context.origin or wire.NAME}
        self.model: str | None = None
        self.reasoning: dict[str, ReasoningStart | ReasoningItem] = {}
        self._calls: dict[str, ToolCall] = {}

    def not_carried(self, part: str, why: str) -> None:
        self._findings.once("not-carried", f"{part} {why}", f"{part}: {why}")

    def signature(
        self, part: str, end: TextEnd | TextItem | ReasoningEnd | ReasoningItem
    ) -> str | None:
        """The signature; one of reasoning from another origin is wrapped in an envelope."""
        if end.signature and end.origin in self._origins:
            return end.signature
        foreign = end.signature
        if isinstance(end, ReasoningEnd | ReasoningItem):
            # Clients send `thoughtSignature` back as it is, so it can carry another origin's state.
            envelope = wrap_reasoning(end, self.model, self.reasoning[end.id])
            if envelope is not None:
                return to_base64(envelope)
            foreign = foreign or end.encrypted or end.redacted
        if foreign:
            owner = repr(end.origin) if end.origin else "its origin"
            self.not_carried(part, f"its signature is only for {owner}")
        return None

    def call(self, call: ToolCall) -> wire.GeminiPart | wire.GeminiError | None:
        """The part of a call; an error if a client could not run it; None if it is left out."""
        if not call.name:
            self.not_carried(call.type, "it has no name")
            return None
        if call.provider_executed:
            part = _executed_call(call)
            if part is None:
                why = f"there is no part for {call.kind} that the host executes"
                self.not_carried(call.type, why)
                return None
        else:
            args = call_args(call)
            if args is None:
                truncated = call.invalid == "stream-failed"
                why = "the stream ended inside it" if truncated else "its arguments are no object"
                # `args` must be an object, and a call that is left out would look like an answer
                # without one.
                message = f"the call of {call.name!r} is not usable: {why}"
                return wire.GeminiError(500, message, "INTERNAL")
            part = wire.GeminiPart(function_call=wire.GeminiFunctionCall(call.id, call.name, args))
        self._calls[call.id] = call
        if call.origin in self._origins or (call.origin is None and self.same_dialect):
            part.thought_signature = call.signature
        elif (envelope := wrap_call_signature(call, self.model)) is not None:
            part.thought_signature = to_base64(envelope)
        elif call.signature:
            self.not_carried(call.type, "the origin of its signature is unknown")
        return part

    def result(self, result: ToolResult) -> wire.GeminiPart | None:
        call = self._calls.get(result.id)
        if call is None or result.preliminary:
            # Clients match a result to its call, and there is no part for preliminary ones.
            preliminary = result.preliminary
            why = "preliminary results are not sent" if preliminary else "its call was not written"
            self.not_carried(result.type, why)
            return None
        part = wire.GeminiPart(thought_signature=self._own_signature(result.extra))
        if not call.provider_executed:
            key = "error" if result.is_error else "output"
            # `response` must be an object; `output` and `error` are the keys that the API
            # documents.
            response = _as_object(bytes(result.result).decode()) or Raw(_json({key: result.result}))
            part.function_response = wire.GeminiFunctionResponse(call.id, call.name, response)
        elif call.kind != wire.CODE_KIND:
            tool_type = call.name.removeprefix(wire.SERVER_PREFIX)
            part.tool_response = wire.GeminiToolResponse(call.id, tool_type, result.result)
        else:
            try:
                part.code_execution_result = _decode_code_result(result.result)
            except ValueError:
                self.not_carried(result.type, "its call was not written")
                return None
            part.code_execution_result.id = result.id
        return part

    def file(self, file: File) -> wire.GeminiPart | None:
        part = wire.GeminiPart(thought=True if file.reasoning else None)
        if file.data is not None:
            part.inline_data = wire.GeminiBlob(file.media_type, file.data)
        elif file.reference is not None and ":" in file.reference:
            # `fileUri` is a URI. An id of another vendor's file store has no scheme.
            part.file_data = wire.GeminiFileData(file.media_type, file.reference)
        else:
            self.not_carried(file.type, "it has neither data nor a URI")
            return None
        part.thought_signature = self._own_signature(file.extra)
        return part

    def _own_signature(self, extra: Json) -> str | None:
        return self.extra(extra, wire.SignatureExtra).thought_signature

    def opaque(self, part: Opaque) -> Raw | None:
        if part.origin in self._origins and bytes(part.raw)[:1] == b"{":
            return part.raw
        self.not_carried(part.type, f"{part.kind!r} belongs to {part.origin}")
        return None

    def finish(self, finish: Finish, changed_counts: list[str]) -> None:
        """Reports what the last frame cannot express."""
        if finish.stop_sequence is not None:
            self.not_carried(finish.type, "there is no field for the matched stop sequence")
        client_called = any(not call.provider_executed for call in self._calls.values())
        if finish.reason == "tool-calls" and not client_called:
            self.not_carried(finish.type, "no call of this response was written")
        for name in changed_counts:
            self.not_carried("usage", f"there is no field for these {name}")

    def extra(self, extra: Json, shape: type[T]) -> T:
        """The `extra` of a part; an empty one if another dialect made it."""
        if not self.same_dialect or not isinstance(extra, Raw):
            return shape()
        try:
            return msgspec.json.decode(extra, type=shape)
        except ValueError:
            return shape()


def call_args(call: ToolCall) -> Raw | None:
    """The arguments as an object; free text is under the key `input`. None if they are invalid."""
    if call.invalid is not None:
        return None
    if call.format == "text":
        return Raw(_json({"input": call.params}))
    return _as_object(call.params)


def _as_object(text: str) -> Raw | None:
    try:
        # For its check only: the bytes go out as they came, with their number formats and key
        # order.
        _decode_object(text)
        return Raw(text.encode())
    except ValueError:
        pass
    try:  # again, with lone surrogates replaced
        value = parse(text)
    except ValueError:
        return None
    return Raw(_json(value)) if isinstance(value, dict) else None


def _executed_call(call: ToolCall) -> wire.GeminiPart | None:
    """The part of a call that the host executes, if it is of a kind that this API has."""
    if call.invalid is not None:
        return None
    if call.kind == wire.CODE_KIND:
        try:
            code = _decode_code(call.params)
        except ValueError:
            return None
        code.id = call.id
        return wire.GeminiPart(executable_code=code)
    args = _as_object(call.params) if call.kind == wire.SERVER_TOOL_KIND else None
    if args is None:
        return None
    tool_type = call.name.removeprefix(wire.SERVER_PREFIX)
    return wire.GeminiPart(tool_call=wire.GeminiToolCall(call.id, tool_type, args))
