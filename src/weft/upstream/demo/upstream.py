"""The demo upstream: answers in the bytes of its dialect, without a network."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
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
from weft.dialects.requests.codec import Parsed
from weft.errors import BadRequest, UnknownDialect
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.parts import ErrorPart
from weft.request import AnyContent, CallContent, ReasoningContent, Request
from weft.upstream.base import Outgoing, Place, Unreachable
from weft.upstream.demo.broken import broken_stream
from weft.upstream.demo.playing import (
    CREATED,
    FAST,
    NORMAL,
    SLOW,
    Beat,
    accent,
    beats,
    count,
)
from weft.upstream.demo.proofs import holds
from weft.upstream.demo.scripts import Scene, Script, played

Sleep = Callable[[float], Awaitable[None]]

_READ = 1024
"""Bytes after which a read returns, if nothing has to be waited for."""

_ADDRESS = re.compile(r"/models/([^/:?]+):(\w+)")
_COUNTING = ("/count_tokens", ":countTokens")


_LARGE = 64 * 1024
"""Bytes of a request that are not read on the event loop."""


class DemoUpstream:
    """The built-in model: no key, no network, and equal answers to equal requests.

    `sleep` is how it waits. A base URL of `demo:fast` is a model that never does.
    """

    def __init__(self, place: Place, *, sleep: Sleep = asyncio.sleep) -> None:
        """Raises UnknownDialect for a dialect that has no requests."""
        self._place = place
        self._sleep = sleep
        self._speaker = _Speaker(place)

    @property
    def place(self) -> Place:
        return self._place

    async def ask(self, outgoing: Outgoing) -> "Answer":
        """As Upstream.ask. Any body has an answer: one that cannot be read is a 400."""
        reply = self._speaker.reply
        large = len(outgoing.body) > _LARGE
        made = await asyncio.to_thread(reply, outgoing) if large else reply(outgoing)
        limits = self._place.timeouts
        await self._sleep(min(made.wait, limits.first_byte))
        if made.wait > limits.first_byte:
            raise Unreachable(f"no answer within {limits.first_byte:g} s", "timeout")
        return Answer(made, self._sleep, limits.between_events)

    async def close(self) -> None:
        """There is nothing to close."""


# What is answered


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that come together, after a wait."""

    wait: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. `wait` is the time to its head."""

    status: int
    headers: Mapping[str, str]
    wait: float
    pieces: Iterator[Piece]


class _Speaker:
    """Answers requests of one dialect, purely."""

    def __init__(self, place: Place) -> None:
        dialect = dialect_named(place.dialect)
        if dialect.request is None or dialect.body is None or dialect.write_error is None:
            raise UnknownDialect(f"{dialect.name} has streams only, and no requests")
        self._place = place
        self._name = dialect.name
        self._parse = dialect.request.parse
        self._body = dialect.body
        self._write_error = dialect.write_error
        self._pace = FAST if place.base_url.partition(":")[2] == "fast" else NORMAL
        self._accent = accent(dialect.name, place.origin)

    def reply(self, outgoing: Outgoing) -> Reply:
        seed = sha256(outgoing.path.encode("utf-8", "replace") + b"\n" + outgoing.body).digest()
        try:
            parsed = self._read(outgoing, seed)
            self._check(parsed)
        except BadRequest as problem:
            return self._failed(new_error("bad-request", str(problem), param=problem.path or None))
        request = parsed.request
        if outgoing.path.partition("?")[0].endswith(_COUNTING):
            return self._counted(count(request))
        scene = Scene(request, self._place.name, self._name)
        script = played(request.model, scene)
        if isinstance(script, ErrorPart):
            return self._failed(script)
        return self._played(script, request, seed)

    def _read(self, outgoing: Outgoing, seed: bytes) -> Parsed:
        body = outgoing.body
        if outgoing.path.endswith(_COUNTING[0]):
            body = _with_limit(body)
        parsed = self._parse(body, self._context(None, seed))
        address = _ADDRESS.search(outgoing.path) if self._name == "gemini" else None
        if address is None:
            return parsed
        model, stream = unquote(address[1]), address[2] == "streamGenerateContent"
        request = msgspec.structs.replace(parsed.request, model=model, stream=stream)
        return Parsed(request, parsed.source_paths)

    def _check(self, parsed: Parsed) -> None:
        """Raises BadRequest for what no host would take, or this one cannot do."""
        request, named = parsed.request, parsed.source_paths.source
        if request.max_output_tokens is not None and request.max_output_tokens < 1:
            raise BadRequest(named("max_output_tokens"), "expected at least 1")
        if request.choices > 1:
            raise BadRequest(named("choices"), "this model gives one answer")
        if request.background:
            raise BadRequest(named("background"), "this model answers at once, or not at all")
        if request.previous_response_id is not None:
            raise BadRequest(named("previous_response_id"), "this model keeps nothing")
        for number, message in enumerate(request.messages):
            for place, content in enumerate(message.content):
                if not _is_proven(content):
                    path = named(f"messages[{number}].content[{place}]")
                    raise BadRequest(path, "its proof was not made here, or not for this text")

    def _context(self, request: Request | None, seed: bytes) -> Context:
        origin = self._place.origin or None
        return Context(request=request, ids=Ids(seed), now=CREATED, origin=origin)

    def _played(self, script: Script, request: Request, seed: bytes) -> Reply:
        pace = SLOW if script.slow and self._pace is not FAST else self._pace
        timed = beats(script, request, self._accent, pace, seed)
        context = self._context(request, seed)
        if not request.stream:
            return self._whole(script, timed, context)
        written = self._streamed(timed, context)
        if script.malformed and self._name == "openai-chat":
            written = (Piece(pace.least, chunk) for chunk in broken_stream())
        kind = {"content-type": "text/event-stream"}
        return Reply(200, kind, timed[0].wait, written)

    def _streamed(self, timed: list[Beat], context: Context) -> Iterator[Piece]:
        guard = Guard(context.ids, Findings())
        encoder = Encoder(self._name, context=context, fold=guard.fold)
        for number, beat in enumerate(timed):
            wait = beat.wait if number else 0.0  # the head has waited for the first
            yield Piece(wait, b"".join(encoder.feed(guard.feed(beat.parts))))

    def _whole(self, script: Script, timed: list[Beat], context: Context) -> Reply:
        """The answer as one body, when all of it is there."""
        findings = Findings()
        guard = Guard(context.ids, findings)
        for beat in timed:
            for part in guard.feed(beat.parts):
                if isinstance(part, ErrorPart):
                    return self._failed(part)
        data = self._body(guard.fold.response(), context, findings)
        wait = sum(beat.wait for beat in timed if beat.wait < inf)
        return _json(200, _ended(script, data), wait)

    def _counted(self, tokens: int) -> Reply:
        name = "totalTokens" if self._name == "gemini" else "input_tokens"
        return _json(
            200, iter((Piece(0.0, msgspec.json.encode({name: tokens})),)), self._pace.first
        )

    def _failed(self, error: ErrorPart) -> Reply:
        status, data = self._write_error(error)
        return _json(status, iter((Piece(0.0, data),)), self._pace.first, error_headers(error))


def _json(
    status: int, pieces: Iterator[Piece], wait: float, more: Mapping[str, str] | None = None
) -> Reply:
    return Reply(status, {"content-type": "application/json", **(more or {})}, wait, pieces)


def _ended(script: Script, data: bytes) -> Iterator[Piece]:
    """A body; half of one, where it is cut or comes to a halt."""
    if script.ending == "finish":
        return iter((Piece(0.0, data),))
    half = Piece(0.0, data[: len(data) // 2])
    return iter((half, Piece(inf, b"")) if script.ending == "stall" else (half,))


def _is_proven(content: AnyContent) -> bool:
    """Whether the proofs are ours, if there are any. Nothing here is ever redacted."""
    match content:
        case ReasoningContent():
            proofs = (content.signature, content.encrypted)
            proven = all(holds(one, content.text) for one in proofs if one)
            return proven and content.redacted is None
        case CallContent(signature=str() as signature):
            return signature == SKIP_SIGNATURE or holds(signature, "")
    return True


# How it is read


class Answer:
    """One answer, as its bytes come."""

    def __init__(self, reply: Reply, sleep: Sleep, limit: float) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._pieces = reply.pieces
        self._sleep = sleep
        self._limit = limit
        self._next = next(self._pieces, None)
        self._aborted = False
        self._sleeping: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """As Incoming.read."""
        while self._next is not None:
            wait = self._next.wait
            await self._rest(min(wait, self._limit))
            if self._aborted:
                raise Unreachable("the connection was closed here", "truncated")
            if wait > self._limit:
                self.abort()
                raise Unreachable(f"no byte within {self._limit:g} s", "timeout")
            data = self._taken()
            if data:
                return data
        return b""

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        """As Incoming.flow: nothing comes here but what is read."""

    def _taken(self) -> bytes:
        """The next piece, with those that come together with it."""
        taken: list[bytes] = []
        size = 0
        while self._next is not None and size < _READ and not (taken and self._next.wait):
            taken.append(self._next.data)
            size += len(self._next.data)
            self._next = next(self._pieces, None)
        return b"".join(taken)

    async def _rest(self, seconds: float) -> None:
        """Waits until it is time, or until this is aborted. Whoever waits can be cancelled."""
        if self._aborted:
            return
        self._sleeping = sleeping = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait((sleeping,))
        finally:
            sleeping.cancel()
            self._sleeping = None
        if not sleeping.cancelled():
            sleeping.result()

    def abort(self) -> None:
        """As Incoming.abort."""
        self._aborted = True
        if self._sleeping is not None:
            self._sleeping.cancel()


def _with_limit(body: bytes) -> bytes:
    """A body that is only to be counted has no limit of its answer, which every other one has."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return body
    return msgspec.json.encode({"max_tokens": 1, **fields})
