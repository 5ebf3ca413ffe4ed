"""Tool sessions over real HTTP: answers that wait for their client, and what goes on from them.

Two processes of the gateway share one database; behind them are vendors that take nothing amiss
(`clients/scripted.py`), and one that plays what a test wrote by hand.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import chat
from tests.clients import scripted
from tests.clients.vendor import CLOCK, KEY, ROME, WEATHER, tool_result
from tests.clients.with_openai import RESPONSES_TOOLS
from tests.clients.world import UPSTREAMS, settings
from tests.faults.upstream import LAST, STREAM, Hold, Step, Upstream, answer, chunk, upstream
from tests.gateway_process import Gateway, gateway
from tests.raw_http import Client, request
from tests.responses_events import COMPLETED, CREATED, capture
from tests.stores import Kind, empty
from weft.relay.audit import Difference, audit
from weft.store.base import Store
from weft.store.records import Entry
from weft.store.urls import store_from_url

Object = dict[str, Any]
PATIENCE = 30.0
SESSION = {"include": ["required_action"]}
FORMS: dict[str, Object] = {"pure": {}, "session": SESSION}
ALICE, BOB = "alice-0123456789abcdef", "bob-fedcba9876543210"
HEAD = """
[server]
keepalive = 0.05
{more}

[server.keys]
alice = "{alice}"
bob = "{bob}"

[store]
url = "{store}"

[upstreams.hand]
dialect = "openai-chat"
base_url = "{hand}"
retry = {{ attempts = 1 }}
breaker = {{ failures = 0 }}

[upstreams.own]
dialect = "openai-responses"
base_url = "{hand}"
retry = {{ attempts = 1 }}
breaker = {{ failures = 0 }}

"""


# The world


class Weft:
    """A gateway, as one of its clients sees it."""

    def __init__(self, served: Gateway, key: str) -> None:
        self.served = served
        headers = {"Authorization": f"Bearer {key}"}
        self.http = httpx.Client(
            base_url=served.url, headers=headers, timeout=PATIENCE, trust_env=False
        )

    def ask(self, model: str, **more: Any) -> Object:
        """A response that is not streamed."""
        asked = {"model": model, "input": "Hi", "tools": RESPONSES_TOOLS, **more}
        return self.told(self.http.post("/v1/responses", json=asked))

    def submit(self, id: str, outputs: list[Object], **more: Any) -> httpx.Response:
        path = f"/v1/responses/{id}/submit_tool_outputs"
        return self.http.post(path, json={"tool_outputs": outputs, **more})

    def get(self, id: str, path: str = "", **query: Any) -> Object:
        return self.told(self.http.get(f"/v1/responses/{id}{path}", params=query))

    def log(self, id: str) -> bytes:
        """Its events, to the end; a slow machine may send comments between them."""
        found = self.http.get(f"/v1/responses/{id}", params={"stream": "true"})
        return uncommented(found.content)

    def told(self, found: httpx.Response) -> Object:
        assert found.status_code == 200, found.text
        body: Object = found.json()
        return body


@dataclass
class World:
    one: Weft
    other: Weft
    bob: Weft
    vendors: scripted.Upstream
    hand: Upstream
    store: str
    """The address of the database."""

    start: Callable[..., Weft]
    """Starts one more process on it."""

    def in_store(self, work: Callable[[Store], Any]) -> Any:
        """Has something done in the database, beside all gateways."""

        async def act() -> Any:
            store = store_from_url(self.store)
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(act())

    def entry(self, id: str) -> Entry:
        found = self.in_store(lambda store: store.entry(id))
        assert isinstance(found, Entry)
        return found


@contextmanager
def world(store: str, folder: Path) -> Iterator[World]:
    environment = {**os.environ, "PLANTED_KEY": KEY}
    with ExitStack() as stack:
        vendors, hand = stack.enter_context(scripted.scripted()), stack.enter_context(upstream())
        numbers = count(1)

        def start(more: str = "") -> Weft:
            place = folder / f"server{next(numbers)}"
            place.mkdir()
            head = HEAD.format(store=store, hand=hand.url, more=more, alice=ALICE, bob=BOB)
            text = head + settings(vendors.url)
            return client(stack.enter_context(gateway(text, place, environment=environment)))

        def client(served: Gateway, key: str = ALICE) -> Weft:
            made = Weft(served, key)
            stack.callback(made.http.close)
            return made

        one, other = start(), start()
        made = World(one, other, client(one.served, BOB), vendors, hand, store, start)
        yield made
        differences: list[Difference] = []
        made.in_store(lambda store: audit(store, differences.append))
        assert differences == []


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("sessions")
    with world(empty("sqlite", folder), folder) as made:
        yield made


_tags = count(1)


def tagged() -> tuple[str, Object]:
    """A mark for the requests of one test, and an input that has it."""
    tag = f"s{next(_tags)}"
    return tag, {"input": f"[case {tag}] What is it like?", "instructions": "Be brief."}


def calls_of(response: Object) -> list[Object]:
    return [one for one in response["output"] if one["type"] == "function_call"]


def outputs_of(response: Object, name: str = "tool_call_id") -> list[Object]:
    """What the tools give for the calls of a response."""
    return [
        {name: one["call_id"], "output": tool_result(one["name"], json.loads(one["arguments"]))}
        for one in calls_of(response)
    ]


def items_of(response: Object) -> list[Object]:
    """The same as items."""
    return [
        {"type": "function_call_output", "call_id": one["call_id"], "output": one["output"]}
        for one in outputs_of(response, "call_id")
    ]


def text_of(response: Object) -> str:
    parts = [
        part for one in response["output"] if one["type"] == "message" for part in one["content"]
    ]
    return "".join(part["text"] for part in parts)


def events_of(raw: bytes) -> list[Object]:
    """The events of a stream, which ends as it should."""
    *found, last = [one for one in raw.split(b"\n\n") if one and not one.startswith(b":")]
    assert last == b"data: [DONE]"
    return [json.loads(one.partition(b"data: ")[2]) for one in found]


def uncommented(raw: bytes) -> bytes:
    return b"".join(one + b"\n\n" for one in raw.split(b"\n\n") if one and one[:1] != b":")


def last_of(found: httpx.Response, stream: bool) -> Object:
    """The response object that an answer tells, however it is told."""
    assert found.status_code == 200, found.text
    body: Object = events_of(found.content)[-1]["response"] if stream else found.json()
    return body


# Answers by hand

COMMANDS = {"call_1": '{"command": ["echo","hi"]}', "call_2": '{"command": ["ls"]}'}


def calling(*ids: str, pause: Sequence[Step] = ()) -> list[Step]:
    """An upstream that calls a shell, and may pause inside the first call."""
    frames: list[Step] = []
    for index, id in enumerate(ids):
        arguments = COMMANDS[id]
        first = chat.calls(chat.entry(index, id, "shell", arguments[:10]))
        rest = chat.calls(chat.entry(index, arguments=arguments[10:]))
        frames += [chunk(first), *(pause if not index else ()), chunk(rest)]
    end = chat.chunk({}, "tool_calls") + b"data: [DONE]\n\n"
    return [STREAM, *frames, chunk(end), LAST]


def saying(text: str, pause: Sequence[Step] = ()) -> list[Step]:
    half = len(text) // 2
    first, second = chat.chunk({"content": text[:half]}), chat.chunk({"content": text[half:]})
    end = chat.chunk({}, "stop") + b"data: [DONE]\n\n"
    return [STREAM, chunk(first), *pause, chunk(second), chunk(end), LAST]


SHELL = [{"type": "function", "name": "shell", "parameters": {"type": "object"}}]


# Seed 002: the whole checklist, over HTTP

CASES = {"one call": ("call_1",), "two calls": ("call_1", "call_2")}


@dataclass(frozen=True)
class Told:
    """A tool session, as its client heard it, and as it was stored."""

    ids: tuple[str, ...]
    raw: bytes
    log: bytes
    stored: Object

    @property
    def events(self) -> list[Object]:
        return events_of(self.raw)

    def of(self, type: str) -> list[Object]:
        return [one for one in self.events if one["type"] == type]

    @property
    def items(self) -> list[Object]:
        """Every item object there is."""
        return [*(one["item"] for one in self.events if "item" in one), *self.last["output"]]

    @property
    def last(self) -> Object:
        (event,) = self.of("response.completed")
        response: Object = event["response"]
        return response


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def session(here: World, request: pytest.FixtureRequest) -> Told:
    hold, raw = Hold(), b""
    model = here.hand.script(calling(*request.param, pause=[hold]))
    asked = {"model": f"hand/{model}", "input": "Hi", "tools": SHELL, "stream": True, **SESSION}
    with here.one.http.stream("POST", "/v1/responses", json=asked) as stream:
        for piece in stream.iter_raw():
            raw += piece
            if raw.count(b"event: ping") >= 2:
                hold.release()
    id = events_of(raw)[0]["response"]["id"]
    return Told(request.param, raw, here.one.log(id), here.one.get(id))


def test_whoever_follows_a_session_gets_its_pings_too(here: World) -> None:
    hold, raw, pieces = Hold(), b"", 0
    model = here.hand.script(calling("call_1", pause=[hold]))
    asked = {"model": f"hand/{model}", "input": "Hi", "tools": SHELL, **SESSION}
    how = {"stream": True, "background": True}
    with here.one.http.stream("POST", "/v1/responses", json=asked | how) as stream:
        for piece in stream.iter_raw():
            raw, pieces = raw + piece, pieces + 1
            if raw.count(b"event: ping") >= 2 or pieces == 500:
                hold.release()
    told = events_of(raw)
    assert [one["sequence_number"] for one in told] == list(range(len(told)))
    assert sum(one["type"] == "ping" for one in told) >= 2
    assert here.one.log(told[0]["response"]["id"]) == uncommented(raw)


class TestChecklist:
    def test_events_come_in_order(self, session: Told) -> None:
        types = [one["type"] for one in session.events if one["type"] != "ping"]
        assert types[:2] == ["response.created", "response.in_progress"]
        assert types[-2:] == ["response.required_action", "response.completed"]
        for index in range(len(session.ids)):
            mine = [one["type"] for one in session.events if one.get("output_index") == index]
            merged = [type for at, type in enumerate(mine) if not at or mine[at - 1] != type]
            assert merged == [
                "response.output_item.added",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "response.output_item.done",
            ]

    def test_events_have_the_type_that_their_line_says(self, session: Told) -> None:
        frames = re.findall(rb"event: (\S+)\ndata: (.*)\n\n", session.raw)
        assert [type.decode() for type, _ in frames] == [one["type"] for one in session.events]

    def test_every_event_has_the_next_number_and_pings_too(self, session: Told) -> None:
        numbers = [one["sequence_number"] for one in session.events]
        assert numbers == list(range(len(numbers)))
        assert session.of("ping")
        assert all(one.keys() == {"type", "sequence_number"} for one in session.of("ping"))

    def test_events_of_a_call_have_the_id_of_its_item(self, session: Told) -> None:
        said = [one for one in session.events if "function_call_arguments" in one["type"]]
        found = {(one["output_index"], one["item_id"]) for one in said}
        assert found == {(at, item["id"]) for at, item in enumerate(session.last["output"])}
        added = session.of("response.output_item.added")
        assert found == {(one["output_index"], one["item"]["id"]) for one in added}
        assert len({id for _, id in found}) == len(session.ids)

    def test_call_ids_types_and_names_are_the_same_everywhere(self, session: Told) -> None:
        told = [(one["call_id"], one["type"], one["name"]) for one in session.items]
        expected = [(id, "function_call", "shell") for id in session.ids]
        assert sorted(told) == sorted(expected * 3)

    def test_statuses_go_from_in_progress_to_completed(self, session: Told) -> None:
        items = [(one["type"], one["item"]["status"]) for one in session.events if "item" in one]
        pair = [("response.output_item.added", "in_progress"),
                ("response.output_item.done", "completed")]  # fmt: skip
        assert sorted(items) == sorted(pair * len(session.ids))
        whole = [(one["type"], one["response"]["status"]) for one in session.events
                 if "response" in one]  # fmt: skip
        assert whole == [
            ("response.created", "in_progress"),
            ("response.in_progress", "in_progress"),
            ("response.required_action", "incomplete"),
            ("response.completed", "incomplete"),
        ]

    def test_arguments_go_from_nothing_to_all_of_it(self, session: Told) -> None:
        for at, id in enumerate(session.ids):
            mine = [one for one in session.events if one.get("output_index") == at]
            deltas = [one["delta"] for one in mine if one["type"].endswith("arguments.delta")]
            (done,) = [one for one in mine if one["type"].endswith("arguments.done")]
            added, closed = [one["item"]["arguments"] for one in mine if "item" in one]
            assert added == ""
            whole = session.last["output"][at]["arguments"]
            assert COMMANDS[id] == "".join(deltas) == done["arguments"] == closed == whole

    def test_the_final_response_holds_all_items(self, session: Told) -> None:
        done = session.of("response.output_item.done")
        assert session.last["output"] == [one["item"] for one in done]

    def test_reasoning_is_in_every_response_object(self, session: Told) -> None:
        shots = [one["response"] for one in session.events if "response" in one]
        assert [one["reasoning"] for one in shots] == [{"effort": None, "summary": None}] * 4

    def test_what_is_required_is_said_before_and_in_the_final_response(self, session: Told) -> None:
        (action,) = session.of("response.required_action")
        calls = [
            {"id": id, "type": "function", "function": {"name": "shell", "arguments": COMMANDS[id]}}
            for id in session.ids
        ]
        required = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": calls}}
        assert action["required_action"] == action["response"]["required_action"] == required
        assert session.last["required_action"] == required

    def test_what_is_stored_is_what_was_told(self, session: Told) -> None:
        """Pings are events, comments are not."""
        assert session.log == uncommented(session.raw)
        assert session.stored == session.last


# Going on


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("vendor", UPSTREAMS)
def test_outputs_lead_to_a_response_that_goes_on(
    here: World, vendor: str, form: str, stream: bool
) -> None:
    tag, asked = tagged()
    first = here.one.ask(f"{vendor}/parallel", **asked, **FORMS[form], metadata={"a": "b"})
    waiting = form == "session"
    assert first["status"] == ("incomplete" if waiting else "completed")
    assert ("required_action" in first) == waiting
    found = here.one.submit(first["id"], outputs_of(first)[::-1], stream=stream)
    went_on = last_of(found, stream)
    assert text_of(went_on) == f"It is so: {WEATHER.result}; {ROME.result}; {CLOCK.result}."
    assert went_on["previous_response_id"] == first["id"]
    assert went_on["id"] != first["id"]
    assert went_on["model"] == f"{vendor}/parallel"
    same = ("tools", "instructions", "store", "background", "tool_choice")
    assert [went_on[name] for name in same] == [first[name] for name in same]
    assert went_on["metadata"] == {"a": "b"}
    assert went_on["status"] == "completed"
    assert went_on.get("required_action", 0) == (None if waiting else 0)
    assert here.one.get(went_on["id"]) == went_on
    told = {"status": "completed", **({"required_action": None} if waiting else {})}
    assert here.one.get(first["id"]) == {**first, **told}
    listed = here.one.get(went_on["id"], "/input_items", order="asc")["data"]
    brought = [{name: one[name] for name in ("type", "call_id", "output")} for one in listed]
    assert brought == items_of(first)
    assert [one.refusal for one in here.vendors.of(tag)] == ["", ""]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("vendor", UPSTREAMS)
def test_the_plain_way_goes_on_turn_by_turn_with_every_dialect(
    here: World, vendor: str, stream: bool
) -> None:
    """Two turns of calls, each after some thought whose proof goes back; then the answer."""
    tag, asked = tagged()
    asked |= {"model": f"{vendor}/reasoning-tool", "tools": RESPONSES_TOOLS, "stream": stream,
              "reasoning": {"effort": "low", "summary": "auto"}, **SESSION}  # fmt: skip
    turns: list[Object] = []
    servers = (here.one, here.other, here.one)
    for server in servers:
        turns.append(last_of(server.http.post("/v1/responses", json=asked), stream))
        asked |= {"input": items_of(turns[-1]), "previous_response_id": turns[-1]["id"]}
    results = "; ".join(one.result for one in (WEATHER, ROME, CLOCK))
    assert text_of(turns[-1]) == f"It is so: {results}."
    assert [one["status"] for one in turns] == ["incomplete", "incomplete", "completed"]
    now = [here.one.get(one["id"]) for one in turns]
    assert [one["status"] for one in now] == ["completed"] * 3
    assert [one["required_action"] for one in now] == [None] * 3
    asked_for = here.vendors.of(tag)
    assert [one.refusal for one in asked_for] == [""] * 3
    assert asked_for[-1].asked.proofs == ["returned", "returned"]


def test_a_session_goes_on_as_long_as_there_are_calls(here: World) -> None:
    _, asked = tagged()
    now = here.one.ask("messages/reasoning-tool", **asked, **SESSION, reasoning={"effort": "low"})
    before = []
    while now["required_action"] is not None:
        before.append(now["id"])
        now = here.other.submit(now["id"], outputs_of(now)).json()
    assert len(before) == 2
    assert now["previous_response_id"] == before[-1]
    assert [here.one.get(id)["status"] for id in before] == ["completed", "completed"]


def test_a_forced_call_is_not_forced_again(here: World) -> None:
    tag, asked = tagged()
    first = here.one.ask("chat/tool", **asked, tool_choice="required")
    here.one.told(here.one.submit(first["id"], outputs_of(first)))
    bodies = [one.body for one in here.vendors.of(tag)]
    assert [one.get("tool_choice", "auto") for one in bodies] == ["required", "auto"]


@pytest.fixture(scope="module")
def died(here: World) -> list[Object]:
    """Responses in both forms that wait for outputs; the process that ran them is gone."""
    mortal, firsts = here.start(), []
    for form in FORMS.values():
        _, asked = tagged()
        firsts.append(mortal.ask("gemini/tool", **asked, **form))
    mortal.served.process.kill()
    mortal.served.process.wait()
    return firsts


@pytest.fixture(scope="module")
def reborn(here: World, died: list[Object]) -> Weft:
    """A process that was started then. It has tool sessions for everybody, and answers that go on
    for a while without their clients."""
    return here.start("tool_session = true\nresume_window = 30")


def test_it_works_after_a_restart_and_on_another_replica(
    here: World, died: list[Object], reborn: Weft
) -> None:
    for first, server in zip(died, (here.other, reborn), strict=True):
        went_on = server.told(server.submit(first["id"], outputs_of(first)))
        assert text_of(went_on) == f"It is so: {WEATHER.result}."
        assert here.one.get(first["id"])["status"] == "completed"


@pytest.mark.parametrize("vendor", UPSTREAMS)
def test_a_server_may_have_sessions_for_everybody(reborn: Weft, vendor: str) -> None:
    """Also where the upstream's own bytes would do."""
    _, asked = tagged()
    first = reborn.ask(f"{vendor}/tool", **asked)
    assert first["status"] == "incomplete"
    pending = first["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert [one["id"] for one in pending] == [one["call_id"] for one in calls_of(first)]
    went_on = reborn.told(reborn.submit(first["id"], outputs_of(first)))
    assert (went_on["status"], went_on["required_action"]) == ("completed", None)


def test_a_session_in_a_conversation_stays_in_it(here: World) -> None:
    made = here.one.told(here.one.http.post("/v1/conversations", json={}))
    model = here.hand.script(calling("call_1"), saying("Done."))
    asked = {"tools": SHELL, "conversation": made["id"], **SESSION}
    first = here.one.ask(f"hand/{model}", **asked)
    outputs = [{"call_id": "call_1", "output": "hi"}]
    went_on = here.one.told(here.one.submit(first["id"], outputs))
    assert went_on["previous_response_id"] == first["id"]
    path = f"/v1/conversations/{made['id']}/items"
    items = here.one.told(here.one.http.get(path, params={"order": "asc"}))["data"]
    said = ["message", "function_call", "function_call_output", "message"]
    assert [one["type"] for one in items] == said
    assert here.one.get(first["id"])["status"] == "completed"
    later = {"model": f"hand/{model}", "conversation": made["id"], "input": "Thanks"}
    assert here.one.http.post("/v1/responses", json=later).status_code == 200


def test_what_ran_in_the_background_goes_on_there(here: World) -> None:
    model = here.hand.script(calling("call_1"), saying("Done."))
    first = here.one.ask(f"hand/{model}", tools=SHELL, background=True, **SESSION)
    events_of(here.one.log(first["id"]))
    outputs = [{"call_id": "call_1", "output": "hi"}]
    begun = here.one.told(here.one.submit(first["id"], outputs))
    assert (begun["background"], begun["previous_response_id"]) == (True, first["id"])
    assert events_of(here.other.log(begun["id"]))[-1]["type"] == "response.completed"
    again = here.other.told(here.other.submit(first["id"], outputs))
    assert (again["id"], text_of(again)) == (begun["id"], "Done.")


# What can be answered

FOUND = [{"type": "input_text", "text": "found"}]
SHOWN = [{"stdout": "hi", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
FUNCTION = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f",
            "arguments": "{}"}  # fmt: skip
ITEMS: dict[str, tuple[Object, Object, Object]] = {
    "a function": (
        FUNCTION,
        {"tool_call_id": "call_1", "output": "found"},
        {"type": "function_call_output", "call_id": "call_1", "output": "found"},
    ),
    "a function, in parts": (
        FUNCTION,
        {"tool_call_id": "call_1", "output": FOUND},
        {"type": "function_call_output", "call_id": "call_1", "output": FOUND},
    ),
    "a function, by its item": (
        FUNCTION,
        {"tool_call_id": "fc_1", "output": "found"},
        {"type": "function_call_output", "call_id": "call_1", "output": "found"},
    ),
    "a custom tool": (
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "g", "input": "x"},
        {"call_id": "call_1", "output": "found"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "found"},
    ),
    "a shell": (
        {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "action": {"commands": ["ls"]}},
        {"call_id": "call_1", "output": SHOWN, "max_output_length": 10},
        {"type": "shell_call_output", "call_id": "call_1", "output": SHOWN,
         "max_output_length": 10},
    ),
    "a patch": (
        {"type": "apply_patch_call", "id": "apc_1", "call_id": "call_1",
         "operation": {"type": "delete_file", "path": "a"}},
        {"call_id": "call_1", "status": "failed", "output": "no such file"},
        {"type": "apply_patch_call_output", "call_id": "call_1", "status": "failed",
         "output": "no such file"},
    ),
    "an approval": (
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}",
         "server_label": "far"},
        {"approval_request_id": "mcpr_1", "approve": False, "reason": "no"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False,
         "reason": "no"},
    ),
}  # fmt: skip
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed",
          "action": {"type": "search", "query": "x"}}  # fmt: skip


def responding(*items: Object) -> list[Step]:
    """An upstream of Responses with these items."""
    events: list[Object] = [CREATED]
    for index, item in enumerate(items):
        status = {} if item["type"] == "mcp_approval_request" else {"status": "completed"}
        place = {"output_index": index, "item": {**item, **status}}
        events += [{"type": f"response.output_item.{verb}", **place} for verb in ("added", "done")]
    whole = {**COMPLETED["response"], "output": [one["item"] for one in events[2::2]]}
    raw = capture(*events, {**COMPLETED, "response": whole})
    return [STREAM, chunk(raw), LAST]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ITEMS)
def test_every_kind_of_call_can_be_answered(here: World, kind: str, form: str) -> None:
    """But for those that were executed by the provider."""
    item, output, brought = ITEMS[kind]
    model = here.hand.script(responding(SEARCH, item), responding())
    first = here.one.ask(f"own/{model}", tools=[], **FORMS[form])
    if form == "session":
        pending = first["required_action"]["submit_tool_outputs"]["tool_calls"]
        assert [one["id"] for one in pending] == [item.get("call_id", item["id"])]
    nothing = here.one.submit(first["id"], [])
    assert nothing.status_code == 400
    here.one.told(here.one.submit(first["id"], [output]))
    sent = json.loads(here.hand.exchanges(model)[1].body)["input"]
    assert sent[-1] == brought
    assert [one["type"] for one in sent] == [
        "message",
        SEARCH["type"],
        item["type"],
        brought["type"],
    ]
    assert here.one.get(first["id"])["status"] == "completed"


def test_a_call_that_cannot_be_read_need_not_be_answered(here: World) -> None:
    """But may be: its client was told of it."""
    good, bad = chat.entry(0, "call_1", "shell", "{}"), chat.entry(1, "call_2", "shell", "{oops")
    end = chat.chunk({}, "tool_calls") + b"data: [DONE]\n\n"
    unreadable = [STREAM, chunk(chat.calls(good)), chunk(chat.calls(bad)), chunk(end), LAST]
    for ids, said in (("call_1",), "interrupted"), (("call_1", "call_2"), "found"):
        model = here.hand.script(unreadable, saying("Done."))
        first = here.one.ask(f"hand/{model}", tools=SHELL, **SESSION)
        pending = first["required_action"]["submit_tool_outputs"]["tool_calls"]
        assert [one["id"] for one in pending] == ["call_1"]
        outputs = [{"call_id": id, "output": "found"} for id in ids]
        here.one.told(here.one.submit(first["id"], outputs))
        *_, last = json.loads(here.hand.exchanges(model)[1].body)["messages"]
        assert last["tool_call_id"] == "call_2"
        assert said in last["content"]


# What is refused

CHECKS: dict[str, tuple[Object, tuple[str, ...]]] = {
    "nothing at all": ({}, ("tool_outputs",)),
    "no outputs": ({"tool_outputs": []}, ("'call_1', 'call_2'",)),
    "one missing": ({"tool_outputs": [{"call_id": "call_1", "output": "a"}]}, ("'call_2'",)),
    "one unknown": (
        {"tool_outputs": [{"call_id": "call_1", "output": "a"}, {"call_id": "x", "output": "b"}]},
        ("tool_outputs[1].call_id", "'x'", "'call_1', 'call_2'"),
    ),
    "one twice": (
        {"tool_outputs": [{"tool_call_id": "call_1", "output": "a"}] * 2},
        ("tool_outputs[1].tool_call_id", "'call_1'", "two outputs"),
    ),
    "no id": ({"tool_outputs": [{"output": "a"}]}, ("tool_outputs[0].tool_call_id", "missing")),
    "two ids": (
        {"tool_outputs": [{"call_id": "call_1", "tool_call_id": "call_2", "output": "a"}]},
        ("tool_outputs[0].tool_call_id", "more than one"),
    ),
    "an id that is none": ({"tool_outputs": [{"call_id": 1, "output": "a"}]}, ("[0].call_id",)),
    "no output": ({"tool_outputs": [{"call_id": "call_1"}]}, ("tool_outputs[0].output",)),
    "a number": ({"tool_outputs": [{"call_id": "call_1", "output": 1}]}, ("[0].output",)),
    "parts that are none": (
        {
            "tool_outputs": [
                {"call_id": id, "output": [{"type": "refusal", "refusal": 1}]}
                for id in ("call_1", "call_2")
            ]
        },
        ("input[0].output",),
    ),
    "something else": (
        {"tool_outputs": [{"call_id": "call_1", "output": "a", "name": "shell"}]},
        ("tool_outputs[0].name",),
    ),
    "no list": ({"tool_outputs": {}}, ("tool_outputs",)),
    "more than outputs": ({"tool_outputs": [], "model": "other"}, ("model",)),
}


@pytest.fixture(scope="module")
def waiting(here: World) -> Object:
    """A response that waits for two outputs, which never come."""
    model = here.hand.script(calling("call_1", "call_2"))
    return here.one.ask(f"hand/{model}", tools=SHELL, **SESSION)


@pytest.mark.parametrize("check", CHECKS)
def test_outputs_that_are_not_those_that_are_waited_for_are_refused(
    here: World, waiting: Object, check: str
) -> None:
    body, words = CHECKS[check]
    path = f"/v1/responses/{waiting['id']}/submit_tool_outputs"
    found = here.one.http.post(path, json=body)
    assert found.status_code == 400, found.text
    assert found.json()["error"]["type"] == "invalid_request"
    for word in words:
        assert word in found.json()["error"]["message"]
    assert here.one.get(waiting["id"]) == waiting


def test_what_is_not_there_or_not_one_s_own_is_not_found(here: World, waiting: Object) -> None:
    outputs = [{"call_id": id, "output": "a"} for id in ("call_1", "call_2")]
    absent = "resp_" + "0" * (len(waiting["id"]) - 5)
    found = [here.bob.submit(id, outputs) for id in (waiting["id"], absent)]
    assert [one.status_code for one in found] == [404, 404]
    assert found[0].text.replace(waiting["id"], absent) == found[1].text
    here.one.http.delete(f"/v1/responses/{waiting['id']}")
    assert here.one.submit(waiting["id"], outputs).status_code == 404


def test_a_response_that_waits_for_nothing_takes_no_outputs(here: World) -> None:
    _, asked = tagged()
    first = here.one.ask("chat/text", **asked)
    found = here.one.submit(first["id"], [{"call_id": "call_1", "output": "a"}])
    assert found.status_code == 400
    assert f"{first['id']} does not wait for tool outputs" in found.json()["error"]["message"]


def test_a_response_that_runs_takes_no_outputs_yet(here: World) -> None:
    hold = Hold()
    model = here.hand.script(calling("call_1", pause=[hold]), saying("Done."))
    first = here.one.ask(f"hand/{model}", tools=SHELL, background=True)
    hold.here()
    outputs = [{"call_id": "call_1", "output": "hi"}]
    found = here.other.submit(first["id"], outputs)
    assert found.status_code == 409
    assert "is still in_progress" in found.json()["error"]["message"]
    hold.release()
    assert here.one.log(first["id"])
    went_on = here.one.submit(first["id"], outputs, stream=True)
    assert text_of(last_of(went_on, True)) == "Done."


# Equal submissions are one


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def test_fifty_equal_submissions_are_one(here: World, tmp_path: Path, kind: Kind) -> None:
    with ExitStack() as stack:
        shared = here
        if kind == "postgres":
            shared = stack.enter_context(world(empty(kind, tmp_path), tmp_path))
        pool = stack.enter_context(ThreadPoolExecutor(50))
        for stream in (True, False):
            fifty_are_one(shared, pool, stream)


def fifty_are_one(here: World, pool: ThreadPoolExecutor, stream: bool) -> None:
    hold = Hold()
    model = here.hand.script(calling("call_1"), saying("All done.", pause=[hold]))
    first = here.one.ask(f"hand/{model}", tools=SHELL, **SESSION)
    outputs = [{"call_id": "call_1", "output": "hi"}]
    servers = (here.one, here.other) * 25
    asked = [pool.submit(one.submit, first["id"], outputs, stream=stream) for one in servers]
    hold.release()
    found = [one.result() for one in asked]
    assert {one.status_code for one in found} == {200}
    assert len({uncommented(one.content) if stream else one.content for one in found}) == 1
    went_on = last_of(found[0], stream)
    assert text_of(went_on) == "All done."
    assert here.one.get(first["id"])["status"] == "completed"
    again = last_of(here.other.submit(first["id"], outputs, stream=not stream), not stream)
    assert (again["id"], again["output"]) == (went_on["id"], went_on["output"])
    assert len(here.hand.exchanges(model)) == 2


def test_other_outputs_are_not_taken_any_more(here: World) -> None:
    hold = Hold()
    model = here.hand.script(calling("call_1"), saying("Done.", pause=[hold]))
    first = here.one.ask(f"hand/{model}", tools=SHELL)

    def submit(output: str) -> httpx.Response:
        return here.other.submit(first["id"], [{"call_id": "call_1", "output": output}])

    with ThreadPoolExecutor(1) as pool:
        winner = pool.submit(submit, "hi")
        hold.here()
        meanwhile = submit("ho")
        hold.release()
        went_on = here.other.told(winner.result())
    for refused in (meanwhile, submit("ho")):
        assert refused.status_code == 409
        message = refused.json()["error"]["message"]
        assert message == f"{first['id']} was continued with other outputs, as {went_on['id']}"
    assert here.one.told(submit("hi")) == went_on


def test_a_submission_that_failed_may_be_tried_again(here: World) -> None:
    busy = [answer(b'{"error":{"message":"busy","type":"server_error"}}', "503 Busy")]
    model = here.hand.script(calling("call_1"), *[busy] * 8, saying("Done."))
    first = here.one.ask(f"hand/{model}", tools=SHELL, **SESSION)
    outputs = [{"call_id": "call_1", "output": "hi"}]
    for stream in (False, True) * 4:
        found = here.one.submit(first["id"], outputs, stream=stream)
        begun = stream and found.text.startswith(": keepalive")  # where the machine is slow
        assert found.status_code == (200 if begun else 503), found.text
        assert '"busy"' in found.text
        assert here.one.get(first["id"]) == first
    went_on = last_of(here.other.submit(first["id"], outputs, stream=True), True)
    assert text_of(went_on) == "Done."
    assert went_on["previous_response_id"] == first["id"]
    assert here.one.get(first["id"])["required_action"] is None


def test_who_leaves_may_come_back(here: World) -> None:
    """A client that leaves stops its answer, as everywhere; the session goes on."""
    hold = Hold()
    model = here.hand.script(calling("call_1"), saying("Lost.", pause=[hold]), saying("Done."))
    first = here.one.ask(f"hand/{model}", tools=SHELL, **SESSION)
    outputs = [{"call_id": "call_1", "output": "hi"}]
    path = f"/v1/responses/{first['id']}/submit_tool_outputs"
    asked = {"tool_outputs": outputs, "stream": True}
    with here.one.http.stream("POST", path, json=asked) as stream:
        head = b""
        for piece in stream.iter_raw():
            head += piece
            if ids := set(re.findall(rb'"id":"(resp_\w+)"', head)):
                break
    (id,) = ids
    here.hand.exchanges(model, 2)[1].left()
    events_of(here.one.log(id.decode()))
    assert here.one.get(id.decode())["status"] == "cancelled"
    assert here.one.get(first["id"]) == first
    went_on = here.one.told(here.one.submit(first["id"], outputs))
    assert text_of(went_on) == "Done."


def test_who_leaves_an_answer_that_goes_on_finds_it_again(here: World, reborn: Weft) -> None:
    hold = Hold()
    model = here.hand.script(calling("call_1"), saying("Found.", pause=[hold]))
    first = reborn.ask(f"hand/{model}", tools=SHELL)
    outputs = [{"call_id": "call_1", "output": "hi"}]
    path = f"/v1/responses/{first['id']}/submit_tool_outputs"
    asked = {"tool_outputs": outputs, "stream": True}
    with reborn.http.stream("POST", path, json=asked) as stream:
        head = b""
        for piece in stream.iter_raw():  # where the machine is slow, comments come first
            head += piece
            if ids := set(re.findall(rb'"id":"(resp_\w+)"', head)):
                break
    (id,) = ids
    hold.release()
    went_on = last_of(here.one.submit(first["id"], outputs, stream=True), True)
    assert (went_on["id"], text_of(went_on)) == (id.decode(), "Found.")
    assert len(here.hand.exchanges(model)) == 2


def test_who_names_a_response_and_dies_is_replaced(here: World) -> None:
    model = here.hand.script(calling("call_1"), saying("Done."))
    first = here.one.ask(f"hand/{model}", tools=SHELL)
    name = "resp_" + "7" * 32
    assert here.in_store(lambda store: store.set_answered(first["id"], name))
    outputs = [{"call_id": "call_1", "output": "hi"}]
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(one.submit, first["id"], outputs) for one in (here.one, here.other)]
        found = [one.result().json() for one in asked]
    assert found[0] == found[1]
    assert (found[0]["id"], text_of(found[0])) == (name, "Done.")
    assert len(here.hand.exchanges(model)) == 2


def test_who_runs_a_response_and_dies_is_replaced(here: World) -> None:
    """Whoever waited is told; whoever comes then starts anew."""
    mortal, hold = here.start(), Hold()
    model = here.hand.script(calling("call_1"), saying("Lost.", pause=[hold]), saying("Done."))
    first = here.one.ask(f"hand/{model}", tools=SHELL, **SESSION)
    outputs = [{"call_id": "call_1", "output": "hi"}]
    path = f"/v1/responses/{first['id']}/submit_tool_outputs"
    asked = json.dumps({"tool_outputs": outputs}).encode()
    with ThreadPoolExecutor(1) as pool, Client(here.one.http.base_url.port or 0) as waiting:
        cut = pool.submit(mortal.submit, first["id"], outputs)
        hold.here()
        waiting.send(request(path, asked, f"Authorization: Bearer {ALICE}"))
        for _ in range(20):  # each reads the store after it: by then it waits
            here.one.get(first["id"])
        mortal.served.process.kill()
        mortal.served.process.wait()
        assert isinstance(cut.exception(), httpx.RemoteProtocolError)
        assert waiting.answer().status == 500
    assert here.one.get(first["id"]) == first
    went_on = here.other.told(here.other.submit(first["id"], outputs))
    assert text_of(went_on) == "Done."
