"""Hooks get the record of every finished request, and can hurt none."""

import json
import os
from pathlib import Path

import httpx
import pytest

from tests.gateway_process import Gateway, gateway
from tests.weft_command import run as run_weft

DEMO = '[upstreams.demo]\nbase_url = "demo:fast"\ndialect = "openai-chat"\n'
HOOKS = """
import json, os, threading

def write(record):
    tokens = record.response.usage.output_tokens if record.response is not None else None
    line = {"id": record.id, "model": record.model, "status": record.status, "tokens": tokens,
            "thread": threading.current_thread().name,
            "attempts": [one.target for one in record.attempts]}
    with open("records.jsonl", "a") as file:
        file.write(json.dumps(line) + chr(10))

def fail(record):
    raise ValueError("a planted prompt")

def hang(record):
    threading.Event().wait()

number = 7
"""


def ask(server: Gateway, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "a planted prompt"}]}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, trust_env=False, timeout=30)


def written(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "records.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_hooks_of_the_settings_see_every_request_also_behind_one_that_fails(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "own_hooks.py").write_text(HOOKS)
    text = DEMO + '[server]\nhooks = ["own_hooks:fail", "own_hooks:write"]\n'
    with gateway(text, tmp_path, "--workers", workers) as server:
        found = [ask(server, model) for model in ("demo/chat", "demo/error-401", "demo/chat")]
    assert [one.status_code for one in found] == [200, 502, 200]
    records = {one["id"]: one for one in written(tmp_path)}  # all of them, once it has stopped
    assert len(records) == 3
    ids = [one.headers["weft-request-id"] for one in found]
    assert [records[id]["status"] for id in ids] == [200, 502, 200]
    assert records[ids[1]]["attempts"] == ["demo/error-401"]
    assert isinstance(records[ids[0]]["tokens"], int)
    assert {one["thread"] for one in records.values()} == {"hooks"}
    failed = [json.loads(line) for line in server.stderr.splitlines() if "hook-failed" in line]
    assert sorted(str(one["id"]) for one in failed) == sorted(ids)
    assert "ValueError" in str(failed[0]["stack"])
    assert 'raise ValueError("a planted prompt")' in str(failed[0]["stack"])  # the source alone
    assert "ValueError: a planted prompt" not in server.stderr


@pytest.mark.long
def test_a_hook_that_hangs_holds_up_neither_requests_nor_the_exit(tmp_path: Path) -> None:
    (tmp_path / "own_hooks.py").write_text(HOOKS)
    with gateway(DEMO + '[server]\nhooks = ["own_hooks:hang"]\n', tmp_path) as server:
        assert [ask(server, "demo/chat").status_code for _ in range(3)] == [200] * 3
        assert server.stop() == 0


def test_installed_packages_have_hooks_by_their_entry_points(tmp_path: Path) -> None:
    package = tmp_path / "site"
    about = package / "own_hooks-1.0.dist-info"
    about.mkdir(parents=True)
    (package / "own_hooks.py").write_text(HOOKS)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-hooks\nVersion: 1.0\n")
    points = "[weft.hooks]\nbroken = own_hooks:nothing\nwrite = own_hooks:write\n"
    (about / "entry_points.txt").write_text(points)
    path = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    with gateway(DEMO, tmp_path, environment={**os.environ, "PYTHONPATH": path}) as server:
        id = ask(server, "demo/chat").headers["weft-request-id"]
    assert [one["id"] for one in written(tmp_path)] == [id]
    assert "hook broken cannot be imported" in server.stderr


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("own_hooks", "own_hooks: TypeError: expected module:function"),
        ("own_hooks:number", "own_hooks:number: TypeError: expected module:function"),
        ("own_hooks:nothing", "own_hooks:nothing: AttributeError: "),
        ("no_such_module:x", "no_such_module:x: ModuleNotFoundError: "),
    ],
)
@pytest.mark.parametrize("command", [("config", "check"), ("serve", "--port", "0")])
def test_a_hook_that_cannot_be_imported_is_named(
    tmp_path: Path, reference: str, said: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "own_hooks.py").write_text(HOOKS)
    (tmp_path / "weft.toml").write_text(f'[server]\nhooks = ["{reference}"]\n')
    environment = {name: one for name, one in os.environ.items() if not name.startswith("WEFT")}
    done = run_weft(*command, folder=tmp_path, environment=environment)
    assert done.code == 1
    assert f"weft.toml:2: server.hooks: {said}" in done.err
    assert "Traceback" not in done.err
