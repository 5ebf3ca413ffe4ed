"""Parses the tools of a Responses body, and the tool choice."""

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.wire import NAME, NULL
from weft.dialects.requests.codec import SourcePaths
from weft.dialects.requests.fields import fields_of, object_reader, read_object
from weft.dialects.requests.turns import TOOL_DECLARATION
from weft.dialects.requests.unknown_fields import collect, collect_filled
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Hosted, Message, OpaqueContent, Tool, ToolChoice, ToolMode

_read_function = object_reader(schema.FunctionToolParam)
_CHOICE_MODES: dict[str, ToolMode] = {mode: mode for mode in get_args(ToolMode)}
_SEARCH, _CODE = "web_search", "code_interpreter"
# What tools are called that have one name under several types.
_HOSTED_NAMES = {_SEARCH: _SEARCH, "web_search_preview": _SEARCH, _CODE: _CODE}
_ALWAYS, _NEVER = Raw(b'"always"'), Raw(b'"never"')
# `auto` is what other dialects do by themselves. Any other container is a loss there.
_DEFAULT_CONTAINERS = frozenset((b'{"type":"auto"}',))


def parse_tools(
    body: schema.ResponseCreateParams, messages: Sequence[Message], paths: SourcePaths
) -> tuple[Tool, ...]:
    """Returns the declared tools, then those that input items add. The tools of a namespace are
    listed one by one.
    """
    declared = _parse_tools(body.tools or (), "tools")
    # An item may be sent again in the next turn: each tool counts once, where it was declared last.
    added = late_tools(messages)
    if added:
        declared += {(tool.namespace, tool.name): (tool, path) for tool, path in added}.values()
    tools: list[Tool] = []
    for tool, path in declared:
        paths[f"tools[{len(tools)}]"] = path
        # Losses are reported by canonical paths and shown with those of the client's body.
        if tool.hosted is not None:
            paths[f"tools[{len(tools)}].hosted"] = path
            paths[f"tools[{len(tools)}].hosted.allowed_domains"] = f"{path}.filters"
        tools.append(tool)
    return tuple(tools)


def late_tools(messages: Sequence[Message]) -> list[tuple[Tool, str]]:
    """Returns the tools that input items add, and where each was declared."""
    found: list[tuple[Tool, str]] = []
    for number, message in enumerate(messages):
        for content in message.content:
            # By its class first: nearly all contents are texts, calls and results.
            if content.__class__ is not OpaqueContent or content.kind != TOOL_DECLARATION:
                continue
            path = f"input[{number}]"
            declared = read_object(content.raw, schema.AdditionalToolsParam, path).tools
            found += _parse_tools(declared, f"{path}.tools")
    return found


def _parse_tools(raw_tools: Sequence[Raw], list_path: str) -> list[tuple[Tool, str]]:
    parsed: list[tuple[Tool, str]] = []
    for number, raw in enumerate(raw_tools):
        path = f"{list_path}[{number}]"
        type = read_object(raw, schema.ItemHeader, path).type
        if type is None:
            raise BadRequest(f"{path}.type", "missing; expected the type of a tool")
        parsed += _namespace(raw, path) if type == "namespace" else [(_tool(raw, type, path), path)]
    return parsed


def _namespace(raw: Raw, path: str) -> list[tuple[Tool, str]]:
    param = read_object(raw, schema.NamespaceToolParam, path)
    tools = []
    for number, inner in enumerate(param.tools):
        tool_path = f"{path}.tools[{number}]"
        type = read_object(inner, schema.ItemHeader, tool_path).type or "function"
        tool = msgspec.structs.replace(_tool(inner, type, tool_path), namespace=param.name)
        # Tools are a flat list elsewhere. The first one carries what only the namespace has.
        if number == 0 and param.description:
            description = {schema.NAMESPACE_DESCRIPTION: param.description}
            tool = msgspec.structs.replace(
                tool, extra=schema.to_raw(fields_of(tool.extra) | description)
            )
        tools.append((tool, tool_path))
    return tools


def _tool(raw: Raw, type: str, path: str) -> Tool:
    # Some types end with a date, such as `web_search_preview_2025_03_11`.
    parser = _PARSERS.get(type.partition("_20")[0])
    return parser(raw, path) if parser else Tool(type, type, raw=raw, origin=NAME)


def _function(raw: Raw, path: str) -> Tool:
    param, unknown = _read_function(raw, path)
    parameters = param.parameters
    return Tool(
        param.name,
        description=param.description,
        # Null and no parameters are the same here: the function takes none.
        parameters=parameters if isinstance(parameters, Raw) and parameters != NULL else UNSET,
        strict=param.strict if isinstance(param.strict, bool) else None,
        extra=collect_filled(unknown),
    )


def _custom(raw: Raw, path: str) -> Tool:
    param = read_object(raw, schema.CustomToolParam, path)
    extra = schema.extra_of(raw, schema.CustomToolParam)
    return Tool(param.name, "custom", param.description, raw=raw, origin=NAME, extra=extra)


def _web_search(raw: Raw, path: str) -> Tool:
    param = read_object(raw, schema.WebSearchToolParam, path)
    filters = param.filters or schema.WebSearchFilters()
    location = UNSET if param.user_location == NULL else param.user_location
    if isinstance(location, Raw):
        read_object(location, schema.UserLocationParam, f"{path}.user_location")
    hosted = Hosted(
        allowed_domains=tuple(filters.allowed_domains or ()),
        blocked_domains=tuple(filters.blocked_domains or ()),
        context_size=param.search_context_size,
        location=location,
    )
    extra = schema.extra_of(raw, schema.WebSearchToolParam)
    return Tool(_SEARCH, "web-search", hosted=hosted, raw=raw, origin=NAME, extra=extra)


def _code_interpreter(raw: Raw, path: str) -> Tool:
    param = read_object(raw, schema.CodeInterpreterToolParam, path)
    extra = fields_of(schema.extra_of(raw, schema.CodeInterpreterToolParam))
    if msgspec.json.format(bytes(param.container), indent=-1) not in _DEFAULT_CONTAINERS:
        extra["container"] = param.container
    return Tool(
        _CODE,
        "code-execution",
        hosted=Hosted(),
        raw=raw,
        origin=NAME,
        extra=collect(extra),
    )


def _mcp(raw: Raw, path: str) -> Tool:
    param = read_object(raw, schema.McpToolParam, path)
    allowed = param.allowed_tools
    # A list of names, or an object with more conditions, of which only the names are common.
    names = allowed.tool_names if isinstance(allowed, schema.McpToolFilter) else allowed
    extra = fields_of(schema.extra_of(raw, schema.McpToolParam))
    if isinstance(allowed, schema.McpToolFilter):
        extra_filter = schema.extra_of(fields_of(raw)["allowed_tools"], schema.McpToolFilter)
        extra |= {"allowed_tools": extra_filter} if isinstance(extra_filter, Raw) else {}
    # Other dialects have no approvals, so any value but `never` is a loss there. OpenAI's guide
    # "Connectors and MCP servers": by default every call is asked for.
    approval = param.require_approval
    if not isinstance(approval, Raw) or approval == NULL:
        approval = _ALWAYS
    if approval != _NEVER:
        extra["require_approval"] = approval
    hosted = Hosted(
        server_label=param.server_label,
        server_url=param.server_url,
        authorization=param.authorization,
        allowed_tools=tuple(names or ()),
    )
    return Tool(
        param.server_label, "mcp", hosted=hosted, raw=raw, origin=NAME, extra=collect(extra)
    )


_PARSERS: Mapping[str, Callable[[Raw, str], Tool]] = {
    "function": _function,
    "custom": _custom,
    "web_search": _web_search,
    # The older name of the same tool.
    "web_search_preview": _web_search,
    "code_interpreter": _code_interpreter,
    "mcp": _mcp,
}
"""Parsers by tool type, without the date that some types end with."""


def _name_of_reference(tool: schema.ToolReference) -> str:
    """Returns the name of the tool as it was parsed."""
    type = tool.type.partition("_20")[0]
    return tool.server_label or tool.name or _HOSTED_NAMES.get(type, tool.type)


def parse_tool_choice(raw: Json, extra: dict[str, Raw]) -> ToolChoice | None:
    """Returns the tool choice. One that is not understood goes to `extra`."""
    if not isinstance(raw, Raw) or raw == NULL:
        return None
    # A mode, or an object that names a tool.
    if bytes(raw).startswith(b'"'):
        mode = _CHOICE_MODES.get(msgspec.json.decode(raw, type=str))
        choice = ToolChoice(mode) if mode else None
    else:
        param = read_object(raw, schema.ResponsesToolChoice, "tool_choice")
        if param.type == "allowed_tools":
            mode = _CHOICE_MODES.get(param.mode or "auto")
            names = tuple(map(_name_of_reference, param.tools or ()))
            if not names:
                raise BadRequest("tool_choice.tools", "expected at least one tool")
            choice = ToolChoice(mode, allowed=names) if mode else None
        elif param.type in ("function", "custom") and param.name is None:
            raise BadRequest("tool_choice.name", "missing; expected the name of a tool")
        else:
            # A hosted tool is chosen by its type alone, an MCP server by its label.
            name = param.server_label or param.name or param.type
            choice = ToolChoice("required", name, param.type)
        # A canonical choice has no place for one tool of a hosted kind, such as of an MCP server:
        # it would be all of them.
        references = (schema.ToolReference(param.type, param.name), *(param.tools or ()))
        if any(one.name and one.type not in ("function", "custom") for one in references):
            choice = None
    if choice is None:
        extra["tool_choice"] = raw
    return choice
