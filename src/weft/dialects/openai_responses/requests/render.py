"""Renders a Responses body: its items, its tools and its options."""

from weft import large_json
from weft.context import Context
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.passthrough import ResponsesPassthrough
from weft.dialects.openai_responses.requests.render_items import render_items
from weft.dialects.openai_responses.requests.render_options import ResponsesOptionsRenderer
from weft.dialects.openai_responses.requests.render_tools import ResponsesToolRenderer
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.openai_family import OpenAIFamilyOptions
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
    family = OpenAIFamilyOptions(request, NAME, schema.SIBLING_DIALECT, losses)
    items = render_items(request, passthrough, family, losses)
    losses_before = len(losses.found)
    options = ResponsesOptionsRenderer(request, context, passthrough, family, losses)
    tools = ResponsesToolRenderer(request, passthrough, family, losses)
    # Values are encoded all at once, at the end.
    fields = options.fields(tools)
    if request.reasoning is not None:
        fields |= options.reasoning(request.reasoning)
    extra = options.extra()
    if extra:
        raw_fields = {key: schema.to_raw(value) for key, value in fields.items()}
        merge_extra(raw_fields, extra, _NESTED_FIELDS)
        fields |= raw_fields
    fields["input"] = items
    if len(losses.found) == losses_before:
        fields = passthrough.unchanged_fields(fields)
    return Rendered(large_json.write(fields), passthrough.names.originals, stop=request.stop)
