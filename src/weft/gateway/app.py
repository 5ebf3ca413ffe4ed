"""The gateway: settings in, an ASGI app out. Every request passes `__call__` first."""

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
from weft.gateway import http_response, logs
from weft.gateway.agents import AgentService
from weft.gateway.apis import CHAT_COMPLETIONS, RESPONSES
from weft.gateway.auth import HttpRejection, RequestGuard
from weft.gateway.bodies import JsonLimits
from weft.gateway.endpoints import Endpoint, Receive, Scope, Send, headers_of
from weft.gateway.http_protocol import EXCHANGE, Exchange
from weft.gateway.memory import ASCII_FACTOR, BodyReservation, MemoryReservation
from weft.gateway.routes import GET, route_table
from weft.gateway.sessions import RetentionPolicy, Sessions
from weft.gateway.settings import Settings
from weft.gateway.settings.schema import StoreSettings
from weft.gateway.stored_responses import LAST_EVENT_ID, ResumeStream
from weft.gateway.websocket import ResponsesWebSocket
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
MIN_FREE_DISK = 16 * 1024 * 1024
"""Free bytes on the disk of the store below which the gateway is not ready: small writes may still
succeed then, but a response may not fit."""

_SHUTTING_DOWN = new_error("overloaded", "the server is shutting down", retry_after=1)


def upstream_for(place: UpstreamConfig) -> Upstream:
    return DemoUpstream(place) if place.base_url.startswith("demo:") else HttpUpstream(place)


class Gateway:
    """The application of one process. It serves until `drain` and `abort`."""

    def __init__(self, settings: Settings, own_runs: bool = False) -> None:
        """`own_runs`: as for AgentService. Raises SettingsError."""
        server, limits = settings.server, settings.server.limits
        self.max_body = limits.body
        self.json_limits = JsonLimits(
            limits.depth, limits.object_keys, limits.array_items, limits.values
        )
        self.keepalive = server.keepalive
        self.reject_lossy = server.reject_lossy
        self.limits = RequestLimits(
            limits.response,
            limits.duration,
            server.grace,
            messages=limits.messages,
            tools=limits.tools,
            schema=limits.schema,
        )
        self._server = server
        self._store = settings.store
        self._scrub = Scrubber(settings.secrets)
        keys = {key.name: key.secret.reveal() for key in settings.keys}
        self._guard = RequestGuard(server.host, server.hosts, keys)
        upstreams: dict[str, Upstream] = {
            place.name: upstream_for(place) for place in settings.upstreams
        }
        self._routing = Routing(upstreams, settings.models)
        self._sessions = _sessions(settings.store, server.resume_window, server.keepalive)
        self._sockets = ResponsesWebSocket(self, self._sessions, per_key=limits.websockets_per_key)
        self._agents: AgentService | None = None
        if self._sessions is not None:
            persistence, observers = self._sessions.persistence, (self._log,)
            self._agents = AgentService(
                settings, self._routing, persistence, self.limits, self._scrub, observers, own_runs
            )
        if self._agents is not None and settings.agents:
            # The agents ask the models of the settings; clients may ask the agents as well.
            agents = self._agents.upstream
            name = agents.config.name
            aliases = {agent: (f"{name}/{agent}",) for agent in settings.agents}
            self._routing = Routing({**upstreams, name: agents}, {**aliases, **settings.models})
        self._table = route_table(self, self._routing, self._sessions, self._agents)
        self._router = Starlette(
            routes=[*self._table.routes, *self._own_routes()],
            exception_handlers={404: _not_found, 405: _method_not_allowed},
            lifespan=self._lifespan,
        )
        self._request_ids = fresh_context().ids
        self._bodies: dict[str, MemoryReservation] = {}
        """The memory of request bodies, by request id."""
        self._runs: set[Run] = set()
        self._draining = False

    def _own_routes(self) -> list[BaseRoute]:
        websocket = WebSocketRoute("/v1/responses", self._sockets)
        return [
            # A Route of the same path stands in the table, too: starlette tells them apart by the
            # scope.
            *([websocket] if self._server.websocket else []),
            Route("/health", self._health, methods=GET),
            Route("/", self._health, methods=["HEAD"]),
            Route("/api/hello", self._health, methods=["HEAD"]),  # sent by Claude Code first
            Route("/ready", self._ready, methods=GET),
        ]

    @property
    def agents(self) -> AgentService | None:
        """The runtime of agents; None without a store."""
        return self._agents

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with self.running():
            yield

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Does everything but listen: stores, takes over what dead processes have left, and works
        on the runs of agents. Raises StoreError."""
        logs.begin(self._server.log, self._scrub)
        gc.collect()
        gc.freeze()  # objects of the startup stay, so the collector need not visit them again
        # The default of 700 makes a busy process collect all the time, and find next to nothing:
        # streams and connections are freed by their reference counts alone.
        gc.set_threshold(20_000, 20, 20)
        if self._sessions is not None:
            await self._sessions.start(self._runs)
        try:
            if self._agents is not None:
                await self._agents.start()
            yield
        finally:
            # Before the store: what its runs do last is written.
            if self._agents is not None:
                await self._agents.close()
            if self._sessions is not None:
                await self._sessions.close()
            for upstream in self._routing.upstreams.values():
                await upstream.close()

    # Requests

    @property
    def app(self) -> Any:
        """Itself: uvicorn has its own type for an ASGI app."""
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        # First of all: every response has the id, also that of a refusal.
        id = scope["weft.id"] = self._request_ids.mint("req")
        headers, path = headers_of(scope), scope["path"]
        is_websocket = scope["type"] == "websocket"
        dialect, about = dialect_of(path, headers), http_response.weft_headers(id)
        try:
            method = "WEBSOCKET" if is_websocket else scope["method"]
            caller = self._guard.authorize(method, path, headers)
        except HttpRejection as rejection:
            if is_websocket:  # the handshake is answered with a status
                data = http_response.render_error(dialect, rejection.error)[1]
                start = {"type": "websocket.http.response.start", "status": rejection.status}
                await send({**start, "headers": [http_response.JSON_TYPE]})
                await send({"type": "websocket.http.response.body", "body": data})
            else:
                await http_response.send_error(send, dialect, rejection, about)
            return
        # Without keys all responses belong to the caller "".
        scope["weft.caller"] = caller or ""
        if not is_websocket and caller is not None:
            scope[EXCHANGE].mark_authenticated()
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        if is_websocket or not has_body:
            await self._dispatch(scope, headers, receive, send)
            return
        exchange: Exchange = scope[EXCHANGE]
        # Memory is reserved for the announced length, before a byte of the body is read: bodies
        # that are half received when the memory runs out could not all be finished.
        body = BodyReservation(exchange.memory, receive, self.max_body)
        self._bodies[id] = body.reserved
        try:
            body.expect(headers.get(b"content-length"))
            await self._dispatch(scope, headers, body.receive, send)
        except HttpRejection as rejection:
            closing = (b"connection", b"close")  # the rest of the body is not read
            await http_response.send_error(send, dialect, rejection, [*about, closing])
        finally:
            self._release(id)

    async def _dispatch(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Answers a request that is authorized."""
        id, path = scope["weft.id"], scope["path"]
        is_websocket = scope["type"] == "websocket"
        endpoint: Endpoint | ResumeStream | None = self._table.direct.get(path)
        if LAST_EVENT_ID in headers:
            endpoint = self._table.resumed.get(path, endpoint)
        # Past starlette, whose middleware and list of routes each request would go through.
        if endpoint is not None and not is_websocket and scope["method"] == "POST":
            await endpoint(scope, receive, send)
            return
        # The router's endpoints may fail after their head: a second head inside a body would be
        # worse than a body that is cut.
        tracked = _StartTracker(send)
        try:
            await self._router(scope, receive, tracked)
        except asyncio.CancelledError:
            raise
        except Exception as problem:
            failed = http_response.failure(id, problem)
            if not tracked.started and not is_websocket:
                dialect, about = dialect_of(path, headers), http_response.weft_headers(id)
                await http_response.send_error(send, dialect, failed, about)

    # Runs

    def start(self, incoming: IncomingRequest) -> Run:
        """The one place where a request is admitted and counted. Raises RequestFailed."""
        if self._draining:
            raise HttpRejection(503, _SHUTTING_DOWN)
        # Counted anew each time, instead of a counter per key that every way out of a run would
        # have to keep right.
        allowed = self._server.limits.streams_per_key
        mine = allowed and sum(run.record.caller == incoming.caller for run in self._runs)
        if allowed and mine >= allowed:
            message = f"this API key has {mine} requests in progress, which is its limit"
            raise RequestFailed(new_error("rate", message, retry_after=1))
        body = self._bodies.get(incoming.id)
        if body is not None:  # with earlier turns, it may be larger than what was received
            # Before the run exists: if this raises, nothing has to be undone.
            body.reserve(max(body.size, ASCII_FACTOR * len(incoming.body.raw)))
        try:
            targets = self._routing.targets(incoming.model)
        except UnknownModel as problem:
            raise RequestFailed(new_error("not-found", str(problem), param="model")) from None
        if self._server.tool_session and incoming.body.dialect == RESPONSES:
            incoming = replace(incoming, tool_session=True)
        writer = reasoning = None
        if self._sessions is not None:
            incoming = self._sessions.with_store_policy(incoming)
            writer = self._sessions.persistence.writer(incoming)
            reasoning = self._sessions.store if self._store.reasoning else None
        run = Run(incoming, targets, self.limits, self._scrub, (self._log,), writer, reasoning)
        self._runs.add(run)
        if body is not None:
            body.holders += 1  # a run in the background outlives its request
        return run

    def end_run(self, run: Run) -> None:
        if run in self._runs:
            self._runs.remove(run)
            self._release(run.record.id)

    def _release(self, id: str) -> None:
        """A request or its run ended: the last of them frees the memory of the body."""
        body = self._bodies.get(id)
        if body is not None and body.release():
            del self._bodies[id]

    def _log(self, record: RequestRecord) -> None:
        has_failed = record.error is not None or record.unstored is not None
        # A request that failed is a warning, and is logged at every level but `error`.
        if has_failed or logs.LEVELS[self._server.log] <= logs.LEVELS["info"]:
            logs.write(logs.request(record, self._scrub))

    # Shutdown

    @property
    def is_draining(self) -> bool:
        return self._draining

    def drain(self) -> None:
        self._draining = True
        self._sockets.drain()
        if self._agents is not None:
            self._agents.drain()

    def abort(self) -> None:
        for run in list(self._runs):
            run.stop(_SHUTTING_DOWN)

    # Operations

    async def _health(self, request: HttpRequest) -> HttpResponse:
        return _json({"status": "ok"})

    async def _ready(self, request: HttpRequest) -> HttpResponse:
        sessions, open_runs = self._sessions, len(self._runs)
        disk = disk_of(self._store.url) if sessions is not None else None
        reason = None
        if self._draining:
            reason = "the server is shutting down"
        elif sessions is not None and sessions.lease_error is not None:
            # Each renewal of the lease is a write, so a probe need not try one of its own.
            reason = f"the store accepts no writes: {sessions.lease_error}"
        elif disk is not None and free_bytes(disk) < MIN_FREE_DISK:
            reason = "the disk of the store is full"
        if reason is None:
            return _json({"status": "ready", "open": open_runs})
        status = "draining" if self._draining else "unready"
        return _json({"status": status, "reason": reason, "open": open_runs}, 503)


def disk_of(url: str) -> Path | None:
    """Returns the folder of an SQLite store; None for other stores."""
    file = url.removeprefix("sqlite:///")
    return None if file == url else Path(file).parent


def free_bytes(folder: Path) -> int:
    """Returns the free space on the disk of a folder."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _sessions(store: StoreSettings, window: float, keepalive: float) -> Sessions | None:
    if not store.enabled:
        return None
    policy = RetentionPolicy(
        store.persist == "all", DAY * store.retention, DAY * store.log_retention, store.lease
    )
    persistence = Persistence(store_from_url(store.url), required=store.required)
    return Sessions(persistence, window, policy, keepalive)


class _StartTracker:
    """Wraps `send` and remembers whether a response began."""

    __slots__ = ("_send", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    def __call__(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        self.started = True
        return self._send(message)


def _json(value: object, status: int = 200) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(value), status, media_type="application/json")


def _error_response(
    request: HttpRequest, status: int, error: ErrorPart, more: Mapping[str, str] | None = None
) -> HttpResponse:
    dialect = dialect_of(request.url.path, headers_of(request.scope))
    about = http_response.weft_headers(request.scope["weft.id"])
    headers = {name.decode(): value.decode() for name, value in about} | dict(more or {})
    body = http_response.render_error(dialect, error)[1]
    return HttpResponse(body, status, headers, media_type="application/json")


async def _not_found(request: HttpRequest, problem: Exception) -> HttpResponse:
    path = request.url.path
    dialect = dialect_of(path, headers_of(request.scope))
    # in OpenAI's dialects the code of not-found would say that the model does not exist
    is_openai = dialect in (CHAT_COMPLETIONS, RESPONSES)
    error_class: ErrorClass = "bad-request" if is_openai else "not-found"
    return _error_response(request, 404, new_error(error_class, f"{path[:200]} does not exist"))


async def _method_not_allowed(request: HttpRequest, problem: Exception) -> HttpResponse:
    allowed = problem.headers if isinstance(problem, HTTPException) else None
    status, message = 405, f"{request.method} is not allowed on {request.url.path[:200]}"
    if "sec-websocket-key" in request.headers:  # HttpProtocol has removed its upgrade
        # Codex falls back to HTTP at once if a handshake is answered with 426; on any other status
        # it tries the socket several times first.
        status, message = 426, "WebSocket is disabled on this server"
        # RFC 9110: a 426 names the protocol to use (15.5.22), Connection names that field (7.8).
        allowed = {"Upgrade": "HTTP/1.1", "Connection": "Upgrade"}
    error = msgspec.structs.replace(new_error("bad-request", message), status=status)
    return _error_response(request, status, error, allowed)
