"""What a renderer must know about the dialect that a request came in.

A row for each dialect stands here and not in its folder: the rows of `DIALECTS` import the
renderers, so that no renderer can look into them.

The fields are those that the canonical request has no place for; they are named by their path in
the body.
"""

from typing import NamedTuple


class SourceDialect(NamedTuple):
    """One dialect, as the renderers of the others see it."""

    essential: tuple[str, ...] = ()
    """Fields without which the response would mean something else: which tool is called, the format
    or medium of the output, earlier turns. A request that has one of them is refused."""

    essential_for_tools: tuple[str, ...] = ()
    """The same for tools: who may call what, with which arguments and whose approval, and what it
    works on."""

    known: tuple[str, ...] = ()
    """Fields that can be dropped with a warning. Any other is perhaps misspelled."""

    # Elsewhere a new answer follows such a message, so that nothing is lost.
    has_prefill: bool = False
    """Whether the answer continues a last message of the assistant."""


# Two dialects that share a field both list it.

SOURCE_DIALECTS: dict[str, SourceDialect] = {
    "openai-chat": SourceDialect(
        essential=("function_call", "modalities", "response_format", "tool_choice"),
        known=(
            "audio",
            "moderation",
            "prediction",
            "prompt_cache_breakpoint",
            "prompt_cache_options",
            "prompt_cache_retention",
            "reasoning_effort",
            "stream_options",
        ),
    ),
    "openai-responses": SourceDialect(
        essential=("conversation", "prompt", "text.format", "tool_choice"),
        essential_for_tools=(
            "allowed_callers",
            "allowed_tools",
            "container",  # of a code interpreter: its files
            "headers",  # of an MCP server: its credentials
            "require_approval",
        ),
        known=(
            "client_metadata",
            "context_management",
            "defer_loading",
            "external_web_access",
            "moderation",
            "namespace_description",
            "prompt_cache_breakpoint",
            "prompt_cache_options",
            "prompt_cache_retention",
            "search_content_types",
            "stream_options",
        ),
    ),
    "anthropic-messages": SourceDialect(
        essential=("container", "output_config.format", "thread"),
        essential_for_tools=("allowed_callers", "configs"),
        known=(
            "cache_control",
            "cache_control.ttl",
            "cache_control.type",
            "citations",
            "compaction",
            "context_management",
            "defer_loading",
            "diagnostics",
            "eager_input_streaming",
            "fallbacks",
            "inference_geo",
            "input_examples",
            "output_config.effort",
            "output_config.task_budget",
            "speed",
            "thinking",
            "thinking.display",
            "user_profile_id",
        ),
        has_prefill=True,
    ),
    "gemini": SourceDialect(
        essential=(
            "cachedContent",  # a prompt that is stored there
            "generationConfig.responseJsonSchema",
            "generationConfig.responseMimeType",
            "generationConfig.responseModalities",
            "generationConfig.responseSchema",
            "toolConfig.functionCallingConfig",
        ),
        essential_for_tools=(
            "parameters",  # beside `parametersJsonSchema`: one of them gets lost
            "streamableHttpTransport.headers",
        ),
        known=(
            "behavior",
            "generationConfig.mediaResolution",
            "generationConfig.speechConfig",
            "generationConfig.thinkingConfig.thinkingLevel",
            "labels",
            "safetySettings",
            "serviceTier",
            "store",
        ),
    ),
}

_NO_DIALECT = SourceDialect()


def source_dialect(name: str | None) -> SourceDialect:
    """Returns the row of a dialect. A request that was built without a body has none."""
    return SOURCE_DIALECTS.get(name or "", _NO_DIALECT)
