"""The gateways that are measured, and how each is started in front of the same upstream."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.gateway.processes import Server, free_port, start_server, start_server_on
from bench.gateway.requests import CHAT, KEY, MESSAGES, RESPONSES, Client

Start = Callable[[int, Path], AbstractContextManager[Server]]
"""Starts a gateway in front of the upstream at this port, with its files in this directory."""


@dataclass(frozen=True, slots=True)
class Gateway:
    name: str
    start: Start
    clients: tuple[Client, ...]
    prefix: str = ""
    """Put before the name that the upstream has for a model."""

    share: float = 1.0
    """How much of the load it gets. Below 1 it also runs in the first round only: a slow gateway
    would hold up the others."""

    exact: bool = True
    """Whether a wrong answer fails the run."""


@contextmanager
def _direct(upstream: int, directory: Path) -> Iterator[Server]:
    yield Server(upstream)


NGINX_CONFIG = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/nginx.error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    scgi_temp_path {directory}/scgi;
    uwsgi_temp_path {directory}/uwsgi;
    keepalive_requests 1000000;
    tcp_nodelay on;
    upstream model {{
        server 127.0.0.1:{upstream};
        keepalive 256;
        keepalive_requests 1000000;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://model;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 300s;
        }}
    }}
}}
"""


def find_nginx() -> str | None:
    """Debian installs it outside the PATH of an ordinary user."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def _nginx(upstream: int, directory: Path) -> Iterator[Server]:
    port, program = free_port(), find_nginx()
    assert program is not None
    settings = directory / "nginx.conf"
    settings.write_text(NGINX_CONFIG.format(directory=directory, upstream=upstream, port=port))
    command = [program, "-p", str(directory), "-c", str(settings)]
    with start_server_on(command, port, directory / "nginx.log") as server:
        yield server


WEFT_CONFIG = """
[server]
workers = {workers}

[store]
enabled = {stored}
url = "sqlite:///weft-{workers}.db"

[upstreams.up]
dialect = "openai-chat"
base_url = "http://127.0.0.1:{upstream}/v1"
api_key = "sk-bench"
concurrency = 4096
"""


def _weft(workers: int, *, stored: bool = False) -> Start:
    @contextmanager
    def start(upstream: int, directory: Path) -> Iterator[Server]:
        settings = directory / f"weft-{workers}-{stored}.toml"
        kept = "true" if stored else "false"
        settings.write_text(WEFT_CONFIG.format(workers=workers, upstream=upstream, stored=kept))
        program = Path(sys.executable).with_name("weft")
        command = [str(program), "serve", "--config", str(settings), "--port", "0"]
        with start_server(command, directory / f"weft-{workers}-{stored}.log", directory) as server:
            yield server

    return start


LITELLM_CONFIG = """
model_list:
  - model_name: "*"
    litellm_params:
      model: "openai/*"
      use_chat_completions_api: true
      api_base: "http://127.0.0.1:{upstream}/v1"
      api_key: "sk-bench"
litellm_settings:
  telemetry: false
general_settings:
  master_key: "{key}"
"""


@contextmanager
def _litellm(upstream: int, directory: Path) -> Iterator[Server]:
    port = free_port()
    settings = directory / "litellm.yaml"
    settings.write_text(LITELLM_CONFIG.format(upstream=upstream, key=KEY))
    run = "from litellm import run_server; run_server()"
    command = [
        os.environ["LITELLM_PYTHON"],
        *("-c", run, "--config", str(settings), "--host", "127.0.0.1", "--port", str(port)),
    ]
    with start_server_on(command, port, directory / "litellm.log") as server:
        yield server


DIRECT = Gateway("direct", _direct, (CHAT,))
NGINX_GATEWAY = Gateway("nginx", _nginx, (CHAT,))
ONE_WORKER = Gateway("weft", _weft(1), (RESPONSES, CHAT, MESSAGES), "up/")
TWO_WORKERS = Gateway("weft, 2 workers", _weft(2), (RESPONSES,), "up/")
STORING = Gateway("weft, stored", _weft(1, stored=True), (RESPONSES,), "up/")
LITELLM_GATEWAY = Gateway("litellm", _litellm, (RESPONSES, CHAT), share=0.03, exact=False)


def available() -> tuple[list[Gateway], list[str]]:
    """The gateways that can be measured here, and a line for each that cannot."""
    available_gateways, missing = [DIRECT], []
    if find_nginx():
        available_gateways.append(NGINX_GATEWAY)
    else:
        missing.append("nginx: not installed (Debian: apt-get install nginx-light)")
    if importlib.util.find_spec("weft.gateway.app"):
        available_gateways += [ONE_WORKER, STORING]
    else:
        missing.append("weft: this tree has no gateway")
    if why := _litellm_missing():
        missing.append(f"litellm: {why}")
    else:
        available_gateways.append(LITELLM_GATEWAY)
    return available_gateways, missing


def _litellm_missing() -> str | None:
    python = os.environ.get("LITELLM_PYTHON")
    if not python:
        return "not installed (LITELLM_PYTHON names a Python that has litellm[proxy])"
    tried = subprocess.run([python, "-c", "import litellm.proxy"], capture_output=True)
    return "LITELLM_PYTHON cannot import it" if tried.returncode else None
