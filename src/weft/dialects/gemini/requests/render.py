"""Renders a canonical request as a generateContent request body.

A request that came in this dialect is sent in the bytes it came in, except for what was changed.
For other dialects: user and model alternate, all results of a step are in one content in the order
of its calls, and instructions in the middle of the conversation become text of the user.
"""

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.gemini.quirks import quirks_of
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.options import report_lost_options
from weft.dialects.gemini.requests.passthrough import GeminiPassthrough
from weft.dialects.gemini.requests.render_messages import PartRenderer
from weft.dialects.gemini.requests.render_options import render_config, unsupported_stops
from weft.dialects.gemini.requests.render_tools import GeminiToolRenderer
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.turns import (
    LocatedContent,
    Turn,
    leading_instructions,
    merge_neighbours,
    message_turns,
    paired_turns,
)
from weft.dialects.requests.two_roles import (
    after_results,
    check_last_turn,
    instructions_as_user,
    report_speaker,
)
from weft.dialects.requests.unknown_fields import report_dropped_extras
from weft.parts import Json
from weft.request import Request, TextContent

_ROLES = {"user": "user", "assistant": "model"}
_URL_FIELDS = frozenset({"model", "stream"})
"""What the URL says, not the body."""

_json = msgspec.json.Encoder().encode


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body. What it does not carry as requested is in `losses`."""
    passthrough = GeminiPassthrough(request, context, losses)
    names = ToolNameMap(request, "a-zA-Z0-9_.:-", 128, losses, first="a-zA-Z_")
    tools = GeminiToolRenderer(request, context, losses, names, passthrough)
    body = schema.GenerateContentRequest([], tools=tools.entries or None)
    if (choice := tools.choice()) is not None:
        body.tool_config = schema.ToolConfig(Raw(_json(choice)))
    body.generation_config = render_config(
        request, quirks_of(context), losses, native=passthrough.native
    )
    parts = PartRenderer(context, losses, names, passthrough)
    body.system_instruction, contents = _render_messages(request, losses, parts, passthrough)
    if not passthrough.native:
        report_lost_options(request, losses)
    fields = passthrough.fields(body)
    fields["contents"] = Raw(large_json.write(contents))
    sent = {key: value for key, value in fields.items() if key not in _URL_FIELDS}
    cut = () if passthrough.native else unsupported_stops(request)
    return Rendered(large_json.write(sent), names.originals, tools.bridged, cut)


def _render_messages(
    request: Request, losses: Losses, parts: PartRenderer, passthrough: GeminiPassthrough
) -> tuple[Json, list[Raw]]:
    """Returns `systemInstruction` and `contents`."""
    native = passthrough.native
    turns = list(message_turns(request, losses)) if native else paired_turns(request, losses)
    first = leading_instructions(turns)
    conversation = _move_instructions(turns[first:], losses)
    if native:
        contents = []
        for turn in conversation:
            losses_before = len(losses.found)
            rendered = parts.render(turn.contents, turn.role)
            role = _ROLES[turn.role]
            contents.append(passthrough.content(turn, role, rendered, losses_before))
    else:
        contents = _render_alternating(conversation, losses, parts)
    instruction: list[Raw] = []
    for turn in turns[:first]:
        parts_before = len(instruction)
        if turn.message is not None and not native:
            report_dropped_extras(turn.message.extra, turn.path, losses, NAME)
        for located in turn.contents:
            if isinstance(located.content, TextContent) or native:
                instruction += parts.render([located], "system")
            else:
                losses.refused(located.path, f"{NAME} accepts only text as instructions")
        report_speaker(turn, losses, said=len(instruction) > parts_before)
    if not instruction:
        return UNSET, contents
    return Raw(_json(schema.RequestContent(parts=instruction))), contents


def _move_instructions(conversation: list[Turn], losses: Losses) -> list[Turn]:
    """Moves late instructions into the next user turn, behind its function responses."""
    out: list[Turn] = []
    moved: list[LocatedContent] = []
    for turn in conversation:
        if turn.role in ("system", "developer"):
            moved += instructions_as_user(turn, losses)
            continue
        if turn.role == "user" and moved:
            turn = turn._replace(contents=after_results(turn.contents, moved))
            moved = []
        out.append(turn)
    return [*out, Turn(moved[0].path, "user", moved)] if moved else out


def _render_alternating(conversation: list[Turn], losses: Losses, parts: PartRenderer) -> list[Raw]:
    """Merges consecutive turns of one role into one content."""
    for turn in conversation:
        report_speaker(turn, losses)
        if turn.message is not None:
            report_dropped_extras(turn.message.extra, turn.path, losses, NAME)
    contents: list[schema.RequestContent] = []
    rendered: list[Turn] = []
    for turn in merge_neighbours(conversation):
        role, new = _ROLES[turn.role], parts.render(turn.contents, turn.role)
        if not new:
            continue
        rendered.append(turn)
        if contents and contents[-1].role == role:
            contents[-1].parts = [*(contents[-1].parts or ()), *new]
        else:
            contents.append(schema.RequestContent(role, new))
    check_last_turn(rendered, losses)
    return [Raw(large_json.write(content)) for content in contents]
