"""What every dialect is made of.

A dialect is a row of pure functions. Decoders and encoders live for one response and one
choice; both have two verbs, `feed` and `finish`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from weft.assembler import Assembler, Response
from weft.context import Context, Quirks
from weft.dialects.error_classes import ErrorReader
from weft.dialects.requests.codec import RequestCodec
from weft.dialects.rules import Validator
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import ErrorPart, Part
from weft.sse import Event, Frame, comment

DialectName = Literal[
    "openai-chat", "openai-responses", "anthropic-messages", "gemini", "ai-sdk", "open-responses"
]
"""The names of the dialects. `open-responses` is a second name of `openai-responses`."""

EventKey = tuple[str, int, int] | tuple[str, int, int, str]
"""An event of which there is one for each item, or part of one: its name, and the two numbers; and
the id of an item that it announces, on a wire that has one."""


class FrameDecoder(Protocol):
    """Frames in, parts out. Any frames; the parts need a guard."""

    def feed(self, frame: Frame) -> list[Part]: ...

    def finish(self) -> list[Part]: ...

    @property
    def ending(self) -> bool:
        """Whether the wire told why it ends, and only its usage or its terminator may follow."""
        ...

    @property
    def holding(self) -> bool:
        """Whether something that the frames so far said has not come out as parts yet. Frames are
        not passed on meanwhile: what they say may still change."""
        ...


class Stage(Protocol):
    """Parts in, parts out, between decoder and guard."""

    def feed(self, parts: list[Part]) -> list[Part]: ...

    def finish(self) -> list[Part]: ...

    @property
    def passes(self) -> bool:
        """Whether it has done its work: whatever comes passes as it is, and nothing waits."""
        ...

    @property
    def holding(self) -> bool:
        """Whether something that was fed has not come out yet, in one shape or another."""
        ...


class PassthroughHistory(msgspec.Struct, frozen=True):
    """What a client was told in the upstream's own events, before an encoder had to go on."""

    number: int = -1
    """The number of the last event, on a wire that numbers them."""

    event_keys: frozenset[EventKey] = frozenset()
    """What `Dialect.event_key` said of these events."""


class EventEncoder(Protocol):
    """Guarded parts in, events out. Reads the fold, never joins."""

    def feed(self, parts: Sequence[Part]) -> list[Event]: ...

    def finish(self) -> list[Event]: ...

    def resume(self, before: PassthroughHistory) -> None:
        """The client knows what was fed so far from the upstream's own events: nothing of that is
        written again, and numbers go on behind them. The events returned so far were discarded.
        """
        ...

    def keepalive(self) -> Event | None:
        """The event that says nothing, on a wire that has one; else a writer has a comment."""
        ...


@dataclass(frozen=True, slots=True)
class ModelListing:
    """How a dialect writes the models that there are."""

    one: Callable[[str], object]
    """A model, by its name."""

    all: Callable[[list[object], list[str]], object]
    """The list of them, and of their names."""


@dataclass(frozen=True, slots=True)
class HttpApi:
    """A dialect over HTTP: what upstreams are asked by, and what its clients are known by."""

    path: Callable[[str, bool], str]
    """Returns where a model is asked, below the base URL: its name, percent-encoded, and whether
    for a stream."""

    base: str
    """What a base URL leads to. Dialects that agree here share the addresses of hosts."""

    tails: tuple[str, ...]
    """What people write at the end of a base URL, though `path` begins with it."""

    key: tuple[str, str]
    """The header that shows a key, and what stands there before it."""

    prefixes: tuple[str, ...]
    """Paths of a gateway below which this dialect is spoken; the longest that fits counts."""

    headers: tuple[tuple[str, str], ...] = ()
    """Headers that an upstream wants beside the body, where a client sent no other."""

    version: str | None = None
    """The header in which clients say which version of the wire they speak."""

    betas: str | None = None
    """The header in which they ask for what is not in it yet."""

    known_by: tuple[str, str] | None = None
    """A path that belongs to another dialect, and the header which says that it is this one."""

    models: ModelListing | None = None
    """None: its clients list them in another dialect."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One streaming language. What it cannot do yet is None."""

    name: DialectName
    speaks: Callable[[Frame], bool]
    """Whether this frame can only come from this dialect."""

    aliases: tuple[DialectName, ...] = ()
    decoder: Callable[[Context, Findings], FrameDecoder] | None = None
    encoder: Callable[[Context, Assembler, Findings], EventEncoder] | None = None
    body: Callable[[Response, Context, Findings], bytes] | None = None
    """Writes a response that is not streamed, or its error."""

    stages: Callable[[Context, Findings], Sequence[Stage]] = lambda context, findings: ()
    """What reads the decoder's parts before the guard does."""

    begins: Callable[[Frame, Sequence[Frame]], bool] = lambda frame, before: False
    """Whether this frame starts another response than the frames before it belong to."""

    ends: Callable[[Frame], bool] = lambda frame: False
    """Whether whatever follows this frame belongs to another response."""

    new_id: Callable[[Ids], str] = lambda ids: ids.mint("resp")
    """Mints the id of a response."""

    is_whole: Callable[[Frame], bool] = lambda frame: False
    """Whether this frame is no event of a stream, but a whole answer or several events: who reads
    a stream cannot use it as it is."""

    event_name: Callable[[Frame], str] = lambda frame: ""
    """The name of this event: some upstreams leave out the line that tells it."""

    terminator: bytes | None = None
    """The data of the event that ends every stream; not every upstream sends it."""

    snapshot: Callable[[Frame], bytes | None] = lambda frame: None
    """The response object that this frame tells, on a wire whose events tell it."""

    stores: bool = False
    """Whether a request can ask for its answer to be stored, and retrieved."""

    resumable_by_id: bool = False
    """Whether events get ids for clients that want to resume a stream. A wire that numbers its
    events needs none."""

    only_usage: Callable[[Frame], bool] = lambda frame: False
    """Whether this frame tells the usage and nothing else, on a wire whose clients must ask for
    it."""

    with_model: Callable[[Frame, str], bytes] | None = None
    """The data of this frame with another name of the model, where clients send that back; None:
    the upstream's name passes."""

    number: Callable[[Frame], int | None] = lambda frame: None
    """The number that this frame tells, on a wire that numbers its events."""

    event_key: Callable[[Frame], EventKey | None] = lambda frame: None
    """Names what this frame says, if that must not be said twice and no part stands for it."""

    idle: bytes = comment("keepalive")
    """What a stream of server-sent events sends while there is nothing to say, if the encoder has
    no event for that."""

    choices: Callable[[Frame], frozenset[int]] = lambda frame: frozenset((0,))
    """Which of several answers this frame speaks of."""

    request: RequestCodec | None = None
    """Reads and writes what is asked; None: streams only."""

    returns_reasoning: bool = True
    """Whether its clients send reasoning back, with what proves it."""

    read_error: ErrorReader | None = None
    write_error: Callable[[ErrorPart], tuple[int, bytes]] | None = None
    """Writes the HTTP status and the body of an answer that failed before it began."""

    http: HttpApi | None = None
    """How it is spoken over HTTP; None: streams only."""

    quirks: type[Quirks] | None = None
    """The class of its quirks."""

    validator: Callable[[Findings], Validator] | None = None
    """Makes what checks one response by the rules of `rules.toml`."""
