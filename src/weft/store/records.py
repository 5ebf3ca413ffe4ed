"""What is stored, as values. Bodies, items and contexts are JSON that the store never reads."""

from collections.abc import Sequence
from typing import Literal

import msgspec

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One stored response: the request, the status, and the response."""

    id: str
    owner: str = ""
    """The name of the API key of the request; empty without keys."""

    dialect: str
    """The client's."""

    model: str
    status: Status
    created: float
    ended: float | None = None
    previous: str | None = None
    """The response it continues."""

    conversation: str | None = None
    background: bool = False
    stream: bool = False
    visible: bool = True
    """Whether it may be retrieved: the client's `store`."""

    server: str = ""
    """The id of the server that runs it, the only one that can write to it."""

    request: bytes = b""
    """The client's body."""

    input: bytes = b"[]"
    """The items of this turn's input, each with an id: a JSON array."""

    context: bytes = b"{}"
    """Metadata that clients set later."""

    body: bytes | None = None
    """The response object as sent."""

    record: bytes | None = None
    """The assembled response."""

    digest: str | None = None
    """SHA-256 over the log, in hexadecimal."""

    events: int = 0
    """The number of events in the log."""

    size: int = 0
    """Bytes of the log."""

    cancelling: bool = False
    """Whether a cancellation was requested."""

    answered: str | None = None
    """The response that continues it with the outputs of its calls."""

    pruned: bool = False
    """Whether its log was removed because of its age; digest, events and size remain."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """A piece of a log: a batch of events as they were sent. A large batch is cut into several
    blocks."""

    number: int
    """The number of the block in its response, from 0."""

    first: int
    """The number of the first event of its batch."""

    count: int
    """The number of events of the batch, in its last block; 0 in the blocks before."""

    data: bytes


class Extent(msgspec.Struct, frozen=True, gc=False):
    """The size of a stored log."""

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
    """The last block of the log, written in the same transaction as the ending."""

    items: Sequence[Item] = ()
    """To be appended to the conversation of the response, if it has one."""


class Conversation(msgspec.Struct, frozen=True, gc=False):
    id: str
    owner: str
    created: float
    metadata: bytes = b"{}"


class Page(msgspec.Struct, frozen=True):
    """Some items of a conversation, in the requested order."""

    items: list[Item]
    more: bool
    """Whether more items follow."""


class Pruned(msgspec.Struct, frozen=True, gc=False):
    """How many rows were removed because of their age."""

    entries: int
    logs: int
    """Logs of entries that were kept."""

    reasoning: int = 0


class CallReasoning(msgspec.Struct, frozen=True, gc=False):
    """The reasoning that led to a tool call, for clients that do not send it back."""

    call: str
    """The call id that the client knows."""

    response: str
    """The response that made the call; it is deleted with it."""

    origin: str
    """The upstream that made it, the only one it is sent to."""

    created: float
    data: bytes
