"""/varz, /subsz, /accountz, /accstatz and /healthz as documents."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from monitor_fakes import SECOND_NS, START_NS, FakeAccount, FakeBroker, FakeSubscription

from certificates import Authority
from tradewind import _version
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.formats import compact_json
from tradewind.monitor.health import HealthProblem
from tradewind.monitor.monitor_documents import Health
from tradewind.monitor.page_options import (
    AccountStatzOptions,
    AccountzOptions,
    ConnzOptions,
    HealthzOptions,
    JszOptions,
    LeafzOptions,
    SubszOptions,
)
from tradewind.monitor.parameters import PageError
from tradewind.monitor.process_usage import UsageMeter
from tradewind.monitor.stepping import Stepped, at_once
from tradewind.monitor.varz import ListenAddresses
from tradewind.options import (
    AccountOptions,
    AuthorizationOptions,
    JetStreamOptions,
    Secret,
    ServerOptions,
    TlsOptions,
    UserOptions,
    WebsocketOptions,
)

PASSWORD = "correct-horse-battery"


def plain(document: Any) -> Any:
    return json.loads(compact_json(document))


def varz(options: ServerOptions, listening: ListenAddresses | None = None) -> dict[str, Any]:
    view = MonitorView(FakeBroker(options=options))
    view.listening = listening or ListenAddresses()
    return plain(view.varz())


def test_varz_names_the_protocol_version_and_our_own() -> None:
    page = varz(ServerOptions())
    assert page["version"].startswith("2.15.")
    assert page["tradewind_version"] == _version.__version__
    assert isinstance(page["go"], str)


def test_varz_and_metrics_count_the_faults_that_the_server_got_over() -> None:
    broker = FakeBroker()
    view = MonitorView(broker)
    assert plain(view.varz())["tradewind_internal_errors"] == 0
    broker.faults.report = lambda _: None
    broker.faults.contain("consumer", RuntimeError("broken"))
    broker.faults.contain("session", RuntimeError("broken"))
    assert plain(view.varz())["tradewind_internal_errors"] == 2
    assert "tradewind_internal_errors_total 2\n" in b"".join(at_once(view.metrics())).decode()


def test_varz_shows_the_bound_ports_and_the_configured_http_port() -> None:
    websocket = WebsocketOptions(host="127.0.0.1", port=-1)
    options = ServerOptions(port=-1, http_port=-1, http_host="127.0.0.1", websocket=websocket)
    page = varz(options, ListenAddresses("127.0.0.1", 41001, 41002))
    assert (page["host"], page["port"], page["http_port"]) == ("127.0.0.1", 41001, -1)
    assert page["websocket"]["port"] == 41002


GUARDED = {"A": AccountOptions("A", users=(UserOptions("u"),))}


@pytest.mark.parametrize(
    ("options", "required", "timeout"),
    [
        ({}, None, 2),
        ({"authorization": AuthorizationOptions(token=Secret(PASSWORD))}, True, 2),
        ({"authorization": AuthorizationOptions(user="u", timeout_ns=1_500_000_000)}, True, 1.5),
        ({"accounts": GUARDED}, True, 2),
        ({"accounts": GUARDED, "no_auth_user": "u"}, True, 2),
        ({"tls": TlsOptions(timeout_ns=3 * SECOND_NS)}, None, 4),
    ],
)
def test_varz_tells_whether_and_how_long_to_log_in(
    options: dict[str, Any], required: bool | None, timeout: float
) -> None:
    page = varz(ServerOptions(**options))
    assert page.get("auth_required") == required
    assert page["auth_timeout"] == timeout


def test_varz_tells_when_certificates_end(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).server()
    tls = TlsOptions(cert_file=str(certificate.cert_file), verify=True)
    websocket = WebsocketOptions(port=1, tls=tls, compression=True, allowed_origins=("http://a",))
    page = varz(ServerOptions(tls=tls, websocket=websocket))
    assert page["tls_required"] is True
    assert page["tls_verify"] is True
    assert page["tls_cert_not_after"].endswith("Z")
    assert page["websocket"]["tls_cert_not_after"] == page["tls_cert_not_after"]
    assert page["websocket"]["allowed_origins"] == ["http://a"]
    assert "tls_cert_not_after" not in varz(ServerOptions(tls=TlsOptions(cert_file="/missing")))


def test_varz_with_optional_tls_does_not_require_it() -> None:
    assert "tls_required" not in varz(ServerOptions(tls=TlsOptions(), allow_non_tls=True))


def test_varz_counts_what_the_broker_counts() -> None:
    broker = FakeBroker()
    broker.totals.in_msgs, broker.totals.out_bytes = 5, 77
    broker.totals.slow_consumers, broker.totals.stale_connections = 2, 3
    broker.totals.total_connections = 9
    broker.add_session(1)
    broker.accounts["A"].subscription_list = [FakeSubscription("a"), FakeSubscription("b")]
    page = plain(MonitorView(broker).varz())
    assert (page["in_msgs"], page["in_client_msgs"]) == (5, 5)
    assert (page["out_bytes"], page["out_client_bytes"]) == (77, 77)
    assert page["slow_consumer_stats"]["clients"] == page["slow_consumers"] == 2
    assert page["stale_connection_stats"]["clients"] == page["stale_connections"] == 3
    assert (page["connections"], page["total_connections"], page["subscriptions"]) == (1, 9, 2)
    assert page["uptime"] == "1m2s"


def test_subsz_adds_tables_up_and_weighs_their_rates() -> None:
    broker = FakeBroker()
    broker.accounts["A"].stats = {
        "num_cache": 3, "num_matches": 10, "cache_hit_rate": 0.5, "max_fanout": 4, "avg_fanout": 2,
    }  # fmt: skip
    broker.accounts["$G"].stats = {
        "num_cache": 1, "num_matches": 30, "cache_hit_rate": 0.9, "max_fanout": 7, "avg_fanout": 6,
    }  # fmt: skip
    page = plain(at_once(MonitorView(broker).subsz(SubszOptions())))
    assert (page["num_cache"], page["num_matches"], page["max_fanout"]) == (4, 40, 7)
    assert page["cache_hit_rate"] == pytest.approx(0.8)
    assert page["avg_fanout"] == 3
    assert page["total"] == 0
    assert "subscriptions_list" not in page


def subscriptions(account: str, count: int) -> list[FakeSubscription]:
    return [FakeSubscription(f"{account}.{n}", account=account, cid=n) for n in range(count)]


def test_subsz_pages_run_through_all_accounts() -> None:
    broker = FakeBroker()
    everything: list[str] = []
    for name, count in (("$G", 3), ("A", 4), ("$SYS", 2)):
        broker.accounts[name].subscription_list = subscriptions(name, count)
        everything += [f"{name}.{n}" for n in range(count)]
    view = MonitorView(broker)
    for offset in range(11):
        for limit in range(1, 11):
            options = SubszOptions(subscriptions=True, offset=offset, limit=limit)
            page = plain(at_once(view.subsz(options)))
            listed = [entry["subject"] for entry in page.get("subscriptions_list", [])]
            assert listed == everything[offset : offset + limit]
            assert page["total"] == 9


def test_subsz_asks_only_for_the_page() -> None:
    broker = FakeBroker()
    broker.accounts["$G"].subscription_list = subscriptions("$G", 500)
    broker.accounts["A"].subscription_list = subscriptions("A", 500)
    at_once(MonitorView(broker).subsz(SubszOptions(subscriptions=True, offset=600, limit=10)))
    assert broker.accounts["$G"].pages == []
    assert broker.accounts["A"].pages == [(100, 10)]


def test_subsz_tests_which_subscriptions_a_subject_reaches() -> None:
    broker = FakeBroker()
    broker.accounts["A"].subscription_list = [
        FakeSubscription("foo.*", queue="q", sid="2", cid=7, account="A"),
        FakeSubscription("bar", cid=7, account="A"),
    ]
    page = plain(at_once(MonitorView(broker).subsz(SubszOptions(subscriptions=True, test="foo.x"))))
    assert page["subscriptions_list"] == [
        {
            "account": "A",
            "account_tag": "A",
            "subject": "foo.*",
            "qgroup": "q",
            "sid": "2",
            "msgs": 0,
            "cid": 7,
        }
    ]
    assert page["total"] == 1


@pytest.mark.parametrize("subject", ["foo.*", "foo.>", "a..b", ".", "a b"])
def test_subsz_tests_only_subjects_that_can_be_published(subject: str) -> None:
    with pytest.raises(PageError) as caught:
        at_once(MonitorView(FakeBroker()).subsz(SubszOptions(test=subject)))
    expected = f"invalid test subject, must be valid publish subject: {subject}"
    assert str(caught.value) == expected


def test_subsz_of_an_unknown_account_is_all_zero() -> None:
    broker = FakeBroker()
    broker.accounts["A"].subscription_list = subscriptions("A", 3)
    page = plain(at_once(MonitorView(broker).subsz(SubszOptions(subscriptions=True, account="ZZ"))))
    assert page["num_subscriptions"] == page["total"] == 0


def test_accountz_lists_names_or_shows_one() -> None:
    broker = FakeBroker()
    broker.add_session(1)
    view = MonitorView(broker)
    names = plain(view.accountz(AccountzOptions()))
    assert names["accounts"] == ["$G", "A", "$SYS"]
    assert "account_detail" not in names
    detail = plain(view.accountz(AccountzOptions(account="A")))["account_detail"]
    assert (detail["account_name"], detail["client_connections"]) == ("A", 1)
    assert "is_system" not in detail
    system = plain(view.accountz(AccountzOptions(account="$SYS")))["account_detail"]
    assert system["is_system"] is True
    with pytest.raises(PageError, match=r"^Account ZZ does not exist$"):
        view.accountz(AccountzOptions(account="ZZ"))


def test_accstatz_shows_accounts_in_use_unless_asked_for_all() -> None:
    broker = FakeBroker()
    broker.add_session(1)
    broker.accounts["A"].in_msgs, broker.accounts["A"].out_bytes = 4, 40
    view = MonitorView(broker)
    used = plain(at_once(view.accstatz(AccountStatzOptions())))["account_statz"]
    assert [stat["acc"] for stat in used] == ["A"]
    assert (used[0]["received"]["msgs"], used[0]["sent"]["bytes"]) == (4, 40)
    everything = at_once(view.accstatz(AccountStatzOptions(include_unused=True))).account_statz
    assert [stat.acc for stat in everything] == ["$G", "A", "$SYS"]
    chosen = at_once(view.accstatz(AccountStatzOptions(include_unused=True, accounts=["$G", "ZZ"])))
    assert [stat.acc for stat in chosen.account_statz] == ["$G"]


def test_health_is_good_until_a_check_finds_a_problem() -> None:
    view = MonitorView(FakeBroker())
    assert view.healthz(HealthzOptions()) == (200, Health(status="ok"))
    problems: list[HealthProblem] = []
    view.health.add(lambda _options: problems)
    assert view.healthz(HealthzOptions())[0] == 200
    problems.append(HealthProblem("stream lost", 404, "STREAM_NOT_FOUND", "A", "S"))
    assert view.healthz(HealthzOptions()) == (
        404,
        Health(status="unavailable", error="stream lost"),
    )
    problems.append(HealthProblem("disk is read-only"))
    status, report = view.healthz(HealthzOptions())
    assert (status, report.status, report.error) == (503, "unavailable", "disk is read-only")
    detailed = plain(view.healthz(HealthzOptions(details=True))[1])
    assert detailed == {
        "status": "unavailable",
        "errors": [
            {"type": "STREAM_NOT_FOUND", "account": "A", "stream": "S", "error": "stream lost"},
            {"type": "UNKNOWN", "error": "disk is read-only"},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            HealthzOptions(stream="x"),
            '"account" must not be empty when checking stream health',
        ),
        (
            HealthzOptions(consumer="x", account="A"),
            '"stream" must not be empty when checking consumer health',
        ),
    ],
)
def test_health_refuses_half_a_question(options: HealthzOptions, text: str) -> None:
    status, report = MonitorView(FakeBroker()).healthz(options)
    assert (status, report.status, report.error) == (400, "error", text)


def test_jetstream_fills_its_pages_once_it_runs() -> None:
    class Pages:
        def varz(self) -> dict[str, Any]:
            return {"config": {"max_memory": 1}}

        def jsz(self, options: JszOptions) -> Stepped[dict[str, Any]]:
            yield
            return {"streams": 3, "asked": options.account}

    view = MonitorView(FakeBroker())
    assert plain(view.varz())["jetstream"] == {}
    assert plain(at_once(view.jsz(JszOptions())))["disabled"] is True
    view.jetstream = Pages()
    assert plain(view.varz())["jetstream"] == {"config": {"max_memory": 1}}
    assert at_once(view.jsz(JszOptions(account="A"))) == {"streams": 3, "asked": "A"}


def test_peers_are_named_by_subject_and_fingerprint(tmp_path: Path) -> None:
    client = Authority(tmp_path).client("admin", subject="CN=admin,OU=ops")
    broker = FakeBroker()
    broker.add_session(
        1, tls_version="1.3", tls_cipher="C", tls_peer_certs=(client.der, b"garbage")
    )
    view = MonitorView(broker)
    assert "tls_peer_certs" not in plain(at_once(view.connz(ConnzOptions())))["connections"][0]
    peers = plain(at_once(view.connz(ConnzOptions(auth=True))))["connections"][0]["tls_peer_certs"]
    assert [peer["subject"] for peer in peers] == ["CN=admin,OU=ops"]
    assert peers[0]["spki_sha256"] == client.pin
    assert peers[0]["cert_sha256"] == hashlib.sha256(client.der).hexdigest()


def test_no_document_shows_a_secret() -> None:
    secret = Secret(PASSWORD)
    user = UserOptions("alice", secret)
    rules = AuthorizationOptions("root", secret, secret, users=(user,))
    options = ServerOptions(
        authorization=rules,
        accounts={"A": AccountOptions("A", users=(user,))},
        websocket=WebsocketOptions(port=1, authorization=rules),
        jetstream=JetStreamOptions(enabled=True),
    )
    broker = FakeBroker(options=options)
    broker.add_session(1, user="alice")
    broker.add_closed(2, user="alice")
    view = MonitorView(broker)
    documents = [
        compact_json(view.varz()),
        compact_json(
            at_once(view.connz(ConnzOptions(auth=True, subscriptions_detail=True, state=2)))
        ),
        compact_json(at_once(view.subsz(SubszOptions(subscriptions=True)))),
        compact_json(view.accountz(AccountzOptions(account="A"))),
        compact_json(at_once(view.accstatz(AccountStatzOptions(include_unused=True)))),
        compact_json(at_once(view.jsz(JszOptions()))),
        b"".join(at_once(view.metrics())),
    ]
    assert not any(PASSWORD.encode() in document for document in documents)
    assert b"alice" in documents[1]


class TestUsage:
    @staticmethod
    def write(folder: Path, ticks: tuple[int, int], pages: int) -> None:
        fields = ["S"] + ["0"] * 10 + [str(t) for t in ticks] + ["0"] * 30
        (folder / "stat").write_text("42 (odd) name ( x) " + " ".join(fields))
        (folder / "statm").write_text(f"1000 {pages} 3 4 0 6 0")

    def test_processor_share_is_measured_between_readings(self, tmp_path: Path) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        clock = [0]
        self.write(tmp_path, (ticks, 0), 7)
        meter = UsageMeter(lambda: clock[0], tmp_path)
        self.write(tmp_path, (2 * ticks, ticks // 2), 9)
        clock[0] = 10 * SECOND_NS
        usage = meter.read()
        assert usage.cpu_percent == 15.0
        assert usage.memory_bytes == 9 * os.sysconf("SC_PAGE_SIZE")
        self.write(tmp_path, (100 * ticks, 0), 9)
        clock[0] += SECOND_NS // 2
        assert meter.read().cpu_percent == 15.0  # too soon for another measurement
        clock[0] += SECOND_NS
        assert meter.read().cpu_percent > 15.0

    def test_a_system_without_proc_has_zeros(self, tmp_path: Path) -> None:
        usage = UsageMeter(lambda: 0, tmp_path / "missing").read()
        assert (usage.memory_bytes, usage.cpu_percent) == (0, 0.0)

    def test_this_process_uses_memory(self) -> None:
        assert UsageMeter().read().memory_bytes > 1_000_000


def test_documents_follow_the_clock_they_are_given() -> None:
    broker = FakeBroker(clock_ns=START_NS + 1)
    view = MonitorView(broker)
    pages = [
        view.routez(),
        at_once(view.leafz(LeafzOptions())),
        view.gatewayz(),
        at_once(view.jsz(JszOptions())),
    ]
    assert {page.now for page in pages} == {"2026-11-15T19:15:44.583020415Z"}


def test_accounts_of_a_broker_without_system_account_are_still_shown() -> None:
    options = ServerOptions(system_account="")
    broker = FakeBroker(options=options, accounts={"$G": FakeAccount("$G")})
    assert "system_account" not in plain(MonitorView(broker).accountz(AccountzOptions()))
    assert "system_account" not in plain(MonitorView(broker).varz())
