"""One execution of a function, bounded in time: async functions as tasks, others in threads.

Every execution ends in a value: what the function returned, what it raised, or that it is late. A
task that is late is cancelled and awaited. A thread cannot be stopped: it is left behind, with a
line in the log, and another one when it ends at last. It does not hold up the exit of the process.
"""

import asyncio
import contextvars
import inspect
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Generic, ParamSpec, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

CANCEL_GRACE = 5.0
"""Seconds that an async function has to end after it was cancelled."""


@dataclass(frozen=True, slots=True)
class Late:
    """There was no result in time."""

    why: str
    begun: bool
    """False: the function was not called, and will not be."""


@dataclass(frozen=True, slots=True)
class Execution(Generic[T]):
    """How a function is called, and what becomes of its result or its exception.

    `answer` and `error` run where the function does: a large result is encoded in its thread.
    """

    label: str
    """For the log."""

    function: Callable[[], object]
    answer: Callable[[object], T]
    error: Callable[[BaseException], T]
    grace: float = CANCEL_GRACE

    async def run_task(self, timeout: float | None) -> T | Late:
        """Awaits what the function returns. If it is cancelled, the function is cancelled and
        awaited first."""
        # A task of its own rather than `asyncio.timeout`, which would wait forever for a function
        # that swallows its cancellation.
        task = asyncio.ensure_future(self._attempt())
        try:
            await asyncio.wait((task,), timeout=timeout)
        except asyncio.CancelledError:
            await self._cancel(task)
            raise
        if task.done():
            # Nobody else knows the task, so the function must have cancelled itself.
            return self.error(asyncio.CancelledError()) if task.cancelled() else task.result()
        if await self._cancel(task):
            # It ended with a result nevertheless, and the result is what happened.
            return task.result()
        return Late(f"no answer within {timeout:g} s; the call was cancelled", begun=True)

    async def _attempt(self) -> T:
        try:
            result = self.function()
            return self.answer(await result if inspect.isawaitable(result) else result)
        # asyncio lets SystemExit through to the event loop: a tool would end the server.
        except (Exception, SystemExit) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # An exception out of a cancelled function may come from the middle of its effect.
                raise asyncio.CancelledError from error
            return self.error(error)

    async def _cancel(self, task: asyncio.Task[T]) -> bool:
        """Cancels the task and waits for its end. Returns whether it has a result nevertheless."""
        task.cancel()
        await asyncio.wait((task,), timeout=self.grace)
        if not task.done():
            logger.error(
                "%s: still running %g s after it was cancelled; left behind",
                self.label,
                self.grace,
            )
            return False
        return not task.cancelled()

    async def run_thread(self, executor: Executor, timeout: float | None) -> T | Late:
        """Calls the function in a thread. If it is cancelled, the thread is left behind."""
        # With the context variables of the caller, as `asyncio.to_thread` does it.
        job = executor.submit(contextvars.copy_context().run, self._attempt_in_thread)
        waiting = asyncio.wrap_future(job)
        try:
            await asyncio.wait((waiting,), timeout=timeout)
        finally:
            # Only a job that no thread has begun can be cancelled.
            begun = not job.cancel()
            waiting.cancel()
            if not job.done():
                self._leave_behind(job)
        # The job may have ended after the wait and before this line: then its result counts.
        if not begun:
            return Late(f"not begun within {timeout:g} s: all threads for tools are busy", False)
        if not job.done():
            return Late(f"no answer within {timeout:g} s; its thread cannot be stopped", True)
        return job.result()

    def _attempt_in_thread(self) -> T:
        try:
            return self.answer(self.function())
        # Also a CancelledError: it would look like the cancellation of the task that awaits the
        # job.
        except BaseException as error:
            return self.error(error)

    def _leave_behind(self, job: Future[T]) -> None:
        since = time.monotonic()
        logger.warning("%s: its thread cannot be stopped and is left behind", self.label)
        job.add_done_callback(
            lambda _: logger.warning(
                "%s: the thread that was left behind ended %.1f s later",
                self.label,
                time.monotonic() - since,
            )
        )


class ToolThreads(Executor):
    """Up to `limit` threads, started when they are needed. Python waits for the threads of a
    ThreadPoolExecutor before it exits, for ever if a function does not return; not for these."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._unbegun = 0
        """Jobs that no thread has begun."""
        self._idle = 0
        self._is_shut = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Raises RuntimeError after `shutdown`."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            if self._is_shut:
                raise RuntimeError("no calls are begun after the shutdown")
            self._unbegun += 1
            self._jobs.put(job)
            if self._unbegun > self._idle and len(self._threads) < self._limit:
                thread = Thread(target=self._work, name="weft-tool", daemon=True)
                self._threads.append(thread)
                self._idle += 1
                thread.start()
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                self._unbegun -= 1
                self._idle -= 1
            job()
            del job  # and with it the arguments, while the thread waits
            with self._lock:
                self._idle += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads after what was submitted."""
        with self._lock:
            self._is_shut = True
            threads = [*self._threads]
        for _ in threads:
            self._jobs.put(None)
        if wait:
            for thread in threads:
                thread.join()
