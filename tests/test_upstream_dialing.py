"""How connections to upstreams are opened and kept: addresses, proxies, pools."""

import asyncio
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.gateway_process import gateway
from tests.raw_upstream import HEAD, LAST, Hold, answer, certified, chunk, raw_upstream
from weft.scrub import Secret
from weft.upstream.dialing import Address, bypasses, dial, parse_proxy, race

ANSWER = answer(
    b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},'
    b'"finish_reason":"stop"}]}',
    "200 OK",
    "Content-Type: application/json",
)


def ask(url: str, **more: object) -> httpx.Response:
    body = {"model": "a/m", "messages": [{"role": "user", "content": "x"}], **more}
    return httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=30)


# Addresses


def test_an_address_that_does_not_answer_does_not_hold_up_the_next() -> None:
    """A full queue of a listener drops what comes: as a firewall does."""
    with socket.create_server(("127.0.0.1", 0)) as good, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for one in fillers:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(deaf.getsockname())
        addresses: list[Address] = [
            (socket.AF_INET, deaf.getsockname()),
            (socket.AF_INET, good.getsockname()),
        ]
        found = asyncio.run(race(addresses))
        assert found.getpeername() == good.getsockname()
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        for one in (found, *fillers):
            one.close()


def test_an_address_that_refuses_is_followed_by_the_next_and_the_first_error_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as good, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        refused: Address = (socket.AF_INET, bound.getsockname())
        working: Address = (socket.AF_INET, good.getsockname())
        asyncio.run(race([refused, working])).close()
        with pytest.raises(ConnectionRefusedError):
            asyncio.run(race([refused, (socket.AF_INET, ("127.0.0.1", 1))]))
        # ::1 comes first on many systems, and nobody listens there.
        asyncio.run(dial("localhost", good.getsockname()[1])).close()


# Proxies


@contextmanager
def tunnel(refuse: bytes = b"") -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that opens tunnels, or refuses to; and the heads that it got."""
    heads: list[bytes] = []
    threads: list[threading.Thread] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        heads.append(head)
        if refuse:
            client.sendall(refuse)
            client.close()
            return
        host, _, port = head.split()[1].decode().partition(":")
        with client, socket.create_connection((host, int(port))) as server:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            other = {client: server, server: client}
            while True:
                for one in select.select([client, server], [], [])[0]:
                    data = one.recv(65536)
                    if not data:
                        return
                    other[one].sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(client,), daemon=True))
                threads[-1].start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", heads
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(10)


def test_https_goes_through_a_tunnel(tmp_path: Path) -> None:
    context, file = certified(tmp_path)
    with raw_upstream((ANSWER,), tls=context) as upstream, tunnel() as (proxy, heads):
        text = f"""[upstreams.a]
dialect = "openai-chat"
base_url = "{upstream.url}"
api_key = "planted-secret-key"
tls = {{ ca = "{file}" }}
proxy = "http://alice:planted%20secret@{proxy}"
"""
        with gateway(text, tmp_path) as server:
            assert [ask(server.url).status_code for _ in range(2)] == [200, 200]
        assert [one.path for one in upstream.requests] == ["/chat/completions"] * 2
    (head,) = heads  # one connection, kept for the second request
    assert head.startswith(f"CONNECT 127.0.0.1:{upstream.port} HTTP/1.1\r\n".encode())
    assert b"proxy-authorization: Basic YWxpY2U6cGxhbnRlZCBzZWNyZXQ=\r\n" in head
    assert b"planted" not in head  # the key is for the upstream, inside of the tunnel
    assert "proxy-authorization" not in upstream.requests[0].headers
    assert "planted" not in server.stdout + server.stderr


def test_http_goes_to_the_proxy_of_the_environment(tmp_path: Path) -> None:
    """The proxy gets the whole URL: it alone resolves the name."""
    with raw_upstream((ANSWER,)) as proxy:
        text = '[upstreams.a]\ndialect = "openai-chat"\nbase_url = "http://models.example/v1"\n'
        environment = {**os.environ, "HTTP_PROXY": proxy.url, "NO_PROXY": "other.example"}
        with gateway(text, tmp_path, environment=environment) as server:
            assert ask(server.url).status_code == 200
        (request,) = proxy.got(1)
        assert request.path == "http://models.example/v1/chat/completions"
        assert request.headers["host"] == "models.example"
        environment["NO_PROXY"] = "example"
        with gateway(text, tmp_path, environment=environment) as server:
            assert ask(server.url).json()["error"]["message"] == (
                'cannot connect to upstream "a": host name not found'
            )
        with gateway(text + 'proxy = "none"\n', tmp_path, environment=environment) as server:
            assert ask(server.url).status_code == 502
        assert len(proxy.requests) == 1


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "refused the tunnel (HTTP 407)"),
        (b"SSH-2.0-x\r\n\r\n", "refused the tunnel (HTTP "),
        (b"HTTP/1.1 200", "closed the connection"),
    ],
)
def test_a_proxy_that_refuses_says_so(tmp_path: Path, reply: bytes, said: str) -> None:
    with tunnel(reply) as (proxy, _):
        text = f"""[upstreams.a]
dialect = "openai-chat"
base_url = "https://127.0.0.1:1"
retry = {{ attempts = 1 }}
proxy = "{proxy}"
"""
        with gateway(text, tmp_path) as server:
            found = ask(server.url)
    assert found.status_code == 502
    message = found.json()["error"]["message"]
    assert message.startswith(f'cannot connect to upstream "a": the proxy {said}')
    assert message.endswith("(through a proxy)")


@pytest.mark.parametrize(
    ("entries", "through"),
    [
        ([], True),
        (["*"], False),
        (["example.com"], False),
        ([".example.com"], False),
        (["*.example.com"], False),
        (["ample.com"], True),
        (["api.example.com:443"], False),
        (["api.example.com:80"], True),
        (["10.0.0.0/8", " com "], False),
    ],
)
def test_no_proxy_names_hosts_with_their_subdomains(entries: list[str], through: bool) -> None:
    assert bypasses("api.example.com", 443, entries) is not through


def test_no_proxy_names_networks() -> None:
    assert bypasses("10.1.2.3", 443, ["10.0.0.0/8"])
    assert bypasses("::1", 443, ["[::1]"])
    assert not bypasses("11.1.2.3", 443, ["10.0.0.0/8", "10.1.2.3"])


def test_the_address_of_a_proxy() -> None:
    assert parse_proxy("proxy:3128").port == 3128
    found = parse_proxy("http://u:p%40@proxy")
    assert (found.host, found.port) == ("proxy", 80)
    assert found.authorization == Secret("Basic dTpwQA==")
    for url in ("https://proxy", "socks5://proxy", "http://", "http://proxy:x"):
        with pytest.raises(ValueError, match=r"."):
            parse_proxy(url)


# Pools


def pooled(url: str, pool: str) -> str:
    return f'[upstreams.a]\ndialect = "openai-chat"\nbase_url = "{url}"\npool = {pool}\n'


@pytest.mark.parametrize(
    ("pool", "connections"),
    [("{}", 1), ("{ idle = 0 }", 3), ("{ age = 0.000001 }", 3)],
)
def test_how_long_a_connection_is_used(tmp_path: Path, pool: str, connections: int) -> None:
    with raw_upstream((ANSWER,)) as upstream:
        with gateway(pooled(upstream.url, pool), tmp_path) as server:
            assert [ask(server.url).status_code for _ in range(3)] == [200] * 3
        assert upstream.connections == connections


def test_beyond_the_limit_the_oldest_idle_connection_is_closed(tmp_path: Path) -> None:
    hold = Hold()
    delta = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
    end = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    script = (HEAD, chunk(delta), hold, chunk(end + b"data: [DONE]\n\n"), LAST)
    with (
        raw_upstream(script) as upstream,
        gateway(pooled(upstream.url, "{ idle = 1 }"), tmp_path) as server,
    ):
        threads = [
            threading.Thread(target=ask, args=(server.url,), kwargs={"stream": True})
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        upstream.got(3)
        hold.release()
        for thread in threads:
            thread.join()
        while upstream.gone() < 2:  # of three, two are closed while the gateway runs
            time.sleep(0.01)
        assert upstream.gone() == 2
