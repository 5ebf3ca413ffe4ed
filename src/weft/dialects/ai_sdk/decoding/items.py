"""SdkTexts and reasonings as they are read, each known by its id from its start to its end."""

from collections.abc import Callable

from msgspec import UNSET

from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.wire import (
    SdkExtra,
    SurrogateJoiner,
    copy_unless_null,
    pack_extra,
    provider_metadata_of,
)
from weft.dialects.base import told
from weft.findings import Findings
from weft.parts import (
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
)


class SdkItem:
    """A text or a reasoning that is open: what its end will tell."""

    __slots__ = ("metadata", "origin", "state")

    def __init__(self) -> None:
        self.metadata: wire.Json = UNSET
        self.origin: str | None = None
        self.state = wire.SdkProviderMetadata()

    @property
    def signature(self) -> str | None:
        return self.state.signature or self.state.thought_signature

    def add_metadata(self, metadata: wire.Json) -> None:
        """Takes in what a provider says beside the item; what is not told again stays."""
        if not told(metadata):
            return
        self.metadata = copy_unless_null(metadata)
        found = provider_metadata_of(metadata)
        if found is None:
            return
        self.origin, state = found
        before = self.state
        self.state = wire.SdkProviderMetadata(
            state.signature or before.signature,
            state.thought_signature or before.thought_signature,
            state.redacted_data or before.redacted_data,
            state.reasoning_encrypted_content or before.reasoning_encrypted_content,
            state.item_id or before.item_id,
        )


class SdkItems:
    """The texts, or the reasonings, of one response."""

    def __init__(self, origin: str | None, findings: Findings) -> None:
        self._origin = origin
        self._items: dict[str, SdkItem] = {}
        self._surrogates = SurrogateJoiner(findings)

    def feed(self, event: wire.SdkEvent, out: list[Part]) -> None:
        """A start, a delta or an end. One that nothing came before opens what it speaks of."""
        id = event.id or ""
        item = self._items.get(id)
        if item is None:
            self._items[id] = item = SdkItem()
        if event.provider_metadata is not UNSET:
            item.add_metadata(event.provider_metadata)
        _HANDLERS[(event.type or "").rpartition("-")[2]](self, id, item, event, out)

    def close(self, out: list[Part]) -> None:
        """Ends all that is open."""
        out += [self.end(id, item) for id, item in self._items.items()]
        self._items.clear()

    def _start(self, id: str, item: SdkItem, event: wire.SdkEvent, out: list[Part]) -> None:
        out.append(self.start(id, item))

    def _delta(self, id: str, item: SdkItem, event: wire.SdkEvent, out: list[Part]) -> None:
        text = wire.delta_text(event)
        if not text and event.provider_metadata is not UNSET:
            return  # it only brings a state
        whole = self._surrogates.feed(id, text)
        if whole is not None:
            out.append(self.delta(id, whole))

    def _end(self, id: str, item: SdkItem, event: wire.SdkEvent, out: list[Part]) -> None:
        del self._items[id]
        rest = self._surrogates.rest(id)
        if rest is not None:
            out.append(self.delta(id, rest))
        out.append(self.end(id, item))

    def start(self, id: str, item: SdkItem) -> Part:
        raise NotImplementedError

    def delta(self, id: str, text: str) -> Part:
        raise NotImplementedError

    def end(self, id: str, item: SdkItem) -> Part:
        raise NotImplementedError


class SdkTexts(SdkItems):
    def start(self, id: str, item: SdkItem) -> TextStart:
        return TextStart(id, item_id=item.state.item_id, extra=pack_extra(SdkExtra(item.metadata)))

    def delta(self, id: str, text: str) -> TextDelta:
        return TextDelta(id, text)

    def end(self, id: str, item: SdkItem) -> TextEnd:
        origin = (self._origin or item.origin) if item.signature else None
        extra = pack_extra(SdkExtra(item.metadata))
        return TextEnd(id, signature=item.signature, origin=origin, extra=extra)


class SdkReasonings(SdkItems):
    def start(self, id: str, item: SdkItem) -> ReasoningStart:
        extra = pack_extra(SdkExtra(item.metadata))
        return ReasoningStart(id, "raw", item_id=item.state.item_id, extra=extra)

    def delta(self, id: str, text: str) -> ReasoningDelta:
        return ReasoningDelta(id, text)

    def end(self, id: str, item: SdkItem) -> ReasoningEnd:
        state, signature = item.state, item.signature
        encrypted, redacted = state.reasoning_encrypted_content, state.redacted_data
        proven = signature or encrypted or redacted
        origin = (self._origin or item.origin) if proven else None
        extra = pack_extra(SdkExtra(item.metadata))
        return ReasoningEnd(id, signature, encrypted, redacted, origin, extra=extra)


_HANDLERS: dict[str, Callable[[SdkItems, str, SdkItem, wire.SdkEvent, list[Part]], None]] = {
    "start": SdkItems._start,
    "delta": SdkItems._delta,
    "end": SdkItems._end,
}
