"""One request: which targets are tried, what is sent to the client, and how it ends."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import pytest

from tests.played import BODY, Play, Played, PlayedAnswer
from tests.tables import each_row
from weft import decode_all
from weft.dialects import DialectName
from weft.dialects.error_classes import class_of
from weft.parts import ErrorPart
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, RequestLimits
from weft.relay.request_record import Observer, RequestRecord
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
REQUEST_BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"model": "a/m", "messages": [{"role": "user", "content": "hi"}]},
    "openai-responses": {"model": "a/m", "input": "hi"},
    "anthropic-messages": {
        "model": "a/m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


def upstream_config(
    name: str = "a", dialect: str = "openai-chat", **more: object
) -> UpstreamConfig:
    made = UpstreamConfig(
        name, dialect, "http://x", retry=AT_ONCE, origin="x", key=Secret("sk-planted")
    )
    return replace(made, **more)  # type: ignore[arg-type]


def incoming_request(
    dialect: str = "openai-chat", stream: bool = True, **fields: Any
) -> IncomingRequest:
    body = {**REQUEST_BODIES[dialect], **fields}
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
    observers: Sequence[Observer] = ()

    def run(self, request: IncomingRequest, model: str | None = None) -> Run:
        names = {one.config.name: one for one in self.upstreams}
        routing = self.__dict__.setdefault("routing", Routing(names, {}))
        targets = [routing.targets(f"{name}/m")[0] for name in names]
        scrub = Scrubber([Secret("sk-planted")])
        return Run(request, targets, self.limits, scrub, (*self.observers, self.records.append))

    async def stream(self, request: IncomingRequest) -> bytes:
        run = self.run(request)
        try:
            stream = await run.open()
            events = []
            while some := await stream.next():
                events += some
            return write_events(events)
        finally:
            await run.close()

    async def body(self, request: IncomingRequest) -> tuple[int, bytes]:
        run = self.run(request)
        try:
            stream = await run.open()
            return await stream.read_body()
        finally:
            await run.close()


def within(work: Callable[[], Awaitable[T]], seconds: float = 60.0) -> T:
    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await work()

    return asyncio.run(limited())


def failure(world: World, request: IncomingRequest) -> ErrorPart:
    with pytest.raises(RequestFailed) as failed:
        within(lambda: world.stream(request))
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
def test_a_failure_before_content_is_retried_and_nothing_of_it_is_sent(
    first: Play | Exception,
) -> None:
    world = World([Played(upstream_config(), first, GOOD)])
    raw = within(lambda: world.stream(incoming_request("openai-responses")))
    assert decode_all(raw, "openai-responses")[0].response.text == "hello"
    assert raw.count(b"event: response.created") == 1
    (record,) = world.records
    assert [attempt.error is None for attempt in record.attempts] == [False, True]
    assert (record.status, record.error, record.upstream) == (200, None, "a")


def test_after_content_nothing_is_retried() -> None:
    upstream = Played(
        upstream_config(), Play([HEAD, HELLO, Unreachable("reset", "truncated")]), GOOD
    )
    world = World([upstream])
    raw = within(lambda: world.stream(incoming_request("openai-responses")))
    response = decode_all(raw, "openai-responses")[0].response
    assert (response.text, response.finish_reason, len(upstream.asked)) == ("hello", "error", 1)


@pytest.mark.parametrize("status", [400, 404, 401, 413, 422])
def test_errors_that_would_repeat_are_not_retried(status: int) -> None:
    upstream = Played(upstream_config(), Play([b'{"error":{"message":"no"}}'], status, BODY), GOOD)
    failure(World([upstream]), incoming_request())
    assert len(upstream.asked) == 1


def test_the_next_target_is_tried_and_reported() -> None:
    world = World([Played(upstream_config("a"), BAD), Played(upstream_config("b"), GOOD)])
    within(lambda: world.stream(incoming_request()))
    (record,) = world.records
    assert [attempt.target for attempt in record.attempts] == ["a/m"] * 3 + ["b/m"]
    assert record.upstream == "b"


def test_after_a_bad_request_no_other_target_is_tried() -> None:
    second = Played(upstream_config("b"), GOOD)
    world = World(
        [Played(upstream_config("a"), Play([b'{"error":{"message":"no"}}'], 400, BODY)), second]
    )
    assert class_of(failure(world, incoming_request())) == "bad-request"
    assert second.asked == []


def test_a_request_that_one_target_cannot_express_goes_to_the_next() -> None:
    world = World(
        [
            Played(upstream_config("a", "anthropic-messages"), GOOD),
            Played(upstream_config("b"), GOOD),
        ]
    )
    within(lambda: world.stream(incoming_request(logit_bias={"7": 1})))
    assert world.records[0].upstream == "b"


def test_an_error_body_that_stalls_is_used_as_far_as_it_came() -> None:
    async def work() -> ErrorPart:
        stalled = Play([b'{"error":{"message":"try', asyncio.Event()], 503, BODY)
        timeouts = Timeouts(between_events=0.05)
        upstream = Played(upstream_config(timeouts=timeouts), stalled)
        with pytest.raises(RequestFailed) as failed:
            await World([upstream]).stream(incoming_request())
        assert len(upstream.asked) == 3
        assert all(one.aborted for one in upstream.answers)
        return failed.value.error

    assert within(work).status == 503


def test_a_model_that_keeps_failing_is_paused() -> None:
    """Each request counts once, though it asks three times."""
    upstream = Played(upstream_config(breaker=BreakerPolicy(failures=2, open_for=60)), BAD)
    world = World([upstream])
    for number in (1, 2):
        assert failure(world, incoming_request()).message == "try later"
        assert len(upstream.asked) == 3 * number
        world.records.clear()
    error = failure(world, incoming_request())
    paused = re.fullmatch(
        r'upstream "a", model "m": paused for (\d+) s after 2 failures in a row \(last: HTTP 503\)',
        error.message,
    )
    assert paused is not None, error.message
    assert 30 < int(paused[1]) <= 60
    assert [attempt.error for attempt in world.records[0].attempts] == [error]
    assert len(upstream.asked) == 6


def test_refused_reasoning_is_dropped_once_with_a_warning() -> None:
    refusal = Play([b'{"error":{"message":"Invalid signature in thinking block"}}'], 400, BODY)
    answer = Play([(b'{"id":"m","type":"message","role":"assistant","model":"m","content":'
                   b'[{"type":"text","text":"ok"}],"stop_reason":"end_turn",'
                   b'"usage":{"input_tokens":1,"output_tokens":1}}')], 200, BODY)  # fmt: skip
    upstream = Played(upstream_config("a", "anthropic-messages"), refusal, answer)
    thought = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "yes"}]},
        {"role": "user", "content": "more"},
    ]
    world = World([upstream])
    status, _ = within(
        lambda: world.body(incoming_request("anthropic-messages", False, messages=said))
    )
    assert status == 200
    first, second = (one.body for one in upstream.asked)
    assert b"c2ln" in first
    assert b"c2ln" not in second
    assert ("messages", "warned") in [(one.path, one.outcome) for one in world.records[0].losses]


# Errors


def test_a_rejected_key_of_ours_is_not_reported_as_the_clients() -> None:
    said = b'{"error":{"message":"Incorrect API key provided: sk-planted"}}'
    error = failure(World([Played(upstream_config(), Play([said], 401, BODY))]), incoming_request())
    assert (class_of(error), error.status) == ("upstream-auth", 502)
    assert "sk-planted" not in error.message


def test_a_secret_in_a_stream_is_redacted() -> None:
    event = b'data: {"error":{"message":"key sk-planted is over","code":"server_error"}}\n\n'
    world = World([Played(upstream_config(), Play([HEAD, HELLO, event]))])
    raw = within(lambda: world.stream(incoming_request("anthropic-messages")))
    assert b"is over" in raw
    assert b"sk-planted" not in raw


def test_a_redirect_is_not_followed() -> None:
    moved = Play([b""], 307, {"location": "http://elsewhere"})
    upstream = Played(upstream_config(), moved)
    assert class_of(failure(World([upstream]), incoming_request())) == "bad-upstream-answer"
    assert len(upstream.asked) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 2), ("messages", [{"role": "user", "content": "x"}] * 11), ("tools", "many")],
)
def test_a_request_over_a_limit_is_refused_before_it_is_sent(field: str, value: object) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"a": "x" * 60}}}
    upstream = Played(upstream_config(), GOOD)
    world = World([upstream], RequestLimits(messages=10, tools=5, schema=50))
    fields: dict[str, Any] = {field: [tool] if value == "many" else value}
    error = failure(world, incoming_request(**fields))
    assert (error.status, upstream.asked) == (400, [])


def test_a_lossy_request_is_refused_if_asked_to() -> None:
    upstream = Played(upstream_config(dialect="anthropic-messages"), GOOD)
    request = msgspec.structs.replace(incoming_request(seed=7), reject_lossy=True)
    error = failure(World([upstream]), request)
    assert class_of(error) == "unsupported"
    assert error.message.startswith("seed: ")


# Time


def test_a_silent_upstream_is_a_timeout_and_is_closed() -> None:
    async def work() -> bytes:
        quick = replace(upstream_config(), timeouts=Timeouts(between_events=0.05))
        upstream = Played(quick, Play([HEAD, HELLO, asyncio.Event()]))
        raw = await World([upstream]).stream(incoming_request("openai-responses"))
        assert upstream.answers[0].aborted
        return raw

    response = decode_all(within(work), "openai-responses")[0].response
    assert (response.text, response.finish_reason) == ("hello", "error")
    assert response.error is not None
    assert "sent nothing" in response.error.message


def test_after_a_finish_the_connection_gets_a_short_grace() -> None:
    async def work() -> bytes:
        upstream = Played(upstream_config(), Play([HEAD, HELLO, STOP, asyncio.Event()]))
        return await World([upstream]).stream(incoming_request("openai-responses"))

    assert decode_all(within(work), "openai-responses")[0].response.finish_reason == "stop"


def test_a_reset_after_the_finish_is_a_normal_end() -> None:
    world = World(
        [Played(upstream_config(), Play([HEAD, HELLO, STOP, Unreachable("reset", "truncated")]))]
    )
    raw = within(lambda: world.stream(incoming_request("anthropic-messages")))
    assert decode_all(raw, "anthropic-messages")[0].response.finish_reason == "stop"


def test_a_response_over_the_time_limit_is_ended() -> None:
    async def work() -> bytes:
        upstream = Played(upstream_config(), Play([HEAD, HELLO, asyncio.Event()]))
        return await World([upstream], RequestLimits(duration=0.05)).stream(
            incoming_request("openai-chat")
        )

    raw = within(work)
    assert b"longer than 0.05 seconds" in raw
    assert raw.endswith(DONE)


def test_a_response_over_the_size_limit_is_ended() -> None:
    world = World(
        [Played(upstream_config(), Play([HEAD, *[HELLO] * 100]))], RequestLimits(response=1000)
    )
    raw = within(lambda: world.stream(incoming_request("gemini")))
    assert b"over 1000 bytes" in raw
    response = decode_all(raw, "gemini")[0].response
    assert response.finish_reason == "error"
    assert response.text.startswith("hellohello")


@pytest.mark.parametrize("told", [False, True], ids=["before content", "after content"])
def test_a_run_can_be_stopped_from_outside(told: bool) -> None:
    async def work() -> tuple[str, bytes]:
        upstream = Played(
            upstream_config(), Play([HEAD, *([HELLO] if told else []), asyncio.Event()])
        )
        world = World([upstream])
        run = world.run(incoming_request())
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


def test_a_client_that_disconnects_ends_the_upstream_request() -> None:
    async def work() -> World:
        upstream = Played(upstream_config(), Play([HEAD, HELLO, asyncio.Event()]))
        world = World([upstream])
        telling = asyncio.create_task(world.stream(incoming_request()))
        while not upstream.answers:
            await asyncio.sleep(0)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        assert upstream.answers[0].aborted
        return world

    (record,) = within(work).records
    assert (record.status, record.error and record.error.kind) == (499, "cancelled")


# Telling


@pytest.mark.parametrize("client", REQUEST_BODIES)
def test_a_stream_and_a_body_have_the_same_content(client: DialectName) -> None:
    raw = within(lambda: World([Played(upstream_config(), GOOD)]).stream(incoming_request(client)))
    body = Play(
        [(b'{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"message":'
         b'{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}')], 200, BODY
    )  # fmt: skip
    world = World([Played(upstream_config(), body)])
    status, whole = within(lambda: world.body(incoming_request(client, stream=False)))
    streamed, told = (decode_all(one, client)[0].response for one in (raw, whole))
    assert (status, streamed.text, told.text) == (200, "hello", "hello")
    assert streamed.finish_reason == told.finish_reason == "stop"


def test_bodies_of_the_same_dialect_are_passed_through() -> None:
    request = incoming_request("openai-chat", stream_options={"include_usage": True})
    assert (
        within(lambda: World([Played(upstream_config(), GOOD)]).stream(request))
        == HEAD + HELLO + STOP + DONE
    )
    odd = (
        b'{"odd":1,"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"},'
        b'"finish_reason":"stop"}],"id":"1"}'
    )
    world = World([Played(upstream_config(), Play([odd[:9], odd[9:]], 200, BODY))])
    assert within(lambda: world.body(incoming_request(stream=False))) == (200, odd)


def test_an_error_in_a_body_has_a_status() -> None:
    broken = b'{"id":"1","choices":[{"index":0,"message":{"content":"x"}}]}'
    world = World([Played(upstream_config(), Play([broken], 200, BODY))])
    status, body = within(lambda: world.body(incoming_request("openai-responses", stream=False)))
    assert (status, b'"error"' in body) == (502, True)


def test_a_stream_without_a_response_ends_with_an_error_in_its_dialect() -> None:
    async def work() -> tuple[Event | None, bytes]:
        run = World([Played(upstream_config(), GOOD)]).run(incoming_request("anthropic-messages"))
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
def test_a_paused_turn_is_continued_in_the_same_stream(client: DialectName) -> None:
    upstream = Played(upstream_config(dialect="anthropic-messages"), PAUSED, PAUSED, ENDED)
    usage: dict[str, Any] = {"stream_options": {"include_usage": True}}
    request = incoming_request(client, **(usage if "chat" in client else {}))
    raw = within(lambda: World([upstream]).stream(request))
    response = decode_all(raw, client)[0].response
    assert (response.text, response.finish_reason) == ("one one two", "stop")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (30, 15)
    first, second, third = (json.loads(one.body)["messages"] for one in upstream.asked)
    said = [{"type": "text", "text": "one "}]
    assert second == [*first, {"role": "assistant", "content": said}]
    assert third == [*first, {"role": "assistant", "content": said * 2}]


OVERLOADED = Play([HEAD, b'data: {"error":{"message":"overloaded","code":503}}\n\n', DONE])


@pytest.mark.parametrize(
    ("dialect", "first", "second", "text"),
    [("openai-chat", OVERLOADED, GOOD, "hello"), ("anthropic-messages", PAUSED, ENDED, "one two")],
    ids=["the next attempt", "the next turn"],
)
def test_a_stream_that_ended_sets_no_timeout_for_the_next_head(
    dialect: str, first: Play, second: Play, text: str
) -> None:
    """Its head comes when the grace of the first stream is long over."""

    async def work() -> bytes:
        head = asyncio.Event()
        asyncio.get_running_loop().call_later(5 * QUICK.grace, head.set)
        upstream = Played(upstream_config(dialect=dialect), first, replace(second, head=head))
        return await World([upstream]).stream(incoming_request())

    response = decode_all(within(work), "openai-chat")[0].response
    assert (response.text, response.finish_reason) == (text, "stop")


def test_a_client_whose_dialect_has_pauses_gets_them() -> None:
    upstream = Played(upstream_config(dialect="anthropic-messages"), PAUSED, ENDED)
    raw = within(lambda: World([upstream]).stream(incoming_request("anthropic-messages")))
    assert decode_all(raw, "anthropic-messages")[0].response.finish_reason == "pause"
    assert len(upstream.asked) == 1


def test_pauses_are_limited() -> None:
    upstream = Played(upstream_config(dialect="anthropic-messages"), PAUSED)
    raw = within(lambda: World([upstream]).stream(incoming_request("openai-chat")))
    assert decode_all(raw, "openai-chat")[0].response.finish_reason == "length"
    assert len(upstream.asked) == 6


def test_a_run_can_be_stopped_while_it_requests_the_next_turn() -> None:
    async def work() -> bytes:
        never = Play(head=asyncio.Event())
        upstream = Played(upstream_config(dialect="anthropic-messages"), PAUSED, never)
        run = World([upstream]).run(incoming_request("openai-chat"))
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
def test_a_failed_continuation_is_the_error_of_the_upstream(
    second: Play | Exception, message: str
) -> None:
    upstream = Played(upstream_config(dialect="anthropic-messages"), PAUSED, second)
    raw = within(lambda: World([upstream]).stream(incoming_request("openai-chat")))
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


ECHOED = incoming_request("openai-chat", stream_options={"include_usage": True})


@dataclass
class Flow:
    """A run that is written as the gateway does; `room` says after which writes there is none."""

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
) -> T:
    async def main() -> T:
        run = world.run(request)
        try:
            return await work(Flow(run, await run.open()))
        finally:
            await run.close()

    return within(main)


def test_events_are_written_as_they_arrive_until_the_response_ends() -> None:
    world = World(
        [FlowingUpstream(upstream_config(), Play([HEAD, HELLO, HELLO, HELLO, STOP, DONE]))]
    )

    async def work(flow: Flow) -> list[list[bytes]]:
        await flow.next()
        await flow.stream.flow(flow.write)
        await flow.next()
        return [flow.read, flow.written]

    assert flowing(world, work) == [[HEAD + HELLO, b""], [HELLO, HELLO, STOP + DONE]]
    (record,) = world.records
    assert (record.bytes_in, record.error) == (len(HEAD + 3 * HELLO + STOP + DONE), None)


def test_without_room_the_next_events_are_pulled() -> None:
    world = World([FlowingUpstream(upstream_config(), Play([HEAD, *[HELLO] * 5, STOP, DONE]))])

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


@each_row("client", REQUEST_BODIES)
@each_row("case", TOLD)
def test_flowing_events_equal_pulled_events(case: str, client: DialectName) -> None:
    dialect, play = TOLD[case]
    plays = (play, Play(message("two", "end_turn"))) if "pause" in case else (play,)
    limits = RequestLimits(grace=0.05, response=1000 if case == "too much" else 100_000)
    told = []
    for kind in (Played, FlowingUpstream):
        upstream = kind(upstream_config(dialect=dialect), *plays)
        world = World([upstream], limits)
        raw = flowing(world, lambda flow: flow.all(), incoming_request(client))
        response = decode_all(raw, client)[0].response
        (record,) = world.records
        texts = (response.text, response.finish_reason, response.error, response.usage)
        told.append((*texts, len(upstream.asked), record.bytes_in, record.error))
    assert told[0] == told[1]


def test_a_run_stopped_while_it_flows_ends_with_the_next_events() -> None:
    upstream = FlowingUpstream(
        upstream_config(), Play([HEAD, HELLO, HELLO, asyncio.Event(), HELLO])
    )

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
    upstream = FlowingUpstream(
        upstream_config(), Play([HEAD, HELLO, HELLO, asyncio.Event(), HELLO])
    )

    async def work(flow: Flow) -> list[bytes]:
        told = [await flow.next()]
        flow.run.stop(ErrorPart("internal", "closing time", status=503))
        await flow.stream.flow(flow.write)
        return [*told, *flow.written, await flow.next(), await flow.next()]

    first, second, end = flowing(World([upstream]), work)
    assert (first, end) == (HEAD + HELLO, b"")
    assert b"closing time" in second


def test_an_upstream_that_stops_sending_while_it_flows_is_a_timeout() -> None:
    quick = replace(upstream_config(), timeouts=Timeouts(between_events=0.05))
    upstream = FlowingUpstream(quick, Play([HEAD, HELLO, HELLO, asyncio.Event()]))
    raw = flowing(World([upstream]), lambda flow: flow.all(), incoming_request("openai-responses"))
    response = decode_all(raw, "openai-responses")[0].response
    assert (response.text, response.finish_reason) == ("hellohello", "error")
    assert response.error is not None
    assert "sent nothing" in response.error.message


@pytest.mark.parametrize(
    "pieces",
    [
        message("one ", "pause_turn"),
        [b"".join(message("one ", "pause_turn"))],
    ],
    ids=["while it flows", "before"],
)
def test_nothing_flows_after_a_pause(pieces: list[bytes]) -> None:
    async def work() -> tuple[bytes, bool]:
        paused = Play([*pieces, asyncio.Event()])
        upstream = FlowingUpstream(upstream_config(dialect="anthropic-messages"), paused, ENDED)
        run = World([upstream]).run(incoming_request("openai-chat"))
        try:
            flow = Flow(run, await run.open())
            return await flow.all(), upstream.answers[0].aborted
        finally:
            await run.close()

    raw, aborted = within(work)
    response = decode_all(raw, "openai-chat")[0].response
    assert (response.text, response.finish_reason, aborted) == ("one two", "stop", True)


def test_an_error_of_the_writer_is_raised_to_the_caller() -> None:
    world = World([FlowingUpstream(upstream_config(), Play([HEAD, HELLO, HELLO, STOP, DONE]))])

    async def work(flow: Flow) -> None:
        def write(events: list[Event]) -> bool:
            raise LookupError(events)

        await flow.next()
        with pytest.raises(LookupError):
            await flow.stream.flow(write)

    flowing(world, work)


def test_a_body_writes_no_events_while_it_flows() -> None:
    async def work() -> tuple[int, bytes]:
        run = World([FlowingUpstream(upstream_config(), GOOD)]).run(incoming_request(stream=False))
        try:
            stream = await run.open()
            await stream.flow(lambda events: False)
            return await stream.read_body()
        finally:
            await run.close()

    status, body = within(work)
    assert (status, decode_all(body, "openai-chat")[0].response.text) == (200, "hello")


def test_a_client_that_disconnects_while_it_flows_ends_the_upstream_request() -> None:
    async def work() -> World:
        upstream = FlowingUpstream(upstream_config(), Play([HEAD, HELLO, HELLO, asyncio.Event()]))
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


def test_an_observer_that_fails_hurts_neither_the_request_nor_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(record: RequestRecord) -> None:
        raise RuntimeError("cannot count")

    world = World([Played(upstream_config(), GOOD)], observers=[fails])
    assert b"hello" in within(lambda: world.stream(incoming_request()))
    assert len(world.records) == 1
    assert [one.getMessage() for one in caplog.records] == ["request req_1: an observer failed"]
