"""The rules of the generateContent wire. `validator.py` checks each of them.

Frames are bare on this wire, and the official client for Python is no reader of server-sent
events: what others forgive, it raises at.
"""

from weft.dialects.rules import Rule


def _frame(data: str) -> str:
    return f"data: {data}\n\n"


def _said(parts: str, rest: str = "") -> str:
    """A frame with parts of the answer."""
    return _frame(f'{{"candidates":[{{"content":{{"parts":[{parts}]}}{rest}}}],"responseId":"r1"}}')


def _call(call: str) -> str:
    return _said(f'{{"functionCall":{call}}}')


def _usage(usage: str) -> str:
    return _frame(f'{{"usageMetadata":{{{usage}}}}}')


def _grounded(supports: str) -> str:
    chunks = '"groundingChunks":[{"web":{"uri":"https://a.example"}}]'
    metadata = f'{{{chunks},"groundingSupports":[{supports}]}}'
    return _said(
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
        "The official client for Python reads lines, not events: it raises at any other line.",
        f"event: message_part\n{_said(_TEXT)}",
    ),
    Rule(
        "done-frame",
        "warning",
        "There is no `[DONE]`: the stream ends with the connection.",
        "The official client for Python parses it as JSON and raises.",
        _said(_TEXT, _STOP) + "data: [DONE]\n\n",
    ),
    Rule(
        "frame-object",
        "error",
        "Every frame is a JSON object.",
        "Clients raise at what they cannot parse, and the stream is over for them.",
        'data: {"candidates":\n\n',
    ),
    Rule(
        "frame-array",
        "warning",
        "The stream is a sequence of events, not one JSON array.",
        "That is what comes without `alt=sse`: clients that stream see nothing until its end.",
        "data: [" + '{"candidates":[]},' * 2 + '{"candidates":[]}]\n\n',
    ),
    Rule(
        "frame-empty",
        "warning",
        "A frame holds candidates, feedback to the prompt, usage or an error.",
        "Clients have nothing to do with it; those that index into candidates raise.",
        _frame('{"modelVersion":"m"}'),
    ),
    Rule(
        "key-spelling",
        "error",
        "Keys are spelled in camel case.",
        "Clients look for `functionCall` and find nothing under `function_call`: all that it says "
        "is lost.",
        _said('{"function_call":{"name":"f"}}'),
    ),
    Rule(
        "response-id",
        "warning",
        "Every frame of a stream carries its `responseId`, the same one.",
        "Clients that know the response by it take a frame without it, or with another, as "
        "another response.",
        _said(_TEXT) + _frame('{"candidates":[{"content":{"parts":[]}}]}'),
    ),
    Rule(
        "model-version",
        "warning",
        "One model answers.",
        "Clients that account for each model put the answer to the wrong one.",
        _frame('{"candidates":[],"modelVersion":"m1"}')
        + _frame('{"candidates":[],"modelVersion":"m2"}'),
    ),
)

_CANDIDATES = (
    Rule(
        "candidate-shape",
        "error",
        "Candidates are objects in an array; an index is a whole number, content an object, parts "
        "an array.",
        "Typed clients refuse the frame.",
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
        "It goes back with the history under the wrong name, and the next request is refused.",
        _frame('{"candidates":[{"content":{"parts":[],"role":"assistant"}}]}'),
    ),
    Rule(
        "finish-missing",
        "error",
        "The last frame of an answer tells its finish reason, unless the prompt was blocked or an "
        "error came.",
        "The official client says nothing: half an answer passes for a whole one.",
        _said(_TEXT),
    ),
    Rule(
        "finish-repeated",
        "warning",
        "The finish reason comes once.",
        "Clients that end the answer there lose what comes behind it, or end it twice.",
        _said(_TEXT, _STOP) * 2,
    ),
    Rule(
        "finish-word",
        "note",
        "The finish reason is a word that the wire defines.",
        "Typed clients warn, and agents do not know what to do.",
        _said(_TEXT, ',"finishReason":"DONE"'),
    ),
    Rule(
        "content-late",
        "warning",
        "No content comes after the finish reason.",
        "The official client takes it; clients that stop at the reason lose it.",
        _said(_TEXT, _STOP) + _said(_TEXT),
    ),
    Rule(
        "blocked-content",
        "warning",
        "A prompt that was blocked has no answer.",
        "Clients show the block, or the answer, but not both.",
        _frame('{"candidates":[{"index":0}],"promptFeedback":{"blockReason":"SAFETY"}}'),
    ),
    Rule(
        "after-error",
        "error",
        "Nothing follows an error.",
        "Clients raise at the error and never see it.",
        _ERROR + _said(_TEXT),
    ),
    Rule(
        "error-shape",
        "error",
        "An error holds a code (a number), a message and a status (texts).",
        "The official client raises by the code, and cannot without one.",
        _frame('{"error":"Overloaded"}'),
    ),
    Rule(
        "error-status",
        "note",
        "The status of an error is a word that the wire defines.",
        "Clients that decide by it whether to try again do not know it.",
        _frame('{"error":{"code":503,"message":"?","status":"OVERLOADED"}}'),
    ),
)

_PARTS = (
    Rule(
        "part-payload",
        "error",
        "A part holds one thing.",
        "It is one of several by its type: clients read the first that they look for, and lose "
        "the other.",
        _said('{"text":"Hi","functionCall":{"name":"f"}}'),
    ),
    Rule(
        "part-empty",
        "warning",
        "A part holds something.",
        "Clients that look for what it holds raise; it is refused when the history goes back.",
        _said('{"thought":true}'),
    ),
    Rule(
        "part-type",
        "note",
        "A part holds something that the wire defines.",
        "Clients lose what they do not know; it has to go back with the history.",
        _said('{"hologram":{}}'),
    ),
    Rule(
        "part-shape",
        "error",
        "What a part holds has the fields of its type.",
        "Typed clients refuse the frame.",
        _said('{"inlineData":{"data":"AA=="}}'),
    ),
    Rule(
        "signature-spelling",
        "error",
        "A `thoughtSignature` is base64.",
        "Typed clients decode it and refuse the frame; it must go back byte for byte.",
        _said('{"text":"","thoughtSignature":"not base64!"}'),
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
        "Clients hand on something that no function takes.",
        _call('{"name":"f","args":"{}"}'),
    ),
    Rule(
        "call-id",
        "error",
        "The id of a call, if it has one, is a text that says something.",
        "An empty id goes back with the result, and the next request is refused.",
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
        "A call that comes in pieces ends before the next one begins.",
        "Pieces have neither id nor name: clients give them to the wrong call.",
        _call('{"name":"f","willContinue":true}') + _call('{"name":"g"}'),
    ),
    Rule(
        "call-open",
        "note",
        "A call that comes in pieces ends with a mark of its own.",
        "Clients that wait for the mark never run it: the finish reason is all the end it has.",
        _call('{"name":"f","willContinue":true}') + _said('{"text":""}', _STOP),
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
        "A value that goes on is finished before another begins, and begins once.",
        "Clients that keep one open string glue two arguments together.",
        _call('{"name":"f","willContinue":true}')
        + _call(
            '{"partialArgs":[{"jsonPath":"$.a","stringValue":"x","willContinue":true},'
            '{"jsonPath":"$.b","stringValue":"y"}],"willContinue":true}'
        ),
    ),
    Rule(
        "call-unsigned",
        "note",
        "After thinking, the first call is signed.",
        "Newer models refuse a history in which that signature is missing.",
        _said('{"text":"Hm.","thought":true}') + _call('{"name":"f"}'),
    ),
    Rule(
        "result-without-call",
        "warning",
        "The result of executed code or of a tool follows its call.",
        "Clients that look the call up raise, or drop the result.",
        _said('{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}}'),
    ),
)

_BESIDE = (
    Rule(
        "grounding-chunk",
        "error",
        "A grounded stretch names sources that are there.",
        "Clients that look the source up by its number raise.",
        _grounded('{"segment":{"endIndex":4},"groundingChunkIndices":[1]}'),
    ),
    Rule(
        "grounding-segment",
        "warning",
        "A grounded stretch counts bytes of UTF-8, and holds the text that it repeats.",
        "Clients put the reference into the middle of another word.",
        _grounded(
            '{"segment":{"startIndex":5,"endIndex":9,"text":"Oslo"},"groundingChunkIndices":[0]}'
        ),
    ),
    Rule(
        "usage-shape",
        "error",
        "Counts of tokens are whole numbers.",
        "Typed clients refuse the frame.",
        _usage('"promptTokenCount":"12"'),
    ),
    Rule(
        "usage-shrinks",
        "warning",
        "Tokens are counted from the beginning: they never become fewer.",
        "Clients that show the last count show too few; it looks as if pieces were to be added up.",
        _usage('"candidatesTokenCount":5') + _usage('"candidatesTokenCount":2'),
    ),
    Rule(
        "usage-total",
        "warning",
        "The total is the sum of prompt, tool use, answer and thoughts.",
        "Clients that bill by the total and clients that bill by its parts disagree.",
        _usage('"promptTokenCount":2,"candidatesTokenCount":3,"totalTokenCount":9'),
    ),
)

RULES: tuple[Rule, ...] = (*_FRAMES, *_CANDIDATES, *_PARTS, *_BESIDE)
