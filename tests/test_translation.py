"""A request in another dialect, and its answer on the way back: end to end, without a network."""

import json
from typing import Final

import pytest

import weft
from weft.codec import Translated
from weft.dialects import DialectName
from weft.dialects.requests.codec import Loss
from weft.errors import BadRequest, Refused, UnknownDialect
from weft.parts import (
    Finish,
    ParamsFormat,
    Part,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)

Object = dict[str, object]

CLIENT: Final = "openai-responses"
OTHERS = ["openai-chat", "anthropic-messages", "gemini"]
PATCH = '*** Begin\n"quoted" \\ é\n*** End'

ASKED: Object = {
    "model": "m",
    "input": [
        {"role": "user", "content": "Patch it."},
        {"type": "custom_tool_call", "call_id": "c0", "name": "patch", "input": "old"},
        {"type": "custom_tool_call_output", "call_id": "c0", "output": "done"},
        {"role": "user", "content": "Again."},
    ],
    "tools": [
        {"type": "custom", "name": "patch", "description": "Edits."},
        {"type": "function", "name": "read me", "parameters": {"type": "object"}, "strict": False},
        {
            "type": "namespace",
            "name": "disk",
            "description": "",
            "tools": [{"type": "function", "name": "free", "parameters": None, "strict": False}],
        },
    ],
}


def translated(body: Object, target: DialectName, source: DialectName = CLIENT) -> Translated:
    return weft.convert_request(json.dumps(body).encode(), source, target)


def names(request: Translated) -> dict[str, str]:
    """How the target calls the tools: the original, and what stands in the body."""
    originals = {"patch": "patch", "read me": "read me", "disk.free": "disk.free"}
    told = originals | {name: told for told, name in request.rendered.names.items()}
    for name in told.values():
        assert json.dumps(name) in request.body.decode()
    return told


def called(id: str, name: str, params: str, *, free: bool) -> list[Part]:
    kind: str = "custom" if free else "function"
    format: ParamsFormat = "text" if free else "json"
    half = len(params) // 2
    return [
        ToolParamsStart(id, name, kind, format=format),
        ToolParamsDelta(id, params[:half]),
        ToolParamsDelta(id, params[half:]),
        ToolParamsEnd(id),
        ToolCall(id, name, params, kind, format=format),
    ]


def answered(
    request: Translated, parts: list[Part], target: DialectName, client: DialectName
) -> bytes:
    """What the client reads when the target, asked this, answers with these parts."""
    decoder = weft.Decoder(target, stages=request.stages)
    encoder = weft.Encoder(client, fold=decoder.fold)
    out: list[bytes] = []
    for event in weft.encode(parts, target):
        for place in range(0, len(event), 7):
            out += encoder.feed(decoder.feed(event[place : place + 7]))
    return b"".join([*out, *encoder.feed(decoder.finish()), *encoder.finish()])


def items(stream: bytes) -> list[Object]:
    """The items of the response that a Responses stream ends with."""
    lines = [line[6:] for line in stream.decode().splitlines() if line.startswith("data: {")]
    last = json.loads(lines[-1])
    assert last["type"] == "response.completed"
    found: list[Object] = last["response"]["output"]
    return found


@pytest.mark.parametrize("target", OTHERS)
def test_tools_answer_by_the_names_and_in_the_form_that_the_client_gave_them(
    target: DialectName,
) -> None:
    request = translated(ASKED, target)
    told = names(request)
    assert request.rendered.bridged == frozenset({"patch"})
    stream = answered(
        request,
        [
            ResponseMetadata("r", "m"),
            *called("c1", told["patch"], json.dumps({"input": PATCH}), free=False),
            *called("c2", told["read me"], '{"a": 1.50}', free=False),
            *called("c3", told["disk.free"], "{}", free=False),
            Finish("tool-calls"),
        ],
        target,
        CLIENT,
    )
    kept = ("type", "name", "namespace", "input", "arguments", "call_id")
    found = [{key: one[key] for key in kept if one.get(key)} for one in items(stream)]
    assert [{key: value for key, value in one.items() if key != "call_id"} for one in found] == [
        {"type": "custom_tool_call", "name": "patch", "input": PATCH},
        {"type": "function_call", "name": "read me", "arguments": '{"a": 1.50}'},
        {"type": "function_call", "name": "free", "namespace": "disk", "arguments": "{}"},
    ]
    for name in set(told.values()) - {"patch"}:
        assert name not in stream.decode()


STOPS = ["\n\n", "B", "C", "D", "E", "END"]


@pytest.mark.parametrize(
    ("target", "cut"),
    [("openai-responses", STOPS), ("anthropic-messages", ["\n\n"]), ("gemini", STOPS)],
)
def test_an_answer_ends_where_the_client_said_also_if_the_target_cannot(
    target: DialectName, cut: list[str]
) -> None:
    body: Object = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stop": STOPS}
    request = translated(body, target, "openai-chat")
    assert list(request.rendered.stop) == cut
    parts: list[Part] = [
        ResponseMetadata("r", "m"),
        TextStart("t"),
        TextDelta("t", "One.\n"),
        TextDelta("t", "\nTwo."),
        TextEnd("t"),
        Finish("stop"),
    ]
    stream = answered(request, parts, target, "openai-chat")
    [response] = weft.decode_all(stream, "openai-chat")
    assert response.response.text == "One."
    assert response.response.finish_reason == "stop"


def test_what_the_target_takes_is_left_to_it() -> None:
    body: Object = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stop": ["a"]}
    cuts: dict[DialectName, tuple[str, ...]] = {
        "anthropic-messages": (),
        "gemini": (),
        "openai-responses": ("a",),
    }
    for target, cut in cuts.items():
        assert translated(body, target, "openai-chat").rendered.stop == cut
    many: Object = {"contents": [{"parts": [{"text": "Hi"}]}]}
    many["generationConfig"] = {"stopSequences": list("abcde")}
    assert translated(many, "openai-chat", "gemini").rendered.stop == tuple("abcde")


@pytest.mark.parametrize("target", OTHERS)
def test_losses_are_named_by_the_body_that_was_given(target: DialectName) -> None:
    losses = translated({**ASKED, "user": None}, target).losses
    paths = {loss.path: loss.outcome for loss in losses}
    assert paths["tools[1].name"] == "adapted"
    assert paths["tools[2].tools[0].name"] == "adapted"
    assert not [path for path in paths if path.startswith("messages")]


def test_every_loss_of_a_small_request_is_told() -> None:
    body: Object = {
        "contents": [{"parts": [{"text": "Hi"}]}],
        "generationConfig": {"topK": 3, "thinkingConfig": {"thinkingBudget": 2048}},
    }
    assert translated(body, "openai-chat", "gemini").losses == (
        Loss("generationConfig.topK", "warned", "dropped: openai-chat has no equivalent"),
        Loss(
            "generationConfig.thinkingConfig.thinkingBudget",
            "adapted",
            "2048 tokens are effort low",
        ),
    )


@pytest.mark.parametrize("target", ["openai-responses", "anthropic-messages", "gemini"])
def test_of_two_limits_the_one_that_does_not_count_is_a_loss(target: DialectName) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    body: Object = {"model": "m", "messages": messages, "max_tokens": 50}
    assert translated({**body, "max_completion_tokens": 50}, target, "openai-chat").losses == ()
    assert translated({**body, "max_completion_tokens": 90}, target, "openai-chat").losses == (
        Loss("max_tokens", "warned", "dropped: max_completion_tokens counts"),
    )


@pytest.mark.parametrize(
    ("source", "target", "body", "path"),
    [
        (
            "openai-responses",
            "anthropic-messages",
            {"model": "m", "input": "Hi", "text": {"format": {"type": "of_tomorrow"}}},
            "text.format",
        ),
        (
            "openai-chat",
            "openai-responses",
            {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 2},
            "n",
        ),
        (
            "openai-chat",
            "gemini",
            {
                "model": "m",
                "messages": [{"role": "user", "content": "Hi"}],
                "tools": [{"type": "function", "function": {"name": "f"}}],
                "tool_choice": "required",
                "function_call": "none",
            },
            "function_call",
        ),
        (
            "openai-responses",
            "anthropic-messages",
            {
                "model": "m",
                "input": "Hi",
                "tools": [
                    {
                        "type": "mcp",
                        "server_label": "s",
                        "server_url": "https://s.example",
                        "require_approval": "never",
                    }
                ],
                "tool_choice": {"type": "mcp", "server_label": "s", "name": "t"},
            },
            "tool_choice",
        ),
        (
            "anthropic-messages",
            "openai-chat",
            {
                "model": "m",
                "max_tokens": 9,
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "I say:"},
                ],
            },
            "messages[1]",
        ),
        (
            "gemini",
            "anthropic-messages",
            {
                "contents": [{"parts": [{"text": "Hi"}]}],
                "systemInstruction": {"parts": [{"text": "Be."}]},
                "generationConfig": {"responseModalities": ["IMAGE"]},
            },
            "generationConfig.responseModalities",
        ),
    ],
    ids=["shape", "choices", "two-choices", "tool-of-server", "prefill", "modality"],
)
def test_what_cannot_be_asked_is_named_in_the_clients_own_words(
    source: DialectName, target: DialectName, body: Object, path: str
) -> None:
    with pytest.raises(Refused) as refused:
        translated(body, target, source)
    assert refused.value.path == path


def test_a_body_that_cannot_be_read_is_not_refused_but_bad() -> None:
    said = [{"role": "user", "content": [{"type": "input_file"}]}]
    body: Object = {"model": "m", "input": said}
    with pytest.raises(BadRequest) as bad:
        translated(body, "gemini", "openai-responses")
    assert (bad.type, bad.value.path) == (BadRequest, "input[0].content[0]")


@pytest.mark.parametrize(("source", "target"), [(CLIENT, "ai-sdk"), ("ai-sdk", CLIENT)])
def test_a_dialect_of_streams_alone_has_no_requests(
    source: DialectName, target: DialectName
) -> None:
    with pytest.raises(UnknownDialect, match="ai-sdk has streams only"):
        translated(ASKED, target, source)


ASKING: list[Object] = [{}, {"require_approval": None}, {"require_approval": "always"}]


@pytest.mark.parametrize("approval", ASKING)
def test_a_remote_tool_that_must_ask_never_runs_unasked(approval: Object) -> None:
    server = {"type": "mcp", "server_label": "s", "server_url": "https://s.example", **approval}
    body: Object = {"model": "m", "input": "hi", "tools": [server]}
    for target in ("anthropic-messages", "gemini"):
        with pytest.raises(Refused) as refused:
            translated(body, target)
        assert refused.value.path == "tools[0].require_approval"
    with pytest.raises(Refused) as refused:
        translated(body, "openai-chat")
    assert refused.value.path == "tools[0]"


def test_a_remote_tool_that_need_not_ask_runs_without_a_loss() -> None:
    server = {"type": "mcp", "server_label": "s", "server_url": "https://s.example"}
    tools = [{**server, "require_approval": "never"}]
    body: Object = {"model": "m", "input": "hi", "tools": tools, "max_output_tokens": 9}
    for target in ("anthropic-messages", "gemini"):
        assert translated(body, target).losses == ()
