"""The history of a conversation: the items of earlier turns, as a client without a store would send
them.

The history is the input and the output of each turn, in order. Nothing is added, except results for
calls that have none: upstreams refuse a call without a result, and with it every further turn.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.errors import BadRequest
from weft.ids import Ids
from weft.parts import Json
from weft.store.records import Entry

UNANSWERED = "There is no result: the turn was interrupted before the tool had answered."
"""The result that a model gets for a call that has none."""

_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""The calls whose result may be any text."""

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
    """The fields of an item that say what it is."""

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
        """Whether it is an incomplete call."""
        return self.type.endswith("_call") and self.status in ("in_progress", "incomplete")


_shape = large_json.skimmer(ItemShape)
_shapes = msgspec.json.Decoder(list[ItemShape]).decode
_text = large_json.decoder(str)


class _ResponseOutput(msgspec.Struct):
    output: list[Raw] = []


_response = large_json.skimmer(_ResponseOutput)


def read_shape(item: Raw) -> ItemShape:
    """Raises BadRequest if this is not an item."""
    try:
        return _shape(item)
    except (ValueError, RecursionError):
        raise BadRequest("input", "expected items: objects with a type") from None


def read_shapes(items: Sequence[Raw]) -> list[ItemShape]:
    """As read_shape, all of them at once. Raises BadRequest."""
    if sum(map(len, items)) > large_json.SKIMMED:
        return [read_shape(one) for one in items]
    try:
        return _shapes(b"[%b]" % b",".join(items))
    except (ValueError, RecursionError):
        raise BadRequest("input", "expected items: objects with a type") from None


def input_items(input: Json) -> list[Raw]:
    """The items of an `input`, which may be a string. Raises BadRequest."""
    raw = large_json.copied(input) if isinstance(input, Raw) else b"null"
    if raw == b"null":
        return []
    try:
        if large_json.first_byte(raw) == b'"':
            content = [{"type": "input_text", "text": _text(raw)}]
            message = {"type": "message", "role": "user", "content": content}
            return [Raw(large_json.write(message))]
        return large_json.elements(raw)
    except ValueError:
        raise BadRequest("input", "expected a string or an array of items") from None


def listed_items(items: Iterable[Raw], seed: str) -> list[dict[str, Raw]]:
    """Items for a list: each with a type, an id and a status. Missing ids derive from the seed."""
    ids = Ids(seed.encode())
    listed: list[dict[str, Raw]] = []
    for item in items:
        found = read_shape(item)
        # Minted for every item, used for those without one: so an id depends only on its position,
        # and pages of one list agree.
        id = ids.mint(id_prefix(found))
        # Official clients declare them as required in a list; a request may leave out all three.
        more = {"type": Raw(_json(found.type)), "id": Raw(_json(id)), "status": _COMPLETED}
        fields = {**more, **large_json.members(item)}
        content = found.content if found.type == "message" else UNSET
        if (
            isinstance(content, Raw) and large_json.first_byte(content) == b'"'
        ):  # a string: one part
            kind = "output_text" if found.role == "assistant" else "input_text"
            part: dict[str, object] = {"type": kind, "text": _text(content)}
            if kind == "output_text":
                part["annotations"] = []
            fields["content"] = Raw(large_json.write([part]))
        listed.append(fields)
    return listed


def id_prefix(item: ItemShape) -> str:
    """The prefix of the ids of such items."""
    return _PREFIXES.get(item.type, "item")


_COMPLETED = Raw(b'"completed"')


def items_of_turns(turns: Sequence[Entry]) -> list[Raw]:
    """All items of these turns, in order: the input and the output of each."""
    items: list[Raw] = []
    for turn in turns:
        items += large_json.elements(turn.input)
        if turn.body is not None:
            items += _response(turn.body).output
    return items


def with_results(before: Sequence[Raw], new: Sequence[Raw]) -> list[Raw]:
    """The history and the new input, with a result for every call. Raises BadRequest for a result
    without a call."""
    earlier, given = read_shapes(before), read_shapes(new)
    # A turn that was cancelled may end inside a call, whose arguments no upstream would accept.
    complete = {one.call_id for one in earlier if one.is_call and not one.is_cut}
    history = [  # without incomplete calls, and without results that have no call
        (item, one)
        for item, one in zip(before, earlier, strict=True)
        if not one.is_cut and not (one.is_output and one.call_id not in complete)
    ]
    history += zip(new, given, strict=True)
    calls = {one.call_id for _, one in history if one.is_call}
    answered = {one.call_id for _, one in history if one.is_output}
    for index, one in enumerate(given):
        if one.is_output and one.call_id not in calls:
            message = f"there is no tool call {one.call_id!r} in the conversation"
            raise BadRequest(f"input[{index}].call_id", message)
    items: list[Raw] = []
    for item, found in history:
        if not found.is_call or found.call_id in answered:
            items.append(item)
        elif found.type in _OUTPUTS:
            # Other calls without a result are left out: theirs would have to be a screenshot, a
            # diff, or the like.
            type = _OUTPUTS[found.type]
            result = {"type": type, "call_id": found.call_id, "output": UNANSWERED}
            items += item, Raw(_json(result))
    return items


def with_input(body: bytes, items: Sequence[Raw], *without: str) -> bytes:
    """The request with this input, and without these fields."""
    members = large_json.members(body).items()
    fields = {name: value for name, value in members if name not in without}
    return large_json.write({**fields, "input": items})
