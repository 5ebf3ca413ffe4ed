"""A response that another server takes over while it runs: its client is told an error, never an
end that the store does not have.
"""

import asyncio
import json
from pathlib import Path

import pytest

from tests.clients.drivers import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.faults.wires import SPEECHES, error_ending, error_seen, has_good_end
from tests.played import Play, Played
from tests.stores import SWIFT, Stores, ending
from tests.test_relay_run import REQUEST_BODIES, upstream_config
from weft.dialects import DIALECTS
from weft.relay.incoming import (
    IncomingRequest,
    RequestBody,
    RequestFailed,
    RequestLimits,
    StorePolicy,
)
from weft.relay.persistence import TAKEN_OVER, Persistence, ResponseWriter
from weft.relay.routing import Routing
from weft.relay.run import Run
from weft.scrub import Scrubber
from weft.sse import Event, write_events
from weft.store.base import Store

WIRES = (CHAT, RESPONSES, MESSAGES, GEMINI)
ID = "resp_ours"


class Taking:
    """A run here, and another server beside it."""

    def __init__(self, here: Store, there: Store) -> None:
        self.here, self.there = here, there
        self.go_on = asyncio.Event()

    def run(self, client: str, *, stream: bool, required: bool) -> tuple[Run, ResponseWriter]:
        said = SPEECHES[CHAT]
        played = Played(
            upstream_config(dialect=CHAT), Play([*said.head, *said.content, self.go_on, *said.end])
        )
        body = json.dumps(
            REQUEST_BODIES[client] | ({} if client == GEMINI else {"stream": stream})
        ).encode()
        policy = StorePolicy(body, b'["x"]')
        incoming = IncomingRequest(
            RequestBody(client, body), "a/m", stream, store=policy, response_id=ID
        )
        self.persistence = Persistence(self.here, required=required)
        writer = self.persistence.writer(incoming)
        assert writer is not None
        targets = Routing({"a": played}, {}).targets("a/m")
        return Run(incoming, targets, RequestLimits(grace=0.05), Scrubber([]), (), writer), writer

    async def take_over(self, id: str) -> None:
        """What another server does with what a dead one left."""
        assert await self.there.take_over(id, self.here.server)
        blocks = await self.there.blocks(id)
        assert await self.there.finish(id, ending(blocks, status="failed"))


async def streamed(run: Run) -> list[Event]:
    """What a client is told, as an endpoint tells it."""
    stream, told = await run.open(), list[Event]()
    try:
        while events := await stream.next():
            told += events
    except RequestFailed as failed:
        told += await run.error_events(failed.error)
    await run.close()
    return told


async def told_until_taken(taking: Taking, client: str, *, required: bool) -> bytes:
    run, writer = taking.run(client, stream=True, required=required)
    reading = asyncio.ensure_future(streamed(run))
    while not writer.has_begun:
        await asyncio.sleep(0)
    await taking.take_over(writer.log.id)
    taking.go_on.set()
    told = await reading
    assert not taking.persistence.logs, "whoever follows would wait for ever"
    entry = await taking.there.entry(writer.log.id)
    assert entry is not None
    assert entry.status == "failed"
    return write_events(told)


async def opened(folder: Path) -> tuple[Stores, Taking]:
    stores = Stores("sqlite", folder)
    return stores, Taking(await stores.opened(SWIFT), await stores.opened(SWIFT, "two"))


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("client", WIRES)
def test_a_stream_that_was_taken_over_ends_with_an_error(
    client: str, required: bool, tmp_path: Path
) -> None:
    """Also where an answer that cannot be stored is told all the same."""

    async def play() -> bytes:
        stores, taking = await opened(tmp_path)
        try:
            return await told_until_taken(taking, client, required=required)
        finally:
            await stores.close()

    told = asyncio.run(play())
    assert not has_good_end(client, told)
    assert "taken over" in error_ending(client, told).message


@pytest.mark.parametrize("client", WIRES)
def test_a_body_that_was_taken_over_is_an_error(client: str, tmp_path: Path) -> None:
    """Where the response is stored before there is an answer, as with the outputs of tools."""

    async def play() -> RequestFailed:
        stores, taking = await opened(tmp_path)
        run, writer = taking.run(client, stream=False, required=True)
        await writer.announce(ID, "in_progress", None)
        await taking.take_over(ID)
        taking.go_on.set()
        stream = await run.open()
        with pytest.raises(RequestFailed) as caught:
            await stream.read_body()
        await run.close()
        await stores.close()
        return caught.value

    error = asyncio.run(play()).error
    write = DIALECTS[client].write_error
    assert error == TAKEN_OVER
    assert write is not None
    status, body = write(error)
    assert status == 500
    assert "taken over" in error_seen(client, body).message


@pytest.mark.parametrize("client", WIRES)
def test_a_stream_that_was_deleted_ends_as_it_does(client: str, tmp_path: Path) -> None:
    """The store has no other end of it."""

    async def play() -> bytes:
        stores, taking = await opened(tmp_path)
        run, writer = taking.run(client, stream=True, required=True)
        reading = asyncio.ensure_future(streamed(run))
        while not writer.has_begun:
            await asyncio.sleep(0)
        assert await taking.there.delete("", writer.log.id)
        taking.go_on.set()
        told = await reading
        await stores.close()
        return write_events(told)

    assert has_good_end(client, asyncio.run(play()))
