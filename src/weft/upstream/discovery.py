"""Which models an upstream offers: its own listing, asked for over HTTP."""

import asyncio
from typing import Any, NamedTuple

import msgspec

from weft.dialects import http_of
from weft.errors import UpstreamError
from weft.upstream.base import OutgoingRequest, Unreachable, Upstream, UpstreamResponse

TIMEOUT = 5.0
"""Seconds for the whole listing."""

MAX_LISTING = 8 * 1024 * 1024
"""Bytes of a listing. That of a host with hundreds of models has about one megabyte."""

MAX_MODELS = 2000
MAX_NAME = 200
MAX_MODALITIES = 10
"""Models of one upstream, characters of a name, and modalities; what is beyond is left out."""

_GENERATES = "generateContent"


class ListingFailed(UpstreamError):
    """The upstream did not list its models. `status` is that of its response, if there is one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ListedModel(NamedTuple):
    """A model that an upstream lists."""

    name: str
    input: tuple[str, ...] | None = None
    """What it reads: text, image, file, audio; None if the upstream does not say."""


class _Entry(msgspec.Struct):
    id: Any = None
    name: Any = None
    architecture: Any = None
    capabilities: Any = None
    methods: list[str] | None = msgspec.field(name="supportedGenerationMethods", default=None)


class _Listing(msgspec.Struct):
    """OpenAI's and Anthropic's listings have `data`, Gemini's has `models`."""

    data: list[_Entry] = []
    models: list[_Entry] = []


# Some compatible hosts answer with the list alone.
_decode = msgspec.json.Decoder(_Listing | list[_Entry]).decode


async def list_models(upstream: Upstream, timeout: float = TIMEOUT) -> tuple[ListedModel, ...]:
    """Returns the models that the upstream lists. Raises ListingFailed."""
    return parse_listing(upstream, *await ask_for_models(upstream, timeout))


async def ask_for_models(
    upstream: Upstream, timeout: float = TIMEOUT
) -> tuple[UpstreamResponse, bytes]:
    """Returns the response, whatever its status, and its body. Raises ListingFailed if there is
    none."""
    config = upstream.config
    path = http_of(config.dialect).listing
    request = OutgoingRequest(path, b"", {"accept": "application/json"}, method="GET")
    try:
        async with asyncio.timeout(timeout):
            response = await upstream.send(request)
            return response, await _read(response)
    except TimeoutError:
        raise ListingFailed(f'upstream "{config.name}": no response within {timeout:g} s') from None
    except Unreachable as problem:
        raise ListingFailed(str(problem)) from None


def parse_listing(
    upstream: Upstream, response: UpstreamResponse, data: bytes
) -> tuple[ListedModel, ...]:
    """Returns the models, each once. Raises ListingFailed."""
    name, status = upstream.config.name, response.status
    if status != 200:
        message = f'upstream "{name}": HTTP {status} for its list of models'
        raise ListingFailed(message, status)
    try:
        listing = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        message = f'upstream "{name}": its list of models is not in a known format'
        raise ListingFailed(message, status) from None
    entries = listing if isinstance(listing, list) else [*listing.data, *listing.models]
    found: dict[str, ListedModel] = {}
    for one in entries[:MAX_MODELS]:
        own = _name(one)
        if own is not None:
            found.setdefault(own, ListedModel(own, _modalities(one)))
    return tuple(found.values())


def _name(entry: _Entry) -> str | None:
    """The name to request the model by; None for what generates nothing, and for no name."""
    if entry.methods is not None and _GENERATES not in entry.methods:
        return None
    found = entry.id if isinstance(entry.id, str) and entry.id else entry.name
    if not isinstance(found, str):
        return None
    name = found.removeprefix("models/")
    is_name = 0 < len(name) <= MAX_NAME and name.isprintable() and " " not in name
    return name if is_name else None


def _modalities(entry: _Entry) -> tuple[str, ...] | None:
    """OpenRouter and llama-server list what a model reads; Mistral says whether it sees."""
    match entry:
        case _Entry(architecture={"input_modalities": list(listed)}):
            return tuple(one for one in listed[:MAX_MODALITIES] if isinstance(one, str))
        case _Entry(capabilities={"vision": bool(sees)}):
            return ("text", "image") if sees else ("text",)
    return None


async def _read(response: UpstreamResponse) -> bytes:
    data = bytearray()
    try:
        while piece := await response.read():
            data += piece
            if len(data) > MAX_LISTING:
                raise ListingFailed("the list of models is too large", response.status)
    except BaseException:
        response.abort()
        raise
    return bytes(data)
