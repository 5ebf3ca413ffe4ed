"""The rules of both AI SDK streams, which `validator.py` and `state.py` check.

A front end ends the chat at the first chunk that it rejects, so much is an error in a UI message
stream that other streams may do.
"""

from weft.dialects.rules import Rule


def _chunks(*chunks: str) -> str:
    """A piece of a UI message stream."""
    return "".join(f"data: {chunk}\n\n" for chunk in chunks)


def _parts(*parts: str) -> str:
    """A piece of a model's stream."""
    return "".join(f"{part}\n" for part in parts)


_START = '{"type":"start","messageId":"m1"}'
_STEP, _STEP_END = '{"type":"start-step"}', '{"type":"finish-step"}'
_FINISH = '{"type":"finish","finishReason":"stop"}'
_DONE = "[DONE]"
_TEXT = '{"type":"text-start","id":"t1"}'
_DELTA = '{"type":"text-delta","id":"t1","delta":"Hi"}'
_TEXT_END = '{"type":"text-end","id":"t1"}'
_CALL = '{"type":"tool-input-start","toolCallId":"c1","toolName":"f"}'
_ARGUMENTS = '{"type":"tool-input-delta","toolCallId":"c1","inputTextDelta":"{\\"a\\":1}"}'
_CALLED = '{"type":"tool-input-available","toolCallId":"c1","toolName":"f","input":{"a":1}}'
_OUTPUT = '{"type":"tool-output-available","toolCallId":"c1","output":1}'
_FIRST = '{"type":"stream-start","warnings":[]}'
_USED = '{"inputTokens":1,"outputTokens":1,"totalTokens":2}'
_LAST = f'{{"type":"finish","finishReason":"stop","usage":{_USED}}}'
_MODEL_CALL = '{"type":"tool-call","toolCallId":"c1","toolName":"f","input":"{}"}'

_FORMS = (
    Rule(
        "event-object",
        "error",
        "Every event is a JSON object with a `type`.",
        "The front end ends the chat at what it cannot read.",
        _chunks(_START, "working"),
    ),
    Rule(
        "chunk-type",
        "error",
        "Every chunk of a UI message stream is of a type that front ends know, or `data-` and a "
        "name.",
        "The front end ends the chat at a type that it does not know.",
        _chunks(_START, '{"type":"progress","percent":10}'),
    ),
    Rule(
        "part-type",
        "note",
        "Every part of a model's stream is of a type that its specification defines.",
        "What reads it ignores the part, or fails at it.",
        _parts(_FIRST, '{"type":"progress"}'),
    ),
    Rule(
        "mixed-forms",
        "error",
        "A stream holds the parts of a model, or the chunks for a front end, never both.",
        "Each reader fails at what is meant for the other.",
        _chunks(_START, _MODEL_CALL),
    ),
    Rule(
        "dump",
        "note",
        "A stream is one that something reads from a wire.",
        "This one is a printed `streamText().stream`: nothing reads it, and no other rule is "
        "applied to it.",
        _parts('{"type":"start"}', '{"type":"start-step","request":{},"warnings":[]}'),
    ),
    Rule(
        "required-key",
        "error",
        "Every event has the keys of its type, each with a value of its kind.",
        "The front end ends the chat at a chunk that lacks one.",
        _chunks(_START, '{"type":"text-start"}'),
    ),
    Rule(
        "null-key",
        "error",
        "A key of a chunk that has no value is left out.",
        "The front end takes null for a value of the wrong kind, and ends the chat.",
        _chunks(_START, '{"type":"text-start","id":"t1","providerMetadata":null}'),
    ),
    Rule(
        "unknown-key",
        "warning",
        "A chunk has no keys but those of its type.",
        "Many front ends end the chat at a key that they do not know; newer ones let it pass.",
        _chunks(_START, '{"type":"text-start","id":"t1","index":0}'),
    ),
    Rule(
        "newer-chunk",
        "note",
        "Every chunk is one that front ends of version 6 know.",
        "Older ones end the chat at it.",
        _chunks(_START, '{"type":"reset-step"}'),
    ),
)

_ITEMS = (
    Rule(
        "item-not-open",
        "error",
        "A delta or an end belongs to a text, a reasoning or a call that began and has not ended.",
        "The front end ends the chat; what reads a model's stream loses the text.",
        _chunks(_START, _DELTA),
    ),
    Rule(
        "item-repeated",
        "error",
        "A text, a reasoning or a call begins once.",
        "The front end shows two: one of them stays empty, or is never done.",
        _chunks(_START, _TEXT, _TEXT),
    ),
    Rule(
        "item-id-reused",
        "warning",
        "The id of a text or a reasoning that has ended is not used again.",
        "What keys items by their id writes the second into the first, or replaces it.",
        _chunks(_START, _TEXT, _TEXT_END, _TEXT),
    ),
    Rule(
        "item-open",
        "warning",
        "Everything that began has ended before its step, the stream or an error ends it.",
        "The front end shows it as still being written, for ever.",
        _chunks(_START, _STEP, _TEXT, _STEP_END),
    ),
)

_CALLS = (
    Rule(
        "call-id-differs",
        "error",
        "A call is completed under the id it was announced with.",
        "The front end shows two calls, and the first is never done.",
        _chunks(_START, _CALL, _ARGUMENTS, _CALLED.replace("c1", "c2"), _FINISH),
    ),
    Rule(
        "call-repeated",
        "error",
        "A call is completed once.",
        "The front end runs the tool twice.",
        _chunks(_START, _CALLED, _CALLED),
    ),
    Rule(
        "call-open",
        "error",
        "Every call that was announced is completed before its step ends.",
        "The tool is never run, and the front end waits for ever.",
        _chunks(_START, _STEP, _CALL, _STEP_END),
    ),
    Rule(
        "call-input-differs",
        "error",
        "The input of a call is what its deltas make.",
        "What reads deltas and what reads the input run the tool with different arguments.",
        _chunks(_START, _CALL, _ARGUMENTS, _CALLED.replace('{"a":1}', '{"a":2}')),
    ),
    Rule(
        "call-input-rewritten",
        "warning",
        "The input of a call that the provider executes is what its deltas make.",
        "What is shown while it streams is not what is stored.",
        _chunks(
            _START,
            _CALL,
            _ARGUMENTS,
            '{"type":"tool-input-available","toolCallId":"c1","toolName":"f","input":{},'
            '"providerExecuted":true}',
        ),
    ),
    Rule(
        "call-input-form",
        "error",
        "The input of a call is JSON text in a model's stream, and the value itself in a UI "
        "message stream.",
        "The tool gets a text where it wants its parameters.",
        _chunks(_START, _CALLED.replace('{"a":1}', '"{\\"a\\":1}"')),
    ),
    Rule(
        "call-input-json",
        "error",
        "The input of a call in a model's stream is JSON, or empty.",
        "The call is taken as invalid, and the tool is not run.",
        _parts(_FIRST, _MODEL_CALL.replace('"{}"', '"{"')),
    ),
    Rule(
        "call-name",
        "error",
        "A call has a name, and keeps it.",
        "There is no tool to run, or two are shown.",
        _chunks(_START, _CALL.replace('"f"', '""')),
    ),
    Rule(
        "call-dynamic",
        "error",
        "All chunks of a call agree on `dynamic`.",
        "The front end shows two calls with one id, and the first is never done.",
        _chunks(_START, _CALL, _ARGUMENTS, _CALLED.replace("}}", '},"dynamic":true}')),
    ),
    Rule(
        "output-unknown-call",
        "error",
        "An output, an approval or a denial belongs to a call of this message.",
        "The front end ends the chat when it does not find the call.",
        _chunks(_START, _CALLED, _OUTPUT.replace("c1", "c2")),
    ),
    Rule(
        "output-earlier-call",
        "warning",
        "An output follows its call.",
        "If no earlier message holds the call, the front end ends the chat.",
        _chunks(_START, _OUTPUT),
    ),
    Rule(
        "output-repeated",
        "error",
        "Nothing follows the final output of a call.",
        "The front end shows one output and sends the other.",
        _chunks(_START, _CALLED, _OUTPUT, _OUTPUT),
    ),
    Rule(
        "output-open",
        "warning",
        "Preliminary outputs of a call are followed by a final one.",
        "The front end takes the last preliminary one as the output.",
        _chunks(_START, _CALLED, _OUTPUT.replace("}", ',"preliminary":true}'), _FINISH),
    ),
)

_ORDER = (
    Rule(
        "finish-missing",
        "error",
        "A stream ends with `finish`, an error or an abort.",
        "Half an answer passes for a whole one.",
        _chunks(_START, _TEXT, _DELTA, _TEXT_END),
    ),
    Rule(
        "after-finish",
        "error",
        "`finish` comes once, and nothing but `[DONE]` after it.",
        "What comes behind it is written into an answer that was handed over.",
        _chunks(_START, _FINISH, _FINISH),
    ),
    Rule(
        "after-error",
        "error",
        "Nothing but the marks of the end follows an error or an abort in a UI message stream.",
        "The front end has stopped reading.",
        _chunks(_START, '{"type":"error","errorText":"Overloaded"}', _TEXT),
    ),
    Rule(
        "after-done",
        "error",
        "Nothing follows `[DONE]`.",
        "Some readers have stopped, others write it into an answer that was handed over.",
        _chunks(
            _START, _FINISH, _DONE, '{"type":"file","url":"https://a.example","mediaType":"x"}'
        ),
    ),
    Rule(
        "done-missing",
        "warning",
        "A UI message stream ends with `[DONE]`.",
        "Proxies and readers that wait for it hang until the connection closes.",
        _chunks(_START, _FINISH),
    ),
    Rule(
        "start-first",
        "warning",
        "A UI message stream begins with `start`.",
        "The message has no id of its own: a resumed one becomes a second message.",
        _chunks(_TEXT, _DELTA, _TEXT_END, _STEP_END, _FINISH),
    ),
    Rule(
        "start-repeated",
        "warning",
        "`start` comes once.",
        "The message changes its id on the way.",
        _chunks(_START, _START),
    ),
    Rule(
        "message-id",
        "note",
        "`start` tells the id of the message.",
        "The front end makes one up: the stored message and the shown one have different ids.",
        _chunks('{"type":"start"}', _FINISH),
    ),
    Rule(
        "step-marks",
        "warning",
        "A step begins with `start-step`, ends with `finish-step`, and holds no other.",
        "The front end puts what two model calls said into one step, and sends it back so.",
        _chunks(_START, _STEP, _FINISH),
    ),
    Rule(
        "stream-start-first",
        "warning",
        "A model's stream begins with `stream-start`.",
        "Warnings about the request come too late, or never.",
        _parts('{"type":"response-metadata","id":"r1"}', _LAST),
    ),
    Rule(
        "finish-reason",
        "error",
        "The finish reason is one of the words of its form.",
        "The front end ends the chat at a word that it does not know.",
        _chunks(_START, '{"type":"finish","finishReason":"tool_calls"}'),
    ),
    Rule(
        "usage-shape",
        "error",
        "Counts of tokens are whole numbers, or left out.",
        "What adds them up gets nonsense.",
        _parts(_FIRST, '{"type":"finish","finishReason":"stop","usage":{"inputTokens":"1"}}'),
    ),
    Rule(
        "usage-total",
        "warning",
        "A total of tokens is no less than its parts.",
        "What bills by the total and what bills by its parts disagree.",
        _parts(_FIRST, _LAST.replace('"totalTokens":2', '"totalTokens":1')),
    ),
)

RULES: tuple[Rule, ...] = (*_FORMS, *_ITEMS, *_CALLS, *_ORDER)
