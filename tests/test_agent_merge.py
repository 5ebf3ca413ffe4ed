"""One stream out of a run: legal, complete, and the same however it is cut."""

from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent_stretches import ANY_RUNS, LABEL, TIDY_RUNS, StretchCase
from tests.strategies import QUICK, THOROUGH
from weft.agent.events import (
    CallFinished,
    CallIntended,
    CallResolved,
    RunWaiting,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
)
from weft.agent.merge import MCP_APPROVAL, MCP_CALL, StretchEntry, StretchMerge, TurnParts
from weft.assembler import Assembler, merged
from weft.captures import decode_all
from weft.codec import Encoder
from weft.context import Context
from weft.dialect_names import DialectName
from weft.findings import Finding, Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.lifecycle import violations
from weft.parts import (
    Finish,
    Part,
    ReasoningDelta,
    ResponseMetadata,
    TextDelta,
    ToolApprovalRequest,
    ToolCall,
    ToolResult,
    Usage,
)
from weft.relay.paused_turns import add_usage

METADATA = ResponseMetadata("resp_out", model=LABEL, created=1)
DIALECTS: tuple[DialectName, ...] = (
    "openai-responses",
    "anthropic-messages",
    "openai-chat",
    "gemini",
)


def merge_of(case: StretchCase, *, tools_visible: bool = True) -> tuple[StretchMerge, Findings]:
    findings = Findings()
    merge = StretchMerge(METADATA, findings, case.calls, label=LABEL, tools_visible=tools_visible)
    return merge, findings


def told(case: StretchCase, *, tools_visible: bool = True) -> tuple[list[Part], list[Finding]]:
    merge, findings = merge_of(case, tools_visible=tools_visible)
    return merge.feed(case.entries) + merge.finish(), findings.found


def shown_parts(entries: Iterable[StretchEntry]) -> list[Part]:
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
    run: list[StretchCase],
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
    run: list[StretchCase],
) -> None:
    def texts(parts: Iterable[Part]) -> list[str]:
        return [one.delta for one in parts if isinstance(one, TextDelta | ReasoningDelta)]

    for case in run:
        assert texts(told(case)[0]) == texts(shown_parts(case.entries))


@THOROUGH
@given(run=ANY_RUNS)
def test_what_was_run_is_told_once_and_nothing_else_is(run: list[StretchCase]) -> None:
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
def test_a_stretch_ends_with_what_the_client_must_do(run: list[StretchCase]) -> None:
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
def test_the_usage_is_that_of_all_attempts(run: list[StretchCase]) -> None:
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
def test_in_pieces_it_is_the_same(run: list[StretchCase], data: st.DataObject) -> None:
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
def test_hidden_tools_leave_everything_else(run: list[StretchCase]) -> None:
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
        assert [plain(part) for part in parts] == [plain(part) for part in left]
        assert found == same


def plain(part: Part) -> Part:
    """Without the ids of calls: those that are hidden use up none."""
    if isinstance(part, ToolCall | ToolApprovalRequest):
        return msgspec.structs.replace(part, id="")
    return part


# In the dialects


def read_back(dialect: DialectName, parts: list[Part]) -> tuple[Finding, ...] | None:
    """Writes the parts in a dialect and reads them again; returns what could not be carried."""
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
    run = [(one.name, one.params) for one in after.tool_calls if one.provider_executed]
    kinds = CARRIED.get(dialect, ())
    assert run == [(one.name, one.params) for one in before.tool_calls if one.kind in kinds]
    return tuple(encoder.findings)


CARRIED = {
    "openai-responses": (MCP_CALL, MCP_APPROVAL),
    "anthropic-messages": (MCP_CALL,),
}
"""The calls that a client sees although it does not run them."""


@pytest.mark.parametrize("dialect", DIALECTS)
@QUICK
@given(run=TIDY_RUNS)
def test_every_dialect_carries_the_text_and_the_clients_calls(
    dialect: DialectName, run: list[StretchCase]
) -> None:
    for case in run:
        read_back(dialect, told(case)[0])
