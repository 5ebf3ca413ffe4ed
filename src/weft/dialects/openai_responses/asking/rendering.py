"""Writes a Responses body: its items and tools, its options, and what is missing."""

from operator import attrgetter

from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.asking.bridging import Names, effort_of
from weft.dialects.asking.leftovers import drop, drop_beside, put
from weft.dialects.asking.verbatim import Meaning, Said, fields_as_said, said_by
from weft.dialects.asking.wording import FAMILY, Kin, Refused, Warned
from weft.dialects.openai_responses.asking import asked
from weft.dialects.openai_responses.asking.sent_contents import items
from weft.dialects.openai_responses.asking.sent_tools import Tools
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests import Losses, Rendered, keys_of
from weft.parts import Json
from weft.request import OutputFormat, Request

LEAST = 16
"""The smallest limit of tokens that the wire takes."""

ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
OURS = frozenset({"required_action", "reasoning.raw"})
"""What clients of the gateway ask of the gateway itself: no upstream knows it."""

_offer = attrgetter("tools", "tool_choice", "parallel_tool_calls")
_choice = attrgetter("tools", "tool_choice", "parallel_tool_calls", "extra")
_include = attrgetter("sampling.logprobs", "include")

MEANING: Meaning = {
    "model": attrgetter("model"),
    "input": attrgetter("messages"),
    "instructions": attrgetter("instructions"),
    "tools": _offer,
    "tool_choice": _choice,
    "parallel_tool_calls": _offer,
    "max_tool_calls": attrgetter("max_tool_calls"),
    "max_output_tokens": attrgetter("max_output_tokens"),
    "temperature": attrgetter("sampling.temperature"),
    "top_p": attrgetter("sampling.top_p"),
    "presence_penalty": attrgetter("sampling.presence_penalty"),
    "frequency_penalty": attrgetter("sampling.frequency_penalty"),
    "top_logprobs": _include,
    "text": attrgetter("output", "verbosity", "extra"),
    "reasoning": attrgetter("reasoning"),
    "include": _include,
    "stream": attrgetter("stream"),
    "store": attrgetter("store"),
    "background": attrgetter("background"),
    "previous_response_id": attrgetter("previous_response_id"),
    "truncation": attrgetter("truncation"),
    "service_tier": attrgetter("service_tier"),
    "metadata": attrgetter("metadata"),
    "user": attrgetter("user"),
    "safety_identifier": attrgetter("safety_identifier"),
    "prompt_cache_key": attrgetter("prompt_cache_key"),
    "prompt_cache_retention": attrgetter("cache", "extra"),
}

_INNER = frozenset({"text"})
"""Objects whose unknown keys are kept under their path."""

_REFUSED: Refused = (
    ("choices", lambda one: one.choices > 1, "ask for one answer"),
    ("max_output_tokens", lambda one: one.max_output_tokens == 0, "ask for at least one token"),
)
_WARNED: Warned = (
    ("sampling.logit_bias", lambda one: one.sampling.logit_bias is not UNSET),
    ("sampling.top_k", lambda one: one.sampling.top_k is not None),
    ("sampling.seed", lambda one: one.sampling.seed is not None),
    ("betas", lambda one: bool(one.betas)),
    # The specification has them, its original host has not.
    ("sampling.presence_penalty", lambda one: bool(one.sampling.presence_penalty)),
    ("sampling.frequency_penalty", lambda one: bool(one.sampling.frequency_penalty)),
)


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body. What nobody changed is as it came, where nothing got lost."""
    names = Names(request, "a-zA-Z0-9_-", 64, losses)
    said = items(request, context, names, losses)
    before = len(losses.found)
    body = _Body(request, context, losses)
    written = keys_of(asked.raw(body.fields(said, Tools(request, names, losses))))
    written |= body.reasoning()
    put(written, body.extra(), _INNER)
    if len(losses.found) == before:
        written = _as_said(request, written)
    return Rendered(large_json.write(written), names.restored, stop=request.stop)


def _as_said(request: Request, written: dict[str, Raw]) -> dict[str, Raw]:
    """The body with the keys as they came, where nobody changed what they mean."""
    said = said_by(request, NAME)
    if said is None:
        return written
    found = fields_as_said(said, request, written, MEANING)
    if not _short(said, request):
        found["input"] = written["input"]
    if not OURS.isdisjoint(request.include):
        found.pop("include")
        found |= {key: value for key, value in written.items() if key == "include"}
    return found


def _short(said: Said, request: Request) -> bool:
    """Whether the input came as one text, or not at all, and is still the same."""
    came = keys_of(said.body).get("input")
    short = came is None or not bytes(came).startswith(b"[")
    return short and said.request.messages == request.messages


def _told(value: object) -> Json:
    return UNSET if value is None else asked.raw(value)


class _Body:
    """The fields of one request, in the words of this wire."""

    def __init__(self, request: Request, context: Context, losses: Losses) -> None:
        quirks = context.quirks
        self._quirks = quirks if isinstance(quirks, ResponsesQuirks) else ResponsesQuirks()
        self._request = request
        self._same = request.dialect == NAME
        self._kin = Kin(request, NAME, asked.SIBLING, losses)
        self._losses = losses

    def fields(self, items: list[Raw], tools: Tools) -> asked.Body:
        request, sampling = self._request, self._request.sampling
        if not self._same:
            self._kin.unavailable(_REFUSED, _WARNED)
        if request.stop:
            self._losses.adapted("stop", f"{NAME} takes none; Weft cuts the answer itself")
        return asked.Body(
            model=request.model,
            input=items,
            instructions=request.instructions,
            tools=tools.declared() or None,
            tool_choice=_told(tools.choice()),
            parallel_tool_calls=request.parallel_tool_calls,
            max_tool_calls=request.max_tool_calls,
            max_output_tokens=self._limit(),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            presence_penalty=sampling.presence_penalty if self._same else None,
            frequency_penalty=sampling.frequency_penalty if self._same else None,
            top_logprobs=sampling.logprobs or None,
            text=self._text(),
            include=self._include() or None,
            stream=request.stream or None,
            store=self._store(),
            background=request.background or None,
            previous_response_id=request.previous_response_id,
            truncation=request.truncation,
            service_tier=self._kin.tier(),
            metadata=self._kin.metadata(),
            user=self._kin.user(),
            safety_identifier=self._kin.safety_identifier(),
            prompt_cache_key=request.prompt_cache_key,
            prompt_cache_retention=self._kin.retention(),
        )

    def extra(self) -> dict[str, Raw]:
        """The keys beside the fields: of this wire, of the family, or refused."""
        found = keys_of(self._request.extra)
        if self._kin.own:
            return found
        shared = {key: value for key, value in found.items() if key in FAMILY and self._kin.kin}
        rest = {key: found[key] for key in found.keys() - shared}
        drop(asked.raw(rest), "", self._losses, NAME)
        return shared

    def reasoning(self) -> dict[str, Raw]:
        """How to think, with what only this wire says of it."""
        thought = self._request.reasoning
        effort = self._kin.effort(effort_of)
        if thought is None:
            return {}
        if not self._kin.own:
            drop_beside(thought.extra, "reasoning", self._losses, NAME)
        summary = None if thought.summary == "none" else thought.summary
        own = keys_of(thought.extra) if self._kin.own else {}
        own |= keys_of(asked.raw(asked.Thinking(effort, summary)))
        return {"reasoning": asked.raw(own)} if own or self._same else {}

    def _limit(self) -> int | None:
        limit = self._request.max_output_tokens
        if limit is None or self._same or limit >= LEAST or limit == 0:
            return limit
        self._losses.warned("max_output_tokens", f"{limit} is too small here; {LEAST} is asked for")
        return LEAST

    def _include(self) -> list[str]:
        """Whoever holds the conversation gets the proofs of reasoning, to send them back."""
        found = [one for one in self._request.include if one not in OURS]
        if self._same:
            return found
        if self._request.sampling.logprobs is not None and LOGPROBS not in found:
            found.append(LOGPROBS)
        if self._quirks.stateless_reasoning and not self._store() and ENCRYPTED not in found:
            found.append(ENCRYPTED)
        return found

    def _store(self) -> bool | None:
        """This wire keeps responses unless told not to; the others do not."""
        store = self._request.store
        return store if store is not None or self._same else False

    def _text(self) -> asked.TextOptions | None:
        format = self._output(self._request.output)
        verbosity = self._request.verbosity
        return asked.TextOptions(_told(format), verbosity) if format or verbosity else None

    def _output(self, output: OutputFormat) -> asked.TextFormat | None:
        if output.kind == "text":
            return None
        if output.kind == "json":
            return asked.TextFormat("json_object")
        name, strict = self._kin.shape()
        schema = output.schema if isinstance(output.schema, Raw) else Raw(b"{}")
        return asked.TextFormat("json_schema", name, schema, output.description, strict)
