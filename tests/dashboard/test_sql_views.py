"""SQL in the dashboard, before a real SQL service whose answers need no Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from dashboard.conftest import Web, text_of
from harness import wait_for
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.data import sql_data as sql_data
from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.queries import QueryResult
from tradewind.pipelines.sql import caller as caller_module
from tradewind.pipelines.sql import engines
from tradewind.pipelines.sql import service as service_module
from tradewind.pipelines.sql.query_session import SqlQuestion
from tradewind.pipelines.sql.service import SqlService
from tradewind.pipelines.sql.wire import StatementError, meeting_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from harness import ServerProcess

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
LIMIT_SECONDS = 60


class Runners:
    """Runners that answer what the tests ask."""

    def __init__(self) -> None:
        self.asked: list[SqlQuestion] = []
        self.released = threading.Event()

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def make(self) -> Runners:
        return self

    def begin(self, group: str, text: str) -> None:
        pass

    def cancel(self, group: str) -> None:
        self.released.set()

    def progress(self, group: str) -> tuple[int, int]:
        return 3, 8

    def ask(self, question: SqlQuestion) -> QueryResult:
        self.asked.append(question)
        text = question.text
        if text == "hang":
            assert self.released.wait(LIMIT_SECONDS)
        if text.startswith("select\n"):
            raise StatementError("table 'NOWERE' does not exist; did you mean 'NOWHERE'?", 2, 8)
        if text == "broad":
            return QueryResult(["a"], [("x" * 100_000,)] * 100, has_more=False)
        if text == "hostile":
            return QueryResult([HOSTILE, "n#"], [(HOSTILE, 1)], has_more=False)
        if text == "nothing":
            return QueryResult(["a"], [], has_more=False)
        if text == "refused":
            raise PipelineError("only select, please")
        rows = [(f"eu{number}", number, -number / 2) for number in range(question.rows_max)]
        return QueryResult(["region", "orders", "change"], rows, has_more=True)


def is_up() -> bool:
    """Whether the service answers: its socket is there a moment before it listens."""
    caller = caller_module.Caller.connect("state")
    if caller is not None:
        caller.close()
    return caller is not None


@pytest.fixture
def runners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runners]:
    """A service of its own, which is asked for everything."""
    monkeypatch.setenv("TRADEWIND_SQL_ENGINE", "spark")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(service_module, "_ASK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(service_module, "PROGRESS_SECONDS", 0.01)
    folder = meeting_folder(create=True)
    assert folder is not None
    made = Runners()
    service = SqlService(folder, "local[7]", 3600, made)
    thread = threading.Thread(target=service.run, daemon=True)
    thread.start()
    wait_for(is_up)
    yield made
    made.released.set()
    caller_module.stop()
    thread.join(LIMIT_SECONDS)
    assert not thread.is_alive()


def answered(web: Web, query: str, **more: str) -> str:
    """Run a query on the page; the page when it is over."""
    data = {"csrf": web.token("/sql"), "query": query, **more}
    answer = web.client.post("/sql", data=data)
    assert answer.status_code == 303, text_of(answer.text)
    path = answer.headers["location"]
    wait_for(lambda: "<progress" not in web.page(path))
    return path


def test_an_answer_is_shown_as_a_table_and_as_a_chart(
    web: Web, runners: Runners, server: ServerProcess
) -> None:
    path = answered(web, "select region, count(*)\r\nfrom ORDERS", rows="250")
    assert runners.asked[0].text == "select region, count(*)\nfrom ORDERS"
    assert runners.asked[0].rows_max == 250
    assert runners.asked[0].address.server == server.url
    text = web.text(path)
    assert "250 rows in" in text
    assert "there are more than the 250 that were asked for" in text
    assert "eu99 99 -49.5" in text
    assert "eu100" not in text
    assert "eu150 150 -75" in web.text(f"{path}&first=100")
    assert "1 to 100 of 250" in text
    chart = web.page(f"{path}&view=chart")
    assert chart.count('class="bar"') == 40
    assert ">-19.5</text>" in chart
    assert "The first 40 of 250 rows." in text_of(chart)
    assert ">39</text>" in web.page(f"{path}&view=chart&value=orders")
    assert "There is nothing" not in text
    assert "No rows." in web.text(answered(web, "nothing"))
    assert "needs a column of numbers" in web.text(answered(web, "nothing") + "&view=chart")


def test_a_link_fills_the_box_and_runs_nothing(web: Web, runners: Runners) -> None:
    query = "select * from ORDERS where subject = '<b>'"
    path = answered(web, query)
    other = Web(web.url)
    assert quote("select") in path
    page = other.page(f"/sql?query={quote(query)}&run=of-somebody-else&rows=7")
    assert "select * from ORDERS where subject = &#x27;&lt;b&gt;&#x27;" in page
    assert 'name="rows" value="7"' in page
    assert other.get("/sql/any/cancel").status_code == 405
    assert len(runners.asked) == 1
    other.client.close()


def test_a_query_can_be_cancelled_and_its_progress_is_seen(web: Web, runners: Runners) -> None:
    data = {"csrf": web.token("/sql"), "query": "hang"}
    path = web.client.post("/sql", data=data).headers["location"]
    wait_for(lambda: "3 of 8 tasks are done" in web.text(path))
    key = path.partition("run=")[2].partition("&")[0]
    web.client.post("/sql", data=data)
    assert "2 of your queries are already running" in web.send("/sql", 502, query="hang")
    web.send(f"/sql/{key}/cancel")
    wait_for(lambda: "The query was cancelled." in web.text(path))
    assert runners.released.is_set()
    assert "no longer known" in web.send("/sql/unknown/cancel")


def test_errors_are_told_with_their_place(web: Web, runners: Runners) -> None:
    page = web.page(answered(web, "select\n* from NOWERE"))
    assert "table &#x27;NOWERE&#x27; does not exist; did you mean" in page
    assert "Line 2, column 8:" in page
    assert "<pre>* from NOWERE\n       ^</pre>" in page
    assert "only select, please" in web.text(answered(web, "refused"))
    assert "larger than 4 MiB; select fewer rows" in web.text(answered(web, "broad"))
    assert "query must not be empty" in web.send("/sql", 400, query="  ")
    assert "rows must be from 1 to 10,000" in web.send("/sql", 400, query="a", rows="10001")
    assert "rows must be a whole number" in web.send("/sql", 400, query="a", rows="many")


def test_without_spark_the_page_says_what_to_install(
    web: Web, runners: Runners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda _name: None)
    assert "[spark]" in web.send("/sql", 502, query="a")
    monkeypatch.delenv("TRADEWIND_SQL_ENGINE")
    assert "[frames]" in web.send("/sql", 502, query="a")


def test_a_service_is_started_if_there_is_none(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_SQL_ENGINE", "spark")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    started: list[list[str]] = []

    def start(command: list[str]) -> int:
        started.append(command)
        raise PipelineError("the SQL service does not start; see the log")

    monkeypatch.setattr(caller_module, "start", start)
    assert "does not start; see the log" in web.text(answered(web, "select 1"))
    assert started[0][-4:] == ["--master", "local[*,4]", "--idle", "1800s"]


def test_nothing_runs_for_those_who_may_not(server: ServerProcess, runners: Runners) -> None:
    options = ConnectOptions(servers=server.url)
    for more in ({"is_read_only": True}, {"needs_login": True}):
        with running_dashboard(DashboardSettings(options, port=0, **more)) as dashboard:
            web = Web(dashboard.url)
            if "needs_login" in more:
                fields = {"csrf": web.token("/login"), "token": "any", "next": "/"}
                web.client.post("/login", data=fields)
            page = web.page("/sql?query=select+1")
            assert 'data-problem="denied"' in page
            assert "<button" not in page.partition("<main")[2]
            web.send("/sql", 403, query="select 1")
            web.client.close()
    assert runners.asked == []


def test_the_streams_are_read_with_the_login_of_the_visitor(
    server: ServerProcess, runners: Runners
) -> None:
    options = ConnectOptions(servers=server.url, user="owner", password="of-the-owner")
    more = {"needs_login": True, "allow_run": True}
    with running_dashboard(DashboardSettings(options, port=0, **more)) as dashboard:
        web = Web(dashboard.url)
        fields = {"csrf": web.token("/login"), "user": "me", "password": "mine", "next": "/"}
        web.client.post("/login", data=fields)
        path = answered(web, "select 1")
        login = runners.asked[0].address.login
        assert (login.user, login.password) == ("me", "mine")
        page = web.page(path)
        assert "of-the-owner" not in page
        assert "mine" not in page + path
        web.client.close()


def test_hostile_queries_and_answers_are_shown_and_never_run(
    browser: Browser, web: Web, runners: Runners
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, base_url=web.url)
    page = context.new_page()
    page.set_default_timeout(LIMIT_SECONDS * 1000)
    page.goto(f"/sql?query={quote('</textarea>' + HOSTILE)}")
    assert page.locator("textarea").input_value() == "</textarea>" + HOSTILE
    page.locator("textarea").fill("hostile")
    page.locator("textarea").press("Control+Enter")
    page.locator("#sql-took").wait_for()
    assert page.locator("td").first.inner_text().endswith(HOSTILE)
    for part in ("Table", "Chart"):
        with page.expect_navigation():
            page.get_by_role("link", name=part, exact=True).click()
        page.locator("#sql-took").wait_for()
        assert "Tradewind" in page.title()
        assert page.locator("img:not(.sign)").count() == 0
        assert page.locator("script:not([src])").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_what_is_there_is_offered_and_a_stranger_to_the_service_gets_an_error(
    web: Web, runners: Runners, nats: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.send("/new-stream", name="ORDERS", subjects="orders.>")
    wait_for(lambda: "select * from ORDERS order by seq desc" in web.text("/sql"))
    monkeypatch.setattr(caller_module, "place_of_process", lambda: "elsewhere")
    assert "another Python or home folder" in web.text(answered(web, "select 1"))
