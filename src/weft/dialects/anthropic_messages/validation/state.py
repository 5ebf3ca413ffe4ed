"""Checks the content blocks and the calls of one message.

Whether the arguments of a call may be truncated depends on the stop reason, so `finish` checks all
calls again.
"""

import re
from collections.abc import Callable

from weft.dialects.anthropic_messages.wire import CITATIONS, ID_LETTERS
from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter
from weft.dialects.validation.untyped import count, fields, parse_json, shown, text

# With fine-grained streaming the arguments of a call are cut wherever the limit is reached.
TRUNCATED_REASONS = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Stop reasons with which the arguments of a call may be truncated."""

COMPLETE_REASONS = frozenset({"end_turn", "stop_sequence"})
"""Stop reasons with which nothing is left to do for the client."""

Report = Callable[[str, str], None]

_CALL_TYPES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_RESULT_SUFFIX = "_tool_result"
_REQUIRED_FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_use": {"id": str, "name": str, "input": dict, "server_name": str},
    "container_upload": {"file_id": str},
    "mcp_tool_listing": {},
    "compaction": {},
    "fallback": {},
}
"""The known block types with their required fields. Results are known by their suffix."""

_RESULT_FIELDS: dict[str, type] = {"tool_use_id": str}
_DELTA_TYPES: dict[str, tuple[str, type | None, frozenset[str]]] = {
    "text_delta": ("text", str, frozenset({"text"})),
    "citations_delta": ("citation", dict, frozenset({"text"})),
    "thinking_delta": ("thinking", str, frozenset({"thinking"})),
    "signature_delta": ("signature", str, frozenset({"thinking"})),
    "input_json_delta": ("partial_json", str, _CALL_TYPES),
    "compaction_delta": ("content", None, frozenset({"compaction"})),  # null is allowed
}
"""The known delta types: their field, its type, and the blocks they belong to."""

_CALL_ID = re.compile(f"[{ID_LETTERS}]+")
_TYPE_NAMES: dict[type, str] = {str: "a string", dict: "an object"}


class ValidatedBlock:
    """A content block between its start and its stop."""

    __slots__ = ("id", "input_json", "signed", "started_at", "text_length", "type")

    def __init__(self, block: JsonObject, started_at: int) -> None:
        self.type = text(block.get("type"))
        self.id = text(block.get("id"))
        self.started_at = started_at
        self.input_json: list[str] = []
        self.text_length = len(text(block.get("text")))
        self.signed = bool(text(block.get("signature")))

    @property
    def is_result(self) -> bool:
        return self.type.endswith(_RESULT_SUFFIX)

    @property
    def required_fields(self) -> dict[str, type]:
        return _RESULT_FIELDS if self.is_result else _REQUIRED_FIELDS.get(self.type, {})

    @property
    def is_known(self) -> bool:
        return self.is_result or self.type in _REQUIRED_FIELDS


class ValidatedBlocks:
    """Checks the blocks of one message."""

    def __init__(self, report: Report, report_once: Reporter) -> None:
        self._report = report
        self._report_once = report_once
        self._tool_uses = ValidatedToolUses(report)
        self._open: dict[int, ValidatedBlock] = {}
        self._stopped: dict[int, int] = {}
        """The stopped blocks, each with the number of the event."""
        self._next = 0

    def start(self, event: JsonObject) -> None:
        block = fields(event.get("content_block"))
        index = count(event.get("index"))
        if index is None:
            value = shown(event.get("index"))
            detail = f"content_block_start with index {value}; expected {self._next}"
            self._report("block-shape", detail)
            index = self._next  # as if it had come: the deltas may have none either
        elif index != self._next:
            detail = f"content_block_start with index {index}; expected {self._next}"
            self._report("block-index", detail)
        # The official client reads overlapping blocks; encoders of the API never write them.
        for other, opened in self._open.items():
            since = f"open since event {opened.started_at}"
            detail = f"block {index} starts while block {other} is {since}"
            self._report_once(
                "block-overlap", index, f"{detail}; expected content_block_stop first"
            )
        self._next = max(self._next, index + 1)
        # An index that is used again was reported above. Its deltas belong to the new block.
        self._stopped.pop(index, None)
        self._open[index] = self._check_fields(index, block)
        # Calls that code makes have their input at the start, and server tools may. Clients ignore
        # it in any other call, and run the tool without arguments.
        direct = text(fields(block.get("caller")).get("type")) in ("", "direct")
        if block.get("type") == "tool_use" and fields(block.get("input")) and direct:
            value = shown(block.get("id"))
            detail = f"tool_use {value} starts with its input; expected {{}}, and deltas"
            self._report("tool-input-filled", detail)

    def prefilled(self, content: list[JsonValue]) -> None:
        """Checks the blocks of `message_start`."""
        for index, block in enumerate(content):
            self._check_fields(index, fields(block))
        self._next = len(content)

    def _check_fields(self, index: int, block: JsonObject) -> ValidatedBlock:
        checked = ValidatedBlock(block, self._report_once.at)
        required = checked.required_fields
        wrong = [key for key, kind in required.items() if not isinstance(block.get(key), kind)]
        if not checked.type or wrong:
            keys = ", ".join(f"{key} ({_TYPE_NAMES[required[key]]})" for key in wrong) or "a type"
            detail = f"block {index} ({checked.type or 'no type'}); expected {keys}"
            self._report("block-shape", detail)
        elif not checked.is_known:
            # Later versions of the API may add types; a note, not an error.
            detail = f"block {index} of type {checked.type[:40]}; expected a known type"
            self._report_once("block-type", checked.type, detail)
        if checked.type in _CALL_TYPES and not {"id", "name"} & set(wrong):
            self._tool_uses.use(index, checked, text(block.get("name")))
        if checked.is_result:
            self._tool_uses.result(index, text(block.get("tool_use_id")))
        return checked

    def delta(self, event: JsonObject) -> None:
        block = self._open_block(event, "content_block_delta")
        delta = fields(event.get("delta"))
        type = text(delta.get("type"))
        if type not in _DELTA_TYPES:
            rule = "delta-type" if type else "delta-shape"
            detail = f"a delta of type {shown(delta.get('type'))}; expected a known type"
            self._report_once(rule, type, detail)
            return
        key, kind, blocks = _DELTA_TYPES[type]
        value = delta.get(key)
        if kind is not None and not isinstance(value, kind):
            detail = f"{type} with {key} {shown(value)}; expected {_TYPE_NAMES[kind]}"
            self._report("delta-shape", detail)
        if block is None:
            return
        # A block of an unknown type may have deltas of any type.
        if block.type in blocks:
            self._add(block, type, value)
        elif block.is_known:
            wanted = " or ".join(sorted(blocks))
            detail = f"{type} for a block of type {block.type}; expected it for {wanted}"
            self._report("delta-fits", detail)

    def _add(self, block: ValidatedBlock, type: str, value: JsonValue) -> None:
        if type == "text_delta":
            block.text_length += len(text(value))
        elif type == "input_json_delta":
            block.input_json.append(text(value))
        elif type == "citations_delta":
            cited = fields(value).get("type")
            if text(cited) not in CITATIONS:
                detail = f"a citation of type {shown(cited)}; expected a known type"
                self._report("citation-shape", detail)
        elif type in ("thinking_delta", "signature_delta") and block.signed:
            # The official client overwrites the first signature with the second.
            detail = f"{type} after the signature of its block; expected content_block_stop"
            self._report("signature-late", detail)
        block.signed = block.signed or type == "signature_delta"

    def stop(self, event: JsonObject) -> None:
        block = self._open_block(event, "content_block_stop")
        index = count(event.get("index"))
        if block is None or index is None:
            return
        del self._open[index]
        self._stopped[index] = self._report_once.at
        if block.type == "text" and not block.text_length:
            self._report("text-empty", f"block {index} stops; expected some text in it before")
        elif block.type == "thinking" and not block.signed:
            # Without a signature the API refuses the block in the next request.
            detail = f"block {index} stops unsigned; expected a signature_delta before"
            self._report("signature-missing", detail)
        elif block.type in _CALL_TYPES:
            self._tool_uses.arguments(index, "".join(block.input_json))

    def _open_block(self, event: JsonObject, what: str) -> ValidatedBlock | None:
        index = count(event.get("index"))
        block = self._open.get(index) if index is not None else None
        if block is None:
            value = shown(event.get("index"))
            state = "no such block was started"
            if index in self._stopped:
                state = f"it was stopped at event {self._stopped[index]}"
            detail = f"{what} for block {value}: {state}; expected the index of an open block"
            self._report("block-not-open", detail)
        return block

    def check_all_stopped(self, before: str) -> None:
        for index, block in self._open.items():
            detail = f"{before} while block {index} is open since event {block.started_at}"
            self._report_once("block-open", index, f"{detail}; expected content_block_stop first")

    def finish(self, reason: str) -> None:
        self._tool_uses.finish(reason)


class ValidatedToolUses:
    """Checks the calls of one message, and the results of those that the host executes."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._types: dict[str, str] = {}
        """The block type of each call, by its id."""
        self._with_result: set[str] = set()
        self._arguments: list[tuple[int, str]] = []
        """The arguments of the stopped calls, with the index of their block."""

    def use(self, index: int, block: ValidatedBlock, name: str) -> None:
        id = block.id
        if not id:
            self._report("tool-id-missing", f"block {index} is a call without an id; expected one")
        elif id in self._types:
            detail = f"block {index} is a second call with the id {shown(id)}; expected a new one"
            self._report("tool-id-repeated", detail)
        elif not _CALL_ID.fullmatch(id):
            detail = f"the id {shown(id)}; expected letters, digits, _ and - only"
            self._report("tool-id-spelling", detail)
        if not name:
            detail = f"block {index} is a call without a name; expected one"
            self._report("tool-name-missing", detail)
        self._types.setdefault(id, block.type)

    def result(self, index: int, id: str) -> None:
        if id in self._with_result:
            detail = f"block {index} is a second result of {shown(id)}; expected one"
            self._report("result-repeated", detail)
        elif self._types.get(id, "tool_use") == "tool_use":
            # A result of a client tool never comes from the API: only the host's own calls have one
            # here. The call may also stand in the turn before, which was paused.
            detail = f"block {index} is a result of {shown(id)}; expected its call before it"
            self._report("result-without-use", detail)
        self._with_result.add(id)

    def arguments(self, index: int, joined: str) -> None:
        self._arguments.append((index, joined))

    def finish(self, reason: str) -> None:
        waiting = [id for id, type in self._types.items() if type == "tool_use"]
        if waiting and reason in COMPLETE_REASONS:
            detail = f"stop_reason {reason} while {shown(waiting[0])} waits; expected tool_use"
            self._report("stop-reason-calls", detail)
        elif not waiting and reason == "tool_use":
            detail = "stop_reason tool_use; expected a call for the client before it"
            self._report("stop-reason-calls", detail)
        for id, type in self._types.items():
            # After pause_turn the result comes with the next response; with a client call beside
            # it, the host waits for the client's results first.
            executed = type != "tool_use" and id not in self._with_result
            if executed and reason in COMPLETE_REASONS and not waiting:
                detail = f"{type} {shown(id)}, and stop_reason {reason}; expected its result before"
                self._report("use-without-result", detail)
        # Checked at the end, because a cut is legal at a limit only.
        for index, joined in self._arguments:
            if reason not in TRUNCATED_REASONS and not _is_object(joined):
                detail = f"the partial_json of block {index} makes {shown(joined)}"
                self._report("tool-input-json", f"{detail}; expected one JSON object")


def _is_object(joined: str) -> bool:
    """Whether the arguments are a JSON object; no text at all is an empty one."""
    try:
        return not joined.strip() or isinstance(parse_json(joined), dict)
    except ValueError:
        return False
