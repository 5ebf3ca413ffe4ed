"""Fields of the message that grow by deltas: one part at a time is said in each.

The wire joins whatever it finds in a field. So parts that overlap are said one after the other,
in order of their starts: what comes of a later one waits until the earlier one has ended.
"""

from weft.parts import Part, ReasoningEnd, TextEnd


class Field:
    """One field, who has the floor in it, and who waits. `head` and `tail` go around a delta."""

    __slots__ = ("_waiting", "head", "key", "said", "speaker", "tail")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.head = b""
        self.tail = b""
        self.speaker: str | None = None
        """The part that has the floor."""
        self.said: list[str] = []
        """All parts that ever had it, in order."""
        self._waiting: dict[str, list[Part]] = {}

    def frame(self, head: bytes, tail: bytes) -> None:
        """What every chunk of this response begins and ends with."""
        self.head = b'%b{"%b":' % (head, self.key)
        self.tail = b"}" + tail

    def start(self, id: str) -> None:
        if self.speaker is None:
            self._give(id)
        else:
            self._waiting[id] = []

    def wait(self, id: str, part: Part) -> None:
        """Keeps a delta or an end of a part that does not have the floor."""
        self._waiting[id].append(part)

    def end(self) -> list[Part]:
        """Takes the floor from its speaker. Returns what others had to say meanwhile: all of
        those that ended, and the beginning of the next speaker.
        """
        self.speaker = None
        freed: list[Part] = []
        while self._waiting and self.speaker is None:
            id = next(iter(self._waiting))
            parts = self._waiting.pop(id)
            self._give(id)
            freed += parts
            if parts and isinstance(parts[-1], TextEnd | ReasoningEnd):
                self.speaker = None
        return freed

    def _give(self, id: str) -> None:
        self.speaker = id
        self.said.append(id)
