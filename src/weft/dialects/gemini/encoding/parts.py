"""What single parts become on the wire, in a stream and in a body alike.

None says that there is no place for it; `Carried` leaves a finding then.
"""

import msgspec
from msgspec import Raw

from weft.assembler import ReasoningItem, TextItem
from weft.context import Context
from weft.dialects.envelope import in_base64, sealed, sealed_call
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
    ToolApprovalRequest,
    ToolCall,
    ToolResult,
)

_BREAKS = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)
"""What some readers of lines take for the end of one; in JSON it stands inside strings only."""

_json = msgspec.json.Encoder().encode
_read_object = msgspec.json.Decoder(dict[str, Raw]).decode
_read_code = msgspec.json.Decoder(wire.ExecutableCode).decode
_read_outcome = msgspec.json.Decoder(wire.CodeExecutionResult).decode
_read_leftover = msgspec.json.Decoder(wire.GeminiFinishExtra).decode
_read_signed = msgspec.json.Decoder(wire.SignatureExtra).decode
_read_failed = msgspec.json.Decoder(wire.ErrorExtra).decode


def unbroken(data: bytes) -> bytes:
    """Returns JSON without the rarer characters that end a line."""
    if not data.isascii():
        for character, escaped in _BREAKS:
            data = data.replace(character, escaped)
    return data


def one_line(data: bytes) -> bytes:
    """Returns JSON of any origin as one line: its line breaks are blanks between values."""
    return unbroken(data.replace(b"\n", b" ").replace(b"\r", b" "))


def arguments(call: ToolCall) -> Raw | None:
    """The arguments as an object; a text stands under one key."""
    if call.invalid is not None:
        return None
    if call.format == "text":
        return Raw(_json({"input": call.params}))
    return _object(call.params)


def _object(text: str) -> Raw | None:
    try:
        _read_object(text)
        return Raw(text.encode())
    except ValueError:
        pass
    try:  # once more, with halves of characters replaced
        value = parse(text)
    except ValueError:
        return None
    return Raw(_json(value)) if isinstance(value, dict) else None


def executed(call: ToolCall) -> wire.GeminiPart | None:
    """A call that the other end executes: only this wire's own kinds have a part."""
    if call.invalid is not None:
        return None
    if call.kind == wire.CODE_KIND:
        return _code(call)
    args = _object(call.params) if call.kind == wire.SERVER_TOOL_KIND else None
    if args is None:
        return None
    tool = call.name.removeprefix(wire.SERVER_PREFIX)
    return wire.GeminiPart(tool_call=wire.GeminiToolCall(call.id, tool, args))


def _code(call: ToolCall) -> wire.GeminiPart | None:
    try:
        code = _read_code(call.params)
    except ValueError:
        return None
    code.id = call.id
    return wire.GeminiPart(executable_code=code)


def result_part(result: ToolResult, call: ToolCall) -> wire.GeminiPart | None:
    if call.kind == wire.CODE_KIND and call.provider_executed:
        return _outcome(result)
    if call.provider_executed:
        tool = call.name.removeprefix(wire.SERVER_PREFIX)
        return wire.GeminiPart(tool_response=wire.GeminiToolResponse(call.id, tool, result.result))
    key = "error" if result.is_error else "output"
    answer = _object(bytes(result.result).decode()) or Raw(_json({key: result.result}))
    return wire.GeminiPart(function_response=wire.GeminiFunctionResponse(call.id, call.name, answer))


def _outcome(result: ToolResult) -> wire.GeminiPart | None:
    try:
        outcome = _read_outcome(result.result)
    except ValueError:
        return None
    outcome.id = result.id
    return wire.GeminiPart(code_execution_result=outcome)


def file_part(file: File) -> wire.GeminiPart | None:
    thought = True if file.reasoning else None
    if file.data is not None:
        return wire.GeminiPart(inline_data=wire.GeminiBlob(file.media_type, file.data), thought=thought)
    if file.reference is None or ":" not in file.reference:
        return None
    return wire.GeminiPart(file_data=wire.GeminiFileData(file.media_type, file.reference), thought=thought)


class Carried:
    """What of one response goes over this wire. Each loss leaves a finding."""

    def __init__(self, context: Context, findings: Findings, dialect: str | None) -> None:
        self._findings = findings
        self.native = dialect == wire.NAME
        """Whether what is opaque in these parts was made for this wire."""
        self._origins = {wire.NAME, context.origin or wire.NAME}
        self.model: str | None = None
        """Who answered."""
        self.thoughts: dict[str, ReasoningStart | ReasoningItem] = {}
        self._calls: dict[str, ToolCall] = {}

    def lost(self, what: str, why: str) -> None:
        self._findings.once("not-carried", f"{what} {why}", f"{what}: {why}")

    def signature(
        self, what: str, end: TextEnd | TextItem | ReasoningEnd | ReasoningItem
    ) -> str | None:
        """The signature; that of a reasoning from elsewhere sealed, so that it can go back."""
        if end.signature and end.origin in self._origins:
            return end.signature
        proof = end.signature
        if isinstance(end, ReasoningEnd | ReasoningItem):
            envelope = sealed(end, self.model, self.thoughts[end.id])
            if envelope is not None:
                return in_base64(envelope)
            proof = proof or end.encrypted or end.redacted
        if proof:
            self.lost(what, f"its proof goes back to {end.origin or 'its maker'} only")
        return None

    def refusal(self) -> None:
        self.lost("text-start", "a refusal is written as text")

    def call(self, call: ToolCall) -> wire.GeminiPart | wire.GeminiError | None:
        """One part; or the error that a call is which cannot be told truthfully. A call without a
        name is none that anybody could make: it is left out."""
        if not call.name:
            self.lost(call.type, "it has no name")
            return None
        written = executed(call) if call.provider_executed else client_call(call)
        if written is None and call.provider_executed:
            self.lost(call.type, f"no part for {call.kind} that is executed elsewhere")
        if written is None:
            return None if call.provider_executed else broken(call)
        self._calls[call.id] = call
        written.thought_signature = self._signs(call)
        return written

    def _signs(self, call: ToolCall) -> str | None:
        """What signs a call; sealed, if somebody else wants it back."""
        if call.origin in self._origins or (call.origin is None and self.native):
            return call.signature
        envelope = sealed_call(call, self.model)
        if envelope is None and call.signature:
            self.lost(call.type, "nobody knows whose its signature is")
        return None if envelope is None else in_base64(envelope)

    def result(self, result: ToolResult) -> wire.GeminiPart | None:
        call = self._calls.get(result.id)
        written = result_part(result, call) if call and not result.preliminary else None
        if written is None:
            partly = result.preliminary
            why = "preliminary ones are not sent" if partly else "not of a call here"
            self.lost(result.type, why)
            return None
        written.thought_signature = self._kept_signature(result.extra)
        return written

    def file(self, file: File) -> wire.GeminiPart | None:
        written = file_part(file)
        if written is None:
            self.lost(file.type, "it has neither data nor an address")
            return None
        written.thought_signature = self._kept_signature(file.extra)
        return written

    def _kept_signature(self, extra: Json) -> str | None:
        return signature_of(extra) if self.native else None

    def opaque(self, part: Opaque) -> Raw | None:
        if part.origin in self._origins and bytes(part.raw)[:1] == b"{":
            return part.raw
        self.lost(part.type, f"{part.kind} belongs to {part.origin}")
        return None

    def approval(self, part: ToolApprovalRequest) -> None:
        self.lost(part.type, "approvals have no part here")

    def end(self, finish: Finish, miscounted: list[str]) -> None:
        if finish.stop_sequence is not None:
            self.lost(finish.type, "a matched stop sequence is not named here")
        if finish.reason == "tool-calls" and not self._asks():
            self.lost(finish.type, "no call was made that this wire can carry")
        for name in miscounted:
            self.lost("usage", f"{name} cannot be told here as they were counted")

    def _asks(self) -> bool:
        return any(not call.provider_executed for call in self._calls.values())


def client_call(call: ToolCall) -> wire.GeminiPart | None:
    args = arguments(call)
    if args is None:
        return None
    return wire.GeminiPart(function_call=wire.GeminiFunctionCall(call.id, call.name, args))


def broken(call: ToolCall) -> wire.GeminiError:
    """What stands for a call that cannot be told truthfully: the end of the answer."""
    why = "its stream broke off" if call.invalid == "stream-failed" else "no object of arguments"
    return wire.GeminiError(500, f"the call of {call.name!r} cannot be used: {why}", "INTERNAL")


# What `extra` keeps for those who speak this dialect too


def signature_of(extra: Json) -> str | None:
    try:
        return _read_signed(extra).thought_signature if isinstance(extra, Raw) else None
    except ValueError:
        return None


def leftover_of(finish: Finish) -> wire.GeminiFinishExtra:
    try:
        return _read_leftover(finish.extra) if isinstance(finish.extra, Raw) else wire.GeminiFinishExtra()
    except ValueError:
        return wire.GeminiFinishExtra()


def details_of(extra: Json) -> Json:
    try:
        return _read_failed(extra).details if isinstance(extra, Raw) else wire.ErrorExtra().details
    except ValueError:
        return wire.ErrorExtra().details
