"""Where the URL of an MCP server may lead: real servers on loopback, and names of our own."""

import asyncio
import http.server
import ipaddress
import ssl
import threading
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.raw_upstream import certified
from tests.strategies import QUICK
from tests.test_agent_mcp import HttpServer, call, finished, listening, tools_of, unavailable
from weft.agent.mcp import McpClient
from weft.agent.mcp_addresses import Resolver, is_literal, is_public, system_resolver
from weft.agent.mcp_config import McpServerConfig
from weft.agent.mcp_http import CheckedAddresses, FailuresAsAnswers

NAME = "mcp.example"
UNROUTED = "2001:4860::1"  # public, and not to be reached from a test


class Names:
    """Answers lookups in turn, the last answer again and again."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = answers
        self.lookups: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.lookups.append(host)
        return self._answers[min(len(self.lookups), len(self._answers)) - 1]


class Canary(http.server.BaseHTTPRequestHandler):
    """A server that nobody may find; it counts who does."""

    def do_POST(self) -> None:
        found.append(self.path)
        self.send_error(418)


found: list[str] = []


@pytest.fixture(autouse=True)
def nobody_found() -> None:
    found.clear()


def config(url: str, host: str = NAME, *, allow_private: bool = False) -> McpServerConfig:
    return McpServerConfig(
        name="far", url=url.replace("127.0.0.1", host), allow_private=allow_private
    )


def answer_to(own: McpServerConfig, resolve: Resolver = system_resolver) -> str:
    """The answer to one request: what it says, or that it is not one of ours."""

    async def send() -> str:
        transport = FailuresAsAnswers(CheckedAddresses(own, resolve))
        async with httpx2.AsyncClient(transport=transport) as client:
            response = await client.post(own.url or "", json={})
        return response.json()["error"]["message"] if response.status_code == 503 else "answered"

    return asyncio.run(send())


# Which addresses are public

PUBLIC = (
    "8.8.8.8",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
)
NOT_PUBLIC = (
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:100.64.0.1",
    "64:ff9b::a00:1",
    "64:ff9b:1::808:808",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001::1",
    "2001:db8::1",
    "fc00::1",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
)


def test_public_addresses() -> None:
    assert [one for one in PUBLIC if not is_public(one)] == []
    assert [one for one in NOT_PUBLIC if is_public(one)] == []


@QUICK
@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_public_or_not_in_whatever_it_is_written(
    inner: ipaddress.IPv4Address,
) -> None:
    number = int(inner)
    for prefix, shift in ((0xFFFF << 32, 0), (0x64FF9B << 96, 0), (0x2002 << 112, 80)):
        outer = ipaddress.IPv6Address(prefix | number << shift)
        assert is_public(str(outer)) == is_public(str(inner)), outer


def test_a_literal_is_an_address() -> None:
    assert [
        is_literal(one) for one in ("127.0.0.1", "::1", "localhost", "127.1", "0x7f000001")
    ] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_the_system_finds_addresses() -> None:
    assert "127.0.0.1" in asyncio.run(system_resolver("127.0.0.1", 80))
    # What is no address for us is one for the C library.
    assert asyncio.run(system_resolver("127.1", 80)) == ["127.0.0.1"]


# What a server is connected to


@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param(["127.0.0.1"], id="loopback"),
        pytest.param(["::ffff:127.0.0.1"], id="mapped"),
        pytest.param([UNROUTED, "127.0.0.1"], id="half"),
    ],
)
def test_a_name_with_an_address_that_is_not_public_is_refused(addresses: list[str]) -> None:
    names = Names(addresses)
    with listening(Canary) as url:
        why = answer_to(config(url), names)
    assert why == (
        f"cannot connect: mcp.example resolves to {addresses[-1]}, which is not a public address; "
        "if that is intended, set allow_private = true in [mcp.far]"
    )
    assert names.lookups == [NAME]
    assert found == []


def test_an_address_in_another_notation_is_refused_like_a_name() -> None:
    with listening(Canary) as url:
        why = answer_to(config(url, "127.1"))
    assert "127.1 resolves to 127.0.0.1, which is not a public address" in why
    assert found == []


def test_a_name_is_looked_up_once_for_the_check_and_the_connection() -> None:
    """What the next lookup would say does not matter."""
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    with listening(Canary) as url:
        why = answer_to(config(url, allow_private=True), names)
    assert why.startswith("cannot connect: ")
    assert names.lookups == [NAME]
    assert found == []


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("localhost", ["127.0.0.1"]),
        ("localhost", ["127.0.0.2", "127.0.0.1"]),  # nobody listens at the first
        ("127.0.0.1", []),
    ],
    ids=["localhost", "second-address", "literal"],
)
def test_addresses_and_localhost_in_the_settings_are_connected_to(
    host: str, addresses: list[str]
) -> None:
    with listening(Canary) as url:
        assert answer_to(config(url, host), Names(addresses)) == "answered"
    assert found == ["/mcp"]


def test_a_server_is_used_by_its_name_and_one_that_is_refused_says_why() -> None:
    async def test(url: str) -> None:
        async with McpClient(config(url, "localhost"), Names(["127.0.0.1"])) as server:
            assert await call((await tools_of(server))["add"], '{"a":1,"b":2}') == finished("3")
        refused = McpServerConfig(name="far", url=url.replace("127.0.0.1", NAME), connect_timeout=1)
        reason = "mcp.example resolves to 127.0.0.1, which is not a public address"
        why = await unavailable(refused, reason, Names(["127.0.0.1"]))
        assert why.startswith("MCP server far: not connected: ")

    server = HttpServer("http")
    try:
        asyncio.run(test(server.url))
    finally:
        server.close()


def test_a_name_without_an_address_says_so() -> None:
    url = "http://127.0.0.1:1/mcp"
    assert answer_to(config(url), Names([])) == "cannot connect: mcp.example has no address"
    unknown = answer_to(config(url, "no-such-host.invalid"))
    assert unknown.startswith("cannot connect: no-such-host.invalid: ")


def test_requests_name_the_host_and_not_its_address() -> None:
    hosts: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hosts.append(self.headers["host"])
            self.send_error(401)

    with listening(Handler) as url:
        assert answer_to(config(url, allow_private=True), Names(["127.0.0.1"])) == "answered"
    assert hosts == [url.replace("127.0.0.1", NAME).split("/")[2]]


def test_the_certificate_is_checked_for_the_host_and_not_for_its_address(tmp_path: Path) -> None:
    """That of the test server is for 127.0.0.1 too, but nobody has signed it."""
    asked: list[str | None] = []
    context, _ = certified(tmp_path)
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), QuietCanary) as server:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{server.server_port}/mcp"
        why = answer_to(config(url, allow_private=True), Names(["127.0.0.1"]))
        server.shutdown()
        thread.join()
    assert "certificate verify failed" in why
    assert asked == [NAME]


class QuietCanary(Canary):
    """Its clients leave in the middle of the handshake."""

    def handle(self) -> None:
        try:
            super().handle()
        except ssl.SSLError:
            self.close_connection = True


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    """Not within the origin either, as the package would: what is behind it was not checked."""
    paths: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.send_header("location", "/mcp/")
            self.send_header("content-length", "0")
            self.end_headers()

    with listening(Handler) as url:
        why = answer_to(config(url, "127.0.0.1"))
    assert why == (
        f"the server redirects (HTTP status {status}), and redirects are not followed: set the url "
        "that it redirects to"
    )
    assert paths == ["/mcp"]
