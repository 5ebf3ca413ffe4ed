"""Weft decodes, repairs, converts and encodes LLM streams in every vendor's dialect.

A name is imported from its home when it is first used: `weft --help` needs no codec.
"""

import sys as _sys
import typing as _typing
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

if _typing.TYPE_CHECKING:
    from weft.agent.agents import Agent
    from weft.agent.definition import Limits
    from weft.agent.library import (
        LogEntry,
        PendingCall,
        RunHandle,
        RunResult,
        RunStep,
        Runtime,
        UpstreamOptions,
    )
    from weft.agent.tool_spec import Done, NotDone
    from weft.agent.tools import ToolContext, tool
    from weft.assembler import ReasoningItem, Response, TextItem
    from weft.captures import Decoded, convert, decode_all, detect
    from weft.check import check
    from weft.codec import (
        AsyncDecodedStream,
        Converted,
        DecodedStream,
        Decoder,
        EncodedStream,
        Encoder,
        Translated,
        adecode,
        assemble,
        convert_request,
        decode,
        encode,
        encode_body,
    )
    from weft.context import Context, Quirks
    from weft.dialects import DIALECTS, DialectName
    from weft.dialects.ai_sdk.quirks import UiQuirks
    from weft.dialects.anthropic_messages.quirks import MessagesQuirks
    from weft.dialects.gemini.quirks import GeminiQuirks
    from weft.dialects.openai_chat.quirks import ChatQuirks
    from weft.dialects.openai_responses.quirks import ResponsesQuirks
    from weft.dialects.requests.codec import Loss
    from weft.dialects.stages.markup_calls import Markup
    from weft.errors import (
        ArgumentTypeError,
        ArgumentValueError,
        BadRequest,
        ClientError,
        InternalError,
        Refused,
        TooLarge,
        UnknownDialect,
        Unreadable,
        UpstreamError,
        WeftError,
    )
    from weft.findings import Finding, Findings
    from weft.guard import Guard
    from weft.ids import Ids
    from weft.parts import (
        AnyPart,
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
    from weft.prices import Price
    from weft.request import (
        AnyContent,
        CallContent,
        FileContent,
        Hosted,
        ImageContent,
        Message,
        OpaqueContent,
        OutputFormat,
        ReasoningContent,
        ReasoningOptions,
        Request,
        ResultContent,
        Sampling,
        TextContent,
        Tool,
        ToolChoice,
    )

__version__ = "0.1.0"

__all__ = [
    "DIALECTS",
    "Agent",
    "AnyContent",
    "AnyPart",
    "ArgumentTypeError",
    "ArgumentValueError",
    "AsyncDecodedStream",
    "BadRequest",
    "CallContent",
    "ChatQuirks",
    "ClientError",
    "Context",
    "Converted",
    "Decoded",
    "DecodedStream",
    "Decoder",
    "DialectName",
    "Done",
    "EncodedStream",
    "Encoder",
    "ErrorPart",
    "File",
    "FileContent",
    "Finding",
    "Findings",
    "Finish",
    "GeminiQuirks",
    "Guard",
    "Hosted",
    "Ids",
    "ImageContent",
    "InternalError",
    "Limits",
    "LogEntry",
    "Loss",
    "Markup",
    "Message",
    "MessagesQuirks",
    "NotDone",
    "Opaque",
    "OpaqueContent",
    "OutputFormat",
    "Part",
    "PendingCall",
    "Price",
    "Quirks",
    "ReasoningContent",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningItem",
    "ReasoningOptions",
    "ReasoningStart",
    "Refused",
    "Request",
    "Response",
    "ResponseMetadata",
    "ResponsesQuirks",
    "ResultContent",
    "RunHandle",
    "RunResult",
    "RunStep",
    "Runtime",
    "Sampling",
    "Source",
    "TextContent",
    "TextDelta",
    "TextEnd",
    "TextItem",
    "TextStart",
    "TooLarge",
    "Tool",
    "ToolApprovalRequest",
    "ToolCall",
    "ToolChoice",
    "ToolContext",
    "ToolParamsDelta",
    "ToolParamsEnd",
    "ToolParamsStart",
    "ToolResult",
    "Translated",
    "UiQuirks",
    "UnknownDialect",
    "Unreadable",
    "UpstreamError",
    "UpstreamOptions",
    "Usage",
    "WeftError",
    "__version__",
    "adecode",
    "assemble",
    "check",
    "convert",
    "convert_request",
    "decode",
    "decode_all",
    "detect",
    "encode",
    "encode_body",
    "tool",
]

_HOMES = {
    "weft.agent.definition": "Limits",
    "weft.agent.library": (
        "LogEntry PendingCall RunHandle RunResult RunStep Runtime UpstreamOptions"
    ),
    "weft.agent.agents": "Agent",
    "weft.agent.tool_spec": "Done NotDone",
    "weft.agent.tools": "ToolContext tool",
    "weft.assembler": "ReasoningItem Response TextItem",
    "weft.captures": "Decoded convert decode_all detect",
    "weft.check": "check",
    "weft.codec": (
        "AsyncDecodedStream Converted DecodedStream Decoder EncodedStream Encoder Translated "
        "adecode assemble convert_request decode encode encode_body"
    ),
    "weft.context": "Context Quirks",
    "weft.dialects": "DIALECTS DialectName",
    "weft.dialects.ai_sdk.quirks": "UiQuirks",
    "weft.dialects.anthropic_messages.quirks": "MessagesQuirks",
    "weft.dialects.gemini.quirks": "GeminiQuirks",
    "weft.dialects.openai_chat.quirks": "ChatQuirks",
    "weft.dialects.openai_responses.quirks": "ResponsesQuirks",
    "weft.dialects.requests.codec": "Loss",
    "weft.dialects.stages.markup_calls": "Markup",
    "weft.errors": (
        "ArgumentTypeError ArgumentValueError BadRequest ClientError InternalError Refused "
        "TooLarge UnknownDialect Unreadable UpstreamError WeftError"
    ),
    "weft.findings": "Finding Findings",
    "weft.guard": "Guard",
    "weft.ids": "Ids",
    "weft.parts": (
        "AnyPart ErrorPart File Finish Opaque Part ReasoningDelta ReasoningEnd ReasoningStart "
        "ResponseMetadata Source TextDelta TextEnd TextStart ToolApprovalRequest ToolCall "
        "ToolParamsDelta ToolParamsEnd ToolParamsStart ToolResult Usage"
    ),
    "weft.prices": "Price",
    "weft.request": (
        "AnyContent CallContent FileContent Hosted ImageContent Message OpaqueContent "
        "OutputFormat ReasoningContent ReasoningOptions Request ResultContent Sampling "
        "TextContent Tool ToolChoice"
    ),
}
"""Where each public name is defined."""


if not _typing.TYPE_CHECKING:  # a type checker knows the names by their imports above

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names.split():
                value: object = getattr(_import_module(home), name)
                # Found by the next use without coming here again.
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


# The documented way to give a module properties and setters: Python data model, "Customizing module
# attribute access".
_sys.modules[__name__].__class__ = _Package
