"""MCP over streamable HTTP.

In the package, a request that fails on the way (a refused connection, a reset) raises in the task
group of the client and ends it, with every call that is in progress. Here it is the answer to that
one request: `FailuresAsAnswers` turns it into the JSON-RPC error that the server could not send.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from weft.agent.mcp_config import MAX_MESSAGE, ConnectionLoss, McpServerConfig

NOT_SENT = -31999
"""The code of our answer to a request that did not reach the server. Not one of JSON-RPC's own, nor
of those that it leaves to servers."""

TIMEOUT = httpx2.Timeout(30.0, read=None)
"""A call may take as long as its own timeout allows, and the stream of server messages forever."""


@asynccontextmanager
async def http_transport(
    config: McpServerConfig, loss: ConnectionLoss
) -> AsyncIterator[TransportStreams]:
    """Each request is a connection of its own, so there is none to lose here."""
    async with (
        # With a transport of our own it reads neither proxies nor passwords from the environment.
        httpx2.AsyncClient(
            # Not compressed, since what a small message unpacks to could be large.
            headers={"accept-encoding": "identity", **config.headers},
            timeout=TIMEOUT,
            transport=FailuresAsAnswers(httpx2.AsyncHTTPTransport()),
        ) as client,
        streamable_http_client(
            config.url or "", http_client=client, max_sse_event_size=MAX_MESSAGE
        ) as streams,
    ):
        yield streams


class FailuresAsAnswers(httpx2.AsyncBaseTransport):
    """Sends requests; a request that fails is answered with a JSON-RPC error."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._transport.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error(NOT_SENT, f"cannot connect: {error}")
        # The request was on its way, or on the server.
        except httpx2.TransportError as error:
            return _error(CONNECTION_CLOSED, f"connection lost: {_name(error)}")
        # Server-sent events are left to the package: it handles their failures one by one.
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            return await self._read(response)
        if response.status_code >= 500:
            # Of a proxy, or of a server that failed: the call may have been executed.
            await response.aclose()
            return _error(CONNECTION_CLOSED, f"HTTP status {response.status_code}")
        return response

    async def _read(self, response: httpx2.Response) -> httpx2.Response:
        """The response with its body, so that no later failure can be raised elsewhere."""
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_MESSAGE:
                    why = f"the server sent a message of more than {MAX_MESSAGE} bytes"
                    return _error(CONNECTION_CLOSED, why)
        except httpx2.TransportError as error:
            return _error(CONNECTION_CLOSED, f"connection lost: {_name(error)}")
        finally:
            await response.aclose()
        # Of the body as it was sent; the new one is unpacked and whole.
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name not in {"content-encoding", "content-length", "transfer-encoding"}
        ]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body))

    async def aclose(self) -> None:
        await self._transport.aclose()


def _name(error: Exception) -> str:
    return str(error) or type(error).__name__


def _error(code: int, message: str) -> httpx2.Response:
    # The package puts in the id of its request where there is none, and takes an error of JSON-RPC
    # for more than the status says.
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(
        503, headers={"content-type": "application/json"}, content=msgspec.json.encode(body)
    )
