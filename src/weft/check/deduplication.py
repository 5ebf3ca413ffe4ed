"""Which broken rules say the same thing: one defect is one finding.

A defect is often noticed twice: by a rule of the wire, and by what reading the stream had to
repair. The rule of the wire is more specific, so it is reported; what it implies is not. The
tables hold only pairs that a capture of the tests shows.
"""

from collections.abc import Iterable

import msgspec

from weft.check.rules import EVERY_RULE, Selection
from weft.findings import Finding


class Deduplicated(msgspec.Struct, frozen=True):
    """The findings of one response, in the order of the stream."""

    reported: list[Finding]
    implied: list[Finding]
    """What a reported finding says already."""


def _of(wire: str, table: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """The rows of one wire with full ids. A name without a slash is a rule of the lifecycle."""
    return {
        f"{wire}/{rule}": tuple(
            name if "/" in name else f"lifecycle/{name}" for name in names.split()
        )
        for rule, names in table.items()
    }


IMPLIED_AT_EVENT: dict[str, tuple[str, ...]] = {
    **_of(
        "ai-sdk",
        {
            "after-done": "after-finish",
            "after-error": "after-error",
            "after-finish": "after-finish",
            "call-input-differs": "whole-contradicts",
            "call-input-form": "arguments-double-encoded",
            "call-input-json": "arguments-invalid",
            "call-input-rewritten": "whole-contradicts",
            "call-name": "name-changed",
            "call-repeated": "call-repeated",
            "chunk-type": "event-unknown",
            "event-object": "field-coerced malformed",
            "finish-missing": "truncated",
            "item-id-reused": "id-reused",
            "item-not-open": "start-missing",
            "item-repeated": "start-repeated",
            "mixed-forms": "end-missing",
            "output-repeated": "result-late",
            "part-type": "event-unknown",
            "start-first": "metadata-id-minted",
            "usage-shape": "field-coerced",
        },
    ),
    **_of(
        "anthropic-messages",
        {
            "after-message-stop": "after-finish",
            "block-index": "call-index-reused",
            "block-late": "finish-late-content",
            "block-not-open": "delta-late end-repeated end-without-start start-missing "
            "call-id-minted call-nameless",
            "block-shape": "call-index-missing",
            "block-type": "event-unknown",
            "delta-fits": "event-unknown",
            "delta-type": "event-unknown",
            "done-frame": "event-unknown",
            "event-object": "event-unknown",
            "event-type": "event-unknown",
            # a cut stream has no end of any kind
            "message-delta": "finish-inferred truncated "
            "anthropic-messages/block-open anthropic-messages/message-stop",
            "message-start-first": "metadata-missing",
            "message-start-once": "metadata-repeated",
            "result-repeated": "result-late",
            "stop-reason": "finish-inferred",
            "stop-reason-calls": "stop-with-calls",
            "tool-id-missing": "call-id-minted",
        },
    ),
    **_of(
        "gemini",
        {
            "call-args": "arguments-double-encoded",
            "call-id-repeated": "call-id-collision",
            "call-name": "call-nameless",
            "call-stray": "call-nameless",
            "candidate-shape": "field-coerced",
            "content-late": "finish-late-content",
            "done-frame": "event-unknown",
            "error-shape": "field-coerced",
            "finish-missing": "truncated",
            "frame-object": "error-reported",
            "key-spelling": "event-unknown field-coerced",
            "part-empty": "event-unknown",
            "part-type": "event-unknown",
            "result-without-call": "result-without-call",
            "usage-shape": "field-coerced",
        },
    ),
    **_of(
        "openai-chat",
        {
            "after-done": "after-finish",
            "after-error": "after-error",
            "after-finish": "finish-late-content",
            "call-arguments-type": "field-coerced",
            "call-id-changed": "call-id-changed",
            "call-id-missing": "call-id-minted",
            "call-id-repeated": "call-id-repeated",
            "call-id-shared": "call-id-collision call-id-repeated call-index-drifted "
            "call-name-repeated",
            "call-index-missing": "call-index-missing",
            "call-index-reused": "call-index-reused call-id-changed",
            "call-name-repeated": "call-name-contradicted call-name-joined call-name-repeated",
            "data-invalid": "malformed",
            "delta-missing": "openai-chat/empty-delta",
            "error-chunk": "error-reported",
            # a cut stream has no end of any kind
            "finish-missing": "finish-inferred truncated openai-chat/done-missing",
            "finish-repeated": "finish-repeated",
            "function-call-legacy": "call-id-minted call-index-missing",
        },
    ),
    **_of(
        "openai-responses",
        {
            "after-terminal": "after-finish",
            "call-arguments-invalid": "arguments-invalid",
            "call-id-changed": "call-id-changed",
            "created-first": "metadata-missing",
            "data-invalid": "malformed",
            "index-changed": "id-reused start-missing",
            "index-repeated": "call-index-reused",
            "item-closed": "delta-late id-reused openai-responses/part-closed",
            "item-differs": "whole-contradicts",
            "item-done-repeated": "end-repeated",
            "item-not-added": "start-missing openai-responses/part-not-added",
            "item-not-done": "end-missing",
            "item-repeated": "start-repeated",
            "item-type-changed": "call-index-reused start-missing",
            "part-kind": "start-missing",
            "part-not-added": "start-missing",
            "snapshot-types": "field-coerced",
            "terminal-missing": "truncated openai-responses/done-missing",
            "terminal-repeated": "after-finish",
        },
    ),
}
"""Rule -> the rules that its finding implies at the same event, however often."""

IMPLIED_IN_RESPONSE: dict[str, tuple[str, ...]] = {
    **_of(
        "ai-sdk",
        {
            "call-id-differs": "call-id-changed",
            "call-open": "end-missing",
            "event-object": "after-error",  # an event that cannot be read ends the content
            "item-open": "end-missing",
            "message-id": "metadata-id-minted",
        },
    ),
    **_of(
        "anthropic-messages",
        {
            "block-not-open": "end-missing",  # of the block that the stray delta began
            "block-open": "end-missing",
            "message-start-ended": "finish-late-content",
            "tool-id-repeated": "call-id-collision call-repeated",  # found at the end of the second
            "tool-input-json": "arguments-placeholder",
            "tool-name-missing": "call-nameless",
        },
    ),
    **_of(
        "gemini",
        {
            "call-stray": "call-nameless end-without-start",  # each piece is read as a call
            "partial-args": "arguments-invalid",
            "partial-args-order": "arguments-invalid",
        },
    ),
    **_of(
        "openai-chat",
        {
            "call-arguments-invalid": "arguments-empty arguments-invalid",
            "call-arguments-type": "openai-chat/call-arguments-invalid",  # other types are no text
            "call-id-missing": "call-id-minted",
            "call-id-shared": "arguments-snapshot",  # two calls are read as one
            "call-nameless": "call-name-late call-nameless",
            "data-invalid": "openai-chat/done-missing openai-chat/finish-missing",
            "message-in-chunk": "message-ignored",
            "stop-with-calls": "stop-with-calls",
        },
    ),
    **_of(
        "openai-responses",
        {
            "call-nameless": "call-nameless",
            "call-repeated": "call-id-collision",
            "data-invalid": "openai-responses/done-missing openai-responses/terminal-missing",
            "deltas-differ": "whole-contradicts",
            "deltas-missing": "whole-extends",
            "index-changed": "whole-extends",  # of the item that the other index began
            "item-closed": "end-missing",  # of the item that the late delta began
            "item-type-changed": "end-missing",
            "number-missing": "openai-responses/number-start",
            "number-order": "openai-responses/number-gap",  # numbers that changed places
            "part-closed": "whole-contradicts",
            "part-index": "whole-extends",
        },
    ),
}
"""Rule -> the rules of which its finding implies one finding each, the nearest in the response:
the wire shows the defect at one event, and reading the stream notices it at another.
"""


def deduplicate(found: Iterable[Finding], selection: Selection = EVERY_RULE) -> Deduplicated:
    """Parts the findings of one response into those to report and those they imply.

    A defect whose rule is ignored is left out, with all that it implies. One that is implied by
    a rule that is not selected is reported itself, if its own rule is.
    """
    ordered = sorted(dict.fromkeys(found), key=lambda one: (one.at, one.offset))
    causes = _causes(ordered)
    deduplicated = Deduplicated([], [])
    for one in ordered:
        rule, *implying = _chain(one, causes)
        if not any(each in selection.ignored for each in (rule, *implying)):
            if any(map(selection.selects, implying)):
                deduplicated.implied.append(one)
            elif selection.selects(rule):
                deduplicated.reported.append(one)
    return deduplicated


def _causes(ordered: list[Finding]) -> dict[Finding, Finding]:
    """Which finding implies another one."""
    by_rule: dict[str, list[Finding]] = {}
    for one in ordered:
        by_rule.setdefault(one.code, []).append(one)
    causes: dict[Finding, Finding] = {}
    for one in ordered:
        for rule in IMPLIED_AT_EVENT.get(one.code, ()):
            for other in by_rule.get(rule, ()):
                if other.at == one.at:
                    causes.setdefault(other, one)
    for one in ordered:
        for rule in IMPLIED_IN_RESPONSE.get(one.code, ()):
            left = [other for other in by_rule.get(rule, ()) if other not in causes]
            if left:
                causes[min(left, key=lambda other: abs(other.at - one.at))] = one
    return causes


def _chain(found: Finding, causes: dict[Finding, Finding]) -> list[str]:
    """The rule of a finding, the rule that implies it, the rule that implies that …"""
    chain = [found.code]
    one = causes.get(found)
    while one is not None and one.code not in chain:
        chain.append(one.code)
        one = causes.get(one)
    return chain
