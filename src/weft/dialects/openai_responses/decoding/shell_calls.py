"""Commands: for the client's shell, or for a container of the provider, and what they printed.

Who runs them is told by the item's environment, by the tools, or by an output in the same
response. Where none of these is known, the call waits for the next item.
"""

import msgspec
from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import Item, Pending
from weft.dialects.openai_responses.decoding.state import CUT, Handler, Reading, Row, silent
from weft.partial_json import whole_characters
from weft.parts import Part, ToolCall

_OUTPUT = "shell_call_output"


def _call(reading: Reading, item: Item, read: wire.Item, raw: Raw, name: str) -> ToolCall:
    action = wire.known(action=read.action).get("action", Raw(b"{}"))
    return msgspec.structs.replace(
        reading.call(item, read.call_id, name, read),
        params=bytes(wire.written({"action": action})).decode(),
        extra=wire.packed(wire.leftover(raw, ("id", "type", "call_id", "action"))),
    )


def _local_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    reading.hand_over(item, _call(reading, item, read, raw, "local_shell"), read, out)


def _shell_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    call = _call(reading, item, read, raw, "shell")
    hosted = _hosted(reading, read)
    if hosted is None:
        reading.pending = Pending(item, call, read)
    else:
        _made(reading, Pending(item, call, read), hosted, out)


def _hosted(reading: Reading, read: wire.Item) -> bool | None:
    """Whether the provider runs it; None: that is not known."""
    if wire.known(environment=read.environment):
        return wire.contained(reading.salvage, read.environment)
    declared = reading.declared()
    return None if declared is None else declared.contained


def _made(reading: Reading, pending: Pending, hosted: bool, out: list[Part]) -> None:
    item, call, read = pending
    if hosted:
        call = msgspec.structs.replace(call, provider_executed=True, invalid=None)
    reading.hand_over(item, call, read, out)


def settle(reading: Reading, read: wire.Item | None, out: list[Part]) -> None:
    """What comes next tells who runs the command that waits: its output, or anything else."""
    pending, reading.pending = reading.pending, None
    if pending is not None:
        follows = read is not None and read.type == _OUTPUT and read.call_id == pending.call.id
        _made(reading, pending, follows, out)


# What was printed


def _output_added(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    item.name = read.call_id or item.name


def _printed(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    """Shows all that was printed so far, whenever that is notably more than was shown last."""
    if not isinstance(event.delta, wire.Streams):
        return
    printed = item.outputs.setdefault(event.command_index or 0, wire.Printed(Buffer(), Buffer()))
    printed.stdout.add(event.delta.stdout or "")
    printed.stderr.add(event.delta.stderr or "")
    item.printed = sum(one.stdout.length + one.stderr.length for one in item.outputs.values())
    if item.name and item.printed * 8 > item.shown * 9:
        item.shown = item.printed
        values = {"output": _so_far(item)}
        extra = wire.packed(wire.known(type=_OUTPUT, id=item.id))
        out.append(reading.output(item.name, values, extra, preliminary=True))


def _so_far(item: Item) -> Raw:
    known = [item.outputs[index] for index in sorted(item.outputs)]
    return Raw(
        msgspec.json.encode(
            [
                {
                    "stdout": whole_characters(one.stdout.text),
                    "stderr": whole_characters(one.stderr.text),
                }
                for one in known
            ]
        )
    )


def _output_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    printed = read.output if isinstance(read.output, Raw) else _so_far(item)
    told = wire.leftover(raw, ("call_id", "output"))
    extra = wire.packed({**told, **wire.known(type=item.type, id=item.id)})
    id = read.call_id or item.name or item.id
    out.append(reading.output(id, {"output": printed}, extra, is_error=read.status in CUT))


ITEMS = {
    "local_shell_call": Row(_local_done),
    "shell_call": Row(_shell_done),
    _OUTPUT: Row(_output_done, _output_added),
}

EVENTS: dict[str, Handler] = {
    **silent("shell_call_command", ("added", "delta", "done")),
    "response.shell_call_output_content.delta": _printed,
    **silent("shell_call_output_content", ("done",)),
}
