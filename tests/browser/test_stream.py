"""The page of one stream, in a browser."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
SEARCH = ROOT / "examples" / "recordings" / "web-search.jsonl"
BROKEN = CORPUS / "broken" / "R8-text-not-done.sse"
AXE = (ROOT / "viewer" / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


expect.set_options(timeout=20_000)


def event(page):
    """Return the number of the event under the cursor, as the page shows it."""
    where = page.locator(".where").inner_text()
    return int(re.match(r"event ([\d,]+) of|the end after ([\d,]+) events", where).expand(r"\1\2").replace(",", ""))


def current(page):
    return page.locator(".row.current .name").inner_text()


def lit(page):
    return page.locator(".state.lit text").all_text_contents()


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def test_the_verdict_counts_findings_that_are_not_judged(open_page, write_page) -> None:
    page = open_page(write_page(CORPUS / "broken" / "R14-unknown-part.sse"))
    expect(page.locator(".pill")).to_have_text("illegal: 1 error, 1 not judged")


def test_the_arrow_keys_step_through_a_stream(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    assert event(page) == 0
    press(page, *["ArrowRight"] * 10)
    assert (event(page), current(page), lit(page)) == (10, "web_search_call.in_progress", ["in_progress"])
    press(page, "ArrowLeft", "ArrowLeft")
    assert (event(page), current(page), lit(page)) == (8, "output_item.done", ["completed"])
    press(page, "End")
    assert (event(page), current(page)) == (34, "[DONE]")
    press(page, "ArrowRight", "Home", "ArrowLeft")
    assert (event(page), current(page)) == (0, "created")


def test_deltas_are_folded_into_runs_and_unfolded(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    press(page, *["ArrowDown"] * 4)
    assert (event(page), page.locator(".row.current .fold").inner_text()) == (4, "\N{MULTIPLICATION SIGN}2")
    press(page, "ArrowDown")
    assert event(page) == 6
    press(page, "ArrowUp", "e", "ArrowDown")
    assert event(page) == 5
    press(page, "e")
    assert page.locator(".row.current .fold").inner_text() == "\N{MULTIPLICATION SIGN}2"
    page.locator(".row.current .fold").click()
    assert page.locator(".row.current .fold").count() == 0


def test_the_machine_shows_the_last_edges_and_the_path_before_them(open_page, write_page) -> None:
    page = open_page(write_page(CORPUS / "legal" / "mcp-call.sse"))
    press(page, *["ArrowRight"] * 6)
    assert current(page) == "mcp_call_arguments.done"
    assert lit(page) == ["calling"]
    assert page.locator(".over.fired").evaluate_all("paths => paths.map(path => path.id)") == [
        "m-mcp_call-edge-in_progress-ready-normal",
        "m-mcp_call-edge-ready-calling-normal",
    ]
    assert page.locator(".over.path").evaluate_all("paths => paths.map(path => path.id)") == [
        "m-mcp_call-edge-absent-in_progress-normal",
        "m-mcp_call-edge-in_progress-in_progress-normal",
    ]
    assert page.locator(".step").inner_text() == ("in_progress ─close→ ready ─run→ calling emitted mcp_call_arguments.done")


def test_the_current_response_is_shown_with_its_changes_marked(open_page, write_page) -> None:
    page = open_page(write_page(CORPUS / "legal" / "function-call.sse"))
    page.get_by_role("tab", name="Response now").click()
    press(page, *["ArrowRight"] * 3)
    assert r'"arguments": "{\"a\""' in page.locator("#panel").inner_text()
    assert page.locator("#panel mark").all_inner_texts() == [r'"{\"a\""']
    press(page, "ArrowRight")
    assert r'"arguments": "{\"a\": 1}"' in page.locator("#panel").inner_text()
    assert page.locator("#panel mark").all_inner_texts() == [": 1}"]
    press(page, "ArrowRight", "ArrowRight")
    assert page.locator("#panel mark").all_inner_texts() == ['"completed"']
    press(page, "ArrowLeft", "ArrowLeft", "ArrowLeft")
    assert page.locator("#panel mark").all_inner_texts() == [r'"{\"a\""']


def test_the_text_is_shown_with_its_last_delta_marked(open_page, write_page) -> None:
    page = open_page(write_page(CORPUS / "legal" / "message.sse"))
    page.get_by_role("tab", name="Text").click()
    press(page, *["ArrowRight"] * 4)
    assert (page.locator(".text").inner_text(), page.locator(".text mark").inner_text()) == ("Hello", "Hello")
    press(page, "ArrowRight", "ArrowRight")
    assert page.locator(".text").inner_text() == "Hello, world.\n"
    assert page.locator(".text mark").inner_text() == "world.\n"


def test_findings_are_shown_at_their_events_and_keys_jump_to_them(open_page, write_page) -> None:
    page = open_page(write_page(CORPUS / "broken" / "R3-two-ends.sse"))
    assert page.locator(".pill").inner_text().startswith("illegal: ")
    first = event(page)
    assert page.locator(".finding.error header").first.inner_text().startswith("R")
    press(page, "n", "N")
    assert event(page) == first
    page.get_by_role("tab", name=re.compile("Findings")).click()
    links = page.locator(".findings a")
    assert links.count() >= 1
    page.keyboard.press("Home")
    links.first.click()
    assert event(page) == first


def test_the_page_opens_at_the_first_finding_or_at_the_event_in_its_address(open_page, write_page) -> None:
    address = write_page(BROKEN)
    assert (event(open_page(address)), event(open_page(f"{address}#event=2"))) == (7, 2)


def test_the_page_counts_events_like_the_judge(open_page, write_page) -> None:
    page = open_page(write_page(CORPUS / "legal" / "message.sse"))
    assert page.locator(".where").inner_text().startswith("event 0 of 11")
    press(page, "End")
    assert page.locator(".where").inner_text().startswith("the end after 11 events")


def test_a_finding_shows_its_rule_the_expected_events_and_the_text_of_the_rule(open_page, write_page) -> None:
    page = open_page(write_page(BROKEN))
    card = page.locator(".cards .finding").inner_text()
    assert card.startswith("R8\nparts\nerror\n")
    assert "breaks the order of parts" in card
    assert "expected output_text.delta, output_text.done" in card.replace("output_text.annotation.added, ", "")
    assert "Parts are counted from 0" in card
    assert page.locator(".step").inner_text() == "No edge of message emits content_part.done here."


def test_the_list_of_events_can_be_searched_and_filtered(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    press(page, "/")
    page.keyboard.type("H11 AUTHOR")
    assert page.locator(".summary").inner_text().startswith("3 rows")
    press(page, "Enter")
    assert current(page) == "output_item.added"
    press(page, "Enter")
    assert current(page) == "output_item.done"
    page.keyboard.type("zzz")
    assert "Nothing matches." in page.locator(".summary").inner_text()
    press(page, "Escape")
    assert page.locator(".summary").count() == 0
    page.get_by_label("Item", exact=True).select_option(label="0 reasoning")
    assert page.locator(".row .name").all_inner_texts() == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    page.get_by_label("Kind of event").select_option(label="reasoning_text.delta")
    assert page.locator(".row .name").all_inner_texts() == ["reasoning_text.delta"]


def test_the_address_selects_an_event_and_follows_the_cursor(open_page, write_page) -> None:
    page = open_page(f"{write_page(SEARCH)}#event=12")
    expect(page.locator(".where")).to_contain_text("event 12 of")
    press(page, "ArrowRight")
    expect(page).to_have_url(re.compile("#event=13$"))
    page.evaluate("location.hash = '#event=3'")
    expect(page.locator(".where")).to_contain_text("event 3 of")


def test_a_stream_can_be_played_and_paused(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    page.get_by_label("Speed").select_option(label="100 events a second")
    page.locator("body").click(position={"x": 640, "y": 20})
    press(page, " ")
    expect(page.locator(".where")).to_contain_text("the end after 34 events")
    page.get_by_role("button", name="Play").wait_for()
    page.get_by_label("Speed").select_option(label="2 events a second")  # so that it cannot end before it is paused
    page.locator("body").click(position={"x": 640, "y": 20})
    press(page, " ")
    page.get_by_role("button", name="Pause").click()
    assert event(page) < 34


def test_lanes_can_be_clicked_and_scrubbed(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    lanes = ["response", "reasoning", *["web_search_call"] * 3, "message", "the parser's framing"]
    assert page.locator(".lane .what").all_inner_texts() == lanes
    page.locator(".lane", has_text="message").click()
    assert event(page) == 24
    box = page.locator(".lanes canvas").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 9, box["y"] + 10)
    assert event(page) == 34
    page.locator(".scrubber").fill("7")
    assert event(page) == 7
    press(page, "]")
    assert event(page) == 8
    press(page, "[", "[")
    assert event(page) == 6


def test_an_event_is_copied_as_json(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH), permissions=["clipboard-read", "clipboard-write"])
    press(page, "ArrowRight", "c")
    expect(page.locator(".notice")).to_have_text("Copied the event.")
    assert json.loads(page.evaluate("navigator.clipboard.readText()"))["type"] == "response.in_progress"
    press(page, "u")
    expect(page.locator(".notice")).to_have_text("The request of this stream is unknown.")


def test_the_origin_of_an_event_in_a_recording_is_its_tokens_framing_and_deltas(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    page.get_by_role("tab", name="Origin").click()
    press(page, *["ArrowRight"] * 29)
    assert page.locator(".tokens span").all_inner_texts() == [" author", ".", "<|return|>"]
    assert page.locator(".framing li").all_inner_texts()[-1] == "content ─return→ expect_start"
    assert page.locator(".deltas li").all_inner_texts() == ["' author.'", "Close()"]


def test_colours_follow_the_system_until_the_reader_chooses(open_page, write_page) -> None:
    address = write_page(SEARCH)
    page = open_page(address, dark=True)
    ground = "getComputedStyle(document.documentElement).getPropertyValue('--ground').trim()"
    assert page.evaluate(ground) == "#0e1116"
    press(page, "t", "t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate(ground) == "#f4f5f7"
    assert open_page(address).evaluate(ground) == "#f4f5f7"


def test_the_keys_are_listed(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    press(page, "?")
    assert "next, previous finding" in page.get_by_role("dialog").inner_text()
    press(page, "Escape")
    assert page.get_by_role("dialog").count() == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("path", [SEARCH, BROKEN], ids=["legal", "broken"])
def test_the_page_is_accessible(open_page, write_page, path, width, dark) -> None:
    page = open_page(write_page(path), width=width, height=844, dark=dark)
    press(page, "ArrowRight", "ArrowRight", "n")
    page.evaluate(AXE)
    panes = page.locator(".tabs [role=tab]" if width > 860 else ".panes button").all()
    assert len(panes) >= 3
    for pane in panes:
        pane.click()
        report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in report["violations"]] == []


def test_the_page_sends_no_network_requests(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    press(page, "End")
    assert [url for url in page.requests if not url.startswith("file:")] == []


def shown(page):
    """Return the panes that are visible."""
    return [name for name in ("events", "centre", "inspector") if page.locator(f".main > .{name}").is_visible()]


def test_a_phone_shows_one_pane_at_a_time(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH), width=390, height=844, touch=True)
    assert shown(page) == ["events"]
    page.get_by_role("button", name="machine").tap()
    assert (shown(page), page.locator(".machine").is_visible()) == (["centre"], True)
    page.get_by_role("button", name="details").tap()
    assert shown(page) == ["inspector"]
    page.get_by_role("button", name="Next event").tap()
    assert event(page) == 1
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("address", ["", "#event=2"])
def test_a_phone_opens_an_illegal_stream_at_the_machine(open_page, write_page, address) -> None:
    page = open_page(write_page(BROKEN) + address, width=390, height=844, touch=True)
    expect(page.locator(".pill")).to_have_text("illegal: 1 error")
    assert shown(page) == ["centre"]
    page.evaluate("location.hash = '#event=7'")
    expect(page.locator(".cards .finding.error")).to_be_visible()
    page.get_by_role("button", name="events").tap()
    page.get_by_role("button", name="Next event").tap()
    assert shown(page) == ["events"]


@pytest.mark.parametrize(("path", "width", "height"), [(BROKEN, 390, "20px"), (SEARCH, 390, "0px"), (SEARCH, 1280, "0px")])
def test_a_picture_that_is_wider_than_its_frame_says_so(open_page, write_page, path, width, height) -> None:
    page = open_page(write_page(path) + "#event=9", width=width, height=844)
    if width == 390:
        page.get_by_role("button", name="machine").click()
    sign = "getComputedStyle(document.querySelector('.picture'), '::before')"
    assert page.evaluate(f"[{sign}.content, {sign}.height]") == ['"\N{LEFT RIGHT ARROW} scroll sideways"', height]
    page.get_by_role("button", name="whole picture").click()
    assert page.evaluate(f"{sign}.display") == "none"


def test_the_tabs_and_the_heading_of_a_recording_fit_at_1280_pixels(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    names = ["Event", "Response now", "Text", "Findings", "Origin"]
    assert [name.strip() for name in page.locator(".tabs button").all_inner_texts()] == names
    assert page.evaluate("(tabs => tabs.scrollWidth - tabs.clientWidth)(document.querySelector('.tabs'))") == 0
    press(page, *["ArrowRight"] * 11)
    boxes = [page.locator(one).bounding_box() for one in (".caption h2", ".views button:last-child")]
    assert len({box["y"] for box in boxes}) == 1
    assert boxes[0]["height"] < boxes[1]["height"] * 1.5


RECORDED = """() => {
  window.ticks = []; window.labels = [];
  const {fillRect, fillText} = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillRect = function (x, y, width, height) {
    if (width === 1) ticks.push([x, y, y + height]);
    return fillRect.call(this, x, y, width, height);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const size = this.measureText(text);
    labels.push([text, x, x + size.width, y - size.actualBoundingBoxAscent, y + size.actualBoundingBoxDescent]);
    return fillText.call(this, text, x, y);
  };
}"""


def test_no_tick_of_a_lane_crosses_a_label(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    page.evaluate(RECORDED)
    press(page, "ArrowRight")
    expect(page.locator(".where")).to_contain_text("event 1 of")
    ticks, labels = page.evaluate("[ticks, labels]")
    assert sorted({text for text, *_ in labels}) == ["content", "searching"]
    assert len(ticks) > 30
    crossed = [
        (text, x)
        for text, left, right, top, bottom in labels
        for x, upper, lower in ticks
        if left < x < right and upper < bottom and lower > top
    ]
    assert crossed == []


WALKED = sorted([*CORPUS.glob("legal/*.sse"), *CORPUS.glob("observed/*.sse")])


@pytest.mark.parametrize("path", WALKED, ids=lambda path: path.stem)
def test_every_stream_of_the_corpus_can_be_stepped_through(open_page, write_page, path) -> None:
    page = open_page(write_page(path))
    last = -1
    while event(page) != last:
        last = event(page)
        press(page, "ArrowRight")
    press(page, "End")
    assert event(page) == last


def test_the_framing_of_a_recording_has_its_lane_and_its_machine(open_page, write_page) -> None:
    page = open_page(write_page(SEARCH))
    press(page, *["ArrowRight"] * 29)
    page.locator(".lane", has_text="the parser's framing").click()
    assert (event(page), lit(page)) == (29, ["expect_start"])
    assert page.locator(".caption h2").inner_text().startswith("framing of harmony")
    page.get_by_role("button", name="item", exact=True).click()
    assert lit(page) == ["output_text"]
