"""The public compliance cases of Open Responses that need nothing stored, written anew, through
the gateway with an upstream of each dialect; and what the public suite does not look at.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest
from websockets.sync.client import connect
from websockets.sync.connection import Connection

import weft
from tests.gateway_process import Gateway, gateway
from tests.open_responses import (
    ERROR,
    ERROR_FRAME,
    EVENT,
    RESPONSE,
    TERMINAL,
    Object,
    problems,
    terminal,
)

DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
PATIENCE = 30.0
PLACE = """
[upstreams.{dialect}]
dialect = "{dialect}"
base_url = "demo:fast"
retry = {{ attempts = 1 }}
breaker = {{ failures = 0 }}
"""

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJg"
    "gg=="
)
WEATHER: Object = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a place",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}


def message(role: str, content: object, **more: object) -> Object:
    return {"type": "message", "role": role, "content": content, **more}


@dataclass(frozen=True)
class Case:
    """One request, and the kinds of items that answer it."""

    asked: Object
    items: tuple[str, ...] = ("message",)
    model: str = "chat"
    echoed: Object = field(default_factory=dict)
    """What of the request must be found in the response."""

    def body(self, upstream: str, **more: object) -> Object:
        return {"model": f"{upstream}/{self.model}", **self.asked, **more}


CASES: dict[str, Case] = {
    "basic-response": Case({"input": [message("user", "Say hello in exactly three words.")]}),
    "a plain string": Case({"input": "Count from one to five."}),
    "assistant-phase": Case(
        {
            "input": [
                message("assistant", "I look for the number.", phase="commentary"),
                message("assistant", "The number is four.", phase="final_answer"),
                message("user", "Only the number, please."),
            ]
        }
    ),
    "system-prompt": Case(
        {"input": [message("system", "You are a pirate."), message("user", "Say hello.")]}
    ),
    "developer and instructions": Case(
        {
            "instructions": "Be brief.",
            "input": [message("developer", "Be a pirate."), message("user", "Say hello.")],
        },
        echoed={"instructions": "Be brief."},
    ),
    "tool-calling": Case(
        {"input": [message("user", "What is the weather in Oslo?")], "tools": [WEATHER]},
        items=("function_call",),
        echoed={"tools": [{**WEATHER, "strict": None}], "tool_choice": "auto"},
    ),
    "two calls at once": Case(
        {
            "input": [message("user", "The weather and the time in Oslo?")],
            "tools": [WEATHER, {**WEATHER, "name": "get_time", "strict": False}],
            "tool_choice": "required",
        },
        items=("function_call", "function_call"),
        model="tools",
        echoed={"tool_choice": "required"},
    ),
    "a result": Case(
        {
            "input": [
                message("user", "What is the weather in Oslo?"),
                {
                    "type": "function_call",
                    "call_id": "call_1",
                    "name": "get_weather",
                    "arguments": '{"location":"Oslo"}',
                },
                {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
            ],
            "tools": [WEATHER],
        }
    ),
    "image-input": Case(
        {
            "input": [
                message(
                    "user",
                    [
                        {"type": "input_text", "text": "What is in this picture?"},
                        {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
                    ],
                )
            ]
        }
    ),
    "multi-turn": Case(
        {
            "input": [
                message("user", "My name is Alice."),
                message("assistant", "Hello Alice! How can I help?"),
                message("user", "What is my name?"),
            ]
        }
    ),
    "reasoning": Case(
        {"input": "What is 2 + 2?", "reasoning": {"effort": "low"}},
        items=("reasoning", "message"),
        model="reasoner",
    ),
    "sources": Case({"input": "Where does wool come from?"}, model="sources"),
    "all options": Case(
        {
            "input": "Hello",
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 500,
            "metadata": {"team": "a"},
            "store": False,
            "truncation": "disabled",
            "parallel_tool_calls": True,
        },
        echoed={
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 500,
            "metadata": {"team": "a"},
            "store": False,
        },
    ),
}
EVERY = [pytest.param(name, id=name.replace(" ", "-")) for name in CASES]
UPSTREAMS = pytest.mark.parametrize("upstream", DIALECTS)
ALL_CASES = pytest.mark.parametrize("name", EVERY)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with the demo upstream in each dialect, named after it."""
    settings = "\n".join(PLACE.format(dialect=dialect) for dialect in DIALECTS)
    with gateway(settings, tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="module")
def http(served: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=PATIENCE, trust_env=False) as client:
        yield client


@pytest.fixture
def socket(served: Gateway) -> Iterator[Connection]:
    with dialled(served) as made:
        yield made


def dialled(served: Gateway) -> Connection:
    address = served.url.replace("http", "ws", 1) + "/v1/responses"
    return connect(address, proxy=None, open_timeout=PATIENCE)


def streamed(http: httpx.Client, body: Object) -> tuple[httpx.Response, list[tuple[str, str]]]:
    """The answer, and its events by their names and data."""
    answer = http.post("/v1/responses", json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    blocks = answer.text.split("\n\n")
    assert blocks.pop() == ""
    events: list[tuple[str, str]] = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        assert set(fields) <= {"event", "data"}
        events.append((fields.get("event", ""), fields["data"]))
    return answer, events


def turn(socket: Connection, body: Object) -> list[Object]:
    """All that is told about one create, up to what ends it."""
    socket.send(json.dumps({"type": "response.create", **body}))
    return heard(socket)


def heard(socket: Connection) -> list[Object]:
    frames: list[Object] = []
    while not frames or frames[-1]["type"] not in ("error", *TERMINAL):
        frames.append(json.loads(socket.recv(PATIENCE)))
    return frames


def right(case: Case, response: Object) -> None:
    """Whether this answers the case."""
    assert problems(RESPONSE, response) == []
    assert response["status"] == "completed"
    assert response["completed_at"] >= response["created_at"]
    assert response["error"] is None
    assert response["usage"] is not None
    assert tuple(item["type"] for item in response["output"]) == case.items
    assert {item["status"] for item in response["output"]} == {"completed"}
    ids = [item[key] for item in response["output"] for key in ("id", "call_id") if key in item]
    assert len(set(ids)) == len(ids)
    assert {key: response[key] for key in case.echoed} == case.echoed
    for item in response["output"]:
        if item["type"] == "function_call":
            assert isinstance(json.loads(item["arguments"]), dict)


# The cases, three ways


@UPSTREAMS
@ALL_CASES
def test_a_response_has_every_key_of_the_specification(
    name: str, upstream: str, http: httpx.Client
) -> None:
    case = CASES[name]
    answer = http.post("/v1/responses", json=case.body(upstream))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    right(case, answer.json())


@UPSTREAMS
@ALL_CASES
def test_a_stream_follows_the_specification_event_by_event(
    name: str, upstream: str, http: httpx.Client
) -> None:
    case = CASES[name]
    answer, events = streamed(http, case.body(upstream))
    assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    assert events.pop() == ("", "[DONE]")
    told = [json.loads(data) for _, data in events]
    assert [kind for kind, _ in events] == [one["type"] for one in told]
    assert [found for one in told for found in problems(EVENT, one)] == []
    right(case, terminal(told))
    assert weft.check(answer.content, dialect="openai-responses") == []


@UPSTREAMS
@ALL_CASES
def test_a_socket_tells_the_same_events_as_frames(
    name: str, upstream: str, socket: Connection
) -> None:
    case = CASES[name]
    told = turn(socket, case.body(upstream))
    assert [found for one in told for found in problems(EVENT, one)] == []
    right(case, terminal(told))


# What the suite does not look at


@UPSTREAMS
def test_the_official_client_is_told_reasoning_without_asking_for_summaries(
    upstream: str, served: Gateway
) -> None:
    with openai.OpenAI(api_key="x", base_url=f"{served.url}/v1", max_retries=0) as client:
        body = CASES["reasoning"].body(upstream)
        with client.responses.create(**body, stream=True) as stream:
            told: list[Any] = list(stream)
    deltas = [one.delta for one in told if one.type == "response.reasoning_summary_text.delta"]
    (item,) = [one for one in told[-1].response.output if one.type == "reasoning"]
    assert "".join(deltas) == "".join(part.text for part in item.summary) != ""


def test_raw_reasoning_comes_as_such_where_it_is_asked_for(http: httpx.Client) -> None:
    body = CASES["reasoning"].body("openai-chat", include=["reasoning.raw"])
    _, events = streamed(http, body)
    told = [json.loads(data) for kind, data in events if kind == "response.reasoning_text.delta"]
    item = json.loads(events[-2][1])["response"]["output"][0]
    assert "".join(one["delta"] for one in told) == item["content"][0]["text"] != ""
    assert item["summary"] == []


@UPSTREAMS
def test_a_stream_tells_what_a_body_tells(upstream: str, http: httpx.Client) -> None:
    body = CASES["tool-calling"].body(upstream) | {"store": False}  # asked twice, its id is one
    _, events = streamed(http, body)
    whole = http.post("/v1/responses", json=body).json()
    told = json.loads(events[-2][1])["response"]
    drop = {"id", "created_at", "completed_at", "output"}
    assert {key: one for key, one in told.items() if key not in drop} == {
        key: one for key, one in whole.items() if key not in drop
    }
    assert [(one["name"], one["arguments"]) for one in told["output"]] == [
        (one["name"], one["arguments"]) for one in whole["output"]
    ]


@UPSTREAMS
def test_an_answer_that_was_too_long_is_incomplete(upstream: str, http: httpx.Client) -> None:
    _, events = streamed(http, {"model": f"{upstream}/long", "input": "x", "max_output_tokens": 20})
    told = [json.loads(data) for _, data in events[:-1]]
    assert told[-1]["type"] == "response.incomplete"
    response = terminal(told)
    assert problems(RESPONSE, response) == []
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in response["output"]] == ["incomplete"]
    assert events[-1] == ("", "[DONE]")


@UPSTREAMS
def test_an_answer_that_breaks_off_is_an_error_and_a_failed_response(
    upstream: str, http: httpx.Client
) -> None:
    _, events = streamed(http, {"model": f"{upstream}/error-midstream", "input": "x"})
    told = [json.loads(data) for _, data in events[:-1]]
    assert [found for one in told for found in problems(EVENT, one)] == []
    assert [one["type"] for one in told[-2:]] == ["error", "response.failed"]
    response = terminal(told)
    assert response["status"] == "failed"
    assert response["error"]["code"]
    assert events[-1] == ("", "[DONE]")


@UPSTREAMS
def test_over_a_socket_an_answer_that_breaks_off_ends_once(
    upstream: str, socket: Connection
) -> None:
    told = turn(socket, {"model": f"{upstream}/error-midstream", "input": "x"})
    assert [found for one in told for found in problems(EVENT, one)] == []
    assert terminal(told)["status"] == "failed"
    case = CASES["basic-response"]
    right(case, terminal(turn(socket, case.body(upstream))))


REFUSED: dict[str, tuple[Object, int, str, str]] = {
    "no model": ({"input": "x"}, 400, "invalid_request", "model"),
    "an unknown model": ({"model": "nobody/chat", "input": "x"}, 404, "not_found", "model"),
    "an unknown role": (
        {"model": "openai-chat/chat", "input": [message("robot", "x")]},
        400,
        "invalid_request",
        "input[0].role",
    ),
    "a model that is overloaded": (
        {"model": "openai-chat/overloaded", "input": "x"},
        503,
        "server_error",
        "",
    ),
    "a model that is asked too often": (
        {"model": "gemini/error-429", "input": "x"},
        429,
        "too_many_requests",
        "",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_has_the_four_keys(name: str, http: httpx.Client) -> None:
    body, status, kind, param = REFUSED[name]
    answer = http.post("/v1/responses", json=body)
    error = answer.json()["error"]
    assert problems(ERROR, error) == []
    assert (answer.status_code, error["type"], error["param"] or "") == (status, kind, param)


@pytest.mark.parametrize("name", REFUSED)
def test_over_a_socket_an_error_is_a_frame_with_a_code(name: str, served: Gateway) -> None:
    body, status, kind, _ = REFUSED[name]
    with dialled(served) as socket:
        (frame,) = turn(socket, body)
        assert problems(ERROR_FRAME, frame) == []
        assert (frame["status"], frame["error"]["type"]) == (status, kind)


# Several turns on one socket


@UPSTREAMS
def test_responses_follow_one_another_on_a_socket(upstream: str, socket: Connection) -> None:
    case = CASES["basic-response"]
    first = terminal(turn(socket, case.body(upstream, store=False)))
    second = terminal(turn(socket, case.body(upstream, store=False)))
    right(case, first)
    right(case, second)
    assert first["id"] != second["id"] or upstream == "openai-responses"


def test_a_response_that_nobody_has_is_not_found(socket: Connection) -> None:
    case = CASES["basic-response"]
    body = case.body("openai-chat", store=False, previous_response_id="resp_missing")
    (frame,) = turn(socket, body)
    assert problems(ERROR_FRAME, frame) == []
    assert (frame["status"], frame["error"]["code"], frame["error"]["param"]) == (
        404,
        "previous_response_not_found",
        "previous_response_id",
    )


def test_after_a_reconnect_a_chain_begins_anew(served: Gateway) -> None:
    case = CASES["basic-response"]
    with dialled(served) as socket:
        first = terminal(turn(socket, case.body("gemini", store=False)))
    with dialled(served) as socket:
        body = case.body("gemini", store=False, previous_response_id=first["id"])
        (lost,) = turn(socket, body)
        assert lost["error"]["code"] == "previous_response_not_found"
        right(case, terminal(turn(socket, case.body("gemini", store=False))))
