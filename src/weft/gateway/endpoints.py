"""Where clients ask: one thin endpoint a dialect. They differ in where the model is named.

Each is an ASGI app. It reads the body, makes of it what the relay is asked, and has the answer
told. A client that goes away cancels everything that was going on for it.
"""

import asyncio
import re
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft.dialects import DIALECTS
from weft.dialects.error_classes import ErrorPartExtra, new_error
from weft.errors import BadRequest
from weft.gateway import answers, bodies
from weft.gateway.doors import Shut
from weft.gateway.protocol import EXCHANGE, Exchange
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

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Receive = bodies.Receive
Send = answers.Send
Client = answers.Client


class Host(Protocol):
    """What an endpoint needs of the gateway."""

    limit: int
    shape: bodies.Shape
    keepalive: float
    reject_lossy: bool
    limits: RequestLimits

    def start(self, incoming: IncomingRequest) -> Run:
        """Raises RequestFailed if the request may not run."""
        ...

    def ended(self, run: Run) -> None: ...


class Preamble(msgspec.Struct):
    """As much of a body as says where it goes, and whether that is possible."""

    model: str | None = None
    stream: bool | None = None
    thread: Json = UNSET


_preamble = msgspec.json.Decoder(Preamble).decode
_WORD = re.compile(r"[A-Za-z0-9._-]{1,100}")


def read_as(decode: Callable[[bytes], T], body: bytes) -> T:
    """Reads a body; raises BadRequest where it is not of that shape."""
    try:
        return decode(body)
    except RecursionError:
        raise BadRequest("", "nested too deeply") from None
    except ValueError as problem:
        message, _, path = str(problem).partition(" - at `$")
        path = path.rstrip("`").lstrip(".")
        raise BadRequest(path, message[:1].lower() + message[1:]) from None


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    return dict(scope["headers"])


async def body_of(host: Host, scope: Scope, receive: Receive) -> bytes:
    """Reads a body that may be parsed; raises Shut, BadRequest, ClientGone."""
    headers = headers_of(scope)
    coding = headers.get(b"content-encoding", b"identity").lower()
    if coding != b"identity":
        message = f"Content-Encoding {coding.decode('latin-1')[:50]!r} is not read here"
        raise Shut(415, new_error("bad-request", message))
    body = await bodies.read(receive, headers.get(b"content-length"), host.limit)
    await for_body(body, bodies.check, body, host.shape)
    return body


async def parsed(incoming: IncomingRequest, limits: RequestLimits) -> None:
    """Parses a request, once for all targets. Raises RequestFailed."""
    await for_body(incoming.body.raw, incoming.checked, limits)


class Endpoint:
    """Takes requests of one dialect."""

    def __init__(self, host: Host, dialect: str) -> None:
        self._host = host
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = scope["weft.id"]
        try:
            run = await self._started(await self._incoming(scope, receive), scope, send)
        except bodies.ClientGone:
            return
        except RequestFailed as failed:
            await answers.failure(send, self._dialect, failed, answers.about(id))
            return
        except Exception as problem:
            ours = answers.own_fault(id, problem)
            await answers.failure(send, self._dialect, ours, answers.about(id))
            return
        if run is not None:
            await self._serve(run, scope, send)

    async def _started(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        """What answers, if that is to be told; raises RequestFailed."""
        return self._host.start(incoming)

    async def _incoming(self, scope: Scope, receive: Receive) -> IncomingRequest:
        """The request, parsed; raises RequestFailed for what cannot be served, ClientGone if nobody
        waits for an answer any more."""
        try:
            body = await body_of(self._host, scope, receive)
            incoming = await self._read(scope, body)
        except BadRequest as problem:
            raise RequestFailed(bad_request(problem)) from None
        await self._check(incoming)
        return incoming

    async def _check(self, incoming: IncomingRequest) -> None:
        """Raises RequestFailed for a request that cannot be read."""
        await parsed(incoming, self._host.limits)

    async def _read(self, scope: Scope, body: bytes) -> IncomingRequest:
        """Raises BadRequest, or RequestFailed."""
        preamble = await for_body(body, read_as, _preamble, body)
        return self._made(scope, body, self._model(preamble), bool(preamble.stream))

    def _model(self, preamble: Preamble) -> str:
        if not preamble.model:
            raise BadRequest("model", "missing; expected the name of a model")
        return preamble.model

    def _made(self, scope: Scope, body: bytes, model: str, stream: bool) -> IncomingRequest:
        headers = headers_of(scope)
        betas = headers.get(b"anthropic-beta", b"").decode("latin-1")
        version = headers.get(b"anthropic-version", b"").decode("latin-1")
        is_resumable = DIALECTS[self._dialect].resumable_by_id
        return IncomingRequest(
            RequestBody(self._dialect, body),
            model,
            stream,
            betas=tuple(flag for one in betas.split(",") if _WORD.fullmatch(flag := one.strip())),
            version=version if _WORD.fullmatch(version) else None,
            id=scope["weft.id"],
            caller=scope["weft.caller"],
            reject_lossy=self._host.reject_lossy,
            resumable=stream and headers.get(b"weft-resume") == b"1" and is_resumable,
        )

    async def _serve(self, run: Run, scope: Scope, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        watch, id = Watch(exchange), scope["weft.id"]
        try:
            if run.record.stream:
                client = answers.Client(id, self._dialect, send, exchange.write)
                writer = self._writer(scope)
                await answers.StreamAnswer(run, client, self._host.keepalive, writer).tell()
            else:
                await self._whole(run, id, send)
        except asyncio.CancelledError:
            if not watch.gone:
                raise
        finally:
            watch.end()
            try:
                await run.close()
            finally:
                self._host.ended(run)

    def _writer(self, scope: Scope) -> EventStreamWriter | JsonArrayWriter:
        """How a stream is told."""
        return EventStreamWriter(DIALECTS[self._dialect].idle)

    async def _whole(self, run: Run, id: str, send: Send) -> None:
        try:
            stream = await run.open()
            status, data = await stream.read_body()
            if status == 200:
                data = self._body(run, stream, data)
            run.record.status = status
            run.record.bytes_out = len(data)
        except RequestFailed as failed:
            await self._failed(failed, run, id, send)
        except Exception as problem:
            await self._failed(answers.own_fault(id, problem), run, id, send)
        else:
            await answers.body(send, status, data, [answers.JSON, *answers.about(id, run)])

    def _body(self, run: Run, stream: Stream, body: bytes) -> bytes:
        """What a client is told of an answer in one piece."""
        return body

    async def _failed(self, failed: RequestFailed, run: Run, id: str, send: Send) -> None:
        run.note_failure(failed.error)
        headers = answers.about(id, run)
        run.record.status = await answers.failure(send, self._dialect, failed, headers)


class Watch:
    """Cancels the task that made it when the client goes away."""

    def __init__(self, exchange: Exchange) -> None:
        self.gone = False
        self._task = asyncio.current_task()
        self._exchange = exchange
        exchange.watch(self._left)

    def _left(self) -> None:
        self.gone = True
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        self._exchange.watch(None)
        if self.gone and self._task is not None:
            self._task.uncancel()


class Messages(Endpoint):
    """Threads are kept by the upstream that made them: clients are told, and know what to do."""

    def _model(self, preamble: Preamble) -> str:
        if isinstance(preamble.thread, Raw) and bytes(preamble.thread) != b"null":
            extra = ErrorPartExtra(param="thread", error_code="thread_unsupported_request")
            error = ErrorPart(
                "internal",
                "thread: not available here; send the messages",
                status=400,
                extra=msgspec.Raw(msgspec.json.encode(extra)),
            )
            raise RequestFailed(error)
        return super()._model(preamble)


class Gemini(Endpoint):
    """The model and the verb are in the path, behind the last colon."""

    async def _read(self, scope: Scope, body: bytes) -> IncomingRequest:
        called = scope["path_params"]["call"].removeprefix("models/")
        name, _, verb = called.rpartition(":")
        await for_body(body, read_as, _preamble, body)
        if not name or verb not in _VERBS:
            expected = " or ".join(_VERBS)
            message = f"no {verb[:100]!r} of a model here; expected {expected}"
            raise Shut(404, new_error("not-found", message))
        return self._made(scope, body, name, _VERBS[verb])

    def _writer(self, scope: Scope) -> EventStreamWriter | JsonArrayWriter:
        is_events = b"alt=sse" in scope["query_string"].split(b"&")
        return super()._writer(scope) if is_events else JsonArrayWriter()


_VERBS = {"generateContent": False, "streamGenerateContent": True}
