"""Requests of Chat Completions, both ways."""

from weft.dialects.openai_chat.requests.parse import parse
from weft.dialects.openai_chat.requests.render import render
from weft.dialects.requests.codec import RequestCodec

REQUEST = RequestCodec(parse, render)
