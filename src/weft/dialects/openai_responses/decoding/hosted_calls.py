"""Calls whose params and result arrive together when their item is done: images, searches,
computer use, tool searches and programs.

A hosted call has the id of its item; a call for the client has its call id. The params are emitted
once, when the item is done, because the ones at `added` are provisional.
"""

from msgspec import Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import DecodedItem
from weft.dialects.openai_responses.decoding.state import (
    DecoderState,
    EventHandler,
    ItemHandler,
    ItemHandlers,
    ignored_events,
)
from weft.dialects.openai_responses.extra import item_extra, unmapped_extra
from weft.dialects.openai_responses.wire import ResponsesItem
from weft.dialects.raw_json import copy_raw
from weft.partial_json import whole_characters
from weft.parts import Json

_EMPTY_OBJECT = "{}"


def _extra(raw: Raw, *mapped: str) -> Json:
    return unmapped_extra(raw, ("id", "type", *mapped))


def _json_text(values: dict[str, Raw]) -> str:
    return bytes(wire.raw_object(values)).decode()


# Images


def _image_added(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw = wire.NULL
) -> None:
    """Emits the call of an image when its item is added, so that partial images can follow it."""
    if not item.announced:
        name = "image_generation"
        call = state.new_call(item, item.id, name, wire_item, hosted=True, params=_EMPTY_OBJECT)
        state.emit_call(item, call)


def partial_image(state: DecoderState, item: DecodedItem, fields: dict[str, Raw]) -> None:
    """Emits a partial image as a preliminary result, which replaces the one before."""
    # Its item may never have been added.
    # capture: image-with-partial-ones
    item.type = item.type or "image_generation_call"
    _image_added(state, item, ResponsesItem())
    image = fields.get("partial_image_b64", wire.NULL)
    settings = {key: fields[key] for key in _PARTIAL_IMAGE_FIELDS if key in fields}
    state.emit_result(item, {"result": image}, item_extra(settings), preliminary=True)


_PARTIAL_IMAGE_FIELDS = ("partial_image_index", "size", "quality", "background", "output_format")


def _image_done(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    _image_added(state, item, wire_item)
    image = wire.present_or(wire_item.result, wire.NULL)
    values = {"result": image, **wire.present_fields(error=wire_item.error)}
    # The status does not tell: some hosts finish an image with the status `generating`, or leave
    # the result null.
    failed = bytes(image) in (b"null", b'""') or "error" in values or wire_item.failed
    state.emit_result(item, values, _extra(raw, *values), is_error=failed)


# Searches


def _announce(name: str) -> ItemHandler:
    """Returns a handler that announces a hosted call by its name."""

    def added(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
        if not item.announced:
            call = state.new_call(item, item.id, name, wire_item, hosted=True)
            state.announce(item, call, wire_item)

    return added


def _complete_search(
    state: DecoderState,
    item: DecodedItem,
    name: str,
    query: dict[str, Raw],
    wire_item: ResponsesItem,
) -> None:
    """Emits the call of a search with its query. Some hosts write the query in `arguments`."""
    params = _json_text(query) if query else state.text_or_json(wire_item.arguments, "arguments")
    call = state.new_call(
        item, item.id, name, wire_item, hosted=True, params=params or _EMPTY_OBJECT
    )
    state.complete_named_call(item, call, wire_item)


def _web_search_done(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    action = wire.present_fields(action=wire_item.action)
    query = wire.object_fields(wire_item.action)
    # The sources are what was found, so they belong to the result and not to the params.
    has_sources = query.pop("sources", None) is not None
    params = {"action": wire.raw_object(query)} if has_sources else action
    _complete_search(state, item, "web_search", params, wire_item)
    state.emit_result(item, action, _extra(raw, *action), is_error=wire_item.failed)


def _file_search_done(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    query = wire.present_fields(queries=wire_item.queries)
    _complete_search(state, item, "file_search", query, wire_item)
    # Null unless the request includes `file_search_call.results`.
    results = wire.present_or(wire_item.results, wire.NULL)
    extra = _extra(raw, "queries", "results")
    state.emit_result(item, {**query, "results": results}, extra, is_error=wire_item.failed)


# Computer use


def _computer_added(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    if not item.announced and wire_item.call_id and wire_item.call_id not in state.items_by_call_id:
        call = state.new_call(item, wire_item.call_id, "computer", wire_item)
        state.announce(item, call, wire_item)


def _computer_done(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    """Emits a computer call. A single `action` becomes a list of one. A call without a call id
    cannot be answered, so it is hosted.
    """
    actions = wire.present_fields(actions=wire_item.actions)
    if not actions:
        single = b",".join(map(bytes, wire.present_fields(action=wire_item.action).values()))
        actions = {"actions": Raw(b"[%b]" % single)}
    params = actions | wire.present_fields(
        pending_safety_checks=wire_item.pending_safety_checks, status=wire_item.status
    )
    mapped = [*params, "call_id"] if wire_item.call_id else [*params]
    call = state.new_call(
        item,
        wire_item.call_id,
        "computer",
        wire_item,
        hosted=not wire_item.call_id,
        params=_json_text(params),
        extra=_extra(raw, *mapped),
    )
    state.complete_named_call(item, call, wire_item)


# Tool searches


def _tool_search_added(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    """Announces a hosted search. The call id of a client search may change until it is done."""
    # The upstream expects the call id of `done` back, not the one of `added`.
    if wire_item.execution == "server":
        _announce("tool_search")(state, item, wire_item, raw)


def _tool_search_done(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    # A search of the server has a null call id.
    # capture: tool-searches
    is_client = wire_item.execution == "client" or (
        wire_item.execution is None and bool(wire_item.call_id)
    )
    arguments = wire.present_or(wire_item.arguments, Raw(b"{}"))
    params = bytes(copy_raw(arguments)).decode()
    # `arguments` is an object here, unlike those of a function call; text is read as well.
    if params.startswith('"'):
        params = state.text_or_json(arguments, "arguments")
    call = state.new_call(
        item,
        wire_item.call_id if is_client else item.id,
        "tool_search",
        wire_item,
        hosted=not is_client,
        params=params,
        extra=_extra(raw, "arguments", *(("call_id",) if is_client else ())),
    )
    state.complete_named_call(item, call, wire_item)
    if not is_client:
        state.open_searches.append(item)


def _tool_search_output(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    """Emits the result of the search it names, else of the first hosted one without a result."""
    id, mapped = wire_item.call_id, ["call_id", "tools"]
    if not id:
        # The null call id stays in `extra`, to be written back.
        # capture: tool-searches
        id = state.open_searches.popleft().id if state.open_searches else item.id
        mapped = ["tools"]
    tools = wire_item.tools if isinstance(wire_item.tools, Raw) else Raw(b"[]")
    state.emit_result_item(item, id, {"tools": tools}, raw, mapped, is_error=wire_item.failed)


# Programs


def _program_done(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    # At `added` the code is empty, and the fingerprint is another one.
    code = whole_characters(wire_item.code or "")
    params = wire.present_fields(code=code, fingerprint=wire_item.fingerprint)
    call = state.new_call(
        item,
        wire_item.call_id,
        "program",
        wire_item,
        hosted=True,
        params=_json_text(params),
        extra=_extra(raw, "call_id", "code", "fingerprint"),
    )
    state.complete_call(item, call, wire_item)


def _program_output(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    """Emits the result of a program, which usually began in an earlier response."""
    values = wire.present_fields(result=wire_item.result, status=wire_item.status)
    id, mapped = wire_item.call_id or item.id, ("call_id", *values)
    state.emit_result_item(item, id, values, raw, mapped, is_error=wire_item.failed)


ITEMS = {
    "image_generation_call": ItemHandlers(_image_done, _image_added),
    "web_search_call": ItemHandlers(_web_search_done, _announce("web_search")),
    "file_search_call": ItemHandlers(_file_search_done, _announce("file_search")),
    "computer_call": ItemHandlers(_computer_done, _computer_added),
    "tool_search_call": ItemHandlers(_tool_search_done, _tool_search_added),
    "tool_search_output": ItemHandlers(_tool_search_output),
    "program": ItemHandlers(_program_done),
    "program_output": ItemHandlers(_program_output),
}

EVENTS: dict[str, EventHandler] = {
    **ignored_events("image_generation_call", ("in_progress", "generating", "completed")),
    **ignored_events("web_search_call", ("in_progress", "searching", "completed")),
    **ignored_events("file_search_call", ("in_progress", "searching", "completed")),
}
