"""What goes wrong beside a kill: databases that are locked, full or away, clients that leave at the
wrong moment, gateways that die under those who listen elsewhere.
"""

from pathlib import Path

import pytest

from tests.chat import chunk
from tests.crash.positions import echoed, played
from tests.crash.scene import (
    DONE,
    TERMINAL,
    Scene,
    Stream,
    ended,
    events,
    get,
    http,
    id_in,
    idle,
    kill,
    numbers,
    post,
    resumed,
    scene,
)
from tests.faults.upstream import LAST, SILENCE, STREAM, Hold, Step, Upstream
from tests.faults.upstream import chunk as piece
from tests.faults.world import until
from tests.stored_logs import pack
from tests.stores import KINDS, Kind, entry
from weft.gateway.sessions import CANCEL_WAIT
from weft.relay.orphans import MAX_RECOVERIES
from weft.sse import Event
from weft.store.records import Block

pytestmark = pytest.mark.long
HELLO = piece(chunk({"content": "Hello "}))
END = (piece(chunk({"content": "world."}, "stop")), piece(b"data: [DONE]\n\n"), LAST)


def streamed(made: Scene, *steps: Step) -> dict[str, object]:
    return made.begin(f"chat/{made.upstream.script(steps)}", stream=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_follower_elsewhere_gets_the_end_of_a_dead_gateways_response(
    kind: Kind, staged: Upstream, tmp_path: Path
) -> None:
    """Also if its client had received more than was stored."""
    with scene(kind, tmp_path, staged) as made:
        here, there = made.start(), made.start()
        holds, script = played()
        body = made.begin(f"chat/{staged.script(script)}", stream=True)
        first = Stream(here.url, "/v1/responses", body)
        for name in ("head", "first"):
            holds[name].release()
        id = id_in(first.until(b"Hello ").until(b"\n\n").seen)
        made.database.holds(id, b"Hello ")
        follower = Stream(there.url, f"/v1/responses/{id}?stream=true", None)
        follower.until(b"Hello ")
        for name in ("text", "call"):
            holds[name].release()
        first.until(b'{\\"city\\":').until(b"\n\n")
        kill(here)
        last = max(numbers(first.seen))
        later = resumed(there, id, last)
        log = resumed(there, id)
        assert follower.rest() == log
        assert events(later)[-1]["type"] == "response.failed"
        assert min(numbers(later)) > last
        assert later.endswith(DONE)
        assert log.endswith(later)
        first.close()
        follower.close()


def test_a_client_that_disconnects_before_the_beginning_leaves_nothing_running(
    staged: Upstream, tmp_path: Path
) -> None:
    with scene("sqlite", tmp_path, staged) as made:
        running = made.start()
        hold = Hold()
        assert made.database.entries() == []
        body = streamed(made, hold, STREAM, HELLO, SILENCE)
        client = Stream(running.url, "/v1/responses", body)
        hold.here()
        with made.database.locked():
            hold.release()
            idle(running)
            client.close()
            staged.exchange(str(body["model"]).partition("/")[2]).left()
        until(lambda: all(one.ended for one in made.database.entries()), "the end of all")


def test_deleting_a_stream_that_runs_ends_it_at_once(staged: Upstream, tmp_path: Path) -> None:
    with scene("sqlite", tmp_path, staged) as made:
        running = made.start()
        body = streamed(made, STREAM, HELLO, SILENCE)
        with Stream(running.url, "/v1/responses", body) as stream:
            id = id_in(stream.until(b"Hello ").until(b"\n\n").seen)
            deleted = http.delete(f"{running.url}/v1/responses/{id}")
            assert deleted.elapsed.total_seconds() < CANCEL_WAIT
            assert get(running, f"/v1/responses/{id}").status_code == 404
            assert events(stream.rest())[-1]["type"] in TERMINAL


def test_resuming_an_idle_stream_responds_at_once(staged: Upstream, tmp_path: Path) -> None:
    with scene("sqlite", tmp_path, staged) as made:
        running = made.start()
        hold = Hold()
        model = made.upstream.script([hold, STREAM, HELLO, *END])
        asked = made.begin(f"chat/{model}", background=True)
        id = post(running, "/v1/responses", asked).json()["id"]
        hold.here()
        with Stream(running.url, f"/v1/responses/{id}?stream=true", None) as stream:
            until(lambda: stream.begins(), "the head")
            hold.release()
            assert stream.rest().endswith(DONE)


@pytest.mark.parametrize("times", [30])
def test_cancel_right_after_the_beginning_ends_it(
    times: int, staged: Upstream, tmp_path: Path
) -> None:
    with scene("sqlite", tmp_path, staged) as made:
        running = made.start()
        body = made.begin(f"chat/{staged.script([SILENCE])}", background=True)
        for _ in range(times):
            id = post(running, "/v1/responses", body).json()["id"]
            answer = post(running, f"/v1/responses/{id}/cancel", {})
            assert answer.json()["status"] == "cancelled"
            assert answer.elapsed.total_seconds() < CANCEL_WAIT


ODD = b'{"type":"response.completed","response":{"status":"x"}}'


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (pack([Event("", b"\xff{")]), b"data: \xff{\n\n"),
        (pack([Event("", ODD)]), b"data: %b\n\n" % ODD),
        (b"data: of a time when blocks held bytes\n\n", b""),
    ],
    ids=["no JSON", "no status", "no events"],
)
def test_an_unreadable_log_does_not_keep_a_gateway_from_starting(
    block: bytes, told: bytes, staged: Upstream, tmp_path: Path
) -> None:
    with scene("sqlite", tmp_path, staged) as made:
        store = made.database.store

        async def spoil() -> None:
            spoiled = entry("resp_spoiled", server="dead", stream=True)
            await store.begin(spoiled, [Block(0, 0, 1, block)])

        made.database.run(spoil())
        running = made.start()
        assert ended(running, "resp_spoiled")["status"] in ("completed", "failed")
        assert resumed(running, "resp_spoiled").startswith(told)


def test_a_response_that_cannot_be_recovered_is_given_up_and_blocks_no_other(
    staged: Upstream, tmp_path: Path
) -> None:
    with scene("sqlite", tmp_path, staged, "lease = 1.0") as made:
        store = made.database.store

        async def leave() -> None:
            await store.begin(entry("resp_1", server="dead", dialect="klingon", created=1.0))
            await store.begin(entry("resp_2", server="dead", created=2.0, stream=True))

        made.database.run(leave())
        running = made.start()
        assert ended(running, "resp_2")["status"] == "failed"

        def given_up() -> bool:
            found = made.database.entry("resp_1")
            return found is not None and found.status == "failed"

        until(given_up, "the end of what cannot be recovered")
        found = made.database.entry("resp_1")
        assert found is not None
        assert b"could not be read" in (found.record or b"")
    assert running.stderr.count("cannot recover response resp_1") == MAX_RECOVERIES


def test_an_upstream_with_statuses_of_its_own_is_stored_all_the_same(
    staged: Upstream, tmp_path: Path
) -> None:
    """Its events go out as they came."""
    whole = echoed_with_status("done")
    with scene("sqlite", tmp_path, staged) as made:
        running = made.start()
        model = staged.script([STREAM, piece(whole), LAST])
        with Stream(running.url, "/v1/responses", made.begin(f"echo/{model}", stream=True)) as one:
            told = one.rest()
        assert events(told)[-1]["type"] == "response.completed"
        assert ended(running, id_in(told))["status"] == "completed"
        assert resumed(running, id_in(told)) == told


def echoed_with_status(status: str) -> bytes:
    whole = b"".join(echoed("resp_odd").values())
    return whole.replace(
        b'"status":"completed","model"', b'"status":"%b","model"' % status.encode()
    )
