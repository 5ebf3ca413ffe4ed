"""The command line, run as people run it: the installed `weft`, real files, real pipes."""

import gzip
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import weft
from tests import chat, responses
from tests.weft_command import ENVIRONMENT, WEFT, Done, run

COMMANDS = ["parts", "assemble", "convert", "check", "demo"]
READERS = [["parts"], ["assemble"], ["convert", "--to", "openai-responses"]]


def text_stream(id: str = "chatcmpl-1", text: str = "Hi") -> bytes:
    return chat.stream([chat.chunk({"content": text}, id=id), chat.chunk({}, "stop", id=id)], None)


CALL = chat.stream(
    [
        chat.chunk({"content": "Let me look."}),
        chat.calls(chat.entry(0, "call_1", "look", "")),
        chat.calls(chat.entry(0, "call_1", None, '{"at":')),
        chat.calls(chat.entry(0, "call_1", None, '"sea"}')),
        chat.calls(chat.entry(1, "call_2", None, '{"x"')),
    ],
    "tool_calls",
)
CALL_PARTS = [
    (
        '{"type":"response-metadata","id":"chatcmpl-1","model":"m-1","created":1790000000,'
        '"dialect":"openai-chat"}'
    ),
    '{"type":"text-start","id":"text_0"}',
    '{"type":"text-delta","id":"text_0","delta":"Let me look."}',
    '{"type":"text-end","id":"text_0"}',
    '{"type":"tool-params-start","id":"call_1","name":"look"}',
    '{"type":"tool-params-delta","id":"call_1","delta":"{\\"at\\":"}',
    '{"type":"tool-params-delta","id":"call_1","delta":"\\"sea\\"}"}',
    '{"type":"tool-params-end","id":"call_1"}',
    '{"type":"tool-call","id":"call_1","name":"look","params":"{\\"at\\":\\"sea\\"}"}',
    '{"type":"tool-call","id":"call_2","name":"","params":"{\\"x\\"","invalid":"nameless"}',
    '{"type":"finish","reason":"tool-calls","raw_reason":"tool_calls","model":"m-1"}',
]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "call.sse"
    path.write_bytes(CALL)
    return path


# Help


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command_and_cuts_no_summary_short(flag: str) -> None:
    done = run(flag)
    assert (done.code, done.err) == (0, "")
    listed = done.out.partition("Commands:\n")[2].splitlines()
    further = [
        *(
            "ask",
            "capture",
            "case",
            "chaos",
            "config",
            "diff",
            "doctor",
            "export",
            "import",
            "init",
        ),
        *("keys", "replay", "run", "runs", "serve", "test", "trace", "usage", "verify", "worker"),
    ]
    assert [line.split()[0] for line in listed] == sorted((*COMMANDS, *further))
    assert [line for line in listed if line.endswith("...")] == []
    for word in ("CAPTURE", "standard input", "standard output", "standard error", "--version"):
        assert word in done.out


READING = ("CAPTURE", "--from DIALECT", "detected", "--quiet", "Findings", "standard error")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("parts", [*READING, "openai-chat", "Exit: 0, or 2"]),
        ("assemble", [*READING, "openai-chat", "Exit: 0, or 2"]),
        ("check", ["CAPTURE...", "--dialect", "--format", "--explain", "--rules", "Exit: 0"]),
        (
            "convert",
            [
                *READING,
                "--to DIALECT",
                "openai-responses",
                "open-responses",
                "[required]",
                "--request",
                "adapted",
                "Exit: 0, or 2",
                "also 1",
            ],
        ),
        ("demo", ["--raw", "--pace", "[default: 8.0]", "231"]),
    ],
)
def test_the_help_of_a_command_lists_its_options_and_an_example(
    command: str, expected: list[str]
) -> None:
    done = run(command, "--help")
    assert (done.code, done.err) == (0, "")
    text = re.sub(r"-\n +", "-", done.out)  # a long line may break behind a hyphen
    assert [word for word in expected if word not in text] == []
    assert f"    weft {command} " in text


def test_the_help_of_assemble_lists_every_key_it_prints(capture: Path) -> None:
    words = run("assemble", "--help").out.replace(",", " ").replace(".", " ").split()
    keys = json.loads(run("assemble", capture).out)
    assert [key for key in keys if key not in words] == []


def test_the_version_is_that_of_the_package() -> None:
    done = run("--version")
    assert (done.code, done.out, done.err) == (0, "weft, version 0.1.0\n", "")


# Data


def test_parts_prints_one_object_a_line_with_its_type_first(capture: Path) -> None:
    done = run("parts", capture)
    assert done.code == 0
    assert done.lines == CALL_PARTS


def test_assemble_prints_the_object_of_the_contract(capture: Path) -> None:
    done = run("assemble", capture)
    assert done.code == 0
    assert json.loads(done.out) == {
        "id": "chatcmpl-1",
        "model": "m-1",
        "choice": 0,
        "text": "Let me look.",
        "reasoning": "",
        "refusal": "",
        "tool_calls": [
            {
                "id": "call_1",
                "name": "look",
                "kind": "function",
                "arguments": {"at": "sea"},
                "provider_executed": False,
            }
        ],
        "invalid_tool_calls": [
            {"id": "call_2", "name": "", "raw": '{"x"', "reason": "nameless"},
        ],
        "tool_results": [],
        "approval_requests": [],
        "sources": [],
        "finish_reason": "tool-calls",
        "raw_finish_reason": "tool_calls",
        "usage": None,
        "error": None,
        "findings": [
            {
                "code": "call-id-repeated",
                "at": 2,
                "offset": CALL.index(b"data: ", CALL.index(b'"look"')),
                "detail": "call 'call_1': its id comes again with a later delta",
            },
            {
                "code": "call-nameless",
                "at": 6,
                "offset": CALL.index(b"data: [DONE]"),
                "detail": "call 'call_2': it never got a name",
            },
        ],
    }


def test_assemble_prints_usage_error_sources_and_a_free_form_call_with_their_keys() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    custom = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}
    raw = chat.stream(
        [
            chat.chunk({"content": "See "}, citations=["https://a.example"], usage=usage),
            chat.calls(custom),
        ],
        "tool_calls",
    )
    printed = json.loads(run("assemble", "-", given=raw).out)
    assert printed["usage"] == {
        "input_tokens": 7,
        "output_tokens": 2,
        "total_tokens": 9,
        "reasoning_tokens": None,
        "cache_read_tokens": None,
        "cache_write_tokens": None,
    }
    assert [call["arguments"] for call in printed["tool_calls"]] == ["ls -l"]
    assert [source["url"] for source in printed["sources"]] == ["https://a.example"]
    error = b'data: {"error":{"message":"busy","code":429}}\n\n'
    failed = json.loads(run("assemble", "-", "--from", "openai-chat", given=error).out)
    assert failed["error"] == {"kind": "upstream", "message": "busy", "code": 429}
    assert (failed["finish_reason"], failed["usage"]) == ("error", None)


def test_convert_writes_what_the_library_converts(capture: Path) -> None:
    done = run("convert", capture, "--to", "openai-responses")
    assert done.code == 0
    assert done.out.encode() == weft.convert(CALL, "openai-chat", "openai-responses")
    assert run("convert", capture, "--to", "open-responses") == done


QUESTION = b"""{
  "model": "m", "seed": 7, "max_tokens": 9, "logit_bias": null,
  "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
}"""


def convert_request(body: bytes, target: str, source: str = "openai-chat") -> Done:
    return run("convert", "--request", "-", "--from", source, "--to", target, given=body)


def test_a_request_is_converted_and_each_difference_is_a_line() -> None:
    done = convert_request(QUESTION, "anthropic-messages")
    assert done.code == 0
    translated = weft.convert_request(QUESTION, "openai-chat", "anthropic-messages")
    assert done.out.encode() == translated.body + b"\n"
    assert json.loads(done.out) == {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "system": [{"type": "text", "text": "Be brief."}],
    }
    assert done.err.splitlines() == [
        "messages[0].role: adapted: sent as system: the target has no developer role",
        "seed: warned: dropped: anthropic-messages has no equivalent",
    ]
    assert convert_request(QUESTION, "openai-chat") == Done(0, QUESTION_AS_WRITTEN, ""), (
        "nothing is lost on the way to where it came from"
    )


QUESTION_AS_WRITTEN = (
    '{"model":"m","seed":7,"max_tokens":9,"logit_bias":null,'
    '"messages":[{"role": "developer", "content": "Be brief."},{"role": "user", "content": "Hi"}]}'
    "\n"
)


@pytest.mark.parametrize(
    ("body", "source", "target", "code", "expected"),
    [
        (
            b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"n":2}',
            "openai-chat",
            "openai-responses",
            1,
            "n: choices is not available on openai-responses; ask for one answer",
        ),
        (b'{"model":"m"}', "openai-chat", "gemini", 2, "-: object missing required field"),
        (b"data: [DONE]", "gemini", "openai-chat", 2, "-: "),
        (QUESTION, "openai-chat", "ai-sdk", 2, "ai-sdk has streams only, and no requests"),
        (b"{}", "ai-sdk", "openai-chat", 2, "ai-sdk has streams only, and no requests"),
    ],
    ids=["refused", "no-request", "no-json", "to-a-stream", "from-a-stream"],
)
def test_a_request_that_cannot_be_converted_is_reported_in_one_line(
    body: bytes, source: str, target: str, code: int, expected: str
) -> None:
    done = convert_request(body, target, source)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert done.err.startswith(f"weft: {expected}")


def test_a_request_does_not_tell_its_dialect() -> None:
    done = run("convert", "--request", "-", "--to", "gemini", given=QUESTION)
    assert (done.code, done.out) == (2, "")
    assert "--request needs --from" in done.err


@pytest.mark.parametrize("command", READERS, ids=lambda command: str(command[0]))
def test_standard_input_gives_what_the_file_gives(command: list[str], capture: Path) -> None:
    done = run(*command, capture, "--quiet")
    assert run(*command, "-", "-q", given=CALL) == done
    assert run(*command, "-", "-q", "--from", "openai-chat", given=CALL) == done
    assert run(*command, "/dev/stdin", "-q", given=CALL) == done


AGAIN = "call 'call_1': its id comes again with a later delta"
REPAIRS = [
    f"event 2 (byte 426): finding call-id-repeated: {AGAIN}",
    "event 6 (byte 1318): finding call-nameless: call 'call_2': it never got a name",
]
LOST = (
    "event 6 (byte 1318): finding not-carried: tool-call: the call has no name, or was cut off "
    "before it was announced"
)


@pytest.mark.parametrize("command", READERS, ids=lambda command: str(command[0]))
def test_findings_are_one_line_each_on_standard_error_and_quiet_leaves_them_out(
    command: list[str], capture: Path
) -> None:
    places = [*REPAIRS, LOST] if command[0] == "convert" else REPAIRS
    for path, given in ((str(capture), b""), ("-", CALL)):
        printed = run(*command, path, given=given)
        assert printed.err.splitlines() == [f"{path}:{place}" for place in places]
        quiet = run(*command, path, "--quiet", given=given)
        assert (quiet.code, quiet.out, quiet.err) == (printed.code, printed.out, "")


def test_a_finding_is_one_line_whatever_the_stream_says() -> None:
    id = "a\nb\x1b[31m"
    entries = [chat.entry(0, id, "look", "{"), chat.entry(0, id, None, "}")]
    raw = chat.stream([chat.calls(entry) for entry in entries], "tool_calls")
    (line,) = run("parts", "-", given=raw).err.splitlines()
    assert line.endswith(r"call 'a\nb\x1b[31m': its id comes again with a later delta")


def test_what_several_choices_share_is_reported_once() -> None:
    choices = [
        {"index": index, "delta": {"content": "Hi"}, "finish_reason": "stop"} for index in (0, 1)
    ]
    odd = chat.chunk({"content": "?"}).replace(b"?", b"\xff")
    done = run("assemble", "-", given=odd + chat.stream([chat.chunk({}, choices=choices)], None))
    assert [json.loads(line)["choice"] for line in done.lines] == [0, 1]
    assert len([line for line in done.err.splitlines() if "frame-invalid-utf8" in line]) == 1


def test_a_pipe_of_two_commands_works(capture: Path) -> None:
    shell = f"cat '{capture}' | '{WEFT}' parts --quiet - | wc -l"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, check=False, env=ENVIRONMENT)
    assert (done.returncode, int(done.stdout), done.stderr) == (0, len(CALL_PARTS), b"")


HEAD = b"HTTP/2 200 \r\ncontent-type: text/event-stream\r\nx-request-id: 7\r\n\r\n"
BODY = (
    b'{"id":"chatcmpl-1","object":"chat.completion",'
    b'"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'
)


@pytest.mark.parametrize(
    "raw",
    [
        text_stream().replace(b"data: ", b"").replace(b"\n\n", b"\n"),
        json.dumps(json.loads(BODY), indent=2).encode(),
        text_stream().replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + text_stream(),
        HEAD + text_stream(),
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + text_stream(),
        HEAD + BODY,
    ],
    ids=["json-lines", "json-body", "crlf", "bom", "head", "two-heads", "head-and-body"],
)
def test_every_form_of_a_capture_is_read(raw: bytes) -> None:
    done = run("assemble", "-", given=raw)
    assert (done.code, done.err) == (0, "")
    printed = json.loads(done.out)
    assert (printed["id"], printed["text"]) == ("chatcmpl-1", "Hi")
    assert (printed["finish_reason"], printed["error"]) == ("stop", None)


def test_the_bytes_of_a_head_are_counted(tmp_path: Path) -> None:
    done = run("parts", "-", given=HEAD + CALL)
    assert done.lines == CALL_PARTS
    assert f"-:event 2 (byte {426 + len(HEAD)}): finding call-id-repeated" in done.err


@pytest.mark.parametrize("body", [BODY, BODY + b"\n", text_stream()])
def test_each_of_several_responses_may_have_a_head(body: bytes) -> None:
    done = run("assemble", "-", given=(HEAD + body) * 3)
    assert [json.loads(line)["text"] for line in done.lines] == ["Hi"] * 3
    assert (done.code, done.err) == (0, "")


def test_several_responses_in_one_capture_are_one_line_each() -> None:
    raw = text_stream("one", "first") + text_stream("two", "second")
    printed = [json.loads(line) for line in run("assemble", "-", given=raw).lines]
    assert [(one["id"], one["choice"], one["text"]) for one in printed] == [
        ("one", 0, "first"),
        ("two", 0, "second"),
    ]
    kinds = [json.loads(line)["type"] for line in run("parts", "-", given=raw).lines]
    assert kinds.count("response-metadata") == kinds.count("finish") == 2
    assert kinds[0] == "response-metadata"
    assert kinds[-1] == "finish"
    converted = run("convert", "-", "--to", "openai-responses", given=raw).out
    assert converted.count("data: [DONE]\n\n") == 2


def test_several_choices_are_one_line_each() -> None:
    def choice(index: int, text: str, reason: str | None = None) -> bytes:
        choices = [{"index": index, "delta": {"content": text}, "finish_reason": reason}]
        return chat.chunk({}, choices=choices)

    raw = chat.stream(
        [choice(0, "a"), choice(1, "x"), choice(0, "b", "stop"), choice(1, "y", "length")], None
    )
    printed = [json.loads(line) for line in run("assemble", "-", given=raw).lines]
    assert [(one["choice"], one["text"], one["finish_reason"]) for one in printed] == [
        (0, "ab", "stop"),
        (1, "xy", "length"),
    ]


def test_a_broken_stream_is_data_and_no_failure_of_the_command() -> None:
    cut = CALL[: CALL.index(b'"sea')]
    done = run("assemble", "-", given=cut)
    assert done.code == 0
    printed = json.loads(done.out)
    assert printed["error"]["kind"] == "truncated"
    assert [call["reason"] for call in printed["invalid_tool_calls"]] == ["stream-failed"]
    assert printed["tool_calls"] == []


def test_equal_captures_give_equal_bytes() -> None:
    nameless = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    for command in READERS:
        first = run(*command, "-", given=nameless)
        assert first == run(*command, "-", given=nameless)
        assert first.code == 0


# Errors

EXPECTED = "not a stream: expected server-sent events, JSON lines or a JSON body"
PAGE = b"<!doctype html>\n<html><body>502 Bad Gateway</body></html>\n"
UNREADABLE = {
    "empty": (b"", "byte 0, event 0: empty: there is no stream in it"),
    "blank": (b"\n\n\n", "byte 0, event 0: empty: there is no stream in it"),
    "noise": (bytes(range(128, 256)) * 9, f"byte 0, event 0: binary data, {EXPECTED}"),
    "html": (PAGE, f"byte 0, event 0: an HTML page, {EXPECTED}"),
    "html-with-head": (
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\n\r\n" + PAGE,
        f"byte 0, event 0: an HTML page (HTTP 502), {EXPECTED}",
    ),
    "head-alone": (b"HTTP/2 204 \r\n\r\n", "byte 0, event 0: no body (HTTP 204)"),
    "png": (
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 9,
        f"byte 0, event 0: a PNG image, {EXPECTED}",
    ),
    "gzip": (gzip.compress(CALL), f"byte 0, event 0: compressed with gzip, {EXPECTED}"),
    "log": (
        b"[2026-11-17 08:49:04] INFO: started\n[2026-11-17 08:49:05] WARN: slow\n" * 9,
        f"byte 0, event 0: plain text, {EXPECTED}",
    ),
    "prose": (b"2026-11-17 INFO data: no\n", f"byte 0, event 0: plain text, {EXPECTED}"),
    "comments": (b": hello\n\n", "byte 0, event 0: a stream without a single event"),
    "ambiguous": (
        b': hello\n\ndata: {"x":1}\n\ndata: [DONE]\n\n',
        "byte 9, event 0: cannot tell the dialect; say which with --from: "
        + ", ".join(weft.DIALECTS),
    ),
    "several-dialects": (
        b'data: {"type":"message_start","choices":[]}\n\n',
        (
            "byte 0, event 0: cannot tell the dialect; say which with --from: "
            "openai-chat, anthropic-messages"
        ),
    ),
}
NO_STREAM = [
    name for name in UNREADABLE if name not in ("comments", "ambiguous", "several-dialects")
]


@pytest.mark.parametrize("command", READERS, ids=lambda command: str(command[0]))
@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_capture_is_one_line_with_its_place(
    name: str, command: list[str], tmp_path: Path
) -> None:
    raw, expected = UNREADABLE[name]
    path = tmp_path / name
    path.write_bytes(raw)
    assert run(*command, path) == Done(2, "", f"weft: {path}: {expected}\n")


@pytest.mark.parametrize("name", NO_STREAM)
def test_what_is_no_stream_is_unreadable_even_if_its_dialect_is_given(name: str) -> None:
    raw, expected = UNREADABLE[name]
    done = run("parts", "-", "--from", "openai-chat", given=raw)
    assert done == Done(2, "", f"weft: -: {expected}\n")


def test_a_stream_without_an_event_can_be_read_if_its_dialect_is_given() -> None:
    done = run("assemble", "-", "--from", "openai-chat", given=b": hello\n\n")
    assert (done.code, json.loads(done.out)["error"]["kind"]) == (0, "empty")


def test_an_unreadable_standard_input_is_named_by_its_dash() -> None:
    expected = UNREADABLE["html"][1]
    assert run("parts", "-", given=UNREADABLE["html"][0]) == Done(2, "", f"weft: -: {expected}\n")


@pytest.mark.parametrize("command", READERS, ids=lambda command: str(command[0]))
def test_a_file_that_cannot_be_read_is_one_line(command: list[str], tmp_path: Path) -> None:
    missing = tmp_path / "missing.sse"
    expected = f"weft: {missing}: byte 0, event 0: No such file or directory\n"
    assert run(*command, missing) == Done(2, "", expected)
    expected = f"weft: {tmp_path}: byte 0, event 0: Is a directory\n"
    assert run(*command, tmp_path) == Done(2, "", expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["parts"], "Error: Missing argument 'CAPTURE'."),
        (["assemble"], "Error: Missing argument 'CAPTURE'."),
        (["parts", "a", "b"], "Error: Got unexpected extra argument (b)"),
        (["convert", "-", "--to", "latin"], "Error: Invalid value for '--to': 'latin' is not one"),
        (["convert", "-"], "Error: Missing option '--to'."),
        (
            ["parts", "-", "--from", "latin"],
            "Error: Invalid value for '--from': 'latin' is not one",
        ),
        (["demo", "--pace", "slow"], "Error: Invalid value for '--pace': 'slow' is not a valid"),
        (["weave"], "Error: No such command 'weave'."),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_says_what_is_wrong(arguments: list[str], expected: str) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert expected in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", READERS, ids=lambda command: str(command[0]))
@pytest.mark.parametrize("size", [1, 5000])
def test_a_reader_that_went_away_gives_no_noise(
    command: list[str], size: int, tmp_path: Path
) -> None:
    path = tmp_path / "long.sse"
    path.write_bytes(chat.stream([chat.chunk({"content": "Hi there"})] * size))
    assert complaint_of_a_closed_pipe(*command, str(path)) == b""


def test_the_demo_gives_no_noise_when_its_reader_went_away() -> None:
    assert complaint_of_a_closed_pipe("demo", "--raw", "--pace", "0") == b""


def complaint_of_a_closed_pipe(*arguments: str) -> bytes:
    """What stands on standard error when nobody reads standard output: `weft … | true`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [str(WEFT), *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
            env=ENVIRONMENT,
        )
    finally:
        os.close(writer)
    return done.stderr


def test_the_first_line_of_a_long_stream_can_be_taken(tmp_path: Path) -> None:
    path = tmp_path / "long.sse"
    path.write_bytes(chat.stream([chat.chunk({"content": "Hi there"})] * 5000))
    shell = f"'{WEFT}' parts '{path}' | head -n 1"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, check=False, env=ENVIRONMENT)
    assert done.stdout.decode().splitlines() == CALL_PARTS[:1]
    assert done.stderr == b""


# The demo


def test_the_demo_turns_231_chunks_with_an_id_into_one_announced_call() -> None:
    done = run("demo", "--raw", "--pace", "0")
    assert (done.code, done.err) == (0, "")
    events = responses.events(done.out.encode())
    added = responses.of_type(events, "response.output_item.added")
    assert [event["item"]["name"] for event in added] == ["run-sandbox"]
    assert [event["item"]["call_id"] for event in added] == ["functions.run-sandbox:2"]
    assert len(responses.item_ids(events)) == 1
    deltas = responses.of_type(events, "response.function_call_arguments.delta")
    (call,) = responses.of_type(events, "response.output_item.done")
    assert "".join(event["delta"] for event in deltas) == call["item"]["arguments"]
    assert json.loads(call["item"]["arguments"])["code"].startswith("print(0)\n")
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["output"] == [call["item"]]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_the_demo_is_the_same_each_time() -> None:
    assert run("demo", "--raw", "--pace", "0") == run("demo", "--raw", "--pace", "0")


def test_the_demo_shows_what_came_in_what_went_out_and_what_was_found() -> None:
    done = run("demo", "--pace", "0")
    assert (done.code, done.err) == (0, "")
    for expected in ("openai-chat", "openai-responses", "call-id-repeated", "response.completed"):
        assert expected in done.out
    assert done.lines[-1] == "231 chunks with its id in, 1 call out: run-sandbox"
