"""Which fields of a request are in which fields of a Messages body, and which have none."""

from operator import attrgetter
from typing import NamedTuple

from msgspec import UNSET

from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.passthrough import FieldGetters
from weft.dialects.requests.two_roles import leading_instruction_messages
from weft.request import Request


class MessagesField(NamedTuple):
    """A field of a request, and the field of the body that holds it.

    A field that is in two fields of the body has two rows, the preferred one first.
    """

    canonical: str
    wire: str | None
    """None: this API has no such field, so that a request loses it."""

    depends_on: tuple[str, ...] = ()
    """Other fields of the request that the top-level field of the body is rendered from."""

    default: object = None
    """A value whose loss changes nothing."""

    refused: bool = False
    """Whether a request is refused rather than sent without it."""

    @property
    def key(self) -> str:
        """The top-level field of the body."""
        return (self.wire or "").partition(".")[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The top-level fields of the request that it is rendered from."""
        return (self.canonical.partition(".")[0], *self.depends_on)


_FIELDS = (
    MessagesField("model", "model"),
    MessagesField("max_output_tokens", "max_tokens"),
    MessagesField("instructions", "system"),
    MessagesField("messages", "messages"),
    MessagesField("tools", "tools"),
    MessagesField("tools", "mcp_servers"),
    MessagesField("tool_choice", "tool_choice", ("extra",)),
    MessagesField("tool_choice.mode", "tool_choice.type"),
    MessagesField("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),
    MessagesField("reasoning", "thinking", ("extra",)),
    MessagesField("reasoning.summary", "thinking.display"),
    MessagesField("reasoning.effort", "output_config.effort"),
    MessagesField("output", "output_config.format", ("extra",)),
    MessagesField("stop", "stop_sequences"),
    MessagesField("sampling.temperature", "temperature"),
    MessagesField("sampling.top_p", "top_p"),
    MessagesField("sampling.top_k", "top_k"),
    MessagesField("user", "metadata.user_id", ("extra",)),
    MessagesField("service_tier", "service_tier"),
    MessagesField("cache", "cache_control", ("extra",)),
    MessagesField("stream", "stream"),
    MessagesField("sampling.seed", None),
    MessagesField("sampling.presence_penalty", None),
    MessagesField("sampling.frequency_penalty", None),
    MessagesField("verbosity", None),
    MessagesField("prompt_cache_key", None),
    MessagesField("sampling.logprobs", None),
    MessagesField("sampling.logit_bias", None),
    MessagesField("max_tool_calls", None),
    MessagesField("truncation", None, default="disabled"),
    MessagesField("choices", None, default=1, refused=True),
    MessagesField("previous_response_id", None, refused=True),
)

SOURCE_PATHS = {row.canonical: row.wire for row in reversed(_FIELDS) if row.wire is not None}
"""The path of each field of a request in a body. Each message has its own path."""


FIELD_SOURCES: FieldGetters = {
    **{
        top.key: attrgetter(*(name for row in _FIELDS if row.key == top.key for name in row.names))
        for top in _FIELDS
        if top.wire is not None
    },
    "system": lambda request: (
        request.instructions,
        request.messages[: leading_instruction_messages(request)],
    ),
}
"""Reads what a top-level field of the body is rendered from. A field for which that did not change
is sent in its original bytes."""


def report_lost_fields(request: Request, losses: Losses) -> None:
    """Reports the fields that this API does not have."""
    for row in _FIELDS:
        value = None if row.wire is not None else attrgetter(row.canonical)(request)
        if value in (None, UNSET, row.default):
            continue
        if row.refused:
            losses.refused(row.canonical, f"{row.canonical} is not available on {NAME}; remove it")
        else:
            losses.dropped(row.canonical, NAME)
