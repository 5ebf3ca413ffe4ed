"""Output items while they are written, and the events that tell of them.

An item is announced by `added` with all that is known, and closed by `done` with all there is.
Calls are in `calls.py`; here are the items that people read, and those that only pass through.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw

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


class Events:
    """Writes the events of one response to `out`: numbered from 0, each in one piece."""

    __slots__ = ("number", "out")
    silent = False

    def __init__(self) -> None:
        self.number = 0
        self.out: list[Event] = []

    def write(self, type: str, *body: bytes) -> None:
        """Writes one event. Its body is joined here once: it may be large."""
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
        self.write(type, b'"response":', response, more)
        if self.out:
            self.out[-1] = msgspec.structs.replace(self.out[-1], snapshot=response)

    def ping(self) -> Event:
        number = self.number
        self.number = number + 1
        return Event("ping", b'{"type":"ping","sequence_number":%d}' % number, number)


class Silence(Events):
    """Writes nothing: for a response that is told as a whole."""

    silent = True

    def write(self, type: str, *body: bytes) -> None:
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


class Item:
    """One output item, from `added` to `done`."""

    __slots__ = ("group", "id", "index", "open")

    def __init__(self, index: int, id: str, group: str | None = None) -> None:
        self.index = index
        self.id = id
        self.group = group
        """The item_id that its parts share."""
        self.open = 0
        """How many of its parts are still being said."""

    @property
    def place(self) -> bytes:
        """How an event says which item it is about."""
        return b'"item_id":%b,"output_index":%d' % (_json(self.id), self.index)

    @property
    def patience(self) -> Patience:
        return Patience.NEXT

    def wire(self, status: wire.Status) -> wire.Item:
        """The item as it stands."""
        raise NotImplementedError

    def cut(self, last: bool) -> bool:
        """Whether this item is what a cut response was cut in."""
        return last


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
        self._shown = 0
        """How many of them were announced."""
        self._done: dict[int, wire.Item] = {}
        self.ids: set[str] = set()
        self.ripe: list[Item] = []
        """Items that are all said, and wait for the next one."""
        self._groups: dict[tuple[type[Item], str], Item] = {}

    @property
    def next(self) -> int:
        """The index of an item that begins now."""
        return len(self._items)

    @property
    def last(self) -> Item:
        return self._items[-1]

    def claim(self, wanted: str | None, prefix: str) -> str:
        """The wire's own item id, once; otherwise a fresh one."""
        id = wanted if wanted and wanted not in self.ids else self._minted.mint(prefix)
        self.ids.add(id)
        return id

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
        for one in self._items[self._shown : item.index + 1]:
            self._tell("added", one, one.wire("in_progress"))
            self._shown += 1

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
        item = ReasoningItem(self.next, self.claim(None, "rs"), ReasoningStart("", "raw"))
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
        self._done[item.index] = done = item.wire(status)
        self._tell("done", item, done)

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
        if not isinstance(item, kind) or item.index in self._done:
            return None
        if item in self.ripe:
            self.ripe.remove(item)
        return item

    def left(self) -> list[Item]:
        return [item for item in self._items if item.index not in self._done]

    def whole(self) -> list[wire.Item]:
        """All of them, once every one is closed."""
        return [self._done[item.index] for item in self._items]

    def _tell(self, what: str, item: Item, shown: wire.Item) -> None:
        index = b'"output_index":%d,"item":' % item.index
        self.events.write(f"response.output_item.{what}", index, _json(shown))


class MessageItem(Item):
    __slots__ = ("kept", "parts", "phase")

    def __init__(self, index: int, id: str, part: TextStart) -> None:
        super().__init__(index, id, part.item_id)
        self.phase = part.phase
        self.parts: list[wire.OutputText | wire.Refusal | Raw] = []
        self.kept: wire.Fields = {}
        """What the decoder kept of it."""

    def wire(self, status: wire.Status) -> wire.Item:
        message = wire.Message(self.id, status, self.parts, phase=self.phase or UNSET)
        return _with(message, self.kept)


class ReasoningItem(Item):
    __slots__ = ("content", "encrypted", "kept", "raw", "summary")

    def __init__(self, index: int, id: str, part: ReasoningStart) -> None:
        super().__init__(index, id, part.item_id)
        self.summary: list[wire.Thought] = []
        self.content: list[wire.Thought] = []
        self.encrypted: str | None = None
        self.raw = part.kind == "raw"
        self.kept: wire.Fields = {}

    def wire(self, status: wire.Status) -> wire.Item:
        """An item that begins with raw reasoning is announced with room for it."""
        room = self.raw and status == "in_progress"
        content = self.content if self.content or room else UNSET
        encrypted = self.encrypted or UNSET
        reasoning = wire.Reasoning(self.id, status, self.summary, content, encrypted)
        return _with(reasoning, self.kept)


def _with(item: wire.Message | wire.Reasoning, kept: wire.Fields) -> wire.Item:
    """The item, with what the decoder kept of it."""
    return {**(wire.fields(_json(item)) or {}), **kept} if kept else item


class FixedItem(Item):
    """An item that is all there, and closed as soon as it is announced."""

    __slots__ = ("raw",)

    def __init__(self, index: int, id: str, raw: Raw) -> None:
        super().__init__(index, id)
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
        self.place = item.place + b',"content_index":%d' % self.index
        if refusal:
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
    parts: Callable[[ReasoningItem], list[wire.Thought]]
    index_key: bytes
    text: str
    wrapper: str


THOUGHTS: dict[ReasoningKind, Thought] = {
    "summary": Thought(
        wire.SummaryText,
        lambda item: item.summary,
        b"summary_index",
        "response.reasoning_summary_text",
        "response.reasoning_summary_part",
    ),
    "raw": Thought(
        wire.ReasoningText,
        lambda item: item.content,
        b"content_index",
        "response.reasoning",
        "response.content_part",
    ),
}


class SaidThought:
    """A reasoning part that is being said. Its wire part is announced by its first delta."""

    __slots__ = ("head", "index", "item", "kind", "place", "start")

    def __init__(self, item: ReasoningItem, start: ReasoningStart, kind: ReasoningKind) -> None:
        self.item = item
        self.start = start
        self.kind = THOUGHTS[kind]
        self.index: int | None = None
        self.place = b""
        self.head = DeltaHead("", b"")

    def begin(self) -> None:
        parts = self.kind.parts(self.item)
        self.index = len(parts)
        parts.append(self.kind.part(""))
        self.place = self.item.place + b',"%b":%d' % (self.kind.index_key, self.index)
        self.head = delta_head(self.kind.text + ".delta", self.place)
