"""Renders the options of a Chat Completions body."""

from msgspec import UNSET, Raw

from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.options import UNAVAILABLE
from weft.dialects.openai_chat.requests.passthrough import ChatPassthrough
from weft.dialects.openai_chat.requests.render_tools import ChatToolRenderer
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of, set_fields
from weft.dialects.requests.openai_family import FAMILY_FIELDS, OpenAIFamilyOptions
from weft.dialects.requests.reasoning import effort_for_budget
from weft.dialects.requests.unknown_fields import report_dropped_extras, report_unknown
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
        self,
        request: Request,
        quirks: ChatQuirks,
        passthrough: ChatPassthrough,
        family: OpenAIFamilyOptions,
        losses: Losses,
    ) -> None:
        self._request = request
        self._quirks = quirks
        self._native = passthrough.native
        self._family = family
        self._losses = losses

    def fields(self, tools: ChatToolRenderer) -> dict[str, object]:
        """Returns the keys of the body that are set, without what came in fields unknown to Weft.
        `messages` is empty.
        """
        request, sampling, family = self._request, self._request.sampling, self._family
        if not self._native:
            family.report_unavailable(UNAVAILABLE)
        limit, reasoning = request.max_output_tokens, request.reasoning
        # Hosts know one of the two names, and reject or ignore the other.
        deprecated = self._quirks.token_limit == "max_tokens"
        fields: dict[str, object] = {"model": request.model, "messages": []}
        if request.tools:
            declared = tools.tools()
            fields |= {"tools": declared} if declared else {}
        choice = None if request.tool_choice is None else tools.tool_choice()
        # A plain request has few of them: what is not set is not asked about any further.
        body = schema.ChatRequestBody(
            model=request.model,
            messages=[],
            tool_choice=UNSET if choice is None else schema.to_raw(choice),
            parallel_tool_calls=self._parallel_tool_calls(),
            web_search_options=tools.web_search() if request.tools else None,
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
            stop=self._stop() if request.stop else None,
            # Defaults are left out: hosts reject keys that they do not support, whatever the value.
            n=request.choices if request.choices > 1 else None,
            response_format=UNSET if request.output.kind == "text" else self._response_format(),
            verbosity=request.verbosity,
            reasoning_effort=None if reasoning is None else family.effort(effort_for_budget),
            stream=request.stream or None,
            stream_options=schema.ChatStreamOptions(True) if request.include_usage else None,
            store=request.store if family.in_family else None,
            metadata=request.metadata and family.metadata(),
            user=request.user and family.user(),
            safety_identifier=request.safety_identifier and family.safety_identifier(),
            prompt_cache_key=request.prompt_cache_key,
            prompt_cache_retention=request.cache and family.cache_retention(),
            service_tier=None if request.service_tier is None else family.service_tier(),
        )
        return fields | set_fields(body)

    def unknown_fields(self) -> dict[str, Raw]:
        """Returns the fields of the request that Weft does not know: all if it came in this
        dialect, else those that both dialects of the family have."""
        reasoning = self._request.reasoning
        beside_effort = reasoning.extra if reasoning else UNSET
        if self._request.extra is UNSET and beside_effort is UNSET:
            return {}
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

    def _response_format(self) -> Raw:
        output = self._request.output
        if output.kind == "json":
            return schema.to_raw(schema.ChatResponseFormat("json_object"))
        name, strict = self._family.output_format()
        json_schema = schema.ChatJsonSchema(name, output.description, output.schema, strict)
        return schema.to_raw(schema.ChatResponseFormat("json_schema", json_schema))
