"""A record, told once more: the parts that it is the fold of, but for where deltas were cut.

What a client was told follows from the order of the parts. Some wires tell one item after the
other, or a call at its end: what waited when an error came was not told any more. So a record says
how its items overlapped, and what an error found open (`Response.order`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from weft.assembler import ERROR, Item, ReasoningItem, Response, TextItem
from weft.dialects.replay import item_to_parts, response_to_parts
from weft.parts import ErrorPart, Part, ToolCall, ToolParamsStart


def retold(record: Response) -> Iterator[list[Part]]:
    """The parts that fold to this record; in a second way where calls have proofs, which may have
    come with their starts or with their ends. Raises ValueError if its order is not one."""
    said = _in_order(record)
    yield said
    unsigned = [*map(_unsigned_start, said)]
    if unsigned != said:
        yield unsigned


def _unsigned_start(part: Part) -> Part:
    """An announcement of a call whose proof came later: a wire that tells it first did not."""
    if isinstance(part, ToolParamsStart) and part.signature is not None:
        return msgspec.structs.replace(part, signature=None, origin=None)
    return part


def _in_order(record: Response) -> list[Part]:
    first, finish = response_to_parts(msgspec.structs.replace(record, items=()))
    order = record.order or _plain(record)
    _check(order, record)
    times = Counter(order)
    out: list[Part] = [first]
    ends: dict[int, list[Part]] = {}
    mend = record.error is not None
    for place in order:
        if place == ERROR:
            mend = False
            out.append(_error(record))
        elif place in ends:
            out += map(_valid, ends[place]) if mend else ends[place]
        elif times[place] == 1:
            item = record.items[place]
            whole = [item] if isinstance(item, ToolCall) else item_to_parts(item)
            out += map(_valid, whole) if mend else whole
        else:
            begun, ends[place] = _halves(item_to_parts(record.items[place]))
            out += begun
    return [*out, finish]


def _plain(record: Response) -> list[int]:
    """One item after the other, and then the error."""
    order = [place for place, item in enumerate(record.items) for _ in range(max(_times(item)))]
    return order if record.error is None else [*order, ERROR]


def _times(item: Item) -> tuple[int, ...]:
    """How often an item stands in the order of a record."""
    if isinstance(item, TextItem | ReasoningItem):
        return (2,)
    return (1, 2) if isinstance(item, ToolCall) and item.name else (1,)


def _check(order: Sequence[int], record: Response) -> None:
    times = Counter(order)
    failed = times.pop(ERROR, 0) == (record.error is not None)
    starts = list(times) == list(range(len(record.items)))
    if not (failed and starts and all(times[n] in _times(x) for n, x in enumerate(record.items))):
        raise ValueError("the order is not that of the items")


def _halves(parts: list[Part]) -> tuple[list[Part], list[Part]]:
    """The parts of an item before its end, and its end: two parts, if it is a call."""
    ends = 2 if isinstance(parts[-1], ToolCall) else 1
    return parts[:-ends], parts[-ends:]


def _error(record: Response) -> ErrorPart:
    why = record.error
    if why is None:
        raise ValueError("no error")
    return ErrorPart(why.kind, why.message, why.code, why.status, why.retryable)


def _valid(part: Part) -> Part:
    """A call as it was before an error made it one that failed."""
    if isinstance(part, ToolCall) and part.invalid == "stream-failed":
        return msgspec.structs.replace(part, invalid=None)
    return part
