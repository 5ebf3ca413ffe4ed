"""What a store guarantees, whichever database it uses.

1. A write is committed when it returns. A write that raised StoreError was not made, unless the
   kind of the error is `unknown`.
2. An ending and its whole log become readable at the same moment, or neither does. An ending whose
   number of events or size differs from the log is refused (`torn`).
3. What has ended does not change: no further block, no second ending is accepted.
4. Of competing callers one wins: `finish`, `set_answered`, `take_over` and `change_status` return
   True to one of them, in whatever process.
5. Only the server that its entry names can write to a running response: blocks, endings and changes
   of any other are refused.
6. No call blocks the event loop, and the queue of writes is bounded.
7. The events of a run have consecutive numbers, and each was appended by a writer that had read all
   before it. Only the holder of the lease, by its latest epoch, writes as the run's owner.

Every string may hold any characters; the store never builds SQL from one. A caller that is
cancelled while it waits for a write does not undo it.
"""

from asyncio import Future
from collections.abc import Callable, Collection, Sequence
from typing import Literal, Protocol, TypeAlias

from weft.errors import ClientError, InternalError
from weft.store.queries import Beside, Queries
from weft.store.records import (
    Block,
    CallReasoning,
    Conversation,
    ConversationPage,
    Ending,
    Entry,
    Extent,
    Item,
    JobClaim,
    NewEvent,
    NewJob,
    NewRun,
    Page,
    Pruned,
    ResponseFilter,
    ResponsePage,
    RunAppend,
    RunClaim,
    RunEvent,
    RunPage,
    RunRow,
    RunWrite,
    Status,
    UpstreamBlock,
)

BLOCKS_AT_A_TIME = 256
EVENTS_AT_A_TIME = 256
ENTRIES_AT_A_TIME = 100
UPSTREAM_AT_A_TIME = 64
CHAIN_LENGTH = 1000
ID_LENGTH = 512
"""Longer ids are refused with a ClientError where something would be stored under them."""

REASONING_SIZE = 1024 * 1024
"""Bytes of the reasoning of one call; more is refused with a ClientError."""

EVENT_SIZE = 1024 * 1024
"""Bytes of the body of one event of a run; more is refused with a ClientError."""

Kind = Literal["busy", "full", "lost", "broken", "unknown", "torn", "fenced", "newer", "closed"]
"""Why the store failed:

busy      another process held the database, or it was slow, for longer than the timeout
full      the disk is full, or the queue of writes
lost      there is no connection
broken    the database reports an error of the disk, of the file, or of a statement
unknown   the timeout passed during a commit: it is not known whether it was written
torn      the log is not the one that the ending describes
fenced    the response does not belong to this server: it has ended, or another took it over
newer     the database was migrated by a newer version of Weft
closed    the store is not open
"""


class StoreError(InternalError):
    """The database failed. The message holds neither parameters nor passwords."""

    def __init__(self, message: str, kind: Kind) -> None:
        super().__init__(message)
        self.kind: Kind = kind


class AlreadyExists(ClientError):
    """The id exists already."""


class NotFound(ClientError):
    """The id does not exist."""


class UnknownStore(ClientError):
    """The URL is not that of a supported database."""


def check_ids(*ids: str) -> None:
    """Raises ClientError for an id that is too long for an index of PostgreSQL."""
    if any(len(id) > ID_LENGTH for id in ids):
        raise ClientError(f"an id of more than {ID_LENGTH} characters")


Effects: TypeAlias = Callable[[], Queries[Sequence[NewEvent]]]
"""Makes a generator of statements, which returns the events that tell of them: see `transact`."""


class Store(Protocol):
    """Stores responses with their logs, the reasoning of calls, conversations and servers."""

    @property
    def commits(self) -> int:
        """The number of transactions so far."""
        ...

    @property
    def waiting(self) -> int:
        """The size of the write queue in bytes."""
        ...

    @property
    def lag(self) -> float:
        """Seconds for which the oldest queued write has waited, at most; 0 if none waits."""
        ...

    async def open(self) -> None:
        """Connects, and migrates the tables. Raises StoreError."""
        ...

    async def close(self) -> None:
        """Writes what is queued, for at most the timeout, and disconnects. May be repeated."""
        ...

    # Responses

    async def begin(
        self,
        entry: Entry,
        first: Sequence[Block] = (),
        job: NewJob | None = None,
        abandoned: Callable[[Future[None]], object] | None = None,
    ) -> None:
        """Stores a new response, with the first blocks of its log, and with what another server
        needs to run it. Raises AlreadyExists.

        If the caller is cancelled, it may be written all the same: `abandoned` gets the outcome.
        """
        ...

    async def add(self, entry: Entry, ending: Ending) -> None:
        """Stores a new response that has ended, in one transaction: nobody sees it running. The
        rest of the ending is the whole log, of one block. Raises AlreadyExists."""
        ...

    def append(self, id: str, block: Block) -> None:
        """Queues a block of the log. Raises StoreError when the queue is full.

        A block of a response that does not exist, has ended, or belongs to another server is
        dropped; `flush` raises then.
        """
        ...

    async def wait_for_room(self, id: str) -> None:
        """Returns when the queue is short, or holds no block of this response: to be called between
        blocks when there are many. Raises StoreError if the database is too slow."""
        ...

    async def flush(self, id: str) -> None:
        """Returns when every queued block of this response is committed. Raises StoreError if one
        was dropped, or could not be written in time.
        """
        ...

    async def finish(self, id: str, ending: Ending) -> bool:
        """Ends a response: writes the rest of its log, the ending, and the items for its
        conversation.

        Returns whether this call ended it: False if it had ended before, does not exist, or belongs
        to another server. Items are left out if the conversation was deleted; an item whose id
        exists in it gets another. Large fields are written first, in pieces, and become visible
        with the ending. Raises StoreError (`torn`) if the log is not the one described. If it
        raises, the response is still running for everybody else: call it again.
        """
        ...

    async def is_running(self, id: str) -> bool:
        """Whether the response exists and has not ended."""
        ...

    async def entry(self, id: str) -> Entry | None: ...

    async def owned(self, owner: str, id: str) -> Entry | None:
        """As `entry`; None for the response of another owner."""
        ...

    async def delete(self, owner: str, id: str) -> bool:
        """Removes a response, running or not, its log and the reasoning of its calls. Returns
        whether it existed.
        """
        ...

    async def blocks(self, id: str, after_event: int = -1, after_block: int = -1) -> list[Block]:
        """Returns the committed blocks numbered above `after_block` that hold events numbered above
        `after_event`, in order, at most 256: call it again with the number of the last one.
        """
        ...

    async def extent(self, id: str) -> Extent:
        """The size of the committed log."""
        ...

    async def change_status(self, id: str, status: Status, of: tuple[Status, ...]) -> bool:
        """Sets the status if it is one of `of`, and no other server runs the response. Returns
        whether it did."""
        ...

    async def set_answered(self, id: str, next_id: str) -> bool:
        """Stores which response continues this one. Returns whether it is the first to."""
        ...

    async def set_context(self, owner: str, id: str, context: bytes) -> bool:
        """Replaces the context of a response. Returns whether the response exists."""
        ...

    async def request_cancel(self, id: str) -> bool:
        """Asks the server of a response to stop it. Returns whether it exists and is running."""
        ...

    async def cancel_requests(self) -> set[str]:
        """The running responses for which a cancellation was requested."""
        ...

    async def entries(self, after: str = "", limit: int = ENTRIES_AT_A_TIME) -> list[Entry]:
        """All entries, by id, from the first id above `after` on."""
        ...

    async def newest(self, owner: str, limit: int = ENTRIES_AT_A_TIME) -> list[Entry]:
        """The newest entries, newest first."""
        ...

    async def list_visible(
        self, owner: str, dialect: str, after: Entry | None, limit: int, descending: bool
    ) -> list[Entry]:
        """Visible responses of a dialect that have ended, by creation time, following `after`."""
        ...

    async def responses(
        self, owner: str, matching: ResponseFilter, after: str | None = None, limit: int = 20
    ) -> ResponsePage:
        """Visible responses of any dialect, newest first, following the response `after`. Raises
        NotFound if that is gone."""
        ...

    async def chain(self, owner: str, id: str) -> list[Entry]:
        """The entry and those it continues, oldest first, at most 1,000.

        Stops at one that is missing or belongs to another owner: the first entry then has a
        `previous`.
        """
        ...

    async def prune(
        self,
        before: float,
        logs_before: float,
        reasoning_before: float = 0.0,
        upstream_before: float = 0.0,
    ) -> Pruned:
        """Removes what is older than these times: entries and runs that ended, logs of entries that
        ended, the reasoning of calls, and what upstreams sent.
        """
        ...

    # What upstreams sent

    async def save_upstream(self, blocks: Sequence[tuple[str, UpstreamBlock]]) -> None:
        """Stores blocks, each with the id of its response, running or not; those of one that was
        deleted are dropped. A number that is stored already stays as it is."""
        ...

    async def upstream(self, id: str, after: int = -1) -> list[UpstreamBlock]:
        """The blocks numbered above `after`, in order, at most 64: call it again with the number of
        the last one."""
        ...

    # Runs

    async def create_run(self, new: NewRun) -> str:
        """Stores a run with its first events, and returns its id.

        If this owner has used the idempotency key before, changes nothing and returns the id of
        the run that has it: the caller compares. Raises AlreadyExists if the id exists, and
        ClientError for an event that is too large.
        """
        ...

    async def append_run(self, append: RunAppend) -> RunWrite:
        """Appends events to a run, all or none, and sets its status and when it is due.

        With an epoch, only if this server holds the lease with this epoch; without, anybody may
        write at any time. In both cases only if `at` is the last event. Raises ClientError for an
        event that is too large, and AlreadyExists if the key of the child is taken.
        """
        ...

    async def finish_and_append(
        self, id: str, ending: Ending, append: RunAppend
    ) -> RunWrite | None:
        """Ends a response and appends to a run in one transaction: both, or neither.

        Returns None where `finish` returns False, otherwise what became of the append: the response
        has ended if it is `written`. Raises what `finish` and `append_run` raise.
        """
        ...

    async def transact(self, append: RunAppend, make: Effects) -> RunWrite:
        """Runs statements of the caller and appends to a run in one transaction: both, or neither.

        `make` returns a generator that yields statements with `?` for each parameter, receives
        their rows, and returns events, which follow those of `append`. The run is locked and the
        append checked first: if it is refused, `make` is not called. If the generator raises,
        or the database refuses a statement, everything it did is undone; what it raised is raised
        here, or StoreError.

        The statements may only select, insert, update and delete, and no constraint may be deferred
        to the commit, which others share. All writes wait for them: they must be quick. `make` is
        called again if the transaction must be repeated, as after a lost connection: what it does
        beside the statements may happen more than once.
        """
        ...

    async def claim_run(self, id: str, lease: float) -> RunClaim:
        """Claims a run for `lease` seconds, by the clock of the database, if nobody has a lease or
        it has expired. A live lease of this server itself is `held`, too.

        The time counts from some moment during this call: the caller counts from before it.
        """
        ...

    async def renew_run(self, id: str, epoch: int, lease: float) -> bool:
        """Extends a lease to `lease` seconds from now. Returns False if it was lost or released. An
        expired lease can be renewed if nobody has claimed the run since."""
        ...

    async def release_run(
        self,
        id: str,
        epoch: int,
        at: int,
        status: str,
        due: float | None,
        beside: Beside | None = None,
    ) -> bool:
        """Ends a lease, and sets the status and when the run is due, in seconds from now. The
        statements `beside` it are made if it does.

        Returns False if the lease was lost, or if `at` is no longer the last event: read on, and
        decide again.
        """
        ...

    async def due_runs(
        self,
        limit: int = ENTRIES_AT_A_TIME,
        agents: Collection[str] | None = None,
        patience: float = 0.0,
    ) -> list[str]:
        """The runs that somebody must look at, those that wait longest first: those that are due
        and have no lease, and those whose lease has expired, due or not. With `agents`, only runs
        of these, those that have ended, and those that wait for more than `patience` seconds."""
        ...

    async def overdue(self, id: str) -> float:
        """For how many seconds `due_runs` has had this run; 0 if it does not have it."""
        ...

    async def next_due(self) -> float | None:
        """Seconds until `due_runs` returns something, if nothing is written until then; 0 if it
        does now. None: never."""
        ...

    async def count_runs(self) -> dict[str, int]:
        """The number of runs by their status, of all owners. Reads all of them."""
        ...

    async def run(self, id: str) -> RunRow | None: ...

    async def owned_run(self, owner: str, id: str) -> RunRow | None:
        """As `run`; None for the run of another owner."""
        ...

    async def last_events(self, ids: Sequence[str]) -> dict[str, int]:
        """The numbers of the last events of those of these runs that exist."""
        ...

    async def run_of_key(self, owner: str, key: str) -> str | None:
        """The id of the run that this owner has created under an idempotency key."""
        ...

    async def runs(
        self,
        owner: str,
        status: str | None = None,
        agent: str | None = None,
        after: str | None = None,
        limit: int = 20,
        descending: bool = True,
        parent: str | None = None,
    ) -> RunPage:
        """Runs by creation time, following the run `after`; with `parent`, those that this run
        has started. Raises NotFound if `after` is gone."""
        ...

    async def run_events(
        self,
        id: str,
        after: int = 0,
        limit: int = EVENTS_AT_A_TIME,
        kinds: Sequence[str] | None = None,
    ) -> list[RunEvent]:
        """The events numbered above `after`, in order; of these kinds, at most 32, if given."""
        ...

    async def delete_run(self, owner: str, id: str) -> bool:
        """Removes a run that has ended, and its events. Returns whether there was one."""
        ...

    # Background responses

    async def due_jobs(self, limit: int = ENTRIES_AT_A_TIME) -> list[str]:
        """The background responses that a server may claim, oldest first."""
        ...

    async def claim_job(self, id: str) -> JobClaim:
        """Takes over a background response that no living server runs, and counts a try. Every
        write of an earlier server is refused from then on."""
        ...

    async def release_job(
        self, id: str, after: float = 0.0, tries: int = 0, beside: Beside | None = None
    ) -> bool:
        """Gives a background response back: it is queued, and another server may claim it after so
        many seconds. Takes `tries` back. Returns whether it was this server's; the statements
        `beside` it are made if so."""
        ...

    # Reasoning

    async def save_reasoning(self, owner: str, calls: Sequence[CallReasoning]) -> None:
        """Stores the reasoning of calls; a later one with the same call id replaces it."""
        ...

    async def load_reasoning(
        self, owner: str, calls: Sequence[str], since: float
    ) -> dict[str, CallReasoning]:
        """What this owner saved for these calls since that time, by call id."""
        ...

    # Servers

    @property
    def server(self) -> str:
        """The id of the server that this store writes for. It changes with `take_lease`, and when a
        lease was lost."""
        ...

    async def take_lease(self, length: float) -> None:
        """Becomes a server with an id of its own, and a lease of `length` seconds by the clock of
        the database: until the lease is revoked, nobody takes over what this server runs."""
        ...

    async def renew_lease(self) -> None:
        """To be called several times during a lease. If the lease was revoked meanwhile, takes a
        new one under a new id: what ran under the old one is ended by other servers."""
        ...

    async def ensure_lease(self) -> str:
        """Returns the id of this server. Renews the lease first if it may have expired."""
        ...

    async def revoke_dead(self) -> None:
        """Revokes the leases of dead servers: at once if the process is known to be dead, otherwise
        some time after the lease has expired. To be called regularly."""
        ...

    async def orphans(self) -> list[tuple[str, str]]:
        """Unfinished responses whose server has no lease, at most 1,000: the id of each, and of its
        server. Those of `due_jobs` are not among them."""
        ...

    async def take_over(self, id: str, of: str) -> bool:
        """Takes over an unfinished response of that server. Returns whether it did: then every
        write of the other is refused."""
        ...

    async def begin_recovery(self, id: str) -> int | None:
        """Counts an attempt to end the response of a dead server, and removes the blocks of an
        incomplete batch. Returns the number of attempts; None if the response has ended, or belongs
        to another server.
        """
        ...

    # Conversations

    async def create_conversation(
        self, conversation: Conversation, items: Sequence[Item] = ()
    ) -> None:
        """Raises AlreadyExists."""
        ...

    async def conversation(self, owner: str, id: str) -> Conversation | None: ...

    async def conversations(
        self, owner: str, after: str | None = None, limit: int = 20
    ) -> ConversationPage:
        """Conversations, newest first, following `after`. Raises NotFound if that is gone."""
        ...

    async def every_conversation(
        self, after: str = "", limit: int = ENTRIES_AT_A_TIME
    ) -> list[Conversation]:
        """The conversations of all owners, by id, from the first id above `after` on."""
        ...

    async def fork_conversation(
        self, conversation: Conversation, of: str, upto: str | None = None
    ) -> None:
        """Stores a new conversation with the items of another one of the same owner, under the same
        ids: up to and including the item `upto`, or all of them. Raises AlreadyExists, NotFound."""
        ...

    async def set_metadata(self, owner: str, id: str, metadata: bytes) -> bool:
        """Returns whether the conversation exists."""
        ...

    async def delete_conversation(self, owner: str, id: str) -> bool:
        """Removes it and its items, but not its responses. Returns whether it existed."""
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
        """The items between `after` and `before`, in the requested order.

        With `before` alone, the items right before it. Empty if the conversation does not exist.
        Raises NotFound if one of the items does not exist.
        """
        ...

    async def item(self, id: str, item_id: str) -> Item | None: ...

    async def delete_item(self, id: str, item_id: str) -> bool:
        """Returns whether it existed."""
        ...
