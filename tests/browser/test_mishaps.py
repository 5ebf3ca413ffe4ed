"""What goes wrong on the way: bad addresses, requests that fail or come late, clicks in a row.
Nothing that somebody wrote is lost, and nothing goes on behind a screen that is gone."""

import re

import httpx
import pytest
from playwright.sync_api import Locator, Request, expect
from playwright.sync_api import Route as PageRoute

from tests.browser.chatting import (
    Held,
    Hold,
    answer,
    answers,
    at_conversation,
    begin,
    enter,
    is_idle,
    open_menu,
    say,
    sent,
)
from tests.browser.tabs import Tab
from tests.faults.world import World, until

pytestmark = pytest.mark.long

VISIBLE = "() => { document.dispatchEvent(new Event('visibilitychange')); }"
HEALTH = "async () => (await fetch('/health')).status"
"""Asks for something: the requests of the page before it are known when it is answered."""


def message_field(here: Tab) -> Locator:
    return here.page.get_by_role("textbox", name="Message", exact=True)


# Addresses


@pytest.mark.parametrize("address", ["#/%", "#/c%/x", "#/constructor", "#/__proto__", "#/toString"])
def test_an_address_without_a_screen_says_so(here: Tab, address: str) -> None:
    here.open(address)
    expect(here.page.get_by_role("heading", name="Nothing here", exact=True)).to_be_visible()
    here.page.get_by_role("link", name="Go to the chat").click()
    expect(message_field(here)).to_be_visible()


def test_an_address_that_was_not_encoded_is_asked_for_as_it_is(here: Tab) -> None:
    here.allow("404")
    here.open("#/c/100%")
    expect(here.page.get_by_role("alert")).to_contain_text("100%")


def test_a_conversation_that_is_gone_is_told_also_within_the_chat(here: Tab) -> None:
    here.allow("404")
    here.open()
    expect(message_field(here)).to_be_visible()
    here.page.evaluate("() => { location.hash = '#/c/conv_nobody'; }")
    alert = here.page.get_by_role("alert")
    expect(alert).to_contain_text("conv_nobody")
    expect(message_field(here)).to_have_count(0)
    here.page.evaluate("() => { location.hash = '#/'; }")
    expect(message_field(here)).to_be_visible()
    expect(alert).to_have_count(0)


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("#/c/conv_nobody", "/v1/conversations"),
        ("#/runs/run_nobody", "/v1/runs/run_nobody"),
        ("#/responses?status=nonsense", "/v1/responses"),
    ],
)
def test_a_screen_that_could_not_be_shown_asks_for_nothing_more(
    here: Tab, address: str, path: str
) -> None:
    here.allow("40[04]")
    here.page.clock.install()
    here.open(address)
    expect(here.page.get_by_role("alert")).to_be_visible()
    here.page.evaluate(VISIBLE)
    here.page.clock.run_for(20_000)
    here.page.evaluate(HEALTH)
    before = here.count("GET", path)
    here.page.clock.run_for(60_000)
    here.page.evaluate(HEALTH)
    assert here.count("GET", path) == before


def test_a_list_that_was_left_while_it_was_read_asks_for_nothing_more(here: Tab) -> None:
    here.page.clock.install()
    here.open("#/responses")
    status = here.page.get_by_role("combobox", name="Status")
    expect(status).to_be_visible()
    held = Held(here, "**/v1/responses?*")
    status.select_option("failed")
    held.wait()
    here.page.get_by_role("link", name="Usage", exact=True).click()
    expect(here.page.get_by_role("heading", name="Usage", exact=True)).to_be_visible()
    with here.page.expect_event("requestfinished", lambda one: "/v1/responses?" in one.url):
        held.release()
    here.page.evaluate(HEALTH)
    before = here.count("GET", "/v1/responses")
    here.page.clock.run_for(60_000)
    here.page.evaluate(HEALTH)
    assert here.count("GET", "/v1/responses") == before


# Messages


def test_a_message_that_could_not_be_sent_is_still_there(here: Tab, server: World) -> None:
    here.allow("ERR_FAILED")
    begin(here, server, answer("Fine."))

    def lose(route: PageRoute, request: Request) -> None:
        if request.method == "POST":
            route.abort()
        else:
            route.fallback()

    here.page.route("**/v1/conversations", lose)
    enter(here, "Written with care")
    expect(here.page.get_by_text("the server cannot be reached")).to_be_visible()
    expect(message_field(here)).to_have_value("Written with care")
    here.page.unroute_all()
    message_field(here).press("Enter")
    expect(answers(here)).to_have_text("Fine.")
    expect(message_field(here)).to_have_value("")


def test_who_is_too_fast_sends_one_message_and_keeps_the_other(here: Tab, server: World) -> None:
    model = begin(here, server, answer("Fine."))
    held = Held(here, "**/v1/conversations", "POST")
    enter(here, "First")
    held.wait()
    enter(here, "Second")
    held.release()
    expect(answers(here)).to_have_text("Fine.")
    is_idle(here)
    expect(here.page.get_by_role("article", name="You", exact=True)).to_have_count(1)
    expect(message_field(here)).to_have_value("Second")
    assert here.count("POST", "/v1/conversations") == 1
    assert len(server.upstream.exchanges(model)) == 1


def test_a_message_is_sent_once_its_conversation_is_there(here: Tab, server: World) -> None:
    begin(here, server, answer("One."), answer("Two."))
    say(here, "First")
    expect(answers(here)).to_have_text("One.")
    is_idle(here)
    id = at_conversation(here)
    here.page.get_by_role("link", name="+ New", exact=True).click()
    expect(answers(here)).to_have_count(0)
    held = Held(here, f"**/v1/conversations/{id}/items*")
    here.page.evaluate("(id) => { location.hash = `#/c/${id}`; }", id)
    held.wait()
    enter(here, "Second")
    held.release()
    expect(answers(here)).to_have_text(["One.", "Two."])
    is_idle(here)
    assert at_conversation(here) == id


def test_an_answer_that_ends_while_its_conversation_is_read_is_shown_once(
    here: Tab, server: World
) -> None:
    hold = Hold()
    begin(here, server, answer("Once ", hold, "upon a time"))
    say(here, "Tell me a story")
    expect(answers(here)).to_have_text("Once")
    url = f"{server.gateway.url}/v1/responses?conversation={at_conversation(here)}"
    items = Held(here, "**/v1/conversations/*/items*")
    here.page.reload()
    items.wait()
    hold.release()
    until(lambda: httpx.get(url).json()["data"][0]["status"] == "completed", "the end")
    items.release()
    expect(answers(here)).to_have_text(["Once upon a time"])
    is_idle(here)
    expect(here.page.get_by_role("article", name="You", exact=True)).to_have_count(1)
    expect(answers(here)).to_have_count(1)


def test_stop_is_repeated_until_the_server_hears_it(here: Tab, server: World) -> None:
    here.allow("ERR_INTERNET_DISCONNECTED")
    model = begin(here, server, answer("Once ", Hold(), "upon"))
    say(here, "Tell me a story")
    expect(answers(here)).to_have_text("Once")
    here.page.context.set_offline(True)
    with here.page.expect_event("requestfailed", lambda one: one.url.endswith("/cancel")):
        here.page.get_by_role("button", name="■ Stop", exact=True).click()
    here.page.context.set_offline(False)
    expect(here.page.get_by_text("■ Stopped")).to_be_visible()
    server.upstream.exchange(model).left()


def test_a_conversation_that_changes_under_the_mouse_is_still_clicked(
    here: Tab, server: World
) -> None:
    begin(here, server, answer("Once"))
    say(here, "Tell me a story")
    is_idle(here)
    id = at_conversation(here)
    row = here.page.locator(f'.conversations [data-id="{id}"]')
    row.hover()
    opener = row.get_by_role("button", name=re.compile("More about"))
    opener.hover()
    here.page.mouse.down()
    url = f"{server.gateway.url}/v1/conversations/{id}"
    httpx.post(url, json={"metadata": {"title": "Another"}}, timeout=60).raise_for_status()
    with here.page.expect_event("requestfinished", lambda one: "/v1/responses?" in one.url):
        here.page.get_by_role("searchbox", name="Search conversations").dispatch_event("input")
    here.page.mouse.up()
    expect(row.get_by_role("button", name="Rename…")).to_be_visible()
    here.page.keyboard.press("Escape")
    expect(row).to_contain_text("Another")


def test_a_deletion_can_be_undone_on_another_screen(here: Tab, server: World) -> None:
    begin(here, server, answer("One."))
    say(here, "To be or not to be")
    is_idle(here)
    path = f"/v1/conversations/{at_conversation(here)}"
    rows = here.page.get_by_role("navigation", name="Conversations").get_by_role("listitem")
    row = rows.filter(has_text="To be or not to be")
    here.stop_clock()  # Undo is shown for some seconds
    open_menu(row)
    row.get_by_role("button", name="Delete", exact=True).click()
    here.page.get_by_role("link", name="Usage", exact=True).click()
    expect(here.page.get_by_role("heading", name="Usage", exact=True)).to_be_visible()
    here.page.get_by_role("button", name="Undo", exact=True).click()
    here.page.get_by_role("link", name="Chat", exact=True).click()
    expect(row).to_have_count(1)
    assert here.count("DELETE", path) == 0
    assert httpx.get(server.gateway.url + path).status_code == 200


@pytest.mark.parametrize("fails", [False, True])
def test_a_deletion_is_final_when_nobody_undoes_it(here: Tab, server: World, fails: bool) -> None:
    title = f"Deleted for good, {'in vain' if fails else 'at last'}"
    begin(here, server, answer("One."))
    say(here, title)
    is_idle(here)
    path = f"/v1/conversations/{at_conversation(here)}"
    here.page.clock.install()
    here.page.reload()
    rows = here.page.get_by_role("navigation", name="Conversations").get_by_role("listitem")
    row = rows.filter(has_text=title)
    expect(row).to_have_count(1)
    here.stop_clock()
    open_menu(row)
    row.get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_have_count(0)
    if fails:
        here.allow("ERR_FAILED")
        here.page.route(f"**{path}", lambda route: route.abort())
    if fails:
        with here.page.expect_event("requestfailed", lambda one: one.method == "DELETE"):
            here.page.clock.run_for(7_000)
        here.page.clock.run_for(6_000)  # the next look at the list
        expect(row).to_have_count(1)
        return
    with here.page.expect_event("requestfinished", lambda one: one.method == "DELETE"):
        here.page.clock.run_for(7_000)
    assert httpx.get(server.gateway.url + path).status_code == 404
    with here.page.expect_event("requestfinished", lambda one: "/v1/conversations?" in one.url):
        here.page.clock.run_for(6_000)
    expect(row).to_have_count(0)


@pytest.mark.parametrize("edited", ["while the items are read", "after they were read"])
def test_a_message_sent_before_the_items_of_the_last_turn_are_read_is_edited_in_its_own_place(
    here: Tab, server: World, edited: str
) -> None:
    """The second message was taken for the first one, and its branch began with nothing."""
    model = begin(here, server, answer("one"), answer("two"), answer("three"))
    items = Held(here, "**/v1/conversations/*/items*")
    say(here, "First")
    expect(answers(here)).to_have_text("one")
    is_idle(here)
    items.wait()
    say(here, "Second")
    expect(answers(here).last).to_have_text("two")
    is_idle(here)
    original = at_conversation(here)
    if edited == "after they were read":
        with here.page.expect_response(re.compile("/items")):
            items.release()
    message_field(here).press("ArrowUp")
    field = here.page.get_by_role("textbox", name="Edit the message")
    field.fill("Second, but better")
    field.press("Enter")
    if edited == "while the items are read":
        items.release()
    expect(answers(here)).to_have_text(["one", "three"])
    assert at_conversation(here) != original
    messages = sent(server, model, 2)["messages"]
    assert isinstance(messages, list)
    assert [one["content"] for one in messages] == ["First", "one", "Second, but better"]


# What comes from outside


def test_an_image_that_is_none_does_not_hide_the_conversation(here: Tab, server: World) -> None:
    url = f"{server.gateway.url}/v1/conversations"
    image = {"type": "input_image", "image_url": "data:image/png;base64,!!!", "detail": "auto"}
    content = [{"type": "input_text", "text": "Look at this"}, image]
    items = [{"type": "message", "role": "user", "content": content}]
    id = httpx.post(url, json={"items": items}).raise_for_status().json()["id"]
    here.open(f"#/c/{id}")
    expect(here.page.get_by_role("article", name="You", exact=True)).to_contain_text("Look at this")
    expect(here.page.get_by_role("img", name="attached image")).to_have_count(0)


def test_the_bytes_of_an_image_are_not_kept_once_it_is_drawn(here: Tab) -> None:
    here.allow("ERR_FILE_NOT_FOUND")
    here.open()
    states = here.page.evaluate(
        """async () => {
          const { attachment } = await import("/page/chat/message.js");
          const canvas = new OffscreenCanvas(1, 1);
          canvas.getContext("2d");
          const blob = await canvas.convertToBlob();
          const image_url = await new Promise((resolve) => {
            const reader = new FileReader();
            reader.onload = () => resolve(reader.result);
            reader.readAsDataURL(blob);
          });
          const loads = (image) => new Promise((resolve) => {
            image.addEventListener("load", () => resolve(true));
            image.addEventListener("error", () => resolve(false));
          });
          const shown = attachment({ image_url });
          const first = await loads(shown);
          const again = new Image();
          again.src = shown.src;
          return [first, await loads(again)];
        }"""
    )
    assert states == [True, False]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_lines_are_whole_however_they_are_cut(here: Tab, size: int) -> None:
    text = "one\r\ntwo\n\n" + "long " * 1000 + "\nthree \N{OWL}\nno end"
    here.open()
    found = here.page.evaluate(
        """async ([text, size]) => {
          const { lines } = await import("/page/api.js");
          const bytes = new TextEncoder().encode(text);
          const body = new ReadableStream({
            start(controller) {
              for (let at = 0; at < bytes.length; at += size) {
                controller.enqueue(bytes.slice(at, at + size));
              }
              controller.close();
            },
          });
          const found = [];
          for await (const line of lines(new Response(body))) found.push(line);
          return found;
        }""",
        [text, size],
    )
    assert found == text.replace("\r\n", "\n").split("\n")


# Lists


def listed(first: int, *, more: bool) -> dict[str, object]:
    """A page of a list of responses."""
    rows = [
        {"id": f"resp_{number}", "status": "completed", "model": f"model-{number}",
         "dialect": "openai-chat", "created_at": 1, "seconds": 1.0, "conversation": None,
         "findings": 0, "cost": None}
        for number in range(first, first + 50)
    ]  # fmt: skip
    return {"data": rows, "has_more": more, "last_id": rows[-1]["id"]}


@pytest.mark.parametrize("first", ["the poll", "the next page"])
def test_a_poll_meanwhile_does_not_undo_a_click_on_more(here: Tab, first: str) -> None:
    polls: list[PageRoute] = []
    pages: list[PageRoute] = []

    def respond(route: PageRoute, request: Request) -> None:
        if "after=" in request.url:
            pages.append(route)
        elif here.count("GET", "/v1/responses") == 1:
            route.fulfill(json=listed(0, more=True))
        else:
            polls.append(route)

    here.page.route("**/v1/responses?*", respond)
    here.stop_clock()  # the list is polled when the test says so
    here.open("#/responses")
    more = here.page.get_by_role("button", name="Show more", exact=True)
    expect(more).to_be_visible()
    here.page.evaluate(VISIBLE)
    until(lambda: here.page.evaluate("() => true") and bool(polls), "the poll")
    more.click()
    until(lambda: here.page.evaluate("() => true") and bool(pages), "the next page")
    poll = (polls[0], listed(0, more=True))
    page = (pages[0], listed(50, more=False))
    for route, body in (poll, page) if first == "the poll" else (page, poll):
        with here.page.expect_response("**/v1/responses?*"):
            route.fulfill(json=body)
    expect(more).to_be_hidden()
    expect(here.page.get_by_role("row")).to_have_count(101)


def test_two_clicks_on_more_show_the_next_page_once(here: Tab) -> None:
    asked: list[PageRoute] = []

    def respond(route: PageRoute, request: Request) -> None:
        if "after=" not in request.url:
            route.fulfill(json=listed(0, more=True))
        else:
            asked.append(route)

    here.page.route("**/v1/responses?*", respond)
    here.stop_clock()  # a list that is polled meanwhile is another one
    here.open("#/responses")
    more = here.page.get_by_role("button", name="Show more", exact=True)
    more.click()
    more.click()
    until(lambda: here.page.evaluate("() => true") and len(asked) == 2, "two requests")
    for route in asked:
        route.fulfill(json=listed(50, more=False))
    expect(more).to_be_hidden()
    expect(here.page.get_by_role("row")).to_have_count(101)


def test_an_event_of_a_run_does_not_empty_the_field_that_somebody_types_into(here: Tab) -> None:
    call = {"call_id": "c1", "tool": "lookup", "arguments": "{}"}
    count = 1

    def run(route: PageRoute) -> None:
        found = {"id": "run_1", "agent": "clerk", "status": "waiting", "events": count,
                 "created_at": 1, "ended_at": None, "responses": [], "usage": None, "cost": None,
                 "error": None, "output": None, "forked_from": None,
                 "waiting": {"outputs": [call]}}  # fmt: skip
        route.fulfill(json=found)

    def events(route: PageRoute, request: Request) -> None:
        after = int(request.url.rpartition("after=")[2]) if "after=" in request.url else 0
        some = [{"run": "run_1", "seq": number, "at": number, "kind": "turn.started"}
                for number in range(after + 1, count + 1)]  # fmt: skip
        route.fulfill(json={"data": some, "has_more": False})

    here.page.route("**/v1/runs/run_1", run)
    here.page.route("**/v1/runs/run_1/events*", events)
    here.open("#/runs/run_1")
    field = here.page.get_by_role("textbox", name="Output of lookup")
    field.fill("half a sente")
    count = 3
    expect(here.page.locator(".log > li")).to_have_count(3)
    expect(field).to_have_value("half a sente")


# The inspector


def test_a_file_is_uploaded_once_after_another_was_refused(here: Tab) -> None:
    here.allow("400")
    here.open("#/inspect")
    drop = """(screen, [name, text]) => {
      const data = new DataTransfer();
      data.items.add(new File([text], name));
      screen.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    }"""
    screen = here.page.locator(".screen")
    expect(here.page.get_by_role("heading", name="Drop a capture here", exact=True)).to_be_visible()
    screen.evaluate(drop, ["notes.txt", "just words\n"])
    expect(here.page.get_by_role("alert")).to_contain_text("not a stream")
    good = 'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n'
    screen.evaluate(drop, ["good.sse", good])
    expect(here.page.locator(".sameness")).to_have_text(re.compile("capture"))
    here.page.evaluate(HEALTH)
    assert here.count("POST", "/v1/trace") == 2
