"""Chat Completions chunks, and whole completions, into parts.

The wire has no end marks: text or reasoning ends when another kind begins, calls end only at
the clean end of the stream (a finish reason or `[DONE]`, then the terminator or the end of the
input). What comes after a finish reason still counts. Which call a delta belongs to is the
ledger's business.
"""

from enum import Enum
from itertools import count

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.assembler import merged
from weft.calls import CallDelta, Ledger
from weft.context import Context
from weft.dialects.base import Replays, Salvage, told
from weft.dialects.openai_chat import wire
from weft.dialects.openai_chat.mapping import (
    WORDS,
    Proof,
    call_delta,
    cut,
    error_of,
    finish_reason,
    is_summary,
    named,
    proof_of,
    proves,
    text_of,
    total_of,
    usage_of,
)
from weft.dialects.openai_chat.fast_path import MAX_TEMPLATES, ChunkTemplate
from weft.dialects.openai_chat.wire import NAME
from weft.findings import Findings
from weft.partial_json import join_halves, whole_characters
from weft.parts import (
    ErrorPart,
    Finish,
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
    ToolParamsEnd,
    ToolParamsStart,
    Usage,
)
from weft.sse import DONE, Frame

_LEGACY_INDEX = -1  # the one call of the old `function_call` field


class _Phase(Enum):
    READING = "reading"
    FAILED = "failed"
    CLOSED = "closed"


_ENDS = (ToolParamsEnd, ToolCall)


class _Kind(Enum):
    """What is being said: each has a start, deltas and an end."""

    TEXT = "text"
    REFUSAL = "refusal"
    REASONING = "reasoning"


class ChatDecoder:
    """Reads one choice of one response."""

    def __init__(self, context: Context, findings: Findings) -> None:
        request = context.request
        self._context = context
        self._ids = context.ids
        self._findings = findings
        self._host = context.origin or NAME
        self._salvage = Salvage(findings, wire.GROWING)
        self._replays = Replays()
        declared = frozenset(tool.name for tool in request.tools) if request else frozenset()
        self._ledger = Ledger(context.ids, findings, declared)
        self._choice = context.choice
        self._phase = _Phase.READING
        self._announced = False
        self._response_id: str | None = None
        self._created: int | None = None
        self._kind: _Kind | None = None  # what is open, under which id
        self._id = ""
        self._half = ""  # a high surrogate that waits for its other half
        self._proof = Proof()
        self._signed: Json = UNSET  # what came beside the text that is open
        self._signatures: dict[str, Json] = {}  # what came beside a call, by its id
        self._messages: list[wire.Delta] = []
        self._streams = request is not None and request.stream
        self._roles = 0
        self._said = False
        self._terminated = False
        self._cut = False
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._model: str | None = None
        self._sources: set[str] = set()
        self._template: ChunkTemplate | None = None
        """Of the last chunk, if that brought text and nothing else."""
        self._templates_made = 0

    def feed(self, frame: Frame) -> list[Part]:
        """Returns the parts that this frame completes, possibly none."""
        if self._template is not None:
            text = self._template.match(frame)
            if text:
                return [TextDelta(self._id, text)]
            self._template = None
        out: list[Part] = []
        if self._phase is _Phase.CLOSED:
            self._findings.once("after-finish", "", "events after the end: dropped")
            return out
        if frame.id is not None and self._replays.seen(frame.id, frame.data):
            self._findings.note("frame-replayed", f"event {frame.id!r} came before: dropped")
            return out
        try:
            chunk = wire.read(frame.data)
        except (ValueError, RecursionError):
            self._odd_frame(frame, out)
        else:
            self._chunk(chunk, frame, out)
            if len(out) == 1 and self._templates_made < MAX_TEMPLATES:
                self._remember_template(chunk, frame, out[0])
        if not self._announced and out:
            self._announce(out)
        return out

    def _remember_template(self, chunk: wire.Chunk, frame: Frame, part: Part) -> None:
        """Remembers a chunk that brought text and nothing else. Where there are calls it may have
        brought some of one that is still held."""
        going = self._phase is _Phase.READING and self._reason is None and chunk.usage is None
        going = going and not self._ledger and not self._is_new_role(chunk)
        if going and isinstance(part, TextDelta) and self._kind is _Kind.TEXT and not self._half:
            self._templates_made += 1
            self._template = ChunkTemplate.from_chunk(frame, part.delta)

    def _is_new_role(self, chunk: wire.Chunk) -> bool:
        """Whether the next chunk with this one's role would be the first to repeat it."""
        choices = (chunk.choices or ()) if self._roles < 2 else ()
        return any(one.delta is not None and one.delta.role for one in choices)

    def finish(self) -> list[Part]:
        """Returns the end of the response: the input is over, however it ended."""
        out: list[Part] = []
        self._template = None
        if self._phase is _Phase.CLOSED:
            return out
        if self._phase is _Phase.READING:
            self._use_message(out)
            self._judge(out)
        self._close_kind(out)
        out += self._ended()
        out.append(self._finish_part())
        if not self._announced:
            self._announce(out)
        self._phase = _Phase.CLOSED
        return out

    @property
    def ending(self) -> bool:
        return self._reason is not None

    @property
    def holding(self) -> bool:
        if self._phase is not _Phase.READING:
            return False
        unannounced = not self._announced and (self._response_id or self._created or self._model)
        proven = self._proof.begun or self._signed is not UNSET
        waits = self._half or self._messages or self._reason is not None
        return bool(unannounced or proven or waits or self._ledger.holding)

    def _judge(self, out: list[Part]) -> None:
        """Decides whether this end is a clean one."""
        if self._reason is None:
            if not self._said and not self._ledger and not self._cut:
                self._fail(ErrorPart("empty", "the stream held no answer", retryable=True), out)
            elif not self._terminated:
                message = "the stream ended without a finish reason or a terminator"
                self._fail(ErrorPart("truncated", message, retryable=True), out)
            else:
                self._findings.note("finish-inferred", "no finish reason came: stop is assumed")
        elif finish_reason(self._reason) == "error":
            message = "the upstream finished with an error and did not say which"
            self._fail(ErrorPart("upstream", message, retryable=True), out)

    def _announce(self, out: list[Part]) -> None:
        """Puts the metadata in front of the first part."""
        self._announced = True
        if not self._response_id:
            if self._phase is not _Phase.FAILED:
                self._findings.note("metadata-id-minted", "the wire gave the response no id")
            self._response_id = self._ids.mint("chatcmpl")
        metadata = ResponseMetadata(
            self._response_id,
            model=self._model or None,
            created=self._created or None,
            dialect=NAME,
        )
        out.insert(0, metadata)

    # Frames

    def _odd_frame(self, frame: Frame, out: list[Part]) -> None:
        """A frame that is no well-typed chunk: the terminator, an accent, or damage."""
        if frame.data == DONE:
            self._terminated = True
            out += self.finish()
            return
        try:
            chunk = self._salvage.read(frame.data, wire.Chunk)
        except ValueError as problem:
            self._unreadable(frame, str(problem), out)
        else:
            self._chunk(chunk, frame, out)

    def _unreadable(self, frame: Frame, problem: str, out: list[Part]) -> None:
        text = frame.data.decode("utf-8", "replace")
        if frame.cut:
            self._cut = True
            self._findings.note("frame-unterminated", f"the input ended inside {text[:40]!r}")
        elif frame.event and frame.event != "error":
            self._findings.once("event-unknown", frame.event, f"event {frame.event!r}: ignored")
        elif text.startswith(("{", "[")):
            self._fail(ErrorPart("malformed", f"event {frame.number} is not JSON: {problem}"), out)
        else:
            self._fail(ErrorPart("upstream", text), out)

    def _chunk(self, chunk: wire.Chunk, frame: Frame, out: list[Part]) -> None:
        if frame.cut or frame.split:
            self._note_framing(frame)
        if chunk.usage is not None:
            self._take_usage(chunk.usage)
        if (
            (chunk.choices is None or chunk.error is not UNSET or frame.event)
            and not self._is_answer(chunk, frame, out)
        ):  # fmt: skip
            return
        if not self._announced:
            self._response_id = self._response_id or chunk.id
            self._created = self._created or chunk.created
            self._model = self._model or chunk.model
            if self._response_id and chunk.choices:
                self._announce(out)
        if chunk.model:
            self._model = chunk.model
        if chunk.choices and chunk.choices[0].message is not None:
            self._messages = []  # each chunk tells all of it anew
        for choice in chunk.choices or ():
            if choice.index is None and (choice.message is None or len(chunk.choices or ()) > 1):
                self._findings.once("choice-index-missing", "", "a choice without an index: 0")
            if (choice.index or 0) == self._choice:
                self._take_choice(choice, chunk, out)
            else:  # second-choice-before-the-first
                detail = f"choice {choice.index}: not the one that is read"
                self._findings.once("choice-other", str(choice.index), detail)
        if chunk.citations or chunk.search_results:
            self._cite(chunk, out)
        if chunk.object == "chat.completion":
            self._terminated = True

    def _note_framing(self, frame: Frame) -> None:
        if frame.cut:
            self._findings.note("frame-unterminated", "the last event has no blank line after it")
        if frame.split:
            self._findings.once("frame-lines-split", "", "events were separated by one newline")

    def _is_answer(self, chunk: wire.Chunk, frame: Frame, out: list[Part]) -> bool:
        """Sorts out what only looks like a chunk: errors, pings, foreign events."""
        flagged = "error" in (frame.event, chunk.object) or chunk.type == Raw(b'"error"')
        if told(chunk.error) or chunk.success is False or (flagged and chunk.choices is None):
            self._fail(error_of(chunk), out)
        elif chunk.choices is None and chunk.usage is None:
            what = frame.event or frame.data[:40].decode("utf-8", "replace")
            self._findings.once("event-unknown", frame.event, f"{what!r}: ignored")
            return False
        return True

    def _take_choice(self, choice: wire.Choice, chunk: wire.Chunk, out: list[Part]) -> None:
        delta = choice.delta
        if delta is not None and self._phase is _Phase.READING:
            before = len(out)
            self._delta(delta, out)
            if self._reason is not None and (len(out) > before or delta.tool_calls):
                self._findings.once("finish-late-content", "", "content after the finish reason")
        elif delta is not None and (delta.content or delta.tool_calls):
            self._findings.once("after-error", "", "content after the error: dropped")
        if choice.message is not None:
            self._messages.append(choice.message)
            if self._streams or chunk.object == "chat.completion.chunk":
                self._findings.once("message-whole", "", "a whole message instead of deltas")
        elif delta is None:
            self._findings.once("delta-missing", "", "a choice without a delta")
        if choice.finish_reason:
            self._take_reason(choice.finish_reason)
        if choice.usage is not None and chunk.usage is None:
            self._take_usage(choice.usage)

    # What a delta says

    def _delta(self, delta: wire.Delta, out: list[Part]) -> None:
        content = delta.content
        reasoning = delta.reasoning_content or delta.reasoning
        if delta.role:
            self._roles += 1
            if self._roles > 1:  # role-on-every-chunk: readers join it
                self._findings.once("role-repeated", "", "the role came again")
        if delta.reasoning_details:
            self._reason_with(reasoning, delta.reasoning_details, out)
        elif reasoning:
            if self._proof.proven:  # a proof comes when all is said: this is another reasoning
                self._close_kind(out)
            self._say(_Kind.REASONING, reasoning, out)
        if content:
            if isinstance(content, str):
                self._say(_Kind.TEXT, content, out)
            else:
                self._findings.once("content-parts", "", "content as a list of parts")
                for part in content:
                    if isinstance(part, str):
                        self._say(_Kind.TEXT, part, out)
                    else:
                        self._content_part(part, out)
        if delta.refusal:
            self._say(_Kind.REFUSAL, delta.refusal, out)
        if delta.annotations:
            for annotation in delta.annotations:
                self._annotate(annotation, out)
        if delta.tool_calls:
            self._call([call_delta(call) for call in delta.tool_calls], out)
        if delta.extra_content is not UNSET:
            self._sign(delta.extra_content)
        if delta.function_call is not None:
            function = delta.function_call
            entry = CallDelta(_LEGACY_INDEX, None, named(function.name), function.arguments or "")
            self._call([entry], out)

    def _say(self, kind: _Kind, text: str, out: list[Part]) -> None:
        if kind is not self._kind:
            self._open(kind, out)
        if self._half or not text.isascii():
            came = "".join((self._half, text))
            text, self._half = join_halves("", came)
            if text != came:
                self._findings.once("surrogate-lone", "", "a character was cut in two")
            if not text:
                return
        if kind is _Kind.REASONING:
            out.append(ReasoningDelta(self._id, text))
        else:
            out.append(TextDelta(self._id, text))

    def _open(self, kind: _Kind, out: list[Part], *, summary: bool = False) -> None:
        self._close_kind(out)
        self._kind, self._said = kind, True
        if kind is _Kind.REASONING:
            self._id = self._ids.local("reasoning")
            out.append(ReasoningStart(self._id, "summary" if summary else "raw"))
        else:
            self._id = self._ids.local("text")
            out.append(TextStart(self._id, refusal=kind is _Kind.REFUSAL))

    def _close_kind(self, out: list[Part]) -> None:
        kind, self._kind = self._kind, None
        if kind is None:
            return
        self._flush_half(kind, out)
        if kind is _Kind.REASONING:
            out.append(self._proof.end(self._id, self._context.origin))
            self._proof = Proof()
        else:
            extra, self._signed = self._signed, UNSET
            signature, origin = proof_of(extra, self._host)
            out.append(TextEnd(self._id, signature=signature, origin=origin, extra=extra))

    def _flush_half(self, kind: _Kind | None, out: list[Part]) -> None:
        if self._half:
            part = ReasoningDelta if kind is _Kind.REASONING else TextDelta
            out.append(part(self._id, whole_characters(self._half)))
            self._half = ""

    def _reason_with(self, text: str | None, details: list[wire.Detail], out: list[Part]) -> None:
        """Reasoning by any of its fields: the first one that has text, once. Details that prove
        another reasoning begin another part.
        """
        told = text_of(details)
        if not (text or told) and self._kind is not _Kind.REASONING:
            self._prove(details, out)
            return
        plain = "" if text == told else text
        for number, (proof, own) in enumerate(cut(self._proof, details)):
            if self._kind is not _Kind.REASONING or proof is not self._proof:
                self._open(_Kind.REASONING, out, summary=is_summary(own))
                self._proof = proof
            said = text_of(own) if not plain else "" if number else plain
            if said:
                self._say(_Kind.REASONING, said, out)

    def _prove(self, details: list[wire.Detail], out: list[Part]) -> None:
        """Proofs on their own, perhaps beside open text: parts without text."""
        if not any(map(proves, details)):
            return
        self._said = True
        for proof, own in cut(Proof(), details):
            id = self._ids.local("reasoning")
            out.append(ReasoningStart(id, "summary" if is_summary(own) else "raw"))
            out.append(proof.end(id, self._context.origin))

    def _content_part(self, part: wire.ContentPart, out: list[Part]) -> None:
        if part.thinking:
            inner = part.thinking
            texts = [inner] if isinstance(inner, str) else [one.text or "" for one in inner]
            for text in texts:
                if text:
                    self._say(_Kind.REASONING, text, out)
        elif part.refusal:
            self._say(_Kind.REFUSAL, part.refusal, out)
        elif part.text:
            kind = _Kind.REASONING if part.type in ("thinking", "reasoning") else _Kind.TEXT
            self._say(kind, part.text, out)
        elif told(part.reference_ids):
            raw = Raw(msgspec.json.encode(part))
            out.append(Source(self._ids.local("source"), "document", self._text_id(), raw=raw))
        elif part.type not in ("text", "thinking"):
            self._findings.once("event-unknown", f"part {part.type}", f"content part {part.type!r}")

    def _text_id(self) -> str | None:
        return self._id if self._kind is _Kind.TEXT else None

    def _cite(self, chunk: wire.Chunk, out: list[Part]) -> None:
        """Citations stand on every chunk; each address is one source."""
        for result in chunk.search_results or ():
            self._source(result.url, result.title, out)
        for url in chunk.citations or ():
            self._source(url, None, out)

    def _annotate(self, annotation: wire.Annotation, out: list[Part]) -> None:
        citation = annotation.url_citation
        if citation is None:
            self._findings.once("event-unknown", "annotation", f"annotation {annotation.type!r}")
            return
        self._source(citation.url, citation.title, out, citation)

    def _source(
        self,
        url: str | None,
        title: str | None,
        out: list[Part],
        place: wire.UrlCitation | None = None,
    ) -> None:
        start, end = (place.start_index, place.end_index) if place else (None, None)
        mark = f"{url} {start} {end}"
        if not url or mark in self._sources or self._phase is not _Phase.READING:
            return
        self._sources.add(mark)
        id = self._ids.local("source")
        text = self._text_id()
        out.append(Source(id, "url", text, url=url, title=title, start=start, end=end))

    def _call(self, entries: list[CallDelta], out: list[Part]) -> None:
        for entry in entries:
            if entry.signature and entry.id:
                self._signatures[entry.id] = entry.extra
        before = len(self._ledger)
        made = self._ledger.feed(entries)
        announced = any(part.__class__ is ToolParamsStart for part in made)
        if announced or len(self._ledger) > before:  # also one that is held
            self._close_kind(out)
        out += [self._begun(part) for part in made] if announced else made

    def _begun(self, part: Part) -> Part:
        """The start of a call with what signs it, if that is there by then."""
        if not isinstance(part, ToolParamsStart) or part.id not in self._signatures:
            return part
        signature, origin = proof_of(self._signatures[part.id], self._host)
        return msgspec.structs.replace(part, signature=signature, origin=origin)

    def _sign(self, extra: Raw | UnsetType) -> None:
        """A signature alone in a delta belongs to what came last: a call, or the text."""
        kept = extra.copy() if isinstance(extra, Raw) else extra
        if self._ledger:
            signature, _ = proof_of(kept, self._host)
            self._ledger.sign(signature, kept)
        else:
            self._signed = kept

    def _use_message(self, out: list[Part]) -> None:
        """A whole message counts only where nothing was streamed."""
        if self._messages and (self._said or self._ledger):
            self._findings.note("message-ignored", "a whole message repeats what was streamed")
            return
        positions = count()
        for message in self._messages:
            for call in message.tool_calls or ():  # a whole list needs no index
                call.index = next(positions)
            self._delta(message, out)

    # Ends

    def _ended(self, *, failed: bool = False) -> list[Part]:
        """The calls that were open, each with who signed it."""
        return [self._proven(part) for part in self._ledger.finish(failed=failed)]

    def _proven(self, part: Part) -> Part:
        if not isinstance(part, ToolCall) or part.signature is None:
            return part
        _, origin = proof_of(part.extra, self._host)
        return msgspec.structs.replace(part, origin=origin or self._host)

    def _take_reason(self, reason: str) -> None:
        """The first specific reason wins over a plain stop."""
        if reason not in WORDS:
            self._findings.once("finish-foreign", reason, f"finish reason {reason!r}")
        if self._reason is None:
            self._reason = reason
            return
        self._findings.once("finish-repeated", "", f"finish reason {reason!r} after another one")
        if finish_reason(self._reason) == "stop":
            self._reason = reason

    def _take_usage(self, usage: wire.Usage) -> None:
        self._usage = merged(self._usage, usage_of(usage))

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        if self._phase is not _Phase.READING:
            return
        self._flush_half(self._kind, out)
        left = self._ended(failed=True)
        cut = {part.id for part in left if isinstance(part, ToolParamsEnd)}
        # What is still said comes before the error; the guard ends what was cut after it.
        out += [part for part in left if not (isinstance(part, _ENDS) and part.id in cut)]
        out.append(error)
        self._phase = _Phase.FAILED

    def _finish_part(self) -> Finish:
        usage = self._usage
        if usage is not None and usage.total_tokens is None:
            usage = msgspec.structs.replace(usage, total_tokens=total_of(usage))
        failed = self._phase is _Phase.FAILED
        return Finish(
            "error" if failed else finish_reason(self._reason or "stop"),
            raw_reason=self._reason,
            usage=usage,
            model=self._model,
        )
