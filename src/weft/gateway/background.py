"""Background responses: stored with their request, and run by whichever process has room.

1. The process that accepts a background response runs it itself if it has room. Otherwise it is
   stored for others, and is `queued` until one of them claims it.
2. One process at a time runs a response; `store/jobs.py` says how a claim keeps all others out. The
   dispatcher only says where to look.
3. A response whose process died is asked for again, unless something of it is in the log: the first
   events are stored together with the first content, and what was sent is never taken back. Such a
   response ends as failed, after what had come.
4. A response that cannot be run here (its model is not in the settings) is left to others for a
   while. After some tries it fails, and says why.
"""

import asyncio
import logging
from typing import Protocol

import msgspec
from msgspec.structs import replace

from weft.agent.dispatch import RESPONSES as QUEUE
from weft.agent.dispatch import Dispatcher
from weft.dialects.error_classes import new_error
from weft.errors import InternalError
from weft.gateway.sessions import CANCELLED, SHUTTING_DOWN, Sessions, queued_snapshot
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, StorePolicy
from weft.relay.offload import for_body
from weft.relay.persistence import new_entry
from weft.relay.recovery import INTERRUPTED
from weft.relay.run import Run
from weft.store.base import StoreError
from weft.store.queries import Beside, Queries
from weft.store.records import Entry, JobClaim, NewJob

MAX_TRIES = 3
"""How often a response is claimed before it fails."""

FULL = 1.0
"""Seconds that a response waits for room in this process, until somebody looks again: others may
have room."""

log = logging.getLogger("weft.gateway")


class JobOptions(msgspec.Struct, omit_defaults=True):
    """What a request is made of beside its body and its entry. Headers with keys are not in it."""

    betas: tuple[str, ...] = ()
    version: str | None = None
    reject_lossy: bool = False
    before: int = 0
    created: int | None = None
    tool_session: bool = False
    traceparent: str = ""


_read_options = msgspec.json.Decoder(JobOptions).decode
_json = msgspec.json.Encoder().encode


class RunStarter(Protocol):
    """What is needed of the gateway."""

    def admit(self, incoming: IncomingRequest) -> IncomingRequest:
        """The request as it is run. Raises RequestFailed if it may not."""
        ...

    async def run(self, incoming: IncomingRequest, *, is_new: bool = True) -> Run:
        """A run of an admitted request, which counts if it is new. Raises RequestFailed if no
        upstream has its model, or a limit of its key is reached."""
        ...

    async def check_limits(self, incoming: IncomingRequest) -> None:
        """Counts a request that another process runs. Raises RequestFailed."""
        ...

    def end_run(self, run: Run) -> None: ...


class BackgroundResponses:
    """The background responses of one process."""

    def __init__(
        self,
        starter: RunStarter,
        sessions: Sessions,
        dispatcher: Dispatcher,
        lease: float,
        concurrency: int,
    ) -> None:
        """`lease`: seconds after which others look whether this process has died."""
        self._starter = starter
        self._sessions = sessions
        self._dispatcher = dispatcher
        self._lease = lease
        self._slots = asyncio.Semaphore(concurrency)
        self._here: set[Run] = set()
        self._is_stopping = False

    async def launch(self, incoming: IncomingRequest) -> bytes:
        """Stores a background response, to be run here or elsewhere; returns its first snapshot.
        Raises RequestFailed, BadRequest, AlreadyExists, StoreError."""
        # Streamed from the upstream in any case: so it can be followed, cancelled and recovered.
        incoming = self._starter.admit(replace(incoming, stream=True))
        snapshot = await for_body(incoming.body.raw, queued_snapshot, incoming)
        if self._slots.locked() or self._is_stopping:
            await self._starter.check_limits(incoming)
            policy, id = incoming.store, incoming.response_id
            if policy is None or id is None:
                raise InternalError("a background response has no id")
            entry = new_entry(incoming, policy, id, "queued", snapshot, "")
            await self._sessions.store.begin(entry, (), self._job(incoming, 0, 0.0))
            return snapshot
        await self._slots.acquire()  # at once: nothing else has run since it was not locked
        try:
            run = await self._starter.run(incoming)
        except BaseException:
            self._slots.release()
            raise
        writer, id = run.writer, incoming.response_id
        try:
            if writer is None or id is None:
                raise InternalError("a background response has no id")
            # If this process dies, others find it by themselves, or by this hint.
            await writer.announce(id, "queued", snapshot, self._job(incoming, 1, self._lease))
        except BaseException as problem:
            self._slots.release()
            if isinstance(problem, StoreError):  # else the client has disconnected
                run.note_failure(new_error("server", "the response could not be stored"))
            await run.close()
            self._starter.end_run(run)
            raise
        self._drive(run).add_done_callback(lambda _: self._slots.release())
        return snapshot

    def _job(self, incoming: IncomingRequest, tries: int, after: float) -> NewJob:
        options = JobOptions(
            incoming.betas,
            incoming.version,
            incoming.reject_lossy,
            incoming.before,
            incoming.created,
            incoming.tool_session,
            incoming.traceparent,
        )
        hint = self._hint(incoming.response_id or "", "queued", after)
        return NewJob(body=incoming.body.raw, options=_json(options), tries=tries, beside=hint)

    def _hint(self, id: str, cause: str, after: float = 0.0) -> Beside:
        def beside(_: int) -> Queries[None]:
            return self._dispatcher.wake(QUEUE, id, cause, after)

        return beside

    # Following hints

    async def advance(self, id: str) -> float | None:
        """Runs a response to its end, if nobody does. Returns the seconds after which somebody must
        look again; None: nobody need."""
        try:
            async with asyncio.timeout(FULL):
                await self._slots.acquire()
        except TimeoutError:
            return FULL
        try:
            return await self._claim(id)
        except Exception as problem:
            if isinstance(problem, StoreError):
                log.warning("background response %s: %s", id, problem)
            else:
                log.error("background response %s: internal error", id, exc_info=problem)
            # If it is ours by now, nobody else takes it. If it is not, nothing happens to it.
            self._sessions.persistence.unfinished.add(id)
            return self._lease
        finally:
            self._slots.release()

    async def _claim(self, id: str) -> float | None:
        persistence = self._sessions.persistence
        if self._is_stopping:
            return 0.0
        # It runs here; or did until its lease was lost, and what it wrote last is still on its way.
        if id in persistence.logs or id in persistence.unfinished:
            return self._lease
        claim = await self._sessions.store.claim_job(id)
        if claim.entry is not None:
            return await self._work_on(claim.entry, claim)
        if claim.outcome == "missing":
            return None
        return self._lease if claim.wait is None else claim.wait

    async def _work_on(self, entry: Entry, claim: JobClaim) -> float | None:
        """Does what is to be done with a claimed response. Raises StoreError."""
        error = CANCELLED if entry.cancelling else None
        if error is None and (claim.logged or claim.tries > MAX_TRIES):
            error = INTERRUPTED
        if error is None:
            try:
                run = await self._starter.run(_incoming(entry, claim), is_new=False)
            except RequestFailed as failed:
                if claim.tries < MAX_TRIES:
                    hint = self._hint(entry.id, f"{claim.tries}", self._lease)
                    await self._sessions.store.release_job(entry.id, self._lease, beside=hint)
                    return self._lease
                error = failed.error
        if error is not None:
            await self._sessions.end_claimed(entry, error)
            return None
        if run.writer is not None:
            run.writer.resume(entry)
        await asyncio.wait({self._drive(run)})
        return 0.0 if self._is_stopping else None

    def _drive(self, run: Run) -> "asyncio.Task[None]":
        self._here.add(run)
        if self._is_stopping:
            run.stop(SHUTTING_DOWN)

        def ended(run: Run) -> None:
            self._here.discard(run)
            self._starter.end_run(run)

        return self._sessions.drive_background(run, ended, self._give_back)

    async def _give_back(self, id: str) -> None:
        """Leaves a response to others: this process stops, and nothing of it was stored."""
        # A cause of its own each time: the epoch of a response is its server.
        hint = self._hint(id, f"stopped {self._sessions.store.server}")
        await self._sessions.store.release_job(id, tries=1, beside=hint)

    def drain(self) -> None:
        """Takes no more from the queue."""
        self._is_stopping = True

    def stop(self) -> None:
        """Gives back what has not begun, and ends the rest."""
        self.drain()
        for run in list(self._here):
            run.stop(SHUTTING_DOWN)


def _incoming(entry: Entry, claim: JobClaim) -> IncomingRequest:
    """The request as it was accepted."""
    options = _read_options(claim.options)
    return IncomingRequest(
        RequestBody(entry.dialect, claim.body),
        entry.model,
        stream=True,
        betas=options.betas,
        version=options.version,
        id=entry.id,
        caller=entry.owner,
        reject_lossy=options.reject_lossy,
        previous=entry.previous,
        conversation=entry.conversation,
        before=options.before,
        background=True,
        response_id=entry.id,
        created=options.created,
        store=StorePolicy(entry.request, entry.input, entry.visible),
        tool_session=options.tool_session,
        traceparent=options.traceparent,
    )
