"""The scripted upstream as a model for agents: it uses the tools that the client declares.

The script is the model's name. A command writes a line to a file and shows a number that stands
nowhere in the command, so a test can tell that it ran, how often, and that its output came back.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from tests.clients import vendor_messages, vendor_responses
from tests.clients.scripted import Handler, RequestRecord, Upstream, scripted
from tests.clients.vendor import Asked, Handed, Memory, Object, Planned, Said
from tests.node_clients import responses_custom

DONE = "All is done — yes \N{THUMBS UP SIGN}."
THOUGHT = "A command will tell."
COMMAND = "echo once >> ran.txt; printf 'ran-%d\\n' 052"
COMMAND_SHOWS = "ran-42"
SECOND = "echo twice >> ran.txt; printf 'also-%d\\n' 010"
SECOND_SHOWS = "also-8"
SCRIPT = f"text((await tools.exec_command({{cmd: {json.dumps(COMMAND)}}})).output);"
"""The command, for a client whose one tool runs JavaScript."""
PATCH = '*** Begin Patch\n*** Add File: made.txt\n+Grüße "you" \\ there\n+two\n*** End Patch'
PATCH_SHOWS = "made.txt"
PATCHED = ['Grüße "you" \\ there', "two"]


@dataclass(frozen=True)
class Use(Planned):
    """A call of a client's tool. What it returns holds `shows`; around it clients write more."""

    shows: str = ""
    custom: bool = False
    """Whether the tool takes text instead of JSON. The text is the argument `input`."""

    @property
    def result(self) -> str:
        return self.shows


def _command(key: str, **more: object) -> Callable[[str], Object]:
    return lambda command: {key: command, **more}


SHELLS: dict[str, Callable[[str], Object]] = {
    "exec_command": _command("cmd"),
    "shell_command": _command("command"),
    "shell": lambda command: {"command": ["bash", "-c", command]},
    "Bash": _command("command", description="Runs it"),
    "bash": _command("command", description="Runs it"),
    "run_shell_command": _command("command", description="Runs it", is_background=False),
    "run_commands": lambda command: {"commands": [command]},
}
"""How each client's shell is called."""


def plans(scenario: str, asked: Asked, custom: set[str]) -> tuple[Use, ...]:
    """What the model does with the tools it is given; nothing where there is none for it."""
    name = next((one for one in SHELLS if one in asked.tools), "")
    if scenario == "patch" and "apply_patch" in {*asked.tools, *custom}:
        is_custom = "apply_patch" in custom
        return (Use("apply_patch", {"input": PATCH}, PATCH_SHOWS, is_custom),)
    if scenario == "code":
        name = next(one for one in ("exec", "functions__exec") if one in {*asked.tools, *custom})
        return (Use(name, {"input": SCRIPT}, COMMAND_SHOWS, name in custom),)
    if not name or scenario not in ("shell", "parallel", "thinking"):
        return ()
    first = Use(name, SHELLS[name](COMMAND), COMMAND_SHOWS)
    if scenario != "parallel":
        return (first,)
    return (first, Use(name, SHELLS[name](SECOND), SECOND_SHOWS))


class Recalling(Memory):
    """Knows its latest calls by their places, too: some clients send no ids back, so that those
    that come are the gateway's."""

    def __init__(self) -> None:
        super().__init__()
        self.handed: tuple[Handed, ...] = ()
        """The calls of the latest answer that had any."""

    def call(self, id: str) -> Handed:
        unnamed = re.fullmatch(r"call_unnamed_(\d+)", id)
        if unnamed and self.handed:
            return replace(self.handed[int(unnamed[1])], id=id)
        return super().call(id)


def said(scenario: str, asked: Asked, custom: set[str], memory: Recalling, ids: Any) -> Said:
    uses = plans(scenario, asked, custom) if not asked.steps else ()
    if not uses:
        return Said(DONE)
    answer = Said()
    if scenario == "thinking":
        answer = Said("", THOUGHT, memory.proof(), memory.mint("rs_"))
        memory.proofs[answer.proof] = answer
    answer.calls = tuple(
        Handed(memory.mint(ids[0]), use, answer.thought, answer.proof,
               memory.mint(ids[1]) if len(ids) > 1 else "", answer.reasoning_id)
        for use in uses
    )  # fmt: skip
    memory.calls |= {one.id: one for one in answer.calls}
    memory.handed = answer.calls
    return answer


class AgentHandler(Handler):
    """Reads as strictly as the vendors, but for what only their own command lines send."""

    upstream: "AgentsUpstream"

    def _say(self, vendor: Any, record: RequestRecord, model: str) -> None:
        memory = self.upstream.memory(vendor)
        body, custom = LOOSE.get(vendor, _as_it_is)(record.body, record.headers)
        record.asked = vendor.read(body, record.headers, memory)
        answer = said(model, record.asked, custom, memory, vendor.IDS)
        record.handed = answer.calls
        record.status = 200
        writer = vendor
        if any(isinstance(call.plan, Use) and call.plan.custom for call in answer.calls):
            writer = responses_custom
        if record.stream:
            self._stream(vendor, record, model, writer.stream(answer, model, memory, body))
        else:
            self._whole(vendor, record, model, writer.whole(answer, model, memory, body))


def _as_it_is(body: Object, headers: dict[str, str]) -> tuple[Object, set[str]]:
    return body, set()


def _messages(body: Object, headers: dict[str, str]) -> tuple[Object, set[str]]:
    """What this vendor has itself, and what it takes under a beta flag."""
    flags = headers.get("anthropic-beta", "")
    body = dict(body)
    if "tools" in body:
        searches = ("web_search_20", "web_fetch_20")
        body["tools"] = [
            one for one in body["tools"] if not one.get("type", "").startswith(searches)
        ]
    if "advanced-tool-use-" in flags:
        body["tools"] = [_without(one, "defer_loading") for one in body.get("tools", ())]
    if "context-management-" in flags:
        body.pop("context_management", None)
    first, *rest = body["messages"]  # newer models are told more by the system, but not at first
    body["messages"] = [first, *(one for one in rest if one["role"] != "system")]
    return body, set()


def _without(given: Object, *keys: str) -> Object:
    return {key: value for key, value in given.items() if key not in keys}


LOOSE: dict[Any, Callable[[Object, dict[str, str]], tuple[Object, set[str]]]] = {
    vendor_responses: responses_custom.as_functions,
    vendor_messages: _messages,
}


class AgentsUpstream(Upstream):
    def __init__(self) -> None:
        super().__init__()
        self._recalling: dict[Any, Recalling] = defaultdict(Recalling)

    def memory(self, vendor: Any) -> Recalling:
        return self._recalling[vendor]


def agents_model() -> AbstractContextManager[Upstream]:
    """The upstream, listening on loopback."""
    return scripted(AgentsUpstream(), AgentHandler)
