"""Calls that a text is streamed into: the code of an interpreter, the diff of a patch.

The text is escaped into one JSON text, the params: an opening when the call is announced, the
text piece by piece, and a closing. The whole value, which comes later, completes what was
streamed of it. A call that cannot be announced yet lets its text wait.
"""

import msgspec
from msgspec import Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import Item, Stage, Step
from weft.dialects.openai_responses.decoding.state import CUT, Handler, Reading, Row, silent
from weft.partial_json import escape, whole_characters
from weft.parts import Part, ToolCall, ToolParamsDelta

_replace = msgspec.structs.replace

_CLOSINGS = {"code_interpreter_call": '"}', "apply_patch_call": '"}}'}
_CODE, _PATCH = "code_interpreter", "apply_patch"
_WITH_DIFF = frozenset({"create_file", "update_file"})
_OPERATION = frozenset({"type", "path", "diff"})


def _begin(
    reading: Reading, item: Item, call: ToolCall, head: str, read: wire.Item, out: list[Part]
) -> None:
    """Announces a call with its params up to the text, and the text that came too early."""
    reading.announce(item, call, read, out)
    item.head = head
    out.append(ToolParamsDelta(item.call_id, head))
    if item.inner.length:
        out.append(ToolParamsDelta(item.call_id, escape(item.inner.text)))


def _grow(item: Item, text: str, out: list[Part]) -> None:
    if text and item.step in (Step.UNTOLD, Step.OPEN):
        item.inner.add(text)
        if item.head:
            out.append(ToolParamsDelta(item.call_id, escape(text)))


def _delta(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    if item.type is None or item.type in _CLOSINGS:
        _grow(item, event.delta if isinstance(event.delta, str) else "", out)


def _tail(reading: Reading, item: Item, whole: str | None) -> str:
    """What the whole value has more than what was streamed, which wins."""
    streamed, whole = whole_characters(item.inner.text), whole_characters(whole or "")
    if whole in ("", streamed):
        return ""
    if not whole.startswith(streamed):
        detail = f"{item.id!r}: the whole is not what was streamed"
        reading.findings.note("whole-contradicts", detail)
        return ""
    if item.stage is not Stage.UNSEEN:  # else it came at once
        detail = f"{item.id!r}: the whole holds more than was streamed"
        reading.findings.note("whole-extends", detail)
    return whole[len(streamed) :]


def _finish(reading: Reading, item: Item, whole: str | None, out: list[Part]) -> None:
    """Ends the params of an announced call; from now on it knows them."""
    if item.step is not Step.OPEN or item.call is None:
        return
    _grow(item, _tail(reading, item, whole), out)
    closing = _CLOSINGS[item.type or ""]
    out.append(ToolParamsDelta(item.call_id, closing))
    reading.seal(item, out)
    item.call = _replace(item.call, params=_params(item, item.head))


def _params(item: Item, head: str) -> str:
    return f"{head}{escape(item.inner.text)}{_CLOSINGS[item.type or '']}"


# Code


def _code_head(read: wire.Item) -> str:
    container = f'"container_id":"{escape(read.container_id)}",' if read.container_id else ""
    return f'{{{container}"code":"'


def _code_added(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    if item.step is Step.UNTOLD and read.container_id:
        call = reading.call(item, item.id, _CODE, read, hosted=True)
        _begin(reading, item, call, _code_head(read), read, out)
        _grow(item, read.code or "", out)


def _code_told(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    if item.type in (None, "code_interpreter_call"):
        item.whole = whole_characters(event.code) if isinstance(event.code, str) else None
        _code_made(reading, item, item.whole, out)


def _code_made(reading: Reading, item: Item, code: str | None, out: list[Part]) -> None:
    _finish(reading, item, code, out)
    if item.step is Step.SEALED and item.call is not None:
        reading.make(item, item.call, out)


def _code_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    held = ["id", "type", "outputs"]
    if item.step is Step.UNTOLD:
        call = reading.call(item, item.id, _CODE, read, hosted=True)
        params = _given(reading, item, read)
        if params:
            call = _replace(call, params=params)
        else:
            item.inner.add(_tail(reading, item, read.code or item.whole))
            call = _replace(call, params=_params(item, _code_head(read)))
            held += ["code", "container_id"]
        reading.hand_over(item, call, read, out)
    else:
        _code_made(reading, item, read.code or item.whole, out)
        held += ["code", "container_id"]
    values = {"outputs": read.outputs if isinstance(read.outputs, Raw) else wire.NULL}
    extra = wire.packed(wire.leftover(raw, held))
    out.append(reading.result(item, values, extra, is_error=read.status in CUT))


def _given(reading: Reading, item: Item, read: wire.Item) -> str:
    """Params that some hosts write as JSON text, as if this were a function."""
    if read.code is not None or item.inner.length or item.whole:
        return ""
    return reading.text(read.arguments, "arguments")


# Patches


def _patch_head(call: str, operation: wire.Operation) -> str:
    kind, path = escape(operation.type or ""), escape(operation.path or "")
    return f'{{"call_id":"{escape(call)}","operation":{{"type":"{kind}","path":"{path}"'


def _patch_added(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    operation = reading.salvage.item(read.operation, wire.Operation)
    if item.step is not Step.UNTOLD or not read.call_id or read.call_id in reading.calls:
        return
    call = reading.call(item, read.call_id, _PATCH, read)
    head = _patch_head(read.call_id, operation)
    if operation.type in _WITH_DIFF and operation.path:
        _begin(reading, item, call, f'{head},"diff":"', read, out)
        _grow(item, operation.diff or "", out)
    elif operation.type == "delete_file" and operation.path:
        reading.announce(item, call, read, out)
        item.call = _replace(call, id=item.call_id, params=f"{head}}}}}")
        out.append(ToolParamsDelta(item.call_id, item.call.params))
        reading.seal(item, out)


def _diff_told(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    if item.type in (None, "apply_patch_call"):
        item.whole = None if event.diff is None else whole_characters(event.diff)
        _finish(reading, item, event.diff, out)


def _patch_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    operation = reading.salvage.item(read.operation, wire.Operation)
    call = reading.call(item, read.call_id, _PATCH, read)
    held = ["id", "type", "call_id"]
    if not wire.fields(read.operation).keys() - _OPERATION:
        held.append("operation")
    call = _replace(call, extra=wire.packed(wire.leftover(raw, held)))
    if item.step is Step.UNTOLD:
        item.inner.add(_tail(reading, item, operation.diff or item.whole))
        head = _patch_head(call.id, operation)
        bare = not item.inner.length and operation.diff is None
        params = f"{head}}}}}" if bare else _params(item, f'{head},"diff":"')
        reading.hand_over(item, _replace(call, params=params), read, out)
        return
    _finish(reading, item, operation.diff or item.whole, out)
    reading.make(item, _replace(call, params=item.call.params if item.call else ""), out)


ITEMS = {
    "code_interpreter_call": Row(_code_done, _code_added),
    "apply_patch_call": Row(_patch_done, _patch_added),
}

EVENTS: dict[str, Handler] = {
    "response.code_interpreter_call_code.delta": _delta,
    "response.code_interpreter_call_code.done": _code_told,
    **silent("code_interpreter_call", ("in_progress", "interpreting", "completed")),
    "response.apply_patch_call_operation_diff.delta": _delta,
    "response.apply_patch_call_operation_diff.done": _diff_told,
}
