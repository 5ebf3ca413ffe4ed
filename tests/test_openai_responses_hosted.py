"""Hosted and special tools of a Responses stream: what each item becomes, part by part."""

import json
from typing import Any

import pytest

from tests.responses_events import (
    COMPLETED,
    CREATED,
    added,
    at_once,
    codes,
    created,
    decoded,
    done,
    event,
    item_extra,
    parts,
    raw,
    read,
    with_request,
)
from weft import (
    DIALECTS,
    Context,
    Ids,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)
from weft.request import CallContent, Message, OpaqueContent, Request, ResultContent, Tool


def code_event(name: str, **fields: Any) -> dict[str, Any]:
    return event(f"code_interpreter_call_code.{name}", output_index=0, item_id="ci", **fields)


def diff_event(name: str, **fields: Any) -> dict[str, Any]:
    return event(f"apply_patch_call_operation_diff.{name}", output_index=0, **fields)


CODE: dict[str, Any] = {"type": "code_interpreter_call", "id": "ci", "container_id": 'c"1'}
PATCH: dict[str, Any] = {"type": "apply_patch_call", "id": "ap", "call_id": "call_1"}
UPDATE: dict[str, Any] = {"type": "update_file", "path": "a b.py"}
CODE_PARAMS = '{"container_id":"c\\"1","code":"x = \\"\\u00e9\\"\\n"}'
PATCH_HEAD = '{"call_id":"call_1","operation":{"type":"update_file","path":"a b.py","diff":"'


# The cases of the seed


def test_code_interpreter_streaming_code_delta_done_result() -> None:
    assert parts(
        added(0, **CODE, code="", outputs=[], status="in_progress"),
        event("code_interpreter_call.in_progress", output_index=0),
        code_event("delta", delta='x = "'),
        code_event("delta", delta='é"\n'),
        code_event("done", code='x = "é"\n'),
        event("code_interpreter_call.interpreting", output_index=0),
        event("code_interpreter_call.completed", output_index=0),
        done(0, **CODE, code='x = "é"\n', status="completed",
             outputs=[{"type": "logs", "logs": "1"}]),
    ) == [
        ToolParamsStart("ci", "code_interpreter", "code_interpreter_call", "ci", True),
        ToolParamsDelta("ci", '{"container_id":"c\\"1","code":"'),
        ToolParamsDelta("ci", 'x = \\"'),
        ToolParamsDelta("ci", '\\u00e9\\"\\n'),
        ToolParamsDelta("ci", '"}'),
        ToolParamsEnd("ci"),
        ToolCall("ci", "code_interpreter", CODE_PARAMS, "code_interpreter_call", True,
                 item_id="ci"),
        ToolResult("ci", raw({"outputs": [{"type": "logs", "logs": "1"}]})),
    ]  # fmt: skip


def test_apply_patch_streaming_diff_delta_done() -> None:
    params = f'{PATCH_HEAD}-a\\n+b"}}}}'
    assert parts(
        added(0, **PATCH, operation={**UPDATE, "diff": ""}, status="in_progress"),
        diff_event("delta", delta="-a\n"),
        diff_event("delta", delta="+b"),
        diff_event("done", diff="-a\n+b"),
        done(0, **PATCH, operation={**UPDATE, "diff": "-a\n+b"}, status="completed"),
    ) == [
        ToolParamsStart("call_1", "apply_patch", "apply_patch_call", "ap"),
        ToolParamsDelta("call_1", PATCH_HEAD),
        ToolParamsDelta("call_1", "-a\\n"),
        ToolParamsDelta("call_1", "+b"),
        ToolParamsDelta("call_1", '"}}'),
        ToolParamsEnd("call_1"),
        ToolCall("call_1", "apply_patch", params, "apply_patch_call", item_id="ap"),
    ]


def test_apply_patch_delete_file_immediate_complete() -> None:
    operation = {"type": "delete_file", "path": "old.py"}
    params = '{"call_id":"call_1","operation":{"type":"delete_file","path":"old.py"}}'
    start = [
        ToolParamsStart("call_1", "apply_patch", "apply_patch_call", "ap"),
        ToolParamsDelta("call_1", params),
        ToolParamsEnd("call_1"),
    ]
    call = ToolCall("call_1", "apply_patch", params, "apply_patch_call", item_id="ap")
    begun = decoded(CREATED, added(0, **PATCH, operation=operation))
    assert begun.parts[1:4] == start
    ended = parts(
        added(0, **PATCH, operation=operation),
        done(0, **PATCH, operation=operation, status="completed"),
    )
    assert ended == [*start, call]


def test_image_generation_partial_results() -> None:
    image: dict[str, Any] = {"type": "image_generation_call", "id": "ig"}
    partial = {"partial_image_b64": "QQ==", "partial_image_index": 0, "size": "1x1"}
    assert parts(
        added(0, **image, status="in_progress"),
        event("image_generation_call.generating", output_index=0),
        event("image_generation_call.partial_image", output_index=0, item_id="other", **partial),
        done(0, **image, status="generating", result="Qg==", revised_prompt="a cat"),
    ) == [
        ToolCall("ig", "image_generation", "{}", "image_generation_call", True, item_id="ig"),
        ToolResult("ig", raw({"result": "QQ=="}), preliminary=True,
                   extra=item_extra(partial_image_index=0, size="1x1")),
        ToolResult("ig", raw({"result": "Qg=="}),
                   extra=item_extra(status="generating", revised_prompt="a cat")),
    ]  # fmt: skip


def thinking(store: bool | None) -> list[Part]:
    summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    one = decoded(
        created(store=store),
        added(0, type="reasoning", id="rs", summary=[]),
        event("reasoning_summary_part.added", output_index=0, summary_index=0),
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="a"),
        event("reasoning_summary_part.done", output_index=0, summary_index=0, part=summary[0]),
        event("reasoning_summary_part.added", output_index=0, summary_index=1),
        event("reasoning_summary_text.delta", output_index=0, summary_index=1, delta="b"),
        event("reasoning_summary_part.done", output_index=0, summary_index=1, part=summary[1]),
        event("web_search_call.searching", output_index=0),
        done(0, type="reasoning", id="rs", summary=summary, encrypted_content=None),
        COMPLETED,
    )
    assert one.response.findings == ()
    return [*one.parts[1:-1]]


def test_reasoning_state_machine_with_store_true() -> None:
    assert thinking(store=True) == [
        ReasoningStart("rs:0", "summary", "rs"),
        ReasoningDelta("rs:0", "a"),
        ReasoningEnd("rs:0"),  # its part is done
        ReasoningStart("rs:1", "summary", "rs"),
        ReasoningDelta("rs:1", "b"),
        ReasoningEnd("rs:1"),
    ]
    summary = [{"type": "summary_text", "text": "a"}]
    early = decoded(
        CREATED,
        added(0, type="reasoning", id="rs", summary=[]),
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="a"),
        event("reasoning_summary_part.done", output_index=0, summary_index=0, part=summary[0]),
    )
    assert ReasoningEnd("rs:0") in early.parts[: [p.type for p in early.parts].index("error")]


def test_reasoning_state_machine_with_store_false() -> None:
    expected = thinking(store=True)
    assert thinking(store=False) == expected
    assert thinking(store=None) == expected
    ended = decoded(
        created(store=False),
        added(0, type="reasoning", id="rs", summary=[], encrypted_content="provisional"),
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="a"),
        event("reasoning_summary_part.done", output_index=0, summary_index=0),
        done(0, type="reasoning", id="rs", summary=[{"text": "a"}], encrypted_content="final"),
        COMPLETED,
    ).parts
    assert ended[1:-1] == [
        ReasoningStart("rs:0", "summary", "rs"),
        ReasoningDelta("rs:0", "a"),
        ReasoningEnd("rs:0", encrypted="final", origin="openai-responses"),
    ]


def test_reasoning_with_early_encrypted_content_waits_for_the_final_one_even_if_stored() -> None:
    found = parts(
        added(0, type="reasoning", id="rs", summary=[], encrypted_content="provisional"),
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="a"),
        event("reasoning_summary_part.done", output_index=0, summary_index=0),
        done(0, type="reasoning", id="rs", summary=[{"text": "a"}], encrypted_content="final"),
    )
    assert found == [
        ReasoningStart("rs:0", "summary", "rs"),
        ReasoningDelta("rs:0", "a"),
        ReasoningEnd("rs:0", encrypted="final", origin="openai-responses"),
    ]


def test_local_shell_call_streaming() -> None:
    shell: dict[str, Any] = {"type": "local_shell_call", "id": "ls", "call_id": "call_1"}
    action: dict[str, Any] = {
        "type": "exec",
        "command": ["ls", "-a"],
        "env": {},
        "timeout_ms": None,
    }
    params = json.dumps({"action": action}, separators=(",", ":"))
    response = read(
        added(0, **shell, action={"type": "exec", "command": [], "env": {}}, status="in_progress"),
        done(0, **shell, action=action, status="completed"),
    )
    assert response.items == (
        ToolCall("call_1", "local_shell", params, "local_shell_call", item_id="ls"),
    )
    assert (response.finish_reason, response.findings) == ("tool-calls", ())


URL = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0,
       "end_index": 1}  # fmt: skip
FILE = {"type": "file_citation", "file_id": "f1", "filename": "a.txt", "index": 1}
BOX = {"type": "container_file_citation", "container_id": "c", "file_id": "f2",
       "filename": "b.csv", "start_index": 0, "end_index": 2}  # fmt: skip
PATH = {"type": "file_path", "file_id": "f3", "index": 0}
NEW = {"type": "moon_citation", "crater": 7}


def annotation(number: int, value: dict[str, Any], at: int = 0) -> dict[str, Any]:
    return event("output_text.annotation.added", output_index=0, content_index=at,
                 annotation_index=number, annotation=value)  # fmt: skip


def test_annotation_tracking_in_text_end() -> None:
    content = [
        {"type": "output_text", "text": "xy", "annotations": [URL, FILE, PATH, NEW]},
        {"type": "output_text", "text": "z", "annotations": [URL]},
    ]
    found = parts(
        added(0, type="message", id="m", content=[]),
        event("output_text.delta", output_index=0, content_index=0, delta="x"),
        annotation(0, URL),
        annotation(1, FILE),
        annotation(1, FILE),
        event("output_text.delta", output_index=0, content_index=0, delta="y"),
        annotation(2, PATH),
        annotation(3, NEW),
        event("output_text.done", output_index=0, content_index=0, text="xy",
              annotations=[URL, FILE]),
        event("output_text.delta", output_index=0, content_index=1, delta="z"),
        annotation(0, URL, at=1),
        event("content_part.done", output_index=0, content_index=1, part=content[1]),
        done(0, type="message", id="m", content=content),
    )  # fmt: skip
    assert found == [
        TextStart("m", "m"),
        TextDelta("m", "x"),
        Source("source_0", "url", "m", "https://a.example", title="A", start=0, end=1,
               raw=raw(URL)),
        Source("source_1", "document", "m", file_id="f1", title="a.txt", raw=raw(FILE)),
        TextDelta("m", "y"),
        Source("source_2", "document", "m", file_id="f3", title="f3", raw=raw(PATH)),
        TextStart("m:1", "m"),
        TextDelta("m:1", "z"),
        Source("source_3", "url", "m:1", "https://a.example", title="A", start=0, end=1,
               raw=raw(URL)),
        TextEnd("m", (raw(URL), raw(FILE), raw(PATH), raw(NEW))),
        TextEnd("m:1", (raw(URL),)),
    ]  # fmt: skip


def test_container_file_citation_annotations() -> None:
    (source,) = [one for one in read(annotation(0, BOX)).items if isinstance(one, Source)]
    text = source.text_id
    assert source == Source("source_0", "document", text, file_id="f2", title="b.csv", start=0,
                            end=2, raw=raw(BOX))  # fmt: skip


# Code


def test_code_that_was_never_declared_done_is_completed_by_its_item() -> None:
    item = {**CODE, "code": "ab", "outputs": None}
    response = read(added(0, **CODE, code=None), code_event("delta", delta="a"), done(0, **item))
    (call,) = response.tool_calls
    assert json.loads(call.params) == {"container_id": 'c"1', "code": "ab"}
    assert codes(response) == ["whole-extends"]
    assert response.items[1:] == (ToolResult("ci", raw({"outputs": None})),)


def test_code_that_differs_from_what_was_streamed_is_ignored() -> None:
    response = read(
        added(0, **CODE), code_event("delta", delta="a"), code_event("done", code="b"),
        done(0, **CODE, code="b", status="failed"),
    )  # fmt: skip
    assert json.loads(response.tool_calls[0].params) == {"container_id": 'c"1', "code": "a"}
    assert codes(response) == ["whole-contradicts"]
    assert [one.is_error for one in response.items if isinstance(one, ToolResult)] == [True]


def test_code_without_a_container_waits_for_its_item() -> None:
    response = read(
        added(0, type="code_interpreter_call", id="ci"),
        code_event("delta", delta="a"),
        code_event("done", code="a"),
        done(0, type="code_interpreter_call", id="ci", container_id="late", outputs=[]),
    )
    assert [json.loads(call.params) for call in response.tool_calls] == [
        {"container_id": "late", "code": "a"}
    ]
    bare = at_once({"type": "code_interpreter_call", "id": "ci", "code": None})
    assert [call.params for call in bare.tool_calls] == ['{"code":""}']
    whole = at_once({**CODE, "code": "1", "outputs": []})
    assert whole.items[1] == ToolResult("ci", raw({"outputs": []}))


def test_arguments_in_place_of_code_are_the_params() -> None:
    item = {"type": "code_interpreter_call", "id": "ci", "call_id": "", "name": "run",
            "arguments": '{"code":"1"}', "status": "completed"}  # fmt: skip
    for response in (at_once(item), read(added(0, **item), done(0, **item))):
        assert [(call.name, call.params) for call in response.tool_calls] == [
            ("code_interpreter", '{"code":"1"}')
        ]
        assert response.items[1] == ToolResult(
            "ci",
            raw({"outputs": None}),
            extra=item_extra(call_id="", name="run", arguments='{"code":"1"}'),
        )
        assert response.findings == ()


def test_code_and_diffs_that_do_not_fit_their_item_are_ignored() -> None:
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f"}
    misplaced = [code_event("delta", delta="a"), code_event("done", code="a"),
                 diff_event("delta", delta="a"), diff_event("done", diff="a")]  # fmt: skip
    arguments = event("function_call_arguments.delta", output_index=0, delta='{"a":1}')
    response = read(added(0, **call), *misplaced, arguments, done(0, **call, arguments='{"a":1}'))
    assert [one.params for one in response.tool_calls] == ['{"a":1}']
    begun = read(added(0, **call), *misplaced)
    assert [one.invalid for one in begun.invalid_tool_calls] == ["stream-failed"]


# Patches


def test_a_diff_that_was_never_streamed_is_filled_in() -> None:
    item = {**PATCH, "operation": {**UPDATE, "diff": "+b"}, "status": "completed"}
    for last in ([diff_event("done", diff="+b")], []):
        response = read(added(0, **PATCH, operation=UPDATE), *last, done(0, **item))
        assert [call.params for call in response.tool_calls] == [f'{PATCH_HEAD}+b"}}}}']
        assert codes(response) == ["whole-extends"]
    whole = at_once(item)
    assert [call.params for call in whole.tool_calls] == [f'{PATCH_HEAD}+b"}}}}']
    assert whole.findings == ()


def test_a_diff_that_is_there_from_the_first_is_the_first_delta() -> None:
    response = read(
        added(0, **PATCH, operation={**UPDATE, "diff": "+a"}),
        diff_event("delta", delta="\n"),
        done(0, **PATCH, operation={**UPDATE, "diff": "+a\n"}),
    )
    assert [call.params for call in response.tool_calls] == [f'{PATCH_HEAD}+a\\n"}}}}']
    assert response.findings == ()


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_a_patch_that_was_cut_off_is_invalid(status: str) -> None:
    response = read(
        added(0, **PATCH, operation=UPDATE),
        diff_event("delta", delta="+a"),
        done(0, **PATCH, operation={**UPDATE, "diff": "+a"}, status=status),
    )
    assert [(call.invalid, call.params) for call in response.invalid_tool_calls] == [
        ("bad-arguments", f'{PATCH_HEAD}+a"}}}}')
    ]
    assert response.finish_reason == "stop"


def test_a_patch_of_an_unknown_kind_keeps_its_operation() -> None:
    operation = {"type": "move_file", "path": "a", "to": "b"}
    (call,) = read(
        added(0, **PATCH, operation=operation), done(0, **PATCH, operation=operation)
    ).tool_calls
    assert json.loads(call.params)["operation"] == {"type": "move_file", "path": "a"}
    assert call.extra == item_extra(operation=operation)


def test_a_patch_that_is_never_done_is_complete_if_its_diff_was_done() -> None:
    response = read(added(0, **PATCH, operation=UPDATE), diff_event("delta", delta="+a"),
                    diff_event("done", diff="+a"))  # fmt: skip
    assert [call.params for call in response.tool_calls] == [f'{PATCH_HEAD}+a"}}}}']
    assert codes(response) == ["end-missing"]


def test_a_patch_under_the_id_of_another_call_is_not_lost() -> None:
    item = {**PATCH, "operation": {**UPDATE, "diff": "+a"}}
    other = {**PATCH, "id": "ap2", "operation": {**UPDATE, "diff": "+b"}}
    response = read(
        added(0, **PATCH, operation=UPDATE), diff_event("delta", delta="+a"), done(0, **item),
        added(1, **other), done(1, **other), added(2, **item), done(2, **item),
    )  # fmt: skip
    assert [call.id for call in response.tool_calls] == ["call_1", "call_1_2"]
    assert {"call-id-collision", "call-repeated"} <= {*codes(response)}


# Images


@pytest.mark.parametrize(
    "end",
    [
        {"result": None, "status": "failed"},
        {"result": None, "status": "completed"},
        {"result": None, "error": {"message": "no"}},
        {},
    ],
)
def test_an_image_that_failed_is_an_error(end: dict[str, Any]) -> None:
    response = at_once({"type": "image_generation_call", "id": "ig", **end})
    (result,) = [one for one in response.items if isinstance(one, ToolResult)]
    assert result.is_error
    told = {key: end[key] for key in ("error",) if key in end}
    assert json.loads(bytes(result.result)) == {"result": None, **told}


def test_a_partial_image_announces_a_call_that_was_never_added() -> None:
    partial = event("image_generation_call.partial_image", output_index=0, item_id="ig",
                    partial_image_b64="QQ==")  # fmt: skip
    response = read(partial, done(0, type="image_generation_call", id="x", result="Qg=="))
    assert [(type(one).__name__, one.id) for one in response.items
            if isinstance(one, ToolCall | ToolResult)] == [
        ("ToolCall", "ig"), ("ToolResult", "ig"), ("ToolResult", "ig"),
    ]  # fmt: skip


# Searches


def test_a_web_search_is_announced_at_once_and_called_with_its_query() -> None:
    action: dict[str, Any] = {
        "type": "search",
        "query": "q",
        "queries": ["q"],
        "sources": [{"type": "url"}],
    }
    asked = {"type": "search", "query": "q", "queries": ["q"]}
    assert parts(
        added(0, type="web_search_call", id="ws", status="in_progress"),
        event("web_search_call.in_progress", output_index=0),
        event("web_search_call.searching", output_index=0),
        event("web_search_call.completed", output_index=0),
        done(0, type="web_search_call", id="ws", status="completed", action=action),
    ) == [
        ToolParamsStart("ws", "web_search", "web_search_call", "ws", True),
        ToolParamsDelta("ws", bytes(raw({"action": asked})).decode()),
        ToolParamsEnd("ws"),
        ToolCall("ws", "web_search", bytes(raw({"action": asked})).decode(), "web_search_call",
                 True, item_id="ws"),
        ToolResult("ws", raw({"action": action})),
    ]  # fmt: skip


def test_a_file_search_has_its_queries_and_results() -> None:
    item = {"type": "file_search_call", "id": "fs", "queries": ["a"], "status": "completed"}
    for results in (None, [{"file_id": "f"}]):
        call, result = at_once({**item, "results": results}).items
        assert isinstance(call, ToolCall)
        assert (call.id, call.name, call.params) == ("fs", "file_search", '{"queries":["a"]}')
        assert result == ToolResult("fs", raw({"queries": ["a"], "results": results}))


def test_a_search_without_a_query_has_empty_params() -> None:
    response = at_once({"type": "web_search_call", "id": "ws", "status": "failed"})
    call, result = response.items
    assert isinstance(call, ToolCall)
    assert call.params == "{}"
    assert result == ToolResult("ws", raw({}), is_error=True, extra=item_extra(status="failed"))
    given = at_once({"type": "web_search_call", "id": "ws", "call_id": "", "name": "browse",
                     "arguments": '{"url":"u"}'})  # fmt: skip
    assert [call.params for call in given.tool_calls] == ['{"url":"u"}']


# Computers


SCREEN: dict[str, Any] = {"type": "computer_call", "id": "cu", "status": "completed"}
CLICK = {"type": "click", "x": 1, "y": 2}


def test_a_computer_call_is_for_the_client() -> None:
    item = {**SCREEN, "call_id": "call_1", "actions": [CLICK], "pending_safety_checks": []}
    params = {"actions": [CLICK], "pending_safety_checks": [], "status": "completed"}
    text = bytes(raw(params)).decode()
    assert parts(added(0, **SCREEN, call_id="call_1"), done(0, **item)) == [
        ToolParamsStart("call_1", "computer", "computer_call", "cu"),
        ToolParamsDelta("call_1", text),
        ToolParamsEnd("call_1"),
        ToolCall("call_1", "computer", text, "computer_call", item_id="cu"),
    ]
    assert at_once(item).finish_reason == "tool-calls"


def test_a_single_action_is_a_list_of_one_and_a_call_without_a_call_id_is_hosted() -> None:
    (call,) = at_once({**SCREEN, "action": CLICK}).tool_calls
    assert json.loads(call.params) == {"actions": [CLICK], "status": "completed"}
    assert (call.id, call.provider_executed, call.extra) == ("cu", True, item_extra(action=CLICK))
    assert at_once({**SCREEN, "action": CLICK}).finish_reason == "stop"
    (empty,) = at_once(SCREEN).tool_calls
    assert json.loads(empty.params) == {"actions": [], "status": "completed"}


# Commands


SHELL: dict[str, Any] = {"type": "shell_call", "id": "sh", "call_id": "call_1"}
ACTION = {"commands": ["ls"], "max_output_length": None, "timeout_ms": 5}
OUTPUT: dict[str, Any] = {"type": "shell_call_output", "id": "so", "call_id": "call_1"}
PRINTED = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
SHELL_PARAMS = '{"action":{"commands":["ls"],"max_output_length":null,"timeout_ms":5}}'


def shell_call(hosted: bool, **more: Any) -> ToolCall:
    return ToolCall("call_1", "shell", SHELL_PARAMS, "shell_call", hosted, item_id="sh", **more)


def test_a_shell_call_of_the_client_has_its_whole_action() -> None:
    response = read(
        added(0, **SHELL, action={"commands": []}, status="in_progress"),
        event("shell_call_command.added", output_index=0, command_index=0, command=""),
        event("shell_call_command.delta", output_index=0, command_index=0, delta="ls"),
        event("shell_call_command.done", output_index=0, command_index=0, command="ls"),
        done(0, **SHELL, action=ACTION, status="completed"),
    )
    assert response.items == (shell_call(False),)
    assert (response.finish_reason, response.findings) == ("tool-calls", ())


@pytest.mark.parametrize(
    ("environment", "hosted"),
    [
        ({"type": "container_reference", "container_id": "c"}, True),
        ({"type": "container_auto"}, True),
        ({"type": "local"}, False),
    ],
)
def test_the_environment_decides_who_executes_a_shell_call(environment: Any, hosted: bool) -> None:
    response = at_once({**SHELL, "action": ACTION, "environment": environment})
    assert response.items == (shell_call(hosted, extra=item_extra(environment=environment)),)
    assert response.finish_reason == ("stop" if hosted else "tool-calls")


def test_the_tools_decide_who_executes_a_shell_call_without_environment() -> None:
    box = {"type": "shell", "environment": {"type": "container_auto"}}
    item = done(0, **SHELL, action=ACTION)
    listed = decoded(created(tools=[box]), item, COMPLETED).response
    assert listed.items == (shell_call(True),)
    tools = (Tool("shell", "shell", raw=raw({"type": "shell"})),)
    asked = read(item, done(1, **OUTPUT, output=PRINTED), context=with_request(
        Request("m", tools=tools)))  # fmt: skip
    assert asked.items[0] == shell_call(False)


def test_a_shell_call_that_is_followed_by_its_output_is_hosted() -> None:
    found = parts(
        added(0, **SHELL, action={"commands": []}),
        done(0, **SHELL, action=ACTION),
        added(1, **OUTPUT, output=[], status="completed"),
        event("shell_call_output_content.delta", output_index=1, item_id="so", command_index=0,
              delta={"stdout": "a"}),
        event("shell_call_output_content.done", output_index=1, item_id="so", command_index=0,
              output=PRINTED),
        done(1, **OUTPUT, output=PRINTED, max_output_length=None, status="completed"),
    )  # fmt: skip
    assert found[3:] == [
        shell_call(True),
        ToolResult("call_1", raw({"output": [{"stdout": "a", "stderr": ""}]}), preliminary=True,
                   extra=item_extra(type="shell_call_output", id="so")),
        ToolResult("call_1", raw({"output": PRINTED}),
                   extra=item_extra(type="shell_call_output", id="so", max_output_length=None)),
    ]  # fmt: skip


def test_a_shell_call_without_output_is_for_the_client() -> None:
    assert read(done(0, **SHELL, action=ACTION)).items == (shell_call(False),)
    other = {**OUTPUT, "call_id": "call_0"}
    response = read(done(0, **SHELL, action=ACTION), done(1, **other, output=[]))
    assert response.items[0] == shell_call(False)
    result = response.items[1]
    assert isinstance(result, ToolResult)
    assert (result.id, result.earlier) == ("call_0", True)
    for last in ([], [{"type": "error", "message": "no"}]):
        cut = decoded(CREATED, done(0, **SHELL, action=ACTION), *last).response
        assert [call.invalid for call in cut.invalid_tool_calls] == ["stream-failed"]


def test_the_output_of_commands_is_emitted_as_it_grows_at_linear_cost() -> None:
    deltas = [
        event("shell_call_output_content.delta", output_index=0, item_id="so",
              command_index=at % 2, delta={"stdout": "x" * 8, "stderr": "y" * 2})
        for at in range(400)
    ]  # fmt: skip
    response = read(added(0, **OUTPUT, output=[]), *deltas, done(0, **OUTPUT))
    results = [one for one in response.items if isinstance(one, ToolResult)]
    assert [one.preliminary for one in results] == [True] * (len(results) - 1) + [False]
    assert json.loads(bytes(results[-1].result)) == {
        "output": [{"stdout": "x" * 1600, "stderr": "y" * 400}] * 2
    }
    assert 10 < len(results) < 80
    assert sum(len(bytes(one.result)) for one in results) < 20 * 4000


def test_output_of_an_item_that_was_never_added_has_the_id_of_its_call() -> None:
    delta = event("shell_call_output_content.delta", output_index=0, command_index=0,
                  delta={"stderr": "e"})  # fmt: skip
    odd = event("shell_call_output_content.delta", output_index=0, command_index=0, delta="text")
    response = read(delta, odd, done(0, **OUTPUT))
    (result,) = [one for one in response.items if isinstance(one, ToolResult)]
    assert (result.id, json.loads(bytes(result.result))) == (
        "call_1", {"output": [{"stdout": "", "stderr": "e"}]},
    )  # fmt: skip


# Remote tools


MCP: dict[str, Any] = {"type": "mcp_call", "id": "mcp", "name": "look", "server_label": "zip"}
ASK: dict[str, Any] = {"type": "mcp_approval_request", "id": "mcpr", "name": "look",
                       "server_label": "zip", "arguments": '{"a":1}'}  # fmt: skip


def mcp_call(id: str, approval: str | None = None, **more: Any) -> ToolCall:
    return ToolCall(id, "look", '{"a":1}', "mcp_call", True, True, item_id="mcp",
                    server_label="zip", approval_request_id=approval, **more)  # fmt: skip


def mcp_result(id: str, extra: Any, **told: Any) -> ToolResult:
    values = {"type": "call", "server_label": "zip", "name": "look", "arguments": '{"a":1}'}
    return ToolResult(id, raw({**values, **told}), "error" in told, extra=extra)


def test_an_mcp_call_streams_its_arguments_and_has_its_result() -> None:
    assert parts(
        added(0, **MCP, arguments="", status="in_progress", approval_request_id=None),
        event("mcp_call.in_progress", output_index=0),
        event("mcp_call_arguments.delta", output_index=0, delta='{"a":'),
        event("mcp_call.in_progress", output_index=0),
        event("mcp_call_arguments.delta", output_index=0, delta="1}"),
        event("mcp_call_arguments.done", output_index=0, arguments='{"a":1}'),
        event("mcp_call.completed", output_index=0),
        done(0, **MCP, arguments='{"a":1}', output="ok", error=None, status="completed"),
    ) == [
        ToolParamsStart("mcp", "look", "mcp_call", "mcp", True,
                        extra=item_extra(server_label="zip")),
        ToolParamsDelta("mcp", '{"a":'),
        ToolParamsDelta("mcp", "1}"),
        ToolParamsEnd("mcp"),
        mcp_call("mcp"),
        mcp_result("mcp", item_extra(error=None), output="ok"),
    ]  # fmt: skip


@pytest.mark.parametrize("error", ["broken", {"type": "http_error", "code": 500}])
def test_an_mcp_call_that_failed_is_an_error(error: object) -> None:
    item = {**MCP, "arguments": '{"a":1}', "output": None, "error": error, "status": "failed"}
    response = at_once(item)
    extra = item_extra(output=None, status="failed")
    assert response.items == (mcp_call("mcp"), mcp_result("mcp", extra, error=error))
    assert response.finish_reason == "stop"


def test_arguments_that_are_not_json_only_make_an_mcp_call_invalid() -> None:
    response = at_once({**MCP, "arguments": "{x", "output": "ok"},
                       {"type": "message", "id": "m", "content": []})  # fmt: skip
    assert [call.invalid for call in response.invalid_tool_calls] == ["bad-arguments"]
    assert response.finish_reason == "stop"


def test_an_approval_request_is_a_call_that_waits() -> None:
    response = read(added(0, **ASK), done(0, **ASK), context=Context(ids=Ids(b"test")))
    call, request = response.items
    assert isinstance(call, ToolCall)
    assert call == ToolCall(
        "mcpr",
        "look",
        '{"a":1}',
        "mcp_approval_request",
        True,
        True,
        item_id="mcpr",
        approval_request_id="mcpr",
        server_label="zip",
    )
    assert request == ToolApprovalRequest("mcpr", "mcpr")
    assert (response.finish_reason, response.findings) == ("tool-calls", ())
    (other,) = [one for one in at_once({**ASK, "approval_request_id": "ask_1"}).items
                if isinstance(one, ToolApprovalRequest)]  # fmt: skip
    assert other == ToolApprovalRequest("ask_1", "ask_1")


def test_the_call_that_was_approved_has_the_id_of_its_request() -> None:
    first = read(done(0, **ASK))
    (waiting,) = first.tool_calls
    theirs = "renamed by the client"
    history = CallContent(theirs, waiting.name, waiting.params, kind=waiting.kind,
                          item_id=waiting.item_id, provider_executed=True,
                          approval_request_id=waiting.approval_request_id)  # fmt: skip
    bare = CallContent(theirs, "look", "{}", kind="mcp_approval_request", item_id="mcpr")
    named = CallContent(theirs, "look", "{}", approval_request_id="mcpr")
    plain = CallContent("other", "look", "{}", item_id="mcpr")
    result = ResultContent("other")
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr", "approve": True}
    item = {**MCP, "arguments": '{"a":1}', "output": "ok", "approval_request_id": "mcpr"}
    for content, id in (
        (history, theirs),
        (bare, theirs),
        (named, theirs),
        (OpaqueContent("openai-responses", "mcp_approval_request", raw(ASK)), waiting.id),
        (OpaqueContent("openai-responses", "mcp_approval_response", raw(answer)), waiting.id),
        (OpaqueContent("openai-responses", "mcp_approval_response", raw({"id": "x"})), "mcp"),
        (OpaqueContent("openai-responses", "compaction", raw(answer)), "mcp"),
        (plain, "mcp"),
    ):
        request = Request("m", messages=(Message("assistant", (content, result)),))
        for events in ([added(0, **MCP, approval_request_id="mcpr"), done(0, **item)],
                       [done(0, **item)]):  # fmt: skip
            second = read(*events, context=with_request(request))
            assert second.items[0] == mcp_call(id, "mcpr")
            assert second.items[1] == mcp_result(id, second.items[1].extra, output="ok")
    unasked = read(done(0, **item))
    assert [call.id for call in unasked.tool_calls] == ["mcp"]


def test_the_answer_to_an_approval_request_identifies_its_call() -> None:
    codec = DIALECTS["openai-responses"].request
    assert codec is not None
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr", "approve": True}
    asked = json.dumps({"model": "m", "previous_response_id": "resp_0", "input": [answer]})
    request = codec.parse(asked.encode(), Context()).request
    item = {**MCP, "arguments": '{"a":1}', "output": "ok", "approval_request_id": "mcpr"}
    (waiting,) = read(done(0, **ASK)).tool_calls
    (made,) = read(done(0, **item), context=with_request(request)).tool_calls
    assert (made.id, made.name, made.params) == (waiting.id, waiting.name, waiting.params)


def test_a_call_that_is_approved_in_the_same_response_is_one_call() -> None:
    item = {**MCP, "arguments": '{"a":1}', "output": "ok", "approval_request_id": "mcpr"}
    for events in ([added(1, **item)], []):
        response = read(done(0, **ASK), *events, done(1, **item))
        (call,) = response.tool_calls
        results = [one for one in response.items if isinstance(one, ToolResult)]
        assert [(one.id, one.earlier) for one in results] == [(call.id, False)]


def test_an_mcp_call_gets_its_name_at_its_end_if_not_before() -> None:
    nameless = {**MCP, "name": None}
    response = read(
        added(0, **nameless),
        event("mcp_call_arguments.delta", output_index=0, delta='{"a":1}'),
        done(0, **MCP, arguments='{"a":1}'),
    )
    assert [(call.name, call.params) for call in response.tool_calls] == [("look", '{"a":1}')]
    lost = read(done(0, **nameless, arguments='{"a":1}', output="ok"))
    assert [call.invalid for call in lost.invalid_tool_calls] == ["nameless"]


def test_tool_listings_are_written_back_unchanged() -> None:
    item = {"type": "mcp_list_tools", "id": "l", "server_label": "zip", "tools": [{"name": "a"}]}
    response = read(
        added(0, **{**item, "tools": []}),
        event("mcp_list_tools.in_progress", output_index=0),
        event("mcp_list_tools.completed", output_index=0),
        done(0, **item),
    )
    assert response.findings == ()
    (opaque,) = response.items
    assert isinstance(opaque, Opaque)
    assert (opaque.kind, json.loads(bytes(opaque.raw))) == ("mcp_list_tools", item)


# Tool searches and programs


FIND: dict[str, Any] = {"type": "tool_search_call", "id": "ts", "arguments": {"paths": ["a"]}}


def test_a_hosted_tool_search_is_paired_with_the_next_output() -> None:
    found = parts(
        added(0, **{**FIND, "arguments": {}}, execution="server", call_id=None),
        done(0, **FIND, execution="server", call_id=None, status="completed"),
        done(1, **{**FIND, "id": "ts2"}, execution="server", call_id=None),
        done(2, type="tool_search_output", id="to", execution="server", call_id=None, tools=[1]),
        done(3, type="tool_search_output", id="to2", execution="server", call_id=None, tools=[]),
        done(4, type="tool_search_output", id="to3", execution="server", tools=[]),
    )
    params = '{"paths":["a"]}'
    assert found[:4] == [
        ToolParamsStart("ts", "tool_search", "tool_search_call", "ts", True,
                        extra=item_extra(execution="server")),
        ToolParamsDelta("ts", params),
        ToolParamsEnd("ts"),
        ToolCall("ts", "tool_search", params, "tool_search_call", True, item_id="ts",
                 extra=item_extra(execution="server", call_id=None)),
    ]  # fmt: skip
    results = [part for part in found if isinstance(part, ToolResult)]
    assert [(one.id, one.earlier) for one in results] == [
        ("ts", False), ("ts2", False), ("to3", True),
    ]  # fmt: skip
    assert (results[0].result, results[0].extra) == (
        raw({"tools": [1]}),
        item_extra(type="tool_search_output", id="to", execution="server", call_id=None),
    )


def test_a_tool_search_output_with_a_call_id_belongs_to_that_search() -> None:
    response = read(
        done(0, **FIND, execution="client", call_id="call_1"),
        done(1, type="tool_search_output", id="to", call_id="call_1", execution="client", tools=[]),
    )
    assert response.items[1] == ToolResult(
        "call_1",
        raw({"tools": []}),
        extra=item_extra(type="tool_search_output", id="to", execution="client"),
    )


def test_a_tool_search_of_the_client_has_the_call_id_of_its_end() -> None:
    response = read(
        added(0, **{**FIND, "arguments": {}}, execution="client", call_id="call_0"),
        done(0, **FIND, execution="client", call_id="call_1", status="completed"),
    )
    assert response.items == (
        ToolCall("call_1", "tool_search", '{"paths":["a"]}', "tool_search_call", item_id="ts",
                 extra=item_extra(execution="client")),
    )  # fmt: skip
    assert (response.finish_reason, codes(response)) == ("tool-calls", ["call-id-changed"])
    (text,) = at_once({**FIND, "arguments": '{"b":1}', "call_id": "call_1"}).tool_calls
    assert (text.id, text.params, text.provider_executed) == ("call_1", '{"b":1}', False)
    (bare,) = at_once({"type": "tool_search_call", "id": "ts"}).tool_calls
    assert (bare.id, bare.params, bare.provider_executed) == ("ts", "{}", True)


def test_a_program_and_its_output_may_be_responses_apart() -> None:
    program = {"type": "program", "id": "cm", "call_id": "call_1", "code": "go()"}
    first = read(added(0, **{**program, "code": "", "fingerprint": "early"}),
                 done(0, **program, fingerprint="late"))  # fmt: skip
    assert first.items == (
        ToolCall("call_1", "program", '{"code":"go()","fingerprint":"late"}', "program", True,
                 item_id="cm"),
    )  # fmt: skip
    assert (first.finish_reason, first.findings) == ("stop", ())
    output = {"type": "program_output", "id": "cmo", "call_id": "call_1", "result": "1",
              "status": "completed"}  # fmt: skip
    extra = item_extra(type="program_output", id="cmo")
    result = raw({"result": "1", "status": "completed"})
    later = read(added(0, **{**output, "result": ""}), done(0, **output))
    assert later.items == (ToolResult("call_1", result, earlier=True, extra=extra),)
    assert later.findings == ()
    both = read(done(0, **program), done(1, **output))
    assert both.items[1] == ToolResult("call_1", result, extra=extra)


def test_a_call_made_by_a_program_says_so_and_may_be_in_progress() -> None:
    caller = {"type": "program", "caller_id": "call_1"}
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}",
            "caller": caller, "status": "in_progress"}  # fmt: skip
    (call,) = read(added(0, **{**item, "arguments": ""}), done(0, **item)).tool_calls
    assert (call.caller, call.invalid) == ("call_1", None)
    assert call.extra == item_extra(caller=caller, status="in_progress")
