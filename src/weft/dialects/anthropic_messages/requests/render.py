"""Renders a canonical request as a Messages request body.

A request that came in this dialect is sent in the bytes it came in, except for what was changed.
For other dialects: roles alternate, tool results come first in their message, system messages stay
where they are, and `max_tokens`, which is required, is always set.
"""

from operator import attrgetter

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.anthropic_messages.quirks import MessagesQuirks, quirks_of
from weft.dialects.anthropic_messages.requests import render_options, schema
from weft.dialects.anthropic_messages.requests.render_messages import BlockRenderer, single_text
from weft.dialects.anthropic_messages.requests.render_options import TokenPlan
from weft.dialects.anthropic_messages.requests.render_tools import MessagesToolRenderer
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.passthrough import (
    FieldGetters,
    source_body,
    source_fields,
    source_messages,
)
from weft.dialects.requests.turns import (
    LocatedContent,
    Turn,
    leading_instructions,
    message_turns,
    paired_turns,
    source_bytes,
    unknown_role_message,
)
from weft.dialects.requests.two_roles import (
    after_results,
    check_last_turn,
    instructions_as_user,
    losses_only_in_turns,
    report_speaker,
)
from weft.dialects.requests.unknown_fields import collect, encode_with_extra, report_dropped_extras
from weft.parts import Json
from weft.request import FileContent, ImageContent, Request, TextContent

_NATIVE_NAME_LIMIT = 128
"""The longest tool name that any host accepts: names from clients of this API are not cut."""

_FIRST_USER_MESSAGE = "(The conversation begins with the assistant.)"
_THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
_json = msgspec.json.Encoder().encode

FIELD_SOURCES: FieldGetters = {
    "model": attrgetter("model"),
    "max_tokens": attrgetter("max_output_tokens"),
    "messages": attrgetter("messages"),
    "system": lambda request: (
        request.instructions,
        request.messages[: leading_instructions(request.messages)],
    ),
    "tools": attrgetter("tools"),
    "mcp_servers": attrgetter("tools"),
    "tool_choice": attrgetter("tool_choice", "parallel_tool_calls", "extra"),
    "thinking": attrgetter("reasoning", "extra"),
    "output_config": attrgetter("output", "reasoning", "extra"),
    "stop_sequences": attrgetter("stop"),
    "temperature": attrgetter("sampling"),
    "top_p": attrgetter("sampling"),
    "top_k": attrgetter("sampling"),
    "metadata": attrgetter("user", "extra"),
    "service_tier": attrgetter("service_tier"),
    "cache_control": attrgetter("cache", "extra"),
    "stream": attrgetter("stream"),
}
"""The canonical fields that each key of a body is rendered from. A key whose fields did not change
is sent in its original bytes."""


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body. What it does not carry as requested is in `losses`."""
    native = request.dialect == NAME
    losses_before = len(losses.found)
    quirks = render_options.quirks_for_model(quirks_of(context), request.model)
    limit = max(quirks.name_limit, _NATIVE_NAME_LIMIT) if native else quirks.name_limit
    names = ToolNameMap(request, "a-zA-Z0-9_-", limit, losses)
    blocks = BlockRenderer(context, losses, names, native=native)
    tools = MessagesToolRenderer(request, context, losses, names, native=native)
    system, messages = _MessagesRenderer(request, quirks, losses, blocks, native=native).render()
    choice = tools.choice()
    if native:
        plan = render_options.native_token_plan(request, quirks)
    else:
        plan = render_options.token_plan(request, quirks, losses)
        # Vendor documentation: thinking with a budget supports only tool_choice auto and none.
        if plan.has_budget and choice is not None and choice.type in ("any", "tool"):
            losses.refused("tool_choice", "a tool cannot be forced while thinking is enabled")
        render_options.report_unsupported(request, losses)
    if not native or len(losses.found) > losses_before:
        plan = _without_unsigned_thinking(plan, messages, losses)
    body = _render_options(request, plan, quirks, losses, native=native)
    body.system = system
    body.messages = [message.raw for message in messages]
    body.tools = tools.tools or None
    body.mcp_servers = tools.mcp_servers or None
    body.tool_choice = _optional(choice)
    fields = fields_of(_with_extra(body, request) if native else Raw(large_json.write(body)))
    if native and losses_only_in_turns(request, losses.found[losses_before:]):
        rendered_messages = fields["messages"]
        fields = source_fields(source_body(request, NAME), request, fields, FIELD_SOURCES)
        fields["messages"] = rendered_messages
    cut = () if native else render_options.unsupported_stops(request)
    return Rendered(large_json.write(fields), names.originals, tools.bridged, cut)


def _optional(value: msgspec.Struct | None) -> Json:
    return UNSET if value is None else Raw(_json(value))


def _render_options(
    request: Request, plan: TokenPlan, quirks: MessagesQuirks, losses: Losses, *, native: bool
) -> schema.MessagesRequest:
    """The body without its messages and tools."""
    config = render_options.output_config(request, plan.effort, losses, native=native)
    if native:
        sampling = render_options.native_sampling(request)
        stop = list(request.stop)
    else:
        thinking = plan.thinking is not None and plan.thinking.type != "disabled"
        sampling = render_options.sampling_params(request, quirks, losses, thinking=thinking)
        unsupported = render_options.unsupported_stops(request)
        stop = [sequence for sequence in request.stop if sequence not in unsupported]
    return schema.MessagesRequest(
        request.model,
        plan.max_tokens,
        [],
        thinking=_optional(plan.thinking),
        output_config=_optional(config),
        stop_sequences=stop or None,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        metadata=_optional(render_options.metadata(request, losses, native=native)),
        service_tier=render_options.service_tier(request, losses, native=native),
        cache_control=schema.render_cache_control(request.cache, "", losses, ttl=quirks.cache_ttl),
        stream=request.stream or None,
    )


def _with_extra(body: schema.MessagesRequest, request: Request) -> Raw:
    """The body with the unknown keys it came with; those of `thinking` are kept apart."""
    options = fields_of(request.reasoning.extra) if request.reasoning else {}
    thinking = {f"thinking.{key}": value for key, value in options.items() if key != "effort"}
    return encode_with_extra(body, collect(fields_of(request.extra), thinking), schema.NESTED)


class _RenderedMessage(msgspec.Struct):
    """A message before encoding: later messages of the same role may be merged into it."""

    role: schema.MessageRole
    blocks: list[Raw]
    plain: str | None = None
    """The content as a string, if it is only one text."""
    extra: Json = UNSET
    source: Raw | None = None
    """The bytes it came in, if they are sent unchanged."""

    @property
    def raw(self) -> Raw:
        if self.source is not None:
            return self.source
        content = self.blocks if self.plain is None else self.plain
        return encode_with_extra(schema.MessageParam(self.role, content), self.extra)

    @property
    def first_block_type(self) -> str:
        if not self.blocks:
            return ""
        return msgspec.json.decode(self.blocks[0], type=schema.TypeField).type


class _MessagesRenderer:
    """Renders `system` and `messages`."""

    def __init__(
        self,
        request: Request,
        quirks: MessagesQuirks,
        losses: Losses,
        blocks: BlockRenderer,
        *,
        native: bool,
    ) -> None:
        self._request = request
        self._quirks = quirks
        self._losses = losses
        self._blocks = blocks
        self._native = native
        self._sources = source_messages(source_body(request, NAME), request)

    def render(self) -> tuple[str | list[Raw] | None, list[_RenderedMessage]]:
        conversation = (
            list(message_turns(self._request, self._losses))
            if self._native
            else paired_turns(self._request, self._losses)
        )
        first = leading_instructions(conversation)
        system = self._render_system(conversation[:first])
        return system, self._render_messages(self._move_to_user(conversation[first:]))

    def _render_system(self, instructions: list[Turn]) -> str | list[Raw] | None:
        match instructions:
            case [
                Turn(path="instructions", contents=[LocatedContent(content=TextContent(text=text))])
            ]:
                if text.strip() or self._native:
                    return text
        blocks: list[Raw] = []
        for turn in instructions:
            if turn.message is not None:
                report_dropped_extras(turn.message.extra, turn.path, self._losses, NAME)
            blocks_before = len(blocks)
            for placed in turn.contents:
                if not isinstance(placed.content, TextContent) and not self._native:
                    self._losses.refused(placed.path, f"{NAME} accepts only text as instructions")
                elif (block := self._blocks.render(placed, "system")) is not None:
                    blocks.append(block)
            report_speaker(turn, self._losses, said=len(blocks) > blocks_before)
        return blocks or None

    def _move_to_user(self, conversation: list[Turn]) -> list[Turn]:
        """Moves what only the user may send into the next user turn, behind its tool results:
        images and files of the assistant, and late instructions where the host rejects them.
        """
        out: list[Turn] = []
        moved: list[LocatedContent] = []
        for turn in conversation:
            if turn.role in ("system", "developer"):
                if not self._quirks.late_system:
                    moved += instructions_as_user(turn, self._losses)
                    continue
            elif turn.role == "assistant" and not self._native:
                files = [
                    placed
                    for placed in turn.contents
                    if isinstance(placed.content, ImageContent | FileContent)
                ]
                for placed in files:
                    detail = f"moved to the user: {NAME} has no images or files of the assistant"
                    self._losses.warned(placed.path, detail)
                rest = [placed for placed in turn.contents if placed not in files]
                turn = turn._replace(contents=rest)
                moved += files
            elif turn.role == "user" and moved:
                turn = turn._replace(contents=after_results(turn.contents, moved))
                moved = []
            out.append(turn)
        return [*out, Turn(moved[0].path, "user", moved)] if moved else out

    def _render_messages(self, conversation: list[Turn]) -> list[_RenderedMessage]:
        rendered = [(turn, self._render_message(turn)) for turn in conversation]
        if self._native:
            return [message for _, message in rendered]
        rendered = [(turn, message) for turn, message in rendered if message.blocks]
        check_last_turn([turn for turn, _ in rendered], self._losses)
        out: list[_RenderedMessage] = []
        if rendered and rendered[0][0].role != "user":
            # Vendor documentation: the first message must be of the user.
            detail = f"a short user message is put first: {NAME} requires one"
            self._losses.adapted(rendered[0][0].path, detail)
            block = Raw(_json(schema.TextBlockParam(_FIRST_USER_MESSAGE)))
            out.append(_RenderedMessage("user", [block], _FIRST_USER_MESSAGE))
        for _, message in rendered:
            if out and out[-1].role == message.role:
                out[-1].blocks += message.blocks
                out[-1].plain = None
            else:
                out.append(message)
        return out

    def _render_message(self, turn: Turn) -> _RenderedMessage:
        if self._native and (whole := unknown_role_message(turn)) is not None:
            return _RenderedMessage("user", [], source=whole)
        losses_before = len(self._losses.found)
        rendered = [self._blocks.render(placed, turn.role) for placed in turn.contents]
        blocks = [block for block in rendered if block is not None]
        report_speaker(turn, self._losses, said=bool(blocks))
        plain = single_text([placed.content for placed in turn.contents])
        extra = turn.message.extra if turn.message else UNSET
        if not self._native:
            report_dropped_extras(extra, turn.path, self._losses, NAME)
            extra = UNSET
        source = source_bytes(turn, self._sources) if self._native else None
        if len(self._losses.found) > losses_before:
            source = None
        role = "system" if turn.role == "developer" else turn.role
        return _RenderedMessage(role, blocks, plain.text if plain else None, extra, source)


def _without_unsigned_thinking(
    plan: TokenPlan, messages: list[_RenderedMessage], losses: Losses
) -> TokenPlan:
    """Vendor documentation: with a budget, an assistant message with tool calls must begin with
    its thinking block. Where that was dropped, thinking is disabled.
    """
    match messages[-2:]:
        case [calls, results] if plan.has_budget and results.first_block_type == "tool_result":
            if calls.first_block_type not in _THINKING_TYPES:
                detail = "disabled: the thinking before the tool calls is not available here"
                losses.warned("reasoning", detail)
                return plan._replace(thinking=schema.ThinkingConfigParam("disabled"))
    return plan
