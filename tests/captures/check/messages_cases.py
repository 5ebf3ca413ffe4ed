"""Streams for the rules of the Messages wire."""

from tests.captures.check.cases import Case, Event, dumped
from weft.sse import write

PING: Event = {"type": "ping"}
STOP: Event = {"type": "message_stop"}


def stream(*events: Event) -> bytes:
    return b"".join(write(str(event["type"]), dumped(event)) for event in events)


def head(**changes: object) -> Event:
    message: Event = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m-1",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 1},
    }
    message = {key: value for key, value in (message | changes).items() if value != "absent"}
    return {"type": "message_start", "message": message}


def start(index: object, block: Event) -> Event:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: object, **fields: object) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(index: object) -> Event:
    return {"type": "content_block_stop", "index": index}


def end(reason: object = "end_turn", **changes: object) -> Event:
    usage = changes.pop("usage", {"output_tokens": 9})
    told: Event = {"stop_reason": reason, "stop_sequence": None, **changes}
    event: Event = {"type": "message_delta", "delta": told}
    return event if usage is None else event | {"usage": usage}


def text(index: int, *words: str, **block: object) -> list[Event]:
    said = [delta(index, type="text_delta", text=word) for word in words]
    return [start(index, {"type": "text", "text": "", **block}), *said, stop(index)]


def use(index: int, *pieces: str, id: object = "toolu_01", **block: object) -> list[Event]:
    whole: Event = {"type": "tool_use", "id": id, "name": "get_weather", "input": {}, **block}
    said = [delta(index, type="input_json_delta", partial_json=piece) for piece in pieces]
    return [start(index, whole), *said, stop(index)]


def search(index: int) -> list[Event]:
    return use(index, '{"query":"x"}', type="server_tool_use", id="srvtoolu_01", name="web_search")


def result(index: int) -> list[Event]:
    block: Event = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_01",
        "content": [],
    }
    return [start(index, block), stop(index)]


THINKING: Event = {"type": "thinking", "thinking": "", "signature": ""}
THOUGHT = delta(0, type="thinking_delta", thinking="Let me see.")
SIGNED = delta(0, type="signature_delta", signature="c2lnbmVk")
HELLO = text(0, "Hello", " there")
ASKED = use(0, "", '{"city":', '"Oslo"}')
PLAIN = [head(), *HELLO, end(), STOP]
CALL = [head(), *ASKED, end("tool_use"), STOP]
SEARCHED = [head(), *search(0), *result(1), *text(2, "Found it."), end(), STOP]
ERROR: Event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
FAILED = [head(), HELLO[0], HELLO[1], ERROR]
CITED: Event = {
    "type": "char_location",
    "cited_text": "Hello",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 5,
}
CODE: Event = {"type": "code_execution_20250825", "tool_id": "srvtoolu_01"}
ODD_RESULT: Event = {"type": "odd_tool_result", "tool_use_id": "srvtoolu_01", "content": []}


def said(*events: Event, reason: str = "end_turn") -> bytes:
    return stream(head(), *events, end(reason), STOP)


def cited(**citation: object) -> bytes:
    added = delta(0, type="citations_delta", citation=citation)
    return said(*HELLO[:2], added, HELLO[-1])


def thinking(*events: Event) -> bytes:
    return said(start(0, THINKING), *events, stop(0), *text(1, "Hello"))


def called(**block: object) -> bytes:
    return said(*use(0, '{"city":"Oslo"}', **block), reason="tool_use")


CASES = [
    Case("event-line", stream(*PLAIN), stream(*PLAIN).replace(b"event: message_delta\n", b"")),
    Case(
        "event-line-differs",
        stream(*PLAIN),
        stream(*PLAIN).replace(b"event: message_delta\n", b"event: message_stop\n"),
    ),
    Case(
        "event-object",
        stream(*PLAIN, PING),
        stream(head()) + write("ping", b"pong") + stream(*PLAIN[1:]),
    ),
    Case(
        "event-type",
        stream(head(), PING, *PLAIN[1:]),
        stream(head(), {"type": "progress", "percent": 10}, *PLAIN[1:]),
    ),
    Case("done-frame", stream(*PLAIN), stream(*PLAIN) + write("", b"[DONE]")),
    Case("message-start-first", stream(PING, *PLAIN), stream(*PLAIN[1:])),
    Case("message-start-once", stream(*PLAIN), stream(head(), *PLAIN)),
    Case(
        "message-start-shape", stream(*PLAIN), stream(head(usage="absent", role="user"), *PLAIN[1:])
    ),
    Case("message-start-ended", stream(*PLAIN), stream(head(stop_reason="end_turn"), *PLAIN[1:])),
    Case(
        "message-start-filled",
        stream(*CALL),
        stream(
            head(
                content=[
                    {
                        "type": "tool_use",
                        "id": "toolu_01",
                        "name": "roll",
                        "input": {"player": 1},
                        "caller": CODE,
                    }
                ],
                stop_reason="tool_use",
            ),
            STOP,
        ),
    ),
    Case("message-delta", stream(*PLAIN), stream(head(), *HELLO, STOP)),
    Case("message-delta-once", stream(*PLAIN), stream(*PLAIN[:-1], end(), STOP)),
    Case("message-stop", stream(*PLAIN), stream(*PLAIN[:-1])),
    Case(
        "after-message-stop",
        stream(*PLAIN, PING),
        stream(*PLAIN, {"type": "progress", "percent": 100}),
    ),
    Case("after-error", stream(*FAILED), stream(*FAILED, STOP)),
    Case("error-shape", stream(*FAILED), stream(*FAILED[:-1], ERROR | {"error": "Overloaded"})),
    Case(
        "error-type",
        stream(*FAILED),
        stream(*FAILED[:-1], ERROR | {"error": {"type": "server_error", "message": "?"}}),
    ),
    Case("block-index", said(*HELLO, *text(1, "Bye")), said(*HELLO, *text(2, "Bye"))),
    Case("block-not-open", said(*HELLO), said(*HELLO, HELLO[1])),
    Case(
        "block-open",
        stream(*CALL),
        stream(head(), *ASKED[:-1], end("tool_use"), STOP),
    ),
    Case(
        "block-overlap",
        said(*HELLO, *use(1, "{}"), reason="tool_use"),
        said(*HELLO[:-1], *use(1, "{}"), stop(0), reason="tool_use"),
    ),
    Case("block-late", stream(*PLAIN), stream(head(), end(), *HELLO, STOP)),
    Case("block-shape", called(), called(input=None)),
    Case("block-type", said(*HELLO), said(*HELLO, start(1, {"type": "hologram"}), stop(1))),
    Case(
        "delta-fits",
        said(*HELLO),
        said(*HELLO[:2], delta(0, type="thinking_delta", thinking="Hm."), HELLO[-1]),
    ),
    Case(
        "delta-shape",
        said(*HELLO),
        said(*HELLO[:2], delta(0, type="text_delta", text=None), HELLO[-1]),
    ),
    Case(
        "delta-type",
        said(*HELLO),
        said(*HELLO[:2], delta(0, type="hologram_delta", light=1), HELLO[-1]),
    ),
    Case("text-empty", said(*HELLO), said(*text(0), *text(1, "Hello"))),
    Case("citation-shape", cited(**CITED), cited(**CITED | {"type": "hearsay"})),
    Case("signature-late", thinking(THOUGHT, SIGNED), thinking(SIGNED, THOUGHT)),
    Case("signature-missing", thinking(THOUGHT, SIGNED), thinking(THOUGHT)),
    Case("tool-id-missing", called(), called(id="")),
    Case("tool-id-spelling", called(), called(id="bash:0")),
    Case(
        "tool-id-repeated",
        said(*ASKED, *use(1, "{}", id="toolu_02"), reason="tool_use"),
        said(*ASKED, *use(1, "{}"), reason="tool_use"),
    ),
    Case("tool-name-missing", called(), called(name="")),
    Case("tool-input-filled", called(), said(*use(0, input={"city": "Oslo"}), reason="tool_use")),
    Case(
        "tool-input-json",
        stream(*CALL),
        stream(head(), *use(0, "{}", '{"city":"Oslo"}'), end("tool_use"), STOP),
    ),
    Case("result-without-use", stream(*SEARCHED), said(*result(0), *text(1, "Found it."))),
    Case(
        "result-repeated",
        stream(*SEARCHED),
        said(*search(0), *result(1), *result(2), *text(3, "Found it.")),
    ),
    Case("use-without-result", said(*search(0), reason="pause_turn"), said(*search(0))),
    Case("stop-reason", stream(*PLAIN), stream(head(), *HELLO, end(None), STOP)),
    Case("stop-reason-word", said(*HELLO, reason="refusal"), said(*HELLO, reason="finished")),
    Case("stop-reason-calls", stream(*CALL), said(*ASKED)),
    Case(
        "stop-sequence",
        stream(head(), *HELLO, end("stop_sequence", stop_sequence="END"), STOP),
        said(*HELLO, reason="stop_sequence"),
    ),
    Case("usage-missing", stream(*PLAIN), stream(head(), *HELLO, end(usage=None), STOP)),
    Case(
        "usage-shrinks",
        stream(*PLAIN),
        stream(head(usage={"input_tokens": 12, "output_tokens": 20}), *PLAIN[1:]),
    ),
    Case(
        "usage-thinking",
        stream(*PLAIN),
        stream(
            head(),
            *HELLO,
            end(usage={"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 10}}),
            STOP,
        ),
    ),
]
