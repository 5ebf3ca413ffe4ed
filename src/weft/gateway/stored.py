"""Stored responses: read, listed, resumed, cancelled, deleted. Whatever belongs to another key is
not there.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from urllib.parse import parse_qs

import msgspec
from msgspec import Raw

from weft.captures import decode_all
from weft.codec import fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.error_classes import new_error
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.errors import BadRequest
from weft.findings import Finding, Findings
from weft.gateway import answers
from weft.gateway.doors import Shut
from weft.gateway.endpoints import Client, Receive, Scope, Send, Watch
from weft.gateway.protocol import EXCHANGE
from weft.gateway.sessions import DIALECT, RUNNING, Sessions
from weft.gateway.writers import EventStreamWriter
from weft.relay import history
from weft.relay.incoming import RequestFailed, bad_request
from weft.relay.offload import for_body
from weft.relay.persistence import awaits_outputs, with_status
from weft.relay.recovery import request_of
from weft.relay.rendering import encoder_of
from weft.relay.run import Run
from weft.sse import Event
from weft.store.base import StoreError
from weft.store.records import Entry

PAGE = 20
MOST = 100
"""Items of one page."""

LAST_SEEN = b"last-event-id"
_json = msgspec.json.Encoder().encode

Query = dict[str, list[str]]


class _Recorded(msgspec.Struct):
    findings: list[Finding] = []


_recorded = msgspec.json.Decoder(_Recorded).decode


def missing(what: str, id: str) -> Shut:
    """What a client is told of what is not there, or not its own."""
    return Shut(404, new_error("bad-request", f"{what} with id '{id[:100]}' not found."))


def number_in(query: Query, name: str, default: int, low: int, high: int) -> int:
    """A number of a query; raises BadRequest."""
    told = query.get(name, [str(default)])[-1]
    if not re.fullmatch(r"-?\d{1,9}", told) or not low <= int(told) <= high:
        raise BadRequest(name, f"{told[:50]!r}; expected a number from {low} to {high}")
    return int(told)


def page_of(items: list[dict[str, Raw]], query: Query) -> bytes:
    """The part of a list that is asked for, as the clients of lists want it."""
    limit = number_in(query, "limit", PAGE, 1, MOST)
    if query.get("order", ["desc"])[-1] != "asc":
        items.reverse()
    ids = [msgspec.json.decode(one["id"], type=str) for one in items]
    after = query.get("after", [""])[-1]
    if after:
        if after not in ids:
            raise BadRequest("after", f"no item {after[:100]!r}")
        first = ids.index(after) + 1
        items, ids = items[first:], ids[first:]
    return listed(items[:limit], ids[:limit], more=len(items) > limit)


def listed(items: list[dict[str, Raw]], ids: list[str], *, more: bool) -> bytes:
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    page = {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": more}
    return _json(page)


REFUSED = (BadRequest, RequestFailed, StoreError)
"""Why a question about stored things has no answer: the client's fault, or ours."""


async def refused(
    send: Send, dialect: str, id: str, problem: BadRequest | RequestFailed | StoreError
) -> None:
    """Tells a client, in its dialect, why there is no answer."""
    match problem:
        case BadRequest():
            failed = RequestFailed(bad_request(problem))
        case RequestFailed():
            failed = problem
        case _:
            failed = answers.own_fault(id, problem)
    await answers.failure(send, dialect, failed, answers.about(id))


class Stored:
    """One endpoint of a stored response, by its id in the path."""

    def __init__(self, sessions: Sessions, keepalive: float = 0.0) -> None:
        self._sessions = sessions
        self._keepalive = keepalive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, send, await self._found(scope))
        except REFUSED as problem:
            await refused(send, DIALECT, scope["weft.id"], problem)

    async def _found(self, scope: Scope) -> Entry:
        id = scope["path_params"]["id"]
        entry = await self._sessions.store.owned(scope["weft.caller"], id)
        if entry is None or not entry.visible or entry.dialect != DIALECT:
            raise missing("Response", id)
        return entry

    async def _answer(self, scope: Scope, send: Send, entry: Entry) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        match scope["method"]:
            case "DELETE":
                await self._deleted(scope, send, entry)
            case _ if query.get("stream", [""])[-1] == "true":
                await self._resumed(scope, send, entry, query)
            case _:
                await self._told(scope, send, await for_body(entry.body or b"", shown, entry))

    async def _told(self, scope: Scope, send: Send, data: bytes) -> None:
        await answers.body(send, 200, data, [answers.JSON, *answers.about(scope["weft.id"])])

    async def _deleted(self, scope: Scope, send: Send, entry: Entry) -> None:
        if entry.status in RUNNING:
            await self._sessions.cancel(entry)
        await self._sessions.store.delete(scope["weft.caller"], entry.id)
        gone = {"id": entry.id, "object": "response", "deleted": True}
        await self._told(scope, send, _json(gone))

    async def _resumed(self, scope: Scope, send: Send, entry: Entry, query: Query) -> None:
        after = number_in(query, "starting_after", -1, -1, 10**9 - 1)
        if entry.pruned and entry.stream:
            raise missing("The log of the response", entry.id)
        client = answers.Client(scope["weft.id"], DIALECT, send, scope[EXCHANGE].write)
        told = self._sessions.events(entry.id) if entry.stream else self._in_one_piece(entry.id)
        writer = EventStreamWriter(DIALECTS[DIALECT].idle)
        await follow(scope, client, unseen(told, after), writer, self._keepalive)

    async def _in_one_piece(self, id: str) -> AsyncIterator[list[Event]]:
        """The events of a response that was not streamed, once it has ended."""
        async for _ in self._sessions.events(id):
            pass
        entry = await self._sessions.store.entry(id)
        if entry is not None:
            yield await for_body(entry.body or b"", as_events, entry)


class InputItems(Stored):
    async def _answer(self, scope: Scope, send: Send, entry: Entry) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))

        def page() -> bytes:
            return page_of(
                history.listed_items(history.input_items(Raw(entry.input)), entry.id), query
            )

        await self._told(scope, send, await for_body(entry.input, page))


class FindingsOf(Stored):
    """What was repaired in a stored answer, and what its client's dialect could not carry. There
    are those of every dialect: whoever has the id may ask."""

    async def _found(self, scope: Scope) -> Entry:
        id = scope["path_params"]["id"]
        entry = await self._sessions.store.owned(scope["weft.caller"], id)
        if entry is None or not entry.visible:
            raise missing("Response", id)
        return entry

    async def _answer(self, scope: Scope, send: Send, entry: Entry) -> None:
        record = entry.record or b"{}"
        found = (await for_body(record, _recorded, record)).findings
        await self._told(scope, send, _json({"object": "list", "data": found}))


class Cancel(Stored):
    async def _answer(self, scope: Scope, send: Send, entry: Entry) -> None:
        if not entry.background:
            message = "only a response in the background can be cancelled"
            raise BadRequest("response_id", message)
        if entry.status in RUNNING:
            await self._sessions.cancel(entry)
        found = await self._found(scope)
        await self._told(scope, send, await for_body(found.body or b"", shown, found))


class Resume:
    """A stream that is asked for again, from behind the event whose id its client saw last."""

    def __init__(self, sessions: Sessions, dialect: str, keepalive: float) -> None:
        self._sessions = sessions
        self._dialect = dialect
        self._keepalive = keepalive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = scope["weft.id"]
        told = dict(scope["headers"]).get(LAST_SEEN, b"").decode("latin-1")
        name, _, number = told.rpartition("/")
        client = answers.Client(id, self._dialect, send, scope[EXCHANGE].write)
        try:
            entry = await self._sessions.store.owned(scope["weft.caller"], name)
            if entry is None or entry.dialect != self._dialect or not number.isdecimal():
                raise missing("A stream", told)
        except REFUSED as problem:
            await refused(send, self._dialect, id, problem)
        else:
            first = int(number[:9]) + 1
            writer = EventStreamWriter(DIALECTS[self._dialect].idle, entry.id, first)
            events = self._sessions.events(entry.id, first)
            await follow(scope, client, events, writer, self._keepalive)


def as_events(entry: Entry) -> list[Event]:
    """The events of a response that was told in one piece."""
    body = entry.body or b"{}"
    accent = ResponsesQuirks(tool_session=awaits_outputs(body))
    ids, now = fresh_context().ids, int(entry.created)
    context = Context(request_of(entry), accent, ids, now, response_id=entry.id)
    one = decode_all(body, DIALECT, context=context)[0]
    return encoder_of(DIALECTS[DIALECT], context, one.fold, Findings()).feed(one.parts)


def shown(entry: Entry) -> bytes:
    """The response object, as it stands."""
    return with_status(entry.body or b"{}", entry.status)


async def unseen(events: AsyncIterator[list[Event]], after: int) -> AsyncIterator[list[Event]]:
    """The events numbered above this one, as they were sent; by the numbers that they have, since
    whoever ended a response for another left some out. One without a number is at the end.
    """
    async for some in events:
        new = [event for event in some if event.number is None or event.number > after]
        if new:
            yield new


async def follow(
    scope: Scope,
    client: Client,
    events: AsyncIterator[list[Event]],
    writer: EventStreamWriter,
    keepalive: float,
    run: Run | None = None,
) -> None:
    """Tells events that were told before, or are told elsewhere."""
    watch = Watch(scope[EXCHANGE])
    headers = [*answers.STREAM, *answers.about(client.id, run)]
    await client.send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        await _tell(client, events, writer, keepalive)
        await client.send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not watch.gone:
            raise
    finally:
        watch.end()


async def _tell(
    client: Client,
    events: AsyncIterator[list[Event]],
    writer: EventStreamWriter,
    keepalive: float,
) -> None:
    following = aiter(events)
    wait: Callable[[], Awaitable[list[Event]]] = following.__anext__
    while True:
        coming = asyncio.ensure_future(wait())
        try:
            while not (await asyncio.wait({coming}, timeout=keepalive or None))[0]:
                await _send(client, writer.keepalive(None))
            some = coming.result()
        except StopAsyncIteration:
            return
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, StoreError):
                await coming
        for data in answers.in_slices(writer, some):
            await _send(client, data)


async def _send(client: Client, data: bytes) -> None:
    await client.send({"type": "http.response.body", "body": data, "more_body": True})
