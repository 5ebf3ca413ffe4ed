"""The endpoints that create responses, one for each dialect.

Each is an ASGI app: it reads the body, builds the request for the relay, and sends the response. A
client that disconnects cancels everything that runs for it.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.agent.upstream import checked_key
from weft.dialects import DIALECTS, http_of
from weft.dialects.error_classes import ErrorPartExtra, new_error
from weft.errors import BadRequest
from weft.gateway import bodies, http_response
from weft.gateway.access import note_response
from weft.gateway.auth import HttpRejection
from weft.gateway.exchange import EXCHANGE, Exchange
from weft.gateway.http_response import ClientConnection, StreamResponse
from weft.gateway.memory import OBJECT, RESERVED, MemoryReservation
from weft.gateway.writers import EventStreamWriter, JsonArrayWriter
from weft.parts import ErrorPart, Json
from weft.relay.incoming import (
    IncomingRequest,
    RequestBody,
    RequestFailed,
    RequestLimits,
    bad_request,
)
from weft.relay.offload import for_body
from weft.relay.run import Run
from weft.relay.stream import Stream
from weft.relay.trace_context import parse_traceparent

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Receive = bodies.Receive
Send = http_response.Send


class GatewayContext(Protocol):
    """What endpoints need of the gateway."""

    max_body: int
    json_limits: bodies.JsonLimits
    keepalive: float
    reject_lossy: bool
    limits: RequestLimits

    @property
    def is_draining(self) -> bool:
        """Whether the server is shutting down."""
        ...

    async def start(self, incoming: IncomingRequest) -> Run:
        """Raises RequestFailed if the request may not run."""
        ...

    def end_run(self, run: Run) -> None: ...

    def check_model(self, caller: str, model: str) -> None:
        """Raises HttpRejection if the key of the caller may not use the model."""
        ...

    def usable_models(self, caller: str, models: Iterable[str]) -> list[str]:
        """Those of the models that the key of the caller may use."""
        ...

    def traced(self, name: str, headers: Mapping[bytes, bytes]) -> AbstractContextManager[str]:
        """A span around something that is no run of a request. Yields the `traceparent` for what is
        started inside, or nothing."""
        ...

    async def launch(self, incoming: IncomingRequest) -> bytes:
        """Runs a response in the background, here or in another process; returns its first
        snapshot. Raises RequestFailed, BadRequest, AlreadyExists, StoreError."""
        ...


class Preamble(msgspec.Struct):
    """The fields of a body that decide where it goes."""

    model: str | None = None
    stream: bool | None = None
    thread: Json = UNSET


_preamble = large_json.skimmer(Preamble)
_WORD = re.compile(r"[A-Za-z0-9._-]{1,100}")
_BETA_HEADERS = dict.fromkeys(
    api.betas.encode() for one in DIALECTS.values() if (api := one.http) is not None and api.betas
).keys()


def decode_body(decode: Callable[[bytes], T], body: bytes) -> T:
    """Decodes a body. Raises BadRequest if it is not JSON of that shape."""
    try:
        return decode(body)
    except RecursionError:
        raise BadRequest("", "nested too deeply") from None
    except ValueError as problem:
        # msgspec names the place in the text of its message, and nowhere else.
        message, _, path = str(problem).partition(" - at `$")
        path = path.rstrip("`").lstrip(".")
        if not message.startswith("JSON"):
            message = message[:1].lower() + message[1:]
        raise BadRequest(path, message) from None


HEADERS = "weft.headers"
"""The key of the headers in the scope, once they were asked for."""

BODY = "weft.body"
"""The key of the body in the scope, if all of it had arrived at once."""


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Returns the headers by name. The values of a repeated one are joined (RFC 9110, 5.3)."""
    headers: dict[bytes, bytes] | None = scope.get(HEADERS)
    if headers is None:
        lines: list[tuple[bytes, bytes]] = scope["headers"]
        headers = scope[HEADERS] = dict(lines)
        if len(headers) != len(lines):
            values: dict[bytes, list[bytes]] = {}
            for name, value in lines:
                values.setdefault(name, []).append(value)
            headers.update({name: b", ".join(one) for name, one in values.items()})
    return headers


def traceparent_of(headers: Mapping[bytes, bytes]) -> str:
    """Returns the header of W3C Trace Context; empty if there is none, or it is not valid."""
    header = headers.get(b"traceparent", b"").decode("latin-1")
    return header if header and parse_traceparent(header) is not None else ""


def idempotency_key(scope: Scope) -> str | None:
    """Returns the Idempotency-Key of a request. Raises BadRequest."""
    raw = headers_of(scope).get(b"idempotency-key")
    return None if raw is None else checked_key(raw.decode("latin-1"))


async def read_body(gateway: GatewayContext, scope: Scope, receive: Receive) -> bytes:
    """Reads a body and checks its limits. Raises HttpRejection, BadRequest, RequestAborted."""
    headers = headers_of(scope)
    # Taken out: the scope of an idle connection lives until its next request.
    body: bytes | None = scope.pop(BODY, None)
    coding = headers.get(b"content-encoding")
    # A small compressed body may be a huge one, and the limits of connection and memory count bytes
    # as they arrive.
    if coding is not None and coding.lower() != b"identity":
        message = f"Content-Encoding {coding.lower().decode('latin-1')[:50]!r} is not supported"
        raise HttpRejection(415, new_error("bad-request", message))
    if body is None:
        body = await bodies.read(receive, headers.get(b"content-length"), gateway.max_body)
    elif len(body) > gateway.max_body:
        raise bodies.body_too_large(gateway.max_body)
    objects = await for_body(body, bodies.check, body, gateway.json_limits)
    reserved: MemoryReservation | None = scope.get(RESERVED)
    if objects and reserved is not None:
        reserved.reserve_more(objects * OBJECT)
    return body


async def parse_request(incoming: IncomingRequest, limits: RequestLimits) -> None:
    """Parses a request once, for all its targets. Raises RequestFailed."""
    await for_body(incoming.body.raw, incoming.checked, limits)


class Endpoint:
    """Answers requests of one dialect."""

    def __init__(self, gateway: GatewayContext, dialect: str) -> None:
        self._gateway = gateway
        self._dialect = dialect
        self._version_header = (http_of(dialect).version or "").encode()
        self._is_resumable = DIALECTS[dialect].resumable_by_id
        self._idle = DIALECTS[dialect].idle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = scope["weft.id"]
        try:
            run = await self._start(await self._receive_request(scope, receive), scope, send)
        except bodies.RequestAborted:
            return
        except Exception as problem:
            failed, headers = http_response.failure(id, problem), http_response.weft_headers(id)
            await http_response.send_error(send, self._dialect, failed, headers)
            return
        if run is not None:
            await self._serve(run, scope, send)

    async def _start(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        """Starts a run; returns None if its response was sent already. Raises RequestFailed."""
        return await self._gateway.start(incoming)

    async def _receive_request(self, scope: Scope, receive: Receive) -> IncomingRequest:
        """Reads and parses the request. Raises RequestFailed if it cannot be served,
        RequestAborted if the client disconnected."""
        try:
            body = await read_body(self._gateway, scope, receive)
            incoming = await self.parse_request(scope, body)
        except BadRequest as problem:
            raise RequestFailed(bad_request(problem)) from None
        await self.validate(incoming)
        return incoming

    async def validate(self, incoming: IncomingRequest) -> None:
        """Raises RequestFailed for an invalid request."""
        await for_body(incoming.body.raw, incoming.checked, self._gateway.limits)

    async def parse_request(self, scope: Scope, body: bytes) -> IncomingRequest:
        """Builds the request for the relay from a body. Raises BadRequest, RequestFailed."""
        preamble = await for_body(body, decode_body, _preamble, body)
        return self._build_request(scope, body, self._model_name(preamble), bool(preamble.stream))

    def _model_name(self, preamble: Preamble) -> str:
        if not preamble.model:
            raise BadRequest("model", "missing; expected the name of a model")
        return preamble.model

    def _build_request(
        self, scope: Scope, body: bytes, model: str, stream: bool
    ) -> IncomingRequest:
        headers: dict[bytes, bytes] = scope[HEADERS]  # read_body has asked for them
        # The beta flags of any dialect, since a client may enable a feature of an upstream that
        # has another one; the version only of its own.
        betas: tuple[str, ...] = ()
        if not _BETA_HEADERS.isdisjoint(headers):
            flags = b",".join([headers[name] for name in _BETA_HEADERS if name in headers])
            words = map(str.strip, flags.decode("latin-1").split(","))
            betas = tuple(filter(_WORD.fullmatch, words))
        version = None
        if self._version_header in headers:
            version = headers[self._version_header].decode("latin-1")
        key = headers.get(b"idempotency-key")
        return IncomingRequest(
            RequestBody(self._dialect, body),
            model,
            stream,
            betas=betas,
            version=version if version is not None and _WORD.fullmatch(version) else None,
            id=scope["weft.id"],
            caller=scope["weft.caller"],
            traceparent=traceparent_of(headers) if b"traceparent" in headers else "",
            idempotency_key=None if key is None else key.decode("latin-1"),
            reject_lossy=self._gateway.reject_lossy,
            resumable=stream and self._is_resumable and headers.get(b"weft-resume") == b"1",
        )

    async def _serve(self, run: Run, scope: Scope, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        # From here on a disconnect cancels this task. Before, the body is read, and `receive`
        # reports it.
        watcher = DisconnectWatcher(exchange)
        try:
            if run.record.stream:
                client, writer = self._client(scope, send), self._writer(scope)
                await StreamResponse(run, client, self._gateway.keepalive, writer).send()
            else:
                await self._send_whole(run, scope["weft.id"], send, exchange)
        except asyncio.CancelledError:
            # Cancelled by the server, not by its client.
            if not watcher.disconnected:
                raise
        finally:
            watcher.stop()
            try:
                await run.close()
            finally:
                self._gateway.end_run(run)

    def _client(self, scope: Scope, send: Send) -> ClientConnection:
        return ClientConnection(scope["weft.id"], self._dialect, send, scope[EXCHANGE])

    def _writer(self, scope: Scope) -> EventStreamWriter | JsonArrayWriter:
        """How events are written."""
        return EventStreamWriter(self._idle)

    async def _send_whole(self, run: Run, id: str, send: Send, exchange: Exchange) -> None:
        try:
            stream = await run.open()
            status, data = await stream.read_body()
            if status == 200:
                data = self.render_body(run, stream, data)
            run.record.status = status
            run.record.bytes_out = len(data)
        except Exception as problem:
            failed = http_response.failure(id, problem)
            run.note_failure(failed.error)
            headers = http_response.weft_headers(id, run)
            run.record.status = await http_response.send_error(send, self._dialect, failed, headers)
        else:
            headers = [http_response.JSON_TYPE, *http_response.weft_headers(id, run)]
            is_small = len(data) <= http_response.SLICE
            if is_small and status == 200 and exchange.respond(headers, data):
                note_response(status)
            else:
                await http_response.send_body(send, status, data, headers)

    def render_body(self, run: Run, stream: Stream, body: bytes) -> bytes:
        """The body of a response that is not streamed."""
        return body


class DisconnectWatcher:
    """Cancels the task of the app when the client disconnects."""

    def __init__(self, exchange: Exchange) -> None:
        self.disconnected = False
        self._task = exchange.task
        self._exchange = exchange
        exchange.on_disconnect(self._on_disconnect)

    def _on_disconnect(self) -> None:
        self.disconnected = True
        if self._task is not None:
            self._task.cancel()

    def stop(self) -> None:
        self._exchange.on_disconnect(None)
        if self.disconnected and self._task is not None:
            # The cancellation has been dealt with. Task.cancelling() would stay above 0, and a
            # later `asyncio.timeout` in this task would take it for its own caller's.
            self._task.uncancel()


class MessagesEndpoint(Endpoint):
    """Refuses threads, which only the upstream that created them has: clients then send all
    messages."""

    def _model_name(self, preamble: Preamble) -> str:
        if isinstance(preamble.thread, Raw) and bytes(preamble.thread) != b"null":
            extra = ErrorPartExtra(param="thread", error_code="thread_unsupported_request")
            error = ErrorPart(
                "internal",
                "thread is not supported here; send the messages",
                status=400,
                extra=msgspec.Raw(msgspec.json.encode(extra)),
            )
            raise RequestFailed(error)
        return super()._model_name(preamble)


class GeminiEndpoint(Endpoint):
    """The model and the method are in the path, separated by the last colon."""

    async def parse_request(self, scope: Scope, body: bytes) -> IncomingRequest:
        call = scope["path_params"]["call"].removeprefix("models/")
        # The last one: names of models may have colons themselves (`llama3:8b`).
        name, _, method = call.rpartition(":")
        # Only to refuse what is no JSON object before the method is looked at, as the other
        # endpoints do.
        await for_body(body, decode_body, _preamble, body)
        if not name or method not in _METHODS:
            message = f"unknown method {method[:100]!r}; expected {' or '.join(_METHODS)}"
            raise HttpRejection(404, new_error("not-found", message))
        return self._build_request(scope, body, name, _METHODS[method])

    def _writer(self, scope: Scope) -> EventStreamWriter | JsonArrayWriter:
        # Without it Gemini streams one JSON array.
        is_events = b"alt=sse" in scope["query_string"].split(b"&")
        return super()._writer(scope) if is_events else JsonArrayWriter()


_METHODS = {"generateContent": False, "streamGenerateContent": True}
"""Whether each of them streams."""
