"""Permission is about what a request does: by whatever name, and on whose behalf."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_kit import Peer
from transaction_kit import add_consumer, message, stored

from tradewind.api.endpoint_row import LEGACY_PREFIX, OWN_PREFIX, PREFIX, ApiEndpoint, LegacyForm
from tradewind.api.endpoints import ENDPOINT_BY_NAME, ENDPOINTS
from tradewind.options import AccountOptions, JetStreamOptions, ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.route.sharing import ServiceExport, ServiceImport
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk
from tradewind.testing.gates import User, UserGate

OWN = [each for each in ENDPOINTS if each.prefix == OWN_PREFIX]
PURGE = f"{PREFIX}STREAM.PURGE.S"
NOT_ALLOWED = 20301
NO_CLIENT = 20302


class World:
    """Stream S with two messages and consumer c, an administrator, and a user with rules."""

    def __init__(self, *deny: str, allow: tuple[str, ...] | None = None, **config: Any) -> None:
        rules = PermissionRules(publish_allow=allow, publish_deny=deny)
        self.server = InProcessServer(
            ServerOptions(jetstream=JetStreamOptions(enabled=True)),
            disk=SimulatedDisk(),
            gate=UserGate([User("admin"), User("user", permissions=rules)]),
        )
        self.admin = Peer(self.server, "admin", inbox="to.admin")
        self.user = Peer(self.server, "user", inbox="to.user")
        self.admin.create("S", allow_direct=True, **config)
        add_consumer(self.admin, "S")
        for _ in range(2):
            self.admin.publish("S.a")
        self.admin.take()

    def state(self) -> Any:
        """All that a request could have changed."""
        streams = self.admin.api("STREAM.LIST")["streams"]
        consumers = self.admin.api("CONSUMER.LIST.S").get("consumers")
        templates = self.own("TEMPLATE.LIST", peer=self.admin).get("templates")
        for found in [*streams, *(consumers or [])]:
            found.pop("ts", None)
        return streams, consumers, templates

    def own(self, name: str, body: Any = b"", *, peer: Peer | None = None) -> dict[str, Any]:
        ((_, _, payload),) = (peer or self.user).ask(OWN_PREFIX + name, body)
        document: dict[str, Any] = json.loads(payload)
        return document


def error_code(answer: dict[str, Any]) -> int:
    return int(answer.get("error", {}).get("err_code", 0))


# ---------------------------------------------------------------- our own API

NEEDED = {
    "stream_truncate": (
        "STREAM.TRUNCATE.S",
        {"newest": 1},
        ("$JS.API.STREAM.PURGE.S",),
    ),
    "stream_undo": (
        "STREAM.UNDO.S",
        b"",
        ("$JS.API.STREAM.RESTORE.S", "$JS.API.STREAM.UPDATE.S"),
    ),
    "template_put": (
        "TEMPLATE.PUT.T",
        {"name": "T", "match": "t.*.>", "stream": "T_{1}", "idle": 10**10},
        ("$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.CREATE.X"),
    ),
    "transaction": (
        "COMMIT",
        {
            "publishes": [message("S.b")],
            "acks": [],
            "deletes": [{"stream": "S", "seq": 1}],
            "revivals": [],
        },
        ("S.b", "$JS.API.STREAM.MSG.DELETE.S"),
    ),
}
# They change nothing, but show what another request shows.
NEEDED_TO_READ = {
    "backup_cut": (
        "BACKUP.CUT",
        {"deliver_subject": "to.user"},
        ("$JS.API.STREAM.SNAPSHOT.*", "$JS.API.STREAM.SNAPSHOT.S", "$JS.API.STREAM.SNAPSHOT.X"),
    ),
    "backup_read": (
        "BACKUP.READ.S",
        {"deliver_subject": "to.user"},
        ("$JS.API.STREAM.SNAPSHOT.S",),
    ),
}
# They do nothing that another request could do.
ALONE = {
    "stream_chain_info",
    "stream_chain_checkpoint",
    "stream_chain_proof",
    "stream_chain_entries",
    "template_delete",
    "template_list",
    "template_try",
}


def test_every_request_of_our_own_says_what_it_needs() -> None:
    assert {each.name for each in OWN} == {*NEEDED, *NEEDED_TO_READ} | ALONE
    for endpoint in OWN:
        assert endpoint.needs is not None, endpoint.name
        needs = (*endpoint.needs, *endpoint.needs_by_body)
        assert bool(needs) == (endpoint.name not in ALONE), endpoint.name
        assert all(name in ENDPOINT_BY_NAME for name in needs)


@pytest.mark.parametrize(
    ("name", "denied"), [(name, denied) for name, row in NEEDED.items() for denied in row[2]]
)
def test_a_request_of_our_own_needs_the_permission_for_what_it_does(name: str, denied: str) -> None:
    subject, body, _ = NEEDED[name]
    world = World(denied)
    if name == "stream_undo":
        world.own("STREAM.TRUNCATE.S", {"newest": 1, "keep_for": 10**12}, peer=world.admin)
    before = world.state()
    assert error_code(world.own(subject, body)) in (NOT_ALLOWED, 20003)
    assert world.state() == before
    answer = world.own(subject, body, peer=world.admin)
    assert "error" not in answer, answer
    assert world.state() != before


@pytest.mark.parametrize(
    ("name", "denied"),
    [(name, denied) for name, row in NEEDED_TO_READ.items() for denied in row[2]],
)
def test_a_backup_needs_the_permission_for_snapshots(name: str, denied: str) -> None:
    subject, body, _ = NEEDED_TO_READ[name]
    world = World(denied)
    assert error_code(world.own(subject, body)) == NOT_ALLOWED
    assert "error" not in world.own(subject, body, peer=world.admin)
    allowed = World(allow=("$TW.API.BACKUP.>", "$JS.API.STREAM.SNAPSHOT.*"))
    assert "error" not in allowed.own(subject, body)


def test_only_what_is_needed_is_needed() -> None:
    world = World(allow=("$TW.API.STREAM.TRUNCATE.S", "$JS.API.STREAM.PURGE.S"))
    assert world.own("STREAM.TRUNCATE.S", {"newest": 1})["success"]
    assert len(stored(world.admin, "S")) == 1


@pytest.mark.parametrize("field", ["Nats-Schedule-Target", "Nats-Scheduler"])
def test_headers_direct_a_stream_only_where_the_publisher_may_publish(field: str) -> None:
    world = World("S.secret", allow_msg_schedules=True)
    others = {
        "Nats-Schedule-Target": "Nats-Schedule: @at 2099-01-01T00:00:00Z",
        "Nats-Scheduler": "Nats-Schedule-Next: purge",
    }
    header = f"NATS/1.0\r\n{others[field]}\r\n{field}: S.secret\r\n\r\n".encode()
    for user, is_stored in ((world.user, False), (world.admin, True)):
        size = len(header)
        user.connection.send(b"HPUB S.x to.user.1 %d %d\r\n%b\r\n" % (size, size, header))
        world.admin.take()
        ((_, _, payload),) = world.user.take()
        assert (error_code(json.loads(payload)) == 0) == is_stored, payload


# ---------------------------------------------------------------- the previews

FORMS = [(each, form) for each in ENDPOINTS for form in each.legacy if each.subject]
LEGACY_BODIES: dict[str, Any] = {
    "MSGSET.CREATE": {"name": "N", "subjects": ["n"], "storage": "memory"},
    "STREAM.$s.CREATE": {"name": "N", "subjects": ["n"], "storage": "memory"},
    "STREAM.$s.UPDATE": {"name": "S", "subjects": ["S.>", "more"], "storage": "file"},
    "MSGSET.INFO": b"S",
    "MSGSET.DELETE": b"S",
    "MSGSET.PURGE": b"S",
    "BYSEQ.$s": b"1",
    "STREAM.$s.MSG.BYSEQ": b"1",
    "MSGSET.MSG.DELETE": b"S 1",
    "STREAM.$s.MSG.DELETE": b"1",
    "STREAM.$s.EPHEMERAL.CONSUMER.CREATE": {
        "stream_name": "S",
        "config": {"delivery_subject": "to.admin.push", "deliver_all": True},
    },
    "OBSERVABLE.CREATE": {
        "msg_set_name": "S",
        "config": {"durable_name": "n", "deliver_all": True, "ack_policy": "explicit"},
    },
    "STREAM.$s.CONSUMER.$c.CREATE": {
        "stream_name": "S",
        "config": {"durable_name": "n", "deliver_all": True, "ack_policy": "explicit"},
    },
    "OBSERVABLES": b"S",
    "OBSERVABLE.INFO": b"S c",
    "OBSERVABLE.DELETE": b"S c",
}


@pytest.mark.parametrize(("today", "form"), FORMS, ids=[form.subject for _, form in FORMS])
def test_a_request_of_a_preview_needs_the_permission_for_that_of_today(
    today: ApiEndpoint, form: LegacyForm
) -> None:
    makes = form.subject.endswith("CREATE")
    stream = "N" if makes and "CONSUMER" not in form.subject else "S"
    names = {"$s": stream, "$c": "n" if makes else "c"}
    words = [names.get(word, word) for word in (LEGACY_PREFIX + form.subject).split(".")]
    subject, body = ".".join(words), LEGACY_BODIES.get(form.subject, b"")
    denied = ".".join("*" if word in names else word for word in today.subject.split("."))
    world = World(PREFIX + denied, allow_msg_ttl=False)
    before = world.state()
    answers = world.user.ask(subject, body)
    assert all(payload.startswith(b"-ERR") for *_, payload in answers), answers
    assert world.state() == before
    answers = world.admin.ask(subject, body)
    assert answers
    assert not any(payload.startswith(b"-ERR") for *_, payload in answers), answers


# ---------------------------------------------------------------- on nobody's behalf

COMMIT = f"{OWN_PREFIX}COMMIT"
TARGETS = {
    PURGE: b"",
    f"{PREFIX}STREAM.DELETE.S": b"",
    f"{PREFIX}CONSUMER.MSG.NEXT.S.c": b"2",
    f"{LEGACY_PREFIX}STREAM.S.PURGE": b"",
    f"{OWN_PREFIX}STREAM.TRUNCATE.S": b'{"newest": 1}',
    COMMIT: json.dumps({"deletes": [{"stream": "S", "seq": 1}]}).encode(),
    "$JS.ACK.S.c.1.1.1.1.1": b"+TERM",
}


# Whoever is delivered a message sees the subject it was stored under: most take it for nothing.
WAYS = [
    *((way, target) for way in ("republish", "answer") for target in TARGETS),
    ("deliver", f"{PREFIX}CONSUMER.MSG.NEXT.S.c"),
    ("deliver", f"{LEGACY_PREFIX}STREAM.S.PURGE"),
]


@pytest.mark.parametrize(("way", "target"), WAYS)
def test_what_the_server_publishes_for_somebody_is_no_request(way: str, target: str) -> None:
    world = World(target)
    world.admin.ask(f"{PREFIX}CONSUMER.MSG.NEXT.S.c", {"batch": 1, "no_wait": True})
    before = world.state()
    body = TARGETS[target]
    if way == "answer":
        # Of a service that gives back what it is asked: the server's own never write such bodies.
        world.server.broker.accounts["$G"].publish(target, body, "to.user.1")
    else:
        config = {"republish": {"src": "R.x", "dest": target}} if way == "republish" else {}
        assert "error" not in world.user.create("R", **config)
        if way == "deliver":
            # A consumer sends only where somebody listens.
            listener = Peer(world.server, "admin", inbox="to.listener")
            listener.connection.send(f"SUB {target} 9\r\n".encode())
            push = {"durable_name": "p", "deliver_subject": target, "ack_policy": "explicit"}
            made = world.user.api("CONSUMER.CREATE.R.p", {"stream_name": "R", "config": push})
            assert "error" not in made, made
        world.user.publish("R.x", body)
    world.server.run_until_idle()
    world.admin.api("STREAM.DELETE.R")
    assert world.state() == before


def test_subscribers_still_get_what_is_republished_to_the_api() -> None:
    world = World()
    world.admin.connection.send(b"SUB $JS.API.STREAM.PURGE.S 9\r\n")
    world.user.create("R", republish={"src": "R.x", "dest": PURGE})
    world.user.publish("R.x", b"seen")
    assert [payload for subject, _, payload in world.admin.take() if subject == PURGE] == [b"seen"]


# ---------------------------------------------------------------- through an import


class Shared:
    """Account E with stream S exports requests to I, which imports those of `imported`."""

    def __init__(self, *imported: str, deny: tuple[str, ...] = ()) -> None:
        exports = tuple(ServiceExport(subject) for subject in (*imported, "echo"))
        imports = tuple(ServiceImport("E", subject) for subject in (*imported, "echo"))
        accounts = {
            "E": AccountOptions("E", exports=exports, jetstream=True),
            "I": AccountOptions("I", imports=imports, jetstream=True),
        }
        rules = PermissionRules(publish_deny=deny)
        self.server = InProcessServer(
            ServerOptions(accounts=accounts, jetstream=JetStreamOptions(enabled=True)),
            disk=SimulatedDisk(),
            gate=UserGate([User("e", account="E"), User("i", account="I", permissions=rules)]),
            accounts=["E", "I"],
        )
        self.exporter = Peer(self.server, "e", inbox="to.e")
        self.importer = Peer(self.server, "i", inbox="to.i")
        self.exporter.create("S")
        self.exporter.publish("S.a")

    def commit(self, **parts: Any) -> int:
        ((_, _, payload),) = self.importer.ask(COMMIT, parts)
        return error_code(json.loads(payload))

    def count(self) -> int:
        return int(self.exporter.api("STREAM.INFO.S")["state"]["messages"])


def test_transaction_through_an_import_does_only_what_is_imported_too() -> None:
    delete = {"deletes": [{"stream": "S", "seq": 1}]}
    publish = {"publishes": [message("S.b")]}
    # With the first one, requests of the importer are about the streams of the exporter.
    imported = (f"{PREFIX}INFO", COMMIT)
    alone = Shared(*imported)
    assert (alone.commit(**delete), alone.commit(**publish), alone.count()) == (20003, 20003, 1)
    with_more = Shared(*imported, "S.>", "$JS.API.STREAM.MSG.DELETE.*")
    assert (with_more.commit(**publish), with_more.commit(**delete)) == (0, 0)
    assert [seq for seq, *_ in stored(with_more.exporter, "S")] == [2]
    denied = Shared(*imported, "S.>", deny=("S.secret",))
    assert (denied.commit(**publish), denied.count()) == (20003, 1)


def test_transaction_that_nobody_has_sent_is_refused() -> None:
    shared = Shared(COMMIT, "S.>")
    account = shared.server.broker.accounts["I"]
    account.publish(COMMIT, json.dumps({"publishes": [message("S.b")]}).encode(), "to.i.1")
    shared.server.run_until_idle()
    ((_, _, payload),) = shared.importer.take()
    assert error_code(json.loads(payload)) == NO_CLIENT
    assert shared.count() == 1


def test_answer_from_another_account_is_no_request() -> None:
    shared = Shared(deny=("$JS.API.STREAM.PURGE.>",))
    shared.importer.create("S")
    shared.importer.publish("S.a")
    shared.exporter.connection.send(b"SUB echo 9\r\n")
    shared.importer.connection.send(b"PUB echo %b 0\r\n\r\n" % PURGE.encode())
    ((_, reply),) = [
        (words[1], words[3].decode())
        for line in shared.exporter.connection.take().split(b"\r\n")
        if (words := line.split()) and words[1:2] == [b"echo"]
    ]
    shared.exporter.connection.send(f"PUB {reply} 0\r\n\r\n".encode())
    assert len(stored(shared.importer, "S")) == 1


# ---------------------------------------------------------------- dead letters


def consumer(subject: str = "dead.x") -> dict[str, Any]:
    metadata = {"tradewind.dead_letter.stream": "D", "tradewind.dead_letter.subject": subject}
    config = {"durable_name": "w", "ack_policy": "explicit", "metadata": metadata}
    return {"stream_name": "S", "config": config}


@pytest.mark.parametrize("subject", ["dead.secret", "dead.{subject}"])
def test_whoever_asks_for_dead_letters_may_publish_them(subject: str) -> None:
    world = World("dead.secret")
    world.admin.create("D", subjects=["dead.>"])
    assert error_code(world.user.api("CONSUMER.CREATE.S.w", consumer(subject))) == NOT_ALLOWED
    assert "error" not in world.admin.api("CONSUMER.CREATE.S.w", consumer(subject))
    # What is there may stay.
    changed = consumer(subject)
    changed["config"]["description"] = "changed"
    assert "error" not in world.user.api("CONSUMER.CREATE.S.w", changed)
    assert error_code(world.user.api("CONSUMER.CREATE.S.w", consumer("dead.*"))) != 0


# ---------------------------------------------------------------- dead letters of schemas


@pytest.mark.parametrize("subject", ["dead.secret", "dead.{subject}"])
def test_dead_letters_of_schemas_need_the_permission_to_publish_them(subject: str) -> None:
    world = World("dead.secret")
    world.admin.create("D", subjects=["dead.>"])
    metadata = {
        "tradewind.schema": "dead-letter",
        "tradewind.schema.stream": "D",
        "tradewind.schema.subject": subject,
    }
    config = {"name": "N", "subjects": ["N.>"], "metadata": metadata}
    assert error_code(world.user.api("STREAM.CREATE.N", config)) == NOT_ALLOWED
    state = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0}
    restore = {"config": config, "state": state}
    assert error_code(world.user.api("STREAM.RESTORE.N", restore)) == NOT_ALLOWED
    template = {
        "name": "t",
        "match": "many.*.>",
        "stream": "many_{1}",
        "max_streams": 5,
        "config": {"metadata": metadata},
    }
    answers = world.user.ask("$TW.API.TEMPLATE.PUT.t", template)
    assert b"dead." in answers[0][2]
    assert error_code(json.loads(answers[0][2])) == NOT_ALLOWED
    plain = {"name": "N", "subjects": ["N.>"]}
    assert "error" not in world.user.api("STREAM.CREATE.N", plain)
    assert error_code(world.user.api("STREAM.UPDATE.N", config)) == NOT_ALLOWED
    assert "error" not in world.admin.api("STREAM.UPDATE.N", config)
    # The settings that are there may stay.
    assert "error" not in world.user.api("STREAM.UPDATE.N", {**config, "description": "changed"})
