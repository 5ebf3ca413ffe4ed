"""What each cell is expected to show where it is not the plain best, with the reason.

A cell is a client, an upstream and a scenario. Nothing is skipped: what a client library cannot
do, or the gateway does not carry, is told here, and the cell asserts exactly that.
"""

from dataclasses import dataclass

RETURNED, MISSING, REFUSED = "returned", "missing", "refused"
UNPROVEN = "unproven"
"""The upstream told no reasoning, so there is none to bring back."""


@dataclass(frozen=True)
class Carried:
    """What becomes of the proof of a reasoning, on its way through a client and back."""

    verdict: str
    """As the upstream saw it. Refused: it answered 400, and the client was told."""
    why: str = ""


PLAIN = Carried(RETURNED)
_TEXT = "keeps the text of a chat answer's reasoning, not the details that carry its proof"
_DROPS = "drops the reasoning of chat answers"
_NOT_TOLD = "is not told the signature of a text by us (its vendor does not insist on it)"

_FORGETFUL = ("langchain-chat",)
_TEXT_ONLY = ("agents-chat", "pydantic-chat")
_ITEMS = ("openai-responses", "agents-responses", "langchain-responses", "pydantic-responses")
_BLOCKS = ("anthropic", "langchain-anthropic", "pydantic-anthropic")

_ROWS: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], Carried], ...] = (
    (_FORGETFUL, ("chat", "responses", "messages"), ("follow-up",), Carried(MISSING, _DROPS)),
    (_TEXT_ONLY, ("responses", "messages"), ("follow-up",), Carried(MISSING, _TEXT)),
    (
        ("openai-chat", *_FORGETFUL, *_TEXT_ONLY, *_ITEMS, *_BLOCKS),
        ("gemini",),
        ("follow-up",),
        Carried(MISSING, _NOT_TOLD),
    ),
)
"""Clients, upstreams and scenarios; every other cell brings the proof back as it was: what clients
drop of turns with calls, the gateway remembers for them."""

CARRIED = {
    (client, upstream, scenario): how
    for clients, upstreams, scenarios, how in _ROWS
    for client in clients
    for upstream in upstreams
    for scenario in scenarios
}


ALONE = {
    ("langchain-chat", "reasoning-tool"): Carried(REFUSED, _DROPS),
    ("langchain-chat", "reasoning-mixed"): Carried(REFUSED, _DROPS),
    ("agents-chat", "reasoning-mixed"): Carried(REFUSED, _TEXT),
    ("pydantic-chat", "reasoning-mixed"): Carried(REFUSED, _TEXT),
}
"""Clients and scenarios without a gateway: the vendor itself sees what was dropped."""


def carried(client: str, upstream: str, scenario: str, *, alone: bool = False) -> Carried:
    if scenario == "reasoning-hidden" and upstream == "chat":
        return Carried(UNPROVEN)
    found = CARRIED.get((client, upstream, scenario), PLAIN)
    return ALONE.get((client, scenario), found) if alone else found


THOUGHTLESS = {"langchain-chat": _DROPS}
"""Clients that show their users no reasoning."""

AS_TOOL = {("langchain-anthropic", False), ("langchain-anthropic", True)} | {
    (client, False) for client in ("pydantic-chat", "pydantic-responses", "pydantic-anthropic")
}
"""Clients, whole or streaming, that ask for a shape as a tool to be called."""

JSON_MODE = {
    "openai-chat",
    "openai-responses",
    "langchain-chat",
    "langchain-responses",
    "gemini-http",
}
"""Clients whose users can ask for an object without a schema; the others have no word for it."""
