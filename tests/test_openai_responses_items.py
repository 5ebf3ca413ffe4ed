"""Hosted calls, results and items of the Responses wire: each comes back as the item it was."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.recordings import FIXTURES
from tests.responses import Event, events, of_type
from tests.serving import openai_client, serving
from tests.strategies import THOROUGH
from weft import (
    Context,
    Encoder,
    File,
    Finish,
    Ids,
    Opaque,
    Part,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    assemble,
    decode_all,
    encode,
)
from weft.dialects.openai_responses.encoder import body
from weft.dialects.openai_responses.encoding.call_kinds import CALL_KINDS, FOREIGN_CALL_KINDS
from weft.findings import Findings

NAME: Final = "openai-responses"
OURS = ResponseMetadata("resp_1", model="m-1", created=1790000000, dialect=NAME)
THEIRS = ResponseMetadata("msg_1", model="m-1", created=1790000000, dialect="another")
TEXT: list[Part] = [TextStart("m", "m"), TextDelta("m", "Hi"), TextEnd("m")]


def raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def kept(**item: object) -> Raw:
    """What the decoder keeps of an item beside the fields of its parts."""
    return raw({"item": item})


def streamed(call: ToolCall, *deltas: str, extra: Raw | None = None) -> list[Part]:
    """A call with its params in these pieces."""
    start = ToolParamsStart(
        call.id, call.name, call.kind, call.item_id, call.provider_executed, call.format
    )
    if extra is not None:
        start = msgspec.structs.replace(start, extra=extra)
    said = [ToolParamsDelta(call.id, delta) for delta in deltas]
    return [start, *said, ToolParamsEnd(call.id), call]


def hosted(kind: str, name: str, params: str, id: str, **more: Any) -> ToolCall:
    return ToolCall(id, name, params, kind=kind, item_id=id, provider_executed=True, **more)


def asked(kind: str, name: str, params: str, **more: Any) -> ToolCall:
    """A call that the client executes."""
    return ToolCall("call_1", name, params, kind=kind, item_id="it_1", **more)


class Row(NamedTuple):
    """Parts, the items they are, and the events between `added` and `done` of the first."""

    parts: list[Part]
    items: list[dict[str, object]]
    events: tuple[str, ...] = ()
    added: dict[str, object] | None = None
    """What the item is announced with, beside its type, id and status."""


SEARCH = {"type": "search", "query": "news", "queries": ["news"]}
SOURCES = [{"type": "url", "url": "https://a.example"}]
CODE = 'print("a")\n# ü😀'
OPENING = '{"container_id":"cntr_1","code":"'
DIFF = '+say "hi"\n'
PATCH = '{"call_id":"call_1","operation":{"type":"create_file","path":"a.txt","diff":"'
OPERATION = {"type": "create_file", "path": "a.txt", "diff": DIFF}
DELETION = {"type": "delete_file", "path": "a.txt"}
SHELL = {"commands": ["ls"], "timeout_ms": 5, "max_output_length": 100}
RAN = [{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}
REMOTE = '{"n":1}'


def escaped(text: str) -> str:
    return json.dumps(text)[1:-1]


ROWS: dict[str, Row] = {
    "a web search": Row(
        [
            *streamed(hosted("web_search_call", "web_search", json.dumps({"action": SEARCH}), "ws"),
                      json.dumps({"action": SEARCH})),
            ToolResult("ws", raw({"action": {**SEARCH, "sources": SOURCES}})),
        ],
        [{"type": "web_search_call", "id": "ws", "status": "completed",
          "action": {**SEARCH, "sources": SOURCES}}],
        ("web_search_call.in_progress", "web_search_call.searching", "web_search_call.completed"),
        {"action": {"type": "search", "query": ""}},
    ),
    "a file search": Row(
        [
            *streamed(hosted("file_search_call", "file_search", '{"queries":["a"]}', "fs"),
                      '{"queries":["a"]}'),
            ToolResult("fs", raw({"queries": ["a"], "results": None})),
        ],
        [{"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["a"],
          "results": None}],
        ("file_search_call.in_progress", "file_search_call.searching",
         "file_search_call.completed"),
        {"queries": []},
    ),
    "code that is run": Row(
        [
            *streamed(hosted("code_interpreter_call", "code_interpreter",
                             OPENING + escaped(CODE) + '"}', "ci"),
                      OPENING, escaped(CODE[:8]), escaped(CODE[8:]), '"}'),
            ToolResult("ci", raw({"outputs": [{"type": "logs", "logs": "a\n"}]})),
        ],
        [{"type": "code_interpreter_call", "id": "ci", "status": "completed",
          "container_id": "cntr_1", "code": CODE, "outputs": [{"type": "logs", "logs": "a\n"}]}],
        ("code_interpreter_call.in_progress", "code_interpreter_call_code.delta",
         "code_interpreter_call_code.delta", "code_interpreter_call_code.done",
         "code_interpreter_call.interpreting", "code_interpreter_call.completed"),
        {"container_id": "cntr_1", "code": "", "outputs": []},
    ),
    "an image": Row(
        [
            hosted("image_generation_call", "image_generation", "{}", "ig"),
            ToolResult("ig", raw({"result": "QQ=="}), preliminary=True,
                       extra=kept(partial_image_index=0, size="1x1")),
            ToolResult("ig", raw({"result": "Qg=="}),
                       extra=kept(status="generating", revised_prompt="a boat")),
        ],
        [{"type": "image_generation_call", "id": "ig", "status": "generating", "result": "Qg==",
          "revised_prompt": "a boat"}],
        ("image_generation_call.in_progress", "image_generation_call.generating",
         "image_generation_call.partial_image", "image_generation_call.completed"),
        {"result": None},
    ),
    "a remote call": Row(
        [
            *streamed(hosted("mcp_call", "roll", REMOTE, "mcp", dynamic=True, server_label="dice"),
                      '{"n":', "1}", extra=kept(server_label="dice")),
            ToolResult("mcp", raw({"type": "call", "server_label": "dice", "name": "roll",
                                   "arguments": REMOTE, "output": "4"}),
                       extra=kept(error=None)),
        ],
        [{"type": "mcp_call", "id": "mcp", "status": "completed", "name": "roll",
          "server_label": "dice", "arguments": REMOTE, "output": "4", "error": None}],
        ("mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.delta",
         "mcp_call_arguments.done", "mcp_call.completed"),
        {"name": "roll", "server_label": "dice", "arguments": ""},
    ),
    "a remote call that failed": Row(
        [
            *streamed(hosted("mcp_call", "roll", REMOTE, "mcp", dynamic=True, server_label="dice"),
                      REMOTE),
            ToolResult("mcp", raw({"type": "call", "server_label": "dice", "name": "roll",
                                   "arguments": REMOTE, "error": "no dice"}), is_error=True,
                       extra=kept(status="failed", output=None)),
        ],
        [{"type": "mcp_call", "id": "mcp", "status": "failed", "name": "roll",
          "server_label": "dice", "arguments": REMOTE, "output": None, "error": "no dice"}],
        ("mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done",
         "mcp_call.failed"),
        {"name": "roll", "server_label": "", "arguments": ""},
    ),
    "a remote call that waits for approval": Row(
        [
            ToolCall("call_9", "roll", REMOTE, kind="mcp_approval_request", item_id="mcpr_1",
                     provider_executed=True, dynamic=True, server_label="dice",
                     approval_request_id="mcpr_1"),
            ToolApprovalRequest("call_9", "mcpr_1"),
        ],
        [{"type": "mcp_approval_request", "id": "mcpr_1", "name": "roll", "server_label": "dice",
          "arguments": REMOTE}],
    ),
    "a patch": Row(
        streamed(asked("apply_patch_call", "apply_patch", PATCH + escaped(DIFF) + '"}}'),
                 PATCH, escaped(DIFF[:6]), escaped(DIFF[6:]) + '"}}'),
        [{"type": "apply_patch_call", "id": "it_1", "status": "completed", "call_id": "call_1",
          "operation": OPERATION}],
        ("apply_patch_call_operation_diff.delta", "apply_patch_call_operation_diff.delta",
         "apply_patch_call_operation_diff.done"),
        {"call_id": "call_1", "operation": {**OPERATION, "diff": ""}},
    ),
    "a patch without a diff": Row(
        streamed(asked("apply_patch_call", "apply_patch",
                       json.dumps({"call_id": "call_1", "operation": DELETION})),
                 json.dumps({"call_id": "call_1", "operation": DELETION})),
        [{"type": "apply_patch_call", "id": "it_1", "status": "completed", "call_id": "call_1",
          "operation": DELETION}],
        (),
        {"call_id": "call_1", "operation": DELETION},
    ),
    "a command for the client": Row(
        streamed(asked("local_shell_call", "local_shell",
                       '{"action":{"type":"exec","command":["ls"],"env":{}}}'),
                 '{"action":{"type":"exec","command":["ls"],"env":{}}}'),
        [{"type": "local_shell_call", "id": "it_1", "status": "completed", "call_id": "call_1",
          "action": {"type": "exec", "command": ["ls"], "env": {}}}],
    ),
    "commands and what they printed": Row(
        [
            *streamed(ToolCall("call_1", "shell", json.dumps({"action": SHELL}), kind="shell_call",
                               item_id="sh_1", provider_executed=True,
                               extra=kept(environment={"type": "container_reference"})),
                      json.dumps({"action": SHELL})),
            ToolResult("call_1", raw({"output": RAN}),
                       extra=kept(type="shell_call_output", id="sho_1", max_output_length=100)),
        ],
        [
            {"type": "shell_call", "id": "sh_1", "status": "completed", "call_id": "call_1",
             "action": SHELL, "environment": {"type": "container_reference"}},
            {"type": "shell_call_output", "id": "sho_1", "status": "completed",
             "call_id": "call_1", "output": RAN, "max_output_length": 100},
        ],
    ),
    "commands that print while they run": Row(
        [
            ToolResult("call_1", raw({"output": [{"stdout": "a\n", "stderr": ""}]}),
                       preliminary=True, earlier=True,
                       extra=kept(type="shell_call_output", id="sho_1")),
            ToolResult("call_1", raw({"output": [{"stdout": "a\nb\n", "stderr": "no"}]}),
                       preliminary=True, earlier=True,
                       extra=kept(type="shell_call_output", id="sho_1")),
            ToolResult("call_1", raw({"output": RAN}), earlier=True,
                       extra=kept(type="shell_call_output", id="sho_1")),
        ],
        [{"type": "shell_call_output", "id": "sho_1", "status": "completed",
          "call_id": "call_1", "output": RAN}],
        ("shell_call_output_content.delta", "shell_call_output_content.delta",
         "shell_call_output_content.done"),
        {"call_id": "call_1", "output": []},
    ),
    "a click": Row(
        streamed(asked("computer_call", "computer",
                       json.dumps({"actions": [CLICK], "pending_safety_checks": [],
                                   "status": "completed"}), extra=kept(action=CLICK)),
                 json.dumps({"actions": [CLICK], "pending_safety_checks": [],
                             "status": "completed"})),
        [{"type": "computer_call", "id": "it_1", "status": "completed", "call_id": "call_1",
          "action": CLICK, "pending_safety_checks": []}],
    ),
    "several clicks": Row(
        streamed(asked("computer_call", "computer",
                       json.dumps({"actions": [CLICK, CLICK], "pending_safety_checks": [],
                                   "status": "completed"})),
                 json.dumps({"actions": [CLICK, CLICK], "pending_safety_checks": [],
                             "status": "completed"})),
        [{"type": "computer_call", "id": "it_1", "status": "completed", "call_id": "call_1",
          "actions": [CLICK, CLICK], "pending_safety_checks": []}],
    ),
    "a search for tools": Row(
        [
            *streamed(hosted("tool_search_call", "tool_search", '{"paths":["crm"]}', "tsc_1",
                             extra=kept(execution="server", call_id=None)),
                      '{"paths":["crm"]}', extra=kept(execution="server", call_id=None)),
            ToolResult("tsc_1", raw({"tools": []}),
                       extra=kept(type="tool_search_output", id="tso_1", execution="server",
                                  call_id=None)),
        ],
        [
            {"type": "tool_search_call", "id": "tsc_1", "status": "completed", "call_id": None,
             "execution": "server", "arguments": {"paths": ["crm"]}},
            {"type": "tool_search_output", "id": "tso_1", "status": "completed", "call_id": None,
             "execution": "server", "tools": []},
        ],
        (),
        {"call_id": None, "execution": "server", "arguments": {}},
    ),
    "a search for tools by the client": Row(
        streamed(asked("tool_search_call", "tool_search", '{"goal":"x"}',
                       extra=kept(execution="client")), '{"goal":"x"}'),
        [{"type": "tool_search_call", "id": "it_1", "status": "completed", "call_id": "call_1",
          "execution": "client", "arguments": {"goal": "x"}}],
    ),
    "a program, and the call it makes": Row(
        [
            *streamed(ToolCall("call_p", "program", '{"code":"f()","fingerprint":"zz"}',
                               kind="program", item_id="cm_1", provider_executed=True),
                      '{"code":"f()","fingerprint":"zz"}'),
            *streamed(asked("function", "f", "{}", caller="call_p",
                            extra=kept(status="in_progress",
                                       caller={"type": "program", "caller_id": "call_p"})),
                      "{}"),
        ],
        [
            {"type": "program", "id": "cm_1", "call_id": "call_p", "code": "f()",
             "fingerprint": "zz"},
            {"type": "function_call", "id": "it_1", "status": "in_progress", "call_id": "call_1",
             "name": "f", "arguments": "{}",
             "caller": {"type": "program", "caller_id": "call_p"}},
        ],
    ),
    "what an earlier program gave": Row(
        [
            ToolResult("call_p", raw({"result": "42", "status": "completed"}), earlier=True,
                       extra=kept(type="program_output", id="cmo_1")),
            *TEXT,
        ],
        [
            {"type": "program_output", "id": "cmo_1", "status": "completed", "call_id": "call_p",
             "result": "42"},
        ],
    ),
    "a function in a namespace": Row(
        streamed(asked("function", "look", "{}", namespace="crm"), "{}",
                 extra=kept(namespace="crm")),
        [{"type": "function_call", "id": "it_1", "status": "completed", "call_id": "call_1",
          "name": "look", "arguments": "{}", "namespace": "crm"}],
        ("function_call_arguments.delta", "function_call_arguments.done"),
        {"call_id": "call_1", "name": "look", "arguments": "", "namespace": "crm"},
    ),
    "items that only pass through": Row(
        [
            Opaque(NAME, "mcp_list_tools",
                   raw({"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": []})),
            Opaque(NAME, "compaction",
                   raw({"type": "compaction", "id": "c", "encrypted_content": "zz"})),
            Opaque(NAME, "acme:thing", raw({"type": "acme:thing", "id": "a", "status": "odd"})),
        ],
        [
            {"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": []},
            {"type": "compaction", "id": "c", "encrypted_content": "zz"},
            {"type": "acme:thing", "id": "a", "status": "odd"},
        ],
    ),
}  # fmt: skip


def context() -> Context:
    return Context(ids=Ids(b"1"), now=1790000009)


def stream(row: Row) -> list[Part]:
    """A whole legal stream; a call for the client is what it ends with."""
    calls = [part for part in row.parts if isinstance(part, ToolCall)]
    waits = any(not call.provider_executed for call in calls)
    return [OURS, *row.parts, Finish("tool-calls" if waits else "stop")]


def wrote(row: Row) -> bytes:
    return b"".join(encode(stream(row), NAME, context=context()))


def short(found: list[Event]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in found]


TABLE = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


@TABLE
def test_parts_become_the_items_they_came_from(row: Row) -> None:
    output = events(wrote(row))[-1]["response"]["output"]
    assert [item for item in output if item["type"] != "message"] == row.items


@TABLE
def test_an_item_is_added_has_progress_events_and_is_closed(row: Row) -> None:
    found = [event for event in events(wrote(row)) if event.get("output_index") == 0]
    assert short(found) == ["output_item.added", *row.events, "output_item.done"]
    item = found[0]["item"]
    assert (item["type"], item["id"]) == (row.items[0]["type"], row.items[0]["id"])
    if row.added:
        status = {"status": "in_progress"} if "status" in row.items[0] else {}
        head = {"type": item["type"], "id": item["id"]}
        assert item == {**head, **status, **row.added}


@TABLE
def test_the_body_is_what_the_stream_ends_with(row: Row) -> None:
    whole = json.loads(body(assemble(stream(row)), context()))
    assert whole == events(wrote(row))[-1]["response"]


@TABLE
def test_items_of_this_dialect_are_written_without_findings(row: Row) -> None:
    encoder = Encoder(NAME, context=context())
    encoder.feed(stream(row))
    assert encoder.findings == []


@pytest.mark.parametrize(
    ("name", "key"), [("code that is run", "code"), ("a patch", "diff")], ids=["code", "diff"]
)
def test_the_string_inside_the_params_is_streamed_without_the_json_around_it(
    name: str, key: str
) -> None:
    found = events(wrote(ROWS[name]))
    deltas = [event["delta"] for event in found if event["type"].endswith(".delta")]
    (done,) = [event for event in found if key in event]
    assert "".join(deltas) == done[key] == {"code": CODE, "diff": DIFF}[key]


def test_a_partial_image_is_an_event_with_its_stored_fields() -> None:
    (partial,) = of_type(
        events(wrote(ROWS["an image"])), "response.image_generation_call.partial_image"
    )
    assert partial == {
        "type": "response.image_generation_call.partial_image",
        "sequence_number": partial["sequence_number"],
        "item_id": "ig",
        "output_index": 0,
        "partial_image_index": 0,
        "partial_image_b64": "QQ==",
        "size": "1x1",
    }


def test_the_output_of_commands_is_written_piece_by_piece() -> None:
    found = events(wrote(ROWS["commands that print while they run"]))
    pieces = of_type(found, "response.shell_call_output_content.delta")
    assert [(event["command_index"], event["delta"]) for event in pieces] == [
        (0, {"stdout": "a\n"}),
        (0, {"stdout": "b\n", "stderr": "no"}),
    ]


def test_code_that_was_cut_off_is_written_as_far_as_received() -> None:
    call = hosted("code_interpreter_call", "code_interpreter", OPENING + "pri", "ci")
    call = msgspec.structs.replace(call, invalid="bad-arguments")
    row = Row([*streamed(call, OPENING, "pri")], [])
    parts = [OURS, *row.parts, Finish("length")]
    found = events(b"".join(encode(parts, NAME, context=context())))
    assert found[-1]["response"]["output"] == [
        {"type": "code_interpreter_call", "id": "ci", "status": "incomplete",
         "container_id": "cntr_1", "code": "pri", "outputs": []}
    ]  # fmt: skip


def test_output_whose_beginning_changed_is_only_in_the_final_item() -> None:
    results = [
        ToolResult("call_1", raw({"output": [{"stdout": text, "stderr": ""}]}), preliminary=True,
                   earlier=True, extra=kept(type="shell_call_output", id="sho_1"))
        for text in ("abc", "xbcd", "xbcd")
    ]  # fmt: skip
    parts: list[Part] = [OURS, *results, Finish("length")]
    found = events(b"".join(encode(parts, NAME, context=context())))
    pieces = of_type(found, "response.shell_call_output_content.delta")
    assert [event["delta"] for event in pieces] == [{"stdout": "abc"}]
    assert found[-1]["response"]["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("shell_call", {"type": "shell_call_output", "output": [1]}),
        ("tool_search_call", {"type": "tool_search_output", "output": [1]}),
        ("program", {"type": "program_output", "output": [1]}),
    ],
)
def test_a_result_without_a_type_becomes_the_result_item_of_its_call(
    kind: str, output: dict[str, object]
) -> None:
    call = ToolCall("call_1", "x", "{}", kind=kind, provider_executed=True)
    (_, item), noted = adapted(*streamed(call, "{}"), ToolResult("call_1", raw([1])))
    assert item == {**output, "id": item["id"], "status": "completed", "call_id": "call_1"}
    assert noted == []


def test_a_hosted_call_with_the_id_of_its_item_has_no_call_id() -> None:
    call = hosted("tool_search_call", "tool_search", "{}", "tsc_1")
    found = events(b"".join(encode([THEIRS, *streamed(call, "{}"), Finish("stop")], NAME)))
    items = [event["item"] for event in found if "item" in event]
    assert [(item["id"], item["call_id"]) for item in items] == [("tsc_1", None)] * 2


@pytest.mark.parametrize("kind", ["tool_search_call", "shell_call"])
def test_params_that_are_not_json_are_written_as_text(kind: str) -> None:
    call = msgspec.structs.replace(asked(kind, "x", '{"a":'), invalid="bad-arguments")
    parts = [OURS, *streamed(call, '{"a":'), Finish("length")]
    found = events(b"".join(encode(parts, NAME, context=context())))
    (item,) = found[-1]["response"]["output"]
    assert (item["status"], item["arguments"]) == ("incomplete", '{"a":')


def test_a_search_of_another_dialect_that_failed_has_no_sources() -> None:
    call = ToolCall("s1", "web_search", '{"query":"x"}', kind="server_tool_use",
                    provider_executed=True)  # fmt: skip
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    (item,), _ = adapted(*streamed(call, call.params), ToolResult("s1", raw(failed), is_error=True))
    assert (item["status"], item["action"]) == ("failed", {"type": "search", "query": "x"})


def test_a_preliminary_result_without_an_event_is_not_written() -> None:
    call = hosted("web_search_call", "web_search", "{}", "ws")
    parts = [*streamed(call, "{}"), ToolResult("ws", raw({"result": "x"}), preliminary=True)]
    found = events(b"".join(encode([OURS, *parts, Finish("stop")], NAME, context=context())))
    assert "result" not in found[-1]["response"]["output"][0]


def test_arguments_that_came_as_text_stay_text() -> None:
    item = {"type": "web_search_call", "id": "ws", "status": "completed", "name": "web_search",
            "arguments": '{"query":"x"}'}  # fmt: skip
    whole = {"object": "response", "id": "r", "status": "completed", "output": [item]}
    (read,) = decode_all(json.dumps(whole).encode(), NAME)
    assert [call.params for call in read.response.tool_calls] == ['{"query":"x"}']
    assert json.loads(body(read.response, context()))["output"] == [item]


# What other dialects call the same


def adapted(*parts: Part) -> tuple[list[dict[str, Any]], list[str]]:
    """The items that parts of another dialect become, and what was noted."""
    encoder = Encoder(NAME, context=context())
    found = events(b"".join(encoder.feed([THEIRS, *parts, Finish("stop")])))
    return found[-1]["response"]["output"], [finding.detail for finding in encoder.findings]


def test_a_search_of_another_dialect_becomes_a_web_search_call() -> None:
    call = ToolCall("s1", "web_search", '{"query": "news"}', kind="server_tool_use",
                    provider_executed=True)  # fmt: skip
    hits = [{"type": "web_search_result", "url": "https://a.example", "encrypted_content": "x"}]
    (item,), noted = adapted(*streamed(call, '{"query":', ' "news"}'), ToolResult("s1", raw(hits)))
    assert item == {
        "type": "web_search_call",
        "id": item["id"],
        "status": "completed",
        "action": {"type": "search", "query": "news", "sources": SOURCES},
    }
    assert noted == ["tool-call: only the URLs of the search results are kept"]


@pytest.mark.parametrize(
    ("kind", "name", "params", "result", "logs"),
    [
        ("server_tool_use", "code_execution", {"code": "1/0"},
         {"type": "code_execution_result", "stdout": "", "stderr": "no", "return_code": 1}, ["no"]),
        ("executable_code", "code_execution", {"language": "PYTHON", "code": "1/0"},
         {"outcome": "OUTCOME_FAILED", "output": "no"}, ["no"]),
    ],
)  # fmt: skip
def test_code_of_another_dialect_becomes_a_code_interpreter_call(
    kind: str, name: str, params: dict[str, str], result: dict[str, object], logs: list[str]
) -> None:
    call = ToolCall("c1", name, json.dumps(params), kind=kind, provider_executed=True)
    (item,), noted = adapted(
        *streamed(call, call.params), ToolResult("c1", raw(result), is_error=True)
    )
    assert item == {
        "type": "code_interpreter_call",
        "id": item["id"],
        "status": "failed",
        "container_id": "",
        "code": "1/0",
        "outputs": [{"type": "logs", "logs": text} for text in logs],
    }
    assert noted == ["tool-call: only the printed output is kept"]


@pytest.mark.parametrize(
    ("result", "output"),
    [
        ([{"type": "text", "text": "4"}], "4"),
        ([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}],
         '[{"type":"text","text":"4"},{"type":"text","text":"2"}]'),
        ("4", "4"),
        (4, "4"),
    ],
)  # fmt: skip
def test_an_mcp_call_of_another_dialect_becomes_an_mcp_call(result: object, output: str) -> None:
    call = ToolCall("m1", "roll", REMOTE, kind="mcp_tool_use", provider_executed=True,
                    server_label="dice")  # fmt: skip
    (item,), noted = adapted(*streamed(call, REMOTE), ToolResult("m1", raw(result)))
    assert item == {
        "type": "mcp_call",
        "id": item["id"],
        "status": "completed",
        "name": "roll",
        "server_label": "dice",
        "arguments": REMOTE,
        "output": output,
    }
    assert noted == ["tool-call: the result of an MCP call is kept as text"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("server_tool_use", "web_fetch"), ("server_tool", "maps"), ("function", "web_search")],
)
def test_a_hosted_call_of_another_dialect_without_equivalent_is_not_written(
    kind: str, name: str
) -> None:
    call = ToolCall("x", name, "{}", kind=kind, provider_executed=True)
    output, noted = adapted(*streamed(call, "{}"), ToolResult("x", raw({})))
    assert output == []
    assert noted == [
        f"tool-call: no item type for provider-executed {kind}",
        "tool-result: no item for the result of this call",
    ]


def test_an_image_is_an_image_call_and_other_files_are_not_written() -> None:
    (item,), noted = adapted(
        File("a", "image/jpeg", data="QQ=="), File("b", "application/pdf", data="QQ==")
    )
    assert item == {
        "type": "image_generation_call",
        "id": item["id"],
        "status": "completed",
        "result": "QQ==",
        "output_format": "jpeg",
    }
    assert noted == ["file: only a whole image has an item type"]


def test_an_audio_event_is_written_under_a_new_number() -> None:
    audio = {"type": "response.audio.delta", "sequence_number": 99, "delta": "QQ=="}
    parts: list[Part] = [OURS, Opaque(NAME, "response.audio.delta", raw(audio)), Finish("stop")]
    found = events(b"".join(encode(parts, NAME, context=context())))
    assert found[2] == {**audio, "sequence_number": 2}
    assert found[-1]["response"]["output"] == []


# Whatever comes

KIND_NAMES = st.sampled_from(sorted({*CALL_KINDS, *(kind for kind, _ in FOREIGN_CALL_KINDS)}))
TOOL_NAMES = st.sampled_from(["web_search", "code_execution", "look"])
PARAMS = st.sampled_from(
    [
        OPENING,
        escaped(CODE),
        '"}',
        PATCH,
        '"}}',
        "{}",
        '{"action":{}}',
        "[1]",
        "7",
        '"x"',
        "{",
        "nul",
    ]
)
RESULTS = st.sampled_from(
    [raw(one) for one in (None, 7, "x", [], [{"url": 7}], {}, {"output": [{"stdout": 1}]},
                          {"output": [{"stdout": "a"}]}, {"result": "QQ=="}, {"type": "x"})]
)  # fmt: skip
EXTRAS = st.sampled_from(
    [UNSET, raw(7), raw({"item": 7}), kept(), kept(status="failed"), kept(call_id=None),
     kept(type="shell_call_output", id="o1"), kept(type="odd_output"), kept(arguments="{}"),
     kept(action={}), raw({"content": {"item_id": "s1"}})]
)  # fmt: skip
IDS = st.sampled_from(["a", "b", "s1"])
CALLS: st.SearchStrategy[Part] = st.one_of(
    st.builds(ToolParamsStart, IDS, TOOL_NAMES, KIND_NAMES, IDS, st.booleans(), extra=EXTRAS),
    st.builds(ToolParamsDelta, IDS, PARAMS),
    st.builds(ToolParamsEnd, IDS),
    st.builds(ToolCall, IDS, TOOL_NAMES, PARAMS, KIND_NAMES, st.booleans(), item_id=IDS,
              extra=EXTRAS),
    st.builds(ToolResult, IDS, RESULTS, st.booleans(), st.booleans(), st.booleans(), extra=EXTRAS),
    st.builds(ToolApprovalRequest, IDS, IDS),
    st.builds(Opaque, st.just(NAME), st.sampled_from(["thing", "response.thing"]), RESULTS, EXTRAS),
    st.builds(TextStart, IDS, IDS),
    st.builds(TextEnd, IDS, extra=EXTRAS),
)  # fmt: skip


@THOROUGH
@given(st.lists(CALLS, max_size=16), st.sampled_from([OURS, THEIRS]))
def test_any_calls_become_a_valid_stream(soup: list[Part], start: ResponseMetadata) -> None:
    found = events(b"".join(encode([start, *soup], NAME, context=context())))
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    added = of_type(found, "response.output_item.added")
    done = of_type(found, "response.output_item.done")
    assert [event["output_index"] for event in added] == list(range(len(added)))
    by_index = {event["output_index"]: event["item"] for event in done}
    assert len(by_index) == len(done)
    output = found[-1]["response"]["output"]
    assert len(output) == len(added)
    failed = found[-1]["type"] == "response.failed"  # then calls that were cut are never done
    assert failed or len(done) == len(added)
    assert {at: output[at] for at in by_index} == by_index
    for event in found:
        if "item_id" in event:
            assert output[event["output_index"]]["id"] == event["item_id"]
    assert json.loads(body(assemble([start, *soup]), context()))


def test_a_null_approval_request_id_is_written_back() -> None:
    item = {"type": "mcp_call", "id": "mcp_1", "name": "dye", "server_label": "vat", "error": None,
            "arguments": "{}", "output": "dyed", "approval_request_id": None,
            "status": "completed"}  # fmt: skip
    raw = json.dumps({"object": "response", "id": "r", "status": "completed", "output": [item]})
    (one,) = decode_all(raw.encode(), NAME)
    assert json.loads(body(one.response, context()))["output"] == [item]


# The official client


@contextmanager
def served(answer: bytes, kind: str = "text/event-stream") -> Iterator[openai.OpenAI]:
    with (
        serving(answer, kind) as url,
        openai_client(url) as client,
    ):
        yield client


def told(items: Any) -> list[dict[str, object]]:
    """What the client made of the items."""
    return [item.to_dict(mode="json", warnings=False) for item in items]


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # its types lag behind the wire
@TABLE
def test_the_official_client_ends_with_the_same_items(row: Row) -> None:
    with served(wrote(row)) as client, client.responses.stream(model="m", input="hi") as reading:
        for _ in reading:
            pass
        final = reading.get_final_response()
    found = [item for item in told(final.output) if item["type"] != "message"]
    assert [without(item, "parsed_arguments") for item in found] == row.items


@TABLE
def test_the_official_client_reads_the_body(row: Row) -> None:
    answer = body(assemble(stream(row)), context())
    with served(answer, "application/json") as client:
        response = client.responses.create(model="m", input="hi")
    assert (response.id, response.status) == (json.loads(answer)["id"], "completed")
    assert [item for item in told(response.output) if item["type"] != "message"] == row.items


def without(item: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in item.items() if name != key}


# There and back


def same(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Parts as they compare. Where text was cut is not the matter, nor what of an item was known
    when it was announced; params of hosted calls are JSON; and a minted id is any id.
    """
    minted = {part.id for part in parts if isinstance(part, ToolApprovalRequest)}
    return [plain(part, minted) for part in parts if not isinstance(part, CUT)]


CUT = (TextDelta, ToolParamsDelta)


def plain(part: Part, minted: set[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(msgspec.json.encode(part))
    if isinstance(part, ToolParamsStart):
        told.pop("extra", None)
    if isinstance(part, ToolCall) and part.kind not in ("function", "custom"):
        told["params"] = json.loads(part.params)
    if told.get("id") in minted:
        told["id"] = "minted"
    return told


@TABLE
def test_what_is_written_is_read_as_the_same_parts(row: Row) -> None:
    (back,) = decode_all(wrote(row), NAME)
    assert {finding.code for finding in back.response.findings} <= {"event-unknown"}
    assert same(back.parts)[1:-1] == same(stream(row))[1:-1]


@TABLE
def test_a_body_is_read_as_the_same_parts(row: Row) -> None:
    """But for results that were not final: a body has only the last one."""
    findings = Findings()
    (back,) = decode_all(body(assemble(stream(row)), context(), findings), NAME)
    assert findings.found == []
    assert same(back.parts)[1:-1] == [
        part for part in same(stream(row))[1:-1] if not part.get("preliminary")
    ]


FOLDERS = ("openai-responses", "azure", "xai-responses", "open-responses")
STREAMS = [path for folder in FOLDERS for path in sorted(FIXTURES.glob(f"{folder}/*.chunks.txt"))]
BODIES = [path for folder in FOLDERS for path in sorted(FIXTURES.glob(f"{folder}/*.json"))]

NOT_CARRIED: dict[str, tuple[str, ...]] = {
    # the type of an error is the specification's word for its class
    "openai-error.1": ("extra",),
    # who executes a tool that nobody declared is read from the tools of the request
    "xai-x-search-tool": ("provider_executed", "reason"),
}
"""Keys of parts that a recording has and its copy has not, and why."""


def copied(path: Path, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Parts as a copy can have them: what a finish says of the other account stays there."""
    name = path.name.removesuffix(".json").removesuffix(".chunks.txt")
    lost = NOT_CARRIED.get(name, ())
    told = [{key: part[key] for key in part if key not in lost} for part in same(parts)]
    told[-1].pop("extra", None)
    for part in told:
        if part["type"] == "reasoning-start":  # raw reasoning is told as a summary
            part["kind"] = "summary"
    return told


@pytest.mark.skipif(not STREAMS, reason="the recordings are not here")
@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name.removesuffix(".chunks.txt"))
def test_a_recording_that_is_written_again_is_read_as_the_same_parts(path: Path) -> None:
    for one in decode_all(path.read_bytes(), NAME):
        encoder = Encoder(NAME, context=Context(response_id=one.response.id), fold=one.fold)
        (back,) = decode_all(b"".join(encoder.feed(one.parts)), NAME)
        executed = "tool-call: the item does not say that the provider executed it"
        noted = [finding.detail for finding in encoder.findings]
        assert noted == ([executed] if path.name.startswith("xai-x-search") else [])
        assert back.response.findings == ()
        assert copied(path, back.parts) == copied(path, one.parts)


@pytest.mark.skipif(not BODIES, reason="the recordings are not here")
@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.name.removesuffix(".json"))
def test_a_recorded_body_that_is_written_again_is_read_as_the_same_parts(path: Path) -> None:
    (one,) = decode_all(path.read_bytes(), NAME)
    findings = Findings()
    again = body(one.response, Context(response_id=one.response.id), findings)
    (back,) = decode_all(again, NAME)
    assert (findings.found, back.response.findings) == ([], one.response.findings)
    assert copied(path, back.parts)[1:] == copied(path, one.parts)[1:]
