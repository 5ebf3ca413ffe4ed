"""A request body of the Messages wire, read into a canonical request.

A `system` text is the instructions; `system` blocks are one system message each, so that every
cache mark has its place. Blocks that only this wire has are kept as they are.
"""

from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.requests.parse_messages import contents, instruction, sealed
from weft.dialects.anthropic_messages.requests.parse_tools import choice, tools
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.asking.bridging import is_object
from weft.dialects.asking.leftovers import MESSAGE, kept, left
from weft.dialects.asking.verbatim import verbatim
from weft.dialects.asking.wording import legible
from weft.dialects.requests import Parsed, Places, read
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import (
    Effort,
    Message,
    OpaqueContent,
    OutputFormat,
    ReasoningOptions,
    Request,
    Sampling,
)

S = TypeVar("S", bound=msgspec.Struct)

_ROLES = frozenset({"user", "assistant", "system"})
_EFFORTS: dict[str | None, Effort] = {
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_TIERS = {"standard_only": "default"}
_SUMMARIES = {"summarized": "auto", "omitted": "none", None: None}
_json = msgspec.json.Encoder().encode


def parse(body: bytes, context: Context) -> Parsed:
    """Reads a body; raises BadRequest for what no request of this wire can be."""
    legible(body)
    found = read(body, schema.Body)
    places = Places(schema.FIELDS)
    extra = left(body, schema.Body)
    instructions, messages, sources = _conversation(found, context.origin or NAME, places)
    chosen, parallel = choice(found.tool_choice, extra)
    cache, marks = schema.cached(found.cache_control, "")
    config = _inner(found.output_config, schema.OutputConfig, "output_config", extra)
    metadata = _inner(found.metadata, schema.Metadata, "metadata", extra)
    request = Request(
        found.model,
        dialect=NAME,
        instructions=instructions,
        messages=messages,
        tools=tools(found, places),
        tool_choice=chosen,
        parallel_tool_calls=parallel,
        max_output_tokens=found.max_tokens,
        sampling=Sampling(found.temperature, found.top_p, found.top_k),
        stop=tuple(found.stop_sequences or ()),
        output=_output(config, extra),
        reasoning=_reasoning(found.thinking, _effort(config, extra), extra, places),
        stream=bool(found.stream),
        service_tier=_TIERS.get(found.service_tier or "", found.service_tier),
        user=metadata.user_id if metadata else None,
        cache=cache,
    )
    request = msgspec.structs.replace(request, extra=kept(extra, marks))
    return Parsed(_as_said(request, body, sources), places)


def _as_said(request: Request, body: bytes, sources: list[Raw | None]) -> Request:
    """Keeps how it was said; not if instructions head the messages: they belong to `system`."""
    first = next((one for one in zip(request.messages, sources, strict=True) if one[1]), None)
    hoisted = first is not None and first[0].role == "system"
    return request if hoisted else verbatim(request, body, sources)


def _inner(raw: Json, shape: type[S], path: str, extra: dict[str, Raw]) -> S | None:
    """An object inside a body; what a shape does not know of it is left over."""
    if not isinstance(raw, Raw) or bytes(raw) == b"null":
        return None
    found = read(raw, shape, path)
    extra |= left(raw, shape, under=path)
    return found


def _conversation(
    body: schema.Body, origin: str, places: Places
) -> tuple[str | None, tuple[Message, ...], list[Raw | None]]:
    instructions = body.system if isinstance(body.system, str) else None
    messages: list[Message] = []
    sources: list[Raw | None] = []
    for place, raw in enumerate(body.system if isinstance(body.system, list) else ()):
        path = f"system[{place}]"
        places.add(f"messages[{place}]", path)
        places.add(f"messages[{place}].content[0]", path)
        messages.append(Message("system", (instruction(raw, path),)))
        sources.append(None)
    for place, raw in enumerate(body.messages):
        path, canonical = f"messages[{place}]", f"messages[{len(messages)}]"
        places.add(canonical, path)
        role = read(raw, schema.Speaker, path).role
        if role not in _ROLES:
            places.add(f"{canonical}.content[0]", f"{path}.role")
            messages.append(Message("user", (OpaqueContent(NAME, MESSAGE, raw),)))
            sources.append(raw)
            continue
        said = read(raw, schema.Said, path)
        if said.content is None and said.role != "system":
            raise BadRequest(f"{path}.content", "is missing")
        found = contents(said.content or [], path, said.role, origin)
        for number, (_, where) in enumerate(found):
            places.add(f"{canonical}.content[{number}]", where)
        held = tuple(content for content, _ in found)
        messages.append(Message(said.role, held, extra=kept(left(raw, schema.Said))))
        sources.append(None if sealed(said.content or []) else raw)
    return instructions, tuple(messages), sources


def _effort(config: schema.OutputConfig | None, extra: dict[str, Raw]) -> Effort | None:
    """How hard to think; a word that nobody knows is left over."""
    wanted = config.effort if config else None
    effort = _EFFORTS.get(wanted)
    if wanted is not None and effort is None:
        extra["output_config.effort"] = Raw(_json(wanted))
    return effort


def _output(config: schema.OutputConfig | None, extra: dict[str, Raw]) -> OutputFormat:
    path = "output_config.format"
    raw = config.format if config else UNSET
    if not isinstance(raw, Raw) or bytes(raw) == b"null":
        return OutputFormat()
    if read(raw, schema.Typed, path).type != "json_schema":
        extra[path] = raw
        return OutputFormat()
    format = read(raw, schema.Format, path)
    extra |= left(raw, schema.Format, under=path)
    if not is_object(format.schema):
        raise BadRequest(f"{path}.schema", "expected an object")
    return OutputFormat("json-schema", schema=format.schema)


def _reasoning(
    raw: Json, effort: Effort | None, extra: dict[str, Raw], places: Places
) -> ReasoningOptions | None:
    if not isinstance(raw, Raw) or bytes(raw) == b"null":
        return None if effort is None else ReasoningOptions(effort)
    thinking = read(raw, schema.Thinking, "thinking")
    summary = _SUMMARIES.get(thinking.display)
    display = _unknown_display(thinking)
    match thinking.type:
        case "enabled":
            if thinking.budget_tokens is None:
                raise BadRequest("thinking.budget_tokens", "is needed to enable thinking")
            rest = kept(left(raw, schema.Thinking), display)
            return ReasoningOptions(effort, thinking.budget_tokens, False, summary, rest)
        case "adaptive":
            rest = kept(left(raw, schema.Typed, "display"), display)
            return ReasoningOptions(effort, None, True, summary, rest)
        case "disabled":
            return _disabled(raw, effort, places)
        case _:  # only this wire has it
            extra["thinking"] = raw
            return None if effort is None else ReasoningOptions(effort)


def _unknown_display(thinking: schema.Thinking) -> dict[str, Raw]:
    """How to show thinking, in a word that nobody knows."""
    if thinking.display in _SUMMARIES:
        return {}
    return {"display": Raw(_json(thinking.display))}


def _disabled(raw: Raw, effort: Effort | None, places: Places) -> ReasoningOptions:
    """No thinking. An effort beside it speaks of the answer, and is left over."""
    places.add("reasoning.effort", "thinking.type")
    said = {} if effort is None else {"effort": Raw(_json(effort))}
    return ReasoningOptions("none", extra=kept(left(raw, schema.Typed), said))
