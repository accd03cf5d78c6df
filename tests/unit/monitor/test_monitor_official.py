"""Our documents have the fields of the official server's, in its order and with its types.

The official server runs with one client that has one plain and one queue subscription; ours is a
stand-in of the same. Where a field differs on purpose it is listed here with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from monitor_fakes import FakeBroker, FakeClosedSession, FakeMessage, FakeSubscription

from harness import REPLY_SECONDS, RawClient, ServerProcess
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.pages import build_application
from tradewind.monitor.system_answers import SystemServices
from tradewind.options import AccountOptions, ServerOptions, UserOptions
from tradewind.route.permission_rules import PermissionRules, ResponseRule

CONFIG = """
listen: "127.0.0.1:-1"
http: "127.0.0.1:-1"
server_name: s1
server_tags: ["a:b", "c"]
server_metadata { zone: z1 }
system_account: SYS
accounts {
  SYS { users: [{user: sys, password: spw}] }
  A { users: [{user: bob, password: bpw, permissions: {
        publish: ">",
        subscribe: {allow: [">"], deny: "bar"},
        allow_responses: true}}] }
}
"""
# Only on the official server: the commit and feature switches of its own code; services that it
# makes out of imports between accounts, where ours answer in the account itself.
ONLY_OFFICIAL = {"git_commit", "imports", "exports"}
# Only on ours: its own version, the faults that it got over, and how long its turns are.
ONLY_OURS = {"tradewind_version", "tradewind_internal_errors", "tradewind_turns"}
# Present only where there is something to say: the official lists are in no order, and the shape
# is of the first entry.
BY_CHANCE = {"max", "qgroup", "http_req_stats"}
CLIENT = {"name": "probe", "lang": "test", "version": "1"}


def shape(value: Any) -> Any:
    """Names in order, and the kinds of values; a list by its first element."""
    if isinstance(value, dict):
        dropped = ONLY_OFFICIAL | ONLY_OURS | BY_CHANCE
        return [(key, shape(inner)) for key, inner in value.items() if key not in dropped]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, int | float) else _text_kind(value)


def _text_kind(text: str) -> str:
    """Times and durations are held to their form; other text is just text."""
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,8}[1-9])?Z", text):
        return "time"
    if re.fullmatch(r"(\d+[ydhm])*\d+(\.\d+)?(s|ms|µs|ns)", text):
        return "duration"
    return "text"


class Official:
    """The official server, a client of account A, and one of the system account for events."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        port = process.wait_for_log(r"Starting http monitor on 127.0.0.1:(\d+)")[1]
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=REPLY_SECONDS)
        self.system = RawClient(process.port).connect(user="sys", **{"pass": "spw"})
        self.system.send("SUB $SYS.SERVER.> ev\r\nSUB $SYS.ACCOUNT.> ev2\r\nSUB in sys\r\n")
        self.system.send("PING\r\n")
        while (line := self.system.read_line()) != b"PONG":
            # The word of its own connection may come late enough to be heard; INFO always comes.
            if line.startswith(b"MSG "):
                self.system.read_exact(int(line.split()[-1]) + 2)
        self.client = self.connect()
        self.client.send("SUB a 1\r\nSUB b.* q 2\r\nSUB in in\r\nPUB foo 3\r\nabc\r\n")
        self.client.ping()

    def connect(self) -> RawClient:
        return RawClient(self.process.port).connect(user="bob", **{"pass": "bpw"}, **CLIENT)

    def request(self, client: RawClient, subject: str, body: str = "") -> Any:
        client.send(f"PUB {subject} in {len(body)}\r\n{body}\r\n")
        return self.next(client, "in")

    def next(self, client: RawClient, subject: str) -> Any:
        while True:
            line, _, payload = client.read_message()
            if line.split(" ")[1] == subject:
                return json.loads(payload)

    def close(self) -> None:
        self.http.close()
        self.client.close()
        self.system.close()
        self.process.stop()


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Official]:
    path: Path = tmp_path_factory.mktemp("official") / "server.conf"
    path.write_text(CONFIG)
    process = ServerProcess("official", ["-c", str(path)]).wait_ready()
    server = Official(process)
    yield server
    server.close()


class Ours:
    """The same server made of stand-ins."""

    def __init__(self) -> None:
        user = UserOptions("bob")
        options = ServerOptions(
            host="127.0.0.1",
            server_tags=("a:b", "c"),
            server_metadata={"zone": "z1"},
            system_account="SYS",
            config_digest="sha256:00",
            accounts={"A": AccountOptions("A", users=(user,))},
        )
        self.broker = FakeBroker(options=options)
        self.broker.accounts["SYS"] = self.broker.accounts.pop("$SYS")
        self.broker.accounts["SYS"].name = "SYS"
        rules = PermissionRules((">",), (), (">",), ("bar",), ResponseRule())
        self.session = self.broker.add_session(
            7,
            user="bob",
            **CLIENT,
            permissions=rules,
            subscription_list=[
                FakeSubscription("a", cid=7, account="A"),
                FakeSubscription("b.*", "q", "2", cid=7, account="A"),
            ],
        )
        self.broker.accounts["A"].subscription_list = self.session.subscription_list
        self.broker.add_closed(6, user="bob", **CLIENT)
        self.view = MonitorView(self.broker)
        self.services = SystemServices(
            self.broker, lambda done: done(None), lambda _: True, lambda _: True, self.view
        )
        self.services.start()
        transport = httpx.ASGITransport(app=build_application(self.view))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://ours")

    def request(self, account: str, subject: str, body: str = "") -> Any:
        place = self.broker.accounts[account]
        place.published.clear()
        session = self.session if account == "A" else None
        place.request(FakeMessage(subject, payload=body.encode(), session=session))
        ((_, answer, _),) = place.published
        return json.loads(answer)

    def events(self) -> dict[str, Any]:
        published = self.broker.accounts["SYS"].published
        return {subject: json.loads(body) for subject, body, _ in published}


@pytest.fixture
def ours() -> Ours:
    return Ours()


@pytest.mark.parametrize(
    "path",
    [
        "/varz",
        "/connz?cid=%d",
        "/connz?cid=%d&subs=1&auth=1",
        "/connz?cid=%d&subs=detail&auth=1",
        "/connz?acc=NOPE",
        "/connz?acc=A",
        "/subsz",
        "/subsz?subs=1&acc=A&test=b.x",
        "/accountz",
        "/accountz?acc=A",
        "/accountz?acc=SYS",
        "/accstatz",
        "/accstatz?unused=1",
        "/routez",
        "/leafz",
        "/gatewayz",
        "/jsz",
        "/healthz",
        "/healthz?stream=x",
        "/healthz?stream=x&details=1",
        "/ipqueuesz",
    ],
)
async def test_pages_have_the_same_shape_and_headers(
    official: Official, ours: Ours, path: str
) -> None:
    theirs = official.http.get(path.replace("%d", str(official.client.info["client_id"])))
    answer = await ours.http.get(path.replace("%d", "7"))
    assert answer.status_code == theirs.status_code
    for name in ("content-type", "access-control-allow-origin"):
        assert answer.headers[name] == theirs.headers[name]
    assert shape(answer.json()) == shape(theirs.json())
    assert answer.text.startswith("{\n") == theirs.text.startswith("{\n")


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/varz/",
        "/raftz",
        "/connz?sort=xx",
        "/connz?sort=stop",
        "/connz?state=foo",
        "/connz?state=all",
        "/connz?limit=x",
        "/connz?limit=-1",
        "/connz?offset=1e3",
        "/connz?cid=-1",
        "/connz?subs=maybe",
        "/connz?auth=2",
        "/subsz?test=a.*",
        "/subsz?limit=z",
        "/subsz?subs=z",
        "/accountz?acc=ZZ",
        "/accstatz?unused=z",
        "/leafz?subs=z",
        "/routez?subs=z",
        "/gatewayz?accs=z",
        "/jsz?accounts=z",
        "/jsz?limit=99999999999999999999",
        "/healthz?details=z",
        "/healthz?js-enabled-only=1",
        "/connz?cid=99999999999999999999999",
    ],
)
async def test_wrong_questions_have_the_same_answers(
    official: Official, ours: Ours, path: str
) -> None:
    theirs = official.http.get(path)
    answer = await ours.http.get(path)
    assert answer.status_code == theirs.status_code
    assert answer.headers["content-type"] == theirs.headers["content-type"]
    if theirs.status_code != 200:
        assert answer.text == theirs.text


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("$SYS.REQ.SERVER.PING", ""),
        ("$SYS.REQ.SERVER.PING.IDZ", ""),
        ("$SYS.REQ.SERVER.PING.STATSZ", ""),
        ("$SYS.REQ.SERVER.PING.VARZ", ""),
        ("$SYS.REQ.SERVER.PING.CONNZ", '{"acc":"A","subscriptions_detail":true,"auth":true}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", '{"sort":"zz"}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", "{bad"),
        ("$SYS.REQ.SERVER.PING.SUBSZ", '{"subscriptions":true,"account":"A","test":"a"}'),
        ("$SYS.REQ.SERVER.PING.ROUTEZ", ""),
        ("$SYS.REQ.SERVER.PING.GATEWAYZ", ""),
        ("$SYS.REQ.SERVER.PING.LEAFZ", ""),
        ("$SYS.REQ.SERVER.PING.ACCOUNTZ", '{"account":"A"}'),
        ("$SYS.REQ.SERVER.PING.ACCOUNTZ", '{"account":"ZZ"}'),
        ("$SYS.REQ.SERVER.PING.JSZ", ""),
        ("$SYS.REQ.SERVER.PING.HEALTHZ", ""),
        ("$SYS.REQ.SERVER.PING.HEALTHZ", '{"stream":"x"}'),
        ("$SYS.REQ.ACCOUNT.A.CONNZ", ""),
        ("$SYS.REQ.ACCOUNT.A.SUBSZ", ""),
        ("$SYS.REQ.ACCOUNT.A.INFO", ""),
        ("$SYS.REQ.ACCOUNT.A.STATZ", ""),
        ("$SYS.REQ.ACCOUNT.A.LEAFZ", ""),
        ("$SYS.REQ.ACCOUNT.A.JSZ", ""),
        ("$SYS.REQ.ACCOUNT.A.CONNS", ""),
        ("$SYS.REQ.ACCOUNT.ZZ.CONNZ", ""),
        ("$SYS.REQ.ACCOUNT.PING.STATZ", ""),
        ("$SYS.REQ.ACCOUNT.NSUBS", '{"acc":"A","subject":"a"}'),
        ("$SYS.DEBUG.SUBSCRIBERS", "zz"),
        ("$SYS.REQ.SERVER.<id>.VARZ", ""),
        ("$SYS.REQ.SERVER.<id>.KICK", '{"cid":99999}'),
        ("$SYS.REQ.SERVER.<id>.LDM", '{"cid":99999}'),
        ("$SYS.REQ.SERVER.<id>.RELOAD", ""),
    ],
)
def test_system_requests_have_the_same_shape(
    official: Official, ours: Ours, subject: str, body: str
) -> None:
    theirs = official.request(
        official.system, subject.replace("<id>", official.system.info["server_id"]), body
    )
    ours.services._kick = ours.services._lame_duck = lambda _: False
    ours.services.stop()
    ours.services.start()
    answer = ours.request("SYS", subject.replace("<id>", ours.broker.server_id), body)
    assert shape(answer) == shape(theirs)
    if "error" in (theirs if isinstance(theirs, dict) else ()) and body != "{bad":
        assert answer["error"] == theirs["error"]


@pytest.mark.parametrize(
    "subject",
    [
        "$SYS.REQ.USER.INFO",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.ACCOUNT.PING.STATZ",
    ],
)
def test_requests_of_any_account_have_the_same_shape(
    official: Official, ours: Ours, subject: str
) -> None:
    theirs = official.request(official.client, subject)
    answer = ours.request("A", subject)
    assert shape(answer) == shape(theirs)
    if subject.endswith("USER.INFO"):
        assert answer["data"] == theirs["data"]


def test_events_have_the_same_shape(official: Official, ours: Ours) -> None:
    visitor = official.connect()
    theirs = {
        subject: official.next(official.system, subject)
        for subject in (
            "$SYS.SERVER.ACCOUNT.A.CONNS",
            "$SYS.ACCOUNT.A.SERVER.CONNS",
            "$SYS.ACCOUNT.A.CONNECT",
        )
    }
    visitor.close()
    subject = "$SYS.ACCOUNT.A.DISCONNECT"
    theirs[subject] = official.next(official.system, subject)
    ours.services.on_connect(ours.session)
    closed: FakeClosedSession = ours.broker.closed[0]
    ours.services.on_disconnect(closed)
    events = ours.events()
    assert set(events) == set(theirs)
    for subject, event in theirs.items():
        assert shape(events[subject]) == shape(event)
        assert events[subject]["type"] == event["type"]


def test_a_refused_login_has_the_same_shape(official: Official, ours: Ours) -> None:
    refused = RawClient(official.process.port)
    refused.send('CONNECT {"user":"bad","pass":"x","name":"probe","lang":"t","version":"1"}\r\n')
    refused.read_to_end()
    refused.close()
    name = "$SYS.SERVER.%s.CLIENT.AUTH.ERR"
    theirs = official.next(official.system, name % refused.info["server_id"])
    ours.services.on_auth_error(ours.session, "no")
    event = ours.events()[name % ours.broker.server_id]
    assert shape(event) == shape(theirs)
    assert event["reason"] == theirs["reason"]
