"""JetStream as part of a server: accounts, counts, events, pages, restarts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_js import ApiClient, api_login
from helpers_ops import shared_server

from harness import ServerProcess, StartServer

CONFIG = """
server_name: "engine"
http: "127.0.0.1:-1"
jetstream { store_dir: "STORE", max_mem: 64MB, max_file: 1GB }
accounts {
  A { users [{user: a, password: hush}], jetstream: enabled }
  N { users [{user: n, password: hush}] }
  SYS { users [{user: s, password: hush}] }
}
system_account: SYS
"""
NOT_ENABLED = [503, 10039, "JetStream not enabled for account"]
LEVEL = [412, 10185, "JetStream minimum api level required"]


engine = shared_server(CONFIG)
healthy = shared_server(CONFIG)


@pytest.fixture
def js(engine: ServerProcess) -> Iterator[ApiClient]:
    with api_login(engine, "a") as client:
        yield client
        client.delete_streams()


def page(server: ServerProcess, path: str) -> tuple[int, Any]:
    port = server.wait_for_log(r"Starting http monitor on 127\.0\.0\.1:(\d+)")[1]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


# ---------------------------------------------------------------- accounts


@pytest.mark.parametrize(
    "subject", ["INFO", "STREAM.NAMES", "STREAM.INFO.X", "CONSUMER.CREATE.X", "STREAM.DELETE.X"]
)
def test_account_without_jetstream_is_told_so(engine: ServerProcess, subject: str) -> None:
    with api_login(engine, "n") as client:
        assert client.error(subject) == NOT_ENABLED


def test_system_account_has_no_streams(engine: ServerProcess) -> None:
    with api_login(engine, "s") as client:
        answer = client.request("STREAM.NAMES")
        assert answer["type"] == "io.nats.jetstream.api.v1.system_response"
        assert list(answer["error"].values()) == NOT_ENABLED


def test_account_sees_its_own_streams_only(engine: ServerProcess, js: ApiClient) -> None:
    js.done("STREAM.CREATE.MINE", {"name": "MINE"})
    with api_login(engine, "n") as client:
        assert client.error("STREAM.INFO.MINE") == NOT_ENABLED


def test_info_line_says_that_there_is_jetstream(engine: ServerProcess) -> None:
    with api_login(engine, "a") as client:
        assert client.raw.info["jetstream"] is True
        assert client.raw.info["api_lvl"] == 5


@pytest.mark.parametrize(
    "subject", ["x", "x.y", "STREAM", "CONSUMER.x", "CONSUMER.MSG.x", "DIRECT.x", "INFO.x"]
)
def test_request_that_no_endpoint_knows_is_not_answered(js: ApiClient, subject: str) -> None:
    js.raw.send(f"PUB $JS.API.{subject} answers 0\r\n\r\n")
    # Whatever comes back first belongs to the request that follows.
    assert js.request("STREAM.NAMES")["type"].endswith("stream_names_response")


@pytest.mark.parametrize("subject", ["CONSUMER.MSG.NEXT.NO.NONE", "DIRECT.GET.NO"])
def test_request_that_only_a_stream_or_consumer_answers_finds_nobody(
    js: ApiClient, subject: str
) -> None:
    js.raw.send(f"PUB $JS.API.{subject} answers 0\r\n\r\n")
    _, header, payload = js.raw.read_message()
    assert header.startswith(b"NATS/1.0 503\r\n")
    assert payload == b""


# ---------------------------------------------------------------- counts and levels


def test_requests_are_counted_but_not_messages_that_were_got(js: ApiClient) -> None:
    js.done("STREAM.CREATE.S", {"name": "S"})
    js.raw.send("PUB S answers 0\r\n\r\n")
    js.raw.read_message()
    before = js.request("INFO")["api"]
    js.done("STREAM.MSG.GET.S", {"seq": 1})
    js.error("STREAM.MSG.GET.S", {"seq": 2})
    js.error("STREAM.INFO.NONE")
    after = js.request("INFO")["api"]
    assert after["total"] - before["total"] == 3  # with the INFO itself
    assert after["errors"] - before["errors"] == 2
    assert after["level"] == 5


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("STREAM.CREATE.S", 10185),
        ("STREAM.PURGE.S", 10185),
        ("CONSUMER.DELETE.S.C", 10185),
        ("STREAM.LEADER.STEPDOWN.S", 10010),
        ("CONSUMER.CREATE.S.C", 10025),
        ("CONSUMER.PAUSE.S.C", 10025),
        ("CONSUMER.INFO.S.C", 10038),
    ],
)
def test_required_level_among_other_faults(js: ApiClient, call: str, code: int) -> None:
    header = "NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n"
    sizes = f"{len(header)} {len(header) + 2}"
    js.raw.send(f"HPUB $JS.API.{call} answers {sizes}\r\n{header}{{x\r\n")
    assert json.loads(js.raw.read_message()[2])["error"]["err_code"] == code


@pytest.mark.parametrize(
    ("level", "error"), [("5", None), ("6", LEVEL), ("abc", LEVEL), ("", None), ("0", None)]
)
def test_required_level_is_checked(js: ApiClient, level: str, error: list[Any] | None) -> None:
    header = f"NATS/1.0\r\nNats-Required-Api-Level: {level}\r\n\r\n"
    size = len(header)
    js.raw.send(f"HPUB $JS.API.INFO answers {size} {size}\r\n{header}\r\n")
    answer = json.loads(js.raw.read_message()[2])
    assert (list(answer["error"].values()) if "error" in answer else None) == error


@pytest.mark.parametrize(
    "subject",
    [
        "STREAM.PEER.REMOVE.S",
        "STREAM.LEADER.STEPDOWN.S",
        "CONSUMER.LEADER.STEPDOWN.S.C",
        "STREAM.CANCEL_MOVE.S",
    ],
)
def test_requests_for_clusters_are_refused(js: ApiClient, subject: str) -> None:
    assert js.error(subject) == [503, 10010, "JetStream clustering support required"]


# ---------------------------------------------------------------- events


def test_changes_are_announced(engine: ServerProcess, js: ApiClient) -> None:
    with api_login(engine, "a") as watcher:
        # Of E alone: the end of the streams of another test may still be announced.
        watcher.raw.send("UNSUB 1\r\nSUB $JS.EVENT.ADVISORY.STREAM.*.E 2\r\n")
        watcher.raw.send("SUB $JS.EVENT.ADVISORY.CONSUMER.*.E.* 3\r\nPING\r\n")
        watcher.raw.expect("PONG")
        config = {"durable_name": "c", "ack_policy": "explicit"}
        seen = []
        # One after the other: nats-server drops an event that still waits in what is deleted next.
        for subject, *request in (
            ("STREAM.CREATE.E", {"name": "E"}),
            ("STREAM.UPDATE.E", {"name": "E", "description": "new"}),
            ("CONSUMER.CREATE.E.c", {"stream_name": "E", "config": config}),
            ("CONSUMER.DELETE.E.c",),
            ("STREAM.DELETE.E",),
        ):
            js.done(subject, *request)
            seen.append(event(watcher))
        seen.sort()
    assert seen == sorted(
        [
            ("STREAM.CREATED.E", "stream_action", "create"),
            ("STREAM.UPDATED.E", "stream_action", "modify"),
            ("CONSUMER.CREATED.E.c", "consumer_action", "create"),
            ("CONSUMER.DELETED.E.c", "consumer_action", "delete"),
            ("STREAM.DELETED.E", "stream_action", "delete"),
        ]
    )


def event(watcher: ApiClient) -> tuple[str, str, str]:
    line, _, payload = watcher.raw.read_message()
    subject = line.split()[1]
    document = json.loads(payload)
    assert {"type", "id", "timestamp", "stream"} <= set(document)
    kind = document["type"].removeprefix("io.nats.jetstream.advisory.v1.")
    return subject.removeprefix("$JS.EVENT.ADVISORY."), kind, document["action"]


def test_requests_are_audited(engine: ServerProcess, js: ApiClient) -> None:
    with api_login(engine, "a") as watcher:
        watcher.raw.send("UNSUB 1\r\nSUB $JS.EVENT.ADVISORY.API 2\r\nPING\r\n")
        watcher.raw.expect("PONG")
        answer = js.ask("STREAM.NAMES", {"offset": 0})
        document = json.loads(watcher.raw.read_message()[2])
        while "request" not in document:  # of another test, which may have been told late
            document = json.loads(watcher.raw.read_message()[2])
    assert document["type"] == "io.nats.jetstream.advisory.v1.api_audit"
    assert document["server"] == "engine"
    assert document["subject"] == "$JS.API.STREAM.NAMES"
    assert document["request"] == '{"offset": 0}'
    assert document["response"] == answer.decode()
    client = document["client"]
    assert (client["acc"], client["user"], client["kind"]) == ("A", "a", "Client")
    assert (client["client_type"], client["server"]) == ("nats", "engine")


# ---------------------------------------------------------------- pages


def test_page_of_the_server_has_its_limits(engine: ServerProcess) -> None:
    jetstream = page(engine, "varz")[1]["jetstream"]
    assert jetstream["config"]["max_memory"] == 64 * 1024 * 1024
    assert jetstream["config"]["max_storage"] == 1024 * 1024 * 1024
    assert jetstream["config"]["store_dir"].endswith("/jetstream")
    assert jetstream["config"]["strict"] is True
    assert jetstream["stats"]["accounts"] == 1
    assert jetstream["stats"]["api"]["level"] == 5


def test_page_of_jetstream_shows_what_is_asked_for(engine: ServerProcess, js: ApiClient) -> None:
    js.done("STREAM.CREATE.P", {"name": "P", "max_bytes": 4096})
    js.raw.send("PUB P answers 5\r\nhello\r\n")
    js.raw.read_message()
    config = {"durable_name": "c", "ack_policy": "explicit"}
    js.done("CONSUMER.CREATE.P.c", {"stream_name": "P", "config": config})
    plain = page(engine, "jsz")[1]
    assert (plain["streams"], plain["consumers"], plain["messages"]) == (1, 1, 1)
    assert (plain["reserved_storage"], plain["accounts"], plain["total"]) == (4096, 1, 1)
    assert plain["bytes"] == plain["storage"]
    assert "account_details" not in plain
    assert "account_details" not in page(engine, "jsz?acc=NONE")[1]
    (account,) = page(engine, "jsz?acc=A&streams=1&consumers=1&config=1")[1]["account_details"]
    (stream,) = account["stream_detail"]
    assert set(stream) == {"name", "created", "cluster", "config", "state", "consumer_detail"}
    assert stream["cluster"] == {"leader": "engine"}
    assert stream["state"]["messages"] == 1
    (consumer,) = stream["consumer_detail"]
    assert (consumer["name"], consumer["num_pending"]) == ("c", 1)
    assert consumer["config"]["durable_name"] == "c"
    (account,) = page(engine, "jsz?streams=1")[1]["account_details"]
    assert set(account["stream_detail"][0]) == {"name", "created", "cluster", "state"}


@pytest.mark.parametrize(
    ("query", "status", "answer"),
    [
        ("", 200, {"status": "ok"}),
        ("?js-enabled-only=1", 200, {"status": "ok"}),
        ("?js-server-only=true", 200, {"status": "ok"}),
        ("?account=A", 200, {"status": "ok"}),
        (
            "?account=NONE",
            404,
            {"status": "unavailable", "error": 'JetStream account "NONE" not found'},
        ),
        (
            "?account=A&stream=NO",
            404,
            {
                "status": "unavailable",
                "error": 'JetStream stream "NO" not found on account "A"',
            },
        ),
        (
            "?account=A&stream=NO&details=true",
            404,
            {
                "status": "error",
                "errors": [
                    {
                        "type": "STREAM",
                        "account": "A",
                        "stream": "NO",
                        "error": 'JetStream stream "NO" not found on account "A"',
                    }
                ],
            },
        ),
    ],
)
def test_health(healthy: ServerProcess, query: str, status: int, answer: dict[str, Any]) -> None:
    # The official server finds an account here once it has a stream. One that had deleted streams
    # may be unwell for good: it sometimes leaves something of their folders behind.
    with api_login(healthy, "a") as client:
        client.done("STREAM.CREATE.H", {"name": "H", "subjects": ["h"]})
    assert page(healthy, f"healthz{query}") == (status, answer)


# ---------------------------------------------------------------- servers of their own


def test_system_account_can_remove_all_streams_of_an_account(
    start: StartServer, tmp_path: Path
) -> None:
    server = start(CONFIG.replace("STORE", str(tmp_path / "store")))
    with api_login(server, "a") as client, api_login(server, "s") as system:
        client.done("STREAM.CREATE.GONE", {"name": "GONE"})
        assert system.request("ACCOUNT.PURGE.A")["initiated"]
        assert client.request("STREAM.NAMES")["streams"] is None


def test_restart_keeps_streams_messages_and_consumers(start: StartServer, tmp_path: Path) -> None:
    flags = ("-js", "-sd", str(tmp_path / "store"))
    server = start("", *flags)
    with ApiClient(server) as client:
        client.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        client.done("STREAM.CREATE.M", {"name": "M", "storage": "memory"})
        for number in range(5):
            client.raw.send(f"PUB s.{number} answers 1\r\n{number}\r\n")
            client.raw.read_message()
        config = {"durable_name": "c", "ack_policy": "explicit"}
        client.done("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
        for number in range(2):
            client.raw.send("PUB $JS.API.CONSUMER.MSG.NEXT.S.c answers 0\r\n\r\n")
            message = client.raw.read_message()
            assert message[2] == b"%d" % number
        before = client.done("STREAM.INFO.S")
    server.stop()
    server = start("", *flags)
    with ApiClient(server) as client:
        after = client.done("STREAM.INFO.S")
        assert after["config"] == before["config"]
        assert after["created"] == before["created"]
        assert after["state"] == before["state"]
        info = client.done("CONSUMER.INFO.S.c")
        assert info["delivered"]["stream_seq"] == 2
        assert info["num_ack_pending"] == 2
        assert info["num_pending"] == 3
        assert client.request("STREAM.NAMES")["streams"] == ["S"]
