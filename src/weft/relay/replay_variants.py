"""The parts that a record is assembled from, except for where deltas were cut.

What a client was sent depends on the order of the parts. Some dialects write one item after the
other, or a call at its end: what was held back when an error came was never sent. So a record says
how its items overlapped, and what was open when an error came (`Response.order`).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from json import JSONDecoder

import msgspec

from weft.assembler import CUT, ERROR, Item, ReasoningItem, Response, TextItem
from weft.dialects.replay import item_to_parts, response_to_parts
from weft.parts import (
    ErrorPart,
    Part,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolParamsDelta,
    ToolParamsStart,
)

_replace = msgspec.structs.replace
# The standard library's: msgspec does not read a value and tell where it ends.
_read_value = JSONDecoder().raw_decode
_DELTAS = (TextDelta, ReasoningDelta, ToolParamsDelta)


def replay_variants(record: Response) -> Iterator[list[Part]]:
    """The parts that assemble to this record, in every way that it leaves open. A record does not
    say when the deltas of an item came, from its start to its end; whether the signature of a call
    came with its start or with its end; and whether arguments that are several JSON values came in
    one delta. Raises ValueError if its order is invalid."""
    # Six variants, of which the audit takes the first that agrees.
    for late in (False, True):
        parts = _in_order(record, late=late)
        yield parts
        yield [*map(_unsigned_start, parts)]
        yield [one for part in parts for one in _split_arguments(part)]


def _unsigned_start(part: Part) -> Part:
    if isinstance(part, ToolParamsStart) and part.signature is not None:
        return _replace(part, signature=None, origin=None)
    return part


def _split_arguments(part: Part) -> Iterator[Part]:
    """Arguments one JSON value at a time, as an upstream may have sent them twice."""
    if not isinstance(part, ToolParamsDelta):
        yield part
        return
    text, at = part.delta, 0
    with suppress(ValueError, RecursionError):
        while at < len(text):
            _, end = _read_value(text, at)
            yield ToolParamsDelta(part.id, text[at:end])
            at = end
    if at < len(text):
        yield ToolParamsDelta(part.id, text[at:])


def _in_order(record: Response, *, late: bool) -> list[Part]:
    """`late`: deltas come right before the ends, not right after the starts."""
    first, finish = response_to_parts(_replace(record, items=()))
    order = _checked_order(record)
    # An item that is twice in the order has a start and an end of its own; others came at once.
    times = Counter(map(_position, order))
    out: list[Part] = [first]
    ends: dict[int, list[Part]] = {}
    is_final = record.error is None
    """Whether calls stay as they are recorded: no error makes them fail later."""
    for entry in order:
        position = _position(entry)
        if position == ERROR:
            is_final = True
            for open in ends:  # no delta follows the error
                deltas = [part for part in ends[open] if isinstance(part, _DELTAS)]
                out += deltas
                ends[open] = ends[open][len(deltas) :]
            if record.error is not None:
                why = record.error
                out.append(ErrorPart(why.kind, why.message, why.code, why.status, why.retryable))
            continue
        item = record.items[position]
        if position in ends:
            parts = ends.pop(position)
        elif times[position] == 1:
            parts = [item] if isinstance(item, ToolCall) else item_to_parts(item)
        else:
            whole = item_to_parts(item)
            end = 2 if isinstance(whole[-1], ToolCall) else 1  # a call ends in two parts
            cut = 1 if late else len(whole) - end
            out += whole[:cut]
            ends[position] = whole[cut:]
            continue
        # A record holds calls as they were at last; one that ended before the error was valid then.
        out += parts if is_final or entry <= CUT else map(_before_failure, parts)
    return [*out, finish]


def _checked_order(record: Response) -> tuple[int, ...]:
    """The order of a record; by default one item after the other, and then the error. Raises
    ValueError unless each item and the error are in it as often as they should be."""
    errors = (ERROR,) if record.error is not None else ()
    order = record.order
    if not order:
        items = enumerate(record.items)
        order = tuple(at for at, item in items for _ in range(max(_occurrences(item))))
        order += errors
    times = Counter(map(_position, order))
    starts = [position for position in times if position != ERROR]
    if (
        times[ERROR] != len(errors)
        or bool(errors) != (record.finish_reason == "error")
        or starts != list(range(len(record.items)))
        or not all(times[at] in _occurrences(item) for at, item in enumerate(record.items))
    ):
        raise ValueError("the order is not that of the items")
    return order


def _occurrences(item: Item) -> tuple[int, ...]:
    """How often an item may be in the order of a record."""
    if isinstance(item, TextItem | ReasoningItem):
        return (2,)
    return (1, 2) if isinstance(item, ToolCall) and item.name else (1,)


def _position(entry: int) -> int:
    """The position of the item that an entry of the order is about."""
    return CUT - entry if entry <= CUT else entry


def _before_failure(part: Part) -> Part:
    """A call as it was before an error made it fail. Blank arguments were invalid before: valid
    ones would be an empty object."""
    if isinstance(part, ToolCall) and part.invalid == "stream-failed":
        is_blank = part.format == "json" and not part.params.strip()
        return _replace(part, invalid="bad-arguments" if is_blank else None)
    return part
