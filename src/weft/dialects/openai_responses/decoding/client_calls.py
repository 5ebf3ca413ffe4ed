"""Function calls and custom tool calls, which the client executes.

- A call is announced when its name and call id are known, and emitted when its item is done; never
  because its arguments happen to parse. If the item is never done, a call whose arguments were
  declared done is emitted at the end.
- A second item with the call id and the name of an earlier call is that call again.
- A custom call with an undeclared name was executed by the provider, if it has hosted tools.
"""

from typing import NamedTuple

import msgspec
from msgspec import Raw

from weft.dialects.openai_responses.decoding.item import DecodedItem
from weft.dialects.openai_responses.decoding.state import (
    DecoderState,
    EventHandler,
    ItemHandlers,
    params_delta,
    params_done,
)
from weft.dialects.openai_responses.extra import unmapped_extra
from weft.dialects.openai_responses.wire import ResponsesItem
from weft.partial_json import whole_characters
from weft.parts import ParamsFormat, ToolCall


class _CallFormat(NamedTuple):
    kind: str
    format: ParamsFormat
    params_field: str


_FORMATS = {
    "function_call": _CallFormat("function", "json", "arguments"),
    "custom_tool_call": _CallFormat("custom", "text", "input"),
}
_MAPPED_FIELDS = ("id", "type", "call_id", "name", "namespace")


def _call(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem) -> ToolCall:
    call_format = _FORMATS[item.type or ""]
    hosted = False
    tools = state.declared_tools() if call_format.format == "text" else None
    if tools is not None and not wire_item.namespace:
        # Some hosts show their own tools as custom calls with undeclared names. No output follows,
        # and the answer goes on in the same response, so there is nothing for the client to do. A
        # namespace stands for tools that were loaded later, whose names no list has.
        # capture: own-custom-tools
        hosted = tools.any_hosted and item.name not in tools.names
    call = state.new_call(
        item, wire_item.call_id, item.name, wire_item, hosted=hosted, format=call_format.format
    )
    return msgspec.structs.replace(call, kind=call_format.kind)


def added(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    # A call without a name is never announced: a client would look for a tool that is called "".
    if item.announced or not (item.name and wire_item.call_id):
        return
    first = state.items_by_call_id.get(wire_item.call_id)
    # The same call again, or another one under its id: only the arguments tell, so nothing is
    # announced.
    # capture: one-call-under-two-items, one-id-for-two-calls
    if first is not None and first.call is not None and first.call.name == item.name:
        item.wire_call_id = wire_item.call_id  # its end decides whether it is the same call
    else:
        state.announce(item, _call(state, item, wire_item), wire_item)


def done(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    call_format = _FORMATS[item.type or ""]
    if call_format.format == "text":
        params = whole_characters(wire_item.input or "")
    else:
        params = state.text_or_json(wire_item.arguments, "arguments")
    call = msgspec.structs.replace(
        _call(state, item, wire_item),
        # An item may be done without its arguments, if they came before.
        params=params or item.full_value or "",
        extra=unmapped_extra(raw, (*_MAPPED_FIELDS, call_format.params_field)),
    )
    state.complete_call(item, call, wire_item)


ITEMS = dict.fromkeys(_FORMATS, ItemHandlers(done, added))

EVENTS: dict[str, EventHandler] = {
    "response.function_call_arguments.delta": params_delta,
    "response.function_call_arguments.done": params_done,
    "response.custom_tool_call_input.delta": params_delta,
    "response.custom_tool_call_input.done": params_done,
}
