"""Keys of upstreams are told to nobody; and nothing that a client says leads elsewhere."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.faults.upstream import FIN, STREAM, Step, Upstream, answer, chunk, stream
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    GEMINI,
    SPEECHES,
    body_of,
    error_body,
    event,
    path_of,
    posted,
)
from tests.faults.world import PATIENT, World, place, world
from tests.tables import each_row

PLANTED: dict[str, str] = {
    dialect: f"Planted/{dialect}+{number}=Key" for number, dialect in enumerate(DIALECTS)
}
"""They look like no key that anybody knows, and have letters that are escaped here and there."""

HEADER = "planted-header-value-77"


@pytest.fixture(scope="module")
def leaky(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway whose upstreams have keys of their own. Nobody may ever have been told one."""
    more: dict[str, object] = {**PATIENT, "headers": {"X-Team": HEADER}}
    settings = "\n".join(
        place(dialect, dialect, behind.url, **more, api_key=key) for dialect, key in PLANTED.items()
    )
    with world(settings, tmp_path_factory.mktemp("leaky"), behind) as made:
        yield made
        made.gateway.stop()
        told_nobody(made.gateway.stderr + made.gateway.stdout)


def told_nobody(text: str) -> None:
    for key in PLANTED.values():
        for form in (key, quote(key, safe=""), json.dumps(key)[1:-1], key.replace("/", "\\/")):
            assert form not in text


def echoes(dialect: str) -> dict[str, list[Step]]:
    """How an upstream tells the key that it got."""
    key, said = PLANTED[dialect], SPEECHES[dialect]
    header = f"X-Key: {key}"
    url = f"https://api.example/v1?key={quote(key, safe='')}&x=1"
    message = f"Incorrect API key provided: {key}. Authorization: Bearer {key}; see {url}"
    escaped = error_body(dialect, message).replace(b"/", b"\\/")
    page = f"<html><title>Bad key {key}</title></html>".encode()
    odd = json.dumps({"detail": [{"loc": ["body", key], "msg": key}]}).encode()
    broken = said.error.replace(b"too busy", message.encode())
    begun = [STREAM, *map(chunk, said.head + said.content)]
    return {
        "401": [answer(error_body(dialect, message, "auth"), "401 Unauthorized", header)],
        "400": [answer(error_body(dialect, message, "bad"), "400 Bad Request", header)],
        "500": [answer(error_body(dialect, message, "bad"), "500 No", header)],
        "escaped": [answer(escaped, "400 Bad Request")],
        "429": [answer(error_body(dialect, message), "429 No", f"Retry-After: {key}")],
        "a page": [answer(page, "403 Forbidden", "Content-Type: text/html")],
        "a list": [answer(odd, "422 Unprocessable")],
        "a redirect": [answer(b"", "302 Found", f"Location: {url}")],
        "the first event": [*stream(broken)],
        "an event": [*begun, chunk(broken), FIN],
        "headers": [answer(said.body, "200 OK", header, f"Set-Cookie: k={key}", f"Server: {key}")],
        "no JSON": [answer(key.encode(), "500 No", "Content-Type: text/plain")],
        "a malformed frame": [*begun, chunk(b'data: {"' + key.encode() + b"\n\n"), FIN],
        "no HTTP": [key.encode() + b"\r\n\r\n"],
    }


@pytest.mark.parametrize("how", echoes(CHAT))
@pytest.mark.parametrize("client", DIALECTS)
def test_the_key_of_an_upstream_is_told_to_nobody(leaky: World, client: str, how: str) -> None:
    for upstream in DIALECTS:
        model = leaky.upstream.script(echoes(upstream)[how])
        for asked in (True, False):
            found = leaky.ask(client, f"{upstream}/{model}", asked)
            told_nobody(repr(found) + found.body.decode())
            assert found.status != 401
            assert HEADER not in repr(found)


@pytest.mark.parametrize("upstream", DIALECTS)
def test_an_upstream_gets_its_own_key_and_none_of_the_client_s_headers(
    leaky: World, upstream: str
) -> None:
    model = leaky.upstream.script([answer(SPEECHES[upstream].body)])
    own = ("Authorization: Bearer client-key", "x-api-key: client-key",
           "x-goog-api-key: client-key", "Cookie: a=b",
           "X-Forwarded-For: 1.2.3.4", "X-Own: 1", "OpenAI-Organization: o",
           "User-Agent: theirs", "Referer: http://secret.example")  # fmt: skip
    assert leaky.ask(CHAT, f"{upstream}/{model}", False, *own).status == 200
    (exchange,) = leaky.upstream.exchanges(model)
    named = {"authorization": "Bearer ", "x-api-key": "", "x-goog-api-key": ""}
    keys = {name: exchange.headers[name] for name in named if name in exchange.headers}
    assert [value.removeprefix("Bearer ") for value in keys.values()] == [PLANTED[upstream]]
    assert "client-key" not in repr(exchange)
    assert not {"cookie", "x-forwarded-for", "x-own", "referer"} & set(exchange.headers)
    assert exchange.headers["x-team"] == HEADER


@pytest.mark.parametrize("client", DIALECTS)
def test_what_a_client_says_is_not_logged(leaky: World, client: str) -> None:
    """Neither what was asked nor what was answered."""
    body = SPEECHES[client].body.replace(b"Warp and weft.", b"a planted answer")
    model = leaky.upstream.script([answer(body)])
    name = f"{client}/{model}"
    asked = body_of(client, name, False).replace(b'"hi"', b'"a planted prompt"')
    with leaky.client() as connection:
        connection.send(posted(path_of(client, name, False), asked))
        assert b"a planted answer" in connection.answer().body
    leaky.logged_model(model)
    assert "planted prompt" not in leaky.gateway.stderr
    assert "planted answer" not in leaky.gateway.stderr


# Where an upstream is asked

ODD = ("../admin", "..", "a/../../b", "a?x=1", "a#b", "a@evil.example", "a%2e%2e", "a:b", "a;b",
       "//evil.example/a", "http://evil.example", "a b", "a\\b", "é", "a%00b", "a\tb")  # fmt: skip


@each_row("model", ODD)
@each_row("client", DIALECTS)
def test_the_name_of_a_model_is_one_segment_of_a_path_at_most(
    leaky: World, client: str, model: str
) -> None:
    said = [answer(SPEECHES[GEMINI].body)]
    leaky.upstream.named(model, said)
    before = len(leaky.upstream.exchanges(model))
    name = f"{GEMINI}/{model}"
    target = path_of(client, quote(name, safe="") if client == GEMINI else name, False)
    with leaky.client() as connection:
        connection.send(posted(target, body_of(client, name, False)))
        found = connection.answer()
    if found.status == 200:
        exchange = leaky.upstream.exchanges(model)[before]
        assert exchange.path == f"/v1beta/models/{quote(model, safe='')}:generateContent"
    else:
        assert 400 <= found.status < 500, found
        assert len(leaky.upstream.exchanges(model)) == before


@pytest.mark.parametrize("client", DIALECTS)
def test_a_request_cannot_say_where_to_ask(leaky: World, behind: Upstream, client: str) -> None:
    """Neither in its body nor in its headers."""
    canary = behind.script([answer(SPEECHES[CHAT].body)])
    elsewhere = f"{behind.url}/v1beta/models/{canary}:generateContent"
    model = leaky.upstream.script([answer(SPEECHES[CHAT].body)])
    names = ("base_url", "api_base", "url", "endpoint", "proxy")
    extra: dict[str, object] = {"extra_headers": {"Host": "evil"}, "api_key": "other"}
    extra |= dict.fromkeys(names, elsewhere)
    more = {} if client == GEMINI else extra
    headers = (f"X-Base-Url: {elsewhere}", f"X-Upstream: {elsewhere}", "Weft-Upstream: other",
               f"X-Forwarded-Host: {elsewhere}", "X-HTTP-Method-Override: DELETE")  # fmt: skip
    found = leaky.ask(client, f"{CHAT}/{model}", False, *headers, **more)
    assert found.status in (200, 400)
    assert behind.exchanges(canary) == []


def test_addresses_in_a_request_are_not_fetched(leaky: World, behind: Upstream) -> None:
    canary = behind.script([answer(b"a picture")])
    url = f"{behind.url}/v1beta/models/{canary}:generateContent"
    said = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    for upstream in DIALECTS:
        model = leaky.upstream.script([answer(SPEECHES[upstream].body)])
        found = leaky.ask(CHAT, f"{upstream}/{model}", False, messages=said)
        assert found.status in (200, 400)
    assert behind.exchanges(canary) == []


def test_an_event_of_an_upstream_is_no_line_of_the_log(leaky: World) -> None:
    evil = event({"error": {"message": 'x"}\n{"level":"error","id":"req_forged"}', "code": "a"}})
    model = leaky.upstream.script(stream(evil))
    leaky.ask(CHAT, f"{CHAT}/{model}", True)
    (line,) = leaky.logged_model(model)
    assert line["level"] == "warning"
    assert not any(one.get("id") == "req_forged" for one in leaky.lines)
