"""The previews of JetStream: the requests of the documents of their time, word by word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.jetstream.legacy.legacy_listener import LEGACY_ENDPOINTS
from tradewind.options import MIB, AccountOptions, JetStreamOptions, ServerOptions
from tradewind.testing import InProcessServer, User, UserGate
from tradewind.testing.fake_disk import SimulatedDisk

LOGS = """{
    "name": "LOGS",
    "subjects": [
      "logs.>"
    ],
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 86400000000000,
    "max_msg_size": -1,
    "storage": "file",
    "num_replicas": 1
}
"""
LOGS_TAIL = """{
  "stream_name": "LOGS",
  "config": {
    "delivery_subject": "out.tail",
    "durable_name": "TAIL",
    "start_time": "0001-01-01T00:00:00Z",
    "deliver_all": true,
    "ack_policy": "none",
    "max_deliver": -1,
    "replay_policy": "instant"
  }
}
"""
BAD = "bad request"
DEEP = 50_000 * "[" + 50_000 * "]"
START_AT = ('"deliver_all": true', f'"stream_seq": {1 << 64}')
NOT_ENABLED = "jetstream not enabled for account"


class LegacyPeer(Peer):
    """Asks in the old languages."""

    def say(self, subject: str, body: Any = b"") -> str:
        """The only answer, as text."""
        data = body.encode() if isinstance(body, str) else body
        answers = self.ask(subject, data)
        assert len(answers) == 1, (subject, answers)
        assert not answers[0][1], answers
        return answers[0][2].decode()

    def add_set(self, name: str, *subjects: str, age_ns: int = 0, **fields: Any) -> str:
        """What `jsm add` sends."""
        config = {
            "name": name,
            "subjects": subjects,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": age_ns,
            "storage": "file",
        }
        return self.say("$JS.MSGSET.CREATE", json.dumps({**config, **fields}))

    def add_observable(self, name: str, durable: str = "", **config: Any) -> str:
        """What `jsm add-obs` sends."""
        config = {"durable_name": durable, "replay_policy": "instant", **config}
        request = {"msg_set_name": name, "config": config}
        return self.say("$JS.OBSERVABLE.CREATE", json.dumps(request))

    def deliveries(self) -> list[tuple[str, str, bytes]]:
        """(subject, reply, payload) of the messages that have arrived."""
        data, found = self.connection.take(), []
        while data:
            line, _, data = data.partition(b"\r\n")
            words = line.decode().split()
            if words[0] != "MSG":
                continue
            size = int(words[-1])
            found.append((words[1], words[3] if len(words) == 5 else "", data[:size]))
            data = data[size + 2 :]
        return found

    def next_message(self, subject: str, body: bytes = b"") -> list[tuple[str, str, bytes]]:
        self.connection.take()
        self.connection.send(f"PUB {subject} inbox.n {len(body)}\r\n".encode() + body + b"\r\n")
        return self.deliveries()


def server_with(**options: Any) -> InProcessServer:
    settings = JetStreamOptions(enabled=True, **options)
    return InProcessServer(ServerOptions(jetstream=settings), disk=SimulatedDisk())


@pytest.fixture
def server() -> InProcessServer:
    return server_with()


@pytest.fixture
def peer(server: InProcessServer) -> LegacyPeer:
    return LegacyPeer(server)


def info_of(peer: LegacyPeer, name: str) -> tuple[int, int, int, int]:
    info = json.loads(peer.say("$JS.MSGSET.INFO", name))
    return info["Msgs"], info["Bytes"], info["FirstSeq"], info["LastSeq"]


# ---------------------------------------------------------------- the first one (document 000)


def test_message_sets_of_the_first_document(server: InProcessServer, peer: LegacyPeer) -> None:
    assert peer.add_set("derek", "foo", "bar") == "+OK"
    info = json.loads(peer.say("$JS.INFO"))
    assert (info["memory"], info["storage"], info["msg_sets"]) == (0, 0, 1)
    assert info["limits"]["max_msg_sets"] == -1
    assert json.loads(peer.say("$JS.MSGSETS")) == ["derek"]
    assert info_of(peer, "derek") == (0, 0, 0, 0)
    peer.connection.send(b"PUB foo 5\r\nhello\r\n")
    assert peer.say("bar", "world") == "+OK"
    assert info_of(peer, "derek") == (2, 76, 1, 2)
    assert peer.say("$JS.MSGSET.DELETE", "derek") == "+OK"
    assert peer.add_set("derek", "foo", "bar", "baz.*", age_ns=60_000_000_000) == "+OK"
    for _ in range(10):
        peer.connection.send(b"PUB foo 128\r\n" + bytes(128) + b"\r\n")
    assert info_of(peer, "derek")[0] == 10
    server.advance(61)
    assert info_of(peer, "derek")[0] == 0


def test_pull_observable_of_the_first_document(server: InProcessServer, peer: LegacyPeer) -> None:
    peer.add_set("derek", "foo", "bar", "baz.*")
    assert peer.add_set("wc", "*") == "+OK"
    for subject in range(1, 6):
        peer.connection.send(f"PUB {subject} 5\r\nhello\r\n".encode())
    assert info_of(peer, "wc") == (5, 180, 1, 5)
    assert peer.add_observable("wc", "p1", deliver_all=True, ack_policy="explicit") == "+OK"
    assert peer.say("$JS.OBSERVABLE.INFO", "wc p1") == (
        '{\n  "Delivered": {\n    "ObsSeq": 1,\n    "SetSeq": 1\n  },\n'
        '  "AckFloor": {\n    "ObsSeq": 0,\n    "SetSeq": 0\n  },\n'
        '  "Pending": null,\n  "Redelivery": null\n}'
    )
    first = [("1", "$JS.A.wc.p1.1.1.1", b"hello")]
    assert peer.next_message("$JS.RN.wc.p1", b"1") == first
    info = json.loads(peer.say("$JS.OBSERVABLE.INFO", "wc p1"))
    assert info["Delivered"] == {"ObsSeq": 2, "SetSeq": 2}
    assert info["AckFloor"] == {"ObsSeq": 0, "SetSeq": 0}
    assert info["Pending"] == {"1": server.clock.wall_ns()}
    assert info["Redelivery"] is None
    server.advance(31)
    assert peer.next_message("$JS.RN.wc.p1", b"1") == [("1", "$JS.A.wc.p1.2.1.2", b"hello")]
    info = json.loads(peer.say("$JS.OBSERVABLE.INFO", "wc p1"))
    assert info["Delivered"] == {"ObsSeq": 3, "SetSeq": 2}
    assert info["Redelivery"] == {"1": 1}
    ((subject, reply, payload),) = peer.next_message("$JS.RN.wc.p1")
    assert (subject, reply, payload) == ("2", "$JS.A.wc.p1.1.2.3", b"hello")
    peer.connection.send(f"PUB {reply} 3\r\n+OK\r\n".encode())
    peer.connection.send(b"PUB $JS.A.wc.p1.2.1.2 0\r\n\r\n")
    info = json.loads(peer.say("$JS.OBSERVABLE.INFO", "wc p1"))
    assert info["AckFloor"] == {"ObsSeq": 3, "SetSeq": 2}
    assert info["Pending"] is None


def test_push_observable_of_the_first_document(peer: LegacyPeer) -> None:
    peer.add_set("wc", "*")
    for subject in range(1, 6):
        peer.connection.send(f"PUB {subject} 5\r\nhello\r\n".encode())
    config = {"delivery_subject": "d.p2", "deliver_all": True, "ack_policy": "none"}
    assert peer.add_observable("wc", "p2", **config) == "+OK"
    peer.connection.take()
    peer.connection.send(b"SUB d.p2 7\r\nPING\r\n")
    assert [(subject, payload) for subject, _, payload in peer.deliveries()] == [
        (str(number), b"hello") for number in range(1, 6)
    ]
    peer.connection.send(b"PUB foo 14\r\nhello jetsream\r\n")
    ((subject, _, payload),) = peer.deliveries()
    assert (subject, payload) == ("foo", b"hello jetsream")
    assert json.loads(peer.say("$JS.OBSERVABLES", "wc")) == ["p2"]
    assert peer.say("$JS.OBSERVABLE.DELETE", "wc p2") == "+OK"
    assert peer.say("$JS.OBSERVABLE.DELETE", "wc p2") == "-ERR observable not found"


def test_message_is_read_and_deleted_by_its_sequence(peer: LegacyPeer) -> None:
    peer.add_set("s", "foo")
    peer.connection.send(b"PUB foo 5\r\nhello\r\n")
    message = json.loads(peer.say("$JS.BYSEQ.s", "1"))
    assert (message["Subject"], message["Data"]) == ("foo", "aGVsbG8=")
    assert list(message) == ["Subject", "Data", "Time"]
    assert peer.say("$JS.MSGSET.MSG.DELETE", "s 1") == "+OK"
    assert peer.say("$JS.MSGSET.MSG.DELETE", "s 1") == "-ERR sequence [1] not found"
    assert peer.say("$JS.MSGSET.PURGE", "s") == "+OK"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"ack_policy": "none", "durable_name": "d"}, "in pull mode requires explicit ack policy"),
        ({"ack_policy": "explicit"}, "in pull mode requires a durable name"),
        (
            {"delivery_subject": "nobody", "deliver_all": True},
            "requires interest for delivery subject when ephemeral",
        ),
        ({"deliver_all": True, "deliver_last": True}, "starting position conflict"),
        ({"delivery_subject": "x", "subject": "foo.*"}, "partition subject has wildcards"),
        (
            {"delivery_subject": "x", "subject": "bar"},
            "partition not a valid subset of the interest subjects",
        ),
    ],
)
def test_observable_that_is_wrong_is_refused_in_the_old_words(
    peer: LegacyPeer, config: dict[str, Any], text: str
) -> None:
    peer.add_set("s", "foo.*")
    assert peer.add_observable("s", **config) == f"-ERR observable {text}"


def test_what_is_not_there_is_told_in_the_old_words(peer: LegacyPeer) -> None:
    assert peer.say("$JS.MSGSET.INFO", "none") == "-ERR msgset not found"
    assert peer.say("$JS.MSGSET.DELETE", "none") == "-ERR msgset not found"
    assert peer.say("$JS.OBSERVABLES", "none") == "-ERR msgset not found"
    assert peer.say("$JS.MSGSET.CREATE", "{oops") == "-ERR bad request"
    assert peer.say("$JS.MSGSET.INFO", "") == "-ERR bad request"
    assert peer.say("$JS.MSGSETS") == "null"


def test_observable_that_exists_is_not_replaced_while_it_is_used(peer: LegacyPeer) -> None:
    peer.add_set("s", "foo")
    pull = {"ack_policy": "explicit", "deliver_all": True}
    assert peer.add_observable("s", "pull", **pull) == "+OK"
    assert peer.add_observable("s", "pull", **pull) == "-ERR observable already exists"
    push = {"delivery_subject": "d", "deliver_all": True}
    peer.connection.send(b"SUB d 7\r\nPING\r\n")
    assert peer.add_observable("s", "push", **push) == "+OK"
    active = "-ERR observable already exists and is still active"
    assert peer.add_observable("s", "push", **push) == active
    peer.connection.send(b"UNSUB 7\r\nPING\r\n")
    assert peer.add_observable("s", "push", **{**push, "delivery_subject": "e"}) == "+OK"
    other = {**push, "replay_policy": "original"}
    differs = "-ERR observable replacement durable config not the same"
    assert peer.add_observable("s", "push", **other) == differs


def test_work_queue_of_the_first_preview(peer: LegacyPeer) -> None:
    peer.add_set("w", "jobs", retention="work_queue")
    pull = {"ack_policy": "explicit", "deliver_all": True}
    push = {"delivery_subject": "d", "ack_policy": "explicit", "deliver_all": True}
    refused = "-ERR delivery subject not allowed on workqueue message set"
    assert peer.add_observable("w", "p", **push) == refused
    late = "-ERR observable must be deliver all on workqueue message set"
    assert peer.add_observable("w", "n", ack_policy="explicit") == late
    assert peer.add_observable("w", "a", **pull) == "+OK"
    second = "-ERR multiple non-partioned observables not allowed on workqueue message set"
    assert peer.add_observable("w", "b", **pull) == second


# ---------------------------------------------------------------- the second one (document 003)


def test_account_requests_of_the_third_document() -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = LegacyPeer(server)
    peer.say("$JS.STREAM.LOGS.CREATE", LOGS)
    assert peer.say("$JS.ENABLED", ".") == "+OK"
    assert peer.say("$JS.INFO", ".") == (
        '{\n  "memory": 0,\n  "storage": 0,\n  "streams": 1,\n  "limits": {\n'
        f'    "max_memory": {256 * MIB},\n    "max_storage": {1024 * MIB},\n'
        '    "max_streams": -1,\n    "max_consumers": -1\n  }\n}'
    )


def test_stream_of_the_third_document(peer: LegacyPeer) -> None:
    assert peer.say("$JS.STREAM.LOGS.CREATE", LOGS) == "+OK"
    info = peer.say("$JS.STREAM.LOGS.INFO")
    assert json.loads(info)["config"] == json.loads(LOGS)
    assert info.replace("\\u003e", ">") == (
        '{\n  "config": {\n    "name": "LOGS",\n    "subjects": [\n      "logs.>"\n    ],\n'
        '    "retention": "limits",\n    "max_consumers": -1,\n    "max_msgs": -1,\n'
        '    "max_bytes": -1,\n    "max_age": 86400000000000,\n    "max_msg_size": -1,\n'
        '    "storage": "file",\n    "num_replicas": 1\n  },\n  "state": {\n'
        '    "messages": 0,\n    "bytes": 0,\n    "first_seq": 0,\n    "last_seq": 0,\n'
        '    "consumer_count": 0\n  }\n}'
    )
    assert json.loads(peer.say("$JS.STREAM.LIST")) == ["LOGS"]
    changed = LOGS.replace('"max_bytes": -1', '"max_bytes": 10737418240')
    refused = "-ERR 'insufficient storage resources available'"
    assert peer.say("$JS.STREAM.LOGS.UPDATE", changed) == refused
    changed = LOGS.replace('"max_bytes": -1', '"max_bytes": 1073741')
    assert peer.say("$JS.STREAM.LOGS.UPDATE", changed) == "+OK"
    assert json.loads(peer.say("$JS.STREAM.LOGS.INFO"))["config"]["max_bytes"] == 1073741
    assert peer.say("$JS.STREAM.LOGS.DELETE") == "+OK"
    assert peer.say("$JS.STREAM.LOGS.INFO") == "-ERR 'stream not found'"


def test_consumer_of_the_third_document(peer: LegacyPeer) -> None:
    peer.say("$JS.STREAM.LOGS.CREATE", LOGS)
    assert peer.say("logs.app", "line") == "+OK"
    assert peer.say("$JS.STREAM.LOGS.CONSUMER.TAIL.CREATE", LOGS_TAIL) == "+OK"
    assert json.loads(peer.say("$JS.STREAM.LOGS.CONSUMERS")) == ["TAIL"]
    info = json.loads(peer.say("$JS.STREAM.LOGS.CONSUMER.TAIL.INFO"))
    assert info["config"] == json.loads(LOGS_TAIL)["config"]
    assert info["state"] == {
        "delivered": {"consumer_seq": 0, "stream_seq": 0},
        "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
        "pending": None,
        "redelivered": None,
    }
    peer.connection.take()
    peer.connection.send(b"SUB out.tail 7\r\nPING\r\n")
    ((subject, _, payload),) = peer.deliveries()
    assert (subject, payload) == ("logs.app", b"line")
    assert peer.say("$JS.STREAM.LOGS.CONSUMER.TAIL.DELETE") == "+OK"
    assert peer.say("$JS.STREAM.LOGS.CONSUMER.TAIL.INFO") == "-ERR 'consumer not found'"


def test_pull_consumer_of_the_second_preview_has_short_acks(peer: LegacyPeer) -> None:
    peer.say("$JS.STREAM.LOGS.CREATE", LOGS)
    for _ in range(3):
        peer.say("logs.app", "line")
    config = {"durable_name": "P", "deliver_all": True, "ack_policy": "explicit"}
    request = json.dumps({"stream_name": "LOGS", "config": config})
    assert peer.say("$JS.STREAM.LOGS.CONSUMER.P.CREATE", request) == "+OK"
    found = peer.next_message("$JS.STREAM.LOGS.CONSUMER.P.NEXT", b"2")
    assert [reply for _, reply, _ in found] == ["$JS.ACK.LOGS.P.1.1.1", "$JS.ACK.LOGS.P.1.2.2"]
    for _, reply, _ in found:
        peer.connection.send(f"PUB {reply} 0\r\n\r\n".encode())
    info = json.loads(peer.say("$JS.STREAM.LOGS.CONSUMER.P.INFO"))
    assert info["state"]["ack_floor"] == {"consumer_seq": 2, "stream_seq": 2}


def test_ephemeral_consumer_of_the_second_preview_is_told_its_name(peer: LegacyPeer) -> None:
    peer.say("$JS.STREAM.LOGS.CREATE", LOGS)
    subject = "$JS.STREAM.LOGS.EPHEMERAL.CONSUMER.CREATE"
    request = {"stream_name": "LOGS", "config": {"delivery_subject": "d", "deliver_all": True}}
    interest = "-ERR 'consumer requires interest for delivery subject when ephemeral'"
    assert peer.say(subject, json.dumps(request)) == interest
    peer.connection.send(b"SUB d 7\r\nPING\r\n")
    answer, name = peer.say(subject, json.dumps(request)).split()
    assert answer == "+OK"
    assert json.loads(peer.say("$JS.STREAM.LOGS.CONSUMERS")) == [name]
    durable = {**request, "config": {"delivery_subject": "d", "durable_name": "x"}}
    refused = "-ERR 'consumer expected to be ephemeral but a durable name was set'"
    assert peer.say(subject, json.dumps(durable)) == refused


@pytest.mark.parametrize(
    ("subject", "body", "text"),
    [
        ("STREAM.OTHER.CREATE", LOGS, "stream name in subject does not match request"),
        ("STREAM.LOGS.CREATE", "[]", "bad request"),
        ("STREAM.LOGS.CREATE", LOGS.replace('"max_msgs": -1', f'"max_msgs": {1 << 63}'), BAD),
        ("STREAM.LOGS.CREATE", LOGS.replace("86400000000000", str(10**30)), BAD),
        ("STREAM.LOGS.CREATE", LOGS.replace('"max_msg_size": -1', '"max_msg_size": 3e9'), BAD),
        ("STREAM.LOGS.CREATE", LOGS.replace('"max_consumers": -1', f'"x": {DEEP}'), BAD),
        ("STREAM.LOGS.CONSUMER.TAIL.CREATE", LOGS_TAIL.replace('er": -1', f'er": {1 << 63}'), BAD),
        ("STREAM.LOGS.CONSUMER.TAIL.CREATE", LOGS_TAIL.replace(*START_AT, 1), BAD),
        ("STREAM.LOGS.INFO", "x", "bad request"),
        ("STREAM.LOGS.MSG.DELETE", "7", "sequence [7] not found"),
        ("STREAM.LOGS.MSG.DELETE", "x", "bad sequence argument"),
        ("STREAM.LOGS.MSG.BYSEQ", "7", "could not load message from storage"),
        ("STREAM.LOGS.MSG.BYSEQ", "x", "bad sequence argument"),
        ("STREAM.LOGS.MSG.BYSEQ", str(1 << 64), "bad sequence argument"),
        ("STREAM.LOGS.MSG.BYSEQ", 5000 * "0" + "7", "could not load message from storage"),
        (
            "STREAM.LOGS.CONSUMER.X.CREATE",
            LOGS_TAIL,
            "consumer name in subject does not match durable name in request",
        ),
        (
            "STREAM.LOGS.CONSUMER.TAIL.CREATE",
            LOGS_TAIL.replace('"durable_name": "TAIL",', ""),
            "consumer expected to be durable but a durable name was not set",
        ),
        ("TEMPLATE.T.CREATE", "{}", "stream templates are no longer supported"),
        ("TEMPLATE.T.INFO", "", "template not found"),
    ],
)
def test_requests_of_the_second_preview_are_refused(
    peer: LegacyPeer, subject: str, body: str, text: str
) -> None:
    peer.say("$JS.STREAM.LOGS.CREATE", LOGS)
    assert peer.say(f"$JS.{subject}", body) == f"-ERR '{text}'"


def test_message_of_the_second_preview(peer: LegacyPeer) -> None:
    peer.say("$JS.STREAM.LOGS.CREATE", LOGS)
    peer.say("logs.app", "line")
    for body in ("1", ""):
        message = json.loads(peer.say("$JS.STREAM.LOGS.MSG.BYSEQ", body))
        assert list(message) == ["subject", "seq", "data", "time"]
        assert (message["subject"], message["seq"], message["data"]) == ("logs.app", 1, "bGluZQ==")
    assert peer.say("$JS.STREAM.LOGS.MSG.DELETE", "1") == "+OK"
    assert peer.say("$JS.STREAM.LOGS.PURGE") == "+OK"


# ---------------------------------------------------------------- beside today


def test_streams_of_today_are_as_they_were(peer: LegacyPeer) -> None:
    peer.create("S")
    assert peer.publish("S.a") == {"stream": "S", "seq": 1}
    assert json.loads(peer.say("$JS.STREAM.S.INFO"))["state"]["messages"] == 1
    peer.api(
        "CONSUMER.CREATE.S.c",
        {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}},
    )
    ((_, reply, _),) = peer.next_message("$JS.RN.S.c", b"1")
    assert len(reply.split(".")) == 9
    short = ".".join(reply.split(".")[:7])
    peer.connection.send(f"PUB {short} 0\r\n\r\n".encode())
    assert peer.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 1
    peer.connection.send(f"PUB {reply} 0\r\n\r\n".encode())
    assert peer.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 0


def test_old_streams_are_known_to_the_api_of_today_and_survive_a_restart() -> None:
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = LegacyPeer(server)
    peer.add_set("wc", "*")
    peer.say("a", "1")
    peer.add_observable("wc", "p", deliver_all=True, ack_policy="explicit")
    info = peer.api("STREAM.INFO.wc")
    assert info["config"]["metadata"]["tradewind.preview"] == "sets"
    again = LegacyPeer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert again.say("b", "2") == "+OK"
    found = again.next_message("$JS.RN.wc.p", b"2")
    assert [reply for _, reply, _ in found] == ["$JS.A.wc.p.1.1.1", "$JS.A.wc.p.1.2.2"]


def test_message_sets_that_share_subjects_survive_a_restart() -> None:
    disk = SimulatedDisk()
    peer = LegacyPeer(InProcessServer(disk=disk))
    peer.add_set("derek", "foo", "bar")
    assert peer.add_set("wc", "*") == "+OK"
    shared = {"name": "today", "subjects": ["foo"]}
    assert peer.api("STREAM.CREATE.today", shared)["error"]["err_code"] == 10065
    peer.connection.send(b"PUB foo 5\r\nhello\r\n")
    again = LegacyPeer(InProcessServer(disk=disk.crash_losing_unsynced()))
    again.connection.send(b"PUB foo 5\r\nhello\r\n")
    assert info_of(again, "derek")[0] == info_of(again, "wc")[0] == 2


def test_refused_publish_to_an_old_stream_is_told_in_its_words(peer: LegacyPeer) -> None:
    peer.say("$JS.STREAM.LOGS.CREATE", LOGS.replace('"max_msg_size": -1', '"max_msg_size": 3'))
    assert peer.say("logs.a", "four") == "-ERR 'message size exceeds maximum allowed'"


def test_switched_off_nobody_answers() -> None:
    peer = LegacyPeer(server_with(legacy_preview=False))
    for endpoint in LEGACY_ENDPOINTS:
        if not endpoint.handler:
            continue  # requests for messages, see below
        subject = endpoint.subject.replace("*", "x")
        ((_, header, _),) = peer.ask(subject)
        assert header.startswith(b"NATS/1.0 503"), subject


def test_domain_that_is_a_word_of_the_previews_switches_them_off() -> None:
    server = server_with(domain="STREAM")
    peer = LegacyPeer(server)
    ((_, header, _),) = peer.ask("$JS.ENABLED")
    assert header.startswith(b"NATS/1.0 503")
    assert json.loads(peer.ask("$JS.STREAM.API.INFO")[0][2])["domain"] == "STREAM"


def test_account_touches_only_its_own_streams() -> None:
    gate = UserGate([User(name, name, name.upper()) for name in "abc"])
    accounts = {name: AccountOptions(name, jetstream=name != "C") for name in "ABC"}
    options = ServerOptions(accounts=accounts, jetstream=JetStreamOptions(enabled=True))
    server = InProcessServer(options, disk=SimulatedDisk(), gate=gate, accounts="ABC")
    one, other, none = (LegacyPeer(server, name, name) for name in "abc")
    assert one.add_set("s", "foo") == "+OK"
    assert one.say("foo", "mine") == "+OK"
    assert other.say("$JS.MSGSETS") == "null"
    assert other.say("$JS.MSGSET.DELETE", "s") == "-ERR msgset not found"
    assert other.add_set("s", "foo") == "+OK"
    assert (info_of(one, "s")[0], info_of(other, "s")[0]) == (1, 0)
    assert none.say("$JS.ENABLED") == f"-ERR '{NOT_ENABLED}'"
    assert none.say("$JS.MSGSETS") == f"-ERR {NOT_ENABLED}"


def test_page_about_the_previews_names_every_subject() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/PREVIEW.md").read_text()
    named = set(re.findall(r"^\| `(\$JS\.[^`]*)` \|", page, re.MULTILINE))
    assert named == {endpoint.subject for endpoint in LEGACY_ENDPOINTS}


def test_every_subject_is_answered_once(peer: LegacyPeer) -> None:
    for endpoint in LEGACY_ENDPOINTS:
        if not endpoint.handler:
            continue  # requests for messages, see below
        subject = endpoint.subject.replace("*", "x")
        answer = peer.say(subject, "")
        assert answer.startswith(("+OK", "-ERR ", "{", "[", "null")), (subject, answer)


def test_request_for_messages_of_an_unknown_consumer_finds_nobody(peer: LegacyPeer) -> None:
    for subject in ("$JS.RN.x.y", "$JS.STREAM.x.CONSUMER.y.NEXT"):
        ((_, header, _),) = peer.ask(subject)
        assert header.startswith(b"NATS/1.0 503")
