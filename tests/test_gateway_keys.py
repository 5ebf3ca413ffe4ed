"""The keys of clients, as a running gateway knows them."""

import asyncio
from pathlib import Path

import pytest

from weft.gateway.auth import HttpRejection
from weft.gateway.keys import PREFIX, Client, KeyRing, decode_rules, new_key
from weft.gateway.settings.schema import BudgetSettings, KeyRules
from weft.gateway.settings.secrets import ClientKey
from weft.scrub import Scrubber, Secret
from weft.store.urls import store_from_url

RULES = KeyRules(("a/*", "fast"), 5, 6, 7, BudgetSettings(total=1.5))


def test_a_key_is_long_and_random_and_only_its_digest_is_stored() -> None:
    made = [new_key("alice", RULES) for _ in range(50)]
    assert len({key for key, _ in made}) == 50
    for key, stored in made:
        assert key.startswith(PREFIX)
        assert len(key) - len(PREFIX) >= 43  # 256 bits
        assert key not in repr(stored)
        assert key.endswith(stored.hint)
        assert decode_rules(stored.rules) == RULES
        assert key not in Scrubber(())(f"wrong key {key}")


@pytest.mark.parametrize(
    ("model", "is_allowed"),
    [
        ("a/b", True),
        ("a/b/c", True),
        ("fast", True),
        ("faster", False),
        ("A/b", False),
        ("", False),
    ],
)
def test_models_are_allowed_by_the_names_that_clients_use(model: str, is_allowed: bool) -> None:
    client = Client("alice", rules=RULES)
    if is_allowed:
        client.check_model(model)
    else:
        with pytest.raises(HttpRejection) as refused:
            client.check_model(model)
        assert refused.value.status == 403
    Client("bob").check_model(model)


class Loop(asyncio.SelectorEventLoop):
    """Its clock stands still."""

    def time(self) -> float:
        return 1000.0


def test_keys_follow_the_store_and_the_door_never_opens_again(tmp_path: Path) -> None:
    async def play() -> None:
        store = store_from_url(f"sqlite:///{tmp_path / 'store.db'}")
        await store.open()
        ring = KeyRing((), store.accounts)
        assert not await ring.refresh()
        assert ring.is_open
        first, stored = new_key("alice", RULES)
        await store.accounts.create_key(stored)
        assert ring.find_name(first.encode()) is None
        assert await ring.look_up()
        assert (ring.is_open, ring.find_name(first.encode())) == (False, "alice")
        assert ring.client("alice").rules == RULES
        second, other = new_key("alice", RULES)
        await store.accounts.rotate_key("alice", other.digest, other.hint)
        assert not await ring.look_up()  # a moment ago somebody did
        assert await ring.refresh()
        found = [ring.find_name(key.encode()) for key in (first, second)]
        assert found == [None, "alice"]
        await store.accounts.revoke_key("alice", 1.0)
        assert await ring.refresh()
        assert (ring.is_open, ring.find_name(second.encode())) == (False, None)
        with pytest.raises(HttpRejection, match="revoked"):
            ring.client("alice")
        await store.close()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(play())


def test_a_key_of_the_settings_wins(tmp_path: Path) -> None:
    async def play() -> None:
        store = store_from_url(f"sqlite:///{tmp_path / 'store.db'}")
        await store.open()
        ring = KeyRing([ClientKey("alice", Secret("of the settings"))], store.accounts)
        _, stored = new_key("alice", RULES)
        await store.accounts.create_key(stored)
        await store.accounts.revoke_key("alice", 1.0)
        await ring.refresh()
        assert ring.find_name(b"of the settings") == "alice"
        assert ring.client("alice").rules == KeyRules()
        for wrong in (b"", b"of the setting", b"of the settings ", b"alice", b"\xff"):
            assert ring.find_name(wrong) is None
        await store.close()

    asyncio.run(play())
