"""Which capture shows which row of the quirk catalogue, and how some of them are read."""

from collections.abc import Callable
from pathlib import Path

from weft.cases import CONTEXT, read_context
from weft.context import Context
from weft.dialects.base import Stage
from weft.dialects.stages.custom_tools import CustomToolCalls
from weft.dialects.stages.stop_sequences import StopSequences
from weft.findings import Findings

ROWS: dict[str, tuple[str, ...]] = {
    # framing and transport
    "Q01": ("comments-as-keepalive", "body-behind-comments", "only-comments"),
    "Q02": ("comment-wrapped-as-data",),
    "Q03": ("comment-after-id",),
    "Q04": ("empty-data-heartbeats",),
    "Q05": ("no-space-after-data",),
    "Q06": ("crlf-line-ends",),
    "Q07": ("cr-line-ends", "mixed-line-ends"),
    "Q08": (
        "last-event-unterminated",
        "last-event-one-newline",
        "last-event-cut",
        "last-event-cut-after-finish",
        "done-unterminated",
        "error-as-field-name-unterminated",
    ),
    "Q09": ("one-newline-between-events", "one-newline-and-no-done"),
    "Q10": ("json-over-several-data-lines",),
    "Q11": ("named-events-that-are-no-chunks", "chunks-under-an-event-name"),
    "Q12": ("ping-as-json",),
    "Q13": ("reads-cut-anywhere",),
    "Q14": ("reads-cut-anywhere",),
    "Q15": (
        "surrogate-pair-in-two-deltas",
        "surrogate-half-alone",
        "surrogate-pair-in-reasoning-and-arguments",
        "surrogate-pair-between-kinds",
    ),
    "Q16": (
        "body-instead-of-stream",
        "body-over-many-lines",
        "body-with-calls",
        "body-behind-comments",
        "error-body-instead-of-stream",
        "body-in-one-event",
        "body-over-two-choices",
        "body-over-two-choices-without-index",
        "think-tags-in-a-body",
        "body-with-citations",
    ),
    "Q17": ("body-then-done", "body-and-done-on-one-line"),
    "Q18": ("done-unterminated", "done-spelled-loosely"),
    "Q19": ("retry-id-and-byte-order-mark",),
    # the shape of a chunk
    "Q20": ("prompt-filter-first",),
    "Q21": ("choices-null-or-missing",),
    "Q22": ("choice-without-delta",),
    "Q23": ("delta-null",),
    "Q24": ("id-changes-with-each-chunk", "id-always-empty"),
    "Q25": ("model-changes",),
    "Q26": ("role-on-every-chunk",),
    "Q27": ("tool-calls-null-or-empty-beside-text",),
    "Q28": ("empty-content-beside-calls",),
    "Q29": ("text-and-call-in-one-delta",),
    "Q30": (
        "body-in-one-event",
        "message-beside-delta",
        "message-after-the-deltas",
        "message-only-at-the-end",
    ),
    "Q31": ("two-choices-interleaved", "choice-without-index"),
    "Q32": (
        "one-answer-over-two-choices",
        "body-over-two-choices",
        "body-over-two-choices-without-index",
    ),
    "Q33": ("unknown-fields",),
    "Q34": ("citations-on-every-chunk", "body-with-citations"),
    # which call a delta belongs to
    "Q35": (
        "id-in-every-chunk",
        "id-in-every-chunk-two-calls",
        "arguments-grow-as-snapshots",
        "arguments-grow-as-snapshots-two-calls",
    ),
    "Q36": ("id-empty-on-continuations",),
    "Q37": ("id-null-on-continuations",),
    "Q38": (
        "id-differs-on-later-fragments",
        "id-differs-on-later-fragments-no-index",
        "id-and-same-name-differ-while-growing",
    ),
    "Q39": ("no-id-at-all",),
    "Q40": ("id-after-name", "id-after-arguments"),
    "Q41": (
        "body-with-calls",
        "id-differs-on-later-fragments-no-index",
        "no-index-one-call-per-chunk",
        "index-null",
        "no-index-no-id-by-name",
        "no-index-parallel-by-position",
        "index-only-on-continuations",
        "thought-signature-alone-without-index",
    ),
    "Q42": (
        "index-zero-distinct-ids",
        "index-zero-distinct-ids-equal-arguments",
        "index-zero-distinct-ids-in-fragments",
        "index-zero-distinct-ids-no-arguments",
        "index-always-one",
    ),
    "Q43": (
        "no-index-no-id-by-name",
        "index-zero-no-ids",
        "index-zero-no-ids-in-fragments",
        "index-zero-no-ids-equal-arguments",
        "index-zero-no-ids-other-name",
    ),
    "Q44": (
        "index-zero-no-ids-other-name",
        "one-id-for-two-calls",
        "one-id-two-indexes-same-name",
        "one-id-three-calls",
    ),
    "Q45": ("index-with-gaps", "index-always-one"),
    "Q46": ("index-drifts", "index-drifts-with-name"),
    "Q47": (
        "no-index-one-call-per-chunk",
        "fragments-without-any-key",
        "fragment-for-the-last-touched-call",
    ),
    "Q48": ("phantom-entry", "phantom-entry-with-id", "phantom-arguments"),
    "Q49": (
        "id-and-same-name-differ-while-growing",
        "index-drifts-with-name",
        "name-on-every-delta",
        "name-on-every-delta-before-arguments",
    ),
    "Q50": ("name-empty-on-continuations",),
    "Q51": ("id-null-on-continuations", "name-null-on-continuations"),
    "Q52": ("name-is-the-word-null",),
    "Q53": (
        "name-after-arguments",
        "names-after-arguments-two-calls",
        "name-after-all-arguments",
        "ends-before-a-name",
    ),
    "Q54": (
        "name-in-pieces",
        "name-grows",
        "other-name-after-arguments-began",
        "second-name-is-a-declared-tool",
        "declared-tools-and-a-name-in-pieces",
        "second-name-without-declared-tools",
    ),
    "Q55": ("name-again-on-the-closing-fragment",),
    "Q56": (
        "no-index-parallel-by-position",
        "several-calls-in-one-chunk",
        "arguments-sent-again-in-other-order",
    ),
    "Q57": ("two-entries-for-one-call",),
    "Q58": (
        "id-in-every-chunk-two-calls",
        "names-after-arguments-two-calls",
        "arguments-interleaved",
        "arguments-grow-as-snapshots-two-calls",
    ),
    "Q59": ("type-missing-or-null",),
    "Q60": ("function-null-or-missing",),
    "Q61": ("custom-tool", "custom-empty-on-a-function"),
    "Q62": ("legacy-function-call", "legacy-function-call-whole"),
    "Q63": (
        "markup-calls-left-as-text",
        "markup-calls-json",
        "markup-calls-tokens",
        "markup-that-is-no-call",
    ),
    "Q64": ("markup-calls-tokens", "ids-that-mean-something"),
    # arguments
    "Q65": ("id-in-every-chunk", "whole-call-in-one-delta", "call-with-the-finish-reason"),
    "Q66": (
        "arguments-object",
        "arguments-empty-object-before-text",
        "arguments-empty-object-alone",
    ),
    "Q67": (
        "arguments-grow-as-snapshots",
        "arguments-grow-as-snapshots-two-calls",
        "arguments-snapshot-or-nesting",
        "arguments-snapshot-of-a-brace",
        "arguments-whole-sent-anew",
        "arguments-contradict-what-was-streamed",
    ),
    "Q68": (
        "index-zero-no-ids-equal-arguments",
        "arguments-sent-again",
        "arguments-sent-again-in-other-order",
        "value-after-complete-arguments",
    ),
    "Q69": ("arguments-sent-again-encoded-twice",),
    "Q70": (
        "arguments-encoded-twice",
        "arguments-encoded-twice-in-pieces",
        "arguments-are-a-plain-string",
    ),
    "Q71": ("arguments-placeholder-first", "arguments-placeholder-then-pieces"),
    "Q72": (
        "index-zero-distinct-ids-no-arguments",
        "second-name-is-a-declared-tool",
        "second-name-without-declared-tools",
        "arguments-empty-object-alone",
        "no-arguments-in-three-spellings",
        "call-without-arguments-first",
    ),
    "Q73": ("arguments-null",),
    "Q74": ("empty-delta-after-the-arguments",),
    "Q75": ("arguments-cut-reported-as-tool-calls", "arguments-cut-reported-as-length"),
    "Q76": ("closing-brace-lost", "opening-brace-lost"),
    "Q77": (
        "arguments-placeholder-then-pieces",
        "arguments-parse-before-their-end",
        "value-after-complete-arguments",
    ),
    "Q78": ("arguments-are-a-plain-string", "arguments-not-an-object"),
    # text, reasoning, refusal
    "Q79": ("refusal-in-its-own-field", "refusal-after-text"),
    "Q80": ("content-as-parts", "content-parts-with-plain-thinking"),
    "Q81": ("reasoning-content-field", "reasoning-field"),
    "Q82": ("reasoning-under-both-names",),
    "Q83": ("reasoning-and-its-details",),
    "Q84": (
        "reasoning-details-only",
        "signature-in-a-detail-of-its-own",
        "encrypted-detail-alone",
        "encrypted-detail-beside-open-text",
        "encrypted-details-in-one-chunk",
        "encrypted-details-of-one-index",
        "encrypted-details-in-a-body",
    ),
    "Q85": ("two-details-share-an-index",),
    "Q86": (
        "thought-signature-on-the-call",
        "thought-signature-alone",
        "thought-signature-alone-without-index",
    ),
    "Q87": (
        "think-tags",
        "think-tags-cut-everywhere",
        "think-tag-in-three-pieces",
        "think-tag-later-is-text",
        "think-tag-never-closed",
        "think-tag-after-reasoning-field",
        "think-tag-that-is-none",
        "think-tag-prefix-at-the-end",
        "think-tags-then-a-call",
        "think-tag-open-when-a-call-begins",
        "think-tag-open-at-a-cut",
        "think-tags-in-a-body",
    ),
    "Q88": (
        "orphan-think-closer",
        "orphan-think-closer-left-as-text",
        "orphan-think-closer-after-reasoning-field",
        "leading-think-closer-without-reasoning",
    ),
    "Q89": ("reasoning-content-field", "reasoning-key-always-empty"),
    "Q90": ("reasoning-after-text",),
    "Q91": (
        "equal-deltas-are-real",
        "equal-argument-deltas-are-real",
        "equal-events-under-other-ids",
        "empty-id-is-no-id",
    ),
    "Q92": ("events-replayed-under-their-id", "equal-events-under-other-ids", "empty-id-is-no-id"),
    # finish reason and usage
    "Q93": (
        "last-event-one-newline",
        "whole-call-in-one-delta",
        "text-with-the-finish-reason",
        "call-with-the-finish-reason",
    ),
    "Q94": ("legacy-function-call-whole", "stop-although-calls-were-made"),
    "Q95": ("finish-twice",),
    "Q96": (
        "finish-reasons-differ",
        "finish-reasons-differ-specific-last",
        "finish-tool-calls-then-stop",
    ),
    "Q97": ("text-after-the-finish-reason", "call-after-the-finish-reason"),
    "Q98": ("finish-reason-empty", "finish-reason-empty-to-the-end"),
    "Q99": (
        "finish-reason-end-turn",
        "finish-reason-mixed-case",
        "finish-reason-context-exceeded",
        "finish-reason-unknown",
        "finish-reason-network-error",
        "finish-reason-refusal",
        "finish-reason-cancelled",
    ),
    "Q100": ("no-finish-reason", "no-finish-reason-with-calls"),
    "Q101": ("finish-reason-absent-until-the-end",),
    "Q102": ("usage-in-a-last-chunk",),
    "Q103": ("usage-on-the-finish-chunk",),
    "Q104": ("citations-on-every-chunk", "usage-on-every-chunk"),
    "Q105": ("usage-inside-the-choice",),
    "Q106": ("usage-in-two-places",),
    "Q107": ("finish-twice",),
    "Q108": ("usage-empty-or-in-part", "usage-only-empty"),
    "Q109": ("usage-total-is-not-the-sum",),
    # errors and termination
    "Q110": ("error-object", "error-object-inside-a-call", "content-after-an-error"),
    "Q111": ("error-inside-a-chunk", "error-after-the-finish-reason-of-calls"),
    "Q112": ("error-event", "error-event-without-error-key"),
    "Q113": ("error-as-field-name", "error-as-field-name-unterminated"),
    "Q114": ("error-as-plain-text",),
    "Q115": (
        "error-body-instead-of-stream",
        "error-is-a-string",
        "error-with-a-number-for-code",
        "error-of-type-error",
        "error-as-success-false",
    ),
    "Q116": (
        "last-event-unterminated",
        "last-event-cut-after-finish",
        "one-newline-and-no-done",
        "no-done",
        "no-done-with-calls",
    ),
    "Q118": (
        "last-event-cut",
        "think-tag-open-at-a-cut",
        "finish-reason-empty-to-the-end",
        "ends-inside-a-call",
        "ends-after-a-whole-call",
        "ends-before-a-name",
        "ends-in-the-middle-of-text",
    ),
    "Q120": ("only-done", "only-comments", "only-a-role"),
    "Q121": ("chunk-that-is-not-json", "chunk-that-is-not-json-inside-a-call"),
    "Q122": ("finish-reason-error", "finish-reason-error-with-calls"),
    "Q123": ("error-first",),
}
"""Row of the catalogue -> the captures that show it."""

NOT_SHOWN: dict[str, str] = {
    "Q117": "the connection stays open: needs a clock",
    "Q119": "the transport fails: needs a socket",
}

REASONS: dict[str, str] = {
    "id-differs-on-later-fragments": (
        "ambiguous: new id, no name, known index: an unstable id, not a call"
    ),
    "index-zero-distinct-ids-no-arguments": (
        "ambiguous: same index, other id, same name, no arguments: id and name begin a call"
    ),
    "index-zero-no-ids-equal-arguments": (
        "ambiguous: equal finished arguments without ids are a repetition"
    ),
    "one-id-two-indexes-same-name": (
        "ambiguous: same id, other index: finished and another value is a new call"
    ),
    "index-drifts-with-name": "ambiguous: same id, other index, unfinished arguments: drift",
    "fragment-for-the-last-touched-call": (
        "ambiguous: no key and two unfinished calls: the last touched one"
    ),
    "second-name-is-a-declared-tool": (
        "ambiguous: other name, same index, no arguments: the declared tools decide"
    ),
    "second-name-without-declared-tools": (
        "ambiguous: other name, same index, no arguments, no tools declared: a name piece"
    ),
    "arguments-snapshot-or-nesting": (
        "ambiguous: a piece that starts with the buffer: append while it can be JSON"
    ),
    "arguments-snapshot-of-a-brace": (
        "ambiguous: a piece that starts with the buffer: `{{` cannot be JSON"
    ),
    "whole-call-then-stop": "a whole call in one chunk and a plain stop: handed over once",
    "whole-call-then-two-finishes": "a whole call in one chunk and two finishes: handed over once",
    "whole-call-then-no-finish-reason": "a whole call in one chunk and nothing but the terminator",
    "whole-call-then-an-unknown-reason": "a whole call in one chunk and a reason that nobody knows",
    "whole-call-then-an-unknown-event": "a whole call in one chunk and an event that is no chunk",
    "whole-call-then-its-id-again": "a whole call in one chunk and its id once more",
    "text-and-a-call-begun-in-one-delta": "text and the beginning of a call in one read",
    "nameless-call-beside-a-whole-one": (
        "a call without a name behind one with a name is never announced"
    ),
    "calls-wrapped-in-parallel": "calls of declared tools in one call of an undeclared function",
    "parallel-that-wraps-a-tool-nobody-declared": "such a call that wraps none stays as it is",
    "name-of-one-blank": "a name of nothing but blanks is no name",
    "second-choice-before-the-first": (
        "a choice that nobody asked for is never mixed in, whatever it comes before"
    ),
    "body-with-the-second-choice-first": "the same in a body",
    "one-answer-over-two-choices": (
        "against the row: only choice 0 is read, for nobody can tell an answer's rest from another"
    ),
    "plain": "nothing odd: no finding",
    "two-responses": "a chunk after [DONE] begins another response",
    "fields-of-the-wrong-type": "numbers in strings, a number for an id, an array for a count",
    "bytes-that-are-not-utf-8": "invalid UTF-8 is replaced, and said",
    "arguments-contradict-what-was-streamed": (
        "other arguments after complete ones that went out: streamed content wins"
    ),
    "done-twice": "events after the end are dropped",
    "number-out-of-range": "a number that no integer can hold is dropped",
    "error-that-is-not-utf-8": "invalid UTF-8 in an error is replaced, and said",
    "signature-that-is-not-utf-8": "invalid UTF-8 in what is kept raw is replaced, and said",
    "error-in-an-array": "an error object in an array of one",
    "error-named-by-object": "an error object that says so only by its `object`",
    "error-that-says-nothing": "an empty error in a normal chunk is none",
    "json-lines-with-a-bare-terminator": "one JSON event a line, and the terminator bare",
    "arguments-snapshot-cut-behind-a-colon": (
        "once a call sends snapshots, a piece that starts with the buffer is one"
    ),
    "content-as-strings-and-refusal-parts": (
        "content as strings, as a refusal part, as one part without a list"
    ),
    "signature-alone-in-a-delta-after-text": (
        "a signature alone in a delta stays with the text before it"
    ),
    "event-named-message": "`message` is the default name of an event, so it is no name",
    "cut-in-the-first-chunk": "an input that ends inside its first event is cut, not empty",
    "implicit-think-with-an-opener": (
        "an opening tag where none was expected is a tag all the same"
    ),
    "content-after-an-error": "content after an error is dropped, and said",
    "free-text-calls-on-one-index": (
        "free text never looks finished: another name is another call"
    ),
}
"""Why a capture exists that no row asks for, or how a row's ambiguous case is decided."""

READINGS: dict[str, Context] = {
    path.name.removesuffix(CONTEXT): read_context(
        path.with_name(path.name.removesuffix(CONTEXT) + ".sse")
    ).context("openai-chat")
    for path in (Path(__file__).parent / "openai_chat").glob("*" + CONTEXT)
}
"""Captures that mean something else, or more, when this is known. All others are read bare."""

STAGES: dict[str, Callable[[Findings], Stage]] = {
    "bridge-extra-keys": lambda findings: CustomToolCalls(("patch",), findings),
    "bridge-no-input": lambda findings: CustomToolCalls(("patch",), findings),
    "stop-cut": lambda findings: StopSequences(("END", "\n\n"), findings),
}
"""The stage that the parts of a capture pass before the guard."""
