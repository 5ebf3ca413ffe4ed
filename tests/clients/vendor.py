"""What a scripted vendor says and demands, before it is written in a dialect.

The model's name chooses the script. What comes next depends on the results that the request
holds, so a conversation can be asked again and goes on where it was. Nothing of Weft is used here.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

Object = dict[str, Any]

KEY = "sk-planted-4b1d9e7ac5524e0f"
"""The key that the vendors want; nobody but the gateway may ever see it."""

GREETING = 'Grüße \N{WAVING HAND SIGN}, two "words"\nand a \\ backslash.'
FAREWELL = "Bye."
PREFACE = "Let me look."
THOUGHTS = ("First the weather — hm.", "Now the time, too.")
LAST_THOUGHT = "That is all \N{THINKING FACE}."
FORECAST: Object = {"city": "Köln", "degrees": 21}
"""What is answered when a shape is asked for."""

RETRY_AFTER = 30
"""Longer than any gateway should wait."""

MESSAGES = {
    "error-rate": "Scripted limit: too many requests.",
    "error-key": f"Incorrect API key provided: {KEY}.",
    "error-bad-request": "Scripted refusal: this picture is upside down.",
    "error-midstream": "Scripted trouble: overloaded in the middle.",
}
STATUSES = {"error-rate": 429, "error-bad-request": 400, "error-key": 401}
"""The scenarios that are answered with an error, and with which."""
PROOF_SKIPPED = "skip_thought_signature_validator"


@dataclass(frozen=True)
class Planned:
    """A call that the script makes."""

    name: str
    arguments: Object

    @property
    def json(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False, separators=(",", ":"))

    @property
    def result(self) -> str:
        """What the tool returns."""
        return tool_result(self.name, self.arguments)


def tool_result(name: str, arguments: Object) -> str:
    """The tools of every client. Each result says what was asked for, so they can be told apart."""
    if name == "weather":
        return f"{arguments['city']}: 21 °C"
    return f"{arguments['zone']}: 12:00"


WEATHER = Planned("weather", {"city": "Köln"})
ROME = Planned("weather", {"city": "Rom"})
CLOCK = Planned("clock", {"zone": "CET"})
STEPS: dict[str, tuple[tuple[Planned, ...], ...]] = {
    "tool": ((WEATHER,),),
    "parallel": ((WEATHER, ROME, CLOCK),),
    "reasoning-tool": ((WEATHER,), (ROME, CLOCK)),
    "reasoning-hidden": ((WEATHER,),),
    "reasoning-mixed": ((WEATHER,),),
}
"""The calls of each step, before the last answer."""


@dataclass(frozen=True)
class Handed:
    """A call as it was handed out, and what must come back with it."""

    id: str
    plan: Planned
    thought: str = ""
    proof: str = ""
    item_id: str = ""
    """Where a wire has two ids: the item's."""
    reasoning_id: str = ""
    hidden: str = ""
    """The proof of a second reasoning, whose text nobody is told."""


@dataclass
class Said:
    """An answer, before it is written."""

    text: str = ""
    thought: str = ""
    proof: str = ""
    reasoning_id: str = ""
    calls: tuple[Handed, ...] = ()
    hidden: "Said | None" = None
    """A second reasoning, whose text nobody is told."""


@dataclass
class Returned:
    """A result that a request holds."""

    id: str
    text: str


@dataclass
class Asked:
    """What a request holds, as its vendor read it."""

    tools: list[str] = field(default_factory=list)
    shape: str = ""
    """How the output's shape is asked for: schema, object, or not at all."""
    results: list[Returned] = field(default_factory=list)
    steps: int = 0
    """How many turns of calls are answered."""
    proofs: list[str] = field(default_factory=list)
    """For each turn that had reasoning: returned, skipped or missing."""
    said: list[str] = field(default_factory=list)
    """What the assistant said in earlier turns without calls."""


class Refusal(Exception):
    """What the vendor does not take."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status


class Memory:
    """What a vendor handed out."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.calls: dict[str, Handed] = {}
        self.proofs: dict[str, Said] = {}

    def mint(self, prefix: str, size: int = 24) -> str:
        return prefix + hashlib.sha256(f"{prefix}{next(self._numbers)}".encode()).hexdigest()[:size]

    def proof(self) -> str:
        """Something opaque, with every letter of base64."""
        seed = hashlib.sha512(str(next(self._numbers)).encode()).digest()
        return base64.b64encode(b"\xfb\xff\xbe" + seed + b"\x01").decode()

    def call(self, id: str) -> Handed:
        if id not in self.calls:
            raise Refusal(f"the call {id!r} was never made")
        return self.calls[id]


def arguments_match(handed: Handed, name: str, arguments: object) -> None:
    """Refuses a call that came back as another one."""
    if (name, arguments) != (handed.plan.name, handed.plan.arguments):
        raise Refusal(f"the call {handed.id} was {handed.plan}, not {name}({arguments})")


def result_matches(handed: Handed, text: str) -> None:
    """Refuses a result that is another call's."""
    if handed.plan.result not in text:
        raise Refusal(f"the result of {handed.id} cannot be {text!r}")


def only(known: Iterable[str], given: Object, where: str) -> None:
    """Refuses keys that the vendor does not know."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise Refusal(f"Unknown parameter: '{where}{unknown[0]}'.", f"{where}{unknown[0]}")


def strict_schema(schema: object, where: str) -> None:
    """Refuses what a vendor with strict schemas refuses: open objects and optional keys."""
    if isinstance(schema, list):
        for one in schema:
            strict_schema(one, where)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            raise Refusal(f"Invalid schema at {where}: 'additionalProperties' must be false", where)
        if set(schema.get("properties", {})) != set(schema.get("required", [])):
            raise Refusal(f"Invalid schema at {where}: 'required' must list every key", where)
    for one in schema.values():
        strict_schema(one, where)


def script(scenario: str, asked: Asked, memory: Memory, ids: tuple[str, ...]) -> Said:
    """What is said next. `ids`: how the id of a call begins, and of an item where there are two."""
    thinks = scenario.startswith("reasoning")
    if scenario == "structured":
        return _shaped(asked, memory, ids)
    if scenario == "follow-up":
        return _thinking(Said(FAREWELL if asked.said else GREETING, LAST_THOUGHT), memory)
    steps = STEPS.get(scenario, ())
    if asked.steps < len(steps):
        missing = {plan.name for plan in steps[asked.steps]} - set(asked.tools)
        if missing:
            raise Refusal(f"the tools {missing} are not declared")
        mixed = scenario == "reasoning-mixed"
        said = Said(
            PREFACE if mixed or len(steps[asked.steps]) > 1 else "",
            THOUGHTS[asked.steps] if mixed or scenario == "reasoning-tool" else "",
        )
        if thinks:
            _thinking(said, memory)
        if mixed:
            said.hidden = _thinking(Said(), memory)
        return _calling(said, steps[asked.steps], memory, ids)
    said = Said(f"It is so: {'; '.join(one.text for one in asked.results)}." if steps else GREETING)
    if scenario in ("reasoning", "reasoning-tool"):
        said.thought = LAST_THOUGHT
    return _thinking(said, memory) if thinks else said


def _thinking(said: Said, memory: Memory) -> Said:
    """The answer with a proof of its reasoning, told or not."""
    said.proof, said.reasoning_id = memory.proof(), memory.mint("rs_")
    memory.proofs[said.proof] = said
    return said


def _calling(said: Said, plans: tuple[Planned, ...], memory: Memory, ids: tuple[str, ...]) -> Said:
    items = [memory.mint(ids[1]) if len(ids) > 1 else "" for _ in plans]
    hidden = said.hidden.proof if said.hidden else ""
    told = (said.thought, said.proof)
    said.calls = tuple(
        Handed(memory.mint(ids[0]), plan, *told, item, said.reasoning_id, hidden)
        for plan, item in zip(plans, items, strict=True)
    )
    memory.calls |= {one.id: one for one in said.calls}
    return said


def _shaped(asked: Asked, memory: Memory, ids: tuple[str, ...]) -> Said:
    """A shape can be asked for in its own words, or as a tool that takes it."""
    if asked.shape:
        return Said(json.dumps(FORECAST, ensure_ascii=False))
    if asked.tools and not asked.steps:
        return _calling(Said(), (Planned(asked.tools[0], FORECAST),), memory, ids)
    if asked.steps:
        return Said("Done.")
    raise Refusal("no shape was asked for")


TAG = re.compile(r"\[case (\w+)\]")


def tag_of(body: str) -> str:
    """The mark that a test puts into its prompt."""
    found = TAG.search(body)
    return found[1] if found else ""


def pieces(text: str, size: int = 5) -> list[str]:
    """A text as a model streams it."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def line(value: Object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
