"""The fold: the one place where text and arguments are joined.

`Assembler` folds guarded parts into a `Response`. Encoders, store, agent and page read that
fold; none of them joins text again. `Buffer` is how text grows here and in the ledger: pieces
are joined in blocks, so that a million small deltas cost no more memory than the text.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from weft.findings import Finding
from weft.large_json import LARGE, joined
from weft.parts import (
    Delta,
    ErrorKind,
    ErrorPart,
    File,
    Finish,
    FinishReason,
    Json,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningKind,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
)

# Pieces that are joined into one. A short string costs about fifty bytes beside its text, so a
# million deltas of one character would cost fifty times their text if each were kept.
_BLOCK = 64

ERROR = -1
"""Stands for the error in `Response.order`."""

CUT = -2
"""CUT minus its place in `Response.items` stands for the end of a call that was cut before the
error came."""


class Buffer(msgspec.Struct, eq=False):
    """Text that grows by pieces. Reading it joins what came since the last read."""

    _blocks: list[str] = []
    _pieces: list[str] = []
    length: int = 0

    def add(self, piece: str) -> None:
        pieces = self._pieces
        pieces.append(piece)
        self.length += len(piece)
        if len(pieces) == _BLOCK:
            self._blocks.append("".join(pieces))
            pieces.clear()

    @property
    def text(self) -> str:
        if self._pieces or len(self._blocks) > 1:
            # What was joined is kept as the only block: a second read costs nothing.
            pieces = [*self._blocks, *self._pieces]
            self._blocks = ["".join(pieces) if self.length <= LARGE else joined(pieces)]
            self._pieces.clear()
        return self._blocks[0] if self._blocks else ""

    def ends_like_json(self) -> bool:
        """Whether the last piece could close an object or array: cheap, and mostly false."""
        last = self._pieces[-1] if self._pieces else self._blocks[-1] if self._blocks else ""
        # A piece of blanks says nothing: the closing brace may be in the one before it.
        return last.rstrip(" \t\r\n")[-1:] in ("}", "]", "")

    def since(self, position: int) -> str:
        """What came after the first `position` characters, without joining what stood before."""
        wanted = self.length - position
        # From the end, since the caller resumes a scan: it wants the last delta of a long text, and
        # joining all of it for each delta would take quadratic time.
        taken: list[str] = []
        got = 0
        for piece in chain(reversed(self._pieces), reversed(self._blocks)):
            if got >= wanted:
                break
            taken.append(piece)
            got += len(piece)
        taken.reverse()
        return "".join(taken)[got - wanted :]

    def set(self, text: str) -> None:
        """Replaces all of it."""
        self._blocks = [text]
        self._pieces.clear()
        self.length = len(text)


class TextItem(msgspec.Struct, frozen=True, tag="text", tag_field="type", omit_defaults=True):
    """One text part, whole."""

    id: str
    text: str
    refusal: bool = False
    item_id: str | None = None
    phase: str | None = None
    annotations: tuple[Raw, ...] = ()
    signature: str | None = None
    origin: str | None = None
    extra: Json = UNSET


class ReasoningItem(
    msgspec.Struct, frozen=True, tag="reasoning", tag_field="type", omit_defaults=True
):
    """One reasoning part, whole, with the proof that goes back to its origin."""

    id: str
    text: str
    kind: ReasoningKind = "raw"
    item_id: str | None = None
    signature: str | None = None
    encrypted: str | None = None
    redacted: str | None = None
    origin: str | None = None
    extra: Json = UNSET


Item = (
    TextItem | ReasoningItem | ToolCall | ToolResult | ToolApprovalRequest | Source | File | Opaque
)


class Failure(msgspec.Struct, frozen=True):
    """Why a response failed."""

    kind: ErrorKind
    message: str
    code: str | int | None = None
    status: int | None = None
    retryable: bool = False


class Response(msgspec.Struct, frozen=True):
    """The fold of one response: what was streamed, joined once, in order of announcement."""

    id: str
    model: str | None = None
    created: int | None = None
    dialect: str | None = None
    items: tuple[Item, ...] = ()
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None
    error: Failure | None = None
    findings: tuple[Finding, ...] = ()
    choice: int = 0
    extra: Json = UNSET
    """The finish's: what the dialect wants back in a body."""
    order: tuple[int, ...] = ()
    """How the items overlapped: the place of each in `items`, where it began and again where it
    ended, or once if it came whole; ERROR stands for the error, CUT for the end of a call that it
    cut. Empty: one item after the other, and then the error."""

    @property
    def text(self) -> str:
        """All text, without refusals; nothing is added between parts."""
        return self._texts(refusal=False)

    @property
    def refusal(self) -> str:
        return self._texts(refusal=True)

    @property
    def reasoning(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, ReasoningItem))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that may be dispatched or were executed by the provider."""
        return tuple(call for call in self._calls() if not call.invalid)

    @property
    def invalid_tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that must never be dispatched, each with its reason and its raw text."""
        return tuple(call for call in self._calls() if call.invalid)

    def _calls(self) -> list[ToolCall]:
        return [item for item in self.items if isinstance(item, ToolCall)]

    def _texts(self, *, refusal: bool) -> str:
        texts = [item for item in self.items if isinstance(item, TextItem)]
        return "".join(item.text for item in texts if item.refusal is refusal)


class _TextSlot(msgspec.Struct):
    slot: int
    start: TextStart
    buffer: Buffer
    end: TextEnd | None = None

    def item(self) -> TextItem:
        start, end = self.start, self.end or TextEnd(self.start.id)
        return TextItem(
            id=start.id,
            text=self.buffer.text,
            refusal=start.refusal,
            item_id=start.item_id,
            phase=start.phase,
            annotations=end.annotations,
            signature=end.signature,
            origin=end.origin,
            extra=end.extra if end.extra is not UNSET else start.extra,
        )


class _ReasoningSlot(msgspec.Struct):
    slot: int
    start: ReasoningStart
    buffer: Buffer
    end: ReasoningEnd | None = None

    def item(self) -> ReasoningItem:
        start, end = self.start, self.end or ReasoningEnd(self.start.id)
        return ReasoningItem(
            id=start.id,
            text=self.buffer.text,
            kind=start.kind,
            item_id=start.item_id,
            signature=end.signature,
            encrypted=end.encrypted,
            redacted=end.redacted,
            origin=end.origin,
            extra=end.extra if end.extra is not UNSET else start.extra,
        )


class _CallSlot(msgspec.Struct):
    slot: int
    buffer: Buffer
    call: ToolCall | None = None


class Assembler:
    """Folds legal parts, one response at a time. Ask it at any point of the stream."""

    def __init__(self) -> None:
        self._metadata: ResponseMetadata | None = None
        self._finish: Finish | None = None
        self._error: ErrorPart | None = None
        self._slots: list[_TextSlot | _ReasoningSlot | _CallSlot | Item] = []
        self._order: list[int] = []
        self._texts: dict[str, _TextSlot] = {}
        self._reasonings: dict[str, _ReasoningSlot] = {}
        self._calls: dict[str, _CallSlot] = {}

    def feed(self, part: Part) -> None:
        FOLD[part.__class__](self, part)

    @property
    def empty(self) -> bool:
        """Whether there is no content at all yet."""
        return not self._slots

    @property
    def usage(self) -> Usage | None:
        """What was reported so far."""
        metadata, finish = self._metadata, self._finish
        reported = None if metadata is None else metadata.usage
        return merged(reported, None if finish is None else finish.usage)

    @property
    def is_whole(self) -> bool:
        """Whether the response has ended without an error."""
        return self._finish is not None and self._error is None

    @property
    def length(self) -> int:
        """The characters of all texts, reasoning and arguments so far."""
        return sum(
            slot.buffer.length
            for slot in self._slots
            if isinstance(slot, _TextSlot | _ReasoningSlot | _CallSlot)
        )

    def text(self, id: str) -> str:
        """What the deltas of a text part add up to so far."""
        known = self._texts.get(id)
        return known.buffer.text if known else ""

    def buffer(self, part: Delta) -> Buffer:
        """Where the deltas of the item of this one are collected."""
        if isinstance(part, TextDelta):
            return self._texts[part.id].buffer
        if isinstance(part, ReasoningDelta):
            return self._reasonings[part.id].buffer
        return self._calls[part.id].buffer

    def reasoning(self, id: str) -> str:
        """What the deltas of a reasoning part add up to so far."""
        known = self._reasonings.get(id)
        return known.buffer.text if known else ""

    def joined(self, call: str) -> str:
        """What the params deltas of a call add up to so far."""
        known = self._calls.get(call)
        return known.buffer.text if known else ""

    def response(self, findings: tuple[Finding, ...] = (), choice: int = 0) -> Response:
        """Returns the fold as it stands."""
        metadata = self._metadata or ResponseMetadata("")
        finish, error = self._finish, self._error
        items: list[Item] = []
        for slot in self._slots:
            if isinstance(slot, _TextSlot | _ReasoningSlot):
                items.append(slot.item())
            elif not isinstance(slot, _CallSlot):
                items.append(slot)
            elif slot.call is not None:  # else announced, and still open
                call = slot.call
                if error is not None and not call.provider_executed:
                    # a failed response has no client call that may be dispatched
                    call = msgspec.structs.replace(call, invalid="stream-failed")
                items.append(call)
        # The order of items that do not overlap needs no storing: each place twice, one after the
        # other, and the error last. ERROR is -1 and so sorts first; a CUT is below it, and never
        # plain.
        plain, failure = sorted(self._order), None
        if error is not None:
            plain = [*plain[1:], ERROR]
            failure = Failure(error.kind, error.message, error.code, error.status, error.retryable)
        return Response(
            id=metadata.id,
            model=(finish.model if finish and finish.model else metadata.model),
            created=metadata.created,
            dialect=metadata.dialect,
            items=tuple(items),
            finish_reason=finish.reason if finish else None,
            raw_finish_reason=finish.raw_reason if finish else None,
            stop_sequence=finish.stop_sequence if finish else None,
            usage=merged(metadata.usage, finish.usage if finish else None),
            error=failure,
            findings=findings,
            choice=choice,
            extra=finish.extra if finish else UNSET,
            order=() if plain == self._order else tuple(self._order),
        )

    def _text_start(self, part: TextStart) -> None:
        place = len(self._slots)
        self._texts[part.id] = slot = _TextSlot(place, part, Buffer())
        self._order.append(place)
        self._slots.append(slot)

    def text_delta(self, part: TextDelta) -> None:
        """As `feed`, without the dispatch: nearly every part is one of these."""
        self._texts[part.id].buffer.add(part.delta)

    def _text_end(self, part: TextEnd) -> None:
        slot = self._texts[part.id]
        slot.end = part
        self._order.append(slot.slot)

    def _reasoning_start(self, part: ReasoningStart) -> None:
        self._reasonings[part.id] = slot = _ReasoningSlot(len(self._slots), part, Buffer())
        self._begin(slot)

    def _reasoning_delta(self, part: ReasoningDelta) -> None:
        self._reasonings[part.id].buffer.add(part.delta)

    def _reasoning_end(self, part: ReasoningEnd) -> None:
        slot = self._reasonings[part.id]
        slot.end = part
        self._order.append(slot.slot)

    def _params_start(self, part: ToolParamsStart) -> None:
        self._calls[part.id] = slot = _CallSlot(len(self._slots), Buffer())
        self._begin(slot)

    def _params_delta(self, part: ToolParamsDelta) -> None:
        self._calls[part.id].buffer.add(part.delta)

    def _params_end(self, part: ToolParamsEnd) -> None:
        """Nothing to fold: the tool-call that follows ends the item."""

    def _tool_call(self, part: ToolCall) -> None:
        slot = self._calls.get(part.id)
        if slot is None:  # a call that came whole
            # Its place counts once in the order: it begins and ends here.
            self._calls[part.id] = slot = _CallSlot(len(self._slots), Buffer())
            self._slots.append(slot)
        # The law ends a cut call before or behind the error; a replay needs to know which.
        is_cut = part.invalid == "stream-failed" and self._error is None
        self._order.append(CUT - slot.slot if is_cut else slot.slot)
        slot.call = part
        # They equal the joined deltas (law 3), and are all there is of a call that came whole. As
        # one string, they let the pieces go.
        slot.buffer.set(part.params)

    def _begin(self, slot: _TextSlot | _ReasoningSlot | _CallSlot | Item) -> None:
        """Gives an item its place. What comes whole, such as a source, is its own slot."""
        self._order.append(len(self._slots))
        self._slots.append(slot)

    def _on_metadata(self, part: ResponseMetadata) -> None:
        self._metadata = part

    def _on_error(self, part: ErrorPart) -> None:
        self._error = part
        self._order.append(ERROR)

    def _on_finish(self, part: Finish) -> None:
        self._finish = part


FOLD: dict[type[Part], Callable[[Assembler, Any], None]] = {
    ResponseMetadata: Assembler._on_metadata,
    TextStart: Assembler._text_start,
    TextDelta: Assembler.text_delta,
    TextEnd: Assembler._text_end,
    ReasoningStart: Assembler._reasoning_start,
    ReasoningDelta: Assembler._reasoning_delta,
    ReasoningEnd: Assembler._reasoning_end,
    ToolParamsStart: Assembler._params_start,
    ToolParamsDelta: Assembler._params_delta,
    ToolParamsEnd: Assembler._params_end,
    ToolCall: Assembler._tool_call,
    ToolResult: Assembler._begin,
    ToolApprovalRequest: Assembler._begin,
    Source: Assembler._begin,
    File: Assembler._begin,
    Opaque: Assembler._begin,
    ErrorPart: Assembler._on_error,
    Finish: Assembler._on_finish,
}
"""What `Assembler.feed` calls for each type of part."""


def merged(first: Usage | None, second: Usage | None) -> Usage | None:
    """Returns one usage from two: of each field the second value wins, nothing is summed."""
    if first is None or second is None:
        return first or second
    fields = msgspec.structs.asdict(second)
    # Wires repeat running totals, some only part of them: a sum would count twice, and a later null
    # erases nothing.
    # capture: usage-on-every-chunk, usage-empty-or-in-part
    present = {key: value for key, value in fields.items() if value is not None}
    return msgspec.structs.replace(first, **present)
