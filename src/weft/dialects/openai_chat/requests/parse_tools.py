"""Parses the tools of a Chat Completions body, and which of them may or must be called."""

from typing import get_args

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests.codec import SourcePaths
from weft.dialects.requests.fields import exact_reader, fields_of, read_object
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Hosted, Tool, ToolChoice, ToolMode

_read_function = exact_reader(schema.ChatExactTool)

MODES: dict[str, ToolMode] = {mode: mode for mode in get_args(ToolMode)}


def parse_tools(body: schema.ChatRequestBody, places: SourcePaths) -> tuple[Tool, ...]:
    """Returns the tools of all three keys, and records the place of each."""
    tools: list[Tool] = []
    for number, raw in enumerate(body.tools or ()):
        path = f"tools[{number}]"
        tool = _tool(raw, path)
        # Name, description and parameters are one level deeper than in other dialects.
        places[path] = f"{path}.{tool.kind}" if tool.kind in ("function", "custom") else path
        tools.append(tool)
    for number, function in enumerate(body.functions or ()):
        places[f"tools[{len(tools)}]"] = f"functions[{number}]"
        tools.append(_function_tool(function, UNSET))
    # The one hosted tool of this dialect is an option here, and a tool everywhere else.
    search = body.web_search_options
    if search is not None:
        places[f"tools[{len(tools)}]"] = "web_search_options"
        location: Json = UNSET
        if search.user_location is not None:
            # The other dialects have it without the object in it.
            approximate = fields_of(schema.to_raw(search.user_location.approximate))
            location = schema.to_raw({"type": search.user_location.type, **approximate})
        hosted = Hosted(context_size=search.search_context_size, location=location)
        tools.append(Tool("web_search", "web-search", hosted=hosted, origin=NAME))
    return tuple(tools)


def _tool(raw: Raw, path: str) -> Tool:
    plain = _read_function(raw)
    if plain is not None:  # nearly always
        return _function_tool(plain.function, UNSET)
    type = read_object(raw, schema.ChatTypeProbe, path).type
    if type == "function":
        function = read_object(raw, schema.ChatFunctionTool, path).function
        extra = schema.nested_unknown_fields(
            raw, schema.ChatFunctionTool, "function", schema.ChatFunctionDefinition
        )
        return _function_tool(function, extra)
    if type == "custom":
        custom = read_object(raw, schema.ChatCustomTool, path).custom
        extra = schema.nested_unknown_fields(
            raw, schema.ChatCustomTool, "custom", schema.ChatCustomDefinition
        )
        return Tool(custom.name, "custom", custom.description, raw=raw, origin=NAME, extra=extra)
    if type is None:
        raise BadRequest(f"{path}.type", "missing; expected function or custom")
    # A tool that only some host has: its bytes are all that is known about it.
    return Tool(type, type, raw=raw, origin=NAME)


def _function_tool(function: schema.ChatFunctionDefinition, extra: Json) -> Tool:
    return Tool(
        function.name,
        description=function.description,
        # Null and absent both mean a function without parameters.
        parameters=schema.unless_null(function.parameters),
        strict=function.strict,
        extra=extra,
    )


def parse_tool_choice(body: schema.ChatRequestBody, extra: dict[str, Raw]) -> ToolChoice | None:
    """Returns the choice. One with unknown words is put into `extra` instead, and so is the
    deprecated `function_call` beside a `tool_choice` that says something else.
    """
    choice: ToolChoice | None = None
    raw = schema.unless_null(body.tool_choice)
    if isinstance(raw, Raw):
        # A mode is a string; anything that is chosen by name is an object.
        is_mode = bytes(raw).startswith(b'"')
        choice = _mode(msgspec.json.decode(raw, type=str)) if is_mode else _choice_object(raw)
        if choice is None:
            extra["tool_choice"] = raw
    if body.function_call is None:
        return choice
    legacy: ToolChoice | None
    if isinstance(body.function_call, schema.ChatToolName):
        legacy = ToolChoice("required", body.function_call.name)
    else:
        # Its words are the same as those of `tool_choice`, except that it has no `required`.
        legacy = _mode(body.function_call)
    if not isinstance(raw, Raw) and legacy is not None:
        return legacy
    if legacy is None or legacy != choice:
        extra["function_call"] = schema.to_raw(body.function_call)
    return choice


def _mode(word: str) -> ToolChoice | None:
    mode = MODES.get(word)
    return ToolChoice(mode) if mode else None


def _choice_object(raw: Raw) -> ToolChoice | None:
    """Returns None for an unknown type of choice, or of one of the tools that are allowed."""
    type = read_object(raw, schema.ChatTypeProbe, "tool_choice").type
    if type not in ("function", "custom", "allowed_tools"):
        return None
    choice = read_object(raw, schema.ChatToolChoice, "tool_choice")
    if type != "allowed_tools":
        tool = choice.function if type == "function" else choice.custom
        if tool is None:
            raise BadRequest(f"tool_choice.{type}", "missing; expected the name of a tool")
        return ToolChoice("required", tool.name, type)
    allowed = choice.allowed_tools
    if allowed is None:
        raise BadRequest("tool_choice.allowed_tools", "missing; expected `mode` and `tools`")
    if not allowed.tools:
        raise BadRequest("tool_choice.allowed_tools.tools", "expected at least one tool")
    names: list[str] = []
    for number, entry in enumerate(allowed.tools):
        one = read_object(
            entry, schema.ChatToolChoice, f"tool_choice.allowed_tools.tools[{number}]"
        )
        tool = one.function or one.custom
        # A kind of tool that can be allowed only by a newer API: the choice is passed on unread.
        if tool is None:
            return None
        names.append(tool.name)
    mode = MODES.get(allowed.mode)
    return ToolChoice(mode, allowed=tuple(names)) if mode else None
