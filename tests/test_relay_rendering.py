"""What a client is sent: events of the encoder, or frames of the upstream until a repair."""

from collections.abc import Sequence

import pytest

from weft import decode_all
from weft.codec import Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.parts import Part
from weft.relay.rendering import Encoded, Passthrough
from weft.request import Request
from weft.sse import Event, FrameReader, write_events

CHAT = [
    b'data: {"id":"1","model":"m","x":1,"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n',
    b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n',
    b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"lo"}}]}\n\n',
    b'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b'data: {"id":"1","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n',
    b"data: [DONE]\n\n",
]
USAGE = CHAT[4]


class UpstreamStream:
    """The stream of an upstream, read in given pieces."""

    def __init__(self, dialect: str) -> None:
        self.pipe = Pipe(DIALECTS[dialect], Context())
        self._reader = FrameReader()

    def feed(self, data: bytes) -> list[Part]:
        return self.pipe.feed(self._reader.feed(data))

    def finish(self) -> list[Part]:
        return self.pipe.feed(self._reader.finish()) + self.pipe.finish()


def passthrough(pieces: Sequence[bytes], dialect: str, request: Request | None = None) -> bytes:
    upstream = UpstreamStream(dialect)
    passed = Passthrough(DIALECTS[dialect], Context(request=request), upstream.pipe)
    out: list[Event] = []
    for piece in pieces:
        out += passed.render(upstream.feed(piece))
    return write_events([*out, *passed.render(upstream.finish())])


WITH_USAGE = Request("m", include_usage=True)


def responses() -> list[bytes]:
    """A stream of the encoder with two more keys and numbers from 5 on: not as we write it."""
    raw = b"".join(CHAT)
    events = b"".join(_encoded(raw, "openai-responses")).split(b"\n\n")[:-1]
    out = []
    for number, event in enumerate(events):
        event = event.replace(
            b'"sequence_number":%d' % number, b'"sequence_number":%d' % (number + 5)
        )
        out.append(event.replace(b'{"type"', b'{"odd":1,"type"', 1) + b"\n\n")
    return out


def _encoded(raw: bytes, target: str) -> list[bytes]:
    one = decode_all(raw, "openai-chat")[0]
    upstream = UpstreamStream("openai-chat")
    parts = upstream.feed(raw) + upstream.finish()
    assert parts == one.parts
    encoded = Encoded(DIALECTS[target], Context(), upstream.pipe)
    return [write_events(encoded.render(parts))]


@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
def test_a_stream_without_a_repair_is_forwarded_unchanged(size: int) -> None:
    for raw, dialect in (
        (b"".join(CHAT), "openai-chat"),
        (b"".join(responses()), "openai-responses"),
    ):
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        assert passthrough(pieces, dialect, WITH_USAGE) == raw


def test_usage_that_only_weft_requested_is_not_sent() -> None:
    assert passthrough(CHAT, "openai-chat", Request("m")) == b"".join(CHAT).replace(USAGE, b"")


def test_a_missing_terminator_is_added() -> None:
    for events, dialect in ((CHAT, "openai-chat"), (responses(), "openai-responses")):
        assert passthrough(events[:-1], dialect, WITH_USAGE) == b"".join(events)


def test_at_the_first_repair_the_encoder_takes_over_and_nothing_is_sent_twice() -> None:
    odd = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":7}}]}\n\n'
    raw = passthrough([*CHAT[:2], odd, *CHAT[2:]], "openai-chat", WITH_USAGE)
    assert raw.startswith(CHAT[0] + CHAT[1])
    assert odd not in raw
    assert CHAT[2] not in raw
    assert decode_all(raw, "openai-chat")[0].response.text == "Hel7lo"
    assert raw.count(b'"finish_reason":"stop"') == 1
    assert decode_all(raw, "openai-chat")[0].response.findings == ()


@pytest.mark.parametrize("cut", range(4, 10))
def test_after_the_takeover_numbers_continue_and_no_item_is_closed_twice(cut: int) -> None:
    events = responses()
    assert len(events) == 11
    raw = passthrough(events[:cut], "openai-responses")
    assert raw.startswith(b"".join(events[: min(cut, 6)]))  # later ones may wait for the item
    frames = FrameReader().feed(raw)
    numbers = [
        int(one.data.split(b'"sequence_number":')[1].split(b",")[0].rstrip(b"}"))
        for one in frames[:-1]
    ]
    assert numbers == list(range(5, 5 + len(numbers)))
    for name in (
        b"output_item.added",
        b"output_text.done",
        b"content_part.done",
        b"output_item.done",
    ):
        assert raw.count(b"event: response." + name) == 1
    assert [frame.event for frame in frames[-3:]] == ["error", "response.failed", ""]


def test_encoded_renders_the_client_dialect() -> None:
    (block,) = _encoded(b"".join(CHAT), "anthropic-messages")
    assert decode_all(block, "anthropic-messages")[0].response.text == "Hello"


def test_keepalives_are_those_of_the_dialect() -> None:
    ping = Event("ping", b'{"type":"ping"}')
    for dialect, event in (("anthropic-messages", ping), ("openai-chat", None)):
        for renderer in (Encoded, Passthrough):
            pipe = UpstreamStream(dialect).pipe
            assert renderer(DIALECTS[dialect], Context(), pipe).keepalive() == event


def test_a_messages_client_gets_the_model_name_it_requested() -> None:
    raw = b"".join(_encoded(b"".join(CHAT), "anthropic-messages"))
    assert raw.count(b'"model":"m"') == 1
    asked = Request("up/m", include_usage=True)
    pieces = [raw[at : at + 40] for at in range(0, len(raw), 40)]
    assert passthrough(pieces, "anthropic-messages", asked) == raw.replace(
        b'"model":"m"', b'"model":"up/m"'
    )
    assert passthrough(CHAT, "openai-chat", asked) == b"".join(CHAT)  # others take it as it is


def test_frames_after_the_end_are_dropped() -> None:
    assert passthrough([*CHAT, b"data: {nonsense\n\n"], "openai-chat", WITH_USAGE) == b"".join(CHAT)
    late = passthrough([b"".join([*CHAT, CHAT[1]])], "openai-chat", WITH_USAGE)
    assert decode_all(late, "openai-chat")[0].response.text == "Hello"
    assert late.endswith(CHAT[-1])
    assert late.count(CHAT[-1]) == 1
