"""Keys, files, snippets, long threads, and several approvals at once."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chatting import answer, answers, begin, choose_model, is_idle, say
from tests.browser.tabs import Tab, tab
from tests.faults.world import World
from tests.gateway_process import gateway

pytestmark = pytest.mark.long

KEY = "a-key-of-more-than-16-letters"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)


def test_a_key_is_asked_for_kept_in_the_tab_and_never_in_an_address(
    browser: Browser, tmp_path: Path
) -> None:
    with gateway(f'[server.keys]\nalice = "{KEY}"\n', tmp_path) as running:
        with tab(browser, running.url) as here:
            here.allow("401")
            here.open()
            dialog = here.page.get_by_role("dialog", name="API key")
            dialog.get_by_role("textbox", name="API key").fill("wrong-key-of-16-letters")
            dialog.get_by_role("button", name="Use this key").click()
            dialog.get_by_role("textbox", name="API key").fill(KEY)
            dialog.get_by_role("button", name="Use this key").click()
            expect(
                here.page.get_by_role("button", name=re.compile("Watch it reason"))
            ).to_be_visible()
            here.page.reload()
            expect(
                here.page.get_by_role("button", name=re.compile("Watch it reason"))
            ).to_be_visible()
            assert here.page.evaluate("() => sessionStorage.getItem('weft.key')") == KEY
            assert here.page.evaluate("() => localStorage.getItem('weft.key')") is None
            assert here.page.evaluate("() => document.cookie") == ""
            assert not any(KEY in one for one in here.requests)
        assert KEY not in running.stderr


def test_an_attached_image_is_sent_and_shown(here: Tab, server: World) -> None:
    model = begin(here, server, answer("A pixel."))
    file = {"name": "pixel.png", "mimeType": "image/png", "buffer": PIXEL}
    here.page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
    expect(here.page.get_by_text("pixel.png")).to_be_visible()
    say(here, "What is this?")
    expect(answers(here)).to_have_text("A pixel.")
    is_idle(here)
    expect(here.page.get_by_role("img", name="attached image")).to_be_visible()
    body = json.loads(server.upstream.exchange(model).body)
    kinds = [part["type"] for part in body["messages"][-1]["content"]]
    assert kinds == ["text", "image_url"]


def test_files_are_offered_where_the_model_reads_them(here: Tab) -> None:
    choose_model(here, "demo/chat")  # says that it reads text
    here.open()
    field = here.page.get_by_role("textbox", name="Message", exact=True)
    expect(field).to_be_visible()
    attach = here.page.get_by_role("button", name="Attach", exact=True)
    expect(attach).to_be_hidden()
    model = here.page.get_by_role("combobox", name="Model")
    model.select_option("clerk")  # an agent of that upstream
    expect(attach).to_be_hidden()
    file = {"name": "pixel.png", "mimeType": "image/png", "buffer": PIXEL}
    here.page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
    expect(here.page.get_by_text("clerk does not read images")).to_be_visible()
    expect(here.page.get_by_text("pixel.png")).to_have_count(0)
    # Of a model that is not listed nobody knows what it reads.
    model.evaluate("one => { one.append(new Option('chat/x')); one.value = 'chat/x'; }")
    model.dispatch_event("change")
    expect(attach).to_be_visible()


def test_a_picture_is_shown_while_it_is_made(here: Tab) -> None:
    here.open()
    states = here.page.evaluate(
        """async (base64) => {
          const { ToolCard } = await import("/page/chat/tool-call.js");
          const item = { type: "image_generation_call", id: "ig_1", status: "in_progress" };
          const card = new ToolCard(item, { outputSchema: () => undefined });
          document.querySelector("#screen").replaceChildren(card.element);
          const seen = () => [card.element.dataset.state,
            card.element.querySelector(".result .label")?.textContent ?? null,
            card.element.querySelectorAll(".result img").length];
          const found = [seen()];
          card.delta({ type: "response.image_generation_call.generating" });
          found.push(seen());
          const partial = "response.image_generation_call.partial_image";
          card.delta({ type: partial, partial_image_b64: base64 });
          card.delta({ type: partial, partial_image_b64: base64 });
          found.push(seen());
          card.finish({ ...item, status: "completed", result: base64 });
          found.push(seen());
          return [found, card.element.textContent.includes(base64)];
        }""",
        base64.b64encode(PIXEL).decode(),
    )
    assert states == [
        [
            ["streaming", None, 0],
            ["running", None, 0],
            ["running", "So far", 1],
            ["done", "Result", 1],
        ],
        False,
    ]


def test_the_python_program_of_a_request_runs(here: Tab, server: World) -> None:
    begin(here, server, answer("It's a **stream**."))
    say(here, "Say \"hi\"\nand 'bye'")
    is_idle(here)
    here.page.get_by_role("button", name="Copy as…").click()
    snippets = here.page.get_by_role("dialog").locator("pre")
    expect(snippets).to_have_count(2)
    curl, program = snippets.all_inner_texts()
    assert f"{server.gateway.url}/v1/responses" in curl
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode() == "It's a **stream**."


def test_a_long_thread_draws_its_end_and_the_rest_when_it_is_scrolled_to(
    here: Tab, server: World
) -> None:
    url = f"{server.gateway.url}/v1/conversations"
    id = httpx.post(url, json={"metadata": {"title": "Long"}}).json()["id"]
    for start in range(0, 240, 10):
        items = [
            {"type": "message", "role": role, "content": f"{role} {number}"}
            for number in range(start, start + 10)
            for role in ("user", "assistant")
        ]
        assert httpx.post(f"{url}/{id}/items", json={"items": items}).status_code == 200
    here.open(f"#/c/{id}")
    expect(here.page.get_by_text("assistant 239")).to_be_in_viewport()
    expect(here.page.get_by_role("article", name="You", exact=True)).to_have_count(50)
    expect(here.page.get_by_text("190 earlier turns")).to_have_count(1)
    here.page.get_by_role("region", name="Conversation").evaluate("one => { one.scrollTop = 0; }")
    expect(here.page.get_by_text("user 140", exact=True)).to_have_count(1)
    # What was in view stays there.
    expect(here.page.get_by_text("user 190", exact=True)).to_be_in_viewport()


APPROVALS = """async () => {
  const { ToolCard } = await import("/page/chat/tool-call.js");
  const { askFor } = await import("/page/chat/pending.js");
  const cards = ["a", "b", "c"].map((name) => {
    const item = { type: "mcp_approval_request", name, id: name, arguments: "{}" };
    const card = new ToolCard(item, { outputSchema: () => null });
    card.finish(item);
    return card;
  });
  window.sent = null;
  const bar = askFor(cards, { always: [], onAlways() {}, onSubmit: (all) => (window.sent = all) });
  document.querySelector("main").replaceChildren(...cards.map((one) => one.element), bar);
}"""


def test_several_calls_are_approved_together_only_after_each_was_opened(here: Tab) -> None:
    here.open()
    expect(here.page.get_by_role("textbox", name="Message", exact=True)).to_be_visible()
    here.page.evaluate(APPROVALS)
    approve = here.page.get_by_role("button", name="Approve all 3")
    expect(approve).to_be_disabled()
    for name in "abc":
        expect(approve).to_be_disabled()
        here.page.get_by_role("region", name=f"Tool call {name}").locator("summary").click()
    approve.click()
    assert here.page.evaluate("() => window.sent.map((one) => one.approve)") == [True] * 3
