"""What a client said goes out in its own bytes, as long as nobody changed it.

A request that goes to the wire it came from is written from its canonical fields like any other;
then every key and every message that still means what it meant, and lost nothing, takes the
bytes it came in. So spellings, key order and number forms stay, which caches and signatures
depend on, and an edit of the request changes just what it touches.
"""

from collections.abc import Callable, Mapping
from itertools import chain, repeat

import msgspec
from msgspec import Raw

from weft.dialects.requests.fields import fields_of
from weft.request import Message, Request

FieldGetters = Mapping[str, Callable[[Request], object]]
"""Which part of a request each key of a body says. A key that is not here is in `extra`."""


class SourceBody(msgspec.Struct, frozen=True):
    """A body, what was read from it, and the piece of it that each message is."""

    request: Request
    body: Raw
    messages: tuple[Raw | None, ...]
    """None: this message must be written anew."""


class RequestWithSource(Request, frozen=True, omit_defaults=True):
    """A request with the body it was read from."""

    source: SourceBody | None = None


def with_source(request: Request, body: bytes, messages: list[Raw | None]) -> Request:
    """Returns the request, remembering how it was said."""
    source = SourceBody(request, Raw(body), tuple(messages))
    return RequestWithSource(**msgspec.structs.asdict(request), source=source)


def source_body(request: Request, name: str) -> SourceBody | None:
    """Returns how the request was said, if it was in the dialect of this name."""
    if isinstance(request, RequestWithSource) and request.dialect == name:
        return request.source
    return None


def source_messages(said: SourceBody | None, request: Request) -> list[Raw | None]:
    """Returns, for each message, the bytes it came in; None for one that must be written.

    Messages put before the client's own, or after them, change nothing about those.
    """
    if said is None:
        return [None] * len(request.messages)
    then, now = said.request.messages, request.messages
    before = len(now) - len(then) if _only_prepended(now, then) else 0
    came = zip(then, said.messages, strict=True)
    aligned = chain(repeat(None, before), came, repeat(None))
    return [
        pair[1] if pair is not None and pair[0] == message else None
        for message, pair in zip(now, aligned, strict=False)
    ]


def _only_prepended(now: tuple[Message, ...], then: tuple[Message, ...]) -> bool:
    """Whether messages were only put before those that came."""
    return now[: len(then)] != then and now[len(now) - len(then) :] == then


def source_fields(
    said: SourceBody | None, request: Request, written: dict[str, Raw], meaning: FieldGetters
) -> dict[str, Raw]:
    """Returns the body with the keys as they were said, where they still mean the same."""
    if said is None:
        return written
    before = said.request
    extra = before.extra == request.extra

    def same(key: str) -> bool:
        means = meaning.get(key)
        return extra if means is None else means(before) == means(request)

    source = fields_of(said.body)
    kept = {key: value if same(key) else written.get(key) for key, value in source.items()}
    changed = {key: value for key, value in written.items() if key not in source and not same(key)}
    return {key: value for key, value in (kept | changed).items() if value is not None}
