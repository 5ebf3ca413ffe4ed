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


class _Fork(msgspec.Struct):
    conversation: str
    after_item: str | None = None


class _NewConversation(msgspec.Struct):
    items: list[Raw] | None = None
    metadata: Metadata | None = None
    fork: _Fork | None = None


class _ChangedConversation(msgspec.Struct):
    metadata: Metadata | None


class _AddedItems(msgspec.Struct):
    items: list[Raw]


_new = msgspec.json.Decoder(_NewConversation).decode
_changed = msgspec.json.Decoder(_ChangedConversation).decode
_read_metadata = msgspec.json.Decoder(Metadata).decode
_more = msgspec.json.Decoder(_AddedItems).decode


class _ConversationEndpoint(StoreEndpoint):
    DIALECT = RESPONSES

    async def _find(self, scope: Scope) -> Conversation:
        id = scope["path_params"]["id"]
        found = await self._store.conversation(scope["weft.caller"], id)
        if found is None:
            raise not_found("Conversation", id)
        return found


class ConversationsEndpoint(_ConversationEndpoint):
    """`/v1/conversations`"""

    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] == "GET":
            return await self._list(scope)
        created = decode_body(_new, await read_body(self._gateway, scope, receive))
        if created.fork is not None:
            return await self._fork(scope["weft.caller"], created.fork, created)
        items, metadata = new_items(created.items or ()), _metadata(created.metadata)
        id = fresh_context().ids.mint("conv")
        made = Conversation(id, scope["weft.caller"], time.time(), metadata)
        try:
            await self._store.create_conversation(made, items)
        except AlreadyExists as problem:
            raise BadRequest("items", str(problem)) from None
        return conversation_object(made)

    async def _list(self, scope: Scope) -> bytes:
        """The newest first; with `q`, those with this text in their metadata, where titles are."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        limit = int_param(query, "limit", PAGE_SIZE, 1, MAX_PAGE_SIZE)
        after, wanted = query.get("after", [None])[-1], query.get("q", [""])[-1].casefold()
        found: list[Conversation] = []
        more = True
        # Searched here, not in SQL: metadata is JSON that both databases store as bytes.
        while more and len(found) <= limit:
            try:
                page = await self._store.conversations(scope["weft.caller"], after, MAX_PAGE_SIZE)
            except NotFound:
                raise BadRequest("after", f"no conversation {str(after)[:100]!r}") from None
            found += [
                one
                for one in page.conversations
                if not wanted or any(wanted in v.casefold() for v in _metadata_of(one).values())
            ]
            more = page.more
            after = page.conversations[-1].id if page.conversations else after
        objects = [conversation_fields(one) for one in found[:limit]]
        return list_object(objects, [one.id for one in found[:limit]], more=len(found) > limit)

    async def _fork(self, owner: str, fork: _Fork, created: _NewConversation) -> bytes:
        """Copies the items of a conversation up to one of them."""
        if created.items:
            raise BadRequest("items", "not allowed together with fork")
        origin = await self._store.conversation(owner, fork.conversation)
        if origin is None:
            raise not_found("Conversation", fork.conversation)
        title = _metadata_of(origin).get(TITLE)
        metadata = validate_metadata(
            {
                **({} if title is None else {TITLE: title}),
                **(created.metadata or {}),
                "forked_from": origin.id,
                **({} if fork.after_item is None else {"forked_after": fork.after_item}),
            }
        )
        id = fresh_context().ids.mint("conv")
        made = Conversation(id, owner, time.time(), _json(metadata))
        try:
            await self._store.fork_conversation(made, origin.id, fork.after_item)
        except NotFound:
            message = f"no item {str(fork.after_item)[:100]!r} in {origin.id}"
            raise BadRequest("fork.after_item", message) from None
        return conversation_object(made)


TITLE = "title"
"""The metadata in which clients keep the title of a conversation."""


def _metadata_of(conversation: Conversation) -> Metadata:
    return _read_metadata(conversation.metadata)


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
    return _json(conversation_fields(conversation))


def conversation_fields(conversation: Conversation) -> dict[str, Raw]:
    return {
        "id": Raw(_json(conversation.id)),
        "object": Raw(b'"conversation"'),
        "created_at": Raw(_json(int(conversation.created))),
        "metadata": Raw(conversation.metadata),
    }


def _list_object(items: Sequence[Item], *, more: bool) -> bytes:
    return list_object([_item_object(one) for one in items], [one.id for one in items], more=more)


def _item_object(item: Item) -> dict[str, Raw]:
    """An item with all fields that clients expect, and the id it has here."""
    # The item may have no id, or one that was taken: then the store gave it another, which only the
    # row has.
    (fields,) = history.listed_items([Raw(item.data)], item.id)
    return {**fields, "id": Raw(_json(item.id))}
