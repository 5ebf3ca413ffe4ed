"""What a vendor of Responses takes and says beyond functions: free-form tools and hosted ones."""

import json

from tests.clients import vendor_responses
from tests.clients.vendor import Memory, Object, Said, line, pieces

HOSTED = {"web_search", "image_generation", "tool_search"}


def as_functions(body: Object, headers: dict[str, str]) -> tuple[Object, set[str]]:
    """The same request with functions only, and the names of the free-form tools."""
    body = dict(body)
    body.pop("client_metadata", None)
    tools, custom = _tools([*body.get("tools", ()), *_late(body)])
    body["tools"] = tools
    if isinstance(body["input"], list):
        kept = [item for item in body["input"] if item.get("type") != "additional_tools"]
        body["input"] = [_item(item) for item in kept]
    return body, custom


def _late(body: Object) -> list[Object]:
    """Tools that are declared in the input."""
    items = body["input"] if isinstance(body["input"], list) else []
    return [
        tool for item in items if item.get("type") == "additional_tools" for tool in item["tools"]
    ]


def _tools(tools: list[Object]) -> tuple[list[Object], set[str]]:
    found: list[Object] = []
    custom: set[str] = set()
    for tool in tools:
        match tool["type"]:
            case "custom":
                custom.add(tool["name"])
            case "namespace":
                inner, free = _tools(tool["tools"])
                found += inner
                custom |= free
            case kind if kind not in HOSTED:
                found.append(tool)
    return found, custom


def _item(item: Object) -> Object:
    match item.get("type"):
        case "custom_tool_call":
            kept = {key: value for key, value in item.items() if key != "input"}
            arguments = json.dumps({"input": item["input"]})
            return {**kept, "type": "function_call", "arguments": arguments}
        case "custom_tool_call_output":
            return {**item, "type": "function_call_output"}
    return item


def _custom(call: Object) -> Object:
    kept = {key: value for key, value in call.items() if key != "arguments"}
    return {**kept, "type": "custom_tool_call", "input": json.loads(call["arguments"])["input"]}


def whole(said: Said, model: str, memory: Memory, body: Object) -> Object:
    response = vendor_responses.whole(said, model, memory, body)
    response["output"] = [
        _custom(item) if item["type"] == "function_call" else item for item in response["output"]
    ]
    return response


def stream(said: Said, model: str, memory: Memory, body: Object) -> list[str]:
    """The stream of a single free-form call."""
    done = whole(said, model, memory, body)
    (item,) = done["output"]
    begun = {**done, "status": "in_progress", "output": [], "usage": None, "completed_at": None}
    place = {"output_index": 0, "item_id": item["id"]}
    name = "response.custom_tool_call_input"
    events: list[Object] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0,
         "item": {**item, "status": "in_progress", "input": ""}},
        *({"type": f"{name}.delta", **place, "delta": one} for one in pieces(item["input"], 7)),
        {"type": f"{name}.done", **place, "input": item["input"]},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]  # fmt: skip
    return [
        f"event: {event['type']}\ndata: {line({**event, 'sequence_number': number})}\n\n"
        for number, event in enumerate(events)
    ]
