"""generateContent frames, and whole bodies, into parts.

- The wire has no end marks: text or reasoning ends when another kind begins, or where a signature
  stands; calls come whole, or end by their own rules (see calls).
- A signature belongs to the part it came with. One without text is a part without text.
- A finish reason counts at the end of the input: some hosts put one into every frame.
- Sources are told right before the end of the text they belong to (see grounding).
- Ids of calls that have none come from the id of the response: whoever reads it finds the same.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.base import Replays, Salvage, told
from weft.dialects.envelope import unsealed
from weft.dialects.gemini import wire
from weft.dialects.gemini.decoding.calls import Calls
from weft.dialects.gemini.decoding.snake_case import respelled
from weft.dialects.gemini.grounding import Sources
from weft.dialects.gemini.mapping import Ending, created_of, error_of
from weft.dialects.gemini.wire import NAME
from weft.findings import Findings
from weft.ids import Ids
from weft.partial_json import join_halves, whole_characters
from weft.parts import (
    ErrorPart,
    File,
    Json,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
)
from weft.sse import DONE, Frame

_UNTYPED = "application/octet-stream"

_json = msgspec.json.Encoder().encode


class _Phase(Enum):
    UNREAD = "unread"  # no frame came yet
    SILENT = "silent"  # nothing was said yet
    SAYING = "saying"
    FAILED = "failed"
    CLOSED = "closed"


_GOOD = (_Phase.UNREAD, _Phase.SILENT, _Phase.SAYING)


class _Kind(Enum):
    """What is being said: each has a start, deltas and an end."""

    TEXT = "text"
    REASONING = "reasoning"


class GeminiDecoder:
    """Reads one candidate of one response."""

    def __init__(self, context: Context, findings: Findings) -> None:
        self._ids = context.ids
        self._findings = findings
        self._origin = context.origin or NAME
        self._choice = context.choice
        self._salvage = Salvage(findings, wire.GROWING)
        self._replays = Replays()
        self._calls = Calls(self._mint_call, findings, self._origin)
        self._sources = Sources(context.ids, self._salvage, findings)
        self._phase = _Phase.UNREAD
        self._listed = False
        """Whether it came as an array, which is no event of a stream: that is never passed on."""
        self._announced = False
        """Whether the metadata went out."""
        self._id_known: str | None = None
        """The id of the response, once something needed it."""
        self._call_ids: Ids | None = None
        self._response_id: str | None = None
        self._model: str | None = None
        self._created: int | None = None
        self._kind: _Kind | None = None  # what is open, under which id
        self._id = ""
        self._half = ""  # a high surrogate that waits for its other half
        self._ending = Ending(findings)

    def feed(self, frame: Frame) -> list[Part]:
        """Returns the parts that this frame completes, possibly none."""
        out: list[Part] = []
        if self._phase is _Phase.CLOSED:
            self._findings.once("after-finish", "", "events after the end: dropped")
        elif frame.id is not None and self._replays.seen(frame.id, frame.data):
            self._findings.note("frame-replayed", f"event {frame.id!r} came before: dropped")
        elif frame.data[:1] == b"[" and frame.data != DONE:
            self._array(frame, out)
        else:
            self._one(frame.data, frame, out)
        if out:
            self._spoke(out)
        return out

    def finish(self) -> list[Part]:
        """Returns the end of the response: the input is over, however it ended."""
        out: list[Part] = []
        if self._phase is _Phase.CLOSED:
            return out
        if self._phase in _GOOD:
            self._judge(out)
        failed = self._phase is _Phase.FAILED
        self._close(out)
        if not failed:
            out += self._sources.release()
            out += self._calls.finish(clean=self._ending.clean)
        called = self._calls.dispatchable
        out.append(self._ending.finish(self._model, failed=failed, called=called))
        self._spoke(out)
        self._phase = _Phase.CLOSED
        return out

    @property
    def ending(self) -> bool:
        return self._ending.told

    @property
    def holding(self) -> bool:
        if self._phase is not _Phase.SAYING:
            return self._listed or self._phase in (_Phase.SILENT, _Phase.FAILED)
        return (
            self._listed
            or self._ending.held
            or self._calls.held
            or self._sources.held
            or bool(self._half)
        )

    def _spoke(self, out: list[Part]) -> None:
        """Puts the metadata in front of the first part."""
        if not self._announced:
            self._announced = True
            out.insert(0, ResponseMetadata(self._identity(), self._model, self._created, NAME))
        if self._phase is _Phase.SILENT:
            self._phase = _Phase.SAYING

    def _identity(self) -> str:
        if self._id_known is None:
            if not self._response_id and self._phase is not _Phase.FAILED:
                self._findings.note("metadata-id-minted", "the wire gave the response no id")
            self._id_known = self._response_id or self._ids.mint("resp")
        return self._id_known

    def _mint_call(self) -> str:
        if self._call_ids is None:
            self._call_ids = Ids(f"{self._identity()} {self._choice}".encode())
        return self._call_ids.mint("call")

    def _judge(self, out: list[Part]) -> None:
        """Decides whether this end is a clean one."""
        error = self._ending.error()
        if error is not None:
            self._fail(error, out)
        elif not self._ending.told and self._phase is not _Phase.SAYING:
            self._fail(ErrorPart("empty", "the stream held no answer", retryable=True), out)
        elif not self._ending.told:
            message = "the stream ended without a finish reason"
            self._fail(ErrorPart("truncated", message, retryable=True), out)

    # Frames

    def _array(self, frame: Frame, out: list[Part]) -> None:
        """A stream that was asked for without server-sent events is one JSON array."""
        self._listed = True
        frames, whole = wire.array_elements(frame.data)
        for data in frames:
            self._one(data, frame, out)
        if not whole:
            self._unreadable(frame, "the array is damaged", out)

    def _one(self, data: bytes, frame: Frame, out: list[Part]) -> None:
        try:
            chunk = self._read(data)
            if not (chunk.response_id or chunk.model_version or chunk.usage_metadata):
                chunk, data = self._in_camel_case(chunk, data)
        except ValueError as problem:
            self._unreadable(frame, str(problem), out)
        else:
            self._chunk(chunk, data, frame, out)

    def _read(self, data: bytes) -> wire.GenerateContentResponse:
        try:
            return wire.read(data)
        except (ValueError, RecursionError):
            return self._salvage.read(data, wire.GenerateContentResponse)

    def _in_camel_case(self, chunk: wire.GenerateContentResponse, data: bytes) -> tuple[wire.GenerateContentResponse, bytes]:
        """The frame anew, if its names are spelled in snake_case."""
        if wire.SNAKE_CASE_KEY.search(data) is None:
            return chunk, data
        spelled = respelled(data)
        if spelled is None:
            return chunk, data
        self._findings.once("field-coerced", "snake_case", "names are spelled in snake_case")
        return self._read(spelled), spelled

    def _unreadable(self, frame: Frame, problem: str, out: list[Part]) -> None:
        text = frame.data.decode("utf-8", "replace")
        if frame.cut:
            self._findings.note("frame-unterminated", f"the input ended inside {text[:40]!r}")
        elif frame.data == DONE or (frame.event and frame.event != "error"):
            what = frame.event or text
            self._findings.once("event-unknown", what, f"event {what!r}: ignored")
        elif text.startswith(("{", "[")):
            self._fail(ErrorPart("malformed", f"event {frame.number} is not JSON: {problem}"), out)
        else:
            self._fail(ErrorPart("upstream", text), out)

    def _chunk(self, chunk: wire.GenerateContentResponse, data: bytes, frame: Frame, out: list[Part]) -> None:
        if frame.cut or frame.split:
            self._note_framing(frame)
        if self._phase is _Phase.UNREAD:
            self._phase = _Phase.SILENT
        self._take_head(chunk)
        if chunk.usage_metadata is not None:
            self._ending.take_usage(chunk.usage_metadata)
        if chunk.prompt_feedback is not None:
            self._ending.take_feedback(chunk.prompt_feedback)
        if told(chunk.error):
            self._fail(error_of(self._error(chunk.error)), out)
        elif chunk.candidates is None and chunk == wire.GenerateContentResponse(error=chunk.error):
            what = frame.event or data[:40].decode("utf-8", "replace")
            self._findings.once("event-unknown", frame.event, f"{what!r}: ignored")
        for position, candidate in enumerate(chunk.candidates or ()):
            if (candidate.index or 0) == self._choice:
                self._candidate(candidate, position, data, out)
            else:
                other = candidate.index or 0
                detail = f"candidate {other}: not the one that is read"
                self._findings.once("choice-other", str(other), detail)

    def _note_framing(self, frame: Frame) -> None:
        if frame.cut:
            detail = "the last event has no blank line after it"
            self._findings.once("frame-unterminated", "", detail)
        if frame.split:
            self._findings.once("frame-lines-split", "", "events were separated by one newline")

    def _error(self, error: Json) -> wire.GeminiError:
        read = self._salvage.item(error, wire.GeminiError)
        if read == wire.GeminiError() and isinstance(error, Raw):
            return wire.GeminiError(message=bytes(error).decode("utf-8", "replace").strip('"'))
        return read

    def _take_head(self, chunk: wire.GenerateContentResponse) -> None:
        id = chunk.response_id
        if id and self._response_id and id != self._response_id:
            self._findings.once("metadata-repeated", "", f"another response id: {id!r}")
        self._response_id = self._response_id or id
        self._model = chunk.model_version or self._model
        if self._created is None and chunk.create_time:
            self._created = created_of(chunk.create_time)

    # Candidates

    def _candidate(
        self, candidate: wire.GeminiCandidate, position: int, data: bytes, out: list[Part]
    ) -> None:
        if self._phase in _GOOD:
            before = len(out)
            self._content(candidate, position, data, out)
            if self._ending.reason is not None and len(out) > before:
                self._findings.once("finish-late-content", "", "content after the finish reason")
            self._sources.hold(candidate.grounding_metadata, candidate.citation_metadata)
        self._ending.take(candidate)

    def _content(
        self, candidate: wire.GeminiCandidate, position: int, data: bytes, out: list[Part]
    ) -> None:
        parts = candidate.content.parts if candidate.content is not None else None
        for index, part in enumerate(parts or ()):
            signature = part.thought_signature or None
            payloads = part.payloads()
            if part.text is not None or (signature and not payloads):
                kind = _Kind.REASONING if part.thought else _Kind.TEXT
                self._say(kind, part.text or "", None if payloads else signature, out)
            elif not payloads:
                self._unknown_part(wire.raw_part(data, position, index), out)
            for payload in payloads:
                self._close(out)
                _PAYLOADS[payload.__class__](self, payload, part, out)

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        if self._phase in _GOOD:
            self._flush_half(out)
            out.append(error)
            self._phase = _Phase.FAILED

    # Text and reasoning

    def _say(self, kind: _Kind, text: str, signature: str | None, out: list[Part]) -> None:
        """Empty text says nothing, unless it is signed."""
        if not (text or signature):
            return
        if kind is not self._kind:
            self._open(kind, out)
        if self._half or not text.isascii():
            text, self._half = join_halves(self._half, text)
            if self._half:
                self._findings.once("surrogate-lone", "", "a character was cut in two")
        if text:
            self._delta(text, out)
        if signature:
            self._close(out, signature)

    def _open(self, kind: _Kind, out: list[Part]) -> None:
        self._close(out)
        self._kind = kind
        self._id = self._ids.local(kind.value)
        if kind is _Kind.REASONING:
            out.append(ReasoningStart(self._id, "summary"))
        else:
            self._sources.begin(self._id)
            out.append(TextStart(self._id))

    def _delta(self, text: str, out: list[Part]) -> None:
        if self._kind is _Kind.REASONING:
            out.append(ReasoningDelta(self._id, text))
        else:
            self._sources.say(text)
            out.append(TextDelta(self._id, text))

    def _flush_half(self, out: list[Part]) -> None:
        half, self._half = self._half, ""
        if half:
            self._delta(whole_characters(half), out)

    def _close(self, out: list[Part], signature: str | None = None) -> None:
        if self._kind is None:
            return
        self._flush_half(out)
        origin = self._origin if signature else None
        if self._kind is _Kind.REASONING:
            out.append(unsealed(ReasoningEnd(self._id, signature=signature, origin=origin)))
        else:
            if self._phase in _GOOD:
                out += self._sources.release()
            out.append(TextEnd(self._id, signature=signature, origin=origin))
        self._kind = None

    # Everything else comes whole

    def _function_call(self, call: wire.GeminiFunctionCall, part: wire.GeminiPart, out: list[Part]) -> None:
        out += self._calls.function(call, part.thought_signature or None)

    def _function_response(
        self, answer: wire.GeminiFunctionResponse, part: wire.GeminiPart, out: list[Part]
    ) -> None:
        out.append(self._calls.function_result(answer, _signed(part)))

    def _inline_data(self, blob: wire.GeminiBlob, part: wire.GeminiPart, out: list[Part]) -> None:
        out.append(
            File(
                self._ids.local("file"),
                blob.mime_type or _UNTYPED,
                data=blob.data or "",
                reasoning=part.thought is True,
                extra=_signed(part),
            )
        )

    def _file_data(self, file: wire.GeminiFileData, part: wire.GeminiPart, out: list[Part]) -> None:
        out.append(
            File(
                self._ids.local("file"),
                file.mime_type or _UNTYPED,
                reference=file.file_uri or "",
                reasoning=part.thought is True,
                extra=_signed(part),
            )
        )

    def _code(self, code: wire.ExecutableCode, part: wire.GeminiPart, out: list[Part]) -> None:
        self._calls.code(code, part.thought_signature or None, out)

    def _code_result(
        self, answer: wire.CodeExecutionResult, part: wire.GeminiPart, out: list[Part]
    ) -> None:
        out.append(self._calls.code_result(answer, _signed(part)))

    def _tool_call(self, call: wire.GeminiToolCall, part: wire.GeminiPart, out: list[Part]) -> None:
        self._calls.tool(call, part.thought_signature or None, out)

    def _tool_response(self, answer: wire.GeminiToolResponse, part: wire.GeminiPart, out: list[Part]) -> None:
        out.append(self._calls.tool_result(answer, _signed(part)))

    def _unknown_part(self, raw: Raw | None, out: list[Part]) -> None:
        self._findings.once("event-unknown", "part", "a part with nothing in it that is known")
        if raw is not None and bytes(raw) != b"{}":
            self._close(out)
            out.append(Opaque(self._origin, "part", raw))


def _signed(part: wire.GeminiPart) -> Json:
    """The signature of a part that has no field for it."""
    if not part.thought_signature:
        return UNSET
    return Raw(_json(wire.SignatureExtra(part.thought_signature)))


_PAYLOADS: dict[type[wire.GeminiObject], Callable[[GeminiDecoder, Any, wire.GeminiPart, list[Part]], None]] = {
    wire.GeminiFunctionCall: GeminiDecoder._function_call,
    wire.GeminiFunctionResponse: GeminiDecoder._function_response,
    wire.GeminiBlob: GeminiDecoder._inline_data,
    wire.GeminiFileData: GeminiDecoder._file_data,
    wire.ExecutableCode: GeminiDecoder._code,
    wire.CodeExecutionResult: GeminiDecoder._code_result,
    wire.GeminiToolCall: GeminiDecoder._tool_call,
    wire.GeminiToolResponse: GeminiDecoder._tool_response,
}
"""What stands beside text."""
