"""Where a gateway is killed, as a table: how far its upstream went, and what had happened by then.

The script of the upstream has a hold in front of each step. A position releases those before it,
waits until its mark is where it says, and then the gateway is killed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal

from tests.chat import calls, chunk, entry
from tests.faults.upstream import LAST, STREAM, Hold, Step
from tests.faults.upstream import chunk as piece
from tests.faults.wires import Object, typed

TEXT = ("Hello ", "wide ", "world.")
ARGUMENTS = ('{"city":', '"Rome"}')
CALL = "call_1"
TOOL = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
STEPS: dict[str, bytes] = {
    "head": chunk({"role": "assistant", "content": ""}),
    "first": chunk({"content": TEXT[0]}),
    "text": chunk({"content": TEXT[1]}) + chunk({"content": TEXT[2]}),
    "call": calls(entry(0, CALL, "weather", ARGUMENTS[0])),
    "arguments": calls(entry(0, None, None, ARGUMENTS[1])),
    "reason": chunk({}, "tool_calls", usage=USAGE),
    "done": b"data: [DONE]\n\n",
}
MARKS = {
    "first": b"Hello ",
    "text": b"world.",
    "call": b'{\\"city\\":',
    "arguments": b'\\"Rome\\"}',
    "reason": b'\\"Rome\\"}',
    "done": b"event: response.completed",
}
"""What the client receives of a step, and of those before it."""


@dataclass(frozen=True)
class Position:
    name: str
    last: str
    """The last step that the upstream makes; empty: none."""

    how: Literal["at-once", "told", "stored", "behind", "locked", "ended", "read", "left"]
    """When the gateway is killed:

    at-once   when the upstream has made the step
    told      when the client has its mark, most likely before the store has
    stored    when the store has its mark
    behind    when the store has the mark of the first step, and the client this one
    locked    while the database cannot be written
    ended     when the store has the end; the client reads no more than the first step
    read      when the client has all of it
    left      when the client has its mark, and has closed the connection
    """

    @property
    def is_cut(self) -> bool:
        return self.how not in ("ended", "read") and (self.last, self.how) != ("done", "told")


POSITIONS = (
    Position("asked", "", "at-once"),
    Position("head", "head", "at-once"),
    Position("created", "first", "told"),
    Position("created-stored", "first", "stored"),
    Position("text", "text", "told"),
    Position("text-behind", "text", "behind"),
    Position("text-stored", "text", "stored"),
    Position("call", "call", "told"),
    Position("call-stored", "call", "stored"),
    Position("call-behind", "arguments", "behind"),
    Position("last-delta", "arguments", "stored"),
    Position("reason", "reason", "stored"),
    Position("before-the-record", "done", "locked"),
    Position("after-the-record", "done", "ended"),
    Position("terminal-event", "done", "told"),
    Position("all-read", "done", "read"),
    Position("left", "text", "left"),
)


def played(steps: Mapping[str, bytes] = STEPS) -> tuple[dict[str, Hold], list[Step]]:
    """A script with a hold in front of each step, by its name."""
    holds = {name: Hold() for name in steps}
    script: list[Step] = []
    for name, data in steps.items():
        script += [holds[name], STREAM + piece(data) if name == "head" else piece(data)]
    return holds, [*script, LAST]


def echoed(id: str) -> dict[str, bytes]:
    """The same steps in the client's own dialect."""
    numbers = count()

    def told(type: str, **fields: object) -> bytes:
        event = {"type": f"response.{type}", "sequence_number": next(numbers), **fields}
        return typed(event)

    def snapshot(status: str, *output: object) -> Object:
        return {"id": id, "object": "response", "created_at": 1, "status": status, "model": "m",
                "output": list(output)}  # fmt: skip

    text, arguments = "".join(TEXT), "".join(ARGUMENTS)
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {"id": f"msg_{id}", "type": "message", "role": "assistant"}
    call = {"id": f"fc_{id}", "type": "function_call", "call_id": CALL, "name": "weather"}
    said = {**message, "status": "completed", "content": [part]}
    called = {**call, "status": "completed", "arguments": arguments}
    inside = {"item_id": message["id"], "output_index": 0, "content_index": 0}
    within = {"item_id": call["id"], "output_index": 1}
    delta, asking = "output_text.delta", "function_call_arguments"
    created = told("created", response=snapshot("in_progress"))
    added = told(
        "output_item.added",
        output_index=0,
        item={**message, "status": "in_progress", "content": []},
    )
    added += told("content_part.added", **inside, part={**part, "text": ""})
    first = told(delta, **inside, delta=TEXT[0], logprobs=[])
    more = b"".join(told(delta, **inside, delta=one, logprobs=[]) for one in TEXT[1:])
    ends = told("output_text.done", **inside, text=text, logprobs=[])
    ends += told("content_part.done", **inside, part=part)
    ends += told("output_item.done", output_index=0, item=said)
    calling = told(
        "output_item.added", output_index=1, item={**call, "status": "in_progress", "arguments": ""}
    )
    calling += told(f"{asking}.delta", **within, delta=ARGUMENTS[0])
    rest = told(f"{asking}.delta", **within, delta=ARGUMENTS[1])
    reason = told(f"{asking}.done", **within, arguments=arguments, name="weather")
    reason += told("output_item.done", output_index=1, item=called)
    done = told("completed", response=snapshot("completed", said, called))
    return {
        "head": created,
        "first": added + first,
        "text": more,
        "call": ends + calling,
        "arguments": rest,
        "reason": reason,
        "done": done,
    }


def reply(text: str) -> list[Step]:
    """A script that says this, and ends."""
    said = (chunk({"content": text}), chunk({}, "stop"), b"data: [DONE]\n\n")
    return [STREAM, *map(piece, said), LAST]
