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
from weft.dialects.envelope import sealed_summary
from weft.dialects.faults import fault
from weft.dialects.openai_responses.encoding.snapshot import usage
from weft.errors import BadRequest, InternalError
from weft.gateway.endpoints import Endpoint, Host, Receive, Scope, Send, read_as
from weft.gateway.memory import DIALECT, Memory, given_in, unknown
from weft.parts import Usage
from weft.relay import history
from weft.relay.asked import Asked, Failed, bad_request
from weft.relay.run import Run

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
    def __init__(self, host: Host, memory: Memory | None) -> None:
        super().__init__(host, DIALECT)
        self._memory = memory

    async def _read(self, scope: Scope, receive: Receive) -> Asked:
        """What is asked, with all that was said as its input."""
        asked = await super()._read(scope, receive)
        try:
            asking = read_as(_asking, asked.body)
            if self._memory is not None:
                asked = await self._memory.recalled(asked)
            elif asking.previous_response_id is not None:
                raise Failed(unknown(asking.previous_response_id))
            if not given_in(asked.body):
                raise BadRequest("input", "missing; there is nothing to sum up")
        except BadRequest as problem:
            raise Failed(bad_request(problem)) from None
        return asked

    async def _started(self, asked: Asked, scope: Scope, send: Send) -> Run | None:
        said = given_in(asked.body)
        try:
            body = _summing_up(asked, said)
        except BadRequest as problem:
            raise Failed(bad_request(problem)) from None
        lossy = asked.reject_lossy
        asking = Asked(
            DIALECT, body, asked.model, False, id=asked.id, caller=asked.caller, reject_lossy=lossy
        )
        await _Compaction(self._host, said)._serve(self._host.start(asking), scope, send)
        return None


class _Compaction(Endpoint):
    """One answer: the run has a model sum up what was said."""

    def __init__(self, host: Host, said: list[Raw]) -> None:
        super().__init__(host, DIALECT)
        self._said = said

    def _told(self, run: Run, body: bytes) -> bytes:
        return _compacted(run, self._said)


def _summing_up(asked: Asked, said: list[Raw]) -> bytes:
    """The request that has a model sum up what was said."""
    asking = read_as(_asking, asked.body)
    items = [told for item in said for told in _told(item)]
    body: dict[str, object] = {
        "model": asked.model,
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
    found = history.shape(item)
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


def _compacted(run: Run, said: list[Raw]) -> bytes:
    """What the client is told; raises Failed if there is no summary."""
    response = run.record.response
    if response is None:
        raise InternalError("there is no answer")
    summary = response.text.strip()
    if not summary:
        raise Failed(fault("bad-upstream-answer", f"{run.upstream} did not sum up what was said"))
    ids = fresh_context().ids
    id = ids.mint("resp")
    item = {
        "id": ids.mint("cmp"),
        "type": "compaction",
        "encrypted_content": sealed_summary(summary),
    }
    compaction = {
        "id": id,
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*history.shown(filter(_is_clients, said), id), item],
        "usage": usage(response.usage) or usage(Usage(0, 0, 0)),
    }
    return _json(compaction)


def _is_clients(item: Raw) -> bool:
    """Whether the client said it: it stays as it is."""
    found = history.shape(item)
    return found.type == "message" and found.role != "assistant"
