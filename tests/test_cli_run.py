"""`weft run`, `weft runs` and `weft worker`: real processes, a real terminal, a scripted model."""

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import sqlite3
import subprocess
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import weft_command
from tests.agent_processes import runtime_on
from tests.agent_upstream import Script, agent_upstream, by_agent, by_turn, call, calls, text
from tests.agent_workers import HeldScript
from tests.faults.world import until
from tests.stores import Kind, empty
from tests.weft_command import ENVIRONMENT, WEFT, Done, ForkedWeft
from weft.agent.agents import Agent

PATIENCE = 60.0
"""Seconds until a process that does nothing is given up."""

SHOP = '''
import os, pathlib, signal, weft
FOLDER = pathlib.Path(__file__).parent

def act(line: str) -> None:
    with (FOLDER / "effects").open("a") as file:
        file.write(line + "\\n")

@weft.tool(approval="always")
def pay(amount: int) -> str:
    """Pays."""
    act(f"pay {amount}")
    return f"{amount} paid"

@weft.tool
def mail(to: str) -> str:
    """Sends a letter."""
    act(f"mail {to}")
    if (FOLDER / "deadly").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "sent"
'''
SETTINGS = """
[store]
url = {url}
lease = {lease}
[workers]
lease = {lease}
[upstreams.m]
dialect = "openai-chat"
base_url = {upstream}
[agents.helper]
model = "m/m"
tools = ["cli_shop:pay", "cli_shop:mail"]
[agents.boss]
model = "m/m"
instructions = "Boss."
tools = ["agent:clerk"]
[agents.clerk]
model = "m/m"
instructions = "Clerk."
tools = ["cli_shop:pay"]
"""
LEASE = 15.0
"""Seconds that a process may be slow; those of a dead one are over when the test says so."""

PAY = by_turn(calls(call(0, "a", "pay", {"amount": 3})), text("All is paid."))
MAIL = by_turn(calls(call(0, "a", "mail", {"to": "me"})), text("It is sent."))


class Place:
    """A folder with settings, and a store."""

    def __init__(self, folder: Path, url: str, upstream: str) -> None:
        self.folder = folder
        self.url = url
        self.upstream = upstream
        (folder / "cli_shop.py").write_text(SHOP)
        made = SETTINGS.format(url=json.dumps(url), upstream=json.dumps(upstream), lease=LEASE)
        (folder / "weft.toml").write_text(made)

    @property
    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def start(self, *arguments: str) -> ForkedWeft:
        return ForkedWeft(arguments, self.folder, ENVIRONMENT)

    def weft(self, *arguments: str, given: str = "") -> Done:
        return weft_command.run(*arguments, given=given.encode(), folder=self.folder)

    def runs(self) -> list[dict[str, object]]:
        """All runs, the newest first."""
        listed = self.weft("runs", "list", "--json")
        assert listed.code == 0, listed.err
        return [json.loads(line) for line in listed.lines]

    def expire(self) -> None:
        """The leases of runs are over; the process that held them is dead."""
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as database, database:
            found = database.execute(f"UPDATE run SET until = until - {LEASE} WHERE until > 0")
            assert found.rowcount == 1

    def status(self, run: str) -> object:
        shown = self.weft("runs", "show", run)
        assert shown.code == 0, shown.err
        return json.loads(shown.out)["status"]


@contextmanager
def place(folder: Path, script: Script, kind: Kind = "sqlite") -> Iterator[Place]:
    with agent_upstream(script) as upstream:
        yield Place(folder, empty(kind, folder), upstream.url)


class TerminalSession:
    """A `weft` whose input and output are a terminal, which it is controlled by."""

    def __init__(self, where: Place, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [WEFT, *arguments],
            cwd=where.folder,
            env=ENVIRONMENT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.shown = ""
        self._seen = 0
        """How much of it the test has waited for."""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, words: str) -> None:
        """Returns when the words are on the screen, behind those that were waited for before."""
        while words not in self.shown[self._seen :]:
            ready, _, _ = select.select([self._master], [], [], PATIENCE)
            assert ready, f"no {words!r} in {self.shown!r}"
            try:
                data = os.read(self._master, 65536)
            except OSError:  # Linux says so when the other side has closed
                data = b""
            assert data, f"no {words!r} in {self.shown!r}"
            self.shown += data.decode()
        self._seen = self.shown.index(words, self._seen) + len(words)

    @property
    def run(self) -> str:
        self.wait_for("\n")
        found = re.search(r"run (run_\w+)", self.shown)
        assert found
        return found[1]

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextmanager
def terminal(where: Place, *arguments: str) -> Iterator[TerminalSession]:
    session = TerminalSession(where, *arguments)
    try:
        yield session
    finally:
        session.close()


@contextmanager
def worker(where: Place) -> Iterator[ForkedWeft]:
    with watched_worker(where) as (process, _):
        yield process


@contextmanager
def watched_worker(where: Place, address: str | None = None) -> Iterator[tuple[ForkedWeft, str]]:
    """A worker, and the URL where it listens for who asks for its metrics."""
    process = where.start("worker", *(() if address is None else ("--metrics", address)))
    url = ""
    try:
        if address is not None:
            line = process.stdout.readline()
            assert line.startswith("metrics on http://"), line + str(process.communicate())
            url = line.removeprefix("metrics on ").removesuffix("/metrics\n")
        working = "working on background responses and the runs of helper, boss, clerk\n"
        assert process.stdout.readline() == working, process.communicate()
        yield process, url
    finally:
        process.close()


def start_elsewhere(there: Place) -> str:
    """A run that some other process has started, and nobody works on."""

    async def start() -> str:
        agent = Agent("helper", "m/m")
        async with runtime_on(
            there.url, there.upstream, there.folder, agent=agent, serving=False
        ) as (runtime, _, _):
            return await runtime.start("helper", "Go.")

    return asyncio.run(start())


# weft run


def test_the_text_goes_to_standard_output_and_the_rest_to_standard_error(tmp_path: Path) -> None:
    with place(tmp_path, MAIL) as there:
        done = there.weft("run", "helper", "-", given="Write to me.")
        assert (done.code, done.out) == (0, "It is sent.\n")
        [run] = there.runs()
        assert done.err.splitlines() == [
            f"run {run['id']}",
            'call mail {"to": "me"}',
            "result mail: sent",
        ]
        assert (run["status"], there.effects) == ("finished", ["mail me"])


def test_text_is_shown_as_it_comes(tmp_path: Path) -> None:
    """The second turn is held back: what the first one said is on the screen."""
    first: list[dict[str, object]] = [
        {"delta": {"role": "assistant", "content": "I write."}},
        *calls(call(0, "a", "mail", {"to": "me"})),
    ]
    script = HeldScript(by_turn(first, text("Done.")), turn=1)
    with place(tmp_path, script) as there, terminal(there, "run", "helper", "Go.") as session:
        session.wait_for("I write.")
        session.wait_for("result mail: sent")
        script.let_go()
        session.wait_for("Done.")
        assert session.end() == 0


def test_it_prints_events_as_json(tmp_path: Path) -> None:
    with place(tmp_path, PAY) as there:
        done = there.weft("run", "helper", "Pay.", "--json", "--approve", "always")
        kinds = [json.loads(line)["kind"] for line in done.lines]
        assert (done.code, kinds[0], kinds[-1]) == (0, "run.created", "run.finished")
        [run] = there.runs()
        assert there.weft("runs", "events", str(run["id"])).out == done.out
        assert there.effects == ["pay 3"]


def test_never_denies(tmp_path: Path) -> None:
    with place(tmp_path, PAY) as there:
        done = there.weft("run", "helper", "Pay.", "--approve", "never")
        assert (done.code, there.effects) == (0, [])
        assert "denied pay" in done.err


def test_a_person_is_asked_on_the_terminal(tmp_path: Path) -> None:
    two = calls(call(0, "a", "pay", {"amount": 1}), call(1, "b", "pay", {"amount": 2}))
    three = calls(call(0, "c", "pay", {"amount": 3}))
    script = by_turn(two, three, text("All is paid."))
    with place(tmp_path, script) as there, terminal(there, "run", "helper", "Pay.") as session:
        session.wait_for('run pay {"amount": 1}?')
        session.wait_for("of this run? ")
        session.type("what?\n")  # is asked again
        session.wait_for("of this run? ")
        session.type("n\n")
        session.wait_for('run pay {"amount": 2}?')
        session.wait_for("of this run? ")
        session.type("t\n")  # this one, and the third
        session.wait_for("All is paid.")
        assert session.end() == 0
        assert there.effects == ["pay 2", "pay 3"]


def test_a_person_is_asked_about_the_calls_of_agents_that_the_agent_calls(tmp_path: Path) -> None:
    script = by_agent(
        B=by_turn(calls(call(0, "a", "clerk", {"input": "Pay."})), text("The clerk has paid.")),
        C=PAY,
    )
    with place(tmp_path, script) as there:
        done = there.weft("run", "boss", "Pay.")
        [child, run] = there.runs()
        assert (done.code, run["status"], child["status"]) == (3, "running", "waiting")
        assert child["parent"] == run["id"]
        assert f"weft runs show {child['id']}" in done.err
        shown = json.loads(there.weft("runs", "show", str(run["id"])).out)
        assert [one["run"] for one in shown["waiting"]["approvals"]] == [child["id"]]
        with terminal(there, "run", "--resume", str(run["id"])) as session:
            session.wait_for('run pay {"amount": 3}?')
            session.wait_for("of this run? ")
            session.type("y\n")
            session.wait_for("The clerk has paid.")
            assert session.end() == 0
        assert there.effects == ["pay 3"]
        done = there.weft("run", "boss", "Pay.", "--approve", "always")
        assert (done.code, there.effects) == (0, ["pay 3", "pay 3"])


def test_without_a_terminal_the_run_waits_for_somebody(tmp_path: Path) -> None:
    with place(tmp_path, PAY) as there:
        done = there.weft("run", "helper", "Pay.")
        [run] = there.runs()
        assert (done.code, run["status"]) == (3, "waiting")
        assert f"weft runs show {run['id']}" in done.err
        with terminal(there, "run", "--resume", str(run["id"])) as session:
            session.wait_for("of this run? ")
            session.type("y\n")
            session.wait_for("All is paid.")
            assert session.end() == 0
        assert there.effects == ["pay 3"]
        again = there.weft("run", "--resume", str(run["id"]))
        assert (again.code, again.out) == (0, ""), "it has ended"


@pytest.mark.parametrize("moment", ["turn", "question"])
def test_ctrl_c_cancels(moment: str, tmp_path: Path) -> None:
    script = HeldScript(PAY, turn=0)
    if moment == "question":
        script.let_go()
    with place(tmp_path, script) as there, terminal(there, "run", "helper", "Pay.") as session:
        run = session.run
        if moment == "question":
            session.wait_for("of this run? ")
        else:
            asyncio.run(script.arrived(1))
        session.type("\x03")
        session.wait_for("cancelled by")
        assert session.end() == 130
        script.let_go()
        assert (there.status(run), there.effects) == ("cancelled", [])


def test_a_second_ctrl_c_quits_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    script = HeldScript(MAIL, turn=1)
    with place(tmp_path, script) as there, terminal(there, "run", "helper", "Go.") as session:
        run = session.run
        asyncio.run(script.arrived(1))
        # Nobody can write now: the cancellation has to wait.
        other = sqlite3.connect(there.url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        session.type("\x03")
        session.wait_for("cancelling")
        session.type("\x03")
        assert session.end() == 130
        other.execute("ROLLBACK")
        other.close()
        script.let_go()
        there.expire()
        assert there.status(run) == "running"
        done = there.weft("run", "--resume", run)
        assert (done.code, done.out) == (0, "It is sent.\n")
        assert there.effects == ["mail me"]


@pytest.mark.long
def test_a_run_whose_process_died_is_resumed_and_what_is_unknown_is_settled(
    tmp_path: Path,
) -> None:
    with place(tmp_path, MAIL) as there:
        (tmp_path / "deadly").touch()
        assert there.weft("run", "helper", "Go.").code == -signal.SIGKILL
        (tmp_path / "deadly").unlink()
        there.expire()
        [run] = [str(one["id"]) for one in there.runs()]
        waits = there.weft("run", "--resume", run)
        assert waits.code == 3, waits.err
        assert "parked mail" in waits.err
        assert there.weft("runs", "resolve", run, "a", "done", "--result", "sent").code == 0
        done = there.weft("run", "--resume", run)
        assert (done.code, done.out) == (0, "It is sent.\n")
        assert there.effects == ["mail me"]


def test_it_leaves_the_runs_of_others_alone(tmp_path: Path) -> None:
    with place(tmp_path, MAIL) as there:
        other = start_elsewhere(there)
        assert there.weft("run", "helper", "Go.").code == 0
        assert there.status(other) == "running"
        assert len(there.effects) == 1


@pytest.mark.long
def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    with place(tmp_path, MAIL) as there:
        for arguments, code, words in (
            (["nobody", "Go."], 1, "no agent 'nobody'; expected one of: helper"),
            (["--resume", "run_x"], 1, "no run 'run_x'"),
            ([], 2, "Missing argument 'AGENT'"),
            (["helper", "Go.", "--resume", "run_x"], 2, "neither AGENT nor PROMPT"),
            (["helper", " "], 2, "the prompt is empty"),
        ):
            done = there.weft("run", *arguments)
            assert (done.code, done.out) == (code, ""), done.err
            assert words in done.err
        (tmp_path / "weft.toml").write_text('[upstreams.m]\npreset = "openai"\napi_key = "x"\n')
        assert "no agents" in there.weft("run", "helper", "Go.").err


# weft runs


@pytest.mark.long
def test_runs_are_listed_shown_exported_and_cancelled(tmp_path: Path) -> None:
    with place(tmp_path, PAY) as there:
        assert there.weft("runs", "list").code == 2, "there is no store yet"
        there.weft("run", "helper", "Pay.")
        assert there.weft("run", "helper", "Pay.", "--approve", "always").code == 0
        second, first = (str(one["id"]) for one in there.runs())
        [line] = there.weft("runs", "list", "--status", "waiting").lines
        assert line.split()[:2] == [first, "waiting"]
        assert there.weft("runs", "list", "--agent", "other").out == ""
        assert there.weft("runs", "list", "--owner", "somebody").out == ""
        exported = json.loads(there.weft("runs", "export", second).out)
        assert exported["run"]["output"] == "All is paid."
        assert [one["seq"] for one in exported["events"]] == [*range(1, 12)]
        assert len(exported["responses"]) == 2
        assert there.weft("runs", "cancel", first, "--reason", "no").code == 0
        assert there.weft("runs", "cancel", first).code == 0, "once more changes nothing"
        assert there.status(first) == "cancelled"
        failed = there.weft("runs", "approve", first)
        assert (failed.code, "waiting: none" in failed.err) == (1, True)
        for command in (["show"], ["events"], ["export"], ["cancel"], ["approve"]):
            done = there.weft("runs", *command, "run_x")
            assert (done.code, "no run 'run_x'" in done.err) == (1, True)


# weft worker


@pytest.mark.long
def test_a_run_is_forked_where_nothing_is_under_way(tmp_path: Path) -> None:
    with place(tmp_path, MAIL) as there:
        assert there.weft("run", "helper", "Go.").code == 0
        [run] = [str(one["id"]) for one in there.runs()]
        lines = there.weft("runs", "events", run).lines
        kinds = [json.loads(line)["kind"] for line in lines]
        receipt = kinds.index("call.finished") + 1
        done = there.weft("runs", "fork", run, "--after", str(receipt))
        assert (done.code, done.err) == (0, "")
        fork = done.out.strip()
        assert {str(one["id"]) for one in there.runs()} == {run, fork}
        resumed = there.weft("run", "--resume", fork)
        assert (resumed.code, resumed.out) == (0, "It is sent.\n")
        assert there.effects == ["mail me"], "the call is not made again"
        failed = there.weft("runs", "fork", run, "--after", str(receipt - 1))
        assert failed.code == 1
        assert f"possible are {receipt}" in failed.err
        assert there.weft("runs", "fork", run).code == 2, "after what?"
        assert there.weft("runs", "fork", "run_x", "--after", "1").code == 1
        ended = there.weft("run", "--resume", run)
        assert ended.code == 0
        assert f"the run is finished; see weft runs show {run}" in ended.err


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_worker_carries_out_what_is_decided_elsewhere(kind: Kind, tmp_path: Path) -> None:
    with place(tmp_path, PAY, kind) as there:
        assert there.weft("run", "helper", "Pay.").code == 3
        [run] = [str(one["id"]) for one in there.runs()]
        with worker(there) as process:
            followed = there.start("runs", "events", run, "--follow")
            assert there.weft("runs", "approve", run).code == 0
            out, _ = followed.communicate(timeout=PATIENCE)
            assert json.loads(out.splitlines()[-1])["kind"] == "run.finished"
            assert there.effects == ["pay 3"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0


@pytest.mark.long
def test_a_worker_hands_over_and_quits_at_the_second_signal(tmp_path: Path) -> None:
    script = HeldScript(by_turn(text("Done.")), turn=0)
    with place(tmp_path, script) as there:
        run = start_elsewhere(there)
        with worker(there) as first:
            asyncio.run(script.arrived(1))
            first.send_signal(signal.SIGTERM)  # it waits for the turn
            until(lambda: not is_pending(first, signal.SIGTERM), "the first of two signals")
            with pytest.raises(subprocess.TimeoutExpired):
                first.wait(0.5)
            first.send_signal(signal.SIGTERM)
            assert first.wait(PATIENCE) == 128 + signal.SIGTERM
        script.let_go()
        there.expire()
        with worker(there):
            followed = there.weft("runs", "events", run, "--follow")
            assert json.loads(followed.lines[-1])["kind"] == "run.finished"


def is_pending(process: ForkedWeft, number: signal.Signals) -> bool:
    """Whether a signal has not reached a process yet: another one of its kind would be lost."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [pending] = re.findall(r"^ShdPnd:\s(\w+)$", status, re.MULTILINE)
    return bool(int(pending, 16) >> (number - 1) & 1)


@pytest.mark.long
def test_a_worker_is_watched_where_it_is_told_to_listen(tmp_path: Path) -> None:
    with place(tmp_path, PAY) as there:
        assert there.weft("run", "helper", "Pay.").code == 3
        [run] = [str(one["id"]) for one in there.runs()]
        with (
            watched_worker(there, "127.0.0.1:0") as (process, url),
            httpx.Client(base_url=url, trust_env=False) as client,
        ):
            assert there.weft("runs", "approve", run).code == 0
            ended = 'weft_runs_ended_total{agent="helper",status="finished"} 1.0'
            until(lambda: ended in client.get("/metrics").text, "the end of the run")
            found = client.get("/metrics")
            families = {one.name for one in text_string_to_metric_families(found.text)}
            assert families >= {"weft_agent_turns", "weft_requests", "weft_workers", "weft_runs"}
            assert client.get("/health").json() == {"status": "ok"}
            assert client.get("/ready").json()["status"] == "ready"
            for path in ("/", "/v1/models", "/v1/usage", "/page/app.js", "/metrics/"):
                assert client.get(path).status_code == 404
            assert client.post("/v1/responses", json={}).status_code == 404
            assert client.get("/metrics", headers={"host": "evil.example"}).status_code == 421
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            done = there.weft("worker", "--metrics", where)
        assert done.code == 1
        assert done.err.startswith(f"Error: cannot listen on {where}: ")
        done = there.weft("worker", "--metrics", "0.0.0.0:0")
        assert (done.code, "0.0.0.0 is reachable from other machines" in done.err) == (1, True)
        for wrong in ("9464", "localhost:", "localhost:x", "localhost:99999"):
            assert there.weft("worker", "--metrics", wrong).code == 2
