"""Responses in a form in which two of them can be compared, whatever dialects they passed."""

import msgspec

from weft.assembler import ReasoningItem, Response, TextItem
from weft.partial_json import canonical
from weft.parts import ToolCall, ToolResult, Usage


class Comparable(msgspec.Struct, frozen=True):
    """What a response says, without what any conversion may change: how text is split into parts,
    its position between calls, the ids of items and of calls that the upstream ran, the spelling of
    JSON, token counts that are zero or the sum of others, and calls that an error cut before their
    arguments began (not every dialect announces those)."""

    text: str
    refusal: str
    reasoning: str
    calls: tuple[tuple[str, ...], ...]
    executed_calls: tuple[tuple[str, ...], ...]
    """Calls that the upstream ran itself."""

    results: tuple[tuple[str, ...], ...]
    signatures: tuple[str, ...]
    finish: str | None
    usage: tuple[tuple[str, int], ...]
    error: str | None


def comparable(response: Response) -> Comparable:
    calls: list[tuple[str, ...]] = []
    executed: list[tuple[str, ...]] = []
    signatures: set[str | None] = set()
    names: dict[str, str] = {}
    """The calls that the upstream ran, numbered per tool."""
    runs: dict[str, int] = {}
    for item in response.items:
        match item:
            case ToolCall(provider_executed=True):
                # Their ids are the upstream's, and not every dialect carries them to its client.
                names[item.id] = f"#{runs.get(item.name, 0)}"
                runs[item.name] = runs.get(item.name, 0) + 1
                if not _is_empty(item):
                    executed.append((names[item.id], item.name, _spelled(item.params)))
            case ToolCall():
                if not _is_empty(item):
                    calls.append((item.id, item.name, item.invalid or "", _spelled(item.params)))
            case ReasoningItem():
                signatures |= {item.encrypted, item.redacted}
        if isinstance(item, TextItem | ReasoningItem | ToolCall):
            signatures.add(item.signature)
    results = [
        (
            names.get(item.id, item.id),
            "preliminary" if item.preliminary else "final",
            str(item.is_error),
            _spelled(bytes(item.result).decode()),
        )
        for item in response.items
        if isinstance(item, ToolResult)
    ]
    usage = response.usage or Usage()
    counts: dict[str, int | None] = msgspec.structs.asdict(usage)
    # Some dialects have no total: then it is computed, or missing.
    if usage.total_tokens == (usage.input_tokens or 0) + (usage.output_tokens or 0):
        del counts["total_tokens"]
    return Comparable(
        text=response.text,
        refusal=response.refusal,
        reasoning=response.reasoning,
        # Sorted: the order of parallel calls is one of the things that dialects may change.
        calls=tuple(sorted(calls)),
        executed_calls=tuple(sorted(executed)),
        results=tuple(sorted(results)),
        signatures=tuple(sorted(one for one in signatures if one is not None)),
        finish=response.finish_reason,
        usage=tuple((name, count) for name, count in counts.items() if count),
        error=None if response.error is None else response.error.kind,
    )


def _is_empty(call: ToolCall) -> bool:
    """Whether an error cut the call before its arguments began."""
    return call.invalid == "stream-failed" and not call.params.strip()


def _spelled(text: str) -> str:
    found = canonical(text)
    return text if found is None else found.decode()


def different_fields(one: Comparable, *others: Comparable) -> list[str]:
    """The fields in which none of the others is equal."""
    return [
        name
        for name in Comparable.__struct_fields__
        if all(getattr(one, name) != getattr(other, name) for other in others)
    ]
