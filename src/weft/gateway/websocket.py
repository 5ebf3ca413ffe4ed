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
import re
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
from msgspec import UNSET, Raw
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.codec import encode, fresh_context
from weft.dialects.faults import fault
from weft.dialects.faults import headers as error_headers
from weft.errors import BadRequest
from weft.gateway import answers, bodies
from weft.gateway.doors import Shut
from weft.gateway.endpoints import Host, Receive, Scope, Send
from weft.gateway.memory import RUNNING, Memory, given_in, unknown
from weft.gateway.recent import Recent, State
from weft.parts import ErrorPart, Finish, Json, ResponseMetadata, Usage
from weft.relay import history
from weft.relay.asked import Asked, Failed, bad_request, codec_of
from weft.relay.keeping import told
from weft.relay.run import Run
from weft.sse import DONE, FrameReader

DIALECT = "openai-responses"
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

_NUMBER = re.compile(rb'"sequence_number":\s*(\d+)')
_ERROR = b'{"type":"error"'
_WHOLE = ("completed", "incomplete")
"""How a response ends that may be gone on from."""


class _Create(msgspec.Struct):
    type: str = ""
    model: str | None = None
    previous_response_id: str | None = None
    conversation: Json = UNSET
    store: bool | None = None
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
    error = fault("bad-request", message)
    return Ending(1000, "used up", error, "websocket_connection_limit_reached")


class ResponsesSocket:
    """An ASGI app for sockets."""

    def __init__(
        self,
        host: Host,
        memory: Memory | None = None,
        *,
        per_key: int = PER_KEY,
        lifetime: float = LIFETIME,
    ) -> None:
        """`lifetime` in seconds. Without a memory nothing is stored."""
        self._host = host
        self._memory = memory
        self._per_key = per_key
        self._lifetime = lifetime
        self._talks: set[_Talk] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept(headers=answers.about(scope["weft.id"]))
        talk = _Talk(self._host, socket, self._memory)
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

    def __init__(self, host: Host, socket: WebSocket, memory: Memory | None) -> None:
        self.caller: str = socket.scope["weft.caller"]
        self._host = host
        self._socket = socket
        self._memory = memory
        self._recent = Recent()
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
        except WebSocketDisconnect:
            pass  # noticed by who reads, too

    async def _closed(self, ending: Ending) -> None:
        if ending.error is not None:
            await self._tell(Failed(ending.error), ending.error_code)
        if ending is not GONE:
            await self._socket.close(ending.code, ending.reason)

    async def _one(self, text: str) -> None:
        """Answers one message, whatever it is."""
        id = fresh_context().ids.mint("req")
        create = _Create()
        try:
            create, body = await self._read(text.encode())
            asked = await self._recalled(self._asked(id, create, body), create)
            tell = self._told if create.generate else self._warmed
            await tell(asked, create)
            return
        except BadRequest as problem:
            failed = Failed(bad_request(problem))
        except Failed as problem:
            failed = problem
        except WebSocketDisconnect:
            raise
        except Exception as problem:
            failed = answers.own_fault(id, problem)
        self._recent.forget(create.previous_response_id)
        await self._tell(failed, stream=create.stream_id)

    async def _read(self, raw: bytes) -> tuple[_Create, dict[str, Raw]]:
        if len(raw) > bodies.LARGE:
            return await asyncio.to_thread(_decoded, raw, self._host.shape)
        return _decoded(raw, self._host.shape)

    def _asked(self, id: str, create: _Create, body: dict[str, Raw]) -> Asked:
        """What the relay is asked; raises BadRequest, or Failed."""
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
        return Asked(
            DIALECT,
            _json(asked),
            create.model,
            True,
            id=id,
            caller=self.caller,
            reject_lossy=self._host.reject_lossy,
        )

    async def _recalled(self, asked: Asked, create: _Create) -> Asked:
        """With what was said before; raises Failed, BadRequest, StoreError."""
        previous = create.previous_response_id
        if previous is None:
            return await self._settled(asked)
        state = self._recent[previous]
        in_store = self._memory is not None and create.store is not False
        if in_store and (state is None or state.stored):
            return await self._settled(asked)
        if state is None:
            raise Failed(unknown(previous))
        return await self._continued(asked, previous, state)

    async def _settled(self, asked: Asked) -> Asked:
        """With what the store has of it, and what it is to keep."""
        return asked if self._memory is None else await self._memory.recalled(asked)

    async def _continued(self, asked: Asked, previous: str, state: State) -> Asked:
        """With what the socket remembers. The store cannot go on from what it has not: a response
        that it keeps all the same has everything in its own input.
        """
        new = given_in(asked.body)
        items = history.joined(state.items, new)
        body = history.with_input(asked.body, items, "previous_response_id")
        whole = await self._settled(replace(asked, body=body))
        whole = replace(whole, before=len(items) - len(new))
        if whole.kept is None:
            return replace(whole, previous=previous)
        return replace(whole, kept=replace(whole.kept, request=asked.body))

    async def _told(self, asked: Asked, create: _Create) -> None:
        """Has one response told, and remembers it."""
        run, memory = self._host.start(asked), self._memory
        frames = Frames(create.stream_id)
        if memory is not None and memory.window and run.keeping is not None:
            ended = _ended(await self._followed(run, memory, frames))
        else:
            ended = _ended(await self._driven(run, frames))
        if ended.status in _WHOLE:
            items = [*given_in(asked.body), *ended.output]
            self._recent.keep(ended.id, items, stored=_is_stored(asked, run))
        else:
            self._recent.forget(create.previous_response_id)

    async def _warmed(self, asked: Asked, create: _Create) -> None:
        """Tells a response that no model was asked for, and remembers what it goes on from."""
        block = _prepared(asked)
        await self._send(Frames(create.stream_id).feed(block))
        id = _ended(told(block) or b"{}").id
        self._recent.keep(id, given_in(asked.body), stored=False)

    async def _driven(self, run: Run, frames: "Frames") -> bytes:
        """Tells a response that ends with the socket; returns it as it was told last."""
        try:
            return await self._streamed(run, frames)
        finally:
            try:
                await run.close()
            finally:
                self._host.ended(run)

    async def _followed(self, run: Run, memory: Memory, frames: "Frames") -> bytes:
        """The same of a response that goes on for a while when the client has left."""
        id = await memory.detach(run, self._host.ended)
        last = b"{}"
        async for block in memory.events(id):
            last = told(block) or last
            await self._send(frames.feed(block))
        if _ended(last).status in RUNNING:  # its end could not be stored
            raise Failed(fault("server", "the answer could not be stored"))
        return last

    async def _streamed(self, run: Run, frames: "Frames") -> bytes:
        last: bytes | None = None
        try:
            await run.open()
            while block := await run.next():
                last = told(block) or last
                await self._send(frames.feed(block))
        except Failed as failed:
            if last is None:
                raise
            end = run.ending(failed.error)
            last = told(end)
            await self._send(frames.feed(end))
        return last or b"{}"

    async def _send(self, events: list[str]) -> None:
        for event in events:
            await self._socket.send_text(event)

    async def _tell(
        self, failed: Failed, code: str | None = None, stream: str | None = None
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
        await self._socket.send_text(_json(frame).decode())


def _prepared(asked: Asked) -> bytes:
    """The events of a response that says nothing, and is not stored. Raises BadRequest."""
    context = fresh_context()
    request = msgspec.structs.replace(
        codec_of(DIALECT).parse(asked.body, context).request,
        model=asked.model,
        previous_response_id=asked.previous,
        store=False,
    )
    parts = [ResponseMetadata("", model=asked.model), Finish("stop", usage=Usage(0, 0, 0))]
    return b"".join(encode(parts, DIALECT, context=replace(context, request=request)))


def _is_stored(asked: Asked, run: Run) -> bool:
    """Whether the store has a response that is over, and may show it."""
    return asked.kept is not None and asked.kept.visible and run.record.unstored is None


def _decoded(raw: bytes, shape: bodies.Shape) -> tuple[_Create, dict[str, Raw]]:
    """A message, and all its fields."""
    bodies.check(raw, shape)
    try:
        return _create(raw), _fields(raw)
    except (ValueError, RecursionError) as problem:
        raise BadRequest("", str(problem)) from None


class Frames:
    """The events of one response as they go over a socket: without errors, which the failed
    response tells, and without the terminator.
    """

    def __init__(self, stream: str | None = None) -> None:
        """`stream` is a name that every event gets."""
        named = b'{"stream_id":%b,' % msgspec.json.encode(stream)
        self._begin = named if stream is not None else b"{"
        self._left_out = 0

    def feed(self, block: bytes) -> list[str]:
        """Returns the events of a block of whole events, each without what frames it."""
        told: list[str] = []
        for frame in FrameReader().feed(block):
            data = frame.data
            if data.startswith(_ERROR):
                self._left_out += 1
            elif data != DONE:
                numbered = self._numbered(data) if self._left_out else data
                told.append((self._begin + numbered[1:]).decode())
        return told

    def _numbered(self, data: bytes) -> bytes:
        """With the number that it has where nothing is missing."""
        return _NUMBER.sub(
            lambda found: b'"sequence_number":%d' % (int(found[1]) - self._left_out), data, count=1
        )
