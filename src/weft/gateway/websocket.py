"""`/v1/responses` over a WebSocket: one `response.create` per message, each event as a message.

A socket runs one response at a time; further messages are queued. After an error the socket can
still be used.

A socket caches its last responses, stored or not, so that a request needs to contain only what is
new. A request that is not to be stored continues from the cache alone, others from the store as
well. If a continuation fails, its previous response is removed from the cache, and the client sends
the whole conversation again. The stored log is the one that an HTTP client would have received, so
the response can be read and resumed over HTTP. `generate: false` is answered at once with an empty
response that the next request can continue.

To a client, both an error message and a failed response end a turn, so each turn has only one of
them: the error message if there is no response yet, otherwise the failed response. The `stream_id`
of a request is repeated in every message about it.
"""

import asyncio
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft import large_json
from weft.assembler import Assembler
from weft.codec import fresh_context
from weft.dialects import DIALECTS
from weft.dialects.error_classes import error_headers, new_error
from weft.errors import BadRequest
from weft.findings import Findings
from weft.gateway import bodies, http_response
from weft.gateway.apis import RESPONSES
from weft.gateway.auth import HttpRejection
from weft.gateway.endpoints import GatewayContext, Receive, Scope, Send, parse_request
from weft.gateway.memory import OBJECT, MemoryReservation, json_cost
from weft.gateway.response_cache import CachedResponse, ResponseCache
from weft.gateway.sessions import (
    RUNNING,
    ResponsesPreamble,
    Sessions,
    input_items_of,
    parse_preamble,
    previous_not_found,
)
from weft.gateway.uvicorn_internals import ClientDisconnected
from weft.gateway.websocket_protocol import WEBSOCKET, WebSocketProtocol
from weft.gateway.writers import SocketWriter
from weft.parts import ErrorPart, Finish, ResponseMetadata, Usage
from weft.relay import history
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, bad_request
from weft.relay.offload import for_body
from weft.relay.persistence import last_snapshot
from weft.relay.rendering import encoder_of
from weft.relay.run import Run
from weft.sse import Event

# As OpenAI's: 60 minutes, then the error `websocket_connection_limit_reached`.
LIFETIME = 3600.0
"""Seconds after which a socket is closed."""

SOCKETS_PER_KEY = 64
"""Open sockets of one API key."""

MAX_QUEUED = 64
"""Messages that may be queued."""

MAX_QUEUED_SIZE = 32 * 1024 * 1024
"""Queued characters above which no more messages are accepted."""

_TRUE = Raw(b"true")
_ABSENT = (UNSET, Raw(b"null"))
# The Open Responses specification: none of them may be in a message.
_FORBIDDEN = ("stream", "stream_options", "background")
_SOCKET_FIELDS = ("type", "stream_id", "generate")
"""Fields that only WebSocket messages have."""

_CONTINUABLE = ("completed", "incomplete")
"""The status of a response that can be continued."""


class _Create(ResponsesPreamble):
    type: str = ""
    stream_id: str | None = None
    generate: bool = True


class _FinalResponse(msgspec.Struct):
    """The fields of a response that are cached."""

    id: str = ""
    status: str = ""
    output: list[Raw] = []


class _ErrorMessage(msgspec.Struct, omit_defaults=True):
    """An error message. Unlike over HTTP, its code is never null."""

    type: Literal["error"]
    status: int
    error: dict[str, object]
    stream_id: str | None = None


_create = large_json.skimmer(_Create)
_ended = large_json.skimmer(_FinalResponse)
_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class SocketClose:
    """Why a socket is closed after its current response, and the error message before that."""

    code: int
    reason: str
    error: ErrorPart | None = None
    error_code: str | None = None


# 1005 is never sent (RFC 6455, 7.4.1); it stands for a socket that is gone already.
CLIENT_DISCONNECTED = SocketClose(1005, "the client disconnected")
SHUTTING_DOWN = SocketClose(1001, "the server is shutting down")


class ResponsesWebSocket:
    """The ASGI app of all sockets."""

    def __init__(
        self,
        gateway: GatewayContext,
        sessions: Sessions | None = None,
        *,
        per_key: int = SOCKETS_PER_KEY,
        lifetime: float = LIFETIME,
    ) -> None:
        """`lifetime` in seconds. Without `sessions` nothing is stored."""
        self._gateway = gateway
        self._sessions = sessions
        self._per_key = per_key
        self._lifetime = lifetime
        self._open: set[_SocketSession] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        # Accepted first: a browser does not tell a page why a handshake was refused, but shows it
        # the code of a close.
        await socket.accept(headers=http_response.weft_headers(scope["weft.id"]))
        session = _SocketSession(self._gateway, socket, self._sessions)
        mine = sum(one.caller == session.caller for one in self._open)
        if mine >= self._per_key:
            await socket.close(1013, f"this API key has {mine} open sockets, which is its limit")
            return
        self._open.add(session)
        message = f"a socket is closed after {self._lifetime / 60:g} minutes; open another one"
        error = new_error("bad-request", message)
        code = "websocket_connection_limit_reached"
        expired = SocketClose(1000, "lifetime exceeded", error, code)
        timer = asyncio.get_running_loop().call_later(
            self._lifetime, session.close_after_response, expired
        )
        try:
            await session.run()
        finally:
            timer.cancel()
            self._open.discard(session)

    def drain(self) -> None:
        """Closes every socket after its current response."""
        for session in self._open:
            session.close_after_response(SHUTTING_DOWN)


class _SocketSession:
    """One socket."""

    def __init__(
        self, gateway: GatewayContext, socket: WebSocket, sessions: Sessions | None
    ) -> None:
        self.caller: str = socket.scope["weft.caller"]
        self._gateway = gateway
        self._socket = socket
        self._sessions = sessions
        self._cache = ResponseCache()
        self._connection: WebSocketProtocol = socket.scope[WEBSOCKET]
        self._cache_memory = self._connection.memory.reservation()
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued_size = 0
        self._close: SocketClose | None = None

    def close_after_response(self, close: SocketClose) -> None:
        """Closes the socket after its current response."""
        if self._close is None:
            self._close = close
            self._queue.put_nowait("")  # wakes _answer_queued

    async def run(self) -> None:
        """Reads messages all the time: a disconnect is noticed only while reading."""
        answering = asyncio.create_task(self._answer_queued())
        try:
            while (text := await self._receive()) is not None:
                self._queue.put_nowait(text)
                self._queued_size += len(text)
        finally:
            self.close_after_response(CLIENT_DISCONNECTED)
            answering.cancel()
            # It ends its run on the way out, which stores what has come.
            await asyncio.gather(answering, return_exceptions=True)
            self._cache_memory.release()

    async def _receive(self) -> str | None:
        """Returns the next message; None after the last."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        # 1003 and 1008 as in RFC 6455 (7.4.1): data of a type that cannot be accepted, and a
        # policy.
        if text is None:
            await self._socket.close(1003, "expected text messages with JSON")
        elif self._queue.qsize() >= MAX_QUEUED or self._queued_size > MAX_QUEUED_SIZE:
            await self._socket.close(1008, "too many queued messages")
        else:
            return text
        return None

    async def _answer_queued(self) -> None:
        try:
            while True:
                text = await self._queue.get()
                if (close := self._close) is not None:
                    if close.error is not None:
                        await self._send_error(RequestFailed(close.error), close.error_code)
                    if close is not CLIENT_DISCONNECTED:
                        await self._socket.close(close.code, close.reason)
                    return
                self._queued_size -= len(text)
                await self._handle(text)
                # Also if it failed: _handle raises only for a client that is gone, and then all
                # memory is released.
                self._connection.release_message(text)
        except (WebSocketDisconnect, ClientDisconnected):
            pass  # `run` notices it, too

    async def _handle(self, text: str) -> None:
        """Answers one message."""
        # The message itself counts in its connection.
        memory = self._connection.memory.reservation()
        try:
            await self._answer(text, memory)
        finally:
            memory.release()

    async def _answer(self, text: str, memory: MemoryReservation) -> None:
        """The same; `memory` is for what it needs beside its text."""
        id = fresh_context().ids.mint("req")
        create = _Create()
        try:
            raw = text.encode()
            create, body, objects = await for_body(raw, _decoded, raw, self._gateway.json_limits)
            memory.reserve_more(objects * OBJECT)
            incoming = self._incoming(id, create, body)
            incoming = await self._with_history(incoming, create, memory)
            await parse_request(incoming, self._gateway.limits)
            if create.generate:
                await self._respond(incoming, create, memory)
            else:  # without asking a model; its input is cached
                events = _empty_response(incoming)
                await self._send(SocketWriter(create.stream_id), events)
                ended = _ended(last_snapshot(events) or b"{}").id
                self._remember(ended, input_items_of(incoming.body.raw), stored=False)
            return
        except BadRequest as problem:
            failed = RequestFailed(bad_request(problem))
        except (WebSocketDisconnect, ClientDisconnected):
            raise
        except Exception as problem:
            failed = http_response.failure(id, problem)
        # Open Responses: a continuation that failed evicts what it continued, and a retry gets
        # previous_response_not_found.
        self._cache.remove(create.previous_response_id)
        await self._send_error(failed, stream=create.stream_id)

    def _incoming(self, id: str, create: _Create, body: dict[str, Raw]) -> IncomingRequest:
        """Builds the request for the relay. Raises BadRequest."""
        if create.type != "response.create":
            raise BadRequest("type", f"{create.type[:100]!r}; expected 'response.create'")
        # Codex sends `stream: true` here, too.
        extra = [
            name for name in _FORBIDDEN if name in body and (name, body[name]) != ("stream", _TRUE)
        ]
        if extra:
            raise BadRequest(extra[0], "not allowed over a WebSocket")
        if create.previous_response_id is not None and create.conversation not in _ABSENT:
            raise BadRequest("previous_response_id", "not allowed together with conversation")
        if not create.model:
            raise BadRequest("model", "missing; expected the name of a model")
        fields = {name: value for name, value in body.items() if name not in _SOCKET_FIELDS}
        fields["stream"] = _TRUE
        return IncomingRequest(
            RequestBody(RESPONSES, _json(fields)),
            create.model,
            True,
            id=id,
            caller=self.caller,
            reject_lossy=self._gateway.reject_lossy,
        )

    async def _with_history(
        self, incoming: IncomingRequest, create: _Create, memory: MemoryReservation
    ) -> IncomingRequest:
        """Adds the turns that a request continues. Raises RequestFailed, BadRequest, StoreError."""
        previous = create.previous_response_id
        if previous is None:
            return await self._with_stored(incoming, create, memory)
        state = self._cache[previous]
        # With `store: false` the store is not consulted: the specification wants
        # previous_response_not_found on a new connection, whatever is stored.
        in_store = self._sessions is not None and create.store is not False
        if in_store and (state is None or state.stored):
            return await self._with_stored(incoming, create, memory)
        if state is None:
            raise RequestFailed(previous_not_found(previous))
        return await self._with_cached(incoming, previous, state, memory)

    async def _with_stored(
        self, incoming: IncomingRequest, preamble: ResponsesPreamble, memory: MemoryReservation
    ) -> IncomingRequest:
        """Adds the turns in the store, and what is to be stored."""
        sessions = self._sessions
        if sessions is None:
            return incoming
        return await sessions.with_history(incoming, preamble, memory)

    async def _with_cached(
        self,
        incoming: IncomingRequest,
        previous: str,
        state: CachedResponse,
        memory: MemoryReservation,
    ) -> IncomingRequest:
        """Adds the turns in the cache. If the response is stored, its input holds them all, since
        the store does not have them.
        """
        raw, cached = incoming.body.raw, state.items_json
        memory.reserve_more(await for_body(cached, json_cost, [cached]))

        def join() -> tuple[bytes, int]:
            new = input_items_of(raw)
            items = history.with_results(state.items, new)
            body = history.with_input(raw, items, "previous_response_id")
            return body, len(items) - len(new)

        body, before = await for_body(max(raw, cached, key=len), join)
        # The store sees a request that continues nothing, since it may not have the turns before;
        # what it stores as the request is the client's own message.
        joined = replace(incoming, body=RequestBody(RESPONSES, body))
        preamble = await for_body(body, parse_preamble, body)
        whole = await self._with_stored(joined, preamble, memory)
        whole = replace(whole, before=before)
        if whole.store is None:
            return replace(whole, previous=previous)
        return replace(whole, store=replace(whole.store, request=raw))

    async def _respond(
        self, incoming: IncomingRequest, create: _Create, memory: MemoryReservation
    ) -> None:
        """Streams one response, and caches it."""
        run, sessions = await self._gateway.start(incoming), self._sessions
        writer = SocketWriter(create.stream_id)
        if sessions is not None and sessions.window and run.writer is not None:
            last = await self._follow_run(run, sessions, writer, memory)
        else:
            last = await self._stream_run(run, writer)
        ended = await for_body(last, _ended, last)
        if ended.status in _CONTINUABLE:
            raw = incoming.body.raw
            items = [*await for_body(raw, input_items_of, raw), *ended.output]
            policy = incoming.store
            is_visible = policy is not None and policy.visible
            self._remember(ended.id, items, stored=is_visible and run.record.unstored is None)
        else:
            self._cache.remove(create.previous_response_id)

    def _remember(self, id: str, items: list[Raw], *, stored: bool) -> None:
        """Caches a response, as far as there is memory for it."""
        self._cache.add(id, items, stored=stored)
        while not self._cache_memory.resize(self._cache.size):
            self._cache.remove_oldest()

    async def _stream_run(self, run: Run, writer: SocketWriter) -> bytes:
        """Streams a response that ends with the socket; returns its last snapshot."""
        last: bytes | None = None
        try:
            stream = await run.open()
            while events := await stream.next():
                last = last_snapshot(events) or last
                await self._send(writer, events)
        except RequestFailed as failed:
            # Nothing was sent yet: an error message ends the turn. Otherwise only a failed response
            # may.
            if last is None:
                raise
            events = await run.error_events(failed.error)
            last = last_snapshot(events)
            await self._send(writer, events)
        finally:
            try:
                await run.close()
            finally:
                self._gateway.end_run(run)
        return last or b"{}"

    async def _follow_run(
        self, run: Run, sessions: Sessions, writer: SocketWriter, memory: MemoryReservation
    ) -> bytes:
        """The same for a response that goes on for a while after a disconnect."""

        def ended(run: Run) -> None:
            self._gateway.end_run(run)
            memory.release()

        memory.holders += 1  # it may outlive its message
        id = await sessions.detach(run, ended)
        async for events in sessions.events(id):
            await self._send(writer, events)
        entry = await sessions.store.entry(id)
        if entry is None or entry.status in RUNNING:  # its end could not be stored
            raise RequestFailed(new_error("server", "the response could not be stored"))
        return entry.body or b"{}"

    async def _send(self, writer: SocketWriter, events: list[Event]) -> None:
        for message in writer.write(events):
            await self._connection.write_text(message, writer.begin)

    async def _send_error(
        self, failed: RequestFailed, code: str | None = None, stream: str | None = None
    ) -> None:
        error = failed.error
        status, data = http_response.render_error(RESPONSES, error)
        if isinstance(failed, HttpRejection):
            status = failed.status
        body = msgspec.json.decode(data)["error"]
        # Open Responses: `code` is required in an error frame.
        body["code"] = code or body.get("code") or body.get("type")
        headers = error_headers(error)
        if headers:
            body["headers"] = headers
        frame = _ErrorMessage("error", status, body, stream)
        await self._connection.write_text(_json(frame))


def _empty_response(incoming: IncomingRequest) -> list[Event]:
    """The events of a response without content, which is not stored."""
    fresh = fresh_context()
    request = msgspec.structs.replace(
        incoming.body.parsed.request,
        model=incoming.model,
        previous_response_id=incoming.previous,
        store=False,
    )
    context = replace(fresh, request=request)
    parts = [ResponseMetadata("", model=incoming.model), Finish("stop", usage=Usage(0, 0, 0))]
    encoder = encoder_of(DIALECTS[RESPONSES], context, Assembler(), Findings())
    return encoder.feed(parts)


def _decoded(raw: bytes, shape: bodies.JsonLimits) -> tuple[_Create, dict[str, Raw], int]:
    """Decodes a message: the fields that matter here, all of them, and the number of objects as
    `bodies.check` returns it. Raises BadRequest."""
    objects = bodies.check(raw, shape)
    try:
        return _create(raw), large_json.members(raw), objects
    except (ValueError, RecursionError) as problem:
        raise BadRequest("", str(problem)) from None
