"""`POST /v1/responses/input_tokens`: counted by an upstream of the dialect, else estimated."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from openai import OpenAI

from tests.faults.upstream import RESET, SILENCE, Step, Upstream, answer, upstream
from tests.faults.wires import CHAT, RESPONSES, SPEECHES
from tests.gateway_process import gateway
from tests.open_responses import Object
from tests.test_compaction import settings
from weft.dialects.envelope import wrap_summary

PATIENCE = 30.0
QUICK = f"[upstreams.{RESPONSES}.timeouts]\nbetween_events = 0.3\n"
COUNTED = b'{"object":"response.input_tokens","input_tokens":1234}'
WEATHER: Object = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a place",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
}


@dataclass
class World:
    http: httpx.Client
    far: Upstream

    def count(self, model: str, **more: object) -> httpx.Response:
        return self.http.post("/v1/responses/input_tokens", json={"model": model, **more})

    def asked(self, model: str, number: int = 1) -> Object:
        body: Object = json.loads(self.far.exchanges(model, number)[number - 1].body)
        return body

    def estimated(self, model: str, **more: object) -> int:
        told = self.count(model, **more)
        assert told.status_code == 200, told.text
        assert told.headers["weft-findings"] == "warned:estimated"
        found = told.json()
        assert found == {"object": "response.input_tokens", "input_tokens": found["input_tokens"]}
        return int(found["input_tokens"])


@pytest.fixture(scope="module")
def far() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def world(far: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        gateway(settings(far.url) + QUICK, tmp_path_factory.mktemp("gateway")) as running,
        httpx.Client(base_url=running.url, timeout=PATIENCE, trust_env=False) as client,
    ):
        yield World(client, far)
    assert '"level":"error"' not in running.stderr


def test_tokens_are_counted_by_an_upstream_that_can(world: World) -> None:
    model = world.far.script((answer(COUNTED),))
    item = {"type": "compaction", "encrypted_content": wrap_summary("It rains.")}
    told = world.count(
        f"{RESPONSES}/{model}",
        input=[item],
        instructions="Be brief.",
        tools=[WEATHER],
        tool_choice="auto",
        stream=True,
        store=True,
        max_output_tokens=500,
        metadata={"team": "a"},
    )
    assert (told.status_code, told.content) == (200, COUNTED)
    assert told.headers["weft-upstream"] == RESPONSES
    assert "weft-findings" not in told.headers
    assert world.far.exchange(model).path == "/v1/responses/input_tokens"
    said = "What was said before, summed up:\n\nIt rains."
    assert world.asked(model) == {
        "model": model,
        "input": [{"type": "message", "role": "user", "content": said}],
        "instructions": "Be brief.",
        "tools": [WEATHER],
        "tool_choice": "auto",
    }


SILENT: dict[str, tuple[Step, ...]] = {
    "no such path": (answer(b"{}", "404 Not Found"),),
    "a response": (answer(SPEECHES[RESPONSES].body),),
    "no JSON": (answer(b"<html>"),),
    "a count that failed": (answer(COUNTED, "500 Internal Server Error"),),
    "no answer": (RESET,),
    "half an answer": (answer(COUNTED)[:-5], SILENCE),
}


@pytest.mark.parametrize("name", SILENT)
def test_tokens_are_estimated_where_the_upstream_does_not_count(name: str, world: World) -> None:
    model = world.far.script(SILENT[name])
    assert world.estimated(f"{RESPONSES}/{model}", input="Hello there, how are you?") == 6


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic-messages", "gemini"])
def test_tokens_are_estimated_where_the_upstream_has_another_dialect(
    dialect: str, world: World
) -> None:
    short = world.estimated(f"{dialect}/m", input="Hello")
    more = {"input": "Hello" * 81, "instructions": "Be brief." * 40, "tools": [WEATHER]}
    assert 190 < world.estimated(f"{dialect}/m", **more) - short < 230


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "gemini"])
def test_pictures_are_not_counted(dialect: str, world: World) -> None:
    url = f"data:image/png;base64,{'A' * 40_000}"
    parts = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": url}]
    items = [{"role": "user", "content": parts}]
    assert world.estimated(f"{dialect}/m", input=items) < 50


def test_what_a_request_goes_on_from_is_counted(world: World) -> None:
    model = world.far.script((answer(SPEECHES[CHAT].body),))
    body: Object = {"model": f"{CHAT}/{model}", "input": "word " * 400}
    first = world.http.post("/v1/responses", json=body).json()
    alone = world.estimated(f"{CHAT}/{model}", input="Why?")
    chained = world.estimated(f"{CHAT}/{model}", input="Why?", previous_response_id=first["id"])
    assert 500 < chained - alone < 520


def test_a_conversation_is_counted(world: World) -> None:
    items = [{"type": "message", "role": "user", "content": "word " * 400}]
    talk = world.http.post("/v1/conversations", json={"items": items})
    assert talk.status_code == 200, talk.text
    alone = world.estimated(f"{CHAT}/m", input="Why?")
    whole = world.estimated(f"{CHAT}/m", input="Why?", conversation=talk.json()["id"])
    assert 500 <= whole - alone < 520


WRONG: dict[str, tuple[Object, int, str]] = {
    "no model": ({"model": None}, 400, "model"),
    "an unknown model": ({"model": "nobody/m"}, 404, "model"),
    "no input that can be read": ({"input": 5}, 400, "input"),
    "an unknown role": ({"input": [{"role": "robot", "content": "x"}]}, 400, "input[0].role"),
    "a response that nobody has": (
        {"previous_response_id": "resp_x"},
        404,
        "previous_response_id",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_asked_cannot_be_counted(name: str, world: World) -> None:
    body, status, param = WRONG[name]
    told = world.http.post(
        "/v1/responses/input_tokens", json={"model": f"{CHAT}/m", "input": "x", **body}
    )
    assert (told.status_code, told.json()["error"]["param"]) == (status, param)


def test_a_large_request_is_counted_as_well(world: World) -> None:
    assert world.estimated(f"{CHAT}/m", input="word " * 400_000) > 400_000


def test_the_openai_package_counts_tokens(world: World) -> None:
    with OpenAI(api_key="x", base_url=f"{world.http.base_url}/v1", max_retries=0) as client:
        told = client.responses.input_tokens.count(model=f"{CHAT}/m", input="Hello")
    assert (told.object, told.input_tokens > 0) == ("response.input_tokens", True)
