"""Every client that runs through the gateway, by name."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Final

from tests.clients.case import Case, Outcome

CHAT: Final = "openai-chat"
RESPONSES: Final = "openai-responses"
MESSAGES: Final = "anthropic-messages"
GEMINI: Final = "gemini"


@dataclass(frozen=True)
class Driver:
    """A client library, in the way it is used here."""

    dialect: str
    function: str
    """A module beside this one, and its function."""

    async def run(self, case: Case) -> Outcome:
        """Raises whatever the library raises.

        Libraries are imported here: every worker collects these tests, and to import them all
        takes longer than the rest of it.
        """
        function: Callable[[Case], Awaitable[Outcome]] = resolve_name(
            f"tests.clients.{self.function}"
        )
        return await function(case)


DRIVERS = {
    "openai-chat": Driver(CHAT, "with_openai:chat"),
    "openai-responses": Driver(RESPONSES, "with_openai:responses"),
    "anthropic": Driver(MESSAGES, "with_anthropic:messages"),
    "agents-chat": Driver(CHAT, "with_agents:chat"),
    "agents-responses": Driver(RESPONSES, "with_agents:responses"),
    "langchain-chat": Driver(CHAT, "with_langchain:chat"),
    "langchain-responses": Driver(RESPONSES, "with_langchain:responses"),
    "langchain-anthropic": Driver(MESSAGES, "with_langchain:messages"),
    "pydantic-chat": Driver(CHAT, "with_pydantic:chat"),
    "pydantic-responses": Driver(RESPONSES, "with_pydantic:responses"),
    "pydantic-anthropic": Driver(MESSAGES, "with_pydantic:messages"),
    "gemini-http": Driver(GEMINI, "with_gemini:generate"),
}
