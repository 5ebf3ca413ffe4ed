"""The shapes of both AI SDK streams: what is read, and below it what is written.

The model parts and the chunks of the UI message stream share most names. They are one shape here,
and the type tells which fields count. What is read is optional throughout.
"""

from typing import Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.base import is_present
from weft.findings import Findings
from weft.partial_json import join_halves, whole_characters

T = TypeVar("T", bound=msgspec.Struct)

NAME: Final = "ai-sdk"

Json = Raw | UnsetType

GROWING = frozenset({"delta", "text", "inputTextDelta"})
"""Fields that come in pieces, so that a surrogate pair may be cut in two there."""

_json = msgspec.json.Encoder().encode


class Counts(msgspec.Struct, rename="camel"):
    """Tokens in detail, under the names of the model (first) and of the dumped stream."""

    total: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, rename="camel"):
    """Of any version: flat numbers, or objects."""

    input_tokens: int | Counts | None = None
    output_tokens: int | Counts | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None
    input_token_details: Counts | None = None
    output_token_details: Counts | None = None
    raw: Json = UNSET


class Reason(msgspec.Struct):
    unified: str | None = None
    raw: str | None = None


class Head(msgspec.Struct, rename="camel"):
    """What is told of the response itself."""

    id: str | None = None
    timestamp: str | None = None
    model_id: str | None = None


class Reference(msgspec.Struct, rename="camel"):
    """A call, where something speaks of it."""

    tool_call_id: str | None = None


class Event(msgspec.Struct, rename="camel"):
    """Any model part, or any chunk."""

    type: str | None = None
    id: str | None = None
    delta: str | None = None
    text: str | None = None
    provider_metadata: Json = UNSET
    # calls
    tool_call_id: str | None = None
    tool_name: str | None = None
    input_text_delta: str | None = None
    input: Json = UNSET
    output: Json = UNSET
    result: Json = UNSET
    is_error: bool | None = None
    preliminary: bool | None = None
    provider_executed: bool | None = None
    dynamic: bool | None = None
    invalid: bool | None = None
    approval_id: str | None = None
    tool_call: Reference | None = None
    # sources and files
    source_type: str | None = None
    source_id: str | None = None
    url: str | None = None
    title: str | None = None
    media_type: str | None = None
    filename: str | None = None
    data: Json = UNSET
    file: Json = UNSET
    kind: str | None = None
    # the response
    message_id: str | None = None
    message_metadata: Json = UNSET
    timestamp: str | None = None
    model_id: str | None = None
    warnings: Json = UNSET
    response: Head | None = None
    finish_reason: str | Reason | None = None
    raw_finish_reason: str | None = None
    usage: Usage | None = None
    total_usage: Usage | None = None
    error: Json = UNSET
    error_text: str | None = None
    reason: str | None = None


class Failure(msgspec.Struct, rename="camel"):
    """An error that is an object: of the SDK, of a provider, or a serialised one."""

    message: str | None = None
    name: str | None = None
    type: str | None = None
    code: str | int | None = None
    status_code: int | None = None
    is_retryable: bool | None = None
    error: Json = UNSET


class Blob(msgspec.Struct, rename="camel"):
    """A file that is an object."""

    data: str | None = None
    url: str | None = None
    base64: str | None = None
    base64_data: str | None = None
    media_type: str | None = None


class Proof(msgspec.Struct, rename="camel", omit_defaults=True):
    """What of one provider's metadata is a proof that it wants back, or an id of its own."""

    signature: str | None = None
    thought_signature: str | None = None
    redacted_data: str | None = None
    reasoning_encrypted_content: str | None = None
    item_id: str | None = None


class Annotated(Proof, rename="camel", omit_defaults=True):
    """The same of a text, with the provider's own annotations of it."""

    annotations: tuple[Raw, ...] = ()


_read = msgspec.json.Decoder(Event).decode
_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_read_bytes = msgspec.json.Decoder(dict[str, int]).decode


def read(data: bytes) -> Event:
    """Decodes the data of a frame; raises ValueError for what is not a well-typed event.

    Raw values are not looked into, so bytes that are not UTF-8 are refused here.
    """
    if not data.isascii():
        data.decode()
    return _read(data)


def piece(event: Event) -> str:
    """The text of a delta, under any of its names."""
    for text in (event.delta, event.input_text_delta, event.text):
        if text is not None:
            return text
    return ""


class Halves:
    """Joins characters that were cut in two between the deltas of an item."""

    __slots__ = ("_findings", "_held")

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._held: dict[str, str] = {}

    def feed(self, id: str, text: str) -> str | None:
        """The text that can be shown; None if all of it has to wait for more."""
        if text.isascii() and id not in self._held:
            return text
        half = self._held.pop(id, "")
        joined, held = join_halves(half, text)
        if held:
            self._held[id] = held
        if half or held or joined != text:
            self._findings.once("surrogate-lone", "", "a character was cut in two")
        return joined or None

    def rest(self, id: str) -> str | None:
        """What stands for a half that stayed alone; None if there is none."""
        half = self._held.pop(id, None)
        return None if half is None else whole_characters(half)


def proof_of(metadata: Json) -> tuple[str, Proof] | None:
    """The first provider whose metadata holds a proof, and that proof."""
    try:
        providers = _read_fields(bytes(metadata)) if isinstance(metadata, Raw) else {}
    except (ValueError, RecursionError):
        return None
    for provider, fields in providers.items():
        proof = unpacked(fields, Proof)
        if proof != Proof():
            return provider, proof
    return None


def bytes_of(numbered: Json) -> bytes | None:
    """The bytes of a serialised array: `{"0":137,"1":80}`; None for what is none."""
    try:
        found = _read_bytes(bytes(numbered)) if isinstance(numbered, Raw) else {}
        return bytes(found.values()) or None
    except (ValueError, RecursionError):
        return None


def text_of(raw: Json) -> str | None:
    """The text that a raw value is; None for any other value."""
    try:
        return msgspec.json.decode(raw, type=str) if isinstance(raw, Raw) else None
    except ValueError:
        return None


def compact(raw: Json) -> str:
    """A raw value as JSON text without blanks; nothing for an absent one or null."""
    if not isinstance(raw, Raw) or bytes(raw) == b"null":
        return ""
    try:
        return msgspec.json.format(bytes(raw), indent=-1).decode()
    except (ValueError, RecursionError):
        return bytes(flat(raw)).decode()


def kept(raw: Json) -> Json:
    """A raw value to keep, without the frame it stood in; null is nothing."""
    return flat(raw) if isinstance(raw, Raw) and is_present(raw) else UNSET


def flat(raw: Raw) -> Raw:
    """The value on one line. A line end in JSON stands between tokens, never inside a text."""
    return Raw(bytes(raw).replace(b"\n", b" ").replace(b"\r", b" "))


# What a part keeps for the way back


class Extra(msgspec.Struct, omit_defaults=True, rename="camel"):
    """What canonical parts have no field for."""

    provider_metadata: Json = UNSET
    message_metadata: Json = UNSET
    warnings: Json = UNSET
    usage: Json = UNSET
    dynamic: bool | None = None
    title: str | None = None
    media_type: str | None = None
    filename: str | None = None
    error_text: str | None = None


def packed(extra: Extra) -> Json:
    """What a part keeps for the way back; nothing when there is nothing to keep."""
    return UNSET if extra == Extra() else Raw(_json(extra))


def unpacked(raw: Json, wanted: type[T]) -> T:
    """A raw object by its shape; an empty one when it has another."""
    try:
        return msgspec.json.decode(raw, type=wanted) if isinstance(raw, Raw) else wanted()
    except (ValueError, RecursionError):
        return wanted()


# What is written. No key is ever null: an optional one that is not there is left out.


class Chunk(msgspec.Struct, rename="camel", tag_field="type", tag=""):
    """The base of what is written. Readers refuse keys they do not know, and null."""


class Start(Chunk, tag="start"):
    message_id: str
    message_metadata: Json = UNSET


class TextStart(Chunk, tag="text-start"):
    id: str
    provider_metadata: Json = UNSET


class TextEnd(Chunk, tag="text-end"):
    id: str
    provider_metadata: Json = UNSET


class ReasoningStart(Chunk, tag="reasoning-start"):
    id: str
    provider_metadata: Json = UNSET


class ReasoningEnd(Chunk, tag="reasoning-end"):
    id: str
    provider_metadata: Json = UNSET


class InputStart(Chunk, tag="tool-input-start"):
    tool_call_id: str
    tool_name: str
    provider_executed: bool | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET
    provider_metadata: Json = UNSET
    title: str | UnsetType = UNSET


class InputAvailable(Chunk, tag="tool-input-available"):
    tool_call_id: str
    tool_name: str
    input: Raw
    provider_executed: bool | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET
    provider_metadata: Json = UNSET
    title: str | UnsetType = UNSET


class InputError(Chunk, tag="tool-input-error"):
    tool_call_id: str
    tool_name: str
    input: str
    error_text: str
    provider_executed: bool | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET


class OutputAvailable(Chunk, tag="tool-output-available"):
    tool_call_id: str
    output: Raw
    provider_executed: bool | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET
    preliminary: bool | UnsetType = UNSET


class OutputError(Chunk, tag="tool-output-error"):
    tool_call_id: str
    error_text: str
    provider_executed: bool | UnsetType = UNSET
    dynamic: bool | UnsetType = UNSET


class ApprovalRequest(Chunk, tag="tool-approval-request"):
    approval_id: str
    tool_call_id: str


class SourceUrl(Chunk, tag="source-url"):
    source_id: str
    url: str
    title: str | UnsetType = UNSET


class SourceDocument(Chunk, tag="source-document"):
    source_id: str
    media_type: str
    title: str
    filename: str | UnsetType = UNSET


class File(Chunk, tag="file"):
    url: str
    media_type: str


class ReasoningFile(Chunk, tag="reasoning-file"):
    url: str
    media_type: str


class Custom(Chunk, tag="custom"):
    kind: str
    provider_metadata: Json = UNSET


class Failed(Chunk, tag="error"):
    error_text: str


class Abort(Chunk, tag="abort"):
    reason: str | UnsetType = UNSET


class Tokens(msgspec.Struct, rename="camel", omit_defaults=True):
    """Usage as a front end may show it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None


class Told(msgspec.Struct):
    """What is told of the response when it is asked for."""

    model: str | UnsetType = UNSET
    usage: Tokens | UnsetType = UNSET


Word = Literal["stop", "length", "content-filter", "tool-calls", "error", "other"]


class Finish(Chunk, tag="finish"):
    finish_reason: Word
    message_metadata: Told | Json = UNSET
