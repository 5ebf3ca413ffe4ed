"""Streams that the fuzzer of stored answers found: each was a false alarm of the audit, or made
Weft tell its client something else than it stored.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator

import pytest

from tests.faults.wires import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.stored_logs import audit_log
from tests.test_stored_equals_streamed import World


def chat(*deltas: object) -> bytes:
    chunks = [{"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in chunks)


def call(index: int, arguments: str, **named: str) -> object:
    function = {"arguments": arguments} | ({"name": named["name"]} if "name" in named else {})
    own = {"id": named["id"]} if "id" in named else {}
    return {"tool_calls": [{"index": index, **own, "function": function}]}


def typed(*events: dict[str, object], bare: int = -1) -> bytes:
    """Events that are named by their type, and numbered; the data of the one at `bare` has no
    type."""
    frames = []
    for at, event in enumerate(events):
        event = {"sequence_number": at, **event}
        data = {key: value for key, value in event.items() if at != bare or key != "type"}
        frames.append(f"event: {event['type']}\ndata: {json.dumps(data)}\n\n")
    return "".join(frames).encode()


def response(**fields: object) -> dict[str, object]:
    return {"id": "resp_1", "object": "response", "status": "in_progress", "model": "m",
            "output": [], "store": True, **fields}  # fmt: skip


CREATED: dict[str, object] = {"type": "response.created", "response": response()}
ADDED = "response.output_item.added"
DONE = "response.output_item.done"
CALLED = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "look"}
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
WARP = {"type": "output_text", "text": "Warp", "annotations": []}
FULL = {**SAID, "status": "completed", "content": [WARP]}
CODE = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1", "code": ""}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
PROVEN = b64encode(b'{"signature":"s","call":"c"}').decode()
PROOF = {**THOUGHT, "encrypted_content": f"weft1:openai-chat:m:{PROVEN}"}
TAGGED = {**FULL, "content": [{**WARP, "text": "<think>x</think>"}]}
LATE = {**THOUGHT, "summary": [{"type": "summary_text", "text": "threads"}]}


def summary(number: int, type: str, index: int, **fields: object) -> dict[str, object]:
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": index}
    type = f"response.reasoning_summary_{type}"
    return {"type": type, **place, **fields, "sequence_number": number}


def block(index: int, type: str, **fields: object) -> dict[str, object]:
    return {"type": f"content_block_{type}", "index": index, **fields}


RED = {"type": "input_json_delta", "partial_json": '{"c":"red"}'}
USED = {"type": "tool_use", "id": "c", "name": "dye", "input": {}}

FOUND: dict[str, tuple[str, str, bytes]] = {
    "quoted arguments that an error cut": (
        CHAT, GEMINI, chat(call(0, '"{\\"n\\":1}"', id="c", name="wind"))
    ),
    "empty arguments that an error cut, and text behind them": (
        CHAT, MESSAGES, chat(call(0, "{}", id="c", name="rest"), {"content": "Warp"})
    ),
    "arguments that come twice": (
        MESSAGES,
        CHAT,
        typed(block(0, "start", content_block=USED), *[block(0, "delta", delta=RED)] * 2),
    ),
    "a proof that comes with the start of a call": (
        RESPONSES,
        CHAT,
        typed(
            CREATED,
            {"type": DONE, "output_index": 0, "item": PROOF},
            {"type": ADDED, "output_index": 1, "item": {**CALLED, "arguments": ""}},
        ),
    ),
    "half a character of code": (
        RESPONSES,
        RESPONSES,
        typed(
            {"type": ADDED, "output_index": 1, "item": CODE},
            {
                "type": "response.code_interpreter_call_code.delta",
                "output_index": 1,
                "delta": "\ud83e",
            },
        ),
    ),
    "a think tag before reasoning that comes late": (
        RESPONSES,
        CHAT,
        typed(
            {"type": ADDED, "output_index": 0, "item": THOUGHT},
            {"type": DONE, "output_index": 1, "item": TAGGED},
            {
                "type": "response.completed",
                "response": response(status="completed", output=[LATE, TAGGED]),
            },
        ),
    ),
    "the end of an item without a type": (
        RESPONSES,
        RESPONSES,
        typed(
            CREATED,
            {"type": ADDED, "output_index": 0, "item": SAID},
            {
                "type": "response.output_text.delta",
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "delta": "Warp",
            },
            {"type": DONE, "output_index": 0, "item": FULL},
            bare=3,
        ),
    ),
    "a summary that overlaps another": (
        RESPONSES,
        RESPONSES,
        typed(
            CREATED,
            {"type": ADDED, "output_index": 0, "item": THOUGHT},
            summary(6, "part.added", 1, part={"type": "summary_text", "text": ""}),
            summary(5, "part.done", 0, part={"type": "summary_text", "text": "Warp."}),
            summary(7, "text.delta", 1, delta="Weft."),
        ),
    ),
    "the last event in an array": (
        RESPONSES,
        RESPONSES,
        typed(
            CREATED,
            {"type": ADDED, "output_index": 0, "item": {**CALLED, "arguments": ""}},
            {"type": "response.function_call_arguments.delta", "output_index": 0,
             "item_id": "fc_1", "delta": "{}"},
            {"type": DONE, "output_index": 0, "item": {**CALLED, "arguments": "{}"}},
        )
        + b"event: response.completed\ndata: ["
        + json.dumps(
            {
                "type": "response.completed",
                "sequence_number": 4,
                "response": response(status="completed", output=[{**CALLED, "arguments": "{}"}]),
            }
        ).encode()
        + b"]\n\n",
    ),
}  # fmt: skip
"""Upstream, client, and bytes of the upstream."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with asyncio.Runner() as runner:
        made = World(runner, tmp_path_factory.mktemp("found"))
        yield made
        runner.run(made.store.close())


@pytest.mark.parametrize("case", FOUND)
def test_streams_that_once_raised_a_false_alarm_are_clean(world: World, case: str) -> None:
    upstream, client, said = FOUND[case]
    told, id = world.runner.run(world.send_bytes(said, upstream, client, stream=True))
    entry, blocks = world.runner.run(world.stored(id or ""))
    world.runner.run(world.store.delete("", entry.id))  # others have this id too
    assert b"data: [{" not in told
    assert audit_log(entry, blocks) == []
