"""The JetStream of an account that others use: API, publishes, deliveries, acknowledgements."""

from __future__ import annotations

import json
from typing import Any

from helpers_ops import login, next_message, publish, replies, request, shared_server
from helpers_sharing import Crowd, asked, crowd, told

from harness import RawClient, wait_for

server = shared_server("""
server_name: here
jetstream { store_dir: "STORE" }
accounts {
  E {
    jetstream: enabled
    users: [ {user: e, password: pw} ]
    exports: [
      {service: "$JS.API.>", response_type: stream}, {service: "$JS.ACK.>"}
      {stream: "deliver.>"}, {service: "orders.>"}
    ]
  }
  I {
    jetstream: enabled
    users: [ {user: i, password: pw} ]
    imports: [
      {service: {account: E, subject: "$JS.API.>"}, to: "js.E.>"}
      {service: {account: E, subject: "$JS.ACK.>"}}
      {stream: {account: E, subject: "deliver.>"}, to: "d.>"}
      {service: {account: E, subject: "orders.>"}}
    ]
  }
  S {
    users: [ {user: s, password: pw} ]
    imports: [ {service: {account: E, subject: "$JS.API.>"}, share: true} ]
  }
}
""")
__all__ = ["crowd"]


def made(client: RawClient, name: str, api: str = "js.E") -> None:
    asked(client, f"{api}.STREAM.DELETE.{name}")
    answer = asked(
        client, f"{api}.STREAM.CREATE.{name}", {"name": name, "subjects": [f"orders.{name}.*"]}
    )
    assert answer["config"]["name"] == name, answer


def test_streams_of_the_exporter_are_made_and_used_from_afar(crowd: Crowd) -> None:
    client = crowd.join("i")
    made(client, "O")
    assert asked(client, "orders.O.1", "one") == {"stream": "O", "seq": 1}
    stored = asked(client, "js.E.STREAM.MSG.GET.O", {"seq": 1})["message"]
    assert stored["subject"] == "orders.O.1"
    assert "hdrs" not in stored
    assert asked(client, "$JS.API.STREAM.NAMES")["streams"] is None
    assert "O" in asked(crowd.join("e"), "$JS.API.STREAM.NAMES")["streams"]


def test_a_header_that_pretends_to_be_another_account_is_not_stored(crowd: Crowd) -> None:
    client = crowd.join("i", "_I.>")
    made(client, "F")
    header = 'NATS/1.0\r\nNats-Request-Info: {"acc":"FAKE"}\r\nA: b\r\n\r\n'
    size = len(header)
    client.send(f"HPUB orders.F.1 _I.1 {size} {size + 1}\r\n{header}x\r\n")
    assert json.loads(next_message(client)[2]) == {"stream": "F", "seq": 1}
    get = asked(crowd.join("e"), "$JS.API.STREAM.MSG.GET.F", {"seq": 1})["message"]
    assert get["data"] == "eA=="


def test_pulled_messages_come_back_and_are_acknowledged(crowd: Crowd) -> None:
    client = crowd.join("i", "_I.>")
    made(client, "P")
    for number in (1, 2, 3):
        assert asked(client, f"orders.P.{number}", "x")["seq"] == number
    config = {"stream_name": "P", "config": {"durable_name": "D", "ack_policy": "explicit"}}
    assert asked(client, "js.E.CONSUMER.DURABLE.CREATE.P.D", config)["name"] == "D"
    told_to = publish("js.E.CONSUMER.MSG.NEXT.P.D", '{"batch": 3}', "_I.next")
    client.send(told_to)
    acks = []
    for number in (1, 2, 3):
        words, _, payload = next_message(client)
        assert (words[1], words[2], payload) == (f"orders.P.{number}", "1", b"x")
        acks.append(words[3])
    assert all(ack.startswith("$JS.ACK.P.D.") for ack in acks)
    assert request(client, acks[0], "+ACK") == (b"", b"")
    told(client, acks[1], "+ACK")

    def floor() -> int:
        info = asked(client, "js.E.CONSUMER.INFO.P.D")
        return int(info["ack_floor"]["stream_seq"])

    wait_for(lambda: floor() == 2, "the second acknowledgement")


def test_pushed_messages_reach_subscribers_of_the_importer(crowd: Crowd) -> None:
    client = crowd.join("i")
    made(client, "Q")
    assert asked(client, "orders.Q.1", "x")["seq"] == 1
    consumer = {"durable_name": "D", "ack_policy": "none", "deliver_subject": "deliver.here"}
    config = {"stream_name": "Q", "config": consumer}
    assert asked(client, "js.E.CONSUMER.DURABLE.CREATE.Q.D", config)["name"] == "D"
    client.send("SUB d.here 7\r\n")
    words, _, payload = next_message(client)
    assert (words[1], words[2], payload) == ("orders.Q.1", "7", b"x")
    assert words[3].startswith("$JS.ACK.Q.D.")


def test_an_account_that_imports_the_api_has_no_other(crowd: Crowd) -> None:
    client, owner = crowd.join("s", "_I.>"), crowd.join("e")
    made(owner, "T", "$JS.API")
    client.send(publish("$JS.API.STREAM.NAMES", "", "_I.1"))
    assert "T" in json.loads(next_message(client)[2])["streams"]
    assert replies(client, "") == []


def test_audits_tell_no_more_of_a_client_than_its_import_shares(crowd: Crowd) -> None:
    owner = crowd.join("e", "$JS.EVENT.ADVISORY.API")

    def asker() -> dict[str, Any]:
        """Who asked for a list, which nobody else does; audits come behind the answers."""
        while True:
            event = json.loads(next_message(owner)[2])
            if event["subject"].endswith(".STREAM.LIST"):
                client: dict[str, Any] = event["client"]
                return client

    asked(crowd.join("i", name="secret"), "js.E.STREAM.LIST")
    event = asker()
    event.pop("rtt", None)
    assert event == {"acc": "I", "svc": "E", "server": "here"}
    asked(crowd.join("s", name="open"), "$JS.API.STREAM.LIST")
    event = asker()
    assert (event["acc"], event["svc"], event["user"], event["name"]) == ("S", "E", "s", "open")


def test_requests_to_the_own_api_stay_at_home(crowd: Crowd) -> None:
    with login(crowd.server, "i", "pw", no_responders=True) as client:
        made(client, "L", "$JS.API")
        assert asked(client, "$JS.API.STREAM.NAMES")["streams"] == ["L"]
        assert asked(client, "$JS.API.STREAM.DELETE.L")["success"] is True
