"""What the gateway remembers: which earlier turns a request goes on from, what runs without its
client, and what a process that died left behind.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Assembler
from weft.codec import fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.faults import fault
from weft.errors import BadRequest, InternalError
from weft.findings import Findings
from weft.gateway.doors import Shut
from weft.gateway.endpoints import read_as
from weft.parts import ErrorPart, Json, ResponseMetadata
from weft.relay import history, recovery
from weft.relay.asked import Asked, Failed, Kept, codec_of
from weft.relay.keeping import Keeper, ending, told, with_status
from weft.relay.log import follow
from weft.relay.run import Run
from weft.store.base import Store, StoreError
from weft.store.records import Block, Entry

DIALECT = "openai-responses"
BEAT = 2.0
"""Seconds between two signs of life of this process."""

DEAD = 15.0
"""Seconds without one after which what a process left is ended by another."""

CANCEL_WAIT = 10.0
"""Seconds to wait until a response that another process runs has stopped."""

GONE = ErrorPart("cancelled", "the client went away")
CANCELLED = ErrorPart("cancelled", "the response was cancelled")
LEAVING = fault("overloaded", "the server is shutting down", retry_after=1)
RUNNING = ("queued", "in_progress")

log = logging.getLogger("weft.gateway")


class _Wish(msgspec.Struct):
    """As much of a request as says what to remember."""

    input: Json = UNSET
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Json = UNSET


class _Named(msgspec.Struct):
    id: str


_wish = msgspec.json.Decoder(_Wish).decode
_named = msgspec.json.Decoder(_Named).decode
_name = msgspec.json.Decoder(str).decode
_json = msgspec.json.Encoder().encode


class Memory:
    """One process's memory. `start` before the first request, `close` after the last."""

    def __init__(self, keeper: Keeper, window: float = 0.0) -> None:
        """`window`: seconds that a response goes on when nobody listens."""
        self._keeper = keeper
        self.window = window
        self._followers: dict[str, int] = {}
        self._runs: dict[str, Run] = {}
        """Of responses that are kept and run here, by their id."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._care: asyncio.Task[None] | None = None

    @property
    def store(self) -> Store:
        return self._keeper.store

    @property
    def keeper(self) -> Keeper:
        return self._keeper

    # The process

    async def start(self) -> None:
        await self.store.open()
        await self._beat()
        await self._bury()
        self._care = asyncio.get_running_loop().create_task(self._look_after())

    async def close(self) -> None:
        if self._care is not None:
            self._care.cancel()
        for run in self._runs.values():
            run.stop(LEAVING)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_WAIT)
        await self.store.close()

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(BEAT / 4)
            try:
                await self._heed()
                await self._beat()
                await self._bury()
            except StoreError as problem:
                log.warning("the store: %s", problem)

    async def _beat(self) -> None:
        keeper = self._keeper
        await self.store.beat(keeper.server, keeper.host, os.getpid(), time.time())

    async def _heed(self) -> None:
        """Stops what another process was asked to stop."""
        if self._runs:
            for id in await self.store.cancelling(list(self._runs)):
                self._stop(id)

    async def _bury(self) -> None:
        """Ends what processes that died had not ended."""
        keeper = self._keeper
        for entry in await self.store.orphans(time.time(), DEAD, self._is_alive):
            if entry.server != keeper.server and await self.store.adopt(
                entry.id, keeper.server, entry.server
            ):
                await self._end(entry)

    def _is_alive(self, host: str, pid: int) -> bool:
        if host != self._keeper.host:
            return True  # as far as can be seen from here
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    async def _end(self, entry: Entry) -> None:
        blocks = await all_blocks(self.store, entry.id)
        logged = b"".join(block.data for block in blocks)
        last, response = recovery.ended(entry, logged)
        number = blocks[-1].number + 1 if blocks else 0
        first = blocks[-1].first + blocks[-1].count if blocks else 0
        self.store.append(entry.id, Block(number, first, last.count(b"\n\n"), last))
        await self.store.finish(entry.id, ending(entry, logged + last, response))

    # Requests

    async def recalled(self, asked: Asked) -> Asked:
        """A request with what was said before. Raises Failed, BadRequest, StoreError."""
        wish = read_as(_wish, asked.body)
        conversation = _conversation(wish.conversation)
        if wish.previous_response_id is not None and conversation is not None:
            message = "not together with conversation"
            raise BadRequest("previous_response_id", message)
        if wish.background and wish.store is False:
            raise BadRequest("background", "what is not stored cannot run in the background")
        new = history.given(wish.input)
        body = asked.body
        if wish.previous_response_id is not None:
            before = await self._turns(asked.caller, wish.previous_response_id)
            body = history.with_input(body, history.joined(before, new), "previous_response_id")
        elif conversation is not None:
            before = await self._items(asked.caller, conversation)
            body = history.with_input(body, history.joined(before, new), "conversation")
        if wish.background:
            body = history.with_input(body, given_in(body), "background")
        kept = None if wish.store is False else Kept(asked.body, _json(new))
        return replace(
            asked,
            body=body,
            previous=wish.previous_response_id,
            conversation=conversation,
            background=bool(wish.background),
            response_id=fresh_context().ids.mint("resp") if wish.background else None,
            kept=kept,
        )

    async def _turns(self, owner: str, id: str) -> list[Raw]:
        turns = await self.store.chain(owner, id)
        if not turns or turns[0].previous is not None or not all(one.visible for one in turns):
            raise Failed(unknown(id))
        if turns[-1].status in RUNNING:
            raise BadRequest("previous_response_id", f"{id} is still {turns[-1].status}")
        return history.said(turns)

    async def _items(self, owner: str, id: str) -> list[Raw]:
        if await self.store.conversation(owner, id) is None:
            message = f"Conversation with id '{id[:100]}' not found."
            raise Shut(404, fault("bad-request", message, param="conversation"))
        items: list[Raw] = []
        after: str | None = None
        while True:
            page = await self.store.items(id, after, None, 100)
            items += [Raw(one.data) for one in page.items]
            if not page.more:
                return items
            after = page.items[-1].id

    # What runs without its client

    async def launch(self, run: Run, asked: Asked, ended: Callable[[Run], None]) -> bytes:
        """Has a response run on its own; returns what its client is told of it at once. `ended` is
        called with the run when it is over. Raises StoreError.
        """
        keeping, id = run.keeping, asked.response_id
        if keeping is None or id is None:
            raise InternalError("a response in the background has no id")
        snapshot = queued(asked)
        await keeping.announce(id, "queued", snapshot)
        self._detached(run, ended)
        return snapshot

    async def detach(self, run: Run, ended: Callable[[Run], None]) -> str:
        """Has a response run whether its client stays or not; returns its id once it has begun.
        Raises Failed.
        """
        driving = self._detached(run, ended)
        try:
            return await asyncio.shield(driving.begun)
        except asyncio.CancelledError:
            run.stop(GONE)
            raise

    def _detached(self, run: Run, ended: Callable[[Run], None]) -> "_Driving":
        driving = _Driving(self, run, ended)
        task = asyncio.get_running_loop().create_task(driving.drive())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return driving

    def remember(self, id: str, run: Run) -> None:
        """This one runs here, under this id."""
        self._runs[id] = run

    def forget(self, id: str) -> None:
        self._runs.pop(id, None)

    def _stop(self, id: str) -> bool:
        run = self._runs.get(id)
        if run is not None:
            run.stop(CANCELLED)
        return run is not None

    async def cancel(self, entry: Entry) -> None:
        """Has a response stopped, wherever it runs; returns when it has."""
        if not self._stop(entry.id):
            await self.store.ask_cancel(entry.id)
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_WAIT):
                async for _ in self.events(entry.id):
                    pass

    async def events(self, id: str, number: int = 0) -> AsyncIterator[bytes]:
        """The events of a response from this one on, to its end."""
        self._followers[id] = self._followers.get(id, 0) + 1
        try:
            async for block in follow(self.store, self._keeper.logs, id, number):
                yield block
        finally:
            self._followers[id] -= 1
            if not self._followers[id]:
                del self._followers[id]
                self._abandoned(id)

    def _abandoned(self, id: str) -> None:
        """Nobody listens any more: what need not go on has a while until it is stopped."""
        run = self._runs.get(id)
        if run is not None and not run.background:
            asyncio.get_running_loop().call_later(self.window, self._give_up, id)

    def _give_up(self, id: str) -> None:
        run = self._runs.get(id)
        if run is not None and id not in self._followers:
            run.stop(GONE)


class _Driving:
    """A run without a client of its own."""

    def __init__(self, memory: Memory, run: Run, ended: Callable[[Run], None]) -> None:
        self._memory = memory
        self._run = run
        self._ended = ended
        self.begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The id, once there is something to tell; or why there never will be."""

    async def drive(self) -> None:
        run, memory = self._run, self._memory
        keeping = run.keeping
        if keeping is None:
            raise InternalError("what is not stored cannot be followed")
        try:
            if keeping.begun:
                self._begun(keeping.log.id)
                await memory.store.change(keeping.log.id, "in_progress", ("queued",))
            await run.open()
            while await run.next():
                self._begun(keeping.log.id)
                await run.flow(_anything)
        except Failed as failed:
            await self._failed(failed.error, failed)
        except Exception as problem:
            log.error("a response without a client failed", exc_info=problem)
            error = fault("server", "an error of our own")
            await self._failed(error, Failed(error))
        finally:
            if keeping.begun:
                memory.forget(keeping.log.id)
            with suppress(StoreError):
                await run.close()
            self._ended(run)

    def _begun(self, id: str) -> None:
        if not self.begun.done():
            self._memory.remember(id, self._run)
            self.begun.set_result(id)

    async def _failed(self, error: ErrorPart, failed: Failed) -> None:
        if not self.begun.done():
            self.begun.set_exception(failed)
            self.begun.exception()  # its client may have left
        with suppress(StoreError):
            await self._run.fail(error)


def _anything(block: bytes) -> bool:
    """There is always room where nobody reads."""
    return True


def _conversation(told: Json) -> str | None:
    if not isinstance(told, Raw) or bytes(told) == b"null":
        return None
    try:
        return _name(told) if bytes(told)[:1] == b'"' else _named(told).id
    except ValueError:
        raise BadRequest("conversation", "expected an id, or an object with one") from None


def given_in(body: bytes) -> list[Raw]:
    return history.given(_wish(body).input)


def unknown(id: str) -> ErrorPart:
    """What a client is told of a response that is not there, or not its own."""
    error = fault(
        "not-found",
        f"Previous response with id '{id[:100]}' not found.",
        param="previous_response_id",
    )
    return msgspec.structs.replace(error, status=400, code="previous_response_not_found")


def queued(asked: Asked) -> bytes:
    """The first snapshot of a response that has not begun."""
    if asked.kept is None:
        raise InternalError("what is not stored cannot wait")
    request = codec_of(DIALECT).parse(asked.kept.request, Context()).request
    context = Context(request, now=int(time.time()), response_id=asked.response_id)
    writer = DIALECTS[DIALECT].encoder
    if writer is None:
        raise InternalError(f"{DIALECT} cannot be written")
    events = writer(context, Assembler(), Findings()).feed(
        [ResponseMetadata("", model=asked.model)]
    )
    return with_status(told(b"".join(events)) or b"{}", "queued")


async def all_blocks(store: Store, id: str) -> list[Block]:
    """The whole log of a response."""
    found: list[Block] = []
    while blocks := await store.blocks(id, found[-1].first + found[-1].count - 1 if found else -1):
        found += blocks
    return found
