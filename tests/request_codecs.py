"""What the tests of a dialect's requests draw, and do with its codec."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from msgspec import Raw

from weft.context import Context
from weft.dialects.requests.codec import Loss, Losses, Parsed, Rendered, RequestCodec
from weft.request import Request

Object = dict[str, Any]
WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).map(lambda text: f"a{text}")


def maybe(draw: st.DrawFn, body: Object, **options: st.SearchStrategy[Any]) -> Object:
    """The body with some of the options, drawn."""
    for key, values in options.items():
        if draw(st.booleans()):
            body[key] = draw(values)
    return body


def raw(value: object) -> Raw:
    return Raw(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def plain(request: Request) -> Request:
    """The request without the body it was parsed from."""
    return Request(**{name: getattr(request, name) for name in Request.__struct_fields__})


@dataclass(frozen=True)
class CodecUnderTest:
    """A codec, and the smallest body that it accepts."""

    codec: RequestCodec
    bare: Object

    def parse(self, body: object, context: Context | None = None) -> Parsed:
        return self.codec.parse(bytes(raw(body)), context or Context())

    def read(self, context: Context | None = None, **fields: object) -> Request:
        """The smallest request with these fields, without its source."""
        return plain(self.parse({**self.bare, **fields}, context).request)

    def render(
        self, request: Request, context: Context | None = None
    ) -> tuple[Rendered, list[Loss]]:
        losses = Losses()
        return self.codec.render(request, context or Context(), losses), losses.found

    def written(
        self, request: Request, context: Context | None = None
    ) -> tuple[Object, list[Loss]]:
        """The body of a request, and what got lost."""
        rendered, losses = self.render(request, context)
        body: Object = json.loads(rendered.body)
        return body, losses
