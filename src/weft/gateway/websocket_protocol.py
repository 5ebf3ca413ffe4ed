"""WebSocket connections: uvicorn speaks the protocol; `WebSocketProtocol` adds what it leaves open.

- What a client may not send ends the connection with its close code: 1007 for a text that is not
  UTF-8, 1009 for a message that is too large, 1013 if there is no memory for it now. The client
  reads that, though it still writes: what comes is thrown away for a while. Closed at once, the
  kernel would send a reset, and the client would lose the code.
- A large message is sent in pieces.
- Messages count as memory from their first byte until they are answered.
"""

import asyncio
from typing import Any, ClassVar

from weft.gateway.memory import ASCII_FACTOR, MemoryBudget, message_cost
from weft.gateway.uvicorn_internals import (
    ClientDisconnected,
    Config,
    ServerState,
    WebSocketsSansIOProtocol,
)

LINGER = 10.0
"""Seconds for a client to read why the connection ends, and to stop writing."""

FRAME_SIZE = 262_144
"""Bytes of a message that are sent at a time."""

OUT_OF_MEMORY = "the server has no memory for this message now; try again later"

WEBSOCKET = "weft.socket"
"""Where a scope has its WebSocketProtocol."""


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection. Use `protocol(memory)`."""

    memory: ClassVar[MemoryBudget]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._reserved = self.memory.reservation()
        self._unanswered = 0
        """What messages count that the app was given."""

    async def run_asgi(self) -> None:
        self.scope[WEBSOCKET] = self  # type: ignore[literal-required]
        try:
            await super().run_asgi()
        finally:
            del self.scope[WEBSOCKET]  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        self._reserved.release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.conn.eof_sent:
            return  # nobody reads on
        super().data_received(data)
        self._update_reservation()

    def send_receive_event_to_app(self) -> None:
        """Hands a message over, and reads no further until the app takes it."""
        data = b"".join(self.frames)
        self.frames = []
        if self.close_sent:
            return
        if self.curr_msg_data_type == "bytes":
            self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
        else:
            try:
                text = bytes(data).decode()
            except UnicodeDecodeError:
                self._fail(1007, "the text is not UTF-8")
                return
            self._unanswered += message_cost(text)
            self.queue.put_nowait({"type": "websocket.receive", "text": text})
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    async def write_text(self, data: bytes) -> None:
        """Sends a message, a large one in pieces: neither the loop nor the buffers get all of it at
        once. Raises ClientDisconnected."""
        for start in range(0, len(data), FRAME_SIZE):
            await self.writable.wait()
            if self.disconnected or self.conn.state.name != "OPEN":
                raise ClientDisconnected
            piece, is_last = data[start : start + FRAME_SIZE], start + FRAME_SIZE >= len(data)
            if start:
                self.conn.send_continuation(piece, fin=is_last)
            else:
                self.conn.send_text(piece, fin=is_last)
            self.transport.write(b"".join(self.conn.data_to_send()))
            if not is_last:
                await asyncio.sleep(0)

    def release_message(self, text: str) -> None:
        """The app has done with a message."""
        self._unanswered -= message_cost(text)
        self._update_reservation()

    def _update_reservation(self) -> None:
        """Counts what was received and is not answered; ends the connection if that is too much."""
        received = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        if self.disconnected:
            return
        if not self._reserved.resize(ASCII_FACTOR * received + self._unanswered):
            self._fail(1013, OUT_OF_MEMORY)

    # The end

    def _fail(self, code: int, reason: str) -> None:
        if not self.conn.eof_sent:
            self.conn.fail(code, reason)
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Tells the client and the app why the connection ends."""
        sent = self.conn.close_sent
        code, reason = (sent.code, sent.reason) if sent is not None else (1006, "")
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.frames = []
        self.conn.reader.discard()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.close_timer = self.loop.call_later(LINGER, self.transport.close)


def protocol(memory: MemoryBudget) -> type[WebSocketProtocol]:
    """Returns the class of protocols that share a memory, for `uvicorn.Config(ws=…)`."""

    class LimitedWebSocketProtocol(WebSocketProtocol):
        pass

    LimitedWebSocketProtocol.memory = memory
    return LimitedWebSocketProtocol
