"""Chat Completions over HTTP."""

import msgspec
from msgspec import UNSET, UnsetType

from weft.dialects.base import HttpApi, ModelListing, RateLimitHeaders


class _ChatModel(msgspec.Struct):
    """One entry of `GET /models`."""

    id: str
    owned_by: str
    object: str = "model"
    # When a model was made, the gateway does not know; clients require the key.
    created: int = 0
    # Not in OpenAI's listing; routers have it inside of `architecture`.
    input_modalities: tuple[str, ...] | UnsetType = UNSET


def _model(name: str, reads: tuple[str, ...] | None) -> _ChatModel:
    owner = name.partition("/")[0] if "/" in name else "weft"
    return _ChatModel(name, owner, input_modalities=UNSET if reads is None else reads)


HTTP = HttpApi(
    path=lambda model, stream: "/chat/completions",
    base="path of the version",
    tails=("/chat/completions",),
    key=("authorization", "Bearer "),
    listing="/models",
    prefixes=("",),  # every path that belongs to no other dialect
    models=ModelListing(_model, lambda models, names: {"object": "list", "data": models}),
    # API reference, "Rate limits": "Rate limits in headers".
    rate_limits=RateLimitHeaders("x-ratelimit-{field}-{kind}", "seconds"),
)
