"""Renders the tools of a Responses body, and the tool choice."""

from collections.abc import Callable, Iterable
from itertools import groupby

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.parse_tools import late_tools
from weft.dialects.openai_responses.requests.passthrough import ResponsesPassthrough
from weft.dialects.openai_responses.wire import NAME, NULL, present_or
from weft.dialects.raw_json import decode_or_default
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.openai_family import OpenAIFamilyOptions
from weft.dialects.requests.tools import parse_grammar
from weft.dialects.requests.unknown_fields import (
    ESSENTIAL_FOR_TOOLS,
    report_missing_tool,
    report_unknown,
)
from weft.request import Hosted, Request, Tool, ToolChoice

_AUTO_CONTAINER = Raw(b'{"type":"auto"}')
_NEVER = Raw(b'"never"')


class ResponsesToolRenderer:
    """Renders the tools of one request."""

    def __init__(
        self,
        request: Request,
        passthrough: ResponsesPassthrough,
        family: OpenAIFamilyOptions,
        losses: Losses,
    ) -> None:
        self._request = request
        self._family = family
        self._passthrough = passthrough
        self._losses = losses

    def tools(self) -> list[schema.Encodable]:
        messages = self._request.messages if self._passthrough.same_dialect else ()
        # Tools that an input item declares are sent in that item, where the source has them.
        late = [tool for tool, _ in late_tools(messages)]
        placed = [
            numbered for numbered in enumerate(self._request.tools) if numbered[1] not in late
        ]
        if not self._passthrough.own_ids:
            return [one for number, tool in placed for one in self._tool(tool, number)]
        declared: list[schema.Encodable] = []
        # Tools of one namespace are neighbours, as they were parsed.
        for namespace, group in groupby(placed, key=lambda numbered: numbered[1].namespace):
            members = list(group)
            rendered = [raw for number, tool in members for raw in self._tool(tool, number)]
            declared += [_namespace(namespace, members[0][1], rendered)] if namespace else rendered
        return declared

    def _tool(self, tool: Tool, number: int) -> list[schema.Encodable]:
        path = f"tools[{number}]"
        if tool.cache is not None:
            self._losses.warned(
                f"{path}.cache", f"dropped: tools have no cache breakpoint on {NAME}"
            )
        # Hosted and custom tools of this dialect go back as they came, unknown keys included.
        if isinstance(tool.raw, Raw) and tool.origin == NAME:
            return [tool.raw]
        if not self._passthrough.own_ids and tool.extra is not UNSET:
            report_unknown(tool.extra, path, self._losses, NAME, ESSENTIAL_FOR_TOOLS)
        if tool.kind == "function":
            return [self._function(tool, path)]
        if tool.kind == "custom":
            return [self._custom(tool, path)]
        return self._hosted(tool, path)

    def _function(self, tool: Tool, path: str) -> schema.Encodable:
        """Renders a function. `strict` is always written, because its default is true."""
        strict = tool.strict and self._family.strict(tool, path)
        value = schema.FunctionToolParam(
            self._name(tool, f"{path}.name"),
            tool.description,
            present_or(tool.parameters, NULL),
            strict if self._passthrough.same_dialect else bool(strict),
        )
        if tool.extra is UNSET:
            return value
        # Its description goes into the namespace again: see `_namespace`.
        extra = fields_of(tool.extra)
        extra.pop(schema.NAMESPACE_DESCRIPTION, None)
        return self._passthrough.shape(value, schema.to_raw(extra))

    def _custom(self, tool: Tool, path: str) -> Raw:
        grammar = parse_grammar(tool.raw)
        format: schema.CustomToolFormat | None = None
        if grammar is not None:
            format = schema.CustomToolFormat("grammar", grammar.definition, grammar.syntax)
        name = self._name(tool, f"{path}.name")
        return schema.to_raw(schema.CustomToolParam(name, tool.description, format))

    def _name(self, tool: Tool, path: str) -> str:
        return self._passthrough.tool_name(tool.name, tool.namespace, path)

    def _hosted(self, tool: Tool, path: str) -> list[schema.Encodable]:
        hosted = tool.hosted or Hosted()
        if tool.kind == "web-search":
            return [self._web_search(hosted, f"{path}.hosted")]
        if tool.kind == "code-execution":
            # A container is required here; `auto` leaves it to the provider.
            return [schema.to_raw(schema.CodeInterpreterToolParam(_AUTO_CONTAINER))]
        if tool.kind == "mcp" and hosted.server_label is not None:
            server = schema.McpToolParam(
                hosted.server_label,
                hosted.server_url,
                hosted.authorization,
                list(hosted.allowed_tools) or None,
                _NEVER,  # other dialects have no approvals
            )
            return [schema.to_raw(server)]
        report_missing_tool(tool, path, self._losses, NAME)
        return []

    def _web_search(self, hosted: Hosted, path: str) -> Raw:
        # A search that ignored these limits would find, or cost, something else: refused, not
        # dropped.
        for name, value in (
            ("blocked_domains", hosted.blocked_domains),
            ("max_uses", hosted.max_uses),
        ):
            if value:
                detail = f"{name} is not available on {NAME}; remove it"
                self._losses.refused(f"{path}.{name}", detail)
        domains = list(hosted.allowed_domains)
        filters = schema.WebSearchFilters(domains) if domains else None
        return schema.to_raw(
            schema.WebSearchToolParam("web_search", filters, hosted.context_size, hosted.location)
        )

    def tool_choice(self) -> str | schema.ResponsesToolChoice | None:
        choice = self._request.tool_choice
        if choice is None or not self._family.renders_tool_choice():
            return None
        hosted = choice.name is not None and choice.kind not in ("function", "custom")
        if hosted and not self._passthrough.own_ids:
            detail = f"forcing {choice.kind} is not available on {NAME}; name a function"
            self._losses.refused("tool_choice", detail)
            return None
        return render_tool_choice(choice, self._request.tools, self._name)


def render_tool_choice(
    choice: ToolChoice, tools: Iterable[Tool], rename: Callable[[Tool, str], str]
) -> str | schema.ResponsesToolChoice:
    """Renders a choice, also for the echo in a response. `rename` gets a tool, and the path where
    its name is used.
    """
    # Of tools with the same name, which namespaces allow, the first one counts.
    declared = {tool.name: tool for tool in reversed(list(tools))}

    def reference(tool: Tool, path: str) -> schema.ToolReference:
        if tool.kind in ("function", "custom"):
            return schema.ToolReference(tool.kind, rename(tool, path))
        if tool.kind == "mcp":
            return schema.ToolReference("mcp", server_label=tool.name)
        # Any other hosted tool is chosen by its type alone, the one it was declared with.
        raw = tool.raw if tool.origin == NAME else UNSET
        header = decode_or_default(raw, schema.ItemHeader)
        return schema.ToolReference(header.type or tool.name)

    if choice.allowed:
        references = [
            reference(declared.get(name) or Tool(name), f"tool_choice.allowed[{number}]")
            for number, name in enumerate(choice.allowed)
        ]
        # The mode is optional in a request and required in the echo.
        return schema.ResponsesToolChoice("allowed_tools", mode=choice.mode, tools=references)
    if choice.name is None:
        return choice.mode
    if choice.kind in ("function", "custom"):
        tool = declared.get(choice.name) or Tool(choice.name, choice.kind)
        one = reference(tool, "tool_choice.name")
        return schema.ResponsesToolChoice(one.type, one.name, one.server_label)
    label = choice.name if choice.kind == "mcp" else None
    return schema.ResponsesToolChoice(choice.kind, server_label=label)


def _namespace(name: str, first: Tool, tools: list[schema.Encodable]) -> Raw:
    raw_description = fields_of(first.extra).get(schema.NAMESPACE_DESCRIPTION)
    description = (
        msgspec.json.decode(raw_description, type=str) if raw_description is not None else ""
    )
    inner = schema.all_to_raw(tools)
    return schema.to_raw(schema.NamespaceToolParam(name, inner, description))
