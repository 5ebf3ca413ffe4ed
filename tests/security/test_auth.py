"""Who may come in: keys on every route, hosts and origins before them."""

import json
import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route as HttpRoute
from starlette.routing import WebSocketRoute

from tests.faults.upstream import answer
from tests.faults.wires import CHAT, DIALECTS, SPEECHES, body_of, error_seen, path_of
from tests.faults.world import World
from tests.gateway_process import gateway
from tests.raw_http import Answer
from tests.security.keys import CLOSED, KEYS, ROUTES, Route
from tests.tables import each_row
from tests.weft_command import run
from weft.gateway.app import Gateway
from weft.gateway.settings import load

ALICE = KEYS["alice"]
routes = each_row("route", CLOSED, ids=str)


def ask(
    world: World, method: str, target: str, *headers: str, host: str | None = "localhost",
    body: bytes = b"{}", kind: str | None = "application/json",
) -> Answer:  # fmt: skip
    own = [] if host is None else [f"Host: {host}"]
    if method == "POST":
        own += [f"Content-Length: {len(body)}", *([f"Content-Type: {kind}"] if kind else [])]
    lines = [f"{method} {target} HTTP/1.1", *own, *headers, "", ""]
    with world.client() as client:
        client.send("\r\n".join(lines).encode("latin-1") + (body if method == "POST" else b""))
        return client.answer()


def test_every_route_is_listed_here() -> None:
    found = []
    for route in Gateway(load(None, {}))._router.routes:
        if isinstance(route, WebSocketRoute):
            found.append(("WEBSOCKET", route.path))
        else:
            assert isinstance(route, HttpRoute)
            methods = route.methods or set()
            found += [(one, route.path) for one in methods if one != "HEAD" or methods == {"HEAD"}]
    assert sorted(found) == sorted((route.method, route.path) for route in ROUTES)


# Keys

WRONG: dict[str, tuple[str, ...]] = {
    "none": (),
    "an empty one": ("Authorization: Bearer ",),
    "another scheme": (f"Authorization: Basic {b64encode(ALICE.encode()).decode()}",),
    "no scheme": (f"Authorization: {ALICE}",),
    "wrong": ("Authorization: Bearer nobody-knows-this-key",),
    "truncated": (f"Authorization: Bearer {ALICE[:-1]}",),
    "longer": (f"Authorization: Bearer {ALICE}x",),
    "another case": (f"Authorization: Bearer {ALICE.swapcase()}",),
    "the name": ("Authorization: Bearer alice",),
    "60 kB": (f"Authorization: Bearer {'x' * 60_000}",),
    "60 kB that begin well": (f"x-api-key: {ALICE}{'x' * 60_000}",),
    "not ASCII": ("Authorization: Bearer cl\xe9-\xff\xfe",),
    "in x-api-key": ("x-api-key: nobody-knows-this-key",),
    "in x-goog-api-key": ("x-goog-api-key: nobody-knows-this-key",),
    "in a cookie": (f"Cookie: key={ALICE}; Authorization={ALICE}",),
    "two": (f"Authorization: Bearer {ALICE},{ALICE}",),
    "a mark of SQL": ("Authorization: Bearer ' OR '1'='1",),
}  # fmt: skip


@routes
@pytest.mark.parametrize("wrong", WRONG)
def test_without_a_right_key_nobody_comes_in(locked: World, route: Route, wrong: str) -> None:
    found = ask(locked, route.method, route.target, *WRONG[wrong])
    assert found.status == 401
    assert found.headers["www-authenticate"] == "Bearer"
    assert error_seen(route.dialect, found.body).message
    assert ALICE not in repr(found)


BOB = KEYS["bob"]
TWICE: dict[str, tuple[str, ...]] = {
    "Authorization": (f"Authorization: Bearer {ALICE}", f"Authorization: Bearer {BOB}"),
    "the same Authorization": (f"Authorization: Bearer {ALICE}",) * 2,
    "x-api-key": (f"x-api-key: {BOB}", f"x-api-key: {ALICE}"),
    "x-goog-api-key": ("x-goog-api-key: nobody-knows-this-key", f"x-goog-api-key: {ALICE}"),
    "Origin": (f"x-api-key: {ALICE}", "Origin: http://evil.example", "Origin: http://localhost"),
    "keys of two clients": (f"Authorization: Bearer {ALICE}", f"x-api-key: {BOB}"),
    "a wrong key, then a right one": ("Authorization: Bearer nobody", f"x-goog-api-key: {ALICE}"),
    "a right key, then a wrong one": (f"x-api-key: {ALICE}", "x-goog-api-key: nobody"),
}  # fmt: skip


@routes
@pytest.mark.parametrize("twice", TWICE)
def test_who_says_twice_who_asks_is_a_bad_request(locked: World, route: Route, twice: str) -> None:
    found = ask(locked, route.method, route.target, *TWICE[twice])
    assert found.status == 400
    assert error_seen(route.dialect, found.body).message
    assert ALICE not in repr(found)


@routes
def test_one_key_may_be_shown_in_several_headers(locked: World, route: Route) -> None:
    shown = (f"Authorization: Bearer {ALICE}", f"x-api-key: {ALICE}", "x-goog-api-key: ")
    once = ask(locked, route.method, route.target, shown[0])
    assert ask(locked, route.method, route.target, *shown).status == once.status


@routes
@pytest.mark.parametrize("name", ["key", "api_key", "access_token", "Authorization"])
def test_a_key_in_the_query_is_no_key(locked: World, route: Route, name: str) -> None:
    found = ask(locked, route.method, f"{route.target}?{name}={ALICE}")
    assert found.status == 401
    assert ALICE not in repr(found)


@routes
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize("header", ["Authorization: Bearer ", "authorization: bearer ",
                                    "x-api-key: ", "X-Goog-Api-Key: "])  # fmt: skip
def test_with_a_key_everybody_comes_in(locked: World, route: Route, header: str, key: str) -> None:
    found = ask(locked, route.method, route.target, header + key)
    assert found.status not in (401, 403)


@pytest.mark.parametrize("route", [one for one in ROUTES if one.open], ids=str)
def test_whether_it_lives_is_nobody_s_secret(locked: World, route: Route) -> None:
    found = httpx.request(route.method, locked.gateway.url + route.target, trust_env=False)
    assert found.status_code == 200


@pytest.mark.parametrize(
    "path", ["/nothing", "/page/", "/page/nothing.js", "/page/vendor/marked.LICENSE",
             "/v1", "/v1/models/", "/health/x/", "/ready/x", "//health", "/Health",
             "/health;x", "/v1/../health", "/%68ealth/../v1/models", "/docs"])  # fmt: skip
def test_what_is_not_there_needs_a_key_too(locked: World, path: str) -> None:
    assert ask(locked, "GET", path).status == 401


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_other_methods_need_a_key_too(locked: World, method: str) -> None:
    target = b"%s /v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n" % method.encode()
    with locked.client() as client:
        client.send(target)
        status, _ = client.head()
    assert status == 401


def test_a_key_is_asked_for_before_the_body_is_read(locked: World) -> None:
    """The body never comes."""
    with locked.client() as client:
        client.send(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        status, _ = client.head()
    assert status == 401


def test_the_log_names_the_key_and_does_not_tell_it(locked: World) -> None:
    model = locked.upstream.script([answer(SPEECHES[CHAT].body)])
    found = locked.ask(CHAT, f"{CHAT}/{model}", False, f"Authorization: Bearer {ALICE}")
    assert found.status == 200
    (line,) = locked.logged_model(model)
    assert line["key"] == "alice"
    (exchange,) = locked.upstream.exchanges(model)
    assert ALICE not in repr(exchange)


# Hosts

EVIL_HOSTS = (
    "evil.example", "evil.example:8787", "127.0.0.1.evil.example", "localhost.evil.example",
    "evil-localhost", "127.0.0.2", "0.0.0.0", "[::2]", "[::ffff:127.0.0.1]", "weft.example.evil",
    "xweft.example", "localhost.", "2130706433", "0x7f.1",
)  # fmt: skip
NO_HOSTS = ("", " ", "user@localhost", "localhost@evil.example", "localhost/evil", "localhost#",
            "localhost:x", "localhost:123456", "a b", "[::1", "localhost,evil.example")  # fmt: skip
PATHS = ("/health", "/ready", "/v1/models", "/nothing", "/", "/page/app.js", "/metrics")


@each_row("path", PATHS)
@each_row("host", EVIL_HOSTS)
@each_row("keys", [True, False], ids=["locked", "unlocked"])
def test_a_name_that_is_not_ours_is_misdirected(
    locked: World, unlocked: World, keys: bool, host: str, path: str
) -> None:
    found = ask(locked if keys else unlocked, "GET", path, f"x-api-key: {ALICE}", host=host)
    assert found.status == 421


@each_row("host", NO_HOSTS)
@each_row("path", PATHS)
def test_what_is_no_host_is_a_bad_request(unlocked: World, host: str, path: str) -> None:
    assert ask(unlocked, "GET", path, host=host).status == 400


def test_no_host_and_two_hosts_are_a_bad_request(unlocked: World) -> None:
    assert ask(unlocked, "GET", "/health", host=None).status == 400
    assert ask(unlocked, "GET", "/health", "Host: localhost").status == 400
    assert ask(unlocked, "GET", "/health", "Host: evil.example").status == 400


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "LocalHost", "localhost:1", "127.0.0.1:65535",
             "[::1]:80", "weft.example", "weft.example:443", "WEFT.example"])  # fmt: skip
def test_our_own_names_are_ours(locked: World, host: str) -> None:
    assert ask(locked, "GET", "/health", host=host).status == 200


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/health", "localhost", 200),
        ("http://evil.example/health", "localhost", 400),
        ("http://evil.example/health", "evil.example", 421),
        ("http://localhost@evil.example/health", "localhost", 400),
    ],
)
def test_an_absolute_target_is_of_the_host(
    unlocked: World, target: str, host: str, status: int
) -> None:
    assert ask(unlocked, "GET", target, host=host).status == status


# Origins

FOREIGN = ("http://evil.example", "https://evil.example", "null", "http://localhost:1", "", "file://",
           "http://localhost.evil.example", "http://evil.example/http://localhost")  # fmt: skip


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("keys", [True, False], ids=["locked", "unlocked"])
def test_a_foreign_page_may_not_ask(
    locked: World, unlocked: World, keys: bool, origin: str
) -> None:
    world = locked if keys else unlocked
    for dialect in DIALECTS:
        target, body = path_of(dialect, f"{CHAT}/m", False), body_of(dialect, f"{CHAT}/m", False)
        for kind in ("application/json", "text/plain", None):
            found = ask(world, "POST", target, f"x-api-key: {ALICE}", f"Origin: {origin}",
                        body=body, kind=kind)  # fmt: skip
            assert found.status == 403, (kind, found)
            assert error_seen(dialect, found.body).message
            assert not any(name.startswith("access-control") for name in found.headers)


@pytest.mark.parametrize("keys", [True, False], ids=["locked", "unlocked"])
def test_another_site_may_not_ask(locked: World, unlocked: World, keys: bool) -> None:
    world = locked if keys else unlocked
    found = ask(world, "POST", "/v1/messages", f"x-api-key: {ALICE}", "Sec-Fetch-Site: cross-site")
    assert found.status == 403


@pytest.mark.parametrize("origin", FOREIGN)
def test_no_page_is_told_that_it_may(unlocked: World, origin: str) -> None:
    """Neither by a preflight, nor by what can be read without one."""
    asked = (f"Origin: {origin}", "Access-Control-Request-Method: POST",
             "Access-Control-Request-Headers: content-type")  # fmt: skip
    for method in ("OPTIONS", "GET"):
        found = ask(unlocked, method, "/v1/models", *asked)
        assert not any(name.startswith("access-control") for name in found.headers)
        assert found.status in ((403, 405) if method == "OPTIONS" else (200,))


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None, "",
             "text/plain; application/json", "application/jsonx"])  # fmt: skip
def test_without_keys_only_json_is_taken(unlocked: World, kind: str | None) -> None:
    """A page can send the others unasked."""
    for dialect in DIALECTS:
        target, body = path_of(dialect, f"{CHAT}/m", False), body_of(dialect, f"{CHAT}/m", False)
        found = ask(unlocked, "POST", target, body=body, kind=kind)
        assert found.status == 415
        assert error_seen(dialect, found.body).message


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_the_own_page_may_ask(unlocked: World, kind: str) -> None:
    model = unlocked.upstream.script([answer(SPEECHES[CHAT].body)])
    found = ask(unlocked, "POST", "/v1/chat/completions", "Origin: http://localhost:8787",
                host="localhost:8787", body=body_of(CHAT, f"{CHAT}/{model}", False),
                kind=kind)  # fmt: skip
    assert found.status == 200


# WebSockets


def upgrade(world: World, *headers: str, host: str = "localhost") -> tuple[int, dict[str, str]]:
    lines = ["GET /v1/responses HTTP/1.1", f"Host: {host}", "Connection: Upgrade",
             "Upgrade: websocket", "Sec-WebSocket-Version: 13",
             "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", *headers, "", ""]  # fmt: skip
    with world.client() as client:
        client.send("\r\n".join(lines).encode("latin-1"))
        return client.head()


@pytest.mark.parametrize("wrong", [one for one in WRONG if "60" not in one])
def test_a_socket_is_not_opened_without_a_key(locked: World, wrong: str) -> None:
    assert upgrade(locked, *WRONG[wrong])[0] in (401, 403)


@pytest.mark.parametrize("twice", TWICE)
def test_a_socket_is_not_opened_by_two_who_ask(locked: World, twice: str) -> None:
    assert upgrade(locked, *TWICE[twice])[0] == 400


def test_a_socket_is_opened_with_a_key(locked: World) -> None:
    assert upgrade(locked, f"Authorization: Bearer {ALICE}")[0] == 101


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("keys", [True, False], ids=["locked", "unlocked"])
def test_a_foreign_page_opens_no_socket(
    locked: World, unlocked: World, keys: bool, origin: str
) -> None:
    world = locked if keys else unlocked
    status, _ = upgrade(world, f"Authorization: Bearer {ALICE}", f"Origin: {origin}")
    assert status == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example"])
def test_a_socket_is_not_opened_under_another_name(unlocked: World, host: str) -> None:
    assert upgrade(unlocked, host=host)[0] in (403, 421)


# Starting


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_without_keys_it_does_not_listen_to_others(tmp_path: Path, host: str) -> None:
    command = Path(sys.executable).with_name("weft")
    found = subprocess.run(
        [str(command), "serve", "--host", host, "--port", "0"],
        cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert found.returncode == 1
    assert "no client keys are set" in found.stderr
    assert "listening" not in found.stdout


def test_with_a_stored_key_it_listens_to_others(tmp_path: Path) -> None:
    """To all of them, or after all keys were revoked to none: never again to everybody."""
    for command in (("create", "alice"), ("revoke", "alice")):
        assert run("keys", *command, folder=tmp_path).code == 0
        with gateway("[store]\n", tmp_path, "--host", "0.0.0.0") as running:
            url = running.url.replace("0.0.0.0", "127.0.0.1")
            assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
            assert httpx.get(f"{url}/v1/models", trust_env=False).status_code == 401


def test_errors_of_the_door_are_json(locked: World) -> None:
    found = ask(locked, "GET", "/v1/models")
    assert json.loads(found.body)["error"]["code"] == "invalid_api_key"
