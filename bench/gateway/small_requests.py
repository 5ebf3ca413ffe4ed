"""`python -m bench.gateway.small_requests PORT MODEL`: clients with small requests at an even pace.

A process of its own, so that only the gateway makes them wait. They go on until standard input
ends; then the milliseconds that each request took are written as a JSON array.
"""

import http.client
import json
import sys
import threading
import time
from itertools import count

CLIENTS = 4
PAUSE = 0.05
"""Seconds between two requests of one client."""


class SmallRequests:
    def __init__(self, port: int, model: str) -> None:
        self._model = model
        self._numbers = count()
        self._port = port
        self._stopped = threading.Event()
        self.times: list[float] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._send) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self._stopped.set()
        for thread in threads:
            thread.join()

    def _send(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        headers = {"content-type": "application/json"}
        while not self._stopped.wait(PAUSE):
            body = self._body()
            begun = time.perf_counter()
            connection.request("POST", "/v1/chat/completions", body, headers)
            answer = connection.getresponse().read()
            if b"[DONE]" not in answer:
                raise SystemExit(f"a wrong answer: {answer[-200:]!r}")
            self.times.append((time.perf_counter() - begun) * 1000)
        connection.close()

    def _body(self) -> str:
        # Each one is different: the demo model gives the same id to equal requests, and a response
        # whose id is taken is begun twice.
        message = {"role": "user", "content": f"hi, number {next(self._numbers)}"}
        return json.dumps({"model": self._model, "stream": True, "messages": [message]})


def main() -> None:
    clients = SmallRequests(int(sys.argv[1]), sys.argv[2])
    clients.run()
    print(json.dumps(clients.times))


if __name__ == "__main__":
    main()
