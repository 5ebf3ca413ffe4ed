"""The Messages API over HTTP: paths, headers and the model listing."""

import msgspec

from weft.dialects.base import HttpApi, ModelListing

VERSION = "anthropic-version"


class _MessagesModel(msgspec.Struct):
    id: str
    display_name: str
    type: str = "model"
    created_at: str = "1970-01-01T00:00:00Z"


def _page(models: list[object], names: list[str]) -> object:
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": models, "has_more": False, "first_id": first, "last_id": last}


HTTP = HttpApi(
    path=lambda model, stream: "/v1/messages",
    base="before /v1",
    tails=("/v1", "/v1/messages"),
    key=("x-api-key", ""),
    prefixes=("/v1/messages",),
    headers=((VERSION, "2023-06-01"),),
    version=VERSION,
    betas="anthropic-beta",
    known_by=("/v1/models", VERSION),
    models=ModelListing(lambda name: _MessagesModel(name, name), _page),
)
