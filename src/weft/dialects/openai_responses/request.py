"""Requests of the Responses wire, both ways."""

from weft.dialects.openai_responses.parsing import parse
from weft.dialects.openai_responses.rendering import render
from weft.dialects.requests import RequestCodec

REQUEST = RequestCodec(parse, render)
