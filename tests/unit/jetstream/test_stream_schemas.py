"""Payloads are checked at every door of a stream that asks for it, and at no other."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from engine_kit import Peer
from transaction_kit import add_consumer, commit, message, pull, stored

from sweeps import sweep
from thoroughness import some
from tradewind.jetstream import schema_keeper
from tradewind.schemas.schema_table import Outcome
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

ORDER = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
GOOD, WRONG = b'{"id":1}', b'{"id":"x"}'
PROBLEM = 'the payload does not obey schema order.1: /id: "x" is not of type "integer"'


def document(
    subject: str = "S.>", schema: Any = ORDER, version: int = 1, format_name: str = "json"
) -> bytes:
    found = {"subject": subject, "format": format_name, "version": version, "schema": schema}
    return json.dumps(found).encode()


class World:
    """Stream S with a schema for its subjects, and stream D for dead letters."""

    def __init__(
        self, action: str = "reject", config: dict[str, Any] | None = None, **metadata: str
    ) -> None:
        self.disk = SimulatedDisk()
        self.server = InProcessServer(disk=self.disk)
        self.peer = Peer(self.server)
        self.peer.create("KV_TW_SCHEMAS", subjects=["$KV.TW_SCHEMAS.>"], max_msgs_per_subject=1)
        self.put("order.1", document())
        self.peer.create("D", subjects=["dead.>"])
        found = {f"tradewind.schema.{name}": value for name, value in metadata.items()}
        if action == "dead-letter":
            found.setdefault("tradewind.schema.stream", "D")
        self.metadata = {"tradewind.schema": action, **found}
        self.created = self.peer.create("S", metadata=self.metadata, **(config or {}))

    def put(self, key: str, value: bytes) -> None:
        assert "error" not in (self.peer.publish(f"$KV.TW_SCHEMAS.{key}", value) or {"error": 1})

    def publish(self, payload: bytes, subject: str = "S.a", **headers: str) -> dict[str, Any]:
        """The answer to a publish."""
        lines = "".join(f"{n.replace('_', '-')}: {value}\r\n" for n, value in headers.items())
        header = f"NATS/1.0\r\n{lines}\r\n".encode()
        self.peer.connection.send(
            b"HPUB %s inbox.p %d %d\r\n%s%s\r\n"
            % (subject.encode(), len(header), len(header) + len(payload), header, payload)
        )
        answers = self.peer.take()
        assert len(answers) == 1, answers
        found: dict[str, Any] = json.loads(answers[0][2]) if answers[0][2] else {}
        return found

    def payloads(self, stream: str = "S") -> list[bytes]:
        return [payload for _, _, payload in stored(self.peer, stream)]

    def checks(self) -> dict[str, Any]:
        found: dict[str, Any] = self.peer.api("STREAM.INFO.S")["schema_checks"]
        return found


def error_of(answer: dict[str, Any] | None) -> str:
    return (answer or {}).get("error", {}).get("description", "")


# ---------------------------------------------------------------- the doors


def test_a_plain_publish_is_checked() -> None:
    world = World()
    assert "error" not in world.created
    refused = world.peer.publish("S.a", WRONG)
    assert refused is not None
    assert refused["error"] == {"code": 400, "err_code": 20702, "description": PROBLEM}
    assert error_of(world.publish(WRONG, Colour="blue")) == PROBLEM
    assert world.peer.publish("S.a", GOOD) == {"stream": "S", "seq": 1}
    assert world.payloads() == [GOOD]
    found = world.checks()
    assert (found["action"], found["checked"], found["wrong"]) == ("reject", 3, 2)
    assert found["last_problem"] == 'S.a: /id: "x" is not of type "integer"'


def test_a_stream_without_the_setting_checks_nothing() -> None:
    world = World()
    world.peer.create("T", subjects=["S2.>"])
    world.put("other.1", document("S2.>"))
    assert world.peer.publish("S2.a", WRONG) == {"stream": "T", "seq": 1}
    assert "schema_checks" not in world.peer.api("STREAM.INFO.T")


def test_an_atomic_batch_with_a_wrong_message_is_refused_as_a_whole() -> None:
    world = World(config={"allow_atomic": True})
    for last in (WRONG, GOOD):
        batch = {"Nats_Batch_Id": last.hex()}
        assert world.publish(GOOD, **batch, Nats_Batch_Sequence="1") == {}
        answer = world.publish(last, **batch, Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
        assert error_of(answer) == (PROBLEM if last is WRONG else "")
    assert world.payloads() == [GOOD, GOOD]


def test_a_wrong_part_ends_its_atomic_batch_at_once() -> None:
    """Checking all of them with the last one could take seconds."""
    world = World(config={"allow_atomic": True})
    batch = {"Nats_Batch_Id": "b"}
    world.publish(GOOD, **batch, Nats_Batch_Sequence="1")
    assert error_of(world.publish(WRONG, **batch, Nats_Batch_Sequence="2")) == PROBLEM
    rest = world.publish(GOOD, **batch, Nats_Batch_Sequence="3", Nats_Batch_Commit="1")
    assert "incomplete" in error_of(rest)
    world.publish(GOOD, Nats_Batch_Id="c", Nats_Batch_Sequence="1")
    ended = world.publish(
        WRONG, Nats_Batch_Id="c", Nats_Batch_Sequence="2", Nats_Batch_Commit="eob"
    )
    assert error_of(ended) == ""
    assert world.payloads() == [GOOD]


def test_an_open_batch_does_not_outlive_the_beginning_of_checks() -> None:
    world = World(config={"allow_atomic": True})
    body: dict[str, Any] = {"name": "S", "subjects": ["S.>"], "allow_atomic": True}
    world.peer.api("STREAM.UPDATE.S", body)
    batch = {"Nats_Batch_Id": "b"}
    world.publish(WRONG, **batch, Nats_Batch_Sequence="1")
    world.peer.api("STREAM.UPDATE.S", {**body, "metadata": world.metadata})
    last = world.publish(GOOD, **batch, Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    assert "incomplete" in error_of(last)
    assert world.payloads() == []


def test_a_fast_batch_is_checked_message_by_message() -> None:
    world = World(config={"allow_batched": True})
    connection, peer = world.peer.connection, world.peer

    def send(number: int, operation: int, payload: bytes) -> list[dict[str, Any]]:
        reply = f"inbox.b1.10.ok.{number}.{operation}.$FI"
        connection.send(f"PUB S.a {reply} {len(payload)}\r\n".encode() + payload + b"\r\n")
        return [json.loads(body) for _, _, body in peer.take() if body]

    send(1, 0, GOOD)
    answers = send(2, 1, WRONG)
    assert any(PROBLEM in json.dumps(a).replace('\\"', '"') for a in answers), answers
    send(3, 2, GOOD)
    assert world.payloads() == [GOOD, GOOD]


def test_a_transaction_with_a_wrong_message_does_not_happen() -> None:
    world = World()
    answer = commit(world.peer, [message("dead.x", b"y"), message("S.a", WRONG)])
    assert PROBLEM in json.dumps(answer).replace('\\"', '"')
    assert world.payloads() == world.payloads("D") == []
    assert "error" not in commit(world.peer, [message("S.a", GOOD)])


def test_a_schedule_is_checked_as_what_it_will_publish() -> None:
    world = World(config={"allow_msg_schedules": True, "subjects": ["S.>", "later.>"]})
    times = {"Nats_Schedule": "@every 5s", "Nats_Schedule_Target": "S.a"}
    assert error_of(world.publish(WRONG, "later.x", **times)) == PROBLEM
    assert error_of(world.publish(WRONG, "S.x", **{**times, "Nats_Schedule_Target": "later.y"}))
    assert error_of(world.publish(GOOD, "later.x", **times)) == ""
    sourced = {**times, "Nats_Schedule_Source": "later.source"}
    assert error_of(world.publish(b"", "later.y", **sourced)) == ""
    world.publish(WRONG, "later.source")
    world.server.advance(12)
    found = [(subject, payload) for _, subject, payload in stored(world.peer, "S")]
    assert ("S.a", GOOD) in found
    assert ("S.a", WRONG) not in found


def test_what_another_stream_republishes_is_checked() -> None:
    world = World()
    world.peer.create("Q", subjects=["q.>"], republish={"src": "q.*", "dest": "S.$1"})
    for payload in (WRONG, GOOD):
        world.peer.publish("q.a", payload)
    assert world.payloads() == [GOOD]


def test_the_subject_after_a_transform_counts() -> None:
    world = World(
        config={"subjects": ["in.>"], "subject_transform": {"src": "in.*", "dest": "S.$1"}}
    )
    assert error_of(world.peer.publish("in.a", WRONG)) == PROBLEM
    assert world.peer.publish("in.a", GOOD) == {"stream": "S", "seq": 1}


def test_a_dead_letter_of_a_consumer_passes_the_same_door() -> None:
    world = World(config={"subjects": ["S.>", "dead2.>"]})
    world.put("letter.1", document("dead2.>", {"type": "string"}))
    world.peer.create("T", subjects=["T.>"])
    add_consumer(
        world.peer,
        "T",
        max_deliver=1,
        ack_wait=10**10,
        metadata={
            "tradewind.dead_letter.stream": "S",
            "tradewind.dead_letter.subject": "dead2.{subject}",
        },
    )
    for payload in (b"{}", b'"text"'):
        world.peer.publish("T.a", payload)
        assert pull(world.peer, "T", 1) == [payload]
        world.server.advance(20)
    assert world.payloads() == [b'"text"']


def test_copies_of_mirrors_and_sources_are_not_checked() -> None:
    world = World()
    world.peer.create("T", subjects=["T.>"])
    world.peer.publish("T.a", WRONG)
    transforms = [{"src": "T.>", "dest": "S.>"}]
    answer = world.peer.api(
        "STREAM.UPDATE.S",
        {
            "name": "S",
            "subjects": ["S.>"],
            "metadata": world.metadata,
            "sources": [{"name": "T", "subject_transforms": transforms}],
        },
    )
    assert "error" not in answer, answer
    world.server.advance(5)
    assert stored(world.peer, "S") == [(1, "S.a", WRONG)]


def test_markers_of_deleted_keys_need_no_payload() -> None:
    world = World(config={"allow_rollup_hdrs": True})
    assert error_of(world.publish(b"", KV_Operation="DEL")) == ""
    assert error_of(world.publish(b"", KV_Operation="PURGE", Nats_Rollup="sub")) == ""
    assert error_of(world.publish(WRONG, KV_Operation="DEL")) == PROBLEM
    assert "an empty payload is not JSON" in error_of(world.publish(b"", Colour="blue"))


def test_a_duplicate_is_acknowledged_as_before() -> None:
    world = World()
    first = world.publish(GOOD, Nats_Msg_Id="7")
    assert first == {"stream": "S", "seq": 1}
    assert world.publish(WRONG, Nats_Msg_Id="7") == {"stream": "S", "seq": 1, "duplicate": True}
    assert error_of(world.publish(WRONG, Nats_Msg_Id="8")) == PROBLEM
    assert world.publish(GOOD, Nats_Msg_Id="8") == {"stream": "S", "seq": 2}


def test_a_message_may_name_an_older_version() -> None:
    world = World()
    world.put("order.2", document(schema={"type": "string"}, version=2))
    assert "order.2" in error_of(world.peer.publish("S.a", GOOD))
    assert error_of(world.publish(GOOD, Tradewind_Schema="order.1")) == ""
    assert "no version of order" in error_of(world.publish(GOOD, Tradewind_Schema="order.9"))


# ---------------------------------------------------------------- what happens to wrong ones


def test_wrong_messages_are_stored_and_counted_on_request() -> None:
    world = World("count")
    assert world.peer.publish("S.a", WRONG) == {"stream": "S", "seq": 1}
    assert world.peer.publish("S.a", GOOD) == {"stream": "S", "seq": 2}
    found = world.checks()
    assert (found["action"], found["checked"], found["wrong"]) == ("count", 2, 1)


def test_wrong_messages_become_dead_letters_which_their_publisher_learns() -> None:
    world = World("dead-letter")
    answer = world.publish(WRONG, Nats_Msg_Id="7", Colour="blue")
    assert answer == {"stream": "D", "seq": 1}
    assert world.payloads() == []
    assert stored(world.peer, "D") == [(1, "dead.S.S.a", WRONG)]
    header = world.peer.api("STREAM.MSG.GET.D", {"seq": 1})["message"]["hdrs"]
    import base64

    text = base64.b64decode(header).decode()
    assert "Colour: blue\r\n" in text
    assert "Tradewind-Original-Nats-Msg-Id: 7\r\n" in text
    assert "Tradewind-Dead-Letter-Reason: schema\r\n" in text
    assert "Tradewind-Dead-Letter-Subject: S.a\r\n" in text
    assert 'not of type "integer"\r\n' in text
    assert world.checks()["dead_letters"] == 1
    assert world.peer.publish("S.a", GOOD) == {"stream": "S", "seq": 1}


def test_a_dead_letter_that_cannot_be_stored_is_refused() -> None:
    world = World("dead-letter")
    world.peer.api("STREAM.DELETE.D")
    assert error_of(world.peer.publish("S.a", WRONG)) == PROBLEM
    world.peer.create("D", subjects=["dead.T.>"])
    assert error_of(world.peer.publish("S.a", WRONG)) == PROBLEM
    assert world.peer.publish("S.a", GOOD) == {"stream": "S", "seq": 1}


def test_a_dead_letter_waits_for_the_disk_like_any_message() -> None:
    world = World("dead-letter")
    world.server.manual_sync = True
    assert world.peer.publish("S.a", WRONG) is None
    world.server.manual_sync = False
    world.server.run_until_idle()
    assert [json.loads(body) for _, _, body in world.peer.take()] == [{"stream": "D", "seq": 1}]


def test_two_streams_do_not_send_a_message_back_and_forth() -> None:
    world = World("dead-letter")
    world.put("all.1", document(">"))
    answer = world.peer.api(
        "STREAM.UPDATE.S",
        {"name": "S", "subjects": ["S.>", "dead.D.>"], "metadata": world.metadata},
    )
    assert "error" in answer  # D has those subjects
    world.peer.api("STREAM.UPDATE.D", {"name": "D", "subjects": ["dead.S.>"]})
    body = {"name": "S", "subjects": ["S.>", "dead.D.>"], "metadata": world.metadata}
    assert "error" not in world.peer.api("STREAM.UPDATE.S", body)
    metadata = {"tradewind.schema": "dead-letter", "tradewind.schema.stream": "S"}
    body = {"name": "D", "subjects": ["dead.S.>"], "metadata": metadata}
    assert "error" not in world.peer.api("STREAM.UPDATE.D", body)
    assert "does not obey schema all.1" in error_of(world.peer.publish("S.a", WRONG))
    assert world.payloads() == world.payloads("D") == []


def test_a_batch_is_refused_even_with_dead_letters() -> None:
    world = World("dead-letter", config={"allow_atomic": True})
    batch = {"Nats_Batch_Id": "b"}
    world.publish(GOOD, **batch, Nats_Batch_Sequence="1")
    answer = world.publish(WRONG, **batch, Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    assert error_of(answer) == PROBLEM
    assert world.payloads() == world.payloads("D") == []


# ---------------------------------------------------------------- schemas that fail


@sweep(
    "value",
    [b"{", b"null", document(schema={"type": "foo"}), document(schema={"$ref": "http://x"})],
)
def test_a_broken_schema_never_stops_a_stream(value: bytes) -> None:
    world = World()
    world.put("order.1", value)
    assert world.peer.publish("S.a", WRONG) == {"stream": "S", "seq": 1}
    world.put("order.1", document())
    assert error_of(world.peer.publish("S.a", WRONG)) == PROBLEM


def test_a_broken_schema_is_named_in_the_information() -> None:
    world = World()
    world.put("order.1", document(schema={"type": "foo"}))
    world.peer.publish("S.a", WRONG)
    found = world.checks()
    assert (found["checked"], found["unchecked"]) == (1, 1)
    assert "schema order.1 cannot be used: not a JSON Schema" in found["last_problem"]


def test_a_missing_library_never_stops_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    import tradewind.schemas.schema_errors as schema_errors

    world = World()
    monkeypatch.setitem(schema_errors.LIBRARIES, "json", "no_such_library")
    assert world.peer.publish("S.a", WRONG) == {"stream": "S", "seq": 1}
    assert "need the library no_such_library" in world.checks()["last_problem"]
    answer = world.peer.create("N", metadata={"tradewind.schema": "reject"})
    text = error_of(answer)
    assert text.startswith("stream metadata tradewind.schema: needs no_such_library: ")
    assert "schemas" in text


def test_schemas_come_and_go_with_their_bucket() -> None:
    world = World()
    assert error_of(world.peer.publish("S.a", WRONG)) == PROBLEM
    world.peer.api("STREAM.MSG.DELETE.KV_TW_SCHEMAS", {"seq": 1})
    assert world.peer.publish("S.a", WRONG) == {"stream": "S", "seq": 1}
    world.put("order.1", document())
    assert error_of(world.peer.publish("S.a", WRONG)) == PROBLEM
    world.peer.api("STREAM.PURGE.KV_TW_SCHEMAS")
    assert world.peer.publish("S.a", WRONG) == {"stream": "S", "seq": 2}
    world.put("order.1", document())
    world.peer.api("STREAM.DELETE.KV_TW_SCHEMAS")
    assert world.peer.publish("S.a", WRONG) == {"stream": "S", "seq": 3}
    world.peer.create("KV_TW_SCHEMAS", subjects=["$KV.TW_SCHEMAS.>"], storage="memory")
    world.put("order.1", document())
    assert error_of(world.peer.publish("S.a", WRONG)) == PROBLEM


def test_settings_are_switched_on_and_off() -> None:
    world = World()
    body: dict[str, Any] = {"name": "S", "subjects": ["S.>"]}
    world.peer.api("STREAM.UPDATE.S", body)
    assert world.peer.publish("S.a", WRONG) == {"stream": "S", "seq": 1}
    assert "schema_checks" not in world.peer.api("STREAM.INFO.S")
    world.peer.api("STREAM.UPDATE.S", {**body, "metadata": world.metadata})
    assert error_of(world.peer.publish("S.a", WRONG)) == PROBLEM


def test_checks_survive_a_restart() -> None:
    world = World()
    world.server = InProcessServer(disk=world.disk.crash_losing_unsynced())
    world.peer = Peer(world.server)
    assert error_of(world.peer.publish("S.a", WRONG)) == PROBLEM
    assert world.peer.publish("S.a", GOOD) == {"stream": "S", "seq": 1}


def test_the_copy_of_a_bucket_is_what_the_bucket_holds() -> None:
    """Whatever happens to the bucket, its schemas are those of its last messages."""
    chance = random.Random(5)
    world = World()
    assert world.server.engine is not None
    account = next(iter(world.server.engine.accounts.values()))
    schemas = schema_keeper.AccountSchemas(account)
    held: dict[str, int] = {"order.1": 1}
    last = 1
    for step in range(some(150, 3000)):
        key = f"s{chance.randrange(4)}.1"
        deed = chance.randrange(6)
        if deed < 3:
            world.put(key, document(f"x{step}", version=1))
            last += 1
            held[key] = last
        elif deed == 3 and key in held:
            world.peer.api("STREAM.MSG.DELETE.KV_TW_SCHEMAS", {"seq": held.pop(key)})
        elif deed == 4:
            world.peer.api("STREAM.PURGE.KV_TW_SCHEMAS", {"filter": f"$KV.TW_SCHEMAS.{key}"})
            held.pop(key, None)
        elif deed == 5:
            assert error_of(world.publish(b"", f"$KV.TW_SCHEMAS.{key}", KV_Operation="DEL")) == ""
            last += 1
            held.pop(key, None)
        if chance.random() < 0.5:
            table = schemas.current()
            assert sorted(f"{name}.1" for name in table.names) == sorted(held)
    assert schemas.current().check("S.a", WRONG).outcome is Outcome.INVALID


# ---------------------------------------------------------------- settings


@sweep(
    ("metadata", "problem"),
    [
        ({"": "refuse"}, "tradewind.schema: must be one of reject, dead-letter, count"),
        ({".stream": "D"}, "tradewind.schema: must be one of"),
        ({"": "reject", ".mode": "x"}, "tradewind.schema.mode: unknown key; valid keys are"),
        ({"": "reject", ".stream": "D"}, "tradewind.schema.stream: only with"),
        ({"": "dead-letter"}, "tradewind.schema.stream: '' is not the name of a stream"),
        ({"": "dead-letter", ".stream": "N"}, "cannot go to the stream itself"),
        ({"": "dead-letter", ".stream": "X"}, "stream X does not exist; create it first"),
        (
            {"": "dead-letter", ".stream": "D", ".subject": "other.{subject}"},
            "stream D does not store subject other.>",
        ),
        (
            {"": "dead-letter", ".stream": "D", ".subject": "dead.{subject}.x"},
            "tradewind.schema.subject: 'dead.{subject}.x': {stream} anywhere",
        ),
        ({"": "dead-letter", ".stream": "D", ".subject": "dead.{who}"}, "schema.subject: "),
        ({"": "dead-letter", ".stream": "D", ".subject": "dead.>"}, "schema.subject: "),
    ],
)
def test_a_setting_that_cannot_work_is_refused(metadata: dict[str, str], problem: str) -> None:
    world = World()
    found = {f"tradewind.schema{name}": value for name, value in metadata.items()}
    answer = world.peer.create("N", metadata=found)
    assert problem in error_of(answer)
    assert answer["error"]["err_code"] == 20701


def test_counters_and_mirrors_have_no_payloads_to_check() -> None:
    world = World()
    metadata = {"tradewind.schema": "reject"}
    counter = world.peer.create("N", metadata=metadata, allow_msg_counter=True)
    assert "counters have no payloads" in error_of(counter)
    body = {"name": "M", "mirror": {"name": "S"}, "metadata": metadata}
    mirror = world.peer.api("STREAM.CREATE.M", body)
    assert "a mirror takes no messages of publishers" in error_of(mirror)
