"""Renders tools and functionCallingConfig for requests of other dialects.

Of the hosted tools of other dialects, only those that this API has too are rendered, each with the
options that it knows.
"""

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.gemini.quirks import quirks_of
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.schema_subset import SubsetRenderer
from weft.dialects.gemini.wire import NAME
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

_MODES: dict[ToolMode, str] = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_HOSTED_KEYS = {kind: key for key, kind in schema.HOSTED_TOOLS.items()}
_CLIENT_KINDS = ("function", "custom")
_json = msgspec.json.Encoder().encode


def tool_names(request: Request, losses: Losses) -> ToolNameMap:
    """Vendor documentation: which names functions may have."""
    return ToolNameMap(request, "a-zA-Z0-9_.:-", 128, losses, first="a-zA-Z_")


class GeminiToolRenderer:
    """Renders the tools of one request. Consecutive functions share one entry of `tools`."""

    def __init__(
        self, request: Request, context: Context, losses: Losses, names: ToolNameMap
    ) -> None:
        self._request = request
        self._losses = losses
        self._names = names
        self._quirks = quirks_of(context)
        self.entries: list[Raw] = []
        self.bridged: frozenset[str] = frozenset()
        """The names of free-text tools that are declared as functions."""
        self._functions: list[Raw] = []
        """Declarations that are not in an entry yet."""
        self._has_strict = False
        for index, tool in enumerate(request.tools):
            if tool.cache is not None:
                losses.warned(f"tools[{index}].cache", f"left out: {NAME} has no cache control")
            self._declare(tool, f"tools[{index}]")
        self._flush_functions()

    def _flush_functions(self) -> None:
        if self._functions:
            entry = schema.ToolEntry(function_declarations=self._functions)
            self.entries.append(Raw(_json(entry)))
            self._functions = []

    def _add_entry(self, entry: Raw) -> None:
        self._flush_functions()
        self.entries.append(entry)

    # Tool choice

    def choice(self) -> schema.FunctionCallingConfig | None:
        if self.entries:
            return self._render_choice(strict=self._has_strict)
        # OpenAI refuses a choice without tools, so nobody relies on it: a warning is enough.
        if self._request.tool_choice not in (None, ToolChoice()):
            self._losses.warned("tool_choice", "left out: there are no tools")
        if self._request.parallel_tool_calls is False:
            self._losses.adapted("parallel_tool_calls", "left out: there are no tools")
        return None

    def _render_choice(self, *, strict: bool) -> schema.FunctionCallingConfig | None:
        """`strict`: the schemas of all calls must be enforced."""
        chosen = self._request.tool_choice
        if self._request.parallel_tool_calls is False:
            functions = [tool for tool in self._request.tools if tool.kind in _CLIENT_KINDS]
            several = len(functions) > 1 and (chosen is None or chosen.name is None)
            if chosen is not None and chosen.mode == "required" and several:
                # The client demands exactly one call, which this API cannot promise. Where calls
                # are optional, one at a time is only a preference.
                detail = f"exactly one call cannot be required on {NAME}; allow parallel calls"
                self._losses.refused("parallel_tool_calls", detail)
            else:
                detail = "the model may make several calls at once"
                self._losses.warned("parallel_tool_calls", detail)
        if chosen is None:
            return schema.FunctionCallingConfig("VALIDATED") if strict else None
        if chosen.kind not in _CLIENT_KINDS:
            self._losses.refused("tool_choice", f"a {chosen.kind} tool cannot be forced")
            return None
        if chosen.name is not None:
            # There is no mode for one function: it is the only one allowed.
            name = self._names.rename_chosen(chosen.name, "tool_choice.name")
            return schema.FunctionCallingConfig("ANY", [name])
        mode = _MODES[chosen.mode]
        if mode == "AUTO" and (chosen.allowed or strict):
            # allowedFunctionNames is accepted with ANY and VALIDATED, not with AUTO.
            mode = "VALIDATED"
        kinds = {tool.name: tool.kind for tool in self._request.tools}
        allowed: list[str] = []
        for index, name in enumerate(chosen.allowed):
            path = f"tool_choice.allowed[{index}]"
            # allowedFunctionNames takes the names of functions only.
            if kinds.get(name, "function") in _CLIENT_KINDS:
                allowed.append(self._names.rename_chosen(name, path))
            else:
                detail = f"{kinds[name]} cannot be chosen on {NAME}; remove it"
                self._losses.refused(path, detail)
        return schema.FunctionCallingConfig(mode, allowed or None)

    # Functions

    def _declare(self, tool: Tool, path: str) -> None:
        if tool.kind == "function":
            name = self._names.rename(tool.name, tool.namespace, path)
            function = schema.FunctionDeclaration(name, tool.description)
            if tool.strict:
                self._has_strict = True
                detail = "mode VALIDATED is used, which enforces the schemas of all calls"
                self._losses.adapted(f"{path}.strict", detail)
            self._set_parameters(function, tool.parameters, path)
            self._functions.append(self._encode(function, tool, path))
        elif tool.kind == "custom":
            self._losses.adapted(path, "its free text is passed as an object with the key input")
            self.bridged |= {tool.name}
            name = self._names.rename(tool.name, tool.namespace, path)
            description = custom_tool_description(tool, path, self._losses)
            function = schema.FunctionDeclaration(name, description)
            self._set_parameters(function, FREE_TEXT_SCHEMA, path)
            self._functions.append(Raw(_json(function)))
        elif tool.kind in _HOSTED_TOOLS:
            _HOSTED_TOOLS[tool.kind](self, tool, tool.hosted or Hosted(), path)
        else:
            report_missing_tool(tool, path, self._losses, NAME)

    def _encode(self, declaration: schema.FunctionDeclaration, tool: Tool, path: str) -> Raw:
        """Encodes the declaration of a function; its unknown fields are lost."""
        report_unknown(tool.extra, path, self._losses, NAME, ESSENTIAL_FOR_TOOLS)
        return encode_with_extra(declaration, UNSET)

    def _set_parameters(
        self, declaration: schema.FunctionDeclaration, parameters: Json, path: str
    ) -> None:
        """Sets the schema; a tool without parameters has none."""
        # `{}` restricts nothing; a function without parameters has no schema in this API.
        if not isinstance(parameters, Raw) or not schema_keywords(parameters):
            return
        if self._quirks.json_schema:
            # JSON Schema as it is: one keyword that `parameters` does not have refuses the whole
            # request.
            declaration.parameters_json_schema = parameters
        else:
            renderer = SubsetRenderer(parameters, f"{path}.parameters", self._losses)
            declaration.parameters = renderer.render()

    # Hosted tools

    def _web_search(self, tool: Tool, hosted: Hosted, path: str) -> None:
        if any(other.kind in _CLIENT_KINDS for other in self._request.tools):
            # Vendor documentation: search cannot be combined with functions. A request can do
            # without it, since the model decides whether to search.
            self._losses.warned(path, f"left out: {NAME} has no search beside functions")
            return
        self._refuse_options(
            path,
            allowed_domains=bool(hosted.allowed_domains),
            max_uses=hosted.max_uses is not None,
            location=hosted.location is not UNSET,
        )
        if hosted.context_size is not None:
            self._losses.dropped(f"{path}.hosted.context_size", NAME)
        options = schema.SearchOptions(list(hosted.blocked_domains) or None)
        report_unknown(tool.extra, path, self._losses, NAME, ESSENTIAL_FOR_TOOLS)
        self._add_entry(Raw(_json({schema.SEARCH: options})))

    def _without_options(self, tool: Tool, hosted: Hosted, path: str) -> None:
        """A hosted tool that has no options here: fetch and code execution."""
        self._refuse_options(
            path,
            allowed_domains=bool(hosted.allowed_domains),
            blocked_domains=bool(hosted.blocked_domains),
            max_uses=hosted.max_uses is not None,
        )
        report_unknown(tool.extra, path, self._losses, NAME, ESSENTIAL_FOR_TOOLS)
        self._add_entry(Raw(_json({_HOSTED_KEYS[tool.kind]: {}})))

    def _mcp(self, tool: Tool, hosted: Hosted, path: str) -> None:
        if hosted.server_url is None:
            self._losses.refused(path, f"{NAME} needs the URL of an MCP server")
            return
        self._refuse_options(path, allowed_tools=bool(hosted.allowed_tools))
        report_no_approval(tool, path, self._losses, NAME)
        token = hosted.authorization
        headers = {"Authorization": f"Bearer {token}"} if token else None
        transport = schema.StreamableHttpTransport(hosted.server_url, headers)
        server = schema.McpServerEntry(hosted.server_label or tool.name, transport)
        self._add_entry(Raw(_json(schema.ToolEntry(mcp_servers=[Raw(_json(server))]))))

    def _refuse_options(self, path: str, **requested: bool) -> None:
        for option, is_set in requested.items():
            if is_set:
                detail = f"{option} is not available on {NAME}; remove it"
                self._losses.refused(f"{path}.hosted.{option}", detail)


_HOSTED_TOOLS: dict[str, Callable[[GeminiToolRenderer, Tool, Hosted, str], None]] = {
    "web-search": GeminiToolRenderer._web_search,
    "web-fetch": GeminiToolRenderer._without_options,
    "code-execution": GeminiToolRenderer._without_options,
    "mcp": GeminiToolRenderer._mcp,
}
