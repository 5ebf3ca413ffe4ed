"""The official clients, and a tiny HTTP server for them: every request gets the same answer."""

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anthropic
import openai

# No certificate is checked here. A client that makes its own context reads those of all authorities
# first, which takes longer than the rest of such a test.
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def openai_client(url: str) -> openai.OpenAI:
    http = openai.DefaultHttpxClient(verify=NO_AUTHORITIES)
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http)


def anthropic_client(url: str) -> anthropic.Anthropic:
    http = anthropic.DefaultHttpxClient(verify=NO_AUTHORITIES)
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, http_client=http)


@contextmanager
def serving(answer: bytes, kind: str = "text/event-stream", status: int = 200) -> Iterator[str]:
    """The address of a server on loopback that answers with these bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
