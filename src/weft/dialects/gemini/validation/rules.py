"""The rules of a generateContent stream, from the vendor's documentation and its official SDK.

`validator.py` checks each of them. The official client for Python does not read server-sent events
but lines: it raises where other clients are lenient.
"""

from weft.dialects.rules import Rule


def _frame(data: str) -> str:
    return f"data: {data}\n\n"


def _content(parts: str, rest: str = "") -> str:
    """A frame with parts."""
    return _frame(f'{{"candidates":[{{"content":{{"parts":[{parts}]}}{rest}}}],"responseId":"r1"}}')


def _call(call: str) -> str:
    return _content(f'{{"functionCall":{call}}}')


def _usage(usage: str) -> str:
    return _frame(f'{{"usageMetadata":{{{usage}}}}}')


def _grounded(supports: str) -> str:
    chunks = '"groundingChunks":[{"web":{"uri":"https://a.example"}}]'
    metadata = f'{{{chunks},"groundingSupports":[{supports}]}}'
    return _content(
        '{"text":"Caf\u00e9 Oslo"}', f',"finishReason":"STOP","groundingMetadata":{metadata}'
    )


_STOP = ',"finishReason":"STOP"'
_TEXT = '{"text":"Hi"}'
_ERROR = _frame('{"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}')

_FRAMES = (
    Rule(
        "extra-line",
        "warning",
        "An event is a `data:` line and nothing else: no `event:` and no `id:`.",
        "The official client for Python reads lines, not events: it raises on any other line.",
        f"event: message_part\n{_content(_TEXT)}",
    ),
    Rule(
        "done-frame",
        "warning",
        "There is no `[DONE]`: the end of the body ends the stream.",
        "The official client for Python parses it as JSON and raises.",
        _content(_TEXT, _STOP) + "data: [DONE]\n\n",
    ),
    Rule(
        "frame-object",
        "error",
        "Every frame is a JSON object.",
        "Clients raise on data that they cannot parse, and stop reading.",
        'data: {"candidates":\n\n',
    ),
    Rule(
        "frame-array",
        "warning",
        "The stream is a sequence of events, not one JSON array.",
        "An array is sent without `alt=sse`: streaming clients see nothing until its end.",
        "data: [" + '{"candidates":[]},' * 2 + '{"candidates":[]}]\n\n',
    ),
    Rule(
        "frame-empty",
        "warning",
        "A frame has candidates, prompt feedback, usage or an error.",
        "Clients cannot use it; those that index into candidates raise.",
        _frame('{"modelVersion":"m"}'),
    ),
    Rule(
        "key-spelling",
        "error",
        "Keys are in camelCase.",
        "Clients look for `functionCall` and do not find `function_call`: its content is lost.",
        _content('{"function_call":{"name":"f"}}'),
    ),
    Rule(
        "response-id",
        "warning",
        "Every frame of a stream has the same `responseId`.",
        "Clients that identify the response by it treat a frame without it, or with another, as "
        "a different response.",
        _content(_TEXT) + _frame('{"candidates":[{"content":{"parts":[]}}]}'),
    ),
    Rule(
        "model-version",
        "warning",
        "All frames have the same `modelVersion`.",
        "Clients that account by model charge the wrong one.",
        _frame('{"candidates":[],"modelVersion":"m1"}')
        + _frame('{"candidates":[],"modelVersion":"m2"}'),
    ),
)

_CANDIDATES = (
    Rule(
        "candidate-shape",
        "error",
        "`candidates` is an array of objects, `index` an integer, `content` an object, `parts` an "
        "array.",
        "Typed clients reject the frame.",
        _frame('{"candidates":{"content":{}}}'),
    ),
    Rule(
        "candidate-index",
        "error",
        "No two candidates of a frame share an index.",
        "Clients join two answers into one.",
        _frame('{"candidates":[{"index":0},{"index":0}]}'),
    ),
    Rule(
        "role",
        "error",
        "The role of the content is `model`.",
        "The history is sent back with the wrong role, and the next request is rejected.",
        _frame('{"candidates":[{"content":{"parts":[],"role":"assistant"}}]}'),
    ),
    Rule(
        "finish-missing",
        "error",
        "The last frame of an answer has a finish reason, unless the prompt was blocked or an "
        "error occurred.",
        "The official client does not notice: a truncated answer looks complete.",
        _content(_TEXT),
    ),
    Rule(
        "finish-repeated",
        "warning",
        "The finish reason comes once.",
        "Clients that end the answer there lose what follows, or end it twice.",
        _content(_TEXT, _STOP) * 2,
    ),
    Rule(
        "finish-word",
        "note",
        "The finish reason is one that the API defines.",
        "Typed clients warn, and agents do not know what to do.",
        _content(_TEXT, ',"finishReason":"DONE"'),
    ),
    Rule(
        "content-late",
        "warning",
        "No content comes after the finish reason.",
        "The official client accepts it; clients that stop at the reason lose it.",
        _content(_TEXT, _STOP) + _content(_TEXT),
    ),
    Rule(
        "blocked-content",
        "warning",
        "A prompt that was blocked has no answer.",
        "Clients show the block or the answer, but not both.",
        _frame('{"candidates":[{"index":0}],"promptFeedback":{"blockReason":"SAFETY"}}'),
    ),
    Rule(
        "after-error",
        "error",
        "Nothing follows an error.",
        "Clients raise on the error and never see it.",
        _ERROR + _content(_TEXT),
    ),
    Rule(
        "error-shape",
        "error",
        "An error has a code (a number), a message and a status (strings).",
        "The official client chooses the exception by the code.",
        _frame('{"error":"Overloaded"}'),
    ),
    Rule(
        "error-status",
        "note",
        "The status of an error is one that the API defines.",
        "Clients that decide by it whether to retry do not know it.",
        _frame('{"error":{"code":503,"message":"?","status":"OVERLOADED"}}'),
    ),
)

_PARTS = (
    Rule(
        "part-payload",
        "error",
        "A part has one payload.",
        "Clients read the first payload that they look for, and lose the other.",
        _content('{"text":"Hi","functionCall":{"name":"f"}}'),
    ),
    Rule(
        "part-empty",
        "warning",
        "A part has a payload.",
        "Clients that look for a payload raise; it is rejected when the history is sent back.",
        _content('{"thought":true}'),
    ),
    Rule(
        "part-type",
        "note",
        "A part has a payload that the API defines.",
        "Clients lose unknown payloads, which must be sent back with the history.",
        _content('{"hologram":{}}'),
    ),
    Rule(
        "part-shape",
        "error",
        "A payload has the fields of its type.",
        "Typed clients reject the frame.",
        _content('{"inlineData":{"data":"AA=="}}'),
    ),
    Rule(
        "signature-spelling",
        "error",
        "A `thoughtSignature` is base64.",
        "Typed clients decode it and reject the frame; it must be sent back byte for byte.",
        _content('{"text":"","thoughtSignature":"not base64!"}'),
    ),
    Rule(
        "call-name",
        "error",
        "A call has a name.",
        "There is no function to run: clients raise, or drop the call.",
        _call('{"args":{"a":1}}'),
    ),
    Rule(
        "call-args",
        "error",
        "The arguments of a call are an object, in one piece or value by value.",
        "Clients pass on something that no function accepts.",
        _call('{"name":"f","args":"{}"}'),
    ),
    Rule(
        "call-id",
        "error",
        "The id of a call, if it has one, is a string that is not empty.",
        "An empty id is sent back with the result, and the next request is rejected.",
        _call('{"id":"","name":"f"}'),
    ),
    Rule(
        "call-id-repeated",
        "error",
        "No two calls of a response have the same id.",
        "Their results cannot be told apart: one call gets the other's result.",
        _call('{"id":"c1","name":"f"}') * 2,
    ),
    Rule(
        "call-stray",
        "error",
        "A piece of a call follows the call that it belongs to.",
        "Clients raise, or give the arguments to another call.",
        _call('{"partialArgs":[{"jsonPath":"$.a","numberValue":1}],"willContinue":true}'),
    ),
    Rule(
        "call-overlap",
        "warning",
        "A streamed call ends before the next one starts.",
        "Pieces have neither id nor name: clients add them to the wrong call.",
        _call('{"name":"f","willContinue":true}') + _call('{"name":"g"}'),
    ),
    Rule(
        "call-open",
        "note",
        "A streamed call ends with a part without `willContinue`.",
        "Clients that wait for it never run the call: only the finish reason ends it.",
        _call('{"name":"f","willContinue":true}') + _content('{"text":""}', _STOP),
    ),
    Rule(
        "partial-args",
        "error",
        "A piece of arguments has a path from `$` and one value.",
        "Clients do not know where it belongs: the argument is lost.",
        _call('{"name":"f","willContinue":true}')
        + _call('{"partialArgs":[{"stringValue":"x"}],"willContinue":true}'),
    ),
    Rule(
        "partial-args-order",
        "error",
        "A streamed value is complete before the next one starts, and starts once.",
        "Clients that keep one open string join two arguments.",
        _call('{"name":"f","willContinue":true}')
        + _call(
            '{"partialArgs":[{"jsonPath":"$.a","stringValue":"x","willContinue":true},'
            '{"jsonPath":"$.b","stringValue":"y"}],"willContinue":true}'
        ),
    ),
    Rule(
        "call-unsigned",
        "note",
        "After thinking, the first call has a signature.",
        "Newer models reject a history without that signature.",
        _content('{"text":"Hm.","thought":true}') + _call('{"name":"f"}'),
    ),
    Rule(
        "result-without-call",
        "warning",
        "The result of executed code or of a tool follows its call.",
        "Clients that look the call up raise, or drop the result.",
        _content('{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}}'),
    ),
)

_METADATA = (
    Rule(
        "grounding-chunk",
        "error",
        "A grounding support refers to existing chunks.",
        "Clients that look up the chunk by its index raise.",
        _grounded('{"segment":{"endIndex":4},"groundingChunkIndices":[1]}'),
    ),
    Rule(
        "grounding-segment",
        "warning",
        "A segment counts in bytes of UTF-8, and matches the text that it repeats.",
        "Clients put the reference into the middle of a word.",
        _grounded(
            '{"segment":{"startIndex":5,"endIndex":9,"text":"Oslo"},"groundingChunkIndices":[0]}'
        ),
    ),
    Rule(
        "usage-shape",
        "error",
        "Token counts are integers.",
        "Typed clients reject the frame.",
        _usage('"promptTokenCount":"12"'),
    ),
    Rule(
        "usage-shrinks",
        "warning",
        "Token counts are cumulative: they never decrease.",
        "Clients that show the last count show too few; others may add the counts up.",
        _usage('"candidatesTokenCount":5') + _usage('"candidatesTokenCount":2'),
    ),
    Rule(
        "usage-total",
        "warning",
        "The total is the sum of prompt, tool use, answer and thoughts.",
        "Clients that bill by the total and clients that bill by the counts disagree.",
        _usage('"promptTokenCount":2,"candidatesTokenCount":3,"totalTokenCount":9'),
    ),
)

RULES: tuple[Rule, ...] = (*_FRAMES, *_CANDIDATES, *_PARTS, *_METADATA)
