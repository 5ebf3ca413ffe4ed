"""Parses tools and toolConfig."""

import re

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.schema_subset import to_json_schema
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import SourcePaths
from weft.dialects.requests.unknown_fields import collect
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Hosted, Tool, ToolChoice, ToolMode

# VALIDATED is AUTO with arguments that follow their schemas, which is what strict tools have.
_MODES: dict[str, ToolMode] = {
    "AUTO": "auto",
    "ANY": "required",
    "NONE": "none",
    "VALIDATED": "auto",
}
_SNAKE_CASE_HUMP = re.compile("_([a-z])")
_CALLING_CONFIG = "toolConfig.functionCallingConfig"
_TRANSPORT = "streamableHttpTransport"
_json = msgspec.json.Encoder().encode


def parse_tools(entries: list[Raw], paths: SourcePaths) -> tuple[Tool, ...]:
    """Returns all tools; one entry of `tools` may hold several."""
    tools: list[Tool] = []
    for index, raw_entry in enumerate(entries):
        path = f"tools[{index}]"
        entry, hosted = schema.parse_object(raw_entry, schema.ToolEntry, path)
        found: list[tuple[str, Tool]] = []
        for number, function in enumerate(entry.function_declarations or ()):
            function_path = f"{path}.functionDeclarations[{number}]"
            found.append((function_path, _function(function, function_path)))
        for number, server in enumerate(entry.mcp_servers or ()):
            server_path = f"{path}.mcpServers[{number}]"
            found.append((server_path, _mcp_server(server, server_path)))
        # A hosted tool is a key with its options, mostly `{}`: `{"googleSearch": {}}`. So each key
        # that is not known is a tool, too, perhaps a newer one.
        for key, options in hosted.items():
            if bytes(options) != b"null":
                found.append((f"{path}.{key}", _hosted_tool(key, options, f"{path}.{key}")))
        for tool_path, tool in found:
            paths[f"tools[{len(tools)}]"] = tool_path
            tools.append(tool)
    return tuple(tools)


def _function(raw: Raw, path: str) -> Tool:
    function, unknown = schema.parse_object(raw, schema.FunctionDeclaration, path)
    subset = schema.non_null(function.parameters)
    full = schema.non_null(function.parameters_json_schema)
    parameters: Json = UNSET if full is None else full
    if full is not None and subset is not None:
        # API reference, FunctionDeclaration: they exclude each other, as those of the output do.
        # The host decides; other dialects have no place for a second schema.
        unknown["parameters"] = subset
    elif subset is not None:
        parameters = to_json_schema(subset)
    return Tool(
        function.name,
        description=function.description,
        parameters=parameters,
        extra=collect(unknown),
    )


def _hosted_tool(key: str, options: Raw, path: str) -> Tool:
    """Options without a canonical field stay in `extra`, for renderers of other dialects."""
    # The Python SDK's dumps have `google_search`.
    key = _SNAKE_CASE_HUMP.sub(lambda match: match[1].upper(), key)
    raw = Raw(_json({key: options}))
    kind = schema.HOSTED_TOOLS.get(key)
    if kind is None:
        return Tool(key, key, raw=raw, origin=NAME)
    parsed, unknown = schema.parse_object(options, schema.SearchOptions, path)
    hosted = Hosted(blocked_domains=tuple(parsed.exclude_domains or ()))
    name = kind.replace("-", "_")
    return Tool(name, kind, hosted=hosted, raw=raw, origin=NAME, extra=collect(unknown))


def _mcp_server(raw: Raw, path: str) -> Tool:
    server, unknown = schema.parse_object(raw, schema.McpServerEntry, path)
    transport = server.streamable_http_transport
    if transport is None:
        raise BadRequest(f"{path}.{_TRANSPORT}", "is required")
    headers = dict(transport.headers or {})
    # Of the headers, other dialects have a field only for the token.
    token = headers.pop("Authorization", None)
    if headers:
        unknown[f"{_TRANSPORT}.headers"] = Raw(_json(headers))
    hosted = Hosted(
        server_label=server.name,
        server_url=transport.url,
        authorization=token.removeprefix("Bearer ") if token else None,
    )
    return Tool(
        server.name,
        "mcp",
        hosted=hosted,
        raw=Raw(_json({"mcpServers": [raw]})),
        origin=NAME,
        extra=collect(unknown),
    )


def parse_tool_choice(config: schema.ToolConfig | None, extra: dict[str, Raw]) -> ToolChoice | None:
    """Returns the choice; a mode that is unknown stays in `extra`."""
    raw = None if config is None else schema.non_null(config.function_calling_config)
    if raw is None:
        return None
    calling, unknown = schema.parse_object(raw, schema.FunctionCallingConfig, _CALLING_CONFIG)
    if calling.mode is None and not calling.allowed_function_names:
        return None
    mode = _MODES.get((calling.mode or "AUTO").upper())
    if mode is None:
        extra[_CALLING_CONFIG] = raw
        return None
    extra |= {f"{_CALLING_CONFIG}.{key}": value for key, value in unknown.items()}
    allowed = tuple(calling.allowed_function_names or ())
    if mode == "required" and len(allowed) == 1:
        # ANY with one name is how this API forces one function.
        return ToolChoice(mode, allowed[0])
    return ToolChoice(mode, allowed=allowed)
