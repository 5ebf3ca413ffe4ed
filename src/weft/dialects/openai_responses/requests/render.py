"""Renders a Responses body: its items, its tools and its options."""

from operator import attrgetter

import msgspec
from msgspec import Raw

from weft.context import Context
from weft.dialects.asking.bridging import Names
from weft.dialects.asking.leftovers import put
from weft.dialects.asking.verbatim import Meaning, Said, fields_as_said, said_by
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.render_items import render_items
from weft.dialects.openai_responses.requests.render_options import (
    GATEWAY_INCLUDES,
    ResponsesOptionsRenderer,
)
from weft.dialects.openai_responses.requests.render_tools import ResponsesToolRenderer
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests import Losses, Rendered, keys_of
from weft.request import Request

_tool_fields = attrgetter("tools", "tool_choice", "parallel_tool_calls")
_choice_fields = attrgetter("tools", "tool_choice", "parallel_tool_calls", "extra")
_include_fields = attrgetter("sampling.logprobs", "include")

FIELD_SOURCES: Meaning = {
    "model": attrgetter("model"),
    "input": attrgetter("messages"),
    "instructions": attrgetter("instructions"),
    "tools": _tool_fields,
    "tool_choice": _choice_fields,
    "parallel_tool_calls": _tool_fields,
    "max_tool_calls": attrgetter("max_tool_calls"),
    "max_output_tokens": attrgetter("max_output_tokens"),
    "temperature": attrgetter("sampling.temperature"),
    "top_p": attrgetter("sampling.top_p"),
    "presence_penalty": attrgetter("sampling.presence_penalty"),
    "frequency_penalty": attrgetter("sampling.frequency_penalty"),
    "top_logprobs": _include_fields,
    "text": attrgetter("output", "verbosity", "extra"),
    "reasoning": attrgetter("reasoning"),
    "include": _include_fields,
    "stream": attrgetter("stream"),
    "store": attrgetter("store"),
    "background": attrgetter("background"),
    "previous_response_id": attrgetter("previous_response_id"),
    "truncation": attrgetter("truncation"),
    "service_tier": attrgetter("service_tier"),
    "metadata": attrgetter("metadata"),
    "user": attrgetter("user"),
    "safety_identifier": attrgetter("safety_identifier"),
    "prompt_cache_key": attrgetter("prompt_cache_key"),
    "prompt_cache_retention": attrgetter("cache", "extra"),
}

_NESTED_FIELDS = frozenset({"text"})
"""Objects whose unknown keys are kept under a dotted path."""


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Renders the body. Fields that nobody changed keep their source bytes, unless something was
    lost.
    """
    names = Names(request, "a-zA-Z0-9_-", 64, losses)
    rendered_items = render_items(request, context, names, losses)
    losses_before = len(losses.found)
    options = ResponsesOptionsRenderer(request, context, losses)
    fields = keys_of(
        schema.to_raw(options.fields(rendered_items, ResponsesToolRenderer(request, names, losses)))
    )
    fields |= options.reasoning()
    put(fields, options.extra(), _NESTED_FIELDS)
    if len(losses.found) == losses_before:
        fields = _with_unchanged_fields(request, fields)
    return Rendered(msgspec.json.encode(fields), names.restored, stop=request.stop)


def _with_unchanged_fields(request: Request, rendered: dict[str, Raw]) -> dict[str, Raw]:
    """Returns the body with the source bytes of every field whose meaning did not change."""
    source = said_by(request, NAME)
    if source is None:
        return rendered
    fields = fields_as_said(source, request, rendered, FIELD_SOURCES)
    if not _is_short_input(source, request):
        fields["input"] = rendered["input"]
    if not GATEWAY_INCLUDES.isdisjoint(request.include):
        fields.pop("include")
        fields |= {key: value for key, value in rendered.items() if key == "include"}
    return fields


def _is_short_input(source: Said, request: Request) -> bool:
    """Whether `input` was a string, or absent, and the messages are unchanged."""
    source_input = keys_of(source.body).get("input")
    is_short = source_input is None or not bytes(source_input).startswith(b"[")
    return is_short and source.request.messages == request.messages
