"""The response object of every snapshot: the effective values of the request, defaults included."""

from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.openai_responses import wire
from weft.parts import Json
from weft.request import OutputFormat, Request, Tool, ToolChoice

T = TypeVar("T")

_NULL = Raw(b"null")


class _ConversationField(msgspec.Struct):
    conversation: str | wire.ResponseConversation | None = None


_decode_conversation = msgspec.json.Decoder(_ConversationField).decode


def new_response(
    id: str, created: int, model: str, maybe_request: Request | None
) -> wire.ResponseResource:
    """Returns the first snapshot. The encoder updates it."""
    request = maybe_request or Request(model)
    sampling = request.sampling
    reasoning = request.reasoning
    return wire.ResponseResource(
        id=id,
        created_at=created,
        model=model,
        previous_response_id=request.previous_response_id,
        instructions=request.instructions,
        tools=[_tool(tool) for tool in request.tools],
        tool_choice=_tool_choice(request.tool_choice),
        truncation=request.truncation or "disabled",
        parallel_tool_calls=_or(request.parallel_tool_calls, True),
        text=wire.EchoedText(_format(request.output), request.verbosity or UNSET),
        top_p=_or(sampling.top_p, 1.0),
        presence_penalty=_or(sampling.presence_penalty, 0.0),
        frequency_penalty=_or(sampling.frequency_penalty, 0.0),
        top_logprobs=_or(sampling.logprobs, 0),
        temperature=_or(sampling.temperature, 1.0),
        reasoning=wire.EchoedReasoning(
            reasoning.effort if reasoning else None, reasoning.summary if reasoning else None
        ),
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        store=_or(request.store, False),
        background=request.background,
        service_tier=request.service_tier or "default",
        metadata=request.metadata or {},
        safety_identifier=request.safety_identifier or request.user,
        prompt_cache_key=request.prompt_cache_key,
        conversation=_conversation(request.extra),
    )


def _conversation(extra: Json) -> wire.ResponseConversation | UnsetType:
    """Returns the conversation that the request named, by id or as an object."""
    if not isinstance(extra, Raw):
        return UNSET
    try:
        conversation = _decode_conversation(extra).conversation
    except ValueError:  # not a conversation
        return UNSET
    return (
        wire.ResponseConversation(conversation)
        if isinstance(conversation, str)
        else conversation or UNSET
    )


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _tool(tool: Tool) -> wire.EchoedFunctionTool | Raw:
    if tool.kind != "function" and isinstance(tool.raw, Raw):
        return tool.raw
    parameters = tool.parameters if isinstance(tool.parameters, Raw) else _NULL
    return wire.EchoedFunctionTool(tool.name, tool.description, parameters, tool.strict)


def _tool_choice(
    choice: ToolChoice | None,
) -> str | wire.EchoedToolName | wire.EchoedAllowedTools:
    if choice is None:
        return "auto"
    if choice.allowed:
        tools = [wire.EchoedToolName("function", name) for name in choice.allowed]
        return wire.EchoedAllowedTools(tools, choice.mode)
    return choice.mode if choice.name is None else wire.EchoedToolName(choice.kind, choice.name)


def _format(output: OutputFormat) -> wire.EchoedTextFormat:
    """Returns the text format. The specification requires a null schema here and rejects the real
    one (a defect of its ResponseResource).
    """
    if output.kind == "json-schema":
        name = output.name or "output"
        return wire.EchoedTextFormat("json_schema", name, output.description, None, output.strict)
    return wire.EchoedTextFormat("json_object" if output.kind == "json" else "text")
