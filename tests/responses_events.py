"""Events of a Responses stream, written by hand: what the tests of its decoder are fed with."""

import json
from typing import Any, Final

from msgspec import Raw

from weft import Context, Decoded, Ids, Part, Response, decode_all
from weft.assembler import Assembler
from weft.lifecycle import violations

DIALECT: Final = "openai-responses"

CREATED: dict[str, Any] = {
    "type": "response.created",
    "response": {"id": "resp_1", "model": "m-1", "created_at": 1790000000, "store": True},
}
COMPLETED: dict[str, Any] = {
    "type": "response.completed",
    "response": {"id": "resp_1", "model": "m-2", "status": "completed", "usage": {
        "input_tokens": 3, "output_tokens": 4, "total_tokens": 7,
        "input_tokens_details": {"cached_tokens": 1}}},
}  # fmt: skip


def capture(*events: dict[str, Any]) -> bytes:
    """The events as a server sends them, numbered unless they say otherwise."""
    blocks = [
        b"event: %b\ndata: %b\n\n"
        % (
            str(event.get("type", "")).encode("utf-8", "replace"),
            raw({"sequence_number": at, **event}),
        )
        for at, event in enumerate(events)
    ]
    return b"".join(blocks) + b"data: [DONE]\n\n"


def created(**response: Any) -> dict[str, Any]:
    return {**CREATED, "response": {**CREATED["response"], **response}}


def decoded(*events: dict[str, Any], context: Context | None = None) -> Decoded:
    """One response, which is legal whatever the events are."""
    (one,) = decode_all(capture(*events), DIALECT, context=context)
    assert violations(one.parts, Assembler()) == []
    return one


def read(*events: dict[str, Any], context: Context | None = None) -> Response:
    """What a created and completed response with these events between means."""
    return decoded(CREATED, *events, COMPLETED, context=context).response


def parts(*events: dict[str, Any], context: Context | None = None) -> list[Part]:
    """The parts of these events, without those of the frame around them."""
    one = decoded(CREATED, *events, COMPLETED, context=context)
    assert [part.type for part in (one.parts[0], one.parts[-1])] == ["response-metadata", "finish"]
    return [*one.parts[1:-1]]


def body(*items: dict[str, Any], **fields: Any) -> bytes:
    """A response that was not streamed, spread over lines as servers do."""
    response = {**COMPLETED["response"], "object": "response", "output": items, **fields}
    return json.dumps(response, indent=2).encode()


def at_once(*items: dict[str, Any], **fields: Any) -> Response:
    (one,) = decode_all(body(*items, **fields), DIALECT)
    assert violations(one.parts, Assembler()) == []
    return one.response


def with_request(request: Any) -> Context:
    return Context(request=request, ids=Ids(b"test"))


def codes(response: Response) -> list[str]:
    return [finding.code for finding in response.findings]


def event(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{type}", **fields}


def added(index: int, **item: Any) -> dict[str, Any]:
    return event("output_item.added", output_index=index, item=item)


def done(index: int, **item: Any) -> dict[str, Any]:
    return event("output_item.done", output_index=index, item=item)


def opened(index: int, **more: Any) -> dict[str, Any]:
    """The first part of a message begins: a text."""
    part = text_part("")
    return event("content_part.added", output_index=index, content_index=0, part=part, **more)


def said(index: int, text: str, **more: Any) -> dict[str, Any]:
    """A delta of a text."""
    return event("output_text.delta", output_index=index, content_index=0, delta=text, **more)


def text_part(text: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": list(annotations)}


def raw(value: Any) -> Raw:
    """A value as a part holds it."""
    return Raw(json.dumps(value, separators=(",", ":")).encode())


def item_extra(**keys: Any) -> Raw:
    """What a part keeps of its item."""
    return raw({"item": keys})
