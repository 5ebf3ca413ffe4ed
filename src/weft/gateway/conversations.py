"""Endpoints of conversations and their items: create, retrieve, update, delete. A conversation of
another key is a 404.

Items are stored as received, and returned with the id they have here. An item that no request could
contain is refused, so that every conversation can be continued.
"""

import re
import time
from collections.abc import Sequence
from urllib.parse import parse_qs

import msgspec
from msgspec import Raw

from weft.codec import fresh_context
from weft.context import Context
from weft.errors import BadRequest
from weft.gateway.apis import RESPONSES
from weft.gateway.endpoints import Receive, Scope, decode_body, read_body
from weft.gateway.store_endpoint import Metadata, StoreEndpoint, validate_metadata
from weft.gateway.stored_responses import (
    MAX_PAGE_SIZE,
    PAGE_SIZE,
    int_param,
    is_descending,
    list_object,
    not_found,
)
from weft.ids import Ids
from weft.relay import history
from weft.relay.incoming import api_of
from weft.store.base import AlreadyExists, NotFound
from weft.store.records import Conversation, Item

# As in OpenAI's API reference, "Conversations".
MAX_NEW_ITEMS = 20
"""Items that may be added by one request."""

_ID = re.compile(r"[A-Za-z0-9_.:=-]{1,256}")
"""Ids that a client may give to an item: those that can be part of a path."""

_json = msgspec.json.Encoder().encode


class _NewConversation(msgspec.Struct):
    items: list[Raw] | None = None
    metadata: Metadata | None = None


class _ChangedConversation(msgspec.Struct):
    metadata: Metadata | None


class _AddedItems(msgspec.Struct):
    items: list[Raw]


_new = msgspec.json.Decoder(_NewConversation).decode
_changed = msgspec.json.Decoder(_ChangedConversation).decode
_more = msgspec.json.Decoder(_AddedItems).decode


class _ConversationEndpoint(StoreEndpoint):
    DIALECT = RESPONSES

    async def _find(self, scope: Scope) -> Conversation:
        id = scope["path_params"]["id"]
        found = await self._store.conversation(scope["weft.caller"], id)
        if found is None:
            raise not_found("Conversation", id)
        return found


class CreateConversation(_ConversationEndpoint):
    """`/v1/conversations`"""

    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        created = decode_body(_new, await read_body(self._gateway, scope, receive))
        items, metadata = new_items(created.items or ()), _metadata(created.metadata)
        id = fresh_context().ids.mint("conv")
        made = Conversation(id, scope["weft.caller"], time.time(), metadata)
        try:
            await self._store.create_conversation(made, items)
        except AlreadyExists as problem:
            raise BadRequest("items", str(problem)) from None
        return conversation_object(made)


class ConversationEndpoint(_ConversationEndpoint):
    """`/v1/conversations/{id}`"""

    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        found = await self._find(scope)
        match scope["method"]:
            case "DELETE":
                await self._store.delete_conversation(found.owner, found.id)
                return _json({"id": found.id, "object": "conversation.deleted", "deleted": True})
            case "POST":
                body = await read_body(self._gateway, scope, receive)
                metadata = _metadata(decode_body(_changed, body).metadata)
                # Deleted since it was found: there is no transaction around the two.
                if not await self._store.set_metadata(found.owner, found.id, metadata):
                    raise not_found("Conversation", found.id)
                return conversation_object(msgspec.structs.replace(found, metadata=metadata))
            case _:
                return conversation_object(found)


class ConversationItems(_ConversationEndpoint):
    """`/v1/conversations/{id}/items`"""

    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        found = await self._find(scope)
        if scope["method"] == "POST":
            body = await read_body(self._gateway, scope, receive)
            items = new_items(decode_body(_more, body).items)
            try:
                await self._store.add_items(found.id, items)
            except NotFound:
                raise not_found("Conversation", found.id) from None
            except AlreadyExists as problem:
                raise BadRequest("items", str(problem)) from None
            return _list_object(items, more=False)
        query = parse_qs(scope["query_string"].decode("latin-1"))
        limit = int_param(query, "limit", PAGE_SIZE, 1, MAX_PAGE_SIZE)
        after = query.get("after", [None])[-1]
        descending = is_descending(query, default=True)
        try:
            page = await self._store.items(found.id, after, None, limit, descending)
        except NotFound:
            raise BadRequest("after", f"no item {str(after)[:100]!r}") from None
        return _list_object(page.items, more=page.more)


class ConversationItem(_ConversationEndpoint):
    """`/v1/conversations/{id}/items/{item_id}`"""

    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        found, id = await self._find(scope), scope["path_params"]["item_id"]
        if scope["method"] == "DELETE":
            if not await self._store.delete_item(found.id, id):
                raise not_found("Item", id)
            return conversation_object(found)
        item = await self._store.item(found.id, id)
        if item is None:
            raise not_found("Item", id)
        return _json(_item_object(item))


def new_items(items: Sequence[Raw]) -> list[Item]:
    """The items to store, each with its own id or a new one. Raises BadRequest."""
    if len(items) > MAX_NEW_ITEMS:
        raise BadRequest("items", f"{len(items)}; expected at most {MAX_NEW_ITEMS} at a time")
    try:
        # Parsed as the input of a request, for the sake of its errors: the result is not used.
        body = {"model": "any", "input": items}
        api_of(RESPONSES).request.parse(_json(body), Context())
    except BadRequest as problem:
        # The field's name in this request.
        path = re.sub("^input", "items", problem.path)
        raise BadRequest(path, problem.reason) from None
    ids = fresh_context().ids
    return [_item(one, f"items[{place}]", ids) for place, one in enumerate(items)]


def _item(raw: Raw, path: str, ids: Ids) -> Item:
    found = history.read_shape(raw)
    # It would have to be resolved whenever the conversation is read, and may be gone by then.
    if found.type == "item_reference":
        raise BadRequest(path, "an item reference; expected the item itself")
    if not found.id:
        return Item(ids.mint(history.id_prefix(found)), bytes(raw))
    if not _ID.fullmatch(found.id):
        expected = "up to 256 letters, digits and _.:=-"
        raise BadRequest(f"{path}.id", f"{found.id[:100]!r}; expected {expected}")
    return Item(found.id, bytes(raw))


def _metadata(metadata: Metadata | None) -> bytes:
    return _json(validate_metadata(metadata))


def conversation_object(conversation: Conversation) -> bytes:
    return _json(
        {
            "id": conversation.id,
            "object": "conversation",
            "created_at": int(conversation.created),
            "metadata": Raw(conversation.metadata),
        }
    )


def _list_object(items: Sequence[Item], *, more: bool) -> bytes:
    return list_object([_item_object(one) for one in items], [one.id for one in items], more=more)


def _item_object(item: Item) -> dict[str, Raw]:
    """An item with all fields that clients expect, and the id it has here."""
    # The item may have no id, or one that was taken: then the store gave it another, which only the
    # row has.
    (fields,) = history.listed_items([Raw(item.data)], item.id)
    return {**fields, "id": Raw(_json(item.id))}
