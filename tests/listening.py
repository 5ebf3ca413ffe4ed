"""A server that keeps what the official clients ask, and answers with an error."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def listening() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a server on loopback, and the bodies it got."""
    got: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(400)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", got
        finally:
            server.shutdown()
            thread.join()
