"""How the C library gives memory to the process.

glibc takes every block over 32 MB from the kernel and returns it as soon as it is free. The kernel
fills such a block page by page while it is first written: for a string of 60 MB that takes longer
than the copy itself, about 70 ms on a virtual machine, and no other thread runs meanwhile. Here
freed blocks are used again instead: mostly 6 to 12 ms, once the memory was used for the first time.
What is free at last goes back to the kernel when the server has had nothing to do for a while.

Has no effect where there is another C library, and changes nothing where the environment says how
memory is to be allocated.
"""

import ctypes
import os
from collections.abc import Callable, Mapping

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of mallopt(3)."""

KEPT = 1024 * 1024 * 1024
"""Bytes that stay with the process when they are free. To return 480 MB takes 28 ms, which is not
for the moment in which they are freed: no other thread runs then."""

_OWN_BLOCK = 1024 * 1024 * 1024
"""Bytes of a block that is still returned as soon as it is free."""


def reuse_large_blocks(environment: Mapping[str, str] = os.environ) -> bool:
    """Has freed blocks used again; returns whether it could. Call it before there are threads."""
    mallopt = _function("mallopt")
    if mallopt is None or is_configured(environment):
        return False
    # One arena: those of further threads cannot hold a block over 64 MB, which then is not reused.
    mallopt(_ARENA_MAX, 1)
    # To set either threshold also stops glibc from adjusting it by itself (mallopt(3)).
    mallopt(_TRIM_THRESHOLD, KEPT)
    return bool(mallopt(_MMAP_THRESHOLD, _OWN_BLOCK))


def is_configured(environment: Mapping[str, str]) -> bool:
    """Whether somebody decided how memory is allocated."""
    by_name = any(name.startswith("MALLOC_") for name in environment)
    return by_name or "glibc.malloc" in environment.get("GLIBC_TUNABLES", "")


def return_free_memory() -> None:
    """Returns what is free to the kernel: 28 ms for 480 MB. Other threads run meanwhile, as long as
    they need no memory.
    """
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Callable[..., int] | None:
    """A function of the C library, if it has it."""
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # no C library to speak of
        return None
