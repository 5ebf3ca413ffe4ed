"""Answers of a scripted model, and the moves of a person in the chat."""

import json
import re

from playwright.sync_api import Locator, Page, Request, expect
from playwright.sync_api import Route as PageRoute

from tests import chat
from tests.browser.tabs import Tab
from tests.faults.upstream import LAST, STREAM, Hold, Step, chunk
from tests.faults.world import World, until

TOOLS = [
    {"name": "get_weather", "parameters": {"type": "object"}},
    {"name": "get_time", "parameters": {"type": "object"},
     "output_schema": {"type": "object", "required": ["hour"]}},
]  # fmt: skip


def text(words: str) -> bytes:
    return chunk(chat.chunk({"content": words}))


def finish(reason: str = "stop") -> tuple[bytes, ...]:
    usage = {"prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46}
    last = chat.chunk({}, reason, usage=usage)
    return chunk(last), chunk(b"data: [DONE]\n\n"), LAST


def answer(*steps: str | Step, reason: str = "stop") -> tuple[Step, ...]:
    """A whole answer: pieces of text, frames, and holds."""
    sent = (text(one) if isinstance(one, str) else one for one in steps)
    return (STREAM, *sent, *finish(reason))


def calls(*made: tuple[str, str | None, str]) -> bytes:
    """Calls that come at once: id, name and arguments of each."""
    entries = [chat.entry(index, *one) for index, one in enumerate(made)]
    return chunk(chat.calls(*entries))


def begin(tab: Tab, server: World, *scripts: tuple[Step, ...], tools: bool = False) -> str:
    """Opens a new chat with a model that plays these; returns the model."""
    model = server.upstream.script(*scripts)
    choose_model(tab, f"chat/{model}")
    tab.open()
    expect(tab.page.get_by_role("combobox", name="Model")).to_have_value(f"chat/{model}")
    if tools:
        add_tools(tab.page)
    return model


class Held:
    """Requests of the page that wait until they are let go."""

    def __init__(self, here: Tab, pattern: str, method: str = "GET") -> None:
        self._routes: list[PageRoute] = []
        self._method = method
        self._here = here
        here.page.route(pattern, self._hold)

    def _hold(self, route: PageRoute, request: Request) -> None:
        if request.method == self._method:
            self._routes.append(route)
        else:
            route.fallback()

    def wait(self, count: int = 1) -> None:
        """Returns when so many are held."""
        # The browser is asked something, because its events are heard only meanwhile.
        ask = self._here.page.evaluate
        until(lambda: ask("() => true") and len(self._routes) >= count, "a request")

    def release(self) -> None:
        for route in self._routes:
            route.continue_()
        self._here.page.unroute_all()


def choose_model(tab: Tab, name: str) -> None:
    """Has the page begin with a model, whether it is listed or not."""
    # A page without an address has no storage.
    choose = f"localStorage.setItem('weft.model', '{name}')"
    tab.page.add_init_script(f"if (location.protocol === 'http:') {choose}")


def add_tools(page: Page) -> None:
    page.get_by_role("button", name="Tools", exact=True).click()
    dialog = page.get_by_role("dialog", name="Tools")
    for tool in TOOLS:
        dialog.get_by_role("button", name="+ empty").click()
        dialog.get_by_role("textbox", name="Definition").last.fill(json.dumps(tool))
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Tools 2")).to_be_visible()


def enter(tab: Tab, words: str) -> None:
    """Types a message, and Enter: whatever becomes of it."""
    field = tab.page.get_by_role("textbox", name="Message", exact=True)
    field.fill(words)
    field.press("Enter")


def say(tab: Tab, words: str) -> None:
    """Sends a message; returns when it stands in the thread, and its turn has begun. Before that,
    nothing runs yet, and a test would take the turn for one that has ended."""
    enter(tab, words)
    expect(tab.page.get_by_role("article", name="You", exact=True).last).to_contain_text(words)


def answers(tab: Tab) -> Locator:
    """What the answers say, without the heading that only screen readers have."""
    return tab.page.get_by_role("article", name="Answer").locator(".markdown-parts")


def open_menu(row: Locator) -> None:
    """Opens the menu of a conversation in the list."""
    row.hover()
    row.get_by_role("button", name=re.compile("More about")).click()


def cards(tab: Tab) -> Locator:
    return tab.page.locator("section.tool")


def is_idle(tab: Tab) -> None:
    """Waits until nothing runs."""
    expect(tab.page.get_by_role("button", name="■ Stop", exact=True)).to_be_hidden()
    expect(tab.page.locator(".turn.running")).to_have_count(0)


def sent(server: World, model: str, number: int = 0) -> dict[str, object]:
    """What the model was sent."""
    body: dict[str, object] = json.loads(server.upstream.exchanges(model)[number].body)
    return body


def at_conversation(tab: Tab) -> str:
    """Waits until the address is that of a conversation; returns its id."""
    expect(tab.page).to_have_url(re.compile(r"#/c/conv_"))
    return tab.page.url.rpartition("/")[2]


__all__ = ["Held", "Hold", "add_tools", "answer", "answers", "at_conversation", "begin", "calls",
           "cards", "choose_model", "enter", "finish", "is_idle", "open_menu", "say", "sent",
           "text"]  # fmt: skip
