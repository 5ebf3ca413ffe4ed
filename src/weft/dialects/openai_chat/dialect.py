"""The row of this dialect in the table of dialects."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from weft.context import Context
from weft.dialects.base import Dialect, Stage
from weft.dialects.openai_chat.decoder import ChatDecoder
from weft.dialects.openai_chat.encoder import ChatEncoder, body
from weft.dialects.openai_chat.errors import write_error
from weft.dialects.openai_chat.http import HTTP
from weft.dialects.openai_chat.mapping import new_id
from weft.dialects.openai_chat.quirks import ChatQuirks, quirks_of
from weft.dialects.openai_chat.request import REQUEST
from weft.dialects.openai_chat.validator import ChatValidator
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.openai_errors import read_error
from weft.dialects.stages.markup_calls import MarkupCalls
from weft.dialects.stages.think_tags import ThinkTags
from weft.findings import Findings
from weft.sse import DONE, Frame


# Shapes with only the fields that a question needs: msgspec skips the others without building them.
class _IndexProbe(msgspec.Struct):
    index: int | None = None


class _ChunkProbe(msgspec.Struct):
    choices: list[_IndexProbe]


class _UsageProbe(msgspec.Struct):
    choices: list[msgspec.Raw]
    usage: msgspec.Raw


class _MessageProbe(msgspec.Struct):
    message: msgspec.Raw


class _CompletionProbe(msgspec.Struct):
    choices: list[_MessageProbe]


P = TypeVar("P", bound=msgspec.Struct)

_chunk = msgspec.json.Decoder(_ChunkProbe).decode
_usage = msgspec.json.Decoder(_UsageProbe).decode
_completion = msgspec.json.Decoder(_CompletionProbe).decode


def _probe(frame: Frame, decode: Callable[[bytes], P]) -> P | None:
    """Returns as much of a frame as a probe reads; None if it does not fit."""
    try:
        return decode(frame.data)
    except (ValueError, RecursionError):
        # `[DONE]`, other dialects, and JSON that is nested too deeply.
        return None


def _choices(frame: Frame) -> frozenset[int]:
    chunk = _probe(frame, _chunk)
    return frozenset(choice.index or 0 for choice in chunk.choices) if chunk else frozenset()


def _has_only_usage(frame: Frame) -> bool:
    chunk = _probe(frame, _usage)
    # If usage is requested, every chunk but the last has `usage: null`.
    return chunk is not None and not chunk.choices and bytes(chunk.usage) != b"null"


def _is_completion(frame: Frame) -> bool:
    # The bytes are searched first: hardly any chunk has the key, so hardly any is decoded.
    if b'"message"' not in frame.data:
        return False
    completion = _probe(frame, _completion)
    return completion is not None and bool(completion.choices)


def _stages(context: Context, findings: Findings) -> Sequence[Stage]:
    quirks = quirks_of(context)
    # Reasoning is taken out first: markup inside it is not a call.
    stages: list[Stage] = [ThinkTags(context.ids, findings, implicit=quirks.implicit_think)]
    if quirks.text_markup_calls is not None:
        stages.append(MarkupCalls(quirks.text_markup_calls, context.ids, findings))
    return stages


OPENAI_CHAT = Dialect(
    NAME,
    # No other dialect has events with a list of `choices`.
    speaks=lambda frame: _probe(frame, _chunk) is not None,
    decoder=ChatDecoder,
    encoder=ChatEncoder,
    request=REQUEST,
    # Most clients send back text and calls only.
    returns_reasoning=False,
    body=body,
    stages=_stages,
    ends=lambda frame: frame.data == DONE,
    new_id=new_id,
    stores=True,
    resumable_by_id=True,
    terminator=DONE,
    only_usage=_has_only_usage,
    is_whole=_is_completion,
    choices=_choices,
    read_error=read_error,
    write_error=write_error,
    http=HTTP,
    quirks=ChatQuirks,
    validator=ChatValidator,
)
