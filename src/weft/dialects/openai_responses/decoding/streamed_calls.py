"""Calls with a streamed text inside their params: the code of an interpreter, the diff of a patch.

The params are JSON text: a prefix when the call is announced, then the streamed text, escaped, then
a suffix. The whole text, which comes later, completes what was streamed. The text is held while the
call cannot be announced.
"""

import msgspec
from msgspec import Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import CallStage, DecodedItem, ItemStage
from weft.dialects.openai_responses.decoding.state import (
    DecoderState,
    EventHandler,
    ItemHandlers,
    ignored_events,
)
from weft.dialects.openai_responses.extra import unmapped_extra
from weft.dialects.openai_responses.wire import ResponsesEvent, ResponsesItem
from weft.partial_json import escape, whole_characters
from weft.parts import ToolCall, ToolParamsDelta

_replace = msgspec.structs.replace

# Close the string, and the object or objects around it.
_PARAMS_SUFFIXES = {"code_interpreter_call": '"}', "apply_patch_call": '"}}'}
_CODE_TOOL, _PATCH_TOOL = "code_interpreter", "apply_patch"
_OPERATIONS_WITH_DIFF = frozenset({"create_file", "update_file"})
_OPERATION_FIELDS = frozenset({"type", "path", "diff"})


def _announce(
    state: DecoderState, item: DecodedItem, call: ToolCall, prefix: str, wire_item: ResponsesItem
) -> None:
    """Announces a call and emits its params up to the streamed text, and the text held so far."""
    state.announce(item, call, wire_item)
    item.params_prefix = prefix
    state.out.append(ToolParamsDelta(item.call_id, prefix))
    # Deltas that came before `added`.
    if item.streamed_text.length:
        state.out.append(ToolParamsDelta(item.call_id, escape(item.streamed_text.text)))


def _add_text(state: DecoderState, item: DecodedItem, text: str) -> None:
    if text and item.call_stage in (CallStage.UNANNOUNCED, CallStage.OPEN):
        item.streamed_text.add(text)
        # `escape` writes half a surrogate pair as an escape of its own. Two of them in a row are
        # the pair again (RFC 8259 §7), so nothing is held back here.
        if item.params_prefix:
            state.out.append(ToolParamsDelta(item.call_id, escape(text)))


def _delta(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    # An item of another type has params that a stray delta would break.
    if item.type is None or item.type in _PARAMS_SUFFIXES:
        _add_text(state, item, event.delta if isinstance(event.delta, str) else "")


def _missing_tail(state: DecoderState, item: DecodedItem, full_text: str | None) -> str:
    """Returns what the whole text adds to the streamed text. If they differ, the streamed text
    wins.
    """
    # Not left to the guard: it would compare the params, in which the text is escaped and has a
    # suffix.
    streamed, full_text = (
        whole_characters(item.streamed_text.text),
        whole_characters(full_text or ""),
    )
    if full_text in ("", streamed):
        return ""
    # capture: whole-that-differs
    if not full_text.startswith(streamed):
        detail = f"{item.id!r}: the full text differs from what was streamed"
        state.findings.note("whole-contradicts", detail)
        return ""
    # capture: diff-never-streamed
    if item.stage is not ItemStage.UNSEEN:  # else it arrives at once
        detail = f"{item.id!r}: the full text has more than was streamed"
        state.findings.note("whole-extends", detail)
    return full_text[len(streamed) :]


def _end_params(state: DecoderState, item: DecodedItem, full_text: str | None) -> None:
    """Ends the params of an announced call and stores them in it."""
    if item.call_stage is not CallStage.OPEN or item.call is None:
        return
    _add_text(state, item, _missing_tail(state, item, full_text))
    suffix = _PARAMS_SUFFIXES[item.type or ""]
    state.out.append(ToolParamsDelta(item.call_id, suffix))
    state.end_params(item)
    item.call = _replace(item.call, params=_params(item, item.params_prefix))


def _params(item: DecodedItem, prefix: str) -> str:
    return f"{prefix}{escape(item.streamed_text.text)}{_PARAMS_SUFFIXES[item.type or '']}"


# Code


def _code_prefix(wire_item: ResponsesItem) -> str:
    container = (
        f'"container_id":"{escape(wire_item.container_id)}",' if wire_item.container_id else ""
    )
    return f'{{{container}"code":"'


def _code_added(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    # The prefix has the container. Without it the call is held until the item is done, since params
    # that were emitted cannot be taken back.
    if not item.announced and wire_item.container_id:
        call = state.new_call(item, item.id, _CODE_TOOL, wire_item, hosted=True)
        _announce(state, item, call, _code_prefix(wire_item), wire_item)
        _add_text(state, item, wire_item.code or "")


def _code_text_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    # The code is complete, so the call is, before its outputs come with the item.
    if item.type in (None, "code_interpreter_call"):
        item.full_value = whole_characters(event.code) if isinstance(event.code, str) else None
        _emit_code_call(state, item, item.full_value)


def _emit_code_call(state: DecoderState, item: DecodedItem, code: str | None) -> None:
    _end_params(state, item, code)
    if item.call_stage is CallStage.PARAMS_ENDED and item.call is not None:
        state.emit_call(item, item.call)


def _code_done(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    mapped = ["id", "type", "outputs"]
    if not item.announced:
        streamed = wire_item.code is not None or item.streamed_text.length or item.full_value
        # Some hosts write the params as JSON text into `arguments`, and announce the item as
        # completed.
        # capture: arguments-in-place-of-code
        params = "" if streamed else state.text_or_json(wire_item.arguments, "arguments")
        if not params:
            item.streamed_text.add(_missing_tail(state, item, wire_item.code or item.full_value))
            params = _params(item, _code_prefix(wire_item))
            mapped += ["code", "container_id"]
        call = state.new_call(item, item.id, _CODE_TOOL, wire_item, hosted=True, params=params)
        state.complete_call(item, call, wire_item)
    else:
        _emit_code_call(state, item, wire_item.code or item.full_value)
        mapped += ["code", "container_id"]
    # Null unless the request includes `code_interpreter_call.outputs`.
    values = {"outputs": wire.present_or(wire_item.outputs, wire.NULL)}
    extra = unmapped_extra(raw, mapped)
    state.emit_result(item, values, extra, is_error=wire_item.failed)


# Patches


def _patch_prefix(call: str, operation: wire.PatchOperation) -> str:
    kind, path = escape(operation.type or ""), escape(operation.path or "")
    return f'{{"call_id":"{escape(call)}","operation":{{"type":"{kind}","path":"{path}"'


def _patch_added(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    operation = state.salvage.item(wire_item.operation, wire.PatchOperation)
    # A taken id may mean the same patch again; its end decides.
    if item.announced or not wire_item.call_id or wire_item.call_id in state.items_by_call_id:
        return
    call = state.new_call(item, wire_item.call_id, _PATCH_TOOL, wire_item)
    prefix = _patch_prefix(wire_item.call_id, operation)
    if operation.type in _OPERATIONS_WITH_DIFF and operation.path:
        _announce(state, item, call, f'{prefix},"diff":"', wire_item)
        # A diff may be there from the first.
        _add_text(state, item, operation.diff or "")
    # A deletion has no diff to wait for. Its call is emitted when the item is done, with its
    # status.
    # capture: patches
    elif operation.type == "delete_file" and operation.path:
        state.announce(item, call, wire_item)
        item.call = _replace(call, id=item.call_id, params=f"{prefix}}}}}")
        state.out.append(ToolParamsDelta(item.call_id, item.call.params))
        state.end_params(item)


def _diff_text_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    if item.type in (None, "apply_patch_call"):
        item.full_value = None if event.diff is None else whole_characters(event.diff)
        _end_params(state, item, event.diff)


def _patch_done(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    operation = state.salvage.item(wire_item.operation, wire.PatchOperation)
    mapped = ["id", "type", "call_id"]
    # An operation with more fields is kept whole, beside the params.
    if not wire.object_fields(wire_item.operation).keys() - _OPERATION_FIELDS:
        mapped.append("operation")
    extra = unmapped_extra(raw, mapped)
    call = state.new_call(item, wire_item.call_id, _PATCH_TOOL, wire_item, extra=extra)
    if not item.announced:
        item.streamed_text.add(_missing_tail(state, item, operation.diff or item.full_value))
        prefix = _patch_prefix(call.id, operation)
        without_diff = not item.streamed_text.length and operation.diff is None
        params = f"{prefix}}}}}" if without_diff else _params(item, f'{prefix},"diff":"')
        state.complete_call(item, _replace(call, params=params), wire_item)
        return
    _end_params(state, item, operation.diff or item.full_value)
    state.emit_call(item, _replace(call, params=item.call.params if item.call else ""))


ITEMS = {
    "code_interpreter_call": ItemHandlers(_code_done, _code_added),
    "apply_patch_call": ItemHandlers(_patch_done, _patch_added),
}

EVENTS: dict[str, EventHandler] = {
    "response.code_interpreter_call_code.delta": _delta,
    "response.code_interpreter_call_code.done": _code_text_done,
    **ignored_events("code_interpreter_call", ("in_progress", "interpreting", "completed")),
    "response.apply_patch_call_operation_diff.delta": _delta,
    "response.apply_patch_call_operation_diff.done": _diff_text_done,
}
