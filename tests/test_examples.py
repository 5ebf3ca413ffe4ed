"""The programs of examples/ do what they say. Those in other languages: tests/node_clients."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway_process import Gateway, gateway
from tests.weft_command import run

EXAMPLES = Path(__file__).parents[1] / "examples"
SETTINGS = """\
[server]
hooks = ["hook:write_row"]

[upstreams.demo]
base_url = "demo:fast"
dialect = "openai-chat"

[agents.demo]
model = "demo/agent"
tools = ["weft.agent.demo:order_status", "weft.agent.demo:refund"]
"""
SHOWS = {
    "openai_sdk.py": [": completed\n", " continues resp_", "> Say hello."],
    "anthropic_sdk.py": ["get_weather({'city': 'Paris'})", "> 21 degrees", "-- end_turn\n"],
    "tool_session.py": [": get_weather\n", ": incomplete\n", "> 21 degrees", ": completed\n"],
    "resume.py": ["lost the connection after event 9 of resp_", " events, each once\n"],
    "agent.py": ['approved: refund({"order":"A-17"})\n', "-- finished after "],
}
"""What each program prints."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def ran() -> list[str]:
    """The programs that have run against the server; others may run in another process."""
    return []


@pytest.fixture(scope="module")
def server(folder: Path, ran: list[str]) -> Iterator[Gateway]:
    shutil.copy(EXAMPLES / "hook.py", folder)
    with gateway(SETTINGS, folder) as running:
        yield running
    rows = (folder / "requests.csv").read_text("utf-8").splitlines()
    assert len(rows) >= 2 * len(ran) - ("resume.py" in ran)  # which asks once
    assert all(len(row.split(",")) == 7 for row in rows)


@pytest.mark.parametrize("name", SHOWS)
def test_an_example_runs_against_the_demo(
    server: Gateway, folder: Path, ran: list[str], name: str
) -> None:
    ran.append(name)
    environment = {**os.environ, "WEFT_URL": server.url}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [text for text in SHOWS[name] if text not in done.stdout] == []


def test_every_program_is_in_the_table_and_has_a_test() -> None:
    table = (EXAMPLES / "README.md").read_text("utf-8")
    files = {path.name for path in EXAMPLES.glob("*.*")} - {"README.md"}
    assert {name for name in files if f"`{name}`" not in table} == set()
    assert {name for name in files if name.endswith(".py")} == {*SHOWS, "hook.py"}
    # What node runs is named in the tests for node.
    others = (Path(__file__).parent / "node_clients" / "test_examples.py").read_text("utf-8")
    scripts = {path.stem for path in (EXAMPLES / "coding-agents").iterdir()}
    assert {name for name in files if name.endswith(".ts") and name not in others} == set()
    assert {name for name in scripts if f'"{name}"' not in others} == set()


def test_the_broken_stream_is_one(tmp_path: Path) -> None:
    assert run("check", EXAMPLES / "id-in-every-chunk.sse").code == 1
