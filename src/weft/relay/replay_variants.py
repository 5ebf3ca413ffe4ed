"""A record, told once more: in each way that it may have been told.

A record is the fold of an answer. It does not tell what was open when an error came, and some wires
tell one item after the other: what waited then was not told any more.
"""

from collections.abc import Iterable, Iterator, Set

import msgspec

from weft.assembler import Failure, Response
from weft.dialects.replay import response_to_parts
from weft.lifecycle import FAMILY
from weft.parts import (
    ErrorPart,
    Finish,
    ItemPart,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)

_OF_CALLS = (ToolParamsStart, ToolParamsDelta, ToolParamsEnd, ToolCall)
_ENDS = (TextEnd, ReasoningEnd, ToolParamsEnd, ToolCall)
_BEGUN = (TextStart, TextDelta, ReasoningStart, ReasoningDelta, ToolParamsStart, ToolParamsDelta)

_Key = tuple[str, str]
"""The family of an item, and its id."""


def retold(record: Response, told: Response) -> Iterator[list[Part]]:
    """Parts that fold to this record, which does not tell in which order its items ended. That
    matters only where an error ended what was told: some wires tell one item after the other, or
    a call at its end, and what waited then was not told any more."""
    said = response_to_parts(record)
    if told.error is None:
        yield said
        unsigned = [*map(_unsigned_start, said)]
        if unsigned != said:
            yield unsigned
        return
    heard = {one.id for one in told.items if isinstance(one, ToolCall)}
    calls = [one for one in record.items if isinstance(one, ToolCall)]
    untold = {_key(one) for one in calls if one.id not in heard}
    for parts in (said, _one_by_one(record)):
        if record.error is not None:
            yield from _cut(parts, record.error, untold)
        yield from _broken(parts, untold)


def _unsigned_start(part: Part) -> Part:
    """An announcement of a call whose proof came later: a wire that tells it first did not."""
    if isinstance(part, ToolParamsStart) and part.signature is not None:
        return msgspec.structs.replace(part, signature=None, origin=None)
    return part


def _one_by_one(record: Response) -> list[Part]:
    """Parts of the record whose items stand where they were announced, whatever they share."""
    first, *_, last = response_to_parts(record)
    alone = (
        response_to_parts(msgspec.structs.replace(record, items=(one,))) for one in record.items
    )
    return [first, *(part for one in alone for part in one[1:-1]), last]


def _key(part: ItemPart) -> _Key:
    return FAMILY[part.__class__], part.id


def _parted(parts: Iterable[Part], open: Set[_Key]) -> tuple[list[Part], list[Part]]:
    """The parts before an error, and behind it the ends of what it found open."""
    kept: list[Part] = []
    late: list[Part] = []
    for part in parts:
        is_late = isinstance(part, _ENDS) and _key(part) in open
        (late if is_late else kept).append(part)
    return kept, late


def _cut(said: list[Part], why: Failure, untold: Set[_Key]) -> Iterator[list[Part]]:
    """An error came when all was said, or while one item was open, so that what came after it may
    have waited. Calls that were not told may have been open too."""
    *before, finish = said
    error = ErrorPart(why.kind, why.message, why.code, why.status, why.retryable)
    ends = [{_key(one)} for one in before if isinstance(one, TextEnd | ReasoningEnd | ToolCall)]
    for open in (set[_Key](), *reversed(ends)):
        for all_open in (open, open | untold) if untold - open else (open,):
            kept, late = _parted(before, all_open)
            yield [*map(_valid, kept), error, *late, finish]
    waited = _behind_a_nameless_call(before) & untold
    if waited:
        kept = [one for one in before if not isinstance(one, _OF_CALLS) or _key(one) not in waited]
        late = [one for one in before if isinstance(one, ToolCall) and _key(one) in waited]
        yield [*map(_valid, kept), error, *late, finish]


def _behind_a_nameless_call(parts: Iterable[Part]) -> set[_Key]:
    """Calls that may have waited for one that came first and never got a name, and it."""
    calls = [one for one in parts if isinstance(one, ToolCall)]
    first = next((at for at, one in enumerate(calls) if not one.name), len(calls))
    return set(map(_key, calls[first:]))


def _broken(said: list[Part], untold: Set[_Key]) -> Iterator[list[Part]]:
    """A call that cannot be handed over was an error itself. That it had not been told then, it
    has in common with others that had not ended."""
    *before, finish = said
    if isinstance(finish, Finish) and finish.reason == "error":
        finish = msgspec.structs.replace(finish, reason="other")
    bad = [one for one in before if isinstance(one, ToolCall) and not _is_usable(one)]
    first = next((one for one in bad if _key(one) in untold), None)
    for call in bad:
        others = untold - {_key(call)}
        for open in (set[_Key](), others) if others else (others,):
            kept, late = _parted(before, open)
            for parts in _breaking(kept, call, moves=call is first):
                yield [*parts, *late, finish]


def _breaking(parts: list[Part], call: ToolCall, *, moves: bool) -> Iterator[list[Part]]:
    """Where a call broke an answer: at its turn, none of it told; at its end; or, where it `moves`,
    behind items that came before its end."""
    at = parts.index(call)
    broken = msgspec.structs.replace(call, invalid=call.invalid or "bad-arguments")
    before, after = [*map(_valid, parts[:at])], [*map(_valid, parts[at + 1 :])]
    others = [one for one in before if not isinstance(one, _OF_CALLS) or one.id != call.id]
    yield [*others, broken, *after]
    places = [place for place, one in enumerate(after, 1) if not isinstance(one, _BEGUN)]
    for place in (0, *places) if moves else (0,):
        yield [*before, *after[:place], broken, *after[place:]]


def _is_usable(call: ToolCall) -> bool:
    """Whether every wire can hand it over."""
    return call.invalid is None and (call.format == "text" or call.params.lstrip()[:1] == "{")


def _valid(part: Part) -> Part:
    """A call as it was before an error made it one that failed."""
    if isinstance(part, ToolCall) and part.invalid == "stream-failed" and part.name:
        return msgspec.structs.replace(part, invalid=None)
    return part
