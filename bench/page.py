"""`python -m bench.page`: how the inspector of the page copes with long streams.

A gateway and a real Chromium on this machine. 10,000 events must be usable within a second, with
at most 200 nodes in the lanes; a trace of 100,000 rows must scroll at 60 frames a second. Exits 1
when a figure is over its limit. This is not a test: the figures depend on how busy the machine is.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, expect
from tests.browser.tabs import launched
from tests.gateway_process import gateway

from bench.streams import text

SETTINGS = '[upstreams.demo]\ndialect = "openai-chat"\nbase_url = "demo:fast"\n'
MAX_NODES = 200
EVENTS = 10_000
MAX_SECONDS = 1.0
"""Seconds until the inspector can be used with that many events."""

FRAME = 1000 / 60
"""Milliseconds per frame. The 95th percentile may be 1.5 times that: the machine has other work."""

OBSERVE = """() => {
  const seen = (window.seen = { longest: 0, usable: 0, whole: 0 });
  let start = 0;
  const isThere = (selector, text) => document.querySelector(selector)?.textContent.includes(text);
  const watch = new MutationObserver(() => {
    if (start && !seen.usable && isThere(".cell.here", "")) seen.usable = performance.now() - start;
    const isOver = start && !seen.whole && isThere(".sameness", "capture");
    if (isOver) seen.whole = performance.now() - start;
  });
  watch.observe(document.body, { childList: true, subtree: true, characterData: true });
  document.addEventListener("change", () => (start = performance.now()), { capture: true });
  new PerformanceObserver((list) => {
    for (const { duration, startTime } of list.getEntries()) {
      if (start && startTime >= start) seen.longest = Math.max(seen.longest, duration);
    }
  }).observe({ type: "longtask" });
}"""
"""Records when the first row can be selected, when all rows are loaded, and the longest task."""

FRAMES = 240
"""Frames that are measured while scrolling."""

SCROLL = """async () => {
  const list = document.querySelector("virtual-list");
  const frame = () => new Promise(requestAnimationFrame);
  const times = [];
  list.scrollTop = 0;
  let before = await frame();
  for (let at = 0; at < FRAMES; at++) {
    list.scrollTop += 937;
    const now = await frame();
    times.push(now - before);
    before = now;
  }
  times.sort((a, b) => a - b);
  const part = (share) => times[Math.min(times.length - 1, Math.floor(times.length * share))];
  return { median: part(0.5), p95: part(0.95), longest: times.at(-1) };
}""".replace("FRAMES", str(FRAMES))


def open_capture(page: Page, url: str, events: int) -> dict[str, Any]:
    """Opens a capture of that many events; returns the figures."""
    raw = b"".join(text(events))
    page.goto(f"{url}/#/inspect")
    page.evaluate(OBSERVE)
    files = page.locator("input[type=file]")
    slider = page.get_by_role("slider", name="Row")
    file = {"name": "long.sse", "mimeType": "text/plain", "buffer": raw}
    files.set_input_files(file)  # type: ignore[arg-type]
    expect(page.locator(".sameness")).to_contain_text("capture", timeout=120_000)
    seen = page.evaluate("() => window.seen")
    page.get_by_role("button", name="Unfold").click()
    expect(page.locator(".lanes .row").nth(5)).to_be_attached()
    return {
        "rows": int(slider.get_attribute("max") or 0),
        "usable": seen["usable"] / 1000,
        "whole": seen["whole"] / 1000,
        "longest task": seen["longest"],
        "nodes": page.locator("virtual-list *").count(),
        **measure_scrolling(page),
    }


def measure_scrolling(page: Page) -> dict[str, Any]:
    """The times of frames, and the CPU time of the page for each: a busy machine makes the former
    longer, and not the latter."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _cpu_seconds(session)
    times = page.evaluate(SCROLL)
    return {"scroll": times, "busy": 1000 * (_cpu_seconds(session) - before) / FRAMES}


def _cpu_seconds(session: CDPSession) -> float:
    """Seconds of CPU time that the page has used so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    found: float = next(one["value"] for one in metrics if one["name"] == "TaskDuration")
    return found


def main() -> int:
    failed = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        gateway(SETTINGS, Path(folder)) as served,
        launched() as browser,
    ):
        for events in (EVENTS, 33_400):
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            found = open_capture(page, served.url, events)
            page.close()
            scroll = found["scroll"]
            print(f"{events:,} events, {found['rows']:,} rows")
            print(f"  usable after     {found['usable']:.2f} s")
            print(f"  read after       {found['whole']:.2f} s")
            print(f"  nodes in lanes   {found['nodes']}")
            print(f"  longest task     {found['longest task']:.0f} ms")
            print(
                f"  scrolling        {scroll['median']:.1f} / {scroll['p95']:.1f} / "
                f"{scroll['longest']:.1f} ms a frame (median, 95 %, longest)"
            )
            print(f"                   {found['busy']:.1f} ms of CPU time a frame")
            failed += found["nodes"] > MAX_NODES
            failed += events == EVENTS and found["usable"] > MAX_SECONDS
            failed += scroll["p95"] > 1.5 * FRAME
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
