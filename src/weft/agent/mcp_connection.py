"""One connection to an MCP server, by the official package: its types end here.

Imported when the first server is started, since the package takes most of a second to load.
"""

import asyncio
import binascii
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import mcp_types as types
import msgspec
from mcp import Client, MCPError
from pydantic import TypeAdapter, ValidationError

from weft.agent.mcp_addresses import Resolver
from weft.agent.mcp_config import ConnectionLoss, McpServerConfig, NotSent, RemoteTool
from weft.agent.mcp_http import NOT_SENT, http_transport
from weft.agent.mcp_stdio import stdio_transport
from weft.agent.tool_spec import Ambiguous, Finished, ToolContent, failed
from weft.request import FileContent, ImageContent, TextContent

KEY = "weft/key"
"""Where a server finds the key of a call, in `_meta`."""

PAGES = 100
"""Of a list of tools: a server could go on forever."""

Report = Callable[[object], Awaitable[None]]

# Without the tagged union of the package, which also holds what extensions claim: we have none.
_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)

UNANSWERED = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT, types.PARSE_ERROR})
"""Errors that the package makes when the server's own answer is missing or cannot be read."""

UNREADABLE = ("Server returned an error response", "Unexpected content type", "server answered a")
"""How the messages of the package begin where it uses a code of the server's for the same."""

SESSION_ENDED = (types.INVALID_REQUEST, "Session terminated")
"""What the package says when the server does not know our session: it was started again."""


@asynccontextmanager
async def connect(
    config: McpServerConfig, loss: ConnectionLoss, resolve: Resolver
) -> AsyncIterator["McpConnection"]:
    """Connects within the settings' time; the connection lasts as long as the context. A failure
    of the transport ends the context with its exception."""
    transport = (
        stdio_transport(config, loss) if config.command else http_transport(config, loss, resolve)
    )
    client = Client(
        transport,
        cache=None,  # a listing is for finding out what has changed
        client_info=types.Implementation(name="weft", version=""),
    )
    async with AsyncExitStack() as stack:
        # asyncio's, not anyio's: the client's task groups stay open when this block ends.
        async with asyncio.timeout(config.connect_timeout):
            await stack.enter_async_context(client)
        yield McpConnection(client, loss)


class McpConnection:
    """Lists and calls the tools of a server. Methods may be called from any task."""

    def __init__(self, client: Client, loss: ConnectionLoss) -> None:
        self._client = client
        self._loss = loss

    @property
    def is_lost(self) -> bool:
        return self._loss.why is not None

    async def list_tools(self) -> list[RemoteTool] | NotSent:
        """The tools as they are now. Never raises for what a server does."""
        tools: list[RemoteTool] = []
        cursor: str | None = None
        try:
            for _ in range(PAGES):
                page = await self._client.list_tools(cursor=cursor)
                tools += map(_remote_tool, page.tools)
                cursor = page.next_cursor
                if cursor is None:
                    break
        # Nothing here is ambiguous: to list tools has no effect.
        except MCPError as error:
            self._is_session_ended(error)
            return NotSent(f"its tools cannot be listed: {self._why(error)}")
        except ValidationError as error:
            return NotSent(f"its list of tools is not valid: {_first_problem(error)}")
        except Exception as error:
            return NotSent(f"its tools cannot be listed: {type(error).__name__}: {error}")
        return tools

    async def call(
        self, name: str, arguments: dict[str, object], key: str, report: Report
    ) -> Finished | Ambiguous | NotSent:
        """Calls a tool. Raises only CancelledError, after it has notified the server.

        Not by the package's `call_tool`: that checks the result against the output schema and
        raises if it does not fit, when the effect has happened and the result would help.
        """

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            given = {"progress": progress, "total": total, "message": message}
            await report({name: value for name, value in given.items() if value is not None})

        # The type of `_meta` allows any key, in a way that mypy does not know yet.
        meta = cast(types.RequestParamsMeta, {KEY: key})
        params = types.CallToolRequestParams(name=name, arguments=arguments, _meta=meta)
        try:
            result = await self._client.session.send_request(
                types.CallToolRequest(params=params), _RESULT, progress_callback=on_progress
            )
        except MCPError as error:
            return self._failure(error)
        except ValidationError as error:
            return failed(
                "the tool was executed, but the result of the server is not valid: "
                f"{_first_problem(error)}"
            )
        # The package documents more than these two, and a call without an outcome is none.
        except Exception as error:
            return Ambiguous(f"{type(error).__name__}: {error}")
        # Part of the protocol since 2026-07-28: the package would answer with what its callbacks
        # say, and call the tool again.
        if isinstance(result, types.InputRequiredResult):
            return failed("the tool asks for input from a person, which is not supported")
        contents = tuple(_content(block) for block in result.content)
        # "For backwards compatibility, a tool that returns structured content SHOULD also return
        # the serialized JSON in a TextContent block" (MCP 2025-06-18, Tools). Most do.
        if not contents and result.structured_content is not None:
            contents = (TextContent(msgspec.json.encode(result.structured_content).decode()),)
        return Finished(contents, result.is_error)

    def _failure(self, error: MCPError) -> Finished | Ambiguous | NotSent:
        if self._is_session_ended(error) or error.code == NOT_SENT:
            return NotSent(error.message)
        if error.code in UNANSWERED or error.message.startswith(UNREADABLE):
            return Ambiguous(self._why(error))
        return failed(f"error {error.code}: {error.message}")

    def _is_session_ended(self, error: MCPError) -> bool:
        """Whether the server refused a request for its session: it has to be opened again."""
        ended = (error.code, error.message) == SESSION_ENDED
        if ended:
            self._loss.report("the server ended the session")
        return ended

    def _why(self, error: MCPError) -> str:
        """The loss of the connection says more than the package does about it."""
        return self._loss.why or error.message


def _remote_tool(tool: types.Tool) -> RemoteTool:
    hints = tool.annotations or types.ToolAnnotations()
    return RemoteTool(
        tool.name,
        tool.description or "",
        msgspec.json.encode(tool.input_schema),
        # A hint that is missing is no hint, whatever the protocol says about defaults.
        hints.read_only_hint is True,
        hints.idempotent_hint is True,
    )


def _first_problem(error: ValidationError) -> str:
    """pydantic's own text quotes the whole input."""
    problem = error.errors(include_input=False, include_url=False)[0]
    return f"{problem['msg']} at {'.'.join(map(str, problem['loc']))}"


def _content(block: types.ContentBlock) -> ToolContent:
    match block:
        case types.TextContent(text=text):
            return TextContent(text)
        case types.ImageContent(data=data, mime_type=media_type):
            return _binary(media_type, data)
        case types.AudioContent(data=data, mime_type=media_type):
            return _binary(media_type, data)
        # Its text or its bytes, without its URI: that is one of the server's own.
        case types.EmbeddedResource(resource=resource):
            if isinstance(resource, types.TextResourceContents):
                return TextContent(resource.text)
            return _binary(resource.mime_type or "application/octet-stream", resource.blob)
        # Not fetched: whether the model gets to see what is behind it is not our decision.
        case types.ResourceLink(name=name, uri=uri):
            return TextContent(f"{name}: {uri}")


def _binary(media_type: str, data: str) -> ToolContent:
    # An upstream refuses a request with broken base64, and would refuse every turn from here on.
    try:
        b64decode(data, validate=True)
    except binascii.Error:
        return TextContent(f"[{media_type}: the data is not valid base64]")
    if media_type.startswith("image/"):
        return ImageContent(media_type, data)
    return FileContent(media_type, data)
