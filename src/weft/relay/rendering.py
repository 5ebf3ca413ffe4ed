"""Renders guarded parts as events of the client's dialect.

`Encoded` uses the encoder of the dialect. `Passthrough` is for an upstream that speaks the client's
own dialect: the data of a frame is forwarded byte for byte once everything it says has passed the
guard without a finding, and nothing of it is held back. While something is held, frames wait. At
the first finding or error an encoder takes over for good: it is given what the client was sent,
from the assembled response, so that nothing is sent twice.

For both, and for any input in any pieces: what the client reads is the guarded parts.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from weft.assembler import Assembler, Response
from weft.codec import Pipe
from weft.context import Context
from weft.dialects.base import Dialect, EventEncoder, EventKey, PassthroughHistory, nothing
from weft.dialects.delta_templates import EventTemplate
from weft.errors import InternalError
from weft.findings import Finding, Findings
from weft.ids import Ids
from weft.parts import (
    Delta,
    ErrorPart,
    Finish,
    Part,
    ReasoningDelta,
    ReasoningStart,
    ResponseMetadata,
    TextDelta,
    TextStart,
    ToolParamsDelta,
    ToolParamsStart,
)
from weft.request import Request
from weft.sse import Event, Frame, replace_data

_DELTAS = (TextDelta, ReasoningDelta, ToolParamsDelta)


class Renderer(Protocol):
    """Turns the parts of a response into events."""

    @property
    def context(self) -> Context:
        """The id and the model that the client sees, known as soon as there is content."""
        ...

    def render(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the events for the parts of one read, possibly none."""
        ...

    def keepalive(self) -> Event | None:
        """The keepalive event, if the dialect has one."""
        ...

    def delta_template(self, frame: Frame, last: Delta) -> EventTemplate | None:
        """The event for the next delta of the item of this one, which came in this frame; the next
        comes in one like it. See EventEncoder."""
        ...

    @property
    def findings(self) -> list[Finding]:
        """What the dialect could not carry."""
        ...


def encoder_of(
    dialect: Dialect, context: Context, fold: Assembler, findings: Findings
) -> EventEncoder:
    if dialect.encoder is None:
        raise InternalError(f"{dialect.name} cannot be written")
    return dialect.encoder(context, fold, findings)


class Encoded:
    """Uses an encoder for the whole response. The context has the response id."""

    def __init__(self, dialect: Dialect, context: Context, pipe: Pipe) -> None:
        self._findings = Findings()
        # The fold of the guard, not one of its own: text is joined once, and both see the same.
        self._encoder = encoder_of(dialect, context, pipe.guard.fold, self._findings)
        self.context = context
        pipe.tap = None

    def render(self, parts: Sequence[Part]) -> list[Event]:
        return self._encoder.feed(parts) if parts else []

    def keepalive(self) -> Event | None:
        return self._encoder.keepalive()

    def delta_template(self, frame: Frame, last: Delta) -> EventTemplate | None:
        return self._encoder.delta_template(last)

    @property
    def findings(self) -> list[Finding]:
        return self._findings.found


class BodyOnly:
    """Writes no events: the response is sent as a body."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.findings: list[Finding] = []

    def render(self, parts: Sequence[Part]) -> list[Event]:
        return []

    def keepalive(self) -> Event | None:
        return None

    def delta_template(self, frame: Frame, last: Delta) -> EventTemplate | None:
        return None


class SentState:
    """What a client was sent in events that were not encoded here, so that an encoder can
    continue."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._parts: list[Part] = []
        """All parts but deltas, which the assembled response has."""
        self.number = -1
        """Of the last event, on a wire that numbers its events."""
        self._event_keys: set[EventKey] = set()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, frames: Iterable[tuple[Frame, int | None]], parts: Iterable[Part]) -> None:
        """The client was sent these frames, each with its number; they contain these parts."""
        event_key = self._dialect.event_key
        for frame, number in frames:
            if number is not None:
                self.number = number
            key = None if event_key is nothing else event_key(frame)
            if key is not None:
                self._event_keys.add(key)
        for part in parts:
            # Deltas would be the whole response once more; the fold has them joined.
            if part.__class__ not in _DELTAS:
                self._parts.append(part)

    @property
    def response_id(self) -> str | None:
        first = self._parts[0] if self._parts else None
        return first.id if isinstance(first, ResponseMetadata) else None

    def encoder(
        self,
        context: Context,
        fold: Assembler,
        findings: Findings,
        unsent: Sequence[Part] = (),
        gap: int = 0,
    ) -> EventEncoder:
        """An encoder that continues after these events. `unsent` are parts that the fold holds and
        that were not sent; `gap` event numbers are skipped.
        """
        if self.response_id is not None:
            context = replace(context, response_id=self.response_id)
        encoder = encoder_of(self._dialect, context, fold, findings)
        if not self._parts:
            return encoder
        unsent_length: dict[tuple[type[Part], str], int] = {}
        for part in unsent:
            if isinstance(part, _DELTAS):
                key = part.__class__, part.id
                unsent_length[key] = unsent_length.get(key, 0) + len(part.delta)
        replayed: list[Part] = []  # with all deltas of an item as one
        for part in self._parts:
            replayed.append(part)
            kind = _DELTA_OF.get(part.__class__)
            if kind is not None and isinstance(part, _STARTS):
                text = _text(fold, kind, part.id)
                # The fold is ahead of the client by what was read but not forwarded.
                sent = text[: len(text) - unsent_length.get((kind, part.id), 0)]
                if sent:
                    replayed.append(kind(part.id, sent))
        # Its events are thrown away: the client has them. What counts is the state that they leave.
        encoder.feed(replayed)
        encoder.resume(PassthroughHistory(self.number + gap, frozenset(self._event_keys)))
        return encoder


_STARTS = (TextStart, ReasoningStart, ToolParamsStart)
_DELTA_OF: dict[type[Part], type[Delta]] = {
    TextStart: TextDelta,
    ReasoningStart: ReasoningDelta,
    ToolParamsStart: ToolParamsDelta,
}


def _text(fold: Assembler, kind: type[Delta], id: str) -> str:
    if kind is TextDelta:
        return fold.text(id)
    return fold.reasoning(id) if kind is ReasoningDelta else fold.joined(id)


class _Verbatim(EventTemplate):
    """The frames as they came."""

    __slots__ = ("_sent",)
    is_verbatim = True

    def __init__(self, name: str, sent: SentState | None) -> None:
        """`sent` counts the events, if they are numbered."""
        super().__init__(name, b"", b"")
        self._sent = sent

    def fill(self, pieces: Sequence[bytes], length: int) -> list[Event]:
        name, sent = self._name, self._sent
        if sent is None:
            return [Event(name, data) for data in pieces]
        first = sent.number + 1
        sent.number += len(pieces)
        return [Event(name, data, number) for number, data in enumerate(pieces, first)]


class Passthrough:
    """Forwards the frames of the upstream until one of them needs a repair."""

    def __init__(self, dialect: Dialect, context: Context, pipe: Pipe) -> None:
        request = context.request
        self._dialect = dialect
        self._context = context
        self._pipe = pipe
        self._findings = Findings()
        # Weft always requests usage from chat upstreams, for its records; a client that did not
        # request it must not get the additional chunk, which has no choices.
        self._hides_usage = request is not None and not request.include_usage
        self._model: str | None = None
        """The client's name for the model, if it replaces that of the upstream."""
        self._waiting: list[tuple[Frame, bool]] = []
        """Frames that are not sent yet, and whether each of them has parts."""
        self._unsent: list[Part] = []
        """The parts of these frames; once the encoder has taken over, the parts to encode."""
        self._sent = SentState(dialect)
        self._ended = False
        self._passes = True
        """Whether frames are forwarded."""
        self._encoder: EventEncoder | None = None
        """The encoder that has taken over."""
        self._out: list[Event] = []
        # Called for each frame with the parts that it led to; `render` gets those of a whole read,
        # and could not tell to which frame they belong.
        pipe.tap = self._read

    @property
    def context(self) -> Context:
        id = self._sent.response_id or self._context.response_id
        return replace(self._context, response_id=id)

    def render(self, parts: Sequence[Part]) -> list[Event]:
        """`_read` has seen the parts as they left the pipe. The encoder runs here, not there: the
        end of a response may repeat all of it, and is then encoded outside the event loop."""
        out, self._out = self._out, []
        if not self._passes:
            unsent, self._unsent = self._unsent, []
            if self._encoder is None:
                fold = self._pipe.guard.fold
                self._encoder = self._sent.encoder(self._context, fold, self._findings, unsent)
            out += self._encoder.feed(unsent)
        return out

    def keepalive(self) -> Event | None:
        if self._encoder is None:
            # An encoder for this event alone: there is none yet, and a keepalive needs no state.
            return encoder_of(self._dialect, Context(), Assembler(), Findings()).keepalive()
        return self._encoder.keepalive()

    def delta_template(self, frame: Frame, last: Delta) -> EventTemplate | None:
        if self._waiting or self._unsent:
            return None
        if not self._passes:
            return None if self._encoder is None else self._encoder.delta_template(last)
        event = self._event(frame)
        if event.data is not frame.data:
            return None
        event_key = self._dialect.event_key
        if event_key is not nothing and event_key(frame) is not None:
            return None
        return _Verbatim(event.name, self._sent if event.number is not None else None)

    @property
    def findings(self) -> list[Finding]:
        return self._findings.found

    @property
    def passes(self) -> bool:
        """Whether frames are forwarded."""
        return self._passes

    def _read(self, frame: Frame | None, parts: Sequence[Part]) -> None:
        self._unsent += parts
        if not self._passes:
            return
        holding = self._pipe.holding
        # At the end of the input (no frame), only an encoder can write what is still held.
        whole = holding if frame is None else self._dialect.is_whole(frame)
        broken = bool(self._pipe.findings.found)
        for part in parts:
            broken = broken or part.__class__ is ErrorPart
        if broken or whole:  # whole: a body instead of a stream
            # The parts of the waiting frames stay in `_unsent`: the encoder writes them.
            self._passes, self._waiting = False, []
            return
        if frame is not None:
            self._waiting.append((frame, bool(parts)))
        begun = bool(self._unsent or self._sent)  # before that, no encoder could continue
        if begun and not holding:
            self._forward()

    def _forward(self) -> None:
        waiting, parts = self._waiting, self._unsent
        self._waiting, self._unsent = [], []
        if self._ended:  # frames after the end are dropped
            return
        if parts and isinstance(parts[0], ResponseMetadata):
            self._note_model(parts[0].model)
        sent: list[tuple[Frame, int | None]] = []
        for frame, has_parts in waiting:
            # A frame without parts (a ping, an unknown event) is forwarded: clients may know more
            # than we do.
            if has_parts or not (self._hides_usage and self._dialect.only_usage(frame)):
                event = self._event(frame)
                self._out.append(event)
                sent.append((frame, event.number))
        self._sent.add(sent, parts)
        if parts and parts[-1].__class__ is Finish:
            self._ended = True
            terminator = self._dialect.terminator
            # With or without `[DONE]` from the upstream, the client gets one.
            if terminator is not None and (not sent or sent[-1][0].data != terminator):
                self._out.append(Event("", terminator))

    def _note_model(self, model: str | None) -> None:
        """If clients send the model name back, they get the one that they requested. Otherwise they
        get that of the upstream, and so does an encoder that takes over."""
        request = self._context.request
        if request is None or request.model == model:
            return
        if self._dialect.with_model is not None:
            self._model = request.model  # also for later frames
        elif model is not None:
            request = msgspec.structs.replace(request, model=model)
            self._context = replace(self._context, request=request)

    def _event(self, frame: Frame) -> Event:
        dialect = self._dialect
        if self._model is not None and dialect.with_model is not None:
            frame = replace_data(frame, dialect.with_model(frame, self._model))
        number = None if dialect.number is nothing else dialect.number(frame)
        snapshot = None if dialect.snapshot is nothing else dialect.snapshot(frame)
        return Event(dialect.event_name(frame), frame.data, number, snapshot)


class ErrorStream:
    """The events of a response that is only an error."""

    def __init__(self, dialect: Dialect, request: Request, now: int, id: str | None = None) -> None:
        ids = Ids(secrets.token_bytes(16))
        context = Context(request, ids=ids, now=now, response_id=id or dialect.new_id(ids))
        self._pipe = Pipe(dialect, context)
        self._encoder = encoder_of(dialect, context, self._pipe.guard.fold, Findings())

    def keepalive(self) -> Event | None:
        return self._encoder.keepalive()

    def events(self, error: ErrorPart, gap: int = 0) -> list[Event]:
        """A whole stream with this error; `gap` event numbers are skipped before the error."""
        begun, rest = self._parts(error)
        events = self._encoder.feed(begun)
        if gap:
            self._encoder.resume(PassthroughHistory(len(events) - 1 + gap))
        return events + self._encoder.feed(rest)

    def rest(self, error: ErrorPart, number: int) -> list[Event]:
        """The end of a stream whose last event had this number."""
        begun, rest = self._parts(error)
        self._encoder.feed(begun)
        self._encoder.resume(PassthroughHistory(number))
        return self._encoder.feed(rest)

    def _parts(self, error: ErrorPart) -> tuple[list[Part], list[Part]]:
        parts = self._pipe.fail(error) + self._pipe.finish()
        # The metadata, of which encoders make the opening events, and the rest.
        return parts[:1], parts[1:]

    @property
    def response(self) -> Response:
        return self._pipe.response
