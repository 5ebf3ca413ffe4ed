"""Real clients, real HTTP: every client library, in front of every dialect of upstream.

What counts is the upstream's own log: what it was asked, how often, and with which proofs. A
client that is content proves little.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import openai
import pytest

from tests.clients.case import Case, Forecast, Outcome
from tests.clients.drivers import DRIVERS
from tests.clients.expected import (
    AS_TOOL,
    JSON_MODE,
    REFUSED,
    THOUGHTLESS,
    UNPROVEN,
    Carried,
    carried,
)
from tests.clients.scripted import RequestRecord
from tests.clients.vendor import (
    FAREWELL,
    FORECAST,
    GREETING,
    KEY,
    LAST_THOUGHT,
    MESSAGES,
    RETRY_AFTER,
    STEPS,
    Planned,
)
from tests.clients.world import UPSTREAMS, World

ITSELF = "itself"
"""No gateway: the client and the vendor of its own dialect. What fails here is not ours."""

pytestmark = pytest.mark.filterwarnings(
    "ignore:Pydantic serializer warnings:UserWarning"  # LangChain, on its own `parsed`
)


@dataclass
class Ran:
    """A finished cell."""

    client: str
    upstream: str
    case: Case
    log: list[RequestRecord]
    outcome: Outcome | None = None
    raised: Exception | None = None

    @property
    def carried(self) -> Carried:
        return how(self.client, self.upstream, self.case.scenario)

    @property
    def done(self) -> Outcome:
        """The outcome; raises what the client raised."""
        if self.raised is not None:
            raise self.raised
        assert self.outcome is not None
        return self.outcome


def made(world: World, client: str, upstream: str, scenario: str, stream: bool) -> Case:
    tag, model = world.tag(), MODELS.get(scenario, scenario)
    if upstream == ITSELF:
        return Case(world.upstream.url, KEY, model, scenario, stream, tag)
    return Case(world.gateway.url, "client", f"{upstream}/{model}", scenario, stream, tag)


async def attempt(client: str, case: Case) -> Outcome | Exception:
    try:
        return await DRIVERS[client].run(case)
    except Exception as problem:  # whatever it raises is what its user gets
        return problem


def text(ran: Ran) -> None:
    assert ran.done.text == GREETING
    assert ran.done.usage == (21, 9)
    (asked,) = ran.log
    assert asked.status == 200
    assert "Be brief." in asked.raw


def reasoning(ran: Ran) -> None:
    assert ran.done.text == GREETING
    assert ran.done.thought == ("" if ran.client in THOUGHTLESS else LAST_THOUGHT)
    assert [asked.status for asked in ran.log] == [200]


def tools(ran: Ran) -> None:
    """Each call ran once, and each result came back once, with its call."""
    steps = STEPS[ran.case.scenario]
    plans = [plan for step in steps for plan in step]
    text = ran.done.text
    called(ran, plans, len(steps) + 1)
    results = "; ".join(result.text for result in ran.log[-1].asked.results)
    assert text == f"It is so: {results}."


def called(ran: Ran, plans: list[Planned], requests: int) -> None:
    assert [asked.refusal for asked in ran.log] == [""] * requests
    # Libraries run parallel tools in any order.
    assert sorted(map(str, ran.case.ran)) == sorted(
        str((plan.name, plan.arguments)) for plan in plans
    )
    handed = [(call.id, call.plan.result) for asked in ran.log for call in asked.handed]
    results = ran.log[-1].asked.results
    assert sorted((result.id, result.text) for result in results) == sorted(handed)


def reasoning_with_tools(ran: Ran) -> None:
    """The proofs came back with the calls, as far as the client can carry them."""
    expected = ran.carried.verdict
    if expected == REFUSED:
        assert status_of(ran.raised) == 400
        assert ran.log[-1].refusal in str(ran.raised)
        assert [asked.status for asked in ran.log] == [200, 400]
        return
    tools(ran)
    proven = [] if expected == UNPROVEN else [expected]
    assert [asked.asked.proofs for asked in ran.log] == [
        proven * step for step in range(len(STEPS[ran.case.scenario]) + 1)
    ]


def followed_up(ran: Ran) -> None:
    """The second turn comes with the first: said once, with its proof."""
    expected = ran.carried.verdict
    assert ran.done.text == FAREWELL
    assert [asked.refusal for asked in ran.log] == ["", ""]
    assert [asked.asked.said for asked in ran.log] == [[], [GREETING]]
    assert [asked.asked.proofs for asked in ran.log] == [[], [expected]]


def how(client: str, upstream: str, scenario: str) -> Carried:
    """What becomes of the proof of a reasoning."""
    alone = upstream == ITSELF
    return carried(client, UPSTREAMS_OF[client] if alone else upstream, scenario, alone=alone)


UPSTREAMS_OF = {
    client: next(name for name, dialect in UPSTREAMS.items() if dialect == driver.dialect)
    for client, driver in DRIVERS.items()
}


def structured(ran: Ran) -> None:
    assert ran.done.value == Forecast(**FORECAST)
    (asked,) = ran.log
    assert asked.status == 200
    as_tool = (ran.client, ran.case.stream) in AS_TOOL
    assert (asked.asked.shape, len(asked.asked.tools)) == (("", 1) if as_tool else ("schema", 0))


def any_object(ran: Ran) -> None:
    """JSON mode; a wire without one is asked without it, and its client is warned."""
    if ran.upstream == "messages":
        (asked,) = ran.log
        assert asked.asked.shape == ""
        return
    assert ran.done.value == Forecast(**FORECAST)
    (asked,) = ran.log
    assert (asked.status, asked.asked.shape) == (200, "object")


def rate_limited(ran: Ran) -> None:
    refused(ran, 429)
    response = getattr(ran.raised, "response", None)
    headers = getattr(ran.raised, "headers", None) or getattr(response, "headers", None) or {}
    assert headers.get("retry-after", str(RETRY_AFTER)) == str(RETRY_AFTER)


def bad_request(ran: Ran) -> None:
    refused(ran, 400)


def refused(ran: Ran, status: int) -> None:
    """The upstream's status and words; it was asked once."""
    assert status_of(ran.raised) == status
    assert MESSAGES[ran.case.scenario] in str(ran.raised)
    assert [asked.status for asked in ran.log] == [status]


def key_refused(ran: Ran) -> None:
    """Our key is not the client's: no 401, and not a word of it."""
    assert status_of(ran.raised) == 502
    assert [asked.status for asked in ran.log] == [401]


def failed_midway(ran: Ran) -> None:
    """The client is told, in the upstream's words."""
    assert MESSAGES["error-midstream"] in str(ran.raised)
    assert len(ran.log) == 1


def cut(ran: Ran) -> None:
    """Never a clean end; and the connection to the client is whole."""
    assert ran.raised is not None
    assert not isinstance(root_of(ran.raised), httpx.TransportError | openai.APIConnectionError)
    assert len(ran.log) == 1


def root_of(problem: BaseException) -> BaseException:
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return problem


def status_of(problem: BaseException | None) -> int:
    status = getattr(problem, "status_code", None)
    assert isinstance(status, int), repr(problem)
    return status


CHECKS: dict[str, Callable[[Ran], None]] = {
    "text": text,
    "tool": tools,
    "parallel": tools,
    "reasoning": reasoning,
    "reasoning-tool": reasoning_with_tools,
    "reasoning-hidden": reasoning_with_tools,
    "reasoning-mixed": reasoning_with_tools,
    "follow-up": followed_up,
    "structured": structured,
    "json-mode": any_object,
    "error-rate": rate_limited,
    "error-bad-request": bad_request,
    "error-key": key_refused,
    "error-midstream": failed_midway,
    "cut": cut,
}

MODELS = {"json-mode": "structured"}
"""Scenarios that only the client tells apart."""

ALONE = ("text", "tool", "parallel", "reasoning", "reasoning-tool", "reasoning-hidden",
         "reasoning-mixed", "follow-up", "structured", "json-mode")  # fmt: skip
"""What a client is seen to do without a gateway, too."""


FAILURES = ("error-rate", "error-bad-request", "error-key", "error-midstream", "cut")


def is_daily(client: str, upstream: str, scenario: str, stream: bool) -> bool:
    """Whether `make test` has the cell. A failure is read by each client from one upstream, and
    told by each upstream to some clients; what crosses the gateway is the same for all of them.
    Everything else is streamed from every second upstream, and whole from the others."""
    if upstream == ITSELF:
        return False
    if scenario not in FAILURES:
        turn = [*DRIVERS].index(client) + [*CHECKS].index(scenario)
        return (turn + [*UPSTREAMS].index(upstream)) % 2 == stream
    turn = [*DRIVERS].index(client) + FAILURES.index(scenario)
    return [*UPSTREAMS][turn % len(UPSTREAMS)] == upstream


def cells() -> list[tuple[str, str, str]]:
    return [
        (client, upstream, scenario)
        for client in DRIVERS
        for upstream in (ITSELF, *UPSTREAMS)
        for scenario in CHECKS
        if (upstream != ITSELF or scenario in ALONE)
        and (scenario != "json-mode" or client in JSON_MODE)
    ]


STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def noted(request: pytest.FixtureRequest, **said: str) -> None:
    request.node.user_properties.extend(said.items())


@pytest.mark.parametrize(
    ("client", "upstream", "scenario", "stream"),
    [
        pytest.param(
            *cell,
            stream,
            marks=[] if is_daily(*cell, stream) else pytest.mark.long,
            id="-".join([*cell, "stream" if stream else "whole"]),
        )
        for cell in cells()
        for stream in (False, True)
    ],
)
def test_a_client_works_with_any_upstream(
    client: str,
    upstream: str,
    scenario: str,
    stream: bool,
    clients: World,
    request: pytest.FixtureRequest,
) -> None:
    mode = "stream" if stream else "whole"
    note = note_of(client, upstream, scenario)
    noted(request, client=client, upstream=upstream, scenario=scenario, mode=mode, note=note)
    case = made(clients, client, upstream, scenario, stream)
    result = clients.run(attempt(client, case))
    ran = Ran(client, upstream, case, clients.upstream.of(case.tag))
    if isinstance(result, Exception):
        ran.raised = result
    else:
        ran.outcome = result
    CHECKS[scenario](ran)
    discreet(ran)


def note_of(client: str, upstream: str, scenario: str) -> str:
    why = how(client, upstream, scenario)
    if why.why:
        return f"the client {why.why}: {why.verdict}"
    if scenario == "reasoning" and client in THOUGHTLESS:
        return f"the client {THOUGHTLESS[client]}: not shown"
    return ""


def discreet(ran: Ran) -> None:
    """The key is the upstream's alone, and envelopes stay on the client's side."""
    if ran.upstream == ITSELF:
        return
    problem = ran.raised
    told = f"{ran.outcome!r} {problem!r} {problem} {getattr(problem, '__dict__', '')}"
    assert KEY not in told
    for asked in ran.log:
        assert "weft1:" not in asked.raw
        assert "d2VmdDE6" not in asked.raw
        assert KEY not in asked.raw


@STREAM
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", DRIVERS)
def test_a_client_that_leaves_takes_the_upstream_with_it(
    client: str, upstream: str, stream: bool, clients: World, request: pytest.FixtureRequest
) -> None:
    mode = "stream" if stream else "whole"
    noted(request, client=client, upstream=upstream, scenario="cancel", mode=mode)
    case = made(clients, client, upstream, "slow", stream)

    async def leave() -> RequestRecord:
        heard = asyncio.Event()
        case.heard = heard.set
        task = asyncio.create_task(attempt(client, case))
        asked = await asyncio.to_thread(clients.upstream.wait, case.tag)
        if stream:
            waiting = asyncio.create_task(heard.wait())
            await asyncio.wait([waiting, task], timeout=30, return_when="FIRST_COMPLETED")
            assert heard.is_set(), task
        assert await asyncio.to_thread(asked.begun.wait, 30)
        assert not asked.left.is_set()
        while not task.done():  # `wait_for` of Python 3.11 may swallow one
            task.cancel()
            await asyncio.wait([task], timeout=0.1)
        assert task.cancelled()
        return asked

    asked = clients.run(leave())
    assert asked.left.wait(30.0)  # it would have waited for twice as long
    assert len(clients.upstream.of(case.tag)) == 1
