"""Differences between hosts and models in what they accept in a request."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from weft.context import Context, Quirks
from weft.request import Effort

_Count = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, slots=True)
class MessagesQuirks(Quirks):
    """The defaults fit the newest models. A request that came in this dialect is changed only where
    the host would reject it.
    """

    # Thinking
    adaptive: bool = True
    """Supports adaptive thinking with an effort. Older models need a budget."""

    efforts: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
    """The supported efforts; one that is not supported becomes `high`."""

    may_not_think: bool = True
    """Thinking can be disabled."""

    unsigned_thinking: bool = False
    """Accepts thinking blocks without a signature, because it never signs any."""

    # Options
    sampling: bool | None = None
    """Whether temperature, top_p and top_k of other dialects are sent. None: as the model accepts
    them (`requests/models.py`); the newest models answer them with HTTP 400."""

    late_system: bool = True
    """Accepts system messages in the middle of a conversation. Else they become user messages."""

    max_tokens: _Count = 64_000
    """`max_tokens` where the request has no limit, as the API requires one. Less, if the model
    accepts less."""

    most_tokens: _Count | None = None
    """The highest `max_tokens`. None: that of the model, if it is known."""

    # API reference: names match `^[a-zA-Z0-9_-]{1,64}$`. Some hosts accept 128.
    name_limit: _Count = 64
    """The maximum length of a tool name."""

    cache_ttl: bool = True
    """Accepts `cache_control.ttl`."""

    web_search: str = "web_search_20250305"
    web_fetch: str = "web_fetch_20250910"
    code_execution: str = "code_execution_20250825"
    """The versions of server tools that requests of other dialects get."""

    def __post_init__(self) -> None:
        # Quirks are keys of a cache.
        object.__setattr__(self, "efforts", tuple(self.efforts))


def quirks_of(context: Context) -> MessagesQuirks:
    quirks = context.quirks
    return quirks if isinstance(quirks, MessagesQuirks) else _DEFAULTS


_DEFAULTS = MessagesQuirks()
