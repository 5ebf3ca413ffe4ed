"""A tab of a real Chromium. Whatever goes wrong in it fails the test: an error in the console, a
page error, a violation of the Content-Security-Policy, a request to another host."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

MISSING = (
    "no Chromium for the tests of the page: apt-get install chromium, "
    "or set WEFT_CHROMIUM to the path of one"
)
PATIENCE = 30_000
"""Milliseconds that a test waits for something to appear. A busy machine takes its time."""

expect.set_options(timeout=PATIENCE)

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Returns the path of Chromium; skips the test if there is none, or fails it in CI."""
    found = os.environ.get("WEFT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found
    if os.environ.get("WEFT_NEED_BROWSER") == "1":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@contextmanager
def launched() -> Iterator[Browser]:
    path = chromium()
    # Chromium refuses to sandbox for root, as in containers.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    page: Page
    url: str
    problems: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """The requests so far: method, a blank, and the path."""

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        self.page.on("request", self._request)

    def allow(self, *patterns: str) -> None:
        """Problems that the test makes on purpose, such as an HTTP status."""
        self.allowed += patterns

    def open(self, address: str = "#/") -> None:
        self.page.goto(f"{self.url}/{address}")

    def stop_clock(self) -> None:
        """Stops the time of the page, after the timers of some seconds have fired. However long a
        busy machine takes: what is shown for a moment stays, and keys that are pressed one after
        the other are pressed at the same time. Timers that are set already, such as those that
        poll, are stopped only if the clock was installed before the page was opened. A page that
        is opened later begins with a time that stands still."""
        now: float = self.page.evaluate("() => Date.now() / 1000")
        self.page.clock.pause_at(now + 20)

    def start_clock(self) -> None:
        self.page.clock.resume()

    def check(self) -> None:
        bad = [one for one in self.problems if not any(re.search(p, one) for p in self.allowed)]
        assert bad == [], bad

    def count(self, method: str, path: str) -> int:
        """How many requests went to a path."""
        return self.requests.count(f"{method} {path}")

    def _console(self, message: ConsoleMessage) -> None:
        # Violations of the policy are errors here, too.
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} {message.location.get('url')}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        self.requests.append(f"{request.method} {parts.path}")
        if parts.scheme != "blob" and f"{parts.scheme}://{parts.netloc}" != self.url:
            self.problems.append(f"a request to {request.url}")


@contextmanager
def tab(browser: Browser, url: str, **options: Any) -> Iterator[Tab]:
    """A tab in a profile of its own; `options` are those of a browser context."""
    context = browser.new_context(**options)
    try:
        made = Tab(context.new_page(), url)
        yield made
        made.check()
    finally:
        context.close()
