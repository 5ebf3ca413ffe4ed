"""Function and custom calls: what the client executes, unless its tools say otherwise.

- A call is announced once its name and its id are known, and handed over when its item is done;
  never because its arguments happen to parse. Where the item is never done, a call whose
  arguments were declared done is handed over at the end.
- Another item with the id and the name of a call opens nothing: it is that call again.
- A custom call that nobody declared, where the provider has tools of its own, is the provider's.
"""

from typing import NamedTuple

import msgspec
from msgspec import Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import Item, Step
from weft.dialects.openai_responses.decoding.state import (
    Handler,
    Reading,
    Row,
    params_delta,
    params_done,
)
from weft.partial_json import whole_characters
from weft.parts import ParamsFormat, Part, ToolCall


class _Kind(NamedTuple):
    kind: str
    format: ParamsFormat
    key: str


_KINDS = {
    "function_call": _Kind("function", "json", "arguments"),
    "custom_tool_call": _Kind("custom", "text", "input"),
}
_KNOWN = ("id", "type", "call_id", "name", "namespace")


def _call(reading: Reading, item: Item, read: wire.Item) -> ToolCall:
    row = _KINDS[item.type or ""]
    hosted = row.format == "text" and _executed(reading, item.name, read)
    call = reading.call(item, read.call_id, item.name, read, hosted=hosted, format=row.format)
    return msgspec.structs.replace(call, kind=row.kind)


def _executed(reading: Reading, name: str, read: wire.Item) -> bool:
    declared = reading.declared()
    if declared is None or read.namespace:
        return False
    return declared.hosted and name not in declared.names


def added(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    if item.step is not Step.UNTOLD or not (item.name and read.call_id):
        return
    first = reading.calls.get(read.call_id)
    if first is not None and first.call is not None and first.call.name == item.name:
        item.key = read.call_id  # that call again, or another one: its end tells
    else:
        reading.announce(item, _call(reading, item, read), read, out)


def done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    row = _KINDS[item.type or ""]
    if row.format == "text":
        params = whole_characters(read.input or "")
    else:
        params = reading.text(read.arguments, "arguments")
    call = msgspec.structs.replace(
        _call(reading, item, read),
        params=params or item.whole or "",
        extra=wire.packed(wire.leftover(raw, (*_KNOWN, row.key))),
    )
    reading.hand_over(item, call, read, out)


ITEMS = dict.fromkeys(_KINDS, Row(done, added))

EVENTS: dict[str, Handler] = {
    "response.function_call_arguments.delta": params_delta,
    "response.function_call_arguments.done": params_done,
    "response.custom_tool_call_input.delta": params_delta,
    "response.custom_tool_call_input.done": params_done,
}
