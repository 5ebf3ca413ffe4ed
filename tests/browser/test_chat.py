"""The chat in a real browser: every promise of it that a person would notice if it broke."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Browser, Request, expect
from playwright.sync_api import Route as PageRoute

from tests.browser.chatting import (
    Held,
    Hold,
    answer,
    answers,
    at_conversation,
    begin,
    calls,
    cards,
    choose_model,
    enter,
    is_idle,
    open_menu,
    say,
    sent,
)
from tests.browser.tabs import Tab, tab
from tests.faults.upstream import answer as http_answer
from tests.faults.world import World, until
from tests.gateway_process import gateway

FIRST, SECOND = "Once upon a time ", "there was a **stream**."
WHOLE = "Once upon a time there was a stream."


def asked(server: World, model: str) -> int:
    """How often the upstream was asked."""
    return len(server.upstream.exchanges(model))


# Streams


def test_a_reload_in_the_middle_shows_the_text_once_and_asks_nobody_again(
    here: Tab, server: World
) -> None:
    hold = Hold()
    model = begin(here, server, answer(FIRST, hold, SECOND))
    say(here, "Tell me a story")
    expect(answers(here)).to_have_text(FIRST.strip())
    here.page.reload()
    expect(answers(here)).to_have_text(FIRST.strip())
    hold.release()
    expect(answers(here)).to_have_text(WHOLE)
    is_idle(here)
    expect(here.page.get_by_role("article", name="You", exact=True)).to_have_count(1)
    expect(here.page.get_by_text("streamed ≠ final")).to_have_count(0)
    assert asked(server, model) == 1
    here.page.reload()
    expect(answers(here)).to_have_text(WHOLE)
    expect(here.page.get_by_text("12 in · 34 out")).to_be_visible()
    expect(here.page.get_by_role("article", name="You", exact=True)).to_have_count(1)


def test_a_lost_connection_is_resumed_where_it_broke(here: Tab, server: World) -> None:
    here.allow("ERR_INTERNET_DISCONNECTED", "ERR_NETWORK")
    hold = Hold()
    model = begin(here, server, answer(FIRST, hold, SECOND))
    say(here, "Tell me a story")
    expect(answers(here)).to_have_text(FIRST.strip())
    # Offline ends no open connection. First offline: otherwise the page may be back before it is.
    here.page.context.set_offline(True)
    here.page.evaluate("() => window.stop()")
    expect(here.page.get_by_text(re.compile("Reconnecting"))).to_be_visible()
    hold.release()
    here.page.context.set_offline(False)
    expect(answers(here)).to_have_text(WHOLE)
    is_idle(here)
    expect(here.page.get_by_text(re.compile("Reconnecting"))).to_be_hidden()
    assert asked(server, model) == 1


@pytest.mark.long
def test_who_leaves_while_a_conversation_is_made_is_not_brought_back(
    here: Tab, server: World
) -> None:
    model = begin(here, server, answer("Fine."))
    held = Held(here, "**/v1/conversations", "POST")
    enter(here, "Hello")
    held.wait()
    here.page.get_by_role("link", name="Responses", exact=True).click()
    expect(here.page.get_by_role("heading", name="Responses", exact=True)).to_be_visible()
    held.release()
    row = here.page.get_by_role("row").filter(has_text=model)
    expect(row).to_contain_text("completed")
    expect(here.page).to_have_url(re.compile("#/responses$"))


@pytest.mark.long
def test_a_request_whose_answer_was_lost_is_sent_again_and_run_once(
    here: Tab, server: World
) -> None:
    here.allow("ERR_FAILED")
    model = begin(here, server, answer(FIRST, SECOND))
    keys: list[str] = []

    def lose_the_first(route: PageRoute, request: Request) -> None:
        if request.method == "POST":
            keys.append(request.headers["idempotency-key"])
            if len(keys) == 1:
                route.fetch()
                route.abort()
                return
        route.continue_()

    here.page.route("**/v1/responses", lose_the_first)
    say(here, "Tell me a story")
    expect(answers(here)).to_have_text(WHOLE)
    is_idle(here)
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert asked(server, model) == 1


def test_stop_before_the_first_event_stops_the_upstream(here: Tab, server: World) -> None:
    hold = Hold()
    model = begin(here, server, (hold, *answer("too late")))
    say(here, "Tell me a story")
    hold.here()
    here.page.get_by_role("button", name="■ Stop", exact=True).click()
    expect(here.page.get_by_text("■ Stopped")).to_be_visible()
    is_idle(here)
    server.upstream.exchange(model).left()
    here.page.reload()
    expect(here.page.get_by_text("■ Stopped")).to_be_visible()


@pytest.mark.long
def test_stop_in_the_middle_keeps_what_came(here: Tab, server: World) -> None:
    model = begin(here, server, answer(FIRST, Hold(), SECOND))
    say(here, "Tell me a story")
    expect(answers(here)).to_have_text(FIRST.strip())
    field = here.page.get_by_role("textbox", name="Message", exact=True)
    here.stop_clock()
    field.press("Escape")
    field.press("Escape")
    here.start_clock()
    expect(here.page.get_by_text("■ Stopped")).to_be_visible()
    expect(answers(here)).to_contain_text(FIRST.strip())
    server.upstream.exchange(model).left()


@pytest.mark.long
def test_options_are_sent_with_each_message_of_their_conversation(here: Tab, server: World) -> None:
    model = begin(here, server, answer("one"), answer("two"), answer("three"))
    page = here.page

    def set_options(temperature: str) -> None:
        page.get_by_role("button", name=re.compile("^Options")).click()
        dialog = page.get_by_role("dialog", name="Options", exact=True)
        dialog.get_by_label("Instructions", exact=True).fill("Be brief.")
        dialog.get_by_label("Temperature", exact=True).fill(temperature)
        dialog.get_by_label("Output tokens", exact=True).fill("77")
        dialog.get_by_label("Reasoning", exact=True).select_option("low")
        dialog.get_by_role("button", name="Save", exact=True).click()

    set_options("9")
    expect(page.get_by_role("dialog")).to_be_visible()  # not a temperature
    page.get_by_role("button", name="Cancel", exact=True).click()
    set_options("0.5")
    expect(page.get_by_role("button", name="Options •", exact=True)).to_be_visible()
    say(here, "First")
    expect(answers(here)).to_have_text("one")
    is_idle(here)
    page.reload()
    expect(answers(here)).to_have_text("one")
    say(here, "Second")
    expect(answers(here)).to_have_text(["one", "two"])
    is_idle(here)
    for number in range(2):
        body = sent(server, model, number)
        messages = body["messages"]
        assert isinstance(messages, list)
        assert messages[0]["content"] == "Be brief."
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        assert (body["temperature"], body["reasoning_effort"], limit) == (0.5, "low", 77)
    # A new conversation has none.
    page.get_by_role("link", name="+ New", exact=True).click()
    expect(page.get_by_role("button", name="Options", exact=True)).to_be_visible()
    say(here, "Third")
    expect(answers(here)).to_have_text(["three"])
    is_idle(here)
    assert "temperature" not in sent(server, model, 2)


@pytest.mark.long
def test_a_tab_that_is_closed_cancels_nothing(browser: Browser, here: Tab, server: World) -> None:
    hold = Hold()
    model = begin(here, server, answer(FIRST, hold, SECOND))
    say(here, "Tell me a story")
    expect(answers(here)).to_have_text(FIRST.strip())
    id = at_conversation(here)
    here.page.goto("about:blank")
    hold.release()
    with tab(browser, server.gateway.url) as later:
        later.open(f"#/c/{id}")
        expect(answers(later)).to_have_text(WHOLE)
    assert asked(server, model) == 1


@contextmanager
def kept_port() -> Iterator[str]:
    """A port for one server after the other: nobody else is given it while none listens."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield str(bound.getsockname()[1])


@pytest.mark.long
def test_a_server_that_is_killed_and_started_again_is_resumed(
    browser: Browser, server: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, hold = tmp_path_factory.mktemp("killed"), Hold()
    settings = f'[upstreams.chat]\ndialect = "openai-chat"\nbase_url = "{server.upstream.url}/v1"\n'
    with (
        kept_port() as port,
        gateway(settings, folder, "--port", port) as first,
        tab(browser, first.url) as here,
    ):
        here.allow("ERR_")
        begin(here, World(first, server.upstream), answer(FIRST, hold, SECOND))
        say(here, "Tell me a story")
        expect(answers(here)).to_have_text(FIRST.strip())
        # What was stored before the kill is there after it.
        id = at_conversation(here)
        listed = f"{first.url}/v1/responses?conversation={id}"
        response = httpx.get(listed).json()["data"][0]["id"]
        assert httpx.get(f"{first.url}/v1/responses/{response}").status_code == 200
        first.process.kill()
        first.process.wait()
        expect(here.page.get_by_text(re.compile("Reconnecting"))).to_be_visible()
        with gateway(settings, folder, "--port", port):
            is_idle(here)
            expect(answers(here)).to_contain_text(FIRST.strip())
            expect(here.page.get_by_text(FIRST.strip())).to_have_count(1)
            expect(here.page.get_by_role("alert")).to_be_visible()
            expect(here.page.get_by_text(re.compile("Reconnecting"))).to_be_hidden()


@pytest.mark.long
def test_a_final_text_that_is_not_what_was_streamed_is_shown_as_such(
    here: Tab, server: World
) -> None:
    """No gateway of ours does that: the stream is changed on its way into the browser."""

    def change(route: PageRoute, request: Request) -> None:
        if request.method != "POST":
            route.continue_()
            return
        found = route.fetch()
        route.fulfill(response=found, body=found.text().replace('"delta":"Once', '"delta":"Twice'))

    begin(here, server, answer(FIRST, SECOND))
    here.page.route("**/v1/responses", change)
    say(here, "Tell me a story")
    expect(here.page.get_by_text("streamed ≠ final")).to_be_visible()
    expect(answers(here)).to_contain_text(WHOLE)


# Tools


def test_outputs_of_parallel_calls_are_typed_in_checked_and_sent_together(
    here: Tab, server: World
) -> None:
    asks = calls(("call_1", "get_weather", '{"city":"Oslo"}'), ("call_2", "get_time", "{}"))
    model = begin(here, server, answer(asks, reason="tool_calls"), answer("3 °C"), tools=True)
    say(here, "Weather and time in Oslo?")
    expect(cards(here)).to_have_count(2)
    send = here.page.get_by_role("button", name="Send 2 outputs")
    weather = here.page.get_by_role("textbox", name="Output of get_weather")
    time = here.page.get_by_role("textbox", name="Output of get_time")
    expect(weather).to_be_focused()
    expect(send).to_be_disabled()
    weather.fill('{"celsius": 3')
    expect(here.page.get_by_text(re.compile("not JSON"))).to_be_visible()
    weather.fill('{"celsius": 3}')
    time.fill('{"minute": 5}')
    expect(here.page.get_by_text("the output: hour is missing")).to_be_visible()
    expect(send).to_be_disabled()
    time.fill('{"hour": 5}')
    send.click()
    expect(answers(here)).to_have_text("3 °C")
    is_idle(here)
    assert asked(server, model) == 2
    messages = sent(server, model, 1)["messages"]
    assert isinstance(messages, list)
    outputs = [one["content"] for one in messages if one["role"] == "tool"]
    assert outputs == ['{"celsius": 3}', '{"hour": 5}']
    here.page.reload()
    expect(answers(here)).to_have_text("3 °C")
    expect(cards(here).get_by_text("✓ done")).to_have_count(2)


@pytest.mark.long
def test_calls_that_wait_are_still_there_after_a_reload(here: Tab, server: World) -> None:
    asks = calls(("call_1", "get_weather", '{"city":"Oslo"}'))
    begin(here, server, answer(asks, reason="tool_calls"), answer("3 °C"), tools=True)
    say(here, "Weather in Oslo?")
    is_idle(here)
    expect(cards(here)).to_have_count(1)
    here.page.reload()
    here.page.get_by_role("textbox", name="Output of get_weather").fill("3")
    here.page.get_by_role("button", name="Send 1 output").click()
    expect(answers(here)).to_have_text("3 °C")


def test_an_approval_is_given_in_the_chat_and_shown_in_one_card(here: Tab) -> None:
    here.open()
    here.page.get_by_role("combobox", name="Model").select_option("clerk")
    say(here, "What is the status of order A-17? Please refund it.")
    approve = here.page.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_focused()
    expect(cards(here)).to_have_count(2)
    approve.click()
    expect(answers(here)).to_contain_text("24.00 EUR refunded")
    expect(cards(here)).to_have_count(2)
    expect(cards(here).get_by_text(re.compile("✓ done"))).to_have_count(2)
    here.page.reload()
    expect(answers(here)).to_contain_text("24.00 EUR refunded")
    expect(cards(here)).to_have_count(2)


@pytest.mark.long
def test_a_denial_has_a_reason_and_the_model_is_told(here: Tab) -> None:
    here.open()
    here.page.get_by_role("combobox", name="Model").select_option("clerk")
    say(here, "Please refund order A-17.")
    here.page.get_by_role("button", name="Deny…").click()
    here.page.get_by_role("textbox", name="Reason to deny").fill("too expensive")
    here.page.get_by_role("button", name="Deny", exact=True).click()
    expect(answers(here)).to_contain_text("too expensive")
    is_idle(here)
    expect(cards(here).first).to_contain_text("denied")


@pytest.mark.long
def test_always_is_remembered_for_the_conversation_and_can_be_taken_back(here: Tab) -> None:
    here.open()
    here.page.get_by_role("combobox", name="Model").select_option("clerk")
    say(here, "Please refund order A-17.")
    here.page.get_by_role("button", name="Always", exact=True).click()
    expect(answers(here)).to_contain_text("refunded")
    is_idle(here)
    say(here, "Please refund order A-18.")
    expect(answers(here).last).to_contain_text("39.50 EUR refunded")
    is_idle(here)
    here.page.get_by_role("button", name="Remove: always approve refund").click()
    say(here, "Please refund order A-17.")
    expect(here.page.get_by_role("button", name="Approve", exact=True)).to_be_visible()


def is_reading_items(request: Request) -> bool:
    """Whether it reads what a turn has added: only then the page asks for outputs of calls."""
    return "/items?" in request.url


@pytest.mark.parametrize(
    ("made", "reason", "shown"),
    [
        (("call_1", "get_weather", '{"city":"Os'), "length", "the arguments were cut off"),
        (("call_1", "get_weather", '{"city":'), "tool_calls", "the arguments are not JSON"),
    ],
)
@pytest.mark.long
def test_a_call_that_cannot_be_run_is_shown_and_cannot_be_answered(
    here: Tab, server: World, made: tuple[str, str, str], reason: str, shown: str
) -> None:
    begin(here, server, answer(calls(made), reason=reason), tools=True)
    with here.page.expect_event("requestfinished", is_reading_items):
        say(here, "Weather in Oslo?")
    is_idle(here)
    expect(cards(here)).to_have_class(re.compile("invalid"))
    expect(cards(here)).to_contain_text(shown)
    expect(cards(here).get_by_role("textbox")).to_have_count(0)
    expect(here.page.get_by_role("button", name="Send 1 output")).to_have_count(0)


@pytest.mark.long
def test_a_call_without_a_name_is_a_finding_and_never_a_card_to_answer(
    here: Tab, server: World
) -> None:
    begin(here, server, answer(calls(("call_1", None, "{}")), reason="tool_calls"), tools=True)
    with here.page.expect_event("requestfinished", is_reading_items):
        say(here, "Weather in Oslo?")
    is_idle(here)
    expect(here.page.get_by_text(re.compile("⚠ .* finding"))).to_be_visible()
    expect(here.page.get_by_role("textbox", name=re.compile("Output of"))).to_have_count(0)


# Errors


@pytest.mark.parametrize(
    "status", [429, *(pytest.param(one, marks=pytest.mark.long) for one in (400, 500))]
)
@pytest.mark.long
def test_an_error_is_a_card_in_the_turn_and_the_turn_can_be_tried_again(
    here: Tab, server: World, status: int
) -> None:
    body = json.dumps({"error": {"message": f"no luck {status}"}}).encode()
    model = begin(here, server, (http_answer(body, f"{status} No"),), answer("Better now"))
    say(here, "Hello")
    card = here.page.get_by_role("alert")
    expect(card).to_contain_text(f"no luck {status}")
    expect(here.page.get_by_role("article", name="You", exact=True)).to_have_count(1)
    here.page.reload()
    expect(card).to_contain_text(f"no luck {status}")
    expect(here.page.get_by_role("article", name="You", exact=True)).to_have_text(
        re.compile("Hello")
    )
    card.get_by_role("button", name="Retry", exact=True).click()
    expect(answers(here)).to_have_text("Better now")
    is_idle(here)
    expect(here.page.get_by_role("article", name="You", exact=True)).to_have_count(1)
    assert asked(server, model) == 2
    here.page.reload()
    expect(answers(here)).to_have_text("Better now")
    expect(here.page.get_by_role("article", name="You", exact=True)).to_have_count(1)
    expect(here.page.get_by_text("A failed attempt")).to_be_visible()


@pytest.mark.long
def test_an_error_in_the_middle_keeps_what_came(here: Tab, server: World) -> None:
    error = b'data: {"error":{"message":"the model has fallen asleep"}}\n\n'
    frame = b"%x\r\n%b\r\n" % (len(error), error)
    begin(here, server, answer(FIRST, frame))
    say(here, "Hello")
    expect(here.page.get_by_role("alert")).to_contain_text("the model has fallen asleep")
    expect(answers(here)).to_contain_text(FIRST.strip())


@pytest.mark.long
def test_a_model_that_does_not_exist_is_told_with_the_request_id(here: Tab) -> None:
    here.allow("404")
    choose_model(here, "nowhere/nothing")
    here.open()
    say(here, "Hello")
    card = here.page.get_by_role("alert")
    expect(card).to_contain_text("no model 'nowhere/nothing'")
    expect(card).to_contain_text("req_")


# Branches


@pytest.mark.long
def test_an_edit_makes_a_branch_and_the_branches_can_be_paged(here: Tab, server: World) -> None:
    model = begin(here, server, answer("one"), answer("two"), answer("three"), answer("four"))
    say(here, "First")
    expect(answers(here)).to_have_text("one")
    is_idle(here)
    say(here, "Second")
    expect(answers(here).last).to_have_text("two")
    is_idle(here)
    original = at_conversation(here)
    you = here.page.get_by_role("article", name="You", exact=True)
    you.last.hover()
    you.last.get_by_role("button", name="Edit", exact=True).click()
    field = here.page.get_by_role("textbox", name="Edit the message")
    expect(field).to_have_value("Second")
    field.fill("Second, but better")
    field.press("Enter")
    expect(answers(here).last).to_have_text("three")
    is_idle(here)
    assert at_conversation(here) != original
    expect(answers(here)).to_have_text(["one", "three"])
    messages = sent(server, model, 2)["messages"]
    assert isinstance(messages, list)
    assert [one["content"] for one in messages] == ["First", "one", "Second, but better"]
    here.page.reload()
    pager = here.page.get_by_role("group", name="Branches")
    expect(pager).to_have_text(re.compile("2/2"))
    pager.get_by_role("button", name="Previous branch").click()
    expect(answers(here)).to_have_text(["one", "two"])
    assert at_conversation(here) == original
    expect(pager).to_have_text(re.compile("1/2"))
    # A branch of the branch is a third way from the same point.
    pager.get_by_role("button", name="Next branch").click()
    expect(answers(here)).to_have_text(["one", "three"])
    here.page.get_by_role("button", name="Retry", exact=True).last.click()
    expect(answers(here)).to_have_text(["one", "four"])
    is_idle(here)
    here.page.reload()
    expect(pager).to_have_text(re.compile("3/3"))


@pytest.mark.long
def test_the_first_message_can_be_edited_too(here: Tab, server: World) -> None:
    begin(here, server, answer("one"), answer("two"))
    say(here, "First")
    expect(answers(here)).to_have_text("one")
    is_idle(here)
    here.page.get_by_role("textbox", name="Message", exact=True).press("ArrowUp")
    field = here.page.get_by_role("textbox", name="Edit the message")
    field.fill("Other")
    field.press("Enter")
    expect(answers(here)).to_have_text(["two"])
    is_idle(here)
    here.page.reload()
    expect(here.page.get_by_role("group", name="Branches")).to_have_text(re.compile("2/2"))


# The list of conversations


@pytest.mark.long
def test_a_conversation_is_renamed_found_exported_and_deleted_with_undo(
    here: Tab, server: World
) -> None:
    begin(here, server, answer("one"))
    say(here, "A title of its own")
    expect(answers(here)).to_have_text("one")
    is_idle(here)
    id = at_conversation(here)
    rows = here.page.get_by_role("navigation", name="Conversations").get_by_role("listitem")
    row = rows.filter(has_text="A title of its own")

    def choose(name: str) -> None:
        open_menu(row)
        row.get_by_role("button", name=name, exact=True).click()

    choose("Rename…")
    here.page.get_by_role("textbox", name="Title").fill("Kestrels")
    here.page.get_by_role("button", name="Save", exact=True).click()
    row = rows.filter(has_text="Kestrels")
    expect(here.page.get_by_role("heading", name="Kestrels", exact=True)).to_be_visible()
    here.page.get_by_role("searchbox", name="Search conversations").fill("kestrel")
    expect(rows).to_have_count(1)
    with here.page.expect_download() as saved:
        choose("Export as JSONL")
    lines = saved.value.path().read_text().splitlines()
    assert [json.loads(line).get("role") for line in lines] == [None, "user", "assistant"]
    here.stop_clock()  # Undo is shown for some seconds
    choose("Delete")
    expect(row).to_have_count(0)
    here.page.get_by_role("button", name="Undo", exact=True).click()
    expect(row).to_have_count(1)
    path = f"{server.gateway.url}/v1/conversations/{id}"
    choose("Delete")
    expect(row).to_have_count(0)
    assert httpx.get(path).status_code == 200
    here.page.goto("about:blank")
    until(lambda: httpx.get(path).status_code == 404, "the deletion")


@pytest.mark.long
def test_two_tabs_show_the_same_answer(browser: Browser, here: Tab, server: World) -> None:
    hold = Hold()
    model = begin(here, server, answer(FIRST, hold, SECOND))
    say(here, "Tell me a story")
    expect(answers(here)).to_have_text(FIRST.strip())
    with tab(browser, server.gateway.url) as second:
        second.open(f"#/c/{at_conversation(here)}")
        expect(answers(second)).to_have_text(FIRST.strip())
        hold.release()
        for one in (here, second):
            expect(answers(one)).to_have_text(WHOLE)
            is_idle(one)
    assert asked(server, model) == 1


HIDE = """() => {
  Object.defineProperty(document, "visibilityState", { get: () => "hidden", configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
SHOW = HIDE.replace('"hidden"', '"visible"')


@pytest.mark.long
def test_seven_tabs_with_a_stream_each_do_not_lock_each_other_out(
    browser: Browser, server: World
) -> None:
    """A browser has six connections to a server: tabs that are hidden give theirs back."""
    holds = [Hold() for _ in range(7)]
    with tab(browser, server.gateway.url) as first:
        tabs = [first]
        for hold in holds:
            here = tabs[-1]
            begin(here, server, answer(FIRST, hold, SECOND))
            here.page.clock.install()
            say(here, "Tell me a story")
            expect(answers(here)).to_have_text(FIRST.strip())
            here.page.evaluate(HIDE)
            here.page.clock.fast_forward(11_000)
            tabs.append(Tab(here.page.context.new_page(), server.gateway.url))
        for here, hold in zip(tabs, holds, strict=False):
            hold.release()
            here.page.evaluate(SHOW)
            expect(answers(here)).to_have_text(WHOLE)
            here.check()
