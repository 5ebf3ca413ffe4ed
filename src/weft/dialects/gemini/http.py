"""The generateContent API over HTTP: paths, headers and the model listing."""

import msgspec

from weft.dialects.base import HttpApi, ModelListing


class _GeminiModel(msgspec.Struct, rename="camel"):
    name: str
    display_name: str
    supported_generation_methods: tuple[str, ...] = ("generateContent", "streamGenerateContent")


def _path(model: str, stream: bool) -> str:
    # Without `alt=sse` the same method answers with one JSON array, delivered piecemeal.
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/{model}:{verb}"


HTTP = HttpApi(
    path=_path,
    base="before /v1beta",
    tails=("/v1beta", "/v1beta/models"),
    # The API also takes it as the parameter `key` of the URL, and URLs end up in access logs.
    key=("x-goog-api-key", ""),
    listing="/v1beta/models?pageSize=1000",
    prefixes=("/v1beta",),
    models=ModelListing(
        lambda name, reads: _GeminiModel(f"models/{name}", name),
        lambda models, names: {"models": models},
    ),
)
