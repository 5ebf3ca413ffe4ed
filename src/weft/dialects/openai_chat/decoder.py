"""Chat Completions chunks, and whole completions, into parts.

- The wire does not mark ends. Text or reasoning ends when content of another kind begins; calls end
  when the stream ends cleanly: with a finish reason or `[DONE]`, then the end of the input.
- Content after a finish reason still counts.
- Which call a delta belongs to is decided by the ledger (`weft.calls`).

Comments that begin with `capture:` name the streams in `tests/captures/openai_chat` that need the
branch; `tests/captures/catalogue.py` says what is odd about each.
"""

from itertools import count
from typing import Literal

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import merged
from weft.calls import CallDelta, Ledger
from weft.context import Context
from weft.dialects.frames import EventDecoder, SurrogateJoiner, is_present
from weft.dialects.openai_chat import wire
from weft.dialects.openai_chat.decoding.reasoning_details import (
    ReasoningDetails,
    is_signed,
    is_summary,
    split_by_reasoning,
    text_of,
)
from weft.dialects.openai_chat.mapping import (
    call_delta,
    canonical_finish_reason,
    not_blank,
    parse_error,
    parse_usage,
    signature_in,
    with_total,
)
from weft.dialects.openai_chat.wire import NAME
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    Finish,
    FinishReason,
    Json,
    Part,
    ReasoningDelta,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    Usage,
)
from weft.sse import Frame

# Below every index that a server sends: it cannot meet a call of `tool_calls`.
_FUNCTION_CALL_INDEX = -1
"""The index of the one call of the deprecated `function_call` field."""


# Strings, not enums: both are compared for every delta, and to look up the member of an enum takes
# longer than two calls (Python 3.11).

_STARTS = (TextStart, ReasoningStart)
_DELTAS = (TextDelta, ReasoningDelta, ToolParamsDelta)

_ChatPhase = Literal["reading", "failed", "closed"]

_ChatContent = Literal["text", "refusal", "reasoning"]
"""The kinds of content that have a start, deltas and an end. One is open at a time."""


class ChatDecoder(EventDecoder[wire.ChatChunk]):
    """Reads one choice of one response."""

    def __init__(self, context: Context, findings: Findings) -> None:
        super().__init__(findings, wire.ChatChunk, wire.read, wire.STREAMED_FIELDS)
        request = context.request
        self._request = request
        self._ids = context.ids
        self._origin = context.origin
        self._host = context.origin or NAME
        self._ledger: Ledger | None = None
        """None as long as there is no call."""
        self._choice = context.choice
        self._stream_requested = request is not None and request.stream
        self._phase: _ChatPhase = "reading"
        self._metadata_sent = False
        self._response_id: str | None = None
        self._created: int | None = None
        self._model: str | None = None
        self._open: _ChatContent | None = None
        self._open_id = ""
        self._surrogates = SurrogateJoiner(findings)
        self._details = ReasoningDetails()
        """Those of the reasoning that is open."""
        self._text_extra: Json = UNSET
        """The `extra_content` of the text that is open."""
        self._call_extras: dict[str, Json] = {}
        """The `extra_content` of calls, by their ids."""
        self._messages: list[wire.ChatDelta] = []
        """Whole messages, used only if nothing is streamed."""
        self._roles = 0
        self._has_content = False
        self._is_done = False
        self._finish_reason: str | None = None
        self._canonical_reason: FinishReason = "stop"
        """What it means."""
        self._usage: Usage | None = None
        self._sources: set[str] = set()

    def feed(self, frame: Frame) -> list[Part]:
        """Returns the parts that this frame completes, possibly none."""
        if self._phase == "closed":
            # capture: done-twice
            # Whatever follows the terminator, even a second one, is not part of this response.
            self._findings.once("after-finish", "", "events after the end: dropped")
            return []
        out = EventDecoder.feed(self, frame)  # cheaper than super()
        if out and not self._metadata_sent:
            self._send_metadata(out)
        return out

    def finish(self) -> list[Part]:
        """Returns the end of the response: the input is over, however it ended."""
        out: list[Part] = []
        self.template = None
        if self._phase == "closed":
            return out
        if self._phase == "reading":
            self._end_input(out)
        self._close(out)
        if self._ledger:
            out += self._finish_calls(self._ledger)
        # After an error only the raw reason and the usage were still read.
        failed = self._phase == "failed"
        out.append(
            Finish(
                "error" if failed else self._canonical_reason,
                raw_reason=self._finish_reason,
                usage=with_total(self._usage),
                model=self._model,
            )
        )
        if not self._metadata_sent:
            self._send_metadata(out)
        self._phase = "closed"
        return out

    @property
    def ending(self) -> bool:
        return self._finish_reason is not None

    @property
    def holding(self) -> bool:
        if self._phase != "reading":
            return False
        metadata = not self._metadata_sent and (self._response_id or self._created or self._model)
        extra = self._text_extra is not UNSET or (self._open == "reasoning" and self._details)
        # The finish reason is held to the end: a later chunk may bring a more specific one.
        rest = self._surrogates.held or self._messages or self._finish_reason is not None
        return bool(metadata or extra or rest or (self._ledger and self._ledger.holding))

    def _end_input(self, out: list[Part]) -> None:
        """Reads whole messages if nothing was streamed. Fails unless the input ended cleanly."""
        if self._messages and (self._has_content or self._ledger):
            # capture: message-beside-delta, message-after-the-deltas
            # Local servers send the message so far beside each delta, proxies all of it at the end.
            self._findings.note("message-ignored", "a whole message repeats what was streamed")
            self._messages = []
        # One count for all messages: a body may spread one answer over choices without an index.
        # capture: body-over-two-choices-without-index
        positions = count()
        for message in self._messages:
            # capture: body-with-calls
            for call in message.tool_calls or ():  # in a whole message the position is the index
                call.index = next(positions)
            self._read_delta(message, out)
        if self._finish_reason is None:
            if not self._has_content and not self._ledger and not self._cut_off:
                # capture: only-done, only-a-role, only-comments
                # Overloaded servers send nothing but the terminator: that is no empty answer.
                self._fail(ErrorPart("empty", "the stream held no answer", retryable=True), out)
            elif not self._is_done:  # capture: ends-in-the-middle-of-text, ends-inside-a-call
                # Nothing else proves that the answer is whole, not even arguments that parse.
                detail = "the stream ended without a finish reason or a terminator"
                self._fail(ErrorPart("truncated", detail, retryable=True), out)
            else:
                # capture: no-finish-reason
                # Some hosts never send one: the terminator has to do.
                self._findings.note("finish-inferred", "no finish reason came: stop is assumed")
        elif self._canonical_reason == "error":
            # capture: finish-reason-error
            # A router reports the failure of the host behind it in this one word.
            detail = "the upstream finished with an error and did not say which"
            self._fail(ErrorPart("upstream", detail, retryable=True), out)

    def _send_metadata(self, out: list[Part]) -> None:
        """Puts the metadata in front of the first part."""
        self._metadata_sent = True
        # Some hosts send an empty id and `created: 0` in every chunk.
        if not self._response_id:  # capture: id-always-empty
            # An error as the first event belongs to no response, so no id is missing.
            if self._phase != "failed":
                self._findings.note("metadata-id-minted", "the response has no id: one was made up")
            self._response_id = self._ids.mint("chatcmpl")
        metadata = ResponseMetadata(
            self._response_id,
            model=self._model or None,
            created=self._created or None,
            dialect=NAME,
        )
        out.insert(0, metadata)

    def _offer_template(self, chunk: wire.ChatChunk, frame: Frame, part: Part) -> None:
        """Makes a template of a chunk that held one delta and nothing else."""
        if self._finish_reason is not None or self._phase != "reading":
            return
        if chunk.usage is not None or self._surrogates.held or frame.event:
            return
        delta = chunk.choices[0].delta if chunk.choices and len(chunk.choices) == 1 else None
        # The next chunk from this template would be the first to repeat the role: a finding.
        if delta is None or (delta.role and self._roles < 2):
            return
        if isinstance(part, ToolParamsDelta) and self._ledger:
            call = delta.tool_calls[0] if delta.tool_calls and len(delta.tool_calls) == 1 else None
            # With a name, the arguments decide whether it is another call.
            if call is None or call_delta(call).name is not None or delta.function_call is not None:
                return
            template = self._make_template(frame, b'"arguments"', part)
            if template is not None:
                template.note = self._ledger.extend
        elif self._ledger or delta.reasoning_details:
            return  # the chunk may also hold what is collected, such as arguments without a name
        elif isinstance(part, ReasoningDelta):
            key = b'"reasoning_content"' if delta.reasoning_content else b'"reasoning"'
            self._make_template(frame, key, part)
        elif isinstance(part, TextDelta) and self._open == "text":
            self._make_template(frame, b'"content"', part)

    # Frames

    def _done(self, out: list[Part]) -> None:
        self._is_done = True
        out += self.finish()

    def _handle(self, chunk: wire.ChatChunk, frame: Frame, out: list[Part]) -> None:
        if chunk.usage is not None:
            usage = parse_usage(chunk.usage)
            self._usage = usage if self._usage is None else merged(self._usage, usage)
        if (
            # Checked here and not in `_is_chunk`: nearly every chunk saves the call.
            (chunk.choices is None or chunk.error is not UNSET or frame.event)
            and not self._is_chunk(chunk, frame, out)
        ):  # fmt: skip
            return
        # The first id that is not empty is the response's: some servers number their chunks.
        if not self._metadata_sent:  # capture: id-changes-with-each-chunk
            self._response_id = self._response_id or chunk.id
            self._created = self._created or chunk.created
            self._model = self._model or chunk.model
            # A content filter begins with a chunk that has no choices, an empty id and no model.
            if self._response_id and chunk.choices:  # capture: prompt-filter-first
                self._send_metadata(out)
        # Routers name the model that answers only after the first chunks: the last name counts.
        if chunk.model:  # capture: model-changes
            self._model = chunk.model
        if chunk.choices and chunk.choices[0].message is not None:
            # capture: message-beside-delta
            self._messages = []  # each chunk repeats the message from its beginning
        for choice in chunk.choices or ():
            self._read_choice(choice, chunk, out)
        if chunk.citations or chunk.search_results:
            # capture: citations-on-every-chunk, body-with-citations
            # Both keys belong to the chunk, not to a choice, and every chunk repeats them.
            for result in chunk.search_results or ():
                self._add_source(result.url, result.title, out)
            for url in chunk.citations or ():
                self._add_source(url, None, out)
        # A body in place of a stream is complete as it is, with or without a terminator.
        if chunk.object == "chat.completion":  # capture: body-instead-of-stream
            self._is_done = True
        # With its start, or without: that says nothing which the chunk does not.
        size = len(out)
        alone = size == 1 or (size == 2 and out[0].__class__ in _STARTS)
        if alone and out[-1].__class__ in _DELTAS:
            self._offer_template(chunk, frame, out[-1])

    def _is_chunk(self, chunk: wire.ChatChunk, frame: Frame, out: list[Part]) -> bool:
        """Whether an object is a chunk, perhaps with an error in it; pings and other events are
        reported."""
        # capture: error-event-without-error-key, error-named-by-object
        # The word may stand in the `event:` line, in `object` or in `type`, with no `error` key.
        error = "error" in (frame.event, chunk.object) or chunk.type == Raw(b'"error"')
        if is_present(chunk.error) or chunk.success is False or (error and chunk.choices is None):
            # capture: error-inside-a-chunk, error-as-success-false, error-that-says-nothing
            # A chunk may hold choices and usage beside its error; `{}` and `""` are no errors.
            self._fail(parse_error(chunk), out)
        elif chunk.choices is None and chunk.usage is None:
            # capture: ping-as-json, choices-null-or-missing
            # Relays pass on the pings of another wire. Usage alone makes a chunk.
            self._note_unknown(frame.event or frame.data.decode("utf-8", "replace"), frame.event)
            return False
        return True

    def _read_choice(self, choice: wire.ChatChoice, chunk: wire.ChatChunk, out: list[Part]) -> None:
        if choice.index is None and (choice.message is None or len(chunk.choices or ()) > 1):
            # capture: choice-without-index, body-over-two-choices-without-index
            self._findings.once("choice-index-missing", "", "a choice without an index: 0")
        if (choice.index or 0) != self._choice:
            # capture: second-choice-before-the-first, two-choices-interleaved
            # Chosen by index, never by position: a call of choice 1 must not be run for choice 0.
            detail = f"choice {choice.index}: not the one that is read"
            self._findings.once("choice-other", str(choice.index), detail)
            return
        delta = choice.delta
        if delta is not None and self._phase == "reading":
            before = len(out)
            self._read_delta(delta, out)
            if self._finish_reason is not None and (len(out) > before or delta.tool_calls):
                # capture: text-after-the-finish-reason, call-after-the-finish-reason
                # Kept: the finish is emitted at the end of the input, so nothing is too late.
                self._findings.once("finish-late-content", "", "content after the finish reason")
        elif delta is not None and (delta.content or delta.tool_calls):
            # capture: content-after-an-error
            # An error ends the content in every dialect: no client may run a call behind it.
            self._findings.once("after-error", "", "content after the error: dropped")
        # Read at the end, and only if no delta brought anything.
        if choice.message is not None:  # capture: message-only-at-the-end, body-in-one-event
            self._messages.append(choice.message)
            if self._stream_requested or chunk.object == "chat.completion.chunk":
                self._findings.once("message-whole", "", "a whole message instead of deltas")
        elif delta is None:  # capture: choice-without-delta, delta-null
            # An asynchronous content filter sends choices that hold only its verdict.
            self._findings.once("delta-missing", "", "a choice without a delta")
        reason = choice.finish_reason
        # Old servers send an empty reason in every chunk: it does not finish anything.
        if reason:  # capture: finish-reason-empty
            if reason not in wire.OFFICIAL_FINISH_REASONS:
                # capture: finish-reason-end-turn, finish-reason-unknown
                self._findings.once("finish-foreign", reason, f"finish reason {reason!r}")
            if self._finish_reason is not None:
                # Routers send the finish chunk again, with the usage.
                detail = f"finish reason {reason!r} after another one"  # capture: finish-twice
                self._findings.once("finish-repeated", "", detail)
            if self._canonical_reason == "stop":
                # capture: finish-reasons-differ, finish-reasons-differ-specific-last
                # The first reason that says more than `stop` wins, in whichever order they come.
                self._finish_reason = reason
                self._canonical_reason = canonical_finish_reason(reason)
        if choice.usage is not None and chunk.usage is None:  # capture: usage-inside-the-choice
            self._usage = merged(self._usage, parse_usage(choice.usage))

    # The content of a delta

    def _read_delta(self, delta: wire.ChatDelta, out: list[Part]) -> None:
        content = delta.content
        # capture: reasoning-field, reasoning-under-both-names
        # Hosts disagree on the name, and gateways send the same text under both: it is read once.
        reasoning = delta.reasoning_content or delta.reasoning
        if delta.role:
            self._roles += 1
            # Harmless here; strict clients take it for the beginning of another message.
            if self._roles > 1:  # capture: role-on-every-chunk
                self._findings.once("role-repeated", "", "the role came again")
        if delta.reasoning_details:
            self._read_details(delta.reasoning_details, reasoning, out)
        elif reasoning:
            if self._details.signed:  # that reasoning is complete: this is another one
                self._close(out)
            self._add_text("reasoning", reasoning, out)
        if content:
            if isinstance(content, str):
                self._add_text("text", content, out)
            else:
                self._read_content_parts(content, out)  # capture: content-as-parts
        if delta.refusal:
            self._add_text("refusal", delta.refusal, out)
        for annotation in delta.annotations or ():
            citation = annotation.url_citation
            if citation is not None:
                self._add_source(citation.url, citation.title, out, citation)
            else:
                detail = f"annotation {annotation.type!r}"
                self._findings.once("event-unknown", "annotation", detail)
        # After the text: one delta may hold both, and the model wrote the text first.
        # capture: text-and-call-in-one-delta
        if delta.tool_calls:
            self._read_calls([call_delta(call) for call in delta.tool_calls], out)
        if delta.extra_content is not UNSET:
            # capture: thought-signature-alone, signature-alone-in-a-delta-after-text
            extra = delta.extra_content.copy()
            if self._ledger:  # it signs what came last: a call, or else the text
                signature, _ = signature_in(extra, self._host)
                self._ledger.sign(signature, extra)
            else:
                self._text_extra = extra
        if delta.function_call is not None:
            # capture: legacy-function-call, legacy-function-call-whole
            name, arguments = delta.function_call.name, delta.function_call.arguments
            call = CallDelta(_FUNCTION_CALL_INDEX, None, not_blank(name), arguments or "")
            self._read_calls([call], out)

    def _add_text(self, kind: _ChatContent, text: str, out: list[Part]) -> None:
        if kind != self._open:
            self._start(kind, out)
        # `isascii` reads a flag of the string: plain text is not searched for halves.
        if self._surrogates.held or not text.isascii():
            # capture: surrogate-pair-in-two-deltas
            text = self._surrogates.feed(self._open_id, text)
            if not text:
                return
        if kind == "reasoning":
            out.append(ReasoningDelta(self._open_id, text))
        else:
            out.append(TextDelta(self._open_id, text))

    # capture: reasoning-after-text
    # Models that think between steps go back to reasoning: each change of kind is another part.
    def _start(self, kind: _ChatContent, out: list[Part], *, summary: bool = False) -> None:
        self._close(out)
        self._open, self._has_content = kind, True
        if kind == "reasoning":
            self._open_id = self._ids.local("reasoning")
            out.append(ReasoningStart(self._open_id, "summary" if summary else "raw"))
        else:
            self._open_id = self._ids.local("text")
            out.append(TextStart(self._open_id, refusal=kind == "refusal"))

    def _close(self, out: list[Part]) -> None:
        """Ends the text or reasoning that is open, if any."""
        if self._open is None:
            return
        if self._surrogates.held:
            self._flush_surrogate(out)
        if self._open == "reasoning":
            out.append(self._details.end(self._open_id, self._origin))
            self._details = ReasoningDetails()
        else:
            extra, self._text_extra = self._text_extra, UNSET
            end = TextEnd(self._open_id)
            if extra is not UNSET:
                signature, origin = signature_in(extra, self._host)
                end = TextEnd(self._open_id, signature=signature, origin=origin, extra=extra)
            out.append(end)
        self._open = None

    def _flush_surrogate(self, out: list[Part]) -> None:
        rest = self._surrogates.flush(self._open_id)
        if rest:  # capture: surrogate-half-alone, surrogate-pair-between-kinds
            part = ReasoningDelta if self._open == "reasoning" else TextDelta
            out.append(part(self._open_id, rest))

    def _read_details(
        self, details: list[wire.ChatReasoningDetail], text: str | None, out: list[Part]
    ) -> None:
        """Reads reasoning with details. Its text is `text`, else that of the details; a detail
        that belongs to another reasoning starts another part.
        """
        if not (text or text_of(details)) and self._open != "reasoning":
            # Signatures or encrypted data alone: parts of their own, which leave a text open.
            # capture: encrypted-detail-alone, encrypted-detail-beside-open-text
            if not any(map(is_signed, details)):
                return
            self._has_content = True
            for reasoning, added in split_by_reasoning(ReasoningDetails(), details):
                id = self._ids.local("reasoning")
                out.append(ReasoningStart(id, "summary" if is_summary(added) else "raw"))
                out.append(reasoning.end(id, self._origin))
            return
        # capture: reasoning-and-its-details, encrypted-details-in-a-body
        # Where both hold the same text it is taken from the details, which say whose it is.
        plain = "" if text == text_of(details) else text
        for number, (reasoning, added) in enumerate(split_by_reasoning(self._details, details)):
            if self._open != "reasoning" or reasoning is not self._details:
                # capture: encrypted-details-of-one-index
                self._start("reasoning", out, summary=is_summary(added))
                self._details = reasoning
            delta = text_of(added) if not plain else "" if number else plain
            if delta:
                self._add_text("reasoning", delta, out)

    def _read_content_parts(self, parts: list[wire.ChatContentPart | str], out: list[Part]) -> None:
        # Strings and lists alternate in one stream: reasoning as parts, then the answer as strings.
        self._findings.once("content-parts", "", "content as a list of parts")
        for part in parts:
            if isinstance(part, str):  # capture: content-as-strings-and-refusal-parts
                self._add_text("text", part, out)
            elif part.thinking:  # capture: content-as-parts, content-parts-with-plain-thinking
                inner = part.thinking
                for text in [inner] if isinstance(inner, str) else [one.text for one in inner]:
                    if text:
                        self._add_text("reasoning", text, out)
            elif part.refusal:  # capture: content-as-strings-and-refusal-parts
                self._add_text("refusal", part.refusal, out)
            elif part.text:
                thought = part.type in ("thinking", "reasoning")
                self._add_text("reasoning" if thought else "text", part.text, out)
            elif is_present(part.reference_ids):  # capture: content-as-parts
                id, raw = self._ids.local("source"), Raw(msgspec.json.encode(part))
                out.append(Source(id, "document", self._open_text_id(), raw=raw))
            elif part.type not in ("text", "thinking"):
                detail = f"content part {part.type!r}"
                self._findings.once("event-unknown", f"part {part.type}", detail)

    def _open_text_id(self) -> str | None:
        return self._open_id if self._open == "text" else None

    def _add_source(
        self,
        url: str | None,
        title: str | None,
        out: list[Part],
        citation: wire.ChatUrlCitation | None = None,
    ) -> None:
        """Adds a source for an address and a place in the text, once: streams repeat them."""
        start, end = (citation.start_index, citation.end_index) if citation else (None, None)
        key = f"{url} {start} {end}"
        if not url or key in self._sources or self._phase != "reading":
            # capture: citations-on-every-chunk
            return
        self._sources.add(key)
        id, text_id = self._ids.local("source"), self._open_text_id()
        out.append(Source(id, "url", text_id, url=url, title=title, start=start, end=end))

    # Calls and signatures

    def _read_calls(self, entries: list[CallDelta], out: list[Part]) -> None:
        for entry in entries:
            if entry.signature and entry.id:  # capture: thought-signature-on-the-call
                self._call_extras[entry.id] = entry.extra
        ledger = self._ledger
        if ledger is None:
            tools = self._request.tools if self._request is not None else ()
            declared = frozenset([tool.name for tool in tools])
            ledger = self._ledger = Ledger(self._ids, self._findings, declared)
        before = len(ledger)
        parts = ledger.feed(entries)
        announced = any(part.__class__ is ToolParamsStart for part in parts)
        if announced or len(ledger) > before:  # also by a call that is not announced yet
            self._close(out)
        if announced and self._call_extras:
            for number, part in enumerate(parts):
                if isinstance(part, ToolParamsStart) and part.id in self._call_extras:
                    signature, origin = signature_in(self._call_extras[part.id], self._host)
                    signed = msgspec.structs.replace(part, signature=signature, origin=origin)
                    parts[number] = signed
        out += parts

    def _finish_calls(self, ledger: Ledger, *, failed: bool = False) -> list[Part]:
        """Ends the open calls, each with the origin of its signature."""
        parts = ledger.finish(failed=failed)
        for number, part in enumerate(parts):
            if isinstance(part, ToolCall) and part.signature is not None:
                _, origin = signature_in(part.extra, self._host)
                parts[number] = msgspec.structs.replace(part, origin=origin or self._host)
        return parts

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        if self._phase != "reading":
            return
        self._flush_surrogate(out)
        parts = self._finish_calls(self._ledger, failed=True) if self._ledger else []
        announced = {part.id for part in parts if isinstance(part, ToolParamsEnd)}
        # Deltas that were held back come before the error. The guard ends announced calls itself.
        ends = (ToolParamsEnd, ToolCall)
        # capture: error-object-inside-a-call, ends-before-a-name
        out += [one for one in parts if not (isinstance(one, ends) and one.id in announced)]
        out.append(error)
        self._phase = "failed"
