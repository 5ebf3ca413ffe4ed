"""A vendor of generateContent: signed calls, parallel ones without ids, frames that end in CRLF."""

import base64
import binascii
from typing import Any

from tests.clients.vendor import (
    PROOF_SKIPPED,
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
)

DIALECT = "gemini"
IDS = ("",)
OVERLOADED = 503

KNOWN = {
    "model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig",
    "safetySettings", "cachedContent", "serviceTier", "store", "labels",
}  # fmt: skip
GENERATION = {
    "temperature", "topP", "topK", "seed", "stopSequences", "maxOutputTokens", "candidateCount",
    "presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs", "responseMimeType",
    "responseSchema", "responseJsonSchema", "responseModalities", "thinkingConfig",
    "mediaResolution",
}  # fmt: skip
PART = {
    "text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData",
    "fileData",
}  # fmt: skip
SCHEMA = {
    "type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems",
    "properties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern",
    "example", "anyOf", "propertyOrdering", "default", "items", "minimum", "maximum",
}  # fmt: skip
"""The words of `parameters` and `responseSchema`; the JSON Schema fields take any."""


def read(body: Object, headers: dict[str, str], memory: Memory) -> Asked:
    only(KNOWN, body, "")
    asked = Asked()
    for tool in body.get("tools") or []:
        only({"functionDeclarations"}, tool, "tools.")
        asked.tools += [_declared(one) for one in tool["functionDeclarations"]]
    config = body.get("generationConfig") or {}
    only(GENERATION, config, "generation_config.")
    asked.shape = _shape(config)
    _Contents(memory, asked).read(body["contents"])
    return asked


def _declared(function: Object) -> str:
    known = {"name", "description", "parameters", "parametersJsonSchema", "behavior"}
    only(known, function, "tools.function_declarations.")
    if {"parameters", "parametersJsonSchema"} <= set(function):
        raise Refusal("parameters and parameters_json_schema cannot both be set.")
    _subset(function.get("parameters"))
    return str(function["name"])


def _subset(schema: Any) -> None:
    if not isinstance(schema, dict):
        return
    only(SCHEMA, schema, "parameters.")
    for one in [*schema.get("properties", {}).values(), schema.get("items")]:
        _subset(one)
    for one in schema.get("anyOf", ()):
        _subset(one)


def _shape(config: Object) -> str:
    schema = "responseSchema" in config or "responseJsonSchema" in config
    if config.get("responseMimeType") != "application/json":
        if schema:
            raise Refusal("response_schema needs response_mime_type application/json.")
        return ""
    _subset(config.get("responseSchema"))
    return "schema" if schema else "object"


class _Contents:
    """The turns of a request: calls are answered in the next one, in their order."""

    def __init__(self, memory: Memory, asked: Asked) -> None:
        self._memory = memory
        self._asked = asked

    def read(self, contents: list[Object]) -> None:
        waiting: list[tuple[Handed, str | None]] = []
        for number, content in enumerate(contents):
            where = f"contents[{number}]"
            only({"role", "parts"}, content, f"{where}.")
            if content.get("role") not in ("user", "model"):
                raise Refusal("Please use a valid role: user, model.")
            if not content.get("parts"):
                raise Refusal(f"{where}.parts must not be empty.")
            for part in content["parts"]:
                only(PART, part, f"{where}.parts.")
                self._payload(part, where)
            if content["role"] == "model":
                waiting = self._model(content["parts"], where)
            else:
                self._user(content["parts"], waiting)
                waiting = []
        if waiting or contents[-1]["role"] != "user":
            raise Refusal("Please ensure that the conversation ends with a user turn.")

    def _payload(self, part: Object, where: str) -> None:
        if len(set(part) & {"text", "functionCall", "functionResponse", "inlineData"}) != 1:
            raise Refusal(f"{where}: exactly one of the data fields of a part must be set.")
        signature = part.get("thoughtSignature")
        if signature is None or signature == PROOF_SKIPPED:
            return
        try:
            base64.b64decode(signature, validate=True)
        except binascii.Error:
            raise Refusal(f"{where}: Base64 decoding failed for thought_signature.") from None
        if signature not in self._memory.proofs:
            raise Refusal(f"{where}: Corrupted thought signature.")

    def _model(self, parts: list[Object], where: str) -> list[tuple[Handed, str | None]]:
        """The calls of a turn, each with the id that it came with."""
        found: list[tuple[Handed, str | None]] = []
        for part in parts:
            if "functionCall" in part:
                handed = self._call(part, first=not found, where=where)
                found.append((handed, part["functionCall"].get("id")))
        if found:
            self._asked.steps += 1
        else:
            texts = [part["text"] for part in parts if not part.get("thought")]
            self._asked.said.append("".join(texts))
            back = any(part.get("thoughtSignature") in self._memory.proofs for part in parts)
            self._asked.proofs.append("returned" if back else "missing")
        return found

    def _call(self, part: Object, *, first: bool, where: str) -> Handed:
        call = part["functionCall"]
        only({"id", "name", "args"}, call, f"{where}.function_call.")
        handed = self._made(call)
        arguments_match(handed, call["name"], call.get("args", {}))
        signature = part.get("thoughtSignature")
        if handed.proof and first:
            if signature not in (handed.proof, PROOF_SKIPPED):
                raise Refusal(
                    "Function call is missing a thought_signature in functionCall parts. This is "
                    "required for tools to work correctly, and missing thought_signature may lead "
                    f"to degraded model performance. Function call `{call['name']}`."
                )
            self._asked.proofs.append("returned" if signature == handed.proof else "skipped")
        return handed

    def _made(self, call: Object) -> Handed:
        """The call of this id; one without an id is found by what it says."""
        if call.get("id") in self._memory.calls:
            return self._memory.calls[call["id"]]
        said = (call["name"], call.get("args"))
        for one in reversed(self._memory.calls.values()):
            if (one.plan.name, one.plan.arguments) == said:
                return one
        raise Refusal(f"the call {call} was never made")

    def _user(self, parts: list[Object], waiting: list[tuple[Handed, str | None]]) -> None:
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if len(answers) != len(waiting):
            raise Refusal(
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn."
            )
        for answer, (handed, id) in zip(answers, waiting, strict=True):
            only({"id", "name", "response"}, answer, "function_response.")
            if (answer["name"], answer.get("id")) != (handed.plan.name, id):
                raise Refusal(f"Function response {answer['name']} answers {handed.plan.name}.")
            told = list(answer["response"].values())
            text = str(told[0]) if len(told) == 1 else line(answer["response"])
            result_matches(handed, text)
            self._asked.results.append(Returned(handed.id, text))


# Answers


def _parts(said: Said) -> list[Object]:
    """The parts of an answer. Only the first call of a step is signed."""
    parts: list[Object] = []
    if said.thought:
        parts.append({"text": said.thought, "thought": True})
    if said.text:
        parts.append({"text": said.text})
    for number, call in enumerate(said.calls):
        named = {"name": call.plan.name, "args": call.plan.arguments}
        told: Object = {"functionCall": named if len(said.calls) > 1 else {**named, "id": call.id}}
        if said.proof and number == 0:
            told["thoughtSignature"] = said.proof
        parts.append(told)
    if said.proof and not said.calls:
        parts[-1] = {**parts[-1], "thoughtSignature": said.proof}
    return parts


def _usage(said: Said) -> Object:
    return {
        "promptTokenCount": 21,
        "cachedContentTokenCount": 5,
        "candidatesTokenCount": 6,
        "thoughtsTokenCount": 3,
        "totalTokenCount": 30,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 21}],
    }


def _frame(parts: list[Object], said: Said, head: Object, reason: str | None = None) -> Object:
    candidate: Object = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "usageMetadata": _usage(said), **head}


def _head(model: str, memory: Memory) -> Object:
    return {"modelVersion": f"{model}-2026", "responseId": memory.mint("", 22)}


def whole(said: Said, model: str, memory: Memory, body: Object) -> Object:
    return _frame(_parts(said), said, _head(model, memory), "STOP")


def stream(said: Said, model: str, memory: Memory, body: Object) -> list[str]:
    head = _head(model, memory)
    frames = [[one] for part in _parts(said) for one in _streamed(part)]
    told = [_frame(parts, said, head) for parts in frames]
    told.append(_frame([{"text": ""}], said, head, "STOP"))
    return [f"data: {line(one)}\r\n\r\n" for one in told]


def _streamed(part: Object) -> list[Object]:
    """A text in pieces; the signature comes with an empty one behind them."""
    if "text" not in part:
        return [part]
    rest = {key: value for key, value in part.items() if key not in ("text", "thoughtSignature")}
    found = [{"text": one, **rest} for one in pieces(part["text"], 9)]
    if "thoughtSignature" in part:
        found.append({"text": "", "thoughtSignature": part["thoughtSignature"]})
    return found


STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def error(status: int, message: str, param: str | None = None) -> Object:
    told: Object = {"code": status, "message": message, "status": STATUS[status]}
    if status == 429:
        kind = "type.googleapis.com/google.rpc.RetryInfo"
        told["details"] = [{"@type": kind, "retryDelay": "30s"}]
    return {"error": told}


def broken(message: str, frames: list[str]) -> list[str]:
    """The end of a stream that fails after these frames."""
    return [f"data: {line(error(OVERLOADED, message))}\r\n\r\n"]


def authorised(headers: dict[str, str], key: str) -> bool:
    return headers.get("x-goog-api-key") == key
