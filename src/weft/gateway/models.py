"""`GET /v1/models`: what can be asked, in the shape that the client's headers ask for."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from weft.dialects.faults import fault
from weft.gateway import answers
from weft.gateway.endpoints import Receive, Scope, Send, headers_of
from weft.relay.incoming import Failed
from weft.relay.routing import Routing, UnknownModel


class _OpenAi(msgspec.Struct):
    id: str
    owned_by: str
    object: str = "model"
    created: int = 0


class _Anthropic(msgspec.Struct):
    id: str
    display_name: str
    type: str = "model"
    created_at: str = "1970-01-01T00:00:00Z"


class _Gemini(msgspec.Struct, rename="camel"):
    name: str
    display_name: str
    supported_generation_methods: tuple[str, ...] = ("generateContent", "streamGenerateContent")


def shape_of(path: str, headers: dict[bytes, bytes]) -> str:
    """The dialect of a client that asks for models: the path is the same for two of them."""
    if path.startswith("/v1beta"):
        return "gemini"
    return "anthropic-messages" if b"anthropic-version" in headers else "openai-chat"


class Models:
    """Lists the models, or tells of one."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = shape_of(scope["path"], headers_of(scope))
        about = answers.about(scope["weft.id"])
        name = scope["path_params"].get("id")
        try:
            found = self._list(dialect) if name is None else self._one(dialect, name)
        except UnknownModel as problem:
            failed = Failed(fault("not-found", str(problem)))
            await answers.failure(send, dialect, failed, about)
            return
        await answers.body(send, 200, msgspec.json.encode(found), [answers.JSON, *about])

    def _one(self, dialect: str, name: str) -> object:
        self._routing.targets(name)
        return _SHAPES[dialect].one(name)

    def _list(self, dialect: str) -> object:
        shape, names = _SHAPES[dialect], self._routing.models
        return shape.all([shape.one(name) for name in names], names)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a dialect writes one model, and all of them."""

    one: Callable[[str], object]
    all: Callable[[list[object], list[str]], object]


def _openai(name: str) -> _OpenAi:
    return _OpenAi(name, name.partition("/")[0] if "/" in name else "weft")


def _page(models: list[object], names: list[str]) -> object:
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": models, "has_more": False, "first_id": first, "last_id": last}


_SHAPES: dict[str, _Shape] = {
    "openai-chat": _Shape(_openai, lambda models, _: {"object": "list", "data": models}),
    "anthropic-messages": _Shape(lambda name: _Anthropic(name, name), _page),
    "gemini": _Shape(
        lambda name: _Gemini(f"models/{name}", name), lambda models, _: {"models": models}
    ),
}
