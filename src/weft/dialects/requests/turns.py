"""The conversation of a request as every target wants it: who speaks, and each call answered.

The pairing guard runs before any rendering. After it, each call of a client tool has exactly one
result, and the results of a step stand first in the turn after it, in the order of the calls.
Results find their call by id (either spelling of it); those without one by name, then by order.
"""

from collections.abc import Iterator
from itertools import groupby, zip_longest
from typing import Literal, NamedTuple

import msgspec

from weft.dialects.requests.codec import Losses
from weft.dialects.requests.multi_tool_use import (
    answered_ids,
    declares_wrapper,
    holds_wrapper,
    unwrap_calls,
)
from weft.ids import Claims
from weft.request import (
    AnyContent,
    CallContent,
    Message,
    OpaqueContent,
    Request,
    ResultContent,
    TextContent,
)

TOOL_DECLARATION = "additional_tools"
"""The kind of an item that declares tools in the middle of a conversation."""

Speaker = Literal["system", "developer", "user", "assistant"]


class LocatedContent(NamedTuple):
    """A content, and its path in the canonical request."""

    path: str
    content: AnyContent


class Turn(NamedTuple):
    """What one speaker says at once. Results of client tools are in user turns."""

    path: str
    role: Speaker
    contents: list[LocatedContent]
    name: str | None = None
    message: Message | None = None
    """The message it was; None for instructions, and for results that were brought together."""


def paired_turns(request: Request, losses: Losses, *, repair: bool = False) -> list[Turn]:
    """Returns the turns, one for each message, paired. `instructions` come first, as system.

    With `repair` a call without a result gets one that says so, and a result without a call is
    left out, both with a warning; else both are refused. Results of calls that an earlier
    response made (`previous_response_id`) are nobody's business here.
    """
    found = [
        turn for turn in message_turns(request, losses) if not _only_declares_tools(turn, losses)
    ]
    pairs = _Pairs(found, losses, elsewhere=request.previous_response_id is not None)
    pairs.check(repair=repair)
    return [turn for turn in _in_order(found, pairs, losses) if turn.contents or turn.message]


def _only_declares_tools(turn: Turn, losses: Losses) -> bool:
    """Whether all that is said is which tools there are: the request has them with the others."""
    declares = [_declares_tools(one.content) for one in turn.contents]
    if not declares or not all(declares):
        return False
    for placed in turn.contents:
        losses.adapted(placed.path, "its tools are declared with the others")
    return True


def _declares_tools(content: AnyContent) -> bool:
    return isinstance(content, OpaqueContent) and content.kind == TOOL_DECLARATION


def merge_neighbours(found: list[Turn]) -> list[Turn]:
    """Returns the turns with neighbours of one role made one."""
    out = []
    for _, group in groupby(found, key=lambda turn: turn.role):
        first, *others = group
        rest = [placed for turn in others for placed in turn.contents]
        out.append(first._replace(contents=[*first.contents, *rest]))
    return out


def leading_instructions(found: list[Turn]) -> int:
    """How many turns at the beginning are instructions."""
    roles = [turn.role in ("system", "developer") for turn in found]
    return roles.index(False) if False in roles else len(roles)


def message_turns(request: Request, losses: Losses) -> Iterator[Turn]:
    """The turns as they are, one for each message, `instructions` first."""
    if request.instructions is not None:
        said = LocatedContent("instructions", TextContent(request.instructions))
        yield Turn("instructions", "system", [said])
    for number, message in enumerate(request.messages):
        path = f"messages[{number}]"
        contents = [
            LocatedContent(f"{path}.content[{place}]", content)
            for place, content in enumerate(message.content)
        ]
        if holds_wrapper(message) and not declares_wrapper(request):
            contents = _unwrap_all(contents, answered_ids(request), losses)
        role: Speaker = "user" if message.role == "tool" else message.role
        yield Turn(path, role, contents, message.name, message)


def _unwrap_all(
    contents: list[LocatedContent], answered: frozenset[str], losses: Losses
) -> list[LocatedContent]:
    """The contents with the calls inside wrappers in their place."""
    found: list[LocatedContent] = []
    for placed in contents:
        content = placed.content
        inside = unwrap_calls(content, answered) if isinstance(content, CallContent) else []
        if inside:
            losses.adapted(placed.path, "the calls that it wraps are sent one by one")
        found += [LocatedContent(f"{placed.path}.calls[{n}]", one) for n, one in enumerate(inside)]
        found += [] if inside else [placed]
    return found


class _PairedCall:
    """A client's call: which step it belongs to, and its result."""

    __slots__ = ("call", "path", "result", "step")

    def __init__(self, placed: LocatedContent, call: CallContent, step: int) -> None:
        self.path = placed.path
        self.call = call
        self.step = step
        self.result: LocatedContent | None = None


class _Pairs:
    """Which result answers which call. A step is a run of assistant turns."""

    def __init__(self, found: list[Turn], losses: Losses, *, elsewhere: bool) -> None:
        self._losses = losses
        self._elsewhere = elsewhere
        self._calls: list[_PairedCall] = []
        self._known: dict[str, list[_PairedCall]] = {}
        self._open: dict[str, _PairedCall] = {}
        self._claims = Claims()
        self._orphans: list[LocatedContent] = []
        self.dropped: set[str] = set()
        """The paths of what is left out."""
        self.paired: set[str] = set()
        """The paths of the results that answer a call."""
        self.renamed: dict[str, str] = {}
        """The ids of calls and results that had a taken one, or none, by path."""
        step, role = 0, ""
        for turn in found:
            step += turn.role == "assistant" != role
            role = turn.role
            for placed in turn.contents:
                self._see(placed, turn.role, step)

    def _see(self, placed: LocatedContent, role: str, step: int) -> None:
        match placed.content:
            case CallContent(provider_executed=False) as call if role == "assistant":
                self._call(placed, call, step)
            case ResultContent() as result if role != "assistant":
                self._result(placed, result)

    def _call(self, placed: LocatedContent, call: CallContent, step: int) -> None:
        same = self._known.setdefault(call.id, [])
        if any(one.result is None for one in same):
            self.dropped.add(placed.path)
            self._losses.warned(placed.path, f"call {call.id} is there twice; the first is kept")
            return
        claimed = self._claims.claim(call.id)
        if claimed != call.id:
            self.renamed[placed.path] = claimed
            self._losses.adapted(f"{placed.path}.id", f"{call.id} was the id of an earlier call")
        known = _PairedCall(placed, call, step)
        self._calls.append(known)
        self._open[placed.path] = known
        same.append(known)
        if call.item_id and call.item_id != call.id:
            self._known.setdefault(call.item_id, []).append(known)

    def _result(self, placed: LocatedContent, result: ResultContent) -> None:
        same = self._known.get(result.id, []) if result.id else list(self._named(result))
        call = next((one for one in same if one.result is None), None)
        if call is not None:
            call.result = placed
            del self._open[call.path]
            self.paired.add(placed.path)
            spelled = self.renamed.get(call.path, call.call.id)
            if spelled != result.id:
                self.renamed[placed.path] = spelled
        elif same:
            self.dropped.add(placed.path)
            detail = f"call {result.id} has two results; the first is kept"
            self._losses.warned(placed.path, detail)
        elif not self._elsewhere:
            self._orphans.append(placed)

    def _named(self, result: ResultContent) -> Iterator[_PairedCall]:
        """The open calls that a result without an id can belong to."""
        return (one for one in self._open.values() if result.name in (None, one.call.name))

    def check(self, *, repair: bool) -> None:
        """Notes the results without a call and the calls without a result."""
        for placed in self._orphans:
            if repair:
                self.dropped.add(placed.path)
                self._losses.warned(placed.path, "a result of no call is left out")
            else:
                self._losses.refused(placed.path, "no call before it has this id")
        for call in self._open.values():
            if repair:
                call.result = LocatedContent(call.path, _missing_result(call.call))
                self._losses.warned(call.path, "has no result; the model is told so")
            else:
                self._losses.refused(call.path, f"call {call.call.id} has no result")

    def results(self, step: int) -> list[LocatedContent]:
        """The results of a step, in the order of its calls."""
        found = [one.result for one in self._calls if one.step == step]
        return [self.spelled(one) for one in found if one is not None]

    def spelled(self, placed: LocatedContent) -> LocatedContent:
        """A content with the id that makes the pair."""
        id = self.renamed.get(placed.path)
        content = placed.content
        if id is None or not isinstance(content, CallContent | ResultContent):
            return placed
        return LocatedContent(placed.path, msgspec.structs.replace(content, id=id))


def _missing_result(call: CallContent) -> ResultContent:
    said = TextContent("The tool was not run: no result was recorded.")
    return ResultContent(call.id, (said,), call.kind, call.name, is_error=True)


def _in_order(found: list[Turn], pairs: _Pairs, losses: Losses) -> Iterator[Turn]:
    """The turns of each step, then its results, then whatever else was said."""
    step = 0
    for ours, group in groupby(found, key=lambda turn: turn.role == "assistant"):
        kept = [_without_dropped(turn, pairs) for turn in group]
        step += ours
        yield from kept if ours else _after_step(kept, pairs.results(step), pairs, losses)
    if found and found[-1].role == "assistant":
        yield from _after_step([], pairs.results(step), pairs, losses)


def _without_dropped(turn: Turn, pairs: _Pairs) -> Turn:
    contents = [pairs.spelled(one) for one in turn.contents if one.path not in pairs.dropped]
    return turn._replace(contents=contents)


def _after_step(
    said: list[Turn], results: list[LocatedContent], pairs: _Pairs, losses: Losses
) -> Iterator[Turn]:
    """What follows a step: as it was, if the results come first and in order."""
    own = [one for turn in said for one in turn.contents]
    silent = bool(results and said and not said[0].contents)  # even that would stand between
    late = any(one.path in pairs.paired for one in own[len(results) :])
    if own[: len(results)] == results and not (silent or late):
        yield from said
        return
    if results:
        for one, other in zip_longest(results, own[: len(results)]):
            if one != other and one.path in pairs.paired:
                losses.adapted(one.path, "moved: results come right after their calls, in order")
        yield Turn(results[0].path.partition(".content")[0], "user", results)
    for turn in said:
        rest = [one for one in turn.contents if one.path not in pairs.paired]
        if rest or not turn.contents:
            yield turn._replace(contents=rest)
