"""Clients that ask small things at an even pace: `python -m bench.gateway.others PORT MODEL`.

A process of its own, so that nothing but the gateway makes them wait. They go on until standard
input ends; then how long each request took, in milliseconds, is written as a JSON array.
"""

import http.client
import json
import sys
import threading
import time

COUNT = 4
PACE = 0.05
"""Seconds between two requests of one client."""


class Others:
    def __init__(self, port: int, model: str) -> None:
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        self._body = json.dumps(body)
        self._port = port
        self._over = threading.Event()
        self.times: list[float] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._ask) for _ in range(COUNT)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self._over.set()
        for thread in threads:
            thread.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        headers = {"content-type": "application/json"}
        while not self._over.wait(PACE):
            begun = time.perf_counter()
            connection.request("POST", "/v1/chat/completions", self._body, headers)
            answer = connection.getresponse().read()
            if b"[DONE]" not in answer:
                raise SystemExit(f"a wrong answer: {answer[-200:]!r}")
            self.times.append((time.perf_counter() - begun) * 1000)
        connection.close()


def main() -> None:
    others = Others(int(sys.argv[1]), sys.argv[2])
    others.run()
    print(json.dumps(others.times))


if __name__ == "__main__":
    main()
