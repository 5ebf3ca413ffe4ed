"""The frame of the page: files, headers, addresses, keys, colours."""

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.tabs import Tab
from tests.faults.world import World


def test_the_page_is_at_the_root_and_the_bar_leads_to_each_screen(here: Tab) -> None:
    here.open("")
    for name in ("Responses", "Runs", "Usage", "Inspect", "Chat"):
        here.page.get_by_role("link", name=name, exact=True).click()
        link = here.page.get_by_role("link", name=name, exact=True)
        expect(link).to_have_attribute("aria-current", "page")
        expect(here.page).to_have_title(re.compile("Weft"))


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/page/page.css"])
def test_every_file_has_the_headers_and_is_sent_once(server: World, path: str) -> None:
    url = server.gateway.url + path
    first = httpx.get(url)
    assert first.status_code == 200
    assert "trusted-types 'none'" in first.headers["content-security-policy"]
    assert "unsafe" not in first.headers["content-security-policy"]
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.headers["cross-origin-opener-policy"] == "same-origin"
    assert first.headers["cross-origin-resource-policy"] == "same-origin"
    assert first.headers["cache-control"] == "no-cache"
    again = httpx.get(url, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_html_that_is_made_of_text_is_refused_by_the_browser(here: Tab) -> None:
    here.allow("TrustedHTML")
    here.open()
    refused = here.page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; } catch (e) { return e.name; } }"
    )
    assert refused == "TypeError"


SLICES = [
    (0, 100, 1000, [0, 9]),
    (1000, 100, 1000, [46, 59]),
    (19_900, 100, 1000, [991, 1000]),
    (0, 100, 0, [0, 0]),
    (500, 100, 3, [3, 3]),
]
"""The place of a list with rows of 20 pixels, its height, its rows, and those that are drawn."""


def test_the_rows_that_are_drawn(here: Tab) -> None:
    here.open()
    found = here.page.evaluate(
        """async (all) => {
          const { visibleSlice } = await import("/page/ui/virtual-list.js");
          return all.map(([scroll, height, count]) => {
            const { first, last } = visibleSlice(scroll, height, 20, count);
            return [first, last];
          });
        }""",
        SLICES,
    )
    assert found == [expected for *_, expected in SLICES]


@pytest.mark.long
def test_the_colours_are_the_system_s_until_the_user_chooses(here: Tab) -> None:
    here.page.emulate_media(color_scheme="dark")
    here.open()
    root = here.page.locator("html")
    expect(root).to_have_css("color-scheme", "light dark")
    here.page.get_by_role("button", name="Colours: as the system").click()
    expect(root).to_have_css("color-scheme", "light")
    here.page.reload()
    expect(root).to_have_css("color-scheme", "light")
    here.page.get_by_role("button", name="Colours: light").click()
    expect(root).to_have_css("color-scheme", "dark")
