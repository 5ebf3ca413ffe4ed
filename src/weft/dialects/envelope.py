"""Signatures and encrypted reasoning of one origin, wrapped so that clients of another can carry
them.

A client has one opaque field for what makes a reasoning valid. The state of another origin travels
in it as `weft1:<origin>:<model>:<base64>`; the reader of the field unwraps it and has the state as
it was, with its origin. Plain base64, not encryption. The envelope itself is never sent upstream. A
wire whose field holds bytes has the same envelope in base64.

The signature of a call travels the same way: in a field of the call if the wire has one, otherwise
in a reasoning before the call; so the envelope names the call.

The summary of earlier turns travels as `weft1-summary:<base64>`. It is not protected: the client
could send any text instead.
"""

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import ReasoningItem
from weft.parts import (
    Json,
    ReasoningEnd,
    ReasoningKind,
    ReasoningStart,
    ToolCall,
    ToolParamsStart,
)
from weft.request import CallContent, ReasoningContent

# The number is the version of the format: clients send envelopes back after an upgrade.
_PREFIX = "weft1"
# `weft1:` is six bytes, a whole number of base64 groups: what follows does not change these.
_PREFIX_IN_BASE64 = "d2VmdDE6"
_SUMMARY_PREFIX = "weft1-summary:"


# An array on the wire: envelopes travel with every later request, so they are kept small.
class ReasoningText(msgspec.Struct, frozen=True, array_like=True):
    """The text of one part of a reasoning."""

    kind: ReasoningKind
    text: str


class ReasoningState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the origin needs to accept a reasoning again, whatever else the client returns of it; or
    the signature of a call.
    """

    signature: str | None = None
    encrypted: str | None = None
    redacted: str | None = None
    item_id: str | None = None
    kind: ReasoningKind | None = None
    text: str | None = None
    """The exact text that is signed; None if the wire returns it in one piece, unchanged."""
    call: str | None = None
    """The call that `signature` belongs to, by the id that the client knows."""
    before: tuple[ReasoningText, ...] = ()
    """Earlier parts of the same item, which have no state of their own."""


class Envelope(msgspec.Struct, frozen=True):
    """The state of a reasoning, and whose it is."""

    origin: str
    model: str | None
    state: ReasoningState


_encode = msgspec.json.Encoder().encode
_decode_state = msgspec.json.Decoder(ReasoningState).decode


def wrap(envelope: Envelope) -> str:
    """Returns the envelope as text: letters, digits and punctuation that any opaque field holds."""
    # The alphabet of RFC 4648, section 5, has neither `+` nor `/`: no field or URL escapes it.
    data = urlsafe_b64encode(_encode(envelope.state)).decode()
    return f"{_PREFIX}:{_quote(envelope.origin)}:{_quote(envelope.model or '')}:{data}"


def unwrap(text: str | None) -> Envelope | None:
    """Returns the content of an envelope; None for any other text."""
    try:
        # Gemini's signatures are bytes, in base64.
        if text is not None and text.startswith(_PREFIX_IN_BASE64):
            text = b64decode(text, validate=True).decode()
        if text is None or not text.startswith(f"{_PREFIX}:") or text.count(":") != 3:
            return None
        _, origin, model, data = text.split(":")
        state = _decode_state(urlsafe_b64decode(data))
    except ValueError:
        # Any text may stand there: base64, UTF-8 or JSON that does not decode is no envelope.
        return None
    return Envelope(_unquote(origin), _unquote(model) or None, state)


def is_envelope(raw: Json) -> bool:
    """Whether a raw value is a string with an envelope."""
    try:
        text = msgspec.json.decode(raw, type=str) if isinstance(raw, Raw) else None
    except ValueError:
        return False
    return unwrap(text) is not None


def to_base64(envelope: str) -> str:
    return b64encode(envelope.encode()).decode()


def _quote(text: str) -> str:
    # An origin may be a host with a port. `%` first, or it would quote its own escapes.
    return text.replace("%", "%25").replace(":", "%3A")


def _unquote(text: str) -> str:
    return text.replace("%3A", ":").replace("%25", "%")


# Summaries


def wrap_summary(text: str) -> str:
    return _SUMMARY_PREFIX + urlsafe_b64encode(text.encode()).decode()


def unwrap_summary(text: str | None) -> str | None:
    """Returns the summary in an envelope; None for any other text."""
    if text is None or not text.startswith(_SUMMARY_PREFIX):
        return None
    try:
        return b64decode(text.removeprefix(_SUMMARY_PREFIX), b"-_", validate=True).decode()
    except ValueError:
        return None


# Calls


def wrap_call_signature(
    call: ToolParamsStart | ToolCall, model: str | None, id: str | None = None
) -> str | None:
    """Returns the envelope of a call's signature; None without a signature or its origin. `id` is
    the call's id for the client, if that is another.
    """
    # Without its origin nobody could decide whom to send it back to.
    if call.signature is None or call.origin is None:
        return None
    return wrap(Envelope(call.origin, model, ReasoningState(call.signature, call=id or call.id)))


def unwrap_signature(text: str | None, sender: str) -> tuple[str | None, str | None]:
    """Returns the signature of a call and its origin: the sender, unless it is in an envelope."""
    envelope = unwrap(text)
    if envelope is not None:
        return envelope.state.signature, envelope.origin
    return (text, sender) if text else (None, None)


def with_signature(call: CallContent, envelope: Envelope) -> CallContent:
    """Returns the call of an earlier turn with the signature in an envelope."""
    signature, origin = envelope.state.signature, envelope.origin
    return msgspec.structs.replace(call, signature=signature, origin=origin)


# Reasoning


def wrap_reasoning(
    end: ReasoningEnd | ReasoningItem,
    model: str | None,
    start: ReasoningStart | ReasoningItem,
    text: str | None = None,
    before: tuple[ReasoningText, ...] = (),
) -> str | None:
    """Returns the envelope of a reasoning; None if its origin is unknown. A reasoning without a
    signature has an origin only if that may want the text back.
    """
    if end.origin is None:
        return None
    state = ReasoningState(
        end.signature,
        end.encrypted,
        end.redacted,
        start.item_id,
        start.kind,
        text,
        before=before,
    )
    return wrap(Envelope(end.origin, model, state))


def wrap_origin(origin: str, model: str | None) -> str:
    """Returns the envelope of a reasoning without state: its origin may want the text back."""
    return wrap(Envelope(origin, model, ReasoningState()))


def unwrap_reasoning_end(end: ReasoningEnd) -> ReasoningEnd:
    """Returns the end of a reasoning with the state in its envelope, if it has one."""
    envelope = unwrap(end.signature) or unwrap(end.encrypted)
    # The signature of a call that travelled in a reasoning says nothing about this one.
    if envelope is None or envelope.state.call is not None:
        return end
    state = envelope.state
    is_signed = state.signature or state.encrypted or state.redacted
    # An envelope without state only carried the text's origin for the way back.
    origin = envelope.origin if is_signed else None
    return ReasoningEnd(
        end.id, state.signature, state.encrypted, state.redacted, origin, end.whole, end.extra
    )


def restore_reasoning(
    envelope: Envelope, text: str, kind: ReasoningKind, extra: Json = UNSET
) -> ReasoningContent:
    """Returns the reasoning that a client sent back. `text` is what the client returned of it."""
    state = envelope.state
    return ReasoningContent(
        # Clients show, cut or summarize the text; only the exact one is valid with its signature.
        text if state.text is None else state.text,
        state.kind or kind,
        state.item_id,
        state.signature,
        state.encrypted,
        state.redacted,
        envelope.origin,
        extra,
    )


def restore_reasoning_item(envelope: Envelope) -> tuple[ReasoningContent, ...]:
    """Returns all parts of a reasoning item; the last one has its state."""
    state = envelope.state
    before = [
        ReasoningContent(one.text, one.kind, state.item_id, origin=envelope.origin)
        for one in state.before
    ]
    return (*before, restore_reasoning(envelope, "", "raw"))
