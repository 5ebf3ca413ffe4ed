"""Responses and runs: what runs, failed, was repaired, or waits for somebody."""

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chatting import (
    answer,
    answers,
    begin,
    calls,
    cards,
    choose_model,
    is_idle,
    say,
)
from tests.browser.tabs import Tab, tab
from tests.faults.upstream import Hold
from tests.faults.upstream import answer as http_answer
from tests.faults.world import World, until
from tests.gateway_process import Gateway, gateway

SHOP = """
import asyncio
from pathlib import Path
import weft

@weft.tool(timeout=0.05)
async def pay(order: str) -> str:
    '''Pays an order.'''
    await asyncio.sleep(60)

@weft.tool(approval="always")
def cancel(order: str) -> str:
    '''Cancels an order.'''
    return f"{order} is cancelled"

@weft.tool(retry="pure")
def pack(context: weft.ToolContext, order: str) -> str:
    '''Packs an order, and says how far it is, as somebody writes it into a pipe.'''
    with (Path(__file__).parent / "pipe").open() as pipe:
        for line in pipe:
            context.progress_sync(line.strip())
    return f"{order} is packed"
"""
SETTINGS = """
[upstreams.demo]
dialect = "openai-chat"
base_url = "demo:fast"

[agents.shop]
model = "demo/agent"
tools = ["page_shop:pay", "page_shop:cancel", "page_shop:pack"]
"""


@pytest.fixture(scope="module")
def shop_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "page_shop.py").write_text(SHOP)
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture(scope="module")
def shop(shop_folder: Path) -> Iterator[Gateway]:
    """A gateway with an agent whose payments nobody knows the outcome of."""
    with gateway(SETTINGS, shop_folder) as made:
        yield made


@pytest.fixture
def inside(browser: Browser, shop: Gateway) -> Iterator[Tab]:
    with tab(browser, shop.url) as made:
        yield made


def start(shop: Gateway, input: str, **more: object) -> str:
    body = {"agent": "shop", "input": input, **more}
    id: str = httpx.post(f"{shop.url}/v1/runs", json=body).json()["id"]
    return id


def state(shop: Gateway, run: str) -> dict[str, object]:
    found: dict[str, object] = httpx.get(f"{shop.url}/v1/runs/{run}").json()
    return found


@pytest.mark.long
def test_responses_are_listed_and_filtered_and_lead_to_their_chat(here: Tab, server: World) -> None:
    body = json.dumps({"error": {"message": "no luck"}}).encode()
    nameless = answer(calls(("call_1", None, "{}")), "Sorry")
    model = begin(here, server, answer("fine"), (http_answer(body, "500 No"),), nameless)
    for words in ("one", "two", "three"):
        say(here, words)
        is_idle(here)
    here.open(f"#/responses?model=chat/{model}")
    rows = here.page.get_by_role("row")
    expect(rows).to_have_count(4)
    here.page.get_by_role("combobox", name="Status").select_option("failed")
    expect(rows).to_have_count(2)
    expect(here.page).to_have_url(re.compile("status=failed"))
    here.page.reload()
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("failed")
    here.page.get_by_role("combobox", name="Status").select_option("any")
    here.page.get_by_role("combobox", name="Findings").select_option("with findings")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("⚠ 2 findings")
    rows.nth(1).get_by_role("link", name="open", exact=True).click()
    expect(answers(here).first).to_have_text("fine")


@pytest.mark.long
def test_a_running_response_is_in_the_list_until_it_ends(here: Tab, server: World) -> None:
    hold = Hold()
    model = begin(here, server, answer("Once ", hold))
    say(here, "Hello")
    expect(answers(here)).to_have_text("Once")
    here.open(f"#/responses?model=chat/{model}")
    row = here.page.get_by_role("row").nth(1)
    expect(row).to_contain_text("running")
    hold.release()
    expect(row).to_contain_text("completed")


@pytest.mark.long
def test_an_approval_is_given_on_the_page_of_the_run(inside: Tab, shop: Gateway) -> None:
    run = start(shop, "Please cancel order A-1.")
    inside.open("#/runs?status=waiting")
    inside.page.get_by_role("row").filter(has_text=run[:14]).get_by_role("link").click()
    expect(inside.page).to_have_url(re.compile(run))
    inside.page.get_by_role("button", name="Approve", exact=True).click()
    expect(inside.page.get_by_role("heading", level=1)).to_contain_text("finished")
    expect(inside.page.get_by_text("is cancelled").first).to_be_visible()
    assert state(shop, run)["status"] == "finished"


@pytest.mark.long
def test_an_approval_is_denied_with_a_reason(inside: Tab, shop: Gateway) -> None:
    run = start(shop, "Please cancel order A-1.")
    inside.open(f"#/runs/{run}")
    inside.page.get_by_role("textbox", name="Reason").fill("not today")
    inside.page.get_by_role("button", name="Deny", exact=True).click()
    expect(inside.page.get_by_text("not today").first).to_be_visible()


@pytest.mark.parametrize(
    ("choice", "action"),
    [
        ("It happened", "done"),
        pytest.param("Unknown: tell the model", "abandon", marks=pytest.mark.long),
    ],
)
@pytest.mark.long
def test_a_parked_call_is_resolved_by_a_person(
    inside: Tab, shop: Gateway, choice: str, action: str
) -> None:
    run = start(shop, "Please pay order A-1.")
    inside.open(f"#/runs/{run}")
    card = inside.page.get_by_role("region", name=re.compile("outcome unknown"))
    expect(card).to_contain_text("A-1")
    expect(card).to_contain_text(run)  # the key of the effect
    card.get_by_role("textbox", name="Result").fill("paid by hand")
    card.get_by_role("button", name=choice).click()
    expect(inside.page.get_by_role("heading", level=1)).to_contain_text("finished")
    events = httpx.get(f"{shop.url}/v1/runs/{run}/events?limit=100").json()["data"]
    (resolved,) = [one for one in events if one["kind"] == "call.resolved"]
    assert resolved["action"] == action


@pytest.mark.long
def test_outputs_of_the_client_s_tools_are_typed_in(inside: Tab, shop: Gateway) -> None:
    tool = {"type": "function", "name": "lookup", "parameters": {"type": "object"}}
    run = start(shop, "Please lookup the answer.", tools=[tool])
    inside.open(f"#/runs/{run}")
    inside.page.get_by_role("textbox", name="Output of lookup").fill("forty-two")
    inside.page.get_by_role("button", name="Send 1 output", exact=True).click()
    expect(inside.page.get_by_role("heading", level=1)).to_contain_text("finished")
    expect(inside.page.get_by_text("forty-two").first).to_be_visible()


@pytest.mark.long
def test_a_tool_of_an_agent_says_how_far_it_is(inside: Tab, shop_folder: Path) -> None:
    choose_model(inside, "shop")
    inside.open()
    say(inside, "Please pack order A-1.")
    card = cards(inside).first
    with (shop_folder / "pipe").open("w") as pipe:
        expect(card).to_contain_text("running")
        steps = itertools.count()

        def is_heard() -> bool:
            # Progress is in no log: what came before the page listened is gone.
            pipe.write(f"step {next(steps)}\n")
            pipe.flush()
            return card.get_by_text(re.compile(r"^step \d+$")).count() > 0

        until(is_heard, "the progress of a tool")
        pipe.write("almost there\n")
        pipe.flush()
        expect(card.get_by_text("almost there")).to_be_visible()
        expect(card).not_to_contain_text("step")
        expect(card).to_contain_text("So far")
    is_idle(inside)
    expect(card).to_contain_text("done")
    card.locator("summary").first.click()
    expect(card).to_contain_text("A-1 is packed")
    expect(card).not_to_contain_text("almost there")


@pytest.mark.long
def test_an_answer_leads_to_its_run_and_the_run_to_what_its_turns_streamed(inside: Tab) -> None:
    choose_model(inside, "shop")
    inside.open()
    say(inside, "Hello")
    is_idle(inside)
    run = inside.page.get_by_role("link", name="Run", exact=True)
    expect(run).to_be_visible()
    inside.page.reload()
    expect(run).to_be_visible()
    inside.page.get_by_role("link", name="Inspect", exact=True).last.click()
    inside.page.get_by_role("tab", name="Waterfall").click()
    turns = inside.page.get_by_role("region", name="Run").get_by_role("listitem")
    expect(turns).to_have_text([re.compile("turn 1")])
    inside.page.get_by_role("link", name="Run of an agent").click()
    expect(inside.page.get_by_role("heading", level=1)).to_contain_text("finished")
    inside.page.get_by_role("link", name="turn 1").click()
    expect(inside.page.locator(".sameness")).to_have_text(re.compile("identical"))


@pytest.mark.long
def test_a_run_is_cancelled(inside: Tab, shop: Gateway) -> None:
    run = start(shop, "Please cancel order A-1.")
    inside.open(f"#/runs/{run}")
    inside.page.get_by_role("button", name="Cancel…").click()
    inside.page.get_by_role("textbox", name="Reason (optional)").fill("changed my mind")
    inside.page.get_by_role("button", name="Cancel the run").click()
    expect(inside.page.get_by_role("heading", level=1)).to_contain_text("cancelled")
    expect(inside.page.get_by_role("alert")).to_contain_text("changed my mind")


@pytest.mark.long
def test_empty_lists_say_what_will_be_there(browser: Browser, shop: Gateway) -> None:
    with tab(browser, shop.url) as here:
        here.open("#/responses?status=failed")
        expect(here.page.get_by_text("Nothing fits these filters.")).to_be_visible()
