"""A scripted upstream: a real HTTP server that speaks all four dialects, as strictly as vendors do.

The scenario is the model's name. Every request is kept, with what the vendor made of it; tests
read this log, and not only what a client says it saw. Answers are written by hand in the style of
each vendor (`vendor_*.py`), never by Weft's encoders.
"""

import http.server
import json
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tests.clients import vendor_chat, vendor_gemini, vendor_messages, vendor_responses
from tests.clients.vendor import (
    KEY,
    MESSAGES,
    RETRY_AFTER,
    STATUSES,
    Asked,
    Handed,
    Memory,
    Object,
    Refusal,
    line,
    script,
    tag_of,
)

ROUTES = (
    (re.compile(r"/v1/chat/completions"), vendor_chat),
    (re.compile(r"/v1/responses"), vendor_responses),
    (re.compile(r"/v1/messages"), vendor_messages),
    (re.compile(r"/v1beta/models/([^/:]+):(generateContent|streamGenerateContent)"), vendor_gemini),
)
PATIENCE = 60.0
"""Seconds that a slow answer waits for its reader to leave."""

ODD = 61
"""Bytes are written in pieces of this size, so that frames and letters are cut anywhere."""


@dataclass
class RequestRecord:
    """One request, and what became of it."""

    dialect: str
    path: str
    headers: dict[str, str]
    raw: str
    body: Object
    scenario: str
    stream: bool
    tag: str
    asked: Asked = field(default_factory=Asked)
    handed: tuple[Handed, ...] = ()
    """The calls of the answer."""
    status: int = 0
    refusal: str = ""
    """Why the vendor did not take the request."""
    begun: threading.Event = field(default_factory=threading.Event)
    """The first bytes of a slow answer are out, or none will be."""
    left: threading.Event = field(default_factory=threading.Event)
    """The reader closed the connection before the answer was complete."""
    waited: float = 0.0
    """How long a slow answer had waited by then."""


class Upstream:
    """The vendors, what they remember, and what they were asked."""

    def __init__(self) -> None:
        self.url = ""
        self._memories = {vendor: Memory() for _, vendor in ROUTES}
        self._log: list[RequestRecord] = []
        self._lock = threading.Condition()

    def of(self, tag: str) -> list[RequestRecord]:
        """The requests of one test, in the order they came."""
        with self._lock:
            return [record for record in self._log if record.tag == tag]

    def wait(self, tag: str, seconds: float = 30.0) -> RequestRecord:
        """The first request of a test, as soon as it is there."""
        with self._lock:
            self._lock.wait_for(lambda: any(one.tag == tag for one in self._log), seconds)
        return self.of(tag)[0]

    def keep(self, record: RequestRecord) -> None:
        with self._lock:
            self._log.append(record)
            self._lock.notify_all()

    @property
    def everything(self) -> list[RequestRecord]:
        with self._lock:
            return list(self._log)

    def memory(self, vendor: ModuleType) -> Memory:
        return self._memories[vendor]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may leave as they like; anything else is told."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    upstream: Upstream

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        path, _, query = self.path.partition("?")
        for pattern, vendor in ROUTES:
            found = pattern.fullmatch(path)
            if found:
                self._answer(vendor, found, query, raw)
                return
        self.close_connection = True
        self.send_error(404)

    def _answer(self, vendor: Any, found: re.Match[str], query: str, raw: str) -> None:
        body: Object = json.loads(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        model = found[1] if found.groups() else body["model"]
        stream = found[2].startswith("stream") if found.groups() else bool(body.get("stream"))
        record = RequestRecord(
            vendor.DIALECT, self.path, headers, raw, body, model, stream, tag_of(raw)
        )  # fmt: skip
        self.upstream.keep(record)
        try:
            if not vendor.authorised(headers, KEY):
                raise Refusal("Incorrect API key provided.", status=401)
            if found.groups() and stream and query != "alt=sse":
                raise Refusal("this vendor streams with alt=sse only")
            self._say(vendor, record, model)
        except Refusal as problem:
            record.refusal = problem.message
            self._fail(vendor, record, problem.status, problem.message, problem.param)

    def _say(self, vendor: Any, record: RequestRecord, model: str) -> None:
        memory = self.upstream.memory(vendor)
        record.asked = vendor.read(record.body, record.headers, memory)
        if model in STATUSES:
            self._fail(vendor, record, STATUSES[model], MESSAGES[model])
            return
        said = script(model, record.asked, memory, vendor.IDS)
        record.handed = said.calls
        record.status = 200
        if record.stream:
            frames = vendor.stream(said, model, memory, record.body)
            self._stream(vendor, record, model, frames)
        else:
            self._whole(vendor, record, model, vendor.whole(said, model, memory, record.body))

    def _whole(self, vendor: Any, record: RequestRecord, model: str, body: Object) -> None:
        """What fails in the middle of a stream fails here in the body, under the same status."""
        if model == "slow":
            self._wait(record)
            return
        if model == "error-midstream":
            body = vendor.error(vendor.OVERLOADED, MESSAGES[model])
        data = line(body).encode()
        self._head(200, "application/json", {"Content-Length": str(len(data))})
        if model == "cut":
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)

    def _stream(self, vendor: Any, record: RequestRecord, model: str, frames: list[str]) -> None:
        half = frames[: len(frames) // 2 + 1]
        match model:
            case "error-midstream":
                frames = [*half, *vendor.broken(MESSAGES[model], half)]
            case "cut" | "slow":
                frames = half
        self._head(200, "text/event-stream", {"Transfer-Encoding": "chunked"})
        data = "".join(frames).encode()
        try:
            for at in range(0, len(data), ODD):
                piece = data[at : at + ODD]
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            if model == "slow":
                self._wait(record)
            elif model == "cut":
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            record.left.set()
            self.close_connection = True

    def _wait(self, record: RequestRecord) -> None:
        """Says nothing until the reader leaves."""
        since = time.monotonic()
        record.begun.set()
        self.close_connection = True
        ready, _, _ = select.select([self.connection], [], [], PATIENCE)
        record.waited = time.monotonic() - since
        if ready and _is_closed(self.connection):
            record.left.set()

    def _fail(
        self,
        vendor: Any,
        record: RequestRecord,
        status: int,
        message: str,
        param: str | None = None,
    ) -> None:
        record.status = status
        body = line(vendor.error(status, message, param)).encode()
        extra = {"retry-after": str(RETRY_AFTER)} if status == 429 else {}
        self._head(status, "application/json", {"Content-Length": str(len(body)), **extra})
        self.wfile.write(body)

    def _head(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("x-request-id", "req_scripted")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True


@contextmanager
def scripted(
    upstream: Upstream | None = None, handling: type[Handler] = Handler
) -> Iterator[Upstream]:
    """An upstream, listening on loopback."""
    upstream = upstream or Upstream()
    handler = type("ScriptedHandler", (handling,), {"upstream": upstream})
    with Server(("127.0.0.1", 0), handler) as server:
        upstream.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield upstream
        finally:
            server.shutdown()
            thread.join()
