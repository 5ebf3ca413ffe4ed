"""What an event leaves to others when it goes straight to the client's connection: timers, records
and transports ask the line."""

import asyncio
from collections.abc import Callable

import pytest

from weft.gateway.buffered_transport import BufferedTransport, DirectWriter
from weft.gateway.keepalive_timer import KeepaliveTimer
from weft.relay.deadlines import Deadlines, Interrupt, RequestStopped
from weft.relay.incoming import RequestLimits


class Unread(asyncio.Transport):
    """A connection whose client reads nothing, until `read`."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unread += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unread


def transport() -> tuple[BufferedTransport, Unread]:
    inner = Unread()
    return BufferedTransport(inner, lambda: None, 0.0), inner


def test_an_event_that_waits_for_the_client_is_no_progress() -> None:
    outer, inner = transport()
    line = outer.open_direct(paused=False)
    assert outer.stalled_for(1.0) == 0
    for now in (2.0, 3.0, 4.0):
        line.send(b"event")
        line.sent += len(b"event")
        assert outer.stalled_for(now) == now - 1
    inner.unread -= 1
    assert outer.stalled_for(5.0) == 0


def test_what_one_response_has_sent_counts_in_the_next() -> None:
    outer, _ = transport()
    first = outer.open_direct(paused=False)
    first.send(b"event")
    first.sent += len(b"event")
    assert outer.stalled_for(1.0) == 1
    second = outer.open_direct(paused=True)
    assert (second.paused, second.sent, outer.written) == (True, 0, len(b"event"))
    assert outer.stalled_for(2.0) == 2


async def until(is_true: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not is_true():
            await asyncio.sleep(0.001)


def test_an_upstream_whose_events_go_straight_on_is_not_silent() -> None:
    async def run() -> None:
        interrupt = Interrupt()
        interrupt.waiting = True
        deadlines = Deadlines(interrupt, RequestLimits())
        deadlines.line = line = DirectWriter(lambda data: None, paused=False)
        loop = asyncio.get_running_loop()
        before = loop.time()
        line.last_activity = before + 0.05
        deadlines.set_idle_timeout("up", 0.01)
        await until(lambda: interrupt.reason)
        assert loop.time() - before >= 0.058  # a millisecond does not count
        deadlines.cancel()

    asyncio.run(run())


def test_while_nobody_waits_for_it_an_upstream_is_not_silent() -> None:
    """A client that pauses longer than its upstream may be silent is no fault of the upstream."""

    async def run() -> None:
        interrupt = Interrupt()
        deadlines = Deadlines(interrupt, RequestLimits())
        deadlines.set_idle_timeout("up", 0.05)
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.2
        await until(lambda: loop.time() > end)
        begun = loop.time()
        with pytest.raises(RequestStopped):
            await interrupt.wait(loop.create_future())
        assert loop.time() - begun >= 0.048  # a millisecond does not count
        deadlines.cancel()

    asyncio.run(run())


def test_a_client_that_gets_events_straight_needs_no_keepalive() -> None:
    async def run() -> None:
        fired: list[float] = []
        loop = asyncio.get_running_loop()
        timer = KeepaliveTimer(0.01, lambda: fired.append(loop.time()))
        timer.line = line = DirectWriter(lambda data: None, paused=False)
        before = loop.time()
        line.last_activity = before + 0.05
        await until(lambda: fired)
        assert fired[0] - before >= 0.058  # a millisecond does not count
        timer.stop()

    asyncio.run(run())
