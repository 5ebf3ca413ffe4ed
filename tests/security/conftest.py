"""A gateway with client keys and one without, for each worker."""

from collections.abc import Iterator

import pytest

from tests.faults.upstream import Upstream, upstream
from tests.faults.world import World, places, world
from tests.security.keys import KEYS


@pytest.fixture(scope="session")
def behind() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="session")
def locked(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Whoever has a key may come in."""
    keys = "\n".join(f'{name} = "{key}"' for name, key in KEYS.items())
    settings = f'[server]\nhosts = ["weft.example"]\n[server.keys]\n{keys}\n' + places(behind.url)
    with world(settings, tmp_path_factory.mktemp("locked"), behind) as made:
        yield made
    assert not any(key in made.gateway.stderr + made.gateway.stdout for key in KEYS.values())


@pytest.fixture(scope="session")
def unlocked(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Whoever can reach it may come in."""
    with world(places(behind.url), tmp_path_factory.mktemp("unlocked"), behind) as made:
        yield made
