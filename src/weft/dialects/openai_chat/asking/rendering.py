"""Writes a Chat Completions body: its messages and tools, its options, and what is missing."""

from operator import attrgetter

from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.asking.bridging import Names, effort_of
from weft.dialects.asking.leftovers import drop, drop_beside
from weft.dialects.asking.verbatim import Meaning, fields_as_said, said_by
from weft.dialects.asking.wording import FAMILY, Kin, Refused, Warned
from weft.dialects.openai_chat.asking import asked
from weft.dialects.openai_chat.asking.sent_contents import messages
from weft.dialects.openai_chat.asking.sent_tools import Tools
from weft.dialects.openai_chat.quirks import quirks_of
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests import Losses, Rendered, keys_of
from weft.parts import Json
from weft.request import OutputFormat, ReasoningOptions, Request

STOPS = 4
"""How many stop sequences the wire takes."""

_offer = attrgetter("tools", "tool_choice", "parallel_tool_calls")
_choice = attrgetter("tools", "tool_choice", "parallel_tool_calls", "extra")
_tokens = attrgetter("max_output_tokens")
_logprobs = attrgetter("sampling.logprobs")

MEANING: Meaning = {
    "model": attrgetter("model"),
    "tools": _offer,
    "tool_choice": _choice,
    "parallel_tool_calls": _offer,
    "functions": _offer,
    "function_call": _choice,
    "web_search_options": _offer,
    "max_completion_tokens": _tokens,
    "max_tokens": _tokens,
    "temperature": attrgetter("sampling.temperature"),
    "top_p": attrgetter("sampling.top_p"),
    "presence_penalty": attrgetter("sampling.presence_penalty"),
    "frequency_penalty": attrgetter("sampling.frequency_penalty"),
    "seed": attrgetter("sampling.seed"),
    "logit_bias": attrgetter("sampling.logit_bias"),
    "logprobs": _logprobs,
    "top_logprobs": _logprobs,
    "stop": attrgetter("stop"),
    "n": attrgetter("choices"),
    "response_format": attrgetter("output", "extra"),
    "verbosity": attrgetter("verbosity"),
    "reasoning_effort": attrgetter("reasoning"),
    "stream": attrgetter("stream"),
    "stream_options": attrgetter("stream", "include_usage", "extra"),
    "store": attrgetter("store"),
    "metadata": attrgetter("metadata"),
    "user": attrgetter("user"),
    "safety_identifier": attrgetter("safety_identifier"),
    "prompt_cache_key": attrgetter("prompt_cache_key"),
    "prompt_cache_retention": attrgetter("cache", "extra"),
    "service_tier": attrgetter("service_tier"),
}

_NULL = Raw(b"null")
_REFUSED: Refused = (
    ("previous_response_id", lambda one: one.previous_response_id is not None, "send the messages"),
    ("max_output_tokens", lambda one: one.max_output_tokens == 0, "ask for at least one token"),
)

_NEEDLESS = frozenset(
    {"reasoning.encrypted_content", "message.output_text.logprobs"}
    | {"reasoning.raw", "required_action"}
)
"""What other fields ask for here, or what no upstream is asked for."""

_WARNED: Warned = (
    ("max_tool_calls", lambda one: one.max_tool_calls is not None),
    ("background", lambda one: one.background),
    ("truncation", lambda one: one.truncation not in (None, "disabled")),
    ("sampling.top_k", lambda one: one.sampling.top_k is not None),
    ("betas", lambda one: bool(one.betas)),
    ("include", lambda one: bool(set(one.include) - _NEEDLESS)),
    ("reasoning.summary", lambda one: _shown(one.reasoning)),
)


def _shown(thought: ReasoningOptions | None) -> bool:
    """Whether reasoning was to be seen, and there is any."""
    if thought is None or thought.effort == "none":
        return False
    return thought.summary not in (None, "none")


def _cut(request: Request) -> tuple[str, ...]:
    """The stop sequences that the wire does not take: all, if there are too many. What a client of
    this wire asks for is left to the host.
    """
    return request.stop if len(request.stop) > STOPS and request.dialect != NAME else ()


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body. What nobody changed is as it came, where nothing got lost."""
    names = Names(request, "a-zA-Z0-9_-", 64, losses)
    said = messages(request, context, names, losses)
    before = len(losses.found)
    body = _Body(request, context, losses)
    tools = Tools(request, context, names, losses)
    written = keys_of(asked.raw(body.fields(said, tools)))
    for key, value in body.extra().items():
        own = keys_of(written[key]) if key == "stream_options" and key in written else {}
        written[key] = asked.raw(keys_of(value) | own) if own else written.get(key, value)
    if len(losses.found) == before:
        written = fields_as_said(said_by(request, NAME), request, written, MEANING)
    written["messages"] = asked.raw(said)
    if request.stream:
        told = written.get("stream_options", _NULL)
        options = {} if told == _NULL else keys_of(told)
        written["stream_options"] = asked.raw({"include_usage": True} | options)
    encoded = large_json.write(written)
    return Rendered(encoded, names.restored, tools.bridged, _cut(request))


def _told(value: object) -> Json:
    return UNSET if value is None else asked.raw(value)


class _Body:
    """The fields of one request, in the words of this wire."""

    def __init__(self, request: Request, context: Context, losses: Losses) -> None:
        self._quirks = quirks_of(context)
        self._request = request
        self._kin = Kin(request, NAME, asked.SIBLING, losses)
        self._own = self._kin.own
        self._losses = losses

    def fields(self, messages: list[Raw], tools: Tools) -> asked.Body:
        request, sampling = self._request, self._request.sampling
        if not self._own:
            self._kin.unavailable(_REFUSED, _WARNED)
        limit = request.max_output_tokens
        old = self._quirks.token_limit == "max_tokens"
        return asked.Body(
            model=request.model,
            messages=messages,
            tools=tools.declared() or None,
            tool_choice=_told(tools.choice()),
            parallel_tool_calls=self._parallel(),
            web_search_options=tools.web_search(),
            max_completion_tokens=None if old else limit,
            max_tokens=limit if old else None,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            seed=sampling.seed,
            logprobs=None if sampling.logprobs is None else True,
            top_logprobs=sampling.logprobs or None,
            logit_bias=keys_of(sampling.logit_bias) or None,
            stop=self._stop(),
            n=request.choices if request.choices > 1 else None,
            response_format=_told(self._output(request.output)),
            verbosity=request.verbosity,
            reasoning_effort=self._kin.effort(effort_of),
            stream=request.stream or None,
            stream_options=asked.StreamOptions(True) if request.include_usage else None,
            store=request.store if self._kin.kin else None,
            metadata=self._kin.metadata(),
            user=self._kin.user(),
            safety_identifier=self._kin.safety_identifier(),
            prompt_cache_key=request.prompt_cache_key,
            prompt_cache_retention=self._kin.retention(),
            service_tier=self._kin.tier(),
        )

    def extra(self) -> dict[str, Raw]:
        """The keys beside the fields: of this wire, of the family, or refused."""
        thought = self._request.reasoning
        words = thought.extra if thought else UNSET
        found = keys_of(self._request.extra)
        if self._own:
            return found | keys_of(words)
        drop_beside(words, "reasoning", self._losses, NAME)
        shared = {key: value for key, value in found.items() if key in FAMILY and self._kin.kin}
        drop(asked.raw({key: found[key] for key in found.keys() - shared}), "", self._losses, NAME)
        return shared

    def _parallel(self) -> bool | None:
        """The wire takes this only beside tools."""
        parallel = self._request.parallel_tool_calls
        if self._request.tools or self._own:
            return parallel
        if parallel is False:
            self._losses.adapted("parallel_tool_calls", "left out: there are no tools")
        return None

    def _stop(self) -> list[str] | None:
        stop = self._request.stop
        if _cut(self._request):
            self._losses.adapted("stop", f"{NAME} takes {STOPS}; Weft cuts the answer itself")
            return None
        return list(stop) or None

    def _output(self, output: OutputFormat) -> asked.ResponseFormat | None:
        if output.kind == "text":
            return None
        if output.kind == "json":
            return asked.ResponseFormat("json_object")
        name, strict = self._kin.shape()
        shape = asked.JsonSchema(name, output.description, output.schema, strict)
        return asked.ResponseFormat("json_schema", shape)
