"""Requests of this dialect, both ways."""

import msgspec
from msgspec import Raw

from weft.dialects.anthropic_messages.requests.parse import parse
from weft.dialects.anthropic_messages.requests.render import render
from weft.dialects.requests import RequestCodec, keys_of


class _Turn(msgspec.Struct):
    content: list[Raw]
    role: str = "assistant"


def continued(asked: bytes, answered: bytes) -> bytes:
    """Returns the request that has a paused answer go on: what it said stands at the end."""
    body = keys_of(Raw(asked))
    said = msgspec.json.decode(body["messages"], type=list[Raw])
    turn = _Turn(msgspec.json.decode(answered, type=_Turn).content)
    body["messages"] = Raw(msgspec.json.encode([*said, turn]))
    return msgspec.json.encode(body)


REQUEST = RequestCodec(parse, render, continued)
