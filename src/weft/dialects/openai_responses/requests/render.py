"""Renders a Responses body: its items, its tools and its options."""

from weft import large_json
from weft.context import Context
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.passthrough import ResponsesPassthrough
from weft.dialects.openai_responses.requests.render_items import render_items
from weft.dialects.openai_responses.requests.render_options import ResponsesOptionsRenderer
from weft.dialects.openai_responses.requests.render_tools import ResponsesToolRenderer
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.unknown_fields import merge_extra
from weft.request import Request

_NESTED_FIELDS = frozenset({"text"})
"""Objects whose unknown keys are kept under a dotted path."""


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Renders the body. Fields that nobody changed keep their source bytes, unless something was
    lost.
    """
    passthrough = ResponsesPassthrough(request, context, losses)
    # Items are passed through one by one, so a loss in one of them does not change the other
    # fields.
    items = render_items(request, passthrough, losses)
    losses_before = len(losses.found)
    options = ResponsesOptionsRenderer(request, context, passthrough, losses)
    tools = ResponsesToolRenderer(request, passthrough, losses)
    # Members stay raw from here on, so that source bytes can take their places.
    fields = fields_of(schema.to_raw(options.fields(items, tools))) | options.reasoning()
    merge_extra(fields, options.extra(), _NESTED_FIELDS)
    if len(losses.found) == losses_before:
        fields = passthrough.unchanged_fields(fields)
    return Rendered(large_json.write(fields), passthrough.names.originals, stop=request.stop)
