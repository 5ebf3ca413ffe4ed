"""`POST /v1/responses/compact`: a conversation, summarized by the model that is to continue it.

The messages of the client stay as they are; one item after them replaces all the rest. It holds the
summary as `encrypted_content` (encoded, not encrypted): sent back as input, it becomes text for any
upstream. Nothing is stored. The model gets calls and their results as text, since a request without
tools may not contain calls, and no reasoning.
"""

import time
from collections.abc import Callable

import msgspec
from msgspec import Raw

from weft.codec import fresh_context
from weft.dialects.envelope import wrap_summary
from weft.dialects.error_classes import new_error
from weft.dialects.openai_responses.mapping import usage_to_wire
from weft.errors import BadRequest
from weft.gateway.apis import RESPONSES
from weft.gateway.endpoints import Endpoint, GatewayContext, Scope, Send, decode_body, parse_request
from weft.gateway.memory import RESERVED
from weft.gateway.sessions import Sessions, input_items_of, parse_preamble, previous_not_found
from weft.parts import Usage
from weft.relay import history
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, bad_request
from weft.relay.offload import for_body
from weft.relay.run import Run
from weft.relay.stream import Stream

INSTRUCTION = """\
Stop here and sum up this conversation, for an assistant that goes on with it and has seen none of \
it but what the user wrote. Tell what was asked, what was done and found out, with all names, \
numbers, paths and quotations that may matter, what was decided and why, and what is left to do. \
Answer with the summary alone."""

_json = msgspec.json.Encoder().encode


class _CompactRequest(msgspec.Struct):
    """The fields of the request that are used."""

    instructions: str | None = None
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None


class _ToolCallItem(msgspec.Struct):
    call_id: str
    name: str
    arguments: str = ""
    input: str = ""


class _ToolOutputItem(msgspec.Struct):
    call_id: str | None = None
    output: str | list[Raw] = ""


_request = msgspec.json.Decoder(_CompactRequest).decode
_call = msgspec.json.Decoder(_ToolCallItem).decode
_output = msgspec.json.Decoder(_ToolOutputItem).decode


class CompactResponse(Endpoint):
    def __init__(self, gateway: GatewayContext, sessions: Sessions | None) -> None:
        super().__init__(gateway, RESPONSES)
        self._sessions = sessions

    async def parse_request(self, scope: Scope, body: bytes) -> IncomingRequest:
        """Builds the request, with the whole conversation as its input."""
        preamble = await for_body(body, decode_body, parse_preamble, body)
        incoming = self._build_request(scope, body, self._model_name(preamble), False)
        if self._sessions is not None:
            reserved = scope.get(RESERVED)
            incoming = await self._sessions.with_history(incoming, preamble, reserved)
        elif preamble.previous_response_id is not None:
            raise RequestFailed(previous_not_found(preamble.previous_response_id))
        raw = incoming.body.raw
        if not await for_body(raw, input_items_of, raw):
            raise BadRequest("input", "missing; expected the conversation to compact")
        return incoming

    async def _start(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        raw = incoming.body.raw
        items = await for_body(raw, input_items_of, raw)
        try:
            body = await for_body(raw, _summary_request, incoming, items)
        except BadRequest as problem:
            raise RequestFailed(bad_request(problem)) from None
        request = IncomingRequest(
            RequestBody(RESPONSES, body),
            incoming.model,
            False,
            id=incoming.id,
            caller=incoming.caller,
            reject_lossy=incoming.reject_lossy,
        )
        # The summary's request is not the client's: it is parsed anew, since its items are others.
        await parse_request(request, self._gateway.limits)
        await _CompactionRun(self._gateway, items)._serve(
            await self._gateway.start(request), scope, send
        )
        return None


class _CompactionRun(Endpoint):
    """Sends the compaction that a run produced."""

    def __init__(self, gateway: GatewayContext, items: list[Raw]) -> None:
        super().__init__(gateway, RESPONSES)
        self._items = items

    def render_body(self, run: Run, stream: Stream, body: bytes) -> bytes:
        response = stream.response
        summary = response.text.strip()
        if not summary:
            message = f"{run.upstream} returned no summary"
            raise RequestFailed(new_error("bad-upstream-answer", message))
        ids = fresh_context().ids
        id = ids.mint("resp")
        item = {
            "id": ids.mint("cmp"),
            "type": "compaction",
            "encrypted_content": wrap_summary(summary),
        }
        compaction = {
            "id": id,
            "object": "response.compaction",
            "created_at": int(time.time()),
            "output": [*history.listed_items(filter(_is_clients, self._items), id), item],
            # Required in this object, unlike in a response.
            "usage": usage_to_wire(response.usage) or usage_to_wire(Usage(0, 0, 0)),
        }
        return _json(compaction)


def _summary_request(incoming: IncomingRequest, conversation: list[Raw]) -> bytes:
    """The request for a summary of the conversation."""
    request = decode_body(_request, incoming.body.raw)
    items: list[Raw] = []
    for item in conversation:
        type = history.read_shape(item).type
        convert = _MESSAGES.get(type)
        try:
            items += [item] if convert is None else convert(item)
        except ValueError as problem:
            raise BadRequest("input", f"{type}: {problem}") from None
    body: dict[str, object] = {
        "model": incoming.model,
        "input": [*items, _message("user", INSTRUCTION)],
        # It must not become a turn that somebody can continue.
        "store": False,
    }
    options = {
        "instructions": request.instructions,
        "prompt_cache_key": request.prompt_cache_key,
    }
    return _json(body | {name: value for name, value in options.items() if value is not None})


def _call_message(item: Raw) -> list[Raw]:
    call = _call(item)
    # The id stays in the text, so that the model can tell which result belongs to which call.
    text = f"[{call.call_id}: {call.name} is called with {call.arguments or call.input}]"
    return [_message("assistant", text)]


def _result_message(item: Raw) -> list[Raw]:
    result = _output(item)
    words = {"type": "input_text", "text": f"[{result.call_id}: the result of the call]"}
    shown = result.output
    if isinstance(shown, str):
        return [_message("user", [words, {"type": "input_text", "text": shown}])]
    # Images of a result stay images: a user message may have them.
    return [_message("user", [words, *shown])]


_MESSAGES: dict[str, Callable[[Raw], list[Raw]]] = {
    "function_call": _call_message,
    "custom_tool_call": _call_message,
    "function_call_output": _result_message,
    "custom_tool_call_output": _result_message,
    # State of the model that wrote it, which OpenAI refuses where the call after it is missing.
    "reasoning": lambda item: [],
}


def _message(role: str, content: object) -> Raw:
    return Raw(_json({"type": "message", "role": role, "content": content}))


def _is_clients(item: Raw) -> bool:
    """Whether the client wrote it: it stays as it is."""
    found = history.read_shape(item)
    return found.type == "message" and found.role != "assistant"
