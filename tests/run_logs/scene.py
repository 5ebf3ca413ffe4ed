"""The run that is recorded: its agents, its model, and the person beside it.

A log that an old version has recorded is finished with these: do not change what exists. What a new
event needs is added behind it.
"""

import asyncio

from tests.agent_processes import to_rest
from tests.agent_upstream import Script, by_agent, by_turn, call, calls, text
from weft.agent.agents import Agent
from weft.agent.definition import Limits
from weft.agent.events import CallOutput, text_result
from weft.agent.lifecycle import ASKED, AWAITED, PARKED
from weft.agent.runtime import AgentRuntime
from weft.agent.tool_spec import ToolSpec
from weft.agent.tools import tool

RESULTS = {"look": "fine", "mail": "sent", "fire": "fired", "paper": "printed", "open": "opened"}
"""What each tool returns, or a person says that it did."""

LIMITS = Limits(approval=1e10, attempts=3)
"""Whoever finishes the log in some years may still approve its calls, and ask its first question
again, although one attempt has failed."""


class OpenTool:
    """A tool that the client runs."""

    spec = ToolSpec("open", kind="client")


@tool(retry="pure")
async def look(at: str) -> str:
    """Looks at something."""
    return RESULTS["look"]


@tool
async def mail(to: str) -> str:
    """Sends a letter."""
    return RESULTS["mail"]


@tool(approval="always")
async def fire(who: str) -> str:
    """Needs a person's consent."""
    return RESULTS["fire"]


@tool(timeout=0.05)
async def paper(pages: int) -> str:
    """Prints, and never says whether it has."""
    await asyncio.Event().wait()
    return ""


def recorded_agent() -> Agent:
    # It uses up its turns: its run fails at the limit.
    child = Agent("child", "m/m", "Do it.", [look, fire], limits=Limits(turns=2, approval=1e10))
    return Agent(
        "helper", "m/m", "Help.", [look, mail, fire, paper, OpenTool(), child], limits=LIMITS
    )


def recorded_model() -> Script:
    """Answers by what was asked alone, so that it can go on from anywhere."""
    return by_agent(
        H=by_turn(
            calls(
                call(0, "looked", "look", {"at": "it"}),
                call(1, "mailed", "mail", {"to": "me"}),
                call(2, "unknown", "no_such", {}),
                call(3, "undecodable", "look", {"at": 1}),
                call(4, "nameless", None, {}),
            ),
            calls(call(0, "fired", "fire", {"who": "him"})),
            calls(call(0, "opened", "open", {})),
            calls(call(0, "printed", "paper", {"pages": 1})),
            calls(call(0, "asked", "child", {"input": "Try."})),
            text("Done."),
        ),
        D=by_turn(
            calls(call(0, "fired", "fire", {"who": "her"})),
            calls(call(0, "looked", "look", {"at": "it"})),
        ),
    )


async def carry_to_end(runtime: AgentRuntime, id: str) -> str:
    """Answers whatever a run and its children wait for until it ends; the kind of its end."""
    while (last := (await to_rest(runtime, id))[0]) == "run.waiting":
        await _answer(runtime, id)
    return last


async def _answer(runtime: AgentRuntime, id: str) -> None:
    for one in (await runtime.state(id)).open_calls:
        result = RESULTS.get(one.judged.name, "")
        if one.state is ASKED and one.approval is not None:
            await runtime.decide_approval(id, one.approval.approval, True, by="me")
        elif one.state is AWAITED:
            await runtime.submit_outputs(id, [CallOutput(one.id, text_result(result))])
        elif one.state is PARKED:
            await runtime.resolve(id, one.id, "done", by="me", result=result)
        elif one.child:
            await _answer(runtime, one.child)
