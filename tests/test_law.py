"""Streams that obey the law, written by hand: together they use every row of its tables.

The tables are not read here on purpose. A row that goes missing makes one of these illegal.
"""

import pytest
from msgspec import Raw

from weft.assembler import Assembler
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.lifecycle import Hold, violations
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
)

RESULT = Raw(b'{"found":1}')
FAILED = [ErrorPart("upstream", "no"), Finish("error")]


def called(id: str, *deltas: str) -> list[Part]:
    """A whole call, announced."""
    return [
        ToolParamsStart(id, "look"),
        *(ToolParamsDelta(id, delta) for delta in deltas),
        ToolParamsEnd(id),
        ToolCall(id, "look", "".join(deltas)),
    ]


LEGAL: dict[str, list[Part]] = {
    "nothing said": [Finish("stop")],
    "text": [
        TextStart("t"),
        TextDelta("t", "a"),
        TextDelta("t", "b"),
        TextEnd("t"),
        Finish("stop"),
    ],
    "empty text": [TextStart("t"), TextEnd("t"), Finish("length")],
    "reasoning": [
        ReasoningStart("r", "summary"),
        ReasoningDelta("r", "a"),
        ReasoningEnd("r", encrypted="e", origin="x"),
        Finish("stop"),
    ],
    "items that overlap": [
        TextStart("t"),
        ReasoningStart("r", "raw"),
        TextStart("u"),
        TextDelta("t", "a"),
        ReasoningDelta("r", "b"),
        TextEnd("t"),
        ReasoningEnd("r"),
        TextEnd("u"),
        Finish("stop"),
    ],
    "one id in each family": [
        TextStart("a"),
        ReasoningStart("a", "raw"),
        *called("a", "{}"),
        TextEnd("a"),
        ReasoningEnd("a"),
        Finish("tool-calls"),
    ],
    "a call": [*called("c", '{"a":', "1}"), Finish("tool-calls")],
    "a call whose later deltas look empty": [
        *called("c", '{"a":', "{}", ',"b":', "null", " ", "}"),
        Finish("tool-calls"),
    ],
    "a call that came whole": [ToolCall("c", "look", "{}"), Finish("tool-calls")],
    "calls that overlap": [
        ToolParamsStart("c", "look"),
        ToolParamsStart("d", "look"),
        ToolParamsDelta("c", '{"a":1}'),
        ToolParamsDelta("d", '{"b":1}'),
        ToolParamsEnd("d"),
        ToolParamsEnd("c"),
        ToolCall("c", "look", '{"a":1}'),
        ToolCall("d", "look", '{"b":1}'),
        Finish("tool-calls"),
    ],
    "a nameless call": [ToolCall("c", "", "{", invalid="nameless"), Finish("stop")],
    "bad arguments": [
        ToolParamsStart("c", "look"),
        ToolParamsDelta("c", "{"),
        ToolParamsEnd("c"),
        ToolCall("c", "look", "{", invalid="bad-arguments"),
        Finish("stop"),
    ],
    "free text": [
        ToolParamsStart("c", "run", kind="custom", format="text"),
        ToolParamsDelta("c", "nu"),
        ToolParamsDelta("c", "ll"),
        ToolParamsEnd("c"),
        TextStart("t"),
        TextEnd("t"),
        ToolCall("c", "run", "null", kind="custom", format="text"),
        Finish("tool-calls"),
    ],
    "an approval and results": [
        *called("c", "{}"),
        ToolApprovalRequest("c", "approval"),
        ToolResult("c", RESULT, preliminary=True),
        ToolResult("c", RESULT, preliminary=True),
        ToolResult("c", RESULT),
        Finish("tool-calls"),
    ],
    "a result of a call that has its id from an earlier response": [
        *called("c", "{}"),
        ToolResult("c", RESULT, preliminary=True, earlier=True),
        ToolResult("c", RESULT, earlier=True),
        Finish("tool-calls"),
    ],
    "results of an earlier response": [
        ToolResult("c", RESULT, preliminary=True, earlier=True),
        ToolResult("c", RESULT, preliminary=True, earlier=True),
        ToolResult("c", RESULT, earlier=True),
        Finish("stop"),
    ],
    "what the provider executes leaves stop alone": [
        ToolCall("c", "search", "{}", provider_executed=True),
        ToolResult("c", RESULT),
        Finish("stop"),
    ],
    "sources, files and opaque items": [
        Source("s", "url", url="https://a.example"),
        File("f", "image/png", data="AA=="),
        Opaque("x", "compaction", RESULT),
        Source("s", "url", url="https://a.example"),
        Finish("pause"),
    ],
    "a failure with nothing open": [TextStart("t"), TextEnd("t"), *FAILED],
    "a failure with everything open": [
        TextStart("t"),
        ReasoningStart("r", "raw"),
        ToolParamsStart("c", "look"),
        ToolParamsDelta("c", '{"a"'),
        ErrorPart("truncated", "cut"),
        TextEnd("t"),
        ReasoningEnd("r"),
        ToolParamsEnd("c"),
        ToolCall("c", "look", '{"a"', invalid="stream-failed"),
        ToolCall("d", "", "{", invalid="stream-failed"),
        Finish("error"),
    ],
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_stream_breaks_no_law(name: str) -> None:
    assert violations([ResponseMetadata("m"), *LEGAL[name]], Assembler()) == []


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_stream_passes_the_guard_untouched(name: str) -> None:
    parts = [ResponseMetadata("m"), *LEGAL[name]]
    findings = Findings()
    guard = Guard(Ids(), findings)
    assert guard.feed(parts) + guard.finish() == parts
    assert findings.found == []


REPAIRED: dict[str, tuple[list[Part], list[Part]]] = {
    "a call is what it was announced as": (
        [
            ToolParamsStart("c", "run", kind="custom", provider_executed=True, format="text"),
            ToolParamsDelta("c", "ls"),
            ToolParamsEnd("c"),
            ToolCall("c", "walk", "ls"),
            Finish("stop"),
        ],
        [
            ToolParamsStart("c", "run", kind="custom", provider_executed=True, format="text"),
            ToolParamsDelta("c", "ls"),
            ToolParamsEnd("c"),
            ToolCall("c", "run", "ls", kind="custom", provider_executed=True, format="text"),
            Finish("stop"),
        ],
    ),
    "nothing is announced after an error": (
        [
            ToolParamsDelta("c", '{"a":1}'),
            ErrorPart("upstream", "no"),
            ToolCall("c", "look", '{"a":1}'),
            Finish("error"),
        ],
        [
            ErrorPart("upstream", "no"),
            ToolCall("c", "look", '{"a":1}', invalid="stream-failed"),
            Finish("error"),
        ],
    ),
    "an end keeps its proof when its whole is taken off": (
        [
            TextStart("t"),
            TextEnd("t", signature="s", origin="x", whole="ab"),
            ReasoningStart("r", "raw"),
            ReasoningDelta("r", "a"),
            ReasoningEnd("r", encrypted="e", origin="x", whole="ab"),
            Finish("stop"),
        ],
        [
            TextStart("t"),
            TextDelta("t", "ab"),
            TextEnd("t", signature="s", origin="x"),
            ReasoningStart("r", "raw"),
            ReasoningDelta("r", "a"),
            ReasoningDelta("r", "b"),
            ReasoningEnd("r", encrypted="e", origin="x"),
            Finish("stop"),
        ],
    ),
}


@pytest.mark.parametrize("name", REPAIRED)
def test_the_guard_repairs_as_little_as_it_must(name: str) -> None:
    given, wanted = REPAIRED[name]
    guard = Guard(Ids(), Findings())
    parts = guard.feed([ResponseMetadata("m"), *given]) + guard.finish()
    assert parts == [ResponseMetadata("m"), *wanted]
    assert violations(parts, Assembler()) == []


def test_text_is_held_for_what_all_of_it_may_become() -> None:
    hold = Hold()
    assert [hold.feed(piece) for piece in (" ", "nu", "ll", "\n")] == [True] * 4
    hold = Hold()
    assert [hold.feed(piece) for piece in ("nu ", "ll")] == [True, False]


def test_every_part_occurs_in_a_legal_stream() -> None:
    used = {part.__class__ for parts in LEGAL.values() for part in parts} | {ResponseMetadata}
    assert used == {kind for base in Part.__subclasses__() for kind in _leaves(base)}


def _leaves(kind: type[Part]) -> list[type[Part]]:
    below = kind.__subclasses__()
    return [leaf for one in below for leaf in _leaves(one)] if below else [kind]
