"""The log of a response as tests write, read and audit it: all of it at once."""

from collections.abc import Iterable, Sequence

from weft.relay.audit import Difference, EntryAudit
from weft.relay.log import BODY, LogReader, blocks_of
from weft.sse import Event, write_events
from weft.store.records import Block, Entry


def pack(events: Sequence[Event]) -> bytes:
    """A batch of events as bytes."""
    return b"".join(block.data for block in blocks_of(0, 0, events))


def unpack(data: bytes) -> list[Event]:
    """The inverse of `pack`. Raises ValueError."""
    return LogReader().feed(Block(0, 0, 1, data))


def events_of(blocks: Iterable[Block]) -> list[Event]:
    """Raises ValueError."""
    reader = LogReader()
    return [event for block in blocks for event in reader.feed(block)]


def as_sent(events: Sequence[Event]) -> bytes:
    """The bytes that the digest is over: those of the stream or of the body."""
    if len(events) == 1 and events[0].name == BODY:
        return events[0].data
    return write_events(events)


def audit_log(entry: Entry, blocks: Iterable[Block]) -> list[Difference]:
    """The differences of a response that has ended and has this log."""
    examination = EntryAudit(entry)
    for block in blocks:
        examination.feed(block)
    return examination.finish()
