"""Requests of this dialect, both ways."""

from weft.dialects.gemini.asking.parsing import parse
from weft.dialects.gemini.asking.rendering import render
from weft.dialects.requests import RequestCodec

REQUEST = RequestCodec(parse, render)
