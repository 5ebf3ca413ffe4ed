"""The public compliance cases of Open Responses that go on from something: chains over sockets,
and compaction. The others are in `test_open_responses.py`.
"""

from collections.abc import Iterator

import httpx
import pytest
from openai import OpenAI
from websockets.sync.connection import Connection

from tests.gateway_process import Gateway, gateway
from tests.open_responses import (
    ERROR_FRAME,
    EVENT,
    INTEGER,
    ITEM,
    TEXT,
    Object,
    array,
    problems,
    shape,
    terminal,
    typed,
    word,
)
from tests.test_open_responses import (
    CASES,
    DIALECTS,
    PATIENCE,
    PLACE,
    UPSTREAMS,
    dialled,
    message,
    right,
    turn,
)

BASIC = CASES["basic-response"]
NEW = [message("user", "And in two words?")]
USAGE = shape(
    {
        "input_tokens": INTEGER,
        "output_tokens": INTEGER,
        "total_tokens": INTEGER,
        "input_tokens_details": shape({"cached_tokens": INTEGER}),
        "output_tokens_details": shape({"reasoning_tokens": INTEGER}),
    }
)
COMPACTION = shape(
    {
        "id": TEXT,
        "object": word("response.compaction"),
        "created_at": INTEGER,
        "usage": USAGE,
        "output": array(
            typed(
                {
                    "message": shape(
                        {
                            "id": TEXT,
                            "status": word("completed"),
                            "role": word("user"),
                            "content": array(shape({"type": word("input_text"), "text": TEXT})),
                        }
                    ),
                    "compaction": shape({"id": TEXT, "encrypted_content": TEXT}),
                }
            )
        ),
    }
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = "\n".join(PLACE.format(dialect=dialect) for dialect in DIALECTS)
    with gateway(settings, tmp_path_factory.mktemp("gateway")) as running:
        yield running
    assert '"level":"error"' not in running.stderr


@pytest.fixture(scope="module")
def http(served: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=PATIENCE, trust_env=False) as client:
        yield client


@pytest.fixture
def socket(served: Gateway) -> Iterator[Connection]:
    with dialled(served) as made:
        yield made


def told(socket: Connection, body: Object) -> Object:
    """The response that a create is answered with, after a look at all of its events."""
    events = turn(socket, body)
    assert [found for event in events for found in problems(EVENT, event)] == []
    return terminal(events)


def refused(socket: Connection, body: Object) -> Object:
    (frame,) = turn(socket, body)
    assert problems(ERROR_FRAME, frame) == []
    error: Object = frame["error"]
    return error


def compact(http: httpx.Client, model: str, **more: object) -> Object:
    answer = http.post("/v1/responses/compact", json={"model": model, **more})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    found: Object = answer.json()
    assert problems(COMPACTION, found) == []
    return found


HISTORY = [
    message("user", "My name is Alice, and I like wool."),
    message("assistant", "Hello Alice!"),
    message("user", "Which one is the warmest?"),
]


# response-output-phase-schema


@pytest.mark.parametrize("phase", ["commentary", "final_answer", None])
def test_a_message_may_tell_its_phase(phase: str | None) -> None:
    part = {"type": "output_text", "text": "4", "annotations": []}
    item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant"}
    said = {"phase": phase} if phase else {}
    assert problems(ITEM, {**item, "content": [part], **said}) == []
    assert problems(ITEM, {**item, "content": [part], "phase": "other"}) != []


# websocket-continuation


@UPSTREAMS
@pytest.mark.parametrize("store", [False, True])
def test_a_response_goes_on_from_the_one_before(
    upstream: str, store: bool, socket: Connection
) -> None:
    first = told(socket, BASIC.body(upstream, store=store))
    body = {"model": f"{upstream}/chat", "input": NEW, "store": store}
    second = told(socket, {**body, "previous_response_id": first["id"]})
    third = told(socket, {**body, "previous_response_id": second["id"]})
    for response, before in ((second, first), (third, second)):
        right(BASIC, response)
        assert response["previous_response_id"] == before["id"]
        assert response["store"] is store
    assert len({first["id"], second["id"], third["id"]}) == 3
    counts = [one["usage"]["input_tokens"] for one in (first, second, third)]
    assert counts == sorted(set(counts))  # the model was told more each time


@UPSTREAMS
def test_the_result_of_a_call_goes_on_from_the_call(upstream: str, socket: Connection) -> None:
    case = CASES["tool-calling"]
    first = told(socket, case.body(upstream, store=False))
    (call,) = first["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    body = case.body(upstream, store=False, input=[result], previous_response_id=first["id"])
    right(BASIC, told(socket, body))


# websocket-reconnect-store-false-recovery, websocket-previous-response-not-found


@UPSTREAMS
def test_after_a_reconnect_what_was_not_stored_is_gone(upstream: str, served: Gateway) -> None:
    with dialled(served) as socket:
        first = told(socket, BASIC.body(upstream, store=False))
    with dialled(served) as socket:
        body = BASIC.body(upstream, store=False, previous_response_id=first["id"])
        assert refused(socket, body)["code"] == "previous_response_not_found"
        right(BASIC, told(socket, BASIC.body(upstream, store=False)))


@pytest.mark.parametrize("store", [False, True])
def test_a_response_that_nobody_has_is_not_found(store: bool, socket: Connection) -> None:
    body = BASIC.body("openai-chat", store=store, previous_response_id="resp_missing")
    error = refused(socket, body)
    assert (error["code"], error["param"]) == (
        "previous_response_not_found",
        "previous_response_id",
    )


# websocket-failed-continuation-evicts-cache


@UPSTREAMS
def test_a_response_that_was_gone_on_from_in_vain_is_forgotten(
    upstream: str, socket: Connection
) -> None:
    first = told(socket, BASIC.body(upstream, store=False))
    result = {"type": "function_call_output", "call_id": "call_unknown", "output": "rain"}
    body = {
        "model": f"{upstream}/chat",
        "store": False,
        "previous_response_id": first["id"],
    }
    wrong = refused(socket, {**body, "input": [result]})
    assert (wrong["type"], wrong["param"]) == ("invalid_request", "input[0].call_id")
    assert refused(socket, {**body, "input": NEW})["code"] == "previous_response_not_found"
    right(BASIC, told(socket, BASIC.body(upstream, store=False)))


# compact-response, compact-missing-model, websocket-compact-new-chain


@UPSTREAMS
def test_what_was_said_is_compacted(upstream: str, http: httpx.Client) -> None:
    found = compact(http, f"{upstream}/chat", input=HISTORY, prompt_cache_key="wool")
    assert [one["type"] for one in found["output"]] == ["message", "message", "compaction"]
    texts = [one["content"][0]["text"] for one in found["output"][:2]]
    assert texts == [HISTORY[0]["content"], HISTORY[2]["content"]]
    assert found["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": ""}])
def test_without_a_model_nothing_is_compacted(model: Object, http: httpx.Client) -> None:
    answer = http.post("/v1/responses/compact", json={"input": HISTORY, **model})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")


@UPSTREAMS
def test_what_was_compacted_begins_a_new_chain(
    upstream: str, http: httpx.Client, socket: Connection
) -> None:
    found = compact(http, f"{upstream}/chat", input=HISTORY)
    body = {"model": f"{upstream}/chat", "store": False}
    first = told(socket, {**body, "input": [*found["output"], *NEW]})
    right(BASIC, first)
    right(BASIC, told(socket, {**body, "input": NEW, "previous_response_id": first["id"]}))


def test_the_openai_package_compacts_and_goes_on(served: Gateway) -> None:
    with OpenAI(api_key="x", base_url=f"{served.url}/v1", max_retries=0) as client:
        first = client.responses.create(model="gemini/chat", input="I like wool.")
        found = client.responses.compact(
            model="gemini/chat", previous_response_id=first.id, input="Why?"
        )
        assert [one.type for one in found.output] == ["message", "message", "compaction"]
        items = [one.to_dict(warnings=False) for one in found.output]
        second = client.responses.create(
            model="openai-chat/chat",
            input=items,  # type: ignore[arg-type]
        )
    assert second.status == "completed"
