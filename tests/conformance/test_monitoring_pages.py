"""Monitoring pages other than /connz: fields, values that are known, errors, and no secrets."""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers_ops import INT, NUMBER, TEXT, TIME, Page, fetch, login, publish, replies, shared_server

from harness import ServerProcess, StartServer, wait_for

SECRET = "HUSH-PASSWORD"

server = shared_server('server_name: crow\nhttp: "127.0.0.1:-1"\n')
accounts = shared_server(f"""
http: "127.0.0.1:-1"
accounts {{
  A {{ users: [ {{user: anna, password: "{SECRET}"}} ] }}
  B {{ users: [ {{user: bert, password: "{SECRET}"}} ] }}
}}
""")

SUBLIST = {
    "num_subscriptions": INT,
    "num_cache": INT,
    "num_inserts": INT,
    "num_removes": INT,
    "num_matches": INT,
    "cache_hit_rate": NUMBER,
    "max_fanout": INT,
    "avg_fanout": NUMBER,
}
NO_TRAFFIC = {"msgs": 0, "bytes": 0}


def without_optional(page: dict[str, Any], *names: str) -> dict[str, Any]:
    """The page without fields that only some builds have."""
    return {key: value for key, value in page.items() if key not in names}


def varz(server: ServerProcess) -> dict[str, Any]:
    return fetch(server, "/varz").json()


# Headers and paths


@pytest.mark.parametrize(
    "path",
    ["/varz", "/connz", "/subsz", "/accountz", "/routez", "/leafz", "/gatewayz", "/healthz"],
)
def test_pages_are_json_for_any_origin(server: ServerProcess, path: str) -> None:
    page = fetch(server, path)
    assert page.headers["content-type"] == "application/json"
    assert page.headers["access-control-allow-origin"] == "*"
    assert page.json()


def test_callback_is_not_honoured(server: ServerProcess) -> None:
    page = fetch(server, "/connz?callback=run")
    assert page.headers["content-type"] == "application/json"
    assert page.json()["offset"] == 0


@pytest.mark.parametrize("path", ["/nope", "/varz/more", "/varz/", "/VARZ", "/connzz"])
def test_unknown_path_is_not_found(server: ServerProcess, path: str) -> None:
    page = fetch(server, path)
    assert page.status == 404
    assert page.headers["content-type"].startswith("text/plain")
    assert page.text == "404 page not found\n"


def test_index_links_the_pages(server: ServerProcess) -> None:
    page = fetch(server, "/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    for name in ("varz", "jsz", "connz", "accountz", "subsz", "routez", "leafz", "gatewayz"):
        assert re.search(rf"href=[\"']?\.?/?{name}\b", page.text), name


def test_head_has_no_body(server: ServerProcess) -> None:
    page = fetch(server, "/varz", "HEAD")
    assert (page.status, page.body) == (200, b"")


def test_requests_are_counted_by_path(server: ServerProcess) -> None:
    before = varz(server)["http_req_stats"]
    fetch(server, "/routez")
    fetch(server, "/routez?subs=1")
    fetch(server, "/nope")
    after = varz(server)["http_req_stats"]
    assert after["/routez"] == before.get("/routez", 0) + 2
    assert after["/varz"] == before["/varz"] + 1
    assert "/nope" not in after


def test_base_path_moves_the_pages(start: StartServer) -> None:
    server = start('http: "127.0.0.1:-1"\nhttp_base_path: "/nats"\n')
    assert fetch(server, "/nats/varz").json()["http_base_path"] == "/nats"
    assert fetch(server, "/nats").status == 200
    assert fetch(server, "/varz").status == 404


def test_there_is_no_monitor_without_a_port(start: StartServer) -> None:
    assert "http monitor" not in start().log


# /subsz


@pytest.mark.parametrize("path", ["/subsz", "/subscriptionsz"])
def test_subsz_fields(server: ServerProcess, path: str) -> None:
    page = fetch(server, path).json()
    expected = {"server_id": TEXT, "now": TIME, **SUBLIST, "total": 0, "offset": 0, "limit": 1024}
    assert page == expected


def own_subscriptions(page: Page, cid: int) -> list[dict[str, Any]]:
    entries = page.json()["subscriptions_list"]
    return sorted((entry for entry in entries if entry["cid"] == cid), key=lambda e: str(e["sid"]))


def test_subsz_lists_subscriptions(server: ServerProcess) -> None:
    with login(server) as client:
        cid = client.info["client_id"]
        replies(client, "SUB list.> 1\r\nSUB list.b crew 2\r\n" + publish("list.a", "x"))
        page = fetch(server, "/subsz?subs=1")
        assert own_subscriptions(page, cid) == [
            {
                "account": "$G",
                "account_tag": "$G",
                "subject": "list.>",
                "sid": "1",
                "msgs": 1,
                "cid": cid,
            },
            {
                "account": "$G",
                "account_tag": "$G",
                "subject": "list.b",
                "qgroup": "crew",
                "sid": "2",
                "msgs": 0,
                "cid": cid,
            },
        ]
        assert page.json()["total"] == len(page.json()["subscriptions_list"])


def test_subsz_tests_a_subject(server: ServerProcess) -> None:
    with login(server) as client:
        cid = client.info["client_id"]
        replies(client, "SUB probe.> 1\r\nSUB probe.a 2\r\nSUB probe.b 3\r\n")
        page = fetch(server, "/subsz?subs=1&test=probe.a")
        assert [entry["sid"] for entry in own_subscriptions(page, cid)] == ["1", "2"]
        assert page.json()["total"] == 2


def test_subsz_pages_through_the_list(server: ServerProcess) -> None:
    with login(server) as client:
        replies(client, "".join(f"SUB page.{number} {number}\r\n" for number in range(5)))
        page = fetch(server, "/subsz?subs=1&limit=2&offset=1").json()
        assert (page["offset"], page["limit"]) == (1, 2)
        assert len(page["subscriptions_list"]) == 2


def test_subsz_filters_by_account(accounts: ServerProcess) -> None:
    with login(accounts, "anna", SECRET) as anna, login(accounts, "bert", SECRET) as bert:
        replies(anna, "SUB in.a 1\r\n")
        replies(bert, "SUB in.b 1\r\n")
        page = fetch(accounts, "/subsz?subs=1&acc=A")
        assert {entry["account"] for entry in page.json()["subscriptions_list"]} == {"A"}
        assert len(own_subscriptions(page, anna.info["client_id"])) == 1


# Accounts


def test_accountz_lists_accounts(server: ServerProcess, accounts: ServerProcess) -> None:
    page = fetch(server, "/accountz").json()
    assert page == {
        "server_id": TEXT,
        "now": TIME,
        "system_account": "$SYS",
        "accounts": page["accounts"],
    }
    assert sorted(page["accounts"]) == ["$G", "$SYS"]
    assert sorted(fetch(accounts, "/accountz").json()["accounts"]) == ["$G", "$SYS", "A", "B"]


def test_accountz_shows_one_account(accounts: ServerProcess) -> None:
    def connections() -> object:
        page = fetch(accounts, "/accountz?acc=A").json()
        return page["account_detail"]["client_connections"]

    wait_for(lambda: connections() == 0, "earlier connections to be gone")
    with login(accounts, "anna", SECRET):
        page = fetch(accounts, "/accountz?acc=A").json()
        assert page.keys() == {"server_id", "now", "system_account", "account_detail"}
        detail = without_optional(page["account_detail"], "imports")
        assert detail == {
            "account_name": "A",
            "update_time": TIME,
            "expired": False,
            "complete": True,
            "jetstream_enabled": False,
            "leafnode_connections": 0,
            "client_connections": 1,
            "subscriptions": INT,
            "name_tag": "A",
            "sublist_stats": SUBLIST,
        }


def test_accountz_refuses_an_unknown_account(accounts: ServerProcess) -> None:
    page = fetch(accounts, "/accountz?acc=nope")
    assert (page.status, page.text) == (400, "Account nope does not exist")


def test_accstatz_counts_per_account(accounts: ServerProcess) -> None:
    with login(accounts, "bert", SECRET) as bert:
        replies(bert, "SUB stat 1\r\n" + publish("stat", "123"))

        def entries() -> dict[str, Any]:
            page = fetch(accounts, "/accstatz?unused=1").json()
            assert page.keys() == {"server_id", "now", "account_statz"}
            return {entry["acc"]: entry for entry in page["account_statz"]}

        traffic = {"gateways": NO_TRAFFIC, "routes": NO_TRAFFIC, "leafs": NO_TRAFFIC}
        wait_for(
            lambda: all(entries()["B"][way]["msgs"] for way in ("sent", "received")),
            "the message to be counted",
        )
        assert entries()["B"] == {
            "acc": "B",
            "name": "B",
            "conns": INT,
            "leafnodes": 0,
            "total_conns": INT,
            "num_subscriptions": INT,
            "sent": {"msgs": 1, "bytes": 3, **traffic},
            "received": {"msgs": 1, "bytes": 3, **traffic},
            "slow_consumers": 0,
        }
        assert {"A", "$G", "$SYS"} <= entries().keys()


# Pages about other servers, health


def test_routez_without_routes(server: ServerProcess) -> None:
    assert fetch(server, "/routez").json() == {
        "server_id": TEXT,
        "server_name": "crow",
        "now": TIME,
        "num_routes": 0,
        "routes": [],
    }


def test_leafz_without_leafnodes(server: ServerProcess) -> None:
    expected = {"server_id": TEXT, "now": TIME, "leafnodes": 0, "leafs": []}
    assert fetch(server, "/leafz").json() == expected


def test_gatewayz_without_gateways(server: ServerProcess) -> None:
    assert fetch(server, "/gatewayz").json() == {
        "server_id": TEXT,
        "now": TIME,
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


@pytest.mark.parametrize("query", ["", "?js-server-only=true", "?details=1"])
def test_healthz_of_a_healthy_server(server: ServerProcess, query: str) -> None:
    assert fetch(server, f"/healthz{query}").json() == {"status": "ok"}


# Errors and secrets


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/subsz?subs=x", "Error decoding boolean for 'subs'"),
        ("/subsz?limit=x", "Error decoding int for 'limit'"),
        ("/subsz?offset=x", "Error decoding int for 'offset'"),
        ("/subsz?test=a..b", "invalid test subject, must be valid publish subject: a..b"),
        ("/subsz?test=a.*", "invalid test subject, must be valid publish subject: a.*"),
        ("/accstatz?unused=x", "Error decoding boolean for 'unused'"),
        ("/healthz?js-enabled-only=x", "Error decoding boolean for 'js-enabled-only'"),
        ("/routez?subs=x", "Error decoding boolean for 'subs'"),
    ],
)
def test_bad_parameter_is_named(server: ServerProcess, path: str, text: str) -> None:
    page = fetch(server, path)
    assert page.status == 400
    assert page.headers["content-type"].startswith("text/plain")
    assert page.text.startswith(text)


def test_secrets_are_on_no_page_and_in_no_log(accounts: ServerProcess) -> None:
    with login(accounts, "anna", SECRET) as client:
        replies(client, "SUB a 1\r\n")
        for path in (
            "/",
            "/varz",
            "/connz?auth=1&subs=detail",
            "/connz?state=any&auth=1",
            "/subsz?subs=1",
            "/accountz",
            "/accountz?acc=A",
            "/accstatz?unused=1",
            "/healthz",
            "/routez",
            "/leafz",
            "/gatewayz",
        ):
            page = fetch(accounts, path)
            assert page.status == 200
            assert "HUSH" not in page.text, path
    assert "HUSH" not in accounts.log
