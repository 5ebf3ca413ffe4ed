"""`/v1/responses` over a WebSocket: one create per message, the events of the stream as frames.

One response at a time; what is asked meanwhile waits its turn. An error leaves the socket usable.

A socket remembers its latest responses, stored or not, so that the next one need bring only what
is new. What is not to be stored goes on from there alone; what is stored goes on from the store
as well. A response that was gone on from in vain is forgotten: the client sends all of it anew.
What is stored of a response is what a client over HTTP would have been sent, so it is read and
resumed there like any other. A create with `generate: false` is answered at once, by a response
without content that the next one goes on from.

Clients take an error frame for the end of a turn, and a failed response as well. So each turn has
one of them: the frame if there is no response yet, the failed response if there is. A client that
gives a `stream_id` to a create finds it in everything that is told about that.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
from msgspec import UNSET, Raw
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from weft.assembler import Assembler
from weft.codec import fresh_context
from weft.dialects import DIALECTS
from weft.dialects.error_classes import error_headers as error_headers
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest
from weft.findings import Findings
from weft.gateway import answers, bodies
from weft.gateway.doors import Shut
from weft.gateway.endpoints import Host, Receive, Scope, Send, parsed
from weft.gateway.recent import Recent, State
from weft.gateway.sessions import (
    DIALECT,
    RUNNING,
    ResponsesPreamble,
    Sessions,
    given_in,
    preamble_of,
    unknown,
)
from weft.gateway.sockets import SOCKET, Socket
from weft.gateway.writers import SocketWriter
from weft.parts import ErrorPart, Finish, ResponseMetadata, Usage
from weft.relay import history
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, bad_request
from weft.relay.offload import for_body
from weft.relay.persistence import last_snapshot
from weft.relay.rendering import encoder_of
from weft.relay.run import Run
from weft.sse import Event

LIFETIME = 3600.0
"""Seconds that a socket may be used."""

PER_KEY = 64
"""Sockets of one key."""

WAITING = 64
"""Messages that may wait their turn."""

WAITING_SIZE = 32 * 1024 * 1024
"""Characters of these, after which no more are taken."""

_TRUE = Raw(b"true")
_NONE = (UNSET, Raw(b"null"))
_FORBIDDEN = ("stream", "stream_options", "background")
_OF_SOCKETS = ("type", "stream_id", "generate")
"""Fields that a request over HTTP has not."""

_WHOLE = ("completed", "incomplete")
"""How a response ends that may be gone on from."""


class _Create(ResponsesPreamble):
    type: str = ""
    stream_id: str | None = None
    generate: bool = True


class _Ended(msgspec.Struct):
    """As much of a response as is remembered."""

    id: str = ""
    status: str = ""
    output: list[Raw] = []


class _Error(msgspec.Struct, omit_defaults=True):
    """How an error is told here: its code is never null."""

    type: Literal["error"]
    status: int
    error: dict[str, object]
    stream_id: str | None = None


_create = msgspec.json.Decoder(_Create).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_ended = msgspec.json.Decoder(_Ended).decode
_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a socket is closed: how it is told, as soon as no response is under way."""

    code: int
    reason: str
    error: ErrorPart | None = None
    error_code: str | None = None


GONE = Ending(1005, "the client left")
LEAVING = Ending(1001, "the server is shutting down")


def _used_up(seconds: float) -> Ending:
    message = f"a socket may be used for {seconds / 60:g} minutes; open another one"
    error = new_error("bad-request", message)
    return Ending(1000, "used up", error, "websocket_connection_limit_reached")


class ResponsesSocket:
    """An ASGI app for sockets."""

    def __init__(
        self,
        host: Host,
        sessions: Sessions | None = None,
        *,
        per_key: int = PER_KEY,
        lifetime: float = LIFETIME,
    ) -> None:
        """`lifetime` in seconds. Without sessions nothing is stored."""
        self._host = host
        self._sessions = sessions
        self._per_key = per_key
        self._lifetime = lifetime
        self._talks: set[_Talk] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept(headers=answers.about(scope["weft.id"]))
        talk = _Talk(self._host, socket, self._sessions)
        mine = sum(one.caller == talk.caller for one in self._talks)
        if mine >= self._per_key:
            await socket.close(1013, f"{mine} sockets of this key are open; that is the limit")
            return
        self._talks.add(talk)
        over = asyncio.get_running_loop().call_later(
            self._lifetime, talk.end, _used_up(self._lifetime)
        )
        try:
            await talk.hold()
        finally:
            over.cancel()
            self._talks.discard(talk)

    def drain(self) -> None:
        """Closes every socket as soon as its response is told."""
        for talk in self._talks:
            talk.end(LEAVING)


class _Talk:
    """One socket, from its first message to its end."""

    def __init__(self, host: Host, socket: WebSocket, sessions: Sessions | None) -> None:
        self.caller: str = socket.scope["weft.caller"]
        self._host = host
        self._socket = socket
        self._sessions = sessions
        self._recent = Recent()
        self._connection: Socket = socket.scope[SOCKET]
        self._remembered = self._connection.memory.reservation()
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._size = 0
        self._ending: Ending | None = None

    def end(self, ending: Ending) -> None:
        """Closes the socket once the response that is under way is told."""
        if self._ending is None:
            self._ending = ending
            self._waiting.put_nowait("")  # whoever waits for a message goes on

    async def hold(self) -> None:
        """Reads what the client sends, all the time: only so its leaving is noticed."""
        answering = asyncio.create_task(self._answer())
        try:
            while (text := await self._received()) is not None:
                self._waiting.put_nowait(text)
                self._size += len(text)
        finally:
            self.end(GONE)
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            self._remembered.release()

    async def _received(self) -> str | None:
        """The next message; nothing if there can be none."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        if text is None:
            await self._socket.close(1003, "expected JSON as text")
        elif self._waiting.qsize() >= WAITING or self._size > WAITING_SIZE:
            await self._socket.close(1008, "too many messages wait their turn")
        else:
            return text
        return None

    async def _answer(self) -> None:
        try:
            while True:
                text = await self._waiting.get()
                if self._ending is not None:
                    await self._closed(self._ending)
                    return
                self._size -= len(text)
                await self._one(text)
                self._connection.answered(text)
        except (WebSocketDisconnect, ClientDisconnected):
            pass  # noticed by who reads, too

    async def _closed(self, ending: Ending) -> None:
        if ending.error is not None:
            await self._tell(RequestFailed(ending.error), ending.error_code)
        if ending is not GONE:
            await self._socket.close(ending.code, ending.reason)

    async def _one(self, text: str) -> None:
        """Answers one message, whatever it is."""
        id = fresh_context().ids.mint("req")
        create = _Create()
        try:
            create, body = await self._read(text.encode())
            incoming = await self._recalled(self._incoming(id, create, body), create)
            await parsed(incoming, self._host.limits)
            tell = self._told if create.generate else self._warmed
            await tell(incoming, create)
            return
        except BadRequest as problem:
            failed = RequestFailed(bad_request(problem))
        except RequestFailed as problem:
            failed = problem
        except (WebSocketDisconnect, ClientDisconnected):
            raise
        except Exception as problem:
            failed = answers.own_fault(id, problem)
        self._recent.forget(create.previous_response_id)
        await self._tell(failed, stream=create.stream_id)

    async def _read(self, raw: bytes) -> tuple[_Create, dict[str, Raw]]:
        return await for_body(raw, _decoded, raw, self._host.shape)

    def _incoming(self, id: str, create: _Create, body: dict[str, Raw]) -> IncomingRequest:
        """What the relay is asked; raises BadRequest, or RequestFailed."""
        if create.type != "response.create":
            raise BadRequest("type", f"{create.type[:100]!r}; expected 'response.create'")
        # Codex says that it wants a stream, here too; it gets one.
        extra = [
            name for name in _FORBIDDEN if name in body and (name, body[name]) != ("stream", _TRUE)
        ]
        if extra:
            raise BadRequest(extra[0], "must not be present over a WebSocket")
        if create.previous_response_id is not None and create.conversation not in _NONE:
            raise BadRequest("previous_response_id", "not together with conversation")
        if not create.model:
            raise BadRequest("model", "missing; expected the name of a model")
        asked = {name: value for name, value in body.items() if name not in _OF_SOCKETS}
        asked["stream"] = _TRUE
        return IncomingRequest(
            RequestBody(DIALECT, _json(asked)),
            create.model,
            True,
            id=id,
            caller=self.caller,
            reject_lossy=self._host.reject_lossy,
        )

    async def _recalled(self, incoming: IncomingRequest, create: _Create) -> IncomingRequest:
        """With what was said before; raises RequestFailed, BadRequest, StoreError."""
        previous = create.previous_response_id
        if previous is None:
            return await self._settled(incoming, create)
        state = self._recent[previous]
        in_store = self._sessions is not None and create.store is not False
        if in_store and (state is None or state.stored):
            return await self._settled(incoming, create)
        if state is None:
            raise RequestFailed(unknown(previous))
        return await self._continued(incoming, previous, state)

    async def _settled(
        self, incoming: IncomingRequest, preamble: ResponsesPreamble
    ) -> IncomingRequest:
        """With what the store has of it, and what it is to keep."""
        sessions = self._sessions
        return incoming if sessions is None else await sessions.recalled(incoming, preamble)

    async def _continued(
        self, incoming: IncomingRequest, previous: str, state: State
    ) -> IncomingRequest:
        """With what the socket remembers. The store cannot go on from what it has not: a response
        that it keeps all the same has everything in its own input.
        """
        raw = incoming.body.raw

        def join() -> tuple[bytes, int]:
            new = given_in(raw)
            items = history.with_results(state.items, new)
            body = history.with_input(raw, items, "previous_response_id")
            return body, len(items) - len(new)

        body, before = await for_body(max(raw, state.said, key=len), join)
        joined = replace(incoming, body=RequestBody(DIALECT, body))
        whole = await self._settled(joined, await for_body(body, preamble_of, body))
        whole = replace(whole, before=before)
        if whole.store is None:
            return replace(whole, previous=previous)
        return replace(whole, store=replace(whole.store, request=raw))

    async def _told(self, incoming: IncomingRequest, create: _Create) -> None:
        """Has one response told, and remembers it."""
        run, sessions = self._host.start(incoming), self._sessions
        writer = SocketWriter(create.stream_id)
        if sessions is not None and sessions.window and run.writer is not None:
            last = await self._followed(run, sessions, writer)
        else:
            last = await self._driven(run, writer)
        ended = await for_body(last, _ended, last)
        if ended.status in _WHOLE:
            raw = incoming.body.raw
            items = [*await for_body(raw, given_in, raw), *ended.output]
            self._keep(ended.id, items, stored=_is_stored(incoming, run))
        else:
            self._recent.forget(create.previous_response_id)

    async def _warmed(self, incoming: IncomingRequest, create: _Create) -> None:
        """Tells a response that no model was asked for, and remembers what it goes on from."""
        events = _prepared(incoming)
        await self._send(SocketWriter(create.stream_id).write(events))
        id = _ended(last_snapshot(events) or b"{}").id
        self._keep(id, given_in(incoming.body.raw), stored=False)

    def _keep(self, id: str, items: list[Raw], *, stored: bool) -> None:
        """Remembers a response, as far as there is memory for it."""
        self._recent.keep(id, items, stored=stored)
        while not self._remembered.resize(self._recent.size):
            self._recent.forget_oldest()

    async def _driven(self, run: Run, writer: SocketWriter) -> bytes:
        """Tells a response that ends with the socket; returns it as it was told last."""
        try:
            return await self._streamed(run, writer)
        finally:
            try:
                await run.close()
            finally:
                self._host.ended(run)

    async def _followed(self, run: Run, sessions: Sessions, writer: SocketWriter) -> bytes:
        """The same of a response that goes on for a while when the client has left."""
        id = await sessions.detach(run, self._host.ended)
        async for events in sessions.events(id):
            await self._send(writer.write(events))
        entry = await sessions.store.entry(id)
        if entry is None or entry.status in RUNNING:  # its end could not be stored
            raise RequestFailed(new_error("server", "the answer could not be stored"))
        return entry.body or b"{}"

    async def _streamed(self, run: Run, writer: SocketWriter) -> bytes:
        last: bytes | None = None
        try:
            stream = await run.open()
            while events := await stream.next():
                last = last_snapshot(events) or last
                await self._send(writer.write(events))
        except RequestFailed as failed:
            if last is None:
                raise
            events = await run.error_events(failed.error)
            last = last_snapshot(events)
            await self._send(writer.write(events))
        return last or b"{}"

    async def _send(self, events: list[bytes]) -> None:
        for event in events:
            await self._connection.write_text(event)

    async def _tell(
        self, failed: RequestFailed, code: str | None = None, stream: str | None = None
    ) -> None:
        error = failed.error
        status, data = answers.written(DIALECT, error)
        if isinstance(failed, Shut):
            status = failed.status
        told = msgspec.json.decode(data)["error"]
        told["code"] = code or told.get("code") or told.get("type")
        headers = error_headers(error)
        if headers:
            told["headers"] = headers
        frame = _Error("error", status, told, stream)
        await self._send([_json(frame)])


def _prepared(incoming: IncomingRequest) -> list[Event]:
    """The events of a response that says nothing, and is not stored."""
    fresh = fresh_context()
    request = msgspec.structs.replace(
        incoming.body.parsed.request,
        model=incoming.model,
        previous_response_id=incoming.previous,
        store=False,
    )
    context = replace(fresh, request=request)
    parts = [ResponseMetadata("", model=incoming.model), Finish("stop", usage=Usage(0, 0, 0))]
    encoder = encoder_of(DIALECTS[DIALECT], context, Assembler(), Findings())
    return encoder.feed(parts)


def _is_stored(incoming: IncomingRequest, run: Run) -> bool:
    """Whether the store has a response that is over, and may show it."""
    policy = incoming.store
    return policy is not None and policy.visible and run.record.unstored is None


def _decoded(raw: bytes, shape: bodies.Shape) -> tuple[_Create, dict[str, Raw]]:
    """A message, and all its fields."""
    bodies.check(raw, shape)
    try:
        return _create(raw), _fields(raw)
    except (ValueError, RecursionError) as problem:
        raise BadRequest("", str(problem)) from None
