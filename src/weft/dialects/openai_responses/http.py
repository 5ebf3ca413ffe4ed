"""Responses over HTTP. Models are listed as in Chat Completions."""

from weft.dialects.base import HttpApi

HTTP = HttpApi(
    path=lambda model, stream: "/responses",
    base="path of the version",
    tails=("/responses",),
    key=("authorization", "Bearer "),
    prefixes=("/v1/responses", "/v1/conversations"),
)
