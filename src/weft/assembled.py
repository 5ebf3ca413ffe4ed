"""A response as `weft assemble` prints it: one object whose keys are part of the contract."""

import msgspec
from msgspec import Raw

from weft.assembler import Response
from weft.findings import Finding
from weft.partial_json import parse
from weft.parts import (
    ErrorKind,
    FinishReason,
    Source,
    ToolApprovalRequest,
    ToolResult,
    Usage,
)

# Structs of their own: the keys and their order are promised, whatever the fold looks like.


class AssembledCall(msgspec.Struct):
    id: str
    name: str
    kind: str
    arguments: object
    provider_executed: bool


class AssembledInvalidCall(msgspec.Struct):
    id: str
    name: str
    raw: str
    reason: str


class AssembledResult(msgspec.Struct):
    id: str
    result: Raw
    is_error: bool
    preliminary: bool


class AssembledApproval(msgspec.Struct):
    approval_id: str
    call_id: str


class AssembledError(msgspec.Struct):
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
    tool_calls: list[AssembledCall]
    invalid_tool_calls: list[AssembledInvalidCall]
    tool_results: list[AssembledResult]
    approval_requests: list[AssembledApproval]
    sources: list[Source]
    finish_reason: FinishReason | None
    raw_finish_reason: str | None
    usage: Usage | None
    error: AssembledError | None
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
        tool_calls=[
            AssembledCall(
                call.id,
                call.name,
                call.kind,
                # Valid calls only, so it parses; free text is no JSON and stays as it is.
                call.params if call.format == "text" else parse(call.params),
                call.provider_executed,
            )
            for call in response.tool_calls
        ],
        invalid_tool_calls=[
            AssembledInvalidCall(call.id, call.name, call.params, call.invalid or "")
            for call in response.invalid_tool_calls
        ],
        tool_results=[AssembledResult(r.id, r.result, r.is_error, r.preliminary) for r in results],
        approval_requests=[AssembledApproval(one.approval_id, one.id) for one in approvals],
        sources=[item for item in items if isinstance(item, Source)],
        finish_reason=response.finish_reason,
        raw_finish_reason=response.raw_finish_reason,
        usage=response.usage,
        error=AssembledError(error.kind, error.message, error.code) if error else None,
        findings=response.findings,
    )
