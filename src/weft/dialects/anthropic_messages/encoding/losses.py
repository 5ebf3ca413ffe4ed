"""Decides what of a response this API can carry, and reports what it cannot."""

from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.envelope import wrap_call_signature, wrap_origin, wrap_reasoning
from weft.dialects.raw_json import decode_or_default
from weft.dialects.requests.names import NameSanitizer
from weft.findings import Findings
from weft.partial_json import Scan
from weft.parts import (
    Json,
    Opaque,
    ReasoningEnd,
    ReasoningStart,
    Source,
    ToolCall,
    ToolParamsStart,
    ToolResult,
    Usage,
)

T = TypeVar("T", bound=msgspec.Struct)

_json = msgspec.json.Encoder().encode

FOREIGN_MCP = "mcp_call"
"""An MCP call of the Responses API, or of an agent."""

_EXECUTED_KINDS = {
    "server_tool_use": "server_tool_use",
    "mcp_tool_use": "mcp_tool_use",
    FOREIGN_MCP: "mcp_tool_use",
}
"""The kinds of calls that the host executes, and the types of their blocks."""

_EMPTY_INPUT = Raw(b"{}")


class _McpOutcome(msgspec.Struct):
    """What is read of the result of an MCP call of the Responses API."""

    output: Json = UNSET
    error: Json = UNSET


class MessagesLossReporter:
    """Builds blocks from parts. What a block cannot carry is a `not-carried` finding."""

    def __init__(self, context: Context, findings: Findings) -> None:
        self.same_dialect = False
        """Whether the response came from this dialect, so that each `extra` is ours."""
        self.source: str | None = None
        """The dialect that the response came from."""
        self.model: str | None = None
        self._findings = findings
        # The decoder names the dialect itself as the origin where the upstream has no name.
        self._origins = (NAME, context.origin or NAME)
        self._result_types: dict[str, str] = {}
        """The type of the result block of each call that the host executes."""
        self._foreign_mcp: set[str] = set()
        """The calls whose results are in the shape of the Responses API."""
        self._call_ids = NameSanitizer(wire.ID_LETTERS, wire.ID_LIMIT)
        self.signed_calls: set[str] = set()
        """The calls whose signature was written."""

    def not_carried(self, part: str, subject: str, why: str) -> None:
        self._findings.once("not-carried", f"{part} {subject}", f"{part}: {why}")

    def extra(self, extra: Json, shape: type[T]) -> T:
        return decode_or_default(extra, shape) if self.same_dialect else shape()

    def _call_id(self, id: str) -> str:
        """The id in the characters this API allows; ids of this dialect stay as they are."""
        # The upstream has to recognise its own id when it comes back.
        # capture: executed-call-with-an-odd-id
        return id if self.same_dialect else self._call_ids.sanitize(id)

    def signature(
        self, part: ReasoningEnd, start: ReasoningStart, *, has_text: bool
    ) -> tuple[str | None, str | None]:
        """The signature and the redacted data. A signature of another origin is wrapped in an
        envelope, which only Weft reads.
        """
        # `encrypted` is of the Responses API and has no field here, so it always travels wrapped.
        own = part.origin in self._origins or (part.origin is None and self.same_dialect)
        if own and part.encrypted is None:
            return part.signature, part.redacted
        signed = bool(part.signature or part.encrypted or part.redacted)
        envelope = wrap_reasoning(part, self.model, start) if signed or has_text else None
        if envelope is None and signed:
            self.not_carried("reasoning-end", part.id, "the origin of its signature is unknown")
        elif envelope is None and has_text and self.source is not None:
            # Unsigned text: its origin may want it back, and this vendor would refuse it.
            envelope = wrap_origin(self.source, self.model)
        return envelope, None

    def citation(self, part: Source) -> Raw | None:
        type = decode_or_default(part.raw, wire.OptionalType).type
        if type in wire.CITATIONS and isinstance(part.raw, Raw):
            return part.raw
        # Clients expect the fields of a citation type, such as `encrypted_index`, which sources of
        # other dialects do not have.
        if type != wire.SEARCH_HIT or not self._result_types:  # the result block has the hits
            self.not_carried(part.type, part.id, "not a citation of this dialect")
        return None

    def tool_use(self, part: ToolParamsStart | ToolCall) -> wire.ContentBlock | None:
        """The block of a call, without its input."""
        type = _EXECUTED_KINDS.get(part.kind) if part.provider_executed else "tool_use"
        is_mcp = type == "mcp_tool_use"
        if type is None:
            # Never as tool_use: the client would be asked to run what the host has run already.
            why = f"{NAME} has no {part.kind} that the host executes"
            self.not_carried("tool-call", part.id, why)
            return None
        if part.provider_executed:
            result = "mcp" if is_mcp else part.name
            if result.startswith("tool_search_tool"):  # tool_search_tool_regex, …_bm25
                result = "tool_search"
            # The API names the result block after the tool: web_search → web_search_tool_result.
            self._result_types[part.id] = f"{result}_tool_result"
            if part.kind == FOREIGN_MCP:
                self._foreign_mcp.add(part.id)
        extra = self.extra(part.extra, wire.ContentBlock)
        label = part.server_label if isinstance(part, ToolCall) else None
        return wire.ContentBlock(
            type,
            id=self._call_id(part.id),
            name=part.name,
            input=_EMPTY_INPUT,  # required, although deltas follow
            server_name=(extra.server_name or label or "") if is_mcp else None,
            caller=extra.caller,
            toolset_name=extra.toolset_name or None,
        )

    def tool_result(self, part: ToolResult) -> wire.ContentBlock | None:
        extra = self.extra(part.extra, wire.ContentBlock)
        type = extra.type or self._result_types.get(part.id)
        if not type or part.preliminary or not part.provider_executed:
            why = "it is preliminary, or its call was not written as a server tool"
            self.not_carried(part.type, part.id, why)
            return None
        return wire.ContentBlock(
            type,
            tool_use_id=self._call_id(part.id),
            content=_mcp_content(part.result) if part.id in self._foreign_mcp else part.result,
            # Results of server tools say it by the type of their content.
            is_error=part.is_error if type == "mcp_tool_result" else None,
            caller=extra.caller,
        )

    def opaque(self, part: Opaque) -> Raw | None:
        if part.origin != NAME:
            self.not_carried(part.type, part.kind, f"{part.kind!r} belongs to {part.origin}")
        elif not decode_or_default(part.raw, wire.OptionalType).type:
            self.not_carried(part.type, part.kind, "a block without a type")
        else:
            return part.raw
        return None

    def call_signature(self, part: ToolParamsStart | ToolCall) -> wire.ContentBlock | None:
        """The block before a call that carries its signature: tool_use has no field for it."""
        if part.signature is None or part.id in self.signed_calls:
            return None
        self.signed_calls.add(part.id)
        envelope = wrap_call_signature(part, self.model, self._call_id(part.id))
        if envelope is None or part.provider_executed:
            self.not_carried("tool-call", part.id, "there is no field for its signature")
            return None
        return wire.ContentBlock("redacted_thinking", data=envelope)

    def usage(self, usage: Usage | None) -> None:
        """Reports what `render_usage` cannot express."""
        if usage is None or usage.input_tokens is None or usage.output_tokens is None:
            self.not_carried("usage", "", "unknown counts are written as 0")
        elif usage.total_tokens not in (None, usage.input_tokens + usage.output_tokens):
            self.not_carried("usage", "", "there is no field for a total that is not the sum")
        if usage and (usage.reasoning_tokens or 0) > (usage.output_tokens or 0):
            why = "there is no field for thinking tokens that are not output tokens"
            self.not_carried("usage", "thoughts", why)

    def usage_after_error(self, usage: Usage | None) -> None:
        """Reports the usage of a failed response: that of `message_start` is all it has."""
        if usage is not None:
            self.not_carried("usage", "", "nothing is written after an error")
        self.usage(usage)


def _mcp_content(result: Raw) -> Raw:
    """The output of an MCP call as text, which is what the block holds here as well."""
    outcome = decode_or_default(result, _McpOutcome)
    told = [one for one in (outcome.error, outcome.output) if isinstance(one, Raw)]
    # An object without either is what the tool returned, as is any other value.
    content = next((one for one in told if bytes(one) != b"null"), result)
    return content if bytes(content).startswith(b'"') else Raw(_json(bytes(content).decode()))


def comes_with_result(part: ToolParamsStart | ToolCall) -> bool:
    """Whether a call of another dialect is written only together with its result: the API refuses
    a message in which one of them is missing. The start does not name the server, either."""
    return part.provider_executed and part.kind == FOREIGN_MCP


def why_unusable(call: ToolCall) -> str | None:
    """Why a client cannot run a call, if it cannot."""
    if call.invalid is not None:
        return f"the call of {call.name!r} is not usable: {call.invalid}"
    # `input` is an object by its schema; free text is wrapped into one.
    if call.format == "json" and not call.params.lstrip().startswith("{"):
        return f"the arguments of {call.name!r} are not an object"
    return None


def is_truncated(call: ToolCall) -> bool:
    """Whether the arguments of an unusable call are the beginning of valid ones."""
    # Any beginning of free text is the beginning of some valid text.
    if not call.name or call.invalid is None or call.format == "text":
        return bool(call.name and call.invalid)
    scan = Scan()
    scan.feed(call.params)
    return scan.viable and call.params.lstrip()[:1] in ("", "{")
