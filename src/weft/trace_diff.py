"""Two traces, item by item: what one has and the other has not.

Deltas are merged first, so that it makes no difference how a text was cut into chunks. Then the
items (texts, calls, results, errors, findings) are aligned by their kind, their order and their
name.

Or event by event: what a client gets, byte for byte.
"""

from collections import deque
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from itertools import islice, takewhile
from typing import Literal

import msgspec

from weft.parts import (
    ErrorPart,
    File,
    Finish,
    Opaque,
    Part,
    ResponseMetadata,
    Source,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsStart,
    ToolResult,
)
from weft.trace import ITEM_KINDS, EmitRow, EndRow, FindingRow, FrameRow, PartRow, TraceRow

DiffOutcome = Literal["same", "changed", "missing", "added"]
"""missing: only the first has it; added: only the second has it."""


class DiffItem(msgspec.Struct):
    """An item of one of the two."""

    name: str
    value: str
    start: float | None
    end: float | None
    """When its first and its last frame arrived, if that is known."""

    row: int
    """Where it begins in its trace."""


class DiffRow(msgspec.Struct):
    """One item of both traces, or of one of them."""

    op: DiffOutcome
    kind: str
    a: DiffItem | None
    b: DiffItem | None


_Keyed = tuple[str, DiffItem]
"""The kind of an item, and the item."""


MAX_ALIGNED = 1000
"""Items or events that are aligned by what they are; more of them only by their places. The matcher
takes the square of their number: a tenth of a second for these, hours for a capture of 16 MB."""


def diff(a: Iterable[TraceRow], b: Iterable[TraceRow]) -> list[DiffRow]:
    """Returns the items of both traces, aligned."""
    first, second = items_of(a), items_of(b)
    start, end = _common(first, second, _named)
    until, last = len(first) - end, len(second) - end
    return [
        *_aligned(first[:start], second[:start]),
        *_matched(first[start:until], second[start:last], _named),
        *_aligned(first[until:], second[last:]),
    ]


def event_diff(a: Iterable[TraceRow], b: Iterable[TraceRow]) -> list[DiffRow]:
    """Returns the emitted events in which two traces differ."""
    first, second = _events(a), _events(b)
    start, end = _common(first, second, _said)
    rows = _matched(first[start : len(first) - end], second[start : len(second) - end], _named)
    return [row for row in rows if row.op != "same"]


def _events(rows: Iterable[TraceRow]) -> list[_Keyed]:
    return [
        ("event", DiffItem(row.event or "", row.data, None, None, row.row))
        for row in rows
        if isinstance(row, EmitRow)
    ]


_Key = Callable[[_Keyed], tuple[str, str]]


def _named(item: _Keyed) -> tuple[str, str]:
    return item[0], item[1].name


def _said(event: _Keyed) -> tuple[str, str]:
    return event[1].name, event[1].value


def _common(first: list[_Keyed], second: list[_Keyed], key: _Key) -> tuple[int, int]:
    """How many items at the beginning and at the end are the same."""

    def count(pairs: Iterable[tuple[_Keyed, _Keyed]]) -> int:
        return sum(1 for _ in takewhile(lambda pair: key(pair[0]) == key(pair[1]), pairs))

    start = count(zip(first, second, strict=False))
    rest = min(len(first), len(second)) - start
    return start, count(islice(zip(reversed(first), reversed(second), strict=False), rest))


def _matched(first: list[_Keyed], second: list[_Keyed], key: _Key) -> list[DiffRow]:
    """Items of two traces, aligned by what they are if they are not too many."""
    if max(len(first), len(second)) > MAX_ALIGNED:
        return _aligned(first, second)
    keys = [[key(item) for item in items] for items in (first, second)]
    rows: list[DiffRow] = []
    matcher = SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    for _, start, end, other, last in matcher.get_opcodes():
        rows += _aligned(first[start:end], second[other:last])
    return rows


def is_different(rows: Iterable[DiffRow]) -> bool:
    return any(row.op != "same" for row in rows)


def _aligned(first: list[_Keyed], second: list[_Keyed]) -> list[DiffRow]:
    """Items at the same place: those of one kind belong together, in their order."""
    rows: list[DiffRow] = []
    places: dict[str, deque[int]] = {}
    for at, (kind, _) in enumerate(second):
        places.setdefault(kind, deque()).append(at)
    at = 0
    for kind, item in first:
        ahead = places.get(kind, deque())
        while ahead and ahead[0] < at:
            ahead.popleft()
        if not ahead:
            rows.append(DiffRow("missing", kind, item, None))
            continue
        place = ahead.popleft()
        rows += [DiffRow("added", one, None, other) for one, other in second[at:place]]
        other = second[place][1]
        at = place + 1
        same = (item.name, item.value) == (other.name, other.value)
        rows.append(DiffRow("same" if same else "changed", kind, item, other))
    return rows + [DiffRow("added", kind, None, item) for kind, item in second[at:]]


def items_of(rows: Iterable[TraceRow]) -> list[_Keyed]:
    """The items of a trace, in the order in which they begin."""
    items: list[_Keyed] = []
    texts: dict[tuple[int, str, str], DiffItem] = {}
    """What has text, by stream, kind and id."""
    arrivals: dict[int | None, float | None] = {}
    for row in rows:
        match row:
            case FrameRow():
                arrivals[row.n] = row.t
            case FindingRow():
                t = arrivals.get(row.frame)
                items.append(("finding", DiffItem(row.code, row.detail, t, t, row.row)))
            case PartRow():
                t = arrivals.get(row.frame)
                _add_part(items, texts, row, t)
            case EndRow():
                for one in row.items:
                    item = texts.get((row.stream, one.kind, one.item))
                    if item is not None:
                        item.value = one.text
    return items


def _add_part(
    items: list[_Keyed],
    texts: dict[tuple[int, str, str], DiffItem],
    row: PartRow,
    t: float | None,
) -> None:
    part = row.part
    kind = ITEM_KINDS.get(part.__class__)
    if kind is not None and row.item is not None:
        item = texts.get((row.stream, kind, row.item))
        if item is None:
            name = part.name if isinstance(part, ToolParamsStart | ToolCall) else ""
            item = texts[row.stream, kind, row.item] = DiffItem(name, "", t, t, row.row)
            items.append((kind, item))
        item.end = item.end if t is None else t  # the end of the input has no time
    elif (whole := _whole(part)) is not None:
        kind, name, value = whole
        items.append((kind, DiffItem(name, value, t, t, row.row)))
    if isinstance(part, ToolCall) and part.invalid:
        items.append(("invalid", DiffItem(part.name, part.invalid, t, t, row.row)))


def _whole(part: Part) -> tuple[str, str, str] | None:
    """The kind, the name and the value of a part that is an item by itself."""
    match part:
        case ResponseMetadata():
            return "response", "", part.model or ""
        case ToolResult():
            return "result", "", bytes(part.result).decode("utf-8", "replace")
        case ToolApprovalRequest():
            return "approval", "", ""
        case Source():
            return "source", part.url or part.file_id or "", part.title or ""
        case File():
            return "file", part.media_type, part.data or part.reference or ""
        case Opaque():
            return "opaque", part.kind, bytes(part.raw).decode("utf-8", "replace")
        case ErrorPart():
            return "error", part.kind, part.message
        case Finish():
            return "finish", "", part.reason
    return None
