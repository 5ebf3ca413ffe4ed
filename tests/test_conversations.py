"""Conversations over real HTTP: what is kept of them, how turns go on in them, whose they are."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from msgspec import UNSET, Raw, UnsetType
from openai import OpenAI
from openai.types.responses import Response

from tests.faults.upstream import (
    FIN,
    STREAM,
    Hold,
    Step,
    Upstream,
    answer,
    chunk,
    stream,
    upstream,
)
from tests.faults.wires import CHAT, DIALECTS, RESPONSES, SPEECHES, Object, event
from tests.faults.world import places, until
from tests.gateway_process import Gateway, gateway
from tests.serving import NO_AUTHORITIES
from tests.stores import empty
from weft.dialects.openai_responses.encoding.snapshot import ResponseConversation, new_response
from weft.parts import Json
from weft.relay.history import UNANSWERED
from weft.request import Request

PATIENCE = 30.0
KEYS = {"alice": "key-of-alice-0123456789", "bob": "key-of-bob-0123456789"}
DEMO = """
[upstreams.demo]
dialect = "openai-responses"
base_url = "demo:fast"
"""
SAID = "Warp and weft."
"""What the scripted upstreams say."""


def settings(url: str, store: str) -> str:
    keys = "\n".join(f'{name} = "{key}"' for name, key in KEYS.items())
    return f'[server.keys]\n{keys}\n[store]\nurl = "{store}"\n{places(url)}\n{DEMO}'


@pytest.fixture(scope="module")
def far() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def served(far: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("conversations")
    with gateway(settings(far.url, empty("sqlite", folder)), folder) as running:
        yield running
    assert '"level":"error"' not in running.stderr


def client_of(running: Gateway, name: str = "alice") -> OpenAI:
    return OpenAI(
        api_key=KEYS[name],
        base_url=f"{running.url}/v1",
        max_retries=0,
        timeout=PATIENCE,
        http_client=openai.DefaultHttpxClient(verify=NO_AUTHORITIES),
    )


@pytest.fixture(scope="module")
def client(served: Gateway) -> Iterator[OpenAI]:
    with client_of(served) as made:
        yield made


@contextmanager
def raw_client(running: Gateway, name: str = "alice") -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {KEYS[name]}"}
    with httpx.Client(
        base_url=running.url, headers=headers, timeout=PATIENCE, trust_env=False
    ) as made:
        yield made


@pytest.fixture(scope="module")
def http(served: Gateway) -> Iterator[httpx.Client]:
    with raw_client(served) as made:
        yield made


def listed(client: OpenAI, id: str) -> list[Object]:
    """All items, in the order they were said."""
    return [one.to_dict() for one in client.conversations.items.list(id, order="asc", limit=100)]


def said(client: OpenAI, id: str) -> list[object]:
    """The text of each message; of anything else its type."""
    return [_said(one) for one in listed(client, id)]


def _said(item: Object) -> object:
    content = item.get("content")
    return content[0]["text"] if isinstance(content, list) else item["type"]


def asked(far: Upstream, model: str, number: int) -> str:
    """What the upstream was asked by its request of this number, from 1."""
    return far.exchanges(model, number)[number - 1].body.decode()


def heard(far: Upstream, model: str, number: int) -> list[tuple[str, str]]:
    """The same of an upstream that speaks Chat Completions: who said what, line by line, as the
    texts of a turn are told in one."""
    found: list[tuple[str, str]] = []
    for one in json.loads(asked(far, model, number))["messages"]:
        texts = (one["content"] or "").split("\n")
        calls = [call["function"]["arguments"] for call in one.get("tool_calls", ())]
        found += [(one["role"], text) for text in (*texts, *calls) if text]
    return found


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def message(text: str) -> Object:
    """A message of a user as it is listed, but for its id."""
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "status": "completed", "role": "user", "content": content}


def without_id(item: Object) -> Object:
    return {name: value for name, value in item.items() if name != "id"}


# Turns, in each of the three ways to ask


def whole(client: OpenAI, model: str, given: Any, id: str) -> Response:
    return client.responses.create(model=model, input=given, conversation=id)


def streamed(client: OpenAI, model: str, given: Any, id: str) -> Response:
    events = client.responses.create(model=model, input=given, conversation={"id": id}, stream=True)
    *_, last = events
    assert last.type == "response.completed"
    response: Response = last.response
    return response


def in_background(client: OpenAI, model: str, given: Any, id: str) -> Response:
    begun = client.responses.create(model=model, input=given, conversation=id, background=True)
    assert (begun.status, begun.to_dict()["conversation"]) == ("queued", {"id": id})
    return ended(client, begun.id)


def ended(client: OpenAI, id: str) -> Response:
    """A response in the background, when it is over."""
    try:
        for _ in client.responses.retrieve(id, stream=True):
            pass
    except openai.APIError:
        pass  # it failed, and says so
    return client.responses.retrieve(id)


WAYS = {"whole": whole, "streamed": streamed, "in the background": in_background}
ways = pytest.mark.parametrize("way", WAYS)


def scripts(dialect: str, way: str) -> list[Step]:
    """What an upstream plays that is asked in this way."""
    speech = SPEECHES[dialect]
    return [answer(speech.body)] if way == "whole" else [*stream(*speech.frames)]


# A whole life, on each of the databases


def test_a_conversation_is_made_gone_on_with_and_deleted(
    client: OpenAI, http: httpx.Client, far: Upstream
) -> None:
    _whole_life(client, http, far)


def test_the_same_with_the_other_database(far: Upstream, tmp_path: Path) -> None:
    with (
        gateway(settings(far.url, empty("postgres", tmp_path)), tmp_path) as running,
        client_of(running) as client,
        raw_client(running) as http,
    ):
        _whole_life(client, http, far)
    assert '"level":"error"' not in running.stderr


def _whole_life(client: OpenAI, http: httpx.Client, far: Upstream) -> None:
    made = client.conversations.create(metadata={"topic": "cloth"}, items=[user("one")])
    id = made.id
    assert made.to_dict() == {
        "id": id, "object": "conversation", "created_at": made.created_at,
        "metadata": {"topic": "cloth"},
    }  # fmt: skip
    assert client.conversations.retrieve(id) == made
    changed = client.conversations.update(id, metadata={"topic": "yarn", "n\0": "\0é"})
    assert client.conversations.retrieve(id) == changed
    assert changed.to_dict() == {**made.to_dict(), "metadata": {"topic": "yarn", "n\0": "\0é"}}

    added = client.conversations.items.create(id, items=[user("two"), user("three")])
    (first, *both) = listed(client, id)
    assert both == [one.to_dict() for one in added.data]
    assert (added.first_id, added.last_id) == (both[0]["id"], both[1]["id"])
    assert [without_id(one) for one in (first, *both)] == [
        message("one"), message("two"), message("three"),
    ]  # fmt: skip

    items = client.conversations.items
    assert items.delete(str(both[0]["id"]), conversation_id=id) == changed
    assert items.retrieve(str(both[1]["id"]), conversation_id=id).to_dict() == both[1]
    assert said(client, id) == ["one", "three"]

    turns, told = [], [("user", "one"), ("user", "three")]
    for name, way in WAYS.items():
        model = far.script(scripts(CHAT, name))
        turns.append(way(client, f"{CHAT}/{model}", name, id))
        told.append(("user", name))
        assert heard(far, model, 1) == told
        told.append(("assistant", SAID))
        shown = listed(client, id)
        assert [_said(one) for one in shown] == [text for _, text in told]
        assert [one.to_dict() for one in turns[-1].output] == shown[-1:]

    for nothing in ("conv_%00", "%00", "%ff", "x" * 600):
        assert http.get(f"/v1/conversations/{nothing}").status_code == 404
        assert http.get(f"/v1/conversations/{id}/items/{nothing}").status_code == 404
    gone = client.conversations.delete(id)
    assert gone.to_dict() == {"id": id, "object": "conversation.deleted", "deleted": True}
    for turn in turns:
        assert client.responses.retrieve(turn.id) == turn
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(id)
    with pytest.raises(openai.NotFoundError):
        whole(client, f"{CHAT}/any", "7", id)


# Pages


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 5, 6, 100])
def test_pages_hold_every_item_once(client: OpenAI, limit: int, order: Any) -> None:
    id = client.conversations.create(items=[user(f"{n}") for n in range(6)]).id
    found = client.conversations.items.list(id, limit=limit, order=order)
    texts = [_said(one.to_dict()) for one in found]
    assert texts == [f"{n}" for n in (range(6) if order == "asc" else range(5, -1, -1))]


def test_a_page_says_where_it_ends_and_whether_more_follows(http: httpx.Client) -> None:
    items = [user(f"{n}") for n in range(25)]
    id = http.post("/v1/conversations", json={"items": items[:20]}).json()["id"]
    path = f"/v1/conversations/{id}/items"
    assert http.post(path, json={"items": items[20:]}).json()["has_more"] is False
    page = http.get(path).json()
    texts = [_said(one) for one in page["data"]]
    assert texts == [f"{n}" for n in range(24, 4, -1)]
    assert {**page, "data": []} == {
        "object": "list", "data": [], "first_id": page["data"][0]["id"],
        "last_id": page["data"][-1]["id"], "has_more": True,
    }  # fmt: skip
    rest = http.get(path, params={"after": page["last_id"], "include": "x"}).json()
    assert ([_said(one) for one in rest["data"]], rest["has_more"]) == (list("43210"), False)
    last = {"after": rest["last_id"]}
    nothing: Object = {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }
    assert http.get(path, params=last).json() == nothing


# What is told of items

ODD: dict[str, tuple[Object, Object]] = {
    "a text of a user": (user("x"), message("x")),
    "a text of the assistant": (
        {"role": "assistant", "content": "x"},
        {
            "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "x", "annotations": []}],
        },
    ),
    "a call": (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {
            "type": "function_call", "status": "completed", "call_id": "c", "name": "f",
            "arguments": "{}",
        },
    ),
    "a result": (
        {"type": "function_call_output", "call_id": "c", "output": "ok", "status": "incomplete"},
        {"type": "function_call_output", "status": "incomplete", "call_id": "c", "output": "ok"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_an_item_is_kept_as_it_came_and_shown_with_all_that_its_readers_want(
    http: httpx.Client, name: str
) -> None:
    came, told = ODD[name]
    id = http.post("/v1/conversations", json={}).json()["id"]
    path = f"/v1/conversations/{id}/items"
    (shown,) = http.post(path, json={"items": [came]}).json()["data"]
    assert without_id(shown) == told
    assert http.get(f"{path}/{shown['id']}").json() == shown


def test_an_item_may_bring_its_id_and_no_other_may_have_it(http: httpx.Client) -> None:
    mine = {**user("x"), "id": "msg_mine"}
    id = http.post("/v1/conversations", json={"items": [mine]}).json()["id"]
    path = f"/v1/conversations/{id}/items"
    kept = {**message("x"), "id": "msg_mine"}
    assert http.get(f"{path}/msg_mine").json() == kept
    again = http.post(path, json={"items": [user("y"), {**mine, "content": "z"}]})
    assert (again.status_code, again.json()["error"]["param"]) == (400, "items")
    assert http.get(path).json()["data"] == [kept]
    other = http.post("/v1/conversations", json={"items": [mine]})
    assert other.status_code == 200


def test_whatever_id_the_input_of_a_turn_brings_what_is_listed_can_be_retrieved(
    client: OpenAI, http: httpx.Client, far: Upstream
) -> None:
    model = f"{CHAT}/{far.script(scripts(CHAT, 'whole'))}"
    id = client.conversations.create().id
    for _ in range(2):
        whole(client, model, [{**user("x"), "id": "msg_1", "type": "message"}], id)
    found = listed(client, id)
    assert [_said(one) for one in found] == ["x", SAID] * 2
    for one in found:
        assert http.get(f"/v1/conversations/{id}/items/{one['id']}").json() == one


# What is refused

ITEM = user("x")
REFUSED: dict[str, tuple[str, str, object, str | None]] = {
    "no JSON": ("POST", "", b"{", None),
    "no body": ("POST", "", b"", None),
    "a list": ("POST", "", [], None),
    "21 items": ("POST", "", {"items": [ITEM] * 21}, "items"),
    "21 more items": ("POST", "/{id}/items", {"items": [ITEM] * 21}, "items"),
    "items that are none": ("POST", "", {"items": "x"}, "items"),
    "an item that is none": ("POST", "", {"items": [ITEM, 1]}, "items[1]"),
    "a message of nobody": ("POST", "", {"items": [{"type": "message"}]}, "items[0]"),
    "a part that is none": (
        "POST", "", {"items": [{**ITEM, "content": [1]}]}, "items[0].content[0]"),
    "an odd id": ("POST", "", {"items": [{**ITEM, "id": "a/b"}]}, "items[0].id"),
    "a long id": ("POST", "", {"items": [{**ITEM, "id": "x" * 257}]}, "items[0].id"),
    "one id twice": ("POST", "", {"items": [{**ITEM, "id": "m"}] * 2}, "items"),
    "a reference": ("POST", "", {"items": [{"type": "item_reference", "id": "m"}]}, "items[0]"),
    "no items": ("POST", "/{id}/items", {}, None),
    "17 pairs": ("POST", "", {"metadata": {f"{n}": "" for n in range(17)}}, "metadata"),
    "17 new pairs": ("POST", "/{id}", {"metadata": {f"{n}": "" for n in range(17)}}, "metadata"),
    "a long name": ("POST", "", {"metadata": {"x" * 65: ""}}, "metadata"),
    "a long value": ("POST", "", {"metadata": {"x": "y" * 513}}, "metadata.x"),
    "a number": ("POST", "/{id}", {"metadata": {"x": 1}}, "metadata[...]"),
    "no metadata": ("POST", "/{id}", {}, None),
    "no items at once": ("GET", "/{id}/items?limit=0", None, "limit"),
    "101 at once": ("GET", "/{id}/items?limit=101", None, "limit"),
    "no limit": ("GET", "/{id}/items?limit=many", None, "limit"),
    "another order": ("GET", "/{id}/items?order=up", None, "order"),
    "after nothing": ("GET", "/{id}/items?after=msg_none", None, "after"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_by_name_and_changes_nothing(
    http: httpx.Client, name: str
) -> None:
    method, path, body, param = REFUSED[name]
    made = http.post("/v1/conversations", json={"items": [user("kept")]}).json()
    path = "/v1/conversations" + path.format(id=made["id"])
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    found = http.request(
        method, path, content=content, headers={"content-type": "application/json"}
    )
    error = found.json()["error"]
    assert (found.status_code, error["type"], error["param"], error["code"]) == (
        400, "invalid_request", param, None,
    )  # fmt: skip
    assert error["message"]
    assert http.get(f"/v1/conversations/{made['id']}").json() == made
    page = http.get(f"/v1/conversations/{made['id']}/items").json()
    assert [_said(one) for one in page["data"]] == ["kept"]


def test_the_limits_themselves_are_taken(http: httpx.Client) -> None:
    pairs = {f"{n:064}": "é" * 512 for n in range(16)}
    made = http.post("/v1/conversations", json={"items": [ITEM] * 20, "metadata": pairs}).json()
    assert made["metadata"] == pairs
    nothing = http.post(f"/v1/conversations/{made['id']}", json={"metadata": None}).json()
    assert nothing == {**made, "metadata": {}}


NAMED: dict[str, tuple[Object, int, str]] = {
    "no id": ({"conversation": 5}, 400, "conversation"),
    "an object without one": ({"conversation": {"name": "x"}}, 400, "conversation"),
    "a response, too": (
        {"conversation": "conv_1", "previous_response_id": "resp_1"}, 400, "previous_response_id",
    ),
    "one that is not there": ({"conversation": "conv_1"}, 404, "conversation"),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_a_request_that_names_no_conversation_of_ours_is_refused(
    http: httpx.Client, name: str
) -> None:
    more, status, param = NAMED[name]
    found = http.post("/v1/responses", json={"model": "demo/chat", "input": "x", **more})
    assert (found.status_code, found.json()["error"]["param"]) == (status, param)


def test_only_a_response_in_a_conversation_names_one(client: OpenAI, http: httpx.Client) -> None:
    plain = http.post("/v1/responses", json={"model": "demo/chat", "input": "x"}).json()
    assert "conversation" not in plain
    id = client.conversations.create().id
    body = {"model": "demo/chat", "input": "x", "conversation": id, "stream": True}
    lines = http.post("/v1/responses", json=body).text.split("\n")
    told = [json.loads(one[6:]) for one in lines if one.startswith("data: {")]
    snapshots = [one["response"]["conversation"] for one in told if "response" in one]
    assert snapshots == [{"id": id}] * 3


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (UNSET, UNSET),
        (Raw(b"{}"), UNSET),
        (Raw(b'{"conversation":null}'), UNSET),
        (Raw(b'{"conversation":5}'), UNSET),
        (Raw(b'{"conversation":"c","more":1}'), ResponseConversation("c")),
        (Raw(b'{"conversation":{"id":"c","more":1}}'), ResponseConversation("c")),
    ],
)
def test_a_response_names_the_conversation_that_its_request_named(
    extra: Json, told: ResponseConversation | UnsetType
) -> None:
    assert new_response("resp_1", 1, "m", Request("m", extra=extra)).conversation == told


# Whose they are

PATHS: tuple[tuple[str, str, Object | None], ...] = (
    ("GET", "/v1/conversations/{id}", None),
    ("POST", "/v1/conversations/{id}", {"metadata": {}}),
    ("DELETE", "/v1/conversations/{id}", None),
    ("GET", "/v1/conversations/{id}/items", None),
    ("POST", "/v1/conversations/{id}/items", {"items": [user("x")]}),
    ("GET", "/v1/conversations/{id}/items/{item}", None),
    ("DELETE", "/v1/conversations/{id}/items/{item}", None),
    ("POST", "/v1/responses", {"model": "demo/chat", "input": "x", "conversation": "{id}"}),
)


def test_what_belongs_to_another_key_is_not_there_to_the_byte(served: Gateway) -> None:
    with raw_client(served) as alice, raw_client(served, "bob") as bob:
        made = alice.post("/v1/conversations", json={"items": [user("mine")]}).json()
        (item,) = alice.get(f"/v1/conversations/{made['id']}/items").json()["data"]

        def answers(client: httpx.Client) -> list[tuple[int, bytes]]:
            found = []
            for method, path, body in PATHS:
                target = path.format(id=made["id"], item=item["id"])
                text = None if body is None else json.dumps(body).replace("{id}", made["id"])
                told = client.request(method, target, content=text)
                found.append((told.status_code, told.content))
            return found

        foreign = answers(bob)
        assert [status for status, _ in foreign] == [404] * len(PATHS)
        assert alice.get(f"/v1/conversations/{made['id']}").json() == made
        assert alice.get(f"/v1/conversations/{made['id']}/items").json()["data"] == [item]
        alice.delete(f"/v1/conversations/{made['id']}")
        assert answers(alice) == answers(bob) == foreign


def test_an_item_of_one_conversation_is_not_in_another(http: httpx.Client) -> None:
    one = http.post("/v1/conversations", json={"items": [{**user("x"), "id": "msg_here"}]}).json()
    other = http.post("/v1/conversations", json={}).json()
    path = f"/v1/conversations/{other['id']}/items/msg_here"
    for method in ("GET", "DELETE"):
        found = http.request(method, path)
        assert found.status_code == 404
        assert found.json()["error"]["message"] == "Item with id 'msg_here' not found."
    assert http.get(f"/v1/conversations/{one['id']}/items/msg_here").status_code == 200


# Going on


@ways
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_turn_goes_on_from_what_was_said_and_is_added_to_it(
    client: OpenAI, far: Upstream, dialect: str, way: str
) -> None:
    model = far.script(scripts(dialect, way))
    id = client.conversations.create(items=[user("first thing")]).id
    for text in ("second thing", "third thing"):
        response = WAYS[way](client, f"{dialect}/{model}", text, id)
        assert response.conversation is not None
        assert response.conversation.id == id
    assert said(client, id) == ["first thing", "second thing", SAID, "third thing", SAID]
    body = asked(far, model, 2)
    places = [body.index(text) for text in ("first thing", "second thing", SAID, "third thing")]
    assert places == sorted(places)
    assert '"conversation"' not in body


CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}


def delta(**fields: object) -> bytes:
    """A chunk of a call in Chat Completions."""
    choice = {"index": 0, "delta": {"tool_calls": [{**CALL, **fields}]}, "finish_reason": None}
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                  "choices": [choice]})  # fmt: skip


def arguments(text: str) -> bytes:
    return delta(function={"name": "f", "arguments": text})


CALLED = event(
    {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
     "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
)  # fmt: skip
CALLING = stream(arguments('{"a":1}'), CALLED, b"data: [DONE]\n\n")
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "it is 1"}


@pytest.mark.parametrize(
    ("given", "told"),
    [([RESULT], [("tool", "it is 1")]), ("no!", [("tool", UNANSWERED), ("user", "no!")])],
    ids=["answered", "left unanswered"],
)
def test_a_call_of_a_conversation_is_always_answered(
    client: OpenAI, far: Upstream, given: Any, told: list[tuple[str, str]]
) -> None:
    model = far.script([*CALLING], scripts(CHAT, "whole"))
    id = client.conversations.create().id
    streamed(client, f"{CHAT}/{model}", "call it", id)
    whole(client, f"{CHAT}/{model}", given, id)
    called = [("user", "call it"), ("assistant", '{"a":1}')]
    assert heard(far, model, 2) == called + told


def test_a_result_of_a_call_that_nobody_made_is_refused(client: OpenAI) -> None:
    id = client.conversations.create(items=[user("x")]).id
    with pytest.raises(openai.BadRequestError) as caught:
        whole(client, "demo/chat", [RESULT], id)
    assert caught.value.param == "input[0].call_id"
    assert said(client, id) == ["x"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_goes_on_whichever_of_its_items_are_deleted(
    client: OpenAI, far: Upstream, dialect: str
) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    items = [user("x"), call, RESULT, {"role": "assistant", "content": "y"}]
    for place in range(len(items)):
        id = client.conversations.create(items=items).id
        gone = listed(client, id)[place]
        client.conversations.items.delete(str(gone["id"]), conversation_id=id)
        model = far.script(scripts(dialect, "whole"))
        assert whole(client, f"{dialect}/{model}", "z", id).status == "completed"


# Turns that go wrong

HALF = [STREAM, *map(chunk, SPEECHES[CHAT].head + SPEECHES[CHAT].content[:1])]
WRONG: dict[str, tuple[list[Step], list[object], list[tuple[str, str]]]] = {
    "an error before content": ([answer(b"{}", "500 No")], [], []),
    "an error in the stream": (
        [*HALF, chunk(SPEECHES[CHAT].error), FIN],
        ["hi", "Warp "],
        [("user", "hi"), ("assistant", "Warp ")],
    ),
    "a cut text": ([*HALF, FIN], ["hi", "Warp "], [("user", "hi"), ("assistant", "Warp ")]),
    "cut arguments": (
        [STREAM, chunk(arguments('{"a": ')), FIN],
        ["hi", "function_call"],
        [("user", "hi")],
    ),
}
"""What the upstream plays, what the conversation holds then, and what the next turn hears of it."""


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("way", ["streamed", "in the background"])
def test_a_turn_that_went_wrong_does_not_stop_the_next(
    client: OpenAI, far: Upstream, name: str, way: str
) -> None:
    steps, holds, hears = WRONG[name]
    model = far.script(steps, scripts(CHAT, "whole"))
    id = client.conversations.create().id
    if way == "streamed":
        with pytest.raises(openai.APIError):
            streamed(client, f"{CHAT}/{model}", "hi", id)
    else:
        assert in_background(client, f"{CHAT}/{model}", "hi", id).status == "failed"
    assert said(client, id) == holds
    assert whole(client, f"{CHAT}/{model}", "go on", id).status == "completed"
    assert said(client, id) == [*holds, "go on", SAID]
    assert heard(far, model, 2) == [*hears, ("user", "go on")]


@ways
def test_an_input_that_cannot_be_read_is_not_said(
    http: httpx.Client, client: OpenAI, way: str
) -> None:
    id = client.conversations.create().id
    body = {"model": "demo/chat", "input": [{"type": "message"}], "conversation": id}
    more = {"stream": way == "streamed", "background": way == "in the background"}
    found = http.post("/v1/responses", json={**body, **more})
    assert (found.status_code, found.json()["error"]["param"]) == (400, "input[0]")
    assert said(client, id) == []


def test_a_turn_that_is_not_to_be_stored_is_in_the_conversation_all_the_same(
    client: OpenAI, far: Upstream
) -> None:
    """Only the response is not there."""
    model = far.script(scripts(CHAT, "whole"))
    id = client.conversations.create().id
    turn = client.responses.create(
        model=f"{CHAT}/{model}", input="hi", conversation=id, store=False
    )
    assert said(client, id) == ["hi", SAID]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(turn.id)


def test_a_client_that_leaves_has_said_what_it_said(client: OpenAI, far: Upstream) -> None:
    hold = Hold()
    model = far.script([*HALF, hold], scripts(CHAT, "whole"))
    id = client.conversations.create().id
    with client.responses.create(
        model=f"{CHAT}/{model}", input="hi", conversation=id, stream=True
    ) as events:
        next(one for one in events if one.type == "response.output_text.delta")
    until(lambda: len(listed(client, id)) == 2, "the turn in the conversation")
    assert said(client, id) == ["hi", "Warp "]
    whole(client, f"{CHAT}/{model}", "go on", id)
    assert said(client, id) == ["hi", "Warp ", "go on", SAID]


def test_a_cancelled_turn_is_one_all_the_same(client: OpenAI, far: Upstream) -> None:
    hold = Hold()
    model = far.script([*HALF, hold])
    id = client.conversations.create().id
    begun = client.responses.create(
        model=f"{CHAT}/{model}", input="hi", conversation=id, background=True
    )
    hold.here()
    assert client.responses.cancel(begun.id).status == "cancelled"
    assert said(client, id)[0] == "hi"
    model = far.script(scripts(CHAT, "whole"))
    assert whole(client, f"{CHAT}/{model}", "go on", id).status == "completed"


@pytest.mark.long
def test_a_turn_whose_server_was_killed_is_one_all_the_same(far: Upstream, tmp_path: Path) -> None:
    hold = Hold()
    model = far.script([*HALF, hold], scripts(CHAT, "whole"))
    url = empty("sqlite", tmp_path)
    settled = settings(far.url, url)
    with gateway(settled, tmp_path) as running, client_of(running) as client:
        id = client.conversations.create().id
        events = client.responses.create(
            model=f"{CHAT}/{model}", input="hi", conversation=id, stream=True
        )
        begun = next(iter(events))
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            until(lambda: _count(database, "block") > 0, "its events in the database")
        running.process.kill()
        with pytest.raises(openai.APIConnectionError):
            for _ in events:
                pass
    with gateway(settled, tmp_path) as running, client_of(running) as client:
        assert begun.type == "response.created"
        begun_id = begun.response.id
        until(lambda: client.responses.retrieve(begun_id).status == "failed", "its end")
        assert said(client, id) == ["hi", "Warp "]
        assert whole(client, f"{CHAT}/{model}", "go on", id).status == "completed"
        assert said(client, id) == ["hi", "Warp ", "go on", SAID]


def _count(database: sqlite3.Connection, table: str) -> int:
    (found,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found)


# At once


def test_two_turns_at_once_are_both_there_one_after_the_other(
    client: OpenAI, far: Upstream
) -> None:
    speech = SPEECHES[CHAT]
    holds = [Hold(), Hold()]
    rest = (*map(chunk, (*speech.content[1:], *speech.end)), b"0\r\n\r\n")
    id = client.conversations.create(items=[user("before")]).id
    models = [far.script([*HALF, hold, *rest]) for hold in holds]
    with ThreadPoolExecutor(2) as pool:
        turns = [
            pool.submit(streamed, client, f"{CHAT}/{model}", text, id)
            for model, text in zip(models, "ab", strict=True)
        ]
        for hold in holds:
            hold.here()
        assert said(client, id) == ["before"]
        holds[1].release()
        assert turns[1].result().status == "completed"
        assert said(client, id) == ["before", "b", SAID]
        holds[0].release()
        assert turns[0].result().status == "completed"
    assert said(client, id) == ["before", "b", SAID, "a", SAID]
    for model, text in zip(models, "ab", strict=True):
        assert heard(far, model, 1) == [("user", "before"), ("user", text)]


def test_of_many_equal_turns_at_once_none_is_lost_and_none_doubled(
    client: OpenAI, far: Upstream
) -> None:
    """Their upstream gives all of them the same ids."""
    model = far.script(scripts(RESPONSES, "whole"))
    id = client.conversations.create().id
    with ThreadPoolExecutor(8) as pool:
        for turn in [
            pool.submit(whole, client, f"{RESPONSES}/{model}", "same", id) for _ in range(8)
        ]:
            assert turn.result().output_text == SAID
    assert said(client, id) == ["same", SAID] * 8
    found = listed(client, id)
    assert len({str(one["id"]) for one in found}) == len(found)


def test_items_that_are_added_at_once_are_all_there(client: OpenAI) -> None:
    id = client.conversations.create().id

    def add(text: str) -> list[Object]:
        added = client.conversations.items.create(id, items=[user(text), user(text)])
        return [one.to_dict() for one in added.data]

    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(add, map(str, range(16))))
    found = listed(client, id)
    assert sorted(map(json.dumps, found)) == sorted(json.dumps(one) for two in added for one in two)
    assert all(found[place : place + 2] in added for place in range(0, 32, 2))


def test_a_conversation_may_be_deleted_while_a_turn_is_under_way(
    client: OpenAI, far: Upstream
) -> None:
    hold, speech = Hold(), SPEECHES[CHAT]
    rest = (*map(chunk, (*speech.content[1:], *speech.end)), b"0\r\n\r\n")
    model = far.script([*HALF, hold, *rest])
    id = client.conversations.create().id
    with ThreadPoolExecutor(1) as pool:
        turn = pool.submit(streamed, client, f"{CHAT}/{model}", "hi", id)
        hold.here()
        assert client.conversations.delete(id).deleted
        hold.release()
        response = turn.result()
    assert client.responses.retrieve(response.id) == response
    assert response.output_text == SAID
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(id)


# Sessions of openai-agents


def test_a_session_of_openai_agents_is_a_conversation(served: Gateway) -> None:
    asyncio.run(_session(served))


async def _session(served: Gateway) -> None:
    # Imported by the one test that needs it: it takes a second, which is saved where it is not run.
    from agents import Agent, OpenAIConversationsSession, OpenAIResponsesModel, RunConfig, Runner

    quiet = RunConfig(tracing_disabled=True)
    async with openai.AsyncOpenAI(
        api_key=KEYS["alice"], base_url=f"{served.url}/v1", max_retries=0
    ) as client:
        session = OpenAIConversationsSession(openai_client=client)
        agent = Agent(name="Helper", model=OpenAIResponsesModel("demo/chat", client))
        first = await Runner.run(agent, "Hello", session=session, run_config=quiet)
        second = await Runner.run(agent, "And again", session=session, run_config=quiet)
        items = await session.get_items()
        texts = [_said(dict(one)) for one in items]
        assert texts == ["Hello", first.final_output, "And again", second.final_output]
        assert [_said(dict(one)) for one in await session.get_items(limit=1)] == texts[-1:]
        assert dict(await session.pop_item() or {}) == dict(items[-1])
        more: list[Any] = [user(f"{n}") for n in range(25)]
        await session.add_items(more)
        assert [_said(dict(one)) for one in await session.get_items()] == [
            *texts[:-1], *(one["content"] for one in more),
        ]  # fmt: skip
        id = session.session_id
        await session.clear_session()
        with pytest.raises(openai.NotFoundError):
            await client.conversations.retrieve(id)
