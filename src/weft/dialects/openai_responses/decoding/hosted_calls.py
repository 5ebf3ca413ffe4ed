"""Tools whose params and results come together when their item is done: images, searches,
computers, tool searches, programs.

A hosted call has the id of its item, a call for the client its call id. What is announced when
the item is added is a sign of life; the params are told once, when they are true.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import Item, Step
from weft.dialects.openai_responses.decoding.state import (
    CUT,
    Handler,
    Reading,
    Row,
    Taker,
    silent,
)
from weft.partial_json import whole_characters
from weft.parts import Json, Part, ToolResult

_replace = msgspec.structs.replace

_NOTHING = "{}"


def _kept(raw: Raw, *held: str) -> Json:
    return wire.packed(wire.leftover(raw, ("id", "type", *held)))


def _object(values: dict[str, Raw]) -> str:
    return bytes(wire.written(values)).decode()


# Images


def _image_called(reading: Reading, item: Item, read: wire.Item, out: list[Part]) -> None:
    """An image is called for when it is announced: what it shows comes before its end."""
    if item.step is Step.UNTOLD:
        call = reading.call(item, item.id, "image_generation", read, hosted=True)
        reading.make(item, _replace(call, params=_NOTHING), out)


def _image_added(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    _image_called(reading, item, read, out)


def partial_image(reading: Reading, item: Item, told: dict[str, Raw], out: list[Part]) -> None:
    """An image that is not finished, and what it was made with: it replaces the one before."""
    item.type = item.type or "image_generation_call"
    _image_called(reading, item, wire.Item(), out)
    image = told.get("partial_image_b64", wire.NULL)
    shown = {key: told[key] for key in _SHOWN if key in told}
    out.append(
        ToolResult(
            item.call_id,
            wire.written({"result": image}),
            preliminary=True,
            extra=wire.packed(shown),
        )
    )


_SHOWN = ("partial_image_index", "size", "quality", "background", "output_format")


def _image_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    _image_called(reading, item, read, out)
    image = read.result if isinstance(read.result, Raw) else wire.NULL
    values = {"result": image, **wire.known(error=read.error)}
    failed = bytes(image) in (b"null", b'""') or "error" in values or read.status in CUT
    held = ("result", "error") if "error" in values else ("result",)
    out.append(reading.result(item, values, _kept(raw, *held), is_error=failed))


# Searches


def _announced(name: str) -> Taker:
    """A hosted call that is announced with its name alone."""

    def added(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
        if item.step is Step.UNTOLD:
            call = reading.call(item, item.id, name, read, hosted=True)
            reading.announce(item, call, read, out)

    return added


def _searched(
    reading: Reading,
    item: Item,
    name: str,
    params: dict[str, Raw],
    read: wire.Item,
    out: list[Part],
) -> None:
    """A search is called with what it asked for; some hosts write that as JSON text."""
    told = _object(params) if params else reading.text(read.arguments, "arguments")
    call = reading.call(item, item.id, name, read, hosted=True)
    reading.tell(item, _replace(call, params=told or _NOTHING), read, out)


def _web_search_done(
    reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]
) -> None:
    action = wire.known(action=read.action)
    asked = wire.fields(read.action)
    found = asked.pop("sources", None) is not None
    params = {"action": wire.written(asked)} if found else action
    _searched(reading, item, "web_search", params, read, out)
    extra = _kept(raw, "action") if action else _kept(raw)
    out.append(reading.result(item, action, extra, is_error=read.status in CUT))


def _file_search_done(
    reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]
) -> None:
    asked = wire.known(queries=read.queries)
    _searched(reading, item, "file_search", asked, read, out)
    found = read.results if isinstance(read.results, Raw) else wire.NULL
    extra = _kept(raw, "queries", "results")
    values = {**asked, "results": found}
    out.append(reading.result(item, values, extra, is_error=read.status in CUT))


# Computers


def _computer_added(
    reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]
) -> None:
    if item.step is Step.UNTOLD and read.call_id and read.call_id not in reading.calls:
        reading.announce(item, reading.call(item, read.call_id, "computer", read), read, out)


def _computer_done(
    reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]
) -> None:
    """A lone action is a list of one. Without a call id nobody could answer: it is hosted."""
    actions, lone = wire.known(actions=read.actions), wire.known(action=read.action)
    if not actions:
        values = b",".join(map(bytes, lone.values()))
        actions = {"actions": Raw(b"[%b]" % values)}
    checks = wire.known(pending_safety_checks=read.pending_safety_checks)
    params = {**actions, **checks, **wire.known(status=read.status)}
    held = [*params, "call_id"] if read.call_id else [*params]
    call = reading.call(item, read.call_id, "computer", read, hosted=not read.call_id)
    call = _replace(call, params=_object(params), extra=_kept(raw, *held))
    reading.tell(item, call, read, out)


# Tool searches


def _tool_search_added(
    reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]
) -> None:
    """Only a hosted search is announced: the call id of any other one may change until done."""
    if item.step is Step.UNTOLD and read.execution == "server":
        call = reading.call(item, item.id, "tool_search", read, hosted=True)
        reading.announce(item, call, read, out)


def _tool_search_done(
    reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]
) -> None:
    client = read.execution == "client" or (read.execution is None and read.call_id)
    id, held = (read.call_id, ("arguments", "call_id")) if client else (item.id, ("arguments",))
    call = reading.call(item, id, "tool_search", read, hosted=not client)
    asked = wire.known(arguments=read.arguments).get("arguments", Raw(b"{}"))
    params = bytes(wire.one_line(asked)).decode()
    if params.startswith('"'):
        params = reading.text(asked, "arguments")
    reading.tell(item, _replace(call, params=params, extra=_kept(raw, *held)), read, out)
    if not client:
        reading.searches.append(item)


def _tool_search_output(
    reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]
) -> None:
    """The output of the search it names, else of the first hosted one without."""
    if read.call_id:
        id, held = read.call_id, ("call_id", "tools")
    else:
        id = reading.searches.popleft().id if reading.searches else item.id
        held = ("tools", "")
    tools = read.tools if isinstance(read.tools, Raw) else Raw(b"[]")
    extra = _itself(item, raw, held)
    out.append(reading.output(id, {"tools": tools}, extra, is_error=read.status in CUT))


def _itself(item: Item, raw: Raw, held: Iterable[str]) -> Json:
    """What is kept of an item that is a result: all but what the result holds."""
    told = wire.leftover(raw, held)
    return wire.packed({**told, **wire.known(type=item.type, id=item.id)})


# Programs


def _program_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    code = whole_characters(read.code or "")
    params = wire.known(code=code, fingerprint=read.fingerprint)
    call = reading.call(item, read.call_id, "program", read, hosted=True)
    extra = _kept(raw, "call_id", "code", "fingerprint")
    reading.hand_over(item, _replace(call, params=_object(params), extra=extra), read, out)


def _program_output(
    reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]
) -> None:
    """Mostly of a program that an earlier response began."""
    values = wire.known(result=read.result, status=read.status)
    extra = _itself(item, raw, ("call_id", *values))
    id = read.call_id or item.id
    out.append(reading.output(id, values, extra, is_error=read.status in CUT))


ITEMS = {
    "image_generation_call": Row(_image_done, _image_added),
    "web_search_call": Row(_web_search_done, _announced("web_search")),
    "file_search_call": Row(_file_search_done, _announced("file_search")),
    "computer_call": Row(_computer_done, _computer_added),
    "tool_search_call": Row(_tool_search_done, _tool_search_added),
    "tool_search_output": Row(_tool_search_output),
    "program": Row(_program_done),
    "program_output": Row(_program_output),
}

EVENTS: dict[str, Handler] = {
    **silent("image_generation_call", ("in_progress", "generating", "completed")),
    **silent("web_search_call", ("in_progress", "searching", "completed")),
    **silent("file_search_call", ("in_progress", "searching", "completed")),
}
