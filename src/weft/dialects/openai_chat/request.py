"""Requests of Chat Completions, both ways."""

from weft.dialects.openai_chat.asking.parsing import parse
from weft.dialects.openai_chat.asking.rendering import render
from weft.dialects.requests import RequestCodec

REQUEST = RequestCodec(parse, render)
