"""Work that takes long is done beside the event loop, in one thread.

However much of it there is, the loop shares the interpreter with that thread alone, and waits at
most `SWITCH` seconds for it. What runs there must be made of short steps: a single call into C,
such as a regular expression over all of a large text, lets nobody else run until it is over.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SWITCH = 0.0001
"""Seconds until the thread is asked to let the loop run."""

SMALL = 64 * 1024
"""Bytes of JSON that may be read on the loop, if they are few objects."""

FEW = 100
"""Objects. To read or to render one takes up to 50 µs."""

_thread = ThreadPoolExecutor(1, "offload", sys.setswitchinterval, (SWITCH,))


def is_small(body: bytes) -> bool:
    """Whether a JSON body is read or rendered in a few milliseconds."""
    return len(body) <= SMALL and body.count(b"{") <= FEW


async def offload(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Does it in the thread. Who is cancelled goes on when it is over, or was not begun: nothing is
    changed behind anybody's back.
    """
    job = _thread.submit(work, *args, **kwargs)
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


async def for_body(body: bytes, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Does work that grows with a JSON body: at once if the body is small."""
    if is_small(body):
        return work(*args, **kwargs)
    return await offload(work, *args, **kwargs)
