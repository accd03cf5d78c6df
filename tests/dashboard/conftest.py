"""A server of each kind with a dashboard before it, and visitors: one without a browser, one with.

`web` is a visitor without scripts, which all but the script itself needs; `browser` is Chromium.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import tradewind.sync
from harness import ServerProcess, wait_for
from jetstream_servers import keep_streams_folder
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.data import (
    connection_data,
    load_and_usage,
    samplers,
    watch_data,
    workspace,
)
from tradewind.dashboard.web.serving import Dashboard, DashboardSettings, running_dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER = Path(__file__).parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ANSWER_SECONDS = 60
PATIENCE_MS = 60_000
# A browser is many processes, each of which waits for the others on a busy machine.
BROWSER_SECONDS = 300
# How long a page waits for the server, which it may well have to on a busy machine.
PAGE_SECONDS = 30.0


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`--dist loadgroup` keeps a module together, so its servers and its browser start once.

    And it keeps those with a browser together, which alone can use all processors: two of them at
    the same time take far longer than one after the other.
    """
    ours = [item for item in items if str(item.path).startswith(f"{FOLDER}/")]
    in_browser = [item for item in ours if "browser" in getattr(item, "fixturenames", ())]
    modules = {item.path for item in in_browser}
    for item in ours:
        group = "browser" if item.path in modules else item.path.stem
        item.add_marker(pytest.mark.xdist_group(f"dashboard_{group}"))
    for item in in_browser:
        item.add_marker(pytest.mark.timeout(BROWSER_SECONDS))


class Web:
    """A visitor who reads pages and fills in forms, as a browser without scripts would."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.client = httpx.Client(base_url=self.url, timeout=ANSWER_SECONDS, trust_env=False)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.client.get(path, **more)

    def page(self, path: str, status: int = 200) -> str:
        """A page as HTML."""
        answer = self.client.get(path, follow_redirects=True)
        assert answer.status_code == status, (answer.status_code, text_of(answer.text))
        return answer.text

    def text(self, path: str, status: int = 200) -> str:
        """The readable text of a page."""
        return text_of(self.page(path, status))

    def token(self, path: str = "/new-stream") -> str:
        found = re.search(r'name="csrf" (?:content|value)="([0-9a-f]{64})"', self.page(path))
        assert found
        return found[1]

    def send(self, path: str, status: int = 200, **fields: Any) -> str:
        """Fill in a form; what is to be read on the page that follows."""
        data = {"csrf": self.token(), **{key: str(value) for key, value in fields.items()}}
        answer = self.client.post(path, data=data, follow_redirects=True)
        assert answer.status_code == status, (answer.status_code, text_of(answer.text))
        return text_of(answer.text)

    def put(self, path: str, content: Any, status: int = 201, **query: Any) -> httpx.Response:
        """Send a file as the script of a page does."""
        headers = {"X-CSRF-Token": self.token(), "Content-Type": "application/octet-stream"}
        answer = self.client.put(path, params=query, content=content, headers=headers)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer


def text_of(html: str) -> str:
    """The text between the elements of a page."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def hidden_fields(html: str) -> dict[str, str]:
    """The hidden fields of a page's forms."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html)
    return {name: unescape(value) for name, value in found}


def area_of(html: str) -> str:
    """The text in the first text area of a page."""
    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", html, re.DOTALL)
    assert found
    return unescape(found[1])


@pytest.fixture(scope="module", autouse=True)
def _patient_pages() -> Iterator[None]:
    """A page is drawn when the server has answered, and not without what it is slow to tell."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (samplers, watch_data):
            patch.setattr(module, "FIRST_SECONDS", PAGE_SECONDS)
        for module in (load_and_usage, connection_data):
            patch.setattr(module, "ANSWER_SECONDS", PAGE_SECONDS)
        patch.setattr(workspace, "REQUEST_SECONDS", PAGE_SECONDS)
        yield


@contextmanager
def connected_dashboard(settings: DashboardSettings) -> Iterator[Dashboard]:
    """A dashboard that all visitors share, and that hears of whatever happens from now on."""

    async def is_heard() -> None:
        await shared.wait_started()
        await shared.connection.flush()

    with running_dashboard(settings) as made:
        assert made.sessions is not None
        shared = made.sessions._shared
        assert shared is not None
        assert shared._starting is not None
        loop = shared._starting.get_loop()
        asyncio.run_coroutine_threadsafe(is_heard(), loop).result(ANSWER_SECONDS)
        yield made


@pytest.fixture(scope="module", params=["official", "tradewind"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp(request.param)
    flags = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(request.param, flags).wait_ready()
    keep_streams_folder(folder)
    try:
        yield process
    finally:
        process.stop()


def delete_streams(nats: tradewind.sync.Connection, server: ServerProcess) -> None:
    """Delete all streams, and wait for the end of their files: they are removed some time later,
    and a stream of the same name that comes before that may find them.
    """
    streams = nats.jetstream_manager().streams
    for name in streams.names().all():
        streams.delete(name)
    folder = Path(server.args[server.args.index("-sd") + 1], "jetstream", "$G", "streams")
    wait_for(lambda: [path.name for path in folder.iterdir()] == [".keep"])


@pytest.fixture(scope="module")
def nats(server: ServerProcess) -> Iterator[tradewind.sync.Connection]:
    with tradewind.sync.connect(server.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def dashboard(server: ServerProcess) -> Iterator[Dashboard]:
    options = ConnectOptions(servers=server.url)
    with connected_dashboard(DashboardSettings(options, port=0)) as made:
        yield made


@pytest.fixture
def web(
    dashboard: Dashboard, nats: tradewind.sync.Connection, server: ServerProcess
) -> Iterator[Web]:
    """A visitor; when the test is over no stream is left."""
    visitor = Web(dashboard.url)
    with visitor.client:
        yield visitor
    delete_streams(nats, server)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a module.

    Playwright keeps an event loop running in this thread, so it must be gone before other tests run
    one of theirs.
    """
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox needs rights that containers do not give; the pages are our own.
        made = playwright.chromium.launch(
            executable_path=str(Path(CHROMIUM)), args=["--no-sandbox", "--disable-gpu"]
        )
        yield made
        made.close()


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
    assert [text for text in complaints if not re.search("40[09]", text)] == []
    assert [url for url in outside if not url.startswith(web.url)] == []
