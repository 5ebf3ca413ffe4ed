"""Whether objects are freed by the counting of references alone, without the garbage collector."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def counting_only() -> Iterator[None]:
    """While inside, reference cycles stay; what was there before is collected first."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(*kinds: type) -> Counter[str]:
    """How many objects of these classes there are, by class."""
    found = (type(one) for one in gc.get_objects() if issubclass(type(one), kinds))
    return Counter(kind.__name__ for kind in found)
