"""The keys of clients, and every route there is: who may come in where."""

from dataclasses import dataclass

from tests.faults.wires import CHAT, GEMINI, MESSAGES, RESPONSES

KEYS = {"alice": "Alice-0123456789abcdef-Planted", "bob": "Bob-fedcba9876543210-Planted"}


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    """As the router has it."""

    target: str
    """As a client asks for it."""

    dialect: str
    open: bool = False
    """Whether it needs no key."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


_CALLS = "/v1beta/{call:path}"
_RESPONSE = "/v1/responses/{id}"
_CONVERSATION = "/v1/conversations/{id}"
_COMPLETION = "/v1/chat/completions/{id}"
_RUN = "/v1/runs/{id}"


def _stored(method: str, path: str, dialect: str = RESPONSES) -> Route:
    """What is stored there, under ids that nobody has."""
    return Route(method, path, path.format(id="resp_1", item_id="msg_1"), dialect)


ROUTES = (
    Route("WEBSOCKET", "/v1/responses", "/v1/responses", RESPONSES),
    Route("POST", "/v1/chat/completions", "/v1/chat/completions", CHAT),
    Route("POST", "/v1/responses", "/v1/responses", RESPONSES),
    _stored("GET", "/v1/responses"),
    *(_stored(method, _RESPONSE) for method in ("GET", "DELETE")),
    _stored("GET", f"{_RESPONSE}/input_items"),
    _stored("GET", f"{_RESPONSE}/findings"),
    _stored("GET", f"{_RESPONSE}/usage"),
    _stored("GET", f"{_RESPONSE}/trace"),
    _stored("GET", f"{_RESPONSE}/case"),
    _stored("POST", f"{_RESPONSE}/cancel"),
    _stored("POST", f"{_RESPONSE}/submit_tool_outputs"),
    _stored("GET", "/v1/chat/completions", CHAT),
    *(_stored(method, _COMPLETION, CHAT) for method in ("GET", "POST", "DELETE")),
    _stored("GET", f"{_COMPLETION}/messages", CHAT),
    *(_stored(method, "/v1/conversations") for method in ("GET", "POST")),
    *(_stored(method, _CONVERSATION) for method in ("GET", "POST", "DELETE")),
    *(_stored(method, f"{_CONVERSATION}/items") for method in ("GET", "POST")),
    *(_stored(method, f"{_CONVERSATION}/items/{{item_id}}") for method in ("GET", "DELETE")),
    Route("POST", "/v1/responses/compact", "/v1/responses/compact", RESPONSES),
    Route("POST", "/v1/responses/input_tokens", "/v1/responses/input_tokens", RESPONSES),
    _stored("GET", "/v1/usage"),
    _stored("GET", "/v1/agents"),
    *(_stored(method, "/v1/runs") for method in ("GET", "POST")),
    *(_stored(method, _RUN) for method in ("GET", "DELETE")),
    _stored("GET", f"{_RUN}/events"),
    *(
        _stored("POST", f"{_RUN}/{action}")
        for action in ("approvals", "outputs", "resolve", "messages", "cancel", "fork")
    ),
    Route("POST", "/v1/messages", "/v1/messages", MESSAGES),
    Route("POST", "/v1/messages/count_tokens", "/v1/messages/count_tokens", MESSAGES),
    Route("POST", _CALLS, "/v1beta/models/gemini/m:generateContent", GEMINI),
    Route("POST", "/v1/trace", "/v1/trace", RESPONSES),
    Route("POST", "/v1/trace/diff", "/v1/trace/diff", RESPONSES),
    Route("GET", "/v1/rules", "/v1/rules", RESPONSES),
    Route("GET", "/v1/rules/{code:path}", "/v1/rules/lifecycle/truncated", RESPONSES),
    Route("GET", "/v1/models", "/v1/models", CHAT),
    Route("GET", "/v1/models/{id:path}", "/v1/models/gemini/m", CHAT),
    Route("GET", "/v1beta/models", "/v1beta/models", GEMINI),
    Route("GET", "/v1beta/models/{id:path}", "/v1beta/models/gemini/m", GEMINI),
    Route("GET", "/", "/", CHAT, open=True),
    Route("GET", "/page/{path:path}", "/page/app.js", CHAT, open=True),
    Route("GET", "/health", "/health", CHAT, open=True),
    Route("HEAD", "/", "/", CHAT, open=True),
    Route("HEAD", "/api/hello", "/api/hello", CHAT, open=True),
    Route("GET", "/ready", "/ready", CHAT, open=True),
    Route("GET", "/metrics", "/metrics", CHAT),
)
"""A route that is missing here fails a test."""

CLOSED = tuple(route for route in ROUTES if not route.open and route.method != "WEBSOCKET")
