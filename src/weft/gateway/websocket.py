"""`/v1/responses` over a WebSocket: one create per message, the events of the stream as frames.

One response at a time; what is asked meanwhile waits its turn. An error leaves the socket usable.
Nothing is remembered between two responses, so there is none to go on from.
"""

import asyncio

import msgspec
from msgspec import Raw
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.dialects.faults import fault
from weft.errors import BadRequest
from weft.gateway import answers, bodies
from weft.gateway.endpoints import Host, Receive, Scope, Send
from weft.parts import ErrorPart
from weft.relay.asked import Asked, Failed, bad_request
from weft.relay.run import Run
from weft.sse import DONE, FrameReader

DIALECT = "openai-responses"
LIFETIME = 3600.0
"""Seconds that a socket may be used."""

WAITING = 8
"""Messages that wait their turn; more are not read."""

_FORBIDDEN = ("stream", "stream_options", "background")


class _Create(msgspec.Struct):
    type: str
    model: str | None = None
    previous_response_id: str | None = None


class _Error(msgspec.Struct):
    """How an error is told here: its code is never null."""

    status: int
    error: dict[str, object]
    type: str = "error"


class ResponsesSocket:
    """An ASGI app for one socket."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        waiting: asyncio.Queue[str] = asyncio.Queue(WAITING)
        answering = asyncio.create_task(self._answer(socket, waiting))
        try:
            async with asyncio.timeout(LIFETIME):
                while True:
                    await waiting.put(await socket.receive_text())
        except TimeoutError:
            error = fault("bad-request", "a socket may be used for 60 minutes")
            await _tell(socket, error, "websocket_connection_limit_reached")
            await socket.close(1000)
        except WebSocketDisconnect:
            pass
        except KeyError:  # bytes
            await socket.close(1003)
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, socket: WebSocket, waiting: asyncio.Queue[str]) -> None:
        while True:
            await self._one(socket, await waiting.get())

    async def _one(self, socket: WebSocket, text: str) -> None:
        try:
            run = self._host.start(self._asked(socket.scope, text.encode()))
        except BadRequest as problem:
            await _tell(socket, bad_request(problem))
            return
        except Failed as failed:
            await _tell(socket, failed.error)
            return
        try:
            await self._told(socket, run)
        except Failed as failed:
            await _tell(socket, failed.error)
        finally:
            await run.close()
            self._host.ended(run)

    def _asked(self, scope: Scope, raw: bytes) -> Asked:
        bodies.check(raw, self._host.shape)
        try:
            create = msgspec.json.decode(raw, type=_Create)
            body = msgspec.json.decode(raw, type=dict[str, Raw])
        except (ValueError, RecursionError) as problem:
            raise BadRequest("", str(problem)) from None
        if create.type != "response.create":
            raise BadRequest("type", f"{create.type[:100]!r}; expected 'response.create'")
        extra = [name for name in _FORBIDDEN if name in body]
        if extra:
            raise BadRequest(extra[0], "must not be present over a WebSocket")
        if create.previous_response_id is not None:
            message = f"no response {create.previous_response_id[:100]!r} on this socket"
            error = fault("not-found", message, param="previous_response_id")
            raise Failed(msgspec.structs.replace(error, code="previous_response_not_found"))
        if not create.model:
            raise BadRequest("model", "missing; expected the name of a model")
        del body["type"]
        body["stream"] = Raw(b"true")
        return Asked(
            DIALECT,
            msgspec.json.encode(body),
            create.model,
            True,
            id=scope["weft.id"],
            caller=scope["weft.caller"],
            reject_lossy=self._host.reject_lossy,
        )

    async def _told(self, socket: WebSocket, run: Run) -> None:
        await run.open()
        while block := await run.next():
            for event in events(block):
                await socket.send_text(event)


def events(block: bytes) -> list[str]:
    """The events of a block, each without its frame; comments and the terminator are none."""
    return [frame.data.decode() for frame in FrameReader().feed(block) if frame.data != DONE]


async def _tell(socket: WebSocket, error: ErrorPart, code: str | None = None) -> None:
    status, data = answers.written(DIALECT, error)
    told = msgspec.json.decode(data)["error"]
    told["code"] = code or told.get("code") or told.get("type")
    await socket.send_text(msgspec.json.encode(_Error(status, told)).decode())
