"""All requests of the system account on both servers at once: who answers, and with which fields.

Tools find out what a server can do by asking it; one that nobody answers is taken for a lack of
permission. So every name is asked below every prefix. Where the answers differ on purpose,
`DIFFERENCES` says so, as docs/COMPATIBILITY.md does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_monitoring import Asker

from harness import RawClient, ServerProcess

CONFIG = """
server_name: crow
listen: "127.0.0.1:-1"
JETSTREAM
accounts {
  A { ENABLED users: [ {user: anna, password: HUSH} ] }
  B { ENABLED users: [ {user: bert, password: HUSH} ] }
  C { users: [ {user: carl, password: HUSH} ] }
  $SYS { users: [ {user: admin, password: HUSH} ] }
}
"""
NAMES = (
    "VARZ", "CONNZ", "SUBSZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "STATSZ",
    "IDZ", "EXPVARZ", "IPQUEUESZ", "RAFTZ", "PROFILEZ", "RELOAD", "KICK", "LDM", "INFO", "STATZ",
    "CONNS", "NSUBS", "STACKSZ", "UNKNOWN",
)  # fmt: skip
PREFIXES = (
    "SERVER.$ID", "SERVER.PING", "SERVER", "ACCOUNT.A", "ACCOUNT.B", "ACCOUNT.C", "ACCOUNT.$SYS",
    "ACCOUNT.PING", "ACCOUNT.NOBODY", "ACCOUNT", "USER",
)  # fmt: skip
JSZ_OPTIONS: tuple[dict[str, Any], ...] = (
    {"accounts": True},
    {"streams": True},
    {"consumer": True},
    {"streams": True, "consumer": True, "config": True},
    {"raft": True},
    {"raft": True, "streams": True, "consumer": True},
    {"account": "A", "streams": True},
    {"account": "C"},
    {"account": "NOBODY"},
    {"accounts": True, "offset": 1},
    {"accounts": True, "limit": 1},
    {"leader_only": True},
    {"stream_leader_only": True},
)
# Paths that only one of the two has: those of nats-server begin with "-", ours with "+".
DIFFERENCES = {
    "-.data.git_commit",
    "+.data.tradewind_version",
    "+.data.tradewind_internal_errors",
    # Before an acknowledgement everything is synced, unless the configuration says otherwise.
    "+.data.config.sync_always",
    "+.data.jetstream.config.sync_always",
    "+.statsz.jetstream.config.sync_always",
}
# What is below these is named after things that our server does not have: imports and exports by
# which accounts reach the system account, the memory and the queues of Go. The last one is ours:
# how long turns of the event loop are.
OTHER_CONTENT = (
    "-.data.imports",
    "-.data.exports",
    "-.data.memstats.",
    "-.data.System ",
    "-.data.SendQ",
    "-.data.subscriptions_list",
    "+.data.tradewind_turns",
)


def asker(server: ServerProcess) -> Asker:
    """A client of the system account."""
    login = {"user": "admin", "pass": "HUSH"}
    return Asker(RawClient(server.port).connect(no_responders=True, **login))


def fill(server: ServerProcess) -> RawClient:
    """An account with a subscription, streams and a consumer; the connection stays."""
    login = {"user": "anna", "pass": "HUSH", "name": "n", "lang": "l", "version": "1"}
    client = RawClient(server.port).connect(**login)
    client.send("SUB inbox 1\r\nSUB work q 2\r\n")
    consumer = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
    for subject, body in (
        ("STREAM.CREATE.S", {"name": "S", "subjects": ["S"]}),
        ("STREAM.CREATE.T", {"name": "T", "subjects": ["T"]}),
        ("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": consumer}),
        ("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": consumer}),
    ):
        data = json.dumps(body)
        client.send(f"PUB $JS.API.{subject} inbox {len(data)}\r\n{data}\r\n")
        client.read_message()
    for stream in ("S", "T"):
        client.send(f"PUB {stream} inbox 5\r\nhello\r\n")
        client.read_message()
    return client


@pytest.fixture(scope="module", params=["jetstream", "plain"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Asker]]:
    """A connection to each server."""
    servers, clients = [], []
    try:
        for kind in ("official", "tradewind"):
            folder: Path = tmp_path_factory.mktemp(kind)
            config = CONFIG.replace("JETSTREAM", "").replace("ENABLED", "")
            if request.param == "jetstream":
                block = f'jetstream {{ store_dir: "{folder}" }}'
                config = CONFIG.replace("JETSTREAM", block).replace(
                    "ENABLED", "jetstream: enabled,"
                )
            path = folder / "server.conf"
            path.write_text(config)
            server = ServerProcess(kind, ["-c", str(path)])
            servers.append(server)
            server.wait_ready()
            if request.param == "jetstream":
                clients.append(fill(server))
        askers = [asker(server) for server in servers]
        clients += [each.raw for each in askers]
        yield askers
    finally:
        for client in clients:
            client.close()
        for server in servers:
            server.stop()


def paths(value: Any, path: str = "") -> set[str]:
    """The names of all fields, those of lists from all their items."""
    if isinstance(value, list):
        return {name for item in value for name in paths(item, f"{path}[]")}
    if not isinstance(value, dict):
        return set()
    return {
        name
        for key, item in value.items()
        for name in (f"{path}.{key}", *paths(item, f"{path}.{key}"))
    }


def unlike(official: Any, ours: Any) -> list[str]:
    """How two answers differ in their fields, or in what they refuse."""
    if isinstance(official, str) or isinstance(ours, str):
        return [] if official == ours else [f"{str(official)[:100]} / {str(ours)[:100]}"]
    theirs, mine = paths(official), paths(ours)
    found = [f"-{path}" for path in theirs - mine] + [f"+{path}" for path in mine - theirs]
    found = [path for path in found if path not in DIFFERENCES]
    found = [path for path in found if not path.startswith(OTHER_CONTENT)]
    if official.get("error") != ours.get("error"):
        found.append(f"{official.get('error')} / {ours.get('error')}")
    flags = [answer.get("server", {}).get("flags") for answer in (official, ours)]
    return sorted(found) + ([] if flags[0] == flags[1] else [f"flags {flags}"])


@pytest.mark.parametrize("prefix", PREFIXES)
def test_same_requests_are_answered_with_the_same_fields(both: list[Asker], prefix: str) -> None:
    found = {}
    for name in NAMES:
        body = {"cid": 99999} if name in ("KICK", "LDM") else None
        answers = [asker.ask(f"{prefix}.{name}", body) for asker in both]
        if difference := unlike(*answers):
            found[name] = difference
    assert not found


@pytest.mark.parametrize("prefix", ["SERVER.$ID", "ACCOUNT.A", "ACCOUNT.B", "ACCOUNT.$SYS"])
def test_options_of_jsz_have_the_same_effect(both: list[Asker], prefix: str) -> None:
    found = {}
    for options in JSZ_OPTIONS:
        official, ours = (asker.ask(f"{prefix}.JSZ", options) for asker in both)
        difference = unlike(official, ours)
        shown = accounts_in(official), accounts_in(ours)
        if difference or shown[0] != shown[1]:
            found[str(options)] = (difference, shown)
    assert not found


def accounts_in(answer: Any) -> set[str]:
    """The accounts that an answer to JSZ has details of."""
    data = answer.get("data") if isinstance(answer, dict) else None
    return {account["name"] for account in (data or {}).get("account_details") or []}


def test_jsz_of_an_account_has_the_figures_of_that_account(both: list[Asker]) -> None:
    def figures(asker: Asker, account: str) -> object:
        data = asker.ask(f"ACCOUNT.{account}.JSZ", {"streams": True})["data"]
        if data is None:
            return None
        streams = data.pop("stream_detail", [])
        return {**data, "stream_detail": sorted(stream["name"] for stream in streams)}

    for account in ("A", "B"):
        official, ours = (figures(asker, account) for asker in both)
        assert official == ours


@pytest.mark.parametrize("body", [None, {}, {"name": "nope"}])
def test_profiles_that_are_not_there_are_named(both: list[Asker], body: object) -> None:
    official, ours = (asker.ask("SERVER.$ID.PROFILEZ", body)["data"] for asker in both)
    assert official == ours


def test_reload_leaves_accounts_without_streams_healthy(both: list[Asker]) -> None:
    for asker in both:
        assert "error" not in asker.ask("SERVER.$ID.RELOAD")
        assert asker.ask("SERVER.$ID.HEALTHZ")["data"]["status"] == "ok"
        assert "problems" not in asker.ask("SERVER.$ID.JSZ")["data"]
