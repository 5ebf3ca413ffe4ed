"""Reads the tools of a Chat Completions body, and which of them may or must be called."""

from typing import get_args

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests import Places, read
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Hosted, Tool, ToolChoice, ToolMode

MODES: dict[str, ToolMode] = {mode: mode for mode in get_args(ToolMode)}


def tools_of(body: schema.Body, places: Places) -> tuple[Tool, ...]:
    found = []
    for number, raw in enumerate(body.tools or ()):
        found.append(_tool(raw, f"tools[{number}]"))
        inside = found[-1].kind if found[-1].kind in ("function", "custom") else None
        places.add(
            f"tools[{number}]", f"tools[{number}].{inside}" if inside else f"tools[{number}]"
        )
    for number, function in enumerate(body.functions or ()):
        places.add(f"tools[{len(found)}]", f"functions[{number}]")
        found.append(_function_tool(function, UNSET))
    if body.web_search_options is not None:
        places.add(f"tools[{len(found)}]", "web_search_options")
        found.append(_web_search(body.web_search_options))
    return tuple(found)


def _tool(raw: Raw, path: str) -> Tool:
    kind = read(raw, schema.Typed, path).type
    if kind == "function":
        declared = read(raw, schema.FunctionTool, path).function
        return _function_tool(
            declared, schema.beside(raw, schema.FunctionTool, "function", schema.Declared)
        )
    if kind == "custom":
        custom = read(raw, schema.CustomTool, path).custom
        extra = schema.beside(raw, schema.CustomTool, "custom", schema.CustomDeclared)
        return Tool(custom.name, "custom", custom.description, raw=raw, origin=NAME, extra=extra)
    if kind is None:
        raise BadRequest(f"{path}.type", "missing; expected function or custom")
    return Tool(kind, kind, raw=raw, origin=NAME)


def _function_tool(declared: schema.Declared, extra: Json) -> Tool:
    return Tool(
        declared.name,
        description=declared.description,
        parameters=schema.given(declared.parameters),
        strict=declared.strict,
        extra=extra,
    )


def _web_search(options: schema.WebSearch) -> Tool:
    where = options.user_location
    near = where.approximate if where else None
    location: Json = UNSET
    if where and near:
        flat = schema.Nearby(where.type, near.city, near.country, near.region, near.timezone)
        location = Raw(msgspec.json.encode(flat))
    hosted = Hosted(context_size=options.search_context_size, location=location)
    return Tool("web_search", "web-search", hosted=hosted, origin=NAME)


def choice_of(body: schema.Body, extra: dict[str, Raw]) -> ToolChoice | None:
    """The choice; one in words that nobody knows is left over."""
    if body.function_call is not None:
        return _old_choice(body.function_call, extra)
    raw = schema.given(body.tool_choice)
    if not isinstance(raw, Raw):
        return None
    found = _mode(raw) if bytes(raw).startswith(b'"') else _chosen(raw)
    if found is None:
        extra["tool_choice"] = raw
    return found


def _old_choice(choice: str | schema.Named, extra: dict[str, Raw]) -> ToolChoice | None:
    if isinstance(choice, schema.Named):
        return ToolChoice("required", choice.name)
    mode = MODES.get(choice)
    if mode is None:
        extra["function_call"] = schema.raw(choice)
    return ToolChoice(mode) if mode else None


def _mode(raw: Raw) -> ToolChoice | None:
    mode = MODES.get(msgspec.json.decode(raw, type=str))
    return ToolChoice(mode) if mode else None


def _chosen(raw: Raw) -> ToolChoice | None:
    kind = read(raw, schema.Typed, "tool_choice").type
    if kind not in ("function", "custom", "allowed_tools"):
        return None
    choice = read(raw, schema.Choice, "tool_choice")
    if kind == "allowed_tools":
        return _allowed(choice.allowed_tools)
    named = choice.function if kind == "function" else choice.custom
    if named is None:
        raise BadRequest(f"tool_choice.{kind}", "missing; expected the name of a tool")
    return ToolChoice("required", named.name, kind)


def _allowed(allowed: schema.Allowed | None) -> ToolChoice | None:
    """The tools that may be called; None if there is one among them that nobody knows."""
    if allowed is None:
        raise BadRequest("tool_choice.allowed_tools", "missing; expected `mode` and `tools`")
    if not allowed.tools:
        raise BadRequest("tool_choice.allowed_tools.tools", "expected at least one tool")
    names: list[str] = []
    for number, raw in enumerate(allowed.tools):
        one = read(raw, schema.Choice, f"tool_choice.allowed_tools.tools[{number}]")
        named = one.function or one.custom
        if named is None:
            return None
        names.append(named.name)
    mode = MODES.get(allowed.mode)
    return ToolChoice(mode, allowed=tuple(names)) if mode else None
