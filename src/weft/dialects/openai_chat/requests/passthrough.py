"""What of a request goes out as it came, because it came in Chat Completions.

Renderers ask here instead of looking at the dialect themselves. A request is *same-dialect* if it
came as a Chat Completions body, and *native* if it did or was built without any body: all of its
values are meant for this API, so that none is translated.
"""

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.openai_chat.quirks import quirks_of
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.options import RENDERED_FROM
from weft.dialects.openai_chat.wire import NAME, ChatReasoningState
from weft.dialects.requests.codec import accepted_origins
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.passthrough import source_body, source_fields, source_messages
from weft.dialects.requests.turns import Turn, source_bytes, unknown_role_message
from weft.parts import Json
from weft.request import CallContent, OpaqueContent, ReasoningContent, Request, TextContent


class ChatPassthrough:
    """Decides for one request and one host."""

    __slots__ = (
        "_developer_role",
        "_messages",
        "_origins",
        "_request",
        "_source",
        "native",
        "same_dialect",
    )

    def __init__(self, request: Request, context: Context) -> None:
        self.same_dialect = request.dialect == NAME
        # Built in Python: its author wrote for the API that the request is sent to.
        self.native = self.same_dialect or request.dialect is None
        self._request = request
        self._developer_role = quirks_of(context).developer_role
        # Only a real body may hold signatures without an envelope: its client got them from a host.
        self._origins = accepted_origins(context, NAME, native=self.same_dialect)
        self._source = source_body(request, NAME) if self.same_dialect else None
        self._messages = source_messages(self._source, request) if self.same_dialect else []

    def is_own(self, content: CallContent | ReasoningContent) -> bool:
        """Whether a call or a reasoning came from this host: only then its signature goes back."""
        return content.origin in self._origins

    def knows(self, item: OpaqueContent) -> bool:
        """Whether an item that Weft does not know is one of this host."""
        return self.native and item.origin in self._origins

    def text_messages(self) -> list[Raw] | None:
        """Returns all messages as they came, if they hold nothing but text: what `message` returns
        for each, without its turn. None if one of them has to be looked at.
        """
        if not self.same_dialect or self._request.instructions is not None:
            return None
        sources = [one for one in self._messages if one is not None]
        if len(sources) < len(self._messages):
            return None
        for message in self._request.messages:
            if message.role == "developer" and not self._developer_role:
                return None
            for content in message.content:
                if content.__class__ is not TextContent:
                    return None
        return sources

    def message(self, turn: Turn) -> Raw | None:
        """Returns the message that a turn came as; None if it must be rendered: it was changed, the
        host does not know its role, or its reasoning came from another host.
        """
        if not self.same_dialect:
            return None
        source = source_bytes(turn, self._messages)
        # The bytes would name a role that the host rejects.
        known = turn.role != "developer" or self._developer_role
        contents = [located.content for located in turn.contents]
        reasonings = [one for one in contents if isinstance(one, ReasoningContent)]
        if source is not None and known and all(map(self.is_own, reasonings)):
            return source
        return unknown_role_message(turn)

    def fields(self, rendered: dict[str, object]) -> dict[str, object]:
        """Returns the keys of a body, those that the request did not change as they came."""
        return source_fields(self._source, self._request, rendered, RENDERED_FROM)

    def extra(self, extra: Json) -> dict[str, Raw]:
        """Returns the unknown fields that came with a value of this API."""
        return fields_of(extra) if self.native else {}

    def with_extra(self, value: schema.ChatParam, extra: Json) -> Raw:
        """Returns a shape with the unknown fields that came with it and with its inner objects."""
        if extra is UNSET or not self.same_dialect:  # nearly always
            return schema.to_raw(value)
        unknown = fields_of(extra)
        fields = fields_of(schema.to_raw(value))
        for key, more in unknown.items():
            # Unknown fields of an inner object are kept under its key: they go into that object.
            inner = key in fields
            fields[key] = schema.to_raw(fields_of(more) | fields_of(fields[key])) if inner else more
        return schema.to_raw(fields)

    def reasoning_details(self, reasoning: ReasoningContent) -> list[Raw]:
        """Returns the details as the host sent them, or one with the signature of an envelope."""
        details = self.extra(reasoning.extra).get("reasoning_details")
        if details is not None:
            return msgspec.json.decode(details, type=list[Raw])
        # A signature signs the text, so the text goes with it; encrypted data stands for itself.
        detail = ChatReasoningState("reasoning.encrypted", data=reasoning.encrypted)
        if reasoning.signature is not None:
            detail = ChatReasoningState("reasoning.text", reasoning.text)
            detail.signature = reasoning.signature
        elif reasoning.encrypted is None:
            return []
        return [schema.to_raw(detail)]
