"""`/ready` says no while no work should come, and why; and yes when all is well again."""

import asyncio
import json
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.faults.upstream import Upstream
from tests.faults.world import World, places, until
from tests.gateway_process import gateway
from weft.gateway.app import Gateway
from weft.gateway.probes import MIN_FREE_DISK, disk_of, free_bytes
from weft.gateway.settings import load


def ready(made: World) -> tuple[int, str]:
    found = made.get("/ready")
    return found.status, str(json.loads(found.body).get("reason", ""))


@contextmanager
def full(made: World, folder: Path) -> Iterator[None]:
    """No file of the gateway's can grow any more."""
    size = (folder / "weft.db-wal").stat().st_size
    before = resource.prlimit(made.gateway.pid, resource.RLIMIT_FSIZE, (size, -1))
    try:
        yield
    finally:
        resource.prlimit(made.gateway.pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def locked(made: World, folder: Path) -> Iterator[None]:
    """Another process has the database, and does not let go."""
    with closing(sqlite3.connect(folder / "weft.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


Trouble = Callable[[World, Path], AbstractContextManager[None]]


@pytest.mark.long  # the store is patient
@pytest.mark.parametrize(("trouble", "kind"), [(full, "broken"), (locked, "busy")])
def test_it_is_not_ready_while_the_store_takes_no_writes(
    faulty: Upstream, tmp_path: Path, trouble: Trouble, kind: str
) -> None:
    with gateway(places(faulty.url), tmp_path) as running:
        made = World(running, faulty)
        assert ready(made) == (200, "")
        with trouble(made, tmp_path):
            until(lambda: ready(made) == (503, f"the store accepts no writes: {kind}"), kind, 60)
            assert made.get("/health").status == 200
        until(lambda: ready(made) == (200, ""), "it to be ready", 60)


def test_without_a_store_it_is_ready(faulty: Upstream, tmp_path: Path) -> None:
    with gateway("[store]\nenabled = false\n" + places(faulty.url), tmp_path) as running:
        assert ready(World(running, faulty)) == (200, "")


def test_while_it_drains_it_is_not_ready() -> None:
    served = Gateway(load(None, {"WEFT_STORE__ENABLED": "false"}))

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(served.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/ready")

    assert asyncio.run(asked()).status_code == 200
    served.drain()
    found = asyncio.run(asked())
    assert (found.status_code, found.json()["status"]) == (503, "draining")


def test_the_disk_is_that_of_the_folder_of_the_store(tmp_path: Path) -> None:
    assert disk_of(f"sqlite:///{tmp_path}/weft.db") == tmp_path
    assert disk_of("sqlite:///weft.db") == Path()
    assert disk_of("postgresql://a/b") is None
    assert free_bytes(tmp_path) > MIN_FREE_DISK
    assert free_bytes(Path("/proc")) == 0


def own_disk(folder: Path) -> tuple[str, ...]:
    """A command that is run with a small disk of its own at a folder."""
    mount = 'mount -t tmpfs -o size=40m none "$0" && exec "$@"'
    return ("unshare", "-rm", "sh", "-c", mount, str(folder))


def has_own_disks() -> bool:
    with suppress(OSError):
        return subprocess.run((*own_disk(Path("/mnt")), "true"), check=False).returncode == 0
    return False


@pytest.mark.skipif(not has_own_disks(), reason="nobody may mount here")
def test_it_is_not_ready_while_the_disk_is_full(faulty: Upstream, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    settings = f'[store]\nurl = "sqlite:///{disk}/weft.db"\n' + places(faulty.url)
    with gateway(settings, tmp_path, prefix=own_disk(disk)) as running:
        made = World(running, faulty)
        assert ready(made) == (200, "")
        filler = Path(f"/proc/{running.pid}/root{disk}/filler")
        filler.write_bytes(bytes(30_000_000))
        assert ready(made) == (503, "the disk of the store is full")
        filler.unlink()
        assert ready(made) == (200, "")
