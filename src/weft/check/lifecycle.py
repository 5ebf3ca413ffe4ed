"""Which findings of a stream break a rule of every stream, named `lifecycle/<code>`.

Every code of `weft.findings` is such a rule, unless it is listed here, and so is each way in which
a response can fail. `lifecycle.toml` has the rules themselves.
"""

from weft.findings import Code
from weft.parts import ErrorKind

NOT_RULES: dict[Code, str] = {
    "block-empty": "a wire that has blocks has a rule of its own for it",
    "block-index-gap": "a wire that has blocks has a rule of its own for it",
    "block-interleaved": "a wire that has blocks has a rule of its own for it",
    "field-missing": "each wire has rules of its own for the shapes of its events",
    "bridge-extra-keys": "reports what a stage did for a target without such tools",
    "bridge-no-input": "reports what a stage did for a target without such tools",
    "turn-interrupted": "reports what happened to a run of an agent, not on a wire",
    "stop-cut": "reports that Weft applied a stop sequence of the request",
    "choice-other": "the checker reads every choice of a response, each by itself",
    "choice-index-missing": "the wire has this rule itself",
    "content-parts": "the wire has this rule itself: content-type",
    "delta-missing": "the wire has this rule itself",
    "finish-foreign": "the wire has this rule itself: finish-unknown",
    "message-whole": "the wire has this rule itself: message-in-chunk",
    "role-repeated": "the wire has this rule itself",
    "call-empty": "the wire has this rule itself: call-index-missing, or call-nameless",
    "call-id-late": "the wire has this rule itself: call-id-missing",
    "call-index-unordered": "the wire has this rule itself: call-index-order",
    "parallel-wrapper": "reports what a model did, which is no defect of the stream",
    "not-carried": "reports what an encoder or decoder of Weft cannot carry",
    **dict.fromkeys(
        (
            "index-disordered",
            "index-missing",
            "item-id-contradicted",
            "item-id-missing",
            "response-id-changed",
            "sequence-number-disordered",
            "sequence-number-missing",
        ),
        "the wire has rules of its own for it",
    ),
}
"""Codes of findings that are not rules of every stream, and why."""

FAILURES: dict[ErrorKind, str] = {
    "upstream": "error-reported",
    "truncated": "truncated",
    "malformed": "malformed",
    "empty": "empty",
    "timeout": "error-reported",
    "cancelled": "error-reported",
    "too-large": "malformed",  # an event above the limit cannot be read
    "internal": "error-reported",
}
"""The rule that a stream breaks by ending in this error."""
