"""The only place where ids are minted or derived.

Ids come from a seed, so that equal input gives equal bytes. The relay seeds from the system,
the command line from the capture.
"""

from collections.abc import Container
from hashlib import blake2b


class Ids:
    """Mints ids for one response. Equal seeds mint equal ids in equal order."""

    __slots__ = ("_counts", "_seed")

    def __init__(self, seed: bytes = b"") -> None:
        self._seed = blake2b(seed, digest_size=16).digest()
        self._counts: dict[str, int] = {}

    def mint(self, prefix: str) -> str:
        """Returns `<prefix>_<32 hex digits>`, another one at each call."""
        number = self._count(prefix)
        text = f"{prefix}:{number}".encode()
        return f"{prefix}_{blake2b(text, digest_size=16, key=self._seed).hexdigest()}"

    def local(self, prefix: str) -> str:
        """Returns `<prefix>_<n>`, unique in this response only: for parts without a wire id."""
        return f"{prefix}_{self._count('local ' + prefix)}"

    def _count(self, prefix: str) -> int:
        number = self._counts.get(prefix, 0)
        self._counts[prefix] = number + 1
        return number


def distinct(wanted: str, taken: Container[str]) -> str:
    """Returns `wanted`, or `wanted_2`, `wanted_3` … if that is taken."""
    if wanted not in taken:
        return wanted
    number = 2
    while f"{wanted}_{number}" in taken:
        number += 1
    return f"{wanted}_{number}"
