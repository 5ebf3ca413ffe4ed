"""Presets for well-known hosts, one row each: dialect, base URL, environment variable, quirks.

A row has quirks only where the host needs something other than the defaults, with the evidence: a
capture of `tests/captures/openai_chat`, or an error message of the host. Hosts of open models for
which there is no evidence get the older spelling, since all of them understand it.

Tool calls as markup and reasoning without an opening tag are habits of models, not of hosts
(captures markup-calls-tokens, markup-calls-json, orphan-think-closer): no preset has those quirks.
They are set for the upstream, by somebody who knows the model.
"""

from dataclasses import dataclass

import msgspec

from weft.cases import quirks_from
from weft.context import Quirks
from weft.dialects import DialectName
from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.errors import Unreadable


@dataclass(frozen=True, slots=True)
class Host:
    """A preset for a well-known host."""

    name: str
    dialect: str
    base_url: str | None
    """None: each account has its own."""

    variable: str | None = None
    """The environment variable that usually holds the key."""

    quirks: Quirks | None = None
    """None: the dialect's defaults."""

    needs_key: bool = True
    note: str = ""


_SYSTEM = ChatQuirks(developer_role=False)
"""Rejects the role `developer`; every host accepts `system`."""

_OLDER = ChatQuirks(developer_role=False, token_limit="max_tokens")
"""Chat Completions as they were before 2024."""

_THINKING = ChatQuirks(
    developer_role=False,
    token_limit="max_tokens",
    reasoning_back=("reasoning_content",),
)
"""As `_OLDER`, and reasoning that led to a tool call must be sent back."""

# OpenAI's own dialects. Its reasoning models refuse `max_tokens`, and only OpenAI and Azure take
# custom tools in chat; everywhere else they are sent as functions.

_OPENAI = (
    Host("openai", "openai-responses", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    Host(
        "openai-chat",
        "openai-chat",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        quirks=ChatQuirks(custom_tools=True),
        note="The same host by its older interface.",
    ),
    Host(
        "azure",
        "openai-responses",
        None,
        "AZURE_OPENAI_API_KEY",
        note="base_url: https://RESOURCE.openai.azure.com/openai/v1; models are deployments.",
    ),
    Host(
        # capture: prompt-filter-first, choice-without-delta
        # Its content filter has chunks of its own: one without choices, id and model before the
        # first text, and some without a delta between. They need no quirk.
        "azure-chat",
        "openai-chat",
        None,
        "AZURE_OPENAI_API_KEY",
        quirks=ChatQuirks(custom_tools=True),
        note="base_url: https://RESOURCE.openai.azure.com/openai/v1; models are deployments.",
    ),
    Host(
        "bedrock",
        "openai-chat",
        None,
        "AWS_BEARER_TOKEN_BEDROCK",
        note="base_url: https://bedrock-runtime.REGION.amazonaws.com/openai/v1.",
    ),
)

_OTHER_WIRES = (
    Host("anthropic", "anthropic-messages", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    Host("gemini", "gemini", "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
    Host(
        "xai",
        "openai-responses",
        "https://api.x.ai/v1",
        "XAI_API_KEY",
        note="Its Chat Completions are deprecated: xai-chat.",
    ),
)

# Servers of Chat Completions. What they stream differently is read by one rule for all; quirks are
# for what they refuse in a request.

_CHAT = (
    # capture: error-body-instead-of-stream
    # It may answer a request for a stream with status 200 and an error as JSON.
    Host("xai-chat", "openai-chat", "https://api.x.ai/v1", "XAI_API_KEY"),
    Host(
        "deepseek",
        "openai-chat",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        # capture: reasoning-content-field
        # It answers 400 to a call without its reasoning, and "unknown variant `developer`".
        quirks=_THINKING,
    ),
    Host(
        "moonshot",
        "openai-chat",
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        # capture: reasoning-content-field, ids-that-mean-something
        # Its documentation keeps reasoning in the conversation. Ids of calls (`functions.run:2`)
        # must come back as they are.
        quirks=ChatQuirks(developer_role=False, reasoning_back=("reasoning_content",)),
        note="In China: https://api.moonshot.cn/v1.",
    ),
    Host(
        "zai",
        "openai-chat",
        "https://api.z.ai/api/paas/v4",
        "ZAI_API_KEY",
        # capture: reasoning-content-field
        # Its documentation requires reasoning between calls to be returned; it answers "Incorrect
        # role information" to `developer`.
        quirks=_THINKING,
        note="In China: https://open.bigmodel.cn/api/paas/v4.",
    ),
    Host(
        "openrouter",
        "openai-chat",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        # capture: reasoning-and-its-details, signature-in-a-detail-of-its-own
        # capture: encrypted-detail-alone
        # The details hold the signatures, and must be sent back.
        quirks=ChatQuirks(reasoning_back=("reasoning", "reasoning_details")),
    ),
    Host(
        "mistral",
        "openai-chat",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        # capture: content-as-parts
        # Reasoning is a part of the content, which needs no quirk. It answers 422 "Extra inputs are
        # not permitted" to max_completion_tokens.
        quirks=_OLDER,
    ),
    Host(
        "dashscope",
        "openai-chat",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        # capture: id-empty-on-continuations
        # Later pieces of a call have an empty id, which is read as none. It answers "developer is
        # not one of ['system', 'assistant', 'user', 'tool', 'function']".
        quirks=_OLDER,
        note="In China: https://dashscope.aliyuncs.com/compatible-mode/v1.",
    ),
    # capture: whole-call-in-one-delta, reasoning-field
    # Both send a call whole, and reasoning as `reasoning`.
    Host("groq", "openai-chat", "https://api.groq.com/openai/v1", "GROQ_API_KEY", _SYSTEM),
    Host("cerebras", "openai-chat", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", _SYSTEM),
    Host("together", "openai-chat", "https://api.together.ai/v1", "TOGETHER_API_KEY", _OLDER),
    Host(
        "fireworks",
        "openai-chat",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        _THINKING,  # capture: reasoning-content-field
    ),
    Host(
        "perplexity",
        "openai-chat",
        "https://api.perplexity.ai",
        "PERPLEXITY_API_KEY",
        _OLDER,  # capture: citations-on-every-chunk
        note="Its address has no /v1.",
    ),
    Host("nvidia", "openai-chat", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY", _OLDER),
    Host(
        "deepinfra",
        "openai-chat",
        "https://api.deepinfra.com/v1/openai",
        "DEEPINFRA_API_KEY",
        _OLDER,
    ),
    Host("sambanova", "openai-chat", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY", _OLDER),
    Host("huggingface", "openai-chat", "https://router.huggingface.co/v1", "HF_TOKEN", _OLDER),
    Host("github", "openai-chat", "https://models.github.ai/inference", "GITHUB_TOKEN"),
    Host(
        "vercel",
        "openai-chat",
        "https://ai-gateway.vercel.sh/v1",
        "AI_GATEWAY_API_KEY",
    ),
)

_LOCAL = (
    Host(
        "ollama",
        "openai-chat",
        "http://127.0.0.1:11434/v1",
        None,
        # capture: index-zero-distinct-ids, no-id-at-all
        # Parallel calls may all have index 0, and calls of some models no id.
        _OLDER,
        needs_key=False,
    ),
    Host(
        "vllm",
        "openai-chat",
        "http://127.0.0.1:8000/v1",
        "VLLM_API_KEY",
        # capture: reasoning-field
        # Newer versions use this name in both directions; what a chat template makes of `developer`
        # depends on the model.
        ChatQuirks(developer_role=False, reasoning_back=("reasoning",)),
        needs_key=False,
    ),
    Host(
        "sglang",
        "openai-chat",
        "http://127.0.0.1:30000/v1",
        None,
        _THINKING,  # capture: reasoning-content-field, name-after-arguments
        needs_key=False,
    ),
    Host(
        "llamacpp",
        "openai-chat",
        "http://127.0.0.1:8080/v1",
        None,
        _THINKING,  # capture: reasoning-content-field
        needs_key=False,
        note="llama-server.",
    ),
    Host(
        "lmstudio",
        "openai-chat",
        "http://127.0.0.1:1234/v1",
        None,
        # capture: id-differs-on-later-fragments, phantom-entry
        # Every piece of a call may have another id, and an entry without a name may follow.
        _OLDER,
        needs_key=False,
    ),
    Host(
        "litellm",
        "openai-chat",
        "http://127.0.0.1:4000/v1",
        "LITELLM_API_KEY",
        needs_key=False,
    ),
)

_DEMO = Host(
    "demo",
    "openai-chat",
    "demo:",
    # its reasoning model signs its reasoning, and requires it back
    quirks=ChatQuirks(reasoning_back=("reasoning_content", "reasoning_details")),
    needs_key=False,
    note="Built in; needs no network.",
)

HOSTS: dict[str, Host] = {
    host.name: host for host in (_DEMO, *_OPENAI, *_OTHER_WIRES, *_CHAT, *_LOCAL)
}
"""By name: the demo first, then remote hosts, then local servers."""


_read_object = msgspec.json.Decoder(dict[str, object]).decode


def parse_quirks(text: str, dialect: DialectName) -> Quirks | None:
    """The quirks that somebody names for a capture of a dialect: a preset, or a JSON object of some
    of its quirks. Raises Unreadable."""
    if text.lstrip().startswith("{"):
        try:
            return quirks_from(_read_object(text), dialect)
        except msgspec.DecodeError as problem:
            raise Unreadable(f"not a JSON object: {problem}") from None
    host = HOSTS.get(text)
    if host is None:
        expected = "expected a preset (weft config presets), or a JSON object"
        raise Unreadable(f"{text[:50]!r}; {expected}")
    if host.dialect != dialect:
        raise Unreadable(f"{text} speaks {host.dialect}, not {dialect}")
    return host.quirks
