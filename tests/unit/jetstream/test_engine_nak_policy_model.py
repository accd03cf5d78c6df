"""Refused messages come again when the policy says, to the nanosecond, restarts or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from engine_kit import Peer
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

SECOND = 1_000_000_000
ACK_WAIT = 1000 * SECOND  # nothing comes again for any other reason
BACKOFF = [ACK_WAIT, 2 * ACK_WAIT]
REASONS = ("", "busy", "unknown")


def naive_wait(metadata: dict[str, str], reason: str, deliveries: int) -> tuple[int, int]:
    """(shortest, longest) wait, from the texts that this test uses."""
    text = metadata.get(f"tradewind.nak.delay.{reason}", metadata.get("tradewind.nak.delay", ""))
    table = {
        "": [0],
        "1.5s": [1_500_000_000],
        "1s,3s": [SECOND, 3 * SECOND],
        "exponential 1s x2 max 5s": [SECOND, 2 * SECOND, 4 * SECOND, 5 * SECOND],
        "2s jitter 50%": [2 * SECOND],
    }
    if not text and metadata.get("tradewind.nak.backoff") == "true":
        table[""] = BACKOFF
    steps = table[text]
    longest = steps[min(deliveries, len(steps)) - 1]
    return longest // 2 if "jitter" in text else longest, longest


class World:
    """A server with a consumer that is always asked for more; it can lose its power."""

    def __init__(self, metadata: dict[str, str], messages: int) -> None:
        self.metadata = metadata
        self.disk = SimulatedDisk()
        self.wall_ns = 0
        self.is_ending = False  # what comes is acknowledged
        self.due: dict[int, int] = {}  # sequence -> wall time
        self.open: dict[int, tuple[str, int]] = {}  # sequence -> ack subject, deliveries
        self._start()
        self.peer.create("S")
        config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": ACK_WAIT}
        if metadata.get("tradewind.nak.backoff"):
            config["backoff"] = BACKOFF
        body = {"stream_name": "S", "config": {**config, "metadata": metadata}}
        answer = self.peer.api("CONSUMER.CREATE.S.c", body)
        assert answer["config"]["metadata"].items() >= metadata.items()
        self._pull()
        for _ in range(messages):
            self.peer.connection.send(b"PUB S.a 1\r\nx\r\n")
        self._look()

    def _start(self) -> None:
        self.server = InProcessServer(disk=self.disk)
        if self.wall_ns:
            self.server.clock.advance_ns(self.wall_ns - self.server.clock.wall_ns())
        self.peer = Peer(self.server)
        self.peer.connection.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.> 9\r\n")

    def _pull(self) -> None:
        body = json.dumps({"batch": 1000}).encode()
        self.peer.connection.send(
            b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c inbox.pull %d\r\n%s\r\n" % (len(body), body)
        )

    def _frames(self) -> Iterator[tuple[str, str, bytes]]:
        data = self.peer.connection.take()
        while data:
            line, _, data = data.partition(b"\r\n")
            words = line.decode().split()
            if words[0] == "PING":
                self.peer.connection.send(b"PONG\r\n")
            if words[0] not in ("MSG", "HMSG"):
                continue
            size = int(words[-1])
            reply = words[3] if len(words) > (4 if words[0] == "MSG" else 5) else ""
            yield words[1], reply, data[:size]
            data = data[size + 2 :]

    def _look(self, *, may_repeat: bool = False) -> dict[str, Any]:
        """What has come, each thing at its time; gives the last advisory."""
        told: dict[str, Any] = {}
        now_ns = self.server.clock.wall_ns()
        for subject, reply, payload in self._frames():
            if subject.startswith("$JS.EVENT"):
                told = msgspec.json.decode(payload)
            elif reply.startswith("$JS.ACK."):
                deliveries, seq = map(int, reply.split(".")[4:6])
                assert may_repeat or seq not in self.open
                assert self.due.pop(seq, now_ns) == now_ns, "not when it was due"
                self.open[seq] = (reply, deliveries)
        if self.is_ending:
            for subject, _ in self.open.values():
                self.peer.connection.send(f"PUB {subject} 0\r\n\r\n".encode())
            self.open = {}
        assert all(due_ns > now_ns for due_ns in self.due.values()), "it did not come"
        return told

    def refuse(self, seq: int, reason: str, delay_ns: int) -> None:
        """With an answer, so that it is on disk."""
        subject, deliveries = self.open.pop(seq)
        header = b"NATS/1.0\r\nTradewind-Nak-Reason: %s\r\n\r\n" % reason.encode()
        payload = b"-NAK" if delay_ns < 0 else b'-NAK {"delay": %d}' % delay_ns
        total = len(header) + len(payload)
        now_ns = self.server.clock.wall_ns()
        shortest, longest = naive_wait(self.metadata, reason, deliveries)
        if delay_ns >= 0:
            shortest = longest = delay_ns
        self.due[seq] = now_ns
        head = f"HPUB {subject} inbox.kept {len(header)} {total}\r\n".encode()
        self.peer.connection.send(head + header + payload + b"\r\n")
        if longest:
            self.due[seq] = now_ns + longest
        told = self._look()
        assert shortest <= told.get("delay", 0) <= longest
        assert told.get("reason", "") == reason
        if seq in self.due:
            self.due[seq] = now_ns + told["delay"]

    def advance(self, duration_ns: int) -> None:
        end_ns = self.server.clock.monotonic_ns() + duration_ns
        while (now_ns := self.server.clock.monotonic_ns()) < end_ns:
            due_ns = self.server.broker.next_deadline_ns() or end_ns
            self.server.advance(0.000_000_001 * max(min(due_ns, end_ns) - now_ns, 1))
            self._look()

    def lose_power(self, rest_ns: int) -> None:
        """What is refused was answered; what is delivered may be delivered anew."""
        self.advance(SECOND // 3)  # deliveries are saved now and then
        self.wall_ns = self.server.clock.wall_ns() + rest_ns
        self.disk = self.disk.crash_losing_unsynced()
        self._start()
        late = {seq for seq, due_ns in self.due.items() if due_ns <= self.wall_ns}
        for seq in late:
            self.due[seq] = self.server.clock.wall_ns()
        self._pull()
        self.server.broker.tick()
        self.server.run_until_idle()
        self._look(may_repeat=True)


policies = st.fixed_dictionaries(
    {},
    optional={
        "tradewind.nak.delay": st.sampled_from(
            ["1.5s", "1s,3s", "exponential 1s x2 max 5s", "2s jitter 50%"]
        ),
        "tradewind.nak.delay.busy": st.sampled_from(["1.5s", "1s,3s"]),
        "tradewind.nak.backoff": st.just("true"),
    },
).filter(
    lambda found: found and len({"tradewind.nak.delay", "tradewind.nak.backoff"} & set(found)) < 2
)
operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("refuse"),
            st.integers(0, 9),
            st.sampled_from(REASONS),
            st.sampled_from([-1, -1, -1, 700_000_001]),
        ),
        st.tuples(st.just("advance"), st.integers(1, 4 * SECOND)),
        st.tuples(st.just("lose power"), st.integers(0, 3 * SECOND)),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(policies, st.integers(1, 4), operations)
def test_a_refused_message_comes_again_exactly_when_the_policy_says(
    metadata: dict[str, str], messages: int, steps: list[Any]
) -> None:
    world = World(metadata, messages)
    for kind, *arguments in steps:
        if kind == "refuse":
            number, reason, delay_ns = arguments
            if world.open:
                seq = sorted(world.open)[number % len(world.open)]
                world.refuse(seq, reason, delay_ns)
        elif kind == "advance":
            world.advance(arguments[0])
        else:
            world.lose_power(arguments[0])
    world.is_ending = True
    world.advance(2 * ACK_WAIT if "tradewind.nak.backoff" in metadata else 6 * SECOND)
    assert not world.due
