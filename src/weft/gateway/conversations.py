"""Conversations: made, read, changed and deleted, and the items in them. Whatever belongs to
another key is not there.

Items are kept as they came, and shown under the id they have here. What no request may hold is
refused when it comes: a conversation can always go on.
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
from weft.gateway.endpoints import Receive, Scope, body_of, read_as
from weft.gateway.paths import Metadata, Path, checked, is_descending
from weft.gateway.sessions import DIALECT
from weft.gateway.stored import MOST, PAGE, Query, listed, missing, number_in
from weft.ids import Ids
from weft.relay import history
from weft.relay.incoming import codec_of
from weft.store.base import AlreadyExists, NotFound
from weft.store.records import Conversation, Item

AT_ONCE = 20
"""Items that may be added by one request."""

_ID = re.compile(r"[A-Za-z0-9_.:=-]{1,256}")
"""An id that an item may bring along: one that can stand in a path."""

_json = msgspec.json.Encoder().encode


class _New(msgspec.Struct):
    items: list[Raw] | None = None
    metadata: Metadata | None = None


class _Changed(msgspec.Struct):
    metadata: Metadata | None


class _More(msgspec.Struct):
    items: list[Raw]


_new = msgspec.json.Decoder(_New).decode
_changed = msgspec.json.Decoder(_Changed).decode
_more = msgspec.json.Decoder(_More).decode


class _Conversational(Path):
    DIALECT = DIALECT

    async def _found(self, scope: Scope) -> Conversation:
        id = scope["path_params"]["id"]
        found = await self._store.conversation(scope["weft.caller"], id)
        if found is None:
            raise missing("Conversation", id)
        return found


class NewConversation(_Conversational):
    """`/v1/conversations`"""

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        asked = read_as(_new, await body_of(self._host, scope, receive))
        items, metadata = new_items(asked.items or ()), _metadata(asked.metadata)
        id = fresh_context().ids.mint("conv")
        made = Conversation(id, scope["weft.caller"], time.time(), metadata)
        try:
            await self._store.create_conversation(made, items)
        except AlreadyExists as problem:
            raise BadRequest("items", str(problem)) from None
        return shown(made)


class OneConversation(_Conversational):
    """`/v1/conversations/{id}`"""

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        found = await self._found(scope)
        match scope["method"]:
            case "DELETE":
                await self._store.delete_conversation(found.owner, found.id)
                gone = {"id": found.id, "object": "conversation.deleted", "deleted": True}
                return _json(gone)
            case "POST":
                return await self._change(found, await body_of(self._host, scope, receive))
            case _:
                return shown(found)

    async def _change(self, found: Conversation, body: bytes) -> bytes:
        metadata = _metadata(read_as(_changed, body).metadata)
        if not await self._store.set_metadata(found.owner, found.id, metadata):
            raise missing("Conversation", found.id)
        return shown(msgspec.structs.replace(found, metadata=metadata))


class ConversationItems(_Conversational):
    """`/v1/conversations/{id}/items`"""

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        found = await self._found(scope)
        if scope["method"] == "POST":
            return await self._add(found, await body_of(self._host, scope, receive))
        return await self._page(found, parse_qs(scope["query_string"].decode("latin-1")))

    async def _add(self, found: Conversation, body: bytes) -> bytes:
        items = new_items(read_as(_more, body).items)
        try:
            await self._store.add_items(found.id, items)
        except NotFound:
            raise missing("Conversation", found.id) from None
        except AlreadyExists as problem:
            raise BadRequest("items", str(problem)) from None
        return _listed(items, more=False)

    async def _page(self, found: Conversation, query: Query) -> bytes:
        limit, descending = number_in(query, "limit", PAGE, 1, MOST), is_descending(query, "desc")
        after = query.get("after", [None])[-1]
        try:
            page = await self._store.items(found.id, after, None, limit, descending)
        except NotFound:
            raise BadRequest("after", f"no item {str(after)[:100]!r}") from None
        return _listed(page.items, more=page.more)


class OneItem(_Conversational):
    """`/v1/conversations/{id}/items/{item_id}`"""

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        found, id = await self._found(scope), scope["path_params"]["item_id"]
        if scope["method"] == "DELETE":
            if not await self._store.delete_item(found.id, id):
                raise missing("Item", id)
            return shown(found)
        item = await self._store.item(found.id, id)
        if item is None:
            raise missing("Item", id)
        return _json(_shown(item))


# What comes


def new_items(items: Sequence[Raw]) -> list[Item]:
    """Items to be kept, each under its own id or a new one. Raises BadRequest."""
    if len(items) > AT_ONCE:
        raise BadRequest("items", f"{len(items)}; expected at most {AT_ONCE} at a time")
    try:
        body = {"model": "any", "input": items}
        codec_of(DIALECT).parse(_json(body), Context())
    except BadRequest as problem:
        path = re.sub("^input", "items", problem.path)
        raise BadRequest(path, problem.reason) from None
    ids = fresh_context().ids
    return [_item(one, f"items[{place}]", ids) for place, one in enumerate(items)]


def _item(raw: Raw, path: str, ids: Ids) -> Item:
    found = history.read_shape(raw)
    if found.type == "item_reference":
        raise BadRequest(path, "refers to an item; expected the item itself")
    if not found.id:
        return Item(ids.mint(history.id_prefix(found)), bytes(raw))
    if not _ID.fullmatch(found.id):
        expected = "letters, digits and _.:=-, at most 256 of them"
        raise BadRequest(f"{path}.id", f"{found.id[:100]!r}; expected {expected}")
    return Item(found.id, bytes(raw))


def _metadata(told: Metadata | None) -> bytes:
    return _json(checked(told))


# What is told


def shown(conversation: Conversation) -> bytes:
    return _json(
        {
            "id": conversation.id,
            "object": "conversation",
            "created_at": int(conversation.created),
            "metadata": Raw(conversation.metadata),
        }
    )


def _listed(items: Sequence[Item], *, more: bool) -> bytes:
    return listed([_shown(one) for one in items], [one.id for one in items], more=more)


def _shown(item: Item) -> dict[str, Raw]:
    """An item with all that readers of items want, under the id it has here."""
    (fields,) = history.listed_items([Raw(item.data)], item.id)
    return {**fields, "id": Raw(_json(item.id))}
