"""Which call a delta belongs to, where wires are at their oddest: one example a step.

Each is a stream that only one reading makes sense of; together they keep the ledger's steps in
place (see `mutants.diff`).
"""

from dataclasses import dataclass

import pytest
from msgspec import UNSET, Raw

from weft.calls import CallDelta, Ledger
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.parts import Finish, ResponseMetadata, ToolCall

EXTRA = Raw(b'{"kept":true}')


def entry(
    index: int | None = None,
    id: str | None = None,
    name: str | None = None,
    arguments: str = "",
    extra: Raw | None = None,
) -> CallDelta:
    return CallDelta(index, id, name, arguments, extra=UNSET if extra is None else extra)


@dataclass(frozen=True)
class Case:
    """Chunks of entries, and the calls they mean: (id, name, params)."""

    chunks: list[list[CallDelta]]
    calls: list[tuple[str, str, str]]


CASES = {
    "a place is for arguments alone": Case(
        [[entry(None, "a", "look", '{"x":')], [entry(0, "b", "read", "{}")]],
        [("a", "look", '{"x":'), ("b", "read", "{}")],
    ),
    "null is no name": Case(
        [[entry(None, "a", "look", '{"x":')], [entry(None, None, "null", "1}")]],
        [("a", "look", '{"x":1}')],
    ),
    "an id that came later is an id of the same call": Case(
        [
            [entry(0, "a", "look", '{"x":')],
            [entry(0, "b", None, "1}")],
            [entry(0, "b", "look", '{"x":1}')],
        ],
        [("a", "look", '{"x":1}')],
    ),
    "an id that came later finds its call again": Case(
        [
            [entry(None, "a", "look", '{"x":')],
            [entry(None, "b", None, "1")],
            [entry(None, "c", "read", '{"y":')],
            [entry(None, "b", None, "}")],
            [entry(None, "c", None, "2}")],
        ],
        [("a", "look", '{"x":1}'), ("c", "read", '{"y":2}')],
    ),
    "an index that drifted and came back is no new call": Case(
        [
            [entry(0, "a", "look", '{"x":1}')],
            [entry(1, "a", None, " ")],
            [entry(0, "a", "look", '{"y":2}')],
        ],
        [("a", "look", '{"y":2}')],
    ),
    "only what begins with all that came is a snapshot": Case(
        [[entry(0, "a", "look", '{"x"')], [entry(0, None, None, '{"y":2}')]],
        [("a", "look", '{"x"{"y":2}')],
    ),
    "what could not be JSON is no snapshot": Case(
        [[entry(0, "a", "look", '{"x":1')], [entry(0, None, None, '{"x":1z')]],
        [("a", "look", '{"x":1{"x":1z')],
    ),
    "a name is in one piece once arguments came": Case(
        [
            [entry(0, "a", None, '{"x"')],
            [entry(1, "b", "look", '{"y":')],
            [entry(1, "b", "read", "2}")],
            [entry(0, "a", "find", ":1}")],
        ],
        [("a", "find", '{"x":1}'), ("b", "look", '{"y":2}')],
    ),
    "an entry that says nothing is not the last call": Case(
        [[entry(None, "a", "look", '{"x":')], [entry(7)], [entry(None, None, None, "1}")]],
        [("a", "look", '{"x":1}')],
    ),
    "a place in a group outlives a chunk with one entry": Case(
        [
            [entry(None, "a", "look", '{"x":'), entry(None, "b", "read", '{"y":')],
            [entry(None, "b", None, "2")],
            [entry(None, None, None, "1}"), entry(None, None, None, "}")],
        ],
        [("a", "look", '{"x":1}'), ("b", "read", '{"y":2}')],
    ),
}


def read(chunks: list[list[CallDelta]]) -> list[ToolCall]:
    """The calls that come out of the guard at the end."""
    findings = Findings()
    ledger = Ledger(Ids(), findings)
    guard = Guard(Ids(), findings)
    parts = guard.feed([ResponseMetadata("m")])
    for chunk in chunks:
        parts += guard.feed(ledger.feed(chunk))
    parts += guard.feed([*ledger.finish(), Finish("tool-calls")])
    return [part for part in parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize("name", CASES)
def test_a_delta_finds_its_call(name: str) -> None:
    case = CASES[name]
    assert [(call.id, call.name, call.params) for call in read(case.chunks)] == case.calls


def test_what_a_call_brought_once_it_keeps() -> None:
    chunks = [[entry(0, "a", "look", '{"x":', EXTRA)], [entry(0, "a", None, "1}")]]
    (call,) = read(chunks)
    assert call.extra == EXTRA
