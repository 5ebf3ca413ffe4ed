"""Tools and the choice among them, read."""

import re
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.asking.leftovers import kept
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.schema_subset import json_schema
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests import Places
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Hosted, Tool, ToolChoice, ToolMode

_MODES: dict[str, ToolMode] = {
    "AUTO": "auto",
    "ANY": "required",
    "NONE": "none",
    "VALIDATED": "auto",
}
_WORDS = re.compile("_([a-z])")
_json = msgspec.json.Encoder().encode


class _Found(NamedTuple):
    tool: Tool
    path: str


def tools(raw: Json, places: Places) -> tuple[Tool, ...]:
    """All tools: an entry may hold many."""
    entries = enumerate(schema.many(raw, "tools"))
    found = [one for place, entry in entries for one in _entry(entry, f"tools[{place}]")]
    for place, one in enumerate(found):
        places.add(f"tools[{place}]", one.path)
    return tuple(one.tool for one in found)


def _entry(raw: Raw, path: str) -> list[_Found]:
    entry, rest = schema.take(raw, schema.ToolEntry, path)
    found: list[_Found] = []
    functions = schema.many(entry.function_declarations, f"{path}.functionDeclarations")
    for place, declared in enumerate(functions):
        where = f"{path}.functionDeclarations[{place}]"
        found.append(_Found(_function(declared, where), where))
    for place, server in enumerate(schema.many(entry.mcp_servers, f"{path}.mcpServers")):
        where = f"{path}.mcpServers[{place}]"
        found.append(_Found(_remote(server, where), where))
    for key, options in rest.items():
        if bytes(options) != b"null":
            where = f"{path}.{key}"
            found.append(_Found(_host_tool(key, options, where), where))
    return found


def _function(raw: Raw, path: str) -> Tool:
    declared, rest = schema.take(raw, schema.Declaration, path)
    plain, full = schema.told(declared.parameters), schema.told(declared.parameters_json_schema)
    if plain is not None and full is not None:
        raise BadRequest(f"{path}.parameters", "goes without parametersJsonSchema")
    parameters: Json = full if full is not None else UNSET
    if plain is not None:
        parameters = json_schema(plain)
    return Tool(
        declared.name,
        description=declared.description,
        parameters=parameters,
        extra=kept(rest),
    )


def _host_tool(key: str, options: Raw, path: str) -> Tool:
    """A tool of the host. What only this wire can tell it is left over, for those who map it."""
    key = _WORDS.sub(lambda found: found[1].upper(), key)
    raw = Raw(_json({key: options}))
    kind = schema.HOSTED.get(key)
    if kind is None:
        return Tool(key, key, raw=raw, origin=NAME)
    told, rest = schema.take(options, schema.SearchOptions, path)
    hosted = Hosted(blocked_domains=tuple(told.exclude_domains or ()))
    name = kind.replace("-", "_")
    return Tool(name, kind, hosted=hosted, raw=raw, origin=NAME, extra=kept(rest))


def _remote(raw: Raw, path: str) -> Tool:
    server, rest = schema.take(raw, schema.Server, path)
    key = "streamableHttpTransport"
    there = schema.told(server.streamable_http_transport)
    if there is None:
        raise BadRequest(f"{path}.{key}", "is needed to reach the server")
    transport, left = schema.below(there, schema.Transport, f"{path}.{key}", key)
    headers = dict(transport.headers or {})
    token = headers.pop("Authorization", None)
    if headers:
        left[f"{key}.headers"] = Raw(_json(headers))
    hosted = Hosted(
        server_label=server.name,
        server_url=transport.url,
        authorization=token.removeprefix("Bearer ") if token else None,
    )
    declared = Raw(_json({"mcpServers": [raw]}))
    extra = kept(rest, left)
    return Tool(server.name, "mcp", hosted=hosted, raw=declared, origin=NAME, extra=extra)


def choice(raw: Json, extra: dict[str, Raw]) -> ToolChoice | None:
    config, rest = schema.inner(raw, schema.ToolConfig, "toolConfig")
    extra |= rest
    if config is None:
        return None
    path = "toolConfig.functionCallingConfig"
    calling, rest = schema.inner(config.function_calling_config, schema.CallingConfig, path)
    if calling is None or (calling.mode is None and not calling.allowed_function_names):
        return None
    mode = _MODES.get((calling.mode or "AUTO").upper())
    if mode is None and isinstance(config.function_calling_config, Raw):
        extra[path] = config.function_calling_config
    if mode is None:
        return None
    extra |= rest
    allowed = tuple(calling.allowed_function_names or ())
    if mode == "required" and len(allowed) == 1:
        return ToolChoice(mode, allowed[0])
    return ToolChoice(mode, allowed=allowed)
