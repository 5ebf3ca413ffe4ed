"""The operations on conversations and their items; `operations.py` has the rules."""

from collections.abc import Sequence

from weft.store.base import AlreadyExists, NotFound, check_ids
from weft.store.queries import (
    MAX_NUMBER,
    Queries,
    Value,
    clamp,
    first_value,
    values_of,
)
from weft.store.records import Conversation, ConversationPage, Item, Page

INSERT_CONVERSATION = """INSERT INTO conversation (id, owner, created, metadata)
    VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id"""
CONVERSATION = "SELECT id, owner, created, metadata FROM conversation WHERE id = ? AND owner = ?"
LOCK_CONVERSATION = "SELECT id FROM conversation WHERE id = ?"
SET_METADATA = "UPDATE conversation SET metadata = ? WHERE id = ? AND owner = ? RETURNING id"
DELETE_CONVERSATION = "DELETE FROM conversation WHERE id = ? AND owner = ? RETURNING id"


def create_conversation(conversation: Conversation, items: Sequence[Item]) -> Queries[None]:
    check_ids(conversation.id, *(item.id for item in items))
    _distinct(items)
    c = conversation
    if not (yield INSERT_CONVERSATION, (c.id, c.owner, c.created, c.metadata)):
        raise AlreadyExists("a conversation with this id exists already")
    yield from append_items(c.id, items)


def conversation(owner: str, id: str) -> Queries[Conversation | None]:
    return first_value(Conversation, (yield CONVERSATION, (id, owner)))


LIST_CONVERSATIONS = """SELECT id, owner, created, metadata FROM conversation WHERE owner = ?
    AND (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT ?"""


def conversations(owner: str, after: str | None, limit: int) -> Queries[ConversationPage]:
    limit, created, last = clamp(limit), float(MAX_NUMBER), ""
    if after is not None:
        found = yield from conversation(owner, after)
        if found is None:
            raise NotFound("no conversation has this id")
        created, last = found.created, found.id
    rows = yield LIST_CONVERSATIONS, (owner, created, last, limit + 1)
    return ConversationPage(values_of(Conversation, rows[:limit]), len(rows) > limit)


EVERY_CONVERSATION = """SELECT id, owner, created, metadata FROM conversation WHERE id > ?
    ORDER BY id LIMIT ?"""


def every_conversation(after: str, limit: int) -> Queries[list[Conversation]]:
    return values_of(Conversation, (yield EVERY_CONVERSATION, (after, clamp(limit))))


COPY_ITEMS = """INSERT INTO item (conversation, position, id, data)
    SELECT ?, position, id, data FROM item WHERE conversation = ? AND position <= ?"""


def fork_conversation(new: Conversation, of: str, upto: str | None) -> Queries[None]:
    check_ids(new.id)
    if not (yield CONVERSATION, (of, new.owner)):
        raise NotFound("no conversation has this id")
    last = yield from _position(of, upto)
    if not (yield INSERT_CONVERSATION, (new.id, new.owner, new.created, new.metadata)):
        raise AlreadyExists("a conversation with this id exists already")
    yield COPY_ITEMS, (new.id, of, MAX_NUMBER if last is None else last)


def set_metadata(owner: str, id: str, metadata: bytes) -> Queries[bool]:
    return bool((yield SET_METADATA, (metadata, id, owner)))


def delete_conversation(owner: str, id: str) -> Queries[bool]:
    return bool((yield DELETE_CONVERSATION, (id, owner)))


# Items

LAST_POSITION = "SELECT coalesce(max(position), -1) FROM item WHERE conversation = ?"
INSERT_ITEM = """INSERT INTO item (conversation, position, id, data) VALUES (?, ?, ?, ?)
    ON CONFLICT (conversation, id) DO NOTHING RETURNING id"""
ITEM = "SELECT id, data FROM item WHERE conversation = ? AND id = ?"
POSITION = "SELECT position FROM item WHERE conversation = ? AND id = ?"
DELETE_ITEM = "DELETE FROM item WHERE conversation = ? AND id = ? RETURNING id"
FORWARDS = """SELECT id, data FROM item WHERE conversation = ? AND position > ? AND position < ?
    ORDER BY position LIMIT ?"""
BACKWARDS = """SELECT id, data FROM item WHERE conversation = ? AND position > ? AND position < ?
    ORDER BY position DESC LIMIT ?"""


def add_items(id: str, items: Sequence[Item]) -> Queries[None]:
    check_ids(*(item.id for item in items))
    _distinct(items)
    if not (yield LOCK_CONVERSATION, (id,)):
        raise NotFound("no conversation has this id")
    for item in items:
        if (yield POSITION, (id, item.id)):
            raise AlreadyExists("the conversation already has an item with this id")
    yield from append_items(id, items)


def append_to(id: str, items: Sequence[Item]) -> Queries[None]:
    """Appends items if the conversation still exists. Does not raise."""
    if (yield LOCK_CONVERSATION, (id,)):
        yield from append_items(id, items)


def _distinct(items: Sequence[Item]) -> None:
    if len({item.id for item in items}) < len(items):
        raise AlreadyExists("two items have the same id")


def append_items(conversation: str, items: Sequence[Item]) -> Queries[None]:
    """An id that exists already gets the position as a suffix: some upstreams repeat ids."""
    top = int((yield LAST_POSITION, (conversation,))[0][0] or 0)
    for position, item in enumerate(items, top + 1):
        if not (yield INSERT_ITEM, (conversation, position, item.id, item.data)):
            yield INSERT_ITEM, (conversation, position, f"{item.id}_{position}", item.data)


def items(
    id: str, after: str | None, before: str | None, limit: int, descending: bool
) -> Queries[Page]:
    limit = clamp(limit)
    behind = yield from _position(id, after)
    ahead = yield from _position(id, before)
    low, high = (ahead, behind) if descending else (behind, ahead)
    backwards = after is None and before is not None  # from `before` towards the beginning
    rows = yield (
        BACKWARDS if descending != backwards else FORWARDS,
        (id, -1 if low is None else low, MAX_NUMBER if high is None else high, limit + 1),
    )
    found = values_of(Item, rows[:limit])
    return Page(found[::-1] if backwards else found, len(rows) > limit)


def _position(conversation: str, id: str | None) -> Queries[Value]:
    if id is None:
        return None
    found = yield POSITION, (conversation, id)
    if not found:
        raise NotFound("the conversation has no item with this id")
    return found[0][0]


def item(id: str, item_id: str) -> Queries[Item | None]:
    return first_value(Item, (yield ITEM, (id, item_id)))


def delete_item(id: str, item_id: str) -> Queries[bool]:
    return bool((yield DELETE_ITEM, (id, item_id)))
