"""Output items while they are written, and the events that tell of them.

An item is announced by `added` with all that is known, and closed by `done` with all there is.
Calls are in `calls.py`; here are the items that people read, and those that only pass through.
"""

from enum import Enum
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.dialects.openai_responses import wire
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import Json, ReasoningKind, ReasoningStart, TextStart
from weft.sse import Event

_json = msgspec.json.Encoder().encode


class DeltaHead(NamedTuple):
    """All of a delta event up to its delta."""

    type: str
    data: bytes


Told = frozenset[tuple[str, int, int]]
"""Events that a client was told: their types, the items and the parts of these they are about."""

NOWHERE = (-1, -1)
"""The place of an event that is about no item."""


class Events:
    """Writes the events of one response to `out`: numbered from 0, each in one piece."""

    __slots__ = ("number", "out", "told")
    silent = False

    def __init__(self) -> None:
        self.number = 0
        self.out: list[Event] = []
        self.told: Told = frozenset()
        """What others wrote, before these events: it is not written again."""

    def write(self, type: str, at: tuple[int, int], *body: bytes) -> None:
        """Writes one event, which is about the item and the part of it that `at` names. Its body
        is joined here once: it may be large.
        """
        if self.told and (type, *at) in self.told:
            return
        number = self.number
        self.number = number + 1
        head = b'{"type":"%b","sequence_number":%d,' % (type.encode(), number)
        if any(b"\n" in piece or b"\r" in piece for piece in body):  # raw JSON over several lines
            body = (msgspec.json.format(b"{%b}" % b"".join(body), indent=-1)[1:-1],)
        self.out.append(Event(type, b"".join((head, *body, b"}")), number))

    def delta(self, head: DeltaHead, delta: str) -> None:
        """Writes an event of which all but the delta was prepared (see `delta_head`)."""
        number = self.number
        self.number = number + 1
        data = b'%b%b,"sequence_number":%d}' % (head.data, _json(delta), number)
        self.out.append(Event(head.type, data, number))

    def snapshot(self, type: str, response: bytes, more: bytes) -> None:
        """Writes an event that tells the response object."""
        if b"\n" in response or b"\r" in response:  # raw JSON over several lines
            response = msgspec.json.format(response, indent=-1)
        before = len(self.out)
        self.write(type, NOWHERE, b'"response":', response, more)
        if len(self.out) > before:
            data = self.out[-1].data
            end = len(data) - len(more) - len(b"}")
            view = memoryview(data)[end - len(response) : end]
            self.out[-1] = msgspec.structs.replace(self.out[-1], snapshot=view)

    def ping(self) -> Event:
        number = self.number
        self.number = number + 1
        return Event("ping", b'{"type":"ping","sequence_number":%d}' % number, number)


class Silence(Events):
    """Writes nothing: for a response that is told as a whole."""

    silent = True

    def write(self, type: str, at: tuple[int, int], *body: bytes) -> None:
        pass

    def delta(self, head: DeltaHead, delta: str) -> None:
        pass


def delta_head(type: str, place: bytes) -> DeltaHead:
    return DeltaHead(type, b'{"type":"%b",%b,"delta":' % (type.encode(), place))


class Patience(Enum):
    """How long an item that is all said must wait before it is closed."""

    NONE = "none"
    NEXT = "until the next item"
    """There may be more of it; and the last one may be what a limit cut."""
    FINISH = "until the finish"
    """Only the finish tells how it ended."""


class Seat(NamedTuple):
    """Which item one is: its place in the output, and its id."""

    place: int
    id: str


class Item:
    """One output item, from `added` to `done`."""

    __slots__ = ("done", "group", "id", "index", "open")

    def __init__(self, seat: Seat, group: str | None = None) -> None:
        self.index = seat.place
        self.id = seat.id
        self.done: wire.Item | None = None
        """The item as it was closed."""
        self.group = group
        """The item_id that its parts share."""
        self.open = 0
        """How many of its parts are still being said."""

    @property
    def place(self) -> bytes:
        """How an event says which item it is about."""
        return b'"item_id":%b,"output_index":%d' % (_json(self.id), self.index)

    @property
    def at(self) -> tuple[int, int]:
        """What an event is about that speaks of the item as a whole."""
        return (self.index, -1)

    def resume(self, told: Told) -> None:
        """It may have another place now, and the client was told these events of it."""

    @property
    def patience(self) -> Patience:
        return Patience.NEXT

    def wire(self, status: wire.Status) -> wire.Item:
        """The item as it stands."""
        raise NotImplementedError

    def cut(self, last: bool) -> bool:
        """Whether this item is what a cut response was cut in."""
        return last

    @property
    def ends_with_error(self) -> bool:
        """Whether an error that comes while it is open ends it. A call is not: whoever hears that
        it is done may execute it, or believe that it was.
        """
        return True


ItemKind = TypeVar("ItemKind", bound=Item)


class Output:
    """The items of a response in order of announcement, each announced and closed once."""

    def __init__(self, events: Events, ids: Ids, findings: Findings) -> None:
        self.events = events
        self.ours = False
        """Whether the response came from this dialect, so that what it kept is understood."""
        self._minted = ids
        self._findings = findings
        self._items: list[Item] = []
        self._next = 0
        """The index of the next item."""
        self._shown = 0
        """How many indexes were announced."""
        self._seats: dict[str, int] = {}
        """Items that the client was told of, and that have no part yet: their ids and indexes."""
        self.ids: set[str] = set()
        self.ripe: list[Item] = []
        """Items that are all said, and wait for the next one."""
        self._groups: dict[tuple[type[Item], str], Item] = {}

    @property
    def last(self) -> Item:
        return self._items[-1]

    def claim(self, wanted: str | None, prefix: str) -> Seat:
        """The seat of an item that begins now. It has the wire's own id, once; otherwise a fresh
        one; and the next index, unless the client was told of it before.
        """
        id = wanted if wanted and wanted not in self.ids else self._minted.mint(prefix)
        self.ids.add(id)
        index = self._seats.pop(id, self._next)
        self._next = max(self._next, index + 1)
        return Seat(index, id)

    def kept(self, extra: Json) -> wire.ItemExtra:
        """What the decoder of this dialect kept of an item."""
        return wire.unpacked(extra, wire.ItemExtra) if self.ours else wire.ItemExtra()

    def lost(self, what: str, why: str) -> None:
        self._findings.once("not-carried", f"{what} {why}", f"{what}: {why}")

    def place(self, item: Item) -> None:
        """Another item begins: those before it that are all said have no more parts."""
        self.settle()
        self._items.append(item)
        if item.group is not None:
            self._groups[item.__class__, item.group] = item

    def show(self, item: Item) -> None:
        """Announces an item, after those before it: clients count them."""
        if item.index < self._shown:
            return
        for one in self._items:
            if self._shown <= one.index <= item.index:
                self._tell("added", one, one.wire("in_progress"))
        self._shown = item.index + 1

    def add(self, item: Item) -> None:
        self.place(item)
        self.show(item)

    def carry(self, envelope: str) -> None:
        """Writes what signs the next call: into the reasoning that stands right before it, or into
        one that is made for it.
        """
        last = self._items[-1] if self._items else None
        if isinstance(last, ReasoningItem) and last in self.ripe and last.encrypted is None:
            last.encrypted = envelope
            return
        item = ReasoningItem(self.claim(None, "rs"), ReasoningStart("", "raw"))
        self.add(item)
        item.encrypted = envelope
        self.close(item, "completed")

    def said(self, item: Item) -> None:
        """One part of it is all said; perhaps it was the last one."""
        item.open -= 1
        if item.open or item.patience is Patience.FINISH:
            return
        if item.patience is Patience.NONE:
            self.close(item, "completed")
        else:
            self.ripe.append(item)

    def close(self, item: Item, status: wire.Status) -> None:
        item.done = item.wire(status)
        self._tell("done", item, item.done)

    def abandon(self, item: Item) -> None:
        """Nobody is told that it is done; the last snapshot has it as far as it came."""
        item.done = item.wire("incomplete")

    def settle(self, *kept: Item) -> None:
        """Closes what is all said, but for these."""
        waiting, self.ripe = self.ripe, []
        for item in waiting:
            if item in kept:
                self.ripe.append(item)
            else:
                self.close(item, "completed")

    def go_on(self, group: str | None) -> None:
        """Closes what is all said, unless a part of this group may go on with it; the last one
        waits for the next.
        """
        more = [item for item in self.ripe if group is not None and item.group == group]
        self.settle(self.last, *more)

    def grouped(self, group: str | None, kind: type[ItemKind]) -> ItemKind | None:
        """The open item that parts of this group belong to."""
        item = self._groups.get((kind, group or ""))
        if not isinstance(item, kind) or item.done is not None:
            return None
        if item in self.ripe:
            self.ripe.remove(item)
        return item

    def left(self) -> list[Item]:
        return [item for item in self._items if item.done is None]

    def whole(self) -> list[wire.Item]:
        """All of them that were closed, in the order of their indexes."""
        items = sorted(self._items, key=lambda item: item.index)
        return [item.done for item in items if item.done is not None]

    def resume(self, announced: dict[str, int], told: Told) -> None:
        """Goes on behind events that the client was told: every item has the index under which
        it was announced there. Items of which nothing else was told keep theirs until a part of
        them comes.
        """
        self._seats = dict(announced)
        others: list[Item] = []
        for item in self._items:
            index = self._seats.pop(item.id, None)
            if index is None:
                others.append(item)
            else:
                item.index = index
        for item, id in zip(others, list(self._seats), strict=False):  # carries a proof: see carry
            item.index = self._seats.pop(id)
        known = (*announced.values(), *(item.index for item in self._items))
        self._next = self._shown = max(known, default=-1) + 1
        for item in self._items:
            item.resume(told)
            if item.done is None and ("response.output_item.done", *item.at) in told:
                self.close(item, "completed")
        self.ripe = [item for item in self.ripe if item.done is None]

    def _tell(self, what: str, item: Item, shown: wire.Item) -> None:
        index = b'"output_index":%d,"item":' % item.index
        self.events.write(f"response.output_item.{what}", item.at, index, large_json.write(shown))


class MessageItem(Item):
    __slots__ = ("kept", "parts", "phase")

    def __init__(self, seat: Seat, part: TextStart) -> None:
        super().__init__(seat, part.item_id)
        self.phase = part.phase
        self.parts: list[wire.OutputText | wire.Refusal | Raw] = []
        self.kept: wire.Fields = {}
        """What the decoder kept of it."""

    def wire(self, status: wire.Status) -> wire.Item:
        message = wire.Message(self.id, status, self.parts, phase=self.phase or UNSET)
        return _with(message, self.kept)


class ReasoningItem(Item):
    __slots__ = ("encrypted", "kept", "raw", "thoughts")

    def __init__(self, seat: Seat, part: ReasoningStart, kind: ReasoningKind = "raw") -> None:
        super().__init__(seat, part.item_id)
        self.thoughts: list[SaidThought] = []
        self.encrypted: str | None = None
        self.raw = kind == "raw"
        self.kept: wire.Fields = {}

    def said(self, kind: ReasoningKind) -> list[wire.Thought]:
        """What of that kind was said so far."""
        shown = [one for one in self.thoughts if one.kind is THOUGHTS[kind]]
        return [one.part for one in shown if one.index is not None]

    def wire(self, status: wire.Status) -> wire.Item:
        """An item that begins with raw reasoning is announced with room for it."""
        content = self.said("raw")
        room = content or (self.raw and status == "in_progress")
        reasoning = wire.Reasoning(
            self.id,
            status,
            self.said("summary"),
            content if room else UNSET,
            self.encrypted or UNSET,
        )
        return _with(reasoning, self.kept)

    def resume(self, told: Told) -> None:
        """The upstream told of each part as the kind it is, also of parts without a word."""
        for kind, thought in THOUGHTS.items():
            own = [one for one in self.thoughts if one.start.kind == kind]
            for index, one in enumerate(own):
                one.kind = thought
                known = (thought.wrapper + ".added", self.index, index) in told
                one.place_at(index if known or one.index is not None else None)
        if self.done is not None:
            self.done = self.wire("completed")


def _with(item: wire.Message | wire.Reasoning, kept: wire.Fields) -> wire.Item:
    """The item, with what the decoder kept of it."""
    return {**(wire.fields(_json(item)) or {}), **kept} if kept else item


class FixedItem(Item):
    """An item that is all there, and closed as soon as it is announced."""

    __slots__ = ("raw",)

    def __init__(self, seat: Seat, raw: Raw) -> None:
        super().__init__(seat)
        self.raw = raw

    def wire(self, status: wire.Status) -> wire.Item:
        return self.raw


class SaidText:
    """A text part that is being said: its place in a message, and how its deltas begin."""

    __slots__ = ("annotations", "head", "index", "item", "logprobs", "place", "refusal")

    def __init__(self, item: MessageItem, refusal: bool) -> None:
        self.item = item
        self.index = len(item.parts)
        self.refusal = refusal
        self.annotations: list[wire.Annotation] = []
        self.logprobs: list[Raw] = []
        self.locate()

    @property
    def at(self) -> tuple[int, int]:
        return (self.item.index, self.index)

    def locate(self) -> None:
        """Prepares what names its place."""
        self.place = self.item.place + b',"content_index":%d' % self.index
        if self.refusal:
            self.head = delta_head("response.refusal.delta", self.place)
        else:
            self.head = delta_head("response.output_text.delta", self.place + b',"logprobs":[]')

    def part(self, text: str) -> wire.OutputText | wire.Refusal:
        if self.refusal:
            return wire.Refusal(text)
        return wire.OutputText(text, self.annotations, self.logprobs)


class Thought(NamedTuple):
    """How the two kinds of reasoning are written."""

    part: type[wire.SummaryText] | type[wire.ReasoningText]
    index_key: bytes
    text: str
    wrapper: str


THOUGHTS: dict[ReasoningKind, Thought] = {
    "summary": Thought(
        wire.SummaryText,
        b"summary_index",
        "response.reasoning_summary_text",
        "response.reasoning_summary_part",
    ),
    "raw": Thought(
        wire.ReasoningText,
        b"content_index",
        wire.RAW_TEXT,
        "response.content_part",
    ),
}


class SaidThought:
    """A reasoning part that is being said. Its wire part is announced by its first delta."""

    __slots__ = ("head", "index", "item", "kind", "place", "start", "text")

    def __init__(self, item: ReasoningItem, start: ReasoningStart, kind: ReasoningKind) -> None:
        self.item = item
        self.start = start
        self.kind = THOUGHTS[kind]
        self.text = ""
        """What it said, once it is all said."""
        self.index: int | None = None
        self.place = b""
        self.head = DeltaHead("", b"")
        item.thoughts.append(self)

    @property
    def part(self) -> wire.Thought:
        return self.kind.part(self.text)

    @property
    def at(self) -> tuple[int, int]:
        return (self.item.index, -1 if self.index is None else self.index)

    def begin(self) -> None:
        others = [one for one in self.item.thoughts if one.kind is self.kind]
        self.place_at(sum(one.index is not None for one in others))

    def place_at(self, index: int | None) -> None:
        """Takes a place among the parts of its kind; None: it has none yet."""
        self.index = index
        if index is not None:
            self.place = self.item.place + b',"%b":%d' % (self.kind.index_key, index)
            self.head = delta_head(self.kind.text + ".delta", self.place)
