"""`POST /v1/responses/compact`: what was said, summed up by the model that is to go on.

What the client itself said stays as it is; one item behind it stands for all the rest. Its content
is the summary, sealed: sent back as input, every upstream is told it in words. Nothing of it is
stored. Calls and their results are told to the model as text, since a request without tools may
have none; what it thought is left out.
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
from weft.gateway.endpoints import Endpoint, Host, Scope, Send, parsed, read_as
from weft.gateway.sessions import DIALECT, Sessions, given_in, preamble_of, unknown
from weft.parts import Usage
from weft.relay import history
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, bad_request
from weft.relay.offload import for_body
from weft.relay.run import Run
from weft.relay.stream import Stream

ORDER = """\
Stop here and sum up this conversation, for an assistant that goes on with it and has seen none of \
it but what the user wrote. Tell what was asked, what was done and found out, with all names, \
numbers, paths and quotations that may matter, what was decided and why, and what is left to do. \
Answer with the summary alone."""

_json = msgspec.json.Encoder().encode


class _Asking(msgspec.Struct):
    """What a client may ask."""

    instructions: str | None = None
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None


class _Call(msgspec.Struct):
    call_id: str
    name: str
    arguments: str = ""
    input: str = ""


class _Output(msgspec.Struct):
    call_id: str | None = None
    output: str | list[Raw] = ""


_asking = msgspec.json.Decoder(_Asking).decode
_call = msgspec.json.Decoder(_Call).decode
_output = msgspec.json.Decoder(_Output).decode


class Compact(Endpoint):
    def __init__(self, host: Host, sessions: Sessions | None) -> None:
        super().__init__(host, DIALECT)
        self._sessions = sessions

    async def _read(self, scope: Scope, body: bytes) -> IncomingRequest:
        """The request, with all that was said as its input."""
        preamble = await for_body(body, read_as, preamble_of, body)
        incoming = self._made(scope, body, self._model(preamble), False)
        if self._sessions is not None:
            incoming = await self._sessions.recalled(incoming, preamble)
        elif preamble.previous_response_id is not None:
            raise RequestFailed(unknown(preamble.previous_response_id))
        raw = incoming.body.raw
        if not await for_body(raw, given_in, raw):
            raise BadRequest("input", "missing; there is nothing to sum up")
        return incoming

    async def _started(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        raw = incoming.body.raw
        items = await for_body(raw, given_in, raw)
        try:
            body = await for_body(raw, _summing_up, incoming, items)
        except BadRequest as problem:
            raise RequestFailed(bad_request(problem)) from None
        asking = IncomingRequest(
            RequestBody(DIALECT, body),
            incoming.model,
            False,
            id=incoming.id,
            caller=incoming.caller,
            reject_lossy=incoming.reject_lossy,
        )
        await parsed(asking, self._host.limits)
        await _Compaction(self._host, items)._serve(self._host.start(asking), scope, send)
        return None


class _Compaction(Endpoint):
    """One answer: the run has a model sum up what was said."""

    def __init__(self, host: Host, items: list[Raw]) -> None:
        super().__init__(host, DIALECT)
        self._items = items

    def _body(self, run: Run, stream: Stream, body: bytes) -> bytes:
        return _compacted(run, stream, self._items)


def _summing_up(incoming: IncomingRequest, said: list[Raw]) -> bytes:
    """The request that has a model sum up what was said."""
    asking = read_as(_asking, incoming.body.raw)
    items = [told for item in said for told in _told(item)]
    body: dict[str, object] = {
        "model": incoming.model,
        "input": [*items, _message("user", ORDER)],
        "store": False,
    }
    options = {
        "instructions": asking.instructions,
        "prompt_cache_key": asking.prompt_cache_key,
    }
    return _json(body | {name: value for name, value in options.items() if value is not None})


def _told(item: Raw) -> list[Raw]:
    """How a model is told of an item."""
    found = history.read_shape(item)
    reader = _READERS.get(found.type)
    try:
        return [item] if reader is None else reader(item)
    except ValueError as problem:
        raise BadRequest("input", f"{found.type}: {problem}") from None


def _called(item: Raw) -> list[Raw]:
    call = _call(item)
    text = f"[{call.call_id}: {call.name} is called with {call.arguments or call.input}]"
    return [_message("assistant", text)]


def _resulted(item: Raw) -> list[Raw]:
    result = _output(item)
    words = {"type": "input_text", "text": f"[{result.call_id}: the result of the call]"}
    shown = result.output
    if isinstance(shown, str):
        return [_message("user", [words, {"type": "input_text", "text": shown}])]
    return [_message("user", [words, *shown])]


def _left_out(item: Raw) -> list[Raw]:
    return []


_READERS: dict[str, Callable[[Raw], list[Raw]]] = {
    "function_call": _called,
    "custom_tool_call": _called,
    "function_call_output": _resulted,
    "custom_tool_call_output": _resulted,
    "reasoning": _left_out,
}


def _message(role: str, content: object) -> Raw:
    return Raw(_json({"type": "message", "role": role, "content": content}))


def _compacted(run: Run, stream: Stream, said: list[Raw]) -> bytes:
    """What the client is told; raises RequestFailed if there is no summary."""
    response = stream.response
    summary = response.text.strip()
    if not summary:
        raise RequestFailed(
            new_error("bad-upstream-answer", f"{run.upstream} did not sum up what was said")
        )
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
        "output": [*history.listed_items(filter(_is_clients, said), id), item],
        "usage": usage_to_wire(response.usage) or usage_to_wire(Usage(0, 0, 0)),
    }
    return _json(compaction)


def _is_clients(item: Raw) -> bool:
    """Whether the client said it: it stays as it is."""
    found = history.read_shape(item)
    return found.type == "message" and found.role != "assistant"
