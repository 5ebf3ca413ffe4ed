"""The rules of a Messages stream, from the vendor's documentation and its official SDK.

`validator.py` checks each of them. A rule is an `error` if the official client raises, loses or
misplaces content when it is broken, or if the next request fails.
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


def _message_delta(reason: str) -> str:
    return _event("message_delta", f',"delta":{{"stop_reason":{reason}}},"usage":{_USAGE}')


_USAGE = '{"output_tokens":1}'
_HEAD = '"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m"'
_MESSAGE_START = _event(
    "message_start", f',"message":{{{_HEAD},"usage":{{"input_tokens":1,"output_tokens":1}}}}'
)
_MESSAGE_STOP = _event("message_stop")
_TEXT = '{"type":"text","text":""}'
_TEXT_DELTA = '{"type":"text_delta","text":"Hi"}'
_THINKING = '{"type":"thinking","thinking":"","signature":""}'
_THINKING_DELTA = '{"type":"thinking_delta","thinking":"Hm."}'
_SIGNATURE_DELTA = '{"type":"signature_delta","signature":"c2ln"}'
_TOOL_USE = '{"type":"tool_use","id":"toolu_1","name":"f","input":{}}'
_SEARCH = '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}'
_SEARCH_RESULT = '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}'
_ERROR = _event("error", ',"error":{"type":"overloaded_error","message":"Overloaded"}')

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
        "Clients that dispatch on the line and clients that dispatch on the type see different "
        "events.",
        'event: content_block_stop\ndata: {"type":"content_block_start"}\n\n',
    ),
    Rule(
        "event-object",
        "error",
        "The data of every event is a JSON object with a `type`.",
        "The official client raises on data that it cannot parse, and stops reading.",
        'event: message_stop\ndata: {"type":\n\n',
    ),
    Rule(
        "event-type",
        "note",
        "Every event has a type that the API defines.",
        "Clients must ignore unknown types, and lose their content.",
        _event("progress"),
    ),
    Rule(
        "done-frame",
        "warning",
        "There is no `[DONE]`: the stream ends with `message_stop`.",
        "With an `event:` line, the official client parses it as JSON and raises.",
        _MESSAGE_STOP + "data: [DONE]\n\n",
    ),
)

_MESSAGE = (
    Rule(
        "message-start-first",
        "error",
        "`message_start` comes before all other events except `ping` and `error`.",
        "The official client raises on any event before it.",
        _start(0, _TEXT),
    ),
    Rule(
        "message-start-once",
        "error",
        "There is one `message_start`.",
        "Clients start over and drop the content so far; the official one merges both messages.",
        _MESSAGE_START * 2,
    ),
    Rule(
        "message-start-shape",
        "error",
        "`message_start` holds a message: id, type, role assistant, content, model, and usage "
        "with input and output tokens.",
        "Typed clients read these fields without a check and raise if one is missing.",
        _event("message_start", ',"message":{"id":"msg_1"}'),
    ),
    Rule(
        "message-start-ended",
        "warning",
        "The message of `message_start` has no stop reason yet.",
        "Clients that read it consider the answer complete.",
        _event("message_start", f',"message":{{{_HEAD},"stop_reason":"end_turn"}}'),
    ),
    Rule(
        "message-start-filled",
        "note",
        "The message of `message_start` has no content: blocks follow one by one.",
        "Only calls made by code come this way; clients that only read block events miss them.",
        _event("message_start", f',"message":{{"id":"msg_1","content":[{_TOOL_USE}]}}'),
    ),
    Rule(
        "message-delta",
        "error",
        "A message has a `message_delta`, which says why it ended.",
        "The official client considers a stream without it complete, with no stop reason: a "
        "truncated answer looks like a whole one.",
        _MESSAGE_START + _MESSAGE_STOP,
    ),
    Rule(
        "message-delta-once",
        "note",
        "There is one `message_delta`.",
        "It replaces the one before; clients that add up usage count twice.",
        _MESSAGE_START + _message_delta('"end_turn"') * 2,
    ),
    Rule(
        "message-stop",
        "warning",
        "A stream without an error ends with `message_stop`.",
        "Clients that wait for it hang until the connection closes, or report an error.",
        _MESSAGE_START + _message_delta('"end_turn"'),
    ),
    Rule(
        "after-message-stop",
        "error",
        "Nothing but `ping` follows `message_stop`.",
        "Clients have stopped reading; on a pooled connection the next request may read it.",
        _MESSAGE_START + _message_delta('"end_turn"') + _MESSAGE_STOP * 2,
    ),
    Rule(
        "after-error",
        "error",
        "Nothing follows an error.",
        "Clients raise on the error. A `message_stop` after it makes a broken turn look complete.",
        _ERROR + _MESSAGE_STOP,
    ),
    Rule(
        "error-shape",
        "error",
        "An `error` event has an `error` object with a type and a message.",
        "Clients cannot tell what happened, or whether to retry.",
        _event("error", ',"error":"Overloaded"'),
    ),
    Rule(
        "error-type",
        "note",
        "An error has a type that the API defines.",
        "Clients that decide by the type whether to retry do not know it.",
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
        "Clients raise, lose the delta, or write into a block that they already passed on.",
        _delta(0, _TEXT_DELTA),
    ),
    Rule(
        "block-open",
        "error",
        "Every block is stopped before `message_delta`.",
        "Clients that pass a block on at its stop never do: the call is not run.",
        _start(0, _TOOL_USE) + _message_delta('"tool_use"'),
    ),
    Rule(
        "block-overlap",
        "warning",
        "One block is open at a time.",
        "The official client copes; clients that keep one current block mix up the two.",
        _start(0, _TEXT) + _start(1, _TEXT),
    ),
    Rule(
        "block-late",
        "error",
        "No block comes after the `message_delta` with the stop reason.",
        "Clients that act on the stop reason never see it.",
        _message_delta('"end_turn"') + _start(0, _TEXT),
    ),
    Rule(
        "block-shape",
        "error",
        "A block has an index, a type, and the fields of its type.",
        "Typed clients read these fields without a check and raise if one is missing.",
        _start(0, '{"type":"tool_use","id":"toolu_1","name":"f"}'),
    ),
    Rule(
        "block-type",
        "note",
        "Every block has a type that the API defines.",
        "Clients must keep unknown blocks and send them back unchanged.",
        _start(0, '{"type":"hologram"}'),
    ),
    Rule(
        "delta-fits",
        "error",
        "The type of a delta fits the type of its block.",
        "The official client ignores it: its content is lost.",
        _start(0, _TEXT) + _delta(0, _THINKING_DELTA),
    ),
    Rule(
        "delta-shape",
        "error",
        "A delta has a type, and the field of that type.",
        "Clients that concatenate the field raise if it is missing or has another type.",
        _start(0, _TEXT) + _delta(0, '{"type":"text_delta","text":null}'),
    ),
    Rule(
        "delta-type",
        "note",
        "Every delta has a type that the API defines.",
        "Clients must ignore unknown types, and lose their content.",
        _start(0, _TEXT) + _delta(0, '{"type":"hologram_delta"}'),
    ),
    Rule(
        "text-empty",
        "warning",
        "A text block is not empty.",
        "An empty one is rejected when the conversation is sent back.",
        _start(0, _TEXT) + _stop(0),
    ),
    Rule(
        "citation-shape",
        "warning",
        "A citation is an object with a type that the API defines.",
        "Clients cannot show the source of the text.",
        _start(0, _TEXT) + _delta(0, '{"type":"citations_delta","citation":{"type":"hearsay"}}'),
    ),
    Rule(
        "signature-late",
        "error",
        "A thinking block has one signature, after its last text.",
        "The last signature replaces earlier ones, and one that does not cover the whole text is "
        "rejected when the conversation is sent back.",
        _start(0, _THINKING) + _delta(0, _SIGNATURE_DELTA) + _delta(0, _THINKING_DELTA),
    ),
    Rule(
        "signature-missing",
        "warning",
        "A thinking block is signed.",
        "Without a signature it is rejected when the conversation is sent back.",
        _start(0, _THINKING) + _delta(0, _THINKING_DELTA) + _stop(0),
    ),
)

_TOOLS = (
    Rule(
        "tool-id-missing",
        "error",
        "A call has an id.",
        "The client cannot say which call its result belongs to.",
        _start(0, '{"type":"tool_use","id":"","name":"f","input":{}}'),
    ),
    Rule(
        "tool-id-spelling",
        "warning",
        "The id of a call consists of letters, digits, `_` and `-`.",
        "Any other is rejected when the conversation is sent back.",
        _start(0, '{"type":"tool_use","id":"bash:0","name":"f","input":{}}'),
    ),
    Rule(
        "tool-id-repeated",
        "error",
        "No two calls of a message have the same id.",
        "Their results cannot be told apart, and the conversation is rejected when sent back.",
        _start(0, _TOOL_USE) + _stop(0) + _start(1, _TOOL_USE),
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
        "come in deltas.",
        "Clients that only read deltas run the tool without arguments.",
        _start(0, '{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}}'),
    ),
    Rule(
        "tool-input-json",
        "error",
        "The `partial_json` of a call adds up to a JSON object, or to nothing at all, unless "
        "`max_tokens` cut the answer.",
        "The official client raises, or silently runs the tool without arguments.",
        _MESSAGE_START
        + _start(0, _TOOL_USE)
        + _delta(0, '{"type":"input_json_delta","partial_json":"{}{}"}')
        + _stop(0)
        + _message_delta('"tool_use"')
        + _MESSAGE_STOP,
    ),
    Rule(
        "result-without-use",
        "note",
        "The result of a server tool refers to a call before it.",
        "The call may be in an earlier message, which was paused; if it is not, the "
        "conversation is rejected when it is sent back.",
        _start(0, _SEARCH_RESULT),
    ),
    Rule(
        "result-repeated",
        "error",
        "A call has one result.",
        "The conversation is rejected when it is sent back.",
        _start(0, _SEARCH)
        + _stop(0)
        + (_start(1, _SEARCH_RESULT) + _stop(1) + _start(2, _SEARCH_RESULT)),
    ),
    Rule(
        "use-without-result",
        "warning",
        "A call of a server tool has a result, unless the turn is paused or waits for the client.",
        "The conversation is rejected when it is sent back.",
        _MESSAGE_START
        + _start(0, _SEARCH)
        + _stop(0)
        + _message_delta('"end_turn"')
        + _MESSAGE_STOP,
    ),
)

_ENDING = (
    Rule(
        "stop-reason",
        "error",
        "The last `message_delta` has a stop reason.",
        "A null erases the reason before it: agents do not know whether to continue.",
        _MESSAGE_START + _message_delta("null") + _MESSAGE_STOP,
    ),
    Rule(
        "stop-reason-word",
        "note",
        "The stop reason is one that the API defines.",
        "Clients that do not know it consider the answer complete, or failed.",
        _MESSAGE_START + _message_delta('"finished"') + _MESSAGE_STOP,
    ),
    Rule(
        "stop-reason-calls",
        "warning",
        "The stop reason is `tool_use` exactly if calls wait for the client, unless the answer "
        "was cut or paused.",
        "Agents that act on the reason run no tool, or wait for a call that does not exist.",
        _MESSAGE_START
        + _start(0, _TOOL_USE)
        + _stop(0)
        + _message_delta('"end_turn"')
        + _MESSAGE_STOP,
    ),
    Rule(
        "stop-sequence",
        "warning",
        "The stop reason `stop_sequence` comes with the sequence that matched.",
        "Clients that act on the sequence do not know which one it was.",
        _MESSAGE_START + _message_delta('"stop_sequence"') + _MESSAGE_STOP,
    ),
    Rule(
        "usage-missing",
        "error",
        "`message_delta` has the output tokens, an integer.",
        "The official client reads them without a check and raises.",
        _MESSAGE_START + _event("message_delta", ',"delta":{"stop_reason":"end_turn"}'),
    ),
    Rule(
        "usage-shrinks",
        "warning",
        "Output tokens are cumulative: they never decrease.",
        "Clients that show the last count show too few; others may add the counts up.",
        _MESSAGE_START + _event("message_delta", ',"delta":{},"usage":{"output_tokens":0}'),
    ),
    Rule(
        "usage-thinking",
        "warning",
        "Thinking tokens are part of the output tokens.",
        "Clients that subtract them from the output show a negative number.",
        _event(
            "message_delta",
            ',"usage":{"output_tokens":1,"output_tokens_details":{"thinking_tokens":2}}',
        ),
    ),
)

RULES: tuple[Rule, ...] = (*_FRAMES, *_MESSAGE, *_BLOCKS, *_TOOLS, *_ENDING)
