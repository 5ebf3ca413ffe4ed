"""Tools and the choice among them, read. Whose a tool is, its type tells, not its name."""

import re

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.asking.bridging import is_object
from weft.dialects.asking.leftovers import kept, left
from weft.dialects.requests import Places, read
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Hosted, Tool, ToolChoice, ToolMode

_MODES: dict[str, ToolMode] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}
_HOSTED = re.compile(r"(web_search|web_fetch|code_execution)_\d+")
_TOOLSET = "mcp_toolset"
_json = msgspec.json.Encoder().encode


class _Kind(msgspec.Struct):
    """As much of a tool as all of them have."""

    type: str | None = None
    name: str | None = None
    cache_control: Json = UNSET


def tools(body: schema.Body, places: Places) -> tuple[Tool, ...]:
    """All tools: the client's, the host's, and those of remote servers."""
    servers = _servers(body.mcp_servers or ())
    found: list[Tool] = []
    for place, raw in enumerate(body.tools or ()):
        path = f"tools[{place}]"
        places.add(f"{path}.parameters", f"{path}.input_schema")
        found.append(_tool(raw, path, servers))
    for place, server in servers.values():  # those that no toolset names offer all they have
        places.add(f"tools[{len(found)}]", f"mcp_servers[{place}]")
        found.append(_remote(server, None, f"mcp_servers[{place}]"))
    return tuple(found)


def choice(raw: Json, extra: dict[str, Raw]) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether several calls at once are welcome."""
    if not isinstance(raw, Raw) or bytes(raw) == b"null":
        return None, None
    if read(raw, schema.Typed, "tool_choice").type not in _MODES:
        extra["tool_choice"] = raw
        return None, None
    found = read(raw, schema.Choice, "tool_choice")
    extra |= left(raw, schema.Choice, under="tool_choice")
    if (found.type == "tool") != (found.name is not None):
        raise BadRequest("tool_choice.name", "goes with the type tool, and only with it")
    parallel = found.disable_parallel_tool_use
    chosen = ToolChoice(_MODES[found.type], found.name)
    return chosen, None if parallel is None else not parallel


def _servers(raws: list[Raw] | tuple[()]) -> dict[str, tuple[int, Raw]]:
    found: dict[str, tuple[int, Raw]] = {}
    for place, raw in enumerate(raws):
        name = read(raw, schema.Server, f"mcp_servers[{place}]").name
        if name in found:
            raise BadRequest(f"mcp_servers[{place}].name", f"{name} is there twice")
        found[name] = (place, raw)
    return found


def _tool(raw: Raw, path: str, servers: dict[str, tuple[int, Raw]]) -> Tool:
    kind = read(raw, _Kind, path).type
    if kind in (None, "custom"):
        return _custom(raw, path)
    if kind == _TOOLSET:
        name = read(raw, schema.Toolset, path).mcp_server_name
        _, server = servers.pop(name, (0, None))
        return _remote(server, raw, path)
    return _host_tool(raw, path)


def _custom(raw: Raw, path: str) -> Tool:
    tool = read(raw, schema.Custom, path)
    if not is_object(tool.input_schema):
        raise BadRequest(f"{path}.input_schema", "expected an object")
    cache, marks = schema.cached(tool.cache_control, path)
    return Tool(
        tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        strict=tool.strict,
        cache=cache,
        extra=kept(left(raw, schema.Custom), marks),
    )


def _host_tool(raw: Raw, path: str) -> Tool:
    """A tool of the host. What only this wire can tell it is left over, for those who map it."""
    declared = read(raw, _Kind, path)
    cache, marks = schema.cached(declared.cache_control, path)
    kind = declared.type or ""
    name = declared.name or kind
    known = _HOSTED.fullmatch(kind)
    if known is None:
        return Tool(name, kind, cache=cache, raw=raw, origin=NAME)
    tool = read(raw, schema.HostTool, path)
    hosted = Hosted(
        tuple(tool.allowed_domains or ()),
        tuple(tool.blocked_domains or ()),
        tool.max_uses,
        location=tool.user_location if _said(tool.user_location) else UNSET,
    )
    return Tool(
        name,
        schema.HOSTED[known[1]],
        cache=cache,
        hosted=hosted,
        raw=raw,
        origin=NAME,
        extra=kept(left(raw, schema.HostTool), marks),
    )


def _said(raw: Json) -> bool:
    return isinstance(raw, Raw) and bytes(raw) != b"null"


def _remote(server: Raw | None, toolset: Raw | None, path: str) -> Tool:
    """The tools of a remote server: who it is, and which of them may be used."""
    who = read(server, schema.Server, path) if server is not None else None
    which = read(toolset, schema.Toolset, path) if toolset is not None else None
    cache, marks = schema.cached(which.cache_control if which else UNSET, path)
    allowed, rest = _allowed(who, which)
    if toolset is not None:
        rest |= left(toolset, schema.Toolset)
    if server is not None:
        rest |= left(server, schema.Server)
    name = who.name if who else (which.mcp_server_name if which else "")
    hosted = Hosted(
        server_label=name,
        server_url=who.url if who else None,
        authorization=who.authorization_token if who else None,
        allowed_tools=allowed,
    )
    declared = schema.Remote(
        UNSET if toolset is None else toolset, UNSET if server is None else server
    )
    raw = Raw(_json(declared))
    extra = kept(rest, marks)
    return Tool(name, "mcp", cache=cache, hosted=hosted, raw=raw, origin=NAME, extra=extra)


def _allowed(
    who: schema.Server | None, which: schema.Toolset | None
) -> tuple[tuple[str, ...], dict[str, Raw]]:
    """The only tools that may be used, none being all; and settings that say it otherwise."""
    configs = which.configs or {} if which else {}
    default = which.default_config.enabled if which and which.default_config else None
    if not configs and default is not False:
        listed = who.tool_configuration.allowed_tools if who and who.tool_configuration else None
        return tuple(listed or ()), {}
    enabled = [name for name, config in configs.items() if config.enabled]
    if default is False and enabled and len(enabled) == len(configs):
        return tuple(enabled), {}
    return (), {"configs": Raw(_json(configs or {"default": False}))}
