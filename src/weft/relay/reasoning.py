"""The reasoning of tool calls, for clients that do not send it back.

Upstreams that think want the reasoning that led to a call back with it, byte for byte, and some
refuse the next request without it. Most clients of Chat Completions drop it. So it is kept in the
store when a response ends (`save`), by owner and call id, and put back into the next request that
has these calls (`restore`).

1. Only where the client brought no proof for that step: what a client sends is never changed.
2. Only to a call of the same name and arguments: some upstreams use a call id more than once.
3. What is put back has the origin it came from. Renderers send it there, and nowhere else.
4. It helps the next request and nothing else: a store that fails costs neither this answer nor
   the next request.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
"""Seconds for which it is kept."""

RESTORED = "the reasoning of this call was restored: the client did not send it back"

log = logging.getLogger("weft.relay")
_replace = msgspec.structs.replace


class PositionedReasoning(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reasoning, and where it stood: after so many characters of text."""

    reasoning: ReasoningContent
    at: int = 0


class CallState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What must come back with one call."""

    call: str
    """A digest of the name and the arguments."""

    dialect: str | None = None
    """The upstream's: whose `extra` the reasoning has."""

    before: tuple[PositionedReasoning, ...] = ()
    """Between the call before, or the beginning of the answer, and this call."""

    after: tuple[ReasoningContent, ...] = ()
    """What came after the last call."""

    signature: str | None = None
    origin: str | None = None
    """Who signed the call."""

    @property
    def reasoning(self) -> list[ReasoningContent]:
        return [*(one.reasoning for one in self.before), *self.after]

    @property
    def has_state(self) -> bool:
        """Whether any of its reasoning has a proof: then it is worth more than a text."""
        return any(map(_has_state, self.reasoning))


@dataclass(frozen=True, slots=True)
class Restored:
    """A request with the reasoning of its calls."""

    request: Request
    calls: tuple[str, ...] = ()
    """The paths of the calls that got theirs back, in this request."""

    moved: Mapping[str, str] = field(default_factory=dict)
    """Where in the request as it came each message and content stood, if it changed its place."""

    @property
    def losses(self) -> list[Loss]:
        return [Loss(path, "adapted", RESTORED) for path in self.calls]

    def place(self, places: SourcePaths) -> None:
        """Corrects where in the client's body the contents are."""
        for path, source in [(path, places.source(old)) for path, old in self.moved.items()]:
            places.add(path, source)


# What is kept


def call_states(response: Response) -> dict[str, CallState]:
    """What must come back with each call that the client runs, by call id. None of a response that
    failed; nothing for a call that has neither reasoning that somebody wants back nor a signature.
    """
    if response.error is not None:
        return {}
    states: dict[str, CallState] = {}
    last, before, said = "", list[PositionedReasoning](), 0
    for item in response.items:
        match item:
            case TextItem(text=text):
                said += len(text)
            case ReasoningItem(origin=str()):
                before.append(PositionedReasoning(_content(item), said))
            case ToolCall(provider_executed=False) if item.invalid != "nameless":
                last = item.id
                states[last] = CallState(
                    _digest(item.name, item.format, item.params),
                    response.dialect,
                    tuple(before),
                    signature=item.signature,
                    origin=item.origin,
                )
                before, said = [], 0
    if last and before:
        after = tuple(one.reasoning for one in before)
        states[last] = _replace(states[last], after=after)
    return {id: one for id, one in states.items() if one.reasoning or one.signature}


def _content(item: ReasoningItem) -> ReasoningContent:
    return ReasoningContent(
        item.text,
        item.kind,
        item.item_id,
        item.signature,
        item.encrypted,
        item.redacted,
        item.origin,
        item.extra,
    )


def _whole_number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


_value = msgspec.json.Decoder(float_hook=_whole_number).decode
_sorted = msgspec.json.Encoder(order="sorted").encode


def _digest(name: str, format: ParamsFormat, params: str) -> str:
    """Equal for equal calls, however the client wrote the arguments."""
    said = params.encode("utf-8", "surrogatepass")
    if format == "json":
        with suppress(ValueError, RecursionError):  # else it is the text itself
            said = _sorted(_value(said or b"{}"))
    return sha256(f"{name}\0{format}\0".encode("utf-8", "surrogatepass") + said).hexdigest()


# What is put back


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
    """The messages with their numbers; those of one step of the assistant together."""
    numbered = enumerate(request.messages)
    for spoken, group in groupby(numbered, key=lambda one: one[1].role == "assistant"):
        yield spoken, list(group)


def calls_without_reasoning(request: Request) -> list[str]:
    """The ids of the calls whose reasoning the client did not bring."""
    found: dict[str, None] = {}
    for spoken, step in _steps(request):
        contents = [one for _, message in step for one in message.content]
        if spoken and not any(map(_carries_state, contents)):
            found |= {one.id: None for one in contents if _is_call(one)}
    return list(found)


def put_back(request: Request, states: Mapping[str, CallState]) -> Restored:
    """Puts reasoning and signatures back to the calls of steps that came without any proof."""
    fitting = _fitting(request, states)
    messages: list[Message] = []
    calls: list[str] = []
    moved: dict[str, str] = {}
    for spoken, step in _steps(request):
        filled = _Step(request.dialect, step, fitting).filled() if spoken and fitting else None
        for place, (number, message) in enumerate(step):
            contents = None if filled is None else filled[place]
            if contents == []:  # it was a reasoning without proof, and nothing else
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
"""The number of a message, and the place of a content in it."""


def _fitting(request: Request, states: Mapping[str, CallState]) -> dict[_At, CallState]:
    """The calls whose state is known. Where an id was used again, it is that of the last one."""
    found: dict[str, _At] = {}
    for number, message in enumerate(request.messages):
        for place, content in enumerate(message.content):
            if message.role != "assistant" or not _is_call(content):
                continue
            state = states.get(content.id)
            if state and state.call == _digest(content.name, content.format, content.params):
                found[content.id] = number, place
    return {at: states[id] for id, at in found.items()}


@dataclass(frozen=True, slots=True)
class _Placed:
    """A content of a message, and its place before; -1 for one that was put back."""

    content: AnyContent
    old: int = -1
    restored: bool = False
    """A call that has its reasoning again."""


class _Step:
    """The messages of one step, and what is put back into them."""

    def __init__(
        self,
        dialect: str | None,
        step: Sequence[tuple[int, Message]],
        fitting: Mapping[_At, CallState],
    ) -> None:
        self._dialect = dialect
        self._contents = [
            (number, place, content)
            for number, (_, message) in enumerate(step)
            for place, content in enumerate(message.content)
        ]
        self._states = [
            fitting.get((step[number][0], place))
            for number, place, content in self._contents
            if _is_call(content)
        ]
        self._out: list[list[_Placed]] = [[] for _ in step]

    def filled(self) -> list[list[_Placed]] | None:
        """The contents of each message; None if there is nothing to put back."""
        contents = [one for _, _, one in self._contents]
        known = [state for state in self._states if state is not None]
        if not known or any(map(_carries_state, contents)):
            return None
        brought = any(isinstance(one, ReasoningContent) for one in contents)
        # A text without a proof gives way to the same reasoning with one, and to nothing less.
        replacing = brought and any(state.has_state for state in known)
        if not brought or replacing:
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
        before, said = list(state.before if state else ()), 0
        for number, place, content in self._contents:
            if replacing and isinstance(content, ReasoningContent):
                continue
            is_call = _is_call(content)
            while before and (is_call or said >= before[0].at):
                self._put_back(number, before.pop(0).reasoning, state)
            if isinstance(content, TextContent):
                said += len(content.text)
            self._out[number].append(
                _Placed(_signed(content, state), place, is_call and bool(state))
            )
            if is_call:
                for after in state.after if state else ():
                    self._put_back(number, after, state)
                state = next(following, None)
                before, said = list(state.before if state else ()), 0

    def _put_back(self, number: int, reasoning: ReasoningContent, state: CallState | None) -> None:
        if state is None or state.dialect != self._dialect:
            reasoning = _replace(reasoning, extra=UNSET)  # it is of another wire than the request
        self._out[number].append(_Placed(reasoning))


def _is_call(content: AnyContent) -> TypeGuard[CallContent]:
    """Whether it is a call that the client ran."""
    return isinstance(content, CallContent) and not content.provider_executed


def _signed(content: AnyContent, state: CallState | None) -> AnyContent:
    if state is None or state.signature is None or not isinstance(content, CallContent):
        return content
    return _replace(content, signature=state.signature, origin=state.origin)


# The store

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CallState).decode


async def save(store: Store, owner: str, response: Response, stored_as: str = "") -> None:
    """Keeps what must come back with the calls of a finished response. Returns when it is stored:
    the client may answer the calls as soon as it is told the end. Writes nothing where there is
    nothing to keep. `stored_as`: the id that the response is stored under, if it is.
    """
    now = time.time()
    states = call_states(response)
    try:
        states |= await _outdated(store, owner, response, states)
        rows = [
            CallReasoning(id, stored_as, _origin(state), now, _encode(state))
            for id, state in states.items()
        ]
        await store.save_reasoning(owner, [one for one in rows if _is_storable(one)])
    except (StoreError, ValueError) as problem:
        log.warning("the reasoning of %d calls was not kept: %s", len(states), problem)


async def _outdated(
    store: Store, owner: str, response: Response, states: Mapping[str, CallState]
) -> dict[str, CallState]:
    """Nothing, for calls that need nothing back and whose ids had something kept before: some
    upstreams use an id more than once."""
    ids = [
        item.id
        for item in response.items
        if isinstance(item, ToolCall) and not item.provider_executed and item.id not in states
    ]
    found = await store.load_reasoning(owner, ids, time.time() - LIFETIME) if ids else {}
    return dict.fromkeys(found, CallState(call=""))


def _is_storable(row: CallReasoning) -> bool:
    return len(row.data) <= REASONING_SIZE and len(row.call) <= ID_LENGTH


def _origin(state: CallState) -> str:
    """Who wants it back: all of a response comes from one upstream."""
    origins = (state.origin, *(one.origin for one in state.reasoning))
    return next((one for one in origins if one is not None), "")


async def load(store: Store, owner: str, request: Request) -> dict[str, CallState]:
    """What is kept of the calls whose reasoning the client did not bring. Asks the store only if
    there are such calls.
    """
    calls = [id for id in calls_without_reasoning(request) if len(id) <= ID_LENGTH]
    if not calls:
        return {}
    try:
        found = await store.load_reasoning(owner, calls, time.time() - LIFETIME)
    except StoreError as problem:
        log.warning("the reasoning of %d calls could not be read: %s", len(calls), problem)
        return {}
    return {id: _decode(one.data) for id, one in found.items()}


async def restore(store: Store, owner: str, request: Request) -> Restored:
    """The request with the reasoning of its calls, as far as it is kept and the client brought
    none.
    """
    return put_back(request, await load(store, owner, request))
