"""Requests of the system account and of every account about itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from monitor_fakes import FakeAccount, FakeBroker, FakeMessage, FakeSubscription

from tradewind.errors import ConfigError, TradewindError
from tradewind.monitor.system_answers import SystemServices
from tradewind.options import ServerOptions
from tradewind.route.permission_rules import PermissionRules, ResponseRule


class Services:
    """A broker with its services, and a client that asks."""

    def __init__(self, **options: Any) -> None:
        settings = {"host": "127.0.0.1", "server_tags": ("a:b", "c"), **options}
        self.broker = FakeBroker(options=ServerOptions(**settings))
        self.kicked: list[int] = []
        self.ducked: list[int] = []
        self.reloads: list[TradewindError | None] = []
        self.services = SystemServices(self.broker, self.reload, self.kick, self.duck)
        self.services.start()
        self.id = self.broker.server_id

    def reload(self, done: Callable[[TradewindError | None], None]) -> None:
        if self.reloads and self.reloads[-1]:
            done(self.reloads[-1])
            return
        self.reloads.append(None)
        done(None)

    def kick(self, cid: int) -> bool:
        self.kicked.append(cid)
        return cid in self.broker.sessions

    def duck(self, cid: int) -> bool:
        self.ducked.append(cid)
        return cid in self.broker.sessions

    def raw(
        self, subject: str, payload: bytes = b"", account: str = "$SYS", **message: Any
    ) -> list[tuple[bytes, bytes]]:
        """Every answer as (header, body)."""
        place: FakeAccount = self.broker.accounts[account]
        place.published.clear()
        place.request(FakeMessage(subject, payload=payload, **message))
        assert all(reply == "_INBOX.1" for reply, _, _ in place.published)
        return [(header, body) for _, body, header in place.published]

    def ask(self, subject: str, body: Any = None, account: str = "$SYS", **message: Any) -> Any:
        """The only answer, decoded."""
        payload = b"" if body is None else json.dumps(body).encode()
        ((_, answer),) = self.raw(subject, payload, account, **message)
        return json.loads(answer)


@pytest.fixture
def world() -> Services:
    return Services()


SERVER_KEYS = {
    *("name", "host", "id", "ver", "tags", "feature_flags", "jetstream", "flags", "seq", "time")
}


@pytest.mark.parametrize(
    "name",
    ["VARZ", "CONNZ", "SUBSZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ"],
)
def test_pages_are_answered_by_id_and_by_ping(world: Services, name: str) -> None:
    for target in (world.id, "PING"):
        answer = world.ask(f"$SYS.REQ.SERVER.{target}.{name}")
        assert list(answer) == ["server", "data"]
        assert set(answer["server"]) == SERVER_KEYS
        assert answer["data"]


def test_idz_has_no_envelope_and_ignores_filters(world: Services) -> None:
    expected = {"name": "s1", "host": "127.0.0.1", "id": world.id}
    assert world.ask("$SYS.REQ.SERVER.PING.IDZ", {"server_name": "zz"}) == expected
    assert world.ask(f"$SYS.REQ.SERVER.{world.id}.IDZ") == expected


def test_ping_is_answered_with_statistics(world: Services) -> None:
    world.broker.totals.out_msgs = 3
    world.broker.add_session(1)
    for subject in ("$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.STATSZ"):
        answer = world.ask(subject)
        assert list(answer) == ["server", "statsz"]
        assert answer["statsz"]["sent"] == {"msgs": 3, "bytes": 0}
        assert answer["statsz"]["active_accounts"] == 1
        assert "slow_consumer_stats" not in answer["statsz"]


def test_statistics_tell_of_slow_and_stale_clients_once_there_are_any(world: Services) -> None:
    world.broker.totals.slow_consumers = 2
    world.broker.totals.stale_connections = 1
    stats = world.ask("$SYS.REQ.SERVER.PING")["statsz"]
    assert stats["slow_consumer_stats"]["clients"] == 2
    assert (stats["stale_connections"], stats["stale_connection_stats"]["clients"]) == (1, 1)


def test_every_answer_has_the_next_sequence_number(world: Services) -> None:
    numbers = [world.ask("$SYS.REQ.SERVER.PING")["server"]["seq"] for _ in range(3)]
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize(
    ("body", "answered"),
    [
        ({}, True),
        ({"server_name": "s"}, True),
        ({"server_name": "S"}, False),
        ({"server_name": "s", "exact_match": True}, False),
        ({"server_name": "s1", "exact_match": True}, True),
        ({"host": "127.0"}, True),
        ({"host": "10."}, False),
        ({"cluster": "x"}, False),
        ({"tags": ["C"]}, True),
        ({"tags": ["c", "a:b"]}, True),
        ({"tags": ["c", "zz"]}, False),
        ({"domain": "x"}, False),
        ({"unknown": [1]}, True),
    ],
)
def test_filters_silence_a_server_that_is_not_meant(
    world: Services, body: dict[str, Any], answered: bool
) -> None:
    payload = json.dumps(body).encode()
    for name in ("ROUTEZ", "STATSZ", "CONNZ"):
        assert len(world.raw(f"$SYS.REQ.SERVER.PING.{name}", payload)) == answered


@pytest.mark.parametrize("payload", [b"{bad", b"[]", b'{"limit":"x"}', b"{} x", b'{"tags":1}'])
def test_a_body_that_cannot_be_read_is_a_400_without_data(world: Services, payload: bytes) -> None:
    ((_, body),) = world.raw("$SYS.REQ.SERVER.PING.CONNZ", payload)
    answer = json.loads(body)
    assert list(answer) == ["server", "error"]
    assert answer["error"]["code"] == 400
    assert answer["error"]["description"]


def test_statsz_refuses_a_body_that_cannot_be_read(world: Services) -> None:
    ((_, body),) = world.raw("$SYS.REQ.SERVER.PING.STATSZ", b"{bad")
    assert json.loads(body)["error"]["code"] == 400


@pytest.mark.parametrize("payload", [b" ", b"  \r\n", b"{}x"])
def test_a_body_that_is_not_json_is_refused(world: Services, payload: bytes) -> None:
    ((_, body),) = world.raw("$SYS.REQ.SERVER.PING.CONNZ", payload)
    assert json.loads(body)["error"]["code"] == 400


@pytest.mark.parametrize("payload", [b"", b"null", b" null\r\n", b"{}"])
def test_an_empty_body_asks_for_the_defaults(world: Services, payload: bytes) -> None:
    ((_, body),) = world.raw("$SYS.REQ.SERVER.PING.CONNZ", payload)
    assert json.loads(body)["data"]["limit"] == 1024


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("CONNZ", {"sort": "zzz"}, "invalid sorting option: zzz"),
        ("CONNZ", {"filter_subject": "a"}, "filter by subject only valid with account filtering"),
        ("ACCOUNTZ", {"account": "ZZ"}, "Account ZZ does not exist"),
        ("SUBSZ", {"test": "x.*"}, "invalid test subject, must be valid publish subject: x.*"),
    ],
)
def test_a_page_that_cannot_be_built_is_a_500_with_null_data(
    world: Services, name: str, body: dict[str, Any], text: str
) -> None:
    answer = world.ask(f"$SYS.REQ.SERVER.PING.{name}", body)
    assert answer["data"] is None
    assert answer["error"] == {"code": 500, "description": text}


def test_health_carries_its_status_in_the_body(world: Services) -> None:
    answer = world.ask("$SYS.REQ.SERVER.PING.HEALTHZ")
    assert answer["data"] == {"status": "ok", "status_code": 200}
    wrong = world.ask("$SYS.REQ.SERVER.PING.HEALTHZ", {"stream": "x", "details": True})
    text = '"account" must not be empty when checking stream health'
    assert wrong["data"] == {
        "status": "error",
        "status_code": 400,
        "errors": [{"type": "BAD_REQUEST", "error": text}],
    }


def test_options_reach_the_page(world: Services) -> None:
    for cid in (1, 2, 3):
        world.broker.add_session(cid, user="alice", in_msgs=cid)
    body = {"sort": "msgs_from", "limit": 1, "auth": True}
    page = world.ask("$SYS.REQ.SERVER.PING.CONNZ", body)["data"]
    assert [c["cid"] for c in page["connections"]] == [3]
    assert page["connections"][0]["authorized_user"] == "alice"


def test_requests_without_a_reply_subject_do_nothing(world: Services) -> None:
    for subject in list(world.broker.accounts["$SYS"].handlers):
        if subject.rsplit(".", 1)[1] in ("RELOAD", "KICK", "LDM"):
            continue
        literal = subject.replace("*", "A")
        assert world.raw(literal, reply="") == []


# ---------------------------------------------------------------- about accounts


def test_the_account_in_the_subject_wins_over_the_body(world: Services) -> None:
    world.broker.add_session(1, "A")
    world.broker.add_session(2, "$SYS")
    page = world.ask("$SYS.REQ.ACCOUNT.A.CONNZ", {"acc": "$SYS"})["data"]
    assert [c["cid"] for c in page["connections"]] == [1]
    page = world.ask("$SYS.REQ.ACCOUNT.A.SUBSZ", {"account": "$SYS"})["data"]
    assert page["num_subscriptions"] == 0


def test_unknown_accounts_are_answered_as_the_official_server_does(world: Services) -> None:
    assert world.ask("$SYS.REQ.ACCOUNT.ZZ.CONNZ")["data"]["connections"] is None
    assert world.ask("$SYS.REQ.ACCOUNT.ZZ.SUBSZ")["data"]["num_subscriptions"] == 0
    error = {"code": 500, "description": "Account ZZ does not exist"}
    assert world.ask("$SYS.REQ.ACCOUNT.ZZ.INFO")["error"] == error
    assert world.raw("$SYS.REQ.ACCOUNT.ZZ.STATZ") == []
    assert world.raw("$SYS.REQ.ACCOUNT.ZZ.CONNS") == []
    # From the system account this is a question about an account named PING.
    assert world.ask("$SYS.REQ.ACCOUNT.PING.CONNZ")["data"]["connections"] is None


def test_statistics_of_one_account_or_of_all_in_use(world: Services) -> None:
    world.broker.add_session(1, "A")
    world.broker.add_session(2, "$SYS")

    def names(subject: str, body: Any = None) -> list[str]:
        return [stat["acc"] for stat in world.ask(subject, body)["data"]["account_statz"]]

    assert names("$SYS.REQ.ACCOUNT.A.STATZ", {"accounts": ["$SYS"]}) == ["A"]
    assert world.raw("$SYS.REQ.ACCOUNT.$G.STATZ") == []
    assert names("$SYS.REQ.ACCOUNT.PING.STATZ") == ["A", "$SYS"]
    assert names("$SYS.REQ.ACCOUNT.PING.STATZ", {"accounts": ["A", "$G"]}) == ["A"]
    body = {"accounts": ["A", "$G"], "include_unused": True}
    assert names("$SYS.REQ.ACCOUNT.PING.STATZ", body) == ["$G", "A"]


def test_other_questions_about_an_account(world: Services) -> None:
    world.broker.add_session(1, "A")
    assert world.ask("$SYS.REQ.ACCOUNT.A.INFO")["data"]["account_name"] == "A"
    assert world.ask("$SYS.REQ.ACCOUNT.A.LEAFZ")["data"]["leafs"] == []
    disabled = {"code": 500, "description": "jetstream not enabled"}
    assert world.ask("$SYS.REQ.ACCOUNT.A.JSZ")["error"] == disabled
    connections = world.ask("$SYS.REQ.ACCOUNT.A.CONNS")
    assert connections["type"] == "io.nats.server.advisory.v1.account_connections"
    assert (connections["acc"], connections["conns"]) == ("A", 1)


@pytest.mark.parametrize("subject", ["$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"])
def test_every_account_sees_its_own_connections_only(world: Services, subject: str) -> None:
    world.broker.add_session(1, "A")
    world.broker.add_session(2, "$SYS")
    page = world.ask(subject, {"acc": "$SYS"}, account="A")["data"]
    assert [c["cid"] for c in page["connections"]] == [1]


def test_every_account_sees_its_own_statistics_only(world: Services) -> None:
    world.broker.add_session(1, "A")
    world.broker.add_session(2, "$SYS")
    body = {"accounts": ["$SYS"]}
    page = world.ask("$SYS.REQ.ACCOUNT.PING.STATZ", body, account="A")["data"]
    assert [stat["acc"] for stat in page["account_statz"]] == ["A"]


def test_other_accounts_are_served_nothing_else(world: Services) -> None:
    assert set(world.broker.accounts["A"].handlers) == {
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$SYS.REQ.ACCOUNT.PING.STATZ",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.USER.INFO",
    }


def test_user_info_tells_a_client_who_it_is(world: Services) -> None:
    session = world.broker.add_session(1, "A", user="alice")
    answer = world.ask("$SYS.REQ.USER.INFO", account="A", session=session)
    assert answer["data"] == {"user": "alice", "account": "A", "account_name": "A"}
    session.permissions = PermissionRules(
        publish_allow=("foo.>", "bar"),
        subscribe_deny=("bar q",),
        responses=ResponseRule(),
    )
    answer = world.ask("$SYS.REQ.USER.INFO", account="A", session=session)
    assert answer["data"]["permissions"] == {
        "publish": {"allow": ["foo.>", "bar"]},
        "subscribe": {"deny": ["bar q"]},
        "responses": {"max": 1, "ttl": 120_000_000_000},
    }
    assert world.raw("$SYS.REQ.USER.INFO", account="A", session=None) == []


# ---------------------------------------------------------------- encodings


def header(encoding: str) -> bytes:
    return f"NATS/1.0\r\nX: y\r\nAccept-Encoding: {encoding}\r\n\r\n".encode()


def test_answers_are_compressed_on_request(world: Services) -> None:
    ((head, body),) = world.raw("$SYS.REQ.SERVER.PING.VARZ", header=header("gzip"))
    assert head == b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n"
    assert json.loads(gzip.decompress(body))["data"]["server_name"] == "s1"


@pytest.mark.parametrize("encoding", ["snappy", "zz"])
def test_encodings_that_are_not_spoken_get_plain_json(world: Services, encoding: str) -> None:
    ((head, body),) = world.raw("$SYS.REQ.SERVER.PING.VARZ", header=header(encoding))
    assert head == b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n"
    assert json.loads(body)["data"]["server_name"] == "s1"


def test_without_a_request_for_it_there_is_no_header(world: Services) -> None:
    ((head, _),) = world.raw("$SYS.REQ.SERVER.PING.VARZ", header=b"NATS/1.0\r\nX: y\r\n\r\n")
    assert head == b""


# ---------------------------------------------------------------- counts


def test_subscribers_of_a_subject_are_counted(world: Services) -> None:
    world.broker.accounts["A"].subscription_list = [
        FakeSubscription("foo.*"),
        FakeSubscription("foo.a", queue="q"),
        FakeSubscription("bar"),
    ]
    system = world.broker.accounts["$SYS"]
    system.subscription_list = world.broker.accounts["A"].subscription_list[:2]

    def count(payload: bytes) -> int:
        ((_, body),) = world.raw("$SYS.DEBUG.SUBSCRIBERS", payload)
        return int(body)

    assert [count(b"foo.a"), count(b"foo.a q"), count(b"foo.a z")] == [2, 1, 0]
    assert [count(b"foo.>"), count(b""), count(b"\xff")] == [2, 0, 0]
    assert world.ask("$SYS.REQ.ACCOUNT.NSUBS", {"acc": "A", "subject": ">"}) == 3
    assert world.raw("$SYS.REQ.ACCOUNT.NSUBS", b'{"acc":"ZZ","subject":"a"}') == []
    assert world.raw("$SYS.REQ.ACCOUNT.NSUBS", b"{bad") == []


# ---------------------------------------------------------------- requests that do something


def test_kick_and_lame_duck_name_a_client(world: Services) -> None:
    world.broker.add_session(5)
    for name in ("KICK", "LDM"):
        answer = world.ask(f"$SYS.REQ.SERVER.{world.id}.{name}", {"cid": 5})
        assert list(answer) == ["server"]
    assert (world.kicked, world.ducked) == ([5], [5])


@pytest.mark.parametrize(
    ("name", "text"),
    [("KICK", "no such client or leafnode id"), ("LDM", "no such client id")],
)
def test_kick_of_nobody_is_an_error_and_nonsense_is_ignored(
    world: Services, name: str, text: str
) -> None:
    subject = f"$SYS.REQ.SERVER.{world.id}.{name}"
    answer = world.ask(subject, {"cid": 99})
    assert answer["error"] == {"code": 500, "description": text}
    assert "data" not in answer
    for payload in (b"", b"{bad", b'{"cid":"5"}'):
        assert world.raw(subject, payload) == []


@pytest.mark.parametrize("name", ["RELOAD", "KICK", "LDM"])
def test_filters_also_choose_who_acts(world: Services, name: str) -> None:
    world.broker.add_session(5)
    subject = f"$SYS.REQ.SERVER.{world.id}.{name}"
    assert world.raw(subject, b'{"cid":5,"server_name":"other"}') == []
    assert world.ask(subject, {"cid": 5, "tags": 1})["error"]["code"] == 400
    assert world.reloads == world.kicked == world.ducked == []
    assert "error" not in world.ask(subject, {"cid": 5, "server_name": "s1"})
    assert len([*world.reloads, *world.kicked, *world.ducked]) == 1


def test_reload_answers_after_it_is_done(world: Services) -> None:
    subject = f"$SYS.REQ.SERVER.{world.id}.RELOAD"
    assert list(world.ask(subject)) == ["server"]
    assert world.reloads == [None]
    world.reloads.append(ConfigError("unknown field", "x.conf", 3))
    error = {"code": 500, "description": "x.conf:3: unknown field"}
    assert world.ask(subject)["error"] == error


# ---------------------------------------------------------------- life


def test_new_accounts_are_served_and_old_ones_left(world: Services) -> None:
    old = world.broker.accounts.pop("A")
    world.broker.accounts["NEW"] = FakeAccount("NEW")
    before = dict(world.broker.accounts["$SYS"].handlers)
    world.services.start()
    assert old.handlers == {}
    assert len(world.broker.accounts["NEW"].handlers) == 4
    assert world.broker.accounts["$SYS"].handlers == before


def test_an_account_that_was_replaced_is_served_again(world: Services) -> None:
    old = world.broker.accounts["A"]
    world.broker.accounts["A"] = FakeAccount("A")
    world.services.start()
    assert (len(old.handlers), len(world.broker.accounts["A"].handlers)) == (0, 4)


def test_another_system_account_takes_over_its_services(world: Services) -> None:
    world.broker.options = ServerOptions(system_account="A")
    world.services.start()
    assert len(world.broker.accounts["$SYS"].handlers) == 4
    assert "$SYS.REQ.SERVER.PING" in world.broker.accounts["A"].handlers


def test_without_a_system_account_nothing_is_served() -> None:
    world = Services(system_account="")
    assert not any(account.handlers for account in world.broker.accounts.values())


def test_stopping_withdraws_every_service(world: Services) -> None:
    world.services.stop()
    assert not any(account.handlers for account in world.broker.accounts.values())
    world.services.start()
    assert world.ask("$SYS.REQ.SERVER.PING.IDZ")
