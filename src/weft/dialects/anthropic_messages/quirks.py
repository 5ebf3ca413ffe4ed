"""What hosts and models of this wire take in a request. Defaults fit the newest models."""

from dataclasses import dataclass

from weft.context import Context, Quirks
from weft.request import Effort


@dataclass(frozen=True, slots=True)
class MessagesQuirks(Quirks):
    """A request that came in this dialect is changed only where the host would refuse it."""

    adaptive: bool = True
    """The model decides how much it thinks, steered by an effort. Older ones want a budget."""

    efforts: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
    """The efforts it knows; one above all of them becomes `high`."""

    may_not_think: bool = True
    """Thinking can be switched off."""

    unsigned_thinking: bool = False
    """Takes thinking back that has no signature, because it never signs any."""

    sampling: bool | None = None
    """Whether temperature, top_p and top_k of other dialects are sent. None: as the model takes
    them (`asking/models.py`); the newest answer 400 to them."""

    late_system: bool = True
    """Takes instructions in the middle of a conversation. Else they are told by the user."""

    max_tokens: int = 64_000
    """The limit of an answer when none was asked: the wire wants one. Less, if the model takes
    less."""

    most_tokens: int | None = None
    """The highest limit that the model takes. None: that of the model, if it is known."""

    name_limit: int = 64
    """The letters a tool's name may have."""

    cache_ttl: bool = True
    """Takes how long a cache is to live."""

    web_search: str = "web_search_20250305"
    web_fetch: str = "web_fetch_20250910"
    code_execution: str = "code_execution_20250825"
    """The versions of hosted tools that requests of other dialects get."""


def quirks_of(context: Context) -> MessagesQuirks:
    found = context.quirks
    return found if isinstance(found, MessagesQuirks) else MessagesQuirks()
