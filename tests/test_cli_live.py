"""Pipes, read live: what was written comes out before the next event is written, and no more is
held than one response. Real processes of `weft`, real pipes."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import weft
from tests import chat
from tests.daily import one_in
from tests.test_cli import BODY, HEAD, text_stream
from tests.weft_command import ENVIRONMENT, WEFT, ForkedWeft, run

PATIENCE = 60.0
"""Seconds until a process that prints nothing is given up."""
READERS = [["parts"], ["assemble"], ["convert", "--to", "openai-responses"], ["check"]]
SOME_READERS = pytest.mark.parametrize("command", one_in(2, READERS, lambda command: command[0]))
"""The commands share their reader: `make test` has two of them, `make test-long` has all."""


class Live:
    """A running `weft` that reads from a pipe."""

    def __init__(self, *arguments: str) -> None:
        stdin, writer = os.pipe()
        self.process = ForkedWeft(arguments, Path.cwd(), ENVIRONMENT, stdin)
        self._stdin = os.fdopen(writer, "wb", buffering=0)
        self._held = {1: b"", 2: b""}

    def write(self, data: bytes) -> None:
        self._stdin.write(data)

    def line(self, stream: int = 1) -> str:
        """The next line of standard output, or error, which must come without further input."""
        pipe = self.process.stdout if stream == 1 else self.process.stderr
        while b"\n" not in self._held[stream]:
            ready, _, _ = select.select([pipe], [], [], PATIENCE)
            assert ready, "nothing is printed for what was written"
            data = os.read(pipe.fileno(), 65536)
            assert data, "the output ended"
            self._held[stream] += data
        line, self._held[stream] = self._held[stream].split(b"\n", 1)
        return line.decode()

    def finish(self) -> tuple[int, str, str]:
        """Closes the input; returns the exit code and what else is printed."""
        self._stdin.close()
        out, err = self.process.communicate(PATIENCE)
        return self.process.wait(), self._held[1].decode() + out, err

    def close(self) -> None:
        self._stdin.close()
        self.process.close()


def live(*arguments: str) -> closing[Live]:
    return closing(Live(*arguments))


EVENTS = [
    chat.chunk({"content": "Hel"}),
    chat.chunk({"content": "lo"}),
    chat.calls(chat.entry(0, "call_1", "look", '{"at":')),
]
PARTS = [
    ["response-metadata", "text-start", "text-delta"],
    ["text-delta"],
    ["text-end", "tool-params-start", "tool-params-delta"],
]


@pytest.mark.parametrize("dialect", [(), ("--from", "openai-chat")], ids=["detected", "given"])
@pytest.mark.parametrize("start", [b"", HEAD, b": hello\n\n"], ids=["bare", "head", "comment"])
def test_parts_come_as_soon_as_their_event_came(start: bytes, dialect: tuple[str, ...]) -> None:
    with live("parts", "-", *dialect) as weft:
        weft.write(start)
        for event, expected in zip(EVENTS, PARTS, strict=True):
            weft.write(event)
            assert [json.loads(weft.line())["type"] for _ in expected] == expected
        weft.write(chat.chunk({}, "tool_calls") + b"data: [DONE]\n\n")
        code, out, _ = weft.finish()
    kinds = [json.loads(line)["type"] for line in out.splitlines()]
    assert (code, kinds) == (0, ["tool-params-end", "tool-call", "finish"])


def test_json_lines_are_read_live_too() -> None:
    with live("parts", "-") as weft:
        for event, expected in zip(EVENTS, PARTS, strict=True):
            weft.write(event.removeprefix(b"data: ").rstrip() + b"\n")
            assert [json.loads(weft.line())["type"] for _ in expected] == expected


def test_a_dialect_is_detected_by_the_first_event_that_shows_it() -> None:
    with live("parts", "-") as weft:
        weft.write(b'event: ping\ndata: {"type":"ping"}\n\n')
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
        start = json.dumps({"type": "message_start", "message": message}).encode()
        weft.write(b"event: message_start\ndata: " + start + b"\n\n")
        assert json.loads(weft.line())["dialect"] == "anthropic-messages"


def test_what_is_no_stream_is_refused_before_it_ends() -> None:
    with live("parts", "-") as weft:
        with suppress(BrokenPipeError):  # it need not read all of this
            weft.write(b"INFO nothing to see here\n" * 50_000)
        assert "plain text, not a stream" in weft.line(2)
        assert weft.process.wait(PATIENCE) == 2


def test_findings_come_with_their_event() -> None:
    with live("parts", "-") as weft:
        weft.write(chat.calls(chat.entry(0, "call_1", "look", "{")))
        weft.write(chat.calls(chat.entry(0, "call_1", None, "}")))
        assert "finding call-id-repeated" in weft.line(2)


def test_converted_events_come_as_soon_as_their_event_came() -> None:
    with live("convert", "-", "--to", "anthropic-messages") as weft:
        weft.write(EVENTS[0])
        lines: list[str] = []
        while not lines or "Hel" not in lines[-1]:
            lines.append(weft.line())
        assert lines[0] == "event: message_start"
        weft.write(EVENTS[1])
        assert [weft.line() for _ in range(2)] == ["", "event: content_block_delta"]
        assert '"text":"lo"' in weft.line()


def test_a_response_is_assembled_when_the_next_one_begins() -> None:
    with live("assemble", "-") as weft:
        weft.write(text_stream("one", "first"))
        for id in ("two", "three"):
            weft.write(text_stream(id, "more"))
            assert json.loads(weft.line())["id"] in ("one", "two")
        code, out, _ = weft.finish()
    assert (code, json.loads(out)["id"]) == (0, "three")


def test_a_response_is_checked_when_the_next_one_begins() -> None:
    broken = chat.stream([chat.chunk({"role": "assistant", "content": "\ud83d"})])
    with live("check", "-") as weft:
        weft.write(broken)
        weft.write(chat.chunk({"role": "assistant", "content": "Hi"}))
        assert weft.line().startswith("-:1:1: warning lifecycle/surrogate-lone: ")


def choice(index: int, text: str, reason: str | None = None) -> bytes:
    entry = {"index": index, "delta": {"content": text}, "finish_reason": reason}
    return chat.chunk({}, choices=[entry])


def test_choice_0_comes_live_and_the_others_behind_it() -> None:
    with live("parts", "-", "--quiet") as weft:
        weft.write(choice(1, "x") + choice(0, "a"))
        assert [json.loads(weft.line())["type"] for _ in PARTS[0]] == PARTS[0]
        weft.write(choice(1, "y", "stop") + choice(0, "b", "stop") + b"data: [DONE]\n\n")
        code, out, _ = weft.finish()
    parts = [json.loads(line) for line in out.splitlines()]
    assert [part["delta"] for part in parts if part["type"] == "text-delta"] == ["b", "x", "y"]
    assert [part["type"] for part in parts].count("finish") == 2
    assert code == 0


LATE = [choice(0, text) for text in "abcdefgh"] * 9 + [choice(0, "", "stop")]


def test_a_choice_that_is_named_late_is_read_whole() -> None:
    raw = chat.stream([*LATE, choice(3, "x"), choice(3, "y", "length")], None)
    printed = [json.loads(line) for line in run("assemble", "-", given=raw).lines]
    assert [(one["choice"], one["id"], one["text"]) for one in printed] == [
        (0, "chatcmpl-1", "abcdefgh" * 9),
        (3, "chatcmpl-1", "xy"),
    ]


@pytest.mark.parametrize("command", READERS[:3], ids=lambda command: str(command[0]))
@pytest.mark.parametrize("raw", [b"".join(EVENTS), BODY, BODY + b"\n" + BODY, HEAD + BODY])
def test_a_file_and_a_pipe_give_the_same(command: list[str], raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(raw)
    file = run(*command, path, "--quiet")
    with live(*command, "-", "--quiet") as weft:
        for byte in raw:
            weft.write(bytes([byte]))
        assert weft.finish() == (file.code, file.out, file.err)


# Memory

TEXT = "x" * 100
PADDED = chat.chunk({"content": TEXT}, obfuscation="p" * 10_000)
LONG = 6_000  # events, 60 MB of them


def peak(*arguments: str, given: Iterable[bytes]) -> int:
    """Bytes that a `weft` that reads this from a pipe needs at most."""
    program = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, code)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(WEFT), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdin is not None
    for data in given:
        process.stdin.write(data)
    out, _ = process.communicate()
    size, code = map(int, out.split())
    assert code in (0, 1)
    return size


def long_stream() -> Iterator[bytes]:
    for _ in range(LONG):
        yield PADDED
    yield chat.chunk({}, "stop") + b"data: [DONE]\n\n"


def many_responses() -> Iterator[bytes]:
    for number in range(LONG // 10):
        for _ in range(10):
            yield chat.chunk({"content": TEXT}, id=f"chatcmpl-{number}", obfuscation="p" * 10_000)
        yield chat.chunk({}, "stop", id=f"chatcmpl-{number}") + b"data: [DONE]\n\n"


# Each way of growing is shown by one of them, and by all in `make test-long`.
@pytest.mark.parametrize(
    ("command", "stream"),
    [
        pytest.param(
            command,
            stream,
            marks=[] if command[0] == shown_by else pytest.mark.long,
            id=f"{name}-{command[0]}",
        )
        for name, stream, shown_by in (
            ("long", long_stream, "parts"),
            ("many", many_responses, "check"),
        )
        for command in READERS
    ],
)
def test_memory_does_not_grow_with_what_is_read(
    command: list[str], stream: Callable[[], Iterator[bytes]]
) -> None:
    little = peak(*command, "-", given=[text_stream()])
    assert peak(*command, "-", given=stream()) < little + (24 << 20)


# Ends


@SOME_READERS
def test_ctrl_c_ends_quietly(command: list[str]) -> None:
    with live(*command, "-") as weft:
        weft.write(EVENTS[0] * 2 + chat.stream([EVENTS[0]]) + text_stream("two") + EVENTS[0])
        weft.line()
        weft.process.send_signal(signal.SIGINT)
        assert weft.process.wait(PATIENCE) == 130
        _, _, err = weft.finish()
    assert "Traceback" not in err
    assert "Aborted" not in err


@SOME_READERS
def test_a_reader_that_takes_one_line_ends_it_quietly(command: list[str]) -> None:
    shell = f"set -o pipefail; '{WEFT}' {' '.join(command)} - | head -n 1"
    raw = b"".join(text_stream(f"chatcmpl-{n}", TEXT) * 50 for n in range(200))
    done = subprocess.run(
        ["bash", "-c", shell], input=raw, capture_output=True, check=False, env=ENVIRONMENT
    )
    assert done.stdout.count(b"\n") == 1
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr
    assert done.returncode in (0, 1, 141)


def test_the_library_reads_what_the_command_reads() -> None:
    raw = text_stream("one") + chat.stream(EVENTS)
    done = run("convert", "-", "--to", "gemini", given=raw)
    assert done.out.encode() == weft.convert(raw, "openai-chat", "gemini")
