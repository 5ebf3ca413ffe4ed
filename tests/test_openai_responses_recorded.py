"""Responses streams as servers sent them, and any mixture of their events.

The recorded ones stand beside the repository; where they are absent there is nothing to check.
"""

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.captures import lines
from tests.recordings import FIXTURES
from tests.responses_events import COMPLETED, CREATED, DIALECT, capture
from tests.strategies import FEW, QUICK, THOROUGH
from tests.tables import each_row
from weft import Context, Decoded, Decoder, Ids, Opaque, ReasoningItem, Response, decode_all
from weft.assembler import Assembler, TextItem
from weft.lifecycle import violations
from weft.parts import Part, Source, ToolApprovalRequest, ToolCall, ToolResult

FOLDERS = ("openai-responses", "azure", "xai-responses", "open-responses")
FILES = [
    path
    for folder in FOLDERS
    for path in sorted((FIXTURES / folder).glob("*"))
    if path.suffix in (".txt", ".json")
]
STREAMS = [path for path in FILES if path.suffix == ".txt"]

ALLOWED = {
    "openai-shell-container.1.chunks.txt": (
        "whole-contradicts",
        "made by hand: its deltas are the beginning and the end of the text",
    ),
    "xai-x-search-tool.1.json": ("event-unknown", "an item that no other server has: opaque"),
    "github-copilot-id-rotation.1.chunks.txt": (
        "response-id-changed item-id-contradicted",
        "it has another id in every event",
    ),
    "openai-client-tool-search.1.chunks.txt": (
        "call-id-changed",
        "its search has another call_id when it is done; official clients refuse that",
    ),
    "lmstudio-tool-call.2.chunks.txt": (
        "whole-extends",
        "its arguments come only when they are done",
    ),
}
"""What is noted in a recorded stream, and why. In all others nothing is."""


@cache
def recorded(path: Path) -> bytes:
    """A stream as its server sent it, or a body."""
    data = path.read_bytes()
    if path.suffix == ".json":
        return data
    lines = [line for line in data.splitlines() if line.strip()]
    return b"".join(b"data: %b\n\n" % line for line in lines) + b"data: [DONE]\n\n"


def events_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


@each_row("path", FILES, ids=lambda path: path.name)
def test_a_recorded_stream_is_legal_and_leaves_no_finding(path: Path) -> None:
    found = decode_all(recorded(path), DIALECT)
    codes = [finding.code for one in found for finding in one.response.findings]
    allowed = ALLOWED.get(path.name)
    assert codes == (allowed[0].split() if allowed else [])
    for one in found:
        assert violations(one.parts, Assembler()) == []
        failed = "error" in path.name
        assert (one.response.finish_reason == "error") is failed


def plain(response: Response) -> list[Any]:
    """What a response says, without the ids that a server may change or that are minted. Items
    that overlap have their results in the order of their ends: those come last here.
    """
    told = [one for item in response.items if (one := _plain(item)) is not None]
    results = sorted((one for one in told if one[0] == "result"), key=json.dumps)
    return [one for one in told if one[0] != "result"] + results


def _plain(one: object) -> list[Any] | None:
    match one:
        case ToolCall(provider_executed=hosted):
            params = one.params if one.format == "text" else _veiled(json.loads(one.params))
            return ["call", None if hosted else one.id, one.name, one.kind, params, one.invalid]
        case ToolResult(preliminary=False):
            return ["result", json.loads(bytes(one.result)), one.is_error]
        case TextItem():
            annotations = [json.loads(bytes(raw)) for raw in one.annotations]
            return ["text", one.text, one.phase, annotations]
        case ReasoningItem():
            return ["reasoning", one.text, one.kind, one.encrypted is not None]
        case Opaque():
            return ["opaque", one.kind, _veiled(json.loads(bytes(one.raw)))]
        case Source():
            return ["source", one.kind, one.url, one.file_id, one.title, one.start, one.end]
        case ToolApprovalRequest():
            return ["approval", one.approval_id]
    return None


def _veiled(value: dict[str, Any]) -> dict[str, Any]:
    """A value without what a server encrypts anew each time it tells it."""
    return {key: value[key] for key in value if key not in ("encrypted_content", "fingerprint")}


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_a_recorded_stream_equals_its_last_snapshot(path: Path) -> None:
    ends = [event["response"] for event in events_of(path) if event["type"] in _ENDS]
    found = decode_all(recorded(path), DIALECT)
    assert len(ends) == len(found)
    for one, end in zip(found, ends, strict=True):
        (whole,) = decode_all(json.dumps(end).encode(), DIALECT)
        if path.name == "openai-shell-container.1.chunks.txt":
            continue  # its texts differ
        assert plain(one.response) == plain(whole.response)
        assert one.response.finish_reason == whole.response.finish_reason
        assert one.response.usage == whole.response.usage


_ENDS = ("response.completed", "response.incomplete", "response.failed")


def printed(decoder: Decoder, pieces: list[bytes]) -> tuple[list[Part], list[object]]:
    parts = [part for piece in pieces for part in decoder.feed(piece)]
    return [*parts, *decoder.finish()], [*decoder.findings]


SHORT = [path for path in STREAMS if path.stat().st_size < 50_000]


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.name)
@FEW
@given(data=st.data())
def test_where_the_network_cuts_a_recorded_stream_changes_nothing(
    path: Path, data: st.DataObject
) -> None:
    raw = recorded(path)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=9)))
    pieces = [raw[start:end] for start, end in pairwise([0, *cuts, len(raw)])]
    assert printed(_decoder(), pieces) == printed(_decoder(), [raw])


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_a_recorded_stream_may_come_in_small_pieces(path: Path) -> None:
    raw = recorded(path)
    size = 1 if path in SHORT else 97
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert printed(_decoder(), pieces) == printed(_decoder(), [raw])


def _decoder() -> Decoder:
    return Decoder(DIALECT, context=Context(ids=Ids(b"recorded")))


# The way back: params, result and extra together are the item

STATUSLESS = frozenset({"program", "mcp_approval_request"})


def rebuilt(found: Decoded) -> list[dict[str, Any]]:
    """The items of a response, from what its parts hold of them."""
    items: list[dict[str, Any]] = []
    by_call: dict[str, dict[str, Any]] = {}
    for part in found.parts:
        if isinstance(part, Opaque):
            items.append(json.loads(bytes(part.raw)))
        elif isinstance(part, ToolCall):
            by_call[part.id] = item = _called(part)
            items.append(item)
        elif isinstance(part, ToolResult) and not part.preliminary:
            kept, told = _kept(part.extra), json.loads(bytes(part.result))
            if "type" in kept:
                items.append({"call_id": part.id, "status": "completed", **told, **kept})
            else:
                told.pop("type", None)
                by_call[part.id].update({**told, **kept})
    return items


def _kept(extra: Raw | Any) -> dict[str, Any]:
    return {} if extra is UNSET else dict(json.loads(bytes(extra))["item"])


def _called(call: ToolCall) -> dict[str, Any]:
    kept = _kept(call.extra)
    item: dict[str, Any] = {"type": _TYPES.get(call.kind, call.kind), "id": call.item_id}
    if call.kind not in STATUSLESS:
        item["status"] = "completed"
    if call.kind in _WITH_CALL_ID and call.id != call.item_id:
        item["call_id"] = call.id
    item.update(_PARAMS[call.kind](call) if call.kind in _PARAMS else json.loads(call.params))
    item.update({key: value for key, value in _fields(call).items() if value is not None})
    return {**item, **kept}


def _fields(call: ToolCall) -> dict[str, Any]:
    named = call.kind in ("function", "custom", "mcp_call", "mcp_approval_request")
    approval = call.approval_request_id if call.kind == "mcp_call" else None
    return {
        "name": call.name if named else None,
        "namespace": call.namespace,
        "server_label": call.server_label,
        "approval_request_id": approval,
    }


_TYPES = {"function": "function_call", "custom": "custom_tool_call"}
_WITH_CALL_ID = {"function", "custom", "shell_call", "local_shell_call", "computer_call",
                 "program", "tool_search_call"}  # fmt: skip
_PARAMS: dict[str, Callable[[ToolCall], dict[str, Any]]] = {
    "function": lambda call: {"arguments": call.params},
    "custom": lambda call: {"input": call.params},
    "mcp_call": lambda call: {"arguments": call.params},
    "mcp_approval_request": lambda call: {"arguments": call.params},
    "tool_search_call": lambda call: {"arguments": json.loads(call.params)},
}


@each_row("path", FILES, ids=lambda path: path.name)
def test_params_result_and_extra_together_are_the_item(path: Path) -> None:
    found = decode_all(recorded(path), DIALECT)
    again = {item["id"]: item for one in found for item in rebuilt(one)}
    for item in items_of(path):
        mine = again[item["id"]]
        if "arguments" in mine and item["type"] == "code_interpreter_call":
            mine = {key: value for key, value in mine.items() if key in item}
        if "status" not in item:
            mine.pop("status", None)
        if item.get("approval_request_id", "") is None:
            mine.setdefault("approval_request_id", None)
        assert mine == item


def items_of(path: Path) -> list[dict[str, Any]]:
    """The items that were done, without texts and thoughts."""
    if path.suffix == ".json":
        output = json.loads(path.read_bytes()).get("output", [])
    else:
        ends = [one for one in events_of(path) if one["type"] == "response.output_item.done"]
        output = [one["item"] for one in ends]
    return [item for item in output if item["type"] not in ("message", "reasoning")]


# Any mixture of events


def pool() -> dict[str, list[dict[str, Any]]]:
    """The events of one item of each type, as if they came in order."""

    def of(index: int, name: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"response.{name}", "output_index": index, "item_id": "i", **fields}

    def item(index: int, first: dict[str, Any], last: dict[str, Any], *between: Any) -> list[Any]:
        return [
            of(index, "output_item.added", item=first),
            *between,
            of(index, "output_item.done", item={**first, **last}),
        ]

    code = {"type": "code_interpreter_call", "id": "i", "container_id": "k"}
    change = {"type": "update_file", "path": "p"}
    patch = {"type": "apply_patch_call", "id": "i", "call_id": "c", "operation": change}
    delete = {**patch, "operation": {"type": "delete_file", "path": "p"}}
    image = {"type": "image_generation_call", "id": "i"}
    mcp = {"type": "mcp_call", "id": "i", "name": "n", "server_label": "s",
           "approval_request_id": "ask"}  # fmt: skip
    ask = {"type": "mcp_approval_request", "id": "ask", "name": "n", "arguments": "{}"}
    shell = {"type": "shell_call", "id": "i", "call_id": "s", "action": {"commands": ["ls"]}}
    printed = {"type": "shell_call_output", "id": "j", "call_id": "s"}
    screen = {"type": "computer_call", "id": "i", "call_id": "c"}
    search = {"type": "tool_search_call", "id": "i", "execution": "server", "arguments": {}}
    client = {**search, "execution": "client", "call_id": "c"}
    found = {"type": "tool_search_output", "id": "j", "tools": []}
    program = {"type": "program", "id": "i", "call_id": "c", "code": "", "fingerprint": "f"}
    reasoning = {"type": "reasoning", "id": "i", "summary": []}
    call = {"type": "function_call", "id": "i", "call_id": "c", "name": "n"}
    custom = {"type": "custom_tool_call", "id": "i", "call_id": "c", "name": "n"}
    message = {"type": "message", "id": "i"}
    cite = {"type": "url_citation", "url": "u"}
    interpreter = "code_interpreter_call_code"
    diff = "apply_patch_call_operation_diff"
    summary = "reasoning_summary"
    return {
        "code": item(0, code, {"code": "ab", "outputs": []},
            of(0, f"{interpreter}.delta", delta="a"), of(0, f"{interpreter}.delta", delta="\ud83d"),
            of(0, f"{interpreter}.done", code="ab")),
        "patch": item(0, patch, {"operation": {**change, "diff": "x"}},
            of(0, f"{diff}.delta", delta="x"), of(0, f"{diff}.done", diff="x")),
        "delete": item(0, delete, {"status": "completed"}, of(0, f"{diff}.done", diff="")),
        "image": item(0, image, {"result": "QQ=="},
            of(0, "image_generation_call.partial_image", partial_image_b64="QQ==")),
        "web": item(0, {"type": "web_search_call", "id": "i"}, {"action": {"type": "search"}}),
        "file": item(0, {"type": "file_search_call", "id": "i"}, {"queries": ["q"]}),
        "mcp": [*item(0, ask, {}), *item(1, mcp, {"arguments": "{}", "output": "o"},
            of(1, "mcp_call_arguments.delta", delta="{}"),
            of(1, "mcp_call_arguments.done", arguments="{}"))],
        "shell": [*item(0, shell, {}), *item(1, printed, {"output": []},
            of(1, "shell_call_output_content.delta", command_index=0, delta={"stdout": "x"}))],
        "local": item(0, {**shell, "type": "local_shell_call"}, {}),
        "computer": item(0, screen, {"action": {"type": "wait"}}),
        "search": [*item(0, search, {"arguments": {"a": 1}}), *item(1, found, {})],
        "client search": item(0, client, {"call_id": "d"}),
        "program": [*item(0, program, {"code": "x"}),
            *item(1, {"type": "program_output", "id": "j", "call_id": "c"}, {"result": "1"})],
        "reasoning": item(0, reasoning, {"encrypted_content": "e", "summary": [{"text": "ab"}]},
            of(0, f"{summary}_part.added", summary_index=0),
            of(0, f"{summary}_text.delta", summary_index=0, delta="a"),
            of(0, f"{summary}_part.done", summary_index=0, part={"text": "a"}),
            of(0, f"{summary}_part.added", summary_index=1),
            of(0, "reasoning_text.delta", content_index=0, delta="r")),
        "function": item(0, call, {"arguments": '{"a":1}'},
            of(0, "function_call_arguments.delta", delta='{"a":'),
            of(0, "function_call_arguments.delta", delta="1}"),
            of(0, "function_call_arguments.done", arguments='{"a":1}')),
        "custom": item(0, custom, {"input": "x"},
            of(0, "custom_tool_call_input.delta", delta="x"),
            of(0, "custom_tool_call_input.done", input="x")),
        "message": item(0, message, {"content": [{"type": "output_text", "text": "ab",
                                                  "annotations": [cite]}]},
            of(0, "content_part.added", content_index=0, part={"type": "output_text"}),
            of(0, "output_text.delta", content_index=0, delta="a"),
            of(0, "output_text.annotation.added", content_index=0, annotation=cite),
            of(0, "refusal.delta", content_index=1, delta="no"),
            of(0, "content_part.done", content_index=0, part={"type": "output_text", "text": "ab"}),
        ),
        "compaction": item(0, {"type": "compaction", "id": "i"}, {"encrypted_content": "e"}),
        "unknown": item(0, {"type": "surprise", "id": "i"}, {"x": 1}),
    }  # fmt: skip


POOL = pool()
ALL = [event for events in POOL.values() for event in events]
FAILURE = {"type": "error", "message": "no"}


def assert_legal(events: list[dict[str, Any]]) -> None:
    """Never raises, is always legal, and the second half of a stream cannot spoil it."""
    for one in decode_all(capture(*events), DIALECT):
        assert violations(one.parts, Assembler()) == []
        lines(one.parts).decode()


@pytest.mark.parametrize("name", POOL)
def test_the_events_of_an_item_in_order_leave_no_findings(name: str) -> None:
    assert_legal([CREATED, *POOL[name], COMPLETED])
    for end in range(len(POOL[name])):
        assert_legal([CREATED, *POOL[name][:end]])
        assert_legal([CREATED, *POOL[name][:end], FAILURE])
        assert_legal([CREATED, *POOL[name][:end], COMPLETED])
        assert_legal([CREATED, *POOL[name][end:], COMPLETED])


@pytest.mark.parametrize("name", POOL)
@QUICK
@given(data=st.data())
def test_the_events_of_an_item_in_any_order_are_legal(name: str, data: st.DataObject) -> None:
    events = data.draw(st.lists(st.sampled_from(POOL[name]), max_size=12))
    ends = data.draw(st.sampled_from([[COMPLETED], [], [FAILURE], [FAILURE, COMPLETED]]))
    assert_legal([CREATED, *events, *ends])


@THOROUGH
@given(
    st.lists(st.sampled_from([*ALL, CREATED, COMPLETED, FAILURE]), max_size=25),
    st.lists(st.integers(0, 3), min_size=25, max_size=25),
)
def test_the_events_of_all_items_in_any_order_are_legal(
    events: list[dict[str, Any]], indexes: list[int]
) -> None:
    moved = [
        {**event, "output_index": index} if "output_index" in event else event
        for event, index in zip(events, indexes, strict=False)
    ]
    assert_legal([CREATED, *moved, COMPLETED])
    assert_legal(events)


ODD = st.sampled_from([None, "", "x", 7, -1, True, [], {}, [None], {"a": 1}, "\ud83d", 1.5])


@THOROUGH
@given(st.data())
def test_events_with_values_of_any_kind_are_legal(data: st.DataObject) -> None:
    events = data.draw(st.lists(st.sampled_from(ALL), min_size=1, max_size=10))
    spoilt = []
    for event in events:
        event = dict(event)
        if isinstance(event.get("item"), dict) and data.draw(st.booleans()):
            event["item"] = dict(event["item"])
            event["item"][data.draw(st.sampled_from(sorted(event["item"])))] = data.draw(ODD)
        else:
            keys = sorted(key for key in event if key != "type")
            event[data.draw(st.sampled_from(keys))] = data.draw(ODD)
        spoilt.append(event)
    assert_legal([CREATED, *spoilt, COMPLETED])
