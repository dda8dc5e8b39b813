"""The page of a stream of Messages or Chat Completions, in a browser."""

from pathlib import Path

import pytest
from live.wire import broken_messages, chat, messages
from playwright.sync_api import expect

AXE = (Path(__file__).parents[2] / "viewer" / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")

expect.set_options(timeout=20_000)


def press(page, key, times=1):
    for _ in range(times):
        page.keyboard.press(key)


def shown(page):
    """Return the name of the event under the cursor, the lit state, and the sentence about the machine."""
    return page.locator(".row.current .name").inner_text(), page.locator(".state.lit text").all_text_contents(), step(page)


def step(page):
    return page.locator("p.step").inner_text()


def edges(page, look):
    return page.locator(f".over.{look}").evaluate_all("paths => paths.map(path => path.id)")


def violations(page):
    page.evaluate(AXE)
    report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in report["violations"]]


def test_the_page_of_a_message_shows_its_blocks_and_its_machine(open_page, write_page) -> None:
    page = open_page(write_page("-", stdin=messages()))
    expect(page.locator(".pill")).to_have_text("legal")
    lanes = ["message", "thinking", "mcp_tool_use", "text", "mcp_tool_result", "tool_use"]
    assert page.locator(".lane .what").all_inner_texts() == lanes
    press(page, "ArrowRight", 9)
    assert shown(page) == ("content_block_delta", ["text"], "between ─text→ text emitted content_block_delta")
    assert page.locator(".caption h2").inner_text().splitlines()[0].startswith("messages")
    assert edges(page, "fired") == ["m-messages-edge-between-text-normal"]
    assert edges(page, "path") == [
        "m-messages-edge-absent-between-normal",
        "m-messages-edge-between-between-normal",
        "m-messages-edge-between-thinking-normal",
        "m-messages-edge-thinking-between-normal",
    ]
    page.get_by_role("tab", name="Text").click()
    press(page, "ArrowRight")
    assert (page.locator(".text").inner_text(), page.locator(".text mark").inner_text()) == ("Meanwhile.", "while.")
    page.get_by_role("tab", name="Item now").click()
    press(page, "ArrowRight", 5)
    assert r'"input": "{\"a\": 1}"' in page.locator("#panel").inner_text()
    press(page, "End")
    assert shown(page) == ("message_stop", ["ended"], "between ─end→ ended emitted message_stop")
    page.get_by_role("tab", name="Message now").click()
    assert '"stop_reason": "tool_use"' in page.locator("#panel").inner_text()


def test_the_page_of_a_completion_shows_its_texts_and_calls(open_page, write_page) -> None:
    page = open_page(write_page("-", stdin=b": ping\n\n" + chat()))
    expect(page.locator(".pill")).to_have_text("legal")
    assert page.locator(".lane .what").all_inner_texts() == ["completion", "reasoning", "content", "tool_call"]
    page.get_by_role("tab", name="Text").click()
    press(page, "ArrowRight", 3)
    assert (page.locator(".text").inner_text(), step(page)) == ("Meanwhile.", "open ─text→ open emitted delta.content")
    page.locator(".lane", has_text="tool_call").click()
    press(page, "ArrowRight")
    assert shown(page) == ("delta.tool_calls", ["call"], "call ─argue→ call emitted delta.tool_calls")
    assert page.locator(".text").inner_text() == '{"a": 1}'
    press(page, "ArrowRight")
    assert step(page) == "call ─close→ open ─end→ ended emitted finish_reason"
    press(page, "End")
    assert page.locator(".where").inner_text().startswith("the end after 8 events")
    assert page.locator(".picture").count() == 1


def test_a_finding_shows_its_rule_at_its_event(open_page, write_page) -> None:
    page = open_page(write_page("-", stdin=broken_messages()))
    expect(page.locator(".pill")).to_have_text("illegal: 1 error")
    assert page.locator(".where").inner_text().startswith("event 9 of 19")
    assert page.locator(".cards .finding").inner_text().startswith("M2\nblocks\nerror\n")
    assert step(page) == "No edge of messages emits content_block_delta here."
    press(page, "ArrowRight")
    assert step(page) == "between ─text→ text emitted content_block_delta"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("stream", [messages, broken_messages, chat])
def test_the_page_is_accessible(open_page, write_page, stream, width, dark) -> None:
    page = open_page(write_page("-", stdin=stream()), width=width, height=844, dark=dark, touch=width < 860)
    press(page, "ArrowRight", 5)
    assert violations(page) == []
    if width < 860:
        page.get_by_role("button", name="machine").tap()
        frame, state = (page.locator(one).first.bounding_box() for one in (".picture", ".state.lit, .over.maybe, .over.fired"))
        assert frame["x"] <= state["x"] + state["width"] / 2 <= frame["x"] + frame["width"]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert violations(page) == []
