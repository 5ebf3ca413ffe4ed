"""`weft demo`: a broken stream, converted live in the terminal."""

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from weft.codec import Decoder, Encoder
from weft.context import Context
from weft.upstream.demo import CHUNKS, broken_stream

_SHOWN = 14


class _Screen:
    """What came in, what went out, and what was found, side by side."""

    def __init__(self) -> None:
        self.chunks = 0
        self.events: list[tuple[int, str]] = []
        self.findings: list[str] = []

    def take(self, event: bytes) -> None:
        line = event.partition(b"\n")[0].decode()
        name = line.removeprefix("event: ")
        # Equal events in a row are one line with their number: there are hundreds of deltas.
        if self.events and self.events[-1][1] == name:
            self.events[-1] = (self.events[-1][0] + 1, name)
        else:
            self.events.append((1, name))

    def __rich__(self) -> Table:
        table = Table(expand=True, title="one tool call, its id in every chunk")
        table.add_column("in: openai-chat", ratio=2)
        table.add_column("out: openai-responses", ratio=4)
        table.add_column("findings", ratio=4)
        coming = Text(f"{self.chunks} chunks\n{min(self.chunks, CHUNKS)} of them with the id")
        going = "\n".join(
            name if count == 1 else f"{name}  x {count}" for count, name in self.events[-_SHOWN:]
        )
        table.add_row(coming, Text(going), Text("\n".join(self.findings) or "none yet"))
        return table


def run(raw: bool, pace: float) -> None:
    # A fixed time, so that every run writes the same bytes.
    context = Context(now=1770595200)
    decoder = Decoder("openai-chat", context=context)
    encoder = Encoder("openai-responses", context=context, fold=decoder.fold)
    screen = _Screen()
    # With --raw standard output is the stream alone.
    console = Console(stderr=raw)
    with Live(screen, console=console, auto_refresh=False, transient=raw) as live:
        for chunk in (*broken_stream(), b""):  # the last one stands for the end
            parts = decoder.feed(chunk) if chunk else decoder.finish()
            screen.chunks += bool(chunk)
            for event in encoder.feed(parts):
                screen.take(event)
                if raw:  # flushed, so that a reader sees the pace
                    sys.stdout.buffer.write(event)
                    sys.stdout.buffer.flush()
            screen.findings = [
                f"event {one.at}: {one.code}\n  {one.detail}" for one in decoder.findings
            ]
            live.update(screen, refresh=not raw and console.is_terminal)
            time.sleep(pace / 1000)  # only for the eye: the library itself never waits
    if not raw:
        calls = decoder.response.tool_calls
        console.print(f"\n{CHUNKS} chunks with its id in, {len(calls)} call out: {calls[0].name}")
