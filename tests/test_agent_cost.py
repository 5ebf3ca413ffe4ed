"""The limit of a run in US dollars: with a real upstream that reports tokens, over HTTP and as a
library."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.agent_upstream import (
    Chunks,
    agent_upstream,
    billed,
    by_agent,
    by_turn,
    call,
    calls,
    text,
)
from tests.stores import empty
from tests.test_runs import Api, agents_in, refused
from weft.agent.events import (
    AnyRunEvent,
    CallFinished,
    CallIntended,
    TurnFinished,
    TurnInterrupted,
    decode_event,
)
from weft.agent.library import UpstreamOptions
from weft.store.urls import store_from_url

SETTINGS = """
[server.keys]
alice = "key-of-alice-0123456789"
[store]
url = "{{store}}"
[upstreams.m]
dialect = "openai-chat"
base_url = "{upstream}"
[prices]
"m/m" = {{{{ input = 1, output = 10 }}}}
[agents.helper]
model = "m/m"
instructions = "H"
tools = ["run_tools:look"]
limits = {{{{ turns = 12, cost = 0.50 }}}}
[agents.free]
model = "m/unknown"
instructions = "F"
tools = ["run_tools:look"]
"""
PRICE = weft.Price(input=1, output=10)
"""A hundred thousand input tokens and ten thousand output tokens cost 0.20."""


def looks(number: int) -> Chunks:
    made = calls(call(0, f"c{number}", "look", {"order": str(number)}))
    return billed(made, 100_000, 10_000)


LOOKS = by_turn(*(looks(number) for number in range(9)))
ANSWERED = by_turn(looks(0), billed(text("Fine."), 100_000, 10_000))


@weft.tool(retry="pure")
def look(order: str) -> str:
    """Looks."""
    return f"{order} is fine"


def test_a_run_over_http_ends_when_it_has_cost_what_its_agent_may(tmp_path: Path) -> None:
    with agent_upstream(by_agent(H=LOOKS, F=ANSWERED)) as upstream:
        settings = SETTINGS.format(upstream=upstream.url)
        with agents_in(tmp_path, empty("sqlite", tmp_path), settings=settings) as running:
            api = Api(running.url)
            with api.http:
                _check_http(api, upstream.requests)


def _check_http(api: Api, requests: list[dict[str, Any]]) -> None:
    raised = {"agent": "helper", "input": "Go.", "limits": {"cost": 0.51}}
    said = "limits.cost: 0.51 is above the agent's 0.5"
    assert refused(api.post("/v1/runs", raised)) == (400, said)
    for limits, turns, spent in (({}, 3, "0.6"), ({"cost": 0.4}, 2, "0.4")):
        run = api.until(api.start("Go.", limits=limits)["id"], "failed")
        assert run["error"]["message"] == f"the run has cost {spent} US dollars"
        events = api.events(run["id"])
        costs = [one["cost"] for one in events if one["kind"] == "turn.finished"]
        assert costs == [0.2] * turns
        assert run["cost"] == float(spent)
        [reached] = [one for one in events if one["kind"] == "limit.reached"]
        assert reached["limit"] == "cost"
    # Without the limit, a model may be asked whose price nobody knows.
    run = api.until(api.start("Go.", agent="free")["id"], "finished")
    finished = [one for one in api.events(run["id"]) if one["kind"] == "turn.finished"]
    assert ["cost" in one for one in finished] == [False, False]
    assert run["cost"] is None
    asked = len(requests)
    run = api.until(api.start("Go.", agent="free", limits={"cost": 9})["id"], "failed")
    assert "the price of 'm/unknown' is not known" in run["error"]["message"]
    assert len(requests) == asked, "nothing was spent"


def runtime_at(
    url: str, upstream: str, agent: weft.Agent, price: weft.Price, work: bool = True
) -> weft.Runtime:
    options: UpstreamOptions = {"dialect": "openai-chat", "base_url": upstream, "api_key": "k-1"}
    return weft.Runtime(url, [agent], upstreams={"m": options}, prices={"m/m": price}, work=work)


async def log_of(url: str, run: str) -> list[AnyRunEvent]:
    store = store_from_url(url)
    await store.open()
    try:
        return [decode_event(one.body) for one in await store.run_events(run, 0)]
    finally:
        await store.close()


def test_other_prices_after_a_restart_do_not_change_what_was_spent(tmp_path: Path) -> None:
    url = empty("sqlite", tmp_path)
    agent = weft.Agent("helper", "m/m", "H", [look], limits=weft.Limits(cost=0.5))

    async def main(upstream: str) -> None:
        async with runtime_at(url, upstream, agent, PRICE, work=False) as runtime:
            run = await runtime.start("helper", "Go.")
            while len(_costs(await log_of(url, run.id))) < 2:
                await runtime.step(run)
        cheap = weft.Price(input=0, output=10)
        async with runtime_at(url, upstream, agent, cheap) as runtime, asyncio.timeout(30):
            result = await (await runtime.run(run.id)).result()
        assert result.error == "the run has cost 0.5 US dollars"
        assert _costs(await log_of(url, run.id)) == [0.2, 0.2, 0.1]

    with agent_upstream(LOOKS) as upstream:
        asyncio.run(main(upstream.url))


def _costs(events: list[AnyRunEvent]) -> list[float | None]:
    return [one.cost for one in events if isinstance(one, TurnFinished)]


def test_what_an_agent_costs_that_is_called_is_drawn_from_its_caller(tmp_path: Path) -> None:
    url = empty("sqlite", tmp_path)
    child = weft.Agent("child", "m/m", "C", [look])
    agent = weft.Agent("helper", "m/m", "H", [child], limits=weft.Limits(cost=0.5))
    asks = billed(calls(call(0, "a", "child", {"input": "Go."})), 100_000, 0)
    script = by_agent(H=by_turn(asks, text("Never asked.")), C=LOOKS)

    async def main(upstream: str) -> None:
        async with runtime_at(url, upstream, agent, PRICE) as runtime, asyncio.timeout(30):
            run = await runtime.start("helper", "Go.")
            result = await run.result()
        events = await log_of(url, run.id)
        [drawn] = [one.drawn for one in events if isinstance(one, CallIntended)]
        assert drawn is not None
        assert drawn.cost == pytest.approx(0.4)
        [finished] = [one for one in events if isinstance(one, CallFinished)]
        assert (finished.is_error, finished.used and finished.used.cost) == (True, 0.4)
        assert result.error == "the run has cost 0.5 US dollars"

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream.url))


def test_an_upstream_that_reports_no_tokens_is_charged_by_the_length_of_its_texts(
    tmp_path: Path,
) -> None:
    url = empty("sqlite", tmp_path)
    agent = weft.Agent("helper", "m/m", "H", limits=weft.Limits(cost=0.5))

    async def main(upstream: str) -> None:
        async with runtime_at(url, upstream, agent, PRICE) as runtime, asyncio.timeout(30):
            run = await runtime.start("helper", "Go.")
            await run.result()
        [cost] = _costs(await log_of(url, run.id))
        assert cost is not None
        assert 0.01 < cost < 0.02, "about a thousand output tokens"

    with agent_upstream(by_turn(text("Well, " * 700))) as upstream:
        asyncio.run(main(upstream.url))


@pytest.mark.parametrize("reported", [-1_000_000, 10**18])
def test_counts_of_tokens_that_cannot_be_true_neither_pay_for_others_nor_end_a_run(
    tmp_path: Path, reported: int
) -> None:
    url = empty("sqlite", tmp_path)
    agent = weft.Agent("helper", "m/m", "H", [look], limits=weft.Limits(tokens=300_000))
    false = billed(calls(call(0, "c9", "look", {"order": "9"})), reported, 0)

    async def main(upstream: str) -> None:
        async with runtime_at(url, upstream, agent, PRICE) as runtime, asyncio.timeout(30):
            run = await runtime.start("helper", "Go.")
            await run.result()
        assert len(_costs(await log_of(url, run.id))) == 1 + 3, "three of 110,000"

    with agent_upstream(by_turn(false, *map(looks, range(7)))) as upstream:
        asyncio.run(main(upstream.url))


def test_what_a_failed_turn_has_cost_is_in_the_log(tmp_path: Path) -> None:
    """The upstream bills its tokens, and sends no content: no event of the response is stored."""
    url = empty("sqlite", tmp_path)
    agent = weft.Agent("helper", "m/m", "H")

    async def main(upstream: str) -> list[AnyRunEvent]:
        async with runtime_at(url, upstream, agent, PRICE) as runtime, asyncio.timeout(30):
            run = await runtime.start("helper", "Go.")
            assert (await run.result()).status == "failed"
        return await log_of(url, run.id)

    with agent_upstream(by_turn(billed([{"delta": {}}], 100_000, 10_000))) as upstream:
        events = asyncio.run(main(upstream.url))
    interrupted = [one.cost or 0 for one in events if isinstance(one, TurnInterrupted)]
    assert len(interrupted) == agent.definition.limits.attempts
    assert sum(interrupted) == pytest.approx(0.2 * len(upstream.requests))
