"""The short way of frequent requests: its answers are those of the handlers, byte by byte."""

from __future__ import annotations

import json
from typing import Any

from engine_kit import Peer
from hypothesis import example, given
from hypothesis import strategies as st

from tradewind.api.times import format_time
from tradewind.broker.accounts import InternalMessage
from tradewind.jetstream.prompt_answers import PromptAnswers, write_time
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

API = "$JS.API."
PLAIN = ("STREAM.INFO.S", "CONSUMER.INFO.S.C", "STREAM.NAMES", "CONSUMER.NAMES.S")


class Switch:
    """In place of the short way: counts what it answers, and can be turned off."""

    def __init__(self, prompt: PromptAnswers) -> None:
        self._prompt = prompt
        self.is_on = True
        self.answered = 0

    def answer(self, message: InternalMessage) -> bool:
        done = self.is_on and self._prompt.answer(message)
        self.answered += done
        return done


class Pair:
    """A server whose requests are answered both ways."""

    def __init__(self, **options: Any) -> None:
        self.server = InProcessServer(disk=SimulatedDisk(), **options)
        self.peer = Peer(self.server)
        engine = self.server.engine
        assert engine is not None
        self.tenant = engine.accounts["$G"]
        dispatcher = engine._dispatcher
        self.switch = Switch(dispatcher._prompt)
        dispatcher._prompt = self.switch  # type: ignore[assignment]

    def ask(self, name: str, body: Any = b"") -> bytes:
        """The answer of the short way, which must be that of the long one."""
        before = self.switch.answered
        short = self.peer.ask(API + name, body)
        self.is_short = self.switch.answered > before
        self.switch.is_on = False
        try:
            long = self.peer.ask(API + name, body)
        finally:
            self.switch.is_on = True
        assert [parts[1:] for parts in short] == [parts[1:] for parts in long]
        return long[0][2]


def headed(peer: Peer, subject: str, header: bytes, payload: bytes) -> None:
    block = b"NATS/1.0\r\n" + header + b"\r\n"
    size = len(block)
    peer.connection.send(
        f"HPUB {subject} {size} {size + len(payload)}\r\n".encode() + block + payload + b"\r\n"
    )
    peer.take()


def test_all_plain_reads_take_the_short_way() -> None:
    pair = Pair()
    pair.peer.create("S")
    pair.peer.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C"}})
    pair.peer.publish("S.1", b"data")
    for name in PLAIN:
        for body in (b"", b"{}"):
            pair.ask(name, body)
            assert pair.is_short, name
    for query in ({"seq": 1}, {"last_by_subj": "S.1"}, {"seq": 1, "next_by_subj": "S.*"}):
        pair.ask("STREAM.MSG.GET.S", query)
        assert pair.is_short, query


def test_what_is_unusual_takes_the_long_way() -> None:
    pair = Pair()
    pair.peer.create("S")
    for name, body in (
        ("STREAM.INFO.N", b""),
        ("STREAM.INFO.S", {"subjects_filter": ">"}),
        ("STREAM.INFO.S", b"no json"),
        ("STREAM.NAMES", {"offset": 1}),
        ("STREAM.NAMES", {"subject": "S.1"}),
        ("CONSUMER.INFO.S.N", b""),
        ("CONSUMER.INFO.S.N", b"x"),
        ("CONSUMER.NAMES.N", b""),
        ("STREAM.MSG.GET.S", b""),
        ("STREAM.MSG.GET.S", {}),
        ("STREAM.MSG.GET.S", {"seq": 7}),
        ("STREAM.MSG.GET.S", {"seq": 7, "last_by_subj": "S.1"}),
        ("STREAM.MSG.GET.S", {"seq": 7, "batch": 2}),
        ("STREAM.MSG.GET.N", {"seq": 1}),
    ):
        pair.ask(name, body)
        assert not pair.is_short, (name, body)


def test_each_answer_of_the_short_way_is_counted_like_the_others() -> None:
    pair = Pair()
    pair.peer.create("S")
    before = pair.tenant.api.total
    pair.ask("STREAM.INFO.S")
    assert pair.is_short
    assert pair.tenant.api.total == before + 2


def test_an_auditor_hears_of_every_request() -> None:
    pair = Pair()
    pair.peer.create("S")
    auditor = Peer(pair.server)
    auditor.connection.send(b"SUB $JS.EVENT.ADVISORY.API 9\r\n")
    pair.ask("STREAM.INFO.S")
    assert not pair.is_short
    audits = [subject for subject, *_ in auditor.take() if subject.startswith("$JS.")]
    assert len(audits) == 2


def test_a_request_waits_for_those_before_it() -> None:
    server = InProcessServer(disk=SimulatedDisk(), manual_sync=True)
    peer = Peer(server)
    body = json.dumps({"name": "S", "subjects": ["S.>"]}).encode()
    create = b"PUB $JS.API.STREAM.CREATE.S inbox.1 %d\r\n%s\r\n" % (len(body), body)
    peer.connection.send(create + b"PUB $JS.API.STREAM.NAMES inbox.2 0\r\n\r\n")
    server.run_until_idle()
    answers = peer.take()
    assert [subject for subject, *_ in answers] == ["inbox.1", "inbox.2"]
    assert json.loads(answers[1][2])["streams"] == ["S"]


def test_lists_of_names_follow_what_is_created_and_deleted() -> None:
    pair = Pair()
    for name in ("B", "A", "C"):
        pair.peer.create(name)
        pair.ask("STREAM.NAMES")
    for name in ("y", "x"):
        config = {"stream_name": "A", "config": {"durable_name": name}}
        pair.peer.api(f"CONSUMER.CREATE.A.{name}", config)
        pair.ask("CONSUMER.NAMES.A")
        assert pair.is_short
    pair.peer.api("CONSUMER.DELETE.A.y")
    assert json.loads(pair.ask("CONSUMER.NAMES.A"))["consumers"] == ["x"]
    pair.peer.api("STREAM.DELETE.B")
    assert json.loads(pair.ask("STREAM.NAMES"))["streams"] == ["A", "C"]
    assert pair.is_short


def test_a_changed_configuration_is_answered_at_once() -> None:
    pair = Pair()
    pair.peer.create("S")
    pair.ask("STREAM.INFO.S")
    pair.peer.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], "description": "<new>"})
    assert json.loads(pair.ask("STREAM.INFO.S"))["config"]["description"] == "<new>"
    create = {"stream_name": "S", "config": {"durable_name": "C"}}
    pair.peer.api("CONSUMER.CREATE.S.C", create)
    pair.ask("CONSUMER.INFO.S.C")
    create["config"] |= {"description": "&", "max_ack_pending": 7}  # type: ignore[operator]
    pair.peer.api("CONSUMER.CREATE.S.C", create)
    assert json.loads(pair.ask("CONSUMER.INFO.S.C"))["config"]["max_ack_pending"] == 7
    assert pair.is_short


def test_the_state_of_a_consumer_is_that_of_the_long_way() -> None:
    pair = Pair()
    pair.peer.create("S")
    config = {"durable_name": "C", "ack_policy": "explicit"}
    pair.peer.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    for number in range(3):
        pair.peer.publish(f"S.{number}")
    pair.ask("CONSUMER.INFO.S.C")
    delivered = pair.peer.ask(API + "CONSUMER.MSG.NEXT.S.C", {"batch": 2, "no_wait": True})
    assert len(delivered) == 2
    pair.ask("CONSUMER.INFO.S.C")
    pair.peer.connection.send(b"PUB $JS.ACK.S.C.1.1.1.0.0 0\r\n\r\n")
    document = json.loads(pair.ask("CONSUMER.INFO.S.C"))
    assert document["delivered"]["stream_seq"] == 2
    assert pair.is_short


SUBJECTS = st.one_of(
    st.sampled_from(["S.a", "S.<&>", 'S."q"', "S.\\", "S.é"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=8)
    .filter(lambda text: not set(text) & set("*>."))
    .map("S.{}".format),
)


@given(
    st.lists(st.tuples(SUBJECTS, st.binary(max_size=40), st.booleans()), min_size=1, max_size=4),
    st.sets(st.integers(1, 4)),
    st.booleans(),
)
def test_messages_and_states_are_those_of_the_long_way(
    messages: list[tuple[str, bytes, bool]], removed: set[int], without_header: bool
) -> None:
    pair = Pair()
    pair.peer.create("S")
    for subject, payload, has_header in messages:
        headed(pair.peer, subject, b"X: y\r\n" if has_header else b"", payload)
        pair.ask("STREAM.INFO.S")
    for seq in removed:
        pair.peer.api("STREAM.MSG.DELETE.S", {"seq": seq})
        pair.ask("STREAM.INFO.S")
    for seq in range(1, 6):
        pair.ask("STREAM.MSG.GET.S", {"seq": seq, "no_hdr": without_header})
    for subject, *_ in messages:
        pair.ask("STREAM.MSG.GET.S", {"last_by_subj": subject})


@given(st.integers(-(2**63) + 1, 2**63 - 1))
@example(0)
@example(-1)
@example(10**9)
@example(1_700_000_000_120_000_000)
def test_times_are_written_as_everywhere(time_ns: int) -> None:
    assert write_time(time_ns) == format_time(time_ns).encode()
