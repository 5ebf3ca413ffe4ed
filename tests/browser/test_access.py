"""Everybody can use it: by keyboard alone, with a screen reader, in every scheme, on a phone."""

import json
import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

from tests.browser.chatting import answer, answers, begin, calls, cards, is_idle, say
from tests.browser.tabs import Tab
from tests.faults.upstream import Hold
from tests.faults.upstream import answer as http_answer
from tests.faults.world import World

SCHEMES: list[dict[str, str]] = [
    {"color_scheme": "light", "forced_colors": "none", "reduced_motion": "reduce"},
    {"color_scheme": "dark", "forced_colors": "none", "reduced_motion": "reduce"},
    {"color_scheme": "dark", "forced_colors": "active", "reduced_motion": "reduce"},
]
PHONE = {"width": 360, "height": 740}


RICH = """# Title

A [link](https://example.org) and `code`:

```py
x = 1
```

| a | b |
|---|---|
| 1 | 2 |

- [x] done

> said"""


def is_accessible(here: Tab) -> None:
    """No violation in any scheme, nor at phone width, where nothing is wider than the screen."""
    axe = Axe()
    sizes = [here.page.viewport_size or PHONE, PHONE]
    for size in sizes:
        here.page.set_viewport_size(size)  # type: ignore[arg-type]
        for scheme in SCHEMES if size is not PHONE else SCHEMES[:1]:
            here.page.emulate_media(**scheme)  # type: ignore[arg-type]
            found = axe.run(here.page)
            assert found.response["violations"] == [], found.generate_report()
    wide = here.page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= PHONE["width"]
    here.page.set_viewport_size(sizes[0])  # type: ignore[arg-type]


def welcome(here: Tab, server: World) -> None:
    here.open()
    expect(here.page.get_by_role("button", name=re.compile("Watch it reason"))).to_be_visible()


def conversation(here: Tab, server: World) -> None:
    asks = calls(("call_1", "get_weather", '{"city":"Oslo"}'), ("call_2", "get_time", '{"city":'))
    begin(here, server, answer(RICH), answer(asks, reason="tool_calls"), tools=True)
    say(here, "Hello")
    expect(answers(here)).to_contain_text("said")
    is_idle(here)
    say(here, "Weather?")
    expect(cards(here)).to_have_count(2)
    is_idle(here)


def running(here: Tab, server: World) -> None:
    begin(here, server, answer("Once upon ", Hold()))
    say(here, "Hello")
    expect(answers(here)).to_contain_text("Once upon")


def approval(here: Tab, server: World) -> None:
    here.open()
    here.page.get_by_role("combobox", name="Model").select_option("clerk")
    say(here, "What is the status of order A-17? Please refund it.")
    expect(here.page.get_by_role("button", name="Approve", exact=True)).to_be_visible()


def error(here: Tab, server: World) -> None:
    body = json.dumps({"error": {"message": "no luck"}}).encode()
    begin(here, server, (http_answer(body, "500 No"),))
    say(here, "Hello")
    expect(here.page.get_by_role("alert")).to_contain_text("no luck")
    is_idle(here)


def responses(here: Tab, server: World) -> None:
    error(here, server)
    here.open("#/responses")
    expect(here.page.get_by_role("row").nth(1)).to_be_visible()


def usage(here: Tab, server: World) -> None:
    begin(here, server, answer("fine"))
    say(here, "Hello")
    is_idle(here)
    here.open("#/usage?by=day,model,upstream")
    expect(here.page.get_by_role("row").nth(2)).to_be_visible()


def runs(here: Tab, server: World) -> None:
    approval(here, server)
    here.open("#/runs?status=waiting")
    expect(here.page.get_by_role("row").nth(1)).to_be_visible()


def run(here: Tab, server: World) -> None:
    runs(here, server)
    here.page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(here.page.get_by_role("button", name="Approve", exact=True)).to_be_visible()


def dialog(name: str) -> Callable[[Tab, World], None]:
    def show(here: Tab, server: World) -> None:
        welcome(here, server)  # some buttons are in the HTML, and do nothing before the script ran
        here.page.get_by_role("button", name=name, exact=True).click()
        expect(here.page.get_by_role("dialog")).to_be_visible()
        if name == "Tools":
            here.page.get_by_role("button", name="+ get_weather").click()

    show.__name__ = name
    return show


STATES: list[Callable[[Tab, World], None]] = [
    welcome, conversation, running, approval, error, responses, usage, runs, run,
    dialog("Tools"), dialog("Options"), dialog("API key: none"), dialog("Keyboard shortcuts"),
]  # fmt: skip


def in_make_test(state: Callable[[Tab, World], None]) -> bool:
    """One of them: each is looked at in four ways, which takes seconds."""
    return state is conversation


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(one, id=one.__name__, marks=() if in_make_test(one) else pytest.mark.long)
        for one in STATES
    ],
)
@pytest.mark.long
def test_no_screen_has_a_violation_in_any_scheme(
    here: Tab, server: World, state: Callable[[Tab, World], None]
) -> None:
    state(here, server)
    is_accessible(here)


def test_a_conversation_by_keyboard_alone(here: Tab, server: World) -> None:
    begin(here, server, answer("one"), answer("two"))
    keyboard = here.page.keyboard
    expect(here.page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
    keyboard.type("First")
    keyboard.press("Shift+Enter")
    keyboard.type("line")
    keyboard.press("Enter")
    expect(answers(here)).to_have_text("one")
    is_idle(here)
    expect(here.page.get_by_role("article", name="You", exact=True)).to_contain_text("First\nline")
    keyboard.press("ArrowUp")
    expect(here.page.get_by_role("textbox", name="Edit the message")).to_be_focused()
    keyboard.press("Escape")
    here.page.get_by_role("textbox", name="Message", exact=True).focus()
    here.stop_clock()  # the second key of two counts for a moment
    keyboard.press("Escape")
    keyboard.press("g")
    keyboard.press("r")
    expect(here.page.get_by_role("heading", name="Responses", exact=True)).to_be_visible()
    keyboard.press("g")
    keyboard.press("u")
    expect(here.page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    keyboard.press("?")
    shortcuts = here.page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(shortcuts).to_be_visible()
    keyboard.press("Escape")
    expect(shortcuts).to_have_count(0)
    keyboard.press("g")
    keyboard.press("c")
    field = here.page.get_by_role("textbox", name="Message", exact=True)
    expect(field).to_be_focused()
    keyboard.press("Escape")
    keyboard.press("/")
    expect(here.page.get_by_role("searchbox", name="Search conversations")).to_be_focused()


@pytest.mark.long
def test_letters_are_letters_where_somebody_types(here: Tab) -> None:
    here.open()
    field = here.page.get_by_role("textbox", name="Message", exact=True)
    field.press_sequentially("gr?/n")
    expect(field).to_have_value("gr?/n")
    expect(here.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.long
def test_an_approval_by_keyboard_alone(here: Tab) -> None:
    here.open()
    here.page.get_by_role("combobox", name="Model").select_option("clerk")
    say(here, "Please refund order A-17.")
    expect(here.page.get_by_role("button", name="Approve", exact=True)).to_be_focused()
    here.page.keyboard.press("Enter")
    expect(answers(here)).to_contain_text("24.00 EUR refunded")


def test_a_screen_reader_hears_states_and_not_tokens(here: Tab, server: World) -> None:
    hold = Hold()
    begin(here, server, answer("Once upon ", hold, "a time"))
    say(here, "Hello")
    expect(here.page.locator("[aria-live=polite]")).to_have_text("Answer started")
    expect(here.page.locator("main [aria-live], main [role=log]")).to_have_count(0)
    hold.release()
    expect(here.page.locator("[aria-live=polite]")).to_have_text("Answer finished")


@pytest.mark.long
def test_what_a_screen_reader_finds_in_a_conversation(here: Tab, server: World) -> None:
    conversation(here, server)
    expect(here.page.get_by_role("region", name="Conversation")).to_match_aria_snapshot(
        """
        - region "Conversation":
          - article "You":
            - heading "You" [level=2]
            - paragraph: Hello
            - button "Edit"
            - button "Copy"
          - article "Answer":
            - heading "Title" [level=3]
            - paragraph:
              - text: /A/
              - link "link"
          - button "Copy"
          - button "Retry"
          - link "Inspect"
          - article "You":
            - paragraph: Weather?
          - region "Tool call get_weather"
          - region "Tool call get_time"
        """
    )
