"""Kill -9 under load, round after round: what was acknowledged is there afterwards, once, and as it
was told; and nothing goes on running.
"""

import json
import os
import random
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.crash.test_large_answers import verified
from tests.faults.world import until
from tests.gateway_process import Gateway, gateway
from tests.stores import Kind, empty

CLIENTS = 6
ENOUGH = 40
"""Acknowledgements in a round before the gateway is killed, at least."""


@dataclass
class Ledger:
    """What clients received."""

    conversation: str
    items: list[str] = field(default_factory=list)
    """Texts of items, each its own."""

    responses: dict[str, str] = field(default_factory=dict)
    """The text of each response that was completed for its client."""

    @property
    def size(self) -> int:
        return len(self.items) + len(self.responses)


def client(url: str, ledger: Ledger, name: str) -> None:
    """Adds items and asks for responses, in turns, until the gateway is gone."""
    with suppress(httpx.HTTPError), httpx.Client(base_url=url, timeout=30) as http:
        for number in range(10_000):
            text = f"{name}-{number}"
            item = {"type": "message", "role": "user", "content": text}
            path = f"/v1/conversations/{ledger.conversation}/items"
            answer = http.post(path, json={"items": [item]})
            if answer.status_code == 200:
                ledger.items.append(text)
            answer = http.post("/v1/responses", json={"model": "demo/chat", "input": text})
            if answer.status_code == 200:
                body = answer.json()
                ledger.responses[body["id"]] = body["output"][-1]["content"][0]["text"]


def kill_under_load(running: Gateway, ledger: Ledger, round: int) -> None:
    before = ledger.size
    clients = [
        threading.Thread(target=client, args=(running.url, ledger, f"{round}-{number}"))
        for number in range(CLIENTS)
    ]
    for one in clients:
        one.start()
    wanted = before + ENOUGH + random.Random(round).randrange(ENOUGH)
    until(lambda: ledger.size >= wanted, "enough acknowledgements", 60)
    os.kill(running.pid, signal.SIGKILL)
    for one in clients:
        one.join()


def told_items(url: str, conversation: str) -> list[str]:
    """The texts of all items of a conversation."""
    texts: list[str] = []
    after: dict[str, str] = {}
    while True:
        path = f"{url}/v1/conversations/{conversation}/items"
        page = httpx.get(path, params={"limit": 100, "order": "asc", **after}, timeout=30).json()
        texts += [item["content"][0]["text"] for item in page["data"]]
        if not page["has_more"]:
            return texts
        after = {"after": page["last_id"]}


def check(running: Gateway, ledger: Ledger) -> None:
    found = told_items(running.url, ledger.conversation)
    assert len(found) == len(set(found)), "an item is there twice"
    assert set(ledger.items) <= set(found), "an acknowledged item is gone"
    for id, text in ledger.responses.items():
        body = httpx.get(f"{running.url}/v1/responses/{id}", timeout=30).json()
        assert (body["status"], body["output"][-1]["content"][0]["text"]) == ("completed", text)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "rounds"), [("sqlite", 12), ("postgres", 9)])
def test_what_was_acknowledged_survives_kill_9_round_after_round(
    kind: Kind, rounds: int, tmp_path: Path
) -> None:
    settings = (
        f"[store]\nurl = {json.dumps(empty(kind, tmp_path))}\n"
        "[upstreams.demo]\ndialect = 'openai-responses'\nbase_url = 'demo:fast'\n"
    )
    with gateway(settings, tmp_path) as first:
        answer = httpx.post(f"{first.url}/v1/conversations", json={}, timeout=30)
        ledger = Ledger(answer.json()["id"])
    for round in range(rounds):
        with gateway(settings, tmp_path) as running:
            kill_under_load(running, ledger, round)
    with gateway(settings, tmp_path) as last:
        check(last, ledger)
    assert ledger.size >= rounds * ENOUGH
    verified(tmp_path)
