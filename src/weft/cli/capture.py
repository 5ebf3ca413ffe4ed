"""`weft capture`: a proxy that writes each response of an upstream as a capture."""

import http.client
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, urlsplit

import click
import msgspec

from weft.cases import capture_with_dialect
from weft.cli.captures import write_private
from weft.dialects import KEY_HEADERS, dialect_of
from weft.relay.recording import ByteRecorder, Op, capture_of, scrub_op
from weft.scrub import Scrubber, Secret, names_secret

TIMEOUT = 600.0
"""Seconds without a byte of the upstream."""

MIN_SECRET = 8
"""The fewest characters of a header that counts as a secret because of its name."""

_READ = 64 * 1024
# RFC 9110, 7.6.1: they belong to one connection.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_GEMINI_MODEL = re.compile(r"/models/([^/:?]+):")


class _Named(msgspec.Struct):
    model: str = ""


_named = msgspec.json.Decoder(_Named).decode


class CaptureFolder:
    """Writes captures: numbered, and named after the model."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._numbers = count(1)
        self._lock = Lock()

    def write(self, model: str, raw: bytes, suffix: str) -> Path:
        """Returns the new file. Files that exist are never written to."""
        name = _UNSAFE.sub("-", model).strip("-.")[:80] or "response"
        with self._lock:  # responses end in several threads
            while True:
                path = self._folder / f"{next(self._numbers):03}-{name}{suffix}"
                if not any(self._folder.glob(f"{path.name.split('-')[0]}-*")):
                    write_private(path, raw)
                    return path


def capture_bytes(
    ops: Iterable[Op], status: int, content_type: str, dialect: str, scrub: Scrubber
) -> bytes:
    """What was recorded as a capture. An error keeps its HTTP head, and so its status."""
    raw = capture_of(scrub_op(op, scrub) for op in ops)
    if status // 100 != 2:
        head = f"HTTP/1.1 {status} {http.client.responses.get(status, '')}\r\n"
        return f"{head}content-type: {content_type}\r\n\r\n".encode() + raw
    return capture_with_dialect(raw, dialect)


def secrets_of(headers: Iterable[tuple[str, str]], path: str) -> list[Secret]:
    """The keys of a request, wherever clients put them."""
    found: set[str] = set()
    for name, value in headers:
        is_key = name.lower() in KEY_HEADERS
        # Of other headers only what is long enough to be one: `x-tokens: 5` is none.
        if is_key or (names_secret(name) and len(value) >= MIN_SECRET):
            found |= {value, value.rpartition(" ")[2]}
    found |= {key for key in parse_qs(urlsplit(path).query).get("key", ()) if key}
    return [Secret(one) for one in found if one]


class _ProxyHandler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: "CaptureProxy"

    def _forward(self) -> None:
        began = time.time()
        if "transfer-encoding" in self.headers:
            self.send_error(411, "send a Content-Length")
            return
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        upstream = self.server.connection()
        try:
            # Compressed bytes could not be read as a stream.
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in _HOP_BY_HOP | {"host", "accept-encoding", "content-length"}
            }
            path = self.server.base_path + self.path
            upstream.request(self.command, path, body or None, headers)
            answer = upstream.getresponse()
        except OSError as problem:
            upstream.close()
            self.send_error(502, f"cannot reach the upstream: {problem}")
            return
        recorder = ByteRecorder(began)
        try:
            self._relay(answer, recorder)
        finally:
            # Also of a response that broke off: those are worth the most.
            upstream.close()
            recorder.flush()
            if self.command == "POST":
                self._write(recorder, answer, body)

    do_GET = do_POST = do_PUT = do_PATCH = _forward  # noqa: N815, names of http.server
    do_DELETE = do_OPTIONS = do_HEAD = _forward  # noqa: N815

    def _relay(self, answer: http.client.HTTPResponse, recorder: ByteRecorder) -> None:
        """Sends the response to the client as it comes."""
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        # The end of the connection ends the body, whatever happens to the upstream.
        self.send_header("connection", "close")
        self.close_connection = True
        self.end_headers()
        try:
            while data := answer.read1(_READ):
                recorder.read(data)
                self.wfile.write(data)
                self.wfile.flush()
        except (OSError, http.client.HTTPException):
            self.close_connection = True

    def _write(self, recorder: ByteRecorder, answer: http.client.HTTPResponse, body: bytes) -> None:
        if recorder.given_up:
            click.echo(f"{self.path[:200]}: too large for a capture", err=True)
            return
        lines = {name.lower().encode(): value.encode() for name, value in self.headers.items()}
        content_type = answer.getheader("content-type", "application/octet-stream")
        dialect = dialect_of(urlsplit(self.path).path, lines)
        scrub = Scrubber(secrets_of(self.headers.items(), self.path))
        raw = capture_bytes(recorder.ops, answer.status, content_type, dialect, scrub)
        suffix = ".sse" if content_type.startswith("text/event-stream") else ".json"
        found, model = _GEMINI_MODEL.search(self.path), ""
        with suppress(ValueError):
            model = _named(body).model if found is None else found[1]
        path = self.server.folder.write(model, raw, suffix)
        click.echo(f"{path}: {answer.status}, {len(raw)} bytes", err=True)

    def log_message(self, format: str, *args: object) -> None:
        """`_write` prints what was written."""


class CaptureProxy(ThreadingHTTPServer):
    """The proxy of one upstream."""

    daemon_threads = True

    def __init__(self, upstream: str, port: int, folder: Path) -> None:
        super().__init__(("127.0.0.1", port), _ProxyHandler)
        url = urlsplit(upstream)
        self._secure = url.scheme == "https"
        self._host, self._port = url.hostname or "", url.port
        self.base_path = url.path.rstrip("/")
        self.folder = CaptureFolder(folder)

    def connection(self) -> http.client.HTTPConnection:
        make = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return make(self._host, self._port, timeout=TIMEOUT)


def run(upstream: str, port: int, folder: Path) -> None:
    url = urlsplit(upstream)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise click.UsageError(f"--upstream {upstream!r}: expected http://… or https://…")
    try:
        proxy = CaptureProxy(upstream, port, folder)
    except OSError as problem:
        raise click.ClickException(f"cannot listen on 127.0.0.1:{port}: {problem}") from None
    with proxy:
        click.echo(f"listening on http://127.0.0.1:{proxy.server_port}")
        proxy.serve_forever()
