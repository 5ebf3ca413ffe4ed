"""Many responses on one gateway, each brought to its position, and one kill for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from tests.crash.positions import MARKS, STEPS, TOOL, Position, echoed, played, reply
from tests.crash.scene import Scene, Stream, id_in, idle, kill, post
from tests.faults.upstream import Hold
from tests.faults.world import until
from tests.gateway_process import Gateway

Mode = Literal["streamed", "background", "tool-session", "echoed"]
MODES: tuple[Mode, ...] = ("streamed", "background", "tool-session", "echoed")
_ids = count(1)


@dataclass
class Cell:
    """One response, on its way through a gateway that will be killed."""

    scene: Scene
    mode: Mode
    position: Position
    running: Gateway
    holds: dict[str, Hold]
    stream: Stream
    id: str = ""

    def go(self, last: str) -> None:
        """Has the upstream make all steps up to this one that it has not made."""
        for name in list(self.holds):
            self.holds.pop(name).release()
            if name == last:
                return

    def told(self, step: str) -> None:
        """Waits until the client has received a step."""
        self.stream.until(MARKS[step])
        self.id = self.id or id_in(self.stream.until(b"\n\n").seen)

    def stored(self, step: str) -> None:
        """Waits until the client has it, and the store."""
        self.told(step)
        self.scene.database.holds(self.id, MARKS[step])

    @property
    def has_ended(self) -> bool:
        entry = self.scene.database.entry(self.id)
        return entry is not None and entry.ended is not None

    # The way there, in three parts: slowly; quickly; while the database is locked

    def prepare(self) -> None:
        last = self.position.last
        match self.position.how:
            case "at-once" if last:
                self.go(last)
            case "stored" | "left":
                self.go(last)
                self.stored(last)
            case "behind":
                self.go("first")
                self.stored("first")
            case "locked":
                self.go("arguments")
                self.stored("arguments")
            case "ended":
                self.go("first")
                self.told("first")
                self.go("done")
                until(lambda: self.has_ended, "the end in the store")
            case "read":
                self.go("done")
                self.told("first")
                self.stream.rest()

    def hurry(self) -> None:
        if self.position.how == "told":
            self.go(self.position.last)
            self.told(self.position.last)

    def finish(self) -> None:
        match self.position.how:
            case "behind":
                self.go(self.position.last)
                self.told(self.position.last)
            case "locked":
                self.go("done")
            case "left":
                self.stream.close()


def cell(made: Scene, mode: Mode, position: Position, running: Gateway) -> Cell:
    """Asks; returns when the upstream has the request."""
    holds, script = played(echoed(f"resp_{next(_ids)}") if mode == "echoed" else STEPS)
    model = made.upstream.script(script, reply("Fine."))
    name = f"{'echo' if mode == 'echoed' else 'chat'}/{model}"
    body = made.begin(name, tools=[TOOL], stream=True)
    if mode == "tool-session":
        body["include"] = ["required_action"]
    if mode == "background":
        asked = {**body, "stream": False, "background": True}
        id = str(post(running, "/v1/responses", asked).json()["id"])
        stream = Stream(running.url, f"/v1/responses/{id}?stream=true", None)
    else:
        id, stream = "", Stream(running.url, "/v1/responses", body)
    made.upstream.exchange(model)
    return Cell(made, mode, position, running, holds, stream, id)


def killed(made: Scene, wanted: Sequence[tuple[Mode, Position]]) -> dict[tuple[Mode, str], Cell]:
    """Brings a response to each of these positions, and kills the gateway."""
    running = made.start()
    cells = [cell(made, mode, position, running) for mode, position in wanted]
    for one in cells:
        one.prepare()
    for one in cells:
        one.hurry()
    with made.database.locked():
        for one in cells:
            one.finish()
        idle(running)
        kill(running)
    for one in cells:
        if one.position.how != "left":
            one.stream.rest()
            one.stream.close()
    return {(one.mode, one.position.name): one for one in cells}
