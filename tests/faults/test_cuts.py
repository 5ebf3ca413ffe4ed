"""A stream that is cut, at every byte: what the client got is the beginning of the good one, and
then one error. No call of a turn that was cut can be dispatched."""

import re
from itertools import accumulate

import pytest

from tests.faults.upstream import FIN, RESET, Step
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    Object,
    error_ending,
    error_seen,
    event,
    frames_of,
    question,
    typed,
)
from tests.faults.world import World
from tests.raw_http import Answer
from weft import assemble, decode
from weft.dialects import DialectName


def _choice(delta: Object, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _call(**more: object) -> Object:
    return {"tool_calls": [{"index": 0, **more}]}


_ARGUMENTS = '{"a":1}'
_ITEM: Object = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}

_MESSAGE: Object = {"type": "message", "id": "m1", "role": "assistant"}
_TEXT: Object = {"type": "output_text", "text": "Hi", "annotations": []}
_PLACE: Object = {"item_id": "m1", "output_index": 0, "content_index": 0}
_CALLED: Object = {**_ITEM, "arguments": _ARGUMENTS}
_EVENTS: tuple[Object, ...] = (
    {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**_MESSAGE, "content": []}},
    {"type": "response.content_part.added", **_PLACE, "part": {**_TEXT, "text": ""}},
    {"type": "response.output_text.delta", **_PLACE, "delta": "Hi"},
    {"type": "response.output_text.done", **_PLACE, "text": "Hi"},
    {"type": "response.content_part.done", **_PLACE, "part": _TEXT},
    {"type": "response.output_item.done", "output_index": 0,
     "item": {**_MESSAGE, "content": [_TEXT], "status": "completed"}},
    {"type": "response.output_item.added", "output_index": 1, "item": {**_ITEM, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 1,
     "delta": _ARGUMENTS},
    {"type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 1,
     "arguments": _ARGUMENTS},
    {"type": "response.output_item.done", "output_index": 1,
     "item": {**_CALLED, "status": "completed"}},
    {"type": "response.completed", "response": {"id": "r1", "status": "completed"}},
)  # fmt: skip

STREAMS: dict[str, tuple[bytes, ...]] = {
    CHAT: (
        _choice({"content": "Hi"}),
        _choice(_call(id="c1", function={"name": "f", "arguments": '{"a":'})),
        _choice(_call(function={"arguments": "1}"})),
        _choice({}, "tool_calls"),
        b"data: [DONE]\n\n",
    ),
    RESPONSES: tuple(
        typed({**value, "sequence_number": number}) for number, value in enumerate(_EVENTS)
    ),
    MESSAGES: (
        typed({"type": "message_start", "message": {"id": "m1", "model": "m", "content": []}}),
        typed({"type": "content_block_start", "index": 0,
               "content_block": {"type": "text", "text": "Hi"}}),
        typed({"type": "content_block_stop", "index": 0}),
        typed({"type": "content_block_start", "index": 1,
               "content_block": {"type": "tool_use", "id": "c1", "name": "f", "input": {}}}),
        typed({"type": "content_block_delta", "index": 1,
               "delta": {"type": "input_json_delta", "partial_json": _ARGUMENTS}}),
        typed({"type": "content_block_stop", "index": 1}),
        typed({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        typed({"type": "message_stop"}),
    ),
    GEMINI: (
        event({"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]}),
        event({"candidates": [{"content": {"parts": [
            {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}}]}}]}),
        event({"candidates": [{"finishReason": "STOP"}]}),
    ),
}  # fmt: skip
TELLS_WHY = {CHAT: 3, RESPONSES: 11, MESSAGES: 6, GEMINI: 2}
"""The frame that tells why a stream ends: from there on a cut is an end."""

CLOSING = re.compile(r"response\.(\w+\.)*(done|completed)|error|response\.failed|")
"""Events that may follow where the good stream had others: what is open is closed first."""

_RANDOM = re.compile(rb'(?<=_)[0-9a-f]{32}|(?<=-)[0-9a-f]{32}|"created(_at)?":\d+|model-\d+')


def frames(body: bytes) -> list[tuple[str, bytes]]:
    """The events of a stream, without what differs each time."""
    return [(name, _RANDOM.sub(b"", data)) for name, data in frames_of(body)]


def cut_script(upstream: str, cut: int) -> list[Step]:
    """The stream up to a byte; then closed, or reset."""
    data = b"".join(STREAMS[upstream])[:cut]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    if cut % 2:
        return [head + b"Transfer-Encoding: chunked\r\n\r\n10000\r\n" + data, RESET]
    return [head + b"Connection: close\r\n\r\n" + data, FIN]


def judge(
    found: Answer,
    good: list[tuple[str, bytes]],
    client: DialectName,
    cut: int,
    end: int,
    reworded: bool,
) -> None:
    if found.status != 200:  # nothing was told
        error_seen(client, found.body)
        assert cut < end
        return
    response = assemble(decode([found.body], dialect=client))
    if response.error is None:
        assert cut >= end
        assert [(call.name, call.params) for call in response.tool_calls] == [("f", _ARGUMENTS)]
        return
    error_ending(client, found.body)
    assert response.finish_reason == "error"
    assert response.tool_calls == ()
    assert "Hi".startswith(response.text)
    told = frames(found.body)
    pairs = zip(told, good, strict=False)
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), len(told))
    assert same > 0 or reworded
    assert reworded or all(CLOSING.fullmatch(name) for name, _ in told[same:]), told[same:]


def lacks_its_blank_line(upstream: str, cut: int) -> bool:
    """Whether the last event is whole but for its blank line. It is told together with the error,
    so in our own words also where the good stream was told in those of the upstream."""
    ends = accumulate(map(len, STREAMS[upstream]))
    return any(end - 2 <= cut < end for end in ends)


def every_cut(world: World, client: DialectName, upstream: str, cuts: range) -> None:
    data = STREAMS[upstream]
    size = len(b"".join(data))
    end = len(b"".join(data[: TELLS_WHY[upstream] + 1])) - 2
    whole = world.upstream.script(cut_script(upstream, size + size % 2))
    # The script has one id: stored twice, it would be told under another.
    more = {"store": False} if client == upstream == "openai-responses" else {}
    good = frames(world.ask(client, f"{upstream}/{whole}", True, **more).body)
    with world.client() as connection:
        for cut in cuts:
            model = world.upstream.script(cut_script(upstream, cut))
            connection.send(question(client, f"{upstream}/{model}", True, **more))
            reworded = client == upstream and lacks_its_blank_line(upstream, cut)
            judge(connection.answer(), good, client, cut, end, reworded)


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("upstream", DIALECTS)
def test_a_cut_stream_is_the_beginning_of_the_good_one_and_an_error(
    shared: World, client: DialectName, upstream: str
) -> None:
    """At some bytes: together the pairs try most of them."""
    size = len(b"".join(STREAMS[upstream]))
    start = DIALECTS.index(client) * 3
    every_cut(shared, client, upstream, range(start, size + 1, 13))


@pytest.mark.long
@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("upstream", DIALECTS)
def test_a_stream_that_is_cut_at_any_byte_is_an_error(
    shared: World, client: DialectName, upstream: str
) -> None:
    every_cut(shared, client, upstream, range(len(b"".join(STREAMS[upstream])) + 1))
