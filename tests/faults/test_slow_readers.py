"""A client that reads slowly: however much its upstream has to send, the gateway takes it no faster
than the client does, and its memory stays flat; over HTTP and over WebSocket, stored and not.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults import largest
from tests.faults.largest import MB
from tests.faults.test_client_faults import BUFFERS, GROWTH, steady
from tests.faults.upstream import LAST, STREAM, Flood, Step, Upstream, chunk
from tests.faults.wires import CHAT, DIALECTS, RESPONSES, SPEECHES, question
from tests.faults.world import World, places, world
from tests.raw_http import Client
from tests.raw_http import frame as websocket_frame

LARGE = 100 * MB
READ = 40 * MB
STEP = 10 * MB
"""What the client reads before it waits until nothing moves any more."""


@dataclass(frozen=True)
class Reading:
    """How a client asks, and what it gets."""

    client: str
    stored: bool
    over_websocket: bool = False

    def __str__(self) -> str:
        ways = {"websocket": self.over_websocket, "stored": self.stored}
        return "-".join([self.client, *(name for name, given in ways.items() if given)])

    @property
    def is_text(self) -> bool:
        """Whether it gets a text: what it has of that stays in memory, since the end repeats it.
        Others get a field that passes through and belongs to nothing."""
        return self.client == RESPONSES

    def script(self, size: int) -> list[Step]:
        """An answer of so many bytes, from an upstream of the client's dialect."""
        large, said = b"a" * 50_000, SPEECHES[self.client]
        if self.is_text:
            piece = largest.tiny(self.client).replace(b'"a"', b'"%b"' % large)
        else:
            frame = next(one for one in said.content if b"and weft." in one)
            piece = frame.replace(b"{", b'{"x_unknown":"%b",' % large, 1)
        before, after = largest.around(self.client)
        flood = Flood(chunk(piece), max(1, size // len(piece)))
        return [STREAM, *map(chunk, before), flood, *map(chunk, after), LAST]

    def ask(self, connection: Client, model: str) -> None:
        if self.over_websocket:
            create = {"type": "response.create", "model": model, "input": "hi"}
            connection.upgrade("/v1/responses")
            connection.send(
                websocket_frame(1, json.dumps({**create, "store": self.stored}).encode())
            )
        else:
            more = {"store": self.stored} if self.client in (CHAT, RESPONSES) else {}
            connection.send(question(self.client, model, True, **more))


READINGS = [
    *(Reading(client, stored=False) for client in DIALECTS),
    *(Reading(client, stored=True) for client in (CHAT, RESPONSES)),
    *(Reading(RESPONSES, stored, over_websocket=True) for stored in (False, True)),
]


@pytest.mark.long
@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_who_reads_slowly_makes_the_upstream_slow_and_not_the_gateway_large(
    reading: Reading, faulty: Upstream, tmp_path: Path
) -> None:
    limits = "[server.limits]\nresponse = 1000000000\n"
    with world(limits + places(faulty.url), tmp_path, faulty) as made:
        small = faulty.script(reading.script(5 * MB))
        made.ask(reading.client, f"{reading.client}/{small}", True)  # made once, made now
        model = faulty.script(reading.script(LARGE))
        # Not smaller: a sender fills a window below its segments only every 200 ms.
        with made.client(receive_buffer=65536) as connection:
            reading.ask(connection, f"{reading.client}/{model}")
            read_slowly(made, connection, model, reading)


def read_slowly(made: World, connection: Client, model: str, reading: Reading) -> None:
    before, exchange = made.memory, made.upstream.exchange(model)
    read = 0
    while True:
        sent = steady(exchange)
        assert sent - read < BUFFERS, "the upstream is read faster than the client reads"
        grown = made.memory - before
        assert grown < GROWTH + (sent if reading.is_text else 0), f"{grown // MB} MB"
        if read >= READ:
            return
        goal = read + STEP
        while read < goal:
            read += len(connection.socket.recv(65536))
