"""What models write is text. Nothing of it becomes an element, a request or a script."""

import json
import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.chatting import answer, answers, begin, calls, cards, is_idle, say
from tests.browser.tabs import Tab
from tests.faults.upstream import answer as http_answer
from tests.faults.world import World

CORPUS = [
    "<img src=x onerror='window.hit=1'>",
    "<script>window.hit=1</script>",
    "<svg onload=window.hit=1><a href=javascript:window.hit=1>x</a></svg>",
    "[a](javascript:window.hit=1)",
    "[a](JaVaScRiPt:window.hit=1)",
    "[a](java\tscript:window.hit=1)",
    "[a](&#106;avascript:window.hit=1)",
    "[a](\x01javascript:window.hit=1)",
    "[a](data:text/html,<script>window.hit=1</script>)",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](//evil.example/x) [d](/v1/models)",
    "![pixel](https://evil.example/pixel.png)",
    '![p](https://evil.example/p.png "onerror=window.hit=1")',
    "<https://evil.example/auto>",
    "<style>*{display:none}</style><link rel=stylesheet href=https://evil.example/x.css>",
    "<iframe src=https://evil.example></iframe><object data=x></object><embed src=x>",
    "<form action=https://evil.example><input name=key></form>",
    "<base href=https://evil.example/><meta http-equiv=refresh content='0;url=//evil.example'>",
    "```html\n<script>window.hit=1</script>\n```",
    "| <img src=x onerror=window.hit=1> | b |\n|---|---|\n| [x](javascript:hit) | c |",
    "- [ ] <b onclick=window.hit=1>task</b>",
    "[ref]: javascript:window.hit=1\n\n[x][ref]",
    "\u202eright to left\u202c \x00 \ufffe \U000e0041",
    "&lt;img src=x onerror=window.hit=1&gt; &#60;script&#62;",
    "constructor __proto__ toString",
]
HOSTILE = "\n\n".join(CORPUS)
LIVING = (
    "script, img, iframe, object, embed, style, link, base, meta, "
    "[onerror], [onclick], [onload], [style*=url]"
)


def unharmed(here: Tab) -> None:
    """Nothing ran, and nothing is there that could."""
    assert here.page.evaluate("() => window.hit") is None
    main = here.page.get_by_role("main")
    expect(main.locator(LIVING)).to_have_count(0)
    links = main.locator("a[target]").evaluate_all("all => all.map((one) => one.href)")
    assert all(re.match(r"(https?|mailto):", one) for one in links)
    # They lead away only if somebody clicks them.
    rels = main.locator("a[target]").evaluate_all("all => all.map((one) => one.rel)")
    assert all("noopener" in one and "noreferrer" in one for one in rels)


def test_hostile_markdown_stays_text_while_it_streams_and_afterwards(
    here: Tab, server: World
) -> None:
    pieces = [HOSTILE[at : at + 7] for at in range(0, len(HOSTILE), 7)]
    begin(here, server, answer(*pieces))
    say(here, "Be evil")
    is_idle(here)
    expect(answers(here)).to_contain_text("<script>window.hit=1</script>")
    expect(here.page.get_by_text("streamed ≠ final")).to_have_count(0)
    unharmed(here)
    here.page.reload()
    expect(answers(here)).to_contain_text("<script>window.hit=1</script>")
    unharmed(here)


@pytest.mark.long
def test_each_text_alone_is_unharmed_letter_by_letter_and_as_a_whole(here: Tab) -> None:
    here.open()
    for text in CORPUS:
        here.page.evaluate(
            """async (text) => {
              const { markdownElement, GrowingMarkdown } = await import("/page/ui/markdown.js");
              const growing = new GrowingMarkdown();
              for (const letter of text) { growing.append(letter); growing.flush(); }
              const main = document.querySelector("main");
              main.replaceChildren(markdownElement(text), growing.element);
            }""",
            text,
        )
        unharmed(here)


DEEP = "> " * 20_000 + "bottom"
LONG = "a*b_" * 250_000
NESTED = "1. - > " * 5_000 + "bottom"


@pytest.mark.long
@pytest.mark.parametrize(
    "words", [DEEP, NESTED, LONG, "x" * 1_000_000], ids=["quotes", "lists", "emphasis", "letters"]
)
def test_a_megabyte_on_one_line_or_endless_nesting_is_text(
    here: Tab, server: World, words: str
) -> None:
    pieces = [words[at : at + 50_000] for at in range(0, len(words), 50_000)]
    begin(here, server, answer(*pieces))
    say(here, "Be evil")
    is_idle(here)
    expect(here.page.get_by_text("streamed ≠ final")).to_have_count(0)
    for _ in range(2):
        expect(answers(here)).to_contain_text(words[-6:])
        # The browser itself would give up on thousands of elements within one another.
        assert answers(here).locator("*").count() < 100
        here.page.reload()


SPOOFED = "pay\u202eelpmaxe\u2066 \u200b\u0007\U000e0041"
SHOWN = r"pay\u202eelpmaxe\u2066 \u200b\u0007\udb40\udc41"


@pytest.mark.long
def test_what_is_approved_or_answered_hides_no_letters(here: Tab, server: World) -> None:
    arguments = json.dumps({SPOOFED: SPOOFED}, ensure_ascii=False).replace("\x07", "\\u0007")
    made = calls(("call_1", "get_time", json.dumps(SPOOFED)), ("call_2", SPOOFED, arguments))
    begin(here, server, answer(made, reason="tool_calls"), tools=True)
    say(here, "Be evil")
    is_idle(here)
    card = cards(here).nth(1)
    expect(card.locator("strong")).to_have_text(SHOWN)
    expect(card.locator(".json .name")).to_have_text(SHOWN)
    expect(card.locator(".json .string")).to_have_text(f'"{SHOWN}"')
    here.page.get_by_role("link", name="Inspect", exact=True).last.click()
    expect(here.page.locator(".sameness")).to_have_text(re.compile("identical"))
    cells = here.page.locator(".lanes .cell")
    expect(cells.filter(has_text=r"\u202e").first).to_be_visible()
    assert not any("\u202e" in one for one in cells.all_inner_texts())


@pytest.mark.long
def test_hostile_names_arguments_titles_and_questions_stay_text(here: Tab, server: World) -> None:
    evil = "<img src=x onerror=window.hit=1>"
    arguments = json.dumps({evil: [evil, {"a": evil}], "__proto__": {"x": evil}})
    made = calls(("call_1", evil, arguments), ("call_2", "get_time", evil))
    begin(here, server, answer(made, reason="tool_calls"), tools=True)
    say(here, f"{evil} [x](javascript:window.hit=1)")
    is_idle(here)
    expect(here.page.get_by_role("heading", level=1)).to_contain_text(evil)
    expect(cards(here).first).to_contain_text(evil)
    unharmed(here)
    here.page.reload()
    expect(cards(here).first).to_contain_text(evil)
    unharmed(here)
    here.open("#/responses")
    expect(here.page.get_by_role("row").nth(1)).to_be_visible()
    unharmed(here)


@pytest.mark.long
def test_hostile_findings_stay_text(here: Tab, server: World) -> None:
    """A finding quotes what the upstream sent."""
    evil = "<img src=x onerror=window.hit=1>"
    first, again = (calls((evil, "get_time", one)) for one in ('{"at":', '"noon"}'))
    begin(here, server, answer(first, again, reason="tool_calls"), tools=True)
    say(here, "Be evil")
    is_idle(here)
    findings = here.page.locator("details.findings")
    findings.locator("summary").click()
    expect(findings.get_by_role("listitem").first).to_contain_text(evil)
    unharmed(here)
    here.page.get_by_role("link", name="Inspect", exact=True).last.click()
    expect(here.page.locator(".sameness")).to_have_text(re.compile("identical"))
    here.page.get_by_role("tab", name=re.compile("^Findings")).click()
    panel = here.page.get_by_role("tabpanel")
    expect(panel.get_by_role("listitem").first).to_contain_text(evil)
    panel.get_by_role("button", name=re.compile("^row")).first.click()
    expect(here.page.get_by_role("region", name="Selected row")).to_contain_text(evil)
    unharmed(here)


@pytest.mark.long
def test_hostile_errors_stay_text(here: Tab, server: World) -> None:
    body = json.dumps({"error": {"message": HOSTILE, "code": CORPUS[0]}}).encode()
    begin(here, server, (http_answer(body, "400 No"),))
    say(here, "Be evil")
    expect(here.page.get_by_role("alert")).to_contain_text("onerror")
    unharmed(here)


@pytest.mark.long
@pytest.mark.parametrize(
    "id", ["../../v1/models", "%2e%2e", "<img src=x onerror=window.hit=1>", "'\"`"]
)
def test_a_hostile_address_asks_for_nothing_else(here: Tab, id: str) -> None:
    here.allow("40[04]")
    here.open(f"#/c/{id}")
    expect(here.page.get_by_role("alert")).to_be_visible()
    unharmed(here)


def test_another_site_cannot_frame_the_page_or_read_its_files(server: World) -> None:
    headers = httpx.get(server.gateway.url).headers
    policy = headers["content-security-policy"]
    for rule in ("default-src 'none'", "base-uri 'none'", "form-action 'none'",
                 "frame-ancestors 'none'", "require-trusted-types-for 'script'"):  # fmt: skip
        assert rule in policy
    assert headers["referrer-policy"] == "no-referrer"
    foreign = {"sec-fetch-site": "cross-site", "content-type": "application/json"}
    url = f"{server.gateway.url}/v1/conversations"
    assert httpx.post(url, json={}, headers=foreign).status_code == 403
