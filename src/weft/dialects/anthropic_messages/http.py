"""The Messages API over HTTP: paths, headers and the model listing."""

import msgspec

from weft.dialects.base import HttpApi, ModelListing, RateLimitHeaders

VERSION = "anthropic-version"


class _MessagesModel(msgspec.Struct):
    id: str
    display_name: str
    type: str = "model"
    # API reference, "List models": the epoch stands for an unknown release date.
    created_at: str = "1970-01-01T00:00:00Z"


def _page(models: list[object], names: list[str]) -> object:
    # The listing is paged by ids; the gateway always answers with one page.
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": models, "has_more": False, "first_id": first, "last_id": last}


HTTP = HttpApi(
    path=lambda model, stream: "/v1/messages",
    base="before /v1",
    tails=("/v1", "/v1/messages"),
    key=("x-api-key", ""),
    listing="/v1/models?limit=1000",
    prefixes=("/v1/messages",),
    # API reference, "Versions": the header is required. Newer SDKs send a later version; this one
    # is known to compatible servers as well.
    headers=((VERSION, "2023-06-01"),),
    version=VERSION,
    betas="anthropic-beta",
    # Both vendors list their models under this path: the header tells whose client it is.
    known_by=("/v1/models", VERSION),
    models=ModelListing(lambda name, reads: _MessagesModel(name, name), _page),
    # API reference, "Rate limits": "Response headers".
    rate_limits=RateLimitHeaders("anthropic-ratelimit-{kind}-{field}", "time"),
)
