"""The turns of a conversation, with every call and its result paired.

Pairing runs before any rendering. After it, each call of a client tool has exactly one result, and
the results of a step are first in the turn after it, in the order of the calls. Results find their
call by its id or its item id; those without an id by name, then by order.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

import msgspec
from msgspec import Raw

from weft.dialects.requests.codec import Losses
from weft.dialects.requests.multi_tool_use import (
    WRAPPERS,
    answered_ids,
    declares_wrapper,
    unwrap_calls,
)
from weft.dialects.requests.source_dialects import source_dialect
from weft.dialects.requests.unknown_fields import UNKNOWN_ROLE
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

_PAIRED: frozenset[type] = frozenset((CallContent, ResultContent, OpaqueContent))
"""Contents that belong to others, or may declare tools."""

_replace = msgspec.structs.replace


# Structs, which are made in C, and not named tuples: one for each content of a conversation.
class LocatedContent(msgspec.Struct, frozen=True):
    """A content, and its path in the canonical request."""

    path: str
    content: AnyContent


class Turn(msgspec.Struct, frozen=True):
    """Consecutive contents of one speaker. Results of client tools are in user turns."""

    path: str
    role: Speaker
    contents: list[LocatedContent]
    name: str | None = None
    message: Message | None = None
    """The message it was made of; None for instructions, and for results that were moved here."""


def paired_turns(request: Request, losses: Losses, *, repair: bool = False) -> list[Turn]:
    """Returns the turns, one for each message, paired. `instructions` come first, as system.

    With `repair` a call without a result gets one that says so, and a result without a call is
    dropped, both with a warning; otherwise both are refused. Results of calls of an earlier
    response (`previous_response_id`) are not checked.
    """
    turns = message_turns(request, losses)
    kinds = {content.__class__ for message in request.messages for content in message.content}
    if kinds.isdisjoint(_PAIRED):  # most requests have neither calls nor results
        return turns
    found: list[Turn] = []
    for turn in turns:
        # Dialects with one list of tools have no turn for them.
        others = [
            one
            for one in turn.contents
            if not isinstance(one.content, OpaqueContent) or one.content.kind != TOOL_DECLARATION
        ]
        if others or not turn.contents:
            found.append(turn)
            continue
        for one in turn.contents:
            losses.adapted(one.path, "its tools are declared with the others")
    # The calls may be in the stored response, which is not at hand here.
    pairs = _Pairs(found, losses, other_calls=request.previous_response_id is not None)
    pairs.check(repair=repair)
    out: list[Turn] = []
    after: list[Turn] = []  # the turns after the last step
    step, role = 0, ""
    for turn in pairs.corrected(found):
        if turn.role != "assistant":
            after.append(turn)
        else:
            if role != "assistant":
                out += _after_step(after, pairs.results(step), pairs, losses)
                after = []
                step += 1
            out.append(turn)
        role = turn.role
    # Also for calls at the very end: with `repair` their made-up results need a turn of their own.
    out += _after_step(after, pairs.results(step), pairs, losses)
    return [turn for turn in out if turn.contents or turn.message]


def message_turns(request: Request, losses: Losses) -> list[Turn]:
    """Returns the turns as they are, one for each message, `instructions` first. Calls inside a
    multi_tool_use wrapper are unwrapped.
    """
    turns: list[Turn] = []
    if request.instructions is not None:
        content = LocatedContent("instructions", TextContent(request.instructions))
        turns.append(Turn("instructions", "system", [content]))
    for number, message in enumerate(request.messages):
        path = f"messages[{number}]"
        contents: list[LocatedContent] = []
        is_wrapped = False
        for one in message.content:
            contents.append(LocatedContent(f"{path}.content[{len(contents)}]", one))
            if isinstance(one, CallContent) and one.name in WRAPPERS:
                is_wrapped = True
        # Hardly any message holds one, so the ids of all results are collected only here.
        if is_wrapped and not declares_wrapper(request):
            contents = _unwrapped(contents, answered_ids(request), losses)
        # Two of four wires have no role for results: they are in a turn of the user.
        role: Speaker = "user" if message.role == "tool" else message.role
        turns.append(Turn(path, role, contents, message.name, message))
    return turns


def _unwrapped(
    contents: list[LocatedContent], answered: frozenset[str], losses: Losses
) -> list[LocatedContent]:
    found: list[LocatedContent] = []
    for one in contents:
        calls = unwrap_calls(one.content, answered) if isinstance(one.content, CallContent) else []
        if calls:
            losses.adapted(one.path, "the calls that it wraps are sent one by one")
            found += [
                LocatedContent(f"{one.path}.calls[{n}]", call) for n, call in enumerate(calls)
            ]
        else:
            found.append(one)
    return found


def merge_neighbours(found: list[Turn]) -> list[Turn]:
    """Returns the turns with consecutive ones of the user, or of the assistant, merged.
    Instructions may stand anywhere, so each of them keeps its turn.
    """
    out: list[Turn] = []
    role = ""
    for turn in found:
        if turn.role == role and role in ("user", "assistant"):
            # Of a merged turn the first message counts: its path, its name, its unknown fields.
            out[-1].contents.extend(turn.contents)
        else:
            # With a list of its own: that of the turn before is not changed.
            out.append(Turn(turn.path, turn.role, [*turn.contents], turn.name, turn.message))
            role = turn.role
    return out


def ends_with_prefill(request: Request, found: Sequence[Turn]) -> bool:
    """Whether the last turn is the beginning of the answer, for the model to continue."""
    if not found or found[-1].role != "assistant":
        return False
    return source_dialect(request.dialect).has_prefill


def leading_instructions(found: Sequence[Turn | Message]) -> int:
    """Returns how many turns or messages at the beginning are instructions."""
    roles = [one.role in ("system", "developer") for one in found]
    return roles.index(False) if False in roles else len(roles)


def unknown_role_message(turn: Turn) -> Raw | None:
    """Returns the message that a turn was made of, if its role is not a canonical one."""
    match turn.contents:
        case [LocatedContent(_, OpaqueContent(kind=kind, raw=raw))] if kind == UNKNOWN_ROLE:
            return raw
    return None


def source_bytes(turn: Turn, sources: list[Raw | None]) -> Raw | None:
    """Returns the bytes of the message that a turn was made of, unless it was changed. `sources`
    are the bytes of all messages.
    """
    message = turn.message
    # Pairing may have moved or dropped contents.
    if message is None or [one.content for one in turn.contents] != [*message.content]:
        return None
    return sources[int(turn.path[len("messages[") : -1])]


class _PairedCall:
    """A call of a client tool, and its result."""

    __slots__ = ("call", "path", "result")

    def __init__(self, path: str, call: CallContent) -> None:
        self.path = path
        self.call = call
        self.result: LocatedContent | None = None


class _Pairs:
    """Which result belongs to which call. A step is a run of assistant turns."""

    def __init__(self, found: list[Turn], losses: Losses, *, other_calls: bool) -> None:
        """`other_calls`: results may belong to calls that are not in these turns."""
        self._losses = losses
        self._other_calls = other_calls
        self._steps: dict[int, list[_PairedCall]] = {}
        """The calls of each step, in order."""
        # All calls of an id or item id, in order: ids repeat over turns.
        self._known: dict[str, list[_PairedCall]] = {}
        # Calls without a result so far, by path: found by name for results without an id.
        self._open: dict[str, _PairedCall] = {}
        self._claims = Claims()
        self._orphans: list[LocatedContent] = []
        self._dropped: set[str] = set()
        """The paths of what is dropped."""
        self.paired: set[str] = set()
        """The paths of the results that belong to a call."""
        self._ids: dict[str, str] = {}
        """The ids of calls and results whose own is taken or missing, by path."""
        # Instructions between two turns of the assistant end a step, like a turn of the user.
        step, role = 0, ""
        for turn in found:
            step += turn.role == "assistant" != role
            role = turn.role
            for one in turn.contents:
                match one.content:
                    # Calls that the provider ran have their results in the same turn, if at all.
                    case CallContent(provider_executed=False) as call if role == "assistant":
                        self._add_call(one.path, call, step)
                    case ResultContent() as result if role != "assistant":
                        self._add_result(one, result)

    def _add_call(self, path: str, call: CallContent, step: int) -> None:
        same = self._known.setdefault(call.id, [])
        # The same id while the first call waits: a client that stored the call twice.
        if same and any(one.result is None for one in same):
            self._dropped.add(path)
            self._losses.warned(path, f"call {call.id} is there twice; the first is kept")
            return
        claimed = self._claims.claim(call.id)
        if claimed != call.id:
            self._ids[path] = claimed
            self._losses.adapted(f"{path}.id", f"{call.id} was the id of an earlier call")
        known = _PairedCall(path, call)
        self._steps.setdefault(step, []).append(known)
        self._open[path] = known
        same.append(known)
        # Clients of Responses answer `fc_…` as well as `call_…`.
        if call.item_id and call.item_id != call.id:
            self._known.setdefault(call.item_id, []).append(known)

    def _add_result(self, located: LocatedContent, result: ResultContent) -> None:
        if result.id:
            same = self._known.get(result.id, [])
        else:
            # Gemini's results have a name and often no id.
            same = [one for one in self._open.values() if result.name in (None, one.call.name)]
        call = next((one for one in same if one.result is None), None)
        if call is not None:
            call.result = located
            del self._open[call.path]
            self.paired.add(located.path)
            id = self._ids.get(call.path, call.call.id)
            if id != result.id:
                self._ids[located.path] = id
        elif same:
            self._dropped.add(located.path)
            detail = f"call {result.id} has two results; the first is kept"
            self._losses.warned(located.path, detail)
        elif not self._other_calls:
            # No stored response is before these turns that could hold its call.
            self._orphans.append(located)

    def check(self, *, repair: bool) -> None:
        """Repairs or refuses results without a call and calls without a result."""
        for orphan in self._orphans:
            # Every wire rejects a result without a call, and a call without a result.
            if repair:
                self._dropped.add(orphan.path)
                self._losses.warned(orphan.path, "dropped: a result without a call")
            else:
                self._losses.refused(orphan.path, "no call before it has this id")
        for call in self._open.values():
            if repair:
                text = TextContent("The tool was not run: no result was recorded.")
                made = call.call
                # An error, so that the model may call again.
                result = ResultContent(made.id, (text,), made.kind, made.name, is_error=True)
                call.result = LocatedContent(call.path, result)
                self._losses.warned(call.path, "has no result; the model is told so")
            else:
                self._losses.refused(call.path, f"call {call.call.id} has no result")

    def results(self, step: int) -> list[LocatedContent]:
        """Returns the results of a step, in the order of its calls."""
        found = [call.result for call in self._steps.get(step, ())]
        results = [one for one in found if one is not None]
        return [self._with_id(one) for one in results] if self._ids else results

    def corrected(self, turns: list[Turn]) -> list[Turn]:
        """Returns the turns without what is dropped, and with the ids that pair their contents."""
        if not self._dropped and not self._ids:  # nearly always
            return turns
        return [
            _replace(
                turn,
                contents=[
                    self._with_id(one) for one in turn.contents if one.path not in self._dropped
                ],
            )
            for turn in turns
        ]

    def _with_id(self, located: LocatedContent) -> LocatedContent:
        """Returns a content with the id that pairs it."""
        id = self._ids.get(located.path)
        content = located.content
        if id is None or not isinstance(content, CallContent | ResultContent):
            return located
        return LocatedContent(located.path, _replace(content, id=id))


def _after_step(
    turns: list[Turn], results: list[LocatedContent], pairs: _Pairs, losses: Losses
) -> list[Turn]:
    """Returns the turns after a step: as they were, if the results come first and in order."""
    own = [one for turn in turns for one in turn.contents]
    is_empty_first = bool(results and turns and not turns[0].contents)  # it would come between
    is_late = not pairs.paired.isdisjoint([one.path for one in own[len(results) :]])
    # A conversation that is in order keeps its turns: moving them would change cached prefixes.
    if own[: len(results)] == results and not (is_empty_first or is_late):
        return turns
    moved: list[Turn] = []
    if results:
        for one, other in zip_longest(results, own[: len(results)]):
            if one != other and one.path in pairs.paired:
                losses.adapted(one.path, "moved: results come right after their calls, in order")
        moved.append(Turn(results[0].path.partition(".content")[0], "user", results))
    for turn in turns:
        rest = [one for one in turn.contents if one.path not in pairs.paired]
        if rest or not turn.contents:
            moved.append(_replace(turn, contents=rest))
    return moved
