"""Everything once, with marked secrets: none of them is found anywhere, but where it belongs."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.faults.upstream import FIN, SILENCE, STREAM, Upstream, answer, chunk, stream
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    RESPONSES,
    SPEECHES,
    body_of,
    error_body,
    path_of,
    question,
)
from tests.faults.world import PATIENT, World, place, world
from tests.gateway_process import started
from tests.otlp import Collector, collector
from tests.security.keys import CLOSED, ROUTES
from tests.weft_command import run

CLIENT = "MarkedClient/0123+456789"
UPSTREAM = "MarkedUpstream/abc+def=ghi"
HEADER = "MarkedHeader-0123456789"
LITERAL = "MarkedLiteral/0123+456789"
COLLECTOR = "MarkedCollector/0123+456789"
SECRETS = (CLIENT, UPSTREAM, HEADER, LITERAL, COLLECTOR)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marked")


@pytest.fixture(scope="module")
def telemetry() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest.fixture(scope="module")
def marked(behind: Upstream, folder: Path, telemetry: Collector) -> Iterator[World]:
    settings = f'[otel]\nendpoint = "{telemetry.url}"\nheaders = {{ X-Tenant = "{COLLECTOR}" }}\n'
    settings += '[server]\nlog = "debug"\n[server.keys.alice]\n'
    settings += f'secret = "{CLIENT}"\nrequests_per_minute = 100000\nstreams = 1000\n'
    settings += '[agents.helper]\nmodel = "openai-chat/agent"\n'
    (folder / "team.txt").write_text(HEADER)
    for dialect in DIALECTS:
        more: dict[str, object] = {
            **PATIENT,
            "api_key": UPSTREAM,
            "headers": {"X-Team": "file:team.txt", "X-Literal": LITERAL},
        }
        settings += place(dialect, dialect, behind.url, **more)
    with world(settings, folder, behind, "--workers", "2") as made:
        yield made


def forms(secret: str) -> set[bytes]:
    """A secret, and how it may look inside something else."""
    found = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], secret.replace("/", "\\/")}
    return {one.encode() for one in found}


def assert_none(data: bytes, where: str, secrets: tuple[str, ...]) -> None:
    for secret in secrets:
        for form in forms(secret):
            assert form not in data, f"{form!r} in {where}"


def scripts(dialect: str) -> list[list[object]]:
    """What an upstream may do with a key: nothing, or to tell it."""
    said = SPEECHES[dialect]
    headers = f"{HEADER} {LITERAL}, Authorization: Bearer {UPSTREAM}"
    echo = f"Incorrect API key {UPSTREAM}, headers {headers}"
    return [
        [answer(said.body)],
        list(stream(*said.frames)),
        [answer(error_body(dialect, echo, "auth"), "401 No", f"X-Key: {UPSTREAM}")],
        [answer(error_body(dialect, echo, "bad"), "400 No", f"Set-Cookie: a={UPSTREAM}")],
        [answer(echo.encode(), "500 No", "Content-Type: text/html")],
        [STREAM, *map(chunk, said.head + said.content), chunk(said.error), FIN],
        [STREAM, *map(chunk, said.head + said.content), chunk(f"data: {echo}\n\n".encode()), FIN],
    ]


def test_no_secret_is_anywhere(marked: World, folder: Path, telemetry: Collector) -> None:
    stored_key = run("keys", "create", "bob", folder=folder).out.strip()
    secrets = (*SECRETS, stored_key)
    answers: list[tuple[str, bytes]] = []
    for key in (CLIENT, stored_key):
        for client in DIALECTS:
            for served in DIALECTS:
                for script in scripts(served):
                    model = marked.upstream.script(script)  # type: ignore[arg-type]
                    for is_streamed in (True, False):
                        header = f"x-api-key: {key}"
                        found = marked.ask(client, f"{served}/{model}", is_streamed, header)
                        answers.append((f"{client} {served}", repr(found).encode() + found.body))
    # A client that leaves, an agent, a background response, and every route with every key.
    model = marked.upstream.script([STREAM, *map(chunk, SPEECHES[CHAT].content), SILENCE])
    with marked.client() as connection:
        connection.send(question(CHAT, f"{CHAT}/{model}", True, f"x-api-key: {CLIENT}"))
        connection.until(b"and weft.")
    marked.upstream.named("agent", stream(*SPEECHES[CHAT].frames))
    own = f"Authorization: Bearer {CLIENT}"
    for name, more in (("helper", {}), (f"{CHAT}/agent", {"background": True})):
        found = marked.ask(RESPONSES, name, False, own, **more)
        answers.append((name, repr(found).encode()))
    for route in (*CLOSED, *(one for one in ROUTES if one.open)):
        for header in (own, f"x-api-key: {stored_key}", f"x-api-key: {CLIENT}x", "Cookie: a=b"):
            lines = [f"{route.method} {route.target} HTTP/1.1", "Host: localhost", header]
            lines += ["Content-Type: application/json", "Content-Length: 2"]
            body = b"{}" if route.method == "POST" else b""
            lines = lines if body else lines[:3]
            with marked.client() as connection:
                connection.send("\r\n".join([*lines, "", ""]).encode() + body)
                connection.socket.shutdown(1)
                answers.append((str(route), connection.rest()))
    for where, data in answers:
        assert_none(data, where, secrets)
    for command in (("usage",), ("keys", "list"), ("config", "check"), ("verify",)):
        done = run(*command, folder=folder)
        assert_none((done.out + done.err).encode(), " ".join(command), secrets)
    marked.gateway.stop()
    # What was exported, the last of it at the end; the collector got its own secret with it.
    assert {"/v1/traces", "/v1/metrics"} == set(telemetry.paths)
    assert {one["x-tenant"] for one in telemetry.headers} == {COLLECTOR}
    assert_none(b"\n".join(telemetry.raw), "what was exported", secrets)
    assert_none((marked.gateway.stderr + marked.gateway.stdout).encode(), "the log", secrets)
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("weft.toml", "team.txt"):
            assert_none(path.read_bytes(), path.name, secrets)
            assert path.stat().st_mode & 0o077 == 0, f"{path.name} can be read by others"
    with closing(sqlite3.connect(folder / "weft.db")) as database:
        assert_none("\n".join(database.iterdump()).encode(), "the tables", secrets)


def test_no_secret_is_in_what_weft_capture_writes(behind: Upstream, tmp_path: Path) -> None:
    keys = {"authorization": f"Bearer {CLIENT}", "x-api-key": UPSTREAM}
    keys |= {"x-team-token": HEADER, "cookie": LITERAL, "content-type": "application/json"}
    with (
        started("capture", "--upstream", behind.url, "--out", tmp_path) as running,
        httpx.Client(base_url=running.url, headers=keys, trust_env=False) as client,
    ):
        for dialect in DIALECTS:
            for number, script in enumerate(scripts(dialect)):
                model = f"marked-{dialect}-{number}"
                behind.named(model, script)  # type: ignore[arg-type]
                client.post(path_of(dialect, model, True), content=body_of(dialect, model, True))
    # Each is written before its connection is closed, and the process has ended.
    files = [*tmp_path.iterdir()]
    assert len(files) == sum(len(scripts(dialect)) for dialect in DIALECTS)
    for path_written in files:
        assert path_written.stat().st_mode & 0o077 == 0
        assert_none(path_written.read_bytes(), path_written.name, SECRETS)
    assert_none((running.stderr + running.stdout).encode(), "what it printed", SECRETS)
