"""Shell calls, executed by the client or in a container of the provider, and their output.

The environment of the item decides who executes them, else the declared tools, else whether the
output follows in the same response. In the last case the call waits for the next item.
"""

import msgspec
from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.declared_tools import is_container
from weft.dialects.openai_responses.decoding.item import (
    CommandOutput,
    DecodedItem,
    PendingShellCall,
)
from weft.dialects.openai_responses.decoding.state import (
    DecoderState,
    EventHandler,
    ItemHandlers,
    ignored_events,
)
from weft.dialects.openai_responses.extra import unmapped_extra
from weft.dialects.openai_responses.wire import ResponsesEvent, ResponsesItem
from weft.partial_json import whole_characters
from weft.parts import ToolCall

_OUTPUT = "shell_call_output"


def _call(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw, name: str
) -> ToolCall:
    action = wire.present_or(wire_item.action, Raw(b"{}"))
    return state.new_call(
        item,
        wire_item.call_id,
        name,
        wire_item,
        params=bytes(wire.raw_object({"action": action})).decode(),
        extra=unmapped_extra(raw, ("id", "type", "call_id", "action")),
    )


def _local_done(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    state.complete_call(item, _call(state, item, wire_item, raw, "local_shell"), wire_item)


def _shell_done(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    pending = PendingShellCall(item, _call(state, item, wire_item, raw, "shell"), wire_item)
    # What runs at the provider has a `container_reference` here.
    # capture: shells
    if wire.present_fields(environment=wire_item.environment):
        _complete_call(state, pending, is_container(state.salvage, wire_item.environment))
    elif (tools := state.declared_tools()) and tools.shell_in_container is not None:
        _complete_call(state, pending, tools.shell_in_container)
    else:
        state.pending_shell = pending


def _complete_call(state: DecoderState, pending: PendingShellCall, hosted: bool) -> None:
    item, call, wire_item = pending
    if hosted:
        # Whether it failed is in its output.
        call = msgspec.structs.replace(call, provider_executed=True, invalid=None)
    state.complete_call(item, call, wire_item)


def resolve_pending(state: DecoderState, wire_item: ResponsesItem | None) -> None:
    """Emits a pending shell call. It is hosted if its output is the next item."""
    pending, state.pending_shell = state.pending_shell, None
    if pending is not None:
        # Neither the item nor the tools say who executes it. Only the provider can send its output
        # in the same response.
        # capture: command-that-its-output-explains
        output_follows = (
            wire_item is not None
            and wire_item.type == _OUTPUT
            and wire_item.call_id == pending.call.id
        )
        _complete_call(state, pending, output_follows)


# Output


def _output_added(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    # An output has no name, so the field holds the id of its call.
    item.name = wire_item.call_id or item.name


def _output_delta(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    """Emits the output so far as a preliminary result, whenever it grew by an eighth."""
    if not isinstance(event.delta, wire.CommandOutputDelta):
        return
    command = item.command_outputs.setdefault(
        event.command_index or 0, CommandOutput(Buffer(), Buffer())
    )
    command.stdout.add(event.delta.stdout or "")
    command.stderr.add(event.delta.stderr or "")
    item.output_length = sum(
        command.stdout.length + command.stderr.length for command in item.command_outputs.values()
    )
    # Each result repeats the whole output. With growth by an eighth the sum of all results stays
    # linear in the output, instead of quadratic.
    if item.name and item.output_length * 8 > item.emitted_length * 9:
        item.emitted_length = item.output_length
        output = {"output": _output_so_far(item)}
        state.emit_result_item(item, item.name, output, preliminary=True)


def _output_so_far(item: DecodedItem) -> Raw:
    outputs = [
        {
            "stdout": whole_characters(item.command_outputs[index].stdout.text),
            "stderr": whole_characters(item.command_outputs[index].stderr.text),
        }
        for index in sorted(item.command_outputs)
    ]
    return wire.to_raw(outputs)


def _output_done(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    output = wire_item.output if isinstance(wire_item.output, Raw) else _output_so_far(item)
    id, mapped = wire_item.call_id or item.name or item.id, ("call_id", "output")
    state.emit_result_item(item, id, {"output": output}, raw, mapped, is_error=wire_item.failed)


ITEMS = {
    "local_shell_call": ItemHandlers(_local_done),
    "shell_call": ItemHandlers(_shell_done),
    _OUTPUT: ItemHandlers(_output_done, _output_added),
}

EVENTS: dict[str, EventHandler] = {
    # These events have no item id, and the commands come whole with the item.
    **ignored_events("shell_call_command", ("added", "delta", "done")),
    "response.shell_call_output_content.delta": _output_delta,
    **ignored_events("shell_call_output_content", ("done",)),
}
