"""The reasoning of tool calls is saved, and restored if the client did not send it back."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.stores import Stores, each_store
from tests.strategies import QUICK
from weft.assembler import Item, ReasoningItem, Response, TextItem
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.requests.codec import Losses, SourcePaths
from weft.parts import ToolCall
from weft.relay.incoming import api_of
from weft.relay.reasoning import call_states, calls_without_reasoning, put_back, restore, save
from weft.request import (
    AnyContent,
    CallContent,
    Message,
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
    Tool,
)
from weft.store.records import CallReasoning

REQUESTS = sorted(name for name, dialect in DIALECTS.items() if dialect.request is not None)
MARK = "QQ"
"""In every reasoning and every proof, and nowhere else."""

replace = msgspec.structs.replace


# Turns, as an upstream answered them and as a client would send all of them back


def proofs(origin: str) -> st.SearchStrategy[dict[str, Any]]:
    words = st.text("abc=", max_size=3).map(MARK.__add__)
    return st.one_of(
        st.fixed_dictionaries({"signature": words, "origin": st.just(origin)}),
        st.fixed_dictionaries({"encrypted": words, "item_id": words, "origin": st.just(origin)}),
        st.fixed_dictionaries({"redacted": words, "origin": st.just(origin)}),
        st.just({"origin": origin}),  # a host may want the text alone
    )


def thoughts(origin: str) -> st.SearchStrategy[AnyContent]:
    return st.builds(
        lambda text, kind, proof: ReasoningContent(text, kind, **proof),
        st.text("hm ", max_size=3).map(lambda text: text and MARK + text),
        st.sampled_from(["raw", "summary"]),
        proofs(origin),
    )


TEXTS = st.builds(TextContent, st.text("xyz", min_size=1, max_size=5))
ARGUMENTS = st.sampled_from(['{"a":1,"b":[2.0,"x"]}', "{}", '{"a": "\\u00e9"}', "not JSON"])


@st.composite
def answers(draw: st.DrawFn, origin: str = "up") -> tuple[AnyContent, ...]:
    """Content of the assistant that ends with a call, or with reasoning after the last call."""
    said: list[AnyContent] = []
    for number in range(draw(st.integers(1, 3))):
        said += draw(st.lists(st.one_of(thoughts(origin), TEXTS), max_size=3))
        signature = draw(st.none() | st.text("sig", max_size=3).map(MARK.__add__))
        call = CallContent(
            f"call_{number}",
            draw(st.sampled_from(["look", "read"])),
            draw(ARGUMENTS),
            signature=signature,
            origin=origin if signature else None,
        )
        said.append(call)
    said += draw(st.lists(thoughts(origin), max_size=1))
    return tuple(said)


def response_of(said: tuple[AnyContent, ...], **fields: Any) -> Response:
    """The response with this content."""
    return Response("resp_1", items=tuple(map(item, said)), finish_reason="tool-calls", **fields)


def item(content: AnyContent) -> Item:
    match content:
        case TextContent():
            return TextItem("t", content.text)
        case ReasoningContent():
            fields = msgspec.structs.asdict(content)
            return ReasoningItem("r", **fields)
        case CallContent():
            call = content
            return ToolCall(
                call.id, call.name, call.params, signature=call.signature, origin=call.origin
            )
    raise AssertionError(content)


def request_of(*answers: tuple[AnyContent, ...], dialect: str | None = None) -> Request:
    """The request that brings the results of all the calls."""
    messages = [Message("user", (TextContent("How is it?"),))]
    for said in answers:
        calls = [one for one in said if isinstance(one, CallContent)]
        messages.append(Message("assistant", said))
        messages += [
            Message("tool", (ResultContent(call.id, (TextContent("so"),)),)) for call in calls
        ]
    return Request("m", tuple(messages), tools=(Tool("look"), Tool("read")), dialect=dialect)


def stripped(request: Request) -> Request:
    """What a client sends that carries no reasoning."""

    def bare(content: AnyContent) -> AnyContent:
        if isinstance(content, CallContent):
            return replace(content, signature=None, origin=None)
        return content

    return replace(
        request,
        messages=tuple(
            replace(
                message,
                content=tuple(
                    bare(one) for one in message.content if not isinstance(one, ReasoningContent)
                ),
            )
            for message in request.messages
        ),
    )


# What a client dropped


@QUICK
@given(answers())
def test_dropped_reasoning_is_restored_unchanged(said: tuple[AnyContent, ...]) -> None:
    whole = request_of(said)
    found = put_back(stripped(whole), call_states(response_of(said)))
    assert found.request == whole
    wanted = [one for one in said if isinstance(one, ReasoningContent | CallContent)]
    reasoned = any(isinstance(one, ReasoningContent) or one.signature for one in wanted)
    assert bool(found.calls) == bool(found.losses) == reasoned


@QUICK
@given(answers())
def test_a_step_with_reasoning_state_is_not_changed(said: tuple[AnyContent, ...]) -> None:
    whole = request_of(said)
    proven = any(
        one.signature or (isinstance(one, ReasoningContent) and (one.encrypted or one.redacted))
        for one in said
        if isinstance(one, ReasoningContent | CallContent)
    )
    found = put_back(whole, call_states(response_of(said)))
    assert found.request == whole
    if proven:
        assert calls_without_reasoning(whole) == []
        assert found.calls == ()


@QUICK
@given(answers(), answers())
def test_each_step_is_restored_by_itself(
    first: tuple[AnyContent, ...], second: tuple[AnyContent, ...]
) -> None:
    """The client brought the second, and the first is not known."""
    second = tuple(
        replace(one, id=f"{one.id}_later") if isinstance(one, CallContent) else one
        for one in second
    )
    bare = stripped(request_of(first, second))
    states = call_states(response_of(first)) | call_states(response_of(second))
    assert put_back(bare, states).request == request_of(first, second)
    assert (
        put_back(bare, call_states(response_of(second))).request.messages[-1] == bare.messages[-1]
    )
    assert put_back(bare, {}).request is bare


@QUICK
@given(answers())
def test_restoring_twice_changes_nothing_more(said: tuple[AnyContent, ...]) -> None:
    states = call_states(response_of(said))
    once = put_back(stripped(request_of(said)), states).request
    assert put_back(once, states).request == once


# Whose it is


@pytest.mark.parametrize("target", REQUESTS)
@QUICK
@given(said=answers(origin="elsewhere"))
def test_restored_reasoning_is_sent_to_its_origin_only(
    target: str, said: tuple[AnyContent, ...]
) -> None:
    full = put_back(stripped(request_of(said)), call_states(response_of(said))).request
    assert MARK.encode() not in rendered(target, full, "here")


def rendered(target: str, request: Request, origin: str) -> bytes:
    losses = Losses()
    body = api_of(target).request.render(request, Context(origin=origin), losses).body
    assert losses.refusals == []
    return body


@pytest.mark.parametrize("client", REQUESTS)
def test_thinking_is_restored_before_the_call(client: str) -> None:
    said = (
        ReasoningContent("hm", signature="c2ln", origin="up"),
        ReasoningContent(redacted="eHh4", origin="up"),
        TextContent("Let me look."),
        CallContent("toolu_1", "look", '{"a":1}'),
    )
    bare = stripped(request_of(said, dialect=client))
    full = put_back(bare, call_states(response_of(said, dialect="anthropic-messages"))).request
    body = json.loads(rendered("anthropic-messages", full, "up"))
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eHh4"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}},
    ]


def test_reasoning_details_are_sent_back_to_a_chat_host_unchanged() -> None:
    details = b'[{"type":"reasoning.text","text":"hm","signature":"s","format":"f","index":0}]'
    thought = ReasoningContent(
        "hm", signature="s", origin="up", extra=Raw(b'{"reasoning_details":' + details + b"}")
    )
    said = (thought, CallContent("call_1", "look", "{}"))
    states = call_states(response_of(said, dialect="openai-chat"))
    same = put_back(stripped(request_of(said, dialect="openai-chat")), states).request
    assert same.messages[1].content[0] == thought
    other = put_back(stripped(request_of(said, dialect="gemini")), states).request
    assert other.messages[1].content[0] == replace(thought, extra=UNSET)


# What does not belong together

CALL = CallContent("call_1", "look", '{"a":1,"b":[1.0]}')
THOUGHT = ReasoningContent("hm", signature="s", origin="up")
STATES = call_states(response_of((THOUGHT, CALL)))


@pytest.mark.parametrize(
    ("call", "fits"),
    [
        (CALL, True),
        (replace(CALL, params='{ "b": [1], "a": 1.0 }'), True),  # as another library writes it
        (replace(CALL, params='{"a":1,"b":[2]}'), False),
        (replace(CALL, params="{"), False),
        (replace(CALL, name="read"), False),
        (replace(CALL, format="text"), False),
        (replace(CALL, id="call_2"), False),
        (replace(CALL, provider_executed=True), False),
    ],
)
def test_another_call_with_the_same_id_gets_no_reasoning(call: CallContent, fits: bool) -> None:
    bare = Request("m", (Message("assistant", (call,)),))
    found = put_back(bare, STATES)
    assert bool(found.calls) is fits
    assert found.request.messages[0].content == ((THOUGHT, call) if fits else (call,))


def test_of_two_equal_calls_with_one_id_the_last_gets_the_reasoning() -> None:
    bare = request_of((CALL,), (CALL,))
    found = put_back(bare, STATES)
    assert [len(message.content) for message in found.request.messages] == [1, 1, 1, 2, 1]
    assert found.calls == ("messages[3].content[1]",)


def test_only_calls_of_the_assistant_get_reasoning() -> None:
    assert calls_without_reasoning(Request("m", (Message("user", (CALL,)),))) == []
    assert put_back(Request("m", (Message("user", (CALL,)),)), STATES).calls == ()


def test_plain_reasoning_is_replaced_by_reasoning_with_state() -> None:
    mine = ReasoningContent("hm", origin="openai-chat")
    found = put_back(request_of((mine, TextContent("So."), CALL)), STATES)
    assert found.request == request_of((THOUGHT, TextContent("So."), CALL))


def test_plain_reasoning_stays_if_none_with_state_is_saved() -> None:
    plain = ReasoningContent("hm", origin="up")
    mine = ReasoningContent("my hm", origin="up")
    states = call_states(response_of((plain, CALL)))
    assert put_back(request_of((mine, CALL)), states).request == request_of((mine, CALL))
    signed = replace(CALL, signature="s", origin="up")
    assert put_back(
        request_of((mine, CALL)), call_states(response_of((plain, signed)))
    ).request == request_of((mine, signed))


def test_reasoning_items_without_state_are_replaced_and_paths_follow() -> None:
    """On a wire where every item is a message."""
    user, mine = Message("user", (TextContent("?"),)), ReasoningContent("h", item_id="rs_1")
    messages = (
        user,
        Message("assistant", (mine,)),
        Message("assistant", (TextContent("So."),)),
        Message("assistant", (CALL,)),
        user,
    )
    found = put_back(Request("m", messages), STATES)
    assert found.request.messages == (
        user,
        Message("assistant", (THOUGHT, TextContent("So."))),
        Message("assistant", (CALL,)),
        user,
    )
    places = SourcePaths({f"messages[{number}]": f"input[{number}]" for number in range(5)})
    found.update_paths(places)
    paths = ["messages[1].content[1]", "messages[1].content[0]", "messages[2].content[0]"]
    assert [places.source(path) for path in (*paths, "messages[3]")] == [
        "input[2].content[0]",
        "input[2]",
        "input[3].content[0]",
        "input[4]",
    ]


def test_reasoning_between_joined_texts_is_restored_before_the_text() -> None:
    said = (TextContent("One."), THOUGHT, TextContent("Two."), CALL)
    joined = request_of((TextContent("One.Two."), CALL))
    found = put_back(joined, call_states(response_of(said)))
    assert found.request == request_of((TextContent("One.Two."), THOUGHT, CALL))


# What is saved


def test_the_stored_names_are_those_of_earlier_versions() -> None:
    (state,) = call_states(response_of((THOUGHT, CALL, THOUGHT))).values()
    stored = msgspec.json.decode(msgspec.json.encode(state))
    assert {"call", "thoughts", "behind"} <= stored.keys()


def test_nothing_is_saved_of_a_response_that_failed_or_has_no_calls() -> None:
    assert call_states(response_of((THOUGHT, TextContent("So.")))) == {}
    assert call_states(response_of((CALL,))) == {}
    assert (
        call_states(response_of((ReasoningContent("hm"), CALL))) == {}
    )  # no upstream wants it back
    hosted = ToolCall("call_1", "search", "{}", provider_executed=True)
    nameless = ToolCall("call_1", "", "{}", invalid="nameless")
    broken = ToolCall("call_1", "look", "{", invalid="bad-arguments")
    thought = item(THOUGHT)
    for call, kept in ((hosted, 0), (nameless, 0), (broken, 1)):
        assert len(call_states(Response("r", items=(thought, call)))) == kept
    failed = msgspec.convert({"kind": "upstream", "message": "no"}, type=Any)
    assert call_states(replace(response_of((THOUGHT, CALL)), error=failed)) == {}


@each_store
async def test_saved_reasoning_is_restored_for_its_owner_only(stores: Stores) -> None:
    store = await stores.opened()
    whole = request_of((THOUGHT, CALL))
    bare = stripped(whole)
    await save(store, "alice", response_of((THOUGHT, CALL)))
    assert (await restore(store, "alice", bare)).request == whole
    assert (await restore(store, "bob", bare)).request == bare


@each_store
async def test_nothing_is_written_if_there_is_nothing_to_save(stores: Stores) -> None:
    store = await stores.opened()
    before = store.commits
    await save(store, "", response_of((CALL,)))
    assert store.commits == before


@each_store
async def test_a_repeated_call_without_reasoning_gets_none_restored(stores: Stores) -> None:
    store = await stores.opened()
    await save(store, "alice", response_of((THOUGHT, CALL)))
    await save(store, "alice", response_of((CALL,)))
    bare = stripped(request_of((CALL,)))
    assert (await restore(store, "alice", bare)).request == bare


@each_store
async def test_deleting_the_response_deletes_its_reasoning(stores: Stores) -> None:
    store = await stores.opened()
    await save(store, "", response_of((THOUGHT, CALL)), "resp_1")
    await store.delete("", "resp_1")
    bare = stripped(request_of((THOUGHT, CALL)))
    assert (await restore(store, "", bare)).request == bare


@each_store
async def test_an_unreadable_row_is_ignored_and_others_are_not(stores: Stores) -> None:
    store = await stores.opened()
    other = replace(CALL, id="call_2")
    await save(store, "alice", response_of((THOUGHT, CALL, THOUGHT, other)))
    bare = stripped(request_of((CALL,), (other,)))
    for data in (b"{", b"{}", b"\xff", b"[" * 100_000):
        await store.save_reasoning("alice", [CallReasoning(CALL.id, "", "up", time.time(), data)])
        restored = (await restore(store, "alice", bare)).request
        assert restored.messages[1] == bare.messages[1]
        assert THOUGHT in restored.messages[3].content


@each_store
async def test_oversized_reasoning_is_not_saved_and_store_errors_are_harmless(
    stores: Stores,
) -> None:
    store = await stores.opened()
    large = replace(THOUGHT, text="h" * 2**20)
    long = replace(CALL, id="c" * 600)
    await save(
        store, "", response_of((THOUGHT, CALL, large, replace(CALL, id="call_2"), THOUGHT, long))
    )
    bare = stripped(request_of((THOUGHT, CALL, large, replace(CALL, id="call_2"), THOUGHT, long)))
    assert (await restore(store, "", bare)).calls == ("messages[1].content[1]",)
    await store.close()
    await save(store, "", response_of((THOUGHT, CALL)))
    assert (await restore(store, "", Request("m", ()))).calls == ()
