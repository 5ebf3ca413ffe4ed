"""Takes the pictures of the documentation: `python -m tests.browser.images`, or some of them:
`python -m tests.browser.images usage`."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from playwright.sync_api import Browser, expect

from tests import chat
from tests.browser.chatting import answer, answers, choose_model, is_idle, say
from tests.browser.conftest import SETTINGS
from tests.browser.inspecting import is_read
from tests.browser.tabs import Tab, launched, tab
from tests.faults.upstream import Step, Upstream, chunk, upstream
from tests.faults.upstream import answer as http_answer
from tests.faults.world import PATIENT, World, place, world
from weft.store.accounts import UsageRow
from weft.store.urls import store_from_url

FOLDER = Path(__file__).parents[2] / "docs/images"
WAYS: dict[str, dict[str, object]] = {
    "light": {"viewport": {"width": 1040, "height": 720}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1040, "height": 720}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 680}, "color_scheme": "light"},
}
REASONING = "The user asks why an end mark matters. A closed connection looks the same as a crash."
TEXT = """A stream without an end mark **cannot be told apart** from one that was cut:

| what the client sees | finished | cut |
|---|---|---|
| the text so far | ✓ | ✓ |
| the connection is closed | ✓ | ✓ |
| `finish_reason` | `"stop"` | none |

So wait for the reason before you run a tool:

```python
if response.finish_reason == "tool-calls":
    run(response.tool_calls)
```
"""
PROMPT = "Why does a stream need an end mark?"
MODELS = (
    ("anthropic", "claude-opus-4-8", 17_000_000),
    ("openai", "gpt-5.1", 3_400_000),
    ("ollama", "qwen3:8b", 0),
)
"""Upstream, model, and billionths of a dollar for a request; 0: nobody knows the price."""


def story(behind: Upstream) -> None:
    thought = chunk(chat.chunk({"reasoning_content": REASONING}))
    pieces: list[Step | str] = [thought, *(TEXT[at : at + 9] for at in range(0, len(TEXT), 9))]
    body = json.dumps({"error": {"message": "Rate limit reached for requests", "code": "rate"}})
    behind.named("story", answer(*pieces))
    behind.named("busy", (http_answer(body.encode(), "429 Too Many Requests"),))


def show_chat(here: Tab) -> None:
    choose_model(here, "chat/story")
    here.open()
    say(here, PROMPT)
    expect(answers(here)).to_contain_text("run(response.tool_calls)")
    is_idle(here)


def show_approval(here: Tab) -> None:
    choose_model(here, "clerk")
    here.open()
    say(here, "What is the status of order A-17? Please refund it.")
    expect(here.page.get_by_role("button", name="Approve", exact=True)).to_be_visible()


def show_error(here: Tab) -> None:
    choose_model(here, "chat/busy")
    here.open()
    say(here, PROMPT)
    expect(here.page.get_by_role("alert")).to_be_visible()
    is_idle(here)


def start_run(here: Tab, input: str) -> str:
    body = {"agent": "clerk", "input": input}
    run: str = httpx.post(f"{here.url}/v1/runs", json=body).raise_for_status().json()["id"]
    return run


def show_runs(here: Tab) -> None:
    cancelled = start_run(here, "Please refund order A-18.")
    start_run(here, "What is the status of order A-18?")
    start_run(here, "Please refund order A-17.")
    start_run(here, "What is the status of order A-17?")
    here.open("#/runs")
    # The server has begun them all: which of them is listed as what is decided in a moment.
    expect(here.page.get_by_text("finished")).to_have_count(2 + 1)
    expect(here.page.get_by_text("● waiting")).not_to_have_count(0)
    httpx.post(f"{here.url}/v1/runs/{cancelled}/cancel", json={}).raise_for_status()
    expect(here.page.get_by_text("cancelled")).to_have_count(1 + 1)


def show_run(here: Tab) -> None:
    run = start_run(here, "What is the status of order A-17? Please refund it.")
    here.open(f"#/runs/{run}")
    expect(here.page.get_by_role("button", name="Approve", exact=True)).to_be_visible()


def show_inspector(here: Tab) -> None:
    here.open("#/inspect/sample?as=openai-responses")
    is_read(here)
    expect(here.page.locator(".severity.amber").first).to_be_visible()


def show_waterfall(here: Tab) -> None:
    show_inspector(here)
    # By key, because the tab may be out of view on a phone.
    here.page.keyboard.press("w")
    here.page.locator(".waterfall").scroll_into_view_if_needed()


async def use(folder: Path) -> None:
    """A ledger of some weeks, in the store of a server that is not running yet."""
    store = store_from_url(f"sqlite:///{folder}/weft.db")
    await store.open()
    rows = []
    for back in range(1, 27):
        day = (datetime.now(UTC).date() - timedelta(days=back)).isoformat()
        for host, model, price in MODELS:
            number = 40 + back * back * (7 + len(model)) % 190
            tokens = (2310 * number, 412 * number, 1204 * number, 91 * number)
            cost, unpriced = number * price, 0 if price else number
            at = ("", day, model, host)
            rows.append(UsageRow(*at, "reported", number, 0, *tokens, cost, unpriced))
            if number > 150:
                rows.append(
                    UsageRow(*at, "estimated", 3, 3, 6900, 410, 0, 0, price, 3 - 3 * bool(price))
                )
                rows.append(UsageRow(*at, "none", 2, 2))
    await store.accounts.add_usage("pictures", 0, 1, rows)
    await store.close()


def show_usage(here: Tab) -> None:
    here.open("#/usage")
    expect(here.page.locator(".usage-table")).to_be_visible()


PICTURES: dict[str, Callable[[Tab], None]] = {
    "chat": show_chat,
    "approval": show_approval,
    "error": show_error,
    "runs": show_runs,
    "run": show_run,
    "usage": show_usage,
    "inspector": show_inspector,
    "waterfall": show_waterfall,
}


def take(browser: Browser, server: World, name: str, way: str) -> None:
    with tab(browser, server.gateway.url, **WAYS[way]) as here:
        PICTURES[name](here)
        here.page.screenshot(path=FOLDER / f"{name}-{way}.png", animations="disabled")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder, upstream() as behind:
            asyncio.run(use(Path(folder)))
            story(behind)
            settings = place("chat", "openai-chat", behind.url, **PATIENT) + SETTINGS
            with world(settings, Path(folder), behind) as server, launched() as browser:
                for name in sys.argv[1:] or PICTURES:
                    take(browser, server, name, way)


if __name__ == "__main__":
    main()
