"""Renders a Responses body: its items, its tools and its options."""

from msgspec import Raw

from weft import large_json
from weft.context import Context
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.options import RENDERED_FROM
from weft.dialects.openai_responses.requests.render_items import render_items
from weft.dialects.openai_responses.requests.render_options import (
    GATEWAY_INCLUDES,
    ResponsesOptionsRenderer,
)
from weft.dialects.openai_responses.requests.render_tools import ResponsesToolRenderer
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.passthrough import source_body, source_fields
from weft.dialects.requests.unknown_fields import merge_extra
from weft.request import Request

_NESTED_FIELDS = frozenset({"text"})
"""Objects whose unknown keys are kept under a dotted path."""


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Renders the body. Fields that nobody changed keep their source bytes, unless something was
    lost.
    """
    names = ToolNameMap(request, "a-zA-Z0-9_-", 64, losses)
    rendered_items = render_items(request, context, names, losses)
    losses_before = len(losses.found)
    options = ResponsesOptionsRenderer(request, context, losses)
    fields = fields_of(
        schema.to_raw(options.fields(rendered_items, ResponsesToolRenderer(request, names, losses)))
    )
    fields |= options.reasoning()
    merge_extra(fields, options.extra(), _NESTED_FIELDS)
    if len(losses.found) == losses_before:
        fields = _with_unchanged_fields(request, fields)
    return Rendered(large_json.write(fields), names.originals, stop=request.stop)


def _with_unchanged_fields(request: Request, rendered: dict[str, Raw]) -> dict[str, Raw]:
    """Returns the body with the source bytes of every field whose meaning did not change."""
    source = source_body(request, NAME)
    if source is None:
        return rendered
    fields = source_fields(source, request, rendered, RENDERED_FROM)
    source_input = fields_of(source.body).get("input")
    is_short = source_input is None or not bytes(source_input).startswith(b"[")
    if not is_short or source.request.messages != request.messages:
        fields["input"] = rendered["input"]
    if not GATEWAY_INCLUDES.isdisjoint(request.include):
        fields.pop("include")
        fields |= {key: value for key, value in rendered.items() if key == "include"}
    return fields
