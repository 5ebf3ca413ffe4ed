"""The guard: any parts in, legal parts out, a finding for whatever was repaired.

Only guarded parts exist for the rest of the system. A legal stream passes untouched; the guard
applied twice is the guard applied once. It owns the assembler, so the reader of its parts can
read their fold as well.

How it repairs, law by law (see lifecycle):
- Missing metadata, starts, ends, calls and errors are put in; second ones are left out.
- An id that was closed and comes again becomes `<id>_2`: nothing is lost, nothing reopens.
- Deltas of a call wait for its name; argument text waits while it is held; the end of arguments
  that are not settled waits for the tool-call, in case more comes.
- A `whole` completes what was streamed, or leaves a finding. Streamed content wins.

Each repair has a capture of parts that need it, `tests/captures/guard/<code of its finding>`; a
comment below names a capture of a wire only where a real decoder relies on the repair.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any, TypeVar

import msgspec

from weft.assembler import FOLD, Assembler, Buffer
from weft.findings import Code, Findings
from weft.ids import Claims, Ids
from weft.lifecycle import (
    ABSENT,
    CLOSED,
    FAILED,
    OPEN,
    RESPONSE,
    Hold,
    meaning,
    settled,
)
from weft.partial_json import canonical, is_json
from weft.parts import (
    ErrorKind,
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
)

Redact = Callable[[ErrorPart], ErrorPart]
"""Returns the error without what clients must not read."""

_replace = msgspec.structs.replace
_BLANKS = " \t\r\n"

_raw_start = partial(ReasoningStart, kind="raw")

Start = TextStart | ReasoningStart
Delta = TextDelta | ReasoningDelta
End = TextEnd | ReasoningEnd


class _Spans(msgspec.Struct, eq=False):
    """The text parts, or the reasoning parts: which are open, and under which id they went out."""

    start: Callable[[str], Start]
    delta: type[TextDelta] | type[ReasoningDelta]
    end: type[TextEnd] | type[ReasoningEnd]
    joined: Callable[[str], str]
    # The id that the decoder uses, and the one that went out: `<id>_2` if it was used before.
    open: dict[str, str] = {}
    used: Claims = msgspec.field(default_factory=Claims)


class _Stage(Enum):
    """Where a call stands, seen from the guard: the states of `lifecycle.TOOL`, and two more for
    what came in but may not go out yet.
    """

    HELD = "held"  # no name yet: nothing went out
    OPEN = "open"
    ENDING = "ending"  # its end came, but the arguments are not settled: the end waits
    SEALED = "sealed"
    CALLED = "called"
    CLOSED = "closed"


class _GuardedCall:
    """One call, seen from the guard. Text that went out is in the fold, the rest in `unsent`."""

    __slots__ = ("end", "hold", "id", "only", "stage", "start", "unsent")

    def __init__(self, id: str) -> None:
        self.id = id
        self.stage = _Stage.HELD
        self.start: ToolParamsStart | None = None
        self.end: ToolParamsEnd | None = None
        """The end that waits."""
        self.hold: Hold | None = Hold()
        """None once argument text flows."""
        self.unsent = Buffer()
        self.only: ToolParamsDelta | None = None
        """The delta that is all of `unsent`, so that it can go out as it came."""

    @property
    def waits(self) -> bool:
        """Whether something of it was fed that has not come out."""
        if self.stage is _Stage.HELD:
            return self.start is not None or self.unsent.length > 0
        return self.stage is _Stage.ENDING or self.unsent.length > 0


class Guard:
    """Makes any parts legal. One guard lives for one response."""

    def __init__(self, ids: Ids, findings: Findings, redact: Redact | None = None) -> None:
        self.fold = Assembler()
        self._redact = redact
        self._ids = ids
        self._findings = findings
        self._response = ABSENT
        self._dispatchable = False
        texts = _Spans(TextStart, TextDelta, TextEnd, self.fold.text)
        reasonings = _Spans(_raw_start, ReasoningDelta, ReasoningEnd, self.fold.reasoning)
        self._texts, self._reasonings = texts, reasonings
        self._spans: dict[type[Part], _Spans] = {
            TextStart: texts,
            TextDelta: texts,
            TextEnd: texts,
            ReasoningStart: reasonings,
            ReasoningDelta: reasonings,
            ReasoningEnd: reasonings,
        }
        self._calls: dict[str, _GuardedCall] = {}
        self._waiting: set[str] = set()
        """The calls of which something was fed that has not come out."""

    def feed(self, parts: Iterable[Part]) -> list[Part]:
        """Returns the legal parts that these make."""
        out: list[Part] = []
        for part in parts:
            # OPEN admits every part but the one that its handler drops itself (second metadata), so
            # nearly all parts are dispatched without a look at the tables.
            if self._response is OPEN or self._admits(part, out):
                _HANDLERS[part.__class__](self, part, out)
        return out

    @property
    def holding(self) -> bool:
        """Whether something that was fed has not come out: a call without a name, argument text
        that is held, or the end of arguments that are not settled."""
        return bool(self._waiting)

    def finish(self) -> list[Part]:
        """Returns what a stream that ended lacks. After a finish part: nothing."""
        out: list[Part] = []
        if self._response is CLOSED:
            return out
        if self._response is ABSENT:
            self._insert_metadata(out)
        # Most decoders report this themselves, with more to say about it.
        # capture: another-message-spliced-in, cut-inside-a-call
        if self._response is OPEN:
            empty = self.fold.empty
            kind: ErrorKind = "empty" if empty else "truncated"
            message = "the stream held no answer" if empty else "the stream ended before its finish"
            self._on_error(ErrorPart(kind, message, retryable=True), out)
        self._on_finish(Finish("error"), out)
        return out

    def _admits(self, part: Part, out: list[Part]) -> bool:
        """Whether this part may come in a response that is not simply open."""
        if self._response is ABSENT:
            if not isinstance(part, ResponseMetadata):
                self._findings.note("metadata-missing", f"{part.type} came first")
                self._insert_metadata(out)
            return True
        if part.__class__ in RESPONSE[self._response]:
            return True
        code: Code = "after-error" if self._response is FAILED else "after-finish"
        self._findings.once(code, part.type, f"{part.type}: dropped")
        return False

    def _insert_metadata(self, out: list[Part]) -> None:
        self._on_metadata(ResponseMetadata(self._ids.mint("resp")), out)

    def _emit(self, part: Part, out: list[Part]) -> None:
        FOLD[part.__class__](self.fold, part)  # what `feed` does, without a call in between
        out.append(part)

    # The response

    def _on_metadata(self, part: ResponseMetadata, out: list[Part]) -> None:
        if self._response is not ABSENT:
            self._findings.once("metadata-repeated", "", f"a second one, for {part.id!r}: dropped")
            return
        self._response = OPEN
        self._emit(part, out)

    @property
    def failed(self) -> bool:
        """Whether an error ended the content."""
        return self._response is FAILED

    def _on_error(self, part: ErrorPart, out: list[Part]) -> None:
        for call in self._calls.values():  # text that was held goes out now or never
            # A failed response admits no deltas. These calls end before the error; those without
            # held text end behind it, in `_close_call`, so that a client reads what went wrong
            # first.
            if call.unsent.length and call.stage in (_Stage.OPEN, _Stage.ENDING):
                self._hand_over(call, _replace(_call_of(call), invalid="stream-failed"), out)
        self._response = FAILED
        # Redacted before the fold takes it in: encoders, store and logs all read from there.
        self._emit(part if self._redact is None else self._redact(part), out)

    def _on_finish(self, part: Finish, out: list[Part]) -> None:
        if part.reason == "error" and self._response is OPEN:
            self._findings.note("error-missing", "finish says error, but no error came")
            self._on_error(ErrorPart("upstream", "the upstream reported an error"), out)
        # A missing end is the guard's to add; whether the next start already implies it depends on
        # the wire, and is the decoder's to say. So spans that are open here were never ended by
        # anyone.
        if self._texts.open:
            self._close_spans(self._texts, out)
        if self._reasonings.open:
            self._close_spans(self._reasonings, out)
        for call in list(self._calls.values()):
            self._close_call(call, out)
        if self._response is FAILED and part.reason != "error":
            part = _replace(part, reason="error", raw_reason=part.raw_reason or part.reason)
        elif part.reason == "stop" and self._dispatchable:
            # Several hosts report `stop` after tool calls; an agent that trusts it never runs them.
            # capture: stop-although-calls-were-made, no-finish-reason-with-calls
            self._findings.note("stop-with-calls", "finish says stop, but calls were made")
            part = _replace(part, reason="tool-calls")
        self._emit(part, out)
        self._response = CLOSED

    def _source(self, part: Source, out: list[Part]) -> None:
        """A source goes with its text, also if that got another id."""
        text = self._texts.open.get(part.text_id or "")
        renamed = text is not None and text != part.text_id
        self._emit(_replace(part, text_id=text) if renamed else part, out)

    # Text and reasoning

    def _text_delta(self, part: TextDelta, out: list[Part]) -> None:
        if part.delta and self._texts.open.get(part.id) == part.id:
            # Most parts of most streams: what `_span_delta` would do, without the calls in between.
            self.fold.text_delta(part)
            out.append(part)
        else:
            self._span_delta(part, out)

    def _span_start(self, part: Start, out: list[Part]) -> None:
        spans, wanted = self._spans[part.__class__], part.id
        if wanted in spans.open:
            self._findings.once("start-repeated", wanted, f"{part.type} of {wanted!r} again")
            return
        id = spans.used.claim(wanted)
        if id != wanted:
            # capture: text-id-reused
            self._findings.note("id-reused", f"{wanted!r} was closed before; this one is {id!r}")
            part = _replace(part, id=id)
        spans.open[wanted] = id
        self._emit(part, out)

    def _span_delta(self, part: Delta, out: list[Part]) -> None:
        spans = self._spans[part.__class__]
        if not part.delta:
            self._findings.once("delta-empty", part.id, f"{part.type} of {part.id!r}: dropped")
            return
        if part.id not in spans.open:
            # capture: text-without-a-start
            self._span_missing(spans, part, out)
        id = spans.open[part.id]
        self._emit(part if id == part.id else _replace(part, id=id), out)

    def _span_missing(self, spans: _Spans, part: Delta | End, out: list[Part]) -> None:
        code: Code = "delta-late" if part.id in spans.used else "start-missing"
        self._findings.note(code, f"{part.type} of {part.id!r}, which is not open")
        self._span_start(spans.start(part.id), out)

    def _span_end(self, part: End, out: list[Part]) -> None:
        spans = self._spans[part.__class__]
        if part.id not in spans.open:
            if part.id in spans.used:
                self._findings.note("end-repeated", f"{part.type} of {part.id!r} again: dropped")
                return
            if part == spans.end(part.id) or self._response is FAILED:
                # An end that says nothing but its id. One with a signature, encrypted reasoning or
                # a whole value is content, and gets a start, but not after an error.
                self._findings.note("end-without-start", f"{part.type} of {part.id!r}: dropped")
                return
            self._span_missing(spans, part, out)
        id = spans.open.pop(part.id)
        if part.whole is not None:
            # The tail goes out before the end, while deltas are still legal.
            # capture: items-never-done
            tail = self._tail(spans.joined(id), part.whole, f"{part.type} of {id!r}")
            if tail:
                self._emit(spans.delta(id, tail), out)
            part = _replace(part, whole=None)
        self._emit(part if id == part.id else _replace(part, id=id), out)

    def _close_spans(self, spans: _Spans, out: list[Part]) -> None:
        for wanted, id in list(spans.open.items()):
            if self._response is OPEN:
                self._findings.note("end-missing", f"{id!r} was still open at the finish")
            del spans.open[wanted]
            self._emit(spans.end(id), out)

    def _tail(self, streamed: str, whole: str, what: str) -> str:
        """Returns what the whole value adds to what was streamed. Streamed content wins."""
        if whole == streamed:
            return ""
        if not whole.startswith(streamed):
            # What went out cannot be taken back, so the stream stands and the contradiction is
            # reported.
            # capture: whole-that-differs, input-differs-from-the-deltas
            self._findings.note("whole-contradicts", f"{what}: the whole is not what was streamed")
            return ""
        if self._response is FAILED:
            self._findings.once("after-error", what, f"{what}: the rest came after the error")
            return ""
        self._findings.note("whole-extends", f"{what}: the whole holds more than was streamed")
        return whole[len(streamed) :]

    # Calls

    def _call(self, id: str) -> _GuardedCall:
        call = self._calls.get(id)
        if call is None:
            self._calls[id] = call = _GuardedCall(id)
        return call

    def _params_start(self, part: ToolParamsStart, out: list[Part]) -> None:
        call = self._call(part.id)
        part = _named(part)
        if call.stage is not _Stage.HELD:
            self._findings.once("start-repeated", part.id, f"call {part.id!r} was announced before")
        elif part.name:
            # Deltas that came before the name go out behind the announcement, as one.
            self._announce(call, part, out)
        else:
            call.start = part
        self._update_waiting(call)

    def _update_waiting(self, call: _GuardedCall) -> None:
        if call.waits:
            self._waiting.add(call.id)
        else:
            self._waiting.discard(call.id)

    def _params_delta(self, part: ToolParamsDelta, out: list[Part]) -> None:
        if not part.delta:
            self._findings.once("delta-empty", part.id, f"{part.type} of {part.id!r}: dropped")
            return
        call = self._call(part.id)
        if call.hold is None and call.stage is _Stage.OPEN:
            # Every delta but the first few of a call: no hold to ask, nothing unsent.
            self.fold.feed(part)
            out.append(part)
        elif call.stage in (_Stage.SEALED, _Stage.CALLED, _Stage.CLOSED):
            self._findings.once("delta-late", part.id, f"{part.type} of {part.id!r}: dropped")
        else:
            if call.stage is _Stage.HELD and call.start is None:
                # capture: call-deltas-without-a-start
                detail = f"{part.type} of {part.id!r} before its start"
                self._findings.once("start-missing", part.id, detail)
            elif call.stage is _Stage.ENDING:
                self._findings.once("end-early", part.id, f"call {part.id!r} goes on after its end")
            # The part itself, not a copy: a single held delta goes out with its `extra`, so that a
            # legal stream passes untouched.
            call.only = None if call.unsent.length else part
            call.unsent.add(part.delta)
            if call.stage is not _Stage.HELD:
                self._let_flow(call, part.delta, out)
            self._update_waiting(call)

    def _params_end(self, part: ToolParamsEnd, out: list[Part]) -> None:
        call = self._call(part.id)
        if call.stage is _Stage.HELD:
            self._complete(call, part.whole)
        elif call.stage is _Stage.OPEN:
            self._complete(call, part.whole)
            # nothing new goes out after an error
            failed = self._response is FAILED
            sendable = self.fold.joined(call.id) if failed else self._text(call)
            if _is_json(call) and not settled(sendable):
                # Incomplete, blank, or encoded twice: a tool-call with the whole value, or another
                # delta, may still complete it, and behind an end no delta could go out.
                call.stage, call.end = _Stage.ENDING, part
            else:
                self._seal(call, part, out, mend=False)
        else:
            self._findings.once("end-repeated", part.id, f"{part.type} of {part.id!r}: dropped")
        self._update_waiting(call)

    def _tool_call(self, part: ToolCall, out: list[Part]) -> None:
        call = self._call(part.id)
        part = _named(part)
        match call.stage:
            case _Stage.HELD:
                self._from_held(call, part, out)
            case _Stage.OPEN | _Stage.ENDING | _Stage.SEALED:
                self._hand_over(call, part, out)
            case _:
                self._findings.once("call-repeated", part.id, f"call {part.id!r} again: dropped")

    def _tool_result(self, part: ToolResult, out: list[Part]) -> None:
        call = self._calls.get(part.id)
        if call is None:
            # The call is in an earlier response: that turn was paused and goes on here, or its tool
            # ran between the two.
            # capture: output-of-an-earlier-response, paused-turn-goes-on
            call = _GuardedCall(part.id)
            if not part.earlier:
                detail = f"result of {part.id!r}, which was not called here"
                self._findings.note("result-without-call", detail)
                part = _replace(part, earlier=True)
            if part.preliminary:
                # The call stays unknown, so that its final result is admitted as well.
                self._emit(part, out)
                return
            self._calls[part.id] = call
        elif call.stage is _Stage.CLOSED:
            self._findings.once("result-late", part.id, f"result of {part.id!r} after the last one")
            return
        elif call.stage is not _Stage.CALLED:
            self._call_early(call, out)
        if not part.preliminary:
            call.stage = _Stage.CLOSED
        self._emit(part, out)

    def _approval_request(self, part: ToolApprovalRequest, out: list[Part]) -> None:
        call = self._calls.get(part.id)
        if call is None or call.stage is _Stage.CLOSED:
            detail = f"approval {part.approval_id!r} for {part.id!r}: dropped"
            self._findings.note("approval-without-call", detail)
            return
        if call.stage is not _Stage.CALLED:
            self._call_early(call, out)
        self._emit(part, out)

    def _call_early(self, call: _GuardedCall, out: list[Part]) -> None:
        """Something came that only a call that was made can have."""
        self._findings.note("result-early", f"call {call.id!r} was not ended before")
        self._tool_call(_call_of(call), out)

    def _close_call(self, call: _GuardedCall, out: list[Part]) -> None:
        """At the finish, every call that was begun ends in one tool-call."""
        failed = self._response is FAILED
        if call.stage is _Stage.HELD:
            if call.unsent.length or call.start is not None:
                # A call without a name can never be dispatched. It is handed on alone, with its
                # text.
                invalid: Invalid = "stream-failed" if failed else "nameless"
                self._findings.note("call-nameless", f"call {call.id!r} never got a name")
                self._made(call, ToolCall(call.id, "", call.unsent.text, invalid=invalid), out)
            else:
                self._findings.note("end-without-start", f"end of {call.id!r}: dropped")
        elif call.stage is _Stage.OPEN:
            # No end mark came, and text that happens to parse is no end mark (law 4): never valid.
            # capture: call-left-open-and-cut, items-never-done
            if not failed:
                self._findings.note("end-missing", f"call {call.id!r} was open at the finish")
            self._hand_over(call, _replace(_call_of(call), invalid="stream-failed"), out)
        elif call.stage in (_Stage.ENDING, _Stage.SEALED):
            # The end came, so the arguments are complete: only the tool-call is missing.
            # capture: call-ended-and-never-whole
            if not failed:
                self._findings.note("call-missing", f"call {call.id!r} ended without a tool-call")
            self._hand_over(call, _call_of(call), out)

    def _announce(self, call: _GuardedCall, start: ToolParamsStart, out: list[Part]) -> None:
        call.start, call.stage = start, _Stage.OPEN
        self._emit(start, out)
        if call.unsent.length:
            self._let_flow(call, call.unsent.text, out)

    def _let_flow(self, call: _GuardedCall, piece: str, out: list[Part]) -> None:
        """Sends what waited, unless argument text is still held."""
        if call.hold is not None and _is_json(call) and call.hold.feed(piece):
            return
        call.hold = None
        self._send(call, call.unsent.text, out)

    def _send(self, call: _GuardedCall, text: str, out: list[Part]) -> None:
        only, call.only, call.unsent = call.only, None, Buffer()
        if only is not None and only.delta == text:
            self._emit(only, out)
        elif text:
            self._emit(ToolParamsDelta(call.id, text), out)

    def _text(self, call: _GuardedCall) -> str:
        """All argument text that came, sent or not."""
        sent = self.fold.joined(call.id)
        return "".join((sent, call.unsent.text)) if call.unsent.length else sent

    def _complete(self, call: _GuardedCall, whole: str | None) -> None:
        """Takes in the full value that a wire repeats at the end: adds what is missing."""
        # Wires repeat an empty value where there is nothing to repeat: it contradicts nothing.
        if not whole or (_is_json(call) and not whole.strip(_BLANKS)):
            return
        sent, text = self.fold.joined(call.id), self._text(call)
        if whole == text:
            return
        # A wire whose last event holds parsed arguments, as the AI SDK's `input`, prints them anew:
        # other blanks or another key order are no contradiction.
        spelled = canonical(meaning(whole)[0]) if _is_json(call) else None
        if spelled is not None and spelled == canonical(meaning(text)[0]):
            return
        if call.stage is _Stage.SEALED or sent:
            # Part of it is with the client: the whole can add a tail before the end, and no more.
            # capture: input-differs-from-the-deltas
            tail = self._tail(text, whole, f"params of {call.id!r}")
            if call.stage is not _Stage.SEALED:
                call.unsent.add(tail)
        else:  # nothing went out yet, so nothing needs to be taken back
            # A wire that may leave out the deltas and send the value at the end alone.
            # capture: arguments-only-at-the-end
            if text.strip(_BLANKS) in ("{}", "[]"):
                detail = f"call {call.id!r}: an empty value stood before the arguments"
                self._findings.note("arguments-placeholder", detail)
            else:
                self._tail(text, whole, f"params of {call.id!r}")
            call.unsent.set(whole)
            call.hold = Hold()
            if call.stage is not _Stage.HELD:  # else it is fed when the name comes
                call.hold.feed(whole)

    def _seal(self, call: _GuardedCall, end: ToolParamsEnd, out: list[Part], *, mend: bool) -> None:
        text = call.unsent.text
        if self._response is FAILED:
            text = ""  # no content after an error
        elif mend and _is_json(call) and not self.fold.joined(call.id):
            # Only while nothing of it went out may the text be replaced by what it means.
            text = self._mended(call.id, text)
        self._send(call, text, out)
        self._emit(end if end.whole is None else _replace(end, whole=None), out)
        call.stage = _Stage.SEALED

    def _mended(self, id: str, text: str) -> str:
        """Returns what arguments mean that say it in an odd way."""
        meant, code = meaning(text)
        if code is not None:
            self._findings.note(code, f"call {id!r}: {text[:40]!r} means {meant[:40]!r}")
        return meant

    def _hand_over(self, call: _GuardedCall, part: ToolCall, out: list[Part]) -> None:
        """Ends an announced call, if need be, and emits its one tool-call."""
        start = call.start or ToolParamsStart(call.id, part.name)
        # capture: call-without-an-end, call-under-another-id
        if call.stage is _Stage.OPEN and part.invalid != "stream-failed":
            self._findings.once("end-missing", call.id, f"tool-call of {call.id!r} before its end")
        if part.name and part.name != start.name:
            detail = f"call {call.id!r} was announced as {start.name!r}, not {part.name!r}"
            self._findings.note("name-changed", detail)
        # The announcement is what the client knows; a tool-call that differs gives way. It was
        # announced with a name, so it is not nameless, whatever the decoder says.
        part = _replace(
            part,
            name=start.name,
            kind=start.kind,
            format=start.format,
            provider_executed=start.provider_executed,
            invalid=None if part.invalid == "nameless" else part.invalid,
        )
        self._complete(call, part.params)
        if call.stage is not _Stage.SEALED:
            self._seal(call, call.end or ToolParamsEnd(call.id), out, mend=not part.invalid)
        self._made(call, _replace(part, params=self.fold.joined(call.id)), out)

    def _from_held(self, call: _GuardedCall, part: ToolCall, out: list[Part]) -> None:
        """A tool-call for a call that nothing was sent of."""
        waited = call.unsent.length > 0 or call.start is not None
        # The name came only with the tool-call: announce it now, and replay what waited.
        if part.name and waited and self._response is OPEN:
            start = ToolParamsStart(
                part.id,
                part.name,
                kind=part.kind,
                item_id=part.item_id,
                provider_executed=part.provider_executed,
                format=part.format,
            )
            self._announce(call, start, out)
            self._hand_over(call, part, out)
            return
        if not part.params:
            part = _replace(part, params=call.unsent.text)
        if not part.name and part.invalid not in ("nameless", "stream-failed"):
            self._findings.note("call-nameless", f"call {part.id!r} has no name")
            part = _replace(part, invalid="nameless")
        elif part.invalid is None and part.format == "json":
            part = _replace(part, params=self._mended(part.id, part.params))
        self._made(call, part, out)

    def _made(self, call: _GuardedCall, part: ToolCall, out: list[Part]) -> None:
        """Emits the one tool-call of a call, with the last word on whether it is valid."""
        if part.invalid is None:
            if self._response is FAILED:  # nothing of it may be dispatched (law 6)
                part = _replace(part, invalid="stream-failed")
            elif part.format == "json" and not is_json(part.params):
                # Handed on with its raw text and never repaired: a guess would run a tool with
                # arguments that nobody wrote.
                # capture: arguments-cut-reported-as-tool-calls, closing-brace-lost
                detail = f"call {part.id!r}: arguments are not JSON: {part.params[-40:]!r}"
                self._findings.note("arguments-invalid", detail)
                part = _replace(part, invalid="bad-arguments")
            elif not part.provider_executed:
                self._dispatchable = True
        call.stage = _Stage.CALLED
        self._waiting.discard(call.id)
        self._emit(part, out)


Named = TypeVar("Named", ToolParamsStart, ToolCall)


def _named(part: Named) -> Named:
    """A name of nothing but blanks is none."""
    return part if not part.name or part.name.strip() else _replace(part, name="")


def _is_json(call: _GuardedCall) -> bool:
    return call.start is None or call.start.format == "json"


def _call_of(call: _GuardedCall) -> ToolCall:
    """The tool-call that a wire left out."""
    start = call.start or ToolParamsStart(call.id, "")
    return ToolCall(
        call.id,
        start.name,
        "",
        kind=start.kind,
        provider_executed=start.provider_executed,
        format=start.format,
        item_id=start.item_id,
        signature=start.signature,
        origin=start.origin,
        extra=start.extra,
    )


# A dict from type to handler is several times faster than a match over eighteen classes.
_HANDLERS: dict[type[Part], Callable[[Guard, Any, list[Part]], None]] = {
    ResponseMetadata: Guard._on_metadata,
    TextStart: Guard._span_start,
    TextDelta: Guard._text_delta,
    TextEnd: Guard._span_end,
    ReasoningStart: Guard._span_start,
    ReasoningDelta: Guard._span_delta,
    ReasoningEnd: Guard._span_end,
    ToolParamsStart: Guard._params_start,
    ToolParamsDelta: Guard._params_delta,
    ToolParamsEnd: Guard._params_end,
    ToolCall: Guard._tool_call,
    ToolResult: Guard._tool_result,
    ToolApprovalRequest: Guard._approval_request,
    Source: Guard._source,
    File: Guard._emit,
    Opaque: Guard._emit,
    ErrorPart: Guard._on_error,
    Finish: Guard._on_finish,
}
