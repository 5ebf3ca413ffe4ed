"""Agents as models: through the relay, in every dialect, with a real store and a real upstream."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from msgspec import Raw

from tests.agent_processes import LASTING, KillingStore, Places, effects, tools_in
from tests.agent_upstream import (
    AgentUpstream,
    Chunks,
    Script,
    agent_upstream,
    by_agent,
    by_turn,
    call,
    calls,
    text,
)
from tests.gateway_process import gateway
from tests.stores import Kind, empty
from weft.agent.agents import Agent
from weft.agent.conversations import input_of_run
from weft.agent.environment import FinishTurn, TurnRequest
from weft.agent.models import RelayModels
from weft.agent.runtime import AgentRuntime
from weft.agent.segment import SegmentStart, SegmentStream, position_of, run_of
from weft.agent.state import RunState
from weft.agent.tools import ToolContext, tool
from weft.agent.upstream import CONFIG, RunUpstream, SegmentResponse
from weft.assembler import Response
from weft.captures import decode_all
from weft.context import Context
from weft.dialect_names import DialectName
from weft.gateway.http_response import weft_headers
from weft.gateway.sessions import RetentionPolicy, Sessions
from weft.parts import ResponseMetadata, ToolApprovalRequest, ToolCall, ToolResult
from weft.relay.incoming import (
    IncomingRequest,
    RequestBody,
    RequestFailed,
    RequestLimits,
    StorePolicy,
)
from weft.relay.persistence import Persistence
from weft.relay.routing import Routing
from weft.relay.run import Run
from weft.scrub import Scrubber
from weft.sse import Event, write
from weft.store.base import StoreError
from weft.store.records import NewRun, RunRow
from weft.upstream.base import OutgoingRequest, RetryPolicy, Unreachable, UpstreamConfig
from weft.upstream.http import HttpUpstream

DIALECTS: tuple[DialectName, ...] = (
    "openai-responses",
    "anthropic-messages",
    "openai-chat",
    "gemini",
)
BODIES: dict[str, dict[str, Any]] = {
    "openai-responses": {"model": "helper", "input": "Go."},
    "anthropic-messages": {
        "model": "helper",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Go."}],
    },
    "openai-chat": {"model": "helper", "messages": [{"role": "user", "content": "Go."}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Go."}]}]},
}


@dataclass
class AgentWorld:
    """A relay whose only model is an agent."""

    runtime: AgentRuntime
    store: KillingStore
    upstream: AgentUpstream
    folder: Path
    persistence: Persistence
    routing: Routing

    def run(
        self, dialect: str, body: dict[str, Any], *, stream: bool = True, caller: str = "me"
    ) -> Run:
        raw = json.dumps({"stream": True, **body} if dialect != "gemini" else body).encode()
        incoming = IncomingRequest(
            RequestBody(dialect, raw),
            "helper",
            stream,
            id="req",
            caller=caller,
            store=StorePolicy(raw),
        )
        writer = self.persistence.writer(incoming)
        targets = self.routing.targets("helper")
        return Run(incoming, targets, RequestLimits(), Scrubber([]), (), writer)

    async def respond(
        self, dialect: DialectName, body: dict[str, Any], caller: str = "me"
    ) -> Response:
        """What a client of the dialect reads."""
        run = self.run(dialect, body, caller=caller)
        try:
            stream = await run.open()
            raw = bytearray()

            def take(events: list[Event]) -> bool:
                raw.extend(b"".join(write(event.name, event.data) for event in events))
                return True

            # As the gateway does it: whatever arrives is written at once, the rest is asked for.
            while events := await stream.next():
                take(events)
                await stream.flow(take)
        finally:
            await run.close()
        [decoded] = decode_all(bytes(raw), dialect)
        return decoded.response


AgentScene = Callable[[AgentWorld], Awaitable[None]]


@asynccontextmanager
async def agent_world(
    url: str, model: AgentUpstream, folder: Path, agent: Agent | None, tools_visible: bool
) -> AsyncIterator[AgentWorld]:
    places = Places()
    store = KillingStore(url, places)
    config = UpstreamConfig("m", "openai-chat", model.url, retry=RetryPolicy(attempts=1))
    upstream = HttpUpstream(config)
    persistence = Persistence(store)
    sessions = Sessions(persistence, policy=RetentionPolicy(lease=LASTING))
    await sessions.start(())
    models = RelayModels(Routing({"m": upstream}, {}), persistence, RequestLimits(), Scrubber([]))
    tools = tools_in(folder, places)
    agent = agent or Agent("helper", "m/m", "Help.", tools, tools_visible=tools_visible)
    try:
        async with AgentRuntime(store, [agent], models, lease=LASTING) as runtime:
            agents = RunUpstream(runtime, persistence)
            routing = Routing({CONFIG.name: agents}, {"helper": (f"{CONFIG.name}/helper",)})
            yield AgentWorld(runtime, store, model, folder, persistence, routing)
            await agents.close()
    finally:
        await sessions.close()
        await upstream.close()


def play(
    kind: Kind,
    folder: Path,
    script: Script,
    scene: AgentScene,
    *,
    agent: Agent | None = None,
    tools_visible: bool = True,
) -> None:
    url = empty(kind, folder)

    async def main(upstream: AgentUpstream) -> None:
        async with agent_world(url, upstream, folder, agent, tools_visible) as world:
            await scene(world)

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


LOOK = calls(call(0, "a", "look", {"at": "it"}))
KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_of_any_dialect_gets_the_stream_of_a_run(
    dialect: DialectName, tmp_path: Path
) -> None:
    async def scene(world: AgentWorld) -> None:
        response = await world.respond(dialect, BODIES[dialect])
        assert (response.text, response.finish_reason) == ("All is fine.", "stop")
        seen = [(one.name, one.server_label, one.provider_executed) for one in response.tool_calls]
        shows_calls = dialect in ("openai-responses", "anthropic-messages")
        assert seen == ([("look", "helper", True)] if shows_calls else [])
        results = [one for one in response.items if isinstance(one, ToolResult)]
        assert [b"it is fine" in bytes(one.result) for one in results] == [True] * len(seen)
        assert len(effects(world.folder)) == 1
        [row] = (await world.store.runs("me")).runs
        assert (row.status, row.owner) == ("finished", "me")

    play("sqlite", tmp_path, by_turn(LOOK, text("All is fine.")), scene)


def test_a_body_is_the_whole_run_and_hidden_tools_are_hidden(tmp_path: Path) -> None:
    async def scene(world: AgentWorld) -> None:
        run = world.run("openai-responses", {"model": "helper", "input": "Go."}, stream=False)
        status, body = await (await run.open()).read_body()
        await run.close()
        found = json.loads(body)
        assert (status, found["status"]) == (200, "completed")
        assert [one["type"] for one in found["output"]] == ["message"]
        assert len(effects(world.folder)) == 1

    play("sqlite", tmp_path, by_turn(LOOK, text("Fine.")), scene, tools_visible=False)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hidden_tools_are_hidden_in_all_dialects(dialect: DialectName, tmp_path: Path) -> None:
    async def scene(world: AgentWorld) -> None:
        response = await world.respond(dialect, BODIES[dialect])
        assert (response.text, response.finish_reason) == ("Fine.", "stop")
        assert [one for one in response.items if isinstance(one, ToolCall | ToolResult)] == []
        assert len(effects(world.folder)) == 1

    play("sqlite", tmp_path, by_turn(LOOK, text("Fine.")), scene, tools_visible=False)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_progress_disturbs_no_client(dialect: DialectName, tmp_path: Path) -> None:
    """No dialect of an endpoint has a word for it; the events of the run have."""

    @tool(retry="pure")
    async def look(context: ToolContext, at: str) -> str:
        for part in range(3):
            await context.progress({"part": part})
        return "fine"

    async def scene(world: AgentWorld) -> None:
        response = await world.respond(dialect, BODIES[dialect])
        assert (response.text, response.finish_reason) == ("Fine.", "stop")
        results = [one for one in response.items if isinstance(one, ToolResult)]
        assert [one.preliminary for one in results] == [False] * len(response.tool_calls)

    agent = Agent("helper", "m/m", "Help.", [look])
    play("sqlite", tmp_path, by_turn(LOOK, text("Fine.")), scene, agent=agent)


# What waits for a person


def in_words(dialect: str, said: str, answer: str) -> dict[str, Any]:
    """The next request of a client that reads and writes texts."""
    body, roles = BODIES[dialect], ("model" if dialect == "gemini" else "assistant", "user")
    words = zip(roles, (said, answer), strict=True)
    if dialect == "gemini":
        turns = [{"role": role, "parts": [{"text": text}]} for role, text in words]
        return body | {"contents": [*body["contents"], *turns]}
    turns = [{"role": role, "content": text} for role, text in words]
    return body | {"messages": [*body["messages"], *turns]}


def approvals_in(response: Response) -> list[str]:
    """The ids of what a client is asked to approve, by an item or in words."""
    asked = [one.approval_id for one in response.items if isinstance(one, ToolApprovalRequest)]
    return asked or re.findall(r"`approve (run_[0-9a-f]+_[0-9-]+)`", response.text)


def decided(dialect: str, first: Response, *ids: str, approve: bool = True) -> dict[str, Any]:
    """The request of a client that decides about these."""
    if dialect == "openai-responses":
        type = "mcp_approval_response"
        given = [{"type": type, "approval_request_id": id, "approve": approve} for id in ids]
        return {"model": "helper", "input": given}
    word = "approve" if approve else "Deny"
    return in_words(dialect, first.text, "\n".join(f"{word} {id}" for id in ids))


def results_in(response: Response) -> list[bytes]:
    return [bytes(one.result) for one in response.items if isinstance(one, ToolResult)]


FIRE = calls(call(0, "a", "fire", {"who": "Bob"}))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("approve", [True, False])
def test_a_client_of_any_dialect_can_approve_a_call(
    dialect: DialectName, approve: bool, tmp_path: Path
) -> None:
    async def scene(world: AgentWorld) -> None:
        first = await world.respond(dialect, BODIES[dialect])
        [asked] = approvals_in(first)
        if dialect == "openai-responses":
            assert (first.text, first.finish_reason) == ("", "tool-calls")
        else:
            question = 'helper asks for your approval of fire({"who":"Bob"}).'
            assert (first.text.startswith(question), first.finish_reason) == (True, "stop")
        assert effects(world.folder) == []
        for _ in range(2):  # the same answer again changes nothing
            second = await world.respond(dialect, decided(dialect, first, asked, approve=approve))
            assert (second.text, second.finish_reason) == ("Done.", "stop")
        assert len(effects(world.folder)) == approve
        [row] = (await world.store.runs("me")).runs
        state = await world.runtime.state(row.id)
        assert state.messages == [], "the model reads no approvals"
        with pytest.raises(RequestFailed) as failed:
            await world.respond(dialect, decided(dialect, first, asked, approve=not approve))
        assert failed.value.error.status == 409

    play("sqlite", tmp_path, by_turn(FIRE, text("Done.")), scene)


def family(folder: Path, **more: Any) -> Agent:
    """An agent that calls an agent that calls an agent."""
    tools = tools_in(folder, Places())
    young = Agent("young", "m/m", "Young.", tools)
    child = Agent("child", "m/m", "Child.", [*tools, young])
    return Agent("helper", "m/m", "Help.", [*tools, child], **more)


def ask_child(*ids: str) -> Chunks:
    made = [call(at, id, "child", {"input": f"Fire {id}."}) for at, id in enumerate(ids)]
    return calls(*made)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_of_any_dialect_can_approve_a_call_of_a_child_run(
    dialect: DialectName, tmp_path: Path
) -> None:
    script = by_agent(
        H=by_turn(ask_child("a"), text("Done.")),
        C=by_turn(calls(call(0, "a", "young", {"input": "Fire Bob."})), FIRE, text("All gone.")),
        Y=by_turn(FIRE, text("Bob is gone.")),
    )

    async def scene(world: AgentWorld) -> None:
        first = await world.respond(dialect, BODIES[dialect])
        [asked] = approvals_in(first)
        if dialect == "openai-responses":
            labels = [(one.kind, one.name, one.server_label) for one in first.tool_calls]
            assert labels == [
                ("mcp_call", "child", "helper"),
                ("mcp_approval_request", "fire", "young"),
            ]
            [said] = results_in(first)
            assert b"This agent waits until somebody approves its call of fire." in said
        else:
            assert 'young asks for your approval of fire({"who":"Bob"})' in first.text
        # That of the grandchild is followed by that of the child, and both by the end.
        second = await world.respond(dialect, decided(dialect, first, asked))
        [other] = approvals_in(second)
        assert (run_of(other) == run_of(asked), len(effects(world.folder))) == (False, 1)
        for _ in range(2):
            third = await world.respond(dialect, decided(dialect, second, other))
            assert (third.text, third.finish_reason) == ("Done.", "stop")
        if dialect in ("openai-responses", "anthropic-messages"):
            assert b"All gone." in b"".join(results_in(third))
        # The first answer again is followed by what followed it, and not by the end.
        again = await world.respond(dialect, decided(dialect, first, asked))
        assert (again.text, approvals_in(again)) == (second.text, [other])
        assert results_in(again) == results_in(second)
        assert len(effects(world.folder)) == 2
        statuses = [row.status for row in (await world.store.runs("me")).runs]
        assert statuses == ["finished"] * 3

    play("sqlite", tmp_path, script, scene, agent=family(tmp_path))


@KINDS
def test_several_child_runs_can_be_answered_one_by_one_or_together(
    kind: Kind, tmp_path: Path
) -> None:
    """And the run itself beside them."""
    made = [*ask_child("a", "b")[0]["delta"]["tool_calls"], call(2, "c", "fire", {"who": "Al"})]  # type: ignore[index]
    script = by_agent(H=by_turn(calls(*made), text("Done.")), C=by_turn(FIRE, text("Bob is gone.")))

    async def scene(world: AgentWorld) -> None:
        dialect: DialectName = "openai-responses"
        first = await world.respond(dialect, BODIES[dialect])
        asked = approvals_in(first)
        assert [position_of(id) is None for id in asked] == [True, False, False]
        second = await world.respond(dialect, decided(dialect, first, asked[1]))
        # One agent is done; what is left is asked again.
        left = approvals_in(second)
        assert [*map(run_of, left)] == [run_of(asked[0]), run_of(asked[2])]
        assert b"Bob is gone." in b"".join(results_in(second))
        third = await world.respond(dialect, decided(dialect, second, *left))
        assert (third.text, third.finish_reason) == ("Done.", "stop")
        assert [b"Al is fired" in one or b"Bob is gone" in one for one in results_in(third)] == [
            True,
            True,
        ]
        assert len(effects(world.folder)) == 3

    play(kind, tmp_path, script, scene, agent=family(tmp_path))


@pytest.mark.parametrize("dialect", ["openai-responses", "openai-chat"])
@pytest.mark.parametrize("tools_visible", [True, False])
def test_a_client_is_told_that_the_outcome_of_a_call_in_a_child_run_is_unknown(
    dialect: DialectName, tools_visible: bool, tmp_path: Path
) -> None:
    @tool(timeout=0.01)
    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    child = Agent("child", "m/m", "Child.", [hang])
    agent = Agent("helper", "m/m", "Help.", [child], tools_visible=tools_visible)
    script = by_agent(
        H=by_turn(ask_child("a"), text("Done.")), C=by_turn(calls(call(0, "a", "hang", {})))
    )

    async def scene(world: AgentWorld) -> None:
        response = await world.respond(dialect, BODIES[dialect])
        [row] = (await world.store.runs("me", "waiting")).runs
        said = b"".join(results_in(response)).decode() + response.text
        if dialect == "openai-responses" and tools_visible:
            assert "the outcome of its call of hang is unknown" in said
        else:
            assert "child waits: it is not known whether hang({}) has happened" in said
            assert row.id in said

    play("sqlite", tmp_path, script, scene, agent=agent)


def test_the_answers_of_one_request_belong_to_one_conversation(tmp_path: Path) -> None:
    script = by_agent(H=by_turn(ask_child("a"), text("Done.")), C=by_turn(FIRE, text("Gone.")))

    async def scene(world: AgentWorld) -> None:
        dialect: DialectName = "openai-responses"
        both = [await world.respond(dialect, BODIES[dialect]) for _ in range(2)]
        [one], [other] = map(approvals_in, both)
        stranger = one.replace(run_of(one) or "", "run_" + "0" * 32)
        for caller, ids, status in (
            ("me", (one, other), 400),
            ("me", (stranger,), 404),
            ("you", (one,), 404),
            ("me", (one.replace("_1-", "_9-"),), 404),
        ):
            with pytest.raises(RequestFailed) as failed:
                await world.respond(dialect, decided(dialect, both[0], *ids), caller)
            assert failed.value.error.status == status
        assert effects(world.folder) == []
        # A position that nobody was told shows another part of the run, and decides the same.
        last = await world.respond(
            dialect, decided(dialect, both[0], f"{one.partition('-')[0]}-999")
        )
        assert (last.text, len(effects(world.folder))) == ("Done.", 1)

    play("sqlite", tmp_path, script, scene, agent=family(tmp_path))


# What the client answers

TOOL_SCHEMA = {"type": "object", "properties": {"q": {"type": "integer"}}}


def with_tools(dialect: str) -> dict[str, Any]:
    """A request that brings a tool of the client."""
    function = {"name": "mine", "description": "Mine.", "parameters": TOOL_SCHEMA}
    tools: dict[str, Any] = {
        "openai-responses": [{"type": "function", **function}],
        "openai-chat": [{"type": "function", "function": function}],
        "anthropic-messages": [{"name": "mine", "input_schema": TOOL_SCHEMA}],
        "gemini": [{"functionDeclarations": [function]}],
    }
    return {**BODIES[dialect], "tools": tools[dialect]}


def answered(dialect: str, made: ToolCall, output: str) -> dict[str, Any]:
    """The next request of a client that sends everything: its call, and the output of it."""
    body = with_tools(dialect)
    id, arguments = made.id, json.loads(made.params)
    match dialect:
        case "openai-responses":
            item = {"type": "function_call", "call_id": id, "name": "mine", "arguments": "{}"}
            result = {"type": "function_call_output", "call_id": id, "output": output}
            asked = {"type": "message", "role": "user", "content": "Go."}
            return body | {"input": [asked, item, result]}
        case "openai-chat":
            function = {"name": "mine", "arguments": made.params}
            calls = [{"id": id, "type": "function", "function": function}]
            turns = [{"role": "assistant", "content": None, "tool_calls": calls},
                     {"role": "tool", "tool_call_id": id, "content": output}]  # fmt: skip
            return body | {"messages": [*body["messages"], *turns]}
        case "anthropic-messages":
            use = {"type": "tool_use", "id": id, "name": "mine", "input": arguments}
            block = {"type": "tool_result", "tool_use_id": id, "content": output}
            turns = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [block]}]
            return body | {"messages": [*body["messages"], *turns]}
        case _:
            part = {"functionCall": {"id": id, "name": "mine", "args": arguments}}
            answer = {"id": id, "name": "mine", "response": {"output": output}}
            turns = [{"role": "model", "parts": [part]},
                     {"role": "user", "parts": [{"functionResponse": answer}]}]  # fmt: skip
            return body | {"contents": [*body["contents"], *turns]}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_output_of_a_clients_tool_continues_the_same_run(
    dialect: DialectName, tmp_path: Path
) -> None:
    script = by_turn(calls(call(0, "c", "mine", {"q": 1}), call(1, "d", "look", {"at": "x"})),
                     text("Thanks."))  # fmt: skip

    async def scene(world: AgentWorld) -> None:
        first = await world.respond(dialect, with_tools(dialect))
        [made] = [one for one in first.tool_calls if not one.provider_executed]
        assert (made.name, json.loads(made.params)) == ("mine", {"q": 1})
        assert first.finish_reason == "tool-calls"
        body = answered(dialect, made, "42")
        for _ in range(2):  # the same answer once more gives the same segment
            second = await world.respond(dialect, body)
            assert (second.text, second.finish_reason) == ("Thanks.", "stop")
        [row] = (await world.store.runs("me")).runs
        assert row.status == "finished"
        results = [one for one in world.upstream.requests[-1]["messages"] if one["role"] == "tool"]
        assert [one["content"] for one in results] == ["42", "x is fine"]
        assert len(world.upstream.requests) == 2
        with pytest.raises(RequestFailed) as failed:
            await world.respond(dialect, body, caller="somebody else")
        assert failed.value.error.status == 404
        with pytest.raises(RequestFailed) as failed:
            await world.respond(dialect, answered(dialect, made, "another"))
        assert failed.value.error.status == 409

    play("sqlite", tmp_path, script, scene)


@KINDS
@pytest.mark.parametrize("approved", [True, False])
def test_an_approval_of_the_responses_api_continues_the_run(
    approved: bool, kind: Kind, tmp_path: Path
) -> None:
    made = calls(call(0, "a", "fire", {"who": "Al"}), call(1, "b", "fire", {"who": "Bo"}))

    async def scene(world: AgentWorld) -> None:
        first = await world.respond("openai-responses", BODIES["openai-responses"])
        asked = [one.approval_id for one in first.items if isinstance(one, ToolApprovalRequest)]
        assert (len(asked), first.finish_reason) == (2, "tool-calls")
        answers = [
            {"type": "mcp_approval_response", "approval_request_id": id, "approve": approved}
            for id in asked
        ]
        second = await world.respond("openai-responses", {"model": "helper", "input": answers})
        assert (second.text, second.finish_reason) == ("OK", "stop")
        assert len(effects(world.folder)) == (2 if approved else 0)
        named = [one.approval_request_id for one in second.tool_calls]
        assert sorted(map(str, named)) == (sorted(asked) if approved else [])

    play(kind, tmp_path, by_turn(made, text("OK")), scene)


def test_what_the_user_says_beside_an_answer_is_heard(tmp_path: Path) -> None:
    script = by_turn(calls(call(0, "c", "mine", {"q": 1})), text("Thanks."))

    async def scene(world: AgentWorld) -> None:
        first = await world.respond("openai-responses", with_tools("openai-responses"))
        body = answered("openai-responses", first.tool_calls[0], "42")
        body["input"].append({"role": "user", "content": "And be quick."})
        for _ in range(2):
            assert (await world.respond("openai-responses", body)).text == "Thanks."
        roles = [one["role"] for one in world.upstream.requests[-1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "user"]
        assert len(world.upstream.requests) == 2

    play("sqlite", tmp_path, script, scene)


def test_what_the_user_says_beside_an_answer_is_heard_once(tmp_path: Path) -> None:
    """Also if the client asks again while the call is under way."""
    opened = asyncio.Event()

    @tool(approval="always")
    async def fire(who: str) -> str:
        await opened.wait()
        return f"{who} is fired"

    async def scene(world: AgentWorld) -> None:
        dialect: DialectName = "openai-responses"
        first = await world.respond(dialect, BODIES[dialect])
        body = decided(dialect, first, *approvals_in(first))
        body["input"].append({"role": "user", "content": "And be quick."})
        both = [world.run(dialect, body) for _ in range(2)]
        streams = [await run.open() for run in both]
        opened.set()
        for run, stream in zip(both, streams, strict=True):
            while await stream.next():
                pass
            await run.close()
        said = [one["content"] for one in world.upstream.requests[-1]["messages"]]
        assert said.count("And be quick.") == 1

    script = by_turn(calls(call(0, "a", "fire", {"who": "Bob"})), text("Done."))
    agent = Agent("helper", "m/m", "Help.", [fire])
    play("sqlite", tmp_path, script, scene, agent=agent)


def test_what_the_user_says_beside_an_answer_is_heard_once_if_the_answer_was_lost(
    tmp_path: Path,
) -> None:
    async def scene(world: AgentWorld) -> None:
        dialect: DialectName = "openai-responses"
        first = await world.respond(dialect, BODIES[dialect])
        body = decided(dialect, first, *approvals_in(first))
        body["input"].append({"role": "user", "content": "And be quick."})
        world.store.lose("approval.decided")
        with pytest.raises(RequestFailed):
            await world.respond(dialect, body)
        assert (await world.respond(dialect, body)).text == "Done."
        said = [one["content"] for one in world.upstream.requests[-1]["messages"]]
        assert said.count("And be quick.") == 1

    script = by_turn(calls(call(0, "a", "fire", {"who": "Bob"})), text("Done."))
    play("sqlite", tmp_path, script, scene)


def test_the_next_run_knows_what_the_one_before_has_done(tmp_path: Path) -> None:
    """A client that sends everything back gets a new run, whose model reads its own calls."""

    async def scene(world: AgentWorld) -> None:
        run = world.run("openai-responses", BODIES["openai-responses"], stream=False)
        _, body = await (await run.open()).read_body()
        await run.close()
        output = json.loads(body)["output"]
        assert [one["type"] for one in output] == ["mcp_call", "message"]
        stale = [
            {"type": "mcp_approval_request", "id": "x", "name": "n", "server_label": "helper",
             "arguments": "{}"},
            {"type": "mcp_approval_response", "approval_request_id": "x", "approve": True},
            {"type": "message", "role": "user", "content": "Again."},
        ]  # fmt: skip
        asked = {"type": "message", "role": "user", "content": "Go."}
        again = {"model": "helper", "input": [asked, *output, *stale], "instructions": "Be brief."}
        assert (await world.respond("openai-responses", again)).text == "Fine."
        messages = world.upstream.requests[-1]["messages"]
        said = [(one["role"], one.get("content")) for one in messages if one["role"] != "system"]
        assert ("tool", "it is fine") in said
        assert said[-1] == ("user", "Again.")
        assert "Be brief." in json.dumps(messages)
        assert len((await world.store.runs("me")).runs) == 2

    play("sqlite", tmp_path, by_turn(LOOK, text("Fine.")), scene)


def test_only_the_agents_own_calls_become_those_of_functions() -> None:
    theirs = Raw(b'{"type":"mcp_call","id":"m","name":"n","server_label":"far","arguments":"{}"}')
    broken = Raw(b'{"type":"mcp_call","id":7}')
    bare = Raw(b'{"role":"user","content":"."}')
    assert input_of_run([theirs, broken, bare], "helper") == [theirs, broken, bare]


class LostStore(KillingStore):
    """A store that has lost its database."""

    async def create_run(self, new: NewRun) -> str:
        raise StoreError("no connection", "lost")

    async def run(self, id: str) -> RunRow | None:
        raise StoreError("no connection", "lost")


def test_a_store_that_fails_is_an_upstream_that_cannot_be_reached(tmp_path: Path) -> None:
    async def main() -> None:
        store = LostStore(empty("sqlite", tmp_path), Places())
        runtime = AgentRuntime(store, [Agent("helper", "m/m")], NoModels())
        upstream = RunUpstream(runtime, Persistence(store))
        with pytest.raises(Unreachable):
            await upstream.send(OutgoingRequest("/responses", b'{"model":"helper","input":"."}'))
        start = SegmentStart("run_1", RunState("run_1"))
        stream = SegmentStream(
            runtime, Persistence(store), start, ResponseMetadata("r"), label="helper"
        )
        response = SegmentResponse(stream, Context(), "run_1", lambda: None)
        with pytest.raises(Unreachable):
            await response.read()
        response.abort()
        await runtime.close()

    asyncio.run(main())


def test_answers_that_fit_no_run_are_refused(tmp_path: Path) -> None:
    async def scene(world: AgentWorld) -> None:
        first = await world.respond("openai-responses", with_tools("openai-responses"))
        [made] = first.tool_calls
        run = made.id.rpartition("_")[0]
        unknown = f"run_{'0' * 32}_1"
        for ids, status in (
            ([f"{run}_7"], 404),
            ([unknown], 404),
            ([made.id, unknown], 400),
        ):
            outputs = [{"type": "function_call_output", "call_id": id, "output": "1"} for id in ids]
            with pytest.raises(RequestFailed) as failed:
                await world.respond("openai-responses", {"model": "helper", "input": outputs})
            assert failed.value.error.status == status
        approval = {"type": "mcp_approval_response", "approval_request_id": made.id,
                    "approve": True}  # fmt: skip
        with pytest.raises(RequestFailed) as failed:
            await world.respond("openai-responses", {"model": "helper", "input": [approval]})
        assert failed.value.error.status == 400

    play("sqlite", tmp_path, by_turn(calls(call(0, "c", "mine", {"q": 1}))), scene)


def test_an_attempt_that_fails_is_made_again_in_the_same_response(tmp_path: Path) -> None:
    answers: list[Chunks | int] = [500, text("Here.")]

    async def scene(world: AgentWorld) -> None:
        response = await world.respond("openai-responses", BODIES["openai-responses"])
        assert (response.text, response.finish_reason) == ("Here.", "stop")
        [row] = (await world.store.runs("me")).runs
        interrupted = await world.store.run_events(row.id, kinds=["turn.interrupted"])
        assert len(interrupted) == 1

    play("sqlite", tmp_path, lambda messages: answers.pop(0), scene)


def test_a_run_that_fails_is_an_error(tmp_path: Path) -> None:
    async def scene(world: AgentWorld) -> None:
        with pytest.raises(RequestFailed, match="failed 2 times"):
            await world.respond("openai-responses", BODIES["openai-responses"])
        assert len((await world.store.runs("me")).runs) == 1, "a second attempt is a second run"

    play("sqlite", tmp_path, by_turn(500), scene)


def test_an_agent_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    async def scene(world: AgentWorld) -> None:
        upstream = world.routing.upstreams[CONFIG.name]
        response = await upstream.send(OutgoingRequest("/responses", b'{"model":"x","input":"."}'))
        assert response.status == 404
        assert b"no agent 'x'" in await response.read()
        assert await response.read() == b""
        count = OutgoingRequest("/responses/input_tokens", b'{"model":"helper","input":"."}')
        assert (await upstream.send(count)).status == 404
        assert (await world.store.runs("")).runs == []

    play("sqlite", tmp_path, by_turn(text("")), scene)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tools": [{"type": "function", "name": "look", "parameters": {}}]}, "look"),
        ({"tools": [{"type": "custom", "name": "x"}]}, "tools[0]: custom tools are not supported"),
        ({"tool_choice": "required"}, "tool_choice: an agent chooses"),
        ({"tool_choice": {"type": "function", "name": "look"}}, "tool_choice: an agent chooses"),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
            "text.format: json-schema output is not supported",
        ),
    ],
)
def test_what_an_agent_cannot_do_is_refused(
    more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    async def scene(world: AgentWorld) -> None:
        with pytest.raises(RequestFailed) as failed:
            await world.respond("openai-responses", {**BODIES["openai-responses"], **more})
        assert failed.value.error.status == 400
        assert message in failed.value.error.message
        assert (await world.store.runs("me")).runs == []

    play("sqlite", tmp_path, by_turn(text("")), scene)


FORECAST = {"type": "object", "properties": {"sky": {"type": "string"}}}
OUTPUT = "json-schema output is not supported; expected text"
CHOICE = "an agent chooses its tools itself; expected auto or none"


@pytest.mark.parametrize(
    ("dialect", "more", "message"),
    [
        (
            "openai-chat",
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": FORECAST},
                }
            },
            OUTPUT,
        ),
        (
            "anthropic-messages",
            {"output_config": {"format": {"type": "json_schema", "schema": FORECAST}}},
            OUTPUT,
        ),
        (
            "gemini",
            {
                "generationConfig": {
                    "responseMimeType": "application/json",
                    "responseJsonSchema": FORECAST,
                }
            },
            OUTPUT,
        ),
        (
            "gemini",
            {
                "tools": [{"functionDeclarations": [{"name": "mine"}]}],
                "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            },
            CHOICE,
        ),
    ],
)
def test_a_refusal_names_no_field_that_the_dialect_of_the_client_lacks(
    dialect: DialectName, more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    async def scene(world: AgentWorld) -> None:
        with pytest.raises(RequestFailed) as failed:
            await world.respond(dialect, {**BODIES[dialect], **more})
        assert (failed.value.error.status, failed.value.error.message) == (400, message)
        assert (await world.store.runs("me")).runs == []

    play("sqlite", tmp_path, by_turn(text("")), scene)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("dialect", "more"),
    [
        *((dialect, {}) for dialect in DIALECTS),
        # Forwarded, and encoded anew.
        ("openai-responses", {"metadata": {"mine": "yes", "weft_run": "run_of_somebody_else"}}),
        ("openai-responses", {"include": ["required_action"]}),
    ],
)
def test_a_response_names_its_run(
    tmp_path: Path, dialect: DialectName, more: dict[str, Any], stream: bool
) -> None:
    async def scene(world: AgentWorld) -> None:
        run = world.run(dialect, BODIES[dialect] | more, stream=stream)
        opened = await run.open()
        sent = b""
        while events := await opened.next():
            sent += b"".join(event.data for event in events)
        await run.close()
        [row] = (await world.store.runs("me")).runs
        assert (b"weft-run", row.id.encode()) in weft_headers("req", run)
        if dialect != "openai-responses":
            return
        [entry] = [one for one in await world.store.newest("me", 9) if one.visible]
        named = {**more.get("metadata", {}), "weft_run": row.id}
        assert json.loads(entry.body or b"")["metadata"] == named
        shown = f'"metadata":{json.dumps(named, separators=(",", ":"))}'.encode()
        assert sent.count(shown) == sent.count(b'"metadata":') == (3 if stream else 0)

    play("sqlite", tmp_path, by_turn(text("Fine.")), scene)


def test_tools_that_the_client_forbids_are_not_offered(tmp_path: Path) -> None:
    async def scene(world: AgentWorld) -> None:
        body = {**with_tools("openai-responses"), "tool_choice": "none", "metadata": {"k": "v"}}
        assert (await world.respond("openai-responses", body)).text == "Fine."
        offered = [one["function"]["name"] for one in world.upstream.requests[0]["tools"]]
        assert "look" in offered
        assert "mine" not in offered
        [row] = (await world.store.runs("me")).runs
        [created] = await world.store.run_events(row.id, kinds=["run.created"])
        assert b'"metadata":{"k":"v"}' in bytes(created.body)

    play("sqlite", tmp_path, by_turn(text("Fine.")), scene)


# While it runs


def waiting_agent(going: asyncio.Event) -> Agent:
    """Its tool waits until somebody lets it go on."""

    @tool(retry="pure")
    async def wait(context: ToolContext) -> str:
        """Waits."""
        await going.wait()
        return "waited"

    return Agent("helper", "m/m", "Help.", [wait])


TALKING: list[dict[str, object]] = [
    {"delta": {"role": "assistant", "content": "I wait."}},
    *calls(call(0, "a", "wait", {})),
]


def test_what_the_model_says_is_there_before_its_tools_have_run(tmp_path: Path) -> None:
    going = asyncio.Event()

    async def scene(world: AgentWorld) -> None:
        run = world.run("openai-responses", BODIES["openai-responses"])
        stream = await run.open()
        raw = b""
        while b"mcp_call.in_progress" not in raw:
            raw += b"".join(event.data for event in await stream.next())
        assert b"I wait." in raw
        going.set()
        while events := await stream.next():
            raw += b"".join(event.data for event in events)
        await run.close()
        assert b'"output":"waited"' in raw
        id = stream.log_id
        assert id is not None
        entry = await world.store.entry(id)
        assert entry is not None
        assert entry.status == "completed"

    play("sqlite", tmp_path, by_turn(TALKING, text("Done.")), scene, agent=waiting_agent(going))


def test_a_client_that_goes_away_cancels_the_run(tmp_path: Path) -> None:
    async def scene(world: AgentWorld) -> None:
        run = world.run("openai-responses", BODIES["openai-responses"])
        stream = await run.open()
        await stream.next()
        await run.close()
        [row] = (await world.store.runs("me")).runs
        async for event in world.runtime.events(row.id):
            last = event.kind
        assert last == "run.cancelled"

    agent = waiting_agent(asyncio.Event())
    play("sqlite", tmp_path, by_turn(TALKING, text("Done.")), scene, agent=agent)


@pytest.mark.parametrize("stops", [True, False])
def test_a_read_of_a_response_that_is_aborted_says_so(stops: bool, tmp_path: Path) -> None:
    """A process that stops leaves its runs to others."""
    going = asyncio.Event()

    async def scene(world: AgentWorld) -> None:
        upstream = world.routing.upstreams[CONFIG.name]
        assert isinstance(upstream, RunUpstream)
        body = b'{"model":"helper","input":"Go."}'
        response = await upstream.send(OutgoingRequest("/responses", body, caller="me"))
        raw = b""
        while b"mcp_call.in_progress" not in raw:
            raw += await response.read()
        reading = asyncio.create_task(response.read())
        await asyncio.sleep(0)
        if stops:
            upstream.stop()
        response.abort()
        response.abort()
        with pytest.raises(Unreachable):
            await reading
        assert await response.read() == b""
        await upstream.close()
        [row] = (await world.store.runs("me")).runs
        assert row.status == ("running" if stops else "cancelled")
        going.set()

    agent = waiting_agent(going)
    play("sqlite", tmp_path, by_turn(TALKING, text("Done.")), scene, agent=agent)


def test_a_cancelled_run_ends_its_response(tmp_path: Path) -> None:
    async def scene(world: AgentWorld) -> None:
        run = world.run("openai-responses", BODIES["openai-responses"])
        stream = await run.open()
        [row] = (await world.store.runs("me")).runs
        await world.runtime.cancel(row.id, by="me")
        while await stream.next():
            pass
        await run.close()
        assert stream.response.error is not None
        assert stream.response.error.kind == "cancelled"

    agent = waiting_agent(asyncio.Event())
    play("sqlite", tmp_path, by_turn(TALKING, text("Done.")), scene, agent=agent)


@KINDS
def test_the_run_may_be_worked_on_by_another_process(kind: Kind, tmp_path: Path) -> None:
    """Here by another runtime, with a store and logs of its own."""
    url = empty(kind, tmp_path)

    async def main(model: AgentUpstream) -> None:
        async with agent_world(url, model, tmp_path, family(tmp_path), True) as worker:
            store = KillingStore(url, Places())
            persistence = Persistence(store)
            sessions = Sessions(persistence, policy=RetentionPolicy(lease=LASTING))
            await sessions.start(())
            # Not entered: it starts runs, and works on none.
            runtime = AgentRuntime(store, worker.runtime.agents.values(), NoModels())
            agents = RunUpstream(runtime, persistence)
            routing = Routing({CONFIG.name: agents}, {"helper": (f"{CONFIG.name}/helper",)})
            world = AgentWorld(runtime, store, model, tmp_path, persistence, routing)
            dialect: DialectName = "openai-chat"
            first = await world.respond(dialect, BODIES[dialect])
            assert (first.text, first.finish_reason) == ("All is fine.", "stop")
            asks = await world.respond(dialect, in_words(dialect, first.text, "Ask the child."))
            response = await world.respond(dialect, decided(dialect, asks, *approvals_in(asks)))
            assert (response.text, len(effects(tmp_path))) == ("Bob is gone, too.", 2)
            await agents.close()
            await runtime.close()
            await sessions.close()

    script = by_agent(
        H=by_turn(LOOK, text("All is fine."), text("Bob is gone, too.")),
        C=by_turn(FIRE, text("Bob is gone.")),
    )

    def two_runs(messages: list[dict[str, Any]]) -> Chunks | int:
        """The second run of the agent begins with what the first one has said."""
        is_second = messages[-1]["content"] == "Ask the child."
        return ask_child("a") if is_second else script(messages)

    with agent_upstream(two_runs) as model:
        asyncio.run(main(model))


class NoModels:
    async def respond(self, request: TurnRequest, finish: FinishTurn) -> None:
        raise AssertionError("this process works on no run")


# Over HTTP

GATEWAY = """
[server.keys]
me = "key-of-mine-0123456789"
[store]
url = "sqlite:///runs.db"
[upstreams.demo]
dialect = "anthropic-messages"
base_url = "demo:fast"
[agents.helper]
model = "demo/chat"
"""


def test_an_agent_is_a_model_of_the_gateway(tmp_path: Path) -> None:
    key = "key-of-mine-0123456789"
    with gateway(GATEWAY, tmp_path) as served:
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=0)
        assert "helper" in [one.id for one in client.models.list()]
        with client.responses.stream(model="helper", input="Go.") as stream:
            final = stream.get_final_response()
        assert final.output_text
        assert (final.status, final.model) == ("completed", "helper")
        assert client.responses.retrieve(final.id).output_text == final.output_text
        told = client.chat.completions.create(
            model="helper", messages=[{"role": "user", "content": "Go."}]
        )
        assert told.choices[0].message.content
        again = client.responses.create(
            model="helper", input="Again.", previous_response_id=final.id, background=True
        )
        while again.status in ("queued", "in_progress"):
            again = client.responses.retrieve(again.id)
        assert (again.status, bool(again.output_text)) == ("completed", True)
        client.close()
        headers = {"authorization": f"Bearer {key}"}
        runs = httpx2.get(f"{served.url}/v1/runs", headers=headers).json()["data"]
        assert [one["status"] for one in runs] == ["finished"] * 3
