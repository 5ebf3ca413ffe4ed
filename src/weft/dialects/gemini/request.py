"""The request codec of this dialect."""

from weft.dialects.gemini.requests.parse import parse
from weft.dialects.gemini.requests.render import render
from weft.dialects.requests.codec import RequestCodec

REQUEST = RequestCodec(parse, render)
