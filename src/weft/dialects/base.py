"""What every dialect is made of, and how a frame is read at the door.

A dialect is a row of pure functions. Decoders and encoders live for one response and one
choice; both have two verbs, `feed` and `finish`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Literal, Protocol, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Raw, UnsetType

from weft import large_json
from weft.assembler import Assembler, Response
from weft.context import Context, Quirks
from weft.dialects.faults import ReadError
from weft.dialects.requests import RequestCodec
from weft.dialects.rules import Validator
from weft.findings import Findings
from weft.ids import Ids
from weft.partial_json import mended, whole_characters
from weft.parts import ErrorPart, Part
from weft.sse import Event, Frame, comment

DialectName = Literal[
    "openai-chat", "openai-responses", "anthropic-messages", "gemini", "ai-sdk", "open-responses"
]
"""The names of the dialects. `open-responses` is a second name of `openai-responses`."""

Mark = tuple[str, int, int] | tuple[str, int, int, str]
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


class PassedOn(msgspec.Struct, frozen=True):
    """What a client was told in the upstream's own events, before an encoder had to go on."""

    number: int = -1
    """The number of the last event, on a wire that numbers them."""

    marks: frozenset[Mark] = frozenset()
    """What `Dialect.mark` said of these events."""


class EventEncoder(Protocol):
    """Guarded parts in, events out. Reads the fold, never joins."""

    def feed(self, parts: Sequence[Part]) -> list[Event]: ...

    def finish(self) -> list[Event]: ...

    def resume(self, before: PassedOn) -> None:
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

    mark: Callable[[Frame], Mark | None] = lambda frame: None
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

    read_error: ReadError | None = None
    write_error: Callable[[ErrorPart], tuple[int, bytes]] | None = None
    """Writes the HTTP status and the body of an answer that failed before it began."""

    http: HttpApi | None = None
    """How it is spoken over HTTP; None: streams only."""

    quirks: type[Quirks] | None = None
    """The class of its quirks."""

    validator: Callable[[Findings], Validator] | None = None
    """Makes what checks one response by the rules of `rules.toml`."""


class Replays:
    """Knows an event that came before: its number and its bytes must both be the same."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str | int, int] = {}

    def seen(self, number: str | int, data: bytes) -> bool:
        mark = hash(data)
        if self._seen.get(number) == mark:
            return True
        self._seen[number] = mark
        return False


S = TypeVar("S", bound=msgspec.Struct)

_JSON_NAMES = {dict: "object", list: "array", str: "text", bool: "boolean", NoneType: "null"}


class Salvage:
    """Reads a frame that the typed decoder refused: the only place where a dict is legal.

    Numbers in strings become numbers, objects where text belongs become their JSON text, and
    what cannot be used is left out, each with a finding. Fields named in `growing` keep the
    lone surrogates of a pair that was cut in two; everywhere else they are replaced.
    """

    def __init__(self, findings: Findings, growing: frozenset[str]) -> None:
        self._findings = findings
        self._growing = growing

    def read(self, data: bytes, wanted: type[S]) -> S:
        """Raises ValueError when this is not a JSON object at all."""
        try:
            value = json.loads(data.decode("utf-8", "replace"), strict=False)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if isinstance(value, list) and len(value) == 1:  # error-in-an-array
            self._findings.once("field-coerced", "", "an object stood in an array of one")
            value = value[0]
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, got {_kind(value)}")
        return self._struct(value, wanted, "")

    def item(self, raw: Raw | UnsetType, wanted: type[S]) -> S:
        """Reads an object inside a frame, typed if it can be; an empty one if it is none."""
        data = bytes(raw) if isinstance(raw, Raw) else b"{}"
        try:
            return large_json.read(data, wanted)
        except (ValueError, RecursionError):
            pass
        try:
            return self.read(data, wanted)
        except ValueError:
            return wanted()

    def _struct(self, value: dict[str, object], wanted: type[S], path: str) -> S:
        known: dict[str, object] = {}
        for field in msgspec.structs.fields(wanted):
            if field.encode_name in value:
                where = f"{path}.{field.encode_name}" if path else field.encode_name
                try:
                    known[field.name] = self._value(value[field.encode_name], field.type, where)
                except ValueError:
                    detail = f"{where}: {_kind(value[field.encode_name])} cannot be used"
                    self._findings.once("field-dropped", where, detail)
        return wanted(**known)

    def _value(self, value: object, wanted: object, path: str) -> object:
        options = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
        if value is None and NoneType in options:
            return None
        if Raw in options:
            return Raw(msgspec.json.encode(mended(value)))
        for option in options:
            if option is value.__class__:
                return self._text(value, path) if isinstance(value, str) else value
            if get_origin(option) is list and isinstance(value, list):
                return self._list(value, get_args(option)[0], path)
            if isinstance(value, dict) and _is_struct(option):
                return self._struct(value, option, path)
        coerced = self._coerced(value, options, path)
        detail = f"{path}: {_kind(value)} where something else belongs"
        self._findings.once("field-coerced", path, detail)
        return coerced

    def _text(self, value: str, path: str) -> str:
        if path.rpartition(".")[2] in self._growing:
            return value
        return whole_characters(value)

    def _list(self, values: list[object], wanted: object, path: str) -> list[object]:
        kept: list[object] = []
        for value in values:
            try:
                kept.append(self._value(value, wanted, path))
            except ValueError:
                detail = f"{path}: {_kind(value)} cannot be used"
                self._findings.once("field-dropped", path, detail)
        return kept

    def _coerced(self, value: object, options: tuple[object, ...], path: str) -> object:
        if int in options and isinstance(value, str | float):
            return _whole(value)
        for option in options:
            if get_origin(option) is list and isinstance(value, dict):
                return self._list([value], get_args(option)[0], path)
        if str in options and not isinstance(value, str):
            return msgspec.json.encode(mended(value)).decode() if value or value == 0 else ""
        raise ValueError(f"{path}: {_kind(value)}")


def _whole(value: str | float) -> int:
    try:
        return int(value)
    except OverflowError:
        raise ValueError(f"{value} is no whole number") from None


def _is_struct(option: object) -> bool:
    return isinstance(option, type) and issubclass(option, msgspec.Struct)


def _kind(value: object) -> str:
    return _JSON_NAMES.get(value.__class__, "number")


_NOTHING = frozenset((b"null", b"false", b'""', b"{}", b"[]"))


def told(value: Raw | UnsetType) -> bool:
    """Whether a raw field is there and says something."""
    return isinstance(value, Raw) and bytes(value) not in _NOTHING
