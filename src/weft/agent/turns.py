"""The request of a turn, built from the state of the run.

A request of the Responses API: it carries calls, results, images and the reasoning of every
upstream (in its envelope) through any number of turns, and the relay translates it for whatever
model the agent uses. What earlier turns returned is read from their stored responses; everything
else is in the log.

The same state always gives the same bytes: results are in the order in which the model announced
the calls, whichever of them ended first.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from weft.agent.lifecycle import CLOSED
from weft.agent.state import Call, RunState, RunTurn, TurnState
from weft.dialects.openai_responses.requests.schema import ERROR_PREFIX
from weft.request import FileContent, ImageContent, TextContent

LAST_TURN = (
    "This is your last turn: no more tools can be used. Answer with what you have, and say what is "
    "missing."
)

_json = msgspec.json.Encoder().encode


class _Item(msgspec.Struct):
    """What is read of an output item."""

    type: str = ""
    name: str | None = None
    call_id: str | None = None


class _OutputContent(msgspec.Struct):
    text: str = ""
    refusal: str = ""


class _OutputItem(msgspec.Struct):
    type: str = ""
    content: list[_OutputContent] | None = None


class _TurnOutput(msgspec.Struct):
    output: list[_OutputItem] = []


_read_item = msgspec.json.Decoder(_Item).decode
_read_object = msgspec.json.Decoder(dict[str, Raw]).decode
_read_output = msgspec.json.Decoder(_TurnOutput).decode


def render_turn(
    state: RunState, outputs: Mapping[str, Sequence[Raw]], *, is_last: bool = False
) -> bytes:
    """The body of the next request. `outputs` holds the output items of the finished turns, by the
    ids of their responses. The last turn is asked not to use tools."""
    definition = state.definition
    items = [*state.input, *items_after_input(state, outputs)]
    if is_last and definition.tools:
        items.append(Raw(_json({"type": "message", "role": "developer", "content": LAST_TURN})))
    body: dict[str, object] = {"model": definition.model, "input": items, "stream": True}
    if definition.instructions:
        body["instructions"] = definition.instructions
    if definition.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in definition.tools
        ]
        if is_last:
            # Declared nevertheless: some models refuse earlier calls of tools that do not exist.
            body["tool_choice"] = "none"
    # Without it an upstream that stores nothing of ours gets its own reasoning back as nothing.
    body["include"] = ["reasoning.encrypted_content"]
    return _json(body)


def items_after_input(state: RunState, outputs: Mapping[str, Sequence[Raw]]) -> list[Raw]:
    """The items that follow the input: what the model said in its finished turns, the results of
    its calls, and messages that came meanwhile."""
    items = _messages(state, 0)
    for turn in state.turns:
        if turn.state is TurnState.FINISHED:
            items += _output_items(turn, outputs[turn.response])
            # A run that was cancelled may have calls without one.
            items += [_result_item(call) for call in turn.answerable if call.state is CLOSED]
        items += _messages(state, turn.number)
    return items


def _messages(state: RunState, turn: int) -> list[Raw]:
    """The messages that came while this turn was the last one."""
    return [message for begun, message in state.messages if begun == turn]


def _output_items(turn: RunTurn, items: Sequence[Raw]) -> list[Raw]:
    """What the model said, as it goes back to it: without calls that have no name, and with the ids
    under which the run knows its calls."""
    renamed = {call.judged.wire_id: call.id for call in turn.calls if call.judged.wire_id}
    known = {call.judged.wire_id or call.id for call in turn.answerable}
    found = []
    for raw in items:
        item = _read_item(raw)
        if item.type == "function_call":
            if item.call_id not in known:
                continue  # no result for it: every dialect refuses a call without one
            if item.call_id in renamed:
                fields = _read_object(raw)
                raw = Raw(_json(fields | {"call_id": renamed[item.call_id]}))
        found.append(raw)
    return found


def _result_item(call: Call) -> Raw:
    item: dict[str, object] = {"type": "function_call_output", "call_id": call.id}
    contents = call.result
    if call.is_error:
        # The API has no field for a failed call. Our own renderer writes one like this, and the
        # parser reads it back as an error for the dialects that have a field.
        item["status"] = "incomplete"
        match contents:
            case (TextContent(text=text), *rest):
                contents = (TextContent(ERROR_PREFIX + text), *rest)
            case _:
                contents = (TextContent(ERROR_PREFIX), *contents)
    match contents:
        case ():
            item["output"] = ""
        case (TextContent(text=text),):
            item["output"] = text
        case _:  # a list where there is more than a text
            item["output"] = [_content(one) for one in contents]
    return Raw(_json(item))


def _content(content: TextContent | ImageContent | FileContent) -> dict[str, object]:
    if isinstance(content, TextContent):
        return {"type": "input_text", "text": content.text}
    url = content.url
    if content.data is not None:
        url = f"data:{content.media_type or 'application/octet-stream'};base64,{content.data}"
    found: dict[str, object | None]
    if isinstance(content, ImageContent):
        found = {"type": "input_image", "image_url": url, "detail": content.detail or "auto"}
    else:
        field = "file_data" if content.data is not None else "file_url"
        found = {"type": "input_file", field: url, "filename": content.filename}
    found["file_id"] = content.file_id
    return {name: value for name, value in found.items() if value is not None}


def output_text(body: bytes) -> str:
    """The text of a response object."""
    return "".join(
        content.text or content.refusal
        for item in _read_output(body).output
        if item.type == "message"
        for content in item.content or ()
    )
