"""What is stored, as values. Bodies, items and contexts are JSON that the store never reads."""

from collections.abc import Sequence
from typing import Literal

import msgspec

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One stored response: what was asked, how it stands, and what was answered."""

    id: str
    owner: str = ""
    """The name of the key that asked; empty without keys."""

    dialect: str
    """The client's."""

    model: str
    status: Status
    created: float
    ended: float | None = None
    previous: str | None = None
    """The response it goes on from."""

    conversation: str | None = None
    background: bool = False
    stream: bool = False
    visible: bool = True
    """Whether it may be retrieved: the client's `store`."""

    server: str = ""
    """The id of the server that runs it: nobody else can write to it."""

    request: bytes = b""
    """The client's body."""

    input: bytes = b"[]"
    """The items of this turn's input, each with an id: a JSON array."""

    context: bytes = b"{}"
    """Whatever the relay needs to render or recover it."""

    body: bytes | None = None
    """The answer object as sent."""

    record: bytes | None = None
    """The fold."""

    digest: str | None = None
    """SHA-256 over the log, in hexadecimal."""

    events: int = 0
    """In the log."""

    size: int = 0
    """Bytes of the log."""

    cancelling: bool = False
    """Somebody asked to stop it."""

    answered: str | None = None
    """The response that went on from it with the outputs of its calls."""

    pruned: bool = False
    """Its log was removed for its age; digest, events and size still tell what it was."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """A piece of a log: some events as they were sent, one after the other. A large batch of them
    is cut into several blocks."""

    number: int
    """Of the block within its response, from 0."""

    first: int
    """The number of the first event of its batch."""

    count: int
    """How many events the batch has, in its last block; 0 in those before: they are not all there
    yet."""

    data: bytes


class Extent(msgspec.Struct, frozen=True, gc=False):
    """How much of a log is stored."""

    blocks: int
    events: int
    size: int
    """In bytes."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """One item of a conversation."""

    id: str
    data: bytes


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a response ended. Events, size and digest are those of its whole log."""

    status: Status
    ended: float
    body: bytes | None = None
    record: bytes | None = None
    digest: str | None = None
    events: int = 0
    size: int = 0
    rest: Block | None = None
    """The last of the log: it is written with the ending, or not at all."""

    items: Sequence[Item] = ()
    """To be appended to the conversation of the response, if it has one."""


class Conversation(msgspec.Struct, frozen=True, gc=False):
    id: str
    owner: str
    created: float
    metadata: bytes = b"{}"


class Page(msgspec.Struct, frozen=True):
    """Some items of a conversation, in the order asked for."""

    items: list[Item]
    more: bool
    """Whether there are others further on."""


class Pruned(msgspec.Struct, frozen=True, gc=False):
    """How much was removed for its age."""

    entries: int
    logs: int
    """Of entries that stayed."""

    reasoning: int = 0


class CallReasoning(msgspec.Struct, frozen=True, gc=False):
    """The reasoning that led to a tool call, for clients that do not send it back."""

    call: str
    """The id of the call, as the client knows it."""

    response: str
    """The response that made the call: whoever deletes that deletes this, too."""

    origin: str
    """Who wants it back."""

    created: float
    data: bytes
