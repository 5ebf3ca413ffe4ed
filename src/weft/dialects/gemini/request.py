"""Requests of this dialect, both ways."""

from weft.dialects.gemini.requests.parse import parse
from weft.dialects.gemini.requests.render import render
from weft.dialects.requests import RequestCodec

REQUEST = RequestCodec(parse, render)
