"""One request on its way: what is tried, what is told, and how it ends."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest

from tests.played import BODY, Play, Played, PlayedAnswer
from weft import decode_all
from weft.dialects import DialectName
from weft.dialects.error_classes import class_of
from weft.parts import ErrorPart
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, RequestLimits
from weft.relay.request_record import RequestRecord
from weft.relay.routing import Routing
from weft.relay.run import Run
from weft.relay.stream import Stream
from weft.scrub import Scrubber, Secret
from weft.sse import Event, write_events
from weft.upstream.base import (
    BreakerPolicy,
    OutgoingRequest,
    RetryPolicy,
    Timeouts,
    Unreachable,
    UpstreamConfig,
)

T = TypeVar("T")
AT_ONCE = RetryPolicy(attempts=3, base=0.0, longest=1.0)
QUICK = RequestLimits(grace=0.05)
HEAD = b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
HELLO = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n'
STOP = b'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
GOOD = Play([HEAD, HELLO, STOP, DONE])
BAD = Play([b'{"error":{"message":"try later"}}'], 503, BODY)
ASKED: dict[str, dict[str, Any]] = {
    "openai-chat": {"model": "a/m", "messages": [{"role": "user", "content": "hi"}]},
    "openai-responses": {"model": "a/m", "input": "hi"},
    "anthropic-messages": {
        "model": "a/m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


def place(name: str = "a", dialect: str = "openai-chat", **more: object) -> UpstreamConfig:
    made = UpstreamConfig(
        name, dialect, "http://x", retry=AT_ONCE, origin="x", key=Secret("sk-planted")
    )
    return replace(made, **more)  # type: ignore[arg-type]


def asked(dialect: str = "openai-chat", stream: bool = True, **fields: Any) -> IncomingRequest:
    body = {**ASKED[dialect], **fields}
    if dialect != "gemini":
        body["stream"] = stream
    raw = RequestBody(dialect, json.dumps(body).encode())
    return IncomingRequest(raw, "a/m", stream, id="req_1")


@dataclass
class World:
    """A run, and what became of it."""

    upstreams: Sequence[Played]
    limits: RequestLimits = QUICK
    records: list[RequestRecord] = field(default_factory=list)

    def run(self, request: IncomingRequest, model: str | None = None) -> Run:
        names = {one.config.name: one for one in self.upstreams}
        routing = self.__dict__.setdefault("routing", Routing(names, {}))
        targets = [routing.targets(f"{name}/m")[0] for name in names]
        scrub = Scrubber([Secret("sk-planted")])
        return Run(request, targets, self.limits, scrub, (self.records.append,))

    async def told(self, request: IncomingRequest) -> bytes:
        run = self.run(request)
        try:
            stream = await run.open()
            events = []
            while some := await stream.next():
                events += some
            return write_events(events)
        finally:
            await run.close()

    async def whole(self, request: IncomingRequest) -> tuple[int, bytes]:
        run = self.run(request)
        try:
            stream = await run.open()
            return await stream.read_body()
        finally:
            await run.close()


def within(work: Callable[[], Awaitable[T]], seconds: float = 5.0) -> T:
    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await work()

    return asyncio.run(limited())


def failure(world: World, request: IncomingRequest) -> ErrorPart:
    with pytest.raises(RequestFailed) as failed:
        within(lambda: world.told(request))
    assert [record.error for record in world.records] == [failed.value.error]
    return failed.value.error


# Trying


@pytest.mark.parametrize(
    "first",
    [
        BAD,
        Unreachable("no connection"),
        Play([b'data: {"error":{"message":"busy","code":503}}\n\n']),
        Play([HEAD, Unreachable("reset", "truncated")]),
        Play([]),
        Play([b"<html><title>Bad Gateway</title></html>"], headers={"content-type": "text/html"}),
        Play([b"data: {nonsense\n\n"]),
    ],
    ids=["503", "unreachable", "error event", "cut before content", "empty", "page", "malformed"],
)
def test_what_fails_before_content_is_tried_again_and_nothing_of_it_is_told(
    first: Play | Exception,
) -> None:
    world = World([Played(place(), first, GOOD)])
    raw = within(lambda: world.told(asked("openai-responses")))
    assert decode_all(raw, "openai-responses")[0].response.text == "hello"
    assert raw.count(b"event: response.created") == 1
    (record,) = world.records
    assert [attempt.error is None for attempt in record.attempts] == [False, True]
    assert (record.status, record.error, record.upstream) == (200, None, "a")


def test_after_content_nothing_is_tried_again() -> None:
    upstream = Played(place(), Play([HEAD, HELLO, Unreachable("reset", "truncated")]), GOOD)
    world = World([upstream])
    raw = within(lambda: world.told(asked("openai-responses")))
    response = decode_all(raw, "openai-responses")[0].response
    assert (response.text, response.finish_reason, len(upstream.asked)) == ("hello", "error", 1)


@pytest.mark.parametrize("status", [400, 404, 401, 413, 422])
def test_what_would_be_the_same_again_is_not_tried_again(status: int) -> None:
    upstream = Played(place(), Play([b'{"error":{"message":"no"}}'], status, BODY), GOOD)
    failure(World([upstream]), asked())
    assert len(upstream.asked) == 1


def test_the_next_target_is_asked_and_says_so() -> None:
    world = World([Played(place("a"), BAD), Played(place("b"), GOOD)])
    within(lambda: world.told(asked()))
    (record,) = world.records
    assert [attempt.target for attempt in record.attempts] == ["a/m"] * 3 + ["b/m"]
    assert record.upstream == "b"


def test_a_bad_request_is_bad_everywhere() -> None:
    second = Played(place("b"), GOOD)
    world = World([Played(place("a"), Play([b'{"error":{"message":"no"}}'], 400, BODY)), second])
    assert class_of(failure(world, asked())) == "bad-request"
    assert second.asked == []


def test_what_one_target_cannot_say_another_may() -> None:
    world = World([Played(place("a", "anthropic-messages"), GOOD), Played(place("b"), GOOD)])
    within(lambda: world.told(asked(logit_bias={"7": 1})))
    assert world.records[0].upstream == "b"


def test_a_model_that_keeps_failing_is_paused() -> None:
    """Each request counts once, though it asks three times."""
    upstream = Played(place(breaker=BreakerPolicy(failures=2, open_for=60)), BAD)
    world = World([upstream])
    for number in (1, 2):
        assert failure(world, asked()).message == "try later"
        assert len(upstream.asked) == 3 * number
        world.records.clear()
    error = failure(world, asked())
    assert error.message == (
        'upstream "a", model "m": paused for 60 s after 2 failures in a row (last: HTTP 503)'
    )
    assert [attempt.error for attempt in world.records[0].attempts] == [error]
    assert len(upstream.asked) == 6


def test_proofs_that_are_refused_are_left_out_once_and_the_client_is_told() -> None:
    refusal = Play([b'{"error":{"message":"Invalid signature in thinking block"}}'], 400, BODY)
    answer = Play([(b'{"id":"m","type":"message","role":"assistant","model":"m","content":'
                   b'[{"type":"text","text":"ok"}],"stop_reason":"end_turn",'
                   b'"usage":{"input_tokens":1,"output_tokens":1}}')], 200, BODY)  # fmt: skip
    upstream = Played(place("a", "anthropic-messages"), refusal, answer)
    thought = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "yes"}]},
        {"role": "user", "content": "more"},
    ]
    world = World([upstream])
    status, _ = within(lambda: world.whole(asked("anthropic-messages", False, messages=said)))
    assert status == 200
    first, second = (one.body for one in upstream.asked)
    assert b"c2ln" in first
    assert b"c2ln" not in second
    assert ("messages", "warned") in [(one.path, one.outcome) for one in world.records[0].losses]


# Errors


def test_our_own_key_is_not_the_clients_and_is_not_shown() -> None:
    said = b'{"error":{"message":"Incorrect API key provided: sk-planted"}}'
    error = failure(World([Played(place(), Play([said], 401, BODY))]), asked())
    assert (class_of(error), error.status) == ("upstream-auth", 502)
    assert "sk-planted" not in error.message


def test_a_secret_inside_a_stream_is_not_shown() -> None:
    event = b'data: {"error":{"message":"key sk-planted is over","code":"server_error"}}\n\n'
    world = World([Played(place(), Play([HEAD, HELLO, event]))])
    raw = within(lambda: world.told(asked("anthropic-messages")))
    assert b"is over" in raw
    assert b"sk-planted" not in raw


def test_a_redirect_is_not_followed() -> None:
    moved = Play([b""], 307, {"location": "http://elsewhere"})
    upstream = Played(place(), moved)
    assert class_of(failure(World([upstream]), asked())) == "bad-upstream-answer"
    assert len(upstream.asked) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 2), ("messages", [{"role": "user", "content": "x"}] * 11), ("tools", "many")],
)
def test_a_request_that_is_too_much_is_refused_before_anybody_is_asked(
    field: str, value: object
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"a": "x" * 60}}}
    upstream = Played(place(), GOOD)
    world = World([upstream], RequestLimits(messages=10, tools=5, schema=50))
    fields: dict[str, Any] = {field: [tool] if value == "many" else value}
    error = failure(world, asked(**fields))
    assert (error.status, upstream.asked) == (400, [])


def test_a_lossy_request_is_refused_if_asked_to() -> None:
    upstream = Played(place(dialect="anthropic-messages"), GOOD)
    request = replace(asked(seed=7), reject_lossy=True)
    error = failure(World([upstream]), request)
    assert class_of(error) == "unsupported"
    assert error.message.startswith("seed: ")


# Time


def test_a_silent_upstream_is_a_timeout_and_is_closed() -> None:
    async def work() -> bytes:
        quick = replace(place(), timeouts=Timeouts(between_events=0.05))
        upstream = Played(quick, Play([HEAD, HELLO, asyncio.Event()]))
        raw = await World([upstream]).told(asked("openai-responses"))
        assert upstream.answers[0].aborted
        return raw

    response = decode_all(within(work), "openai-responses")[0].response
    assert (response.text, response.finish_reason) == ("hello", "error")
    assert response.error is not None
    assert "silent" in response.error.message


def test_after_a_finish_the_connection_gets_a_short_grace() -> None:
    async def work() -> bytes:
        upstream = Played(place(), Play([HEAD, HELLO, STOP, asyncio.Event()]))
        return await World([upstream]).told(asked("openai-responses"))

    assert decode_all(within(work), "openai-responses")[0].response.finish_reason == "stop"


def test_a_reset_after_the_finish_is_a_normal_end() -> None:
    world = World([Played(place(), Play([HEAD, HELLO, STOP, Unreachable("reset", "truncated")]))])
    raw = within(lambda: world.told(asked("anthropic-messages")))
    assert decode_all(raw, "anthropic-messages")[0].response.finish_reason == "stop"


def test_an_answer_that_takes_too_long_is_ended() -> None:
    async def work() -> bytes:
        upstream = Played(place(), Play([HEAD, HELLO, asyncio.Event()]))
        return await World([upstream], RequestLimits(duration=0.05)).told(asked("openai-chat"))

    raw = within(work)
    assert b"longer than 0.05 seconds" in raw
    assert raw.endswith(DONE)


def test_an_answer_that_is_too_large_is_ended() -> None:
    world = World([Played(place(), Play([HEAD, *[HELLO] * 100]))], RequestLimits(response=1000))
    raw = within(lambda: world.told(asked("gemini")))
    assert b"over 1000 bytes" in raw
    response = decode_all(raw, "gemini")[0].response
    assert response.finish_reason == "error"
    assert response.text.startswith("hellohello")


@pytest.mark.parametrize("told", [False, True], ids=["before content", "after content"])
def test_a_run_can_be_stopped_from_outside(told: bool) -> None:
    async def work() -> tuple[str, bytes]:
        upstream = Played(place(), Play([HEAD, *([HELLO] if told else []), asyncio.Event()]))
        world = World([upstream])
        run = world.run(asked())
        error = ErrorPart("internal", "closing time", status=503)
        asyncio.get_running_loop().call_later(0.05, run.stop, error)
        try:
            stream = await run.open()
            events = [*await stream.next(), *await stream.next(), *await stream.next()]
            return "", write_events(events)
        except RequestFailed as failed:
            return failed.error.message, b""
        finally:
            await run.close()
            assert upstream.answers[0].aborted

    message, raw = within(work)
    assert message == "closing time" if not told else b"closing time" in raw


def test_a_client_that_leaves_ends_the_upstream() -> None:
    async def work() -> World:
        upstream = Played(place(), Play([HEAD, HELLO, asyncio.Event()]))
        world = World([upstream])
        telling = asyncio.create_task(world.told(asked()))
        while not upstream.answers:
            await asyncio.sleep(0)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        assert upstream.answers[0].aborted
        return world

    (record,) = within(work).records
    assert (record.status, record.error and record.error.kind) == (499, "cancelled")


# Telling


@pytest.mark.parametrize("client", ASKED)
def test_a_stream_and_a_body_say_the_same(client: DialectName) -> None:
    raw = within(lambda: World([Played(place(), GOOD)]).told(asked(client)))
    body = Play(
        [(b'{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"message":'
         b'{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}')], 200, BODY
    )  # fmt: skip
    world = World([Played(place(), body)])
    status, whole = within(lambda: world.whole(asked(client, stream=False)))
    streamed, told = (decode_all(one, client)[0].response for one in (raw, whole))
    assert (status, streamed.text, told.text) == (200, "hello", "hello")
    assert streamed.finish_reason == told.finish_reason == "stop"


def test_bytes_of_the_same_dialect_are_passed_on() -> None:
    request = asked("openai-chat", stream_options={"include_usage": True})
    assert (
        within(lambda: World([Played(place(), GOOD)]).told(request)) == HEAD + HELLO + STOP + DONE
    )
    odd = (
        b'{"odd":1,"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"},'
        b'"finish_reason":"stop"}],"id":"1"}'
    )
    world = World([Played(place(), Play([odd[:9], odd[9:]], 200, BODY))])
    assert within(lambda: world.whole(asked(stream=False))) == (200, odd)


def test_an_error_in_a_body_has_a_status() -> None:
    broken = b'{"id":"1","choices":[{"index":0,"message":{"content":"x"}}]}'
    world = World([Played(place(), Play([broken], 200, BODY))])
    status, body = within(lambda: world.whole(asked("openai-responses", stream=False)))
    assert (status, b'"error"' in body) == (502, True)


def test_a_stream_that_never_was_ends_in_its_dialect() -> None:
    async def work() -> tuple[Event | None, bytes]:
        run = World([Played(place(), GOOD)]).run(asked("anthropic-messages"))
        try:
            return run.keepalive(), write_events(
                await run.error_events(ErrorPart("timeout", "too slow"))
            )
        finally:
            await run.close()

    keepalive, ending = within(work)
    assert keepalive == Event("ping", b'{"type":"ping"}')
    assert b"event: error" in ending
    assert b"too slow" in ending


# Pauses


def message(text: str, reason: str) -> list[bytes]:
    def event(kind: str, **more: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()

    head: dict[str, Any] = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
    }
    head |= {"stop_reason": None, "stop_sequence": None}
    head["usage"] = {"input_tokens": 10, "output_tokens": 1}
    return [
        event("message_start", message=head),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 5}),
        event("message_stop"),
    ]


PAUSED = Play(message("one ", "pause_turn"))
ENDED = Play(message("two", "end_turn"))


@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "gemini"])
def test_a_pause_is_gone_on_with_in_one_stream(client: DialectName) -> None:
    upstream = Played(place(dialect="anthropic-messages"), PAUSED, PAUSED, ENDED)
    usage: dict[str, Any] = {"stream_options": {"include_usage": True}}
    request = asked(client, **(usage if "chat" in client else {}))
    raw = within(lambda: World([upstream]).told(request))
    response = decode_all(raw, client)[0].response
    assert (response.text, response.finish_reason) == ("one one two", "stop")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (30, 15)
    first, second, third = (json.loads(one.body)["messages"] for one in upstream.asked)
    said = [{"type": "text", "text": "one "}]
    assert second == [*first, {"role": "assistant", "content": said}]
    assert third == [*first, {"role": "assistant", "content": said * 2}]


def test_a_client_that_knows_pauses_is_told_of_them() -> None:
    upstream = Played(place(dialect="anthropic-messages"), PAUSED, ENDED)
    raw = within(lambda: World([upstream]).told(asked("anthropic-messages")))
    assert decode_all(raw, "anthropic-messages")[0].response.finish_reason == "pause"
    assert len(upstream.asked) == 1


def test_nobody_pauses_for_ever() -> None:
    upstream = Played(place(dialect="anthropic-messages"), PAUSED)
    raw = within(lambda: World([upstream]).told(asked("openai-chat")))
    assert decode_all(raw, "openai-chat")[0].response.finish_reason == "length"
    assert len(upstream.asked) == 6


def test_a_run_can_be_stopped_while_it_asks_for_the_rest_of_a_pause() -> None:
    async def work() -> bytes:
        never = Play(head=asyncio.Event())
        upstream = Played(place(dialect="anthropic-messages"), PAUSED, never)
        run = World([upstream]).run(asked("openai-chat"))
        try:
            stream = await run.open()
            told = await stream.next()
            asyncio.get_running_loop().call_later(0.05, run.stop, ErrorPart("internal", "closing"))
            while events := await stream.next():
                told += events
            return write_events(told)
        finally:
            await run.close()

    response = decode_all(within(work), "openai-chat")[0].response
    assert (response.text, response.finish_reason) == ("one ", "error")
    assert response.error is not None
    assert response.error.message == "closing"


@pytest.mark.parametrize(
    ("second", "message"), [(BAD, "try later"), (Unreachable("gone"), "gone")], ids=["503", "gone"]
)
def test_a_pause_that_does_not_go_on_is_an_error_in_the_upstreams_words(
    second: Play | Exception, message: str
) -> None:
    upstream = Played(place(dialect="anthropic-messages"), PAUSED, second)
    raw = within(lambda: World([upstream]).told(asked("openai-chat")))
    response = decode_all(raw, "openai-chat")[0].response
    assert (response.text, response.finish_reason) == ("one ", "error")
    assert response.error is not None
    assert response.error.message == message


# Flowing


class FlowingAnswer(PlayedAnswer):
    """Hands on what it has, as a network would."""

    async def stream_to(self, take: Callable[[bytes], bool]) -> None:
        while self._pieces and not self.aborted and not isinstance(self._pieces[0], Exception):
            piece = self._pieces[0]
            if isinstance(piece, asyncio.Event):
                await self._either(piece)
            del self._pieces[0]
            if isinstance(piece, bytes) and not take(piece):
                return


class FlowingUpstream(Played):
    async def send(self, outgoing: OutgoingRequest) -> PlayedAnswer:
        played = await super().send(outgoing)
        play = Play(played._pieces, played.status, played.headers)
        self.answers[-1] = answer = FlowingAnswer(play)
        return answer


ECHOED = asked("openai-chat", stream_options={"include_usage": True})


@dataclass
class Flow:
    """A run that is told as the gateway tells it; `room` says after which writes there is none."""

    run: Run
    stream: Stream
    room: Callable[[int], bool] = lambda number: True
    written: list[bytes] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)

    def write(self, events: list[Event]) -> bool:
        self.written.append(write_events(events))
        return self.room(len(self.written))

    async def next(self) -> bytes:
        self.read.append(write_events(await self.stream.next()))
        return self.read[-1]

    async def all(self) -> bytes:
        told = b""
        while block := await self.next():
            done = len(self.written)
            await self.stream.flow(self.write)
            told += block + b"".join(self.written[done:])
        await self.stream.flow(self.write)
        assert await self.stream.next() == []
        return told


def flowing(
    world: World,
    work: Callable[[Flow], Awaitable[T]],
    request: IncomingRequest = ECHOED,
    seconds: float = 5,
) -> T:
    async def main() -> T:
        run = world.run(request)
        try:
            return await work(Flow(run, await run.open()))
        finally:
            await run.close()

    return within(main, seconds)


def test_blocks_are_written_as_they_come_until_the_answer_ends() -> None:
    world = World([FlowingUpstream(place(), Play([HEAD, HELLO, HELLO, HELLO, STOP, DONE]))])

    async def work(flow: Flow) -> list[list[bytes]]:
        await flow.next()
        await flow.stream.flow(flow.write)
        await flow.next()
        return [flow.read, flow.written]

    assert flowing(world, work) == [[HEAD + HELLO, b""], [HELLO, HELLO, STOP + DONE]]
    (record,) = world.records
    assert (record.bytes_in, record.error) == (len(HEAD + 3 * HELLO + STOP + DONE), None)


def test_where_there_is_no_room_the_next_block_is_asked_for() -> None:
    world = World([FlowingUpstream(place(), Play([HEAD, *[HELLO] * 5, STOP, DONE]))])

    async def work(flow: Flow) -> tuple[list[bytes], list[bytes]]:
        flow.room = lambda number: number % 2 != 0
        await flow.all()
        return flow.read, flow.written

    assert flowing(world, work) == (
        [HEAD + HELLO, HELLO, b""],
        [HELLO, HELLO, HELLO, STOP + DONE],
    )


def many(*texts: str) -> list[bytes]:
    return [HELLO.replace(b"hello", text.encode()) for text in texts]


TOLD: dict[str, tuple[str, Play | Exception]] = {
    "an answer": ("openai-chat", Play([HEAD, *many("a", "b", "c"), STOP, DONE])),
    "no end": ("openai-chat", Play([HEAD, *many("a", "b", "c")])),
    "events cut in pieces": (
        "openai-chat",
        Play([HEAD, *many("a"), HELLO[:9], HELLO[9:50], HELLO[50:] + STOP[:9], STOP[9:], DONE]),
    ),
    "a reset": ("openai-chat", Play([HEAD, *many("a", "b"), Unreachable("reset", "truncated")])),
    "an error": (
        "openai-chat",
        Play([HEAD, *many("a", "b"), b'data: {"error":{"message":"no"}}\n\n', *many("c"), DONE]),
    ),
    "too much": ("openai-chat", Play([HEAD, *many("a" * 400, "b" * 400, "c" * 400), STOP, DONE])),
    "more behind the end": ("openai-chat", Play([HEAD, *many("a", "b"), STOP, DONE, HELLO, DONE])),
    "a pause": ("anthropic-messages", Play(message("one ", "pause_turn"))),
    "a pause in one piece": (
        "anthropic-messages",
        Play([b"".join(message("one ", "pause_turn"))]),
    ),
}


@pytest.mark.parametrize("client", ASKED)
@pytest.mark.parametrize("case", TOLD)
def test_what_flows_is_what_would_have_been_told(case: str, client: DialectName) -> None:
    dialect, play = TOLD[case]
    plays = (play, Play(message("two", "end_turn"))) if "pause" in case else (play,)
    limits = RequestLimits(grace=0.05, response=1000 if case == "too much" else 100_000)
    told = []
    for kind in (Played, FlowingUpstream):
        upstream = kind(place(dialect=dialect), *plays)
        world = World([upstream], limits)
        raw = flowing(world, lambda flow: flow.all(), asked(client))
        response = decode_all(raw, client)[0].response
        (record,) = world.records
        texts = (response.text, response.finish_reason, response.error, response.usage)
        told.append((*texts, len(upstream.asked), record.bytes_in, record.error))
    assert told[0] == told[1]


def test_a_run_is_stopped_while_it_flows_and_the_next_block_tells_it() -> None:
    upstream = FlowingUpstream(place(), Play([HEAD, HELLO, HELLO, asyncio.Event(), HELLO]))

    async def work(flow: Flow) -> list[bytes]:
        def write(events: list[Event]) -> bool:
            error = ErrorPart("internal", "closing time", status=503)
            asyncio.get_running_loop().call_soon(flow.run.stop, error)
            return flow.write(events)

        told = [await flow.next()]
        await flow.stream.flow(write)
        return [*told, *flow.written, await flow.next(), await flow.next()]

    first, second, third, end = flowing(World([upstream]), work)
    assert (first, second, end) == (HEAD + HELLO, HELLO, b"")
    assert b"closing time" in third
    assert upstream.answers[0].aborted


def test_a_run_that_was_stopped_does_not_flow() -> None:
    upstream = FlowingUpstream(place(), Play([HEAD, HELLO, HELLO, asyncio.Event(), HELLO]))

    async def work(flow: Flow) -> list[bytes]:
        told = [await flow.next()]
        flow.run.stop(ErrorPart("internal", "closing time", status=503))
        await flow.stream.flow(flow.write)
        return [*told, *flow.written, await flow.next(), await flow.next()]

    first, second, end = flowing(World([upstream]), work, seconds=0.5)
    assert (first, end) == (HEAD + HELLO, b"")
    assert b"closing time" in second


def test_an_upstream_that_falls_silent_while_it_flows_is_a_timeout() -> None:
    quick = replace(place(), timeouts=Timeouts(between_events=0.05))
    upstream = FlowingUpstream(quick, Play([HEAD, HELLO, HELLO, asyncio.Event()]))
    raw = flowing(World([upstream]), lambda flow: flow.all(), asked("openai-responses"))
    response = decode_all(raw, "openai-responses")[0].response
    assert (response.text, response.finish_reason) == ("hellohello", "error")
    assert response.error is not None
    assert "silent" in response.error.message


@pytest.mark.parametrize(
    "pieces",
    [
        message("one ", "pause_turn"),
        [b"".join(message("one ", "pause_turn"))],
    ],
    ids=["while it flows", "before"],
)
def test_where_a_turn_pauses_nothing_more_flows(pieces: list[bytes]) -> None:
    async def work() -> tuple[bytes, bool]:
        paused = Play([*pieces, asyncio.Event()])
        upstream = FlowingUpstream(place(dialect="anthropic-messages"), paused, ENDED)
        run = World([upstream]).run(asked("openai-chat"))
        try:
            flow = Flow(run, await run.open())
            return await flow.all(), upstream.answers[0].aborted
        finally:
            await run.close()

    raw, aborted = within(work, 0.5)
    response = decode_all(raw, "openai-chat")[0].response
    assert (response.text, response.finish_reason, aborted) == ("one two", "stop", True)


def test_a_fault_of_the_writer_is_the_callers() -> None:
    world = World([FlowingUpstream(place(), Play([HEAD, HELLO, HELLO, STOP, DONE]))])

    async def work(flow: Flow) -> None:
        def write(events: list[Event]) -> bool:
            raise LookupError(events)

        await flow.next()
        with pytest.raises(LookupError):
            await flow.stream.flow(write)

    flowing(world, work)


def test_what_is_no_stream_tells_nothing_while_it_flows() -> None:
    async def work() -> tuple[int, bytes]:
        run = World([FlowingUpstream(place(), GOOD)]).run(asked(stream=False))
        try:
            stream = await run.open()
            await stream.flow(lambda events: False)
            return await stream.read_body()
        finally:
            await run.close()

    status, body = within(work)
    assert (status, decode_all(body, "openai-chat")[0].response.text) == (200, "hello")


def test_a_client_that_leaves_while_it_flows_ends_the_upstream() -> None:
    async def work() -> World:
        upstream = FlowingUpstream(place(), Play([HEAD, HELLO, HELLO, asyncio.Event()]))
        world = World([upstream])
        written = asyncio.Event()

        def write(events: list[Event]) -> bool:
            written.set()
            return True

        async def tell() -> None:
            run = world.run(ECHOED)
            try:
                stream = await run.open()
                await stream.next()
                await stream.flow(write)
            finally:
                await run.close()

        telling = asyncio.create_task(tell())
        await written.wait()
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        assert upstream.answers[0].aborted
        return world

    (record,) = within(work).records
    assert (record.status, record.error and record.error.kind) == (499, "cancelled")
