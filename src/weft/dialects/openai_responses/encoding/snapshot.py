"""The response object of every snapshot: the effective values of the request, defaults included."""

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.render_tools import render_tool_choice
from weft.dialects.raw_json import decode_or_default
from weft.request import OutputFormat, Request, Tool


# All five keys of a tool are required in the echo, though three may be null; in a request they are
# optional.
class EchoedFunctionTool(schema.FunctionToolParam, tag="function", omit_defaults=False):
    """A function of the request, with all its keys."""


class EchoedJsonSchema(schema.TextFormatParam, omit_defaults=False):
    """The output format of the request, with all its keys."""


# Both keys are required; the specification's own example `{}` fails its schema.
class EchoedReasoning(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class ResponseConversation(msgspec.Struct):
    """The conversation of a response. Open Responses has none; it is written if the request named
    one.
    """

    id: str


class ResponseResource(msgspec.Struct, kw_only=True):
    """The response object of every snapshot. The specification requires all its keys, null where
    there is no value.
    """

    # In the order of the specification. `created_at` and `completed_at` are integers, and a tier of
    # null is rejected, as are nulls in place of the sampling defaults.
    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: str = "in_progress"
    incomplete_details: wire.IncompleteDetails | None = None
    model: str
    previous_response_id: str | None = None
    instructions: str | None = None
    output: list[wire.RenderedItem] = []
    error: wire.ResponseError | None = None
    tools: list[EchoedFunctionTool | Raw] = []
    tool_choice: str | schema.ResponsesToolChoice | Raw = "auto"
    truncation: str = "disabled"
    parallel_tool_calls: bool = True
    text: schema.TextParam
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    temperature: float = 1.0
    reasoning: EchoedReasoning
    usage: wire.ResponsesUsage | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    store: bool = False
    background: bool = False
    service_tier: str = "default"
    metadata: dict[str, str]
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Not in the specification, which allows more keys everywhere.
    conversation: ResponseConversation | UnsetType = UNSET
    required_action: wire.RequiredAction | UnsetType | None = UNSET


class _EchoedExtras(msgspec.Struct):
    conversation: str | ResponseConversation | None = None
    # One that Weft does not understand. Without a choice the API's default is `auto`.
    tool_choice: Raw = Raw(b'"auto"')


_NO_EXTRAS = _EchoedExtras()


def new_response(
    id: str, created: int, model: str, maybe_request: Request | None
) -> ResponseResource:
    """Returns the first snapshot. The encoder updates it."""
    # Without a request (a capture on the command line) all values are defaults.
    request = maybe_request or Request(model)
    sampling = request.sampling
    reasoning = request.reasoning
    extras = _NO_EXTRAS
    if request.extra is not UNSET:
        extras = decode_or_default(request.extra, _EchoedExtras)
    conversation = extras.conversation  # by id or as an object
    if isinstance(conversation, str):
        conversation = ResponseConversation(conversation)
    tool_choice: str | schema.ResponsesToolChoice | Raw = extras.tool_choice
    if request.tool_choice is not None:
        tool_choice = render_tool_choice(
            request.tool_choice, request.tools, lambda tool, path: tool.name
        )
    return ResponseResource(
        id=id,
        created_at=created,
        model=model,
        previous_response_id=request.previous_response_id,
        instructions=request.instructions,
        tools=[_tool(tool) for tool in request.tools] if request.tools else [],
        tool_choice=tool_choice,
        truncation=request.truncation or "disabled",
        parallel_tool_calls=request.parallel_tool_calls is not False,
        text=schema.TextParam(_format(request.output), request.verbosity or None),
        top_p=1.0 if sampling.top_p is None else sampling.top_p,
        presence_penalty=0.0 if sampling.presence_penalty is None else sampling.presence_penalty,
        frequency_penalty=0.0 if sampling.frequency_penalty is None else sampling.frequency_penalty,
        top_logprobs=sampling.logprobs or 0,
        temperature=1.0 if sampling.temperature is None else sampling.temperature,
        reasoning=EchoedReasoning(
            reasoning.effort if reasoning else None, reasoning.summary if reasoning else None
        ),
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        store=request.store or False,
        background=request.background,
        service_tier=request.service_tier or "default",
        metadata=request.metadata or {},
        # `user` is the deprecated predecessor of this field.
        safety_identifier=request.safety_identifier or request.user,
        prompt_cache_key=request.prompt_cache_key,
        conversation=conversation or UNSET,
    )


def _tool(tool: Tool) -> EchoedFunctionTool | Raw:
    if tool.kind != "function" and isinstance(tool.raw, Raw):
        return tool.raw
    parameters = wire.present_or(tool.parameters, wire.NULL)
    return EchoedFunctionTool(tool.name, tool.description, parameters, tool.strict)


def _format(output: OutputFormat) -> Raw:
    """Returns the text format. The specification requires a null schema here and rejects the real
    one (a defect of its ResponseResource).
    """
    if output.kind == "json-schema":
        name = output.name or "output"
        echoed = EchoedJsonSchema("json_schema", name, output.description, wire.NULL, output.strict)
        return schema.to_raw(echoed)
    return _JSON_FORMAT if output.kind == "json" else _TEXT_FORMAT


_TEXT_FORMAT = schema.to_raw(schema.TextFormatParam("text"))
_JSON_FORMAT = schema.to_raw(schema.TextFormatParam("json_object"))
