"""A vendor of Responses: reasoning items with encrypted content, and two ids for every call."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from openai.types.responses import response_create_params as params

from tests.clients.vendor import (
    Asked,
    Handed,
    Memory,
    Object,
    Refusal,
    Returned,
    Said,
    arguments_match,
    line,
    only,
    pieces,
    result_matches,
    strict_schema,
)
from tests.clients.vendor_chat import OVERLOADED, authorised, error

__all__ = ["OVERLOADED", "authorised", "error"]

DIALECT = "openai-responses"
IDS = ("call_", "fc_")
ENCRYPTED = "reasoning.encrypted_content"

KNOWN = {*params.ResponseCreateParamsBase.__annotations__, "stream"}
ITEM = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status", "namespace"},
    "function_call_output": {"type", "id", "call_id", "output", "status"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
}
USAGE: Object = {
    "input_tokens": 21,
    "input_tokens_details": {"cached_tokens": 5},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 30,
}


def read(body: Object, headers: dict[str, str], memory: Memory) -> Asked:
    only(KNOWN, body, "")
    asked = Asked()
    for number, tool in enumerate(body.get("tools") or []):
        asked.tools.append(_tool(tool, f"tools[{number}]"))
    asked.shape = _shape((body.get("text") or {}).get("format"))
    given = body["input"]
    if not isinstance(given, str):
        _Items(memory, asked, stored=body.get("store") is not False).read(given)
    return asked


def _tool(tool: Object, where: str) -> str:
    if tool.get("type") != "function":
        raise Refusal(f"Invalid value: '{tool.get('type')}'.", f"{where}.type")
    only({"type", "name", "description", "parameters", "strict"}, tool, f"{where}.")
    if tool.get("strict"):
        strict_schema(tool["parameters"], f"{where}.parameters")
    return str(tool["name"])


def _shape(wanted: Object | None) -> str:
    match wanted:
        case None | {"type": "text"}:
            return ""
        case {"type": "json_object"}:
            return "object"
        case {"type": "json_schema", "name": str(), "schema": schema}:
            if wanted.get("strict"):
                strict_schema(schema, "text.format.schema")
            return "schema"
    raise Refusal("Invalid text.format.", "text.format")


class _Items:
    """The input of a request, item by item."""

    def __init__(self, memory: Memory, asked: Asked, *, stored: bool) -> None:
        self._memory = memory
        self._asked = asked
        self._stored = stored
        self._open: dict[str, Handed] = {}
        self._answered: set[str] = set()
        self._reasoned: set[str] = set()
        """The ids of the reasoning items that came back."""
        self._ids: set[str] = set()
        self._calling = False
        self._fresh = False
        """A proof was read, and what it led to was not."""
        self._said = False
        """The item before was said by the assistant."""

    def read(self, items: list[Object]) -> None:
        readers = {
            "message": self._message,
            "function_call": self._call,
            "function_call_output": self._output,
            "reasoning": self._reasoning,
        }
        for number, item in enumerate(items):
            where = f"input[{number}]"
            kind = item.get("type", "message")
            if kind not in readers:
                raise Refusal(f"Invalid value: '{kind}'.", f"{where}.type")
            only(ITEM[kind], item, f"{where}.")
            self._once(item.get("id"), where)
            readers[kind](item, where)
            following = items[number + 1] if number + 1 < len(items) else {}
            if kind == "reasoning" and following.get("type", "message") not in (
                "message",
                "function_call",
                "reasoning",
            ):
                raise Refusal(
                    f"Item '{item.get('id')}' of type 'reasoning' was provided without its "
                    "required following item.",
                    where,
                )
        for id in self._open:
            raise Refusal(f"No tool output found for function call {id}.", "input")

    def _once(self, id: str | None, where: str) -> None:
        if id in self._ids:
            raise Refusal(f"Duplicate item found with id {id}.", where)
        self._ids |= {id} if id else set()

    def _message(self, item: Object, where: str) -> None:
        if item["role"] not in ("user", "assistant", "system", "developer"):
            raise Refusal(f"Invalid value: '{item['role']}'.", f"{where}.role")
        id = item.get("id")
        if id is not None and not id.startswith("msg_"):
            raise Refusal(f"Invalid 'id': '{id}'. Expected an ID that begins with 'msg'.", where)
        said = "output_text" if item["role"] == "assistant" else "input_text"
        for part in item["content"] if isinstance(item["content"], list) else ():
            if part.get("type") != said:
                raise Refusal(f"Invalid value: '{part.get('type')}'.", f"{where}.content")
        self._calling = False
        if item["role"] == "assistant":
            self._asked.said.append(_text(item["content"], "output_text"))
            self._asked.proofs.append("returned" if self._fresh else "missing")
        self._said = item["role"] == "assistant"
        self._fresh = False

    def _call(self, item: Object, where: str) -> None:
        handed = self._memory.call(item["call_id"])
        if handed.id in self._open or handed.id in self._answered:
            raise Refusal(f"Duplicate function call {handed.id}.", where)
        arguments_match(handed, item["name"], json.loads(item["arguments"]))
        if item.get("id") not in (None, handed.item_id):
            raise Refusal(f"Item with id '{item['id']}' not found.", where, 404)
        if not self._calling:
            if self._said:  # the text was no turn of its own
                self._asked.said.pop()
                self._asked.proofs.pop()
            self._asked.steps += 1
            self._prove(handed, item, where)
        self._calling = True
        self._said = False
        self._open[handed.id] = handed

    def _prove(self, handed: Handed, item: Object, where: str) -> None:
        self._fresh = False
        if not handed.proof:
            return
        back = handed.reasoning_id in self._reasoned
        hidden = self._memory.proofs.get(handed.hidden)
        if back and hidden and hidden.reasoning_id not in self._reasoned:
            raise Refusal(f"The 'reasoning' item '{hidden.reasoning_id}' is missing.", where)
        if not back and item.get("id"):
            raise Refusal(
                f"Item '{item['id']}' of type 'function_call' was provided without its required "
                f"'reasoning' item: '{handed.reasoning_id}'.",
                where,
            )
        self._asked.proofs.append("returned" if back else "missing")

    def _output(self, item: Object, where: str) -> None:
        id = item["call_id"]
        handed = self._open.pop(id, None)
        if handed is None:
            raise Refusal(f"No tool call found for function call output with call_id {id}.", where)
        text = _text(item["output"])
        result_matches(handed, text)
        self._answered.add(id)
        self._said = False
        self._asked.results.append(Returned(id, text))
        self._calling = False

    def _reasoning(self, item: Object, where: str) -> None:
        if not isinstance(item.get("summary"), list):
            raise Refusal(f"Missing required parameter: '{where}.summary'.", f"{where}.summary")
        proof = item.get("encrypted_content")
        if proof is None:
            self._by_id(item, where)
            return
        said = self._memory.proofs.get(proof)
        if said is None or item.get("id") not in (None, said.reasoning_id):
            raise Refusal(
                "The encrypted content could not be verified. Reason: it could not be decrypted "
                "or parsed.",
                f"{where}.encrypted_content",
            )
        self._reasoned.add(said.reasoning_id)
        self._calling = False
        self._fresh = True

    def _by_id(self, item: Object, where: str) -> None:
        """What the vendor stored itself needs no proof."""
        known = {said.reasoning_id for said in self._memory.proofs.values()}
        if not self._stored or item.get("id") not in known:
            raise Refusal(
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` "
                "is set to false.",
                where,
                404,
            )
        self._reasoned.add(str(item["id"]))
        self._calling = False
        self._fresh = True


def _text(output: Any, kind: str = "input_text") -> str:
    if isinstance(output, str):
        return output
    return "".join(part["text"] for part in output if part["type"] == kind)


# Answers


def _items(said: Said, memory: Memory, body: Object) -> list[Object]:
    given = ENCRYPTED in (body.get("include") or ())
    items: list[Object] = [
        {
            "id": thought.reasoning_id,
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": one} for one in (thought.thought,) if one],
            **({"encrypted_content": thought.proof} if given else {}),
        }
        for thought in (said, said.hidden)
        if thought and thought.proof
    ]
    if said.text:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": said.text}
        items.append(
            {
                "id": memory.mint("msg_"),
                "type": "message",
                "status": "completed",
                "content": [part],
                "role": "assistant",
            }
        )
    return items + [
        {
            "id": call.item_id,
            "type": "function_call",
            "status": "completed",
            "arguments": call.plan.json,
            "call_id": call.id,
            "name": call.plan.name,
        }
        for call in said.calls
    ]


def _response(items: list[Object], model: str, id: str, body: Object, status: str) -> Object:
    done = status == "completed"
    return {
        "id": id,
        "object": "response",
        "created_at": 1_763_000_000,
        "status": status,
        "background": False,
        "completed_at": 1_763_000_001 if done else None,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": f"{model}-2026",
        "output": items,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": body.get("store") is not False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium", **(body.get("text") or {})},
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": USAGE if done else None,
        "user": None,
        "metadata": {},
    }


def whole(said: Said, model: str, memory: Memory, body: Object) -> Object:
    items = _items(said, memory, body)
    return _response(items, model, memory.mint("resp_", 48), body, "completed")


def stream(said: Said, model: str, memory: Memory, body: Object) -> list[str]:
    items = _items(said, memory, body)
    id = memory.mint("resp_", 48)
    begun = _response([], model, id, body, "in_progress")
    events: list[Object] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        added = {"type": "response.output_item.added", "output_index": index}
        events.append({**added, "item": {**item, **BARE[item["type"]]}})
        events += [{**one, **place} for one in INNER[item["type"]](item)]
        events.append({**added, "type": "response.output_item.done", "item": item})
    done = _response(items, model, id, body, "completed")
    events.append({"type": "response.completed", "response": done})
    numbers = count()
    return [_frame({**event, "sequence_number": next(numbers)}) for event in events]


def _frame(event: Object) -> str:
    return f"event: {event['type']}\ndata: {line(event)}\n\n"


def _reasoning_events(item: Object) -> Iterator[Object]:
    if not item["summary"]:
        return
    text = item["summary"][0]["text"]
    place = {"summary_index": 0}
    part = {"type": "summary_text", "text": ""}
    name = "response.reasoning_summary"
    yield {"type": f"{name}_part.added", **place, "part": part}
    for one in pieces(text):
        yield {"type": f"{name}_text.delta", **place, "delta": one, "obfuscation": "x7"}
    yield {"type": f"{name}_text.done", **place, "text": text}
    yield {"type": f"{name}_part.done", **place, "part": {**part, "text": text}}


def _message_events(item: Object) -> Iterator[Object]:
    (part,) = item["content"]
    place = {"content_index": 0}
    yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
    for one in pieces(part["text"]):
        delta = {"delta": one, "logprobs": [], "obfuscation": "x7"}
        yield {"type": "response.output_text.delta", **place, **delta}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}


def _call_events(item: Object) -> Iterator[Object]:
    name = "response.function_call_arguments"
    for one in pieces(item["arguments"], 4):
        yield {"type": f"{name}.delta", "delta": one, "obfuscation": "x7"}
    yield {"type": f"{name}.done", "arguments": item["arguments"], "name": item["name"]}


BARE: dict[str, Object] = {
    "reasoning": {"summary": []},
    "message": {"status": "in_progress", "content": []},
    "function_call": {"status": "in_progress", "arguments": ""},
}
"""What an item lacks when it is announced."""
INNER = {
    "reasoning": _reasoning_events,
    "message": _message_events,
    "function_call": _call_events,
}


def broken(message: str, frames: list[str]) -> list[str]:
    """The end of a stream that fails after these frames."""
    failed = json.loads(frames[0].partition("data: ")[2])["response"]
    failed |= {"status": "failed", "error": {"code": "server_error", "message": message}}
    told = {"type": "server_error", "code": "server_error", "message": message, "param": None}
    number = len(frames)
    return [
        _frame({"type": "error", "error": told, "sequence_number": number}),
        _frame({"type": "response.failed", "response": failed, "sequence_number": number + 1}),
    ]
