"""Renders a canonical request as a Messages request body.

A request that came in this dialect goes through `render_passthrough`. In all others `max_tokens`,
which is required, is set, and what this API has no field for is reported.
"""

from msgspec import UNSET

from weft import large_json
from weft.context import Context
from weft.dialects.anthropic_messages.quirks import quirks_of
from weft.dialects.anthropic_messages.requests import render_options, render_passthrough, schema
from weft.dialects.anthropic_messages.requests.options import report_lost_options
from weft.dialects.anthropic_messages.requests.render_blocks import BlockRenderer
from weft.dialects.anthropic_messages.requests.render_messages import (
    MessagesRenderer,
    without_unsigned_thinking,
)
from weft.dialects.anthropic_messages.requests.render_options import encode
from weft.dialects.anthropic_messages.requests.render_tools import MessagesToolRenderer
from weft.dialects.anthropic_messages.wire import ID_LETTERS, NAME
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.fields import set_fields
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.turns import paired_turns
from weft.dialects.requests.unknown_fields import report_unknown
from weft.request import Request


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body. What it does not carry as requested is in `losses`."""
    quirks = render_options.quirks_for_model(quirks_of(context), request.model)
    if request.dialect == NAME:
        return render_passthrough.render(request, context, quirks, losses)
    names = ToolNameMap(request, ID_LETTERS, quirks.name_limit, losses)
    blocks = BlockRenderer(context, losses, names)
    tools = MessagesToolRenderer(request, context, losses, names)
    # API reference: each tool_use is answered by a tool_result in the very next message.
    turns = paired_turns(request, losses)
    system, messages = MessagesRenderer(turns, quirks, losses, blocks).render()
    choice = tools.choice()
    plan = render_options.token_plan(request, quirks, losses)
    # Vendor documentation: thinking with a budget supports only tool_choice auto and none.
    if plan.has_budget and choice is not None and choice.type in ("any", "tool"):
        losses.refused("tool_choice", "a tool cannot be forced while thinking is enabled")
    report_lost_options(request, losses)
    if request.metadata:
        losses.adapted("metadata", "stored by Weft, not sent")
    # Vendor documentation: a stop sequence must not be only whitespace.
    blank_stops = tuple(stop for stop in request.stop if not stop.strip())
    if blank_stops:
        losses.adapted("stop", "Weft itself cuts the answer at sequences of whitespace")
    if request.extra is not UNSET:
        report_unknown(request.extra, "", losses, NAME)
    # After the messages are rendered: only then it is known which thinking blocks were dropped.
    plan = without_unsigned_thinking(plan, messages, losses)
    thinking = plan.thinking is not None and plan.thinking.type != "disabled"
    output_config = render_options.output_config(request.output, plan.effort, losses)
    render_options.report_output_options(request.output, losses)
    sampling = render_options.render_sampling(request.sampling, quirks, losses, thinking=thinking)
    body = schema.MessagesRequest(
        model=request.model,
        max_tokens=plan.max_tokens,
        messages=[],
        tool_choice=encode(choice),
        mcp_servers=tools.mcp_servers or None,
        thinking=encode(plan.thinking),
        output_config=encode(output_config),
        stop_sequences=[stop for stop in request.stop if stop not in blank_stops] or None,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        metadata=encode(render_options.render_metadata(request, losses)),
        service_tier=render_options.render_service_tier(request.service_tier, losses),
        cache_control=schema.render_cache_control(request.cache, "", losses, ttl=quirks.cache_ttl),
        stream=request.stream or None,
    )
    # Messages, blocks and tools are encoded with all the rest, at once.
    fields: dict[str, object] = {"model": "", "max_tokens": 0, "messages": []}  # in this order
    if system is not None:
        fields["system"] = system
    if tools.tools:
        fields["tools"] = tools.tools
    fields |= set_fields(body)
    fields["messages"] = [message.sent for message in messages]
    return Rendered(large_json.write(fields), names.originals, tools.bridged, blank_stops)
