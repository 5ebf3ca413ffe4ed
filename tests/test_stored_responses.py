"""Stored responses over HTTP: retrieved, listed, resumed, cancelled, deleted, continued."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.chat import calls, chunk, entry
from tests.crash.scene import (
    DONE,
    TERMINAL,
    Object,
    Scene,
    Stream,
    ended,
    events,
    http,
    id_in,
    numbers,
    scene,
    text_of,
)
from tests.faults.upstream import FIN, LAST, SILENCE, STREAM, Hold, Step, Upstream, upstream
from tests.faults.upstream import chunk as piece
from tests.faults.world import until
from tests.gateway_process import Gateway
from tests.stores import KINDS, Kind
from weft.relay.history import UNANSWERED

ONE, TWO = "sk-of-the-first-client", "sk-of-the-second-client"
KEYS = f'[server.keys]\none = "{ONE}"\ntwo = "{TWO}"\n'
FINISHED = (chunk({}, "stop"), b"data: [DONE]\n\n")
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


@dataclass
class World:
    """A gateway that remembers, and who talks to it."""

    scene: Scene
    gateway: Gateway

    @property
    def upstream(self) -> Upstream:
        return self.scene.upstream

    def script(self, *scripts: Sequence[Step]) -> str:
        """The name of a model that plays these."""
        return f"chat/{self.upstream.script(*scripts)}"

    def told(self, model: str) -> list[Object]:
        """What the upstream was asked so far."""
        name = model.partition("/")[2]
        return [json.loads(one.body) for one in self.upstream.exchanges(name)]

    @cached_property
    def sdk(self) -> OpenAI:
        return OpenAI(base_url=f"{self.gateway.url}/v1", api_key=ONE, max_retries=0, timeout=20)

    def stream(self, path: str, body: Object | None = None) -> Stream:
        return Stream(self.gateway.url, path, body, ONE)

    def resumed(self, id: str, after: int | None = None) -> bytes:
        return resumed(self.gateway, id, after)

    def ask(self, method: str, path: str, key: str = ONE, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        return http.request(method, self.gateway.url + path, headers=headers, **more)


def resumed(running: Gateway, id: str, after: int | None = None) -> bytes:
    """What a client is sent that saw the events up to this one."""
    more = "" if after is None else f"&starting_after={after}"
    with Stream(running.url, f"/v1/responses/{id}?stream=true{more}", None, ONE) as stream:
        told = stream.rest()
        assert (stream.status, stream.broken) == (200, False), told
        return told


@contextmanager
def opened(kind: Kind, folder: Path) -> Iterator[World]:
    with upstream() as staged, scene(kind, folder, staged) as made:
        made.keys = KEYS
        world = World(made, made.start())
        try:
            yield world
        finally:
            world.sdk.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened("sqlite", tmp_path_factory.mktemp("stored")) as made:
        yield made


@pytest.fixture(scope="module", params=KINDS)
def either(
    request: pytest.FixtureRequest, world: World, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """On each of the databases."""
    if request.param == "sqlite":
        yield world
    else:
        with opened(request.param, tmp_path_factory.mktemp("stored")) as made:
            yield made


def said(*texts: str) -> list[Step]:
    """A script that says these, in pieces."""
    return [STREAM, *(piece(chunk({"content": one})) for one in texts), *map(piece, FINISHED), LAST]


def calling(id: str = "call_1", arguments: str = "{}") -> list[Step]:
    made = (calls(entry(0, id, "weather", arguments)), chunk({}, "tool_calls"), FINISHED[1])
    return [STREAM, *map(piece, made), LAST]


# Read, listed, deleted


def test_the_retrieved_response_is_the_last_one_that_was_sent(either: World) -> None:
    model = either.script(said("Warp ", "and weft."))
    body = {"model": model, "input": "Hello?", "stream": True, "metadata": {"who": "me"}}
    with either.stream("/v1/responses", body) as stream:
        last = events(stream.rest())[-1]
    assert last["type"] == "response.completed"
    found = either.ask("GET", f"/v1/responses/{last['response']['id']}")
    assert (found.status_code, found.json()) == (200, last["response"])
    assert found.json()["metadata"] == {"who": "me"}


def test_a_body_is_retrieved_byte_for_byte(either: World) -> None:
    model = either.script(said("Warp and weft."))
    answer = either.ask("POST", "/v1/responses", json={"model": model, "input": "Hello?"})
    found = either.ask("GET", f"/v1/responses/{answer.json()['id']}")
    assert found.content == answer.content


def test_the_sdk_retrieves_and_deletes(world: World) -> None:
    client = world.sdk
    made = client.responses.create(model=world.script(said("Warp.")), input="Hello?")
    assert client.responses.retrieve(made.id) == made
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(made.id)


ITEMS: list[Any] = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "21"},
    {"role": "user", "content": [{"type": "input_text", "text": "five"}]},
]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 5, 20])
def test_the_sdk_lists_all_input_items_page_by_page(world: World, order: Any, limit: int) -> None:
    client = world.sdk
    model = world.script(said("Fine."))
    made = client.responses.create(model=model, input=ITEMS)
    listed = list(client.responses.input_items.list(made.id, limit=limit, order=order))
    whole = client.responses.input_items.list(made.id, limit=100, order="asc").data
    assert listed == (whole if order == "asc" else whole[::-1])
    assert [one.type for one in whole] == [one.get("type", "message") for one in ITEMS]
    assert len({one.id for one in whole}) == len(ITEMS)


def test_input_items_are_those_of_this_turn_only(world: World) -> None:
    client = world.sdk
    model = world.script(said("Fine."))
    first = client.responses.create(model=model, input="one")
    second = client.responses.create(model=model, input="two", previous_response_id=first.id)
    (item,) = client.responses.input_items.list(second.id).data
    assert item.to_dict()["content"] == [{"type": "input_text", "text": "two"}]


PAGES = ("limit=0", "limit=101", "limit=x", "after=msg_none", "limit=1&after=", "order=up")


@pytest.mark.parametrize("query", PAGES)
def test_an_invalid_page_is_refused_by_parameter(world: World, query: str) -> None:
    made = world.sdk.responses.create(model=world.script(said("Fine.")), input="Hello?")
    answer = world.ask("GET", f"/v1/responses/{made.id}/input_items?{query}")
    name = query.partition("=")[0]
    if query.endswith("after="):
        assert answer.status_code == 200
    else:
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)


def test_whether_to_stream_a_stored_response_is_true_or_false(world: World) -> None:
    made = world.sdk.responses.create(model=world.script(said("Fine.")), input="Hello?")
    path = f"/v1/responses/{made.id}?stream="
    kinds = [world.ask("GET", path + word).headers["content-type"] for word in ("true", "false")]
    assert kinds == ["text/event-stream; charset=utf-8", "application/json"]
    error = world.ask("GET", path + "yes")
    assert error.status_code == 400
    assert error.json()["error"]["message"].endswith("'yes'; expected false or true")


def test_a_response_with_store_false_is_not_stored(either: World) -> None:
    model = either.script(said("Secret."))
    asked = {"model": model, "input": "Hush", "store": False}
    whole = either.ask("POST", "/v1/responses", json=asked).json()
    with either.stream("/v1/responses", {**asked, "stream": True}) as stream:
        streamed = id_in(stream.rest())
    for id in (whole["id"], streamed):
        assert either.ask("GET", f"/v1/responses/{id}").status_code == 404
        assert either.scene.database.entry(id) is None
        again = {"model": model, "input": "More", "previous_response_id": id}
        refused = either.ask("POST", "/v1/responses", json=again)
        assert refused.json()["error"]["code"] == "previous_response_not_found"
    assert (
        either.ask("POST", "/v1/responses", json={**asked, "background": True}).status_code == 400
    )


# Ownership

ABSENT = "resp_00000000000000000000000000000000"
VERBS = (
    ("GET", "/v1/responses/{id}", None),
    ("GET", "/v1/responses/{id}?stream=true", None),
    ("GET", "/v1/responses/{id}?stream=true&starting_after=1", None),
    ("GET", "/v1/responses/{id}/input_items", None),
    ("POST", "/v1/responses/{id}/cancel", None),
    ("DELETE", "/v1/responses/{id}", None),
    ("POST", "/v1/responses", {"model": "chat/none", "input": "x", "previous_response_id": "{id}"}),
)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(("method", "path", "body"), VERBS)
def test_responses_of_another_key_are_not_found(
    world: World, method: str, path: str, body: Object | None, background: bool
) -> None:
    model = world.script(said("Mine."))
    made = world.sdk.responses.create(model=model, input="x", background=background)
    until(lambda: world.sdk.responses.retrieve(made.id).status == "completed", "the answer")

    def asked(id: str) -> tuple[int, bytes]:
        data = None if body is None else json.loads(json.dumps(body).replace("{id}", id))
        answer = world.ask(method, path.format(id=id), TWO, json=data)
        return answer.status_code, answer.content.replace(id.encode(), b"ID")

    foreign = asked(made.id)
    assert foreign == asked(ABSENT)
    assert foreign[0] == 404
    assert world.ask("GET", f"/v1/responses/{made.id}").status_code == 200


def test_an_unknown_previous_response_is_named(world: World) -> None:
    body = {"model": "chat/none", "input": "x", "previous_response_id": ABSENT}
    answer = world.ask("POST", "/v1/responses", json=body)
    assert answer.status_code == 404
    assert answer.json() == {
        "error": {
            "message": f"Previous response with id '{ABSENT}' not found.",
            "type": "not_found",
            "param": "previous_response_id",
            "code": "previous_response_not_found",
        }
    }


# Turns


def test_a_turn_continues_all_turns_before_it(either: World) -> None:
    client = either.sdk
    model = either.script(said("First."), said("Second."), said("Third."))
    id: str | None = None
    for text in ("one", "two", "three"):
        made = client.responses.create(
            model=model, input=text, previous_response_id=id, instructions=f"for {text}"
        )
        assert made.previous_response_id == id
        id = made.id
    assert either.told(model)[2]["messages"] == [
        {"role": "system", "content": "for three"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "First."},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "Second."},
        {"role": "user", "content": "three"},
    ]


def test_a_call_is_answered_in_the_next_turn(either: World) -> None:
    client = either.sdk
    model = either.script(calling("call_7"), said("Warm."))
    tools: Any = [WEATHER]
    first = client.responses.create(model=model, input="Rome?", tools=tools)
    outputs: Any = [{"type": "function_call_output", "call_id": "call_7", "output": "21"}]
    client.responses.create(model=model, input=outputs, previous_response_id=first.id, tools=tools)
    roles = [(one["role"], one.get("tool_call_id")) for one in either.told(model)[1]["messages"]]
    assert roles == [("user", None), ("assistant", None), ("tool", "call_7")]


def test_a_result_without_a_call_is_refused(world: World) -> None:
    client = world.sdk
    model = world.script(said("Hm."))
    first = client.responses.create(model=model, input="x")
    outputs: Any = [{"type": "function_call_output", "call_id": "call_no", "output": "21"}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=model, input=outputs, previous_response_id=first.id)
    assert refused.value.param == "input[0].call_id"


def _cut(world: World, steps: Sequence[bytes]) -> str:
    """A stream that ends before it is over."""
    model = world.script([STREAM, *steps, FIN])
    with world.stream("/v1/responses", _streamed(model)) as stream:
        id = id_in(stream.rest())
    assert ended(world.gateway, id, key=ONE)["status"] == "failed"
    return id


def _cancelled(world: World, steps: Sequence[bytes]) -> str:
    model, client = world.script([STREAM, *steps, SILENCE]), world.sdk
    tools: Any = [WEATHER]
    made = client.responses.create(model=model, input="Hello?", background=True, tools=tools)
    with world.stream(f"/v1/responses/{made.id}?stream=true") as stream:
        stream.until(b"so far" if steps is SO_FAR else b"call_9")
    assert client.responses.cancel(made.id).status == "cancelled"
    return made.id


def _left(world: World, steps: Sequence[bytes]) -> str:
    """A stream whose client goes away."""
    model = world.script([STREAM, *steps, SILENCE])
    with world.stream("/v1/responses", _streamed(model)) as stream:
        stream.until(b"so far" if steps is SO_FAR else b"call_9").until(b"\n\n")
        id = id_in(stream.seen)
    assert ended(world.gateway, id, key=ONE)["status"] == "cancelled"
    return id


def _streamed(model: str) -> Object:
    return {"model": model, "input": "Hello?", "stream": True, "tools": [WEATHER]}


SO_FAR = (piece(chunk({"content": "It is so far"})),)
CUT_CALL = (piece(calls(entry(0, "call_9", "weather", '{"city":'))),)
ENDINGS = {"cut": _cut, "cancelled": _cancelled, "left": _left}


@pytest.mark.parametrize("steps", [SO_FAR, CUT_CALL], ids=["text", "call"])
@pytest.mark.parametrize("how", ENDINGS)
def test_an_interrupted_turn_can_be_continued(
    world: World, how: str, steps: Sequence[bytes]
) -> None:
    id = ENDINGS[how](world, steps)
    model = world.script(said("Well."))
    made = world.sdk.responses.create(model=model, input="Go on.", previous_response_id=id)
    assert made.output_text == "Well."
    (asked,) = world.told(model)
    texts = [line for one in asked["messages"] for line in one["content"].split("\n")]
    assert texts == ["Hello?", *(["It is so far"] if steps is SO_FAR else []), "Go on."]


def test_a_call_without_a_result_gets_one_that_says_so(either: World) -> None:
    client = either.sdk
    tools: Any = [WEATHER]
    model = either.script(calling("call_8"), said("Well."))
    first = client.responses.create(model=model, input="Rome?", tools=tools)
    client.responses.create(model=model, input="Never mind.", previous_response_id=first.id)
    assert either.told(model)[1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_8",
                    "type": "function",
                    "function": {"name": "weather", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_8", "content": UNANSWERED},
        {"role": "user", "content": "Never mind."},
    ]


def test_a_running_response_cannot_be_continued(world: World) -> None:
    client = world.sdk
    made = client.responses.create(model=world.script([SILENCE]), input="x", background=True)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(
            model=world.script(said("No.")), input="y", previous_response_id=made.id
        )
    assert refused.value.param == "previous_response_id"
    client.responses.cancel(made.id)


def test_agents_continue_an_earlier_response(world: World) -> None:
    # Imported by the one test that needs it: it takes a second, which is saved where it is not run.
    from agents import Agent, OpenAIResponsesModel, RunConfig, Runner

    model = world.script(said("First."), said("Second."))

    async def talk() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{world.gateway.url}/v1", api_key=ONE, max_retries=0
        ) as client:
            agent = Agent(name="Helper", model=OpenAIResponsesModel(model, client))
            quiet = RunConfig(tracing_disabled=True)
            first = await Runner.run(agent, "one", run_config=quiet)
            second = await Runner.run(
                agent, "two", run_config=quiet, previous_response_id=first.last_response_id
            )
            return [first.final_output, second.final_output]

    assert asyncio.run(talk()) == ["First.", "Second."]
    assert [one["content"] for one in world.told(model)[1]["messages"]] == ["one", "First.", "two"]


# In the background


def test_a_background_response_is_polled_until_it_has_ended(either: World) -> None:
    client, hold = either.sdk, Hold()
    model = either.script([hold, *said("Warp.")])
    made = client.responses.create(model=model, input="x", background=True)
    assert (made.status, made.background, made.output) == ("queued", True, [])
    until(lambda: client.responses.retrieve(made.id).status == "in_progress", "the beginning")
    hold.release()
    until(lambda: client.responses.retrieve(made.id).status == "completed", "the answer")
    found = client.responses.retrieve(made.id)
    assert (found.output_text, found.background) == ("Warp.", True)


def test_the_sdk_resumes_a_background_stream_where_it_stopped(either: World) -> None:
    client, hold = either.sdk, Hold()
    model = either.script([*said("Warp ", "and ")[:3], hold, *said("weft.")[1:]])
    told: list[Any] = []
    with client.responses.create(model=model, input="x", background=True, stream=True) as stream:
        for event in stream:
            told.append(event)
            if event.type == "response.output_text.delta" and event.delta == "and ":
                break
    id = told[0].response.id
    hold.release()
    last = told[-1].sequence_number
    told += client.responses.retrieve(id, stream=True, starting_after=last)
    assert [one.sequence_number for one in told] == list(range(len(told)))
    assert told[-1].response == client.responses.retrieve(id)
    assert client.responses.retrieve(id).output_text == "Warp and weft."


@pytest.mark.parametrize(
    "steps", [[], [STREAM], [STREAM, *SO_FAR]], ids=["silence", "head", "text"]
)
def test_cancel_ends_a_background_response(either: World, steps: list[Step]) -> None:
    client, model = either.sdk, either.script([*steps, SILENCE])
    made = client.responses.create(model=model, input="x", background=True)
    exchange = either.upstream.exchange(model.partition("/")[2])
    if len(steps) == 2:
        with either.stream(f"/v1/responses/{made.id}?stream=true") as stream:
            stream.until(b"so far")
    cancelled = client.responses.cancel(made.id)
    assert cancelled.status == "cancelled"
    exchange.left()
    assert client.responses.cancel(made.id) == cancelled == client.responses.retrieve(made.id)
    log = either.resumed(made.id)
    assert events(log)[-1]["type"] in TERMINAL
    assert log.endswith(DONE)


def test_only_background_responses_can_be_cancelled(world: World) -> None:
    made = world.sdk.responses.create(model=world.script(said("Warp.")), input="x")
    with pytest.raises(openai.BadRequestError):
        world.sdk.responses.cancel(made.id)


def test_a_background_response_that_fails_is_reported(either: World) -> None:
    client = either.sdk
    refusal = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
    broken: tuple[list[Step], list[Step]] = ([refusal], [STREAM, *SO_FAR, FIN])
    for steps, code in zip(broken, ("server_error", "truncated"), strict=True):
        made = client.responses.create(model=either.script(steps), input="x", background=True)
        found = ended(either.gateway, made.id, key=ONE)
        assert (found["status"], found["error"]["code"]) == ("failed", code)
        last = events(either.resumed(made.id))[-1]
        assert (last["type"], last["response"]) == ("response.failed", found)


# Resumed


def test_a_resume_from_any_event_returns_the_rest_byte_for_byte(either: World) -> None:
    model = either.script(
        [STREAM, *SO_FAR, *map(piece, (calls(entry(0, "call_5", "weather", '{"a":')),)),
         piece(calls(entry(0, None, None, "1}"))), piece(chunk({}, "tool_calls")),
         piece(FINISHED[1]), LAST]
    )  # fmt: skip
    with either.stream("/v1/responses", _streamed(model)) as stream:
        log = stream.rest()
    frames = [one + b"\n\n" for one in log.split(b"\n\n")[:-1]]
    id = id_in(log)
    assert either.resumed(id) == log
    for number in range(len(frames) - 1):
        assert b"".join(frames[: number + 1]) + either.resumed(id, number) == log
    assert either.scene.database.log(id) == log
    either.scene.database.audit()


@pytest.mark.parametrize("background", [False, True])
def test_a_resume_from_any_event_works_while_the_response_runs(
    either: World, background: bool
) -> None:
    texts = ("Warp ", "and ", "weft ", "and ", "warp.")
    holds = [Hold() for _ in texts]
    paced: list[Step] = [STREAM]
    for hold, text in zip(holds, texts, strict=True):
        paced += [piece(chunk({"content": text})), hold]
    model = either.script([*paced, *map(piece, FINISHED), LAST])
    first = either.stream("/v1/responses", {**_streamed(model), "background": background})
    id = id_in(first.until(b"Warp ").until(b"\n\n").seen)
    followers: dict[int, Stream] = {}
    for hold, text in zip(holds, texts, strict=True):
        first.until(text.encode())
        for number in numbers(first.seen):
            if number not in followers:
                path = f"/v1/responses/{id}?stream=true&starting_after={number}"
                followers[number] = either.stream(path)
        hold.release()
    log = first.rest()
    frames = [one + b"\n\n" for one in log.split(b"\n\n")[:-1]]
    for number, follower in followers.items():
        assert b"".join(frames[: number + 1]) + follower.rest() == log
        follower.close()
    assert len(followers) >= len(texts)
    first.close()


def test_a_follower_that_disconnects_ends_nothing_else(either: World) -> None:
    hold = Hold()
    model = either.script([STREAM, *SO_FAR, hold, *map(piece, FINISHED), LAST])
    with either.stream("/v1/responses", _streamed(model)) as first:
        id = id_in(first.until(b"so far").until(b"\n\n").seen)
        with either.stream(f"/v1/responses/{id}?stream=true") as follower:
            follower.until(b"so far")
        with either.stream(f"/v1/responses/{id}?stream=true") as another:  # the other was noticed
            another.until(b"so far")
            hold.release()
            last = events(first.rest())[-1]
    assert (last["type"], last["response"]["status"]) == ("response.completed", "completed")


def test_a_client_that_disconnected_finds_what_had_arrived_with_an_end(either: World) -> None:
    model = either.script([STREAM, *SO_FAR, SILENCE])
    with either.stream("/v1/responses", _streamed(model)) as stream:
        seen = stream.until(b"so far").until(b"\n\n").seen
    id = id_in(seen)
    either.upstream.exchange(model.partition("/")[2]).left()
    found = ended(either.gateway, id, key=ONE)
    log = either.resumed(id)
    assert found["status"] == "cancelled"
    assert log == seen + either.resumed(id, max(numbers(seen)))
    assert events(log)[-1]["type"] in TERMINAL
    assert log.endswith(DONE)
    assert text_of(log) == "It is so far"
    either.scene.database.audit()


@pytest.mark.parametrize(("window", "status"), [(30, "completed"), (0.1, "cancelled")])
def test_a_stream_runs_on_for_the_resume_window(tmp_path: Path, window: float, status: str) -> None:
    with upstream() as staged, scene("sqlite", tmp_path, staged) as made:
        made.keys = f"resume_window = {window}\n{KEYS}"
        world = World(made, made.start())
        hold = Hold()
        model = world.script([STREAM, *SO_FAR, hold, *map(piece, FINISHED), LAST])
        with world.stream("/v1/responses", _streamed(model)) as stream:
            seen = stream.until(b"so far").until(b"\n\n").seen
        id = id_in(seen)
        if status == "completed":
            hold.release()
        path = f"/v1/responses/{id}"
        until(lambda: world.ask("GET", path).json()["status"] == status, status)
        assert world.resumed(id).startswith(seen)
        world.sdk.close()


def test_resuming_a_body_is_refused_or_ends_with_a_terminal_event(
    world: World,
) -> None:
    made = world.sdk.responses.create(model=world.script(said("Warp.")), input="x")
    answer = world.ask("GET", f"/v1/responses/{made.id}?stream=true")
    told = events(answer.content) if answer.status_code == 200 else []
    assert answer.status_code == 400 or told[-1]["type"] in TERMINAL


# Retrieved while the end is sent


@pytest.mark.parametrize(
    ("kind", "times"),
    [
        ("sqlite", 50),
        pytest.param("sqlite", 1000, marks=pytest.mark.long),
        pytest.param("postgres", 1000, marks=pytest.mark.long),
    ],
)
def test_a_client_that_has_the_end_can_retrieve_the_response(
    kind: Kind, times: int, world: World, tmp_path: Path
) -> None:
    if (kind, times) == ("sqlite", 50):
        read_at_the_end(world, times)
    else:
        with opened(kind, tmp_path) as made:
            read_at_the_end(made, times)


def read_at_the_end(world: World, times: int) -> None:
    model = world.script(said("Warp ", "and weft."))
    headers = {"authorization": f"Bearer {ONE}"}
    second = httpx.Client(base_url=world.gateway.url, headers=headers, verify=False, timeout=20)
    with second:
        for _ in range(times):
            with world.stream("/v1/responses", _streamed(model)) as stream:
                stream.until(b"event: response.completed").until(b"\n\ndata: [DONE]")
                last = events(stream.seen)[-1]
                found = second.get(f"/v1/responses/{last['response']['id']}")
                assert (found.status_code, found.json()) == (200, last["response"])


# Two gateways on one database


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def two(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, World]]:
    with opened(request.param, tmp_path_factory.mktemp("two")) as made:
        other = World(made.scene, made.scene.start())
        try:
            yield made, other
        finally:
            other.sdk.close()


def test_another_gateway_resumes_a_running_response(two: tuple[World, World]) -> None:
    here, there = two
    hold = Hold()
    model = here.script([STREAM, *SO_FAR, hold, *said(" and further.")[1:]])
    first = here.stream("/v1/responses", _streamed(model))
    id = id_in(first.until(b"so far").until(b"\n\n").seen)
    last = max(numbers(first.seen))
    seen = first.seen
    with there.stream(f"/v1/responses/{id}?stream=true") as follower:
        follower.until(b"so far")
        rest = there.stream(f"/v1/responses/{id}?stream=true&starting_after={last}")
        hold.release()
        log = first.rest()
        assert follower.rest() == log
        assert seen + rest.rest() == log
        rest.close()
    assert there.ask("GET", f"/v1/responses/{id}").json() == events(log)[-1]["response"]
    first.close()


def test_another_gateway_cancels_a_running_response(two: tuple[World, World]) -> None:
    here, there = two
    model = here.script([STREAM, *SO_FAR, SILENCE])
    made = here.sdk.responses.create(model=model, input="x", background=True)
    exchange = here.upstream.exchange(model.partition("/")[2])
    assert there.sdk.responses.cancel(made.id).status == "cancelled"
    exchange.left()
    assert here.resumed(made.id) == there.resumed(made.id)


def test_another_gateway_continues_a_finished_response(two: tuple[World, World]) -> None:
    here, there = two
    model = here.script(said("First."), said("Second."))
    first = here.sdk.responses.create(model=model, input="one")
    second = there.sdk.responses.create(model=model, input="two", previous_response_id=first.id)
    assert [one["content"] for one in here.told(model)[1]["messages"]] == ["one", "First.", "two"]
    assert here.sdk.responses.retrieve(second.id) == second


def test_another_gateway_deletes_a_running_response(two: tuple[World, World]) -> None:
    here, there = two
    model = here.script([STREAM, *SO_FAR, SILENCE])
    made = here.sdk.responses.create(model=model, input="x", background=True)
    exchange = here.upstream.exchange(model.partition("/")[2])
    there.sdk.responses.delete(made.id)
    exchange.left()
    with pytest.raises(openai.NotFoundError):
        here.sdk.responses.retrieve(made.id)
