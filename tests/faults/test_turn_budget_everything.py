"""Every request, page, signal and timer on a server that holds much: no turn exceeds its budget.

The budget is that of a real server, by processor time. Whatever is new (an endpoint, a page, a
request of the system account) is driven too, or fails here until the tables say how.
"""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import REPLY_SECONDS, RawClient, ServerProcess, wait_for
from tradewind.api.endpoints import ENDPOINT_BY_NAME, ENDPOINTS
from tradewind.monitor import pages
from tradewind.monitor.system_requests import ACCOUNT_ENDPOINTS, SERVER_ENDPOINTS

ACCOUNTS = 1500
STREAMS = 200
CONSUMERS = 400
SUBJECTS = 50_000
SUBSCRIPTIONS = 100_000
CONNECTIONS = 300
MONITOR = re.compile(r"Starting http monitor on (\S+):(\d+)")
CONFIG = """
http: "127.0.0.1:-1"
jetstream {{ store_dir: "{folder}/js" }}
system_account: SYS
ping_interval: "{seconds}s"
accounts {{
  SYS {{ users: [{{user: s, password: s}}] }}
  A {{ users: [{{user: a, password: a}}], jetstream: enabled }}
{more}
}}
"""
BIG = {"name": "BIG", "subjects": ["big.>"], "storage": "memory", "allow_direct": True}
FILE = {"name": "FILE", "subjects": ["file.>"], "storage": "file", "metadata": {}}
CHAIN = {"name": "CHAIN", "subjects": ["chain.>"], "metadata": {"tradewind.chain": "sha256"}}
PULL = {"durable_name": "PULL", "ack_policy": "explicit"}


def consumer(stream: str, **config: Any) -> dict[str, Any]:
    return {"stream_name": stream, "config": config}


Request = tuple[tuple[str, ...], Any]
# Endpoint -> its requests: the names in the subject, and the body. They come in this order.
REQUESTS: dict[str, list[Request]] = {
    "account_info": [((), None)],
    "stream_create": [(("BIG",), BIG), (("NEW",), {"name": "NEW", "subjects": ["new"]})],
    "stream_update": [(("BIG",), {**BIG, "description": "changed"})],
    "stream_names": [((), None), ((), {"offset": 100}), ((), {"subject": "big.7"})],
    "stream_list": [((), None), ((), {"offset": 100}), ((), {"subject": "big.>"})],
    "stream_info": [(("BIG",), None), (("BIG",), {"subjects_filter": ">"}), (("NONE",), None)],
    "stream_msg_get": [(("BIG",), {"seq": 7}), (("BIG",), {"last_by_subj": "big.*.x"})],
    "stream_msg_delete": [(("BIG",), {"seq": 7})],
    "stream_snapshot": [(("FILE",), {"deliver_subject": "snapshot"})],
    "stream_restore": [(("BACK",), {"config": {"name": "BACK", "subjects": ["b"]}, "state": {}})],
    "stream_peer_remove": [(("BIG",), {"peer": "x"})],
    "stream_peer_evacuate": [(("BIG",), {"peer": "x"})],
    "stream_cancel_move": [(("BIG",), None)],
    "stream_leader_stepdown": [(("BIG",), None)],
    "consumer_create_ephemeral": [(("BIG",), consumer("BIG", ack_policy="none"))],
    "consumer_create": [(("BIG", "PULL"), consumer("BIG", **PULL))],
    "consumer_create_filtered": [
        (("BIG", "ONE", "big.7.>"), consumer("BIG", name="ONE", filter_subject="big.7.>"))
    ],
    "consumer_create_durable": [(("BIG", "PULL"), consumer("BIG", **PULL))],
    "consumer_names": [(("BIG",), None), (("BIG",), {"offset": 100})],
    "consumer_list": [(("BIG",), None), (("BIG",), {"offset": 100})],
    "consumer_info": [(("BIG", "PULL"), None), (("BIG", "NONE"), None)],
    "consumer_pause": [(("BIG", "PULL"), {"pause_until": "2000-01-01T00:00:00Z"})],
    "consumer_unpin": [(("BIG", "PULL"), {"group": "g"})],
    "consumer_reset": [(("BIG", "PULL"), {"seq": 1})],
    "consumer_leader_stepdown": [(("BIG", "PULL"), None)],
    "consumer_next": [(("BIG", "PULL"), {"batch": 10_000, "no_wait": True})],
    "direct_get": [
        (("BIG",), {"multi_last": ["big.>"]}),
        (("BIG",), {"last_by_subj": "big.*.none"}),
        (("BIG",), {"next_by_subj": "big.*.none", "seq": 1, "batch": 10}),
    ],
    "direct_get_last": [(("BIG", "", "big.9.x"), None)],
    "transaction": [
        ((), {"publishes": [{"subject": f"file.{n}", "payload": ""} for n in range(500)]})
    ],
    "stream_chain_info": [(("CHAIN",), None)],
    "stream_chain_checkpoint": [(("CHAIN",), None)],
    "stream_chain_proof": [(("CHAIN",), {"seq": 5})],
    "stream_chain_entries": [(("CHAIN",), None)],
    "stream_truncate": [(("FILE",), {"newest": 1000, "dry_run": True}), (("FILE",), {"newest": 9})],
    "stream_undo": [(("FILE",), {})],
    "backup_cut": [((), {"deliver_subject": "snapshot"})],
    "backup_read": [(("FILE",), {"deliver_subject": "snapshot", "first_seq": 5})],
    "template_put": [
        (("T",), {"name": "T", "match": "t.*.>", "stream": "T-{{wildcard(1)}}", "config": {}})
    ],
    "template_list": [((), None)],
    "template_try": [((), {"subject": "t.a.b"})],
    "template_delete": [(("T",), None)],
    "consumer_delete": [(("BIG", "PULL"), None)],
    "stream_purge": [(("BIG",), {"filter": "big.*.y"}), (("BIG",), {"keep": 40_000})],
    "stream_delete": [(("BIG",), None), (("NEW",), None)],
    "account_purge": [(("", "", "B7"), None)],
    "account_streams": [(("", "", "MOVE.A.S"), None)],
    "meta": [(("", "", "LEADER.STEPDOWN"), None)],
    "server": [(("", "", "REMOVE"), None)],
    "preview_templates": [],
}
# Page -> its options.
PAGES: dict[str, list[str]] = {
    "/varz": [""],
    "/connz": [
        "",
        "?subs=1",
        "?subs=detail&auth=1",
        "?sort=subs&limit=10",
        "?state=any&sort=cid",
        "?acc=A&filter_subject=zz",
    ],
    "/subsz": ["", "?subs=1&limit=100000", "?subs=1&test=s.7"],
    "/accountz": ["", "?acc=A"],
    "/accstatz": ["", "?unused=1"],
    "/routez": [""],
    "/leafz": ["?subs=1"],
    "/gatewayz": [""],
    "/jsz": ["", "?accounts=1&streams=1&consumers=1&config=1", "?acc=A&streams=1"],
    "/healthz": ["", "?js-enabled-only=1"],
    "/metrics": [""],
    "/raftz": [""],
    "/ipqueuesz": [""],
}


class Crowd:
    """The server, and whoever makes it hold much."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "server.conf"
        self._folder = folder
        self.configure(120)
        arguments = ["-c", str(self.path), "-a", "127.0.0.1", "-p", "-1"]
        self.server = ServerProcess("tradewind", arguments, fresh=True)
        self.server.wait_ready()
        match = MONITOR.search(self.server.log)
        assert match, self.server.log
        self.url = f"http://{match[1]}:{match[2]}"
        self.client = self.connect()
        self.client.send("SUB r 1\r\n")
        self.others: list[RawClient] = []

    def configure(self, seconds: int, accounts: int = ACCOUNTS) -> None:
        more = "\n".join(
            f"  B{number} {{ users: [{{user: b{number}, password: b}}], jetstream: enabled }}"
            for number in range(accounts)
        )
        self.path.write_text(CONFIG.format(folder=self._folder, seconds=seconds, more=more))

    def connect(self, user: str = "a") -> RawClient:
        return RawClient(self.server.port).connect(user=user, **{"pass": user})

    def stop(self) -> None:
        for client in (self.client, *self.others):
            client.close()
        self.server.stop()

    def page(self, path: str) -> bytes:
        try:
            with urllib.request.urlopen(self.url + path, timeout=REPLY_SECONDS) as answer:
                body: bytes = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
        return body

    def ask(self, client: RawClient, subject: str, body: Any = None) -> None:
        """Send a request; its answers are passed over."""
        text = b"" if body is None else json.dumps(body).encode()
        client.send(f"PUB {subject} r {len(text)}\r\n".encode() + text + b"\r\n")

    def settle(self, client: RawClient) -> None:
        """Wait until all requests of the client have been answered."""
        self.ask(client, "$JS.API.STREAM.INFO.SETTLED")
        while b"stream_info_response" not in client.read_message()[2]:
            pass

    def pass_over(self, client: RawClient) -> None:
        client.send("PING\r\n")
        while client.read_line() != b"PONG":
            pass

    def over_budget(self) -> dict[str, Any]:
        """The kinds of turns that were too long, and how long."""
        kinds: dict[str, Any] = json.loads(self.page("/varz"))["tradewind_turns"]["kinds"]
        return kinds


def fill(crowd: Crowd) -> None:
    """Streams, consumers, subjects, subscriptions, connections."""
    client = crowd.client
    for config in (BIG, FILE, CHAIN):
        crowd.ask(client, f"$JS.API.STREAM.CREATE.{config['name']}", config)
    for number in range(STREAMS):
        config = {"name": f"S{number}", "subjects": [f"s{number}.>"], "storage": "memory"}
        crowd.ask(client, f"$JS.API.STREAM.CREATE.S{number}", config)
    for number in range(CONSUMERS):
        body = consumer("BIG", durable_name=f"C{number}", ack_policy="explicit")
        crowd.ask(client, f"$JS.API.CONSUMER.CREATE.BIG.C{number}", body)
    crowd.settle(client)
    for start in range(0, SUBJECTS, 1000):
        numbers = range(start, start + 1000)
        client.send("".join(f"PUB big.{number}.x 1\r\nx\r\n" for number in numbers))
        crowd.pass_over(client)
    for name in ("file", "chain"):
        client.send("".join(f"PUB {name}.{number} 1\r\nx\r\n" for number in range(2000)))
    subscriber = crowd.connect()
    subscriber.send("".join(f"SUB s.{n} {n}\r\n" for n in range(SUBSCRIPTIONS)))
    subscriber.ping()
    crowd.others = [subscriber, *(crowd.connect() for _ in range(CONNECTIONS))]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    crowd = Crowd(tmp_path)
    try:
        yield crowd
    finally:
        crowd.stop()


def every_request(crowd: Crowd) -> None:
    assert {one.name for one in ENDPOINTS} == set(REQUESTS)
    for name, requests in REQUESTS.items():
        for names, body in requests:
            crowd.ask(crowd.client, ENDPOINT_BY_NAME[name].subject_for(*names), body)
        crowd.settle(crowd.client)


def every_page(crowd: Crowd) -> None:
    known = {paths[0] for paths, _ in pages._COUNTED} | {path for path, _ in pages._UNCOUNTED}
    assert known == set(PAGES)
    for path, options in PAGES.items():
        for each in options:
            assert crowd.page(path + each), path


def every_system_request(crowd: Crowd) -> None:
    with crowd.connect("s") as client:
        client.send("SUB r 1\r\n")
        for name in SERVER_ENDPOINTS:
            full = {"subscriptions_detail": True, "subscriptions": True, "consumer": True}
            body = {**full, "accounts": True, "streams": True, "config": True, "auth": True}
            crowd.ask(client, f"$SYS.REQ.SERVER.PING.{name}", body)
            crowd.ask(client, f"$SYS.REQ.SERVER.PING.{name}")
            crowd.pass_over(client)
        for name in ACCOUNT_ENDPOINTS:
            crowd.ask(client, f"$SYS.REQ.ACCOUNT.A.{name}")
            crowd.ask(client, f"$SYS.REQ.ACCOUNT.PING.{name}")
            crowd.pass_over(client)
        for name in ("account_purge", "account_streams", "meta", "server"):
            for names, body in REQUESTS[name]:
                crowd.ask(client, ENDPOINT_BY_NAME[name].subject_for(*names), body)
        for subject, body in (
            ("$SYS.REQ.SERVER.PING", None),
            ("$SYS.REQ.ACCOUNT.NSUBS", {"acc": "A", "subject": "s.*"}),
            ("$SYS.REQ.ACCOUNT.A.CONNS", None),
        ):
            crowd.ask(client, subject, body)
        crowd.pass_over(client)
    crowd.settle(crowd.client)


def every_signal(crowd: Crowd) -> None:
    for seconds, accounts in ((60, ACCOUNTS), (90, ACCOUNTS + 100), (91, ACCOUNTS - 100)):
        crowd.configure(seconds, accounts)
        since = len(crowd.server.lines)
        crowd.server.signal(signal.SIGHUP)
        crowd.server.wait_for_log("Reloaded server configuration", since=since)
    crowd.path.write_text("no { configuration")
    crowd.server.signal(signal.SIGHUP)
    crowd.server.wait_for_log("Failed to reload server configuration")
    crowd.server.signal(signal.SIGUSR1)


def everybody_leaves(crowd: Crowd) -> None:
    subscriber, *others = crowd.others
    subscriber.send("".join(f"UNSUB {n}\r\n" for n in range(SUBSCRIPTIONS // 2)))
    subscriber.ping()
    for client in (subscriber, *others):
        client.close()
    wait_for(lambda: json.loads(crowd.page("/varz"))["connections"] == 1)


@pytest.mark.slow
@pytest.mark.skipif(
    "asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizers take several times as long"
)
def test_no_turn_of_a_full_server_exceeds_its_budget(crowd: Crowd) -> None:
    deeds: list[Callable[[Crowd], None]] = [
        fill,
        every_page,
        every_system_request,
        every_request,
        every_signal,
        everybody_leaves,
    ]
    over: dict[str, Any] = {}
    for deed in deeds:
        deed(crowd)
        new = {
            kind: turns for kind, turns in crowd.over_budget().items() if turns not in over.values()
        }
        over |= {f"{deed.__name__}: {kind}": turns for kind, turns in new.items()}
    assert not over, "\n".join(one for one in crowd.server.lines if "event loop was busy" in one)
