"""The only place where ids are minted or derived.

Ids come from a seed, so that equal input gives equal bytes. The relay seeds from the system,
a capture from its own bytes.
"""

from collections.abc import Mapping
from hashlib import blake2b


class Ids:
    """Mints ids for one response. Equal seeds mint equal ids in equal order."""

    __slots__ = ("_counts", "_seed")

    def __init__(self, seed: bytes = b"") -> None:
        # Hashed to a key of fixed size: blake2b takes keys of at most 64 bytes, and seeds may be
        # longer.
        self._seed = blake2b(seed, digest_size=16).digest()
        self._counts: dict[str, int] = {}

    def mint(self, prefix: str) -> str:
        """Returns `<prefix>_<32 hex digits>`, another one at each call."""
        number = self._counts.get(prefix, 0)
        self._counts[prefix] = number + 1
        text = f"{prefix}:{number}".encode()
        # Keyed, so that nobody can compute the other ids from one: stored responses are fetched by
        # their id.
        return f"{prefix}_{blake2b(text, digest_size=16, key=self._seed).hexdigest()}"

    def local(self, prefix: str) -> str:
        """Returns `<prefix>_<n>`, unique in this response only: for parts without a wire id."""
        key = "local " + prefix
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        return f"{prefix}_{number}"

    def state(self) -> tuple[bytes, dict[str, int]]:
        """What `restored` needs to mint the same ids as this does from here on."""
        return self._seed, dict(self._counts)

    @classmethod
    def restored(cls, seed: bytes, counts: Mapping[str, int]) -> "Ids":
        """The ids whose state this is."""
        ids = cls()
        ids._seed, ids._counts = seed, dict(counts)
        return ids


class CaptureIds(Ids):
    """Mints ids from what was read so far: equal captures get equal ids, read whole or live."""

    __slots__ = ()

    def read(self, data: bytes) -> None:
        """Mixes the data of the next event into the seed."""
        self._seed = blake2b(data, digest_size=16, key=self._seed).digest()


class Claims(dict[str, int]):
    """Ids that are taken in one response. The second of its kind becomes `<id>_2`.

    The value is the number that is tried next: counting from 2 each time takes quadratic time if a
    stream uses one id thousands of times.
    """

    __slots__ = ()

    def claim(self, wanted: str) -> str:
        """Takes the id, or the first one of `wanted_2`, `wanted_3` … that is free."""
        id, number = wanted, 2
        if wanted in self:
            number = self[wanted]
            while (id := f"{wanted}_{number}") in self:
                number += 1
            self[wanted] = number + 1
        self[id] = 2
        return id
