"""A store whose responses are recorded, and what became of them when they are traced."""

import asyncio
from pathlib import Path

from tests.test_stored_equals_streamed import World
from weft.gateway.sessions import Sessions
from weft.relay.persistence import Persistence
from weft.relay.recording import UpstreamPolicy
from weft.relay.redaction import ErrorRedactor
from weft.relay.rerun import ResponseTrace, TraceSource
from weft.scrub import Scrubber, Secret
from weft.trace import EndRow, TraceRow

SECRET = "planted-secret-of-the-upstream"
SCRUB = Scrubber([Secret(SECRET)])


class RecordedWorld(World):
    """As World; it keeps what upstreams send."""

    def __init__(
        self, runner: asyncio.Runner, folder: Path, policy: UpstreamPolicy = "all"
    ) -> None:
        super().__init__(runner, folder)
        self.persistence = Persistence(self.store, upstream=policy, scrub=SCRUB)
        self.sessions = Sessions(self.persistence)

    async def trace(self, id: str, target: str | None = None) -> tuple[TraceSource, list[TraceRow]]:
        entry = await self.store.entry(id)
        assert entry is not None
        trace = ResponseTrace(self.persistence, entry, ErrorRedactor(SCRUB))
        source = await trace.open(target)
        return source, [row async for rows in trace.rows() for row in rows]

    async def save(self) -> None:
        """Stores what is recorded."""
        await self.persistence.recordings.close()


def end_of(rows: list[TraceRow]) -> EndRow:
    last = rows[-1]
    assert isinstance(last, EndRow)
    return last
