"""The schema of weft.toml: every setting with its type, default and description.

`docs/settings.md` is generated from this file. The type of a number has its range.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from weft.agent.definition import Limits
from weft.dialects.stages.markup_calls import TAGS, TOKENS, Markup
from weft.prices import Price
from weft.scrub import Secret
from weft.upstream.base import BreakerPolicy, Pool, RetryPolicy, Timeouts, Tls

_YEAR = 31_536_000

Seconds = Annotated[float, Meta(ge=0, le=_YEAR)]
SomeSeconds = Annotated[float, Meta(gt=0, le=_YEAR)]
LeaseSeconds = Annotated[float, Meta(ge=1, le=_YEAR)]
Days = Annotated[float, Meta(ge=0, le=36_525)]
Amount = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Dollars = Annotated[float, Meta(ge=0, le=1_000_000_000)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Workers = Annotated[int, Meta(ge=1, le=1024)]
Depth = Annotated[int, Meta(ge=1, le=500)]  # deeper than that, no JSON is read at all

Weight = Annotated[float, Meta(gt=0)]
Word = Annotated[str, Meta(min_length=1)]


class BudgetSettings(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a key may spend, in US dollars. Days and months are those of UTC."""

    day: Dollars | None = None
    """On one day."""

    month: Dollars | None = None
    """In one month."""

    total: Dollars | None = None
    """Ever."""


class KeyRules(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a key may do. Limits hold for all workers and gateways on one database together."""

    models: tuple[str, ...] | None = None
    """The models, aliases and agents that it may use, as clients name them; `*` stands for any
    characters: `openai/*`. Without it, all of them."""

    requests_per_minute: Count | None = None
    """Requests that create responses. Without it, any number."""

    tokens_per_minute: Count | None = None
    """Tokens of requests and responses. Without it, any number."""

    streams: Count | None = None
    """Responses at the same time. Without it, any number."""

    budget: BudgetSettings = BudgetSettings()
    """What it may spend, in US dollars, for example `{ day = 5, month = 50, total = 200 }`. With a
    budget, only models can be used whose prices are known."""

    usage: Literal["own", "all"] = "own"
    """Whose usage `GET /v1/usage` shows it: its own, or that of all keys."""


class KeySettings(KeyRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key of a client. `alice = "…"` is short for `alice = { secret = "…" }`. Limits hold for all
    workers and gateways on one database together."""

    secret: Secret
    """The key: `env:NAME`, `file:PATH`, or the key itself."""


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of requests, responses, connections and clients. Sizes are in bytes."""

    # Anthropic's limit of a request to Messages is 32 MB; nothing larger would be accepted there.
    body: Count = 33_554_432
    """The body of a request."""

    head: Count = 65_536
    """The request line and all header fields."""

    fields: Count = 100
    """Header fields of a request."""

    depth: Depth = 64
    """Nesting of JSON objects and arrays."""

    object_keys: Count = 10_000
    """Keys of one JSON object."""

    array_items: Count = 100_000
    """Items of one JSON array."""

    values: Count = 1_000_000
    """Values of one JSON body, counted by its commas and opening brackets."""

    messages: Count = 10_000
    """Messages of a conversation."""

    tools: Count = 512
    """Tools that a request may declare."""

    schema: Count = 1_048_576
    """The JSON schema of a tool, or of the output."""

    response: Count = 67_108_864
    """The response of an upstream to one request."""

    duration: SomeSeconds = 1800.0
    """Seconds that one response may take."""

    head_time: SomeSeconds = 10.0
    """Seconds for the head of a request to arrive."""

    body_time: SomeSeconds = 10.0
    """Seconds that the body of a request may be slower than `body_rate`."""

    body_rate: Amount = 1024
    """The slowest rate of a request body, in bytes per second; 0: no limit."""

    memory: Count = 536_870_912
    """Memory of all requests of a worker together, while they are received and answered. A body
    counts as six times its size, or twelve times if it is not all ASCII, and 512 bytes for each of
    its JSON objects if they are many: so much is needed to parse and translate it. Earlier
    turns that a request continues count in the same way, as soon as they are read. Answers do not
    count; one that is not streamed is held as a whole. A request that does not fit gets 503, also
    over a WebSocket; a WebSocket whose message alone does not fit is closed with 1013."""

    connections: Count = 4096
    """Open connections of a worker."""

    connections_without_key: Count = 1024
    """Those of them without a valid key so far. Above the limit, the oldest idle one is closed."""

    streams_per_key: Amount = 0
    """Concurrent responses of each client key in a worker; 0: no limit."""

    stalled: SomeSeconds = 60.0
    """Seconds that a client may read nothing while data waits for it."""

    buffer: Count = 262_144
    """Bytes that are buffered for a client that reads slowly. Above that, its upstream is not read
    until the client has caught up."""

    websocket_message: Count = 33_554_432
    """One WebSocket message."""

    websockets_per_key: Count = 64
    """Open WebSockets of one client key."""


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the gateway listens, who may use it, and how it treats its clients."""

    host: str = "127.0.0.1"
    """The address to listen on. Any address but loopback needs `keys`, or `--insecure`."""

    port: Port = 8787
    """The port to listen on; 0: any free port."""

    workers: Workers = 1
    """Worker processes that share the port."""

    # WHATWG HTML (9.2.7, "Authoring notes"): a comment every 15 seconds or so keeps proxies from
    # closing the connection.
    keepalive: Seconds = 15.0
    """Seconds without an event after which a client gets a keepalive; 0: never."""

    # 0: a client that leaves cancels its upstream, which otherwise would be paid for.
    resume_window: Seconds = 0.0
    """Seconds that a stored stream goes on after its client disconnected, to be resumed."""

    drain: Seconds = 30.0
    """Seconds that open responses may go on after the server was asked to stop. It may take ten
    seconds more until the process exits."""

    # Some hosts send usage in a chunk behind the finish reason; others send nothing, and do not
    # close.
    grace: Seconds = 1.0
    """Seconds to wait for the usage after the finish reason of an upstream."""

    hosts: tuple[str, ...] = ()
    """Further names that the `Host` header of a request may have."""

    websocket: bool = True
    """Whether `/v1/responses` is served over WebSocket too."""

    page: bool = True
    """Whether the page for people (chat, lists, inspector) is served at `/`."""

    tool_session: bool = False
    """Use tool sessions for every client of `/v1/responses`: a response that waits for tool outputs
    has `required_action`, as it has for clients with `include: ["required_action"]`."""

    # An upstream in the same network as the gateway could fetch what its clients cannot reach.
    remote_urls: Literal["pass", "refuse"] = "pass"
    """URLs of images, files and MCP servers in requests: passed on to the upstream, or refused.
    The gateway itself never fetches them."""

    reject_lossy: bool = False
    """Refuse requests with fields that the upstream's dialect cannot express."""

    log: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""

    log_format: Literal["auto", "text", "json"] = "auto"
    """Lines for people, or one JSON object per line; `auto` is `text` on a terminal."""

    hooks: tuple[str, ...] = ()
    """`module:function` for Python functions that get the record of every finished request
    ([guide](gateway.md#hooks))."""

    metrics: Literal["key", "public", "off"] = "key"
    """Who may read `/metrics` ([guide](observability.md)): clients with a key, if keys are set;
    everybody who can connect; nobody, and nothing is counted."""

    keys: dict[str, Secret | KeySettings] = {}
    """Client keys by name: `env:NAME`, `file:PATH`, or the key itself; see `[server.keys.NAME]`.
    Further ones are made by `weft keys create`. Without any: loopback only."""

    limits: LimitSettings = LimitSettings()
    """See `[server.limits]`."""


class StoreSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where responses are stored, and for how long."""

    url: str = "sqlite:///weft.db"
    """`sqlite:///PATH` or `postgresql://…`."""

    enabled: bool = True
    """Whether anything is stored."""

    required: bool = True
    """Whether a response that cannot be stored is an error for its client."""

    persist: Literal["asked", "all"] = "asked"
    """Which responses are stored: those that a client can retrieve (`store: true`, the default of
    Responses), or all, including Messages and Gemini, which cannot be retrieved."""

    reasoning: bool = True
    """Whether the reasoning before tool calls is stored for a day, for Chat Completions clients:
    most of them do not send it back, and some upstreams require it."""

    retention: Days = 0.0
    """Days after which a response is removed; 0: never."""

    log_retention: Days = 0.0
    """Days after which the event log of a response is removed, so that it cannot be resumed any
    more; the response and the digest of the log stay. 0: never."""

    upstream: Literal["all", "findings", "none"] = "all"
    """Of which stored responses it is kept what their upstreams sent, with arrival times: of all,
    of those with findings, or of none. A trace (`weft trace`, the inspector) shows it; without it,
    traces are made of the events that were sent to the client."""

    upstream_retention: Days = 7.0
    """Days after which what upstreams sent is removed; 0: with the response."""

    # Renewed eight times as often (sessions.py): one slow transaction does not lose it.
    lease: LeaseSeconds = 15.0
    """Seconds without a sign of life after which another gateway on the same database ends the
    responses of this one. A process that died on the same machine is noticed at once."""


class UpstreamSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A server with models. Its name is the part of a model's name before the slash."""

    preset: str | None = None
    """A built-in preset (`weft config presets`), which has the dialect, base URL, quirks and the
    variable of the key. Without it and without `base_url`: the preset of the upstream's name."""

    dialect: str | None = None
    """`openai-chat`, `openai-responses`, `anthropic-messages` or `gemini`."""

    base_url: str | None = None
    """The URL before `/chat/completions`, `/responses`, `/v1/messages` or `/v1beta`. `demo:` is the
    built-in model."""

    api_key: Secret | None = None
    """`env:NAME`, `file:PATH`, or the key itself. Default: the variable of the preset."""

    quirks: str | dict[str, object] | None = None
    """The name of a preset whose quirks to use, or a table of the dialect's quirks, which overrides
    those of the preset."""

    headers: dict[str, str] = {}
    """Further headers of every request. A value may be `env:NAME` or `file:PATH`."""

    timeouts: Timeouts = Timeouts()
    """See `[upstreams.NAME.timeouts]`."""

    concurrency: Count | None = None
    """Concurrent requests; without it, any number."""

    tls: Tls = Tls()
    """See `[upstreams.NAME.tls]`."""

    proxy: Secret | None = None
    """The HTTP proxy: `http://[user:password@]host:port`, `env:NAME`, `file:PATH`, or `none`.
    Default: the variable `HTTPS_PROXY` or `HTTP_PROXY`, unless `NO_PROXY` names the host or it is
    this machine."""

    pool: Pool = Pool()
    """See `[upstreams.NAME.pool]`."""

    retry: RetryPolicy = RetryPolicy()
    """See `[upstreams.NAME.retry]`."""

    breaker: BreakerPolicy = BreakerPolicy()
    """See `[upstreams.NAME.breaker]`."""

    models: tuple[str, ...] = ()
    """Models to list. Others can be used, too."""

    discover: bool | None = None
    """Whether `/v1/models` also lists what the upstream itself lists. Default: unless `models` is
    set."""

    betas: tuple[str, ...] | None = None
    """The `anthropic-beta` flags of clients that are passed on; without it, all of them."""


class AliasSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A name for several models, of which each request uses one. `fast = ["a/x", "b/y"]` is short
    for `fast = { targets = ["a/x", "b/y"] }`. The name of a model itself (`"a/x"`) can have
    everything but targets."""

    targets: tuple[str, ...] = ()
    """`<upstream>/<model>`. If one fails before its response begins, the next is tried."""

    balance: Literal["order", "weighted", "least-busy"] = "order"
    """Which target is tried first, and so on: the first of the list; one at random, according to
    `weights`; the one with the fewest requests in progress in this process."""

    weights: tuple[Weight, ...] = ()
    """One for each target; without it, all are equal."""

    lossy: Literal["warn", "refuse"] | None = None
    """What happens to requests with fields that the upstream's dialect cannot express. `warn` drops
    them, and names them in `Weft-Findings`. Default: `warn`, or `refuse` with
    `server.reject_lossy`."""


class AgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """An agent: a model with instructions and tools ([guide](agents.md)). A run uses the settings
    with which it was started."""

    model: str
    """`<upstream>/<model>`, or an alias."""

    instructions: str = ""
    """The system prompt, or `file:PATH`."""

    tools: tuple[str, ...] = ()
    """`module:function` for a Python function with `@weft.tool`, which is imported from the folder
    of this file or from the installed packages; `mcp:NAME` for the tools of an MCP server;
    `agent:NAME` for another agent."""

    approval: dict[str, Literal["always", "never"]] = {}
    """Whether a person must approve the calls of a tool, by the tool's name. It overrides what the
    tool itself declares."""

    limits: Limits = Limits()
    """See `[agents.NAME.limits]`."""

    on_interrupt: Literal["retry", "fail"] = "retry"
    """After a crash inside a turn: ask the model again, or end the run."""

    on_ambiguous: Literal["park", "tell-model"] = "park"
    """After a call whose outcome is unknown: wait for a person, or tell the model to verify it."""

    description: str = ""
    """What the model of another agent reads that has this one as a tool."""

    tools_visible: bool = True
    """Whether clients that use the agent as a model see the calls that it runs."""


class McpSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """An MCP server: a command that speaks over its standard input and output, or a URL."""

    command: tuple[str, ...] | None = None
    """The program and its arguments."""

    url: str | None = None
    """The streamable HTTP endpoint."""

    env: dict[str, Secret] = {}
    """The whole environment of the command; nothing is inherited, not even `PATH`. A value may be
    `env:NAME` or `file:PATH`."""

    headers: dict[str, Secret] = {}
    """Headers of every HTTP request. A value may be `env:NAME` or `file:PATH`."""

    allow_private: bool = False
    """Whether the host of the URL may have an address that is not public. An address in the URL
    itself, and `localhost`, are always allowed."""

    allow: tuple[str, ...] | None = None
    """The tools that may be used, by the server's names; without it, all of them."""

    trust_hints: bool = False
    """Whether to believe the server that a tool only reads, or may be called again."""

    timeout: SomeSeconds = 60.0
    """Seconds for one call."""

    connect_timeout: SomeSeconds = 30.0
    """Seconds to start the server, or to connect to it."""


class WorkerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How each process of the gateway works on the runs of agents, and on background responses."""

    lease: LeaseSeconds = 15.0
    """Seconds without a sign of life after which another process continues a run."""

    concurrency: Count = 64
    """Runs that one process works on at the same time, and as many background responses.
    Runs that wait for somebody do not count."""

    dispatcher: Literal["auto", "local", "pgqueuer"] = "auto"
    """How processes learn of runs and background responses that are due: from a queue in PostgreSQL
    (`pgqueuer`, with the extra `weft[workers]`), or by looking into the store four times a second
    (`local`). `auto` is `pgqueuer` where that is possible. All processes on one database should use
    the same."""


class OtelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Traces and metrics for OpenTelemetry ([guide](observability.md)), with the extra
    `weft[otel]`."""

    endpoint: str | None = None
    """The URL of a collector that accepts OTLP over HTTP (`http://127.0.0.1:4318`), before
    `/v1/traces` and `/v1/metrics`. Without it nothing is sent."""

    headers: dict[str, Secret] = {}
    """Headers of every request to the collector. A value may be `env:NAME` or `file:PATH`."""

    service: str = "weft"
    """`service.name`."""

    traces: bool = True
    """Whether traces are sent, and passed on to the upstreams (`traceparent`)."""

    metrics: bool = True
    """Whether metrics are sent."""

    sample: Share = 1.0
    """The share of traces that are sent, from 0 to 1. For a request with a `traceparent` its
    sampled flag decides."""

    content: bool = False
    """Whether spans contain prompts, responses, and the arguments and results of tools."""

    interval: SomeSeconds = 10.0
    """Seconds between two exports of metrics. Traces are sent after 5 seconds at the latest."""


class SettingsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    upstreams: dict[str, UpstreamSettings] = {}
    """Without any: the demo upstream, with the name `demo`."""

    models: dict[str, str | tuple[str, ...] | AliasSettings] = {}
    """Aliases: names for `<upstream>/<model>`, or for several, which are tried in order; or tables
    (`[models.NAME]`)."""

    agents: dict[str, AgentSettings] = {}
    """Without any, and without upstreams: the demo agent, with the name `demo`."""

    mcp: dict[str, McpSettings] = {}
    prices: dict[str, Price] = {}
    """Prices by `<upstream>/<model>`. Other models have the list prices of `genai-prices`."""

    workers: WorkerSettings = WorkerSettings()
    otel: OtelSettings = OtelSettings()


# Upstreams and agents must not depend on the settings, so what they declare has no ranges.
FIELD_RANGES: dict[type, dict[str, object]] = {
    Timeouts: {
        "connect": SomeSeconds,
        "first_byte": SomeSeconds,
        "between_events": SomeSeconds,
    },
    RetryPolicy: {"attempts": Count, "base": Seconds, "longest": Seconds},
    Pool: {"idle": Amount, "idle_time": SomeSeconds, "age": SomeSeconds},
    BreakerPolicy: {"failures": Amount, "open_for": Seconds},
    Markup: {"begin": Word, "end": Word},
    Price: {"input": Dollars, "output": Dollars, "cached": Dollars | None},
    Limits: {
        "turns": Count,
        "calls": Count,
        "calls_per_turn": Count,
        "parallel": Count,
        "attempts": Count,
        "call_attempts": Count,
        "same_call": Count,
        "loop": Count,
        "idle_turns": Count,
        "result": Count,
        "active": SomeSeconds,
        "approval": SomeSeconds,
        "tokens": Count | None,
        "cost": Annotated[float, Meta(gt=0)] | None,
    },
}
"""The ranges of fields that are declared elsewhere."""

NAMED_VALUES: dict[object, dict[str, object]] = {Markup: {"tags": TAGS, "tokens": TOKENS}}
"""Names that can be written in place of a table."""
