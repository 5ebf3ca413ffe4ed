"""Background responses and the processes that run them: killed, frozen, stopped, full; with the
real command, real databases, and both dispatchers.

Whatever happens: a client sees one answer, never two of them merged, and every response ends.
"""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import weft_command
from tests.chat import chunk
from tests.crash.scene import (
    Object,
    Scene,
    Stream,
    ended,
    events,
    get,
    kill,
    numbers,
    post,
    resumed,
    scene,
    text_of,
)
from tests.faults.upstream import LAST, SILENCE, STREAM, Hold, Step, Upstream, upstream
from tests.faults.upstream import chunk as piece
from tests.faults.world import until
from tests.gateway_process import Gateway, gateway
from tests.stores import Kind
from tests.weft_command import ENVIRONMENT, WEFT

LATE = 40.0
"""Seconds until a response of a dead process must have ended, on a machine with much else to do."""

ROLE = piece(chunk({"role": "assistant"}))
HELLO = piece(chunk({"content": "Hello "}))
ANSWER: list[Step] = [
    STREAM,
    *map(piece, (chunk({"content": "Warp."}), chunk({}, "stop"), b"data: [DONE]\n\n")),
    LAST,
]


@dataclass(frozen=True)
class Backend:
    kind: Kind
    dispatcher: str = "local"


SQLITE = Backend("sqlite")
ON_POSTGRES = [
    pytest.param(Backend("postgres"), id="postgres", marks=pytest.mark.long),
    pytest.param(Backend("postgres", "pgqueuer"), id="pgqueuer", marks=pytest.mark.long),
]
QUICK = pytest.param(SQLITE, id="sqlite")
SLOW = pytest.param(SQLITE, id="sqlite", marks=pytest.mark.long)
ALWAYS = pytest.mark.parametrize("backend", [QUICK, *ON_POSTGRES])
EVERYWHERE = pytest.mark.parametrize("backend", [SLOW, *ON_POSTGRES])


@pytest.fixture(scope="module")
def staged() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@contextmanager
def cluster(
    backend: Backend, folder: Path, staged: Upstream, concurrency: int = 8, more: str = ""
) -> Iterator[Scene]:
    settings = (
        "lease = 1.0\n[workers]\nlease = 1.0\n"
        f'dispatcher = "{backend.dispatcher}"\nconcurrency = {concurrency}\n{more}'
    )
    with scene(backend.kind, folder, staged, settings) as made:
        yield made


def launch(made: Scene, at: Gateway, model: str, **more: object) -> str:
    """Begins a background response; returns its id."""
    answer = post(at, "/v1/responses", made.begin(model, background=True, **more)).json()
    assert answer["status"] == "queued", answer
    return str(answer["id"])


def status(at: Gateway, id: str) -> str:
    return str(get(at, f"/v1/responses/{id}").json()["status"])


def is_answer(at: Gateway, id: str, text: str = "Warp.") -> None:
    """Waits for the end of a response. It is this answer, once."""
    found = ended(at, id, LATE)
    assert (found["status"], found["error"]) == ("completed", None)
    log = resumed(at, id)
    assert text_of(log) == text
    told = [one["type"] for one in events(log)]
    assert told.count("response.created") == told.count("response.completed") == 1
    assert numbers(log) == sorted(set(numbers(log)))


def is_sound(made: Scene) -> None:
    """`weft verify` finds nothing, and nothing is left to be done."""
    made.database.audit()
    assert made.database.run(made.database.store.due_jobs()) == []
    checked = weft_command.run("verify", "--config", "weft.toml", folder=made.folder)
    assert checked.code == 0, checked.out + checked.err


@contextmanager
def worker(made: Scene) -> Iterator["subprocess.Popen[str]"]:
    """A `weft worker` with the same settings."""
    (made.folder / "weft.toml").write_text(made.settings)
    with subprocess.Popen(
        [WEFT, "worker", "--config", "weft.toml"],
        cwd=made.folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("working on background responses")
            yield process
        finally:
            process.kill()


# Killed

BEFORE_CONTENT: dict[str, list[Step]] = {
    "asked": [SILENCE],
    "head": [STREAM, SILENCE],
    "role": [STREAM, ROLE, SILENCE],
}


@EVERYWHERE
@pytest.mark.parametrize("place", BEFORE_CONTENT)
def test_what_was_asked_and_not_answered_is_asked_again(
    place: str, backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    with cluster(backend, tmp_path, staged) as made:
        here, there = made.start(), made.start()
        model = staged.script(BEFORE_CONTENT[place], ANSWER)
        id = launch(made, here, f"chat/{model}", instructions="Be brief.")
        sent = staged.exchange(model)
        until(lambda: sent.sent == sum(map(_size, BEFORE_CONTENT[place])), "the bytes")
        follower = Stream(there.url, f"/v1/responses/{id}?stream=true", None)
        kill(here)
        is_answer(there, id)
        assert text_of(follower.rest()) == "Warp."
        bodies = [one.body for one in staged.exchanges(model)]
        assert len(bodies) == 2
        assert bodies[0] == bodies[1]
        is_sound(made)


def _size(step: Step) -> int:
    return len(step) if isinstance(step, bytes) else 0


@EVERYWHERE
def test_what_was_shown_is_never_asked_again(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    with cluster(backend, tmp_path, staged) as made:
        here, there = made.start(), made.start()
        model = staged.script([STREAM, HELLO, SILENCE], ANSWER)
        id = launch(made, here, f"chat/{model}")
        made.database.holds(id, b"Hello ")
        kill(here)
        found = ended(there, id, LATE)
        assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
        log = resumed(there, id)
        assert text_of(log) == "Hello "
        assert len(staged.exchanges(model)) == 1
        is_sound(made)


@EVERYWHERE
def test_what_was_only_queued_is_asked_once(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    """Its gateway had no room for it, and dies; then there is a worker, and no gateway."""
    with cluster(backend, tmp_path, staged, concurrency=1) as made:
        here = made.start()
        busy, model = staged.script([SILENCE], ANSWER), staged.script(ANSWER)
        first = launch(made, here, f"chat/{busy}")
        staged.exchange(busy)
        second = launch(made, here, f"chat/{model}", stream=False)
        until(lambda: status(here, first) == "in_progress", "the beginning")
        assert status(here, second) == "queued"
        assert staged.exchanges(model) == []
        kill(here)
        with worker(made):
            until(lambda: _have_ended(made, first, second), "their end", LATE)
        there = made.start()
        for id in (first, second):
            is_answer(there, id)
        assert len(staged.exchanges(model)) == 1
        assert len(staged.exchanges(busy)) == 2
        is_sound(made)


def _have_ended(made: Scene, *ids: str) -> bool:
    found = [made.database.entry(id) for id in ids]
    return all(one is not None and one.ended is not None for one in found)


@EVERYWHERE
def test_a_gateway_killed_right_after_its_answer_has_lost_nothing(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    with cluster(backend, tmp_path, staged) as made:
        there = made.start()
        for _ in range(5):
            here, model = made.start(), staged.script(ANSWER)
            id = launch(made, here, f"chat/{model}")
            kill(here)
            found = ended(there, id, LATE)
            # Its answer may have come just then: it is whole, or failed after what was shown.
            if found["status"] == "completed":
                is_answer(there, id)
            else:
                assert text_of(resumed(there, id)) == "Warp."
            assert len(staged.exchanges(model)) <= 2
        is_sound(made)


@pytest.mark.parametrize("backend", ON_POSTGRES)
def test_a_gateway_that_was_frozen_adds_nothing(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    """It is taken for dead, its response is answered elsewhere, and then it gets its own answer."""
    with cluster(backend, tmp_path, staged) as made:
        here, there = made.start(), made.start()
        hold = Hold()
        other = [STREAM, *map(piece, (chunk({"content": "Weft."}, "stop"), b"data: [DONE]\n\n"))]
        model = staged.script([hold, *other, LAST], ANSWER)
        id = launch(made, here, f"chat/{model}")
        hold.here()
        here.process.send_signal(signal.SIGSTOP)
        try:
            # SQLite would be locked if it was stopped in a transaction: see the module of the runs.
            is_answer(there, id)
            hold.release()
        finally:
            here.process.send_signal(signal.SIGCONT)
        until(lambda: get(here, "/ready").status_code == 200, "its new lease", LATE)
        is_answer(here, id)
        assert len(staged.exchanges(model)) == 2
        is_sound(made)


# Stopped


@EVERYWHERE
def test_a_gateway_that_stops_hands_over_what_has_not_begun(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    with cluster(backend, tmp_path, staged) as made:
        here, there = made.start(), made.start()
        model = staged.script([SILENCE], ANSWER)
        id = launch(made, here, f"chat/{model}")
        staged.exchange(model)
        assert here.stop() == 0
        is_answer(there, id)
        assert len(staged.exchanges(model)) == 2
        is_sound(made)


# Full, cancelled


@ALWAYS
def test_a_full_process_leaves_the_rest_queued_and_to_others(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    with cluster(backend, tmp_path, staged, concurrency=1) as made:
        here, hold = made.start(), Hold()
        busy, model = staged.script([hold, *ANSWER]), staged.script(ANSWER)
        first = launch(made, here, f"chat/{busy}")
        hold.here()
        unwanted, second = (launch(made, here, f"chat/{model}") for _ in range(2))
        assert status(here, unwanted) == "queued"
        cancelled = post(here, f"/v1/responses/{unwanted}/cancel").json()
        assert (cancelled["status"], cancelled["error"]) == ("cancelled", None)
        assert cancelled == get(here, f"/v1/responses/{unwanted}").json()
        there = made.start()  # it has room
        is_answer(there, second)
        third = launch(made, there, f"chat/{staged.script([SILENCE])}")
        waiting = launch(made, here, f"chat/{model}")
        hold.release()
        for id in (first, waiting):
            is_answer(here, id)
        assert post(here, f"/v1/responses/{third}/cancel").json()["status"] == "cancelled"
        assert len(staged.exchanges(model)) == 2
        is_sound(made)


@EVERYWHERE
def test_a_response_of_a_dead_process_can_be_cancelled(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    with cluster(backend, tmp_path, staged, concurrency=1) as made:
        here, there = made.start(), made.start()
        model, other = staged.script([SILENCE]), staged.script([SILENCE])
        busy = launch(made, there, f"chat/{other}")
        staged.exchange(other)  # it cannot take more
        id = launch(made, here, f"chat/{model}")
        staged.exchange(model)
        kill(here)
        assert post(there, f"/v1/responses/{id}/cancel").json()["status"] == "cancelled"
        assert post(there, f"/v1/responses/{busy}/cancel").json()["status"] == "cancelled"
        assert len(staged.exchanges(model)) == 1
        is_sound(made)


@EVERYWHERE
def test_a_response_that_nobody_can_run_fails_and_says_why(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    with cluster(backend, tmp_path, staged) as made:
        here, model = made.start(), staged.script([SILENCE], ANSWER)
        id = launch(made, here, f"chat/{model}")
        staged.exchange(model)
        kill(here)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        settings = made.settings.replace("[upstreams.chat]", "[upstreams.other]")
        with gateway(settings, elsewhere) as there:
            found = ended(there, id, LATE)
            assert found["status"] == "failed"
            assert f"no model 'chat/{model}'" in found["error"]["message"]
        assert len(staged.exchanges(model)) == 1
        is_sound(made)


# What is stored


def test_no_key_is_stored(staged: Upstream, tmp_path: Path) -> None:
    secret = "sk-of-the-only-client-there-is"
    with cluster(SQLITE, tmp_path, staged, more=f'[server.keys]\nme = "{secret}"\n') as made:
        here, model = made.start(), staged.script([SILENCE])
        body = made.begin(f"chat/{model}", background=True)
        assert post(here, "/v1/responses", body, secret).json()["status"] == "queued"
        staged.exchange(model)
        kill(here)
        stored = b"".join(one.read_bytes() for one in tmp_path.glob("store*.db*"))
        assert b"Hello?" in stored
        assert secret.encode() not in stored
        assert b"sk-of-an-upstream" not in stored


# An agent as the model


AGENT = """
[agents.helper]
model = "chat/{model}"
"""


@EVERYWHERE
def test_a_run_of_a_dead_gateway_goes_on_in_the_same_response(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    model = staged.script([SILENCE], ANSWER)
    with cluster(backend, tmp_path, staged, more=AGENT.format(model=model)) as made:
        here, there = made.start(), made.start()
        id = launch(made, here, "helper")
        staged.exchange(model)
        kill(here)
        is_answer(there, id)
        runs: list[Object] = get(there, "/v1/runs").json()["data"]
        assert [one["status"] for one in runs] == ["finished"]
        is_sound(made)


@EVERYWHERE
def test_a_cancelled_response_of_a_dead_gateway_cancels_its_run(
    backend: Backend, staged: Upstream, tmp_path: Path
) -> None:
    model = staged.script([SILENCE], [SILENCE], ANSWER)
    with cluster(backend, tmp_path, staged, more=AGENT.format(model=model)) as made:
        here, there = made.start(), made.start()
        id = launch(made, here, "helper")
        staged.exchange(model)
        kill(here)
        assert post(there, f"/v1/responses/{id}/cancel").json()["status"] == "cancelled"
        [run] = get(there, "/v1/runs").json()["data"]
        assert run["status"] == "cancelled"
        is_sound(made)
