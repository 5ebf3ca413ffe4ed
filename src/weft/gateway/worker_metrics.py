"""The metrics of several worker processes, as one.

Each worker writes its values to memory-mapped files in one folder, and whichever of them is scraped
adds up the files of all. The files belong to the place of a worker, not to its process: a worker
that replaces a dead one continues its counters, so they never fall, and the folder does not grow.
Only the gauges of a worker that has ended are removed.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client looks for the folder."""

FILE_SIZE = 1 << 20
"""Bytes of a new file: as much as prometheus_client would make it."""

_joined: list[Path] = []
"""The folder that this process has joined. The environment does not show it: it may come from the
process that has started the gateway."""

_GAUGES = ("gauge_livesum", "gauge_livemax")
_FILES = ("counter", "histogram", *_GAUGES)


class MetricsFolder:
    """The folder: made by the parent of the workers, and removed by it."""

    def __init__(self, path: str | None = None) -> None:
        """Without a path: a new folder."""
        self.path = Path(path or tempfile.mkdtemp(prefix="weft-metrics-"))

    def __enter__(self) -> "MetricsFolder":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def join(self, worker: int) -> None:
        """Has this process write its metrics here, as the worker of this number. To be called
        before the first metric is created. Raises OSError if the disk is full."""
        name = _name(worker)
        for file in (self.path / f"{kind}_{name}.db" for kind in _FILES):
            if not file.exists():
                # Its space is taken now, since a write to a mapped file on a full disk would end
                # the process; and under another name, since somebody may be reading the folder.
                new = file.with_suffix(".new")
                new.write_bytes(bytes(FILE_SIZE))
                new.replace(file)
        os.environ[FOLDER] = str(self.path)
        _joined.append(self.path)
        values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]

    def leave(self, worker: int) -> None:
        """A worker has ended: what it had open and queued is gone with it."""
        for kind in _GAUGES:
            (self.path / f"{kind}_{_name(worker)}.db").unlink(missing_ok=True)


def _name(worker: int) -> str:
    return f"worker{worker}"


class WorkersCollector(Collector):
    """The sum over all workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        # Files of other names were written by programs that have inherited our environment.
        files = [str(file) for kind in _FILES for file in self._folder.glob(f"{kind}_worker*.db")]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return merged


def workers_collector() -> WorkersCollector | None:
    """The collector of all workers; None if this process is not one of several."""
    return WorkersCollector(_joined[-1]) if _joined else None
