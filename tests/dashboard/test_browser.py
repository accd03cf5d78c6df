"""The pages in a real browser: what the script does, and what hostile content does not."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from dashboard.conftest import Web

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tradewind.sync import Connection

PATIENCE_MS = 60_000
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


@pytest.fixture
def tab(browser: Browser, web: Web) -> Iterator[Page]:
    """A page of the dashboard; anything that its script complains of fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=web.url)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda line: complaints.append(line.text) if line.type == "error" else None,
    )
    outside: list[str] = []
    page.on("request", lambda request: outside.append(request.url))
    yield page
    context.close()
    assert complaints == []
    assert [url for url in outside if not url.startswith(web.url)] == []


def test_a_visit_from_the_overview_to_a_changed_stream(tab: Page, nats: Connection) -> None:
    streams = nats.jetstream_manager().streams
    streams.add(name="ORDERS", subjects=["orders.>"], allow_direct=True)
    js = nats.jetstream()
    for number in range(40):
        js.publish("orders.eu", f'{{"number": {number}}}')
    tab.goto("/")
    tab.get_by_text("Stream ORDERS was created.").wait_for()
    # The keyboard finds a stream.
    tab.keyboard.press("/")
    tab.keyboard.type("ORDERS")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/streams/ORDERS")
    tab.get_by_text("It stores what is published to orders.>").wait_for()
    # The page stays current by itself.
    js.publish("orders.eu", b"one more")
    tab.locator(".number", has_text="Messages").get_by_text("41").wait_for()
    tab.locator("svg.chart .stroke").first.wait_for()
    # Light and dark are remembered.
    tab.locator("#theme").click()
    assert tab.locator("html").get_attribute("data-theme") == "dark"
    tab.get_by_role("link", name="Messages").click()
    assert tab.locator("html").get_attribute("data-theme") == "dark"
    js.publish("orders.eu", b"the newest follows")
    tab.get_by_text("the newest follows").wait_for()
    tab.locator("input[type=range]").fill("0")
    tab.wait_for_url("**start=1**")
    tab.get_by_text('{"number": 0}').wait_for()
    # A change is seen before it is made.
    tab.goto("/streams/ORDERS/edit")
    editor = tab.locator("textarea")
    editor.fill(editor.input_value().replace('"max_msgs": -1', '"max_msgs": 77'))
    tab.get_by_role("button", name="Show what would change").click()
    assert tab.locator(".diff .removed").inner_text().strip().endswith('"max_msgs": -1,')
    assert tab.locator(".diff .added").inner_text().strip().endswith('"max_msgs": 77,')
    assert streams.info("ORDERS").config.max_msgs == -1
    tab.get_by_role("button", name="Apply").click()
    tab.get_by_text("Stream ORDERS was changed.").wait_for()
    assert streams.info("ORDERS").config.max_msgs == 77
    # It goes when its name is typed.
    tab.get_by_role("link", name="Delete").click()
    button = tab.get_by_role("button", name="Delete the stream")
    assert button.is_disabled()
    tab.locator("input[name=typed]").fill("ORDERS")
    button.click()
    tab.get_by_text("Stream ORDERS was deleted.").wait_for()


def test_hostile_content_is_shown_and_never_run(tab: Page, nats: Connection) -> None:
    streams = nats.jetstream_manager().streams
    streams.add(name="H<img", subjects=["<script>.>"], description=HOSTILE, allow_direct=True)
    js = nats.jetstream()
    js.publish("<script>.a", HOSTILE, headers={"X": HOSTILE})
    nats.jetstream_manager().consumers.add("H<img", durable_name="<img", description=HOSTILE)
    name = quote("H<img", safe="")
    for path in (
        f"/streams/{name}",
        f"/streams/{name}/messages",
        f"/streams/{name}/messages/1",
        f"/streams/{name}/consumers/%3Cimg",
        f"/streams/{name}/config",
        f"/streams/{name}/edit",
        f"/publish?stream={name}&copy=1",
        "/streams",
        "/consumers",
        "/",
    ):
        tab.goto(path)
        assert "Tradewind" in tab.title(), path
        assert tab.locator("img:not(.sign)").count() == 0, path
        assert tab.locator("script:not([src])").count() == 0, path
    tab.goto(f"/streams/{name}/messages/1")
    assert tab.locator("#payload").inner_text() == HOSTILE


def test_a_phone_shows_every_view_without_scrolling_sideways(
    browser: Browser, web: Web, nats: Connection
) -> None:
    nats.jetstream_manager().streams.add(name="S" * 80, subjects=[f"{'long' * 20}.>"])
    nats.jetstream_manager().consumers.add("S" * 80, durable_name="c" * 80)
    context = browser.new_context(viewport={"width": 390, "height": 844}, base_url=web.url)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    stream = f"/streams/{'S' * 80}"
    paths = ("/", "/streams", stream, f"{stream}/messages", f"{stream}/consumers/{'c' * 80}")
    for path in paths:
        page.goto(path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, path
    context.close()
