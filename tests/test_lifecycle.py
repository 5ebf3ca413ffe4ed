"""The law: every row of every table both ways, every predicate both ways."""

from collections.abc import Iterable
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.strategies import ARGUMENTS, QUICK, THOROUGH, cuts
from tests.tables import each_row
from weft import partial_json
from weft.assembler import Assembler
from weft.lifecycle import (
    ABSENT,
    CALLED,
    EARLIER,
    EARLIER_PRELIMINARY,
    FAILED,
    FAMILY,
    OPEN,
    PREDICATES,
    PRELIMINARY,
    RESPONSE,
    SEALED,
    TABLES,
    Event,
    Hold,
    Lifecycle,
    State,
    Violation,
    event_of,
    meaning,
    settled,
    violations,
)
from weft.parts import (
    AnyPart,
    ErrorPart,
    File,
    Finish,
    ItemPart,
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
)

RESULT = ToolResult("a", Raw(b"1"))
EXAMPLES: dict[Event, Part] = {
    ResponseMetadata: ResponseMetadata("resp_1"),
    TextStart: TextStart("a"),
    TextDelta: TextDelta("a", "x"),
    TextEnd: TextEnd("a"),
    ReasoningStart: ReasoningStart("a", "raw"),
    ReasoningDelta: ReasoningDelta("a", "x"),
    ReasoningEnd: ReasoningEnd("a"),
    ToolParamsStart: ToolParamsStart("a", "look"),
    ToolParamsDelta: ToolParamsDelta("a", "{"),
    ToolParamsEnd: ToolParamsEnd("a"),
    ToolCall: ToolCall("a", "look", "{}", invalid="stream-failed"),
    ToolResult: RESULT,
    (ToolResult, PRELIMINARY): ToolResult("a", Raw(b"1"), preliminary=True),
    (ToolResult, EARLIER): ToolResult("a", Raw(b"1"), earlier=True),
    (ToolResult, EARLIER_PRELIMINARY): ToolResult("a", Raw(b"1"), preliminary=True, earlier=True),
    ToolApprovalRequest: ToolApprovalRequest("a", "approval_1"),
    Source: Source("a", "url"),
    File: File("a", "image/png"),
    Opaque: Opaque("gemini", "x", Raw(b"1")),
    ErrorPart: ErrorPart("upstream", "no"),
    Finish: Finish("stop"),
}
"""One part for each event that a table may name."""


def name_of(event: Any) -> str:
    """For the names of the tests, and for what a violation says was legal."""
    if isinstance(event, str):
        return event
    if isinstance(event, State):
        return event.value
    return f"{event[1]} {event[0].__name__}" if isinstance(event, tuple) else str(event.__name__)


def lifecycle(
    response: State, states: dict[tuple[str, str], State] | None = None, joined: str = "{}"
) -> Lifecycle:
    law = Lifecycle(lambda call: joined)
    law.response = response
    law.states.update(states or {})
    return law


def expected(part: Part, family: str, state: State, law: int) -> list[Violation]:
    legal = ", ".join(sorted(map(name_of, TABLES[family][state]))) or "nothing"
    return [Violation(law, 0, f"{part.type} while {family} is {state.value}: expected {legal}")]


def codes(found: Iterable[Violation]) -> list[int]:
    return [one.law for one in found]


# The tables

ITEM_ROWS = [
    (family, state, event)
    for family, table in TABLES.items()
    for state, event in product(table, EXAMPLES)
    if FAMILY.get(EXAMPLES[event].__class__) == family
]


def test_there_is_an_example_of_every_part_and_every_event() -> None:
    assert {part.__class__ for part in EXAMPLES.values()} == set(get_args(AnyPart))
    named = {event for table in TABLES.values() for row in table.values() for event in row}
    assert named <= set(EXAMPLES)
    assert {event: event_of(part) for event, part in EXAMPLES.items()} == {
        event: event for event in EXAMPLES
    }


def test_every_part_of_an_item_moves_one_table() -> None:
    items = {part for part in get_args(AnyPart) if issubclass(part, ItemPart)}
    assert set(FAMILY) == items


@each_row("family, state, event", ITEM_ROWS, ids=name_of)
def test_an_item_moves_by_the_rows_of_its_table_and_by_nothing_else(
    family: str, state: State, event: Event
) -> None:
    part = EXAMPLES[event]
    law = lifecycle(OPEN, {(family, "a"): state})
    found = law.feed(part)
    row = TABLES[family][state]
    number = 3 if family == "tool" else 2
    assert found == ([] if event in row else expected(part, family, state, number))
    assert law.states[family, "a"] is row.get(event, state)


def test_an_item_never_seen_is_absent() -> None:
    law = lifecycle(OPEN)
    assert law.feed(TextDelta("a", "x")) == expected(TextDelta("a", "x"), "text", ABSENT, 2)


READY: dict[type[Part], State] = {
    TextDelta: OPEN,
    TextEnd: OPEN,
    ReasoningDelta: OPEN,
    ReasoningEnd: OPEN,
    ToolParamsDelta: OPEN,
    ToolParamsEnd: OPEN,
    ToolCall: SEALED,
    ToolResult: CALLED,
    ToolApprovalRequest: CALLED,
}
"""The state that lets an item take this part."""


@each_row("state, event", list(product(RESPONSE, get_args(AnyPart))), ids=name_of)
def test_a_response_moves_by_the_rows_of_its_table_and_by_nothing_else(
    state: State, event: type[Part]
) -> None:
    part = EXAMPLES[event]
    if event is Finish and state is FAILED:
        part = Finish("error")
    family = FAMILY.get(event, "")
    law = lifecycle(state, {(family, "a"): READY[event]} if event in READY else None)
    law.states.pop(("", "a"), None)
    found = law.feed(part)
    row = RESPONSE[state]
    number = 6 if state is FAILED else 1
    assert found == ([] if event in row else expected(part, "response", state, number))
    assert law.response is row.get(event, state)


# The predicates: (name, what came before, the part, the law it breaks or None)

METADATA = ResponseMetadata("resp_1")
ERROR = ErrorPart("upstream", "no")
LOOK = ToolParamsStart("a", "look")
FREE = ToolParamsStart("a", "look", format="text")


def delta(text: str) -> ToolParamsDelta:
    return ToolParamsDelta("a", text)


END = ToolParamsEnd("a")
SEALED_CALL = [METADATA, LOOK, delta("{"), delta("}"), END]

PREDICATE_CASES: dict[str, list[tuple[list[Part], Part, bool]]] = {
    "_delta_says_something": [
        ([METADATA, TextStart("a")], TextDelta("a", " "), True),
        ([METADATA, TextStart("a")], TextDelta("a", ""), False),
        ([METADATA, ReasoningStart("a", "raw")], ReasoningDelta("a", ""), False),
        ([METADATA, LOOK], delta(""), False),
    ],
    "_nothing_is_open": [
        ([METADATA, TextStart("a"), TextEnd("a")], Finish("stop"), True),
        ([METADATA, TextStart("a")], Finish("stop"), False),
        ([METADATA, ReasoningStart("a", "raw")], Finish("stop"), False),
        ([METADATA, LOOK], Finish("stop"), False),
        (SEALED_CALL, Finish("stop"), False),
    ],
    "_announced_with_a_name": [
        ([METADATA], LOOK, True),
        ([METADATA], ToolParamsStart("a", ""), False),
    ],
    "_call_is_the_one_announced": [
        (SEALED_CALL, ToolCall("a", "look", "{}"), True),
        (SEALED_CALL, ToolCall("a", "read", "{}"), False),
        (SEALED_CALL, ToolCall("a", "look", "{}", kind="custom"), False),
        (SEALED_CALL, ToolCall("a", "look", "{}", format="text"), False),
        (SEALED_CALL, ToolCall("a", "look", "{}", provider_executed=True), False),
        ([METADATA], ToolCall("a", "read", "{}", kind="custom"), True),
    ],
    "_params_are_the_joined_deltas": [
        (SEALED_CALL, ToolCall("a", "look", "{}"), True),
        (SEALED_CALL, ToolCall("a", "look", "{ }"), False),
        ([METADATA], ToolCall("a", "look", "{ }"), True),
    ],
    "_call_has_a_name": [
        ([METADATA], ToolCall("a", "  ", "{}", invalid="nameless"), False),
        ([METADATA], ToolCall("a", " ", "{}"), False),
        ([METADATA], ToolCall("a", "", "{}", invalid="nameless"), True),
        ([METADATA], ToolCall("a", "", "{}", invalid="stream-failed"), True),
        ([METADATA], ToolCall("a", "", "{}", invalid="bad-arguments"), False),
        ([METADATA], ToolCall("a", "", "{}"), False),
        (SEALED_CALL, ToolCall("a", "look", "{}", invalid="nameless"), False),
    ],
    "_params_are_usable": [
        ([METADATA], ToolCall("a", "look", "[]"), True),
        ([METADATA], ToolCall("a", "look", "{", format="text"), True),
        ([METADATA], ToolCall("a", "look", "{", invalid="bad-arguments"), True),
        ([METADATA], ToolCall("a", "look", "{"), False),
        ([METADATA], ToolCall("a", "look", ""), False),
        ([METADATA], ToolCall("a", "look", "null"), False),
        ([METADATA], ToolCall("a", "look", '"{}"'), False),
    ],
    "_stop_with_calls": [
        ([METADATA, ToolCall("a", "look", "{}")], Finish("tool-calls"), True),
        ([METADATA, ToolCall("a", "look", "{}")], Finish("length"), True),
        ([METADATA, ToolCall("a", "look", "{}")], Finish("stop"), False),
        ([METADATA, ToolCall("a", "look", "{}", provider_executed=True)], Finish("stop"), True),
        ([METADATA, ToolCall("a", "look", "{", invalid="bad-arguments")], Finish("stop"), True),
    ],
    "_no_whole": [
        ([METADATA, TextStart("a")], TextEnd("a"), True),
        ([METADATA, TextStart("a")], TextEnd("a", whole=""), False),
        ([METADATA, ReasoningStart("a", "raw")], ReasoningEnd("a", whole=""), False),
        (SEALED_CALL[:-1], ToolParamsEnd("a", whole="{}"), False),
    ],
    "_valid_only_before_an_error": [
        ([METADATA, ERROR], ToolCall("a", "look", "{}", invalid="stream-failed"), True),
        ([METADATA, ERROR], ToolCall("a", "look", "{}"), False),
        ([METADATA], ToolCall("a", "look", "{}"), True),
    ],
    "_error_and_finish_agree": [
        ([METADATA, ERROR], Finish("error"), True),
        ([METADATA, ERROR], Finish("stop"), False),
        ([METADATA], Finish("error"), False),
        ([METADATA], Finish("other"), True),
    ],
    "_what_is_due": [
        ([METADATA, LOOK, delta("{")], TextStart("t"), True),
        ([METADATA, LOOK, delta("{}")], END, True),
        ([METADATA, LOOK, delta("{}")], TextStart("t"), False),
        ([METADATA, LOOK, delta("{}")], delta(" "), False),
        ([METADATA, LOOK, delta(' "x')], TextStart("t"), False),
        ([METADATA, LOOK, delta("nu")], TextStart("t"), False),
        ([METADATA, LOOK, delta("{"), delta("}")], TextStart("t"), True),
        ([METADATA, FREE, delta("{}")], TextStart("t"), True),
        ([METADATA, LOOK, ToolParamsStart("b", "look"), delta("{}")], ToolParamsEnd("b"), False),
        ([*SEALED_CALL], TextStart("t"), True),
        ([METADATA, LOOK, delta("{"), END], TextStart("t"), False),
        ([METADATA, LOOK, END], ToolCall("a", "look", "", invalid="bad-arguments"), True),
        ([METADATA, LOOK, END], ToolCall("b", "look", "{}"), False),
        ([METADATA, LOOK, delta("null"), END], Finish("stop"), False),
        ([METADATA, FREE, delta("{"), END], TextStart("t"), True),
    ],
}


def test_every_predicate_has_cases_both_ways() -> None:
    assert [predicate.__name__ for _, _, predicate in PREDICATES] == list(PREDICATE_CASES)
    for cases in PREDICATE_CASES.values():
        assert {passes for _, _, passes in cases} == {True, False}


@each_row(
    "name, before, part, passes",
    [(name, *case) for name, cases in PREDICATE_CASES.items() for case in cases],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_predicate_says_what_is_wrong_and_nothing_else(
    name: str, before: list[Part], part: Part, passes: bool
) -> None:
    fold = Assembler()
    law = Lifecycle(fold.joined)
    for one in before:
        assert law.feed(one) == []
        fold.feed(one)
    number, types, predicate = next(row for row in PREDICATES if row[2].__name__ == name)
    assert isinstance(part, types)
    message = predicate(part, law)
    assert bool(message) is not passes
    found = law.feed(part)
    assert (Violation(number, len(before), f"{part.type}: {message}") in found) is not passes


# Whole streams


def test_an_empty_stream_has_no_finish() -> None:
    assert violations([], Assembler()) == [Violation(1, 0, "no finish: the response is absent")]


def test_a_stream_without_a_finish_says_where_it_stands() -> None:
    assert violations([METADATA, ERROR], Assembler()) == [
        Violation(1, 2, "no finish: the response is failed")
    ]


def test_a_violation_says_what_came_in_which_state_what_was_legal_and_where() -> None:
    parts = [METADATA, LOOK, delta("{"), delta("}"), END, delta("{}")]
    assert violations(parts, Assembler())[0] == Violation(
        3, 5, "tool-params-delta while tool is sealed: expected ToolCall"
    )


def test_after_a_violation_the_state_is_what_it_was() -> None:
    parts = [METADATA, TextStart("a"), TextStart("a"), TextEnd("a"), Finish("stop")]
    assert codes(violations(parts, Assembler())) == [2]


LAWS: dict[int, tuple[list[Part], list[Part]]] = {
    1: ([METADATA, Finish("stop")], [METADATA, Finish("stop"), Finish("stop")]),
    2: (
        [METADATA, TextStart("a"), TextStart("b"), TextEnd("a"), TextEnd("b"), Finish("stop")],
        [METADATA, TextStart("a"), TextEnd("a"), TextStart("a"), TextEnd("a"), Finish("stop")],
    ),
    3: (
        [*SEALED_CALL, ToolCall("a", "look", "{}"), RESULT, Finish("tool-calls")],
        [METADATA, RESULT, Finish("stop")],
    ),
    4: (
        [METADATA, ToolCall("a", "", "{", invalid="nameless"), Finish("stop")],
        [METADATA, ToolCall("a", "", "{"), Finish("stop")],
    ),
    5: (
        [METADATA, TextStart("a"), TextDelta("a", "x"), TextEnd("a"), Finish("stop")],
        [METADATA, TextStart("a"), TextDelta("a", "x"), TextEnd("a", whole="x"), Finish("stop")],
    ),
    6: (
        [METADATA, TextStart("a"), ERROR, TextEnd("a"), Finish("error")],
        [METADATA, TextStart("a"), ERROR, TextDelta("a", "x"), TextEnd("a"), Finish("error")],
    ),
    9: (
        [METADATA, LOOK, delta("{}"), END, ToolCall("a", "look", "{}"), Finish("tool-calls")],
        [
            METADATA,
            LOOK,
            delta("{}"),
            Source("s", "url"),
            END,
            ToolCall("a", "look", "{}"),
            Finish("tool-calls"),
        ],
    ),
}
"""Per law a stream that keeps it and one that breaks it. 7 and 8 are for guard and codecs."""


@pytest.mark.parametrize("law", LAWS)
def test_each_law_can_be_kept_and_broken(law: int) -> None:
    kept, broken = LAWS[law]
    assert violations(kept, Assembler()) == []
    assert law in codes(violations(broken, Assembler()))


# What argument text means


@pytest.mark.parametrize(
    ("text", "is_json", "is_settled"),
    [
        ("{}", True, True),
        ("[1]", True, True),
        ("7", True, True),
        ('"text"', True, True),
        ("null", True, False),
        (" null\n", True, False),
        ('"{\\"a\\":1}"', True, False),
        ('"[1]"', True, True),
        ("", False, False),
        ("{", False, False),
        ("1e400", False, False),
    ],
)
def test_arguments_are_settled_when_they_are_json_and_mean_what_they_say(
    text: str, is_json: bool, is_settled: bool
) -> None:
    assert (partial_json.is_json(text), settled(text)) == (is_json, is_settled)


@pytest.mark.parametrize(
    ("text", "meant", "code"),
    [
        ("", "{}", "arguments-empty"),
        (" \r\n\t", "{}", "arguments-empty"),
        (" null ", "{}", "arguments-empty"),
        ('"{ }"', "{ }", "arguments-double-encoded"),
        ('"[]"', '"[]"', None),
        ("{", "{", None),
    ],
)
def test_blank_and_null_mean_no_arguments_and_an_object_in_a_string_that_object(
    text: str, meant: str, code: str | None
) -> None:
    assert meaning(text) == (meant, code)


BLANKS = " \t\r\n"


def may_change(text: str) -> bool:
    """Whether text that is all there is so far may yet mean something else."""
    bare = text.strip(BLANKS)
    return bare in ("{}", "[]") or "null".startswith(bare) or bare.startswith('"')


BEGINNINGS = st.lists(st.sampled_from(["", " ", "\n"]), max_size=2)
WORDS = st.lists(
    st.sampled_from(["", "{}", "[]", "{", "}", '"', "x", "n", "nu", "l", "ll", "ull"]), max_size=4
)


@THOROUGH
@given(beginning=BEGINNINGS, words=WORDS)
def test_text_is_held_exactly_as_long_as_all_of_it_may_change(
    beginning: list[str], words: list[str]
) -> None:
    pieces = beginning + words
    hold = Hold()
    held = [hold.feed(piece) for piece in pieces]
    joined = ["".join(pieces[: at + 1]) for at in range(len(pieces))]
    assert held == [all(map(may_change, joined[: at + 1])) for at in range(len(joined))]


@QUICK
@given(data=st.data(), text=st.sampled_from(["", " ", ' "x', "null", " nul", "\nn", '"{}"', '"']))
def test_where_text_that_is_always_held_is_cut_changes_nothing(
    data: st.DataObject, text: str
) -> None:
    hold = Hold()
    assert {hold.feed(piece) for piece in data.draw(cuts(text))} == {True}


@QUICK
@given(pieces=st.lists(ARGUMENTS, max_size=4))
def test_what_was_let_go_is_never_held_again(pieces: list[str]) -> None:
    hold = Hold()
    assert not hold.feed("{")
    assert True not in {hold.feed(piece) for piece in pieces}


ODD_PIECES = st.lists(
    st.sampled_from(["", " ", "{}", "[]", "{", "}", '"', "x", "n", "nu", "l", "ll", "ull", "{} "]),
    max_size=5,
)


@THOROUGH
@given(pieces=ODD_PIECES)
def test_odd_text_is_held_exactly_as_long_as_all_of_it_may_change(pieces: list[str]) -> None:
    hold = Hold()
    held = [hold.feed(piece) for piece in pieces]
    joined = ["".join(pieces[: at + 1]) for at in range(len(pieces))]
    assert held == [all(map(may_change, joined[: at + 1])) for at in range(len(joined))]
