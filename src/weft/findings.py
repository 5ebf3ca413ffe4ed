"""Findings: what was noticed or repaired between input and output. Nothing is repaired silently.

Decoders, stages, the guard, encoders and the checker all report this type. Codes are stable;
`docs/findings.md` explains each one.
"""

from typing import Literal

import msgspec

Code = Literal[
    # frames
    "frame-invalid-utf8",
    "frame-lines-split",
    "frame-replayed",
    "frame-unterminated",
    "sequence-number-disordered",
    "sequence-number-missing",
    # chunks, blocks and fields
    "block-empty",
    "block-index-gap",
    "block-interleaved",
    "choice-index-missing",
    "choice-other",
    "content-parts",
    "delta-missing",
    "event-unknown",
    "field-coerced",
    "field-dropped",
    "finish-foreign",
    "field-missing",
    "finish-inferred",
    "finish-late-content",
    "finish-repeated",
    "message-ignored",
    "message-whole",
    "metadata-id-minted",
    "response-id-changed",
    "role-repeated",
    "surrogate-lone",
    # which item an event speaks of
    "index-disordered",
    "index-missing",
    "item-id-contradicted",
    "item-id-missing",
    # which call a delta belongs to
    "call-empty",
    "call-id-changed",
    "call-id-collision",
    "call-id-late",
    "call-id-minted",
    "call-id-repeated",
    "call-index-drifted",
    "call-index-missing",
    "call-index-reused",
    "call-index-unordered",
    "call-name-contradicted",
    "call-name-joined",
    "call-name-late",
    "call-name-repeated",
    "call-nameless",
    # arguments
    "arguments-double-encoded",
    "arguments-empty",
    "arguments-invalid",
    "arguments-placeholder",
    "arguments-repeated",
    "arguments-snapshot",
    # lifecycle
    "after-error",
    "after-finish",
    "approval-without-call",
    "call-missing",
    "call-repeated",
    "delta-empty",
    "delta-late",
    "end-early",
    "end-missing",
    "end-repeated",
    "end-without-start",
    "error-missing",
    "id-reused",
    "metadata-missing",
    "metadata-repeated",
    "name-changed",
    "result-early",
    "result-late",
    "result-without-call",
    "start-missing",
    "start-repeated",
    "stop-with-calls",
    "whole-contradicts",
    "whole-extends",
    # stages
    "bridge-extra-keys",
    "bridge-no-input",
    "markup-call",
    "parallel-wrapper",
    "stop-cut",
    "think-closer-dropped",
    "think-tags",
    # runs of agents
    "turn-interrupted",
    # encoders
    "not-carried",
    # the collector itself
    "findings-suppressed",
]

LIMIT = 1000
"""The maximum number of findings per response, so that a hostile stream cannot fill memory."""


MAX_DETAIL = 300
"""The maximum length of a detail, in characters: details may quote what an upstream sent."""


class Finding(msgspec.Struct, frozen=True):
    """Something noticed at event number `at` (from 0), whose first byte is at `offset`.

    `code` is a Code, or the id of a checker's rule.
    """

    code: str
    at: int
    offset: int
    detail: str

    def line(self, file: str) -> str:
        """Returns one printable line with the file, the position, the code and the detail."""
        place = f"{file}:event {self.at} (byte {self.offset})"
        return f"{place}: finding {self.code}: {self.printable_detail}"

    @property
    def printable_detail(self) -> str:
        """The detail on one line, whatever the stream said."""
        return "".join(one if one.isprintable() else repr(one)[1:-1] for one in self.detail)


class Findings(msgspec.Struct, eq=False):
    """Collects findings in order. The reader of the frames updates `at` and `offset`."""

    at: int = 0
    offset: int = 0
    found: list[Finding] = []
    _once: set[tuple[Code, str]] = set()

    def note(self, code: Code, detail: str) -> None:
        self._add(code, detail)

    def broken(self, rule: str, detail: str) -> None:
        """Adds a finding for a broken rule of the checker."""
        self._add(rule, detail)

    def _add(self, code: str, detail: str) -> None:
        if len(self.found) < LIMIT:
            self.found.append(Finding(code, self.at, self.offset, detail[:MAX_DETAIL]))
        elif len(self.found) == LIMIT:
            # One more, once: a reader must see that the list is not complete.
            detail = f"more than {LIMIT} findings; the rest is not listed"
            self.found.append(Finding("findings-suppressed", self.at, self.offset, detail))

    def once(self, code: Code, subject: str, detail: str) -> None:
        """Adds a finding only the first time this code is raised for `subject`."""
        key = (code, subject)
        # The set is bounded like the list: subjects are ids and names, which the upstream chooses.
        if key not in self._once and len(self._once) <= LIMIT:
            self._once.add(key)
            self._add(code, detail)
