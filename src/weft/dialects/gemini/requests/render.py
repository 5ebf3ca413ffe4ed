"""Renders a canonical request as a generateContent request body.

A request that came in this dialect is sent in the bytes it came in, except for what was changed.
For other dialects: user and model alternate, all results of a step are in one content in the order
of its calls, and instructions in the middle of the conversation become text of the user.
"""

from operator import attrgetter

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.gemini.quirks import quirks_of
from weft.dialects.gemini.requests import render_options, schema
from weft.dialects.gemini.requests.render_messages import PartRenderer
from weft.dialects.gemini.requests.render_tools import GeminiToolRenderer
from weft.dialects.gemini.wire import NAME
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
    merge_neighbours,
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
from weft.dialects.requests.unknown_fields import encode_with_extra, report_dropped_extras
from weft.parts import Json
from weft.request import Request, TextContent

_ROLES = {"user": "user", "assistant": "model"}
_URL_FIELDS = frozenset({"model", "stream"})
"""What the URL says, not the body."""

FIELD_SOURCES: FieldGetters = {
    "systemInstruction": lambda request: [
        message for message in request.messages if message.role == "system"
    ],
    "contents": attrgetter("messages"),
    "tools": attrgetter("tools"),
    "toolConfig": attrgetter("tool_choice", "parallel_tool_calls", "extra"),
    "generationConfig": attrgetter(
        "sampling", "choices", "max_output_tokens", "stop", "output", "reasoning", "extra"
    ),
}
"""The canonical fields that each key of a body is rendered from. A key whose fields did not change
is sent in its original bytes."""

_json = msgspec.json.Encoder().encode


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body. What it does not carry as requested is in `losses`."""
    native = request.dialect == NAME
    losses_before = len(losses.found)
    names = ToolNameMap(request, "a-zA-Z0-9_.:-", 128, losses, first="a-zA-Z_")
    parts = PartRenderer(context, losses, names, native=native)
    tools = GeminiToolRenderer(request, context, losses, names, native=native)
    body = schema.GenerateContentRequest(Raw(b"[]"))
    if tools.entries:
        body.tools = Raw(_json(tools.entries))
    if (choice := tools.choice()) is not None:
        body.tool_config = Raw(_json(schema.ToolConfig(Raw(_json(choice)))))
    config = render_options.render_config(request, quirks_of(context), losses, native=native)
    if config is not None:
        body.generation_config = Raw(_json(config))
    renderer = _ContentsRenderer(request, losses, parts, native=native)
    body.system_instruction, contents = renderer.render()
    if not native:
        render_options.report_unsupported(request, losses)
    fields = fields_of(encode_with_extra(body, request.extra if native else UNSET, schema.NESTED))
    if native and losses_only_in_turns(request, losses.found[losses_before:]):
        fields = source_fields(source_body(request, NAME), request, fields, FIELD_SOURCES)
    fields["contents"] = Raw(large_json.write(contents))
    sent = {key: value for key, value in fields.items() if key not in _URL_FIELDS}
    cut = () if native else render_options.unsupported_stops(request)
    return Rendered(large_json.write(sent), names.originals, tools.bridged, cut)


class _ContentsRenderer:
    """Renders `systemInstruction` and `contents`."""

    def __init__(
        self, request: Request, losses: Losses, parts: PartRenderer, *, native: bool
    ) -> None:
        self._request = request
        self._losses = losses
        self._parts = parts
        self._native = native
        self._sources = source_messages(source_body(request, NAME), request)

    def render(self) -> tuple[Json, list[Raw]]:
        conversation = (
            list(message_turns(self._request, self._losses))
            if self._native
            else paired_turns(self._request, self._losses)
        )
        first = leading_instructions(conversation)
        rest = self._move_to_user(conversation[first:])
        if self._native:
            contents = [self._render_native(turn) for turn in rest]
        else:
            contents = self._render_alternating(rest)
        return self._render_instruction(conversation[:first]), contents

    def _render_instruction(self, instructions: list[Turn]) -> Json:
        parts: list[Raw] = []
        for turn in instructions:
            parts_before = len(parts)
            if turn.message is not None and not self._native:
                report_dropped_extras(turn.message.extra, turn.path, self._losses, NAME)
            for placed in turn.contents:
                if isinstance(placed.content, TextContent) or self._native:
                    parts += self._parts.render([placed], "system")
                else:
                    self._losses.refused(placed.path, f"{NAME} accepts only text as instructions")
            report_speaker(turn, self._losses, said=len(parts) > parts_before)
        return Raw(_json(schema.RequestContent(parts=Raw(_json(parts))))) if parts else UNSET

    def _move_to_user(self, conversation: list[Turn]) -> list[Turn]:
        """Moves late instructions into the next user turn, behind its function responses."""
        out: list[Turn] = []
        moved: list[LocatedContent] = []
        for turn in conversation:
            if turn.role in ("system", "developer"):
                moved += instructions_as_user(turn, self._losses)
                continue
            if turn.role == "user" and moved:
                turn = turn._replace(contents=after_results(turn.contents, moved))
                moved = []
            out.append(turn)
        return [*out, Turn(moved[0].path, "user", moved)] if moved else out

    def _render_native(self, turn: Turn) -> Raw:
        """A message in the bytes it came in, if it did not change."""
        if (whole := unknown_role_message(turn)) is not None:
            return whole
        losses_before = len(self._losses.found)
        parts = self._parts.render(turn.contents, turn.role)
        source = source_bytes(turn, self._sources)
        if source is not None and len(self._losses.found) == losses_before:
            return source
        content = schema.RequestContent(_ROLES[turn.role], Raw(_json(parts)))
        return encode_with_extra(content, turn.message.extra if turn.message else UNSET)

    def _render_alternating(self, conversation: list[Turn]) -> list[Raw]:
        """Merges consecutive turns of one role into one content."""
        for turn in conversation:
            report_speaker(turn, self._losses)
            if turn.message is not None:
                report_dropped_extras(turn.message.extra, turn.path, self._losses, NAME)
        contents: list[tuple[str, list[Raw]]] = []
        rendered: list[Turn] = []
        for turn in merge_neighbours(conversation):
            role, parts = _ROLES[turn.role], self._parts.render(turn.contents, turn.role)
            if not parts:
                continue
            rendered.append(turn)
            if contents and contents[-1][0] == role:
                contents[-1][1].extend(parts)
            else:
                contents.append((role, parts))
        check_last_turn(rendered, self._losses)
        return [
            Raw(large_json.write(schema.RequestContent(role, Raw(large_json.write(parts)))))
            for role, parts in contents
        ]
