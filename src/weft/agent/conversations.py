"""Runs in conversations: what a run begins with, and what it adds at its end.

A run begins with the items that its conversation has at that moment; they are part of its first
event, so whatever becomes of the conversation meanwhile does not change the run. At its end its own
input, and the items that followed it, are added in the transaction of its last event: once, whoever
died before.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from weft.agent.state import RunState, TurnState
from weft.agent.turns import items_after_input
from weft.codec import fresh_context
from weft.errors import ClientError
from weft.relay.history import id_prefix, read_shape, with_results
from weft.store.base import ID_LENGTH, Store
from weft.store.conversations import append_to
from weft.store.queries import Beside, Queries
from weft.store.records import Item

PAGE = 100
ITEM_ID = ID_LENGTH - 20
"""Characters of an id that an item can keep: the store may add a suffix."""


class UnknownConversation(ClientError):
    """The owner has no conversation with this id."""


class GivenItem(msgspec.Struct):
    """What is read of any item of a conversation."""

    type: str | None = None
    role: str | None = None


class _GivenMcpCall(msgspec.Struct):
    id: str
    name: str
    server_label: str
    arguments: str
    output: str | None = None


class _Output(msgspec.Struct):
    output: list[Raw] = []


read_item = msgspec.json.Decoder(GivenItem).decode
_read_call = msgspec.json.Decoder(_GivenMcpCall).decode
_read_output = msgspec.json.Decoder(_Output).decode
_json = msgspec.json.Encoder().encode


# The beginning


async def with_conversation(
    store: Store, owner: str, conversation: str, agent: str, new: Sequence[Raw]
) -> tuple[list[Raw], int]:
    """The input of a run that continues a conversation, and how many of its items are not new.
    Raises UnknownConversation, BadRequest, StoreError."""
    if await store.conversation(owner, conversation) is None:
        raise UnknownConversation(f"Conversation with id '{conversation[:100]}' not found.")
    earlier: list[Raw] = []
    after: str | None = None
    while True:
        page = await store.items(conversation, after, None, PAGE)
        earlier += [Raw(one.data) for one in page.items]
        if not page.more:
            break
        after = page.items[-1].id
    items = with_results(input_of_run(earlier, agent), new)
    own = {id(one) for one in new}  # results for calls that have none stand between them
    return items, next((at for at, one in enumerate(items) if id(one) in own), len(items))


def input_of_run(items: Sequence[Raw], agent: str) -> list[Raw]:
    """A conversation as the model of the agent can read it: calls that the agent has run are those
    of functions, which it has, and not of a server that only clients know."""
    found: list[Raw] = []
    for raw in items:
        match read_item(raw).type:
            case "mcp_call":
                found += _as_function(raw, agent)
            case "mcp_approval_request" | "mcp_approval_response":
                pass  # it was for a run, and says nothing to a model
            case _:
                found.append(raw)
    return found


def _as_function(raw: Raw, agent: str) -> list[Raw]:
    try:
        item = _read_call(raw)
    except ValueError:
        return [raw]  # the dialect says what is wrong with it
    if item.server_label != agent:
        return [raw]  # of a real server, behind some upstream
    call = {"call_id": item.id, "name": item.name, "arguments": item.arguments}
    output = {"call_id": item.id, "output": item.output or ""}
    both = ({"type": "function_call", **call}, {"type": "function_call_output", **output})
    return [Raw(_json(one)) for one in both]


# The end


async def load_outputs(store: Store, state: RunState, found: dict[str, list[Raw]]) -> None:
    """Adds the output items of the finished turns to those that are there, by response."""
    for turn in state.turns:
        if turn.state is TurnState.FINISHED and turn.response not in found:
            entry = await store.entry(turn.response)
            body = entry.body if entry is not None and entry.body is not None else b"{}"
            found[turn.response] = _read_output(body).output


async def conversation_update(
    store: Store, state: RunState, outputs: dict[str, list[Raw]] | None = None
) -> Beside | None:
    """The statements that add a run to its conversation, for the transaction of its last event;
    None if it has none, or if no turn has finished: it may have failed because of its input."""
    conversation = state.conversation
    if conversation is None or not any(one.state is TurnState.FINISHED for one in state.turns):
        return None
    outputs = {} if outputs is None else outputs
    await load_outputs(store, state, outputs)
    ids = fresh_context().ids
    # New ids: a client may send the same item in several runs, and an id is unique in a
    # conversation.
    input = state.input[state.before :]
    items = [Item(ids.mint(id_prefix(read_shape(one))), bytes(one)) for one in input]
    for raw in items_after_input(state, outputs):
        shape = read_shape(raw)
        own = shape.id if shape.id and len(shape.id) <= ITEM_ID else None
        items.append(Item(own or ids.mint(id_prefix(shape)), bytes(raw)))

    def beside(seq: int) -> Queries[None]:
        return append_to(conversation, items)

    return beside
