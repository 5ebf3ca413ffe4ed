"""The gateway: settings in, an ASGI app out. Every request comes through `__call__` first."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute

from weft.codec import fresh_context
from weft.dialects import dialect_of
from weft.dialects.error_classes import ErrorClass, new_error
from weft.gateway import answers, logs
from weft.gateway.bodies import Shape
from weft.gateway.compacting import Compact
from weft.gateway.completions import CompletionMessages, Completions, OneCompletion
from weft.gateway.conversations import (
    ConversationItems,
    NewConversation,
    OneConversation,
    OneItem,
)
from weft.gateway.counting import CountTokens, InputTokens
from weft.gateway.doors import Doors, Shut
from weft.gateway.endpoints import Endpoint, Gemini, Messages, Receive, Scope, Send, headers_of
from weft.gateway.memory import PLAIN, BodyReservation, Reservation
from weft.gateway.models import Models
from weft.gateway.protocol import EXCHANGE, Exchange
from weft.gateway.responses import RememberedMessages, Remembering, Responses
from weft.gateway.sessions import Policy, Sessions
from weft.gateway.settings import Settings
from weft.gateway.settings.shape import Store as StoreSettings
from weft.gateway.stored import LAST_SEEN, Cancel, FindingsOf, InputItems, Resume, Stored
from weft.gateway.submitting import Submit
from weft.gateway.websocket import ResponsesSocket
from weft.parts import ErrorPart
from weft.relay.incoming import IncomingRequest, RequestFailed, RequestLimits
from weft.relay.persistence import Persistence
from weft.relay.request_record import RequestRecord
from weft.relay.routing import Routing, UnknownModel
from weft.relay.run import Run
from weft.scrub import Scrubber
from weft.store.urls import store_from_url
from weft.upstream.base import Upstream, UpstreamConfig
from weft.upstream.demo import DemoUpstream
from weft.upstream.http import HttpUpstream

DAY = 86_400
LEAST_DISK = 16 * 1024 * 1024
"""Bytes that are free on the disk of a store which is ready: below that, small writes may still
find room in its files while an answer does not."""

POST = ["POST"]
GET = ["GET"]


def upstream_for(place: UpstreamConfig) -> Upstream:
    return DemoUpstream(place) if place.base_url.startswith("demo:") else HttpUpstream(place)


class Gateway:
    """One process's share of the work. Serves from the first request to `drain` and `cut`."""

    def __init__(self, settings: Settings) -> None:
        server = settings.server
        limits = server.limits
        self.limit = limits.body
        self.shape = Shape(limits.depth, limits.object_keys, limits.array_items, limits.values)
        self.keepalive = server.keepalive
        self.reject_lossy = server.reject_lossy
        self.websocket_message = limits.websocket_message
        self.scrub = Scrubber(settings.secrets)
        self.limits = RequestLimits(
            limits.response,
            limits.duration,
            server.grace,
            messages=limits.messages,
            tools=limits.tools,
            schema=limits.schema,
        )
        self._level = server.log
        self._per_key = limits.streams_per_key
        self._tool_session = server.tool_session
        keys = {key.name: key.secret.reveal() for key in settings.keys}
        self._doors = Doors(server.host, server.hosts, keys)
        self._routing = Routing(
            {place.name: upstream_for(place) for place in settings.places}, settings.models
        )
        self._sessions = _sessions(settings.store, server.resume_window, server.keepalive)
        self._disk = disk_of(settings.store.url) if self._sessions is not None else None
        keeps = self._sessions is not None and settings.store.reasoning
        self._reasoning = self._sessions.store if self._sessions is not None and keeps else None
        """Where the reasoning of tool calls is kept."""
        self._endpoints: dict[str, Endpoint] = {
            "/v1/chat/completions": Endpoint(self, "openai-chat"),
            "/v1/responses": Endpoint(self, "openai-responses"),
            "/v1/messages": Messages(self, "anthropic-messages"),
        }
        self._resumes: dict[str, Resume] = {}
        """Where streams are asked for again by the id of an event."""
        if self._sessions is not None:
            self._endpoints, self._resumes = self._remembering(self._sessions)
        """Where nearly every request goes: found at once."""
        sockets = limits.websockets_per_key
        self._sockets = ResponsesSocket(self, self._sessions, per_key=sockets)
        self._ids = fresh_context().ids
        """Of requests."""
        self._bodies: dict[str, Reservation] = {}
        """What the bodies of requests take, by the ids of these."""
        self._runs: set[Run] = set()
        self._draining = False
        self._router = Starlette(
            routes=self._routes(websocket=server.websocket),
            exception_handlers={404: _nothing_here, 405: _not_this_way},
            lifespan=self._lifespan,
        )

    def _remembering(self, sessions: Sessions) -> tuple[dict[str, Endpoint], dict[str, Resume]]:
        endpoints: dict[str, Endpoint] = {
            "/v1/chat/completions": Remembering(self, "openai-chat", sessions),
            "/v1/responses": Responses(self, "openai-responses", sessions),
            "/v1/messages": RememberedMessages(self, "anthropic-messages", sessions),
        }
        resumed = ("/v1/chat/completions", "/v1/messages")
        return endpoints, {
            path: Resume(sessions, dialect_of(path, {}), self.keepalive) for path in resumed
        }

    def _routes(self, *, websocket: bool) -> list[BaseRoute]:
        models = Models(self._routing)
        tokens = InputTokens(self, self._routing, self._sessions)
        call = "/v1beta/{call:path}"  # some clients leave `models/` out where a name has a slash
        socket = [WebSocketRoute("/v1/responses", self._sockets)] if websocket else []
        return [
            *socket,
            Route("/v1/responses/compact", Compact(self, self._sessions), methods=POST),
            Route("/v1/responses/input_tokens", tokens, methods=POST),
            *self._remembered(),
            *(Route(path, endpoint, methods=POST) for path, endpoint in self._endpoints.items()),
            Route(
                "/v1/messages/count_tokens",
                CountTokens(self, self._routing, "anthropic-messages"),
                methods=POST,
            ),
            Route(call, Gemini(self, "gemini"), methods=POST),
            Route("/v1/models", models, methods=GET),
            Route("/v1/models/{id:path}", models, methods=GET),
            Route("/v1beta/models", models, methods=GET),
            Route("/v1beta/models/{id:path}", models, methods=GET),
            Route("/health", self._health, methods=GET),
            Route("/", self._health, methods=["HEAD"]),
            Route("/api/hello", self._health, methods=["HEAD"]),  # Claude Code, before it begins
            Route("/ready", self._ready, methods=GET),
        ]

    def _remembered(self) -> list[BaseRoute]:
        """What there is to ask of earlier answers."""
        sessions = self._sessions
        if sessions is None:
            return []
        one = "/v1/responses/{id}"
        talk = "/v1/conversations/{id}"
        done = "/v1/chat/completions"
        return [
            Route(one, Stored(sessions, self.keepalive), methods=[*GET, "DELETE"]),
            Route(f"{one}/input_items", InputItems(sessions), methods=GET),
            Route(f"{one}/findings", FindingsOf(sessions), methods=GET),
            Route(f"{one}/cancel", Cancel(sessions), methods=POST),
            Route(f"{one}/submit_tool_outputs", Submit(self, sessions), methods=POST),
            Route(done, Completions(self, sessions), methods=GET),
            Route(f"{done}/{{id}}", OneCompletion(self, sessions), methods=[*GET, *POST, "DELETE"]),
            Route(f"{done}/{{id}}/messages", CompletionMessages(self, sessions), methods=GET),
            Route("/v1/conversations", NewConversation(self, sessions), methods=POST),
            Route(talk, OneConversation(self, sessions), methods=[*GET, *POST, "DELETE"]),
            Route(f"{talk}/items", ConversationItems(self, sessions), methods=[*GET, *POST]),
            Route(f"{talk}/items/{{item_id}}", OneItem(self, sessions), methods=[*GET, "DELETE"]),
        ]

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        logs.begin(self._level, self.scrub)
        gc.collect()
        gc.freeze()  # what is there now stays: it need not be looked at again and again
        gc.set_threshold(20_000, 20, 20)
        if self._sessions is not None:
            await self._sessions.start(self._runs)
        try:
            yield
        finally:
            if self._sessions is not None:
                await self._sessions.close()
            for upstream in self._routing.upstreams.values():
                await upstream.close()

    # The door

    @property
    def app(self) -> Any:
        """Itself: uvicorn has types of its own for what every ASGI app is."""
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        id = scope["weft.id"] = self._ids.mint("req")
        headers, path = headers_of(scope), scope["path"]
        socket = scope["type"] == "websocket"
        dialect = dialect_of(path, headers)
        try:
            method = "WEBSOCKET" if socket else scope["method"]
            caller = self._doors.admit(method, path, headers)
        except Shut as shut:
            if not socket:
                await answers.failure(send, dialect, shut, answers.about(id))
            else:
                await _turned_away(send, shut, dialect)
            return
        scope["weft.caller"] = caller or ""
        if socket:
            await self._dispatch(scope, headers, receive, send)
            return
        if caller is not None:
            scope[EXCHANGE].admit()
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            await self._dispatch(scope, headers, receive, send)
            return
        exchange: Exchange = scope[EXCHANGE]
        body = BodyReservation(exchange.memory, receive, self.limit)
        self._bodies[id] = body.reserved
        try:
            body.expect(headers.get(b"content-length"))
            await self._dispatch(scope, headers, body.receive, send)
        except Shut as shut:
            closing = (b"connection", b"close")  # the rest of the body is not read
            await answers.failure(send, dialect, shut, [*answers.about(id), closing])
        finally:
            self._release(id)

    async def _dispatch(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Has a request that was admitted answered."""
        id, path = scope["weft.id"], scope["path"]
        socket = scope["type"] == "websocket"
        endpoint: Endpoint | Resume | None = self._endpoints.get(path)
        if LAST_SEEN in headers:
            endpoint = self._resumes.get(path, endpoint)
        if endpoint is not None and not socket and scope["method"] == "POST":
            await endpoint(scope, receive, send)
            return
        begun = _Begun(send)
        try:
            await self._router(scope, receive, begun)
        except asyncio.CancelledError:
            raise
        except Exception as problem:
            failed = answers.own_fault(id, problem)
            if not begun.begun and not socket:
                dialect = dialect_of(path, headers)
                await answers.failure(send, dialect, failed, answers.about(id))

    # What runs

    def start(self, incoming: IncomingRequest) -> Run:
        """The one place where a request is let in, and counted."""
        if self._draining:
            raise Shut(503, new_error("overloaded", "the server is shutting down", retry_after=1))
        mine = self._per_key and sum(run.record.caller == incoming.caller for run in self._runs)
        if self._per_key and mine >= self._per_key:
            message = f"{mine} requests of this key are under way; that is the limit"
            raise RequestFailed(new_error("rate", message, retry_after=1))
        body = self._bodies.get(incoming.id)
        if body is not None:  # with earlier turns, it may be more than came
            body.demand(max(body.size, PLAIN * len(incoming.body.raw)))
        try:
            targets = self._routing.targets(incoming.model)
        except UnknownModel as problem:
            raise RequestFailed(new_error("not-found", str(problem), param="model")) from None
        if self._tool_session and incoming.body.dialect == "openai-responses":
            incoming = replace(incoming, tool_session=True)
        writer = None
        if self._sessions is not None:
            incoming = self._sessions.with_policy(incoming)
            writer = self._sessions.persistence.writer(incoming)
        run = Run(incoming, targets, self.limits, self.scrub, (self._log,), writer, self._reasoning)
        self._runs.add(run)
        if body is not None:
            body.holders += 1  # one in the background outlives its request
        return run

    def ended(self, run: Run) -> None:
        if run in self._runs:
            self._runs.remove(run)
            self._release(run.record.id)

    def _release(self, id: str) -> None:
        """A request is over, or its run: the last of them gives the memory of its body back."""
        body = self._bodies.get(id)
        if body is not None and body.release():
            del self._bodies[id]

    def _log(self, record: RequestRecord) -> None:
        wrong = record.error is not None or record.unstored is not None
        if wrong or logs.LEVELS[self._level] <= logs.LEVELS["info"]:
            logs.write(logs.request(record, self.scrub))

    # Leaving

    def drain(self) -> None:
        self._draining = True
        self._sockets.drain()

    def cut(self) -> None:
        error = new_error("overloaded", "the server is shutting down", retry_after=1)
        for run in list(self._runs):
            run.stop(error)

    # Operations

    async def _health(self, request: HttpRequest) -> HttpResponse:
        return _json({"status": "ok"})

    async def _ready(self, request: HttpRequest) -> HttpResponse:
        reason = self._unready()
        if reason is not None:
            status = "draining" if self._draining else "unready"
            return _json({"status": status, "reason": reason, "open": len(self._runs)}, 503)
        return _json({"status": "ready", "open": len(self._runs)})

    def _unready(self) -> str | None:
        """Why no new work should come here."""
        sessions = self._sessions
        if self._draining:
            return "the server is shutting down"
        if sessions is not None and sessions.trouble is not None:
            return f"the store takes no writes: {sessions.trouble}"
        if self._disk is not None and free_bytes(self._disk) < LEAST_DISK:
            return "the disk of the store is full"
        return None


def disk_of(url: str) -> Path | None:
    """Returns the folder of a store that is a file."""
    file = url.removeprefix("sqlite:///")
    return None if file == url else Path(file).parent


def free_bytes(folder: Path) -> int:
    """Returns what may still be written to the disk of a folder."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _sessions(store: StoreSettings, window: float, keepalive: float) -> Sessions | None:
    if not store.enabled:
        return None
    policy = Policy(
        store.persist == "all", DAY * store.retention, DAY * store.log_retention, store.lease
    )
    persistence = Persistence(store_from_url(store.url), required=store.required)
    return Sessions(persistence, window, policy, keepalive)


class _Begun:
    """Remembers whether an answer began."""

    __slots__ = ("_send", "begun")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    def __call__(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        self.begun = True
        return self._send(message)


def _json(value: object, status: int = 200) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(value), status, media_type="application/json")


def _missing(
    request: HttpRequest, status: int, error: ErrorPart, more: Mapping[str, str] | None = None
) -> HttpResponse:
    dialect = dialect_of(request.url.path, headers_of(request.scope))
    about = answers.about(request.scope["weft.id"])
    headers = {name.decode(): value.decode() for name, value in about} | dict(more or {})
    if dialect == "gemini":  # its body repeats the status
        error = msgspec.structs.replace(error, status=status)
    body = answers.written(dialect, error)[1]
    return HttpResponse(body, status, headers, media_type="application/json")


async def _nothing_here(request: HttpRequest, problem: Exception) -> HttpResponse:
    path = request.url.path
    coded = dialect_of(path, headers_of(request.scope)).startswith("openai")
    found: ErrorClass = "bad-request" if coded else "not-found"  # theirs would be a model's
    return _missing(request, 404, new_error(found, f"nothing at {path[:200]!r}"))


async def _not_this_way(request: HttpRequest, problem: Exception) -> HttpResponse:
    if "sec-websocket-key" in request.headers:  # the door takes out an upgrade that is not taken
        return _missing(request, 426, new_error("bad-request", "WebSocket is switched off here"))
    error = new_error("bad-request", f"{request.method} is not taken at {request.url.path[:200]!r}")
    allowed = problem.headers if isinstance(problem, HTTPException) else None
    return _missing(request, 405, error, allowed)


async def _turned_away(send: Send, shut: Shut, dialect: str) -> None:
    """Answers the handshake of a WebSocket with a status."""
    data = answers.written(dialect, shut.error)[1]
    headers = [answers.JSON]
    start = {"type": "websocket.http.response.start", "status": shut.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": data})
