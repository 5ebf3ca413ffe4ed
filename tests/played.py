"""An upstream without a network: it answers from a script, and keeps what it was asked."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from weft.upstream.base import OutgoingRequest, Unreachable, UpstreamConfig

Piece = bytes | Exception | asyncio.Event
"""Bytes to hand out, a fault to raise, or something to wait for."""

EVENTS = {"content-type": "text/event-stream"}
BODY = {"content-type": "application/json"}


@dataclass(frozen=True)
class Play:
    """One answer."""

    pieces: Sequence[Piece] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: EVENTS)
    head: asyncio.Event | None = None
    """What its head waits for."""


class PlayedAnswer:
    def __init__(self, play: Play) -> None:
        self._pieces = list(play.pieces)
        self._over = asyncio.Event()
        self.status = play.status
        self.headers = play.headers
        self.aborted = False

    async def read(self) -> bytes:
        while self._pieces and not self.aborted:
            piece = self._pieces.pop(0)
            if isinstance(piece, bytes):
                return piece
            if isinstance(piece, Exception):
                raise piece
            await self._either(piece)
        if self.aborted:
            raise Unreachable("aborted", "truncated")
        return b""

    async def stream_to(self, take: Callable[[bytes], bool]) -> None:
        """Nothing comes but what is read."""

    async def _either(self, event: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(one.wait()) for one in (event, self._over)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def abort(self) -> None:
        self.aborted = True
        self._over.set()


class Played:
    """Gives the answers of its script in order; the last one again and again."""

    def __init__(self, config: UpstreamConfig, *plays: Play | Exception) -> None:
        self._config = config
        self._plays = list(plays)
        self.asked: list[OutgoingRequest] = []
        self.answers: list[PlayedAnswer] = []

    @property
    def config(self) -> UpstreamConfig:
        return self._config

    async def send(self, outgoing: OutgoingRequest) -> PlayedAnswer:
        self.asked.append(outgoing)
        play = self._plays.pop(0) if len(self._plays) > 1 else self._plays[0]
        if isinstance(play, Exception):
            raise play
        if play.head is not None:
            await play.head.wait()
        answer = PlayedAnswer(play)
        self.answers.append(answer)
        return answer

    async def close(self) -> None:
        """There is nothing to close."""
