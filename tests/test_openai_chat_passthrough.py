"""Frames that pass through, and an encoder that takes over: the client gets everything once, and
the official client reads it as Weft does.

A frame passes here as it does in a gateway, as soon as nothing of it is held back and there is no
finding; from the first finding or error on, the client gets the events of an encoder.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from openai._models import construct_type
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from tests.captures import CHAT, DIALECT, Capture
from tests.daily import in_turn
from tests.tables import each_row
from tests.test_openai_chat_encoder import finish_summary, summary_of
from weft.assembler import Response
from weft.codec import Decoder, Pipe
from weft.context import Context
from weft.dialects.base import EventEncoder
from weft.dialects.openai_chat.dialect import OPENAI_CHAT
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import (
    ErrorPart,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
)
from weft.relay.rendering import SentState
from weft.request import Request
from weft.sse import DONE, Event, Frame, FrameReader, write

STREAMS = [
    capture
    for capture in CHAT
    if len(capture.expected) == 1 and not capture.raw.lstrip().startswith(b"{")
]
FAILURE = ErrorPart("timeout", "too slow", retryable=True)

TEXT_PARTS = (TextStart, TextDelta, TextEnd, ReasoningStart, ReasoningDelta, ReasoningEnd)
Delta = TextDelta | ReasoningDelta | ToolParamsDelta


def read(raw: bytes) -> list[Frame]:
    reader = FrameReader()
    return reader.feed(raw) + reader.finish() + reader.finish()


def pipe(capture: Capture) -> Pipe:
    reading = capture.reading
    request = replace(reading.request or Request("loom-1"), stream=True)
    context = Context(request=request, quirks=reading.quirks, ids=Ids(b"capture"))
    return Pipe(OPENAI_CHAT, context)


def compressed(parts: Sequence[Part]) -> list[Part]:
    """Returns the same parts with one delta per item."""
    texts: dict[str, str] = {}
    for part in parts:
        if isinstance(part, Delta):
            texts[part.id] = texts.get(part.id, "") + part.delta
    found: list[Part] = []
    for part in parts:
        if not isinstance(part, Delta):
            found.append(part)
        elif part.id in texts:
            found.append(replace(part, delta=texts.pop(part.id)))
    return found


class Client:
    """What the client of a gateway gets if both sides use this dialect."""

    def __init__(self, reader: Pipe) -> None:
        self._pipe = reader
        self._parts: list[Part] = []
        self._waiting: list[Frame] = []
        self._untexts: list[Part] = []
        """The parts of the frames that wait."""
        self._told = SentState(OPENAI_CHAT)
        self._encoder: EventEncoder | None = None
        self.data: list[bytes] = []

    def feed(self, frame: Frame, *, now: bool = False) -> None:
        """`now`: an encoder takes over, for any reason."""
        parts = self._pipe.feed([frame])
        self._waiting.append(frame)
        self._take(parts, now=now)

    def finish(self, error: ErrorPart | None = None) -> None:
        parts = [] if error is None else self._pipe.fail(error)
        self._take(parts + self._pipe.finish(), now=False)
        if self.data[-1:] != [DONE]:
            self.data.append(DONE)

    def _take(self, parts: list[Part], *, now: bool) -> None:
        self._parts += parts
        self._untexts += parts
        failed = any(isinstance(part, ErrorPart) for part in parts)
        if self._encoder is not None:
            self._write(self._encoder.feed(parts))
        elif now or failed or self._pipe.findings.found:
            self._take_over()
        elif self._parts and not self._pipe.holding:
            self.data += [frame.data for frame in self._waiting]
            self._told.add(((frame, None) for frame in self._waiting), self._untexts)
            self._waiting, self._untexts = [], []

    def _take_over(self) -> None:
        """Feeds an encoder what was passed through, and lets it write the rest."""
        context = Context(request=Request("asked", include_usage=True), ids=Ids(b"client"))
        fold = self._pipe.guard.fold
        self._encoder = self._told.encoder(context, fold, Findings(), self._untexts)
        self._write(self._encoder.feed(self._untexts))

    def _write(self, events: Iterable[Event]) -> None:
        self.data += [event.data for event in events]

    @property
    def response(self) -> Response:
        """The guarded parts."""
        return self._pipe.response

    @property
    def content(self) -> list[Part]:
        return content(self._parts)


def content(parts: Sequence[Part]) -> list[Part]:
    """Returns the texts and reasonings that are not empty, each in one delta, without the kind of
    the reasoning.
    """
    ids = {part.id for part in parts if isinstance(part, TextDelta | ReasoningDelta)}
    texts = [part for part in parts if isinstance(part, TEXT_PARTS) and part.id in ids]
    return compressed([_plain(part) for part in texts])


def _plain(part: Part) -> Part:
    return replace(part, kind="raw") if isinstance(part, ReasoningStart) else part


def decoded(client: Client) -> tuple[list[Part], Response]:
    """Decodes what the client got with Weft."""
    decoder = Decoder(DIALECT, context=Context(ids=Ids(b"capture")))
    parts = decoder.feed(b"".join(write("", data) for data in client.data)) + decoder.finish()
    return [*parts], decoder.response


def accumulated(client: Client) -> tuple[object, ...]:
    """Reads it with the official client."""
    state = ChatCompletionStreamState()
    for data in client.data[:-1]:
        chunk = construct_type(type_=ChatCompletionChunk, value=json.loads(data))
        state.handle_chunk(cast(ChatCompletionChunk, chunk))
    choice: dict[str, Any] = state.current_completion_snapshot.choices[0].to_dict()
    message = choice["message"]
    calls = message.get("tool_calls") or []
    return (
        message.get("role") or "assistant",
        message.get("content") or "",
        message.get("refusal") or "",
        [(call["id"], *_made(call)) for call in calls],
        choice["finish_reason"],
    )


def _made(call: dict[str, Any]) -> tuple[str, str]:
    if call.get("custom"):
        return call["custom"]["name"], call["custom"]["input"]
    return call["function"]["name"], call["function"]["arguments"]


def meant(response: Response) -> tuple[object, ...]:
    items = [item for item in response.items if isinstance(item, ToolCall) and item.name]
    calls = [(call.id, call.name, call.params) for call in items]
    return "assistant", response.text, response.refusal, calls, _WORDS[finish_summary(response)]


_WORDS = {"stop": "stop", "length": "length", "tool-calls": "tool_calls"} | {
    "content-filter": "content_filter",
    "pause": "length",
    None: None,
}


def without_signature(call: ToolCall) -> ToolCall:
    """Returns a call without the fields of its end, which a cut call does not have."""
    return replace(call, signature=None, extra=UNSET)


def check(client: Client) -> None:
    parts, response = decoded(client)
    assert content(parts) == client.content
    was, want = summary_of(response), summary_of(client.response)
    if client.response.error is None:
        assert was == want
        assert accumulated(client) == meant(client.response)
    else:  # calls were cut: those that were never announced are not written
        cut = {call.id: without_signature(call) for call in client.response.invalid_tool_calls}
        assert all(without_signature(call) == cut[call.id] for call in response.invalid_tool_calls)
        assert was | {"calls": []} == want | {"calls": []}


@each_row("capture", STREAMS, ids=str)
def test_clients_get_the_guarded_parts_of_any_odd_stream(capture: Capture) -> None:
    client = Client(pipe(capture))
    for frame in read(capture.raw):
        client.feed(frame)
    client.finish()
    check(client)


def is_clean(capture: Capture) -> bool:
    reader = pipe(capture)
    reader.feed(read(capture.raw))
    reader.finish()
    return reader.response.error is None and not reader.findings.found


CLEAN = [capture for capture in STREAMS if is_clean(capture)]


@each_row("capture", CLEAN, ids=str)
def test_frames_without_findings_pass_through_unchanged(capture: Capture) -> None:
    client, frames = Client(pipe(capture)), read(capture.raw)
    for frame in frames:
        client.feed(frame)
    client.finish()
    sent = [frame.data for frame in frames]
    assert client.data == (sent if sent[-1] == DONE else [*sent, DONE])


@pytest.mark.parametrize(("capture", "ending"), in_turn(2, STREAMS, ["goes-on", "fails"]))
def test_an_encoder_can_take_over_after_any_frame(capture: Capture, ending: str) -> None:
    frames, failing = read(capture.raw), ending == "fails"
    for place in range(len(frames)):
        client = Client(pipe(capture))
        for number, frame in enumerate(frames):
            client.feed(frame, now=number == place)
            if failing and number == place:
                break
        client.finish(FAILURE if failing else None)
        check(client)
