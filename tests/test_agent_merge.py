"""One stream out of a run: legal, complete, and the same however it is cut."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
import pytest
from anthropic.types.beta import (
    BetaMCPToolResultBlock,
    BetaMCPToolUseBlock,
    BetaMessageParam,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from openai.types.responses.response_output_item import McpApprovalRequest, McpCall

from tests.agent_runs import append, call_of, run_with
from tests.agent_segments import ANY_RUNS, LABEL, TIDY_RUNS, SegmentCase
from tests.sdk_readers import Official, Read
from tests.strategies import QUICK, THOROUGH
from weft.agent.definition import AgentDefinition
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallIntended,
    CallParked,
    CallRefused,
    CallResolved,
    JudgedCall,
    MessageAdded,
    RunCancelled,
    RunCreated,
    RunFailed,
    RunFinished,
    RunWaiting,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    text_result,
)
from weft.agent.merge import (
    DIALECT,
    MCP_APPROVAL,
    MCP_CALL,
    PARKED,
    CallProgress,
    DescendantCall,
    DescendantsWait,
    SegmentEntry,
    SegmentMerge,
    TurnParts,
)
from weft.agent.state import ABANDONED
from weft.agent.tool_spec import ToolSpec
from weft.assembler import Assembler, Response, merged
from weft.captures import decode_all
from weft.check import examine
from weft.check.rules import rule
from weft.codec import Encoder
from weft.context import Context
from weft.dialect_names import DialectName
from weft.findings import Finding, Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.lifecycle import violations
from weft.parts import (
    ErrorPart,
    Finish,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
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
    Usage,
)
from weft.relay.paused_turns import add_usage
from weft.request import ImageContent

METADATA = ResponseMetadata("resp_out", model=LABEL, created=1)
DIALECTS: tuple[DialectName, ...] = (
    "openai-responses",
    "anthropic-messages",
    "openai-chat",
    "gemini",
)


def merge_of(case: SegmentCase, *, tools_visible: bool = True) -> tuple[SegmentMerge, Findings]:
    findings = Findings()
    merge = SegmentMerge(METADATA, findings, case.calls, label=LABEL, tools_visible=tools_visible)
    return merge, findings


def told(case: SegmentCase, *, tools_visible: bool = True) -> tuple[list[Part], list[Finding]]:
    merge, findings = merge_of(case, tools_visible=tools_visible)
    return merge.feed(case.entries) + merge.finish(), findings.found


def shown_parts(entries: Iterable[SegmentEntry]) -> list[Part]:
    """The parts of the attempts, without those that came after their end."""
    parts: list[Part] = []
    response = None
    for entry in entries:
        match entry:
            case TurnStarted():
                response = entry.response
            case TurnInterrupted() | TurnFinished():
                response = None
            case TurnParts() if entry.response == response:
                parts += entry.parts
    return parts


def run_calls(parts: Iterable[Part]) -> Counter[tuple[str, str]]:
    """What is told as a call that the agent runs."""
    return Counter(
        (part.name, part.params)
        for part in parts
        if isinstance(part, ToolCall) and part.kind == MCP_CALL
    )


@THOROUGH
@given(run=ANY_RUNS)
def test_whatever_happens_in_a_run_its_stream_is_legal_and_nothing_needs_repair(
    run: list[SegmentCase],
) -> None:
    for case in run:
        parts, found = told(case)
        assert violations(parts, Assembler()) == []
        findings = Findings()
        guard = Guard(Ids(b""), findings)
        assert guard.feed(parts) + guard.finish() == parts
        assert findings.found == []
        interrupted = [one for one in case.entries if isinstance(one, TurnInterrupted)]
        assert [one.code for one in found] == ["turn-interrupted"] * len(interrupted)


@THOROUGH
@given(run=ANY_RUNS)
def test_the_text_is_that_of_all_attempts_as_far_as_they_were_shown(
    run: list[SegmentCase],
) -> None:
    def texts(parts: Iterable[Part]) -> list[str]:
        return [one.delta for one in parts if isinstance(one, TextDelta | ReasoningDelta)]

    for case in run:
        assert texts(told(case)[0]) == texts(shown_parts(case.entries))


@THOROUGH
@given(run=ANY_RUNS)
def test_what_was_run_is_told_once_and_nothing_else_is(run: list[SegmentCase]) -> None:
    judged = {
        one.id: one
        for case in run
        for entry in case.entries
        if isinstance(entry, TurnFinished)
        for one in entry.calls
    }
    for case in run:
        run_here: set[str] = set()
        results: list[str] = []
        for entry in case.entries:
            match entry:
                case CallIntended(call=id):
                    run_here.add(id)
                case CallFinished(call=id) | CallResolved(call=id, action="done" | "abandon"):
                    run_here.add(id)
                    results.append(id)
                case RunWaiting(parked=parked):  # the result says that nobody knows it
                    run_here.update(parked)
                    results += parked
        parts, _ = told(case)
        expected = Counter((judged[id].name, judged[id].arguments) for id in run_here)
        assert run_calls(parts) == expected
        own = [one for one in parts if isinstance(one, ToolCall) and one.kind == MCP_CALL]
        assert all(one.provider_executed and one.server_label == LABEL for one in own)
        ids = {one.id for one in own}
        given = [one for one in parts if isinstance(one, ToolResult) and one.id in ids]
        assert len(given) == len(results)


@THOROUGH
@given(run=ANY_RUNS)
def test_a_segment_ends_with_what_the_client_must_do(run: list[SegmentCase]) -> None:
    for case in run:
        merge, _ = merge_of(case)
        parts = merge.feed(case.entries)
        waiting = next((one for one in case.entries if isinstance(one, RunWaiting)), None)
        calls = [one for one in parts if isinstance(one, ToolCall) and not one.provider_executed]
        asked = [one for one in parts if isinstance(one, ToolApprovalRequest)]
        if waiting is None:
            assert (calls, asked) == ([], [])
            continue
        assert [merge.run_calls[one.id] for one in calls] == [*waiting.outputs]
        assert [merge.run_calls[one.id] for one in asked] == [*waiting.approvals]
        last = parts[-1]
        assert merge.ended
        assert isinstance(last, Finish)
        assert last.reason == "tool-calls"


@THOROUGH
@given(run=ANY_RUNS)
def test_the_usage_is_that_of_all_attempts(run: list[SegmentCase]) -> None:
    for case in run:
        known: list[Usage | None] = []
        for part in shown_parts(case.entries):
            if isinstance(part, ResponseMetadata):
                known.append(part.usage)
            elif isinstance(part, Finish):
                known[-1] = merged(known[-1], part.usage)
        last = told(case)[0][-1]
        assert isinstance(last, Finish)
        assert last.usage == add_usage([one for one in known if one is not None])


@QUICK
@given(run=ANY_RUNS, data=st.data())
def test_in_pieces_it_is_the_same(run: list[SegmentCase], data: st.DataObject) -> None:
    for case in run:
        places = sorted(data.draw(st.lists(st.integers(0, len(case.entries)), max_size=4)))
        whole = told(case)
        merge, findings = merge_of(case)
        parts: list[Part] = []
        for begin, end in zip([0, *places], [*places, len(case.entries)], strict=True):
            parts += merge.feed(case.entries[begin:end])
        assert (parts + merge.finish(), findings.found) == whole
        assert merge.feed(case.entries) == merge.finish() == []


@THOROUGH
@given(run=ANY_RUNS)
def test_hidden_tools_leave_everything_else(run: list[SegmentCase]) -> None:
    for case in run:
        parts, found = told(case, tools_visible=False)
        assert violations(parts, Assembler()) == []
        whole, same = told(case)
        hidden = {
            part.id
            for part in whole
            if isinstance(part, ToolCall) and part.provider_executed and part.kind != MCP_APPROVAL
        }
        left = [
            part
            for part in whole
            if not isinstance(part, ToolResult)
            and not (isinstance(part, ToolCall) and part.id in hidden)
        ]
        # What is hidden and parked is told in words: the client would not know what it waits for.
        note = parts[-4:-1] if any("it is not known" in one for one in words(parts[-4:])) else []
        assert len(note) == (3 if parked_in(case) else 0)
        rest = [part for part in parts if part not in note]
        assert [plain(part) for part in rest] == [plain(part) for part in left]
        assert found == same


def words(parts: Iterable[Part]) -> list[str]:
    return [part.delta for part in parts if isinstance(part, TextDelta)]


def parked_in(case: SegmentCase) -> bool:
    """Whether the segment ends because a call is parked."""
    last = case.entries[-1]
    return isinstance(last, RunWaiting) and bool(last.parked)


def plain(part: Part) -> Part:
    """Without the ids of calls: those that are hidden use up none."""
    if isinstance(part, ToolCall | ToolApprovalRequest):
        return msgspec.structs.replace(part, id="")
    return part


# In the dialects


def read_back(dialect: DialectName, parts: list[Part]) -> Response:
    """Writes the parts in a dialect and reads them again."""
    encoder = Encoder(dialect, context=Context(now=1))
    raw = b"".join([*encoder.feed(parts), *encoder.finish()])
    [decoded] = decode_all(raw, dialect)
    fold = Assembler()
    for part in parts:
        fold.feed(part)
    before, after = fold.response(), decoded.response
    assert after.text == before.text
    assert (after.error is None) == (before.error is None)
    own = [(one.id, one.name, one.params) for one in after.tool_calls if not one.provider_executed]
    assert own == [
        (one.id, one.name, one.params) for one in before.tool_calls if not one.provider_executed
    ]
    run = [
        (one.name, one.params, one.server_label)
        for one in after.tool_calls
        if one.provider_executed
    ]
    assert run == [(one.name, one.params, LABEL) for one in SEEN[dialect](before)]
    report = examine(raw, dialect)
    assert [one for one in report.findings if rule(one.code).severity != "note"] == []
    return decoded.response


def all_told(response: Response) -> list[ToolCall]:
    """Items of calls that have no result yet when a response fails are not closed."""
    settled = {one.id for one in response.items if isinstance(one, ToolResult)}
    calls = [one for one in response.tool_calls if one.provider_executed]
    return [one for one in calls if response.error is None or one.id in settled]


def with_results(response: Response) -> list[ToolCall]:
    calls = {one.id: one for one in response.tool_calls if one.kind == MCP_CALL}
    return [calls[one.id] for one in response.items if isinstance(one, ToolResult)]


SEEN: dict[DialectName, Callable[[Response], list[ToolCall]]] = {
    "openai-responses": all_told,
    "anthropic-messages": with_results,
    "openai-chat": lambda response: [],
    "gemini": lambda response: [],
}
"""The calls that a client sees although it does not run them."""


@pytest.mark.parametrize("dialect", DIALECTS)
@QUICK
@given(run=TIDY_RUNS)
def test_every_dialect_carries_the_text_and_the_clients_calls(
    dialect: DialectName, run: list[SegmentCase]
) -> None:
    for case in run:
        read_back(dialect, told(case)[0])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_that_runs_when_the_run_is_cancelled_is_never_told_as_whole(
    dialect: DialectName,
) -> None:
    entries: list[SegmentEntry] = [
        TurnStarted(1, 1, "resp_1"),
        TurnParts("resp_1", (ResponseMetadata("r"), Finish("tool-calls"))),
        TurnFinished(
            1, 1, "tool-calls", has_text=False, calls=(call_of("c1", "look", arguments="{}"),)
        ),
        CallIntended("c1", 1, "run/c1"),
        RunCancelled(by="me", reason=""),
    ]
    merge = SegmentMerge(METADATA, Findings(), label=LABEL)
    found = read_back(dialect, merge.feed(entries) + merge.finish())
    assert found.tool_calls == ()
    assert found.error is not None
    assert {one.invalid for one in found.invalid_tool_calls} <= {"stream-failed"}


# Official clients

STORY: list[SegmentEntry] = [
    TurnStarted(1, 1, "resp_1"),
    TurnParts("resp_1", (ResponseMetadata("r"), TextStart("0"), TextDelta("0", "I look. "))),
    TurnParts("resp_1", (TextEnd("0"), Finish("tool-calls", usage=Usage(1, 2, 3)))),
    TurnFinished(
        1,
        1,
        "tool-calls",
        has_text=True,
        calls=(
            call_of("c1", "look", arguments='{"at":"x"}'),
            call_of("c2", "pay", "ask", arguments='{"sum":7}'),
            call_of("c3", "mine", "client", arguments='{"q":1}'),
        ),
    ),
    CallIntended("c1", 1, "run/c1"),
    ApprovalRequested("appr_1", "c2", "", 9.0),
    CallFinished("c1", text_result("nothing")),
    RunWaiting(approvals=("c2",), outputs=("c3",)),
]


def raw_stream(dialect: DialectName, entries: Sequence[SegmentEntry]) -> bytes:
    encoder = Encoder(dialect, context=Context(now=1))
    merge = SegmentMerge(METADATA, Findings(), label=LABEL)
    return b"".join([*encoder.feed(merge.feed(entries) + merge.finish()), *encoder.finish()])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_official_clients_see_only_their_own_calls_as_theirs(dialect: DialectName) -> None:
    official = Official()
    read = official.read(dialect, raw_stream(dialect, STORY))
    official.close()
    finish = {"openai-chat": "tool_calls", "anthropic-messages": "tool_use", "gemini": "STOP"}
    assert read == Read("I look. ", (("c3", "mine", '{"q":1}'),), finish.get(dialect, "completed"))


def answering(raw: bytes) -> httpx2.Client:
    """A connection on which every answer is this stream."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, content=raw, request=request)

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def test_the_openai_client_reads_mcp_calls_and_approval_requests() -> None:
    http = answering(raw_stream("openai-responses", STORY))
    client = openai.OpenAI(base_url="http://localhost/v1", api_key="none", http_client=http)
    with client.responses.stream(model=LABEL, input="hi") as stream:
        final = stream.get_final_response()
    client.close()
    text, call, mine, asked = final.output
    assert isinstance(text, openai.types.responses.ParsedResponseOutputMessage)
    assert isinstance(call, McpCall)
    assert (call.server_label, call.name, call.output, call.status) == (
        LABEL,
        "look",
        "nothing",
        "completed",
    )
    assert isinstance(asked, McpApprovalRequest)
    assert (asked.id, asked.name, asked.arguments) == ("c2", "pay", '{"sum":7}')
    assert mine.type == "function_call"


def test_the_anthropic_client_reads_mcp_blocks() -> None:
    http = answering(raw_stream("anthropic-messages", STORY))
    client = anthropic.Anthropic(base_url="http://localhost", api_key="none", http_client=http)
    messages: list[BetaMessageParam] = [{"role": "user", "content": "hi"}]
    with client.beta.messages.stream(model=LABEL, max_tokens=9, messages=messages) as stream:
        message = stream.get_final_message()
    client.close()
    _, use, result, mine = message.content
    assert isinstance(use, BetaMCPToolUseBlock)
    assert (use.server_name, use.name, use.input) == (LABEL, "look", {"at": "x"})
    assert isinstance(result, BetaMCPToolResultBlock)
    assert (result.tool_use_id, result.content, result.is_error) == (use.id, "nothing", False)
    assert mine.type == "tool_use"


# Cases


def merged_parts(*entries: SegmentEntry, **options: Any) -> list[Part]:
    merge = SegmentMerge(METADATA, Findings(), label=LABEL, **options)
    [metadata, *parts] = merge.feed(entries) + merge.finish()
    assert metadata == msgspec.structs.replace(METADATA, dialect=DIALECT)
    return parts


def test_what_an_interrupted_attempt_has_shown_stays_and_its_calls_are_never_told() -> None:
    attempt = (
        ResponseMetadata("r", usage=Usage(5)),
        ReasoningStart("0", "raw"),
        TextStart("0", item_id="msg"),
        TextDelta("0", "Let me"),
    )
    call = (ToolParamsStart("c", "look"), ToolParamsDelta("c", "{}"), ToolParamsEnd("c"))
    answer = (
        ResponseMetadata("r", usage=Usage(5)),
        TextStart("0", item_id="msg"),
        TextDelta("0", "Done."),
        Source("s", "url", text_id="0", url="u"),
        TextEnd("0"),
        Finish("length", raw_reason="max", usage=Usage(5, 1), stop_sequence="!"),
    )
    findings = Findings()
    merge = SegmentMerge(METADATA, findings, label=LABEL)
    parts = merge.feed(
        [
            TurnStarted(1, 1, "resp_1"),
            TurnParts("resp_1", (*attempt, *call, ToolCall("c", "look", "{}"))),
            TurnInterrupted(1, 1, "the process died"),
            TurnStarted(1, 2, "resp_2"),
            TurnParts("resp_1", (TextDelta("0", " see"),)),
            TurnParts("resp_2", answer),
            TurnFinished(1, 2, "length", has_text=True),
            RunFinished(1, "length"),
        ]
    )
    assert parts[1:] == [
        ReasoningStart("0", "raw"),
        TextStart("0", item_id="msg"),
        TextDelta("0", "Let me"),
        ReasoningEnd("0"),
        TextEnd("0"),
        TextStart("0_2", item_id="msg_2"),
        TextDelta("0_2", "Done."),
        Source("s", "url", text_id="0_2", url="u"),
        TextEnd("0_2"),
        Finish("length", "max", usage=Usage(10, 1), stop_sequence="!"),
    ]
    assert [one.detail for one in findings.found] == ["turn 1, attempt 1: the process died"]


def test_a_call_that_somebody_approved_names_its_approval() -> None:
    state = run_with(ToolSpec("pay"), calls=[call_of("c", "pay", "ask", '{"sum":7}')])
    append(state, ApprovalRequested("appr_1", "c", "", 9.0), RunWaiting(approvals=("c",)))
    parts = merged_parts(
        ApprovalDecided("appr_1", "c", True, "me"),
        CallIntended("c", 1, "run/c"),
        CallFinished("c", (*text_result("paid"), ImageContent(media_type="image/png"))),
        RunFinished(1, "stop"),
        calls=state.open_calls,
        public_id="run_{}".format,
    )
    call = ToolCall("run_c", "pay", '{"sum":7}', MCP_CALL, True, True, server_label=LABEL,
                    approval_request_id="run_c")  # fmt: skip
    result = ToolResult("run_c", Raw(b'"paid\\n[image/png]"'))
    assert parts == [call, result, Finish("stop")]


def test_a_call_that_was_denied_or_refused_is_not_told() -> None:
    state = run_with(ToolSpec("pay"), calls=[call_of("c", "pay", "ask"), call_of("d", "x")])
    append(state, ApprovalRequested("appr_1", "c", "", 9.0), RunWaiting(approvals=("c",)))
    parts = merged_parts(
        ApprovalDecided("appr_1", "c", False, "me"),
        CallRefused("d", "unknown-tool", "no"),
        RunFinished(1, "tool-calls"),
        calls=state.open_calls,
    )
    assert parts == [Finish("stop")]


def test_a_parked_call_says_so_and_is_told_anew_when_it_is_settled() -> None:
    state = run_with(ToolSpec("pay"), calls=[call_of("c", "pay")])
    events: list[AnyRunEvent] = [CallIntended("c", 1, "run/c"), CallParked("c", "died")]
    call = ToolCall("c", "pay", "{}", MCP_CALL, True, True, server_label=LABEL)
    parts = merged_parts(*events, RunWaiting(parked=("c",)), calls=state.open_calls)
    unknown = ToolResult("c", Raw(msgspec.json.encode(PARKED)), is_error=True)
    assert parts == [call, unknown, Finish("tool-calls")]
    append(state, *events)
    settled = CallResolved("c", "abandon", "me")
    abandoned = ToolResult("c", Raw(msgspec.json.encode(ABANDONED)), is_error=True)
    parts = merged_parts(settled, RunFinished(1, "stop"), calls=state.open_calls)
    assert parts == [call, abandoned, Finish("stop")]


def test_calls_that_the_upstream_ran_are_shown_whole_or_not_at_all() -> None:
    search = ToolCall("w", "web_search", "{}", "web_search_call", True, item_id="ws")
    asks = ToolCall("m", "far", "{}", MCP_APPROVAL, True)
    broken = ToolCall("b", "far", "{", MCP_CALL, True, invalid="bad-arguments")
    result = ToolResult("w", Raw(b"[]"))
    opaque, earlier = Opaque("gemini", "x", Raw(b"1")), ToolResult("old", Raw(b"2"), earlier=True)
    start = ToolParamsStart("w", "web_search", "web_search_call", provider_executed=True)
    asked = [asks, ToolApprovalRequest("m", "x"), broken, ToolResult("b", Raw(b"1"))]
    shown = (start, search, result, *asked, opaque, earlier)
    first = TurnStarted(1, 1, "a"), TurnParts("a", shown), TurnFinished(1, 1, "stop")
    again = TurnStarted(2, 1, "b"), TurnParts("b", (search, result)), TurnFinished(2, 1, "stop")
    parts = merged_parts(*first, *again, RunFinished(2, "stop"))
    assert parts == [
        search,
        result,
        opaque,
        earlier,
        msgspec.structs.replace(search, id="w_2", item_id="ws_2"),
        msgspec.structs.replace(result, id="w_2"),
        Finish("stop"),
    ]
    hidden = merged_parts(*first, RunFinished(1, "stop"), tools_visible=False)
    assert hidden == [opaque, Finish("stop")]


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (RunFailed("model", "m"), ErrorPart("upstream", "m", "model", retryable=True)),
        (RunFailed("loop", "m"), ErrorPart("upstream", "m", "loop")),
        (RunFailed("no-progress", "m"), ErrorPart("upstream", "m", "no-progress")),
        (RunFailed("limit", "m"), ErrorPart("upstream", "m", "limit")),
        (RunFailed("interrupted", "m"), ErrorPart("internal", "m", "interrupted", retryable=True)),
        (RunCancelled("me"), ErrorPart("cancelled", "the run was cancelled")),
        (RunCancelled("me", "no"), ErrorPart("cancelled", "the run was cancelled: no")),
        (
            MessageAdded(Raw(b"{}")),  # and then nothing more
            ErrorPart(
                "truncated",
                "the stream of the run was cut off; the run itself may go on",
                retryable=True,
            ),
        ),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_run_that_does_not_finish_ends_with_an_error(end: AnyRunEvent, error: ErrorPart) -> None:
    parts = merged_parts(
        TurnStarted(1, 1, "a"),
        TurnParts("a", (ResponseMetadata("r", usage=Usage(1)), TextStart("0"))),
        end,
    )
    ends = [TextStart("0"), TextEnd("0"), error, Finish("error", usage=Usage(1))]
    assert parts == ends


def test_the_client_is_told_which_call_of_the_run_its_own_call_is() -> None:
    """An upstream may use the same id for a call of its own."""
    taken = ToolCall("c", "search", "{}", "web_search_call", True)
    merge = SegmentMerge(METADATA, Findings(), label=LABEL)
    parts = merge.feed(
        [
            TurnStarted(1, 1, "a"),
            TurnParts("a", (taken,)),
            TurnFinished(1, 1, "tool-calls", calls=(call_of("c", "mine", "client", "free text"),)),
            RunWaiting(outputs=("c",)),
        ]
    )
    own = ToolCall("c_2", "mine", "free text", invalid="bad-arguments")
    assert parts[1:] == [taken, own, Finish("tool-calls")]
    assert merge.run_calls == {"c_2": "c"}


def test_progress_is_a_preliminary_result_until_the_call_has_its_own() -> None:
    """That of a call which nobody was told of, or that is over, is left out."""
    merge = SegmentMerge(METADATA, Findings(), label=LABEL)
    judged = JudgedCall("c", "look", "{}", "digest", "dispatch")
    parts = merge.feed(
        [
            RunCreated(AgentDefinition("a", "m"), ()),
            TurnStarted(1, 1, "resp_1"),
            TurnFinished(1, 1, "tool-calls", calls=(judged,)),
            CallProgress("run", "unknown", "nothing"),
            CallIntended("c", 1, "run/c"),
            CallProgress("run", "c", "half of it"),
            CallFinished("c", text_result("all of it")),
            CallProgress("run", "c", "late"),
        ]
    )
    results = [part for part in parts if isinstance(part, ToolResult)]
    assert [(bytes(one.result), one.preliminary) for one in results] == [
        (b'"half of it"', True),
        (b'"all of it"', False),
    ]


def test_a_wait_for_agents_ends_the_segment_when_they_wait_as_well() -> None:
    child = run_with(ToolSpec("pay"), calls=[call_of("p", "pay", "ask", '{ "sum" : 7 }')])
    append(child, ApprovalRequested("appr_1", "p", "", 9.0), RunWaiting(approvals=("p",)))
    state = run_with(ToolSpec("child", kind="agent"), calls=[call_of("c", "child")])
    intended = CallIntended("c", 1, "run/c", "agent", "run_2")
    wait = DescendantsWait(0, (DescendantCall("c", child, child.calls["p"]),))
    events: list[SegmentEntry] = [intended, RunWaiting(children=("c",))]
    merge = SegmentMerge(METADATA, Findings(), state.open_calls, label=LABEL)
    parts = merge.feed(events)
    assert not merge.ended
    parts += merge.feed([MessageAdded(Raw(b"{}")), wait])  # it does not wait any more
    assert not merge.ended
    parts += merge.feed([events[1], wait])
    call = ToolCall("c", "child", "{}", MCP_CALL, True, True, server_label=LABEL)
    waits = ToolResult("c", Raw(b'"This agent waits until somebody approves its call of pay."'))
    asked = ToolCall(
        "p",
        "pay",
        '{ "sum" : 7 }',
        MCP_APPROVAL,
        True,
        True,
        item_id="p",
        approval_request_id="p",
        server_label="a",
    )
    request = ToolApprovalRequest("p", "p")
    assert parts[1:] == [call, waits, asked, request, Finish("tool-calls")]
    merge = SegmentMerge(
        METADATA, Findings(), state.open_calls, label=LABEL, approvals_in_text=True
    )
    [_, told, result, _, words, _, finish] = merge.feed([*events, wait])
    assert (told, result, finish) == (call, waits, Finish("stop"))
    assert isinstance(words, TextDelta)
    assert words.delta.splitlines() == [
        'a asks for your approval of pay({"sum":7}).',
        "",
        "To approve it, answer `approve p`; to deny it, `deny p`.",
    ]
