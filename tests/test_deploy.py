"""The gateway behind nginx, with the configuration that `deploy/` has, and with none."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest
from bench.gateway.gateways import find_nginx
from bench.gateway.processes import free_port, start_server_on
from websockets.sync.client import connect

import weft
from tests.faults.upstream import STREAM, Hold, Upstream, chunk, upstream
from tests.faults.wires import CHAT, MESSAGES, RESPONSES, SPEECHES, body_of
from tests.gateway_process import gateway
from tests.raw_upstream import certified

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[1]
PATIENCE = 30.0
KEY = "sk-of-somebody-behind-nginx"
NGINX = find_nginx()
SETTINGS = """
[server]
hosts = ["localhost"]

[server.keys]
somebody = "{key}"

[upstreams.chat]
dialect = "openai-chat"
base_url = "{url}/v1"
"""
FRAME = """
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    scgi_temp_path {folder}/scgi;
    uwsgi_temp_path {folder}/uwsgi;
    {servers}
}}
"""
PLAIN = "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{gateway}; }} }}"
"""Everything else is nginx's default."""


@dataclass
class Proxy:
    url: str
    certificate: Path
    upstream: Upstream

    def client(self) -> httpx.Client:
        headers = {"authorization": f"Bearer {KEY}"}
        return httpx.Client(
            base_url=self.url,
            timeout=PATIENCE,
            trust_env=False,
            verify=self.trusting,
            headers=headers,
        )

    @property
    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certificate)


@contextmanager
def _behind(servers: str, scheme: str, folder: Path) -> Iterator[Proxy]:
    """A gateway, and nginx in front of it."""
    if NGINX is None:
        if os.environ.get("WEFT_NEED_NGINX") == "1":
            pytest.fail("nginx is not installed")
        pytest.skip("nginx is not installed")
    _, certificate = certified(folder)
    port = free_port()
    with upstream() as far:
        settings = SETTINGS.format(key=KEY, url=far.url)
        with gateway(settings, folder) as running:
            address = running.url.removeprefix("http://")
            conf = folder / "nginx.conf"
            servers = servers.format(port=port, gateway=address, certificate=certificate)
            # Its workers would be nobody, who may not write to the folder of a test.
            user = "user root;" if os.geteuid() == 0 else ""
            conf.write_text(FRAME.format(user=user, folder=folder, servers=servers))
            command = [NGINX, "-p", str(folder), "-c", str(conf)]
            with start_server_on(command, port, folder / "nginx.out"):
                yield Proxy(f"{scheme}://localhost:{port}", certificate, far)


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """nginx with the file for users; only names and addresses are others."""
    servers = (ROOT / "deploy" / "nginx.conf").read_text()
    servers = servers.replace("{", "{{").replace("}", "}}")
    for theirs, ours in (
        ("listen 443 ssl", "listen 127.0.0.1:{port} ssl"),
        ("server 127.0.0.1:8787", "server {gateway}"),
        ("server_name llm.example.com", "server_name localhost"),
        ("/etc/ssl/llm.example.com.pem", "{certificate}"),
        ("/etc/ssl/llm.example.com.key", "{certificate}"),
    ):
        assert theirs in servers
        servers = servers.replace(theirs, ours)
    with _behind(servers, "https", tmp_path_factory.mktemp("nginx")) as found:
        yield found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with _behind(PLAIN, "http", tmp_path_factory.mktemp("nginx")) as found:
        yield found


PATHS = {
    CHAT: "/v1/chat/completions",
    RESPONSES: "/v1/responses",
    MESSAGES: "/v1/messages",
}


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("which", ["documented", "plain"])
def test_events_pass_the_proxy_one_by_one(
    which: str, dialect: str, request: pytest.FixtureRequest
) -> None:
    proxy: Proxy = request.getfixturevalue(which)
    speech, hold = SPEECHES[CHAT], Hold()
    frames = [chunk(one) for one in (*speech.frames, b"")]  # an empty one is the end
    model = proxy.upstream.script((STREAM, *frames[:2], hold, *frames[2:]))
    content = body_of(dialect, f"chat/{model}", stream=True)
    kind = {"content-type": "application/json"}
    with (
        proxy.client() as client,
        client.stream("POST", PATHS[dialect], content=content, headers=kind) as response,
    ):
        assert response.status_code == 200
        pieces, told = response.iter_raw(), b""
        while b"Warp " not in told:  # while the upstream still waits
            told += next(pieces)
        hold.here()
        hold.release()
        told += b"".join(pieces)
    name = weft.DIALECTS[dialect].name
    found = weft.assemble(weft.decode([told], dialect=name))
    assert (found.text, found.finish_reason) == ("Warp and weft.", "stop")


def _answered(proxy: Proxy) -> str:
    """A model that answers at once."""
    frames = [chunk(one) for one in (*SPEECHES[CHAT].frames, b"")]
    return f"chat/{proxy.upstream.script((STREAM, *frames))}"


def test_the_openai_package_streams_through_the_proxy(documented: Proxy) -> None:
    model = _answered(documented)
    trusting = openai.DefaultHttpxClient(verify=documented.trusting, trust_env=False)
    with openai.OpenAI(
        base_url=f"{documented.url}/v1", api_key=KEY, http_client=trusting
    ) as client:
        events = list(client.responses.create(model=model, input="hi", stream=True))
    assert [one.delta for one in events if one.type == "response.output_text.delta"] == [
        "Warp ",
        "and weft.",
    ]
    assert events[-1].type == "response.completed"


def test_a_websocket_passes_the_proxy(documented: Proxy) -> None:
    model = _answered(documented)
    address = documented.url.replace("https:", "wss:") + "/v1/responses"
    headers = {"Authorization": f"Bearer {KEY}"}
    with connect(address, ssl=documented.trusting, additional_headers=headers) as client:
        body = f'{{"type":"response.create","model":"{model}","input":"hi"}}'
        client.send(body)
        while '"type":"response.completed"' not in (told := str(client.recv(PATIENCE))):
            assert '"type":"error"' not in told


def test_a_large_body_passes_the_proxy(documented: Proxy) -> None:
    model = _answered(documented)
    message = {"role": "user", "content": "a" * 5_000_000}
    with documented.client() as client:
        body = {"model": model, "messages": [message]}
        told = client.post("/v1/chat/completions", json=body)
    assert (told.status_code, "and weft." in told.text) == (200, True)


def test_the_page_behind_the_proxy_may_ask_and_others_may_not(documented: Proxy) -> None:
    with documented.client() as client:
        body = {"input": "hi", "model": "chat/nobody"}
        foreign = client.post(
            "/v1/responses", json=body, headers={"origin": "https://evil.example"}
        )
        own = client.post("/v1/responses", json=body, headers={"origin": documented.url})
        assert client.get("/").status_code == 200
    assert foreign.status_code == 403
    assert own.status_code != 403
