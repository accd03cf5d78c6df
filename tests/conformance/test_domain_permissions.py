"""Requests that name the domain: mapped first, so that permissions are about what they mean."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from helpers_ops import login, next_message, replies, request, shared_server

from harness import RawClient, ServerProcess

server = shared_server("""
jetstream { store_dir: "STORE", domain: HUB }
accounts {
  A {
    jetstream: enabled
    users: [
      {user: admin, password: pw}
      {user: denied, password: pw, permissions: {publish: {deny: [
        "$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.DELETE.>", "$JS.API.STREAM.MSG.DELETE.>",
        "$JS.API.DIRECT.>", "$JS.API.CONSUMER.MSG.NEXT.>", "$KV.>"
      ]}}}
      {user: unnamed, password: pw, permissions: {publish: {deny: ["$JS.HUB.API.>"]}}}
      {user: named, password: pw, permissions: {publish: {allow: ["$JS.HUB.API.>"]}}}
    ]
    mappings: { "info.named": "$JS.HUB.API.INFO", "info.plain": "$JS.API.INFO" }
    exports: [ {service: "$JS.HUB.API.>", response_type: stream} ]
  }
  B {
    users: [ {user: b, password: pw} ]
    imports: [ {service: {account: A, subject: "$JS.HUB.API.INFO"}, to: "info.of.a"} ]
  }
}
""")

DEEDS = {
    "purge": ("STREAM.PURGE.KV_B", ""),
    "delete a stream": ("STREAM.DELETE.KV_B", ""),
    "delete a message": ("STREAM.MSG.DELETE.KV_B", '{"seq": 1}'),
    "write": ("$KV.B.k", "v"),
    "read": ("DIRECT.GET.KV_B.$KV.B.k", ""),
    "pull": ("CONSUMER.MSG.NEXT.KV_B.c", '{"no_wait": true}'),
}


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[RawClient]:
    with login(server, "admin", "pw", no_responders=True) as client:
        request(client, "$JS.API.STREAM.DELETE.KV_B")
        config = {
            "name": "KV_B",
            "subjects": ["$KV.B.>"],
            "allow_direct": True,
            "storage": "memory",
        }
        made = json.loads(request(client, "$JS.API.STREAM.CREATE.KV_B", json.dumps(config))[1])
        assert "error" not in made, made
        consumer = {"stream_name": "KV_B", "config": {"durable_name": "c"}}
        consumer["config"]["ack_policy"] = "explicit"  # type: ignore[index]
        request(client, "$JS.API.CONSUMER.CREATE.KV_B.c", json.dumps(consumer))
        request(client, "$KV.B.k", "kept")
        yield client


def state(admin: RawClient) -> tuple[int, int]:
    """How many messages there are, and how many the consumer has given out."""
    stream = json.loads(request(admin, "$JS.API.STREAM.INFO.KV_B")[1])
    consumer = json.loads(request(admin, "$JS.API.CONSUMER.INFO.KV_B.c")[1])
    return stream["state"]["messages"], consumer["delivered"]["consumer_seq"]


@pytest.mark.parametrize("deed", DEEDS)
def test_what_is_denied_stays_denied_under_the_name_of_the_domain(
    server: ServerProcess, admin: RawClient, deed: str
) -> None:
    subject, body = DEEDS[deed]
    meant = subject if subject.startswith("$KV") else f"$JS.API.{subject}"
    for user in ("denied", "named"):
        with login(server, user, "pw") as client:
            client.send("SUB answers 1\r\n")
            lines = replies(client, f"PUB $JS.HUB.API.{subject} answers {len(body)}\r\n{body}\r\n")
            assert lines == [f"-ERR 'Permissions Violation for Publish to \"{meant}\"'".encode()]
    assert state(admin) == (1, 0)


@pytest.mark.parametrize("deed", DEEDS)
def test_denying_the_name_of_the_domain_denies_nothing(
    server: ServerProcess, admin: RawClient, deed: str
) -> None:
    subject, body = DEEDS[deed]
    with login(server, "unnamed", "pw") as client:
        client.send("SUB answers 1\r\n")
        client.send(f"PUB $JS.HUB.API.{subject} answers {len(body)}\r\n{body}\r\n")
        header, payload = next_message(client)[1:]
        assert b"error" not in payload
        assert b"503" not in header


def test_subscribers_and_auditors_see_the_subject_without_the_domain(
    server: ServerProcess, admin: RawClient
) -> None:
    with login(server, "admin", "pw") as watcher:
        watcher.send(
            "SUB $JS.HUB.API.> 1\r\nSUB $JS.API.STREAM.INFO.> 2\r\nSUB $JS.EVENT.ADVISORY.API 3\r\n"
        )
        watcher.ping()
        request(admin, "$JS.HUB.API.STREAM.INFO.KV_B")
        assert next_message(watcher)[0][1:3] == ["$JS.API.STREAM.INFO.KV_B", "2"]
        assert json.loads(next_message(watcher)[2])["subject"] == "$JS.API.STREAM.INFO.KV_B"


@pytest.mark.parametrize("name", ["X", "INFO.x", "STREAM"])
def test_what_no_domain_has_finds_nobody(admin: RawClient, name: str) -> None:
    header, _ = request(admin, f"$JS.HUB.API.{name}")
    assert header == f"NATS/1.0 503\r\nNats-Subject: $JS.HUB.API.{name}\r\n\r\n".encode()


@pytest.mark.parametrize("name", ["CONSUMER.MSG.NEXT.KV_B.none", "DIRECT.GET.none.x"])
def test_nobody_is_found_for_the_subject_without_the_domain(admin: RawClient, name: str) -> None:
    header, _ = request(admin, f"$JS.HUB.API.{name}")
    assert header == f"NATS/1.0 503\r\nNats-Subject: $JS.API.{name}\r\n\r\n".encode()


def test_mapping_to_the_domain_is_not_mapped_again(admin: RawClient) -> None:
    header, _ = request(admin, "info.named")
    assert header == b"NATS/1.0 503\r\nNats-Subject: $JS.HUB.API.INFO\r\n\r\n"
    assert json.loads(request(admin, "info.plain")[1])["domain"] == "HUB"


def test_import_of_the_domain_reaches_the_streams_of_the_exporter(
    server: ServerProcess, admin: RawClient
) -> None:
    with login(server, "b", "pw") as client:
        assert json.loads(request(client, "info.of.a")[1])["streams"] == 1
        # Its own account has no streams, and is asked first.
        assert json.loads(request(client, "$JS.HUB.API.INFO")[1])["error"]["err_code"] == 10039
