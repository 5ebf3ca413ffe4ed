"""The store over any SQL database: writes go through the writer, reads directly to the database."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from weft.store import conversations, jobs, operations, runs
from weft.store.accounts import Accounts
from weft.store.base import ENTRIES_AT_A_TIME, EVENTS_AT_A_TIME, Effects, StoreError
from weft.store.leases import Leases
from weft.store.operations import Pieces
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
from weft.store.writer import TRANSACTION_SIZE, Batch, WritePolicy, Writer

T = TypeVar("T")

PIECE = 1024 * 1024
"""Bytes of a field that one statement writes, at most."""

OWN_QUEUE = 64 * 1024
"""Bytes of a response that may be queued without waiting, however long the queue is: a short
response does not wait because others are long."""

TRANSIENT = frozenset({"busy", "lost"})
"""Errors after which a retry makes sense."""


class Database(Protocol):
    """Runs queries and transactions."""

    async def open(self) -> None:
        """Connects, and applies the migrations. Raises StoreError."""
        ...

    async def close(self) -> None: ...

    async def read(self, make: Callable[[], Queries[T]]) -> T:
        """Runs queries that write nothing. Raises what they raise, or StoreError."""
        ...

    async def write(self, batch: Batch, durable: bool, server: str) -> set[str]:
        """Writes the batch in one transaction: see `writer.Write`. Blocks of a response that does
        not belong to this server are dropped."""
        ...

    def lock_path(self, server: str) -> Path:
        """The file that a server keeps locked, where others on its machine can see it."""
        ...

    def journal_path(self, journal: str) -> Path:
        """The same for a usage journal. No other database has the same files."""
        ...


class SqlStore:
    """A Store; `base.py` documents its methods."""

    def __init__(self, database: Database, policy: WritePolicy, server: str = "") -> None:
        """`server` is the id of the server until a lease is taken."""
        self._database = database
        self._policy = policy
        self._writer = Writer(self._write, policy)
        self._leases = Leases(server, database.lock_path, self._writer.submit, self._read)
        self.accounts = Accounts(self._writer.submit, self._read)

    @property
    def commits(self) -> int:
        return self._writer.commits

    @property
    def waiting(self) -> int:
        return self._writer.waiting

    @property
    def lag(self) -> float:
        return self._writer.lag

    async def open(self) -> None:
        await self._with_retries(self._database.open)
        self._writer.start()

    async def close(self) -> None:
        if not self._writer.running:
            return
        releasing = asyncio.ensure_future(self._leases.release())
        await asyncio.sleep(0)  # lets it queue its write
        try:
            await self._writer.stop()
        finally:
            await asyncio.wait({releasing})
            await self._database.close()

    async def _write(self, batch: Batch, durable: bool) -> set[str]:
        return await self._database.write(batch, durable, self._leases.server)

    async def _read(self, make: Callable[[], Queries[T]]) -> T:
        return await self._with_retries(partial(self._database.read, make))

    async def _with_retries(self, act: Callable[[], Awaitable[T]]) -> T:
        """Repeats what writes nothing, or may be done twice, until it succeeds or times out."""
        until = asyncio.get_running_loop().time() + self._policy.timeout
        retry = self._policy.first_retry
        while True:
            try:
                return await act()
            except StoreError as error:
                if error.kind not in TRANSIENT or asyncio.get_running_loop().time() + retry > until:
                    raise
            await asyncio.sleep(retry)
            retry = min(retry * 2, self._policy.max_retry)

    # Responses

    async def begin(
        self,
        entry: Entry,
        first: Sequence[Block] = (),
        job: NewJob | None = None,
        abandoned: Callable[[asyncio.Future[None]], object] | None = None,
    ) -> None:
        size = len(entry.request) + len(entry.input) + len(entry.context)
        size += sum([len(block.data) for block in first])
        size += len(job.body) if job is not None else 0
        # A job was promised to its client, who need not stay: as durable as an ending.
        make = partial(operations.begin, entry, first, job)
        await self._writer.submit(make, size, durable=job is not None, abandoned=abandoned)
        self._writer.forget(entry.id)

    async def add(self, entry: Entry, ending: Ending) -> None:
        size = len(entry.request) + len(entry.input) + len(entry.context) + _ending_size(ending)
        await self._writer.submit(partial(operations.add, entry, ending), size, durable=True)
        self._writer.forget(entry.id)

    def append(self, id: str, block: Block) -> None:
        self._writer.append(id, block)

    async def wait_for_room(self, id: str) -> None:
        if self._writer.waiting > TRANSACTION_SIZE and self._writer.queued(id) > OWN_QUEUE:
            await self._writer.submit(operations.nothing, after=id)

    async def flush(self, id: str) -> None:
        if self._writer.queued(id):
            await self._writer.submit(operations.nothing, after=id)
        if self._writer.dropped(id):
            raise StoreError("a block was dropped: the response is not ours", "fenced")

    async def finish(self, id: str, ending: Ending) -> bool:
        return await self._finish(id, ending, operations.finish)

    async def finish_and_append(
        self, id: str, ending: Ending, append: RunAppend
    ) -> RunWrite | None:
        make = partial(operations.finish_and_append, append)
        return await self._finish(id, ending, make, _event_size(append.events), append.run)

    async def _finish(
        self,
        id: str,
        ending: Ending,
        make: Callable[[str, Ending, str, Pieces], Queries[T]],
        beside: int = 0,
        row: str = "",
    ) -> T:
        """`beside`: the bytes that are written beside the ending; `row`: as for the writer."""
        pieces = None
        if len(ending.body or b"") + len(ending.record or b"") > PIECE:
            pieces = {
                "body": await self._store_ahead(id, "body", ending.body or b""),
                "record": await self._store_ahead(id, "record", ending.record or b""),
            }
            ending = msgspec.structs.replace(ending, body=None, record=None)
        size = _ending_size(ending) + beside
        await self.wait_for_room(id)
        all_of_it = partial(make, id, ending, self.server, pieces)
        result = await self._writer.submit(all_of_it, size, durable=True, after=id, row=row)
        self._writer.forget(id)
        return result

    async def _store_ahead(self, id: str, field: str, value: bytes) -> int:
        """Stores a field of a response in pieces; returns their number."""
        starts = range(0, len(value), PIECE)
        for number, start in enumerate(starts):
            piece = value[start : start + PIECE]
            make = partial(operations.store_piece, id, self.server, field, number, piece)
            await self._writer.submit(make, len(piece))
        return len(starts)

    async def is_running(self, id: str) -> bool:
        return await self._read(partial(operations.is_running, id))

    async def entry(self, id: str) -> Entry | None:
        return await self._read(partial(operations.entry, id))

    async def owned(self, owner: str, id: str) -> Entry | None:
        return await self._read(partial(operations.owned, owner, id))

    async def delete(self, owner: str, id: str) -> bool:
        return await self._writer.submit(partial(operations.delete, owner, id))

    async def blocks(self, id: str, after_event: int = -1, after_block: int = -1) -> list[Block]:
        return await self._read(partial(operations.blocks, id, after_event, after_block))

    async def extent(self, id: str) -> Extent:
        return await self._read(partial(operations.extent, id))

    async def change_status(self, id: str, status: Status, of: tuple[Status, ...]) -> bool:
        return await self._writer.submit(
            partial(operations.change_status, id, status, of, self.server)
        )

    async def set_answered(self, id: str, next_id: str) -> bool:
        return await self._writer.submit(partial(operations.set_answered, id, next_id))

    async def set_context(self, owner: str, id: str, context: bytes) -> bool:
        make = partial(operations.set_context, owner, id, context)
        return await self._writer.submit(make, len(context))

    async def request_cancel(self, id: str) -> bool:
        return await self._writer.submit(partial(operations.request_cancel, id))

    async def cancel_requests(self) -> set[str]:
        return await self._read(operations.cancel_requests)

    async def entries(self, after: str = "", limit: int = ENTRIES_AT_A_TIME) -> list[Entry]:
        return await self._read(partial(operations.entries, after, limit))

    async def newest(self, owner: str, limit: int = ENTRIES_AT_A_TIME) -> list[Entry]:
        return await self._read(partial(operations.newest, owner, limit))

    async def list_visible(
        self, owner: str, dialect: str, after: Entry | None, limit: int, descending: bool
    ) -> list[Entry]:
        return await self._read(
            partial(operations.list_visible, owner, dialect, after, limit, descending)
        )

    async def responses(
        self, owner: str, matching: ResponseFilter, after: str | None = None, limit: int = 20
    ) -> ResponsePage:
        return await self._read(partial(operations.responses, owner, matching, after, limit))

    async def chain(self, owner: str, id: str) -> list[Entry]:
        return await self._read(partial(operations.chain, owner, id))

    async def prune(
        self,
        before: float,
        logs_before: float,
        reasoning_before: float = 0.0,
        upstream_before: float = 0.0,
    ) -> Pruned:
        entries = await self._in_batches(partial(operations.prune_entries, before))
        logs = await self._in_batches(partial(operations.prune_logs, logs_before))
        reasoning = await self._in_batches(partial(operations.prune_reasoning, reasoning_before))
        ended_runs = await self._in_batches(partial(runs.prune_runs, before))
        upstream = await self._in_batches(partial(operations.prune_upstream, upstream_before))
        return Pruned(entries, logs, reasoning, ended_runs, upstream)

    async def _in_batches(self, some: Callable[[], Queries[int]]) -> int:
        """Runs it until nothing is left: in batches, so that others do not wait long."""
        total = 0
        while count := await self._writer.submit(some):
            total += count
        return total

    # What upstreams sent

    async def save_upstream(self, blocks: Sequence[tuple[str, UpstreamBlock]]) -> None:
        # Some at a time: what one transaction carries is bounded.
        some: list[tuple[str, UpstreamBlock]] = []
        size = 0
        for place, block in enumerate(blocks, 1):
            some.append(block)
            size += len(block[1].data)
            if size >= PIECE or place == len(blocks):
                await self._writer.submit(partial(operations.save_upstream, some), size)
                some, size = [], 0

    async def upstream(self, id: str, after: int = -1) -> list[UpstreamBlock]:
        return await self._read(partial(operations.upstream, id, after))

    # Runs. A claim and its renewals need no sync to disk: SQLite can lose them only together with
    # every process that could hold the lease. All else was promised to somebody.

    async def create_run(self, new: NewRun) -> str:
        make = partial(runs.create_run, new)
        size, row = _event_size(new.events), new.key or new.id
        return await self._writer.submit(make, size, durable=True, row=row)

    async def append_run(self, append: RunAppend) -> RunWrite:
        make = partial(runs.append_run, append, self.server)
        size = _event_size(append.events)
        return await self._writer.submit(make, size, durable=True, row=append.run)

    async def transact(self, append: RunAppend, make: Effects) -> RunWrite:
        both = partial(runs.transact, append, make, self.server)
        size = _event_size(append.events)
        written = await self._writer.submit(both, size, durable=True, row=append.run)
        if isinstance(written, runs.Undone):
            raise written.error
        return written

    async def claim_run(self, id: str, lease: float) -> RunClaim:
        return await self._writer.submit(partial(runs.claim_run, id, self.server, lease), row=id)

    async def renew_run(self, id: str, epoch: int, lease: float) -> bool:
        make = partial(runs.renew_run, id, epoch, self.server, lease)
        return await self._writer.submit(make, row=id)

    async def release_run(
        self,
        id: str,
        epoch: int,
        at: int,
        status: str,
        due: float | None,
        beside: Beside | None = None,
    ) -> bool:
        make = partial(runs.release_run, id, epoch, self.server, at, status, due, beside)
        return await self._writer.submit(make, durable=True, row=id)

    async def due_runs(
        self,
        limit: int = ENTRIES_AT_A_TIME,
        agents: Collection[str] | None = None,
        patience: float = 0.0,
    ) -> list[str]:
        return await self._read(partial(runs.due_runs, limit, agents, patience))

    async def overdue(self, id: str) -> float:
        return await self._read(partial(runs.overdue, id))

    async def next_due(self) -> float | None:
        return await self._read(runs.next_due)

    async def count_runs(self) -> dict[str, int]:
        return await self._read(runs.count_runs)

    async def run(self, id: str) -> RunRow | None:
        return await self._read(partial(runs.run, id))

    async def owned_run(self, owner: str, id: str) -> RunRow | None:
        return await self._read(partial(runs.owned_run, owner, id))

    async def last_events(self, ids: Sequence[str]) -> dict[str, int]:
        return await self._read(partial(runs.last_events, ids))

    async def run_of_key(self, owner: str, key: str) -> str | None:
        return await self._read(partial(runs.run_of_key, owner, key))

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
        make = partial(runs.runs, owner, status, agent, after, limit, descending, parent)
        return await self._read(make)

    async def run_events(
        self,
        id: str,
        after: int = 0,
        limit: int = EVENTS_AT_A_TIME,
        kinds: Sequence[str] | None = None,
    ) -> list[RunEvent]:
        return await self._read(partial(runs.run_events, id, after, limit, kinds))

    async def delete_run(self, owner: str, id: str) -> bool:
        return await self._writer.submit(partial(runs.delete_run, owner, id), row=id)

    # Background responses

    async def due_jobs(self, limit: int = ENTRIES_AT_A_TIME) -> list[str]:
        return await self._read(partial(jobs.due_jobs, limit))

    async def claim_job(self, id: str) -> JobClaim:
        server = await self.ensure_lease()
        claim = await self._writer.submit(partial(jobs.claim_job, id, server), row=id)
        if claim.outcome == "claimed":
            self._writer.forget(id)  # what was dropped of it when it was another server's
        return claim

    async def release_job(
        self, id: str, after: float = 0.0, tries: int = 0, beside: Beside | None = None
    ) -> bool:
        make = partial(jobs.release_job, id, self.server, after, tries, beside)
        return await self._writer.submit(make, durable=True, row=id)

    # Reasoning

    async def save_reasoning(self, owner: str, calls: Sequence[CallReasoning]) -> None:
        if calls:
            size = sum(len(one.data) for one in calls)
            await self._writer.submit(partial(operations.save_reasoning, owner, calls), size)

    async def load_reasoning(
        self, owner: str, calls: Sequence[str], since: float
    ) -> dict[str, CallReasoning]:
        if not calls:
            return {}
        found = await self._read(partial(operations.load_reasoning, owner, calls, since))
        return {one.call: one for one in found}

    # Servers

    def journal_path(self, journal: str) -> Path:
        """The file of a usage journal, where other processes on this machine can see it."""
        return self._database.journal_path(journal)

    @property
    def server(self) -> str:
        return self._leases.server

    async def take_lease(self, length: float) -> None:
        await self._leases.take(length)

    async def renew_lease(self) -> None:
        await self._leases.renew()

    async def ensure_lease(self) -> str:
        return await self._leases.ensure()

    async def revoke_dead(self) -> None:
        await self._leases.revoke_dead()

    async def orphans(self) -> list[tuple[str, str]]:
        return await self._read(operations.orphans)

    async def take_over(self, id: str, of: str) -> bool:
        return await self._writer.submit(partial(operations.take_over, id, self.server, of))

    async def begin_recovery(self, id: str) -> int | None:
        return await self._writer.submit(partial(operations.begin_recovery, id, self.server))

    # Conversations

    async def create_conversation(
        self, conversation: Conversation, items: Sequence[Item] = ()
    ) -> None:
        size = len(conversation.metadata) + sum(len(item.data) for item in items)
        make = partial(conversations.create_conversation, conversation, items)
        await self._writer.submit(make, size)

    async def conversation(self, owner: str, id: str) -> Conversation | None:
        return await self._read(partial(conversations.conversation, owner, id))

    async def conversations(
        self, owner: str, after: str | None = None, limit: int = 20
    ) -> ConversationPage:
        return await self._read(partial(conversations.conversations, owner, after, limit))

    async def every_conversation(
        self, after: str = "", limit: int = ENTRIES_AT_A_TIME
    ) -> list[Conversation]:
        return await self._read(partial(conversations.every_conversation, after, limit))

    async def fork_conversation(
        self, conversation: Conversation, of: str, upto: str | None = None
    ) -> None:
        make = partial(conversations.fork_conversation, conversation, of, upto)
        await self._writer.submit(make, len(conversation.metadata))

    async def set_metadata(self, owner: str, id: str, metadata: bytes) -> bool:
        make = partial(conversations.set_metadata, owner, id, metadata)
        return await self._writer.submit(make, len(metadata))

    async def delete_conversation(self, owner: str, id: str) -> bool:
        return await self._writer.submit(partial(conversations.delete_conversation, owner, id))

    async def add_items(self, id: str, items: Sequence[Item]) -> None:
        size = sum(len(item.data) for item in items)
        await self._writer.submit(partial(conversations.add_items, id, items), size)

    async def items(
        self,
        id: str,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        descending: bool = False,
    ) -> Page:
        return await self._read(partial(conversations.items, id, after, before, limit, descending))

    async def item(self, id: str, item_id: str) -> Item | None:
        return await self._read(partial(conversations.item, id, item_id))

    async def delete_item(self, id: str, item_id: str) -> bool:
        return await self._writer.submit(partial(conversations.delete_item, id, item_id))


def _ending_size(ending: Ending) -> int:
    size = len(ending.body or b"") + len(ending.record or b"")
    size += sum([len(item.data) for item in ending.items])
    return size if ending.rest is None else size + len(ending.rest.data)


def _event_size(events: Sequence[NewEvent]) -> int:
    return sum(len(body) for _, body in events)
