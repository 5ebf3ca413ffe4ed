"""The row of this dialect in the table of dialects."""

from collections.abc import Sequence

import msgspec

from weft.context import Context
from weft.dialects.base import Dialect, Stage
from weft.dialects.openai_chat.decoder import ChatDecoder
from weft.dialects.openai_chat.encoder import ChatEncoder, body
from weft.dialects.openai_chat.errors import read_error, write_error
from weft.dialects.openai_chat.http import HTTP
from weft.dialects.openai_chat.mapping import new_id
from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.dialects.openai_chat.request import REQUEST
from weft.dialects.openai_chat.validation.rules import RULES
from weft.dialects.openai_chat.validator import ChatValidator
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.stages.markup_calls import MarkupCalls
from weft.dialects.stages.think_tags import ThinkTags
from weft.findings import Findings
from weft.sse import DONE, Frame


class _Index(msgspec.Struct):
    index: int | None = None


class _Glance(msgspec.Struct):
    """As much of a chunk as tells what it is."""

    choices: list[_Index]


_glance = msgspec.json.Decoder(_Glance).decode


def _choices(frame: Frame) -> frozenset[int]:
    try:
        return frozenset(choice.index or 0 for choice in _glance(frame.data).choices)
    except (ValueError, RecursionError):
        return frozenset()


def _speaks(frame: Frame) -> bool:
    try:
        _glance(frame.data)
    except (ValueError, RecursionError):
        return False
    return True


def _ends(frame: Frame) -> bool:
    return frame.data == DONE


def _stages(context: Context, findings: Findings) -> Sequence[Stage]:
    quirks = context.quirks if isinstance(context.quirks, ChatQuirks) else ChatQuirks()
    stages: list[Stage] = [ThinkTags(context.ids, findings, implicit=quirks.implicit_think)]
    if quirks.text_markup_calls is not None:
        stages.append(MarkupCalls(quirks.text_markup_calls, context.ids, findings))
    return stages


class _Usage(msgspec.Struct):
    """As much of a chunk as says whether it tells the usage alone."""

    choices: list[msgspec.Raw]
    usage: msgspec.Raw


_usage = msgspec.json.Decoder(_Usage).decode


def _only_usage(frame: Frame) -> bool:
    try:
        found = _usage(frame.data)
    except (ValueError, RecursionError):
        return False
    return not found.choices and bytes(found.usage) != b"null"


class _Message(msgspec.Struct):
    message: msgspec.Raw


class _Whole(msgspec.Struct):
    choices: list[_Message]


_whole = msgspec.json.Decoder(_Whole).decode


def _is_whole(frame: Frame) -> bool:
    if b'"message"' not in frame.data:
        return False
    try:
        return bool(_whole(frame.data).choices)
    except (ValueError, RecursionError):
        return False


OPENAI_CHAT = Dialect(
    NAME,
    speaks=_speaks,
    decoder=ChatDecoder,
    encoder=ChatEncoder,
    request=REQUEST,
    returns_reasoning=False,
    body=body,
    stages=_stages,
    ends=_ends,
    new_id=new_id,
    stores=True,
    resumable_by_id=True,
    terminator=DONE,
    only_usage=_only_usage,
    is_whole=_is_whole,
    choices=_choices,
    read_error=read_error,
    write_error=write_error,
    http=HTTP,
    quirks=ChatQuirks,
    rules=RULES,
    invariants=ChatValidator,
)
