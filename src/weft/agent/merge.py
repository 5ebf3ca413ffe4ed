"""One stream out of a run: what its turns stream and what its log says, as the parts of a single
response.

A segment of a run is what one response shows of it: it ends where the run waits for its client, or
ends itself. The parts that come out are legal as they are: the guard has nothing to repair.

1. What a model says is shown as it comes: text, reasoning, sources, files, and whole calls that the
   upstream ran itself.
2. Calls of the agent's tools are shown from the log, not from the stream: when they are run, with
   their results when these are in the log, and with their progress until then. A call is nothing
   before its turn has a receipt, so an attempt that dies leaves no call behind, and a call that was
   refused or denied is never shown as one that was run.
3. They are `provider_executed`, in the shape of MCP calls: no client takes them for its own.
   In the segment that ends with a parked call, its result says that the outcome is unknown; the
   call is shown again when it is settled.
4. What the client must do comes at the end of the segment, when the run waits for it: calls of
   its own tools, and approvals. It cannot do it earlier, and what somebody else has done meanwhile
   it need not do. A run that waits for agents that it has called ends the segment when they wait,
   too: what they wait for comes as well.
5. A client whose dialect has no approvals reads what waits for a person as a text, and answers in
   words.
6. Nothing is taken back. An attempt that was interrupted has shown what it has shown: its open
   items end, a finding is recorded, and the next attempt follows with items of its own.

Pure: no clock, no randomness. The same entries give the same parts, in whatever pieces they come.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from weft.agent.events import (
    AnyRunEvent,
    ApprovalRequested,
    CallFinished,
    CallIntended,
    CallResolved,
    Contents,
    FailureCode,
    JudgedCall,
    LoggedEvent,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunWaiting,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    text_result,
)
from weft.agent.lifecycle import ASKED
from weft.agent.state import ABANDONED, Call, RunState
from weft.assembler import merged
from weft.findings import Findings
from weft.ids import Claims
from weft.lifecycle import ABSENT, CLOSED, FAMILY, OPEN, settled
from weft.parts import (
    ErrorKind,
    ErrorPart,
    File,
    Finish,
    FinishReason,
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
    ToolResult,
    Usage,
)
from weft.relay.paused_turns import add_usage
from weft.request import TextContent

DIALECT = "weft-agent"
"""The dialect of the merged parts. Each turn may come from another one, so no encoder may take what
only its own dialect understands (`extra`) for its own."""

MCP_CALL = "mcp_call"
MCP_APPROVAL = "mcp_approval_request"

CHANGED = "Not run: the definition of this tool has changed, and somebody has to approve it."
PARKED = "The outcome of this call is unknown. The run waits until somebody settles it."
WAITS = "This agent waits until somebody approves its call of {}."
WAITS_PARKED = (
    "This agent waits: the outcome of its call of {} is unknown until somebody settles it."
)

QUESTION = (
    "{} asks for your approval of {}.\n\nTo approve it, answer `approve {}`; to deny it, `deny {}`."
)
UNKNOWN = (
    "{} waits: it is not known whether {} has happened. Somebody who can see the run must settle "
    "it ({})."
)

_ERROR_KINDS: dict[FailureCode, ErrorKind] = {
    # The model failed, or did not finish.
    "model": "upstream",
    "loop": "upstream",
    "no-progress": "upstream",
    "limit": "upstream",
    "interrupted": "internal",
    "internal": "internal",
    "unavailable": "internal",
}
_REASONS: dict[FinishReason, FinishReason] = {
    # The calls of the last turn were not usable: nobody has to run anything.
    "tool-calls": "stop",
    "error": "other",  # an attempt that failed has no receipt, so no run ends with one
}
"""The reasons of a last turn that are not those of its run."""

_replace = msgspec.structs.replace
_json = msgspec.json.Encoder().encode

SpanStart = TextStart | ReasoningStart
SpanDelta = TextDelta | ReasoningDelta
SpanEnd = TextEnd | ReasoningEnd


@dataclass(frozen=True, slots=True)
class TurnParts:
    """Guarded parts of an attempt, in their order; `response` is the id under which it is stored.
    All parts of an attempt come before the event that ends it."""

    response: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class CallProgress:
    """A preliminary result of a call that is under way. It is in no log: it is seen
    once, by those who follow the run in the process that works on it."""

    run: str
    call: str
    text: str


@dataclass(frozen=True, slots=True)
class DescendantCall:
    """A call of a descendant of the run that somebody must approve or settle."""

    caller: str
    """The call of the run itself that leads there."""

    run: RunState
    """The run that it belongs to."""

    call: Call


@dataclass(frozen=True, slots=True)
class DescendantsWait:
    """The run waits after its event `seq`, and so does every agent that it has called: nothing goes
    on until somebody acts."""

    seq: int
    calls: tuple[DescendantCall, ...]


SegmentEntry = TurnParts | CallProgress | DescendantsWait | AnyRunEvent


@dataclass(slots=True)
class _SegmentCall:
    """A call of the model, as far as the client knows it."""

    judged: JudgedCall
    is_asked: bool = False
    """Whether a person was asked to approve it."""

    id: str | None = None
    """The id under which the client was shown it; None if it was not."""

    is_over: bool = False
    """Whether the client has its result."""


class _Pending(NamedTuple):
    """A call that waits for a person."""

    id: str
    """For the client."""

    label: str
    """The agent."""

    judged: JudgedCall

    @property
    def shown(self) -> str:
        """The call, in one line: a model must not write lines of its own here."""
        text = self.judged.arguments
        arguments = msgspec.json.format(text, indent=-1) if settled(text) else _json(text).decode()
        return f"{self.judged.name}({arguments})"


class SegmentMerge:
    """The parts of one segment: feed it with everything that happens in the run from there on."""

    def __init__(
        self,
        metadata: ResponseMetadata,
        findings: Findings,
        calls: Iterable[Call] = (),
        *,
        label: str,
        tools_visible: bool = True,
        approvals_in_text: bool = False,
        public_id: Callable[[str], str] = str,
        descendant_call_id: Callable[[DescendantCall], str] = lambda pending: pending.call.id,
        waiting: RunWaiting | None = None,
    ) -> None:
        """`metadata` is that of the response, with its id. `calls` are those that are open where
        the segment begins, and `waiting` is what the run waits for there. `label` is the name of
        the server in calls that are not the client's: that of the agent. With
        `tools_visible=False` such calls are left out, except that the client is asked to approve
        them. `approvals_in_text`: the dialect of the client has no approvals. `public_id` returns
        the id for clients of a call of the run, `descendant_call_id` that of a call of a
        descendant."""
        self._metadata = metadata
        self._findings = findings
        self._label = label
        self._tools_visible = tools_visible
        self._approvals_in_text = approvals_in_text
        self._public_id = public_id
        self._descendant_call_id = descendant_call_id
        self._waits = waiting
        """What the run waits for, if it waits."""
        self._state = ABSENT
        self._calls = {
            call.id: _SegmentCall(call.judged, is_asked=call.approval is not None) for call in calls
        }
        self._claims: dict[str, Claims] = {}
        """The ids that are in use in the whole segment, by family."""
        self._usage: list[Usage] = []
        self.run_calls: dict[str, str] = {}
        """The ids of the run, by the ids under which the client was shown its calls."""
        # The attempt that is open
        self._response: str | None = None
        self._ids: dict[tuple[str, str], str | None] = {}
        """Which ids its items have here, by family; None for what is not shown."""
        self._open: dict[tuple[str, str], type[TextEnd] | type[ReasoningEnd]] = {}
        self._own_usage: Usage | None = None
        self._last = Finish("other")
        """The finish of the last attempt."""

    @property
    def ended(self) -> bool:
        """Whether the segment has ended; what comes after belongs to the next one."""
        return self._state is CLOSED

    def feed(self, entries: Iterable[SegmentEntry]) -> list[Part]:
        """Returns the parts that these entries make; none after the end of the segment."""
        out: list[Part] = []
        for entry in entries:
            if self._state is CLOSED:
                break
            self._begin(out)
            if isinstance(entry, TurnParts):
                # Parts of an attempt that is over come too late: it was replaced by another one.
                if entry.response == self._response:
                    for part in entry.parts:
                        handler = _PARTS.get(part.__class__)
                        if handler is not None:
                            handler(self, part, out)
            elif isinstance(entry, CallProgress):
                id = self._shown_id(entry.call, out)
                if id is not None and not self._calls[entry.call].is_over:
                    out.append(ToolResult(id, Raw(_json(entry.text)), preliminary=True))
            elif isinstance(entry, DescendantsWait):
                if self._waits is not None:
                    self._pause(self._waits, entry.calls, out)
            else:
                self._waits = None
                handle = _EVENTS.get(entry.__class__)
                if handle is not None:
                    handle(self, entry, out)
        return out

    def finish(self) -> list[Part]:
        """Returns what a segment lacks of which nothing more can be shown, although the run has
        neither ended nor waits. After the end of the segment: nothing."""
        out: list[Part] = []
        if self._state is not CLOSED:
            self._begin(out)
            message = "the stream of the run was cut off; the run itself may go on"
            self._fail(ErrorPart("truncated", message, retryable=True), out)
        return out

    def _begin(self, out: list[Part]) -> None:
        if self._state is ABSENT:
            self._state = OPEN
            out.append(_replace(self._metadata, dialect=DIALECT))

    def _claim(self, family: str, id: str) -> str:
        """An id that the segment does not have yet: models and upstreams repeat themselves."""
        claims = self._claims.get(family)
        if claims is None:
            claims = self._claims[family] = Claims()
        return claims.claim(id)

    # What a turn streams

    def _own_id(self, family: str, id: str) -> str:
        """The id here of something in the open attempt."""
        known = self._ids.get((family, id))
        if known is None:
            known = self._ids[family, id] = self._claim(family, id)
        return known

    def _item_id(self, id: str | None) -> str | None:
        return None if id is None else self._own_id("item", id)

    def _turn_metadata(self, part: ResponseMetadata, out: list[Part]) -> None:
        self._own_usage = part.usage

    def _span_start(self, part: SpanStart, out: list[Part]) -> None:
        family = FAMILY[part.__class__]
        self._open[family, part.id] = TextEnd if isinstance(part, TextStart) else ReasoningEnd
        item_id = self._item_id(part.item_id)
        out.append(_replace(part, id=self._own_id(family, part.id), item_id=item_id))

    def _span_part(self, part: SpanDelta | SpanEnd, out: list[Part]) -> None:
        family = FAMILY[part.__class__]
        id = self._own_id(family, part.id)
        out.append(part if id == part.id else _replace(part, id=id))
        if isinstance(part, SpanEnd):
            self._open.pop((family, part.id), None)

    def _upstream_call(self, part: ToolCall, out: list[Part]) -> None:
        """A whole call. What the upstream ran is shown, unless it is invalid, or an approval that
        nobody here could give; the others are shown from the log."""
        is_run = part.provider_executed and not part.invalid and part.kind != MCP_APPROVAL
        if not (is_run and self._tools_visible):
            self._ids["tool", part.id] = None
            return
        id, item_id = self._own_id("tool", part.id), self._item_id(part.item_id)
        out.append(_replace(part, id=id, item_id=item_id))

    def _upstream_result(self, part: ToolResult, out: list[Part]) -> None:
        is_hidden = self._ids.get(("tool", part.id), "") is None
        if self._tools_visible and not is_hidden:
            out.append(_replace(part, id=self._own_id("tool", part.id)))

    def _source(self, part: Source, out: list[Part]) -> None:
        text_id = None if part.text_id is None else self._own_id("text", part.text_id)
        out.append(_replace(part, id=self._own_id("source", part.id), text_id=text_id))

    def _file(self, part: File, out: list[Part]) -> None:
        out.append(_replace(part, id=self._own_id("file", part.id)))

    def _opaque(self, part: Opaque, out: list[Part]) -> None:
        out.append(part)

    def _turn_finish(self, part: Finish, out: list[Part]) -> None:
        self._last = part
        self._own_usage = merged(self._own_usage, part.usage)

    # What the log says of turns

    def _turn_started(self, event: TurnStarted, out: list[Part]) -> None:
        self._response = event.response
        self._ids, self._last = {}, Finish("other")

    def _turn_finished(self, event: TurnFinished, out: list[Part]) -> None:
        self._end_attempt(out)
        self._calls |= {one.id: _SegmentCall(one) for one in event.calls}

    def _turn_interrupted(self, event: TurnInterrupted, out: list[Part]) -> None:
        self._end_attempt(out)
        detail = f"turn {event.turn}, attempt {event.attempt}: {event.why}"
        self._findings.note("turn-interrupted", detail)

    def _end_attempt(self, out: list[Part]) -> None:
        out += [end(self._own_id(*key)) for key, end in self._open.items()]
        self._open.clear()
        # The upstream bills for attempts that fail, as far as it said what they cost.
        if self._own_usage is not None:
            self._usage.append(self._own_usage)
        self._response = self._own_usage = None

    # What the log says of calls

    def _intended(self, event: CallIntended, out: list[Part]) -> None:
        self._shown_id(event.call, out)

    def _shown_id(self, run_id: str, out: list[Part]) -> str | None:
        """The id under which the client knows this call; it is shown now if it was not before. None
        if calls are not shown."""
        call = self._calls.get(run_id)
        if call is None or not self._tools_visible:
            return None
        if call.id is None:
            id = self._public_id(run_id)
            shown = _replace(
                self._new_call(call.judged, id),
                kind=MCP_CALL,
                provider_executed=True,
                dynamic=True,
                # The client recognises the call that it has approved.
                approval_request_id=id if call.is_asked else None,
                server_label=self._label,
            )
            out.append(shown)
            call.id = shown.id
        return call.id

    def _new_call(self, judged: JudgedCall, public: str) -> ToolCall:
        id = self._claim("tool", public)
        self.run_calls[id] = judged.id
        # A client checks the arguments of its own tools, so they may be anything.
        invalid: Invalid | None = None if settled(judged.arguments) else "bad-arguments"
        return ToolCall(id, judged.name, judged.arguments, invalid=invalid)

    def _finished(self, event: CallFinished, out: list[Part]) -> None:
        self._result(event.call, event.result, event.is_error, out)

    def _resolved(self, event: CallResolved, out: list[Part]) -> None:
        if event.action == "done":
            self._result(event.call, event.result, event.is_error, out)
        elif event.action == "abandon":
            self._result(event.call, text_result(ABANDONED), True, out)

    def _result(self, call: str, result: Contents, is_error: bool, out: list[Part]) -> None:
        # A call that was parked in an earlier segment is shown again: it is not in this response
        # yet.
        id = self._shown_id(call, out)
        if id is not None:
            out.append(ToolResult(id, Raw(_json(shown_text(result))), is_error=is_error))
            self._calls[call].is_over = True

    def _approval(self, event: ApprovalRequested, out: list[Part]) -> None:
        if event.call in self._calls:
            self._calls[event.call].is_asked = True

    # The end of the segment

    def _waiting(self, event: RunWaiting, out: list[Part]) -> None:
        self._waits = event
        # With agents that it has called there is more to come, until they wait as well.
        if not event.children:
            self._pause(event, (), out)

    def _pause(
        self, waiting: RunWaiting, descendant_calls: Sequence[DescendantCall], out: list[Part]
    ) -> None:
        """Ends the segment with what somebody must do."""
        own = self._public_id
        out += [self._new_call(call.judged, own(id)) for id, call in self._known(waiting.outputs)]
        asked = [
            _Pending(own(id), self._label, call.judged)
            for id, call in self._known(waiting.approvals)
        ]
        parked = [
            _Pending(own(id), self._label, call.judged) for id, call in self._known(waiting.parked)
        ]
        for id, call in self._known(waiting.approvals):
            # Shown as one that is run, and then not sent: its tool has changed.
            if call.id is not None:
                self._result(id, text_result(CHANGED), True, out)
                call.id = None
        for id in waiting.parked:
            # It has no result, and may have had its effect. Without a word on it some dialects
            # would show it as completed, and others not at all.
            self._result(id, text_result(PARKED), True, out)
        for one in descendant_calls:
            is_asked, judged = one.call.state is ASKED, one.call.judged
            if one.caller in self._calls and not self._calls[one.caller].is_over:
                text = (WAITS if is_asked else WAITS_PARKED).format(judged.name)
                self._result(one.caller, text_result(text), not is_asked, out)
            pending = _Pending(self._descendant_call_id(one), one.run.definition.name, judged)
            (asked if is_asked else parked).append(pending)
        self._ask(asked, parked, out)
        is_done = self._approvals_in_text and not waiting.outputs
        self._close(Finish("stop" if is_done else "tool-calls"), out)

    def _ask(self, asked: list[_Pending], parked: list[_Pending], out: list[Part]) -> None:
        """Adds what waits for a person: as approval requests, where the dialect has them."""
        questions: list[str] = []
        for one in asked:
            if self._approvals_in_text:
                questions.append(QUESTION.format(one.label, one.shown, one.id, one.id))
                continue
            call = _replace(
                self._new_call(one.judged, one.id),
                kind=MCP_APPROVAL,
                provider_executed=True,
                dynamic=True,
                item_id=one.id,  # the client names the item when it answers
                approval_request_id=one.id,
                server_label=one.label,
            )
            out += [call, ToolApprovalRequest(call.id, one.id)]
        if self._approvals_in_text or not self._tools_visible:
            questions += [UNKNOWN.format(one.label, one.shown, one.id) for one in parked]
        if questions:
            id = self._claim("text", "waiting")
            out += [TextStart(id), TextDelta(id, "\n\n".join(questions)), TextEnd(id)]

    def _known(self, ids: Iterable[str]) -> list[tuple[str, _SegmentCall]]:
        return [(id, self._calls[id]) for id in ids if id in self._calls]

    def _run_finished(self, event: RunFinished, out: list[Part]) -> None:
        reason = _REASONS.get(event.reason, event.reason)
        last = self._last
        self._close(Finish(reason, last.raw_reason, stop_sequence=last.stop_sequence), out)

    def _run_failed(self, event: RunFailed, out: list[Part]) -> None:
        retryable = event.code in ("model", "interrupted")
        kind = _ERROR_KINDS[event.code]
        self._fail(ErrorPart(kind, event.message, event.code, retryable=retryable), out)

    def _cancelled(self, event: RunCancelled, out: list[Part]) -> None:
        reason = f": {event.reason}" if event.reason else ""
        self._fail(ErrorPart("cancelled", f"the run was cancelled{reason}"), out)

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        self._end_attempt(out)
        out.append(error)
        self._close(Finish("error"), out)

    def _close(self, finish: Finish, out: list[Part]) -> None:
        self._end_attempt(out)
        out.append(_replace(finish, usage=add_usage(self._usage)))
        self._state = CLOSED


_PARTS: dict[type[Part], Callable[[SegmentMerge, Any, list[Part]], None]] = {
    ResponseMetadata: SegmentMerge._turn_metadata,
    TextStart: SegmentMerge._span_start,
    TextDelta: SegmentMerge._span_part,
    TextEnd: SegmentMerge._span_part,
    ReasoningStart: SegmentMerge._span_start,
    ReasoningDelta: SegmentMerge._span_part,
    ReasoningEnd: SegmentMerge._span_part,
    ToolCall: SegmentMerge._upstream_call,
    ToolResult: SegmentMerge._upstream_result,
    Source: SegmentMerge._source,
    File: SegmentMerge._file,
    Opaque: SegmentMerge._opaque,
    Finish: SegmentMerge._turn_finish,
}
"""Parts of a turn. Those of a call's params are left out: a call comes whole or not at all. So are
its errors: the log says what follows from them."""

_EVENTS: dict[type[LoggedEvent], Callable[[SegmentMerge, Any, list[Part]], None]] = {
    TurnStarted: SegmentMerge._turn_started,
    TurnFinished: SegmentMerge._turn_finished,
    TurnInterrupted: SegmentMerge._turn_interrupted,
    ApprovalRequested: SegmentMerge._approval,
    CallIntended: SegmentMerge._intended,
    CallFinished: SegmentMerge._finished,
    CallResolved: SegmentMerge._resolved,
    RunWaiting: SegmentMerge._waiting,
    RunFinished: SegmentMerge._run_finished,
    RunFailed: SegmentMerge._run_failed,
    RunCancelled: SegmentMerge._cancelled,
}
"""Events of the run. The others change nothing that a client sees: a call that is refused or denied
was never shown, and the client knows what it submits."""


def shown_text(contents: Contents) -> str:
    """A result as text, which is all that the results of MCP calls are for most clients: images and
    files are only named."""
    return "\n".join(
        one.text if isinstance(one, TextContent) else f"[{one.media_type or 'file'}]"
        for one in contents
    )
