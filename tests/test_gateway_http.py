"""The gateway over HTTP: what is listed, counted, refused and said beside the answers."""

import json
import socket as sockets
from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx
import openai
import pytest

import weft
from tests.faults.upstream import STREAM, Hold, Upstream, answer, chunk, upstream
from tests.faults.wires import GEMINI, SPEECHES
from tests.faults.world import until
from tests.gateway_process import Gateway, gateway
from tests.open_responses import Object

PATIENCE = 30.0
SETTINGS = """
[server]
keepalive = 0.2

[upstreams.chat]
dialect = "openai-chat"
base_url = "demo:fast"
models = ["chat", "team/deep model"]
retry = {{ attempts = 1 }}

[upstreams.claude]
dialect = "anthropic-messages"
base_url = "demo:fast"
models = ["reasoner"]

[upstreams.google]
dialect = "gemini"
base_url = "{url}"
models = []

[upstreams.far]
dialect = "anthropic-messages"
base_url = "{url}"
api_key = "sk-of-the-upstream"
betas = ["one", "two"]
retry = {{ attempts = 1 }}
breaker = {{ failures = 0 }}

[models]
fast = "chat/chat"
careful = ["far/nobody", "claude/chat"]
"claude-*" = "claude/chat"
"gpt-*" = "claude/*"
"""
LISTED = ["fast", "careful", "chat/chat", "chat/team/deep model", "claude/reasoner"]
HELLO = [{"role": "user", "content": "Hello there"}]
CONTENTS = [{"role": "user", "parts": [{"text": "Hello there"}]}]


@pytest.fixture(scope="module")
def far() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def served(far: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(SETTINGS.format(url=far.url), tmp_path_factory.mktemp("gateway")) as running:
        yield running
    assert '"level":"error"' not in running.stderr


@pytest.fixture(scope="module")
def http(served: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=PATIENCE, trust_env=False) as client:
        yield client


# Models


def test_models_are_listed_in_the_shape_of_the_client(http: httpx.Client) -> None:
    asked = http.get("/v1/models").json()
    assert asked["object"] == "list"
    assert [one["id"] for one in asked["data"]][: len(LISTED)] == LISTED
    assert asked["data"][2] == {
        "id": "chat/chat",
        "object": "model",
        "created": 0,
        "owned_by": "chat",
        "input_modalities": ["text"],
    }
    versioned = http.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert [one["id"] for one in versioned["data"]][: len(LISTED)] == LISTED
    assert (versioned["has_more"], versioned["first_id"]) == (False, "fast")
    assert versioned["last_id"] == versioned["data"][-1]["id"]
    assert versioned["data"][0] == {
        "type": "model",
        "id": "fast",
        "display_name": "fast",
        "created_at": "1970-01-01T00:00:00Z",
    }
    beta = http.get("/v1beta/models").json()
    names = [f"models/{name}" for name in LISTED]
    assert [one["name"] for one in beta["models"]][: len(LISTED)] == names
    assert beta["models"][0]["supportedGenerationMethods"] == [
        "generateContent",
        "streamGenerateContent",
    ]


NAMES = ("fast", "chat/chat", "chat/team/deep model", "chat/not-listed", "claude-of-any-kind")


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_found_by_its_name_with_its_slashes(name: str, http: httpx.Client) -> None:
    quoted = name.replace("/", "%2F")
    for path in (name, quoted):
        assert http.get(f"/v1/models/{path}").json()["id"] == name
        assert http.get(f"/v1beta/models/{path}").json()["name"] == f"models/{name}"


@pytest.mark.parametrize("name", NAMES)
def test_the_openai_package_lists_and_retrieves_models(name: str, served: Gateway) -> None:
    with openai.OpenAI(api_key="x", base_url=f"{served.url}/v1", max_retries=0) as client:
        assert [one.id for one in client.models.list()][: len(LISTED)] == LISTED
        assert client.models.retrieve(name).id == name
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve("nobody/has-it")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("name", NAMES)
def test_the_anthropic_package_lists_and_retrieves_models(name: str, served: Gateway) -> None:
    with anthropic.Anthropic(api_key="x", base_url=served.url, max_retries=0) as client:
        assert [one.id for one in client.models.list()][: len(LISTED)] == LISTED
        assert client.models.retrieve(name).display_name == name
        with pytest.raises(anthropic.NotFoundError):
            client.models.retrieve("nobody/has-it")


ASKED: dict[str, tuple[str, Object]] = {
    "openai-chat": ("/v1/chat/completions", {"messages": HELLO}),
    "openai-responses": ("/v1/responses", {"input": "Hello there"}),
    "anthropic-messages": ("/v1/messages", {"messages": HELLO, "max_tokens": 500}),
    "gemini": ("/v1beta/models/{model}:generateContent", {"contents": CONTENTS}),
}


def ask(http: httpx.Client, dialect: str, model: str, **more: object) -> httpx.Response:
    path, body = ASKED[dialect]
    named = {} if dialect == "gemini" else {"model": model}
    return http.post(path.format(model=model), json={**body, **named, **more})


@pytest.mark.parametrize("dialect", ASKED)
@pytest.mark.parametrize(
    ("model", "by"),
    [
        ("fast", "chat"),
        ("chat/chat", "chat"),
        ("claude/chat", "claude"),
        ("claude-of-any-kind", "claude"),
        ("careful", "claude"),
    ],
)
def test_who_answers_is_said_in_a_header(
    model: str, by: str, dialect: str, http: httpx.Client, far: Upstream
) -> None:
    told = ask(http, dialect, model)
    assert (told.status_code, told.headers["weft-upstream"]) == (200, by)
    assert told.headers["weft-request-id"].startswith("req_")


@pytest.mark.parametrize("dialect", ASKED)
def test_a_star_in_a_target_is_the_name_as_it_came(dialect: str, http: httpx.Client) -> None:
    told = ask(http, dialect, "gpt-nine")
    assert told.status_code == 404
    assert "'gpt-nine'" in told.text


@pytest.mark.parametrize("dialect", ASKED)
def test_an_unknown_model_is_not_found(dialect: str, http: httpx.Client) -> None:
    told = ask(http, dialect, "nobody/chat")
    assert told.status_code == 404
    assert "no model 'nobody/chat'; expected one of: chat/…, claude/…" in told.text
    assert "weft-upstream" not in told.headers


# Tokens


def count(http: httpx.Client, model: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"model": model, "system": "Be brief.", "messages": HELLO}
    return http.post("/v1/messages/count_tokens", json=body, headers=named)


def test_tokens_are_counted_by_an_upstream_that_can(http: httpx.Client, far: Upstream) -> None:
    model = far.script((answer(b'{"input_tokens":1234}'),))
    told = count(
        http, f"far/{model}", anthropic_version="2023-06-01", anthropic_beta="one, three,two"
    )
    assert (told.status_code, told.json()) == (200, {"input_tokens": 1234})
    assert told.headers["weft-upstream"] == "far"
    assert "weft-findings" not in told.headers
    exchange = far.exchange(model)
    assert exchange.path == "/v1/messages/count_tokens"
    assert exchange.headers["x-api-key"] == "sk-of-the-upstream"
    assert exchange.headers["anthropic-version"] == "2023-06-01"
    assert exchange.headers["anthropic-beta"] == "one,two"
    assert json.loads(exchange.body) == {"model": model, "system": "Be brief.", "messages": HELLO}


def test_the_lines_of_a_repeated_header_are_one_list(http: httpx.Client, far: Upstream) -> None:
    model = far.script((answer(b'{"input_tokens":1234}'),))
    body = {"model": f"far/{model}", "messages": HELLO}
    lines = [("anthropic-beta", "two"), ("anthropic-version", "2023-06-01")]
    lines += [("anthropic-beta", "three,one")]
    assert http.post("/v1/messages/count_tokens", json=body, headers=lines).status_code == 200
    assert far.exchange(model).headers["anthropic-beta"] == "two,one"


@pytest.mark.parametrize("status", ["404 Not Found", "500 Internal Server Error"])
def test_tokens_are_estimated_where_the_upstream_does_not_count(
    status: str, http: httpx.Client, far: Upstream
) -> None:
    model = far.script((answer(b"{}", status),))
    told = count(http, f"far/{model}")
    assert (told.status_code, told.json()) == (200, {"input_tokens": 6})
    assert told.headers["weft-findings"] == "warned:estimated"


@pytest.mark.parametrize("model", ["chat/chat", "fast"])
def test_tokens_are_estimated_where_the_upstream_has_another_dialect(
    model: str, http: httpx.Client
) -> None:
    told = count(http, model)
    assert (told.status_code, told.json()) == (200, {"input_tokens": 6})
    assert told.headers["weft-findings"] == "warned:estimated"


def test_pictures_and_names_of_fields_are_not_counted(http: httpx.Client) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 4000}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    body = {"model": "chat/chat", "messages": [{"role": "user", "content": content}]}
    told = http.post("/v1/messages/count_tokens", json=body)
    assert told.json() == {"input_tokens": 6}


def test_the_anthropic_package_counts_tokens(served: Gateway) -> None:
    with anthropic.Anthropic(api_key="x", base_url=served.url, max_retries=0) as client:
        told = client.messages.with_raw_response.count_tokens(
            model="claude/chat", messages=[{"role": "user", "content": "Hello there"}]
        )
        assert told.headers["weft-upstream"] == "claude"
        assert told.parse().input_tokens > 0
        with pytest.raises(anthropic.NotFoundError):
            client.messages.count_tokens(
                model="nobody", messages=[{"role": "user", "content": "Hello there"}]
            )


# Operations, and what is not there


def test_health_and_readiness_are_told(http: httpx.Client) -> None:
    health = http.get("/health")
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    # Whoever was answered before this may still be open for a moment.
    until(lambda: http.get("/ready").json()["open"] == 0, "earlier ones to be over")
    ready = http.get("/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "open": 0})


def shape_of(error: Object) -> str:
    """The dialect that an error has the shape of."""
    if error.get("type") == "error":
        return "anthropic-messages"
    inner: Object = error["error"]
    if "status" in inner:
        return "gemini"
    return (
        "openai-responses" if inner["type"] in ("invalid_request", "not_found") else "openai-chat"
    )


WRONG_PATHS = [
    ("GET", "/v1/nothing", 404, "openai-chat"),
    ("POST", "/v1/chat/nothing", 404, "openai-chat"),
    ("PUT", "/v1/chat/completions", 405, "openai-chat"),
    ("DELETE", "/v1/models", 405, "openai-chat"),
    ("PUT", "/v1/responses", 405, "openai-responses"),
    ("POST", "/v1/responses/a/b/c", 404, "openai-responses"),
    ("GET", "/v1/messages", 405, "anthropic-messages"),
    ("POST", "/v1/messages/nothing", 404, "anthropic-messages"),
    ("GET", "/v1beta/nothing", 405, "gemini"),
    ("POST", "/v1beta/nothing", 404, "gemini"),
    ("PUT", "/v1beta/models/a", 405, "gemini"),
    ("POST", "/v1beta/models/chat/chat:embedContent", 404, "gemini"),
    ("POST", "/v1beta/models/chat", 404, "gemini"),
]


@pytest.mark.parametrize(("method", "path", "status", "dialect"), WRONG_PATHS)
def test_what_is_not_there_is_told_in_the_shape_of_the_client(
    method: str, path: str, status: int, dialect: str, http: httpx.Client
) -> None:
    told = http.request(method, path, json={} if method == "POST" else None)
    assert told.status_code == status
    assert told.headers["content-type"] == "application/json"
    assert told.headers["weft-request-id"].startswith("req_")
    assert shape_of(told.json()) == dialect
    assert ("allow" in told.headers) == (status == 405)
    assert "model_not_found" not in told.text


ALLOWED = {
    "/v1/chat/completions": "GET, HEAD, POST",
    "/v1/responses": "GET, HEAD, POST",
    "/v1/responses/resp_1": "DELETE, GET, HEAD",
    "/v1/messages": "POST",
    "/v1/models": "GET, HEAD",
    "/": "GET, HEAD",
}


@pytest.mark.parametrize("path", ALLOWED)
def test_which_methods_a_path_has_is_said_of_all_its_endpoints(
    path: str, http: httpx.Client
) -> None:
    told = http.request("PUT", path)
    assert (told.status_code, told.headers["allow"]) == (405, ALLOWED[path])


MEANT = {
    ("POST", "/chat/completions"): "/v1/chat/completions",
    ("POST", "/responses"): "/v1/responses",
    ("POST", "/messages"): "/v1/messages",
    ("GET", "/models"): "/v1/models",
    ("POST", "/v1/v1/messages"): "/v1/messages",
    ("POST", "/v1/v1beta/models/chat/chat:generateContent"): (
        "/v1beta/models/chat/chat:generateContent"
    ),
}
"""What clients request whose base URL has no /v1, or one too many."""


@pytest.mark.parametrize(("method", "path"), MEANT)
def test_a_wrong_base_url_is_told(method: str, path: str, http: httpx.Client) -> None:
    told = http.request(method, path, json={} if method == "POST" else None)
    hint = f"{path} does not exist; did you mean {MEANT[method, path]}?"
    assert (told.status_code, hint in told.text) == (404, True)


@pytest.mark.parametrize("path", ["/v1/nothing", "/nothing", "/completions", "/v1/v1/nothing"])
def test_nothing_is_guessed_where_nothing_is_near(path: str, http: httpx.Client) -> None:
    told = http.post(path, json={})
    assert (told.status_code, "did you mean" in told.text) == (404, False)


@pytest.mark.parametrize("slashes", ["/", "//"])
@pytest.mark.parametrize("dialect", ASKED)
def test_a_slash_at_the_end_leads_nowhere_else(
    dialect: str, slashes: str, http: httpx.Client
) -> None:
    """A redirect would lose TLS behind a proxy, and clients would send it their keys."""
    path, body = ASKED[dialect]
    asked = {**body, "model": "chat/chat"} if dialect != "gemini" else body
    told = http.post(path.format(model="chat/chat") + slashes, json=asked)
    assert (told.status_code, "Hello! I am the demo model" in told.text) == (200, True)
    assert http.get(f"/v1/models{slashes}").json() == http.get("/v1/models").json()


def test_a_client_of_messages_is_told_so_by_its_header(http: httpx.Client) -> None:
    told = http.get("/v1/models/nobody/x", headers={"anthropic-version": "2023-06-01"})
    assert (told.status_code, shape_of(told.json())) == (404, "anthropic-messages")


# Losses


LOSSES: dict[str, Object] = {
    "openai-chat": {"seed": 7},
    "gemini": {"generationConfig": {"seed": 7}},
}


@pytest.mark.parametrize("dialect", LOSSES)
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_upstream_was_not_told_is_in_a_header(
    stream: bool, dialect: str, http: httpx.Client
) -> None:
    more = LOSSES[dialect] if dialect == "gemini" else {**LOSSES[dialect], "stream": stream}
    told = ask(http, dialect, "claude/chat", **more)
    path = "seed" if dialect == "openai-chat" else "generationConfig.seed"
    assert (told.status_code, told.headers["weft-findings"]) == (200, f"warned:{path}")
    kept = ask(http, dialect, "chat/chat", **more)
    assert (kept.status_code, kept.headers.get("weft-findings")) == (200, None)


def test_a_gateway_can_refuse_what_would_be_lost(tmp_path: Path) -> None:
    settings = SETTINGS.format(url="http://127.0.0.1:9")
    with (
        gateway(settings, tmp_path, "--reject-lossy") as running,
        httpx.Client(base_url=running.url, timeout=PATIENCE, trust_env=False) as http,
    ):
        told = ask(http, "openai-chat", "claude/chat", seed=7)
        error = told.json()["error"]
        assert (told.status_code, error["param"]) == (400, "seed")
        assert "claude speaks anthropic-messages" in error["message"]
        assert ask(http, "openai-chat", "claude/chat").status_code == 200
        assert ask(http, "openai-chat", "chat/chat", seed=7).status_code == 200


# Bytes


def _question(body: Object, path: str) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


@pytest.mark.parametrize("dialect", ASKED)
def test_the_head_and_the_first_event_of_a_stream_come_together(
    dialect: str, served: Gateway
) -> None:
    path, body = ASKED[dialect]
    path = path.format(model="chat/slow").replace(":generate", ":streamGenerate")
    asked = {**body, "model": "chat/slow", "stream": True} if dialect != "gemini" else body
    port = int(served.url.rpartition(":")[2])
    for _ in range(20):  # two segments that come at once look like one
        with sockets.create_connection(("127.0.0.1", port), PATIENCE) as client:
            client.sendall(_question(asked, f"{path}?alt=sse"))
            head, _, rest = client.recv(65536).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        # Where the machine is slow, it is a keepalive: that of Gemini is a blank line.
        assert b"data: {" in rest or b": keepalive" in rest or rest == b"1\r\n\n\r\n"


@pytest.mark.parametrize("dialect", [*ASKED, "array"])
def test_a_client_of_http_1_0_gets_a_stream_without_chunks(
    dialect: str, served: Gateway, http: httpx.Client
) -> None:
    """RFC 9112 (6.1). nginx sends requests like this, unless it is configured otherwise."""
    is_array, name = dialect == "array", "gemini" if dialect == "array" else dialect
    path, body = ASKED[name]
    path = path.format(model="chat/chat").replace(":generate", ":streamGenerate")
    path = path if is_array else f"{path}?alt=sse"
    asked = body if name == "gemini" else {**body, "model": "chat/chat", "stream": True}
    port = int(served.url.rpartition(":")[2])
    with sockets.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(_question(asked, path).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        head, _, told = client.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    names = {line.partition(b":")[0] for line in head.split(b"\r\n")}
    assert names & {b"connection", b"transfer-encoding", b"content-length"} == {b"connection"}
    expected = http.post(path, json=asked).content
    if is_array:
        assert _texts(json.loads(told)) == _texts(json.loads(expected))
    else:
        spoken = weft.DIALECTS[name].name
        both = [weft.assemble(weft.decode([one], dialect=spoken)) for one in (told, expected)]
        assert (both[0].text, both[0].findings) == (both[1].text, ())


# Gemini: paths, and streams without events


@pytest.mark.parametrize("prefix", ["/v1beta/models/", "/v1beta/"])
def test_a_model_with_a_slash_is_found_with_models_before_it_or_not(
    prefix: str, http: httpx.Client
) -> None:
    told = http.post(f"{prefix}claude/chat:generateContent", json={"contents": CONTENTS})
    assert (told.status_code, told.headers["weft-upstream"]) == (200, "claude")


def elements(told: httpx.Response) -> list[Object]:
    found: list[Object] = told.json()
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("upstream_name", ["chat", "claude"])
def test_a_stream_that_is_not_asked_for_as_events_is_an_array(
    upstream_name: str, http: httpx.Client
) -> None:
    path = f"/v1beta/models/{upstream_name}/chat:streamGenerateContent"
    array = http.post(path, json={"contents": CONTENTS})
    assert array.headers["content-type"] == "application/json"
    assert array.text.startswith("[{")
    events = http.post(f"{path}?alt=sse", json={"contents": CONTENTS})
    assert events.headers["content-type"].startswith("text/event-stream")
    told = [json.loads(one.removeprefix("data: ")) for one in events.text.split("\n\n") if one]
    assert _texts(elements(array)) == _texts(told) != ""
    assert elements(array)[-1]["candidates"][0]["finishReason"] == "STOP"


def _texts(chunks: list[Object]) -> str:
    parts = [
        part
        for one in chunks
        for candidate in one.get("candidates", ())
        for part in candidate.get("content", {}).get("parts", ())
    ]
    return "".join(part.get("text", "") for part in parts)


def test_an_array_comes_element_by_element(served: Gateway, far: Upstream) -> None:
    speech, hold = SPEECHES[GEMINI], Hold()
    model = far.script((STREAM, *map(chunk, speech.frames[:1]), hold, *_rest(speech.frames[1:])))
    port = int(served.url.rpartition(":")[2])
    with sockets.create_connection(("127.0.0.1", port), PATIENCE) as client:
        path = f"/v1beta/models/google/{model}:streamGenerateContent"
        client.sendall(_question({"contents": CONTENTS}, path))
        hold.here()
        first = client.recv(65536)
        while b"candidates" not in first:
            first += client.recv(65536)
        hold.release()
        while not first.endswith(b"0\r\n\r\n"):
            first += client.recv(65536)


def _rest(frames: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return (*map(chunk, frames), b"0\r\n\r\n")


def test_while_the_upstream_is_silent_an_array_has_blanks(
    http: httpx.Client, far: Upstream
) -> None:
    speech, hold = SPEECHES[GEMINI], Hold()
    model = far.script((STREAM, hold, *_rest(speech.frames)))
    path = f"/v1beta/models/google/{model}:streamGenerateContent"
    with http.stream("POST", path, json={"contents": CONTENTS}) as told:
        pieces = told.iter_bytes()
        assert next(pieces) == b"["
        assert next(pieces) == b"\n"
        hold.release()
        rest = b"".join(pieces)
    assert _texts(json.loads(b"[\n" + rest)) != ""


def test_an_array_of_an_answer_that_failed_ends_with_the_error(http: httpx.Client) -> None:
    path = "/v1beta/models/chat/error-midstream:streamGenerateContent"
    told = elements(http.post(path, json={"contents": CONTENTS}))
    assert "error" in told[-1]
    assert _texts(told) != ""


def test_an_array_that_never_began_is_an_error_with_its_status(http: httpx.Client) -> None:
    path = "/v1beta/models/chat/error-429:streamGenerateContent"
    told = http.post(path, json={"contents": CONTENTS})
    assert (told.status_code, told.json()["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
