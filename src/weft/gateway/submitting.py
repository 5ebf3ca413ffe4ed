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
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest, InternalError
from weft.gateway import answers
from weft.gateway.endpoints import Client, Host, Scope, Send, Watch, read_as
from weft.gateway.protocol import EXCHANGE
from weft.gateway.responses import Responses
from weft.gateway.sessions import DIALECT, RUNNING, Sessions, preamble_of, queued
from weft.gateway.stored import as_events, follow, missing, shown
from weft.parts import ErrorPart, Json
from weft.relay import history
from weft.relay.incoming import IncomingRequest, RequestFailed
from weft.relay.log import POLL_INTERVAL
from weft.relay.offload import for_body
from weft.relay.persistence import ANSWERED, complete_waiting, with_status
from weft.relay.run import Run
from weft.store.base import AlreadyExists, StoreError
from weft.store.records import Entry

PATIENCE = 1.0
"""Seconds that whoever named a response has to begin it, before another does."""

_NAMES = ("tool_call_id", "call_id", "approval_request_id")
"""What a client may call the id of what it answers."""

_ANOTHER = ("input", "previous_response_id", "conversation", "stream")
"""The fields of a request that its continuation has others of."""

_WORDS = ("function_call", "custom_tool_call", "local_shell_call")
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

Told = Mapping[str, Raw]


class _Submission(msgspec.Struct, forbid_unknown_fields=True):
    tool_outputs: list[dict[str, Raw]]
    stream: bool | None = None


class _PendingCall(msgspec.Struct, frozen=True):
    id: str


class _PendingCalls(msgspec.Struct, frozen=True):
    tool_calls: tuple[_PendingCall, ...] = ()


class _Action(msgspec.Struct, frozen=True):
    submit_tool_outputs: _PendingCalls = _PendingCalls()


class _Answer(msgspec.Struct):
    """As much of a response object as says what it waits for."""

    output: list[Raw] = []
    required_action: _Action | None = None


class _Choice(msgspec.Struct):
    type: str = ""
    mode: str = ""


class _Record(msgspec.Struct):
    error: Failure | None = None


_submission = msgspec.json.Decoder(_Submission).decode
_answer = msgspec.json.Decoder(_Answer).decode
_choice: Callable[[Raw], _Choice | str] = msgspec.json.Decoder(_Choice | str).decode
_record = msgspec.json.Decoder(_Record).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_text = msgspec.json.Decoder(str).decode
_json = msgspec.json.Encoder().encode


# What a response waits for, and what comes of it


class Pending:
    """The calls of a response that its client can answer, and those that it must."""

    def __init__(self, first: Entry) -> None:
        self._first = first.id
        told = _answer(first.body or b"{}") if first.status in ANSWERED else _Answer()
        found = [history.read_shape(one) for one in told.output]
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

    def answered(self, outputs: Sequence[Told]) -> list[Raw]:
        """The items that these outputs are, in the order of their calls. Raises BadRequest."""
        if not self._types:
            raise BadRequest("tool_outputs", f"{self._first} waits for no outputs")
        items: dict[str, Raw] = {}
        for place, told in enumerate(outputs):
            path = f"tool_outputs[{place}]"
            name, id = _named(told, path)
            known = self._names.get(id)
            if known is None:
                waiting = ", ".join(map(repr, self._types))
                message = f"{id[:100]!r} is no call of {self._first}, which waits for {waiting}"
                raise BadRequest(f"{path}.{name}", message)
            if known in items:
                raise BadRequest(f"{path}.{name}", f"{id!r} is answered twice")
            items[known] = _item(self._types[known], known, told, path)
        left = [id for id in self._required if id not in items]
        if left:
            raise BadRequest("tool_outputs", f"no output for {', '.join(map(repr, left))}")
        return [items[id] for id in self._types if id in items]


def _named(told: Told, path: str) -> tuple[str, str]:
    """Which call is answered, and where that is said."""
    given = {name: told[name] for name in _NAMES if name in told}
    try:
        ids = {_text(one) for one in given.values()}
    except ValueError:
        raise BadRequest(f"{path}.{min(given)}", "expected a text") from None
    if len(ids) != 1:
        problem = f"missing; expected one of {', '.join(_NAMES)}"
        raise BadRequest(f"{path}.{_NAMES[0]}", "more than one" if ids else problem)
    return next(iter(given)), ids.pop()


def _item(type: str, id: str, told: Told, path: str) -> Raw:
    """The item that answers a call of this type."""
    fields = {name: value for name, value in told.items() if name not in (*_NAMES, "type")}
    wanted = "approve" if type == APPROVAL else "output"
    unknown = fields.keys() - {wanted, "reason" if type == APPROVAL else "status"}
    if unknown and (type in _WORDS or type == APPROVAL):
        raise BadRequest(f"{path}.{min(unknown)}", f"unknown; expected {wanted}")
    begins = bytes(fields.get(wanted, b"")).lstrip()[:1]
    if type in _WORDS and begins not in (b'"', b"["):
        raise BadRequest(f"{path}.output", "expected a text, or an array of content parts")
    if type == APPROVAL and begins not in (b"t", b"f"):
        raise BadRequest(f"{path}.approve", "expected true or false")
    name = "approval_request_id" if type == APPROVAL else "call_id"
    return Raw(_json({"type": OUTPUTS[type], name: id, **fields}))


def continued(first: Entry, items: Sequence[Raw], stream: bool) -> bytes:
    """The request that goes on from a response with these items."""
    fields = {name: one for name, one in _fields(first.request).items() if name not in _ANOTHER}
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


class Submit(Responses):
    """Takes the outputs of the calls of one response."""

    def __init__(self, host: Host, sessions: Sessions) -> None:
        super().__init__(host, DIALECT, sessions)

    async def _read(self, scope: Scope, body: bytes) -> IncomingRequest:
        submission = await for_body(body, read_as, _submission, body)
        first, stream = await self._first(scope), bool(submission.stream)

        def going_on() -> bytes:
            items = Pending(first).answered(submission.tool_outputs)
            return continued(first, items, stream)

        largest = max(body, first.body or b"", first.request, key=len)
        request = await for_body(largest, going_on)
        incoming = self._made(scope, request, first.model, stream)
        preamble = await for_body(request, preamble_of, request)
        recalled = await self._sessions.recalled(incoming, preamble)
        return replace(recalled, previous=first.id)

    async def _first(self, scope: Scope) -> Entry:
        id = scope["path_params"]["id"]
        entry = await self._sessions.store.owned(scope["weft.caller"], id)
        if entry is None or not entry.visible or entry.dialect != DIALECT:
            raise missing("Response", id)
        if entry.status in RUNNING:
            raise RequestFailed(new_error("conflict", f"{id} is still {entry.status}"))
        return entry

    async def _started(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        client = Client(scope["weft.id"], DIALECT, send, scope[EXCHANGE].write)
        while True:
            id, found = await self._next(incoming.previous or "")
            if found is None:
                incoming = replace(incoming, response_id=id)
                run = await self._claimed(incoming)
                if run is not None and not incoming.background:
                    if not (incoming.stream and self._sessions.window):
                        return run
                    await self._sessions.detach(run, self._host.ended)
                found = await self._sessions.store.entry(id)
            if found is not None:
                await self._repeat(found, incoming, scope, client)
                return None

    # Who runs it

    async def _next(self, first: str) -> tuple[str, Entry | None]:
        """The name of what goes on from a response; and that itself, if somebody began it."""
        store, last = self._sessions.store, first
        while True:
            entry = await store.entry(last)
            if entry is None:
                raise missing("Response", first)
            if entry.answered is None:
                id = fresh_context().ids.mint("resp")
                if await store.set_answered(last, id):
                    return id, None
                continue
            found = await self._begun(entry.answered)
            if found is None or found.ended is None or found.status in ANSWERED:
                return entry.answered, found
            last = found.id

    async def _begun(self, id: str) -> Entry | None:
        """What was named; None if nobody begins it."""
        for _ in range(round(PATIENCE / POLL_INTERVAL)):
            found = await self._sessions.store.entry(id)
            if found is not None:
                return found
            await asyncio.sleep(POLL_INTERVAL)
        return None

    async def _claimed(self, incoming: IncomingRequest) -> Run | None:
        """Begins what was named; None if somebody else did."""
        run = self._host.start(replace(incoming, stream=incoming.stream or incoming.background))
        try:
            if incoming.background:
                await self._sessions.launch(run, incoming, self._host.ended)
            else:
                await _announced(run, incoming)
        except (StoreError, AlreadyExists) as problem:
            await run.close()
            self._host.ended(run)
            if isinstance(problem, AlreadyExists):
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

    async def _repeat(
        self, found: Entry, incoming: IncomingRequest, scope: Scope, client: Client
    ) -> None:
        """Tells what these outputs have led to already, or are leading to."""
        if incoming.store is None or not _same(found.input, incoming.store.input):
            message = f"{incoming.previous} was answered with other outputs: see {found.id}"
            raise RequestFailed(new_error("conflict", message))
        if incoming.stream and found.stream:
            events = self._sessions.events(found.id)
            await follow(scope, client, events, self._following(), self._host.keepalive)
        elif found.background:
            await self._tell(found, incoming, client)
        else:
            ended = await self._waited(found.id, scope)
            if ended is not None:
                await self._tell(ended, incoming, client)

    async def _waited(self, id: str, scope: Scope) -> Entry | None:
        """A response, once it has ended; None if the client did not wait."""
        watch = Watch(scope[EXCHANGE])
        try:
            return await self._ended(id)
        except asyncio.CancelledError:
            if not watch.gone:
                raise
            return None
        finally:
            watch.end()

    async def _ended(self, id: str) -> Entry:
        logs, store = self._sessions.persistence.logs, self._sessions.store
        while True:
            log = logs.get(id)
            if log is not None:
                await log.changed()
                continue
            entry = await store.entry(id)
            if entry is None:
                raise missing("Response", id)
            if entry.ended is not None:
                return entry
            await asyncio.sleep(POLL_INTERVAL)

    async def _tell(self, entry: Entry, incoming: IncomingRequest, client: Client) -> None:
        """Tells a response as it stands; one that failed as the error it was."""
        headers = answers.about(client.id)
        if entry.status in ANSWERED:
            await complete_waiting(self._sessions.store, incoming.previous or "")
        failure = _record(entry.record or b"{}").error if entry.ended is not None else None
        if failure is not None:
            await answers.failure(client.send, DIALECT, RequestFailed(_error(failure)), headers)
        elif incoming.stream:
            events = await for_body(entry.body or b"", as_events, entry)
            written = self._following().write(events)
            await answers.body(client.send, 200, written, [*answers.STREAM, *headers])
        else:
            data = await for_body(entry.body or b"", shown, entry)
            await answers.body(client.send, 200, data, [answers.JSON, *headers])


async def _announced(run: Run, incoming: IncomingRequest) -> None:
    """Stores that there is such a response, before anybody is asked for it."""
    writer, id = run.writer, incoming.response_id
    if writer is None or id is None:
        raise InternalError("a continuation has no name")
    snapshot = await for_body(incoming.body.raw, queued, incoming)
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
    return new_error("server", "there was no answer") if failure is None else _error(failure)


def _error(failure: Failure) -> ErrorPart:
    return ErrorPart(failure.kind, failure.message, failure.code, failure.status, failure.retryable)


def _same(one: bytes, other: bytes) -> bool:
    """Whether two submissions bring the same, however they spell it."""
    return one == other or bool(msgspec.json.decode(one) == msgspec.json.decode(other))
