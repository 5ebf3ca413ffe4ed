"""What is stored, as values. Bodies, items and contexts are JSON that the store never reads."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from weft.store.queries import Beside

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

    findings: int = 0
    """How many findings its record has."""

    cost: int | None = None
    """Of all its attempts, in billionths of a US dollar; None if that is not known."""

    @property
    def inspectable(self) -> bool:
        """Whether its owner may see its trace and its findings: it may be retrieved, or is a turn
        of a run. Nothing else runs in the background without being visible."""
        return self.visible or self.background


class ListedResponse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A stored response in a list: without what is large."""

    id: str
    dialect: str
    model: str
    status: Status
    created: float
    ended: float | None
    previous: str | None
    conversation: str | None
    background: bool
    stream: bool
    findings: int
    """How many findings its record has; 0 also while it runs."""

    cost: int | None
    """As in Entry; None also while it runs."""


class ResponseFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which responses are listed."""

    conversation: str | None = None
    statuses: tuple[Status, ...] = ()
    """Empty: any."""

    model: str | None = None
    with_findings: bool = False


class UpstreamBlock(msgspec.Struct, frozen=True, gc=False):
    """A piece of what the upstream of a response sent; the first, number 0, says how it was read.
    The store does not read them."""

    number: int
    data: bytes


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

    findings: int = 0
    """How many findings the record has."""

    cost: int | None = None
    """As in Entry."""

    items: Sequence[Item] = ()
    """To be appended to the conversation of the response, if it has one."""


def with_ending(entry: Entry, ending: Ending) -> Entry:
    """The entry of a response after its end."""
    return msgspec.structs.replace(
        entry,
        status=ending.status,
        ended=ending.ended,
        body=ending.body,
        record=ending.record,
        digest=ending.digest,
        events=ending.events,
        size=ending.size,
        findings=ending.findings,
        cost=ending.cost,
    )


class Conversation(msgspec.Struct, frozen=True, gc=False):
    id: str
    owner: str
    created: float
    metadata: bytes = b"{}"


class ConversationPage(msgspec.Struct, frozen=True):
    """Some conversations, newest first."""

    conversations: list[Conversation]
    more: bool
    """Whether more follow."""


class ResponsePage(msgspec.Struct, frozen=True):
    """Some responses, newest first."""

    responses: list[ListedResponse]
    more: bool
    """Whether more follow."""


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
    runs: int = 0
    upstream: int = 0
    """Blocks of what upstreams sent."""


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


# Background responses


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored with a background response, so that any process can run it."""

    body: bytes
    """The request as it is sent upstream, with all earlier turns. It holds no keys."""

    options: bytes
    """What else the request is made of: JSON."""

    tries: int = 0
    """1 if the server that stores it runs it at once."""

    beside: Beside | None = None
    """Further statements of the same transaction."""


class JobClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the claim of a background response:

    claimed   it is this server's now, and nobody else can write to it
    held      another server runs it, or nobody may before `wait` seconds have passed
    missing   it does not exist, has ended, or cannot be run by anybody but its server
    """

    outcome: Literal["claimed", "held", "missing"]
    wait: float | None = None
    """None: for as long as the other server lives."""

    entry: Entry | None = None
    """The response, if it is claimed."""

    logged: int = 0
    """The number of events in its log: what clients may have seen."""

    body: bytes = b""
    options: bytes = b""
    tries: int = 0
    """How often it was claimed, this time included."""


# Runs. What a status, a kind or a body means is up to the agent runtime.

NewEvent: TypeAlias = tuple[str, bytes]
"""An event to be appended: its kind and its body."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be stored with its first events."""

    id: str
    owner: str = ""
    """The name of the API key of the request; empty without keys."""

    agent: str
    status: str
    events: Sequence[NewEvent] = ()
    due: float | None = None
    """Seconds from now until somebody must look at it; None: nobody need."""

    parent: str | None = None
    """The id of the run that started it."""

    key: str | None = None
    """The idempotency key: an owner creates one run under it."""

    beside: Beside | None = None
    """Further statements of the same transaction."""


class RunRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A run, as it is after its last event. All times are those of the database's clock."""

    id: str
    owner: str
    agent: str
    status: str
    created: float
    updated: float
    """When the last event was appended, or the run was released."""

    ended: float | None
    seq: int
    """The number of its last event; the first one has number 1."""

    epoch: int
    """How often it was claimed. A writer with an earlier epoch is refused."""

    holder: str
    """The server that has claimed it; empty if none has."""

    until: float
    """When the lease expires; 0 if there is none."""

    due: float | None
    """When somebody must look at it; None: nobody need."""

    parent: str | None
    key: str | None


class RunEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a run."""

    run: str
    seq: int
    kind: str
    at: float
    """By the clock of the database."""

    epoch: int
    """That of the lease it was written under; 0: written without one, from outside."""

    body: bytes


class RunPage(msgspec.Struct, frozen=True):
    """Some runs, in the requested order."""

    runs: list[RunRow]
    more: bool
    """Whether more runs follow."""


class RunAppend(msgspec.Struct, frozen=True, kw_only=True):
    """Events to be appended to a run, and what its row says afterwards."""

    run: str
    at: int
    """The number of the last event that the writer has read: if it is no longer the last one,
    nothing is appended."""

    events: Sequence[NewEvent] = ()
    status: str
    due: float | None = None
    """Seconds from now until somebody must look at the run; None: nobody need."""

    ended: bool = False
    """Whether the run has ended: it may be deleted, and is pruned with time."""

    epoch: int | None = None
    """That of the writer's lease. None: a write from outside, which needs no lease."""

    child: NewRun | None = None
    """A run that is created in the same transaction, if the events are written."""

    parent: str | None = None
    """A run that `beside` writes to. It is locked first: whoever writes to a run and to its
    children locks them in this order, so that two of them never wait for each other."""

    beside: Beside | None = None
    """Further statements of the same transaction, if the events are written."""


class RunWrite(msgspec.Struct, frozen=True, gc=False):
    """What became of an append:

    written   the events are committed, and `seq` is the number of the last one
    moved     the last event is `seq`, not the one that the writer has read: read on, decide again
    fenced    the lease was lost or released
    missing   the run does not exist

    Nothing was written unless it is `written`.
    """

    outcome: Literal["written", "moved", "fenced", "missing"]
    seq: int = 0
    at: float = 0.0
    """The time of the events that were written."""


class RunClaim(msgspec.Struct, frozen=True, gc=False):
    """What became of a claim:

    claimed   the lease is this server's, under a new `epoch`; `seq` is the last event, and somebody
              had to look at the run for `overdue` seconds
    held      somebody has a lease, for another `wait` seconds
    missing   the run does not exist
    """

    outcome: Literal["claimed", "held", "missing"]
    epoch: int = 0
    seq: int = 0
    wait: float = 0.0
    overdue: float = 0.0
