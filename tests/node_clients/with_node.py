"""The libraries for JavaScript: one process that is told a case a line."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.clients.case import Case, Forecast, Outcome
from tests.clients.drivers import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.clients.vendor import Object
from tests.node_clients.installed import Environment, Package

SDKS = Package(
    "sdks",
    (
        "ai@6.0.326",
        "@ai-sdk/openai@3.0.139",
        "@ai-sdk/openai-compatible@2.0.87",
        "@ai-sdk/anthropic@3.0.138",
        "@ai-sdk/google@3.0.141",
        "openai@6.49.0",
        "@anthropic-ai/sdk@1.8.0",
        "@google/genai@2.32.0",
        "@openai/agents@0.20.0",
        "zod@4.6.7",
    ),
)
HOST = Path(__file__).with_name("host.mjs")

DIALECTS = {
    "node-openai-chat": CHAT,
    "node-openai-responses": RESPONSES,
    "node-anthropic": MESSAGES,
    "node-genai": GEMINI,
    "aisdk-chat": CHAT,
    "aisdk-compatible": CHAT,
    "aisdk-responses": RESPONSES,
    "aisdk-anthropic": MESSAGES,
    "aisdk-google": GEMINI,
    "agents-js-chat": CHAT,
    "agents-js-responses": RESPONSES,
}
"""The clients of the host, and what they speak."""


class NodeError(Exception):
    """What a library threw: its words, and the status it saw."""

    def __init__(self, told: Object) -> None:
        super().__init__(f"{told['message']} {told['data']}")
        self.status_code = told.get("status")


class Host:
    """The running process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, client: str, case: Case) -> Outcome:
        """Raises NodeError with what the library threw."""
        told = {
            "client": client,
            "base": case.base,
            "key": case.key,
            "model": case.model,
            "stream": case.stream,
            "prompt": case.prompt,
            "tools": case.tools,
            "thinks": case.thinks,
            "shaped": case.shaped,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        case.ran += [(name, given) for name, given in answer["ran"]]
        if "error" in answer:
            raise NodeError(answer["error"])
        return _outcome(answer["outcome"])


def _outcome(told: Object) -> Outcome:
    value = told.get("value")
    usage = told.get("usage")
    return Outcome(
        told.get("text") or "",
        told.get("thought") or "",
        Forecast(**value) if value else None,
        (usage[0], usage[1]) if usage else None,
    )


LITELLM = Environment("litellm", ("litellm==1.106.2", "mcp==2.3.0"))  # no tools without the second
LITELLM_HOST = Path(__file__).with_name("litellm_host.py")
LITELLM_DIALECTS = {"litellm-chat": CHAT, "litellm-anthropic": MESSAGES}


def host() -> AbstractContextManager[Host]:
    return _running(["node", str(HOST)], SDKS.install())


def litellm_host() -> AbstractContextManager[Host]:
    return _running([LITELLM.python(), str(LITELLM_HOST)], LITELLM_HOST.parent)


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[Host]:
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        try:
            yield Host(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)
