"""Renders the tools of a Chat Completions body, and which of them may or must be called."""

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.passthrough import ChatPassthrough
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.openai_family import OpenAIFamilyOptions
from weft.dialects.requests.tools import FREE_TEXT_SCHEMA, custom_tool_description, parse_grammar
from weft.dialects.requests.unknown_fields import (
    ESSENTIAL_FOR_TOOLS,
    report_missing_tool,
    report_unknown,
)
from weft.parts import Json
from weft.request import Hosted, Request, Tool

_CLIENT_TOOLS = ("function", "custom")


class ChatToolRenderer:
    """Renders the tools of one request."""

    def __init__(
        self,
        request: Request,
        quirks: ChatQuirks,
        passthrough: ChatPassthrough,
        family: OpenAIFamilyOptions,
        names: ToolNameMap,
        losses: Losses,
    ) -> None:
        self._request = request
        self._family = family
        self._passthrough = passthrough
        self._native = passthrough.native
        # A client of this dialect decides by itself what its host takes.
        self._bridges_custom = not self._native and not quirks.custom_tools
        self._names = names
        self._losses = losses
        self.bridged: frozenset[str] = frozenset()
        """The names of the custom tools that are declared as functions."""

    def tools(self) -> list[Raw | schema.ChatFunctionTool]:
        rendered: list[Raw | schema.ChatFunctionTool] = []
        for number, tool in enumerate(self._request.tools):
            path = f"tools[{number}]"
            # Anthropic's tools may end a cached prefix; here only content parts can.
            if tool.cache is not None:
                detail = f"dropped: {NAME} has no cache breakpoints on tools"
                self._losses.warned(f"{path}.cache", detail)
            if tool.kind == "function":
                rendered.append(self._function(tool, path))
            elif isinstance(tool.raw, Raw) and tool.origin == NAME:
                # Whole as it came: Weft may not know all of it.
                rendered.append(tool.raw)
            elif tool.kind == "custom":
                rendered.append(self._custom(tool, path))
            elif tool.kind != "web-search":
                # A web search is an option of the body, see `web_search`.
                report_missing_tool(tool, path, self._losses, NAME)
                continue  # its options do not matter then
            if not self._native and tool.extra is not UNSET:
                report_unknown(tool.extra, path, self._losses, NAME, ESSENTIAL_FOR_TOOLS)
        return rendered

    def _function(self, tool: Tool, path: str) -> Raw | schema.ChatFunctionTool:
        strict = tool.strict and self._family.strict(tool, path)
        name = self._name(tool, f"{path}.name")
        function = schema.ChatFunctionDefinition(name, tool.description, tool.parameters, strict)
        if tool.extra is UNSET or not self._native:
            return schema.ChatFunctionTool(function)
        extra = fields_of(tool.extra)
        fields = fields_of(extra.pop("function", UNSET)) | fields_of(schema.to_raw(function))
        return schema.to_raw({**extra, "type": "function", "function": fields})

    def _custom(self, tool: Tool, path: str) -> Raw:
        if self._bridges_custom:
            self._losses.adapted(path, "sent as a function with one string, input")
            self.bridged |= {tool.name}
            about = custom_tool_description(tool, path, self._losses)
            name = self._name(tool, f"{path}.name")
            function = schema.ChatFunctionDefinition(name, about, FREE_TEXT_SCHEMA)
            return schema.to_raw({"type": "function", "function": function})
        grammar = parse_grammar(tool.raw)
        format = schema.ChatCustomFormat("grammar", grammar) if grammar else None
        name = self._name(tool, f"{path}.name")
        custom = schema.ChatCustomDefinition(name, tool.description, format)
        return schema.to_raw(schema.ChatCustomTool(custom))

    def _name(self, tool: Tool, path: str) -> str:
        # Whether it takes the name is for the host to say.
        if self._passthrough.same_dialect:
            return tool.name
        return self._names.rename_at(path, tool.name, tool.namespace)

    # Web search

    def web_search(self) -> schema.ChatWebSearchOptions | None:
        """Returns the options of the one web search that the wire has room for."""
        searches = [
            (f"tools[{number}]", tool.hosted or Hosted())
            for number, tool in enumerate(self._request.tools)
            if tool.kind == "web-search"
        ]
        if not searches:
            return None
        (path, options), *others = searches
        if not self._native and any(tool.kind in _CLIENT_TOOLS for tool in self._request.tools):
            # The search was offered, not required, and models that search here call no functions.
            for where, _ in searches:
                self._losses.warned(where, f"dropped: {NAME} has no web search beside functions")
            return None
        for where, hosted in others:
            if hosted == options:
                self._losses.adapted(where, "dropped: the same web search is there already")
            else:
                self._losses.refused(where, f"{NAME} takes one web search; remove it")
        for name, value in (
            ("allowed_domains", options.allowed_domains),
            ("blocked_domains", options.blocked_domains),
            ("max_uses", options.max_uses),
        ):
            # Without it the search could return, or cost, more than the client allowed.
            if value:
                detail = f"{name} is not available on {NAME}; remove it"
                self._losses.refused(f"{path}.hosted.{name}", detail)
        location = self._location(options.location, f"{path}.hosted.location")
        return schema.ChatWebSearchOptions(options.context_size, location)

    def _location(self, location: Json, path: str) -> schema.ChatUserLocation | None:
        """Renders a location, which other dialects have without the object in it."""
        if not isinstance(location, Raw):
            return None
        try:
            type = msgspec.json.decode(location, type=schema.ChatTypeProbe).type
            approximate = msgspec.json.decode(location, type=schema.ChatApproximateLocation)
        except ValueError:
            self._losses.refused(path, f"such a location is not available on {NAME}; remove it")
            return None
        return schema.ChatUserLocation(type or "approximate", approximate)

    # Tool choice

    def tool_choice(self) -> str | schema.ChatToolChoice | None:
        choice = self._request.tool_choice
        if choice is None or not self._family.renders_tool_choice():
            return None
        if choice.allowed:
            kinds = {tool.name: tool.kind for tool in self._request.tools}
            tools: list[Raw] = []
            for number, name in enumerate(choice.allowed):
                path = f"tool_choice.allowed[{number}]"
                if kinds.get(name, "function") in _CLIENT_TOOLS:
                    tools.append(schema.to_raw(self._choice_of(name, path)))
                else:
                    detail = f"{kinds[name]} cannot be chosen on {NAME}; remove it"
                    self._losses.refused(path, detail)
            allowed = schema.ChatAllowedTools(choice.mode, tools)
            return schema.ChatToolChoice("allowed_tools", allowed_tools=allowed)
        # `auto`, `none` and `required` are the same words in the canonical request.
        if choice.name is None:
            return choice.mode
        if choice.kind not in _CLIENT_TOOLS:
            detail = f"forcing {choice.kind} is not available on {NAME}; name a function"
            self._losses.refused("tool_choice", detail)
            return None
        return self._choice_of(choice.name, "tool_choice.name")

    def _choice_of(self, name: str, path: str) -> schema.ChatToolChoice:
        tool = next((tool for tool in self._request.tools if tool.name == name), Tool(name))
        tool_name = schema.ChatToolName(self._name(tool, path))
        if tool.kind == "custom" and not self._bridges_custom:
            return schema.ChatToolChoice("custom", custom=tool_name)
        return schema.ChatToolChoice("function", function=tool_name)
