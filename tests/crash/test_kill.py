"""kill -9 at every named moment: what was acknowledged is there, and what was cut has an end."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.crash.aftermath import MODES, Cell, Mode, killed
from tests.crash.positions import (
    ARGUMENTS,
    CALL,
    POSITIONS,
    TEXT,
    Position,
    echoed,
    reply,
)
from tests.crash.scene import (
    DONE,
    SOON,
    TERMINAL,
    Object,
    Scene,
    arguments_of,
    broken_rules,
    ended,
    events,
    get,
    numbers,
    post,
    resumed,
    scene,
    text_of,
)
from tests.faults.upstream import Upstream
from tests.faults.world import until
from tests.gateway_process import Gateway
from tests.stores import KINDS, Kind
from weft.relay.orphans import MAX_RECOVERIES
from weft.relay.recovery import GAP

CELLS = list(product(MODES, POSITIONS))
QUICK = {("streamed", "text-behind"), ("background", "call-behind")}


@dataclass
class Aftermath:
    """What a killed gateway left, and the one that was started after it."""

    scene: Scene
    running: Gateway
    cells: dict[tuple[Mode, str], Cell]


class Scenes:
    """The aftermath on each database, made when it is asked for."""

    def __init__(self, staged: Upstream, folders: pytest.TempPathFactory) -> None:
        self._staged = staged
        self._folders = folders
        self._made: dict[Kind, Aftermath] = {}
        self._open = ExitStack()

    def of(self, kind: Kind) -> Aftermath:
        if kind not in self._made:
            folder = self._folders.mktemp(kind)
            made = self._open.enter_context(scene(kind, folder, self._staged))
            cells = killed(made, CELLS)
            self._made[kind] = Aftermath(made, made.start(), cells)
        return self._made[kind]

    def close(self) -> None:
        self._open.close()


@pytest.fixture(scope="module")
def scenes(staged: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenes]:
    made = Scenes(staged, tmp_path_factory)
    yield made
    made.close()


@pytest.mark.long
@pytest.mark.parametrize("position", POSITIONS, ids=lambda position: position.name)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_sent_before_a_kill_is_stored_and_has_an_end(
    kind: Kind, mode: Mode, position: Position, scenes: Scenes
) -> None:
    after = scenes.of(kind)
    judge(after.cells[mode, position.name], after.running)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_no_response_keeps_running_after_a_kill(kind: Kind, scenes: Scenes) -> None:
    database = scenes.of(kind).scene.database
    until(lambda: all(one.ended for one in database.entries()), "the end of all", SOON)
    database.audit()


def test_event_numbers_that_were_not_stored_are_skipped(staged: Upstream, tmp_path: Path) -> None:
    with scene("sqlite", tmp_path, staged) as made:
        wanted = [(mode, one) for mode, one in CELLS if (mode, one.name) in QUICK]
        cells = killed(made, wanted)
        running = made.start()
        for one in cells.values():
            judge(one, running)
        made.database.audit()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_gateway_killed_during_recovery_leaves_nothing_new(
    kind: Kind, staged: Upstream, tmp_path: Path
) -> None:
    with scene(kind, tmp_path, staged) as made:
        wanted = [(mode, one) for mode, one in CELLS if one.name in ("text-stored", "call-behind")]
        cells = killed(made, wanted)
        for number in range(MAX_RECOVERIES - 1):  # after one more, a response may be given up
            made.start_and_kill(lambda: _ended(made) > number)  # noqa: B023
        running = made.start()
        for one in cells.values():
            judge(one, running)
        made.database.audit()


def _ended(made: Scene) -> int:
    return sum(one.ended is not None for one in made.database.entries())


# What must be found


def judge(one: Cell, running: Gateway) -> None:
    """What a client that saw this much must find after the restart."""
    seen, cut = one.stream.seen, one.position.is_cut
    if not one.id:
        assert seen == b""
        return
    body = ended(running, one.id)
    log = resumed(running, one.id)
    if one.mode == "background" and one.position.how == "at-once":
        # Nothing of it was stored: it was asked again, and the upstream has answered.
        assert (body["status"], text_of(log), seen) == ("completed", "Fine.", b"")
        goes_on(one, running)
        return
    last = max(numbers(seen), default=-1)
    more = resumed(running, one.id, last)
    assert body["id"] == one.id
    if cut:
        assert (body["status"], body["error"]["code"]) == ("failed", "server_error")
    else:
        assert (body["status"], body.get("error")) == (_status(one), None)
    _check_bytes(log, seen, more, last, cut=cut)
    _check_events(log, more, last)
    _check_contents(body, log, cut=cut)
    assert set(broken_rules(log)) - OWN[one.mode] <= KNOWN
    goes_on(one, running)
    assert get(running, f"/v1/responses/{one.id}").json() == body


KNOWN = {"lifecycle/error-reported", "openai-responses/number-gap"}
"""What a checker says of a log that a dead process left: it has an error, and left numbers out."""

OWN: dict[Mode, set[str]] = {
    "streamed": set(),
    "background": set(),
    "tool-session": {"openai-responses/unknown-event"},
    "echoed": set(broken_rules(b"".join(echoed("resp_x").values()))),
}
"""What it says of such a stream that nothing cut."""


def _status(one: Cell) -> str:
    return "incomplete" if one.mode == "tool-session" else "completed"


def _check_bytes(log: bytes, seen: bytes, more: bytes, last: int, *, cut: bool) -> None:
    """What was seen and what is stored begin alike; what is resumed is the rest of it."""
    frames = [one + b"\n\n" for one in log.split(b"\n\n")[:-1]]
    stored = b"".join(one for one in frames if max(numbers(one), default=GAP) < GAP)
    assert stored.startswith(seen) or seen.startswith(stored) or (not cut and log == seen)
    unseen = [one for one in frames if max(numbers(one), default=GAP) > last]
    assert b"".join(unseen) == more


def _check_events(log: bytes, more: bytes, last: int) -> None:
    """The end comes once, last, and with a number that was not used before."""
    assert log.endswith(DONE)
    assert log.count(DONE) == 1
    kinds = [event["type"] for event in events(log)]
    assert [kind for kind in kinds if kind in TERMINAL] == kinds[-1:]
    found = numbers(log)
    assert found == sorted(set(found))
    assert all(number > last for number in numbers(more))
    if events(log)[-1] not in events(more):
        assert last == found[-1]


def _check_contents(body: Object, log: bytes, *, cut: bool) -> None:
    """The response object has the content of the log, which is that of the upstream, once."""
    texts = [part["text"] for item in body["output"] for part in item.get("content", ())]
    calls = [item for item in body["output"] if item["type"] == "function_call"]
    text, arguments = "".join(TEXT), "".join(ARGUMENTS)
    assert "".join(texts) == text_of(log)
    assert "".join(call["arguments"] for call in calls) == arguments_of(log)
    assert text.startswith(text_of(log))
    assert arguments.startswith(arguments_of(log))
    assert len(calls) <= 1
    if not cut:
        assert (text_of(log), arguments_of(log)) == (text, arguments)
        assert [call["call_id"] for call in calls] == [CALL]


def goes_on(one: Cell, running: Gateway) -> None:
    """The next turn has all items, and a result for every call."""
    model = one.scene.upstream.script(reply("Fine."))
    asked = one.scene.begin(f"chat/{model}", previous_response_id=one.id)
    answer = post(running, "/v1/responses", asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"][0]["content"][0]["text"] == "Fine."
