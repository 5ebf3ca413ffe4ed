"""Two gateways and two workers on one PostgreSQL, as they are run: started here, approved there,
cancelled and followed elsewhere, killed, and the database restarted below them.

`test_agent_workers.py` has the same for processes of the library, whose queue can be emptied.
"""

import asyncio
import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.agent_upstream import AgentUpstream, Script, agent_upstream, by_turn, call, calls, text
from tests.agent_workers import HeldScript
from tests.gateway_process import Gateway, gateway
from tests.stores import empty, postgres
from tests.weft_command import ENVIRONMENT, WEFT

pytestmark = pytest.mark.long  # several processes each, and leases that expire

Object = dict[str, Any]
PATIENCE = 60.0
PAY = by_turn(calls(call(0, "a", "pay", {"amount": 3})), text("All is paid."))
SHOP = '''
import pathlib, weft
FOLDER = pathlib.Path(__file__).parent

@weft.tool(approval="always")
def pay(context: weft.ToolContext, amount: int) -> str:
    """Pays."""
    with (FOLDER / "effects").open("a") as file:
        file.write(context.run + "\\n")
    return f"{amount} paid"
'''
SETTINGS = """
[store]
url = {url}
lease = {lease}
[workers]
lease = {lease}
dispatcher = {dispatcher}
[upstreams.m]
dialect = "openai-chat"
base_url = {upstream}
[agents.helper]
model = "m/m"
tools = ["cluster_shop:pay"]
"""
DISPATCHERS = pytest.mark.parametrize("dispatcher", ["local", "pgqueuer"])


class Client:
    """A client of one gateway."""

    def __init__(self, served: Gateway) -> None:
        self.served = served
        self.http = httpx.Client(base_url=served.url, timeout=PATIENCE, trust_env=False)

    def post(self, path: str, **body: object) -> Object:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        found: Object = answer.json()
        return found

    def get(self, path: str) -> Object:
        found: Object = self.http.get(path).json()
        return found

    def start(self) -> str:
        return str(self.post("/v1/runs", agent="helper", input="Go.")["id"])

    def events(self, path: str) -> Iterator[Object]:
        """The events of a stream, as they come. A stream that fails is resumed, as clients do."""
        end, last = time.monotonic() + PATIENCE, "0"
        while time.monotonic() < end:
            try:
                with self.http.stream("GET", path, headers={"last-event-id": last}) as stream:
                    for line in stream.iter_lines():
                        name, _, value = line.partition(": ")
                        if name == "id":
                            last = value
                        elif name == "data" and value != "[DONE]":
                            yield json.loads(value)
                    if stream.status_code == 200:
                        return
            except httpx.TransportError:
                continue
        raise AssertionError(f"{path}: no end after event {last}")

    def run_events(self, run: str) -> Iterator[Object]:
        return self.events(f"/v1/runs/{run}/events?stream=true")

    def end(self, run: str) -> str:
        """The kind of the last event of a run."""
        *_, last = self.run_events(run)
        return str(last["kind"])

    def approve(self, run: str) -> None:
        asked = next(one for one in self.run_events(run) if one["kind"] == "approval.requested")
        self.post(f"/v1/runs/{run}/approvals", approval_id=asked["approval"], approve=True)

    def follow(self, run: str) -> Callable[[], list[int]]:
        """Follows the events of a run; returns a function that waits for their numbers."""
        numbers: list[int] = []

        def read() -> None:
            numbers.extend(one["seq"] for one in self.run_events(run) if "seq" in one)

        reading = threading.Thread(target=read)
        reading.start()

        def wait() -> list[int]:
            reading.join(PATIENCE)
            assert not reading.is_alive()
            return numbers

        return wait


@dataclass
class Machines:
    """One database, and what runs on it."""

    folder: Path
    upstream: AgentUpstream
    settings: str
    stack: ExitStack = field(default_factory=ExitStack)

    def gateway(self) -> Client:
        made = Client(self.stack.enter_context(gateway(self.settings, self.folder)))
        self.stack.enter_context(made.http)
        return made

    def worker(self) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [WEFT, "worker", "--config", "weft.toml"],
            cwd=self.folder,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.stack.callback(_end, process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("working on")
        return process

    @property
    def effects(self) -> Counter[str]:
        return Counter((self.folder / "effects").read_text().split())


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@contextmanager
def machines(
    folder: Path, script: Script, dispatcher: str, lease: float
) -> Iterator[tuple[Machines, Client, Client, "subprocess.Popen[str]"]]:
    """Two gateways and two workers; one of the workers is returned."""
    with agent_upstream(script) as upstream, ExitStack() as stack:
        (folder / "cluster_shop.py").write_text(SHOP)
        settings = SETTINGS.format(
            url=json.dumps(empty("postgres", folder)),
            lease=lease,
            dispatcher=json.dumps(dispatcher),
            upstream=json.dumps(upstream.url),
        )
        there = Machines(folder, upstream, settings, stack)
        one, other = there.gateway(), there.gateway()
        there.worker()
        yield there, one, other, there.worker()


@DISPATCHERS
def test_a_run_belongs_to_no_machine(dispatcher: str, tmp_path: Path) -> None:
    script = HeldScript(PAY, turn=1)
    with machines(tmp_path, script, dispatcher, 4.0) as (there, one, other, worker):
        ids = [one.start() for _ in range(6)]
        unwanted = one.start()
        followers = [other.follow(id) for id in ids]
        for id in ids:
            other.approve(id)
        asyncio.run(script.arrived(len(ids)))  # each has paid, and is in its second turn
        one.served.process.kill()
        worker.send_signal(signal.SIGKILL)
        assert other.post(f"/v1/runs/{unwanted}/cancel")["status"] == "cancelled"
        script.let_go()
        third = there.gateway()
        for id, wait in zip(ids, followers, strict=True):
            assert third.end(id) == "run.finished"
            seen = wait()
            assert seen == list(range(1, len(seen) + 1)), "every event once, in order"
            events = third.get(f"/v1/runs/{id}/events?limit=100")["data"]
            assert [event["seq"] for event in events] == seen
        assert there.effects == Counter(ids)
        assert third.get(f"/v1/runs/{unwanted}")["status"] == "cancelled"


@DISPATCHERS
def test_a_database_that_restarts_stops_nobody(dispatcher: str, tmp_path: Path) -> None:
    script = HeldScript(PAY, turn=1)
    # The lease is longer than the restart: those who work on the runs are alive.
    with machines(tmp_path, script, dispatcher, 20.0) as (there, one, other, _):
        ids = [one.start() for _ in range(3)]
        for id in ids:
            other.approve(id)
        asyncio.run(script.arrived(len(ids)))
        turns = [{"role": "assistant", "content": "So?"}, {"role": "user", "content": "Go."}]
        held = one.post("/v1/responses", model="m/m", input=turns, background=True)["id"]
        asyncio.run(script.arrived(1))
        postgres().stop()
        postgres().ensure_postgres_running()
        script.let_go()
        ids.append(other.start())
        one.approve(ids[-1])
        for id in ids:
            assert other.end(id) == "run.finished"
        *_, last = other.events(f"/v1/responses/{held}?stream=true")
        assert last["type"] == "response.completed"
        assert there.effects == Counter(ids)
