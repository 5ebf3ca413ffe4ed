"""Endpoints of stored responses: retrieve, list, resume, cancel, delete. A response of another key
is a 404.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import parse_qs

import msgspec
from msgspec import Raw

from weft import large_json
from weft.codec import Pipe, fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.error_classes import new_error
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.errors import BadRequest
from weft.findings import Finding, Findings
from weft.gateway import http_response
from weft.gateway.apis import RESPONSES
from weft.gateway.auth import HttpRejection
from weft.gateway.endpoints import DisconnectWatcher, Receive, Scope, Send, headers_of
from weft.gateway.exchange import EXCHANGE
from weft.gateway.http_response import ClientConnection
from weft.gateway.sessions import RUNNING, Sessions
from weft.gateway.writers import EventStreamWriter
from weft.parts import Usage
from weft.prices import dollars
from weft.relay import history
from weft.relay.incoming import RequestFailed, bad_request
from weft.relay.offload import for_body
from weft.relay.persistence import awaits_outputs, with_status
from weft.relay.recovery import request_of
from weft.relay.rendering import encoder_of
from weft.relay.run import Run
from weft.sse import Event, Frame
from weft.store.base import StoreError
from weft.store.records import Entry

# As in OpenAI's API reference, for all lists.
PAGE_SIZE = 20
MAX_PAGE_SIZE = 100
"""Items of a page: by default, and at most."""

LAST_EVENT_ID = b"last-event-id"
_json = msgspec.json.Encoder().encode

Query = dict[str, list[str]]


class _StoredRecord(msgspec.Struct):
    findings: list[Finding] = []
    usage: Usage | None = None


_recorded = large_json.skimmer(_StoredRecord)


def not_found(what: str, id: str) -> HttpRejection:
    """The error for an object that does not exist, or belongs to another key."""
    # Class bad-request with status 404: the class not-found has a code that says that the model
    # does not exist. One text for missing and foreign: an id must not tell whether it exists.
    return HttpRejection(404, new_error("bad-request", f"{what} with id '{id[:100]}' not found."))


def int_param(query: Query, name: str, default: int, low: int, high: int) -> int:
    """Returns an integer of the query. Raises BadRequest."""
    value = query.get(name, [str(default)])[-1]
    if not re.fullmatch(r"-?\d{1,9}", value) or not low <= int(value) <= high:
        raise BadRequest(name, f"{value[:50]!r}; expected a number from {low} to {high}")
    return int(value)


def word_param(query: Query, name: str, default: str, other: str) -> str:
    """Returns a word of the query, one of two. Raises BadRequest."""
    value = query.get(name, [default])[-1]
    if value not in (default, other):
        raise BadRequest(name, f"{value[:50]!r}; expected {default} or {other}")
    return value


def is_descending(query: Query, *, default: bool) -> bool:
    """Returns whether the query asks for the newest first. Raises BadRequest."""
    first, second = ("desc", "asc") if default else ("asc", "desc")
    return word_param(query, "order", first, second) == "desc"


def page_object(items: list[dict[str, Raw]], query: Query, *, descending: bool) -> bytes:
    """Returns the page that the query asks for, as a list object. `descending` is the default."""
    limit = int_param(query, "limit", PAGE_SIZE, 1, MAX_PAGE_SIZE)
    if is_descending(query, default=descending):
        items.reverse()
    ids = [msgspec.json.decode(one["id"], type=str) for one in items]
    after = query.get("after", [""])[-1]
    if after:
        if after not in ids:
            raise BadRequest("after", f"no item {after[:100]!r}")
        first = ids.index(after) + 1
        items, ids = items[first:], ids[first:]
    return list_object(items[:limit], ids[:limit], more=len(items) > limit)


def list_object(items: list[dict[str, Raw]], ids: list[str], *, more: bool) -> bytes:
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    page = {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": more}
    return _json(page)


EXPECTED_ERRORS = (BadRequest, RequestFailed, StoreError)
"""What the endpoints of stored objects raise."""


async def send_problem(
    send: Send, dialect: str, id: str, problem: BadRequest | RequestFailed | StoreError
) -> None:
    """Sends an error in a dialect."""
    failed = (
        RequestFailed(bad_request(problem))
        if isinstance(problem, BadRequest)
        else http_response.failure(id, problem)
    )
    await http_response.send_error(send, dialect, failed, http_response.weft_headers(id))


class StoredResponseEndpoint:
    """Retrieves, resumes or deletes a response, by the id in its path."""

    def __init__(self, sessions: Sessions, keepalive: float = 0.0) -> None:
        self._sessions = sessions
        self._keepalive = keepalive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._handle(scope, send, await self._find(scope))
        except EXPECTED_ERRORS as problem:
            await send_problem(send, RESPONSES, scope["weft.id"], problem)

    async def _find(self, scope: Scope) -> Entry:
        id = scope["path_params"]["id"]
        entry = await self._sessions.store.owned(scope["weft.caller"], id)
        if entry is None or not entry.visible or entry.dialect != RESPONSES:
            raise not_found("Response", id)
        return entry

    async def _handle(self, scope: Scope, send: Send, entry: Entry) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        match scope["method"]:
            case "DELETE":
                if entry.status in RUNNING:
                    await self._sessions.cancel(entry)
                await self._sessions.store.delete(scope["weft.caller"], entry.id)
                deleted = {"id": entry.id, "object": "response", "deleted": True}
                await http_response.send_json(send, scope["weft.id"], _json(deleted))
            case _ if word_param(query, "stream", "false", "true") == "true":
                await self._resume(scope, send, entry, query)
            case _:
                body = await for_body(entry.body or b"", response_body, entry)
                await http_response.send_json(send, scope["weft.id"], body)

    async def _resume(self, scope: Scope, send: Send, entry: Entry, query: Query) -> None:
        after = int_param(query, "starting_after", -1, -1, 10**9 - 1)
        # Its end could be made of the body, but not the events that the client has not seen.
        if entry.pruned and entry.stream:
            raise not_found("The log of the response", entry.id)
        client = ClientConnection(scope["weft.id"], RESPONSES, send, scope[EXCHANGE])
        # Read from the first event on: the numbers of the events equal those of the log only if one
        # process wrote them all (see events_after).
        events = self._sessions.events(entry.id) if entry.stream else self._whole_events(entry.id)
        writer = EventStreamWriter(DIALECTS[RESPONSES].idle)
        await stream_events(scope, client, events_after(events, after), writer, self._keepalive)

    async def _whole_events(self, id: str) -> AsyncIterator[list[Event]]:
        """Yields the events of a response that was not streamed, once it has ended."""
        async for _ in self._sessions.events(id):
            pass
        entry = await self._sessions.store.entry(id)
        if entry is not None:
            yield await for_body(entry.body or b"", events_of, entry)


class InputItems(StoredResponseEndpoint):
    async def _handle(self, scope: Scope, send: Send, entry: Entry) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))

        def page() -> bytes:
            items = history.listed_items(history.input_items(Raw(entry.input)), entry.id)
            return page_object(items, query, descending=True)

        await http_response.send_json(send, scope["weft.id"], await for_body(entry.input, page))


class ResponseFindings(StoredResponseEndpoint):
    """What was repaired in a stored response, and what its client's dialect could not carry. There
    are those of every dialect, and of the turns of runs, for the owner of the response."""

    async def _find(self, scope: Scope) -> Entry:
        id = scope["path_params"]["id"]
        entry = await self._sessions.store.owned(scope["weft.caller"], id)
        if entry is None or not entry.inspectable:
            raise not_found("Response", id)
        return entry

    async def _handle(self, scope: Scope, send: Send, entry: Entry) -> None:
        record = entry.record or b"{}"
        found = (await for_body(record, _recorded, record)).findings
        await http_response.send_json(
            send, scope["weft.id"], _json({"object": "list", "data": found})
        )


class ResponseUsage(ResponseFindings):
    """The tokens of a stored response, and what all its attempts have cost."""

    async def _handle(self, scope: Scope, send: Send, entry: Entry) -> None:
        record = entry.record or b"{}"
        used = (await for_body(record, _recorded, record)).usage
        body = {
            "object": "response.usage",
            "id": entry.id,
            "model": entry.model,
            "usage": used,
            "cost": dollars(entry.cost),
            "currency": "usd",
        }
        await http_response.send_json(send, scope["weft.id"], _json(body))


class CancelResponse(StoredResponseEndpoint):
    async def _handle(self, scope: Scope, send: Send, entry: Entry) -> None:
        if not entry.background:
            message = "only a background response can be cancelled"
            raise BadRequest("response_id", message)
        if entry.status in RUNNING:
            await self._sessions.cancel(entry)
        # Read again: its status and body are those after the cancellation, if it ended in time.
        found = await self._find(scope)
        body = await for_body(found.body or b"", response_body, found)
        await http_response.send_json(send, scope["weft.id"], body)


class ResumeStream:
    """Resumes a stream after the event whose id the client received last."""

    def __init__(self, sessions: Sessions, dialect: str, keepalive: float) -> None:
        self._sessions = sessions
        self._dialect = dialect
        self._keepalive = keepalive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = scope["weft.id"]
        event_id = headers_of(scope).get(LAST_EVENT_ID, b"").decode("latin-1")
        # As EventStreamWriter writes it.
        log_id, _, number = event_id.rpartition("/")
        client = ClientConnection(id, self._dialect, send, scope[EXCHANGE])
        try:
            entry = await self._sessions.store.owned(scope["weft.caller"], log_id)
            if entry is None or entry.dialect != self._dialect or not number.isdecimal():
                raise not_found("A stream", event_id)
            if entry.pruned or not entry.stream:
                raise not_found("The log of the stream", log_id)
        except EXPECTED_ERRORS as problem:
            await send_problem(send, self._dialect, id, problem)
        else:
            # A stream of so many events does not exist; the cut keeps the number within what the
            # databases take.
            first = int(number[:9]) + 1
            writer = EventStreamWriter(DIALECTS[self._dialect].idle, entry.id, first)
            events = self._sessions.events(entry.id, first)
            await stream_events(scope, client, events, writer, self._keepalive)


def events_of(entry: Entry) -> list[Event]:
    """The events of a response that was not streamed."""
    body = entry.body or b"{}"
    quirks = ResponsesQuirks(tool_session=awaits_outputs(body))
    ids, now = fresh_context().ids, int(entry.created)
    context = Context(request_of(entry), quirks, ids, now, response_id=entry.id)
    dialect = DIALECTS[RESPONSES]
    pipe = Pipe(dialect, context)
    parts = pipe.feed([Frame(body)]) + pipe.finish()
    return encoder_of(dialect, context, pipe.guard.fold, Findings()).feed(parts)


def response_body(entry: Entry) -> bytes:
    """The response object with its current status."""
    return with_status(entry.body or b"{}", entry.status)


async def events_after(
    events: AsyncIterator[list[Event]], after: int
) -> AsyncIterator[list[Event]]:
    """Yields the events with a larger number. Numbers are compared, not counted: a process that
    ended a response for another may have left some out. An event without a number is at the end.
    """
    async for some in events:
        new = [event for event in some if event.number is None or event.number > after]
        if new:
            yield new


async def stream_events(
    scope: Scope,
    client: ClientConnection,
    events: AsyncIterator[list[Event]],
    writer: EventStreamWriter,
    keepalive: float,
    run: Run | None = None,
) -> None:
    """Streams the events of a stored response, or of one that runs elsewhere."""
    watcher = DisconnectWatcher(scope[EXCHANGE])
    headers = [*http_response.STREAM_HEADERS, *http_response.weft_headers(client.id, run)]
    # At once, unlike for a new response: its beginning is stored, so no other status can follow.
    await client.send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        await _send_events(client, events, writer, keepalive)
        await client.send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not watcher.disconnected:
            raise
    finally:
        watcher.stop()


async def _send_events(
    client: ClientConnection,
    events: AsyncIterator[list[Event]],
    writer: EventStreamWriter,
    keepalive: float,
) -> None:
    while True:
        # One task for each batch, since a timeout must not cancel the iterator: it would be closed
        # with it. With a default: the exception at the end would refer to this frame, and the task
        # to the exception, so that the last events, which may be large, would stay until the
        # garbage collector runs.
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while not (await asyncio.wait({coming}, timeout=keepalive or None))[0]:
                await _send(client, writer.keepalive(None))
            some = coming.result()
        finally:
            # Done by now, unless this task was cancelled. Then it has to be awaited: the iterator
            # counts followers in its `finally`.
            coming.cancel()
            with suppress(asyncio.CancelledError, StoreError):
                await coming
        if some is None:
            return
        for data in http_response.write_slices(writer, some):
            await _send(client, data)
            await http_response.let_others_run(data)


async def _send(client: ClientConnection, data: bytes) -> None:
    await client.send({"type": "http.response.body", "body": data, "more_body": True})
