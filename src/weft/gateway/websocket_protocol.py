"""WebSocket connections: uvicorn's protocol, with limits and clean closes.

- A message that is not allowed closes the connection: 1007 for text that is not UTF-8, 1009 for a
  message that is too large, 1013 if there is no memory for it. The client can read the code even
  if it still writes, since its data is discarded for a while: if the socket were closed at once,
  the kernel would send a reset, and the code would be lost.
- A large message is sent in several frames.
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
"""Seconds for a client to read the close code, and to stop writing."""

FRAME_SIZE = 262_144
"""Bytes of a message in one frame."""

OUT_OF_MEMORY = "the server has no memory for this message at the moment; try again later"

WEBSOCKET = "weft.socket"
"""The key of the WebSocketProtocol in the scope."""


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
        """Memory of the messages that the app has not answered yet."""

    async def run_asgi(self) -> None:
        self.scope[WEBSOCKET] = self  # type: ignore[literal-required]
        try:
            await super().run_asgi()
        finally:
            # Breaks a cycle: a closed connection is freed without the garbage collector.
            del self.scope[WEBSOCKET]  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        self._reserved.release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.conn.eof_sent:
            return  # closed
        super().data_received(data)
        self._update_reservation()

    def send_receive_event_to_app(self) -> None:
        """Gives a message to the app, and pauses reading until the app takes it."""
        data = b"".join(self.frames)
        self.frames = []
        # After a close frame nothing is answered (RFC 6455, 5.5.1), and reading goes on for the
        # client's own.
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

    async def write_text(self, data: bytes, begin: bytes = b"") -> None:
        """Sends a message, a large one in several frames: neither the loop nor the buffers get all
        of it at once. With `begin`, that replaces its first byte. Raises ClientDisconnected."""
        for start in range(0, len(data), FRAME_SIZE):
            await self.writable.wait()
            if self.disconnected or self.conn.state.name != "OPEN":
                raise ClientDisconnected
            piece, is_last = data[start : start + FRAME_SIZE], start + FRAME_SIZE >= len(data)
            if start:
                # RFC 6455 (5.4): the first frame has the type, FIN is on the last, and pings may
                # come between.
                self.conn.send_continuation(piece, fin=is_last)
            else:
                self.conn.send_text(begin + piece[1:] if begin else piece, fin=is_last)
            self.transport.write(b"".join(self.conn.data_to_send()))
            if not is_last:
                await asyncio.sleep(0)

    def release_message(self, text: str) -> None:
        """The app has answered a message: its memory is free again."""
        self._unanswered -= message_cost(text)
        self._update_reservation()

    def _update_reservation(self) -> None:
        """Reserves memory for unanswered messages; closes the connection if there is not enough."""
        # A frame is in the reader's buffer until it is whole, then in `frames` until its message
        # is.
        received = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        if self.disconnected:
            return
        if not self._reserved.resize(ASCII_FACTOR * received + self._unanswered):
            self._fail(1013, OUT_OF_MEMORY)

    # Closing

    def _fail(self, code: int, reason: str) -> None:
        if not self.conn.eof_sent:
            self.conn.fail(code, reason)
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Closes the connection with its close code, for the client and the app."""
        sent = self.conn.close_sent
        # 1006 is for the app alone: it never is in a frame (RFC 6455, 7.4.1).
        code, reason = (sent.code, sent.reason) if sent is not None else (1006, "")
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.frames = []
        # What has arrived of the refused message is not held until the client is gone.
        self.conn.reader.discard()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.close_timer = self.loop.call_later(LINGER, self.transport.close)


def protocol(memory: MemoryBudget) -> type[WebSocketProtocol]:
    """Returns a protocol class whose connections share a memory budget, for
    `uvicorn.Config(ws=…)`."""

    class LimitedWebSocketProtocol(WebSocketProtocol):
        pass

    LimitedWebSocketProtocol.memory = memory
    return LimitedWebSocketProtocol
