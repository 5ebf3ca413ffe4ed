"""The response object of every snapshot: the request's effective values, defaults filled in."""

from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.openai_responses import output_schema as schema
from weft.parts import Json, Usage
from weft.request import OutputFormat, Request, Tool, ToolChoice

T = TypeVar("T")

_NULL = Raw(b"null")


class _Naming(msgspec.Struct):
    conversation: str | schema.Conversation | None = None


_naming = msgspec.json.Decoder(_Naming).decode


def resource(id: str, created: int, model: str, request: Request | None) -> schema.Resource:
    """Returns the first snapshot; the encoder fills in what the stream brings."""
    asked = request or Request(model)
    sampling = asked.sampling
    reasoning = asked.reasoning
    return schema.Resource(
        id=id,
        created_at=created,
        model=model,
        previous_response_id=asked.previous_response_id,
        instructions=asked.instructions,
        tools=[_tool(tool) for tool in asked.tools],
        tool_choice=_tool_choice(asked.tool_choice),
        truncation=asked.truncation or "disabled",
        parallel_tool_calls=_or(asked.parallel_tool_calls, True),
        text=schema.Text(_format(asked.output), asked.verbosity or UNSET),
        top_p=_or(sampling.top_p, 1.0),
        presence_penalty=_or(sampling.presence_penalty, 0.0),
        frequency_penalty=_or(sampling.frequency_penalty, 0.0),
        top_logprobs=_or(sampling.logprobs, 0),
        temperature=_or(sampling.temperature, 1.0),
        reasoning=schema.ReasoningOptions(
            reasoning.effort if reasoning else None, reasoning.summary if reasoning else None
        ),
        max_output_tokens=asked.max_output_tokens,
        max_tool_calls=asked.max_tool_calls,
        store=_or(asked.store, False),
        background=asked.background,
        service_tier=asked.service_tier or "default",
        metadata=asked.metadata or {},
        safety_identifier=asked.safety_identifier or asked.user,
        prompt_cache_key=asked.prompt_cache_key,
        conversation=_conversation(asked.extra),
    )


def usage(told: Usage | None) -> schema.Usage | None:
    """Returns None unless input and output are both known: zero is never invented for them."""
    if told is None or told.input_tokens is None or told.output_tokens is None:
        return None
    written = told.cache_write_tokens
    return schema.Usage(
        told.input_tokens,
        told.output_tokens,
        _or(told.total_tokens, told.input_tokens + told.output_tokens),
        schema.InputDetails(_or(told.cache_read_tokens, 0), UNSET if written is None else written),
        schema.OutputDetails(_or(told.reasoning_tokens, 0)),
    )


def _conversation(extra: Json) -> schema.Conversation | UnsetType:
    """What the request named, by its id or as an object."""
    if not isinstance(extra, Raw):
        return UNSET
    try:
        named = _naming(extra).conversation
    except ValueError:  # whatever it is, it names none
        return UNSET
    return schema.Conversation(named) if isinstance(named, str) else named or UNSET


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _tool(tool: Tool) -> schema.FunctionTool | Raw:
    if tool.kind != "function" and isinstance(tool.raw, Raw):
        return tool.raw
    parameters = tool.parameters if isinstance(tool.parameters, Raw) else _NULL
    return schema.FunctionTool(tool.name, tool.description, parameters, tool.strict)


def _tool_choice(choice: ToolChoice | None) -> str | schema.NamedTool | schema.AllowedTools:
    if choice is None:
        return "auto"
    if choice.allowed:
        tools = [schema.NamedTool("function", name) for name in choice.allowed]
        return schema.AllowedTools(tools, choice.mode)
    return choice.mode if choice.name is None else schema.NamedTool(choice.kind, choice.name)


def _format(output: OutputFormat) -> schema.Format:
    """The specification's echo of a schema is null; the schema itself would be refused."""
    if output.kind == "json-schema":
        name = output.name or "output"
        return schema.Format("json_schema", name, output.description, None, output.strict)
    return schema.Format("json_object" if output.kind == "json" else "text")
