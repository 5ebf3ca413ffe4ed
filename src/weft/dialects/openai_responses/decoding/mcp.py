"""MCP calls and their approval requests.

An approval request is a call that is not executed yet; its id is the approval request id. The call
itself comes in a later response and names the approval request: it is the same call, so it gets the
same id, which the request or this response tells. Any other MCP call has the id of its item.
"""

import msgspec
from msgspec import Raw

from weft.dialects.frames import Salvage
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import CallStage, DecodedItem
from weft.dialects.openai_responses.decoding.state import (
    DecoderState,
    EventHandler,
    ItemHandlers,
    ignored_events,
    params_delta,
    params_done,
)
from weft.dialects.openai_responses.extra import item_extra, remaining_fields
from weft.dialects.openai_responses.wire import ResponsesItem
from weft.parts import Json, ToolApprovalRequest, ToolCall
from weft.request import CallContent, OpaqueContent, Request

_REQUEST, _RESPONSE = "mcp_approval_request", "mcp_approval_response"
_MAPPED_FIELDS = ("id", "type", "name", "server_label", "arguments")


class _Approval(msgspec.Struct):
    """An approval request, or the answer to one, as an input item."""

    id: str | None = None
    approval_request_id: str | None = None


def approvals_of(request: Request | None, salvage: Salvage) -> dict[str, str]:
    """Returns the approval request ids in the request, and the ids of their calls. An item that is
    passed through has only the approval request id, which is also the id of its call.
    """
    contents = (
        [content for message in request.messages for content in message.content] if request else ()
    )
    # A call in the conversation has its own id, which the bare approval request id of an item that
    # is passed through must not replace.
    call_ids: dict[str, str] = {}
    for content in contents:
        if isinstance(content, OpaqueContent) and content.kind in (_REQUEST, _RESPONSE):
            approval_item = salvage.item(content.raw, _Approval)
            request_id = approval_item.id if content.kind == _REQUEST else None
            approval = approval_item.approval_request_id or request_id
            if approval:
                call_ids.setdefault(approval, approval)
        elif isinstance(content, CallContent):
            approval = content.approval_request_id or (
                content.item_id if content.kind == _REQUEST else None
            )
            if approval:
                call_ids[approval] = content.id
    return call_ids


def _known_approvals(state: DecoderState) -> dict[str, str]:
    if state.approvals is None:
        state.approvals = approvals_of(state.context.request, state.salvage)
    return state.approvals


def _extra(raw: Raw, *mapped: str) -> Json:
    """Returns the fields that the parts do not hold, and whether `approval_request_id` was null."""
    remaining = remaining_fields(raw, (*_MAPPED_FIELDS, *mapped))
    # The key comes with every call, null if it needed no approval, and is written back as it was.
    # capture: remote-tools
    if remaining.get("approval_request_id") != wire.NULL:
        remaining.pop("approval_request_id", None)
    return item_extra(remaining)


def _call(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, id: str) -> ToolCall:
    return msgspec.structs.replace(
        state.new_call(item, id, item.name, wire_item, hosted=True),
        dynamic=True,
        approval_request_id=wire_item.approval_request_id,
    )


def _approved_call(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem) -> ToolCall:
    """Returns the call with the id of its approval request, or else of its item."""
    alias = _known_approvals(state).get(wire_item.approval_request_id or "")
    call = _call(state, item, wire_item, alias or item.id)
    first = state.items_by_call_id.get(call.id)
    # The approval request was part of this response, and is the call: only its result is to come.
    if alias and first is not None and not item.announced:
        item.call, item.call_stage = first.call, CallStage.CALLED
    return call


def _call_added(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    # The approval request id is in the item from `added` on, so the call need not wait for `done`.
    if item.name and not item.announced:
        call = _approved_call(state, item, wire_item)
        if not item.announced:
            state.announce(item, call, wire_item)


def _call_done(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    arguments = state.text_or_json(wire_item.arguments, "arguments") or item.full_value or ""
    call = _approved_call(state, item, wire_item)
    if item.call_stage is not CallStage.CALLED:
        call = msgspec.structs.replace(call, params=arguments)
        state.complete_call(item, call, wire_item)
    outcome = wire.present_fields(output=wire_item.output, error=wire_item.error)
    values = {
        "type": wire.to_raw("call"),
        "server_label": wire.to_raw(wire_item.server_label or ""),
        "name": wire.to_raw(item.name),
        "arguments": wire.to_raw(arguments),
        **outcome,
    }
    failed = "error" in outcome or wire_item.failed
    state.emit_result(item, values, _extra(raw, *outcome), is_error=failed)


def _request_done(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    approval = wire_item.approval_request_id or item.id
    call = msgspec.structs.replace(
        _call(state, item, wire_item, approval),
        params=state.text_or_json(wire_item.arguments, "arguments"),
        approval_request_id=approval,
        extra=_extra(raw),
    )
    state.emit_call(item, call)
    _known_approvals(state)[approval] = item.call_id
    state.out.append(ToolApprovalRequest(item.call_id, approval))
    # The client has to answer the request, although the provider executes the call.
    state.finish_reason = "tool-calls"


ITEMS = {"mcp_call": ItemHandlers(_call_done, _call_added), _REQUEST: ItemHandlers(_request_done)}

EVENTS: dict[str, EventHandler] = {
    # Plain JSON text, like the arguments of a function.
    "response.mcp_call_arguments.delta": params_delta,
    "response.mcp_call_arguments.done": params_done,
    **ignored_events("mcp_call", ("in_progress", "completed", "failed")),
    **ignored_events("mcp_list_tools", ("in_progress", "completed", "failed")),
}
