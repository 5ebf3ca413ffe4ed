"""A vendor of Messages: thinking is signed, and goes back before the calls it led to."""

import json
import re
from typing import Any

from anthropic.types import message_create_params as params

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

DIALECT = "anthropic-messages"
IDS = ("toolu_01",)
OVERLOADED = 529

KNOWN = {*params.MessageCreateParamsBase.__annotations__, "stream"}
BLOCK = {
    "text": {"type", "text", "cache_control", "citations"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def read(body: Object, headers: dict[str, str], memory: Memory) -> Asked:
    if "anthropic-version" not in headers:
        raise Refusal("anthropic-version: header is required")
    only(KNOWN, body, "")
    if not isinstance(body.get("max_tokens"), int):
        raise Refusal("max_tokens: Field required")
    thinks = _thinks(body)
    asked = Asked()
    for number, tool in enumerate(body.get("tools") or []):
        asked.tools.append(_tool(tool, f"tools.{number}"))
    _system(body.get("system"))
    asked.shape = _shape((body.get("output_config") or {}).get("format"))
    _Turns(memory, asked, thinks=thinks).read(body["messages"])
    return asked


def _thinks(body: Object) -> bool:
    thinking = body.get("thinking") or {"type": "disabled"}
    forced = (body.get("tool_choice") or {}).get("type") in ("any", "tool")
    if thinking["type"] == "enabled":
        if not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
            raise Refusal("`max_tokens` must be greater than `thinking.budget_tokens`")
        if forced:
            raise Refusal("Thinking may not be enabled when tool_choice forces tool use.")
        if body.get("temperature", 1) != 1:
            raise Refusal("`temperature` may only be set to 1 when thinking is enabled.")
    return bool(thinking["type"] == "enabled")


def _tool(tool: Object, where: str) -> str:
    if tool.get("type", "custom") != "custom":
        raise Refusal(f"{where}.type: Input tag '{tool['type']}' does not match")
    known = {"type", "name", "description", "input_schema", "cache_control", "strict",
             "eager_input_streaming"}  # fmt: skip
    only(known, tool, f"{where}.")
    if tool["input_schema"].get("type") != "object":
        raise Refusal(f"{where}.input_schema.type: Field required")
    if tool.get("strict"):
        strict_schema(tool["input_schema"], f"{where}.input_schema")
    return str(tool["name"])


def _system(system: Any) -> None:
    for block in system if isinstance(system, list) else ():
        only({"type", "text", "cache_control", "citations"}, block, "system.")
        if not block["text"]:
            raise Refusal("system: text content blocks must be non-empty")


def _shape(wanted: Object | None) -> str:
    if wanted is None:
        return ""
    only({"type", "schema"}, wanted, "output_config.format.")
    if wanted["type"] != "json_schema":
        raise Refusal("output_config.format.type: Input should be 'json_schema'")
    return "schema"


class _Turns:
    """The messages of a request."""

    def __init__(self, memory: Memory, asked: Asked, *, thinks: bool) -> None:
        self._memory = memory
        self._asked = asked
        self._thinks = thinks

    def read(self, messages: list[Object]) -> None:
        if not messages or messages[0]["role"] != "user":
            raise Refusal("messages: first message must use the 'user' role")
        if messages[-1]["role"] != "user":
            raise Refusal("This model does not support assistant message prefill.")
        waiting: dict[str, Handed] = {}
        for number, message in enumerate(messages):
            where = f"messages.{number}"
            only({"role", "content"}, message, f"{where}.")
            blocks = _blocks(message["content"], where)
            if message["role"] == "assistant":
                waiting = self._assistant(blocks, where)
            elif message["role"] == "user":
                self._user(blocks, waiting, where)
                waiting = {}
            else:
                raise Refusal(f"{where}.role: Input should be 'user' or 'assistant'")

    def _assistant(self, blocks: list[Object], where: str) -> dict[str, Handed]:
        found: dict[str, Handed] = {}
        for block in blocks:
            if block["type"] in ("thinking", "redacted_thinking"):
                self._signed(block, where)
            elif block["type"] == "tool_use":
                if not _ID.fullmatch(block["id"]):
                    raise Refusal(f"{where}: tool_use.id: String should match pattern")
                if block["id"] in found:
                    raise Refusal(f"{where}: `tool_use` ids must be unique")
                handed = self._memory.call(block["id"])
                arguments_match(handed, block["name"], block["input"])
                found[handed.id] = handed
        if found:
            self._asked.steps += 1
            self._prove(next(iter(found.values())), blocks, where)
        else:
            self._asked.said.append("".join(block.get("text", "") for block in blocks))
            self._asked.proofs.append("returned" if _proof(blocks[0]) else "missing")
        return found

    def _signed(self, block: Object, where: str) -> None:
        said = self._memory.proofs.get(_proof(block))
        if said is None or said.thought != block.get("thinking", ""):
            raise Refusal(f"{where}: Invalid `signature` in `thinking` block")

    def _prove(self, handed: Handed, blocks: list[Object], where: str) -> None:
        if not handed.proof:
            return
        first = blocks[0]
        back = _proof(first) == handed.proof
        if not back and self._thinks:
            raise Refusal(
                f"{where}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
                f"`{first['type']}`. When `thinking` is enabled, a final `assistant` message must "
                "start with a thinking block."
            )
        thought = [proof for proof in map(_proof, blocks) if proof]
        if back and handed.hidden and thought != [handed.proof, handed.hidden]:
            raise Refusal(
                f"{where}: `thinking` or `redacted_thinking` blocks in the latest assistant "
                "message cannot be modified. These blocks must remain as they were in the "
                "original response."
            )
        self._asked.proofs.append("returned" if back else "missing")

    def _user(self, blocks: list[Object], waiting: dict[str, Handed], where: str) -> None:
        """The results stand first, one for each call of the turn before."""
        kinds = [block["type"] for block in blocks]
        results = kinds.count("tool_result")
        if kinds[:results] != ["tool_result"] * results:
            raise Refusal(f"{where}: `tool_result` blocks must come first")
        missing = dict(waiting)
        for block in blocks[:results]:
            handed = missing.pop(block["tool_use_id"], None)
            if handed is None:
                raise Refusal(
                    f"{where}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block['tool_use_id']}. Each `tool_result` block must have a corresponding "
                    "`tool_use` block in the previous message."
                )
            text = _text(block.get("content", ""))
            result_matches(handed, text)
            self._asked.results.append(Returned(handed.id, text))
        if missing:
            raise Refusal(
                f"{where}: `tool_use` ids were found without `tool_result` blocks immediately "
                f"after: {', '.join(missing)}."
            )


def _proof(block: Object) -> str:
    """The proof in a block of thinking; nothing for any other."""
    key = {"thinking": "signature", "redacted_thinking": "data"}.get(block["type"], "")
    return str(block.get(key, ""))


def _blocks(content: Any, where: str) -> list[Object]:
    blocks: list[Object] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else content
    )
    if not blocks:
        raise Refusal(f"{where}: all messages must have non-empty content")
    for block in blocks:
        if block["type"] not in BLOCK:
            raise Refusal(f"{where}.content: Input tag '{block['type']}' does not match")
        only(BLOCK[block["type"]], block, f"{where}.content.")
        if block["type"] == "text" and not block["text"]:
            raise Refusal(f"{where}: text content blocks must be non-empty")
    return blocks


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content)


# Answers


def _content(said: Said) -> list[Object]:
    blocks: list[Object] = []
    if said.thought:
        blocks.append({"type": "thinking", "thinking": said.thought, "signature": said.proof})
    elif said.proof:
        blocks.append({"type": "redacted_thinking", "data": said.proof})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    if said.hidden:
        blocks.append({"type": "redacted_thinking", "data": said.hidden.proof})
    for call in said.calls:
        arguments = call.plan.arguments
        blocks.append(
            {"type": "tool_use", "id": call.id, "name": call.plan.name, "input": arguments}
        )
    return blocks


def _message(said: Said, model: str, memory: Memory) -> Object:
    return {
        "model": f"{model}-2026",
        "id": memory.mint("msg_01", 22),
        "type": "message",
        "role": "assistant",
        "content": _content(said),
        "stop_reason": "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": _usage(9),
    }


def _usage(written: int) -> Object:
    return {
        "input_tokens": 16,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": written,
        "service_tier": "standard",
    }


def whole(said: Said, model: str, memory: Memory, body: Object) -> Object:
    return _message(said, model, memory)


def stream(said: Said, model: str, memory: Memory, body: Object) -> list[str]:
    message = _message(said, model, memory)
    begun = {**message, "content": [], "stop_reason": None, "usage": _usage(1)}
    frames = [_frame("message_start", message=begun)]
    for index, block in enumerate(message["content"]):
        bare, deltas = _streamed(block)
        frames.append(_frame("content_block_start", index=index, content_block=bare))
        if index == 0:
            frames.append(_frame("ping"))
        frames += [_frame("content_block_delta", index=index, delta=delta) for delta in deltas]
        frames.append(_frame("content_block_stop", index=index))
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    counted = {key: value for key, value in _usage(9).items() if key.endswith("tokens")}
    frames.append(_frame("message_delta", delta=delta, usage=counted))
    return [*frames, _frame("message_stop")]


def _streamed(block: Object) -> tuple[Object, list[Object]]:
    match block["type"]:
        case "thinking":
            texts = pieces(block["thinking"])
            deltas: list[Object] = [{"type": "thinking_delta", "thinking": one} for one in texts]
            proof = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, proof]
        case "text":
            deltas = [{"type": "text_delta", "text": one} for one in pieces(block["text"])]
            return {"type": "text", "text": ""}, deltas
        case "redacted_thinking":
            return block, []
    given = ["", *pieces(json.dumps(block["input"]), 6)]
    deltas = [{"type": "input_json_delta", "partial_json": one} for one in given]
    return {**block, "input": {}}, deltas


def _frame(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {line({'type': kind, **fields})}\n\n"


KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def error(status: int, message: str, param: str | None = None) -> Object:
    told = {"type": KINDS[status], "message": message}
    return {"type": "error", "error": told, "request_id": "req_011CScripted"}


def broken(message: str, frames: list[str]) -> list[str]:
    """The end of a stream that fails after these frames."""
    return [f"event: error\ndata: {line(error(OVERLOADED, message))}\n\n"]


def authorised(headers: dict[str, str], key: str) -> bool:
    return key in (
        headers.get("x-api-key"),
        headers.get("authorization", "").removeprefix("Bearer "),
    )
