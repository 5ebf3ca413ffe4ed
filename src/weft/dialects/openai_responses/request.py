"""The request codec of the Responses dialect."""

from weft.dialects.openai_responses.requests.parse import parse
from weft.dialects.openai_responses.requests.render import render
from weft.dialects.requests.codec import RequestCodec

REQUEST = RequestCodec(parse, render)
