"""Renders a canonical request as a Chat Completions body."""

from msgspec import Raw

from weft import large_json
from weft.context import Context
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.passthrough import ChatPassthrough
from weft.dialects.openai_chat.requests.render_messages import render_messages
from weft.dialects.openai_chat.requests.render_options import ChatOptionRenderer, rejected_stops
from weft.dialects.openai_chat.requests.render_tools import ChatToolRenderer
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.unknown_fields import report_superseded
from weft.request import Request

_NULL = Raw(b"null")


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body. A body of this dialect keeps its own bytes, where the request was not
    changed and nothing got lost.
    """
    # Characters and length that the API takes (API reference, `tools`, `function.name`).
    names = ToolNameMap(request, "a-zA-Z0-9_-", 64, losses)
    passthrough = ChatPassthrough(request, context)
    messages = render_messages(request, context, passthrough, names, losses)
    # Losses of messages do not count below: messages go out as they came one by one.
    before = len(losses.found)
    options = ChatOptionRenderer(request, context, passthrough, losses)
    tools = ChatToolRenderer(request, context, passthrough, names, losses)
    fields = fields_of(schema.to_raw(options.body(tools)))
    unknown_fields = options.unknown_fields()
    for key, value in unknown_fields.items():
        if key == "stream_options" and key in fields:
            fields[key] = schema.to_raw(fields_of(value) | fields_of(fields[key]))
        else:
            fields.setdefault(key, value)
    # Anything lost is in some key: its own bytes would bring it back.
    if len(losses.found) == before:
        fields = passthrough.fields(fields)
    # Hosts that know only the deprecated key are sent the limit that counts under it.
    superseded = unknown_fields.get("max_tokens")
    if superseded is not None and fields.get("max_tokens") != superseded:
        report_superseded("max_tokens", "max_tokens", losses)
    fields["messages"] = schema.to_raw(messages)
    if request.stream:
        # Weft needs the usage for its records; the client gets it only if it asked for it.
        sent = fields.get("stream_options", _NULL)
        stream_options = {} if sent == _NULL else fields_of(sent)
        fields["stream_options"] = schema.to_raw({"include_usage": True} | stream_options)
    body = large_json.write(fields)
    return Rendered(body, names.originals, tools.bridged, rejected_stops(request))
