"""Renders tools and tool_choice.

Of the hosted tools of other dialects, only those that this API has too are rendered, each with the
options that it knows.
"""

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.anthropic_messages.quirks import quirks_of
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.tools import (
    FREE_TEXT_SCHEMA,
    custom_tool_description,
    report_no_approval,
    schema_keywords,
)
from weft.dialects.requests.unknown_fields import (
    ESSENTIAL_FOR_TOOLS,
    encode_with_extra,
    report_missing_tool,
    report_unknown,
)
from weft.parts import Json
from weft.request import Hosted, Request, Tool, ToolChoice, ToolMode

# `input_schema` is required, also for a tool without parameters.
_EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{}}')
_SERVER_TOOL_NAMES = {kind: name for name, kind in schema.SERVER_TOOLS.items()}
_CHOICE_TYPES: dict[ToolMode, str] = {"auto": "auto", "required": "any", "none": "none"}
_json = msgspec.json.Encoder().encode


class MessagesToolRenderer:
    """Renders the tools of a request that came in another dialect."""

    def __init__(
        self, request: Request, context: Context, losses: Losses, names: ToolNameMap
    ) -> None:
        self._request = request
        self._losses = losses
        self._names = names
        self._quirks = quirks_of(context)
        self.tools: list[schema.Encodable] = []
        self.mcp_servers: list[Raw] = []
        self.bridged: frozenset[str] = frozenset()
        """The names of free-text tools that are declared as functions."""
        chosen = request.tool_choice
        for index, tool in enumerate(request.tools):
            # The API has no list of allowed tools: what is not declared cannot be called.
            if chosen is None or not chosen.allowed or tool.name in chosen.allowed:
                self.declare(tool, f"tools[{index}]")
            else:
                losses.adapted(f"tools[{index}]", "not declared: tool_choice does not allow it")

    # Tool choice

    def choice(self) -> schema.ToolChoiceParam | None:
        """The choice; the switch for parallel calls is one of its fields."""
        chosen, parallel = self._request.tool_choice, self._request.parallel_tool_calls
        # The API refuses a tool_choice without tools.
        if not self.tools:
            if chosen is not None and chosen.mode == "required":
                self._losses.warned("tool_choice", "left out: there are no tools")
            elif chosen not in (None, ToolChoice()):
                self._losses.adapted("tool_choice", "left out: there are no tools")
            if parallel is False:
                self._losses.adapted("parallel_tool_calls", "left out: there are no tools")
            return None
        if chosen is None and parallel is not False:
            return None
        # The switch lives inside tool_choice, so one is made for it: auto, which is the default.
        param = self.render_choice(chosen or ToolChoice())
        if param is not None and parallel is False:
            if param.type == "none":  # the only type without the switch
                self._losses.adapted("parallel_tool_calls", "left out: tool_choice is none")
            else:
                param.disable_parallel_tool_use = True
        return param

    def render_choice(self, chosen: ToolChoice) -> schema.ToolChoiceParam | None:
        # Server tools have fixed names, and can be forced by them.
        if chosen.kind in _SERVER_TOOL_NAMES:
            return schema.ToolChoiceParam("tool", _SERVER_TOOL_NAMES[chosen.kind])
        if chosen.name is not None:
            if chosen.kind not in ("function", "custom"):
                self._losses.refused("tool_choice", f"a {chosen.kind} tool cannot be forced")
                return None
            name = self._names.rename_chosen(chosen.name, "tool_choice.name")
            return schema.ToolChoiceParam("tool", name)
        if chosen.allowed:
            self._losses.warned("tool_choice.allowed", "only the allowed tools are declared")
        return schema.ToolChoiceParam(_CHOICE_TYPES[chosen.mode])

    # Tools

    def declare(self, tool: Tool, path: str) -> None:
        if tool.kind in _TOOLS:
            _TOOLS[tool.kind](self, tool, tool.hosted or Hosted(), path)
        else:
            report_missing_tool(tool, path, self._losses, NAME)

    def kept_extra(self, extra: Json, path: str) -> Json:
        """The unknown keys of a tool that are sent: those of this dialect."""
        report_unknown(extra, path, self._losses, NAME, ESSENTIAL_FOR_TOOLS)
        return UNSET

    def _add(self, param: msgspec.Struct, tool: Tool, path: str) -> None:
        if tool.extra is UNSET:
            self.tools.append(param)
            return
        extra = self.kept_extra(tool.extra, path)
        self.tools.append(encode_with_extra(param, extra, schema.NESTED))

    def _cache_control(self, tool: Tool, path: str) -> Json:
        if tool.cache is None:
            return UNSET
        return schema.render_cache_control(
            tool.cache, path, self._losses, ttl=self._quirks.cache_ttl
        )

    def _function(self, tool: Tool, hosted: Hosted, path: str) -> None:
        param = schema.ClientToolParam(
            self._names.rename_at(f"{path}.name", tool.name, tool.namespace),
            self.input_schema(tool.parameters, path),
            tool.description,
            tool.strict,
            self._cache_control(tool, path),
        )
        self._add(param, tool, path)

    def input_schema(self, parameters: Json, path: str) -> Raw:
        """The schema of the parameters, which must be of type object at the top."""
        keywords = schema_keywords(parameters)
        if not keywords:
            return _EMPTY_SCHEMA
        if keywords.get("type") == Raw(b'"object"') and isinstance(parameters, Raw):
            return parameters
        if "type" not in keywords and "properties" in keywords:
            self._losses.adapted(f"{path}.parameters", "type object is added, as it is required")
            return Raw(_json({"type": "object", **keywords}))
        # Wrapping it here would give the client arguments that it did not declare.
        self._losses.refused(f"{path}.parameters", "must be of type object; wrap it in one")
        return _EMPTY_SCHEMA

    def _free_text(self, tool: Tool, hosted: Hosted, path: str) -> None:
        self._losses.adapted(path, "its free text is passed as an object with the key input")
        # A stage of the decoder takes the text out of the object again.
        self.bridged |= {tool.name}
        param = schema.ClientToolParam(
            self._names.rename(tool.name, tool.namespace, path),
            FREE_TEXT_SCHEMA,
            custom_tool_description(tool, path, self._losses),
            cache_control=self._cache_control(tool, path),
        )
        self.tools.append(param)

    def _web_search(self, tool: Tool, hosted: Hosted, path: str) -> None:
        param = self._web_tool(self._quirks.web_search, "web_search", tool, hosted, path)
        param.user_location = hosted.location
        self._add(param, tool, path)

    def _web_fetch(self, tool: Tool, hosted: Hosted, path: str) -> None:
        param = self._web_tool(self._quirks.web_fetch, "web_fetch", tool, hosted, path)
        # Refused, not dropped: options of a tool decide what it may reach.
        if hosted.location is not UNSET:
            self._refuse_option(path, "location")
        self._add(param, tool, path)

    def _web_tool(
        self, tool_type: str, name: str, tool: Tool, hosted: Hosted, path: str
    ) -> schema.ServerToolParam:
        if hosted.context_size is not None:
            self._losses.dropped(f"{path}.hosted.context_size", NAME)
        return schema.ServerToolParam(
            tool_type,
            name,
            list(hosted.allowed_domains) or None,
            list(hosted.blocked_domains) or None,
            hosted.max_uses,
            cache_control=self._cache_control(tool, path),
        )

    def _code_execution(self, tool: Tool, hosted: Hosted, path: str) -> None:
        param = schema.ServerToolParam(
            self._quirks.code_execution,
            "code_execution",
            cache_control=self._cache_control(tool, path),
        )
        if hosted.max_uses is not None:
            self._refuse_option(path, "max_uses")
        self._add(param, tool, path)

    def _mcp(self, tool: Tool, hosted: Hosted, path: str) -> None:
        if hosted.server_url is None:
            self._losses.refused(path, f"{NAME} needs the URL of an MCP server")
            return
        report_no_approval(tool, path, self._losses, NAME)
        name = hosted.server_label or tool.name
        server = schema.McpServer("url", name, hosted.server_url, hosted.authorization)
        toolset = schema.McpToolset(
            "mcp_toolset", name, cache_control=self._cache_control(tool, path)
        )
        if hosted.allowed_tools:
            # An allowlist is: all off, and each of these on.
            toolset.default_config = schema.McpToolConfig(enabled=False)
            toolset.configs = {
                allowed: schema.McpToolConfig(enabled=True) for allowed in hosted.allowed_tools
            }
        self.mcp_servers.append(Raw(_json(server)))
        self.tools.append(Raw(_json(toolset)))

    def _refuse_option(self, path: str, option: str) -> None:
        detail = f"{option} is not available on {NAME}; remove it"
        self._losses.refused(f"{path}.hosted.{option}", detail)


_TOOLS: dict[str, Callable[[MessagesToolRenderer, Tool, Hosted, str], None]] = {
    "function": MessagesToolRenderer._function,
    "custom": MessagesToolRenderer._free_text,
    "web-search": MessagesToolRenderer._web_search,
    "web-fetch": MessagesToolRenderer._web_fetch,
    "code-execution": MessagesToolRenderer._code_execution,
    "mcp": MessagesToolRenderer._mcp,
}
