"""A request body of generateContent, read into a canonical request.

The model and whether to stream are in the address: whoever read it fills them in.
"""

import msgspec
from msgspec import Raw

from weft.context import Context
from weft.dialects.asking.leftovers import MESSAGE, kept
from weft.dialects.asking.verbatim import verbatim
from weft.dialects.asking.wording import legible
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.parse_messages import Contents
from weft.dialects.gemini.requests.parse_tools import choice, tools
from weft.dialects.gemini.requests.schema_subset import json_schema
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests import Parsed, Places
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import (
    Effort,
    Message,
    OpaqueContent,
    OutputFormat,
    ReasoningOptions,
    Request,
    Role,
    Sampling,
)

_ROLES: dict[str, Role] = {"user": "user", "model": "assistant", "function": "tool", "tool": "tool"}
_EFFORTS: dict[str, Effort] = {
    "MINIMAL": "minimal",
    "LOW": "low",
    "MEDIUM": "medium",
    "HIGH": "high",
}
_CONFIG, _THINKING = "generationConfig", "generationConfig.thinkingConfig"
_TEXT_ONLY = Raw(b'["TEXT"]')
_json = msgspec.json.Encoder().encode


def parse(body: bytes, context: Context) -> Parsed:
    """Reads a body; raises BadRequest for what no request of this wire can be."""
    try:
        return _parse(body, context)
    except RecursionError:
        raise BadRequest("", "nested too deeply") from None


def _parse(body: bytes, context: Context) -> Parsed:
    legible(body)
    found, extra = schema.take(body, schema.Body)
    places = Places(schema.FIELDS)
    turns = _Turns(context, places)
    turns.instruct(found.system_instruction)
    for place, raw in enumerate(schema.many(found.contents, "contents")):
        turns.add(raw, f"contents[{place}]")
    config, rest = schema.inner(found.generation_config, schema.GenerationConfig, _CONFIG)
    config = config or schema.GenerationConfig()
    extra |= rest
    request = Request(
        found.model or "",
        dialect=NAME,
        messages=tuple(turns.messages),
        tools=tools(found.tools, places),
        tool_choice=choice(found.tool_config, extra),
        max_output_tokens=config.max_output_tokens,
        sampling=_sampling(config, extra),
        stop=tuple(config.stop_sequences or ()),
        output=_output(config, extra, places),
        reasoning=_reasoning(config.thinking_config, extra),
        choices=config.candidate_count or 1,
        stream=bool(found.stream),
    )
    if bytes(extra.get(f"{_CONFIG}.responseModalities", b"")).upper() == bytes(_TEXT_ONLY):
        del extra[f"{_CONFIG}.responseModalities"]  # what every answer is
    request = msgspec.structs.replace(request, extra=kept(extra))
    return Parsed(verbatim(request, schema.spelled(body), turns.sources), places)


class _Turns:
    """The messages read so far, and the bytes they may go out in again."""

    def __init__(self, context: Context, places: Places) -> None:
        self._contents = Contents(context, places)
        self._places = places
        self.messages: list[Message] = []
        self.sources: list[Raw | None] = []

    def instruct(self, raw: Json) -> None:
        told = schema.told(raw)
        if told is None:
            return
        content, _ = schema.take(told, schema.Content, "systemInstruction")
        parts = self._contents.read(content.parts, "systemInstruction", "messages[0]")
        self._places.add("messages[0]", "systemInstruction")
        self.messages.append(Message("system", parts))
        self.sources.append(None)

    def add(self, raw: Raw, path: str) -> None:
        content, rest = schema.take(raw, schema.Content, path)
        role = _ROLES.get(content.role or "user")
        canonical = f"messages[{len(self.messages)}]"
        self._places.add(canonical, path)
        if role is None:
            self._places.add(f"{canonical}.content[0]", f"{path}.role")
            self.messages.append(Message("user", (OpaqueContent(NAME, MESSAGE, raw),)))
            self.sources.append(raw)
            return
        parts = self._contents.read(content.parts, path, canonical)
        self.messages.append(Message(role, parts, extra=kept(rest)))
        self.sources.append(None if self._contents.sealed else raw)


def _sampling(config: schema.GenerationConfig, extra: dict[str, Raw]) -> Sampling:
    top_k = config.top_k
    if top_k is not None and not top_k.is_integer():
        raise BadRequest(f"{_CONFIG}.topK", "expected a whole number")
    logprobs = config.logprobs
    if config.response_logprobs and logprobs is None:
        logprobs = 0
    if logprobs is not None and config.response_logprobs is None:
        raise BadRequest(f"{_CONFIG}.logprobs", "goes with responseLogprobs")
    return Sampling(
        config.temperature,
        config.top_p,
        None if top_k is None else int(top_k),
        config.presence_penalty,
        config.frequency_penalty,
        config.seed,
        logprobs if config.response_logprobs else None,
    )


def _output(config: schema.GenerationConfig, extra: dict[str, Raw], places: Places) -> OutputFormat:
    plain, full = schema.told(config.response_schema), schema.told(config.response_json_schema)
    mime = config.response_mime_type
    if mime not in (None, "text/plain", schema.JSON_TYPE):  # a word from a list, and the like
        extra[f"{_CONFIG}.responseMimeType"] = Raw(_json(mime))
        if plain is not None:
            extra[f"{_CONFIG}.responseSchema"] = plain
        if full is not None:
            extra[f"{_CONFIG}.responseJsonSchema"] = full
        return OutputFormat()
    if full is None and plain is not None:
        places.add("output.schema", f"{_CONFIG}.responseSchema")
        full = json_schema(plain)
    if mime != schema.JSON_TYPE:
        if full is not None:
            detail = f"a schema needs the type {schema.JSON_TYPE}"
            raise BadRequest(f"{_CONFIG}.responseMimeType", detail)
        return OutputFormat()
    return OutputFormat("json") if full is None else OutputFormat("json-schema", schema=full)


def _reasoning(raw: Json, extra: dict[str, Raw]) -> ReasoningOptions | None:
    config, rest = schema.inner(raw, schema.ThinkingConfig, _THINKING)
    extra |= rest
    if config is None:
        return None
    effort = None
    if config.thinking_level is not None:
        effort = _EFFORTS.get(config.thinking_level.upper())
        if effort is None:
            extra[f"{_THINKING}.thinkingLevel"] = Raw(_json(config.thinking_level))
    budget = config.thinking_budget
    if budget is not None and budget < -1:
        raise BadRequest(f"{_THINKING}.thinkingBudget", "expected tokens, 0 for none, -1 for any")
    summary = None
    if config.include_thoughts is not None:
        summary = "auto" if config.include_thoughts else "none"
    dynamic = budget == -1
    return ReasoningOptions(effort, None if dynamic else budget, dynamic, summary)
