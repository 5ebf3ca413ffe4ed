"""Libraries for JavaScript in front of every dialect of upstream, with the scenarios and checks of
those for Python."""

from collections.abc import Iterator

import pytest

from tests.clients import test_clients
from tests.clients.case import Case, Forecast
from tests.clients.expected import MISSING, REFUSED, RETURNED
from tests.clients.test_clients import Ran, discreet
from tests.clients.vendor import FORECAST, GREETING, LAST_THOUGHT, STEPS
from tests.clients.world import UPSTREAMS, World, world
from tests.node_clients.with_node import (
    DIALECTS,
    LITELLM_DIALECTS,
    Host,
    NodeError,
    host,
    litellm_host,
)

pytestmark = pytest.mark.clients

SHARED = ("text", "tool", "parallel", "structured", "error-rate", "error-bad-request",
          "error-key", "error-midstream", "cut")  # fmt: skip
SCENARIOS = (*SHARED, "reasoning", "reasoning-tool")

THOUGHTLESS = ("aisdk-chat", "agents-js-chat")
"""Clients that show their users no reasoning of chat answers."""

AS_TOOL = ("aisdk-anthropic",)
"""Clients that ask for a shape as a tool to be called, of a model that they do not know."""

STREAMED = {
    ("aisdk-google", "chat"): REFUSED,
    ("aisdk-google", "responses"): MISSING,
    ("aisdk-google", "messages"): MISSING,
}
"""What becomes of the proof of a reasoning in a stream, by client and upstream, where it is not
returned: the client takes no signature of a thought from an empty part, and sends no ids of calls
back by which the gateway could know them."""


ALIAS = "items-"
"""How the models of the Responses upstream are called by a library that reads names."""
ALIASES = "\n".join(
    ["[models]", *(f'{ALIAS}{scenario} = ["responses/{scenario}"]' for scenario in STEPS)]
)


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("gateway"), ALIASES) as made:
        yield made


@pytest.fixture(scope="session")
def node() -> Iterator[Host]:
    with host() as running:
        yield running


@pytest.fixture(scope="session")
def litellm() -> Iterator[Host]:
    with litellm_host() as running:
        yield running


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("scenario", STEPS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", LITELLM_DIALECTS)
def test_litellm_runs_tool_loops_with_any_upstream(
    client: str,
    upstream: str,
    scenario: str,
    stream: bool,
    nodes: World,
    litellm: Host,
    request: pytest.FixtureRequest,
) -> None:
    mode = "stream" if stream else "whole"
    told = {"client": client, "upstream": upstream, "scenario": scenario, "mode": mode}
    request.node.user_properties.extend(told.items())
    case = test_clients.made(nodes, client, upstream, scenario, stream)
    case.model = case.model.replace("responses/", ALIAS)  # it takes that out of any name
    check(ran(case, client, upstream, nodes, litellm))


def ran(case: Case, client: str, upstream: str, nodes: World, host: Host) -> Ran:
    """Runs a case in the process of its library."""
    done = Ran(client, upstream, case, [])
    try:
        done.outcome = host.run(client, case)
    except NodeError as problem:
        done.raised = problem
    done.log = nodes.upstream.of(case.tag)
    discreet(done)
    return done


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", DIALECTS)
def test_a_library_works_with_any_upstream(
    client: str,
    upstream: str,
    scenario: str,
    stream: bool,
    nodes: World,
    node: Host,
    request: pytest.FixtureRequest,
) -> None:
    mode = "stream" if stream else "whole"
    told = {"client": client, "upstream": upstream, "scenario": scenario, "mode": mode}
    request.node.user_properties.extend(told.items())
    case = test_clients.made(nodes, client, upstream, scenario, stream)
    check(ran(case, client, upstream, nodes, node))


def check(ran: Ran) -> None:
    match ran.case.scenario:
        case "reasoning":
            assert ran.done.text == GREETING
            assert ran.done.thought == ("" if ran.client in THOUGHTLESS else LAST_THOUGHT)
            assert [asked.status for asked in ran.log] == [200]
        case "tool" | "parallel":
            called(ran)
        case "reasoning-hidden" if ran.upstream == "chat":  # it tells no reasoning
            called(ran)
        case "reasoning-tool" | "reasoning-hidden" | "reasoning-mixed":
            proof = STREAMED.get((ran.client, ran.upstream)) if ran.case.stream else None
            reasoned(ran, proof or RETURNED)
        case "structured" if ran.client in AS_TOOL:
            assert ran.done.value == Forecast(**FORECAST)
            assert [(len(asked.asked.tools), asked.refusal) for asked in ran.log] == [(1, "")]
        case other:
            test_clients.CHECKS[other](ran)


def called(ran: Ran) -> None:
    """Each call ran once, and each result came back once, with its call. One of the libraries puts
    results into an object of its own."""
    steps = STEPS[ran.case.scenario]
    plans = [str((plan.name, plan.arguments)) for step in steps for plan in step]
    text = ran.done.text
    assert [asked.refusal for asked in ran.log] == [""] * (len(steps) + 1)
    assert sorted(map(str, ran.case.ran)) == sorted(plans)
    results = ran.log[-1].asked.results
    handed = {call.id: call.plan.result for asked in ran.log for call in asked.handed}
    assert sorted(result.id for result in results) == sorted(handed)
    assert [handed[result.id] in result.text for result in results] == [True] * len(handed)
    assert text == f"It is so: {'; '.join(result.text for result in results)}."


def reasoned(ran: Ran, proof: str) -> None:
    if proof == REFUSED:
        assert test_clients.status_of(ran.raised) == 400
        assert ran.log[-1].refusal in str(ran.raised)
        assert [asked.status for asked in ran.log] == [200, 400]
        return
    called(ran)
    steps = range(len(STEPS[ran.case.scenario]) + 1)
    assert [asked.asked.proofs for asked in ran.log] == [[proof] * step for step in steps]
