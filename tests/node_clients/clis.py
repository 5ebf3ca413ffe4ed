"""Command lines that work by themselves: how each is told where the gateway is.

Each runs once, with a home and a folder of its own, does what its model says, and ends.
"""

import functools
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.clients.drivers import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.node_clients.installed import Package

PATIENCE = 180.0
"""Seconds that a run may take."""


@dataclass(frozen=True)
class Place:
    """Where a run happens."""

    base: str
    """Scheme, host and port of the gateway."""
    model: str
    home: Path
    work: Path


@dataclass(frozen=True)
class Run:
    """What is run: the arguments without the prompt, and what the environment says."""

    arguments: list[str]
    environment: dict[str, str]


@dataclass(frozen=True)
class Cli:
    dialect: str
    package: Package
    prepare: Callable[[Place], Run]

    def run(self, place: Place, prompt: str) -> tuple[int, str]:
        """Returns how it ended, and what it printed."""
        run = self.prepare(place)
        plain = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        environment = {**plain, "HOME": str(place.home), "TERM": "dumb", "CI": "1"}
        done = subprocess.run(
            [*run.arguments, prompt],
            cwd=place.work,
            env=environment | run.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# Codex

CODEX = Package("codex", ("@openai/codex@0.166.0",))
CODEX_CONFIG = """\
model = "{model}"
model_provider = "weft"
{more}

[model_providers.weft]
name = "Weft"
base_url = "{base}/v1"
wire_api = "responses"
env_key = "WEFT_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
KNOWN = {"patch": "gpt-5.5", "code": "gpt-6.1-sol"}
"""The models whose tools a scenario needs: patches as free text, or nothing but scripts."""


@functools.cache
def _codex_models() -> dict[str, dict[str, object]]:
    """The models that this version knows, and what it knows of them."""
    done = subprocess.run(
        [CODEX.command("codex"), "debug", "models"],
        env={**os.environ, "CODEX_HOME": str(CODEX.install())},
        capture_output=True,
        text=True,
        check=True,
    )
    return {model["slug"]: model for model in json.loads(done.stdout)["models"]}


def codex(place: Place) -> Run:
    home = place.home / ".codex"
    like = KNOWN.get(place.model.partition("/")[2])
    more = ""
    if like:
        model = {**_codex_models()[like], "slug": place.model}
        catalog = written(home / "models.json", json.dumps({"models": [model]}))
        more = f"model_catalog_json = '{catalog}'"
    config = CODEX_CONFIG.format(model=place.model, base=place.base, more=more)
    written(home / "config.toml", config)
    arguments = [
        CODEX.command("codex"), "exec", "--dangerously-bypass-approvals-and-sandbox",
        "--skip-git-repo-check", "--json",
    ]  # fmt: skip
    return Run(arguments, {"CODEX_HOME": str(home), "WEFT_KEY": "client"})


# Claude Code

CLAUDE = Package("claude-code", ("@anthropic-ai/claude-code@2.1.325",))


def claude_code(place: Place) -> Run:
    arguments = [
        CLAUDE.command("claude"), "--output-format", "stream-json", "--verbose",
        "--dangerously-skip-permissions", "-p",
    ]  # fmt: skip
    environment = {
        "ANTHROPIC_BASE_URL": place.base,
        "ANTHROPIC_API_KEY": "client",
        "ANTHROPIC_MODEL": place.model,
        "ANTHROPIC_SMALL_FAST_MODEL": place.model,
        "DISABLE_TELEMETRY": "1",  # all else that it asks for is wanted here
        "IS_SANDBOX": "1",  # it does not skip permissions for root otherwise
    }
    return Run(arguments, environment)


# Gemini CLI

GEMINI_CLI = Package("gemini-cli", ("@google/gemini-cli@0.61.0",))


def gemini_cli(place: Place) -> Run:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
    }
    written(place.home / ".gemini" / "settings.json", json.dumps(settings))
    arguments = [
        GEMINI_CLI.command("gemini"), "-m", place.model, "--yolo", "--skip-trust",
        "--output-format", "json", "-p",
    ]  # fmt: skip
    return Run(arguments, {"GEMINI_API_KEY": "client", "GOOGLE_GEMINI_BASE_URL": place.base})


# Qwen Code

QWEN = Package("qwen-code", ("@qwen-code/qwen-code@0.15.10",))


def qwen_code(place: Place) -> Run:
    arguments = [
        QWEN.command("qwen"), "--auth-type", "openai", "--yolo", "--output-format", "json", "-p",
    ]  # fmt: skip
    environment = {
        "OPENAI_API_KEY": "client",
        "OPENAI_BASE_URL": f"{place.base}/v1",
        "OPENAI_MODEL": place.model,
    }
    return Run(arguments, environment)


# opencode

OPENCODE = Package("opencode", ("opencode-ai@1.18.33",))


def opencode(place: Place) -> Run:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Weft",
        "options": {"baseURL": f"{place.base}/v1", "apiKey": "client"},
        "models": {place.model: {"name": place.model}},
    }
    config = {
        "autoupdate": False,
        "permission": {"*": "allow"},
        "small_model": f"weft/{place.model}",
        "provider": {"weft": provider},
    }
    written(place.work / "opencode.json", json.dumps(config))
    arguments = [
        OPENCODE.command("opencode"), "run", "--format", "json", "--model", f"weft/{place.model}",
    ]  # fmt: skip
    return Run(arguments, {"OPENCODE_DISABLE_MODELS_FETCH": "1"})


# pi, which speaks all four

PI = Package("pi", ("@mariozechner/pi-coding-agent@0.73.1",))
PI_NAMES = {
    CHAT: ("openai-completions", "/v1"),
    RESPONSES: ("openai-responses", "/v1"),
    MESSAGES: ("anthropic-messages", ""),
    GEMINI: ("google-generative-ai", "/v1beta"),
}


def pi(dialect: str, place: Place) -> Run:
    name, below = PI_NAMES[dialect]
    model = {"id": place.model, "reasoning": True, "contextWindow": 128000, "maxTokens": 32000}
    provider = {"baseUrl": place.base + below, "api": name, "apiKey": "client", "models": [model]}
    models = json.dumps({"providers": {"weft": provider}})
    written(place.home / ".pi" / "agent" / "models.json", models)
    arguments = [
        PI.command("pi"), "--provider", "weft", "--model", place.model, "--no-session", "-p",
    ]  # fmt: skip
    return Run(arguments, {"PI_OFFLINE": "1"})


# Continue

CONTINUE = Package("continue", ("@continuedev/cli@1.5.47",))
CONTINUE_CONFIG = """\
name: weft
version: 0.0.1
schema: v1
models:
  - name: weft
    provider: openai
    model: {model}
    apiBase: {base}/v1
    apiKey: client
    roles: [chat]
    capabilities: [tool_use]
"""


def continue_cli(place: Place) -> Run:
    text = CONTINUE_CONFIG.format(model=place.model, base=place.base)
    config = written(place.home / "config.yaml", text)
    arguments = [CONTINUE.command("cn"), "--config", str(config), "--auto", "-p"]
    return Run(arguments, {"CONTINUE_TELEMETRY_ENABLED": "0"})


# Cline

CLINE = Package("cline", ("cline@3.0.65",))


def cline(place: Place) -> Run:
    command = CLINE.command("cline")
    told = ["--apikey", "client", "--modelid", place.model, "--baseurl", f"{place.base}/v1"]
    environment = {**os.environ, "HOME": str(place.home)}
    subprocess.run(
        [command, "auth", "openai-compatible", *told],
        env=environment,
        check=True,
        capture_output=True,
    )
    return Run([command, "--json"], {})


CLIS = {
    "codex": Cli(RESPONSES, CODEX, codex),
    "claude-code": Cli(MESSAGES, CLAUDE, claude_code),
    "gemini-cli": Cli(GEMINI, GEMINI_CLI, gemini_cli),
    "qwen-code": Cli(CHAT, QWEN, qwen_code),
    "opencode": Cli(CHAT, OPENCODE, opencode),
    "continue": Cli(CHAT, CONTINUE, continue_cli),
    "cline": Cli(CHAT, CLINE, cline),
    "pi-chat": Cli(CHAT, PI, functools.partial(pi, CHAT)),
    "pi-responses": Cli(RESPONSES, PI, functools.partial(pi, RESPONSES)),
    "pi-messages": Cli(MESSAGES, PI, functools.partial(pi, MESSAGES)),
    "pi-gemini": Cli(GEMINI, PI, functools.partial(pi, GEMINI)),
}
