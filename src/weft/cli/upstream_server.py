"""A small HTTP server that speaks the dialects as an upstream does: for `replay` and `chaos`."""

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol
from urllib.parse import unquote

import click
import msgspec
import uvicorn

from weft.dialects import DIALECTS, dialect_of, http_of
from weft.dialects.error_classes import ErrorClass, new_error

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_GEMINI = re.compile(r"/models/(.+):(\w+)$")


class UpstreamCall(msgspec.Struct, frozen=True):
    """A request for a response."""

    dialect: str
    model: str
    stream: bool
    path: str
    body: bytes


class ConnectionReset(Exception):
    """Makes the server drop the connection."""


class Respond(Protocol):
    """Answers one request."""

    async def __call__(self, call: UpstreamCall, reply: "Reply") -> None: ...


class Reply:
    """The response to one request: a head, then pieces."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def start(self, status: int, content_type: str) -> None:
        headers = [(b"content-type", content_type.encode()), (b"cache-control", b"no-cache")]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes, wait: float = 0.0) -> None:
        await asyncio.sleep(wait)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def stall(self) -> None:
        """Waits until the client leaves."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def error(self, dialect: str, found: ErrorClass, message: str) -> None:
        write_error = DIALECTS[dialect].write_error
        status, body = (
            (404, b"{}") if write_error is None else write_error(new_error(found, message))
        )
        await self.start(status, "application/json")
        await self.write(body)
        await self.end()


class UpstreamServer:
    """An ASGI app: requests for responses, and the list of models."""

    def __init__(self, models: list[str], respond: Respond) -> None:
        self._models = models
        self._respond = respond

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        dialect = dialect_of(path, dict(scope["headers"]))
        reply = Reply(receive, send)
        if scope["method"] == "GET" and path.endswith("/models"):
            listing = http_of(dialect).models
            models = [] if listing is None else [listing.one(one, None) for one in self._models]
            listed = {} if listing is None else listing.all(models, self._models)
            await reply.start(200, "application/json")
            await reply.write(msgspec.json.encode(listed))
            await reply.end()
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        call = _call(dialect, unquote(path), body)
        if call is None:
            await reply.error(dialect, "bad-request", f"{path[:200]} is not served here")
        else:
            await self._respond(call, reply)


class _RequestFields(msgspec.Struct):
    model: str = ""
    stream: bool = False


_read_fields = msgspec.json.Decoder(_RequestFields).decode


def _call(dialect: str, path: str, body: bytes) -> UpstreamCall | None:
    """None: the request is not for a response."""
    try:
        fields = _read_fields(body)
    except ValueError:
        return None
    found = _GEMINI.search(path)
    if found is not None:
        return UpstreamCall(dialect, found[1], found[2].startswith("stream"), path, body)
    if not path.endswith(("/chat/completions", "/responses", "/messages")):
        return None
    return UpstreamCall(dialect, fields.model, fields.stream, path, body)


def serve(server: UpstreamServer, port: int) -> None:
    """Serves on the loopback address until it is interrupted."""
    config = uvicorn.Config(
        server, host="127.0.0.1", port=port, log_level="critical", lifespan="off", access_log=False
    )
    asyncio.run(_serve(uvicorn.Server(config)))


async def _serve(server: uvicorn.Server) -> None:
    serving = asyncio.ensure_future(server.serve())
    while not (server.started or serving.done()):
        await asyncio.sleep(0.01)
    for one in server.servers if server.started else ():
        for socket in one.sockets:
            host, port = socket.getsockname()[:2]
            click.echo(f"listening on http://{host}:{port}")
    await serving
