"""The gateway's own end: what is open may finish, the rest is told, and it leaves with 0."""

import signal
from itertools import product

import pytest

from tests.faults.upstream import LAST, SILENCE, STREAM, Hold, Upstream, chunk
from tests.faults.wires import CHAT, DIALECTS, SPEECHES, error_ending, question
from tests.faults.world import World, places, until, world
from tests.raw_http import Client, refuses
from weft import assemble, decode
from weft.dialects import DialectName


def streams(made: World, faulty: Upstream) -> list[tuple[DialectName, Client, Hold]]:
    """A stream of each client dialect from each upstream dialect, in its middle."""
    found = []
    for client, upstream in product(DIALECTS, DIALECTS):
        said, hold = SPEECHES[upstream], Hold()
        begun = map(chunk, said.head + said.content)
        model = faulty.script([STREAM, *begun, hold, *map(chunk, said.end), LAST])
        connection = made.client()
        connection.send(question(client, f"{upstream}/{model}", True))
        made.seen(connection, b"and weft.")
        found.append((client, connection, hold))
    return found


ENDED = 20.0
"""Seconds until it must be gone: fewer than it would wait for what is open."""


def test_after_sigterm_open_streams_finish_and_nobody_comes_in(
    faulty: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with world(places(faulty.url), tmp_path_factory.mktemp("drain"), faulty) as made:
        found = streams(made, faulty)
        made.gateway.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(made.port), "the listener to be closed")
        for client, connection, hold in found:
            hold.release()
            answer = connection.answer()
            response = assemble(decode([answer.body], dialect=client))
            assert (response.text, response.finish_reason) == ("Warp and weft.", "stop")
            assert connection.is_closed()
            connection.close()
        assert made.gateway.process.wait(ENDED) == 0


def test_what_is_open_when_the_drain_is_over_ends_with_an_error(
    faulty: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = "[server]\ndrain = 0.3\n" + places(faulty.url)
    with world(settings, tmp_path_factory.mktemp("cut"), faulty) as made:
        found = streams(made, faulty)
        silent = faulty.script([SILENCE])
        waiting = [(client, made.client()) for client in DIALECTS]
        for client, connection in waiting:
            connection.send(question(client, f"{CHAT}/{silent}", False))
        faulty.exchanges(silent, len(DIALECTS))
        made.gateway.process.send_signal(signal.SIGTERM)
        for client, connection, _ in found:
            seen = error_ending(client, connection.answer().body)
            assert "shutting down" in seen.message
            connection.close()
        for client, connection in waiting:
            assert connection.answer().status == (529 if client == "anthropic-messages" else 503)
            connection.close()
        assert made.gateway.process.wait(ENDED) == 0


def test_a_second_sigterm_ends_it_now(
    faulty: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with world(places(faulty.url), tmp_path_factory.mktemp("now"), faulty) as made:
        found = streams(made, faulty)
        made.gateway.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(made.port), "the listener to be closed")
        made.gateway.process.send_signal(signal.SIGTERM)
        assert made.gateway.process.wait(ENDED) == 0
        for _, connection, _ in found:
            connection.close()


def test_while_it_drains_it_is_not_ready_and_takes_no_work(
    faulty: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On a connection that is in use: the listener is shut, and idle connections are closed. What
    comes behind a request that is still answered is told 503, or finds the connection closed."""
    with world(places(faulty.url), tmp_path_factory.mktemp("ready"), faulty) as made:
        assert made.get("/ready").status == 200
        ((_, connection, hold), *others) = streams(made, faulty)
        made.gateway.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(made.port), "the listener to be closed")
        connection.send(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        hold.release()
        found = connection.answers()
        connection.close()
        assert [one.status for one in found] in ([200], [200, 503])
        for _, other, hold in others:
            hold.release()
            other.answer()
            other.close()
        assert made.gateway.process.wait(ENDED) == 0
