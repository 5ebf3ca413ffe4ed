"""Whether objects are freed by the counting of references alone, without the garbage collector."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def counting_only() -> Iterator[None]:
    """While inside, reference cycles stay. What was there before is collected first, and what is
    left of it is not looked at again: late in a session of tests that would take seconds."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(*kinds: type) -> Counter[str]:
    """How many objects of these classes were made since, by class."""
    found = (type(one) for one in gc.get_objects() if issubclass(type(one), kinds))
    return Counter(kind.__name__ for kind in found)
