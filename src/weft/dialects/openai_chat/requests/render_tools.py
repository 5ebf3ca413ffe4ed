"""Writes the tools of a Chat Completions body, and which of them may or must be called."""

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.asking.bridging import FREE, Names
from weft.dialects.asking.leftovers import DECISIVE_FOR_TOOLS, drop, missing
from weft.dialects.asking.wording import Kin, described, grammar_of
from weft.dialects.openai_chat.quirks import quirks_of
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests import Losses, keys_of
from weft.parts import Json
from weft.request import Hosted, Request, Tool, ToolChoice

_CLIENT = ("function", "custom")


class Tools:
    """The tools of one request, in the words of this wire."""

    def __init__(self, request: Request, context: Context, names: Names, losses: Losses) -> None:
        self._request = request
        self._kin = Kin(request, NAME, schema.SIBLING, losses)
        self._own = self._kin.own
        self._bridges = not self._own and not quirks_of(context).custom_tools
        self._names = names
        self._losses = losses
        self.bridged: frozenset[str] = frozenset()
        """The tools for free text that are declared as functions, by their own names."""

    def declared(self) -> list[Raw]:
        found: list[Raw] = []
        for number, tool in enumerate(self._request.tools):
            path = f"tools[{number}]"
            if tool.cache is not None:
                self._losses.warned(f"{path}.cache", f"tools cannot be marked on {NAME}")
            written = self._tool(tool, path)
            found += [] if written is None else [written]
        return found

    def _tool(self, tool: Tool, path: str) -> Raw | None:
        if not self._own:
            drop(tool.extra, path, self._losses, NAME, DECISIVE_FOR_TOOLS)
        if tool.kind == "function":
            return self._function(tool, path)
        if isinstance(tool.raw, Raw) and tool.origin == NAME:
            return tool.raw
        if tool.kind == "custom":
            return self._custom(tool, path)
        if tool.kind != "web-search":
            missing(tool, path, self._losses, NAME)
        return None

    def _function(self, tool: Tool, path: str) -> Raw:
        strict = self._kin.strict(tool, path)
        declared = schema.Declared(
            self._name(tool, path), tool.description, tool.parameters, strict
        )
        extra = keys_of(tool.extra) if self._own else {}
        inner = keys_of(extra.pop("function", UNSET)) | keys_of(schema.raw(declared))
        return schema.raw({**extra, "type": "function", "function": inner})

    def _name(self, tool: Tool, path: str) -> str:
        return self._name_at(tool, f"{path}.name")

    def _name_at(self, tool: Tool, where: str) -> str:
        if self._request.dialect == NAME:
            return tool.name
        return self._names.spell_at(where, tool.name, tool.namespace)

    def _custom(self, tool: Tool, path: str) -> Raw:
        if self._bridges:
            return self._free(tool, path)
        grammar = grammar_of(tool.raw)
        format = schema.Format("grammar", grammar) if grammar else None
        declared = schema.CustomDeclared(self._name(tool, path), tool.description, format)
        return schema.raw(schema.CustomTool(declared))

    def _free(self, tool: Tool, path: str) -> Raw:
        self._losses.adapted(path, "free text is taken as an object with the key input")
        self.bridged |= {tool.name}
        about = described(tool, path, self._losses)
        declared = schema.Declared(self._name(tool, path), about, FREE)
        return schema.raw({"type": "function", "function": declared})

    def web_search(self) -> schema.WebSearch | None:
        """There is room for one: what is said of others must be the same."""
        found = [
            (f"tools[{number}]", tool.hosted or Hosted())
            for number, tool in enumerate(self._request.tools)
            if tool.kind == "web-search"
        ]
        if not found:
            return None
        (first, options), *others = found
        if not self._own and any(tool.kind in _CLIENT for tool in self._request.tools):
            # It is offered, not demanded; models that search here call no functions.
            for path, _ in found:
                self._losses.warned(path, f"left out: {NAME} has it only without functions")
            return None
        for path, hosted in others:
            if hosted == options:
                self._losses.adapted(path, "left out: the web is searched already")
            else:
                self._losses.refused(path, f"{NAME} searches the web in one way; remove it")
        return self._search(options, f"{first}.hosted")

    def _search(self, hosted: Hosted, path: str) -> schema.WebSearch:
        for name, value in (
            ("allowed_domains", hosted.allowed_domains),
            ("blocked_domains", hosted.blocked_domains),
            ("max_uses", hosted.max_uses),
        ):
            if value:
                detail = f"{name} is not available on {NAME}; remove it"
                self._losses.refused(f"{path}.{name}", detail)
        near = self._near(hosted.location, f"{path}.location")
        return schema.WebSearch(hosted.context_size, near)

    def _near(self, location: Json, path: str) -> schema.Location | None:
        if not isinstance(location, Raw):
            return None
        try:
            flat = msgspec.json.decode(location, type=schema.Nearby)
        except ValueError:
            self._losses.refused(path, f"such a location is not available on {NAME}; remove it")
            return None
        about = schema.Approximate(flat.city, flat.country, flat.region, flat.timezone)
        return schema.Location(flat.type or "approximate", about)

    def choice(self) -> str | schema.Choice | None:
        choice = self._request.tool_choice
        if choice is None or not self._kin.chooses():
            return None
        if choice.allowed:
            return self._allowed(choice)
        if choice.name is None:
            return choice.mode
        if choice.kind not in _CLIENT:
            detail = f"forcing {choice.kind} is not available on {NAME}; name a function"
            self._losses.refused("tool_choice", detail)
            return None
        return self._named(choice.name, "tool_choice.name")

    def _named(self, name: str, where: str) -> schema.Choice:
        tool = next((tool for tool in self._request.tools if tool.name == name), Tool(name))
        named = schema.Named(self._name_at(tool, where))
        if tool.kind == "custom" and not self._bridges:
            return schema.Choice("custom", custom=named)
        return schema.Choice("function", function=named)

    def _allowed(self, choice: ToolChoice) -> schema.Choice:
        hosted = {tool.name: tool.kind for tool in self._request.tools if tool.kind not in _CLIENT}
        tools: list[Raw] = []
        for number, name in enumerate(choice.allowed):
            where = f"tool_choice.allowed[{number}]"
            if name in hosted:
                detail = f"{hosted[name]} cannot be chosen on {NAME}; leave it out"
                self._losses.refused(where, detail)
            else:
                tools.append(schema.raw(self._named(name, where)))
        return schema.Choice("allowed_tools", allowed_tools=schema.Allowed(choice.mode, tools))
