"""What was said before: the items of earlier turns, as a client without a store would send them.

History is what came in and what went out, in that order; nothing is made up but the results of
calls that nobody answered, since a call without a result would brick every further turn.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, Raw

from weft.errors import BadRequest
from weft.ids import Ids
from weft.parts import Json
from weft.store.records import Entry

UNANSWERED = "There is no result: the turn was interrupted before the tool had answered."
"""What a model is told of a call that was never answered."""

_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""Calls that may be answered in words."""

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}
_json = msgspec.json.Encoder().encode


class ItemShape(msgspec.Struct):
    """As much of an item as says what it is."""

    type: str = "message"
    id: str | None = None
    call_id: str | None = None
    status: str | None = None
    role: str | None = None
    content: Json = UNSET

    @property
    def is_call(self) -> bool:
        return self.call_id is not None and self.type.endswith("_call")

    @property
    def is_output(self) -> bool:
        return self.call_id is not None and self.type.endswith("_output")

    @property
    def is_cut(self) -> bool:
        """Whether it is a call that was never whole."""
        return self.type.endswith("_call") and self.status in ("in_progress", "incomplete")


_shape = msgspec.json.Decoder(ItemShape).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_text = msgspec.json.Decoder(str).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class _Answer(msgspec.Struct):
    output: list[Raw] = []


_answer = msgspec.json.Decoder(_Answer).decode


def read_shape(item: Raw) -> ItemShape:
    """Raises BadRequest for what is no item."""
    try:
        return _shape(item)
    except (ValueError, RecursionError):
        raise BadRequest("input", "expected items that are objects, each of a type") from None


def input_items(input: Json) -> list[Raw]:
    """The items of an `input`, which may be one text. Raises BadRequest."""
    raw = bytes(input) if isinstance(input, Raw) else b"null"
    if raw == b"null":
        return []
    try:
        if raw.lstrip()[:1] == b'"':
            content = [{"type": "input_text", "text": _text(raw)}]
            return [Raw(_json({"type": "message", "role": "user", "content": content}))]
        return _items(raw)
    except ValueError:
        raise BadRequest("input", "expected a text, or an array of items") from None


def listed_items(items: Iterable[Raw], seed: str) -> list[dict[str, Raw]]:
    """Items as they are listed: each with a type, an id and a status. The seed makes the ids."""
    ids = Ids(seed.encode())
    listed: list[dict[str, Raw]] = []
    for item in items:
        found = read_shape(item)
        id = ids.mint(id_prefix(found))
        more = {"type": Raw(_json(found.type)), "id": Raw(_json(id)), "status": _COMPLETED}
        fields = {**more, **_fields(item)}
        if found.type == "message" and isinstance(found.content, Raw):
            fields["content"] = _parts(found.content, found.role)
        listed.append(fields)
    return listed


def id_prefix(item: ItemShape) -> str:
    """How the id of such an item begins."""
    return _PREFIXES.get(item.type, "item")


_COMPLETED = Raw(b'"completed"')


def _parts(content: Raw, role: str | None) -> Raw:
    """The content of a message as parts, also where it came as a text."""
    if bytes(content).lstrip()[:1] != b'"':
        return content
    kind = "output_text" if role == "assistant" else "input_text"
    part: dict[str, object] = {"type": kind, "text": _text(content)}
    return Raw(_json([{**part, "annotations": []} if kind == "output_text" else part]))


def items_of_turns(turns: Sequence[Entry]) -> list[Raw]:
    """All items of these turns, in order: what came in, and what went out."""
    items: list[Raw] = []
    for turn in turns:
        items += _items(turn.input)
        if turn.body is not None:
            items += _answer(turn.body).output
    return items


def with_results(before: Sequence[Raw], new: Sequence[Raw]) -> list[Raw]:
    """History and the new input: every call with its result. Raises BadRequest for a result of a
    call that nobody made."""
    before = _usable(before)
    shapes = [read_shape(one) for one in (*before, *new)]
    calls = {one.call_id for one in shapes if one.is_call}
    answered = {one.call_id for one in shapes if one.is_output}
    for place, one in enumerate(map(read_shape, new)):
        if one.is_output and one.call_id not in calls:
            message = f"no tool call {one.call_id!r} was made before"
            raise BadRequest(f"input[{place}].call_id", message)
    items: list[Raw] = []
    for item, found in zip((*before, *new), shapes, strict=True):
        if not found.is_call or found.call_id in answered:
            items.append(item)
        elif found.type in _OUTPUTS:
            type = _OUTPUTS[found.type]
            result = {"type": type, "call_id": found.call_id, "output": UNANSWERED}
            items += item, Raw(_json(result))
    return items


def _usable(items: Sequence[Raw]) -> list[Raw]:
    """History without what no turn can hold: calls that were never whole, and results of calls
    that are not there."""
    shapes = [read_shape(one) for one in items]
    calls = {one.call_id for one in shapes if one.is_call and not one.is_cut}
    return [
        item
        for item, one in zip(items, shapes, strict=True)
        if not one.is_cut and not (one.is_output and one.call_id not in calls)
    ]


def with_input(body: bytes, items: Sequence[Raw], *without: str) -> bytes:
    """A request with other input, and without these fields."""
    fields = {name: value for name, value in _fields(body).items() if name not in without}
    return _json({**fields, "input": items})
