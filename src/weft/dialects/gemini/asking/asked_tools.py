"""Tools and the choice among them, read."""

import re
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.asking.leftovers import kept
from weft.dialects.gemini.asking import asked
from weft.dialects.gemini.asking.schemas import json_schema
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
    entries = enumerate(asked.many(raw, "tools"))
    found = [one for place, entry in entries for one in _entry(entry, f"tools[{place}]")]
    for place, one in enumerate(found):
        places.add(f"tools[{place}]", one.path)
    return tuple(one.tool for one in found)


def _entry(raw: Raw, path: str) -> list[_Found]:
    entry, rest = asked.take(raw, asked.ToolEntry, path)
    found: list[_Found] = []
    functions = asked.many(entry.function_declarations, f"{path}.functionDeclarations")
    for place, declared in enumerate(functions):
        where = f"{path}.functionDeclarations[{place}]"
        found.append(_Found(_function(declared, where), where))
    for place, server in enumerate(asked.many(entry.mcp_servers, f"{path}.mcpServers")):
        where = f"{path}.mcpServers[{place}]"
        found.append(_Found(_remote(server, where), where))
    for key, options in rest.items():
        if bytes(options) != b"null":
            where = f"{path}.{key}"
            found.append(_Found(_host_tool(key, options, where), where))
    return found


def _function(raw: Raw, path: str) -> Tool:
    declared, rest = asked.take(raw, asked.Declaration, path)
    plain, schema = asked.told(declared.parameters), asked.told(declared.parameters_json_schema)
    if plain is not None and schema is not None:
        raise BadRequest(f"{path}.parameters", "goes without parametersJsonSchema")
    parameters: Json = schema if schema is not None else UNSET
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
    kind = asked.HOSTED.get(key)
    if kind is None:
        return Tool(key, key, raw=raw, origin=NAME)
    told, rest = asked.take(options, asked.SearchOptions, path)
    hosted = Hosted(blocked_domains=tuple(told.exclude_domains or ()))
    name = kind.replace("-", "_")
    return Tool(name, kind, hosted=hosted, raw=raw, origin=NAME, extra=kept(rest))


def _remote(raw: Raw, path: str) -> Tool:
    server, rest = asked.take(raw, asked.Server, path)
    key = "streamableHttpTransport"
    there = asked.told(server.streamable_http_transport)
    if there is None:
        raise BadRequest(f"{path}.{key}", "is needed to reach the server")
    transport, left = asked.below(there, asked.Transport, f"{path}.{key}", key)
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
    config, rest = asked.inner(raw, asked.ToolConfig, "toolConfig")
    extra |= rest
    if config is None:
        return None
    path = "toolConfig.functionCallingConfig"
    calling, rest = asked.inner(config.function_calling_config, asked.CallingConfig, path)
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
