"""The pages in a real browser: what the script does, and what hostile content does not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import tradewind.sync
from dashboard.conftest import PATIENCE_MS, Web
from harness import ServerProcess
from tradewind.client.api_errors import StreamNotFoundError
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tradewind.sync import Connection

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


def test_a_visit_from_the_overview_to_a_changed_stream(tab: Page, nats: Connection) -> None:
    streams = nats.jetstream_manager().streams
    streams.add(name="ORDERS", subjects=["orders.>"], allow_direct=True)
    js = nats.jetstream()
    for number in range(40):
        js.publish("orders.eu", f'{{"number": {number}}}')
    tab.goto("/")
    tab.get_by_text("Stream ORDERS was created.").first.wait_for()
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
    tab.wait_for_url("**/streams/ORDERS/messages")
    assert tab.locator("html").get_attribute("data-theme") == "dark"
    js.publish("orders.eu", b"the newest follows")
    tab.get_by_text("the newest follows").wait_for()
    tab.locator("input[type=range]").fill("0")
    tab.wait_for_url("**start=1**")
    tab.get_by_text('{"number": 0}').wait_for()
    # A change is seen before it is made.
    tab.goto("/streams/ORDERS/edit")
    tab.get_by_role("link", name="JSON").click()
    editor = tab.locator("textarea")
    editor.fill(editor.input_value().replace('"max_msgs": -1', '"max_msgs": 77'))
    tab.get_by_role("button", name="Show what would change").click()
    assert tab.locator(".comparison tbody tr").inner_text().split() == [
        *("Maximum", "messages", "no", "limit", "77"),
    ]
    tab.get_by_text("As JSON").click()
    assert tab.locator(".diff .removed").inner_text().strip().endswith('"max_msgs": -1,')
    assert tab.locator(".diff .added").inner_text().strip().endswith('"max_msgs": 77,')
    assert streams.info("ORDERS").config.max_msgs == -1
    tab.get_by_role("button", name="Apply").click()
    tab.get_by_text("Stream ORDERS was changed.").wait_for()
    assert streams.info("ORDERS").config.max_msgs == 77
    # It goes when its name is typed.
    tab.get_by_role("link", name="Delete").click()
    tab.wait_for_url("**/streams/ORDERS/delete")
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
    js.objects.create("h", description=HOSTILE).put(HOSTILE, b"x", description=HOSTILE)
    js.kv.create("h", description=HOSTILE).put("k", HOSTILE)
    name = quote("H<img", safe="")
    object_name = quote(HOSTILE, safe="")
    for path in (
        f"/streams/{name}",
        f"/streams/{name}/messages",
        f"/streams/{name}/messages/1",
        f"/streams/{name}/consumers/%3Cimg",
        f"/streams/{name}/config",
        f"/streams/{name}/edit",
        f"/publish?stream={name}&copy=1",
        f"/streams/{name}/consumers/%3Cimg/edit",
        f"/streams/{name}/new-consumer",
        f"/streams/{name}/backup",
        "/streams",
        "/consumers",
        "/objects",
        "/objects/h",
        f"/objects/h/-/object?name={object_name}",
        f"/objects/h/-/remove?name={object_name}",
        "/buckets/h/watch",
        "/buckets/h/settings",
        "/kv/h/k",
        "/accounts",
        "/",
    ):
        tab.goto(path)
        assert "Tradewind" in tab.title(), path
        assert tab.locator("img:not(.sign)").count() == 0, path
        assert tab.locator("script:not([src])").count() == 0, path
    tab.goto(f"/streams/{name}/messages/1")
    assert tab.locator("#payload").inner_text() == HOSTILE


def test_a_file_goes_up_and_down_in_the_browser(
    tab: Page, nats: Connection, tmp_path: Path
) -> None:
    nats.jetstream().objects.create("films")
    path = tmp_path / "<img src=x>.bin"
    path.write_bytes(bytes(range(256)) * 4096)
    tab.goto("/objects/films")
    tab.get_by_text("Upload a file").click()
    tab.locator("input[type=file]").set_input_files(path)
    tab.locator("input[name=description]").fill("from a browser")
    tab.get_by_role("button", name="Upload", exact=True).click()
    tab.get_by_text("<img src=x>.bin is stored, 1.0 MiB.").wait_for()
    tab.get_by_role("link", name="<img src=x>.bin").click()
    with tab.expect_download() as downloading:
        tab.get_by_role("link", name="Download").click()
    assert downloading.value.path().read_bytes() == path.read_bytes()
    tab.get_by_role("link", name="Delete").click()
    tab.get_by_role("button", name="Delete the object").click()
    tab.get_by_text("<img src=x>.bin was deleted.").wait_for()
    # Why a file is not taken is told beside the button.
    nats.jetstream().objects.open("films").seal()
    tab.get_by_text("Upload a file").click()
    tab.locator("input[type=file]").set_input_files(path)
    tab.get_by_role("button", name="Upload", exact=True).click()
    tab.locator(".upload-state", has_text="sealed").wait_for()
    assert tab.get_by_role("button", name="Upload", exact=True).is_enabled()


def test_a_stream_is_saved_and_given_back_in_the_browser(
    tab: Page, nats: Connection, tmp_path: Path
) -> None:
    streams = nats.jetstream_manager().streams
    streams.add(name="ORDERS", subjects=["orders.>"])
    nats.jetstream().publish("orders.eu", b"kept")
    tab.goto("/streams/ORDERS")
    tab.get_by_role("link", name="Back up").click()
    with tab.expect_download() as downloading:
        tab.get_by_role("button", name="Save the backup").click()
    saved = tmp_path / downloading.value.suggested_filename
    downloading.value.save_as(saved)
    assert saved.name == "ORDERS.zip"
    # The page tells by itself how it ended.
    tab.locator("#live-transfers").get_by_text("done").wait_for()
    # A page of the stream would ask for it again meanwhile, and complain.
    tab.goto("/restore")
    streams.delete("ORDERS")
    tab.locator("input[type=file]").set_input_files(saved)
    tab.get_by_role("button", name="Restore", exact=True).click()
    back = tab.get_by_text("Stream ORDERS was restored, with 1 message.")
    refused = tab.locator(".upload-state", has_text="does not match store")
    back.or_(refused).first.wait_for()
    while refused.is_visible():
        # nats-server has not removed the files of before, and leaves half a stream.
        with suppress(StreamNotFoundError):
            streams.delete("ORDERS")
        tab.get_by_role("button", name="Restore", exact=True).click()
        back.or_(refused).first.wait_for()
    back.wait_for()
    assert streams.get_message("ORDERS", seq=1).data == b"kept"


@pytest.mark.parametrize("server", ["tradewind"], indirect=True)
def test_a_dead_letter_is_found_repaired_and_sent_back_in_the_browser(
    tab: Page, nats: Connection
) -> None:
    manager, js = nats.jetstream_manager(), nats.jetstream()
    manager.streams.add(name="DEAD", subjects=["dead.>"], allow_direct=True)
    manager.streams.add(name="ORDERS", subjects=["orders.>"])
    manager.consumers.add(
        "ORDERS",
        durable_name="billing",
        ack_policy="explicit",
        metadata={"tradewind.dead_letter.stream": "DEAD"},
    )
    tab.goto("/dead-letters/DEAD")
    tab.get_by_text("No dead letters found.").wait_for()
    js.publish("orders.17", HOSTILE)
    consumer = js.consumers.get("ORDERS", "billing")
    consumer.next().term(HOSTILE)
    # It comes by itself.
    tab.locator("#live-letters").get_by_role("link", name="1", exact=True).click()
    tab.locator("#payload", has_text="taken").wait_for()
    assert "taken" not in tab.title()
    tab.get_by_role("link", name="Edit").click()
    assert tab.locator("textarea[name=payload]").input_value() == HOSTILE
    tab.locator("textarea[name=payload]").fill("\ntwo\napples")
    tab.get_by_role("button", name="Save").click()
    tab.get_by_text("Dead letter 1 was changed, and is now 2.").wait_for()
    tab.get_by_role("link", name="Edit").click()
    tab.get_by_role("button", name="Save").click()
    tab.get_by_text("Nothing was changed.").wait_for()
    tab.goto("/dead-letters/DEAD")
    tab.get_by_role("link", name="Redrive").click()
    tab.get_by_role("button", name="Send them back").click()
    tab.locator("#live-letters .badge.good", has_text="done").wait_for()
    assert consumer.next().data == b"\ntwo\napples"


def test_keys_are_watched_in_the_browser(tab: Page, nats: Connection) -> None:
    bucket = nats.jetstream().kv.create("prices", history=2)
    bucket.put("pear", b"1")
    tab.goto("/kv/prices/pear")
    # What is typed stays while the value changes beside it, and is then refused.
    tab.locator("textarea").fill("mine")
    bucket.put("pear", b"2")
    tab.locator("#value", has_text="2").wait_for()
    assert tab.locator("textarea").input_value() == "mine"
    tab.get_by_role("link", name="Watch").click()
    tab.locator("#live-watch tbody tr").first.wait_for()
    bucket.put("pear", HOSTILE)
    tab.locator("#live-watch").get_by_text(HOSTILE).wait_for()
    bucket.delete("pear")
    tab.locator("#live-watch").get_by_text("deleted").wait_for()


@pytest.mark.parametrize("kind", ["official", "tradewind"])
def test_a_restarted_server_is_found_again_without_a_reload(
    browser: Browser, kind: str, tmp_path: Path
) -> None:
    flags = ["-js", "-sd", str(tmp_path), "-a", "127.0.0.1", "-p"]
    first = ServerProcess(kind, [*flags, "-1"]).wait_ready()
    with tradewind.sync.connect(first.url) as connection:
        connection.jetstream_manager().streams.add(name="KEPT", subjects=["kept"])
        connection.jetstream().publish("kept", b"1")
    options = ConnectOptions(servers=first.url)
    with running_dashboard(DashboardSettings(options, port=0)) as dashboard:
        context = browser.new_context(base_url=dashboard.url)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto("/streams/KEPT")
        number = page.locator(".number", has_text="Messages")
        number.get_by_text("1", exact=True).wait_for()
        page.evaluate("window.isTheSamePage = true")
        first.stop()
        page.locator("#link-state", has_text="Reconnecting to").wait_for()
        # What was seen last stays beside that.
        assert number.get_by_text("1", exact=True).is_visible()
        second = ServerProcess(kind, [*flags, str(first.port)]).wait_ready()
        page.locator("#link-state", has_text="Reconnecting to").wait_for(state="detached")
        with tradewind.sync.connect(second.url) as connection:
            connection.jetstream().publish("kept", b"2")
        number.get_by_text("2", exact=True).wait_for()
        assert page.evaluate("window.isTheSamePage")
        context.close()
        second.stop()


def test_a_phone_shows_every_view_without_scrolling_sideways(
    browser: Browser, web: Web, nats: Connection
) -> None:
    nats.jetstream_manager().streams.add(name="S" * 80, subjects=[f"{'long' * 20}.>"])
    nats.jetstream_manager().consumers.add("S" * 80, durable_name="c" * 80)
    context = browser.new_context(viewport={"width": 390, "height": 844}, base_url=web.url)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    stream = f"/streams/{'S' * 80}"
    headers = {"Tradewind-Dead-Letter-Stream": "S" * 80, "Tradewind-Dead-Letter-Consumer": "c" * 80}
    nats.jetstream().publish(f"{'long' * 20}.x", b"z" * 200, headers=headers)
    letters = f"/dead-letters/{'S' * 80}"
    paths = ("/", "/streams", stream, f"{stream}/messages", f"{stream}/consumers/{'c' * 80}")
    paths += ("/dead-letters", letters, f"{letters}/1")
    for path in paths:
        page.goto(path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, path
    context.close()


def test_charts_are_there_on_arrival_and_zoom_by_dragging(tab: Page, nats: Connection) -> None:
    nats.jetstream_manager().streams.add(name="GROWS", subjects=["grows"])
    nats.jetstream().publish("grows", b"1")
    tab.goto("/streams/GROWS")
    tab.locator("svg.zooms .stroke").first.wait_for(state="attached")
    # A pointer over one chart shows the figures of that time in all of them.
    chart = tab.locator("svg.zooms").first
    box = chart.bounding_box()
    assert box is not None
    tab.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + box["height"] / 2)
    tab.locator(".figure.pointed").nth(1).wait_for()
    assert " at " in tab.locator(".figure.pointed .legend b").last.inner_text()
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2)
    assert float(chart.locator(".selection").get_attribute("width") or 0) > 100
    tab.mouse.up()
    tab.wait_for_url("**/streams/GROWS?from=*&to=*")
    tab.get_by_role("link", name="Reset zoom").click()
    tab.wait_for_url("**/streams/GROWS")
    # By the keyboard, too.
    tab.get_by_role("link", name="15m").press("Enter")
    tab.wait_for_url("**range=15m")


def test_tables_are_sorted_by_any_column_and_stay_so(tab: Page, nats: Connection) -> None:
    js = nats.jetstream()
    nats.jetstream_manager().streams.add(name="SORTS", subjects=["s.*"], allow_direct=True)
    for subject, messages in (("s.b", 12), ("s.a", 2), ("s.c", 7)):
        for _ in range(messages):
            js.publish(subject, b"")
    tab.goto("/streams/SORTS/subjects")
    first = tab.locator("tbody tr").first

    def subjects() -> list[str]:
        return tab.locator("tbody tr td:first-child").all_inner_texts()

    first.wait_for()
    tab.get_by_role("button", name="Messages").click()
    assert subjects() == ["s.b", "s.c", "s.a"]
    tab.get_by_role("button", name="Messages").click()
    assert subjects() == ["s.a", "s.c", "s.b"]
    tab.get_by_role("button", name="Subject").press("Enter")
    assert subjects() == ["s.a", "s.b", "s.c"]
    assert tab.locator("th[aria-sort=ascending]").count() == 1
    # The order outlives a refresh, and the link is that of its row.
    tab.evaluate("refresh()")
    assert subjects() == ["s.a", "s.b", "s.c"]


def test_times_are_local_or_utc_by_choice(browser: Browser, web: Web, nats: Connection) -> None:
    nats.jetstream_manager().streams.add(name="WHEN", subjects=["when"])
    context = browser.new_context(base_url=web.url, timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto("/streams/WHEN")
    created = page.locator("dt:has-text('Created') + dd time")
    full = created.get_attribute("data-full") or ""
    assert full.endswith(" UTC")
    assert not created.inner_text().endswith("UTC")
    assert created.inner_text()[14:16] != full[14:16]  # that zone is half an hour off
    page.locator("#zone").click()
    assert created.inner_text() == full
    page.reload()
    assert page.locator("#zone").inner_text() == "Times: UTC"
    assert created.inner_text() == full
    context.close()


def test_the_menu_of_a_phone_says_where_one_is(browser: Browser, web: Web) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, base_url=web.url)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto("/kv")
    menu = page.locator("#menu")
    assert menu.inner_text().strip() == "Key-value"
    assert not page.locator("#places").is_visible()
    menu.press("Enter")
    assert menu.get_attribute("aria-expanded") == "true"
    page.locator("#places").get_by_role("link", name="Streams").click()
    page.wait_for_url("**/streams")
    assert menu.inner_text().strip() == "Streams"
    context.close()
