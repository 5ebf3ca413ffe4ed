"""What every dialect is made of.

A dialect is a row of pure functions. Decoders and encoders live for one response and one choice;
both have two methods, `feed` and `finish`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from weft.assembler import Assembler, Response
from weft.context import Context, Quirks
from weft.dialect_names import DialectName
from weft.dialects.delta_templates import EventTemplate, FrameTemplate
from weft.dialects.error_classes import ErrorReader
from weft.dialects.requests.codec import RequestCodec
from weft.dialects.rules import Validator
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import Delta, ErrorPart, Part
from weft.sse import Event, Frame, comment

EventKey = tuple[str, int, int] | tuple[str, int, int, str]
"""Identifies an event that is sent once for each item or part: its name, the index of the item and
of the part, and the id of an item that it announces."""


def nothing(frame: Frame) -> None:
    """What frames have of a thing that a wire does not have. Callers may compare it, and save the
    call."""


class FrameDecoder(Protocol):
    """Frames in, parts out. Takes any frames; the parts need a guard."""

    def feed(self, frame: Frame) -> list[Part]: ...

    def finish(self) -> list[Part]: ...

    @property
    def ending(self) -> bool:
        """Whether the finish reason came, and only the usage or the terminator may follow."""
        ...

    @property
    def holding(self) -> bool:
        """Whether something in the frames so far has not been emitted as parts. Meanwhile frames
        are not passed through, because their meaning may still change."""
        ...

    template: FrameTemplate | None
    """The last frame, if it was one delta: the next one that fits is another delta of the same
    item, and changes nothing else but what `FrameTemplate.note` takes. So it need not be fed.
    The caller clears the template before it feeds another one."""


class Stage(Protocol):
    """Parts in, parts out, between decoder and guard."""

    def feed(self, parts: list[Part]) -> list[Part]: ...

    def finish(self) -> list[Part]: ...

    @property
    def passes(self) -> bool:
        """Whether it is done: all parts pass unchanged, and nothing is held."""
        ...

    @property
    def holding(self) -> bool:
        """Whether something that was fed has not come out yet."""
        ...

    def reads(self, kind: type[Delta], id: str) -> bool:
        """Whether it needs to see the deltas of this item: their text decides about something. To
        give all of them another id is not to read them."""
        ...


# Passthrough may end in the middle of a response: the encoder then continues the client's stream.
class PassthroughHistory(msgspec.Struct, frozen=True):
    """What a client received in the upstream's own events, before an encoder took over."""

    # The next event is number 0 if nothing was sent.
    number: int = -1
    """The number of the last event, on a wire that numbers its events."""

    event_keys: frozenset[EventKey] = frozenset()
    """The keys of these events, by `Dialect.event_key`."""


class EventEncoder(Protocol):
    """Guarded parts in, events out. Reads joined text from the fold."""

    def feed(self, parts: Sequence[Part]) -> list[Event]: ...

    def finish(self) -> list[Event]: ...

    def resume(self, before: PassthroughHistory) -> None:
        """The client received what was fed so far in the upstream's own events: nothing of that is
        written again, and the numbering continues. The events returned so far were discarded.
        """
        ...

    def keepalive(self) -> Event | None:
        """The keepalive event of a wire that has one; otherwise the writer sends a comment."""
        ...

    def delta_template(self, last: Delta) -> EventTemplate | None:
        """The event for the next delta of the item of this one, which was the last part: if that is
        one event that depends on nothing but the delta, and changes nothing but what
        `EventTemplate.fill` counts."""
        ...


@dataclass(frozen=True, slots=True)
class ModelListing:
    """How a dialect lists models."""

    one: Callable[[str, tuple[str, ...] | None], object]
    """Returns a model, by its name and by what it reads (text, image, file), if that is known."""

    all: Callable[[list[object], list[str]], object]
    """Returns the list, of models and of their names."""


@dataclass(frozen=True, slots=True)
class RateLimitHeaders:
    """How the vendor of a dialect tells clients about their rate limits."""

    name: str
    """The header: `{kind}` is requests or tokens, `{field}` is limit, remaining or reset."""

    reset: Literal["seconds", "time"]
    """Whether the reset is in so many seconds (`6s`), or at a time (RFC 3339)."""


@dataclass(frozen=True, slots=True)
class HttpApi:
    """A dialect over HTTP: how upstreams are called, and how its clients are recognised."""

    # Calling an upstream
    path: Callable[[str, bool], str]
    """Returns the path below the base URL, for a model's name, percent-encoded, and whether the
    response is streamed."""

    base: str
    """The kind of base URL. Dialects with the same kind share the base URLs of hosts."""

    tails: tuple[str, ...]
    """Suffixes of a base URL that `path` already begins with."""

    key: tuple[str, str]
    """The header of the API key, and the prefix of its value."""

    listing: str
    """The path below the base URL that lists the models of an upstream."""

    # Serving clients
    prefixes: tuple[str, ...]
    """Paths of the gateway that belong to this dialect; the longest match counts."""

    headers: tuple[tuple[str, str], ...] = ()
    """Headers that an upstream requires, unless the client sent its own."""

    version: str | None = None
    """The header with the version of the API."""

    betas: str | None = None
    """The header that enables beta features."""

    known_by: tuple[str, str] | None = None
    """A path shared with another dialect, and the header that only clients of this one send."""

    models: ModelListing | None = None
    """None: its clients list models in another dialect."""

    rate_limits: RateLimitHeaders | None = None
    """None: its clients get no headers about their rate limits."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One streaming dialect. What it does not support is None."""

    name: DialectName
    speaks: Callable[[Frame], bool]
    """Whether this frame can only come from this dialect."""

    aliases: tuple[DialectName, ...] = ()

    # Decoding and encoding
    decoder: Callable[[Context, Findings], FrameDecoder] | None = None
    encoder: Callable[[Context, Assembler, Findings], EventEncoder] | None = None
    body: Callable[[Response, Context, Findings], bytes] | None = None
    """Encodes a response that is not streamed, or its error."""

    stages: Callable[[Context, Findings], Sequence[Stage]] = lambda context, findings: ()
    """The stages between the decoder and the guard."""

    # Where one response ends and another begins, in captures that hold several
    begins: Callable[[Frame, Sequence[Frame]], bool] = lambda frame, before: False
    """Whether this frame starts another response than the frames before it belong to."""

    ends: Callable[[Frame], bool] = lambda frame: False
    """Whether all that follows this frame belongs to another response."""

    # Ids and events of a response
    new_id: Callable[[Ids], str] = lambda ids: ids.mint("resp")
    """Mints the id of a response."""

    is_whole: Callable[[Frame], bool] = lambda frame: False
    """Whether this frame is not an event of a stream, but a whole body or several events, which a
    reader of streams cannot use."""

    event_name: Callable[[Frame], str] = lambda frame: ""
    """The name of this event, even if its `event:` line is missing."""

    terminator: bytes | None = None
    """The data of the event that ends every stream; not every upstream sends it."""

    snapshot: Callable[[Frame], bytes | None] = nothing
    """The response object in this frame, on a wire whose events contain it."""

    # What the gateway may do with a stream
    stores: bool = False
    """Whether requests can have their response stored, to be retrieved later."""

    resumable_by_id: bool = False
    """Whether events get ids for clients that resume a stream. A wire that numbers its events needs
    none."""

    # The upstream is always asked for usage; a client that did not ask must not see it.
    only_usage: Callable[[Frame], bool] = lambda frame: False
    """Whether this frame has the usage and nothing else, on a wire whose clients must request
    it."""

    with_model: Callable[[Frame, str], bytes] | None = None
    """The data of this frame with another model name, if clients send that name back; None: the
    upstream's name is passed on."""

    number: Callable[[Frame], int | None] = nothing
    """The number of this event, on a wire that numbers its events."""

    event_key: Callable[[Frame], EventKey | None] = nothing
    """Identifies an event that must not be sent twice and that no part stands for."""

    # A comment, which every reader of server-sent events skips (WHATWG HTML, "9.2.6 Interpreting an
    # event stream"); clients that parse lines themselves may need another.
    idle: bytes = comment("keepalive")
    """The keepalive of a stream of server-sent events, if the encoder has no event for it."""

    choices: Callable[[Frame], frozenset[int]] = lambda frame: frozenset((0,))
    """The choices that this frame belongs to."""

    # Requests, errors and HTTP
    request: RequestCodec | None = None
    """Parses and renders requests; None: streams only."""

    returns_reasoning: bool = True
    """Whether its clients send reasoning back, with its signatures."""

    read_error: ErrorReader | None = None
    write_error: Callable[[ErrorPart], tuple[int, bytes]] | None = None
    """Returns the HTTP status and the body of a response that failed before it started."""

    http: HttpApi | None = None
    """The HTTP API; None: streams only."""

    # Deviations and rules
    quirks: type[Quirks] = Quirks
    """The class of its quirks; the base class has none."""

    validator: Callable[[Findings], Validator] | None = None
    """Makes what checks one response by the rules of `rules.toml`."""
