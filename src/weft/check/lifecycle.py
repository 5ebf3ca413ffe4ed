"""The rules of every stream, whatever its wire: what reading it must not have to repair.

A code of `weft.findings` is a rule here, named `lifecycle/<code>`, and so is each way in which a
stream can fail. The tables say how bad it is when a stream breaks one. Examples are written as
Chat Completions where that wire can show it, and as canonical parts where it cannot.
"""

from weft.dialects.rules import Rule
from weft.findings import Code
from weft.parts import ErrorKind

WIRE = "lifecycle"

NOT_RULES: dict[Code, str] = {
    "block-empty": "a wire that has blocks has a rule of its own for it",
    "block-index-gap": "a wire that has blocks has a rule of its own for it",
    "block-interleaved": "a wire that has blocks has a rule of its own for it",
    "field-missing": "each wire has rules of its own for the shapes of its events",
    "bridge-extra-keys": "it tells what a stage did for a target that knows no such tools",
    "bridge-no-input": "it tells what a stage did for a target that knows no such tools",
    "stop-cut": "it tells that a stop sequence of the request was applied by Weft",
    "choice-other": "the checker reads every choice of a response, each by itself",
    "choice-index-missing": "the wire has this rule itself",
    "content-parts": "the wire has this rule itself: content-type",
    "delta-missing": "the wire has this rule itself",
    "finish-foreign": "the wire has this rule itself: finish-unknown",
    "message-whole": "the wire has this rule itself: message-in-chunk",
    "role-repeated": "the wire has this rule itself",
    "call-empty": "the wire has this rule itself: call-index-missing, or call-nameless",
    "call-id-late": "the wire has this rule itself: call-id-missing",
    "call-index-unordered": "the wire has this rule itself: call-index-order",
    "parallel-wrapper": "it tells what a model did, which is no fault of the stream",
    "not-carried": "it tells what an encoder, or a decoder of Weft, cannot say",
    **dict.fromkeys(
        (
            "index-disordered",
            "index-missing",
            "item-id-contradicted",
            "item-id-missing",
            "response-id-changed",
            "sequence-number-disordered",
            "sequence-number-missing",
        ),
        "the rules of the wire tell it",
    ),
}
"""Codes that tell nothing of the stream, and why."""


def _chunk(choice: str) -> str:
    return f'data: {{"id":"r","choices":[{choice}]}}'


def _deltas(*deltas: str) -> str:
    """A piece of a Chat Completions stream: one chunk a delta."""
    return "\n\n".join(_chunk(f'{{"delta":{delta}}}') for delta in deltas) + "\n\n"


def _calls(*entries: str) -> str:
    return _deltas(*(f'{{"tool_calls":[{entry}]}}' for entry in entries))


def _finish(reason: str) -> str:
    return _chunk(f'{{"delta":{{}},"finish_reason":"{reason}"}}') + "\n\n"


def _parts(*parts: str) -> str:
    """Canonical parts, one a line."""
    return "\n".join(parts) + "\n"


_TEXT = '{"content":"Hi"}'
_CALL = '{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}'
_DONE = "data: [DONE]\n\n"
_START = '{"type":"tool-params-start","id":"c1","name":"f"}'
_END = '{"type":"tool-params-end","id":"c1"}'
_TOOL_CALL = '{"type":"tool-call","id":"c1","name":"f","params":"{}"}'
_RESULT = '{"type":"tool-result","id":"c1","result":1}'
_FINISH = '{"type":"finish","reason":"stop"}'
_TEXT_START = '{"type":"text-start","id":"t1"}'
_TEXT_DELTA = '{"type":"text-delta","id":"t1","delta":"Hi"}'
_TEXT_END = '{"type":"text-end","id":"t1"}'
_METADATA = '{"type":"response-metadata","id":"r1"}'

_FRAMES = (
    Rule(
        "frame-invalid-utf8",
        "error",
        "Every byte of an event is UTF-8.",
        "Strict readers raise; the others show U+FFFD where a character was.",
        'data: {"id":"r","choices":[{"delta":{"content":"caf\\xe9"}}]}',
    ),
    Rule(
        "frame-lines-split",
        "error",
        "A blank line stands between two events.",
        "By the standard, data lines without a blank line between them are one event: its JSON "
        "cannot be read.",
        _chunk('{"delta":{"content":"a"}}')
        + "\n"
        + _chunk('{"delta":{"content":"b"}}')
        + "\n"
        + _DONE,
    ),
    Rule(
        "frame-replayed",
        "warning",
        "No event comes twice under one SSE id.",
        "Clients that do not compare ids add the same text or arguments twice.",
        ("id: 7\n" + _deltas(_TEXT)) * 2,
    ),
    Rule(
        "frame-unterminated",
        "warning",
        "The last event has its blank line.",
        "The standard says to drop an event without one: clients lose the end of the stream.",
        _deltas(_TEXT) + _finish("stop") + "data: [DONE]",
    ),
)

_FIELDS = (
    Rule(
        "event-unknown",
        "note",
        "Every event is one that the wire defines.",
        "Clients ignore what they do not know, or stop at it.",
        'data: {"type":"progress"}\n\n' + _deltas(_TEXT),
    ),
    Rule(
        "field-coerced",
        "warning",
        "Every field has the JSON type that the wire gives it.",
        "Typed clients refuse the event, or hand on a value of another type.",
        _calls('{"index":"0","id":"c1","function":{"name":"f","arguments":"{}"}}'),
    ),
    Rule(
        "field-dropped",
        "warning",
        "No field holds something that cannot be used.",
        "Typed clients refuse the event; the others fail where they use the field.",
        _deltas('{"content":"Hi","tool_calls":7}'),
    ),
    Rule(
        "finish-inferred",
        "warning",
        "A stream that ends properly tells its finish reason.",
        "Clients cannot tell an answer that is complete from one that was cut.",
        _deltas(_TEXT) + _DONE,
    ),
    Rule(
        "finish-late-content",
        "warning",
        "Nothing but usage comes after the finish reason.",
        "Clients that stop at the finish reason lose what comes after it.",
        _finish("stop") + _deltas(_TEXT),
    ),
    Rule(
        "finish-repeated",
        "warning",
        "The finish reason is told once.",
        "Clients that hand over calls at the finish reason hand them over twice.",
        _deltas(_TEXT) + _finish("stop") + _finish("length"),
    ),
    Rule(
        "message-ignored",
        "warning",
        "A streamed answer is not sent once more as a whole message.",
        "Clients that read both show the answer twice.",
        _deltas(_TEXT) + _chunk('{"message":{"content":"Hi"},"finish_reason":"stop"}') + "\n\n",
    ),
    Rule(
        "metadata-id-minted",
        "note",
        "A response has an id.",
        "Nobody can ask for it again, or find it in a log.",
        'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n',
    ),
    Rule(
        "surrogate-lone",
        "warning",
        "A character is never cut in two between deltas.",
        "Readers that decode each delta by itself show U+FFFD, or raise when they write it.",
        _deltas('{"content":"\\ud83d"}', '{"content":"\\ude00"}'),
    ),
)

_CALLS = (
    Rule(
        "call-id-changed",
        "warning",
        "A call keeps the id it began with.",
        "Clients that know calls by their id make two calls of it.",
        _calls(_CALL, '{"index":0,"id":"c9","function":{"arguments":" "}}'),
    ),
    Rule(
        "call-id-collision",
        "error",
        "Two calls of one response have different ids.",
        "Their results cannot be told apart: one call gets the other's result.",
        _calls(_CALL, '{"index":1,"id":"c1","function":{"name":"g","arguments":"{}"}}'),
    ),
    Rule(
        "call-id-minted",
        "error",
        "A call has an id.",
        "The client has nothing to say whose result it sends back.",
        _calls('{"index":0,"function":{"name":"f","arguments":"{}"}}') + _finish("tool_calls"),
    ),
    Rule(
        "call-id-repeated",
        "warning",
        "The id of a call comes once, where the call begins.",
        "Clients that begin a call at every id make as many calls as there are deltas; clients "
        "that join strings make the id longer and longer.",
        _calls(
            '{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}',
            '{"index":0,"id":"c1","function":{"arguments":"}"}}',
        ),
    ),
    Rule(
        "call-index-drifted",
        "error",
        "The deltas of a call keep its index.",
        "Clients that know calls by their index make two calls of it, both broken.",
        _calls(
            '{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}',
            '{"index":1,"id":"c1","function":{"arguments":"}"}}',
        ),
    ),
    Rule(
        "call-index-missing",
        "error",
        "Every delta of a call says which call it belongs to.",
        "Clients raise, or put all calls into one.",
        _calls('{"id":"c1","function":{"name":"f","arguments":"{}"}}'),
    ),
    Rule(
        "call-index-reused",
        "error",
        "No two calls or blocks share an index.",
        "Clients join both into one call, whose name and arguments are neither's.",
        _calls(_CALL, '{"index":0,"id":"c2","function":{"name":"g","arguments":"{}"}}'),
    ),
    Rule(
        "call-name-contradicted",
        "error",
        "A call keeps its name.",
        "Some clients run one tool, some the other.",
        _calls(
            '{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}',
            '{"index":0,"function":{"name":"g","arguments":"}"}}',
        ),
    ),
    Rule(
        "call-name-joined",
        "warning",
        "The name of a call comes in one piece.",
        "Clients that announce the call at its first delta announce half a name.",
        _calls('{"index":0,"id":"c1","function":{"name":"get_"}}')
        + _calls('{"index":0,"function":{"name":"time"}}')
        + _calls('{"index":0,"function":{"arguments":"{}"}}'),
    ),
    Rule(
        "call-name-late",
        "error",
        "The name of a call comes before its arguments.",
        "Clients announce a call without a name, or raise.",
        _calls(
            '{"index":0,"id":"c1","function":{"arguments":"{"}}',
            '{"index":0,"function":{"name":"f","arguments":"}"}}',
        ),
    ),
    Rule(
        "call-name-repeated",
        "warning",
        "The name of a call comes once.",
        "Clients that join the pieces of a name call a tool that does not exist.",
        _calls(
            '{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}',
            '{"index":0,"function":{"name":"f","arguments":"}"}}',
        ),
    ),
    Rule(
        "call-nameless",
        "error",
        "A call has a name.",
        "There is no tool to run: clients raise, or drop the call.",
        _calls('{"index":0,"id":"c1","function":{"arguments":"{}"}}') + _finish("tool_calls"),
    ),
)

_ARGUMENTS = (
    Rule(
        "arguments-double-encoded",
        "error",
        "Arguments are the JSON of an object, not of a string that holds it.",
        "The tool gets a string where it wants its parameters.",
        _calls(
            '{"index":0,"id":"c1","function":{"name":"f","arguments":"\\"{\\\\\\"a\\\\\\":1}\\""}}'
        )
        + _finish("tool_calls"),
    ),
    Rule(
        "arguments-empty",
        "warning",
        "A call without arguments sends `{}`.",
        "Clients that parse the arguments raise: nothing is not JSON.",
        _calls('{"index":0,"id":"c1","function":{"name":"f","arguments":""}}')
        + _finish("tool_calls"),
    ),
    Rule(
        "arguments-invalid",
        "warning",
        "Arguments are whole, and JSON.",
        "The call cannot be run. A limit on tokens does this too, and then it is nobody's fault.",
        _calls('{"index":0,"id":"c1","function":{"name":"f","arguments":"{\\"a\\":"}}')
        + _finish("length"),
    ),
    Rule(
        "arguments-placeholder",
        "error",
        "Nothing stands before the arguments.",
        "Clients that join deltas get two JSON values in a row, which cannot be parsed.",
        _calls(_CALL, '{"index":0,"function":{"arguments":"{\\"a\\":1}"}}') + _finish("tool_calls"),
    ),
    Rule(
        "arguments-repeated",
        "error",
        "Arguments are streamed once.",
        "Clients that join deltas get them twice in a row, which cannot be parsed.",
        _calls(
            '{"index":0,"id":"c1","function":{"name":"f","arguments":"{\\"a\\":1}"}}',
            '{"index":0,"function":{"arguments":"{\\"a\\":1}"}}',
        ),
    ),
    Rule(
        "arguments-snapshot",
        "error",
        "A delta of arguments holds only what is new.",
        "Clients that join deltas get each beginning again, which cannot be parsed.",
        _calls(
            '{"index":0,"id":"c1","function":{"name":"f","arguments":"{\\"a"}}',
            '{"index":0,"function":{"arguments":"{\\"a\\":1}"}}',
        ),
    ),
)

_LIFECYCLE = (
    Rule(
        "after-error",
        "warning",
        "An error ends the content.",
        "Clients raise at the error and never see what follows.",
        'data: {"error":{"message":"overloaded"}}\n\n' + _deltas(_TEXT),
    ),
    Rule(
        "after-finish",
        "warning",
        "Nothing follows the end of a response.",
        "Clients stop reading there; a pooled connection may be read on by the next request.",
        _deltas(_TEXT) + _finish("stop") + _DONE + _DONE,
    ),
    Rule(
        "approval-without-call",
        "error",
        "Approval is asked only for a call that was made and not answered.",
        "The person is asked about nothing, and the answer is refused.",
        _parts('{"type":"tool-approval-request","approval_id":"a1","id":"c1"}'),
    ),
    Rule(
        "call-missing",
        "error",
        "Arguments that ended are followed by their call.",
        "Clients that wait for the complete call never run it.",
        _parts(_START, _END, _FINISH),
    ),
    Rule(
        "call-repeated",
        "error",
        "A call is handed over once.",
        "Clients run the tool twice.",
        _parts(_TOOL_CALL, _TOOL_CALL),
    ),
    Rule(
        "delta-empty",
        "note",
        "A delta says something.",
        "It costs an event and tells nothing.",
        _parts(_TEXT_START, '{"type":"text-delta","id":"t1","delta":""}'),
    ),
    Rule(
        "delta-late",
        "error",
        "No delta comes after the end of what it belongs to.",
        "Clients raise, or lose it.",
        _parts(_TEXT_START, _TEXT_END, _TEXT_DELTA),
    ),
    Rule(
        "end-early",
        "warning",
        "Arguments end after their last delta.",
        "Clients that parse the arguments at their end parse half of them.",
        _parts(_START, _END, '{"type":"tool-params-delta","id":"c1","delta":"{}"}', _TOOL_CALL),
    ),
    Rule(
        "end-missing",
        "error",
        "Whatever began has ended when the response finishes.",
        "Clients show it as still being written, for ever; some never run the call.",
        _parts(_TEXT_START, _TEXT_DELTA, _FINISH),
    ),
    Rule(
        "end-repeated",
        "warning",
        "Everything ends once.",
        "Clients that act at an end act twice.",
        _parts(_TEXT_START, _TEXT_DELTA, _TEXT_END, _TEXT_END),
    ),
    Rule(
        "end-without-start",
        "error",
        "Only what began can end.",
        "Clients that look it up raise.",
        _parts(_TEXT_END),
    ),
    Rule(
        "error-missing",
        "warning",
        "A response that fails says why.",
        "Nobody can tell whether to try again.",
        _parts('{"type":"finish","reason":"error"}'),
    ),
    Rule(
        "id-reused",
        "warning",
        "An id belongs to one text, reasoning or call of a response.",
        "Clients write the second into the first, or replace it.",
        _parts(_TEXT_START, _TEXT_DELTA, _TEXT_END, _TEXT_START),
    ),
    Rule(
        "metadata-missing",
        "error",
        "A response says who it is before it says anything else.",
        "Clients that build on the first event raise.",
        _parts(_TEXT_START, _TEXT_DELTA),
    ),
    Rule(
        "metadata-repeated",
        "warning",
        "A response says once who it is.",
        "Clients begin anew and drop what had come, or add a second answer.",
        _parts(_METADATA, _TEXT_START, '{"type":"response-metadata","id":"r2"}'),
    ),
    Rule(
        "name-changed",
        "error",
        "A call is handed over under the name it was announced with.",
        "Some clients run one tool, some the other.",
        _parts(_START, _END, '{"type":"tool-call","id":"c1","name":"g","params":"{}"}'),
    ),
    Rule(
        "result-early",
        "warning",
        "A result comes after its call.",
        "Clients that look the call up raise, or drop the result.",
        _parts(_START, _RESULT),
    ),
    Rule(
        "result-late",
        "warning",
        "Nothing follows the final result of a call.",
        "Clients show one result and go on with the other.",
        _parts(_TOOL_CALL, _RESULT, _RESULT),
    ),
    Rule(
        "result-without-call",
        "note",
        "A result belongs to a call of this response.",
        "It may belong to an earlier one; if it does not, clients cannot place it.",
        _parts(_RESULT),
    ),
    Rule(
        "start-missing",
        "error",
        "Everything begins before its first delta.",
        "Clients raise, or lose the text.",
        _parts(_METADATA, _TEXT_DELTA),
    ),
    Rule(
        "start-repeated",
        "error",
        "Everything begins once.",
        "Clients show it twice, and one of the two stays empty.",
        _parts(_TEXT_START, _TEXT_START),
    ),
    Rule(
        "stop-with-calls",
        "error",
        "A response with calls to run does not finish with the reason for a plain answer.",
        "Agents that look at the reason take the turn as over and run no tool.",
        _calls(_CALL) + _finish("stop"),
    ),
    Rule(
        "whole-contradicts",
        "error",
        "A value that is repeated at its end is the one that was streamed.",
        "Clients that read deltas and clients that read the end disagree.",
        _calls(
            '{"index":0,"id":"c1","function":{"name":"f","arguments":"{\\"a\\":"}}',
            '{"index":0,"function":{"arguments":"1}"}}',
            '{"index":0,"function":{"arguments":"{\\"a\\":2}"}}',
        ),
    ),
    Rule(
        "whole-extends",
        "warning",
        "A value that is repeated at its end holds no more than was streamed.",
        "Clients that read deltas lose the rest.",
        _parts(_TEXT_START, _TEXT_DELTA, '{"type":"text-end","id":"t1","whole":"Hi there"}'),
    ),
)

_TEXTS = (
    Rule(
        "markup-call",
        "warning",
        "A call is sent as a call, not as markup inside the text.",
        "Clients show the markup, and nothing is run. Reported only if the quirks say to read it.",
        _deltas('{"content":"<tool_call>{\\"name\\":\\"f\\",\\"arguments\\":{}}</tool_call>"}'),
    ),
    Rule(
        "think-closer-dropped",
        "warning",
        "The answer holds no `</think>` of reasoning that came by its own field.",
        "Clients show the tag.",
        _deltas('{"reasoning_content":"Hm."}', '{"content":"</think>Hi"}'),
    ),
    Rule(
        "think-tags",
        "warning",
        "Reasoning has a field of its own.",
        "Clients that do not know the tags show the reasoning as part of the answer.",
        _deltas('{"content":"<think>Hm.</think>Hi"}'),
    ),
    Rule(
        "findings-suppressed",
        "note",
        "A response has no more findings than can be listed.",
        "What else is wrong with it is not shown.",
        "(more than 1000 findings in one response)",
    ),
)

_FAILURES = (
    Rule(
        "error-reported",
        "note",
        "The response does not fail.",
        "The stream says so itself, as it should: calls of a failed response must not be run.",
        'data: {"error":{"message":"overloaded"}}\n\n',
    ),
    Rule(
        "truncated",
        "error",
        "A stream ends with its terminal event.",
        "Clients take half an answer for a whole one, or wait until they give up.",
        _deltas(_TEXT),
    ),
    Rule(
        "malformed",
        "error",
        "Every event can be read.",
        "Clients raise at it, or lose what it said.",
        'data: {"choices":[{"delta":\n\n' + _deltas(_TEXT),
    ),
    Rule(
        "empty",
        "error",
        "A response holds content, or at least its end.",
        "Clients have nothing to show and no error to tell why.",
        ": keep-alive\n\n",
    ),
)

RULES: tuple[Rule, ...] = (
    *_FRAMES,
    *_FIELDS,
    *_CALLS,
    *_ARGUMENTS,
    *_LIFECYCLE,
    *_TEXTS,
    *_FAILURES,
)

FAILURES: dict[ErrorKind, str] = {
    "upstream": "error-reported",
    "truncated": "truncated",
    "malformed": "malformed",
    "empty": "empty",
    "timeout": "error-reported",
    "cancelled": "error-reported",
    "too-large": "malformed",
    "internal": "error-reported",
}
"""The rule that a stream breaks by ending in this error."""
