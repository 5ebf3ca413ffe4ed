"""Chat Completions over HTTP."""

import msgspec

from weft.dialects.base import HttpApi, ModelListing


class _ChatModel(msgspec.Struct):
    """One entry of `GET /models`."""

    id: str
    owned_by: str
    object: str = "model"
    # When a model was made, the gateway does not know; clients require the key.
    created: int = 0


def _model(name: str) -> _ChatModel:
    return _ChatModel(name, name.partition("/")[0] if "/" in name else "weft")


HTTP = HttpApi(
    path=lambda model, stream: "/chat/completions",
    base="path of the version",
    tails=("/chat/completions",),
    key=("authorization", "Bearer "),
    prefixes=("",),  # every path that belongs to no other dialect
    models=ModelListing(_model, lambda models, names: {"object": "list", "data": models}),
)
