"""What wires say in different words: how hard to think, free text as arguments, names in groups."""

import msgspec
from msgspec import Raw

from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of, is_json_object
from weft.dialects.requests.unknown_fields import (
    ESSENTIAL_FOR_TOOLS,
    collect,
    report_unknown,
)
from weft.parts import Json
from weft.request import CallContent, Tool

FREE_TEXT_SCHEMA = Raw(
    b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}'
)
"""The parameters of a tool that takes free text, where tools take objects only."""

_APPROVAL = "require_approval"
_NEVER_ASKS = frozenset({"anthropic-messages", "gemini"})
"""Where nobody is asked anyway before a remote tool runs."""

_json = msgspec.json.Encoder().encode


def arguments_object(call: CallContent, path: str, losses: Losses) -> Raw:
    """The arguments of an earlier call as an object. What is none stands in one, as it was."""
    if call.format == "text":
        losses.adapted(f"{path}.params", "free text is sent as an object with the key input")
        return Raw(_json({"input": call.params}))
    if not call.params.strip():
        return Raw(b"{}")
    if is_json_object(call.params):
        return Raw(call.params.encode())
    losses.warned(f"{path}.params", "arguments that are no object are sent under the key _raw")
    return Raw(_json({"_raw": call.params}))


def schema_keywords(parameters: Json) -> dict[str, Raw] | None:
    """The keywords of a schema; None for what is no object."""
    if isinstance(parameters, Raw) and is_json_object(parameters):
        return fields_of(parameters)
    return None


def report_no_approval(tool: Tool, path: str, losses: Losses, target: str) -> None:
    """Notes that nobody is asked before a remote tool runs, and what else cannot be told it."""
    beside = fields_of(tool.extra)
    approval = beside.pop(_APPROVAL, None)
    if approval is None:
        if tool.origin not in _NEVER_ASKS:
            losses.warned(path, "tools of remote servers run without approval")
    elif bytes(approval) != b'"never"':
        losses.refused(f"{path}.{_APPROVAL}", "approvals are not available; set never")
    report_unknown(collect(beside), path, losses, target, ESSENTIAL_FOR_TOOLS)


class Grammar(msgspec.Struct, omit_defaults=True):
    definition: str
    syntax: str = "lark"


class _ToolFormat(msgspec.Struct):
    type: str = "text"
    grammar: Grammar | None = None
    definition: str | None = None
    syntax: str = "lark"


class _CustomTool(msgspec.Struct):
    """The format is inside, or one level deeper."""

    format: _ToolFormat | None = None
    custom: "_CustomTool | None" = None


def parse_grammar(declaration: Json) -> Grammar | None:
    """Returns the grammar that a tool for free text was declared with, on any wire."""
    try:
        told = (
            msgspec.json.decode(declaration, type=_CustomTool)
            if isinstance(declaration, Raw)
            else _CustomTool()
        )
    except ValueError:
        return None
    format = (told.custom or told).format
    if format is None or format.definition is None:
        return format.grammar if format else None
    return Grammar(format.definition, format.syntax)


def custom_tool_description(tool: Tool, path: str, losses: Losses) -> str | None:
    """What is said of a tool for free text where it is declared as a function: its grammar, too."""
    grammar = parse_grammar(tool.raw) or parse_grammar(tool.extra)
    if grammar is None:
        return tool.description
    losses.warned(f"{path}.format", "the grammar is described, and not enforced")
    told = f"The text `input` matches this {grammar.syntax} grammar:\n{grammar.definition}"
    return f"{tool.description}\n\n{told}" if tool.description else told
