"""Work that takes long is done beside the event loop: in one thread what is large, in another what
is huge, so that the one does not wait for the other.

However much of it there is, the loop shares the interpreter with these two alone, and waits at most
`SWITCH` seconds for either. What runs there must be made of short steps: a single call into C, such
as a regular expression over all of a large text, lets nobody else run until it is over.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SWITCH = 0.0001
"""Seconds until a thread is asked to let the loop run."""

SMALL = 64 * 1024
"""Bytes of JSON that may be read on the loop, if they are few objects."""

FEW = 100
"""Objects. To read or to render one takes up to 50 µs."""

HUGE = 1024 * 1024
"""Bytes of JSON over which work has a thread of its own."""

_large = ThreadPoolExecutor(1, "offload-large", sys.setswitchinterval, (SWITCH,))
_huge = ThreadPoolExecutor(1, "offload-huge", sys.setswitchinterval, (SWITCH,))


def is_small(body: bytes) -> bool:
    """Whether a JSON body is read or rendered in a few milliseconds."""
    return len(body) <= SMALL and body.count(b"{") <= FEW


async def offload(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Does it in the thread for what is large. Who is cancelled goes on when it is over, or was not
    begun: nothing is changed behind anybody's back.
    """
    return await _done(_large.submit(work, *args, **kwargs))


async def _done(job: "Future[T]") -> T:
    future = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        job.cancel()
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((future,))
        if not future.cancelled():
            future.exception()  # nobody asks for it any more
        raise


async def for_items(count: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Does work that grows with a number of items: at once if they are few."""
    if count <= FEW:
        return work(*args, **kwargs)
    return await offload(work, *args, **kwargs)


async def for_body(body: bytes, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Does work that grows with a JSON body: at once if the body is small."""
    if is_small(body):
        return work(*args, **kwargs)
    thread = _huge if len(body) > HUGE else _large
    return await _done(thread.submit(work, *args, **kwargs))
