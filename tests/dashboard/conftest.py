"""A server of each kind with a dashboard before it, and visitors: one without a browser, one with.

`web` is a visitor without scripts, which all but the script itself needs; `browser` is Chromium.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import tradewind.sync
from harness import ServerProcess
from tradewind.client.core.options import ConnectOptions
from tradewind.dashboard.web.serving import Dashboard, DashboardSettings, running_dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ANSWER_SECONDS = 60


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
        """What is to be read on a page."""
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


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Until it holds; for what a page shows some time after it happened."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def text_of(html: str) -> str:
    """The text between the elements of a page."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def hidden_fields(html: str) -> dict[str, str]:
    """What a page hides in its forms."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html)
    return {name: unescape(value) for name, value in found}


@pytest.fixture(scope="module", params=["official", "tradewind"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp(request.param)
    flags = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(request.param, flags).wait_ready()
    # nats-server removes the folder of an account's streams when it is empty, some time after the
    # last one is deleted, and so may take it away from under the next one.
    streams = folder / "jetstream" / "$G" / "streams"
    streams.mkdir(parents=True, exist_ok=True)
    (streams / ".keep").touch()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="module")
def nats(server: ServerProcess) -> Iterator[tradewind.sync.Connection]:
    with tradewind.sync.connect(server.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def dashboard(server: ServerProcess) -> Iterator[Dashboard]:
    options = ConnectOptions(servers=server.url)
    with running_dashboard(DashboardSettings(options, port=0)) as made:
        yield made


@pytest.fixture
def web(dashboard: Dashboard, nats: tradewind.sync.Connection) -> Iterator[Web]:
    """A visitor; when the test is over no stream is left."""
    visitor = Web(dashboard.url)
    with visitor.client:
        yield visitor
    streams = nats.jetstream_manager().streams
    for name in streams.names().all():
        streams.delete(name)


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
