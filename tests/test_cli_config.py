"""`weft config`, run as people run it: the installed `weft`, real files, a real environment."""

import os
from pathlib import Path

import pytest

from tests.weft_command import run as run_weft
from weft.upstream.catalog import HOSTS

ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if (not name.startswith(("COVERAGE", "PYTHON", "WEFT")) and not name.endswith("_API_KEY"))
    or name == "PYTHONPATH"  # that of a checkout, if it is not the installed one
}

FINE = """\
[server]
host = "::1"
port = 9000
workers = 2
[server.keys]
alice = "env:ALICE"
bob = "a-key-that-nobody-may-see"
[upstreams.openai]
api_key = "env:ALICE"
[upstreams.ollama]
[upstreams.mistral]
[upstreams.demo]
[models]
fast = ["openai/gpt-5-mini", "ollama/qwen"]
slow = "demo/chat"
"""


def run(folder: Path, *arguments: str, **environ: str) -> tuple[int, str, str]:
    done = run_weft("config", *arguments, folder=folder, environment=ENVIRONMENT | environ)
    return done.code, done.out, done.err


def test_usable_settings_are_summed_up_in_a_few_lines(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text(FINE)
    code, out, err = run(tmp_path, "check", ALICE="alices-key-is-a-long-one")
    assert out == (
        "weft.toml\n"
        "upstreams\n"
        "  openai   openai-responses  https://api.openai.com/v1  key found\n"
        "  ollama   openai-chat       http://127.0.0.1:11434/v1  no key\n"
        "  mistral  openai-chat       https://api.mistral.ai/v1  no key\n"
        "  demo     openai-chat       built in\n"
        "models\n"
        "  fast  openai/gpt-5-mini, then ollama/qwen\n"
        "  slow  demo/chat\n"
        "server\n"
        "  http://[::1]:9000, 2 workers\n"
        "  open to the keys alice, bob\n"
    )
    assert err == (
        "warning: weft.toml:11: upstreams.mistral.api_key: this host needs an API key: "
        "MISTRAL_API_KEY is not set\n"
    )
    assert code == 0


def test_a_secret_is_never_printed(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text(FINE)
    fine = run(tmp_path, "check", ALICE="alices-key-is-a-long-one")
    (tmp_path / "weft.toml").write_text('store.url = "a-key-that-nobody-may-see"\n' + FINE)
    wrong = run(tmp_path, "check", ALICE="alices-key-is-a-long-one")
    assert (fine[0], wrong[0]) == (0, 1)
    for _, out, err in (fine, wrong):
        assert "alices-key" not in out + err
        assert "nobody-may-see" not in out + err


def test_every_mistake_is_reported_with_its_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text("[server]\nprot = 1\n[upstreams.openai]\ndialekt = 'openai-chat'\n")
    assert run(tmp_path, "check", "--config", "other.toml", WEFT_SERVER__WORKERS="0") == (
        1,
        "",
        (
            "other.toml:2: server.prot: no such setting; did you mean port?\n"
            "other.toml:4: upstreams.openai.dialekt: no such setting; did you mean dialect?\n"
            "environment: WEFT_SERVER__WORKERS: must be from 1 to 1,024, got 0\n"
        ),
    )


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    assert run(tmp_path, "check", "--config", "weft.toml") == (
        1,
        "",
        "weft.toml: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("environ", "users"),
    [
        ({}, "anyone on this machine: no keys are set"),
        (
            {"WEFT_SERVER__HOST": "0.0.0.0"},
            "anyone who can reach it: no keys are set, so it starts only with --insecure",
        ),
        ({"WEFT_SERVER__KEYS__A": "the-key-of-a-is-long"}, "the keys a"),
    ],
)
def test_without_a_file_there_are_the_defaults(
    tmp_path: Path, environ: dict[str, str], users: str
) -> None:
    code, out, err = run(tmp_path, "check", **environ)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "no settings file: built-in defaults",
        "upstreams",
        "  demo  openai-chat  built in",
        "agents",
        "  demo  demo/agent  weft.agent.demo:order_status, weft.agent.demo:refund",
        "server",
        f"  http://{environ.get('WEFT_SERVER__HOST', '127.0.0.1')}:8787, 1 worker",
        f"  open to {users}",
    ]


AGENTS = """\
[agents.helper]
model = "demo/chat"
tools = ["shop:refund"]

[agents.other]
model = "demo/chat"
tools = ["shop:price", "gone:tool", "shop:nothing"]

[agents.third]
model = "demo/chat"
approval = { fly = "always" }

[agents.fourth]
model = "demo/chat"
tools = ["mcp:files"]

[mcp.files]
command = ["files"]
"""


def test_the_tools_of_agents_are_imported_and_what_fails_is_reported(tmp_path: Path) -> None:
    shop = Path(__file__).with_name("agent_shop.py").read_text("utf-8")
    (tmp_path / "shop.py").write_text(shop)
    (tmp_path / "weft.toml").write_text(AGENTS)
    code, out, err = run(tmp_path, "check")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        (
            "weft.toml:7: agents.other.tools: shop:price: expected a tool, "
            "got a function without @weft.tool; its tools are refund"
        ),
        (
            "weft.toml:7: agents.other.tools: gone:tool: module 'gone' cannot be imported: "
            "ModuleNotFoundError: No module named 'gone'"
        ),
        (
            "weft.toml:7: agents.other.tools: shop:nothing: module 'shop' has no 'nothing'; "
            "its tools are refund"
        ),
        "weft.toml:9: agents.third: approval for tools it does not have: fly",
    ]
    (tmp_path / "weft.toml").write_text(AGENTS.partition("[agents.other]")[0])
    code, out, err = run(tmp_path, "check")
    assert (code, err) == (0, "")
    assert "agents\n  helper  demo/chat  shop:refund\n" in out


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_whose_tools_cannot_be_imported_does_not_start(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "weft.toml").write_text('[agents.a]\nmodel = "demo/chat"\ntools = ["gone:tool"]\n')
    arguments = ("serve", "--port", "0", "--workers", workers)
    done = run_weft(*arguments, folder=tmp_path, environment=ENVIRONMENT)
    assert done.code == 1
    assert "weft.toml:3: agents.a.tools: gone:tool: module 'gone' cannot be imported" in done.err
    assert "Traceback" not in done.err


def test_the_presets_are_listed(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "presets")
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["preset", "dialect", "base_url", "key"]
    assert [line.split()[:4] for line in lines] == [
        [host.name, host.dialect, host.base_url or "-", host.variable or "-"]
        for host in HOSTS.values()
    ]
