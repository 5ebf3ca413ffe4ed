"""Reads the tools of a Responses body, and which of them may or must be called."""

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.asking.leftovers import kept
from weft.dialects.asking.turns import DECLARING
from weft.dialects.asking.wording import telling
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests import Places, keys_of, read, unknown
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Hosted, Message, OpaqueContent, Tool, ToolChoice, ToolMode

_NULL = Raw(b"null")
_MODES: dict[str, ToolMode] = {mode: mode for mode in get_args(ToolMode)}
_AUTO = frozenset((b'{"type":"auto"}',))


def tools_of(body: schema.Body, messages: Sequence[Message], places: Places) -> tuple[Tool, ...]:
    """Returns the tools, late ones behind the others; each one in a namespace is one of its own."""
    declared = _declared(body.tools or (), "tools")
    late = {(tool.namespace, tool.name): (tool, where) for tool, where in late_tools(messages)}
    found: list[Tool] = []
    for tool, where in [*declared, *late.values()]:
        places.add(f"tools[{len(found)}]", where)
        places.add(f"tools[{len(found)}].hosted", where)
        places.add(f"tools[{len(found)}].hosted.allowed_domains", f"{where}.filters")
        found.append(tool)
    return tuple(found)


def late_tools(messages: Sequence[Message]) -> list[tuple[Tool, str]]:
    """The tools that items of a conversation declare, and where."""
    return [
        placed
        for number, message in enumerate(messages)
        for content in message.content
        if isinstance(content, OpaqueContent) and content.kind == DECLARING
        for placed in _declared(
            read(content.raw, schema.Declaring, f"input[{number}]").tools, f"input[{number}].tools"
        )
    ]


def _declared(tools: Sequence[Raw], within: str) -> list[tuple[Tool, str]]:
    found: list[tuple[Tool, str]] = []
    for number, raw in enumerate(tools):
        path = f"{within}[{number}]"
        kind = read(raw, schema.Typed, path).type
        if kind is None:
            raise BadRequest(f"{path}.type", "missing; expected the type of a tool")
        found += _namespace(raw, path) if kind == "namespace" else [(_tool(raw, kind, path), path)]
    return found


def _namespace(raw: Raw, path: str) -> list[tuple[Tool, str]]:
    said = read(raw, schema.Namespace, path)
    found = []
    for number, inner in enumerate(said.tools):
        where = f"{path}.tools[{number}]"
        kind = read(inner, schema.Typed, where).type or "function"
        tool = msgspec.structs.replace(_tool(inner, kind, where), namespace=said.name)
        if number == 0 and said.description:
            more = {schema.DESCRIPTION: said.description}
            tool = msgspec.structs.replace(tool, extra=schema.raw(keys_of(tool.extra) | more))
        found.append((tool, where))
    return found


def _tool(raw: Raw, kind: str, path: str) -> Tool:
    reader = _TOOLS.get(kind.partition("_20")[0])
    return reader(raw, path) if reader else Tool(kind, kind, raw=raw, origin=NAME)


def _function(raw: Raw, path: str) -> Tool:
    said = read(raw, schema.Function, path)
    parameters = said.parameters
    return Tool(
        said.name,
        description=said.description,
        parameters=parameters if isinstance(parameters, Raw) and parameters != _NULL else UNSET,
        strict=said.strict if isinstance(said.strict, bool) else None,
        extra=telling(unknown(raw, schema.Function)),
    )


def _custom(raw: Raw, path: str) -> Tool:
    said = read(raw, schema.Custom, path)
    extra = telling(unknown(raw, schema.Custom))
    return Tool(said.name, "custom", said.description, raw=raw, origin=NAME, extra=extra)


def _web_search(raw: Raw, path: str) -> Tool:
    said = read(raw, schema.WebSearch, path)
    filters = said.filters or schema.Filters()
    location = UNSET if said.user_location == _NULL else said.user_location
    if isinstance(location, Raw):
        read(location, schema.Location, f"{path}.user_location")
    hosted = Hosted(
        allowed_domains=tuple(filters.allowed_domains or ()),
        blocked_domains=tuple(filters.blocked_domains or ()),
        context_size=said.search_context_size,
        location=location,
    )
    extra = telling(unknown(raw, schema.WebSearch))
    return Tool("web_search", "web-search", hosted=hosted, raw=raw, origin=NAME, extra=extra)


def _code_interpreter(raw: Raw, path: str) -> Tool:
    said = read(raw, schema.CodeInterpreter, path)
    extra = keys_of(telling(unknown(raw, schema.CodeInterpreter)))
    if msgspec.json.format(bytes(said.container), indent=-1) not in _AUTO:
        extra["container"] = said.container
    return Tool(
        "code_interpreter",
        "code-execution",
        hosted=Hosted(),
        raw=raw,
        origin=NAME,
        extra=kept(extra),
    )


def _mcp(raw: Raw, path: str) -> Tool:
    said = read(raw, schema.Mcp, path)
    allowed = said.allowed_tools
    names = allowed.tool_names if isinstance(allowed, schema.ToolNames) else allowed
    extra = keys_of(telling(unknown(raw, schema.Mcp)))
    if isinstance(allowed, schema.ToolNames):
        more = telling(unknown(keys_of(raw)["allowed_tools"], schema.ToolNames))
        extra |= {"allowed_tools": more} if isinstance(more, Raw) else {}
    if isinstance(said.require_approval, Raw) and bytes(said.require_approval) not in (
        b"null",
        b'"never"',
    ):
        extra["require_approval"] = said.require_approval
    hosted = Hosted(
        server_label=said.server_label,
        server_url=said.server_url,
        authorization=said.authorization,
        allowed_tools=tuple(names or ()),
    )
    return Tool(
        said.server_label,
        "mcp",
        hosted=hosted,
        raw=raw,
        origin=NAME,
        extra=kept(extra),
    )


_TOOLS: Mapping[str, Callable[[Raw, str], Tool]] = {
    "function": _function,
    "custom": _custom,
    "web_search": _web_search,
    "web_search_preview": _web_search,
    "code_interpreter": _code_interpreter,
    "mcp": _mcp,
}
"""By type, without the date that some types end in."""


def choice_of(raw: Json, extra: dict[str, Raw]) -> ToolChoice | None:
    """The choice; one in words that nobody knows is left over."""
    if not isinstance(raw, Raw) or raw == _NULL:
        return None
    if bytes(raw).startswith(b'"'):
        mode = _MODES.get(msgspec.json.decode(raw, type=str))
        found = ToolChoice(mode) if mode else None
    else:
        found = _chosen(read(raw, schema.Choice, "tool_choice"))
    if found is None:
        extra["tool_choice"] = raw
    return found


def _chosen(choice: schema.Choice) -> ToolChoice | None:
    if choice.type == "allowed_tools":
        mode = _MODES.get(choice.mode or "auto")
        allowed = tuple(one.name or one.server_label or one.type for one in choice.tools or ())
        if not allowed:
            raise BadRequest("tool_choice.tools", "expected at least one tool")
        return ToolChoice(mode, allowed=allowed) if mode else None
    if choice.type in ("function", "custom") and choice.name is None:
        raise BadRequest("tool_choice.name", "missing; expected the name of a tool")
    name = choice.server_label or choice.name or choice.type
    return ToolChoice("required", name, choice.type)
