"""Values of MCP servers: what the settings say, what a server lists, how a connection ends."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from weft.errors import ArgumentValueError, ClientError

SERVER_NAME = re.compile(r"[a-zA-Z0-9-]{1,32}")
"""No underscore: in `files__read` two of them end the name of the server."""

MAX_MESSAGE = 8 * 1024 * 1024
"""Bytes of one message of a server. The package has no limit over stdio, nor for JSON over HTTP."""


class McpUnavailable(ClientError):
    """The package for MCP is not installed, or the server cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerConfig:
    """One MCP server: a command that speaks over stdin and stdout, or the URL of a streamable HTTP
    endpoint."""

    name: str
    command: tuple[str, ...] | None = None
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The whole environment of the command: nothing is inherited, not even PATH."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each HTTP request."""

    allow_private: bool = False
    """Whether the host of the URL may have an address that is not public. Those that the URL itself
    names, and localhost, always may."""

    allow: tuple[str, ...] | None = None
    """The tools that may be used, by the server's names; None: all of them."""

    trust_hints: bool = False
    """Whether the server's word counts that a tool only reads, or may be called again."""

    timeout: float = 60.0
    """Seconds for one call."""

    connect_timeout: float = 30.0
    """Seconds for starting the server and agreeing on a protocol, and how long a call waits for it.

    A server that ignores what it does not know costs the first 10: the package asks by the newest
    protocol first.
    """

    def __post_init__(self) -> None:
        if not SERVER_NAME.fullmatch(self.name):
            raise ArgumentValueError(
                f"{self.name!r} cannot be the name of an MCP server: 1 to 32 of a-z, A-Z, 0-9 and -"
            )
        if bool(self.command) == bool(self.url):
            raise ArgumentValueError(f"MCP server {self.name}: either a command or a url")
        if not (self.timeout > 0 and self.connect_timeout > 0):
            raise ArgumentValueError(f"MCP server {self.name}: timeouts are positive")


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool as its server lists it."""

    name: str
    description: str
    schema: bytes
    read_only: bool
    idempotent: bool


@dataclass(frozen=True, slots=True)
class NotSent:
    """The server did not get the call."""

    why: str


class ConnectionLoss:
    """The loss of one connection: reported once, with the first reason, and awaited."""

    def __init__(self, on_loss: Callable[[str], None]) -> None:
        self._on_loss = on_loss
        self._reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def why(self) -> str | None:
        return self._reason.result() if self._reason.done() else None

    def report(self, why: str) -> None:
        if not self._reason.done():
            self._reason.set_result(why)
            self._on_loss(why)

    async def wait(self) -> None:
        await asyncio.wait((self._reason,))
