"""Requests to the dialect they came in are sent in their own bytes, unless they were changed.

Such a request is rendered from its canonical fields like any other. Then every key and every
message that still has its meaning, and lost nothing, is replaced by the bytes it came in. So
spellings, key order and number formats stay, which caches and signatures depend on, and a change
of the request changes only what it touches.
"""

from collections.abc import Callable, Mapping
from itertools import chain, repeat
from typing import TypeVar

import msgspec
from msgspec import Raw

from weft.dialects.requests.fields import fields_of
from weft.request import Request

T = TypeVar("T", Raw, object)

FieldGetters = Mapping[str, Callable[[Request], object]]
"""What each key of a body means in the canonical request. Any other key is in `extra`."""


class SourceBody(msgspec.Struct, frozen=True):
    """A body, the request that was parsed from it, and the bytes of each message."""

    request: Request
    body: Raw
    messages: tuple[Raw | None, ...]
    """None: this message must be rendered."""


class RequestWithSource(Request, frozen=True, omit_defaults=True):
    """A request with the body it was parsed from."""

    source: SourceBody | None = None


def with_source(request: Request, body: bytes, messages: list[Raw | None]) -> Request:
    # Compared with the request at rendering: what is still equal goes out in its own bytes.
    source = SourceBody(request, Raw(body), tuple(messages))
    values = (*msgspec.structs.astuple(request), source)
    return RequestWithSource(*values)


def source_body(request: Request, name: str) -> SourceBody | None:
    """Returns the body a request was parsed from, if it was in the dialect of this name."""
    if isinstance(request, RequestWithSource) and request.dialect == name:
        return request.source
    return None


def source_messages(source: SourceBody | None, request: Request) -> list[Raw | None]:
    """Returns the bytes that each message came in; None for one that must be rendered.

    Messages that were added before or after the client's own do not change those.
    """
    if source is None:
        return [None] * len(request.messages)
    then, now = source.request.messages, request.messages
    if then is now:  # nearly always
        return list(source.messages)
    added = len(now) - len(then)
    # Before, only if the client's own messages are all there, at the end.
    prepended = added if now[: len(then)] != then and now[added:] == then else 0
    pairs = zip(then, source.messages, strict=True)
    aligned = chain(repeat(None, prepended), pairs, repeat(None))
    return [
        pair[1] if pair is not None and pair[0] == message else None
        for message, pair in zip(now, aligned, strict=False)
    ]


def source_fields(
    source: SourceBody | None, request: Request, rendered: dict[str, T], getters: FieldGetters
) -> dict[str, T]:
    """Returns the rendered body, with the bytes of the source for keys of the same meaning."""
    if source is None:
        return rendered
    before = source.request
    # Keys that nobody here knows are in `extra`, all in one.
    is_extra_same = before.extra == request.extra

    def is_same(key: str) -> bool:
        get = getters.get(key)
        return is_extra_same if get is None else get(before) == get(request)

    fields = fields_of(source.body)
    # The client's own keys first, in its order; then those that the change added.
    found: dict[str, T] = {}
    for key, raw in fields.items():
        if is_same(key):
            found[key] = raw
        elif key in rendered:
            found[key] = rendered[key]
    return found | {
        key: value for key, value in rendered.items() if key not in fields and not is_same(key)
    }
