"""The gateway: settings in, an ASGI app out. Every request passes `__call__` first."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute

from weft.agent.dispatch import RESPONSES as BACKGROUND
from weft.agent.upstream import CONFIG as AGENTS
from weft.codec import fresh_context
from weft.dialects import dialect_of
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest, InternalError
from weft.gateway import http_response, logs
from weft.gateway.access import ACCESS, AccessRecord, note_response
from weft.gateway.agents import AgentService
from weft.gateway.apis import RESPONSES
from weft.gateway.auth import (
    PUBLIC_PATHS,
    HttpRejection,
    RequestGuard,
    UnknownKey,
)
from weft.gateway.background import BackgroundResponses
from weft.gateway.bodies import JsonLimits
from weft.gateway.endpoints import (
    BODY,
    Endpoint,
    Receive,
    Scope,
    Send,
    headers_of,
    traceparent_of,
)
from weft.gateway.exchange import (
    EXCHANGE,
    Exchange,
    closing_if_unread,
    may_be_left_unread,
)
from weft.gateway.hooks import Hooks, load_hooks
from weft.gateway.keys import KeyRing
from weft.gateway.ledger import UsageLedger
from weft.gateway.limits import Admission, Limiter
from weft.gateway.memory import (
    ASCII_FACTOR,
    RESERVED,
    UNICODE_FACTOR,
    BodyReservation,
    MemoryReservation,
    is_ascii_json,
)
from weft.gateway.metrics import GatewayState, Metrics, ModelLabels, RunCounts
from weft.gateway.page_files import PageFiles
from weft.gateway.probes import Probes
from weft.gateway.reload import applied, log_reload
from weft.gateway.remote_urls import refuse_urls
from weft.gateway.router_errors import method_not_allowed, not_found
from weft.gateway.routes import GET, route_table
from weft.gateway.sessions import SHUTTING_DOWN, RetentionPolicy, Sessions
from weft.gateway.settings import Settings
from weft.gateway.settings.schema import StoreSettings
from weft.gateway.stored_responses import LAST_EVENT_ID, ResumeStream
from weft.gateway.usage import UsageEndpoint
from weft.gateway.websocket import ResponsesWebSocket
from weft.prices import PriceTable
from weft.relay.incoming import IncomingRequest, RequestFailed, RequestLimits
from weft.relay.offload import for_body, offload
from weft.relay.persistence import Persistence
from weft.relay.request_record import Observer, RequestRecord
from weft.relay.routing import Routing, Target, UnknownModel
from weft.relay.run import Run
from weft.scrub import Scrubber
from weft.store.sql import SqlStore
from weft.store.urls import store_from_url
from weft.upstream.base import Upstream, UpstreamConfig
from weft.upstream.demo import DemoUpstream
from weft.upstream.http import HttpUpstream

if TYPE_CHECKING:
    from weft.gateway.telemetry import Telemetry

DAY = 86_400
METRICS = "/metrics"
TELEMETRY = "weft.gateway.telemetry"
"""Imported only where it is used: it needs the extra `otel`."""


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
        self._settings = settings
        """Those in force: a reload does not change what needs a restart."""
        self._read = settings
        """Those that were read last."""
        self._server = server
        self._store = settings.store
        self._scrub = Scrubber(settings.secrets)
        store = store_from_url(settings.store.url) if settings.store.enabled else None
        self._page = PageFiles() if server.page else None
        self._control_access(settings, store)
        self._observe(settings)
        upstreams: dict[str, Upstream] = {
            place.name: upstream_for(place) for place in settings.upstreams
        }
        self._model_routing = Routing(upstreams, settings.models, settings.policies)
        """Without the agents."""
        self._routing = self._model_routing
        self._retired: list[HttpUpstream] = []
        """Upstreams that new settings do not have, until their last response was read."""
        self._sessions: Sessions | None = None
        if store is not None:
            self._sessions = _sessions(
                store, settings.store, server.resume_window, server.keepalive, self._scrub
            )
        self._sockets = ResponsesWebSocket(self, self._sessions, per_key=limits.websockets_per_key)
        self._serve_agents(settings, own_runs)
        self._table = route_table(self, self._routing, self._sessions, self._agents, self._scrub)
        self._router = Starlette(
            routes=[*self._table.routes, *self._own_routes()],
            exception_handlers={404: not_found, 405: method_not_allowed},
            lifespan=self._lifespan,
        )
        # A redirect would go to http:, also if a proxy in front of the gateway speaks TLS: a client
        # that follows it sends its key in clear.
        self._router.router.redirect_slashes = False
        self._run_counts = None if self._sessions is None else RunCounts(self._sessions.store)
        self._request_ids = fresh_context().ids
        self._bodies: dict[str, MemoryReservation] = {}
        """The memory of request bodies, by request id."""
        self._runs: set[Run] = set()
        self._draining = False
        self._unlogged: set[str] = set()
        """The ids of requests that are in no line of the log yet."""

    def _control_access(self, settings: Settings, store: SqlStore | None) -> None:
        """Makes what decides who may do what: keys, and their limits."""
        server = settings.server
        self._keys = KeyRing(settings.keys, None if store is None else store.accounts)
        readable = [*(self._page.paths if self._page is not None else ())]
        if server.metrics == "public":
            readable.append(METRICS)
        self._guard = RequestGuard(server.host, server.hosts, self._keys, readable)
        self._prices = PriceTable(settings.prices, _urls(settings))
        self._ledger = UsageLedger(store, self._prices)
        self._limiter = Limiter(self._keys, self._ledger, self._prices, store)
        self._admissions: dict[Run, Admission] = {}

    def _observe(self, settings: Settings) -> None:
        """Makes the observers of finished requests: log, hooks, metrics, traces."""
        self._metrics: Metrics | None = None
        if settings.server.metrics != "off":
            self._metrics = Metrics(
                _named_targets(settings), self._scrub, self._prices.cost_of, nested=[AGENTS.name]
            )
        self._telemetry = _telemetry(settings, self._scrub)
        self._hooks = Hooks(load_hooks(settings))
        self._observers: list[Observer] = [self._log, *self._hooks.observers]
        self._observers += [
            one.observe for one in (self._metrics, self._telemetry) if one is not None
        ]

    def _serve_agents(self, settings: Settings, own_runs: bool) -> None:
        """Makes agents, as models and by their runs, and background responses: all of them need a
        store. Raises SettingsError."""
        self._agents: AgentService | None = None
        self._background: BackgroundResponses | None = None
        if self._sessions is not None:
            self._agents = AgentService(
                settings,
                self._routing,
                self._sessions.persistence,
                self.limits,
                self._scrub,
                self._observers,
                partial(self._limiter.admit, is_turn=True),
                self._prices,
                own_runs,
                [one.observe_run for one in (self._metrics, self._telemetry) if one is not None],
            )
            workers = settings.workers
            self._background = BackgroundResponses(
                self, self._sessions, self._agents.dispatcher, workers.lease, workers.concurrency
            )
            if not own_runs:
                self._agents.runtime.queues[BACKGROUND] = self._background.advance
        if self._agents is not None and settings.agents:
            # The agents ask the models of the settings; clients may ask the agents as well.
            if self._sessions is not None:
                agents = self._agents.upstream
                self._sessions.cancel_begun = lambda entry: agents.cancel_key(entry.owner, entry.id)
            self._routing = Routing({}, {})
            self._update_routing(self._model_routing.upstreams)

    def _update_routing(self, upstreams: Mapping[str, Upstream]) -> list[Upstream]:
        """Routes as the settings in force say; returns the upstreams that are no longer used."""
        settings = self._settings
        unused = self._model_routing.update(upstreams, settings.models, settings.policies)
        if self._agents is not None and self._routing is not self._model_routing:
            agents = self._agents.upstream
            name = agents.config.name
            aliases = {agent: (f"{name}/{agent}",) for agent in settings.agents}
            self._routing.update(
                {**upstreams, name: agents}, {**aliases, **settings.models}, settings.policies
            )
        return unused

    def reload(self, settings: Settings) -> None:
        """Applies new settings to all further requests (reload.py has the list); open responses go
        on as they began. Raises ValueError if an upstream cannot be used; then nothing changes."""
        if settings == self._read:
            return
        before = self._routing.upstreams
        upstreams: dict[str, Upstream] = {}
        for place in settings.upstreams:
            kept = before.get(place.name)
            # With its connections, and what its breakers have seen.
            is_same = kept is not None and kept.config == place
            upstreams[place.name] = kept if kept and is_same else upstream_for(place)
        self._scrub.add(settings.secrets)
        running, self._read = self._settings, settings
        self._settings = applied(running, settings)
        self._server = self._settings.server
        self.keepalive, self.reject_lossy = self._server.keepalive, self._server.reject_lossy
        self._keys.update(settings.keys)
        self._prices.update(settings.prices, _urls(settings))
        with suppress(RuntimeError):  # before the loop runs, `running` will do it
            asyncio.get_running_loop().run_in_executor(None, self._prices.preload)
        for upstream in self._update_routing(upstreams):
            if isinstance(upstream, HttpUpstream):
                upstream.retire()
                self._retired.append(upstream)
        self._retired = [one for one in self._retired if one.busy]
        logs.begin(self._server.log, self._scrub, self._server.log_format)
        log_reload(running, settings)

    def _own_routes(self) -> list[BaseRoute]:
        websocket = WebSocketRoute("/v1/responses", self._sockets)
        usage = UsageEndpoint(self._ledger, self._keys)
        probes = Probes(self, self._sessions, self._store.url)
        return [
            # A Route of the same path stands in the table, too: starlette tells them apart by the
            # scope.
            *([websocket] if self._server.websocket else []),
            *([] if self._sessions is None else [Route("/v1/usage", usage, methods=GET)]),
            Route("/health", probes.health, methods=GET),
            Route("/", probes.health, methods=["HEAD"]),
            Route("/api/hello", probes.health, methods=["HEAD"]),  # sent by Claude Code first
            Route("/ready", probes.ready, methods=GET),
            *([] if self._metrics is None else [Route(METRICS, self._show_metrics, methods=GET)]),
            # Behind the HEAD of the probes, which starlette would answer with the page.
            *(self._page.routes() if self._page is not None else ()),
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
        logs.begin(self._server.log, self._scrub, self._server.log_format)
        self._hooks.start()
        gc.collect()
        gc.freeze()  # objects of the startup stay, so the collector need not visit them again
        # The default of 700 makes a busy process collect all the time, and find next to nothing:
        # streams and connections are freed by their reference counts alone.
        gc.set_threshold(20_000, 20, 20)
        if self._sessions is not None:
            await self._sessions.start(self._runs)
        create_task, tasks = asyncio.get_running_loop().create_task, []
        # Not on the loop, and nobody waits for it: it takes some tenths of a second.
        tasks.append(create_task(asyncio.to_thread(self._prices.preload)))
        if self._metrics is not None and self._metrics.is_shared:
            tasks.append(create_task(self._metrics.sample_forever(self._gauges)))
        try:
            await self._keys.refresh()
            await self._ledger.start()
            tasks.append(create_task(self._keys.keep_fresh()))
            tasks.append(create_task(self._ledger.keep(self._limiter.give_back)))
            if self._agents is not None:
                await self._agents.start()
            yield
        finally:
            for task in tasks:
                task.cancel()
            # Before the store: what its runs do last is written.
            if self._background is not None:
                self._background.stop()
            if self._agents is not None:
                await self._agents.close()
            if self._sessions is not None:
                await self._sessions.close(self._ledger.close)
            for upstream in (*self._routing.upstreams.values(), *self._retired):
                await upstream.close()
            await asyncio.to_thread(self._hooks.close)
            if self._telemetry is not None:
                await self._telemetry.close()

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
        id, path, headers = self._request_ids.mint("req"), scope["path"], headers_of(scope)
        scope["weft.id"] = id
        if path.endswith("/") and len(path) > 1:
            path = scope["path"] = path.rstrip("/") or "/"
        is_websocket = scope["type"] == "websocket"
        record = AccessRecord(id, "WEBSOCKET" if is_websocket else scope["method"], path)
        ACCESS.set(record)
        self._unlogged.add(id)
        # All in one function, down to the endpoint: each time that a request goes on, every frame
        # of its task does.
        try:
            try:
                caller = self._guard.authorize(record.method, path, headers)
            except UnknownKey:
                # It may have been made through another process a moment ago.
                if not await self._keys.look_up():
                    raise
                caller = self._guard.authorize(record.method, path, headers)
            # Without keys all responses belong to the caller "".
            scope["weft.caller"] = record.caller = caller or ""
            if is_websocket:
                record.status = 101
                await self._route(scope, headers, receive, send)
                return
            if caller is not None:
                scope[EXCHANGE].mark_authenticated()
            endpoint = self._direct_endpoint(record.method, path, headers)
            is_taken = isinstance(endpoint, Endpoint) and self._take_body(scope)
            if not is_taken and _has_body(headers):
                receive = self._expect_body(scope, headers, receive)
                if may_be_left_unread(headers):
                    send = closing_if_unread(scope[EXCHANGE], send)
            # Past starlette, whose middleware and list of routes each request would go through.
            if endpoint is not None:
                await endpoint(scope, receive, send)
            else:
                await self._route(scope, headers, receive, send)
        except HttpRejection as rejection:
            await self._refuse(scope, headers, send, rejection)
        finally:
            self._release(id)
            if id in self._unlogged:  # no run has logged it, or will
                self._unlogged.remove(id)
                if self._metrics is not None:
                    self._metrics.observe_access(record)
                if logs.LEVELS[logs.access_level(record)] >= logs.LEVELS[self._server.log]:
                    logs.write(logs.access(record, self._scrub))

    @property
    def probes(self) -> Any:
        """The app of a process that takes no requests: only `/health`, `/ready` and `/metrics`."""
        return self._answer_probe

    async def _answer_probe(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PUBLIC_PATHS or scope["path"] == METRICS:
            await self(scope, receive, send)
            return
        headers = [(b"content-length", b"0"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _direct_endpoint(
        self, method: str, path: str, headers: Mapping[bytes, bytes]
    ) -> Endpoint | ResumeStream | None:
        """The endpoint that is found without the router, if there is one."""
        if method != "POST":
            return None
        endpoint = self._table.direct.get(path)
        return self._table.resumed.get(path, endpoint) if LAST_EVENT_ID in headers else endpoint

    def _take_body(self, scope: Scope) -> bool:
        """Puts the body into the scope, if all of it has arrived, as that of nearly every request
        has. Raises HttpRejection if there is no memory for it."""
        exchange: Exchange = scope[EXCHANGE]
        body = exchange.take_body()
        if body is None:
            return False
        scope[BODY] = body
        if len(body) <= self.max_body:  # a larger one is refused
            reserved = scope[RESERVED] = MemoryReservation(exchange.memory)
            self._bodies[scope["weft.id"]] = reserved
            reserved.reserve(len(body) * (ASCII_FACTOR if is_ascii_json(body) else UNICODE_FACTOR))
        return True

    def _expect_body(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Receive:
        """Returns what receives the body. Raises HttpRejection if there is no memory for it."""
        # Memory is reserved for the announced length, before a byte of the body is read: bodies
        # that are half received when the memory runs out could not all be finished.
        body = BodyReservation(scope[EXCHANGE].memory, receive, self.max_body)
        self._bodies[scope["weft.id"]] = scope[RESERVED] = body.reserved
        body.expect(headers.get(b"content-length"))
        return body.receive

    async def _refuse(
        self, scope: Scope, headers: Mapping[bytes, bytes], send: Send, rejection: HttpRejection
    ) -> None:
        """Answers a request that gets to no endpoint."""
        id, dialect = scope["weft.id"], dialect_of(scope["path"], headers)
        if scope["type"] == "websocket":  # the handshake is answered with a status
            note_response(rejection.status, rejection.error)
            data = http_response.render_error(dialect, rejection.error)[1]
            start = {"type": "websocket.http.response.start", "status": rejection.status}
            await send({**start, "headers": [http_response.JSON_TYPE]})
            await send({"type": "websocket.http.response.body", "body": data})
            return
        about = http_response.weft_headers(id)
        if id in self._bodies:  # there is no memory for its body: the rest of that is not read
            about.append((b"connection", b"close"))
        elif _has_body(headers) and may_be_left_unread(headers):
            scope[EXCHANGE].close_if_unread()
        await http_response.send_error(send, dialect, rejection, about)

    async def _route(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Answers an authorized request through the router."""
        id, path = scope["weft.id"], scope["path"]
        # The router's endpoints may fail after their head: a second head inside a body would be
        # worse than a body that is cut.
        tracked = _StartTracker(send)
        try:
            await self._router(scope, receive, tracked)
        except asyncio.CancelledError:
            raise
        except Exception as problem:
            failed = http_response.failure(id, problem)
            if not tracked.started and scope["type"] != "websocket":
                dialect, about = dialect_of(path, headers), http_response.weft_headers(id)
                await http_response.send_error(send, dialect, failed, about)

    # Runs

    async def start(self, incoming: IncomingRequest) -> Run:
        """A run of a new request. Raises RequestFailed."""
        return await self.run(self.admit(incoming))

    async def launch(self, incoming: IncomingRequest) -> bytes:
        if self._background is None:
            raise InternalError("without a store nothing runs in the background")
        return await self._background.launch(incoming)

    def admit(self, incoming: IncomingRequest) -> IncomingRequest:
        """Checks a new request, except the limits of its key. Raises RequestFailed."""
        if self._draining:
            raise HttpRejection(503, SHUTTING_DOWN)
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
            needed = ASCII_FACTOR * len(incoming.body.raw)
            if needed > body.size:
                body.reserve(needed)
        self.check_model(incoming.caller, incoming.model)
        try:
            lossy = self._routing.policy(incoming.model).lossy
        except UnknownModel as problem:
            raise _model_not_found(problem) from None
        if lossy is not None:
            incoming = replace(incoming, reject_lossy=lossy == "refuse")
        if self._server.tool_session and incoming.body.dialect == RESPONSES:
            incoming = replace(incoming, tool_session=True)
        if self._sessions is not None:
            incoming = self._sessions.with_store_policy(incoming)
        return incoming

    def _targets(self, incoming: IncomingRequest) -> tuple[Target, ...]:
        try:
            return self._routing.targets(incoming.model, self._load)
        except UnknownModel as problem:
            raise _model_not_found(problem) from None

    def _load(self, target: str) -> int:
        # Counted anew each time, as above: no way out of a run can leave it wrong.
        return sum(run.target == target for run in self._runs)

    async def run(self, incoming: IncomingRequest, *, is_new: bool = True) -> Run:
        """A run of a request that was admitted, here or in another process. One that is not new was
        counted before. Raises RequestFailed if no upstream has its model, or a limit of its key is
        reached."""
        targets, raw = self._targets(incoming), incoming.body.raw
        if is_new and self._server.remote_urls == "refuse":
            try:
                await for_body(raw, refuse_urls, raw)
            except BadRequest as problem:
                raise incoming.failed(problem) from None
        admission = await self._limiter.admit(incoming, targets, is_turn=not is_new)
        body = self._bodies.get(incoming.id)
        if self._telemetry is not None:
            incoming = replace(incoming, trace=self._telemetry.begin(incoming.traceparent))
        writer = reasoning = None
        if self._sessions is not None:
            writer = self._sessions.persistence.writer(incoming)
            reasoning = self._sessions.store if self._store.reasoning else None
        run = Run(
            incoming,
            targets,
            self.limits,
            self._scrub,
            self._observers,
            writer,
            reasoning,
            admission.charge if admission.is_metered else None,
        )
        run.headers = admission.headers(incoming.body.dialect)
        self._runs.add(run)
        self._unlogged.discard(incoming.id)  # the run logs it when it is over
        self._admissions[run] = admission
        if body is not None:
            body.holders += 1  # a run in the background outlives its request
        return run

    async def check_limits(self, incoming: IncomingRequest) -> None:
        """Counts a request that another process runs. Raises RequestFailed if a limit of its key is
        reached."""
        (await self._limiter.admit(incoming, self._targets(incoming))).close()

    def check_model(self, caller: str, model: str) -> None:
        self._keys.client(caller).check_model(model)

    def usable_models(self, caller: str, models: Iterable[str]) -> list[str]:
        return list(filter(self._keys.client(caller).may_use, models))

    def traced(self, name: str, headers: Mapping[bytes, bytes]) -> AbstractContextManager[str]:
        """A span around something that is no run of a request; see Telemetry.traced."""
        if self._telemetry is None:
            return nullcontext("")
        return self._telemetry.traced(name, traceparent_of(headers))

    def end_run(self, run: Run) -> None:
        if run in self._runs:
            self._runs.remove(run)
            self._admissions.pop(run).close()
            self._release(run.record.id)

    def _release(self, id: str) -> None:
        """A request or its run ended: the last of them frees the memory of the body."""
        body = self._bodies.get(id)
        if body is not None and body.release():
            del self._bodies[id]

    def _log(self, record: RequestRecord) -> None:
        has_failed = record.error is not None or record.unstored is not None
        level = "warning" if has_failed else "info"
        if logs.LEVELS[level] >= logs.LEVELS[self._server.log]:
            logs.write(logs.request(record, self._scrub))

    # Shutdown

    @property
    def is_draining(self) -> bool:
        return self._draining

    @property
    def open_requests(self) -> int:
        return len(self._runs)

    def drain(self) -> None:
        self._draining = True
        self._sockets.drain()
        if self._background is not None:
            self._background.drain()
        if self._agents is not None:
            self._agents.drain()

    def abort(self) -> None:
        for run in list(self._runs):
            run.stop(SHUTTING_DOWN)

    # Operations

    async def _show_metrics(self, request: HttpRequest) -> HttpResponse:
        assert self._metrics is not None  # otherwise there is no route to it
        runs = {} if self._run_counts is None else await self._run_counts.read()
        self._metrics.sample(self._gauges())
        accept = request.headers.get("accept", "")
        # Those of several workers are read from files.
        body, content_type = await offload(self._metrics.render, accept, runs)
        return HttpResponse(body, headers={"content-type": content_type})

    def _gauges(self) -> GatewayState:
        store = None if self._sessions is None else self._sessions.store
        return GatewayState(
            open_requests=self.open_requests,
            open_streams=sum(run.record.stream for run in self._runs),
            # Those of agents and of clients: each has its own.
            breakers=[*self._model_routing.breakers, *self._routing.breakers],
            store_lag=0.0 if store is None else store.lag,
            store_queue=0 if store is None else store.waiting,
        )


def _urls(settings: Settings) -> dict[str, str]:
    """The base URLs of the upstreams."""
    return {place.name: place.base_url for place in settings.upstreams}


def _telemetry(settings: Settings, scrub: Scrubber) -> "Telemetry | None":
    if settings.otel.endpoint is None:
        return None
    places = {place.name: place for place in (*settings.upstreams, AGENTS)}
    models = ModelLabels(_named_targets(settings), scrub)
    module = import_module(TELEMETRY)
    found: Telemetry = module.Telemetry(settings.otel, models, places, scrub, nested=AGENTS.name)
    return found


def _named_targets(settings: Settings) -> Iterator[str]:
    """Every `<upstream>/<model>` in the settings."""
    for place in settings.upstreams:
        yield from (f"{place.name}/{model}" for model in place.models)
    for targets in settings.models.values():
        yield from (target for target in targets if "*" not in target)
    yield from (agent.model for agent in settings.agents.values())
    yield from (f"{AGENTS.name}/{name}" for name in settings.agents)


def _sessions(
    store: SqlStore, settings: StoreSettings, window: float, keepalive: float, scrub: Scrubber
) -> Sessions:
    policy = RetentionPolicy(
        settings.persist == "all",
        DAY * settings.retention,
        DAY * settings.log_retention,
        settings.lease,
        DAY * settings.upstream_retention,
    )
    persistence = Persistence(
        store, required=settings.required, upstream=settings.upstream, scrub=scrub
    )
    return Sessions(persistence, window, policy, keepalive)


def _has_body(headers: Mapping[bytes, bytes]) -> bool:
    return b"content-length" in headers or b"transfer-encoding" in headers


def _model_not_found(problem: UnknownModel) -> RequestFailed:
    return RequestFailed(new_error("not-found", str(problem), param="model"))


class _StartTracker:
    """Wraps `send` and remembers whether a response began."""

    __slots__ = ("_send", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    def __call__(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        self.started = True
        if "status" in message:
            note_response(message["status"])
        return self._send(message)
