"""Tools for targets with other kinds of tools: free text as an object, approvals, grammars."""

import msgspec
from msgspec import Raw

from weft import large_json
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of, is_json_object
from weft.dialects.requests.unknown_fields import ESSENTIAL_FOR_TOOLS, collect, report_unknown
from weft.parts import Json
from weft.request import CallContent, Tool

FREE_TEXT_SCHEMA = Raw(
    b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}'
)
"""The parameters of a custom tool that is declared as a function."""

_APPROVAL = "require_approval"

_json = msgspec.json.Encoder().encode


def arguments_object(call: CallContent, path: str, losses: Losses) -> Raw:
    """Returns the arguments of an earlier call as an object, wrapped in one if they are not."""
    # The same object that `FREE_TEXT_SCHEMA` declares: the model sees its calls as it made them.
    if call.format == "text":
        losses.adapted(f"{path}.params", "free text is sent as an object with the key input")
        return Raw(_json({"input": call.params}))
    # Models call tools without parameters with an empty string.
    if not call.params.strip():
        return Raw(b"{}")
    if is_json_object(call.params):
        return Raw(call.params.encode())
    # Cut or broken JSON. As `{}` it would claim that the model gave no arguments.
    losses.warned(f"{path}.params", "not an object: sent under the key _raw")
    return Raw(_json({"_raw": call.params}))


def schema_keywords(parameters: Json) -> dict[str, Raw] | None:
    """Returns the keywords of a schema; None if it is not an object."""
    try:
        return large_json.members(parameters) if isinstance(parameters, Raw) else None
    except (ValueError, RecursionError):
        return None


def report_no_approval(tool: Tool, path: str, losses: Losses, target: str) -> None:
    """Reports that a remote tool runs without approval, and its fields that the target lacks."""
    extra = fields_of(tool.extra)
    approval = extra.pop(_APPROVAL, None)
    if approval is None:
        # Waived, or of a dialect that never asks; a tool that was built without a body says
        # neither.
        if tool.origin is None:
            losses.warned(path, "tools of remote servers run without approval")
    elif bytes(approval) != b'"never"':
        losses.refused(f"{path}.{_APPROVAL}", "approvals are not available; set never")
    report_unknown(collect(extra), path, losses, target, ESSENTIAL_FOR_TOOLS)


class Grammar(msgspec.Struct, omit_defaults=True):
    definition: str
    syntax: str = "lark"


# Chat Completions nests the grammar one level deeper than Responses does.
class _ToolFormat(msgspec.Struct):
    type: str = "text"
    grammar: Grammar | None = None
    definition: str | None = None
    syntax: str = "lark"


class _CustomTool(msgspec.Struct):
    """A declaration with its format, or with both one level deeper."""

    format: _ToolFormat | None = None
    custom: "_CustomTool | None" = None


def parse_grammar(declaration: Json) -> Grammar | None:
    """Returns the grammar that a custom tool was declared with, in any dialect."""
    if not isinstance(declaration, Raw):
        return None
    try:
        tool = msgspec.json.decode(declaration, type=_CustomTool)
    except ValueError:
        return None
    format = (tool.custom or tool).format
    if format is None or format.definition is None:
        return format.grammar if format else None
    return Grammar(format.definition, format.syntax)


def custom_tool_description(tool: Tool, path: str, losses: Losses) -> str | None:
    """Returns the description of a custom tool that is declared as a function, with its grammar."""
    grammar = parse_grammar(tool.raw) or parse_grammar(tool.extra)
    if grammar is None:
        return tool.description
    losses.warned(f"{path}.format", "the grammar is described, but not enforced")
    described = f"The text `input` matches this {grammar.syntax} grammar:\n{grammar.definition}"
    return f"{tool.description}\n\n{described}" if tool.description else described
