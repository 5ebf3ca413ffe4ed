"""What of a request is sent as it came.

- A request of this dialect is sent as it came: fields and items that nobody changed keep their
  source bytes, and those that are rendered again keep the unknown fields they had.
- A request without a dialect was built in code for this API: its ids are the upstream's.
- Of a request of another dialect, ids are left out and names are adapted to what the API accepts.
"""

from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.options import RENDERED_FROM
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests.codec import Losses, accepted_origins
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import NameSanitizer, ToolNameMap
from weft.dialects.requests.passthrough import source_body, source_fields, source_messages
from weft.dialects.requests.turns import Turn, source_bytes
from weft.parts import Json
from weft.request import OpaqueContent, ReasoningContent, Request


class ResponsesPassthrough:
    """Decides what of one request is sent as it came."""

    def __init__(self, request: Request, context: Context, losses: Losses) -> None:
        self.same_dialect = request.dialect == NAME
        self.own_ids = self.same_dialect or request.dialect is None
        """Whether ids in the request are those of the upstream."""
        # What the API accepts in a name (FunctionToolParam in Open Responses).
        self.names = ToolNameMap(request, "a-zA-Z0-9_-", 64, losses)
        self._request = request
        self._source = source_body(request, NAME)
        self._source_items = source_messages(self._source, request) if self._source else []
        self._origins = accepted_origins(context, NAME, native=self.same_dialect)
        # A call id may have any characters, and at most 64 of them.
        self._call_ids = NameSanitizer(r"\s\S", 64)

    def source_item(self, turn: Turn) -> Raw | None:
        """Returns the bytes of an item that nobody changed."""
        # Prompt caches and signatures depend on the exact bytes of the prefix.
        return source_bytes(turn, self._source_items) if self._source else None

    def unknown_fields(self, extra: Json) -> dict[str, Raw]:
        """Returns the fields in `extra` that are sent: only this dialect knows them."""
        return fields_of(extra) if self.same_dialect else {}

    def shape(self, value: schema.ResponsesShape, extra: Json = UNSET) -> schema.Encodable:
        """Renders a shape, with the unknown fields that it came with."""
        if extra is UNSET or not self.same_dialect:
            return value
        return schema.to_raw(self.unknown_fields(extra) | fields_of(schema.to_raw(value)))

    def item_id(self, id: str | None) -> str | None:
        return id if self.own_ids else None

    def call_id(self, id: str) -> str:
        return id if self.same_dialect else self._call_ids.sanitize(id)

    def tool_name(self, name: str, namespace: str | None, path: str) -> str:
        """Returns the name at a path, as the API accepts it."""
        if self.same_dialect:
            return name
        return self.names.rename_at(path, name, None if self.own_ids else namespace)

    def accepts(self, content: OpaqueContent | ReasoningContent) -> bool:
        """Whether the upstream is the origin of this content."""
        return content.origin in self._origins

    def unchanged_fields(self, rendered: dict[str, object]) -> dict[str, object]:
        """Returns the body with the source bytes of every field whose meaning did not change."""
        if self._source is None:
            return rendered
        fields = source_fields(self._source, self._request, rendered, RENDERED_FROM)
        source_input = fields_of(self._source.body).get("input")
        # A list is compared and passed through item by item; a string, or nothing, only as a whole.
        is_text = source_input is None or not bytes(source_input).startswith(b"[")
        if not is_text or self._source.request.messages != self._request.messages:
            fields["input"] = rendered["input"]
        # The upstream would refuse values that only the gateway knows. If nothing else was
        # included, the key goes, too.
        if not schema.GATEWAY_INCLUDES.isdisjoint(self._request.include):
            fields.pop("include")
            fields |= {key: value for key, value in rendered.items() if key == "include"}
        return fields
