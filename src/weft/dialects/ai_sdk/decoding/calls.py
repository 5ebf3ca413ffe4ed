"""Calls as they are read: one per id, however it is told.

A call may be announced, streamed, ended, and told once more as a whole; or told as a whole only;
or streamed without an announcement. All of it speaks of one call. The guard repairs; what is
known here is only what the wire has told so far.
"""

from enum import Enum

from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.wire import (
    SdkExtra,
    SurrogateJoiner,
    compact_json,
    copy_unless_null,
    pack_extra,
    parse_string,
    provider_metadata_of,
)
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
    """What the wire has told of a call."""

    UNANNOUNCED = "unannounced"  # without a name so far
    OPEN = "open"
    ENDED = "ended"
    CALLED = "called"
    INVALID = "invalid"  # an error output follows, which only repeats the reason
    ANSWERED = "answered"


_ARGUMENT_TEXT = {"tool-call": "{}", "tool-input-error": ""}
"""Whole calls whose string is the argument text itself; and what an empty one means."""

_COMPLETE = frozenset({SdkCallStage.CALLED, SdkCallStage.INVALID, SdkCallStage.ANSWERED})


class SdkCall:
    __slots__ = ("dynamic", "id", "name", "provider_executed", "stage", "text")

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.stage = SdkCallStage.UNANNOUNCED
        self.provider_executed = False
        self.dynamic: bool | None = None
        self.text = Buffer()
        """What came of its arguments: to know it again under another id."""


class SdkCalls:
    """The calls of one response."""

    def __init__(self, ids: Ids, findings: Findings, origin: str | None) -> None:
        self._ids = ids
        self._findings = findings
        self._origin = origin
        self._calls: dict[str, SdkCall] = {}
        """By every id they were told under."""
        self._surrogates = SurrogateJoiner(findings)
        self._minted_id: str | None = None
        """The id that was minted for a call without one."""

    @property
    def unanswered(self) -> bool:
        """Whether a call waits for the client."""
        waiting = (SdkCallStage.ENDED, SdkCallStage.CALLED)
        calls = self._calls.values()
        return any(one.stage in waiting and not one.provider_executed for one in calls)

    def call_id(self, event: wire.SdkEvent) -> str:
        """The id that an event tells; a missing one is minted once per announcement."""
        told = event.tool_call_id or event.id
        if told is None and event.tool_call is not None:
            told = event.tool_call.tool_call_id
        if told:
            return told
        if self._minted_id is None or event.type == "tool-input-start":
            self._minted_id = self._ids.mint("call")
            self._findings.note("call-id-minted", f"{event.type} without an id")
        return self._minted_id

    def _call(self, id: str) -> SdkCall:
        call = self._calls.get(id)
        if call is None:
            self._calls[id] = call = SdkCall(id)
        return call

    # Its arguments

    def start(self, event: wire.SdkEvent, out: list[Part]) -> None:
        call = self._call(self.call_id(event))
        start = _start(call, event)
        if call.stage is SdkCallStage.UNANNOUNCED and start.name:
            call.stage = SdkCallStage.OPEN
            self._remember(call, event)
        out.append(start)

    def delta(self, event: wire.SdkEvent, out: list[Part]) -> None:
        call = self._call(self.call_id(event))
        text = self._surrogates.feed(call.id, wire.delta_text(event))
        if text is not None:
            call.text.add(text)
            out.append(ToolParamsDelta(call.id, text))

    def end(self, event: wire.SdkEvent, out: list[Part]) -> None:
        """An end that nothing came before waits for the call, which tells all of it."""
        id = self.call_id(event)
        call = self._calls.get(id)
        if call is None:
            detail = f"{event.type} of {id!r}, which was not announced"
            self._findings.once("end-without-start", id, detail)
            return
        if call.stage is SdkCallStage.OPEN:
            call.stage = SdkCallStage.ENDED
            if not call.text.length:
                return
        out.append(ToolParamsEnd(call.id))

    # The call

    def complete(
        self, event: wire.SdkEvent, out: list[Part], *, invalid: Invalid | None = None
    ) -> None:
        """A whole call: it completes the one that was announced, or is all there is of it."""
        id = self.call_id(event)
        params, format = _parse_params(event)
        call = (
            self._calls.get(id)
            or self._find_by_arguments(id, event.tool_name, params)
            or self._call(id)
        )
        if call.stage is not SdkCallStage.UNANNOUNCED:
            format = "json"
        if call.stage not in _COMPLETE:
            if call.stage is SdkCallStage.UNANNOUNCED:
                self._remember(call, event)
                out.append(_start(call, event, format))
            self._end_params(call, event, params, out)
            call.stage = SdkCallStage.INVALID if invalid else SdkCallStage.CALLED
        out.append(_tool_call(call, event, params, format, invalid, self._origin))

    def _end_params(
        self, call: SdkCall, event: wire.SdkEvent, params: str, out: list[Part]
    ) -> None:
        """What of a call's arguments the wire left to the whole; and their end.

        A model tells the end itself. If it did not, the guard says so."""
        silent = not call.text.length
        if silent and params:
            out.append(ToolParamsDelta(call.id, params))
        told_apart = call.stage is SdkCallStage.OPEN and event.type == "tool-call" and not silent
        if not told_apart and (silent or call.stage is not SdkCallStage.ENDED):
            out.append(ToolParamsEnd(call.id))

    def _find_by_arguments(self, id: str, name: str | None, params: str) -> SdkCall | None:
        """The one announced call with this name and these arguments, if its id changed."""
        waiting = (
            one
            for one in self._calls.values()
            if one.stage in (SdkCallStage.OPEN, SdkCallStage.ENDED) and one.name == name
        )
        meant = canonical(params)
        found = [one for one in waiting if meant and canonical(one.text.text) == meant]
        if len(found) != 1:
            return None
        call = self._calls[id] = found[0]
        detail = f"call {call.id!r} was told again as {id!r}: the first id stays"
        self._findings.note("call-id-changed", detail)
        return call

    def _remember(self, call: SdkCall, event: wire.SdkEvent) -> None:
        call.name = event.tool_name or ""
        call.provider_executed = bool(event.provider_executed)
        call.dynamic = event.dynamic

    def close(self, out: list[Part]) -> None:
        """The ends that waited for calls which never came."""
        ended = (one for one in self._calls.values() if one.stage is SdkCallStage.ENDED)
        out += [ToolParamsEnd(call.id) for call in ended if not call.text.length]

    def fail_open(self, out: list[Part]) -> None:
        """Ends the calls that are still being told: they will not be told again."""
        for call in self._calls.values():
            if call.stage in (SdkCallStage.OPEN, SdkCallStage.ENDED):
                told = wire.SdkEvent(tool_name=call.name)
                out.append(_tool_call(call, told, "", "json", "stream-failed", self._origin))
                call.stage = SdkCallStage.INVALID

    # What comes after it

    def result(self, event: wire.SdkEvent, result: Raw, *, is_error: bool) -> list[Part]:
        """A result belongs to its call, wherever that was made."""
        id = self.call_id(event)
        call = self._calls.get(id)
        if call is not None and call.stage is SdkCallStage.INVALID and is_error:
            return []  # it only repeats why the arguments were no good
        executed = event.provider_executed
        if executed is None:
            whose = call is not None and call.provider_executed
            executed = whose or isinstance(event.result, Raw)
        if call is not None and call.stage in _COMPLETE and not event.preliminary:
            call.stage = SdkCallStage.ANSWERED
        return [
            ToolResult(
                call.id if call else id,
                result,
                is_error=is_error,
                preliminary=bool(event.preliminary),
                earlier=call is None,
                provider_executed=executed,
                extra=pack_extra(
                    SdkExtra(copy_unless_null(event.provider_metadata), dynamic=event.dynamic)
                ),
            )
        ]

    def approval(self, event: wire.SdkEvent, out: list[Part]) -> None:
        id = self.call_id(event)
        call = self._calls.get(id)
        approval = event.approval_id or self._ids.mint("approval")
        out.append(ToolApprovalRequest(call.id if call else id, approval))

    def deny(self, event: wire.SdkEvent) -> None:
        """Nobody waits for the result of a call that was denied."""
        call = self._calls.get(self.call_id(event))
        if call is not None:
            call.stage = SdkCallStage.ANSWERED


def _parse_params(event: wire.SdkEvent) -> tuple[str, ParamsFormat]:
    """The arguments of a whole call, and what they are.

    A model sends JSON in a string, and the empty one means no arguments. In the other stream a
    string is a value like any other: free text, unless there is an object encoded in it."""
    text = parse_string(event.input)
    if text is None:
        return compact_json(event.input), "json"
    if event.type in _ARGUMENT_TEXT:
        return text or _ARGUMENT_TEXT[event.type], "json"
    spelled = compact_json(event.input)
    return (text, "text") if unwrapped(spelled) is None else (spelled, "json")


def _item_id(event: wire.SdkEvent) -> str | None:
    found = provider_metadata_of(event.provider_metadata)
    return found[1].item_id if found else None


def _start(call: SdkCall, event: wire.SdkEvent, format: ParamsFormat = "json") -> ToolParamsStart:
    """The announcement. What a whole call tells beside it stays with the call."""
    extra = SdkExtra(dynamic=event.dynamic)
    if event.type == "tool-input-start":
        extra.provider_metadata, extra.title = (
            copy_unless_null(event.provider_metadata),
            event.title,
        )
    return ToolParamsStart(
        call.id,
        event.tool_name or "",
        kind="function" if format == "json" else "custom",
        item_id=_item_id(event),
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
    signer, proof = provider_metadata_of(event.provider_metadata) or (
        None,
        wire.SdkProviderMetadata(),
    )
    signature = proof.signature or proof.thought_signature
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
        item_id=proof.item_id,
        signature=signature,
        origin=(origin or signer) if signature else None,
        extra=pack_extra(extra),
    )
