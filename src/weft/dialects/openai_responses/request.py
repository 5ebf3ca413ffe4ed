"""Requests of the Responses wire, both ways."""

from weft.dialects.openai_responses.asking.parsing import parse
from weft.dialects.openai_responses.asking.rendering import render
from weft.dialects.requests import RequestCodec

REQUEST = RequestCodec(parse, render)
