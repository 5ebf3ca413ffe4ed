"""MCP servers: one task for each, which connects, and connects again when the connection is lost.

A call is sent once. What could not be sent is an error for the model; what was sent and not
answered is ambiguous. Before each call the server is asked what its tools are: one whose definition
is not the one in the run's snapshot is not called, since neither the model nor whoever approved it
has seen the new one.
"""

import asyncio
import logging
import re
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from weft.agent.mcp_addresses import Resolver, system_resolver
from weft.agent.mcp_config import (
    ConnectionLoss,
    McpServerConfig,
    McpUnavailable,
    NotSent,
    RemoteTool,
)
from weft.agent.tool_spec import (
    TOOL_NAME,
    Ambiguous,
    AnyOutcome,
    Changed,
    RetryClass,
    ToolSpec,
    Unknown,
    definition_digest,
    failed,
)
from weft.agent.tools import Arguments, BadArguments, ToolContext
from weft.errors import InternalError

if TYPE_CHECKING:
    from weft.agent.mcp_connection import McpConnection

logger = logging.getLogger(__name__)

FIRST_DELAY = 0.5
MAX_DELAY = 30.0
"""Seconds before the next attempt to connect: doubled each time. A connection that lasted longer
than the longest delay starts anew."""

CONNECTION = "weft.agent.mcp_connection"
PACKAGES = ("mcp", "mcp_types", "httpx2", "anyio", "pydantic")
"""What comes with the extra `mcp`."""

_OBJECT = msgspec.json.Decoder(dict[str, object])


class McpClient:
    """The connection to one MCP server, kept up while the context is open."""

    def __init__(self, config: McpServerConfig, resolve: Resolver = system_resolver) -> None:
        """`resolve` finds the addresses of the host of a URL."""
        self.config = config
        self._resolve = resolve
        self._connected: asyncio.Future[McpConnection] | None = None
        """Pending while there is no connection; None or cancelled when none is tried."""
        self._supervisor: asyncio.Task[None] | None = None
        self._why = "not started"

    async def __aenter__(self) -> "McpClient":
        """Begins to connect, and does not wait for it. Raises McpUnavailable if the package is not
        installed."""
        try:
            # In a thread: the import takes most of a second.
            await asyncio.to_thread(import_module, CONNECTION)
        except ModuleNotFoundError as error:
            if error.name not in PACKAGES:
                raise
            raise McpUnavailable(
                f"MCP servers need the package {error.name}: pip install 'weft[mcp]'"
            ) from error
        self._why = "still connecting"
        self._connected = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(), name=f"mcp-{self.config.name}")
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stops the server. Calls in progress become ambiguous."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            # If we are cancelled here, the supervisor still ends its server before it ends.
            await asyncio.wait((self._supervisor,))
        if self._connected is not None:
            self._connected.cancel()

    async def tools(self) -> "list[McpTool]":
        """The tools that the server has now, as far as they are allowed. Raises McpUnavailable."""
        found = await self._list()
        if isinstance(found, NotSent):
            raise McpUnavailable(f"MCP server {self.config.name}: {found.why}")
        _, tools = found
        for name in sorted(set(self.config.allow or ()) - {tool.name for tool in tools}):
            # Most likely a typo: the agent would lack a tool, and nobody would know why.
            logger.warning("MCP server %s has no tool %r, which is allowed", self.config.name, name)
        usable: dict[str, McpTool] = {}
        for tool in tools:
            if not self._is_allowed(tool):
                continue
            spec = self._spec(tool)
            # Model APIs refuse a request with two tools of one name, and the run could not go on.
            if spec.name in usable:
                logger.warning("tool %s is listed twice; the first one counts", spec.name)
            else:
                usable[spec.name] = McpTool(self, spec)
        return list(usable.values())

    def _is_allowed(self, tool: RemoteTool) -> bool:
        return self.config.allow is None or tool.name in self.config.allow

    async def find(self, spec: ToolSpec) -> "tuple[McpConnection, RemoteTool] | AnyOutcome":
        """The tool of a spec if it is still the same, and where to call it."""
        found = await self._list()
        if isinstance(found, NotSent):
            return failed(f"MCP server {self.config.name}: {found.why}; the call was not sent")
        connection, tools = found
        for tool in tools:
            now = self._spec(tool)
            if now.name != spec.name:
                continue
            # The settings of today count, whatever those of the run's beginning were.
            if not self._is_allowed(tool):
                return failed(f"the settings do not allow tool {tool.name!r}")
            if now.digest != spec.digest:
                return Changed(spec.digest, now)
            return connection, tool
        return failed(f"MCP server {self.config.name} has no tool {spec.name!r} any more")

    async def _list(self) -> "tuple[McpConnection, list[RemoteTool]] | NotSent":
        # Once more if it was the listing that found the connection lost: nothing else was sent.
        for _ in range(2):
            connected = self._connected
            if connected is None:
                break
            # `wait` rather than `await`: a caller that is cancelled must not cancel it for others.
            await asyncio.wait((connected,), timeout=self.config.connect_timeout)
            if not connected.done() or connected.cancelled():
                break
            connection = connected.result()
            tools = await connection.list_tools()
            if not isinstance(tools, NotSent):
                return connection, tools
            if not connection.is_lost:
                return tools
        return NotSent(f"not connected: {self._why}")

    def _spec(self, tool: RemoteTool) -> ToolSpec:
        name = tool_name(self.config.name, tool.name)
        # "Clients should never make tool use decisions based on ToolAnnotations received from
        # untrusted servers" (MCP 2025-06-18, schema of ToolAnnotations).
        retry: RetryClass = "once"
        if self.config.trust_hints:
            retry = "pure" if tool.read_only else "idempotent" if tool.idempotent else "once"
        return ToolSpec(
            name=name,
            description=tool.description,
            parameters=Raw(tool.schema),
            digest=definition_digest(tool.name, tool.description, tool.schema, retry),
            retry=retry,
            timeout=self.config.timeout,
            kind="mcp",
            server=self.config.name,
        )

    async def _supervise(self) -> None:
        connect = import_module(CONNECTION).connect
        loop = asyncio.get_running_loop()
        delay = FIRST_DELAY
        while True:
            begun = loop.time()
            loss = ConnectionLoss(self._disconnected)
            try:
                async with connect(self.config, loss, self._resolve) as connection:
                    logger.info("MCP server %s: connected", self.config.name)
                    # A server may be gone as soon as it has said hello.
                    if loss.why is None and self._connected is not None:
                        self._connected.set_result(connection)
                    await loss.wait()
            # Whatever a server, a network or the package does: the next attempt may succeed.
            except Exception as error:
                loss.report(_reason(error, self.config))
            # Not after every success: a server that dies right after its handshake would be
            # started twice a second, forever.
            if loop.time() - begun > MAX_DELAY:
                delay = FIRST_DELAY
            logger.warning(
                "MCP server %s: %s; next attempt in %g s", self.config.name, loss.why, delay
            )
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_DELAY)

    def _disconnected(self, why: str) -> None:
        """At once, so that no call begins on a connection that is known to be lost."""
        self._why = why
        if self._connected is not None and self._connected.done():
            self._connected = asyncio.get_running_loop().create_future()


class McpTool:
    """A tool of an MCP server as a run knows it: `spec` is that of its snapshot."""

    def __init__(self, server: McpClient, spec: ToolSpec) -> None:
        self._server = server
        self.spec: ToolSpec = spec

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def decode(self, arguments: str) -> dict[str, object]:
        """Returns the arguments. Raises BadArguments if they are not an object; the rest of the
        schema is for the server to check: its patterns and references are not ours to run."""
        try:
            return _OBJECT.decode(arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise BadArguments(str(error)) from error

    def needs_approval(self, arguments: Arguments) -> bool:
        """Whether somebody must approve the call."""
        return self.spec.approval != "never"

    def pinned(self, spec: ToolSpec) -> "McpTool":
        """The tool that is called only if the server defines it so."""
        return McpTool(self._server, spec)

    async def call(self, arguments: Arguments, context: ToolContext) -> AnyOutcome:
        """Sends the call, unless the tool has changed. Raises only CancelledError; the server is
        told about that."""
        if not isinstance(arguments, dict):
            raise InternalError(f"arguments of {self.spec.name} that it did not decode")
        limits = [one for one in (self.spec.timeout, context.remaining) if one is not None]
        now = asyncio.get_running_loop().time()
        deadline = now + min(limits) if limits else None
        # Two steps, since what goes wrong before the call is sent is no ambiguity.
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._server.find(self.spec)
        except TimeoutError:
            found = failed(self._late("the call was not sent", limits))
        if not isinstance(found, tuple):
            return found
        connection, tool = found
        try:
            async with asyncio.timeout_at(deadline):
                outcome = await connection.call(tool.name, arguments, context.key, context.progress)
        # By being cancelled, the call tells the server to stop; whether it does is its own affair.
        except TimeoutError:
            return Ambiguous(self._late("the call was sent", limits))
        finally:
            context.end()
        if isinstance(outcome, NotSent):
            return failed(f"MCP server {self.spec.server}: {outcome.why}; the call was not sent")
        return outcome

    def _late(self, rest: str, limits: list[float]) -> str:
        return f"MCP server {self.spec.server}: no answer within {min(limits):g} s; {rest}"

    async def lookup(self, context: ToolContext) -> Unknown:
        """The protocol has no way to ask."""
        return Unknown("an MCP server cannot be asked about an earlier call")


def tool_name(server: str, name: str) -> str:
    """The name of a server's tool for a model. A name that has to be altered gets a digest, so that
    two of them never become the same."""
    plain = f"{server}__{name}"
    if TOOL_NAME.fullmatch(plain):
        return plain
    # Of the name only: the tool keeps its name when the server lists others before it.
    digest = sha256(plain.encode()).hexdigest()[:8]
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', plain)[:55]}_{digest}"


def _reason(error: BaseException, config: McpServerConfig) -> str:
    # The package's task groups wrap what went wrong, several times over.
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no connection within {config.connect_timeout:g} s"
    return f"{type(error).__name__}: {error}".removesuffix(": ")
