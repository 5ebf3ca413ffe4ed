"""Usage and cost on the page: the numbers of the API, by day, model, upstream and key."""

import json
import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chatting import answers, choose_model, is_idle, say
from tests.browser.tabs import Tab, tab
from tests.faults.upstream import FIN, STREAM, Upstream, answer, chunk
from tests.faults.wires import CHAT, SPEECHES
from tests.faults.world import PATIENT, place
from tests.gateway_process import Gateway, gateway

KEYS = {"lead": "the-key-of-the-lead-0123", "ci": "the-key-of-the-ci-0123456"}
HOSTILE = "<img src=x onerror=alert(1)>"
SETTINGS = f"""
[server.keys.lead]
secret = "{KEYS["lead"]}"
usage = "all"
[server.keys.ci]
secret = "{KEYS["ci"]}"
[prices."chat/priced"]
input = 0
output = 100
[agents.teller]
model = "chat/priced"
"""


@pytest.fixture(scope="module")
def apart(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway for tests that use something themselves: whichever order they run in, what others
    count stays the same."""
    behind.named("priced", [answer(SPEECHES[CHAT].body)])
    folder = tmp_path_factory.mktemp("apart")
    with gateway(SETTINGS + place("chat", CHAT, behind.url, **PATIENT), folder) as made:
        yield made


@pytest.fixture(scope="module")
def shared(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that two keys have used: whole responses, a cut one, a failed one."""
    said = SPEECHES[CHAT]
    behind.named("priced", [answer(said.body)])
    behind.named(HOSTILE, [answer(said.body)])
    behind.named("cut", [STREAM, *map(chunk, said.head + said.content), FIN])
    behind.named("broken", [answer(b'{"error":{"message":"no"}}', "500 No")])
    folder = tmp_path_factory.mktemp("shared")
    with gateway(SETTINGS + place("chat", CHAT, behind.url, **PATIENT), folder) as made:
        for key, model in (
            *(("ci", "priced"), ("ci", "priced"), ("lead", "priced"), ("ci", HOSTILE)),
            *(("ci", "cut"), ("ci", "broken")),
        ):
            body = {"model": f"chat/{model}", "messages": [], "stream": model == "cut"}
            headers = {"authorization": f"Bearer {KEYS[key]}"}
            httpx.post(f"{made.url}/v1/chat/completions", json=body, headers=headers)
        yield made


def opened(browser: Browser, shared: Gateway, key: str) -> "Iterator[Tab]":
    with tab(browser, shared.url) as made:
        use = f"sessionStorage.setItem('weft.key', '{KEYS[key]}')"
        made.page.add_init_script(f"if (location.protocol === 'http:') {use}")
        yield made


@pytest.fixture
def lead(browser: Browser, shared: Gateway) -> Iterator[Tab]:
    yield from opened(browser, shared, "lead")


@pytest.fixture
def ci(browser: Browser, shared: Gateway) -> Iterator[Tab]:
    yield from opened(browser, shared, "ci")


@pytest.fixture
def spender(browser: Browser, apart: Gateway) -> Iterator[Tab]:
    yield from opened(browser, apart, "lead")


def shown(here: Tab) -> list[list[str]]:
    """The rows of the table, without its head."""
    expect(here.page.locator(".usage-table")).to_be_visible()
    script = """rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"""
    found = here.page.locator(".usage-table :is(tbody, tfoot) tr").evaluate_all(script)
    return [[re.sub(r"\s+", " ", cell).replace("\u2013", "-") for cell in row] for row in found]


def test_the_table_keeps_reported_estimated_and_no_tokens_apart(ci: Tab) -> None:
    ci.open("#/usage")
    assert shown(ci) == [
        # model, requests, those without tokens, reported in and out, estimated in and out, cost
        ["chat/priced", "2", "-", "6", "4", "-", "-", "$0.0004"],
        [f"chat/{HOSTILE}", "1", "-", "3", "2", "-", "-", "$0.00 ⚠ + 1"],
        ["chat/cut", "1 1 failed", "-", "-", "-", "1", "4", "$0.00 ⚠ + 1"],
        ["chat/broken", "1 1 failed", "1", "-", "-", "-", "-", "$0.00"],
        ["Sum", "5 2 failed", "1", "9", "6", "1", "4", "$0.0004 ⚠ + 2"],
    ]
    tiles = ci.page.locator(".tiles")
    for text in ("Requests 5 2 failed", "Input tokens 10", "Output tokens 10", "Cost $0.0004"):
        expect(tiles).to_contain_text(re.compile(r"\s*".join(map(re.escape, text.split()))))


@pytest.mark.long
def test_filters_are_part_of_the_address(lead: Tab) -> None:
    lead.open("#/usage")
    page = lead.page
    page.get_by_role("combobox", name="By", exact=True).select_option("Key")
    expect(page.get_by_role("rowheader", name="ci", exact=True)).to_be_visible()
    assert [row[:2] for row in shown(lead)] == [
        ["ci", "5 2 failed"],
        ["lead", "1"],
        ["Sum", "6 2 failed"],
    ]
    page.get_by_role("searchbox", name="Key", exact=True).fill("lead")
    page.get_by_role("searchbox", name="Key", exact=True).press("Enter")
    expect(page).to_have_url(re.compile("by=key&key=lead"))
    expect(page.get_by_role("rowheader", name="ci", exact=True)).to_be_hidden()
    page.reload()
    assert [row[0] for row in shown(lead)] == ["lead"]
    # The address sets the fields: what is typed before it has would be gone.
    with page.expect_request(re.compile("/v1/usage")):
        page.get_by_role("combobox", name="Period").select_option("ever")
    page.get_by_role("searchbox", name="Model", exact=True).fill("nobody")
    page.get_by_role("searchbox", name="Model", exact=True).press("Enter")
    expect(page.get_by_text("Nothing was used that fits these filters.")).to_be_visible()


@pytest.mark.long
def test_a_key_sees_its_own_usage_only(ci: Tab) -> None:
    ci.open("#/usage?by=key")
    assert [row[0] for row in shown(ci)] == ["ci"]
    ci.open("#/usage?by=key&key=lead")
    expect(ci.page.get_by_text("Nothing was used that fits these filters.")).to_be_visible()


@pytest.mark.long
def test_a_turn_says_what_it_cost(spender: Tab) -> None:
    choose_model(spender, "chat/priced")
    spender.open()
    say(spender, "Hello")
    expect(answers(spender)).to_have_text("Warp and weft.")
    is_idle(spender)
    cost = spender.page.get_by_text("3 in · 2 out · $0.0002")
    expect(cost).to_be_visible()
    before = len([one for one in spender.requests if one.endswith("/usage")])
    spender.page.reload()
    expect(cost).to_be_visible()
    # From the list of responses, which is read anyway.
    assert len([one for one in spender.requests if one.endswith("/usage")]) == before
    spender.open("#/responses?model=chat/priced")
    expect(spender.page.get_by_role("row").nth(1)).to_contain_text("$0.0002")


@pytest.mark.long
def test_the_answer_of_an_agent_says_what_its_run_cost(spender: Tab) -> None:
    choose_model(spender, "teller")
    spender.open()
    say(spender, "Hello")
    expect(answers(spender)).to_have_text("Warp and weft.")
    is_idle(spender)
    cost = spender.page.get_by_text("3 in · 2 out · run $0.0002", exact=True)
    expect(cost).to_be_visible()
    spender.page.reload()
    expect(cost).to_be_visible()


@pytest.mark.long
def test_days_periods_and_dollars(lead: Tab) -> None:
    lead.open("#/usage")
    found = lead.page.evaluate(
        """async () => {
          const { firstDay, total } = await import("/page/usage/usage.js");
          const { everyDay } = await import("/page/usage/days.js");
          const { dollars } = await import("/page/ui/format.js");
          const now = Date.parse("2026-03-01T00:30:00Z");
          const days = everyDay([{ day: "2026-03-01" }, { day: "2026-02-27" }]);
          const counts = (n) => ({ requests: n, input_tokens: 2 * n });
          const row = (n) => ({ day: "x", requests: n, failed_requests: 0, unpriced_requests: 0,
            cost: n / 4, reported: counts(n), estimated: counts(0), none: counts(1) });
          return {
            periods: ["1", "7", "", "all"].map((period) => firstDay(period, now)),
            days: days.map(({ day, row }) => [day, row !== null]),
            total: total([row(1), row(2)]),
            dollars: [0, 0.00000042, 0.0042, 0.5, 1, 1.239, 1234.5].map(dollars),
          };
        }"""
    )
    assert found["periods"] == ["2026-03-01", "2026-02-23", "2026-01-31", None]
    assert found["days"] == [["2026-02-27", True], ["2026-02-28", False], ["2026-03-01", True]]
    counts = json.loads('{"requests": 3, "input_tokens": 6}')
    assert (found["total"]["cost"], found["total"]["reported"]) == (0.75, counts)
    assert found["total"]["none"]["requests"] == 2
    assert found["dollars"] == [
        *("$0.00", "$0.00000042", "$0.0042", "$0.50", "$1.00", "$1.24", "$1,234.50"),
    ]
