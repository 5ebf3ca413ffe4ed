"""Parses tools and tool_choice. The type of a tool, not its name, says who runs it."""

import re

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.requests.codec import SourcePaths
from weft.dialects.requests.fields import exact_reader, is_json_object, read_object
from weft.dialects.requests.unknown_fields import collect, remaining
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Cache, Hosted, Tool, ToolChoice, ToolMode

_MODES: dict[str, ToolMode] = {
    "auto": "auto",
    # The API's `any` is some tool, and `tool` a certain one, which then is in `name`.
    "any": "required",
    "tool": "required",
    "none": "none",
}
# The date is the version of the tool: all versions share their options.
_SERVER_TOOL = re.compile(r"(web_search|web_fetch|code_execution)_\d+")
_read_client_tool = exact_reader(schema.ClientToolParam)
_MCP_TOOLSET = "mcp_toolset"
_json = msgspec.json.Encoder().encode


def parse_tools(body: schema.MessagesRequest, source_paths: SourcePaths) -> tuple[Tool, ...]:
    """Returns client tools, server tools, and one tool for each MCP server."""
    servers: dict[str, tuple[int, Raw]] = {}
    for index, raw in enumerate(body.mcp_servers or ()):
        name = read_object(raw, schema.McpServer, f"mcp_servers[{index}]").name
        if name in servers:
            raise BadRequest(f"mcp_servers[{index}].name", f"duplicate server name {name}")
        servers[name] = (index, raw)
    tools: list[Tool] = []
    for index, raw in enumerate(body.tools or ()):
        path = f"tools[{index}]"
        source_paths[f"{path}.parameters"] = f"{path}.input_schema"
        plain = _read_client_tool(raw)
        if plain is not None and plain.cache_control is UNSET:  # nearly always
            tools.append(_parsed_client_tool(plain, None, UNSET, path))
            continue
        tool_type = read_object(raw, schema.ToolFields, path).type
        if tool_type in (None, "custom"):
            tool, cache, unknown = schema.read_cacheable(raw, schema.ClientToolParam, path)
            tools.append(_parsed_client_tool(tool, cache, collect(unknown), path))
        elif tool_type == _MCP_TOOLSET:
            name = read_object(raw, schema.McpToolset, path).mcp_server_name
            # A toolset whose server is missing is for the API to report.
            _, server = servers.pop(name, (0, None))
            tools.append(_mcp_tool(server, raw, path))
        else:
            tools.append(_server_tool(raw, path))
    for index, server in servers.values():  # a server without a toolset offers all its tools
        source_paths[f"tools[{len(tools)}]"] = f"mcp_servers[{index}]"
        tools.append(_mcp_tool(server, None, f"mcp_servers[{index}]"))
    return tuple(tools)


def parse_tool_choice(raw: Json, extra: dict[str, Raw]) -> tuple[ToolChoice | None, bool | None]:
    """Returns the choice and `parallel_tool_calls`."""
    present = schema.non_null(raw)
    if present is None:
        return None, None
    if read_object(present, schema.TypeField, "tool_choice").type not in _MODES:
        extra["tool_choice"] = present
        return None, None
    choice = read_object(present, schema.ToolChoiceParam, "tool_choice")
    extra |= remaining(present, schema.ToolChoiceParam, under="tool_choice")
    # A name without its type, or a type without its name, would force nothing.
    if (choice.type == "tool") != (choice.name is not None):
        detail = "required with type tool, and not allowed with any other type"
        raise BadRequest("tool_choice.name", detail)
    disabled = choice.disable_parallel_tool_use
    return ToolChoice(_MODES[choice.type], choice.name), None if disabled is None else not disabled


def _parsed_client_tool(
    tool: schema.ClientToolParam, cache: Cache | None, extra: Json, path: str
) -> Tool:
    if not is_json_object(tool.input_schema):
        raise BadRequest(f"{path}.input_schema", "expected an object")
    return Tool(
        tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        strict=tool.strict,
        cache=cache,
        extra=extra,
    )


def _server_tool(raw: Raw, path: str) -> Tool:
    """Options without a canonical field stay in `extra`, for renderers of other dialects."""
    fields = read_object(raw, schema.ToolFields, path)
    tool_type = fields.type or ""
    name = fields.name or tool_type
    versioned = _SERVER_TOOL.fullmatch(tool_type)
    # bash, text editor, computer, memory: their schema is built into the model, so that no other
    # dialect can declare them.
    if versioned is None:
        cache, _ = schema.parse_cache_control(fields.cache_control, path)
        return Tool(name, tool_type, cache=cache, raw=raw, origin=NAME)
    tool, cache, unknown = schema.read_cacheable(raw, schema.ServerToolParam, path)
    hosted = Hosted(
        tuple(tool.allowed_domains or ()),
        tuple(tool.blocked_domains or ()),
        tool.max_uses,
        location=schema.non_null(tool.user_location) or UNSET,
    )
    return Tool(
        name,
        schema.SERVER_TOOLS[versioned[1]],
        cache=cache,
        hosted=hosted,
        raw=raw,
        origin=NAME,
        extra=collect(unknown),
    )


def _mcp_tool(server_raw: Raw | None, toolset_raw: Raw | None, path: str) -> Tool:
    """An MCP server and its toolset as one hosted tool; either object may be missing."""
    server = read_object(server_raw, schema.McpServer, path) if server_raw is not None else None
    toolset = read_object(toolset_raw, schema.McpToolset, path) if toolset_raw is not None else None
    cache, unknown = schema.parse_cache_control(toolset.cache_control if toolset else UNSET, path)
    allowed_tools, extra = _allowed_tools(server, toolset)
    if toolset_raw is not None:
        extra |= remaining(toolset_raw, schema.McpToolset)
    if server_raw is not None:
        extra |= remaining(server_raw, schema.McpServer)
    name = server.name if server else (toolset.mcp_server_name if toolset else "")
    hosted = Hosted(
        server_label=name,
        server_url=server.url if server else None,
        authorization=server.authorization_token if server else None,
        allowed_tools=allowed_tools,
    )
    declaration = schema.McpDeclaration(
        UNSET if toolset_raw is None else toolset_raw, UNSET if server_raw is None else server_raw
    )
    return Tool(
        name,
        "mcp",
        cache=cache,
        hosted=hosted,
        raw=Raw(_json(declaration)),
        origin=NAME,
        extra=collect(extra, unknown),
    )


def _allowed_tools(
    server: schema.McpServer | None, toolset: schema.McpToolset | None
) -> tuple[tuple[str, ...], dict[str, Raw]]:
    """Returns the allowlist, empty for all tools; and configs that no allowlist can express."""
    configs = toolset.configs or {} if toolset else {}
    default = toolset.default_config.enabled if toolset and toolset.default_config else None
    if not configs and default is not False:
        config = server.tool_configuration if server else None
        return tuple((config and config.allowed_tools) or ()), {}
    # An allowlist is all that other dialects have: off by default, and each exception on.
    enabled = [name for name, config in configs.items() if config.enabled]
    if default is False and enabled and len(enabled) == len(configs):
        return tuple(enabled), {}
    return (), {"configs": Raw(_json(configs or {"default": False}))}
