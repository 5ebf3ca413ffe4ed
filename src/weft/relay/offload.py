"""Runs long work outside the event loop: in one thread for large values, another for huge ones, and
a third for what is looked at (traces and comparisons), so that the former do not wait for the
latter.

However much work there is, the event loop shares the interpreter with these three threads only, and
waits at most `SWITCH` seconds for each. What runs there must consist of short steps: one long
call into C, such as a regular expression over a large text, does not release the interpreter.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# CPython's default is 5 ms, for each thread that is busy, whenever the event loop wants to run.
SWITCH = 0.0001
"""Seconds after which a thread must release the interpreter."""

SMALL = 64 * 1024
"""Bytes of JSON that may be parsed on the event loop, if they hold few objects."""

FEW = 100
"""Objects. To parse or render one takes up to 50 µs."""

HUGE = 1024 * 1024
"""Bytes of JSON above which the second thread is used."""

# The interval belongs to the process, not to a thread: it is set when the first of them starts, and
# a process that never offloads keeps the default.
_large = ThreadPoolExecutor(1, "offload-large", sys.setswitchinterval, (SWITCH,))
_huge = ThreadPoolExecutor(1, "offload-huge", sys.setswitchinterval, (SWITCH,))
_inspection = ThreadPoolExecutor(1, "offload-inspection", sys.setswitchinterval, (SWITCH,))


def is_small(body: bytes) -> bool:
    """Whether a JSON body is parsed or rendered in a few milliseconds."""
    return len(body) <= SMALL and body.count(b"{") <= FEW


async def offload(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `work` in the thread for large values. A caller that is cancelled continues when the
    work has ended, or was not begun: nothing runs on behind its back.
    """
    return await _done(_large.submit(work, *args, **kwargs))


async def offload_inspection(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same in the thread for traces, which may take minutes and keep no request waiting."""
    return await _done(_inspection.submit(work, *args, **kwargs))


async def _done(job: "Future[T]") -> T:
    future = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        job.cancel()
        # The work may hold the only reference to what it changes (a pipe, a log); whoever cleans up
        # after the cancellation must not run beside it.
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((future,))
        if not future.cancelled():
            future.exception()  # marks it as retrieved
        raise


async def for_items(count: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs work that grows with a number of items: on the event loop if they are few."""
    if count <= FEW:
        return work(*args, **kwargs)
    return await offload(work, *args, **kwargs)


async def for_body(body: bytes, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs work that grows with a JSON body: on the event loop if the body is small."""
    if len(body) <= SMALL and body.count(b"{") <= FEW:  # is_small
        return work(*args, **kwargs)
    thread = _huge if len(body) > HUGE else _large
    return await _done(thread.submit(work, *args, **kwargs))
