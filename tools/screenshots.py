"""Makes the pictures of docs/images: the dashboard before a server with orders, light and dark.

    .venv/bin/python tools/screenshots.py             all but those of Spark
    .venv/bin/python tools/screenshots.py messages    only these
    .venv/bin/python tools/screenshots.py --spark     a pipeline and SQL, by `tradewind demo`
    .venv/bin/python tools/screenshots.py --all DIR   every page, in three widths, light and dark

Needs chromium and Playwright, which the tests need, too, and the font Inter (Debian's
fonts-inter), so that the pictures look as the dashboard does on a desktop.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from playwright.sync_api import sync_playwright

import tradewind
import tradewind.sync
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WATCHED_SECONDS = 45
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
PATIENCE_MS = 600_000
# How many of the orders cannot be packed.
BAD_PART = 0.01
QUERY = """select split_part(subject, '.', 2) as region, count(*) as orders, sum(amount) as revenue
from ORDERS
group by region order by revenue desc"""
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include>/etc/fonts/fonts.conf</include>
  <match target="pattern">
    <test name="family" qual="any"><string>system-ui</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit>
  </match>
  <match target="pattern">
    <test name="family" qual="any"><string>sans-serif</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit>
  </match>
</fontconfig>
"""
# Name, path, size of the window, colours.
PICTURES = (
    ("overview-light", "/", WIDE, "light"),
    ("overview-dark", "/", WIDE, "dark"),
    ("messages", "/streams/ORDERS/messages", WIDE, "light"),
    ("consumer", "/streams/ORDERS/consumers/billing", WIDE, "dark"),
    ("dead-letters", "/dead-letters/DEAD", WIDE, "light"),
    ("stream-phone", "/streams/ORDERS", PHONE, "light"),
    ("streams", "/streams", WIDE, "light"),
    ("consumers", "/consumers", WIDE, "dark"),
    ("keys", "/kv/prices", WIDE, "light"),
    ("overview-phone", "/", PHONE, "dark"),
)
# For people who look at every page before a release.
WIDTHS = (1440, 1280, 390)
PAGES = {
    "overview": "/",
    "search": "/search?search=R",
    "streams": "/streams",
    "new-stream": "/new-stream",
    "stream": "/streams/ORDERS",
    "stream-edit": "/streams/ORDERS/edit",
    "stream-purge": "/streams/ORDERS/purge",
    "stream-delete": "/streams/ORDERS/delete",
    "subjects": "/streams/ORDERS/subjects",
    "messages": "/streams/ORDERS/messages",
    "message": "/streams/ORDERS/messages/1",
    "publish": "/publish?stream=ORDERS",
    "integrity": "/streams/ORDERS/integrity",
    "configuration": "/streams/ORDERS/config",
    "backup": "/streams/ORDERS/backup",
    "consumers": "/consumers",
    "consumers-of-stream": "/streams/ORDERS/consumers",
    "new-consumer": "/streams/ORDERS/new-consumer",
    "consumer": "/streams/ORDERS/consumers/billing",
    "dead-letters": "/dead-letters",
    "dead-letters-of-stream": "/dead-letters/DEAD",
    "dead-letter": "/dead-letters/DEAD/1",
    "buckets": "/kv",
    "keys": "/kv/prices",
    "key": "/kv/prices/fruit.pear",
    "bucket-settings": "/buckets/prices/settings",
    "watch": "/buckets/prices/watch",
    "stores": "/objects",
    "pipelines": "/pipelines",
    "sql": "/sql",
    "schedules": "/schedules",
    "services": "/services",
    "tables": "/tables",
    "templates": "/templates",
    "map": "/map",
    "request": "/request",
    "search-messages": "/streams/ORDERS/search",
    "connections": "/connections",
    "accounts": "/accounts",
    "not-found": "/nowhere",
}
ALL_WATCHED_SECONDS = 40


def publish(url: str, stop: threading.Event) -> None:
    """Orders, and a client that reads some of them."""
    chance = random.Random(7)  # noqa: S311 - the same picture each time
    with tradewind.sync.connect(url, name="shop") as connection:
        manager, js = connection.jetstream_manager(), connection.jetstream()
        manager.streams.add(name="ORDERS", subjects=["orders.>"], allow_direct=True)
        manager.streams.add(name="AUDIT", mirror={"name": "ORDERS"})
        manager.streams.add(name="DEAD", subjects=["dead.>"], allow_direct=True)
        manager.consumers.add(
            "ORDERS",
            durable_name="packer",
            ack_policy="explicit",
            metadata={"tradewind.dead_letter.stream": "DEAD"},
        )
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
                if chance.random() < BAD_PART:
                    message.term(chance.choice(["no such item", "the address is missing"]))
                else:
                    message.ack()
            if len(unpaid) < 20:
                unpaid += js.consumers.get("ORDERS", "billing").fetch(5, expires=1.0, no_wait=True)


def take(browser: Browser, base: str, wanted: list[str]) -> None:
    """Look for a while, so that charts have something to show, then take the pictures."""
    pages = []
    for name, path, size, colours in PICTURES:
        if wanted and name not in wanted:
            continue
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


def take_all(browser: Browser, base: str, folder: Path) -> None:
    """Every page in all widths and colours, and a list of those that are wider than the window."""
    folder.mkdir(parents=True, exist_ok=True)
    for colours in ("light", "dark"):
        for width in WIDTHS:
            size = {"width": width, "height": 844 if width < 500 else 900}
            context = browser.new_context(viewport=size, color_scheme=colours)
            page = context.new_page()
            for name, path in PAGES.items():
                page.goto(base + path)
                page.wait_for_timeout(300)
                page.screenshot(path=folder / f"{name}-{width}-{colours}.png", full_page=True)
                wide = page.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    print(f"{name}: {wide} px at {width}", flush=True)  # noqa: T201
            context.close()


def take_spark(browser: Browser, base: str) -> None:
    """A pipeline at work, and a query over what it reads."""
    context = browser.new_context(
        viewport=WIDE | {"height": 1000}, color_scheme="light", base_url=base
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto("/pipelines")
    page.get_by_role("link", name="revenue", exact=True).click()
    page.locator("svg.chart .stroke.line1").first.wait_for()
    page.wait_for_timeout(WATCHED_SECONDS * 1000)
    page.screenshot(path=IMAGES / "pipeline.png")
    context.close()
    context = browser.new_context(viewport=WIDE, color_scheme="dark", base_url=base)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"/sql?query={quote(QUERY)}")
    for _ in range(2):  # the second answer is that of a Spark that is warm
        with page.expect_navigation():
            page.get_by_role("button", name="Run").click()
        page.locator("#sql-took").wait_for()
    page.get_by_role("link", name="Chart", exact=True).click()
    page.locator("svg.bars").wait_for()
    page.screenshot(path=IMAGES / "sql.png")
    context.close()


def launch(playwright: Playwright, folder: str) -> Browser:
    """Debian's Chromium, with Inter as the font of the system."""
    path = shutil.which("chromium")
    fonts = Path(folder) / "fonts.conf"
    fonts.write_text(FONTS)
    return playwright.chromium.launch(
        executable_path=path,
        args=["--no-sandbox"],
        env={**os.environ, "FONTCONFIG_FILE": str(fonts)},
    )


def main_spark() -> None:
    """Start the demo, take its pictures."""
    program = [sys.executable, "-m", "tradewind.cli"]
    words = ["--port", "0", "--http-port", "0", "--dashboard-port", "0"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder}
        demo = subprocess.Popen(  # noqa: S603 - this program
            [*program, "demo", "--folder", f"{folder}/data", *words],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert demo.stdout is not None
            for line in demo.stdout:
                if found := re.search(r"The dashboard is on (http://\S+)/", line):
                    threading.Thread(target=demo.stdout.read, daemon=True).start()
                    take_spark(launch(playwright, folder), found[1])
                    break
        finally:
            demo.terminate()
            demo.wait()
            stop = [*program, "sql", "--stop"]
            subprocess.run(stop, env=environment, check=True)  # noqa: S603 - this program


def main(wanted: list[str], everything: Path | None = None) -> None:
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
            browser, base = launch(playwright, folder), dashboard.url.rstrip("/")
            if everything is None:
                take(browser, base, wanted)
            else:
                time.sleep(ALL_WATCHED_SECONDS)  # until a consumer counts as stopped
                take_all(browser, base, everything)
        finally:
            stop.set()
            shop.join()


if __name__ == "__main__":
    if "--spark" in sys.argv:
        main_spark()
    elif "--all" in sys.argv:
        main([], Path(sys.argv[-1]))
    else:
        main(sys.argv[1:])
