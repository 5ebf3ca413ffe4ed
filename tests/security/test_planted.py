"""No text of a stream gets into the log, wherever it stands: findings quote it, and quotations are
masked. Each stream is sent again and again, each time with the planted text in another place.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from tests.faults.test_cuts import STREAMS, TELLS_WHY
from tests.faults.upstream import Step, Upstream, answer, stream
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEECHES,
    Object,
    event,
    typed,
)
from tests.faults.world import World, places, until, world
from weft.dialects.envelope import Envelope, ReasoningState, wrap

WORD = "planted"
PLANTED = f'a {WORD} prompt, it\'s "secret"'
Planted = Iterator[tuple[str, object]]
"""Where the text stands, and the value with it there."""
Scripts = Iterable[tuple[str, list[Step]]]
"""What is wrong with it, and what the upstream says."""


@pytest.fixture(scope="module")
def logging(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway that logs all it ever logs."""
    settings = '[server]\nlog = "debug"\n' + places(behind.url)
    with world(settings, tmp_path_factory.mktemp("planted"), behind) as made:
        yield made


# Where the text is planted


def in_strings(value: object, path: str = "") -> Planted:
    """Each string in turn."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ((at, {**value, key: new}) for at, new in in_strings(inner, f"{path}.{key}"))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for at, new in in_strings(inner, f"{path}[{index}]"):
                yield at, [*value[:index], new, *value[index + 1 :]]
    elif isinstance(value, str):
        yield path, PLANTED


def everywhere(value: object, path: str = "") -> Planted:
    """In place of each value, as a string and inside an object; as a key; and as one item more."""
    if isinstance(value, dict):
        yield f"{path}.+", {**value, PLANTED: PLANTED}
        for key, inner in value.items():
            yield from ((at, {**value, key: new}) for at, new in everywhere(inner, f"{path}.{key}"))
    elif isinstance(value, list):
        yield f"{path}[+]", [*value, {"type": PLANTED, PLANTED: PLANTED}]
        for index, inner in enumerate(value):
            for at, new in everywhere(inner, f"{path}[{index}]"):
                yield at, [*value[:index], new, *value[index + 1 :]]
    yield path, PLANTED
    yield f"{path}={{}}", {"type": PLANTED}


def frame_of(value: object, name: str) -> bytes:
    line = b"data: " + json.dumps(value).encode() + b"\n\n"
    return f"event: {name}\n".encode() + line if name else line


def spoiled(frames: tuple[bytes, ...], *, thorough: bool) -> Scripts:
    """The stream with the text planted in one place of one frame."""
    for number, frame in enumerate(frames):
        head, _, data = frame.partition(b"data: ")
        name = head.removeprefix(b"event: ").strip().decode()
        if data.startswith(b"["):  # [DONE]
            continue
        value = json.loads(data)
        places = [(at, frame_of(new, name)) for at, new in in_strings(value)]
        if thorough:
            places = [(at, frame_of(new, name)) for at, new in everywhere(value)]
        if name:
            places.append(("event:", frame_of(value, PLANTED)))
        for at, new in places:
            where = f"frame {number} {at}"
            yield where, [*stream(*frames[:number], new, *frames[number + 1 :])]


# What one planted string does not reach


def _choice(delta: Object, **more: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]})


def _entry(index: int, id: str | None, name: str | None, arguments: str) -> bytes:
    function = {"name": name, "arguments": arguments}
    return _choice({"tool_calls": [{"index": index, "id": id, "function": function}]})


def _message_delta(index: int, type: str) -> bytes:
    delta = {"type": type, "text": "x", "thinking": "x"}
    return typed({"type": "content_block_delta", "index": index, "delta": delta})


def _block(index: int, **block: object) -> bytes:
    return typed({"type": "content_block_start", "index": index, "content_block": block})


def _partial(path: str, **more: object) -> bytes:
    call = {"id": "c7", "name": "f", "partialArgs": [{"jsonPath": path, **more}],
            "willContinue": True}  # fmt: skip
    return event({"candidates": [{"content": {"parts": [{"functionCall": call}]}, "index": 0}]})


_PROOF = wrap(Envelope(PLANTED, None, ReasoningState("proof")))
_SIGNED: Object = {"content": "x", "extra_content": {"google": {"thought_signature": _PROOF}}}

ODD: dict[str, tuple[str, tuple[bytes, ...]]] = {
    "an id that comes again": (
        CHAT, (_entry(0, PLANTED, "f", "{"), _entry(0, PLANTED, None, "}"))),
    "ids that change": (
        CHAT, (_entry(0, PLANTED, "f", "{"), _entry(0, f"{PLANTED} 2", f"g {PLANTED}", "}"))),
    "a name alone": (CHAT, (_entry(0, None, PLANTED, "{"), _entry(0, None, PLANTED, ""))),
    "the origin of a signature": (CHAT, (_choice(_SIGNED),)),
    "an unknown event": (RESPONSES, (event({"type": f"response.{PLANTED}"}),)),
    "an event out of order": (
        RESPONSES, (event({"type": f"response.{PLANTED}", "sequence_number": 0}),)),
    "a second response": (
        RESPONSES, (typed({"type": "response.created", "response": {"id": PLANTED}}),)),
    "a second message": (
        MESSAGES, (typed({"type": "message_start", "message": {"id": PLANTED}}),)),
    "a delta of no block": (MESSAGES, (_message_delta(7, PLANTED),)),
    "a delta of an ended block": (MESSAGES, (_message_delta(0, PLANTED),)),
    "a delta that does not fit": (
        MESSAGES, (_block(7, type=PLANTED), _message_delta(7, "text_delta"))),
    "a result without a call": (MESSAGES, (_block(7, type=f"{PLANTED}_tool_result"),)),
    "no value": (GEMINI, (_partial(f"$.{WORD}"),)),
    "a late value": (
        GEMINI, (_partial(f"$.{WORD}.x", numberValue=1), _partial("$.b", numberValue=1),
                 _partial(f"$.{WORD}.y", numberValue=1))),
}  # fmt: skip
"""Frames inside a good stream."""

# In Chat before the call, to which a signature would belong otherwise.
ODD_AT = {**TELLS_WHY, CHAT: 1}


# What is in the log

_ASKED = re.compile(r'"model":"[^"]*/(model-\d+)","stream"')


def ask_all(at: World, upstream: str, scripts: Scripts, *, streamed: bool = True) -> None:
    """Every client asks for each of them; nothing that was planted is in the log."""
    before = len(at.gateway.stderr)
    asked: dict[str, str] = {}
    for where, script in scripts:
        model = at.upstream.script(script)
        asked[model] = where
        for client in DIALECTS:
            at.ask(client, f"{upstream}/{model}", streamed)

    def all_logged() -> bool:
        logged = Counter(_ASKED.findall(at.gateway.stderr, before))
        return all(logged[model] == len(DIALECTS) for model in asked)

    until(all_logged, "all requests in the log", pause=0.02)
    told = [line for line in at.gateway.stderr[before:].split("\n") if WORD in line]
    assert [(asked.get(model), line) for line in told for model in _ASKED.findall(line)] == []
    assert told == []


@pytest.mark.parametrize("upstream", DIALECTS)
def test_no_string_of_a_stream_is_logged(logging: World, upstream: str) -> None:
    """A text in full, with ids and usage; then a text and a call."""
    ask_all(logging, upstream, spoiled(SPEECHES[upstream].frames, thorough=False))
    ask_all(logging, upstream, spoiled(STREAMS[upstream], thorough=False))


@pytest.mark.parametrize("what", ODD)
def test_no_text_of_an_odd_stream_is_logged(logging: World, what: str) -> None:
    upstream, odd = ODD[what]
    said, at = STREAMS[upstream], ODD_AT[upstream]
    ask_all(logging, upstream, [(what, [*stream(*said[:at], *odd, *said[at:])])])


def test_what_our_own_stages_find_is_not_logged(logging: World) -> None:
    """Keys beside the text of a custom tool, and an error after a stop sequence."""
    arguments = json.dumps({"input": "x", f"{WORD} key": 1})
    called = [_entry(0, "c1", "f", arguments), *STREAMS[CHAT][-2:]]
    model = logging.upstream.script([*stream(*called)])
    tools = [{"type": "custom", "name": "f"}]
    logging.ask(RESPONSES, f"{CHAT}/{model}", True, tools=tools)
    (bridged,) = logging.logged_model(model)
    assert "bridge-extra-keys" in json.dumps(bridged)

    said = SPEECHES[RESPONSES]
    error = said.error.replace(b"too busy", WORD.encode())
    model = logging.upstream.script([*stream(b"".join((*said.head, *said.content, error)))])
    logging.ask(CHAT, f"{RESPONSES}/{model}", True, stop=["and"])
    (cut,) = logging.logged_model(model)
    assert "stop-cut" in json.dumps(cut)
    assert WORD not in logging.gateway.stderr


@pytest.mark.long
@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("streams", [STREAMS, {name: one.frames for name, one in SPEECHES.items()}],
                         ids=["with a call", "with text"])  # fmt: skip
def test_nothing_in_any_place_of_a_stream_is_logged(
    logging: World, upstream: str, streams: dict[str, tuple[bytes, ...]]
) -> None:
    ask_all(logging, upstream, spoiled(streams[upstream], thorough=True))


@pytest.mark.long
@pytest.mark.parametrize("upstream", DIALECTS)
def test_nothing_in_any_place_of_a_body_is_logged(logging: World, upstream: str) -> None:
    bodies = everywhere(json.loads(SPEECHES[upstream].body))
    scripts: Scripts = ((at, [answer(json.dumps(body).encode())]) for at, body in bodies)
    ask_all(logging, upstream, scripts, streamed=False)
