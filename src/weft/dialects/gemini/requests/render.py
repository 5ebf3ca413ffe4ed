"""Renders a canonical request as a generateContent request body.

For a request of another dialect, user and model alternate, all results of a step are in one content
in the order of its calls, and instructions in the middle of the conversation become text of the
user. A request that came in this dialect is rendered by `render_passthrough.py`.
"""

import msgspec
from msgspec import Raw

from weft import large_json
from weft.context import Context
from weft.dialects.gemini.quirks import quirks_of
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.options import report_lost_options
from weft.dialects.gemini.requests.render_messages import ROLES, PartRenderer, move_instructions
from weft.dialects.gemini.requests.render_options import render_config, unsupported_stops
from weft.dialects.gemini.requests.render_passthrough import render_native
from weft.dialects.gemini.requests.render_tools import GeminiToolRenderer, tool_names
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.turns import Turn, leading_instructions, merge_neighbours, paired_turns
from weft.dialects.requests.two_roles import check_last_turn, report_speaker
from weft.dialects.requests.unknown_fields import report_dropped_extras, report_unknown
from weft.request import Request, TextContent

_json = msgspec.json.Encoder().encode


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body. What it does not carry as requested is in `losses`."""
    if request.dialect == NAME:
        return render_native(request, context, losses)
    names = tool_names(request, losses)
    tools = GeminiToolRenderer(request, context, losses, names)
    body = schema.GenerateContentRequest([], tools=tools.entries or None)
    if (choice := tools.choice()) is not None:
        body.tool_config = schema.ToolConfig(Raw(_json(choice)))
    body.generation_config = render_config(request, quirks_of(context), losses)
    parts = PartRenderer(context, losses, names)
    turns = paired_turns(request, losses)
    # Only what leads the conversation is an instruction for all of it. A later one must not move to
    # the top: it would hold for turns that came before it.
    first = leading_instructions(turns)
    body.contents = _render_alternating(move_instructions(turns[first:], losses), losses, parts)
    instruction = _render_instruction(turns[:first], losses, parts)
    if instruction:
        body.system_instruction = Raw(_json(schema.RequestContent(parts=instruction)))
    report_lost_options(request, losses)
    report_unknown(request.extra, "", losses, NAME)
    return Rendered(
        large_json.write(body), names.originals, tools.bridged, unsupported_stops(request)
    )


def _render_alternating(conversation: list[Turn], losses: Losses, parts: PartRenderer) -> list[Raw]:
    """Merges consecutive turns of one role into one content."""
    for turn in conversation:
        report_speaker(turn, losses)
        if turn.message is not None:
            report_dropped_extras(turn.message.extra, turn.path, losses, NAME)
    contents: list[schema.RequestContent] = []
    rendered: list[Turn] = []
    for turn in merge_neighbours(conversation):
        role, new = ROLES[turn.role], parts.render(turn.contents, turn.role)
        if not new:
            continue
        rendered.append(turn)
        if contents and contents[-1].role == role:
            # A turn that was left out may bring two of one role together.
            contents[-1].parts = [*(contents[-1].parts or ()), *new]
        else:
            contents.append(schema.RequestContent(role, new))
    check_last_turn(rendered, losses)
    return [Raw(large_json.write(content)) for content in contents]


def _render_instruction(turns: list[Turn], losses: Losses, parts: PartRenderer) -> list[Raw]:
    rendered: list[Raw] = []
    for turn in turns:
        parts_before = len(rendered)
        if turn.message is not None:
            report_dropped_extras(turn.message.extra, turn.path, losses, NAME)
        for located in turn.contents:
            if isinstance(located.content, TextContent):
                # One part for each text: joined, the boundaries between messages would be lost.
                rendered += parts.render([located], "system")
            else:
                losses.refused(located.path, f"{NAME} accepts only text as instructions")
        report_speaker(turn, losses, sent=len(rendered) > parts_before)
    return rendered
