"""A client of generateContent over plain HTTP, as the public description has it.

Parts go back as they came, signatures included. It reads lines as the official package does: a
line is `data: ` and JSON, or blank; anything else is an error.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.clients.case import ABOUT, PARAMETERS, Case, Forecast, Outcome
from tests.clients.vendor import Object


class GeminiError(Exception):
    """An error as the wire tells it."""

    def __init__(self, error: Object, headers: dict[str, str]) -> None:
        super().__init__(error["message"])
        self.status_code = error["code"]
        self.status = error["status"]
        self.headers = headers


class Incomplete(Exception):
    """A stream that ended without a reason."""


_clients: dict[tuple[str, str], httpx.AsyncClient] = {}


def client(base: str, key: str) -> httpx.AsyncClient:
    """One for each place: clients keep their connections."""
    if (base, key) not in _clients:
        _clients[base, key] = httpx.AsyncClient(
            base_url=base, headers={"x-goog-api-key": key}, timeout=20, trust_env=False
        )
    return _clients[base, key]


async def close() -> None:
    while _clients:
        _, kept = _clients.popitem()
        await kept.aclose()


async def generate(case: Case) -> Outcome:
    contents: list[Any] = []
    asked: Object = {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": contents,
    }
    if case.tools:
        declared = [
            {"name": name, "description": ABOUT[name], "parametersJsonSchema": schema}
            for name, schema in PARAMETERS.items()
        ]
        asked["tools"] = [{"functionDeclarations": declared}]
    config: Object = {}
    if case.thinks:
        config["thinkingConfig"] = {"includeThoughts": True, "thinkingBudget": 2048}
    if case.shaped:
        config["responseMimeType"] = "application/json"
    if case.shaped and not case.json_mode:
        config["responseJsonSchema"] = Forecast.model_json_schema()
    if config:
        asked["generationConfig"] = config
    for prompt in case.prompts:
        contents.append({"role": "user", "parts": [{"text": prompt}]})
        parts, usage = await _turns(case, asked)
    text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
    return Outcome(
        text,
        "".join(part["text"] for part in parts if part.get("thought")),
        Forecast.model_validate_json(text) if case.shaped else None,
        (
            usage["promptTokenCount"],
            usage["candidatesTokenCount"] + usage.get("thoughtsTokenCount", 0),
        ),
    )


async def _turns(case: Case, asked: Object) -> tuple[list[Object], Object]:
    """Answers calls until there are none."""
    while True:
        parts, usage = await _turn(case, asked)
        asked["contents"].append({"role": "model", "parts": parts})
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        if not calls:
            return parts, usage
        answers = [_answered(case, call) for call in calls]
        asked["contents"].append({"role": "user", "parts": answers})


def _answered(case: Case, call: Object) -> Object:
    result = case.run(call["name"], call.get("args", {}))
    id = {"id": call["id"]} if "id" in call else {}
    return {"functionResponse": {**id, "name": call["name"], "response": {"output": result}}}


async def _turn(case: Case, asked: Object) -> tuple[list[Object], Object]:
    """The parts of an answer, and what it cost."""
    http = client(case.base, case.key)
    path = f"/v1beta/models/{case.model}"
    if not case.stream:
        answer = await http.post(f"{path}:generateContent", json=asked)
        body = answer.json()
        _raise(body, answer)
        return body["candidates"][0]["content"]["parts"], body["usageMetadata"]
    parts: list[Object] = []
    usage: Object = {}
    reason = ""
    async with http.stream("POST", f"{path}:streamGenerateContent?alt=sse", json=asked) as answer:
        if answer.status_code != 200:
            _raise(json.loads(await answer.aread()), answer)
        async for frame in _frames(answer):
            _raise(frame, answer)
            (candidate,) = frame["candidates"]
            parts += [part for part in candidate["content"]["parts"] if part != {"text": ""}]
            usage |= frame.get("usageMetadata", {})
            reason = candidate.get("finishReason", reason)
            if any("text" in part and not part.get("thought") for part in parts):
                case.heard()
    if not reason:
        raise Incomplete
    return parts, usage


async def _frames(answer: httpx.Response) -> AsyncIterator[Object]:
    async for line in answer.aiter_lines():
        if line:
            assert line.startswith("data: "), line
            yield json.loads(line.removeprefix("data: "))


def _raise(body: Object, answer: httpx.Response) -> None:
    if "error" in body:
        raise GeminiError(body["error"], dict(answer.headers))
