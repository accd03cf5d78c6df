"""Several clients of one server, doing anything in any order, against the model: exact output."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from broker_model import Message, ModelServer, ModelSession, ModelUser, Outcome
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from permission_model import PATTERNS, SUBJECTS

from client_frames import frames
from tradewind.options import ServerOptions
from tradewind.route.permission_rules import PermissionRules, ResponseRule
from tradewind.testing import FakeConnection, InProcessServer, User, UserGate

SECOND_NS = 1_000_000_000
RULES = PermissionRules(
    publish_allow=("a.>", "b"),
    publish_deny=("a.b",),
    subscribe_allow=("a.>", "b", "*.b q", "*"),
    subscribe_deny=("a.a", "b.>", "a.b q", "a.b.* q"),
    responses=ResponseRule(2, 5 * SECOND_NS),
)
USERS = {
    "guest": ModelUser("$G"),
    "alice": ModelUser("A"),
    "bob": ModelUser("A", RULES),
    "carol": ModelUser("B"),
}
CONNECTIONS_MAX = 6

who = st.integers(0, CONNECTIONS_MAX - 1)
sids = st.sampled_from(["1", "2", "3", "x" * 30])
# Narrow choices, so that most messages meet a subscription.
subjects = st.sampled_from(["a", "b", "a.a", "a.b", "b.b", "a.b.a", *SUBJECTS[:20:5]])
odd_subjects = st.sampled_from(["a", "b", "a.a", "a.b", "b.b", "a.*", ">", "a..b", "a."])
patterns = st.sampled_from(["a", "b", "*", ">", "a.*", "a.>", "*.b", *PATTERNS[::15]])
names = st.sampled_from(["guest", "alice", "alice", "bob", "bob", "carol"])
chunk_bytes = st.sampled_from([None, None, 1, 3, 7])


class Clients(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        gate = UserGate(
            [User(name, "pw", user.account, user.rules) for name, user in USERS.items()],
            stranger="guest",
        )
        # No PING but the first, which measures the round trip.
        options = ServerOptions(ping_interval_ns=10**9 * SECOND_NS)
        self.server = InProcessServer(options, gate=gate, accounts=["A", "B"])
        self.model = ModelServer()
        self.connections: list[FakeConnection] = []

    def pick(self, index: int) -> tuple[FakeConnection, ModelSession]:
        at = index % len(self.connections)
        return self.connections[at], self.model.sessions[at]

    def check(self, speaker: ModelSession, outcome: Outcome, reply: str = "") -> None:
        """Everybody has got what the model says, and nothing else."""
        got = [Counter[bytes]() for _ in self.connections]
        for index, connection in enumerate(self.connections):
            arrived = frames(connection.take())
            if self.model.sessions[index] is speaker:
                count = len(outcome.answer)
                assert arrived[:count] == outcome.answer
                arrived = arrived[count:]
            got[index].update(arrived)
        position = {id(session): index for index, session in enumerate(self.model.sessions)}
        for delivery in outcome.certain:
            assert got[position[id(delivery.session)]][delivery.frame] == 1
            got[position[id(delivery.session)]][delivery.frame] -= 1
            self.model.happened(delivery, reply)
        for choice in outcome.choices:
            made = [entry for entry in choice if got[position[id(entry.session)]][entry.frame]]
            assert len(made) == 1
            got[position[id(made[0].session)]][made[0].frame] -= 1
            self.model.happened(made[0], reply)
        assert not any(+rest for rest in got)

    # ---------------------------------------------------------------- what clients do

    @initialize(verbose=st.booleans())
    def begin(self, verbose: bool) -> None:
        for index, name in enumerate(["alice", "bob", "alice"]):
            self.open(through_buffer=index > 0)
            self.connect(index, name, {"verbose": verbose, "headers": index < 2}, index == 0, None)

    @precondition(lambda self: len(self.connections) < CONNECTIONS_MAX)
    @rule(through_buffer=st.booleans())
    def open(self, through_buffer: bool) -> None:
        self.connections.append(self.server.connect(through_buffer=through_buffer))
        self.model.sessions.append(ModelSession(USERS["guest"]))

    @precondition(lambda self: self.connections)
    @rule(
        index=who,
        name=names,
        options=st.fixed_dictionaries(
            {"headers": st.booleans()},
            optional={name: st.booleans() for name in ("verbose", "pedantic", "echo")},
        ),
        no_responders=st.booleans(),
        size=chunk_bytes,
    )
    def connect(
        self, index: int, name: str, options: dict[str, bool], no_responders: bool, size: int | None
    ) -> None:
        connection, session = self.pick(index)
        options["no_responders"] = no_responders and options["headers"]
        document = json.dumps({"user": name, "pass": "pw", **options}).encode()
        connection.send(b"CONNECT %b\r\n" % document, size)
        self.check(session, self.model.connect(session, USERS[name], options))

    @precondition(lambda self: self.connections)
    @rule(
        index=who,
        subject=patterns,
        queue=st.sampled_from(["", "", "q", "b"]),
        sid=sids,
        size=chunk_bytes,
    )
    def subscribe(self, index: int, subject: str, queue: str, sid: str, size: int | None) -> None:
        connection, session = self.pick(index)
        words = " ".join(word for word in ("SUB", subject, queue, sid) if word)
        connection.send(words.encode() + b"\r\n", size)
        self.check(session, self.model.subscribe(session, subject, queue, sid))

    @precondition(lambda self: self.connections)
    @rule(index=who, subject=patterns, sid=sids, count_max=st.integers(1, 3))
    def subscribe_for_a_while(self, index: int, subject: str, sid: str, count_max: int) -> None:
        self.subscribe(index, subject, "", sid, None)
        self.unsubscribe(index, sid, count_max, None)

    @precondition(lambda self: self.connections)
    @rule(index=who, sid=sids, count_max=st.integers(0, 4), size=chunk_bytes)
    def unsubscribe(self, index: int, sid: str, count_max: int, size: int | None) -> None:
        connection, session = self.pick(index)
        limit = f" {count_max}" if count_max else ""
        connection.send(f"UNSUB {sid}{limit}\r\n".encode(), size)
        self.check(session, self.model.unsubscribe(session, sid, count_max))

    @precondition(lambda self: self.connections)
    @rule(
        index=who,
        subject=odd_subjects,
        reply=st.sampled_from([""]) | subjects,
        payload=st.binary(max_size=20),
        size=chunk_bytes,
    )
    def publish(
        self, index: int, subject: str, reply: str, payload: bytes, size: int | None
    ) -> None:
        connection, session = self.pick(index)
        words = " ".join(word for word in ("PUB", subject, reply, str(len(payload))) if word)
        connection.send(words.encode() + b"\r\n" + payload + b"\r\n", size)
        message = Message(subject, reply, b"", payload)
        self.check(session, self.model.publish(session, message), reply)

    @precondition(lambda self: self.connections)
    @rule(index=who, subject=subjects, header=st.binary(max_size=9), payload=st.binary(max_size=9))
    def publish_with_header(self, index: int, subject: str, header: bytes, payload: bytes) -> None:
        connection, session = self.pick(index)
        sizes = b" %d %d\r\n" % (len(header), len(header) + len(payload))
        connection.send(b"HPUB " + subject.encode() + sizes + header + payload + b"\r\n")
        if session.headers:
            outcome = self.model.publish(session, Message(subject, "", header, payload))
            self.check(session, outcome)
        else:
            # An HPUB that was not agreed on ends the connection without a word.
            assert not connection.is_open
            self.forget(index)

    @precondition(lambda self: self.indices("bob") and self.indices("alice"))
    @rule(
        data=st.data(),
        subject=st.sampled_from(["a.a", "a.b"]),
        seconds=st.sampled_from([0, 2, 4.5, 6]),
        answers=st.integers(1, 3),
    )
    def ask_bob(self, data: st.DataObject, subject: str, seconds: float, answers: int) -> None:
        """Somebody who may publish to the reply only as an answer does so, in time or too late."""
        asking = data.draw(st.sampled_from(self.indices("alice")))
        answering = data.draw(st.sampled_from(self.indices("bob")))
        self.subscribe(answering, "a.>", "", "2", None)
        self.publish(asking, subject, "b.b", b"?", None)
        self.wait(seconds)
        for _ in range(answers):
            self.publish(answering, "b.b", "", b"!", None)

    def indices(self, name: str) -> list[int]:
        sessions = enumerate(self.model.sessions)
        return [index for index, session in sessions if session.user is USERS[name]]

    @precondition(lambda self: any(entry.no_responders for entry in self.model.sessions))
    @rule(
        data=st.data(),
        subject=st.sampled_from(["b.b.b.b", "a"]),
        queue=st.sampled_from(["", "q"]),
    )
    def ask_nobody(self, data: st.DataObject, subject: str, queue: str) -> None:
        """Somebody asks where mostly nobody listens, and hears of that on its own subscription."""
        able = [index for index, entry in enumerate(self.model.sessions) if entry.no_responders]
        index = data.draw(st.sampled_from(able))
        self.subscribe(index, "a.*", queue, "1", None)
        self.publish(index, subject, "a.b", b"?", None)

    @precondition(lambda self: self.connections)
    @rule(index=who, size=chunk_bytes)
    def ping(self, index: int, size: int | None) -> None:
        connection, session = self.pick(index)
        connection.send(b"PING\r\n", size)
        self.check(session, Outcome([b"PONG\r\n"]))

    @precondition(lambda self: self.connections)
    @rule(index=who)
    def close(self, index: int) -> None:
        self.pick(index)[0].close()
        self.forget(index)

    def forget(self, index: int) -> None:
        at = index % len(self.connections)
        assert self.connections[at].session.subscription_count == 0
        assert self.connections[at].session.input_pending_bytes == 0
        del self.connections[at]
        del self.model.sessions[at]

    @rule(seconds=st.sampled_from([0.5, 2, 4.5]))
    def wait(self, seconds: float) -> None:
        self.server.advance(seconds)
        self.model.now_ns += round(seconds * SECOND_NS)
        for connection in self.connections:
            assert connection.take() in (b"", b"PING\r\n")

    # ---------------------------------------------------------------- always

    @invariant()
    def counters_are_exact(self) -> None:
        for connection, model in zip(self.connections, self.model.sessions, strict=True):
            session = connection.session
            assert (session.in_msgs, session.in_bytes) == (model.in_msgs, model.in_bytes)
            assert (session.out_msgs, session.out_bytes) == (model.out_msgs, model.out_bytes)
            assert {
                (entry.sid, entry.subject, entry.queue, entry.msgs, entry.max_msgs)
                for entry in session.subscriptions()
            } == {
                (sid, entry.subject, entry.queue, entry.delivered, entry.delivered_max)
                for sid, entry in model.subscriptions.items()
            }

    @invariant()
    def accounts_hold_what_their_members_hold(self) -> None:
        for name, account in self.server.broker.accounts.items():
            members = [session for session in self.model.sessions if session.user.account == name]
            assert account.session_count == len(members)
            assert account.subscription_count == sum(
                len(member.subscriptions) for member in members
            )

    def teardown(self) -> None:
        for connection in self.connections:
            connection.close()
        assert not self.server.broker.sessions
        for account in self.server.broker.accounts.values():
            assert account.subscription_count == 0


TestClients = pytest.mark.slow(Clients.TestCase)
TestClients.settings = settings(max_examples=settings().max_examples, stateful_step_count=50)
