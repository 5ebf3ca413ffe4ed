"""client.c once more, slower: for machines without a C compiler. See there."""

import asyncio
import json
import re
import sys
import time
from pathlib import Path

TOKEN = re.compile(rb" tok(\d{5})")


class Clients:
    def __init__(self, arguments: list[str]) -> None:
        self.port, path, self.connections, self.answers, self.expected = (
            int(arguments[0]), Path(arguments[1]), *map(int, arguments[2:5]),
        )  # fmt: skip
        self.request = path.read_bytes()
        self.mark, self.last = arguments[5].encode(), arguments[6].encode()
        self.stagger, self.limit = int(arguments[7]) / 1e6, float(arguments[8])
        self.sent = 0
        self.open_streams = 0
        self.all_open = asyncio.Event()
        self.complaints: list[str] = []
        self.tokens = self.deltas = 0
        self.events: list[int] = []
        self.first: list[float] = []

    async def run_connection(self, number: int) -> None:
        """One connection: sends requests until all are sent."""
        await asyncio.sleep(number * self.stagger)
        while self.sent < self.answers or not self.answers:
            self.sent += 1
            try:
                await self.send()
            except (OSError, EOFError) as error:
                self.complaints.append(f"cut off: {type(error).__name__}")

    async def send(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        begun = time.perf_counter()
        writer.write(self.request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        answer = AnswerReader(self, begun)
        length = re.search(rb"content-length: *(\d+)", head)
        if length:
            answer.feed(await reader.readexactly(int(length[1])))
        while not length and (size := int(await reader.readline(), 16)):
            answer.feed((await reader.readexactly(size + 2))[:-2])
        answer.finish(head)
        writer.close()

    def report(self, seconds: float) -> str:
        report = {
            "answers": len(self.events) + len(self.complaints),
            "failed": len(self.complaints),
            "complaint": next(iter(self.complaints), ""),
            "tokens": self.tokens,
            "deltas": self.deltas,
            "fewest_events": min(self.events, default=-1),
            "most_events": max(self.events, default=0),
            "seconds": seconds,
            "cpu": time.process_time(),
            "first": self.first,
        }
        return json.dumps(report)

    async def run(self) -> None:
        begun = time.perf_counter()
        tasks = [
            asyncio.create_task(self.run_connection(number)) for number in range(self.connections)
        ]
        try:
            async with asyncio.timeout(self.limit):
                await (asyncio.gather(*tasks) if self.answers else self.all_open.wait())
        except TimeoutError:
            self.complaints.append("no end within the limit")
        print(self.report(time.perf_counter() - begun), flush=True)
        if not self.answers:
            await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AnswerReader:
    """Reads one answer and checks it."""

    def __init__(self, clients: Clients, begun: float) -> None:
        self.clients = clients
        self.begun = begun
        self.first = 0.0
        self.rest = b""
        self.tokens: list[bytes] = []
        self.deltas = self.events = self.last = 0

    def feed(self, data: bytes) -> None:
        self.rest += data
        if self.clients.mark:
            *lines, self.rest = self.rest.split(b"\n")
            for line in lines:
                self.line(line)

    def line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        self.events += 1
        self.last += self.clients.last in line
        found = TOKEN.findall(line) if self.clients.mark in line else []
        self.deltas += bool(found)
        if found and not self.tokens:
            self.first = time.perf_counter()
            self.clients.open_streams += 1
            if self.clients.open_streams == self.clients.connections:
                self.clients.all_open.set()
        self.tokens += found

    def finish(self, head: bytes) -> None:
        clients = self.clients
        if not clients.mark:
            self.tokens = TOKEN.findall(self.rest)
            self.deltas, self.last, self.first = len(self.tokens), 1, time.perf_counter()
        expected = [b"%05d" % number for number in range(clients.expected)]
        if b" 200 " not in head[:16] or self.tokens != expected or self.last != 1:
            clients.complaints.append(f"{len(self.tokens)} tokens, {head[:16]!r}")
            return
        clients.tokens += len(self.tokens)
        clients.deltas += self.deltas
        clients.events.append(self.events)
        clients.first.append((self.first - self.begun) * 1000)


async def main() -> None:
    await Clients(sys.argv[1:]).run()


if __name__ == "__main__":
    asyncio.run(main())
