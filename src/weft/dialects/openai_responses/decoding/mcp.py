"""Tools of remote servers: their calls, and the approvals that some of them wait for.

An approval request is a call that has not been made yet; it has the id of its approval. The call
that is made once it was approved comes in the next response and names that approval: it is the
same call, so it has the id that the approvals of this response tell, or the request does. Without
either it has the id of its item, as every hosted call.
"""

import msgspec
from msgspec import Raw

from weft.dialects.base import Salvage
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import Item, Step
from weft.dialects.openai_responses.decoding.state import (
    CUT,
    Handler,
    Reading,
    Row,
    params_delta,
    params_done,
    silent,
)
from weft.parts import Json, Part, ToolApprovalRequest, ToolCall
from weft.request import CallContent, OpaqueContent, Request

_REQUEST, _RESPONSE = "mcp_approval_request", "mcp_approval_response"
_KNOWN = ("id", "type", "name", "server_label", "arguments")


class _Asked(msgspec.Struct):
    """An approval, asked for or answered, as an item of the request has it."""

    id: str | None = None
    approval_request_id: str | None = None


def approvals_of(request: Request | None, salvage: Salvage) -> dict[str, str]:
    """Approvals that the request tells of, and the ids of the calls that wait for them. What goes
    back as it came tells only the approval: its call had the same id.
    """
    contents = [one for message in request.messages for one in message.content] if request else ()
    found: dict[str, str] = {}
    for one in contents:
        if isinstance(one, OpaqueContent) and one.kind in (_REQUEST, _RESPONSE):
            asked = salvage.item(one.raw, _Asked)
            own = asked.id if one.kind == _REQUEST else None
            approval = asked.approval_request_id or own
            if approval:
                found.setdefault(approval, approval)
        elif isinstance(one, CallContent):
            approval = one.approval_request_id or (one.item_id if one.kind == _REQUEST else None)
            if approval:
                found[approval] = one.id
    return found


def _approvals(reading: Reading) -> dict[str, str]:
    if reading.approvals is None:
        reading.approvals = approvals_of(reading.context.request, reading.salvage)
    return reading.approvals


def _kept(raw: Raw, *held: str) -> Json:
    """What the parts of an item do not hold; also that its approval is null."""
    told = wire.leftover(raw, (*_KNOWN, *held))
    if told.get("approval_request_id") != wire.NULL:
        told.pop("approval_request_id", None)
    return wire.packed(told)


def _call(reading: Reading, item: Item, read: wire.Item, id: str) -> ToolCall:
    return msgspec.structs.replace(
        reading.call(item, id, item.name, read, hosted=True),
        dynamic=True,
        approval_request_id=read.approval_request_id,
    )


def _approved(reading: Reading, item: Item, read: wire.Item) -> ToolCall:
    """A call under the id of the request that was approved, else of its item."""
    alias = _approvals(reading).get(read.approval_request_id or "")
    call = _call(reading, item, read, alias or item.id)
    first = reading.calls.get(call.id)
    if alias and first is not None and item.step is Step.UNTOLD:  # it was called right here
        item.call, item.step = first.call, Step.CALLED
    return call


def _call_added(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    if item.name and item.step is Step.UNTOLD:
        call = _approved(reading, item, read)
        if item.step is Step.UNTOLD:
            reading.announce(item, call, read, out)


def _call_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    arguments = reading.text(read.arguments, "arguments") or item.whole or ""
    call = _approved(reading, item, read)
    if item.step is not Step.CALLED:
        call = msgspec.structs.replace(call, params=arguments)
        reading.hand_over(item, call, read, out)
    told = wire.known(output=read.output, error=read.error)
    values = {
        "type": wire.raw("call"),
        "server_label": wire.raw(read.server_label or ""),
        "name": wire.raw(item.name),
        "arguments": wire.raw(arguments),
        **told,
    }
    extra = _kept(raw, *told)
    failed = "error" in told or read.status in CUT
    out.append(reading.result(item, values, extra, is_error=failed))


def _request_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    approval = read.approval_request_id or item.id
    call = msgspec.structs.replace(
        _call(reading, item, read, approval),
        params=reading.text(read.arguments, "arguments"),
        approval_request_id=approval,
        extra=_kept(raw),
    )
    reading.make(item, call, out)
    _approvals(reading)[approval] = item.call_id
    out.append(ToolApprovalRequest(item.call_id, approval))
    reading.reason = "tool-calls"


ITEMS = {"mcp_call": Row(_call_done, _call_added), _REQUEST: Row(_request_done)}

EVENTS: dict[str, Handler] = {
    "response.mcp_call_arguments.delta": params_delta,
    "response.mcp_call_arguments.done": params_done,
    **silent("mcp_call", ("in_progress", "completed", "failed")),
    **silent("mcp_list_tools", ("in_progress", "completed", "failed")),
}
