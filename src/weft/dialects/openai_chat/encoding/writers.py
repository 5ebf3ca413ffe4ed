"""What one response is written to: chunks, one after the other, or the message of a body.

The encoder says what there is to write, in the same words for both. Deltas are the exception: they
are written by the encoder where they come, framed by their field; a body has no deltas, and reads
its texts from the fold.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.assembler import Response
from weft.dialects.coded import Error
from weft.dialects.openai_chat import written
from weft.dialects.openai_chat.errors import Failed
from weft.dialects.openai_chat.fields import Field
from weft.parts import Json, ParamsFormat, ToolCall
from weft.sse import Event

_json = msgspec.json.Encoder().encode

_PARAMS: dict[ParamsFormat, bytes] = {
    "json": b'"function":{"arguments":',
    "text": b'"custom":{"input":',
}
"""How an entry of `tool_calls` goes on, up to the params."""


class Writer(Protocol):
    """Takes what the encoder has to write of one response; chunks go to `out`."""

    asked: bool
    """Whether usage is written."""
    tail: bytes
    """What a chunk ends with, behind its delta."""

    def begin(self, id: str, created: int, model: str, fields: Iterable[Field]) -> None: ...

    def joins(self, field: Field, floor: Field | None) -> bool:
        """Whether readers join a text that begins now to the one before it in its field. `floor`
        is the field of the last part, if nothing of another kind was said since."""
        ...

    @property
    def joins_thoughts(self) -> bool:
        """Whether readers tell thoughts apart by their proofs alone."""
        ...

    def role(self, content: str | None, out: list[Event]) -> None: ...

    def signed(self, extra: Raw, out: list[Event]) -> None: ...

    def thought(self, text: str, details: list[Raw], out: list[Event]) -> None: ...

    def call(self, call: written.Call, index: int, format: ParamsFormat, out: list[Event]) -> bytes:
        """Announces a call. Returns how its deltas begin."""
        ...

    def made(self, call: ToolCall, head: bytes, extra: Json, out: list[Event]) -> None:
        """A call is over. `head` is how its deltas begin, `extra` what it brought at its end."""
        ...

    def annotations(self, found: list[written.Annotation], out: list[Event]) -> None: ...

    def failed(self, error: Error, usage: written.Usage | UnsetType, out: list[Event]) -> None: ...

    def finish(
        self, word: str, model: str | None, usage: written.Usage | UnsetType, out: list[Event]
    ) -> None: ...


class ChunkWriter:
    """Writes chunks: each repeats who says it."""

    __slots__ = ("_created", "_id", "_model", "_null", "asked", "head", "tail")
    joins_thoughts = False

    def __init__(self, *, asked: bool) -> None:
        self.asked = asked
        """Whether the client asked for usage; it is null then on all chunks but the last."""
        self._null = b',"usage":null}' if asked else b"}"
        self.tail = b',"logprobs":null,"finish_reason":null}]' + self._null
        self.head = b""

    def begin(self, id: str, created: int, model: str, fields: Iterable[Field]) -> None:
        self._id = id
        self._created = created
        self._model = model
        self.head = self._start() + b'[{"index":0,"delta":'
        for field in fields:
            field.frame(self.head, self.tail)

    def _start(self) -> bytes:
        known = (_json(self._id), self._created, _json(self._model))
        head = b'{"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,' % known
        return head + b'"choices":'

    def _delta(self, delta: bytes) -> Event:
        return Event("", self.head + delta + self.tail)

    def joins(self, field: Field, floor: Field | None) -> bool:
        return floor is field

    def role(self, content: str | None, out: list[Event]) -> None:
        said = b'{"role":"assistant","content":%b,"refusal":null}' % _json(content)
        out.append(self._delta(said))

    def signed(self, extra: Raw, out: list[Event]) -> None:
        out.append(self._delta(b'{"extra_content":%b}' % bytes(extra)))

    def thought(self, text: str, details: list[Raw], out: list[Event]) -> None:
        """Details repeat the text. A reader takes it from them only in a delta that has no other
        reasoning, so they go out beside the last of it.
        """
        if text or details:
            out.append(self._delta(_json(written.Thought(text or UNSET, details or UNSET))))

    def call(self, call: written.Call, index: int, format: ParamsFormat, out: list[Event]) -> bytes:
        call.index = index
        out.append(self._delta(b'{"tool_calls":[%b]}' % _json(call)))
        return self.head + b'{"tool_calls":[{"index":%d,%b' % (index, _PARAMS[format])

    def made(self, call: ToolCall, head: bytes, extra: Json, out: list[Event]) -> None:
        if isinstance(extra, Raw):  # the official client wants a function in each entry of one
            data = b'%b""},"extra_content":%b}]}%b' % (head, bytes(extra), self.tail)
            out.append(Event("", data))

    def annotations(self, found: list[written.Annotation], out: list[Event]) -> None:
        out.append(self._delta(b'{"annotations":%b}' % _json(found)))

    def failed(self, error: Error, usage: written.Usage | UnsetType, out: list[Event]) -> None:
        out.append(Event("", _json(Failed(error, usage))))

    def finish(
        self, word: str, model: str | None, usage: written.Usage | UnsetType, out: list[Event]
    ) -> None:
        self._model = model or self._model
        start = self._start()
        end = b'[{"index":0,"delta":{},"logprobs":null,"finish_reason":%b}]' % _json(word)
        out.append(Event("", start + end + self._null))
        if usage is not UNSET:
            out.append(Event("", b'%b[],"usage":%b}' % (start, _json(usage))))


class MessageWriter:
    """Writes the `chat.completion` of a fold. Its one message has one field of each kind."""

    __slots__ = ("_calls", "_completion", "_details", "_message")
    asked = True
    tail = b""
    joins_thoughts = True

    def __init__(self) -> None:
        self._message = written.Message(content=None, refusal=None)
        self._completion = written.Completion(
            id="", created=0, model="", choices=[written.Choice(self._message, None)]
        )
        self._calls: dict[str, written.Call] = {}
        self._details: list[Raw] = []

    def body(self, response: Response) -> bytes:
        """What was written, with the texts of the fold."""
        message = self._message
        message.content = response.text or message.content
        message.refusal = response.refusal or None
        message.reasoning_content = response.reasoning or UNSET
        message.reasoning_details = self._details or UNSET
        message.tool_calls = list(self._calls.values()) or UNSET
        return large_json.write(self._completion)

    def begin(self, id: str, created: int, model: str, fields: Iterable[Field]) -> None:
        completion = self._completion
        completion.id, completion.created, completion.model = id, created, model

    def joins(self, field: Field, floor: Field | None) -> bool:
        return bool(field.said)

    def role(self, content: str | None, out: list[Event]) -> None:
        self._message.content = content

    def signed(self, extra: Raw, out: list[Event]) -> None:
        self._message.extra_content = extra

    def thought(self, text: str, details: list[Raw], out: list[Event]) -> None:
        self._details += details

    def call(self, call: written.Call, index: int, format: ParamsFormat, out: list[Event]) -> bytes:
        self._calls[call.id] = call
        return b""

    def made(self, call: ToolCall, head: bytes, extra: Json, out: list[Event]) -> None:
        told = self._calls[call.id]
        if isinstance(told.function, written.Function):
            told.function.arguments = call.params
        elif isinstance(told.custom, written.Custom):
            told.custom.input = call.params
        if isinstance(extra, Raw):
            told.extra_content = extra

    def annotations(self, found: list[written.Annotation], out: list[Event]) -> None:
        self._message.annotations = found

    def failed(self, error: Error, usage: written.Usage | UnsetType, out: list[Event]) -> None:
        """The body of a failed response is its error alone."""

    def finish(
        self, word: str, model: str | None, usage: written.Usage | UnsetType, out: list[Event]
    ) -> None:
        self._completion.choices[0].finish_reason = word
        self._completion.usage = usage
