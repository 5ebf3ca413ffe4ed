"""Writes `docs/lifecycle.md`: the law as diagrams, drawn from the tables themselves."""

from types import UnionType
from typing import get_args

from weft.lifecycle import ABSENT, CLOSED, PREDICATES, TABLES, Event, Table
from weft.parts import Part

HEAD = """\
# The lifecycle

What a legal stream of parts is. `weft/lifecycle.py` holds it as tables and predicates; the guard
makes any stream obey them, the checker and the tests ask them. This page is drawn from them by
`python -m tests.docs_update`, and a test fails when the two differ.

A part moves the table of the response, and the table of its own item if it has one. A part that
has no arrow where its item stands is illegal there.
"""

TITLES = {
    "response": "The response",
    "text": "A text",
    "reasoning": "A reasoning",
    "tool": "A call",
}


def written() -> str:
    sections = [f"## {TITLES[name]}\n\n{diagram(table)}" for name, table in TABLES.items()]
    return "\n".join([HEAD, *sections, predicates()])


def diagram(table: Table) -> str:
    """One arrow for each way from a state to a state, with all the parts that go it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, row in table.items():
        for event, after in row.items():
            arrows.setdefault((state.value, after.value), []).append(name(event))
    lines = [f"    {one} --> {other}: {', '.join(parts)}" for (one, other), parts in arrows.items()]
    ends = [f"    [*] --> {ABSENT.value}", *lines, f"    {CLOSED.value} --> [*]"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *ends, "```", ""])


def name(event: Event) -> str:
    part, word = event if isinstance(event, tuple) else (event, "")
    return f"{word} {type_of(part)}".strip()


def type_of(part: type[Part]) -> str:
    return str(part.__struct_config__.tag)


def predicates() -> str:
    rows = [
        f"| {law} | {parts(types)} | {asked.__name__.strip('_').replace('_', ' ')} |"
        for law, types, asked in PREDICATES
    ]
    lines = ["| law | asked of | what must hold |", "|---|---|---|", *rows]
    return "\n".join(["## What a table cannot say", "", *lines, ""])


def parts(types: type[Part] | UnionType) -> str:
    known = get_args(types) or (types,)
    return ", ".join("every part" if one is Part else type_of(one) for one in known)
