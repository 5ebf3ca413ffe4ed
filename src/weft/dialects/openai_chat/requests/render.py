"""Renders a canonical request as a Chat Completions body."""

from msgspec import Raw

from weft import large_json
from weft.context import Context
from weft.dialects.openai_chat.quirks import quirks_of
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.passthrough import ChatPassthrough
from weft.dialects.openai_chat.requests.render_messages import render_messages
from weft.dialects.openai_chat.requests.render_options import ChatOptionRenderer, rejected_stops
from weft.dialects.openai_chat.requests.render_tools import ChatToolRenderer
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.openai_family import OpenAIFamilyOptions
from weft.dialects.requests.unknown_fields import report_superseded
from weft.request import Request

_NULL = Raw(b"null")


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body. A body of this dialect keeps its own bytes, where the request was not
    changed and nothing got lost.
    """
    # Characters and length that the API takes (API reference, `tools`, `function.name`).
    names = ToolNameMap(request, "a-zA-Z0-9_-", 64, losses)
    quirks = quirks_of(context)
    passthrough = ChatPassthrough(request, context)
    family = OpenAIFamilyOptions(request, NAME, schema.SIBLING, losses)
    messages = render_messages(request, quirks, passthrough, family, names, losses)
    # Losses of messages do not count below: messages go out as they came one by one.
    before = len(losses.found)
    options = ChatOptionRenderer(request, quirks, passthrough, family, losses)
    tools = ChatToolRenderer(request, quirks, passthrough, family, names, losses)
    # Values are encoded all at once, at the end.
    fields = options.fields(tools)
    unknown_fields = options.unknown_fields()
    for key, value in unknown_fields.items():
        if key == "stream_options" and key in fields:
            fields[key] = schema.to_raw(fields_of(value) | _stream_options(fields))
        else:
            fields.setdefault(key, value)
    # Anything lost is in some key: its own bytes would bring it back.
    if len(losses.found) == before:
        fields = passthrough.fields(fields)
    # Hosts that know only the deprecated key are sent the limit that counts under it.
    superseded = unknown_fields.get("max_tokens")
    if superseded is not None:
        limit = fields.get("max_tokens")
        if limit is None or schema.to_raw(limit) != superseded:
            report_superseded("max_tokens", "max_tokens", losses)
    fields["messages"] = messages
    if request.stream:
        # Weft needs the usage for its records; the client gets it only if it asked for it.
        fields["stream_options"] = {"include_usage": True, **_stream_options(fields)}
    body = large_json.write(fields)
    return Rendered(body, names.originals, tools.bridged, rejected_stops(request))


def _stream_options(fields: dict[str, object]) -> dict[str, Raw]:
    """Returns the options of the stream, as the client sent them or as they are rendered."""
    sent = fields.get("stream_options", _NULL)
    return {} if sent == _NULL else fields_of(schema.to_raw(sent))
