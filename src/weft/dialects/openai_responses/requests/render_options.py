"""Renders the options of a Responses body."""

from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.options import UNAVAILABLE
from weft.dialects.openai_responses.requests.passthrough import ResponsesPassthrough
from weft.dialects.openai_responses.requests.render_tools import ResponsesToolRenderer
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of, set_fields
from weft.dialects.requests.openai_family import (
    FAMILY_FIELDS,
    OpenAIFamilyOptions,
)
from weft.dialects.requests.reasoning import effort_for_budget
from weft.dialects.requests.unknown_fields import report_dropped_extras, report_unknown
from weft.parts import Json
from weft.request import ReasoningOptions, Request

MIN_OUTPUT_TOKENS = 16
"""The smallest `max_output_tokens` that the API accepts."""


def _optional_raw(value: object) -> Json:
    return UNSET if value is None else schema.to_raw(value)


_DEFAULTS = ResponsesQuirks()


class ResponsesOptionsRenderer:
    """Renders the options of one request."""

    def __init__(
        self,
        request: Request,
        context: Context,
        passthrough: ResponsesPassthrough,
        family: OpenAIFamilyOptions,
        losses: Losses,
    ) -> None:
        quirks = context.quirks
        self._quirks = quirks if isinstance(quirks, ResponsesQuirks) else _DEFAULTS
        self._request = request
        self._passthrough = passthrough
        self._family = family
        self._losses = losses

    def fields(self, tools: ResponsesToolRenderer) -> dict[str, object]:
        """Returns the fields that are set. `input` is empty."""
        request, sampling, family = self._request, self._request.sampling, self._family
        same_dialect = self._passthrough.same_dialect
        # A request of this dialect may set whatever it likes; the upstream judges.
        if not same_dialect:
            family.report_unavailable(UNAVAILABLE)
        if request.stop:
            self._losses.adapted(
                "stop", f"{NAME} has no stop sequences; Weft cuts the answer itself"
            )
        fields: dict[str, object] = {"model": request.model, "input": []}
        if request.instructions is not None:
            fields["instructions"] = request.instructions
        if request.tools:
            declared = tools.tools()
            fields |= {"tools": declared} if declared else {}
        # A plain request has few of them: what is not set is not asked about any further.
        choice = None if request.tool_choice is None else tools.tool_choice()
        is_text = request.output.kind == "text" and not request.verbosity
        body = schema.ResponseCreateParams(
            model=request.model,
            input=[],
            tool_choice=_optional_raw(choice),
            parallel_tool_calls=request.parallel_tool_calls,
            max_tool_calls=request.max_tool_calls,
            max_output_tokens=self._max_output_tokens(),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            presence_penalty=sampling.presence_penalty if same_dialect else None,
            frequency_penalty=sampling.frequency_penalty if same_dialect else None,
            # 0 alternatives are asked for by `include` alone.
            top_logprobs=sampling.logprobs or None,
            text=None if is_text else self._text(),
            include=self._include() or None,
            stream=request.stream or None,
            store=self._store(),
            background=request.background or None,
            previous_response_id=request.previous_response_id,
            truncation=request.truncation,
            service_tier=None if request.service_tier is None else family.service_tier(),
            metadata=request.metadata and family.metadata(),
            user=request.user and family.user(),
            safety_identifier=request.safety_identifier and family.safety_identifier(),
            prompt_cache_key=request.prompt_cache_key,
            prompt_cache_retention=request.cache and family.cache_retention(),
        )
        return fields | set_fields(body)

    def extra(self) -> dict[str, Raw]:
        """Returns the unknown fields that are sent: all from this dialect, and those that Chat
        Completions shares. Others are reported as losses.
        """
        if self._request.extra is UNSET:
            return {}
        extra = fields_of(self._request.extra)
        # A request that was built in code for this API has fields of this API.
        if self._passthrough.own_ids:
            return extra
        shared = {
            key: value
            for key, value in extra.items()
            if key in FAMILY_FIELDS and self._family.in_family
        }
        rest = {key: value for key, value in extra.items() if key not in shared}
        report_unknown(schema.to_raw(rest), "", self._losses, NAME)
        return shared

    def reasoning(self, reasoning: ReasoningOptions) -> dict[str, Raw]:
        """Renders `reasoning`, including fields that only this dialect has."""
        effort = self._family.effort(effort_for_budget)
        if not self._passthrough.own_ids:
            report_dropped_extras(reasoning.extra, "reasoning", self._losses, NAME)
        # No summary is the default here, and has no word.
        summary = None if reasoning.summary == "none" else reasoning.summary
        fields = fields_of(reasoning.extra) if self._passthrough.own_ids else {}
        fields |= fields_of(schema.to_raw(schema.ReasoningParam(effort, summary)))
        # An empty object says nothing; from a client of this dialect it is passed on anyway.
        is_sent = fields or self._passthrough.same_dialect
        return {"reasoning": schema.to_raw(fields)} if is_sent else {}

    def _max_output_tokens(self) -> int | None:
        limit = self._request.max_output_tokens
        if not limit or limit >= MIN_OUTPUT_TOKENS or self._passthrough.same_dialect:
            return limit  # 0 is refused
        self._losses.warned(
            "max_output_tokens",
            f"{limit} is below the minimum of {NAME}; using {MIN_OUTPUT_TOKENS}",
        )
        return MIN_OUTPUT_TOKENS

    def _include(self) -> list[str]:
        """Renders `include`. A response that is not stored must carry its encrypted reasoning, so
        that the client can send it back.
        """
        include = [name for name in self._request.include if name not in schema.GATEWAY_INCLUDES]
        if self._passthrough.same_dialect:
            return include
        if self._request.sampling.logprobs is not None and schema.INCLUDE_LOGPROBS not in include:
            include.append(schema.INCLUDE_LOGPROBS)
        encrypted = self._quirks.stateless_reasoning and not self._store()
        if encrypted and schema.INCLUDE_ENCRYPTED not in include:
            include.append(schema.INCLUDE_ENCRYPTED)
        return include

    def _store(self) -> bool | None:
        """Renders `store`. This API stores responses by default; the others do not."""
        store = self._request.store
        return store if store is not None or self._passthrough.same_dialect else False

    def _text(self) -> schema.TextParam | None:
        output, verbosity = self._request.output, self._request.verbosity
        format: schema.TextFormatParam | None = None
        if output.kind == "json":
            format = schema.TextFormatParam("json_object")
        elif output.kind == "json-schema":
            name, strict = self._family.output_format()
            # `schema` is required in this format.
            json_schema = output.schema if isinstance(output.schema, Raw) else Raw(b"{}")
            format = schema.TextFormatParam(
                "json_schema", name, output.description, json_schema, strict
            )
        return schema.TextParam(_optional_raw(format), verbosity) if format or verbosity else None
