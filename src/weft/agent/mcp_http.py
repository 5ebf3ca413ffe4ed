"""MCP over streamable HTTP.

In the package, a request that fails on the way (a refused connection, a reset) raises in the task
group of the client and ends it, with every call that is in progress. Here it is the answer to that
one request: `FailuresAsAnswers` turns it into the JSON-RPC error that the server could not send.

A request goes to the host of the settings and nowhere else: its addresses are checked
(`mcp_addresses.py`), and redirects are not followed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from weft.agent.mcp_addresses import Resolver, is_literal, is_public
from weft.agent.mcp_config import MAX_MESSAGE, ConnectionLoss, McpServerConfig

NOT_SENT = -31999
"""The code of our answer to a request that did not reach the server. Not one of JSON-RPC's own, nor
of those that it leaves to servers."""

TIMEOUT = httpx2.Timeout(30.0, read=None)
"""A call may take as long as its own timeout allows, and the stream of server messages forever."""

ATTEMPT = 3.0
"""Seconds to connect to an address while there are others to try."""


@asynccontextmanager
async def http_transport(
    config: McpServerConfig, loss: ConnectionLoss, resolve: Resolver
) -> AsyncIterator[TransportStreams]:
    """Each request is a connection of its own, so there is none to lose here."""
    async with (
        # With a transport of our own it reads neither proxies nor passwords from the environment.
        httpx2.AsyncClient(
            # Not compressed, since what a small message unpacks to could be large.
            headers={"accept-encoding": "identity", **config.headers},
            timeout=TIMEOUT,
            transport=FailuresAsAnswers(CheckedAddresses(config, resolve)),
        ) as client,
        streamable_http_client(
            config.url or "", http_client=client, max_sse_event_size=MAX_MESSAGE
        ) as streams,
    ):
        yield streams


class CheckedAddresses(httpx2.AsyncBaseTransport):
    """Sends requests to the addresses of their host, if all of them may be connected to."""

    def __init__(self, config: McpServerConfig, resolve: Resolver) -> None:
        self._config = config
        self._resolve = resolve
        self._transport = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises httpx2.TransportError."""
        if is_literal(request.url.host):
            return await self._transport.handle_async_request(request)
        *others, last = await self._addresses(request.url)
        for address in others:
            try:
                return await self._send(request, address, ATTEMPT)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await self._send(request, last, TIMEOUT.connect)

    async def _addresses(self, url: httpx2.URL) -> list[str]:
        """At least one. Raises httpx2.ConnectError."""
        host = url.host
        try:
            found = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        except OSError as error:
            raise httpx2.ConnectError(f"{host}: {error}") from error
        if not found:
            raise httpx2.ConnectError(f"{host} has no address")
        if not self._config.allow_private and host != "localhost":
            # All of them: a name that is half private was not meant to be.
            for address in found:
                if not is_public(address):
                    raise httpx2.ConnectError(
                        f"{host} resolves to {address}, which is not a public address; if that is "
                        f"intended, set allow_private = true in [mcp.{self._config.name}]"
                    )
        return found

    async def _send(
        self, request: httpx2.Request, address: str, timeout: float | None
    ) -> httpx2.Response:
        limits = {**request.extensions.get("timeout", {}), "connect": timeout}
        pinned = httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,  # with the Host of the URL
            stream=request.stream,
            # The certificate is that of the host, not of its address.
            extensions={
                **request.extensions,
                "sni_hostname": request.url.raw_host.decode("ascii"),
                "timeout": limits,
            },
        )
        return await self._transport.handle_async_request(pinned)

    async def aclose(self) -> None:
        await self._transport.aclose()


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
        # The package follows those within the origin. A server that redirects has not executed
        # anything.
        if response.has_redirect_location:
            await response.aclose()
            return _error(
                NOT_SENT,
                f"the server redirects (HTTP status {response.status_code}), and redirects are not "
                "followed: set the url that it redirects to",
            )
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
