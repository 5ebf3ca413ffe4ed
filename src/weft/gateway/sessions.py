"""What the gateway remembers: which earlier turns a request goes on from, what runs without its
client, and what a process that died left behind.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Assembler
from weft.codec import fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest, InternalError
from weft.findings import Findings
from weft.gateway.doors import Shut
from weft.gateway.endpoints import Preamble
from weft.gateway.pulse import Pulse
from weft.parts import ErrorPart, Json, ResponseMetadata
from weft.relay import history
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, StorePolicy
from weft.relay.log import follow
from weft.relay.offload import SMALL, for_body, for_items, offload
from weft.relay.persistence import (
    TAKEN_OVER,
    Persistence,
    last_snapshot,
    recover_ending,
    unread_ending,
    with_status,
)
from weft.relay.reasoning import LIFETIME
from weft.relay.rendering import encoder_of
from weft.relay.run import Run
from weft.sse import Event
from weft.store.base import Kind, Store, StoreError
from weft.store.records import Entry

DIALECT: Final = "openai-responses"
COMPLETIONS = "openai-chat"
CANCEL_POLL = 0.5
"""Seconds between two looks at what others want stopped here."""

RENEWALS = 8
"""Of a lease, before it runs out: and as often, a look at those of others."""

RECOVERIES = 3
"""How often it is tried to end what a dead process left, before it is ended unread."""

OUT_OF_REACH = frozenset({"busy", "full", "lost", "closed"})
"""Why nothing can be stored for now, whatever it is."""

PRUNE = 3600.0
"""Seconds between two removals of what is old."""

REFERENCE = "item_reference"
REFERRED = 100
"""Turns whose items a request can name by their ids."""

CANCEL_WAIT = 10.0
"""Seconds to wait until a response that another process runs has stopped."""

GONE = ErrorPart("cancelled", "the client went away")
CANCELLED = ErrorPart("cancelled", "the response was cancelled")
SHUTTING_DOWN = new_error("overloaded", "the server is shutting down", retry_after=1)
RUNNING = ("queued", "in_progress")
_OURS = ("previous_response_id", "conversation", "background")
"""Fields that are looked after here: no upstream is asked for them."""

log = logging.getLogger("weft.gateway")


class ResponsesPreamble(Preamble):
    """As much of a request as says what it goes on from, and what to store."""

    input: Json = UNSET
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Json = UNSET


class _Named(msgspec.Struct):
    id: str


preamble_of = msgspec.json.Decoder(ResponsesPreamble).decode
_named = msgspec.json.Decoder(_Named).decode
_name = msgspec.json.Decoder(str).decode
_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Policy:
    """What is kept, and for how long."""

    everything: bool = False
    """Whether answers are kept that nobody asked to keep; only those that were can be retrieved."""

    retention: float = 0.0
    """Seconds after which an answer is removed; 0: never."""

    log_retention: float = 0.0
    """Seconds after which its log is."""

    lease: float = 15.0
    """Seconds that a server can be silent before another ends what it runs."""


KEEP = Policy()


class Sessions:
    """What one process remembers. `start` before the first request, `close` after the last."""

    def __init__(
        self,
        persistence: Persistence,
        window: float = 0.0,
        policy: Policy = KEEP,
        keepalive: float = 0.0,
    ) -> None:
        """`window`: seconds that a response goes on when nobody listens. `keepalive`: seconds of
        silence after which one without a client of its own tells that it still goes on.
        """
        self._persistence = persistence
        self._policy = policy
        self._pruned = 0.0
        """When what is old was removed last."""
        self.window = window
        self.keepalive = keepalive
        self._followers: dict[str, int] = {}
        self._runs: Collection[Run] = ()
        self._alone: set[Run] = set()
        """Those without a client of their own: they go on for whoever follows."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._care: list[asyncio.Task[None]] = []
        self._lease: asyncio.Task[None] | None = None
        self._server = ""
        """The id that this process had when its lease was renewed last."""
        self.trouble: Kind | None = None
        """Why the lease could not be renewed the last time; None: it was."""

    @property
    def store(self) -> Store:
        return self._persistence.store

    @property
    def persistence(self) -> Persistence:
        return self._persistence

    # The process

    async def start(self, runs: Collection[Run]) -> None:
        """`runs` are all that are under way in this process, at any time."""
        self._runs = runs
        await self.store.open()
        await self.store.take_lease(self._policy.lease)
        self._server = self.store.server
        create_task, often = asyncio.get_running_loop().create_task, self._policy.lease / RENEWALS
        self._lease = create_task(_repeat(often, self._keep_lease))
        for pause, work in (
            (CANCEL_POLL, self._poll_cancellations),
            (often, self._recover_orphans),
            (often, self._prune),
        ):
            self._care.append(create_task(_repeat(pause, work)))

    async def close(self) -> None:
        for task in self._care:
            task.cancel()
        for run in list(self._running.values()):
            run.stop(SHUTTING_DOWN)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_WAIT)
        if self._lease is not None:
            self._lease.cancel()
        await self.store.close()

    async def _keep_lease(self) -> None:
        """Renews the lease of this process, whatever else there is to do, and stops what was taken
        from it while it was held for dead."""
        try:
            await self.store.renew_lease()
        except StoreError as problem:
            self.trouble = problem.kind
            raise
        self.trouble = None
        if self.store.server != self._server:
            self._server = self.store.server
            log.warning("another server held this one for dead and took over what it ran")
        for run in self._running.values():
            if run.writer is not None and run.writer.server != self._server:
                run.stop(TAKEN_OVER)

    async def _poll_cancellations(self) -> None:
        """Stops what another process was asked to stop."""
        if self._runs:
            for id in await self.store.cancel_requests():
                self._stop(id)

    async def _recover_orphans(self) -> None:
        """Ends what processes that died had not ended, and what the store took no end of: each on
        its own, so that one that cannot be ended keeps no other from it."""
        persistence = self._persistence
        await self.store.revoke_dead()
        for id, server in await self.store.orphans():
            if await self.store.take_over(id, server):
                persistence.unfinished.add(id)
        for id in list(persistence.unfinished):
            try:
                await self._recover(id)
            except StoreError as problem:
                if problem.kind in OUT_OF_REACH:
                    raise
                log.warning("response %s could not be recovered: %s", id, problem)
            except Exception as problem:
                log.error("response %s could not be recovered", id, exc_info=problem)
            else:
                persistence.unfinished.discard(id)

    async def _recover(self, id: str) -> None:
        tries = await self.store.begin_recovery(id)
        entry = await self.store.entry(id) if tries is not None else None
        if tries is None or entry is None:
            return
        work = recover_ending if tries <= RECOVERIES else unread_ending
        await self.store.finish(id, await work(self.store, entry))

    async def _prune(self) -> None:
        """Removes what is old, from time to time."""
        now, policy = time.time(), self._policy
        if now - self._pruned < PRUNE:
            return
        await self.store.prune(
            now - policy.retention if policy.retention else 0.0,
            now - policy.log_retention if policy.log_retention else 0.0,
            now - LIFETIME,
        )
        self._pruned = now

    # Requests

    async def recalled(self, incoming: IncomingRequest, wish: ResponsesPreamble) -> IncomingRequest:
        """A request with what was said before. Raises RequestFailed, BadRequest, StoreError."""
        conversation = _conversation(wish.conversation)
        if wish.previous_response_id is not None and conversation is not None:
            message = "not together with conversation"
            raise BadRequest("previous_response_id", message)
        if wish.background and wish.store is False:
            raise BadRequest("background", "what is not stored cannot run in the background")
        raw = incoming.body.raw
        new, has_references = await for_body(raw, _given, wish)
        if has_references:
            new = await self._resolved(incoming.caller, new)
        body, items = raw, new
        if wish.previous_response_id is not None:
            turns = await self._turns(incoming.caller, wish.previous_response_id)
            items = await for_items(len(turns) + len(new), history.with_results, turns, new)
        elif conversation is not None:
            said = await self._items(incoming.caller, conversation)
            items = await for_items(len(said) + len(new), history.with_results, said, new)
        if items is not new or wish.background or REFERENCE.encode() in body:
            whole = partial(history.with_input, body, items, *_OURS)
            body = await (for_body(raw, whole) if items is new else for_items(len(items), whole))
        visible = wish.store is not False
        is_kept = visible or conversation is not None or self._policy.everything
        kept = await for_body(raw, _json, new) if is_kept else b""
        policy = StorePolicy(raw, kept, visible) if is_kept else None
        return replace(
            incoming,
            body=incoming.body if body is raw else RequestBody(DIALECT, body),
            previous=wish.previous_response_id,
            conversation=conversation,
            before=len(items) - len(new),
            background=bool(wish.background),
            response_id=fresh_context().ids.mint("resp") if wish.background else None,
            created=int(time.time()),
            store=policy,
        )

    def with_policy(self, incoming: IncomingRequest) -> IncomingRequest:
        """A request with what is stored of it, if that was not settled before."""
        if incoming.store is not None or incoming.body.dialect == DIALECT:
            return incoming
        visible = incoming.dialect.stores and bool(incoming.body.parsed.request.store)
        if not (visible or incoming.resumable or self._policy.everything):
            return incoming
        # Ids of upstreams may repeat: a stream is resumed by one that does not.
        key = fresh_context().ids.mint("log") if incoming.resumable and not visible else None
        policy = StorePolicy(incoming.body.raw, visible=visible, key=key)
        return replace(incoming, store=policy)

    async def _resolved(self, owner: str, items: list[Raw]) -> list[Raw]:
        """Items that are named by their ids, as they were said in one of the last turns."""
        known: dict[str, Raw] = {}
        for turn in await self.store.newest(owner, REFERRED):
            if _can_go_on(turn):
                known |= await for_body(max(turn.input, turn.body or b"", key=len), _by_id, turn)
        found: list[Raw] = []
        for place, one in enumerate(items):
            told = history.read_shape(one)
            if told.type == REFERENCE and told.id not in known:
                message = f"Item with id '{str(told.id)[:100]}' not found."
                raise Shut(404, new_error("bad-request", message, param=f"input[{place}]"))
            found.append(known[told.id] if told.type == REFERENCE and told.id else one)
        return found

    async def _turns(self, owner: str, id: str) -> list[Raw]:
        turns = await self.store.chain(owner, id)
        if not turns or turns[0].previous is not None or not all(map(_can_go_on, turns)):
            raise RequestFailed(unknown(id))
        if turns[-1].status in RUNNING:
            raise BadRequest("previous_response_id", f"{id} is still {turns[-1].status}")
        size = sum(len(turn.input) + len(turn.body or b"") for turn in turns)
        work = partial(history.items_of_turns, turns)
        return await offload(work) if size > SMALL else await for_items(len(turns), work)

    async def _items(self, owner: str, id: str) -> list[Raw]:
        if await self.store.conversation(owner, id) is None:
            message = f"Conversation with id '{id[:100]}' not found."
            raise Shut(404, new_error("bad-request", message, param="conversation"))
        items: list[Raw] = []
        after: str | None = None
        while True:
            page = await self.store.items(id, after, None, 100)
            items += [Raw(one.data) for one in page.items]
            if not page.more:
                return items
            after = page.items[-1].id

    # What runs without its client

    async def launch(
        self, run: Run, incoming: IncomingRequest, ended: Callable[[Run], None]
    ) -> bytes:
        """Has a response run on its own; returns what its client is told of it at once. `ended` is
        called with the run when it is over. Raises StoreError.
        """
        writer, id = run.writer, incoming.response_id
        if writer is None or id is None:
            raise InternalError("a response in the background has no id")
        snapshot = await for_body(incoming.body.raw, queued, incoming)
        await writer.announce(id, "queued", snapshot)
        self._detached(run, ended)
        return snapshot

    async def detach(self, run: Run, ended: Callable[[Run], None]) -> str:
        """Has a response run whether its client stays or not; returns its id once it has begun.
        Raises RequestFailed.
        """
        driving = self._detached(run, ended)
        try:
            return await asyncio.shield(driving.begun)
        except asyncio.CancelledError:
            run.stop(GONE)
            raise

    def _detached(self, run: Run, ended: Callable[[Run], None]) -> "DetachedRun":
        driving = DetachedRun(self, run, ended)
        task = asyncio.get_running_loop().create_task(driving.drive())
        self._alone.add(run)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._over(run, done))
        return driving

    def _over(self, run: Run, task: asyncio.Task[None]) -> None:
        self._alone.discard(run)
        self._tasks.discard(task)

    @property
    def _running(self) -> dict[str, Run]:
        """What runs here and is stored, by its id."""
        stored = ((run, run.writer) for run in self._runs)
        return {one.log.id: run for run, one in stored if one is not None and one.running}

    def _stop(self, id: str) -> bool:
        run = self._running.get(id)
        if run is not None:
            run.stop(CANCELLED)
        return run is not None

    async def cancel(self, entry: Entry) -> None:
        """Has a response stopped, wherever it runs; returns when it has."""
        if not self._stop(entry.id):
            await self.store.request_cancel(entry.id)
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_WAIT):
                async for _ in self.events(entry.id):
                    pass

    async def events(self, id: str, number: int = 0) -> AsyncIterator[list[Event]]:
        """The events of a response from this one on, to its end."""
        self._followers[id] = self._followers.get(id, 0) + 1
        try:
            async for events in follow(self.store, self._persistence.logs, id, number):
                yield events
        finally:
            self._followers[id] -= 1
            if not self._followers[id]:
                del self._followers[id]
                self._abandoned(id)

    def _abandoned(self, id: str) -> None:
        """Nobody listens any more: what need not go on has a while until it is stopped."""
        run = self._running.get(id)
        if run in self._alone and not run.incoming.background:
            asyncio.get_running_loop().call_later(self.window, self._give_up, id)

    def _give_up(self, id: str) -> None:
        run = self._running.get(id)
        if run is not None and id not in self._followers:
            run.stop(GONE)


class DetachedRun:
    """A run without a client of its own."""

    def __init__(self, sessions: Sessions, run: Run, ended: Callable[[Run], None]) -> None:
        self._sessions = sessions
        self._run = run
        self._ended = ended
        self.begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The id, once there is something to tell; or why there never will be."""

    async def drive(self) -> None:
        run, sessions = self._run, self._sessions
        writer = run.writer
        if writer is None:
            raise InternalError("what is not stored cannot be followed")
        pulse = Pulse(sessions.keepalive, self._tell_of_life)

        def taken(events: list[Event]) -> bool:
            """There is always room where nobody reads."""
            pulse.said()
            return True

        try:
            if writer.has_begun:
                self._begun(writer.log.id)
                await sessions.store.change_status(writer.log.id, "in_progress", ("queued",))
            stream = await run.open()
            while events := await stream.next():
                self._begun(writer.log.id)
                taken(events)
                await stream.flow(taken)
        except RequestFailed as failed:
            await self._failed(failed.error, failed)
        except Exception as problem:
            log.error("a response without a client failed", exc_info=problem)
            error = new_error("server", "an error of our own")
            await self._failed(error, RequestFailed(error))
        finally:
            pulse.stop()
            with suppress(StoreError):
                await run.close()
            self._ended(run)

    def _tell_of_life(self) -> None:
        """Where that is an event, whoever follows sees it in the log."""
        self._run.keepalive()

    def _begun(self, id: str) -> None:
        if not self.begun.done():
            self.begun.set_result(id)

    async def _failed(self, error: ErrorPart, failed: RequestFailed) -> None:
        if not self.begun.done():
            self.begun.set_exception(failed)
            self.begun.exception()  # its client may have left
        with suppress(StoreError):
            await self._run.fail(error)


async def _repeat(pause: float, work: Callable[[], Awaitable[None]]) -> None:
    """Does it at once and again after each pause, whatever becomes of it: it may pass."""
    while True:
        try:
            await work()
        except StoreError as problem:
            log.warning("the store: %s", problem)
        except Exception as problem:
            log.error("the store could not be looked after", exc_info=problem)
        await asyncio.sleep(pause)


def _can_go_on(turn: Entry) -> bool:
    return turn.visible and turn.dialect == DIALECT


def _conversation(told: Json) -> str | None:
    if not isinstance(told, Raw) or bytes(told) == b"null":
        return None
    try:
        return _name(told) if bytes(told)[:1] == b'"' else _named(told).id
    except ValueError:
        raise BadRequest("conversation", "expected an id, or an object with one") from None


def _given(wish: ResponsesPreamble) -> tuple[list[Raw], bool]:
    """The items of a request, and whether some are named by their ids. Raises BadRequest."""
    items = history.input_items(wish.input)
    return items, any(history.read_shape(one).type == REFERENCE for one in items)


def _by_id(turn: Entry) -> dict[str, Raw]:
    """The items of a turn that have an id."""
    return {id: one for one in history.items_of_turns([turn]) if (id := history.read_shape(one).id)}


def given_in(body: bytes) -> list[Raw]:
    return history.input_items(preamble_of(body).input)


def unknown(id: str) -> ErrorPart:
    """What a client is told of a response that is not there, or not its own."""
    message = f"Previous response with id '{id[:100]}' not found."
    error = new_error("not-found", message, param="previous_response_id")
    return msgspec.structs.replace(error, code="previous_response_not_found")


def queued(incoming: IncomingRequest) -> bytes:
    """The first snapshot of a response that has not begun. Raises BadRequest."""
    if incoming.store is None:
        raise InternalError("what is not stored cannot wait")
    request = RequestBody(DIALECT, incoming.store.request).parsed.request
    context = Context(request, response_id=incoming.response_id, created=incoming.created)
    encoder = encoder_of(DIALECTS[DIALECT], context, Assembler(), Findings())
    events = encoder.feed([ResponseMetadata("", model=incoming.model)])
    return with_status(last_snapshot(events) or b"{}", "queued")
