"""Calls, each known by its id, in whatever events it comes.

A call may be announced, streamed, ended and then repeated whole; or come only whole; or be streamed
without an announcement. Events with one id are one call. What is missing or contradicts is for the
guard to repair; this module only remembers what came.
"""

from enum import Enum

from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.wire import (
    SdkExtra,
    compact_json,
    copy_unless_null,
    parse_string,
    provider_metadata_of,
)
from weft.dialects.frames import SurrogateJoiner
from weft.dialects.raw_json import pack_extra
from weft.findings import Findings
from weft.ids import Ids
from weft.partial_json import canonical, unwrapped
from weft.parts import (
    Invalid,
    ParamsFormat,
    Part,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)


class SdkCallStage(Enum):
    # The order of a call. INVALID and ANSWERED are both ends; a denied call is answered.
    UNANNOUNCED = "unannounced"  # no start with a name came
    OPEN = "open"
    ENDED = "ended"
    CALLED = "called"
    INVALID = "invalid"
    ANSWERED = "answered"


_COMPLETE = frozenset({SdkCallStage.CALLED, SdkCallStage.INVALID, SdkCallStage.ANSWERED})
_INCOMPLETE = frozenset({SdkCallStage.OPEN, SdkCallStage.ENDED})

# Specification of model parts: `input` is JSON text, and `""` means no arguments.
_EMPTY_INPUT = {"tool-call": "{}", "tool-input-error": ""}
"""Whole calls whose `input` is argument text if it is a string; and what an empty one means."""


class SdkCall:
    __slots__ = ("dynamic", "id", "name", "provider_executed", "stage", "streamed")

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.stage = SdkCallStage.UNANNOUNCED
        self.provider_executed = False
        self.dynamic: bool | None = None
        self.streamed = Buffer()
        """Its arguments so far, to recognise it under another id."""


class SdkCalls:
    """The calls of one response."""

    def __init__(self, ids: Ids, findings: Findings, origin: str | None) -> None:
        self._ids = ids
        self._findings = findings
        self._origin = origin
        self._calls: dict[str, SdkCall] = {}
        """By every id they came under."""
        self._surrogates = SurrogateJoiner(findings)
        self._minted_id: str | None = None
        """The id of the last call that came without one."""

    @property
    def unanswered(self) -> bool:
        """Whether a call waits for its result from the client."""
        waiting = (SdkCallStage.ENDED, SdkCallStage.CALLED)  # ENDED: the whole call may never come
        calls = self._calls.values()
        return any(one.stage in waiting and not one.provider_executed for one in calls)

    def call_id(self, event: wire.SdkEvent) -> str:
        """Returns the call id of an event; a missing one is minted once per announcement."""
        # Arguments are streamed under `id` in model parts, all else under `toolCallId`. That both
        # are equal is a convention of the providers that no type enforces.
        id = event.tool_call_id or event.id
        if id is None and event.tool_call is not None:  # capture: dump-of-an-approval
            id = event.tool_call.tool_call_id
        if id:
            return id
        if self._minted_id is None or event.type == "tool-input-start":
            # One id serves all events up to the next start: without ids calls cannot overlap.
            # capture: call-without-id
            self._minted_id = self._ids.mint("call")
            self._findings.note("call-id-minted", f"{event.type} without an id")
        return self._minted_id

    def _call(self, id: str) -> SdkCall:
        call = self._calls.get(id)
        if call is None:
            self._calls[id] = call = SdkCall(id)
        return call

    # Arguments

    def start(self, event: wire.SdkEvent, out: list[Part]) -> None:
        call = self._call(self.call_id(event))
        # A repeated start changes nothing here; the guard drops the part and reports it.
        if call.stage is SdkCallStage.UNANNOUNCED and event.tool_name:
            call.stage = SdkCallStage.OPEN
            self._set_fields(call, event)
        out.append(_start(call, event))

    def delta(self, event: wire.SdkEvent, out: list[Part]) -> None:
        call = self._call(self.call_id(event))
        text = wire.delta_text(event)
        if self._surrogates.held or not text.isascii():
            text = self._surrogates.feed(call.id, text)
            if not text:
                return
        call.streamed.add(text)
        out.append(ToolParamsDelta(call.id, text))

    def end(self, event: wire.SdkEvent, out: list[Part]) -> None:
        """Reads the end of the arguments. One without any delta is held back: the whole call, which
        comes next, has all of them."""
        id = self.call_id(event)
        call = self._calls.get(id)
        # Providers that read the ids of start and end from two upstream events may find two ids.
        if call is None:  # capture: call-under-another-id
            detail = f"{event.type} of {id!r}, which was not announced"
            self._findings.once("end-without-start", id, detail)
            return
        if call.stage is SdkCallStage.OPEN:
            call.stage = SdkCallStage.ENDED
            if not call.streamed.length:  # capture: call-ended-without-deltas
                return
        out.append(ToolParamsEnd(call.id))

    # Whole calls

    def complete(
        self, event: wire.SdkEvent, out: list[Part], *, invalid: Invalid | None = None
    ) -> None:
        """Reads a whole call: the end of one that was announced, or all of it."""
        id = self.call_id(event)
        params, format = _parse_params(event)
        # The whole call is the rule after streamed arguments, not a second call.
        call = self._calls.get(id) or self._renamed(id, event.tool_name, params) or self._call(id)
        if call.stage is not SdkCallStage.UNANNOUNCED:  # it was announced as JSON
            format = "json"
        if call.stage not in _COMPLETE:
            if call.stage is SdkCallStage.UNANNOUNCED:
                # capture: call-whole-only, call-deltas-without-a-start
                self._set_fields(call, event)
                out.append(_start(call, event, format))
            streamed = bool(call.streamed.length)
            # Streamed arguments win; the guard compares them with those of the whole call.
            # capture: input-differs-from-the-deltas
            if params and not streamed:
                out.append(ToolParamsDelta(call.id, params))
            # Models mark the end of the arguments themselves: one that is missing is a finding.
            # capture: call-without-an-end
            marked = call.stage is SdkCallStage.OPEN and event.type == "tool-call"
            if not streamed or not (marked or call.stage is SdkCallStage.ENDED):
                out.append(ToolParamsEnd(call.id))
            call.stage = SdkCallStage.INVALID if invalid else SdkCallStage.CALLED
        out.append(_tool_call(call, event, params, format, invalid, self._origin))

    def _renamed(self, id: str, name: str | None, params: str) -> SdkCall | None:
        """Returns the one announced call with this name and these arguments: its id changed."""
        # capture: call-under-another-id
        arguments = canonical(params)
        # By name and arguments, and only if one call fits: two equal calls stay two.
        found = [
            call
            for call in self._calls.values()
            if call.stage in _INCOMPLETE
            and call.name == name
            and arguments
            and canonical(call.streamed.text) == arguments
        ]
        if len(found) != 1:
            return None
        call = self._calls[id] = found[0]
        detail = f"call {call.id!r} came again as {id!r}: the first id is kept"
        # capture: call-under-another-id
        self._findings.note("call-id-changed", detail)
        return call

    def _set_fields(self, call: SdkCall, event: wire.SdkEvent) -> None:
        call.name = event.tool_name or ""
        call.provider_executed = bool(event.provider_executed)
        call.dynamic = event.dynamic

    def close(self, out: list[Part]) -> None:
        """Adds the ends that were held back for whole calls that never came."""
        # capture: call-ended-and-never-whole
        ended = (one for one in self._calls.values() if one.stage is SdkCallStage.ENDED)
        out += [ToolParamsEnd(call.id) for call in ended if not call.streamed.length]

    def fail_open(self, out: list[Part]) -> None:
        """Ends the calls that are not complete, as failed."""
        # capture: reset-step
        for call in self._calls.values():
            if call.stage in _INCOMPLETE:
                event = wire.SdkEvent(tool_name=call.name)
                out.append(_tool_call(call, event, "", "json", "stream-failed", self._origin))
                call.stage = SdkCallStage.INVALID

    # Results and approvals

    def result(self, event: wire.SdkEvent, result: Raw, *, is_error: bool) -> list[Part]:
        """Returns the result of a call of this response or of an earlier one."""
        id = self.call_id(event)
        call = self._calls.get(id)
        if call is not None and call.stage is SdkCallStage.INVALID and is_error:
            # It only repeats why the arguments are invalid.
            # capture: input-error-before-output-error
            return []
        executed = event.provider_executed
        if executed is None:
            # Since version 3 a model's `tool-result` is always the provider's and does not say so.
            executed = bool(call and call.provider_executed) or isinstance(event.result, Raw)
        if call is not None and call.stage in _COMPLETE and not event.preliminary:
            call.stage = SdkCallStage.ANSWERED
        extra = SdkExtra(copy_unless_null(event.provider_metadata), dynamic=event.dynamic)
        return [
            ToolResult(
                call.id if call else id,
                result,
                is_error=is_error,
                preliminary=bool(event.preliminary),
                earlier=call is None,  # capture: output-of-an-earlier-response
                provider_executed=executed,
                extra=pack_extra(extra),
            )
        ]

    def approval(self, event: wire.SdkEvent, out: list[Part]) -> None:
        id = self.call_id(event)
        call = self._calls.get(id)
        # The id is all that the answer of the user will refer to.
        approval = event.approval_id or self._ids.mint("approval")
        out.append(ToolApprovalRequest(call.id if call else id, approval))

    def deny(self, event: wire.SdkEvent) -> None:
        """Marks a call as answered: a call that was denied has no result."""
        # capture: output-denied
        call = self._calls.get(self.call_id(event))
        if call is not None:
            call.stage = SdkCallStage.ANSWERED


def _parse_params(event: wire.SdkEvent) -> tuple[str, ParamsFormat]:
    """Returns the arguments of a whole call, and their format.

    A model sends them as JSON text in a string. In a UI message stream `input` is the value itself,
    so that a string is free text, unless it holds an encoded object."""
    text = parse_string(event.input)
    if text is None:  # capture: input-is-an-object
        return compact_json(event.input), "json"
    if event.type in _EMPTY_INPUT:  # capture: input-is-an-empty-string
        return text or _EMPTY_INPUT[event.type], "json"
    # capture: input-is-free-text, input-is-an-encoded-object
    encoded = compact_json(event.input)
    return (text, "text") if unwrapped(encoded) is None else (encoded, "json")


def _start(call: SdkCall, event: wire.SdkEvent, format: ParamsFormat = "json") -> ToolParamsStart:
    """Returns the announcement. The metadata of a whole call is left to its tool-call."""
    extra = SdkExtra(dynamic=event.dynamic)
    if event.type == "tool-input-start":
        extra.provider_metadata = copy_unless_null(event.provider_metadata)
        extra.title = event.title
    _, metadata = provider_metadata_of(event.provider_metadata) or (None, None)
    return ToolParamsStart(
        call.id,
        event.tool_name or "",
        kind="function" if format == "json" else "custom",
        item_id=metadata.item_id if metadata else None,
        provider_executed=bool(event.provider_executed),
        format=format,
        extra=pack_extra(extra),
    )


def _tool_call(
    call: SdkCall,
    event: wire.SdkEvent,
    params: str,
    format: ParamsFormat,
    invalid: Invalid | None,
    origin: str | None,
) -> ToolCall:
    provider, metadata = provider_metadata_of(event.provider_metadata) or (None, None)
    # capture: thought-signature-on-the-call
    signature = (metadata.signature or metadata.thought_signature) if metadata else None
    extra = SdkExtra(
        copy_unless_null(event.provider_metadata),
        dynamic=event.dynamic,
        title=event.title,
        error_text=event.error_text,
    )
    return ToolCall(
        call.id,
        event.tool_name or call.name,
        params,
        kind="function" if format == "json" else "custom",
        provider_executed=call.provider_executed,
        dynamic=bool(event.dynamic if call.dynamic is None else call.dynamic),
        invalid=invalid,
        format=format,
        item_id=metadata.item_id if metadata else None,
        signature=signature,
        origin=(origin or provider) if signature else None,
        extra=pack_extra(extra),
    )
