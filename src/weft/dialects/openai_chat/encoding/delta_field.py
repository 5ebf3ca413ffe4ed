"""A field of the message that grows by deltas.

Clients join all deltas of a field. Parts that overlap are therefore written one after the other, in
order of their starts: what comes for a later part is buffered until the earlier one has ended.
"""

import msgspec

from weft.parts import Part, ReasoningEnd, TextEnd


class DeltaField(msgspec.Struct, eq=False):
    """One field. `head` and `tail` are the bytes of a chunk around a delta of it."""

    key: bytes
    head: bytes = b""
    tail: bytes = b""
    open_id: str | None = None
    """The part whose deltas are written now."""
    part_ids: list[str] = []
    """All parts that were written or are being written, in order."""
    # By part, in order of their starts.
    _buffered: dict[str, list[Part]] = {}

    def set_chunk(self, head: bytes, tail: bytes) -> None:
        """Sets the bytes that every chunk has before and after its delta."""
        self.head = b'%b{"%b":' % (head, self.key)
        self.tail = b"}" + tail

    def start(self, id: str) -> None:
        if self.open_id is None:
            self._open(id)
        else:
            self._buffered[id] = []

    def buffer(self, id: str, part: Part) -> None:
        """Keeps a delta or the end of a part that is not open yet."""
        self._buffered[id].append(part)

    def end(self) -> list[Part]:
        """Ends the open part. Returns what was buffered and can be written now: all of the parts
        that have ended, and the beginning of the next one.
        """
        self.open_id = None
        released: list[Part] = []
        # A part that ended while it was buffered makes room for the next at once.
        while self._buffered and self.open_id is None:
            id = next(iter(self._buffered))
            parts = self._buffered.pop(id)
            self._open(id)
            released += parts
            # The end is the last thing that is ever buffered of a part.
            if parts and isinstance(parts[-1], TextEnd | ReasoningEnd):
                self.open_id = None
        return released

    def _open(self, id: str) -> None:
        self.open_id = id
        self.part_ids.append(id)
