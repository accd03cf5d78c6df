"""What visitors do with forms and messages in a real browser, with and without a mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tradewind.sync import Connection


def test_a_refused_form_keeps_its_input_and_leads_to_the_error(tab: Page, nats: Connection) -> None:
    tab.goto("/new-stream")
    tab.get_by_label("Name", exact=True).fill("ORDERS")
    tab.get_by_label("Subjects", exact=True).fill("orders.>")
    tab.get_by_label("Maximum age").fill("7 dayz")
    # A field in a section that is closed.
    tab.get_by_text("Storage and placement").click()
    tab.get_by_label("Metadata").fill("no sign")
    tab.get_by_role("button", name="Create the stream").click()
    tab.get_by_role("alert").get_by_text("Nothing was changed.").wait_for()
    age = tab.get_by_label("Maximum age")
    assert age.input_value() == "7 dayz"
    # The first input that was refused has the focus, and all of them are on screen.
    assert age.evaluate("each => each === document.activeElement")
    assert tab.get_by_label("Metadata").is_visible()
    tab.get_by_role("alert").get_by_role("link", name="Metadata").click()
    tab.get_by_label("Metadata").fill("owner = sales")
    age.fill("7 days")
    tab.get_by_role("button", name="Create the stream").click()
    tab.get_by_text("Stream ORDERS was created.").wait_for()
    config = nats.jetstream_manager().streams.info("ORDERS").config
    assert (config.max_age, config.metadata["owner"]) == (7 * 86400 * 10**9, "sales")
    tab.get_by_role("link", name="Edit").click()
    tab.get_by_label("Maximum age").fill("36h")
    tab.get_by_role("button", name="Show what would change").click()
    row = tab.locator(".comparison tbody tr")
    assert row.inner_text().split() == ["Maximum", "age", "7d", "1d12h"]
    tab.get_by_role("button", name="Apply").click()
    tab.get_by_text("Stream ORDERS was changed.").wait_for()


def test_a_conflict_is_settled_in_the_browser(tab: Page, nats: Connection) -> None:
    bucket = nats.jetstream().kv.create("prices", history=3)
    bucket.put("pear", b"1")
    tab.goto("/kv/prices/pear")
    bucket.put("pear", b"2")
    tab.get_by_label("New value").fill("3")
    tab.get_by_role("button", name="Set").click()
    tab.get_by_text("somebody else was faster").wait_for()
    assert tab.locator("#stored-value").inner_text() == "2"
    assert tab.get_by_label("Your value").input_value() == "3"
    tab.get_by_role("button", name="Replace revision 2 with this").click()
    tab.get_by_text("Key pear is set, revision 3.").wait_for()
    tab.get_by_role("link", name="Delete with history").click()
    tab.get_by_text("removed with 2 earlier values").wait_for()
    tab.get_by_role("button", name="Delete the key with its history").click()
    tab.get_by_text("Key pear was deleted with its history.").wait_for()


def test_a_search_shows_its_progress_and_its_json_is_copied(tab: Page, nats: Connection) -> None:
    nats.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"], allow_direct=True)
    js = nats.jetstream()
    for number in range(50):
        js.publish("orders.eu", f'{{"number": {number}, "lines": [{{"sku": "\\u00e9"}}]}}')
    tab.goto("/streams/ORDERS/messages")
    tab.get_by_role("link", name="Search", exact=True).click()
    tab.get_by_label("JSON values").fill("number >=")
    tab.get_by_role("button", name="Search older").click()
    tab.locator("#in-json-error").get_by_text("a value after >=").wait_for()
    tab.get_by_label("JSON values").fill("number >= 48")
    tab.get_by_role("button", name="Search older").click()
    tab.locator("#search-state", has_text="done").wait_for()
    assert tab.locator("#live-search tbody tr").count() == 2
    with tab.expect_download() as downloading:
        tab.get_by_role("link", name="JSON lines").click()
    assert downloading.value.path().read_text().count("\n") == 2
    tab.locator("#live-search").get_by_role("link", name="49", exact=True).click()
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    # Parts fold with the keyboard, and what is copied is whole all the same.
    tab.locator("#payload summary").nth(1).focus()
    tab.keyboard.press("Enter")
    tab.locator("#payload .folded").get_by_text("1 item ]").wait_for()
    tab.get_by_role("button", name="Copy").click()
    tab.get_by_role("button", name="Copied").wait_for()
    copied = tab.evaluate("navigator.clipboard.readText().then(JSON.parse)")
    assert copied == {"number": 48, "lines": [{"sku": "é"}]}
