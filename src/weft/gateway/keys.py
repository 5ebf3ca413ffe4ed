"""Client keys: those of the settings, and those in the store.

Requests are checked against a copy in memory, by the digest of the key. The copy is compared with
the store once a second, so that a key that was revoked through another process is refused soon; if
the store cannot be read, the copy stays as it is. A key that is not in it is looked up at once, but
not more often than a few times per second, whoever asks.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest

import msgspec

from weft.dialects.error_classes import new_error
from weft.gateway.auth import HttpRejection
from weft.gateway.settings.schema import KeyRules
from weft.gateway.settings.secrets import ClientKey
from weft.store.accounts import Accounts, StoredKey
from weft.store.base import StoreError

PREFIX = "sk-weft-"
"""How new keys begin: some clients insist on `sk-`, and tools that look for leaked keys know it."""

HINT = 4
REFRESH = 1.0
"""Seconds between two comparisons with the store."""

LOOKUP = 0.2
"""Seconds between two lookups of unknown keys."""

log = logging.getLogger("weft.gateway")


NO_RULES = KeyRules()


class Client(msgspec.Struct, frozen=True):
    """Somebody with a key. Without keys, everybody is the client with the empty name."""

    name: str
    digest: bytes = b""
    rules: KeyRules = NO_RULES

    def may_use(self, model: str) -> bool:
        """Whether the key may use a model, by the name that clients use."""
        patterns = self.rules.models
        return patterns is None or _matches(model, patterns)

    def check_model(self, model: str) -> None:
        """Raises HttpRejection if the key may not use a model."""
        patterns = self.rules.models
        if patterns is not None and not _matches(model, patterns):
            message = f"this API key may not use the model {model[:100]!r}"
            raise HttpRejection(403, new_error("permission", message, param="model"))


_ANYBODY = Client("")


@lru_cache(maxsize=1024)
def _matches(model: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(model, one) for one in patterns)


def new_key(name: str, rules: KeyRules) -> tuple[str, StoredKey]:
    """Returns a new key, and what is stored of it."""
    key = PREFIX + secrets.token_urlsafe(32)
    stored = StoredKey(
        name, digest_of(key.encode()).hex(), key[-HINT:], time.time(), None, encode_rules(rules)
    )
    return key, stored


def digest_of(key: bytes) -> bytes:
    # A key has 256 random bits, so no slow hash is needed: nobody can try them all.
    return sha256(key).digest()


encode_rules = msgspec.json.Encoder().encode
decode_rules = msgspec.json.Decoder(KeyRules).decode


class KeyRing:
    """The keys that are valid now."""

    def __init__(self, keys: Iterable[ClientKey], accounts: Accounts | None) -> None:
        self._own: list[Client] = []
        self._stored: list[StoredKey] = []
        self._removed: set[str] = set()
        """Names of keys that the settings had before."""
        self._accounts = accounts
        self._revision = 0
        self._revoked: frozenset[str] = frozenset()
        self._looked = 0.0
        """When an unknown key was looked up last, by the clock of the event loop."""
        self.update(keys)

    def update(self, keys: Iterable[ClientKey]) -> None:
        """Replaces the keys of the settings."""
        self._removed |= {one.name for one in self._own}
        self._own = [
            Client(key.name, digest_of(key.secret.reveal().encode()), key.rules) for key in keys
        ]
        self._apply()

    def _apply(self) -> None:
        stored = self._stored
        valid = [
            Client(one.name, bytes.fromhex(one.digest), decode_rules(one.rules))
            for one in stored
            if one.revoked is None
        ]
        clients = [*valid, *self._own]  # the settings win
        self._by_digest = {one.digest: one for one in clients}
        self._by_name = {one.name: one for one in clients}
        gone = {one.name for one in stored if one.revoked is not None}
        self._revoked = frozenset((gone | self._removed) - self._by_name.keys())
        self.is_open = not (self._own or self._removed or stored)
        """Whether there has never been a key, so that none is needed. If all keys were revoked,
        nobody may come in."""

    def find_name(self, key: bytes) -> str | None:
        """The name of the client with this key."""
        digest = digest_of(key)
        # How long the lookup takes depends on the digest alone, which tells nothing of the key.
        client = self._by_digest.get(digest)
        found = client is not None and compare_digest(client.digest, digest)
        return client.name if client is not None and found else None

    def client(self, name: str) -> Client:
        """The client with this name, whose key was accepted before. Raises HttpRejection if it was
        revoked since: a WebSocket, or the run of an agent, may be older than that."""
        if name in self._revoked:
            raise HttpRejection(401, new_error("auth", "this API key was revoked"))
        return self._by_name.get(name) or (Client(name) if name else _ANYBODY)

    async def refresh(self) -> bool:
        """Compares the keys with the store; returns whether they have changed. Raises
        StoreError."""
        if self._accounts is None:
            return False
        revision = await self._accounts.revision()
        if revision == self._revision:
            return False
        self._stored = await self._accounts.keys()
        self._apply()
        self._revision = revision
        return True

    async def look_up(self) -> bool:
        """As `refresh`, for a key that is not known."""
        now = asyncio.get_running_loop().time()
        if self._accounts is None or now - self._looked < LOOKUP:
            return False
        self._looked = now
        try:
            return await self.refresh()
        except StoreError:
            return False

    async def keep_fresh(self) -> None:
        """Refreshes the keys again and again."""
        while True:
            await asyncio.sleep(REFRESH)
            try:
                await self.refresh()
            except StoreError as problem:
                log.warning("client keys cannot be read: %s", problem)
            except Exception as problem:
                log.error("client keys cannot be read", exc_info=problem)
