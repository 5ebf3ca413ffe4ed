"""What a response says, as facts that can be counted: the stated normalisation of the matrix.

Two responses say the same if their facts are the same. So this is what a conversion may change:
how text is cut into parts and where it stands between calls (texts of one kind are joined), ids
of items and of calls that the upstream ran, how often a source is told, the kind of an error,
whether a sum of tokens is told beside what it sums up and a zero beside it, and how a free-form
call (`{"input": …}` is its text) and the result of an MCP call (`{"type":"call","output":…}`) are
wrapped.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

import weft
from weft.assembler import ReasoningItem, Response, TextItem
from weft.partial_json import canonical
from weft.parts import File, Opaque, Source, ToolApprovalRequest, ToolCall, ToolResult

Fact = tuple[str, str]

EXPLAINED_BY: dict[str, tuple[str, ...]] = {
    "text": ("text-",),
    "refusal": ("text-",),
    "reasoning": ("reasoning-",),
    "proof": ("reasoning-", "text-", "tool-call"),
    "call": ("tool-",),
    "result": ("tool-",),
    "approval": ("tool-",),
    "source": ("source",),
    "place of a source": ("source",),
    "file": ("file",),
    "opaque": ("opaque",),
    "finish": ("finish",),
    "stop sequence": ("finish",),
    "usage": ("finish", "usage"),
    "error": ("error",),
}
"""The kinds of facts; and how the finding begins that says why one is not carried."""


def facts(response: Response) -> Counter[Fact]:
    found = Counter(_facts(response))
    return Counter({fact: 1 if fact[0] == "source" else count for fact, count in found.items()})


def _facts(response: Response) -> Iterator[Fact]:
    if response.text or response.refusal:
        yield "text", response.text + response.refusal
    if response.refusal:
        yield "refusal", "told apart"
    if response.reasoning:
        yield "reasoning", response.reasoning
    names = _names(response)
    for item in response.items:
        yield from _item(item, names)
    reason = response.finish_reason
    yield "finish", str(reason)
    if response.stop_sequence is not None:
        yield "stop sequence", response.stop_sequence
    for name, count in _usage(response.usage or weft.Usage()).items():
        if count is not None:
            yield "usage", f"{name}: {count}"
    if response.error is not None:
        yield "error", response.error.message


_COUNTED = ("input_tokens", "output_tokens")


def _usage(usage: weft.Usage) -> dict[str, int | None]:
    told: dict[str, int | None] = msgspec.structs.asdict(usage)
    if told["total_tokens"] == (usage.input_tokens or 0) + (usage.output_tokens or 0):
        del told["total_tokens"]
    return {name: count for name, count in told.items() if count or name in _COUNTED}


def _names(response: Response) -> dict[str, str]:
    """Calls by their ids; those that the upstream ran by how often their tool ran before."""
    names: dict[str, str] = {}
    ran: Counter[str] = Counter()
    for item in response.items:
        if isinstance(item, ToolCall):
            names[item.id] = f"#{ran[item.name]}" if item.provider_executed else item.id
            ran[item.name] += item.provider_executed
    return names


def _item(item: object, names: dict[str, str]) -> Iterator[Fact]:
    match item:
        case TextItem():
            if item.signature is not None:
                yield "proof", f"{item.origin}: {item.signature}"
        case ReasoningItem():
            for proof in (item.signature, item.encrypted, item.redacted):
                if proof is not None:
                    yield "proof", f"{item.origin}: {proof}"
        case ToolCall():
            yield "call", f"{names[item.id]} {_call(item)}"
            if item.signature is not None:
                yield "proof", f"{item.origin}: {item.signature}"
        case ToolResult():
            word = "error" if item.is_error else "preliminary" if item.preliminary else "final"
            yield (
                "result",
                f"{names.get(item.id, item.id)} {word} {_result(bytes(item.result))}",
            )
        case ToolApprovalRequest():
            yield "approval", f"{names.get(item.id, item.id)} {item.approval_id}"
        case Source():
            yield "source", f"{item.kind} {item.url or item.file_id} {item.title or ''}"
            if item.start is not None:
                yield "place of a source", f"{item.start}-{item.end}"
        case File():
            yield "file", f"{item.media_type} {item.data or item.reference}"
        case Opaque():
            yield "opaque", item.kind


def _meaning(text: str) -> str:
    """JSON whose spelling does not matter."""
    found = canonical(text)
    return text if found is None else found.decode()


def _result(result: bytes) -> str:
    """A result, without what the Responses API repeats of an MCP call in it."""
    found = msgspec.json.decode(result)
    if isinstance(found, dict) and found.get("type") == "call" and found.get("output") is not None:
        result = msgspec.json.encode(found["output"])
    return _meaning(result.decode())


def _call(item: ToolCall) -> str:
    ran = "ran" if item.provider_executed else item.invalid or "asked"
    said = _meaning(item.params)
    if item.format == "json" and item.params.startswith('{"input":'):
        said = _meaning(str(msgspec.json.decode(item.params)["input"]))
    return f"{item.name} {ran} {said}"


def unexplained(said: Counter[Fact], heard: Counter[Fact], findings: list[str]) -> list[Fact]:
    """What differs without a finding that says so."""
    different = (said - heard) + (heard - said)
    return [
        fact
        for fact in sorted(different)
        if not any(detail.startswith(EXPLAINED_BY[fact[0]]) for detail in findings)
    ]
