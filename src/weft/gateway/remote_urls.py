"""URLs in requests: images, files and MCP servers that an upstream is asked to fetch.

Weft never fetches them itself. They are passed on, or refused if the settings say so: an upstream
in the same network could reach what its clients cannot.
"""

from collections.abc import Iterator

import msgspec

from weft.errors import BadRequest

_FIELDS = frozenset(("url", "image_url", "file_url", "server_url", "fileUri", "file_uri"))
"""Fields of all dialects that name something to fetch."""

_DATA = frozenset(
    ("input_schema", "parameters", "parametersJsonSchema", "schema", "response_schema", "args",
     "arguments", "metadata", "response")
)  # fmt: skip
"""Fields with values of the client's own: names in them mean nothing to an upstream."""

_decode = msgspec.json.Decoder().decode


def refuse_urls(body: bytes) -> None:
    """Raises BadRequest if a request names something to fetch."""
    for path, url in _urls(_decode(body), ""):
        # The rest of it may be secret.
        scheme = url.partition(":")[0][:20]
        raise BadRequest(path, f"{scheme} URLs are refused by this server; send the data itself")


def _urls(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _urls(one, f"{path}[{number}]")
    elif isinstance(value, dict):
        for name, one in value.items():
            at = f"{path}.{name}" if path else str(name)
            if name in _FIELDS and isinstance(one, str):
                if one and one[:5].lower() != "data:":
                    yield at, one
            # `input` is the arguments of a call in Messages, and the conversation in Responses.
            elif name not in _DATA and not (name == "input" and isinstance(one, dict)):
                yield from _urls(one, at)
