"""Requests of this dialect, both ways."""

from weft.dialects.anthropic_messages.asking.parsing import parse
from weft.dialects.anthropic_messages.asking.rendering import render
from weft.dialects.requests import RequestCodec

REQUEST = RequestCodec(parse, render)
