"""What people need who cannot see well, use no mouse, or get dizzy from motion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dashboard.conftest import PATIENCE_MS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from dashboard.conftest import Web
    from tradewind.sync import Connection

# Texts with less contrast than WCAG AA asks for: 4.5, or 3 for large ones.
LOW_CONTRAST = r"""() => {
  const numbers = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => {
      const part = c / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const over = ([r, g, b, a = 1], under) =>
    [r, g, b].map((each, index) => each * a + under[index] * (1 - a));
  const ground = (element) => {
    if (element === null) return [255, 255, 255];
    const color = numbers(getComputedStyle(element).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color.slice(0, 3);
    return over(color, ground(element.parentElement));
  };
  const bad = [];
  const check = (element, style, text) => {
    const under = ground(element);
    const color = over(numbers(style.color), under);
    const [one, other] = [light(color), light(under)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) bad.push(`${text.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.textContent.trim()) continue;
    if (element.closest("svg, script, :disabled, [aria-disabled]")) continue;
    if (element.getClientRects().length === 0) continue;
    check(element, getComputedStyle(element), node.textContent);
  }
  for (const each of document.querySelectorAll("[placeholder]")) {
    check(each, getComputedStyle(each, "::placeholder"), each.placeholder);
  }
  return bad;
}"""


@pytest.mark.parametrize("server", ["tradewind"], indirect=True)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_and_placeholders_have_enough_contrast(
    browser: Browser, web: Web, nats: Connection, theme: str
) -> None:
    nats.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"], allow_direct=True)
    nats.jetstream_manager().streams.add(name="FULL", subjects=["full"], max_msgs=1, discard="new")
    nats.jetstream_manager().consumers.add("ORDERS", durable_name="c", ack_policy="explicit")
    js = nats.jetstream()
    js.publish("orders.eu", b'{"a": [1, "x", null, true]}', headers={"A": "b"})
    bucket = js.kv.create("prices", history=3)
    bucket.put("pear", b"1\n2")
    bucket.put("pear", b"1\n3")
    context = browser.new_context(color_scheme=theme, base_url=web.url)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    for path in (
        *("/", "/streams", "/streams/ORDERS", "/streams/ORDERS/messages", "/new-stream"),
        *("/streams/ORDERS/messages/1", "/streams/ORDERS/search", "/streams/ORDERS/edit"),
        *("/streams/ORDERS/consumers/c", "/kv/prices/pear", "/services", "/schedules", "/map"),
        *("/request", "/buckets/prices/settings", "/sql", "/connections", "/templates"),
    ):
        page.goto(path)
        assert page.evaluate(LOW_CONTRAST) == [], path
    page.goto("/new-stream")
    page.get_by_label("Name", exact=True).fill("X")
    page.get_by_label("Maximum age").fill("soon")
    page.get_by_role("button", name="Create the stream").click()
    page.get_by_role("alert").wait_for()
    assert page.evaluate(LOW_CONTRAST) == []
    context.close()


def test_the_keyboard_alone_creates_and_opens_a_stream(tab: Page, nats: Connection) -> None:
    tab.goto("/streams")
    # The first stop leads past the navigation.
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.goto("/new-stream")
    tab.get_by_label("Name", exact=True).focus()
    tab.keyboard.type("KEYS")
    tab.keyboard.press("Tab")
    tab.keyboard.type("keys.>")
    tab.keyboard.press("Enter")
    tab.get_by_text("Stream KEYS was created.").wait_for()
    assert nats.jetstream_manager().streams.info("KEYS").config.subjects == ["keys.>"]


def test_the_focus_stays_while_a_page_updates_itself(tab: Page, nats: Connection) -> None:
    streams = nats.jetstream_manager().streams
    streams.add(name="ORDERS", subjects=["orders.>"], allow_direct=True)
    nats.jetstream().publish("orders.eu", b"one")
    tab.goto("/streams/ORDERS/messages")
    link = tab.locator("#live-messages").get_by_role("link", name="1", exact=True)
    link.focus()
    nats.jetstream().publish("orders.eu", b"two")
    tab.locator("#live-messages").get_by_text("two").wait_for()
    focused = "document.activeElement.getAttribute('href')"
    assert tab.evaluate(focused) == "/streams/ORDERS/messages/1"


def test_changes_of_a_state_are_read_out(tab: Page, nats: Connection) -> None:
    nats.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"])
    nats.jetstream_manager().consumers.add("ORDERS", durable_name="c", ack_policy="explicit")
    tab.goto("/streams/ORDERS/consumers/c")
    announcer = tab.locator("#announcer[aria-live=polite]")
    assert announcer.inner_text() == ""
    nats.jetstream_manager().consumers.pause("ORDERS", "c", 3600)
    tab.locator("#reason", has_text="paused").wait_for()
    tab.locator("#announcer", has_text="paused").wait_for()


def test_nothing_moves_for_those_who_want_no_motion(browser: Browser, web: Web) -> None:
    context = browser.new_context(reduced_motion="reduce", base_url=web.url)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto("/")
    moving = """() => [...document.querySelectorAll("*")].filter((each) => {
      const style = getComputedStyle(each);
      const isStill = style.transitionDuration.split(", ").every((time) => parseFloat(time) === 0);
      return style.animationName !== "none" || !isStill;
    }).length"""
    assert page.evaluate(moving) == 0
    # The rule holds for whatever a page may be given later.
    page.evaluate("""() => {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync("#theme { transition: color 1s; animation: none 1s; }");
      document.adoptedStyleSheets = [sheet];
    }""")
    assert page.evaluate(moving) == 0
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(moving) == 1
    context.close()
