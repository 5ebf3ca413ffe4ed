"""The demo upstream: responds in the bytes of its dialect, without a network."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from urllib.parse import unquote

import msgspec

from weft.codec import Encoder
from weft.context import Context
from weft.dialects import dialect_named
from weft.dialects.error_classes import error_headers, new_error
from weft.dialects.gemini.requests.schema import SKIP_SIGNATURE
from weft.errors import BadRequest, UnknownDialect
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.parts import ErrorPart
from weft.request import AnyContent, CallContent, ReasoningContent, Request
from weft.upstream.base import OutgoingRequest, Unreachable, UpstreamConfig
from weft.upstream.demo.broken import broken_stream
from weft.upstream.demo.scripts import Script, script_of
from weft.upstream.demo.signatures import verify
from weft.upstream.demo.timeline import (
    CREATED,
    FAST,
    NORMAL,
    SLOW,
    TimedParts,
    count_request,
    style_of,
    timeline,
)

Sleep = Callable[[float], Awaitable[None]]

_READ_SIZE = 1024
"""Bytes after which a read returns, if no wait comes before."""

_LARGE_BODY = 64 * 1024
"""The size from which on a request is not read on the event loop."""

_MODEL_PATH = re.compile(r"/models/([^/:?]+):(\w+)")
_COUNT_PATHS = ("/count_tokens", ":countTokens")
_EVENT_STREAM = {"content-type": "text/event-stream"}
_JSON = {"content-type": "application/json"}


class DemoUpstream:
    """The built-in model: no key, no network, and equal responses to equal requests.

    `sleep` is how it waits. With the base URL `demo:fast` it never does.
    """

    def __init__(self, config: UpstreamConfig, *, sleep: Sleep = asyncio.sleep) -> None:
        """Raises UnknownDialect for a dialect that has no requests."""
        self._config = config
        self._sleep = sleep
        self._model = _DemoModel(config)

    @property
    def config(self) -> UpstreamConfig:
        return self._config

    async def send(self, outgoing: OutgoingRequest) -> "DemoResponse":
        """As Upstream.send. Every body gets a response: one that cannot be parsed, status 400."""
        respond = self._model.respond
        large = len(outgoing.body) > _LARGE_BODY
        response = await asyncio.to_thread(respond, outgoing) if large else respond(outgoing)
        limits = self._config.timeouts
        await self._sleep(min(response.wait, limits.first_byte))
        if response.wait > limits.first_byte:
            raise Unreachable(f"no answer within {limits.first_byte:g} s", "timeout")
        return DemoResponse(response, self._sleep, limits.between_events)

    async def close(self) -> None:
        """There is nothing to close."""


# The response


@dataclass(frozen=True, slots=True)
class TimedBytes:
    """Bytes that come together, after a wait."""

    wait: float
    data: bytes


@dataclass(frozen=True, slots=True)
class PreparedResponse:
    """A whole response. `wait` is the time until its head."""

    status: int
    headers: Mapping[str, str]
    wait: float
    chunks: Iterator[TimedBytes]


class _DemoModel:
    """Responds to requests of one dialect, without any I/O."""

    def __init__(self, config: UpstreamConfig) -> None:
        dialect = dialect_named(config.dialect)
        if dialect.request is None or dialect.body is None or dialect.write_error is None:
            raise UnknownDialect(f"{dialect.name} has streams only, and no requests")
        self._config = config
        self._dialect = dialect.name
        self._parse = dialect.request.parse
        self._body = dialect.body
        self._write_error = dialect.write_error
        self._timing = FAST if config.base_url.partition(":")[2] == "fast" else NORMAL
        self._style = style_of(dialect.name, config.origin)

    def respond(self, outgoing: OutgoingRequest) -> PreparedResponse:
        # Of the body as it was sent: what two clients phrase differently may be answered
        # differently.
        seed = sha256(outgoing.path.encode("utf-8", "replace") + b"\n" + outgoing.body).digest()
        try:
            request = self._parse_request(outgoing, seed)
        except BadRequest as problem:
            return self._error(new_error("bad-request", str(problem), param=problem.path or None))
        if outgoing.path.partition("?")[0].endswith(_COUNT_PATHS):
            name = "totalTokens" if self._dialect == "gemini" else "input_tokens"
            data = msgspec.json.encode({name: count_request(request)})
            return PreparedResponse(200, _JSON, self._timing.first, iter([TimedBytes(0.0, data)]))
        script = script_of(request, self._config.name, self._dialect)
        if isinstance(script, ErrorPart):
            return self._error(script)
        timing = SLOW if script.slow and self._timing is not FAST else self._timing
        timed = timeline(script, request, self._style, timing, seed)
        context = self._context(request, seed)
        if not request.stream:
            return self._whole(script, timed, context)
        guard = Guard(context.ids, Findings())
        encoder = Encoder(self._dialect, context=context, fold=guard.fold)

        def encoded() -> Iterator[TimedBytes]:
            for number, one in enumerate(timed):
                wait = one.wait if number else 0.0  # the first wait was before the head
                yield TimedBytes(wait, b"".join(encoder.feed(guard.feed(one.parts))))

        chunks = encoded()
        if script.malformed and self._dialect == "openai-chat":
            chunks = (TimedBytes(timing.least, chunk) for chunk in broken_stream())
        return PreparedResponse(200, _EVENT_STREAM, timed[0].wait, chunks)

    def _parse_request(self, outgoing: OutgoingRequest, seed: bytes) -> Request:
        """Raises BadRequest for what no host would accept, or this model cannot do."""
        body = outgoing.body
        if outgoing.path.endswith(_COUNT_PATHS[0]):
            # All requests must have `max_tokens`, except those that only count tokens.
            with suppress(ValueError, RecursionError):
                fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
                body = msgspec.json.encode({"max_tokens": 1, **fields})
        parsed = self._parse(body, self._context(None, seed))
        request, source = parsed.request, parsed.source_paths.source
        path = _MODEL_PATH.search(outgoing.path) if self._dialect == "gemini" else None
        if path is not None:
            model, stream = unquote(path[1]), path[2] == "streamGenerateContent"
            request = msgspec.structs.replace(request, model=model, stream=stream)
        if request.max_output_tokens is not None and request.max_output_tokens < 1:
            raise BadRequest(source("max_output_tokens"), "expected at least 1")
        if request.choices > 1:
            raise BadRequest(source("choices"), "this model gives one answer")
        if request.background:
            raise BadRequest(source("background"), "this model answers at once, or not at all")
        if request.previous_response_id is not None:
            # The gateway resolves these itself: an upstream must never get them.
            raise BadRequest(source("previous_response_id"), "this model keeps nothing")
        for number, message in enumerate(request.messages):
            for place, content in enumerate(message.content):
                if not _is_verified(content):
                    at = source(f"messages[{number}].content[{place}]")
                    detail = "its signature was not made here, or not for this text"
                    raise BadRequest(at, detail)
        return request

    def _context(self, request: Request | None, seed: bytes) -> Context:
        origin = self._config.origin or None
        return Context(request=request, ids=Ids(seed), now=CREATED, origin=origin)

    def _whole(self, script: Script, timed: list[TimedParts], context: Context) -> PreparedResponse:
        """The response as one body, which comes when all of it is there."""
        findings = Findings()
        guard = Guard(context.ids, findings)
        for one in timed:
            for part in guard.feed(one.parts):
                if isinstance(part, ErrorPart):
                    return self._error(part)
        data = self._body(guard.fold.response(), context, findings)
        if script.ending != "finish":
            # A body that breaks off: the client must not take half of it for a response.
            data = data[: len(data) // 2]
        chunks = [TimedBytes(0.0, data)]
        if script.ending == "stall":
            chunks.append(TimedBytes(inf, b""))
        wait = sum(one.wait for one in timed if one.wait < inf)
        return PreparedResponse(200, _JSON, wait, iter(chunks))

    def _error(self, error: ErrorPart) -> PreparedResponse:
        status, data = self._write_error(error)
        chunks = iter([TimedBytes(0.0, data)])
        return PreparedResponse(status, _JSON | error_headers(error), self._timing.first, chunks)


def _is_verified(content: AnyContent) -> bool:
    """Whether the signatures are ours, if there are any. This model never redacts reasoning."""
    match content:
        case ReasoningContent():
            signatures = (content.signature, content.encrypted)
            verified = all(verify(one, content.text) for one in signatures if one)
            return verified and content.redacted is None
        case CallContent(signature=str() as signature):
            # Gemini accepts this value for calls that it did not make itself.
            return signature == SKIP_SIGNATURE or verify(signature, "")
    return True


# Reading it


class DemoResponse:
    """A response whose bytes come over time."""

    def __init__(self, response: PreparedResponse, sleep: Sleep, limit: float) -> None:
        """`limit`: the longest wait between two chunks, in seconds."""
        self.status = response.status
        self.headers = response.headers
        self._chunks = response.chunks
        self._sleep = sleep
        self._limit = limit
        self._next = next(self._chunks, None)
        self._aborted = False
        self._sleeping: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """As UpstreamResponse.read."""
        while self._next is not None:
            wait = self._next.wait
            if not self._aborted:
                await self._wait(min(wait, self._limit))
            if self._aborted:
                raise Unreachable("the connection was closed here", "truncated")
            if wait > self._limit:
                self.abort()
                raise Unreachable(f"no byte within {self._limit:g} s", "timeout")
            chunks: list[bytes] = []
            while self._next is not None and sum(map(len, chunks)) < _READ_SIZE:
                # A wait ends the read, so that a client sees the pace.
                if chunks and self._next.wait:
                    break
                chunks.append(self._next.data)
                self._next = next(self._chunks, None)
            if any(chunks):
                return b"".join(chunks)
        return b""

    async def stream_to(self, take: Callable[[bytes], bool]) -> None:
        """As UpstreamResponse.stream_to: bytes come only when they are read."""

    async def _wait(self, seconds: float) -> None:
        """Sleeps, or returns early if the response is aborted. It can be cancelled."""
        # A task of its own, so that `abort`, which is not a coroutine, can end it.
        self._sleeping = sleeping = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait((sleeping,))
        finally:
            sleeping.cancel()
            self._sleeping = None
        # A sleep that was passed in may fail.
        if not sleeping.cancelled():
            sleeping.result()

    def abort(self) -> None:
        """As UpstreamResponse.abort."""
        self._aborted = True
        if self._sleeping is not None:
            self._sleeping.cancel()
