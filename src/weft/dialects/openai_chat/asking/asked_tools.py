"""Reads the tools of a Chat Completions body, and which of them may or must be called."""

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_chat.asking import asked
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests import Places, read
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Hosted, Tool, ToolChoice


def tools_of(body: asked.Body, places: Places) -> tuple[Tool, ...]:
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
    kind = read(raw, asked.Typed, path).type
    if kind == "function":
        declared = read(raw, asked.FunctionTool, path).function
        return _function_tool(
            declared, asked.beside(raw, asked.FunctionTool, "function", asked.Declared)
        )
    if kind == "custom":
        custom = read(raw, asked.CustomTool, path).custom
        extra = asked.beside(raw, asked.CustomTool, "custom", asked.CustomDeclared)
        return Tool(custom.name, "custom", custom.description, raw=raw, origin=NAME, extra=extra)
    if kind is None:
        raise BadRequest(f"{path}.type", "missing; expected function or custom")
    return Tool(kind, kind, raw=raw, origin=NAME)


def _function_tool(declared: asked.Declared, extra: Json) -> Tool:
    return Tool(
        declared.name,
        description=declared.description,
        parameters=asked.given(declared.parameters),
        strict=declared.strict,
        extra=extra,
    )


def _web_search(options: asked.WebSearch) -> Tool:
    where = options.user_location
    near = where.approximate if where else None
    location: Json = UNSET
    if where and near:
        flat = asked.Nearby(where.type, near.city, near.country, near.region, near.timezone)
        location = Raw(msgspec.json.encode(flat))
    hosted = Hosted(context_size=options.search_context_size, location=location)
    return Tool("web_search", "web-search", hosted=hosted, origin=NAME)


def choice_of(body: asked.Body) -> ToolChoice | None:
    old = body.function_call
    if old is not None:
        return ToolChoice(old) if isinstance(old, str) else ToolChoice("required", old.name)
    choice = body.tool_choice
    if choice is None or isinstance(choice, str):
        return ToolChoice(choice) if choice else None
    if choice.type == "allowed_tools":
        return _allowed(choice.allowed_tools)
    named = choice.function if choice.type == "function" else choice.custom
    if named is None:
        raise BadRequest(f"tool_choice.{choice.type}", "missing; expected the name of a tool")
    return ToolChoice("required", named.name, choice.type)


def _allowed(allowed: asked.Allowed | None) -> ToolChoice:
    if allowed is None:
        raise BadRequest("tool_choice.allowed_tools", "missing; expected `mode` and `tools`")
    names = []
    for number, raw in enumerate(allowed.tools):
        path = f"tool_choice.allowed_tools.tools[{number}]"
        one = read(raw, asked.Choice, path)
        named = one.function or one.custom
        if named is None:
            raise BadRequest(path, "expected a function or a custom tool, by name")
        names.append(named.name)
    if not names:
        raise BadRequest("tool_choice.allowed_tools.tools", "expected at least one tool")
    return ToolChoice(allowed.mode, allowed=tuple(names))
