"""What a store promises, whichever database is behind it.

1. What was acknowledged is there: `begin`, `finish` and every other write has been committed when
   it returns. What raised StoreError has not been written, unless its kind is `unknown`.
2. An ending and all of its log become readable in one moment, or neither does. An ending whose
   events and size are not those of the log is refused (`torn`).
3. What has ended stays: no block, no second ending, no other answer reaches it any more.
4. A contest has one winner: `finish`, `set_answered`, `take_over` and `change_status` return True
   to one caller, in whatever process.
5. A response that runs is written to by one server, the one that its entry names: blocks, endings
   and changes of any other are refused.
6. No call blocks the event loop, and what waits to be written is bounded.

Every text may hold anything; the store never builds SQL from one. A caller that stops waiting for
a write does not take it back.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from weft.errors import ClientError, InternalError
from weft.store.records import (
    Block,
    CallReasoning,
    Conversation,
    Ending,
    Entry,
    Extent,
    Item,
    Page,
    Pruned,
    Status,
)

BLOCKS_AT_A_TIME = 256
ENTRIES_AT_A_TIME = 100
CHAIN_LENGTH = 1000
ID_LENGTH = 512
"""Longer ids are refused with a ClientError where something would be stored under them."""

REASONING_SIZE = 1024 * 1024
"""Bytes of the reasoning of one call; more is refused with a ClientError."""

Kind = Literal["busy", "full", "lost", "broken", "unknown", "torn", "fenced", "newer", "closed"]
"""Why the store could not do it:

busy      another process held the database, or it was slow, for longer than we have patience
full      the disk, or the queue of what waits to be written
lost      there is no connection
broken    the database reports a fault: of the disk, of the file, of a statement
unknown   it took so long that nobody knows whether it was written
torn      the log is not the one that the ending describes
fenced    the response is not this server's (any more): it has ended, or another took it over
newer     the database was made by a newer version of Weft
closed    the store is not open
"""


class StoreError(InternalError):
    """The database cannot do what it was asked. Holds neither parameters nor passwords."""

    def __init__(self, message: str, kind: Kind) -> None:
        super().__init__(message)
        self.kind: Kind = kind


class AlreadyExists(ClientError):
    """There is something of that id already."""


class NotFound(ClientError):
    """There is nothing of that id."""


class UnknownStore(ClientError):
    """The address is not that of a database Weft can use."""


class Store(Protocol):
    """Responses with their logs, the reasoning of calls, conversations, and the servers."""

    @property
    def commits(self) -> int:
        """How many transactions were written so far."""
        ...

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        ...

    async def open(self) -> None:
        """Connects, and brings the tables up to date. Raises StoreError."""
        ...

    async def close(self) -> None:
        """Writes what waits, as far as patience goes, and disconnects. Any number of times."""
        ...

    # Responses

    async def begin(self, entry: Entry, first: Sequence[Block] = ()) -> None:
        """Stores a new response, and the first of its log if there is one. Raises AlreadyExists."""
        ...

    def append(self, id: str, block: Block) -> None:
        """Queues a piece of the log, to be written soon. Raises StoreError when the queue is full.

        A block of a response that is not there, has ended, or is another server's is dropped:
        `flush` tells.
        """
        ...

    async def wait_for_room(self) -> None:
        """Returns when little waits to be written. Whoever has much to append asks for it between
        two blocks. Raises StoreError if the database does not get on with it."""
        ...

    async def flush(self, id: str) -> None:
        """Returns when every block of this response that was queued is committed. Raises
        StoreError if one was dropped, or could not be written in time.
        """
        ...

    async def finish(self, id: str, ending: Ending) -> bool:
        """Ends a response: the rest of its log, the ending, and the items for its conversation.

        Returns whether this call ended it: False if it had ended before, is not there, or is
        another server's. Items are left out if the conversation is gone; one whose id it holds
        gets another. What is large is written ahead, in pieces, and is there for nobody before the
        ending is. Raises StoreError (`torn`) if the log is not the one described. If it raises, the
        response goes on running as far as others can see: finish it again.
        """
        ...

    async def is_running(self, id: str) -> bool:
        """Whether there is such a response, and it has not ended."""
        ...

    async def entry(self, id: str) -> Entry | None: ...

    async def owned(self, owner: str, id: str) -> Entry | None:
        """As `entry`; what belongs to another is not there."""
        ...

    async def delete(self, owner: str, id: str) -> bool:
        """Removes a response, its log and the reasoning of its calls, running or not. Returns
        whether it was there.
        """
        ...

    async def blocks(self, id: str, after: int = -1, behind: int = -1) -> list[Block]:
        """Returns the committed blocks numbered above `behind` that hold events numbered above
        `after`, in order: at most 256 of them, so ask again behind the last.
        """
        ...

    async def extent(self, id: str) -> Extent:
        """How much of a log is committed."""
        ...

    async def change_status(self, id: str, status: Status, of: tuple[Status, ...]) -> bool:
        """Sets the status if it is one of those, and no other server runs it. Returns whether it
        did."""
        ...

    async def set_answered(self, id: str, next_id: str) -> bool:
        """Notes which response goes on from this one. Returns whether it was the first to."""
        ...

    async def set_context(self, owner: str, id: str, context: bytes) -> bool:
        """Replaces the context of a response. Returns whether it is there."""
        ...

    async def request_cancel(self, id: str) -> bool:
        """Asks whoever runs a response to stop it. Returns whether it is there and runs."""
        ...

    async def cancel_requests(self) -> set[str]:
        """Those that run, and that somebody wants stopped."""
        ...

    async def entries(self, after: str = "", limit: int = ENTRIES_AT_A_TIME) -> list[Entry]:
        """All of them, by id, from the first id above `after` on."""
        ...

    async def newest(self, owner: str, limit: int = ENTRIES_AT_A_TIME) -> list[Entry]:
        """The newest, newest first."""
        ...

    async def list_visible(
        self, owner: str, dialect: str, after: Entry | None, limit: int, descending: bool
    ) -> list[Entry]:
        """Visible responses of a dialect that have ended, by their time, from behind `after` on."""
        ...

    async def chain(self, owner: str, id: str) -> list[Entry]:
        """The entry and all it goes on from, oldest first: at most 1,000.

        Stops before one that is missing or belongs to another: `previous` of the first tells.
        """
        ...

    async def prune(
        self, before: float, logs_before: float, reasoning_before: float = 0.0
    ) -> Pruned:
        """Removes what ended before that time: whole entries, and the logs of others; and the
        reasoning of calls that was kept before that time.
        """
        ...

    # Reasoning

    async def save_reasoning(self, owner: str, calls: Sequence[CallReasoning]) -> None:
        """Stores the reasoning of calls; the last one of a call id replaces those before."""
        ...

    async def load_reasoning(
        self, owner: str, calls: Sequence[str], since: float
    ) -> dict[str, CallReasoning]:
        """What was kept of these calls since that time, by call id. What belongs to another owner
        is not there.
        """
        ...

    # Servers

    @property
    def server(self) -> str:
        """The id of the server that this store writes for. Another one after `take_lease`, and
        whenever a lease was lost."""
        ...

    async def take_lease(self, length: float) -> None:
        """Becomes a server of its own, with a lease of so many seconds by the database's clock:
        until it runs out, or is found to be dead, nobody takes over what it runs."""
        ...

    async def renew_lease(self) -> None:
        """To be called several times during a lease. If the lease was revoked meanwhile, another is
        taken, under another id: what ran under the old one is others' to end."""
        ...

    async def ensure_lease(self) -> str:
        """Returns the id of this server, for a response to begin under. A lease that may have run
        out is renewed first."""
        ...

    async def revoke_dead(self) -> None:
        """Revokes the leases of servers that are dead: at once where the process is known to be,
        and else when the lease has run out and nobody renews it for a while. To be called again
        and again."""
        ...

    async def orphans(self) -> list[tuple[str, str]]:
        """Unfinished responses whose server has no lease: the id of each, and of its server. At
        most 1,000 at a time."""
        ...

    async def take_over(self, id: str, of: str) -> bool:
        """Makes an unfinished entry of that server one of this. Returns whether it did: then no
        write of the other reaches it any more."""
        ...

    async def begin_recovery(self, id: str) -> int | None:
        """Says that this server sets out to end what a dead one left, and removes the blocks of a
        batch that is not complete. Returns how often somebody has; None if it has ended, or is not
        this server's.
        """
        ...

    # Conversations

    async def create_conversation(
        self, conversation: Conversation, items: Sequence[Item] = ()
    ) -> None:
        """Raises AlreadyExists."""
        ...

    async def conversation(self, owner: str, id: str) -> Conversation | None: ...

    async def set_metadata(self, owner: str, id: str, metadata: bytes) -> bool:
        """Returns whether the conversation is there."""
        ...

    async def delete_conversation(self, owner: str, id: str) -> bool:
        """Removes it and its items; its responses stay. Returns whether it was there."""
        ...

    async def add_items(self, id: str, items: Sequence[Item]) -> None:
        """Appends all of them, or none. Raises NotFound (conversation), AlreadyExists (item)."""
        ...

    async def items(
        self,
        id: str,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        descending: bool = False,
    ) -> Page:
        """The items behind `after` and in front of `before`, in the order asked for.

        With `before` alone it is the last ones in front of it. Empty if there is no such
        conversation. Raises NotFound if there is no such item.
        """
        ...

    async def item(self, id: str, item_id: str) -> Item | None: ...

    async def delete_item(self, id: str, item_id: str) -> bool:
        """Returns whether it was there."""
        ...
