"""What a client is to do, and what its user has in the end."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from tests.clients.vendor import STEPS, Object, tool_result


class Forecast(BaseModel):
    """The shape of an answer."""

    model_config = ConfigDict(extra="forbid")

    city: str
    degrees: int


@dataclass
class Case:
    """One run of a scenario."""

    base: str
    """Where the client sends its requests: scheme, host and port."""
    key: str
    model: str
    """As the client names it."""
    scenario: str
    stream: bool
    tag: str
    heard: Callable[[], None] = lambda: None
    """Called for every piece of text that a stream brings."""
    ran: list[tuple[str, Object]] = field(default_factory=list)
    """The tools that ran, as (name, arguments)."""

    @property
    def prompt(self) -> str:
        return f"How are the weather and the time? [case {self.tag}]"

    @property
    def prompts(self) -> list[str]:
        """What the user says, one turn after the other."""
        return [self.prompt, "And now?"] if self.scenario == "follow-up" else [self.prompt]

    @property
    def tools(self) -> bool:
        return self.scenario in STEPS

    @property
    def thinks(self) -> bool:
        return self.scenario.startswith("reasoning") or self.scenario == "follow-up"

    @property
    def shaped(self) -> bool:
        return self.scenario in ("structured", "json-mode")

    @property
    def json_mode(self) -> bool:
        """Any object will do: the shape is not told."""
        return self.scenario == "json-mode"

    def weather(self, city: str) -> str:
        return self.run("weather", {"city": city})

    def clock(self, zone: str) -> str:
        return self.run("clock", {"zone": zone})

    def run(self, name: str, arguments: Object) -> str:
        self.ran.append((name, arguments))
        return tool_result(name, arguments)


@dataclass
class Outcome:
    """What the user of a client has."""

    text: str = ""
    thought: str = ""
    value: Forecast | None = None
    usage: tuple[int, int] | None = None
    """Input and output tokens, of a conversation of one turn."""


PARAMETERS: dict[str, Object] = {
    name: {
        "type": "object",
        "properties": {key: {"type": "string"}},
        "required": [key],
        "additionalProperties": False,
    }
    for name, key in (("weather", "city"), ("clock", "zone"))
}
ABOUT = {"weather": "The weather in a city.", "clock": "The time in a zone."}
