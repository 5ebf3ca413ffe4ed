"""What a request that came in this dialect keeps: unknown fields, opaque items, its own bytes.

A request of another dialect keeps none of it, and each such field is reported as a loss.
"""

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.options import RENDERED_FROM
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import Losses, accepted_origins
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.passthrough import source_body, source_fields, source_messages
from weft.dialects.requests.turns import Turn, source_bytes, unknown_role_message
from weft.dialects.requests.two_roles import losses_only_in_turns
from weft.dialects.requests.unknown_fields import (
    ESSENTIAL_FOR_TOOLS,
    encode_with_extra,
    report_dropped_extras,
    report_unknown,
    report_unsupported_item,
)
from weft.parts import Json
from weft.request import OpaqueContent, Request, Tool


class GeminiPassthrough:
    """Asked for one request, before its losses are found."""

    def __init__(self, request: Request, context: Context, losses: Losses) -> None:
        self.native = request.dialect == NAME
        """Whether the request came in this dialect."""
        self._request = request
        self._losses = losses
        self._losses_before = len(losses.found)
        self._origins = accepted_origins(context, NAME, native=self.native)
        self._source = source_body(request, NAME)
        self._source_messages = source_messages(self._source, request)

    def accepts(self, origin: str | None) -> bool:
        """Whether signatures and items of this origin are sent."""
        return origin in self._origins

    def part(self, part: msgspec.Struct, extra: Json, path: str) -> Raw:
        """Encodes a part with its unknown fields."""
        if not self.native:
            report_dropped_extras(extra, path, self._losses, NAME)
            extra = UNSET
        return encode_with_extra(part, extra, schema.NESTED)

    def opaque(self, content: OpaqueContent, path: str, role: str) -> Raw | None:
        if self.accepts(content.origin):
            return content.raw
        ours = role == "assistant"
        report_unsupported_item(content, path, self._losses, NAME, ours=ours)
        return None

    def tool_entry(self, tool: Tool) -> Raw | None:
        """The entry that a hosted tool came as."""
        own = tool.origin == NAME and self.native
        return tool.raw if own and isinstance(tool.raw, Raw) else None

    def declaration(self, declaration: schema.FunctionDeclaration, tool: Tool, path: str) -> Raw:
        """Encodes the declaration of a function with its unknown fields."""
        if not self.native:
            report_unknown(tool.extra, path, self._losses, NAME, ESSENTIAL_FOR_TOOLS)
        return encode_with_extra(declaration, tool.extra if self.native else UNSET)

    def content(self, turn: Turn, role: str, parts: list[Raw], losses_before: int) -> Raw:
        """Encodes a message of this dialect: in the bytes it came in, if it did not change and
        lost nothing since `losses_before`.
        """
        if (message := unknown_role_message(turn)) is not None:
            return message
        source = source_bytes(turn, self._source_messages)
        if source is not None and len(self._losses.found) == losses_before:
            return source
        extra = turn.message.extra if turn.message else UNSET
        return encode_with_extra(schema.RequestContent(role, parts), extra)

    def fields(self, body: schema.GenerateContentRequest) -> dict[str, Raw]:
        """Returns the fields of the body, in the bytes they came in if they did not change."""
        if not self.native:
            report_unknown(self._request.extra, "", self._losses, NAME)
            return fields_of(encode_with_extra(body, UNSET))
        fields = fields_of(encode_with_extra(body, self._request.extra, schema.NESTED))
        if not losses_only_in_turns(self._request, self._losses.found[self._losses_before :]):
            return fields
        return source_fields(self._source, self._request, fields, RENDERED_FROM)
