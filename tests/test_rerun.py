"""A stored response traced again gives the events that its client was sent, byte for byte."""

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captures import HERE
from tests.clients.drivers import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.played import Piece, Play
from tests.recorded_world import SECRET, RecordedWorld, end_of
from tests.strategies import FEW, cut_at
from tests.test_relay_run import message
from tests.test_trace import captures, check_links
from weft.captures import decode_all
from weft.dialects import DialectName
from weft.relay.recording import LARGE_RECORDING, MAX_RECORDED
from weft.trace import EmitRow, FrameRow, PartRow, TraceRow, parts_of
from weft.upstream.base import Unreachable

WIRES: tuple[DialectName, ...] = (CHAT, RESPONSES, MESSAGES, GEMINI)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedWorld]:
    with asyncio.Runner() as runner:
        made = RecordedWorld(runner, tmp_path_factory.mktemp("recorded"))
        yield made
        runner.run(made.store.close())


def streams() -> list[tuple[Path, DialectName]]:
    return [(path, source) for path, source in captures() if source in WIRES]


def check(
    world: RecordedWorld, path: Path, source: str, client: str, cuts: list[int], *, saved: bool
) -> None:
    run, raw = world.runner.run, path.read_bytes()
    _, id = run(world.send_pieces(cut_at(raw, cuts), source, client, stream=True))
    if id is None:  # it failed before it had content
        return
    if saved:
        run(world.save())
    found, rows = run(world.trace(id))
    assert (found.source, found.dialect, found.target) == ("upstream", source, client)
    last = end_of(rows)
    assert last.digest.now == last.digest.stored
    assert last.differ == 0
    check_links(rows)
    for other in WIRES:
        if other != client:
            _, as_other = run(world.trace(id, other))
            assert parts_of(as_other) == parts_of(rows)
            assert end_of(as_other).digest.stored is None
            assert end_of(as_other).differ is None


@FEW
@given(data=st.data())
def test_what_was_sent_is_sent_again(world: RecordedWorld, data: st.DataObject) -> None:
    path, source = data.draw(st.sampled_from(streams()))
    cuts = data.draw(st.lists(st.integers(0, path.stat().st_size), max_size=6))
    client = data.draw(st.sampled_from(WIRES))
    check(world, path, source, client, cuts, saved=data.draw(st.booleans()))


@pytest.mark.long
@pytest.mark.parametrize("client", WIRES)
def test_so_it_is_for_every_capture(world: RecordedWorld, client: str) -> None:
    for number, (path, source) in enumerate(streams()):
        size = path.stat().st_size
        check(world, path, source, client, [size // 3, size // 2], saved=bool(number % 2))


def chunk(delta: object, finish: str | None = None, id: str = "r") -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"id": id, "model": "m", "choices": [choice]}).encode()


WHOLE = [chunk({"content": "War"}), chunk({"content": "p"}), chunk({}, "stop"), b"data: [DONE]\n\n"]


def trace_of(world: RecordedWorld, pieces: list[bytes], client: str) -> list[TraceRow]:
    _, id = world.runner.run(world.send_pieces(pieces, CHAT, client, stream=True))
    assert id is not None
    return world.runner.run(world.trace(id))[1]


def test_frames_have_the_times_of_their_arrival(world: RecordedWorld) -> None:
    times = [row.t for row in trace_of(world, WHOLE, RESPONSES) if isinstance(row, FrameRow)]
    assert len(times) == 4
    assert all(one is not None for one in times)
    assert all((one or 0) <= (other or 0) for one, other in pairwise(times))


def test_frames_are_passed_through_until_one_needs_a_repair(world: RecordedWorld) -> None:
    whole = [chunk({"content": "Warp"}, id="new"), chunk({}, "stop", "new"), b"data: [DONE]\n\n"]
    rows = trace_of(world, whole, CHAT)
    assert {row.passthrough for row in rows if isinstance(row, EmitRow)} == {True}
    # The id of the first is taken now.
    ends = chunk({"content": "p"}, "eos_token", "s")
    broken = [chunk({"content": "War"}, id="s"), ends, b"data: [DONE]\n\n"]
    emitted = [row for row in trace_of(world, broken, CHAT) if isinstance(row, EmitRow)]
    assert emitted[0].passthrough
    assert not emitted[-1].passthrough
    assert [row.takeover for row in emitted].count(True) == 1


def test_an_answer_that_broke_off_ends_again_as_it_did(world: RecordedWorld) -> None:
    rows = trace_of(world, WHOLE[:1], RESPONSES)
    last = end_of(rows)
    assert last.response.error is not None
    assert last.response.error.kind == "truncated"
    assert last.digest.now == last.digest.stored


def test_a_body_is_traced_too(world: RecordedWorld) -> None:
    message = {"role": "assistant", "content": "Warp"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps({"id": "r", "object": "chat.completion", "model": "m", "choices": [choice]})
    sent = world.send_pieces([body.encode()], CHAT, RESPONSES, stream=False)
    _, id = world.runner.run(sent)
    assert id is not None
    source, rows = world.runner.run(world.trace(id))
    assert source.source == "upstream"
    assert end_of(rows).response.text == "Warp"
    assert end_of(rows).digest.stored is None  # no events were sent


@pytest.mark.parametrize("target", [None, CHAT, GEMINI])
@pytest.mark.parametrize("stream", [True, False])
def test_without_a_recording_the_log_is_traced(
    tmp_path: Path, target: str | None, stream: bool
) -> None:
    with asyncio.Runner() as runner:
        world = RecordedWorld(runner, tmp_path, "none")
        told, id = runner.run(world.send_pieces(WHOLE, CHAT, RESPONSES, stream=stream))
        assert id is not None
        source, rows = runner.run(world.trace(id, target))
        runner.run(world.store.close())
    assert (source.source, source.dialect) == ("log", RESPONSES)
    assert not [row for row in rows if isinstance(row, FrameRow)]
    assert all(row.frame is None for row in rows if isinstance(row, PartRow))
    last = end_of(rows)
    assert last.response.text == "Warp"
    if stream and target is None:
        assert last.digest.now == last.digest.stored
        assert parts_of(rows) == decode_all(told, RESPONSES)[0].parts


def test_only_findings_are_kept_if_the_settings_say_so(tmp_path: Path) -> None:
    broken = [*WHOLE[:1], chunk({"content": "p"}, "eos_token"), b"data: [DONE]\n\n"]
    with asyncio.Runner() as runner:
        world = RecordedWorld(runner, tmp_path, "findings")
        sources = []
        for pieces in (WHOLE, broken):
            _, id = runner.run(world.send_pieces(pieces, CHAT, RESPONSES, stream=True))
            assert id is not None
            runner.run(world.save())
            sources.append(runner.run(world.trace(id))[0].source)
        runner.run(world.store.close())
    assert sources == ["log", "upstream"]


def test_a_secret_is_not_kept_wherever_the_network_cuts_it(world: RecordedWorld) -> None:
    raw = chunk({"content": f"the key is {SECRET}."}) + b"".join(WHOLE[2:])
    where = raw.index(SECRET.encode())
    for cut in (where, where + 5, where + len(SECRET)):
        _, id = world.runner.run(world.send_pieces(cut_at(raw, [cut]), CHAT, CHAT, stream=True))
        assert id is not None
        world.runner.run(world.save())
        _, rows = world.runner.run(world.trace(id))
        frames = [row.data for row in rows if isinstance(row, FrameRow)]
        assert "the key is ***." in frames[0]
        # The client got it, as the log has it: so the trace says that it differs.
        assert end_of(rows).differ


def test_a_key_that_an_error_quotes_is_not_kept(world: RecordedWorld) -> None:
    error = {"error": {"message": "wrong key sk-abcdefgh12345678", "code": 500}}
    pieces = [WHOLE[0], b"data: %b\n\n" % json.dumps(error).encode()]
    for saved in (False, True):
        _, id = world.runner.run(world.send_pieces(pieces, CHAT, RESPONSES, stream=True))
        assert id is not None
        if saved:
            world.runner.run(world.save())
        _, rows = world.runner.run(world.trace(id))
        frames = [row.data for row in rows if isinstance(row, FrameRow)]
        assert "wrong key ***" in frames[1]
        assert end_of(rows).differ == 0


def test_a_response_whose_id_was_taken_is_encoded_again_as_it_was(world: RecordedWorld) -> None:
    path = HERE / "check/openai-responses/item-id-repeated.bad.sse"
    for _ in range(2):
        check(world, path, RESPONSES, RESPONSES, [112], saved=False)


@pytest.mark.parametrize("client", [CHAT, RESPONSES, GEMINI])
def test_a_turn_that_paused_goes_on_in_the_same_trace(world: RecordedWorld, client: str) -> None:
    plays = [Play(message("one ", "pause_turn")), Play(message("two", "end_turn"))]
    _, id = world.runner.run(world.send_plays(plays, MESSAGES, client, stream=True))
    assert id is not None
    for saved in (False, True):
        if saved:
            world.runner.run(world.save())
        _, rows = world.runner.run(world.trace(id))
        last = end_of(rows)
        assert (last.response.text, last.differ) == ("one two", 0)
        frames = [row.n for row in rows if isinstance(row, FrameRow)]
        assert frames == list(range(len(frames)))
        check_links(rows)


@pytest.mark.parametrize("client", WIRES)
def test_a_connection_that_broke_is_in_the_recording(world: RecordedWorld, client: str) -> None:
    plays = [Play([WHOLE[0], Unreachable("the connection broke", "truncated")])]
    _, id = world.runner.run(world.send_plays(plays, CHAT, client, stream=True))
    assert id is not None
    world.runner.run(world.save())
    last = end_of(world.runner.run(world.trace(id))[1])
    assert last.response.error is not None
    assert last.response.error.message == "the connection broke"
    assert last.differ == 0


def test_a_recording_that_is_too_large_is_given_up(world: RecordedWorld) -> None:
    long = chunk({"content": "x" * (MAX_RECORDED // 3)}, id="long")
    pieces = [long] * 4 + [chunk({}, "stop", "long"), b"data: [DONE]\n\n"]
    _, id = world.runner.run(world.send_pieces(pieces, CHAT, RESPONSES, stream=True))
    assert id is not None
    source, rows = world.runner.run(world.trace(id))
    assert source.source == "log"
    assert len(end_of(rows).response.text) == 4 * (MAX_RECORDED // 3)


def test_a_long_recording_is_stored_in_parts(world: RecordedWorld) -> None:
    async def send() -> tuple[str, int]:
        # Each part is stored before the next one comes.
        more = chunk({"content": "x" * (LARGE_RECORDING + 1)}, id="parts")
        gates = [asyncio.Event() for _ in range(3)]
        pieces: list[Piece] = []
        for gate in gates:
            pieces += [more, chunk({"content": "y"}, id="parts"), gate]
        plays = [Play([*pieces, chunk({}, "stop", "parts"), b"data: [DONE]\n\n"])]
        sending = asyncio.ensure_future(world.send_plays(plays, CHAT, RESPONSES, stream=True))
        for gate in gates:
            while not world.persistence.recordings.due:
                await asyncio.sleep(0)
            await world.save()
            gate.set()
        _, id = await sending
        assert id is not None
        await world.save()
        return id, len(await world.store.upstream(id))

    id, blocks = world.runner.run(send())
    assert blocks > 2
    last = end_of(world.runner.run(world.trace(id))[1])
    assert last.differ == 0
