"""The programs of examples/ that need node: TypeScript, and the coding agents."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway_process import Gateway, gateway
from tests.node_clients.clis import CLIS, written
from tests.node_clients.installed import Package

pytestmark = pytest.mark.clients

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS = '[upstreams.demo]\nbase_url = "demo:fast"\ndialect = "openai-chat"\n'
TYPESCRIPT = Package("examples", ("openai@6.49.0", "@anthropic-ai/sdk@1.8.0", "tsx@4.20.6"))
SHOWS = {
    "openai_sdk.ts": [": completed\n", "> Say hello."],
    "anthropic_sdk.ts": ['get_weather({"city":"Paris"})', "> 21 degrees", "-- end_turn\n"],
}
AGENTS = ("codex", "claude-code", "gemini-cli", "qwen-code", "opencode")
GEMINI_SETTINGS = {"security": {"auth": {"selectedType": "gemini-api-key"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(SETTINGS, tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.mark.parametrize("name", SHOWS)
def test_typescript(server: Gateway, name: str) -> None:
    # Beside the packages: node resolves imports from the folder of the program.
    program = written(TYPESCRIPT.install() / name.replace(".ts", ".mts"), _text(name))
    done = subprocess.run(
        [TYPESCRIPT.command("tsx"), str(program)],
        env={**os.environ, "WEFT_URL": server.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [text for text in SHOWS[name] if text not in done.stdout] == []


@pytest.mark.parametrize("name", AGENTS)
def test_a_coding_agent_answers_through_the_gateway(
    server: Gateway, tmp_path: Path, name: str
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    written(home / ".gemini" / "settings.json", json.dumps(GEMINI_SETTINGS))
    commands = CLIS[name].package.install() / "node_modules" / ".bin"
    environment = {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "TERM": "dumb",
        "CI": "1",
        "WEFT_URL": server.url,
        "IS_SANDBOX": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    done = subprocess.run(
        [str(EXAMPLES / "coding-agents" / f"{name}.sh"), "hello"],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=180,
    )
    # The demo model answers, or first calls a tool that the agent mentions, and repeats its result.
    assert "a script" in done.stdout, done.stdout
    assert done.returncode == 0


def _text(name: str) -> str:
    return (EXAMPLES / name).read_text("utf-8")
