"""Streams for the inspector, and the moves of a person in it."""

import re
from typing import Any

import httpx
from playwright.sync_api import Locator, expect

from tests import chat
from tests.browser.tabs import Tab
from tests.faults.upstream import PATIENCE
from tests.faults.world import World

Object = dict[str, Any]

READ = """async ([text, from, as]) => {
  const { captureSource, readTrace } = await import("/page/inspect/source.js");
  const { linesOf, layout, LANES } = await import("/page/inspect/layout.js");
  const { Trace } = await import("/page/inspect/trace.js");
  const trace = new Trace();
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const source = captureSource("x", bytes, "", { from });
  const nothing = () => {};
  const { signal } = new AbortController();
  await readTrace(source, as, trace, { onRow: nothing, onHead: nothing, onState: nothing, signal });
  const lines = linesOf(trace);
  const { lineOfRow } = layout(trace);
  const lane = (name) => lines.map((line) => line[name]).filter((index) => index >= 0);
  return {
    rows: trace.rows,
    lanes: Object.fromEntries(LANES.map((name) => [name, lane(name).map((at) => trace.rows[at])])),
    hidden: trace.rows.filter((row, index) => row.lane !== "end" && lineOfRow[index] < 0),
  };
}"""
"""Reads a capture as the inspector does; returns the rows, and those of each lane."""


BESIDE = """async (id) => {
  const { storedResponse, readTrace } = await import("/page/inspect/source.js");
  const { linesOf } = await import("/page/inspect/layout.js");
  const { Trace } = await import("/page/inspect/trace.js");
  const trace = new Trace();
  const nothing = () => {};
  const { signal } = new AbortController();
  const options = { onRow: nothing, onHead: nothing, onState: nothing, signal };
  await readTrace(storedResponse(id), "", trace, options);
  const forwarded = linesOf(trace).filter(({ emit }) => trace.rows[emit]?.passthrough);
  return forwarded.map((line) => [trace.rows[line.frame].data, trace.rows[line.emit].data]);
}"""
"""The events of a stored response that were forwarded, each with the frame on its line."""


def long_capture(deltas: int) -> bytes:
    """A text of so many deltas: each is a frame, a part and an event. Some are not in the basic
    plane, so that a length in UTF-16 is another one."""
    words = ("a", "b ", "\N{OWL}", "é", "\n")
    pieces = [chat.chunk({"content": words[at % len(words)]}) for at in range(deltas)]
    return b"".join([*pieces, chat.chunk({}, "stop"), b"data: [DONE]\n\n"])


def drop(tab: Tab, name: str, raw: bytes) -> None:
    """Opens a capture as a file."""
    tab.open("#/inspect")
    file = {"name": name, "mimeType": "text/plain", "buffer": raw}
    tab.page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
    expect(tab.page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def is_read(tab: Tab) -> None:
    """Waits until the whole trace is there, and drawn."""
    ended = re.compile("identical|not sent|capture|differ")
    expect(tab.page.locator(".sameness")).to_have_text(ended)
    tab.page.evaluate("() => new Promise(requestAnimationFrame)")  # the lanes come with a frame


def go(tab: Tab, row: int) -> None:
    """Moves the slider to a row."""
    slider = tab.page.get_by_role("slider", name="Row")
    slider.evaluate(
        "(one, row) => { one.value = row; one.dispatchEvent(new Event('input')); }", row
    )
    expect(slider).to_have_attribute("aria-valuetext", re.compile(rf"^row {row} of"))


def at_row(tab: Tab) -> int:
    text = tab.page.get_by_role("slider", name="Row").get_attribute("aria-valuetext") or ""
    return int(text.split()[1])


def values(tab: Tab) -> dict[str, str]:
    """The text of each item at the cursor, as the panel shows it."""
    found: dict[str, str] = tab.page.locator(".item").evaluate_all(
        "all => Object.fromEntries(all.map((one) => [one.dataset.item, "
        "one.querySelector('.value')?.textContent ?? null]))"
    )
    return found


def show(tab: Tab, panel: str) -> Locator:
    tab.page.get_by_role("tab", name=re.compile(f"^{panel}")).click()
    return tab.page.get_by_role("tabpanel")


def respond(server: World, model: str, **more: object) -> str:
    """Has the gateway answer in the background; returns the id of the response."""
    body = {"model": model, "input": "Hello", "background": True, "store": True, "stream": False}
    url = f"{server.gateway.url}/v1/responses"
    posted = httpx.post(url, json={**body, **more}, timeout=PATIENCE)
    id: str = posted.raise_for_status().json()["id"]
    return id
