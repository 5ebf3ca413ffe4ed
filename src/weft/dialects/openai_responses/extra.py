"""Fields of this dialect that no part has a field for: the decoder stores them in the `extra` of a
part, and the encoder writes them back.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_responses import wire
from weft.parts import Json, ToolCall

_USAGE_FIELDS = frozenset(wire.ResponsesUsage.__struct_fields__)


class ContentPosition(msgspec.Struct):
    item_id: str | None = None


class ItemExtra(msgspec.Struct):
    """The `extra` of a part of an item."""

    item: dict[str, Raw] | None = None
    """Fields of the item."""
    phase: str | None = None
    logprobs: list[Raw] | None = None
    content: ContentPosition | None = None
    """Set for a content part that is not text: which message it belongs to."""


class FinishedResponse(msgspec.Struct):
    service_tier: str | None = None


class ResponsesFinishExtra(msgspec.Struct):
    """The `extra` of a finish."""

    response: FinishedResponse | None = None


def remaining_fields(item: Raw | None, mapped: Iterable[str]) -> dict[str, Raw]:
    """Returns the fields of an item that its parts do not hold. Status `completed` is the default
    and left out.
    """
    remaining = wire.object_fields(item or UNSET)
    for key in mapped:
        remaining.pop(key, None)
    # Any other status is kept, also one that is odd for a finished item: calls that a program makes
    # are done with `in_progress`, and some hosts finish images with `generating`.
    if bytes(remaining.get("status", wire.NULL)) == b'"completed"':
        del remaining["status"]
    return remaining


def unmapped_extra(item: Raw | None, mapped: Iterable[str]) -> Json:
    """Returns an `extra` with the fields of an item that its parts do not hold."""
    return item_extra(remaining_fields(item, mapped))


def item_extra(fields: dict[str, Raw]) -> Json:
    """Returns an `extra` that keeps these item fields for the encoder, if there are any."""
    return wire.raw_object({"item": wire.raw_object(fields)}) if fields else UNSET


def start_extra(item: wire.ResponsesItem, call: ToolCall) -> Json:
    """Returns the `extra` of a tool-params-start."""
    # The id of a hosted call is that of its item, which leaves no field of the part for its call
    # id.
    own_call_id = call.provider_executed and item.call_id != call.id
    return item_extra(
        wire.present_fields(
            call_id=item.call_id if own_call_id else None,
            namespace=item.namespace,
            caller=item.caller,
            environment=item.environment,
            execution=item.execution,
            server_label=item.server_label,
            approval_request_id=item.approval_request_id,
        )
    )


def finish_extra(response: wire.ResponseObject) -> Json:
    """Returns the `extra` of a finish, from the terminal response."""
    reasoning, usage = wire.object_fields(response.reasoning), wire.object_fields(response.usage)
    fields = wire.present_fields(
        service_tier=response.service_tier,
        conversation=response.conversation,
        # The rest of `reasoning` echoes the request.
        reasoning=response.reasoning if "context" in reasoning else UNSET,
        # Hosts add counts of their own, for example the sources used or the cost.
        usage=response.usage if usage.keys() - _USAGE_FIELDS else UNSET,
    )
    return wire.raw_object({"response": wire.raw_object(fields)}) if fields else UNSET


def without_identity(fields: Mapping[str, Raw | str] | None) -> wire.Fields:
    """Returns all fields except `type` and `id`."""
    present = fields or {}
    return {key: present[key] for key in present if key not in ("type", "id")}
