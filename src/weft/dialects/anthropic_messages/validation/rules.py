"""The rules of the Messages wire. `validator.py` checks each of them.

`error` is what the official client raises at, loses or joins wrongly, or what makes the next
request fail; the rest is as bad as it says.
"""

from weft.dialects.rules import Rule


def _event(type: str, rest: str = "") -> str:
    return f'event: {type}\ndata: {{"type":"{type}"{rest}}}\n\n'


def _start(index: int, block: str) -> str:
    return _event("content_block_start", f',"index":{index},"content_block":{block}')


def _delta(index: int, delta: str) -> str:
    return _event("content_block_delta", f',"index":{index},"delta":{delta}')


def _stop(index: int) -> str:
    return _event("content_block_stop", f',"index":{index}')


def _end(reason: str) -> str:
    return _event("message_delta", f',"delta":{{"stop_reason":{reason}}},"usage":{_USAGE}')


_USAGE = '{"output_tokens":1}'
_HEAD = '"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m"'
_BEGIN = _event(
    "message_start", f',"message":{{{_HEAD},"usage":{{"input_tokens":1,"output_tokens":1}}}}'
)
_LAST = _event("message_stop")
_TEXT = '{"type":"text","text":""}'
_SAID = '{"type":"text_delta","text":"Hi"}'
_THINKING = '{"type":"thinking","thinking":"","signature":""}'
_THOUGHT = '{"type":"thinking_delta","thinking":"Hm."}'
_SIGNED = '{"type":"signature_delta","signature":"c2ln"}'
_USE = '{"type":"tool_use","id":"toolu_1","name":"f","input":{}}'
_SEARCH = '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}'
_FOUND = '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}'
_FAILED = _event("error", ',"error":{"type":"overloaded_error","message":"Overloaded"}')

_FRAMES = (
    Rule(
        "event-line",
        "error",
        "Every event has an `event:` line.",
        "The official client skips an event without one, errors included: the stream then looks "
        "complete.",
        'data: {"type":"ping"}\n\n' * 2,
    ),
    Rule(
        "event-line-differs",
        "error",
        "The `event:` line is the `type` of the data.",
        "Clients that dispatch by the line and clients that dispatch by the type see two "
        "different events.",
        'event: content_block_stop\ndata: {"type":"content_block_start"}\n\n',
    ),
    Rule(
        "event-object",
        "error",
        "The data of every event is a JSON object with a `type`.",
        "The official client raises at what it cannot parse, and the stream is over for it.",
        'event: message_stop\ndata: {"type":\n\n',
    ),
    Rule(
        "event-type",
        "note",
        "Every event is of a type that the wire defines.",
        "Clients must ignore what they do not know, and lose what it says.",
        _event("progress"),
    ),
    Rule(
        "done-frame",
        "warning",
        "There is no `[DONE]`: the stream ends with `message_stop`.",
        "Under an `event:` line, the official client parses it as JSON and raises.",
        _LAST + "data: [DONE]\n\n",
    ),
)

_MESSAGE = (
    Rule(
        "message-start-first",
        "error",
        "`message_start` comes before everything else but `ping` and `error`.",
        "The official client raises at any event that comes before it.",
        _start(0, _TEXT),
    ),
    Rule(
        "message-start-once",
        "error",
        "There is one `message_start`.",
        "Clients begin anew and drop what had come; the official one merges two messages into one.",
        _BEGIN * 2,
    ),
    Rule(
        "message-start-shape",
        "error",
        "`message_start` holds a message: id, type, role assistant, content, model, and usage "
        "with input and output tokens.",
        "Typed clients read these fields unasked and raise where one is missing.",
        _event("message_start", ',"message":{"id":"msg_1"}'),
    ),
    Rule(
        "message-start-ended",
        "warning",
        "A message that is to be streamed has no stop reason yet.",
        "Clients that look at it take the answer as over.",
        _event("message_start", f',"message":{{{_HEAD},"stop_reason":"end_turn"}}'),
    ),
    Rule(
        "message-start-filled",
        "note",
        "A message starts with no content: blocks follow one by one.",
        "Only calls made by code come this way; clients that read blocks alone miss them.",
        _event("message_start", f',"message":{{"id":"msg_1","content":[{_USE}]}}'),
    ),
    Rule(
        "message-delta",
        "error",
        "`message_delta` tells how the message ended.",
        "The official client takes a stream without it as complete, with no stop reason: half an "
        "answer passes for a whole one.",
        _BEGIN + _LAST,
    ),
    Rule(
        "message-delta-once",
        "note",
        "There is one `message_delta`.",
        "What it says replaces what was said before; clients that add usage up count twice.",
        _BEGIN + _end('"end_turn"') * 2,
    ),
    Rule(
        "message-stop",
        "warning",
        "A stream that did not fail ends with `message_stop`.",
        "Clients that wait for it hang until the connection closes, or report an error.",
        _BEGIN + _end('"end_turn"'),
    ),
    Rule(
        "after-message-stop",
        "error",
        "Nothing but `ping` follows `message_stop`.",
        "Clients have stopped reading; a pooled connection may be read on by the next request.",
        _BEGIN + _end('"end_turn"') + _LAST * 2,
    ),
    Rule(
        "after-error",
        "error",
        "Nothing follows an error.",
        "Clients raise at the error. A `message_stop` behind it makes a broken turn look whole.",
        _FAILED + _LAST,
    ),
    Rule(
        "error-shape",
        "error",
        "An error holds `error`, an object with a type and a message.",
        "Clients cannot tell what happened, nor whether to try again.",
        _event("error", ',"error":"Overloaded"'),
    ),
    Rule(
        "error-type",
        "note",
        "An error is of a type that the wire defines.",
        "Clients that decide by the type whether to try again do not know it.",
        _event("error", ',"error":{"type":"server_error","message":"?"}'),
    ),
)

_BLOCKS = (
    Rule(
        "block-index",
        "error",
        "Blocks are numbered 0, 1, 2 and so on, in the order in which they start.",
        "The official client appends blocks as they come and looks them up by index: it raises, "
        "or writes into another block.",
        _start(0, _TEXT) + _stop(0) + _start(2, _TEXT),
    ),
    Rule(
        "block-not-open",
        "error",
        "A delta or a stop belongs to a block that was started and not yet stopped.",
        "Clients raise, lose the delta, or write into a block that they have handed over.",
        _delta(0, _SAID),
    ),
    Rule(
        "block-open",
        "error",
        "Every block is stopped before `message_delta`.",
        "Clients that hand a block over at its stop never hand it over: the call is not run.",
        _start(0, _USE) + _end('"tool_use"'),
    ),
    Rule(
        "block-overlap",
        "warning",
        "One block is open at a time.",
        "The official client copes; clients that keep one current block mix both up.",
        _start(0, _TEXT) + _start(1, _TEXT),
    ),
    Rule(
        "block-late",
        "error",
        "No block comes after the `message_delta` that tells how the message ended.",
        "Clients that act at the stop reason never see it.",
        _end('"end_turn"') + _start(0, _TEXT),
    ),
    Rule(
        "block-shape",
        "error",
        "A block has an index, a type, and the fields of its type.",
        "Typed clients read these fields unasked and raise where one is missing.",
        _start(0, '{"type":"tool_use","id":"toolu_1","name":"f"}'),
    ),
    Rule(
        "block-type",
        "note",
        "Every block is of a type that the wire defines.",
        "Clients must keep what they do not know as it is, and send it back so.",
        _start(0, '{"type":"hologram"}'),
    ),
    Rule(
        "delta-fits",
        "error",
        "A delta is of a kind that its block grows by.",
        "The official client ignores any other: what it says is lost.",
        _start(0, _TEXT) + _delta(0, _THOUGHT),
    ),
    Rule(
        "delta-shape",
        "error",
        "A delta has a type, and under that type's key what it adds.",
        "Clients that join texts raise at anything else.",
        _start(0, _TEXT) + _delta(0, '{"type":"text_delta","text":null}'),
    ),
    Rule(
        "delta-type",
        "note",
        "Every delta is of a type that the wire defines.",
        "Clients must ignore what they do not know, and lose what it says.",
        _start(0, _TEXT) + _delta(0, '{"type":"hologram_delta"}'),
    ),
    Rule(
        "text-empty",
        "warning",
        "A text block holds text.",
        "An empty one is refused when the conversation is sent back.",
        _start(0, _TEXT) + _stop(0),
    ),
    Rule(
        "citation-shape",
        "warning",
        "A citation is an object of a type that the wire defines.",
        "Clients cannot show where the text came from.",
        _start(0, _TEXT) + _delta(0, '{"type":"citations_delta","citation":{"type":"hearsay"}}'),
    ),
    Rule(
        "signature-late",
        "error",
        "A thinking block gets one signature, behind its last word.",
        "The last one replaces those before it, and one that does not cover all of the text is "
        "refused when the conversation is sent back.",
        _start(0, _THINKING) + _delta(0, _SIGNED) + _delta(0, _THOUGHT),
    ),
    Rule(
        "signature-missing",
        "warning",
        "A thinking block is signed.",
        "Without a signature it is refused when the conversation is sent back.",
        _start(0, _THINKING) + _delta(0, _THOUGHT) + _stop(0),
    ),
)

_TOOLS = (
    Rule(
        "tool-id-missing",
        "error",
        "A call has an id.",
        "The client has nothing to say whose result it sends back.",
        _start(0, '{"type":"tool_use","id":"","name":"f","input":{}}'),
    ),
    Rule(
        "tool-id-spelling",
        "warning",
        "The id of a call is made of letters, digits, `_` and `-`.",
        "Any other is refused when the conversation is sent back.",
        _start(0, '{"type":"tool_use","id":"bash:0","name":"f","input":{}}'),
    ),
    Rule(
        "tool-id-repeated",
        "error",
        "No two calls of a message have the same id.",
        "Their results cannot be told apart, and the conversation is refused when it is sent back.",
        _start(0, _USE) + _stop(0) + _start(1, _USE),
    ),
    Rule(
        "tool-name-missing",
        "error",
        "A call has a name.",
        "There is no tool to run: clients raise, or drop the call.",
        _start(0, '{"type":"tool_use","id":"toolu_1","name":"","input":{}}'),
    ),
    Rule(
        "tool-input-filled",
        "warning",
        "A call that the model makes for the client starts with an empty `input`; its arguments "
        "come by deltas.",
        "Clients that read deltas only run the tool without arguments.",
        _start(0, '{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}}'),
    ),
    Rule(
        "tool-input-json",
        "error",
        "The pieces of `partial_json` make one JSON object, or nothing at all, unless the tokens "
        "ran out.",
        "The official client raises, or runs the tool without arguments and says nothing.",
        _BEGIN
        + _start(0, _USE)
        + _delta(0, '{"type":"input_json_delta","partial_json":"{}{}"}')
        + _stop(0)
        + _end('"tool_use"')
        + _LAST,
    ),
    Rule(
        "result-without-use",
        "note",
        "The result of an executed tool names a call that came before it.",
        "It may have come in a message before, which paused or waited; if it did not, the "
        "conversation is refused when it is sent back.",
        _start(0, _FOUND),
    ),
    Rule(
        "result-repeated",
        "error",
        "A call has one result.",
        "The conversation is refused when it is sent back.",
        _start(0, _SEARCH) + _stop(0) + (_start(1, _FOUND) + _stop(1) + _start(2, _FOUND)),
    ),
    Rule(
        "use-without-result",
        "warning",
        "A call that the other end executes has its result, unless the turn is paused or waits "
        "for the client.",
        "The conversation is refused when it is sent back.",
        _BEGIN + _start(0, _SEARCH) + _stop(0) + _end('"end_turn"') + _LAST,
    ),
)

_ENDING = (
    Rule(
        "stop-reason",
        "error",
        "The last `message_delta` tells a stop reason.",
        "A null erases the reason that came before: agents do not know whether to go on.",
        _BEGIN + _end("null") + _LAST,
    ),
    Rule(
        "stop-reason-word",
        "note",
        "The stop reason is a word that the wire defines.",
        "Clients that do not know it take the answer as over, or as failed.",
        _BEGIN + _end('"finished"') + _LAST,
    ),
    Rule(
        "stop-reason-calls",
        "warning",
        "The stop reason is `tool_use` exactly if calls wait for the client, unless the answer "
        "was cut or paused.",
        "Agents that look at the reason run no tool, or wait for one that is not there.",
        _BEGIN + _start(0, _USE) + _stop(0) + _end('"end_turn"') + _LAST,
    ),
    Rule(
        "stop-sequence",
        "warning",
        "The stop reason `stop_sequence` comes with the sequence that was met.",
        "Clients that cut or go on by the sequence do not know which one it was.",
        _BEGIN + _end('"stop_sequence"') + _LAST,
    ),
    Rule(
        "usage-missing",
        "error",
        "`message_delta` tells the output tokens, a whole number.",
        "The official client reads them unasked and raises.",
        _BEGIN + _event("message_delta", ',"delta":{"stop_reason":"end_turn"}'),
    ),
    Rule(
        "usage-shrinks",
        "warning",
        "Output tokens are counted from the beginning: they never become fewer.",
        "Clients that show the last count show too few; it looks as if pieces were to be added up.",
        _BEGIN + _event("message_delta", ',"delta":{},"usage":{"output_tokens":0}'),
    ),
    Rule(
        "usage-thinking",
        "warning",
        "Tokens of thinking are a part of the output tokens.",
        "Clients that take them off the output show less than nothing.",
        _event(
            "message_delta",
            ',"usage":{"output_tokens":1,"output_tokens_details":{"thinking_tokens":2}}',
        ),
    ),
)

RULES: tuple[Rule, ...] = (*_FRAMES, *_MESSAGE, *_BLOCKS, *_TOOLS, *_ENDING)
