"""`weft assemble`: each response of a capture as one JSON object."""

import click
import msgspec
from msgspec import Raw

from weft.assembler import Response
from weft.cli.captures import (
    Capture,
    capture_argument,
    from_option,
    quiet_option,
    write_lines,
)
from weft.findings import Finding
from weft.partial_json import parse
from weft.parts import (
    ErrorKind,
    FinishReason,
    Source,
    ToolApprovalRequest,
    ToolCall,
    ToolResult,
    Usage,
)


class Call(msgspec.Struct):
    id: str
    name: str
    kind: str
    arguments: object
    provider_executed: bool


class InvalidCall(msgspec.Struct):
    id: str
    name: str
    raw: str
    reason: str


class Result(msgspec.Struct):
    id: str
    result: Raw
    is_error: bool
    preliminary: bool


class Approval(msgspec.Struct):
    approval_id: str
    call_id: str


class Error(msgspec.Struct):
    kind: ErrorKind
    message: str
    code: str | int | None


class Assembled(msgspec.Struct):
    """The object that `weft assemble` prints. Its keys are part of the contract."""

    id: str
    model: str | None
    choice: int
    text: str
    reasoning: str
    refusal: str
    tool_calls: list[Call]
    invalid_tool_calls: list[InvalidCall]
    tool_results: list[Result]
    approval_requests: list[Approval]
    sources: list[Source]
    finish_reason: FinishReason | None
    raw_finish_reason: str | None
    usage: Usage | None
    error: Error | None
    findings: tuple[Finding, ...]


def assembled(response: Response) -> Assembled:
    error = response.error
    items = response.items
    results = [item for item in items if isinstance(item, ToolResult)]
    approvals = [item for item in items if isinstance(item, ToolApprovalRequest)]
    return Assembled(
        id=response.id,
        model=response.model,
        choice=response.choice,
        text=response.text,
        reasoning=response.reasoning,
        refusal=response.refusal,
        tool_calls=[_call(call) for call in response.tool_calls],
        invalid_tool_calls=[
            InvalidCall(call.id, call.name, call.params, call.invalid or "")
            for call in response.invalid_tool_calls
        ],
        tool_results=[Result(r.id, r.result, r.is_error, r.preliminary) for r in results],
        approval_requests=[Approval(one.approval_id, one.id) for one in approvals],
        sources=[item for item in items if isinstance(item, Source)],
        finish_reason=response.finish_reason,
        raw_finish_reason=response.raw_finish_reason,
        usage=response.usage,
        error=Error(error.kind, error.message, error.code) if error else None,
        findings=response.findings,
    )


def _call(call: ToolCall) -> Call:
    arguments = call.params if call.format == "text" else parse(call.params)
    return Call(call.id, call.name, call.kind, arguments, call.provider_executed)


@click.command(short_help="Print each response of a capture as one JSON object.")
@capture_argument
@from_option
@quiet_option
def assemble(capture: str, source: str | None, quiet: bool) -> None:
    """Print each response of a CAPTURE, and each choice, as one JSON object on one line.

    Keys: id, model, choice, text, reasoning, refusal, tool_calls, invalid_tool_calls,
    tool_results, approval_requests, sources, finish_reason, raw_finish_reason, usage, error,
    findings. A response that failed is printed like any other: its error says why, and its
    calls are all invalid. Findings (what was repaired) also go to standard error, one line each.

    Exit: 0, or 2 if the capture is unreadable.

    \b
      weft assemble stream.sse | jq .tool_calls
    """
    read = Capture(capture, source)
    decoded = read.decoded()
    write_lines(assembled(one.response) for one in decoded)
    if not quiet:
        read.report(decoded)
