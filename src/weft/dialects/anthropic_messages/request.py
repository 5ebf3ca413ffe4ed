"""The request codec of this dialect."""

import msgspec
from msgspec import Raw

from weft.dialects.anthropic_messages.requests.parse import parse
from weft.dialects.anthropic_messages.requests.render import render
from weft.dialects.anthropic_messages.requests.schema import MessageParam
from weft.dialects.anthropic_messages.wire import ResponseMessage
from weft.dialects.requests.codec import RequestCodec
from weft.dialects.requests.fields import fields_of


def continue_paused(request: bytes, response: bytes) -> bytes:
    """Returns the request that resumes a paused turn: the answer so far is its last message."""
    body = fields_of(Raw(request))
    messages = msgspec.json.decode(body["messages"], type=list[Raw])
    # Raw blocks: the API continues the turn only if it gets its own blocks back unchanged.
    content = msgspec.json.decode(response, type=ResponseMessage).content
    body["messages"] = Raw(msgspec.json.encode([*messages, MessageParam("assistant", content)]))
    return msgspec.json.encode(body)


REQUEST = RequestCodec(parse, render, continue_paused)
