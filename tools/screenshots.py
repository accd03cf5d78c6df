"""Makes the pictures of docs/images: the dashboard before a server with orders, light and dark.

    .venv/bin/python tools/screenshots.py

Needs chromium and Playwright, which the tests need, too.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

import tradewind
import tradewind.sync
from tradewind.client.core.options import ConnectOptions
from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WATCHED_SECONDS = 45
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
# Name, path, size of the window, colours.
PICTURES = (
    ("overview-light", "/", WIDE, "light"),
    ("overview-dark", "/", WIDE, "dark"),
    ("messages", "/streams/ORDERS/messages", WIDE, "light"),
    ("consumer", "/streams/ORDERS/consumers/billing", WIDE, "dark"),
    ("stream-phone", "/streams/ORDERS", PHONE, "light"),
)


def publish(url: str, stop: threading.Event) -> None:
    """Orders, and a client that reads some of them."""
    chance = random.Random(7)  # noqa: S311 - the same picture each time
    with tradewind.sync.connect(url, name="shop") as connection:
        manager, js = connection.jetstream_manager(), connection.jetstream()
        manager.streams.add(name="ORDERS", subjects=["orders.>"], allow_direct=True)
        manager.streams.add(name="AUDIT", mirror={"name": "ORDERS"})
        manager.consumers.add("ORDERS", durable_name="packer", ack_policy="explicit")
        manager.consumers.add(
            "ORDERS", durable_name="billing", ack_policy="explicit", max_ack_pending=20
        )
        js.kv.create("prices", history=5).put("fruit.pear", b"0.40")
        unpaid = list(js.consumers.get("ORDERS", "billing").fetch(1, expires=1.0, no_wait=True))
        packer = js.consumers.get("ORDERS", "packer")
        number = 0
        while not stop.wait(0.15):
            for _ in range(chance.randint(2, 12)):
                number += 1
                order = {"id": number, "item": chance.choice(["pear", "apple", "fig"])}
                region = chance.choice(["eu", "us", "asia"])
                js.publish(f"orders.{region}", json.dumps(order), headers={"Trace": f"{number}"})
            for message in packer.fetch(chance.randint(2, 10), expires=1.0, no_wait=True):
                message.ack()
            if len(unpaid) < 20:
                unpaid += js.consumers.get("ORDERS", "billing").fetch(5, expires=1.0, no_wait=True)


def take(browser: Browser, base: str) -> None:
    """Look for a while, so that charts have something to show, then take all pictures."""
    pages = []
    for name, path, size, colours in PICTURES:
        context = browser.new_context(viewport=size, color_scheme=colours)
        page = context.new_page()
        page.goto(base + path)
        pages.append((name, page))
    pages[0][1].wait_for_timeout(WATCHED_SECONDS * 1000)
    for name, page in pages:
        page.bring_to_front()
        page.wait_for_timeout(2500)
        page.screenshot(path=IMAGES / f"{name}.png")
        page.context.close()


def main() -> None:
    """Start everything, take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    stop = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        tradewind.serve(port=0, jetstream=folder, server_name="harbour") as server,
        running_dashboard(
            DashboardSettings(ConnectOptions(servers=server.url), port=0)
        ) as dashboard,
        sync_playwright() as playwright,
    ):
        shop = threading.Thread(target=publish, args=(server.url, stop))
        shop.start()
        try:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            take(browser, dashboard.url.rstrip("/"))
        finally:
            stop.set()
            shop.join()


if __name__ == "__main__":
    main()
