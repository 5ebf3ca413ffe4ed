"""What wires say in different words: how hard to think, free text as arguments, names in groups."""

import re

import msgspec
from msgspec import Raw

from weft.dialects.asking.leftovers import DECISIVE_FOR_TOOLS, drop, kept
from weft.dialects.envelope import opened
from weft.dialects.requests import Losses, Spelling, keys_of
from weft.parts import Json
from weft.request import CallContent, Effort, Request, Tool

BUDGETS: dict[Effort, int] = {
    "none": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
}
"""Tokens to think with; `max` is whatever there is."""

FREE = Raw(b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}')
"""The parameters of a tool that takes free text, where tools take objects only."""

_APPROVAL = "require_approval"
_UNASKED = frozenset({"anthropic-messages", "gemini"})
"""Where nobody is asked anyway before a remote tool runs."""

_json = msgspec.json.Encoder().encode
_read_object = msgspec.json.Decoder(dict[str, Raw]).decode


def effort_of(budget: int) -> Effort:
    """The effort whose budget is the nearest from above."""
    return next((effort for effort, most in BUDGETS.items() if budget <= most), "max")


def is_object(text: bytes | str | Raw) -> bool:
    """Whether a text is one JSON object, as arguments must be."""
    try:
        _read_object(text)
    except (ValueError, RecursionError):
        return False
    return True


def arguments(call: CallContent, path: str, losses: Losses) -> Raw:
    """The arguments of an earlier call as an object. What is none stands in one, as it was."""
    if call.format == "text":
        losses.adapted(f"{path}.params", "free text is sent as an object with the key input")
        return Raw(_json({"input": call.params}))
    if not call.params.strip():
        return Raw(b"{}")
    if is_object(call.params):
        return Raw(call.params.encode())
    losses.warned(f"{path}.params", "arguments that are no object are sent under the key _raw")
    return Raw(_json({"_raw": call.params}))


def holds_envelope(raw: Json) -> bool:
    """Whether a raw value is a text that carries a proof of another origin."""
    try:
        text = msgspec.json.decode(raw, type=str) if isinstance(raw, Raw) else None
    except ValueError:
        return False
    return opened(text) is not None


class Names:
    """The names of tools as the target takes them, the same in every place they stand."""

    def __init__(
        self, request: Request, letters: str, limit: int, losses: Losses, first: str | None = None
    ) -> None:
        """`letters` is the inside of a character class; `first` that of those to begin with."""
        self._spelling = Spelling(letters, limit - 1 if first else limit)
        self._first = re.compile(f"[{first or letters}]")
        self._losses = losses
        self._groups = {tool.name: tool.namespace for tool in request.tools if tool.namespace}
        self.restored: dict[str, str] = {}
        """The original of each name that had to change; `<namespace>.<name>` for a grouped one."""

    def spell(self, name: str, namespace: str | None, path: str) -> str:
        """The name of what is at a path."""
        return self.spell_at(f"{path}.name", name, namespace)

    def spell_at(self, where: str, name: str, namespace: str | None) -> str:
        """A name that is itself at a path."""
        flat = f"{namespace}__{name}" if namespace else name
        spelled = self._spelling.spell(flat)
        if not self._first.match(spelled):
            spelled = f"_{spelled}"
        if spelled != name:
            original = f"{namespace}.{name}" if namespace else name
            self.restored[spelled] = original
            self._losses.adapted(where, f"{original} is sent as {spelled}")
        return spelled

    def chosen(self, name: str, where: str) -> str:
        """A name, itself at a path, that is told without its group."""
        return self.spell_at(where, name, self._groups.get(name))


def schema_of(parameters: Json) -> dict[str, Raw] | None:
    """The keywords of a schema; None for what is no object."""
    if isinstance(parameters, Raw) and is_object(parameters):
        return keys_of(parameters)
    return None


def unasked(tool: Tool, path: str, losses: Losses, target: str) -> None:
    """Notes that nobody is asked before a remote tool runs, and what else cannot be told it."""
    beside = keys_of(tool.extra)
    approval = beside.pop(_APPROVAL, None)
    if approval is None:
        if tool.origin not in _UNASKED:
            losses.warned(path, "tools of remote servers run without approval")
    elif bytes(approval) != b'"never"':
        losses.refused(f"{path}.{_APPROVAL}", "approvals are not available; set never")
    drop(kept(beside), path, losses, target, DECISIVE_FOR_TOOLS)
