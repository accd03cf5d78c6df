"""Every page and every system request on both servers at once, field by field, for each setup.

Both get the same configuration and the same traffic, so everything must be equal: names of fields
and their order, types and values, but for what differs between two runs of one server (`VOLATILE`).
Where answers differ on purpose, `DIFFERENCES` says why, as docs/COMPATIBILITY.md does; an entry
that no longer differs fails the test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from helpers_monitoring import KINDS, Asker, Comparison, Watched, number
from helpers_monitoring_setups import SETUPS, Enter, Setup, stop_hubs

from conformance.helpers_ops import Page

BOOLEANS = ("1", "true", "0", "x", "")
# ACC, STREAM and CONSUMER stand for each account of a setup, and for its first stream.
PAGES = (
    "/varz", "/varz?unknown=1", "/varz?callback=run",
    "/connz?callback=run", "/connz?auth=1", "/connz?auth=true&subs=1", "/connz?auth=0",
    "/connz?auth=x", "/connz?subs=1", "/connz?subs=detail", "/connz?subs=DETAIL&auth=T",
    "/connz?subs=x", "/connz?subs=", "/connz?state=open", "/connz?state=closed&subs=1&auth=1",
    "/connz?state=closed&subs=detail", "/connz?state=any&auth=1", "/connz?state=ALL",
    "/connz?state=x", "/connz?state=1", "/connz?user=anna&auth=1", "/connz?user=anna",
    "/connz?user=nobody&auth=1", "/connz?acc=ACC", "/connz?acc=ACC&state=any&auth=1",
    "/connz?acc=NOBODY", "/connz?cid=99999", "/connz?cid=x", "/connz?cid=-1", "/connz?cid=1.5",
    "/connz?mqtt_client=m", "/connz?offset=1&limit=1", "/connz?limit=1", "/connz?offset=99",
    "/connz?limit=0", "/connz?limit=-1", "/connz?offset=-1", "/connz?limit=x", "/connz?offset=x",
    "/connz?filter_subject=a.b&acc=ACC&subs=1", "/connz?filter_subject=a.b", "/connz?sort=x",
    *(f"/connz?sort={name}" for name in (
        "cid", "start", "subs", "pending", "msgs_to", "msgs_from", "bytes_to", "bytes_from",
        "last", "idle", "uptime", "stop", "reason", "rtt", "CID",
    )),
    "/connz?sort=stop&state=closed", "/connz?sort=reason&state=closed",
    "/connz?sort=stop&state=any", "/connz?sort=uptime&state=closed",
    "/jsz", *(
        f"/jsz?{name}={value}"
        for name in (
            "accounts", "streams", "consumers", "config", "leader-only", "raft", "offset", "limit",
            "direct-consumers", "stream-leader-only",
        )
        for value in BOOLEANS
    ),
    "/jsz?accounts=1&offset=1", "/jsz?accounts=1&limit=1", "/jsz?accounts=1&offset=99",
    "/jsz?accounts=1&limit=-1", "/jsz?consumers=1&config=1&raft=1",
    "/jsz?consumers=1&direct-consumers=1", "/jsz?streams=1&stream-leader-only=1",
    "/jsz?acc=ACC", "/jsz?acc=ACC&streams=1&config=1", "/jsz?acc=ACC&consumers=1&leader-only=1",
    "/jsz?acc=NOBODY&streams=1",
    "/accountz", "/accountz?acc=ACC", "/accountz?acc=$SYS", "/accountz?acc=NOBODY",
    "/accstatz", "/accstatz?unused=1", "/accstatz?unused=0", "/accstatz?unused=x",
    "/leafz", "/leafz?subs=1", "/leafz?subs=x", "/leafz?acc=ACC", "/leafz?acc=NOBODY",
    "/routez", "/routez?subs=1", "/routez?subs=detail", "/routez?subs=x",
    "/gatewayz", "/gatewayz?accs=1", "/gatewayz?accs=x", "/gatewayz?acc_name=ACC",
    "/gatewayz?gw_name=G", "/gatewayz?subs=1", "/gatewayz?subs=detail",
    "/subsz", "/subscriptionsz", "/subsz?subs=1", "/subsz?subs=x", "/subsz?subs=1&acc=ACC",
    "/subsz?subs=1&acc=NOBODY", "/subsz?subs=1&test=a.b", "/subsz?subs=1&test=a.*",
    "/subsz?test=a.", "/subsz?subs=1&acc=ACC&test=a.b", "/subsz?limit=x", "/subsz?offset=x",
    "/subsz?offset=-1", "/subsz?limit=0", "/subsz?offset=99&subs=1&acc=ACC",
    "/healthz", *(
        f"/healthz?{name}={value}"
        for name in ("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only", "details")
        for value in BOOLEANS
    ),
    "/healthz?account=ACC", "/healthz?account=NOBODY", "/healthz?account=NOBODY&details=1",
    "/healthz?stream=STREAM", "/healthz?stream=STREAM&details=1", "/healthz?consumer=CONSUMER",
    "/healthz?account=ACC&consumer=CONSUMER", "/healthz?account=ACC&stream=STREAM",
    "/healthz?account=ACC&stream=NOPE", "/healthz?account=ACC&stream=NOPE&details=1",
    "/healthz?account=ACC&stream=STREAM&consumer=CONSUMER",
    "/healthz?account=ACC&stream=STREAM&consumer=NOPE",
    "/healthz?account=ACC&stream=STREAM&consumer=NOPE&details=1",
    "/healthz?account=ACC&stream=NOPE&consumer=NOPE&js-server-only=1",
    "/raftz", "/raftz?acc=ACC", "/raftz?group=G", "/nope", "/varz/", "/VARZ", "//varz", "/expvarz",
    "/profilez", "/stacksz", "/debug/vars", "/debug/pprof/", "/ipqueuesz", "/ipqueuesz?all=1",
    "/ipqueuesz?all=x", "/ipqueuesz?queues=x",
)  # fmt: skip
SETTLING_ROUNDS = 200
METHODS = ("HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO")
# Headers that say how a page was sent, and when.
TRANSPORT_HEADERS = {"date", "content-length", "transfer-encoding", "connection"}
NAMES = (
    "STATSZ", "VARZ", "CONNZ", "SUBSZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ",
    "HEALTHZ", "IDZ", "EXPVARZ", "IPQUEUESZ", "RAFTZ", "INFO", "STATZ", "CONNS", "NSUBS",
    "UNKNOWN", "PROFILEZ",
)  # fmt: skip
MALFORMED_BODIES = (b"{bad", b"[]", b"1", b'"x"', b" ", b"{}x", b'{"tags":1}')
WRONG_BODIES = (*MALFORMED_BODIES, b"null", b'{"limit":"x"}')
FILTERS: tuple[dict[str, Any], ...] = (
    {"server_name": "crow"}, {"server_name": "cro"}, {"server_name": "cro", "exact_match": True},
    {"server_name": "crow", "exact_match": True}, {"cluster": "crow"}, {"cluster": "x"},
    {"host": "127.0"}, {"host": "127.0.0.1", "exact_match": True}, {"host": "10.0"},
    {"tags": ["az:one"]}, {"tags": ["AZ:ONE", "fast"]}, {"tags": ["x"]}, {"tags": []},
    {"domain": "hub"}, {"domain": "x"}, {"domain": "hu"}, {"unknown": 1},
)  # fmt: skip
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "CONNZ": (
        {"auth": True, "subscriptions": True}, {"subscriptions_detail": True}, {"state": 1},
        {"state": 2, "auth": True}, {"state": 7}, {"user": "anna", "auth": True}, {"acc": "ACC"},
        {"acc": "NOBODY"}, {"cid": 99999}, {"mqtt_client": "m"}, {"offset": 1, "limit": 1},
        {"filter_subject": "a.b"}, {"filter_subject": "a.*", "acc": "ACC"}, {"sort": "x"},
        {"sort": "stop"}, {"limit": -1}, {"offset": -1},
    ),
    "SUBSZ": (
        {"subscriptions": True}, {"subscriptions": True, "account": "ACC"}, {"test": "a.*"},
        {"subscriptions": True, "test": "a.b"}, {"offset": 99, "limit": 1}, {"limit": -1},
    ),
    "ACCOUNTZ": ({"account": "ACC"}, {"account": "NOBODY"}),
    "LEAFZ": ({"subscriptions": True}, {"account": "ACC"}, {"account": "NOBODY"}),
    "ROUTEZ": ({"subscriptions": True}, {"subscriptions_detail": True}),
    "GATEWAYZ": ({"accounts": True}, {"name": "G"}, {"account_name": "ACC"}),
    "JSZ": (
        {"accounts": True}, {"streams": True}, {"consumer": True, "config": True}, {"raft": True},
        {"account": "ACC", "streams": True}, {"account": "NOBODY"}, {"leader_only": True},
        {"stream_leader_only": True, "streams": True}, {"accounts": True, "offset": 1},
        {"accounts": True, "limit": 1}, {"consumer": True, "direct_consumer": True},
    ),
    "HEALTHZ": (
        {"details": True}, {"account": "ACC"}, {"account": "NOBODY"}, {"stream": "STREAM"},
        {"account": "ACC", "stream": "NOPE"}, {"js-enabled-only": True}, {"js-server-only": True},
        {"account": "ACC", "stream": "STREAM", "consumer": "NOPE", "details": True},
    ),
    "STATZ": (
        {"accounts": ["ACC"]}, {"accounts": ["NOBODY"]}, {"include_unused": True},
        {"accounts": ["C"], "include_unused": True},
    ),
    "PROFILEZ": ({"name": "nope"}, {"name": ""}),
    "RAFTZ": ({"account": "ACC"}, {"group": "G"}),
    "IPQUEUESZ": ({"filter": "nope"}, {"all": True, "filter": "nope"}),
    "KICK": ({"cid": 99999}, {}),
    "LDM": ({"cid": 99999}, {}),
}  # fmt: skip
# What a member of any account may ask, and something that only the system account may.
MEMBERS = ("USER.INFO", "ACCOUNT.PING.CONNZ", "SERVER.PING.CONNZ", "ACCOUNT.PING.STATZ")
SYSTEM_ONLY = ("SERVER.PING", "SERVER.PING.VARZ", "SERVER.$ID.VARZ", "ACCOUNT.A.INFO")


def _shared(item: Any) -> tuple[str, ...]:
    """Shares in documents, or subjects."""
    return (item,) if isinstance(item, str) else (item["subject"], item["type"])


def _name(item: dict[str, Any]) -> str:
    return str(item["name"])


# Lists that nats-server takes from maps, so that their order is a matter of chance.
ORDERS = {
    "accounts": str,
    "approved_accounts": str,
    "subscriptions_list": lambda item: item if isinstance(item, str) else (
        item["account"], item["subject"], item["sid"],
    ),
    "subscriptions_list_detail": lambda item: (item["subject"], item["sid"]),
    "account_statz": lambda item: item["acc"],
    "imports": _shared,
    "exports": _shared,
    "stream_detail": _name,
    "allow": str,
}  # fmt: skip
# With equal keys, or with a limit that is none, others are in no order, too.
UNSORTED = {
    **ORDERS,
    "connections": lambda item: item.get("name", ""),
    "account_details": lambda item: item["id"],
}


@dataclass(frozen=True)
class Difference:
    """What differs on purpose: a pattern for page and path, and the setups in which it does."""

    pattern: str
    reason: str
    setups: tuple[str, ...] = tuple(SETUPS)


WITH_ADMIN = tuple(name for name, setup in SETUPS.items() if setup.admin is not None)
WITH_JETSTREAM = ("jetstream", "limits", "operator")
FIGURES = (
    "num_subscriptions|num_cache|num_inserts|num_removes|num_matches|cache_hit_rate|max_fanout"
    "|avg_fanout"
)
DIFFERENCES = (
    Difference(
        r"(varz|SERVER\.VARZ\.data)\.(-git_commit|\+tradewind_\w+)",
        "the commit is that of nats-server; version, faults and turns are ours",
    ),
    Difference(
        rf"[\w.]*\b(subsz|subscriptionsz|SUBSZ\.data|sublist_stats|CONNS|account_statz\[\])"
        rf"\.({FIGURES})",
        "only subscriptions of clients and leaf nodes are counted, and caches work differently",
    ),
    Difference(
        r"(varz|SERVER\.\w+\.(data|statsz)|SERVER\.PING\.statsz|ACCOUNT\.INFO\.data"
        r"|(accountz|SERVER\.ACCOUNTZ\.data)\.account_detail)\.subscriptions",
        "only subscriptions of clients and leaf nodes are counted",
    ),
    Difference(
        r"(subsz|subscriptionsz|\w+\.SUBSZ\.data)\.total",
        "only subscriptions of clients are listed",
    ),
    Difference(r"(stacksz|debug/vars)\..*", "pages of the Go runtime"),
    Difference(r"/varz\..*", "paths that are not written as usual are not corrected"),
    Difference(
        r"(ipqueuesz|\w+\.IPQUEUESZ\.data)\.(-.*|indented)", "queues between threads of nats-server"
    ),
    Difference(r"\w+\.\w+\.error\.description of 400", "texts about malformed JSON"),
    Difference(
        r"SERVER\.EXPVARZ\.data\.(memstats\..*|cmdline.*)",
        "few figures about memory; flags may hold passwords",
        WITH_ADMIN,
    ),
    Difference(
        r"ended in \$G\..*",
        "ended connections of $G are listed for acc=$G, too",
        ("default", "users", "token"),
    ),
    Difference(
        r"(connz|\w+\.CONNZ\.data)\.connections\[\]\.subscriptions_list_detail\[\]\.msgs",
        "what an import brings is counted where it arrives; for leaf nodes nothing is counted",
        ("accounts", "hub"),
    ),
    Difference(
        r"(subsz|\w+\.SUBSZ\.data)\.subscriptions_list\[\]\.msgs",
        "what an import brings is counted where it arrives",
        ("accounts",),
    ),
    Difference(
        r"(accountz|ACCOUNT\.INFO|SERVER\.ACCOUNTZ)\..*\.responses\._R_\.(tracking|-latency)",
        "whether the answer to a request is timed is not shown",
        ("accounts",),
    ),
    Difference(
        r"(connz|\w+\.CONNZ\.data)\.connections\[\]\.tls_(cipher_suite|peer_certs\.\(length\))",
        "OpenSSL has other preferences; only the client's own certificate is kept",
        ("tls",),
    ),
    Difference(
        r"(accountz|ACCOUNT\.INFO|SERVER\.ACCOUNTZ)\..*\.-mappings",
        "the mappings by which nats-server reaches the API of its domain",
        ("limits",),
    ),
    Difference(
        r"(accountz|ACCOUNT\.INFO|SERVER\.ACCOUNTZ)\..*\.decoded_jwt\.nats\.limits\.\(order\)",
        "JSON objects have no order",
        ("operator",),
    ),
    Difference(
        r"(connz|\w+\.CONNZ\.data)\.connections\[\]\.-jwt",
        "the JWT of a bearer is a password",
        ("operator",),
    ),
    Difference(
        r"(jsz|SERVER\.JSZ\.data|(varz|SERVER\.\w+\.(data|statsz))\.jetstream)"
        r"\.config\.\+sync_always",
        "everything is synced before it is acknowledged, unless configured otherwise",
        ("operator",),
    ),
    Difference(
        r"health of an account without streams\..*",
        "an account without stored streams is healthy",
        WITH_JETSTREAM,
    ),
    Difference(
        r"(.*\.)?(JSZ\.data|jsz|jetstream\.stats|account_details\[\])\.api\.total",
        "what mirrors and sources of the server itself ask is not counted",
        ("jetstream",),
    ),
    Difference(
        r"(jsz|SERVER\.JSZ\.data)\..*\.-direct_consumer_detail",
        "mirrors and sources of the same server need no consumer",
        ("jetstream",),
    ),
)


# ---------------------------------------------------------------- the walk


Which: TypeAlias = tuple[int, str, str]


def _which(subscription: dict[str, Any]) -> Which:
    return subscription["cid"], subscription["sid"], subscription["subject"]


class Walk:
    """Asks both servers of a setup and compares what they say."""

    def __init__(self, setup: Setup, servers: list[Watched]) -> None:
        self.setup = setup
        self.servers = servers
        self.found: dict[str, tuple[str, Any, Any]] = {}
        self._clients: list[set[Which]] = []

    def _note_clients(self) -> None:
        """Note which subscriptions are of clients: connection, id and subject."""
        self._clients = []
        for server in self.servers:
            connections = server.document("/connz?subs=detail")["connections"]
            subscriptions = [
                each for one in connections for each in one.get("subscriptions_list_detail", [])
            ]
            self._clients.append({_which(each) for each in subscriptions})

    def _compare(
        self, question: str, label: str, answers: list[Any], orders: dict[str, Any] = ORDERS
    ) -> None:
        comparison = Comparison(orders)
        tidied = [
            tidy(answer, clients) for answer, clients in zip(answers, self._clients, strict=True)
        ]
        comparison.compare(label, *tidied)
        for path, values in comparison.found.items():
            self.found.setdefault(path, (question, *values))

    # ---------------------------------------------------------------- pages

    def settle(self) -> None:
        """Wait until both have counted what has happened: nats-server does so behind the answer.

        If they never count the same, the pages tell.
        """
        for _ in range(SETTLING_ROUNDS):
            varz, jsz = ([one.document(page) for one in self.servers] for page in ("/varz", "/jsz"))
            same = [varz[0][key] == varz[1][key] for key in ("in_msgs", "out_msgs")]
            same += [jsz[0][key] == jsz[1][key] for key in ("messages", "bytes")]
            if all(same):
                return

    def pages(self) -> None:
        """All pages, before anybody asks who would be on them."""
        self._note_clients()
        for path in self._filled(PAGES):
            self._page(path)
        for name in self.servers[0].clients:
            self._page(f"/connz?cid={{{name}}}&auth=1&subs=1")
        if self.setup.name in ("default", "callout"):
            for path in ("/varz", "/healthz", "/connz?sort=x", "/nope", "/"):
                for method in METHODS:
                    self._page(path, method)
            for path in ("/", "/varz", "/nope"):
                self._page(path, Accept_Encoding="gzip")
                self._page(path, is_outside=True)

    def _page(
        self, path: str, method: str = "GET", *, is_outside: bool = False, **headers: str
    ) -> None:
        answers = [
            server.page(path, method, is_outside=is_outside, **headers) for server in self.servers
        ]
        label = self._label(path, path.partition("?")[0].removeprefix("/"))
        self._compare(f"{method} {path}", label, [_head(answer) for answer in answers])
        if method != "HEAD" and all(answer.body.startswith(b"{") for answer in answers):
            orders = UNSORTED if "sort=" in path or "limit=-1" in path else ORDERS
            documents = [_body(answer) for answer in answers]
            self._compare(f"{method} {path}", label, documents, orders)

    def _label(self, question: str, usual: str) -> str:
        """What a difference in the answer is filed under: a few questions have their own."""
        if "acc=$G&state=any" in question:
            return "ended in $G"
        asked = re.search(r'account"?[=:] ?"?(\w+)', question)
        if "healthz" in question.lower() and asked and asked[1] == self.setup.without_streams:
            return "health of an account without streams"
        return usual

    def _filled(self, templates: tuple[str, ...]) -> list[str]:
        """The templates with each account; without one they are asked once."""
        stream, consumer = self.setup.stream, self.setup.consumer
        found: dict[str, None] = {}
        for template in templates:
            text = template.replace("STREAM", stream).replace("CONSUMER", consumer)
            for account in self.setup.accounts if "ACC" in text else ("",):
                found[text.replace("ACC", account)] = None
        return list(found)

    # ---------------------------------------------------------------- requests

    def requests(self, admin: Enter) -> None:
        """What the system account asks."""
        askers = [Asker(admin(server)) for server in self.servers]
        self._note_clients()
        accounts = [f"ACCOUNT.{name}" for name in (*self.setup.accounts, "NOBODY", "PING")]
        for prefix in ("SERVER.$ID", "SERVER.PING", *accounts):
            for name in NAMES:
                self._request(askers, f"{prefix}.{name}")
        self._request(askers, "SERVER.PING")
        self._request(askers, "USER.INFO")
        for name, bodies in OPTIONS.items():
            for body in bodies:
                for text in self._filled((json.dumps(body),)):
                    self._request(askers, f"SERVER.$ID.{name}", text.encode())
                    account = self.setup.accounts[0]
                    self._request(askers, f"ACCOUNT.{account}.{name}", text.encode())
        for name in ("VARZ", "HEALTHZ"):
            for body in FILTERS:
                self._request(askers, f"SERVER.PING.{name}", body)
        for body in MALFORMED_BODIES:
            self._request(askers, "SERVER.$ID.RELOAD", body)
        for name in (*NAMES, "KICK", "LDM"):
            for body in WRONG_BODIES:
                self._request(askers, f"SERVER.$ID.{name}", body)
                self._request(askers, f"ACCOUNT.{self.setup.accounts[0]}.{name}", body)

    def members(self, member: Enter) -> None:
        """What members of accounts ask about themselves, and what is not for them."""
        askers = [Asker(member(server), is_member=True) for server in self.servers]
        self._note_clients()
        for subject in (*MEMBERS, *SYSTEM_ONLY):
            self._request(askers, subject)
        for subject in MEMBERS:
            for body in WRONG_BODIES:
                self._request(askers, subject, body)
            for options in ({"auth": True}, {"subscriptions": True}, {"acc": "NOBODY"}):
                self._request(askers, subject, options)

    def _request(self, askers: list[Asker], subject: str, body: object = None) -> None:
        place, _, name = subject.rpartition(".")
        label = self._label(f"{subject} {body!r}", f"{place.partition('.')[0]}.{name}")
        answers = [_counted(asker.ask(subject, body)) for asker in askers]
        self._compare(f"{subject} {body!r}", label, answers)


def _head(page: Page) -> dict[str, Any]:
    kept = {name: text for name, text in page.headers.items() if name not in TRANSPORT_HEADERS}
    text = page.text if kept.get("content-type", "").startswith("text/plain") else ""
    return {"status": page.status, "headers": dict(sorted(kept.items())), "text": text}


def _body(page: Page) -> Any:
    """The document, and whether it is indented."""
    document = json.loads(page.body)
    return {"indented": page.body.startswith(b"{\n"), **document}


def tidy(value: Any, clients: set[Which], name: str = "") -> Any:
    """A document without what nats-server has of its own in accounts: subscriptions, and shares of
    the system account.
    """
    if isinstance(value, list):
        if value and isinstance(value[0], dict):
            if name == "subscriptions_list":
                value = [item for item in value if _which(item) in clients]
            elif name in ("imports", "exports"):
                value = [item for item in value if not item["subject"].startswith(OWN_SUBJECTS)]
        return [tidy(item, clients) for item in value]
    if not isinstance(value, dict):
        return value
    tidied = {key: tidy(item, clients, key) for key, item in value.items()}
    return {key: item for key, item in tidied.items() if item != [] or value[key] == []}


OWN_SUBJECTS = ("$SYS.", "$JS.API.")
# What the one who asks adds to by asking.
COUNTERS = (
    "in_msgs", "out_msgs", "in_bytes", "out_bytes", "in_client_msgs", "in_client_bytes",
    "out_client_msgs", "out_client_bytes", "sent", "received", "sent_to_clients",
    "received_from_clients",
)  # fmt: skip
ASKERS = ("admin", "member")


def _counted(answer: Any) -> Any:
    """An answer in which figures that count its own request are only known to be figures."""
    if isinstance(answer, list):
        return [_counted(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    is_own = "cid" not in answer or answer.get("name") in ASKERS
    if answer.get("code") == 400:
        return {"code": 400, "description of 400": answer["description"]}
    found = {}
    for key, item in answer.items():
        if key == "msgs" and answer.get("subject") == "_INBOX.r.*":
            item = 0
        if is_own and key in COUNTERS:
            figures = item.values() if isinstance(item, dict) else [item]
            assert all(number()(each) for each in figures if not isinstance(each, dict))
            item = 0
        found[key] = _counted(item)
    return found


@pytest.fixture(scope="module", params=SETUPS)
def walk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Walk]:
    setup = SETUPS[request.param]
    folder = tmp_path_factory.mktemp("walk")
    servers: list[Watched] = []
    try:
        for kind in KINDS:
            (folder / kind).mkdir()
            servers.append(Watched(kind, folder / kind, setup.config(folder / kind)))
        for server in servers:
            server.ready()
            setup.arrange(server)
        yield Walk(setup, servers)
    finally:
        for server in servers:
            server.stop()
        stop_hubs()


def test_all_answers_are_the_same(walk: Walk) -> None:
    walk.settle()
    walk.pages()
    if walk.setup.admin is not None:
        walk.requests(walk.setup.admin)
    if walk.setup.member is not None:
        walk.members(walk.setup.member)
    unlike = dict(walk.found)
    unused = []
    for difference in DIFFERENCES:
        if walk.setup.name in difference.setups:
            listed = [path for path in walk.found if re.fullmatch(difference.pattern, path)]
            unused += [] if listed else [difference.pattern]
            for path in listed:
                unlike.pop(path, None)
    assert (unlike, unused) == ({}, [])
