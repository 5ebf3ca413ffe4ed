"""What a client is told: parts, in its own dialect.

Where client and upstream speak the same dialect and nothing must be changed, the client gets the
upstream's own bytes, whole events at a time, as long as nothing was repaired. At the first
finding the encoder takes over and stays; it was fed all along, so it knows what was told. Bytes
of a read that gave no part yet wait: what they mean may still change.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from weft.assembler import Response
from weft.codec import Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.errors import InternalError
from weft.findings import Finding, Findings
from weft.ids import Ids
from weft.parts import ErrorPart, Finish, Part, ResponseMetadata
from weft.request import Request
from weft.sse import DONE, Frame, write, write_events

_DONE = write("", DONE)
_TERMINATED = ("openai-chat", "openai-responses")
"""Wires whose streams end with `[DONE]`; not every upstream of them says it."""

_NO_CHOICE = (b'"choices":[]', b'"choices": []')
_NUMBER = re.compile(rb'"sequence_number":\s*(\d+)')
_TYPE = re.compile(rb'"type":\s*"(response\.[a-z_.]+)"')
_PLACES = tuple(
    re.compile(rb'"%b_index":\s*(\d+)' % name) for name in (b"output", b"content", b"summary")
)
"""What tells two events of one type apart."""


_AS_ASKED = ("anthropic-messages",)
"""Wires whose clients do not bring back what another model thought than the one they ask for, so
that an answer names it as they did."""

_ID = re.compile(rb'"id":\s*"([!-~]{1,200}?)"')
_EVENT_END = b"\n\n"
_BEGINS = re.compile(rb"response\.(?:created|in_progress)")
_json = msgspec.json.Encoder().encode


def as_asked(dialect: str, context: Context, raw: bytes, model: str | None) -> bytes:
    """The beginning of an answer, or all of it, with the model under the client's name for it."""
    request = context.request
    if dialect not in _AS_ASKED or request is None or model is None:
        return raw
    told, named = re.escape(_json(model)), b'"model":' + _json(request.model)
    return re.sub(rb'"model":\s*' + told, lambda _: named, raw, count=1)


class Heard(Protocol):
    """What the last read of an upstream gave."""

    parts: Sequence[Part]
    frames: Sequence[Frame]
    data: bytes
    boundary: int
    """Where the last whole event ended, counted over all that was read."""


class Telling:
    """Tells one response in the client's dialect. `pipe` is where its parts come from."""

    def __init__(self, dialect: str, context: Context, pipe: Pipe) -> None:
        writer = DIALECTS[dialect].encoder
        if writer is None:
            raise InternalError(f"{dialect} cannot be written")
        self._findings = Findings()
        self._encoder = writer(context, pipe.guard.fold, self._findings)
        self._idle = DIALECTS[dialect].idle

    def tell(self, heard: Heard) -> bytes:
        """Returns what the client is told of what was heard, possibly nothing."""
        return write_events(self._encoder.feed(heard.parts)) if heard.parts else b""

    def keepalive(self) -> bytes:
        event = self._encoder.keepalive()
        return self._idle if event is None else write_events([event])

    @property
    def findings(self) -> list[Finding]:
        """What this dialect could not carry."""
        return self._findings.found


class Numbered:
    """Where the upstream's own numbered events end and ours begin: numbers go on, and what the
    upstream said of an item, that it begins or that it ends, is not said again.
    """

    def __init__(self, first: int = 0, gap: int = 0) -> None:
        """`first` is the number of our first event, where the upstream has none before it; where
        it has, `gap` numbers are left out.
        """
        self._last: Frame | None = None
        self._number = first - 1
        self._gap = gap
        self._said: set[tuple[bytes, ...]] = set()

    def told(self, frames: Sequence[Frame]) -> None:
        """These events went out as they came."""
        self._last = frames[-1] if frames else self._last
        for frame in frames:
            if b".delta" not in frame.data[:100]:
                self._said.add(_key(frame.data))

    def fitted(self, block: bytes) -> bytes:
        """The encoder's events, as they go behind those."""
        if self._last is not None:
            number = _NUMBER.search(self._last.data)
            self._number = int(number[1]) + self._gap if number is not None else -1
            self._last = None
        return b"".join(map(self._fitted, block.split(_EVENT_END)))

    def _fitted(self, event: bytes) -> bytes:
        if not event or (b".delta" not in event[:100] and _key(event) in self._said):
            return b""
        if _NUMBER.search(event) is None:
            return event + b"\n\n"
        self._number += 1
        return _NUMBER.sub(b'"sequence_number":%d' % self._number, event, count=1) + b"\n\n"


def _key(event: bytes) -> tuple[bytes, ...]:
    """The type of an event, and the item and part it speaks of."""
    found = (one.search(event) for one in (_TYPE, *_PLACES))
    return tuple(match[1] if match else b"" for match in found)


def _until_last(dialect: str, frames: Sequence[Frame], raw: bytes) -> bytes:
    """The events up to the one that nothing may follow: what came behind it is nobody's."""
    ends = DIALECTS[dialect].ends
    for number, frame in enumerate(frames[:-1], 1):
        if ends(frame):
            return b"".join(write(one.event, one.data) for one in frames[:number])
    return raw


class Echo:
    """Tells a response in the upstream's own bytes, while nothing was repaired."""

    def __init__(self, dialect: str, context: Context, pipe: Pipe, gap: int = 0) -> None:
        """`gap`: so many numbers are left out where the encoder takes over."""
        self._dialect = dialect
        self._context = context
        self._pipe = pipe
        self._told: Telling | None = None
        self._raw: bytearray | None = bytearray()
        """What was read and not told; None once the encoder took over."""
        self._begin = 0  # where `_raw` begins in all that was read
        self._terminated = False
        request = context.request
        asked = dialect != "openai-chat" or request is None or request.include_usage
        self._hidden: list[bytes] | None = None if asked else []
        """Events with the usage that only we asked for, where they are not to be shown."""
        self._numbered = Numbered(gap=gap) if dialect == "openai-responses" else None
        self._frames: list[Frame] = []
        """The events of `_raw`."""

    def tell(self, heard: Heard) -> bytes:
        raw = self._raw
        if raw is None:
            return self._taken_over(heard)
        raw += heard.data
        self._watch(heard.frames)
        if not heard.parts:
            return b""
        if self._pipe.findings.found or any(isinstance(one, ErrorPart) for one in heard.parts):
            self._raw = None
            return self._taken_over(heard)
        first = self._told is None
        self._shadow(heard).tell(heard)
        if self._numbered is not None:
            self._numbered.told(self._frames)
        whole = bytes(raw[: heard.boundary - self._begin])
        del raw[: len(whole)]
        self._begin = heard.boundary
        if isinstance(heard.parts[-1], Finish):
            whole = _until_last(self._dialect, self._frames, whole)
        self._frames.clear()
        if heard.frames and not heard.data:  # the input ended inside its last event
            whole += raw.rstrip(b"\r\n") + b"\n\n"
        if first and isinstance(heard.parts[0], ResponseMetadata):
            whole = as_asked(self._dialect, self._context, whole, heard.parts[0].model)
        return self._ended(heard.parts, self._shown(whole))

    def _taken_over(self, heard: Heard) -> bytes:
        own = self._shadow(heard).tell(heard)
        return own if self._numbered is None else self._numbered.fitted(own)

    def _shadow(self, heard: Heard) -> Telling:
        """The encoder that follows along, under the id that the client sees."""
        if self._told is None:
            head = heard.parts[0] if heard.parts else None
            id = head.id if isinstance(head, ResponseMetadata) else None
            context = replace(self._context, response_id=id)
            self._told = Telling(self._dialect, context, self._pipe)
        return self._told

    def _watch(self, frames: Sequence[Frame]) -> None:
        self._frames += frames
        for frame in frames:
            if frame.data == DONE:
                self._terminated = True
            elif self._hidden is not None and any(mark in frame.data for mark in _NO_CHOICE):
                self._hidden.append(write("", frame.data))

    def _shown(self, raw: bytes) -> bytes:
        hidden, self._hidden = self._hidden, None if self._hidden is None else []
        for event in hidden or ():
            raw = raw.replace(event, b"")
        return raw

    def _ended(self, parts: Sequence[Part], raw: bytes) -> bytes:
        ended = isinstance(parts[-1], Finish)
        if ended and not self._terminated and self._dialect in _TERMINATED:
            return raw + _DONE
        return raw

    def keepalive(self) -> bytes:
        return self._told.keepalive() if self._told is not None else b""

    @property
    def findings(self) -> list[Finding]:
        return [] if self._told is None or self._raw is not None else self._told.findings


class Identified:
    """Gives each event an id to resume from, for clients that asked for ids: the response's, and
    the number of the event.
    """

    def __init__(self, inner: Telling | Echo, name: str | None) -> None:
        """`name` is what the response is stored under; None: its own id."""
        self._inner = inner
        self._name = (name or "").encode()
        self._number = 0

    def tell(self, heard: Heard) -> bytes:
        block = self._inner.tell(heard)
        if not self._name:
            found = _ID.search(block)
            self._name = found[1] if found is not None else b""
        return b"".join(map(self._named, block.split(_EVENT_END)[:-1])) if block else b""

    def keepalive(self) -> bytes:
        """A ping is an event like any other."""
        told = self._inner.keepalive()
        return self._named(told.removesuffix(_EVENT_END)) if told.endswith(_EVENT_END) else told

    @property
    def findings(self) -> list[Finding]:
        return self._inner.findings

    def _named(self, event: bytes) -> bytes:
        if event.startswith(b":"):
            return event + _EVENT_END
        number, self._number = self._number, self._number + 1
        return b"id: %b/%d\n%b\n\n" % (self._name, number, event)


class Unanswered:
    """A stream without an answer: what can be said in a dialect all the same."""

    def __init__(self, dialect: str, request: Request, now: int, id: str | None = None) -> None:
        context = Context(
            request=request, ids=Ids(secrets.token_bytes(16)), now=now, response_id=id
        )
        self._dialect = dialect
        self._pipe = Pipe(DIALECTS[dialect], context)
        self._telling = Telling(dialect, context, self._pipe)
        self.parts: Sequence[Part] = ()
        self.frames: Sequence[Frame] = ()
        self.data = b""
        self.boundary = 0

    def keepalive(self) -> bytes:
        return self._telling.keepalive()

    def failed(self, error: ErrorPart, gap: int = 0) -> bytes:
        """A whole stream that tells this error, so many numbers behind its beginning."""
        self.parts = self._pipe.fail(error) + self._pipe.finish()
        told = self._telling.tell(self)
        if not gap or self._dialect != "openai-responses":
            return told
        events = told.split(_EVENT_END)
        begun = [one for one in events if _BEGINS.search(one[:100])]
        ends = Numbered(len(begun) + gap).fitted(_EVENT_END.join(events[len(begun) :]))
        return b"".join(one + _EVENT_END for one in begun) + ends

    def failed_after(self, error: ErrorPart, events: int) -> bytes:
        """The end of a stream of which so many events were told, if it tells this error."""
        told = self.failed(error)
        if self._dialect != "openai-responses":
            return told
        numbered = Numbered(events)
        ends = (one for one in told.split(_EVENT_END) if not _BEGINS.search(one[:100]))
        return numbered.fitted(_EVENT_END.join(ends))

    @property
    def response(self) -> Response:
        return self._pipe.response
