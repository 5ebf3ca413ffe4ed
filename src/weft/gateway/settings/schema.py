"""What weft.toml may say: every setting with its type, its default and what it means.

`docs/settings.md` is made from this file. Numbers have their range in their type.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.dialects.gemini.quirks import GeminiQuirks
from weft.dialects.stages.markup_calls import TAGS, TOKENS, Markup
from weft.scrub import Secret
from weft.upstream.base import BreakerPolicy, RetryPolicy, Timeouts, Tls

_YEAR = 31_536_000

Seconds = Annotated[float, Meta(ge=0, le=_YEAR)]
SomeSeconds = Annotated[float, Meta(gt=0, le=_YEAR)]
LeaseSeconds = Annotated[float, Meta(ge=1, le=_YEAR)]
Days = Annotated[float, Meta(ge=0, le=36_525)]
Amount = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Workers = Annotated[int, Meta(ge=1, le=1024)]
Depth = Annotated[int, Meta(ge=1, le=500)]  # deeper than that, no JSON is read at all

Word = Annotated[str, Meta(min_length=1)]


class KeySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A key that a client shows. `alice = "…"` is short for `alice = { secret = "…" }`."""

    secret: Secret
    """The key: `env:NAME`, `file:PATH`, or the key itself."""


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What one request, answer, connection or client may take. Sizes are bytes."""

    body: Count = 33_554_432
    """The body of a request."""

    head: Count = 65_536
    """The request line and all header fields."""

    fields: Count = 100
    """Header fields of a request."""

    depth: Depth = 64
    """Objects and arrays inside one another."""

    object_keys: Count = 10_000
    """Keys of one JSON object."""

    array_items: Count = 100_000
    """Items of one JSON array."""

    values: Count = 1_000_000
    """Commas and opening brackets of one JSON body: about as many as it has values."""

    messages: Count = 10_000
    """Messages of a conversation."""

    tools: Count = 512
    """Tools that a request may declare."""

    schema: Count = 1_048_576
    """The schema of a tool, or of the output."""

    response: Count = 67_108_864
    """What an upstream may send for one answer."""

    duration: SomeSeconds = 1800.0
    """Seconds that one answer may take."""

    head_time: SomeSeconds = 10.0
    """Seconds for the head of a request to arrive."""

    body_time: SomeSeconds = 10.0
    """Seconds that the body of a request may be slower than `body_rate`."""

    body_rate: Amount = 1024
    """Bytes a second that a body must arrive with, once `body_time` is over; 0: any rate."""

    memory: Count = 536_870_912
    """What requests of a worker may take in memory while they are received and answered, all
    together. A body counts six times its size, or twelve times if it is not all ASCII: so much it
    takes to read and translate it. A request for which there is no room gets 503, a WebSocket
    whose message has none is closed with 1013."""

    connections: Count = 4096
    """Open connections of a worker."""

    connections_without_key: Count = 1024
    """Those of them that have shown no valid key yet. When there are more, the oldest that is not
    being answered is closed."""

    streams_per_key: Amount = 0
    """Answers at a time for one client key; 0: any number."""

    stalled: SomeSeconds = 60.0
    """Seconds that a client may read nothing while there is something for it."""

    buffer: Count = 262_144
    """Bytes that wait for one client that reads slowly. When there are more, its upstream is read
    no further until it has caught up."""

    websocket_message: Count = 33_554_432
    """One message over a WebSocket."""

    websockets_per_key: Count = 64
    """Open WebSockets of one client key."""


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the gateway listens, who may use it, and how it treats its clients."""

    host: str = "127.0.0.1"
    """The address to listen on. Any other than loopback needs `keys`, or `--insecure`."""

    port: Port = 8787
    """The port to listen on; 0: one that is free."""

    workers: Workers = 1
    """Processes that share the port."""

    keepalive: Seconds = 15.0
    """Seconds of silence before a client is told that the answer is still coming; 0: never."""

    resume_window: Seconds = 0.0
    """Seconds that a stored stream goes on after its client went away, to be resumed."""

    drain: Seconds = 30.0
    """Seconds that open answers may go on after the server was asked to stop."""

    grace: Seconds = 1.0
    """Seconds to wait for usage after an upstream said that it finished."""

    hosts: tuple[str, ...] = ()
    """More names that the `Host` of a request may have."""

    websocket: bool = True
    """Whether `/v1/responses` is served over WebSocket too."""

    tool_session: bool = False
    """Every client of `/v1/responses` gets tool sessions: an answer that waits for tool outputs
    says so, as it does for clients that ask with `include: ["required_action"]`."""

    reject_lossy: bool = False
    """Refuse requests that cannot be told to the upstream without a loss."""

    log: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is worth a line in the log."""

    keys: dict[str, Secret | KeySettings] = {}
    """Client keys by name: `env:NAME`, `file:PATH`, or the key itself. None: loopback only."""

    limits: LimitSettings = LimitSettings()
    """What is too much: see `[server.limits]`."""


class StoreSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where answers are kept."""

    url: str = "sqlite:///weft.db"
    """`sqlite:///PATH` or `postgresql://…`."""

    enabled: bool = True
    """Whether anything is kept at all."""

    required: bool = True
    """Whether an answer that cannot be stored is an error to its client."""

    persist: Literal["asked", "all"] = "asked"
    """Which answers are kept: those that their client may ask for later (`store`; Responses that
    do not say otherwise), or all, also of Messages and Gemini. Nobody can retrieve the others."""

    reasoning: bool = True
    """Whether the reasoning that led to tool calls is kept for a day, for Chat Completions clients:
    most of them do not send it back, and the upstream may insist on it."""

    retention: Days = 0.0
    """Days after which an answer is removed; 0: never."""

    log_retention: Days = 0.0
    """Days after which the log of an answer is removed, and with it its resumption; the answer
    and the digest of the log stay. 0: never."""

    lease: LeaseSeconds = 15.0
    """Seconds that a gateway can be silent before another on the same database ends its answers.
    One whose process is gone, on the same machine, is found at once."""


class UpstreamSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A place that answers. Its name stands before the slash of a model's."""

    preset: str | None = None
    """A host of the catalog (`weft config presets`): it gives dialect, base URL, quirks and the
    variable of the key. Left out, and no `base_url`: the host with the upstream's own name."""

    dialect: str | None = None
    """`openai-chat`, `openai-responses`, `anthropic-messages` or `gemini`."""

    base_url: str | None = None
    """What the path of the dialect hangs below: `/chat/completions`, `/responses`, `/v1/messages`
    or `/v1beta`. `demo:` is the built-in model."""

    api_key: Secret | None = None
    """`env:NAME`, `file:PATH`, or the key itself. Left out: the variable of the preset, if set."""

    quirks: str | dict[str, object] | None = None
    """The accent of the host: the name of a preset, or a table of the dialect's quirks, which
    changes those of the preset."""

    headers: dict[str, str] = {}
    """More header fields for every request. A value may be `env:NAME` or `file:PATH`."""

    timeouts: Timeouts = Timeouts()
    """See `[upstreams.NAME.timeouts]`."""

    concurrency: Count | None = None
    """Answers at a time; left out: any number."""

    tls: Tls = Tls()
    """See `[upstreams.NAME.tls]`."""

    retry: RetryPolicy = RetryPolicy()
    """See `[upstreams.NAME.retry]`."""

    breaker: BreakerPolicy = BreakerPolicy()
    """See `[upstreams.NAME.breaker]`."""

    models: tuple[str, ...] = ()
    """Models to list. Others may be asked for all the same."""

    betas: tuple[str, ...] | None = None
    """The `anthropic-beta` flags of clients that are passed on; left out: all of them."""


class SettingsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """All of weft.toml."""

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    upstreams: dict[str, UpstreamSettings] = {}
    """None at all: the demo upstream, under the name `demo`."""

    models: dict[str, str | tuple[str, ...]] = {}
    """Aliases: a name for `<upstream>/<model>`, or for several, tried in that order."""

    agents: dict[str, object] = {}
    """Not used yet."""


FIELD_RANGES: dict[type, dict[str, object]] = {
    Timeouts: {
        "connect": SomeSeconds,
        "first_byte": SomeSeconds,
        "between_events": SomeSeconds,
    },
    RetryPolicy: {"attempts": Count, "base": Seconds, "longest": Seconds},
    BreakerPolicy: {"failures": Amount, "open_for": Seconds},
    MessagesQuirks: {"max_tokens": Count, "most_tokens": Count | None, "name_limit": Count},
    GeminiQuirks: {"most_thinking": Count},
    Markup: {"begin": Word, "end": Word},
}
"""The ranges of what is declared elsewhere, without them."""

NAMED_VALUES: dict[object, dict[str, object]] = {Markup: {"tags": TAGS, "tokens": TOKENS}}
"""Tables that have a name, which can be written in their place."""
