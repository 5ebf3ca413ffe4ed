"""Twenty ways in which gateways between dialects go wrong, and that Weft goes none of them.

Every test goes the whole way: bytes of one wire in, what a client of another wire keeps of them,
and, where a conversation goes on, that client's next request back to the upstream.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.conversations import (
    ASKED,
    CHAT,
    CONVERSATION,
    EITHER_WAY,
    GEMINI,
    KEPT,
    MESSAGES,
    RESPONSES,
    SAID,
    TEXT,
    UI,
    WRITTEN,
    Object,
    Turn,
    answered,
    assistant_turn,
    broken_rules,
    calls_in,
    chat,
    contents,
    entry,
    events_of,
    fc,
    from_body,
    from_stream,
    kept_by_responses,
    message,
    next_request,
    responses,
    results_in,
    sse,
    translated,
    use,
)
from tests.tables import each_row
from weft.dialects import DIALECTS, DialectName
from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.findings import Findings
from weft.request import Request

IMAGE = "iVBORw0KGgo="
MARK = "skip_thought_signature_validator"
"""What Gemini takes for the signature of a call that somebody else made."""


# 1 to 4: proofs of reasoning


SIGNED: list[Object] = [
    {"type": "thinking", "thinking": "", "signature": "c2ln+/="},
    use("toolu_1", 1),
]
REDACTED: list[Object] = [{"type": "redacted_thinking", "data": "cmVk+/="}, use("toolu_1", 1)]
BOTH = [SIGNED[0], *REDACTED]


@EITHER_WAY
@pytest.mark.parametrize(
    ("client", "blocks"),
    [(client, blocks) for client in ASKED for blocks in (SIGNED, REDACTED)]
    + [(client, BOTH) for client in ASKED if client != CHAT],
)
def test_trap_01_thinking_without_text_comes_home_byte_for_byte(
    client: DialectName, blocks: list[Object], turn: Turn
) -> None:
    """A block with nothing but a signature, or redacted, is no empty block to leave out."""
    said = turn(message(*blocks, reason="tool_use"), MESSAGES, client)
    asked = next_request(client, said, ("toolu_1", "look", "x"))
    assert assistant_turn(translated(asked, client, MESSAGES), MESSAGES) == blocks


THOUGHTFUL = [
    {"type": "thinking", "thinking": "secret thought", "signature": "c2ln"},
    TEXT,
    use("toolu_1", 1),
]


def secrets_in(body: Object) -> list[str]:
    """What of a thought, its proof or an envelope stands anywhere in a request."""
    written = json.dumps(body)
    return [word for word in ("secret", "c2ln", "weft1", "d2VmdDE6") if word in written]


@EITHER_WAY
@pytest.mark.parametrize("client", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("upstream", [CHAT, RESPONSES, GEMINI])
def test_trap_02_a_proof_is_not_sent_to_another_wire(
    client: DialectName, upstream: DialectName, turn: Turn
) -> None:
    """After a switch neither the proof, nor the envelope, nor the thought as text goes along."""
    said = turn(message(*THOUGHTFUL, reason="tool_use"), MESSAGES, client)
    sent = translated(next_request(client, said, ("toolu_1", "look", "x")), client, upstream)
    assert secrets_in(sent) == []
    assert calls_in(assistant_turn(sent, upstream), upstream) == [("toolu_1", "look", {"at": 1})]


@pytest.mark.parametrize("client", [CHAT, RESPONSES, MESSAGES])
def test_trap_02_a_proof_is_not_sent_to_another_host_of_its_wire(client: DialectName) -> None:
    """Two hosts of one dialect do not know each other's signatures; the first takes its own."""
    raw = message(*THOUGHTFUL, reason="tool_use")
    (answer,) = weft.decode_all(raw, MESSAGES, context=weft.Context(origin="host-a"))
    said = KEPT[client](events_of(b"".join(weft.encode(answer.parts, client))))
    asked = next_request(client, said, ("toolu_1", "look", "x"))
    elsewhere = translated(asked, client, MESSAGES, origin="host-b")
    assert secrets_in(elsewhere) == []
    assert assistant_turn(elsewhere, MESSAGES) == THOUGHTFUL[1:]
    home = translated(asked, client, MESSAGES, origin="host-a")
    assert assistant_turn(home, MESSAGES) == THOUGHTFUL


ENCRYPTED: Object = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Why."}],
    "encrypted_content": "ZW5j+/=",
}


@pytest.mark.parametrize("client", ASKED)
def test_trap_02_encrypted_reasoning_is_not_sent_to_another_host_of_its_wire(
    client: DialectName,
) -> None:
    raw = responses(ENCRYPTED, fc(1, '{"at":1}'))
    (answer,) = weft.decode_all(raw, RESPONSES, context=weft.Context(origin="host-a"))
    said = KEPT[client](events_of(b"".join(weft.encode(answer.parts, client))))
    asked = next_request(client, said, ("call_1", "look", "x"))
    kinds = {
        host: [
            item["type"]
            for item in assistant_turn(translated(asked, client, RESPONSES, origin=host), RESPONSES)
        ]
        for host in ("host-a", "host-b")
    }
    assert kinds == {"host-a": ["reasoning", "function_call"], "host-b": ["function_call"]}


@EITHER_WAY
@pytest.mark.parametrize("client", ASKED)
def test_trap_03_encrypted_reasoning_survives_a_client_of_any_wire(
    client: DialectName, turn: Turn
) -> None:
    """The next request has the reasoning item again: its id, and its content as it was."""
    raw = responses(ENCRYPTED, fc(1, '{"at":1}'))
    asked = next_request(client, turn(raw, RESPONSES, client), ("call_1", "look", "x"))
    sent = assistant_turn(translated(asked, client, RESPONSES), RESPONSES)
    proofs = [
        {key: item[key] for key in ("type", "id", "encrypted_content")}
        for item in sent
        if item["type"] == "reasoning"
    ]
    assert proofs == [{key: ENCRYPTED[key] for key in ("type", "id", "encrypted_content")}]


PARALLEL: list[Object] = [
    {"functionCall": {"id": "g1", "name": "look", "args": {"at": 1}}, "thoughtSignature": "c2ln"},
    {"functionCall": {"id": "g2", "name": "look", "args": {"at": 2}}},
]


@EITHER_WAY
def test_trap_04_a_thought_signature_stays_on_the_one_call_it_came_with(turn: Turn) -> None:
    """The second of two parallel calls is unsigned, and that is right: it gets no mark."""
    said = turn(contents(PARALLEL), GEMINI, GEMINI)
    assert said == PARALLEL
    asked = next_request(GEMINI, said, ("g1", "look", "one"), ("g2", "look", "two"))
    assert assistant_turn(translated(asked, GEMINI, GEMINI), GEMINI) == PARALLEL


HINT: Object = {"text": "Hm.", "thought": True}
BEFORE: dict[str, list[Object]] = {
    "nothing": [],
    "a thought": [HINT],
    "a thought with a proof": [{**HINT, "thoughtSignature": "dGhv"}],
    "a thought and a text": [HINT, {"text": "a"}],
}
"""What Gemini may say before it calls."""


@EITHER_WAY
@pytest.mark.parametrize("client", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("calls", [PARALLEL[:1], PARALLEL], ids=["one", "parallel"])
def test_trap_04_a_thought_signature_comes_home_through_a_client_of_any_wire(
    client: DialectName, before: str, calls: list[Object], turn: Turn
) -> None:
    """A wire without a field for it has it sealed in the reasoning that stands before the call."""
    said = turn(contents([*BEFORE[before], *calls]), GEMINI, client)
    results = [(one["functionCall"]["id"], "look", "x") for one in calls]
    sent = translated(next_request(client, said, *results), client, GEMINI)
    told = assistant_turn(sent, GEMINI)
    proven = [one for one in told if "thoughtSignature" in one or "functionCall" in one]
    assert proven == [one for one in BEFORE[before] if "thoughtSignature" in one] + calls
    assert [word for word in ("weft1", "d2VmdDE6") if word in json.dumps(sent)] == []


@pytest.mark.parametrize("client", ASKED)
def test_trap_04_a_thought_signature_is_not_sent_to_another_host(client: DialectName) -> None:
    """Two hosts do not know each other's signatures: the other one gets the mark instead."""
    context = weft.Context(origin="host-a")
    (answer,) = weft.decode_all(contents([HINT, *PARALLEL]), GEMINI, context=context)
    said = KEPT[client](events_of(b"".join(weft.encode(answer.parts, client))))
    asked = next_request(client, said, ("g1", "look", "one"), ("g2", "look", "two"))
    signatures = {
        host: [
            one.get("thoughtSignature")
            for one in assistant_turn(translated(asked, client, GEMINI, origin=host), GEMINI)
            if "functionCall" in one
        ]
        for host in ("host-a", "host-b")
    }
    assert signatures == {"host-a": ["c2ln", None], "host-b": [MARK, None]}


@pytest.mark.parametrize("client", ASKED)
@pytest.mark.parametrize("upstream", [CHAT, RESPONSES, MESSAGES])
def test_trap_04_a_thought_signature_is_not_sent_to_another_wire(
    client: DialectName, upstream: DialectName
) -> None:
    said = from_stream(contents(PARALLEL), GEMINI, client)
    asked = next_request(client, said, ("g1", "look", "one"), ("g2", "look", "two"))
    sent = translated(asked, client, upstream)
    assert secrets_in(sent) == []
    found = calls_in(assistant_turn(sent, upstream), upstream)
    assert found == [("g1", "look", {"at": 1}), ("g2", "look", {"at": 2})]


@pytest.mark.parametrize("client", [RESPONSES, MESSAGES])
def test_trap_04_a_call_gets_its_own_signature_and_no_other(client: DialectName) -> None:
    """The envelope names the call: not the first one behind it is meant."""
    unsigned, second = {"functionCall": PARALLEL[0]["functionCall"]}, PARALLEL[1]
    calls = [unsigned, {**second, "thoughtSignature": "c2ln"}]
    said = from_stream(contents(calls), GEMINI, client)
    asked = next_request(client, said, ("g1", "look", "one"), ("g2", "look", "two"))
    sent = assistant_turn(translated(asked, client, GEMINI), GEMINI)
    assert [one.get("thoughtSignature") for one in sent] == [MARK, "c2ln"]


@pytest.mark.parametrize("client", [CHAT, RESPONSES, MESSAGES])
def test_trap_04_calls_of_others_get_the_mark_once_a_step(client: DialectName) -> None:
    """What another wire called has no signature; only the first call of the step says so."""
    raw = message(use("g1", 1), use("g2", 2), reason="tool_use")
    said = from_stream(raw, MESSAGES, client)
    asked = next_request(client, said, ("g1", "look", "one"), ("g2", "look", "two"))
    unsigned = [{"functionCall": one["functionCall"]} for one in PARALLEL]
    expected = [{**unsigned[0], "thoughtSignature": MARK}, unsigned[1]]
    assert assistant_turn(translated(asked, client, GEMINI), GEMINI) == expected


# 5 to 13: calls and results


@EITHER_WAY
@pytest.mark.parametrize("client", ASKED)
def test_trap_05_equal_calls_without_ids_are_as_many_calls(client: str, turn: Turn) -> None:
    """Each has a place and an id of its own, and no id is made of the name."""
    bare = [{"functionCall": {"name": "look", "args": {"at": at}}} for at in (1, 2, 2)]
    found = calls_in(turn(contents(bare[:2], bare[2:]), GEMINI, client), client)
    assert [(name, given) for _, name, given in found] == [
        ("look", {"at": 1}),
        ("look", {"at": 2}),
        ("look", {"at": 2}),
    ]
    ids = [id for id, _, _ in found]
    assert len(set(ids)) == 3
    assert [id for id in ids if "look" in id] == []


@pytest.mark.parametrize("client", ASKED)
@pytest.mark.parametrize("upstream", ASKED)
def test_trap_06_results_find_their_calls_by_id(client: DialectName, upstream: DialectName) -> None:
    """Two calls of one name, answered the other way round: neither place nor name decides."""
    said = from_stream(message(use("t1", 1), use("t2", 2), reason="tool_use"), MESSAGES, client)
    asked = next_request(client, said, ("t2", "look", "two"), ("t1", "look", "one"))
    sent = translated(asked, client, upstream)
    calls = calls_in(assistant_turn(sent, upstream), upstream)
    assert calls == [("t1", "look", {"at": 1}), ("t2", "look", {"at": 2})]
    assert sorted(results_in(sent, upstream)) == [("t1", "one"), ("t2", "two")]


INTERLEAVED = {
    CHAT: chat(
        entry(0, "", "call_1", "look"),
        entry(1, "", "call_2", "look"),
        entry(0, '{"at"'),
        entry(1, '{"at":'),
        entry(0, ":1}"),
        entry(1, "2}"),
        reason="tool_calls",
    ),
    RESPONSES: sse(
        {"type": "response.created", "response": {"id": "r", "model": "m-1", "output": []}},
        *(
            {
                "type": "response.output_item.added",
                "output_index": number - 1,
                "item": fc(number, ""),
            }
            for number in (1, 2)
        ),
        *(
            {
                "type": "response.function_call_arguments.delta",
                "item_id": f"fc_{number}",
                "output_index": number - 1,
                "delta": delta,
            }
            for number, delta in ((1, '{"at"'), (2, '{"at":'), (1, ":1}"), (2, "2}"))
        ),
        *(
            {
                "type": "response.output_item.done",
                "output_index": number - 1,
                "item": fc(number, f'{{"at":{number}}}'),
            }
            for number in (2, 1)
        ),
        {
            "type": "response.completed",
            "response": {"id": "r", "model": "m-1", "status": "completed", "output": []},
        },
    ),
}
TWO_CALLS = [("call_1", "look", {"at": 1}), ("call_2", "look", {"at": 2})]


@pytest.mark.parametrize("source", INTERLEAVED)
@pytest.mark.parametrize("target", ASKED)
def test_trap_07_interleaved_arguments_go_to_their_own_call(
    source: DialectName, target: DialectName
) -> None:
    """No delta for a block that is closed or another's, and not every call at index 0."""
    raw = weft.convert(INTERLEAVED[source], source, target)
    assert sorted(calls_in(KEPT[target](events_of(raw)), target)) == TWO_CALLS
    assert broken_rules(raw, target) == []


@pytest.mark.parametrize("source", INTERLEAVED)
def test_trap_07_interleaved_arguments_are_told_one_call_after_the_other(
    source: DialectName,
) -> None:
    """Clients of Responses take another index for another call."""
    events = events_of(weft.convert(INTERLEAVED[source], source, RESPONSES))
    told = [event["output_index"] for event in events if "arguments.delta" in event["type"]]
    assert told == sorted(told)


@pytest.mark.parametrize("source", INTERLEAVED)
def test_trap_07_interleaved_arguments_reach_a_front_end_under_their_ids(
    source: DialectName,
) -> None:
    raw = weft.convert(INTERLEAVED[source], source, UI)
    texts: dict[str, str] = {}
    for event in events_of(raw):
        if event["type"] == "tool-input-delta":
            id = event["toolCallId"]
            texts[id] = texts.get(id, "") + event["inputTextDelta"]
    assert texts == {"call_1": '{"at":1}', "call_2": '{"at":2}'}
    assert broken_rules(raw, UI) == []


def repeated_item() -> bytes:
    """One item, added twice, done twice, and twice in the terminal event."""
    events = events_of(responses(fc(1, '{"at":1}')))
    added, done, end = events[1:]
    end["response"]["output"] *= 2
    return sse(events[0], added, added, done, done, end)


TWICE = {
    "the name again with every chunk": (
        CHAT,
        chat(
            entry(0, '{"at"', "call_1", "look"),
            entry(0, ":1}", "call_1", "look"),
            reason="tool_calls",
        ),
    ),
    "one id under two indices": (
        CHAT,
        chat(
            entry(0, '{"at"', "call_1", "look"),
            entry(1, '{"at"', "call_1", "look"),
            entry(0, ":1}"),
            reason="tool_calls",
        ),
    ),
    "one item many times": (RESPONSES, repeated_item()),
}


@EITHER_WAY
@pytest.mark.parametrize("target", ASKED)
@pytest.mark.parametrize("case", TWICE)
def test_trap_08_a_call_that_is_announced_twice_is_one(case: str, target: str, turn: Turn) -> None:
    source, raw = TWICE[case]
    assert calls_in(turn(raw, source, target), target) == [("call_1", "look", {"at": 1})]


@EITHER_WAY
@pytest.mark.parametrize("target", ASKED)
def test_trap_08_no_id_is_written_twice(target: DialectName, turn: Turn) -> None:
    """Two calls under one id are two calls: the next request of the session is a legal one."""
    raw = message(use("t", 1), use("t", 2), reason="tool_use")
    said = turn(raw, MESSAGES, target)
    assert calls_in(said, target) == [("t", "look", {"at": 1}), ("t_2", "look", {"at": 2})]
    asked = next_request(target, said, ("t", "look", "one"), ("t_2", "look", "two"))
    assert results_in(translated(asked, target, MESSAGES), MESSAGES) == [
        ("t", "one"),
        ("t_2", "two"),
    ]


ODD = "call:1/\u00e9|x"


@EITHER_WAY
@pytest.mark.parametrize("client", ASKED)
def test_trap_09_an_id_is_cleaned_on_both_sides_streamed_or_not(
    client: DialectName, turn: Turn
) -> None:
    """The client answers under the id it was shown, and the upstream sees one id in both."""
    raw = chat(entry(0, '{"at":1}', ODD, "look"), reason="tool_calls")
    ((id, name, given),) = calls_in(turn(raw, CHAT, client), client)
    assert (name, given) == ("look", {"at": 1})
    legal = re.compile("[a-zA-Z0-9_-]{1,64}" if client == MESSAGES else ".+")
    assert legal.fullmatch(id)
    assert calls_in(from_body(raw, CHAT, client), client) == [(id, name, given)]
    asked = next_request(client, turn(raw, CHAT, client), (id, "look", "x"))
    for upstream in ASKED:
        sent = translated(asked, client, upstream)
        ((called, _, _),) = calls_in(assistant_turn(sent, upstream), upstream)
        assert results_in(sent, upstream) == [(called, "x")]
        if upstream == MESSAGES:
            assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", called)


@EITHER_WAY
@pytest.mark.parametrize("client", [CHAT, MESSAGES, GEMINI])
def test_trap_10_only_the_id_of_the_call_leaves_the_wire(client: str, turn: Turn) -> None:
    """The id of the item is the upstream's own business."""
    said = turn(responses(fc(1, '{"at":1}')), RESPONSES, client)
    assert calls_in(said, client) == [("call_1", "look", {"at": 1})]
    assert "fc_1" not in json.dumps(said)


@pytest.mark.parametrize("upstream", ASKED)
@pytest.mark.parametrize("key", ["id", "call_id"])
def test_trap_10_a_result_under_either_id_finds_its_call(key: str, upstream: DialectName) -> None:
    """Our item ids differ from call ids, stay the same, and are taken back if a client errs."""
    raw = weft.convert(message(use("t1", 1), reason="tool_use"), MESSAGES, RESPONSES)
    events = events_of(raw)
    said = kept_by_responses(events)
    item = said[0]
    assert item["id"] != item["call_id"] == "t1"
    assert {event["item_id"] for event in events if "item_id" in event} == {item["id"]}
    asked = next_request(RESPONSES, said, (item[key], "look", "x"))
    assert results_in(translated(asked, RESPONSES, upstream), upstream) == [("t1", "x")]


SCATTERED: Object = {
    "model": "m-1",
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"c{at}",
                    "type": "function",
                    "function": {"name": "look", "arguments": f'{{"at":{at}}}'},
                }
                for at in (1, 2)
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "user", "content": "wait"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
    ],
}


@pytest.mark.parametrize(
    ("upstream", "after"),
    [
        (
            MESSAGES,
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                        {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
                        {"type": "text", "text": "wait"},
                    ],
                }
            ],
        ),
        (
            GEMINI,
            [
                {
                    "role": "user",
                    "parts": [
                        {"functionResponse": {"name": "look", "id": id, "response": response}}
                        for id, response in (("c1", {"output": "one"}), ("c2", {"output": "two"}))
                    ]
                    + [{"text": "wait"}],
                }
            ],
        ),
        (
            RESPONSES,
            [
                {"type": "function_call_output", "output": "one", "call_id": "c1"},
                {"type": "function_call_output", "output": "two", "call_id": "c2"},
                {"type": "message", "role": "user", "content": "wait"},
            ],
        ),
    ],
)
def test_trap_11_results_stand_together_and_before_all_else(
    upstream: DialectName, after: list[Object]
) -> None:
    """What a chat client says between two results waits until both are told."""
    found = weft.convert_request(json.dumps(SCATTERED).encode(), CHAT, upstream)
    said = json.loads(found.body)[CONVERSATION[upstream]]
    assert said[-len(after) :] == after
    moved = [loss.path for loss in found.losses if loss.detail.startswith("moved")]
    assert moved == ["messages[4]", "messages[2]"]


@pytest.mark.parametrize("client", [RESPONSES, MESSAGES, GEMINI])
def test_trap_11_a_turn_of_results_leaves_nothing_empty_behind(client: DialectName) -> None:
    """Where each result is a message, the turn that held them is no message of its own."""
    said = from_stream(message(use("t", 1), reason="tool_use"), MESSAGES, client)
    sent = answered(translated(next_request(client, said, ("t", "look", "x")), client, CHAT), CHAT)
    assert sent[1:] == [{"role": "tool", "content": "x", "tool_call_id": "t"}]


SHOWN: dict[str, Object] = {
    RESPONSES: {
        "model": "m-1",
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [
                    {"type": "input_text", "text": "see"},
                    {
                        "type": "input_image",
                        "image_url": f"data:image/png;base64,{IMAGE}",
                        "detail": "auto",
                    },
                ],
            },
        ],
    },
    MESSAGES: {
        "model": "m-1",
        "max_tokens": 99,
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [
                            {"type": "text", "text": "see"},
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/png",
                                    "data": IMAGE,
                                },
                            },
                        ],
                    }
                ],
            },
        ],
    },
    GEMINI: {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {
                "role": "model",
                "parts": [{"functionCall": {"id": "c1", "name": "look", "args": {}}}],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "c1",
                            "name": "look",
                            "response": {"output": "see"},
                            "parts": [{"inlineData": {"mimeType": "image/png", "data": IMAGE}}],
                        }
                    }
                ],
            },
        ]
    },
}


@pytest.mark.parametrize("client", SHOWN)
@pytest.mark.parametrize("upstream", SHOWN)
def test_trap_12_an_image_in_a_result_is_an_image_on_every_wire(
    client: DialectName, upstream: DialectName
) -> None:
    sent = answered(translated(SHOWN[client], client, upstream), upstream)
    assert sent[-1] == answered(SHOWN[upstream], upstream)[-1]


@pytest.mark.parametrize("client", SHOWN)
def test_trap_12_where_results_are_text_the_image_follows_as_one(client: DialectName) -> None:
    """Chat Completions has only text in results: the user shows the image behind it."""
    result, shown = answered(translated(SHOWN[client], client, CHAT), CHAT)[-2:]
    url = f"data:image/png;base64,{IMAGE}"
    assert IMAGE not in json.dumps(result)
    assert (result["role"], result["tool_call_id"], shown["role"]) == ("tool", "c1", "user")
    assert [part["image_url"]["url"] for part in shown["content"]] == [url]


FAILED: dict[str, Object] = {
    RESPONSES: {
        "type": "function_call_output",
        "output": "no",
        "call_id": "c1",
        "status": "incomplete",
    },
    MESSAGES: {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}
        ],
    },
    GEMINI: {
        "role": "user",
        "parts": [{"functionResponse": {"id": "c1", "name": "look", "response": {"error": "no"}}}],
    },
}


def failed_request(client: str) -> Object:
    asked = SHOWN[client]
    key = CONVERSATION[client]
    return {**asked, key: [*asked[key][:-1], FAILED[client]]}


@pytest.mark.parametrize("client", FAILED)
@pytest.mark.parametrize("upstream", ASKED)
def test_trap_13_a_failed_result_stays_failed_without_a_key_that_is_not_there(
    client: DialectName, upstream: DialectName
) -> None:
    words = {"role": "tool", "content": "Error: no", "tool_call_id": "c1"}
    told = {**FAILED, CHAT: words}
    if client != upstream == RESPONSES:
        told[RESPONSES] = {**FAILED[RESPONSES], "output": "Error: no"}
    assert told[upstream] in answered(
        translated(failed_request(client), client, upstream), upstream
    )


# 14 to 18: how a stream ends


COUNTED = {
    CHAT: chat(
        {"content": "a"},
        usage={
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        },
    ),
    RESPONSES: responses(
        SAID,
        usage={
            "input_tokens": 100,
            "output_tokens": 20,
            "total_tokens": 120,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        },
    ),
    MESSAGES: message(
        TEXT,
        usage={
            "input_tokens": 30,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 10,
            "output_tokens": 20,
        },
    ),
    GEMINI: contents(
        [{"text": "a"}],
        usageMetadata={
            "promptTokenCount": 90,
            "toolUsePromptTokenCount": 10,
            "cachedContentTokenCount": 60,
            "candidatesTokenCount": 15,
            "thoughtsTokenCount": 5,
            "totalTokenCount": 120,
        },
    ),
}
"""100 tokens in, 60 of them read from a cache (and 10 written to it, where one can say so)."""


def usage_in(events: list[Object], dialect: str) -> tuple[int, int, int, int]:
    """All input as the wire counts it, what of it was cached and written, and the output."""
    match dialect:
        case "openai-chat":
            (told,) = [event["usage"] for event in events if event.get("usage")]
            cached = told["prompt_tokens_details"]
            total, out = told["prompt_tokens"], told["completion_tokens"]
            return total, cached["cached_tokens"], cached.get("cache_write_tokens", 0), out
        case "openai-responses":
            told = events[-1]["response"]["usage"]
            cached = told["input_tokens_details"]
            total, out = told["input_tokens"], told["output_tokens"]
            return total, cached["cached_tokens"], cached.get("cache_write_tokens", 0), out
        case "anthropic-messages":
            (told,) = [event["usage"] for event in events if event["type"] == "message_delta"]
            read, written = (
                told.get(f"cache_{how}_input_tokens", 0) for how in ("read", "creation")
            )
            return told["input_tokens"] + read + written, read, written, told["output_tokens"]
    told = events[-1]["usageMetadata"]
    out = told["candidatesTokenCount"] + told.get("thoughtsTokenCount", 0)
    assert told["promptTokenCount"] + out == told["totalTokenCount"]
    return told["promptTokenCount"], told["cachedContentTokenCount"], 0, out


@pytest.mark.parametrize("source", ASKED)
@pytest.mark.parametrize("target", ASKED)
def test_trap_14_cached_tokens_are_counted_once(source: DialectName, target: DialectName) -> None:
    """Input has cached tokens in it on three wires, and beside it on one."""
    asked = weft.Context(request=Request("m-1", include_usage=True))
    events = events_of(weft.convert(COUNTED[source], source, target, context=asked))
    written = 0 if GEMINI in (source, target) else 10
    assert usage_in(events, target) == (100, 60, written, 20)


@pytest.mark.parametrize("source", ASKED)
def test_trap_14_a_body_counts_as_its_stream_does(source: DialectName) -> None:
    (answer,) = weft.decode_all(COUNTED[source], source)
    write = DIALECTS[MESSAGES].body
    assert write is not None
    told = json.loads(write(answer.response, weft.Context(), Findings()))["usage"]
    uncached = 40 if source == GEMINI else 30
    assert (told["input_tokens"], told["cache_read_input_tokens"]) == (uncached, 60)


FILTERED = {
    CHAT: chat({"content": "a"}, reason="content_filter"),
    RESPONSES: responses(
        SAID, status="incomplete", incomplete_details={"reason": "content_filter"}
    ),
    MESSAGES: message(TEXT, reason="refusal"),
    GEMINI: contents([{"text": "a"}], reason="SAFETY"),
}


def end_of(raw: bytes, dialect: str) -> str | None:
    """The word in which a stream of a dialect says why it ended."""
    events = events_of(raw)
    match dialect:
        case "openai-chat":
            choices = [choice for event in events for choice in event.get("choices", ())]
            words = [one["finish_reason"] for one in choices if one["finish_reason"]]
        case "openai-responses":
            details = events[-1]["response"]["incomplete_details"] or {}
            words = [f"{events[-1]['type']} {details.get('reason')}"]
        case "anthropic-messages":
            deltas = [event["delta"] for event in events if event["type"] == "message_delta"]
            words = [delta["stop_reason"] for delta in deltas]
        case "gemini":
            answers = [one for event in events for one in event.get("candidates", ())]
            words = [one["finishReason"] for one in answers if "finishReason" in one]
        case _:
            words = [event["finishReason"] for event in events if event["type"] == "finish"]
    assert len(words) <= 1
    return words[0] if words else None


FILTERED_ENDS = {
    CHAT: "content_filter",
    RESPONSES: "response.incomplete content_filter",
    MESSAGES: "refusal",
    GEMINI: "SAFETY",
    UI: "content-filter",
}
PAUSED_ENDS = {
    CHAT: "length",  # more would have come; `stop` would say that all is told
    RESPONSES: "response.incomplete None",
    MESSAGES: "pause_turn",
    GEMINI: "OTHER",
}


@pytest.mark.parametrize("source", FILTERED)
@pytest.mark.parametrize("target", FILTERED_ENDS)
def test_trap_15_a_filtered_answer_never_ends_as_a_whole_one(
    source: DialectName, target: DialectName
) -> None:
    assert end_of(weft.convert(FILTERED[source], source, target), target) == FILTERED_ENDS[target]


@pytest.mark.parametrize("target", PAUSED_ENDS)
def test_trap_15_a_paused_turn_does_not_end_with_stop(target: DialectName) -> None:
    raw = weft.convert(message(TEXT, reason="pause_turn"), MESSAGES, target)
    assert end_of(raw, target) == PAUSED_ENDS[target]


@pytest.mark.parametrize(
    ("target", "end"),
    [
        (CHAT, "tool_calls"),
        (RESPONSES, "response.completed None"),
        (MESSAGES, "tool_use"),
        (GEMINI, "STOP"),
        (UI, "tool-calls"),
    ],
)
def test_trap_16_stop_after_a_call_in_an_earlier_frame_means_tool_calls(
    target: DialectName, end: str
) -> None:
    """The frame with the reason has only text, or nothing: the agent must go on all the same."""
    call = {"functionCall": {"id": "g1", "name": "look", "args": {"at": 1}}}
    for last in ({"text": ""}, {"text": "So."}):
        raw = contents([call], [last])
        assert weft.decode_all(raw, GEMINI)[0].response.finish_reason == "tool-calls"
        assert end_of(weft.convert(raw, GEMINI, target), target) == end


BEGUN = {
    CHAT: b"\n\n".join(chat({"content": "a"}).split(b"\n\n")[:1]) + b"\n\n",
    RESPONSES: sse(
        {"type": "response.created", "response": {"id": "r", "model": "m-1", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**SAID, "content": [], "status": "in_progress"},
        },
        {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "a",
        },
    ),
    MESSAGES: b"\n\n".join(message(TEXT).split(b"\n\n")[:3]) + b"\n\n",
    GEMINI: contents([{"text": "a"}], reason=None),
}
"""Each stops after its only text."""
BROKEN: dict[str, Object] = {
    CHAT: {"error": {"message": "busy", "type": "server_error", "param": None, "code": None}},
    RESPONSES: {"type": "error", "code": "server_error", "message": "busy", "param": None},
    MESSAGES: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
    GEMINI: {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}},
}
HALF = b'data: {"half'
FAILURES: dict[str, Callable[[str], bytes]] = {
    "cut between frames": lambda source: BEGUN[source],
    "cut inside a frame": lambda source: BEGUN[source] + HALF,
    "an error": lambda source: BEGUN[source] + sse(BROKEN[source]),
    "an error glued to half a frame": lambda source: BEGUN[source] + HALF + sse(BROKEN[source]),
}


def says_failed(events: list[Object], dialect: str) -> bool:
    """Whether a stream ends with what its wire has for a failure, and with nothing else."""
    last = events[-1]
    match dialect:
        case "openai-chat" | "gemini":
            return "error" in last
        case "openai-responses":
            kinds = (events[-2]["type"], last["type"], last["response"]["status"])
            return kinds == ("error", "response.failed", "failed")
        case "anthropic-messages":
            return bool(last["type"] == "error")
    told = [event["type"] for event in events if event["type"] in ("error", "finish")]
    return told == ["error", "finish"] and last["finishReason"] == "error"


@each_row("source", BEGUN)
@each_row("target", WRITTEN)
@each_row("failure", FAILURES)
def test_trap_17_a_broken_stream_ends_as_the_targets_wire_says_failed(
    source: DialectName, target: DialectName, failure: str
) -> None:
    """No clean end, no half frame handed on, and the text that came is there."""
    raw = weft.convert(FAILURES[failure](source), source, target)
    events = events_of(raw)
    assert says_failed(events, target)
    clean = {CHAT: None, RESPONSES: "response.failed None", MESSAGES: None, GEMINI: None}
    assert end_of(raw, target) == clean.get(target, "error")
    (answer,) = weft.decode_all(raw, target)
    assert (answer.response.text, answer.response.finish_reason) == ("a", "error")


@pytest.mark.parametrize("stops", [0, 1, 2])
@pytest.mark.parametrize("target", WRITTEN)
def test_trap_18_however_often_the_stop_comes_the_message_ends_once(
    stops: int, target: DialectName
) -> None:
    """A missing or repeated `message_stop` changes nothing of what is written."""
    parts = list(weft.decode([message(TEXT, stops=stops)], MESSAGES))
    raw = b"".join(weft.encode(parts, target))
    ends = {
        CHAT: "stop",
        RESPONSES: "response.completed None",
        MESSAGES: "end_turn",
        GEMINI: "STOP",
        UI: "stop",
    }
    assert end_of(raw, target) == ends[target]
    if target == MESSAGES:
        kinds = [event["type"] for event in events_of(raw)]
        assert kinds.index("message_stop") == len(kinds) - 1
    if target in (CHAT, RESPONSES, UI):
        assert raw.index(b"data: [DONE]\n\n") == len(raw) - len(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("source", "raw"),
    [
        (CHAT, chat({"content": "a"})),
        (RESPONSES, responses(SAID)),
        (MESSAGES, message(TEXT)),
    ],
)
@pytest.mark.parametrize("target", WRITTEN)
def test_trap_18_nobody_waits_for_the_connection_to_close(
    source: DialectName, raw: bytes, target: DialectName
) -> None:
    """The terminal event of the upstream is enough: all is written before the end of the input."""
    decoder = weft.Decoder(source)
    encoder = weft.Encoder(target, fold=decoder.fold)
    written = encoder.feed(decoder.feed(raw))
    assert end_of(b"".join(written), target) is not None
    assert encoder.feed(decoder.finish()) + encoder.finish() == []


# 19 and 20: what is asked


LOOK: Object = {
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    },
}
TOOLS = [
    {"type": "function", "function": {**LOOK, "strict": True}},
    {"type": "function", "function": {**LOOK, "name": "go"}},
]
ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {
        "mode": "required",
        "tools": [{"type": "function", "function": {"name": "look"}}],
    },
}


def tools_in(body: Object, dialect: str) -> list[tuple[str, bool]]:
    """The name of each tool of a request, and whether it is strict."""
    match dialect:
        case "gemini":
            declared = body["tools"][0]["functionDeclarations"]
        case "openai-chat":
            declared = [tool["function"] for tool in body["tools"]]
        case _:
            declared = body["tools"]
    return [(tool["name"], bool(tool.get("strict"))) for tool in declared]


@pytest.mark.parametrize(
    ("asked", "in_messages", "in_gemini", "in_responses"),
    [
        ({"tool_choice": "none"}, {"type": "none"}, {"mode": "NONE"}, {"tool_choice": "none"}),
        (
            {"tool_choice": "required"},
            {"type": "any"},
            {"mode": "ANY"},
            {"tool_choice": "required"},
        ),
        (
            {"parallel_tool_calls": False},
            {"type": "auto", "disable_parallel_tool_use": True},
            {"mode": "VALIDATED"},
            {"parallel_tool_calls": False},
        ),
        (
            {"tool_choice": ALLOWED},
            {"type": "any"},
            {"mode": "ANY", "allowedFunctionNames": ["look"]},
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "look"}],
                }
            },
        ),
    ],
    ids=["none", "required", "one at a time", "allowed"],
)
def test_trap_19_a_choice_of_tools_means_the_same_on_every_wire(
    asked: Object, in_messages: Object, in_gemini: Object, in_responses: Object
) -> None:
    """None is not auto, one at a time forces no call, the allowed stay so, and strict is strict."""
    body: Object = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}
    body |= {"tools": TOOLS, **asked}
    both = [("look", True), ("go", False)]
    messages = translated(body, CHAT, MESSAGES)
    assert messages["tool_choice"] == in_messages
    declared = both[:1] if asked.get("tool_choice") == ALLOWED else both  # the wire has no list
    assert tools_in(messages, MESSAGES) == declared
    gemini = translated(body, CHAT, GEMINI)
    assert gemini["toolConfig"] == {"functionCallingConfig": in_gemini}
    assert [name for name, _ in tools_in(gemini, GEMINI)] == ["look", "go"]
    there = translated(body, CHAT, RESPONSES)
    assert {key: there[key] for key in ("tool_choice", "parallel_tool_calls") if key in there} == (
        in_responses
    )
    assert tools_in(there, RESPONSES) == both


@pytest.mark.parametrize("upstream", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
    ],
    ids=["none", "any", "one at a time"],
)
def test_trap_19_a_choice_of_tools_comes_back_from_messages(
    choice: Object, told: Object, upstream: DialectName
) -> None:
    asked: Object = {"model": "m-1", "max_tokens": 99, "tool_choice": choice}
    asked["messages"] = [{"role": "user", "content": "hi"}]
    asked["tools"] = [{"name": "look", "input_schema": LOOK["parameters"], "strict": True}]
    sent = translated(asked, MESSAGES, upstream)
    assert {key: sent[key] for key in ("tool_choice", "parallel_tool_calls") if key in sent} == told
    assert tools_in(sent, upstream) == [("look", True)]


def plain(client: str, **more: Any) -> Object:
    first: dict[str, Object] = {
        CHAT: {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]},
        RESPONSES: {"model": "m-1", "input": "hi"},
        MESSAGES: {
            "model": "m-1",
            "max_tokens": 99,
            "messages": [{"role": "user", "content": "hi"}],
        },
        GEMINI: {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    }
    return {**first[client], **more}


LATE = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yo"},
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "go"},
]
CACHED = [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}}
LOOSE = [{"name": "f", "input_schema": CLOSED, "strict": True}]


@pytest.mark.parametrize(
    ("client", "asked", "upstream", "path"),
    [
        (MESSAGES, plain(MESSAGES, system=CACHED), CHAT, "system[0].cache"),
        (MESSAGES, plain(MESSAGES, system=CACHED), RESPONSES, "system[0].cache"),
        (MESSAGES, plain(MESSAGES, system=CACHED), GEMINI, "system[0].cache"),
        (MESSAGES, plain(MESSAGES, top_k=3), CHAT, "top_k"),
        (MESSAGES, plain(MESSAGES, top_k=3), RESPONSES, "top_k"),
        (MESSAGES, plain(MESSAGES, tools=LOOSE), CHAT, "tools[0].strict"),
        (MESSAGES, plain(MESSAGES, tools=LOOSE), RESPONSES, "tools[0].strict"),
        (CHAT, plain(CHAT, temperature=0.3), MESSAGES, "temperature"),
        (CHAT, plain(CHAT, logit_bias={"1": 2}), RESPONSES, "logit_bias"),
        (CHAT, plain(CHAT, logit_bias={"1": 2}), MESSAGES, "logit_bias"),
        (CHAT, plain(CHAT, logit_bias={"1": 2}), GEMINI, "logit_bias"),
        (CHAT, plain(CHAT, logprobs=True), MESSAGES, "logprobs"),
        (CHAT, plain(CHAT, nobody_knows=1), RESPONSES, "nobody_knows"),
        (CHAT, plain(CHAT, nobody_knows=1), MESSAGES, "nobody_knows"),
        (CHAT, plain(CHAT, nobody_knows=1), GEMINI, "nobody_knows"),
        (CHAT, plain(CHAT, min_p=0.1), MESSAGES, "min_p"),
        (CHAT, plain(CHAT, response_format={"type": "json_object"}), MESSAGES, "response_format"),
        (RESPONSES, plain(RESPONSES, truncation="auto"), CHAT, "truncation"),
        (RESPONSES, plain(RESPONSES, truncation="auto"), MESSAGES, "truncation"),
        (RESPONSES, plain(RESPONSES, truncation="auto"), GEMINI, "truncation"),
        (MESSAGES, plain(MESSAGES, betas=["b-1"]), CHAT, "betas"),
        (MESSAGES, plain(MESSAGES, betas=["b-1"]), RESPONSES, "betas"),
        (MESSAGES, plain(MESSAGES, betas=["b-1"]), GEMINI, "betas"),
        (CHAT, plain(CHAT, seed=7), MESSAGES, "seed"),
        (CHAT, plain(CHAT, seed=7), RESPONSES, "seed"),
        (CHAT, plain(CHAT, messages=LATE), GEMINI, "messages[2]"),
        (GEMINI, plain(GEMINI, safetySettings=[{"category": "c"}]), CHAT, "safetySettings"),
        (GEMINI, plain(GEMINI, safetySettings=[{"category": "c"}]), MESSAGES, "safetySettings"),
    ],
)
def test_trap_20_what_is_weakened_is_named_in_the_clients_own_words(
    client: DialectName, asked: Object, upstream: DialectName, path: str
) -> None:
    found = weft.convert_request(json.dumps(asked).encode(), client, upstream)
    assert [loss.path for loss in found.losses if loss.outcome == "warned"] == [path]


@pytest.mark.parametrize(
    ("client", "field", "value", "upstreams"),
    [
        (CHAT, "n", 2, (RESPONSES, MESSAGES, GEMINI)),
        (CHAT, "response_format", {"type": "of_tomorrow"}, (RESPONSES, MESSAGES, GEMINI)),
        (CHAT, "tool_choice", "of_tomorrow", (RESPONSES, MESSAGES, GEMINI)),
        (CHAT, "modalities", ["text", "audio"], (RESPONSES, MESSAGES, GEMINI)),
        (RESPONSES, "previous_response_id", "resp_1", (CHAT, MESSAGES, GEMINI)),
        (MESSAGES, "container", "container_1", (CHAT, RESPONSES, GEMINI)),
        (GEMINI, "cachedContent", "cachedContents/1", (CHAT, RESPONSES, MESSAGES)),
    ],
)
def test_trap_20_what_cannot_be_said_is_refused_by_name(
    client: DialectName, field: str, value: object, upstreams: tuple[DialectName, ...]
) -> None:
    raw = json.dumps(plain(client, **{field: value})).encode()
    for upstream in upstreams:
        with pytest.raises(weft.BadRequest) as refused:
            weft.convert_request(raw, client, upstream)
        assert refused.value.path == field
    assert json.loads(weft.convert_request(raw, client, client).body) == json.loads(raw)


@pytest.mark.parametrize(
    ("upstream", "raw", "stops"),
    [
        (RESPONSES, responses({**SAID, "content": [{**SAID["content"][0], "text": "a END b"}]}), 1),
        (CHAT, chat({"content": "a E"}, {"content": "ND b"}), 5),
    ],
)
def test_trap_20_stop_sequences_that_the_upstream_does_not_know_are_still_kept(
    upstream: DialectName, raw: bytes, stops: int
) -> None:
    """The answer is cut where the client said, and says which sequence it was."""
    words = ["END", *(f"never {number}" for number in range(1, stops))]
    asked = json.dumps(plain(MESSAGES, stop_sequences=words)).encode()
    sent = weft.convert_request(asked, MESSAGES, upstream)
    decoder = weft.Decoder(upstream, stages=sent.stages)
    events = events_of(b"".join(weft.encode(decoder.feed(raw) + decoder.finish(), MESSAGES)))
    assert KEPT[MESSAGES](events) == [{"type": "text", "text": "a "}]
    (told,) = [event["delta"] for event in events if event["type"] == "message_delta"]
    assert told == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


@pytest.mark.parametrize(
    ("upstream", "raw"),
    [
        (
            MESSAGES,
            message(
                {"type": "tool_use", "id": "t", "name": "edit", "input": {"input": "a\nb"}},
                reason="tool_use",
            ),
        ),
        (
            GEMINI,
            contents([{"functionCall": {"id": "t", "name": "edit", "args": {"input": "a\nb"}}}]),
        ),
    ],
)
def test_trap_20_a_tool_for_free_text_is_called_with_free_text(
    upstream: DialectName, raw: bytes
) -> None:
    """Where tools take objects only it is declared as one, and the client never sees that."""
    asked = plain(RESPONSES, tools=[{"type": "custom", "name": "edit"}])
    sent = weft.convert_request(json.dumps(asked).encode(), RESPONSES, upstream)
    decoder = weft.Decoder(upstream, stages=sent.stages)
    events = events_of(b"".join(weft.encode(decoder.feed(raw) + decoder.finish(), RESPONSES)))
    (item,) = KEPT[RESPONSES](events)
    told = [item[key] for key in ("type", "call_id", "name", "input")]
    assert told == ["custom_tool_call", "t", "edit", "a\nb"]


@pytest.mark.parametrize("late_system", [True, False])
def test_trap_20_a_late_instruction_stays_behind_what_was_said_before_it(late_system: bool) -> None:
    """It is never pulled to the top, where it would change all that follows."""
    quirks = MessagesQuirks(late_system=late_system)
    sent = translated(plain(CHAT, messages=LATE), CHAT, MESSAGES, quirks=quirks)
    assert "system" not in sent
    assert sent["messages"][:2] == LATE[:2]
    assert "be brief" in json.dumps(sent["messages"][2])


@pytest.mark.parametrize("client", [CHAT, GEMINI])
def test_trap_20_empty_texts_are_left_out_where_they_are_refused(client: DialectName) -> None:
    """An empty text block fails the whole request; a turn of nothing else goes with it."""
    empty: dict[str, Object] = {
        CHAT: plain(
            CHAT,
            messages=[
                {
                    "role": "user",
                    "content": [{"type": "text", "text": text} for text in ("", "hi")],
                },
                {"role": "assistant", "content": ""},
                {"role": "user", "content": "go"},
            ],
        ),
        GEMINI: plain(
            GEMINI,
            contents=[
                {"role": "user", "parts": [{"text": "hi"}, {"text": ""}]},
                {"role": "model", "parts": [{"text": ""}]},
                {"role": "user", "parts": [{"text": "go"}]},
            ],
        ),
    }
    assert translated(empty[client], client, MESSAGES)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": text} for text in ("hi", "go")]}
    ]


# All of them


def test_every_trap_has_a_test() -> None:
    names = [name for name in vars(sys.modules[__name__]) if name.startswith("test_trap_")]
    numbers = {int(re.match(r"test_trap_(\d\d)_", name)[1]) for name in names}  # type: ignore[index]
    assert numbers == set(range(1, 21))
