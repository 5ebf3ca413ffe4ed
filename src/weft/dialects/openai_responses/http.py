"""Responses over HTTP. Models are listed as in Chat Completions."""

from weft.dialects.base import HttpApi, RateLimitHeaders

HTTP = HttpApi(
    path=lambda model, stream: "/responses",
    base="path of the version",
    tails=("/responses",),
    key=("authorization", "Bearer "),
    listing="/models",
    prefixes=("/v1/responses", "/v1/conversations", "/v1/trace", "/v1/rules"),
    # API reference, "Rate limits": "Rate limits in headers".
    rate_limits=RateLimitHeaders("x-ratelimit-{field}-{kind}", "seconds"),
)
