"""Weft speaks every LLM streaming dialect and makes each stream happen exactly once.

A name is imported from its home when it is first used: `weft --help` needs no codec.
"""

import sys as _sys
import typing as _typing
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

if _typing.TYPE_CHECKING:
    from weft.assembler import ReasoningItem, Response, TextItem
    from weft.captures import Decoded, convert, decode_all, detect
    from weft.check import check
    from weft.codec import Decoder, Encoder, adecode, assemble, convert_request, decode, encode
    from weft.context import Context, Quirks
    from weft.dialects import DIALECTS
    from weft.errors import (
        BadRequest,
        ClientError,
        InternalError,
        TooLarge,
        UnknownDialect,
        Unreadable,
        UpstreamError,
        WeftError,
    )
    from weft.findings import Finding
    from weft.guard import Guard
    from weft.ids import Ids
    from weft.parts import (
        ErrorPart,
        File,
        Finish,
        Opaque,
        Part,
        ReasoningDelta,
        ReasoningEnd,
        ReasoningStart,
        ResponseMetadata,
        Source,
        TextDelta,
        TextEnd,
        TextStart,
        ToolApprovalRequest,
        ToolCall,
        ToolParamsDelta,
        ToolParamsEnd,
        ToolParamsStart,
        ToolResult,
        Usage,
    )
    from weft.request import Request

__all__ = [
    "DIALECTS",
    "BadRequest",
    "ClientError",
    "Context",
    "Decoded",
    "Decoder",
    "Encoder",
    "ErrorPart",
    "File",
    "Finding",
    "Finish",
    "Guard",
    "Ids",
    "InternalError",
    "Opaque",
    "Part",
    "Quirks",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningItem",
    "ReasoningStart",
    "Request",
    "Response",
    "ResponseMetadata",
    "Source",
    "TextDelta",
    "TextEnd",
    "TextItem",
    "TextStart",
    "TooLarge",
    "ToolApprovalRequest",
    "ToolCall",
    "ToolParamsDelta",
    "ToolParamsEnd",
    "ToolParamsStart",
    "ToolResult",
    "UnknownDialect",
    "Unreadable",
    "UpstreamError",
    "Usage",
    "WeftError",
    "adecode",
    "assemble",
    "check",
    "convert",
    "convert_request",
    "decode",
    "decode_all",
    "detect",
    "encode",
]

_HOMES = {
    "weft.assembler": "ReasoningItem Response TextItem",
    "weft.captures": "Decoded convert decode_all detect",
    "weft.check": "check",
    "weft.codec": "Decoder Encoder adecode assemble convert_request decode encode",
    "weft.context": "Context Quirks",
    "weft.dialects": "DIALECTS",
    "weft.errors": (
        "BadRequest ClientError InternalError TooLarge UnknownDialect Unreadable "
        "UpstreamError WeftError"
    ),
    "weft.findings": "Finding",
    "weft.guard": "Guard",
    "weft.ids": "Ids",
    "weft.parts": (
        "ErrorPart File Finish Opaque Part ReasoningDelta ReasoningEnd ReasoningStart "
        "ResponseMetadata Source TextDelta TextEnd TextStart ToolApprovalRequest "
        "ToolCall ToolParamsDelta ToolParamsEnd ToolParamsStart ToolResult Usage"
    ),
    "weft.request": "Request",
}
"""Where each public name is defined."""


if not _typing.TYPE_CHECKING:  # a type checker knows the names by their imports above

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names.split():
                value: object = getattr(_import_module(home), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(_ModuleType):
    """This package: `weft.check` is the function, also where its home, the package of that name,
    was imported first. The import of a package binds it to its parent."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "check" or not isinstance(value, _ModuleType):
            super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package
