"""The guard: any parts in, legal parts out; a legal stream passes untouched."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from msgspec import Raw

from tests.strategies import ANY_PART, LEGAL, QUICK, SOUP, THOROUGH, Legal, cuts
from tests.tables import each_row
from weft.assembler import Assembler
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.lifecycle import Lifecycle, violations
from weft.parts import (
    ErrorPart,
    File,
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

LONG_SOUP = st.lists(ANY_PART, max_size=40)


class Guarded(msgspec.Struct):
    """What came out, what was found, and the fold."""

    parts: list[Part]
    codes: list[str]
    fold: Assembler


def guarded(parts: Iterable[Part], pieces: bool = False) -> Guarded:
    findings = Findings()
    guard = Guard(Ids(b"seed"), findings)
    out: list[Part] = []
    for some in [[part] for part in parts] if pieces else [parts]:
        out += guard.feed(some)
    out += guard.finish()
    assert guard.finish() == []
    return Guarded(out, [finding.code for finding in findings.found], guard.fold)


# Any parts whatever


@THOROUGH
@given(parts=SOUP | LONG_SOUP)
def test_any_parts_whatever_come_out_legal(parts: list[Part]) -> None:
    assert violations(guarded(parts).parts, Assembler()) == []


@THOROUGH
@given(parts=SOUP | LONG_SOUP)
def test_the_guard_applied_twice_is_the_guard_applied_once(parts: list[Part]) -> None:
    once = guarded(parts)
    twice = guarded(once.parts)
    assert (twice.parts, twice.codes) == (once.parts, [])
    assert twice.fold.response() == once.fold.response()


@QUICK
@given(parts=SOUP | LONG_SOUP | LEGAL)
def test_parts_fed_one_at_a_time_or_all_at_once_come_out_the_same(parts: list[Part]) -> None:
    one, all_at_once = guarded(parts, pieces=True), guarded(parts)
    assert (one.parts, one.codes) == (all_at_once.parts, all_at_once.codes)
    assert one.fold.response() == all_at_once.fold.response()


@THOROUGH
@given(parts=SOUP | LONG_SOUP)
def test_joined_deltas_are_the_params_and_the_fold(parts: list[Part]) -> None:
    result = guarded(parts)
    joined: dict[tuple[str, str], str] = {}
    for part in result.parts:
        match part:
            case TextDelta() | ReasoningDelta() | ToolParamsDelta():
                key = (part.type.split("-")[0], part.id)
                joined[key] = joined.get(key, "") + part.delta
            case ToolParamsEnd():
                joined.setdefault(("tool", part.id), "")
            case ToolCall():
                assert joined.get(("tool", part.id), part.params) == part.params
                assert result.fold.joined(part.id) == part.params
    for (family, id), text in joined.items():
        fold = {"text": result.fold.text, "reasoning": result.fold.reasoning}
        assert fold.get(family, result.fold.joined)(id) == text


@QUICK
@given(parts=SOUP | LONG_SOUP)
def test_a_stream_fit_for_the_law_is_left_as_it_is(parts: list[Part]) -> None:
    kept = fit_for_the_law(parts)
    findings = Findings()
    out = Guard(Ids(), findings).feed(kept)
    assert out == kept[: len(out)]
    assert findings.found == []


def fit_for_the_law(parts: list[Part]) -> list[Part]:
    """The parts without those that would break the law where they stand."""
    kept: list[Part] = [ResponseMetadata("resp_1")]
    for part in parts:
        fold = Assembler()
        law = Lifecycle(fold.joined)
        for one in kept:
            law.feed(one)
            fold.feed(one)
        if not law.feed(part):
            kept.append(part)
    return kept


# Legal streams


@THOROUGH
@given(stream=LEGAL)
def test_a_legal_stream_passes_untouched_and_without_findings(stream: list[Part]) -> None:
    assert violations(stream, Assembler()) == []
    result = guarded(stream)
    assert (result.parts, result.codes) == (stream, [])


class LegalStreams(RuleBasedStateMachine):
    """Builds legal streams: at every step the law accepts them and the guard lets them pass."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = Legal()
        self.findings = Findings()
        self.guard = Guard(Ids(), self.findings)
        self.fold = Assembler()
        self.law = Lifecycle(self.fold.joined)
        self.fed = 0
        self.out: list[Part] = []
        self.take()

    def take(self) -> None:
        new = self.stream.parts[self.fed :]
        self.fed += len(new)
        for part in new:
            assert self.law.feed(part) == []
            self.fold.feed(part)
            self.out += self.guard.feed([part])
        assert self.out == self.stream.parts[: len(self.out)]
        assert self.findings.found == []

    @rule(data=st.data())
    def begin_text(self, data: st.DataObject) -> None:
        self.stream.begin_text(data.draw)
        self.take()

    @rule(data=st.data())
    def begin_reasoning(self, data: st.DataObject) -> None:
        self.stream.begin_reasoning(data.draw)
        self.take()

    @rule(data=st.data())
    def begin_call(self, data: st.DataObject) -> None:
        self.stream.begin_call(data.draw)
        self.take()

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        self.stream.go_on(data.draw)
        self.take()

    @precondition(lambda self: self.stream.texts)
    @rule(data=st.data())
    def end_text(self, data: st.DataObject) -> None:
        self.stream.end_text(data.draw)
        self.take()

    @precondition(lambda self: self.stream.reasonings)
    @rule(data=st.data())
    def end_reasoning(self, data: st.DataObject) -> None:
        self.stream.end_reasoning(data.draw)
        self.take()

    @precondition(lambda self: self.stream.open)
    @rule(data=st.data())
    def end_call(self, data: st.DataObject) -> None:
        self.stream.end_call(data.draw)
        self.take()

    @precondition(lambda self: self.stream.sealed)
    @rule(data=st.data())
    def call(self, data: st.DataObject) -> None:
        self.stream.call(data.draw)
        self.take()

    @rule(data=st.data())
    def lone_call(self, data: st.DataObject) -> None:
        self.stream.lone_call(data.draw)
        self.take()

    @rule(data=st.data())
    def result(self, data: st.DataObject) -> None:
        self.stream.result(data.draw)
        self.take()

    @precondition(lambda self: self.stream.called)
    @rule(data=st.data())
    def approval(self, data: st.DataObject) -> None:
        self.stream.approval(data.draw)
        self.take()

    @rule(data=st.data())
    def other(self, data: st.DataObject) -> None:
        self.stream.other(data.draw)
        self.take()

    @precondition(lambda self: not self.stream.failed and self.fed > 6)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.stream.fail(data.draw)
        self.take()

    def teardown(self) -> None:
        """However it went so far, it can be ended; then all of it was let through."""
        self.stream.close()
        self.take()
        assert self.out == self.stream.parts
        assert self.guard.finish() == []
        assert self.law.finish() == []
        assert self.guard.fold.response() == self.fold.response()


TestLegalStreams = LegalStreams.TestCase
TestLegalStreams.settings = settings(QUICK, stateful_step_count=25)


# The repairs: what comes in, what comes out between metadata and finish, what is found

METADATA = ResponseMetadata("resp_1")
ERROR = ErrorPart("upstream", "no")
STOP, CALLS, FAILED = Finish("stop"), Finish("tool-calls"), Finish("error")
LOOK, END = ToolParamsStart("c", "look"), ToolParamsEnd("c")
FREE = ToolParamsStart("c", "look", kind="custom", format="text")
RESULT = ToolResult("c", Raw(b"1"))
MADE = ToolCall("c", "look", '{"a":1}')


def delta(text: str) -> ToolParamsDelta:
    return ToolParamsDelta("c", text)


def made(params: str, invalid: str | None = None) -> ToolCall:
    return msgspec.structs.replace(MADE, params=params, invalid=invalid)


FIRST, SECOND = delta('{"a":'), delta("1}")

REPAIRS: dict[str, tuple[list[Part], list[Part], list[str]]] = {
    "a missing start of a text is put in": (
        [TextDelta("t", "x"), TextEnd("t"), STOP],
        [TextStart("t"), TextDelta("t", "x"), TextEnd("t"), STOP],
        ["start-missing"],
    ),
    "a missing start of a reasoning is put in": (
        [ReasoningDelta("r", "x"), ReasoningEnd("r"), STOP],
        [ReasoningStart("r", "raw"), ReasoningDelta("r", "x"), ReasoningEnd("r"), STOP],
        ["start-missing"],
    ),
    "an end with content gets its start": (
        [ReasoningEnd("r", encrypted="e"), TextEnd("t", whole="x"), STOP],
        [
            ReasoningStart("r", "raw"),
            ReasoningEnd("r", encrypted="e"),
            TextStart("t"),
            TextDelta("t", "x"),
            TextEnd("t"),
            STOP,
        ],
        ["start-missing", "start-missing", "whole-extends"],
    ),
    "an empty end without a start is left out": (
        [TextEnd("t"), ReasoningEnd("r"), END, STOP],
        [STOP],
        ["end-without-start", "end-without-start", "end-without-start"],
    ),
    "a second start is left out": (
        [TextStart("t"), TextStart("t"), TextEnd("t"), LOOK, LOOK, FIRST, SECOND, END, MADE, CALLS],
        [TextStart("t"), TextEnd("t"), LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["start-repeated", "start-repeated"],
    ),
    "a missing end of a text is put in": (
        [TextStart("t"), ReasoningStart("r", "raw"), STOP],
        [TextStart("t"), ReasoningStart("r", "raw"), TextEnd("t"), ReasoningEnd("r"), STOP],
        ["end-missing", "end-missing"],
    ),
    "a second end is left out": (
        [
            TextStart("t"),
            TextEnd("t"),
            TextEnd("t"),
            LOOK,
            FIRST,
            SECOND,
            END,
            END,
            MADE,
            END,
            CALLS,
        ],
        [TextStart("t"), TextEnd("t"), LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["end-repeated", "end-repeated"],
    ),
    "an id that was closed and comes again becomes another": (
        [
            TextStart("t"),
            TextEnd("t"),
            TextStart("t", refusal=True),
            TextDelta("t", "x"),
            TextEnd("t", signature="s"),
            STOP,
        ],
        [
            TextStart("t"),
            TextEnd("t"),
            TextStart("t_2", refusal=True),
            TextDelta("t_2", "x"),
            TextEnd("t_2", signature="s"),
            STOP,
        ],
        ["id-reused"],
    ),
    "a delta after its end opens another": (
        [ReasoningStart("r", "raw"), ReasoningEnd("r"), ReasoningDelta("r", "x"), STOP],
        [
            ReasoningStart("r", "raw"),
            ReasoningEnd("r"),
            ReasoningStart("r_2", "raw"),
            ReasoningDelta("r_2", "x"),
            ReasoningEnd("r_2"),
            STOP,
        ],
        ["delta-late", "id-reused", "end-missing"],
    ),
    "an empty delta is left out": (
        [
            TextStart("t"),
            TextDelta("t", ""),
            TextEnd("t"),
            LOOK,
            delta(""),
            FIRST,
            SECOND,
            END,
            MADE,
            CALLS,
        ],
        [TextStart("t"), TextEnd("t"), LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["delta-empty", "delta-empty"],
    ),
    "a delta of a call that was ended is left out": (
        [LOOK, FIRST, SECOND, END, delta("{}"), MADE, delta("{}"), CALLS],
        [LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["delta-late"],
    ),
    "deltas of a call wait for its name": (
        [FIRST, SECOND, LOOK, END, MADE, CALLS],
        [LOOK, delta('{"a":1}'), END, MADE, CALLS],
        ["start-missing"],
    ),
    "a start without a name waits for one": (
        [ToolParamsStart("c", ""), FIRST, SECOND, LOOK, END, MADE, CALLS],
        [LOOK, delta('{"a":1}'), END, MADE, CALLS],
        [],
    ),
    "a tool-call names a call that waited": (
        [ToolParamsStart("c", ""), FIRST, SECOND, END, MADE, CALLS],
        [LOOK, delta('{"a":1}'), END, MADE, CALLS],
        ["end-missing"],
    ),
    "a call that never gets a name is a lone invalid tool-call": (
        [FIRST, SECOND, STOP],
        [ToolCall("c", "", '{"a":1}', invalid="nameless"), STOP],
        ["start-missing", "call-nameless"],
    ),
    "a tool-call without a name is invalid": (
        [FIRST, ToolCall("c", "", ""), STOP],
        [ToolCall("c", "", '{"a":', invalid="nameless"), STOP],
        ["start-missing", "call-nameless"],
    ),
    "a tool-call without a name takes that of its announcement": (
        [LOOK, FIRST, SECOND, END, ToolCall("c", "", "", invalid="nameless"), CALLS],
        [LOOK, FIRST, SECOND, END, MADE, CALLS],
        [],
    ),
    "a tool-call that meets open params ends them first": (
        [LOOK, FIRST, SECOND, MADE, CALLS],
        [LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["end-missing"],
    ),
    "a missing tool-call is put in": (
        [LOOK, FIRST, SECOND, END, CALLS],
        [LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["call-missing"],
    ),
    "a call that is open at the finish is cut": (
        [LOOK, FIRST, SECOND, STOP],
        [LOOK, FIRST, SECOND, END, made('{"a":1}', "stream-failed"), STOP],
        ["end-missing"],
    ),
    "a second tool-call is left out": (
        [MADE, MADE, CALLS],
        [MADE, CALLS],
        ["call-repeated"],
    ),
    "a start or delta for a called id opens nothing": (
        [MADE, LOOK, FIRST, END, CALLS],
        [MADE, CALLS],
        ["start-repeated", "delta-late", "end-repeated"],
    ),
    "a tool-call is the one that was announced": (
        [LOOK, FIRST, SECOND, END, ToolCall("c", "read", '{"a":1}', kind="custom"), CALLS],
        [LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["name-changed"],
    ),
    "streamed arguments win over those of the tool-call": (
        [LOOK, FIRST, SECOND, END, made('{"a":2}'), CALLS],
        [LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["whole-contradicts"],
    ),
    "a tool-call completes arguments that were cut short": (
        [LOOK, FIRST, MADE, CALLS],
        [LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["end-missing", "whole-extends"],
    ),
    "the end of arguments that are not settled waits in case more comes": (
        [LOOK, FIRST, END, SECOND, MADE, CALLS],
        [LOOK, FIRST, SECOND, END, MADE, CALLS],
        ["end-early"],
    ),
    "arguments that are no json are invalid": (
        [LOOK, FIRST, END, made(""), STOP],
        [LOOK, FIRST, END, made('{"a":', "bad-arguments"), STOP],
        ["arguments-invalid"],
    ),
    "blank arguments are none": (
        [LOOK, delta(" "), delta("\n"), END, made(""), CALLS],
        [LOOK, delta("{}"), END, made("{}"), CALLS],
        ["arguments-empty"],
    ),
    "no arguments are an empty object": (
        [LOOK, END, made(""), ToolCall("d", "look", ""), CALLS],
        [LOOK, delta("{}"), END, made("{}"), ToolCall("d", "look", "{}"), CALLS],
        ["arguments-empty", "arguments-empty"],
    ),
    "null is no arguments": (
        [LOOK, delta("nu"), delta("ll"), END, made("null"), CALLS],
        [LOOK, delta("{}"), END, made("{}"), CALLS],
        ["arguments-empty"],
    ),
    "arguments encoded twice are decoded once": (
        [LOOK, delta('"{\\"a\\"'), delta(':1}"'), END, made(""), CALLS],
        [LOOK, delta('{"a":1}'), END, MADE, CALLS],
        ["arguments-double-encoded"],
    ),
    "an empty placeholder gives way to the arguments": (
        [LOOK, delta("{}"), ToolParamsEnd("c", whole='{"a":1}'), MADE, CALLS],
        [LOOK, delta('{"a":1}'), END, MADE, CALLS],
        ["arguments-placeholder"],
    ),
    "free text is no json": (
        [FREE, delta("{}"), delta('"'), END, ToolCall("c", "look", "", format="text"), CALLS],
        [
            FREE,
            delta("{}"),
            delta('"'),
            END,
            ToolCall("c", "look", '{}"', kind="custom", format="text"),
            CALLS,
        ],
        [],
    ),
    "a result makes the call it belongs to": (
        [LOOK, FIRST, SECOND, RESULT, CALLS],
        [LOOK, FIRST, SECOND, END, MADE, RESULT, CALLS],
        ["result-early", "end-missing"],
    ),
    "an approval makes the call it belongs to": (
        [LOOK, FIRST, SECOND, END, ToolApprovalRequest("c", "p"), CALLS],
        [LOOK, FIRST, SECOND, END, MADE, ToolApprovalRequest("c", "p"), CALLS],
        ["result-early"],
    ),
    "a result after the last one is left out": (
        [MADE, RESULT, RESULT, CALLS],
        [MADE, RESULT, CALLS],
        ["result-late"],
    ),
    "a result without a call belongs to an earlier response": (
        [ToolResult("d", Raw(b"1"), preliminary=True), RESULT, STOP],
        [
            ToolResult("d", Raw(b"1"), preliminary=True, earlier=True),
            ToolResult("c", Raw(b"1"), earlier=True),
            STOP,
        ],
        ["result-without-call", "result-without-call"],
    ),
    "an approval without a call is left out": (
        [ToolApprovalRequest("c", "p"), MADE, RESULT, ToolApprovalRequest("c", "p"), CALLS],
        [MADE, RESULT, CALLS],
        ["approval-without-call", "approval-without-call"],
    ),
    "stop with a valid client call is tool-calls": (
        [MADE, STOP],
        [MADE, CALLS],
        ["stop-with-calls"],
    ),
    "the raw reason stays the wire's": (
        [MADE, Finish("stop", raw_reason="end_turn")],
        [MADE, Finish("tool-calls", raw_reason="end_turn")],
        ["stop-with-calls"],
    ),
    "second metadata is left out": (
        [ResponseMetadata("other"), STOP],
        [STOP],
        ["metadata-repeated"],
    ),
    "what follows the finish is left out": (
        [STOP, TextStart("t"), TextDelta("t", "x"), TextDelta("t", "x"), STOP],
        [STOP],
        ["after-finish", "after-finish", "after-finish"],
    ),
    "content after an error is left out": (
        [TextStart("t"), ERROR, TextDelta("t", "x"), ERROR, TextEnd("t", whole="xy"), FAILED],
        [TextStart("t"), ERROR, TextEnd("t"), FAILED],
        ["after-error", "after-error", "after-error"],
    ),
    "an end after an error opens nothing": (
        [ERROR, TextEnd("t", whole="x"), FAILED],
        [ERROR, FAILED],
        ["end-without-start"],
    ),
    "after an error the finish says so": (
        [ERROR, Finish("length")],
        [ERROR, Finish("error", raw_reason="length")],
        [],
    ),
    "a finish with an error gets one": (
        [TextStart("t"), FAILED],
        [
            TextStart("t"),
            ErrorPart("upstream", "the upstream reported an error"),
            TextEnd("t"),
            FAILED,
        ],
        ["error-missing"],
    ),
    "an error cuts the calls that are open": (
        [LOOK, FIRST, ERROR, FAILED],
        [LOOK, FIRST, ERROR, END, made('{"a":', "stream-failed"), FAILED],
        [],
    ),
    "an error cuts the calls that were ended": (
        [LOOK, FIRST, SECOND, END, ERROR, FAILED],
        [LOOK, FIRST, SECOND, END, ERROR, made('{"a":1}', "stream-failed"), FAILED],
        [],
    ),
    "an error cuts the calls that have no name": (
        [ToolParamsStart("c", ""), FIRST, ERROR, FAILED],
        [ERROR, ToolCall("c", "", '{"a":', invalid="stream-failed"), FAILED],
        ["call-nameless"],
    ),
    "a tool-call after an error is invalid": (
        [LOOK, FIRST, ERROR, MADE, ToolCall("d", "look", "{}"), FAILED],
        [
            LOOK,
            FIRST,
            ERROR,
            END,
            made('{"a":', "stream-failed"),
            ToolCall("d", "look", "{}", invalid="stream-failed"),
            FAILED,
        ],
        ["end-missing", "after-error"],
    ),
}


@each_row("repair", REPAIRS)
def test_each_repair_leaves_its_finding(repair: str) -> None:
    parts, expected, codes = REPAIRS[repair]
    result = guarded([METADATA, *parts])
    assert (result.parts, result.codes) == ([METADATA, *expected], codes)


def test_missing_metadata_is_put_in() -> None:
    result = guarded([STOP])
    assert result.parts == [ResponseMetadata(Ids(b"seed").mint("resp")), STOP]
    assert result.codes == ["metadata-missing"]


def test_a_stream_that_is_nothing_at_all_is_empty() -> None:
    assert guarded([]).parts == [
        ResponseMetadata(Ids(b"seed").mint("resp")),
        ErrorPart("empty", "the stream held no answer", retryable=True),
        FAILED,
    ]


def test_a_stream_that_ends_before_its_finish_is_truncated() -> None:
    assert guarded([METADATA, TextStart("t"), LOOK, delta("{}")]).parts == [
        METADATA,
        TextStart("t"),
        LOOK,
        delta("{}"),
        END,
        made("{}", "stream-failed"),
        ErrorPart("truncated", "the stream ended before its finish", retryable=True),
        TextEnd("t"),
        FAILED,
    ]


def test_a_stream_that_ends_after_an_error_gets_its_finish() -> None:
    assert guarded([METADATA, ERROR]).parts == [METADATA, ERROR, FAILED]


# What a wire repeats at the end


WHOLES = {
    "text": (TextStart("c"), TextDelta, TextEnd),
    "reasoning": (ReasoningStart("c", "raw"), ReasoningDelta, ReasoningEnd),
    "params": (FREE, ToolParamsDelta, ToolParamsEnd),
}


@pytest.mark.parametrize("family", WHOLES)
@QUICK
@given(data=st.data(), streamed=st.text("ab é\n", max_size=5), more=st.text("ab", min_size=1))
def test_a_whole_completes_what_was_streamed_or_leaves_a_finding(
    family: str, data: st.DataObject, streamed: str, more: str
) -> None:
    start, Delta, End = WHOLES[family]  # noqa: N806
    pieces = [Delta("c", piece) for piece in data.draw(cuts(streamed)) if piece]
    last = [ToolCall("c", "look", streamed, kind="custom", format="text")]
    last = last if family == "params" else []
    reason = CALLS if last else STOP

    def ended(whole: str) -> Guarded:
        return guarded([METADATA, start, *pieces, End("c", whole=whole), *last, reason])

    same = ended(streamed)
    assert same.parts == [METADATA, start, *pieces, End("c"), *last, reason]
    assert same.codes == []
    longer = ended(streamed + more)
    assert longer.parts[2:-1][: len(pieces) + 2] == [*pieces, Delta("c", more), End("c")]
    assert longer.codes[0] == "whole-extends"
    if streamed:
        other = ended("!" + streamed)
        assert other.parts == same.parts
        assert other.codes == ["whole-contradicts"]


def test_a_whole_that_is_blank_or_the_same_json_changes_no_params() -> None:
    for whole in ("", " ", '{ "a": 1 }', '"{\\"a\\": 1}"'):
        result = guarded(
            [METADATA, LOOK, FIRST, SECOND, ToolParamsEnd("c", whole=whole), MADE, CALLS]
        )
        assert result.parts == [METADATA, LOOK, FIRST, SECOND, END, MADE, CALLS]
        assert result.codes == []


def test_params_that_only_come_whole_are_one_delta() -> None:
    result = guarded([METADATA, LOOK, ToolParamsEnd("c", whole='{"a":1}'), MADE, CALLS])
    assert result.parts == [METADATA, LOOK, delta('{"a":1}'), END, MADE, CALLS]
    assert result.codes == ["whole-extends"]


def test_params_that_are_still_held_give_way_to_the_whole() -> None:
    result = guarded(
        [METADATA, LOOK, delta('"oops'), ToolParamsEnd("c", whole='{"a":1}'), MADE, CALLS]
    )
    assert result.parts == [METADATA, LOOK, delta('{"a":1}'), END, MADE, CALLS]
    assert result.codes == ["whole-contradicts"]


def test_the_whole_of_a_call_without_a_name_is_kept_for_it() -> None:
    result = guarded([METADATA, FIRST, ToolParamsEnd("c", whole='{"a":1}'), LOOK, MADE, CALLS])
    assert result.parts == [METADATA, LOOK, delta('{"a":1}'), END, MADE, CALLS]
    assert result.codes == ["start-missing", "whole-extends", "end-missing"]


# The laws, each by an example


def untouched(*parts: Part) -> bool:
    result = guarded(parts)
    return (result.parts, result.codes) == (list(parts), [])


def test_law_1_metadata_first_finish_last_each_once() -> None:
    assert untouched(METADATA, STOP)
    assert guarded([STOP, METADATA, STOP]).parts[1:] == [STOP]


def test_law_2_items_may_overlap_and_no_end_is_inferred_from_the_next_start() -> None:
    assert untouched(
        METADATA,
        TextStart("a"),
        TextStart("b"),
        ReasoningStart("a", "summary"),
        TextDelta("a", "x"),
        TextDelta("b", "y"),
        ReasoningDelta("a", "z"),
        TextEnd("b"),
        TextEnd("a"),
        ReasoningEnd("a"),
        STOP,
    )


def test_law_3_preliminary_results_and_approvals_come_between_the_call_and_its_result() -> None:
    early = msgspec.structs.replace(RESULT, preliminary=True)
    approval = ToolApprovalRequest("c", "p")
    assert untouched(
        METADATA, LOOK, FIRST, SECOND, END, MADE, approval, early, early, RESULT, CALLS
    )
    assert untouched(METADATA, msgspec.structs.replace(RESULT, earlier=True), STOP)


def test_law_4_an_invalid_call_carries_its_raw_text() -> None:
    assert untouched(METADATA, ToolCall("c", "", '{"a":', invalid="nameless"), STOP)
    assert untouched(METADATA, LOOK, FIRST, END, made('{"a":', "bad-arguments"), STOP)


def test_law_5_nothing_is_emitted_twice() -> None:
    twice = [METADATA, TextStart("t"), TextDelta("t", "x"), TextDelta("t", "x"), TextEnd("t"), STOP]
    assert untouched(*twice)
    with_whole = [*twice[:-2], TextEnd("t", whole="xx"), STOP]
    assert guarded(with_whole).parts == twice


def test_law_6_an_error_ends_the_content_then_come_the_ends_and_one_finish() -> None:
    assert untouched(
        METADATA,
        TextStart("t"),
        LOOK,
        FIRST,
        ERROR,
        TextEnd("t"),
        END,
        made('{"a":', "stream-failed"),
        FAILED,
    )


def test_law_7_what_belongs_to_no_item_passes_as_it_is() -> None:
    assert untouched(
        ResponseMetadata("resp_1", model="m", usage=Usage(1)),
        Source("s", "url", text_id="t"),
        File("f", "image/png", reference="file_1"),
        Opaque("gemini", "compaction", Raw(b'{"k": 1}')),
        Finish("length", usage=Usage(1, 2)),
    )


def test_law_8_reasoning_state_is_kept_byte_for_byte() -> None:
    end = ReasoningEnd("r", signature="s+/=", encrypted="e", redacted="d", origin="o")
    parts = [METADATA, ReasoningStart("r", "raw"), end, STOP]
    assert untouched(*parts)
    (item,) = guarded(parts).fold.response().items
    assert [getattr(item, name) for name in ("signature", "encrypted", "redacted", "origin")] == [
        "s+/=",
        "e",
        "d",
        "o",
    ]


def test_the_end_of_a_call_whose_arguments_are_not_settled_is_put_in_with_its_call() -> None:
    result = guarded([METADATA, LOOK, FIRST, END, STOP])
    assert result.parts == [METADATA, LOOK, FIRST, END, made('{"a":', "bad-arguments"), STOP]
    assert result.codes == ["call-missing", "arguments-invalid"]


def test_law_9_argument_text_is_held_while_it_may_change() -> None:
    guard = Guard(Ids(), Findings())
    assert guard.feed([METADATA, LOOK]) == [METADATA, LOOK]
    assert guard.feed([delta("{}")]) == []
    assert guard.feed([END]) == [delta("{}"), END]
    assert guard.feed([made("{}")]) == [made("{}")]


def test_law_9_the_end_of_unsettled_arguments_comes_with_the_call() -> None:
    guard = Guard(Ids(), Findings())
    assert guard.feed([METADATA, LOOK, FIRST]) == [METADATA, LOOK, FIRST]
    assert guard.feed([END]) == []
    assert guard.feed([made("")]) == [END, made('{"a":', "bad-arguments")]


PARAMS = st.sampled_from(["{}", "[]", '{"a":1}', "[1]", "null", "", " ", '"{}"', '"x"', "{", "7"])
AFTER_ERROR = st.one_of(
    st.builds(ToolParamsStart, id=st.just("a"), name=st.sampled_from(["", "look"])),
    st.builds(ToolParamsDelta, id=st.just("a"), delta=PARAMS),
    st.builds(ToolParamsEnd, id=st.just("a"), whole=st.none() | PARAMS),
    st.builds(ToolCall, id=st.just("a"), name=st.just("look"), params=PARAMS),
    st.builds(TextStart, id=st.just("a")),
)
"""Few parts of few ids, so that long stories of one call come up."""


@THOROUGH
@given(before=st.lists(AFTER_ERROR, max_size=6), after=st.lists(AFTER_ERROR, max_size=4))
def test_an_error_anywhere_leaves_a_legal_stream(before: list[Part], after: list[Part]) -> None:
    once = guarded([*before, ErrorPart("upstream", "no"), *after])
    assert violations(once.parts, Assembler()) == []
    assert guarded(once.parts).codes == []


def test_a_guard_knows_that_an_error_ended_the_content_until_the_finish() -> None:
    guard = Guard(Ids(b"seed"), Findings())
    failed = [guard.failed]
    for part in (ResponseMetadata("r"), ErrorPart("upstream", "no"), Finish("error")):
        guard.feed([part])
        failed.append(guard.failed)
    assert failed == [False, False, True, False]


def test_after_an_error_the_end_of_arguments_that_cannot_go_out_waits_for_the_call() -> None:
    parts = [
        ResponseMetadata("r"),
        TextStart("t"),
        ToolParamsStart("c", "look"),
        ErrorPart("upstream", "no"),
        ToolParamsEnd("c", whole="[]"),  # or: a held delta "{}" before the error, and a plain end
        Finish("error"),
    ]
    assert violations(guarded(parts).parts, Assembler()) == []


def test_a_whole_that_is_held_stays_held_when_more_comes() -> None:
    parts = [
        ResponseMetadata("r"),
        ToolParamsStart("c", "look"),
        ToolParamsEnd("c", whole='"'),
        ToolParamsDelta("c", "{"),
        Source("s", "url"),
        Finish("stop"),
    ]
    assert violations(guarded(parts).parts, Assembler()) == []


def test_blank_free_text_that_only_comes_whole_is_kept() -> None:
    start = ToolParamsStart("c", "sh", kind="custom", format="text")
    end = ToolParamsEnd("c", whole="\n")
    parts = guarded([ResponseMetadata("r"), start, end, Finish("stop")]).parts
    assert ToolParamsDelta("c", "\n") in parts


def test_an_empty_delta_of_an_unknown_call_makes_no_call() -> None:
    earlier = ToolResult("c", Raw(b"1"), earlier=True)
    start, end = ResponseMetadata("r"), Finish("stop")
    result = guarded([start, ToolParamsDelta("c", ""), earlier, end])
    assert result.parts == [start, earlier, end]
    assert result.codes == ["delta-empty"]
