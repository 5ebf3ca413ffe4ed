"""`POST /v1/responses/{id}/submit_tool_outputs`: an answer that called tools goes on with what they
gave, as a response of its own, asked for as the first one was.

Whoever notes in a response which one goes on from it has named that one; whoever begins to store
it under that name runs it. Everybody else who brings the same outputs is told what it says,
wherever it runs. One that failed may be tried again: it notes in turn which one took its place.
So a process that dies on the way leaves nothing that another submission would wait for.
"""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Failure
from weft.codec import fresh_context
from weft.dialects.faults import fault
from weft.errors import BadRequest, InternalError
from weft.gateway import http_response
from weft.gateway.apis import RESPONSES
from weft.gateway.endpoints import (
    ClientConnection,
    DisconnectWatcher,
    GatewayContext,
    Scope,
    Send,
    decode_body,
)
from weft.gateway.http_protocol import EXCHANGE
from weft.gateway.responses import ResponsesEndpoint
from weft.gateway.sessions import RUNNING, Sessions, parse_preamble, queued_snapshot
from weft.gateway.stored_responses import events_of, not_found, response_body, stream_events
from weft.parts import ErrorPart, Json
from weft.relay import history
from weft.relay.incoming import Failed, IncomingRequest
from weft.relay.log import POLL
from weft.relay.offload import for_body
from weft.relay.persistence import ANSWERED, resumed, with_status
from weft.relay.run import Run
from weft.store.base import StoreError, Taken
from weft.store.records import Entry

CLAIM_TIMEOUT = 1.0
"""Seconds that whoever named a response has to begin it, before another does."""

_ID_FIELDS = ("tool_call_id", "call_id", "approval_request_id")
"""What a client may call the id of what it answers."""

_REPLACED_FIELDS = ("input", "previous_response_id", "conversation", "stream")
"""The fields of a request that its continuation has others of."""

_TEXT_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
"""Calls whose outputs are a text, or parts like those of a message."""

APPROVAL = "mcp_approval_request"
OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "function_call_output",  # as the only client that has such a tool does
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "tool_search_call": "tool_search_output",
    APPROVAL: "mcp_approval_response",
}
"""What a client is asked for, and what it answers with."""

ToolOutput = Mapping[str, Raw]


class _Submission(msgspec.Struct, forbid_unknown_fields=True):
    tool_outputs: list[dict[str, Raw]]
    stream: bool | None = None


class _RequiredCall(msgspec.Struct, frozen=True):
    id: str


class _RequiredCalls(msgspec.Struct, frozen=True):
    tool_calls: tuple[_RequiredCall, ...] = ()


class _RequiredAction(msgspec.Struct, frozen=True):
    submit_tool_outputs: _RequiredCalls = _RequiredCalls()


class _StoredResponse(msgspec.Struct):
    """As much of a response object as says what it waits for."""

    output: list[Raw] = []
    required_action: _RequiredAction | None = None


class _ToolChoice(msgspec.Struct):
    type: str = ""
    mode: str = ""


class _Record(msgspec.Struct):
    error: Failure | None = None


_submission = msgspec.json.Decoder(_Submission).decode
_answer = msgspec.json.Decoder(_StoredResponse).decode
_choice: Callable[[Raw], _ToolChoice | str] = msgspec.json.Decoder(_ToolChoice | str).decode
_record = msgspec.json.Decoder(_Record).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_text = msgspec.json.Decoder(str).decode
_json = msgspec.json.Encoder().encode


# What a response waits for, and what comes of it


class PendingCalls:
    """The calls of a response that its client can answer, and those that it must."""

    def __init__(self, first: Entry) -> None:
        self._response_id = first.id
        told = _answer(first.body or b"{}") if first.status in ANSWERED else _StoredResponse()
        found = [history.shape(one) for one in told.output]
        answered = {one.call_id for one in found if one.is_output}
        self._types: dict[str, str] = {}
        """What each of them is, in the order they were made."""
        self._names: dict[str, str] = {}
        """Clients may name a call by the id of its item."""
        for one in found:
            id = one.id if one.type == APPROVAL else one.call_id
            if id is not None and one.type in OUTPUTS and id not in answered and not one.is_cut:
                self._types[id] = one.type
                self._names |= {one.id or id: id}
        self._names |= {id: id for id in self._types}
        action = told.required_action
        listed = () if action is None else action.submit_tool_outputs.tool_calls
        self._required = [one.id for one in listed if one.id in self._types] or list(self._types)

    def items_for(self, outputs: Sequence[ToolOutput]) -> list[Raw]:
        """The items that these outputs are, in the order of their calls. Raises BadRequest."""
        if not self._types:
            raise BadRequest("tool_outputs", f"{self._response_id} waits for no outputs")
        items: dict[str, Raw] = {}
        for place, told in enumerate(outputs):
            path = f"tool_outputs[{place}]"
            name, id = _named(told, path)
            known = self._names.get(id)
            if known is None:
                waiting = ", ".join(map(repr, self._types))
                message = (
                    f"{id[:100]!r} is no call of {self._response_id}, which waits for {waiting}"
                )
                raise BadRequest(f"{path}.{name}", message)
            if known in items:
                raise BadRequest(f"{path}.{name}", f"{id!r} is answered twice")
            items[known] = _item(self._types[known], known, told, path)
        left = [id for id in self._required if id not in items]
        if left:
            raise BadRequest("tool_outputs", f"no output for {', '.join(map(repr, left))}")
        return [items[id] for id in self._types if id in items]


def _named(told: ToolOutput, path: str) -> tuple[str, str]:
    """Which call is answered, and where that is said."""
    given = {name: told[name] for name in _ID_FIELDS if name in told}
    try:
        ids = {_text(one) for one in given.values()}
    except ValueError:
        raise BadRequest(f"{path}.{min(given)}", "expected a text") from None
    if len(ids) != 1:
        problem = f"missing; expected one of {', '.join(_ID_FIELDS)}"
        raise BadRequest(f"{path}.{_ID_FIELDS[0]}", "more than one" if ids else problem)
    return next(iter(given)), ids.pop()


def _item(type: str, id: str, told: ToolOutput, path: str) -> Raw:
    """The item that answers a call of this type."""
    fields = {name: value for name, value in told.items() if name not in (*_ID_FIELDS, "type")}
    wanted = "approve" if type == APPROVAL else "output"
    unknown = fields.keys() - {wanted, "reason" if type == APPROVAL else "status"}
    if unknown and (type in _TEXT_CALLS or type == APPROVAL):
        raise BadRequest(f"{path}.{min(unknown)}", f"unknown; expected {wanted}")
    begins = bytes(fields.get(wanted, b"")).lstrip()[:1]
    if type in _TEXT_CALLS and begins not in (b'"', b"["):
        raise BadRequest(f"{path}.output", "expected a text, or an array of content parts")
    if type == APPROVAL and begins not in (b"t", b"f"):
        raise BadRequest(f"{path}.approve", "expected true or false")
    name = "approval_request_id" if type == APPROVAL else "call_id"
    return Raw(_json({"type": OUTPUTS[type], name: id, **fields}))


def continuation(first: Entry, items: Sequence[Raw], stream: bool) -> bytes:
    """The request that goes on from a response with these items."""
    fields = {
        name: one for name, one in _fields(first.request).items() if name not in _REPLACED_FIELDS
    }
    if not stream:
        fields.pop("stream_options", None)
    if _forces(fields.get("tool_choice", UNSET)):
        del fields["tool_choice"]
    before = {"previous_response_id": first.id}
    if first.conversation is not None:
        before = {"conversation": first.conversation}
    return _json({**fields, **before, "input": items, "stream": stream})


def _forces(choice: Json) -> bool:
    """Whether a model must call a tool. Then it did, and now it may answer: else it never could."""
    if not isinstance(choice, Raw) or bytes(choice) == b"null":
        return False
    told = _choice(choice)
    if isinstance(told, str):
        return told == "required"
    return told.type != "allowed_tools" or told.mode == "required"


# The endpoint


class SubmitToolOutputs(ResponsesEndpoint):
    """Takes the outputs of the calls of one response."""

    def __init__(self, host: GatewayContext, sessions: Sessions) -> None:
        super().__init__(host, RESPONSES, sessions)

    async def _parse_request(self, scope: Scope, body: bytes) -> IncomingRequest:
        submission = await for_body(body, decode_body, _submission, body)
        first, stream = await self._find_response(scope), bool(submission.stream)

        def going_on() -> bytes:
            items = PendingCalls(first).items_for(submission.tool_outputs)
            return continuation(first, items, stream)

        largest = max(body, first.body or b"", first.request, key=len)
        request = await for_body(largest, going_on)
        incoming = self._build_request(scope, request, first.model, stream)
        preamble = await for_body(request, parse_preamble, request)
        recalled = await self._sessions.with_history(incoming, preamble)
        return replace(recalled, previous=first.id)

    async def _find_response(self, scope: Scope) -> Entry:
        id = scope["path_params"]["id"]
        entry = await self._sessions.store.owned(scope["weft.caller"], id)
        if entry is None or not entry.visible or entry.dialect != RESPONSES:
            raise not_found("Response", id)
        if entry.status in RUNNING:
            raise Failed(fault("conflict", f"{id} is still {entry.status}"))
        return entry

    async def _start(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        client = ClientConnection(scope["weft.id"], RESPONSES, send, scope[EXCHANGE].write)
        while True:
            id, found = await self._claim_next(incoming.previous or "")
            if found is None:
                incoming = replace(incoming, response_id=id)
                run = await self._start_claimed(incoming)
                if run is not None and not incoming.background:
                    if not (incoming.stream and self._sessions.window):
                        return run
                    await self._sessions.detach(run, self._gateway.end_run)
                found = await self._sessions.store.entry(id)
            if found is not None:
                await self._replay(found, incoming, scope, client)
                return None

    # Who runs it

    async def _claim_next(self, first: str) -> tuple[str, Entry | None]:
        """The name of what goes on from a response; and that itself, if somebody began it."""
        store, last = self._sessions.store, first
        while True:
            entry = await store.entry(last)
            if entry is None:
                raise not_found("Response", first)
            if entry.answered is None:
                id = fresh_context().ids.mint("resp")
                if await store.set_answered(last, id):
                    return id, None
                continue
            found = await self._wait_for_start(entry.answered)
            if found is None or found.ended is None or found.status in ANSWERED:
                return entry.answered, found
            last = found.id

    async def _wait_for_start(self, id: str) -> Entry | None:
        """What was named; None if nobody begins it."""
        for _ in range(round(CLAIM_TIMEOUT / POLL)):
            found = await self._sessions.store.entry(id)
            if found is not None:
                return found
            await asyncio.sleep(POLL)
        return None

    async def _start_claimed(self, incoming: IncomingRequest) -> Run | None:
        """Begins what was named; None if somebody else did."""
        run = self._gateway.start(replace(incoming, stream=incoming.stream or incoming.background))
        try:
            if incoming.background:
                await self._sessions.launch(run, incoming, self._gateway.end_run)
            else:
                await _announced(run, incoming)
        except (StoreError, Taken) as problem:
            await run.close()
            self._gateway.end_run(run)
            if isinstance(problem, Taken):
                return None
            raise
        return run

    async def _serve(self, run: Run, scope: Scope, send: Send) -> None:
        """What has begun ends, however it went: others may wait for it. That it failed is stored
        before its client hears of it, and may try again."""

        async def told(message: MutableMapping[str, Any]) -> None:
            if message.get("status", 200) != 200:
                await _settled(run)
            await send(message)

        try:
            await super()._serve(run, scope, told)
        finally:
            await _settled(run)

    # Who brings the same

    async def _replay(
        self, found: Entry, incoming: IncomingRequest, scope: Scope, client: ClientConnection
    ) -> None:
        """Tells what these outputs have led to already, or are leading to."""
        if incoming.store is None or not _same(found.input, incoming.store.input):
            message = f"{incoming.previous} was answered with other outputs: see {found.id}"
            raise Failed(fault("conflict", message))
        if incoming.stream and found.stream:
            events = self._sessions.events(found.id)
            await stream_events(scope, client, events, self._following(), self._gateway.keepalive)
        elif found.background:
            await self._send_entry(found, incoming, client)
        else:
            ended = await self._wait_for_end(found.id, scope)
            if ended is not None:
                await self._send_entry(ended, incoming, client)

    async def _wait_for_end(self, id: str, scope: Scope) -> Entry | None:
        """A response, once it has ended; None if the client did not wait."""
        watcher = DisconnectWatcher(scope[EXCHANGE])
        try:
            return await self._ended_entry(id)
        except asyncio.CancelledError:
            if not watcher.disconnected:
                raise
            return None
        finally:
            watcher.stop()

    async def _ended_entry(self, id: str) -> Entry:
        logs, store = self._sessions.persistence.logs, self._sessions.store
        while True:
            log = logs.get(id)
            if log is not None:
                await log.changed()
                continue
            entry = await store.entry(id)
            if entry is None:
                raise not_found("Response", id)
            if entry.ended is not None:
                return entry
            await asyncio.sleep(POLL)

    async def _send_entry(
        self, entry: Entry, incoming: IncomingRequest, client: ClientConnection
    ) -> None:
        """Tells a response as it stands; one that failed as the error it was."""
        headers = http_response.weft_headers(client.id)
        if entry.status in ANSWERED:
            await resumed(self._sessions.store, incoming.previous or "")
        failure = _record(entry.record or b"{}").error if entry.ended is not None else None
        if failure is not None:
            await http_response.send_error(client.send, RESPONSES, Failed(_error(failure)), headers)
        elif incoming.stream:
            events = await for_body(entry.body or b"", events_of, entry)
            written = self._following().write(events)
            await http_response.send_body(
                client.send, 200, written, [*http_response.STREAM_HEADERS, *headers]
            )
        else:
            data = await for_body(entry.body or b"", response_body, entry)
            await http_response.send_body(
                client.send, 200, data, [http_response.JSON_TYPE, *headers]
            )


async def _announced(run: Run, incoming: IncomingRequest) -> None:
    """Stores that there is such a response, before anybody is asked for it."""
    writer, id = run.writer, incoming.response_id
    if writer is None or id is None:
        raise InternalError("a continuation has no name")
    snapshot = await for_body(incoming.body.raw, queued_snapshot, incoming)
    await writer.announce(id, "in_progress", with_status(snapshot, "in_progress"))


async def _settled(run: Run) -> None:
    """Stores that there is no answer, if none was."""
    writer = run.writer
    if writer is not None and writer.running:
        with suppress(StoreError):
            await run.fail(_problem(run))


def _problem(run: Run) -> ErrorPart:
    """Why there is no answer."""
    record = run.record
    failure = None if record.response is None else record.response.error
    if record.error is not None:
        return record.error
    return fault("server", "there was no answer") if failure is None else _error(failure)


def _error(failure: Failure) -> ErrorPart:
    return ErrorPart(failure.kind, failure.message, failure.code, failure.status, failure.retryable)


def _same(one: bytes, other: bytes) -> bool:
    """Whether two submissions bring the same, however they spell it."""
    return one == other or bool(msgspec.json.decode(one) == msgspec.json.decode(other))
