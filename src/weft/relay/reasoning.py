"""The reasoning of tool calls, for clients that do not send it back.

Models that reason want the reasoning that led to a call back with it, byte for byte, and some
upstreams refuse the next request without it. Most clients of Chat Completions drop it. So it is
saved when a response ends (`save`), by owner and call id, and put back into the next request that
has these calls (`restore`).

Reasoning state is what an upstream verifies: a signature, encrypted or redacted reasoning.

1. Reasoning is only restored to steps that the client sent without any state: what a client sends
   is never changed.
2. It is only restored to a call with the same name and arguments: some upstreams use a call id more
   than once.
3. It keeps its origin. Renderers send it to that upstream only.
4. If the store fails, or what it holds is unreadable, neither this response nor the next request
   fails.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import TypeGuard

import msgspec
from msgspec import UNSET

from weft.assembler import ReasoningItem, Response, TextItem
from weft.dialects.requests.codec import Loss, SourcePaths
from weft.parts import ParamsFormat, ToolCall
from weft.request import (
    AnyContent,
    CallContent,
    Message,
    ReasoningContent,
    Request,
    TextContent,
)
from weft.store.base import ID_LENGTH, REASONING_SIZE, Store, StoreError
from weft.store.records import CallReasoning

LIFETIME = 86_400.0
"""Seconds for which reasoning is stored."""

RESTORED = "the reasoning of this call was restored: the client did not send it back"

log = logging.getLogger("weft.relay")
_replace = msgspec.structs.replace


class PositionedReasoning(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reasoning, and its position: after so many characters of text."""

    reasoning: ReasoningContent
    at: int = 0


class CallState(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"before": "thoughts", "after": "behind"},  # as stored by earlier versions
):
    """What must be sent back with one call."""

    call: str
    """A digest of the name and the arguments."""

    dialect: str | None = None
    """The dialect of the upstream, to which `extra` of the reasoning belongs."""

    before: tuple[PositionedReasoning, ...] = ()
    """The reasoning between the previous call, or the start of the response, and this call."""

    after: tuple[ReasoningContent, ...] = ()
    """The reasoning after the last call."""

    signature: str | None = None
    origin: str | None = None
    """The upstream that signed the call."""

    @property
    def reasoning(self) -> list[ReasoningContent]:
        return [*(one.reasoning for one in self.before), *self.after]

    @property
    def has_state(self) -> bool:
        """Whether any of its reasoning has state, and so is worth more than plain text."""
        return any(map(_has_state, self.reasoning))


class Restored(msgspec.Struct, frozen=True):
    """A request with the reasoning of its calls restored."""

    request: Request
    calls: tuple[str, ...] = ()
    """The paths, in this request, of the calls whose reasoning was restored."""

    moved: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The previous paths of messages and contents that moved."""

    @property
    def losses(self) -> list[Loss]:
        return [Loss(path, "adapted", RESTORED) for path in self.calls]

    def update_paths(self, paths: SourcePaths) -> None:
        """Updates the map from request paths to paths in the client's body."""
        for path, source in [(path, paths.source(old)) for path, old in self.moved.items()]:
            paths[path] = source


# Saving


def call_states(response: Response) -> dict[str, CallState]:
    """What must be sent back with each call that the client runs, by call id. Empty for a failed
    response; without calls that have neither reasoning with an origin nor a signature.
    """
    # A client does not run the calls of a turn that failed.
    if response.error is not None:
        return {}
    states: dict[str, CallState] = {}
    last, before, length = "", list[PositionedReasoning](), 0
    for item in response.items:
        match item:
            case TextItem(text=text):
                length += len(text)
            case ReasoningItem(origin=str()):
                reasoning = ReasoningContent(
                    item.text,
                    item.kind,
                    item.item_id,
                    item.signature,
                    item.encrypted,
                    item.redacted,
                    item.origin,
                    item.extra,
                )
                before.append(PositionedReasoning(reasoning, length))
            case ToolCall(provider_executed=False) if item.invalid != "nameless":
                last = item.id
                states[last] = CallState(
                    _digest(item.name, item.format, item.params),
                    response.dialect,
                    tuple(before),
                    signature=item.signature,
                    origin=item.origin,
                )
                before, length = [], 0
    if last and before:
        after = tuple(one.reasoning for one in before)
        states[last] = _replace(states[last], after=after)
    return {id: one for id, one in states.items() if one.reasoning or one.signature}


def _whole_number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


# A client that parses arguments and prints them again may write 1.0 as 1, in JavaScript always.
_value = msgspec.json.Decoder(float_hook=_whole_number).decode
_sorted = msgspec.json.Encoder(order="sorted").encode


def _digest(name: str, format: ParamsFormat, params: str) -> str:
    """Equal for equal calls, however the client formats the arguments."""
    data = params.encode("utf-8", "surrogatepass")
    if format == "json":
        with suppress(
            ValueError, RecursionError
        ):  # arguments that are no JSON are compared as text
            data = _sorted(_value(data or b"{}"))
    return sha256(f"{name}\0{format}\0".encode("utf-8", "surrogatepass") + data).hexdigest()


# Restoring


def _has_state(reasoning: ReasoningContent) -> bool:
    return bool(reasoning.signature or reasoning.encrypted or reasoning.redacted)


def _carries_state(content: AnyContent) -> bool:
    match content:
        case ReasoningContent():
            return _has_state(content)
        case CallContent(provider_executed=False):
            return content.signature is not None
        case _:
            return False


def _steps(request: Request) -> Iterator[tuple[bool, list[tuple[int, Message]]]]:
    """The numbered messages, grouped: consecutive ones of the assistant are one step."""
    numbered = enumerate(request.messages)
    for is_assistant, group in groupby(numbered, key=lambda one: one[1].role == "assistant"):
        yield is_assistant, list(group)


def calls_without_reasoning(request: Request) -> list[str]:
    """The ids of the calls whose reasoning the client did not send back."""
    found: dict[str, None] = {}
    for is_assistant, step in _steps(request):
        contents = [one for _, message in step for one in message.content]
        # Rule 1. One signature shows that the client sends state back: what is missing, it left
        # out.
        if is_assistant and not any(map(_carries_state, contents)):
            found |= {one.id: None for one in contents if _is_call(one)}
    return list(found)


def put_back(request: Request, states: Mapping[str, CallState]) -> Restored:
    """Restores reasoning and signatures in steps that have no reasoning state."""
    matching = _matching_calls(request, states)
    messages: list[Message] = []
    calls: list[str] = []
    moved: dict[str, str] = {}
    for is_assistant, step in _steps(request):
        filled: list[list[_Placed]] | None = None
        if is_assistant and matching:
            filled = _Step(request.dialect, step, matching).filled()
        for index, (number, message) in enumerate(step):
            contents = None if filled is None else filled[index]
            if contents == []:  # the message held only reasoning that was replaced
                continue
            here, there = f"messages[{len(messages)}]", f"messages[{number}]"
            if here != there:
                moved[here] = there
            if contents is not None:
                message = _replace(message, content=tuple(one.content for one in contents))
                calls += [
                    f"{here}.content[{at}]" for at, one in enumerate(contents) if one.restored
                ]
                moved |= {
                    f"{here}.content[{at}]": there if one.old < 0 else f"{there}.content[{one.old}]"
                    for at, one in enumerate(contents)
                    if one.old != at
                }
            messages.append(message)
    if not calls:
        return Restored(request)
    return Restored(_replace(request, messages=tuple(messages)), tuple(calls), moved)


_At = tuple[int, int]
"""The number of a message, and the index of a content in it."""


def _matching_calls(request: Request, states: Mapping[str, CallState]) -> dict[_At, CallState]:
    """The calls whose state is known. If an id was used again, it belongs to the last one."""
    found: dict[str, _At] = {}
    for number, message in enumerate(request.messages):
        for index, content in enumerate(message.content):
            if message.role != "assistant" or not _is_call(content):
                continue
            state = states.get(content.id)
            if state and state.call == _digest(content.name, content.format, content.params):
                # Kimi numbers its calls (`functions.run:2`) and uses an id again in later turns:
                # the digest tells calls apart that differ, and of equal ones the last is the one
                # that was saved.
                found[content.id] = number, index
    return {at: states[id] for id, at in found.items()}


@dataclass(frozen=True, slots=True)
class _Placed:
    """A content of a message, and its index before; -1 if it was restored."""

    content: AnyContent
    old: int = -1
    restored: bool = False
    """Whether it is a call whose reasoning was restored."""


class _Step:
    """The messages of one step, and what is restored in them."""

    def __init__(
        self,
        dialect: str | None,
        step: Sequence[tuple[int, Message]],
        matching: Mapping[_At, CallState],
    ) -> None:
        self._dialect = dialect
        self._contents = [
            (number, index, content)
            for number, (_, message) in enumerate(step)
            for index, content in enumerate(message.content)
        ]
        self._states = [
            matching.get((step[number][0], index))
            for number, index, content in self._contents
            if _is_call(content)
        ]
        self._out: list[list[_Placed]] = [[] for _ in step]

    def filled(self) -> list[list[_Placed]] | None:
        """The contents of each message; None if nothing is restored."""
        contents = [one for _, _, one in self._contents]
        known = [state for state in self._states if state is not None]
        if not known or any(map(_carries_state, contents)):
            return None
        has_reasoning = any(isinstance(one, ReasoningContent) for one in contents)
        # Reasoning as plain text is replaced by the same reasoning with state, and by nothing less.
        if not has_reasoning or any(state.has_state for state in known):
            self._fill(self._states)
        elif any(state.signature for state in known):
            self._fill([state and _replace(state, before=(), after=()) for state in self._states])
        else:
            return None
        return self._out

    def _fill(self, states: Sequence[CallState | None]) -> None:
        replacing = any(state is not None and state.has_state for state in states)
        following = iter(states)
        state = next(following, None)
        before, length = list(state.before if state else ()), 0
        for number, index, content in self._contents:
            if replacing and isinstance(content, ReasoningContent):
                continue
            is_call = _is_call(content)
            # By characters of text, since a client may have split or joined the text parts between
            # which the reasoning stood.
            while before and (is_call or length >= before[0].at):
                self._put_back(number, before.pop(0).reasoning, state)
            if isinstance(content, TextContent):
                length += len(content.text)
            is_restored = is_call and state is not None
            if (
                isinstance(content, CallContent)
                and state is not None
                and state.signature is not None
            ):
                content = _replace(content, signature=state.signature, origin=state.origin)
            self._out[number].append(_Placed(content, index, is_restored))
            if is_call:
                for after in state.after if state else ():
                    self._put_back(number, after, state)
                state = next(following, None)
                before, length = list(state.before if state else ()), 0

    def _put_back(self, number: int, reasoning: ReasoningContent, state: CallState | None) -> None:
        if state is None or state.dialect != self._dialect:
            reasoning = _replace(reasoning, extra=UNSET)  # which belongs to another dialect
        self._out[number].append(_Placed(reasoning))


def _is_call(content: AnyContent) -> TypeGuard[CallContent]:
    """Whether it is a call that the client runs."""
    return isinstance(content, CallContent) and not content.provider_executed


# The store

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CallState).decode


async def save(store: Store, owner: str, response: Response, stored_as: str = "") -> None:
    """Saves what must be sent back with the calls of a finished response. Returns when it is
    committed: the client may submit results as soon as it has the end. Writes nothing if there is
    nothing to save. `stored_as` is the id under which the response is stored, if it is.
    """
    now = time.time()
    states = call_states(response)
    others = [
        item.id
        for item in response.items
        if isinstance(item, ToolCall) and not item.provider_executed and item.id not in states
    ]
    try:
        if others:  # what was saved under these ids before is replaced: upstreams reuse ids
            outdated = await store.load_reasoning(owner, others, now - LIFETIME)
            states |= dict.fromkeys(outdated, CallState(call=""))
        rows: list[CallReasoning] = []
        for id, state in states.items():
            origins = (state.origin, *(one.origin for one in state.reasoning))
            origin = next((one for one in origins if one is not None), "")  # all have the same
            data = _encode(state)
            # What does not fit is not saved: rule 4.
            if len(data) <= REASONING_SIZE and len(id) <= ID_LENGTH:
                rows.append(CallReasoning(id, stored_as, origin, now, data))
        await store.save_reasoning(owner, rows)
    except (StoreError, ValueError) as problem:
        log.warning("the reasoning of %d calls was not saved: %s", len(states), problem)


async def load(store: Store, owner: str, request: Request) -> dict[str, CallState]:
    """What is saved for the calls whose reasoning the client did not send back. Queries the store
    only if there are such calls.
    """
    calls = [id for id in calls_without_reasoning(request) if len(id) <= ID_LENGTH]
    if not calls:
        return {}
    try:
        found = await store.load_reasoning(owner, calls, time.time() - LIFETIME)
    except StoreError as problem:
        log.warning("the reasoning of %d calls could not be loaded: %s", len(calls), problem)
        return {}
    states: dict[str, CallState] = {}
    for id, one in found.items():
        try:
            states[id] = _decode(one.data)
        except (ValueError, RecursionError) as problem:  # one row, and not those of other calls
            log.warning("the reasoning of call %r is unreadable: %s", id, problem)
    return states


async def restore(store: Store, owner: str, request: Request) -> Restored:
    """The request with the saved reasoning of its calls."""
    return put_back(request, await load(store, owner, request))
