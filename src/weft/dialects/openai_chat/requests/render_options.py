"""Renders the options of a Chat Completions body."""

from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.openai_chat.quirks import quirks_of
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.options import OPTIONS
from weft.dialects.openai_chat.requests.passthrough import ChatPassthrough
from weft.dialects.openai_chat.requests.render_tools import ChatToolRenderer
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.openai_family import FAMILY_FIELDS, OpenAIFamilyOptions
from weft.dialects.requests.reasoning import effort_for_budget
from weft.dialects.requests.unknown_fields import report_dropped_extras, report_unknown
from weft.parts import Json
from weft.request import Request

MAX_STOPS = 4
"""How many stop sequences the API takes (API reference, `stop`)."""


def rejected_stops(request: Request) -> tuple[str, ...]:
    """Returns the stop sequences that are not sent, so that Weft must cut the answer at them: all
    if there are too many. Those of a client of this dialect are left to the host.
    """
    # All or none: with some of them at the host, two places would look for the first match.
    return request.stop if len(request.stop) > MAX_STOPS and request.dialect != NAME else ()


class ChatOptionRenderer:
    """Renders the options of one request."""

    def __init__(
        self, request: Request, context: Context, passthrough: ChatPassthrough, losses: Losses
    ) -> None:
        self._request = request
        self._quirks = quirks_of(context)
        self._native = passthrough.native
        self._family = OpenAIFamilyOptions(request, NAME, schema.SIBLING, losses)
        self._losses = losses

    def body(self, tools: ChatToolRenderer) -> schema.ChatRequestBody:
        """Returns the body, without messages, and without what came in fields unknown to Weft."""
        request, sampling, family = self._request, self._request.sampling, self._family
        if not self._native:
            family.report_unavailable(OPTIONS)
        limit = request.max_output_tokens
        # Hosts know one of the two names, and reject or ignore the other.
        deprecated = self._quirks.token_limit == "max_tokens"
        return schema.ChatRequestBody(
            model=request.model,
            messages=[],
            tools=tools.tools() or None,
            tool_choice=_unless_none(tools.tool_choice()),
            parallel_tool_calls=self._parallel_tool_calls(),
            web_search_options=tools.web_search(),
            max_completion_tokens=None if deprecated else limit,
            max_tokens=limit if deprecated else None,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            seed=sampling.seed,
            logprobs=None if sampling.logprobs is None else True,
            # 0 alternatives is what `logprobs: true` means by itself.
            top_logprobs=sampling.logprobs or None,
            logit_bias=fields_of(sampling.logit_bias) or None,
            stop=self._stop(),
            # Defaults are left out: hosts reject keys that they do not support, whatever the value.
            n=request.choices if request.choices > 1 else None,
            response_format=_unless_none(self._response_format()),
            verbosity=request.verbosity,
            reasoning_effort=family.effort(effort_for_budget),
            stream=request.stream or None,
            stream_options=schema.ChatStreamOptions(True) if request.include_usage else None,
            store=request.store if family.in_family else None,
            metadata=family.metadata(),
            user=family.user(),
            safety_identifier=family.safety_identifier(),
            prompt_cache_key=request.prompt_cache_key,
            prompt_cache_retention=family.cache_retention(),
            service_tier=family.service_tier(),
        )

    def unknown_fields(self) -> dict[str, Raw]:
        """Returns the fields of the request that Weft does not know: all if it came in this
        dialect, else those that both dialects of the family have."""
        reasoning = self._request.reasoning
        beside_effort = reasoning.extra if reasoning else UNSET
        extra = fields_of(self._request.extra)
        # Passed on unread: what a host of this dialect knows is not decided here.
        if self._native:
            return extra | fields_of(beside_effort)
        report_dropped_extras(beside_effort, "reasoning", self._losses, NAME)
        shared = {
            key: value
            for key, value in extra.items()
            if key in FAMILY_FIELDS and self._family.in_family
        }
        lost = {key: value for key, value in extra.items() if key not in shared}
        report_unknown(schema.to_raw(lost), "", self._losses, NAME)
        return shared

    def _parallel_tool_calls(self) -> bool | None:
        """Returns nothing without tools: the API rejects it there."""
        parallel = self._request.parallel_tool_calls
        if self._request.tools or self._native:
            return parallel
        if parallel is False:
            self._losses.adapted("parallel_tool_calls", "dropped: there are no tools")
        return None

    def _stop(self) -> list[str] | None:
        if rejected_stops(self._request):
            detail = f"{NAME} takes {MAX_STOPS} stop sequences; Weft cuts the answer itself"
            self._losses.adapted("stop", detail)
            return None
        return list(self._request.stop) or None

    def _response_format(self) -> schema.ChatResponseFormat | None:
        output = self._request.output
        if output.kind == "text":
            return None
        if output.kind == "json":
            return schema.ChatResponseFormat("json_object")
        name, strict = self._family.output_format()
        json_schema = schema.ChatJsonSchema(name, output.description, output.schema, strict)
        return schema.ChatResponseFormat("json_schema", json_schema)


def _unless_none(value: object) -> Json:
    return UNSET if value is None else schema.to_raw(value)
