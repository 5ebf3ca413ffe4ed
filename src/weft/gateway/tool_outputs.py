"""`POST /v1/responses/{id}/submit_tool_outputs`: continues a response that called tools with their
outputs, as a new response with the options of the first.

Each response records the id of its continuation. The submission that records it first has claimed
that id, and the one that begins to store a response under it runs the continuation. Everybody else
who submits the same outputs gets the same response, wherever it runs. A continuation that failed
may be tried again: it records in turn which response replaced it. So a process that dies on the way
leaves nothing that another submission would wait for."""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from weft import large_json
from weft.assembler import Failure
from weft.codec import fresh_context
from weft.dialects.error_classes import new_error
from weft.dialects.raw_json import same_json
from weft.errors import BadRequest, InternalError
from weft.gateway import http_response
from weft.gateway.apis import RESPONSES
from weft.gateway.endpoints import DisconnectWatcher, GatewayContext, Scope, Send, decode_body
from weft.gateway.exchange import EXCHANGE
from weft.gateway.http_response import ClientConnection
from weft.gateway.memory import RESERVED, MemoryReservation, json_cost
from weft.gateway.responses import ResponsesEndpoint
from weft.gateway.sessions import RUNNING, Sessions, parse_preamble, queued_snapshot
from weft.gateway.stored_responses import events_of, not_found, response_body, stream_events
from weft.parts import ErrorPart, Json
from weft.relay import history
from weft.relay.incoming import IncomingRequest, RequestFailed
from weft.relay.log import POLL_INTERVAL
from weft.relay.offload import for_body
from weft.relay.persistence import ANSWERED, complete_waiting, with_status
from weft.relay.run import Run
from weft.store.base import AlreadyExists, StoreError
from weft.store.records import Entry

CLAIM_TIMEOUT = 1.0
"""Seconds to wait for the owner of a claimed id to begin, before taking over."""

_ID_FIELDS = ("tool_call_id", "call_id", "approval_request_id")
"""The fields in which a client may name the call that an output belongs to."""

_REPLACED_FIELDS = ("input", "previous_response_id", "conversation", "stream")
"""Fields of the first request that its continuation replaces."""

_TEXT_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
"""Calls whose outputs are a text, or content parts like those of a message."""

APPROVAL = "mcp_approval_request"
OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "function_call_output",  # as Codex, its only client, answers it
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "tool_search_call": "tool_search_output",
    APPROVAL: "mcp_approval_response",
}
"""The item types that a client can answer, and the type of the answer."""

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
    """The fields of a response object that say what it waits for."""

    output: list[Raw] = []
    required_action: _RequiredAction | None = None


class _ToolChoice(msgspec.Struct):
    type: str = ""
    mode: str = ""


class _Record(msgspec.Struct):
    error: Failure | None = None


_submission = msgspec.json.Decoder(_Submission).decode
_answer = large_json.skimmer(_StoredResponse)
_choice: Callable[[Raw], _ToolChoice | str] = msgspec.json.Decoder(_ToolChoice | str).decode
_record = large_json.skimmer(_Record)
_text = msgspec.json.Decoder(str).decode
_json = msgspec.json.Encoder().encode


class PendingCalls:
    """The calls of a response that its client may answer, and those that it must."""

    def __init__(self, first: Entry) -> None:
        self._response_id = first.id
        response = _answer(first.body or b"{}") if first.status in ANSWERED else _StoredResponse()
        found = [history.read_shape(one) for one in response.output]
        answered = {one.call_id for one in found if one.is_output}
        self._types: dict[str, str] = {}
        """The types of the calls, by id, in order."""
        self._names: dict[str, str] = {}
        """The ids of the calls, by all their names: a client may use the id of the item."""
        for one in found:
            id = one.id if one.type == APPROVAL else one.call_id
            # A call that was cut off has arguments that nobody can run.
            if id is not None and one.type in OUTPUTS and id not in answered and not one.is_cut:
                self._types[id] = one.type
                self._names |= {one.id or id: id}
        self._names |= {id: id for id in self._types}
        action = response.required_action
        # If the response lists what it waits for, the list decides; otherwise it waits for every
        # call.
        listed = () if action is None else action.submit_tool_outputs.tool_calls
        self._required = [one.id for one in listed if one.id in self._types] or list(self._types)

    def items_for(self, outputs: Sequence[ToolOutput]) -> list[Raw]:
        """The input items for these outputs, in the order of their calls. Raises BadRequest."""
        if not self._types:
            raise BadRequest("tool_outputs", f"{self._response_id} does not wait for tool outputs")
        items: dict[str, Raw] = {}
        for index, output in enumerate(outputs):
            path = f"tool_outputs[{index}]"
            name, id = _call_id(output, path)
            known = self._names.get(id)
            if known is None:
                waiting = ", ".join(map(repr, self._types))
                message = f"{id[:100]!r} is not a pending call; expected one of {waiting}"
                raise BadRequest(f"{path}.{name}", message)
            if known in items:
                raise BadRequest(f"{path}.{name}", f"{id!r} has two outputs; expected one")
            items[known] = _item(self._types[known], known, output, path)
        missing = [id for id in self._required if id not in items]
        if missing:
            raise BadRequest("tool_outputs", f"missing output for {', '.join(map(repr, missing))}")
        # In the order of the calls: equal outputs, sent in another order, are the same submission.
        return [items[id] for id in self._types if id in items]


def _call_id(output: ToolOutput, path: str) -> tuple[str, str]:
    """The field that names the call of an output, and its id."""
    given = {name: output[name] for name in _ID_FIELDS if name in output}
    try:
        ids = {_text(one) for one in given.values()}
    except ValueError:
        raise BadRequest(f"{path}.{min(given)}", "expected a string") from None
    if len(ids) != 1:
        problem = f"missing; expected one of {', '.join(_ID_FIELDS)}"
        raise BadRequest(f"{path}.{_ID_FIELDS[0]}", "more than one id" if ids else problem)
    return next(iter(given)), ids.pop()


def _item(type: str, id: str, output: ToolOutput, path: str) -> Raw:
    """The input item for the output of a call of this type."""
    fields = {name: value for name, value in output.items() if name not in (*_ID_FIELDS, "type")}
    wanted = "approve" if type == APPROVAL else "output"
    unknown = fields.keys() - {wanted, "reason" if type == APPROVAL else "status"}
    # Other outputs have fields of their own, which the upstream's parser checks.
    if unknown and (type in _TEXT_CALLS or type == APPROVAL):
        raise BadRequest(f"{path}.{min(unknown)}", f"unknown field; expected {wanted}")
    begins = large_json.first_byte(fields.get(wanted, b""))
    if type in _TEXT_CALLS and begins not in (b'"', b"["):
        raise BadRequest(f"{path}.output", "expected a string, or an array of content parts")
    if type == APPROVAL and begins not in (b"t", b"f"):
        raise BadRequest(f"{path}.approve", "expected true or false")
    name = "approval_request_id" if type == APPROVAL else "call_id"
    return Raw(_json({"type": OUTPUTS[type], name: id, **fields}))


def continuation(first: Entry, items: Sequence[Raw], stream: bool) -> bytes:
    """The request that continues a response with these items."""
    members = large_json.members(first.request).items()
    fields = {name: one for name, one in members if name not in _REPLACED_FIELDS}
    if not stream:
        # Allowed only together with `stream: true`.
        fields.pop("stream_options", None)
    if _forces(fields.get("tool_choice", UNSET)):
        del fields["tool_choice"]
    before = {"previous_response_id": first.id}
    # The conversation holds the turns already; with both, the request would be refused.
    if first.conversation is not None:
        before = {"conversation": first.conversation}
    return _json({**fields, **before, "input": items, "stream": stream})


def _forces(choice: Json) -> bool:
    """Whether the model must call a tool. It did: if it still had to, it could never answer."""
    if not isinstance(choice, Raw) or bytes(choice) == b"null":
        return False
    found = _choice(choice)
    if isinstance(found, str):
        return found == "required"
    return found.type != "allowed_tools" or found.mode == "required"


class ToolOutputsEndpoint(ResponsesEndpoint):
    """Accepts the tool outputs of one response."""

    def __init__(self, gateway: GatewayContext, sessions: Sessions) -> None:
        super().__init__(gateway, RESPONSES, sessions)

    async def parse_request(self, scope: Scope, body: bytes) -> IncomingRequest:
        submission = await for_body(body, decode_body, _submission, body)
        id, stream = scope["path_params"]["id"], bool(submission.stream)
        reserved: MemoryReservation | None = scope.get(RESERVED)
        async with self._sessions.reading:
            model, request = await self._continuation(scope["weft.caller"], id, submission, body)
            # It has the options of the first request, which may be larger than the submission.
            if reserved is not None:
                reserved.reserve_more(await for_body(request, json_cost, [request]))
        incoming = self._build_request(scope, request, model, stream)
        preamble = await for_body(request, parse_preamble, request)
        continued = await self._sessions.with_history(incoming, preamble, reserved)
        # Also in a conversation: the continuation is found by it.
        return replace(continued, previous=id)

    async def _continuation(
        self, caller: str, id: str, submission: _Submission, body: bytes
    ) -> tuple[str, bytes]:
        """Returns the model of a response, and the request that continues it. Raises RequestFailed,
        BadRequest, StoreError."""
        first = await self._sessions.store.owned(caller, id)
        if first is None or not first.visible or first.dialect != RESPONSES:
            raise not_found("Response", id)
        if first.status in RUNNING:
            raise RequestFailed(new_error("conflict", f"{id} is still {first.status}"))

        def build() -> bytes:
            items = PendingCalls(first).items_for(submission.tool_outputs)
            return continuation(first, items, bool(submission.stream))

        largest = max(body, first.body or b"", first.request, key=len)
        return first.model, await for_body(largest, build)

    async def _start(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        client = self._client(scope, send)
        while True:
            id, found = await self._claim_next(incoming.previous or "")
            if found is None:
                incoming = replace(incoming, response_id=id)
                run = await self._start_claimed(incoming)
                if run is not None:
                    if not (incoming.stream and self._sessions.window):
                        return run
                    await self._sessions.detach(run, self._gateway.end_run)
                found = await self._sessions.store.entry(id)
            if found is not None:
                await self._replay(found, incoming, scope, client)
                return None

    # Claiming

    async def _claim_next(self, first: str) -> tuple[str, Entry | None]:
        """Returns the id of the continuation of a response, and its entry once it has begun."""
        store, last = self._sessions.store, first
        while True:
            entry = await store.entry(last)
            if entry is None:
                raise not_found("Response", first)
            if entry.answered is None:
                id = fresh_context().ids.mint("resp")
                # Compare and set, in the database: of all that submit, in whatever process, one
                # gets the id.
                if await store.set_answered(last, id):
                    return id, None
                continue
            found = await self._wait_for_start(entry.answered)
            # Not begun: the process that claimed it may have died, so this one begins it under the
            # same id; if both do, one fails with AlreadyExists. Running or answered: this is the
            # response. Failed: go on to what replaced it, or claim that.
            if found is None or found.ended is None or found.status in ANSWERED:
                return entry.answered, found
            last = found.id

    async def _wait_for_start(self, id: str) -> Entry | None:
        """Returns the entry of a claimed id; None if nobody begins it in time."""
        for _ in range(round(CLAIM_TIMEOUT / POLL_INTERVAL)):
            found = await self._sessions.store.entry(id)
            if found is not None:
                return found
            await asyncio.sleep(POLL_INTERVAL)
        return None

    async def _start_claimed(self, incoming: IncomingRequest) -> Run | None:
        """Begins a claimed continuation; returns its run unless it runs in the background, or
        another process has begun it."""
        if incoming.background:
            with suppress(AlreadyExists):
                await self._gateway.launch(incoming)
            return None
        run = await self._gateway.start(incoming)
        try:
            writer, id = run.writer, incoming.response_id
            if writer is None or id is None:
                raise InternalError("a continuation has no id")
            snapshot = await for_body(incoming.body.raw, queued_snapshot, incoming)
            # Before the request goes upstream: from here on no other process begins it.
            await writer.announce(id, "in_progress", with_status(snapshot, "in_progress"))
        except (StoreError, AlreadyExists) as problem:
            await run.close()
            self._gateway.end_run(run)
            if isinstance(problem, AlreadyExists):
                return None
            raise
        return run

    async def _serve(self, run: Run, scope: Scope, send: Send) -> None:
        """Always stores an end, since others may wait for it; a failure before the client gets it,
        and may try again."""

        async def send_after_end(message: MutableMapping[str, Any]) -> None:
            # The head of an error is about to leave: a client that reads it may submit again at
            # once, and must not find this one still running.
            if message.get("status", 200) != 200:
                await _ensure_ended(run)
            await send(message)

        try:
            await super()._serve(run, scope, send_after_end)
        finally:
            await _ensure_ended(run)

    # Repeated submissions

    async def _replay(
        self, found: Entry, incoming: IncomingRequest, scope: Scope, client: ClientConnection
    ) -> None:
        """Sends the response that the same outputs have led to already."""
        # The outputs were checked and put in order, so they are compared as values: key order and
        # blanks of two clients may differ.
        if incoming.store is None or not same_json(found.input, incoming.store.input):
            message = f"{incoming.previous} was continued with other outputs, as {found.id}"
            raise RequestFailed(new_error("conflict", message))
        if incoming.stream and found.stream:
            events = self._sessions.events(found.id)
            writer = self._stream_writer()
            await stream_events(scope, client, events, writer, self._gateway.keepalive)
        elif found.background:
            await self._send_entry(found, incoming, client)
        else:
            watcher = DisconnectWatcher(scope[EXCHANGE])
            try:
                ended = await self._ended_entry(found.id)
            except asyncio.CancelledError:
                if not watcher.disconnected:
                    raise
                return
            finally:
                watcher.stop()
            await self._send_entry(ended, incoming, client)

    async def _ended_entry(self, id: str) -> Entry:
        """Waits for the end of a response, wherever it runs."""
        logs, store = self._sessions.persistence.logs, self._sessions.store
        while True:
            log = logs.get(id)
            if log is not None:
                # It runs in this process: woken by its log. (Elsewhere only polling tells.)
                await log.changed()
                continue
            entry = await store.entry(id)
            if entry is None:
                raise not_found("Response", id)
            if entry.ended is not None:
                return entry
            await asyncio.sleep(POLL_INTERVAL)

    async def _send_entry(
        self, entry: Entry, incoming: IncomingRequest, client: ClientConnection
    ) -> None:
        """Sends a response as stored; one that failed as its error."""
        headers = http_response.weft_headers(client.id)
        if entry.status in ANSWERED:
            # The process that ran the continuation may have died before it could mark the first
            # response as complete; it is harmless to do so twice.
            await complete_waiting(self._sessions.store, incoming.previous or "")
        failure = _record(entry.record or b"{}").error if entry.ended is not None else None
        if failure is not None:
            await http_response.send_error(
                client.send, RESPONSES, RequestFailed(_error(failure)), headers
            )
        elif incoming.stream:
            events = await for_body(entry.body or b"", events_of, entry)
            written = self._stream_writer().write(events)
            await http_response.send_body(
                client.send, 200, written, [*http_response.STREAM_HEADERS, *headers]
            )
        else:
            data = await for_body(entry.body or b"", response_body, entry)
            await http_response.send_json(client.send, client.id, data)


async def _ensure_ended(run: Run) -> None:
    """Stores that a run failed, unless its end is stored already."""
    if run.writer is None or not run.writer.running:
        return
    error, response = run.record.error, run.record.response
    if error is None:
        failure = None if response is None else response.error
        error = new_error("server", "no response") if failure is None else _error(failure)
    with suppress(StoreError):
        await run.fail(error)


def _error(failure: Failure) -> ErrorPart:
    return ErrorPart(failure.kind, failure.message, failure.code, failure.status, failure.retryable)
