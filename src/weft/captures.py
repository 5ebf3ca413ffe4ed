"""Captures: recorded bytes that may hold several responses, and several choices of each.

Everything here reads a capture as its bytes come, in any pieces, and holds no more of it than the
response that is being read: `CaptureReader` is bytes in, parts (or events) out. `decode_all`,
`convert` and `detect` run the same code over bytes that are all there.

A capture may hold HTTP heads, as `curl -i` writes them, before each body. They are skipped; byte
offsets are counted over the whole capture, heads included.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, Protocol, TypeVar, cast, overload

import msgspec
from msgspec.structs import replace

from weft.arguments import bytes_argument
from weft.assembler import Assembler, Response
from weft.codec import Converted, Pipe, readable
from weft.context import Context
from weft.dialects import DIALECTS, DialectName, dialect_named
from weft.dialects.base import Dialect
from weft.errors import UnknownDialect, Unreadable
from weft.findings import Finding
from weft.ids import CaptureIds
from weft.parts import AnyPart, Part
from weft.sse import Event, Frame, FrameReader, write

MAX_CAPTURED_EVENT = 1 << 30
"""Bytes of one event of a capture, where its size is not known beforehand."""

T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

# Bytes to frames

# RFC 9112 §4. curl writes `HTTP/2 200`, without a minor version and a reason.
_STATUS_LINE = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})[^\r\n]*\r?\n")
_STATUS_START = b"HTTP/"
_CHUNKED = re.compile(rb"transfer-encoding:.*\bchunked\b", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,16}\r\n")
# How long a line that begins like a status line is waited for: a body may hold such a text, too.
_MAX_STATUS_LINE = 1000
_BEFORE_HEAD = frozenset((b"", b"\n", b"}", b"]"))
"""What may stand before a head: a JSON body need not end with a line break."""
# Line ends stay, so that a blanked head is still lines; blanks are no field of an event.
_BLANK = bytes(byte if byte in b"\r\n" else 0x20 for byte in range(256))


class CapturePiece(msgspec.Struct, frozen=True, gc=False):
    """Some bytes of a capture: of a body, or of an HTTP head."""

    offset: int
    data: bytes
    is_head: bool = False


class HttpHeads:
    """Tells HTTP heads from bodies, in bytes that come in any pieces."""

    def __init__(self) -> None:
        self.status: int | None = None
        """The status of the last head."""
        self._offset = 0  # of what is held
        self._held = b""  # what may begin a head, or an unfinished line of one
        self._before = b""  # the byte before what is held
        self._in_head = False
        self._may_be_chunked = False
        """Whether a body follows that came in chunks."""

    def feed(self, data: bytes) -> list[CapturePiece]:
        """Returns the pieces of which it is certain what they are. Raises Unreadable for a body
        that is still in chunks."""
        return self._split(self._held + data, is_last=False)

    def finish(self) -> list[CapturePiece]:
        return self._split(self._held, is_last=True)

    def _split(self, data: bytes, *, is_last: bool) -> list[CapturePiece]:
        out: list[CapturePiece] = []
        position = 0
        while position < len(data):
            if self._in_head:
                end = data.find(b"\n", position) + 1 or (len(data) if is_last else 0)
                if not end:
                    break
                line = data[position:end]
                out.append(CapturePiece(self._offset + position, line, is_head=True))
                self._may_be_chunked = self._may_be_chunked or bool(_CHUNKED.match(line))
                # RFC 9112 §2.1: an empty line ends the head. Several heads in a row (100 Continue,
                # a redirect) are one after the other.
                self._in_head = bool(line.strip())
                position = end
                continue
            begin = self._next_head(data, position, is_last=is_last)
            if begin > position:
                # curl removes the framing of chunks (RFC 9112 §7.1), unless it is told not to.
                if self._may_be_chunked and _CHUNK_SIZE.match(data, position):
                    raise Unreadable(
                        "the body is still in chunks; record it without curl's --raw",
                        offset=self._offset + position,
                    )
                self._may_be_chunked = False
                out.append(CapturePiece(self._offset + position, data[position:begin]))
                position = begin
            if begin < len(data):
                found = _STATUS_LINE.match(data, begin)
                if found is None:
                    break
                self.status, self._in_head = int(found[1]), True
        self._before = data[position - 1 : position] if position else self._before
        self._held = data[position:]
        self._offset += position
        return out

    def _next_head(self, data: bytes, position: int, *, is_last: bool) -> int:
        """Where a head begins, or what may become one; the end of the data if nowhere."""
        begin = data.find(_STATUS_START, position)
        while begin >= 0:
            if self._may_begin(data, begin):
                unfinished = not is_last and len(data) - begin < _MAX_STATUS_LINE
                if _STATUS_LINE.match(data, begin) or (unfinished and data.find(b"\n", begin) < 0):
                    return begin
            begin = data.find(_STATUS_START, begin + 1)
        if not is_last:
            # The beginning of `HTTP/` at the very end: the rest may come with the next piece.
            for size in range(len(_STATUS_START) - 1, 0, -1):
                begin = len(data) - size
                if (
                    begin >= position
                    and data.endswith(_STATUS_START[:size])
                    and self._may_begin(data, begin)
                ):
                    return begin
        return len(data)

    def _may_begin(self, data: bytes, begin: int) -> bool:
        return (data[begin - 1 : begin] if begin else self._before) in _BEFORE_HEAD


class CaptureFrames:
    """Turns the bytes of a capture, in any pieces, into frames."""

    def __init__(self, *, limit: int = MAX_CAPTURED_EVENT) -> None:
        """`limit`: as a FrameReader has it."""
        self.heads = HttpHeads()
        self._reader = FrameReader(limit=limit)

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that these bytes complete. Raises as a FrameReader does."""
        return self.read(self.heads.feed(data))

    def read(self, pieces: Iterable[CapturePiece]) -> list[Frame]:
        """As feed, of bytes whose heads are known.

        The bytes of a head are blanked, not left out, so that offsets stay what they are.
        """
        feed = self._reader.feed
        return [
            frame
            for piece in pieces
            for frame in feed(piece.data.translate(_BLANK) if piece.is_head else piece.data)
        ]

    def finish(self) -> list[Frame]:
        return self.read(self.heads.finish()) + self._reader.finish()


# Frames to responses

# Frames at each end. A response may have a million of them, and a capture is read with the memory
# of a few: dialects look at the first ones for its id, and at the last ones for its terminator.
_REMEMBERED = 32

MAX_CHOICES = 128
"""Choices of one response that are read, as many as a request of the Chat Completions API may ask
for. Each of them reads every frame; of further ones the finding `choice-other` remains."""


class _Window(Sequence[Frame]):
    """The first and the last frames of a response: what a dialect looks at to find its end."""

    __slots__ = ("_first", "_last")

    def __init__(self) -> None:
        self._first: list[Frame] = []
        self._last: deque[Frame] = deque(maxlen=_REMEMBERED)

    def append(self, frame: Frame) -> None:
        (self._last if len(self._first) == _REMEMBERED else self._first).append(frame)

    def __len__(self) -> int:
        return len(self._first) + len(self._last)

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Frame]: ...
    def __getitem__(self, index: int | slice) -> Frame | Sequence[Frame]:
        return [*self._first, *self._last][index]

    def __iter__(self) -> Iterator[Frame]:
        return chain(self._first, self._last)

    def __reversed__(self) -> Iterator[Frame]:
        return chain(reversed(self._last), reversed(self._first))


class Splitter:
    """Tells which frames of a capture begin another response."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._before = _Window()
        self._ended = False
        self._is_whole = False
        self._heads: deque[int] = deque()

    def heads(self, pieces: Iterable[CapturePiece]) -> None:
        """Remembers where HTTP heads stand: what follows one is another response."""
        self._heads.extend(piece.offset for piece in pieces if piece.is_head)

    def begins(self, frame: Frame) -> bool:
        """Whether this frame begins another response; of the first frame of all, it is False."""
        dialect, before = self._dialect, self._before
        ends = dialect.ends(frame)
        is_whole = frame.bare and dialect.is_whole(frame)
        is_behind_head = False
        while self._heads and self._heads[0] < frame.offset:
            self._heads.popleft()
            is_behind_head = True
        begins = len(before) > 0 and (
            is_behind_head
            or (self._ended and not ends and dialect.speaks(frame))
            or (self._is_whole and is_whole)  # JSON bodies, one a line
            or dialect.begins(frame, before)
        )
        if begins:
            self._before, self._ended = _Window(), False
        self._before.append(frame)
        self._ended = self._ended or ends
        self._is_whole = is_whole
        return begins


class Channel(Protocol[Out]):
    """One choice of one response: its frames in, something out."""

    def feed(self, frame: Frame) -> Sequence[Out]: ...

    def finish(self) -> Sequence[Out]: ...


class ChoiceReader:
    """One choice of one response: frames in, guarded parts out."""

    def __init__(self, dialect: Dialect, context: Context, seed: str) -> None:
        """`seed`: which response and choice of the capture this is."""
        # Choices must not share ids: each has a seed of its own, and then mixes in what it reads.
        self.ids = CaptureIds(seed.encode())
        self.context = replace(context, ids=self.ids)
        self.pipe = Pipe(dialect, self.context)

    def feed(self, frame: Frame) -> list[Part]:
        self.ids.read(frame.data)
        return self.pipe.feed((frame,))

    def finish(self) -> list[Part]:
        return self.pipe.finish()

    @property
    def findings(self) -> list[Finding]:
        return self.pipe.findings.found

    @property
    def response(self) -> Response:
        """The fold of what was read so far, with the findings."""
        return self.pipe.response


class ChoiceEncoder:
    """Encodes one choice of one response in another dialect: its parts in, events out."""

    def __init__(self, choice: ChoiceReader, target: DialectName) -> None:
        dialect = dialect_named(target)
        if dialect.encoder is None:
            raise UnknownDialect(f"{dialect.name} cannot be encoded")
        # Other ids than the decoder's, although both read the same frames: an encoder that mints
        # one more must not change what is decoded.
        self._ids = CaptureIds(choice.ids.mint("target").encode())
        context = replace(choice.context, ids=self._ids, choice=0)
        self._encoder = dialect.encoder(context, choice.pipe.guard.fold, choice.pipe.findings)

    def read(self, frame: Frame) -> None:
        """To be called with each frame, before its parts are fed."""
        self._ids.read(frame.data)

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        return self._encoder.feed(parts)

    def finish(self) -> list[Event]:
        return self._encoder.finish()


class ChoiceConverter:
    """One choice of one response: frames in, events of another dialect out."""

    def __init__(self, choice: ChoiceReader, target: DialectName) -> None:
        self._choice = choice
        self._encoder = ChoiceEncoder(choice, target)

    def feed(self, frame: Frame) -> list[bytes]:
        self._encoder.read(frame)
        return _framed(self._encoder.feed(self._choice.feed(frame)))

    def finish(self) -> list[bytes]:
        events = self._encoder.feed(self._choice.finish())
        return _framed(events + self._encoder.finish())


def _framed(events: Iterable[Event]) -> list[bytes]:
    return [write(event.name, event.data) for event in events]


@dataclass(slots=True)
class _Opened(Generic[T]):
    """One choice of the response that is being read."""

    choice: ChoiceReader
    channel: Channel[T]
    waiting: list[T] = field(default_factory=list)
    """What it returned and was not passed on yet."""


class _OpenResponse(Generic[T]):
    """The response that is being read: a channel for each choice, opened when it is first named.

    The output of choice 0 is returned as it comes; that of the others, in the order of their
    numbers, when the response ends. So they never mix.
    """

    def __init__(
        self, dialect: Dialect, context: Context, open: Callable[[int], _Opened[T]]
    ) -> None:
        self._choices = dialect.choices
        self._default = context.choice
        # Some hosts spread one answer over two choices. If one was requested, the decoder sees all
        # of them together, and joins them or says which it ignores.
        # capture: one-answer-over-two-choices
        self._one = context.request is not None and context.request.choices == 1
        self._open = open
        self._opened: dict[int, _Opened[T]] = {}
        self._shared: list[Frame] = []  # what a choice that is named later has to read too

    def feed(self, frame: Frame) -> list[T]:
        named = frozenset[int]() if self._one else self._choices(frame)
        for choice in sorted(named - self._opened.keys()):
            if len(self._opened) < MAX_CHOICES:
                self._start(choice)
        if not self._opened:
            self._start(self._default)
        if not self._shared or (not named and len(self._shared) < _REMEMBERED):
            # The first frame has the id and the model, and frames that name no choice (usage, an
            # error) belong to all.
            self._shared.append(frame)
        for opened in self._opened.values():
            opened.waiting += opened.channel.feed(frame)
        return self._drain(self._default)

    def _start(self, choice: int) -> None:
        opened = self._opened[choice] = self._open(choice)
        for frame in self._shared:
            opened.waiting += opened.channel.feed(frame)

    def _drain(self, choice: int) -> list[T]:
        opened = self._opened.get(choice)
        if opened is None:
            return []
        out, opened.waiting = opened.waiting, []
        return out

    def finish(self) -> list[T]:
        if not self._opened:
            self._start(self._default)
        out: list[T] = []
        # The default choice first: it was returned live, and its rest belongs right behind that.
        # capture: second-choice-before-the-first, two-choices-interleaved
        for choice in sorted(self._opened, key=lambda one: (one != self._default, one)):
            out += self._drain(choice)
            out += self._opened[choice].channel.finish()
        return out

    @property
    def choices(self) -> list[ChoiceReader]:
        return [opened.choice for _, opened in sorted(self._opened.items(), key=lambda one: one[0])]


class CaptureReader(Generic[T]):
    """Bytes of a capture in any pieces in, what the channels of its choices return out.

    Of several responses, one follows the other.
    """

    def __init__(
        self,
        dialect: str,
        channel: Callable[[ChoiceReader], Channel[T]],
        *,
        context: Context | None = None,
        ended: Callable[[list[ChoiceReader]], None] = lambda choices: None,
        limit: int = MAX_CAPTURED_EVENT,
    ) -> None:
        """`ended` is called with the choices of each response, in the order of their numbers, as
        soon as it is over: at the first frame of the next one, or at the end of the input."""
        self._dialect = readable(dialect)
        self._context = context or Context()
        self._channel = channel
        self._ended = ended
        self._frames = CaptureFrames(limit=limit)
        self._splitter = Splitter(self._dialect)
        self._responses = 0
        self._response = self._next_response()

    def _next_response(self) -> _OpenResponse[T]:
        number = self._responses
        # From the context, so that a caller's own seed reaches every id of the capture.
        seed = self._context.ids.mint("seed")
        self._responses += 1

        def open(choice: int) -> _Opened[T]:
            context = replace(self._context, choice=choice)
            reader = ChoiceReader(self._dialect, context, f"{seed} {number} {choice}")
            return _Opened(reader, self._channel(reader))

        return _OpenResponse(self._dialect, self._context, open)

    def feed(self, data: bytes) -> list[T]:
        """Returns what these bytes complete, possibly nothing."""
        pieces = self._frames.heads.feed(data)
        self._splitter.heads(pieces)
        return self.read(self._frames.read(pieces))

    def finish(self) -> list[T]:
        """Returns the rest. An empty capture holds one empty response."""
        return self.read(self._frames.finish()) + self.end()

    def read(self, frames: Iterable[Frame], pieces: Iterable[CapturePiece] = ()) -> list[T]:
        """As feed, of frames that were read elsewhere, from these pieces."""
        self._splitter.heads(pieces)
        out: list[T] = []
        for frame in frames:
            if self._splitter.begins(frame):
                out += self.end()
                self._response = self._next_response()
            out += self._response.feed(frame)
        return out

    def end(self) -> list[T]:
        """Ends the response that is being read."""
        out = self._response.finish()
        self._ended(self._response.choices)
        return out

    @property
    def choices(self) -> list[ChoiceReader]:
        """The choices of the response that is being read, as far as they were named."""
        return self._response.choices


class Decoded:
    """One response, and one choice, of a capture."""

    __slots__ = ("fold", "parts", "response")

    def __init__(self, parts: list[AnyPart], fold: Assembler, response: Response) -> None:
        self.parts = parts
        self.fold = fold
        self.response = response


class _PartsRecorder:
    """A channel that keeps its parts by the choice they belong to."""

    def __init__(self, choice: ChoiceReader, parts: list[Part]) -> None:
        self._choice = choice
        self._parts = parts

    def feed(self, frame: Frame) -> tuple[()]:
        self._parts += self._choice.feed(frame)
        return ()

    def finish(self) -> tuple[()]:
        self._parts += self._choice.finish()
        return ()


def decode_all(
    raw: bytes, dialect: DialectName, *, context: Context | None = None
) -> list[Decoded]:
    """Returns every response of a capture, and every choice of each, in order."""
    raw = bytes_argument(raw, "raw")
    found: list[Decoded] = []
    kept: dict[ChoiceReader, list[Part]] = {}

    def channel(choice: ChoiceReader) -> Channel[Part]:
        return _PartsRecorder(choice, kept.setdefault(choice, []))

    def ended(choices: list[ChoiceReader]) -> None:
        for one in choices:
            parts = cast("list[AnyPart]", kept.pop(one))
            found.append(Decoded(parts, one.pipe.guard.fold, one.response))

    reader = CaptureReader(dialect, channel, context=context, ended=ended, limit=len(raw))
    reader.feed(raw)
    reader.finish()
    return found


def convert(
    raw: bytes, source: DialectName, target: DialectName, *, context: Context | None = None
) -> Converted:
    """Returns a capture in another dialect: bytes, which also have `findings`.

    Equal input gives equal bytes.
    """
    raw = bytes_argument(raw, "raw")
    found: list[Finding] = []

    def ended(choices: list[ChoiceReader]) -> None:
        for one in choices:
            found.extend(one.findings)

    reader = CaptureReader(
        source,
        lambda choice: ChoiceConverter(choice, target),
        context=context,
        ended=ended,
        limit=len(raw),
    )
    data = b"".join(reader.feed(raw) + reader.finish())
    return Converted(data, in_order(found))


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """The findings of several responses, or choices, in the order of the capture, each once."""
    return sorted(dict.fromkeys(found), key=lambda one: (one.at, one.offset))


# Which dialect

_DETECTED_AT_A_TIME = 64 * 1024
"""Bytes of a capture that are looked at before the next ones."""

_MAX_UNDECIDED = 10_000
"""Events that are read before the search for a dialect is given up."""
_MAX_WITHOUT_EVENT = 1 << 20
"""Bytes that may come before the first line of a stream."""
_SAMPLE = 4096
_EVENT_LINE = re.compile(rb"^(?::|(?:data|event|id|retry|error) *:)", re.MULTILINE)
_JSON_START = re.compile(rb"\s*(?:\{|\[\s*[\{\]])")
_HTML = re.compile(rb"\s*(?:<!doctype\s+html|<html|<head|<body)", re.IGNORECASE)
_EXPECTED = "expected server-sent events, JSON lines or a JSON body"
# What people pass by mistake. Naming it helps more than "not a stream".
_SIGNATURES = {
    b"\x89PNG\r\n": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"SQLite format 3\x00": "an SQLite database",
}


class Detector:
    """Finds the dialect of a capture while its bytes come, as soon as it is certain.

    Given a dialect, it only makes sure that these bytes are a stream at all.
    """

    def __init__(
        self, dialect: DialectName | None = None, *, limit: int = MAX_CAPTURED_EVENT
    ) -> None:
        self._dialect = dialect
        self._frames = CaptureFrames(limit=limit)
        self._first: Frame | None = None
        self._events = 0
        self._candidates: list[DialectName] = []
        self._size = 0
        self._sample = b""

    def feed(self, data: bytes) -> DialectName | None:
        """Returns the dialect once it is known. Raises Unreadable when it will never be."""
        pieces = self._frames.heads.feed(data)
        self._look(pieces)
        found = self._decide(self._frames.read(pieces))
        if found is None:
            lost = self._size > _MAX_WITHOUT_EVENT and not self._is_stream
            if lost or self._events > _MAX_UNDECIDED:
                raise self._unreadable()
        return found

    def finish(self) -> DialectName:
        """Returns the dialect of an input that is over; raises Unreadable if it is not clear."""
        pieces = self._frames.heads.finish()
        self._look(pieces)
        found = self._decide(self._frames.read(pieces) + self._frames.finish())
        if found is None:
            raise self._unreadable()
        return found

    def _look(self, pieces: Iterable[CapturePiece]) -> None:
        for piece in pieces:
            if not piece.is_head:
                self._size += len(piece.data)
                self._sample += piece.data[: _SAMPLE - len(self._sample)]

    def _decide(self, frames: list[Frame]) -> DialectName | None:
        for frame in frames:
            self._events += 1
            # Text that happens to begin with a bracket is read as JSON, too: it counts only if an
            # object begins there.
            if self._first is None and (not frame.bare or _JSON_START.match(frame.data)):
                self._first = frame
            if self._dialect is None:
                speaking = [one.name for one in DIALECTS.values() if one.speaks(frame)]
                if len(speaking) == 1:
                    # Two dialects may both take an error body: then a later frame decides.
                    return speaking[0]
                self._candidates = self._candidates or speaking
        return self._dialect if self._is_stream else None

    @property
    def _is_stream(self) -> bool:
        sample = self._sample
        return bool(self._first or _EVENT_LINE.search(sample) or _JSON_START.match(sample))

    def _unreadable(self) -> Unreadable:
        if not self._is_stream:
            return Unreadable(_describe(self._sample, self._frames.heads.status))
        if self._first is None:
            return Unreadable("a stream without a single event")
        candidates = ", ".join(self._candidates or DIALECTS)
        return Unreadable(
            f"cannot tell the dialect; say which with --from: {candidates}",
            offset=self._first.offset,
            event=self._first.number,
        )


def _describe(sample: bytes, status: int | None) -> str:
    """Returns what bytes are that are no stream."""
    http = "" if status is None else f" (HTTP {status})"
    if not sample.strip():
        return "empty: there is no stream in it" if status is None else f"no body{http}"
    for signature, kind in _SIGNATURES.items():
        if sample.startswith(signature):
            return f"{kind}{http}, not a stream: {_EXPECTED}"
    if _HTML.match(sample):
        return f"an HTML page{http}, not a stream: {_EXPECTED}"
    try:
        sample[:-3].decode()  # a character may be cut in two at the end
    except UnicodeDecodeError:
        return f"binary data{http}, not a stream: {_EXPECTED}"
    kind = "binary data" if b"\0" in sample else "plain text"
    return f"{kind}{http}, not a stream: {_EXPECTED}"


def detect(raw: bytes) -> DialectName:
    """Returns the name of the dialect a capture speaks; raises Unreadable if it is not clear."""
    detector = Detector(limit=len(bytes_argument(raw, "raw")))
    # The first events nearly always decide: the rest need not be read for it.
    for start in range(0, len(raw), _DETECTED_AT_A_TIME):
        found = detector.feed(raw[start : start + _DETECTED_AT_A_TIME])
        if found is not None:
            return found
    return detector.finish()
