"""Decodes generateContent frames, and whole bodies, into parts.

- The API does not mark ends: text or reasoning ends when another kind begins, or at a signature;
  calls come whole, or end by their own rules (see `decoding/calls.py`).
- A signature belongs to the part it came with. A signature without text is a part without text.
- A finish reason counts at the end of the input, because some hosts put one into every frame.
- Sources are emitted right before the end of the text they belong to (see `grounding.py`).
- Ids for calls without one derive from the id of the response: they are the same every time it is
  decoded.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.envelope import unwrap_reasoning_end
from weft.dialects.frames import EventDecoder, SurrogateJoiner, is_present
from weft.dialects.gemini import wire
from weft.dialects.gemini.decoding.calls import GeminiCallDecoder
from weft.dialects.gemini.decoding.finish_state import FinishState
from weft.dialects.gemini.decoding.snake_case import to_camel_case
from weft.dialects.gemini.grounding import SourceCollector
from weft.dialects.gemini.mapping import parse_error, parse_time
from weft.dialects.gemini.wire import NAME
from weft.findings import Findings
from weft.ids import Ids
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

# RFC 9110 §8.3: what may be assumed of data without a type.
_DEFAULT_TYPE = "application/octet-stream"

_json = msgspec.json.Encoder().encode


class _GeminiPhase(Enum):
    UNREAD = "unread"  # no frame came yet
    NO_PARTS = "no parts"  # frames came, but no part was emitted
    READING = "reading"
    FAILED = "failed"  # an error ended the content: only usage and finish reason are still read
    CLOSED = "closed"


_NOT_FAILED = (_GeminiPhase.UNREAD, _GeminiPhase.NO_PARTS, _GeminiPhase.READING)


class _TextKind(Enum):
    """What has a start, deltas and an end."""

    TEXT = "text"
    REASONING = "reasoning"


class GeminiDecoder(EventDecoder[wire.GenerateContentResponse]):
    """Decodes one candidate of a response."""

    def __init__(self, context: Context, findings: Findings) -> None:
        super().__init__(findings, wire.GenerateContentResponse, wire.read, wire.GROWING)
        self._ids = context.ids
        self._origin = context.origin or NAME
        self._choice = context.choice
        self._calls = GeminiCallDecoder(self._mint_call, findings, self._origin)
        self._sources = SourceCollector(context.ids, self._salvage, findings)
        self._phase = _GeminiPhase.UNREAD
        self._is_array = False
        """Whether it came as an array, which is not an event and never passed on unchanged."""
        self._announced = False
        """Whether the metadata was emitted."""
        self._final_id: str | None = None
        """The id of the response, once a part needed it."""
        self._call_ids: Ids | None = None
        self._response_id: str | None = None
        self._model: str | None = None
        self._created: int | None = None
        self._kind: _TextKind | None = None
        """What is open, with the id of its parts below."""
        self._id = ""
        self._surrogates = SurrogateJoiner(findings)
        self._finish_state = FinishState(findings)

    def feed(self, frame: Frame) -> list[Part]:
        """Returns the parts that this frame completes, possibly none."""
        if self._phase is _GeminiPhase.CLOSED:
            self._findings.once("after-finish", "", "events after the end: dropped")
            return []
        if frame.data[:1] == b"[" and frame.data != DONE:
            # `[DONE]` begins with a bracket, too. This API has none, but proxies add it.
            out = self._read_array(frame)
        else:
            out = EventDecoder.feed(self, frame)  # cheaper than super()
        if out:
            self._announce(out)
        return out

    def finish(self) -> list[Part]:
        """Returns the end of the response."""
        out: list[Part] = []
        if self._phase is _GeminiPhase.CLOSED:
            return out
        # The reason is judged only now, since a later frame may have brought a more specific one.
        error = self._finish_state.error()
        if error is not None:
            self._fail(error, out)
        elif not self._finish_state.known and self._phase is _GeminiPhase.READING:
            # capture: ends-without-a-finish-reason
            message = "the stream ended without a finish reason"
            self._fail(ErrorPart("truncated", message, retryable=True), out)
        elif not self._finish_state.known:
            # Not for a blocked prompt: its block reason counts as an end.
            self._fail(ErrorPart("empty", "the stream held no answer", retryable=True), out)
        failed = self._phase is _GeminiPhase.FAILED
        # An error ends the content: what is open is closed, but no source and no call comes out.
        self._close(out)
        if not failed:
            out += self._sources.release()
            out += self._calls.finish(clean=self._finish_state.clean)
        called = self._calls.client_called
        out.append(self._finish_state.finish(self._model, failed=failed, called=called))
        self._announce(out)
        self._phase = _GeminiPhase.CLOSED
        # A decoder and its calls refer to one another, so it stays until the garbage collector
        # runs; the text must not.
        self._sources.close()
        return out

    @property
    def ending(self) -> bool:
        return self._finish_state.known

    @property
    def holding(self) -> bool:
        if self._phase is not _GeminiPhase.READING:
            # No part so far: the metadata that comes with the first one stands for these frames,
            # too.
            return self._is_array or self._phase in (_GeminiPhase.NO_PARTS, _GeminiPhase.FAILED)
        return (
            self._is_array
            or self._finish_state.held
            or self._calls.held
            or self._sources.held
            or bool(self._surrogates.held)
        )

    def _announce(self, out: list[Part]) -> None:
        """Puts the metadata before the first part."""
        if not self._announced:
            self._announced = True
            out.insert(0, ResponseMetadata(self._resolve_id(), self._model, self._created, NAME))
        if self._phase is _GeminiPhase.NO_PARTS:
            self._phase = _GeminiPhase.READING

    def _resolve_id(self) -> str:
        if self._final_id is None:
            if not self._response_id and self._phase is not _GeminiPhase.FAILED:
                # An error body has no id, and none is missed.
                self._findings.note("metadata-id-minted", "the response has no id: one was made up")
            self._final_id = self._response_id or self._ids.mint("resp")
        return self._final_id

    def _mint_call(self) -> str:
        if self._call_ids is None:
            self._call_ids = Ids(f"{self._resolve_id()} {self._choice}".encode())
        return self._call_ids.mint("call")

    # Frames

    def _read_array(self, frame: Frame) -> list[Part]:
        """Reads a stream that was requested without `alt=sse`: one JSON array."""
        # capture: stream-as-one-array, error-body-in-a-list
        self._is_array = True
        elements, is_valid = wire.array_elements(frame.data)
        out: list[Part] = []
        for data in elements:
            if data.startswith(b"{"):
                out += super().feed(msgspec.structs.replace(frame, data=data, id=None))
            else:
                is_valid = False
        if not is_valid:
            # The frames before the damage were read above, and keep their parts.
            # capture: stream-as-one-array-cut
            self._unreadable(frame, ValueError("the array is damaged"), out)
        return out

    def _handle(self, chunk: wire.GenerateContentResponse, frame: Frame, out: list[Part]) -> None:
        data = frame.data
        if (
            # One known key in camelCase is proof enough, and saves the search in nearly every
            # frame.
            not (chunk.response_id or chunk.model_version or chunk.usage_metadata)
            and wire.SNAKE_CASE_KEY.search(data)
            and (renamed := to_camel_case(data))
        ):
            # capture: names-in-snake-case
            self._findings.once("field-coerced", "snake_case", "keys are in snake_case")
            chunk, data = self._salvage.item(Raw(renamed), wire.GenerateContentResponse), renamed
        if self._phase is _GeminiPhase.UNREAD:
            self._phase = _GeminiPhase.NO_PARTS
        id = chunk.response_id
        if id and self._response_id and id != self._response_id:
            self._findings.once("metadata-repeated", "", f"another response id: {id!r}")
        self._response_id = self._response_id or id
        self._model = chunk.model_version or self._model
        if self._created is None and chunk.create_time:
            self._created = parse_time(chunk.create_time)
        if chunk.usage_metadata is not None:
            self._finish_state.add_usage(chunk.usage_metadata)
        if chunk.prompt_feedback is not None:
            self._finish_state.add_feedback(chunk.prompt_feedback)
        if is_present(chunk.error):
            # As the data of an event, or as bare JSON behind the last one.
            # capture: error-in-the-stream, error-as-bare-json
            error = self._salvage.item(chunk.error, wire.GeminiError)
            if error == wire.GeminiError() and isinstance(chunk.error, Raw):  # a string
                # `{"error": "text"}`, as other APIs have it.
                error.message = bytes(chunk.error).decode("utf-8", "replace").strip('"')
            self._fail(parse_error(error), out)
        elif chunk.candidates is None and chunk == wire.GenerateContentResponse(error=chunk.error):
            self._note_unknown(frame.event or data.decode("utf-8", "replace"), frame.event)
        # The index is left out where it is 0, and candidates come in any order, or not at all in a
        # frame that has news of another one.
        for position, candidate in enumerate(chunk.candidates or ()):
            if (candidate.index or 0) == self._choice:
                self._candidate(candidate, position, data, out)
            else:
                # All candidates share one stream; this decoder is for one of them.
                # capture: two-candidates
                other = candidate.index or 0
                detail = f"candidate {other} is ignored: {self._choice} is read"
                self._findings.once("choice-other", str(other), detail)

    # Candidates

    def _candidate(
        self, candidate: wire.GeminiCandidate, position: int, data: bytes, out: list[Part]
    ) -> None:
        if self._phase in _NOT_FAILED:
            before = len(out)
            parts = candidate.content.parts if candidate.content is not None else None
            # In the order of the wire: a client that takes calls after all text of a frame reorders
            # them.
            for index, part in enumerate(parts or ()):
                signature = part.thought_signature or None
                payloads = part.payloads()
                # The only signature of a turn may come with an empty text, or with nothing at all.
                # It must be sent back, so it is never dropped.
                # capture: signature-alone-at-the-end, signature-alone-after-a-call
                if part.text is not None or (signature and not payloads):
                    kind = _TextKind.REASONING if part.thought else _TextKind.TEXT
                    # A part with text and a payload is against the API, but clear: the signature is
                    # on the payload.
                    self._add_text(kind, part.text or "", None if payloads else signature, out)
                elif not payloads:
                    # Kept as it came, for a request that sends the turn back; `{}` holds nothing to
                    # keep.
                    # capture: part-of-an-unknown-kind
                    self._findings.once("event-unknown", "part", "a part of an unknown kind")
                    raw = wire.raw_part(data, position, index)
                    if raw is not None and bytes(raw) != b"{}":
                        self._close(out)
                        out.append(Opaque(self._origin, "part", raw))
                for payload in payloads:
                    self._close(out)
                    _PAYLOADS[payload.__class__](self, payload, part, out)
            if self._finish_state.reason is not None and len(out) > before:
                # capture: finish-reason-on-every-frame
                self._findings.once("finish-late-content", "", "content after the finish reason")
            # Behind the parts: metadata refers to the text of its own frame, too.
            self._sources.hold(candidate.grounding_metadata, candidate.citation_metadata)
        self._finish_state.add_candidate(candidate)

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        if self._phase in _NOT_FAILED:
            self._flush_surrogate(out)
            out.append(error)
            self._phase = _GeminiPhase.FAILED

    # Text and reasoning

    def _add_text(self, kind: _TextKind, text: str, signature: str | None, out: list[Part]) -> None:
        """Empty text is dropped, unless it is signed."""
        # Frames without news have an empty text: the last one does, with the finish reason.
        if not (text or signature):
            return
        if kind is not self._kind:
            # The API marks no ends: another kind is the end of the one before.
            self._close(out)
            self._kind = kind
            self._id = self._ids.local(kind.value)
            if kind is _TextKind.REASONING:
                out.append(ReasoningStart(self._id, "summary"))
            else:
                self._sources.start_text(self._id)
                out.append(TextStart(self._id))
        if self._surrogates.held or not text.isascii():
            # The two halves of a surrogate pair, escaped in two frames.
            # capture: character-cut-in-two
            text = self._surrogates.feed(self._id, text)
        if text:
            self._emit_delta(text, out)
        # The signature is of all the text so far, and text behind it is another part: signed and
        # unsigned text must not be merged when it is sent back.
        if signature:
            self._close(out, signature)

    def _emit_delta(self, text: str, out: list[Part]) -> None:
        if self._kind is _TextKind.REASONING:
            out.append(ReasoningDelta(self._id, text))
        else:
            self._sources.add_text(text)
            out.append(TextDelta(self._id, text))

    def _flush_surrogate(self, out: list[Part]) -> None:
        rest = self._surrogates.flush(self._id)
        if rest:
            self._emit_delta(rest, out)

    def _close(self, out: list[Part], signature: str | None = None) -> None:
        if self._kind is None:
            return
        self._flush_surrogate(out)
        origin = self._origin if signature else None
        if self._kind is _TextKind.REASONING:
            out.append(
                unwrap_reasoning_end(ReasoningEnd(self._id, signature=signature, origin=origin))
            )
        else:
            if self._phase in _NOT_FAILED:
                # The last moment at which a source can still refer to an open text.
                out += self._sources.release()
            out.append(TextEnd(self._id, signature=signature, origin=origin))
        self._kind = None

    # Other payloads, which come whole

    def _function_call(
        self, call: wire.GeminiFunctionCall, part: wire.GeminiPart, out: list[Part]
    ) -> None:
        out += self._calls.function(call, part.thought_signature or None)

    def _function_response(
        self, result: wire.GeminiFunctionResponse, part: wire.GeminiPart, out: list[Part]
    ) -> None:
        out.append(self._calls.function_result(result, _signature_extra(part)))

    def _inline_data(self, blob: wire.GeminiBlob, part: wire.GeminiPart, out: list[Part]) -> None:
        out.append(
            File(
                self._ids.local("file"),
                blob.mime_type or _DEFAULT_TYPE,
                data=blob.data or "",
                reasoning=part.thought is True,
                extra=_signature_extra(part),
            )
        )

    def _file_data(self, file: wire.GeminiFileData, part: wire.GeminiPart, out: list[Part]) -> None:
        out.append(
            File(
                self._ids.local("file"),
                file.mime_type or _DEFAULT_TYPE,
                reference=file.file_uri or "",
                reasoning=part.thought is True,
                extra=_signature_extra(part),
            )
        )

    def _executable_code(
        self, code: wire.ExecutableCode, part: wire.GeminiPart, out: list[Part]
    ) -> None:
        self._calls.executable_code(code, part.thought_signature or None, out)

    def _code_execution_result(
        self, result: wire.CodeExecutionResult, part: wire.GeminiPart, out: list[Part]
    ) -> None:
        out.append(self._calls.code_result(result, _signature_extra(part)))

    def _tool_call(self, call: wire.GeminiToolCall, part: wire.GeminiPart, out: list[Part]) -> None:
        self._calls.server_tool(call, part.thought_signature or None, out)

    def _tool_response(
        self, result: wire.GeminiToolResponse, part: wire.GeminiPart, out: list[Part]
    ) -> None:
        out.append(self._calls.tool_result(result, _signature_extra(part)))


def _signature_extra(part: wire.GeminiPart) -> Json:
    """Keeps the signature of a part that has no canonical field for it."""
    if not part.thought_signature:
        return UNSET
    return Raw(_json(wire.SignatureExtra(part.thought_signature)))


_PAYLOADS: dict[
    type[wire.GeminiObject], Callable[[GeminiDecoder, Any, wire.GeminiPart, list[Part]], None]
] = {
    wire.GeminiFunctionCall: GeminiDecoder._function_call,
    wire.GeminiFunctionResponse: GeminiDecoder._function_response,
    wire.GeminiBlob: GeminiDecoder._inline_data,
    wire.GeminiFileData: GeminiDecoder._file_data,
    wire.ExecutableCode: GeminiDecoder._executable_code,
    wire.CodeExecutionResult: GeminiDecoder._code_execution_result,
    wire.GeminiToolCall: GeminiDecoder._tool_call,
    wire.GeminiToolResponse: GeminiDecoder._tool_response,
}
"""Handlers of the payloads other than text."""
