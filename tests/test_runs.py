"""Agent runs over real HTTP: every endpoint, whose runs they are, what is refused, and what a
restart or a second gateway changes, which is nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway_process import Gateway, gateway
from tests.serving import NO_AUTHORITIES
from tests.stores import empty
from tests.test_docs import blocks
from weft.agent.runtime import MAX_MESSAGES
from weft.gateway.runs import RunEventWriter, RunPosition
from weft.sse import Event

Object = dict[str, Any]

PATIENCE = 30.0
KEYS = {
    "alice": "key-of-alice-0123456789",
    "bob": "key-of-bob-0123456789",
    "clerk": "key-of-clerk-0123456789",
}
SETTINGS = """
[server]
keepalive = 0.1
drain = 5
[server.keys]
alice = "key-of-alice-0123456789"
bob = "key-of-bob-0123456789"
[server.keys.clerk]
secret = "key-of-clerk-0123456789"
models = ["plain", "demo/*"]
[store]
url = "{store}"
lease = 15
[upstreams.demo]
dialect = "anthropic-messages"
base_url = "demo:fast"
[agents.helper]
model = "demo/agent"
instructions = "Help."
tools = ["run_tools:look", "run_tools:refund", "run_tools:hang", "run_tools:gate"]
limits = {{ turns = 10 }}
[agents.boss]
model = "demo/agent"
tools = ["agent:clerk"]
[agents.clerk]
model = "demo/agent"
description = "The clerk can refund orders."
tools = ["run_tools:refund", "run_tools:slow"]
tools_visible = false
[agents.plain]
model = "demo/agent"
approval = {{}}
[agents.stalled]
model = "demo/stall"
[agents.lost]
model = "demo/error-500"
limits = {{ attempts = 1 }}
[workers]
lease = 15
"""
DOOR = {"type": "function", "name": "door", "parameters": {"type": "object", "properties": {}}}
WITH_TOOLS = {"agent": "plain", "input": "hi"}
CAT = [{"type": "cat"}]


class Api:
    """A client of one gateway, with one key."""

    def __init__(self, url: str, key: str = "alice") -> None:
        headers = {"authorization": f"Bearer {KEYS[key]}"}
        self.http = httpx.Client(
            base_url=url, headers=headers, timeout=PATIENCE, trust_env=False, verify=NO_AUTHORITIES
        )

    def start(self, input: object, agent: str = "helper", **more: object) -> Object:
        found: Object = good(self.post("/v1/runs", {"agent": agent, "input": input, **more}))
        return found

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(path, json=body, headers=named)

    def act(self, id: str, what: str, **body: object) -> httpx.Response:
        return self.post(f"/v1/runs/{id}/{what}", body)

    def get(self, id: str) -> Object:
        found: Object = good(self.http.get(f"/v1/runs/{id}"))
        return found

    def until(self, id: str, *statuses: str) -> Object:
        """The run, once it has one of these statuses."""
        return wait_for(lambda: self.get(id), lambda run: run["status"] in statuses)

    def events(self, id: str, **query: object) -> list[Object]:
        """The whole log, page by page."""
        found: list[Object] = []
        more = True
        while more:
            after = found[-1]["seq"] if found else 0
            params: Any = {"after": after, "limit": 4, **query}
            page = good(self.http.get(f"/v1/runs/{id}/events", params=params))
            found += page["data"]
            more = page["has_more"]
        return found

    def kinds(self, id: str) -> list[str]:
        return [event["kind"] for event in self.events(id)]

    def approve(self, run: Object, approve: bool = True, **more: object) -> httpx.Response:
        [asked] = run["waiting"]["approvals"]
        return self.act(run["id"], "approvals", approval_id=asked["approval_id"], approve=approve,
                        **more)  # fmt: skip


def good(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


def refused(response: httpx.Response) -> tuple[int, str]:
    """The status and the message of an error, in the shape of OpenAI's API."""
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return response.status_code, error["message"]


def wait_for(look: Callable[[], Object], wanted: Callable[[Object], bool]) -> Object:
    end = time.monotonic() + PATIENCE
    while not wanted(found := look()):
        assert time.monotonic() < end, found
    return found


def sse(lines: Iterator[str]) -> Iterator[Object]:
    """The events of a stream, each with its `id` and `event`; keepalives have neither."""
    fields: Object = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        elif fields:
            yield {**fields, "data": json.loads(fields["data"])} if "data" in fields else {}
            fields = {}


@contextmanager
def agents_in(
    folder: Path, store: str, *arguments: str, settings: str = SETTINGS
) -> Iterator[Gateway]:
    """A gateway in a folder with the tools and their pipe."""
    shutil.copy(Path(__file__).with_name("run_tools.py"), folder)
    if not (folder / "pipe").exists():
        os.mkfifo(folder / "pipe")
    with gateway(settings.format(store=store), folder, *arguments) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Gateway]:
    with agents_in(folder, empty("sqlite", folder)) as running:
        yield running
    assert '"level":"error"' not in running.stderr


@pytest.fixture(scope="module")
def api(served: Gateway) -> Iterator[Api]:
    made = Api(served.url)
    with made.http:
        yield made


def open_gate(folder: Path, said: str = "open") -> None:
    (folder / "pipe").write_text(said)


def refunds(folder: Path, id: str) -> int:
    file = folder / "refunds"
    text = file.read_text() if file.exists() else ""
    return sum(line.startswith(f"{id}/") for line in text.splitlines())


# As a model


@pytest.mark.parametrize(
    ("path", "field", "more"),
    [
        ("/v1/responses", "input", {}),
        ("/v1/chat/completions", "messages", {}),
        ("/v1/messages", "messages", {"max_tokens": 99}),
    ],
)
def test_the_same_key_is_the_same_run_also_as_a_model(
    api: Api, path: str, field: str, more: Object
) -> None:
    def runs() -> int:
        return len(good(api.http.get("/v1/runs", params={"agent": "plain", "limit": 100}))["data"])

    def body(text: str, **others: object) -> Object:
        given = [{"role": "user", "content": text}]
        return {"model": "plain", field: given, **more, **others}

    key, before = f"key-for{path}", runs()
    good(api.post(path, body("Hello."), Idempotency_Key=key))
    good(api.post(path, body("Hello."), Idempotency_Key=key))
    assert api.post(path, body("Hello.", stream=True), Idempotency_Key=key).status_code == 200
    assert runs() == before + 1
    response = api.post(path, body("Bye."), Idempotency_Key=key)
    assert response.status_code == 409, response.text
    assert "the idempotency key belongs to another request" in response.text
    assert api.post(path, body("Hello."), Idempotency_Key="a b").status_code == 400
    assert runs() == before + 1
    good(api.post(path, body("Hello.")))
    assert runs() == before + 2


# Conversations


def conversation(api: Api, *texts: str) -> str:
    items = [{"type": "message", "role": "user", "content": text} for text in texts]
    return str(good(api.post("/v1/conversations", {"items": items}))["id"])


def items_of(api: Api, id: str) -> list[Object]:
    params: Any = {"limit": 100, "order": "asc"}
    found: list[Object] = good(api.http.get(f"/v1/conversations/{id}/items", params=params))["data"]
    return found


def test_a_run_continues_its_conversation_and_is_added_to_it_once(api: Api) -> None:
    id = conversation(api, "My order is A-17.")
    body = {"agent": "helper", "input": "look A-17", "conversation": id}
    run = good(api.post("/v1/runs", body, Idempotency_Key="in-a-conversation"))
    assert run["conversation"] == id
    ended = api.until(run["id"], "finished")
    again = good(api.post("/v1/runs", body, Idempotency_Key="in-a-conversation"))
    assert again["id"] == run["id"]
    created = api.events(run["id"])[0]
    assert [one["content"] for one in created["input"]] == ["My order is A-17.", "look A-17"]
    items = items_of(api, id)
    assert [(one["type"], one.get("role")) for one in items] == [
        ("message", "user"),
        ("message", "user"),
        ("function_call", None),
        ("function_call_output", None),
        ("message", "assistant"),
    ]
    assert items[-1]["content"][0]["text"] == ended["output"]
    # The next run, and a response of any model, begin with all of it.
    second = api.start("look A-18", conversation={"id": id})
    api.until(second["id"], "finished")
    assert len(api.events(second["id"])[0]["input"]) == 6
    assert len(items_of(api, id)) == 9
    response = {"model": "demo/agent", "input": "Bye.", "conversation": id}
    assert good(api.post("/v1/responses", response))["status"] == "completed"
    assert len(items_of(api, id)) == 11


def test_a_fork_is_not_added_to_the_conversation(api: Api) -> None:
    id = conversation(api)
    run = api.until(api.start("look A-17", conversation=id)["id"], "finished")
    before = items_of(api, id)
    fork = good(api.act(run["id"], "fork", after=1))
    assert api.until(fork["id"], "finished")["conversation"] is None
    assert items_of(api, id) == before


def test_what_a_cancelled_run_has_done_is_in_its_conversation(api: Api) -> None:
    id = conversation(api)
    run = api.until(api.start("refund A-17", conversation=id)["id"], "waiting")
    assert items_of(api, id) == []
    good(api.act(run["id"], "cancel"))
    good(api.act(run["id"], "cancel"))
    assert [one["type"] for one in items_of(api, id)] == ["message", "function_call"]
    again = api.start("look A-17", conversation=id)
    api.until(again["id"], "finished")
    given = api.events(again["id"])[0]["input"]
    assert [one["type"] for one in given][1:3] == ["function_call", "function_call_output"]


def test_a_run_that_fails_in_its_first_turn_adds_nothing(api: Api) -> None:
    id = conversation(api, "Hello.")
    api.until(api.start("Go.", "lost", conversation=id)["id"], "failed")
    assert len(items_of(api, id)) == 1


def test_a_conversation_that_is_deleted_meanwhile_ends_no_run(api: Api) -> None:
    id = conversation(api, "Hello.")
    run = api.until(api.start("refund A-17", conversation=id)["id"], "waiting")
    good(api.http.delete(f"/v1/conversations/{id}"))
    good(api.approve(run))
    api.until(run["id"], "finished")


def test_the_conversation_of_another_key_does_not_exist(api: Api, served: Gateway) -> None:
    id = conversation(api, "Secret.")
    bob = Api(served.url, "bob")
    with bob.http:
        body = {"agent": "helper", "input": "look A-17", "conversation": id}
        before = len(good(bob.http.get("/v1/runs"))["data"])
        response = bob.post("/v1/runs", body)
        assert refused(response) == (404, f"Conversation with id '{id}' not found.")
        assert response.json()["error"]["param"] == "conversation"
        assert len(good(bob.http.get("/v1/runs"))["data"]) == before
    assert refused(api.post("/v1/runs", {**body, "conversation": 7}))[0] == 400


# One run


def test_a_run_uses_its_tools_and_answers(api: Api) -> None:
    begun = api.start("look A-17", metadata={"order": "A-17"}, limits={"turns": 5})
    assert (begun["object"], begun["agent"], begun["status"]) == ("run", "helper", "running")
    run = api.until(begun["id"], "finished")
    assert "A-17 is fine" in run.pop("output")
    assert run.pop("created_at") <= run.pop("ended_at")
    usage, responses, limits = run.pop("usage"), run.pop("responses"), run.pop("limits")
    finished = [one for one in api.events(run["id"]) if one["kind"] == "turn.finished"]
    assert usage["output_tokens"] == sum(one["usage"]["output_tokens"] for one in finished)
    assert (len(responses), len({*responses})) == (2, 2)
    assert (limits["turns"], limits["calls"]) == (5, 100)
    assert run == {
        "id": begun["id"],
        "object": "run",
        "agent": "helper",
        "status": "finished",
        "error": None,
        "waiting": None,
        "cost": None,
        "turns": 2,
        "events": 8,
        "metadata": {"order": "A-17"},
        "parent": None,
        "parent_call": None,
        "forked_from": None,
        "unavailable": None,
        "conversation": None,
    }
    assert api.kinds(run["id"]) == [
        "run.created",
        "turn.started",
        "turn.finished",
        "call.intended",
        "call.finished",
        "turn.started",
        "turn.finished",
        "run.finished",
    ]


def test_input_may_be_items(api: Api) -> None:
    items = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "input_text", "text": "look A-18"}]},
    ]
    assert "A-18 is fine" in api.until(api.start(items)["id"], "finished")["output"]


def test_a_run_that_fails_says_why(api: Api) -> None:
    run = api.until(api.start("hello", "lost")["id"], "failed")
    assert run["error"]["code"] == "model"
    assert "error-500 always fails" in run["error"]["message"]
    assert run["output"] is None


def test_agents_are_listed_with_the_schemas_of_their_tools(api: Api) -> None:
    found = good(api.http.get("/v1/agents"))
    assert [one["id"] for one in found["data"]] == [
        "helper",
        "boss",
        "clerk",
        "plain",
        "stalled",
        "lost",
    ]
    helper = found["data"][0]
    assert (helper["model"], helper["instructions"]) == ("demo/agent", "Help.")
    assert helper["limits"]["turns"] == 10
    assert [(one["name"], one["retry"], one["approval"]) for one in helper["tools"]] == [
        ("look", "pure", "never"),
        ("refund", "once", "always"),
        ("hang", "once", "never"),
        ("gate", "once", "never"),
    ]
    assert helper["tools"][0]["parameters"]["required"] == ["order"]


def test_a_key_sees_the_agents_that_it_may_use(api: Api, served: Gateway) -> None:
    clerk = Api(served.url, "clerk")
    with clerk.http:
        found = good(clerk.http.get("/v1/agents"))
        assert [one["id"] for one in found["data"]] == ["plain"]
        refusal = clerk.post("/v1/runs", {"agent": "helper", "input": "look A-17"})
        assert refused(refusal)[0] == 403
        assert clerk.start("hi", agent="plain")["agent"] == "plain"


# Approvals


def test_an_approved_call_runs_once_however_often_it_is_approved(api: Api, folder: Path) -> None:
    run = api.until(api.start("refund A-17")["id"], "waiting")
    [asked] = run["waiting"]["approvals"]
    assert asked.keys() == {"run", "approval_id", "call_id", "tool", "arguments", "expires_at"}
    assert (asked["tool"], json.loads(asked["arguments"])) == ("refund", {"order": "A-17"})
    assert asked["expires_at"] > time.time()
    assert (run["waiting"]["outputs"], run["waiting"]["parked"]) == ([], [])
    assert refunds(folder, run["id"]) == 0
    assert good(api.approve(run, reason="fine"))["status"] in ("running", "finished")
    assert good(api.approve(run))["id"] == run["id"]
    ended = api.until(run["id"], "finished")
    assert "A-17 was paid back" in ended["output"]
    assert good(api.approve(run))["status"] == "finished"
    assert refunds(folder, run["id"]) == 1
    status, message = refused(api.approve(run, False))
    assert status == 409
    assert message.startswith("the run is finished: ")
    [decided] = [one for one in api.events(run["id"]) if one["kind"] == "approval.decided"]
    assert (decided["by"], decided["reason"]) == ("alice", "fine")


def test_what_was_approved_once_is_not_silently_approved_for_good(api: Api) -> None:
    run = api.until(api.start("refund A-17")["id"], "waiting")
    good(api.approve(run, scope="tool"))
    api.until(run["id"], "finished")
    for same in ("tool", "call"):
        good(api.approve(run, scope=same))
    status, message = refused(api.approve(run, scope="run"))
    assert (status, message) == (
        409,
        "the run is finished: the call has already been approved, by alice, with scope tool",
    )
    [decided] = [one for one in api.events(run["id"]) if one["kind"] == "approval.decided"]
    assert decided["scope"] == "tool"


def test_a_denied_call_does_not_run_and_the_model_learns_it(api: Api, folder: Path) -> None:
    run = api.until(api.start("refund A-17")["id"], "waiting")
    good(api.approve(run, False, reason="too late"))
    ended = api.until(run["id"], "finished")
    assert "`refund` failed" in ended["output"]
    assert "too late" in ended["output"]
    assert refunds(folder, run["id"]) == 0


def test_an_approval_that_does_not_exist_is_not_found(api: Api) -> None:
    run = api.until(api.start("refund A-17")["id"], "waiting")
    body = {"approval_id": "appr_none", "approve": True}
    assert refused(api.act(run["id"], "approvals", **body))[0] == 404
    assert api.get(run["id"]) == run
    good(api.act(run["id"], "cancel"))


def test_an_approval_is_for_its_own_call_and_arguments_alone(api: Api, folder: Path) -> None:
    one, two = (
        api.until(api.start(f"refund {order}")["id"], "waiting") for order in ("A-17", "B-2")
    )
    [asked] = one["waiting"]["approvals"]
    approval = {"approval_id": asked["approval_id"], "approve": True}
    assert refused(api.act(two["id"], "approvals", **approval))[0] == 404
    other = {"arguments": '{"order": "B-2"}', "call_id": two["waiting"]["approvals"][0]["call_id"]}
    assert refused(api.act(one["id"], "approvals", **approval, **other))[0] == 400
    assert (refunds(folder, one["id"]), refunds(folder, two["id"])) == (0, 0)
    good(api.act(one["id"], "approvals", **approval))
    assert "A-17 was paid back" in api.until(one["id"], "finished")["output"]
    assert (refunds(folder, one["id"]), refunds(folder, two["id"])) == (1, 0)
    assert api.get(two["id"])["status"] == "waiting"
    good(api.act(two["id"], "cancel"))


# Whose runs they are


def test_the_run_of_another_key_does_not_exist(api: Api, served: Gateway) -> None:
    run = api.until(api.start("refund A-17")["id"], "waiting")
    path, approval = f"/v1/runs/{run['id']}", run["waiting"]["approvals"][0]["approval_id"]
    bob = Api(served.url, "bob")
    with bob.http:
        mine, theirs = (
            {found["id"] for found in good(one.http.get("/v1/runs", params={"limit": 100}))["data"]}
            for one in (api, bob)
        )
        assert (run["id"] in mine, mine & theirs) == (True, set())
        message = f"Run with id '{run['id']}' not found."
        posts: dict[str, Object] = {
            "approvals": {"approval_id": approval, "approve": True},
            "outputs": {"outputs": []},
            "resolve": {"call_id": "a", "action": "retry"},
            "messages": {"content": "hi"},
            "cancel": {},
            "fork": {"after": 1},
        }
        for one in (path, f"{path}/events", f"{path}/events?stream=true"):
            assert refused(bob.http.get(one)) == (404, message)
        for name, body in posts.items():
            assert refused(bob.post(f"{path}/{name}", body)) == (404, message)
        assert refused(bob.http.delete(path)) == (404, message)
        assert bob.http.get("/v1/runs", params={"after": run["id"]}).status_code == 400
    assert api.get(run["id"]) == run
    assert refused(api.http.get("/v1/runs/run_none"))[0] == 404
    good(api.act(run["id"], "cancel"))


def test_the_same_key_of_two_owners_is_two_runs(api: Api, served: Gateway) -> None:
    body = {"agent": "plain", "input": "hello"}
    bob = Api(served.url, "bob")
    with bob.http:
        ids = {good(one.post("/v1/runs", body, Idempotency_Key="ours"))["id"] for one in (api, bob)}
        assert len(ids) == 2


# The same again


def test_the_same_key_and_body_is_the_same_run(api: Api) -> None:
    body: Object = {"agent": "plain", "input": "hello", "metadata": {"a": "b"}}
    first = good(api.post("/v1/runs", body, Idempotency_Key="once"))
    # Neither the order of the keys nor the wish to stream makes it another request.
    again = {"metadata": {"a": "b"}, "input": "hello", "stream": False, "agent": "plain"}
    assert good(api.post("/v1/runs", again, Idempotency_Key="once"))["id"] == first["id"]
    with api.http.stream(
        "POST", "/v1/runs", json=body | {"stream": True}, headers={"Idempotency-Key": "once"}
    ) as stream:
        events = [one for one in sse(stream.iter_lines()) if one]
    assert {one["data"]["run"] for one in events} == {first["id"]}
    assert [events[0]["event"], events[-1]["event"]] == ["run.created", "run.finished"]
    other = api.post("/v1/runs", body | {"input": "bye"}, Idempotency_Key="once")
    status, message = refused(other)
    assert status == 409
    assert first["id"] in message
    assert good(api.post("/v1/runs", body, Idempotency_Key="twice"))["id"] != first["id"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256])
def test_a_key_that_is_none_is_refused(api: Api, key: str) -> None:
    body = {"agent": "plain", "input": "hello"}
    assert refused(api.post("/v1/runs", body, Idempotency_Key=key))[0] == 400


# What is refused


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"input": "hi"}, 400, "missing required field `agent`"),
        ({"agent": "plain"}, 400, "missing required field `input`"),
        ({"agent": "nobody", "input": "hi"}, 404, "no agent 'nobody'; expected one of: helper"),
        ({"agent": "plain", "input": " "}, 400, "input: empty"),
        ({"agent": "plain", "input": []}, 400, "input: empty"),
        ({"agent": "plain", "input": [{"type": "message"}]}, 400, "input[0]"),
        ({"agent": "plain", "input": 7}, 400, "input"),
        ({"agent": "plain", "input": "hi", "inptu": 1}, 400, "unknown field `inptu`"),
        ({"agent": "plain", "input": "hi", "limits": {"turn": 1}}, 400, "unknown limit 'turn'"),
        ({"agent": "plain", "input": "hi", "limits": {"turns": 0}}, 400, "limits.turns"),
        (
            {"agent": "helper", "input": "hi", "limits": {"turns": 11}},
            400,
            "limits.turns: 11 is above the agent's 10",
        ),
        ({"agent": "plain", "input": "hi", "limits": {"cost": 0}}, 400, "limits.cost"),
        ({"agent": "plain", "input": "hi", "limits": {"turns": 1.5}}, 400, "limits.turns: "),
        ({"agent": "plain", "input": "hi", "metadata": {"a": 1}}, 400, "metadata"),
        ({"agent": "plain", "input": "hi", "metadata": {"a": "x" * 513}}, 400, "metadata.a"),
        (WITH_TOOLS | {"tools": [{"type": "custom", "name": "x"}]}, 400, "tools[0].type"),
        (WITH_TOOLS | {"tools": [DOOR | {"name": "a b"}]}, 400, "tools[0].name"),
        (WITH_TOOLS | {"tools": [DOOR | {"parameters": "none"}]}, 400, "tools[0].parameters"),
        (WITH_TOOLS | {"tools": [DOOR | {"parameters": []}]}, 400, "tools[0].parameters"),
        (WITH_TOOLS | {"tools": [DOOR, DOOR]}, 400, "tools: there is a tool 'door' already"),
        (
            {"agent": "plain", "input": [{"type": "item_reference", "id": "x"}]},
            400,
            "input[0]: an item reference",
        ),
        ({"agent": "plain", "input": "x" * 2_000_000}, 413, "expected at most 1048576"),
        ({"agent": "plain", "input": "x" * (1024 * 1024 - 40)}, 400, "an event at most 1048576"),
        ([], 400, ""),
    ],
)  # fmt: skip
def test_what_cannot_be_a_run_is_refused_and_nothing_is_started(
    api: Api, body: object, status: int, said: str
) -> None:
    before = good(api.http.get("/v1/runs"))["first_id"]
    found, message = refused(api.post("/v1/runs", body))
    assert (found, said in message) == (status, True), message
    assert good(api.http.get("/v1/runs"))["first_id"] == before


def test_a_body_that_is_no_json_is_refused(api: Api) -> None:
    headers = {"content-type": "application/json"}
    response = api.http.post("/v1/runs", content=b"{bad", headers=headers)
    status, message = refused(response)
    assert (status, message.startswith("JSON is malformed")) == (400, True), message


@pytest.mark.parametrize(
    ("what", "body", "said"),
    [
        ("approvals", {}, "missing required field `approval_id`"),
        ("approvals", {"approval_id": "a", "approve": "yes"}, "approve"),
        ("approvals", {"approval_id": "a", "approve": True, "scope": "all"}, "scope"),
        ("outputs", {"outputs": []}, "outputs: empty"),
        ("outputs", {"outputs": [{}]}, "missing required field `call_id`"),
        ("outputs", {"outputs": [{"call_id": "a", "output": CAT}]}, "outputs[0].output"),
        ("resolve", {"call_id": "a", "action": "pray"}, "action"),
        ("resolve", {"call_id": "a", "action": "retry", "result": "x"}, "result: only with"),
        ("messages", {}, "content"),
        ("messages", {"content": []}, "content"),
        ("messages", {"content": " "}, "content: empty"),
        ("messages", {"content": CAT}, "content"),
        ("cancel", {"why": "so"}, "unknown field `why`"),
        ("fork", {"after": "1"}, "after"),
    ],
)  # fmt: skip
def test_a_body_that_is_wrong_changes_nothing(
    api: Api, waiting: Object, what: str, body: Object, said: str
) -> None:
    status, message = refused(api.act(waiting["id"], what, **body))
    assert (status, said in message) == (400, True), message
    assert api.get(waiting["id"]) == waiting


@pytest.fixture(scope="module")
def waiting(api: Api) -> Object:
    """A run that waits for an approval, for as long as the tests take."""
    return api.until(api.start("refund A-18")["id"], "waiting")


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("?status=done", 400, "status: 'done'; expected one of running, waiting"),
        ("?limit=0", 400, "limit"),
        ("?order=up", 400, "order"),
        ("?after=run_none", 400, "after: no run 'run_none'"),
        ("/{id}/events?after=x", 400, "after"),
        ("/{id}/events?kinds=run.started", 400, "kinds: 'run.started'; expected some of"),
        ("/{id}/events?limit=101", 400, "limit"),
        ("/{id}/events?stream=yes", 400, "stream"),
        ("/{id}/events?parts=true", 400, "parts: only together with stream=true"),
    ],
)
def test_a_query_that_is_wrong_is_refused(
    api: Api, waiting: Object, path: str, status: int, said: str
) -> None:
    found, message = refused(api.http.get("/v1/runs" + path.format(id=waiting["id"])))
    assert (found, said in message) == (status, True), message


def test_what_nobody_waits_for_is_a_conflict_that_says_the_state(api: Api, waiting: Object) -> None:
    call = waiting["waiting"]["approvals"][0]["call_id"]
    for what, body in (
        ("outputs", {"outputs": [{"call_id": call, "output": "x"}]}),
        ("resolve", {"call_id": call, "action": "retry"}),
        ("resolve", {"call_id": "none", "action": "done", "result": "x"}),
    ):
        status, message = refused(api.act(waiting["id"], what, **body))
        assert (status, message.partition(":")[0]) == (409, "the run is waiting")
    assert refused(api.http.delete(f"/v1/runs/{waiting['id']}")) == (
        409,
        "the run is waiting: only a run that has ended can be deleted",
    )
    assert api.get(waiting["id"]) == waiting


# Lists


def test_runs_are_listed_newest_first_in_pages_and_by_status(api: Api, waiting: Object) -> None:
    mine = [api.until(api.start("hello", "plain")["id"], "finished")["id"] for _ in range(3)]
    page = good(api.http.get("/v1/runs", params={"agent": "plain", "limit": 2}))
    assert [one["id"] for one in page["data"]] == [mine[2], mine[1]]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (mine[2], mine[1], True)
    params: Any = {"agent": "plain", "limit": 1, "after": mine[1]}
    assert [one["id"] for one in good(api.http.get("/v1/runs", params=params))["data"]] == [mine[0]]
    params = {"order": "asc", "after": mine[0], "limit": 2}
    ids = [one["id"] for one in good(api.http.get("/v1/runs", params=params))["data"]]
    assert ids == [mine[1], mine[2]]
    held = good(api.http.get("/v1/runs", params={"status": "waiting"}))["data"]
    assert {one["status"] for one in held} == {"waiting"}
    assert waiting["id"] in [one["id"] for one in held]


# Tools of the client


def test_a_tool_of_the_client_waits_for_its_output(api: Api) -> None:
    run = api.until(api.start("door", "plain", tools=[DOOR])["id"], "waiting")
    [asked] = run["waiting"]["outputs"]
    call = {"run": run["id"], "call_id": asked["call_id"]}
    assert asked == {**call, "tool": "door", "arguments": "{}"}
    content = [{"type": "input_text", "text": "it is open"}]
    outputs = [{"call_id": asked["call_id"], "output": content}]
    good(api.act(run["id"], "outputs", outputs=outputs))
    good(api.act(run["id"], "outputs", outputs=outputs))
    assert "it is open" in api.until(run["id"], "finished")["output"]
    other = [{"call_id": asked["call_id"], "output": "it is shut"}]
    status, message = refused(api.act(run["id"], "outputs", outputs=other))
    assert (status, message.partition(":")[0]) == (409, "the run is finished")
    assert api.kinds(run["id"]).count("outputs.submitted") == 1


# Agents that call agents


def is_waiting_below(run: Object) -> bool:
    """Whether an agent that this run has called waits for somebody."""
    called = run["waiting"]["children"] if run["waiting"] else []
    return [one["child_status"] for one in called] == ["waiting"]


def test_what_an_agent_below_waits_for_is_shown_above(api: Api, folder: Path) -> None:
    id = api.start("Let the clerk refund A-23", "boss")["id"]
    run = wait_for(lambda: api.get(id), is_waiting_below)
    [asked], [called] = run["waiting"]["approvals"], run["waiting"]["children"]
    child = called["child"]
    assert (asked["run"], asked["tool"], called["tool"]) == (child, "refund", "clerk")
    assert (run["status"], called["child_status"]) == ("running", "waiting")
    below = api.get(child)
    assert (below["parent"], below["parent_call"]) == (id, called["call_id"])
    page = good(api.http.get("/v1/runs", params={"parent": id}))
    assert [(one["id"], one["parent"], one["status"]) for one in page["data"]] == [
        (child, id, "waiting")
    ]
    assert good(api.http.get("/v1/runs", params={"parent": child}))["data"] == []
    good(api.approve(below))
    assert "paid back" in api.until(id, "finished")["output"]
    assert refunds(folder, child) == 1
    [intended] = [one for one in api.events(id) if one["kind"] == "call.intended"]
    assert (intended["child"], intended["executor"]) == (child, "agent")
    assert intended["drawn"]["turns"] <= 23


def test_a_run_that_is_cancelled_cancels_the_agent_below(api: Api) -> None:
    id = api.start("Let the clerk refund A-24", "boss")["id"]
    run = wait_for(lambda: api.get(id), is_waiting_below)
    child = run["waiting"]["children"][0]["child"]
    good(api.act(id, "cancel", reason="enough"))
    assert api.get(child)["error"] == {
        "code": "cancelled",
        "message": "the run that called it has ended",
    }
    status, message = refused(api.act(child, "approvals", approval_id="x", approve=True))
    assert status == 404 or message.startswith("the run is cancelled")


def test_progress_is_in_the_stream_and_not_in_the_log(api: Api, folder: Path) -> None:
    id, lines = api.start("slow A-25", "clerk")["id"], []
    with api.http.stream("GET", f"/v1/runs/{id}/events", params={"stream": "true"}) as response:
        for line in response.iter_lines():
            lines.append(line)
            if line == "event: call.intended":
                (folder / "pipe").write_text("at last")
    frames = [frame for frame in "\n".join(lines).split("\n\n") if "event: call." in frame]
    intended, *progress, finished = frames
    assert ("event: call.intended" in intended, "event: call.finished" in finished) == (True, True)
    told = [json.loads(frame.partition("data: ")[2]) for frame in progress]
    assert [(one["run"], one["kind"], one["text"]) for one in told] == [
        (id, "call.progress", f"{part} of 3") for part in (1, 2, 3)
    ]
    assert not any("id: " in frame for frame in progress), "a client cannot resume after it"
    assert "call.progress" not in api.kinds(id)


def test_an_output_may_be_an_error(api: Api) -> None:
    run = api.until(api.start("door", "plain", tools=[DOOR])["id"], "waiting")
    call = run["waiting"]["outputs"][0]["call_id"]
    output = {"call_id": call, "output": "no", "is_error": True}
    good(api.act(run["id"], "outputs", outputs=[output]))
    assert "`door` failed" in api.until(run["id"], "finished")["output"]


# Calls whose outcome is unknown


def parked(api: Api) -> tuple[Object, Object]:
    run = api.until(api.start("hang")["id"], "waiting")
    [call] = run["waiting"]["parked"]
    return run, call


def test_a_parked_call_says_what_was_intended_and_a_person_settles_it(api: Api) -> None:
    run, call = parked(api)
    assert call == {
        "run": run["id"],
        "call_id": call["call_id"],
        "tool": "hang",
        "arguments": "{}",
        "key": f"{run['id']}/{call['call_id']}",
        "intended_at": call["intended_at"],
        "why": call["why"],
    }
    assert run["created_at"] <= call["intended_at"] <= time.time()
    assert "0.05 s" in call["why"]
    done = {"call_id": call["call_id"], "action": "done", "result": "it rang"}
    good(api.act(run["id"], "resolve", **done))
    good(api.act(run["id"], "resolve", **done))
    assert "it rang" in api.until(run["id"], "finished")["output"]
    good(api.act(run["id"], "resolve", **done))
    status, message = refused(api.act(run["id"], "resolve", **done | {"result": "it did not"}))
    assert (status, message.partition(":")[0]) == (409, "the run is finished")
    assert api.kinds(run["id"]).count("call.resolved") == 1


def test_a_parked_call_can_be_retried_and_abandoned(api: Api) -> None:
    run, call = parked(api)
    good(api.act(run["id"], "resolve", call_id=call["call_id"], action="retry"))
    events = wait_for(
        lambda: {"kinds": api.kinds(run["id"])}, lambda now: now["kinds"].count("call.parked") == 2
    )
    assert events["kinds"].count("call.intended") == 2
    api.until(run["id"], "waiting")
    good(api.act(run["id"], "resolve", call_id=call["call_id"], action="abandon"))
    assert "abandoned" in api.until(run["id"], "finished")["output"]


# Messages and cancellation


@contextmanager
def at_the_gate(api: Api, folder: Path) -> Iterator[Object]:
    """A run whose tool is under way until the gate opens, which it does in the end."""
    run = api.start("gate")
    found = wait_for(lambda: {"gate": gate_in(folder)}, lambda now: now["gate"] is not None)
    try:
        yield run
    finally:
        with os.fdopen(found["gate"], "w") as gate:
            gate.write("open")


def gate_in(folder: Path) -> int | None:
    """The other end of the pipe, if somebody waits at it."""
    try:
        return os.open(folder / "pipe", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def test_a_message_reaches_the_model_with_its_next_turn(api: Api, folder: Path) -> None:
    with at_the_gate(api, folder) as run:
        path, body = f"/v1/runs/{run['id']}/messages", {"content": "now look A-18"}
        for _ in range(2):
            good(api.post(path, body, Idempotency_Key="said once"[:4]))
        content = [{"type": "input_text", "text": "and look A-18"}]
        good(api.act(run["id"], "messages", content=content))
        assert api.kinds(run["id"]).count("message.added") == 2
    ended = api.until(run["id"], "finished")
    assert "A-18 is fine" in ended["output"]
    status, message = refused(api.act(run["id"], "messages", content="hello?"))
    assert (status, message.partition(":")[0]) == (409, "the run is finished")


def test_a_run_that_waits_does_not_take_messages_without_end(api: Api) -> None:
    run = api.until(api.start("refund A-17")["id"], "waiting")
    for number in range(MAX_MESSAGES):
        good(api.act(run["id"], "messages", content=f"Hurry up, {number}."))
    status, message = refused(api.act(run["id"], "messages", content="Now!"))
    assert (status, f"{MAX_MESSAGES} messages" in message) == (409, True)
    good(api.act(run["id"], "cancel"))


def test_a_run_is_cancelled_while_it_works_and_while_it_waits(api: Api, folder: Path) -> None:
    with at_the_gate(api, folder) as run:
        ended = good(api.act(run["id"], "cancel", reason="enough"))
        assert (ended["status"], ended["error"]["message"]) == ("cancelled", "enough")
    held = api.until(api.start("refund A-17")["id"], "waiting")
    ended = good(api.http.post(f"/v1/runs/{held['id']}/cancel"))
    assert (ended["status"], ended["error"]) == (
        "cancelled",
        {"code": "cancelled", "message": "cancelled by alice"},
    )
    assert ended["ended_at"] is not None
    assert ended["waiting"] is None
    assert good(api.act(held["id"], "cancel", reason="again")) == ended
    assert refused(api.approve(held))[0] == 409
    assert refunds(folder, held["id"]) == 0


def test_a_run_that_has_ended_can_be_deleted(api: Api) -> None:
    run = api.until(api.start("hello", "plain")["id"], "finished")
    path = f"/v1/runs/{run['id']}"
    assert good(api.http.delete(path)) == {
        "id": run["id"],
        "object": "run.deleted",
        "deleted": True,
    }
    assert {api.http.get(one).status_code for one in (path, f"{path}/events")} == {404}
    assert api.http.delete(path).status_code == 404


# Forks


def test_a_fork_goes_on_from_where_nothing_is_under_way(api: Api, folder: Path) -> None:
    run = api.until(api.start("look A-17 refund")["id"], "waiting")
    good(api.approve(run))
    ended = api.until(run["id"], "finished")
    kinds = api.kinds(run["id"])
    receipt = len(kinds) - kinds[::-1].index("call.finished")
    assert refunds(folder, run["id"]) == 1
    # After the receipt of the refund: only the last turn is asked again.
    fork = good(api.act(run["id"], "fork", after=receipt))
    assert fork["id"] != run["id"]
    assert fork["forked_from"] == f"{run['id']}/{receipt}"
    again = api.until(fork["id"], "finished")
    assert again["output"] == ended["output"]
    assert api.kinds(fork["id"]) == kinds
    assert (refunds(folder, run["id"]), refunds(folder, fork["id"])) == (1, 0)
    # From the beginning: everything happens again, under keys of its own.
    anew = good(api.act(run["id"], "fork", after=1))
    good(api.approve(api.until(anew["id"], "waiting")))
    api.until(anew["id"], "finished")
    assert refunds(folder, anew["id"]) == 1


def test_a_fork_from_anywhere_else_is_a_conflict_with_the_next_positions(api: Api) -> None:
    run = api.until(api.start("look A-17")["id"], "finished")
    # created 1, turn 2-3, call 4-5, turn 6-7, finished 8
    nearest = {0: "1, 5, 7", 2: "5, 7", 3: "5, 7", 4: "5, 7", 6: "7", 8: "1, 5, 7", 99: "1, 5, 7"}
    for after, positions in nearest.items():
        status, message = refused(api.act(run["id"], "fork", after=after))
        assert (status, message.rpartition("possible are ")[2]) == (409, positions), after


def test_a_fork_with_a_key_is_made_once(api: Api) -> None:
    run = api.until(api.start("look A-17")["id"], "finished")
    path = f"/v1/runs/{run['id']}/fork"
    forks = {good(api.post(path, {"after": 5}, Idempotency_Key="fork"))["id"] for _ in range(2)}
    assert len(forks) == 1
    assert refused(api.post(path, {"after": 7}, Idempotency_Key="fork"))[0] == 409


# Streams of events


def test_a_stream_has_the_whole_log_and_ends_with_the_run(api: Api) -> None:
    body = {"agent": "helper", "input": "look A-17", "stream": True}
    with api.http.stream("POST", "/v1/runs", json=body) as stream:
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = [one for one in sse(stream.iter_lines()) if one]
    id = events[0]["data"]["run"]
    assert [one["data"] for one in events] == api.events(id)
    assert [one["id"] for one in events] == [str(number) for number in range(1, 9)]
    assert all(one["event"] == one["data"]["kind"] for one in events)
    later = stream_of(api, f"/v1/runs/{id}/events?stream=true")
    assert later == events


def stream_of(api: Api, path: str, **headers: str) -> list[Object]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with api.http.stream("GET", path, headers=named) as stream:
        assert stream.status_code == 200
        return [one for one in sse(stream.iter_lines()) if one]


def test_a_stream_resumes_after_any_event(api: Api) -> None:
    run = api.until(api.start("look A-17")["id"], "finished")
    path = f"/v1/runs/{run['id']}/events?stream=true"
    whole = stream_of(api, path)
    for seen in range(len(whole) + 1):
        assert stream_of(api, path, Last_Event_ID=str(seen)) == whole[seen:]
        assert stream_of(api, f"{path}&after={seen}") == whole[seen:]
        # What the browser says counts, not the address that it was given first.
        assert stream_of(api, f"{path}&after=1", Last_Event_ID=str(seen)) == whole[seen:]
    some = stream_of(api, f"{path}&kinds=call.intended,turn.finished")
    assert [one["event"] for one in some] == ["turn.finished", "call.intended", "turn.finished"]
    assert [one["kind"] for one in api.events(run["id"], kinds="call.finished")] == [
        "call.finished"
    ]
    bad = api.http.get(path, headers={"Last-Event-ID": "resp_1/7"})
    assert refused(bad)[0] == 400


def test_one_cursor_resumes_events_and_what_the_model_says(api: Api) -> None:
    run = api.until(api.start("look A-17")["id"], "finished")
    path = f"/v1/runs/{run['id']}/events?stream=true&parts=true"
    whole = stream_of(api, path)
    assert [one for one in whole if one["event"] != "turn.part"] == stream_of(
        api, path.removesuffix("&parts=true")
    )
    words = [one["data"]["part"] for one in whole if one["event"] == "turn.part"]
    said = "".join(one["delta"] for one in words if one["type"] == "text-delta")
    assert said.endswith(run["output"])
    assert [one["type"] for one in words].count("finish") == run["turns"]
    ids = [one["id"] for one in whole]
    assert (len({*ids}), "2.1" in ids) == (len(ids), True)
    for number, seen in enumerate(ids, 1):
        assert stream_of(api, path, Last_Event_ID=seen) == whole[number:]
    wrong = api.http.get(f"{path}&kinds=turn.started")
    assert refused(wrong) == (400, "parts: only together with all kinds of events")
    assert refused(api.http.get(path, headers={"Last-Event-ID": "2.x"}))[0] == 400


def test_the_parts_of_a_turn_come_while_it_lasts_and_resume_in_its_middle(api: Api) -> None:
    """The model says something, and then nothing for ever."""
    id = api.start("hi", agent="stalled")["id"]
    path = f"/v1/runs/{id}/events?stream=true&parts=true"

    def read(after: str, is_enough: Callable[[list[Object]], bool]) -> list[Object]:
        found: list[Object] = []
        with api.http.stream("GET", path, headers={"Last-Event-ID": after}) as stream:
            for event in sse(stream.iter_lines()):
                found += [event] if event else []
                if is_enough(found):
                    break
        return found

    def has_text(events: list[Object]) -> bool:
        parts = [one["data"]["part"] for one in events if one["event"] == "turn.part"]
        return [part["type"] for part in parts].count("text-delta") >= 3

    seen = read("0", has_text)
    assert [one["event"] for one in seen[:2]] == ["run.created", "turn.started"]
    ids = [one["id"] for one in seen]
    assert ids == ["1", "2", *[f"2.{number}" for number in range(1, len(seen) - 1)]]
    for number in (2, 3, len(seen) - 1):
        assert read(ids[number - 1], lambda found: found[-1:] == seen[-1:]) == seen[number:]
    assert api.get(id)["status"] == "running"
    good(api.act(id, "cancel"))
    rest = read(ids[-1], lambda found: False)
    *parts, last = rest
    assert {one["event"] for one in parts} <= {"turn.part"}
    assert (last["event"], api.kinds(id)[-1]) == ("run.cancelled", "run.cancelled")


def test_what_is_said_during_a_turn_does_not_disturb_its_parts() -> None:
    """Not even if the client has seen only some of them."""
    events = [
        Event("turn.started", b"{}", 2),
        *[Event("turn.part", b"{}")] * 2,
        Event("message.added", b"{}", 3),
        Event("call.progress", b"{}"),
        Event("turn.part", b"{}"),
        Event("turn.finished", b"{}", 4),
        Event("turn.started", b"{}", 5),
        Event("turn.part", b"{}"),
    ]
    lines = RunEventWriter(b"", RunPosition(0)).write(events).splitlines()
    ids = [line[4:].decode() for line in lines if line.startswith(b"id: ")]
    assert ids == ["2", "2.1", "2.2", "3.2", "3.3", "4", "5", "5.1"]
    resumed = RunEventWriter(b"", RunPosition(3, 2)).write(events[4:]).splitlines()
    assert [line[4:].decode() for line in resumed if line.startswith(b"id: ")] == ids[4:]


def test_a_client_that_leaves_and_comes_back_misses_nothing(api: Api, folder: Path) -> None:
    body = {"agent": "helper", "input": "gate", "stream": True}
    seen: list[Object] = []
    keepalives = 0
    with api.http.stream("POST", "/v1/runs", json=body) as stream:
        for event in sse(stream.iter_lines()):
            seen += [event] if event else []
            keepalives = 0 if event else keepalives + 1
            if seen[-1]["event"] == "call.intended" and keepalives == 2:
                break
    id = seen[0]["data"]["run"]
    # Nobody follows the run now, and it goes on.
    open_gate(folder)
    api.until(id, "finished")
    rest = stream_of(api, f"/v1/runs/{id}/events?stream=true", Last_Event_ID=seen[-1]["id"])
    assert [one["data"] for one in (*seen, *rest)] == api.events(id)
    assert rest[-1]["event"] == "run.finished"


# Restarts


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_waiting_run_survives_a_restart(tmp_path: Path, how: signal.Signals) -> None:
    store = empty("sqlite", tmp_path)
    with agents_in(tmp_path, store) as running:
        api = Api(running.url)
        with api.http:
            before = api.until(api.start("look A-17 refund")["id"], "waiting")
        running.process.send_signal(how)
        running.process.wait(PATIENCE)
    with agents_in(tmp_path, store) as running:
        api = Api(running.url)
        with api.http:
            assert api.get(before["id"]) == before
            good(api.approve(before))
            ended = api.until(before["id"], "finished")
    assert "A-17 was paid back" in ended["output"]
    assert refunds(tmp_path, before["id"]) == 1


def test_a_call_that_was_under_way_when_the_process_was_killed_is_parked(tmp_path: Path) -> None:
    store = empty("sqlite", tmp_path)
    brief = SETTINGS.removesuffix("lease = 15\n") + "lease = 1\n"
    with agents_in(tmp_path, store, settings=brief) as running:
        api = Api(running.url)
        with api.http:
            id = api.start("gate")["id"]
            wait_for(lambda: {"kinds": api.kinds(id)}, lambda now: "call.intended" in now["kinds"])
        running.process.kill()
        running.process.wait(PATIENCE)
    with agents_in(tmp_path, store) as running:
        api = Api(running.url)
        with api.http:
            [call] = api.until(id, "waiting")["waiting"]["parked"]
            done = {"call_id": call["call_id"], "action": "done", "result": "it was open"}
            good(api.act(id, "resolve", **done))
            assert "it was open" in api.until(id, "finished")["output"]


def test_a_server_that_stops_lets_calls_end_and_gives_their_runs_back(tmp_path: Path) -> None:
    # With a lease that nobody can wait for: the next server goes on because the run was released.
    store, settings = empty("sqlite", tmp_path), SETTINGS.removesuffix("lease = 15\n")
    settings += "lease = 600\n"
    with agents_in(tmp_path, store, settings=settings) as running:
        api = Api(running.url)
        with api.http, at_the_gate(api, tmp_path) as run:
            running.process.send_signal(signal.SIGTERM)
            while is_listening(running.url):
                pass
        assert running.process.wait(PATIENCE) == 0
    with agents_in(tmp_path, store, settings=settings) as running:
        api = Api(running.url)
        with api.http:
            assert "open" in api.until(run["id"], "finished", "waiting")["output"]
            assert api.kinds(run["id"]).count("call.intended") == 1


def is_listening(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).status_code > 0
    except httpx.TransportError:
        return False


def test_a_server_that_stops_ends_the_streams_and_keeps_the_runs(tmp_path: Path) -> None:
    store, settings = empty("sqlite", tmp_path), SETTINGS.replace("drain = 5", "drain = 60")
    with agents_in(tmp_path, store, settings=settings) as running:
        api = Api(running.url)
        with api.http:
            run = api.until(api.start("refund A-17")["id"], "waiting")
            path = f"/v1/runs/{run['id']}/events?stream=true"
            with api.http.stream("GET", path) as stream:
                events = sse(stream.iter_lines())
                assert next(events)["event"] == "run.created"
                begun = time.monotonic()
                running.process.send_signal(signal.SIGTERM)
                rest = [one["event"] for one in events if one]
            assert rest[-1] == "run.waiting"
        assert running.stop() == 0
        assert time.monotonic() - begun < 30, "it does not wait for a run that waits for a person"


# Several processes


@contextmanager
def two_gateways(folder: Path) -> Iterator[tuple[Api, Api]]:
    store = empty("postgres", folder)
    for name in ("one", "other"):
        (folder / name).mkdir()
    with agents_in(folder / "one", store) as first, agents_in(folder / "other", store) as second:
        one, other = Api(first.url), Api(second.url)
        with one.http, other.http:
            yield one, other


def test_two_gateways_on_one_database_are_one(tmp_path: Path) -> None:
    with two_gateways(tmp_path) as (one, other):
        run = one.start("look A-17 refund")
        followed: list[Object] = []
        path = f"/v1/runs/{run['id']}/events?stream=true"
        follower = threading.Thread(target=lambda: followed.extend(stream_of(one, path)))
        follower.start()
        good(other.approve(other.until(run["id"], "waiting")))
        ended = one.until(run["id"], "finished")
        assert "A-17 was paid back" in ended["output"]
        assert other.get(run["id"]) == ended
        assert sum(refunds(tmp_path / name, run["id"]) for name in ("one", "other")) == 1
        follower.join(PATIENCE)
        assert [one_["data"] for one_ in followed] == other.events(run["id"])
        # Cancelled through the one, whichever of them works on it.
        held = one.start("gate")
        wait_for(
            lambda: {"kinds": one.kinds(held["id"])}, lambda now: "call.intended" in now["kinds"]
        )
        assert good(other.act(held["id"], "cancel"))["status"] == "cancelled"
        for name in ("one", "other"):
            release(tmp_path / name)
        assert one.get(held["id"])["status"] == "cancelled"
        # One key is one run, on whichever of them.
        body = {"agent": "plain", "input": "hello"}
        ids = {
            good(each.post("/v1/runs", body, Idempotency_Key="k"))["id"] for each in (one, other)
        }
        assert len(ids) == 1


def release(folder: Path) -> None:
    """Opens the gate if somebody waits at it."""
    gate = gate_in(folder)
    if gate is not None:
        os.close(gate)


def test_several_workers_share_the_runs(tmp_path: Path) -> None:
    store = empty("sqlite", tmp_path)
    with agents_in(tmp_path, store, "--workers", "2") as running:
        api = Api(running.url)
        with api.http:
            ids = [api.start("look A-17 refund")["id"] for _ in range(6)]
            for id in ids:
                good(api.approve(api.until(id, "waiting")))
            for id in ids:
                assert "A-17 was paid back" in api.until(id, "finished")["output"]
                assert refunds(tmp_path, id) == 1


# MCP servers


MCP = """
[agents.remote]
model = "demo/agent"
tools = ["mcp:test", "run_tools:look"]
approval = {{ test__look = "always" }}
[agents.away]
model = "demo/agent"
tools = ["mcp:gone"]
[mcp.test]
command = {command}
allow = ["add", "look"]
[mcp.gone]
command = ["/no/such/program"]
connect_timeout = 0.1
"""


ADDRESSES = """
[agents.refused]
model = "demo/agent"
tools = ["mcp:public"]
[agents.allowed]
model = "demo/agent"
tools = ["mcp:own"]
[mcp.public]
url = "http://127.1:1/mcp"
connect_timeout = 1
[mcp.own]
url = "http://127.1:1/mcp"
allow_private = true
connect_timeout = 1
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ("refused", "127.1 resolves to 127.0.0.1, which is not a public address"),
        ("allowed", "cannot connect: All connection attempts failed"),
    ],
)
def test_the_address_of_an_mcp_server_is_checked(agent: str, reason: str, tmp_path: Path) -> None:
    """The system reads 127.1 as an address, so it is a name that needs no DNS."""
    settings = SETTINGS + ADDRESSES
    with agents_in(tmp_path, empty("sqlite", tmp_path), settings=settings) as running:
        api = Api(running.url)
        with api.http:
            wait_for(
                lambda: api.post("/v1/runs", {"agent": agent, "input": "hi"}).json(),
                lambda now: reason in now["error"]["message"],
            )


@pytest.mark.long
def test_an_agent_uses_the_tools_of_an_mcp_server(tmp_path: Path) -> None:
    server = Path(__file__).with_name("agent_mcp_server.py")
    command = json.dumps([sys.executable, str(server), "stdio"])
    settings = SETTINGS + MCP.replace("{command}", command.replace("{", "{{"))
    with agents_in(tmp_path, empty("sqlite", tmp_path), settings=settings) as running:
        api = Api(running.url)
        with api.http:
            listed = wait_for(
                lambda: good(api.http.get("/v1/agents")),
                lambda now: "remote" in [one["id"] for one in now["data"]],
            )
            [remote] = [one for one in listed["data"] if one["id"] == "remote"]
            tools = [(one["name"], one["server"], one["approval"]) for one in remote["tools"]]
            assert tools == [
                ("look", None, "never"),
                ("test__add", "test", "never"),
                ("test__look", "test", "always"),
            ]
            run = api.until(api.start("test__add 3 to 4 and test__look", "remote")["id"], "waiting")
            [asked] = run["waiting"]["approvals"]
            assert asked["tool"] == "test__look"
            good(api.approve(run))
            ended = api.until(run["id"], "finished")
            assert f"{run['id']}/{asked['call_id']}" in ended["output"], (
                "the key reached the server"
            )
            status, message = refused(api.post("/v1/runs", {"agent": "away", "input": "hi"}))
            assert status == 503
            assert message.startswith("agent away is not available at the moment: MCP server gone:")
            # As a model, it is told in the dialect of the client.
            for path, body in (
                ("/v1/responses", {"input": "hi"}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
                (
                    "/v1/messages",
                    {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
                ),
            ):
                response = api.post(path, {"model": "away", **body})
                assert response.status_code in (503, 529), response.text
                assert "not available at the moment: MCP server gone" in response.text


def test_a_run_waits_for_a_gateway_that_has_its_agent(tmp_path: Path) -> None:
    store = empty("sqlite", tmp_path)
    with agents_in(tmp_path, store) as running:
        api = Api(running.url)
        with api.http:
            run = api.until(api.start("refund A-17")["id"], "waiting")
    without = SETTINGS.replace("[agents.helper]", "[agents.another]")
    with agents_in(tmp_path, store, settings=without) as running:
        api = Api(running.url)
        with api.http:
            good(api.approve(run))
            api.until(api.start("hello", "plain")["id"], "finished")
            assert api.kinds(run["id"])[-1] == "approval.decided", "nobody has worked on it"
            assert api.get(run["id"])["unavailable"] == "this server has no agent 'helper'"
    with agents_in(tmp_path, store) as running:
        api = Api(running.url)
        with api.http:
            ended = api.until(run["id"], "finished")
            assert ("A-17 was paid back" in ended["output"], ended["unavailable"]) == (True, None)


# Without settings


def shell(command: str, **environ: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines use curl")
@pytest.mark.parametrize("page", ["README.md", "docs/agents.md"])
def test_the_lines_of_the_readme_start_a_run_and_approve_its_call(
    page: str, tmp_path: Path
) -> None:
    root = Path(__file__).parents[1]
    start, approve = [one.body for one in blocks(root / page, "sh") if "/v1/runs" in one.body]
    with gateway("", tmp_path) as running:
        start, approve = (
            one.replace("http://127.0.0.1:8787", running.url) for one in (start, approve)
        )
        streamed: list[str] = []
        first = threading.Thread(target=lambda: streamed.append(shell(start)))
        first.start()
        with httpx.Client(base_url=running.url, timeout=PATIENCE, trust_env=False) as http:
            listed = wait_for(
                lambda: good(http.get("/v1/runs", params={"status": "waiting"})),
                lambda now: bool(now["data"]),
            )
            id = listed["data"][0]["id"]
            [asked] = good(http.get(f"/v1/runs/{id}"))["waiting"]["approvals"]
        assert asked["tool"] == "refund"
        assert id in shell(approve, RUN=id, APPROVAL=asked["approval_id"])
        first.join(PATIENCE)
    kinds = re.findall(r"^event: (.+)$", streamed[0], re.MULTILINE)
    assert [kinds[0], kinds[8], kinds[-1]] == ["run.created", "run.waiting", "run.finished"]
    assert {id, asked["approval_id"]} <= {*re.findall(r"\w+_\w{32}", streamed[0])}
    assert "24.00 EUR refunded for order A-17" in streamed[0]


def test_without_a_store_there_are_no_runs(tmp_path: Path) -> None:
    with gateway("[store]\nenabled = false\n", tmp_path) as running:
        for path in ("/v1/runs", "/v1/agents"):
            assert httpx.get(running.url + path, trust_env=False).status_code == 404
