"""Tools and the choice among them, written.

The client's tools stay the client's. Of the host's, only those that several wires have are
written for requests of other dialects, option by option.
"""

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.context import Context
from weft.dialects.anthropic_messages.quirks import quirks_of
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.asking.bridging import FREE, Names, schema_of, unasked
from weft.dialects.asking.leftovers import DECISIVE_FOR_TOOLS, drop, missing, written
from weft.dialects.asking.wording import described
from weft.dialects.requests import Losses, keys_of
from weft.parts import Json
from weft.request import Hosted, Request, Tool, ToolChoice, ToolMode

_EMPTY = Raw(b'{"type":"object","properties":{}}')
_NAMES = {kind: name for name, kind in schema.HOSTED.items()}
_TYPES: dict[ToolMode, str] = {"auto": "auto", "required": "any", "none": "none"}
_json = msgspec.json.Encoder().encode


class Tools:
    """Writes the tools of one request."""

    def __init__(
        self, request: Request, context: Context, losses: Losses, names: Names, *, native: bool
    ) -> None:
        self._request = request
        self._losses = losses
        self._names = names
        self._native = native
        self._quirks = quirks_of(context)
        self.declared: list[Raw] = []
        self.servers: list[Raw] = []
        """Where the tools of remote servers are."""
        self.bridged: frozenset[str] = frozenset()
        """The tools for free text that are declared as functions, by their own names."""
        for place, tool in enumerate(request.tools):
            if self._allowed(tool):
                self._declare(tool, f"tools[{place}]")
            else:
                losses.adapted(f"tools[{place}]", "not declared: it may not be called")

    def choice(self) -> schema.Choice | UnsetType:
        """What is said about the choice; the switch for parallel calls lives in it."""
        chosen, parallel = self._request.tool_choice, self._request.parallel_tool_calls
        if not self._native and not self.declared:
            self._pointless(chosen, parallel)
            return UNSET
        if not self._native and parallel is not False:
            parallel = None
        if chosen is None and parallel is None:
            return UNSET
        found = self._chosen(chosen or ToolChoice())
        if found is UNSET or parallel is None:
            return found
        if found.type != "none" or self._native:
            found.disable_parallel_tool_use = not parallel
        else:
            self._losses.adapted("parallel_tool_calls", "left out: no tool may be called")
        return found

    def _pointless(self, chosen: ToolChoice | None, parallel: bool | None) -> None:
        if chosen is not None and chosen.mode == "required":
            self._losses.warned("tool_choice", "left out: there are no tools")
        elif chosen not in (None, ToolChoice()):
            self._losses.adapted("tool_choice", "left out: there are no tools")
        if parallel is False:
            self._losses.adapted("parallel_tool_calls", "left out: there are no tools")

    def _chosen(self, chosen: ToolChoice) -> schema.Choice | UnsetType:
        if chosen.name is not None or chosen.kind in _NAMES:
            return self._forced(chosen)
        if chosen.allowed:
            self._losses.warned("tool_choice.allowed", "only these tools are declared")
        return schema.Choice(_TYPES[chosen.mode])

    def _forced(self, chosen: ToolChoice) -> schema.Choice | UnsetType:
        if chosen.kind in _NAMES:
            return schema.Choice("tool", _NAMES[chosen.kind])
        if chosen.name is None or chosen.kind not in ("function", "custom"):
            self._losses.refused("tool_choice", f"a {chosen.kind} cannot be chosen here")
            return UNSET
        return schema.Choice("tool", self._names.chosen(chosen.name, "tool_choice.name"))

    def _allowed(self, tool: Tool) -> bool:
        chosen = self._request.tool_choice
        return chosen is None or not chosen.allowed or tool.name in chosen.allowed

    def _declare(self, tool: Tool, path: str) -> None:
        if tool.origin == NAME and self._native and isinstance(tool.raw, Raw):
            self._verbatim(tool.kind, tool.raw)
        elif tool.kind == "function":
            self.declared.append(self._function(tool, path))
        elif tool.kind == "custom":
            self._free(tool, path)
        elif tool.kind in _HOSTED:
            self._hosted(tool, tool.hosted or Hosted(), path)
        else:
            missing(tool, path, self._losses, NAME)

    def _verbatim(self, kind: str, raw: Raw) -> None:
        if kind != "mcp":
            self.declared.append(raw)
            return
        both = keys_of(raw)
        if "mcp_toolset" in both:
            self.declared.append(both["mcp_toolset"])
        if "mcp_server" in both:
            self.servers.append(both["mcp_server"])

    def _function(self, tool: Tool, path: str) -> Raw:
        declared = schema.Custom(
            self._names.spell(tool.name, tool.namespace, path),
            self._schema(tool.parameters, path),
            tool.description,
            tool.strict,
            self._cache(tool, path),
        )
        return self._with(declared, tool, path)

    def _free(self, tool: Tool, path: str) -> None:
        self._losses.adapted(path, "free text is taken as an object with the key input")
        self.bridged |= {tool.name}
        name = self._names.spell(tool.name, tool.namespace, path)
        about = described(tool, path, self._losses)
        declared = schema.Custom(name, FREE, about, cache_control=self._cache(tool, path))
        self.declared.append(Raw(_json(declared)))

    def _cache(self, tool: Tool, path: str) -> Json:
        return schema.marked(tool.cache, path, self._losses, ttl=self._quirks.cache_ttl)

    def _with(self, declared: msgspec.Struct, tool: Tool, path: str) -> Raw:
        if self._native:
            return written(declared, tool.extra, schema.INNER)
        drop(tool.extra, path, self._losses, NAME, DECISIVE_FOR_TOOLS)
        return Raw(_json(declared))

    def _schema(self, parameters: Json, path: str) -> Raw:
        """The parameters: an object at the top, whatever is below it."""
        if self._native and isinstance(parameters, Raw):
            return parameters
        told = schema_of(parameters)
        if not told:
            return _EMPTY
        if told.get("type") == Raw(b'"object"') and isinstance(parameters, Raw):
            return parameters
        if "type" not in told and "properties" in told:
            self._losses.adapted(f"{path}.parameters", "said to be an object, as it must be")
            return Raw(_json({"type": "object", **told}))
        self._losses.refused(f"{path}.parameters", "must be an object at the top; wrap it")
        return _EMPTY

    # What the host runs

    def _hosted(self, tool: Tool, hosted: Hosted, path: str) -> None:
        _HOSTED[tool.kind](self, tool, hosted, path)

    def _search(self, tool: Tool, hosted: Hosted, path: str) -> None:
        self._lost(path, context_size=hosted.context_size)
        declared = self._host_tool(self._quirks.web_search, "web_search", tool, hosted, path)
        declared.user_location = hosted.location
        self.declared.append(self._with(declared, tool, path))

    def _fetch(self, tool: Tool, hosted: Hosted, path: str) -> None:
        self._lost(path, context_size=hosted.context_size)
        declared = self._host_tool(self._quirks.web_fetch, "web_fetch", tool, hosted, path)
        self._refused(path, location=hosted.location is not UNSET)
        self.declared.append(self._with(declared, tool, path))

    def _code(self, tool: Tool, hosted: Hosted, path: str) -> None:
        kind = self._quirks.code_execution
        declared = schema.HostTool(kind, "code_execution", cache_control=self._cache(tool, path))
        self._refused(path, max_uses=hosted.max_uses is not None)
        self.declared.append(self._with(declared, tool, path))

    def _host_tool(
        self, kind: str, name: str, tool: Tool, hosted: Hosted, path: str
    ) -> schema.HostTool:
        return schema.HostTool(
            kind,
            name,
            list(hosted.allowed_domains) or None,
            list(hosted.blocked_domains) or None,
            hosted.max_uses,
            cache_control=self._cache(tool, path),
        )

    def _remote(self, tool: Tool, hosted: Hosted, path: str) -> None:
        if hosted.server_url is None:
            self._losses.refused(path, "a remote server needs its address here")
            return
        unasked(tool, path, self._losses, NAME)
        name = hosted.server_label or tool.name
        server = schema.Server("url", name, hosted.server_url, hosted.authorization)
        toolset = schema.Toolset("mcp_toolset", name, cache_control=self._cache(tool, path))
        if hosted.allowed_tools:
            toolset.default_config = schema.ToolConfig(enabled=False)
            toolset.configs = {one: schema.ToolConfig(enabled=True) for one in hosted.allowed_tools}
        self.servers.append(Raw(_json(server)))
        self.declared.append(Raw(_json(toolset)))

    def _lost(self, path: str, **said: object) -> None:
        for key, value in said.items():
            if value is not None:
                self._losses.warned(f"{path}.hosted.{key}", "cannot be told here; left out")

    def _refused(self, path: str, **said: bool) -> None:
        for key, asked_for in said.items():
            if asked_for:
                detail = f"{key} is not available on the target; remove it"
                self._losses.refused(f"{path}.hosted.{key}", detail)


_HOSTED: dict[str, Callable[[Tools, Tool, Hosted, str], None]] = {
    "web-search": Tools._search,
    "web-fetch": Tools._fetch,
    "code-execution": Tools._code,
    "mcp": Tools._remote,
}
