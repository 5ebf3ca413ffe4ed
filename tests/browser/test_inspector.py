"""The inspector: what each frame became, at any moment, for stored, live and dropped-in streams."""

import io
import json
import re
import zipfile
from base64 import b64encode
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

import weft
from tests.browser.chatting import answer, calls, text
from tests.browser.inspecting import (
    BESIDE,
    READ,
    at_row,
    drop,
    go,
    is_read,
    long_capture,
    respond,
    show,
    values,
)
from tests.browser.tabs import Tab, tab
from tests.browser.test_access import is_accessible
from tests.browser.test_hostile import CORPUS, unharmed
from tests.captures import HERE as CAPTURES
from tests.faults.upstream import Hold, Upstream
from tests.faults.world import PATIENT, World, place, until, world
from tests.test_trace import captures
from tests.weft_command import run
from weft.dialects import DialectName
from weft.trace import FindingRow, FrameRow, PartRow, TraceRow, row_line, trace

SAMPLE = "src/weft/gateway/page/inspect/broken-sample.sse"
ROOT = Path(__file__).parents[2]
TARGETS: tuple[DialectName, ...] = (
    "openai-responses",
    "anthropic-messages",
    "openai-chat",
    "gemini",
    "ai-sdk",
)
CUT = (CAPTURES / "openai_chat/arguments-cut-reported-as-length.sse").read_bytes()


def sample_rows() -> list[TraceRow]:
    return trace((ROOT / SAMPLE).read_bytes(), "openai-chat", "openai-responses")


# What the lanes hold


def check_lanes(here: Tab, path: Path, source: DialectName, target: DialectName) -> None:
    """The lanes have the rows that `weft trace` prints, each once, in their order."""
    raw = path.read_bytes()
    expected = [json.loads(row_line(row)) for row in trace(raw, source, target)]
    found = here.page.evaluate(READ, [b64encode(raw).decode(), source, target])
    assert found["rows"] == expected
    assert found["hidden"] == []
    for lane in ("frame", "emit"):
        of_lane = [row for row in expected if row["lane"] == lane]
        assert sorted(found["lanes"][lane], key=lambda row: row["row"]) == of_lane
    middle = [row for row in expected if row["lane"] in ("part", "finding")]
    assert sorted(found["lanes"]["part"], key=lambda row: row["row"]) == middle
    # Frames never change their order; parts do not within a stream.
    numbers = [row["n"] for row in found["lanes"]["frame"]]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.long
def test_the_lanes_are_what_the_command_line_prints(here: Tab, target: DialectName) -> None:
    here.open("#/inspect")
    some = [one for one in captures() if one[0].is_relative_to(CAPTURES)][::40]
    assert len(some) > 8
    for path, source in some:
        check_lanes(here, path, source, target)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_the_lanes_of_every_capture(here: Tab, target: DialectName) -> None:
    here.open("#/inspect")
    for path, source in captures():
        check_lanes(here, path, source, target)


@pytest.mark.long
def test_the_command_line_prints_the_rows_that_the_page_downloads(
    here: Tab, tmp_path: Path
) -> None:
    here.open("#/inspect/sample?as=gemini")
    is_read(here)
    with here.page.expect_download() as download:
        here.page.get_by_role("button", name="Trace ⤓", exact=True).click()
    saved = download.value.path().read_text()
    printed = run("trace", ROOT / SAMPLE, "--as", "gemini", folder=tmp_path)
    assert [*map(json.loads, saved.splitlines())] == [*map(json.loads, printed.lines)]


# Moments


@pytest.mark.long
def test_a_long_trace_has_few_nodes_and_any_moment_of_it_is_exact(here: Tab) -> None:
    raw = long_capture(3400)
    rows = trace(raw, "openai-chat")
    assert len(rows) > 10_000
    drop(here, "long.sse", raw)
    is_read(here)
    slider = here.page.get_by_role("slider", name="Row")
    expect(slider).to_have_attribute("max", str(len(rows)))
    nodes = here.page.locator("virtual-list *")
    assert nodes.count() <= 200
    here.page.get_by_role("button", name="Unfold").click()
    expect(here.page.locator(".lanes .row").first).to_have_attribute(
        "aria-setsize", re.compile(r"34\d\d")
    )
    assert nodes.count() <= 200
    here.page.set_viewport_size({"width": 1920, "height": 1080})
    expect(here.page.locator(".lanes .row").nth(20)).to_be_attached()
    assert nodes.count() <= 200
    ends = [row for row in rows if isinstance(row, PartRow) and row.end is not None]
    for part in (ends[1], ends[1234], ends[2503], ends[-2]):
        assert part.frame is not None
        go(here, part.row)
        blocks = raw.split(b"\n\n")[: part.frame + 1]
        (prefix,) = weft.decode_all(b"\n\n".join(blocks) + b"\n\n", "openai-chat")
        assert values(here) == {part.item: prefix.response.text}
    slider.focus()
    slider.press("End")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(f"^row {len(rows)} of"))
    (whole,) = weft.decode_all(raw, "openai-chat")
    assert [*values(here).values()] == [whole.response.text]


@pytest.mark.long
def test_the_state_of_parallel_calls_at_every_row(here: Tab) -> None:
    """At each part, every item is as long as the server says, and is the beginning of its end."""
    raw = (CAPTURES / "openai_chat/arguments-interleaved.sse").read_bytes()
    drop(here, "interleaved.sse", raw)
    is_read(here)
    rows = trace(raw, "openai-chat")
    expected: dict[str, int] = {}
    for row in rows:
        if isinstance(row, PartRow) and row.end is not None and row.item is not None:
            expected[row.item] = row.end
            go(here, row.row)
            assert {item: len(value) for item, value in values(here).items()} == expected


@pytest.mark.parametrize(
    ("words", "length", "expected"),
    [("abc", 2, "ab"), ("a\N{OWL}b", 2, "a\N{OWL}"), ("\N{OWL}\N{OWL}", 1, "\N{OWL}"),
     ("abc", 9, "abc"), ("\N{OWL}", 2, "\N{OWL}"), ("", 3, "")],
)  # fmt: skip
def test_texts_are_cut_at_code_points(here: Tab, words: str, length: int, expected: str) -> None:
    here.open("#/inspect")
    source = "async ([text, length]) => (await import('/page/inspect/trace.js')).cut(text, length)"
    assert here.page.evaluate(source, [words, length]) == expected


def test_a_row_leads_to_its_cause_and_its_effects(here: Tab) -> None:
    here.open("#/inspect/sample?as=openai-responses")
    is_read(here)
    rows = sample_rows()
    start = next(row for row in rows if isinstance(row, PartRow) and row.part.type == "text-start")
    go(here, start.row)
    related = here.page.locator(".cell.related")
    expect(related).to_have_count(5)  # the frame, the part, and three events
    expect(here.page.locator(".cell.here")).to_have_attribute("data-head", "text-start")
    frame = next(row for row in rows if isinstance(row, FrameRow) and row.n == start.frame)
    here.page.locator(".cell.frame.related").click()
    expect(here.page.get_by_role("heading", name=f"Frame {frame.n} ")).to_be_visible()
    assert at_row(here) == frame.row
    # A frame leads to all parts that it completed.
    parts = [row for row in rows if isinstance(row, PartRow) and row.frame == frame.n]
    expect(here.page.locator(".cell.part.related")).to_have_count(len(parts))


@pytest.mark.long
@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_every_run_of_deltas_unfolds_and_folds(here: Tab, target: str) -> None:
    here.page.set_viewport_size({"width": 1280, "height": 2400})  # all lines are in view
    here.open(f"#/inspect/sample?as={target}&row=1")
    is_read(here)
    folds = here.page.locator(".lanes .row.fold")
    expect(folds.nth(2)).to_be_attached()
    count = folds.count()
    assert count >= 3
    for at in range(count):
        folds.nth(at).dblclick()
        expect(folds).to_have_count(count - 1)
        here.page.keyboard.press(".")
        expect(folds).to_have_count(count)


def test_a_row_that_changes_under_the_mouse_is_still_double_clicked(here: Tab) -> None:
    here.page.set_viewport_size({"width": 1280, "height": 2400})  # all lines are in view
    here.open("#/inspect/sample?row=1")
    is_read(here)
    folds = here.page.locator(".lanes .row.fold")
    expect(folds.nth(0)).to_be_attached()
    count, mouse = folds.count(), here.page.mouse
    folds.nth(0).click()
    mouse.down(click_count=2)
    go(here, 2)  # all rows are drawn anew
    mouse.up(click_count=2)
    expect(folds).to_have_count(count - 1)


@pytest.mark.long
def test_rows_are_filtered_by_a_text_or_a_pattern_in_every_lane(here: Tab) -> None:
    raw = long_capture(3400) + CUT  # a second response, with a call
    drop(here, "long.sse", raw)
    is_read(here)
    here.page.locator("h1").click()
    here.page.keyboard.press("/")
    field = here.page.get_by_role("searchbox", name="Filter rows")
    expect(field).to_be_focused()
    rows = here.page.locator(".lanes .row")
    shown = here.page.locator(".row-filter").get_by_role("status")
    field.fill("\N{OWL}")
    expect(shown).to_have_text("680 lines")  # every fifth delta, with its frame and its event
    assert here.page.locator("virtual-list *").count() <= 200
    field.fill("tool-(call|params-start)")
    expect(shown).not_to_have_text(re.compile(",|^0"))
    expect(rows.first).to_have_attribute("aria-label", re.compile("tool-params-start"))
    field.fill("[unclosed")  # not a pattern: a text
    expect(shown).to_have_text("0 lines")
    field.fill("")
    expect(shown).to_have_text("")
    expect(rows.first).to_be_visible()


@pytest.mark.long
def test_another_dialect_keeps_the_selected_part(here: Tab) -> None:
    parts = [row for row in sample_rows() if isinstance(row, PartRow)]
    end = next(row for row in parts if row.part.type == "text-end")
    here.open(f"#/inspect/sample?as=openai-responses&row={end.row}")
    is_read(here)
    assert at_row(here) == end.row
    before = here.page.locator(".cell.here").text_content()
    for name in ("Messages", "Chat", "Gemini", "AI SDK"):
        pressed = here.page.get_by_role("group", name="Emitted as").get_by_role("button", name=name)
        pressed.click()
        expect(pressed).to_have_attribute("aria-pressed", "true")
        is_read(here)
        expect(here.page.locator(".cell.part.here")).to_have_text(before or "")


# Findings, clients, rules


def test_the_sample_shows_its_findings_rules_and_clients(here: Tab) -> None:
    here.open("#/inspect")
    here.page.get_by_role("link", name="Open the broken sample", exact=True).click()
    is_read(here)
    expect(here.page.locator(".row-pane")).to_contain_text("its id comes again")
    panel = show(here, "Findings")
    for words in ("⚠ repair", "call-id-repeated", "✗ violation", "call-nameless"):
        expect(panel).to_contain_text(words)
    panel.locator("summary").first.click()
    expect(panel).to_contain_text("The id of a call comes once, where the call begins.")
    panel.get_by_role("button", name=re.compile("^row")).last.click()
    expect(here.page.locator(".cell.here.finding")).to_be_visible()
    panel = show(here, "Clients")
    expect(panel).to_contain_text("openai-python")
    expect(panel).to_contain_text("✗ raises")
    panel.get_by_role("button", name=re.compile("^row")).last.click()
    expect(here.page.get_by_role("heading", name=re.compile("^Frame"))).to_be_visible()
    # What Weft makes of it troubles nobody.
    expect(panel).to_contain_text("✓ No known client has trouble with it.")


@pytest.mark.long
def test_the_waterfall_has_a_bar_for_each_item_and_the_silences(here: Tab) -> None:
    here.open("#/inspect/sample")
    is_read(here)
    panel = show(here, "Waterfall")
    bars = ["first byte", "2 silences", "reasoning", "text", "⚙ track_parcel", "⚙ (no name)"]
    expect(panel.locator(".bar-label")).to_have_text(bars)
    panel.get_by_role("button", name="⚙ track_parcel").click()
    expect(here.page.locator(".cell.here")).to_contain_text("track_parcel")


@pytest.mark.long
def test_a_run_shows_its_turns_and_tools_as_a_waterfall(here: Tab) -> None:
    here.open("#/inspect")
    names = here.page.evaluate(
        """async () => {
          const { runBars } = await import("/page/inspect/waterfall.js");
          const call = { id: "c", name: "pay" };
          const kinds = [["run.created", {}], ["turn.started", { turn: 1 }],
            ["turn.finished", { turn: 1, calls: [call] }], ["approval.requested", { call: "c" }],
            ["approval.decided", { call: "c" }], ["call.intended", { call: "c" }],
            ["call.parked", { call: "c" }], ["call.resolved", { call: "c" }],
            ["turn.started", { turn: 2 }], ["run.failed", {}]];
          const { bars, total } = runBars(kinds.map(([kind, more], at) => ({ kind, at, ...more })));
          return [total, bars.map((bar) => [bar.label, bar.spans[0]])];
        }"""
    )
    assert names == [9, [
        ["turn 1", [1, 2]], ["approval of pay", [3, 4]], ["⚙ pay", [5, 6]], ["pay parked", [6, 7]],
        ["turn 2", [8, 9]],
    ]]  # fmt: skip


# Sources


def test_a_stored_response_is_what_was_sent(here: Tab, server: World) -> None:
    asks = calls(("call_1", "get_weather", '{"city":"Oslo"}'))
    model = server.upstream.script(answer("Let me look. ", asks, reason="tool_calls"))
    id = respond(server, f"chat/{model}")
    here.open(f"#/r/{id}")
    expect(here.page.locator(".sameness")).to_have_text("✓ identical to what was sent")
    here.page.keyboard.press("2")
    expect(here.page.locator(".sameness")).to_have_text("a rendering that was not sent")
    expect(here.page).to_have_title(re.compile(id))


@pytest.mark.long
def test_events_that_were_forwarded_stand_beside_their_frames(here: Tab, server: World) -> None:
    """Also those that were held back for a while, and where a frame was left out."""
    url = server.gateway.url
    message = {"role": "user", "content": "Hello"}
    body = {"model": "demo/reasoner", "messages": [message], "stream": True, "store": True}
    said = httpx.post(f"{url}/v1/chat/completions", json=body).text
    id = json.loads(said.split("\n")[0].removeprefix("data: "))["id"]
    here.open("#/inspect")
    pairs = here.page.evaluate(BESIDE, id)
    assert len(pairs) > 20
    for frame, event in pairs:
        assert without_id(frame) == without_id(event)


def without_id(data: str) -> object:
    if data == "[DONE]":
        return data
    return {key: value for key, value in json.loads(data).items() if key in ("choices", "usage")}


@pytest.mark.long
def test_a_live_response_is_followed_until_somebody_looks_elsewhere(
    here: Tab, server: World
) -> None:
    holds = Hold(), Hold(), Hold()
    script = answer("One ", holds[0], "two ", holds[1], "three ", holds[2], "four")
    model = server.upstream.script(script)
    id = respond(server, f"chat/{model}")
    holds[0].here()
    here.open(f"#/r/{id}")
    slider = here.page.get_by_role("slider", name="Row")
    expect(here.page.locator(".live")).to_be_visible()
    expect(here.page.locator(".panel-body")).to_contain_text("4 characters so far")
    # Both at once: more of it may be on its way.
    first, last = slider.evaluate("(one) => [Number(one.value), Number(one.max)]")
    assert first == last
    holds[0].release()
    expect(here.page.locator(".panel-body")).to_contain_text("8 characters so far")
    assert at_row(here) > first
    go(here, 2)
    holds[1].release()
    holds[2].release()
    expect(here.page.locator(".sameness")).to_have_text("✓ identical to what was sent")
    expect(here.page.locator(".live")).to_be_hidden()
    assert at_row(here) == 2
    go(here, int(slider.get_attribute("max") or 0))
    assert [*values(here).values()] == ["One two three four"]
    assert here.count("GET", f"/v1/responses/{id}/trace") == 1


@pytest.mark.long
def test_a_connection_that_breaks_is_opened_behind_the_last_row(here: Tab) -> None:
    here.open("#/inspect")
    asked = here.page.evaluate(
        """async () => {
          const { readTrace } = await import("/page/inspect/source.js");
          const { Trace } = await import("/page/inspect/trace.js");
          const line = (row, lane) => `${JSON.stringify({ row, lane, items: [] })}\\n`;
          const answers = [line(1, "x") + line(2, "x"), line(2, "x") + line(3, "end")];
          const asked = [];
          const trace = new Trace();
          const open = async ({ after }) => {
            asked.push(after);
            return new Response(answers[asked.length - 1]);
          };
          const onState = (state) => {
            if (state === "waiting") window.dispatchEvent(new Event("online"));
          };
          const { signal } = new AbortController();
          const late = (state) => setTimeout(() => onState(state), 0);
          await readTrace({ open }, "", trace, { onRow() {}, onHead() {}, onState: late, signal });
          return [asked, trace.rows.map((row) => row.row)];
        }"""
    )
    assert asked == [[None, 2], [1, 2, 3]]


@pytest.mark.long
def test_files_that_cannot_be_read_are_explained(here: Tab) -> None:
    here.allow("400")
    here.open("#/inspect")
    file = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"just words\n"}
    here.page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
    expect(here.page.get_by_role("alert")).to_contain_text("not a stream")
    too_large = here.page.evaluate(
        """async () => {
          const { fileBytes } = await import("/page/inspect/source.js");
          return fileBytes({ name: "big.sse", size: 21 * 2 ** 20 }).catch((error) => error.message);
        }"""
    )
    assert "weft trace big.sse" in too_large
    here.page.reload()
    expect(here.page.get_by_role("alert")).to_contain_text("only in the memory")


def test_a_file_can_be_dropped(here: Tab) -> None:
    here.open("#/inspect/sample")
    is_read(here)
    here.page.locator(".screen").evaluate(
        """(screen, text) => {
          const data = new DataTransfer();
          data.items.add(new File([text], "dropped.sse"));
          for (const kind of ["dragover", "drop"]) {
            screen.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true }));
          }
        }""",
        CUT.decode(),
    )
    expect(here.page.get_by_role("heading", name="dropped.sse", exact=True)).to_be_visible()
    is_read(here)


@pytest.mark.long
def test_a_capture_is_read_with_the_quirks_of_its_model(here: Tab) -> None:
    raw = (ROOT / "tests/captures/openai_chat/markup-calls-json.sse").read_bytes()
    here.open("#/inspect")
    here.page.get_by_label("Quirks").select_option("calls in <tool_call> tags")
    file = {"name": "markup.sse", "mimeType": "text/plain", "buffer": raw}
    here.page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
    expect(here.page.get_by_role("heading", name="markup.sse", exact=True)).to_be_visible()
    is_read(here)
    expect(show(here, "State")).to_contain_text("wind")
    drop(here, "markup.sse", raw)
    is_read(here)
    expect(show(here, "State")).not_to_contain_text("⚙ call")


@pytest.mark.long
def test_events_that_are_not_as_they_were_sent_are_shown(here: Tab, server: World) -> None:
    # A secret of the settings is removed from what is kept of the upstream, so the two differ.
    model = server.upstream.script(answer("The key is sk-of-an-upstream, they say"))
    here.open(f"#/r/{respond(server, f'chat/{model}')}")
    expect(here.page.locator(".sameness")).to_contain_text("Weft changed since")
    here.page.get_by_role("button", name="Show them").click()
    rows = here.page.locator(".diff tbody tr")
    expect(rows.first).to_have_class("changed")
    expect(rows.first).to_contain_text("sk-of-an-upstream")
    expect(here.page.get_by_role("columnheader", name="As it was sent")).to_be_visible()
    is_accessible(here)
    go(here, 1)
    rows.first.get_by_role("button").click()
    slider = here.page.get_by_role("slider", name="Row")
    expect(slider).not_to_have_attribute("aria-valuetext", re.compile("^row 1 of"))


@pytest.mark.long
def test_what_was_not_kept_is_decoded_from_the_log(
    browser: Browser, behind: Upstream, tmp_path: Path
) -> None:
    settings = place("chat", "openai-chat", behind.url, **PATIENT) + '[store]\nupstream = "none"\n'
    model = behind.script(answer("Hello"))
    with world(settings, tmp_path, behind) as server, tab(browser, server.gateway.url) as here:
        id = respond(server, f"chat/{model}")
        here.open(f"#/r/{id}")
        expect(here.page.locator(".lane-note")).to_contain_text("store.upstream")
        expect(here.page.locator(".sameness")).to_have_text("✓ identical to what was sent")
        assert [*values(here).values()] == ["Hello"]
        expect(here.page.locator(".cell.frame")).to_have_count(0)


@pytest.mark.long
def test_nobody_s_response(here: Tab) -> None:
    here.allow("404")
    here.open("#/r/resp_nobody")
    expect(here.page.get_by_role("alert")).to_contain_text("resp_nobody")


# Diff and cases


@pytest.mark.long
def test_two_streams_are_compared_item_by_item(here: Tab, server: World) -> None:
    first = server.upstream.script(answer("Oslo is ", "cold", calls(("c1", "look", "{}"))))
    other = server.upstream.script(answer("Oslo ", "is warm"))
    ids = [respond(server, f"chat/{model}") for model in (first, other)]
    url = f"{server.gateway.url}/v1/responses/{ids[1]}"
    until(lambda: httpx.get(url).json()["status"] == "completed", "the other response")
    here.open(f"#/r/{ids[0]}")
    expect(here.page.locator(".sameness")).to_have_text("✓ identical to what was sent")
    here.page.keyboard.press("d")
    here.page.get_by_role("button", name="Compare with…").click()
    here.page.get_by_role("textbox", name="Another response").or_(
        here.page.get_by_role("combobox", name="Another response")
    ).fill(ids[1])
    here.page.get_by_role("button", name="Compare", exact=True).click()
    rows = here.page.locator(".diff tbody tr")
    expect(rows.filter(has_text="text")).to_have_class("changed")
    expect(rows.filter(has_text="text").locator("mark")).to_have_text(["cold", "warm"])
    expect(rows.filter(has_text="look")).to_have_class("missing")
    is_accessible(here)
    # The same bytes in other chunks are the same.
    here.page.get_by_role("button", name="Compare with another…").click()
    whole = answer("Oslo is cold", calls(("c1", "look", "{}")))
    sent = b"".join(one for one in whole[1:] if isinstance(one, bytes))
    raw = b"".join(line + b"\n\n" for line in re.findall(rb"data: .*", sent))
    file = {"name": "whole.sse", "mimeType": "text/plain", "buffer": raw}
    here.page.get_by_label("or a capture").set_input_files(file)  # type: ignore[arg-type]
    here.page.get_by_role("button", name="Compare", exact=True).click()
    expect(rows.filter(has_text="text")).to_have_class("same")
    expect(rows.filter(has_text="look")).to_have_class("same")


@pytest.mark.long
def test_a_case_passes_and_fails_when_a_byte_is_changed(
    here: Tab, server: World, tmp_path: Path
) -> None:
    model = server.upstream.script(answer("Hello ", text("world"), reason="length"))
    here.open(f"#/r/{respond(server, f'chat/{model}')}")
    expect(here.page.locator(".sameness")).to_have_text("✓ identical to what was sent")
    here.page.keyboard.press("s")
    dialog = here.page.get_by_role("dialog", name="Save as test")
    expect(dialog).to_contain_text("nothing had to be removed")
    dialog.get_by_label("Name").fill("../escape")
    dialog.get_by_role("button", name="Download").click()
    expect(dialog.get_by_role("alert")).to_contain_text("A name has")
    dialog.get_by_label("Name").fill("greeting")
    with here.page.expect_download() as download:
        dialog.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "greeting.zip"
    data = download.value.path().read_bytes()
    zipfile.ZipFile(io.BytesIO(data)).extractall(tmp_path)
    assert run("test", tmp_path).code == 0
    capture = tmp_path / "greeting.sse"
    capture.write_bytes(capture.read_bytes().replace(b"world", b"w0rld"))
    assert run("test", tmp_path).code == 1


# For everybody


def test_hostile_streams_stay_text(here: Tab) -> None:
    frames = [
        {"id": one, "model": one, "choices": [{"delta": {
            "content": one, "reasoning_content": one,
            "tool_calls": [{"index": at, "id": one, "function": {"name": one, "arguments": one}}],
        }}]}
        for at, one in enumerate(CORPUS)
    ]  # fmt: skip
    raw = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in frames)
    drop(here, "<img src=x onerror=window.hit=1>.sse", raw)
    is_read(here)
    here.page.get_by_role("button", name="Unfold").click()
    for panel in ("Findings", "Waterfall", "Clients", "State"):
        show(here, panel)
        here.page.keyboard.press("n")
        unharmed(here)


@pytest.mark.long
def test_the_inspector_by_keyboard_alone(here: Tab) -> None:
    here.open("#/inspect/sample?as=openai-responses&row=1")
    is_read(here)
    keyboard = here.page.keyboard
    slider = here.page.get_by_role("slider", name="Row")

    def is_at(row: int | str) -> None:
        expect(slider).to_have_attribute("aria-valuetext", re.compile(f"^row {row} of"))

    first, second, *_ = (row.row for row in sample_rows() if isinstance(row, FindingRow))
    is_at(1)
    keyboard.press("n")
    is_at(first)
    expect(here.page.locator(".cell.here.finding")).to_be_visible()
    keyboard.press("n")
    is_at(second)
    keyboard.press("p")
    is_at(first)
    keyboard.press("k")
    keyboard.press("h")
    expect(here.page.get_by_role("tab", name="Upstream")).to_have_attribute("aria-selected", "true")
    keyboard.press("l")
    keyboard.press("l")
    expect(here.page.get_by_role("tab", name="Emitted")).to_have_attribute("aria-selected", "true")
    go(here, 1)
    keyboard.press("]")
    expect(here.page.locator(".cell.here")).to_have_attribute("data-head", "reasoning-start")
    keyboard.press("[")
    rows = here.page.locator(".lanes .row")
    before = rows.first.get_attribute("aria-setsize") or ""
    deltas = [row.row for row in sample_rows() if isinstance(row, PartRow) and row.end]
    go(here, deltas[5])
    expect(here.page.locator(".row.fold .cell.here")).to_be_visible()
    keyboard.press(".")
    expect(rows.first).not_to_have_attribute("aria-setsize", before)
    expect(here.page.locator(".row:not(.fold) .cell.here")).to_be_visible()
    keyboard.press(".")
    expect(rows.first).to_have_attribute("aria-setsize", before)
    keyboard.press("4")
    expect(here.page.get_by_role("button", name="Gemini")).to_have_attribute("aria-pressed", "true")
    is_read(here)
    keyboard.press("w")
    expect(here.page.get_by_role("tabpanel", name="Waterfall")).to_be_visible()
    keyboard.press("s")
    expect(here.page.get_by_role("dialog", name="Save as test")).to_be_visible()
    keyboard.press("Escape")
    here.page.get_by_role("combobox", name="Speed").select_option("100")
    here.page.get_by_role("tabpanel").focus()
    keyboard.press(" ")
    is_at(slider.get_attribute("max") or "")
    expect(here.page.get_by_role("button", name="▶ Play", exact=True)).to_be_visible()


REST = [pytest.param(panel, marks=pytest.mark.long) for panel in ("Waterfall", "Clients", "case")]


@pytest.mark.long
@pytest.mark.parametrize("panel", ["start", "State", "Findings", *REST])
def test_no_view_of_the_inspector_has_a_violation(here: Tab, panel: str) -> None:
    here.open("#/inspect" if panel == "start" else "#/inspect/sample?as=openai-responses")
    if panel == "start":
        heading = here.page.get_by_role("heading", name="Drop a capture here", exact=True)
        expect(heading).to_be_visible()
    else:
        is_read(here)
    if panel == "case":
        here.page.keyboard.press("s")
    elif panel != "start":
        show(here, panel)
        for fold in here.page.locator(".panel-body summary").all():
            fold.click()
    is_accessible(here)


@pytest.mark.long
def test_what_a_screen_reader_finds(here: Tab) -> None:
    here.open("#/inspect/sample?as=openai-responses")
    is_read(here)
    expect(here.page.get_by_role("main")).to_match_aria_snapshot(
        """
        - heading "broken-sample.sse" [level=1]
        - status: a capture; nothing of it is stored
        - group "Emitted as":
          - button "Responses" [pressed]
          - button "Messages"
        - region "Time":
          - slider "Row": "88"
          - button "One row back"
          - button "One row on"
          - button "▶ Play"
          - combobox "Speed"
        - region "Lanes":
          - tablist "Lane":
            - tab "Upstream openai-chat"
            - tab "Parts" [selected]
            - tab "Emitted openai-responses"
          - listbox "Rows of the trace"
        - region "Selected row":
          - heading "Finding" [level=2]
        - region "Details":
          - tablist "Views":
            - tab "State" [selected]
            - tab "Findings 4"
        """
    )
    option = here.page.locator(".lanes .row[aria-selected=true]")
    expect(option).to_have_attribute("aria-label", re.compile("^Parts: ⚠ call-id-repeated"))
