"""`POST /v1/responses/compact`: how a model is asked to sum up, and what becomes of the summary."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.upstream import SILENCE, Exchange, Upstream, answer, upstream
from tests.faults.wires import CHAT, DIALECTS, GEMINI, MESSAGES, RESPONSES, SPEECHES, error_body
from tests.gateway_process import gateway
from tests.open_responses import Object
from tests.raw_http import Client
from tests.strategies import QUICK
from weft.context import Context
from weft.dialects import DIALECTS as CODECS
from weft.dialects.envelope import unwrap_summary, wrap_summary
from weft.gateway.compaction import INSTRUCTION
from weft.request import Message, OpaqueContent, TextContent

PATIENCE = 30.0
SUMMED_UP = "What was said before, summed up:\n\n"
SUMMARY = "Warp and weft."
"""What the scripted upstream says, whatever it is asked."""

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def settings(url: str, more: str = "") -> str:
    bases = {CHAT: f"{url}/v1", RESPONSES: f"{url}/v1", MESSAGES: url, GEMINI: url}
    places = (
        f'[upstreams.{dialect}]\ndialect = "{dialect}"\nbase_url = "{base}"\napi_key = "sk-x"\n'
        "retry = { attempts = 1 }\nbreaker = { failures = 0 }\n"
        for dialect, base in bases.items()
    )
    return more + "\n".join(places)


@dataclass
class World:
    http: httpx.Client
    far: Upstream
    port: int

    def model(self, dialect: str, body: bytes | None = None) -> str:
        """A model that says the same again and again."""
        return self.far.script((answer(SPEECHES[dialect].body if body is None else body),))

    def compact(self, dialect: str, model: str, **more: object) -> httpx.Response:
        body = {"model": f"{dialect}/{model}", **more}
        return self.http.post("/v1/responses/compact", json=body)

    def asked(self, model: str, number: int = 1) -> Object:
        body: Object = json.loads(self.far.exchanges(model, number)[number - 1].body)
        return body


@pytest.fixture(scope="module")
def far() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def world(far: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        gateway(settings(far.url), tmp_path_factory.mktemp("gateway")) as running,
        httpx.Client(base_url=running.url, timeout=PATIENCE, trust_env=False) as client,
    ):
        yield World(client, far, int(running.url.rpartition(":")[2]))
    assert '"level":"error"' not in running.stderr


def message(role: str, content: object, **more: object) -> Object:
    return {"type": "message", "role": role, "content": content, **more}


def call(id: str, arguments: str) -> Object:
    return {"type": "function_call", "call_id": id, "name": "weather", "arguments": arguments}


HISTORY: list[Object] = [
    message("developer", "Be brief."),
    message("user", "What is the weather in Oslo?", id="msg_7"),
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "a secret"}]},
    call("call_1", '{"place":"Oslo"}'),
    {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
    message("assistant", "It rains."),
    {"type": "custom_tool_call", "call_id": "call_2", "name": "look", "input": "up"},
    {
        "type": "custom_tool_call_output",
        "call_id": "call_2",
        "output": [{"type": "input_text", "text": "clouds"}],
    },
    call("call_3", "{}"),
]


def texts(value: object) -> list[str]:
    """All texts of a body, in their order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return []


# Summing up


def test_a_model_is_told_everything_in_words_and_asked_to_sum_it_up(world: World) -> None:
    model = world.model(RESPONSES)
    told = world.compact(
        RESPONSES, model, input=HISTORY, instructions="Speak Norse.", prompt_cache_key="oslo"
    )
    assert told.status_code == 200
    assert world.asked(model) == {
        "model": model,
        "instructions": "Speak Norse.",
        "prompt_cache_key": "oslo",
        "store": False,
        "input": [
            HISTORY[0],
            HISTORY[1],
            message("assistant", '[call_1: weather is called with {"place":"Oslo"}]'),
            message("user", _result("call_1", "rain")),
            HISTORY[5],
            message("assistant", "[call_2: look is called with up]"),
            message("user", _result("call_2", "clouds")),
            message("assistant", "[call_3: weather is called with {}]"),
            message("user", INSTRUCTION),
        ],
    }


def _result(id: str, text: str) -> list[Object]:
    return [
        {"type": "input_text", "text": f"[{id}: the result of the call]"},
        {"type": "input_text", "text": text},
    ]


@every_dialect
def test_a_model_of_any_dialect_sums_up(dialect: str, world: World) -> None:
    model = world.model(dialect)
    told = world.compact(dialect, model, input=HISTORY)
    assert told.status_code == 200, told.text
    assert told.headers["weft-upstream"] == dialect
    asked = world.asked(model)
    found = "\n".join(texts(asked))
    places = [
        found.index(one) for one in ("Oslo?", "call_1: weather", "rain", "clouds", INSTRUCTION)
    ]
    assert places == sorted(places)
    assert "a secret" not in found
    assert "tools" not in asked


def test_what_the_client_said_stays_and_one_item_stands_for_the_rest(world: World) -> None:
    found = world.compact(CHAT, world.model(CHAT), input=HISTORY).json()
    first, second, last = found["output"]
    parts = [{"type": "input_text", "text": "Be brief."}]
    done = {"type": "message", "status": "completed"}
    assert first == {**done, "role": "developer", "content": parts, "id": first["id"]}
    parts = [{"type": "input_text", "text": "What is the weather in Oslo?"}]
    assert second == {**done, "role": "user", "content": parts, "id": "msg_7"}
    assert last == {
        "type": "compaction",
        "id": last["id"],
        "encrypted_content": wrap_summary(SUMMARY),
    }
    assert SUMMARY not in last["encrypted_content"]
    assert found == {
        "id": found["id"],
        "object": "response.compaction",
        "created_at": found["created_at"],
        "output": [first, second, last],
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 5,
        },
    }


def test_a_text_is_a_message_of_the_user(world: World) -> None:
    found = world.compact(CHAT, world.model(CHAT), input="Hello").json()
    assert [one["type"] for one in found["output"]] == ["message", "compaction"]


def test_an_upstream_that_counts_no_tokens_counts_none(world: World) -> None:
    body = json.loads(SPEECHES[CHAT].body)
    del body["usage"]
    model = world.model(CHAT, json.dumps(body).encode())
    usage = world.compact(CHAT, model, input="Hello").json()["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (0, 0, 0)


# What becomes of it


@every_dialect
def test_a_summary_is_told_to_any_model_in_words(dialect: str, world: World) -> None:
    compaction = world.compact(MESSAGES, world.model(MESSAGES), input=HISTORY).json()
    model = world.model(dialect)
    items = [*compaction["output"], message("user", "And tomorrow?")]
    told = world.http.post("/v1/responses", json={"model": f"{dialect}/{model}", "input": items})
    assert told.status_code == 200, told.text
    found = texts(world.asked(model))
    summed_up = [one for one in found if SUMMED_UP + SUMMARY in one]
    assert len(summed_up) == 1
    assert found.index(summed_up[0]) <= next(
        place for place, one in enumerate(found) if "And tomorrow?" in one
    )
    assert not any("weft1" in one or one == "compaction" for one in found)


def test_a_summary_is_a_message_of_the_user_to_a_model_of_this_dialect(world: World) -> None:
    model = world.model(RESPONSES)
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": wrap_summary("Så är det.")}
    body = {"model": f"{RESPONSES}/{model}", "input": [item, message("user", "Go on.")]}
    assert world.http.post("/v1/responses", json=body).status_code == 200
    assert world.asked(model)["input"] == [
        {"type": "message", "role": "user", "content": SUMMED_UP + "Så är det."},
        message("user", "Go on."),
    ]


def test_what_was_summed_up_is_summed_up_again(world: World) -> None:
    first = world.compact(CHAT, world.model(CHAT), input=HISTORY).json()["output"]
    model = world.model(GEMINI)
    found = world.compact(GEMINI, model, input=[*first, message("user", "And tomorrow?")]).json()
    assert [one["type"] for one in found["output"]] == ["message"] * 3 + ["compaction"]
    assert any(SUMMED_UP + SUMMARY in one for one in texts(world.asked(model)))


FOREIGN: Object = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABo"}


def test_the_summary_of_another_goes_back_to_it_untouched(world: World) -> None:
    model = world.model(RESPONSES)
    items = [FOREIGN, message("user", "Go on.")]
    body = {"model": f"{RESPONSES}/{model}", "input": items}
    assert world.http.post("/v1/responses", json=body).status_code == 200
    assert world.asked(model)["input"] == items


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, GEMINI])
def test_the_summary_of_another_goes_nowhere_else(dialect: str, world: World) -> None:
    items = [FOREIGN, message("user", "Go on.")]
    for path in ("/v1/responses", "/v1/responses/compact"):
        model = world.model(dialect)
        told = world.http.post(path, json={"model": f"{dialect}/{model}", "input": items})
        assert (told.status_code, told.json()["error"]["param"]) == (400, "input[0]")
        assert world.far.exchanges(model) == []


@QUICK
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_summary_is_read_as_it_was_sealed(summary: str) -> None:
    sealed = wrap_summary(summary)
    assert unwrap_summary(sealed) == summary
    assert read(sealed) == Message("user", (TextContent(SUMMED_UP + summary),))


@pytest.mark.parametrize(
    "content", [None, "", "gAAAAABo", "weft1-summary:%", "weft1-summary:A", "weft1-summary:_w=="]
)
def test_what_we_did_not_seal_stays_sealed(content: str | None) -> None:
    assert unwrap_summary(content) is None
    (opaque,) = read(content).content
    assert isinstance(opaque, OpaqueContent)
    assert json.loads(bytes(opaque.raw)) == {"type": "compaction", "encrypted_content": content}


def read(content: str | None) -> Message:
    codec = CODECS[RESPONSES].request
    assert codec is not None
    item = {"type": "compaction", "encrypted_content": content}
    (found,) = codec.parse(
        json.dumps({"model": "m", "input": [item]}).encode(), Context()
    ).request.messages
    return found


# What it goes on from


def test_a_stored_response_is_summed_up_with_all_before_it(world: World) -> None:
    model = world.model(CHAT)
    body: Object = {"model": f"{CHAT}/{model}", "input": "How warm is wool?"}
    first = world.http.post("/v1/responses", json=body).json()
    more = {"previous_response_id": first["id"]}
    second = world.http.post("/v1/responses", json={**body, "input": "Why?", **more}).json()
    found = world.compact(CHAT, model, previous_response_id=second["id"], input="Tell").json()
    said = [one["content"][0]["text"] for one in found["output"][:-1]]
    assert said == ["How warm is wool?", "Why?", "Tell"]
    contents = texts([one["content"] for one in world.asked(model, 3)["messages"]])
    assert [one for one in contents if one != "text"] == [
        "How warm is wool?",
        SUMMARY,
        "Why?",
        SUMMARY,
        f"Tell\n{INSTRUCTION}",
    ]


def test_a_compaction_is_not_stored(world: World) -> None:
    body = SPEECHES[RESPONSES].body.replace(b"resp_1", b"resp_of_the_upstream")
    found = world.compact(RESPONSES, world.model(RESPONSES, body), input="Hello").json()
    for id in (found["id"], "resp_of_the_upstream"):  # its own, and that of the upstream
        assert world.http.get(f"/v1/responses/{id}").status_code == 404


# Errors

WRONG: dict[str, tuple[Object, int, str | None]] = {
    "nothing to sum up": ({}, 400, "input"),
    "an empty list": ({"input": []}, 400, "input"),
    "no list": ({"input": 5}, 400, "input"),
    "no items": ({"input": [5]}, 400, "input"),
    "half a call": ({"input": [{"type": "function_call", "call_id": "c"}]}, 400, "input[0]"),
    "an unknown role": ({"input": [message("robot", "x")]}, 400, "input[0].role"),
    "instructions that are no text": ({"input": "x", "instructions": 5}, 400, "instructions"),
    "an unknown model": ({"input": "x", "model": "nobody/m"}, 404, "model"),
    "a response that nobody has": (
        {"input": "x", "previous_response_id": "resp_x"},
        404,
        "previous_response_id",
    ),
    "a result of no call": (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [5]}]},
        400,
        "input[0].output[0]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_summed_up_is_refused(name: str, world: World) -> None:
    body, status, param = WRONG[name]
    model = world.model(CHAT)
    told = world.http.post("/v1/responses/compact", json={"model": f"{CHAT}/{model}", **body})
    assert (told.status_code, told.json()["error"]["param"]) == (status, param)
    assert world.far.exchanges(model) == []


def test_without_a_store_there_is_nothing_to_go_on_from(far: Upstream, tmp_path: Path) -> None:
    with gateway(settings(far.url, "[store]\nenabled = false\n"), tmp_path) as running:
        model = far.script((answer(SPEECHES[CHAT].body),))
        body: Object = {"model": f"{CHAT}/{model}", "input": "x"}
        url = f"{running.url}/v1/responses/compact"
        counting = f"{running.url}/v1/responses/input_tokens"
        for path in (url, counting):
            told = httpx.post(path, json=body, timeout=PATIENCE, trust_env=False)
            assert told.status_code == 200
        body["previous_response_id"] = "resp_x"
        told = httpx.post(url, json=body, timeout=PATIENCE, trust_env=False)
    assert told.json()["error"]["code"] == "previous_response_not_found"


@every_dialect
def test_an_error_of_the_upstream_is_told_as_it_is_elsewhere(dialect: str, world: World) -> None:
    body = error_body(dialect, "slow down", "rate_limit_error", 429)
    model = world.far.script((answer(body, "429 Too Many Requests"),))
    told = world.compact(dialect, model, input="x")
    assert (told.status_code, told.json()["error"]["type"]) == (429, "too_many_requests")


def test_a_model_that_says_nothing_has_not_summed_up(world: World) -> None:
    body = json.loads(SPEECHES[CHAT].body)
    body["choices"][0]["message"]["content"] = " \n"
    model = world.model(CHAT, json.dumps(body).encode())
    told = world.compact(CHAT, model, input="x")
    assert told.status_code == 502
    assert "returned no summary" in told.json()["error"]["message"]


def test_a_client_that_leaves_ends_its_upstream(world: World) -> None:
    model = world.far.script((SILENCE,))
    body = json.dumps({"model": f"{CHAT}/{model}", "input": "x"}).encode()
    with Client(world.port) as client:
        head = (
            f"POST /v1/responses/compact HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        )
        client.send(head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + body)
        exchange: Exchange = world.far.exchange(model)
        assert not exchange.is_gone
    exchange.left()
