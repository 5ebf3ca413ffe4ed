"""State that outlives a request: the turns it continues, runs without a client, and responses of
processes that died.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from weft import large_json
from weft.assembler import Assembler
from weft.codec import fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest, InternalError
from weft.findings import Findings
from weft.gateway.apis import RESPONSES
from weft.gateway.auth import HttpRejection
from weft.gateway.endpoints import Preamble
from weft.gateway.keepalive_timer import KeepaliveTimer
from weft.gateway.memory import MemoryReservation, json_cost
from weft.parts import ErrorPart, Json, ResponseMetadata
from weft.relay import history
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, StorePolicy
from weft.relay.log import POLL_INTERVAL, follow
from weft.relay.offload import SMALL, for_body, for_items, offload
from weft.relay.orphans import recover_orphans
from weft.relay.persistence import (
    TAKEN_OVER,
    Persistence,
    last_snapshot,
    recover_ending,
    with_status,
)
from weft.relay.reasoning import LIFETIME
from weft.relay.rendering import encoder_of
from weft.relay.run import CLIENT_DISCONNECTED, Run
from weft.sse import Event
from weft.store.base import Kind, Store, StoreError
from weft.store.records import Entry, JobClaim

CANCEL_POLL = 0.5
"""Seconds between two polls for cancellations by other processes."""

RENEWALS_PER_LEASE = 8
"""How often a lease is renewed before it expires, and how often those of others are checked."""

PRUNE_INTERVAL = 3600.0
"""Seconds between two removals of expired responses."""

READERS = 2
"""Requests that read at the same time what they continue."""

ITEM_REFERENCE = "item_reference"
REFERENCE_TURNS = 100
"""The last turns, whose items a request can reference."""

CANCEL_WAIT = 10.0
"""Seconds to wait for a cancelled response to end."""

CANCELLED = ErrorPart("cancelled", "the response was cancelled")
SHUTTING_DOWN = new_error("overloaded", "the server is shutting down", retry_after=1)
RUNNING = ("queued", "in_progress")
_OWN_FIELDS = ("previous_response_id", "conversation", "background")
"""Fields that the gateway handles itself: no upstream gets them."""

log = logging.getLogger("weft.gateway")


class ResponsesPreamble(Preamble):
    """The fields of a request that say what it continues, and what to store."""

    input: Json = UNSET
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Json = UNSET


class _ConversationReference(msgspec.Struct):
    id: str


parse_preamble = large_json.skimmer(ResponsesPreamble)
_named = msgspec.json.Decoder(_ConversationReference).decode
_name = msgspec.json.Decoder(str).decode
_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Which responses are stored, and for how long."""

    everything: bool = False
    """Whether responses are stored without `store`, too; those cannot be retrieved."""

    retention: float = 0.0
    """Seconds after which a response is removed; 0: never."""

    log_retention: float = 0.0
    """Seconds after which its log is removed; 0: never."""

    lease: float = 15.0
    """Seconds without a renewal after which another process takes over."""

    upstream_retention: float = 0.0
    """Seconds after which it is removed what an upstream sent; 0: with the response."""


DEFAULT_POLICY = RetentionPolicy()


class Sessions:
    """The state of one process. `start` before the first request, `close` after the last."""

    def __init__(
        self,
        persistence: Persistence,
        window: float = 0.0,
        policy: RetentionPolicy = DEFAULT_POLICY,
        keepalive: float = 0.0,
    ) -> None:
        """`window`: seconds that a response goes on without followers. `keepalive`: seconds without
        an event after which a detached run writes a keepalive, if its dialect has an event for it.
        """
        self.persistence = persistence
        self._policy = policy
        self._pruned = 0.0
        """When expired responses were removed last."""
        self.window = window
        self.keepalive = keepalive
        # How large a history is, is known only when it was read. So few are read at a time, and
        # memory is reserved for each before the next one is read.
        self.reading = asyncio.Semaphore(READERS)
        """Held while a stored history is in memory that is not reserved."""
        self._followers: dict[str, int] = {}
        self._runs: Collection[Run] = ()
        self._detached_runs: set[Run] = set()
        """Runs without a client: they go on for their followers."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._maintenance: list[asyncio.Task[None]] = []
        self._lease: asyncio.Task[None] | None = None
        self._server = ""
        """The id of this process at the last renewal of its lease."""
        self.cancel_begun: Callable[[Entry], Awaitable[None]] | None = None
        """Stops what a dead process has begun for a response, and what goes on without it."""
        self.lease_error: Kind | None = None
        """Why the last renewal of the lease failed; None if it did not."""

    @property
    def store(self) -> Store:
        return self.persistence.store

    # Maintenance

    async def start(self, runs: Collection[Run]) -> None:
        """`runs` always holds all runs of this process."""
        self._runs = runs
        await self.store.open()
        await self.store.take_lease(self._policy.lease)
        self._server = self.store.server
        create_task = asyncio.get_running_loop().create_task
        often = self._policy.lease / RENEWALS_PER_LEASE
        # A task of its own: recovery and pruning may take longer than a lease lasts, and `close`
        # needs the lease until the last run has stored its end.
        self._lease = create_task(_repeat(often, self._keep_lease))
        for pause, work in (
            (CANCEL_POLL, self._poll_cancellations),
            (often, partial(recover_orphans, self.persistence)),
            (often, self._prune),
        ):
            self._maintenance.append(create_task(_repeat(pause, work)))

    async def close(self, before_store: Callable[[], Awaitable[None]] | None = None) -> None:
        """`before_store` is called when all runs have ended, before the store is closed."""
        # First: nothing may be taken over from others that could not be ended any more.
        for task in self._maintenance:
            task.cancel()
        for run in list(self._running.values()):
            run.stop(SHUTTING_DOWN)
        if self._tasks:
            # What does not end in time is left `in_progress`; another process, or the next start,
            # ends it.
            await asyncio.wait(self._tasks, timeout=CANCEL_WAIT)
        if before_store is not None:
            await before_store()
        await self.persistence.recordings.close()
        if self._lease is not None:
            self._lease.cancel()
        await self.store.close()

    async def _keep_lease(self) -> None:
        """Renews the lease of this process, and stops the runs that others took over while it
        seemed dead."""
        try:
            await self.store.renew_lease()
        except StoreError as problem:
            self.lease_error = problem.kind
            raise
        self.lease_error = None
        # The store took a new lease under a new id, since the old one was revoked.
        if self.store.server != self._server:
            self._server = self.store.server
            log.warning("the lease had expired: another server took over the responses of this one")
        # Their writes are refused by now (the rows name another server), so their clients would get
        # a stream whose end is never stored.
        for run in self._running.values():
            if run.writer is not None and run.writer.server != self._server:
                run.stop(TAKEN_OVER)

    async def _poll_cancellations(self) -> None:
        """Stops the runs that were cancelled through another process."""
        # An idle process need not ask the database twice a second.
        if self._runs:
            for id in await self.store.cancel_requests():
                self._stop(id)

    async def _prune(self) -> None:
        """Removes expired responses, once in a while."""
        now, policy = time.time(), self._policy
        # Called often, works rarely: a failed round is repeated soon, not an hour later.
        if now - self._pruned < PRUNE_INTERVAL:
            return
        await self.store.prune(
            now - policy.retention if policy.retention else 0.0,
            now - policy.log_retention if policy.log_retention else 0.0,
            now - LIFETIME,
            now - policy.upstream_retention if policy.upstream_retention else 0.0,
        )
        self._pruned = now

    # Requests

    async def with_history(
        self,
        incoming: IncomingRequest,
        preamble: ResponsesPreamble,
        reserved: MemoryReservation | None = None,
    ) -> IncomingRequest:
        """Adds the turns that a request continues, which count in `reserved`. Raises RequestFailed,
        BadRequest, StoreError."""
        conversation = _conversation_id(preamble.conversation)
        if preamble.previous_response_id is not None and conversation is not None:
            raise BadRequest("previous_response_id", "not allowed together with conversation")
        # There would be nothing to poll.
        if preamble.background and preamble.store is False:
            raise BadRequest("background", "requires store: true")
        raw = incoming.body.raw
        new, has_references = await for_body(raw, _input_items, preamble)
        if has_references:
            async with self.reading:
                new = await self._resolve_references(incoming.caller, new, reserved)
        body, items, previous = raw, new, preamble.previous_response_id
        if previous is not None or conversation is not None:
            async with self.reading:
                if previous is not None:
                    earlier = await self._previous_items(incoming.caller, previous)
                else:
                    earlier = await self._conversation_items(incoming.caller, conversation or "")
                await _reserve(reserved, earlier)
            items = await for_items(len(earlier) + len(new), history.with_results, earlier, new)
        # Otherwise the body goes on as it came: to render it anew would cost time, and change its
        # bytes. (A text that only mentions item_reference is rendered in vain.)
        if items is not new or preamble.background or ITEM_REFERENCE.encode() in body:
            whole = partial(history.with_input, body, items, *_OWN_FIELDS)
            body = await (for_body(raw, whole) if items is new else for_items(len(items), whole))
        visible = preamble.store is not False
        # With `store: false` a turn of a conversation is stored all the same, but cannot be
        # retrieved.
        is_stored = visible or conversation is not None or self._policy.everything
        # Only what is new: earlier turns are in their own entries, and would otherwise be stored
        # again with every turn.
        stored_input = await for_body(raw, _json, new) if is_stored else b""
        policy = StorePolicy(raw, stored_input, visible) if is_stored else None
        return replace(
            incoming,
            body=incoming.body if body is raw else RequestBody(RESPONSES, body),
            previous=previous,
            conversation=conversation,
            before=len(items) - len(new),
            background=bool(preamble.background),
            # A background response is announced before its request goes upstream; all others get
            # the id that their encoder makes.
            response_id=fresh_context().ids.mint("resp") if preamble.background else None,
            created=int(time.time()),
            store=policy,
        )

    def with_store_policy(self, incoming: IncomingRequest) -> IncomingRequest:
        """Returns a request with what is to be stored of it, if that is not decided yet."""
        if incoming.store is not None or incoming.body.dialect == RESPONSES:
            return incoming
        visible = incoming.dialect.stores and bool(incoming.body.parsed.request.store)
        if not (visible or incoming.resumable or self._policy.everything):
            return incoming
        # Ids of upstreams may repeat, so a stream is resumed by one of ours.
        key = fresh_context().ids.mint("log") if incoming.resumable and not visible else None
        policy = StorePolicy(incoming.body.raw, visible=visible, key=key)
        return replace(incoming, store=policy)

    async def _resolve_references(
        self, owner: str, items: list[Raw], reserved: MemoryReservation | None
    ) -> list[Raw]:
        """Replaces item references by the items of the last turns. Raises HttpRejection."""
        known: dict[str, Raw] = {}
        for turn in await self.store.newest(owner, REFERENCE_TURNS):
            if _is_continuable(turn):
                known |= await for_body(max(turn.input, turn.body or b"", key=len), _by_id, turn)
        resolved: dict[int, Raw] = {}
        for index, one in enumerate(items):
            item = history.read_shape(one)
            if item.type != ITEM_REFERENCE:
                continue
            if item.id is None or item.id not in known:
                message = f"Item with id '{str(item.id)[:100]}' not found."
                raise HttpRejection(404, new_error("bad-request", message, param=f"input[{index}]"))
            resolved[index] = known[item.id]
        known.clear()
        await _reserve(reserved, resolved)
        return [resolved.get(index, one) for index, one in enumerate(items)]

    async def _previous_items(self, owner: str, id: str) -> list[Raw]:
        turns = await self.store.chain(owner, id)
        # A chain that begins with a `previous` is cut: that turn was deleted, belongs to another
        # key, or lies further back than the store reads. To continue without it would silently drop
        # a part of the conversation.
        if not turns or turns[0].previous is not None or not all(map(_is_continuable, turns)):
            raise RequestFailed(previous_not_found(id))
        if turns[-1].status in RUNNING:
            raise BadRequest("previous_response_id", f"{id} is still {turns[-1].status}")
        size = sum(len(turn.input) + len(turn.body or b"") for turn in turns)
        work = partial(history.items_of_turns, turns)
        return await offload(work) if size > SMALL else await for_items(len(turns), work)

    async def _conversation_items(self, owner: str, id: str) -> list[Raw]:
        if await self.store.conversation(owner, id) is None:
            message = f"Conversation with id '{id[:100]}' not found."
            raise HttpRejection(404, new_error("bad-request", message, param="conversation"))
        items: list[Raw] = []
        after: str | None = None
        while True:
            page = await self.store.items(id, after, None, 100)
            items += [Raw(one.data) for one in page.items]
            if not page.more:
                return items
            after = page.items[-1].id

    # Detached runs

    def drive_background(
        self,
        run: Run,
        ended: Callable[[Run], None],
        give_back: Callable[[str], Awaitable[None]],
    ) -> asyncio.Task[None]:
        """Runs a response that was announced. If this process stops before anything of it is
        stored, it is given back instead of ended."""
        return self._detach(DetachedRun(self, run, ended, give_back), run)

    async def detach(self, run: Run, ended: Callable[[Run], None]) -> str:
        """Runs a response independently of its client; returns its id once it has begun. Raises
        RequestFailed.
        """
        detached = DetachedRun(self, run, ended)
        self._detach(detached, run)
        try:
            # The future belongs to the run: a client that leaves may not cancel it.
            return await asyncio.shield(detached.begun)
        except asyncio.CancelledError:
            run.stop(CLIENT_DISCONNECTED)
            raise

    def _detach(self, detached: "DetachedRun", run: Run) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(detached.drive())
        self._detached_runs.add(run)
        # The loop holds tasks only weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._detached_runs.discard(run))
        return task

    @property
    def _running(self) -> dict[str, Run]:
        """The stored runs of this process, by response id."""
        stored = ((run, run.writer) for run in self._runs)
        return {one.log.id: run for run, one in stored if one is not None and one.running}

    def _stop(self, id: str) -> bool:
        run = self._running.get(id)
        if run is not None:
            run.stop(CANCELLED)
        return run is not None

    async def cancel(self, entry: Entry) -> None:
        """Cancels a response, wherever it runs; returns when it has ended."""
        # It runs in another process, or is over: the row is where that process looks
        # (_poll_cancellations).
        if not self._stop(entry.id):
            await self.store.request_cancel(entry.id)
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_WAIT):
                # That process may have died, and it may be some time until that is known.
                while (claim := await self._claim(entry.id)).outcome == "held":
                    await asyncio.sleep(POLL_INTERVAL)
                if claim.entry is not None:  # it was queued, or its process has died
                    await self.end_claimed(claim.entry, CANCELLED)
                async for _ in self.events(entry.id):
                    pass

    async def _claim(self, id: str) -> JobClaim:
        """Claims a response in order to end it. Raises StoreError."""
        try:
            return await self.store.claim_job(id)
        except (StoreError, asyncio.CancelledError):
            self.persistence.unfinished.add(id)  # it may be ours, and then nobody else can end it
            raise

    async def end_claimed(self, entry: Entry, error: ErrorPart) -> None:
        """Ends a response that this process has claimed, after what is stored of it. Raises
        StoreError."""
        try:
            if error is CANCELLED and self.cancel_begun is not None:
                await self.cancel_begun(entry)
            await self.store.finish(entry.id, await recover_ending(self.store, entry, error))
        except StoreError:
            self.persistence.unfinished.add(entry.id)  # ended later, since nobody else can
            raise

    async def events(self, id: str, number: int = 0) -> AsyncIterator[list[Event]]:
        """Yields the events of a response from this number on, to its end."""
        self._followers[id] = self._followers.get(id, 0) + 1
        try:
            async for events in follow(self.store, self.persistence.logs, id, number):
                yield events
        finally:
            self._followers[id] -= 1
            if not self._followers[id]:
                del self._followers[id]
                run = self._running.get(id)
                # A background response goes on without followers: that is what it is for.
                if run in self._detached_runs and not run.incoming.background:
                    asyncio.get_running_loop().call_later(self.window, self._stop_unfollowed, id)

    def _stop_unfollowed(self, id: str) -> None:
        run = self._running.get(id)
        # Somebody may have come back within the window.
        if run is not None and id not in self._followers:
            run.stop(CLIENT_DISCONNECTED)


class DetachedRun:
    """A run without a client."""

    def __init__(
        self,
        sessions: Sessions,
        run: Run,
        ended: Callable[[Run], None],
        give_back: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`ended` is called with the run when it is over. `give_back` leaves the response to other
        processes, if they can run it."""
        self._sessions = sessions
        self._run = run
        self._ended = ended
        self._give_back = give_back
        self.begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The response id, once there is an event; or the error before it."""

    async def drive(self) -> None:
        run, sessions = self._run, self._sessions
        writer = run.writer
        if writer is None:
            raise InternalError("a run that is not stored cannot be detached")
        timer = KeepaliveTimer(sessions.keepalive, self._keepalive)

        def taken(events: list[Event]) -> bool:
            """Nothing is written here, so there is always room."""
            timer.reset()
            return True

        try:
            if writer.has_begun:
                self._set_begun(writer.log.id)
                # Only from `queued`: a cancellation may have come first.
                await sessions.store.change_status(writer.log.id, "in_progress", ("queued",))
            stream = await run.open()
            while events := await stream.next():
                self._set_begun(writer.log.id)
                taken(events)
                await stream.flow(taken)
        except RequestFailed as failed:
            await self._failed(failed)
        except Exception as problem:
            log.error("internal error in a detached run", exc_info=problem)
            await self._failed(RequestFailed(new_error("server", "internal error")))
        finally:
            timer.stop()
            with suppress(StoreError):
                await run.close()
            self._ended(run)

    def _keepalive(self) -> None:
        """If the dialect has an event for it, followers get it from the log."""
        self._run.keepalive()

    def _set_begun(self, id: str) -> None:
        if not self.begun.done():
            self.begun.set_result(id)

    async def _failed(self, failed: RequestFailed) -> None:
        if not self.begun.done():
            self.begun.set_exception(failed)
            self.begun.exception()  # retrieved here, since the client may have disconnected
        run, give_back = self._run, self._give_back
        if run.stopped_by is None:
            run.note_failure(failed.error)
        writer, is_stopping = run.writer, run.stopped_by is SHUTTING_DOWN
        with suppress(StoreError):
            if give_back and is_stopping and writer is not None and not writer.log.events:
                id = writer.log.id
                writer.let_go()
                await give_back(id)
            else:
                await run.fail(failed.error)


async def _repeat(pause: float, work: Callable[[], Awaitable[None]]) -> None:
    """Works at once and again after each pause; a failure is logged, and may pass."""
    while True:
        try:
            await work()
        except StoreError as problem:
            log.warning("store error: %s", problem)
        except Exception as problem:
            log.error("maintenance of the store failed", exc_info=problem)
        await asyncio.sleep(pause)


async def _reserve(reserved: MemoryReservation | None, items: list[Raw] | dict[int, Raw]) -> None:
    """Reserves memory for items that were read. Raises HttpRejection."""
    if reserved is None or not items:
        return
    found = list(items.values()) if isinstance(items, dict) else items
    is_small = sum(map(len, found)) <= SMALL
    cost = json_cost(found) if is_small else await offload(json_cost, found)
    try:
        reserved.reserve_more(cost)
    except HttpRejection:
        # The error keeps every frame on its way, and whoever answers with it keeps the error.
        items.clear()
        found.clear()
        raise


def _is_continuable(turn: Entry) -> bool:
    return turn.visible and turn.dialect == RESPONSES


def _conversation_id(value: Json) -> str | None:
    if not isinstance(value, Raw) or bytes(value) == b"null":
        return None
    try:
        # The API accepts `"conv_1"` and `{"id": "conv_1"}`.
        return _name(value) if bytes(value)[:1] == b'"' else _named(value).id
    except ValueError:
        raise BadRequest("conversation", "expected an id, or an object with one") from None


def _input_items(preamble: ResponsesPreamble) -> tuple[list[Raw], bool]:
    """The input items of a request, and whether some are references. Raises BadRequest."""
    items = history.input_items(preamble.input)
    return items, ITEM_REFERENCE in [one.type for one in history.read_shapes(items)]


def _by_id(turn: Entry) -> dict[str, Raw]:
    """The items of a turn that have an id."""
    return {id: one for one in history.items_of_turns([turn]) if (id := history.read_shape(one).id)}


def input_items_of(body: bytes) -> list[Raw]:
    return history.input_items(parse_preamble(body).input)


def previous_not_found(id: str) -> ErrorPart:
    """The error for a previous response that does not exist, or belongs to another key."""
    # OpenAI's words and code: clients look for them, and then send the whole conversation.
    message = f"Previous response with id '{id[:100]}' not found."
    error = new_error("not-found", message, param="previous_response_id")
    return msgspec.structs.replace(error, code="previous_response_not_found")


def queued_snapshot(incoming: IncomingRequest) -> bytes:
    """The first snapshot of a background response. Raises BadRequest."""
    if incoming.store is None:
        raise InternalError("a response that is not stored cannot be queued")
    request = RequestBody(RESPONSES, incoming.store.request).parsed.request
    context = Context(request, response_id=incoming.response_id, created=incoming.created)
    encoder = encoder_of(DIALECTS[RESPONSES], context, Assembler(), Findings())
    events = encoder.feed([ResponseMetadata("", model=incoming.model)])
    return with_status(last_snapshot(events) or b"{}", "queued")
