"""Texts and reasonings, each known by its id from its start to its end."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from msgspec import UNSET

from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.wire import SdkExtra, copy_unless_null, provider_metadata_of
from weft.dialects.frames import SurrogateJoiner, is_present
from weft.dialects.raw_json import pack_extra
from weft.findings import Findings
from weft.parts import (
    Json,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
)


class SdkItem:
    """The metadata of an item that is open: it belongs to the item's end, wherever it came."""

    __slots__ = ("metadata", "origin", "raw_metadata")

    def __init__(self) -> None:
        self.raw_metadata: Json = UNSET
        self.metadata = wire.SdkProviderMetadata()
        self.origin: str | None = None
        """The provider that the metadata is of."""

    @property
    def signature(self) -> str | None:
        return self.metadata.signature or self.metadata.thought_signature

    def add_metadata(self, raw: Json) -> None:
        """Adds the metadata of an event; fields that it lacks stay as they were."""
        if not is_present(raw):
            return
        # The last one as it came, for encoders of this dialect; the fields are merged below.
        self.raw_metadata = copy_unless_null(raw)
        found = provider_metadata_of(raw)
        if found is None:
            return
        self.origin, new = found
        old = self.metadata
        self.metadata = wire.SdkProviderMetadata(
            new.signature or old.signature,
            new.thought_signature or old.thought_signature,
            new.redacted_data or old.redacted_data,
            new.reasoning_encrypted_content or old.reasoning_encrypted_content,
            new.item_id or old.item_id,
        )


class SdkItems(ABC):
    """The texts, or the reasonings, of one response."""

    def __init__(self, origin: str | None, findings: Findings) -> None:
        self._origin = origin
        self._items: dict[str, SdkItem] = {}
        self._surrogates = SurrogateJoiner(findings)

    def feed(self, event: wire.SdkEvent, out: list[Part]) -> None:
        """Reads a start, a delta or an end. The guard adds a start that is missing."""
        id = event.id or ""
        # Known only while it is open: a provider may use an id again after its end.
        # capture: text-id-reused
        item = self._items.get(id)
        if item is None:
            self._items[id] = item = SdkItem()
        if event.provider_metadata is not UNSET:
            item.add_metadata(event.provider_metadata)
        _HANDLERS[(event.type or "").rpartition("-")[2]](self, id, item, event, out)

    def close(self, out: list[Part]) -> None:
        """Ends all items that are open."""
        out += [self.end(id, item) for id, item in self._items.items()]
        self._items.clear()

    def _start(self, id: str, item: SdkItem, event: wire.SdkEvent, out: list[Part]) -> None:
        out.append(self.start(id, item))

    def _delta(self, id: str, item: SdkItem, event: wire.SdkEvent, out: list[Part]) -> None:
        text = wire.delta_text(event)
        if not text and event.provider_metadata is not UNSET:
            # Providers send the signature as the metadata of an empty delta, before the end.
            return  # capture: signature-in-a-delta-without-text
        if self._surrogates.held or not text.isascii():  # capture: surrogate-pair-in-two-deltas
            text = self._surrogates.feed(id, text)
            if not text:
                return
        out.append(self.delta(id, text))

    def _end(self, id: str, item: SdkItem, event: wire.SdkEvent, out: list[Part]) -> None:
        del self._items[id]
        rest = self._surrogates.flush(id)
        if rest:
            out.append(self.delta(id, rest))
        out.append(self.end(id, item))

    @abstractmethod
    def start(self, id: str, item: SdkItem) -> Part: ...

    @abstractmethod
    def delta(self, id: str, text: str) -> Part: ...

    @abstractmethod
    def end(self, id: str, item: SdkItem) -> Part: ...


class SdkTexts(SdkItems):
    def start(self, id: str, item: SdkItem) -> TextStart:
        extra = pack_extra(SdkExtra(item.raw_metadata))
        return TextStart(id, item_id=item.metadata.item_id, extra=extra)

    def delta(self, id: str, text: str) -> TextDelta:
        return TextDelta(id, text)

    def end(self, id: str, item: SdkItem) -> TextEnd:
        origin = (self._origin or item.origin) if item.signature else None
        extra = pack_extra(SdkExtra(item.raw_metadata))
        return TextEnd(id, signature=item.signature, origin=origin, extra=extra)


class SdkReasonings(SdkItems):
    def start(self, id: str, item: SdkItem) -> ReasoningStart:
        extra = pack_extra(SdkExtra(item.raw_metadata))
        return ReasoningStart(id, "raw", item_id=item.metadata.item_id, extra=extra)

    def delta(self, id: str, text: str) -> ReasoningDelta:
        return ReasoningDelta(id, text)

    def end(self, id: str, item: SdkItem) -> ReasoningEnd:
        signature, redacted = item.signature, item.metadata.redacted_data
        encrypted = item.metadata.reasoning_encrypted_content
        has_state = signature or encrypted or redacted
        # Where the state may go back to: the upstream, if its name is known, else the provider.
        origin = (self._origin or item.origin) if has_state else None
        extra = pack_extra(SdkExtra(item.raw_metadata))
        return ReasoningEnd(id, signature, encrypted, redacted, origin, extra=extra)


_HANDLERS: dict[str, Callable[[SdkItems, str, SdkItem, wire.SdkEvent, list[Part]], None]] = {
    "start": SdkItems._start,
    "delta": SdkItems._delta,
    "end": SdkItems._end,
}
