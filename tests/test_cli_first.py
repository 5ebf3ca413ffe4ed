"""The first five minutes: `weft init`, `weft doctor`, `weft ask`, the banner of `weft serve`."""

import json
import os
import re
import signal
import subprocess
import time
import tomllib
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.gateway_process import gateway
from tests.raw_upstream import HEAD, SILENCE, Hold, answer, chunk, raw_upstream
from tests.test_cli_upstreams import free_port
from tests.weft_command import WEFT
from tests.weft_command import run as run_weft
from weft.upstream.catalog import HOSTS

ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not (name.startswith(("COVERAGE", "WEFT")) or name.endswith(("_API_KEY", "_TOKEN")))
}
DEMO = '[upstreams.demo]\nbase_url = "demo:fast"\ndialect = "openai-chat"\n'


def run(
    folder: Path, *arguments: str, given: bytes = b"", environ: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    environment = {**ENVIRONMENT, **(environ or {})}
    done = run_weft(*arguments, given=given, folder=folder, environment=environment)
    return done.code, done.out, done.err


# init


def test_init_writes_settings_that_are_valid_for_every_key_that_is_found(tmp_path: Path) -> None:
    variables = {one.variable for one in HOSTS.values() if one.variable}
    planted = {name: f"planted-secret-{name}" for name in variables}
    assert run(tmp_path, "init", environ=planted)[0] == 0
    text = (tmp_path / "weft.toml").read_text("utf-8")
    assert "planted" not in text
    found = [HOSTS[name] for name in tomllib.loads(text)["upstreams"]]
    assert [one.name for one in found if one.base_url is None] == []
    assert {one.variable for one in found} == {
        one.variable for one in HOSTS.values() if one.variable and one.base_url
    }
    code, out, err = run(tmp_path, "config", "check", environ=planted)
    assert (code, err) == (0, "")
    assert "planted" not in out


def test_init_without_keys_is_the_demo_and_overwrites_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "init")[0] == 0
    path = tmp_path / "weft.toml"
    assert list(tomllib.loads(path.read_text("utf-8"))["upstreams"]) == ["demo"]
    path.write_text("mine")
    code, out, err = run(tmp_path, "init")
    assert (code, out, err) == (1, "", "Error: weft.toml exists; use --force to replace it\n")
    assert path.read_text("utf-8") == "mine"
    assert run(tmp_path, "init", "--force")[0] == 0
    assert run(tmp_path, "init", "--print")[1] == path.read_text("utf-8")
    code, _, err = run(tmp_path, "init", "missing/weft.toml")
    assert (code, err) == (1, "Error: cannot write missing/weft.toml: No such file or directory\n")


# ask


def test_ask_prints_the_text_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text(DEMO + '[models]\nfast = "demo/chat"\n')
    code, text, err = run(tmp_path, "ask", "fast", "a question")
    assert (code, err) == (0, "")
    assert "> a question" in text
    assert text.endswith("\n")
    code, out, err = run(tmp_path, "ask", "fast", "-", "--json", given=b"a question")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["text"] == text.removesuffix("\n")
    assert (found["finish_reason"], found["error"]) == ("stop", None)
    assert found["usage"]["output_tokens"] > 0
    assert not (tmp_path / "weft.db").exists()  # nothing is stored


def test_ask_asks_a_running_gateway_with_its_key(tmp_path: Path) -> None:
    keys = '[server.keys]\nalice = "a-key-that-is-long"\n'
    with gateway(DEMO + keys, tmp_path) as server:
        command = ("ask", "demo/chat", "a question", "--url", server.url)
        code, out, err = run(tmp_path, *command, environ={"WEFT_KEY": "a-key-that-is-long"})
        assert (code, err) == (0, "")
        assert "> a question" in out
        assert run(tmp_path, *command, environ={"WEFT_KEY": "a-wrong-key"}) == (
            1,
            "",
            "Error: invalid API key\n",
        )
        assert run(tmp_path, *command)[2].startswith("Error: no API key")
    with free_port() as port:
        code, out, err = run(tmp_path, *command[:-1], f"http://127.0.0.1:{port}")
    assert (code, out) == (1, "")
    assert err == 'Error: cannot connect to upstream "gateway": connection refused\n'


def test_ask_ends_quietly_when_nobody_reads_on(tmp_path: Path) -> None:
    """As in `weft ask demo/long "a story" | head`."""
    hold = Hold()
    delta = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a story"}}]}\n\n'
    command = [str(WEFT), "ask", "one/long", "a story"]
    with raw_upstream((HEAD, chunk(2 * delta), hold, chunk(2 * delta), SILENCE)) as upstream:
        (tmp_path / "weft.toml").write_text(settings(upstream.url))
        with subprocess.Popen(
            command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(10)
            process.stdout.close()
            hold.release()  # now there is more to write
            assert process.stderr.read() == b""
    assert process.returncode in (128 + signal.SIGPIPE, -signal.SIGPIPE)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("demo/cut", "the stream ended without a finish reason or a terminator"),
        ("demo/error-401", "rejected the API key"),
        ("nobody/x", "no model 'nobody/x'"),
    ],
)
def test_an_answer_that_is_cut_or_missing_is_an_error(
    tmp_path: Path, model: str, said: str
) -> None:
    (tmp_path / "weft.toml").write_text(DEMO)
    code, _, err = run(tmp_path, "ask", model, "x")
    assert code == 1
    assert err.startswith("Error: ")
    assert said in err.splitlines()[-1]
    assert run(tmp_path, "ask", model, "-")[0] == 2  # nothing on standard input


# doctor, config check


def settings(url: str, key: str = "planted-secret-key") -> str:
    return f"""\
[upstreams.one]
dialect = "openai-chat"
base_url = "{url}/v1"
api_key = "{key}"
[upstreams.demo]
"""


def listing(*names: str, date: float | None = None) -> bytes:
    data = json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode()
    about = () if date is None else (f"Date: {formatdate(date, usegmt=True)}",)
    return answer(data, "200 OK", *about)


def test_doctor_asks_the_upstream_and_compares_the_clock(tmp_path: Path) -> None:
    right, wrong = listing("a", "b", date=time.time()), listing("a", date=time.time() - 3600)
    with raw_upstream((right,), (wrong,)) as upstream:
        (tmp_path / "weft.toml").write_text(settings(upstream.url))
        code, out, err = run(tmp_path, "doctor")
        assert (code, err) == (0, "")
        assert "ok       upstream one: 2 models\n" in out
        assert "ok       clock: within 30 s of the upstreams'\n" in out
        (request,) = upstream.got(1)
        assert (request.method, request.path) == ("GET", "/v1/models")
        assert request.headers["authorization"] == "Bearer planted-secret-key"
        code, out, err = run(tmp_path, "doctor")
        assert code == 1
        assert re.search(r"^failed   clock: 36\d\d s ahead of the upstreams'$", out, re.MULTILINE)
        assert "planted" not in out + err
    assert not (tmp_path / "weft.db").exists()  # it only looks


def test_doctor_says_what_to_do(tmp_path: Path) -> None:
    with raw_upstream((answer(b"{}", "401 Unauthorized"),)) as upstream:
        text = settings(upstream.url) + '[store]\nurl = "sqlite:///missing/weft.db"\n'
        (tmp_path / "weft.toml").write_text(text + '[server]\nhost = "0.0.0.0"\n')
        code, out, _ = run(tmp_path, "doctor")
    assert code == 1
    missing = tmp_path / "missing"
    cannot = f"cannot open the store {missing}/weft.db: the folder {missing} does not exist"
    for line in (
        "failed   access: 0.0.0.0 is reachable from other machines, and no client keys are set",
        "         -> run weft keys create NAME, set [server.keys], or start it with --insecure",
        f"failed   store: {cannot}",
        "failed   upstream one: rejected the API key (HTTP 401)",
        "         -> check api_key, or its variable",
        "ok       upstream demo: built in",
    ):
        assert line in out.splitlines()
    (tmp_path / "weft.toml").write_text("[server]\nprot = 1\n")
    code, out, _ = run(tmp_path, "doctor")
    assert code == 1
    assert "failed   settings: weft.toml:2: server.prot: no such setting; did you mean port?" in out


def test_doctor_finds_what_the_gateway_would_not_start_with(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text(DEMO + '[server]\nhooks = ["nomod:x"]\n')
    code, out, _ = run(tmp_path, "doctor")
    assert code == 1
    assert re.search(r"^failed   settings: weft.toml:\d+: server.hooks", out, re.MULTILINE)
    assert "ok       settings" not in out


def test_keys_in_the_store_are_known(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text(DEMO + '[server]\nhost = "0.0.0.0"\n')
    for name in ("bob", "carol"):
        assert run(tmp_path, "keys", "create", name)[0] == 0
    assert run(tmp_path, "keys", "revoke", "carol")[0] == 0
    code, out, _ = run(tmp_path, "doctor")
    assert code == 0
    assert "ok       access: client keys: 0 in the settings, 1 in the store\n" in out
    assert "  open to the keys bob\n" in run(tmp_path, "config", "check")[1]
    with gateway(DEMO, tmp_path) as server:
        pass
    assert "$KEY" in server.stdout
    assert run(tmp_path, "keys", "revoke", "bob")[0] == 0
    code, out, _ = run(tmp_path, "doctor")
    assert code == 0
    assert "warning  access: all client keys are revoked: nobody can use it\n" in out
    assert (
        "  open to nobody: all keys in the store are revoked\n"
        in run(tmp_path, "config", "check")[1]
    )


def test_config_check_connects_if_it_is_asked_to(tmp_path: Path) -> None:
    with raw_upstream((listing("a"),), (answer(b"{}", "403 Forbidden"),)) as upstream:
        (tmp_path / "weft.toml").write_text(settings(upstream.url))
        code, out, _ = run(tmp_path, "config", "check", "--connect")
        assert code == 0
        assert out.endswith("connections\n  one   works  1 models\n  demo  works  built in\n")
        code, out, _ = run(tmp_path, "config", "check", "--connect")
        assert code == 1
        assert "  one   fails  rejected the API key (HTTP 403)\n" in out
    with free_port() as port:
        (tmp_path / "weft.toml").write_text(settings(f"http://127.0.0.1:{port}"))
        code, out, _ = run(tmp_path, "config", "check", "--connect")
    assert code == 1
    assert '  one   fails  cannot connect to upstream "one": connection refused\n' in out
    assert run(tmp_path, "config", "check")[0] == 0  # nothing is asked


# The store at the start


@pytest.mark.parametrize("command", [("config", "check"), ("serve", "--port", "0")])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_store_that_cannot_be_opened_is_one_sentence(
    tmp_path: Path, command: tuple[str, ...], workers: str
) -> None:
    (tmp_path / "bad.db").write_bytes(b"this is no database, and never was one\n" * 100)
    reasons = {
        "sqlite:///bad.db": f"{tmp_path}/bad.db: file is not a database",
        "sqlite:///no/weft.db": f"{tmp_path}/no/weft.db: the folder {tmp_path}/no does not exist",
        f"sqlite:///{tmp_path}": f"{tmp_path}: Is a directory",
    }
    for url, reason in reasons.items():
        environ = {"WEFT_STORE__URL": url, "WEFT_SERVER__WORKERS": workers}
        code, out, err = run(tmp_path, *command, environ=environ)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert err.endswith(f"cannot open the store {reason}\n")


# serve


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_banner_says_what_to_try(tmp_path: Path, workers: str) -> None:
    text = DEMO + "[server.keys]\nalice = 'planted-secret-key'\n[models]\nfast = 'demo/chat'\n"
    with gateway(text, tmp_path, "--workers", workers) as server:
        pass
    first, *rest = server.stdout.splitlines()
    assert first == f"listening on {server.url}"
    lines = dict(line.split(maxsplit=1) for line in rest)
    assert f"curl -N {server.url}/v1/responses" in lines["try"]
    assert '"model": "fast"' in lines["try"]
    assert "$KEY" in lines["try"]
    assert lines["models"].startswith("fast, demo/chat, ")
    assert lines["upstreams"] == "demo (built in)"
    assert lines["store"] == str(tmp_path / "weft.db")
    assert lines["settings"] == str(tmp_path / "weft.toml")
    assert "planted" not in server.stdout
