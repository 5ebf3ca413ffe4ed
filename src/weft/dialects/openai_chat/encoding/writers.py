"""Where the encoder writes a response: to chunks, or to the message of a body.

The encoder calls both in the same way, except for deltas, which it writes itself with the bytes
that `begin` gave to their fields. A body has no deltas: its texts are those of the response.
"""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.assembler import Response
from weft.dialects.openai_chat.encoding.delta_field import DeltaField
from weft.dialects.openai_chat.errors import ChatErrorBody
from weft.dialects.openai_chat.wire import (
    ChatAnnotation,
    ChatCompletion,
    ChatCompletionChoice,
    ChatMessage,
    ChatReasoningDelta,
    ChatToolCall,
    ChatUsage,
)
from weft.dialects.openai_errors import OpenAIError
from weft.parts import Json, ParamsFormat, ToolCall
from weft.sse import Event

_json = msgspec.json.Encoder().encode

_PARAMS: dict[ParamsFormat, bytes] = {
    # Bytes, because only the string that follows differs between the deltas of a call.
    "json": b'"function":{"arguments":',
    "text": b'"custom":{"input":',
}
"""An entry of `tool_calls` from its first key after the index up to the params."""


class ChunkWriter:
    """Writes chunks, appended to `out`. Each repeats id, time and model."""

    __slots__ = ("_created", "_id", "_model", "_null_usage", "head", "include_usage", "tail")
    joins_reasoning = False
    """Whether clients tell one reasoning from the next by their details alone."""

    def __init__(self, *, include_usage: bool) -> None:
        self.include_usage = include_usage
        # Usage that was requested is null on all chunks but the last (API reference, `usage`).
        self._null_usage = b',"usage":null}' if include_usage else b"}"
        # The official stream has both keys in every chunk; typed clients require `finish_reason`.
        self.tail = b',"logprobs":null,"finish_reason":null}]' + self._null_usage
        """The end of a chunk, after its delta."""
        self.head = b""

    def begin(self, id: str, created: int, model: str, fields: Iterable[DeltaField]) -> None:
        self._id = id
        self._created = created
        self._model = model
        # One response has one choice: the gateway refuses `n` above 1.
        self.head = self._up_to_choices() + b'[{"index":0,"delta":'
        for field in fields:
            field.set_chunk(self.head, self.tail)

    def _up_to_choices(self) -> bytes:
        known = (_json(self._id), self._created, _json(self._model))
        head = b'{"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,' % known
        return head + b'"choices":'

    def _delta(self, delta: bytes) -> Event:
        return Event("", self.head + delta + self.tail)

    def joins(self, field: DeltaField, last_field: DeltaField | None) -> bool:
        """Whether clients join a part that starts now to the one before it in its field.
        `last_field` is the field of the last part, None after a call."""
        # A call between two texts marks their border, for clients that keep the order of deltas.
        return last_field is field

    def role(self, content: str | None, out: list[Event]) -> None:
        # The first chunk as OpenAI sends it: role, content and refusal, two of them empty.
        delta = b'{"role":"assistant","content":%b,"refusal":null}' % _json(content)
        out.append(self._delta(delta))

    def text_extra(self, extra: Raw, out: list[Event]) -> None:
        out.append(self._delta(b'{"extra_content":%b}' % bytes(extra)))

    def end_reasoning(self, last_delta: str, details: list[Raw], out: list[Event]) -> None:
        """Writes the details beside the last delta: they repeat the text, and clients take it from
        them in a delta that has no other reasoning.
        """
        if last_delta or details:
            delta = ChatReasoningDelta(last_delta or UNSET, details or UNSET)
            out.append(self._delta(_json(delta)))

    def start_call(
        self, call: ChatToolCall, index: int, format: ParamsFormat, out: list[Event]
    ) -> bytes:
        """Returns the bytes of a chunk before a delta of the params."""
        call.index = index
        out.append(self._delta(b'{"tool_calls":[%b]}' % _json(call)))
        return self.head + b'{"tool_calls":[{"index":%d,%b' % (index, _PARAMS[format])

    def end_call(self, call: ToolCall, head: bytes, extra: Json, out: list[Event]) -> None:
        """`head` is what `start_call` returned, `extra` the `extra_content` of the end."""
        if isinstance(extra, Raw):
            # The official client expects a function in every delta of a call.
            data = b'%b""},"extra_content":%b}]}%b' % (head, bytes(extra), self.tail)
            out.append(Event("", data))

    def annotations(self, annotations: list[ChatAnnotation], out: list[Event]) -> None:
        out.append(self._delta(b'{"annotations":%b}' % _json(annotations)))

    def error(self, error: OpenAIError, usage: ChatUsage | UnsetType, out: list[Event]) -> None:
        out.append(Event("", _json(ChatErrorBody(error, usage))))

    def finish(
        self, reason: str, model: str | None, usage: ChatUsage | UnsetType, out: list[Event]
    ) -> None:
        # The finish may name another model than the metadata did: routers decide late.
        self._model = model or self._model
        start = self._up_to_choices()
        end = b'[{"index":0,"delta":{},"logprobs":null,"finish_reason":%b}]' % _json(reason)
        out.append(Event("", start + end + self._null_usage))
        # In a chunk of its own, without choices (API reference, `stream_options.include_usage`).
        if usage is not UNSET:
            out.append(Event("", b'%b[],"usage":%b}' % (start, _json(usage))))


class CompletionWriter:
    """Writes a `chat.completion`, through the methods of `ChunkWriter`. Its one message has one
    field of each kind."""

    __slots__ = ("_calls", "_completion", "_details", "_message")
    include_usage = True
    tail = b""
    joins_reasoning = True

    def __init__(self) -> None:
        # Filled in place: the completion refers to this message.
        self._message = ChatMessage(content=None, refusal=None)
        self._completion = ChatCompletion(
            id="", created=0, model="", choices=[ChatCompletionChoice(self._message, None)]
        )
        self._calls: dict[str, ChatToolCall] = {}
        self._details: list[Raw] = []

    def body(self, response: Response) -> bytes:
        """Returns what was written, with the texts of the response."""
        message = self._message
        # Without text it stays what `role` set: null beside calls, else an empty string.
        message.content = response.text or message.content
        message.refusal = response.refusal or None
        message.reasoning_content = response.reasoning or UNSET
        message.reasoning_details = self._details or UNSET
        message.tool_calls = list(self._calls.values()) or UNSET
        return large_json.write(self._completion)

    def begin(self, id: str, created: int, model: str, fields: Iterable[DeltaField]) -> None:
        completion = self._completion
        completion.id, completion.created, completion.model = id, created, model

    def joins(self, field: DeltaField, last_field: DeltaField | None) -> bool:
        return bool(field.part_ids)

    def role(self, content: str | None, out: list[Event]) -> None:
        self._message.content = content

    def text_extra(self, extra: Raw, out: list[Event]) -> None:
        self._message.extra_content = extra

    def end_reasoning(self, last_delta: str, details: list[Raw], out: list[Event]) -> None:
        self._details += details

    def start_call(
        self, call: ChatToolCall, index: int, format: ParamsFormat, out: list[Event]
    ) -> bytes:
        # The position in the list is the index, and a whole call has no `index` key.
        self._calls[call.id or ""] = call
        return b""

    def end_call(self, call: ToolCall, head: bytes, extra: Json, out: list[Event]) -> None:
        written = self._calls[call.id]
        if written.function is not None:
            written.function.arguments = call.params
        elif written.custom is not None:
            written.custom.input = call.params
        if isinstance(extra, Raw):
            written.extra_content = extra

    def annotations(self, annotations: list[ChatAnnotation], out: list[Event]) -> None:
        self._message.annotations = annotations

    def error(self, error: OpenAIError, usage: ChatUsage | UnsetType, out: list[Event]) -> None:
        """Writes nothing: the body of a failed response is its error alone."""

    def finish(
        self, reason: str, model: str | None, usage: ChatUsage | UnsetType, out: list[Event]
    ) -> None:
        self._completion.choices[0].finish_reason = reason
        self._completion.usage = usage


ChatWriter = ChunkWriter | CompletionWriter
