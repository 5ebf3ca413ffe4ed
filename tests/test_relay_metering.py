"""How tokens are estimated, and that an attempt is charged once."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from tests.faults.upstream import LAST, STREAM, Hold, Step, answer, chunk, upstream
from tests.faults.wires import CHAT, SPEECHES, body_of
from weft.assembler import Assembler
from weft.parts import ErrorPart, Finish, ResponseMetadata, TextDelta, TextStart, Usage
from weft.relay.incoming import IncomingRequest, RequestBody, RequestLimits
from weft.relay.metering import (
    MOST_TOKENS,
    PER_IMAGE,
    Charge,
    Meter,
    estimate_input,
    plausible,
)
from weft.relay.routing import Routing, Target
from weft.relay.run import Run
from weft.request import (
    CallContent,
    ImageContent,
    Message,
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
    Tool,
)
from weft.scrub import Scrubber
from weft.sse import Event
from weft.upstream.base import UpstreamConfig
from weft.upstream.demo import DemoUpstream
from weft.upstream.http import HttpUpstream

BODY = b'{"model": "demo/m", "messages": [{"role": "user", "content": "eight ch"}]}'


def target(url: str = "demo:") -> Target:
    upstream = DemoUpstream(UpstreamConfig("demo", "openai-chat", url))
    return Routing({"demo": upstream}, {}).targets("demo/m")[0]


def incoming() -> IncomingRequest:
    return IncomingRequest(RequestBody("openai-chat", BODY), "demo/m", True, caller="alice")


def metered() -> tuple[Meter, list[Charge]]:
    charges: list[Charge] = []
    return Meter(incoming(), charges.append), charges


def fold(*parts: object) -> Assembler:
    made = Assembler()
    for part in (ResponseMetadata("r"), TextStart("t"), TextDelta("t", "Warp and"), *parts):
        made.feed(part)  # type: ignore[arg-type]
    return made


WHOLE = fold(Finish("stop", usage=Usage(3, 2, cache_read_tokens=1)))
CUT = fold()
SILENT = fold(Finish("stop"))
FAILED = fold(ErrorPart("truncated", "x"), Finish("error", usage=Usage(3, 9)))


def test_reported_estimated_and_none_are_told_apart() -> None:
    for made, source, usage, failed in (
        (WHOLE, "reported", Usage(3, 2, cache_read_tokens=1), False),
        (CUT, "estimated", Usage(3, 2), True),
        (SILENT, "estimated", Usage(3, 2), False),
        (FAILED, "estimated", Usage(3, 9), True),
        (None, "estimated", Usage(3, 0), True),
    ):
        meter, charges = metered()
        meter.begin(target())
        meter.ended(made)
        (charge,) = charges
        assert (charge.source, charge.usage, charge.is_failed) == (source, usage, failed)
        assert (charge.owner, charge.target, charge.requests) == ("alice", "demo/m", 1)


def test_an_attempt_without_content_has_no_tokens_unless_they_were_reported() -> None:
    begun = Assembler()
    begun.feed(ResponseMetadata("r", usage=Usage(input_tokens=7)))
    for made, source, status in (
        (None, "none", 500),
        (begun, "reported", 529),
        (None, "none", 404),
    ):
        meter, charges = metered()
        meter.begin(target())
        meter.failed(ErrorPart("upstream", "no", status=status), made)
        (charge,) = charges
        assert (charge.source, charge.is_unknown_model) == (source, status == 404)
        assert charge.usage == (Usage() if made is None else Usage(7))


COUNTS = st.none() | st.integers(0, MOST_TOKENS)
WRONG = st.integers(max_value=-1) | st.integers(min_value=MOST_TOKENS + 1)


@given(st.lists(COUNTS | WRONG, min_size=6, max_size=6))
def test_what_cannot_be_true_was_not_reported(counts: list[int | None]) -> None:
    found = astuple(plausible(Usage(*counts)))
    is_right = [one is not None and 0 <= one <= MOST_TOKENS for one in counts]
    assert found == tuple(one if ok else None for one, ok in zip(counts, is_right, strict=True))
    meter, charges = metered()
    meter.begin(target())
    meter.ended(fold(Finish("stop", usage=Usage(*counts))))
    (charge,) = charges
    known = [one for one in astuple(charge.usage) if one is not None]
    assert all(0 <= one <= MOST_TOKENS for one in known)
    is_told = found[0] is not None and found[1] is not None
    assert charge.source == ("reported" if is_told else "estimated")


STEPS = st.lists(st.sampled_from(["begin", "continued", "failed", "ended", "abandoned"]))


@given(STEPS)
def test_each_attempt_is_charged_once_whatever_happens(steps: list[str]) -> None:
    meter, charges = metered()
    acts: dict[str, Callable[[], None]] = {
        "begin": lambda: meter.begin(target()),
        "continued": meter.continued,
        "failed": lambda: meter.failed(ErrorPart("upstream", "no")),
        "ended": lambda: meter.ended(WHOLE),
        "abandoned": lambda: meter.ended(None),
    }
    expected, is_open = 0, False
    for step in steps:
        # An attempt begins after the one before it has ended.
        if step == "begin" and is_open:
            continue
        acts[step]()
        expected += is_open and step in ("failed", "ended", "abandoned")
        is_open = step == "begin" or (is_open and step == "continued")
    assert len(charges) == expected


@given(st.lists(st.none() | st.integers(0, 10**12)))
def test_the_cost_is_known_if_that_of_every_attempt_is(costs: list[int | None]) -> None:
    coming = iter(costs)
    meter = Meter(incoming(), lambda charge: next(coming))
    for _ in costs:
        meter.begin(target())
        meter.ended(WHOLE)
    known = [one for one in costs if one is not None]
    assert meter.cost == (sum(known) if known and known == costs else None)


def test_an_agent_is_not_charged_beside_its_turns() -> None:
    meter, charges = metered()
    meter.begin(target("agent:"))
    meter.ended(WHOLE)
    assert charges == []


def test_all_texts_of_a_request_count_and_images_by_their_number() -> None:
    image = ImageContent("image/png", "A" * 1_000_000)
    result = ResultContent("c", (TextContent("x" * 40), image))
    contents = (
        TextContent("x" * 40),
        image,
        ReasoningContent("x" * 40),
        CallContent("c", "f", "x" * 40),
        result,
    )
    tools = (Tool("f" * 10, description="x" * 30),)
    request = Request("m", (Message("user", contents),), instructions="x" * 40, tools=tools)
    assert estimate_input(request) == 60 + 2 * PER_IMAGE + 1


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_response_is_charged_before_its_end_is_sent(is_streamed: bool) -> None:
    """A process that dies right after the end was sent has charged it."""
    charges: list[Charge] = []
    asked = body_of(CHAT, "up/m", is_streamed)
    request = IncomingRequest(RequestBody(CHAT, asked), "up/m", is_streamed)

    ends: list[tuple[str, int]] = []
    """How the end was sent, and how many charges there were by then."""

    def write(events: list[Event], how: str = "flow") -> bool:
        ends.extend((how, len(charges)) for event in events if event.data == b"[DONE]")
        return True

    async def play(url: str) -> None:
        place = HttpUpstream(UpstreamConfig("up", CHAT, f"{url}/v1"))
        targets = Routing({"up": place}, {}).targets("up/m")
        run = Run(request, targets, RequestLimits(), Scrubber(()), charge=charges.append)
        opened = await run.open()
        if is_streamed:
            while events := await opened.next():
                write(events, "next")
                if not hold.released.is_set():
                    hold.release()
                await opened.flow(write)
            after.release()
        else:
            await opened.read_body()
        assert ends == ([("flow", 1)] if is_streamed else [])
        (before,) = charges
        await run.close()
        await place.close()
        assert charges == [before]
        assert (before.source, before.is_failed) == ("reported", False)

    with upstream() as behind:
        said, hold, after = SPEECHES[CHAT], Hold(), Hold()
        # In one piece each, so that nothing is left of the first when the stream flows; and the end
        # of the body by itself, or the last piece would not flow.
        first, last = chunk(b"".join(said.head + said.content)), chunk(b"".join(said.end))
        steps: list[Step] = [STREAM, first, hold, last, after, LAST]
        steps = steps if is_streamed else [answer(said.body)]
        behind.named("m", steps)
        asyncio.run(play(behind.url))
