"""The content blocks of one message, as the checker watches them; and the calls among them.

Blocks are opened and closed by their index. Whether the arguments of a call may be cut is only
known when the message ends: `finish` looks at all calls once more.
"""

import re
from collections.abc import Callable

from weft.dialects.checking.once import JsonObject, Once
from weft.dialects.checking.untyped import count, fields, parsed, shown, text
from weft.dialects.rules import JsonValue

CUT = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Stop reasons that may leave a call in the middle of its arguments."""

OVER = frozenset({"end_turn", "stop_sequence"})
"""Stop reasons that promise an answer with nothing left to do."""

Broken = Callable[[str, str], None]

_USES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_RESULT = "_tool_result"
_SHAPES: dict[str, dict[str, type]] = {
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
"""The types of blocks, and what each must have; results are known by the end of their type."""

_RESULT_SHAPE: dict[str, type] = {"tool_use_id": str}
_DELTAS: dict[str, tuple[str, type | None, frozenset[str]]] = {
    "text_delta": ("text", str, frozenset({"text"})),
    "citations_delta": ("citation", dict, frozenset({"text"})),
    "thinking_delta": ("thinking", str, frozenset({"thinking"})),
    "signature_delta": ("signature", str, frozenset({"thinking"})),
    "input_json_delta": ("partial_json", str, _USES),
    "compaction_delta": ("content", None, frozenset({"compaction"})),
}
"""The types of deltas: their key, what stands there, and the blocks that grow by them."""

_CITATIONS = frozenset(
    {
        "char_location",
        "page_location",
        "content_block_location",
        "web_search_result_location",
        "search_result_location",
    }
)
_SPELLING = re.compile("[a-zA-Z0-9_-]+")
_KINDS: dict[type, str] = {str: "text", dict: "an object"}


class Block:
    """A content block that is open."""

    __slots__ = ("at", "id", "pieces", "signed", "type", "words")

    def __init__(self, block: JsonObject, at: int) -> None:
        self.type = text(block.get("type"))
        self.id = text(block.get("id"))
        self.at = at
        self.pieces: list[str] = []
        self.words = len(text(block.get("text")))
        self.signed = bool(text(block.get("signature")))

    @property
    def is_result(self) -> bool:
        return self.type.endswith(_RESULT)

    @property
    def shape(self) -> dict[str, type]:
        return _RESULT_SHAPE if self.is_result else _SHAPES.get(self.type, {})

    @property
    def is_known(self) -> bool:
        return self.is_result or self.type in _SHAPES


class Blocks:
    """Watches the blocks of one message."""

    def __init__(self, broken: Broken, once: Once) -> None:
        self._broken = broken
        self._once = once
        self._calls = Calls(broken)
        self._open: dict[int, Block] = {}
        self._stopped: dict[int, int] = {}
        """Blocks that were stopped, and at which event."""
        self._next = 0

    def start(self, event: JsonObject) -> None:
        block = fields(event.get("content_block"))
        index = count(event.get("index"))
        if index is None:
            told = shown(event.get("index"))
            detail = f"content_block_start with index {told}; expected {self._next}"
            self._broken("block-shape", detail)
            index = self._next
        elif index != self._next:
            detail = f"content_block_start with index {index}; expected {self._next}"
            self._broken("block-index", detail)
        for other, opened in self._open.items():
            detail = f"block {index} starts while block {other} is open since event {opened.at}"
            self._once("block-overlap", index, f"{detail}; expected its content_block_stop first")
        self._next = max(self._next, index + 1)
        self._stopped.pop(index, None)
        self._open[index] = self.whole(index, block)
        if block.get("type") == "tool_use" and fields(block.get("input")) and _is_direct(block):
            told = shown(block.get("id"))
            detail = f"tool_use {told} starts with its input; expected {{}}, and deltas"
            self._broken("tool-input-filled", detail)

    def filled(self, content: list[JsonValue]) -> None:
        """Blocks that came with the message itself."""
        for index, block in enumerate(content):
            self.whole(index, fields(block))
        self._next = len(content)

    def whole(self, index: int, block: JsonObject) -> Block:
        """Looks at what a block says of itself, wherever it stands."""
        found = Block(block, self._once.at)
        shape = found.shape
        wrong = [key for key, kind in shape.items() if not isinstance(block.get(key), kind)]
        if not found.type or wrong:
            keys = ", ".join(f"{key} ({_KINDS[shape[key]]})" for key in wrong) or "a type"
            detail = f"block {index} ({found.type or 'no type'}); expected {keys}"
            self._broken("block-shape", detail)
        elif not found.is_known:
            detail = f"block {index} of type {found.type[:40]}; expected a known one"
            self._once("block-type", found.type, detail)
        if found.type in _USES and not {"id", "name"} & set(wrong):
            self._calls.use(index, found, text(block.get("name")))
        if found.is_result:
            self._calls.result(index, text(block.get("tool_use_id")))
        return found

    def grow(self, event: JsonObject) -> None:
        block = self._found(event, "content_block_delta")
        delta = fields(event.get("delta"))
        type = text(delta.get("type"))
        if type not in _DELTAS:
            rule = "delta-type" if type else "delta-shape"
            detail = f"a delta of type {shown(delta.get('type'))}; expected a known one"
            self._once(rule, type, detail)
            return
        key, kind, blocks = _DELTAS[type]
        value = delta.get(key)
        if kind is not None and not isinstance(value, kind):
            detail = f"{type} with {key} {shown(value)}; expected {_KINDS[kind]}"
            self._broken("delta-shape", detail)
        if block is None:
            return
        if block.type in blocks:
            self._grown(block, type, value)
        elif block.is_known:
            wanted = " or ".join(sorted(blocks))
            detail = f"{type} for a block of type {block.type}; expected it for {wanted}"
            self._broken("delta-fits", detail)

    def _grown(self, block: Block, type: str, value: JsonValue) -> None:
        if type == "text_delta":
            block.words += len(text(value))
        elif type == "input_json_delta":
            block.pieces.append(text(value))
        elif type == "citations_delta":
            cited = fields(value).get("type")
            if text(cited) not in _CITATIONS:
                detail = f"a citation of type {shown(cited)}; expected a known one"
                self._broken("citation-shape", detail)
        elif type in ("thinking_delta", "signature_delta") and block.signed:
            detail = f"{type} after the signature of its block; expected content_block_stop"
            self._broken("signature-late", detail)
        block.signed = block.signed or type == "signature_delta"

    def stop(self, event: JsonObject) -> None:
        block = self._found(event, "content_block_stop")
        index = count(event.get("index"))
        if block is None or index is None:
            return
        del self._open[index]
        self._stopped[index] = self._once.at
        if block.type == "text" and not block.words:
            self._broken("text-empty", f"block {index} stops; expected some text in it before")
        elif block.type == "thinking" and not block.signed:
            detail = f"block {index} stops unsigned; expected a signature_delta before"
            self._broken("signature-missing", detail)
        elif block.type in _USES:
            self._calls.arguments(index, "".join(block.pieces))

    def _found(self, event: JsonObject, what: str) -> Block | None:
        index = count(event.get("index"))
        block = self._open.get(index) if index is not None else None
        if block is None:
            told = shown(event.get("index"))
            state = "no such block was started"
            if index in self._stopped:
                state = f"it was stopped at event {self._stopped[index]}"
            detail = f"{what} for block {told}: {state}; expected the index of an open block"
            self._broken("block-not-open", detail)
        return block

    def all_stopped(self, before: str) -> None:
        """Nothing may be open any more."""
        for index, block in self._open.items():
            detail = f"{before} while block {index} is open since event {block.at}"
            self._once("block-open", index, f"{detail}; expected its content_block_stop first")

    def finish(self, reason: str) -> None:
        """Looks at the calls, now that the stop reason is known."""
        self._calls.finish(reason)


class Calls:
    """Watches the calls of one message, and the results of those that the other end executes."""

    def __init__(self, broken: Broken) -> None:
        self._broken = broken
        self._uses: dict[str, str] = {}
        """All calls by their id, with the type of their block."""
        self._answered: set[str] = set()
        self._arguments: list[tuple[int, str]] = []
        """Those of the calls that were closed, by block."""

    def use(self, index: int, block: Block, name: str) -> None:
        id = block.id
        if not id:
            self._broken("tool-id-missing", f"block {index} is a call without an id; expected one")
        elif id in self._uses:
            detail = f"block {index} is a second call with the id {shown(id)}; expected a new one"
            self._broken("tool-id-repeated", detail)
        elif not _SPELLING.fullmatch(id):
            detail = f"the id {shown(id)}; expected letters, digits, _ and - only"
            self._broken("tool-id-spelling", detail)
        if not name:
            detail = f"block {index} is a call without a name; expected one"
            self._broken("tool-name-missing", detail)
        self._uses.setdefault(id, block.type)

    def result(self, index: int, id: str) -> None:
        if id in self._answered:
            detail = f"block {index} is a second result of {shown(id)}; expected one"
            self._broken("result-repeated", detail)
        elif self._uses.get(id, "tool_use") == "tool_use":
            detail = f"block {index} is a result of {shown(id)}; expected its call before it"
            self._broken("result-without-use", detail)
        self._answered.add(id)

    def arguments(self, index: int, joined: str) -> None:
        self._arguments.append((index, joined))

    def finish(self, reason: str) -> None:
        waiting = [id for id, type in self._uses.items() if type == "tool_use"]
        if waiting and reason in OVER:
            detail = f"stop_reason {reason} while {shown(waiting[0])} waits; expected tool_use"
            self._broken("stop-reason-calls", detail)
        elif not waiting and reason == "tool_use":
            detail = "stop_reason tool_use; expected a call for the client before it"
            self._broken("stop-reason-calls", detail)
        for id, type in self._uses.items():
            executed = type != "tool_use" and id not in self._answered
            if executed and reason in OVER and not waiting:
                detail = f"{type} {shown(id)}, and stop_reason {reason}; expected its result before"
                self._broken("use-without-result", detail)
        for index, joined in self._arguments:
            if reason not in CUT and not _is_object(joined):
                detail = f"the partial_json of block {index} makes {shown(joined)}"
                self._broken("tool-input-json", f"{detail}; expected one JSON object")


def _is_direct(block: JsonObject) -> bool:
    """Whether the model itself makes a call: one that its code makes comes whole."""
    return text(fields(block.get("caller")).get("type")) in ("", "direct")


def _is_object(joined: str) -> bool:
    """Whether pieces make an object; nothing at all is an empty one."""
    try:
        return not joined.strip() or isinstance(parsed(joined), dict)
    except ValueError:
        return False
