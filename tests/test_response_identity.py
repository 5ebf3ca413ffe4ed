"""A response is the same one wherever it is told: queued, running, ended, retrieved, replayed."""

import json
from collections.abc import Iterator

import pytest

from tests.crash.scene import ended
from tests.faults.upstream import LAST, SILENCE, STREAM, Hold, Step, answer, chunk
from tests.faults.wires import CHAT, RESPONSES, SPEECHES
from tests.framings import data_of
from tests.passing_world import KEYS, Passing, passing, streamed, terminal

KEY = KEYS["one"]
EVERY_UPSTREAM = pytest.mark.parametrize("upstream", [CHAT, RESPONSES])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Passing]:
    with passing(tmp_path_factory.mktemp("identity")) as made:
        yield made


def identity(response: dict[str, object]) -> tuple[object, ...]:
    return tuple(response[name] for name in ("id", "created_at", "model", "background"))


@EVERY_UPSTREAM
def test_a_response_in_the_background_keeps_its_identity(world: Passing, upstream: str) -> None:
    hold, frames = Hold(), SPEECHES[upstream].frames
    steps: list[Step] = [STREAM, *map(chunk, frames[:3]), hold, *map(chunk, frames[3:]), LAST]
    model = world.model(upstream, steps)
    queued = world.ask(RESPONSES, model, stream=False, background=True).json()
    assert (queued["status"], queued["model"]) == ("queued", model)
    hold.here()
    running = world.get(f"/v1/responses/{queued['id']}").json()
    hold.release()
    last = ended(world.gateway, queued["id"], key=KEY)
    assert last["status"] == "completed"
    assert identity(queued) == identity(running) == identity(last)
    assert identity(queued)[2:] == (model, True)


@EVERY_UPSTREAM
def test_a_stream_in_the_background_keeps_its_identity(world: Passing, upstream: str) -> None:
    model = world.model(upstream, streamed(b"".join(SPEECHES[upstream].frames)))
    told = world.ask(RESPONSES, model, background=True).content
    snapshots = [
        one["response"] for one in map(json.loads, data_of(told)[:-1]) if "response" in one
    ]
    assert len(snapshots) >= 3
    assert len({identity(one) for one in snapshots}) == 1
    assert snapshots[0]["model"] == model
    found = world.get(f"/v1/responses/{snapshots[0]['id']}").json()
    assert found == snapshots[-1]
    again = world.get(f"/v1/responses/{found['id']}?stream=true").content
    assert again == told


@EVERY_UPSTREAM
@pytest.mark.parametrize("stream", [True, False])
def test_the_model_that_a_response_names_can_be_asked_again(
    world: Passing, upstream: str, stream: bool
) -> None:
    speech = SPEECHES[upstream]
    whole = streamed(b"".join(speech.frames)) if stream else (answer(speech.body),)
    model = world.model(upstream, whole)
    told = world.ask(RESPONSES, model, stream=stream)
    named = (terminal(told.content) if stream else told.json())["model"]
    assert named == model
    assert world.ask(RESPONSES, named, stream=stream).status_code == 200


@EVERY_UPSTREAM
@pytest.mark.parametrize("stream", [True, False])
def test_a_cancelled_response_is_replayed_as_cancelled(
    world: Passing, upstream: str, stream: bool
) -> None:
    speech, hold = SPEECHES[upstream], Hold()
    begun = [*speech.head, *speech.content[:3]] if upstream == RESPONSES else speech.frames[:2]
    model = world.model(upstream, [STREAM, *map(chunk, begun), hold, SILENCE])
    id = _begun(world, model, stream)
    hold.here()
    cancelled = world.post(f"/v1/responses/{id}/cancel", {}).json()
    hold.release()
    assert (cancelled["status"], cancelled["error"]) == ("cancelled", None)
    found = ended(world.gateway, id, key=KEY)
    assert (found["status"], found["model"], found["error"]) == ("cancelled", model, None)
    replayed = world.get(f"/v1/responses/{id}?stream=true").content
    names = [json.loads(one)["type"] for one in data_of(replayed) if one != b"[DONE]"]
    assert "response.failed" not in names
    assert "error" not in names
    assert terminal(replayed)["status"] == "cancelled"
    assert identity(terminal(replayed)) == identity(found)


def _begun(world: Passing, model: str, stream: bool) -> str:
    """The id of a response that runs in the background; nobody waits for it."""
    if not stream:
        return str(world.ask(RESPONSES, model, stream=False, background=True).json()["id"])
    body = {"model": model, "input": "hi", "stream": True, "background": True}
    headers = {"authorization": f"Bearer {KEY}"}
    with world.http.stream("POST", "/v1/responses", json=body, headers=headers) as told:
        for line in told.iter_lines():
            if line.startswith("data: {"):
                return str(json.loads(line[6:])["response"]["id"])
    raise AssertionError("the stream told no response")


# What cannot be done is not asked for

CALL = (
    b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,'
    b'"id":"call_1","type":"function","function":{"name":"look","arguments":"{}"}}]}}]}\n\n'
    b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    b"data: [DONE]\n\n"
)
TOOLS = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("store", [True, False])
def test_outputs_are_required_only_where_they_can_be_submitted(
    world: Passing, stream: bool, store: bool
) -> None:
    model = world.model(CHAT, streamed(CALL.replace(b'"c"', b'"c%d%d"' % (stream, store))))
    told = world.ask(
        RESPONSES,
        model,
        stream=stream,
        store=store,
        include=["required_action"],
        tools=TOOLS,
    )
    names = [json.loads(one)["type"] for one in data_of(told.content) if one != b"[DONE]"]
    found = terminal(told.content) if stream else told.json()
    assert ("response.required_action" in names) == (store and stream)
    assert bool(found.get("required_action")) == store
    outputs = {"tool_outputs": [{"call_id": "call_1", "output": "seen"}]}
    world.upstream.named(model.partition("/")[2], streamed(b"".join(SPEECHES[CHAT].frames)))
    submitted = world.post(f"/v1/responses/{found['id']}/submit_tool_outputs", outputs)
    assert submitted.status_code == (200 if store else 404)
