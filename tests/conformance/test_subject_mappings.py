"""`mappings` of accounts: where messages go that clients publish to a subject."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_js import api_login
from helpers_ops import reload, running, shared_server

from harness import RawClient, ServerProcess

CONFIG = """
http: "127.0.0.1:-1"
jetstream { store_dir: "STORE" }
mappings {
  "top": "top.mapped"
}
accounts {
  A {
    jetstream: enabled
    users [
      {user: a, password: hush}
      {user: narrow, password: hush, permissions: {publish: ["plain"], subscribe: ">"}}
      {user: mapped, password: hush, permissions: {publish: ["plain.mapped"], subscribe: ">"}}
    ]
    mappings {
      "plain": "plain.mapped"
      "again": "plain"
      "tokens.*.*": "swapped.$2.{{wildcard(1)}}"
      "rest.*.>": "other.$1.>"
      "part.*": "part.{{partition(5,1)}}.$1"
      "cut.*": "cut.{{left(1,2)}}.{{splitFromRight(1,1)}}"
      "share.*": [{destination: "one.$1", weight: 30}, {dest: "two.$1", weight: "30%"}]
      "all": [{destination: "left", weight: 50}, {destination: "right", weight: 50}]
      "lost": [{destination: "lost", weight: 0}]
      "object": {destination: "object.mapped", weight: 100}
      "elsewhere": [{destination: "far", weight: 100, cluster: "C"}]
    }
  }
  B { users [{user: b, password: hush}] }
}
no_auth_user: a
"""

mapped = shared_server(CONFIG)


def login(server: ServerProcess, user: str, **options: Any) -> RawClient:
    return RawClient(server.port).connect(
        user=user, **{"pass": "hush", "headers": True, "no_responders": True, **options}
    )


def arrives_at(client: RawClient, subject: str) -> str:
    """The subject that a message published here is received with."""
    client.send(f"PUB {subject} 2\r\nhi\r\n")
    line, _, payload = client.read_message()
    assert payload == b"hi"
    return line.split(" ")[1]


@pytest.fixture
def client(mapped: ServerProcess) -> Iterator[RawClient]:
    with login(mapped, "a") as raw:
        raw.send("SUB > 1\r\n")
        raw.ping()
        yield raw


@pytest.mark.parametrize(
    ("published", "received"),
    [
        ("plain", "plain.mapped"),
        ("again", "plain"),  # and not plain.mapped: a result is not mapped again
        ("plain.mapped", "plain.mapped"),
        ("tokens.a.b", "swapped.b.a"),
        ("tokens.a", "tokens.a"),
        ("rest.a.b.c", "other.a.b.c"),
        ("part.x", "part.0.x"),
        ("cut.abcd", "cut.ab.abc.d"),
        ("object", "object.mapped"),
        ("elsewhere", "elsewhere"),
        ("top", "top"),  # the top level is of $G
        ("unknown", "unknown"),
    ],
)
def test_message_goes_where_the_mapping_says(
    client: RawClient, published: str, received: str
) -> None:
    for _ in range(3):
        assert arrives_at(client, published) == received


def test_weights_divide_messages_and_the_rest_stays(client: RawClient) -> None:
    found = Counter(arrives_at(client, "share.x") for _ in range(400))
    assert set(found) == {"one.x", "two.x", "share.x"}
    # Each is 30, 30 and 40 of a hundred; ten standard deviations are about 90.
    assert all(count > 30 for count in found.values()), found


def test_full_weights_leave_nothing_at_the_source(client: RawClient) -> None:
    found = Counter(arrives_at(client, "all") for _ in range(200))
    assert set(found) == {"left", "right"}


def test_message_that_no_weight_takes_reaches_nobody(client: RawClient) -> None:
    client.send("PUB lost 2\r\nhi\r\nPUB lost answers 2\r\nhi\r\n")
    client.expect("HMSG answers 1 32 32", "NATS/1.0 503", "Nats-Subject: ", "", "")
    client.ping()


def test_nobody_there_is_said_of_the_mapped_subject(mapped: ServerProcess) -> None:
    with login(mapped, "a") as client:
        client.send("SUB answers 1\r\nPUB plain answers 2\r\nhi\r\n")
        client.expect("HMSG answers 1 44 44", "NATS/1.0 503", "Nats-Subject: plain.mapped", "", "")


def test_permission_is_asked_for_the_mapped_subject(mapped: ServerProcess) -> None:
    with login(mapped, "narrow") as client:
        client.send("PUB plain 2\r\nhi\r\n")
        client.expect("-ERR 'Permissions Violation for Publish to \"plain.mapped\"'")
    with login(mapped, "mapped") as client:
        client.send("SUB > 1\r\n")
        client.ping()
        assert arrives_at(client, "plain") == "plain.mapped"


def test_other_accounts_are_not_mapped(mapped: ServerProcess) -> None:
    with login(mapped, "b") as client:
        client.send("SUB > 1\r\n")
        client.ping()
        assert arrives_at(client, "plain") == "plain"


def test_subscriptions_are_not_mapped(mapped: ServerProcess) -> None:
    with login(mapped, "a") as client:
        client.send("SUB plain 1\r\nSUB plain.mapped 2\r\nPUB plain 2\r\nhi\r\n")
        client.expect("MSG plain.mapped 2 2", "hi")
        client.ping()


def test_stream_stores_the_mapped_subject(mapped: ServerProcess) -> None:
    with api_login(mapped, "a") as client:
        client.done("STREAM.CREATE.S", {"name": "S", "subjects": ["swapped.>"]})
        client.raw.send("PUB tokens.a.b answers 2\r\nhi\r\n")
        assert json.loads(client.raw.read_message()[2])["seq"] == 1
        found = client.request("STREAM.MSG.GET.S", {"seq": 1})["message"]
        assert found["subject"] == "swapped.b.a"
        client.done("STREAM.DELETE.S")


def test_page_of_an_account_shows_weights_added_up(mapped: ServerProcess) -> None:
    port = mapped.wait_for_log(r"Starting http monitor on 127\.0\.0\.1:(\d+)")[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/accountz?acc=A") as answer:
        found = json.load(answer)["account_detail"]["mappings"]
    assert found["plain"] == [{"subject": "plain.mapped", "weight": 100}]
    assert sorted(one["weight"] for one in found["share.*"]) == [30, 60, 100]
    assert found["share.*"][2] == {"subject": "share.$1", "weight": 100}
    assert found["elsewhere"] == [
        {"subject": "elsewhere", "weight": 100},
        {"subject": "far", "weight": 100, "cluster": "C"},
    ]


def test_reload_changes_mappings_of_open_connections(shared_kind: str, tmp_path: Path) -> None:
    before = 'mappings { "a": "b" }\n'
    with running(shared_kind, tmp_path, before) as server, RawClient(server.port) as client:
        client.connect().send("SUB > 1\r\n")
        assert arrives_at(client, "a") == "b"
        reload(server, 'mappings { "a": "c" }\n')
        assert arrives_at(client, "a") == "c"


@pytest.mark.parametrize(
    "mappings",
    [
        '{ "a..b": "c" }',
        '{ "a": "b c" }',
        '{ "a": "b.$1" }',
        '{ "a.*": "b.$2" }',
        '{ "a.*": "b.*" }',
        '{ "a.>": "b" }',
        '{ "a.*": "b.{{foo(1)}}" }',
        '{ "a.*": "b.{{split(1)}}" }',
        '{ "a.*": "b.{{wildcard(1,2)}}" }',
        '{ "a.*": "b.{{partition(x,1)}}" }',
        '{ "a": [{destination: "b", weight: 101}] }',
        '{ "a": [{destination: "b", weight: "x"}] }',
        '{ "a": [{destination: "b", weight: -1}] }',
        '{ "a": [{destination: "b"}] }',
        '{ "a": [{destination: "b", weight: 60}, {destination: "c", weight: 60}] }',
        '{ "a": [{destination: "b", weight: 10}, {destination: "b", weight: 10}] }',
        '{ "a": [{destination: "b", weight: 10, foo: 1}] }',
        '{ "a": 7 }',
        "[a]",
    ],
)
@pytest.mark.parametrize("place", ["{}", "accounts {{ A {{ {} }} }}"])
def test_wrong_mapping_is_refused(
    shared_kind: str, tmp_path: Path, mappings: str, place: str
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(place.format(f"mappings: {mappings}") + "\n")
    process = ServerProcess(shared_kind, ["-a", "127.0.0.1", "-p", "-1", "-c", str(path)])
    try:
        assert process.wait(20) == 1
    finally:
        process.stop()
