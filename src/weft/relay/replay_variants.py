"""A record, told once more: the parts that it is the fold of, but for where deltas were cut.

What a client was told follows from the order of the parts. Some wires tell one item after the
other, or a call at its end: what waited when an error came was not told any more. So a record says
how its items overlapped, and what an error found open (`Response.order`).
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


def replay_variants(record: Response) -> Iterator[list[Part]]:
    """The parts that fold to this record, in all ways that it leaves open. A record does not say
    when the deltas of an item came, from its start to its end; whether the proof of a call came
    with its start or with its end; and whether arguments that are several values were one delta.
    Raises ValueError if its order is not one."""
    for late in (False, True):
        said = _in_order(record, late=late)
        yield said
        yield [*map(_unsigned_start, said)]
        yield [one for part in said for one in _apart(part)]


def _apart(part: Part) -> list[Part]:
    """Arguments value by value, as a wire may have sent them twice."""
    if not isinstance(part, ToolParamsDelta):
        return [part]
    return [ToolParamsDelta(part.id, value) for value in _values(part.delta)]


def _values(text: str) -> Iterator[str]:
    """The JSON values that stand one behind the other in a text, and whatever follows them."""
    at = 0
    with suppress(ValueError, RecursionError):
        while at < len(text):
            _, end = _value(text, at)
            yield text[at:end]
            at = end
    if at < len(text):
        yield text[at:]


_value = JSONDecoder().raw_decode
_DELTAS = (TextDelta, ReasoningDelta, ToolParamsDelta)


def _unsigned_start(part: Part) -> Part:
    """An announcement of a call whose proof came later: a wire that tells it first did not."""
    if isinstance(part, ToolParamsStart) and part.signature is not None:
        return msgspec.structs.replace(part, signature=None, origin=None)
    return part


def _in_order(record: Response, *, late: bool) -> list[Part]:
    """`late`: deltas come right before the ends, not right behind the starts."""
    first, finish = response_to_parts(msgspec.structs.replace(record, items=()))
    order = record.order or _plain(record)
    times = Counter(map(_place, order))
    _check(times, record)
    out: list[Part] = [first]
    ends: dict[int, list[Part]] = {}
    is_over = record.error is None
    """Whether calls stay as they are recorded: nothing makes them fail later."""
    for told in order:
        place = _place(told)
        as_it_was = _unchanged if is_over or told <= CUT else _valid
        if place == ERROR:
            is_over = True
            for open in ends:  # no delta comes behind it
                said = [part for part in ends[open] if isinstance(part, _DELTAS)]
                out += said
                ends[open] = ends[open][len(said) :]
            out.append(_error(record))
        elif place in ends:
            out += map(as_it_was, ends.pop(place))
        elif times[place] == 1:
            item = record.items[place]
            whole = [item] if isinstance(item, ToolCall) else item_to_parts(item)
            out += map(as_it_was, whole)
        else:
            begun, ends[place] = _halves(item_to_parts(record.items[place]), late=late)
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


def _place(told: int) -> int:
    """Which item an entry of the order is about."""
    return CUT - told if told <= CUT else told


def _check(times: Counter[int], record: Response) -> None:
    """`times` has the items in the order of their beginnings."""
    errors = {times[ERROR], int(record.error is not None), int(record.finish_reason == "error")}
    starts = [place for place in times if place != ERROR] == list(range(len(record.items)))
    if not (
        len(errors) == 1
        and starts
        and all(times[n] in _times(x) for n, x in enumerate(record.items))
    ):
        raise ValueError("the order is not that of the items")


def _halves(parts: list[Part], *, late: bool) -> tuple[list[Part], list[Part]]:
    """The beginning and the end of an item: two parts, if it is a call."""
    ends = 2 if isinstance(parts[-1], ToolCall) else 1
    cut = 1 if late else len(parts) - ends
    return parts[:cut], parts[cut:]


def _error(record: Response) -> ErrorPart:
    why = record.error
    if why is None:
        raise ValueError("no error")
    return ErrorPart(why.kind, why.message, why.code, why.status, why.retryable)


def _unchanged(part: Part) -> Part:
    return part


def _valid(part: Part) -> Part:
    """A call as it was before an error made it one that failed. A valid one is never blank: that
    would be an empty object."""
    if isinstance(part, ToolCall) and part.invalid == "stream-failed":
        is_blank = part.format == "json" and not part.params.strip()
        return msgspec.structs.replace(part, invalid="bad-arguments" if is_blank else None)
    return part
